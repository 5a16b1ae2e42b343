"""What a plan accepts, a release answers: nothing fails after the debit for what the plan knew."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import sfumato as sf
from sfumato.operators import Dense, Identity
from sfumato.strategies.dense_optimal import optimize_dense
from sfumato.strategies.factors import Contrasts, Matrix
from support.drawn import draw, fulfil
from support.words import plan_with

BUDGETS = {"gdp": sf.gdp(1), "approx": sf.approx(1, "1e-6"), "pure": sf.pure(1)}


@pytest.mark.parametrize("kind", [Matrix, Contrasts])
@pytest.mark.parametrize("rank", [4, 3])
def test_least_squares_over_few_rows_are_those_over_the_cells(kind: type[Matrix], rank: int) -> None:
    """Mutants: (AAᵀ)^+ applied once in `cells_of_rows`; the known total left out of the rows of contrasts."""
    rng = np.random.default_rng(5)
    rows = rng.integers(-9, 10, (4, 2_100))
    rows[rank:] = rows[0] - rows[1]
    made = kind(Dense(rows), 2.0)
    scaled = rows / 2.0
    known = np.sqrt((scaled**2).sum()) / 2_100 * np.ones((1, 2_100))
    whole = np.vstack([scaled, known]) if kind is Contrasts else scaled
    inverse = np.linalg.pinv(whole)
    asked = rng.integers(-2, 3, (3, 4)) @ rows
    noise = rng.normal(size=(4, 2))
    np.testing.assert_allclose(made.cells(noise), inverse[:, :4] @ noise, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(made.row_powers(Dense(asked), 2), ((asked @ inverse) ** 2).sum(axis=1), rtol=1e-8)
    fourth = ((asked @ inverse[:, :4]) ** 4).sum(axis=1)
    np.testing.assert_allclose(made.row_powers(Dense(asked), 4), fourth, rtol=1e-8)
    np.testing.assert_allclose(made.cells_of_rows(asked), asked @ inverse @ inverse.T, rtol=1e-8, atol=1e-11)
    made.check(Dense(asked), "x")
    with pytest.raises(sf.NotAnswerable, match="outside the span"):
        made.check(Dense(np.vstack([asked, rng.integers(0, 2, 2_100)])), "x")
    if kind is Contrasts:
        found = made.spread_ones()
        assert found is not None
        np.testing.assert_allclose(found, inverse @ inverse.T @ np.ones(2_100), rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("asked", ["sum", "predicate"])
def test_one_query_over_many_cells_is_answered(asked: str, budget: str, relation: str) -> None:
    """Mutant: the least-squares cells of what is answered by itself worked out at once, cells by cells."""
    domain = sf.Domain({"x": sf.Integers(0, 10_000)})
    work = sf.sums(domain, "x") if asked == "sum" else sf.predicates(domain, ["x >= 2 and x < 7000"])
    plan = sf.plan(work, BUDGETS[budget], neighbours=relation)
    counts = np.zeros(10_001, dtype=np.int64)
    counts[[1, 5_000]] = 10**3, 10**6
    found = sf.release(plan, sf.Histogram(counts), ledger=None)
    exact = float(Fraction(5_000 * 10**6 + 10**3) if asked == "sum" else 10**6)
    low, high = found.intervals(1 - 1e-9).low[0], found.intervals(1 - 1e-9).high[0]
    assert low <= exact <= high < 1.01 * exact
    assert found.standard_errors() == pytest.approx([plan.rmse])


def test_what_is_not_answered_by_few_rows_is_refused_in_words() -> None:
    """Mutant: rows outside the span answered by their projection."""
    domain = sf.Domain({"x": sf.Integers(0, 10_000)})
    found = sf.release(sf.plan(sf.sums(domain, "x"), sf.gdp(1), neighbours="add-remove"), _one(10_001), ledger=None)
    with pytest.raises(sf.NotAnswerable, match="outside the span"):
        found.ask("x < 5")
    assert Matrix(Identity(3)).spread_ones() is not None


def _one(cells: int) -> sf.Histogram:
    return sf.Histogram(np.ones(cells, dtype=np.int64))


@pytest.mark.parametrize(("degree", "cells"), [(1, 30_000), (2, 6_000)])
def test_few_rows_over_many_columns_reach_what_is_proved_of_some(degree: int, cells: int) -> None:
    """Mutants: a strategy not divided by its longest column; columns added until none is new, never proved near; what
    was proved of the columns of one round scaled once more in the next."""
    x = np.arange(cells) / cells
    rows = 30 * np.vstack([np.kron(np.eye(2), x**k) for k in range(degree + 1)])
    found = optimize_dense(matrix=rows, tolerance=1e-5)
    assert 0.0 <= found.gap <= 1e-5
    assert np.linalg.norm(found.strategy, axis=0).max() <= 1 + 1e-12
    reached = np.linalg.norm(rows @ np.linalg.pinv(found.strategy))
    assert reached == pytest.approx(found.upper_bound, rel=1e-6)
    coarse = optimize_dense(matrix=rows[:, :: cells // 100])
    assert coarse.lower_bound <= found.upper_bound * (1 + 1e-9)


@pytest.mark.parametrize("objective", ["cells", "max"])
def test_few_rows_of_which_every_column_may_bind_reach_their_bound(objective: str) -> None:
    """Mutants: columns that stick out, added by the round and no more; the optimum of the mean for the largest."""
    rows = (np.random.default_rng(0).random((20, 5_000)) < 0.5).astype(np.int64)
    plan = sf.plan(sf.queries(rows), sf.gdp(1), neighbours="add-remove", objective=objective)
    assert plan.lower_bound is not None
    assert plan.objective_value <= 1.0005 * plan.lower_bound


@pytest.mark.parametrize("cells", [3_001, 100_001])
def test_sums_and_counts_by_groups_are_planned_as_those_of_one_group(cells: int) -> None:
    """Sum and count of a group: the convex hull of (x, 1) has two corners, whose optimum is the bound.

    Mutant: each table a factorization of its own, which errs 1.4142.
    """
    domain = sf.Domain({"g": 13, "cost": sf.Integers(0, cells - 1)})
    work = sf.stack(sf.sums(domain, "cost", by=["g"]), sf.marginals(domain, sets=[("g",)]))
    plan = sf.plan(work, sf.gdp(1), neighbours="add-remove")
    assert plan.lower_bound is not None
    assert plan.lower_bound == pytest.approx(1.14412, rel=1e-3)
    assert plan.objective_value <= 1.0005 * plan.lower_bound
    counts = np.zeros((13, cells), dtype=np.int64)
    counts[:, [10, cells - 1]] = 10**6
    found = sf.release(plan, sf.Histogram(counts), ledger=None).mean("cost", by="g")
    exact = (10 + cells - 1) / 2
    assert np.abs(np.array(found["mean cost"]) - exact).max() < cells / 1_000


@pytest.mark.parametrize("policy", [None, "other", "drop"])
def test_means_of_sums_and_counts_work_whatever_is_missing_and_plans_say_so(policy: str | None) -> None:
    """Mutants: (other) left out of a denominator that was never counted without it; a plan that promises no means."""
    options = {} if policy is None else {"outside": policy, "missing": policy}
    domain = sf.Domain({"g": sf.Categories(["a", "b"]), "cost": sf.Integers(0, 99, **options)})
    sums = sf.sums(domain, "cost", by=["g"])
    work = sf.stack(sums, sf.marginals(domain, sets=[("g",)]))
    plan = sf.plan(work, sf.gdp(1), neighbours="add-remove")
    assert "means of cost by g" in str(plan)
    counts = np.zeros(domain.shape, dtype=np.int64)
    counts[:, 40] = 10**6
    counts[:, -1] = 10**6 if policy == "other" else 0
    found = sf.release(plan, sf.Histogram(counts), ledger=None).mean("cost", by="g")
    assert np.abs(np.array(found["mean cost"]) - (20 if policy == "other" else 40)).max() < 0.01
    assert ["(other) count 0" in n for n in found["note"]] == [policy == "other"] * 2
    alone = sf.plan(sums, sf.gdp(1), neighbours="add-remove", mechanism="gaussian")
    assert "for means stack the counts too, marginals of g" in str(alone)


def test_what_cannot_be_read_back_is_refused_before_it_is_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: no rehearsal before the debit."""
    domain = sf.Domain({"x": sf.Integers(0, 19)})
    plan = sf.plan(sf.sums(domain, "x"), sf.gdp(1), neighbours="add-remove")

    def broken(*_: object) -> None:
        raise sf.NotAnswerable("too large")

    monkeypatch.setattr(type(plan.strategy), "estimate", broken)
    ledger = sf.Ledger.in_memory(sf.gdp(2)) if hasattr(sf.Ledger, "in_memory") else None
    with pytest.raises(sf.errors.PlanError, match="cannot be read back"):
        sf.release(plan, _one(20), ledger=ledger)
    with pytest.raises(sf.errors.PlanError, match="cannot be read back"):
        sf.plan(sf.sums(domain, "x"), sf.gdp(1), neighbours="add-remove", mechanism="gaussian")


@pytest.mark.parametrize("seed", range(1_000, 1_024))
def test_what_a_plan_accepts_a_release_answers(seed: int) -> None:
    """Plans drawn at random, small ones here; all of them, and large ones, by bench/released_drawn.py.

    Mutants: least squares over the cells of any number; an estimate that fails for real coefficients.
    """
    work, budget, options = draw(seed, large=False)
    try:
        plan = plan_with(work, budget, **options)
    except sf.SfumatoError:
        return
    fulfil(plan)
