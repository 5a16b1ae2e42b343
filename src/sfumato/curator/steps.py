"""Several looks that one debit pays for, each chosen by what came of those before; kept in a file between them.

The whole price is debited when the first look is taken, and every look is written down before its noise is drawn. So a
process that was killed between two looks is gone on with, from what came of the first: no look is paid for twice, and
none is taken twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sfumato._util.bundles import pack_value, unpack_value
from sfumato._util.codec import storable
from sfumato.errors import LedgerError
from sfumato.privacy.accounting import Account, Event, event_from_text, event_to_text
from sfumato.privacy.chain import FileChain, Format, MemoryChain
from sfumato.privacy.debits import Debits, Receipt
from sfumato.privacy.files import Wording
from sfumato.privacy.reserved_budget import ReservedBudget
from sfumato.privacy.unit import PrivacyUnit

FORMAT = Format(
    words=Wording(
        noun="file of looks",
        mode=0o600,
        make="it is made by a release that takes several looks",
        undone="no look was taken",
        advice="make room or access, and give the same command again",
    ),
    application_id=0x53464D50,
    label="sfumato looks",
)
_PAID, _SPENT, _CAME = b"paid ", b"spent ", b"came "


@storable
@dataclass(frozen=True, slots=True)
class StepOpening:
    """What the looks are for: the plan's fingerprint, the ledger and name that they are paid under, and their price."""

    plan_hash: str
    ledger_id: str
    name: str
    price: Event


@dataclass(frozen=True, slots=True)
class _Lines:
    """All lines so far: what the looks are for, the ledger's entry and anchor, what was spent, and what came of it."""

    opening: StepOpening
    paid: tuple[int, str] | None = None
    spent: tuple[Event, ...] = ()
    came: tuple[bytes, ...] = field(default=(), repr=False)

    def account(self) -> Account:
        """What is left of the price. Raises LedgerError where nothing came of the last look, as none is taken twice."""
        if len(self.spent) > len(self.came):
            raise LedgerError(
                "a look was taken of which nothing is known yet: another process takes it now, or one was killed; it "
                "is not taken again"
            )
        account = Account(self.opening.price)
        for event in self.spent:
            account.spend(event)
        return account


class StepStore:
    """What was spent and what came of it, look by look; in a file, or in memory alone.

    Raises LedgerError for another file, LedgerCorrupted for one that was changed.
    """

    __slots__ = ("_chain",)

    def __init__(self, chain: FileChain[_Lines] | MemoryChain[_Lines]) -> None:
        self._chain = chain

    @classmethod
    def at(cls, path: Path) -> StepStore:
        """The one in a file."""
        return cls(FileChain(path, FORMAT, _read_lines))

    @classmethod
    def create(cls, path: Path | None, opening: StepOpening) -> StepStore:
        """A new one, in a file unless the path is None. Raises LedgerError where it exists or cannot be made."""
        line = pack_value(opening)
        if path is None:
            return cls(MemoryChain(FORMAT, _read_lines, line))
        return cls(FileChain.create(path, FORMAT, _read_lines, line))

    @property
    def opening(self) -> StepOpening:
        """What the looks are for."""
        return self._chain.read().state.opening

    @property
    def paid(self) -> tuple[int, str] | None:
        """The ledger's entry and the anchor after it; None before."""
        return self._chain.read().state.paid

    @property
    def spent(self) -> tuple[Event, ...]:
        """What each look so far cost, whatever came of it."""
        return self._chain.read().state.spent

    @property
    def came(self) -> tuple[bytes, ...]:
        """What came of the looks, in their order."""
        return self._chain.read().state.came

    @property
    def lost(self) -> bool:
        """Whether nothing is known of the last look, though it was written down."""
        state = self._chain.read().state
        return len(state.spent) > len(state.came)

    def pay(self, receipt: Receipt) -> None:
        """Write down the debit."""
        self._add(_PAID + f"{receipt.sequence} {receipt.anchor}".encode())

    def spend(self, event: Event) -> None:
        """Write down a look that is about to be taken, for good.

        Of several processes each counts what the others wrote down. Raises BudgetExceeded where the rest does not pay
        it, LedgerError where it is not known yet what came of the one before.
        """
        with self._chain.turn(write=True) as turn:
            turn.state.account().spend(event)
            turn.append(_SPENT + event_to_text(event).encode())

    def check(self, event: Event) -> None:
        """Raise what `spend` would raise now."""
        self._chain.read().state.account().check(event)

    def keep(self, found: bytes) -> None:
        """Store what came of the last look. Publishable: all of it came out of the curator."""
        self._add(_CAME + found)

    def _add(self, line: bytes) -> None:
        with self._chain.turn(write=True) as turn:
            turn.append(line)

    def remove(self) -> None:
        """Take the file away, where there is one."""
        if isinstance(self._chain, FileChain):
            self._chain.remove()


def _read_lines(state: _Lines | None, bodies: Sequence[bytes]) -> _Lines:
    """The state after some more lines; ValueError where they do not follow."""
    for body in bodies:
        if state is None:
            opening = unpack_value(body)
            if type(opening) is not StepOpening:
                raise ValueError("its first line is of another kind")
            state = _Lines(opening)
        elif body.startswith(_PAID) and state.paid is None:
            sequence, anchor = body[len(_PAID) :].decode().split(" ")
            state = replace(state, paid=(int(sequence), anchor))
        elif body.startswith(_SPENT) and state.paid is not None and len(state.spent) == len(state.came):
            state = replace(state, spent=(*state.spent, event_from_text(body[len(_SPENT) :].decode())))
        elif body.startswith(_CAME) and len(state.spent) > len(state.came):
            state = replace(state, came=(*state.came, body[len(_CAME) :]))
        else:
            raise ValueError("a line does not follow from those before")
    if state is None:
        raise ValueError("it has no line")
    return state


class StepBudget(ReservedBudget):
    """The account of several looks: the first has the ledger debit the whole price, all are written down beforehand.

    Guarantee: what is spent here, and by all other processes that have the same file, composes to at most the price, in
    the definition that it states.

    Raises LedgerError for a file of other looks.
    """

    __slots__ = ("_ledger", "_opening", "_store", "durable")

    def __init__(self, opening: StepOpening, ledger: Debits, store: StepStore) -> None:
        if store.opening != opening:
            raise LedgerError("the file of looks is of another plan, ledger, name or price; choose another folder")
        self._opening, self._ledger, self._store, self.durable = opening, ledger, store, ledger.durable

    def expect(self, name: str, plan_hash: str, event: Event, unit: PrivacyUnit, table: str | None = None) -> None:
        """Raise what `debit` would raise now; spends nothing."""
        of = self._opening
        self._store.check(event)
        if self._store.paid is None:
            self._ledger.expect(of.name, of.plan_hash, of.price, unit, table)

    def debit(self, name: str, plan_hash: str, event: Event, unit: PrivacyUnit, table: str | None = None) -> Receipt:
        """Have the ledger debit the whole price unless it did, then write the look down, which spends its price."""
        of = self._opening
        self._store.check(event)
        if self._store.paid is None:
            self._store.pay(self._ledger.debit(of.name, of.plan_hash, of.price, unit, table))
        receipt = self._ledger.paid(of.name, of.plan_hash)
        if receipt is None or self._store.paid != (receipt.sequence, receipt.anchor):
            raise LedgerError("the ledger's entry is not the one that paid for these looks; restore the newest copies")
        self._store.spend(event)
        return receipt

    def __repr__(self) -> str:
        return f"<StepBudget of {self._opening.name!r}>"
