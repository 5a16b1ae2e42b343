"""How wide an interval must be: quantiles of weighted sums of the actual noise.

An answer's error is a weighted sum of independent draws of one law. For Gaussian noise it is normal.
For Laplace noise its fourth cumulant says how far it is from normal; the symmetric variance-gamma law
with that cumulant is exact for one draw and for any number of equal ones, and has the normal limit.
"""

from __future__ import annotations

import functools
import math
from functools import lru_cache

import numpy as np

from sfumato.errors import InvalidInput, PlanError
from sfumato.operators.base import FloatArray
from sfumato.privacy.noise import DiscreteGaussian, DiscreteLaplace, NoiseLaw, RoundedGaussian

__all__ = [
    "check_confidence",
    "interval_margins",
    "noise_cdf",
    "noise_masses",
    "noise_quantile",
    "simultaneous_confidence",
    "widest_margins",
    "widest_sum_margin",
]


_SUMMED = 64  # up to here the discrete Gaussian's distribution function is summed
_LEAST_BITS = 1100  # a double cannot express less mass than lies beyond


def noise_quantile(noise: NoiseLaw, probability: float) -> float:
    """The least integer k with P(noise <= k) >= probability.

    Raises InvalidInput unless 0 < probability < 1.
    """
    if not 0 < probability < 1:
        raise InvalidInput(f"a quantile needs a probability strictly between 0 and 1, got {probability!r}")
    high = noise.reach(_LEAST_BITS) + 1
    low = -high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if noise_cdf(noise, middle) >= probability else (middle, high)
    return float(high)


def noise_cdf(noise: NoiseLaw, k: float) -> float:
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
            below = _cumulative_masses(noise)
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


def noise_masses(law: NoiseLaw) -> FloatArray:
    """Probabilities of 0, 1, 2, … as doubles, for small scales."""
    weights = np.array([float(law.weight(k)) for k in range(law.reach(160) + 3)])
    return weights / (2 * weights.sum() - weights[0])


@lru_cache(maxsize=16)
def _cumulative_masses(law: NoiseLaw) -> FloatArray:
    """P(noise <= k) for k from -K to K."""
    found = noise_masses(law)
    return np.concatenate([found[:0:-1], found]).cumsum().clip(0, 1)


_MOST_TOGETHER = 10**10  # to confidences of 1 - 1e-11, which floats still tell from 1
_NODES = np.linspace(0.0, 1.0, 17)  # of kurtosis, between which quantiles are nearly straight


def check_confidence(confidence: object) -> float:
    """A probability strictly between 0 and 1; 95 is refused."""
    if isinstance(confidence, bool) or not isinstance(confidence, (int, float)) or not 0 < confidence < 1:
        raise PlanError(f"confidence must lie strictly between 0 and 1, such as 0.95, not {confidence!r}")
    return float(confidence)


def simultaneous_confidence(confidence: float, count: int, noise: NoiseLaw, *, biased: bool = False) -> float:
    """The pointwise confidence at which `count` intervals hold together with `confidence`.

    Gaussian noise: Šidák's inequality, which holds for any correlation. Other laws, and answers off by a bias, for
    which that inequality fails: the union bound. Plans and releases take their half-widths at this level. Raises
    PlanError above 10^10 intervals, where levels so near 1 are no longer numbers of their own.
    """
    count = max(1, count)
    if count > _MOST_TOGETHER:
        raise PlanError(
            f"intervals that hold together are known for up to {_MOST_TOGETHER:,} answers, not {count:,}; ask for "
            "those of one part, or for pointwise ones"
        )
    if biased or isinstance(noise, DiscreteLaplace):
        return 1 - (1 - confidence) / count
    return math.exp(math.log(confidence) / count)


def interval_margins(
    confidence: float,
    second: FloatArray,
    fourth: FloatArray | None,
    noise: NoiseLaw,
    bias: FloatArray | None = None,
) -> FloatArray:
    """Half-widths of intervals for sums with the given sums of squared (and fourth-power) coefficients.

    Arrays broadcast, and so does the result: squares may be alike where fourth powers are not. `fourth` is needed for
    Laplace noise only; nan where it is not known, for which the widest of all is taken. With `bias`, which bounds what
    answers may be off by besides, the intervals hold for every bias within.
    """
    if bias is not None and bias.any():
        if noise.variance < 64.0 or isinstance(noise, DiscreteLaplace):
            return bias + interval_margins(confidence, second, fourth, noise)
        return _off_centre(confidence, np.sqrt(second * noise.variance), bias)
    deviation = np.sqrt(second * noise.variance)
    single = fourth is not None and np.allclose(fourth, second**2, rtol=1e-9, atol=0.0)
    if single or (fourth is None and noise.variance < 64.0):
        # one draw an answer, or a coarse lattice: the law's own quantile
        return np.sqrt(second) * noise_quantile(noise, (1 + confidence) / 2)
    if fourth is None or not isinstance(noise, DiscreteLaplace):
        return deviation * _normal_quantile(confidence)
    unknown = np.isnan(fourth)
    if unknown.any():
        return np.where(
            unknown,
            widest_margins(confidence, second, noise),
            interval_margins(confidence, second, np.nan_to_num(fourth), noise),
        )
    squared = np.broadcast_to(second**2, np.broadcast_shapes(second.shape, fourth.shape))
    share = np.divide(fourth, squared, out=np.ones(squared.shape), where=squared > 0)
    return deviation * np.interp(share, _NODES, _variance_gamma_quantiles(confidence))


def widest_margins(confidence: float, second: FloatArray, noise: NoiseLaw) -> FloatArray:
    """Half-widths that hold whatever the fourth powers are: the largest that `margins` gives for any."""
    if not isinstance(noise, DiscreteLaplace):
        return interval_margins(confidence, second, None, noise)
    shapes = [interval_margins(confidence, second, share * second**2, noise) for share in _NODES]
    return np.max(shapes, axis=0)


def widest_sum_margin(confidence: float, noise: NoiseLaw) -> float:
    """The widest half-width of any weighted sum of the noise, in units of its standard deviation.

    What is compared may average few or many draws, and A - p B anything between.
    """
    single = float(widest_margins(confidence, np.ones(1), noise)[0]) / math.sqrt(noise.variance)
    return max(single, _normal_quantile(confidence))


def _off_centre(confidence: float, deviation: FloatArray, bias: FloatArray) -> FloatArray:
    """h with P(|b + Z| <= h) >= confidence for normal Z and all |b| <= bias: it is least at b = bias."""
    from scipy.special import ndtr, ndtri  # noqa: PLC0415

    unit = np.maximum(deviation, 1e-300)
    off = np.minimum(bias / unit, 1e150)
    low, high = np.maximum(off + ndtri(confidence), 0.0), off + _normal_quantile(confidence)
    for _ in range(60):
        middle = (low + high) / 2
        enough = ndtr(middle - off) - ndtr(-middle - off) >= confidence
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(deviation > 0, high * unit, bias)


def _normal_quantile(confidence: float) -> float:
    from scipy.special import ndtri  # noqa: PLC0415

    return float(-ndtri((1 - confidence) / 2))


@functools.lru_cache(maxsize=64)
def _variance_gamma_quantiles(confidence: float) -> FloatArray:
    """Two-sided quantiles of the unit-variance law with kurtosis 3 + 3 s at the nodes s in [0, 1]."""
    from scipy.special import gammaln, kve  # noqa: PLC0415

    out = [_normal_quantile(confidence)]
    tail = (1 - confidence) / 2
    reach = 4.0 - 1.5 * math.log(tail)
    x = np.linspace(0.0, reach, 20_001)[1:]
    for node in _NODES[1:]:
        n = 1.0 / node
        z = x * math.sqrt(2 * n)
        order = n - 0.5
        log_density = (
            0.5 * math.log(2 * n)
            - 0.5 * math.log(math.pi)
            - gammaln(n)
            + order * np.log(z / 2)
            + np.log(kve(order, z))
            - z
        )
        density = np.exp(log_density)
        steps = (density[1:] + density[:-1]) / 2 * (x[1] - x[0])
        beyond = np.concatenate([np.cumsum(steps[::-1])[::-1], [0.0]])
        beyond += density[-1] / math.sqrt(2 * n)
        out.append(float(np.exp(np.interp(-math.log(tail), -np.log(beyond), np.log(x)))))
    return np.array(out)
