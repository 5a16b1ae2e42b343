"""The factorization mechanism: the strategy of least error over all, with its proof. [LHR10, ENU20]"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from sfumato.designs import matrix
from sfumato.designs.compound import joined
from sfumato.designs.design import Candidate, Design, Problem
from sfumato.designs.marginals.residuals import Residuals
from sfumato.designs.merged.planning import spanned_design
from sfumato.designs.spectral import planning as spectral
from sfumato.designs.unions.orbit_bound import orbit_bound
from sfumato.designs.unions.planning import few_rows
from sfumato.errors import SfumatoError
from sfumato.ground.progress import Progress
from sfumato.mechanisms.tables import Designed, Tried
from sfumato.plans.plan import Plan, at_budget, price_design
from sfumato.privacy.unit import Neighbours

__all__ = ["Factorization", "refined"]

_NEAR = 5e-3  # of the best plan from its bound: what is left to gain is not worth half a minute

_START = 1.1  # times the best: residuals further off do not come down to it


@dataclass(frozen=True, repr=False, kw_only=True)
class Factorization(Designed):
    """Optimal dense strategies, their Kronecker products, and stacks of them."""

    name: ClassVar[str] = "factorization"
    label: ClassVar[str] = "factorization"
    considers: ClassVar[tuple[str, ...]] = ("factorization",)

    def designs(self, problem: Problem, progress: Progress | None) -> list[Design]:
        return matrix.designs(problem, progress)

    def searched(self, problem: Problem, progress: Progress | None) -> tuple[list[Design], list[Candidate]]:
        return matrix.searched(problem, progress)

    def tried(self, problem: Problem, progress: Progress | None) -> Tried:
        return refined(problem, super().tried(problem, progress), progress)

    def least(self, problem: Problem) -> Sequence[Plan]:
        return super().tried(problem, None).plans

    def skipped(self, problem: Problem, *, auto: bool) -> str:
        reason = super().skipped(problem, auto=auto)
        return reason or ("real coefficients need the fine lattice" if problem.unit_lattice else "")


def refined(problem: Problem, found: Tried, progress: Progress | None) -> Tried:
    """With what takes seconds more, where the plans that were found stand off their bound.

    That is the optimum over rows that span all queries; where there are too many of these, over the sums that
    symmetries leave of them; where neither comes near the bound, products of basis vectors with noise levels of their
    own; and a better bound.
    """
    if problem.unit_lattice:
        return found
    for title, find in _SECONDS.items():
        if _off(found.plans) > _NEAR and (title != _BASES or _tilts(found)):
            found = _with(problem, found, title, functools.partial(find, problem, _least(found), progress))
    return _bounded(problem, found)


def _tilts(found: Tried) -> bool:
    """Whether residuals, which products of basis vectors start from, are near the best."""
    best = min((p.objective_value for p in found.plans), default=0.0)
    return any(isinstance(p.strategy, Residuals) and p.objective_value <= best * _START for p in found.plans)


def _bounded(problem: Problem, found: Tried) -> Tried:
    """With a bound from weights constant on orbits, where the plans stand off those that they have."""
    replaced = problem.unit.total_is_public
    ours = replaced or problem.unit.neighbours is Neighbours.ADD_REMOVE
    if not found.plans or _off(found.plans) <= _NEAR or problem.noise != "gaussian" or problem.largest or problem.known:
        return found
    if not ours or all(i.is_marginal for i in problem.workload.items):
        return found
    try:
        whole = joined(problem)[0]
        products = whole.products
    except SfumatoError:  # more tables than are listed one by one, or too many joint cells
        return found
    proved = None if products is None else orbit_bound(products, whole.sizes, replaced=replaced)
    place = min(range(len(found.plans)), key=lambda i: found.plans[i].objective_value)
    best = found.plans[place]
    if proved is None or at_budget(problem, proved) <= max((p.bound or 0.0 for p in found.plans), default=0.0):
        return found
    plans = list(found.plans)
    plans[place] = replace(best, bound=at_budget(problem, proved))
    return found._replace(plans=plans)


_BASES = "products of basis vectors"
_SECONDS: dict[str, Callable[[Problem, float, Progress | None], Design]] = {
    "the optimum over rows that span all queries": lambda p, _, told: spanned_design(p, told),
    "the optimum by symmetry over few rows": lambda p, _, told: few_rows(p, told),
    _BASES: lambda p, best, _: spectral.design(p, best),
}
"""Searches that take seconds, in order of cost, for the problem and the error of the best plan so far."""


def _with(problem: Problem, found: Tried, title: str, find: Callable[[], Design]) -> Tried:
    """With one more design, or a line that says why it does not apply."""
    try:
        design = find()
        plan = price_design(design, problem)
        _ = plan.rmse
    except SfumatoError as error:
        line = Candidate("factorization", title, None, None, str(error))
        return found._replace(refused=(*found.refused, line))
    return found._replace(plans=[*found.plans, plan], designs=(*found.designs, design))


def _off(plans: Sequence[Plan]) -> float:
    """How far the best of the plans stands above the best of their bounds; infinity where none is known."""
    best = min((p.objective_value for p in plans), default=math.inf)
    bound = max((p.bound for p in plans if p.bound is not None), default=0.0)
    return best / bound - 1 if bound > 0.0 else math.inf


def _least(found: Tried) -> float:
    """The root of the summed errors of the best plan at unit price; infinity where no bound tells it."""
    bound = max((d.bound for d in found.designs if d.bound is not None), default=0.0)
    return bound * (1 + _off(found.plans)) if bound > 0.0 else math.inf
