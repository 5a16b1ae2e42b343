"""Marginal tables period after period: residuals of the tables, each filtered over time, noise of one law."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np

from sfumato.errors import BudgetError, InvalidInput, PlanError
from sfumato.mechanisms.registry import STREAMS, Mechanism, Request, check_whole_option
from sfumato.mechanisms.tables import make_problem
from sfumato.operators.base import FloatArray
from sfumato.plans.streams import StreamPlan
from sfumato.privacy.accounting import Event, GaussianEvent
from sfumato.privacy.amounts import Currency
from sfumato.privacy.noise import RoundedGaussian
from sfumato.privacy.replaced import Certificate
from sfumato.privacy.stream_price import MOST_COUNT, IntegerFilter, StreamTerms, WindowFilter
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies import residual_planning
from sfumato.strategies.calibration import noise_of, spend_in
from sfumato.strategies.certificates import find_certificate
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.participation_bounds import participation_bound
from sfumato.strategies.participation_shapes import lowered_filter, suits_totals
from sfumato.strategies.periods import Periods
from sfumato.strategies.residuals import Residuals
from sfumato.strategies.time_errors import errors_of_filter
from sfumato.strategies.time_shapes import (
    DENSE,
    band_width_for,
    banded_filter,
    binary_tree_filter,
    dense_filter,
    mean_bound,
    quantise_time_shape,
    shape_for,
)
from sfumato.workloads import QueryBlock, QueryFamily

_GRAIN = (
    20  # bits of the largest multiple: rounding moves the split of the budget by less than 2^-12 for shares of 2^-8
)
_MOST_BITS = 30  # of counts in one cell and period unless `most` says so: a thousand million records
_LEAST_BITS = 10  # where even a thousand records find no room the integers are too coarse to be of use
_ROOM = 64  # standard deviations of noise above which no value is thought of
_MOST_MEMORY = 2**28  # bytes of past counts: as much as a million cells of the widest buffers, two files of them
# square of the least deviation, a quarter of a step: below it rounded noise is 0 but once in twenty draws, and soon its
# variance is 0 in doubles, of which no plan can be made
_LEAST_SQUARED = Fraction(1, 16)
_FINE = 2**10  # deviations are near 2^20: rounded up to as many parts of 1 they cost nothing
_TABLES = (
    100  # how many times as much tables cost as the cell that counts who is left out: errors grow by half a percent
)
_LEAST_TOTAL = 2**12  # multiple of a total with a filter of its own: answers round another to whole numbers, 1e-4 off
_WORTH = 1.005  # how many times as much one filter for all must err: below, a second one is not worth its words
_UNIT = RoundedGaussian(Fraction(1))  # stands in until the noise is known


def _banded_for_periods(given: Periods) -> WindowFilter:
    width = band_width_for(given)
    if width is None:
        raise PlanError(
            "strategy='banded' is for sums of the last periods, ask='last 12', and for people in several periods that "
            "are apart; leave it out"
        )
    return banded_filter(given, width)


def _dense(given: Periods) -> WindowFilter:
    if given.per_person == 1:
        return dense_filter(given)
    if not suits_totals(given):
        raise PlanError(
            f"strategy='dense' keeps a count for every period: for people in several it is for up to {DENSE} periods, "
            "where theirs are at least two apart and no ranges are asked"
        )
    return lowered_filter(given)


_LISTED: dict[str, Callable[[Periods], WindowFilter]] = {
    "banded": _banded_for_periods,
    "tree": binary_tree_filter,
    "dense": _dense,
}


@dataclass(frozen=True, repr=False, kw_only=True)
class Continual(Mechanism[StreamPlan]):
    """Residuals of marginal tables in every period, filtered over time in integers, with Gaussian noise.

    Args:
        most: The most records of one cell and period that are counted; None takes up to 2^30.
        strategy: The strategy over time: "buffers" (a few decaying sums a cell), "banded" (the last counts of a cell,
            which suits "last 12" and people in several periods that are apart), or, for few periods with one count
            each, "tree" as it is taught and "dense": for people in one of up to 1,024 periods the best of all in the
            mean, for people in several of up to 384 a band that suits totals without tables. None takes the better of
            "buffers" and, where memory allows, "banded", or "dense" where the total alone is asked of such people; a
            total beside tables has "dense" for itself where both together err less.

    Raises:
        PlanError: An option is not allowed.
    """

    most: int | None = None
    strategy: str | None = None

    name: ClassVar[str] = "continual"
    serves: ClassVar[tuple[str, ...]] = (STREAMS,)
    takes: ClassVar[tuple[str, ...]] = ("objective", "records", "periods")
    grouped: ClassVar[bool] = True
    unknown: ClassVar[str] = "its errors are those of many periods; plan, and look at plan.errors()"
    unscaled: ClassVar[str] = "its errors are those of many periods; plan, and look at plan.errors()"

    def __post_init__(self) -> None:
        check_whole_option("most", self.most, 1, MOST_COUNT)
        if self.strategy is not None and self.strategy not in ("buffers", *_LISTED):
            raise PlanError(f"strategy is 'buffers', {', '.join(map(repr, _LISTED))}, not {self.strategy!r}")

    def plan(self, asked: Request) -> StreamPlan:
        try:
            price = spend_in(asked.budget, Currency.MU_SQUARED)
        except BudgetError as error:
            raise PlanError(
                "a stream has Gaussian noise, which no pure epsilon allows: plan with sf.approx, sf.zcdp or sf.gdp, or "
                "release every period by itself under a pure budget of its own"
            ) from error
        assert isinstance(price, GaussianEvent)
        given = asked.periods
        assert given is not None
        if given.per_person > 1 and asked.unit.person is None:
            raise PlanError("per_person above 1 needs person=, the column that says whose record a row is")
        if given.promised and asked.unit.person is None:
            raise PlanError(
                "promised= says who sees to it that a person is in few periods; without person= there is nothing to "
                "see to: leave it out"
            )
        designed = [asked.unit]
        if asked.unit.neighbours is Neighbours.REPLACE_ONE and not asked.unit.total_is_public:
            # one who leaves and one who comes, in periods of their own: tables for either are often the better ones
            designed.append(replace(asked.unit, neighbours=Neighbours.ADD_REMOVE))
        plans = [plan for unit in designed for plan in self._planned(asked, given, price, unit)]
        return min(plans, key=_stream_objective) if len(plans) > 1 else plans[0]

    def _planned(
        self, asked: Request, given: Periods, price: GaussianEvent, designed: PrivacyUnit
    ) -> Iterator[StreamPlan]:
        """With tables that are best for the neighbours of one unit, priced for those that are asked for.

        Of persons whose rows are counted once per group there are several, of which the price tells the best.
        """
        problem = make_problem(replace(asked, unit=designed), "gaussian", "fine", takes_public=False, name=self.name)
        if not all(i.is_marginal for i in asked.what.items):
            raise PlanError("a stream answers marginal tables; ranges and sums of them follow from cells")
        designs = residual_planning.design_residual_marginals(problem)
        bounds = _bounds_at_unit_noise(problem, designs, asked.unit, given)
        enforced, mu = asked.unit.person is not None and not given.promised, math.sqrt(float(price.mu_squared))
        sizes = problem.sizes
        for design in designs:
            fine = design.build(design.fine)
            assert isinstance(fine, Residuals)
            strategy = _coarsen_residuals(fine, design)
            proof = find_certificate(strategy.blocks, sizes, asked.unit, 2)
            tables = _StreamTables(strategy, proof, sizes, asked.unit, price, given, self.most, enforced)
            names = (self.strategy,) if self.strategy is not None else tables.names()
            tried = [(name, tables.priced(name)) for name in names]
            found = sorted(
                ((tables.error(terms) if len(tried) > 1 else 1.0, terms, name) for name, terms in tried),
                key=_line_error,
            )
            terms = found[0][1]
            made = StreamPlan(
                asked.what,
                asked.budget,
                asked.unit,
                self.name,
                problem.objective,
                strategy,
                terms,
                price,
                given,
                None,
                asked.records,
                notes=tuple(
                    f"{name} would err {error / found[0][0]:.4g} times as much" for error, _, name in found[1:]
                ),
            )
            if self.strategy is None and not problem.largest:
                made = _with_own_total(made, tables)
            # at what the count of those who are left out leaves of the budget
            terms = made.terms
            left = math.sqrt(terms.squared_shift(sizes, asked.unit) / terms.tables_shift(sizes, asked.unit))
            mean, worst = (None if bound is None else bound / mu * left * (1 - 1e-12) for bound in bounds)
            yield replace(made, bound=mean, worst_bound=worst)


def _with_own_total(made: StreamPlan, tables: _StreamTables) -> StreamPlan:
    """A plan with a filter of its own for the total, where that errs less.

    What both err adds up, and what both cost: so shares of the price are as the roots of error times cost. In the worst
    period what is gained is .3 percent, which is not looked for.
    """
    given, terms = made.periods, made.terms
    few = int(made.strategy.multiples[0].sum()) < _LEAST_TOTAL or len(terms.families) < 2
    if few or made.unit.neighbours is not Neighbours.ADD_REMOVE or not suits_totals(given) or given.objective != "mean":
        return made
    if made.workload.domain.impossible:  # answers that know of zeros do not err by a sum of what both err
        return made
    try:
        apart = replace(terms, total=lowered_filter(given), cut=0)
        rest, own = (float(part.tables_shift(tables.sizes, made.unit)) for part in apart.parts)
        trial = replace(made, terms=apart)
        mean, total = (over.mean(given.questions) for over in (trial.over_time, trial.total_over_time))
        share = trial.total_share
        weight = math.sqrt(share * total * rest / ((1 - share) * mean * own))
        strategy = _weigh_total(made.strategy, math.sqrt(weight))
        maps = tuple(b.lowered() for b in strategy.blocks)
        found = tables.finished(replace(apart, families=maps), strategy)
    except PlanError:  # no room for its integers, or for the counts of so many periods
        return made
    better = replace(made, strategy=strategy, terms=found)
    ratio = made.objective_value / better.objective_value
    if ratio < _WORTH:
        return made
    note = f"one strategy over time for the total and all else would err {ratio:.4g} times as much"
    return replace(better, notes=(note, *made.notes))


def _weigh_total(strategy: Residuals, scale: float) -> Residuals:
    """Residuals whose total weighs so many times as much, with multiples of at most 2^20."""
    first, *others = strategy.multiples
    down = min(1.0, 2**_GRAIN / (float(first[0]) * scale))
    multiples = (first * scale * down, *(m * down for m in others))
    return replace(strategy, multiples=tuple(np.maximum(np.rint(m), m > 0).astype(np.int64) for m in multiples))


def _bounds_at_unit_noise(
    problem: Problem, designs: Sequence[Design], unit: PrivacyUnit, given: Periods
) -> tuple[float | None, float | None]:
    """Of the mean over all periods and of the worst, at mu 1; None where none is known."""
    proved = [d.bound for d in designs if d.bound is not None and d.grouped == bool(unit.once_per)]
    # what is proved of answers without zeros that are known says nothing of these
    if (
        not proved
        or unit.neighbours is not Neighbours.ADD_REMOVE
        or problem.largest
        or problem.workload.domain.impossible
    ):
        return None, None
    tables = max(proved) * (1 if unit.once_per else unit.rows_per_person)
    if given.per_person == 1:
        time = mean_bound(given.questions, given.count)
        return None if time is None else time * tables / math.sqrt(problem.total_weight), None
    # the tables' total, which no person's rows cancel in: its variance is shared by the cells of each table
    total = unit.rows_per_person * math.sqrt(
        math.fsum(float((problem.table_weights(i) / _cells_of(i)).sum()) for i in problem.workload.items)
    )
    if given.count > DENSE:
        return None, None
    time = participation_bound(given, total / tables)
    pairs = [(time.rest, time.total), (time.worst_rest, time.worst_total)]
    mean, worst = ((r * tables - max(r - t, 0.0) * total) / math.sqrt(problem.total_weight) for r, t in pairs)
    return mean, worst if given.objective == "worst" else None


def _cells_of(item: QueryBlock | QueryFamily) -> FloatArray:
    """(tables,) the number of cells of every table of an item."""
    return np.atleast_1d(np.float64(item.family.rows_each if isinstance(item, QueryFamily) else item.rows))


def _stream_objective(made: StreamPlan) -> float:
    return made.objective_value


def _line_error(line: tuple[float, StreamTerms, str]) -> float:
    return line[0]


@dataclass(frozen=True, eq=False)
class _StreamTables:
    """What is measured in every period, to be filtered by one strategy over time or another."""

    strategy: Residuals
    proof: Certificate | None
    sizes: dict[str, int]
    unit: PrivacyUnit
    price: Event
    given: Periods
    most: int | None
    enforced: bool

    def names(self) -> list[str]:
        """Strategies that may be the best here."""
        # where nothing but the total is measured, which rows only add to: a band is one of these strategies
        alone = all(not b.sets.size for b in self.strategy.blocks)
        if alone and self.unit.neighbours is Neighbours.ADD_REMOVE and suits_totals(self.given):
            return ["buffers", "dense"]
        width = band_width_for(self.given)
        if width is None or 8 * self._cells() * (width - 1) > _MOST_MEMORY:
            return ["buffers"]
        return ["buffers", "banded"]

    def _cells(self) -> int:
        sizes = list(self.sizes.values())
        return sum(math.prod(sizes[a] for a in s) for b in self.strategy.blocks for s in b.sets.tolist())

    def priced(self, name: str) -> StreamTerms:
        """Raises PlanError."""
        if name != "buffers":
            terms = self._terms(_LISTED[name](self.given))
        else:
            # once for what the rounding of a cell counts beside a response, and with integers as fine as that needs
            shape = shape_for(self.given)
            terms = self._terms(quantise_time_shape(shape))
            ratio = self._rounding_ratio(terms)
            terms = terms if ratio <= 1.0 else self._terms(quantise_time_shape(shape, ratio))
        return self.finished(replace(terms, enforced=self.enforced), self.strategy)

    def finished(self, terms: StreamTerms, strategy: Residuals) -> StreamTerms:
        """With the count of those who are left out, and the noise. Raises PlanError."""
        terms = replace(terms, cut=_cut_multiple(terms, self.sizes, self.unit) if self.enforced else 0)
        terms = replace(terms, noise=_least_stream_noise(terms, self.price, self.sizes, self.unit))
        _check_values(terms, strategy)
        return terms

    def error(self, terms: StreamTerms) -> float:
        """What is asked over time, beside that of others."""
        over, asked = errors_of_filter(terms.filter), self.given.questions
        worst = self.given.objective == "worst"
        variance = float(over.together(asked).max()) if worst else over.mean(asked)
        return math.sqrt(variance * float(terms.noise.variance))

    def _terms(self, used: IntegerFilter | WindowFilter) -> StreamTerms:
        """With the largest counts that there is room for."""
        maps = tuple(b.lowered() for b in self.strategy.blocks)
        for bits in range(_MOST_BITS, _LEAST_BITS - 1, -1):
            most = 2**bits if self.most is None else self.most
            try:
                found = StreamTerms(
                    used, maps, _GRAIN, _UNIT, self.given.per_person, self.given.apart, most, self.proof
                )
                _check_values(found, self.strategy)
                return found
            except PlanError:
                if self.most is not None or bits == _LEAST_BITS:
                    raise
        raise AssertionError

    def _rounding_ratio(self, terms: StreamTerms) -> float:
        """How much more the rounding of the cells that a person changes counts than a response of length 1."""
        change = math.sqrt(terms.change(self.sizes, self.unit)) / 2.0**terms.grain
        return terms.cells(self.unit) * math.sqrt(terms.columns()) / change


def _coarsen_residuals(fine: Residuals, design: Design) -> Residuals:
    """The residuals with multiples of at most 2^20, which stand for 1."""
    largest = max(int(np.max(m)) for m in fine.multiples if len(m))
    found = design.build(design.fine * 2**_GRAIN / (largest + 1))  # above what was rounded to it
    assert isinstance(found, Residuals)
    return found


def _check_values(terms: StreamTerms, strategy: Residuals) -> None:
    """Refuse what could outgrow 63 bits: a measured value. It would be wrong, though no less private."""
    largest = 0.0
    for family, measured in zip(strategy.blocks, terms.families, strict=True):
        spread = np.array([float(f.row_sums(1).max()) for f in family.factors])[family.sets].prod(axis=1)
        largest = max(largest, float(spread.max()) * _largest_filtered_count(terms.filter_of(measured)))
    if largest * terms.most + _ROOM * float(terms.noise.sigma) >= 2.0**63:
        raise PlanError("a measured value could outgrow 63 bits; plan with a smaller number of records")


def _largest_filtered_count(used: IntegerFilter | WindowFilter) -> float:
    """What a count of 1 for ever comes to."""
    if isinstance(used, WindowFilter):
        return float(abs(used.taps).sum(axis=1).max())
    carried = (used.carried.max(axis=0) / (1 - used.decay_rates)).sum()
    return float((used.direct.max() + carried) * used.rows.max() / 2.0**used.shift)


def _cut_multiple(terms: StreamTerms, sizes: dict[str, int], unit: PrivacyUnit) -> int:
    """The multiple of the cell that counts who is left out: what costs a hundredth of the tables, 1 at most."""
    most = replace(terms, cut=2**terms.grain)
    whole = most.squared_shift(sizes, unit) - terms.tables_shift(sizes, unit)
    wanted = math.sqrt(terms.tables_shift(sizes, unit) / _TABLES / whole)
    return min(2**terms.grain, max(1, math.floor(wanted * 2**terms.grain)))


def _least_stream_noise(terms: StreamTerms, price: Event, sizes: dict[str, int], unit: PrivacyUnit) -> RoundedGaussian:
    """The least noise that the price pays for, up to a 2^-10."""
    squared = terms.squared_shift(sizes, unit)
    if isinstance(price, GaussianEvent) and squared < _LEAST_SQUARED * price.mu_squared:
        most = math.isqrt(math.floor(squared / _LEAST_SQUARED))
        raise PlanError(
            "this budget leaves a stream no noise, so it would protect nobody; give a smaller one, at most "
            f"sf.gdp({most}), or publish the counts as they are where nobody needs protection"
        )
    try:
        found = noise_of(price, squared)
        assert isinstance(found, RoundedGaussian)
        return RoundedGaussian(Fraction(math.ceil(found.sigma * _FINE), _FINE))
    except InvalidInput as error:
        raise PlanError(
            f"the noise that this budget asks for is out of range ({error}); give a larger budget"
        ) from error
