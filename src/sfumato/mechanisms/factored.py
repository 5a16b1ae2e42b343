"""The factorization mechanism: the strategy of least error over all, with its proof. [LHR10, ENU20]"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sfumato.designs import matrix
from sfumato.designs.design import Design, Problem
from sfumato.designs.merged.planning import spanned_design
from sfumato.errors import SfumatoError
from sfumato.ground.progress import Progress
from sfumato.mechanisms.tables import Designed, Tried
from sfumato.plans.plan import Plan, price_design

__all__ = ["Factorization", "refined"]

_NEAR = 5e-3  # of the best plan from its bound: what is left to gain is not worth half a minute


@dataclass(frozen=True, repr=False, kw_only=True)
class Factorization(Designed):
    """Optimal dense strategies, their Kronecker products, and stacks of them."""

    name: ClassVar[str] = "factorization"
    label: ClassVar[str] = "factorization"
    considers: ClassVar[tuple[str, ...]] = ("factorization",)

    def designs(self, problem: Problem, progress: Progress | None) -> list[Design]:
        return matrix.designs(problem, progress)

    def tried(self, problem: Problem, progress: Progress | None) -> Tried:
        return refined(problem, super().tried(problem, progress), progress)

    def least(self, problem: Problem) -> Sequence[Plan]:
        return super().tried(problem, None).plans

    def skipped(self, problem: Problem, *, auto: bool) -> str:
        reason = super().skipped(problem, auto=auto)
        return reason or ("real coefficients need the fine lattice" if problem.unit_lattice else "")


def refined(problem: Problem, found: Tried, progress: Progress | None) -> Tried:
    """With the optimum over rows that span all queries, where the plans that were found stand off their bound."""
    if problem.unit_lattice:
        return found
    best = min((p.objective_value for p in found.plans), default=None)
    bound = max((p.bound for p in found.plans if p.bound is not None), default=0.0)
    if best is not None and best <= bound * (1 + _NEAR):
        return found
    try:
        design = spanned_design(problem, progress)
        if design is None:
            return found
        plan = price_design(design, problem)
        _ = plan.rmse
    except SfumatoError:
        return found
    return found._replace(plans=[*found.plans, plan], designs=(*found.designs, design))
