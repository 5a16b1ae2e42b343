"""What crosses the wall for universes of keys too large to list. The wall imports it, and so it imports no plan."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InvalidInput
from sfumato.ground.codec import storable
from sfumato.privacy.noise import NoiseLaw
from sfumato.sketches import KeyMap
from sfumato.sketches.field import Words

__all__ = ["KeyMeasurement"]


@storable
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KeyMeasurement:
    """A map of the counts by key with one draw of noise per row, after the keys that a stability histogram showed.

    `heavy` are those keys as sorted field elements, `heavy_counts` their noisy counts; the map was applied to what
    these leave over. Publishable.
    """

    map: KeyMap
    values: NDArray[np.int64]
    noise: NoiseLaw
    heavy: Words
    heavy_counts: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.values.dtype != np.int64 or self.values.shape != (self.map.rows,):
            raise InvalidInput("measured values are int64, one per row of their map")
        if self.heavy.dtype != np.uint64 or self.heavy_counts.dtype != np.int64:
            raise InvalidInput("shown keys are field elements with int64 counts")
        if (
            self.heavy.ndim != 1
            or self.heavy.shape != self.heavy_counts.shape
            or (self.heavy[1:] <= self.heavy[:-1]).any()
        ):
            raise InvalidInput("shown keys are sorted, each once, with one count each")

    def __repr__(self) -> str:
        return f"<KeyMeasurement of {len(self.values):,} noisy integers and {len(self.heavy):,} shown keys>"
