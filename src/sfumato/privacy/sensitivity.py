"""How far a measurement may move between neighbours, as an exact integer."""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.ground.codec import storable

__all__ = ["Sensitivity"]


@storable
@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The largest sum of |change|^power over neighbours: L1 for power 1, squared L2 for power 2.

    `exact` is False where `value` is a proved upper bound that need not be attained.
    """

    power: int
    value: int
    exact: bool
