"""Drawn declarations of persons: whatever a plan accepts is released, answered, stored with its page, and accepted.

`python bench/once_per.py declarations 300` draws more. It found what is named beside its seed.
"""

from __future__ import annotations

import pytest

from support.declared import carried_out, drawn_declaration

# 5: means of replaced persons; 29, 58: prices that the stranger could not follow, plans worse than rows anywhere;
# 1: a page of prefixes over categories; the others are the first drawn
SEEDS = (0, 1, 2, 3, 4, 5, 9, 29, 58)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_accepted_is_carried_out(seed: int) -> None:
    assert carried_out(drawn_declaration(seed)) == "accepted"
