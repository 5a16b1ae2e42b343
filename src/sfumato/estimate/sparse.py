"""Multiplicative weights over keys too many to list: every key has a weight, few are written down [BR11].

A virtual universe has s L slots of weight w0 = 1 / (2 s L) and one more, "no key", of weight 1/2. A key takes a slot
when an update first names it, and L updates of s keys each never need more slots than there are. So this is
multiplicative weights on a list, exactly, but a key that no update named costs nothing: all of them have w0 / Z.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import PlanError
from sfumato.sketches.field import Words

__all__ = ["SparseHypothesis"]

_MOST = 2**40  # slots weigh 2^-41 and up, far above what doubles lose beside the 1/2 of "no key"


class SparseHypothesis:
    """A public guess of the counts by key of `total` records, over `slots` keys that are not named beforehand."""

    __slots__ = ("_elements", "_logs", "slots", "total")

    def __init__(self, slots: int, total: float) -> None:
        if type(slots) is not int or not 1 <= slots <= _MOST:
            raise PlanError(f"slots are a whole number from 1 to 2^40, not {slots!r}")
        if not 0 < total < math.inf:
            raise PlanError(f"total is a positive number of records, not {total!r}")
        self.slots, self.total = slots, float(total)
        self._elements: Words = np.zeros(0, dtype=np.uint64)
        self._logs: NDArray[np.float64] = np.zeros(0)

    @property
    def bound(self) -> int:
        """Keys that updates have named."""
        return self._elements.size

    def answer(self, elements: Words) -> float:
        """The hypothetical number of records with one of these distinct keys."""
        place, inside = self._find(elements)
        # a key without a slot weighs as much as a slot without a key
        free = elements.size - int(inside.sum())
        with np.errstate(divide="ignore"):
            asked = np.append(self._logs[place[inside]], np.log(float(free)))
        return self.total * math.exp(_log_sum(asked) - math.log(2 * self.slots) - self._log_total())

    def update(self, elements: Words, step: float) -> None:
        """Multiply the weights of these distinct keys by exp(step). Raises PlanError where the slots do not suffice."""
        place, inside = self._find(elements)
        if self.bound + elements.size - int(inside.sum()) > self.slots:
            raise PlanError(f"updates name more keys than the {self.slots:,} that the hypothesis was made for")
        self._logs[place[inside]] += step
        fresh = np.sort(elements[~inside])
        at = np.searchsorted(self._elements, fresh)
        self._elements, self._logs = np.insert(self._elements, at, fresh), np.insert(self._logs, at, step)

    def _log_total(self) -> float:
        """log Z, Z = w0 (sum over named keys + slots without a key) + 1/2."""
        share = math.log1p(-self.bound / (2 * self.slots))
        return float(np.logaddexp(_log_sum(self._logs) - math.log(2 * self.slots), share))

    def _find(self, elements: Words) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        place = np.searchsorted(self._elements, elements)
        inside = place < self.bound
        inside[inside] = self._elements[place[inside]] == elements[inside]
        return place, inside


def _log_sum(logs: NDArray[np.float64]) -> float:
    if not logs.size:
        return -math.inf
    return float(np.logaddexp.reduce(logs))
