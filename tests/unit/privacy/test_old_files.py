"""Files that sfumato 0.1 wrote (tests/fixtures/0.1): what this version does with them."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest

import sfumato as sf
from sfumato.privacy.accountant import GaussianEvent
from sfumato.privacy.chain import SCHEMA
from sfumato.privacy.ledger import Ledger
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.sessions import session_status
from sfumato.wall import Curator
from sfumato.wall.keys import KeyCurator
from sfumato.wall.keys.stored import is_histogram
from sfumato.wall.talk import resume
from sfumato.wall.talk.stored import read_transcript
from support.wall import DOMAIN, Untouchable

OLD = Path(__file__).parents[2] / "fixtures" / "0.1"
ANCHOR = "7:9a73bf89118269d4252dea064aa8c799ebafb7ffffb8598ab3a3cfd050bbb6b7"
UNIT = PrivacyUnit(Neighbours.ADD_REMOVE)
PLAN = "a" * 64
EVENT = GaussianEvent(Fraction(1, 1000))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(shutil.copy(OLD / "ledger.db", tmp_path / "ledger.db"))


def facts(ledger: Ledger) -> tuple[object, ...]:
    return ledger.ledger_id, ledger.total, ledger.currency, ledger.entries(), ledger.verify(ANCHOR), ledger.export()


def test_an_old_ledger_is_read_and_stays_as_it_is(path: Path) -> None:
    """Mutants: a file that is written by reading it; hashes of old lines believed."""
    before = path.read_bytes()
    ledger = Ledger(path)
    assert (ledger.anchor, ledger.total, ledger.unit, ledger.table) == (ANCHOR, sf.approx(4, "1e-6"), None, None)
    assert [(e.sequence, e.kind, e.name, e.released) for e in ledger.entries()] == [
        (1, "spend", "2026-10", True),
        (2, "released", "2026-10", True),
        (3, "spend", "2026-11", False),
        (4, "spend", "desk", True),
        (5, "released", "desk", True),
        (6, "spend", "keys", True),
        (7, "released", "keys", True),
    ]
    assert [e.name for e in ledger.unreleased()] == ["2026-11"]
    # as 0.1 printed it
    assert ledger.spent == Fraction(6938041977507340497895959701363, 50000000000000000000000000000000)
    assert ledger.verify(ANCHOR).anchor == ANCHOR
    assert [(row["name"], row["unit"], row["table"]) for row in ledger.export()] == [
        (name, "", "") for name in ("2026-10", "2026-11", "desk", "keys")
    ]
    assert path.read_bytes() == before


def test_an_old_ledger_refuses_to_spend_and_says_what_to_do(path: Path) -> None:
    """Mutants: a spend in the old format, which no unit goes with; a table read before the refusal."""
    before, ledger = path.read_bytes(), Ledger(path)
    for use in (
        lambda: ledger.debit("n", PLAN, EVENT, UNIT),
        lambda: ledger.expect("n", PLAN, EVENT, UNIT),
        lambda: ledger.name("people"),
        lambda: sf.release(_plan(), "nowhere.csv", ledger=path, name="n", table="people"),
        lambda: Curator(Untouchable(), DOMAIN, UNIT, ledger).prepaid(EVENT, name="n", plan_hash=PLAN),
    ):
        with pytest.raises(sf.errors.LedgerError, match="sfumato ledger upgrade"):
            use()
    assert path.read_bytes() == before


def _plan() -> sf.Plan:
    return sf.plan(sf.prefix(DOMAIN, "a"), sf.approx("0.01", "1e-6"), neighbours="add-remove")


def test_an_upgraded_ledger_says_the_same_and_goes_on(path: Path) -> None:
    """Mutants: hashes made anew, so that anchors kept elsewhere find nothing; a line lost; a unit made up."""
    running, before = Ledger(path), facts(Ledger(path))
    ledger = Ledger.upgrade(path)
    assert facts(ledger) == facts(running) == before
    again = path.read_bytes()
    assert facts(Ledger.upgrade(path)) == before
    assert path.read_bytes() == again
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
        assert dict(connection.execute("SELECT name, sql FROM sqlite_schema").fetchall()) == SCHEMA
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    receipt = running.debit("2026-12", PLAN, EVENT, UNIT, "people")
    ledger.mark_released(receipt, PLAN)
    assert receipt.sequence == 8
    assert ledger.verify(ANCHOR).entries == Ledger(path).verify(receipt.anchor).entries == 9
    assert (ledger.unit, ledger.table) == (UNIT, "people")
    assert ledger.entries()[:7] == before[3]
    with pytest.raises(sf.errors.LedgerMismatch):
        ledger.debit("2027-01", PLAN, EVENT, PrivacyUnit(Neighbours.REPLACE_ONE), "people")


def test_the_unreleased_spend_of_an_old_ledger_can_be_marked_after_the_upgrade(path: Path) -> None:
    """Mutant: old receipts that are no anchors any more."""
    from sfumato.privacy.ledger import Receipt

    old = Ledger(path)
    spend = old.unreleased()[0]
    with closing(sqlite3.connect(path)) as connection:
        (digest,) = connection.execute("SELECT hash FROM entries WHERE sequence = 3").fetchone()
    receipt = Receipt(3, f"3:{digest}", old.ledger_id, spend.name, spend.price, old.currency)
    Ledger.upgrade(path).mark_released(receipt, PLAN)
    assert Ledger(path).unreleased() == ()


CHANGES = {
    "a price": "UPDATE entries SET price = '0' WHERE sequence = 1",
    "the total": "UPDATE genesis SET total = '9'",
    "a line lost": "DELETE FROM entries WHERE sequence = 7",
    "a number for text": "UPDATE entries SET sequence = 8 WHERE sequence = 7",
    "the link": "UPDATE entries SET previous = hash WHERE sequence = 4",
    "a hash": "UPDATE entries SET hash = previous WHERE sequence = 4",
    "another spend": "UPDATE entries SET spend = 3 WHERE sequence = 5",
    "no first row": "DELETE FROM genesis",
    "a break": "UPDATE entries SET name = name || char(10) || plan_hash WHERE sequence = 1",
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_old_ledger_that_was_changed_is_refused_and_not_upgraded(change: str, path: Path) -> None:
    """Mutants: an upgrade that computes hashes anew over whatever it finds; `previous` not compared."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(CHANGES[change])
        for _, text in triggers:
            connection.execute(text)
    before = path.read_bytes()
    if change == "a line lost":  # a cut tail is found by the anchor alone
        with pytest.raises(sf.errors.LedgerCorrupted, match="rolled back or cut"):
            Ledger(path).verify(ANCHOR)
        return
    for use in (lambda: Ledger(path), lambda: Ledger.upgrade(path)):
        with pytest.raises(sf.errors.LedgerCorrupted):
            use()
    assert path.read_bytes() == before


def test_sessions_of_old_files_are_refused_plainly(tmp_path: Path) -> None:
    """Mutant: a file of 0.1 that is called damaged."""
    ledger = Ledger(OLD / "ledger.db")
    conversation, histogram = (
        Path(shutil.copy(OLD / name, tmp_path / name)) for name in ("conversation.db", "keystore.db")
    )
    for store in (conversation, histogram):
        store.chmod(0o600)
    assert is_histogram(histogram)
    assert not is_histogram(conversation)
    for use in (
        lambda: read_transcript(conversation),
        lambda: session_status(conversation),
        lambda: session_status(histogram),
        lambda: sf.load(histogram, ledger=ledger),
        lambda: resume(Curator(Untouchable(), DOMAIN, UNIT, ledger), conversation),
        lambda: KeyCurator(Untouchable(), sf.Keys(), UNIT, ledger).resume_histogram(histogram),
    ):
        with pytest.raises(sf.errors.LedgerError, match=r"sfumato 0\.1.*open another") as refusal:
            use()
        assert type(refusal.value) is sf.errors.LedgerError
