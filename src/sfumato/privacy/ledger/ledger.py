"""The ledger: a durable budget that many processes share and none can overspend.

What it promises. A debit is on stable storage before `debit` returns, so noise drawn afterwards is paid for.
The recorded spends never exceed the total. A crash may record a spend that was never released (listed by
`unreleased`), never the reverse. Every change to a recorded fact breaks a chain of hashes and spending is refused;
a file that was replaced by an older or re-made one is found by an anchor kept elsewhere. Reading needs no write
access. Clocks are labels.
"""

from __future__ import annotations

import os
import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Protocol

from sfumato.errors import InvalidInput, LedgerError, NameTaken
from sfumato.privacy.accountant import Event, delta_of, epsilon_left, events_export, price, refuse_overspending
from sfumato.privacy.budget import Budget, Currency, Number, readable
from sfumato.privacy.files import FileStore, check_anchor
from sfumato.privacy.ledger.chain import Entry, State, first_row, next_row, replay
from sfumato.privacy.ledger.store import FORMAT, MemoryStore, Row, Store, append, begin, read_tables

__all__ = ["Ledger", "Priced", "Quote", "Receipt", "Verification"]

_HASH = re.compile(r"[0-9A-Za-z:_.+=-]{1,128}", re.ASCII)
_MAX_NAME = 128


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof of a debit. Keep `anchor` outside the ledger: it finds a ledger that was rolled back or made anew."""

    sequence: int
    anchor: str
    ledger_id: str
    name: str
    price: Fraction
    currency: Currency


@dataclass(frozen=True, slots=True)
class Quote:
    """What a plan would cost now; `remaining_after` is negative where it does not fit."""

    price: Fraction
    remaining: Fraction
    remaining_after: Fraction
    fits: bool
    currency: Currency

    def __str__(self) -> str:
        after = f"{readable(self.remaining_after)} would remain" if self.fits else "it does not fit"
        return f"costs {readable(self.price)} of {self.currency}; {readable(self.remaining)} is left; {after}"


@dataclass(frozen=True, slots=True)
class Verification:
    """What a successful check of the whole ledger found; `unreleased` are names."""

    ledger_id: str
    entries: int
    spent: Fraction
    remaining: Fraction
    unreleased: tuple[str, ...]
    anchor: str


class Priced(Protocol):
    """Anything that states its price as an event, such as a plan."""

    @property
    def price(self) -> Event: ...


class Ledger:
    """A shared total of a privacy budget. `Ledger(path)` opens one, `Ledger.create(path, total=...)` makes one.

    An object may be used from any thread and after a fork; other processes open the same path. Every call reads and
    checks the whole ledger: LedgerError where the file cannot be used, LedgerCorrupted where it was changed.

    Attributes: `total` (Budget), `currency`, `ledger_id` (random, public).
    """

    def __init__(self, path: str | os.PathLike[str] | MemoryStore) -> None:
        self._store: Store = path if isinstance(path, MemoryStore) else FileStore(Path(path), FORMAT)
        self._seen: str | None = None
        state = self._read()
        self.total = state.budget
        self.currency = state.currency
        self.ledger_id = state.ledger_id

    @classmethod
    def create(cls, path: str | os.PathLike[str], *, total: Budget, currency: str | None = None) -> Ledger:
        """Make a ledger in a new file. Raises LedgerError if the path exists or cannot be written.

        With currency="epsilon" an (epsilon, delta) total is kept as two sums, of epsilons and of deltas [DKMMN06], as
        mechanisms with a delta of their own need it; with currency="rho" as the rho of zCDP that implies it [CKS20], in
        which choices by the data are cheaper; without, in the mu^2 of Gaussian noise, in which Gaussian releases are.
        """
        genesis = first_row(total, currency)
        FileStore.create(Path(path), FORMAT, lambda connection: begin(connection, genesis))
        return cls(path)

    @classmethod
    def in_memory(cls, total: Budget, currency: str | None = None) -> Ledger:
        """An account that ends with this process: for one explicit release, not for a budget that must last."""
        return cls(MemoryStore(first_row(total, currency)))

    @property
    def durable(self) -> bool:
        """Whether debits outlive this process."""
        return isinstance(self._store, FileStore)

    @property
    def remaining(self) -> Fraction:
        """What is left, in the ledger's currency."""
        return self._read().remaining

    @property
    def delta_remaining(self) -> Fraction:
        """What is left for mechanisms with a delta of their own; 0 where the ledger keeps no sum of deltas."""
        return self._read().delta_remaining

    @property
    def spent(self) -> Fraction:
        """What is spent, in the ledger's currency: a display; the guarantee is the total."""
        return self._read().spent

    @property
    def anchor(self) -> str:
        """The last sequence number and the hash over all lines so far, as "17:9f86d0..."."""
        return self._read().anchor

    def entries(self) -> tuple[Entry, ...]:
        """All lines in order."""
        return self._read().entries

    def unreleased(self) -> tuple[Entry, ...]:
        """Spends without a stored release: paid for, and not to be refunded since noise may have been drawn."""
        return tuple(entry for entry in self._read().spends if not entry.released)

    def find(self, name: str) -> Entry | None:
        """The spend of that name, or None."""
        return self._read().find(name)

    def export(self) -> tuple[dict[str, str], ...]:
        """All spends as plain text fields for an outside accountant; see `accountant.events_export`."""
        spends = self._read().spends
        events = events_export(entry.event for entry in spends)
        return tuple({"name": entry.name, **event} for entry, event in zip(spends, events, strict=True))

    def epsilon_left(self, delta: Number | None = None) -> Fraction:
        """What is left, shown as an epsilon at `delta` (the budget's own if it has one). For reading only."""
        if self.currency is Currency.EPSILON:
            return self.remaining
        return epsilon_left(self.total, self.remaining, delta, self.currency)

    def quote(self, plan: Priced) -> Quote:
        """What the plan would cost now. Spends nothing."""
        cost, state = price(plan.price, self.currency), self._read()
        fits = cost <= state.remaining and delta_of(plan.price) <= state.delta_remaining
        return Quote(cost, state.remaining, state.remaining - cost, fits, self.currency)

    def verify(self, anchor: str | None = None) -> Verification:
        """Check every line; with an anchor from outside, also that the ledger continues from it.

        Raises LedgerCorrupted where it does not, InvalidInput for a text that is no anchor.
        """
        state = self._read()
        if anchor is not None:
            check_anchor(state.hashes, anchor, "ledger")
        unreleased = tuple(entry.name for entry in state.spends if not entry.released)
        return Verification(state.ledger_id, len(state.entries), state.spent, state.remaining, unreleased, state.anchor)

    def expect(self, name: str, plan_hash: str, event: Event) -> None:
        """Raise what `debit` would raise now; spends nothing. So that no table is opened in vain."""
        self._spend(self._read(), name, plan_hash, event)

    def debit(self, name: str, plan_hash: str, event: Event) -> Receipt:
        """Record the price of an event durably. Only after this returns may noise be drawn or data be looked at.

        Raises NameTaken where the name was debited before, BudgetExceeded where the price does not fit, BudgetError
        where it has no price in this currency; nothing is spent then.
        """
        with self._store.transaction(write=True) as connection:
            state = self._checked(*read_tables(connection))
            row, cost = self._spend(state, name, plan_hash, event)
            append(connection, row)
        self._seen = _anchor(row)
        return Receipt(len(state.entries) + 1, self._seen, self.ledger_id, name, cost, self.currency)

    def _spend(self, state: State, name: str, plan_hash: str, event: Event) -> tuple[Row, Fraction]:
        """The line that spends an event's price, and that price; refused where it may not be spent."""
        _check_name(name)
        _check_hash(plan_hash, "plan_hash")
        cost = price(event, self.currency)
        taken = state.find(name)
        if taken is not None:
            raise NameTaken(
                f"{name!r} was debited before (line {taken.sequence}, plan {taken.plan_hash}): "
                "read that release back, or choose another name"
            )
        refuse_overspending(cost, state.remaining, self.currency)
        refuse_overspending(delta_of(event), state.delta_remaining, "delta")
        return next_row(state, "spend", name, plan_hash, event, cost), cost

    def mark_released(self, receipt: Receipt, result_hash: str) -> None:
        """Record that the release paid for by the receipt is stored. Costs nothing; possible once.

        Raises LedgerError for a receipt of another ledger or a release already marked.
        """
        _check_hash(result_hash, "result_hash")
        with self._store.transaction(write=True) as connection:
            state = self._checked(*read_tables(connection))
            spend = state.find(receipt.name)
            if receipt.ledger_id != self.ledger_id or spend is None or spend.sequence != receipt.sequence:
                raise LedgerError(f"the receipt for {receipt.name!r} belongs to another ledger; open that one")
            check_anchor(state.hashes, receipt.anchor, "ledger")
            if spend.released:
                raise LedgerError(f"{receipt.name!r} is marked as released already; a debit pays for one release")
            row = next_row(
                state, "released", spend.name, spend.plan_hash, spend.event, Fraction(0), spend.sequence, result_hash
            )
            append(connection, row)
        self._seen = _anchor(row)

    def _read(self) -> State:
        # Checked inside the transaction: another thread could otherwise spend between reading and checking.
        with self._store.transaction(write=False) as connection:
            state = self._checked(*read_tables(connection))
            self._seen = state.anchor
        return state

    def _checked(self, genesis: Row, rows: list[Row]) -> State:
        """The state, which must continue everything that this object has seen."""
        state = replay(genesis, rows)
        if self._seen is not None:
            check_anchor(state.hashes, self._seen, "ledger")
        return state

    def __repr__(self) -> str:
        where = str(self._store.path) if isinstance(self._store, FileStore) else "in memory"
        try:
            state = self._read()
        except LedgerError as error:
            return f"<Ledger {where}: {error}>"
        waiting = sum(not entry.released for entry in state.spends)
        left = f"{readable(state.remaining)} of {readable(state.total)} {self.currency} left"
        return f"<Ledger {where}: {self.total}; {left}; {len(state.spends)} spends, {waiting} unreleased>"


def _anchor(row: Row) -> str:
    return f"{row[0]}:{row[-1]}"


def _check_name(name: str) -> None:
    """Names end up in paths and on screens: printable, of one spelling, and without a way out of a folder."""
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME or not name.isprintable():
        raise InvalidInput(f"a release's name is 1 to {_MAX_NAME} printable characters; got {str(name)[:40]!r}")
    if name != name.strip() or name.startswith(".") or "/" in name or "\\" in name:
        raise InvalidInput(f"a release's name has no slash, and no space or dot at its ends; got {name!r}")
    if unicodedata.normalize("NFC", name) != name:
        raise InvalidInput(f"a release's name must be in Unicode form NFC; got {name!r}")


def _check_hash(value: str, what: str) -> None:
    if not isinstance(value, str) or not _HASH.fullmatch(value):
        raise InvalidInput(f"{what} is 1 to 128 letters, digits or any of :_.+=-; got {str(value)[:40]!r}")
