"""Exact whole numbers of 128 bits, a whole array at once: the work depends on how many there are, on nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

WORD = 1 << 64  # two words are an integer of 128 bits
_HALF = np.uint64(32)  # products of half words fit a word
_LOW = np.uint64((1 << 32) - 1)  # the lower half


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class UInt128Array:
    """Numbers high 2^64 + low, each from 0 to 2^128 - 1: two uint64 arrays of shape (n,).

    Sums that pass 2^128 would wrap; who adds must know that none does.
    """

    high: Words
    low: Words

    @classmethod
    def of(cls, integers: Sequence[int]) -> UInt128Array:
        """The numbers given, from 0 to 2^128 - 1."""
        high = np.array([n >> 64 for n in integers], dtype=np.uint64)
        return cls(high, np.array([n % WORD for n in integers], dtype=np.uint64))

    @classmethod
    def products(cls, one: Words, other: Words) -> UInt128Array:
        """one * other, entry by entry."""
        a, b, c, d = one >> _HALF, one & _LOW, other >> _HALF, other & _LOW
        low, left, right = b * d, a * d, b * c
        # three numbers below 2^32: no carry is lost
        middle = (low >> _HALF) + (left & _LOW) + (right & _LOW)
        high = a * c + (left >> _HALF) + (right >> _HALF) + (middle >> _HALF)
        return cls(high, (middle << _HALF) | (low & _LOW))

    def plus(self, words: Words) -> UInt128Array:
        """Each number plus a word of its own."""
        low = self.low + words
        return UInt128Array(self.high + (low < words), low)

    def behind(self) -> UInt128Array:
        """The largest of all numbers less each of them."""
        high = self.high.max()
        low = np.where(self.high == high, self.low, np.uint64(0)).max()
        return UInt128Array(high - self.high - (low < self.low), low - self.low)

    def bytes_of(self, start: int, stop: int, count: int) -> list[NDArray[np.uint8]]:
        """The last `count` bytes, least first, of the numbers `start` to `stop` - 1.

        Numbers from 256^count on are taken for 256^count - 1.
        """
        high, low = self.high[start:stop], self.low[start:stop]
        most = (1 << 8 * count) - 1
        top, bottom = np.uint64(most >> 64), np.uint64(most % WORD)
        above = (high > top) | ((high == top) & (low > bottom))
        parts = (np.where(above, bottom, low), np.where(above, top, high))
        return [(parts[i // 8] >> np.uint64(8 * (i % 8))).astype(np.uint8) for i in range(count)]

    def integers(self) -> list[int]:
        """The same as Python integers."""
        return [(h << 64) + n for h, n in zip(self.high.tolist(), self.low.tolist(), strict=True)]

    def __len__(self) -> int:
        return len(self.low)


def absolute_differences(one: NDArray[np.int64], other: NDArray[np.int64]) -> Words:
    """|one - other|, exact for any int64: below 2^64."""
    a, b = one.view(np.uint64), other.view(np.uint64)
    return np.where(one >= other, a - b, b - a)
