"""The search for exact integer sensitivities: proposals how to bound them, and the wall's own arithmetic on each.

What is searched here is checked at the wall by the same code, `privacy/sensitivity`, from the certificate alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sfumato.designs.pricing.proposals import proposals
from sfumato.operators import Block, Combination, Family
from sfumato.privacy.sensitivity import Certificate, Sensitivity, priced
from sfumato.privacy.unit import PrivacyUnit

__all__ = ["certificate", "searched", "sensitivity"]

Strategy = Sequence[Block | Family | Combination]


def sensitivity(blocks: Strategy, sizes: Mapping[str, int], unit: PrivacyUnit, power: int) -> Sensitivity:
    """The sensitivity of measuring all blocks together, in exact integers.

    power 1: max ||B(x - x')||_1; power 2: max ||B(x - x')||_2^2; over neighbouring tables x, x'.
    Raises PlanError for another power or a strategy that is not integral, WorkloadError for factors that
    do not fit `sizes`.
    """
    return searched(blocks, sizes, unit, power)[0]


def certificate(blocks: Strategy, sizes: Mapping[str, int], unit: PrivacyUnit, power: int) -> Certificate | None:
    """What the planner hands to the wall with a replace-one price: how to prove it. None where none is needed."""
    return searched(blocks, sizes, unit, power)[1]


def searched(
    blocks: Strategy, sizes: Mapping[str, int], unit: PrivacyUnit, power: int
) -> tuple[Sensitivity, Certificate | None]:
    """Both at once."""
    return priced([b.lowered() for b in blocks], sizes, unit, power, proposals)
