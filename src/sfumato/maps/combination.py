"""Sums of the rows of several blocks over different attributes: what queries that are answered together measure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sfumato.errors import WorkloadError
from sfumato.ground.codec import storable
from sfumato.maps.base import IntArray, own_array
from sfumato.maps.blocks import BlockMap
from sfumato.maps.linear import Linear, Numbers, times

__all__ = ["CombinationMap"]


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
    def factors(self) -> tuple[Linear, ...]:
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
        return np.ascontiguousarray(times(self.matrix, sums[:, None])[:, 0])
