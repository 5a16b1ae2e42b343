"""The ledger: a durable budget that many processes share and none can overspend.

What it promises. A debit is on stable storage before `debit` returns, so noise drawn afterwards is paid for.
The recorded spends never exceed the total, and all of them protect one privacy unit of one table. A crash may record a
spend that was never released (listed by `unreleased`), never the reverse. Every change to a recorded fact breaks a
chain of hashes and spending is refused; a file that was replaced by an older or re-made one is found by an anchor kept
elsewhere. Reading needs no write access. Clocks are labels.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from sfumato._util.description import Describable, Description, Facts, TitledTable
from sfumato._util.frames import Frame
from sfumato.errors import BudgetError, BudgetExceeded, InvalidInput, LedgerError, LedgerMismatch
from sfumato.privacy.accounting import Event, event_delta, event_price, event_to_text
from sfumato.privacy.amounts import Currency, Number, readable_number
from sfumato.privacy.budget import Budget
from sfumato.privacy.chain import FileChain, Format, MemoryChain
from sfumato.privacy.debits import (
    Debits,
    Entry,
    Receipt,
    State,
    check_hash,
    check_table_name,
    ledger_line,
    next_line_number,
    read_ledger_lines,
    utc_timestamp,
)
from sfumato.privacy.files import Wording
from sfumato.privacy.ledger import words
from sfumato.privacy.ledger.words import export_events, remaining_epsilon
from sfumato.privacy.unit import PrivacyUnit

FORMAT = Format(
    words=Wording(
        noun="ledger",
        mode=0o644,
        make="make one with sfumato ledger create, or Ledger.create",
        undone="nothing was spent",
        advice="nothing was released: make room or access, then look at the ledger's unreleased entries",
    ),
    application_id=0x53464D54,
    label="sfumato ledger",
    whole=True,
)


@dataclass(frozen=True, slots=True)
class Quote:
    """What a plan would cost now.

    Args:
        price: The price, in the ledger's currency.
        remaining: What is left before it.
        remaining_after: What would be left after it; negative where it does not fit.
        fits: Whether the ledger would pay.
        currency: The ledger's currency.
    """

    price: Fraction
    remaining: Fraction
    remaining_after: Fraction
    fits: bool
    currency: Currency

    def __str__(self) -> str:
        after = f"{readable_number(self.remaining_after)} would remain" if self.fits else "it does not fit"
        return (
            f"costs {readable_number(self.price)} of {self.currency}; {readable_number(self.remaining)} "
            f"is left; {after}"
        )


@dataclass(frozen=True, slots=True)
class Verification:
    """What a successful check of the whole ledger found.

    Args:
        ledger_id: The random public name of the ledger.
        entries: The number of lines.
        spent: The sum of all prices, in the ledger's currency.
        remaining: What is left, in the ledger's currency.
        unreleased: The names of spends without a stored release.
        anchor: The anchor of now, to be kept outside the ledger.
    """

    ledger_id: str
    entries: int
    spent: Fraction
    remaining: Fraction
    unreleased: tuple[str, ...]
    anchor: str


class HasPrice(Protocol):
    """Anything that states its price as an event, such as a plan."""

    @property
    def price(self) -> Event: ...


class Ledger(Debits, Describable):
    """The total of a privacy budget in a file, which many processes share. `Ledger.create` makes one.

    An object may be used from any thread and after a fork; other processes open the same path. Every call reads and
    checks the whole ledger. Its attributes are `total`, a Budget, `currency`, and `ledger_id`, which is random and
    public.

    Args:
        path: The ledger's file.

    Raises:
        LedgerError: There is no ledger at the path, or it cannot be read.
        LedgerCorrupted: A recorded fact was changed.

    Guarantee:
        Debits are on stable storage before noise is drawn, and the recorded spends never exceed the total. All of them
        protect one privacy unit of one table.

    >>> ledger = sf.Ledger.create("people.ledger", total=sf.zcdp(1), table="people")
    >>> plan = sf.plan(sf.total(sf.Domain({"age": 100})), sf.zcdp("0.5"), neighbours="add-remove")
    >>> print(ledger.quote(plan))
    costs 0.5 of rho; 1 is left; 0.5 would remain
    >>> release = sf.release(plan, sf.Histogram([7] * 100), ledger=ledger, name="first", table="people")
    >>> [(entry.kind, entry.name) for entry in ledger.entries()]
    [('spend', 'first'), ('released', 'first')]
    >>> kept = ledger.anchor
    >>> sf.Ledger("people.ledger").verify(kept).remaining
    Fraction(1, 2)
    """

    EXPORTED = (
        *("line", "name", "table", "unit", "mechanism", "guarantee", "delta", "sensitivity", "scale"),
        *("price", "currency", "paid", "time", "stored", "plan"),
    )
    """The fields of a row of `export`."""

    def __init__(self, path: str | os.PathLike[str] | MemoryChain[State]) -> None:
        super().__init__(path if isinstance(path, MemoryChain) else FileChain(path, FORMAT, _read_granted_lines))
        self.total = words.granted_budget(self._read())

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], *, total: Budget, currency: str | None = None, table: str | None = None
    ) -> Ledger:
        """Make a ledger in a new file.

        Args:
            path: Where it is to be; nothing may be there.
            total: The budget that is granted. One of which a part of delta is set aside for thresholds, as in
                `sf.approx(1, "1e-6", thresholds="5e-7")`, pays for finding labels too (`sf.Categories(discover=...)`).
            currency: In which currency spends add up: "epsilon", "rho" or "mu^2"; by default that of `total`. An
                (epsilon, delta) total is kept in "mu^2" by default, in which Gaussian releases are cheap; in "epsilon"
                as two sums, of epsilons and of deltas, which mechanisms with a delta of their own need; or in "rho", as
                the largest rho of zCDP that implies it, in which choices by the data are cheaper.
            table: The public name of the one table that it is for, or of the database whose tables name the same
                persons. Without it the first spend fixes the table.

        Returns:
            The ledger, open.

        Raises:
            LedgerError: The path exists or cannot be written.
            BudgetError: `total` is not a budget, or cannot be kept in that currency.
            InvalidInput: The table cannot be called so.

        Source:
            [DKMMN06] for sums of epsilons and deltas, [CKS20] for rho
        """
        FileChain.create(path, FORMAT, _read_granted_lines, _opening_line(total, currency, check_table_name(table)))
        return cls(path)

    @classmethod
    def in_memory(cls, total: Budget, currency: str | None = None) -> Ledger:
        """An account that ends with this process: for one explicit release, not for a budget that must last.

        Args:
            total: The budget that is granted.
            currency: As for `create`.

        Returns:
            The ledger, which has no file.

        Raises:
            BudgetError: `total` is not a budget, or cannot be kept in that currency.
        """
        return cls(MemoryChain(FORMAT, _read_granted_lines, _opening_line(total, currency)))

    @property
    def unit(self) -> PrivacyUnit | None:
        """Whose privacy all spends protect, without how many rows each counts; None before the first."""
        return self._read().unit

    @property
    def table(self) -> str | None:
        """The public name of the table of all spends; None where none was named."""
        return self._read().table

    @property
    def remaining(self) -> Fraction:
        """What is left, in the ledger's currency."""
        return self._read().remaining

    @property
    def delta_remaining(self) -> Fraction:
        """What is left for mechanisms with a delta of their own: in epsilon the delta, else what was set aside."""
        return self._read().delta_remaining

    @property
    def spent(self) -> Fraction:
        """What is spent, in the ledger's currency. It is for reading only; the guarantee is the total."""
        return self._read().spent

    @property
    def anchor(self) -> str:
        """The last sequence number and the hash over all lines so far, as "17:9f86d0..."."""
        return self._chain.read().anchor

    def entries(self) -> tuple[Entry, ...]:
        """All lines of the ledger.

        Returns:
            The lines in the order in which they were written.

        Raises:
            LedgerError: The file cannot be used.
            LedgerCorrupted: The file was changed.
        """
        return self._read().entries

    def unreleased(self) -> tuple[Entry, ...]:
        """Spends without a stored release: paid for, and not refunded, since noise may have been drawn.

        Returns:
            Their lines in order.

        Raises:
            LedgerError: The file cannot be used.
            LedgerCorrupted: The file was changed.
        """
        return tuple(entry for entry in words.spend_entries(self._read()) if not entry.released)

    def state(self) -> State:
        """Everything that the ledger says, at one moment.

        Returns:
            The total, what is left, the unit, the table and all lines.

        Raises:
            LedgerError: The file cannot be used.
            LedgerCorrupted: The file was changed.
        """
        return self._read()

    def export(self) -> tuple[dict[str, str], ...]:
        """All spends as plain text, for an outside accountant.

        Returns:
            One mapping per spend, all with the fields of `EXPORTED`: the event that was paid for, `unit` in words,
            `table` ("" where none was named), `price`, exact and in `currency`, and in `paid` the guarantee of the
            spend by itself, in words.

        Raises:
            LedgerError: The file cannot be used.
            LedgerCorrupted: The file was changed.
        """
        return tuple(map(self._exported, words.spend_entries(self._read())))

    def _exported(self, e: Entry) -> dict[str, str]:
        (event,) = export_events((e.event,))
        own = (
            e.price,
            self.currency,
            words.spend_in_epsilon(e.event, self.total),
            e.time,
            "yes" if e.released else "no",
        )
        facts = (e.sequence, e.name, e.table or "", words.entry_unit_text(e), event["mechanism"], event["guarantee"])
        facts = (*facts, event.get("delta", ""), event["sensitivity"], event["scale"], *own, e.plan_hash)
        return dict(zip(self.EXPORTED, map(str, facts), strict=True))

    def epsilon_left(self, delta: Number | None = None) -> Fraction:
        """What is left, shown as an epsilon; for reading only.

        Args:
            delta: The delta at which it is shown; by default that of the budget, if it has one.

        Returns:
            The epsilon. A ledger in epsilon shows what is left as it is.

        Raises:
            BudgetError: delta is needed and missing, or out of its range.
            LedgerError: The file cannot be used.
            LedgerCorrupted: The file was changed.
        """
        if self.currency is Currency.EPSILON:
            return self.remaining
        return remaining_epsilon(self.total, self.remaining, delta, self.currency)

    def quote(self, plan: HasPrice) -> Quote:
        """What a plan would cost now; spends nothing.

        Args:
            plan: A plan, or anything else with a `price`.

        Returns:
            Its price, what is left before and after it, and whether it fits.

        Raises:
            BudgetError: The plan has no price in the ledger's currency.
            LedgerError: The file cannot be used.
            LedgerCorrupted: The file was changed.
        """
        cost, state = event_price(plan.price, self.currency), self._read()
        fits = cost <= state.remaining and event_delta(plan.price) <= state.delta_remaining
        return Quote(cost, state.remaining, state.remaining - cost, fits, self.currency)

    def verify(self, anchor: str | None = None) -> Verification:
        """Check every line; with an anchor, also that the ledger goes on from it.

        Args:
            anchor: The `anchor` of an earlier moment, which was kept outside the ledger. It finds a ledger that was put
                back to an older copy or made anew.

        Returns:
            What was found: the number of lines, sums, unreleased names and the anchor of now.

        Raises:
            LedgerCorrupted: A line was changed, or the ledger does not go on from the anchor.
            InvalidInput: The text is not an anchor.
            LedgerError: The file cannot be used.
        """
        found = self._chain.read() if anchor is None else self._chain.check(anchor)
        state = found.state
        unreleased = tuple(entry.name for entry in words.spend_entries(state) if not entry.released)
        return Verification(state.ledger_id, len(state.entries), state.spent, state.remaining, unreleased, found.anchor)

    def name(self, table: str) -> None:
        """Name the table of all spends so far, where none of them named one; the name stays for good.

        Args:
            table: The public name of the table: 1 to 128 printable characters, such as "people".

        Raises:
            LedgerMismatch: The ledger names another table.
            InvalidInput: The table cannot be called so.
            LedgerError: The file cannot be used.
            LedgerCorrupted: The file was changed.
        """
        given = check_table_name(table)
        if given is None:
            raise InvalidInput("a ledger is named after its table: a short public text, such as 'people'")
        with self._chain.turn(write=True) as turn:
            if turn.state.table not in (None, given):
                raise LedgerMismatch(f"this ledger is of the table {turn.state.table!r}, and a name stays for good")
            if turn.state.table is None:
                turn.append(ledger_line(next_line_number(turn.state), "named", given, utc_timestamp()))

    def _overspent(self, event: Event, cost: Fraction, state: State) -> BudgetExceeded:
        return words.overspent_error(event, cost, state)

    def mark_released(self, receipt: Receipt, result_hash: str) -> None:
        """Record that the release that a receipt paid for is stored. It costs nothing and is possible once.

        Args:
            receipt: The receipt of its debit.
            result_hash: The hash of the release.

        Raises:
            LedgerError: The receipt is of another ledger, the release is marked already, or the file cannot be used.
            LedgerCorrupted: The ledger does not go on from the receipt, or was changed.
            InvalidInput: `result_hash` is not 1 to 128 letters, digits or any of :_.+=-.
        """
        check_hash(result_hash, "result_hash")
        with self._chain.turn(write=True) as turn:
            state = turn.state
            spend = state.find(receipt.name)
            if receipt.ledger_id != self.ledger_id or spend is None or spend.sequence != receipt.sequence:
                raise LedgerError(f"the receipt for {receipt.name!r} belongs to another ledger; open that one")
            turn.check(receipt.anchor)
            if spend.released:
                raise LedgerError(f"{receipt.name!r} is marked as released already; a debit pays for one release")
            paid = (spend.name, spend.plan_hash, event_to_text(spend.event), 0, state.spent)
            turn.append(
                ledger_line(next_line_number(state), "released", *paid, utc_timestamp(), spend.sequence, result_hash)
            )

    def describe(self) -> Description:
        found = self._chain.read()
        state, promised = found.state, words.granted_budget(found.state)
        spends, (protects, table) = words.spend_entries(state), words.protected_unit_text(state)
        facts = [
            ("total", f"{promised}; kept as {readable_number(state.total)} of {state.currency}"),
            ("protects", protects),
            ("table", table),
            ("spent", f"{readable_number(state.spent)} of {state.currency}"),
            ("remaining", f"{readable_number(state.remaining)} of {state.currency}: {words.remaining_text(state)}"),
            ("anchor", found.anchor),
        ]
        if waiting := [e.name for e in spends if not e.released]:
            facts.append(("unreleased", f"{', '.join(waiting)}: {words.UNRELEASED}"))
        columns = {
            "line": [e.sequence for e in spends],
            "name": [e.name for e in spends],
            f"price ({state.currency})": [f"{float(e.price):.6g}" for e in spends],
            "by itself": [words.spend_in_epsilon(e.event, promised) for e in spends],
            "of the total": [f"{float(e.price / state.total):.1%}".replace("%", " %") for e in spends],
            "time": [e.time for e in spends],
            "stored": ["yes" if e.released else "no" for e in spends],
        }
        tables = [TitledTable("Spends", Frame(columns))] if spends else []
        return Description(f"Ledger {state.ledger_id}", [Facts(facts), *tables])

    def facts(self) -> dict[str, Any]:
        """What is spent, on what, and what is left.

        Returns:
            Plain JSON values: the total and what is left of it, whom and which table it protects, and every spend.
        """
        found = self._chain.read()
        state = found.state
        return {
            "id": state.ledger_id,
            "total": words.granted_budget(state).to_json(),
            "currency": str(state.currency),
            "unit": None if state.unit is None else state.unit.describe(),
            "table": state.table,
            "spent": str(state.spent),
            "remaining": str(state.remaining),
            "anchor": found.anchor,
            "entries": [
                {"line": e.sequence, "name": e.name, "price": str(e.price), "time": e.time}
                | {
                    "plan": e.plan_hash,
                    "released": e.released,
                    "paid": words.spend_in_epsilon(e.event, words.granted_budget(state)),
                }
                for e in words.spend_entries(state)
            ],
            "unreleased": [e.name for e in words.spend_entries(state) if not e.released],
        }

    def brief(self) -> str:
        where = str(self._chain.path) if isinstance(self._chain, FileChain) else "in memory"
        try:
            state = self._read()
        except LedgerError as error:
            return f"{where}: {error}"
        waiting = sum(not entry.released for entry in words.spend_entries(state))
        left = f"{readable_number(state.remaining)} of {readable_number(state.total)} {self.currency} left"
        return f"{where}: {self.total}; {left}; {len(words.spend_entries(state))} spends, {waiting} unreleased"


def _read_granted_lines(state: State | None, bodies: Sequence[bytes]) -> State:
    """`entries.advance`, of a ledger that was granted a budget."""
    found = read_ledger_lines(state, bodies)
    words.granted_budget(found)
    return found


def _opening_line(total: Budget, currency: str | None = None, table: str | None = None) -> bytes:
    """The line that a new ledger begins with: who it is, how much it may spend, in what, and of which table.

    An (epsilon, delta) total can be kept in "epsilon": epsilons and deltas then add up, each to its own total. Or in
    "rho": the largest that implies it, rounded down.
    """
    if not isinstance(total, Budget):
        raise BudgetError(f"a ledger's total must be a Budget; got {type(total).__name__}")
    amounts = {total.currency: total.total}
    if total.kind == "approx":
        amounts |= {Currency.EPSILON: total.parameter, Currency.RHO: total.rho}
    kept = next((c for c in amounts if currency is None or currency == c), None)
    if kept is Currency.EPSILON and total.thresholds is not None:
        raise BudgetError(
            "a ledger in epsilon adds up all of its delta, and sets none aside for thresholds; leave out one of them"
        )
    if kept is None:
        raise BudgetError(
            f"a ledger of {total.kind} total adds {total.currency}, or epsilon or rho where the total is "
            f"(epsilon, delta); got {str(currency)[:40]!r}"
        )
    return ledger_line(
        os.urandom(16).hex(), json.dumps(total.to_json()), kept, amounts[kept], utc_timestamp(), table or ""
    )
