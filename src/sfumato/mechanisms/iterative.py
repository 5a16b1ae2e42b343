"""Iterative mechanisms, of several looks: what they share, and how their plans are carried out."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

from sfumato.designs.design import Candidate, Problem
from sfumato.errors import PlanError
from sfumato.mechanisms.mechanism import TABLES, Mechanism, Request, whole
from sfumato.mechanisms.registry import named
from sfumato.mechanisms.tables import problem_of
from sfumato.plans.iterative import IterativePlan
from sfumato.releases import Provenance
from sfumato.releases.modelled import Findings, ModelRelease
from sfumato.wall import Curator

__all__ = ["Iterative", "check_rounds", "run_rounds"]


@dataclass(frozen=True, repr=False, kw_only=True)
class Iterative(Mechanism[IterativePlan]):
    """A mechanism that looks several times, each time depending on the looks before.

    rounds: how often; by default by a rule of its own, from public numbers. `kind` is the class of its plan's rounds, a
    storable value; `run` looks through a curator whose account holds the plan's price and nothing else, and brings home
    what came out and a model made of it.
    """

    rounds: int | None = None

    kind: ClassVar[type]
    serves: ClassVar[tuple[str, ...]] = (TABLES,)
    takes: ClassVar[tuple[str, ...]] = ("records", "strategy", "public", "objective", "reconstruction")
    unscaled: ClassVar[str] = "margins of mechanisms of several looks are not known before; plan with another mechanism"

    def __post_init__(self) -> None:
        whole("rounds", self.rounds, 1, 1000)

    @abstractmethod
    def planned(self, problem: Problem, strategy: object) -> IterativePlan:
        """Everything decided without data. Raises PlanError."""

    @staticmethod
    @abstractmethod
    def run(plan: IterativePlan, curator: Curator) -> Findings:
        """All looks of a plan."""

    def plan(self, asked: Request) -> IterativePlan:
        problem = problem_of(asked, None, "fine", takes_public=False, name=self.name)
        others = [f"{name}=" for name in asked.given if name in ("reconstruction", "objective")]
        if others:
            raise PlanError(
                f"mechanism={self.name!r} looks several times and lays down its own noise and reconstruction; leave "
                f"out {', '.join(others)}"
            )
        made = self.planned(problem, asked.strategy)
        return replace(made, considered=(Candidate(self.name, made.course.summary, made.rmse, None, "asked for"),))


def check_rounds(plan: IterativePlan) -> None:
    """Raise PlanError for a plan that does not hold together, or whose looks cost more than it says."""
    plan.check()
    if type(plan.course) is not _looks(plan).kind:
        raise PlanError(f"the plan has no rounds of {plan.mechanism!r}: it is damaged, plan again")
    if plan.course.total_known is not plan.unit.total_is_public:
        raise PlanError("the plan is wrong about whether the number of records is public: it is damaged, plan again")
    _ = plan.slack  # raises


def run_rounds(plan: IterativePlan, paid: Curator, provenance: Provenance) -> ModelRelease:
    """All looks of a plan, through a curator that holds its price and nothing else."""
    findings = _looks(plan).run(plan, paid)
    return ModelRelease(plan, findings.looks, findings.model, provenance, gap=findings.gap)


def _looks(plan: IterativePlan) -> type[Iterative]:
    found = named(plan.mechanism)
    if not issubclass(found, Iterative):
        raise PlanError(f"the plan has no rounds of {plan.mechanism!r}: it is damaged, plan again")
    return found
