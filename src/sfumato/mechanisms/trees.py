"""Trees of sums over an ordered attribute, answered by least squares. [HRMS10]"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sfumato.designs.design import Design, Problem
from sfumato.designs.factors import MAX_DENSE_CELLS
from sfumato.designs.ordered import hierarchical
from sfumato.designs.ordered import planning as ordered
from sfumato.ground.progress import Progress
from sfumato.mechanisms.mechanism import whole
from sfumato.mechanisms.tables import Designed

__all__ = ["Tree"]

_LISTED, _LINE = 2**17, 512  # queries, and cells of their attribute: a second for trees of ten branchings and more


@dataclass(frozen=True, repr=False, kw_only=True)
class Tree(Designed):
    """Trees of `branching` children to a node; by default of those that err least."""

    branching: int | None = None

    name: ClassVar[str] = "tree"
    label: ClassVar[str] = "tree"
    considers: ClassVar[tuple[str, ...]] = ("tree",)
    textbook: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("branching", self.branching, 2, 10**6)

    def designs(self, problem: Problem, progress: Progress | None) -> list[Design]:
        return hierarchical.designs(problem, self.branching)

    def skipped(self, problem: Problem, *, auto: bool) -> str:
        reason = super().skipped(problem, auto=auto)
        # to list the errors of that many takes as long as to find the optimum
        least = MAX_DENSE_CELLS if len(problem.workload) <= _LISTED else _LINE
        if not reason and auto and not problem.unit_lattice and ordered.applies(problem, least):
            return "not tried: on so many cells the factorization errs less"
        return reason
