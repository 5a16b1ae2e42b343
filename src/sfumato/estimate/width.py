"""How wide a body of possible answers is: Gaussian width, mean width, support function. [NTZ13]

With h the support function, the mean width of a body K in R^k is M*(K) = E h(u), u uniform on the unit sphere, and its
Gaussian width l*(K) = E h(g), g standard normal: l* = c_k M*, c_k = E |g| = sqrt(2) Gamma((k + 1) / 2) / Gamma(k / 2).
Where noise of deviation s is on every answer, the expected squared error of the projection mechanism is at most
n s l*(K) / k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from sfumato.errors import InvalidInput
from sfumato.estimate.bodies import BODIES, suits
from sfumato.estimate.projection import joint_attributes
from sfumato.estimate.supports import Reach, Support, support_of
from sfumato.operators.base import FloatArray, real_array
from sfumato.workloads import Workload

__all__ = ["Width", "width"]

# 200 know a mean to a fourteenth of a deviation, which is said; a million to a thousandth
_DRAWS, _MOST_DRAWS = 200, 10**6


@dataclass(frozen=True, slots=True, repr=False)
class Width:
    """The body of possible answers of one record (shares), and how wide it is.

    body: which. queries: k. gaussian, mean: l*(K) and M*(K), each with the standard error of its simulation, infinite
    for a cone. slack: by how much, at most, `gaussian` is too small because maxima were found within a proved bound
    only (0 where they are exact, up to rounding). draws: pairs of opposite directions.
    """

    body: str
    queries: int
    gaussian: float
    gaussian_error: float
    mean: float
    mean_error: float
    slack: float
    draws: int
    _reach: Support = field(repr=False, compare=False)

    def support(self, direction: ArrayLike) -> float:
        """h(y), the largest <y, a> over the points a of the body, for a (k,) direction; exact up to `reach`."""
        return self.reach(direction).value

    def farthest(self, direction: ArrayLike) -> FloatArray | None:
        """(k,) a point of the body where h(y) is reached, the linear oracle's answer; None where a cone has none."""
        return self.reach(direction).point

    def reach(self, direction: ArrayLike) -> Reach:
        """`value`, a proved `bound` on h(y) from above, and the point."""
        given = real_array(direction, "a direction").astype(np.float64)
        if given.shape != (self.queries,) or not np.isfinite(given).all():
            raise InvalidInput(f"a direction is of {self.queries:,} finite numbers, not of shape {given.shape}")
        return self._reach(given)

    def error(self, noise: float, records: int) -> float:
        """At most so large is the root mean squared error, in records, of projecting noise of that deviation on every
        answer, for a table of so many records: sqrt(n s (l* + 3 standard errors + slack) / k), at most s. [NTZ13]
        """
        for name, given in (("noise", noise), ("records", records)):
            if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 < given < math.inf:
                raise InvalidInput(f"{name} must be a positive number, not {given!r}")
        wide = self.gaussian + 3 * self.gaussian_error + self.slack
        return min(float(noise), math.sqrt(records * noise * wide / self.queries))

    def __repr__(self) -> str:
        return (
            f"<Width of {self.body!r} in {self.queries:,} queries: Gaussian {self.gaussian:.5g} ± "
            f"{self.gaussian_error:.2g}, mean {self.mean:.5g} ± {self.mean_error:.2g}>"
        )


def width(work: Workload, body: str = "auto", *, draws: int = _DRAWS, rng: int | np.random.Generator = 0) -> Width:
    """The Gaussian and the mean width of the body that answers to `work` lie in, with its support function.

    body: as in `sf.project`, with a known total of one record ("auto", "simplex", "isotonic", "hull", "local", "sdp",
    "sdp+local", "exact"), or "cone", which is infinitely wide; "mixtures" is no body. The widths are those of shares of
    the records; of n records they are n times as large. `draws` directions, seeded by `rng`, are each taken with its
    opposite: h(u) + h(-u) does not change when the body is moved, and neither do the widths.

    Definitions 5 to 7 and Theorem 8 of the notes on the projection mechanism [NTZ13]; in the proved form, n s l*(K) / k
    bounds the expected mean squared error in records, without any constant left open. Raises InvalidInput.
    """
    if not isinstance(work, Workload):
        raise InvalidInput("width needs a workload, made by sf.marginals, sf.queries, ...")
    if body not in BODIES or body == "mixtures":
        kept = ", ".join(b for b in BODIES if b != "mixtures")
        raise InvalidInput(
            f"body must be one of {kept}, not {body!r}" + " (which is a model, no body)" * (body in BODIES)
        )
    if type(draws) is not int or not 2 <= draws <= _MOST_DRAWS:
        raise InvalidInput(f"draws is a whole number from 2 to {_MOST_DRAWS:,}, not {draws!r}")
    chosen = suits(work, 1.0) if body == "auto" else body
    found = support_of(chosen, work)
    k = len(work)
    if chosen == "cone" and joint_attributes(work):
        return Width(chosen, k, math.inf, 0.0, math.inf, 0.0, 0.0, 0, found)
    random, halves, slack = np.random.default_rng(rng), np.empty(draws), 0.0
    for i in range(draws):
        direction = random.standard_normal(k)
        direction /= np.linalg.norm(direction)
        ends = found(direction), found(-direction)
        halves[i] = sum(e.value for e in ends) / 2
        slack += sum(e.bound - e.value for e in ends) / (2 * draws)
    mean, error = float(halves.mean()), float(halves.std(ddof=1)) / math.sqrt(draws)
    length = math.sqrt(2) * math.exp(math.lgamma((k + 1) / 2) - math.lgamma(k / 2))
    slack = slack if slack > 1e-9 * abs(mean) else 0.0
    return Width(chosen, k, length * mean, length * error, mean, error, length * slack, draws, found)
