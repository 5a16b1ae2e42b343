"""Lower-triangular Toeplitz matrices of integers with multiples of rows and columns, applied exactly by convolution."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import WorkloadError
from sfumato.ground.codec import storable
from sfumato.ground.later import later
from sfumato.maps import Map, ToeplitzMap
from sfumato.maps.convolution import causal_exact, length
from sfumato.operators.base import INT64, FloatArray, LinearOperator, Numbers, check_dense

__all__ = ["Toeplitz", "causal"]


def causal(kernel: FloatArray, vectors: FloatArray) -> FloatArray:
    """sum_j kernel_j vectors_(i-j) along the last axis, for i below its length n, in float64; kernel (n,)."""
    n = vectors.shape[-1]
    size = length(n)
    product = np.fft.rfft(vectors, size, axis=-1) * np.fft.rfft(kernel[:n], size)
    return np.fft.irfft(product, size, axis=-1)[..., :n]


@storable
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Toeplitz(LinearOperator):
    """Entry (i, j) is multiples_i coefficients_(i - j) columns_j for j <= i and 0 above: (n, n).

    coefficients, multiples and columns (n,) int64, the multiples of rows and columns not negative; without `columns`
    those are 1. Raises WorkloadError where the largest multiple of a row and the coefficients allow a column whose sum
    of squares reaches 2^63 before its own multiple, so that these sums are exact in int64, or an entry that does.
    """

    coefficients: NDArray[np.int64]
    multiples: NDArray[np.int64]
    columns: NDArray[np.int64] | None = later(None)  # noqa: RUF009  (as dataclasses.field is)

    def __post_init__(self) -> None:
        given = {"coefficients": self.coefficients, "multiples": self.multiples}
        given |= {} if self.columns is None else {"columns": self.columns}
        if any(g.dtype != np.int64 or g.shape != (len(self.coefficients),) for g in given.values()):
            raise WorkloadError("a Toeplitz operator takes one int64 coefficient and one int64 multiple per row")
        for field, values in given.items():
            own = np.array(values)
            own.flags.writeable = False
            object.__setattr__(self, field, own)
        if not len(self.coefficients) or min(int(m.min()) for f, m in given.items() if f != "coefficients") < 0:
            raise WorkloadError("a Toeplitz operator has at least one row, and no multiple is negative")
        largest = self._largest
        if largest**2 * len(self.coefficients) >= INT64:
            raise WorkloadError("the coefficients of a Toeplitz operator are too large for exact column sums")
        if int((self.coefficients**2).sum()) * int(self.multiples.max()) ** 2 >= INT64:
            raise WorkloadError("the multiples of a Toeplitz operator are too large for exact column sums")
        if largest * int(self.multiples.max()) * int(self._columns.max()) >= INT64:
            raise WorkloadError("the multiples of the columns of a Toeplitz operator are too large for its entries")

    @property
    def shape(self) -> tuple[int, int]:
        return (len(self.coefficients), len(self.coefficients))

    @property
    def integral(self) -> bool:
        return True

    @property
    def nonnegative(self) -> bool:
        return int(self.coefficients.min()) >= 0

    @property
    def _largest(self) -> int:
        # in Python integers: the size of -2^63 is none in int64
        return max(int(self.coefficients.max()), -int(self.coefficients.min()))

    @property
    def max_abs(self) -> int:
        if self.columns is not None:
            # in a column of its own: what is large there is seldom large in a row
            return math.isqrt(max(self.column_sums(2)))
        # a row has the coefficients up to its own
        return int((np.maximum.accumulate(np.abs(self.coefficients)) * self.multiples).max())

    @property
    def _columns(self) -> Numbers:
        return np.ones(1, dtype=np.int64) if self.columns is None else self.columns

    def apply(self, vectors: Numbers) -> Numbers:
        vectors = vectors * self._columns[:, None]
        if vectors.dtype.kind == "f":
            out = causal(self.coefficients.astype(np.float64), vectors.T)
        else:
            out = causal_exact(self.coefficients, vectors.T)
        return np.ascontiguousarray((out * self.multiples).T)

    def apply_transpose(self, vectors: Numbers) -> Numbers:
        turned: Numbers = (vectors.T * self.multiples)[:, ::-1]
        if vectors.dtype.kind == "f":
            out = causal(self.coefficients.astype(np.float64), turned)
        else:
            out = causal_exact(self.coefficients, turned)
        return np.ascontiguousarray(out[:, ::-1].T) * self._columns[:, None]

    def rows(self, start: int, stop: int) -> FloatArray:
        self.check_rows(start, stop)
        lag = np.arange(start, stop)[:, None] - np.arange(self.shape[1])
        entries = self.coefficients[np.maximum(lag, 0)] * self.multiples[start:stop, None] * self._columns
        return np.where(lag >= 0, entries, 0).astype(np.float64)

    def dense(self) -> Numbers:
        n = self.shape[0]
        check_dense(n, n)
        lag = np.arange(n)[:, None] - np.arange(n)
        entries = self.coefficients[np.maximum(lag, 0)] * self.multiples[:, None] * self._columns
        return np.where(lag >= 0, entries, 0)

    def column_sums(self, power: int) -> Numbers:
        # below 2^63 by construction, so exact modulo 2^64 is exact, and L1 sums are below the squared ones; the
        # columns' own multiples are of Python's integers
        weights = (self.multiples**power)[::-1]
        bits = int(weights.max()).bit_length() + 1
        sums = causal_exact(np.abs(self.coefficients) ** power, weights, bits)[::-1].astype(object)
        for own in (self.columns,) * power if self.columns is not None else ():
            sums = sums * own.astype(object)
        return sums

    def lowered(self) -> Map:
        return ToeplitzMap(self.coefficients, self.multiples, self.columns)
