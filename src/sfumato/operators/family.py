"""Many blocks as two arrays: the same operators over a long list of attribute sets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sfumato.ground.codec import storable
from sfumato.maps import FamilyMap
from sfumato.maps.linear import Linear
from sfumato.operators.base import LinearOperator
from sfumato.operators.basic import Identity
from sfumato.operators.compose import Scaled
from sfumato.operators.marginal import Block

__all__ = ["Family"]


@storable
@dataclass(frozen=True, eq=False, repr=False)
class Family(FamilyMap):
    """For every row of `sets` the Kronecker product of its attributes' operators, times that set's multiple."""

    factors: tuple[LinearOperator, ...]
    KIND: ClassVar[type[Linear]] = LinearOperator

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
