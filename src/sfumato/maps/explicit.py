"""Maps of the closed set that are given by their number of cells, or row by row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato._util.codec import storable
from sfumato.errors import WorkloadError
from sfumato.maps.base import (
    IntArray,
    Map,
    Numbers,
    absolute_sums,
    check_cell_count,
    exact_matmul,
    own_array,
)

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
        check_cell_count(self.n)
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
        if self.binary:
            return table
        made, others = self.own * table, self.other * table.sum(axis=axis, keepdims=True)
        return np.add(made, others, out=made if made.dtype == others.dtype else None)

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
        check_cell_count(self.n)

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
        return exact_matmul(self.matrix, vectors)

    def entries(self) -> Numbers:
        return self.matrix

    def column_sums(self, power: int) -> Numbers:
        return absolute_sums(self.matrix, power)
