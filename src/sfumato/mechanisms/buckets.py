"""The count-sketch: every key hashed into one of some buckets, with a sign."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sfumato.mechanisms.sketched import INDEPENDENCE, Sketched, Stated, cheapest, check_independence, width_for
from sfumato.plans.keys import KeyPlan
from sfumato.sketches import Buckets

__all__ = ["CountSketch"]


@dataclass(frozen=True, repr=False, kw_only=True)
class CountSketch(Sketched):
    """Any later query, with pure epsilon or Gaussian noise, whichever is less.

    width: buckets, a power of two; by default ten for a record. independence: of the hash, which changes accuracy
    alone, never privacy.
    """

    width: int | None = None
    independence: int = INDEPENDENCE

    name: ClassVar[str] = "count-sketch"

    def __post_init__(self) -> None:
        check_independence(self.independence)

    def sketch(self, stated: Stated) -> KeyPlan:
        width = width_for(stated.records) if self.width is None else self.width
        buckets = Buckets.draw(width, self.independence)
        noise, event = cheapest(buckets, stated.budget, stated.unit)
        own = (stated.keys, stated.budget, stated.unit, self.name)
        return KeyPlan(*own, buckets, noise, event, None, stated.records)
