"""Noisy marginal tables to the nearest ones that agree with each other and have no negative cell.

Tables agree exactly where they have one component r_S per set S (`margins`), and in these components the weighted
distance is a sum: for tables y_A of precision w_A it is, up to a constant, sum_S p_S |r_S - r^_S|^2 with
p_S = sum_{A > S} w_A / n_{A - S} and r^_S the weighted mean of what the tables say. So equal noise and residual
noise are one problem: minimise that sum subject to tables(r) >= 0.

Solved by alternating between the affine space and the nonnegative tables [BPCPE11] with one array v as state (its
positive part the nonnegative tables, its negative part the multipliers), the iteration accelerated [And65]. For
feasible x and multipliers l >= 0, with r(l) the unconstrained optimum for these multipliers, a = |x - r(l)| and
b = <l, x>, the distance D of x from the projection satisfies D^2 <= a D + b: the certificate.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato._util.codec import storable
from sfumato.domain.core import Domain
from sfumato.domain.impossible import Tied, joint_possible_mask
from sfumato.errors import InvalidInput
from sfumato.operators.base import FloatArray
from sfumato.postprocess.cones import Orthant
from sfumato.postprocess.correlation import Anderson
from sfumato.postprocess.possible import Incidence, TableLayout, collect_components, lift_components
from sfumato.strategies.attribute_sets import Sets, distinct_sets, downward_closure, locate_sets

_LEFT = 1e-12  # of the largest cell, what may be left of a cell: far below one record
_MOST = 500  # steps; in practice some tens


@storable
@dataclass(frozen=True, slots=True, eq=False)
class Zeros:
    """What a domain declares impossible, of the attributes named: positions below are among these names.

    sizes: cells of every attribute; tied: groups of attributes with those of their joint cells that can be.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    tied: tuple[Tied, ...]

    @classmethod
    def of(cls, domain: Domain, names: Sequence[str]) -> Zeros | None:
        """Of these attributes of a domain; None where none of their cells is impossible."""
        found = cls(tuple(names), domain.sizes(names), domain.tied)
        return None if joint_possible_mask(domain.tied, found.names) is None else found

    def possible(self, axes: Sequence[int]) -> NDArray[np.bool_] | None:
        """Which cells of the table over positions can hold a record, shaped by them; None where all can."""
        mask = joint_possible_mask(self.tied, [self.names[a] for a in axes])
        return None if mask is None else np.broadcast_to(mask, [self.sizes[a] for a in axes])

    def allowed(self) -> list[tuple[tuple[int, ...], NDArray[np.bool_]]]:
        """Of every group its positions, ascending, and which of their joint cells can hold a record."""
        ties = (tuple(i for i, a in enumerate(self.names) if a in g.attributes) for g in self.tied)
        found = ((axes, self.possible(axes)) for axes in ties)
        return [(axes, mask) for axes, mask in found if mask is not None]

    def even(self, axes: Sequence[int]) -> FloatArray:
        """Shares of the cells over positions where every possible record over all names is as frequent as any other.

        Positive wherever a record can be. Tables of different positions agree.
        """
        named = [self.names[a] for a in axes]
        parts: list[FloatArray] = []
        for group in self.tied:
            own = [a for a in group.attributes if a in self.names]
            if not set(own) & set(named):
                continue
            drop = tuple(i for i, a in enumerate(group.attributes) if a not in own)
            counts = group.allowed.any(axis=drop).astype(np.float64)
            table = counts.sum(axis=tuple(i for i, a in enumerate(own) if a not in named)) / counts.sum()
            kept = [a for a in own if a in named]
            turned = table.transpose([kept.index(a) for a in named if a in kept])
            parts.append(np.expand_dims(turned, tuple(i for i, a in enumerate(named) if a not in kept)))
        tied = {a for g in self.tied for a in g.attributes}
        alone = math.prod(self.sizes[a] for a in axes if self.names[a] not in tied)
        found = functools.reduce(np.multiply, parts, np.array(1.0 / alone))
        return np.broadcast_to(found, [self.sizes[a] for a in axes])


def nearest_with_zeros(
    closure: TableLayout, inc: Incidence, r: FloatArray, held: NDArray[np.bool_], inverse: FloatArray
) -> FloatArray:
    """The components nearest to r whose tables are 0 in the cells `held`, flat.

    inverse: one over the weights of the norm; 0 of what may not move. By conjugate gradients on the multipliers of
    these cells, which say the same several times but never what contradicts.
    """
    tables = lift_components(inc, r)
    away, pull = np.where(held, tables, 0.0), np.zeros(len(tables))
    along, square, enough = away, float(away @ away), _LEFT * float(np.abs(tables).max(initial=0.0))
    for _ in range(_MOST):
        if float(np.abs(away).max(initial=0.0)) <= enough:
            break
        change = np.where(held, lift_components(inc, inverse * collect_components(closure, inc, along)), 0.0)
        length = square / float(along @ change)
        pull, away = pull + length * along, away - length * change
        before, square = square, float(away @ away)
        along = away + square / before * along
    return r - inverse * collect_components(closure, inc, pull)


_MEMORY = 8  # a small system to solve at each step; Anderson's acceleration is used with some 5 to 10
_CHECK = 8  # a proof costs about a step: an eighth more
_CHECK_ZEROS = 32  # where cells are held at 0 a proof costs some tens of steps
_MOST_LOCAL = 5000  # what ends here says its gap
# the square of some 50 roundings of a double: a squared distance below that of the target is rounding
_ROUNDING = 1e-28


@dataclass(frozen=True, slots=True)
class ResidualNoise:
    """The variance of every residual of an estimate whose residuals are independent.

    sets: per order from 0 on (count, order) ascending positions; variances: per order (count,), positive. The
    residual of a set is its table less the means along its attributes; its noise has this variance times the
    centring. Sets with an attribute of one cell may be left out, and so may the total where it is known.
    """

    sets: tuple[Sets, ...]
    variances: tuple[FloatArray, ...]


@dataclass(frozen=True, slots=True, eq=False)
class LocalSolution:
    """Consistent nonnegative tables, nearest to given ones.

    tables: in the order and shapes they came in. gap: a proved bound on the squared distance in the projected
    norm from the true projection. moved: distance from the given tables in that norm. total: of every table.
    """

    tables: list[FloatArray]
    gap: float
    certified: bool
    moved: float
    iterations: int
    total: float


def project_onto_local(
    sizes: Sequence[int],
    sets: Sequence[Sequence[int]],
    values: Sequence[ArrayLike],
    variances: ArrayLike | ResidualNoise,
    total: float | None = None,
    *,
    tolerance: float = 1e-2,
    progress: Callable[[int, float], None] | None = None,
    zeros: Zeros | None = None,
) -> LocalSolution:
    """The tables that agree on all common attributes and have no negative cell, nearest to `values`.

    sizes: cells of every attribute. sets: positions of the attributes of each table; values: the tables, shaped
    by them. variances: one per table, of the noise of its cells (one number for all), or `ResidualNoise`, which
    makes the norm that of the residuals. total: what every table sums to; None leaves it free. tolerance: stop
    where the certified distance is at most this share of the distance moved; after 5,000 iterations the gap is
    stated as it is. zeros: what no record can be in, by the same positions; tables are 0 there. Raises InvalidInput for
    tables that do not fit their sizes, and for variances not positive.

    Formal guarantee: for every consistent nonnegative truth (with that total) the exact projection is no farther
    from it in the norm than `values` are; the result is within sqrt(gap) of the exact projection.
    """
    given = GivenTables.read(sizes, sets, values, total)
    problem = _consistency_problem(given, variances, total)
    if zeros is not None:
        problem.empty(given, zeros)
    r, gap, iterations = _solve_consistency(problem, tolerance, progress)
    fitted = given.tables(r)
    if zeros is not None:
        masks = [zeros.possible(s) for s in sets]
        fitted = [x if m is None else np.where(m, x, 0.0) for x, m in zip(fitted, masks, strict=True)]
    if isinstance(variances, ResidualNoise):
        moved = problem.length(r - problem.target)
    else:
        away = [np.asarray(y, dtype=np.float64) - x for y, x in zip(values, fitted, strict=True)]
        each = np.broadcast_to(np.asarray(variances, dtype=np.float64), (len(away),)).tolist()
        moved = math.sqrt(sum(float(np.vdot(d, d)) / v for d, v in zip(away, each, strict=True)))
    return LocalSolution(fitted, gap, True, moved, iterations, float(r[0]))


class GivenTables:
    """The given tables along ascending sizes, the same set once for each time it is given."""

    def __init__(self, sizes: NDArray[np.int64], axes: list[tuple[int, ...]], values: list[FloatArray]) -> None:
        self.rank = np.argsort(sizes, kind="stable")
        place = np.argsort(self.rank, kind="stable")
        self.sizes = sizes[self.rank]
        self.values = values
        self.turned = [tuple(np.argsort(place[list(a)], kind="stable").tolist()) for a in axes]
        rows = [np.sort(place[list(a)]) for a in axes]
        top = max(len(a) for a in axes)
        self.where = [np.array([i for i, a in enumerate(axes) if len(a) == k], dtype=np.intp) for k in range(top + 1)]
        self.rows = [
            np.array([rows[i] for i in w], dtype=np.int32).reshape(len(w), k) for k, w in enumerate(self.where)
        ]
        self.layout = TableLayout(self.sizes, self.rows)
        self.closure = TableLayout(self.sizes, downward_closure(self.rows, len(sizes)))
        self.incidence = Incidence(self.layout, self.closure)
        self.number = np.empty(len(axes), dtype=np.intp)
        self.start = np.empty(len(axes), dtype=np.intp)
        for k, (w, found) in enumerate(zip(self.where, self.rows, strict=True)):
            if len(w):
                at = locate_sets(self.layout.sets[k], found, len(sizes))
                self.number[w], self.start[w] = self.layout.numbers[k][at], self.layout.starts[k][at]

    @classmethod
    def read(
        cls, sizes: Sequence[int], sets: Sequence[Sequence[int]], values: Sequence[ArrayLike], total: float | None
    ) -> GivenTables:
        """Raises InvalidInput."""
        cells = np.asarray(sizes, dtype=np.int64)
        axes = [tuple(int(a) for a in s) for s in sets]
        tables = [np.asarray(v, dtype=np.float64) for v in values]
        if not axes or len(axes) != len(tables):
            raise InvalidInput(f"{len(axes)} sets of attributes and {len(tables)} tables; give one table per set")
        if total is not None and not (math.isfinite(total) and total >= 0):
            raise InvalidInput(f"total is a finite number that is not negative, or None, not {total!r}")
        for a, table in zip(axes, tables, strict=True):
            if len(set(a)) != len(a) or not all(0 <= i < len(cells) for i in a):
                raise InvalidInput(f"{a} does not name distinct positions below {len(cells)}")
            if table.shape != tuple(cells[list(a)].tolist()):
                raise InvalidInput(f"the table over {a} has shape {table.shape}, not {tuple(cells[list(a)].tolist())}")
            if not np.isfinite(table).all():
                raise InvalidInput(f"the table over {a} has cells that are not finite numbers")
        return cls(cells, axes, tables)

    def sums(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(for each component the sum of the weights of the tables above, that of their weighted components)."""
        weight, value = np.zeros(self.layout.count), np.zeros(self.layout.size)
        np.add.at(weight, self.number, weights)
        for table, turn, start, w in zip(self.values, self.turned, self.start.tolist(), weights.tolist(), strict=True):
            value[start : start + table.size] += w * table.transpose(turn).reshape(-1)
        return _sum_to_components(self.incidence, self.layout.each(weight), weight), collect_components(
            self.closure, self.incidence, value
        )

    def tables(self, r: FloatArray) -> list[FloatArray]:
        """The tables with these components, as the given ones are ordered and shaped."""
        flat = np.maximum(lift_components(self.incidence, r), 0.0)
        out: list[FloatArray] = []
        for table, turn, start in zip(self.values, self.turned, self.start.tolist(), strict=True):
            shape = tuple(table.shape[a] for a in turn)
            found = flat[start : start + table.size].reshape(shape)
            out.append(np.ascontiguousarray(found.transpose(np.argsort(turn))) if shape else found.copy())
        return out


def _sum_to_components(inc: Incidence, cells: FloatArray, weights: FloatArray) -> FloatArray:
    """For every cell of a component the sum of the weights of the tables above, each divided by what is spread."""
    out = np.zeros(inc.closure.size)
    out[inc.own] = cells
    out[: inc.low] += inc.gather(weights[inc.owner] * inc.rest)
    return out


class ConsistencyProblem:
    """minimise sum p |r - target|^2 over components r whose largest tables are nonnegative."""

    def __init__(self, given: GivenTables, precision: FloatArray, target: FloatArray, total: float | None) -> None:
        attributes = len(given.sizes)
        largest: list[Sets] = []
        for k, rows in enumerate(given.layout.sets):
            above = [np.delete(s, c, axis=1) for s in given.closure.sets[k + 1 : k + 2] if len(s) for c in range(k + 1)]
            covered = distinct_sets(np.concatenate(above), attributes) if above else rows[:0]
            largest.append(rows[locate_sets(covered, rows, attributes) < 0])
        self.layout = TableLayout(given.sizes, largest)
        self.closure, self.inc = given.closure, Incidence(self.layout, given.closure)
        self.precision, self.target, self.total = precision, target, total
        self.free = np.ones(self.closure.size)
        if total is not None:
            self.free[0], self.target[0] = 0.0, total
        # the tables' own precision is the natural weight of the splitting
        self.own = precision[self.inc.own]
        self.body = Orthant(None)
        self.even: FloatArray | None = None  # components of a table that is positive wherever a record can be
        self.each = np.empty(self.layout.count)
        for rows, starts, numbers in zip(self.layout.sets, self.layout.starts, self.layout.numbers, strict=True):
            if len(rows):
                self.each[numbers] = self.own[starts]

    def length(self, r: FloatArray) -> float:
        """In the projected norm."""
        return math.sqrt(float(np.einsum("i,i,i->", self.precision, r, r)))

    def collect(self, tables: FloatArray) -> FloatArray:
        """The components of tables."""
        return collect_components(self.closure, self.inc, tables)

    def empty(self, given: GivenTables, zeros: Zeros) -> None:
        """Hold the cells at 0 that no record can be in."""
        flat, self.even = np.ones(self.layout.size, dtype=bool), np.empty(self.closure.size)
        for layout, wanted in ((self.layout, False), (self.closure, True)):
            for rows, starts in zip(layout.sets, layout.starts, strict=True):
                for row, start in zip(rows.tolist(), starts.tolist(), strict=True):
                    axes = [int(given.rank[i]) for i in row]
                    if wanted:
                        table = zeros.even(axes)
                        self.even[start : start + table.size] = table.reshape(-1)
                    elif (mask := zeros.possible(axes)) is not None:
                        flat[start : start + mask.size] = mask.reshape(-1)
        self.closure.centre(self.even)
        self.body = Orthant(flat)

    def emptied(self, r: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(the nearest components whose tables are 0 where they have to be, these tables)"""
        tables = lift_components(self.inc, r)
        if self.body.possible is None:
            return r, tables
        r = nearest_with_zeros(self.closure, self.inc, r, ~self.body.possible, self.free / self.precision)
        return r, np.where(self.body.possible, lift_components(self.inc, r), 0.0)


class SplittingStep:
    """tables -> tables of the components (p target + s * collected)/ (p + s k), s the splitting's weight."""

    def __init__(self, problem: ConsistencyProblem, scale: float) -> None:
        inc, low = problem.inc, problem.inc.low
        self._problem, self.scale = problem, scale
        weights = scale * problem.each
        self.weight = scale * problem.own
        self._bound = _sum_to_components(inc, self.weight, weights)
        self._share = problem.precision / (problem.precision + self._bound)
        self.gain = problem.free / (problem.precision + self._bound)
        self.fixed = np.where(problem.free > 0, self._share, 1.0) * problem.target
        self._offset = lift_components(inc, self.fixed)
        self._low = self.gain[:low]
        self._in = weights[inc.owner] * inc.rest
        top = self.gain[inc.own] * self.weight
        self._top = top
        owned = np.empty(problem.layout.count)
        for rows, starts, numbers in zip(
            problem.layout.sets, problem.layout.starts, problem.layout.numbers, strict=True
        ):
            if len(rows):
                owned[numbers] = top[starts]
        self._out = owned[inc.owner] * inc.rest * inc.sign

    def __call__(self, tables: FloatArray) -> FloatArray:
        inc = self._problem.inc
        shares = inc.shares(tables)
        low = inc.gather(shares * self._in)
        self._problem.closure.centre(low)
        low *= self._low
        shares *= self._out
        shares += low[inc.index] * inc.rest
        out = tables * self._top
        out += self._offset
        inc.spread(shares, out)
        return out

    def components(self, tables: FloatArray) -> FloatArray:
        """The same as components."""
        return self.fixed + self.gain * self._problem.collect(self.weight * tables)


def _consistency_problem(
    given: GivenTables, variances: ArrayLike | ResidualNoise, total: float | None
) -> ConsistencyProblem:
    count = len(given.values)
    if not isinstance(variances, ResidualNoise):
        spread = np.asarray(variances, dtype=np.float64)
        if spread.shape not in ((), (count,)) or not np.all((spread > 0) & np.isfinite(spread)):
            raise InvalidInput(f"variances are positive numbers, one for each of the {count} tables or one for all")
        precision, collected = given.sums(np.broadcast_to(1 / spread, (count,)))
        return ConsistencyProblem(given, precision, collected / precision, total)
    weights, collected = given.sums(np.ones(count))
    return ConsistencyProblem(given, _residual_precision(given, variances, total), collected / weights, total)


def _residual_precision(given: GivenTables, noise: ResidualNoise, total: float | None) -> FloatArray:
    """Per cell of every component. Raises InvalidInput where a residual's variance is missing."""
    place = np.argsort(given.rank, kind="stable").astype(np.int32)
    found: list[FloatArray] = []
    attributes = len(given.sizes)
    for k, wanted in enumerate(given.closure.sets):
        out = np.ones(len(wanted))
        needed = np.all(given.sizes[wanted] > 1, axis=1) if k else np.array([total is None])
        if k < len(noise.sets) and len(noise.sets[k]):
            known = np.sort(place[noise.sets[k]], axis=1)
            spread = np.asarray(noise.variances[k], dtype=np.float64)
            rows = distinct_sets(known, attributes)
            ordered = np.empty(len(rows))
            ordered[locate_sets(rows, known, attributes)] = spread
            at = locate_sets(rows, wanted, attributes)
            here = (at >= 0) & needed
            if not np.all((ordered[at[here]] > 0) & np.isfinite(ordered[at[here]])):
                raise InvalidInput("the variance of a residual is a positive number; a known total is given as total=")
            out[here] = 1 / ordered[at[here]]
            needed &= at < 0
        if needed.any():
            missing = given.rank[wanted[needed][0]].tolist()
            raise InvalidInput(f"the residual of attributes {missing} has no variance")
        found.append(out)
    return given.closure.each(np.concatenate(found))


def _solve_consistency(
    problem: ConsistencyProblem, tolerance: float, progress: Callable[[int, float], None] | None
) -> tuple[FloatArray, float, int]:
    """(components, gap, iterations)"""
    start = lift_components(problem.inc, problem.target)
    body = problem.body
    if np.array_equal(body.nearest(start), start):
        return problem.target, 0.0, 0
    step = SplittingStep(problem, 1.0)
    rounding = _ROUNDING * problem.length(problem.target) ** 2
    faster = Anderson(len(start), _MEMORY)
    root = np.sqrt(problem.own)
    check = _CHECK if problem.even is None else _CHECK_ZEROS
    v = start
    best: tuple[float, FloatArray] = (math.inf, problem.target)
    for iteration in range(1, _MOST_LOCAL + 1):
        q = step(body.reflected(v))
        last = iteration == _MOST_LOCAL
        if last or iteration % check == 0:
            gap, x = _certify_gap(problem, step, v)
            if gap < best[0]:
                best = gap, x
            if progress is not None:
                progress(iteration, best[0])
            if last or best[0] <= (tolerance * problem.length(best[1] - problem.target)) ** 2 + rounding:
                return best[1], best[0] * (1 + 1e-9) + rounding, iteration
        v = faster.next(root * v, root * (q - body.nearest(v))) / root
    raise AssertionError


def _certify_gap(problem: ConsistencyProblem, step: SplittingStep, v: FloatArray) -> tuple[float, FloatArray]:
    """(bound on the squared distance, feasible components)"""
    multipliers = step.weight * problem.body.multipliers(v)
    pulled = problem.target + problem.free * problem.collect(multipliers) / problem.precision
    r = step.components(problem.body.reflected(v))
    best: tuple[float, FloatArray] = (math.inf, r)
    for x, tables in _feasible_components(problem, r):
        a, b = problem.length(x - pulled), max(float(multipliers @ tables), 0.0)
        found = ((a + math.sqrt(a * a + 4 * b)) / 2) ** 2
        if found < best[0]:
            best = found, x
    return best


def _feasible_components(problem: ConsistencyProblem, r: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
    """Components near r of nonnegative tables, with these: mixtures with positive tables that agree."""
    inc = problem.inc
    r, tables = problem.emptied(r)
    total = max(float(r[0]), 0.0) if problem.total is None else problem.total
    zero = np.zeros(len(r)), np.zeros(len(tables))
    if total == 0:
        return [zero]
    even = np.zeros(len(r))
    even[0] = total
    if problem.even is not None:
        even = total * problem.even
    out: list[tuple[FloatArray, FloatArray]] = [zero] if problem.total is None else []
    for e in (even,):
        flat = lift_components(inc, e)
        low = tables < 0
        share = float((-tables[low] / (flat[low] - tables[low])).max()) if low.any() else 0.0
        out.append(((1 - share) * r + share * e, (1 - share) * tables + share * flat))
    return out
