"""Maps of the closed set that are made of maps."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

import numpy as np

from sfumato._util.codec import storable
from sfumato.errors import WorkloadError
from sfumato.maps.base import INT64, IntArray, LinearMap, Map, Numbers, exact_matmul, own_array
from sfumato.maps.blocks import BlockMap

__all__ = ["CombinationMap", "KroneckerMap", "MergedMap", "MultipleMap", "StackMap"]


def _read_map_parts(parts: object) -> tuple[Map, ...]:
    given = tuple(parts) if isinstance(parts, (tuple, list)) else ()
    if not given or not all(isinstance(p, Map) for p in given):
        raise WorkloadError("a map is made of maps of the closed set")
    return given


class _CompositeMap(Map):
    """What follows from what a map is made of: signs, and the largest entry where none is multiplied."""

    __slots__ = ()

    @property
    @abstractmethod
    def inside(self) -> tuple[Map, ...]:
        """What it is made of."""

    @property
    def binary(self) -> bool:
        return all(p.binary for p in self.inside)

    @property
    def nonnegative(self) -> bool:
        return all(p.nonnegative for p in self.inside)

    @property
    def max_abs(self) -> int:
        return max(p.max_abs for p in self.inside)


@dataclass(frozen=True, slots=True, repr=False)
class _SeveralMaps(_CompositeMap):
    """Made of several maps."""

    parts: tuple[Map, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", _read_map_parts(self.parts))

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


@storable
@dataclass(frozen=True, slots=True, repr=False)
class MultipleMap(_CompositeMap):
    """k times a map, k any integer."""

    map: Map
    factor: int

    def __post_init__(self) -> None:
        _read_map_parts([self.map])
        if type(self.factor) is not int:
            raise WorkloadError(f"a map is multiplied by an integer, not by {self.factor!r}")

    @property
    def inside(self) -> tuple[Map, ...]:
        return (self.map,)

    @property
    def shape(self) -> tuple[int, int]:
        return self.map.shape

    @property
    def exchangeable(self) -> bool:
        return self.map.exchangeable

    @property
    def binary(self) -> bool:
        return self.factor == 1 and self.map.binary

    @property
    def nonnegative(self) -> bool:
        return self.factor >= 0 and self.map.nonnegative

    @property
    def max_abs(self) -> int:
        return abs(self.factor) * self.map.max_abs

    def apply(self, vectors: Numbers) -> Numbers:
        # the factor modulo 2^64, as a number of int64
        return self.map.apply(vectors) * ((self.factor + INT64) % (2 * INT64) - INT64)

    def entries(self) -> Numbers:
        # any factor of a map of zeros fits
        return (self.map.entries().astype(object) * self.factor).astype(np.int64)

    def column_sums(self, power: int) -> Numbers:
        return self.map.column_sums(power) * abs(self.factor) ** power

    def gram(self) -> Numbers:
        (gram,) = self.roomy([self.map.gram()])
        return gram.astype(object) * self.factor**2 if self.factor**2 >= INT64 else gram * self.factor**2


@storable
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class MergedMap(_CompositeMap):
    """A map after a partition of the cells: cell j counts in cell codes_j of `map`, or in none where it is -1.

    Column j is column codes_j of `map`, or zero. Levels of a hierarchy, marginals, cells that are not counted.
    """

    map: Map
    codes: IntArray

    def __post_init__(self) -> None:
        _read_map_parts([self.map])
        object.__setattr__(self, "codes", own_array(self.codes, "merged cells"))
        if self.codes.ndim != 1 or not self.codes.size:
            raise WorkloadError("merged cells are a list of numbers, one for every cell")
        if int(self.codes.min()) < -1 or int(self.codes.max()) >= self.map.shape[1]:
            raise WorkloadError(f"merged cells are numbers from -1 to {self.map.shape[1] - 1:,}")

    @property
    def inside(self) -> tuple[Map, ...]:
        return (self.map,)

    @property
    def shape(self) -> tuple[int, int]:
        return (self.map.shape[0], len(self.codes))

    def apply(self, vectors: Numbers) -> Numbers:
        codes, merged = self.codes, np.zeros((self.map.shape[1], vectors.shape[1]), dtype=np.int64)
        if int(codes[0]) < 0 or (np.diff(codes) < 0).any():
            order = np.argsort(codes, kind="stable")[np.count_nonzero(codes < 0) :]
            codes, vectors = codes[order], vectors[order]
        if len(codes):
            starts = np.concatenate([[0], np.flatnonzero(np.diff(codes)) + 1])
            merged[codes[starts]] = np.add.reduceat(vectors, starts, axis=0)
        return self.map.apply(merged)

    def entries(self) -> Numbers:
        return np.where(self.codes >= 0, self.map.columns()[:, self.codes], 0)

    def column_sums(self, power: int) -> Numbers:
        return np.where(self.codes >= 0, self.map.column_sums(power)[self.codes], 0)

    def gram(self) -> Numbers:
        # a zero of Python: to one of numpy no integer beyond int64 can be added
        return np.pad(self.map.gram(), (0, 1), constant_values=np.array(0, object))[np.ix_(self.codes, self.codes)]


@storable
@dataclass(frozen=True, eq=False, repr=False)
class CombinationMap:
    """C Q: `matrix` C (l, r) of whole numbers after all rows of some blocks stacked, Q (r, cells).

    The blocks may be over different attributes: each is counted on the table of its own, whatever the joint cells are.
    """

    blocks: tuple[BlockMap, ...]
    matrix: IntArray
    KIND: ClassVar[type[BlockMap]] = BlockMap

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(self.blocks))
        object.__setattr__(self, "matrix", own_array(self.matrix, "coefficients"))
        if not self.blocks or not all(isinstance(b, self.KIND) for b in self.blocks):
            raise WorkloadError("a combination is made of blocks")
        if self.matrix.ndim != 2 or not len(self.matrix) or self.matrix.shape[1] != sum(b.rows for b in self.blocks):
            raise WorkloadError("a combination has one coefficient for each row of its blocks")

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that some block holds."""
        return tuple(dict.fromkeys(a for b in self.blocks for a in b.attributes))

    @property
    def factors(self) -> tuple[LinearMap, ...]:
        """The factors of all its blocks."""
        return tuple(f for b in self.blocks for f in b.factors)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.matrix)

    def lowered(self) -> CombinationMap:
        """The same sums of maps of the closed set. Raises PlanError or WorkloadError for what is in none."""
        return CombinationMap(tuple(b.lowered() for b in self.blocks), self.matrix)

    def apply(self, sums: Numbers) -> Numbers:
        """C (Q x) from Q x, (r,) -> (l,); int64 in modular arithmetic."""
        return np.ascontiguousarray(exact_matmul(self.matrix, sums[:, None])[:, 0])
