"""All cells measured once when the session opens: every question is then free, for ever."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sfumato.domain import Domain
from sfumato.operators import Block
from sfumato.plans.plan import Plan
from sfumato.releases import Release
from sfumato.sessions.answers import SessionAnswer
from sfumato.sessions.core import QuerySession

__all__ = ["HistogramSession"]


@dataclass(frozen=True, slots=True, repr=False)
class HistogramSession(QuerySession):
    """A session whose cells were all measured at its opening. Made by `sf.open`.

    `release` holds them. Every interval is of its own: it holds with probability 1 - beta for any one question.
    """

    release: Release
    beta: float = 0.05

    whole = False

    @property
    def domain(self) -> Domain:
        return self.release.plan.workload.domain

    @property
    def plan(self) -> Plan:
        return self.release.plan

    def status(self) -> dict[str, Any]:
        return {
            "mechanism": "histogram",
            "questions": None,
            "updates_left": None,
            "exhausted": False,
            "confidence": 1 - self.beta,
            "standard_error_of_a_cell": self.plan.mean_error,
        }

    def headline(self) -> str:
        return "Session: every cell was measured at the opening; questions are free and any number may be asked"

    def appended(self) -> Iterator[str]:
        yield self.release.explain()

    def _check(self, block: Block) -> None:
        """Every question over the domain is a sum of cells."""

    def _ask(self, block: Block, label: str) -> SessionAnswer:
        value = float(self.release.answer_block(block)[0])
        error = math.sqrt(float(self.release.variances(block).reshape(-1)[0]))
        bound = float(self.release.margins(block, 1 - self.beta).reshape(-1)[0])
        return SessionAnswer(value, "histogram", guaranteed=True, bound=bound, standard_error=error, label=label)

    def brief(self) -> str:
        return f"{self.domain.size:,} cells measured once"
