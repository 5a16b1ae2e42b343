"""Mechanisms of one look that are asked for by name: noise on queries or cells [DMNS06, DKMMN06], trees,
factorizations, residuals; and histograms of everything: the cells of a domain, the keys of known queries, or keys as
they come up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from sfumato.errors import PlanError
from sfumato.interactive.key_plans import plan_histogram
from sfumato.mechanisms.registry import KEYS, QUESTIONS, TABLES, Request, check_whole_option, read_currency
from sfumato.mechanisms.searches import Search, labelled, tree_search
from sfumato.mechanisms.sketches import KeyRequest, Sketched, cheapest_key_noise
from sfumato.mechanisms.tables import Designed
from sfumato.plans.keys import KeyPlan
from sfumato.plans.plan import Plan
from sfumato.privacy.accounting import event_price
from sfumato.privacy.amounts import Currency
from sfumato.sketches import KeyQueries, Listed
from sfumato.strategies.calibration import price_of
from sfumato.workloads import identity

__all__ = ["Factorization", "Gaussian", "Histogram", "Laplace", "Marginals", "TreeMechanism"]


_GAUSSIAN = ("gaussian", "discrete-gaussian")


class _DirectNoise(Designed):
    label: ClassVar[str] = "direct"
    grouped: ClassVar[bool] = True
    takes_strategy: ClassVar[bool] = True
    considers: ClassVar[tuple[str, ...]] = ("direct",)
    textbook: ClassVar[bool] = True

    @property
    def searches(self) -> tuple[Search, ...]:
        return labelled(self.label)


@dataclass(frozen=True, repr=False, kw_only=True)
class Laplace(_DirectNoise):
    """Discrete Laplace noise on the queries or on the cells, or on a strategy that is given.

    Args:
        noise: "laplace".
        lattice: "fine", or "unit", which measures plain integer counts.

    Raises:
        PlanError: The noise is of another law, or there is no such lattice.

    Source:
        [DMNS06]
    """

    noise: str | None = "laplace"

    name: ClassVar[str] = "laplace"
    measures: ClassVar[Literal["refused", "beside", "summed"]] = "beside"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise != "laplace":
            raise PlanError(
                f"mechanism='laplace' is noise of that law, and noise={self.noise!r} another; leave one of them out"
            )


@dataclass(frozen=True, repr=False, kw_only=True)
class Gaussian(_DirectNoise):
    """Gaussian noise on the queries or on the cells, or on a strategy that is given.

    Args:
        noise: "gaussian", or "discrete-gaussian".
        lattice: "fine", or "unit", which measures plain integer counts.

    Raises:
        PlanError: The noise is of another law, or there is no such lattice.

    Source:
        [DKMMN06], [CKS20] for the discrete law
    """

    noise: str | None = "gaussian"

    name: ClassVar[str] = "gaussian"
    measures: ClassVar[Literal["refused", "beside", "summed"]] = "beside"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise not in _GAUSSIAN:
            raise PlanError(
                f"mechanism='gaussian' is noise of that law, and noise={self.noise!r} another; leave one of them out"
            )


@dataclass(frozen=True, repr=False, kw_only=True)
class TreeMechanism(Designed):
    """Trees of counts over an ordered attribute.

    Args:
        branching: The number of children of a node, from 2 on; None takes those that err least.
        noise: "gaussian", "laplace" or "discrete-gaussian"; None takes what the budget is best spent on.
        lattice: "fine", or "unit", which measures plain integer counts.

    Raises:
        PlanError: An option is not allowed.

    Source:
        [CSS11], [DNPR10], [HRMS10]
    """

    branching: int | None = None

    name: ClassVar[str] = "tree"
    grouped: ClassVar[bool] = True
    measures: ClassVar[Literal["refused", "beside", "summed"]] = "beside"
    label: ClassVar[str] = "tree"
    considers: ClassVar[tuple[str, ...]] = ("tree",)
    textbook: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole_option("branching", self.branching, 2, 10**6)

    @property
    def searches(self) -> tuple[Search, ...]:
        return (tree_search(self.branching),)


@dataclass(frozen=True, repr=False, kw_only=True)
class Factorization(Designed):
    """Optimal dense strategies, their Kronecker products, and stacks of them.

    Args:
        noise: "gaussian", "laplace" or "discrete-gaussian"; None takes what the budget is best spent on.
        lattice: "fine", or "unit", which measures plain integer counts.

    Raises:
        PlanError: An option is not allowed.

    Source:
        [LHR10], [NTZ13], [ENU20]
    """

    name: ClassVar[str] = "factorization"
    grouped: ClassVar[bool] = True
    measures: ClassVar[Literal["refused", "beside", "summed"]] = "summed"
    label: ClassVar[str] = "factorization"
    considers: ClassVar[tuple[str, ...]] = ("factorization",)

    @property
    def searches(self) -> tuple[Search, ...]:
        return labelled(self.label)


@dataclass(frozen=True, repr=False, kw_only=True)
class Marginals(Designed):
    """Residuals of marginal tables: plain, tilted for unions, at the levels of a tree, or of other factors than cells.

    It is the one mechanism that uses public tables (`public`).

    Args:
        noise: "gaussian", "laplace" or "discrete-gaussian"; None takes what the budget is best spent on.
        lattice: "fine", or "unit", which measures plain integer counts.

    Raises:
        PlanError: An option is not allowed.

    Source:
        [XZK23]
    """

    name: ClassVar[str] = "marginals"
    grouped: ClassVar[bool] = True
    measures: ClassVar[Literal["refused", "beside", "summed"]] = "beside"
    label: ClassVar[str] = "marginals"
    considers: ClassVar[tuple[str, ...]] = ("marginals",)
    takes_public: ClassVar[bool] = True

    @property
    def searches(self) -> tuple[Search, ...]:
        return labelled(self.label)


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
