"""Accuracy (alpha, beta) before data: all k answers within their half-widths together, as after the release."""

from __future__ import annotations

import math

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import PlanError
from sfumato.planner.inverse import plan_for
from sfumato.planner.simulate import draw_float_noise

AGES = sf.Domain({"age": sf.Integers(0, 15), "sex": sf.Booleans()})
WORK = sf.stack(tables=sf.marginals(AGES, order=1), cdf=sf.prefix(AGES, "age", by=["sex"]))
X = np.random.default_rng(11).multinomial(500, np.full(32, 1 / 32)).reshape(16, 2)
PLANS = {
    "gaussian": sf.plan(WORK, sf.approx(1, "1e-6"), neighbours="add-remove"),
    "laplace": sf.plan(WORK, sf.pure(1), neighbours="replace-one"),
    "biased": sf.plan(
        sf.disjunctions(3), sf.approx(1, "1e-6"), neighbours="replace-one", mechanism="approximate", records=20
    ),
}


@pytest.mark.parametrize("kind", PLANS)
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95])
def test_half_widths_are_those_of_the_release(kind: str, confidence: float) -> None:
    """Exactly. Mutants: pointwise widths; Sidak where the union bound is due; the count of all parts for one."""
    plan = PLANS[kind]
    domain = plan.workload.domain
    made = sf.release(plan, sf.Histogram(X if domain == AGES else np.full(domain.shape, 2)), ledger=None)
    for part in (None, *plan.workload.parts):
        some = made if part is None else made[part]
        after = some.intervals(confidence, simultaneous=True)
        before = plan.half_widths(confidence, part, simultaneous=True)
        assert np.array_equal(some.answers - before, after.low)
        assert np.array_equal(some.answers + before, after.high)
        alone = plan.half_widths(confidence, part)
        assert (before >= alone).all()
        assert before.max() > alone.max()
    widest = plan.half_widths(confidence, simultaneous=True)
    table = plan.errors(confidence, simultaneous=True)
    assert max(table["margin"]) == pytest.approx(widest.max())
    assert max(plan.errors_by_order(confidence, simultaneous=True)["margin"]) == pytest.approx(widest.max())


@pytest.mark.parametrize(("kind", "options"), [("approx", {"delta": "1e-6"}), ("pure", {}), ("zcdp", {})])
def test_the_least_budget_for_all_answers_together(kind: str, options: dict[str, str]) -> None:
    """Mutant: simultaneous= not passed on."""
    wanted = {"margin": 30, "kind": kind, "neighbours": "add-remove", "confidence": 0.9} | options
    budget = sf.budget_for(WORK, simultaneous=True, **wanted)  # type: ignore[arg-type]
    alone = sf.budget_for(WORK, **wanted)  # type: ignore[arg-type]
    assert budget.parameter > alone.parameter
    plan = sf.plan(WORK, budget, neighbours="add-remove")
    assert 29.99 < plan.half_widths(0.9, simultaneous=True).max() <= 30
    planned = plan_for(WORK, simultaneous=True, **wanted)  # type: ignore[arg-type]
    assert 29.9 < planned.half_widths(0.9, simultaneous=True).max() <= 30
    with pytest.raises(PlanError, match="about the worst"):
        sf.budget_for(WORK, simultaneous=True, target="rmse", **wanted)  # type: ignore[arg-type]


def test_many_tables_are_told_by_family_and_too_many_answers_refused() -> None:
    """Mutant: a level of 1, whose half-widths are infinite."""
    many = sf.marginals(sf.Domain({f"a{i}": 4 for i in range(60)}), upto=3)
    plan = sf.plan(many, sf.approx(1, "1e-6"), neighbours="add-remove")
    found, alone = plan.errors_by_order(simultaneous=True), plan.errors_by_order()
    assert sum(found["queries"]) == len(many) > 10**6
    ratio = np.array(found["margin"]) / np.array(alone["margin"])
    # two-sided quantiles of the normal law at .95 and at .95^(1/k)
    assert ratio == pytest.approx(5.589 / 1.95996, rel=2e-3)
    huge = sf.ranges(sf.Domain({"t": 2**18}), "t")
    assert len(huge) > 10**10
    wide = sf.plan(huge, sf.approx(1, "1e-6"), neighbours="add-remove", strategy="square-root")
    assert math.isfinite(wide.errors()["margin"][0])
    with pytest.raises(PlanError, match="those of one part"):
        wide.errors(simultaneous=True)


@pytest.mark.parametrize("budget", [sf.approx(1, "1e-6"), sf.pure(1)], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
@pytest.mark.parametrize("apart", [True, False])
def test_all_answers_are_within_their_half_widths_as_often_as_said(
    budget: sf.Budget, confidence: float, apart: bool
) -> None:
    """Coverage of all at once, over 2,000 draws: no less but for 3.5 binomial deviations, and for independent errors no
    more either. Mutants: pointwise widths; the count of queries halved."""
    work = sf.identity(AGES, "age", "sex") if apart else WORK
    plan = sf.plan(work, budget, neighbours="add-remove", mechanism="auto" if not apart else "factorization")
    width, repetitions = plan.half_widths(confidence, simultaneous=True), 2_000
    generator, blocks = np.random.default_rng(17), [q.block for q in work.blocks]
    held = 0
    for _ in range(repetitions):
        estimate = plan.strategy.estimate(
            [draw_float_noise(plan, b.rows, generator) for b in plan.strategy.blocks], None
        )
        error = np.concatenate([plan.strategy.answer(estimate, b) for b in blocks])
        held += bool((np.abs(error) <= width * (1 + 1e-12)).all())
    k = len(work)
    wanted = (1 - (1 - confidence) / k) ** k if budget.kind == "pure" else confidence
    slack = 3.5 * math.sqrt(wanted * (1 - wanted) / repetitions)
    assert held / repetitions >= wanted - slack
    if apart:
        assert held / repetitions <= wanted + slack
