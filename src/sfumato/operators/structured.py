"""Operators over an ordered domain: prefixes, all ranges, windows."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import deferred_field, storable
from sfumato.errors import PlanError, WorkloadError
from sfumato.maps import Map
from sfumato.maps.structured import RangesMap
from sfumato.maps.toeplitz import ToeplitzMap, causal_exact, fft_length
from sfumato.operators.base import DENSE_LIMIT, INT64, FloatArray, LinearOperator, Numbers, check_dense, check_length
from sfumato.operators.explicit import Dense


def _cumulative_from_zero(vectors: Numbers) -> Numbers:
    """(n, c) -> (n + 1, c) cumulative sums that start with 0."""
    out = np.zeros((vectors.shape[0] + 1, vectors.shape[1]), dtype=vectors.dtype)
    np.cumsum(vectors, axis=0, out=out[1:])
    return out


def _corner_sums(matrix: FloatArray) -> FloatArray:
    """(n, n) -> (n + 1, n + 1) sums of every leading block."""
    out = np.zeros((matrix.shape[0] + 1, matrix.shape[1] + 1))
    np.cumsum(matrix, axis=1, out=out[1:, 1:])
    # a row at a time, which a core keeps: down the columns of thousands of cells takes four times as long
    for before, row in itertools.pairwise(out):
        row += before
    return out


class Contiguous(LinearOperator):
    """0/1 rows that each cover cells first[i] to last[i] - 1."""

    __slots__ = ()

    @abstractmethod
    def spans(self) -> tuple[Numbers, Numbers]:
        """First cell and one past the last cell of every row."""

    @property
    def integral(self) -> bool:
        return True

    @property
    def binary(self) -> bool:
        return True

    @property
    def max_abs(self) -> int:
        return 1

    def apply(self, vectors: Numbers) -> Numbers:
        cumulative = _cumulative_from_zero(vectors)
        first, last = self.spans()
        return cumulative[last] - cumulative[first]

    def apply_transpose(self, vectors: Numbers) -> Numbers:
        first, last = self.spans()
        steps = np.zeros((self.shape[1] + 1, vectors.shape[1]), dtype=vectors.dtype)
        np.add.at(steps, first, vectors)
        np.subtract.at(steps, last, vectors)
        return np.cumsum(steps, axis=0)[:-1]

    def rows(self, start: int, stop: int) -> FloatArray:
        self.check_rows(start, stop)
        first, last = (s[start:stop, None] for s in self.spans())
        cell = np.arange(self.shape[1])
        return ((first <= cell) & (cell < last)).astype(np.float64)

    def gram(self) -> LinearOperator:
        n = self.shape[1]
        check_dense(n + 1, n + 1)
        first, last = self.spans()
        # each row adds 1 on a square: four corners, then sums along both axes
        steps = np.zeros((n + 1) ** 2, dtype=np.int64)
        for i, j, sign in ((first, first, 1), (last, last, 1), (first, last, -1), (last, first, -1)):
            steps += sign * np.bincount(i * (n + 1) + j, minlength=len(steps))
        return Dense(steps.reshape(n + 1, n + 1).cumsum(axis=0).cumsum(axis=1)[:-1, :-1])

    def row_sums(self, power: int) -> FloatArray:
        first, last = self.spans()
        return (last - first).astype(np.float64)

    def row_forms(self, matrix: FloatArray) -> FloatArray:
        corner = _corner_sums(matrix)
        first, last = self.spans()
        diagonal = np.diagonal(corner)
        return diagonal[last] + diagonal[first] - 2.0 * corner[first, last]

    def lowered(self) -> Map:
        first, last = self.spans()
        return RangesMap(first.astype(np.int64), last.astype(np.int64), self.shape[1])


@storable
@dataclass(frozen=True, slots=True, repr=False)
class Prefix(Contiguous):
    """Row t sums cells 0 to t: (n, n), the cumulative distribution."""

    n: int

    def __post_init__(self) -> None:
        check_length(self.n, "prefix")

    @property
    def shape(self) -> tuple[int, int]:
        return (self.n, self.n)

    def spans(self) -> tuple[Numbers, Numbers]:
        return np.zeros(self.n, dtype=np.int64), np.arange(1, self.n + 1)

    def gram(self) -> LinearOperator:
        check_dense(self.n, self.n)
        left = self.n - np.arange(self.n)
        return Dense(np.minimum.outer(left, left))

    def apply(self, vectors: Numbers) -> Numbers:
        return _cumulative_from_zero(vectors)[1:]

    def apply_transpose(self, vectors: Numbers) -> Numbers:
        return _cumulative_from_zero(vectors[::-1])[:0:-1]


@storable
@dataclass(frozen=True, slots=True, repr=False)
class CellSums(Contiguous):
    """Each of the first n cells, the sums up to each, that of all n, and the sums after each: (3 n + 1, cells)."""

    n: int
    cells: int

    def __post_init__(self) -> None:
        check_length(self.n, "sums of cells")
        if self.n > self.cells:
            raise WorkloadError(f"sums of {self.n:,} cells are of at least as many, not of {self.cells:,}")

    @property
    def shape(self) -> tuple[int, int]:
        return (3 * self.n + 1, self.cells)

    def spans(self) -> tuple[Numbers, Numbers]:
        ends, none, every = np.arange(1, self.n + 1), np.zeros(self.n, dtype=np.int64), np.full(self.n, self.n)
        return np.concatenate([ends - 1, none, [0], ends]), np.concatenate([ends, ends, [self.n], every])


@storable
@dataclass(frozen=True, slots=True, repr=False)
class AllRange(Contiguous):
    """Every range s..t with s <= t, ordered by s then t: (n (n + 1) / 2, n)."""

    n: int

    def __post_init__(self) -> None:
        check_length(self.n, "all ranges")

    @property
    def shape(self) -> tuple[int, int]:
        return (self.n * (self.n + 1) // 2, self.n)

    def spans(self) -> tuple[Numbers, Numbers]:
        check_dense(self.shape[0], 2)
        first, last = np.triu_indices(self.n)
        return first, last + 1

    def lowered(self) -> Map:
        if 2 * self.shape[0] > DENSE_LIMIT:
            raise PlanError(
                f"{self.shape[0]:,} ranges are too many to be measured one by one, at most {DENSE_LIMIT // 2:,}; "
                "measure the cells, a tree or a factorization"
            )
        return Contiguous.lowered(self)

    def column_sums(self, power: int) -> Numbers:
        index = np.arange(self.n)
        return ((index + 1) * (self.n - index)).astype(object)

    def row_forms(self, matrix: FloatArray) -> FloatArray:
        corner, out, start = _corner_sums(matrix), np.empty(self.shape[0]), 0
        diagonal = np.diagonal(corner).copy()
        # of thousands of cells the ranges that begin at one are looked up at once, without a list of them all
        for first in range(self.n):
            part = out[start : start + self.n - first]
            np.add(diagonal[first + 1 :], diagonal[first], out=part)
            part -= 2.0 * corner[first, first + 1 :]
            start += len(part)
        return out

    def gram(self) -> LinearOperator:
        check_dense(self.n, self.n)
        index = np.arange(self.n)
        # ranges that begin up to one cell and end from another one on: the fewer of both orders hold the two cells
        out = np.multiply.outer(index + 1, self.n - index)
        for cell in range(1, self.n):
            np.multiply(index[:cell] + 1, self.n - cell, out=out[cell, :cell])
        return Dense(out)


@storable
@dataclass(frozen=True, slots=True, repr=False)
class Window(Contiguous):
    """Row t sums the `width` cells from t on: (n - width + 1, n)."""

    n: int
    width: int

    def __post_init__(self) -> None:
        check_length(self.n, "windows")
        check_length(self.width, "a window's width")
        if self.width > self.n:
            raise WorkloadError(f"windows of width {self.width} do not fit into {self.n} cells")

    @property
    def shape(self) -> tuple[int, int]:
        return (self.n - self.width + 1, self.n)

    def spans(self) -> tuple[Numbers, Numbers]:
        first = np.arange(self.n - self.width + 1)
        return first, first + self.width


@storable
@dataclass(frozen=True, slots=True, repr=False)
class Tree(Contiguous):
    """One 0/1 row for every aligned block of branching^level cells, widest first, leaves last.

    A block that the end of the domain cuts down to its first child is left out, as it would repeat
    that child. `root` says whether the sum of all cells is one of the rows.
    """

    n: int
    branching: int = 2
    root: bool = True

    def __post_init__(self) -> None:
        check_length(self.n, "a tree")
        b = self.branching
        if isinstance(b, bool) or not isinstance(b, int) or not 2 <= b <= 2**20:
            raise WorkloadError(f"a tree branches in a whole number from 2 to {2**20:,}, not in {b!r}")

    def levels(self) -> list[tuple[int, Numbers]]:
        """(block width, first cells of the blocks kept), widest level first."""
        width = 1
        kept: list[tuple[int, Numbers]] = []
        while True:
            starts = np.arange(0, self.n, width)
            # a block holds one child alone when the domain ends before its second child starts
            keep = starts if width == 1 else starts[starts + width // self.branching < self.n]
            if len(starts) > 1 or self.root or self.n == 1:
                kept.append((width, keep))
            if len(starts) == 1:
                return kept[::-1]
            width *= self.branching

    @property
    def shape(self) -> tuple[int, int]:
        return (sum(len(s) for _, s in self.levels()), self.n)

    def spans(self) -> tuple[Numbers, Numbers]:
        levels = self.levels()
        first = np.concatenate([starts for _, starts in levels])
        width = np.repeat([w for w, _ in levels], [len(s) for _, s in levels])
        return first, np.minimum(first + width, self.n)

    def apply(self, vectors: Numbers) -> Numbers:
        # level by level: in float64 the differences of cumulative sums would lose digits
        out: list[Numbers] = []
        for width, starts in self.levels():
            if width == 1:
                out.append(vectors[starts])
            else:
                sums = np.add.reduceat(vectors, np.arange(0, self.n, width), axis=0)
                out.append(sums[starts // width])
        return np.concatenate(out)

    def apply_transpose(self, vectors: Numbers) -> Numbers:
        out = np.zeros((self.n, vectors.shape[1]), dtype=vectors.dtype)
        position = 0
        for width, starts in self.levels():
            values = np.zeros((-(-self.n // width), vectors.shape[1]), dtype=out.dtype)
            values[starts // width] = vectors[position : position + len(starts)]
            out += np.repeat(values, width, axis=0)[: self.n]
            position += len(starts)
        return out


def causal_convolution(kernel: FloatArray, vectors: FloatArray) -> FloatArray:
    """sum_j kernel_j vectors_(i-j) along the last axis, for i below its length n, in float64; kernel (n,)."""
    n = vectors.shape[-1]
    size = fft_length(n)
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
    columns: NDArray[np.int64] | None = deferred_field(None)  # noqa: RUF009  (as dataclasses.field is)

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
            out = causal_convolution(self.coefficients.astype(np.float64), vectors.T)
        else:
            out = causal_exact(self.coefficients, vectors.T)
        return np.ascontiguousarray((out * self.multiples).T)

    def apply_transpose(self, vectors: Numbers) -> Numbers:
        turned: Numbers = (vectors.T * self.multiples)[:, ::-1]
        if vectors.dtype.kind == "f":
            out = causal_convolution(self.coefficients.astype(np.float64), turned)
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
