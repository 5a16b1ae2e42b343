"""What an earlier release measured and saw, for a plan that follows it: public, so nothing about it costs anything."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.design import Problem
from sfumato.designs.marginals.incidence import locate
from sfumato.errors import NotAnswerable, PlanError
from sfumato.estimate.local import ResidualNoise
from sfumato.estimate.mixtures.product import disbelief
from sfumato.operators.base import FloatArray
from sfumato.releases import Release
from sfumato.releases.pooling import noisy_pairs, residual_noise

__all__ = ["Earlier"]

# that independence is denied though it holds costs what no first look would have cost; that it is believed though pairs
# say something costs less than they were told apart by
_DENIED = 0.02


@dataclass(frozen=True, slots=True)
class Earlier:
    """noise: the variance of every residual that was measured, by positions in the domain; mu_squared: its budget;
    dependent: whether its pairs say something beyond their attributes."""

    noise: ResidualNoise
    mu_squared: Fraction
    dependent: bool
    count: int

    @classmethod
    def of(cls, release: Release, problem: Problem) -> Earlier:
        """Of a release of the same domain under the same unit. Raises PlanError."""
        plan = release.plan
        if plan.workload.domain != problem.workload.domain or plan.unit != problem.unit:
            raise PlanError(
                f"{release.provenance.name!r} was released over another domain or for another unit than this plan is "
                "for; after= takes a release of the same domain, neighbours and rows per person"
            )
        try:
            dependent = disbelief(noisy_pairs(release)) < _DENIED
            noise = residual_noise([release], range(len(problem.workload.domain.names)))
        except NotAnswerable as error:
            raise PlanError(f"after= takes a release of mechanism='adaptive', or such a one: {error}") from error
        return cls(noise, plan.budget.mu_squared, dependent, len(problem.workload.domain.names))

    def precisions(self, sets: NDArray[np.int32]) -> FloatArray:
        """(s,) one over the variances of residuals of sets of one order; 0 where they were not measured."""
        order = sets.shape[1]
        if order >= len(self.noise.sets) or not len(self.noise.sets[order]):
            return np.zeros(len(sets))
        places = locate(self.noise.sets[order], sets, self.count)
        return np.where(places < 0, 0.0, 1 / np.asarray(self.noise.variances[order], dtype=np.float64)[places])
