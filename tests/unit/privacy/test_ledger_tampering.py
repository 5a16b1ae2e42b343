"""No edit of a ledger's file passes: not by a database tool, and not by someone who computes the hashes anew."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest

from sfumato.errors import InvalidInput, LedgerCorrupted, LedgerError
from sfumato.privacy.accountant import PureEvent
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger import Ledger, store

PLAN, RESULT = "a" * 64, "b" * 64
ONE = PureEvent(Fraction(1))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.db"


@pytest.fixture
def filled(path: Path) -> Ledger:
    ledger = Ledger.create(path, total=Budget.pure(100))
    for number in range(4):
        receipt = ledger.debit(f"n{number}", PLAN, PureEvent(Fraction(number + 1, 7)))
        if number % 2:
            ledger.mark_released(receipt, RESULT)
    return ledger


def edit(path: Path, *statements: str) -> None:
    """Change the file as someone with a database tool would, and put the triggers back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for name in store.SCHEMA:
            connection.execute(f"DROP TRIGGER IF EXISTS {name}")
        for statement in statements:
            connection.execute(statement)
        for sql in store.SCHEMA.values():
            if sql.startswith("CREATE TRIGGER"):
                connection.execute(sql)
    with closing(sqlite3.connect(path)) as connection:
        assert len(connection.execute("SELECT name FROM sqlite_schema").fetchall()) == len(store.SCHEMA)


def refuses_to_spend(path: Path, ledger: Ledger | None = None) -> None:
    for use in (lambda: Ledger(path), lambda: (ledger or Ledger(path)).debit("new", PLAN, ONE)):
        with pytest.raises(LedgerCorrupted):
            use()


ROW = ", ".join(store.ENTRY_FIELDS[1:])
EDITS = {
    **{
        f"entry {name}": f"UPDATE entries SET {name} = {name} || 'x' WHERE sequence = 3"
        for name in store.ENTRY_FIELDS[1:]
    },
    **{f"genesis {name}": f"UPDATE genesis SET {name} = {name} || 'x'" for name in (*store.GENESIS_FIELDS, "hash")},
    "entry spend": "UPDATE entries SET spend = spend + 1 WHERE sequence = 3",
    "cheaper": "UPDATE entries SET price = '1/700', cumulative = '1/700' WHERE sequence = 1",
    "same value, other text": "UPDATE entries SET price = '2/14' WHERE sequence = 1",
    "larger total": "UPDATE genesis SET total = '1000'",
    "deleted": "DELETE FROM entries WHERE sequence = 2",
    "deleted first": "DELETE FROM entries WHERE sequence = 1",
    "emptied": "DELETE FROM genesis",
    "renumbered": "UPDATE entries SET sequence = 99 WHERE sequence = 6",
    "added": f"INSERT INTO entries SELECT 7, {ROW} FROM entries WHERE sequence = 6",
}


@pytest.mark.parametrize("change", EDITS.values(), ids=EDITS.keys())
def test_any_edit_is_detected(filled: Ledger, path: Path, change: str) -> None:
    """Mutants: a column left out of the hash; prices that are not summed again."""
    edit(path, change)
    refuses_to_spend(path)
    refuses_to_spend(path, filled)


def test_an_untouched_edit_is_no_alarm(filled: Ledger, path: Path) -> None:
    """The control: dropping and restoring the triggers alone changes no fact."""
    expected = filled.verify()
    edit(path)
    assert Ledger(path).verify() == expected


def test_reordering_and_swapping_are_detected(filled: Ledger, path: Path) -> None:
    edit(
        path,
        "UPDATE entries SET sequence = -1 WHERE sequence = 2",
        "UPDATE entries SET sequence = 2 WHERE sequence = 1",
        "UPDATE entries SET sequence = 1 WHERE sequence = -1",
    )
    refuses_to_spend(path)


def test_text_moved_between_columns_is_detected(filled: Ledger, path: Path) -> None:
    """Mutant: columns hashed without a separator."""
    edit(path, "UPDATE entries SET name = 'n0a', plan_hash = substr(plan_hash, 2) WHERE sequence = 1")
    refuses_to_spend(path)
    edit(path, "UPDATE entries SET name = name || char(10) || substr(plan_hash, 1, 3) WHERE sequence = 1")
    refuses_to_spend(path)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET price = '0'",
        "DELETE FROM entries",
        "DELETE FROM entries WHERE sequence = 6",
        "UPDATE genesis SET total = '1000'",
        "DELETE FROM genesis",
        f"REPLACE INTO entries SELECT sequence, {ROW} FROM entries WHERE sequence = 2",
        f"INSERT INTO entries SELECT 9, {ROW} FROM entries WHERE sequence = 6",
        "INSERT INTO genesis SELECT 2, ledger_id, budget, currency, total, created, hash FROM genesis",
        "REPLACE INTO genesis SELECT 1, ledger_id, budget, currency, '9', created, hash FROM genesis",
    ],
)
def test_triggers_refuse_what_is_not_growth(filled: Ledger, path: Path, statement: str) -> None:
    """Mutant: no trigger on REPLACE, which deletes without a delete trigger."""
    with closing(sqlite3.connect(path)) as connection, pytest.raises(sqlite3.IntegrityError, match="only grows"):
        connection.execute(statement)
    assert filled.verify().entries == 6


@pytest.mark.parametrize(
    "change",
    [
        "DROP TRIGGER entries_update",
        "CREATE TABLE more (a)",
        "CREATE INDEX more ON entries (name)",
        "CREATE VIEW more AS SELECT 1",
        "CREATE TRIGGER more AFTER INSERT ON entries BEGIN DELETE FROM entries; END",
        "ALTER TABLE entries ADD COLUMN more TEXT",
    ],
)
def test_other_tables_and_triggers_are_detected(filled: Ledger, path: Path, change: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(change)
    refuses_to_spend(path, filled)


def test_other_headers_are_refused(filled: Ledger, path: Path) -> None:
    for pragma, error in (
        ("user_version=2", "upgrade"),
        ("application_id=0", "not a sfumato ledger"),
        ("journal_mode=WAL", None),
    ):
        content = path.read_bytes()
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA {pragma}")
        for use in (lambda: Ledger(path), lambda: filled.debit("new", PLAN, ONE)):
            with pytest.raises(LedgerError, match=error):
                use()
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        path.write_bytes(content)
    assert filled.verify().entries == 6


def test_a_free_list_that_claims_used_pages_is_refused(filled: Ledger, path: Path) -> None:
    """Mutant: no integrity check. Every row reads well, and the next row would be written over them."""
    content = bytearray(path.read_bytes())
    pages = int.from_bytes(content[28:32], "big")
    content[32:40] = pages.to_bytes(4, "big") + (1).to_bytes(4, "big")
    path.write_bytes(content)
    refuses_to_spend(path, filled)


def rebuild(path: Path, *changes: str) -> None:
    """Apply changes and compute every hash anew: a forger who knows the format."""
    edit(path, *changes)

    def digest(previous: str, facts: tuple[object, ...]) -> str:
        return hashlib.sha256("\n".join([previous, *map(str, facts)]).encode()).hexdigest()

    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        *facts, _ = connection.execute(f"SELECT {', '.join(store.GENESIS_FIELDS)}, hash FROM genesis").fetchone()
        head = digest("sfumato ledger", tuple(facts))
        rows = connection.execute(f"SELECT {', '.join(store.ENTRY_FIELDS)} FROM entries ORDER BY sequence").fetchall()
    updates = [f"UPDATE genesis SET hash = '{head}'"]
    for row in rows:
        previous, head = head, digest(head, row[:-2])
        updates.append(f"UPDATE entries SET previous = '{previous}', hash = '{head}' WHERE sequence = {row[0]}")
    edit(path, *updates)


@pytest.mark.parametrize(
    "changes",
    [
        ["UPDATE entries SET price = '1/70' WHERE sequence = 1"],
        ["UPDATE genesis SET total = '1'"],
        ["DELETE FROM entries WHERE sequence = 1"],
        ["UPDATE entries SET kind = 'refund' WHERE sequence = 1"],
        ["UPDATE entries SET name = 'n0' WHERE sequence = 4"],
        ["UPDATE entries SET spend = 1 WHERE sequence = 3"],
        ["UPDATE entries SET kind = 'released' WHERE sequence = 1"],
        ["UPDATE entries SET price = '-1/7', cumulative = '-1/7' WHERE sequence = 1"],
        ["UPDATE entries SET price = '1e99999999' WHERE sequence = 1"],
        ["UPDATE entries SET event = 'pure' WHERE sequence = 1"],
        ["UPDATE genesis SET budget = '{}'"],
        ["UPDATE genesis SET currency = 'euro'"],
    ],
)
def test_even_a_consistent_chain_must_make_sense(filled: Ledger, path: Path, changes: list[str]) -> None:
    """Mutants: the sums trusted; kinds, names and releases unchecked."""
    rebuild(path, *changes)
    refuses_to_spend(path)


def test_only_an_anchor_finds_a_ledger_made_anew(filled: Ledger, path: Path) -> None:
    """Mutant: an anchor compared by its sequence only."""
    anchor, early = filled.anchor, f"0:{filled.verify().ledger_id}"
    rebuild(path, "UPDATE entries SET plan_hash = 'other' WHERE sequence = 6")
    assert Ledger(path).verify().entries == 6
    with pytest.raises(LedgerCorrupted, match="made anew"):
        Ledger(path).verify(anchor)
    with pytest.raises(LedgerCorrupted, match="made anew"):
        filled.debit("new", PLAN, ONE)
    for text in ("", "6", "6:abc", anchor.upper(), f" {anchor}", None, early):
        with pytest.raises(InvalidInput):
            Ledger(path).verify(text or "")


def test_rollback_and_tail_cut_are_found_by_the_anchor(path: Path) -> None:
    """Mutant: an anchor that is checked only when its line exists."""
    ledger = Ledger.create(path, total=Budget.pure(10))
    first = ledger.debit("a", PLAN, ONE).anchor
    old = path.read_bytes()
    second = ledger.debit("b", PLAN, ONE).anchor
    assert Ledger(path).verify(first).anchor == second
    path.write_bytes(old)
    assert Ledger(path).verify(first).spent == 1
    with pytest.raises(LedgerCorrupted, match="rolled back or cut"):
        Ledger(path).verify(second)
    with pytest.raises(LedgerCorrupted, match="rolled back or cut"):
        ledger.debit("c", PLAN, ONE)
    with pytest.raises(LedgerCorrupted):
        Ledger.in_memory(Budget.pure(10)).verify(first)


def test_a_replaced_ledger_is_noticed(path: Path, tmp_path: Path) -> None:
    ledger = Ledger.create(path, total=Budget.pure(1))
    Ledger.create(tmp_path / "new.db", total=Budget.pure(1000))
    (tmp_path / "new.db").replace(path)
    with pytest.raises(LedgerCorrupted):
        ledger.debit("a", PLAN, PureEvent(Fraction(500)))
    path.unlink()
    with pytest.raises(LedgerError):
        _ = ledger.remaining
    assert "Ledger" in repr(ledger)
