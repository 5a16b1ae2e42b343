"""From margins to the least budget, and to the plan that keeps to them."""

from __future__ import annotations

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import PlanError
from sfumato.planner.inverse import plan_for

DOMAIN = sf.Domain({"a": 4, "b": 3, "c": 6})
PAIRS = sf.marginals(DOMAIN, order=2)
MARGIN = {("a", "b"): 10, ("a", "c"): 40, 2: 20}


def _margins(plan: sf.Plan) -> dict[str, float]:
    table = plan.errors()
    return dict(zip(table["attributes"], table["margin"], strict=True))


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("kind", ["zcdp", "pure"])
def test_margins_of_single_tables_are_kept(relation: str, kind: str) -> None:
    """Mutants: weights 1 / margin; a set's margin lost behind its order's; the order of the queries changed."""
    plan = plan_for(PAIRS, margin=MARGIN, kind=kind, neighbours=relation, mechanism="marginals")
    found = _margins(plan)
    assert list(found) == ["a, b", "a, c", "b, c"]
    wanted = {"a, b": 10.0, "a, c": 40.0, "b, c": 20.0}
    assert all(found[n] <= wanted[n] for n in wanted)
    assert max(found[n] / wanted[n] for n in wanted) > 0.999
    fixed = sf.budget_for(PAIRS, margin=MARGIN, kind=kind, neighbours=relation, mechanism="marginals")
    assert plan.budget.parameter <= fixed.parameter
    x = np.arange(72).reshape(4, 3, 6)
    assert plan.workload.answer(x).tolist() == PAIRS.answer(x).tolist()


def test_the_plan_for_margins_is_certified() -> None:
    """Every margin is met with equality where it binds, and the budget is the least: the proved bound meets it."""
    plan = plan_for(PAIRS, margin=MARGIN, kind="gdp", neighbours="add-remove", mechanism="marginals")
    assert plan.lower_bound is not None
    assert plan.objective_value / plan.lower_bound < 1.001


def test_tables_without_a_margin_are_answered_without_one() -> None:
    plan = plan_for(PAIRS, margin={("a", "b"): 10}, kind="zcdp", neighbours="add-remove")
    found = _margins(plan)
    assert 9.99 < found["a, b"] <= 10
    assert 10 < found["b, c"] < 200
    assert any("20 times the widest" in n for n in plan.notes)
    fixed = plan_for(PAIRS, margin={("a", "b"): 10, 2: 200}, kind="zcdp", neighbours="add-remove")
    assert plan.budget == fixed.budget
    assert not fixed.notes


def test_margins_of_levels() -> None:
    domain = sf.Domain({"age": sf.Integers(0, 19, levels={"decade": 10}), "sex": 2})
    work = sf.marginals(domain, sets=[("decade", "sex"), ("age",)])
    plan = plan_for(work, margin={("decade", "sex"): 10, ("age",): 30}, kind="zcdp", neighbours="add-remove")
    found = _margins(plan)
    assert found["decade, sex"] <= 10
    assert found["age"] <= 30


def test_sums_have_margins_in_their_own_unit() -> None:
    domain = sf.Domain({"wage": sf.Bins([0, 100, 1000]), "sex": 2})
    work = sf.stack(sums=sf.sums(domain, "wage"), counts=sf.marginals(domain, order=1))
    plan = plan_for(work, margin={"sums": 5000, "counts": 30}, kind="zcdp", neighbours="add-remove")
    table = plan.errors()
    for part, unit, margin in zip(table["part"], table["unit"], table["margin"], strict=True):
        assert margin <= {"sums": 5000, "counts": 30}[part], unit


@pytest.mark.parametrize(
    ("margin", "message"),
    [
        ({("a", "b", "c"): 1}, "tables of a, b, c"),
        ({3: 1}, "3 attributes"),
        ({"x": 1}, "the parts are marginals"),
        ({2: 0}, "positive number"),
        ({2: True}, "positive number"),
        ({2: float("nan")}, "positive number"),
        ({}, "no margin is given"),
        (1e9, "hardly any budget"),
    ],
)
def test_margins_that_mean_nothing_are_refused(margin: object, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        plan_for(PAIRS, margin=margin, kind="zcdp", neighbours="add-remove")
    with pytest.raises(PlanError, match=message):
        sf.budget_for(PAIRS, margin=margin, kind="zcdp", neighbours="add-remove")
