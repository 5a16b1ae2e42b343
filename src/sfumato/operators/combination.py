"""Sums of the rows of several blocks with whole coefficients: what is measured when queries are answered together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sfumato.errors import WorkloadError
from sfumato.ground.codec import storable
from sfumato.maps import BlockMap, CombinationMap
from sfumato.operators.explicit import Dense
from sfumato.operators.marginal import Block

__all__ = ["Combination"]


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
