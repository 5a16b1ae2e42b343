"""Families of a tree of places over the cells of a table: quadratic norms of real counts, and whole counts.

A norm weighs every residual by itself: sum_S w_S P_S, P_S the projector onto what a table has in the set S of
attributes beyond its smaller margins. By inclusion and exclusion it is sum_B c_B T_B' T_B, T_B the sums of cells to the
table over B: few numbers where only a few tables were measured, and on some of the cells a multiple of the identity
plus few columns.

Whole counts of the children of a parent in whole numbers come by halves. Cells are halved again and again, along a
chain of tables from the coarsest on. When a part of the cells is split in two, every child's count of the part is known
and whole, and so is the parent's of either half: what is left to choose is one number for each child between 0 and its
count, and their sum. That is always possible, and the nearest such numbers are found by giving one unit after the other
where it costs least, which is optimal for separable convex costs [Fox66]. So every table of the chain, and every cell,
adds up to the parent's exactly, and nothing is ever negative.

Between which numbers the totals of groups lie, and how many of one set of cells are in them.

Groups lie in each other. Of a group are bounded its total, its records inside of a set of cells, and those outside:
floors and caps of two numbers and of their sum. Once each is made to agree with the other two (shortest paths between
three nodes), a parent can be parted among its children exactly if its three numbers are within the sums of their
floors and caps: what is so bounded is a generalized polymatroid, and these add up so, in whole numbers too [FT88].
So from the root down there is always a choice. Of more than two parts of the cells, sums of floors and caps tell too
little: every union of parts has a cap of its own.

The children of one parent: nonnegative counts that add up to the parent's, nearest in a norm of few columns.

    minimise  sum_c  x_c' M x_c / 2 - b_c' x_c,   x >= 0,   sum_c x_c = z

with M = diag(d) + U diag(w) U' on the cells where the parent is not zero. What is allowed is a simplex for every
cell, so the most that the slope promises on them bounds how far a point is from the least value [Jag13], and that
bounds half its squared distance from the nearest point. Solved by alternating directions [BPCPE11]: one solution
with M + r I, which all children share, and one projection onto the simplices.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray
from sfumato.strategies.geography_tree import PlaceOrder

IntArray = NDArray[np.int64]
Sets = tuple[int, ...]

_NONE = 1e-12  # of the largest coefficient: below it, rounding of sums of a few weights


@dataclass(frozen=True, eq=False)
class TableCells:
    """The cells of a table of this shape, numbered in C order; weights of residuals are (..., sets) in the order of
    `sets`, all sets of axes, smaller ones first."""

    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many cells."""
        return math.prod(self.shape)

    @functools.cached_property
    def sets(self) -> tuple[Sets, ...]:
        """All sets of axes."""
        every = range(len(self.shape))
        return tuple(c for r in range(len(self.shape) + 1) for c in itertools.combinations(every, r))

    @functools.cached_property
    def contrasts(self) -> FloatArray:
        """(sets,) how many independent contrasts a residual has: prod (n - 1)."""
        return np.array([math.prod(self.shape[i] - 1 for i in s) for s in self.sets], dtype=np.float64)

    @functools.cached_property
    def _inclusion(self) -> FloatArray:
        """(sets, sets) what a unit of weight on the second adds to the coefficient of the first."""
        out = np.zeros((len(self.sets), len(self.sets)))
        for j, s in enumerate(self.sets):
            for i, b in enumerate(self.sets):
                if set(b) <= set(s):
                    rest = math.prod(n for axis, n in enumerate(self.shape) if axis not in b)
                    out[i, j] = (-1) ** (len(s) - len(b)) / rest
        return out

    def coefficients(self, weights: FloatArray) -> FloatArray:
        """(..., sets) c_B of weights (..., sets); zero where rounding alone is left. Sets without contrasts count
        not."""
        held = np.where(self.contrasts > 0, weights, 0.0)
        out = held @ self._inclusion.T
        # c_B stands before a matrix whose largest eigenvalue is the number of cells of the others
        rest = np.array([math.prod(n for a, n in enumerate(self.shape) if a not in b) for b in self.sets])
        size = np.abs(out) * rest
        return np.where(size > _NONE * np.abs(held).max(axis=-1, keepdims=True), out, 0.0)

    def number(self, axes: Sets, cells: IntArray) -> IntArray:
        """The cell of the table over some axes in which each cell lies."""
        if not axes:
            return np.zeros(len(cells), dtype=np.int64)
        codes = np.unravel_index(cells, self.shape)
        return np.ravel_multi_index(tuple(codes[i] for i in axes), tuple(self.shape[i] for i in axes)).astype(np.int64)

    def sums(self, axes: Sets, rows: FloatArray) -> FloatArray:
        """(n, cells) summed to the table over some axes, (n, its shape with ones for the other axes)."""
        drop = tuple(1 + i for i in range(len(self.shape)) if i not in axes)
        return rows.reshape(len(rows), *self.shape).sum(axis=drop, keepdims=True)

    def weigh(self, weights: FloatArray, rows: FloatArray) -> FloatArray:
        """(n, cells) sum_S w_S P_S of every row, with weights (n or 1, sets)."""
        c = self.coefficients(weights)
        out = np.zeros((len(rows), *self.shape))
        for i, b in enumerate(self.sets):
            if c[:, i].any():
                out += c[:, i].reshape(-1, *(1,) * len(self.shape)) * self.sums(b, rows)
        return out.reshape(len(rows), self.size)

    def project(self, held: Sequence[bool] | NDArray[np.bool_], rows: FloatArray) -> FloatArray:
        """(n, cells) the residuals of some sets of every row."""
        return self.weigh(np.asarray(held, dtype=np.float64)[None], rows)


_PARTS = ("", " of the set", " outside of the set")


@dataclass(frozen=True, eq=False, slots=True)
class LevelBounds:
    """rows: by level (groups, 6), in the order of the groups' numbers, the least and the most records, of these inside
    of a set of cells, and outside; inside: (cells,) the set, None where totals alone are bounded."""

    rows: Mapping[int, FloatArray]
    inside: NDArray[np.bool_] | None = None


@dataclass(frozen=True, eq=False, slots=True)
class LevelLimits:
    """levels: (groups, 6) as in `Bounds`, in the order of the tree, agreeing with each other and with what lies in a
    group; None where nothing is said of a level or below it."""

    levels: tuple[FloatArray | None, ...]
    inside: NDArray[np.bool_] | None


def tighten_limits(rows: FloatArray) -> FloatArray:
    """(n, 6) floors and caps of totals, inside and outside that say of each what the other two leave."""
    low, high, low1, high1, low2, high2 = rows.T
    return np.stack(
        [
            np.maximum(low, low1 + low2),
            np.minimum(high, high1 + high2),
            np.maximum(low1, low - high2),
            np.minimum(high1, high - low2),
            np.maximum(low2, low - high1),
            np.minimum(high2, high - low1),
        ],
        axis=1,
    )


def _group_words(level: int, number: int) -> str:
    return f"group {number} of level {level}"


def level_limits(
    places: PlaceOrder,
    totals: Sequence[FloatArray],
    total: float | None,
    bounds: LevelBounds,
    possible: NDArray[np.int64] | None = None,
    called: Callable[[int, int], str] = _group_words,
) -> LevelLimits | None:
    """None where nothing is said at all. totals: those that are known, of levels from the root on; total: of all
    records where known; possible: the cells that can hold a record, None for all; called: what people call a group,
    by its level and its number there.

    Raises PlanError where no table is within the bounds, with the first group that shows it.
    """
    if not totals and not bounds.rows:
        return None
    tree = places.tree
    last = max([len(totals) - 1, *bounds.rows])
    out: list[FloatArray] = []
    free = _unbounded_limits(bounds.inside, possible)
    for level in range(last + 1):
        own = np.tile(free, (len(tree.counts[level]), 1))
        if level in bounds.rows:
            given = places.sorted(level, bounds.rows[level])
            own[:, ::2], own[:, 1::2] = np.maximum(own[:, ::2], given[:, ::2]), np.minimum(own[:, 1::2], given[:, 1::2])
        if level < len(totals):
            own[:, 0] = np.maximum(own[:, 0], totals[level][:, 0])
            own[:, 1] = np.minimum(own[:, 1], totals[level][:, 0])
        out.append(own)
    if total is not None:
        out[0][:, 0], out[0][:, 1] = max(out[0][0, 0], total), min(out[0][0, 1], total)
    for level in range(last, -1, -1):
        if level < last:
            below = tree.sums(level + 1, out[level + 1])
            out[level][:, ::2] = np.maximum(out[level][:, ::2], below[:, ::2])
            out[level][:, 1::2] = np.minimum(out[level][:, 1::2], below[:, 1::2])
        out[level] = tighten_limits(out[level])
        crossed = np.argwhere(out[level][:, ::2] > out[level][:, 1::2])
        if len(crossed):
            at, which = crossed[0].tolist()
            low, high = out[level][at, 2 * which : 2 * which + 2]
            raise PlanError(
                f"no table is within these bounds: {called(level, int(places.order[level][at]))} has at least "
                f"{low:,.0f} records{_PARTS[which]} and at most {high:,.0f}, by its own bounds and by those of what "
                "lies in it"
            )
    none = (None,) * (tree.depth - last)
    return LevelLimits((*out, *none), bounds.inside)


def _unbounded_limits(inside: NDArray[np.bool_] | None, possible: NDArray[np.int64] | None) -> FloatArray:
    """(6,) what bounds any group: nobody is in cells that cannot be."""
    out = np.array([0.0, np.inf] * 3)
    held = np.ones(1, dtype=np.bool_) if inside is None else inside if possible is None else inside[possible]
    out[3] = np.inf if held.any() and inside is not None else 0.0
    out[5] = 0.0 if held.all() and inside is not None else np.inf
    return out


_RELAXED = 1.6  # of the alternating method: 1.5 to 1.8 is what its authors found best
_CHECKED = 5  # sweeps between two looks at the gap, which costs half a sweep
_SWEEPS = 1_000  # some twenty are usual; what has not settled by then keeps its gap, which is told
_NONE_FAMILY = 1e-12  # of the largest eigenvalue: rounding


@dataclass(frozen=True, eq=False)
class QuadraticForm:
    """diag(d) + U diag(w) U' over k cells: d (k,), positive; U (k, r); w (r,), of any sign."""

    diagonal: FloatArray
    columns: FloatArray
    weights: FloatArray

    @classmethod
    def of(
        cls, cells: TableCells, coefficients: FloatArray, chosen: IntArray, more: FloatArray | float
    ) -> QuadraticForm:
        """The norm of these coefficients (sets,) on some cells, and `more` (k,) on the diagonal."""
        k = len(chosen)
        diagonal = np.full(k, float(coefficients[-1])) + more
        columns, weights = [np.zeros((k, 0))], [np.zeros(0)]
        for axes, c in zip(cells.sets[:-1], coefficients[:-1].tolist(), strict=True):
            if c != 0:
                found, where = np.unique(cells.number(axes, chosen), return_inverse=True)
                own = np.zeros((k, len(found)))
                own[np.arange(k), where] = 1.0
                columns.append(own)
                weights.append(np.full(len(found), c))
        u, w = np.concatenate(columns, axis=1), np.concatenate(weights)
        if len(w) > k:
            values, vectors = np.linalg.eigh((u * w) @ u.T)
            held = np.abs(values) > _NONE_FAMILY * np.abs(values).max()
            u, w = np.ascontiguousarray(vectors[:, held]), values[held]
        return cls(diagonal, u, w)

    def apply(self, rows: FloatArray) -> FloatArray:
        """(n, k) times the matrix."""
        return rows * self.diagonal + ((rows @ self.columns) * self.weights) @ self.columns.T

    def solver(self, shift: FloatArray | float) -> Callable[[FloatArray], FloatArray]:
        """Rows (n, k) times the inverse of the matrix plus a diagonal."""
        whole = self.diagonal + shift
        scaled = self.columns / whole[:, None]
        inner = np.eye(len(self.weights)) + self.weights[:, None] * (self.columns.T @ scaled)
        back = np.linalg.solve(inner, self.weights[:, None] * scaled.T)
        if len(whole) < 2 * len(self.weights):
            dense = np.diag(1 / whole) - scaled @ back
            return lambda rows: rows @ dense
        return lambda rows: rows / whole - (rows @ scaled) @ back

    def scales(self) -> FloatArray:
        """(k,) between the least and the largest that the matrix does to a cell."""
        top = np.abs(self.columns * self.weights) @ np.abs(self.columns).sum(axis=0)
        return np.sqrt(self.diagonal * (self.diagonal + top))


@dataclass(frozen=True, eq=False)
class Simplices:
    """Nonnegative (n, k) of which every column has its sum; or with `together`, all of it one sum."""

    sums: FloatArray
    together: bool = False

    def nearest(self, rows: FloatArray) -> FloatArray:
        """The projection onto them."""
        if self.together:
            return _onto_simplices(rows.reshape(1, -1), self.sums).reshape(rows.shape)
        return np.ascontiguousarray(_onto_simplices(np.ascontiguousarray(rows.T), self.sums).T)

    def promised(self, at: FloatArray, slope: FloatArray) -> float:
        """How much a linear function with this slope could still fall from a point of them."""
        least = slope.min() * self.sums.sum() if self.together else float(slope.min(axis=0) @ self.sums)
        return max(float((slope * at).sum()) - float(least), 0.0)


def _onto_simplices(rows: FloatArray, sums: FloatArray) -> FloatArray:
    """(k, n) the nearest nonnegative rows with these sums."""
    ordered = -np.sort(-rows, axis=1)
    above = np.cumsum(ordered, axis=1) - sums[:, None]
    kept = np.maximum((ordered * np.arange(1, rows.shape[1] + 1) > above).sum(axis=1), 1)
    shift = above[np.arange(len(rows)), kept - 1] / kept
    out = np.maximum(rows - shift[:, None], 0.0)
    # rounding of long sums
    total = out.sum(axis=1)
    return out * np.divide(sums, total, out=np.zeros_like(total), where=total > 0)[:, None]


@dataclass(frozen=True, eq=False)
class NearestPoint:
    """The point that was found; a bound on its squared distance from the nearest one in the norm; sweeps; the squared
    distance from the least value without any constraint."""

    point: FloatArray
    gap: float
    sweeps: int
    moved: float


def nearest_in_norm(
    form: QuadraticForm,
    given: FloatArray,
    allowed: Simplices,
    start: FloatArray,
    tolerance: float,
    *,
    step: float = 1.0,
) -> NearestPoint:
    """Until the squared distance from the nearest point is proved to be at most `tolerance`, or _SWEEPS."""
    point = allowed.nearest(start)
    if point.shape[0] == 1 and not allowed.together:
        return NearestPoint(point, 0.0, 0, 0.0)
    shift = step * form.scales()
    if allowed.together:
        # one simplex is projected onto with one weight
        shift = np.full(len(shift), float(np.exp(np.log(shift).mean())))
    solve = form.solver(shift)
    dual = np.zeros_like(point)
    best, gap, done = point, math.inf, 0
    for done in range(1, _SWEEPS + 1):
        found = solve(given + shift * (point - dual))
        found = _RELAXED * found + (1 - _RELAXED) * point + dual
        point = allowed.nearest(found)
        dual = found - point
        if done % _CHECKED == 0:
            now = 2 * allowed.promised(point, form.apply(point) - given)
            if now < gap:
                best, gap = point, now
            if gap <= tolerance:
                break
    free = form.solver(0.0)(given)
    moved = float(((free - best) * form.apply(free - best)).sum())
    return NearestPoint(best, gap, done, moved)


Near = Callable[[FloatArray, NDArray[Any], NDArray[Any]], NDArray[Any]]
"""Numbers from 0 to a most whose columns have given sums, nearest to others."""
_HALVED = 60  # times: what doubles tell apart


def splitting_chain(cells: TableCells, asked: Sequence[Sets]) -> tuple[Sets, ...]:
    """Axes in the order in which tables are split: unions of the asked sets, smaller tables first; ends with all axes.

    Returns what each step adds, so that every asked set is a sum of few cells of a table that is kept to.
    """
    held: list[int] = []
    steps: list[Sets] = []
    order = sorted(set(asked), key=lambda s: (int(np.prod([cells.shape[i] for i in s])), s))
    for s in (*order, tuple(range(len(cells.shape)))):
        new = tuple(i for i in s if i not in held)
        if new:
            held.extend(new)
            steps.append(new)
    return tuple(steps)


@dataclass(frozen=True, eq=False)
class CellHalves:
    """order: the cells as they stand beside each other; per depth the runs [first, last) that are split before
    `middle`; inside: (cells,) which are in the bounded set, if there is one."""

    order: IntArray
    splits: tuple[tuple[IntArray, IntArray, IntArray], ...]
    inside: NDArray[np.bool_] | None = None

    @classmethod
    def of(
        cls, cells: TableCells, chosen: IntArray, steps: Sequence[Sets], inside: NDArray[np.bool_] | None = None
    ) -> CellHalves:
        """Of some cells: those inside of a bounded set before all others, then those of the first step's table apart,
        then within each those of the next one's.

        inside: (cells,) the set, None where there is none.
        """
        keys = [cells.number(s, chosen) for s in steps]
        held = None if inside is None else inside[chosen]
        if held is not None:
            keys.insert(0, (~held).astype(np.int64))
        order = np.lexsort(keys[::-1]) if keys else np.arange(len(chosen))
        # the first step at which a cell differs from the one before it
        first = np.full(max(len(chosen) - 1, 0), len(keys))
        for j in range(len(keys) - 1, -1, -1):
            moved = np.diff(keys[j][order]) != 0
            first[moved] = j
        return cls(order, _halve_runs(first, len(chosen)), held)

    def crossed(self) -> bool:
        """Whether cells inside of the set and others are told apart, which the first split does."""
        return self.inside is not None and bool(self.inside.any()) and not bool(self.inside.all())


def _halve_runs(first: IntArray, count: int) -> tuple[tuple[IntArray, IntArray, IntArray], ...]:
    """Runs of cells split where the earliest step differs, and there as near to the middle as can be."""
    out: list[tuple[IntArray, IntArray, IntArray]] = []
    runs = [(0, count)] if count > 1 else []
    while runs:
        middles: list[int] = []
        for a, b in runs:
            own = first[a : b - 1]
            places = np.flatnonzero(own == own.min())
            middles.append(a + 1 + int(places[len(places) // 2]))
        starts, ends = (np.array(x, dtype=np.int64) for x in zip(*runs, strict=True))
        middle = np.array(middles, dtype=np.int64)
        out.append((starts, middle, ends))
        halves = [r for (a, b), m in zip(runs, middles, strict=True) for r in ((a, m), (m, b))]
        runs = [(a, b) for a, b in halves if b - a > 1]
    return tuple(out)


def nearest_whole(wanted: FloatArray, most: IntArray, sums: IntArray) -> IntArray:
    """(n, s) whole numbers from 0 to `most` whose columns have these sums, nearest to `wanted` in squares.

    wanted: (n, s) within [0, most]; sums: (s,), at most those of `most`.
    """
    # else no unit could be given or taken, for ever
    assert ((most >= 0).all(0) & (sums >= 0) & (sums <= most.sum(axis=0))).all(), "no whole numbers have these sums"
    out = np.minimum(np.floor(wanted).astype(np.int64), most)
    while True:
        lack = sums - out.sum(axis=0)
        if not lack.any():
            return out
        up = lack > 0
        # the cost of a unit more, or less: the nearest first, and none where there is no room
        cost = np.where(up, out - wanted, wanted - out)
        cost[np.where(up, out >= most, out <= 0)] = np.inf
        order = np.argsort(cost, axis=0, kind="stable")
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.arange(len(order))[:, None], axis=0)
        room = np.isfinite(cost)
        out += np.where((rank < np.abs(lack)) & room, np.sign(lack), 0)


def nearest_real(wanted: FloatArray, most: FloatArray, sums: FloatArray) -> FloatArray:
    """(n, s) numbers from 0 to `most` whose columns have these sums, nearest to `wanted` in squares.

    wanted: (n, s); sums: (s,), at most those of `most`. All that is inside moves alike: by how much is halved in.
    """
    low, high = (-wanted).min(axis=0), (most - wanted).max(axis=0)
    for _ in range(_HALVED):
        shift = (low + high) / 2
        less = np.clip(wanted + shift, 0.0, most).sum(axis=0) < sums
        low, high = np.where(less, shift, low), np.where(less, high, shift)
    out = np.clip(wanted + (low + high) / 2, 0.0, most)
    # rounding, to where there is room
    lack = sums - out.sum(axis=0)
    room = np.where(lack > 0, most - out, out)
    free = room.sum(axis=0)
    return out + room * np.divide(lack, free, out=np.zeros_like(free), where=free > 0)


def split_totals(
    values: FloatArray, sums: NDArray[Any], limits: FloatArray, inside: NDArray[np.bool_] | None, near: Near
) -> tuple[NDArray[Any], NDArray[Any]]:
    """(n,) totals of rows, and what of each is in the set, within limits (n, 6) that rows can meet whose columns add
    up to `sums` (k,); near: `nearest_whole` or `nearest_real`, of which both are near those of `values` (n, k).

    A total that asks for too much inside, or leaves too little, gives units to others until the sum inside is met:
    each is then at an end of what its own limits allow, and moves by one for one.
    """
    held = np.ones(len(sums), dtype=np.bool_) if inside is None else inside
    every, most1 = sums.sum(), sums[held].sum()
    # nobody has more of a cell than the parent
    ends = (every, every, every, every) if inside is None else (most1, most1, every - most1, every - most1)
    rows = np.clip(limits, 0, every) if inside is not None else np.clip(limits[:, [0, 1, 0, 1, 0, 1]], 0, every)
    if inside is None:
        rows[:, 2], rows[:, 4:] = 0, 0
    rows[:, 3], rows[:, 5] = np.minimum(rows[:, 3], ends[0]), np.minimum(rows[:, 5], ends[2])
    rows = tighten_limits(rows)
    rows = np.rint(rows).astype(np.int64) if near is nearest_whole else rows
    low, high, low1, high1, low2, high2 = rows.T
    real, real1 = values.sum(axis=1), values[:, held].sum(axis=1)
    total = low + _nearest_column(near, real - low, high - low, every - low.sum())

    def most_of(towards: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """How much every total can fall, and rise, on its way to a number."""
        return np.maximum(total - np.maximum(towards, low), 0), np.maximum(np.minimum(towards, high) - total, 0)

    # what must be inside is too much where totals are above all that may be outside; what may be, too little
    for towards, short in (
        (low1 + high2, np.maximum(low1, total - high2).sum() - most1),
        (high1 + low2, most1 - np.minimum(high1, total - low2).sum()),
    ):
        if short > 0:
            fall, rise = most_of(towards)
            short = min(short, fall.sum(), rise.sum())
            none = np.zeros(len(total))
            total = total - _nearest_column(near, none, fall, short) + _nearest_column(near, none, rise, short)
    least, largest = np.maximum(low1, total - high2), np.minimum(high1, total - low2)
    share = np.divide(real1, real, out=np.full(len(real), float(most1 / max(every, 1))), where=real > 0)
    within = least + _nearest_column(near, total * share - least, np.maximum(largest - least, 0), most1 - least.sum())
    return total, within


def _nearest_column(near: Near, wanted: FloatArray, most: NDArray[Any], total: Any) -> NDArray[Any]:
    """(n,) of one column; what is far from its sum comes near in real numbers first."""
    given, sums = most[:, None], np.array([total])
    if near is nearest_whole:
        real = nearest_real(wanted[:, None], given.astype(np.float64), sums.astype(np.float64))
        return nearest_whole(np.clip(real, 0, given), given, sums)[:, 0]
    return near(wanted[:, None], given, np.clip(sums, 0, given.sum()))[:, 0]


def whole_family(values: FloatArray, sums: IntArray, halves: CellHalves, limits: FloatArray | None = None) -> IntArray:
    """(n, k) whole numbers near real ones, columns adding up to `sums` (k,) exactly; and rows to what is between the
    `limits` (n, 6) that totals, and their records inside of the set, have."""
    if limits is not None:
        totals, within = split_totals(values, sums, limits, halves.inside, nearest_whole)
        return _split_cells(values, sums, halves, totals, nearest_whole, within)
    every = int(sums.sum())
    wanted = np.clip(values.sum(axis=1), 0.0, every)
    totals = nearest_whole(wanted[:, None], np.full((len(values), 1), every), np.array([every]))[:, 0]
    return _split_cells(values, sums, halves, totals, nearest_whole)


def real_family(values: FloatArray, sums: FloatArray, halves: CellHalves, limits: FloatArray) -> FloatArray:
    """(n, k) counts near others, columns adding up to `sums` (k,) and rows within `limits` (n, 6)."""
    totals, within = split_totals(values, sums, limits, halves.inside, nearest_real)
    return _split_cells(values, sums, halves, totals, nearest_real, within)


def _split_cells(
    values: FloatArray,
    sums: NDArray[Any],
    halves: CellHalves,
    totals: NDArray[Any],
    near: Near,
    within: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """within: (n,) of each row in the set."""
    n, k = values.shape
    real = np.concatenate([np.zeros((n, 1)), np.cumsum(values[:, halves.order], axis=1)], axis=1)
    total = np.concatenate([np.zeros(1, dtype=sums.dtype), np.cumsum(sums[halves.order])])
    held = np.zeros((n, k), dtype=totals.dtype)
    held[:, 0] = totals
    chosen = within if halves.crossed() else None
    for first, middle, last in halves.splits:
        here = held[:, first]
        if chosen is not None:
            held[:, first], held[:, middle] = chosen[:, None], here - chosen[:, None]
            chosen = None
            continue
        left, both = real[:, middle] - real[:, first], real[:, last] - real[:, first]
        parents = (total[middle] - total[first]) / (total[last] - total[first])
        share = np.divide(left, both, out=np.broadcast_to(parents, left.shape).copy(), where=both > 0)
        found = near(here * np.clip(share, 0.0, 1.0), here, total[middle] - total[first])
        held[:, first] = found
        held[:, middle] = here - found
    out = np.empty_like(held)
    out[:, halves.order] = held
    return out


def whole_parts(values: FloatArray, total: int, halves: CellHalves, limits: FloatArray | None = None) -> IntArray:
    """(k,) whole numbers near real ones that add up to `total`, and of these inside of the set within limits (6,)."""
    real = np.concatenate([[0.0], np.cumsum(values[halves.order])])
    held = np.zeros(len(values), dtype=np.int64)
    held[:1] = total
    for first, middle, last in halves.splits:
        left, both = real[middle] - real[first], real[last] - real[first]
        share = np.divide(left, both, out=np.full(len(left), 0.5), where=both > 0)
        found = np.rint(held[first] * np.clip(share, 0.0, 1.0)).astype(np.int64)
        if limits is not None and halves.crossed() and len(first) == 1 and last[0] - first[0] == len(values):
            found = np.clip(found, *_inside_bounds(limits, total)).astype(np.int64)
        held[middle] = held[first] - found
        held[first] = found
    out = np.empty_like(held)
    out[halves.order] = held
    return out


def _inside_bounds(limits: FloatArray, total: float) -> tuple[float, float]:
    """The least and the most inside of the set of a row of this total."""
    return max(float(limits[2]), total - float(limits[5])), min(float(limits[3]), total - float(limits[4]))


def real_parts(values: FloatArray, inside: NDArray[np.bool_] | None, limits: FloatArray) -> FloatArray:
    """(k,) counts with the total of others, of which as many are inside of the set as limits (6,) allow."""
    if inside is None:
        return values
    total, held = float(values.sum()), float(values[inside].sum())
    wanted = float(np.clip(held, *_inside_bounds(limits, total)))
    out = values.copy()
    for where, own, new in ((inside, held, wanted), (~inside, total - held, total - wanted)):
        if where.any():
            # where nothing was, all alike
            out[where] = out[where] * (new / own) if own > 0 else new / int(where.sum())
    return out
