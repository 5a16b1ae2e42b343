"""Distribution functions and quantiles of noise laws, as doubles: for intervals and thresholds.

No privacy rests on them, so they stand outside what the wall loads.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from sfumato.errors import InvalidInput
from sfumato.operators.base import FloatArray
from sfumato.privacy.noise import DiscreteGaussian, DiscreteLaplace, NoiseLaw, RoundedGaussian

__all__ = ["cdf", "masses", "quantile"]

_SUMMED = 64  # up to here the discrete Gaussian's distribution function is summed
_LEAST_BITS = 1100  # a double cannot express less mass than lies beyond


def quantile(noise: NoiseLaw, probability: float) -> float:
    """The least integer k with P(noise <= k) >= probability.

    Raises InvalidInput unless 0 < probability < 1.
    """
    if not 0 < probability < 1:
        raise InvalidInput(f"a quantile needs a probability strictly between 0 and 1, got {probability!r}")
    high = noise.reach(_LEAST_BITS) + 1
    low = -high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if cdf(noise, middle) >= probability else (middle, high)
    return float(high)


def cdf(noise: NoiseLaw, k: float) -> float:
    """P(noise <= k)."""
    k = math.floor(k)
    match noise:
        case DiscreteLaplace(scale=scale):
            rate = 1 / float(scale)
            outside = math.exp(-rate * (k + 1 if k >= 0 else -k)) / (1 + math.exp(-rate))
            return 1 - outside if k >= 0 else outside
        case RoundedGaussian(sigma=sigma):
            return _normal_cdf((k + 0.5) / float(sigma))
        case DiscreteGaussian(sigma=sigma) if sigma < _SUMMED:
            below = _cumulative(noise)
            return float(below[min(max(k + below.size // 2, 0), below.size - 1)])
        case DiscreteGaussian(sigma=sigma):
            z = (k + 0.5) / float(sigma)
            # the sum of a density to k is its integral to k + 1/2, less a 24th of its derivative there
            slope = z * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
            return _normal_cdf(z) + slope / (24 * float(sigma) * float(sigma))
        case _:
            raise InvalidInput(f"no distribution function is known of {noise!r}")


def _normal_cdf(z: float) -> float:
    return math.erfc(-z / math.sqrt(2)) / 2


def masses(law: NoiseLaw) -> FloatArray:
    """Probabilities of 0, 1, 2, … as doubles, for small scales."""
    weights = np.array([float(law.weight(k)) for k in range(law.reach(160) + 3)])
    return weights / (2 * weights.sum() - weights[0])


@lru_cache(maxsize=16)
def _cumulative(law: NoiseLaw) -> FloatArray:
    """P(noise <= k) for k from -K to K."""
    found = masses(law)
    return np.concatenate([found[:0:-1], found]).cumsum().clip(0, 1)
