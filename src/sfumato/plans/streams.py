"""A plan for tables that go on: the errors of every period and every question over time, before the first."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar, TypeVar

import numpy as np

from sfumato._util.codec import deferred_field, storable
from sfumato._util.description import Description, TitledTable
from sfumato._util.frames import Frame
from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray
from sfumato.plans.plan import Plan
from sfumato.plans.planned import WorkloadPlan, event_price_text, protection_lines
from sfumato.postprocess.projection import largest_tables
from sfumato.privacy.accounting import Event, GaussianEvent
from sfumato.privacy.budget import Budget
from sfumato.privacy.noise import RoundedGaussian
from sfumato.privacy.sensitivity import Sensitivity
from sfumato.privacy.stream_price import StreamTerms, WindowFilter
from sfumato.privacy.unit import PrivacyUnit
from sfumato.strategies.design import Candidate
from sfumato.strategies.impossible_cells import condition_on_impossible
from sfumato.strategies.periods import Periods
from sfumato.strategies.periods import parse_question as question_of
from sfumato.strategies.residuals import Residuals
from sfumato.strategies.strategy import Strategy
from sfumato.strategies.time_errors import TimeErrors, errors_of_filter
from sfumato.workloads import Workload

Variance = TypeVar("Variance", float, FloatArray)
_ANOTHER = 4.0  # a variance of the total, of which half its multiple tells


@storable
@dataclass(frozen=True, eq=False, repr=False)
class StreamPlan(WorkloadPlan):
    """What will be measured in every period, with which noise, and all errors that follow. Holds nothing private.

    A question over time is "totals" (all periods up to one), "increments" (one period), or weights of periods. Errors
    are a product of two: what the tables of the workload err if they are measured once, and what time makes of it.
    Where the total goes through a filter of its own, time makes something else of it than of all else in tables.

    Args:
        workload: The queries about every period.
        budget: The budget that all periods together keep.
        unit: Whose privacy is protected.
        mechanism: The name of the mechanism.
        objective: As in `sf.plan`.
        strategy: What is measured in every period.
        terms: How measured values are filtered over time, and the noise.
        price: What a ledger is charged.
        periods: How many periods there are, and what is asked over time.
        bound: A proved lower bound on the root mean squared error of what is asked over time, in all periods together,
            and of all queries as the objective weighs them, for any unbiased answers from Gaussian noise of any
            covariance; or None.
        worst_bound: The same on the error in the worst period; None where it was not looked for.
        records: The public number of records that was given, or None.
        notes: Remarks that are printed with the plan.
        considered: The mechanisms that were considered.

    Source:
        [LHR10], [HUU23]
    """

    workload: Workload
    budget: Budget
    unit: PrivacyUnit
    mechanism: str
    objective: str
    strategy: Residuals
    terms: StreamTerms
    price: Event
    periods: Periods
    bound: float | None = None
    records: int | None = None
    notes: tuple[str, ...] = ()
    considered: tuple[Candidate, ...] = field(default=())
    worst_bound: float | None = deferred_field(None)

    runs_over_time: ClassVar[bool] = True
    QUESTIONS: ClassVar[tuple[str, ...]] = ("totals", "increments")
    """The questions over time whose errors are told by period; `errors` takes any."""

    decides = ("workload", "budget", "unit", "mechanism", "strategy", "terms", "price", "periods")
    holds = WorkloadPlan.holds | {
        "strategy": Residuals,
        "terms": StreamTerms,
        "periods": Periods,
        "price": GaussianEvent,
        "objective": str,
        "bound": float | int | None,
        "worst_bound": float | int | None,
    }

    def check(self) -> None:
        """Check that every part of the plan is what it has to be, as a damaged file could hold something else.

        Raises:
            PlanError: A part is of another class or contradicts the others, or the plan costs more than its price.
            InvalidInput: A part cannot be stored.
        """
        super().check()
        paired = (self.terms.filter.periods, self.terms.participations, self.terms.apart)
        if paired != (self.periods.count, self.periods.per_person, self.periods.apart):
            raise PlanError("the plan's terms are of other periods than it states; plan again")
        if self.terms.enforced != (self.unit.person is not None and not self.periods.promised):
            raise PlanError("the plan's terms count people otherwise than it states; plan again")
        if not _families_match(self.strategy, self.terms):
            raise PlanError("the plan's terms measure something else than its strategy; plan again")
        if not self.terms.fits(self.price, self._sizes, self.unit):
            raise PlanError("the plan costs more than the price that it states; plan again")

    @property
    def _sizes(self) -> dict[str, int]:
        return {n: a.size for n, a in self.workload.domain.attributes.items()}

    # -- errors over time ----------------------------------------------------------------------------------

    @functools.cached_property
    def over_time(self) -> TimeErrors:
        """The variances of answers over time, for noise of variance 1 in each measured value but for a total that has
        a filter of its own."""
        return errors_of_filter(self.terms.filter)

    @functools.cached_property
    def total_over_time(self) -> TimeErrors:
        """The same of the measured total."""
        return self.over_time if self.terms.total is None else errors_of_filter(self.terms.total)

    def weights(self, question: str, period: int | None = None) -> FloatArray:
        """How much a question over time counts each period.

        Args:
            question: "totals", "increments", "last 12" (periods) or "decayed 0.99".
            period: The period at which it is asked, counted from 1; None takes the last.

        Returns:
            (m,) weights of the first m periods, m the period.

        Raises:
            PlanError: There is no such question or period.
        """
        last = self.periods.count if period is None else period
        if type(last) is not int or not 1 <= last <= self.periods.count:
            raise PlanError(f"periods are numbered from 1 to {self.periods.count:,}, not {period!r}")
        return question_of(question, self.periods.count).weights(last)

    def between(self, first: int, last: int) -> FloatArray:
        """The weights of a sum of consecutive periods.

        Args:
            first: The first period, counted from 1.
            last: The last period, which is included.

        Returns:
            (last,) weights, 1 from the first period on and 0 before it.

        Raises:
            PlanError: There are no such periods.
        """
        if type(first) is not int or type(last) is not int or not 1 <= first <= last <= self.periods.count:
            raise PlanError(f"between needs two periods from 1 to {self.periods.count:,} in order")
        out = np.zeros(last)
        out[first - 1 :] = 1.0
        return out

    def of(self, weights: FloatArray) -> Plan:
        """The plan of one answer over time, as of a single look: its errors, intervals and covariances.

        Args:
            weights: (m,) weights of the first m periods, as `weights` and `between` give them.

        Returns:
            The plan, which has the errors of that answer.
        """
        return self._scaled(*self._variances(weights))

    def total_scale(self, weights: FloatArray) -> float:
        """What the measured total is multiplied by in an answer over time, to have the same noise as all else.

        Args:
            weights: (m,) weights of the first m periods.

        Returns:
            The multiple that the answer's plan states, over that of the strategy.
        """
        return self._total_multiple(*self._variances(weights)) / self._multiple

    def _variances(self, weights: FloatArray) -> tuple[float, float]:
        """Of an answer over time, of all else in tables and of the total."""
        rest = self.over_time.variance(weights)
        return rest, rest if self.terms.total is None else self.total_over_time.variance(weights)

    @property
    def _multiple(self) -> int:
        """Of the total in the strategy; 1 where it is not measured."""
        first = self.strategy.multiples[0]
        return int(first[0]) if first.size else 1

    def _total_multiple(self, rest: float, total: float) -> int:
        """The one with which a total of that variance has the noise of the rest; a whole number, as multiples are."""
        return self._multiple if rest == total else max(1, round(self._multiple * math.sqrt(rest / total)))

    def at(self, question: str = "totals", period: int | None = None) -> Plan:
        """The plan of a question at a period, as of a single look.

        Args:
            question: "totals", "increments", "last 12" (periods) or "decayed 0.99".
            period: The period, counted from 1; None takes the last.

        Returns:
            The plan, which has the errors of that answer.

        Raises:
            PlanError: There is no such question or period.
        """
        return self.of(self.weights(question, period))

    def standard_errors(
        self, question: str = "totals", period: int | None = None, part: str | None = None
    ) -> FloatArray:
        """Standard errors of all queries of a question over time at a period.

        Args:
            question: "totals", "increments", "last 12" (periods) or "decayed 0.99".
            period: The period, counted from 1; None takes the last.
            part: The name of a part; all queries, unless given.

        Returns:
            (k,) standard errors, in records.

        Raises:
            PlanError: There is no such question, period or part.
        """
        return self.at(question, period).standard_errors(part)

    def curve(self, question: str = "totals") -> FloatArray:
        """The error of a question at every period.

        Args:
            question: "totals", "increments", "last 12" (periods), "decayed 0.99", or "ranges", all runs of periods that
                end there.

        Returns:
            (periods,) root mean squared errors, as the objective weighs queries.

        Raises:
            PlanError: There is no such question.
        """
        asked = question_of(question, self.periods.count)
        return self._once * np.sqrt(self._mixed(self.total_share, lambda over: over.of(asked)))

    @functools.cached_property
    def _once(self) -> float:
        """What the tables err where an answer over time has variance 1 at unit noise, as the objective weighs them."""
        if self.terms.total is not None:
            return self._scaled(1.0, 1.0).mean_error
        return self.at().mean_error / math.sqrt(float(self.over_time.totals[-1]))

    @functools.cached_property
    def total_share(self) -> float:
        """Of the square of that the part of the measured total, where that has a filter of its own."""
        return self._total_share(lambda plan: plan.mean_error)

    def _total_share(self, error: Callable[[Plan], float]) -> float:
        """Mean squares are linear in the variances: what they are with a total of another variance tells its part."""
        if self.terms.total is None:
            return 0.0
        multiple = self._total_multiple(1.0, _ANOTHER)
        more = (error(self._scaled(1.0, _ANOTHER)) / error(self._scaled(1.0, 1.0))) ** 2 - 1
        return more / ((self._multiple / multiple) ** 2 - 1)

    def _mixed(self, share: float, found: Callable[[TimeErrors], Variance]) -> Variance:
        """A variance over time of tables of which so much is due to the total."""
        rest = found(self.over_time)
        return rest if self.terms.total is None else (1 - share) * rest + share * found(self.total_over_time)

    @functools.cached_property
    def asked_curve(self) -> FloatArray:
        """(periods,) root mean squared errors at every period of the questions over time, by their weights."""
        return self._once * np.sqrt(self._mixed(self.total_share, lambda over: over.together(self.periods.questions)))

    @functools.cached_property
    def asked_mean(self) -> float:
        """The root mean squared error of the questions over time, by their weights, over all periods together."""
        return self._once * math.sqrt(self._mixed(self.total_share, lambda over: over.mean(self.periods.questions)))

    def errors(self, confidence: float = 0.95, question: str = "totals") -> Frame:
        """The errors of a question at periods 1, 2, 4 and so on, and at the last.

        Args:
            confidence: The probability of the half-widths, strictly between 0 and 1.
            question: "totals", "increments", "last 12" (periods) or "decayed 0.99".

        Returns:
            One row per period: rmse, worst standard error, half-width, and the half-width at which all queries of the
            workload in all periods up to that one hold together, by the union bound.

        Raises:
            PlanError: There is no such question.
        """
        doubling = {min(2**j, self.periods.count) for j in range(self.periods.count.bit_length() + 1)}
        columns: dict[str, list[Any]] = {
            name: [] for name in ("period", "rmse", "worst_standard_error", "half_width", "simultaneous")
        }
        for period in sorted(doubling):
            once = self.at(question, period)
            together = 1 - (1 - confidence) / (period * len(self.workload))
            widths = [
                max(float(m.max()) for m in (once.margins(e, level) for e in once.entries))
                for level in (confidence, together)
            ]
            row = (period, once.mean_error, once.max_standard_error, *widths)
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
        return Frame(columns)

    @functools.cached_property
    def _knowing(self) -> Strategy:
        """The strategy, which knows of impossible cells."""
        return self._with_total(self._multiple)

    def _with_total(self, multiple: int) -> Strategy:
        """The same with another multiple of the total."""
        work, made = self.workload, self.strategy
        if multiple != self._multiple:
            made = replace(made, multiples=(np.array([multiple]), *made.multiples[1:]))
        return condition_on_impossible(made, work.domain, largest_tables(work), [q.block for q in work.blocks])

    def _scaled(self, variance: float, total: float) -> Plan:
        multiple = self._total_multiple(variance, total)
        deviation = math.sqrt(variance * float(self.terms.noise.variance)) * 2.0**self.terms.grain
        return Plan(
            self.workload,
            self.budget,
            self.unit,
            self.mechanism,
            self.objective,
            self._knowing if multiple == self._multiple else self._with_total(multiple),
            RoundedGaussian(Fraction(deviation)),
            self.price,
            Sensitivity(2, 0, exact=False),
            records=self.records,
        )

    def left_out_error(self, weights: FloatArray) -> float | None:
        """The standard error of how many rows may be missing because their persons were left out of periods.

        Args:
            weights: (m,) weights of the first m periods.

        Returns:
            The standard error of `Running.missing` of that answer; None where it is not measured.
        """
        if not self.terms.cut:
            return None
        variance = self.over_time.variance(cumulative_period_weights(weights)) * float(self.terms.noise.variance)
        return self.unit.rows_per_person * math.sqrt(variance) * 2.0**self.terms.grain / self.terms.cut

    # -- beside others -------------------------------------------------------------------------------------

    @functools.cached_property
    def rmse(self) -> float:
        """Root mean squared error over the totals of all periods, all queries alike, in records."""
        if self.terms.total is None:
            mean = float(self.over_time.totals.mean() / self.over_time.totals[-1])
            return _rmse(self.at()) * math.sqrt(mean)
        mean = self._mixed(self._total_share(_rmse), lambda over: float(over.totals.mean()))
        return _rmse(self._scaled(1.0, 1.0)) * math.sqrt(mean)

    @functools.cached_property
    def objective_value(self) -> float:
        """The error that was minimised: of the questions over time, in their worst period or in the mean."""
        return float(self.asked_curve.max()) if self.periods.objective == "worst" else self.asked_mean

    @property
    def lower_bound(self) -> float | None:
        """A proved bound on the error that was minimised, in the worst period where that is known, or on the mean, and
        so on the largest; None where none is known.

        It holds for unbiased answers with Gaussian noise of any covariance.
        """
        return self.bound if self.worst_bound is None else self.worst_bound

    @functools.cached_property
    def tree_error(self) -> float:
        """The largest error of a total if the tables went into a binary tree over the periods, at the same price.

        A person pays for all nodes above the periods 0, apart, 2 apart, ..., each as often as it holds one. [CSS11,
        DNPR10]
        """
        n, k = self.periods.count, self.periods.per_person
        places = np.arange(k) * self.periods.apart
        price = sum(int((np.bincount(places >> level) ** 2).sum()) for level in range(n.bit_length()))
        nodes = max(t.bit_count() for t in (n, (1 << (n.bit_length() - 1)) - 1))  # of the worst of 1 to n
        change = Fraction(self.terms.change(self._sizes, self.unit), 4**self.terms.grain)
        return self._once * math.sqrt(price * nodes * change / self.terms.response(self._sizes, self.unit))

    @functools.cached_property
    def rounding(self) -> float:
        """The share of the noise that pays for the rounding of the integers, not for what is asked."""
        shift = self.terms.tables_shift(self._sizes, self.unit)
        return math.sqrt(shift / self.terms.response(self._sizes, self.unit)) - 1

    @property
    def participation(self) -> str:
        """How it is ensured that nobody is counted in more periods than the plan says, in words."""
        if self.unit.total_is_public:
            return (
                "a record is replaced within its period; to hide its period too name person=, or plan with add-remove"
            )
        if self.unit.person is None:
            return "a record is in one period"
        if self.terms.enforced:
            return "enforced: rows of a person in more periods, or in nearer ones, are left out"
        return "how often a person is counted is promised by the custodian, and not enforced"

    @property
    def missing(self) -> str:
        """How rows that are left out may change counts, in words; "" where none are left out.

        It also says how well their number will be known.
        """
        if not self.terms.enforced:
            return ""
        many = "one period" if self.periods.per_person == 1 else f"at most {self.periods.per_person:,} periods"
        are = "is" if self.periods.per_person == 1 else "are"
        start = (
            f"of each person {many} of {self.periods.count:,} {are} counted: counts of counted rows can fall though "
            "nothing changed"
        )
        if not self.terms.cut:
            return f"{start}; how many persons are left out is not measured"
        error = self.left_out_error(self.weights("increments", self.periods.count))
        return (
            f"{start}. How many persons are left out is measured beside: from the count of the last period at most so "
            f"many rows are missing, known with a standard error of {error:,.3g}"
        )

    @property
    def state_bytes(self) -> int:
        """The number of bytes that a store keeps, in secret, between two periods."""
        sizes = self.workload.domain.shape
        cells = sum(math.prod(sizes[a] for a in s) for f in self.terms.families for s in f.sets.tolist())
        if self.terms.total is None:
            return 8 * (cells + bool(self.terms.cut)) * math.prod(self.terms.filter.kept)
        # the total is one of the cells
        rest = (cells - 1 + bool(self.terms.cut)) * math.prod(self.terms.filter.kept)
        return 8 * (rest + math.prod(self.terms.total.kept))

    # -- words ---------------------------------------------------------------------------------------------

    @property
    def measures(self) -> tuple[str, Any]:
        return "Strategy", (self.strategy, self.terms.filter)

    def own_facts(self) -> dict[str, dict[str, Any]]:
        return {
            "mechanism": {
                "name": self.mechanism,
                "strategy": f"{self.strategy.summary}, filtered over {self.periods.count:,} periods",
                "noise": {"law": "RoundedGaussian", "scale": str(self.terms.noise.sigma)},
                "periods": self.periods.count,
                "per_person": self.periods.per_person,
                "apart": self.periods.apart,
                "participation": self.participation,
                **({"cut": self.terms.cut, "missing": self.missing} if self.terms.cut else {}),
                "most": self.terms.most,
                "states": self.terms.filter.kept[1],
                **({} if self.terms.total is None else {"states_of_total": self.terms.total.kept[1]}),
                "state_bytes": self.state_bytes,
                "rounding": self.rounding,
            },
            "error": {
                "rmse": self.rmse,
                "objective": self.objective,
                "objective_value": self.objective_value,
                "lower_bound": self.lower_bound,
                "tree": self.tree_error,
                "unit": self.main_unit,
            },
        }

    def describe(self) -> Description:
        what = "half-widths of 95 % intervals, one and all so far"
        tables = (TitledTable(f"Errors of {q} by period ({what})", self.errors(question=q)) for q in self.QUESTIONS)
        return self._described(f", {self.periods.count:,} periods", self._lines(), tables)

    def _lines(self) -> Iterator[tuple[str, str]]:
        yield from protection_lines(self.unit, self.price)
        yield from self.workload.domain.told()
        yield "over time", self.periods.describe()
        yield "", f"  {self.participation}"
        if told := self.missing:
            yield "", f"  {told}"
        yield "guarantee", f"{self.budget}, also if tables are chosen after earlier answers"
        values = sum(f.rows for f in self.terms.families)
        kept = self.terms.filter.kept[1]
        by = f"{kept} past counts" if isinstance(self.terms.filter, WindowFilter) else f"{kept} states"
        if self.terms.total is not None:
            by = f"{by} a cell, the total by {self.terms.total.kept[1]} past counts"
        else:
            by = f"{by} a cell"
        yield "measures", f"{self.strategy.summary}, each period ({values:,} noisy values), filtered by {by}"
        deviation = f"{float(self.terms.noise.sigma):.6g} on the integer lattice"
        yield "noise", f"rounded Gaussian of one law, deviation {deviation}"
        yield "price", f"{event_price_text(self.price)}, debited as a whole before the first period"
        last, single = self.at(), self.at("increments").mean_error
        worst = float(self.curve().max())
        yield (
            "error",
            (
                f"totals: rmse {self.rmse:,.5g} over all periods, {worst:,.5g} in the worst, largest "
                f"standard error {last.max_standard_error:,.5g} in the last; one period: {single:,.5g}"
            ),
        )
        if self.periods.asked != "totals":
            mean, top = self.asked_mean, float(self.asked_curve.max())
            yield "", f"{self.periods.asked}: rmse {mean:,.5g} over all periods, {top:,.5g} in the worst"
        yield "best", self._best()
        yield (
            "tree",
            f"totals of a binary tree would err {self.tree_error / worst:.3g} times as much in the worst period",
        )
        cut = "of more, that many are counted" if self.terms.cuts(self.unit) else "of more, values could wrap around"
        cut = "a period of more is refused" if self.unit.total_is_public else cut
        yield "arithmetic", f"exact integers; up to {self.terms.most:,} records in a cell of one period, {cut}"
        yield "", f"  what they round adds {self.rounding:.2g} of the noise"
        people = ", and 32 for every person who was counted" if self.terms.enforced else ""
        yield "secret", f"a state of {self.state_bytes:,} bytes between periods{people}, as secret as the tables"
        yield from (("note", n) for n in self.notes)

    def _best(self) -> str:
        if self.bound is None:
            return (
                "no bound is known for this relation, number of periods per person, or what is asked of so many periods"
            )
        if self.worst_bound is not None:
            return (
                f"no unbiased answers with Gaussian noise err less than {self.worst_bound:,.5g} in the worst period: "
                f"these err {float(self.asked_curve.max()) / self.worst_bound:.4g} times that"
            )
        return (
            f"no unbiased answers with Gaussian noise err less than {self.bound:,.5g}: the mean is "
            f"{self.asked_mean / self.bound:.4g} times that, the worst "
            f"{float(self.asked_curve.max()) / self.bound:.4g} times"
        )

    def brief(self) -> str:
        return f"{self.mechanism}: {len(self.workload):,} queries in each of {self.periods.count:,} periods"


def cumulative_period_weights(weights: FloatArray) -> FloatArray:
    """(m,) how often what happens first in a period counts, if it goes on and periods weigh so."""
    return np.cumsum(weights[::-1])[::-1]


def _rmse(plan: Plan) -> float:
    return plan.rmse or plan.mean_error


def _families_match(strategy: Residuals, terms: StreamTerms) -> bool:
    """Whether the families of a strategy are those of the terms, number by number."""
    blocks = [b.lowered() for b in strategy.blocks]
    pairs = list(zip(blocks, terms.families, strict=False))
    return len(blocks) == len(terms.families) and all(
        a.names == b.names
        and a.factors == b.factors
        and np.array_equal(a.sets, b.sets)
        and np.array_equal(np.asarray(a.multiples), np.asarray(b.multiples))
        for a, b in pairs
    )
