"""L1 strategies: the error and its gradient, unit columns, exact sensitivity, published figures, structure."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import WorkloadError
from sfumato.operators import AllRange, Block, Dense, Prefix
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies import dense_optimal as pure
from sfumato.strategies.certificates import exact_sensitivity
from sfumato.strategies.dense_optimal import (
    PureStrategy,
    optimize_dense,
    optimize_pure,
    pure_error_and_gradient,
    rotate_to_least_l1,
)
from sfumato.strategies.factors import Matrix, quantise

ADD_REMOVE = PrivacyUnit(Neighbours.ADD_REMOVE)


def prefix(n):
    return np.tril(np.ones((n, n)))


def ranges(n):
    return np.array([[float(a <= j <= b) for j in range(n)] for a in range(n) for b in range(a, n)])


def dense(found: PureStrategy):
    return found.coefficients if found.basis is None else found.coefficients @ found.basis.dense()


def rmse(workload, strategy):
    """Unit-variance noise at unit L1 sensitivity, by the pseudo-inverse."""
    back = workload @ np.linalg.pinv(strategy)
    assert np.allclose(back @ strategy, workload, atol=1e-8 * np.abs(workload).max())
    return float(np.linalg.norm(back)) * float(np.abs(strategy).sum(axis=0).max()) / math.sqrt(len(workload))


@pytest.mark.parametrize(("n", "p"), [(2, 1), (7, 3), (12, 5)])
def test_error_is_that_of_the_strategy_with_unit_columns(n, p):
    rng = np.random.default_rng(n)
    workload = rng.normal(size=(n + 3, n))
    sums = np.maximum(rng.normal(size=(p, n)), 0.0)
    strategy = np.concatenate([np.eye(n), sums])
    strategy /= strategy.sum(axis=0)
    error, _ = pure_error_and_gradient(workload.T @ workload, sums)
    assert error == pytest.approx(np.linalg.norm(workload @ np.linalg.pinv(strategy)) ** 2, rel=1e-10)


@pytest.mark.parametrize(("n", "p"), [(2, 1), (7, 3), (12, 5)])
def test_gradient_is_that_of_finite_differences(n, p):
    rng = np.random.default_rng(n)
    workload = rng.normal(size=(n + 3, n))
    gram, sums = workload.T @ workload, rng.uniform(0.1, 2.0, size=(p, n))
    _, gradient = pure_error_and_gradient(gram, sums)
    step, found = 1e-5, np.empty((p, n))
    for at in np.ndindex(p, n):
        moved = np.zeros((p, n))
        moved[at] = step
        found[at] = (
            pure_error_and_gradient(gram, sums + moved)[0] - pure_error_and_gradient(gram, sums - moved)[0]
        ) / (2 * step)
    assert np.allclose(found, gradient, atol=1e-7 * float(np.abs(gradient).max()))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 17, 40, 130])
@pytest.mark.parametrize("make", [prefix, ranges])
def test_value_columns_and_bound(make, n):
    workload = make(n)
    found = optimize_pure(workload.T @ workload, ordered=True)
    strategy = dense(found)
    assert (strategy >= 0).all()
    assert np.allclose(strategy.sum(axis=0), 1.0, rtol=1e-12)
    assert found.value / math.sqrt(len(workload)) == pytest.approx(rmse(workload, strategy), rel=1e-8)
    assert found.value >= optimize_dense(workload.T @ workload).lower_bound * (1 - 1e-12)
    # every cell by itself is in the family
    assert found.value <= np.linalg.norm(workload) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("make", "n", "bar"),
    [
        (prefix, 64, 3.7640),
        (ranges, 64, 3.9272),
        (prefix, 256, 5.1802),
        (ranges, 256, 5.714),
        (prefix, 50, 3.52885),  # of the start from blocks of 25 cells
        (prefix, 101, 4.2150),  # of that from blocks of 12
    ],
)
def test_published_figures(make, n, bar):
    gram = np.asarray((Prefix(n) if make is prefix else AllRange(n)).gram().dense(), dtype=np.float64)
    rows = n if make is prefix else n * (n + 1) // 2
    found = optimize_pure(gram, ordered=True)
    # the fast value, and the same from a solve with the strategy itself
    strategy = dense(found)
    assert float(np.trace(np.linalg.solve(strategy.T @ strategy, gram))) == pytest.approx(found.value**2, rel=1e-9)
    assert found.value / math.sqrt(rows) <= bar


@pytest.mark.parametrize(("rows", "columns", "basis"), [(1, 1, None), (4, 4, 16), (6, 6, None), (3, 9, None)])
def test_a_strategy_is_turned_the_same_way_however_it_was_found(rows, columns, basis):
    """The optimum for L2 columns is found up to a rotation, which rounding decides; its L1 columns must not depend on
    it. Mutants: the strategy as found; lengths before the basis; a rotation that is none (error_and_gradient's A'A)."""
    rng = np.random.default_rng(rows)
    found = rng.normal(size=(rows, columns))
    across = None if basis is None else Dense(rng.integers(0, 2, (columns, basis)))
    first, length = rotate_to_least_l1(found, across)
    assert np.allclose(first.T @ first, found.T @ found, atol=1e-12)
    whole = first if across is None else first @ across.dense()
    assert length == pytest.approx(float(np.abs(whole).sum(axis=0).max()), rel=1e-12)
    for _ in range(5):
        rotation = np.linalg.qr(rng.normal(size=(rows, rows)))[0]
        other, again = rotate_to_least_l1(rotation @ found, across)
        assert again == pytest.approx(length, rel=1e-9)
        assert np.allclose(other, first, atol=1e-9)
    start = found if across is None else found @ across.dense()
    assert rows > 4 or length <= 1.1 * float(np.abs(start).sum(axis=0).max())


def test_many_rows_are_left_as_they_are():
    found, length = rotate_to_least_l1(np.eye(513), None)
    assert np.array_equal(found, np.eye(513))
    assert length == math.inf
    assert rotate_to_least_l1(np.zeros((0, 5)), None)[1] == 0.0


@pytest.mark.parametrize("k", [3, 4, 5, 6])
def test_the_order_does_not_hang_on_rounding(k):
    """All columns of k bits: the second eigenvalue of their correlations has k - 1 equal neighbours. Mutants: the
    eigenvector that LAPACK happens to return; its sign; ties in the order of their last digits."""
    rng = np.random.default_rng(k)
    columns = np.array(list(np.ndindex(*(2,) * k)))[1:].T
    gram = (columns.T @ columns).astype(float)
    order = pure._spectral_order(gram)
    assert sorted(order.tolist()) == list(range(len(gram)))
    for _ in range(10):
        error = rng.normal(size=gram.shape) * 2e-16
        assert np.array_equal(pure._spectral_order(gram * (1 + error + error.T)), order)


def test_figures_of_few_queries_do_not_hang_on_rounding(monkeypatch):
    """What is planned for Laplace noise and few queries, the optimum found turned by any rotation. Mutant: its L1
    columns as they come."""
    matrix = np.random.default_rng(0).integers(0, 2, (4, 256))
    figures = []
    for seed in range(3):
        rotation = np.linalg.qr(np.random.default_rng(seed).normal(size=(4, 4)))[0]

        def rotated(*args, rotation=rotation, **options):
            found = optimize_dense(*args, **options)
            return dataclasses.replace(found, strategy=rotation @ found.strategy)

        monkeypatch.setattr("sfumato.strategies.dense_planning.optimize_dense", rotated)
        plan = sf.plan(sf.queries(matrix), sf.pure(1), neighbours="add-remove", mechanism="factorization")
        figures.append(plan.rmse)
    assert figures == pytest.approx(figures[:1] * 3, rel=1e-7)


def test_order_is_found():
    gram = np.asarray(AllRange(64).gram().dense(), dtype=np.float64)
    mixed = np.random.default_rng(3).permutation(64)
    found = optimize_pure(gram[np.ix_(mixed, mixed)])
    assert found.value == pytest.approx(optimize_pure(gram, ordered=True).value, rel=5e-3)


def test_the_same_question_gives_the_same_strategy():
    gram = prefix(60).T @ prefix(60)
    first = optimize_pure(gram, ordered=True)
    pure._known.cache_clear()
    second = optimize_pure(gram, ordered=True)
    assert np.array_equal(first.coefficients, second.coefficients)


def test_what_was_found_of_one_gram_is_not_given_to_another():
    """Answers that are kept are told apart by the whole Gram and the tolerance. Mutants: kept by the number of cells;
    by the Gram alone."""
    pure._known.cache_clear()
    asked = [(16, 1e-7), (17, 1e-7), (16, 1e-1)]
    grams = [(workload.T @ workload, e) for n, e in asked for workload in (prefix(n), np.eye(n))]
    kept = [optimize_pure(g, ordered=True, tolerance=e) for g, e in (*grams, *grams)]
    for (gram, tolerance), found in zip((*grams, *grams), kept, strict=True):
        pure._known.cache_clear()
        alone = optimize_pure(gram, ordered=True, tolerance=tolerance)
        assert np.array_equal(found.coefficients, alone.coefficients)


def test_scale_does_not_matter():
    gram = prefix(40).T @ prefix(40)
    plain, large = optimize_pure(gram, ordered=True), optimize_pure(gram * 1e12, ordered=True)
    assert large.value == pytest.approx(plain.value * 1e6, rel=1e-5)


def test_cells_treated_alike_are_one_and_unasked_cells_cost_nothing():
    coarse = prefix(8)
    workload = np.concatenate([np.repeat(coarse, 3, axis=1), np.zeros((8, 2))], axis=1)
    found = optimize_pure(workload.T @ workload, ordered=True)
    assert found.basis is not None
    assert found.basis.integral
    assert found.basis.shape == (8, 26)
    strategy = dense(found)
    assert not strategy[:, 24:].any()
    assert rmse(workload, strategy) == pytest.approx(
        rmse(coarse, dense(optimize_pure(coarse.T @ coarse, ordered=True)))
    )


def test_opposite_cells_stay_apart():
    workload = np.array([[1.0, -1.0, 2.0], [0.0, 0.0, 1.0]])
    found = optimize_pure(workload.T @ workload)
    strategy = dense(found)
    assert found.value / math.sqrt(2) == pytest.approx(rmse(workload, strategy), rel=1e-9)


def test_nothing_asked():
    found = optimize_pure(np.zeros((3, 3)))
    assert found.value == 0.0
    assert found.coefficients.shape == (1, 3)
    assert not found.coefficients.any()


@pytest.mark.parametrize("gram", [np.zeros((2, 3)), [[1.0, math.nan], [math.nan, 1.0]], [[1.0, 2.0], [0.0, 1.0]]])
def test_refuses_what_is_no_gram(gram):
    with pytest.raises(WorkloadError):
        optimize_pure(gram)


@pytest.mark.parametrize("merged", [False, True])
def test_integers_have_the_sensitivity_of_brute_force(merged):
    workload = np.repeat(prefix(6), 2, axis=1) if merged else prefix(12)
    found = optimize_pure(workload.T @ workload, ordered=True)
    factor = quantise(found.coefficients, found.basis, 2.0**12)
    assert isinstance(factor, Matrix)
    whole = np.asarray(factor.measured.dense()).astype(object)
    blocks = (Block((("a",),), (factor.measured,)),)
    added = exact_sensitivity(blocks, {"a": 12}, ADD_REMOVE, 1)
    assert (added.value, added.exact) == (max(abs(whole).sum(axis=0)), True)
    assert added.value == pytest.approx(2.0**12, rel=5e-3)
    replaced = exact_sensitivity(blocks, {"a": 12}, PrivacyUnit(Neighbours.REPLACE_ONE), 1)
    assert replaced.value == max(abs(whole[:, i] - whole[:, j]).sum() for i in range(12) for j in range(12))


# ---- plans ---------------------------------------------------------------------------------------------


def test_plan_takes_it_and_predicts_its_error():
    domain = sf.Domain({"age": sf.Integers(0, 63)})
    plan = sf.plan(sf.prefix(domain, "age"), sf.pure(1), neighbours="add-remove")
    assert plan.mechanism == "factorization"
    assert plan.rmse / math.sqrt(2) <= 3.7640
    assert plan.lower_bound is None
    factor = np.asarray(plan.strategy.blocks[0].operator.dense(), dtype=np.float64)
    assert plan.rmse == pytest.approx(rmse(prefix(64), factor) * math.sqrt(2), rel=1e-6)
    (note,) = plan.notes
    proved = float(note.split("errs less than ")[1].split(" ")[0])
    assert proved == pytest.approx(2.0998565 * math.sqrt(2), rel=1e-5)
    assert proved < plan.rmse


def test_products_multiply():
    domain = sf.Domain({"age": sf.Integers(0, 31), "sex": 3})
    work = sf.prefix(domain, "age", by=["sex"])
    plan = sf.plan(work, sf.pure(2), neighbours="add-remove", mechanism="factorization")
    one = dense(optimize_pure(prefix(32).T @ prefix(32), ordered=True))
    assert plan.rmse == pytest.approx(rmse(prefix(32), one) * math.sqrt(2) / 2, rel=1e-4)


def test_three_way_tables_of_eight_bits():
    domain = sf.Domain({f"bit{i}": 2 for i in range(8)})
    plan = sf.plan(sf.marginals(domain, 3), sf.pure(1), neighbours="add-remove")
    assert plan.rmse / math.sqrt(2) <= 10.847
