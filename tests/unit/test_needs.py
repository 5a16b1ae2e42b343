"""How many records an accuracy needs: against plans, simulation and the width of the body."""

from __future__ import annotations

import math

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import PlanError

BUDGET = sf.approx(1, "1e-6")
AGES = sf.Domain({"age": sf.Integers(0, 15), "sex": sf.Booleans()})
WORK = sf.prefix(AGES, "age", by=["sex"])
SIGNS = sf.queries(np.random.default_rng(6).choice([-1, 1], size=(200, 96)))
RELATIONS = pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])


@RELATIONS
@pytest.mark.parametrize("budget", [BUDGET, sf.pure(1)], ids=["approx", "pure"])
@pytest.mark.parametrize("mechanism", ["auto", "tree"])
def test_unbiased_answers_are_as_near_as_asked_from_there_on(
    budget: sf.Budget, mechanism: str, neighbours: str
) -> None:
    """n is the first at which the plan's own figure is that share. Mutants: rounding down; the share of one query."""
    plan = sf.plan(WORK, budget, neighbours=neighbours, mechanism=mechanism)
    n = sf.records_for(WORK, budget, neighbours=neighbours, error=0.02, mechanism=mechanism)
    assert (n - 1) * 0.02 < plan.rmse <= n * 0.02
    most = sf.records_for(WORK, budget, neighbours=neighbours, error=0.02, kind="max", beta=0.1, mechanism=mechanism)
    widest = plan.half_widths(0.9, simultaneous=True).max()
    assert (most - 1) * 0.02 < widest <= most * 0.02


@pytest.mark.parametrize("budget", [BUDGET, sf.pure(1)], ids=["approx", "pure"])
def test_simulated_errors_are_the_share_that_was_asked(budget: sf.Budget) -> None:
    n = sf.records_for(WORK, budget, neighbours="add-remove", error=0.02)
    x = np.random.default_rng(1).multinomial(n, np.full(32, 1 / 32))
    found = sf.simulate(sf.plan(WORK, budget, neighbours="add-remove"), x, 1500)
    assert found.rmse / n == pytest.approx(0.02, rel=0.03)


@RELATIONS
@pytest.mark.parametrize("error", [0.5, 0.05, 0.002])
def test_projected_answers_need_what_their_width_says(neighbours: str, error: float) -> None:
    """The first n at which the plan states that share. Mutants: the width of another plan; the noise alone."""
    n = sf.records_for(SIGNS, BUDGET, neighbours=neighbours, error=error, mechanism="projection")

    def stated(records: int) -> float:
        made = sf.plan(SIGNS, BUDGET, neighbours=neighbours, mechanism="projection", records=records)
        return made.rmse / records

    assert stated(n) <= error
    assert stated(n - 1) > error
    plain = sf.records_for(SIGNS, BUDGET, neighbours=neighbours, error=error)
    assert n <= plain
    if error == 0.5 and neighbours == "replace-one":
        assert n < 0.65 * plain
        x = np.zeros(96, dtype=int)
        x[0] = n
        plan = sf.plan(SIGNS, BUDGET, neighbours=neighbours, mechanism="projection", records=n)
        assert sf.simulate(plan, x, 25).rmse <= error * n


def test_the_taught_mechanism_needs_the_width_over_the_squared_share() -> None:
    """n = sigma l* / (k alpha^2), Theorem 8 with its constant, and hardly more for twice as many queries."""
    rng, needed = np.random.default_rng(9), []
    for k in (1_000, 2_000):
        work = sf.queries(rng.choice([-1, 1], size=(k, 48)))
        options = {"neighbours": "replace-one", "mechanism": "projection", "strategy": "queries"}
        n = sf.records_for(work, BUDGET, error=0.4, **options)  # type: ignore[arg-type]
        sigma = sf.plan(work, BUDGET, neighbours="replace-one", strategy="queries").rmse
        assert n == pytest.approx(sigma * sf.width(work, draws=300).gaussian / (k * 0.4**2), rel=0.15)
        needed.append(n)
    assert needed[1] < 1.15 * needed[0]


@RELATIONS
def test_sessions_need_what_their_promise_says(neighbours: str) -> None:
    work = sf.queries(np.random.default_rng(2).integers(0, 2, size=(50, 64)))
    options = {"neighbours": neighbours, "kind": "max", "mechanism": "pmw"}
    n = sf.records_for(work, BUDGET, error=0.4, beta=0.01, **options)  # type: ignore[arg-type]
    assert sf.mechanisms.pmw.least_alpha(64, 50, n, BUDGET, 0.01, neighbours) <= 0.4
    assert sf.mechanisms.pmw.least_alpha(64, 50, int(0.99 * n), BUDGET, 0.01, neighbours) > 0.4
    if neighbours == "replace-one":
        signed = sf.queries(2 * np.random.default_rng(2).integers(0, 2, size=(50, 64)) - 1)
        assert sf.records_for(signed, BUDGET, error=0.4, beta=0.01, **options) > 1.5 * n  # type: ignore[arg-type]


def test_biased_answers_and_reports_without_a_curator() -> None:
    few = sf.disjunctions(3)
    options = {"neighbours": "replace-one", "error": 0.15}
    n = sf.records_for(few, BUDGET, mechanism="approximate", **options)  # type: ignore[arg-type]
    made = sf.plan(few, BUDGET, neighbours="replace-one", mechanism="approximate", records=n)
    assert made.rmse <= 0.15 * n
    assert n <= sf.records_for(few, BUDGET, **options)  # type: ignore[arg-type]
    line = sf.prefix(sf.Domain({"a": 8}), "a")
    lone = sf.records_for(line, sf.pure(1), mechanism="local", **options)  # type: ignore[arg-type]
    assert sf.plan(line, sf.pure(1), trust="local", records=lone).rmse <= 0.15 * lone
    assert sf.plan(line, sf.pure(1), trust="local", records=lone - 1).rmse > 0.15 * (lone - 1)


REFUSED: list[tuple[dict[str, object], str]] = [
    ({"error": 1.5}, "between 0 and 1"),
    ({"error": math.nan}, "between 0 and 1"),
    ({"kind": "mean"}, "'rmse'.*'max'"),
    ({"beta": 0.05}, "kind='max'"),
    ({"kind": "max", "beta": 2}, "between 0 and 1"),
    ({"workload": 3}, "needs a workload"),
    ({"workload": sf.sums(AGES, "age")}, "share of the records"),
    ({"records": 10}, "leave out records="),
    ({"mechanism": "rounding"}, "auto.*projection.*pmw.*local"),
    ({"mechanism": "mwem"}, "another model.*mechanism='pmw'"),
    ({"mechanism": "boosting"}, "mechanism='pmw'"),
    ({"mechanism": "adaptive"}, "not proved"),
    ({"mechanism": "projection", "kind": "max"}, "average error"),
    ({"mechanism": "projection", "objective": "max"}, "objective='max'"),
    ({"mechanism": "pmw"}, "kind='max'"),
    ({"mechanism": "pmw", "kind": "max", "strategy": "cells"}, "none of strategy"),
    ({"mechanism": "local"}, "pure epsilon"),
    ({"mechanism": "local", "budget": sf.pure(1), "strategy": "cells"}, "none of strategy"),
    ({"mechanism": "tree", "strategy": "cells"}, "would be dropped"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_refusals(options: dict[str, object], message: str) -> None:
    given = {"workload": WORK, "budget": BUDGET, "neighbours": "replace-one", "error": 0.1} | options
    with pytest.raises(PlanError, match=message):
        sf.records_for(**given)  # type: ignore[arg-type]
