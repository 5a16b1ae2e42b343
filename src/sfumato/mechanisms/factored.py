"""The factorization mechanism: the strategy of least error over all, with its proof. [LHR10, ENU20]"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sfumato.designs import matrix
from sfumato.designs.design import Design, Problem
from sfumato.ground.progress import Progress
from sfumato.mechanisms.tables import Designed

__all__ = ["Factorization"]


@dataclass(frozen=True, repr=False, kw_only=True)
class Factorization(Designed):
    """Optimal dense strategies, their Kronecker products, and stacks of them."""

    name: ClassVar[str] = "factorization"
    label: ClassVar[str] = "factorization"
    considers: ClassVar[tuple[str, ...]] = ("factorization",)

    def designs(self, problem: Problem, progress: Progress | None) -> list[Design]:
        return matrix.designs(problem, progress)

    def skipped(self, problem: Problem, *, auto: bool) -> str:
        reason = super().skipped(problem, auto=auto)
        return reason or ("real coefficients need the fine lattice" if problem.unit_lattice else "")
