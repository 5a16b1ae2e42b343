"""What the rows of a ledger mean: a chain in which every line carries the hash of all lines before it [HS91].

Pure functions from rows to facts and from facts to the next row; nothing here touches a file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache

from sfumato.errors import BudgetError, LedgerCorrupted
from sfumato.privacy.accountant import Event, delta_of, event_from_text, event_to_text
from sfumato.privacy.budget import Budget, Currency
from sfumato.privacy.ledger.store import Row

__all__ = ["Entry", "State", "first_row", "next_row", "replay"]

_RATIONAL = re.compile(r"(\d{1,4000})(?:/(\d{1,4000}))?", re.ASCII)
_MAX_BITS = 8192


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger, in its currency.

    A line of kind "released" says that the spend of the same name was stored; it costs nothing. A line of kind
    "spend" shows in `released` and `result_hash` whether such a line follows. `time` is a label.
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


@dataclass(frozen=True, slots=True)
class State:
    """Everything a ledger says, after its chain was checked. `hashes[i]` closes line i; `hashes[0]` the first row."""

    ledger_id: str
    budget: Budget
    currency: Currency
    total: Fraction
    entries: tuple[Entry, ...]
    hashes: tuple[str, ...]

    @property
    def spent(self) -> Fraction:
        return self.entries[-1].cumulative if self.entries else Fraction(0)

    @property
    def remaining(self) -> Fraction:
        return self.total - self.spent

    @property
    def delta_remaining(self) -> Fraction:
        """What mechanisms with a delta of their own may still add: a ledger of another currency has none for them."""
        return _delta_total(self.budget, self.currency) - sum((delta_of(e.event) for e in self.spends), Fraction(0))

    @property
    def anchor(self) -> str:
        return f"{len(self.entries)}:{self.hashes[-1]}"

    @property
    def spends(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if entry.kind == "spend")

    def find(self, name: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.kind == "spend" and entry.name == name), None)


def first_row(total: Budget, currency: str | None = None) -> Row:
    """The row that a new ledger begins with: who it is, how much it may spend, and in what.

    An (epsilon, delta) total can be kept in "epsilon": epsilons and deltas then add up, each to its own total. Or in
    "rho": the largest that implies it, rounded down.
    """
    if not isinstance(total, Budget):
        raise BudgetError(f"a ledger's total must be a Budget; got {type(total).__name__}")
    amounts = {total.currency: total.total}
    if total.kind == "approx":
        amounts |= {Currency.EPSILON: total.parameter, Currency.RHO: total.rho}
    kept = next((c for c in amounts if currency is None or currency == c), None)
    if kept is None:
        raise BudgetError(
            f"a ledger of {total.kind} total adds {total.currency}, or epsilon or rho where the total is "
            f"(epsilon, delta); got {str(currency)[:40]!r}"
        )
    facts = (os.urandom(16).hex(), json.dumps(total.to_json()), str(kept), str(amounts[kept]), _now())
    return (*facts, _digest("sfumato ledger", facts))


def next_row(
    state: State, kind: str, name: str, plan_hash: str, event: Event, price: Fraction, about: int = 0, result: str = ""
) -> Row:
    """The line that continues the chain; a "released" line is `about` a spend and holds its `result` hash."""
    cumulative = state.spent + price
    if max(cumulative.numerator.bit_length(), cumulative.denominator.bit_length()) > _MAX_BITS:
        raise BudgetError("the sum of all prices has thousands of digits; round this price up to a decimal")
    number, previous = len(state.entries) + 1, state.hashes[-1]
    facts = (number, kind, name, plan_hash, event_to_text(event), str(price), str(cumulative), _now(), about, result)
    return (*facts, previous, _digest(previous, facts))


def replay(genesis: Row, rows: Sequence[Row]) -> State:
    """The state that the rows prove; raise LedgerCorrupted at the first row that does not follow from those before."""
    try:
        return _follow(genesis, rows)
    except (BudgetError, ArithmeticError, TypeError, ValueError) as error:
        raise LedgerCorrupted(
            f"the ledger was changed ({error}) and refuses to spend; restore a copy and verify it with your anchor"
        ) from error


def _follow(genesis: Row, rows: Sequence[Row]) -> State:
    *facts, head = genesis
    _require(_digest("sfumato ledger", facts) == head, "its first row does not match its hash")
    ledger_id, budget, currency, total_text, _ = map(_text, facts)
    total, spent = _rational(total_text), Fraction(0)
    document = Budget.from_json(json.loads(budget))
    delta = _delta_total(document, Currency(currency))
    hashes, entries, lines = [_text(head)], list[Entry](), dict[str, int]()
    for number, row in enumerate(rows, start=1):
        *facts, previous, digest = row
        intact = previous == hashes[-1] and _digest(hashes[-1], facts) == digest
        _require(intact and type(facts[0]) is int and facts[0] == number, f"line {number} breaks the chain")
        hashes.append(_text(digest))
        entry, about = _entry(facts)
        spent += entry.price
        delta -= delta_of(entry.event) if entry.kind == "spend" else 0
        _require(entry.cumulative == spent <= total and delta >= 0, f"line {number} does not add up")
        if entry.released:
            first = lines.get(entry.name, 0)
            _require(
                0 < first == about and not entries[first - 1].released and not entry.price,
                f"line {number} releases what was not spent",
            )
            entries[first - 1] = replace(entries[first - 1], released=True, result_hash=entry.result_hash)
        else:
            _require(entry.kind == "spend" and entry.name not in lines, f"line {number} spends under a taken name")
            lines[entry.name] = number
        entries.append(entry)
    return State(ledger_id, document, Currency(currency), total, tuple(entries), tuple(hashes))


def _entry(facts: Sequence[object]) -> tuple[Entry, int]:
    """The line, and the line that it is about; the columns are those of `store.ENTRY_FIELDS`."""
    sequence, kind, name, plan_hash, event, price, cumulative, time, about, result = facts
    if not isinstance(sequence, int) or not isinstance(about, int):
        raise TypeError("a line number is not an integer")
    entry = Entry(
        sequence=sequence,
        kind=_text(kind),
        name=_text(name),
        plan_hash=_text(plan_hash),
        event=_event(_text(event)),
        price=_rational(_text(price)),
        cumulative=_rational(_text(cumulative)),
        time=_text(time),
        released=kind == "released",
        result_hash=_text(result) or None,
    )
    return entry, about


def _delta_total(budget: Budget, currency: Currency) -> Fraction:
    """The delta that spends may add up to: a total in another currency than epsilon has used its delta already."""
    return budget.delta or Fraction(0) if currency is Currency.EPSILON else Fraction(0)


def _digest(previous: str, facts: Sequence[object]) -> str:
    """SHA-256 of the facts and the hash before them. No genuine fact holds a line break, so joining is injective."""
    return hashlib.sha256("\n".join([previous, *map(str, facts)]).encode()).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise ValueError(problem)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__} stands where text belongs")
    return value


@lru_cache(maxsize=4096)
def _rational(text: str) -> Fraction:
    match = _RATIONAL.fullmatch(text)
    if match is None:
        raise ValueError("a price is not a rational number")
    return Fraction(int(match[1]), int(match[2] or 1))


_event = lru_cache(maxsize=4096)(event_from_text)
