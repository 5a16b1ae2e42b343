"""The hybrid: a stability histogram shows heavy keys, and a count-sketch holds what they leave over."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from sfumato.errors import PlanError
from sfumato.mechanisms.sketched import INDEPENDENCE, Sketched, Stated, check_independence, width_for
from sfumato.mechanisms.thresholds import least_threshold
from sfumato.plans.keys import KeyPlan
from sfumato.privacy.accountant import ApproxEvent
from sfumato.privacy.amounts import Number, exact
from sfumato.privacy.keyed import Stability, key_sensitivity
from sfumato.privacy.noise import DiscreteLaplace
from sfumato.sketches import Buckets

__all__ = ["Hybrid"]

# An eighth of epsilon finds the keys that are heavy enough to matter; half would double every error (decisions/0015).
_SHARE = Fraction(1, 8)


@dataclass(frozen=True, repr=False, kw_only=True)
class Hybrid(Sketched):
    """Any later query, and the heavy keys by name.

    share: of epsilon, for finding heavy keys, with all of delta; width and independence as of a count-sketch. One
    record a person.
    """

    width: int | None = None
    independence: int = INDEPENDENCE
    share: Number = _SHARE

    name: ClassVar[str] = "hybrid"

    def __post_init__(self) -> None:
        check_independence(self.independence)
        if not 0 < exact(self.share, "share") < 1:
            raise PlanError(f"share is the part of epsilon that finds heavy keys, between 0 and 1, not {self.share!r}")

    def sketch(self, stated: Stated) -> KeyPlan:
        budget, unit = stated.budget, stated.unit
        width = width_for(stated.records) if self.width is None else self.width
        buckets = Buckets.draw(width, self.independence)
        if budget.kind != "approx" or budget.delta is None:
            raise PlanError(
                "a hybrid shows heavy keys, which takes an (epsilon, delta) budget such as sf.approx(1, '1e-6'); "
                "with any other take a count-sketch"
            )
        epsilon, changed = budget.parameter, key_sensitivity(buckets, unit, 1).value
        share = exact(self.share, "share")
        shown = DiscreteLaplace(changed / (share * epsilon))
        stability = Stability(shown, least_threshold(shown, budget.delta))
        stability.epsilon(unit)  # refuses persons with several records
        noise = DiscreteLaplace(changed / ((1 - share) * epsilon))
        price = ApproxEvent(epsilon, budget.delta)
        return KeyPlan(stated.keys, budget, unit, self.name, buckets, noise, price, stability, stated.records)
