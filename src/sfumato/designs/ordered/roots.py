"""Square roots of the prefix sums, and of windows, as integer strategies of columns of one length. [FHU23]

B = diag(d) T(c) with c near the coefficients of (1 - z)^(-1/2), or for windows of one width w of
((1 - z^w) / (1 - z))^(1/2), and d such that all columns have one length. Then
L = R B for the prefix sums L with R = T(r) diag(1/d), r the series of L / c: both are Toeplitz but for a
diagonal, so the sum of squares of every row of R is one convolution of r^2 and d^-2, and any range, a difference
of two prefixes, costs one pass. Both are exact for the rounded integers c and d, whatever the rounding.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from sfumato.designs.ordered.largest import largest_bound
from sfumato.designs.ordered.series import inverse_series, response, root_coefficients, row_weights
from sfumato.designs.ranges import Ordered, contiguous
from sfumato.ground.codec import storable
from sfumato.operators import AllRange, LinearOperator
from sfumato.operators.base import DENSE_LIMIT, FloatArray, Numbers
from sfumato.operators.ordered import Window
from sfumato.operators.toeplitz import Toeplitz, causal

__all__ = ["FINE_ROOT", "Roots", "rooted"]

# coefficients fall from 1 like 1/sqrt(pi j), 1/113 at 4,096: they are rounded by 2^-17, and errors are of the rounded
_COEFFICIENT = 2**16
FINE_ROOT = 2.0**12  # of row weights, on top of the 16 bits of the coefficients


def rooted(n: int, width: int | None = None) -> tuple[Numbers, FloatArray]:
    """(integer coefficients (n,), real row weights (n,) with the last one 1) of the strategy over n cells.

    It is the root of the windows of `width` cells, or of the prefix sums.
    """
    coefficients = np.rint(_COEFFICIENT * root_coefficients(n, width)).astype(np.int64)
    return coefficients, row_weights(coefficients / _COEFFICIENT)


@storable
@dataclass(frozen=True, eq=False)
class Roots(Ordered):
    """A lower-triangular Toeplitz matrix of integers with multiples of its rows: every cell can be solved for."""

    operator: Toeplitz

    @property
    def measured(self) -> LinearOperator:
        return self.operator

    @functools.cached_property
    def _inverse(self) -> FloatArray:
        return inverse_series(self.operator.coefficients.astype(np.float64))

    @functools.cached_property
    def _response(self) -> FloatArray:
        return response(self.operator.coefficients.astype(np.float64), self._inverse)

    def _noise(self, power: int) -> FloatArray:
        return 1.0 / self.operator.multiples.astype(np.float64) ** power

    def cells(self, values: FloatArray) -> FloatArray:
        # by way of the prefixes: their sums would otherwise gather the rounding errors of all cells
        prefixes = causal(self._response, (values.T / self.operator.multiples))
        return np.diff(prefixes, axis=1, prepend=0.0).T

    def prefix_powers(self, count: int, power: int) -> FloatArray:
        return causal(np.abs(self._response) ** power, self._noise(power))[:count]

    def range_bound(self, known: FloatArray, found: float) -> float:
        n = len(known) - 1
        variances = np.append(0.0, self.prefix_powers(n, 2))
        proved = largest_bound(self._response[:n], self._noise(2)[:n], variances, known, found)
        # ranges are differences of two prefixes, whose deviations add up at most
        return min(proved, 4.0 * float(variances.max()))

    def row_powers(self, query: LinearOperator, power: int) -> FloatArray:
        inner = contiguous(query)
        if isinstance(inner, Window):
            return self._window_powers(inner.n, inner.width, power)
        if isinstance(inner, AllRange) and 2 * inner.shape[0] <= DENSE_LIMIT:
            first = np.arange(inner.n)
            place = first * inner.n - first * (first - 1) // 2
            out = np.empty(inner.shape[0])
            for width in range(1, inner.n + 1):
                out[place[: inner.n - width + 1] + width - 1] = self._window_powers(inner.n, width, power)
            return out
        return super().row_powers(query, power)

    def _window_powers(self, n: int, width: int, power: int) -> FloatArray:
        """(n - width + 1,) for the windows of one width within the first n cells."""
        kernel = self._response[:n].copy()
        kernel[width:] -= self._response[: n - width]
        return causal(np.abs(kernel) ** power, self._noise(power)[:n])[width - 1 :]

    def span_powers(self, first: Numbers, last: Numbers, power: int) -> FloatArray:
        noise, back = self._noise(power), self._response[::-1]
        n = len(back)
        out = np.empty(len(first))
        for i, (a, b) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
            row = back[n - b :].copy()
            row[:a] -= back[n - a :]
            row **= power
            out[i] = row @ noise[:b]
        return out

    def spread(self, rows: FloatArray) -> FloatArray:
        turned = causal(self._inverse, np.ascontiguousarray(rows[:, ::-1]))
        return turned[:, ::-1] / self.operator.multiples

    def cells_of_rows(self, rows: FloatArray) -> FloatArray:
        return causal(self._inverse, self.spread(rows) / self.operator.multiples)

    def spread_ones(self) -> FloatArray:
        return self.cells_of_rows(np.ones((1, self.operator.shape[1])))[0]
