"""The children of one parent: nonnegative counts that add up to the parent's, nearest in a norm of few columns.

    minimise  sum_c  x_c' M x_c / 2 - b_c' x_c,   x >= 0,   sum_c x_c = z

with M = diag(d) + U diag(w) U' on the cells where the parent is not zero. What is allowed is a simplex for every
cell, so the most that the slope promises on them bounds how far a point is from the least value [Jag13], and that
bounds half its squared distance from the nearest point. Solved by alternating directions [BPCPE11]: one solution
with M + r I, which all children share, and one projection onto the simplices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sfumato.estimate.spine.cells import Cells, IntArray
from sfumato.operators.base import FloatArray

__all__ = ["Form", "Nearest", "Simplices", "nearest"]


_RELAXED = 1.6  # of the alternating method: 1.5 to 1.8 is what its authors found best
_CHECKED = 5  # sweeps between two looks at the gap, which costs half a sweep
_SWEEPS = 1_000  # some twenty are usual; what has not settled by then keeps its gap, which is told
_NONE = 1e-12  # of the largest eigenvalue: rounding


@dataclass(frozen=True, eq=False)
class Form:
    """diag(d) + U diag(w) U' over k cells: d (k,), positive; U (k, r); w (r,), of any sign."""

    diagonal: FloatArray
    columns: FloatArray
    weights: FloatArray

    @classmethod
    def of(cls, cells: Cells, coefficients: FloatArray, chosen: IntArray, more: FloatArray | float) -> Form:
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
            held = np.abs(values) > _NONE * np.abs(values).max()
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
            return _onto(rows.reshape(1, -1), self.sums).reshape(rows.shape)
        return np.ascontiguousarray(_onto(np.ascontiguousarray(rows.T), self.sums).T)

    def promised(self, at: FloatArray, slope: FloatArray) -> float:
        """How much a linear function with this slope could still fall from a point of them."""
        least = slope.min() * self.sums.sum() if self.together else float(slope.min(axis=0) @ self.sums)
        return max(float((slope * at).sum()) - float(least), 0.0)


def _onto(rows: FloatArray, sums: FloatArray) -> FloatArray:
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
class Nearest:
    """The point that was found; a bound on its squared distance from the nearest one in the norm; sweeps; the squared
    distance from the least value without any constraint."""

    point: FloatArray
    gap: float
    sweeps: int
    moved: float


def nearest(
    form: Form, given: FloatArray, allowed: Simplices, start: FloatArray, tolerance: float, *, step: float = 1.0
) -> Nearest:
    """Until the squared distance from the nearest point is proved to be at most `tolerance`, or _SWEEPS."""
    point = allowed.nearest(start)
    if point.shape[0] == 1 and not allowed.together:
        return Nearest(point, 0.0, 0, 0.0)
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
    return Nearest(best, gap, done, moved)
