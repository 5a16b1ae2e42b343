"""The default: every mechanism that applies is priced without data, and the one that errs least is kept."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

from sfumato._util.display import Progress
from sfumato.errors import BudgetError, PlanError, SfumatoError
from sfumato.mechanisms.budget_split import parted
from sfumato.mechanisms.denoised_pairs import foreseen
from sfumato.mechanisms.mechanism import KEYS, KINDS, LOCAL, QUESTIONS, STREAMS, TABLES, Request
from sfumato.mechanisms.registry import ASKED_FOR, MECHANISMS, named
from sfumato.mechanisms.tables import Designed, Tables, Tried, tried
from sfumato.plans.plan import Plan, at_budget, price_design
from sfumato.privacy.accounting import PureEvent, price
from sfumato.privacy.amounts import readable
from sfumato.privacy.budget import Budget
from sfumato.privacy.noise import DiscreteLaplace
from sfumato.privacy.rounding import sqrt_down
from sfumato.privacy.unit import Neighbours
from sfumato.strategies import dense_planning, moments, spectral_search
from sfumato.strategies.compound import joined
from sfumato.strategies.design import Candidate, Design, Problem
from sfumato.strategies.merged_planning import spanned_design
from sfumato.strategies.orbit_bound import orbit_bound
from sfumato.strategies.residuals import Residuals
from sfumato.strategies.union_planning import few_rows

__all__ = ["AtOnePrice", "Auto", "Factorization", "at_one_price", "automatic", "beside", "refined"]


_MOST_EPSILON = 1_000  # of Laplace noise: a finer lattice would leave no room for records in 64 bits
_CELLS = 512  # up to which plans of Laplace noise are priced, too, for what is said of them


class AtOnePrice(NamedTuple):
    """Laplace noise for what a ledger takes for Gaussian noise: the budget that says so, and its epsilon.

    `times` is how many times as much it errs on the same strategy, at least.
    """

    budget: Budget
    epsilon: Fraction
    times: float


def at_one_price(problem: Problem) -> AtOnePrice | None:
    """What Laplace noise may have where Gaussian noise is planned; None under pure epsilon and on the unit lattice."""
    budget = problem.budget
    if problem.noise != "gaussian" or problem.unit_lattice:
        return None
    try:
        mu = sqrt_down(budget.mu_squared)
        own = Budget.gdp(mu) if budget.kind == "approx" else budget
        epsilon = own.laplace_epsilon
    except BudgetError:  # too extreme to convert
        return None
    if epsilon > budget.laplace_epsilon:
        own = Budget.pure(budget.laplace_epsilon)
    if own.laplace_epsilon > _MOST_EPSILON:
        return None
    if price(PureEvent(own.laplace_epsilon), budget.currency) > budget.total:
        return None  # by the last digit to which prices are rounded up
    return AtOnePrice(own, own.laplace_epsilon, math.sqrt(2) * float(mu / own.laplace_epsilon))


def beside(problem: Problem, best: Plan, plans: Sequence[Plan]) -> tuple[tuple[str, ...], tuple[Candidate, ...]]:
    """(notes, lines): what the noise that is not taken errs at this price, and what Laplace noise would alone."""
    same = at_one_price(problem)
    if same is None:
        return (), ()
    if same.times < 1:
        return _taken(best, plans), ()
    where = f"epsilon {float(same.epsilon):.4g} where a ledger adds {problem.budget.currency}"
    reason = f"at one price ({where}) it errs at least {same.times:.3g} times as much on any strategy"
    found = _alone(problem)
    if not found:
        return (), (Candidate("laplace", "", None, None, reason),)
    alone = min(found, key=lambda p: p.objective_value)
    times = float(problem.budget.laplace_epsilon / same.epsilon)
    rmse = None if alone.rmse is None else alone.rmse * times
    largest, value = alone.max_standard_error * times, alone.objective_value * times
    line = Candidate("laplace", alone.strategy.summary, rmse, largest, reason, value)
    return (_would(problem, best, alone) if alone.objective_value < best.objective_value else ()), (line,)


def _taken(best: Plan, plans: Sequence[Plan]) -> tuple[str, ...]:
    """What Laplace noise costs, where it is taken, and what Gaussian noise errs for that."""
    others = [p.objective_value for p in plans if not isinstance(p.noise, DiscreteLaplace)]
    if not isinstance(best.noise, DiscreteLaplace) or not others:
        return ()
    return (
        f"a ledger that adds {best.budget.currency} takes {_cost(best)} for this Laplace noise; Gaussian noise at that "
        f"price errs {min(others):,.5g}",
    )


def _would(problem: Problem, best: Plan, alone: Plan) -> tuple[str, ...]:
    budget = problem.budget
    epsilon, delta = readable(budget.parameter), readable(budget.delta or Fraction(0))
    what = "a largest standard error of" if problem.largest else "an rmse of"
    return (
        f"alone at ({epsilon}, {delta}) Laplace noise would have {what} at most {alone.objective_value:,.5g}: "
        f"sf.pure({float(budget.laplace_epsilon):.6g}), or mechanism=sf.mechanisms.auto(noise='laplace'). A ledger "
        f"that adds {budget.currency} takes {_cost(alone)} for it, {_cost(best)} for this plan",
    )


def _cost(made: Plan) -> str:
    """What a ledger takes for a plan whose total is like its budget."""
    return f"{float(price(made.price, made.budget.currency)):.4g}"


def _alone(problem: Problem) -> Sequence[Plan]:
    """Plans of Laplace noise on the queries, the cells or their trees, which take no search, for the whole epsilon."""
    if problem.budget.kind != "approx" or problem.workload.shape[1] > _CELLS:
        return ()
    values = [named(name)() for name in ("laplace", "tree")]
    return tried(replace(problem, noise="laplace"), [v for v in values if isinstance(v, Designed)], None).plans


_NEAR = 5e-3  # of the best plan from its bound: what is left to gain is not worth half a minute

_START = 1.1  # times the best: residuals further off do not come down to it


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
    label: ClassVar[str] = "factorization"
    considers: ClassVar[tuple[str, ...]] = ("factorization",)

    def designs(self, problem: Problem, progress: Progress | None) -> list[Design]:
        return dense_planning.designs(problem, progress)

    def searched(self, problem: Problem, progress: Progress | None) -> tuple[list[Design], list[Candidate]]:
        return dense_planning.searched(problem, progress)

    def tried(self, problem: Problem, progress: Progress | None) -> Tried:
        if problem.measures:
            return tried_moments(problem)
        return refined(problem, super().tried(problem, progress), progress)

    def least(self, problem: Problem) -> Sequence[Plan]:
        return super().tried(problem, None).plans

    def skipped(self, problem: Problem, *, auto: bool) -> str:
        reason = super().skipped(problem, auto=auto)
        return reason or ("real coefficients need the fine lattice" if problem.unit_lattice else "")


def refined(problem: Problem, found: Tried, progress: Progress | None) -> Tried:
    """With what takes seconds more, where the plans that were found stand off their bound.

    That is the optimum over rows that span all queries; where there are too many of these, over the sums that
    symmetries leave of them; where neither comes near the bound, products of basis vectors with noise levels of their
    own; and a better bound.
    """
    if problem.unit_lattice:
        return found
    for title, find in _SECONDS.items():
        if _off(found.plans) > _NEAR and (title != _BASES or _tilts(found)):
            found = _with(problem, found, title, functools.partial(find, problem, _least(found), progress))
    return _bounded(problem, found)


def _tilts(found: Tried) -> bool:
    """Whether residuals, which products of basis vectors start from, are near the best."""
    best = min((p.objective_value for p in found.plans), default=0.0)
    return any(isinstance(p.strategy, Residuals) and p.objective_value <= best * _START for p in found.plans)


def _bounded(problem: Problem, found: Tried) -> Tried:
    """With a bound from weights constant on orbits, where the plans stand off those that they have."""
    replaced = problem.unit.total_is_public
    ours = replaced or problem.unit.neighbours is Neighbours.ADD_REMOVE
    if not found.plans or _off(found.plans) <= _NEAR or problem.noise != "gaussian" or problem.largest or problem.known:
        return found
    if not ours or all(i.is_marginal for i in problem.workload.items):
        return found
    try:
        whole = joined(problem)[0]
        products = whole.products
    except SfumatoError:  # more tables than are listed one by one, or too many joint cells
        return found
    proved = None if products is None else orbit_bound(products, whole.sizes, replaced=replaced)
    place = min(range(len(found.plans)), key=lambda i: found.plans[i].objective_value)
    best = found.plans[place]
    if proved is None or at_budget(problem, proved) <= max((p.bound or 0.0 for p in found.plans), default=0.0):
        return found
    plans = list(found.plans)
    plans[place] = replace(best, bound=at_budget(problem, proved))
    return found._replace(plans=plans)


_BASES = "products of basis vectors"
_SECONDS: dict[str, Callable[[Problem, float, Progress | None], Design]] = {
    "the optimum over rows that span all queries": lambda p, _, told: spanned_design(p, told),
    "the optimum by symmetry over few rows": lambda p, _, told: few_rows(p, told),
    _BASES: lambda p, best, _: spectral_search.design(p, best),
}
"""Searches that take seconds, in order of cost, for the problem and the error of the best plan so far."""


def _with(problem: Problem, found: Tried, title: str, find: Callable[[], Design]) -> Tried:
    """With one more design, or a line that says why it does not apply."""
    try:
        design = find()
        plan = price_design(design, problem)
        _ = plan.rmse
    except SfumatoError as error:
        line = Candidate("factorization", title, None, None, str(error))
        return found._replace(refused=(*found.refused, line))
    return found._replace(plans=[*found.plans, plan], designs=(*found.designs, design))


def _off(plans: Sequence[Plan]) -> float:
    """How far the best of the plans stands above the best of their bounds; infinity where none is known."""
    best = min((p.objective_value for p in plans), default=math.inf)
    bound = max((p.bound for p in plans if p.bound is not None), default=0.0)
    return best / bound - 1 if bound > 0.0 else math.inf


def _least(found: Tried) -> float:
    """The root of the summed errors of the best plan at unit price; infinity where no bound tells it."""
    bound = max((d.bound for d in found.designs if d.bound is not None), default=0.0)
    return bound * (1 + _off(found.plans)) if bound > 0.0 else math.inf


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

    if problem.measures:
        return tried_moments(problem)
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


def tried_moments(problem: Problem) -> Tried:
    """The plan of a workload that sums measures."""
    found = moments.designs(problem)
    return Tried([price_design(d, problem) for d in found], (), tuple(found))


@dataclass(frozen=True, repr=False, kw_only=True)
class Auto(Tables):
    """The mechanism of least predicted error.

    Args:
        noise: For tables, "gaussian", "laplace" or "discrete-gaussian"; None takes what the budget is best spent on.
        lattice: For tables, "fine", or "unit", which measures plain integer counts.

    Raises:
        PlanError: An option is not allowed.
    """

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
        if problem.measures:
            return found
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
        """What Laplace noise errs at the price of this plan, and what it would alone.

        Args:
            problem: What is planned for.
            best: The plan that was chosen.
            plans: All plans that were found.

        Returns:
            Notes for the plan, and lines for its candidates; none where a noise was asked for, or measures are summed.
        """
        return beside(problem, best, plans) if self.noise is None and not problem.measures else ((), ())


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
    from sfumato.mechanisms import sketches  # noqa: PLC0415  (tables need nothing of it)

    return sketches.automatic(asked)


_DEFAULTS: dict[str, Callable[[Request], Any]] = {
    QUESTIONS: _of_questions,
    KEYS: _of_keys,
    LOCAL: lambda asked: named("local")().plan(asked),
    STREAMS: lambda asked: named("continual")().plan(asked),
}
