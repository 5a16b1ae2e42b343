"""What every plan is: decided before a row is read, priced, told apart by a fingerprint, told in words, stored."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import fields
from fractions import Fraction
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sfumato._util.codec import encode_value, stored_fields, value_fingerprint
from sfumato._util.description import Describable, Description, Facts, TitledTable
from sfumato._util.documents import write_document
from sfumato._util.frames import Frame
from sfumato.domain import Attribute, Domain
from sfumato.errors import PlanError, SfumatoError
from sfumato.operators import Block, Dense
from sfumato.operators.base import FloatArray
from sfumato.privacy.accounting import ApproxGaussianEvent, BoundedRangeEvent, Event, GaussianEvent, event_delta
from sfumato.privacy.amounts import readable_number
from sfumato.privacy.budget import Budget, price_keeps_budget
from sfumato.privacy.ledger.words import export_events, secrecy_sentence
from sfumato.privacy.unit import PrivacyUnit
from sfumato.strategies.design import Candidate, candidate_table
from sfumato.strategies.strategy import Strategy
from sfumato.workloads import RECORDS, QueryBlock, Workload
from sfumato.workloads.levels import lift_to_attribute

if TYPE_CHECKING:
    from sfumato.plans.plan import Plan


class Planned(Describable):
    """A plan: every decision before the data. It is frozen, can be printed and stored, and holds nothing private.

    Every kind of plan has a `budget`, a `unit` (whose privacy is protected) and a `price`. A kind that derives adds
    what it measures and the errors that follow.
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
        """SHA-256 of everything that decides what is looked at and released."""
        # what a plan gained later is hashed where it says something, so that older plans keep their fingerprints
        known = dict(stored_fields(self))
        return value_fingerprint(tuple(known[name] for name in self.decides if name in known) if self.decides else self)

    def check(self) -> None:
        """Check that every part of the plan is what it has to be, as a damaged file could hold something else.

        Raises:
            PlanError: A part is of another class, or contradicts the others.
            InvalidInput: A part cannot be stored.
        """
        for name, kind in self.holds.items():
            found = getattr(self, name)
            if not isinstance(found, kind):
                raise PlanError(f"the plan's {name} is a {type(found).__name__}: it is damaged, plan again")
        _ = encode_value(self), self.fingerprint

    def agree(self) -> None:
        """Check that the plan does not contradict itself: all of `check`, and that its price keeps its budget.

        Raises:
            PlanError: It contradicts itself.
            InvalidInput: A part cannot be stored.
        """
        self.check()
        if not self.honest:
            raise PlanError("its price is above the budget that it states")

    @property
    def whole_price(self) -> Event:
        """What a ledger was charged: the price, and that of looks before, which were paid for with it."""
        return self.price

    @property
    def paid_plan(self) -> str:
        """The fingerprint that the ledger's entry bears: that of the plan which all looks were paid for."""
        return self.fingerprint

    @property
    def honest(self) -> bool:
        """Whether the price keeps the budget that the plan states."""
        return price_keeps_budget(self.price, self.budget)

    def privacy_facts(self) -> dict[str, Any]:
        """What the facts say of privacy: the unit, the budget, and what the ledger was charged.

        Returns:
            Plain JSON values.
        """
        within = self.unit.within
        return {
            "neighbours": self.unit.neighbours.value,
            **({} if within is None else {"within": [within.name, within.attribute, within.digest]}),
            "person": self.unit.person,
            "rows_per_person": self.unit.rows_per_person,
            **(
                {"once_per": list(self.unit.once_per), "rows_per_group": self.unit.rows_per_group}
                if self.unit.once_per
                else {}
            ),
            "unit": self.unit.describe(),
            "budget": self.budget.to_json(),
            "statement": str(self.budget),
            "events": list(export_events([self.whole_price])),
        }

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan to one file (no pickle), which `sf.load` reads.

        Args:
            path: The file.

        Raises:
            OSError: The file cannot be written.
        """
        write_document(path, self)


class WorkloadPlan(Planned):
    """A plan to answer a workload: its queries, what was considered, and the public facts that releases state too."""

    holds = Planned.holds | {"workload": Workload, "records": int | None}
    runs_over_time: ClassVar[bool] = False
    """Whether tables come period after period, so that errors are of periods."""

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
        """What is known of errors before data, as tables.

        Returns:
            Tables by name: "orders", by part and number of attributes, and "families", by table; empty where nothing is
            known.
        """
        return {}

    @property
    @abstractmethod
    def measures(self) -> tuple[str, Any]:
        """A heading and a value: the strategy, or the rounds, that are measured."""

    @abstractmethod
    def own_facts(self) -> dict[str, dict[str, Any]]:
        """What the facts say of the mechanism and of its errors.

        Returns:
            The entries `mechanism` and `error` of `facts`.
        """

    def facts(self) -> dict[str, Any]:
        """The public facts: what is protected, measured and predicted, and hashes of it all.

        Returns:
            Plain JSON values.
        """
        return {
            "privacy": self.privacy_facts(),
            **({"impossible": list(impossible)} if (impossible := self.workload.domain.impossible) else {}),
            **self.own_facts(),
            "hashes": {
                "plan": self.fingerprint,
                "workload": value_fingerprint(self.workload),
                "strategy": value_fingerprint(self.measures[1]),
                "domain": value_fingerprint(self.workload.domain),
            },
        }

    def _described(
        self, more: str, facts: Iterator[tuple[str, str]], tables: Iterable[TitledTable] = ()
    ) -> Description:
        """What a kind says of itself, after what is asked and before what was considered."""
        k, m = self.workload.shape
        considered = [TitledTable("Considered", self.candidates)] if self.considered else []
        headline = f"Plan: {k:,} queries over {m:,} cells, mechanism {self.mechanism!r}{more}"
        return Description(headline, [Facts(tuple(facts)), *tables, *considered])


_NAMES: dict[type[Event], str] = {
    GaussianEvent: "mu^2",
    ApproxGaussianEvent: "mu^2",
    BoundedRangeEvent: "epsilon of bounded range",
}


def _event_parameter(event: Event) -> tuple[str, Fraction]:
    """The name and the exact value of an event's parameter."""
    first = fields(event)[0].name
    return _NAMES.get(type(event), first), getattr(event, first)


def counted_rows_text(unit: PrivacyUnit) -> str:
    """Which rows answers are of, where these are not all; else nothing."""
    if unit.person is None:
        return ""
    most = "one row" if unit.rows_per_person == 1 else f"{unit.rows_per_person:,} rows"
    if unit.once_per:
        each = "one" if unit.rows_per_group == 1 else f"at most {unit.rows_per_group:,}"
        most += f", {each} for each {' and '.join(unit.once_per)},"
    return (
        f"at most {most} of each person; further rows, and rows that name nobody, are missing from every count: all "
        "answers and intervals are of counted rows, and fall where persons come to have more rows"
    )


def rows_text(unit: PrivacyUnit) -> str:
    """What counts are of, for axes and answers: not all records where few of each person are counted."""
    return "records" if unit.person is None else "counted records"


def protection_lines(unit: PrivacyUnit, event: Event) -> Iterator[tuple[str, str]]:
    """What is kept from whoever looks, in a sentence; who is protected, and which rows are counted, as lines."""
    yield "", secrecy_sentence(unit, event)
    yield "protects", unit.describe()
    if told := counted_rows_text(unit):
        yield "counts", told


def event_price_text(event: Event) -> str:
    """A price in words, to six figures where it has more; the ledger has them all."""
    name, value = _event_parameter(event)
    delta = f", delta = {readable_number(event_delta(event))}" if event_delta(event) else ""
    return f"{name} = {_six_digit_text(value)}{delta}{' (Gaussian differential privacy)' if name == 'mu^2' else ''}"


def _six_digit_text(value: Fraction) -> str:
    text = readable_number(value)
    return text if len(text) <= 8 else f"{float(value):.6g}"


def event_text(event: Event) -> str:
    """What one look of several costs, for people."""
    name, value = _event_parameter(event)
    return f"{name} = {float(value):.6g}" if value else "free"


_MOST = 24  # parts and tables: more fit on no screen


def counted_as_zero(attribute: str) -> str:
    """What is said of a mean over all records of a group, where those without a declared value were not told apart."""
    return f"of all records: those of (other) count 0 in the sum of {attribute}"


def served_statistic_lines(plan: Plan) -> Iterator[str]:
    """One line for the sums of each attribute within the same groups, and for each table of a numeric attribute."""
    domain, strategy = plan.workload.domain, plan.strategy
    seen = set[tuple[str, tuple[str, ...]]]()
    for item in plan.workload.items[:_MOST]:
        if not isinstance(item, QueryBlock):
            continue
        attributes = item.attributes
        if item.unit != RECORDS:
            name, by = item.unit, tuple(a for a in attributes if a != item.unit)
            if name in domain and name in attributes and (name, by) not in seen:
                seen.add((name, by))
                yield _sum_statistic_line(domain, strategy, name, item)
        elif item.is_marginal:
            for name in attributes:
                by = tuple(a for a in attributes if a != name)
                if domain[name].midpoints is not None and (name, by) not in seen:
                    seen.add((name, by))
                    yield f"means, quantiles and shares of {_grouped_name(name, by)}"


def _grouped_name(name: str, by: tuple[str, ...]) -> str:
    return f"{name} by {', '.join(by)}" if by else name


def _sum_statistic_line(domain: Domain, strategy: Strategy, name: str, item: QueryBlock) -> str:
    declared, block = domain[name], item.block
    by = tuple(a for a in item.attributes if a != name)
    where = _grouped_name(name, by)
    if is_answered(strategy, _group_size_block(domain, name, declared, block, known=True)):
        return f"means of {where}"
    if declared.has_other and is_answered(strategy, _group_size_block(domain, name, declared, block, known=False)):
        return f"means of {where}, {counted_as_zero(name)}"
    groups = f"marginals of {', '.join(by)}" if by else "the total"
    return f"sums of {where} alone: for means stack the counts too, {groups}"


def _group_size_block(domain: Domain, name: str, declared: Attribute, block: Block, *, known: bool) -> Block:
    """The records of each group of a block of sums: of those with a declared value, or all."""
    row: FloatArray = np.ones((1, declared.size))
    if known and declared.has_other:
        row[0, -1] = 0.0
    kept = [(g, f) for g, f in zip(block.groups, block.factors, strict=True) if name not in g]
    if not (row == 1).all():
        owner, factor = lift_to_attribute(domain, name, Dense(row))
        kept.append(((owner,), factor))
    return Block(tuple(g for g, _ in kept), tuple(f for _, f in kept))


def is_answered(strategy: Strategy, block: Block) -> bool:
    """Whether what is measured answers a block."""
    try:
        strategy.check(block)
    except SfumatoError:
        return False
    return True
