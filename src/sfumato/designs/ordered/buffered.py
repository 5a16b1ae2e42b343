"""Scaled buffered Toeplitz strategies over one ordered attribute: integers to measure, errors from few exponentials.

B = diag(rows) T(c) diag(columns) in integers, c near a multiple of the coefficients of `Buffers`. B can be inverted, so
the answers are exactly those of the integers: cells = diag(1/columns) T(c)^-1 diag(1/rows) y, by power series.

Their errors are those of the buffers' own coefficients. With b_i the zeros of T and 1 / columns for u, the row of R for
prefix t is g_t(k) = A(k) + sum_i C_i(t) b_i^(t - k) over rows[k], see `fitting`. So two prefixes s <= t have the
covariance

    P(s) + sum_j C_j(t) b_j^(t - s) D_j(s),   D_j(s) = sum_(k <= s) b_j^(s - k) g_s(k) / rows[k]^2,

P(s) = sum_(k <= s) g_s(k) A(k) / rows[k]^2: the variance of any range costs d products, however long it is. Rounding
c moves the variances of prefixes by less than 2e-5 of themselves and those of short ranges by less than 3e-5 (tests
compare with the integers' inverse); what is said to be proved is said with that on top.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from sfumato.designs.ordered.buffers import Buffers, decayed
from sfumato.designs.ordered.fitted import fitted
from sfumato.designs.ordered.fitting import Asked, row_scale
from sfumato.designs.ordered.pairs import largest_pair
from sfumato.designs.ordered.series import inverse_series
from sfumato.designs.ranges import Ordered, contiguous
from sfumato.errors import PlanError
from sfumato.ground.codec import storable
from sfumato.operators import AllRange, LinearOperator, Window
from sfumato.operators.base import DENSE_LIMIT, FloatArray, Numbers
from sfumato.operators.toeplitz import Toeplitz, causal

__all__ = ["FINE_COLUMN", "Buffered", "Unscaled", "unscaled"]

COEFFICIENT = 2**16  # of the first coefficient, which is the largest: see the docstring above
_ROW = 2**8  # of the largest row; the least is a fifth of it, and a percent off costs its square
FINE_COLUMN = 2.0**9  # of the least column: rounded down, it costs a part in 2^10 of the error
_SEEN = 1_000  # coefficients that are compared with those of the buffers: any number that tells strategies apart
_DOUBT = 3e-5  # see the docstring above
_RANGES = 2**16  # at a time: some MB for each buffer


@dataclass(frozen=True, slots=True)
class Unscaled:
    """Integer coefficients and rows (n,), and real columns (n,) of least 1 by which all columns are of one length."""

    buffers: Buffers
    coefficients: Numbers
    rows: Numbers
    columns: FloatArray

    def at(self, scale: float) -> Buffered:
        """With columns multiplied by `scale` and rounded down."""
        columns = np.floor(scale * self.columns).astype(np.int64)
        return Buffered(Toeplitz(self.coefficients, self.rows, columns), self.buffers)


def unscaled(n: int, asked: Asked) -> Unscaled:
    """The strategy of least error over n cells that is known for what is asked."""
    found = fitted(n, asked)
    buffers = found.buffers
    coefficients = np.rint(COEFFICIENT * buffers.coefficients(np.arange(n))).astype(np.int64)
    scale = row_scale(n, found.shape)
    rows = np.maximum(np.rint(scale * (_ROW / scale.max())), 1).astype(np.int64)
    # in floats: what is measured is priced by its integers
    squares = causal(coefficients.astype(np.float64) ** 2, rows[::-1].astype(np.float64) ** 2)
    lengths = np.sqrt(squares[::-1])
    return Unscaled(buffers, coefficients, rows, lengths.max() / lengths)


@dataclass(frozen=True, slots=True)
class _Parts:
    """C (d, n), D (d, n) and P (n,) of the module's docstring."""

    ahead: FloatArray
    behind: FloatArray
    steady: FloatArray


@storable
@dataclass(frozen=True, eq=False)
class Buffered(Ordered):
    """A scaled Toeplitz matrix of integers whose coefficients are those of buffers, rounded."""

    operator: Toeplitz
    buffers: Buffers

    def __post_init__(self) -> None:
        given = self.operator
        if given.columns is None or int(given.multiples.min()) < 1 or int(given.columns.min()) < 1:
            raise PlanError("a buffered strategy has positive multiples of its rows and of its columns")
        first = int(given.coefficients[0])
        lags = np.unique(np.geomspace(1, len(given.coefficients), _SEEN).astype(np.int64)) - 1
        off = np.abs(first * self.buffers.coefficients(lags) - given.coefficients[lags])
        # one half by rounding; the exponentials of another machine may round the other way
        if float(off.max()) > 1.0:
            raise PlanError("the coefficients of a buffered strategy are not those of its buffers")

    @property
    def measured(self) -> LinearOperator:
        return self.operator

    @functools.cached_property
    def _inverse(self) -> FloatArray:
        return inverse_series(self.operator.coefficients.astype(np.float64))

    @property
    def _columns(self) -> FloatArray:
        assert self.operator.columns is not None
        return self.operator.columns.astype(np.float64)

    def cells(self, values: FloatArray) -> FloatArray:
        return (causal(self._inverse, values.T / self.operator.multiples) / self._columns).T

    def spread(self, rows: FloatArray) -> FloatArray:
        turned = causal(self._inverse, np.ascontiguousarray((rows / self._columns)[:, ::-1]))
        return turned[:, ::-1] / self.operator.multiples

    def cells_of_rows(self, rows: FloatArray) -> FloatArray:
        return causal(self._inverse, self.spread(rows) / self.operator.multiples) / self._columns

    def spread_ones(self) -> FloatArray:
        return self.cells_of_rows(np.ones((1, self.operator.shape[1])))[0]

    # -- errors ------------------------------------------------------------------------------------

    @functools.cached_property
    def _parts(self) -> _Parts:
        cells = 1 / self._columns
        noise: FloatArray = 1 / (float(self.operator.coefficients[0]) * self.operator.multiples.astype(np.float64)) ** 2
        decays = (1 - self.buffers.zeros).tolist()
        later = np.append(0.0, cells[:0:-1])
        ahead = np.stack(
            [u * decayed(later, b)[::-1] for u, b in zip(self.buffers.returns.tolist(), decays, strict=True)]
        )
        base = cells - ahead.sum(axis=0)
        behind = np.stack([decayed(noise * base, b) for b in decays])
        steady = np.cumsum(noise * base**2) + (ahead * behind).sum(axis=0)
        for i, b in enumerate(decays):
            for j in range(i, len(decays)):
                both = decayed(noise, b * decays[j])
                behind[i] += ahead[j] * both
                if i != j:
                    behind[j] += ahead[i] * both
        return _Parts(ahead, behind, steady)

    @functools.cached_property
    def _variances(self) -> FloatArray:
        """(n,) of the prefixes at unit noise."""
        parts = self._parts
        return parts.steady + np.einsum("in,in->n", parts.ahead, parts.behind)

    def prefix_powers(self, count: int, power: int) -> FloatArray:
        if power == 2:
            return self._variances[:count]
        return self.span_powers(np.zeros(count, dtype=np.int64), np.arange(1, count + 1), power)

    def span_powers(self, first: Numbers, last: Numbers, power: int) -> FloatArray:
        out = np.empty(len(first))
        if power != 2:
            cell = np.arange(self.operator.shape[1])
            for i, (a, b) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
                row = ((a <= cell) & (cell < b)).astype(np.float64)
                out[i] = (self.spread(row[None]) ** power).sum()
            return out
        for a in range(0, len(first), _RANGES):
            chosen = slice(a, a + _RANGES)
            out[chosen] = self._spans(first[chosen], last[chosen])
        return out

    def _spans(self, first: Numbers, last: Numbers) -> FloatArray:
        """Variances of ranges as those of differences of two prefixes, of which the empty one has none."""
        parts, variances = self._parts, self._variances
        low, high = np.maximum(first - 1, 0), last - 1
        shared = parts.steady[low]
        for ahead, behind, rate in zip(parts.ahead, parts.behind, np.log1p(-self.buffers.zeros), strict=True):
            shared += ahead[high] * np.exp((high - low) * rate) * behind[low]
        found = variances[high] + np.where(first > 0, variances[low] - 2 * shared, 0.0)
        return np.maximum(np.where(last > first, found, 0.0), 0.0)

    def row_powers(self, query: LinearOperator, power: int) -> FloatArray:
        inner = contiguous(query)
        if power != 2:
            return super().row_powers(query, power)
        if isinstance(inner, Window):
            return self._windows(inner.n, inner.width)
        if isinstance(inner, AllRange) and 2 * inner.shape[0] <= DENSE_LIMIT:
            first = np.arange(inner.n)
            place = first * inner.n - first * (first - 1) // 2
            out = np.empty(inner.shape[0])
            for width in range(1, inner.n + 1):
                out[place[: inner.n - width + 1] + width - 1] = self._windows(inner.n, width)
            return out
        return super().row_powers(query, power)

    def _windows(self, n: int, width: int) -> FloatArray:
        """(n - width + 1,) for the windows of one width within the first n cells."""
        parts, variances = self._parts, self._variances
        low, high = slice(0, n - width), slice(width, n)
        rates = (1 - self.buffers.zeros) ** width
        shared = parts.steady[low] + np.einsum("in,in,i->n", parts.ahead[:, high], parts.behind[:, low], rates)
        return np.append(variances[width - 1], np.maximum(variances[high] + variances[low] - 2 * shared, 0.0))

    def range_bound(self, known: FloatArray, found: float) -> float:
        n, parts = len(known) - 1, self._parts
        return (1 + _DOUBT) * largest_pair(
            self._variances[:n],
            parts.steady[:n],
            parts.ahead[:, :n],
            parts.behind[:, :n],
            self.buffers.zeros,
            known,
            found,
        )
