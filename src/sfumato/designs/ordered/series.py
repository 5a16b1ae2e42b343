"""Power series in float64: square roots of the prefix sums and of windows, inverses by Newton's iteration, bounds."""

from __future__ import annotations

import math

import numpy as np

from sfumato.designs.ordered.wide import wide_bound
from sfumato.operators.base import FloatArray
from sfumato.operators.toeplitz import causal

__all__ = [
    "inverse_series",
    "prefix_bound",
    "range_bound",
    "replaced_prefix_bound",
    "response",
    "root_coefficients",
    "row_weights",
    "window_bound",
]

_CIRCLE = 2**24  # 128 MB a transform
_LEAST = 1e-2  # positive, as weights are divided by; the docstring says for which windows it matters


def root_coefficients(n: int, width: int | None = None) -> FloatArray:
    """The first n coefficients of ((1 - z^width) / (1 - z))^(1/2), whose square is that of sums of `width` cells.

    Without a width those of (1 - z)^(-1/2), binom(2k, k) / 4^k, whose square is that of the prefix sums. [FHU23]
    """
    k = np.arange(1, n)
    whole = np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])
    if width is None or width >= n:
        return whole
    j = np.arange(1, (n - 1) // width + 1)
    ends = np.zeros(n)
    ends[::width] = np.concatenate([[1.0], np.cumprod((2 * j - 3) / (2 * j))])
    return causal(ends, whole)


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
    negative, and its partial sums decrease to a limit that is not negative. Those of wide windows may fall below;
    they are kept at 1/100, for which some of the first columns are a little longer.
    """
    sums = np.cumsum(inverse_series(series**2))
    return np.sqrt(np.maximum(sums[::-1], _LEAST))


def prefix_bound(n: int) -> float:
    """The sum of singular values of the (n, n) prefix matrix over sqrt(n): no factorization has a smaller error.

    It bounds sqrt(sum of variances) at unit noise and columns of length at most 1; the values are
    1 / (2 sin((2k - 1) pi / (4n + 2))).
    """
    angle = (2 * np.arange(1, n + 1) - 1) * (math.pi / (4 * n + 2))
    return float((0.5 / np.sin(angle)).sum()) / math.sqrt(n)


def replaced_prefix_bound(n: int) -> float:
    """The same where one record replaces another, at columns no more than 1 apart, by equal weights on all pairs.

    Of cells that sum to zero the last prefix is zero, and the others have them for differences, with zeros at both
    ends: the singular values are 1 / (2 sin(k pi / 2n)), k < n, and the bound sqrt(2 / (n - 1)) times their sum.
    """
    angle = np.arange(1, n) * (math.pi / (2 * n))
    return float((0.5 / np.sin(angle)).sum()) * math.sqrt(2 / (n - 1))


def range_bound(n: int) -> float:
    """The same for all n (n + 1) / 2 ranges, whose Gram matrix is n + 1 times the inverse of the second differences.

    The singular values are sqrt(n + 1) / (2 sin(k pi / (2n + 2))).
    """
    angle = np.arange(1, n + 1) * (math.pi / (2 * n + 2))
    return math.sqrt((n + 1) / n) * float((0.5 / np.sin(angle)).sum())


def window_bound(n: int, width: int) -> float:
    """The same for the n - width + 1 windows of one width: a lower bound of the optimum, within a percent of it
    where windows are narrow, 4 to 9 % below it where they take a third of the cells or more, 4 % from half on (`wide`).

    With a shift-invariant P of operator norm 1, its entry in row i and column j a function p of j - i, weights v of
    sum 1 on the cells give at least <P, F diag(v)^(1/2)> = sum_j q_j v_j^(1/2), where q_j sums P over the windows
    that hold cell j; the best v makes it the length of q. P has the phases of the windows' transfer function.
    Cells that are in all windows are alike, and one stands for all.
    """
    rows = n - width + 1
    # of narrower windows the first `width` alone are such
    wide = wide_bound(min(rows, width)) if 2 * width > rows else 0.0
    if width > rows:
        n, width = 2 * rows - 1, rows
    size = 1 << (n - 1).bit_length()
    # on a longer circle P is closer to that of the whole line
    size = max(size, min(4 * size, _CIRCLE))
    ones = np.zeros(size)
    ones[:width] = 1.0
    found = np.fft.rfft(ones)
    length = np.abs(found)
    phases = np.divide(found, length, out=np.zeros_like(found), where=length > 1e-9)
    sums = np.append(0.0, np.cumsum(np.fft.irfft(phases, size)[:width]))
    cell = np.arange(n)
    held = sums[cell - np.maximum(cell - width + 1, 0) + 1] - sums[cell - np.minimum(cell, rows - 1)]
    return max(float(np.linalg.norm(held)), wide)
