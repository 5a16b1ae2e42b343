"""The default: every mechanism that applies is priced without data, and the one that errs least is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sfumato.designs.design import Candidate, Problem
from sfumato.errors import PlanError, SfumatoError
from sfumato.ground.progress import Progress
from sfumato.mechanisms.dividing import foreseen
from sfumato.mechanisms.factored import refined
from sfumato.mechanisms.laws import at_one_price, beside
from sfumato.mechanisms.mechanism import KEYS, KINDS, LOCAL, QUESTIONS, STREAMS, TABLES, Request
from sfumato.mechanisms.parted import parted
from sfumato.mechanisms.registry import ASKED_FOR, MECHANISMS, named
from sfumato.mechanisms.tables import Designed, Tables, Tried, tried
from sfumato.plans.plan import Plan, price_design

__all__ = ["Auto", "automatic"]

_LONG = 2**22  # queries of one table: a second for every mechanism that is priced


def automatic(problem: Problem, progress: Progress | None, first: str = "") -> Tried:
    """The plans of all mechanisms that nobody has to ask for, and of parts each by the best of them.

    Where some mechanism is to be `first`, none is tried after a plan that is proved the best.
    """

    def find(part: Problem, first: str, told: Progress | None = None) -> Tried:
        tables = (named(name) for name in MECHANISMS if name not in ASKED_FOR)
        every = [cls() for cls in tables if issubclass(cls, Designed) and cls.automatic]
        every.sort(key=lambda value: value.name != first)
        return tried(part, every, told, auto=True, enough=bool(first))

    # pricing what is worse goes through all queries, too
    work = problem.workload
    long = work.tables == 1 and len(work) > _LONG and not all(i.is_marginal for i in work.items)
    found = find(problem, first or ("factorization" if long else ""), progress)
    if not first:
        found = refined(problem, found, progress)
    apart = parted(problem, found.plans, find)
    if apart is None:
        return found
    try:
        plan = price_design(apart, problem)
        _ = plan.objective_value
    except SfumatoError:
        return found
    return Tried([*found.plans, plan], found.refused, (*found.designs, apart))


@dataclass(frozen=True, repr=False, kw_only=True)
class Auto(Tables):
    """The mechanism of least predicted error; `noise` and `lattice` are for tables."""

    name: ClassVar[str] = "auto"
    serves: ClassVar[tuple[str, ...]] = (TABLES, QUESTIONS, KEYS, LOCAL, STREAMS)
    takes_strategy: ClassVar[bool] = True
    takes_public: ClassVar[bool] = True
    considers: ClassVar[tuple[str, ...]] = ("direct", "tree", "factorization", "marginals")

    def check(self, asked: Request) -> None:
        used = named("continual").takes if asked.kind == STREAMS else ("records",)
        idle = [f"{name}=" for name in asked.given if name not in used]
        if asked.kind != TABLES and idle:
            raise PlanError(f"plans of {KINDS[asked.kind]} make no use of {', '.join(idle)}; leave it out")

    def plan(self, asked: Request) -> Any:
        if asked.kind == TABLES:
            return super().plan(asked)
        if self.options:
            raise PlanError(f"{', '.join(f'{o}=' for o in self.options)} is of plans for tables; leave it out")
        return _DEFAULTS[asked.kind](asked)

    def tried(self, problem: Problem, progress: Progress | None) -> Tried:
        found = automatic(problem, progress)
        same = at_one_price(problem) if self.noise is None else None
        if same is not None and same.times < 1:
            other = automatic(replace(problem, noise="laplace", budget=same.budget), progress)
            plans = [replace(p, budget=problem.budget) for p in other.plans]
            found = Tried([*found.plans, *plans], found.refused, (*found.designs, *other.designs))
        return found._replace(refused=(*found.refused, *foreseen(problem, found.plans)))

    def least(self, problem: Problem) -> Sequence[Plan]:
        marginal = all(i.is_marginal for i in problem.workload.items)
        return automatic(problem, None, "marginals" if marginal else "factorization").plans

    def beside(
        self, problem: Problem, best: Plan, plans: Sequence[Plan]
    ) -> tuple[tuple[str, ...], tuple[Candidate, ...]]:
        """What Laplace noise errs at the price of this plan, and what it would alone."""
        return beside(problem, best, plans) if self.noise is None else ((), ())


def _of_questions(asked: Request) -> Any:
    """Multiplicative weights where they promise less error than a histogram of all cells, else that."""
    try:
        online = named("pmw")().plan(asked)
    except PlanError:
        # without records, or over so many cells that no hypothesis is held
        return named("histogram")().plan(asked)
    ours, cells, _ = online.compared["bound"]
    return named("histogram")().plan(asked) if cells <= ours else online


def _of_keys(asked: Request) -> Any:
    from sfumato.mechanisms import sketched  # noqa: PLC0415  (tables need nothing of it)

    return sketched.automatic(asked)


_DEFAULTS: dict[str, Callable[[Request], Any]] = {
    QUESTIONS: _of_questions,
    KEYS: _of_keys,
    LOCAL: lambda asked: named("local")().plan(asked),
    STREAMS: lambda asked: named("continual")().plan(asked),
}
