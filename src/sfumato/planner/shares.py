"""Shares of one budget: several plans, such as one of patients and one of their visits, at the least error together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from sfumato.errors import PlanError
from sfumato.planner.planning import plan
from sfumato.plans.plan import Plan
from sfumato.privacy.amounts import Number, read_exact
from sfumato.privacy.budget import Budget
from sfumato.privacy.noise import DiscreteLaplace
from sfumato.privacy.rounding import sqrt_down
from sfumato.strategies.budget_split import root_error
from sfumato.strategies.strategy import KnownGroups

_PARTS = 10**6  # shares are whole numbers of these: errors are then off by a millionth


def share_budget(budget: Budget, *plans: Plan, weights: Sequence[Number] | None = None) -> tuple[Plan, ...]:
    """The same plans with shares of one budget that make their errors least together.

    Prices of several releases add up, so a plan of patients and one of visits, each with `rows_per_person=` and
    `once_per=` of its own, are planned by themselves: with noise drawn for each of them apart, one plan of both would
    err no less. Least is what the plans' common objective minimises: the mean squared error over the parts of all
    workloads ("tables"), over all queries ("cells"), or the largest ("max").

    Args:
        budget: What all plans may spend together.
        *plans: Plans of one look by `sf.plan`, two or more, with one objective, relation and `person=`, made with any
            budgets.
        weights: For each plan what its squared errors are multiplied by, 1 for each where it is left out. Errors of
            visits are far above those of patients, and so take most of the budget.

    Returns:
        The plans, in their order, whose budgets add up to `budget`. Those of an (epsilon, delta) budget add up as mu²,
        and each is then one of mu-GDP.

    Raises:
        PlanError: There are fewer than two plans, they are not of one kind, or a weight is not positive.
        BudgetError: A share is too small for the noise of its plan.

    Guarantee:
        None by itself: nothing is released. Releases under all of the plans satisfy `budget` together, in any order.

    Source:
        The shares are those of [XZK23] for parts of one budget.

    >>> patients = sf.plan(sf.identity(sf.Domain({"age": 4})), sf.zcdp(1), neighbours="add-remove", person="patient")
    >>> visits = sf.plan(
    ...     sf.identity(sf.Domain({"ward": 9})),
    ...     sf.zcdp(1),
    ...     neighbours="add-remove",
    ...     person="patient",
    ...     rows_per_person=4,
    ...     once_per=["ward"],
    ... )
    >>> [str(p.budget.rho) for p in sf.share_budget(sf.zcdp(1), patients, visits)]
    ['351739/1000000', '648261/1000000']
    """
    if len(plans) < 2 or not all(isinstance(p, Plan) and p.found is None for p in plans):
        raise PlanError("share_budget shares a budget between two or more plans of one look, made by sf.plan")
    if not isinstance(budget, Budget):
        raise PlanError("share_budget needs a budget: sf.pure(1), sf.approx(1, '1e-6'), sf.zcdp('0.5') or sf.gdp(1)")
    for what, said in (
        ("objective", [repr(p.objective) for p in plans]),
        ("protected unit", [p.unit.protected.describe() for p in plans]),
    ):
        if len({*said}) > 1:
            raise PlanError(f"plans that share a budget have one {what}, not {' and '.join(dict.fromkeys(said))}")
    given = [read_exact(w, "a weight") for w in (weights if weights is not None else [1] * len(plans))]
    if len(given) != len(plans) or min(given) <= 0:
        raise PlanError(f"weights= holds a number above 0 for each of the {len(plans)} plans, not {weights!r}")
    power = 1 if budget.kind == "pure" else 2
    whole = [p if p.budget == budget else replan(p, budget) for p in plans]
    if power == 2 and any(isinstance(p.noise, DiscreteLaplace) for p in whole):
        raise PlanError("under such a budget Gaussian noise is shared; leave out mechanism='laplace', or take sf.pure")
    largest = plans[0].objective == "max"
    errors = np.array([float(w) * p.joint_error for w, p in zip(given, whole, strict=True)])
    roots = np.asarray(root_error(errors, 1.0, power, largest=largest))
    if not roots.max() > 0:
        raise PlanError("nothing that these plans ask has an error: they need no budget")
    # what has no error, as it is public, still needs some price
    parts = np.maximum(1, np.rint(roots / roots.sum() * _PARTS)).astype(int).tolist()
    parts[int(np.argmax(parts))] += _PARTS - sum(parts)
    made = [replan(p, part_of(budget, Fraction(k, _PARTS))) for p, k in zip(plans, parts, strict=True)]
    note = "its budget is {:.3g} of one that it shares with {} other plan" + "s" * (len(plans) > 2)
    return tuple(
        replace(p, notes=(*p.notes, note.format(k / _PARTS, len(plans) - 1))) for p, k in zip(made, parts, strict=True)
    )


def replan(made: Plan, budget: Budget, rows_per_person: int | None = None) -> Plan:
    """The plan of the same questions with another budget, and perhaps another number of rows of a person.

    Raises PlanError where the plan does not say all that it was made from.
    """
    u = made.unit
    count = u.rows_per_person if rows_per_person is None else rows_per_person
    if u.within is not None or any(isinstance(k, KnownGroups) for k in made.strategy.known):
        raise PlanError("a plan of records replaced within groups cannot be made again at another budget; plan anew")
    names = made.workload.domain.names
    public: Any = {tuple(names[a] for a in k.axes): k.counts for k in made.strategy.known}
    grouped = u.once_per if count > u.rows_per_group else ()
    return plan(
        made.workload,
        budget,
        neighbours=u.neighbours,
        person=u.person,
        rows_per_person=count,
        once_per=grouped,
        rows_per_group=u.rows_per_group if grouped else 1,
        mechanism=made.mechanism,  # type: ignore[arg-type]
        objective=made.objective,  # type: ignore[arg-type]
        records=made.records,
        public=public or None,
    )


def part_of(budget: Budget, share: Fraction) -> Budget:
    """A share of a budget, in what its parts add up in."""
    if budget.kind == "pure":
        return Budget.pure(budget.parameter * share)
    if budget.kind == "zcdp":
        return Budget.zcdp(budget.parameter * share)
    return Budget.gdp(sqrt_down(budget.mu_squared * share))
