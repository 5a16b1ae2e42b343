"""All pairs measured, then denoised by the models that the data bear out: what is decided before the data.

What is measured is linear and independent of the data: attributes, pairs and, where noise lets them, triples by their
residuals, so answers, errors and intervals exist as for any marginal tables. The release then replaces the answers by
those of `postprocess.mixtures`, which no bound describes. How the budget is split is below.

How mechanism="adaptive" divides its budget among attributes, pairs and triples: from public numbers alone.

What noise hides is lost anyway, and what stands out of it errs as unprojected tables do. So each share follows from
the error that the noise would cause, from sizes, the budget and the expected number of records, against how far tables
usually are from what smaller ones imply.

After an earlier release, which is public too, what it measured counts: where its pairs say something beyond their
attributes, both together are divided as one would be, but for pairs among each other: those that its denoised tables
show to depend more get more. Where its pairs say nothing, attributes get nearly all that is left.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato._util.display import Progress
from sfumato.errors import NotAnswerable, PlanError
from sfumato.mechanisms.registry import Mechanism
from sfumato.mechanisms.searches import Found
from sfumato.mechanisms.tables import Tables
from sfumato.operators import Family, Identity
from sfumato.operators.base import FloatArray
from sfumato.plans.plan import Plan, price_design
from sfumato.plans.predictions import ErrorEntry
from sfumato.postprocess.width import Forecast
from sfumato.privacy.budget import Budget
from sfumato.privacy.unit import Neighbours
from sfumato.strategies.attribute_sets import Sets, locate_sets
from sfumato.strategies.budget_split import root_error
from sfumato.strategies.design import Candidate, Design, Problem
from sfumato.strategies.residual_planning import residual_design
from sfumato.strategies.residuals import PairResiduals, Residuals
from sfumato.workloads import QueryFamily

if TYPE_CHECKING:
    from sfumato.mechanisms.tables import Need
    from sfumato.postprocess.consistency import ResidualNoise
    from sfumato.releases import Release

# of the first look's test. That independence is denied though it holds costs a tenth, as no first look would have; that
# it is believed though pairs say something cost a mixture of five kinds a quarter. At a tenth, independent data are
# denied in 4 draws of a hundred; at a quarter in 10, and two looks would miss 1.10 there
_DENIED = 0.1


@dataclass(frozen=True, slots=True)
class EarlierMeasurement:
    """noise: the variance of every residual that was measured, by positions in the domain; mu_squared: its budget.

    dependence: None where its pairs say nothing beyond their attributes; else (d, d), how far each of its denoised
    tables is from independent attributes, in shares of the records, the lower position first.
    """

    noise: ResidualNoise
    mu_squared: Fraction
    dependence: FloatArray | None
    count: int

    @classmethod
    def of(cls, release: Release, problem: Problem) -> EarlierMeasurement:
        """Of a release of the same domain under the same unit. Raises PlanError."""
        from sfumato.postprocess.mixtures import independence_p_bound  # noqa: PLC0415  ("auto" needs none)
        from sfumato.releases.comparing import noisy_pairs, residual_noise  # noqa: PLC0415  (likewise)

        plan = release.plan
        if plan.workload.domain != problem.workload.domain or plan.unit != problem.unit:
            raise PlanError(
                f"{release.provenance.name!r} was released over another domain or for another unit than this plan is "
                "for; after= takes a release of the same domain, neighbours and rows per person"
            )
        try:
            dependent = independence_p_bound(noisy_pairs(release)) < _DENIED
            dependence = _denoised_dependence(release) if dependent else None
            noise = residual_noise([release], range(len(problem.workload.domain.names)))
        except NotAnswerable as error:
            raise PlanError(f"after= takes a release of mechanism='adaptive', or such a one: {error}") from error
        return cls(noise, plan.budget.mu_squared, dependence, len(problem.workload.domain.names))

    def precisions(self, sets: NDArray[np.int32]) -> FloatArray:
        """(s,) one over the variances of residuals of sets of one order; 0 where they were not measured."""
        order = sets.shape[1]
        if order >= len(self.noise.sets) or not len(self.noise.sets[order]):
            return np.zeros(len(sets))
        places = locate_sets(self.noise.sets[order], sets, self.count)
        return np.where(places < 0, 0.0, 1 / np.asarray(self.noise.variances[order], dtype=np.float64)[places])


def _denoised_dependence(release: Release) -> FloatArray:
    """(d, d) how far its denoised tables of pairs are from independent attributes, in shares of the records."""
    from sfumato.postprocess.denoising import AdaptedTables  # noqa: PLC0415  ("auto" needs none)

    found = release.projection
    if found is None or not isinstance(found.possible, AdaptedTables):
        found = release.project("mixtures").projection
    assert found is not None
    assert isinstance(found.possible, AdaptedTables)
    domain, adapted = release.plan.workload.domain, found.possible.adapted
    places, out = [domain.axis(a) for a in found.possible.attributes], np.zeros((len(domain.names),) * 2)
    for (a, b), table in adapted.pairs.items():
        shares = table / adapted.total
        away = np.abs(shares - np.outer(shares.sum(axis=1), shares.sum(axis=0))).sum()
        out[min(places[a], places[b]), max(places[a], places[b])] = away
    return out


# mean L1 distances, in shares of the records, of pairs from independence and of triples from what their pairs imply:
# .14 and .04 on Adult, .11 to .43 and 0 to .09 on seven other tables. Where triples are just borne, .08 errs least on
# four of these, and on the others no more than without triples
_PAIRS, _TRIPLES = 0.136, 0.08
# attributes to pairs as max(r^2, .8 sqrt r) to 1: with more Adult errs 2 % more at epsilon .1 and a mixture up to 20 %,
# with less, data without dependence err more
_SLOW = 0.8
_TOTAL = (
    0.02  # at epsilon .1 noise of the total dominates with a two-hundredth; elsewhere it costs a hundredth of errors
)
_CELLS_ONE, _CELLS_PAIR, _WEIGHT = 0.4, 0.05, 0.5  # powers: measured on Adult, docs/decisions/0019-adaptive.md
# the power of the dependence that an earlier release saw, to which precisions of pairs go at most: what is said of one
# pair helps with others, so the 4 of pairs denoised one by one is far too much; docs/decisions/0206-followed-pairs.md
_MOST_FOLLOWED = 0.6
_LEAST_SEEN = 0.01  # of the records: what a denoised pair may hide, below which all pairs are taken alike
_GAIN = 0.25  # noise over dependence, from which on denoising takes a fifth off
_L1 = 0.8  # of a deviation: the mean absolute value of Gaussian noise
# of the share that squares of unprojected triples say: cells below zero take more of their noise than of pairs'. With
# all of it Adult, labsup and a tree err 4 to 9 % more at epsilon 10, with three fifths up to 6 %
_SPARSE = 0.8
_LEAST_TRIPLES = 0.02  # of the budget: with less they would say nothing cell by cell
# all triples together tell how far to go from what entropy makes of pairs towards what a mixture does, once that share
# is known to a quarter; what pairs lose by the budget for it is half as much as it, and no more than a fortieth
_QUARTER, _MOST_TOLD = 16, 0.05
# of what is left, for pairs that an earlier release saw nothing in: with none they would have no answers of their own
_UNSEEN = 0.005
# of what both together are to have, for sets of which an earlier release measured more: every set keeps an answer
_LEAST_LEFT = 0.01
_MOST_CELLS = 2**22  # of a table that is asked: it is made cell by cell
_MOST_MEASURED = 2**23  # cells of triples that are measured: 64 MB, and several arrays of that size
_MOST_STACKED = 2**12  # cells of all attributes: the denoiser holds matrices of that size


@dataclass(frozen=True, slots=True)
class _AskedWeights:
    """ones: (d,) weights of attributes, pairs: (d, d) of pairs inside tables, the lower one first.

    two: the weight of tables over two attributes themselves; triples: (t, 3) asked, and weights: (t,) of these.
    """

    ones: FloatArray
    pairs: FloatArray
    two: float
    triples: Sets
    weights: FloatArray


def divide_residual_budget(
    problem: Problem, earlier: EarlierMeasurement | None = None
) -> tuple[list[Sets], list[FloatArray]]:
    """Residual sets per order, and one over the deviations of their noise, up to a common factor.

    Inverse variances go as powers of cells, .4 for attributes and `_power` for pairs and triples, times the root of
    the weight that is asked. Attributes and pairs share what triples leave as max(r^2, .8 r^(1/2)) to 1, with
    .136 r the error that independence would have from one-way tables with all of it; attributes get no less than the
    least squared error of unprojected pairs would give them. A total that is not public has a fiftieth. After an
    `earlier` release that saw dependence, precisions of pairs follow how much of it (`_followed_dependence`), and what
    it measured is taken off; after one that saw none, pairs get a two-hundredth and triples nothing. Raises PlanError.
    """
    if earlier is None:
        sets, squares = _share_residual_budget(problem)
    elif earlier.dependence is None:
        sets, squares = _share_residual_budget(problem, seen=False)
    else:
        both = float(problem.budget.mu_squared) + float(earlier.mu_squared)
        whole = replace(problem, budget=Budget("zcdp", (problem.budget.mu_squared + earlier.mu_squared) / 2))
        sets, squares = _share_residual_budget(whole, dependence=earlier.dependence)
        given = [earlier.precisions(s) * _squared_cell_change(problem) / both for s in sets]
        squares = [np.maximum(w - g, _LEAST_LEFT * w) for w, g in zip(squares, given, strict=True)]
    return sets, [np.sqrt(w) for w in squares]


def _share_residual_budget(
    problem: Problem, *, seen: bool = True, dependence: FloatArray | None = None
) -> tuple[list[Sets], list[FloatArray]]:
    """Residual sets per order, and their inverse variances at unit price.

    seen: whether pairs may say something; dependence: (d, d) how much each says, None where nothing tells them apart.
    """
    size = np.array(problem.workload.domain.shape, dtype=np.float64)
    asked = _read_asked_orders(problem)
    held = np.flatnonzero((asked.ones > 0) & (size > 1))
    first, second = np.nonzero(asked.pairs * np.multiply.outer(size > 1, size > 1))
    if not len(first):
        raise PlanError("mechanism='adaptive' needs a table over two attributes; for others take mechanism='marginals'")
    if float(size[held].sum()) > _MOST_STACKED:
        raise PlanError(
            f"the attributes that are asked have {size[held].sum():,.0f} cells in all, above {_MOST_STACKED:,}; "
            "declare coarser cells, or plan groups of attributes by themselves"
        )
    pairs = np.stack([first, second], axis=1)
    share = _share_of_triples(problem, asked, size, pairs) if seen else 0.0
    ones = max(_share_of_ones(problem, size[held]), _least_ones(size, first, second)) if seen else 1 - _UNSEEN
    cells, stated = size[pairs].prod(axis=1), asked.pairs[first, second]
    wanted = cells ** _cell_power(problem, cells, _PAIRS) * (stated / stated.mean()) ** _WEIGHT
    if dependence is not None:
        wanted *= _followed_dependence(problem, cells, dependence[first, second])
    parts: list[tuple[NDArray[np.integer], FloatArray, float]] = [
        (
            held[:, None],
            size[held] ** _CELLS_ONE * (asked.ones[held] / asked.ones[held].mean()) ** _WEIGHT,
            (1 - share) * ones,
        ),
        (pairs, wanted, (1 - share) * (1 - ones)),
    ]
    if share:
        cells = size[asked.triples].prod(axis=1)
        power = _cell_power(problem, cells / math.sqrt(share), _TRIPLES)
        parts.append((asked.triples, cells**power * (asked.weights / asked.weights.mean()) ** _WEIGHT, share))
    sets, squares = [np.empty((0 if problem.unit.total_is_public else 1, 0), dtype=np.int32)], list[FloatArray]()
    squares.append(np.full(len(sets[0]), _TOTAL))
    for some, wanted, given in parts:
        sets.append(some.astype(np.int32))
        squares.append(wanted * given / float(wanted @ (1 - 1 / size[some]).prod(axis=1)))
    return sets, squares


def denoising_candidate(problem: Problem, plans: Sequence[Plan] = ()) -> tuple[Candidate, ...]:
    """What "auto" says of mechanism="adaptive", which it never takes as nothing is proved of it; none without pairs.

    Pairs whose noise is e are expected to err e / (1 + e / D) once denoised; e is that of the best of the plans where
    it measures pairs, else of tables that share the budget.
    """
    if problem.noise == "laplace" or problem.known or problem.objective != "tables":
        return ()
    if not any(i.is_marginal and i.rows for i in problem.workload.items):
        return ()
    try:
        size, pairs = (
            np.array(problem.workload.domain.shape, dtype=np.float64),
            np.argwhere(_read_asked_orders(problem).pairs),
        )
    except PlanError:
        return ()
    pairs = pairs[(size[pairs] > 1).all(axis=1)]
    if not len(pairs):
        return ()
    noise = _unprojected_pair_error(plans, pairs) or _table_error_in_records(problem, size[pairs].prod(axis=1))
    fewer = 10 ** math.floor(math.log10(noise / (_PAIRS * _GAIN)) - 1)
    many = max(round(noise / (_PAIRS * _GAIN) / fewer), 1) * fewer
    note = (
        f"not compared: it promises nothing; worth asking for below some {many:,.0f} records, where it usually takes a "
        "fifth or more off the errors of pairs"
    )
    if problem.records is not None:
        each = noise / problem.records
        note += f"; at {problem.records:,} these are expected at {each / (1 + each / _PAIRS):.2g} of the records, "
        note += f"{each:.2g} before"
    return (Candidate("adaptive", "", None, None, note),)


def _unprojected_pair_error(plans: Sequence[Plan], pairs: NDArray[np.intp]) -> float:
    """The mean L1 error in records of these pairs by the plan that is taken; 0 where it tells none of them at once."""
    if not plans:
        return 0.0
    best = min(plans, key=lambda plan: plan.objective_value)
    domain = best.workload.domain
    tables = Family(domain.names, tuple(Identity(n) for n in domain.shape), pairs.astype(np.int32))
    try:
        powers = best.strategy.family_powers(tables, 2)
    except NotAnswerable:
        return 0.0
    if powers is None:
        return 0.0
    return _L1 * float((np.sqrt(powers * best.noise.variance) * tables.rows_each).mean())


def _read_asked_orders(problem: Problem) -> _AskedWeights:
    """What is asked of attributes, pairs and triples. Raises PlanError for tables that are too large."""
    domain = problem.workload.domain
    ones, pairs, two = np.zeros(len(domain.names)), np.zeros((len(domain.names),) * 2), 0.0
    triples: list[Sets] = []
    weights: list[FloatArray] = []
    for item in problem.workload.items:
        weight = problem.stated_weight(item)
        if isinstance(item, QueryFamily):
            sets = item.family.sets
        else:
            sets = np.array([sorted(domain.axis(a) for a in item.attributes)], dtype=np.int32)
            sets = sets.reshape(1, len(item.attributes))
        cells = np.log2(np.array(domain.shape))[sets].sum(axis=1)
        if float(cells.max(initial=0.0)) > math.log2(_MOST_CELLS):
            raise PlanError(
                f"a table of more than {_MOST_CELLS:,} cells is asked; the release answers parts of it later: ask "
                "smaller tables, and predicates with release.ask"
            )
        for column in range(sets.shape[1]):
            np.add.at(ones, sets[:, column], weight)
        for i, j in itertools.combinations(range(sets.shape[1]), 2):
            np.add.at(pairs, (sets[:, i], sets[:, j]), weight)
        two += weight * len(sets) if sets.shape[1] == 2 else 0.0
        if sets.shape[1] == 3:
            several = (np.array(domain.shape)[sets] > 1).all(axis=1)
            triples.append(sets[several])
            weights.append(np.full(int(several.sum()), weight))
    if not triples:
        return _AskedWeights(ones, pairs, two, np.empty((0, 3), dtype=np.int32), np.empty(0))
    every, place = np.unique(np.concatenate(triples), axis=0, return_inverse=True)
    summed = np.zeros(len(every))
    np.add.at(summed, place.reshape(-1), np.concatenate(weights))
    return _AskedWeights(ones, pairs, two, every, summed)


def _share_of_triples(problem: Problem, asked: _AskedWeights, size: FloatArray, pairs: NDArray[np.intp]) -> float:
    """Of the budget, for tables over three attributes beyond their pairs: none where noise would hide them all.

    With share s the pairs inside err P / (1 - s)^(1/2), and what pairs do not imply, D, is told up to the noise E /
    s^(1/2): D^2 E^2 / (s D^2 + E^2). The sum of squares is least at s = E / (E + P) (1 - P E / D^2).
    Where that is nothing, f free cells that vary by D against noise of mean E / s^(1/2), both taken as spread evenly,
    still tell a multiple of what varies to within (f s)^(-1/2) E / (.8 D).
    """
    cells = size[asked.triples].prod(axis=1)
    if not len(cells) or float(cells.sum()) > _MOST_MEASURED:
        return 0.0
    noise, plain = _relative_table_error(problem, cells), _relative_table_error(problem, size[pairs].prod(axis=1))
    inside = _PAIRS * plain / (_PAIRS + plain) * math.sqrt(3 + asked.two / float(asked.weights.sum()))
    share = _SPARSE * noise / (noise + inside) * (1 - inside * noise / _TRIPLES**2)
    if share > _LEAST_TRIPLES:
        return share
    freedom = float((size[asked.triples] - 1).prod(axis=1).sum())
    told = _QUARTER / freedom * (noise / (_L1 * _TRIPLES)) ** 2
    part = float(asked.weights.sum()) / (float(asked.weights.sum()) + asked.two)
    return told if told <= _MOST_TOLD * part else 0.0


def _share_of_ones(problem: Problem, size: FloatArray) -> float:
    """Of the budget, for the attributes by themselves."""
    ratio = 2 * _relative_table_error(problem, size) / _PAIRS
    odds = max(ratio**2, _SLOW * math.sqrt(ratio))
    return odds / (1 + odds)


def _least_ones(size: FloatArray, first: NDArray[np.intp], second: NDArray[np.intp]) -> float:
    """Of the budget for attributes and pairs, what attributes get where unprojected pairs err least in squares."""
    price, inside = 1 - 1 / size, np.zeros(len(size))
    np.add.at(inside, first, (size[first] - 1) / size[second])
    np.add.at(inside, second, (size[second] - 1) / size[first])
    ones = float(root_error(inside, price, 2).sum())
    pairs = float(root_error((size[first] - 1) * (size[second] - 1), price[first] * price[second], 2).sum())
    return ones / (ones + pairs)


def _cell_power(problem: Problem, cells: FloatArray, signal: float) -> float:
    """Of cells, to which the inverse variances of tables go.

    A table whose noise is e and whose dependence is D errs about e / (1 + e / D) once it is denoised. For e = cells /
    sqrt(inverse variance) the sum of that is least where the power is 2 g / (2 + g), g = (D - e) / (D + e): 2/3 where
    noise is small, as for unprojected tables; where it is large, cells count for next to nothing.
    """
    ratio = _relative_table_error(problem, cells) / signal
    gain = max((1 - ratio) / (1 + ratio), 0.0)
    return max(2 * gain / (2 + gain), _CELLS_PAIR)


def _followed_dependence(problem: Problem, cells: FloatArray, seen: FloatArray) -> FloatArray:
    """(p,) factors of the inverse variances of pairs, from how far an earlier release saw each from independence.

    By the law of `_cell_power` the sum of what pairs err is least where inverse variances go as D to the power
    4 r / (3 + r), r = e / D: as nothing where noise is small.
    """
    ratio = _relative_table_error(problem, cells) / _PAIRS
    return np.maximum(seen, _LEAST_SEEN) ** min(4 * ratio / (3 + ratio), _MOST_FOLLOWED)


def _relative_table_error(problem: Problem, cells: FloatArray) -> float:
    """The mean L1 error, in shares of the records, of tables of so many cells that share the whole budget."""
    assert problem.records is not None
    return _table_error_in_records(problem, cells) / problem.records


def _table_error_in_records(problem: Problem, cells: FloatArray) -> float:
    """The same in records."""
    deviation = math.sqrt(len(cells) * _squared_cell_change(problem) / float(problem.budget.mu_squared))
    return _L1 * deviation * float(cells.mean())


def _squared_cell_change(problem: Problem) -> int:
    """By how much a person's going moves the cells of a table, in squares."""
    return problem.unit.rows_per_person**2 * (2 if problem.unit.neighbours is Neighbours.REPLACE_ONE else 1)


BODY = "mixtures"
_MANY_STACKED = 2**10  # cells of all attributes: the denoiser holds matrices of that size
_BYTES, _SECONDS = 660, 6e-5  # for every pair of cells, as measured


@dataclass(frozen=True, repr=False, kw_only=True)
class Adaptive(Tables):
    """Attributes, pairs and triples are measured, and the release is denoised by the models that the data bear out.

    `release.project("mixtures", earlier=...)` pools two releases.

    Args:
        after: An earlier release of the same domain, made with some of the budget; the plan is for the rest. Where that
            one saw pairs depend, both together divide all of the budget as one plan would, and pairs share theirs by
            how much it saw of each; where it saw nothing, attributes get nearly all.
        noise: "gaussian" or "discrete-gaussian"; None takes what the budget is best spent on.
        lattice: "fine".

    Raises:
        PlanError: An option is not allowed.
    """

    after: Release | None = None

    name: ClassVar[str] = "adaptive"
    remark: ClassVar[str] = "all errors here are before denoising"
    unscaled: ClassVar[str] = (
        "margins are those of unbiased answers, which mechanism='marginals' has least; plan with it"
    )
    unknown: ClassVar[str] = "what denoising leaves is not proved: its release states it"

    def __post_init__(self) -> None:
        from sfumato.releases import Release  # noqa: PLC0415  ("auto" needs none)

        super().__post_init__()
        if self.after is not None and not isinstance(self.after, Release):
            raise PlanError(f"after= takes an earlier release, not {self.after!r}")

    def found(self, problem: Problem, progress: Progress | None) -> Found:
        return Found(problem)

    def chosen(self, problem: Problem, plans: Sequence[Plan]) -> Plan:
        return plan_denoised_pairs(problem, self.after)

    def records_for(self, need: Need) -> int:
        return Mechanism.records_for(self, need)


def plan_denoised_pairs(problem: Problem, after: Release | None = None) -> Plan:
    """The plan whose release is denoised, by itself or after an earlier one. Raises PlanError."""
    if problem.noise == "laplace":
        raise PlanError(
            "mechanism='adaptive' needs Gaussian noise, whose halves are independent; take sf.approx, sf.gdp"
        )
    if problem.unit_lattice:
        raise PlanError(
            "mechanism='adaptive' splits the budget in real shares, which the unit lattice would round away; leave out "
            "lattice='unit'"
        )
    if problem.objective != "tables":
        raise PlanError(
            "mechanism='adaptive' counts all tables alike and splits the budget by a law of its own; leave objective= "
            "out, or take mechanism='marginals'"
        )
    if problem.records is None:
        raise PlanError(
            "mechanism='adaptive' splits the budget by how many records are expected; give records=, a public and "
            "approximate number"
        )
    earlier = None if after is None else EarlierMeasurement.of(after, problem)
    sets, precision = divide_residual_budget(problem, earlier)
    measured = residual_design(problem, sets, precision)

    def build(s: float) -> PairResiduals:
        found = measured.build(s)
        assert isinstance(found, Residuals)
        return PairResiduals(found.names, found.shape, found.sets, found.multiples)

    plan = price_design(Design("adaptive", build, measured.fine), problem)
    rows, raw = _raw_pair_error(plan, sets[2])
    return replace(
        plan,
        body=BODY,
        forecast=Forecast(BODY, rows, raw, records=problem.records),
        notes=(*_denoising_notes(plan), *_earlier_release_notes(after, earlier)),
    )


def _denoising_notes(plan: Plan) -> tuple[str, ...]:
    domain, beyond = plan.workload.domain, sum(_count_unmeasured_queries(e) for e in plan.entries)
    out = ["errors are those of the unprojected answers; that denoising lowers them is not guaranteed"]
    if beyond:
        out.append(
            f"{beyond:,} queries go beyond what is measured: they follow from it by the largest entropy, with no "
            "standard error of their own"
        )
    used = {a for i in plan.workload.items for a in i.attributes}
    cells = sum(domain.sizes(domain.ordered(used)))
    if cells > _MANY_STACKED:
        memory, time = _BYTES * cells**2 / 1e9, _SECONDS * cells**2 / 60
        out.append(f"denoising {cells:,} cells of attributes takes about {memory:.1f} GB and {time:.0f} CPU-minutes")
    return tuple(out)


def _earlier_release_notes(after: Release | None, earlier: EarlierMeasurement | None) -> tuple[str, ...]:
    if after is None or earlier is None:
        return ()
    saw = (
        "pairs depend, and how much each"
        if earlier.dependence is not None
        else "no pair depends beyond its noise, so attributes get nearly all"
    )
    return (f"follows {after.provenance.name!r}, which saw that {saw}; it is public, and paid for by itself",)


def _count_unmeasured_queries(entry: ErrorEntry) -> int:
    """How many of its queries have an infinite error."""
    if isinstance(entry.item, QueryFamily):
        return int(entry.item.family.rows_each[np.isinf(entry.powers)].sum())
    return entry.item.rows if np.isinf(entry.powers).any() else 0


def _raw_pair_error(plan: Plan, pairs: Sets) -> tuple[int, float]:
    """(cells of the measured pairs, root of their mean variance)"""
    names, shape = plan.workload.domain.names, plan.workload.domain.shape
    tables = Family(names, tuple(Identity(n) for n in shape), pairs)
    powers = plan.strategy.family_powers(tables, 2)
    assert powers is not None
    cells = tables.rows_each
    return int(cells.sum()), math.sqrt(float(powers @ cells) / float(cells.sum()) * plan.noise.variance)
