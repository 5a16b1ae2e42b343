"""A mechanism as somebody would add one: one file. And a builder of workloads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import sfumato as sf
from sfumato.mechanisms.tables import Designed
from sfumato.strategies import direct
from sfumato.strategies.design import Design, Problem

__all__ = ["Plain", "every_other", "read_every_other"]


@dataclass(frozen=True, repr=False, kw_only=True)
class Plain(Designed):
    """Noise on every cell of the joint table, `plain` sums or not."""

    sums: bool = True

    name: ClassVar[str] = "plain-cells"
    label: ClassVar[str] = "plain-cells"
    automatic: ClassVar[bool] = False

    def designs(self, problem: Problem, progress: Any) -> list[Design]:
        return [direct.design_cell_noise(problem, plain=self.sums)]


def every_other(domain: sf.Domain, attribute: str) -> sf.Workload:
    """The records whose cell has an even number."""
    row = np.arange(domain[attribute].size) % 2 == 0
    return sf.queries(row[None].astype(np.int64), domain=domain, attribute=attribute).named("every other")


def read_every_other(entry: Any, domain: sf.Domain) -> sf.Workload:
    """The same from a spec: every_other = "age"."""
    return every_other(domain, entry.text("every_other"))
