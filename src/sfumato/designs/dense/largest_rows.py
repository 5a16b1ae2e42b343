"""The strategy of least largest error of very many queries over few cells, which are never written out.

The search is that of `largest`. The singular values of the scaled matrix are the roots of the eigenvalues of
diag(v)^(1/2) G(l) diag(v)^(1/2), G(l) = F^T diag(l) F, and the left singular vectors enter only through G at
other weights and through quadratic forms of the rows: for ranges both take a time of (m, m) sums, however many.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sfumato.designs.dense.blocks import squared, units
from sfumato.designs.dense.largest import Largest, Point, raised, search
from sfumato.designs.dense.reductions import Problem
from sfumato.designs.dense.rows import Queries
from sfumato.ground.progress import Progress
from sfumato.operators.base import FloatArray
from sfumato.operators.blas import single_thread

__all__ = ["optimize_largest_rows"]

_EPS = float(np.finfo(np.float64).eps)
_CLEAR = 1e-8  # least eigenvalue of the correlations of the cells below which digits would be lost


@dataclass(frozen=True, slots=True)
class _Implicit(Point):
    """A point of queries that are not written out; `proved` is at most the true t."""

    queries: Queries
    proved: float

    @property
    def inverse(self) -> FloatArray:
        """N, (m, m): F N = diag(l)^(-1/2) U."""
        return np.sqrt(self.cells)[:, None] * self.right / self.roots

    def bend(self, kind: type[np.floating]) -> Callable[[FloatArray], FloatArray]:
        k, kernel = len(self.rows), self.kernel().astype(kind)
        inverse, right = self.inverse.astype(kind), self.right.astype(kind, copy=False)

        def image(x: FloatArray) -> FloatArray:
            inner = inverse.T @ self.queries.gram(self.rows * x[:k]).astype(kind) @ inverse
            inner -= (right.T * x[k:].astype(kind)) @ right
            inner *= kernel
            back = (inverse @ inner @ inverse.T).astype(np.float64)
            cells = np.einsum("ij,ij->i", right @ inner, right).astype(np.float64)
            return np.concatenate([self.rows * self.queries.forms(back), -cells])

        return image


def optimize_largest_rows(
    queries: Queries, *, tolerance: float = 1e-5, max_iterations: int = 60, progress: Progress | None = None
) -> Largest | None:
    """The strategy of least largest variance, as `optimize_largest`; None where cells are alike, unasked or apart.

    One iteration takes some tens of products of (m, m) matrices and of passes over the queries.
    """
    k, _ = queries.shape
    gram = queries.gram(np.full(k, 1 / k))
    norms = np.sqrt(np.maximum(np.diagonal(gram), 0.0))
    if not norms.all() or len(Problem(gram, None).components()) > 1:
        return None
    with single_thread():
        if float(np.linalg.eigvalsh(gram / norms / norms[:, None])[0]) < _CLEAR:
            return None
        found, iterations = search(
            functools.partial(_evaluate, queries), np.ones(k), norms**2, tolerance, max_iterations, progress
        )
        assert isinstance(found, _Implicit)
        strategy = (found.right / np.sqrt(found.cells)[:, None] * np.sqrt(found.roots)).T
        strategy /= math.sqrt(float(np.einsum("ij,ij->j", strategy, strategy).max())) * (1 + 4 * _EPS)
        # from the strategy alone: however inexact the roots are, this is what it attains
        inverse = np.linalg.inv(strategy)
        attained = math.sqrt(float(queries.forms(inverse @ inverse.T).max()))
        doubt = units(len(gram)) * _EPS * np.linalg.cond(strategy)
    return Largest(strategy, found.rows, found.cells, found.proved, attained * (1 + float(doubt)), iterations)


def _evaluate(queries: Queries, even: float, rows: FloatArray, cells: FloatArray) -> _Implicit:
    rows, cells = raised(rows, cells, even)
    width = np.sqrt(cells)
    # sums over the rows and along the cells come before the eigenvalues
    found = squared(queries.gram(rows) * width * width[:, None], units(len(rows) + len(cells)))
    s, right = found.roots, found.vectors
    scaled = width[:, None] * right
    p = rows * queries.forms((scaled / s) @ scaled.T)
    q = np.einsum("ij,ij->i", right * s, right)
    total = float(s.sum())
    return _Implicit(even, rows, cells, s, right, p / total, q / total, queries, found.proved)
