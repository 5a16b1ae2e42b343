"""Maps with a structure of their own: runs of cells, compressed rows, maps one below the other, and their products.

Trees, prefixes and windows, predicates, and joint groups of attributes are measured by them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from sfumato._util.codec import storable
from sfumato.errors import WorkloadError
from sfumato.maps.base import INT64, IntArray, Map, Numbers, check_cell_count, own_array
from sfumato.maps.composite import CompositeMap, read_map_parts


@storable
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class RangesMap(Map):
    """Row i sums cells first_i to last_i - 1 of n: prefixes, windows, the nodes of a tree."""

    first: IntArray
    last: IntArray
    n: int

    def __post_init__(self) -> None:
        check_cell_count(self.n)
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
        check_cell_count(self.n)
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


@dataclass(frozen=True, slots=True, repr=False)
class _SeveralMaps(CompositeMap):
    """Made of several maps."""

    parts: tuple[Map, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", read_map_parts(self.parts))

    @property
    def inside(self) -> tuple[Map, ...]:
        return self.parts


@storable
@dataclass(frozen=True, slots=True, repr=False)
class StackMap(_SeveralMaps):
    """Maps over the same columns, one below the other."""

    def __post_init__(self) -> None:
        _SeveralMaps.__post_init__(self)
        if len({p.shape[1] for p in self.parts}) > 1:
            raise WorkloadError("the maps of a stack are over the same cells")

    @property
    def shape(self) -> tuple[int, int]:
        return (sum(p.shape[0] for p in self.parts), self.parts[0].shape[1])

    def apply(self, vectors: Numbers) -> Numbers:
        return np.concatenate([p.apply(vectors) for p in self.parts])

    def entries(self) -> Numbers:
        return np.concatenate([p.entries() for p in self.parts])

    def column_sums(self, power: int) -> Numbers:
        return reduce(np.add, [p.column_sums(power) for p in self.parts])

    def gram(self) -> Numbers:
        return reduce(np.add, self.roomy(p.gram() for p in self.parts))


@storable
@dataclass(frozen=True, slots=True, repr=False)
class KroneckerMap(_SeveralMaps):
    """The Kronecker product of its factors; the last factor runs fastest, in rows and in columns."""

    @property
    def shape(self) -> tuple[int, int]:
        return (math.prod(f.shape[0] for f in self.parts), math.prod(f.shape[1] for f in self.parts))

    @property
    def max_abs(self) -> int:
        return math.prod(f.max_abs for f in self.parts)

    def apply(self, vectors: Numbers) -> Numbers:
        table = vectors.reshape(*(f.shape[1] for f in self.parts), vectors.shape[1])
        for axis, factor in enumerate(self.parts):
            table = factor.along(table, axis)
        return table.reshape(self.shape[0], vectors.shape[1])

    def entries(self) -> Numbers:
        return reduce(np.kron, [f.entries() for f in self.parts])

    def column_sums(self, power: int) -> Numbers:
        return reduce(np.kron, [f.column_sums(power) for f in self.parts])

    def gram(self) -> Numbers:
        return reduce(np.kron, self.roomy(f.gram() for f in self.parts))
