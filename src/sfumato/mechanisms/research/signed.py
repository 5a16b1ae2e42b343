"""The projection of [BR11]: signed sums of all keys, with Gaussian noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sfumato.mechanisms.sketched import INDEPENDENCE, Sketched, Stated, check_independence, dimension_for, gaussian
from sfumato.plans.keys import KeyPlan
from sfumato.sketches import Signs

__all__ = ["SparseProject"]


@dataclass(frozen=True, repr=False, kw_only=True)
class SparseProject(Sketched):
    """Any later query. dimension: signs; by default as many as balance noise and projection. independence: of the
    hash, which changes accuracy alone, never privacy."""

    dimension: int | None = None
    independence: int = INDEPENDENCE

    name: ClassVar[str] = "sparse-project"

    def __post_init__(self) -> None:
        check_independence(self.independence)

    def sketch(self, stated: Stated) -> KeyPlan:
        size = self.dimension
        if size is None:
            size = dimension_for(stated.budget, stated.unit, stated.records)
        signs = Signs.draw(size, self.independence)
        noise, event = gaussian(signs, stated.budget, stated.unit)
        return KeyPlan(stated.keys, stated.budget, stated.unit, self.name, signs, noise, event, None, stated.records)
