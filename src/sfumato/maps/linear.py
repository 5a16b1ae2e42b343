"""What every linear map of the library states, and exact products of integer matrices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sfumato.maps.base import Map

__all__ = ["DENSE_LIMIT", "INT64", "FloatArray", "Linear", "Numbers", "absolute_sums", "integer_products"]
__all__ += ["sum_objects", "times"]

Numbers = NDArray[Any]
FloatArray = NDArray[np.float64]

DENSE_LIMIT = 2**25
"""Largest number of entries that is made dense without being asked twice (256 MiB of float64)."""

INT64 = 2**63
"""Entries below this in size are held exactly in int64; modular arithmetic is exact for results below it."""


_FEW_ROWS = 8  # whose entries are fewer Python integers than the ten or so sums of parts of 16 bits are


class Linear(ABC):
    """A linear map from R^columns to R^rows, as far as blocks and families need to know it."""

    __slots__ = ()

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""

    @property
    @abstractmethod
    def integral(self) -> bool:
        """Whether every entry is an integer."""

    @property
    def binary(self) -> bool:
        """Whether it is known that every entry is 0 or 1."""
        return False

    @property
    def nonnegative(self) -> bool:
        """Whether it is known that no entry is negative."""
        return self.binary

    @property
    def exchangeable(self) -> bool:
        """Whether any permutation of the columns is a permutation of the rows."""
        return False

    @property
    @abstractmethod
    def max_abs(self) -> float:
        """Largest absolute entry, or an upper bound of it (an exact int for integral maps)."""

    @abstractmethod
    def apply(self, vectors: Numbers) -> Numbers:
        """(columns, c) -> (rows, c)."""

    def along(self, table: Numbers, axis: int) -> Numbers:
        """The map applied along one axis of an array, whose length there changes from columns to rows."""
        front = np.moveaxis(table, axis, 0)
        out = self.apply(np.ascontiguousarray(front).reshape(len(front), -1))
        return np.moveaxis(out.reshape(-1, *front.shape[1:]), 0, axis)

    @abstractmethod
    def lowered(self) -> Map:
        """The map of the closed set that it is. Raises WorkloadError or PlanError where it is none."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.shape}"


# ---- exact integers, however large -----------------------------------------------------------------------


def sum_objects(parts: Iterable[tuple[int, NDArray[np.int64]]]) -> Numbers:
    """The sum of part 2^shift in Python integers."""
    return reduce(np.add, [part.astype(object) * 2**shift for shift, part in parts])


def _limbs(matrix: NDArray[np.int64]) -> list[NDArray[np.float64]]:
    """Numbers of 16 bits, all but the last not negative, with matrix = sum of limb[i] 2^(16 i)."""
    count = int(np.abs(matrix).max(initial=0)).bit_length() // 16 + 1
    parts = [(matrix >> (16 * i)) & 0xFFFF for i in range(count - 1)]
    return [p.astype(np.float64) for p in (*parts, matrix >> (16 * (count - 1)))]


def integer_products(matrix: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """(shift, P) with matrixᵀ matrix = sum of P 2^shift; every P is exact, though formed by float64 BLAS."""
    limbs = _limbs(matrix)
    for i, left in enumerate(limbs):
        for j, right in enumerate(limbs[: i + 1]):
            product = np.zeros((matrix.shape[1],) * 2, dtype=np.int64)
            for start in range(0, len(matrix), 2**20):
                # 2^20 products of 32 bits: every partial sum is below 2^53
                rows = slice(start, start + 2**20)
                product += np.rint(left[rows].T @ right[rows]).astype(np.int64)
            yield 16 * (i + j), product if i == j else product + product.T


def times(matrix: Numbers, vectors: Numbers) -> Numbers:
    """matrix @ vectors; many whole vectors in floating point where no partial sum can round, which is far faster."""
    if matrix.dtype.kind == "i" and vectors.dtype.kind == "i" and vectors.ndim == 2:
        real = vectors.astype(np.float64)
        top = max(int(matrix.max()), -int(matrix.min())) * float(np.abs(real).sum(axis=0).max(initial=0.0))
        # half of what is exact: the sums themselves are rounded
        if top < 2**52:
            return (matrix.astype(np.float64) @ real).astype(np.int64)
    return matrix @ vectors


def absolute_sums(matrix: NDArray[np.int64], power: int) -> Numbers:
    """(columns,) sums of |entry|^power, power 1 or 2, in Python integers; entries above -2^63."""
    magnitude = np.abs(matrix)
    if int(magnitude.max(initial=0)) ** power * matrix.shape[0] < INT64:
        return (np.einsum("ij,ij->j", matrix, matrix) if power == 2 else magnitude.sum(axis=0)).astype(object)
    if len(matrix) <= _FEW_ROWS:
        return (magnitude.astype(object) ** power).sum(axis=0)
    limbs = [(16 * i, (magnitude >> (16 * i)) & 0xFFFF) for i in range(int(magnitude.max()).bit_length() // 16 + 1)]
    if power == 1:
        return sum_objects((shift, a.sum(axis=0)) for shift, a in limbs)
    return sum_objects((i + j, np.einsum("ij,ij->j", a, b)) for i, a in limbs for j, b in limbs)
