"""Power series in float64: the square root of the prefix sums, and inverses by Newton's iteration."""

from __future__ import annotations

import math

import numpy as np

from sfumato.operators.base import FloatArray
from sfumato.operators.convolution import causal

__all__ = ["inverse_series", "prefix_bound", "range_bound", "response", "root_coefficients", "row_weights"]


def root_coefficients(n: int) -> FloatArray:
    """binom(2k, k) / 4^k for k < n: the series (1 - z)^(-1/2), whose square is that of the prefix sums. [FHU23]"""
    k = np.arange(1, n)
    return np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])


def inverse_series(series: FloatArray) -> FloatArray:
    """The first n coefficients of 1 / series, for a leading coefficient that is not 0."""
    n = len(series)
    out = np.array([1.0 / series[0]])
    while len(out) < n:
        m = min(n, 2 * len(out))
        grown = np.zeros(m)
        grown[: len(out)] = out
        error = -causal(series[:m], grown)
        error[0] += 1.0
        out = grown + causal(grown, error)
    return out


def response(series: FloatArray, inverse: FloatArray) -> FloatArray:
    """r with series * r = 1 + z + z^2 + ...: prefix sums of what the series measures; corrected once."""
    found = np.cumsum(inverse)
    return found + causal(inverse, 1.0 - causal(series, found))


def row_weights(series: FloatArray) -> FloatArray:
    """Positive w (n,) under which every column of diag(w) T(series) has length 1.

    The squares solve sum_i w_i^2 series_(i-j)^2 = 1 for all j, a triangular Toeplitz system with a right side of
    ones: they are the partial sums of 1 / (series squared term by term), last row first. For the coefficients of
    (1 - z)^(-1/2) the squares are log-convex, so by Kaluza's theorem all later terms of that inverse are
    negative, and its partial sums decrease to a limit that is not negative.
    """
    sums = np.cumsum(inverse_series(series**2))
    return np.sqrt(np.maximum(sums[::-1], 0.0))


def prefix_bound(n: int) -> float:
    """The sum of singular values of the (n, n) prefix matrix over sqrt(n): no factorization has a smaller error.

    It bounds sqrt(sum of variances) at unit noise and columns of length at most 1; the values are
    1 / (2 sin((2k - 1) pi / (4n + 2))).
    """
    angle = (2 * np.arange(1, n + 1) - 1) * (math.pi / (4 * n + 2))
    return float((0.5 / np.sin(angle)).sum()) / math.sqrt(n)


def range_bound(n: int) -> float:
    """The same for all n (n + 1) / 2 ranges, whose Gram matrix is n + 1 times the inverse of the second differences.

    The singular values are sqrt(n + 1) / (2 sin(k pi / (2n + 2))).
    """
    angle = np.arange(1, n + 1) * (math.pi / (2 * n + 2))
    return math.sqrt((n + 1) / n) * float((0.5 / np.sin(angle)).sum())
