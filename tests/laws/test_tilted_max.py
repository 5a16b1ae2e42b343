"""Laws of the least largest error: what is claimed is what is measured, the optimum is reached, the bound is proved."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.domain import Domain, Integers
from sfumato.errors import PlanError
from sfumato.operators import AllRange, Block, Dense, Family, Identity, LinearOperator, Prefix, Total, Window
from sfumato.plans.plan import Plan, price_design
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies import tilted_bounds as tilted_max
from sfumato.strategies.dense_blocks import row_weighted_gram
from sfumato.strategies.design import Problem
from sfumato.strategies.residual_allocation import Effect
from sfumato.strategies.residual_tables import extreme_rows, upper_hull_corners
from sfumato.strategies.strategy import marginalise
from sfumato.strategies.tilted import Product, Union, optimise_shapes
from sfumato.strategies.tilted_bounds import LargestErrorUnion, optimise_largest, union_bound
from sfumato.workloads import QueryBlock, Workload
from support.searching import designs

SIZES = {"a": 6, "b": 6, "c": 3}
REPETITIONS = 600
MATRIX = Dense(np.random.default_rng(4).integers(-1, 3, (8, 6)))

Factors = dict[str, LinearOperator]
Weighted = list[tuple[float, Factors]]
CASES: dict[str, Weighted] = {
    "one prefix": [(1.0, {"a": Prefix(6)})],
    "prefixes by cells": [
        (1.0, {"a": Prefix(6), "c": Identity(3)}),
        (1.0, {"b": Prefix(6)}),
        (2.0, {"c": Identity(3)}),
    ],
    # equal sizes, different contrasts: one matrix for both would be a wrong price and a wrong error
    "equal sizes": [
        (1.0, {"a": Prefix(6)}),
        (1.0, {"b": MATRIX}),
        (3.0, {"a": Prefix(6), "b": MATRIX}),
    ],
    "ranges, windows and the total": [
        (1.0, {"a": AllRange(6), "b": Window(6, 2)}),
        (1.0, {"a": Identity(6), "c": Prefix(3)}),
        (5.0, {}),
    ],
    "rows that are constant": [
        (1.0, {"a": Dense(np.full((2, 6), 3)), "b": Prefix(6)}),
        (1.0, {"a": Prefix(6), "c": Dense(np.ones((1, 3), dtype=int))}),
        (1.0, {"a": Dense(np.ones((1, 6), dtype=int)), "c": Identity(3)}),
    ],
}


def _workload(products: Weighted, sizes: dict[str, int] = SIZES) -> Workload:
    domain = Domain({n: Integers(0, k - 1) for n, k in sizes.items()})
    blocks = [
        QueryBlock(f"p{i}", Block(tuple((a,) for a in f), tuple(f.values())), weight=Fraction(round(w)))
        for i, (w, f) in enumerate(products)
    ]
    return Workload(domain, tuple(blocks))


def _problem(products: Weighted, objective: str, relation: Neighbours = Neighbours.ADD_REMOVE) -> Problem:
    return Problem(_workload(products), sf.gdp(1), PrivacyUnit(relation), "gaussian", objective)


def _plans(products: Weighted, objective: str, relation: Neighbours) -> list[Plan]:
    problem = _problem(products, objective, relation)
    return [price_design(d, problem) for d in designs(problem, "marginals")]


def _dense(block: Block | Family) -> np.ndarray:
    """(rows, cells of the whole domain)."""
    units = np.eye(math.prod(SIZES.values()), dtype=np.int64)
    tables = units.reshape(-1, *SIZES.values())
    return np.stack([marginalise(u, tuple(SIZES), block) for u in tables], axis=1)


CLAIMS = list(itertools.product(CASES, ("cells", "max"), list(Neighbours)))


@pytest.mark.parametrize(("name", "objective", "relation"), CLAIMS)
def test_claimed_errors_are_those_of_least_squares_and_the_price_is_brute_force(
    name: str, objective: str, relation: Neighbours
) -> None:
    """W B^+ of the integers that are measured, and their columns. Mutants: contrasts kept by size, an allocation for
    real contrasts priced as if rounding kept their length."""
    for plan in _plans(CASES[name], objective, relation):
        measured = np.concatenate([_dense(b) for b in plan.strategy.blocks])
        asked = np.concatenate([_dense(q.block) for q in plan.workload.blocks]).astype(float)
        squared = (measured.astype(object) ** 2).sum(axis=0)
        if relation is Neighbours.ADD_REMOVE:
            real = measured.astype(float)
            assert plan.sensitivity.value == max(squared)
        else:
            # the total is known without noise
            real, asked = (m - m.mean(axis=1, keepdims=True) for m in (measured.astype(float), asked))
            columns = measured.astype(object)
            pairs = max(((columns[:, [j]] - columns) ** 2).sum(axis=0).max() for j in range(columns.shape[1]))
            assert plan.sensitivity.value >= pairs
            assert not plan.sensitivity.exact or plan.sensitivity.value == pairs
        assert plan.sensitivity.value <= plan.noise.sigma**2  # type: ignore[union-attr]
        back = asked @ np.linalg.pinv(real, rcond=1e-9)
        np.testing.assert_allclose(back @ real, asked, atol=1e-6)
        errors = np.sqrt((back**2).sum(axis=1) * plan.noise.variance)
        np.testing.assert_allclose(plan.standard_errors(), errors, rtol=1e-6, atol=1e-9)
        assert plan.max_standard_error == pytest.approx(errors.max(), rel=1e-6)


SIMULATED = [(name, Neighbours.ADD_REMOVE) for name in CASES] + [("equal sizes", Neighbours.REPLACE_ONE)]


@pytest.mark.parametrize(("name", "relation"), SIMULATED)
def test_simulated_errors_are_the_claimed_ones(name: str, relation: Neighbours) -> None:
    """Within six deviations of a sample variance for every query. Mutants: as above."""
    plan = _plans(CASES[name], "max", relation)[-1]
    x = np.random.default_rng(2).integers(0, 50, tuple(SIZES.values()))
    done = sf.simulate(plan, x, repetitions=REPETITIONS)
    claimed = plan.standard_errors()
    wide = 6 / math.sqrt(2 * REPETITIONS)
    np.testing.assert_allclose(done.per_query_rmse, claimed, rtol=wide, atol=1e-6)
    assert done.per_query_rmse.max() == pytest.approx(plan.max_standard_error, rel=wide)


@pytest.mark.parametrize("name", list(CASES))
def test_releases_measure_what_was_planned(name: str) -> None:
    """Every answer within ten standard errors, which are far below a record. Mutant: families counted by shape."""
    done = sf.plan(
        _workload(CASES[name]), sf.gdp(1000), neighbours="add-remove", mechanism="marginals", objective="max"
    )
    x = np.random.default_rng(6).integers(0, 50, tuple(SIZES.values()))
    errors = sf.release(done, sf.Histogram(x), ledger=None).answers - done.workload.operator.matvec(x.reshape(-1))
    assert done.max_standard_error < 0.02
    assert np.abs(errors / done.standard_errors()).max() < 10


@pytest.mark.parametrize("name", list(CASES))
def test_plans_for_the_largest_error_are_near_their_bound_and_no_worse_than_others(name: str) -> None:
    plain, tilted = _plans(CASES[name], "max", Neighbours.ADD_REMOVE)
    for_mean = _plans(CASES[name], "cells", Neighbours.ADD_REMOVE)[-1]
    weighted = max(float(np.max(e.item.weight * e.powers)) for e in for_mean.entries) * for_mean.noise.variance
    assert tilted.lower_bound is not None
    assert tilted.lower_bound <= tilted.objective_value <= tilted.lower_bound * 1.06
    assert tilted.objective_value <= plain.objective_value * 1.001
    assert tilted.objective_value <= math.sqrt(weighted) * 1.001
    even = optimise_shapes(Union(CASES[name], SIZES))
    for_even = LargestErrorUnion(CASES[name], SIZES)
    shapes = optimise_largest(for_even)
    assert set(shapes) == set(even)
    # what the search believes is what the plan has, up to rounding
    assert tilted.objective_value == pytest.approx(math.sqrt(for_even.error(shapes)), rel=0.01)


@pytest.mark.parametrize("n", [2, 3, 16, 64])
def test_one_prefix_reaches_the_factorization_norm(n: int) -> None:
    """The dual of gamma_2 meets it, far below the square root of the Toeplitz matrix. Mutant: tilts left at 1/n."""
    union = LargestErrorUnion([(1.0, {"a": Prefix(n)})], {"a": n})
    shapes = optimise_largest(union)
    products, weights = union.witness(shapes)
    proved = union_bound(products, {"a": n}, weights=weights)
    assert proved is not None
    reached = union.error(shapes)
    assert proved**2 <= reached <= proved**2 * (1 + 2e-3)
    binomial = [math.comb(2 * k, k) / 4**k for k in range(n)]
    assert reached < sum(c**2 for c in binomial) ** 2
    if n == 2:
        assert reached == pytest.approx(4 / 3, rel=1e-3)


def test_a_product_reaches_the_product_of_the_norms() -> None:
    """gamma_2 is multiplicative over Kronecker products."""
    sizes = {"a": 9, "b": 5}
    parts = [LargestErrorUnion([(1.0, {a: Prefix(n)})], {a: n}) for a, n in sizes.items()]
    both = LargestErrorUnion([(1.0, {a: Prefix(n) for a, n in sizes.items()})], sizes)
    wanted = math.prod(u.error(optimise_largest(u)) for u in parts)
    assert both.error(optimise_largest(both)) == pytest.approx(wanted, rel=2e-3)


@pytest.mark.parametrize("name", list(CASES))
@pytest.mark.parametrize("tilt", [True, False])
def test_shapes_are_feasible(name: str, *, tilt: bool) -> None:
    union = LargestErrorUnion(CASES[name], SIZES)
    for i, shape in optimise_largest(union, tilt=tilt).items():
        away = np.eye(union.sizes[i]) - shape.tilt
        assert np.einsum("ij,jk,ik->i", away, shape.precision, away).max() == pytest.approx(1.0, abs=1e-9)
        assert shape.tilt.sum() == pytest.approx(1.0)
        assert tilt or np.ptp(shape.tilt) == 0


@pytest.mark.parametrize("name", list(CASES))
def test_the_closed_form_is_the_weighted_sum_of_dense_variances(name: str) -> None:
    """v_S of the weights that the witness holds. Mutants: (w t)^2 without the square, a product's rows of another."""
    union = LargestErrorUnion(CASES[name], SIZES)
    shapes = optimise_largest(union)
    for r in (r for rows in union._rows.values() for r in rows):
        r.weights[:] = r.weights.mean(axis=0)  # the witness has one distribution for all
    effects = dict(zip(union.sets, union.effects(shapes), strict=True))
    products, _ = union.witness(shapes)
    queries = np.concatenate([_dense(Block(tuple((a,) for a in f), tuple(f.values()))) * w**0.5 for w, f in products])
    for s, found in effects.items():
        covariance = np.ones((1, 1))
        for a, n in SIZES.items():
            i = union.names.index(a) if a in union.names else -1
            tilt = shapes[i].tilt if i in shapes else np.full(n, 1 / n)
            plain = (np.eye(n) - 1 / n) * (n - 1) / n
            inner = shapes[i].covariance if i in shapes else plain
            covariance = np.kron(covariance, inner if a in s else np.outer(tilt, tilt))
        # a product that names no attribute of s has no such variance
        mine = np.concatenate(
            [np.full(math.prod(o.shape[0] for o in f.values()), s <= set(f)) for _, f in products]
        ).astype(bool)
        total = np.einsum("ij,jk,ik->", queries[mine], covariance, queries[mine])
        assert found == pytest.approx(total, rel=1e-3, abs=1e-9)


def _row_weights(scaled: LinearOperator, rows: LinearOperator) -> float:
    """Sum of the weights whose roots a witness has given to rows."""
    if isinstance(scaled, Identity):
        return scaled.n
    dense, original = np.asarray(scaled.dense(), dtype=float), np.asarray(rows.dense(), dtype=float)
    if len(dense) < len(original):
        return 1.0  # the heaviest of rows that are constant
    return float(((dense**2).sum(axis=1) / (original**2).sum(axis=1)).sum())


@pytest.mark.parametrize("name", list(CASES))
def test_the_weights_of_the_witness_sum_to_one(name: str) -> None:
    """Else the bound would not be one. Mutant: the share of cells in an identity's rows left out."""
    union = LargestErrorUnion(CASES[name], SIZES)
    products, _ = union.witness(optimise_largest(union))
    total = sum(
        weight / asked * math.prod(_row_weights(f, given_factors[a]) for a, f in factors.items())
        for (weight, factors), (asked, given_factors) in zip(products, CASES[name], strict=True)
    )
    assert total == pytest.approx(1.0, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 80), st.sampled_from([1e-9, 1e-3, 0.1]))
def test_corners_hold_the_largest_of_every_direction(seed: int, count: int, slack: float) -> None:
    """Mutant: the search ends after the first chord."""
    rng = np.random.default_rng(seed)
    angle = np.sort(rng.random(count)) * np.pi / 2
    shape = rng.choice([0.5, 1.0, 3.0])
    x, y = np.cos(angle) ** shape * rng.choice([1, rng.random()]), np.sin(angle) ** shape
    if seed % 3 == 0:
        x, y = np.round(3 * x), np.round(3 * y)
    kept = upper_hull_corners(x, y, slack)
    for a, b in rng.exponential(size=(20, 2)) ** 3:
        assert (a * x + b * y).max() <= (a * x + b * y)[kept].max() * (1 + slack) + 1e-12
    assert x[kept].max() == x.max()
    assert y[kept].max() == y.max()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_extremes_keep_the_largest_variance_of_every_allocation(seed: int) -> None:
    """Mutant: rows of one factor taken from another."""
    rng = np.random.default_rng(seed)
    lengths = [int(k) for k in rng.integers(1, 30, rng.integers(1, 4))]
    pairs = [(rng.random(k), rng.random(k) if rng.random() < 0.8 else rng.random(1)) for k in lengths]
    names = [f"a{i}" for i in range(len(pairs))]
    sets = {
        frozenset(n for n, c in zip(names, choice, strict=True) if c): tuple(
            p[c] for p, c in zip(pairs, choice, strict=True)
        )
        for choice in itertools.product((False, True), repeat=len(pairs))
    }
    effect = Effect(2.0, tuple(lengths), sets)
    (few,) = extreme_rows([effect])

    def largest(e: Effect, noise: dict[frozenset[str], float]) -> float:
        total = np.zeros((1,) * len(pairs))
        for s, sums in e.sets.items():
            placed = [v.reshape([-1 if j == k else 1 for k in range(len(pairs))]) for j, v in enumerate(sums)]
            total = total + noise[s] * math.prod(placed)  # type: ignore[arg-type]
        return float(total.max())

    for _ in range(10):
        noise = {s: float(rng.exponential()) for s in sets}
        whole = largest(effect, noise)
        assert whole * (1 - 1e-6) <= largest(few, noise) <= whole * (1 + 1e-12)


@pytest.mark.parametrize(
    "factor",
    [Prefix(7), AllRange(7), Window(7, 3), Identity(7), Total(7), Dense(np.random.default_rng(3).normal(size=(9, 7)))],
    ids=lambda f: type(f).__name__,
)
def test_weighted_grams_are_dense_ones(factor: LinearOperator) -> None:
    weights = np.random.default_rng(1).random(factor.shape[0])
    dense = np.asarray(factor.dense(), dtype=float)
    found = row_weighted_gram(factor, weights)
    np.testing.assert_allclose(found, dense.T @ (dense * weights[:, None]), atol=1e-12)


def test_too_many_rows_leave_the_shapes_of_the_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    products: list[Product] = [(1.0, {"a": Prefix(6)}), (1.0, {"b": Prefix(6), "c": Identity(3)})]
    monkeypatch.setattr(tilted_max, "_MAX_WORK", 10.0)
    with pytest.raises(PlanError, match="too many different rows"):
        LargestErrorUnion(products, SIZES)
    problem = _problem([(w, dict(f)) for w, f in products], "max")
    plain, tilted = (price_design(d, problem) for d in designs(problem, "marginals"))
    assert tilted.lower_bound is not None
    assert tilted.lower_bound < tilted.max_standard_error < plain.max_standard_error
