"""`sf.share_budget`: several plans, each as good as its share allows, whose shares make them best together.

Mutants named were seen to fail.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.errors import BudgetExceeded, PlanError

WHO: dict[str, Any] = {"neighbours": "add-remove", "person": "who"}
PATIENTS = sf.Domain(
    {
        "sex": sf.Categories(["f", "m"], outside="other", missing="other"),
        "age": sf.Integers(0, 9, outside="clamp", missing="other"),
    }
)
VISITS = sf.Domain({"ward": sf.Categories(list("abcdefgh"), outside="other", missing="other")})


def both(budget: sf.Budget, **options: Any) -> tuple[sf.Plan, sf.Plan]:
    of_visits = {"rows_per_person": 6, "once_per": ["ward"]}
    return (
        sf.plan(sf.marginals(PATIENTS, upto=2), budget, **(WHO | options)),
        sf.plan(sf.identity(VISITS), budget, **(WHO | of_visits | options)),
    )


def apart(whole: sf.Budget, share: float, objective: str) -> float:
    """The error of both together where the first has some share."""
    kinds = {"pure": sf.pure, "zcdp": sf.zcdp}
    size = whole.parameter
    found = [
        both(kinds[whole.kind](float(size) * s), objective=objective)[i].joint_error
        for i, s in enumerate([share, 1 - share])
    ]
    return max(found) if objective == "max" else sum(found)


@pytest.mark.parametrize("objective", ["tables", "cells", "max"])
@pytest.mark.parametrize("budget", [sf.zcdp("0.1"), sf.pure(1)], ids=["zcdp", "pure"])
def test_no_other_shares_err_less(budget: sf.Budget, objective: str) -> None:
    """Mutants: the law of Laplace noise for Gaussian noise; shares as errors are; the largest error as a mean."""
    first, second = sf.share_budget(budget, *both(budget, objective=objective))
    got = max(first.joint_error, second.joint_error) if objective == "max" else first.joint_error + second.joint_error
    share = float(first.budget.parameter / budget.parameter)
    for other in (*np.linspace(0.1, 0.9, 5), share * 0.9, share * 1.1):
        assert got <= apart(budget, float(other), objective) * (1 + 1e-5)
    assert first.budget.parameter + second.budget.parameter == budget.parameter


def test_parts_of_all_workloads_weigh_alike() -> None:
    """Two plans over one domain weigh as their stack does. Mutants: queries alike instead; plans alike."""
    several = sf.stack(
        a=sf.identity(PATIENTS, "age"), b=sf.total(PATIENTS), c=sf.identity(PATIENTS, "sex"), weights={"a": 4}
    )
    one, stacked = sf.identity(PATIENTS), sf.stack(sf.identity(PATIENTS), several)
    given = WHO | {"mechanism": "gaussian"}
    parts = [sf.plan(w, sf.gdp(1), **given) for w in (one, several)]
    errors = [p.joint_error / float(p.sensitivity.value) for p in parts]
    whole = sf.plan(stacked, sf.gdp(1), **given)
    # the textbook's noise is the same for all answers, so that the errors of a stack are those of its workloads
    assert sum(errors) == pytest.approx(whole.joint_error / float(whole.sensitivity.value), rel=1e-6)


def test_weights_move_the_shares() -> None:
    even = sf.share_budget(sf.zcdp(1), *both(sf.zcdp(1)))
    visits = sf.share_budget(sf.zcdp(1), *both(sf.zcdp(1)), weights=[1, 100])
    assert visits[1].objective_value < even[1].objective_value
    # the law of squares: a hundred times the weight takes ten times the share of the other
    ratios = [float(b.budget.rho / a.budget.rho) for a, b in (even, visits)]
    assert ratios[1] == pytest.approx(10 * ratios[0], rel=1e-4)


def test_an_approximate_budget_is_shared_as_its_noise_adds_up() -> None:
    """Mutant: epsilon shared, delta kept."""
    whole = sf.approx(1, "1e-6")
    parts = [p.budget.mu_squared for p in sf.share_budget(whole, *both(sf.gdp(1)))]
    assert whole.mu_squared * Fraction(999_999, 1_000_000) < sum(parts) <= whole.mu_squared


def test_both_are_released_from_one_ledger_and_nothing_is_left() -> None:
    """Mutant: each plan with the whole budget."""
    rng = np.random.default_rng(3)
    people = pd.DataFrame({"who": range(300), "sex": rng.choice(["f", "m"], 300), "age": rng.integers(0, 10, 300)})
    visits = pd.DataFrame({"who": rng.integers(0, 300, 2_000), "ward": rng.choice(list("abcdefgh"), 2_000)})
    budget, ledger = sf.zcdp("0.5"), sf.Ledger.in_memory(sf.zcdp("0.5"))
    first, second = sf.share_budget(budget, *both(budget))
    assert "of one that it shares with 1 other plan" in str(first)
    sf.release(first, people, ledger=ledger, name="patients", table="hospital")
    sf.release(second, visits, ledger=ledger, name="visits", table="hospital")
    assert ledger.remaining < Fraction(1, 10**6)
    with pytest.raises(BudgetExceeded):
        sf.release(first, people, ledger=ledger, name="again", table="hospital")


def test_public_tables_stay_public() -> None:
    """Mutant: planned again without them."""
    made = sf.plan(sf.marginals(PATIENTS, upto=2), sf.zcdp(1), public={("sex",): [100, 200, 0]}, **WHO)
    first, _ = sf.share_budget(sf.zcdp(1), made, both(sf.zcdp(1))[1])
    assert first.strategy.known[0].axes == (0,)


@pytest.mark.parametrize(
    ("plans", "options", "told"),
    [
        (lambda: both(sf.zcdp(1))[:1], {}, "two or more plans of one look"),
        (lambda: (both(sf.zcdp(1))[0], both(sf.zcdp(1), objective="max")[1]), {}, "one objective, not 'tables' and"),
        (lambda: (both(sf.zcdp(1))[0], both(sf.zcdp(1), person="pid")[1]), {}, "one protected unit, not one person"),
        (lambda: both(sf.zcdp(1)), {"weights": [1]}, "a number above 0 for each of the 2 plans"),
        (lambda: both(sf.zcdp(1)), {"weights": [1, 0]}, "a number above 0 for each of the 2 plans"),
        (lambda: both(sf.pure(1), mechanism="laplace"), {}, "under such a budget Gaussian noise is shared"),
    ],
)
def test_what_cannot_be_shared_says_why(plans: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(PlanError, match=told):
        sf.share_budget(sf.zcdp(1), *plans(), **options)


def test_a_budget_is_needed() -> None:
    with pytest.raises(PlanError, match="needs a budget"):
        sf.share_budget("0.5", *both(sf.zcdp(1)))  # type: ignore[arg-type]
