"""Noise laws on the integers, as values: each samples, has a variance, and knows its scale.

The exact counts are integers, so integer noise leaks nothing through the spacing of floating-point numbers.
What a law costs is for the accountant to say; it reads `sigma` or `scale`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InvalidInput
from sfumato.ground.codec import storable
from sfumato.privacy.certified import ball
from sfumato.privacy.sampling import BitSource, SystemBits, sampler

if TYPE_CHECKING:
    from flint import arb

__all__ = ["DiscreteGaussian", "DiscreteLaplace", "NoiseLaw", "RoundedGaussian"]

# Below, a draw other than 0 is rarer than 2^-1000, and samplers would have tables of one row.
LEAST_SCALE = Fraction(1, 1 << 10)
GREATEST_SCALE = Fraction(1 << 55)  # 2^8 deviations fit int64, so that what wraps modulo 2^64 is never seen
_END = 2**63 - 2**54  # counts below 2^53 added to it leave room in int64
# From here on lattice effects of Gaussian laws are below one double rounding: exp(-2 pi^2 sigma^2).
SMOOTH = 4


class NoiseLaw(ABC):
    """A symmetric, log-concave law on the integers.

    `sample` is exact: given ideal random bits each k comes with exactly its probability, draws are
    independent, and every integer is possible. The variance is a double, for predicted errors; no privacy rests
    on it. Distribution functions and quantiles are in `plans.quantiles`.
    """

    __slots__ = ()

    def sample(self, size: int, source: BitSource | None = None) -> NDArray[np.int64]:
        """`size` independent draws, int64, shape (size,), with less than 20 MB above the result.

        `source` is for tests; by default the bits come from the operating system (OpenSSL). There is no seed.
        Raises InvalidInput for a size that is not a nonnegative int.
        """
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 0:
            raise InvalidInput(f"the number of draws must be a nonnegative int, got {size!r}")
        return sampler(self).draw(int(size), SystemBits() if source is None else source)

    def integer(self, source: BitSource | None = None) -> int:
        """One draw as a Python integer, also where int64 is too small for it: for numbers that are then compared."""
        return sampler(self).integer(SystemBits() if source is None else source)

    def saturated(self, size: int, source: BitSource | None = None) -> NDArray[np.int64]:
        """`sample`, but draws beyond +-(2^63 - 2^54) are those ends in place of what they are modulo 2^64.

        With counts below 2^53 added to them nothing wraps, and a sum is on the right side of any number below 2^62.
        """
        bits = SystemBits() if source is None else source
        found = sampler(self).draw(size, bits, lambda value: _END if value > 0 else -_END)
        return found.clip(-_END, _END)

    @property
    @abstractmethod
    def variance(self) -> float:
        """Variance of one draw."""

    @property
    @abstractmethod
    def octave(self) -> int:
        """floor(log2(scale)), at least 0."""

    @abstractmethod
    def weight(self, k: int) -> arb:
        """P(noise = k) up to a constant, as a ball at the current precision."""

    @abstractmethod
    def reach(self, bits: int) -> int:
        """About where the mass beyond is 2^-bits."""


class _Gaussian(NoiseLaw):
    """What the two Gaussian laws share; the class that derives has the field `sigma`."""

    __slots__ = ()
    sigma: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", _scale("sigma", self.sigma))

    @property
    def octave(self) -> int:
        """floor(log2(sigma)), at least 0."""
        return max(0, math.floor(self.sigma).bit_length() - 1)

    def reach(self, bits: int) -> int:
        """About where the mass beyond is 2^-bits."""
        return math.ceil(float(self.sigma) * math.sqrt(2 * math.log(2) * bits))


@storable
@dataclass(frozen=True, slots=True)
class RoundedGaussian(_Gaussian):
    """The law of round(sigma N), N standard normal.

    Formal guarantee: for an integer vector x, x + round(sigma N) = round(x + sigma N), so integer answers
    with this noise are post-processing of the continuous Gaussian mechanism and inherit its guarantee
    exactly: mu-GDP with mu = sensitivity / sigma [DRS22], in any dimension.

    `sigma` is an int or a Fraction from 2^-10 to 2^55. Raises InvalidInput for anything else.
    """

    sigma: Fraction

    @property
    def variance(self) -> float:
        """sigma^2 + 1/12, up to a term in exp(-2 pi^2 sigma^2) that counts for small sigma alone."""
        if self.sigma < SMOOTH:
            return _summed(self)
        return float(self.sigma**2 + Fraction(1, 12))

    def weight(self, k: int) -> arb:
        """Twice P(noise = k)."""
        k = abs(k)  # both terms small in the tail, or their difference would cancel
        return _erfc(Fraction(2 * k - 1, 2) / self.sigma) - _erfc(Fraction(2 * k + 1, 2) / self.sigma)


@storable
@dataclass(frozen=True, slots=True)
class DiscreteGaussian(_Gaussian):
    """P(k) proportional to exp(-k^2 / (2 sigma^2)) [CKS20].

    Formal guarantee: rho-zCDP with rho = sensitivity^2 / (2 sigma^2) [CKS20, Theorem 14]. Its (epsilon, delta)
    curve is not that of the continuous Gaussian mechanism; RoundedGaussian's is.

    `sigma` is an int or a Fraction from 2^-10 to 2^55. Raises InvalidInput for anything else.
    """

    sigma: Fraction

    @property
    def variance(self) -> float:
        """sigma^2, up to a term in exp(-2 pi^2 sigma^2) that counts for small sigma alone."""
        return _summed(self) if self.sigma < SMOOTH else float(self.sigma**2)

    def weight(self, k: int) -> arb:
        """exp(-k^2 / (2 sigma^2))."""
        return ball(-Fraction(k * k, 2) / self.sigma**2).exp()


@storable
@dataclass(frozen=True, slots=True)
class DiscreteLaplace(NoiseLaw):
    """P(k) proportional to exp(-|k| / scale) [GRS12].

    Formal guarantee: integer answers of L1 sensitivity D with this noise are (D / scale)-differentially
    private, in any dimension.

    `scale` is an int or a Fraction from 2^-10 to 2^55. Raises InvalidInput for anything else.
    """

    scale: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", _scale("scale", self.scale))

    @property
    def variance(self) -> float:
        """2 q / (1 - q)^2 with q = exp(-1 / scale)."""
        rate = 1 / float(self.scale)
        return 2 * math.exp(-rate) / math.expm1(-rate) ** 2

    @property
    def octave(self) -> int:
        """floor(log2(scale)), at least 0."""
        return max(0, math.floor(self.scale).bit_length() - 1)

    def reach(self, bits: int) -> int:
        """About where the mass beyond is 2^-bits."""
        return math.ceil(float(self.scale) * math.log(2) * bits)

    def weight(self, k: int) -> arb:
        """exp(-|k| / scale)."""
        return ball(-abs(k) / self.scale).exp()


def _scale(name: str, value: object) -> Fraction:
    """The scale of a law, exact and in range."""
    if isinstance(value, bool) or not isinstance(value, (int, Fraction)):
        raise InvalidInput(f"{name} must be an int or a Fraction, got {value!r}; write Fraction('0.5') for a decimal")
    if not LEAST_SCALE <= value <= GREATEST_SCALE:
        raise InvalidInput(f"{name} must be from 2^-10 to 2^55, got {value}; rescale the lattice")
    return Fraction(value)


def _erfc(x: Fraction) -> arb:
    """erfc(x / sqrt 2) = 2 P(N > x)."""
    return (ball(x) / ball(Fraction(2)).sqrt()).erfc()


@lru_cache(maxsize=64)
def _summed(law: NoiseLaw) -> float:
    """The variance as a sum over the integers."""
    weights = [float(law.weight(k)) for k in range(law.reach(160) + 3)]
    return 2 * math.fsum(w * k * k for k, w in enumerate(weights)) / (2 * math.fsum(weights) - weights[0])
