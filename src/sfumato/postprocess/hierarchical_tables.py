"""The rungs of the hierarchical projection: total, attributes, what was asked for itself, then all tables.

Each rung is held before finer ones move. The last one, over many tables, takes the tables that agree, nearest to what
each says beyond its margins; components of held tables stay as they are. Its result is raked order by order: pairs to
single attributes, tables of three to their pairs. So every table is held to what is coarser, whatever is left of the
gap.

The last rung over one table of all attributes: the cells nearest to what every table says beyond its margins.

In an orthonormal basis of products of contrasts the coefficients of every set of attributes stand by themselves, so

    minimise sum_S |r_S(x) - y_S|^2 / s_S  over  x >= 0 with the held tables

has a diagonal Hessian, and a step of the alternating method [BPCPE11] is a transform there and back, along one
attribute at a time. What no table says is left free. Then the cells are raked to what is held.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sfumato._util.display import Progress
from sfumato.operators.base import FloatArray
from sfumato.postprocess.cones import Orthant, project_onto_simplex
from sfumato.postprocess.consistency import ConsistencyProblem, GivenTables, SplittingStep
from sfumato.postprocess.correlation import Anderson
from sfumato.postprocess.hierarchical_rungs import (
    Axes,
    DerivedQueries,
    IsPossible,
    NoisyEstimates,
    Rung,
    Sums,
    every_cell,
    held_tables,
    hierarchical_total,
    independence_table,
    proper_subsets,
    rake_cells,
)
from sfumato.postprocess.possible import CellCounts, Possible, TableCounts, TableLayout, lift_components
from sfumato.strategies.attribute_sets import locate_sets

_MEMORY = 6  # as in local.py: a small system to solve at each step
_CHECK = 20  # a bound costs about a step: a twentieth more
_MOST = 120  # six bounds; the gap says how much is left
_TOUCH = 1e-9  # of the independent table: no cell starts at zero, where raking could not move it
_SWEEPS = 60  # of raking; how far sums then are apart is said (`apart`)
# the bound grew by less than a thousandth between two checks: what more steps move is less than is shown
_SETTLED = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class AgreeingTables:
    """Nonnegative tables by their attributes; `gap` bounds the squared distance from the nearest ones that agree.

    apart: the largest difference that raking left between a table's sums and the coarser table, in records.
    """

    tables: dict[Axes, FloatArray]
    gap: float
    moved: float
    iterations: int
    apart: float


def agreeing_tables(
    sizes: Sequence[int],
    tables: Mapping[Axes, tuple[FloatArray, float]],
    held: Mapping[Axes, FloatArray],
    groups: Sequence[Sums],
    *,
    possible: IsPossible = every_cell,
    progress: Callable[[int, float], None] | None = None,
) -> AgreeingTables:
    """Tables over all sets of `tables` and `held`, which hold every set below them.

    sizes, tables, held, groups: as `joint_cells` takes them; possible: of every table. Stops where the proved bound has
    settled, or after 120 steps: the gap says how much is left. The bound holds for tables that agree, so up to `apart`.
    """
    every = sorted({*tables, *held}, key=lambda s: (len(s), s))
    largest = [s for s in every if not any(set(s) < set(t) for t in every if len(t) == len(s) + 1)]
    given, problem = _agreeing_problem(sizes, tables, held, largest)
    body = _lifted_orthant(given, problem, largest, possible)
    v = lift_components(problem.inc, problem.target)
    step = SplittingStep(problem, 1.0)
    root = np.sqrt(problem.own)
    faster = Anderson(len(v), _MEMORY)
    least = -math.inf
    done = 0
    for done in range(1, _MOST + 1):
        q = step(body.reflected(v))
        if done % _CHECK == 0:
            bound = _dual_bound(problem, step, body.multipliers(v))
            settled = bound - least <= _SETTLED * max(bound, 0.0)
            least = max(least, bound)
            if progress is not None:
                progress(done, math.nan)
            if settled:
                break
        v = faster.next(root * v, root * (q - body.nearest(v))) / root
    found = _read_tables(given, problem, step.components(body.reflected(v)), sizes, every, largest)
    found, apart = _rake_all_tables(found, held, groups, possible)
    away = np.zeros(given.closure.size)
    for axes, cells in found.items():
        away[_set_slice(given, given.closure, axes)] = cells.transpose(_component_order(given, axes)).reshape(-1)
    given.closure.centre(away)
    away = np.where(problem.free > 0, away - problem.target, 0.0)
    squared = problem.length(away) ** 2
    return AgreeingTables(found, min(max(squared - least, 0.0), squared), math.sqrt(squared), done, apart)


def _agreeing_problem(
    sizes: Sequence[int],
    tables: Mapping[Axes, tuple[FloatArray, float]],
    held: Mapping[Axes, FloatArray],
    largest: Sequence[Axes],
) -> tuple[GivenTables, ConsistencyProblem]:
    """Where tables are, and what is minimised."""
    shapes = [tuple(sizes[i] for i in s) for s in largest]
    given = GivenTables.read(sizes, largest, [np.zeros(n) for n in shapes], None)
    target, precision = np.zeros(given.closure.size), np.ones(given.closure.size)
    free = np.ones(given.closure.size)
    for axes in {*tables, *held}:
        place = _set_slice(given, given.closure, axes)
        fixed = axes in held
        cells, spread = (held[axes], 1.0) if fixed else tables[axes]
        target[place] = cells.transpose(_component_order(given, axes)).reshape(-1)
        precision[place] = 1 / spread
        free[place] = 0.0 if fixed else 1.0
    given.closure.centre(target)
    problem = ConsistencyProblem(given, precision, target, None)
    problem.free = free
    return given, problem


def _set_slice(given: GivenTables, layout: TableLayout, axes: Axes) -> slice:
    """Where what belongs to a set stands among all of a layout."""
    row = np.sort(_axis_ranks(given, axes)).astype(np.int32).reshape(1, len(axes))
    at = int(locate_sets(layout.sets[len(axes)], row, len(given.sizes))[0])
    first = int(layout.starts[len(axes)][at])
    return slice(first, first + math.prod(int(n) for n in given.sizes[row[0]]))


def _component_order(given: GivenTables, axes: Axes) -> NDArray[np.intp]:
    """The order of a table's attributes in its component."""
    return np.argsort(_axis_ranks(given, axes), kind="stable")


def _axis_ranks(given: GivenTables, axes: Axes) -> NDArray[np.intp]:
    return np.argsort(given.rank, kind="stable")[list(axes)]


def _lifted_orthant(
    given: GivenTables, problem: ConsistencyProblem, largest: Sequence[Axes], possible: IsPossible
) -> Orthant:
    """What the cells of the largest tables can be, as they are lifted."""
    masks = {s: m for s in largest if (m := possible(s)) is not None}
    if not masks:
        return Orthant(None)
    flat = np.ones(problem.layout.size, dtype=bool)
    for axes, mask in masks.items():
        flat[_set_slice(given, problem.layout, axes)] = mask.transpose(_component_order(given, axes)).reshape(-1)
    return Orthant(flat)


def _dual_bound(problem: ConsistencyProblem, step: SplittingStep, held: FloatArray) -> float:
    """A bound from below on the squared distance of any tables that can be, by the multipliers of the state.

    Any such x is at the squared distance |x - x*|^2 <= f(x) - f(x*) from the nearest x*, so what this bound leaves of
    f(x) is a gap.
    """
    multipliers = step.weight * held
    pulled = problem.target + problem.free * problem.collect(multipliers) / problem.precision
    away = problem.length(pulled - problem.target)
    return away**2 - 2 * float(multipliers @ lift_components(problem.inc, pulled))


def _read_tables(
    given: GivenTables,
    problem: ConsistencyProblem,
    components: FloatArray,
    sizes: Sequence[int],
    every: Sequence[Axes],
    largest: Sequence[Axes],
) -> dict[Axes, FloatArray]:
    """The tables with these components: they agree, and may still be a little negative."""
    flat = lift_components(problem.inc, components)
    out: dict[Axes, FloatArray] = {}
    for axes in largest:
        turn = _component_order(given, axes)
        shape = [sizes[axes[i]] for i in turn]
        out[axes] = flat[_set_slice(given, problem.layout, axes)].reshape(shape).transpose(np.argsort(turn))
    for axes in sorted(every, key=len, reverse=True):
        for i in range(len(axes)):
            below = axes[:i] + axes[i + 1 :]
            if axes in out and below not in out:
                out[below] = out[axes].sum(axis=i)
    return out


def _rake_all_tables(
    found: Mapping[Axes, FloatArray],
    held: Mapping[Axes, FloatArray],
    groups: Sequence[Sums],
    possible: IsPossible,
) -> tuple[dict[Axes, FloatArray], float]:
    """Nonnegative tables, every one with the sums of those below it, and the largest difference that was left.

    Tables in which counts were named come first, and what they say of fewer attributes is held by all others.
    """
    out: dict[Axes, FloatArray] = dict(held)
    apart = 0.0
    waiting = list(groups)
    named = sorted({g.axes for g in groups}, key=lambda s: (-len(s), s))
    for axes in [*named, *sorted(found, key=lambda s: (len(s), s))]:
        if axes in out:
            continue
        asked = [g for g in waiting if set(g.axes) <= set(axes)]
        waiting = [g for g in waiting if not set(g.axes) <= set(axes)]
        coarser = [s for s in proper_subsets(axes) if s in out]
        nearest = [Sums(s, out[s]) for s in coarser if not any(set(s) < set(t) for t in coarser)]
        mask = possible(axes)
        start = Orthant(mask).nearest(found[axes]) + _TOUCH * independence_table(axes, held, mask)
        inner = [replace(s, axes=tuple(axes.index(i) for i in s.axes)) for s in [*asked, *nearest]]
        out[axes] = rake_cells(start, inner, sweeps=_SWEEPS)
        apart = max([apart, *(float(np.abs(s.of(out[axes]) - s.wanted).max()) for s in inner[len(asked) :])])
        for s in proper_subsets(axes) if asked else ():
            out.setdefault(s, out[axes].sum(axis=tuple(k for k, i in enumerate(axes) if i not in s)))
    return out, apart


_CHECK_CONE = 40  # a proof rakes the cells, which costs as much as many steps
_MOST_CONE = 240  # six proofs; what ends here says its gap
_SCALE = 0.5  # of the splitting, in units of the typical precision
_TOUCH_CONE = 1e-9  # of the start, which is positive where anything is possible: far below one record


@dataclass(frozen=True, slots=True, eq=False)
class JointCells:
    """Nonnegative cells; `gap` bounds the squared distance from the nearest ones, `moved` is from what was told."""

    cells: FloatArray
    gap: float
    moved: float
    iterations: int


def joint_cells(
    sizes: Sequence[int],
    tables: Mapping[Axes, tuple[FloatArray, float]],
    held: Mapping[Axes, FloatArray],
    groups: Sequence[Sums],
    *,
    possible: NDArray[np.bool_] | None = None,
    tolerance: float = 3e-2,
    progress: Callable[[int, float], None] | None = None,
) -> JointCells:
    """Cells shaped by `sizes`, all of them possible: no held table of one attribute has a zero.

    tables: per set of attributes its noisy cells, and the variance of what they have beyond their means. held: tables
    that stay, the total and every attribute among them; groups: named counts that stay, where the held tables allow
    them. possible: other cells are 0.
    Stops where the gap is `tolerance`^2 of the squared distance moved, or after 240 steps: the gap says which.
    """
    margins = [Sums(s, t) for s, t in held.items() if s]
    start = rake_cells(independence_table(range(len(sizes)), held, possible), [*groups, *margins])
    kept = [g.met_by(start) for g in groups]
    problem = _JointProblem(tuple(sizes), tables, held, kept)
    body = Orthant(possible)
    sums = [*kept, *margins]
    v = problem.cells(np.where(problem.precision > 0, problem.target, problem.kept))
    faster = Anderson(v.size, _MEMORY)
    best = JointCells(start, math.inf, math.inf, 0)
    for iteration in range(1, _MOST_CONE + 1):
        q = problem.cells(problem.step(body.reflected(v)))
        if iteration % _CHECK_CONE == 0:
            # a touch of what is possible, so that no sum is out of reach
            x = rake_cells(body.nearest(v) + _TOUCH_CONE * start, sums)
            squared, gap = problem.certify(x, problem.scale * body.multipliers(v), possible)
            if gap < best.gap or squared < best.moved**2:
                best = JointCells(x, gap, math.sqrt(squared), iteration)
            if progress is not None:
                progress(iteration, best.gap)
            if best.gap <= (tolerance * best.moved) ** 2:
                break
        v = faster.next(v.reshape(-1), (q - body.nearest(v)).reshape(-1)).reshape(v.shape)
    return best


class _JointProblem:
    """Coefficients of the cells: what is told of them, how precisely, and which are held."""

    def __init__(
        self,
        sizes: tuple[int, ...],
        tables: Mapping[Axes, tuple[FloatArray, float]],
        held: Mapping[Axes, FloatArray],
        groups: Sequence[Sums],
    ) -> None:
        self.sizes, self.held = sizes, held
        self.bases = [_orthonormal_contrasts(n) for n in sizes]
        self.target, self.precision = np.zeros(sizes), np.zeros(sizes)
        free = np.ones(sizes, dtype=bool)
        for axes, (cells, spread) in tables.items():
            own = self._own(axes)
            rest = math.prod(n for i, n in enumerate(sizes) if i not in axes)
            self.target[own] = self._inner(axes, cells, rest)
            self.precision[own] = rest / spread
        for axes, cells in held.items():
            rest = math.prod(n for i, n in enumerate(sizes) if i not in axes)
            own = self._own(axes)
            self.target[own], free[own], self.precision[own] = self._inner(axes, cells, rest), False, 0.0
        self.free = free
        self.kept = np.where(free, 0.0, self.target)
        told = self.precision[self.precision > 0]
        self.scale = _SCALE * float(np.exp(np.log(told).mean())) if told.size else 1.0
        self.gain = np.where(free, 1 / (self.precision + self.scale), 0.0)
        self._fixed = np.where(free, self.precision * self.target * self.gain, self.target)
        self._bind(groups)

    def _bind(self, groups: Sequence[Sums]) -> None:
        """The equations of the groups, over the coefficients of their attributes."""
        places = np.arange(math.prod(self.sizes)).reshape(self.sizes)
        self._equations: list[tuple[NDArray[np.intp], FloatArray]] = []
        values: list[FloatArray] = []
        for g in groups:
            assert g.groups is not None
            count = len(g.wanted) - 1
            rows = (g.groups[None] == np.arange(count).reshape(-1, *(1,) * g.groups.ndim)).astype(np.float64)
            for k, i in enumerate(g.axes):
                rows = _apply_along_axis(self.bases[i], rows, k + 1)
            rest = math.prod(n for i, n in enumerate(self.sizes) if i not in g.axes)
            within = places[tuple(slice(None) if i in g.axes else 0 for i in range(len(self.sizes)))].reshape(-1)
            self._equations.append((within, rows.reshape(count, -1) * math.sqrt(rest)))
            values.append(g.wanted[:-1])
        self._values = np.concatenate([np.empty(0), *values])
        self._pull = np.zeros(self.sizes)
        if len(self._values):
            gains = np.stack([self._sums(self.gain * self._back(u)) for u in np.eye(len(self._values))], axis=1)
            self._inverse = np.linalg.pinv(gains, rcond=1e-10, hermitian=True)

    def _sums(self, coefficients: FloatArray) -> FloatArray:
        flat = coefficients.reshape(-1)
        return np.concatenate([rows @ flat[within] for within, rows in self._equations])

    def _back(self, weights: FloatArray) -> FloatArray:
        out = np.zeros(math.prod(self.sizes))
        start = 0
        for within, rows in self._equations:
            out[within] += weights[start : start + len(rows)] @ rows
            start += len(rows)
        return out.reshape(self.sizes)

    def _own(self, axes: Axes) -> tuple[slice | int, ...]:
        """Where the coefficients of exactly this set stand."""
        return tuple(slice(1, None) if i in axes else 0 for i in range(len(self.sizes)))

    def _inner(self, axes: Axes, cells: FloatArray, rest: int) -> FloatArray:
        """Those of a table over these attributes."""
        out = np.asarray(cells, dtype=np.float64)
        for k, i in enumerate(axes):
            out = _apply_along_axis(self.bases[i], out, k)
        return out[(slice(1, None),) * len(axes)] / math.sqrt(rest)

    def coefficients(self, cells: FloatArray) -> FloatArray:
        """The transform."""
        for i, basis in enumerate(self.bases):
            cells = _apply_along_axis(basis, cells, i)
        return cells

    def cells(self, coefficients: FloatArray) -> FloatArray:
        """Its inverse."""
        for i, basis in enumerate(self.bases):
            coefficients = _apply_along_axis(basis.T, coefficients, i)
        return coefficients

    def step(self, cells: FloatArray) -> FloatArray:
        """The coefficients that weigh what is told against being near to these cells."""
        out = self._fixed + (self.scale * self.gain) * self.coefficients(cells)
        if len(self._values):
            self._pull = self._back(self._inverse @ (self._sums(out) - self._values))
            out -= self.gain * self._pull
        return out

    def certify(
        self, x: FloatArray, multipliers: FloatArray, possible: NDArray[np.bool_] | None = None
    ) -> tuple[float, float]:
        """(squared distance moved, bound on the squared distance from the nearest cells).

        The slope g at x bounds it by <g, x - y> for the nearest y, which is at most <g - f, x> - min <g - f, y> for
        any f that is a sum of functions of what is held: <f, y> is the same for both. The multipliers suggest f, and
        what is left below zero is bounded by the held counts of its cells.
        """
        away = np.where(self.free, self.coefficients(x) - self.target, 0.0)
        slope = self.precision * away
        squared = float(np.vdot(slope, away))
        left = self.cells(np.where(self.free, slope + self._pull, self.coefficients(multipliers)))
        if possible is not None:  # where x and y are both 0
            left = np.where(possible, left, 0.0)
        gap = float(np.vdot(left, x))
        for axes in [a for a in self.held if a]:
            low = np.minimum(left.min(axis=tuple(a for a in range(left.ndim) if a not in axes)), 0.0)
            gap -= float(np.vdot(low, self.held[axes]))
            left = left - low.reshape([n if i in axes else 1 for i, n in enumerate(self.sizes)])
        return squared, min(max(gap, 0.0), squared)


def _apply_along_axis(matrix: FloatArray, values: FloatArray, axis: int) -> FloatArray:
    shape = values.shape
    pre, post = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    return np.matmul(matrix, values.reshape(pre, shape[axis], post)).reshape(
        *shape[:axis], matrix.shape[0], *shape[axis + 1 :]
    )


def _orthonormal_contrasts(size: int) -> FloatArray:
    """(n, n) orthonormal rows, the first constant."""
    out = np.zeros((size, size))
    out[0] = 1 / math.sqrt(size)
    for i in range(1, size):
        out[i, :i] = 1.0
        out[i, i] = -i
        out[i] /= math.sqrt(i * (i + 1))
    return out


_CELLS = 2**20  # 8 MB a joint table: up to here the cone over all cells, beyond it tables that agree
_WORK = 2**27  # cells times the sizes of all attributes: some 20 CPU seconds of transforms
_CERTAIN = 1e-6  # of the largest variance: what is known exactly weighs a million times, and the system stays sound
_GIVE = 1e-5  # of its variance, per unit of a named count's multiplier: of the order of its logarithm


@dataclass(frozen=True, slots=True, eq=False)
class HierarchicalSolution:
    """What is possible and was found, with the last rung's gap and distance, and all rungs."""

    possible: Possible
    gap: float
    moved: float
    iterations: int
    rungs: tuple[Rung, ...]


def is_joint_table_small(sizes: tuple[int, ...]) -> bool:
    """Whether one table of all attributes is small enough, by cells and by the time of its transforms."""
    cells = math.prod(sizes)
    return cells <= _CELLS and cells * sum(sizes) <= _WORK


def project_hierarchically(
    told: NoisyEstimates, *, joint: bool, progress: Progress | None = None
) -> HierarchicalSolution:
    """Answers that a table could have given, no coarse one moved for the sake of finer ones.

    The total is held (clipped at 0), then every attribute's table on the simplex of that total, then named counts,
    levels, cumulative counts and sums, as nearly as those before allow. Last the tables move to the least sum over
    sets of attributes of squared distances of what they have beyond their margins, each in units of its noise.
    joint: over one table of all attributes, the cone; else over tables that agree.
    """
    total = hierarchical_total(told)
    held = held_tables(told, total)
    kept = [np.flatnonzero(held[i,] > 0) for i in range(len(told.sizes))]
    if total == 0:
        kept = [np.arange(1) for _ in told.sizes]

    def cut(values: FloatArray, axes: Axes) -> FloatArray:
        return values[np.ix_(*(kept[i] for i in axes))] if axes else values

    def padded(values: FloatArray, axes: Axes) -> FloatArray:
        out = np.zeros(tuple(told.sizes[i] for i in axes))
        if axes:
            out[np.ix_(*(kept[i] for i in axes))] = values
        return out if axes else np.asarray(values)

    def possible_cells(axes: Axes) -> NDArray[np.bool_] | None:
        mask = told.possible(axes)
        return None if mask is None else mask[np.ix_(*(kept[i] for i in axes))]

    # where an attribute's count is zero, so is all that is finer
    small = {s: cut(t, s) for s, t in held.items()}
    sizes = [len(k) for k in kept]
    asked = [a for a in told.asked if len(a.axes) > 1 and a.groups and a.axes not in held]
    groups = [_possible_groups(a, small, cut(_group_numbers(a), a.axes), possible_cells(a.axes)) for a in asked]
    finer = {s: (cut(t, s), told.spread[s]) for s, t in told.tables.items() if s not in held}
    if joint:
        every = tuple(range(len(sizes)))
        done = joint_cells(sizes, finer, small, groups, possible=possible_cells(every), progress=progress)
        possible: Possible = CellCounts(told.names, padded(done.cells, every))
        gap, moved, steps = done.gap, done.moved, done.iterations
    else:
        found = agreeing_tables(sizes, finer, small, groups, possible=possible_cells, progress=progress)
        named = tuple(tuple(told.names[i] for i in s) for s in found.tables)
        possible = TableCounts(named, tuple(padded(t, s) for s, t in found.tables.items()))
        gap, moved, steps = found.gap, found.moved, found.iterations
    return HierarchicalSolution(possible, gap, moved, steps, _rung_summaries(told, held, asked, groups, possible))


def _group_numbers(asked: DerivedQueries) -> FloatArray:
    """The group of every cell; those in none are the last."""
    return np.where(asked.rows.sum(axis=0) > 0, asked.rows.argmax(axis=0), len(asked.rows)).astype(np.float64)


def _possible_groups(
    asked: DerivedQueries, held: Mapping[Axes, FloatArray], numbers: FloatArray, possible: NDArray[np.bool_] | None
) -> Sums:
    """Counts of groups and of the rest: what was said, as nearly as the attributes by themselves allow it."""
    total = float(held[()])
    rest = total - float(asked.values.sum())
    spread = np.maximum(asked.variances, _CERTAIN * float(asked.variances.max()) or 1.0)
    spread = np.append(spread, spread.sum())
    wanted = project_onto_simplex(np.append(asked.values, rest), total, spread)
    sums = Sums(asked.axes, wanted, numbers.astype(np.intp), give=_GIVE * spread)
    axes = tuple(range(len(asked.axes)))
    own = replace(sums, axes=axes)
    margins = [Sums((k,), held[i,]) for k, i in enumerate(asked.axes)]
    met = own.met_by(rake_cells(independence_table(asked.axes, held, possible), [own, *margins]))
    return replace(sums, wanted=met.wanted)


def _rung_summaries(
    told: NoisyEstimates,
    held: Mapping[Axes, FloatArray],
    asked: list[DerivedQueries],
    groups: list[Sums],
    possible: Possible,
) -> tuple[Rung, ...]:
    """How far each rung moved, and how nearly it is held."""

    def table(axes: Axes) -> FloatArray:
        return possible.table([told.names[i] for i in axes])

    out: list[Rung] = []
    single = [(i,) for i in range(len(told.sizes))]
    for name, sets in (("total", [()]), ("tables of one attribute", single)):
        sets = [s for s in sets if told.variances.get(s, 0.0) > 0]
        unit = [math.sqrt(told.variances[s]) for s in sets]
        moved = [((table(s) - told.tables[s]) / u).reshape(-1) for s, u in zip(sets, unit, strict=True)]
        missed = [((table(s) - held[s]) / u).reshape(-1) for s, u in zip(sets, unit, strict=True)]
        if sets:
            out.append(_summarize_rung(name, moved, missed))
    for a in told.asked:
        units = np.sqrt(np.maximum(a.variances, _CERTAIN * float(a.variances.max(initial=0.0)) or 1.0))
        if len(a.axes) > 1 and a.axes not in held and not any(a is b for b in asked):
            continue
        now = np.tensordot(a.rows, table(a.axes), axes=len(a.axes))
        goal = now
        for b, g in zip(asked, groups, strict=True):
            goal = g.wanted[: len(now)] if a is b else goal
        if a.axes in held:
            goal = np.tensordot(a.rows, held[a.axes], axes=len(a.axes))
        out.append(_summarize_rung(a.name, [(now - a.values) / units], [(now - goal) / units]))
    return tuple(out)


def _summarize_rung(name: str, moved: list[FloatArray], missed: list[FloatArray]) -> Rung:
    one, two = np.concatenate(moved), np.concatenate(missed)
    return Rung(name, len(one), math.sqrt(float(np.mean(one**2))), math.sqrt(float(np.mean(two**2))))
