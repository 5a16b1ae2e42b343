"""The search behind `approximate`: answers near F and weights on what bounds the sensitivity, improved in turn.

Over answers Z near F and weights v on the cells, or on the pairs of cells,

    min_Z max_v || Z L(v)^(1/2) ||_*

is convex in Z and concave in v [ENU20]. L(v) is diag(v) where the sensitivity is the largest norm of a column, and the
Laplacian of the weighted graph where it is the largest distance between two columns (see `swap`); the latter
forgets what all columns have in common, which a known total answers. Both sides are improved in turn: v by the ratio
of its gradient to the mean, Z by accelerated projected steps on tr(Z X^-1 Z^T), X the optimum at v for the last Z with
the square of a width added to its squared singular values, without which X becomes singular and the search stalls.
The width follows the gap.

For any P of operator norm at most 1 and B = P L(v)^(1/2), every Z near F has <B, Z> >= <B, F> minus what moving Z by
`size` can take, which is `size` times the sum of |B_ij|, or of the norms of its columns: a line in `size`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from sfumato.operators.base import FloatArray

__all__ = ["Best", "Cells", "Near", "Pairs", "search"]

_EPS = float(np.finfo(np.float64).eps)
_WIDTH = 0.3  # of the largest singular value, at the start
_NARROW = 0.7  # the width shrinks no faster than by this, so that the two sides keep pace
_STEPS = 15  # for Z between two decompositions
_PACE = 1.5  # power of the ratio by which v moves: 1 is safe, 2 the longest that settles
_LEAST = 1e-9  # of the mean weight
_FREE = 5  # iterations after which `size` moves half the way only


@dataclass(frozen=True, slots=True)
class Near:
    """The answers within `size` of F: in every entry, or in the norm of every column."""

    matrix: FloatArray
    size: float
    by_column: bool

    def project(self, answers: FloatArray) -> FloatArray:
        """The nearest such answers."""
        if not self.by_column:
            return np.clip(answers, self.matrix - self.size, self.matrix + self.size)
        off = answers - self.matrix
        norms = np.linalg.norm(off, axis=0)
        return self.matrix + off * np.minimum(1.0, self.size / np.maximum(norms, 1e-300))

    def distance(self, answers: FloatArray) -> float:
        """The least size at which these answers are near."""
        off = np.abs(answers - self.matrix)
        return float(np.linalg.norm(off, axis=0).max() if self.by_column else off.max())

    def line(self, directions: FloatArray) -> tuple[float, float]:
        """(a, b) with <B, Z> >= a - b size for all Z within any size; rounded so that it holds."""
        # P may exceed norm 1, and the sums their values, by rounding
        doubt = 32 * math.sqrt(directions.size) * _EPS
        taken = np.linalg.norm(directions, axis=0).sum() if self.by_column else np.abs(directions).sum()
        held = float(np.vdot(directions, self.matrix))
        return held - doubt * float(np.vdot(np.abs(directions), np.abs(self.matrix))), float(taken) * (1 + doubt)


@dataclass(frozen=True, slots=True)
class Cells:
    """Weights on the cells: the sensitivity is the largest norm of a column of M."""

    weights: FloatArray

    bend = 1.0
    """Bounds the norm of L(v) divided on both sides by the scale."""

    @classmethod
    def even(cls, cells: int) -> Cells:
        return cls(np.full(cells, 1 / cells))

    @property
    def scale(self) -> FloatArray:
        return np.sqrt(self.weights)

    def rooted(self, rows: FloatArray) -> FloatArray:
        """Rows times L(v)^(1/2)."""
        return rows * self.scale

    def scaled(self, inner: FloatArray) -> FloatArray:
        """L(v)^(1/2) inner L(v)^(1/2), divided on both sides by the scale."""
        return inner

    def attain(
        self, answers: FloatArray, rooted: FloatArray, vectors: FloatArray, s: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """M of sensitivity 1 and R with R M = Z, from X; and the gradients by which the weights move."""
        share = np.einsum("ij,ij->i", vectors * s, vectors)
        # X with its diagonal scaled to 1, and its factors
        lengths = np.sqrt(share / self.weights) * self.scale
        strategy = (vectors * np.sqrt(s)).T / lengths * (1 - 32 * _EPS)
        return strategy, (answers * lengths) @ vectors / np.sqrt(s), share / self.weights

    def moved(self, gradients: FloatArray) -> Cells:
        return Cells(_moved(self.weights, gradients))


@dataclass(frozen=True, slots=True)
class Pairs:
    """Weights on the pairs of cells: the sensitivity is the largest distance between two columns of M."""

    weights: FloatArray
    graph: FloatArray
    root: FloatArray
    inverse: FloatArray

    bend = 2.0

    @classmethod
    def even(cls, cells: int) -> Pairs:
        count = cells * (cells - 1) // 2
        return cls.of(np.full(count, 1 / count), cells)

    @classmethod
    def of(cls, weights: FloatArray, cells: int) -> Pairs:
        from scipy.linalg import eigh  # noqa: PLC0415  (slow to import)

        graph = np.zeros((cells, cells))
        graph[np.triu_indices(cells, 1)] = -weights
        graph += graph.T
        graph[np.diag_indices(cells)] = -graph.sum(axis=1)
        values, vectors = eigh(graph, check_finite=False, driver="evd")
        # the least is that of what all columns have in common
        roots, vectors = np.sqrt(np.maximum(values[1:], _EPS * values[-1])), vectors[:, 1:]
        return cls(weights, graph, (vectors * roots) @ vectors.T, (vectors / roots) @ vectors.T)

    @property
    def scale(self) -> FloatArray:
        return np.sqrt(np.diagonal(self.graph))

    def rooted(self, rows: FloatArray) -> FloatArray:
        return rows @ self.root

    def scaled(self, inner: FloatArray) -> FloatArray:
        return self.root @ inner @ self.root / self.scale / self.scale[:, None]

    def attain(
        self, answers: FloatArray, rooted: FloatArray, vectors: FloatArray, s: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        strategy = (vectors * np.sqrt(s)).T @ self.inverse
        gram = strategy.T @ strategy
        norms = np.diagonal(gram)
        squares = (norms[:, None] + norms[None, :] - 2 * gram)[np.triu_indices(len(gram), 1)]
        size = math.sqrt(float(squares.max())) * (1 + 32 * _EPS)
        return strategy / size, rooted @ vectors / np.sqrt(s) * size, squares

    def moved(self, gradients: FloatArray) -> Pairs:
        return Pairs.of(_moved(self.weights, np.maximum(gradients, 0.0)), len(self.graph))


def _moved(weights: FloatArray, gradients: FloatArray) -> FloatArray:
    moved = weights * (gradients / (weights @ gradients)) ** _PACE
    moved = np.maximum(moved / moved.sum(), _LEAST / len(moved))
    return moved / moved.sum()


@dataclass(frozen=True, slots=True)
class Best:
    """R M = Z up to what all columns have in common, with `distance` of Z from F and bounds on the value sought."""

    strategy: FloatArray
    reconstruction: FloatArray
    answers: FloatArray
    distance: float
    lower: float
    upper: float
    iterations: int


def search(near: Near, geometry: Cells | Pairs, exchange: float | None, tolerance: float, most: int) -> Best:
    """The least ||R||_F at sensitivity 1 over answers within near.size; or, with an exchange rate t, over all answers
    the least hypot(||R||_F, t * distance), the size then moving to the best for the last line."""
    from scipy.linalg import eigh  # noqa: PLC0415  (slow to import)

    answers, cells = near.matrix, near.matrix.shape[1]
    empty = np.zeros((0, cells))
    best, width, lower, iteration = Best(empty, empty.T, answers, 0.0, 0.0, math.inf, 0), math.inf, 0.0, 0
    while iteration < most:
        iteration += 1
        rooted = geometry.rooted(answers)
        squares, vectors = eigh(rooted.T @ rooted, check_finite=False, driver="evd")
        width = _WIDTH * math.sqrt(squares[-1]) if width == math.inf else width
        s = np.sqrt(np.maximum(squares, 0.0) + width**2)
        a, b = near.line(geometry.rooted((rooted @ vectors / s) @ vectors.T))
        lower = max(lower, a - b * near.size if exchange is None else a * exchange / math.hypot(exchange, b))
        strategy, reconstruction, gradients = geometry.attain(answers, rooted, vectors, s)
        reconstruction = reconstruction * (1 + 32 * _EPS)
        upper, distance = float(np.linalg.norm(reconstruction)) * (1 + 32 * math.sqrt(cells) * _EPS), near.size
        if exchange is not None:
            distance = near.distance(answers)
            upper = math.hypot(upper, exchange * distance)
        if upper < best.upper:
            best = Best(strategy, reconstruction, answers, distance, lower, upper, iteration)
        if best.upper <= lower * (1 + tolerance):
            break
        if exchange is not None:
            wanted = a * b / (exchange**2 + b**2)
            near = replace(near, size=wanted if iteration <= _FREE else (near.size + wanted) / 2)
        answers = _nearer(
            near, answers, geometry.scale, geometry.scaled((vectors / s) @ vectors.T), s[0] / geometry.bend
        )
        geometry = geometry.moved(gradients)
        width = max(_NARROW * width, min(width, (best.upper - lower) / cells))
    return replace(best, lower=lower, iterations=iteration)


def _nearer(near: Near, answers: FloatArray, scale: FloatArray, inverse: FloatArray, step: float) -> FloatArray:
    """Answers of smaller tr(Y inverse Y^T), Y = Z diag(scale); 1 / `step` bounds the inverse."""
    current, ahead, t = answers * scale, answers * scale, 1.0
    for _ in range(_STEPS):
        moved = near.project((ahead - step * (ahead @ inverse)) / scale) * scale
        if float(np.vdot(ahead - moved, moved - current)) > 0.0:
            ahead, t = moved, 1.0  # momentum points uphill
        else:
            longer = (1 + math.sqrt(1 + 4 * t * t)) / 2
            ahead, t = moved + (t - 1) / longer * (moved - current), longer
        current = moved
    return near.project(current / scale)
