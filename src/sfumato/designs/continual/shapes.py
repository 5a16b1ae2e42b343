"""Strategies over time with a short memory: buffered linear Toeplitz matrices with scaled rows and columns. [DMPST24]

C = diag(rows) T diag(columns), T of generating function prod (1 - b_i z) / (1 - a_i z), 1 > a_1 > b_1 > a_2 > ... > 0,
so that T and its inverse are sums of d exponentials and all coefficients below the diagonal of T are positive.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.signal import lfilter

from sfumato.designs.ordered.buffers import residues
from sfumato.designs.ordered.fitted import fitted
from sfumato.designs.ordered.fitting import row_scale
from sfumato.operators.base import FloatArray

__all__ = ["TimeShape", "shape_for"]

_STEPS = 300  # the objective is flat at its optimum: after 100 steps it falls by less than 1e-5
_LISTED = 2**12  # periods whose coefficients are listed for the price of several participations; beyond, those of one
_HORIZONS = 2**8  # a pole as near to 1 as this share of 1 / periods decays by less than 1 % in all
_FITTED = 2**8  # periods from which rows have scales of their own too, by 2^10 the first of the table
_LEAST_GAP = 2.0**-6  # between logarithms: poles are rounded to 2^-12 of themselves, and must stay apart


@dataclass(frozen=True, eq=False)
class TimeShape:
    """1 - a_i and 1 - b_i (d,), which alternate and rise, and positive scales of rows and columns (periods,)."""

    poles: FloatArray
    zeros: FloatArray
    rows: FloatArray
    columns: FloatArray


def shape_for(periods: int, participations: int = 1, apart: int = 1) -> TimeShape:
    """A strategy for the totals of so many periods, whose largest error is small.

    Of one participation rows have scales too, from a table where periods are many, and columns are scaled to one
    length, which lowers errors at the same price; of several all periods are alike, for which the price is known.
    """
    rows = np.ones(periods)
    if participations == 1 and periods >= _FITTED:
        found = fitted(periods, "largest")
        poles, zeros, rows = found.buffers.poles, found.buffers.zeros, row_scale(periods, found.shape)
    else:
        poles, zeros = _best(periods, participations, apart)
    columns = 1 / _lengths(poles, zeros, rows) if participations == 1 else np.ones(periods)
    return TimeShape(poles, zeros, rows, columns)


def _lengths(poles: FloatArray, zeros: FloatArray, rows: FloatArray) -> FloatArray:
    """(periods,) of the columns of diag(rows) T."""
    squares = rows**2
    out = squares.copy()
    weights = residues(poles, zeros)
    for i, (w, p) in enumerate(zip(weights, poles, strict=True)):
        for other, q in zip(weights[: i + 1], poles[: i + 1], strict=True):
            later = lfilter([1.0], [1.0, -(1 - p) * (1 - q)], squares[:0:-1])[::-1]
            out[:-1] += (1 if p == q else 2) * w * other * later
    return np.sqrt(out)


def _best(periods: int, participations: int, apart: int) -> tuple[FloatArray, FloatArray]:
    """Poles and zeros of the least product of price and largest error of a total."""
    # half the binary digits of the horizon: 5 at 2^10, 8 at 2^16, 10 at 2^20, as measured for 1e-3 of the optimum
    d = max(1, math.ceil(math.log2(max(periods, 2)) / 2))

    # a memory of many horizons is as good as an endless one
    longest = math.log(_HORIZONS * periods)

    def objective(free: FloatArray) -> float:
        poles, zeros = _spaced(free, longest)
        price = _price(poles, zeros, periods, participations, apart)
        return math.log(price) + math.log(_last_error(poles, zeros, periods))

    start = np.zeros(2 * d)
    found = minimize(objective, start, method="L-BFGS-B", bounds=[(-6.0, 6.0)] * (2 * d), options={"maxiter": _STEPS})
    return _spaced(found.x, longest)


def _spaced(free: FloatArray, longest: float) -> tuple[FloatArray, FloatArray]:
    """Poles and zeros from logarithms of the gaps between their logarithms, from 1 down to above exp(-longest)."""
    share = np.exp(free)
    gaps = _LEAST_GAP + (longest - _LEAST_GAP * len(free)) * share / (1 + share.sum())
    falling = np.exp(-np.cumsum(gaps))
    return falling[1::2][::-1], falling[::2][::-1]


def _coefficients(poles: FloatArray, zeros: FloatArray, n: int) -> FloatArray:
    """The first n coefficients of T."""
    out = np.zeros(n)
    out[0] = 1.0
    lags = np.arange(n - 1)
    for w, p in zip(residues(poles, zeros), poles, strict=True):
        out[1:] += w * np.exp(lags * math.log1p(-p))
    return out


def _sums(distances: FloatArray, n: int) -> FloatArray:
    """sum_(k < n) ((1 - p_i)(1 - p_j))^k."""
    logs = np.log1p(-distances)
    both = logs[:, None] + logs[None, :]
    return np.asarray(np.expm1(n * both) / np.expm1(both), dtype=np.float64)


def _price(poles: FloatArray, zeros: FloatArray, n: int, participations: int, apart: int) -> float:
    """The squared length of the responses of the worst pattern."""
    w = residues(poles, zeros)
    if participations == 1 or n > _LISTED:
        return 1.0 + float(w @ _sums(poles, n - 1) @ w) if n > 1 else 1.0
    response = _coefficients(poles, zeros, n)
    total = np.zeros(n)
    for j in range(participations):
        total[j * apart :] += response[: n - j * apart]
    return float(total @ total)


def _last_error(poles: FloatArray, zeros: FloatArray, n: int) -> float:
    """The squared length of the first n coefficients of 1 / ((1 - z) T): the error of the last total."""
    u = -residues(zeros, poles) / zeros
    rest = float(np.exp(np.log(poles).sum() - np.log(zeros).sum()))
    logs = np.log1p(-zeros)
    single = np.expm1(n * logs) / np.expm1(logs)
    return float(n * rest**2 + 2 * rest * (u @ single) + u @ _sums(zeros, n) @ u)
