"""Operators over an ordered domain: prefixes, all ranges, windows."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from sfumato.errors import PlanError, WorkloadError
from sfumato.ground.codec import storable
from sfumato.maps import Map, RangesMap
from sfumato.operators.base import DENSE_LIMIT, FloatArray, LinearOperator, Numbers, check_dense
from sfumato.operators.basic import check_length
from sfumato.operators.explicit import Dense

__all__ = ["AllRange", "Contiguous", "Prefix", "Window"]


def _cumulative(vectors: Numbers) -> Numbers:
    """(n, c) -> (n + 1, c) cumulative sums that start with 0."""
    out = np.zeros((vectors.shape[0] + 1, vectors.shape[1]), dtype=vectors.dtype)
    np.cumsum(vectors, axis=0, out=out[1:])
    return out


def _corner_sums(matrix: FloatArray) -> FloatArray:
    """(n, n) -> (n + 1, n + 1) sums of every leading block."""
    out = np.zeros((matrix.shape[0] + 1, matrix.shape[1] + 1))
    np.cumsum(np.cumsum(matrix, axis=0), axis=1, out=out[1:, 1:])
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
        cumulative = _cumulative(vectors)
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

    def apply(self, vectors: Numbers) -> Numbers:
        return _cumulative(vectors)[1:]

    def apply_transpose(self, vectors: Numbers) -> Numbers:
        return _cumulative(vectors[::-1])[:0:-1]


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

    def gram(self) -> LinearOperator:
        check_dense(self.n, self.n)
        index = np.arange(self.n)
        return Dense((np.minimum.outer(index, index) + 1) * (self.n - np.maximum.outer(index, index)))


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
