"""Quadratic norms over the cells of a table that weigh every residual by itself.

sum_S w_S P_S, P_S the projector onto what a table has in the set S of attributes beyond its smaller margins. By
inclusion and exclusion it is sum_B c_B T_B' T_B, T_B the sums of cells to the table over B: few numbers where only a
few tables were measured, and on some of the cells a multiple of the identity plus few columns.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray
from sfumato.strategies.geography_tree import PlaceOrder

__all__ = [
    "IntArray",
    "LevelBounds",
    "LevelLimits",
    "NearestPoint",
    "QuadraticForm",
    "Sets",
    "Simplices",
    "TableCells",
    "level_limits",
    "nearest_in_norm",
    "tighten_limits",
]


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
