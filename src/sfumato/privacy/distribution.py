"""What the law of noise is in doubles, for intervals alone: distribution function, quantiles, kurtosis."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InvalidInput
from sfumato.privacy.noise import SMOOTH, DiscreteGaussian, DiscreteLaplace, NoiseLaw, RoundedGaussian, masses

__all__ = ["cdf", "excess_kurtosis", "quantile"]

# Up to here the discrete Gaussian's distribution function is summed.
_SUMMED = 64


def cdf(law: NoiseLaw, k: float) -> float:
    """P(noise <= k)."""
    k = math.floor(k)
    match law:
        case RoundedGaussian(sigma):
            return _normal_cdf((k + 0.5) / float(sigma))
        case DiscreteGaussian(sigma):
            if sigma < _SUMMED:
                below = _cumulative(law)
                return float(below[min(max(k + below.size // 2, 0), below.size - 1)])
            z = (k + 0.5) / float(sigma)
            # the sum of a density to k is its integral to k + 1/2, less a 24th of its derivative there
            return _normal_cdf(z) + z * math.exp(-z * z / 2) / math.sqrt(2 * math.pi) / (24 * float(sigma) ** 2)
        case DiscreteLaplace(scale):
            rate = 1 / float(scale)
            outside = math.exp(-rate * (k + 1 if k >= 0 else -k)) / (1 + math.exp(-rate))
            return 1 - outside if k >= 0 else outside
        case _:
            raise InvalidInput(f"{law!r} has no distribution function here")


def quantile(law: NoiseLaw, probability: float) -> float:
    """The least integer k with P(noise <= k) >= probability.

    Raises InvalidInput unless 0 < probability < 1.
    """
    if not 0 < probability < 1:
        raise InvalidInput(f"a quantile needs a probability strictly between 0 and 1, got {probability!r}")
    high = law.reach(1100) + 1  # a double cannot express less mass than lies beyond
    low = -high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if cdf(law, middle) >= probability else (middle, high)
    return float(high)


def excess_kurtosis(law: NoiseLaw) -> float:
    """Fourth central moment over squared variance, minus 3; infinite where the variance underflows."""
    match law:
        case DiscreteLaplace(scale):
            # (1 + 4 q + q^2) / (2 q), 3 for large scales
            q = math.exp(-1 / float(scale))
            return (1 + 4 * q + q * q) / (2 * q) if q else math.inf
        case RoundedGaussian(sigma) | DiscreteGaussian(sigma) if sigma < SMOOTH:
            found = masses(law)
            fourth = 2 * float(found @ np.arange(found.size, dtype=np.float64) ** 4)
            return fourth / law.variance**2 - 3 if law.variance**2 > 0 else math.inf
        case RoundedGaussian():
            # that of a normal plus an independent uniform rounding error
            return -1 / 120 / law.variance**2
        case _:
            return 0.0


def _normal_cdf(z: float) -> float:
    return math.erfc(-z / math.sqrt(2)) / 2


@lru_cache(maxsize=16)
def _cumulative(law: NoiseLaw) -> NDArray[np.float64]:
    """P(noise <= k) for k from -K to K."""
    found = masses(law)
    return np.concatenate([found[:0:-1], found]).cumsum().clip(0, 1)
