"""Linear maps on marginal tables: the unit of workloads, strategies and measurements."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sfumato._util.codec import storable
from sfumato.errors import WorkloadError
from sfumato.maps import BlockMap, CombinationMap, FamilyMap, Map, MergedMap
from sfumato.maps.base import LinearMap
from sfumato.operators.base import FloatArray, Identity, LinearOperator, Numbers, check_length
from sfumato.operators.compose import Kronecker, Scaled
from sfumato.operators.explicit import Dense


@storable
@dataclass(frozen=True, slots=True)
class Block(BlockMap):
    """A Kronecker product of operators, each over the cells of one group of attributes.

    Attributes in no group are summed out. A group without attributes has one cell: the total.
    """

    factors: tuple[LinearOperator, ...]
    KIND: ClassVar[type[LinearMap]] = LinearOperator

    @property
    def operator(self) -> LinearOperator:
        """The map from the marginal's cells (C order) to the rows."""
        if not self.factors:
            return Identity(1)
        return self.factors[0] if len(self.factors) == 1 else Kronecker(self.factors)

    def by_attribute(self) -> dict[str, LinearOperator] | None:
        """One factor per attribute, or None where a factor joins several attributes."""
        if any(len(g) > 1 for g in self.groups):
            return None
        return {g[0]: f for g, f in zip(self.groups, self.factors, strict=True) if g}


@storable
@dataclass(frozen=True, slots=True, repr=False)
class OnMarginal(LinearOperator):
    """An operator over some axes of a full table, all other axes summed out. Columns: the full table in C order."""

    sizes: tuple[int, ...]
    axes: tuple[int, ...]
    operator: LinearOperator

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(self.sizes))
        object.__setattr__(self, "axes", tuple(self.axes))
        for size in self.sizes:
            check_length(size, "an axis")
        if len(set(self.axes)) != len(self.axes) or not set(self.axes) <= set(range(len(self.sizes))):
            raise WorkloadError(f"axes must be distinct numbers below {len(self.sizes)}, not {self.axes}")
        cells = math.prod(self.sizes[a] for a in self.axes)
        if not isinstance(self.operator, LinearOperator) or self.operator.shape[1] != cells:
            raise WorkloadError(f"the marginal has {cells:,} cells; {self.operator!r} does not fit")

    @property
    def shape(self) -> tuple[int, int]:
        return (self.operator.shape[0], math.prod(self.sizes))

    @property
    def integral(self) -> bool:
        return self.operator.integral

    @property
    def binary(self) -> bool:
        return self.operator.binary

    @property
    def max_abs(self) -> float:
        return self.operator.max_abs

    def apply(self, vectors: Numbers) -> Numbers:
        count = vectors.shape[1]
        table = vectors.reshape(*self.sizes, count)
        rest = tuple(i for i in range(len(self.sizes)) if i not in self.axes)
        marginal = table.sum(axis=rest) if rest else table
        kept = sorted(self.axes)
        order = [kept.index(a) for a in self.axes] + [len(kept)]
        return self.operator.apply(marginal.transpose(order).reshape(self.operator.shape[1], count))

    def _spread(self, inner: Numbers) -> Numbers:
        """(cells of the marginal, c) -> (columns, c): each cell of the table gets what its marginal cell has."""
        count = inner.shape[1]
        table = inner.reshape(*(self.sizes[a] for a in self.axes), count)
        table = np.moveaxis(table, range(len(self.axes)), np.argsort(np.argsort(self.axes)))
        full = [n if i in self.axes else 1 for i, n in enumerate(self.sizes)]
        return np.broadcast_to(table.reshape(*full, count), (*self.sizes, count)).reshape(self.shape[1], count)

    def apply_transpose(self, vectors: Numbers) -> Numbers:
        return self._spread(self.operator.apply_transpose(vectors))

    def rows(self, start: int, stop: int) -> FloatArray:
        self.check_rows(start, stop)
        return self._spread(self.operator.rows(start, stop).T).T

    def column_sums(self, power: int) -> Numbers:
        return self._spread(self.operator.column_sums(power)[:, None])[:, 0]

    def row_sums(self, power: int) -> FloatArray:
        rest = math.prod(n for i, n in enumerate(self.sizes) if i not in self.axes)
        return self.operator.row_sums(power) * float(rest)

    def lowered(self) -> Map:
        inner = self.operator.lowered()
        return MergedMap(inner, self._spread(np.arange(inner.shape[1])[:, None])[:, 0])


@storable
@dataclass(frozen=True, eq=False, repr=False)
class Family(FamilyMap):
    """For every row of `sets` the Kronecker product of its attributes' operators, times that set's multiple."""

    factors: tuple[LinearOperator, ...]
    KIND: ClassVar[type[LinearMap]] = LinearOperator

    def multiple(self, i: int) -> int:
        """What block i is multiplied by."""
        return 1 if self.multiples is None else int(self.multiples[i])

    @property
    def max_abs(self) -> int:
        """An upper bound on the largest absolute entry of any block, tight to a few roundings."""
        tops = np.array([float(f.max_abs) for f in self.factors])[self.sets].prod(axis=1)
        largest = float((tops if self.multiples is None else tops * self.multiples).max())
        return math.ceil(largest * (1 + 2.0**-40)) if largest > 2.0**50 else math.ceil(largest)

    def set_names(self, i: int) -> tuple[str, ...]:
        """The attributes of block i."""
        return tuple(self.names[a] for a in self.sets[i].tolist())

    def block(self, i: int) -> Block:
        """Block i by itself."""
        chosen = self.sets[i].tolist()
        groups = tuple((self.names[a],) for a in chosen)
        factors = tuple(self.factors[a] for a in chosen)
        if self.multiples is None:
            return Block(groups, factors)
        return Block(((), *groups), (Scaled(Identity(1), self.multiple(i)), *factors))

    def blocks(self) -> Iterator[Block]:
        """Every block by itself."""
        return (self.block(i) for i in range(len(self)))


@storable
@dataclass(frozen=True, eq=False, repr=False)
class Combination(CombinationMap):
    """C Q: `matrix` C (l, r) of whole numbers after all rows of some blocks of operators stacked, Q (r, cells)."""

    blocks: tuple[Block, ...]
    KIND: ClassVar[type[BlockMap]] = Block

    def __post_init__(self) -> None:
        held = Dense(self.matrix)
        if not held.integral:
            raise WorkloadError("the coefficients of a combination are whole numbers")
        object.__setattr__(self, "matrix", held.matrix)
        CombinationMap.__post_init__(self)
        if not all(f.integral for f in self.factors):
            raise WorkloadError("the blocks of a combination are of whole numbers")
