"""The factorization of least mean squared noise among those that answer F up to a bias, certified.

Either the bias is stated, each |Z_ij - F_ij| <= alpha ("entry") or each column of Z within alpha sqrt(k) of F's
("column"), and the noise of the answers Z is least; or a rate is, at which bias and noise are exchanged, and the root
of the sum of their squares is least. The search and its proof are in `nearby`. [SmithUllman]
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sfumato.designs.approximate.nearby import Cells, Near, Pairs, search
from sfumato.errors import WorkloadError
from sfumato.operators.base import FloatArray, real_array
from sfumato.operators.blas import single_thread

__all__ = ["Approximate", "Balanced", "approximate_optimum", "balanced_optimum"]


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
class Balanced:
    """R M = F + E - offset 1^T with the least hypot(||R||_F, exchange * distance), and a proof of how close.

    `distance` is the largest norm of a column of E. `strategy` M has columns of norm at most 1, or with `pairs` of
    distance at most 1 to each other; only then may the offset (k,) differ from zero. The bounds are on the hypot.
    """

    strategy: FloatArray
    reconstruction: FloatArray
    offset: FloatArray
    distance: float
    lower_bound: float
    upper_bound: float
    iterations: int


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
    dense = _read(matrix)
    if norm not in ("column", "entry"):
        raise WorkloadError(f"the bias is bounded by 'column' or by 'entry', not by {norm!r}")
    if not 0.0 < alpha < math.inf:
        raise WorkloadError(f"a bias alpha must be a positive number, not {alpha!r}")
    by_column = norm == "column"
    near = Near(dense, float(alpha) * (math.sqrt(len(dense)) if by_column else 1.0), by_column)
    if not near.project(np.zeros(dense.shape)).any():
        raise WorkloadError(f"a bias of {alpha:g} lets every query be answered by 0; take a smaller one")
    with single_thread():
        found = search(near, Cells.even(dense.shape[1]), None, tolerance, max_iterations)
    return Approximate(found.strategy, found.reconstruction, found.lower, found.upper, found.iterations)


def balanced_optimum(
    matrix: ArrayLike, exchange: float, *, pairs: bool = False, tolerance: float = 1e-2, max_iterations: int = 100
) -> Balanced:
    """The factorization of answers Z with the least hypot(||R||_F, exchange * max_j ||Z_j - F_j||).

    For n records and noise of standard deviation sigma at sensitivity 1, exchange = n / sigma makes it the least
    root of summed squared noise and worst squared bias, divided by sigma. `pairs` is for a known number of records,
    where only differences of columns are priced and R M may differ from Z by an offset 1^T.

    Raises WorkloadError for a matrix that is not finite or not (k, m), for an exchange <= 0, and where nothing
    but what is known is asked.
    """
    dense = _read(matrix)
    if not 0.0 < exchange < math.inf:
        raise WorkloadError(f"an exchange rate must be a positive number, not {exchange!r}")
    if not (dense - dense[:, :1] * pairs).any():
        raise WorkloadError("all cells count alike in every query; no strategy is needed")
    cells = dense.shape[1]
    with single_thread():
        # what of Z lies outside the columns' span adds to both sides and helps neither
        turn, dense = np.linalg.qr(dense) if len(dense) > cells else (None, dense)
        geometry = Pairs.even(cells) if pairs else Cells.even(cells)
        found = search(Near(dense, 0.0, by_column=True), geometry, exchange, tolerance, max_iterations)
        back = found.reconstruction
        offset = (found.answers - back @ found.strategy).mean(axis=1) if pairs else np.zeros(len(dense))
        if turn is not None:
            back, offset = turn @ back, turn @ offset
    return Balanced(found.strategy, back, offset, found.distance, found.lower, found.upper, found.iterations)


def _read(matrix: ArrayLike) -> FloatArray:
    dense = np.asarray(real_array(matrix, "matrix"), dtype=np.float64)
    if dense.ndim != 2 or 0 in dense.shape or not np.isfinite(dense).all():
        raise WorkloadError(f"matrix has shape {dense.shape}; it must be (k, m) of finite numbers, k and m at least 1")
    return dense
