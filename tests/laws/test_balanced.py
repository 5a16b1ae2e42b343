"""Laws of bias and noise balanced for a number of records: certificates, brute force, prices, covariances."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import minimize

import sfumato as sf
from sfumato.errors import PlanError, WorkloadError
from sfumato.operators.base import FloatArray
from sfumato.strategies.approximate import BalancedOptimum, Biased, approximate_optimum, balanced_optimum
from sfumato.strategies.dense_optimal import optimize_dense
from sfumato.strategies.dense_swap import swap_optimum

SIGMA = 4.2247  # (1, 1e-6)
BUDGET = sf.approx(1, "1e-6")
RELATIONS = pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
PAIRS = pytest.mark.parametrize("pairs", [False, True])


def matrices() -> st.SearchStrategy[FloatArray]:
    shapes = st.tuples(st.integers(1, 6), st.integers(2, 4))
    entries = st.integers(-2, 2).map(float)
    return shapes.flatmap(lambda shape: hnp.arrays(np.float64, shape, elements=entries)).filter(
        lambda F: bool(np.ptp(F, axis=1).any())
    )


def disjunctions(d: int) -> FloatArray:
    return np.asarray(sf.disjunctions(d).operator.dense(), dtype=np.float64)


def total(F: FloatArray, exchange: float, found: BalancedOptimum, pairs: bool) -> float:
    """The objective of R and M as they are."""
    M = found.strategy
    off = found.reconstruction @ M + found.offset[:, None] - F
    norms = np.linalg.norm(M[:, :, None] - M[:, None, :], axis=0).max() if pairs else np.linalg.norm(M, axis=0).max()
    assert norms <= 1 + 1e-9
    return math.hypot(float(np.linalg.norm(found.reconstruction)), exchange * float(np.linalg.norm(off, axis=0).max()))


@PAIRS
@settings(max_examples=15, deadline=None)
@given(F=matrices(), exchange=st.sampled_from([0.5, 3.0, 40.0]))
def test_certificates(pairs: bool, F: FloatArray, exchange: float) -> None:
    found = balanced_optimum(F, exchange, pairs=pairs)
    assert found.lower_bound <= found.upper_bound
    assert total(F, exchange, found, pairs) == pytest.approx(found.upper_bound, rel=1e-6)
    # no bias, and no noise, are answers too
    exact = swap_optimum(matrix=F).upper_bound if pairs else optimize_dense(matrix=F).upper_bound
    assert found.lower_bound <= exact * (1 + 1e-9)
    nothing = F - (F.max(axis=1) + F.min(axis=1))[:, None] / 2 if pairs else F
    assert found.lower_bound <= exchange * np.linalg.norm(nothing, axis=0).max() * (1 + 1e-9)
    if not pairs:
        for alpha in (0.05, 0.3):
            bias = alpha * math.sqrt(len(F))
            if bias < np.linalg.norm(F, axis=0).max():
                given_bias = approximate_optimum(F, alpha)
                assert found.lower_bound <= math.hypot(given_bias.upper_bound, exchange * bias) * (1 + 1e-9)


@PAIRS
def test_brute_force_over_answers_is_no_better(pairs: bool) -> None:
    F, exchange = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 2.0, 1.0]]), 3.0

    def value(x: FloatArray) -> float:
        Z = x.reshape(F.shape)
        noise = swap_optimum(matrix=Z).upper_bound if pairs else optimize_dense(matrix=Z).upper_bound
        return math.hypot(noise, exchange * float(np.linalg.norm(Z - F, axis=0).max()))

    found = balanced_optimum(F, exchange, pairs=pairs, tolerance=1e-3, max_iterations=500)
    start = found.reconstruction @ found.strategy + found.offset[:, None]
    for x in (F, start):
        best = minimize(value, x.reshape(-1), method="Nelder-Mead", options={"maxiter": 60}).fun
        assert found.lower_bound <= best * (1 + 1e-9)
    assert found.upper_bound <= found.lower_bound * 1.003
    # more queries than cells: the same after a rotation
    taller = np.linalg.qr(np.random.default_rng(1).normal(size=(7, 3)))[0] @ F
    again = balanced_optimum(taller, exchange, pairs=pairs, tolerance=1e-3, max_iterations=500)
    assert again.upper_bound == pytest.approx(found.upper_bound, rel=3e-3)
    assert total(taller, exchange, again, pairs) == pytest.approx(again.upper_bound, rel=1e-6)


@pytest.mark.parametrize(("records", "value"), [(10, 0.632), (30, 0.365), (100, 0.146), (300, 0.0508)])
def test_published_joint_optima(records: int, value: float) -> None:
    """Disjunctions of 4 attributes, the sources' bound of twice the largest column for replaced records."""
    found = balanced_optimum(disjunctions(4), records / (2 * SIGMA))
    scale = 2 * SIGMA / records / 4
    assert found.lower_bound * scale <= value * 1.001
    assert found.upper_bound * scale == pytest.approx(value, rel=0.012)


def test_what_cannot_be_balanced_is_refused() -> None:
    for exchange in (0.0, math.inf, math.nan):
        with pytest.raises(WorkloadError, match="positive number"):
            balanced_optimum(np.eye(2), exchange)
    with pytest.raises(WorkloadError, match="count alike"):
        balanced_optimum(np.ones((2, 2)), 1.0, pairs=True)
    with pytest.raises(WorkloadError, match="count alike"):
        balanced_optimum(np.zeros((2, 2)), 1.0)
    with pytest.raises(WorkloadError, match="shape"):
        balanced_optimum(np.zeros(2), 1.0)


DOMAIN = sf.Domain({"a": sf.Booleans(), "b": sf.Integers(0, 2)})
MIXED = sf.stack(cells=sf.identity(DOMAIN), up=sf.prefix(DOMAIN, "b"), weights={"up": 4})


def made(relation: str, work: sf.Workload = MIXED, records: int = 12) -> sf.Plan:
    return sf.plan(work, BUDGET, neighbours=relation, mechanism="approximate", records=records, objective="cells")


def integers(plan: sf.Plan) -> FloatArray:
    (block,) = plan.strategy.blocks
    return np.asarray(block.operator.dense(), dtype=np.float64)  # type: ignore[union-attr]


def responses(plan: sf.Plan, block: object) -> tuple[FloatArray, FloatArray]:
    """(R, c): the answers' coefficients of the measured values and of the number of records, by unit vectors."""
    width = plan.strategy.blocks[0].rows
    total_known = plan.unit.total_is_public

    def answer(values: FloatArray, n: int) -> FloatArray:
        estimate = plan.strategy.estimate([values], n if total_known else None)
        return plan.strategy.answer(estimate, block)  # type: ignore[arg-type]

    columns = [answer(row, 0) for row in np.eye(width)]
    return np.stack(columns, axis=1), answer(np.zeros(width), 1)


@RELATIONS
def test_the_strategy_is_what_it_says(relation: str) -> None:
    plan = made(relation)
    strategy = plan.strategy
    assert isinstance(strategy, Biased)
    assert strategy.records == plan.bias_records == 12
    measured = integers(plan)
    # brute-forced sensitivity, in integers
    columns = [[int(e) for e in column] for column in measured.T]
    zero = [0] * len(columns[0])
    ends = [(c, zero) for c in columns] if relation == "add-remove" else list(itertools.combinations(columns, 2))
    worst = max(sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) for one, other in ends)
    assert plan.sensitivity.value == worst
    assert Fraction(worst) <= plan.budget.mu_squared * Fraction(plan.noise.variance)
    # bias, variances and covariances as stated, of the workload's blocks; none of other questions
    rows: list[FloatArray] = []
    for q in plan.workload.blocks:
        R, c = responses(plan, q.block)
        exact = np.asarray(sf.Workload(DOMAIN, (q,)).operator.dense(), dtype=np.float64)
        off = np.abs(R @ measured + c[:, None] - exact)
        stated = strategy.deviations(q.block)
        assert stated is not None
        assert stated == pytest.approx(off, abs=1e-6)
        assert (stated >= off - 1e-12).all()
        assert strategy.bias_bound(q.block) >= stated.max()
        np.testing.assert_allclose(
            strategy.row_powers(q.block, 2).reshape(-1), (R**2).sum(axis=1), rtol=1e-9, atol=1e-30
        )
        rows.append(R)
    every = np.vstack(rows)
    np.testing.assert_allclose(
        plan.covariance(plan.workload), every @ every.T * plan.noise.variance, rtol=1e-9, atol=1e-9
    )
    other = sf.identity(DOMAIN, "a").blocks[0].block
    back, c = responses(plan, other)
    exact = np.asarray(sf.identity(DOMAIN, "a").operator.dense())
    assert back @ measured + c[:, None] == pytest.approx(exact, abs=1e-6)
    assert strategy.deviations(other) is None
    np.testing.assert_allclose(strategy.row_powers(other, 2) + np.zeros(2), (back**2).sum(axis=1), rtol=1e-7)
    between = plan.covariance(plan.workload, sf.identity(DOMAIN, "a"))
    np.testing.assert_allclose(between, every @ back.T * plan.noise.variance, rtol=1e-7, atol=1e-9)


@RELATIONS
def test_the_stated_error_is_the_worst_there_is(relation: str) -> None:
    """Over all tables of twelve records in one cell the largest error is the stated one, and mixtures have less."""
    plan = made(relation)
    rng = np.random.default_rng(3)
    off = np.vstack([plan.strategy.deviations(q.block) for q in plan.workload.blocks])  # type: ignore[list-item]
    rows = [responses(plan, q.block) for q in plan.workload.blocks]
    measured = integers(plan)
    exact = np.asarray(plan.workload.operator.dense(), dtype=np.float64)
    signed = np.vstack([R for R, _ in rows]) @ measured + np.concatenate([c for _, c in rows])[:, None] - exact
    noise = plan.standard_errors() ** 2
    tables = [*(12 * np.eye(6)), *rng.multinomial(12, np.ones(6) / 6, 50)]
    errors = [math.sqrt(float((noise + (signed @ x) ** 2).mean())) for x in tables]
    assert max(errors) == pytest.approx(plan.rmse, rel=1e-6)
    assert max(errors) <= plan.rmse * (1 + 1e-9)
    assert plan.rmse**2 == pytest.approx(noise.mean() + plan.bias_rmse**2)
    assert plan.bias_bounds() == pytest.approx(12 * off.max(axis=1))
    weights = np.array([1.0] * 6 + [4.0] * 3)
    weighted = [math.sqrt(float((weights * (noise + (signed @ x) ** 2)).sum() / weights.sum())) for x in tables]
    assert max(weighted) == pytest.approx(plan.objective_value, rel=1e-6)


@RELATIONS
def test_the_plan_attains_the_optimum_of_the_weighted_queries(relation: str) -> None:
    plan = made(relation)
    rows = np.asarray(MIXED.operator.dense()) * np.sqrt([1.0] * 6 + [4.0] * 3)[:, None]
    sigma = 1 / math.sqrt(float(BUDGET.mu_squared))
    found = balanced_optimum(rows, 12 / sigma, pairs=relation == "replace-one")
    assert plan.objective_value * math.sqrt(18) == pytest.approx(found.upper_bound * sigma, rel=1e-5)


@pytest.mark.parametrize("damage", ["rows", "offset", "records", "unknown"])
def test_strategies_that_do_not_fit_are_refused(damage: str) -> None:
    plan = made("replace-one" if damage != "unknown" else "add-remove")
    good = plan.strategy
    assert isinstance(good, Biased)
    back, offsets, limit = list(good.reconstructions), list(good.offsets), good.limit
    if damage == "rows":
        back[0] = back[0][1:]
    elif damage == "offset":
        offsets[0] = offsets[0][:1]
    elif damage == "records":
        limit = 0
    else:
        offsets[0] = offsets[0] + 1.0
    with pytest.raises(PlanError, match=r"offset|records"):
        Biased(good.measured, good.answered, tuple(back), tuple(offsets), limit)
