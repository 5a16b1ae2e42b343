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

from sfumato._util.display import Progress
from sfumato.errors import InvalidInput
from sfumato.operators import Compose, Dense, LinearOperator, Sparse
from sfumato.operators.base import FloatArray, single_thread

# some thousand roundings of a double, relative: below, a slope is rounding, and a Gram matrix gets that ridge
_ROUNDING = 1e-12


def minimise_quadratic(gram: FloatArray, linear: FloatArray, total: float | None, start: FloatArray) -> FloatArray:
    """(s,) the least of 1/2 hᵀ G h - cᵀ h over h >= 0 with sum `total` (None: any).

    `start` is feasible, with positive sum unless `total` is None. Every step lowers the objective; where the
    columns are dependent one of the solutions is returned. At most 10 s + 100 steps: a search that rounding keeps from
    its end returns where it stands, feasible and no worse than `start`; callers that promise an optimum prove a gap.
    """
    h = start.copy()
    scale = max(float(np.abs(np.diag(gram)).max(initial=0.0)), 1e-300)
    slack = _ROUNDING * max(float(np.abs(linear).max(initial=0.0)), scale * float(h.sum()), 1e-300)
    held = h > 0
    with single_thread():
        for _ in range(10 * len(h) + 100):
            inside = np.flatnonzero(held)
            wanted, level = _stationary_point(gram, linear, total, inside, scale)
            if (wanted < 0).any():
                now = h[inside]
                falling = wanted < 0
                share = now[falling] / (now[falling] - wanted[falling])
                step = float(share.min(initial=1.0))
                moved = now + step * (wanted - now)
                moved[np.flatnonzero(falling)[share <= step]] = 0.0
                h[inside] = np.maximum(moved, 0.0)
                held = h > 0
                continue
            h[inside] = wanted
            slope = gram @ h - linear + level
            slope[inside] = 0.0
            worst = int(np.argmin(slope))
            if slope[worst] >= -slack:
                break
            held = h > 0
            held[worst] = True
    return h


def _stationary_point(
    gram: FloatArray, linear: FloatArray, total: float | None, inside: NDArray[np.intp], scale: float
) -> tuple[FloatArray, float]:
    """The stationary point on some coordinates, and the multiplier of the sum."""
    import scipy.linalg as sla  # noqa: PLC0415  (heavy)

    if len(inside) == 0:
        return np.empty(0), 0.0
    some = gram[np.ix_(inside, inside)]
    some = some + np.eye(len(inside)) * (_ROUNDING * scale)
    try:
        factor = sla.cho_factor(some, lower=True)
    except np.linalg.LinAlgError:
        factor = sla.cho_factor(some + np.eye(len(inside)) * (1e-9 * scale), lower=True)
    found = sla.cho_solve(factor, linear[inside])
    if total is None:
        return found, 0.0
    ones = sla.cho_solve(factor, np.ones(len(inside)))
    level = (float(found.sum()) - total) / float(ones.sum())
    return found - level * ones, level


def project_onto_simplex(
    values: FloatArray,
    total: float | None,
    variances: FloatArray | None = None,
    possible: NDArray[np.bool_] | None = None,
) -> FloatArray:
    """(m,) the nearest h >= 0 with sum `total` (None: any) to `values` in sum_j (h_j - values_j)^2 / variances_j.

    h is 0 where not `possible` (None: all are). O(m log m).
    The solution is max(values - theta * variances, 0) for one number theta.
    """
    if possible is not None:
        kept, out = possible.reshape(-1), np.zeros_like(values)
        out[kept] = project_onto_simplex(values[kept], total, None if variances is None else variances[kept])
        return out
    if total is None:
        return np.maximum(values, 0.0)
    if total == 0:
        return np.zeros_like(values)
    steps = np.ones_like(values) if variances is None else variances
    keys = values / steps
    order = np.argsort(-keys, kind="stable")
    theta = (np.cumsum(values[order]) - total) / np.cumsum(steps[order])
    # the cells that stay positive come first in this order
    last = int(np.flatnonzero(keys[order] > theta)[-1])
    out = np.maximum(values - theta[last] * steps, 0.0)
    # rounding of long sums
    return out * (total / out.sum())


# cells in use up to which the exact step is taken: its Gram matrix has 8 MB, its factor a fraction of a second
_SUPPORT = 1_000
_DENSE = 2**25  # 256 MB: entries up to which a map that is dense anyway is whitened once and kept
_SMALL = 2**19  # entries below which a dense map is faster than a structured one
_CHECKED = 10  # a proof costs about a gradient: a tenth more
_POLISHED = 50  # an exact step costs many gradients, and helps once the support has settled: every fifth proof
_PULLING = 64  # cells that join an exact step at once, those of steepest descent; five rounds let others follow
_MOVED = 1e-6  # of the squared distance moved: the gap is proved and stated, so any value is sound
_ROUNDING_HULL = 1e-13  # of the target's square: sums of that size round to some 1e-14 of it, and a gap below is none
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


def select_columns(operator: LinearOperator, kept: NDArray[np.intp]) -> LinearOperator:
    """The same over some of the cells alone."""
    ends = np.zeros(operator.shape[1] + 1, dtype=np.int64)
    ends[kept + 1] = 1
    return Compose(
        operator, Sparse(np.ones(len(kept), dtype=np.int64), np.arange(len(kept)), np.cumsum(ends), len(kept))
    )


def whitening_map(covariance: FloatArray | None, count: int) -> FloatArray | None:
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
        self.target = self.whiten(answers)
        self._matrix: FloatArray | None = None
        self._columns: dict[int, FloatArray] = {}
        self.gram: tuple[FloatArray, FloatArray] | None = None
        rows = len(self.target)
        plain = isinstance(operator, Dense) or (white is not None and white.ndim == 2)
        if max(rows, operator.shape[0]) * self.cells <= (_DENSE if plain else _SMALL):
            self._matrix = self.whiten(np.asarray(operator.dense(), dtype=np.float64))
            if self.cells * 2 <= rows:
                self.gram = self._matrix.T @ self._matrix, self._matrix.T @ self.target

    def at(self, target: FloatArray) -> LeastSquares:
        """The same map with another target, which is whitened already."""
        other = copy.copy(self)
        other.target = target
        if self.gram is not None:
            other.gram = self.gram[0], self.back(target)
        return other

    def cells_that_matter(self) -> NDArray[np.bool_]:
        """(m,) whether records there change any answer."""
        # products with numbers that no entries were made for: 0 where all entries are
        return np.any([self.back(np.abs(np.sin(k + np.arange(len(self.target)))) + 0.1) != 0 for k in (1, 2)], axis=0)

    def without_zero_columns(self) -> LeastSquares:
        """The same without the cells in which records change no answer: whatever they hold, nothing is nearer."""
        held = self.cells_that_matter()
        if held.all() or not held.any():
            return self
        other, kept = copy.copy(self), np.flatnonzero(held)
        other.operator, other.cells = select_columns(self.operator, kept), len(kept)
        other._columns = {}  # noqa: SLF001  (its own)
        other._matrix = None if self._matrix is None else self._matrix[:, kept]  # noqa: SLF001
        other.gram = None if self.gram is None else (self.gram[0][np.ix_(kept, kept)], self.gram[1][kept])
        return other

    def whiten(self, values: FloatArray) -> FloatArray:
        """L on (k,) or (k, c) answers."""
        if self.white is None:
            return values
        if self.white.ndim == 1:
            return (self.white * values.T).T
        return self.white @ values

    def fitted(self, h: FloatArray) -> FloatArray:
        """L F h."""
        if self._matrix is not None:
            return self._matrix @ h
        return self.whiten(np.asarray(self.operator.matvec(h), dtype=np.float64))

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
            found = self.whiten(np.asarray(self.operator.matvec(units), dtype=np.float64))
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


def project_onto_hull(
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
    supporting = None if total is not None else supporting_functional(problem)
    h, gap, done = _accelerated_descent(problem, total, supporting, tolerance, iterations, progress)
    return CellSolution(h, np.asarray(operator.matvec(h), dtype=np.float64), gap, done)


def supporting_functional(problem: LeastSquares) -> FloatArray | None:
    """e with (L F)ᵀ e >= 1 but for columns of 0, so that the sum of such cells h is at most eᵀ L F h; None where there
    is none.

    The point of the hull of the columns that is nearest to 0 gives it: every column lies beyond it.
    """
    origin = problem.without_zero_columns().at(np.zeros_like(problem.target))
    h, _, _ = _accelerated_descent(origin, 1.0, None, 1e-3, 500, None)
    nearest = origin.fitted(h)
    least = float(origin.back(nearest).min())
    return nearest / least if least > 1e-9 * float(nearest @ nearest) > 0 else None


def _accelerated_descent(
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
    floor = _ROUNDING_HULL * float(problem.target @ problem.target)
    point, momentum, gap = h, 1.0, math.inf
    done = 0
    for done in range(1, iterations + 1):
        slope = problem.gradient(point)
        new = project_onto_simplex(point - step * slope, total)
        if float((point - new) @ (new - h)) > 0:  # the momentum points uphill: begin anew
            momentum, point = 1.0, h
            new = project_onto_simplex(point - step * problem.gradient(point), total)
        ahead = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        point = new + (momentum - 1) / ahead * (new - h)
        h, momentum = new, ahead
        if done % _CHECKED:
            continue
        if done % _POLISHED == 0:
            polished = _polish_active_set(problem, h, total, tolerance)
            if polished is not None:
                h, point, momentum = polished, polished, 1.0
        distance = problem.distance(h)
        gap = _projection_gap(problem, h, total, supporting, distance)
        if progress is not None:
            progress(done, gap)
        if gap <= tolerance * distance + floor:
            break
    return h, max(gap, 0.0), done


def _projection_gap(
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


def gap_in_larger_body(
    problem: LeastSquares, fitted: FloatArray, total: float | None, supporting: FloatArray | None
) -> tuple[float, FloatArray]:
    """A proved bound on |fitted - P|^2, P the projection of the problem's answers onto a body that holds `fitted` and
    lies within {F h : h >= 0, sum h = total}; and (m,) the gradient over these cells.

    supporting: what `supporting_functional` found, for this body or for a larger one.
    """
    there = problem.whiten(fitted)
    away = there - problem.target
    slope, distance, inward = problem.back(away), float(away @ away), float(away @ there)
    if total is not None:
        return max(min(inward - total * float(slope.min()), distance), 0.0), slope
    falling = slope < 0
    if not falling.any():
        return max(min(inward, distance), 0.0), slope
    along = None if supporting is None else problem.back(supporting)[falling]
    if supporting is None or along is None or float(along.min()) <= 0:
        return distance, slope
    # sum h_j (-slope_j) is at most the largest ratio of -slope_j to e . F_j, times e . F h
    most = float(supporting @ problem.target) + float(np.linalg.norm(supporting)) * math.sqrt(distance)
    return max(min(inward + max(most, 0.0) * float((-slope[falling] / along).max()), distance), 0.0), slope


def _polish_active_set(
    problem: LeastSquares, h: FloatArray, total: float | None, tolerance: float
) -> FloatArray | None:
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


@dataclass(frozen=True, slots=True, eq=False)
class Orthant:
    """Nonnegative cells of which some are 0. possible: shaped as the cells; None where none has to be 0.

    A state v holds the nearest such cells and multipliers at once: nearest - multipliers = v.
    """

    possible: NDArray[np.bool_] | None

    def nearest(self, v: FloatArray) -> FloatArray:
        """The nearest cells."""
        return self._where(np.maximum(v, 0.0), 0.0)

    def multipliers(self, v: FloatArray) -> FloatArray:
        """What holds them: not negative, of any sign where a cell has to be 0."""
        return self._where(np.maximum(-v, 0.0), -v)

    def reflected(self, v: FloatArray) -> FloatArray:
        """The nearest cells plus the multipliers."""
        return self._where(np.abs(v), -v)

    def _where(self, free: FloatArray, fixed: FloatArray | float) -> FloatArray:
        return free if self.possible is None else np.where(self.possible, free, fixed)
