"""A proved bound on the largest error over all ranges, from the covariances of prefixes that lie some length apart.

With r the response, s2_i the noise of row i and v_t the variance of prefix t, the answers of the prefixes s and
s + L have the covariance C(s, L) = sum_k r_k r_(L + k) s2_(s - 1 - k), for all s one convolution. Where r is not
negative, C with r_(L + k) replaced by m_(b + k), m_j = min(r_0, ..., r_j), is at most C(s, L) for every L <= b. So

    v_s + max v_(s + L) - 2 C'(s, b)

bounds the variances of all ranges from s on of lengths a < L <= b; ranges that would end beyond the last prefix n
take their covariance with that prefix. Intervals of lengths are halved where their bound is highest.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np

from sfumato.operators.base import FloatArray
from sfumato.operators.toeplitz import causal

__all__ = ["largest_bound"]

_CLOSE = 1.02  # two percent above what was found: the bound is said as such
_SPLITS = 24  # each splits the interval of ends of largest bound; what stays is a bound, a looser one
_LONG = 2**21  # cells: beyond, half as many splits, each of them convolutions of that length
_ROUNDING = 1 + 1e-9  # relative, added to a bound made by FFT: those round far less


@dataclass(frozen=True, slots=True)
class _Prefixes:
    """response and noise (n,), variances and known (n + 1,) from the empty prefix on; `last` covariances with n."""

    response: FloatArray
    least: FloatArray
    noise: FloatArray
    variances: FloatArray
    known: FloatArray
    last: FloatArray

    def bound(self, a: int, b: int) -> float:
        """For all ranges of more than a and at most b cells."""
        n = len(self.response)
        covariance = self.last.copy()
        inside = n - b
        if inside > 0:
            covariance[1 : inside + 1] = causal(
                self.response[:inside] * self.least[b : b + inside], self.noise[:inside]
            )
        starts = n - a
        tops = _sliding(self.variances[a + 1 :], b - a)
        known = self.known[a + 1 :] - self.known[:starts]
        found = self.variances[:starts] + tops - 2 * covariance[:starts] - known**2
        return float(found.max())


def largest_bound(
    response: FloatArray, noise: FloatArray, variances: FloatArray, known: FloatArray, found: float
) -> float:
    """An upper bound on the largest variance of a range of the first n cells, at least `found`.

    response and noise (n,); variances (n + 1,) of the prefixes from the empty one on; of each, known (n + 1,)
    times a unit is known: ranges err by the squared difference less. The bound is within two percent of `found`
    unless too many splits were needed; infinite where the response has negative entries.
    """
    n = len(response)
    if response.min() < 0:
        return math.inf
    steady = known if (np.diff(known) >= 0).all() else np.zeros(n + 1)
    least = np.minimum.accumulate(response)
    last = np.append(0.0, causal(response, least[::-1] * noise))
    prefixes = _Prefixes(response, least, noise, variances, steady, last)
    intervals = [(-prefixes.bound(0, n), 0, n)]
    for _ in range(_SPLITS if n <= _LONG else _SPLITS // 2):
        top, a, b = intervals[0]
        if -top <= found * _CLOSE or b == a + 1:
            break
        middle = min(b - 1, max(a + 1, round(math.sqrt((a + 1) * b))))
        heapq.heapreplace(intervals, (-prefixes.bound(a, middle), a, middle))
        heapq.heappush(intervals, (-prefixes.bound(middle, b), middle, b))
    return max(found, -intervals[0][0] * _ROUNDING)


def _sliding(values: FloatArray, width: int) -> FloatArray:
    """The largest of values i to i + width - 1, as far as there are, for every i."""
    n = len(values)
    blocks = np.full(-(-(n + width) // width) * width, -np.inf)
    blocks[:n] = values
    table = blocks.reshape(-1, width)
    before = np.maximum.accumulate(table, axis=1).reshape(-1)
    after = np.maximum.accumulate(table[:, ::-1], axis=1)[:, ::-1].reshape(-1)
    return np.maximum(after[:n], before[width - 1 : width - 1 + n])
