"""Maps of the closed set that are made of maps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

import numpy as np

from sfumato.errors import WorkloadError
from sfumato.ground.codec import storable
from sfumato.maps.base import Extremes, IntArray, Map, own_array
from sfumato.maps.linear import INT64, Numbers

__all__ = ["KroneckerMap", "MergedMap", "MultipleMap", "StackMap"]


def _parts(parts: object) -> tuple[Map, ...]:
    given = tuple(parts) if isinstance(parts, (tuple, list)) else ()
    if not given or not all(isinstance(p, Map) for p in given):
        raise WorkloadError("a map is made of maps of the closed set")
    return given


@storable
@dataclass(frozen=True, slots=True, repr=False)
class StackMap(Map):
    """Maps over the same columns, one below the other."""

    parts: tuple[Map, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", _parts(self.parts))
        if len({p.shape[1] for p in self.parts}) > 1:
            raise WorkloadError("the maps of a stack are over the same cells")

    @property
    def shape(self) -> tuple[int, int]:
        return (sum(p.shape[0] for p in self.parts), self.parts[0].shape[1])

    @property
    def binary(self) -> bool:
        return all(p.binary for p in self.parts)

    @property
    def max_abs(self) -> int:
        return max(p.max_abs for p in self.parts)

    def apply(self, vectors: Numbers) -> Numbers:
        return np.concatenate([p.apply(vectors) for p in self.parts])

    def column_sums(self, power: int) -> Numbers:
        return reduce(np.add, [p.column_sums(power) for p in self.parts])

    def extremes(self) -> Extremes:
        high, low = zip(*(p.extremes() for p in self.parts), strict=True)
        return np.concatenate(high), np.concatenate(low)

    def gram(self) -> Numbers:
        grams = [p.gram() for p in self.parts]
        fits = max(self.column_sums(2)) < INT64
        return reduce(np.add, grams if fits else [g.astype(object) for g in grams])


@storable
@dataclass(frozen=True, slots=True, repr=False)
class MultipleMap(Map):
    """k times a map, k any integer."""

    operator: Map
    factor: int

    def __post_init__(self) -> None:
        _parts([self.operator])
        if type(self.factor) is not int:
            raise WorkloadError(f"a map is multiplied by an integer, not by {self.factor!r}")

    @property
    def shape(self) -> tuple[int, int]:
        return self.operator.shape

    @property
    def exchangeable(self) -> bool:
        return self.operator.exchangeable

    @property
    def max_abs(self) -> int:
        return abs(self.factor) * self.operator.max_abs

    def apply(self, vectors: Numbers) -> Numbers:
        out = self.operator.apply(vectors)
        # the factor modulo 2^64, as a number of int64
        return out * (self.factor if out.dtype.kind == "O" else (self.factor + INT64) % (2 * INT64) - INT64)

    def column_sums(self, power: int) -> Numbers:
        return self.operator.column_sums(power) * abs(self.factor) ** power

    def extremes(self) -> Extremes:
        high, low = (e.astype(object) * self.factor for e in self.operator.extremes())
        return np.maximum(high, low), np.minimum(high, low)

    def gram(self) -> Numbers:
        fits = max(self.column_sums(2)) < INT64 and self.factor**2 < INT64
        gram = self.operator.gram()
        return (gram if fits else gram.astype(object)) * self.factor**2


@storable
@dataclass(frozen=True, slots=True, repr=False)
class KroneckerMap(Map):
    """The Kronecker product of its factors; the last factor runs fastest, in rows and in columns."""

    factors: tuple[Map, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "factors", _parts(self.factors))

    @property
    def shape(self) -> tuple[int, int]:
        return (math.prod(f.shape[0] for f in self.factors), math.prod(f.shape[1] for f in self.factors))

    @property
    def binary(self) -> bool:
        return all(f.binary for f in self.factors)

    @property
    def max_abs(self) -> int:
        return math.prod(f.max_abs for f in self.factors)

    def apply(self, vectors: Numbers) -> Numbers:
        table = vectors.reshape(*(f.shape[1] for f in self.factors), vectors.shape[1])
        for axis, factor in enumerate(self.factors):
            table = factor.along(table, axis)
        return table.reshape(self.shape[0], vectors.shape[1])

    def column_sums(self, power: int) -> Numbers:
        return reduce(np.kron, [f.column_sums(power) for f in self.factors])

    def extremes(self) -> Extremes:
        # the entries of a row are all products of one entry from a row of each factor
        dtype = np.int64 if max(self.max_abs, *(f.max_abs for f in self.factors)) < INT64 else object
        high = low = np.ones(1, dtype=dtype)
        for factor in self.factors:
            own = [e.astype(dtype) for e in factor.extremes()]
            ends = [np.multiply.outer(a, b).reshape(-1) for a in (high, low) for b in own]
            high, low = np.maximum.reduce(ends), np.minimum.reduce(ends)
        return high, low

    def gram(self) -> Numbers:
        grams = [f.gram() for f in self.factors]
        fits = max(self.column_sums(2)) < INT64
        return reduce(np.kron, grams if fits else [g.astype(object) for g in grams])


@storable
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class MergedMap(Map):
    """A map after a partition of the cells: cell j counts in cell codes_j of `operator`, or in none where it is -1.

    Column j is column codes_j of `operator`, or zero. Levels of a hierarchy, marginals, cells that are not counted.
    """

    operator: Map
    codes: IntArray

    def __post_init__(self) -> None:
        _parts([self.operator])
        object.__setattr__(self, "codes", own_array(self.codes, "merged cells"))
        if self.codes.ndim != 1 or not self.codes.size:
            raise WorkloadError("merged cells are a list of numbers, one for every cell")
        if int(self.codes.min()) < -1 or int(self.codes.max()) >= self.operator.shape[1]:
            raise WorkloadError(f"merged cells are numbers from -1 to {self.operator.shape[1] - 1:,}")

    @property
    def shape(self) -> tuple[int, int]:
        return (self.operator.shape[0], len(self.codes))

    @property
    def binary(self) -> bool:
        return self.operator.binary

    @property
    def nonnegative(self) -> bool:
        return self.operator.nonnegative

    @property
    def max_abs(self) -> int:
        return self.operator.max_abs

    def apply(self, vectors: Numbers) -> Numbers:
        merged = np.zeros((self.operator.shape[1], vectors.shape[1]), dtype=vectors.dtype)
        codes = self.codes
        if int(codes[0]) < 0 or (np.diff(codes) < 0).any():
            order = np.argsort(codes, kind="stable")
            order = order[np.searchsorted(codes[order], 0) :]
            codes, vectors = codes[order], vectors[order]
        if len(codes):
            starts = np.concatenate([[0], np.flatnonzero(np.diff(codes)) + 1])
            merged[codes[starts]] = np.add.reduceat(vectors, starts, axis=0)
        return self.operator.apply(merged)

    def column_sums(self, power: int) -> Numbers:
        return np.where(self.codes >= 0, self.operator.column_sums(power)[self.codes], 0)

    def extremes(self) -> Extremes:
        used = np.unique(self.codes)
        kept = self.operator.columns()[:, used[used >= 0]]
        if used[0] < 0:
            kept = np.concatenate([kept, np.zeros((len(kept), 1), dtype=kept.dtype)], axis=1)
        return kept.max(axis=1), kept.min(axis=1)

    def gram(self) -> Numbers:
        gram = np.pad(self.operator.gram(), (0, 1))
        return gram[np.ix_(self.codes, self.codes)]
