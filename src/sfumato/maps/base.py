"""What a measured map states: its shape, its exact action, and from its structure what it can cost."""

from __future__ import annotations

from abc import abstractmethod
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import WorkloadError
from sfumato.maps.linear import DENSE_LIMIT, INT64, Linear, Numbers, integer_products

__all__ = ["Extremes", "IntArray", "Map", "check_price", "length_of", "own_array"]

IntArray = NDArray[np.int64]
Extremes = tuple[Numbers, Numbers]

# Maps of at most so many entries are applied to every unit vector before they are measured: a few milliseconds.
_CHECKED_ENTRIES = 2**20


class Map(Linear):
    """An integer matrix (rows, columns) of the closed set.

    `apply` takes int64 vectors, in arithmetic modulo 2^64: nothing is ever rounded or saturated. It takes arrays of
    Python integers as well, and is then exact at any size. What else a map states follows from its structure and
    must agree with its columns; `check_price` compares the two.
    """

    __slots__ = ()

    @property
    def integral(self) -> bool:
        """Always: there are no other maps here."""
        return True

    @property
    @abstractmethod
    def max_abs(self) -> int:
        """Largest absolute entry, or an upper bound of it."""

    @property
    def binary(self) -> bool:
        """Whether it is known that every entry is 0 or 1."""
        return False

    @property
    def nonnegative(self) -> bool:
        """Whether it is known that no entry is negative."""
        return self.binary

    @abstractmethod
    def column_sums(self, power: int) -> Numbers:
        """(columns,) sums of |entry|^power, power 1 or 2, in Python integers."""

    @abstractmethod
    def extremes(self) -> Extremes:
        """(rows,) the largest and the smallest entry of each row."""

    def columns(self, count: int | None = None) -> Numbers:
        """(rows, count) the first columns, or all: int64, or Python integers where they might not fit.

        Raises WorkloadError for more than 2^25 entries.
        """
        n = self.shape[1] if count is None else count
        if self.shape[0] * n > DENSE_LIMIT:
            raise WorkloadError(f"{self!r} has too many entries to be written out")
        return self.apply(np.eye(self.shape[1], n, dtype=np.int64 if self.max_abs < INT64 else object))

    def gram(self) -> Numbers:
        """(columns, columns) inner products of columns: int64 where all fit, else Python integers."""
        return _gram(self.columns(), max(self.column_sums(2)))

    def lowered(self) -> Map:
        """Itself."""
        return self


def _gram(matrix: Numbers, top: int) -> Numbers:
    """matrixᵀ matrix, exact; top is the largest squared column norm, which no partial sum passes."""
    if matrix.dtype.kind == "O":
        return matrix.T @ matrix
    parts = integer_products(matrix)
    if top >= INT64:
        return reduce(np.add, (p.astype(object) << s for s, p in parts))
    return reduce(np.add, (p << s for s, p in parts))


def check_price(found: Map) -> None:
    """Compare column sums with those of all columns, of maps small enough. Raises WorkloadError where they differ."""
    rows, columns = found.shape
    if rows * columns > _CHECKED_ENTRIES:
        return
    matrix = found.columns().astype(object)
    for power in (1, 2):
        if not np.array_equal((abs(matrix) ** power).sum(axis=0), found.column_sums(power)):
            raise WorkloadError(f"internal error: {found!r} misstates its columns")


def length_of(n: object) -> None:
    if type(n) is not int or n < 1:
        raise WorkloadError(f"a map needs a whole number of cells of at least 1, not {n!r}")


def own_array(given: object, what: str) -> IntArray:
    """A read-only int64 array of one dimension or two."""
    array = np.asarray(given)
    if array.dtype != np.int64 or (array.size and int(array.min()) == -INT64):
        raise WorkloadError(f"{what} of a map are int64 above -2^63, not {array.dtype}")
    if array.flags.writeable:
        array = array.copy()
        array.flags.writeable = False
    return array
