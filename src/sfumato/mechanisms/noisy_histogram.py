"""Everything counted once, with noise: the cells of a domain, the keys of known queries, or keys as they come up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from sfumato.errors import PlanError
from sfumato.interactive.key_plans import plan_histogram
from sfumato.mechanisms.mechanism import KEYS, QUESTIONS, TABLES, Request, read_currency
from sfumato.mechanisms.sketches import KeyRequest, Sketched, cheapest_key_noise
from sfumato.mechanisms.textbook import Gaussian, Laplace
from sfumato.plans.keys import KeyPlan
from sfumato.plans.plan import Plan
from sfumato.privacy.accounting import event_price
from sfumato.privacy.amounts import Currency
from sfumato.sketches import KeyQueries, Listed
from sfumato.strategies.calibration import price_of
from sfumato.workloads import identity

__all__ = ["Histogram"]


_ANY = "any"


@dataclass(frozen=True, repr=False, kw_only=True)
class Histogram(Sketched):
    """All counts with one draw of noise each: any number of questions, exact standard errors.

    Over a domain every cell is measured once. Over keys whose queries are known, those keys; over keys whose queries
    are still to come, each when it is first asked for (`sf.open`).

    Args:
        currency: In which currency the ledger that pays adds up ("epsilon", "rho", "mu^2"); None takes the budget's
            own. "any" takes the law of less noise, Laplace's or Gauss's, whatever a ledger of the budget says of it.

    Raises:
        PlanError: There is no such currency.
    """

    currency: str | None = None

    name: ClassVar[str] = "histogram"
    serves: ClassVar[tuple[str, ...]] = (QUESTIONS, KEYS)
    alone: ClassVar[str | None] = _ANY

    def __post_init__(self) -> None:
        if self.currency != _ANY:
            read_currency(self.currency)

    def check(self, asked: Request) -> None:
        if asked.records is not None and asked.kind == KEYS:
            raise PlanError(
                "records= predicts what sketches err; the error of a histogram does not depend on it: leave it out"
            )
        super().check(asked)

    def plan(self, asked: Request) -> Any:
        currency = None
        if self.currency != _ANY:
            currency = read_currency(self.currency) or asked.budget.currency
        if asked.kind == QUESTIONS:
            return _plan_noisy_cells(asked, currency)
        if isinstance(asked.what, KeyQueries):
            if self.currency is not None:
                raise PlanError("currency= is of a histogram that is opened for questions to come; leave it out")
            return super().plan(asked)
        return plan_histogram(asked.what, asked.budget, asked.unit, currency=currency)

    def sketch(self, stated: KeyRequest) -> KeyPlan:
        if stated.supports is None:
            raise PlanError(
                "a histogram that is released counts the keys of known queries: plan keys.queries([...]), one list of "
                "keys each; for queries to come, open it: sf.plan(keys, ..., mechanism='histogram')"
            )
        listed = Listed(np.unique(np.concatenate(stated.supports)))
        noise, event = cheapest_key_noise(listed, stated.budget, stated.unit)
        own = (stated.keys, stated.budget, stated.unit, self.name)
        return KeyPlan(*own, listed, noise, event, None, stated.records)

    def predicts(self, stated: KeyRequest) -> bool:
        return True


def _plan_noisy_cells(asked: Request, currency: Currency | None) -> Plan:
    """The plan of less variance that measures every cell: Laplace or Gaussian noise, if the ledger can pay for both."""
    budget, plans = asked.budget, list[Plan]()
    request = replace(asked, kind=TABLES, what=identity(asked.what))
    for value in (Laplace(),) if budget.kind == "pure" else (Laplace(), Gaussian()):
        found = value.plan(request)
        # a histogram must not cost more than the budget in the ledger's currency
        if currency is None or event_price(found.price, currency) <= event_price(price_of(budget, currency), currency):
            plans.append(found)
    if not plans:
        raise PlanError(f"this ledger adds up {currency}, in which {budget} pays for no histogram")
    return min(plans, key=lambda p: p.noise.variance)
