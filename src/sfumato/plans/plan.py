"""A plan: every decision before the data, with the error it will have and how far that is from the best."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from sfumato._util.codec import deferred_field, storable
from sfumato._util.description import Description
from sfumato._util.frames import Frame
from sfumato.domain import Measure
from sfumato.errors import PlanError, SfumatoError
from sfumato.operators.base import FloatArray
from sfumato.plans.explain import chart_errors, plan_lines, predicted_errors, table_plan_facts
from sfumato.plans.labels import LabelsFound
from sfumato.plans.matrices import Matrices, error_quantile, strategy_matrices
from sfumato.plans.planned import WorkloadPlan
from sfumato.plans.predictions import (
    Alone,
    ErrorEntry,
    Question,
    answer_item,
    check_confidence,
    compare_with_alone,
    expand_entries,
    interval_margins,
    order_errors_frame,
    question_covariance,
    table_covariance_frame,
    table_errors_frame,
    widest_margins,
    worst_bias,
)
from sfumato.plans.predictions import simultaneous_confidence as together
from sfumato.postprocess.width import Forecast
from sfumato.privacy.accounting import Event, GaussianEvent, event_price
from sfumato.privacy.amounts import Currency
from sfumato.privacy.budget import Budget, price_keeps_budget
from sfumato.privacy.labels import are_rounds_whole
from sfumato.privacy.noise import DiscreteLaplace, NoiseLaw
from sfumato.privacy.sensitivity import Sensitivity, noise_fits_price, sensitivity_power
from sfumato.privacy.unit import PrivacyUnit
from sfumato.strategies.any_noise import least_error_alone, least_error_at_price
from sfumato.strategies.calibration import calibrate, share_for_tables
from sfumato.strategies.design import Candidate, Design, Problem, read_objective
from sfumato.strategies.strategy import KnownGroups, Strategy
from sfumato.workloads import RECORDS, QueryBlock, QueryFamily, Workload

_REHEARSED = (
    2**22
)  # values and answers, gone through in tenths of a second; of more, structured maps alone are measured
_SHAPED = 4_096  # answers whose intervals are: each may cost a row of the reconstruction
_MOST_LAW = 2_048  # queries whose covariance is decomposed: some seconds
_MAX_ERRORS = 200_000_000  # an array of 1.6 GB


@storable
@dataclass(frozen=True, eq=False, repr=False)
class Plan(WorkloadPlan):
    """What will be measured, with which noise, at what price, and the errors that follow. It holds nothing private.

    `sf.plan` makes plans. Where the release will be projected (`body`), `entries` and standard errors are those before
    the projection.

    Args:
        workload: The queries.
        budget: The budget that the release keeps.
        unit: Whose privacy is protected.
        mechanism: The name of the mechanism.
        objective: What is minimised: "tables", "cells" or "max".
        strategy: What is measured, in integers, and how answers are read off it.
        noise: The law of the noise.
        price: What a ledger is charged.
        sensitivity: By how much one person can change the measured values.
        bound: A proved lower bound on `objective_value`, or None.
        records: The public number of records that was given, or None.
        notes: Remarks that are printed with the plan.
        considered: The mechanisms that were considered.
        body: The body onto which the release will be projected, or None.
        forecast: What is known before data of the projected answers, or None.
        alone: For parts that are measured apart: the error that each would have with the whole budget.
        cut: The multiple at which the number of persons with more rows than are counted is measured; 0 where it is not
            measured.
        found: Where labels of the domain were found by an earlier look: what both looks were paid for, or None.

    Raises:
        PlanError: The objective is none of these.

    >>> made = sf.plan(sf.identity(sf.Domain({"age": 4})), sf.gdp(1), neighbours="add-remove")
    >>> made.mechanism, made.price
    ('gaussian', GaussianEvent(mu_squared=Fraction(1, 1)))
    >>> made.standard_errors().round(6)
    array([1., 1., 1., 1.])
    """

    workload: Workload
    budget: Budget
    unit: PrivacyUnit
    mechanism: str
    objective: str
    strategy: Strategy
    noise: NoiseLaw
    price: Event
    sensitivity: Sensitivity
    bound: float | None = None
    records: int | None = None
    notes: tuple[str, ...] = ()
    considered: tuple[Candidate, ...] = field(default=())
    body: str | None = None
    forecast: Forecast | None = None
    alone: tuple[Alone, ...] = deferred_field(())
    cut: int = deferred_field(0)
    found: LabelsFound | None = deferred_field(None)  # noqa: RUF009  (as dataclasses.field is)

    def __post_init__(self) -> None:
        object.__setattr__(self, "objective", read_objective(self.objective))

    # -- predicted errors --------------------------------------------------------------------------

    @functools.cached_property
    def entries(self) -> tuple[ErrorEntry, ...]:
        """The sums of squares of the reconstruction's rows, from which every error follows.

        They are per family of tables where every table has one, else per block.
        """
        out: list[ErrorEntry] = []
        # tables that were listed for a search are taken from there; of all other workloads too many might be listed
        listed, start = vars(self.workload).get("blocks"), 0
        for item in self.workload.items:
            here = slice(start, start := start + len(item.rows_each))
            if isinstance(item, QueryFamily):
                powers = self.strategy.family_powers(item.family, 2)
                if powers is not None:
                    out.append(ErrorEntry(item, powers))
                    continue
            blocks = self._blocks(item) if listed is None else listed[here]
            out += [ErrorEntry.of(self.strategy, q) for q in blocks]
        return tuple(out)

    def annotated(self, **changes: Any) -> Plan:
        """The same with other notes, candidates or another bound; the errors that are known already are kept.

        Args:
            **changes: Fields that say something of the plan: `bound`, `notes`, `considered` and `alone`.

        Returns:
            The plan.
        """
        made = replace(self, **changes)
        # of millions of queries they take as long as a search
        if "entries" in vars(self):
            vars(made)["entries"] = self.entries
        return made

    def _blocks(self, item: QueryBlock | QueryFamily) -> tuple[QueryBlock, ...]:
        return Workload(self.workload.domain, (item,)).blocks

    @functools.cached_property
    def rmse(self) -> float | None:
        """The root mean squared error over all queries alike, in their unit; None where they have several units.

        For biased answers it is a bound: the error of the noise and of the bias, if all records are in the worst cell.
        For answers that will be projected it is the least bound that is proved (`forecast`). For answers that will be
        denoised nothing is proved; it is then the error of the measured pairs before.
        """
        if len(self.workload.units) > 1:
            return None
        if self.forecast is not None:
            return self.forecast.rmse
        rows = len(self.workload)
        mean = sum(e.sum() for e in self.entries) / rows
        return math.sqrt(mean * self.noise.variance + worst_bias(self.entries) / rows)

    @functools.cached_property
    def bias_rmse(self) -> float:
        """A bound on the root mean squared bias of all queries alike; 0 where answers are unbiased."""
        return math.sqrt(worst_bias(self.entries) / len(self.workload))

    @functools.cached_property
    def mean_error(self) -> float:
        """The root of the mean variance, with the weights of the objective.

        Parts, their tables and their queries count alike, or all queries do. Its unit is that of the answers; where
        they have several, records, with sums in their largest coefficient. A plan for the largest error minimises no
        mean; its tables count alike here. For answers that will be projected or denoised it is that of `forecast`.
        """
        if self.forecast is not None:
            return self.forecast.rmse
        return self.error_in(self._averaged)

    @property
    def bias_records(self) -> int | None:
        """The number of records up to which biases are bounded; None where answers are unbiased but for rounding."""
        return self.strategy.records

    def bias_bounds(self, part: str | None = None) -> FloatArray:
        """Bounds on the bias that answers have on purpose, for tables of at most `bias_records` records.

        Args:
            part: The name of a part; all queries, unless given.

        Returns:
            (k,) bounds in the unit of each query, 0 for unbiased answers.

        Raises:
            PlanError: There is no such part, or there are more than 200 million queries.
        """
        return np.concatenate(
            [e.expand(np.zeros_like(e.powers) if e.bias is None else e.bias) for e in self._listed(part)]
        )

    @functools.cached_property
    def max_standard_error(self) -> float:
        """The largest standard error of a query, of those that count records where there are any.

        Queries that are answered by denoising alone have no standard error, and are left out.
        """
        largest = [float(e.powers.max()) for e in self.entries if e.item.unit == self.main_unit]
        known = [x for x in largest if math.isfinite(x)]
        return math.sqrt(max(known, default=math.inf) * self.noise.variance)

    def standard_errors(self, part: str | None = None) -> FloatArray:
        """Predicted standard errors of the answers, before a projection.

        Args:
            part: The name of a part; all queries, unless given.

        Returns:
            (k,) standard errors in the unit of each query, in order.

        Raises:
            PlanError: There is no such part, or there are more than 200 million queries.
        """
        listed = self._listed(part)
        return expand_entries(listed, (np.sqrt(e.powers * self.noise.variance) for e in listed))

    def level(self, confidence: float, *, simultaneous: bool, count: int) -> float:
        """The confidence of each interval such that `count` intervals have a confidence each, or together.

        Args:
            confidence: A probability strictly between 0 and 1.
            simultaneous: Whether all intervals hold together with `confidence`; otherwise each one does.
            count: The number of intervals.

        Returns:
            The confidence itself, or the larger one that each interval needs for all to hold together.

        Raises:
            PlanError: The confidence is no such probability, or there are more than 10^10 intervals to hold together.

        Guarantee:
            Intervals hold together by Šidák's inequality where noise is Gaussian and answers are unbiased, and by the
            union bound otherwise.
        """
        level = check_confidence(confidence)
        return together(level, count, self.noise, biased=self.bias_records is not None) if simultaneous else level

    def half_widths(
        self, confidence: float = 0.95, part: str | None = None, *, simultaneous: bool = False
    ) -> FloatArray:
        """Half-widths of the intervals that the release will have.

        Args:
            confidence: The probability, strictly between 0 and 1, with which an interval holds.
            part: The name of a part; all queries, unless given.
            simultaneous: Whether all intervals hold together with that confidence; otherwise each one does.

        Returns:
            (k,) half-widths in the unit of each query, in order. With `simultaneous` no answer is off by more than the
            largest, except with probability 1 - confidence.

        Raises:
            PlanError: There is no such part, the confidence is no such probability, or there are more than 200 million
                queries.
        """
        listed = self._listed(part)
        level = self.level(confidence, simultaneous=simultaneous, count=sum(e.item.rows for e in listed))
        return expand_entries(listed, (self.margins(e, level) for e in listed))

    def _listed(self, part: str | None) -> list[ErrorEntry]:
        chosen = [e for e in self.entries if part in (None, e.item.part)]
        if not chosen:
            raise PlanError(f"no part is called {part!r}; there are {', '.join(self.workload.parts)}")
        if sum(e.item.rows for e in chosen) > _MAX_ERRORS:
            raise PlanError("too many queries to list; take plan.errors(), one line per table")
        return chosen

    @functools.cached_property
    def objective_value(self) -> float:
        """The error that was minimised: the root of the weighted mean variance, or of the largest weighted variance.

        Weights are those of the objective times those of the workload. It equals `rmse` where all queries weigh alike,
        as those of one table do, and `max_standard_error` under "max" where no query has a weight. `lower_bound` bounds
        it.
        """
        if self.forecast is not None and not self.forecast.proved:
            return self.forecast.rmse
        return self.error_in(self._problem(self.objective))

    def error_in(self, problem: Problem) -> float:
        """The error by the weights of a problem: root of the weighted mean variance, or of the largest; bias counts.

        Args:
            problem: Whose weights are taken.

        Returns:
            The error, in the unit of the objective.
        """
        total = self.weighted_squares(problem) * self.noise.variance
        if problem.largest:
            return math.sqrt(total)
        biased = [e for e in self.entries if e.off is not None]
        total += worst_bias(biased, [float(problem.table_weights(e.item)[0]) for e in biased])
        return math.sqrt(total / problem.total_weight)

    @property
    def joint_error(self) -> float:
        """What is compared with the same of plans of other workloads: the largest weighted variance, or the sum over
        parts of their weighted mean variance ("tables") or over queries, where sums count in their largest coefficient.
        """
        problem = self._problem(self.objective)
        if problem.largest:
            return self.objective_value**2
        return self.objective_value**2 * problem.total_weight * problem.joint_weight

    def weighted_squares(self, problem: Problem) -> float:
        """The weighted sum of the squared rows of the reconstruction, or the largest of them.

        Args:
            problem: Whose weights are taken, and whether the largest counts.

        Returns:
            The sum at unit variance of the noise.
        """
        weighted = [(problem.table_weights(e.item), e) for e in self.entries]
        if problem.largest:
            return max(float((w * e.by_table()[1]).max()) for w, e in weighted)
        return sum(e.weighted(w) for w, e in weighted)

    @functools.cached_property
    def _averaged(self) -> Problem:
        """By whose weights errors are averaged: a plan for the largest error counts its tables alike."""
        return self._problem("tables" if self.objective == "max" else self.objective)

    def _problem(self, objective: str) -> Problem:
        return Problem(self.workload, self.budget, self.unit, "gaussian", objective, known=self.strategy.known)

    @property
    def lower_bound(self) -> float | None:
        """A proved bound on `objective_value` for Gaussian noise, or None where none is known.

        No unbiased linear reconstruction from additive Gaussian noise of any covariance does better at this budget.
        Where the number of persons with more rows than are counted is measured, the bound is for what that leaves of
        the budget. There is none for Laplace noise, for a coarse lattice, or for answers biased on purpose. Noise of
        other laws may err less: `any_noise_bound` is for all of them.
        """
        return self.bound

    @property
    def any_noise_bound(self) -> float | None:
        """A proved bound on `objective_value` for noise of any law at this plan's price, or None where none is known.

        It is `lower_bound` times mu / sqrt(sinh(mu^2)): of a promise of mu-GDP or mu^2/2-zCDP follows that unbiased
        answers with the covariance C move by differences d with d dᵀ <= sinh(mu^2) C from a table to its neighbours, so
        sinh(mu^2) C is a covariance of Gaussian noise that keeps mu = 1, of which `lower_bound` knows the best [NT24].
        It holds for noise of one law on all tables, and for any noise on every table with a record in each cell. What
        costs a ledger more, or is paid by none, may err less: see `any_noise_bound_alone`.

        >>> made = sf.plan(sf.total(sf.Domain({"age": 4})), sf.approx(1, "1e-6"), neighbours="add-remove")
        >>> round(made.lower_bound, 4), round(made.any_noise_bound, 4)
        (4.2247, 4.2236)
        """
        if self._unit_bound is None or not isinstance(self.price, GaussianEvent):
            return None
        return self._unit_bound * least_error_at_price(float(self.price.mu_squared)) or None

    @property
    def any_noise_bound_alone(self) -> float | None:
        """A proved bound on `objective_value` for noise of any law under (epsilon, delta), whatever a ledger takes.

        For noise of one law on all tables; where records are added, also for the largest error over all tables of
        answers that are unbiased on all. None for other budgets, whose price is their promise: see `any_noise_bound`.

        >>> made = sf.plan(sf.total(sf.Domain({"age": 4})), sf.approx(1, "1e-6"), neighbours="add-remove")
        >>> round(made.any_noise_bound_alone, 4)
        1.3569
        """
        if self._unit_bound is None or self.budget.kind != "approx" or self.budget.delta is None:
            return None
        return self._unit_bound * least_error_alone(float(self.budget.parameter), float(self.budget.delta)) or None

    @functools.cached_property
    def _unit_bound(self) -> float | None:
        """`lower_bound` at mu = 1, all of it for tables; None where not every neighbour is answered without bias."""
        if self.bound is None or self.strategy.known or not isinstance(self.price, GaussianEvent):
            return None
        whole = float(self.price.mu_squared) * float(share_for_tables(self.unit, 2) if self.cut else 1)
        return self.bound * math.sqrt(whole)

    def margins(self, entry: ErrorEntry, confidence: float) -> FloatArray:
        """Half-widths of the intervals of one table or block, each of which holds by itself.

        Args:
            entry: One of the plan's `entries`.
            confidence: The probability, strictly between 0 and 1, with which each interval holds.

        Returns:
            Half-widths, compact as the powers of the entry.
        """
        if entry.mean is not None:
            return widest_margins(confidence, entry.powers, self.noise)
        return interval_margins(confidence, entry.powers, self.fourth_powers(entry.item), self.noise, entry.bias)

    def fourth_powers(self, item: QueryBlock | QueryFamily) -> FloatArray | None:
        """The sums of fourth powers of the reconstruction's rows, by which the shape of Laplace noise matters.

        Args:
            item: A block or a family of queries of the workload.

        Returns:
            The sums, compact as its squares, or None where the noise is Gaussian and squares are enough.
        """
        if not isinstance(self.noise, DiscreteLaplace):
            return None
        if isinstance(item, QueryFamily):
            return self.strategy.family_powers(item.family, 4)
        return self.strategy.row_powers(item.block, 4)

    def rmse_quantile(self, confidence: float = 0.95) -> float:
        """What the root mean squared error over all queries of one release is below, with that confidence.

        With the probability beta of [Nikolov] after definition 3, that is 1 - confidence, the average error is larger.
        A projection in the plain norm leaves it true.

        Args:
            confidence: A probability from 1/2 to below 1.

        Returns:
            The quantile, in the unit of the answers, as if the noise, which lies on a lattice, were normal.

        Raises:
            PlanError: The confidence is no such probability; the noise is not Gaussian; answers are biased on purpose
                or have several units; or there are more than 2,048 queries.
            NotAnswerable: Some queries are answered by denoising alone.

        Source:
            [Nikolov]

        >>> made = sf.plan(sf.identity(sf.Domain({"age": 4})), sf.gdp(1), neighbours="add-remove")
        >>> round(made.rmse, 4), round(made.rmse_quantile(0.95), 4)
        (1.0, 1.5401)
        """
        level, count = check_confidence(confidence), len(self.workload)
        gaussian = not isinstance(self.noise, DiscreteLaplace) and self.bias_records is None
        if level < 0.5 or not gaussian or len(self.workload.units) > 1 or count > _MOST_LAW:
            raise PlanError(
                "rmse_quantile is for a confidence of at least 1/2, Gaussian noise without bias, answers of one unit "
                f"and up to {_MOST_LAW:,} queries; asked: {confidence!r} for {count:,} queries of {self.mechanism!r}. "
                "sf.simulate draws the errors of any plan"
            )
        return error_quantile(self.covariance(self.workload), level)

    def matrices(self) -> Matrices:
        """M and R of the notes: what is measured, and how answers are made of it, R M = F + offset 1ᵀ.

        For biased answers R M is only near that. Cells are those of the attributes that are asked about, in C order.

        Returns:
            `measurement` M (l, m), in whole numbers without a common divisor; `reconstruction` R (k, l); and `offset`
            (k,), zero unless the number of records is public.

        Raises:
            PlanError: There are more than 2,048 measured rows or cells, more than 2^22 numbers in a matrix, or public
                tables besides.

        Source:
            [SmithUllman]

        >>> cdf = sf.prefix(sf.Domain({"age": 4}), "age")
        >>> M, R, offset = sf.plan(cdf, sf.gdp(1), neighbours="add-remove", strategy="tree").matrices()
        >>> M[:3].tolist(), np.allclose(R @ M, np.tri(4)), offset.tolist()
        ([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1]], True, [0.0, 0.0, 0.0, 0.0])
        """
        return strategy_matrices(self.strategy, self.workload, total_known=self.unit.total_is_public)

    def errors(self, confidence: float = 0.95, *, simultaneous: bool = False) -> Frame:
        """Predicted errors, table by table, before a projection.

        Args:
            confidence: The probability, strictly between 0 and 1, of the margins.
            simultaneous: Whether all answers to the workload are within their margins together with that confidence;
                otherwise each one is.

        Returns:
            One row per table or family of queries: cells, rmse, worst standard error, margin.

        Raises:
            PlanError: The confidence is no such probability.
        """
        margins_of = self.entry_margins(confidence, simultaneous=simultaneous)
        return table_errors_frame(self.workload.domain, self.entries, self.noise, margins_of)

    def errors_by_order(self, confidence: float = 0.95, *, simultaneous: bool = False) -> Frame:
        """Predicted errors by part and number of attributes, before a projection.

        Args:
            confidence: The probability, strictly between 0 and 1, of the margins.
            simultaneous: Whether all answers to the workload are within their margins together with that confidence;
                otherwise each one is.

        Returns:
            One row per part and number of attributes: how many tables and queries, rmse, worst error and margin. The
            rmse is over tables alike, or over cells alike where that is the objective. `error_share` is the line's
            part of the weighted squared error; of parts that are measured apart also that of the budget. `alone` is the
            rmse that the line's tables would have with the whole budget, and `ratio` how many times that the plan has.

        Raises:
            PlanError: The confidence is no such probability.
        """
        weights = [self._averaged.table_weights(e.item) for e in self.entries]
        table = order_errors_frame(
            self.entries, self.noise, self.entry_margins(confidence, simultaneous=simultaneous), weights
        )
        return compare_with_alone(table, self.alone) if self.alone else table

    @functools.cached_property
    def default_errors(self) -> Frame:
        """What `errors_by_order()` gives; a plan and its release describe themselves by it more than once."""
        return self.errors_by_order()

    def error_tables(self) -> dict[str, Frame]:
        return {"orders": self.default_errors, "families": self.errors()}

    def entry_margins(self, confidence: float, *, simultaneous: bool = False) -> list[FloatArray]:
        """Half-widths of the intervals of every entry.

        Args:
            confidence: A probability strictly between 0 and 1.
            simultaneous: Whether all intervals hold together with that confidence; otherwise each one does.

        Returns:
            One array per entry, compact as its powers.

        Raises:
            PlanError: The confidence is no such probability.
        """
        level = self.level(confidence, simultaneous=simultaneous, count=len(self.workload))
        return [self.margins(e, level) for e in self.entries]

    def smallest_count(self, cv: float = 0.2) -> Frame:
        """The smallest count in each table whose standard error is a small share of it.

        Args:
            cv: The largest coefficient of variation: the standard error over the count.

        Returns:
            One row per table: its part, its attributes and the count, which is None for sums in other units.

        Raises:
            PlanError: `cv` is not a positive number.
        """
        if isinstance(cv, bool) or not isinstance(cv, (int, float)) or not 0 < cv < math.inf:
            raise PlanError(f"cv must be a positive share such as 0.2, not {cv!r}")
        table = self.errors()
        errors = zip(table["worst_standard_error"], table["unit"], strict=True)
        counts = [math.ceil(e / cv) if unit == RECORDS and math.isfinite(e) else None for e, unit in errors]
        return Frame({"part": table["part"], "attributes": table["attributes"], "smallest_count": counts})

    def covariance(self, first: Question, second: Question | None = None) -> FloatArray:
        """Exact covariances of the answers to two questions, or of those to one.

        Args:
            first: A tuple of attribute names, for the cells of that table; a predicate; or a workload.
            second: The same; `first`, unless given.

        Returns:
            (answers to first, answers to second) covariances.

        Raises:
            NotAnswerable: A question is about more than will be measured.
            PlanError: There are too many answers, or a question is none or over another domain.
            WorkloadError: A predicate cannot be read.
        """
        return question_covariance(self.strategy, self.workload.domain, first, second, self.noise.variance)

    def table_covariances(self, first: Sequence[str], second: Sequence[str]) -> Frame:
        """Covariances of the cells of two tables, however large.

        Args:
            first: The attributes of one table.
            second: The attributes of the other.

        Returns:
            One row per pattern of common attributes on which two cells agree.

        Raises:
            PlanError: Covariances depend on more than that agreement, as with tilted residuals.
            NotAnswerable: A table will not be measured.
        """
        return table_covariance_frame(self.strategy, self.workload.domain, first, second, self.noise.variance)

    @functools.cached_property
    def bias_bound(self) -> float:
        """The largest bias of an answer per record, from rounding real numbers or on purpose; 0 where there is none."""
        blocks = [e.item for e in self.entries if isinstance(e.item, QueryBlock)]
        return max((self.strategy.bias_bound(q.block) for q in blocks), default=0.0)

    @functools.cached_property
    def rounding(self) -> float:
        """By how much of its standard error rounding may move an answer, per record; 0 where no measure is summed.

        Numbers are put on 2^30 equal steps of their range, and what a record adds is in whole parts of 2^24 of it. So a
        sum of n numbers is off by up to n times 3.0e-8 of the range, besides the noise. This is the largest over all
        queries, whatever the numbers are: times the number of records it is how many standard errors no answer is
        moved beyond. Intervals are those of the noise.
        """
        measures = {m: cast(Measure, self.workload.domain[m]) for m in self.workload.domain.measures}
        most = 0.0
        for e in self.entries if self.workload.measures else ():
            if isinstance(e.item, QueryBlock):
                errors = np.sqrt(e.powers * self.noise.variance)
                off = np.broadcast_to(self.strategy.rounding(e.item.block, measures), errors.shape)
                most = max(most, float(np.divide(off, errors, out=np.zeros_like(errors), where=errors > 0).max()))
        return most

    @functools.cached_property
    def record_limit(self) -> int:
        """The largest number of records for which the integer arithmetic cannot wrap."""
        spread = math.ceil(64 * math.sqrt(self.noise.variance))
        return max(0, (2**62 - spread) // max(1, self.strategy.max_abs))

    def rehearse(self) -> None:
        """Reconstruct from zeros all that the release will, so that nothing known now fails after the debit.

        Raises:
            PlanError: Some answer cannot be given.
        """
        rows = [b.rows for b in self.strategy.blocks]
        if sum(rows) + len(self.workload) > _REHEARSED:
            return
        values = [np.zeros(r, dtype=np.int64) for r in rows]
        try:
            found = self.strategy.estimate(values, 0 if self.unit.total_is_public else None)
            for item in self.workload.items:
                if item.rows and self.body != "mixtures":
                    answer_item(self.strategy, found, item, np.empty(item.rows))
            if len(self.workload) <= _SHAPED:
                for entry in self.entries:
                    self.margins(entry, 0.95)
            _ = self.rounding  # which reports say
        except (SfumatoError, ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
            raise PlanError(f"what would be measured cannot be read back: {error}") from error

    # -- what makes it a plan -----------------------------------------------------------------------------

    decides = ("workload", "budget", "unit", "mechanism", "strategy", "noise", "price", "body", "cut", "found")
    holds = WorkloadPlan.holds | {
        "strategy": Strategy,
        "noise": NoiseLaw,
        "sensitivity": Sensitivity,
        "objective": str,
        "bound": float | int | None,
        "body": str | None,
        "forecast": Forecast | None,
        "cut": int,
        "found": LabelsFound | None,
    }

    @property
    def whole_price(self) -> Event:
        return self.price if self.found is None else self.found.price

    @property
    def paid_plan(self) -> str:
        return self.fingerprint if self.found is None else self.found.plan

    @property
    def honest(self) -> bool:
        return super().honest and price_keeps_budget(self.whole_price, self.budget)

    def check(self) -> None:
        super().check()
        within = self.unit.within
        for known in (k for k in self.strategy.known if isinstance(k, KnownGroups)):
            if within is None or not np.array_equal(known.codes, np.asarray(within.codes)):
                raise PlanError("totals are public of groups in which records do not stay: it is damaged, plan again")
        _ = self.rmse, self.max_standard_error, self.strategy.blocks
        self.rehearse()

    def agree(self) -> None:
        super().agree()
        if self.sensitivity.power != sensitivity_power(self.noise) or not noise_fits_price(
            self.sensitivity, self.noise, self.price
        ):
            raise PlanError("its noise costs more, at the sensitivity that it states, than its price")
        if self.found is not None and (
            event_price(self.price, Currency.MU_SQUARED) > self.found.left
            or not all(k.selection.costs_at_most(self.unit, k.price) for k in self.found.looks)
            or not are_rounds_whole(self.found.looks)
        ):
            raise PlanError("its two looks cost more than was paid for both")

    @property
    def measures(self) -> tuple[str, Strategy]:
        return "Strategy", self.strategy

    def own_facts(self) -> dict[str, dict[str, Any]]:
        return table_plan_facts(self)

    def describe(self) -> Description:
        return self._described("", plan_lines(self), predicted_errors(self))

    def plot(self) -> Any:
        """An Altair chart of the predicted error of every table (extra: plots).

        Returns:
            The chart.

        Raises:
            MissingExtra: Altair is not installed.
        """
        return chart_errors(self.errors())

    def brief(self) -> str:
        return f"{self.mechanism}: {len(self.workload):,} queries, error {self.mean_error:.4g}"


def bound_at_budget(problem: Problem, bound: float) -> float:
    """A bound on the root of the summed weighted variances at noise multiplier 1, as one on `objective_value`.

    At what the count of those who had more rows than are counted leaves of the budget.
    """
    weights = 1.0 if problem.largest else problem.total_weight
    # sensitivity at c rows a person is c times as large, for every strategy alike; where they are counted once per
    # group, the bound is of all of them
    multiplier = (1 if problem.unit.once_per else problem.unit.rows_per_person) / math.sqrt(
        float(problem.budget.mu_squared * share_for_tables(problem.unit, 2))
    )
    return bound * multiplier / math.sqrt(weights) * (1 - 1e-12)


def price_design(design: Design, problem: Problem) -> Plan:
    """Scale a design to the budget and predict its errors."""
    done = calibrate(
        design.build,
        design.fine,
        problem.sizes,
        problem.unit,
        problem.budget,
        problem.noise,
        unit_lattice=problem.unit_lattice,
        measures=problem.measures,
    )
    proved = design.bound is not None and problem.noise == "gaussian" and not problem.unit_lattice
    # what designs prove and say of bounds is of rows that may lie anywhere, unless they say otherwise
    own = design.grouped == bool(problem.unit.once_per)
    proved = proved and own
    bound = bound_at_budget(problem, design.bound) if proved and design.bound is not None else None
    return Plan(
        problem.workload,
        problem.budget,
        problem.unit,
        design.mechanism,
        problem.objective,
        done.strategy,
        done.noise,
        done.price,
        done.sensitivity,
        bound,
        problem.records,
        design.notes if own else (),
        cut=done.cut,
    )
