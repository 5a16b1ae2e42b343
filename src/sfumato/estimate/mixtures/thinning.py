"""One measurement as two with independent noise: one half to fit and one held out. [NDGW24]

With z noise of the measurement's own law, y + a z and y - z / a are independent where y's noise is Gaussian, of
variances 1 + a^2 and 1 + 1 / a^2 times its own. Post-processing: it reads nothing but y.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sfumato.estimate.mixtures.stacked import Components, Noisy

__all__ = ["SHARE", "Halves", "halves"]

# a fitted half has 1 + 1/4 of the noise's variance, the held-out one 1 + 4: noise hurts a fit more than a ranking
SHARE = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class Halves:
    """fitted: the half that models are fitted to; held_out: the half that they are compared on."""

    noisy: Noisy
    fitted: Components
    held_out: Components

    def loss(self, found: Components) -> float:
        """Squared distance from the held-out half less what is common to all; its mean ranks true distances."""
        return self.noisy.inner(found, found.plus(self.held_out, -2.0))


def halves(noisy: Noisy, members: int, seed: int, share: float = SHARE) -> list[Halves]:
    """As many pairs of halves; their fitted halves have the measurement as mean. The seed makes public randomness."""
    random = np.random.default_rng(seed)
    draws = [noisy.noise(random) for _ in range(members)]
    if members > 1:
        middle = Components(
            np.mean([z.ones for z in draws], axis=0),
            np.mean([z.pairs for z in draws], axis=0),
        )
        zero = Components(np.zeros_like(middle.ones), np.zeros_like(middle.pairs))
        draws = [zero.plus(z.plus(middle, -1.0), math.sqrt(members / (members - 1))) for z in draws]
    return [Halves(noisy, noisy.values.plus(z, share), noisy.values.plus(z, -1 / share)) for z in draws]
