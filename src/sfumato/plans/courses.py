"""A plan of several looks: each may depend on the ones before, and the whole is paid for at once, before the first."""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from os import PathLike
from typing import Any

from sfumato.designs.design import Candidate, candidate_table
from sfumato.errors import PlanError
from sfumato.ground.codec import fingerprint, storable
from sfumato.ground.documents import write_document
from sfumato.ground.frames import Frame
from sfumato.privacy.accountant import Account, Event, compose
from sfumato.privacy.amounts import readable
from sfumato.privacy.budget import Budget
from sfumato.privacy.statements import events_export
from sfumato.privacy.unit import PrivacyUnit
from sfumato.workloads import RECORDS, Workload

__all__ = ["CourseBound", "CoursePlan", "Knock", "event_text"]


@storable
@dataclass(frozen=True, slots=True)
class Knock:
    """Looks of one kind: what they are for, how many at most, and the price of each."""

    purpose: str
    count: int
    price: Event

    def __post_init__(self) -> None:
        if type(self.count) is not int or self.count < 0 or not isinstance(self.price, Event):
            raise PlanError("looks of a course have a number of at least 0 and the price of each")


@dataclass(frozen=True, slots=True)
class CourseBound:
    """Proved before data: but with probability `failure`, no answer of `model` is off by more than `largest`."""

    largest: float
    failure: float
    model: str


@storable
@dataclass(frozen=True, eq=False, repr=False)
class CoursePlan:
    """What a mechanism of several looks will do, and its price. Holds nothing private.

    All looks of its course together cost at most `price`, which is debited at once. What is looked at depends on
    earlier answers, so errors of single queries are not known before: there is a `bound` where one is proved, and
    `rmse` where one is predicted.
    """

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
    def knocks(self) -> tuple[Knock, ...]:
        """All looks, with the price of each."""
        return self.course.knocks

    @functools.cached_property
    def bound(self) -> CourseBound | None:
        """What is proved of the answers before data; found anew from the plan, never read from a file."""
        return self.course.bound(self)

    @property
    def slack(self) -> Fraction:
        """What the price exceeds the sum of all looks by, in the currency of the price; never spent on anything.

        Raises PlanError where the looks cost more than the price, BudgetError for a price whose parts do not add up.
        """
        account = Account(self.price)
        left = account.remaining - compose((k.price for k in self.knocks for _ in range(k.count)), account.currency)
        if left < 0:
            raise PlanError("the looks of this plan cost more than the price that it states; plan again")
        return left

    @property
    def main_unit(self) -> str:
        """The unit of errors: records, unless no query counts records."""
        units = self.workload.units
        return RECORDS if RECORDS in units else units[0]

    @property
    def candidates(self) -> Frame:
        """Every mechanism considered: predicted errors, and why it was not chosen."""
        return candidate_table(self.considered)

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all that decides what is looked at and released."""
        parts = (self.workload, self.budget, self.unit, self.mechanism, self.price, self.course)
        return fingerprint(parts)

    def facts(self) -> dict[str, Any]:
        """The public facts as plain JSON values: what is protected, what each look costs, what is proved."""
        bound = self.bound
        return {
            "privacy": {
                "neighbours": self.unit.neighbours.value,
                "person": self.unit.person,
                "rows_per_person": self.unit.rows_per_person,
                "unit": self.unit.describe(),
                "budget": self.budget.to_json(),
                "statement": str(self.budget),
                "events": list(events_export([self.price])),
            },
            "mechanism": {
                "name": self.mechanism,
                "strategy": self.course.summary,
                "looks": [{"purpose": k.purpose, "count": k.count, **events_export([k.price])[0]} for k in self.knocks],
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
            "hashes": {
                "plan": self.fingerprint,
                "workload": fingerprint(self.workload),
                "strategy": fingerprint(self.course),
                "domain": fingerprint(self.workload.domain),
            },
        }

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan to one file (no pickle)."""
        write_document(path, self)

    def explain(self) -> str:
        """The plan in words."""
        k, m = self.workload.shape
        name, total = _parameter(self.price)
        lines = [
            f"Plan: {k:,} queries over {m:,} cells, mechanism {self.mechanism!r}, several looks",
            f"  protects   {self.unit.describe()}",
            f"  guarantee  {self.budget}",
            f"  course     {self.course.summary}",
            f"  price      {name} = {readable(total)}, debited as a whole before the first look",
        ]
        for knock in self.knocks:
            lines.append(f"  looks      {knock.count:,} x {knock.purpose}: {event_text(knock.price)}")
        predicted = "" if self.rmse is None else f"rmse about {self.rmse:,.5g} {self.main_unit}; "
        lines.append(f"  error      {predicted}no standard errors: what is measured depends on the data")
        lines.append(f"  bound      {self.bounded()}")
        lines += [f"  note       {n}" for n in self.notes]
        if self.considered:
            lines += ["", "Considered:", str(self.candidates)]
        return "\n".join(lines)

    def bounded(self) -> str:
        """The bound in words."""
        if self.bound is None:
            return "none is known before the data"
        sure = f"{1 - self.bound.failure:.0%}"
        most = f"{self.bound.largest:,.4g} {self.main_unit}"
        empty = "" if self.records is None or self.bound.largest < self.records else ", which says nothing here"
        of = "" if self.records is None else f" where there are {self.records:,} records"
        return f"with probability {sure} no answer of {self.bound.model} is off by more than {most}{of}{empty}"

    def __str__(self) -> str:
        return self.explain()

    def __repr__(self) -> str:
        looks = sum(k.count for k in self.knocks)
        return f"<CoursePlan {self.mechanism}: {len(self.workload):,} queries, {looks:,} looks>"

    def _repr_html_(self) -> str:
        import html  # noqa: PLC0415

        return f"<pre>{html.escape(self.explain())}</pre>"


def event_text(event: Event) -> str:
    """What one look costs, for people."""
    name, value = _parameter(event)
    return f"{name} = {float(value):.6g}" if value else "free"


_NAMES = {"gaussian": "mu^2", "pure": "epsilon", "zcdp": "rho", "bounded-range": "epsilon of bounded range"}


def _parameter(event: Event) -> tuple[str, Fraction]:
    """The name and the exact value of an event's parameter."""
    said = events_export([event])[0]
    return _NAMES.get(said["mechanism"], said["mechanism"]), Fraction(said["guarantee"])
