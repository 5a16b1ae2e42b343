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
    """Discrete Laplace noise on the queries or on the cells, or on a strategy that is given.

    Args:
        noise: "laplace".
        lattice: "fine", or "unit", which measures plain integer counts.

    Raises:
        PlanError: The noise is of another law, or there is no such lattice.

    Source:
        [DMNS06]
    """

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
    """Gaussian noise on the queries or on the cells, or on a strategy that is given.

    Args:
        noise: "gaussian", or "discrete-gaussian".
        lattice: "fine", or "unit", which measures plain integer counts.

    Raises:
        PlanError: The noise is of another law, or there is no such lattice.

    Source:
        [DKMMN06], [CKS20] for the discrete law
    """

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
    """Trees of counts over an ordered attribute.

    Args:
        branching: The number of children of a node, from 2 on; None takes those that err least.
        noise: "gaussian", "laplace" or "discrete-gaussian"; None takes what the budget is best spent on.
        lattice: "fine", or "unit", which measures plain integer counts.

    Raises:
        PlanError: An option is not allowed.

    Source:
        [CSS11], [DNPR10], [HRMS10]
    """

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
    """Residuals of marginal tables: plain, tilted for unions, at the levels of a tree, or of other factors than cells.

    It is the one mechanism that uses public tables (`public`).

    Args:
        noise: "gaussian", "laplace" or "discrete-gaussian"; None takes what the budget is best spent on.
        lattice: "fine", or "unit", which measures plain integer counts.

    Raises:
        PlanError: An option is not allowed.

    Source:
        [XZK23]
    """

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
