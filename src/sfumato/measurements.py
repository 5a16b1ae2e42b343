"""What crosses the wall: integer noisy values, the maps that were measured and the noise they carry, and choices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import deferred_field, storable
from sfumato.errors import InvalidInput
from sfumato.privacy.noise import NoiseLaw

if TYPE_CHECKING:
    from sfumato.operators import Block, Combination, Family


@storable
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Measurement:
    """y = B x + z: one int64 array per block, family or combination, z independent draws of one law. Publishable.

    `total` is the number of counted records where the neighbour relation makes it public, else None. `cut` is the
    noisy number of persons who had more rows than were counted, times its multiple, where that is measured.
    """

    blocks: tuple[Block | Family | Combination, ...]
    values: tuple[NDArray[np.int64], ...]
    noise: NoiseLaw
    total: int | None = None
    cut: int | None = deferred_field(None)

    def __post_init__(self) -> None:
        if len(self.blocks) != len(self.values):
            raise InvalidInput("a measurement needs one array per block")
        for block, value in zip(self.blocks, self.values, strict=True):
            if value.dtype != np.int64 or value.shape != (block.rows,):
                raise InvalidInput("measured values are int64 arrays, one entry per row of their block")
        if self.cut is not None and type(self.cut) is not int:
            raise InvalidInput("a noisy number of persons is a whole number")

    def __repr__(self) -> str:
        return f"<Measurement of {sum(len(v) for v in self.values):,} noisy integers>"


@storable
@dataclass(frozen=True, slots=True)
class Selection:
    """The number of one candidate that was selected, among how many. Publishable."""

    chosen: int
    among: int

    def __post_init__(self) -> None:
        if type(self.chosen) is not int or type(self.among) is not int or not 0 <= self.chosen < self.among:
            raise InvalidInput("a selection is the number of one of its candidates, counted from 0")
