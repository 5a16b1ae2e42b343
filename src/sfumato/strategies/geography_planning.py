"""Tables at every level of a tree: the best precision of every residual at every level, measured in integers.

How precise every residual is measured at every level: one number for each, of least error at unit price.

With a[l, S] the precision of the residual of set S at every node of level l, sets separate: each has its own tree, on
which F(a) = sum_l c_l tr Cov_l is convex and of degree -1. For one record more or less the price is sum a[l, S] p_S
whatever the fan-outs, as a person is in one node of each level; sets share it as sqrt(J_S / p_S) with J_S the least F
at unit sum. Tables at one multiple each are among these: m^2 on table A is m^2 / prod_(A - S) n on every S in A.

Where a record is replaced, two that differ in the attributes D and are last together at level c are
2 sum a[l, S] (p_S - k_S [l <= c]) apart, k_S = prod_(S, D) (-1/n) prod_(S, not D) (1 - 1/n). The largest counts; it is
reached by weights on pairs (c, D), multiplied by what each pair costs until all that have weight cost alike. Of more
cells than are gone through pair by pair, any set of levels may be the one at which two are together: whole tables
cost the same, as two that are never together are farthest apart, and residuals are chosen for what they will cost.

A proved bound for tables at the levels of a tree, on any unbiased linear mechanism with Gaussian noise. [ENU20]

For weights q over the cells that add up to 1, the root of the sum of weighted variances is at least the nuclear norm of
W diag(sqrt q), with W the weighted queries. With equal q over the cells of one finest group it is
sum_S sqrt(p_S) tr sqrt(M_S), M_S = sum_l c_l sqrt(Q) H_lᵀ H_l sqrt(Q) over the groups of the deepest level of S, where
H_l adds up the groups of level l. sqrt x is bounded from below by sum_j w_j x / (x + t_j²), the trapezoidal rule of
(2/pi) int x / (x + t²) dt less what it can be off by, and tr M (M + t²)^-1 = sum_l c_l tr Cov_l of least squares with
precisions c_l, and t² / Q more at the deepest level: two passes over the tree.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray
from sfumato.privacy.unit import Neighbours
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.geography import AskedLevels, Sets, Spine, all_subsets, level_attribute_position
from sfumato.strategies.geography_tree import GroupTree, Passes, variance_slopes
from sfumato.strategies.strategy import KnownGroups

_STEPS = 200  # of the search on one tree, which has as many unknowns as levels: some twenty do
_TOLERANCE = 1e-13  # relative, between two steps: errors are then exact to what is shown, and bounds met to 1e-6
_LEAST = 1e-9  # of the mean share: the finest level of a set is never left unmeasured
_NOTHING = 1e-10  # of the largest precision of a set: what the search has sent to zero
_ROUNDS = 60  # of weights on pairs: they end before, where the dearest is this near to the mean
_NEAR = 1e-4  # of squared errors
_FASTER, _SLOWER = 1.5, 0.5  # powers of what pairs cost, while the dearest falls, and where it rose
_SHARP = 8  # power of prices from which weights start: they cannot come back from nothing, and most end there
MOST_PAIRED = 1_000  # cells of an attribute of which all pairs are looked at by prices (certificates.py)
_MOST_CHANGED = 6  # attributes of which all subsets are looked at; above, all of them together

Precisions = dict[Sets, FloatArray]


@dataclass(frozen=True, slots=True)
class LevelAllocation:
    """Per set (levels,) the precision of its residual, infinite where it is known; error: sum of weighted variances at
    unit price."""

    precisions: Precisions
    error: float


def allocate_precisions(asked: AskedLevels, tree: GroupTree, *, replaced: bool, public: bool) -> LevelAllocation:
    """The best precisions; `tree` may have merged nodes. public: the total is known, or those of the groups of a level,
    and neither measured nor priced.

    Raises PlanError where nothing is left to be measured.
    """
    effects = asked.residuals()
    fixed = asked.fixed if public else -1
    known = {s: np.array([not s and level <= fixed for level in range(len(c))]) for s, c in effects.items()}
    left = {s: np.where(known[s], 0.0, c) for s, c in effects.items()}
    left = {s: c for s, c in left.items() if c.any()}
    if not left:
        raise PlanError("all that is asked is public; it needs no measurement")
    solver = _PrecisionSolver(tree, known)
    if not replaced:
        prices = {s: np.full(len(c), asked.price(s)) for s, c in left.items()}
        found, error = solver.shared(left, prices)
        return LevelAllocation(found, error)
    return _allocate_replaced(asked, solver, left, public=public)


@dataclass(frozen=True, slots=True)
class _PrecisionSolver:
    tree: GroupTree
    known: Mapping[Sets, NDArray[np.bool_]]

    def shared(
        self, effects: Precisions, prices: Mapping[Sets, FloatArray], near: Precisions | None = None
    ) -> tuple[Precisions, float]:
        """The precisions of least error where sum of price times precision is 1, and that error; the search may start
        near others."""
        alone: dict[Sets, tuple[FloatArray, float]] = {}
        solved: dict[bytes, tuple[FloatArray, float]] = {}
        for s, effect in effects.items():
            top, unit = float(effect.max()), float(prices[s].max())
            # sets asked alike differ by a factor
            key = np.round(np.concatenate([effect / top, prices[s] / unit, self.known[s]]), 12).tobytes()
            if key not in solved:
                solved[key] = self._single(effect / top, prices[s] / unit, self.known[s], near[s] if near else None)
            some, error = solved[key]
            alone[s] = some / unit, error * top * unit
        root = sum(math.sqrt(e) for _, e in alone.values())
        return {s: a * (math.sqrt(e) / root) for s, (a, e) in alone.items()}, root**2

    def _single(
        self, effect: FloatArray, price: FloatArray, known: NDArray[np.bool_], near: FloatArray | None
    ) -> tuple[FloatArray, float]:
        """The best precisions of one set at price 1, and its error."""
        from scipy.optimize import Bounds, minimize  # noqa: PLC0415  (slow to import)

        depth = int(np.flatnonzero(effect).max())
        tree = self.tree.cut(depth)
        free = np.flatnonzero(~known[: depth + 1] & (price[: depth + 1] > 0))
        weights = [np.array([[c]]) * n[:, None] for c, n in zip(effect[: depth + 1], tree.counts, strict=True)]

        def precisions(x: FloatArray) -> FloatArray:
            out = np.where(known[: depth + 1], np.inf, 0.0)
            out[free] = x / price[free]
            return out

        def value(x: FloatArray) -> tuple[float, FloatArray]:
            passes = Passes.of(tree, [np.array([[a]]) for a in precisions(x)])
            error = sum(float((w * v).sum()) for w, v in zip(weights, passes.variances, strict=True))
            found = np.array([float(g.sum()) for g in variance_slopes(passes, weights)])[free] / price[free]
            # least where the price is 1
            return math.log(error) + float(x.sum()), 1.0 - found / error

        start = (self._start(effect[: depth + 1], tree) if near is None else near)[free] * price[free]
        least = np.zeros(len(free))
        least[-1] = _LEAST
        start = np.maximum(start / start.sum(), least)
        done = minimize(
            value,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(least, np.inf),
            options={"maxiter": _STEPS, "maxfun": 2 * _STEPS, "ftol": _TOLERANCE, "gtol": 1e-10},
        )
        x = np.asarray(done.x, dtype=np.float64)
        best = min((x, start), key=lambda given: value(given / given.sum())[0])
        best = np.where(best > _NOTHING * best.max(), best, 0.0)
        best = best / best.sum()
        out = np.zeros(len(effect))
        out[: depth + 1] = precisions(best)
        return out, math.exp(value(best)[0] - 1.0)

    @staticmethod
    def _start(effect: FloatArray, tree: GroupTree) -> FloatArray:
        """The optimum where all nodes of a level have as many children: there levels commute."""
        nodes = np.array([float(c.sum()) for c in tree.counts])
        inside = nodes[-1] / nodes
        roots = np.sqrt(np.cumsum((effect * inside)[::-1])[::-1])
        return (roots - np.append(roots[1:], 0.0)) / inside


# ---- where a record is replaced ----------------------------------------------------------------------------


def _allocate_replaced(
    asked: AskedLevels, solver: _PrecisionSolver, effects: Precisions, *, public: bool
) -> LevelAllocation:
    sets = list(effects)
    costs = _pair_costs(asked, solver.tree, sets, public=public)

    def priced(found: Precisions) -> FloatArray:
        flat = np.array([found[s] for s in sets])
        return np.tensordot(costs, np.where(np.isfinite(flat), flat, 0.0), axes=2)

    def solved(weights: FloatArray, near: Precisions) -> tuple[Precisions, float]:
        return solver.shared(effects, dict(zip(sets, np.tensordot(weights, costs, axes=1), strict=True)), near)

    found, _ = solver.shared(effects, {s: np.full(len(e), asked.price(s)) for s, e in effects.items()})
    start = priced(found)
    weights = (start / start.max()) ** _SHARP
    weights /= weights.sum()
    best: tuple[float, Precisions] | None = None
    power, before = float(_SHARP), math.inf
    for _ in range(_ROUNDS):
        found, error = solved(weights, found)
        each = priced(found)
        dearest = float(each.max())
        if best is None or error * dearest < best[0]:
            best = error * dearest, {s: a / dearest for s, a in found.items()}
        if dearest <= 1 + _NEAR:
            break
        power = max(1.0, power * (_FASTER if dearest < before else _SLOWER))
        before = dearest
        weights = weights * each**power
        weights /= weights.sum()
    assert best is not None
    return LevelAllocation(best[1], best[0])


def _pair_costs(asked: AskedLevels, tree: GroupTree, sets: Sequence[Sets], *, public: bool) -> FloatArray:
    """(pairs, sets, levels) what a unit of precision adds to the squared distance of two such records."""
    changing = tuple(sorted({i for s in sets for i in s}))
    choices = list(all_subsets(changing)) if len(changing) <= _MOST_CHANGED else [(), changing]
    out: list[list[FloatArray]] = []
    for together in _shared_level_sets(tree, asked.fixed if public else 0, many=asked.sizes[asked.place] > MOST_PAIRED):
        for changed in choices:
            if changed or not together.all():
                out.append([_record_pair_cost(asked, s, together, changed) for s in sets])
    if not public:
        # a record may vanish without another in its place
        out.append([np.full(tree.depth + 1, asked.price(s)) for s in sets])
    return np.array(out)


def _shared_level_sets(tree: GroupTree, fixed: int, *, many: bool) -> list[NDArray[np.bool_]]:
    """Sets of levels at which two records may lie in one group, (levels,): those down to the level `fixed`, in whose
    groups records are replaced, and what is above some level."""
    levels = tree.depth + 1
    if many:
        choices = itertools.product((True, False), repeat=levels - 1 - fixed)
        return [np.array([True] * (fixed + 1) + list(choice)) for choice in choices]
    nodes = [float(c.sum()) for c in tree.counts]
    last = [c for c in range(fixed, levels) if c == tree.depth or nodes[c + 1] > nodes[c]]
    return [np.arange(levels) <= c for c in last]


def _record_pair_cost(asked: AskedLevels, s: Sets, together: NDArray[np.bool_], changed: Sets) -> FloatArray:
    inner = math.prod(-1 / asked.sizes[i] if i in changed else 1 - 1 / asked.sizes[i] for i in s)
    return 2.0 * (asked.price(s) - np.where(together, inner, 0.0))


_STEP = 0.5  # of log t: the rule is off by less than 4 exp(-pi² / step) = 1.1e-8
_OFF = 4 * math.exp(-(math.pi**2) / _STEP) * 1.01  # further terms are smaller by as much again
_TAIL = 17.0  # of log t beyond the roots of the eigenvalues: exp(-17) = 4e-8 is cut off there
_DIGITS, _ROUNDING = 12, 1e-11  # of an effect relative to the largest, and what that and doubles can be off by
_TOGETHER = 2**21  # numbers of one array of a pass: 16 MB
_ROUNDS_BOUND = 3  # of weights: each is multiplied by what it was worth; the largest bound counts


def allocation_bound(asked: AskedLevels, tree: GroupTree, found: LevelAllocation) -> float:
    """On the root of the sum of weighted variances at unit price, one record more or less; `tree` may be a merged one.

    The weights start as the allocation's own: what each group's column is worth to the error.
    """
    effects = {s: c for s, c in asked.residuals().items() if s in found.precisions}
    weights = _group_worths(asked, tree, found, effects)
    best = 0.0
    for _ in range(_ROUNDS_BOUND):
        weights = weights / float(weights @ tree.counts[-1])
        total, after = 0.0, np.zeros(len(weights))
        known: dict[bytes, tuple[float, FloatArray]] = {}
        for s, effect in effects.items():
            # sets asked alike differ by a factor
            top = float(effect.max())
            key = np.round(effect / top, _DIGITS).tobytes()
            if key not in known:
                known[key] = _root_trace(tree, np.frombuffer(key), weights)
            norm, each = known[key]
            share = math.sqrt(asked.price(s) * top)
            total += share * norm
            after += share * each
        best = max(best, total * (1 - _ROUNDING))
        weights = after
    return best


def _group_worths(
    asked: AskedLevels, tree: GroupTree, found: LevelAllocation, effects: dict[Sets, FloatArray]
) -> FloatArray:
    """(finest groups,) by how much a unit of precision at one of its cells would lower the error."""
    out = np.zeros(len(tree.counts[-1]))
    known: dict[bytes, FloatArray] = {}
    for s, effect in effects.items():
        depth = int(np.flatnonzero(effect).max())
        cut = tree.cut(depth)
        top, unit = float(effect.max()), float(found.precisions[s].max())
        key = np.round(np.concatenate([effect / top, found.precisions[s] / unit]), 9).tobytes()
        if key not in known:
            passes = Passes.of(cut, [np.array([[a]]) for a in found.precisions[s][: depth + 1] / unit])
            sides = [np.array([[c]]) * n[:, None] for c, n in zip(effect / top, cut.counts, strict=False)]
            slope = variance_slopes(passes, sides)[depth][:, 0] / cut.counts[depth]
            # of a group, in equal parts to all that is finer
            known[key] = _spread_to_finest(tree, depth, slope / _count_finest_groups(tree, depth))
        out += known[key] * (top / unit**2 * asked.cells(s))
    return out


def _spread_to_finest(tree: GroupTree, depth: int, values: FloatArray) -> FloatArray:
    for level in range(depth, tree.depth):
        values = values[tree.parents[level]]
    return values


def _sum_from_finest(tree: GroupTree, depth: int, values: FloatArray) -> FloatArray:
    """(groups of a level,) sums over all finest groups in each."""
    for level in range(tree.depth, depth, -1):
        values = tree.sums(level, tree.kids[level - 1] * values)
    return values


def _count_finest_groups(tree: GroupTree, depth: int) -> FloatArray:
    return _sum_from_finest(tree, depth, np.ones(len(tree.counts[-1])))


def _root_trace(tree: GroupTree, effect: FloatArray, weights: FloatArray) -> tuple[float, FloatArray]:
    """tr sqrt(M), or a hair less, and (finest groups,) what each is worth in it: its share of the diagonal."""
    depth = int(np.flatnonzero(effect).max())
    cut, inside = tree.cut(depth), _sum_from_finest(tree, depth, weights)
    levels = [_sum_from_finest(tree, level, weights) for level in range(depth + 1)]
    high = 0.5 * math.log(sum(c * float(q.max()) for c, q in zip(effect, levels, strict=False)))
    low = 0.5 * math.log(effect[depth] * float(inside.min()))
    nodes = np.arange(low - _TAIL, high + _TAIL + _STEP, _STEP)
    total, diagonal = 0.0, np.zeros(len(inside))
    step = max(1, _TOGETHER // len(inside))
    for start in range(0, len(nodes), step):
        t = np.exp(nodes[start : start + step])
        share = 2 * _STEP / math.pi * t / (1 + _OFF)
        rows = [np.full((1, len(t)), c) for c in effect[:depth]]
        passes = Passes.of(cut, [*rows, effect[depth] + t**2 / inside[:, None]])
        for c, v, n in zip(effect, passes.variances, cut.counts, strict=False):
            total += c * float((n @ v) @ share)
        diagonal += np.maximum(1.0 - t**2 * passes.variances[depth] / inside[:, None], 0.0) @ share
    # a group's diagonal belongs to all finer ones by their weights
    return total, _spread_to_finest(tree, depth, diagonal / inside) * weights


_TALL = 1_500  # cells, above which nobody looks for symmetries (strategies/union.py); with 2,000 all others took
# 50 CPU-s and 3.5 GB to end in noise on every query
_MOST_SETS = 2**13  # sets below the asked tables, at every level: each is gone through by itself, in seconds
_MOST_BITS, _LEAST_BITS = 20, 6  # of the least multiple: rounding then moves prices by less than a millionth
_RECORDS_WANTED = 2.0**30  # a thousand million records: counts of theirs, times the multiples, fit 62 bits
_NEGATIVE = 1e-7  # of all that is spent: a weight of a table that the search leaves below zero by so little is none
_NONE = 1e-7  # of the largest multiple's square: what is spent on such a table or residual is not worth its line


def has_tall_attribute(problem: Problem) -> bool:
    """Whether tables are asked at levels of one attribute with so many cells that other designs fall back to noise on
    every query, after minutes. None could err less by more than this one is above its bound."""
    place = level_attribute_position(problem.workload)
    return place is not None and problem.workload.domain.shape[place] > _TALL


def design_geography(problem: Problem) -> list[Design]:
    """Whole tables where the best precisions are theirs, else residuals; none for what is not of this kind.

    For the mean error under Gaussian noise of tables of cells at levels of one attribute that lie in each other.
    Raises PlanError where nothing is left to be measured.
    """
    if problem.noise == "laplace" or problem.largest or level_attribute_position(problem.workload) is None:
        return []
    if sum(2**item.order * len(item.rows_each) for item in problem.workload.items) > _MOST_SETS:
        return []
    try:
        asked = AskedLevels.of(problem)
    except PlanError:
        return []
    tree = asked.tree.merged()
    public = problem.unit.total_is_public
    replaced = problem.unit.neighbours is Neighbours.REPLACE_ONE
    found = allocate_precisions(asked, tree, replaced=replaced, public=public)
    tables = _table_multiples(asked, found)
    proved = None if replaced else allocation_bound(asked, tree, found)
    chosen = {k: math.sqrt(v) for k, v in (_residual_multiples(asked, found) if tables is None else tables).items()}
    return [_design_level_multiples(problem, asked, chosen, proved, residual=tables is None)]


def _design_level_multiples(
    problem: Problem,
    asked: AskedLevels,
    multiples: dict[tuple[int, Sets], float],
    proved: float | None,
    *,
    residual: bool,
) -> Design:
    keys = sorted(multiples, key=lambda k: (k[0], len(k[1]), k[1]))
    real = np.array([multiples[k] for k in keys])
    at, sets = tuple(level for level, _ in keys), tuple(s for _, s in keys)
    domain = problem.workload.domain

    def build(s: float) -> Spine:
        whole = tuple(int(m) for m in np.maximum(1, np.rint(s * real)))
        return Spine(
            domain.names,
            domain.shape,
            asked.place,
            asked.levels,
            at,
            sets,
            whole,
            residual,
            problem.unit.total_is_public,
            tuple(k for k in problem.known if isinstance(k, KnownGroups)),
        )

    entries = [m * math.prod(domain.shape[i] - 1 if residual else 1 for i in s) for (_, s), m in multiples.items()]
    bits, spread = _MOST_BITS, max(entries) / float(real.min())
    while bits > _LEAST_BITS and 2.0**61 / (2.0**bits * spread) < _RECORDS_WANTED:
        bits -= 1
    within = problem.unit.within
    notes = (f"the totals of {within.name} are public: exact, not measured, not protected",) if within else ()
    return Design("marginals", build, 2.0**bits / float(real.min()), proved, notes)


def _residual_multiples(asked: AskedLevels, found: LevelAllocation) -> dict[tuple[int, Sets], float]:
    """Per residual and level the square of its multiple: n I - J has prod n^2 times the precision."""
    out: dict[tuple[int, Sets], float] = {}
    for s, each in found.precisions.items():
        deepest = int(np.flatnonzero(each).max())
        out |= {
            (level, s): float(a) / asked.cells(s) ** 2
            for level, a in enumerate(each)
            if math.isfinite(a) and (a > 0 or level == deepest)
        }
    return out


def _table_multiples(asked: AskedLevels, found: LevelAllocation) -> dict[tuple[int, Sets], float] | None:
    """Per table and level the square of its multiple, where whole tables have these precisions; else None.

    Residuals never err more than tables: these are measured where nothing is lost, as they can be read by anybody.
    """
    out: dict[tuple[int, Sets], float] = {}
    negative = 0.0
    for level in range(asked.tree.depth + 1):
        left: dict[Sets, float] = {
            s: float(each[level]) for s, each in found.precisions.items() if math.isfinite(each[level])
        }
        for s in sorted(left, key=lambda s: -len(s)):
            square = left[s]
            for inside in all_subsets(s):
                if inside in left:
                    left[inside] -= square * asked.cells(inside) / asked.cells(s)
            negative -= min(square, 0.0)
            out[level, s] = max(square, 0.0)
    spent = math.fsum(out.values())
    if negative > _NEGATIVE * spent:
        return None
    top = max(out.values())
    kept = {k: v for k, v in out.items() if v > _NONE * top}
    for s, each in found.precisions.items():
        deepest = int(np.flatnonzero(each).max())
        if not any(level == deepest and set(s) <= set(held) for level, held in kept):
            return None
    return kept
