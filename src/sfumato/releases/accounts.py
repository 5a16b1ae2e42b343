"""The account that pays: a ledger that is named, or one that lasts for one spend."""

from __future__ import annotations

import os

from sfumato.errors import InvalidInput
from sfumato.privacy.accountant import ApproxEvent, Event, PureEvent, ZcdpEvent
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger import Ledger

__all__ = ["one_shot", "opened"]


def opened(ledger: object) -> Ledger | None:
    """The ledger that is meant; None for an explicit one-shot account. Raises InvalidInput for anything else."""
    if ledger is None or isinstance(ledger, Ledger):
        return ledger
    if isinstance(ledger, (str, os.PathLike)):
        return Ledger(ledger)
    raise InvalidInput(f"ledger is a path, an sf.Ledger, or None for an explicit one-shot account, not {ledger!r}")


def one_shot(price: Event, budget: Budget) -> Ledger:
    """An account in memory whose total a price just fits, in the price's own currency."""
    match price:
        case ApproxEvent():
            return Ledger.in_memory(budget, "epsilon")
        case PureEvent(epsilon=epsilon):
            return Ledger.in_memory(Budget.pure(epsilon))
        case ZcdpEvent(rho=rho):
            return Ledger.in_memory(Budget.zcdp(rho))
        case _:
            return Ledger.in_memory(budget)
