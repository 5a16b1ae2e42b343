"""The factorization of least mean squared noise among those that answer F up to a stated bias, certified.

Over answers Z near F, each |Z_ij - F_ij| <= alpha ("entry") or each column within alpha sqrt(k) of F's ("column"),

    min_Z max_v || Z diag(v)^(1/2) ||_*,    v a distribution over the cells,

is convex in Z and concave in v [ENU20]. Both sides are improved in turn: v by the ratio of its gradient to the mean,
Z by accelerated projected steps on tr(Z X^-1 Z^T), X the optimum at v for the last Z with the square of a width added
to its squared singular values, without which X becomes singular and the search stalls. The width follows the gap.

For any P of operator norm at most 1 and B = P diag(v)^(1/2), every Z near F has <B, Z> >= <B, F> minus what moving Z
can take: alpha times the sum of |B_ij|, or alpha sqrt(k) times the sum of the norms of its columns. The greatest of
these is the lower bound. X itself, scaled to a unit diagonal, attains the upper one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sfumato.errors import WorkloadError
from sfumato.operators.base import FloatArray, real_array
from sfumato.operators.blas import single_thread

__all__ = ["Approximate", "approximate_optimum"]

_EPS = float(np.finfo(np.float64).eps)
_WIDTH = 0.3  # of the largest singular value, at the start
_NARROW = 0.7  # the width shrinks no faster than by this, so that the two sides keep pace
_STEPS = 15  # for Z between two decompositions
_PACE = 1.5  # power of the ratio by which v moves: 1 is safe, 2 the longest that settles
_LEAST = 1e-9  # of the mean weight of a cell


@dataclass(frozen=True, slots=True)
class Approximate:
    """R M = Z near F, and a proof of how close ||R||_F ||M||_{1->2} is to the least.

    `strategy` M (m, m) has columns of norm at most 1, `reconstruction` R (k, m); the bounds are on ||R||_F, the root
    of the summed variances at noise of standard deviation 1. `iterations` counts eigendecompositions.
    """

    strategy: FloatArray
    reconstruction: FloatArray
    lower_bound: float
    upper_bound: float
    iterations: int

    @property
    def gap(self) -> float:
        """upper_bound / lower_bound - 1: how far from optimal the factorization can be at most."""
        return self.upper_bound / self.lower_bound - 1 if self.lower_bound > 0.0 else math.inf


@dataclass(frozen=True, slots=True)
class _Near:
    """The answers within alpha of F."""

    matrix: FloatArray
    alpha: float
    by_column: bool

    def project(self, answers: FloatArray) -> FloatArray:
        if not self.by_column:
            return np.clip(answers, self.matrix - self.alpha, self.matrix + self.alpha)
        off = answers - self.matrix
        norms = np.linalg.norm(off, axis=0)
        return self.matrix + off * np.minimum(1.0, self._radius / np.maximum(norms, 1e-300))

    def least(self, directions: FloatArray) -> float:
        """The least <B, Z>, rounded down."""
        if self.by_column:
            taken = self._radius * float(np.linalg.norm(directions, axis=0).sum())
        else:
            taken = self.alpha * float(np.abs(directions).sum())
        # P may exceed norm 1, and the sums their values, by rounding
        doubt = (
            32 * math.sqrt(directions.size) * _EPS * (float(np.vdot(np.abs(directions), np.abs(self.matrix))) + taken)
        )
        return float(np.vdot(directions, self.matrix)) - taken - doubt

    @property
    def _radius(self) -> float:
        return self.alpha * math.sqrt(len(self.matrix))


def approximate_optimum(
    matrix: ArrayLike, alpha: float, norm: str = "column", *, tolerance: float = 1e-2, max_iterations: int = 500
) -> Approximate:
    """The best factorization of answers near `matrix` (k, m), to a relative gap of `tolerance`.

    `norm` "entry" bounds the bias of every answer by alpha times the largest count that a record can be part of;
    "column" bounds ||R M - F||_{1->2} by alpha sqrt(k): the root mean squared bias over queries, per record. A search
    that ends above `tolerance` is no error: read `gap`. One iteration takes time k m^2, on one thread.

    Raises WorkloadError for a matrix that is not finite or not (k, m), for alpha <= 0, for another norm, and where
    alpha is so large that the answer 0 to everything is near enough.
    """
    dense = np.asarray(real_array(matrix, "matrix"), dtype=np.float64)
    if dense.ndim != 2 or 0 in dense.shape or not np.isfinite(dense).all():
        raise WorkloadError(f"matrix has shape {dense.shape}; it must be (k, m) of finite numbers, k and m at least 1")
    if norm not in ("column", "entry"):
        raise WorkloadError(f"the bias is bounded by 'column' or by 'entry', not by {norm!r}")
    if not 0.0 < alpha < math.inf:
        raise WorkloadError(f"a bias alpha must be a positive number, not {alpha!r}")
    near = _Near(dense, float(alpha), norm == "column")
    if not near.project(np.zeros(dense.shape)).any():
        raise WorkloadError(f"a bias of {alpha:g} lets every query be answered by 0; take a smaller one")
    with single_thread():
        return _search(near, tolerance, max_iterations)


def _search(near: _Near, tolerance: float, most: int) -> Approximate:
    from scipy.linalg import eigh  # noqa: PLC0415  (slow to import)

    answers, m = near.matrix, near.matrix.shape[1]
    v, width = np.full(m, 1 / m), math.inf
    best = Approximate(np.zeros((0, m)), np.zeros((len(answers), 0)), 0.0, math.inf, 0)
    lower, iteration = 0.0, 0
    while iteration < most:
        iteration += 1
        root = np.sqrt(v)
        scaled = answers * root
        squares, vectors = eigh(scaled.T @ scaled, check_finite=False, driver="evd")
        width = _WIDTH * math.sqrt(squares[-1]) if width == math.inf else width
        s = np.sqrt(np.maximum(squares, 0.0) + width**2)
        share = np.einsum("ij,ij->i", vectors * s, vectors)
        lower = max(lower, near.least((scaled @ vectors / s) @ vectors.T * root))
        # X with its diagonal scaled to 1, and its factors
        norms = np.sqrt(share / v)
        reconstruction = (answers * (norms * root)) @ vectors / np.sqrt(s)
        upper = float(np.linalg.norm(reconstruction)) * (1 + 32 * math.sqrt(m) * _EPS)
        if upper < best.upper_bound:
            strategy = (vectors * np.sqrt(s)).T / (norms * root) * (1 - 32 * _EPS)
            best = Approximate(strategy, reconstruction * (1 + 32 * _EPS), lower, upper, iteration)
        if best.upper_bound <= lower * (1 + tolerance):
            break
        answers = _nearer(near, scaled, root, (vectors / s) @ vectors.T, float(s.min()))
        v = v * (share / share.sum() / v) ** _PACE
        v = np.maximum(v / v.sum(), _LEAST / m)
        v /= v.sum()
        width = max(_NARROW * width, min(width, (best.upper_bound - lower) / m))
    return Approximate(best.strategy, best.reconstruction, lower, best.upper_bound, iteration)


def _nearer(near: _Near, scaled: FloatArray, root: FloatArray, inverse: FloatArray, least: float) -> FloatArray:
    """Answers of smaller tr(Y inverse Y^T), Y = Z diag(root), from Y = `scaled`; 1 / `least` bounds the inverse."""
    current, ahead, t = scaled, scaled, 1.0
    for _ in range(_STEPS):
        moved = near.project((ahead - least * (ahead @ inverse)) / root) * root
        if float(np.vdot(ahead - moved, moved - current)) > 0.0:
            ahead, t = moved, 1.0  # momentum points uphill
        else:
            longer = (1 + math.sqrt(1 + 4 * t * t)) / 2
            ahead, t = moved + (t - 1) / longer * (moved - current), longer
        current = moved
    return near.project(current / root)
