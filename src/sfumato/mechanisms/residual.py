"""Marginal tables by their residuals, in closed form. [XZK23]"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sfumato.designs.design import Candidate, Design, Problem
from sfumato.designs.marginals import planning as marginals
from sfumato.designs.spine import planning as spine
from sfumato.designs.spine.totals import relation
from sfumato.designs.weighted import planning as weighted
from sfumato.errors import PlanError
from sfumato.ground.progress import Progress
from sfumato.mechanisms.tables import Designed

__all__ = ["Marginals"]


@dataclass(frozen=True, repr=False, kw_only=True)
class Marginals(Designed):
    """Residuals of marginal tables, plain, tilted for unions, at the levels of a tree, or of other factors than cells;
    knows public tables."""

    name: ClassVar[str] = "marginals"
    label: ClassVar[str] = "marginals"
    considers: ClassVar[tuple[str, ...]] = ("marginals",)
    takes_public: ClassVar[bool] = True
    best_of_many: ClassVar[bool] = True

    def designs(self, problem: Problem, progress: Progress | None) -> list[Design]:
        return self.searched(problem, progress)[0]

    def searched(self, problem: Problem, progress: Progress | None) -> tuple[list[Design], list[Candidate]]:
        refused: list[Candidate] = []
        found = spine.designs(problem)
        if not found and problem.unit.within is not None:
            raise PlanError(
                f"neighbours={relation(problem.unit)!r} is for tables of cells at levels of one attribute, "
                "factors={...: 'levels'}, with Gaussian noise and the mean error"
            )
        if found and (spine.tall(problem) or problem.unit.within is not None):
            return found, refused
        return [*found, *marginals.designs(problem, refused), *weighted.designs(problem)], refused
