"""Projection onto the answers of nonnegative cells: accelerated gradient, then an active set, with an exact gap.

The body is {F h : h >= 0, sum h = N}, the hull of N times the columns of F, or the cone where N is not known.
[NTZ13, BT09]
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InvalidInput
from sfumato.estimate.active import minimise_quadratic
from sfumato.estimate.simplex import onto_simplex
from sfumato.ground.progress import Progress
from sfumato.operators import Dense, LinearOperator
from sfumato.operators.base import FloatArray

__all__ = ["CellSolution", "LeastSquares", "hull", "whitener"]


# cells in use up to which the exact step is taken: its Gram matrix has 8 MB, its factor a fraction of a second
_SUPPORT = 1_000
_DENSE = 2**25  # 256 MB: entries up to which a map that is dense anyway is whitened once and kept
_SMALL = 2**19  # entries below which a dense map is faster than a structured one
_CHECKED = 10  # a proof costs about a gradient: a tenth more
_POLISHED = 50  # an exact step costs many gradients, and helps once the support has settled: every fifth proof
_PULLING = 64  # cells that join an exact step at once, those of steepest descent; five rounds let others follow
_MOVED = 1e-6  # of the squared distance moved: the gap is proved and said, so any value is honest
_ROUNDING = 1e-13  # of the target's square: sums of that size round to some 1e-14 of it, and a gap below is none
_PSEUDO = 1e-12  # relative: smaller eigenvalues of a covariance are zeros that were rounded, and are left out


@dataclass(frozen=True, slots=True, eq=False)
class CellSolution:
    """Cells h, their answers F h, and what is proved of them.

    `gap` bounds the squared distance between F h and the true projection in the projected norm.
    """

    cells: FloatArray
    fitted: FloatArray
    gap: float
    iterations: int


def whitener(covariance: FloatArray | None, count: int) -> FloatArray | None:
    """(k,) or (r, k) map L with LᵀL the pseudo-inverse of the covariance; None for the plain norm.

    `covariance` is (k,) variances or a (k, k) matrix. Raises InvalidInput for what is none.
    """
    if covariance is None:
        return None
    given = np.asarray(covariance, dtype=np.float64)
    if given.shape == (count,):
        if not np.isfinite(given).all() or (given <= 0).any():
            raise InvalidInput("covariance= as variances must be finite and positive, one per answer")
        return 1 / np.sqrt(given)
    if given.shape != (count, count):
        raise InvalidInput(f"covariance= has shape ({count},) or ({count}, {count}), not {given.shape}")
    if not np.isfinite(given).all() or not np.allclose(given, given.T, rtol=1e-8, atol=1e-12 * np.abs(given).max()):
        raise InvalidInput("covariance= must be finite and symmetric")
    values, vectors = np.linalg.eigh((given + given.T) / 2)
    top = float(values[-1])
    if top <= 0 or values[0] < -1e-8 * top:
        raise InvalidInput(f"covariance= must be positive semidefinite; it has the eigenvalue {values[0]:.3g}")
    kept = values > _PSEUDO * top
    return vectors[:, kept].T / np.sqrt(values[kept])[:, None]


class LeastSquares:
    """1/2 |L (F h - a)|^2 over cells h: its value, its gradient and its small pieces."""

    def __init__(self, operator: LinearOperator, answers: FloatArray, white: FloatArray | None) -> None:
        self.operator, self.white = operator, white
        self.cells = operator.shape[1]
        self.target = self._whiten(answers)
        self._matrix: FloatArray | None = None
        self._columns: dict[int, FloatArray] = {}
        self.gram: tuple[FloatArray, FloatArray] | None = None
        rows = len(self.target)
        plain = isinstance(operator, Dense) or (white is not None and white.ndim == 2)
        if max(rows, operator.shape[0]) * self.cells <= (_DENSE if plain else _SMALL):
            self._matrix = self._whiten(np.asarray(operator.dense(), dtype=np.float64))
            if self.cells * 2 <= rows:
                self.gram = self._matrix.T @ self._matrix, self._matrix.T @ self.target

    def at(self, target: FloatArray) -> LeastSquares:
        """The same map with another target, which is whitened already."""
        other = copy.copy(self)
        other.target = target
        if self.gram is not None:
            other.gram = self.gram[0], self.back(target)
        return other

    def _whiten(self, values: FloatArray) -> FloatArray:
        if self.white is None:
            return values
        if self.white.ndim == 1:
            return (self.white * values.T).T
        return self.white @ values

    def fitted(self, h: FloatArray) -> FloatArray:
        """L F h."""
        if self._matrix is not None:
            return self._matrix @ h
        return self._whiten(np.asarray(self.operator.matvec(h), dtype=np.float64))

    def back(self, y: FloatArray) -> FloatArray:
        """FᵀLᵀ y."""
        if self._matrix is not None:
            return self._matrix.T @ y
        if self.white is not None:
            y = self.white * y if self.white.ndim == 1 else self.white.T @ y
        return np.asarray(self.operator.rmatvec(y), dtype=np.float64)

    def gradient(self, h: FloatArray) -> FloatArray:
        """(m,) the gradient at h."""
        if self.gram is not None:
            return self.gram[0] @ h - self.gram[1]
        return self.back(self.fitted(h) - self.target)

    def distance(self, h: FloatArray) -> float:
        """|L (F h - a)|^2."""
        away = self.fitted(h) - self.target
        return float(away @ away)

    def columns(self, chosen: NDArray[np.intp]) -> FloatArray:
        """(rows, s) some columns of L F."""
        if self._matrix is not None:
            return self._matrix[:, chosen]
        new = np.array([j for j in chosen.tolist() if j not in self._columns], dtype=np.intp)
        for part in np.array_split(new, len(new) // 64 + 1):
            units = np.zeros((self.cells, len(part)))
            units[part, np.arange(len(part))] = 1.0
            found = self._whiten(np.asarray(self.operator.matvec(units), dtype=np.float64))
            self._columns |= dict(zip(part.tolist(), found.T, strict=True))
        return np.stack([self._columns[j] for j in chosen.tolist()], axis=1)

    def curvature(self) -> float:
        """The largest eigenvalue of FᵀLᵀL F, from below by power iterations."""
        h = np.abs(np.sin(np.arange(1, self.cells + 1))) + 0.1
        found = 0.0
        for _ in range(30):
            h /= max(float(np.linalg.norm(h)), 1e-300)
            h = self.gram[0] @ h if self.gram is not None else self.back(self.fitted(h))
            found = float(np.linalg.norm(h))
        return found


def hull(
    operator: LinearOperator,
    answers: FloatArray,
    total: float | None,
    white: FloatArray | None = None,
    *,
    tolerance: float = _MOVED,
    iterations: int = 5_000,
    progress: Progress | None = None,
) -> CellSolution:
    """The projection of (k,) answers onto {F h : h >= 0, sum h = total}, in the norm |L .|.

    Stops where the gap is at most `tolerance` times the squared distance moved. The gap is exact for a
    known total: |F h - P|^2 <= <grad, h> - total * min grad. For the cone the sum of the projection's cells is
    bounded first; where the columns allow no bound, the cone holds all answers or the distance moved is all
    that is proved. (m,) iterates; a dense map is formed up to 2^25 entries.
    """
    problem = LeastSquares(operator, answers, white)
    if total == 0:
        cells = np.zeros(problem.cells)
        return CellSolution(cells, np.zeros(operator.shape[0]), 0.0, 0)
    supporting = None if total is not None else _supporting(problem)
    h, gap, done = _descend(problem, total, supporting, tolerance, iterations, progress)
    return CellSolution(h, np.asarray(operator.matvec(h), dtype=np.float64), gap, done)


def _supporting(problem: LeastSquares) -> FloatArray | None:
    """e with (L F)ᵀ e >= 1, so that the sum of any cells h is at most eᵀ L F h; None where there is none.

    The point of the hull of the columns that is nearest to 0 gives it: every column lies beyond it.
    """
    origin = problem.at(np.zeros_like(problem.target))
    h, _, _ = _descend(origin, 1.0, None, 1e-3, 500, None)
    nearest = origin.fitted(h)
    least = float(origin.back(nearest).min())
    return nearest / least if least > 1e-9 * float(nearest @ nearest) > 0 else None


def _descend(
    problem: LeastSquares,
    total: float | None,
    supporting: FloatArray | None,
    tolerance: float,
    iterations: int,
    progress: Progress | None,
) -> tuple[FloatArray, float, int]:
    """Cells, the gap that they have, and the steps taken."""
    m = problem.cells
    h = np.full(m, total / m) if total is not None else np.zeros(m)
    step = 1 / max(problem.curvature() * 1.02, 1e-300)
    floor = _ROUNDING * float(problem.target @ problem.target)
    point, momentum, gap = h, 1.0, math.inf
    done = 0
    for done in range(1, iterations + 1):
        slope = problem.gradient(point)
        new = onto_simplex(point - step * slope, total)
        if float((point - new) @ (new - h)) > 0:  # the momentum points uphill: begin anew
            momentum, point = 1.0, h
            new = onto_simplex(point - step * problem.gradient(point), total)
        ahead = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        point = new + (momentum - 1) / ahead * (new - h)
        h, momentum = new, ahead
        if done % _CHECKED:
            continue
        if done % _POLISHED == 0:
            polished = _polish(problem, h, total, tolerance)
            if polished is not None:
                h, point, momentum = polished, polished, 1.0
        distance = problem.distance(h)
        gap = _gap(problem, h, total, supporting, distance)
        if progress is not None:
            progress(done, gap)
        if gap <= tolerance * distance + floor:
            break
    return h, max(gap, 0.0), done


def _gap(
    problem: LeastSquares, h: FloatArray, total: float | None, supporting: FloatArray | None, distance: float
) -> float:
    """A proved bound on the squared distance to the projection; that to the answers is one already."""
    slope = problem.gradient(h)
    inward, least = float(slope @ h), float(slope.min())
    if total is not None:
        return min(inward - total * least, distance)
    if least >= 0:
        return min(inward, distance)
    if supporting is None:
        return distance
    # the projection is no farther from the answers than h is
    most = float(supporting @ problem.target) + float(np.linalg.norm(supporting)) * math.sqrt(distance)
    return min(inward - max(most, 0.0) * least, distance)


def _polish(problem: LeastSquares, h: FloatArray, total: float | None, tolerance: float) -> FloatArray | None:
    """The exact least over the cells in use and those that pull most; None where these are too many."""
    for _ in range(5):
        used = np.flatnonzero(h)
        room = _SUPPORT - len(used)
        if room < 0:
            return None
        pull = np.argpartition(problem.gradient(h), min(_PULLING, len(h) - 1))[: min(_PULLING, room)]
        chosen = np.union1d(used, pull)
        columns = problem.columns(chosen)
        some = minimise_quadratic(columns.T @ columns, columns.T @ problem.target, total, h[chosen])
        h = np.zeros_like(h)
        h[chosen] = some if total is None else some * (total / some.sum())
        slope = problem.gradient(h)
        if float(slope @ h) - float(h.sum()) * float(slope.min()) <= tolerance * problem.distance(h):
            break
    return h
