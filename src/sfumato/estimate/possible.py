"""What some table could have held, in the forms that projections find it; each answers further questions."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.strategy import marginalise
from sfumato.errors import NotAnswerable
from sfumato.ground.codec import storable
from sfumato.operators import Block
from sfumato.operators.base import FloatArray

__all__ = ["CellCounts", "Medians", "PairMoments", "Possible", "RecordCounts", "TableCounts"]


class Possible(ABC):
    """Nonnegative counts from which marginal tables are read."""

    @abstractmethod
    def table(self, attributes: Sequence[str]) -> FloatArray:
        """Counts shaped by the attributes in that order. Raises NotAnswerable for a table that is not held."""

    def answer(self, block: Block) -> FloatArray:
        """(rows,) answers to a query block."""
        return np.asarray(marginalise(self.table(block.attributes), block.attributes, block), dtype=np.float64)


def _summed(table: FloatArray, held: Sequence[str], wanted: Sequence[str]) -> FloatArray:
    """A table over `held` summed to `wanted`, its axes in that order."""
    drop = tuple(i for i, a in enumerate(held) if a not in wanted)
    kept = [a for a in held if a in wanted]
    return table.sum(axis=drop).transpose([kept.index(a) for a in wanted])


@storable
@dataclass(frozen=True, slots=True, eq=False)
class CellCounts(Possible):
    """One table over some attributes: values shaped by them, none negative."""

    attributes: tuple[str, ...]
    values: FloatArray

    def table(self, attributes: Sequence[str]) -> FloatArray:
        _held(attributes, [self.attributes])
        return _summed(self.values, self.attributes, attributes)


@storable
@dataclass(frozen=True, slots=True, eq=False)
class TableCounts(Possible):
    """Several nonnegative tables that agree wherever they overlap, which one table need not have given."""

    attributes: tuple[tuple[str, ...], ...]
    values: tuple[FloatArray, ...]

    def table(self, attributes: Sequence[str]) -> FloatArray:
        least = _held(attributes, self.attributes, [v.size for v in self.values])
        return _summed(self.values[least], self.attributes[least], attributes)


@storable
@dataclass(frozen=True, slots=True, eq=False)
class RecordCounts(Possible):
    """Weighted records: `codes` (r, d) cells of the named attributes, `weights` (r,) how many of each."""

    attributes: tuple[str, ...]
    sizes: tuple[int, ...]
    codes: NDArray[np.int32]
    weights: FloatArray

    def table(self, attributes: Sequence[str]) -> FloatArray:
        _held(attributes, [self.attributes])
        axes = [self.attributes.index(a) for a in attributes]
        shape = tuple(self.sizes[i] for i in axes)
        if not axes:
            return np.array(self.weights.sum())
        places = np.ravel_multi_index(tuple(self.codes[:, i] for i in axes), shape)
        counts = np.bincount(places, self.weights, minlength=math.prod(shape))
        return counts.astype(np.float64).reshape(shape)


@storable
@dataclass(frozen=True, slots=True, eq=False)
class Medians(Possible):
    """Several tables over the same attributes: every answer, and every cell, is the median of theirs.

    Answers are near one another as those of the tables are, but a sum of cells need not be the sum of their medians.
    """

    members: tuple[CellCounts, ...]

    def table(self, attributes: Sequence[str]) -> FloatArray:
        return np.asarray(np.median([m.table(attributes) for m in self.members], axis=0), dtype=np.float64)

    def answer(self, block: Block) -> FloatArray:
        """(rows,) the medians of the members' answers."""
        return np.asarray(np.median([m.answer(block) for m in self.members], axis=0), dtype=np.float64)


@storable
@dataclass(frozen=True, slots=True, eq=False)
class PairMoments(Possible):
    """Second moments of y = (1, x), x in {-1, 1}^d, times the total: a symmetric (d + 1, d + 1) array.

    The second cell of an attribute is x = 1. The tables of at most two attributes follow from them.
    """

    attributes: tuple[str, ...]
    values: FloatArray

    def table(self, attributes: Sequence[str]) -> FloatArray:
        _held(attributes, [self.attributes])
        if len(attributes) > 2:
            raise NotAnswerable(f"pairs of attributes are held, not the table of {', '.join(attributes)}")
        total, signs = self.values[0, 0], np.array([-1.0, 1.0])
        axes = [1 + self.attributes.index(a) for a in attributes]
        if not axes:
            return np.array(total)
        first = signs * self.values[0, axes[0]]
        if len(axes) == 1:
            return (total + first) / 2
        second, both = signs * self.values[0, axes[1]], np.outer(signs, signs) * self.values[axes[0], axes[1]]
        return (total + first[:, None] + second + both) / 4


def _held(wanted: Sequence[str], held: Sequence[tuple[str, ...]], cells: Sequence[int] | None = None) -> int:
    """The position of the smallest table that holds all the attributes."""
    found = [i for i, names in enumerate(held) if set(wanted) <= set(names)]
    if not found:
        raise NotAnswerable(
            f"the projection holds no table with {', '.join(wanted)}; ask the unprojected release, or project a "
            "workload that asks for it"
        )
    return min(found, key=lambda i: 0 if cells is None else cells[i])
