"""Maps of the closed set that are made of maps, and where maps are applied.

That is the marginal table of one set of attributes, or those of a long list of sets.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato._util.codec import distinct_rows, storable
from sfumato.errors import WorkloadError
from sfumato.maps.base import INT64, IntArray, LinearMap, Map, Numbers, exact_matmul, own_array
from sfumato.maps.explicit import AlikeMap

_LONG_BLOCK = 256  # rows: above, one copy a block is faster than an index for every row
_MAX_MULTIPLE = 2**62  # multiples are 63-bit integers, with a bit to spare


@storable
@dataclass(frozen=True, slots=True)
class BlockMap:
    """A Kronecker product of factors, each over the cells of one group of attributes.

    Attributes in no group are summed out. A group without attributes has one cell: the total.
    """

    groups: tuple[tuple[str, ...], ...]
    factors: tuple[LinearMap, ...]
    KIND: ClassVar[type[LinearMap]] = Map

    def __post_init__(self) -> None:
        for group in self.groups:
            if isinstance(group, str) or not all(isinstance(name, str) for name in group):
                raise WorkloadError(f"a block's groups are lists of attribute names, not {group!r}")
        if not all(isinstance(f, self.KIND) for f in self.factors):
            raise WorkloadError("a block's factors are operators")
        object.__setattr__(self, "groups", tuple(tuple(g) for g in self.groups))
        object.__setattr__(self, "factors", tuple(self.factors))
        if len(self.groups) != len(self.factors):
            raise WorkloadError("a block needs one factor per group of attributes")
        if len(set(self.attributes)) != len(self.attributes):
            raise WorkloadError(f"an attribute is named twice in {self.attributes}")

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes of the marginal table, in the order of its axes."""
        return tuple(a for group in self.groups for a in group)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return math.prod(f.shape[0] for f in self.factors)

    @property
    def cells(self) -> int:
        """Number of cells of the marginal table."""
        return math.prod(f.shape[1] for f in self.factors)

    def check(self, sizes: Mapping[str, int]) -> None:
        """Refuse factors that do not fit the attributes' sizes."""
        for group, factor in zip(self.groups, self.factors, strict=True):
            _check_columns(group, factor, sizes)

    def lowered(self) -> BlockMap:
        """The same block of maps of the closed set. Raises PlanError or WorkloadError for what is in none."""
        return self if type(self) is BlockMap else BlockMap(self.groups, tuple(f.lowered() for f in self.factors))

    def apply(self, table: Numbers) -> Numbers:
        """The table's cells (C order, any shape) -> (rows,), int64 in modular arithmetic where the factors are."""
        out = table.reshape([f.shape[1] for f in self.factors])
        for axis, factor in enumerate(self.factors):
            out = factor.along(out, axis)
        return out.reshape(-1)


@storable
@dataclass(frozen=True, eq=False, repr=False)
class FamilyMap:
    """For every row of `sets` the Kronecker product of its attributes' factors, times that set's multiple.

    sets: (count, order) positions in `names`, ascending within a row, no row twice; order 0 is the total.
    multiples: (count,) positive integers, all 1 unless given. The rows of the blocks follow each other in
    the order of the sets.

    A hundred attributes have 161,700 three-way tables. As one object each they would take minutes and gigabytes
    before a row is read; as an array of positions they take a megabyte.
    """

    names: tuple[str, ...]
    factors: tuple[LinearMap, ...]
    sets: NDArray[np.int32]
    multiples: IntArray | None = None
    KIND: ClassVar[type[LinearMap]] = Map

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))
        object.__setattr__(self, "factors", tuple(self.factors))
        if not all(isinstance(n, str) for n in self.names) or not all(isinstance(f, self.KIND) for f in self.factors):
            raise WorkloadError("a family has names of attributes, and operators as factors")
        if len(self.factors) != len(self.names) or len(set(self.names)) != len(self.names):
            raise WorkloadError("a family needs one factor per attribute, each attribute named once")
        sets = _read_family_integers(self.sets, "sets")
        if sets.ndim != 2 or not len(sets):
            raise WorkloadError(f"a family's sets are an array (count, order), not of shape {sets.shape}")
        inside = sets.size == 0 or (int(sets.min()) >= 0 and int(sets.max()) < len(self.names))
        if not inside or not np.all(np.diff(sets, axis=1) > 0):
            raise WorkloadError("a family's sets are ascending positions of its attributes")
        if len(distinct_rows(sets, len(self.names))[0]) != len(sets):
            raise WorkloadError("a family names a set of attributes twice")
        object.__setattr__(self, "sets", sets.astype(np.int32))
        if self.multiples is not None:
            multiples = _read_family_integers(self.multiples, "multiples")
            if multiples.shape != (len(sets),) or int(multiples.min()) < 1 or int(multiples.max()) >= _MAX_MULTIPLE:
                raise WorkloadError("a family needs one positive multiple below 2^62 per set")
            object.__setattr__(self, "multiples", multiples.astype(np.int64))

    def __len__(self) -> int:
        return len(self.sets)

    @property
    def order(self) -> int:
        """Number of attributes in every set."""
        return self.sets.shape[1]

    @functools.cached_property
    def used(self) -> NDArray[np.intp]:
        """Positions of the attributes that some set names, ascending."""
        return np.flatnonzero(np.bincount(self.sets.reshape(-1), minlength=len(self.names)))

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that some set names."""
        return tuple(self.names[i] for i in self.used.tolist())

    @functools.cached_property
    def rows_each(self) -> IntArray:
        """(count,) rows of every block. Raises WorkloadError where they do not fit 63 bits."""
        lengths = np.array([f.shape[0] for f in self.factors], dtype=np.int64)
        # doubles tell products up to a few roundings
        if float(lengths.astype(np.float64)[self.sets].prod(axis=1).max()) >= INT64 * (1 - 2.0**-40):
            raise WorkloadError("a table of a family has more cells than 63 bits can number")
        return lengths[self.sets].prod(axis=1, dtype=np.int64)

    @property
    def rows(self) -> int:
        """Number of rows of all blocks together."""
        each, counts = np.unique(self.rows_each, return_counts=True)
        return sum(a * b for a, b in zip(each.tolist(), counts.tolist(), strict=True))

    @functools.cached_property
    def starts(self) -> IntArray:
        """(count + 1,) where the rows of every block begin, and where the last ends."""
        return np.concatenate([[0], np.cumsum(self.rows_each)])

    def check(self, sizes: Mapping[str, int]) -> None:
        """Refuse factors that do not fit the attributes' sizes."""
        for i in self.used.tolist():
            _check_columns((self.names[i],), self.factors[i], sizes)

    def lowered(self) -> FamilyMap:
        """The same family of maps of the closed set. Raises PlanError or WorkloadError for what is in none."""
        used = frozenset(self.used.tolist())
        known: dict[object, Map] = {}
        factors: list[Map] = []
        for i, f in enumerate(self.factors):
            # what no set names need not be in it
            key = (i in used, f if f.exchangeable else id(f))
            if key not in known:
                known[key] = f.lowered() if i in used else AlikeMap(f.shape[1])
            factors.append(known[key])
        return FamilyMap(self.names, tuple(factors), self.sets, self.multiples)

    def kinds(self) -> NDArray[np.intp]:
        """(attributes,) which factors are the same."""
        known: dict[object, int] = {}
        keys = [f if f.exchangeable else id(f) for f in self.factors]
        return np.array([known.setdefault(k, len(known)) for k in keys], dtype=np.intp)

    def alike(self, chosen: ArrayLike | None = None) -> list[NDArray[np.intp]]:
        """Which of the chosen sets (of all) have the same factors: positions in `chosen`, ascending."""
        sets = self.sets if chosen is None else self.sets[np.asarray(chosen)]
        if self.order == 0:
            return [np.arange(len(sets))]
        _, group = np.unique(self.kinds()[sets], axis=0, return_inverse=True)
        group = group.reshape(-1)
        order = np.argsort(group, kind="stable")
        return np.split(order, np.flatnonzero(np.diff(group[order])) + 1)

    def apply(self, chosen: NDArray[np.intp], tables: Numbers) -> Numbers:
        """What the chosen blocks, of the same factors, make of their tables.

        (c, n_1, ..., n_order) -> (c, rows). int64 in modular arithmetic where the factors are integral.
        """
        out = tables
        for axis, i in enumerate(self.sets[chosen[0]].tolist()):
            out = self.factors[i].along(out, axis + 1)
        out = out.reshape(len(chosen), -1)
        if self.multiples is not None:
            out = out * self.multiples[chosen, None]
        return out

    def place(self, chosen: NDArray[np.intp], rows: Numbers, into: Numbers) -> None:
        """Put the rows (c, rows each) of the chosen blocks where they belong among those of all, (rows,)."""
        starts, width = self.starts[chosen], rows.shape[1]
        if np.all(np.diff(starts) == width):
            into[starts[0] : starts[-1] + width] = rows.reshape(-1)
        elif self._uniform:
            into.reshape(len(self), width)[chosen] = rows
        elif width > _LONG_BLOCK:
            for start, row in zip(starts.tolist(), rows, strict=True):
                into[start : start + width] = row
        else:
            into[starts[:, None] + np.arange(width)] = rows

    @functools.cached_property
    def _uniform(self) -> bool:
        return bool((self.rows_each == self.rows_each[0]).all())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self):,} sets of {self.order} attributes>"


def _read_family_integers(given: ArrayLike | Sequence[Sequence[int]], what: str) -> IntArray:
    array = np.asarray(given)
    if array.size and array.dtype.kind not in "iu":
        raise WorkloadError(f"a family's {what} are whole numbers, not {array.dtype}")
    return array.astype(np.int64)


def _check_columns(group: tuple[str, ...], factor: LinearMap, sizes: Mapping[str, int]) -> None:
    """Refuse a factor that does not fit the sizes of its attributes."""
    unknown = [a for a in group if a not in sizes]
    if unknown:
        raise WorkloadError(f"no attribute is called {', '.join(unknown)}; there are {', '.join(sizes)}")
    cells = math.prod(sizes[a] for a in group)
    if factor.shape[1] != cells:
        raise WorkloadError(
            f"an operator over {', '.join(group) or 'the total'} needs {cells:,} columns, not {factor.shape[1]:,}"
        )


def read_map_parts(parts: object) -> tuple[Map, ...]:
    given = tuple(parts) if isinstance(parts, (tuple, list)) else ()
    if not given or not all(isinstance(p, Map) for p in given):
        raise WorkloadError("a map is made of maps of the closed set")
    return given


class CompositeMap(Map):
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


@storable
@dataclass(frozen=True, slots=True, repr=False)
class MultipleMap(CompositeMap):
    """k times a map, k any integer."""

    map: Map
    factor: int

    def __post_init__(self) -> None:
        read_map_parts([self.map])
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
class MergedMap(CompositeMap):
    """A map after a partition of the cells: cell j counts in cell codes_j of `map`, or in none where it is -1.

    Column j is column codes_j of `map`, or zero. Levels of a hierarchy, marginals, cells that are not counted.
    """

    map: Map
    codes: IntArray

    def __post_init__(self) -> None:
        read_map_parts([self.map])
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
