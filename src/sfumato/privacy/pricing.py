"""Whether a measurement costs what it claims: the checks that stand between a plan and the data."""

from __future__ import annotations

from sfumato.privacy.accountant import Event, GaussianEvent, PureEvent, ZcdpEvent
from sfumato.privacy.noise import DiscreteGaussian, DiscreteLaplace, NoiseLaw, RoundedGaussian
from sfumato.privacy.sensitivity import Sensitivity

__all__ = ["fits", "power_of"]


def power_of(noise: NoiseLaw) -> int:
    """Which sensitivity prices a law: 1 (L1) for Laplace, 2 (squared L2) for Gaussian noise."""
    return 1 if isinstance(noise, DiscreteLaplace) else 2


def fits(found: Sensitivity, noise: NoiseLaw, price: Event) -> bool:
    """Whether measuring at this sensitivity with this noise costs at most `price`; exact rationals decide."""
    # by the exact classes: one that derives from them may draw or state something else
    if type(noise) is RoundedGaussian and type(price) is GaussianEvent:
        return found.power == 2 and found.value <= price.mu_squared * noise.sigma**2
    if type(noise) is DiscreteGaussian and type(price) is ZcdpEvent:
        return found.power == 2 and found.value <= 2 * price.rho * noise.sigma**2
    if type(noise) is DiscreteLaplace and type(price) is PureEvent:
        return found.power == 1 and found.value <= price.epsilon * noise.scale
    return False
