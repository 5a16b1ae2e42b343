"""Mechanisms of several looks: one line each here, one file each beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NamedTuple, get_args

from sfumato.designs.design import Candidate, Problem
from sfumato.errors import PlanError
from sfumato.mechanisms import boosting, mwem
from sfumato.plans.courses import CoursePlan
from sfumato.releases import Provenance
from sfumato.releases.modelled import Findings, ModelRelease
from sfumato.wall import Curator

__all__ = ["COURSES", "CourseName", "Recipe", "check_course", "plan_course", "run_course"]

CourseName = Literal["mwem", "boosting"]


class Recipe(NamedTuple):
    """`plan` decides everything without data, from the problem, rounds= and strategy=, into a course of its own `kind`.

    `run` knocks on a curator whose account holds the plan's price and nothing else, and brings home what came out and
    a model made of it.
    """

    kind: type
    plan: Callable[[Problem, int | None, object], CoursePlan]
    run: Callable[[CoursePlan, Curator], Findings]


COURSES: dict[str, Recipe] = {
    "mwem": Recipe(mwem.MwemCourse, mwem.planned, mwem.run),
    "boosting": Recipe(boosting.BoostingCourse, boosting.planned, boosting.run),
}
assert tuple(COURSES) == get_args(CourseName)


def plan_course(name: str, problem: Problem, rounds: int | None, strategy: object, others: object) -> CoursePlan:
    """The plan of a course. `others` are options of one look, of which a course takes none. Raises PlanError."""
    if rounds is not None and (isinstance(rounds, bool) or not isinstance(rounds, int) or not 1 <= rounds <= 1000):
        raise PlanError(f"rounds must be a whole number from 1 to 1,000, not {rounds!r}")
    if others:
        raise PlanError(
            f"mechanism={name!r} looks several times and lays down its own noise and reconstruction; leave out {others}"
        )
    made = COURSES[name].plan(problem, rounds, strategy)
    return replace(made, considered=(Candidate(name, made.course.summary, made.rmse, None, "asked for"),))


def check_course(plan: CoursePlan) -> None:
    """Raise PlanError for a plan that does not hold together, or whose looks cost more than it says."""
    plan.check()
    if plan.mechanism not in COURSES or type(plan.course) is not COURSES[plan.mechanism].kind:
        raise PlanError(f"the plan has no course of {plan.mechanism!r}: it is damaged, plan again")
    if plan.course.total_known is not plan.unit.total_is_public:
        raise PlanError("the plan is wrong about whether the number of records is public: it is damaged, plan again")
    _ = plan.slack  # raises


def run_course(plan: CoursePlan, paid: Curator, provenance: Provenance) -> ModelRelease:
    """All looks of a plan, through a curator that holds its price and nothing else."""
    findings = COURSES[plan.mechanism].run(plan, paid)
    return ModelRelease(plan, findings.looks, findings.model, provenance, gap=findings.gap)
