"""What one debit paid for, spent in parts: the account of an adaptive mechanism, of several accesses to the data."""

from __future__ import annotations

from sfumato.privacy.accounting import Account, Event
from sfumato.privacy.debits import Receipt
from sfumato.privacy.unit import PrivacyUnit


class ReservedBudget:
    """An account in memory that holds exactly what one debit paid for; the receipt of all its parts is that debit's.

    Guarantee: what is spent here composes to at most `price`, in the definition that `price` states, also when each
    part is chosen after the results of earlier ones: mu^2, rho and epsilon of parts add up [DRS22, BS16].

    It lives in one process, as Account. Raises BudgetError for a price whose parts do not add up.
    """

    __slots__ = ("_account", "_receipt")

    durable = False

    def __init__(self, price: Event, receipt: Receipt) -> None:
        self._account, self._receipt = Account(price), receipt

    def expect(self, name: str, plan_hash: str, event: Event, unit: PrivacyUnit, table: str | None = None) -> None:
        """Raise what `debit` would raise now; spends nothing. Parts bear no names, and have the unit of the debit."""
        del name, plan_hash, unit, table
        self._account.check(event)

    def debit(self, name: str, plan_hash: str, event: Event, unit: PrivacyUnit, table: str | None = None) -> Receipt:
        """Spend the event's price. Raises BudgetExceeded where it does not fit, BudgetError in another process."""
        del name, plan_hash, unit, table
        self._account.spend(event)
        return self._receipt

    def __repr__(self) -> str:
        return f"<Prepaid entry {self._receipt.sequence}: {self._account!r}>"
