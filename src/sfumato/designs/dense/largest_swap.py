"""The dense strategy of least largest error where one record is replaced by another, certified.

As in `swap`, what is sought is gamma_2 of the differences F D of columns of the queries F, the norm of `largest`:

    max || diag(l)^(1/2) F D diag(w)^(1/2) ||_*   over weights l on the queries and w on the pairs of cells.

With G(l) = F^T diag(l) F, L(w) the Laplacian of the pairs and H^T H the centred G(l), its singular values are the roots
of the eigenvalues of H L(w) H^T = U diag(s^2) U^T. The long singular vectors are diag(l)^(1/2) F K and
diag(w)^(1/2) D^T B with K = L(w) H^T U diag(s)^(-2) and B = H^T U diag(s)^(-1), of m rows each.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sfumato.designs.dense.blocks import squared, units
from sfumato.designs.dense.largest import Largest, Point, raised, search
from sfumato.designs.dense.rows import Queries
from sfumato.designs.dense.swap import PairBlock
from sfumato.errors import WorkloadError
from sfumato.ground.progress import Progress
from sfumato.operators.base import FloatArray, real_array
from sfumato.operators.blas import single_thread

__all__ = ["swap_largest"]

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True)
class _Pairs(Point):
    """`cells` are the pairs, `left` is K and `right` is B; `proved` is at most the true t."""

    queries: Queries
    block: PairBlock
    left: FloatArray
    proved: float

    def bend(self, kind: type[np.floating]) -> Callable[[FloatArray], FloatArray]:
        k, kernel = len(self.rows), self.kernel().astype(kind)
        left, right = self.left.astype(kind, copy=False), self.right.astype(kind, copy=False)

        def image(x: FloatArray) -> FloatArray:
            inner = left.T @ self.queries.gram(self.rows * x[:k]).astype(kind) @ left
            inner -= right.T @ self.block.laplacian(self.cells * x[k:]).astype(kind) @ right
            inner *= kernel
            rows = self.queries.forms((left @ inner @ left.T).astype(np.float64))
            pairs = self.block.distances((right @ inner @ right.T).astype(np.float64))
            return np.concatenate([self.rows * rows, -self.cells * pairs])

        return image

    @property
    def strategy(self) -> FloatArray:
        return (self.right * np.sqrt(self.roots)).T


def swap_largest(
    queries: ArrayLike | Queries,
    *,
    tolerance: float = 8e-5,
    max_iterations: int = 100,
    progress: Progress | None = None,
) -> Largest:
    """The strategy M of least largest standard error of the queries (k, m) at noise diam(M), as in `swap`.

    The columns of the strategy sum to zero and lie at most 1 apart; `cells` are the weights on the pairs of cells in
    the order of np.triu_indices(m, 1). A search that ends above `tolerance` is no error: read `gap`. One iteration
    takes some tens of products of (m, m) matrices. Raises WorkloadError for arrays that are not finite matrices.
    """
    if not isinstance(queries, Queries):
        matrix = np.asarray(real_array(queries, "matrix"), dtype=np.float64)
        if matrix.ndim != 2 or 0 in matrix.shape or not np.isfinite(matrix).all():
            raise WorkloadError(
                f"matrix has shape {matrix.shape}; it must be (k, m) of finite numbers, k and m at least 1"
            )
        queries = Queries.of(matrix - matrix.mean(axis=1, keepdims=True))
    k, m = queries.shape
    first, second = np.triu_indices(m, 1)
    with single_thread():
        alike = np.full(k, 1 / k)
        basis = _basis(_centred(queries.gram(alike)))
        if not basis.shape[1]:
            return Largest(np.zeros((0, m)), alike, np.full(len(first), 1 / max(len(first), 1)), 0.0, 0.0, 0)
        evaluate = functools.partial(_evaluate, queries, basis, first, second)
        start = PairBlock(basis.T, first, second).squares
        found, iterations = search(evaluate, np.ones(k), start, tolerance, max_iterations, progress)
        assert isinstance(found, _Pairs)
        strategy = found.strategy
        strategy -= strategy.mean(axis=1, keepdims=True)
        strategy /= math.sqrt(float(found.block.distances(strategy.T @ strategy).max())) * (1 + 4 * _EPS)
        # from the strategy alone: however inexact the roots are, this is what it attains
        inverse = np.linalg.pinv(strategy)
        attained = math.sqrt(float(queries.forms(inverse @ inverse.T).max()))
        singular = np.linalg.svd(strategy, compute_uv=False)
        doubt = units(m) * _EPS * float(singular[0] / singular[-1])
    return Largest(strategy, found.rows, found.cells, found.proved, attained * (1 + doubt), iterations)


def _centred(gram: FloatArray) -> FloatArray:
    means = gram.mean(axis=0)
    return gram - means - means[:, None] + means.mean()


def _basis(gram: FloatArray) -> FloatArray:
    """(m, r) orthonormal: what the centred queries span, which no weights on them change."""
    values, columns = np.linalg.eigh(gram)
    largest = max(float(values[-1]), float(np.finfo(np.float64).tiny))
    return columns[:, values > 64 * len(gram) * _EPS * largest]


def _evaluate(
    queries: Queries,
    basis: FloatArray,
    first: np.ndarray[tuple[int], np.dtype[np.intp]],
    second: np.ndarray[tuple[int], np.dtype[np.intp]],
    even: float,
    rows: FloatArray,
    pairs: FloatArray,
) -> _Pairs:
    rows, pairs = raised(rows, pairs, even)
    inside = basis.T @ queries.gram(rows) @ basis
    values, columns = np.linalg.eigh(inside)
    values = np.maximum(values, len(values) * _EPS * float(values[-1]))
    factor = (np.sqrt(values) * columns).T @ basis.T
    block = PairBlock(factor, first, second)
    graph = block.laplacian(pairs)
    image = factor @ graph
    inner = image @ factor.T
    degree, size = float(np.diagonal(graph).max()), float(np.linalg.norm(factor)) ** 2
    found = squared(inner, 8 * units(len(graph)) * degree * size / float(np.trace(inner)) + units(len(rows)))
    s = found.roots
    left, right = image.T @ (found.vectors / s**2), factor.T @ (found.vectors / s)
    p = rows * queries.forms((left * s) @ left.T)
    q = pairs * np.maximum(block.distances((right * s) @ right.T), 0.0)
    total = float(s.sum())
    return _Pairs(even, rows, pairs, s, right, p / total, q / total, queries, block, left, found.proved)
