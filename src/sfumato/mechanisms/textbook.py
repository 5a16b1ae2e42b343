"""Noise on every query, or on every cell with the queries summed from them: Laplace or Gaussian. [DMNS06, DKMMN06]"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sfumato._util.display import Progress
from sfumato.errors import PlanError
from sfumato.mechanisms.mechanism import whole
from sfumato.mechanisms.tables import Designed
from sfumato.strategies import direct, geography_planning, ordered_planning, residual_planning, trees, weighted_planning
from sfumato.strategies.design import Candidate, Design, Problem
from sfumato.strategies.factors import MAX_DENSE_CELLS
from sfumato.strategies.geography_tree import relation

__all__ = ["Gaussian", "Laplace", "Marginals", "TreeMechanism"]


_GAUSSIAN = ("gaussian", "discrete-gaussian")


class _Direct(Designed):
    label: ClassVar[str] = "direct"
    takes_strategy: ClassVar[bool] = True
    considers: ClassVar[tuple[str, ...]] = ("direct",)
    textbook: ClassVar[bool] = True

    def designs(self, problem: Problem, progress: Progress | None) -> list[Design]:
        return direct.designs(problem)


@dataclass(frozen=True, repr=False, kw_only=True)
class Laplace(_Direct):
    """Discrete Laplace noise on queries or cells, or on a strategy that is given."""

    noise: str | None = "laplace"

    name: ClassVar[str] = "laplace"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise != "laplace":
            raise PlanError(
                f"mechanism='laplace' is noise of that law, and noise={self.noise!r} another; leave one of them out"
            )


@dataclass(frozen=True, repr=False, kw_only=True)
class Gaussian(_Direct):
    """Gaussian noise on queries or cells, or on a strategy that is given; `noise` may say "discrete-gaussian"."""

    noise: str | None = "gaussian"

    name: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise not in _GAUSSIAN:
            raise PlanError(
                f"mechanism='gaussian' is noise of that law, and noise={self.noise!r} another; leave one of them out"
            )


_LISTED, _LINE = 2**17, 512  # queries, and cells of their attribute: a second for trees of ten branchings and more


@dataclass(frozen=True, repr=False, kw_only=True)
class TreeMechanism(Designed):
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
        return trees.designs(problem, self.branching)

    def skipped(self, problem: Problem, *, auto: bool) -> str:
        reason = super().skipped(problem, auto=auto)
        # to list the errors of that many takes as long as to find the optimum
        least = MAX_DENSE_CELLS if len(problem.workload) <= _LISTED else _LINE
        if not reason and auto and not problem.unit_lattice and ordered_planning.applies(problem, least):
            return "not tried: on so many cells the factorization errs less"
        return reason


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
        found = geography_planning.designs(problem)
        if not found and problem.unit.within is not None:
            raise PlanError(
                f"neighbours={relation(problem.unit)!r} is for tables of cells at levels of one attribute, "
                "factors={...: 'levels'}, with Gaussian noise and the mean error"
            )
        if found and (geography_planning.tall(problem) or problem.unit.within is not None):
            return found, refused
        return [*found, *residual_planning.designs(problem, refused), *weighted_planning.designs(problem)], refused
