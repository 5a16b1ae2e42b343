"""How far the noises of a session reach together: quantiles of the exact discrete laws, rounded outwards.

Accuracy rests on these numbers, privacy does not.
"""

from __future__ import annotations

import math

import numpy as np

from sfumato.operators.base import FloatArray
from sfumato.plans.quantiles import quantile
from sfumato.privacy.noise import DiscreteGaussian, DiscreteLaplace, NoiseLaw, RoundedGaussian

__all__ = ["energy", "farthest", "largest_sum"]

_STEPS = 2**13  # of the grid on which laws are summed: a bound is above the truth by one step at most
_BITS = 60  # 2^-60 of the mass is left outside, and counted as too much


def largest_sum(first: DiscreteLaplace, count: int, second: DiscreteLaplace, times: int, probability: float) -> int:
    """The least v (or slightly more) with P(max of `count` draws of one law + max of `times` of another > v) <= p.

    All draws are made in advance, as far as the law goes, so it holds for whatever pairs of them someone who sees the
    results picks. Laws with large scales are summed on a coarser grid, the first rounded up.
    """
    top = first.reach(_BITS)
    step = max(1, math.ceil(top / _STEPS))
    ends = math.ceil(top / step)
    grid: FloatArray = np.arange(-ends, ends + 1, dtype=np.float64) * step
    below = _all_below(first, grid, count)
    # what lies beyond the last point, 2^-60 of the mass of a draw, is counted as too much
    masses, beyond = np.diff(below, prepend=0.0), 1 - below[-1]

    def exceeded(v: int) -> float:
        return float(masses @ (1 - _all_below(second, v - grid, times))) + float(beyond)

    low, high = -1, 2 * (top + second.reach(_BITS))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if exceeded(middle) <= probability else (middle, high)
    return high


def _all_below(law: DiscreteLaplace, points: FloatArray, count: int) -> FloatArray:
    """P(all of `count` draws <= point)."""
    rate = 1 / float(law.scale)
    k = np.floor(points)
    outside = np.exp(-rate * np.where(k >= 0, k + 1, -k)) / (1 + math.exp(-rate))
    with np.errstate(divide="ignore"):
        return np.exp(count * np.where(k >= 0, np.log1p(-outside), np.log(outside)))


def farthest(noise: NoiseLaw, count: int, probability: float) -> int:
    """A g with P(some of `count` draws is beyond g either way) <= p, by the union of all."""
    return int(quantile(noise, 1 - probability / (2 * count)))


def energy(noise: NoiseLaw, count: int, probability: float) -> float:
    """An E with P(the squares of `count` draws add up to more than E) <= p.

    Gaussian laws are sub-Gaussian with sigma [CKS20], so the bound for chi-squares holds [LM00]; rounding adds at most
    a half to every draw.
    """
    crude = count * float(farthest(noise, count, probability)) ** 2
    if not isinstance(noise, (DiscreteGaussian, RoundedGaussian)):
        return crude
    log = math.log(1 / probability)
    chi = math.sqrt(count + 2 * math.sqrt(count * log) + 2 * log) * float(noise.sigma)
    rounding = math.sqrt(count) / 2 if isinstance(noise, RoundedGaussian) else 0.0
    return min(crude, (chi + rounding) ** 2)
