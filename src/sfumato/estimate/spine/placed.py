"""Counts of the units of a tree, listed where they are not zero; every question is read off the list, at its level."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.spine.asked import read_levels
from sfumato.designs.spine.places import Place
from sfumato.errors import NotAnswerable
from sfumato.estimate.possible import Possible
from sfumato.ground.codec import storable
from sfumato.operators import Block, Identity, LinearOperator
from sfumato.operators.base import FloatArray

__all__ = ["PlacedCounts"]


@storable
@dataclass(frozen=True, eq=False)
class PlacedCounts(Possible):
    """Nonnegative counts of records by unit, the groups of the finest level that was asked, and by cell of a table.

    place: the attribute with levels, of `cells` cells; levels: their operators over these, coarse to fine. attributes,
    sizes: those of the table. unit, cell, count (r,): which unit, which cell of the table in C order, how many.
    """

    place: str
    cells: int
    levels: tuple[LinearOperator, ...]
    attributes: tuple[str, ...]
    sizes: tuple[int, ...]
    unit: NDArray[np.int32]
    cell: NDArray[np.int64]
    count: FloatArray

    @functools.cached_property
    def places(self) -> Place:
        """The tree, and how it reads factors over its attribute."""
        return Place.of(read_levels(self.levels), self.cells)

    @property
    def units(self) -> int:
        """How many groups the finest level has."""
        return self.levels[-1].shape[0]

    def table(self, attributes: Sequence[str]) -> FloatArray:
        factor = Identity(self.cells)
        sizes = dict(zip(self.attributes, self.sizes, strict=True))
        self._check(attributes)
        factors = [factor if a == self.place else Identity(sizes[a]) for a in attributes]
        shape = tuple(f.shape[0] for f in factors)
        return self.answer(Block(tuple((a,) for a in attributes), tuple(factors))).reshape(shape)

    def answer(self, block: Block) -> FloatArray:
        """(rows,) answers to a query block."""
        self._check(block.attributes)
        found = [i for i, g in enumerate(block.groups) if self.place in g]
        if found and len(block.groups[found[0]]) > 1:
            return super().answer(block)
        at = found[0] if found else None
        rest = [i for i in range(len(block.groups)) if i != at]
        names = [a for i in rest for a in block.groups[i]]
        factor = None if at is None else block.factors[at]
        if self.places.level_of(factor) > len(self.levels):
            raise NotAnswerable(f"the projection holds {self.units:,} groups of {self.place}, and nothing finer")
        out = self.places.apply(factor, functools.partial(self._nodes, names))
        out = out.reshape(len(out), *(block.factors[i].shape[1] for i in rest))
        for axis, i in enumerate(rest, 1):
            out = np.asarray(block.factors[i].along(out, axis), dtype=np.float64)
        return np.ascontiguousarray(out[0] if at is None else np.moveaxis(out, 0, at)).reshape(-1)

    def _nodes(self, names: Sequence[str], level: int) -> FloatArray:
        """(groups of a level, cells of the table over some attributes)"""
        groups = len(self.places.order[level])
        sizes = [self.sizes[self.attributes.index(a)] for a in names]
        where = self._group(level)[self.unit] * math.prod(sizes)
        if names:
            codes = np.unravel_index(self.cell, self.sizes)
            where = where + np.ravel_multi_index(tuple(codes[self.attributes.index(a)] for a in names), tuple(sizes))
        counts = np.bincount(where, self.count, minlength=groups * math.prod(sizes))
        return counts.astype(np.float64, copy=False).reshape(groups, -1)

    def _group(self, level: int) -> NDArray[np.int64]:
        """(units,) the group of every unit at a level."""
        out = np.zeros(self.units, dtype=np.int64)
        if level:
            out[self.places.codes[-1]] = self.places.codes[level - 1]
        return out

    def _check(self, wanted: Sequence[str]) -> None:
        strange = [a for a in wanted if a != self.place and a not in self.attributes]
        if strange:
            raise NotAnswerable(
                f"the projection holds no table with {', '.join(strange)}; ask the unprojected release, or project a "
                "workload that asks for it"
            )
