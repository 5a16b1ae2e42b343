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
from sfumato.strategies.time_shapes import DENSE, banded_filter, integer_filter

Places = NDArray[np.intp]

_STEPS = 30  # of a search, which begins with the best band: 200 more gain 6e-4
_PEAKS = (20.0, 60.0)
"""Power means that stand for the worst period, one after the other."""
_ROOM = 0.01  # of what the constant can be: there the matrix is singular
_FIRST = 1 / 4  # of the largest constant, where a search begins
_COLUMNS = 64  # of a gradient that are looked at together


def suits_totals(given: Periods) -> bool:
    """Whether such a strategy is looked for: by dense matrices of few periods, where no run of periods is asked."""
    asked = any(question.ranges for question, _ in given.questions)
    return given.count <= DENSE and given.per_person > 1 and given.apart > 1 and not asked


@functools.lru_cache(maxsize=2)
def lowered_filter(given: Periods) -> WindowFilter:
    """Its lower-triangular form, as integers; the band itself where no constant is of use beside it."""
    from scipy.optimize import minimize  # noqa: PLC0415  (slow to import)

    n, k, width = given.count, given.per_person, min(given.apart, given.count)
    columns, lags = np.indices((n, width))
    inside = columns + lags < n
    at = (columns + lags)[inside], columns[inside]
    found = banded_filter(given, width)
    start = np.repeat(found.taps, found.runs, axis=0)[inside] / float(abs(found.taps).max())
    with single_thread():
        search = _Search(given, 1.0, at)
        if not search.gains(start):
            return found
        start = np.append(start, math.log(_FIRST / max(k, search.whole(start))))
        for power in _PEAKS if given.objective == "worst" else (1.0,):
            search = _Search(given, power, at)
            start = minimize(
                search.value, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS, "maxcor": 20}
            ).x
        band, _ = search.unit_columns(start[:-1])
        gram = band.T @ band - math.exp(start[-1])
        lower = np.linalg.cholesky(gram[::-1, ::-1])[::-1, ::-1].T
    entries = np.zeros((n, n))
    for u in range(n):
        entries[u, : n - u] = lower[u:, u]
    return integer_filter(entries)


class _Search:
    """The logarithm of error times price, of the entries of a band and of the logarithm of the constant."""

    def __init__(self, given: Periods, power: float, at: tuple[Places, Places]) -> None:
        self.n, self.k, self.power, self.at = given.count, given.per_person, power, at
        self.width = min(given.apart, given.count)
        # every question at every period
        self.asked = [math.sqrt(weight) * question.matrix(self.n) for question, weight in given.questions]
        self.gram = self._weighed_shares(np.full(self.n, 1 / self.n))

    def _weighed_shares(self, shares: FloatArray) -> FloatArray:
        """(n, n) of what is asked, where periods count so much."""
        return sum(((each.T * shares) @ each for each in self.asked), np.zeros((self.n, self.n)))

    def unit_columns(self, entries: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(n, n) a band whose columns have length 1, and (n,) what their lengths were."""
        band = np.zeros((self.n, self.n), order="F")
        band[self.at] = entries
        lengths = np.sqrt((band**2).sum(axis=0))
        return band / lengths, lengths

    def _row_of_entries(self, entries: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The inverse of the band, and the sums of the rows of Y^-1."""
        from scipy.linalg.lapack import dtrtri  # noqa: PLC0415  (as scipy.optimize)

        inverse = np.tril(dtrtri(self.unit_columns(entries)[0], lower=1)[0])
        return inverse, inverse @ inverse.sum(axis=0)

    def whole(self, entries: FloatArray) -> float:
        """1' Y^-1 1: the inverse of what the constant can be."""
        return float(self._row_of_entries(entries)[1].sum())

    def gains(self, entries: FloatArray) -> bool:
        """Whether a small constant lowers the price by more than it raises the mean error."""
        inverse, row = self._row_of_entries(entries)
        return float(row @ self.gram @ row) < self.k * float(((self.gram @ inverse) * inverse).sum())

    def value(self, vector: FloatArray) -> tuple[float, FloatArray]:
        """With its gradient."""
        (band, lengths), c = self.unit_columns(vector[:-1]), math.exp(vector[-1])
        inverse, row = self._row_of_entries(vector[:-1])
        room = 1 - c * float(row.sum())
        if room < _ROOM:
            return 1e3, np.zeros_like(vector)
        gram, largest, error = self.gram, 1.0, 0.0
        if self.power > 1:
            variances = sum(
                (((each @ inverse) ** 2).sum(axis=1) + c / room * (each @ row) ** 2 for each in self.asked),
                np.zeros(self.n),
            )
            largest = float(variances.max())
            scaled = variances / largest
            error = float((scaled**self.power).mean())
            gram = self._weighed_shares(scaled ** (self.power - 1) / self.n / error / largest)
        answered = gram @ inverse
        turned, squared = inverse @ (inverse.T @ (gram @ row)), float(row @ gram @ row)
        if self.power == 1:
            error = float((answered * inverse).sum()) + c / room * squared
            answered, turned, squared = answered / error, turned / error, squared / error
        # of all a person's periods, or of as many as cost most
        few = 2 * c * self.k < 1
        price = self.k - c * self.k**2 if few else 1 / (4 * c)
        slope = -2 * self._in_band(inverse.T @ answered, inverse)
        first, second = band @ row, band @ turned
        own, other = self.at
        both = second[own] * row[other] + first[own] * turned[other]
        slope -= 2 * c / room * (both + c / room * squared * first[own] * row[other])
        unit = band[self.at]
        along = np.bincount(other, weights=slope * unit)
        by_constant = squared / room**2 - (self.k**2 / price if few else 1 / c)
        logarithm = math.log(largest) + math.log(error) / self.power + math.log(price)
        return logarithm / 2, np.append((slope - unit * along[other]) / lengths[other], by_constant * c) / 2

    def _in_band(self, middle: FloatArray, inverse: FloatArray) -> FloatArray:
        """The entries of `middle` times the transposed inverse, where the band is."""
        out = np.empty((self.n, self.n), order="F")
        for u in range(0, self.n, _COLUMNS):
            some, rows = slice(u, u + _COLUMNS), slice(u, u + _COLUMNS + self.width)
            out[rows, some] = middle[rows, : some.stop] @ inverse[some, : some.stop].T
        return np.asarray(out[self.at])
