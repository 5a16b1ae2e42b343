"""What the wall uses of a ledger: whether it would pay, the debit itself, and what was debited under a name.

A debit is on stable storage before `debit` returns, so noise drawn afterwards is paid for. The recorded spends never
exceed the total, and all of them protect one privacy unit of one table. How a total was granted, and what is told to
people, is `privacy.ledger`'s.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache

from sfumato.errors import BudgetError, BudgetExceeded, InvalidInput, LedgerMismatch, NameTaken, PlanError
from sfumato.privacy.accounting import (
    Event,
    PureEvent,
    event_delta,
    event_from_text,
    event_price,
    event_to_text,
    overspending_error,
    refuse_delta,
)
from sfumato.privacy.amounts import Currency, read_exact
from sfumato.privacy.chain import Chain, FileChain, Turn
from sfumato.privacy.unit import PrivacyUnit, Within

_RATIONAL = re.compile(r"(\d{1,4000})(?:/(\d{1,4000}))?", re.ASCII)
_MAX_BITS = 8192  # twice what one amount may have, so that any two prices add up


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger, in its currency.

    Args:
        sequence: The number of the line, from 1.
        kind: "spend", which says what was paid; "released", which says that what a spend paid for was stored, and costs
            nothing; or "named", which gives all spends before it, that named no table, the name of theirs.
        name: The name of the release or session.
        plan_hash: The fingerprint of its plan.
        event: What was paid for.
        price: Its price.
        cumulative: The sum of all prices so far.
        time: The time in UTC, which is a label.
        released: Whether what a spend paid for was stored.
        result_hash: The hash of what was stored, or None.
        unit: Whose privacy a spend protects; None for a line that spends nothing.
        table: The public name of the table, or None where none was named.
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
    """Everything that a ledger says, after its chain was checked.

    Args:
        ledger_id: A random public name of the ledger.
        promise: The budget that was granted, as its document in JSON.
        currency: What is added up.
        total: The budget in the currency.
        delta_remaining: What mechanisms with a delta of their own may still add: in a ledger of epsilon its delta, in
            another what was set aside for thresholds when it was made, which most set none aside for.
        unit: Whose privacy its spends protect, without how many rows each counts; None until the first spend.
        table: The public name of the table; None until the first spend, and after one that named none.
        entries: All lines, in order.
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
        """The sum of all prices so far, in the currency."""
        return self.entries[-1].cumulative if self.entries else Fraction(0)

    @property
    def remaining(self) -> Fraction:
        """What is left, in the currency."""
        return self.total - self.spent

    def find(self, name: str) -> Entry | None:
        """The spend with a name.

        Args:
            name: The name of a release or of a session.

        Returns:
            Its line, or None where nothing was spent under that name.
        """
        return next((entry for entry in self.entries if entry.kind == "spend" and entry.name == name), None)


# Lines to be written ------------------------------------------------------------------------------------------------


def spend_line(
    state: State, name: str, plan_hash: str, event: Event, price: Fraction, unit: PrivacyUnit, table: str | None
) -> bytes:
    """The line that spends a price, for a unit, of a table or of one that is not named."""
    cumulative = state.spent + price
    if max(cumulative.numerator.bit_length(), cumulative.denominator.bit_length()) > _MAX_BITS:
        raise BudgetError("the sum of all prices has thousands of digits; round this price up to a decimal")
    facts = (
        next_line_number(state),
        "spend",
        name,
        plan_hash,
        event_to_text(event),
        price,
        cumulative,
        utc_timestamp(),
        0,
        "",
    )
    return ledger_line(*facts, _unit_to_text(unit), table or "")


def ledger_line(*facts: object) -> bytes:
    """The facts of a line, one a row."""
    return "\n".join(map(str, facts)).encode()


def next_line_number(state: State) -> int:
    return len(state.entries) + 1


def utc_timestamp() -> str:
    """The time in UTC: a label."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _unit_to_text(unit: PrivacyUnit) -> str:
    within = [unit.within.name, unit.within.attribute, unit.within.digest] if unit.within else []
    groups = [[*unit.once_per, unit.rows_per_group]] if unit.once_per else []
    return json.dumps([unit.neighbours.value, unit.person, unit.rows_per_person, *within, *groups])


# Lines that were read -----------------------------------------------------------------------------------------------


def read_ledger_lines(state: State | None, bodies: Sequence[bytes]) -> State:
    """The state after some more lines; ValueError at the first that does not follow from those before."""
    texts = [body.decode() for body in bodies]
    if state is None:
        state = _read_opening_line(texts.pop(0))
    unit, table, spent, delta = state.unit, state.table, state.spent, state.delta_remaining
    entries = [*state.entries]
    lines = {e.name: e.sequence for e in entries if e.kind == "spend"} if texts else {}
    for number, text in enumerate(texts, start=len(entries) + 1):
        facts = text.split("\n")
        _require_ledger(len(facts) > 1 and facts[0] == str(number), f"line {number} has another number")
        if facts[1] == "named":
            _require_ledger(table is None, f"line {number} names a table that has a name")
            entry, table = _read_table_line(facts, spent), facts[2]
            entries = [replace(e, table=table) if e.kind == "spend" else e for e in entries]
        elif facts[1] == "released":
            entry, about = _read_release_line(facts)
            _require_ledger(
                entry.cumulative == spent and 0 < lines.get(entry.name, 0) == about, f"line {number} is no release"
            )
            paid = entries[about - 1]
            same = (paid.plan_hash, paid.event) == (entry.plan_hash, entry.event)
            _require_ledger(same and not paid.released, f"line {number} releases what was not spent")
            entries[about - 1] = replace(paid, released=True, result_hash=entry.result_hash)
        else:
            entry = _read_spend_line(facts)
            spent += entry.price
            delta -= event_delta(entry.event)
            _require_ledger(entry.cumulative == spent <= state.total and delta >= 0, f"line {number} does not add up")
            _require_ledger(entry.name not in lines, f"line {number} spends under a taken name")
            assert entry.unit is not None
            fits = unit is None or (entry.unit.protected, entry.table) == (unit, table)
            _require_ledger(fits and table in (None, entry.table), f"line {number} is of another unit or table")
            unit, table, lines[entry.name] = entry.unit.protected, table or entry.table, number
        entries.append(entry)
    return replace(state, unit=unit, table=table, delta_remaining=delta, entries=tuple(entries))


def _read_opening_line(text: str) -> State:
    ledger_id, document, currency, total, _, table = text.split("\n")
    kept, promised = Currency(currency), json.loads(document)
    _require_ledger(isinstance(promised, dict), "its first line promises nothing")
    # the total in another currency than epsilon has used its delta already, but for what was set aside
    own = "delta" if kept is Currency.EPSILON else "thresholds"
    delta = read_exact(promised.get(own, 0), own)
    return State(ledger_id, document, kept, _parse_rational(total), delta, None, table or None)


def _read_spend_line(facts: list[str]) -> Entry:
    right = len(facts) == 12 and facts[1] == "spend" and facts[8:10] == ["0", ""]
    _require_ledger(right, f"line {facts[0]} is no spend")
    number, kind, name, plan_hash, event, price, cumulative, time, _, _, unit, table = facts
    paid = (_event(event), _parse_rational(price), _parse_rational(cumulative))
    return Entry(int(number), kind, name, plan_hash, *paid, time, False, None, _unit_from_text(unit), table or None)


def _read_release_line(facts: list[str]) -> tuple[Entry, int]:
    """The line, and the number of the spend that it is about."""
    number, kind, name, plan_hash, event, price, cumulative, time, about, result = facts
    _require_ledger(price == "0" and result != "", f"line {number} is no release")
    paid = (_event(event), Fraction(0), _parse_rational(cumulative))
    return Entry(int(number), kind, name, plan_hash, *paid, time, True, result), int(about)


def _read_table_line(facts: list[str], spent: Fraction) -> Entry:
    number, kind, table, time = facts
    _require_ledger(table != "", f"line {number} names nothing")
    return Entry(int(number), kind, "", "", PureEvent(Fraction(0)), Fraction(0), spent, time, True, None, None, table)


def _require_ledger(holds: bool, problem: str) -> None:
    if not holds:
        raise ValueError(problem)


@lru_cache(maxsize=4096)
def _parse_rational(text: str) -> Fraction:
    match = _RATIONAL.fullmatch(text)
    if match is None:
        raise ValueError("a price is not a rational number")
    return Fraction(int(match[1]), int(match[2] or 1))


_event = lru_cache(maxsize=4096)(event_from_text)


@lru_cache(maxsize=256)
def _unit_from_text(text: str) -> PrivacyUnit:
    neighbours, person, rows, *more = json.loads(text)
    if len(more) == 1:  # the groups in each of which few rows of a person count
        *once_per, each = more[0]
        unit = PrivacyUnit(neighbours, person, rows, None, tuple(once_per), each)
    else:
        unit = PrivacyUnit(neighbours, person, rows, Within(*more) if more else None)
    _require_ledger(_unit_to_text(unit) == text, "a privacy unit is spelt in another way")
    return unit


_HASH = re.compile(r"[0-9A-Za-z:_.+=-]{1,128}", re.ASCII)
_MAX_NAME = 128  # far longer than a name that people read
_FILE = re.compile(r".*\.(csv|tsv|txt|parquet|json|ndjson|jsonl|arrow|feather|db|duckdb|gz)")


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof of a debit.

    Args:
        sequence: The number of the line.
        anchor: The anchor after it. Kept outside the ledger, it finds a ledger that was rolled back or made anew.
        ledger_id: The random public name of the ledger.
        name: The name of the release or session.
        price: The price.
        currency: The ledger's currency.
    """

    sequence: int
    anchor: str
    ledger_id: str
    name: str
    price: Fraction
    currency: Currency


class Debits:
    """A total of a privacy budget in a chain of lines, shared by whoever opens the same file.

    An object may be used from any thread and after a fork. Every call reads and checks the whole ledger: LedgerError
    where the file cannot be used, LedgerCorrupted where it was changed.
    """

    def __init__(self, chain: Chain[State]) -> None:
        self._chain = chain
        state = self._read()
        self.currency, self.ledger_id = state.currency, state.ledger_id

    @property
    def durable(self) -> bool:
        """Whether debits outlive this process."""
        return isinstance(self._chain, FileChain)

    def find(self, name: str) -> Entry | None:
        """The spend with a name.

        Args:
            name: The name of a release or of a session.

        Returns:
            Its line of the ledger, or None where nothing was spent under that name.

        Raises:
            LedgerError: The file cannot be used.
            LedgerCorrupted: The file was changed.
        """
        return self._read().find(plain_text(name))

    def check(self, anchor: str) -> None:
        """Check that the ledger goes on from an anchor.

        Args:
            anchor: The anchor of an earlier moment, which was kept outside the ledger.

        Raises:
            LedgerCorrupted: The ledger does not go on from it.
            InvalidInput: The text is not an anchor.
        """
        self._chain.check(anchor)

    def expect(self, name: str, plan_hash: str, event: Event, unit: PrivacyUnit, table: str | None = None) -> None:
        """Raise what `debit` would raise now, and spend nothing: so no table is opened in vain.

        Args:
            name: As for `debit`.
            plan_hash: As for `debit`.
            event: As for `debit`.
            unit: As for `debit`.
            table: As for `debit`.

        Raises:
            SfumatoError: As for `debit`.
        """
        self._spend(self._chain.read(), name, plan_hash, event, unit, table)

    def debit(self, name: str, plan_hash: str, event: Event, unit: PrivacyUnit, table: str | None = None) -> Receipt:
        """Record the price of an event durably.

        Only after this returns may noise be drawn or data be looked at. The first spend fixes the unit and the table
        for good.

        Args:
            name: The name of the release: 1 to 128 printable characters. A name is debited once.
            plan_hash: The fingerprint of the plan that is paid for.
            event: What is paid for, as its price.
            unit: Whose privacy the event protects.
            table: The public name of the table that the event looks at, if it has one.

        Returns:
            The receipt, which proves the debit.

        Raises:
            LedgerMismatch: Earlier spends were of another unit or table. Nothing is spent.
            NameTaken: The name was debited before. Nothing is spent.
            BudgetExceeded: The price is above what is left. Nothing is spent.
            BudgetError: The event has no price in the ledger's currency. Nothing is spent.
            InvalidInput: The name, the hash or the table cannot be used. Nothing is spent.
            LedgerError: The file cannot be used.
            LedgerCorrupted: The file was changed.

        Guarantee:
            The debit is on stable storage before the call returns, and the recorded spends never exceed the total.
        """
        with self._chain.turn(write=True) as turn:
            turn.append(self._spend(turn, name, plan_hash, event, unit, table))
            return self._receipt(turn, plain_text(name))

    def paid(self, name: str, plan_hash: str) -> Receipt | None:
        """The receipt of an earlier debit.

        Args:
            name: The name under which it was made.
            plan_hash: The fingerprint of the plan that it paid for.

        Returns:
            The receipt, or None where nothing was debited under that name for that very hash.

        Raises:
            LedgerError: The file cannot be used.
            LedgerCorrupted: The file was changed.
        """
        name, plan_hash = plain_text(name), plain_text(plan_hash)
        with self._chain.turn() as turn:
            entry = turn.state.find(name)
            return None if entry is None or entry.plan_hash != plan_hash else self._receipt(turn, name)

    def _receipt(self, turn: Turn[State], name: str) -> Receipt:
        entry = turn.state.find(name)
        assert entry is not None
        at = entry.sequence
        return Receipt(at, f"{at}:{turn.hashes[at]}", self.ledger_id, name, entry.price, self.currency)

    def admit(self, unit: PrivacyUnit, table: str | None = None) -> None:
        """Check that a spend for a unit and a table could come next; spends nothing.

        Args:
            unit: Whose privacy the spend would protect.
            table: The public name of the table, if it has one.

        Raises:
            LedgerMismatch: Earlier spends were of another unit or table.
            PlanError: `unit` is not a `PrivacyUnit`.
            InvalidInput: The table cannot be called so.
            LedgerError: The file cannot be used.
            LedgerCorrupted: The file was changed.
        """
        self._admit(self._read(), unit, table)

    def _admit(self, state: State, unit: PrivacyUnit, table: str | None) -> tuple[PrivacyUnit, str | None]:
        """Unit and table of the library's own types, if they are those of the ledger."""
        if type(unit) is not PrivacyUnit:
            raise PlanError(f"a spend says whose privacy it protects, as a PrivacyUnit; got {type(unit).__name__}")
        table = check_table_name(table)
        problem = _mismatch_reason(state, unit, table)
        if problem is not None:
            raise LedgerMismatch(problem)
        return unit, table

    def _spend(
        self, turn: Turn[State], name: str, plan_hash: str, event: Event, unit: PrivacyUnit, table: str | None
    ) -> bytes:
        """The line that spends an event's price; refused where it may not be spent."""
        state = turn.state
        # a text of a class that derives from str may show and compare itself as it likes
        name, plan_hash = plain_text(name), plain_text(plan_hash)
        _check_name(name)
        check_hash(plan_hash, "plan_hash")
        whom = self._admit(state, unit, table)
        cost = event_price(event, state.currency)
        taken = state.find(name)
        if taken is not None:
            raise NameTaken(
                f"{name!r} was debited before (line {taken.sequence}, plan {taken.plan_hash}): "
                "read that release back, or choose another name"
            )
        if cost > state.remaining:
            raise self._overspent(event, cost, state)
        refuse_delta(event, state.delta_remaining)
        return spend_line(state, name, plan_hash, event, cost, *whom)

    def _overspent(self, event: Event, cost: Fraction, state: State) -> BudgetExceeded:
        """The refusal of a price above what is left."""
        del event
        return overspending_error(cost, state.remaining, self.currency)

    def _read(self) -> State:
        return self._chain.read().state


def _mismatch_reason(state: State, given: PrivacyUnit, table: str | None) -> str | None:
    """Why a spend for that unit and table is refused, and what to do; None where it is not."""
    if state.unit is not None and state.unit != given.protected:
        other = " (groups of other cells)" if unit_text(state.unit) == unit_text(given) else ""
        return (
            f"this ledger adds up what is spent on {unit_text(state.unit)}, as its first spend said; this one protects "
            f"{unit_text(given)}{other}, and prices of different units do not add up. Nothing was spent. Plan with the "
            "ledger's unit (neighbours=, person=), or keep a ledger of its own for the other unit"
        )
    if (state.unit is None and state.table is None) or state.table == table:
        return None
    if state.table is None:
        return (
            f"this ledger was first used without the name of a table; this spend names {table!r}. Nothing was spent. "
            f"If all that it paid for was {table!r}, say so once: sfumato ledger name LEDGER {table!r}, or "
            f"ledger.name({table!r}). If it is the ledger of another table, pay from the one of {table!r}"
        )
    says = "this spend names no table" if table is None else f"this spend names {table!r}"
    return (
        f"this is the ledger of the table {state.table!r}; {says}. Nothing was spent. If it looks at the same table, "
        f"say table={state.table!r} (--table, or table under [data] in a spec); if not, pay from that table's own "
        "ledger: what is spent elsewhere would be missing there"
    )


def unit_text(unit: PrivacyUnit) -> str:
    """Whose privacy, as a person and as a program says it."""
    return f"{unit.describe()} ({unit.neighbours.value})"


def plain_text(given: str) -> str:
    """The letters of a text, of whatever class that derives from str; what is no text stays what it is."""
    return "".join((given,)) if isinstance(given, str) else given


def _check_name(name: str) -> None:
    """Names end up in paths and on screens: printable, of one spelling, and without a way out of a folder."""
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME or not name.isprintable():
        raise InvalidInput(f"a release's name is 1 to {_MAX_NAME} printable characters; got {str(name)[:40]!r}")
    if name != name.strip() or name.startswith(".") or "/" in name or "\\" in name:
        raise InvalidInput(f"a release's name has no slash, and no space or dot at its ends; got {name!r}")
    if unicodedata.normalize("NFC", name) != name:
        raise InvalidInput(f"a release's name must be in Unicode form NFC; got {name!r}")


def check_table_name(table: str | None) -> str | None:
    """A public name of a table: a label that stays when files move. Raises InvalidInput."""
    if table is None:
        return None
    table = plain_text(table)
    if not isinstance(table, str) or not 0 < len(table) <= _MAX_NAME or not table.isprintable():
        raise InvalidInput(
            f"table is the public name of a table, 1 to {_MAX_NAME} printable characters, such as 'people'"
        )
    if table != table.strip() or any(part in table for part in "/\\") or _FILE.fullmatch(table.lower()):
        raise InvalidInput(
            f"table={table!r} looks like a file; it is a public name that stays when files move, such as 'people'"
        )
    if unicodedata.normalize("NFC", table) != table:
        raise InvalidInput(f"the name of a table must be in Unicode form NFC; got {table!r}")
    return table


def check_hash(value: str, what: str) -> None:
    if not isinstance(value, str) or not _HASH.fullmatch(value):
        raise InvalidInput(f"{what} is 1 to 128 letters, digits or any of :_.+=-; got {str(value)[:40]!r}")
