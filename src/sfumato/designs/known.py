"""Tables that are public already: they are used in reconstruction and not measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import PlanError
from sfumato.ground.codec import storable
from sfumato.operators import Grouping, Identity, LinearOperator
from sfumato.operators.base import FloatArray

__all__ = ["Known", "KnownGroups"]


@storable
@dataclass(frozen=True, eq=False)
class Known:
    """A marginal table known from elsewhere: ascending positions of its attributes, and its counts."""

    axes: tuple[int, ...]
    counts: FloatArray

    def __post_init__(self) -> None:
        counts = np.array(self.counts, dtype=np.float64)
        counts.flags.writeable = False
        if counts.ndim != len(self.axes) or list(self.axes) != sorted(set(self.axes)):
            raise PlanError("a known table has one axis per attribute, in the domain's order")
        object.__setattr__(self, "axes", tuple(self.axes))
        object.__setattr__(self, "counts", counts)


@storable
@dataclass(frozen=True, eq=False)
class KnownGroups:
    """How many records the groups of an attribute's cells have: its position, (cells,) the group of each, and counts.

    Records are replaced within these groups alone, so that their totals are the same for all neighbours.
    """

    axis: int
    codes: NDArray[np.int64]
    counts: FloatArray

    def __post_init__(self) -> None:
        if self.counts.shape != (int(self.codes.max()) + 1,) or int(self.codes.min()) < 0:
            raise PlanError("there is one known total for every group of cells")

    @property
    def axes(self) -> tuple[int, ...]:
        """The attributes whose joint table is known: none, so that of all records alone."""
        return ()

    @property
    def operator(self) -> LinearOperator:
        """The sums over groups, (groups, cells): the cells themselves where each is a group."""
        groups, cells = len(self.counts), len(self.codes)
        plain = groups == cells and np.array_equal(self.codes, np.arange(cells))
        return Identity(cells) if plain else Grouping(self.codes, groups)

    def settles(self, factor: LinearOperator) -> bool:
        """Whether each sum that a factor makes is one of these totals, or of several."""
        if not isinstance(factor, Identity | Grouping) or factor.shape[1] != len(self.codes):
            return False
        codes = factor.codes if isinstance(factor, Grouping) else np.arange(len(self.codes))
        first = np.unique(self.codes, return_index=True)[1]
        return np.array_equal(codes[first][self.codes], codes)
