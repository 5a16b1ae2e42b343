"""Cells of tables, by positions of their attributes, that no record can be in, and tables that are 0 there."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.domain.core import Domain
from sfumato.domain.impossible import Tied, joined
from sfumato.estimate.margins import Incidence, Layout, collect, lift
from sfumato.ground.codec import storable
from sfumato.operators.base import FloatArray

__all__ = ["Zeros", "emptied"]

_LEFT = 1e-12  # of the largest cell, what may be left of a cell: far below one record
_MOST = 500  # steps; in practice some tens


@storable
@dataclass(frozen=True, slots=True, eq=False)
class Zeros:
    """What a domain declares impossible, of the attributes named: positions below are among these names.

    sizes: cells of every attribute; tied: groups of attributes with those of their joint cells that can be.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    tied: tuple[Tied, ...]

    @classmethod
    def of(cls, domain: Domain, names: Sequence[str]) -> Zeros | None:
        """Of these attributes of a domain; None where none of their cells is impossible."""
        found = cls(tuple(names), domain.sizes(names), domain.tied)
        return None if joined(domain.tied, found.names) is None else found

    def possible(self, axes: Sequence[int]) -> NDArray[np.bool_] | None:
        """Which cells of the table over positions can hold a record, shaped by them; None where all can."""
        mask = joined(self.tied, [self.names[a] for a in axes])
        return None if mask is None else np.broadcast_to(mask, [self.sizes[a] for a in axes])

    def allowed(self) -> list[tuple[tuple[int, ...], NDArray[np.bool_]]]:
        """Of every group its positions, ascending, and which of their joint cells can hold a record."""
        ties = (tuple(i for i, a in enumerate(self.names) if a in g.attributes) for g in self.tied)
        found = ((axes, self.possible(axes)) for axes in ties)
        return [(axes, mask) for axes, mask in found if mask is not None]

    def even(self, axes: Sequence[int]) -> FloatArray:
        """Shares of the cells over positions where every possible record over all names is as frequent as any other.

        Positive wherever a record can be. Tables of different positions agree.
        """
        named = [self.names[a] for a in axes]
        parts: list[FloatArray] = []
        for group in self.tied:
            own = [a for a in group.attributes if a in self.names]
            if not set(own) & set(named):
                continue
            drop = tuple(i for i, a in enumerate(group.attributes) if a not in own)
            counts = group.allowed.any(axis=drop).astype(np.float64)
            table = counts.sum(axis=tuple(i for i, a in enumerate(own) if a not in named)) / counts.sum()
            kept = [a for a in own if a in named]
            turned = table.transpose([kept.index(a) for a in named if a in kept])
            parts.append(np.expand_dims(turned, tuple(i for i, a in enumerate(named) if a not in kept)))
        tied = {a for g in self.tied for a in g.attributes}
        alone = math.prod(self.sizes[a] for a in axes if self.names[a] not in tied)
        found = functools.reduce(np.multiply, parts, np.array(1.0 / alone))
        return np.broadcast_to(found, [self.sizes[a] for a in axes])


def emptied(closure: Layout, inc: Incidence, r: FloatArray, held: NDArray[np.bool_], inverse: FloatArray) -> FloatArray:
    """The components nearest to r whose tables are 0 in the cells `held`, flat.

    inverse: one over the weights of the norm; 0 of what may not move. By conjugate gradients on the multipliers of
    these cells, which say the same several times but never what contradicts.
    """
    tables = lift(inc, r)
    away, pull = np.where(held, tables, 0.0), np.zeros(len(tables))
    along, square, enough = away, float(away @ away), _LEFT * float(np.abs(tables).max(initial=0.0))
    for _ in range(_MOST):
        if float(np.abs(away).max(initial=0.0)) <= enough:
            break
        change = np.where(held, lift(inc, inverse * collect(closure, inc, along)), 0.0)
        length = square / float(along @ change)
        pull, away = pull + length * along, away - length * change
        before, square = square, float(away @ away)
        along = away + square / before * along
    return r - inverse * collect(closure, inc, pull)
