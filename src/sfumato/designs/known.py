"""Tables that are public already: they are used in reconstruction and not measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato.errors import PlanError
from sfumato.ground.codec import storable
from sfumato.operators.base import FloatArray

__all__ = ["Known"]


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
