"""No edit of a ledger's file passes: not by a database tool, and not by someone who computes the hashes anew."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest

from sfumato.errors import InvalidInput, LedgerCorrupted, LedgerError
from sfumato.privacy.accounting import PureEvent
from sfumato.privacy.budget import Budget
from sfumato.privacy.chain import SCHEMA
from sfumato.privacy.ledger import Ledger
from sfumato.privacy.unit import Neighbours, PrivacyUnit

PLAN, RESULT = "a" * 64, "b" * 64
ONE = PureEvent(Fraction(1))
UNIT = PrivacyUnit(Neighbours.ADD_REMOVE)
OPENING = ("ledger_id", "budget", "currency", "total", "created", "table")
SPEND = (
    *("sequence", "kind", "name", "plan_hash", "event", "price", "cumulative", "time", "about", "result_hash"),
    *("unit", "table"),
)
Lines = dict[int, list[str]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.db"


@pytest.fixture
def filled(path: Path) -> Ledger:
    ledger = Ledger.create(path, total=Budget.pure(100))
    for number in range(4):
        receipt = ledger.debit(f"n{number}", PLAN, PureEvent(Fraction(number + 1, 7)), UNIT)
        if number % 2:
            ledger.mark_released(receipt, RESULT)
    return ledger


def edit(path: Path, *statements: str, lines: Callable[[Lines], object] = lambda _: None) -> None:
    """Change the file as someone with a database tool would, and put the triggers back; `lines` changes facts."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for name in SCHEMA:
            connection.execute(f"DROP TRIGGER IF EXISTS {name}")
        for statement in statements:
            connection.execute(statement)
        rows = connection.execute("SELECT sequence, body FROM lines").fetchall()
        found = {number: body.decode().split("\n") for number, body in rows}
        lines(found)
        for number, facts in found.items():
            connection.execute("UPDATE lines SET body = ? WHERE sequence = ?", ("\n".join(facts).encode(), number))
        for sql in SCHEMA.values():
            if sql.startswith("CREATE TRIGGER"):
                connection.execute(sql)
    with closing(sqlite3.connect(path)) as connection:
        assert len(connection.execute("SELECT name FROM sqlite_schema").fetchall()) == len(SCHEMA)


def put(line: int, **facts: str) -> Callable[[Lines], None]:
    """Other facts in a line."""

    def change(lines: Lines) -> None:
        for name, text in facts.items():
            lines[line][(SPEND if line else OPENING).index(name)] = text

    return change


def more(line: int, fact: int) -> Callable[[Lines], None]:
    """One more letter in a fact."""

    def change(lines: Lines) -> None:
        lines[line][fact] += "x"

    return change


def refuses_to_spend(path: Path, ledger: Ledger | None = None) -> None:
    for use in (lambda: Ledger(path), lambda: (ledger or Ledger(path)).debit("new", PLAN, ONE, UNIT)):
        with pytest.raises(LedgerCorrupted):
            use()


FACTS: dict[str, Callable[[Lines], object]] = {
    **{f"line 3 {name}": more(3, i) for i, name in enumerate(SPEND[:10])},
    **{f"line 1 {name}": more(1, i) for i, name in enumerate(SPEND)},
    **{f"first line {name}": more(0, i) for i, name in enumerate(OPENING)},
    "cheaper": put(1, price="1/700", cumulative="1/700"),
    "same value, other text": put(1, price="2/14"),
    "larger total": put(0, total="1000"),
    "another unit": put(1, unit='["replace-one", null, 1]'),
    "another table": put(1, table="people"),
}
EDITS = {
    "a hash": "UPDATE lines SET hash = hash || 'x' WHERE sequence = 3",
    "the first hash": "UPDATE lines SET hash = hash || 'x' WHERE sequence = 0",
    "deleted": "DELETE FROM lines WHERE sequence = 2",
    "deleted first": "DELETE FROM lines WHERE sequence = 1",
    "emptied": "DELETE FROM lines",
    "beheaded": "DELETE FROM lines WHERE sequence = 0",
    "renumbered": "UPDATE lines SET sequence = 99 WHERE sequence = 6",
    "added": "INSERT INTO lines SELECT 7, body, hash FROM lines WHERE sequence = 6",
}


@pytest.mark.parametrize("change", FACTS.values(), ids=FACTS.keys())
def test_any_changed_fact_is_detected(filled: Ledger, path: Path, change: Callable[[Lines], object]) -> None:
    """Mutants: a fact left out of the hash; prices that are not summed again."""
    edit(path, lines=change)
    refuses_to_spend(path)
    refuses_to_spend(path, filled)


@pytest.mark.parametrize("change", EDITS.values(), ids=EDITS.keys())
def test_any_edit_is_detected(filled: Ledger, path: Path, change: str) -> None:
    """Mutants: hashes read and not compared; numbers not counted."""
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
        "UPDATE lines SET sequence = -1 WHERE sequence = 2",
        "UPDATE lines SET sequence = 2 WHERE sequence = 1",
        "UPDATE lines SET sequence = 1 WHERE sequence = -1",
    )
    refuses_to_spend(path)


def test_text_moved_between_facts_is_detected(filled: Ledger, path: Path) -> None:
    """Mutant: facts hashed without a separator."""
    edit(path, lines=put(1, name="n0a", plan_hash=PLAN[1:]))
    refuses_to_spend(path)
    edit(path, lines=put(1, name=f"n0\n{PLAN[:3]}", plan_hash=PLAN))
    refuses_to_spend(path)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE lines SET body = x'00'",
        "DELETE FROM lines",
        "DELETE FROM lines WHERE sequence = 6",
        "UPDATE lines SET body = x'00' WHERE sequence = 0",
        "DELETE FROM lines WHERE sequence = 0",
        "REPLACE INTO lines SELECT sequence, body, hash FROM lines WHERE sequence = 2",
        "INSERT INTO lines SELECT 9, body, hash FROM lines WHERE sequence = 6",
        "INSERT INTO lines SELECT -1, body, hash FROM lines WHERE sequence = 0",
        "REPLACE INTO lines SELECT 0, x'00', hash FROM lines WHERE sequence = 0",
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
        "DROP TRIGGER lines_update",
        "CREATE TABLE more (a)",
        "CREATE INDEX more ON lines (hash)",
        "CREATE VIEW more AS SELECT 1",
        "CREATE TRIGGER more AFTER INSERT ON lines BEGIN DELETE FROM lines; END",
        "ALTER TABLE lines ADD COLUMN more TEXT",
    ],
)
def test_other_tables_and_triggers_are_detected(filled: Ledger, path: Path, change: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(change)
    refuses_to_spend(path, filled)


def test_other_headers_are_refused(filled: Ledger, path: Path) -> None:
    for pragma, error in (
        ("user_version=3", "has format 3 .*reads format 2 alone; upgrade"),
        ("user_version=1", "has format 1 .*reads format 2 alone"),
        ("application_id=0", "not a sfumato ledger"),
        ("journal_mode=WAL", None),
    ):
        content = path.read_bytes()
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA {pragma}")
        for use in (lambda: Ledger(path), lambda: filled.debit("new", PLAN, ONE, UNIT)):
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


def rebuild(path: Path, *statements: str, lines: Callable[[Lines], object] = lambda _: None) -> None:
    """Apply changes and compute every hash anew: a forger who knows the format."""
    edit(path, *statements, lines=lines)
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT sequence, body FROM lines ORDER BY sequence").fetchall()
    head, updates = "sfumato ledger", list[str]()
    for number, body in rows:
        head = hashlib.sha256(head.encode() + b"\n" + body).hexdigest()
        updates.append(f"UPDATE lines SET hash = '{head}' WHERE sequence = {number}")
    edit(path, *updates)


def test_a_forger_who_changes_nothing_is_no_alarm(filled: Ledger, path: Path) -> None:
    """The control: the hashes of `rebuild` are those of the ledger."""
    rebuild(path)
    assert Ledger(path).entries() == filled.entries()


@pytest.mark.parametrize(
    "change",
    [
        put(1, price="1/70"),
        put(0, total="1"),
        put(1, kind="refund"),
        put(1, sequence="7"),
        put(3, sequence="7"),
        put(4, name="n0"),
        put(3, about="1"),
        put(1, kind="released"),
        put(1, price="-1/7", cumulative="-1/7"),
        put(1, price="1e99999999"),
        put(1, event="pure"),
        put(0, budget="{}"),
        put(0, currency="euro"),
        put(1, unit='["replace-one", null, 1]'),
        put(1, unit='["add-remove",null,1]'),
        put(1, unit="{}"),
        put(1, unit=""),
        put(4, table="people"),
        put(0, table="people"),
        put(3, plan_hash="other"),
        lambda lines: lines.update({5: lines[5][:10]}),
        lambda lines: lines.update({6: ["6", "named", "", "2026"]}),
        lambda lines: lines.update({6: ["6", "released"]}),
        lambda lines: lines[1].append("more"),
    ],
)
def test_even_a_consistent_chain_must_make_sense(filled: Ledger, path: Path, change: Callable[[Lines], object]) -> None:
    """Mutants: the sums trusted; kinds, numbers, names, units, tables and releases unchecked."""
    rebuild(path, lines=change)
    refuses_to_spend(path)


def test_only_an_anchor_finds_a_ledger_made_anew(filled: Ledger, path: Path) -> None:
    """Mutant: an anchor compared by its sequence only."""
    anchor, early = filled.anchor, f"0:{filled.verify().ledger_id}"
    rebuild(path, lines=put(1, time="2000-01-01T00:00:00+00:00"))
    assert Ledger(path).verify().entries == 6
    with pytest.raises(LedgerCorrupted, match="made anew"):
        Ledger(path).verify(anchor)
    with pytest.raises(LedgerCorrupted, match="made anew"):
        filled.debit("new", PLAN, ONE, UNIT)
    for text in ("", "6", "6:abc", anchor.upper(), f" {anchor}", None, early):
        with pytest.raises(InvalidInput):
            Ledger(path).verify(text or "")


def test_rollback_and_tail_cut_are_found_by_the_anchor(path: Path) -> None:
    """Mutant: an anchor that is checked only when its line exists."""
    ledger = Ledger.create(path, total=Budget.pure(10))
    first = ledger.debit("a", PLAN, ONE, UNIT).anchor
    old = path.read_bytes()
    second = ledger.debit("b", PLAN, ONE, UNIT).anchor
    assert Ledger(path).verify(first).anchor == second
    path.write_bytes(old)
    assert Ledger(path).verify(first).spent == 1
    with pytest.raises(LedgerCorrupted, match="rolled back or cut"):
        Ledger(path).verify(second)
    with pytest.raises(LedgerCorrupted, match="rolled back or cut"):
        ledger.debit("c", PLAN, ONE, UNIT)
    with pytest.raises(LedgerCorrupted):
        Ledger.in_memory(Budget.pure(10)).verify(first)


def test_a_replaced_ledger_is_noticed(path: Path, tmp_path: Path) -> None:
    ledger = Ledger.create(path, total=Budget.pure(1))
    Ledger.create(tmp_path / "new.db", total=Budget.pure(1000))
    (tmp_path / "new.db").replace(path)
    with pytest.raises(LedgerCorrupted):
        ledger.debit("a", PLAN, PureEvent(Fraction(500)), UNIT)
    path.unlink()
    with pytest.raises(LedgerError):
        _ = ledger.remaining
    assert "Ledger" in repr(ledger)
