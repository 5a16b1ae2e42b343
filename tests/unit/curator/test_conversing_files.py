"""The file of a conversation: where it may be, who may resume it, and what finds that it was changed.

Mutants named were seen to fail.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.curator.conversations import curator as conversing
from sfumato.curator.conversations import open_conversation, resume_conversation
from sfumato.curator.conversations import transcript as filed
from sfumato.curator.conversations.stored import read_transcript
from sfumato.privacy import debits as entries
from sfumato.privacy import files
from sfumato.privacy.accounting import ZcdpEvent
from sfumato.privacy.conversation_price import SparseVector, Terms
from sfumato.privacy.selection import Epochs
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from support.conversations import COST, HASH, TERMS, UNIT, N, curator, high, lines, low, opened, question
from support.edited import edited, put
from support.wall import COUNTS, DOMAIN, TABLE, Touched, Untouchable


@pytest.fixture
def ledger(tmp_path: Path) -> sf.Ledger:
    return sf.Ledger.create(tmp_path / "l.db", total=sf.zcdp(10**6))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "c.db"


def test_a_resumed_conversation_goes_on_where_it_was(ledger: sf.Ledger, store: Path) -> None:
    """Mutants: a threshold drawn anew at each resumption, which would cost e1 each time; an epoch given back."""
    terms = Terms(Epochs(3, Fraction(1, 1000)))  # thresholds of thousands: two of them are hardly ever the same
    first, _ = open_conversation(
        curator(ledger), terms, terms.cost(ZcdpEvent), name="c", plan_hash=HASH, store=store, about={"a": 1}
    )
    thresholds, again = [*lines(store, "threshold")], first
    for _ in range(4):
        again = resume_conversation(curator(sf.Ledger(store.with_name("l.db"))), store)
        again.ask(lambda _: question(penalty=10**8))
        thresholds.append(lines(store, "threshold")[-1])
    assert len(set(thresholds)) == 1
    again.ask(lambda _: question(penalty=-(10**8)))
    assert (first.asked, first.remaining, again.about, again.terms) == (5, 2, {"a": 1}, terms)
    first.ask(lambda _: question(penalty=-(10**8)))
    assert [s.above for s in again.steps] == [False] * 4 + [True] * 2
    found = read_transcript(store)
    assert (found.terms, found.about, found.remaining, found.name) == (terms, {"a": 1}, 1, "c")
    assert found.anchor == first.anchor == again.anchor
    assert [e.name for e in ledger.entries()] == ["c"]
    assert len({*lines(store, "threshold")[-3:]}) == 3


def test_the_debit_stands_before_any_noise_and_names_the_file(
    ledger: sf.Ledger, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: the threshold drawn before the debit; a ledger's entry that names no file."""
    seen: list[tuple[int, bool]] = []
    begin = SparseVector.begin

    def noted(terms: Terms, source: Any = None) -> SparseVector:
        seen.append((len(ledger.entries()), store.exists()))
        return begin(terms, source)

    monkeypatch.setattr(SparseVector, "begin", noted)
    asked = opened(ledger, store)
    assert seen == [(1, True)]
    (entry,) = ledger.entries()
    with closing(sqlite3.connect(store)) as connection:
        first, head = connection.execute("SELECT body, hash FROM lines WHERE sequence = 0").fetchone()
    assert entry.plan_hash == f"{HASH}:{head[:32]}"
    assert b"secret noise" in first.split(b"\n")[0]
    assert lines(store, "kind") == [("paid",)]
    assert asked.remaining == 3


PLACES: dict[str, Callable[[Path], Path]] = {
    "exists": lambda p: p / "l.db",
    "a link": lambda p: p / "link",
    "a dangling link": lambda p: p / "dangling",
    "climbs": lambda p: p / "x" / ".." / "c.db",
    "no folder": lambda p: p / "missing" / "c.db",
    "a folder": lambda p: p,
    "no text": lambda p: p / "nul\0",
}


@pytest.mark.parametrize("place", PLACES)
def test_a_place_for_no_new_file_is_refused_before_the_table_is_touched(
    place: str, ledger: sf.Ledger, tmp_path: Path
) -> None:
    """Mutants: a file overwritten; the place looked at after the debit."""
    (tmp_path / "link").symlink_to(tmp_path / "l.db")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    before = sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises(sf.errors.InvalidInput):
        open_conversation(
            curator(ledger, Untouchable()), TERMS, COST, name="c", plan_hash=HASH, store=PLACES[place](tmp_path)
        )
    assert ledger.entries() == ()
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_what_cannot_be_paid_for_leaves_no_file(
    ledger: sf.Ledger, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: a file under an account that ends with the process; a file left where the debit was refused."""

    def begin(paid: sf.Ledger, source: Any = TABLE, name: str = "c") -> None:
        open_conversation(curator(paid, source), TERMS, COST, name=name, plan_hash=HASH, store=store)

    with pytest.raises(sf.errors.PlanError, match="kept in one"):
        begin(sf.Ledger.in_memory(sf.zcdp(10**6)), Untouchable())
    with pytest.raises(Touched):
        begin(ledger, Untouchable())
    with pytest.raises(sf.errors.InvalidInput):
        begin(ledger, name="no/name")
    monkeypatch.setattr(ledger, "expect", lambda *_: None)
    with pytest.raises(sf.errors.InvalidInput):
        begin(ledger, name="no/name")
    assert not store.exists()
    assert ledger.entries() == ()


def crash(body: Callable[[], object]) -> None:
    """Run the body in a fork that it ends."""
    pid = os.fork()
    if pid == 0:  # no test framework in the child
        try:
            body()
        finally:
            os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


@pytest.mark.parametrize(("at", "entries"), [("debit", 0), ("pay", 1)])
@pytest.mark.parametrize("again", [True, False])
def test_an_opening_that_ends_early_goes_on_by_the_same_call(
    at: str, entries: int, again: bool, ledger: sf.Ledger, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paid for once, and then used; what asks for something else is refused.

    Mutants: a file that can neither be opened nor made; a second debit; an unpaid file that is resumed; one that was
    put back to before its receipt, and draws its noise anew. (Every boundary: test_conversation_stress.py.)
    """
    with monkeypatch.context() as patch:
        patch.setattr(conversing.FileTranscript if at == "pay" else sf.Ledger, at, lambda *_: os._exit(7))
        crash(lambda: opened(ledger, store))
    assert len(ledger.entries()) == entries
    with pytest.raises(sf.errors.LedgerError, match="did not come to its end"):
        read_transcript(store)
    assert read_transcript(store, begun=True).steps == ()
    if not entries:
        with pytest.raises(sf.errors.LedgerError, match="never paid"):
            resume_conversation(curator(ledger, Untouchable()), store)
    early = store.with_name("early")
    shutil.copy(store, early)
    early.chmod(0o600)
    if again or not entries:
        with pytest.raises(sf.errors.InvalidInput, match="something else"):
            open_conversation(curator(ledger), TERMS, COST, name="other", plan_hash=HASH, store=store)
        opened(ledger, store)
    else:
        resume_conversation(curator(ledger), store)
    assert len(ledger.entries()) == 1
    assert (
        resume_conversation(curator(ledger), store).remaining
        == resume_conversation(curator(ledger), store).terms.epochs.count
    )
    ledger.mark_released(ledger.paid(*_entry(ledger)), "kept")
    with pytest.raises(sf.errors.LedgerCorrupted, match="put back"):
        resume_conversation(curator(ledger), early)


def _entry(ledger: sf.Ledger) -> tuple[str, str]:
    (entry,) = ledger.entries()
    return entry.name, entry.plan_hash


def test_an_opening_that_cannot_be_completed_says_that_it_is_spent(
    ledger: sf.Ledger, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise sf.errors.LedgerError("the disk is full")

    monkeypatch.setattr(conversing.FileTranscript, "pay", full)
    with pytest.raises(sf.errors.NotWritten, match=r"spent \(entry 1"):
        opened(ledger, store)
    assert len(ledger.unreleased()) == 1


OTHER_DOMAIN = sf.Domain({"a": DOMAIN.attributes["a"], "c": DOMAIN.attributes["b"]})
CHANGED = sf.Histogram([COUNTS[0] + 1, *COUNTS[1:]])


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        ({"source": CHANGED}, sf.errors.SourceError, "not the one"),
        ({"domain": OTHER_DOMAIN, "source": Untouchable()}, sf.errors.PlanError, "another domain"),
        ({"unit": PrivacyUnit(Neighbours.REPLACE_ONE), "source": Untouchable()}, sf.errors.PlanError, "another domain"),
        ({"ledger": "another", "source": Untouchable()}, sf.errors.LedgerError, "another ledger"),
    ],
)
def test_another_table_domain_unit_or_ledger_is_refused(
    how: dict[str, Any], error: type[Exception], said: str, ledger: sf.Ledger, store: Path, tmp_path: Path
) -> None:
    """Mutants: no digest of the table; a unit, a domain or a ledger that is believed."""
    opened(ledger, store)
    if how.get("ledger"):
        how = how | {"ledger": sf.Ledger.create(tmp_path / "other.db", total=sf.zcdp(10**6))}
    with pytest.raises(error, match=said) as failure:
        resume_conversation(curator(**{"ledger": ledger, **how}), store)
    assert str(N) not in str(failure.value).replace(str(store), "")


def test_the_digest_tells_tables_that_differ_in_their_joint_counts(ledger: sf.Ledger, store: Path) -> None:
    """Mutant: a digest of single attributes alone. A table of the same counts is the same table."""
    opened(ledger, store)
    swapped = np.array(COUNTS).reshape(5, 3)
    swapped[:2, :2] += [[1, -1], [-1, 1]]
    with pytest.raises(sf.errors.SourceError, match="not the one"):
        resume_conversation(curator(ledger, sf.Histogram(swapped)), store)
    resume_conversation(curator(ledger, sf.Histogram(np.array(COUNTS).reshape(5, 3))), store).ask(high)


def test_the_file_is_the_custodians_alone(ledger: sf.Ledger, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: a file or a journal that others can read; a file opened to others that is used all the same."""
    modes: list[int] = []

    class Noting(sqlite3.Connection):
        def execute(self, *args: Any) -> sqlite3.Cursor:
            if args[0] == "COMMIT":
                modes.extend(p.stat().st_mode & 0o777 for p in store.parent.glob("c.db*"))
            return super().execute(*args)

    genuine, before = sqlite3.connect, os.umask(0)
    monkeypatch.setattr(files.sqlite3, "connect", lambda *a, **k: genuine(*a, **k, factory=Noting))
    try:
        opened(ledger, store).ask(high)
    finally:
        os.umask(before)
    assert set(modes) == {0o600}
    assert len(modes) > 6
    store.chmod(0o640)
    with pytest.raises(sf.errors.LedgerError, match="open to others"):
        resume_conversation(curator(ledger, Untouchable()), store)


# Tampering -----------------------------------------------------------------------------------------------------------


edit = partial(edited, breaks=3)


EDITS = {
    **{f"line {name}": put(2, part, "x") for part, name in enumerate(("kind", "answer", "threshold", "question"))},
    "line hash": "UPDATE lines SET hash = (SELECT hash FROM lines WHERE sequence = 1) WHERE sequence = 2",
    "line body": "UPDATE lines SET body = (SELECT body FROM lines WHERE sequence = 3) WHERE sequence = 2",
    "another answer": put(2, 1, f"{'+1':24}"),
    "a positive undone": put(2, 0, "below"),
    "deleted": "DELETE FROM lines WHERE sequence = 2",
    "no receipt": "DELETE FROM lines WHERE sequence = 1",
    "no opening": "DELETE FROM lines WHERE sequence = 0",
    "another notice": put(0, 0, ""),
    "another key": put(0, 1, "00" * 32),
    "another time": put(0, 2, "2000-01-01"),
    "another opening": put(0, 3, "x"),
    "another table": "CREATE TABLE more (x)",
}


@pytest.mark.parametrize("how", EDITS)
def test_no_edit_passes(how: str, ledger: sf.Ledger, store: Path) -> None:
    """Mutants: hashes that are read and not computed; a body that is not hashed; a schema that is not compared."""
    asked = opened(ledger, store)
    for form in (high, low):
        asked.ask(form)
    edit(store, EDITS[how])
    for use in (lambda: resume_conversation(curator(ledger, Untouchable()), store), lambda: read_transcript(store)):
        with pytest.raises(sf.errors.LedgerCorrupted):
            use()


def test_the_tables_only_grow(ledger: sf.Ledger, store: Path) -> None:
    """Mutants: a trigger left out; REPLACE, which fires no trigger of a deletion."""
    opened(ledger, store).ask(low)
    with closing(sqlite3.connect(store)) as connection:
        for statement in (
            "UPDATE lines SET body = x''",
            "DELETE FROM lines",
            "REPLACE INTO lines SELECT * FROM lines WHERE sequence = 1",
            "UPDATE lines SET hash = '' WHERE sequence = 0",
            "DELETE FROM lines WHERE sequence = 0",
            "REPLACE INTO lines SELECT * FROM lines WHERE sequence = 0",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="only grows"):
                connection.execute(statement)


def test_a_file_put_back_is_found_by_an_anchor_and_by_those_who_saw_it_grow(ledger: sf.Ledger, store: Path) -> None:
    """Mutants: an anchor that is not checked; an object that believes whatever is in the file now."""
    asked = opened(ledger, store)
    asked.ask(low)
    earlier, old = store.read_bytes(), asked.anchor
    asked.ask(high)
    newer = asked.anchor
    assert old is not None
    assert newer is not None
    assert (
        resume_conversation(curator(ledger), store, anchor=old).asked
        == read_transcript(store, anchor=newer).remaining
        == 2
    )
    store.write_bytes(earlier)
    for use in (
        lambda: resume_conversation(curator(ledger, Untouchable()), store, anchor=newer),
        lambda: read_transcript(store, newer),
        lambda: asked.ask(high),
        lambda: asked.steps,
    ):
        with pytest.raises(sf.errors.LedgerCorrupted, match=r"rolled back|put back"):
            use()
    again = resume_conversation(curator(ledger), store, anchor=old)
    again.ask(low)
    with pytest.raises(sf.errors.LedgerCorrupted, match="made anew"):
        resume_conversation(curator(ledger), store, anchor=newer)
    with pytest.raises(sf.errors.LedgerCorrupted, match="put back"):
        asked.ask(high)
    with pytest.raises(sf.errors.InvalidInput, match="anchor"):
        resume_conversation(curator(ledger), store, anchor="none")


def test_an_anchor_tells_nothing_of_the_noise(ledger: sf.Ledger, store: Path) -> None:
    """Mutant: a chain without a key, whose hashes betray which of few thresholds they were made of."""
    asked = opened(ledger, store)
    before = asked.anchor
    asked.ask(low)
    ((body,),) = lines(store, "body")[1:]
    assert before is not None

    def digest(key: bytes) -> str:
        return f"2:{filed.FORMAT.digest(key, before.split(':')[1], body)}"

    assert digest(asked._transcript.key) == asked.anchor  # type: ignore[attr-defined]
    assert asked.anchor not in {digest(key) for key in (b"", before.encode(), HASH.encode())}
    joined = before.split(":")[1].encode() + b"\n" + body
    assert hashlib.sha256(joined).hexdigest() not in str(asked.anchor)


def test_a_ledger_that_was_put_back_does_not_pay(
    ledger: sf.Ledger, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: the receipt kept and not looked at."""
    before = (tmp_path / "l.db").read_bytes()
    opened(ledger, store)
    (entry,) = ledger.entries()
    (tmp_path / "l.db").write_bytes(before)
    another = sf.Ledger(tmp_path / "l.db")
    with pytest.raises(sf.errors.LedgerError, match="never paid"):
        resume_conversation(curator(another, Untouchable()), store)
    monkeypatch.setattr(entries, "utc_timestamp", lambda: "2000-01-01T00:00:00+00:00")
    another.debit("c", entry.plan_hash, COST, UNIT)
    with pytest.raises(sf.errors.LedgerCorrupted, match="made anew"):
        resume_conversation(curator(another, Untouchable()), store)


def test_a_full_disk_answers_nothing_and_harms_nothing(
    ledger: sf.Ledger, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: a step given that could not be kept; one counted that was not."""
    asked = opened(ledger, store)

    class Full(sqlite3.Connection):
        def execute(self, *args: Any) -> sqlite3.Cursor:
            if args[0] == "COMMIT":
                super().execute("PRAGMA max_page_count=1")
                super().execute("CREATE TABLE large AS SELECT zeroblob(9999)")
            return super().execute(*args)

    genuine = sqlite3.connect
    with monkeypatch.context() as patch:
        patch.setattr(files.sqlite3, "connect", lambda *a, **k: genuine(*a, **k, factory=Full))
        with pytest.raises(sf.errors.LedgerError, match="disk is full"):
            asked.ask(high)
    assert (asked.asked, asked.remaining) == (0, 3)
    assert asked.ask(high).answer == N
