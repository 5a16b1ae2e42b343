"""Maps of the closed set that are given by their number of cells, or row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sfumato.errors import WorkloadError
from sfumato.ground.codec import storable
from sfumato.ground.later import later
from sfumato.maps.base import IntArray, Map, length_of, own_array
from sfumato.maps.convolution import causal_exact
from sfumato.maps.linear import INT64, Numbers, absolute_sums, times

__all__ = ["AlikeMap", "DenseMap", "RangesMap", "SparseMap", "ToeplitzMap", "TotalMap"]

_MOST_ALIKE = 2**31  # of the entries of a map whose columns are alike: their squares fit int64


# ---- columns that are all alike --------------------------------------------------------------------------


@storable
@dataclass(frozen=True, slots=True, repr=False)
class AlikeMap(Map):
    """own I + other J, J of ones: (n, n). Every cell itself by default; n I - J is each cell's excess over the mean."""

    n: int
    own: int = 1
    other: int = 0

    def __post_init__(self) -> None:
        length_of(self.n)
        if not all(type(e) is int and abs(e) < _MOST_ALIKE for e in (self.own, self.other)):
            raise WorkloadError("a map whose columns are alike has entries below 2^31")

    @property
    def shape(self) -> tuple[int, int]:
        return (self.n, self.n)

    @property
    def exchangeable(self) -> bool:
        return True

    @property
    def binary(self) -> bool:
        return (self.own, self.other) == (1, 0)

    @property
    def max_abs(self) -> int:
        return max(abs(self.own + self.other), abs(self.other))

    def apply(self, vectors: Numbers) -> Numbers:
        return self.along(vectors, 0)

    def along(self, table: Numbers, axis: int) -> Numbers:
        return table if self.binary else self.own * table + self.other * table.sum(axis=axis, keepdims=True)

    def column_sums(self, power: int) -> Numbers:
        return np.full(self.n, abs(self.own + self.other) ** power + (self.n - 1) * abs(self.other) ** power, object)

    def pairs(self) -> tuple[tuple[int, int, int], ...]:
        """How often each pair of entries stands in two columns: (rows, entry, entry); of one column, in it twice."""
        first, other = self.own + self.other, self.other
        if self.n == 1:
            return ((1, first, first),)
        rest = ((self.n - 2, other, other),) if other else ()
        return ((1, first, other), (1, other, first), *rest)

    def gram(self) -> Numbers:
        eye, ones = self.roomy((np.eye(self.n, dtype=np.int64), np.ones((self.n, self.n), dtype=np.int64)))
        return self.own**2 * eye + (2 * self.own * self.other + self.n * self.other**2) * ones


@storable
@dataclass(frozen=True, slots=True, repr=False)
class TotalMap(Map):
    """The sum of all cells: (1, n)."""

    n: int

    def __post_init__(self) -> None:
        length_of(self.n)

    @property
    def shape(self) -> tuple[int, int]:
        return (1, self.n)

    @property
    def exchangeable(self) -> bool:
        return True

    @property
    def binary(self) -> bool:
        return True

    def apply(self, vectors: Numbers) -> Numbers:
        return vectors.sum(axis=0, keepdims=True)

    def entries(self) -> Numbers:
        return np.ones(self.shape, dtype=np.int64)

    def column_sums(self, power: int) -> Numbers:
        return np.ones(self.n, dtype=object)

    def pairs(self) -> tuple[tuple[int, int, int], ...]:
        """As those of `AlikeMap`."""
        return ((1, 1, 1),)


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

    def apply(self, vectors: Numbers) -> Numbers:
        sums = np.zeros((self.n + 1, vectors.shape[1]), dtype=np.int64)
        np.cumsum(vectors, axis=0, out=sums[1:])
        return sums[self.last] - sums[self.first]

    def entries(self) -> Numbers:
        cells = np.arange(self.n)
        return ((self.first[:, None] <= cells) & (cells < self.last[:, None])).astype(np.int64)

    def column_sums(self, power: int) -> Numbers:
        starts, ends = (np.bincount(i, minlength=self.n + 1) for i in (self.first, self.last))
        return np.cumsum(starts - ends)[:-1].astype(object)

    def gram(self) -> Numbers:
        # each row adds 1 on a square: four corners, then sums along both axes
        n = self.n + 1
        steps = np.zeros(n * n, dtype=np.int64)
        for i, sign in ((self.first, 1), (self.last, -1)):
            for j, other in ((self.first, 1), (self.last, -1)):
                steps += sign * other * np.bincount(i * n + j, minlength=n * n)
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
    def _csr(self) -> Any:
        from scipy.sparse import csr_array  # noqa: PLC0415  (scipy.sparse is slow to import)

        return csr_array((self.data, self.indices, self.indptr), shape=self.shape)

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
        return self._csr @ vectors

    def entries(self) -> Numbers:
        return self._csr.toarray()

    def column_sums(self, power: int) -> Numbers:
        out = np.zeros(self.n, dtype=object)
        np.add.at(out, self.indices, np.abs(self.data).astype(object) ** power)
        return out

    def gram(self) -> Numbers:
        # arithmetic modulo 2^64 is exact where the largest inner product fits
        return (self._csr.T @ self._csr).toarray() if max(self.column_sums(2)) < INT64 else Map.gram(self)


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

    def entries(self) -> Numbers:
        return self.matrix

    def column_sums(self, power: int) -> Numbers:
        return absolute_sums(self.matrix, power)


@storable
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ToeplitzMap(Map):
    """Entry (i, j) is multiples_i coefficients_(i - j) columns_j for j <= i and 0 above: (n, n).

    Multiples of rows and of columns are not negative, and those of columns 1 where none are given. Raises WorkloadError
    where a column's sum of squares could reach 2^63 before its own multiple.
    """

    coefficients: IntArray
    multiples: IntArray
    column_multiples: IntArray | None = later(None)  # noqa: RUF009  (as dataclasses.field is)

    def __post_init__(self) -> None:
        for name in ("coefficients", "multiples", "column_multiples")[: 2 if self.column_multiples is None else 3]:
            object.__setattr__(self, name, own_array(getattr(self, name), name))
        c, m = self.coefficients, self.multiples
        w = m if self.column_multiples is None else self.column_multiples
        if c.ndim != 1 or not c.shape == m.shape == w.shape or not c.size or min(int(m.min()), int(w.min())) < 0:
            raise WorkloadError("a Toeplitz map has one coefficient and multiples of at least 0 per row and column")
        if int(np.abs(c).max()) ** 2 * len(c) >= INT64 or int((c**2).sum()) * int(m.max()) ** 2 >= INT64:
            raise WorkloadError("the entries of a Toeplitz map are too large for exact column sums")

    @property
    def shape(self) -> tuple[int, int]:
        return (len(self.multiples), len(self.multiples))

    @property
    def nonnegative(self) -> bool:
        return int(self.coefficients.min()) >= 0

    def apply(self, vectors: Numbers) -> Numbers:
        own = vectors if self.column_multiples is None else vectors * self.column_multiples[:, None]
        return np.ascontiguousarray((causal_exact(self.coefficients, own.T) * self.multiples).T)

    def entries(self) -> Numbers:
        back = np.arange(len(self.multiples))[:, None] - np.arange(len(self.multiples))
        own = np.where(back < 0, 0, self.coefficients[back]) * self.multiples[:, None]
        return own if self.column_multiples is None else own * self.column_multiples

    def column_sums(self, power: int) -> Numbers:
        # below 2^63 by construction, so exact modulo 2^64 is exact; L1 sums are below the squared ones; the columns'
        # own multiples are of Python's integers
        weights = (self.multiples**power)[::-1]
        bits = int(weights.max()).bit_length() + 1
        sums = causal_exact(np.abs(self.coefficients) ** power, weights, bits)[::-1].astype(object)
        return sums if self.column_multiples is None else sums * self.column_multiples.astype(object) ** power
