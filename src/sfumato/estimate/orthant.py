"""What cells can be: not negative, and 0 where no record can be. The state of a splitting, read by that."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.operators.base import FloatArray

__all__ = ["Orthant"]


@dataclass(frozen=True, slots=True, eq=False)
class Orthant:
    """Nonnegative cells of which some are 0. possible: shaped as the cells; None where none has to be 0.

    A state v holds the nearest such cells and multipliers at once: nearest - multipliers = v.
    """

    possible: NDArray[np.bool_] | None

    def nearest(self, v: FloatArray) -> FloatArray:
        """The nearest cells."""
        return self._where(np.maximum(v, 0.0), 0.0)

    def multipliers(self, v: FloatArray) -> FloatArray:
        """What holds them: not negative, of any sign where a cell has to be 0."""
        return self._where(np.maximum(-v, 0.0), -v)

    def reflected(self, v: FloatArray) -> FloatArray:
        """The nearest cells plus the multipliers."""
        return self._where(np.abs(v), -v)

    def _where(self, free: FloatArray, fixed: FloatArray | float) -> FloatArray:
        return free if self.possible is None else np.where(self.possible, free, fixed)
