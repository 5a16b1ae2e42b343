"""Totals over time of people in several periods that are apart: a band whose Gram matrix is lowered everywhere else.

A person who is counted adds to a total each time, and never takes from it. So products of columns of two periods that
one person may be in count with their sign, and where they are below 0 coming often costs less. Let Y be the Gram matrix
of a band, as wide as periods are apart, with columns of length 1, and X = Y - c 11'. Of k periods X costs at most
k (1 - c) - k (k - 1) c, and X^-1 = Y^-1 + c Y^-1 11' Y^-1 / (1 - c 1' Y^-1 1): band and constant are found together.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray

from sfumato.operators.base import FloatArray, single_thread
from sfumato.privacy.stream_price import WindowFilter
from sfumato.strategies.periods import Periods
from sfumato.strategies.time_shapes import DENSE, integer_filter, toeplitz_taps

Places = NDArray[np.intp]

_STEPS = 60  # of a search: of 365 periods a CPU-second; 200 more gain 4e-4
_PEAKS = (20.0, 60.0)
"""Power means that stand for the worst period, one after the other."""
_ROOM = 0.01  # of what the constant can be: there the matrix is singular
_FIRST = 1 / 4  # of the largest constant, where a search begins


def suits_totals(given: Periods) -> bool:
    """Whether such a strategy is looked for: by dense matrices of few periods, where no run of periods is asked."""
    asked = any(question.ranges for question, _ in given.questions)
    return given.count <= DENSE and given.per_person > 1 and given.apart > 1 and not asked


@functools.lru_cache(maxsize=2)
def lowered_filter(given: Periods) -> WindowFilter:
    """Its lower-triangular form, as integers."""
    from scipy.optimize import minimize  # noqa: PLC0415  (slow to import)

    n, k, width = given.count, given.per_person, min(given.apart, given.count)
    rows, columns = np.nonzero(np.tri(n, dtype=bool) & ~np.tri(n, k=-width, dtype=bool))
    taps = toeplitz_taps(given, width)[rows - columns]
    with single_thread():
        ones = np.ones(n)
        band, _ = _unit_columns(n, rows, columns, taps)
        whole = float(ones @ np.linalg.solve(band.T @ band, ones))
        start = np.append(taps, math.log(_FIRST / max(k, whole)))
        for power in _PEAKS if given.objective == "worst" else (1.0,):
            search = _Search(given, power, rows, columns)
            found = minimize(
                search.value, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS, "maxcor": 20}
            )
            start = found.x
        band, _ = _unit_columns(n, rows, columns, start[:-1])
        gram = band.T @ band - math.exp(start[-1])
        lower = np.linalg.cholesky(gram[::-1, ::-1])[::-1, ::-1].T
    entries = np.zeros((n, n))
    for u in range(n):
        entries[u, : n - u] = lower[u:, u]
    return integer_filter(entries)


def _unit_columns(n: int, rows: Places, columns: Places, entries: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(n, n) a band whose columns have length 1, and (n,) what their lengths were."""
    band = np.zeros((n, n))
    band[rows, columns] = entries
    lengths = np.sqrt((band**2).sum(axis=0))
    return band / lengths, lengths


class _Search:
    """The logarithm of error times price, of the entries of a band and of the logarithm of the constant."""

    def __init__(self, given: Periods, power: float, rows: Places, columns: Places) -> None:
        self.n, self.k, self.power, self.at = given.count, given.per_person, power, (rows, columns)
        lags = np.subtract.outer(np.arange(self.n), np.arange(self.n))
        # (questions, n, n): every question at every period
        self.asked = [
            math.sqrt(weight) * np.where(lags >= 0, question.weights(self.n)[::-1][np.maximum(lags, 0)], 0.0)
            for question, weight in given.questions
        ]

    def value(self, vector: FloatArray) -> tuple[float, FloatArray]:
        """With its gradient."""
        (band, lengths), c = _unit_columns(self.n, *self.at, vector[:-1]), math.exp(vector[-1])
        inverse = np.linalg.inv(band.T @ band)
        row = inverse.sum(axis=1)
        room = 1 - c * float(row.sum())
        if room < _ROOM:
            return 1e3, np.zeros_like(vector)
        variances = np.zeros(self.n)
        for each in self.asked:
            variances += ((each @ inverse) * each).sum(axis=1) + c / room * (each @ row) ** 2
        scaled = variances / variances.max()
        error = float((scaled**self.power).mean())
        shares = scaled ** (self.power - 1) / self.n / error / variances.max()
        gram = sum(((each * shares[:, None]).T @ each for each in self.asked), np.zeros((self.n, self.n)))
        both = inverse @ gram
        # of all a person's periods, or of as many as cost most
        few = 2 * c * self.k < 1
        price = self.k - c * self.k**2 if few else 1 / (4 * c)
        turned, squared = both @ row, float(row @ gram @ row)
        slope = -both @ inverse - (c / room) * (np.outer(turned, row) + np.outer(row, turned))
        slope -= (c / room) ** 2 * squared * np.outer(row, row)
        moved = 2 * band @ slope
        moved = (moved - band * (band * moved).sum(axis=0)) / lengths
        by_constant = squared / room**2 - (self.k**2 / price if few else 1 / c)
        logarithm = math.log(variances.max()) + math.log(error) / self.power + math.log(price)
        return logarithm / 2, np.append(moved[self.at], by_constant * c) / 2
