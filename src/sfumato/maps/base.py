"""What a measured map states: its shape, its exact action, and from its structure what it can cost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import WorkloadError

Numbers = NDArray[Any]
FloatArray = NDArray[np.float64]

DENSE_LIMIT = 2**25
"""Largest number of entries that is made dense without being asked twice (256 MiB of float64)."""

INT64 = 2**63
"""Entries below this in size are held exactly in int64; modular arithmetic is exact for results below it."""


_FEW_ROWS = 8  # whose entries are fewer Python integers than the ten or so sums of parts of 16 bits are


class LinearMap(ABC):
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


def _split_into_limbs(matrix: NDArray[np.int64]) -> list[NDArray[np.float64]]:
    """Numbers of 16 bits, all but the last not negative, with matrix = sum of limb[i] 2^(16 i)."""
    count = int(np.abs(matrix).max(initial=0)).bit_length() // 16 + 1
    parts = [(matrix >> (16 * i)) & 0xFFFF for i in range(count - 1)]
    return [p.astype(np.float64) for p in (*parts, matrix >> (16 * (count - 1)))]


def integer_products(matrix: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """(shift, P) with matrixᵀ matrix = sum of P 2^shift; every P is exact, though formed by float64 BLAS."""
    limbs = _split_into_limbs(matrix)
    for i, left in enumerate(limbs):
        for j, right in enumerate(limbs[: i + 1]):
            product = np.zeros((matrix.shape[1],) * 2, dtype=np.int64)
            for start in range(0, len(matrix), 2**20):
                # 2^20 products of 32 bits: every partial sum is below 2^53
                rows = slice(start, start + 2**20)
                product += np.rint(left[rows].T @ right[rows]).astype(np.int64)
            yield 16 * (i + j), product if i == j else product + product.T


def exact_matmul(matrix: Numbers, vectors: Numbers) -> Numbers:
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
    form, factors = ",".join(["ij"] * power) + "->j", [magnitude] * power
    # floating point tells the sums to a billionth: half of what int64 holds is safe
    if 2 * np.einsum(form, *factors, dtype=np.float64).max(initial=0.0) < INT64:
        return np.einsum(form, *factors).astype(object)
    if len(matrix) <= _FEW_ROWS:
        return (magnitude.astype(object) ** power).sum(axis=0)
    limbs = [(16 * i, (magnitude >> (16 * i)) & 0xFFFF) for i in range(int(magnitude.max()).bit_length() // 16 + 1)]
    parts = [(i, (a,)) for i, a in limbs] if power == 1 else [(i + j, (a, b)) for i, a in limbs for j, b in limbs]
    return sum_objects((shift, np.einsum(form, *some)) for shift, some in parts)


IntArray = NDArray[np.int64]

# Maps of at most so many entries are applied before they are measured, to every unit vector where cells are few: a few
# milliseconds. Unit vectors of many cells are a matrix of the square of their number, and some vectors stand for all.
_CHECKED_ENTRIES, _CHECKED_CELLS = 2**18, 2**9
# whose powers modulo 2^64 those vectors hold: multipliers of known generators; any large odd numbers would do
_ODD = np.array([6364136223846793005, 2862933555777941757, 3202034522624059733], dtype=np.int64)

_UNITS = 2**24  # entries of unit vectors that a map is applied to at once: 128 MB


class Map(LinearMap):
    """An integer matrix (rows, columns) of the closed set.

    `apply` takes int64 vectors, in arithmetic modulo 2^64: nothing is ever rounded or saturated. What else a map states
    follows from its structure and must agree with its columns; `check_price` compares the two.
    """

    __slots__ = ()

    @property
    def integral(self) -> bool:
        """Always: there are no other maps here."""
        return True

    @property
    def max_abs(self) -> int:
        """Largest absolute entry, or an upper bound of it."""
        return 1 if self.binary else int(max(self.column_sums(1)))

    @abstractmethod
    def column_sums(self, power: int) -> Numbers:
        """(columns,) sums of |entry|^power, power 1 or 2, in Python integers."""

    def columns(self) -> Numbers:
        """The matrix, int64. Raises WorkloadError for more than 2^25 entries, and where 2^63 may be reached."""
        if self.shape[0] * self.shape[1] > DENSE_LIMIT or self.max_abs >= INT64:
            raise WorkloadError(f"the entries of {self!r} are too many to be written out, or too large")
        return self.entries()

    def entries(self) -> Numbers:
        """The matrix, of entries that are known to fit int64: unless its structure tells it, from unit vectors."""
        width, step = self.shape[1], max(1, _UNITS // self.shape[1])
        units = (np.eye(width, min(step, width - a), -a, dtype=np.int64) for a in range(0, width, step))
        return np.concatenate([self.apply(some) for some in units], axis=1)

    def gram(self) -> Numbers:
        """(columns, columns) inner products of columns: int64 where all fit, else Python integers."""
        products = list(integer_products(self.columns()))
        return reduce(np.add, (p << s for (s, _), p in zip(products, self.roomy(p for _, p in products), strict=True)))

    def roomy(self, parts: Iterable[Numbers]) -> list[Numbers]:
        """Parts of the Gram matrix, as Python integers where some inner product does not fit int64."""
        return [p if max(self.column_sums(2)) < INT64 else p.astype(object) for p in parts]

    def lowered(self) -> Map:
        """Itself."""
        return self


def check_price(found: Map) -> None:
    """Compare column sums with those of all columns, and these with what the map does, of maps small enough.

    It is held against its columns on every unit vector, or on fixed vectors of 64 bits, on which maps that differ
    would agree by accident. Raises WorkloadError where they differ.
    """
    if found.shape[0] * found.shape[1] > _CHECKED_ENTRIES or found.max_abs >= INT64:
        return
    matrix, cells = found.columns(), found.shape[1]
    units = np.eye(cells, dtype=np.int64) if cells <= _CHECKED_CELLS else None
    drawn = np.multiply.accumulate(np.tile(_ODD, (cells, 1))) if units is None else units
    agrees = np.array_equal(found.apply(drawn), matrix if units is not None else matrix @ drawn)
    if not agrees or any(not np.array_equal(absolute_sums(matrix, p), found.column_sums(p)) for p in (1, 2)):
        raise WorkloadError(f"internal error: {found!r} misstates its columns")


def check_cell_count(n: object) -> None:
    """Refuse what is no number of cells."""
    if type(n) is not int or n < 1:
        raise WorkloadError(f"a map needs a whole number of cells of at least 1, not {n!r}")


def own_array(given: object, what: str) -> IntArray:
    """A read-only int64 array."""
    array = np.asarray(given)
    if array.dtype != np.int64 or (array.size and int(array.min()) == -INT64):
        raise WorkloadError(f"{what} of a map are int64 above -2^63, not {array.dtype}")
    if array.flags.writeable:
        array = array.copy()
        array.flags.writeable = False
    return array
