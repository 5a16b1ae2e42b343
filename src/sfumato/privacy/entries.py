"""What the lines of a ledger mean: who it is, what was spent on whom, what was stored.

Pure functions from lines to facts and from facts to the next line; nothing here touches a file. A line is its facts,
one a row of text: no genuine fact holds a line break.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache

from sfumato.errors import BudgetError
from sfumato.privacy.accountant import Event, PureEvent, delta_of, event_from_text, event_to_text
from sfumato.privacy.amounts import Currency, exact
from sfumato.privacy.unit import PrivacyUnit, Within

__all__ = ["Entry", "State", "advance", "line_of", "next_of", "now", "spend_line"]

_RATIONAL = re.compile(r"(\d{1,4000})(?:/(\d{1,4000}))?", re.ASCII)
_MAX_BITS = 8192  # twice what one amount may have, so that any two prices add up


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger, in its currency.

    A line of kind "spend" says what was paid, for whom (`unit`) and of which table; its `released` and `result_hash`
    show whether a line "released" follows, which says that what it paid for was stored and costs nothing. A line
    "named" gives all spends before it, that named no table, the name of theirs. `unit` is None for a line
    that spends nothing; `table` is None where none was named. `time` is a label.
    """

    sequence: int
    kind: str
    name: str
    plan_hash: str
    event: Event
    price: Fraction
    cumulative: Fraction
    time: str
    released: bool
    result_hash: str | None
    unit: PrivacyUnit | None = None
    table: str | None = None


@dataclass(frozen=True, slots=True)
class State:
    """Everything a ledger says, after its chain was checked.

    `promise` is the budget that was granted, as its document in JSON; it was turned into `total` when the ledger was
    made. `unit` is whose privacy its spends protect: None until the first spend that says so. `table` is None until the
    first spend, and after one that named none. `delta_remaining` is what mechanisms with a delta of their own may
    still add: a ledger of another currency has none for them.
    """

    ledger_id: str
    promise: str
    currency: Currency
    total: Fraction
    delta_remaining: Fraction
    unit: PrivacyUnit | None
    table: str | None
    entries: tuple[Entry, ...] = ()

    @property
    def spent(self) -> Fraction:
        return self.entries[-1].cumulative if self.entries else Fraction(0)

    @property
    def remaining(self) -> Fraction:
        return self.total - self.spent

    def find(self, name: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.kind == "spend" and entry.name == name), None)


# Lines to be written ------------------------------------------------------------------------------------------------


def spend_line(
    state: State, name: str, plan_hash: str, event: Event, price: Fraction, unit: PrivacyUnit, table: str | None
) -> bytes:
    """The line that spends a price, for a unit, of a table or of one that is not named."""
    cumulative = state.spent + price
    if max(cumulative.numerator.bit_length(), cumulative.denominator.bit_length()) > _MAX_BITS:
        raise BudgetError("the sum of all prices has thousands of digits; round this price up to a decimal")
    facts = (next_of(state), "spend", name, plan_hash, event_to_text(event), price, cumulative, now(), 0, "")
    return line_of(*facts, _unit_to_text(unit), table or "")


def line_of(*facts: object) -> bytes:
    """The facts of a line, one a row."""
    return "\n".join(map(str, facts)).encode()


def next_of(state: State) -> int:
    return len(state.entries) + 1


def now() -> str:
    """The time in UTC: a label."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _unit_to_text(unit: PrivacyUnit) -> str:
    within = [unit.within.name, unit.within.attribute, unit.within.digest] if unit.within else []
    return json.dumps([unit.neighbours.value, unit.person, unit.rows_per_person, *within])


# Lines that were read -----------------------------------------------------------------------------------------------


def advance(state: State | None, bodies: Sequence[bytes]) -> State:
    """The state after some more lines; ValueError at the first that does not follow from those before."""
    texts = [body.decode() for body in bodies]
    if state is None:
        state = _opened(texts.pop(0))
    unit, table, spent, delta = state.unit, state.table, state.spent, state.delta_remaining
    entries = [*state.entries]
    lines = {e.name: e.sequence for e in entries if e.kind == "spend"} if texts else {}
    for number, text in enumerate(texts, start=len(entries) + 1):
        facts = text.split("\n")
        _require(len(facts) > 1 and facts[0] == str(number), f"line {number} has another number")
        if facts[1] == "named":
            _require(table is None, f"line {number} names a table that has a name")
            entry, table = _named(facts, spent), facts[2]
            entries = [replace(e, table=table) if e.kind == "spend" else e for e in entries]
        elif facts[1] == "released":
            entry, about = _released(facts)
            _require(
                entry.cumulative == spent and 0 < lines.get(entry.name, 0) == about, f"line {number} is no release"
            )
            paid = entries[about - 1]
            same = (paid.plan_hash, paid.event) == (entry.plan_hash, entry.event)
            _require(same and not paid.released, f"line {number} releases what was not spent")
            entries[about - 1] = replace(paid, released=True, result_hash=entry.result_hash)
        else:
            entry = _spend(facts)
            spent += entry.price
            delta -= delta_of(entry.event)
            _require(entry.cumulative == spent <= state.total and delta >= 0, f"line {number} does not add up")
            _require(entry.name not in lines, f"line {number} spends under a taken name")
            fits = unit is None or (entry.unit, entry.table) == (unit, table)
            _require(fits and table in (None, entry.table), f"line {number} is of another unit or table")
            unit, table, lines[entry.name] = entry.unit, table or entry.table, number
        entries.append(entry)
    return replace(state, unit=unit, table=table, delta_remaining=delta, entries=tuple(entries))


def _opened(text: str) -> State:
    ledger_id, document, currency, total, _, table = text.split("\n")
    kept, promised = Currency(currency), json.loads(document)
    _require(isinstance(promised, dict), "its first line promises nothing")
    # the total in another currency than epsilon has used its delta already
    delta = exact(promised.get("delta", 0), "delta") if kept is Currency.EPSILON else Fraction(0)
    return State(ledger_id, document, kept, _rational(total), delta, None, table or None)


def _spend(facts: list[str]) -> Entry:
    right = len(facts) == 12 and facts[1] == "spend" and facts[8:10] == ["0", ""]
    _require(right, f"line {facts[0]} is no spend")
    number, kind, name, plan_hash, event, price, cumulative, time, _, _, unit, table = facts
    paid = (_event(event), _rational(price), _rational(cumulative))
    return Entry(int(number), kind, name, plan_hash, *paid, time, False, None, _unit_from_text(unit), table or None)


def _released(facts: list[str]) -> tuple[Entry, int]:
    """The line, and the number of the spend that it is about."""
    number, kind, name, plan_hash, event, price, cumulative, time, about, result = facts
    _require(price == "0" and result != "", f"line {number} is no release")
    paid = (_event(event), Fraction(0), _rational(cumulative))
    return Entry(int(number), kind, name, plan_hash, *paid, time, True, result), int(about)


def _named(facts: list[str], spent: Fraction) -> Entry:
    number, kind, table, time = facts
    _require(table != "", f"line {number} names nothing")
    return Entry(int(number), kind, "", "", PureEvent(Fraction(0)), Fraction(0), spent, time, True, None, None, table)


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise ValueError(problem)


@lru_cache(maxsize=4096)
def _rational(text: str) -> Fraction:
    match = _RATIONAL.fullmatch(text)
    if match is None:
        raise ValueError("a price is not a rational number")
    return Fraction(int(match[1]), int(match[2] or 1))


_event = lru_cache(maxsize=4096)(event_from_text)


@lru_cache(maxsize=256)
def _unit_from_text(text: str) -> PrivacyUnit:
    neighbours, person, rows, *within = json.loads(text)
    unit = PrivacyUnit(neighbours, person, rows, Within(*within) if within else None)
    _require(_unit_to_text(unit) == text, "a privacy unit is spelt in another way")
    return unit
