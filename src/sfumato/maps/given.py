"""Maps of the closed set that are given by their number of cells, or row by row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato.errors import WorkloadError
from sfumato.ground.codec import storable
from sfumato.maps.base import Extremes, IntArray, Map, length_of, own_array
from sfumato.maps.convolution import causal_exact
from sfumato.maps.linear import DENSE_LIMIT, INT64, Numbers, absolute_sums, times

__all__ = ["DenseMap", "IdentityMap", "RangesMap", "ResidualMap", "SparseMap", "ToeplitzMap", "TotalMap"]

# Products formed at once where compressed rows are applied.
_CHUNK = 2**22


# ---- columns that are all alike --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class _Simple(Map):
    """A map that its number of cells describes."""

    n: int

    def __post_init__(self) -> None:
        length_of(self.n)

    @property
    def shape(self) -> tuple[int, int]:
        return (self.n, self.n)

    @property
    def exchangeable(self) -> bool:
        return True

    @property
    def binary(self) -> bool:
        return True

    @property
    def max_abs(self) -> int:
        return 1

    def column_sums(self, power: int) -> Numbers:
        return np.ones(self.n, dtype=object)


@storable
@dataclass(frozen=True, slots=True, repr=False)
class IdentityMap(_Simple):
    """Every cell itself: (n, n)."""

    def apply(self, vectors: Numbers) -> Numbers:
        return vectors

    def along(self, table: Numbers, axis: int) -> Numbers:
        return table

    def extremes(self) -> Extremes:
        return np.ones(self.n, dtype=np.int64), np.full(self.n, int(self.n == 1))

    def gram(self) -> Numbers:
        return np.eye(self.n, dtype=np.int64)


@storable
@dataclass(frozen=True, slots=True, repr=False)
class TotalMap(_Simple):
    """The sum of all cells: (1, n)."""

    @property
    def shape(self) -> tuple[int, int]:
        return (1, self.n)

    def apply(self, vectors: Numbers) -> Numbers:
        return vectors.sum(axis=0, keepdims=True)

    def extremes(self) -> Extremes:
        return np.ones(1, dtype=np.int64), np.ones(1, dtype=np.int64)


@storable
@dataclass(frozen=True, slots=True, repr=False)
class ResidualMap(_Simple):
    """n I - J: each cell's excess over the mean, times n. (n, n)."""

    @property
    def binary(self) -> bool:
        return False

    @property
    def max_abs(self) -> int:
        return max(1, self.n - 1)

    def apply(self, vectors: Numbers) -> Numbers:
        return self.n * vectors - vectors.sum(axis=0, keepdims=True)

    def along(self, table: Numbers, axis: int) -> Numbers:
        return self.n * table - table.sum(axis=axis, keepdims=True)

    def column_sums(self, power: int) -> Numbers:
        n = self.n
        return np.full(n, 2 * (n - 1) if power == 1 else n * (n - 1), dtype=object)

    def extremes(self) -> Extremes:
        return np.full(self.n, self.n - 1), np.full(self.n, -int(self.n > 1))

    def gram(self) -> Numbers:
        return self.n * (self.n * np.eye(self.n, dtype=np.int64) - 1)


# ---- rows given one by one -------------------------------------------------------------------------------


@storable
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class RangesMap(Map):
    """Row i sums cells first_i to last_i - 1 of n: prefixes, windows, the nodes of a tree."""

    first: IntArray
    last: IntArray
    n: int

    def __post_init__(self) -> None:
        length_of(self.n)
        object.__setattr__(self, "first", own_array(self.first, "first cells"))
        object.__setattr__(self, "last", own_array(self.last, "ends"))
        inside = self.first.ndim == 1 and self.first.shape == self.last.shape and self.first.size > 0
        if not inside or not ((self.first >= 0) & (self.first < self.last) & (self.last <= self.n)).all():
            raise WorkloadError("every row of a map of ranges sums at least one cell, and cells of its own")

    @property
    def shape(self) -> tuple[int, int]:
        return (len(self.first), self.n)

    @property
    def binary(self) -> bool:
        return True

    @property
    def max_abs(self) -> int:
        return 1

    def apply(self, vectors: Numbers) -> Numbers:
        sums = np.zeros((self.n + 1, vectors.shape[1]), dtype=vectors.dtype)
        np.cumsum(vectors, axis=0, out=sums[1:])
        return sums[self.last] - sums[self.first]

    def column_sums(self, power: int) -> Numbers:
        starts, ends = (np.bincount(i, minlength=self.n + 1) for i in (self.first, self.last))
        return np.cumsum(starts - ends)[:-1].astype(object)

    def extremes(self) -> Extremes:
        return np.ones(len(self.first), dtype=np.int64), (self.last - self.first == self.n).astype(np.int64)

    def gram(self) -> Numbers:
        # each row adds 1 on a square: four corners, then sums along both axes
        n = self.n + 1
        steps = np.zeros(n * n, dtype=np.int64)
        for i, j, sign in ((self.first, self.first, 1), (self.last, self.last, 1), (self.first, self.last, -1)):
            steps += sign * np.bincount(i * n + j, minlength=n * n)
        steps -= np.bincount(self.last * n + self.first, minlength=n * n)
        return steps.reshape(n, n).cumsum(axis=0).cumsum(axis=1)[:-1, :-1]


@storable
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class SparseMap(Map):
    """Compressed rows: row i has `data` at `indices`, rising, from indptr_i to indptr_(i+1) - 1; others are 0."""

    data: IntArray
    indices: IntArray
    indptr: IntArray
    n: int

    def __post_init__(self) -> None:
        length_of(self.n)
        for name in ("data", "indices", "indptr"):
            object.__setattr__(self, name, own_array(getattr(self, name), name))
        ends, cells = self.indptr, self.indices
        if ends.ndim != 1 or len(ends) < 2 or cells.ndim != 1 or cells.shape != self.data.shape:
            raise WorkloadError("a sparse map has at least one row, and one index per entry")
        lengths = np.diff(ends)
        if int(ends[0]) != 0 or int(ends[-1]) != len(cells) or int(lengths.min()) < 0:
            raise WorkloadError("the rows of a sparse map follow each other")
        rises = (np.diff(cells) > 0) | (np.diff(np.repeat(np.arange(len(lengths)), lengths)) > 0)
        if len(cells) and (int(cells.min()) < 0 or int(cells.max()) >= self.n or not rises.all()):
            raise WorkloadError("the indices of a sparse row rise, each once, inside the map")

    @property
    def shape(self) -> tuple[int, int]:
        return (len(self.indptr) - 1, self.n)

    @property
    def binary(self) -> bool:
        return bool(((self.data == 0) | (self.data == 1)).all())

    @property
    def max_abs(self) -> int:
        return int(np.abs(self.data).max(initial=0))

    def apply(self, vectors: Numbers) -> Numbers:
        out = np.zeros((self.shape[0], vectors.shape[1]), dtype=vectors.dtype)
        filled = np.flatnonzero(np.diff(self.indptr))
        starts = self.indptr[filled]
        for column in range(0, vectors.shape[1], step := max(1, _CHUNK // max(1, len(self.data)))):
            part = vectors[:, column : column + step]
            if len(filled):
                products = self.data[:, None] * part[self.indices]
                out[filled, column : column + step] = np.add.reduceat(products, starts, axis=0)
        return out

    def column_sums(self, power: int) -> Numbers:
        out = np.zeros(self.n, dtype=object)
        np.add.at(out, self.indices, np.abs(self.data).astype(object) ** power)
        return out

    def extremes(self) -> Extremes:
        high, low = (np.zeros(self.shape[0], dtype=np.int64) for _ in range(2))
        lengths = np.diff(self.indptr)
        filled = np.flatnonzero(lengths)
        if len(filled):
            full = lengths[filled] == self.n
            for out, best in ((high, np.maximum), (low, np.minimum)):
                found = best.reduceat(self.data, self.indptr[filled])
                out[filled] = np.where(full, found, best(found, 0))
        return high, low


@storable
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class DenseMap(Map):
    """A matrix (rows, columns), entry by entry."""

    matrix: IntArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "matrix", own_array(self.matrix, "entries"))
        if self.matrix.ndim != 2 or 0 in self.matrix.shape:
            raise WorkloadError(f"a dense map has rows and columns, not the shape {self.matrix.shape}")

    @property
    def shape(self) -> tuple[int, int]:
        return (self.matrix.shape[0], self.matrix.shape[1])

    @property
    def binary(self) -> bool:
        return bool(((self.matrix == 0) | (self.matrix == 1)).all())

    @property
    def max_abs(self) -> int:
        return int(np.abs(self.matrix).max())

    def apply(self, vectors: Numbers) -> Numbers:
        return times(self.matrix, vectors)

    def column_sums(self, power: int) -> Numbers:
        return absolute_sums(self.matrix, power)

    def columns(self, count: int | None = None) -> Numbers:
        return self.matrix[:, :count]

    def extremes(self) -> Extremes:
        return self.matrix.max(axis=1), self.matrix.min(axis=1)


@storable
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ToeplitzMap(Map):
    """Entry (i, j) is multiples_i coefficients_(i - j) for j <= i and 0 above: (n, n); multiples not negative.

    Raises WorkloadError where a column's sum of squares could reach 2^63.
    """

    coefficients: IntArray
    multiples: IntArray

    def __post_init__(self) -> None:
        for name in ("coefficients", "multiples"):
            object.__setattr__(self, name, own_array(getattr(self, name), name))
        c, m = self.coefficients, self.multiples
        if c.ndim != 1 or c.shape != m.shape or not c.size or int(m.min()) < 0:
            raise WorkloadError("a Toeplitz map has one coefficient and one multiple of at least 0 per row")
        if int(np.abs(c).max()) ** 2 * len(c) >= INT64 or int((c**2).sum()) * int(m.max()) ** 2 >= INT64:
            raise WorkloadError("the entries of a Toeplitz map are too large for exact column sums")

    @property
    def shape(self) -> tuple[int, int]:
        return (len(self.multiples), len(self.multiples))

    @property
    def nonnegative(self) -> bool:
        return int(self.coefficients.min()) >= 0

    @property
    def max_abs(self) -> int:
        # a row has the coefficients up to its own
        return int((np.maximum.accumulate(np.abs(self.coefficients)) * self.multiples).max())

    def apply(self, vectors: Numbers) -> Numbers:
        if vectors.dtype.kind == "O":
            return self.columns().astype(object) @ vectors
        out = causal_exact(self.coefficients, vectors.T)
        return np.ascontiguousarray((out * self.multiples).T)

    def columns(self, count: int | None = None) -> Numbers:
        n = self.shape[0]
        if n * n > DENSE_LIMIT:
            raise WorkloadError(f"{self!r} has too many entries to be written out")
        lag = np.arange(n)[:, None] - np.arange(n)[:count]
        return np.where(lag >= 0, self.coefficients[np.maximum(lag, 0)] * self.multiples[:, None], 0)

    def column_sums(self, power: int) -> Numbers:
        # below 2^63 by construction, so exact modulo 2^64 is exact; L1 sums are below the squared ones
        weights = (self.multiples**power)[::-1]
        bits = int(weights.max()).bit_length() + 1
        return causal_exact(np.abs(self.coefficients) ** power, weights, bits)[::-1].astype(object)

    def extremes(self) -> Extremes:
        ends = [best.accumulate(self.coefficients) * self.multiples for best in (np.maximum, np.minimum)]
        # every row but the last has zeros
        high, low = np.maximum(ends[0], 0), np.minimum(ends[1], 0)
        high[-1], low[-1] = ends[0][-1], ends[1][-1]
        return high, low
