"""Mechanisms of one look that are asked for by name: noise on queries or cells [DMNS06, DKMMN06], trees,
factorizations, residuals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from sfumato.errors import PlanError
from sfumato.mechanisms.registry import check_whole_option
from sfumato.mechanisms.searches import Search, labelled, tree_search
from sfumato.mechanisms.tables import Designed


@dataclass(frozen=True, repr=False, kw_only=True)
class _DirectNoise(Designed):
    laws: ClassVar[tuple[str, ...]]
    measures: ClassVar[Literal["refused", "beside", "summed"]] = "beside"
    label: ClassVar[str] = "direct"
    grouped: ClassVar[bool] = True
    takes_strategy: ClassVar[bool] = True
    considers: ClassVar[tuple[str, ...]] = ("direct",)
    textbook: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise not in self.laws:
            raise PlanError(
                f"mechanism={self.name!r} is noise of that law, and noise={self.noise!r} another; leave one of them out"
            )

    @property
    def searches(self) -> tuple[Search, ...]:
        return labelled(self.label)


@dataclass(frozen=True, repr=False, kw_only=True)
class Laplace(_DirectNoise):
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
    laws: ClassVar[tuple[str, ...]] = ("laplace",)


@dataclass(frozen=True, repr=False, kw_only=True)
class Gaussian(_DirectNoise):
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
    laws: ClassVar[tuple[str, ...]] = ("gaussian", "discrete-gaussian")


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
    grouped: ClassVar[bool] = True
    measures: ClassVar[Literal["refused", "beside", "summed"]] = "beside"
    label: ClassVar[str] = "tree"
    considers: ClassVar[tuple[str, ...]] = ("tree",)
    textbook: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole_option("branching", self.branching, 2, 10**6)

    @property
    def searches(self) -> tuple[Search, ...]:
        return (tree_search(self.branching),)


@dataclass(frozen=True, repr=False, kw_only=True)
class Factorization(Designed):
    """Optimal dense strategies, their Kronecker products, and stacks of them.

    Args:
        noise: "gaussian", "laplace" or "discrete-gaussian"; None takes what the budget is best spent on.
        lattice: "fine", or "unit", which measures plain integer counts.

    Raises:
        PlanError: An option is not allowed.

    Source:
        [LHR10], [NTZ13], [ENU20]
    """

    name: ClassVar[str] = "factorization"
    grouped: ClassVar[bool] = True
    measures: ClassVar[Literal["refused", "beside", "summed"]] = "summed"
    label: ClassVar[str] = "factorization"
    considers: ClassVar[tuple[str, ...]] = ("factorization",)

    @property
    def searches(self) -> tuple[Search, ...]:
        return labelled(self.label)


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
    grouped: ClassVar[bool] = True
    measures: ClassVar[Literal["refused", "beside", "summed"]] = "beside"
    label: ClassVar[str] = "marginals"
    considers: ClassVar[tuple[str, ...]] = ("marginals",)
    takes_public: ClassVar[bool] = True

    @property
    def searches(self) -> tuple[Search, ...]:
        return labelled(self.label)
