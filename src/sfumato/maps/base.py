"""What a measured map states: its shape, its exact action, and from its structure what it can cost."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import WorkloadError
from sfumato.maps.linear import DENSE_LIMIT, INT64, Linear, Numbers, absolute_sums, integer_products

__all__ = ["IntArray", "Map", "check_price", "length_of", "own_array"]

IntArray = NDArray[np.int64]

# Maps of at most so many entries are applied before they are measured, to every unit vector where cells are few: a few
# milliseconds. Unit vectors of many cells are a matrix of the square of their number, and some vectors stand for all.
_CHECKED_ENTRIES, _CHECKED_CELLS = 2**18, 2**9
# whose powers modulo 2^64 those vectors hold: multipliers of known generators; any large odd numbers would do
_ODD = np.array([6364136223846793005, 2862933555777941757, 3202034522624059733], dtype=np.int64)

_UNITS = 2**24  # entries of unit vectors that a map is applied to at once: 128 MB


class Map(Linear):
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


def length_of(n: object) -> None:
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
