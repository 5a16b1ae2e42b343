"""Moments of noise laws that the library has no use for."""

from __future__ import annotations

import math

import numpy as np

from sfumato.plans.predictions import noise_masses
from sfumato.privacy.noise import DiscreteLaplace, NoiseLaw, RoundedGaussian


def excess_kurtosis(law: NoiseLaw) -> float:
    """Fourth central moment over squared variance, minus 3; infinite where the variance underflows."""
    if isinstance(law, DiscreteLaplace):
        q = math.exp(-1 / float(law.scale))
        return (1 + 4 * q + q * q) / (2 * q) if q else math.inf
    if law.variance < 16:
        found = noise_masses(law)
        fourth = 2 * float(found @ np.arange(found.size, dtype=np.float64) ** 4)
        return fourth / law.variance**2 - 3 if law.variance**2 > 0 else math.inf
    # that of a normal plus an independent uniform rounding error
    return -1 / 120 / law.variance**2 if isinstance(law, RoundedGaussian) else 0.0
