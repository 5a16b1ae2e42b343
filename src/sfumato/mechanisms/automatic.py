"""The default: every search that applies is run without data, and the plan that errs least is kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal, NamedTuple

from sfumato._util.display import Progress
from sfumato.errors import BudgetError, PlanError
from sfumato.mechanisms.denoised_pairs import denoising_candidate
from sfumato.mechanisms.registry import (
    CHOICES,
    KEYS,
    KINDS,
    LOCAL,
    QUESTIONS,
    STREAMS,
    TABLES,
    Request,
    import_named,
    mechanism_class,
)
from sfumato.mechanisms.searches import DIRECT, LONG, PARTS, SEARCHES, Found, Search, run, tree_search
from sfumato.mechanisms.tables import Tables
from sfumato.plans.plan import Plan
from sfumato.privacy.accounting import PureEvent, event_price
from sfumato.privacy.amounts import readable_number
from sfumato.privacy.budget import Budget
from sfumato.privacy.noise import DiscreteLaplace
from sfumato.privacy.rounding import sqrt_down
from sfumato.strategies.design import Candidate, Problem

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
    if event_price(PureEvent(own.laplace_epsilon), budget.currency) > budget.total:
        return None  # by the last digit to which prices are rounded up
    return AtOnePrice(own, own.laplace_epsilon, math.sqrt(2) * float(mu / own.laplace_epsilon))


def compare_noise_laws(
    problem: Problem, best: Plan, plans: Sequence[Plan]
) -> tuple[tuple[str, ...], tuple[Candidate, ...]]:
    """(notes, lines): what the noise that is not taken errs at this price, and what Laplace noise would alone."""
    same = at_one_price(problem)
    if same is None:
        return (), ()
    if same.times < 1:
        return _laplace_cost_notes(best, plans), ()
    where = f"epsilon {float(same.epsilon):.4g} where a ledger adds {problem.budget.currency}"
    reason = f"at one price ({where}) it errs at least {same.times:.3g} times as much on any strategy"
    found = _plans_with_laplace_alone(problem)
    if not found:
        return (), (Candidate("laplace", "", None, None, reason),)
    alone = min(found, key=lambda p: p.objective_value)
    times = float(problem.budget.laplace_epsilon / same.epsilon)
    rmse = None if alone.rmse is None else alone.rmse * times
    largest, value = alone.max_standard_error * times, alone.objective_value * times
    line = Candidate("laplace", alone.strategy.summary, rmse, largest, reason, value)
    return (_laplace_alone_note(problem, best, alone) if alone.objective_value < best.objective_value else ()), (line,)


def _laplace_cost_notes(best: Plan, plans: Sequence[Plan]) -> tuple[str, ...]:
    """What Laplace noise costs, where it is taken, and what Gaussian noise errs for that."""
    others = [p.objective_value for p in plans if not isinstance(p.noise, DiscreteLaplace)]
    if not isinstance(best.noise, DiscreteLaplace) or not others:
        return ()
    return (
        f"a ledger that adds {best.budget.currency} takes {_ledger_cost_text(best)} for this Laplace "
        "noise; Gaussian noise at that "
        f"price errs {min(others):,.5g}",
    )


def _laplace_alone_note(problem: Problem, best: Plan, alone: Plan) -> tuple[str, ...]:
    budget = problem.budget
    epsilon, delta = readable_number(budget.parameter), readable_number(budget.delta or Fraction(0))
    what = "a largest standard error of" if problem.largest else "an rmse of"
    return (
        f"alone at ({epsilon}, {delta}) Laplace noise would have {what} at most {alone.objective_value:,.5g}: "
        f"sf.pure({float(budget.laplace_epsilon):.6g}), or mechanism=sf.mechanisms.auto(noise='laplace'). A ledger "
        f"that adds {budget.currency} takes {_ledger_cost_text(alone)} for it, {_ledger_cost_text(best)} for this plan",
    )


def _ledger_cost_text(made: Plan) -> str:
    """What a ledger takes for a plan whose total is like its budget."""
    return f"{float(event_price(made.price, made.budget.currency)):.4g}"


def _plans_with_laplace_alone(problem: Problem) -> Sequence[Plan]:
    """Plans of Laplace noise on the queries, the cells or their trees, which take no search, for the whole epsilon."""
    if problem.budget.kind != "approx" or problem.workload.shape[1] > _CELLS:
        return ()
    return run(replace(problem, noise="laplace"), (DIRECT, tree_search(None))).plans


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
    grouped: ClassVar[bool] = True
    measures: ClassVar[Literal["refused", "beside", "summed"]] = "summed"
    serves: ClassVar[tuple[str, ...]] = (TABLES, QUESTIONS, KEYS, LOCAL, STREAMS)
    takes_strategy: ClassVar[bool] = True
    takes_public: ClassVar[bool] = True
    considers: ClassVar[tuple[str, ...]] = ("direct", "tree", "factorization", "marginals")

    def check(self, asked: Request) -> None:
        used = mechanism_class("continual").takes if asked.kind == STREAMS else ("records",)
        idle = [f"{name}=" for name in asked.given if name not in used]
        if asked.kind != TABLES and idle:
            raise PlanError(f"plans of {KINDS[asked.kind]} make no use of {', '.join(idle)}; leave it out")

    def plan(self, asked: Request) -> Any:
        if asked.kind == TABLES:
            return super().plan(asked)
        if self.options:
            raise PlanError(f"{', '.join(f'{o}=' for o in self.options)} is of plans for tables; leave it out")
        return _DEFAULTS[asked.kind](asked)

    @property
    def searches(self) -> tuple[Search, ...]:
        other = Search("laplace", "Laplace noise at this price", LONG, _laplace, self._cheaper, bounded=False)
        line = Search(
            "adaptive", "", LONG, lambda p, found, _: denoising_candidate(p, found.plans), public=True, bounded=False
        )
        return (*SEARCHES, PARTS, other, line)

    def _cheaper(self, problem: Problem, found: Found) -> str | None:
        same = at_one_price(problem) if self.noise is None else None
        return "" if same is not None and same.times < 1 else None

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
        compared = self.noise is None and not problem.measures and not problem.unit.once_per
        return compare_noise_laws(problem, best, plans) if compared else ((), ())


def _laplace(problem: Problem, found: Found, progress: Progress | None) -> list[Plan]:
    """Plans of Laplace noise that a ledger takes for what it takes Gaussian noise for."""
    same = at_one_price(problem)
    assert same is not None  # else it does not apply
    other = run(replace(problem, noise="laplace", budget=same.budget), (*SEARCHES, PARTS), progress)
    return [replace(p, budget=problem.budget) for p in other.plans]


def _plan_for_questions(asked: Request) -> Any:
    """Multiplicative weights where they promise less error than a histogram of all cells, else that."""
    try:
        online = mechanism_class("pmw")().plan(asked)
    except PlanError:
        # without records, or over so many cells that no hypothesis is held
        return mechanism_class("histogram")().plan(asked)
    ours, cells, _ = online.compared["bound"]
    return mechanism_class("histogram")().plan(asked) if cells <= ours else online


_DEFAULTS: dict[str, Callable[[Request], Any]] = {
    QUESTIONS: _plan_for_questions,
    KEYS: lambda asked: import_named(CHOICES[KEYS])(asked),
    LOCAL: lambda asked: mechanism_class("local")().plan(asked),
    STREAMS: lambda asked: mechanism_class("continual")().plan(asked),
}
