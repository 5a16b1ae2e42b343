"""Raking: nonnegative cells are multiplied until their sums are what coarser rungs say. [DS40]"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sfumato.operators.base import FloatArray

__all__ = ["Sums", "rake"]

_SWEEPS = 200
_EXACT = 1e-9
_PATIENCE = 80  # sweeps before values that exclude each other are moved towards what is possible
_YIELD = 0.2
_SLOW = 0.5  # share of what was missing that is left after a sweep
_FASTEST = 100.0
_LEAP = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Sums of a table's cells that are to have these values.

    axes: positions of the attributes summed over to; wanted: their table, or, with `groups` (the group of every
    cell of that table), one value per group. firm: never moved, even where other sums exclude it.
    """

    axes: tuple[int, ...]
    wanted: FloatArray
    groups: NDArray[np.intp] | None = None
    firm: bool = True

    def met_by(self, cells: FloatArray) -> Sums:
        """The same sums with the values that these cells have, which hold."""
        return replace(self, wanted=self.of(cells), firm=True)

    def of(self, cells: FloatArray) -> FloatArray:
        """These sums of some cells."""
        now = cells.sum(axis=tuple(a for a in range(cells.ndim) if a not in self.axes))
        if self.groups is None:
            return now
        return np.bincount(self.groups.reshape(-1), now.reshape(-1), len(self.wanted)).astype(np.float64)


def rake(cells: FloatArray, sums: Sequence[Sums], *, sweeps: int = _SWEEPS) -> FloatArray:
    """Nonnegative cells near the given ones, multiplicatively, whose sums are the wanted ones.

    Zero cells stay zero. Sums that no such cells have together are met as nearly as the order allows: those that are
    not firm are moved towards what is found, and the last ones given are met last.
    """
    out = cells
    wanted = [s.wanted for s in sums]
    mass = max((float(w.sum()) for w in wanted), default=0.0)
    gain, most = [1.0] * len(sums), [_FASTEST] * len(sums)
    last: list[FloatArray | None] = [None] * len(sums)
    for sweep in range(sweeps):
        worst = 0.0
        for i, s in enumerate(sums):
            now = s.of(out)
            worst = max(worst, float(np.abs(wanted[i] - now).max(initial=0.0)))
            if not s.firm and sweep >= _PATIENCE:
                wanted[i] = wanted[i] + _YIELD * (now - wanted[i])
            ratio = np.divide(wanted[i], now, out=np.zeros_like(now), where=now > 0)
            if s.groups is not None:
                gain[i], most[i] = _hastened(gain[i], most[i], last[i], wanted[i] - now)
                last[i] = wanted[i] - now
                steps = np.log(ratio, out=np.zeros_like(ratio), where=ratio > 0) * gain[i]
                ratio = np.where(ratio > 0, np.exp(np.clip(steps, -_LEAP, _LEAP)), 0.0)
            each = ratio if s.groups is None else ratio[s.groups]
            out = out * each.reshape([n if a in s.axes else 1 for a, n in enumerate(cells.shape)])
        if worst <= _EXACT * mass or math.isnan(worst):
            break
    return out


def _hastened(gain: float, most: float, last: FloatArray | None, missing: FloatArray) -> tuple[float, float]:
    """(exponent of the next step, the largest from now on): later sums undo most of a step where a group nearly
    fills a row. A step too far is never taken again."""
    if last is None:
        return gain, most
    along = float(np.vdot(last, missing))
    if along < 0:
        least = max(gain / 2, 1.0)
        return least, least
    return (min(gain * 1.5, most), most) if along > _SLOW * float(np.vdot(last, last)) else (gain, most)
