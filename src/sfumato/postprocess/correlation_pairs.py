"""The projection onto the elliptope as a problem, and the proof of how near a possible matrix is to its solution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato._util.display import Progress
from sfumato.operators.base import FloatArray

__all__ = [
    "EPS",
    "Anderson",
    "CorrelationProblem",
    "NearestCorrelation",
    "feasible_correlation",
    "nearest_tetrahedra",
    "pair_coordinates",
    "pair_tables",
    "product_scale",
    "scatter_pairs",
    "tetrahedron_support",
]


def pair_coordinates(matrix: FloatArray) -> FloatArray:
    """(pairs, 3) the entries (0i, 0j, ij) of every pair i < j of attributes, row 0 being no attribute."""
    first, second = np.triu_indices(len(matrix) - 1, 1)
    return np.stack([matrix[0, first + 1], matrix[0, second + 1], matrix[first + 1, second + 1]], axis=1)


def scatter_pairs(size: int, values: FloatArray) -> FloatArray:
    """The transpose: a symmetric matrix whose entries add up the coordinates they are. No pairs: zeros."""
    out = np.zeros((size, size))
    if len(values):
        first, second = np.triu_indices(size - 1, 1)
        out[first + 1, second + 1] = values[:, 2]
        out[0, 1:] = np.bincount(first, values[:, 0], size - 1) + np.bincount(second, values[:, 1], size - 1)
    return out + out.T


def tetrahedron_support(normals: FloatArray) -> FloatArray:
    """(pairs,) the largest product of a normal (pairs, 3) with a vertex (s, t, st) of the tetrahedron."""
    a, b, c = normals.T
    return np.maximum(np.abs(a + b) + c, np.abs(a - b) - c)


def pair_tables(points: FloatArray) -> FloatArray:
    """(pairs, 4) the tables of pairs as shares, given (pairs, 3) parities: cells (+, +), (+, -), (-, +), (-, -)."""
    a, b, c = points.T
    return 0.25 * np.stack([1 + a + b + c, 1 + a - b - c, 1 - a + b - c, 1 - a - b + c], axis=1)


def nearest_tetrahedra(points: FloatArray) -> FloatArray:
    """(pairs, 3) the nearest points whose pair tables are nonnegative.

    Parities are twice an orthogonal map of the table, so the nearest point is that of the nearest table whose four
    shares are nonnegative and add up to 1.
    """
    shares = pair_tables(points)
    falling = -np.sort(-shares, axis=1)
    level = (np.cumsum(falling, axis=1) - 1) / np.arange(1, 5)
    kept = np.count_nonzero(falling > level, axis=1)
    chosen = np.take_along_axis(level, kept[:, None] - 1, axis=1)
    p, q, r, s = np.maximum(shares - chosen, 0).T
    return np.stack([p + q - r - s, p - q + r - s, p - q - r + s], axis=1)


EPS = float(np.finfo(np.float64).eps)
# a distance between entries that is taken for none
_ROUNDING = 1e-7


@dataclass(frozen=True, slots=True, eq=False)
class NearestCorrelation:
    """A possible matrix near the given one. Distances are sqrt(sum over i < j of weight times difference squared).

    matrix: (D, D) symmetric, unit diagonal exactly, positive semidefinite up to rounding; with `local` every pair
    table is nonnegative up to rounding too. gap: the squared distance between `matrix` and the true projection is
    at most this, proved by a dual point. moved: the distance from what was given to `matrix`. target: the gap that
    was asked for. iterations: of the solver.
    """

    matrix: FloatArray
    gap: float
    moved: float
    target: float
    iterations: int

    @property
    def certified(self) -> bool:
        """Whether the gap is as small as was asked for."""
        return self.gap <= self.target


@dataclass(frozen=True, slots=True, eq=False)
class CorrelationProblem:
    """Minimise sum over i < j of weight (Y - given)^2 over correlation matrices Y.

    given: (D, D) symmetric with unit diagonal. weight: (D, D) symmetric, 0 on the diagonal. scale: (D,) positive,
    weight being about scale_i scale_j; eigenvalues are those of matrices scaled by its root on both sides.
    """

    given: FloatArray
    weight: FloatArray
    scale: FloatArray
    tolerance: float
    progress: Progress | None

    def proof(self, matrix: FloatArray, iterations: int, normals: FloatArray | None = None) -> NearestCorrelation:
        """A possible matrix with the proof of how near it is to the projection.

        Let M = weight (given - Y), the way from Y to what was given. For the true projection Y*,
        |Y - Y*|^2 <= <M, Y* - Y> <= h(M) - <M, Y>, h the support function of the body. Any split of M into R and a
        vector N_ij per tetrahedron has h(M) <= h_L(R) + sum h_T(N_ij), and 2 h_L(R) <= sum y for every y with
        Diag(y) - R positive semidefinite. y = diag(R Y) is the optimal one where Y is the projection; elsewhere it
        is raised by what its least eigenvalue lacks. `normals` are the N_ij, (pairs, 3).
        """
        slope, excess = self.weight * (self.given - matrix), 0.0
        if normals is not None:
            reached, total = tetrahedron_support(normals), scatter_pairs(len(matrix), normals)
            excess = float(reached.sum() - 0.5 * np.sum(total * matrix))
            excess = max(0.0, excess + len(matrix) * EPS * float(np.abs(normals).sum()))
            slope = slope - total
        slack = np.diag(np.einsum("ij,ji->i", slope, matrix)) - slope
        slack /= np.sqrt(np.multiply.outer(self.scale, self.scale))
        size = float(np.linalg.norm(slack))
        lacks = max(0.0, len(matrix) * EPS * size - float(np.linalg.eigvalsh(slack)[0])) if size else 0.0
        gap = 0.5 * lacks * float(self.scale.sum()) + excess
        moved = float(np.sqrt(0.5 * np.sum(self.weight * (matrix - self.given) ** 2)))
        target = max(self.tolerance * moved, _ROUNDING * float(np.sqrt(self.weight.sum()))) ** 2
        if self.progress is not None:
            self.progress(iterations, gap)
        return NearestCorrelation(matrix, gap, moved, target, iterations)


def feasible_correlation(covariance: FloatArray, local: bool) -> FloatArray:
    """A correlation matrix near a positive semidefinite one; with `local`, one whose pair tables are nonnegative.

    Raising a diagonal keeps a matrix positive semidefinite and so does scaling; mixed with the identity, the
    uniform table, every pair table becomes nonnegative.
    """
    root = 1 / np.sqrt(np.maximum(np.diag(covariance), 1.0))
    out = 0.5 * (covariance + covariance.T) * np.multiply.outer(root, root)
    np.fill_diagonal(out, 1.0)
    least = float(pair_tables(pair_coordinates(out)).min()) if local else 0.0
    if least < 0:
        out *= 0.25 / (0.25 - least)
        np.fill_diagonal(out, 1.0)
    return out


_ENTRIES = 2**24  # 128 MB for each of the two kinds of vectors remembered
_RIDGE = 1e-10  # relative: far above rounding of the products (1e-16), far below what a step changes
_GROWTH = 2.0  # steps of the plain method do not grow: one of twice the shortest seen says that the memory misleads


class Anderson:
    """From a point v and its step f, the next point: v + f, less what the last steps say is superfluous [And65].

    The last moves and the changes of the steps they made are kept, at most `memory` of them; the combination of
    them that best explains f is taken away. A step twice as long as the shortest seen makes it start afresh.
    """

    def __init__(self, size: int, memory: int) -> None:
        self._memory = max(2, min(memory, _ENTRIES // size))
        self._changes = np.zeros((self._memory, size))
        self._moves = np.zeros((self._memory, size))
        self._products = np.zeros((self._memory, self._memory))
        self._told = np.zeros(self._memory)
        self._count = 0
        self._shortest = np.inf
        self._last: tuple[FloatArray, FloatArray] | None = None

    def next(self, point: FloatArray, step: FloatArray) -> FloatArray:
        """The point to evaluate after `point`, whose step is `step`: both (size,)."""
        length = float(np.linalg.norm(step))
        if length > _GROWTH * self._shortest:
            self._count, self._last, self._shortest = 0, None, length
        self._shortest = min(self._shortest, length)
        if self._last is not None:
            self._remember(point - self._last[0], step - self._last[1], step)
        self._last = (point, step)
        kept = min(self._count, self._memory)
        out = point + step
        if kept:
            products = self._products[:kept, :kept]
            ridge = _RIDGE * float(np.trace(products)) * np.eye(kept)
            if ridge[0, 0] > 0:
                out -= np.linalg.solve(products + ridge, self._told[:kept]) @ self._moves[:kept]
        return out

    def _remember(self, move: FloatArray, change: FloatArray, step: FloatArray) -> None:
        """Keep one more, in the place of the oldest.

        What the kept changes say of the step follows from what they said of the last one: a pass over all of them less.
        """
        place = self._count % self._memory
        self._changes[place] = change
        np.add(move, change, out=self._moves[place])
        kept = min(self._count + 1, self._memory)
        found = self._changes[:kept] @ change
        self._products[place, :kept] = self._products[:kept, place] = found
        self._told[:kept] += found
        self._told[place] = float(change @ step)
        self._count += 1


_ALIKE = 1e-9  # relative: products of logarithms and exponentials round some 1e-15 off
_FLOOR = 1e-3  # of the largest: a norm whose scales differ by more than a thousand is badly conditioned
_POWERS = 30  # a fixed point that only scales a norm: any positive scale is right, a near one is fast


def product_scale(weight: FloatArray) -> tuple[FloatArray, bool]:
    """(D,) positive s with weight_ij about s_i s_j, and whether that is all there is to the weights."""
    size = len(weight)
    off = ~np.eye(size, dtype=bool)
    if weight[off].min() > 0:
        if size == 2:
            return np.sqrt(weight.max(axis=0)), True
        logs = np.log(np.where(off, weight, 1.0))
        rows = logs.sum(axis=1)
        scale = np.exp((rows - rows.sum() / (2 * size - 2)) / (size - 2))
        if np.abs(np.multiply.outer(scale, scale)[off] / weight[off] - 1).max() < _ALIKE:
            return scale, True
    vector = np.sqrt(weight.mean(axis=1))
    for _ in range(_POWERS):
        # the rank-one part of the weights, whose diagonal is free
        vector = np.sqrt(vector * (weight @ vector) / float(vector @ vector))
    return np.maximum(vector, _FLOOR * float(vector.max())), False
