"""Weighted tables: least squares, errors, fourth powers, covariances and prices against dense linear algebra."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import AllRange, Block, Dense, Identity, Kronecker, Prefix, Total
from sfumato.operators.base import FloatArray
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies.certificates import exact_sensitivity
from sfumato.strategies.factors import Cells, Matrix
from sfumato.strategies.weighted import WeightedTables
from sfumato.strategies.weighted_planning import (
    cover_with_tables,
    log_error_and_gradient,
    optimize_table_weights,
    subset_sums,
    superset_sums,
)
from sfumato.workloads import QueryBlock, Workload
from support.reconstructions import check_covariances, reconstruction, reconstructions
from support.words import plan_with

SIZES = {"a": 4, "b": 3, "c": 2}
TREE = np.array([[3, 0, 0, 0], [0, 2, 0, 0], [0, 0, 3, 0], [0, 0, 0, 1], [1, 1, 0, 0], [0, 2, 2, 4]])
CASES = {
    "cells": ((Cells(4), Cells(3), Cells(2)), ((), (0,), (0, 1), (1, 2)), (2, 1, 3, 5)),
    "tree": ((Matrix(Dense(TREE), 4.0), Cells(3), Cells(2)), ((0, 1), (0, 2), (1, 2), (2,)), (1, 3, 2, 4)),
    "joint": ((Matrix(Dense(TREE), 4.0), Cells(3), Cells(2)), ((0, 1, 2), (0,)), (2, 3)),
}
QUERIES = (
    Block((("a",), ("b",)), (Identity(4), Identity(3))),
    Block((("b",), ("a",)), (Dense(np.array([[1, 0, -2], [1, 1, 1], [0, 1, 0], [2, 0, 1]])), Prefix(4))),
    Block((("a", "b"),), (Identity(12),)),
    Block((("c",), ("b",)), (Identity(2), AllRange(3))),
    Block((("a",),), (AllRange(4),)),
    Block(((),), (Identity(1),)),
)


def whole(block: Block) -> FloatArray:
    """A block's rows over all cells."""
    out = block.operator.dense()
    shape = [SIZES[a] for a in block.attributes]
    out = out.reshape(len(out), *shape)
    kept = [a for a in SIZES if a in block.attributes]
    out = out.transpose(0, *(1 + block.attributes.index(a) for a in kept))
    out = out.reshape(len(out), *(SIZES[a] if a in kept else 1 for a in SIZES))
    return np.broadcast_to(out, (len(out), *SIZES.values())).reshape(len(out), -1)


def made(name: str, *, public: bool) -> tuple[WeightedTables, FloatArray]:
    strategy = WeightedTables(tuple(SIZES), *CASES[name], public_total=public)
    return strategy, np.concatenate([whole(b) for b in strategy.blocks]).astype(float)


@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_answers_are_those_of_least_squares(name: str, public: bool) -> None:
    strategy, dense = made(name, public=public)
    known = np.vstack([dense, 1e6 * np.ones(dense.shape[1])]) if public else dense
    found: list[FloatArray] = []
    inverse = np.linalg.pinv(known, rcond=1e-12)
    for query, back in zip(QUERIES, reconstructions(strategy, QUERIES), strict=True):
        rows = whole(query)
        expected = (rows @ inverse)[:, : len(dense)]
        assert back == pytest.approx(expected, abs=1e-6 if public else 1e-10)
        for power in (2, 4):
            sums = np.broadcast_to(strategy.row_powers(query, power), [f.shape[0] for f in query.factors]).reshape(-1)
            assert sums == pytest.approx((back**power).sum(axis=1), rel=1e-9, abs=1e-13)
        if not public:
            assert back @ dense == pytest.approx(rows, abs=1e-10)
        found.append(back)
    check_covariances(strategy, QUERIES, found)


@pytest.mark.parametrize("public", [False, True])
def test_what_is_exact_comes_back_exactly(public: bool) -> None:
    strategy, _ = made("tree", public=public)
    counts = np.arange(24.0).reshape(4, 3, 2) % 7
    values = [whole(b) @ counts.reshape(-1) for b in strategy.blocks]
    estimate = strategy.estimate(values, int(counts.sum()) if public else None)
    for query in QUERIES:
        assert strategy.answer(estimate, query) == pytest.approx(whole(query) @ counts.reshape(-1), abs=1e-9)


@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize("name", CASES)
def test_price_is_that_of_brute_force(name: str, neighbours: Neighbours) -> None:
    strategy, dense = made(name, public=neighbours is Neighbours.REPLACE_ONE)
    found = exact_sensitivity(strategy.blocks, SIZES, PrivacyUnit(neighbours), 1)
    if neighbours is Neighbours.ADD_REMOVE:
        assert found.value == np.abs(dense).sum(axis=0).max()
    else:
        assert found.value == max(np.abs(u - v).sum() for u, v in itertools.combinations(dense.T, 2))


def test_what_was_not_measured_is_refused() -> None:
    strategy, _ = made("cells", public=False)
    with pytest.raises(NotAnswerable, match="a, c was not measured"):
        strategy.check(Block((("a",), ("c",)), (Identity(4), Identity(2))))
    strategy.check(Block((("a",), ("c",)), (Identity(4), Total(2))))
    with pytest.raises(NotAnswerable, match="only products of conditions on single attributes"):
        strategy.check(Block((("a", "b"),), (Prefix(12),)))
    with pytest.raises(NotAnswerable, match="nothing about d was measured"):
        strategy.check(Block((("d",),), (Identity(2),)))
    with pytest.raises(NotAnswerable, match="a, c was not measured"):
        strategy.covariance(Block((("b",),), (Identity(3),)), Block((("a",), ("c",)), (Identity(4), Identity(2))))


def test_a_factor_of_pairs_answers_about_pairs_alone() -> None:
    pairs = np.array([[1, 1, 0, 0], [0, 0, 2, 2]])
    factors = (Matrix(Dense(pairs), 2.0), Cells(3), Cells(2))
    strategy = WeightedTables(tuple(SIZES), factors, ((0, 1), (0,), (2,)), (2, 3, 1))
    dense = np.concatenate([whole(b) for b in strategy.blocks]).astype(float)
    query = Block((("b",), ("a",)), (Identity(3), Dense(pairs)))
    assert reconstruction(strategy, query) == pytest.approx(whole(query) @ np.linalg.pinv(dense), abs=1e-10)
    with pytest.raises(NotAnswerable):
        strategy.check(Block((("a",),), (Identity(4),)))


@pytest.mark.parametrize(("sets", "multiples"), [(((0,),), (0,)), (((0,), (1,)), (1,)), (((1, 0),), (1,))])
def test_sets_without_order_or_multiples_are_refused(
    sets: tuple[tuple[int, ...], ...], multiples: tuple[int, ...]
) -> None:
    with pytest.raises(PlanError):
        WeightedTables(tuple(SIZES), (Cells(4), Cells(3), Cells(2)), sets, multiples)


def test_too_many_covariances_are_refused() -> None:
    strategy = WeightedTables(("a", "b"), (Cells(20_000), Cells(20_000)), ((0,), (1,)), (1, 1))
    one, other = (Block(((a,),), (Identity(20_000),)) for a in "ab")
    with pytest.raises(PlanError, match="above the limit"):
        strategy.covariance(one, other)


def test_sums_over_the_lattice() -> None:
    values = np.random.default_rng(0).normal(size=16)
    above = [sum(values[t] for t in range(16) if t & s == s) for s in range(16)]
    below = [sum(values[t] for t in range(16) if t & s == t) for s in range(16)]
    assert superset_sums(values) == pytest.approx(above)
    assert subset_sums(values) == pytest.approx(below)


def test_error_and_gradient_are_those_of_the_strategy() -> None:
    sizes, rng = (4, 3, 2), np.random.default_rng(1)
    scales = np.array([math.prod(n for i, n in enumerate(sizes) if s >> i & 1) for s in range(8)], dtype=float)
    weights = rng.uniform(0.5, 2.0, 8)
    parts = [[np.eye(n) if s >> i & 1 else np.ones((1, n)) for i, n in enumerate(sizes)] for s in range(8)]
    dense = np.vstack([w * np.kron(np.kron(*p[:2]), p[2]) for w, p in zip(weights, parts, strict=True)])
    work = Kronecker((Identity(4), Identity(3), Total(2))).dense()
    effects = np.zeros(8)
    for s in range(4):
        effects[s] = math.prod(n - 1 if s >> i & 1 else 1 / n for i, n in enumerate(sizes[:2]))
    value, gradient = log_error_and_gradient(weights, effects, scales)
    expected = np.linalg.norm(work @ np.linalg.pinv(dense))
    assert math.exp(value / 2) == pytest.approx(expected, rel=1e-10)
    steps = 1e-6 * np.eye(8)
    slopes = [
        (
            log_error_and_gradient(weights + h, effects, scales)[0]
            - log_error_and_gradient(weights - h, effects, scales)[0]
        )
        / 2e-6
        for h in steps
    ]
    assert gradient == pytest.approx(slopes, rel=1e-5, abs=1e-7)
    covered = cover_with_tables(effects, scales, np.ones(8, dtype=bool))
    assert covered is not None
    assert (superset_sums(covered)[effects > 0] > 0).all()
    assert (
        optimize_table_weights(effects, scales, np.ones(8, dtype=bool))[1] <= expected * np.abs(dense).sum(axis=0).max()
    )


def test_what_is_hardly_asked_stays_measured() -> None:
    effects, scales = np.array([0.0, 1.0, 1e-14, 0.0]), np.array([1.0, 2.0, 2.0, 4.0])
    weights, _ = optimize_table_weights(effects, scales, np.array([True, True, True, False]))
    assert (superset_sums(weights)[1:3] > 0).all()


@pytest.mark.parametrize(
    ("neighbours", "lattice"), [("add-remove", "fine"), ("replace-one", "fine"), ("add-remove", "unit")]
)
def test_no_table_deserves_another_share(neighbours: str, lattice: str) -> None:
    sizes = {"a": 64, "b": 5, "c": 4}
    domain = sf.Domain({n: sf.Integers(0, k - 1, outside="clamp", missing="drop") for n, k in sizes.items()})
    if neighbours == "replace-one":
        domain = sf.Domain({n: sf.Integers(0, k - 2, outside="clamp", missing="other") for n, k in sizes.items()})
    own = (neighbours, lattice) == ("add-remove", "fine")
    line = Prefix(64) if own else Identity(64)
    blocks = (
        QueryBlock("a", Block((("a",),), (line,))),
        QueryBlock("bc", Block((("b",), ("c",)), (Identity(5), Identity(4))), weight=Fraction(50)),
        QueryBlock("b", Block((("b",),), (Identity(5),)), weight=Fraction(2)),
    )
    given = {"neighbours": neighbours, "mechanism": "marginals", "lattice": lattice, "objective": "cells"}
    plan = plan_with(Workload(domain, blocks), sf.pure(1), **given)
    found = plan.strategy
    assert isinstance(found, WeightedTables)
    assert len(found.sets) > 1
    assert isinstance(found.factors[0], Matrix) == own
    if lattice == "unit":
        assert min(found.multiples) == 1
        return

    def loss(multiples: tuple[int, ...]) -> float:
        made = replace(found, multiples=multiples)
        price = exact_sensitivity(made.blocks, sizes, PrivacyUnit(Neighbours.parse(neighbours)), 1).value
        error = 0.0
        for q in blocks:
            powers = made.row_powers(q.block, 2)
            error += float(q.weight) * float(np.broadcast_to(powers, [f.shape[0] for f in q.block.factors]).sum())
        return error * float(price) ** 2

    least = loss(found.multiples)
    for k, factor in itertools.product(range(len(found.sets)), (0.98, 1.02)):
        moved = tuple(round(m * factor) if i == k else m for i, m in enumerate(found.multiples))
        assert loss(moved) > least * (1 - 1e-6)


def _planned(neighbours: str) -> sf.Plan:
    sizes = {"a": 40, "b": 5, "c": 4}
    domain = sf.Domain({n: sf.Integers(0, k - 2, outside="clamp", missing="other") for n, k in sizes.items()})
    blocks = (
        QueryBlock("ab", Block((("a",), ("b",)), (Prefix(40), Identity(5)))),
        QueryBlock("bc", Block((("b",), ("c",)), (Identity(5), Identity(4)))),
        QueryBlock("a", Block((("a",),), (AllRange(40),))),
    )
    return sf.plan(Workload(domain, blocks), sf.pure(1), neighbours=neighbours, mechanism="marginals")


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_a_release_errs_as_planned(neighbours: str) -> None:
    plan = _planned(neighbours)
    assert isinstance(plan.strategy, WeightedTables)
    rng = np.random.default_rng(3)
    rows = {n: rng.integers(0, k - 1, 500) for n, k in {"a": 40, "b": 5, "c": 4}.items()}
    truth: list[FloatArray] = []
    for q in plan.workload.blocks:
        shape = [f.shape[1] for f in q.block.factors]
        index = np.ravel_multi_index([rows[a] for a in q.block.attributes], shape)
        counts = np.bincount(index, minlength=math.prod(shape)).astype(float)
        truth.append(np.asarray(q.block.operator.matvec(counts), dtype=float))
    exact, cuts = np.concatenate(truth), np.cumsum([len(x) for x in truth])[:-1]
    errors = plan.standard_errors()
    scale = np.where(errors > 0, errors, np.nan)  # a prefix of all cells is the known total
    # answers of one block are much alike: each block counts once
    means: list[float] = []
    for _ in range(30):
        squares = ((sf.release(plan, pd.DataFrame(rows), ledger=None).answers - exact) / scale) ** 2
        means.append(float(np.mean([np.nanmean(s) for s in np.split(squares, cuts)])))
    spread = float(np.std(means, ddof=1)) / math.sqrt(len(means))
    assert abs(np.mean(means) - 1) < 6 * spread
    assert spread < 0.15


FIGURES = [  # (cells of every attribute, orders, HDMM's error at unit sensitivity and unit variance)
    ([2] * 8, (3,), 10.847),
    ([2] * 8, (0, 1, 2, 3), 12.034),
    ([10] * 8, (3,), 46.393),
    ([2] * 10, (0, 1, 2, 3), 20.946),
]


@pytest.mark.parametrize(("sizes", "orders", "figure"), FIGURES)
def test_marginals_err_less_than_published(sizes: list[int], orders: tuple[int, ...], figure: float) -> None:
    domain = sf.Domain({f"a{i}": sf.Integers(0, n - 1, outside="drop", missing="drop") for i, n in enumerate(sizes)})
    sets = [s for k in orders for s in itertools.combinations(domain.names, k)]
    plan = sf.plan(sf.marginals(domain, sets=sets), sf.pure(1), neighbours="add-remove", mechanism="marginals")
    assert plan.rmse / math.sqrt(2) < figure


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_the_optimum_of_gaussian_noise_is_shown_as_a_bound(neighbours: str) -> None:
    work = sf.marginals(sf.Domain({f"bit{i}": 2 for i in range(8)}), 3)
    plans = [
        sf.plan(work, sf.pure(2), neighbours=neighbours, mechanism=sf.mechanisms.marginals(lattice=x))
        for x in ("fine", "unit")
    ]
    (note,) = plans[0].notes
    proved = float(note.split("errs less than ")[1].split(" ")[0])
    gaussian = sf.plan(work, sf.gdp(1), neighbours=neighbours, mechanism="marginals")
    assert gaussian.lower_bound is not None
    assert "weighted" not in " ".join(gaussian.candidates["strategy"])
    # noise of L2 sensitivity 1 / 2 and of variance 2
    assert proved == pytest.approx(gaussian.lower_bound / math.sqrt(2), rel=1e-4)
    assert proved < plans[0].rmse
    assert isinstance(plans[0].strategy, WeightedTables)
    assert isinstance(plans[1].strategy, WeightedTables)
    assert not plans[1].notes  # noise on a plain lattice varies less than its scale says
