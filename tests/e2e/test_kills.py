"""kill -9 at operations on files, a sample of them: what was paid is finished, or was shown to nobody, and says so.

All of them: bench/kills.py. Mutants named were seen to fail.
"""

from __future__ import annotations

import pytest

from support.kills import GOOD, able, struck

pytestmark = pytest.mark.skipif(not able(), reason="a C compiler and Linux watch what a process does to files")


@pytest.mark.parametrize(("name", "every", "first"), [("ledger", 9, 5), ("stream", 17, 9), ("session", 41, 30)])
def test_whatever_a_kill_leaves_can_be_opened_or_made(name: str, every: int, first: int) -> None:
    """Mutants: a ledger that is made in place and refused as damaged; an unpaid or incomplete store that is refused; an
    empty file that counts as one; a crashed transaction that is not undone before a file is looked at."""
    found = struck(name, every, first)
    assert not set(found) - {*GOOD, "ended"}, found
    assert found.get("said", 0) == 0
    assert found["finished"] >= 2


def test_whatever_a_kill_leaves_of_a_release_is_finished_or_says_so() -> None:
    """Mutants: a leftover of a paid release that nobody looks for, or that is left beside once it is finished."""
    found = struck("sketch", 13, 5)
    assert not set(found) - {*GOOD, "ended"}, found
    assert min(found["anew"], found["said"], found["finished"]) >= 1
