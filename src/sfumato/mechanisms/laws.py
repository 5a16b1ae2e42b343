"""Laplace noise beside Gaussian noise: which errs less at one price of the ledger that pays, and what it does alone.

A ledger of mu^2 or of rho takes Laplace noise as pure epsilon, at mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon)) [DRS22] or
rho = epsilon^2 / 2 [BS16]. No L1 sensitivity is below that in L2, so on any strategy Laplace noise errs sqrt(2) mu /
epsilon times as much as Gaussian noise of that price, or more: sqrt(2) times in rho; in mu^2 from 1.77 times down to
once at epsilon = 12.9, mu = 9.1, where no guarantee is left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from sfumato.designs.design import Candidate, Problem
from sfumato.errors import BudgetError
from sfumato.mechanisms.registry import named
from sfumato.mechanisms.tables import Designed, tried
from sfumato.plans.plan import Plan
from sfumato.privacy.accountant import PureEvent, price
from sfumato.privacy.amounts import readable
from sfumato.privacy.budget import Budget
from sfumato.privacy.noise import DiscreteLaplace
from sfumato.privacy.rounding import sqrt_down

__all__ = ["AtOnePrice", "at_one_price", "beside"]

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
