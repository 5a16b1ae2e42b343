"""A ledger holds all its spends to one privacy unit and one table, whichever door they come through.

Mutants named were seen to fail.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.curator import Curator
from sfumato.curator.conversations import open_conversation
from sfumato.curator.keys import KeyCurator
from sfumato.curator.selecting import select
from sfumato.operators import Block, Dense
from sfumato.privacy.accounting import BoundedRangeEvent, GaussianEvent, PureEvent, ZcdpEvent
from sfumato.privacy.ledger import Ledger
from sfumato.privacy.noise import DiscreteLaplace, RoundedGaussian
from sfumato.privacy.selection import Candidates
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.sketches.maps import Listed
from support.conversations import COST, HASH, TERMS
from support.typed import SPEC, Run
from support.wall import DOMAIN, Untouchable
from support.words import open_with

ADD = PrivacyUnit(Neighbours.ADD_REMOVE)
RECORDS = pd.DataFrame({"a": [0, 1, 2, 3, 0], "b": list("xyxyx"), "item": [5, 5, 9, 7, 5], "who": [1, 2, 3, 4, 5]})
RECORDS["them"] = RECORDS["who"]
LARGE = PureEvent(Fraction(10))
LAW = DiscreteLaplace(Fraction(10))
BLOCKS = (Block((("a",),), (Dense(np.array([[1, 0, 1, 0, 1]])),)),)
CHOICE = Candidates(BLOCKS, *(np.ones(1, dtype=np.int64) for _ in range(3)))
NAMED: dict[str, Any] = {"name": "n", "plan_hash": HASH}

DOORS: dict[str, Callable[[Curator, KeyCurator, Path], object]] = {
    "measure": lambda c, _, p: c.measure(BLOCKS, RoundedGaussian(Fraction(10)), GaussianEvent(Fraction(10)), **NAMED),
    "select": lambda c, _, p: select(c, CHOICE, BoundedRangeEvent(Fraction(1)), **NAMED),
    "prepaid": lambda c, _, p: c.prepaid(ZcdpEvent(Fraction(1)), **NAMED),
    "converse": lambda c, _, p: open_conversation(c, TERMS, COST, **NAMED),
    "converse in a file": lambda c, _, p: open_conversation(c, TERMS, COST, **NAMED, store=p),
    "measure by keys": lambda _, k, p: k.measure(Listed(np.array([5], dtype=np.uint64)), LAW, LARGE, None, **NAMED),
    "histogram": lambda _, k, p: k.histogram(LAW, LARGE, **NAMED),
    "histogram in a file": lambda _, k, p: k.histogram(LAW, LARGE, **NAMED, store=p),
    "converse over keys": lambda _, k, p: k.converse(TERMS, COST, **NAMED),
    "converse over keys in a file": lambda _, k, p: k.converse(TERMS, COST, **NAMED, store=p),
}
PERSON = PrivacyUnit(Neighbours.ADD_REMOVE, "who", 2)
HELD: dict[str, tuple[PrivacyUnit, str | None, PrivacyUnit, str | None]] = {
    "another relation": (ADD, None, PrivacyUnit(Neighbours.REPLACE_ONE), None),
    "records for persons": (PERSON, None, ADD, None),
    "persons for records": (ADD, None, PrivacyUnit(Neighbours.ADD_REMOVE, "who", 1), None),
    "another person column": (PERSON, None, PrivacyUnit(Neighbours.ADD_REMOVE, "them", 2), None),
    "another relation of persons": (PERSON, None, PrivacyUnit(Neighbours.REPLACE_ONE, "who", 2), None),
    "another table": (ADD, "people", ADD, "visits"),
    "no table for one": (ADD, "people", ADD, None),
    "a table for none": (ADD, None, ADD, "people"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "l.db"


@pytest.fixture
def ledger(path: Path) -> Ledger:
    return Ledger.create(path, total=sf.zcdp(10**6))


def look(door: str, source: Any, unit: PrivacyUnit, ledger: Ledger, table: str | None, store: Path) -> None:
    own = {"table": table}
    DOORS[door](
        Curator(source, DOMAIN, unit, ledger, **own), KeyCurator(source, sf.Keys("item"), unit, ledger, **own), store
    )


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("door", DOORS)
def test_every_door_is_held_to_the_first_spend(door: str, held: str, ledger: Ledger, path: Path) -> None:
    """Mutants: units not compared; tables not compared; a door that names no table; a door that does not ask first."""
    unit, table, other, another = HELD[held]
    ledger.debit("first", HASH, ZcdpEvent(Fraction(0)), unit, table)
    with pytest.raises(sf.errors.LedgerMismatch, match="Nothing was spent"):
        look(door, Untouchable(), other, ledger, another, path.with_name("s.db"))
    assert [e.name for e in ledger.entries()] == ["first"]
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    look(door, RECORDS, unit, ledger, table, path.with_name("s.db"))
    entry = ledger.find("n")
    assert entry is not None
    assert (entry.unit, entry.table) == (unit, table)


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("door", DOORS)
def test_the_debit_refuses_what_came_in_between(
    door: str, held: str, ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: checked before the table is read and not again: another process may have spent meanwhile."""
    unit, table, other, another = HELD[held]
    ledger.debit("first", HASH, ZcdpEvent(Fraction(0)), unit, table)
    monkeypatch.setattr(Ledger, "expect", lambda *_: None)
    with pytest.raises(sf.errors.LedgerMismatch):
        look(door, RECORDS, other, ledger, another, path.with_name("s.db"))
    assert [e.name for e in ledger.entries()] == ["first"]
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("door", DOORS)
def test_a_ledger_of_persons_takes_any_number_of_their_rows(door: str, ledger: Ledger, path: Path) -> None:
    """Mutants: rows of a person compared; the line that pays keeps the rows of the first one."""
    first = PrivacyUnit(Neighbours.ADD_REMOVE, "who", 7, once_per=("a",), rows_per_group=2)
    ledger.debit("first", HASH, ZcdpEvent(Fraction(0)), first, "hospital")
    look(door, RECORDS, PERSON, ledger, "hospital", path.with_name("s.db"))
    again = Ledger(path)
    assert [e.unit for e in again.entries() if e.kind == "spend"] == [first, PERSON]
    assert (again.unit, again.table) == (PrivacyUnit(Neighbours.ADD_REMOVE, "who"), "hospital")
    assert again.verify(ledger.anchor).entries == len(ledger.entries())


def test_what_a_refusal_says(ledger: Ledger) -> None:
    """What the ledger holds, what was given, what to do."""
    ledger.debit("first", HASH, ZcdpEvent(Fraction(0)), PERSON, "people")
    with pytest.raises(sf.errors.LedgerMismatch) as refusal:
        ledger.expect("n", HASH, ZcdpEvent(Fraction(0)), ADD, "people")
    for text in ("column 'who'", "one record added or removed", "neighbours=", "its own"):
        assert text in str(refusal.value)
    assert "rows" not in str(refusal.value)  # of which every spend says its own
    for table, texts in (("visits", ("'people'", "'visits'")), (None, ("'people'", "names no table", "--table"))):
        with pytest.raises(sf.errors.LedgerMismatch) as refusal:
            ledger.expect("n", HASH, ZcdpEvent(Fraction(0)), PERSON, table)
        assert all(text in str(refusal.value) for text in texts)


def test_a_ledger_that_was_used_unnamed_is_named_once(ledger: Ledger, path: Path) -> None:
    """Mutants: a name given by the first spend that has one; a name that changes; a name for later spends alone."""
    ledger.debit("first", HASH, ZcdpEvent(Fraction(1)), ADD)
    with pytest.raises(sf.errors.LedgerMismatch, match="sfumato ledger name"):
        ledger.debit("second", HASH, ZcdpEvent(Fraction(1)), ADD, "people")
    anchor = ledger.anchor
    ledger.name("people")
    ledger.name("people")
    with pytest.raises(sf.errors.LedgerMismatch, match="stays for good"):
        ledger.name("visits")
    with pytest.raises(sf.errors.LedgerMismatch, match="names no table"):
        ledger.debit("second", HASH, ZcdpEvent(Fraction(1)), ADD)
    ledger.debit("second", HASH, ZcdpEvent(Fraction(1)), ADD, "people")
    again = Ledger(path)
    assert again.table == ledger.table == "people"
    assert [(e.kind, e.table) for e in again.entries()] == [
        ("spend", "people"),
        ("named", "people"),
        ("spend", "people"),
    ]
    assert again.verify(anchor).spent == 2
    receipt = again.debit("third", HASH, ZcdpEvent(Fraction(1)), ADD, "people")
    again.mark_released(receipt, HASH)
    assert again.entries() == Ledger(path).entries()


def test_a_ledger_is_made_for_one_table(path: Path) -> None:
    """Mutant: the name of the opening not held against the first spend."""
    ledger = Ledger.create(path, total=sf.zcdp(1), table="people")
    for wrong in (None, "visits"):
        with pytest.raises(sf.errors.LedgerMismatch, match="'people'"):
            ledger.debit("n", HASH, ZcdpEvent(Fraction(0)), ADD, wrong)
    ledger.debit("n", HASH, ZcdpEvent(Fraction(0)), PERSON, "people")
    assert (Ledger(path).unit, Ledger(path).table) == (PERSON.protected, "people")


class Same(str):
    """A text that is equal to everything."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__


@pytest.mark.parametrize(
    "table",
    [
        "",
        " people",
        "people.csv",
        "data/people",
        "c:\\people",
        "people.parquet",
        "a\nb",
        "x" * 129,
        "e\u0301",
        3,
        b"people",
    ],
)
def test_a_place_is_no_name_of_a_table(table: Any, path: Path, ledger: Ledger) -> None:
    """Mutants: a file name taken, which changes from month to month; a line break in a line."""
    for use in (
        lambda: Ledger.create(path.with_name("m.db"), total=sf.zcdp(1), table=table),
        lambda: ledger.debit("n", HASH, ZcdpEvent(Fraction(0)), ADD, table),
        lambda: ledger.name(table),
        lambda: Curator(Untouchable(), DOMAIN, ADD, ledger, table=table).prepaid(ZcdpEvent(Fraction(1)), **NAMED),
    ):
        with pytest.raises(sf.errors.InvalidInput):
            use()
    assert ledger.entries() == ()
    assert not path.with_name("m.db").exists()


def test_names_and_units_are_the_librarys_own(ledger: Ledger) -> None:
    """Mutants: a text that compares as it likes; a unit of a foreign class."""
    ledger.debit("first", HASH, ZcdpEvent(Fraction(0)), ADD, "people")
    with pytest.raises(sf.errors.LedgerMismatch):
        ledger.debit("n", HASH, ZcdpEvent(Fraction(0)), ADD, Same("visits"))
    for unit in (None, "add-remove", type("Unit", (PrivacyUnit,), {})(Neighbours.ADD_REMOVE)):
        with pytest.raises(sf.errors.PlanError, match="PrivacyUnit"):
            ledger.debit("n", HASH, ZcdpEvent(Fraction(0)), unit, "people")  # type: ignore[arg-type]


# The roads that people walk ------------------------------------------------------------------------------------------

BUDGET = sf.pure("0.5")
SMALL = sf.Domain({"a": sf.Integers(0, 3, outside="other", missing="other")})


def course(neighbours: str) -> Any:
    return sf.plan(
        sf.prefix(SMALL, "a"), sf.zcdp("0.1"), neighbours=neighbours, mechanism=sf.mechanisms.mwem(rounds=2), records=5
    )


ROADS: dict[str, Callable[[Any, Path, str, str | None], object]] = {
    "release": lambda source, ledger, neighbours, table: sf.release(
        sf.plan(sf.prefix(SMALL, "a"), BUDGET, neighbours=neighbours), source, ledger=ledger, name="n", table=table
    ),
    "course": lambda source, ledger, neighbours, table: sf.release(
        course(neighbours), source, ledger=ledger, name="n", table=table
    ),
    "sketch": lambda source, ledger, neighbours, table: sf.release(
        sf.plan(sf.Keys("item"), BUDGET, neighbours=neighbours, records=5), source, ledger=ledger, table=table
    ),
    **{
        f"session of {mechanism}": lambda source, ledger, neighbours, table, mechanism=mechanism: open_with(
            source, SMALL, BUDGET, neighbours=neighbours, ledger=ledger, records=5, mechanism=mechanism, table=table
        )
        for mechanism in ("pmw", "histogram")
    },
    "keys": lambda source, ledger, neighbours, table: sf.open(
        sf.plan(sf.Keys("item"), BUDGET, neighbours=neighbours, mechanism="histogram"),
        source,
        ledger=ledger,
        table=table,
    ),
    "sparse keys": lambda source, ledger, neighbours, table: open_with(
        *(source, sf.Keys("item"), BUDGET),
        neighbours=neighbours,
        ledger=ledger,
        mechanism="sparse-mw",
        table=table,
        records=5,
        size=2,
        questions=10,
    ),
}


@pytest.mark.parametrize("road", ROADS)
def test_every_road_says_unit_and_table(road: str, ledger: Ledger, path: Path) -> None:
    """Mutant: a road that takes table= and does not pass it on."""
    ROADS[road](RECORDS, path, "replace-one", "people")
    assert (ledger.unit, ledger.table) == (PrivacyUnit(Neighbours.REPLACE_ONE), "people")
    assert {e.table for e in ledger.entries() if e.kind == "spend"} == {"people"}
    before = ledger.anchor
    for neighbours, table in (("add-remove", "people"), ("replace-one", "visits"), ("replace-one", None)):
        with pytest.raises(sf.errors.LedgerMismatch):
            ROADS[road]("nowhere.csv", path, neighbours, table)
    assert ledger.anchor == before


@pytest.mark.parametrize("road", ROADS)
def test_a_one_shot_account_takes_any_table(road: str) -> None:
    ROADS[road](RECORDS, None, "add-remove", "people")  # type: ignore[arg-type]


def test_a_stored_release_is_not_read_back_for_another_table(ledger: Ledger, tmp_path: Path) -> None:
    """Mutant: the table looked at only when something is spent."""
    plan = sf.plan(sf.prefix(SMALL, "a"), BUDGET, neighbours="add-remove")
    given: dict[str, Any] = {"ledger": ledger, "name": "n", "out": tmp_path / "out"}
    first = sf.release(plan, RECORDS, **given, table="people")
    assert np.array_equal(sf.release(plan, Untouchable(), **given, table="people").answers, first.answers)
    with pytest.raises(sf.errors.LedgerMismatch, match="'visits'"):
        sf.release(plan, Untouchable(), **given, table="visits")


def test_the_command_line_and_the_spec_name_the_table(run: Run) -> None:
    """Mutants: [data] table read and not used; --table that does not win over it."""
    spec = Path("spec.toml")
    spec.write_text(SPEC.replace("[data]\n", '[data]\ntable = "people"\n'), encoding="utf-8")
    assert run("release", "spec.toml", "--ledger", "budget.db", "--name", "a", "-o", "out/a").code == 0
    again = ("release", "spec.toml", "--ledger", "budget.db", "--name", "b", "-o", "out/b")
    refused = run(*again, "--table", "visits")
    assert refused.code == 2
    assert "'visits'" in refused.err
    assert not Path("out/b").exists()
    shown = run("ledger", "status", "budget.db")
    assert "'people'" in shown.out
    assert "one record added or removed (add-remove)" in shown.out
    facts = json.loads(run("ledger", "status", "budget.db", "--json").out)
    assert (facts["table"], facts["unit"]) == ("people", "one record added or removed")
    assert (
        run("session", "open", "spec.toml", "--ledger", "budget.db", "--name", "s", "-o", "s.db", "--table", "x").code
        == 2
    )
    spec.write_text(SPEC.replace("[data]\n", '[data]\ntable = "people.csv"\n'), encoding="utf-8")
    assert run(*again).code == 2
