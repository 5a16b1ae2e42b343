"""The threshold at which a stability histogram keeps a delta."""

from __future__ import annotations

from fractions import Fraction

from sfumato.errors import PlanError
from sfumato.privacy.keyed import MAX_THRESHOLD, tail
from sfumato.privacy.noise import DiscreteLaplace

__all__ = ["least_threshold"]


def least_threshold(noise: DiscreteLaplace, delta: Fraction) -> int:
    """The smallest integer threshold at which a count of one is shown with probability at most `delta`.

    From the exact tail of the discrete law, certified: no smaller integer is proved to do. Raises PlanError where it is
    above 2^40.
    """
    if not 0 < delta < 1:
        raise PlanError(f"delta must lie between 0 and 1, not {delta}")
    low, high = -1, 1
    while tail(noise.scale, high) > delta:
        low, high = high, 2 * high
        if high > MAX_THRESHOLD:
            raise PlanError("this delta and epsilon need a threshold above 2^40; raise one of them")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if middle >= 0 and tail(noise.scale, middle) <= delta else (middle, high)
    return high + 1
