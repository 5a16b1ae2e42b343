"""A proved bound on the largest error over all ranges, where the covariance of two prefixes is a sum of exponentials.

With v the variances of prefixes and cov(s, t) = P(s) + sum_j C_j(t) b_j^(t - s) D_j(s) for s <= t, C and D at least 0,
all ranges that begin in one block of prefixes and end in another, at most m apart, have variances of at most

    max v_t + max (v_s - 2 P(s)) - 2 sum_j min C_j(t) b_j^m min D_j(s).

Blocks are halved, both at once, where that is above what was found.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato.operators.base import FloatArray, Numbers

__all__ = ["largest_pair"]

_CLOSE = 1.005  # half a percent above what was found: the bound is said as such
_BLOCKS = 64  # of prefixes to begin with: two thousand pairs
_FINEST = 2**17  # blocks at most, as there are d minima of each: what stays is a bound, a looser one
_PAIRS = 2**20  # at a time: some MB for each buffer
_MOST = 2**22  # pairs whose halves are looked at: some seconds; beyond, their own bounds stay
_ROUNDING = 1 + 1e-9  # relative, of sums of few products


def largest_pair(
    variances: FloatArray,
    steady: FloatArray,
    ahead: FloatArray,
    behind: FloatArray,
    zeros: FloatArray,
    known: FloatArray,
    found: float,
) -> float:
    """An upper bound on the largest variance of a range of the first n cells, at least `found`.

    variances and steady, P, (n,); ahead and behind, C and D, (d, n); zeros (d,) the distances of b from 1; of each
    prefix known (n + 1,) times a unit is known, from the empty one on: ranges err by the squared difference less.
    """
    n = len(variances)
    top = 4.0 * float(variances.max())
    if float(ahead.min()) < 0 or float(behind.min()) < 0:
        return top
    size = 1 << max(0, n.bit_length() - _FINEST.bit_length() + 1)
    rates = np.log1p(-zeros)
    levels = [_Level.of(variances, steady, ahead, behind, known, size)]
    while len(levels[-1].high) > _BLOCKS:
        levels.append(levels[-1].halved())
    level = levels.pop()
    first, last = (p.astype(np.int64) for p in np.triu_indices(len(level.high)))
    proved = found
    while True:
        bounds = np.concatenate(
            [level.bounds(first[a : a + _PAIRS], last[a : a + _PAIRS], rates) for a in range(0, len(first), _PAIRS)]
        )
        open_ = bounds > found * _CLOSE
        proved = max(proved, float(bounds[~open_].max(initial=0.0)))
        if not open_.any():
            return min(top, proved * _ROUNDING)
        if not levels or int(open_.sum()) > _MOST:
            return min(top, max(proved, float(bounds.max())) * _ROUNDING)
        level = levels.pop()
        first, last = _children(first[open_], last[open_], len(level.high))


def _children(first: Numbers, last: Numbers, count: int) -> tuple[Numbers, Numbers]:
    """The pairs of halves of pairs of blocks, each once."""
    low = (2 * first[:, None] + np.array([0, 0, 1, 1])).reshape(-1)
    high = (2 * last[:, None] + np.array([0, 1, 0, 1])).reshape(-1)
    kept = (low <= high) & (high < count)
    return low[kept], high[kept]


@dataclass(frozen=True, slots=True)
class _Level:
    """Blocks of `size` prefixes, the empty one first: extremes in a block of what bounds are made of."""

    size: int
    high: FloatArray  # of v
    low: FloatArray  # the largest of v - 2 P
    ahead: FloatArray  # the least C, (d, blocks)
    behind: FloatArray  # the least D
    least: FloatArray  # of what is known
    most: FloatArray

    @classmethod
    def of(
        cls,
        variances: FloatArray,
        steady: FloatArray,
        ahead: FloatArray,
        behind: FloatArray,
        known: FloatArray,
        size: int,
    ) -> _Level:
        starts = np.arange(0, len(known), size)
        least = [np.minimum.reduceat(np.append(0.0, row), starts) for part in (ahead, behind) for row in part]
        return cls(
            size,
            np.maximum.reduceat(np.append(0.0, variances), starts),
            np.maximum.reduceat(np.append(0.0, variances - 2 * steady), starts),
            np.stack(least[: len(ahead)]),
            np.stack(least[len(ahead) :]),
            np.minimum.reduceat(known, starts),
            np.maximum.reduceat(known, starts),
        )

    def halved(self) -> _Level:
        """Half as many blocks."""
        starts = np.arange(0, len(self.high), 2)
        return _Level(
            2 * self.size,
            np.maximum.reduceat(self.high, starts),
            np.maximum.reduceat(self.low, starts),
            np.minimum.reduceat(self.ahead, starts, axis=1),
            np.minimum.reduceat(self.behind, starts, axis=1),
            np.minimum.reduceat(self.least, starts),
            np.maximum.reduceat(self.most, starts),
        )

    def bounds(self, first: Numbers, last: Numbers, rates: FloatArray) -> FloatArray:
        """Of all ranges from a prefix in block `first` to one in block `last`."""
        out = self.high[last] + self.low[first]
        longest = (last - first + 1) * self.size - 1
        for ahead, behind, rate in zip(self.ahead, self.behind, rates.tolist(), strict=True):
            out -= 2 * ahead[last] * behind[first] * np.exp(longest * rate)
        apart = np.maximum(self.least[last] - self.most[first], self.least[first] - self.most[last])
        return np.asarray(out - np.maximum(apart, 0.0) ** 2)
