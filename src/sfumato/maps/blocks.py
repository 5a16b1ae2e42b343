"""Where maps are applied: on the marginal table of one set of attributes, or on those of a long list of sets."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato._util.codec import distinct_rows, storable
from sfumato.errors import WorkloadError
from sfumato.maps.base import INT64, IntArray, LinearMap, Map, Numbers
from sfumato.maps.explicit import AlikeMap

__all__ = ["BlockMap", "FamilyMap"]

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
