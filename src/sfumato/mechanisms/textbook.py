"""Mechanisms of one look that are asked for by name: noise on queries or cells [DMNS06, DKMMN06], trees,
factorizations, residuals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sfumato.errors import PlanError
from sfumato.mechanisms.mechanism import whole
from sfumato.mechanisms.searches import Search, labelled, tree_search
from sfumato.mechanisms.tables import Designed

__all__ = ["Factorization", "Gaussian", "Laplace", "Marginals", "TreeMechanism"]


_GAUSSIAN = ("gaussian", "discrete-gaussian")


class _Direct(Designed):
    label: ClassVar[str] = "direct"
    takes_strategy: ClassVar[bool] = True
    considers: ClassVar[tuple[str, ...]] = ("direct",)
    textbook: ClassVar[bool] = True

    @property
    def searches(self) -> tuple[Search, ...]:
        return labelled(self.label)


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

    @property
    def searches(self) -> tuple[Search, ...]:
        return (tree_search(self.branching),)


@dataclass(frozen=True, repr=False, kw_only=True)
class Factorization(Designed):
    """Optimal dense strategies, their Kronecker products, and stacks of them."""

    name: ClassVar[str] = "factorization"
    label: ClassVar[str] = "factorization"
    considers: ClassVar[tuple[str, ...]] = ("factorization",)

    @property
    def searches(self) -> tuple[Search, ...]:
        return labelled(self.label)


@dataclass(frozen=True, repr=False, kw_only=True)
class Marginals(Designed):
    """Residuals of marginal tables, plain, tilted for unions, at the levels of a tree, or of other factors than cells;
    knows public tables."""

    name: ClassVar[str] = "marginals"
    label: ClassVar[str] = "marginals"
    considers: ClassVar[tuple[str, ...]] = ("marginals",)
    takes_public: ClassVar[bool] = True

    @property
    def searches(self) -> tuple[Search, ...]:
        return labelled(self.label)
