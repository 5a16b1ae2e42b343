"""Noise on every query, or on every cell with the queries summed from them: Laplace or Gaussian. [DMNS06, DKMMN06]"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sfumato.designs import direct
from sfumato.designs.design import Design, Problem
from sfumato.errors import PlanError
from sfumato.ground.progress import Progress
from sfumato.mechanisms.tables import Designed

__all__ = ["Gaussian", "Laplace"]

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
