"""The dense strategy of least largest error where one record is replaced by another, certified.

For weights l on the queries, of sum 1, the least weighted sum of the variances is the problem of `swap` for the rows
times the roots of l, and bounds the least largest variance from below; the variances of its strategy bound that from
above. Weights move by a power of how far their query's variance is above the mean, until the two bounds meet.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from sfumato.operators.base import FloatArray, real_array
from sfumato.operators.blas import single_thread
from sfumato.strategies.optimum.largest import Largest, optimize_largest
from sfumato.strategies.optimum.swap import swap_optimum

__all__ = ["swap_largest"]

_EXPONENT = 3.0
_LEAST = 1e-5  # of the mean weight, so that no query leaves the row space


def swap_largest(matrix: ArrayLike, *, tolerance: float = 1e-4, max_iterations: int = 40) -> Largest:
    """The strategy M of least largest standard error of the queries (k, m) at noise diam(M), as in `swap`.

    The columns of the strategy sum to zero and lie at most 1 apart; `cells` is empty, since the dual's other weights
    are on pairs of cells. A search that ends above `tolerance` is no error: read `gap`; it shrinks by about half in
    an iteration, each of which solves one problem of `swap`. Raises WorkloadError as `swap_optimum` does.
    """
    dense = np.asarray(real_array(matrix, "matrix"), dtype=np.float64)
    centred = dense - dense.mean(axis=1, keepdims=True)
    weights = optimize_largest(dense).rows
    weights = weights + _LEAST / len(weights)
    best, lower, upper, iterations = np.zeros((0, dense.shape[1])), 0.0, math.inf, 0
    chosen = weights / weights.sum()
    while iterations < max_iterations and upper > lower * (1 + tolerance):
        weights = weights / weights.sum()
        found = swap_optimum(matrix=np.sqrt(weights)[:, None] * dense)
        iterations += 1
        variances = _variances(centred, found.strategy)
        if found.lower_bound > lower:
            lower, chosen = found.lower_bound, weights
        largest = math.sqrt(float(variances.max())) * (1 + 1e-12)
        if largest < upper:
            upper, best = largest, found.strategy
        if upper == 0.0:
            break
        weights = weights * (variances / float(weights @ variances)) ** _EXPONENT
        weights = np.maximum(weights, _LEAST / len(weights) * float(weights.max()))
    return Largest(best, chosen, np.zeros(0), min(lower, upper), upper, iterations)


def _variances(centred: FloatArray, strategy: FloatArray) -> FloatArray:
    with single_thread():
        return np.asarray(((centred @ np.linalg.pinv(strategy)) ** 2).sum(axis=1), dtype=np.float64)
