"""What every plan is: decided before a row is read, priced, told apart by a fingerprint, told in words, stored."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import fields
from fractions import Fraction
from os import PathLike
from typing import Any, ClassVar

from sfumato.designs.design import Candidate, candidate_table
from sfumato.errors import PlanError
from sfumato.ground.codec import encode, fingerprint
from sfumato.ground.documents import write_document
from sfumato.ground.frames import Frame
from sfumato.ground.later import told
from sfumato.ground.telling import Told
from sfumato.privacy.accountant import ApproxEvent, BoundedRangeEvent, Event, GaussianEvent
from sfumato.privacy.amounts import readable
from sfumato.privacy.budget import Budget, keeps
from sfumato.privacy.statements import events_export, told_apart
from sfumato.privacy.unit import PrivacyUnit
from sfumato.workloads import RECORDS, Workload

__all__ = ["Planned", "WorkloadPlan", "counted", "event_text", "price_text", "protected", "rows_text"]


class Planned(Told):
    """A plan: every decision before the data. Frozen, printable, storable; it holds nothing private.

    Whatever its kind, it says for whom it promises what (`unit`, `budget`) and at which `price`. A kind that derives
    adds what it measures, the errors that follow, and its own words.
    """

    decides: ClassVar[tuple[str, ...]] = ()
    """The fields that decide what is looked at and released, in the order of the fingerprint; none: the whole value."""
    holds: ClassVar[dict[str, Any]] = {"budget": Budget, "unit": PrivacyUnit, "price": Event, "mechanism": str}
    """What the fields of a plan that holds together are."""

    budget: Budget
    unit: PrivacyUnit
    price: Event
    mechanism: str

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all that decides what is looked at and released."""
        # what a plan gained later is hashed where it says something, so that older plans keep their fingerprints
        known = dict(told(self))
        return fingerprint(tuple(known[name] for name in self.decides if name in known) if self.decides else self)

    def check(self) -> None:
        """Raise PlanError for what a damaged file holds in place of a part, or for what cannot be stored."""
        for name, kind in self.holds.items():
            found = getattr(self, name)
            if not isinstance(found, kind):
                raise PlanError(f"the plan's {name} is a {type(found).__name__}: it is damaged, plan again")
        _ = encode(self), self.fingerprint

    def agree(self) -> None:
        """Raise PlanError, or another error of the library, where what a file says contradicts itself."""
        self.check()
        if not self.honest:
            raise PlanError("its price is above the budget that it states")

    @property
    def honest(self) -> bool:
        """Whether the price keeps the budget that the plan states."""
        return keeps(self.price, self.budget)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan to one file (no pickle)."""
        write_document(path, self)


class WorkloadPlan(Planned):
    """A plan to answer a workload: its queries, what was considered, and the public facts that releases state too."""

    holds = Planned.holds | {"workload": Workload, "records": int | None}

    workload: Workload
    records: int | None
    notes: tuple[str, ...]
    considered: tuple[Candidate, ...]

    @functools.cached_property
    def main_unit(self) -> str:
        """The unit of `rmse`: records, unless no query counts records."""
        units = self.workload.units
        return RECORDS if RECORDS in units else units[0]

    @property
    def candidates(self) -> Frame:
        """Every mechanism considered: predicted errors, the value compared, and why it was not chosen."""
        return candidate_table(self.considered)

    def error_tables(self) -> dict[str, Frame]:
        """What is known of errors before data: by part and number of attributes, and by table; nothing by default."""
        return {}

    @property
    @abstractmethod
    def measures(self) -> tuple[str, Any]:
        """What is measured: how that is called, and the value that says it."""

    @abstractmethod
    def own_facts(self) -> dict[str, dict[str, Any]]:
        """`mechanism` and `error` of the facts."""

    def facts(self) -> dict[str, Any]:
        """The public facts as plain JSON values: what is protected, measured and predicted, and hashes of it all."""
        within = self.unit.within
        return {
            "privacy": {
                "neighbours": self.unit.neighbours.value,
                **({} if within is None else {"within": [within.name, within.attribute, within.digest]}),
                "person": self.unit.person,
                "rows_per_person": self.unit.rows_per_person,
                "unit": self.unit.describe(),
                "budget": self.budget.to_json(),
                "statement": str(self.budget),
                "events": list(events_export([self.price])),
            },
            **({"impossible": list(impossible)} if (impossible := self.workload.domain.impossible) else {}),
            **self.own_facts(),
            "hashes": {
                "plan": self.fingerprint,
                "workload": fingerprint(self.workload),
                "strategy": fingerprint(self.measures[1]),
                "domain": fingerprint(self.workload.domain),
            },
        }

    def headline(self) -> str:
        k, m = self.workload.shape
        return f"Plan: {k:,} queries over {m:,} cells, mechanism {self.mechanism!r}"

    def appended(self) -> Iterator[str]:
        if self.considered:
            yield from ("", "Considered:", str(self.candidates))


_NAMES: dict[type[Event], str] = {GaussianEvent: "mu^2", BoundedRangeEvent: "epsilon of bounded range"}


def _parameter(event: Event) -> tuple[str, Fraction]:
    """The name and the exact value of an event's parameter."""
    first = fields(event)[0].name
    return _NAMES.get(type(event), first), getattr(event, first)


def counted(unit: PrivacyUnit) -> str:
    """Which rows answers are of, where these are not all; else nothing."""
    if unit.person is None:
        return ""
    most = "one row" if unit.rows_per_person == 1 else f"{unit.rows_per_person:,} rows"
    return (
        f"at most {most} of each person; further rows, and rows that name nobody, are missing from every count: all "
        "answers and intervals are of counted rows, and fall where persons come to have more rows"
    )


def rows_text(unit: PrivacyUnit) -> str:
    """What counts are of, for axes and answers: not all records where few of each person are counted."""
    return "records" if unit.person is None else "counted records"


def protected(unit: PrivacyUnit, event: Event) -> Iterator[tuple[str, str]]:
    """What is kept from whoever looks, in a sentence; who is protected, and which rows are counted, as lines."""
    yield "", told_apart(unit, event)
    yield "protects", unit.describe()
    if told := counted(unit):
        yield "counts", told


def price_text(event: Event) -> str:
    """A price in words, to six figures where it has more; the ledger has them all."""
    name, value = _parameter(event)
    delta = f", delta = {readable(event.delta)}" if isinstance(event, ApproxEvent) else ""
    return f"{name} = {_six(value)}{delta}{' (Gaussian differential privacy)' if name == 'mu^2' else ''}"


def _six(value: Fraction) -> str:
    text = readable(value)
    return text if len(text) <= 8 else f"{float(value):.6g}"


def event_text(event: Event) -> str:
    """What one look of several costs, for people."""
    name, value = _parameter(event)
    return f"{name} = {float(value):.6g}" if value else "free"
