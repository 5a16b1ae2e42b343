"""The integer filter on two limbs: a number is high 2^48 + low with 0 <= low < 2^48, so that a floor is a shift.

States stay below 2^90 and their weighted sums below 2^102, which `IntegerFilter.check_count` refuses otherwise; then
nothing wraps but the number that is handed out, modulo 2^64.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["advance"]

Integers = NDArray[np.int64]
# Two limbs hold 96 bits of a state; half limbs multiply a count below 2^36 within 63 bits.
_LIMB, _HALF = 48, 24
_MASK, _HALF_MASK = 2**_LIMB - 1, 2**_HALF - 1


def _product(counts: Integers, factor: Integers) -> tuple[Integers, Integers]:
    """The limbs of counts up to 2^36 in size, times factors from 0 to below 2^62."""
    middle = counts * ((factor >> _HALF) & _HALF_MASK)
    low = ((middle & _HALF_MASK) << _HALF) + counts * (factor & _HALF_MASK)
    high = counts * (factor >> _LIMB) + (middle >> _HALF) + (low >> _LIMB)
    return high, low & _MASK


def _scaled(high: Integers, low: Integers, factor: int, shift: int) -> tuple[Integers, Integers]:
    """The limbs of floor(number * factor / 2^shift), for a factor below 2^14 and a product below 2^102."""
    low = low * factor
    high = high * factor + (low >> _LIMB)
    low &= _MASK
    if shift >= _LIMB:
        whole = high >> (shift - _LIMB)
        return whole >> _LIMB, whole & _MASK
    return high >> shift, ((high & ((1 << shift) - 1)) << (_LIMB - shift)) | (low >> shift)


def advance(
    high: Integers,
    low: Integers,
    counts: Integers,
    factors: Integers,
    decays: Sequence[tuple[int, int]],
    row: int,
    shift: int,
) -> Integers:
    """y of one period for some cells, modulo 2^64; the states (d, cells) become those of the next in place.

    counts: (cells,); factors: (1 + d, cells), c and every b_i; decays: (e, g) of every state.
    """
    total, rest = _product(counts, factors[0])
    total += high.sum(axis=0)
    rest += low.sum(axis=0)
    total += rest >> _LIMB
    above, below = _scaled(total, rest & _MASK, row, shift)
    for i, (e, g) in enumerate(decays):
        lost, lost_rest = _scaled(high[i], low[i], e, g)
        gained, gained_rest = _product(counts, factors[1 + i])
        rest = low[i] - lost_rest + gained_rest
        high[i] += gained - lost + (rest >> _LIMB)
        low[i] = rest & _MASK
    return (above << _LIMB) + below
