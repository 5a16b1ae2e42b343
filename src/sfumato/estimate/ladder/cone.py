"""The last rung over one table of all attributes: the cells nearest to what every table says beyond its margins.

In an orthonormal basis of products of contrasts the coefficients of every set of attributes stand by themselves, so

    minimise sum_S |r_S(x) - y_S|^2 / s_S  over  x >= 0 with the held tables

has a diagonal Hessian, and a step of the alternating method [BPCPE11] is a transform there and back, along one
attribute at a time. What no table says is left free. Then the cells are raked to what is held.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.estimate.elliptope.anderson import Anderson
from sfumato.estimate.ladder.raking import Sums, independent, rake
from sfumato.estimate.ladder.told import Axes
from sfumato.estimate.orthant import Orthant
from sfumato.operators.base import FloatArray

__all__ = ["JointCells", "joint_cells"]

_MEMORY = 6  # as in local.py: a small system to solve at each step
_CHECK = 40  # a proof rakes the cells, which costs as much as many steps
_MOST = 240  # six proofs; what ends here says its gap
_SCALE = 0.5  # of the splitting, in units of the typical precision
_TOUCH = 1e-9  # of the start, which is positive where anything is possible: far below one record


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
    start = rake(independent(range(len(sizes)), held, possible), [*groups, *margins])
    kept = [g.met_by(start) for g in groups]
    problem = _Problem(tuple(sizes), tables, held, kept)
    body = Orthant(possible)
    sums = [*kept, *margins]
    v = problem.cells(np.where(problem.precision > 0, problem.target, problem.kept))
    faster = Anderson(v.size, _MEMORY)
    best = JointCells(start, math.inf, math.inf, 0)
    for iteration in range(1, _MOST + 1):
        q = problem.cells(problem.step(body.reflected(v)))
        if iteration % _CHECK == 0:
            # a touch of what is possible, so that no sum is out of reach
            x = rake(body.nearest(v) + _TOUCH * start, sums)
            squared, gap = problem.certify(x, problem.scale * body.multipliers(v), possible)
            if gap < best.gap or squared < best.moved**2:
                best = JointCells(x, gap, math.sqrt(squared), iteration)
            if progress is not None:
                progress(iteration, best.gap)
            if best.gap <= (tolerance * best.moved) ** 2:
                break
        v = faster.next(v.reshape(-1), (q - body.nearest(v)).reshape(-1)).reshape(v.shape)
    return best


class _Problem:
    """Coefficients of the cells: what is told of them, how precisely, and which are held."""

    def __init__(
        self,
        sizes: tuple[int, ...],
        tables: Mapping[Axes, tuple[FloatArray, float]],
        held: Mapping[Axes, FloatArray],
        groups: Sequence[Sums],
    ) -> None:
        self.sizes, self.held = sizes, held
        self.bases = [_contrasts(n) for n in sizes]
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
                rows = _along(self.bases[i], rows, k + 1)
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
            out = _along(self.bases[i], out, k)
        return out[(slice(1, None),) * len(axes)] / math.sqrt(rest)

    def coefficients(self, cells: FloatArray) -> FloatArray:
        """The transform."""
        for i, basis in enumerate(self.bases):
            cells = _along(basis, cells, i)
        return cells

    def cells(self, coefficients: FloatArray) -> FloatArray:
        """Its inverse."""
        for i, basis in enumerate(self.bases):
            coefficients = _along(basis.T, coefficients, i)
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


def _along(matrix: FloatArray, values: FloatArray, axis: int) -> FloatArray:
    shape = values.shape
    pre, post = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    return np.matmul(matrix, values.reshape(pre, shape[axis], post)).reshape(
        *shape[:axis], matrix.shape[0], *shape[axis + 1 :]
    )


def _contrasts(size: int) -> FloatArray:
    """(n, n) orthonormal rows, the first constant."""
    out = np.zeros((size, size))
    out[0] = 1 / math.sqrt(size)
    for i in range(1, size):
        out[i, :i] = 1.0
        out[i, i] = -i
        out[i] /= math.sqrt(i * (i + 1))
    return out
