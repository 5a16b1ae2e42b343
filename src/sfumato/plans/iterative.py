"""A plan of several looks: each may depend on the ones before, and the whole is paid for at once, before the first."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any

from sfumato._util.codec import storable
from sfumato._util.description import Description
from sfumato.errors import PlanError
from sfumato.plans.planned import WorkloadPlan, event_price_text, event_text, protection_lines
from sfumato.privacy.accounting import Account, Event, event_price
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger.words import export_events
from sfumato.privacy.unit import PrivacyUnit
from sfumato.strategies.design import Candidate
from sfumato.workloads import Workload


@storable
@dataclass(frozen=True, slots=True)
class Look:
    """Looks of one kind.

    Args:
        purpose: What they are for.
        count: How many there are at most.
        price: The price of each.

    Raises:
        PlanError: The number is negative, or the price is no event.
    """

    stored_as = "Knock"  # its name in files

    purpose: str
    count: int
    price: Event

    def __post_init__(self) -> None:
        if type(self.count) is not int or self.count < 0 or not isinstance(self.price, Event):
            raise PlanError("looks of one kind have a number of at least 0 and the price of each")


@dataclass(frozen=True, slots=True)
class AccuracyBound:
    """A bound that is proved before data.

    No answer of `model` is off by more than `largest`, except with probability `failure`.

    Args:
        largest: The largest error, in the plan's unit.
        failure: The probability that it does not hold.
        model: Which answers it is about.
    """

    largest: float
    failure: float
    model: str


@storable
@dataclass(frozen=True, eq=False, repr=False)
class IterativePlan(WorkloadPlan):
    """What a mechanism of several looks will do, and its price. Holds nothing private.

    All looks of its rounds together cost at most `price`, which is debited at once. What is looked at depends on
    earlier answers, so errors of single queries are not known before: there is a `bound` where one is proved, and
    `rmse` where one is predicted.

    Args:
        workload: The queries.
        budget: The budget that the release keeps.
        unit: Whose privacy is protected.
        mechanism: The name of the mechanism.
        price: What a ledger is charged.
        course: The rounds, a storable value of the mechanism's own. It says in words what will be done (`summary`),
            lists all looks with the price of each (`looks`) and whether the number of records is public
            (`total_known`), and proves what it can of the answers from the plan alone (`bound`).
        records: The public number of records that was given, or None.
        rmse: The predicted root mean squared error, or None.
        notes: Remarks that are printed with the plan.
        considered: The mechanisms that were considered.
    """

    stored_as = "CoursePlan"  # its name in files

    workload: Workload
    budget: Budget
    unit: PrivacyUnit
    mechanism: str
    price: Event
    course: Any
    records: int | None = None
    rmse: float | None = None
    notes: tuple[str, ...] = ()
    considered: tuple[Candidate, ...] = field(default=())

    @property
    def looks(self) -> tuple[Look, ...]:
        """All looks, with the price of each."""
        return self.course.looks

    @functools.cached_property
    def bound(self) -> AccuracyBound | None:
        """The bound that is proved of the answers before data, or None.

        It is computed from the plan and never read from a file.
        """
        return self.course.bound(self)

    @property
    def slack(self) -> Fraction:
        """What the price exceeds the sum of all looks by, in the currency of the price; never spent on anything.

        Raises:
            PlanError: The looks cost more than the price.
            BudgetError: The price is of a kind whose parts do not add up.
        """
        account = Account(self.price)
        left = account.remaining - sum(k.count * event_price(k.price, account.currency) for k in self.looks)
        if left < 0:
            raise PlanError("the looks of this plan cost more than the price that it states; plan again")
        return left

    def agree(self) -> None:
        super().agree()
        if self.course.total_known is not self.unit.total_is_public or self.slack < 0:
            raise PlanError("it is wrong about whether the number of records is public")

    decides = ("workload", "budget", "unit", "mechanism", "price", "course")

    @property
    def measures(self) -> tuple[str, Any]:
        return "Rounds", self.course

    def own_facts(self) -> dict[str, dict[str, Any]]:
        bound = self.bound
        return {
            "mechanism": {
                "name": self.mechanism,
                "strategy": self.course.summary,
                "looks": [{"purpose": k.purpose, "count": k.count, **export_events([k.price])[0]} for k in self.looks],
                "slack": str(self.slack),
                "records": self.records,
                "notes": list(self.notes),
            },
            "error": {
                "rmse": self.rmse,
                "standard_errors": None,
                "bound": None if bound is None else asdict(bound),
                "unit": self.main_unit,
            },
        }

    def describe(self) -> Description:
        return self._described(", several looks", self._lines())

    def _lines(self) -> Iterator[tuple[str, str]]:
        yield from protection_lines(self.unit, self.price)
        yield from self.workload.domain.told()
        yield "guarantee", str(self.budget)
        yield "rounds", self.course.summary
        yield "price", f"{event_price_text(self.price)}, debited as a whole before the first look"
        for look in self.looks:
            yield "looks", f"{look.count:,} x {look.purpose}: {event_text(look.price)}"
        predicted = "" if self.rmse is None else f"rmse about {self.rmse:,.5g} {self.main_unit}; "
        yield "error", f"{predicted}no standard errors: what is measured depends on the data"
        yield "bound", self.bounded()
        yield from (("note", n) for n in self.notes)

    def brief(self) -> str:
        return f"{self.mechanism}: {len(self.workload):,} queries, {sum(k.count for k in self.looks):,} looks"

    def bounded(self) -> str:
        """The bound in words.

        Returns:
            A sentence, also where no bound is known.
        """
        if self.bound is None:
            return "none is known before the data"
        sure = f"{1 - self.bound.failure:.0%}"
        most = f"{self.bound.largest:,.4g} {self.main_unit}"
        empty = "" if self.records is None or self.bound.largest < self.records else ", which says nothing here"
        of = "" if self.records is None else f" where there are {self.records:,} records"
        return f"with probability {sure} no answer of {self.bound.model} is off by more than {most}{of}{empty}"
