"""Laws of residuals with contrasts of their own: R B = W, predicted errors, the closed form, integer prices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato._util.codec import decode_value, encode_value, value_fingerprint
from sfumato.domain import Domain, Integers
from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import AllRange, Block, Dense, Family, Identity, LinearOperator, Prefix, Window
from sfumato.planner.planning import plan
from sfumato.plans.plan import price_design
from sfumato.privacy.budget import Budget
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies import residual_planning as marginals
from sfumato.strategies.certificates import exact_sensitivity
from sfumato.strategies.covariance import Lift, component_powers
from sfumato.strategies.design import Problem
from sfumato.strategies.residuals import Residuals
from sfumato.strategies.strategy import marginalise
from sfumato.strategies.tilted import TiltShape, Union, integer_contrast, optimise_shapes
from sfumato.workloads import QueryBlock, Workload, identity, prefix, queries, ranges, stack, windows
from support.reconstructions import check_covariances
from support.searching import designs, everything

SIZES = {"a": 6, "b": 5, "c": 4}
DOMAIN = Domain({n: Integers(0, k - 1) for n, k in SIZES.items()})
SMALL = np.random.default_rng(5).integers(-1, 3, (7, 5))

Factors = dict[str, LinearOperator]
PRODUCTS: dict[str, list[tuple[float, Factors]]] = {
    "prefixes and cells": [
        (1.0, {"a": Prefix(6), "b": Prefix(5)}),
        (1.0, {"a": Prefix(6), "c": Identity(4)}),
        (2.0, {"b": Prefix(5), "c": Identity(4)}),
        (1.0, {}),
    ],
    "several factors on one attribute": [
        (1.0, {"a": Prefix(6), "b": Dense(SMALL)}),
        (3.0, {"a": Identity(6), "b": Prefix(5), "c": Identity(4)}),
        (1.0, {"a": AllRange(6)}),
    ],
    "constant rows": [
        (1.0, {"a": Dense(np.full((2, 6), 2_000)), "b": Prefix(5)}),
        (1.0, {"a": Window(6, 2), "c": Dense(np.ones((1, 4), dtype=int))}),
        (4.0, {"a": Dense(np.array([[0, 0, 1, 0, 0, -1]]))}),
    ],
    "deficient": [
        (1.0, {"a": Window(6, 3), "b": Identity(5)}),
        (1.0, {"a": Dense(np.array([[1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 1]])), "c": Prefix(4)}),
    ],
}


def _workload(products: list[tuple[float, Factors]]) -> Workload:
    blocks = [
        QueryBlock(f"p{i}", Block(tuple((a,) for a in f), tuple(f.values())), weight=round(w))
        for i, (w, f) in enumerate(products)
    ]
    return Workload(DOMAIN, tuple(blocks))


def _problem(work: Workload, relation: Neighbours = Neighbours.ADD_REMOVE, objective: str = "cells") -> Problem:
    return Problem(work, Budget.gdp(1), PrivacyUnit(relation), "gaussian", objective)


def _tilted(work: Workload, relation: Neighbours = Neighbours.ADD_REMOVE) -> Residuals:
    design = marginals.tilted_jointly(_problem(work, relation))
    strategy = design.build(design.fine)
    assert isinstance(strategy, Residuals)
    assert any(c is not None for c in strategy.contrasts)
    return strategy


def _reconstructions(strategy: Residuals, blocks: Sequence[Block]) -> list[np.ndarray]:
    sizes = [b.rows for b in strategy.blocks]
    columns = []
    for unit in np.eye(sum(sizes)):
        estimate = strategy.estimate(np.split(unit, np.cumsum(sizes)[:-1]), 0)
        columns.append([strategy.answer(estimate, block) for block in blocks])
    return [np.stack([c[i] for c in columns], axis=1) for i in range(len(blocks))]


def _dense(block: Block | Family) -> np.ndarray:
    """(rows, cells of the whole domain)."""
    cells = math.prod(SIZES.values())
    units = np.eye(cells, dtype=np.int64).reshape(cells, *SIZES.values())
    return np.stack([marginalise(u, DOMAIN.names, block) for u in units], axis=1)


@pytest.mark.parametrize("relation", list(Neighbours))
@pytest.mark.parametrize("name", list(PRODUCTS))
def test_reconstruction_is_unbiased_and_its_errors_are_predicted(name: str, relation: Neighbours) -> None:
    """Mutants: tilts of 1/n in `table`, contrasts divided twice by their scale, the tilt lost in the variance."""
    work = _workload(PRODUCTS[name])
    strategy = _tilted(work, relation)
    x = np.random.default_rng(3).integers(0, 30, DOMAIN.shape)
    estimate = strategy.estimate([marginalise(x, DOMAIN.names, b) for b in strategy.blocks], int(x.sum()))
    maps = _reconstructions(strategy, [q.block for q in work.blocks])
    for query, brute in zip(work.blocks, maps, strict=True):
        truth = marginalise(x, DOMAIN.names, query.block)
        np.testing.assert_allclose(strategy.answer(estimate, query.block), truth, atol=1e-7 * (1 + np.abs(truth).max()))
        shape = tuple(f.shape[0] for f in query.block.factors)
        for power in (2, 4):
            found = np.broadcast_to(strategy.row_powers(query.block, power), shape).reshape(-1)
            np.testing.assert_allclose(found, (brute**power).sum(axis=1), rtol=1e-7, atol=1e-30)
    check_covariances(strategy, [q.block for q in work.blocks], maps)


@pytest.mark.parametrize("power", [2, 4])
def test_components_of_joint_factors_and_cells_match_their_definition(power: int) -> None:
    """w (⊗ P ⊗ t) by dense algebra, for cells, one attribute and joint rows. Mutant: axes of a joint table swapped."""
    rng = np.random.default_rng(9)
    lifts = (Lift.of(Dense(rng.integers(-40, 40, (5, 6)))), None, Lift.of(Dense(rng.integers(-40, 40, (3, 4)))))
    sizes = (6, 5, 4)
    own = [
        (np.full((5, 1), 0.2), np.eye(5) - 0.2) if lift is None else (lift.tilt[:, None], lift.spread) for lift in lifts
    ]
    joint = Dense(rng.integers(-2, 3, (7, 120)))
    for factor, axes in ((joint, (0, 1, 2)), (Identity(120), (0, 1, 2)), (Prefix(6), (0,)), (Identity(4), (2,))):
        found = component_powers(factor, [sizes[i] for i in axes], power, [lifts[i] for i in axes])
        for t, sums in found.items():
            matrix = np.ones((1, 1))
            for place, i in enumerate(axes):
                matrix = np.kron(matrix, own[i][place in t])
            wanted = (np.abs(factor.dense() @ matrix) ** power).sum(axis=1)
            np.testing.assert_allclose(np.broadcast_to(sums, wanted.shape), wanted, rtol=1e-9, atol=1e-12)


def _dense_effects(union: Union, shapes: Mapping[int, TiltShape], products: list[tuple[float, Factors]]) -> dict:
    """v_S by the dense covariance that a unit of variance on S gives to the cells."""
    out = {}
    for s in (frozenset(c) for r in range(4) for c in itertools.combinations(SIZES, r)):
        covariance = np.ones((1, 1))
        for a, n in SIZES.items():
            i = union.names.index(a)
            plain = TiltShape(np.full(n, 1 / n), (np.eye(n) - 1 / n) * (n - 1) / n, np.eye(n), np.ones(n))
            shape = shapes.get(i, plain)
            covariance = np.kron(covariance, shape.covariance if a in s else np.outer(shape.tilt, shape.tilt))
        total = 0.0
        for (w, factors), query in zip(products, _workload(products).blocks, strict=True):
            if s <= set(factors):
                dense = _dense(query.block)
                total += w * np.einsum("ij,jk,ik->", dense, covariance, dense)
        out[s] = total
    return out


@pytest.mark.parametrize("name", list(PRODUCTS))
def test_the_closed_form_is_the_dense_error(name: str) -> None:
    """Mutants: a Gram not squared into its weight, tr(Y G) and tᵀ G t exchanged."""
    union = Union(PRODUCTS[name], SIZES)
    shapes = optimise_shapes(union)
    dense = _dense_effects(union, shapes, PRODUCTS[name])
    for s, v in zip(union.sets, union.effects(shapes), strict=True):
        assert v == pytest.approx(dense.pop(s), rel=1e-9, abs=1e-6)
    assert max(dense.values(), default=0.0) == 0.0  # no other set matters


@pytest.mark.parametrize("name", list(PRODUCTS))
def test_shapes_are_feasible_and_tilts_never_hurt(name: str) -> None:
    union = Union(PRODUCTS[name], SIZES)
    split, tilted = optimise_shapes(union, tilt=False), optimise_shapes(union)
    assert union.error(tilted) <= union.error(split)
    for shapes in (split, tilted):
        for i, shape in shapes.items():
            n = union.sizes[i]
            away = np.eye(n) - shape.tilt
            price = np.einsum("ij,jk,ik->i", away, shape.precision, away)
            assert price.max() == pytest.approx(1.0, abs=1e-9)
            assert shape.tilt.sum() == pytest.approx(1.0)
            np.testing.assert_allclose(shape.covariance @ shape.precision, np.eye(n) - 1 / n, atol=1e-6)
    assert all(np.ptp(s.tilt) == 0 for s in split.values())


def test_the_split_optimum_of_one_attribute_reaches_its_nuclear_norm() -> None:
    """One prefix at t = 1/n: the least tr(X^+ G) with diag X <= 1, proved by the dual and never below the SVD bound."""
    n = 12
    union = Union([(1.0, {"a": Prefix(n)}), (1.0, {"b": Prefix(5)})], {"a": n, "b": 5})
    shapes = optimise_shapes(union, tilt=False)
    gram = np.asarray(Prefix(n).gram().dense(), dtype=float)
    centring = np.eye(n) - 1 / n
    nuclear = np.sqrt(np.maximum(np.linalg.eigvalsh(centring @ gram @ centring), 0)).sum()
    reached = float((shapes[0].covariance * gram).sum())
    assert nuclear**2 / n <= reached
    # optimal: the dual weights on the cells prove it
    mu = shapes[0].dual / shapes[0].dual.sum()
    away = np.diag(np.sqrt(mu)) @ centring
    proved = np.sqrt(np.maximum(np.linalg.eigvalsh(away @ gram @ away.T), 0)).sum() ** 2
    assert proved <= reached * (1 + 1e-9)
    assert reached == pytest.approx(proved, rel=2e-3)


def test_rounded_contrasts_keep_their_price_and_nearly_the_error() -> None:
    """Mutant: the tilt not taken out of the columns before rounding."""
    union = Union(PRODUCTS["prefixes and cells"], SIZES)
    for i, shape in optimise_shapes(union).items():
        lift = Lift.of(integer_contrast(shape, 2.0**12))
        assert lift.scale == pytest.approx(2.0**12, rel=1e-3)
        np.testing.assert_allclose(lift.tilt, shape.tilt, atol=2e-3)
        np.testing.assert_allclose(lift.spread @ lift.spread.T, shape.covariance, rtol=0.02, atol=2e-3)
        assert union.names[i] in ("a", "b")


@pytest.mark.parametrize("name", list(PRODUCTS))
def test_the_price_is_the_brute_force_sensitivity(name: str) -> None:
    strategy = _tilted(_workload(PRODUCTS[name]))
    columns = np.concatenate([_dense(b) for b in strategy.blocks]).astype(object)
    found = exact_sensitivity(strategy.blocks, SIZES, PrivacyUnit(Neighbours.ADD_REMOVE), 2)
    assert found.value == max((columns**2).sum(axis=0))
    replaced = exact_sensitivity(strategy.blocks, SIZES, PrivacyUnit(Neighbours.REPLACE_ONE), 2)
    pairs = max(((columns[:, [j]] - columns) ** 2).sum(axis=0).max() for j in range(columns.shape[1]))
    assert replaced.value >= pairs
    largest = max(math.ceil(b.operator.max_abs) for f in strategy.blocks for b in f.blocks())
    assert largest <= strategy.max_abs <= largest * (1 + 1e-9)


@pytest.mark.parametrize("name", list(PRODUCTS))
def test_the_plan_has_the_promised_error_and_is_the_better_design(name: str) -> None:
    """The rmse of the plan is the closed form up to rounding."""
    work = _workload(PRODUCTS[name])
    problem = _problem(work)
    even, tilted = (price_design(d, problem) for d in designs(problem, "marginals"))
    union = Union([(problem.objective_weight(q), q.block.by_attribute() or {}) for q in work.blocks], SIZES)
    wanted = math.sqrt(union.error(optimise_shapes(union)) / problem.total_weight)
    assert tilted.objective_value == pytest.approx(wanted, rel=0.01)
    assert tilted.objective_value <= even.objective_value * 1.001
    assert "tilted residuals" in tilted.strategy.summary


def test_the_chooser_takes_tilts_for_the_largest_error_too() -> None:
    work = _workload(PRODUCTS["prefixes and cells"])
    even, tilted = (price_design(d, p) for p in [_problem(work, objective="max")] for d in designs(p, "marginals"))
    assert tilted.max_standard_error < even.max_standard_error
    chosen = plan(work, Budget.gdp(1), neighbours="add-remove", mechanism="marginals")
    assert "tilted" in chosen.strategy.summary
    assert len(chosen.considered) == 2


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(list(PRODUCTS)))
def test_further_questions_are_unbiased_or_refused(seed: int, name: str) -> None:
    """Any question over measured sets is answered, whatever the workload asked of them."""
    rng = np.random.default_rng(seed)
    strategy = _tilted(_workload(PRODUCTS[name]))
    names = [n for n in DOMAIN.names if rng.random() < 0.6] or ["a"]
    cells = math.prod(SIZES[n] for n in names)
    asked = queries(rng.integers(-1, 2, (2, cells)), Domain({n: DOMAIN[n] for n in names})).blocks[0].block
    x = rng.integers(0, 30, DOMAIN.shape)
    estimate = strategy.estimate([marginalise(x, DOMAIN.names, b) for b in strategy.blocks], None)
    measured = any(names == list(f.set_names(i)) for f in strategy.blocks for i in range(len(f)))
    try:
        found = strategy.answer(estimate, asked)
    except NotAnswerable:
        assert not measured
        return
    np.testing.assert_allclose(found, marginalise(x, DOMAIN.names, asked), atol=1e-6)
    (brute,) = _reconstructions(strategy, [asked])
    np.testing.assert_allclose(strategy.row_powers(asked, 2), (brute**2).sum(axis=1), rtol=1e-6)


def test_a_table_that_was_not_measured_is_refused() -> None:
    strategy = _tilted(_workload(PRODUCTS["prefixes and cells"]))
    triple = Block((("a",), ("b",), ("c",)), (Identity(6), Identity(5), Identity(4)))
    with pytest.raises(NotAnswerable, match="a, b, c"):
        strategy.check(triple)


def test_the_strategy_survives_storing() -> None:
    strategy = _tilted(_workload(PRODUCTS["several factors on one attribute"]))
    again = decode_value(*encode_value(strategy))
    assert value_fingerprint(again) == value_fingerprint(strategy)
    query = Block((("a",), ("b",)), (Prefix(6), Identity(5)))
    np.testing.assert_array_equal(again.row_powers(query, 2), strategy.row_powers(query, 2))


@pytest.mark.parametrize(
    ("work", "noise"),
    [
        (prefix(DOMAIN, "a", by=["c"]), "gaussian"),  # one table: its product is optimal
        (stack(x=identity(DOMAIN, "a"), y=identity(DOMAIN, "b", "c")), "gaussian"),  # cells only
        (stack(x=prefix(DOMAIN, "a"), y=ranges(DOMAIN, "a")), "gaussian"),  # one attribute
        (stack(x=prefix(DOMAIN, "a"), y=windows(DOMAIN, "b", width=2)), "laplace"),
        (stack(x=prefix(DOMAIN, "a"), y=queries(np.eye(120)[:4], DOMAIN)), "gaussian"),  # joint rows
    ],
)
def test_tilts_are_offered_only_where_they_apply(work: Workload, noise: str) -> None:
    problem = Problem(work, Budget.gdp(1), PrivacyUnit(Neighbours.ADD_REMOVE), noise)  # type: ignore[arg-type]
    assert "tilted residuals" not in everything(problem, "marginals").of


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.ones((5, 6), dtype=int), "do not determine"),
        (np.eye(6, dtype=int), "need 5 integer contrasts"),
        (np.full((5, 6), 0.5), "need 5 integer contrasts"),
    ],
)
def test_contrasts_that_determine_nothing_are_refused(matrix: np.ndarray, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Lift.of(Dense(matrix))


def test_contrasts_must_fit_their_attributes() -> None:
    sets = np.empty((1, 0), dtype=np.int32), np.array([[0]], dtype=np.int32)
    ones = np.ones(1, dtype=np.int64), np.ones(1, dtype=np.int64)
    with pytest.raises(PlanError, match="a has 6 cells"):
        Residuals(("a",), (6,), sets, ones, (Dense(np.eye(5, dtype=int)),))
    with pytest.raises(PlanError, match="per attribute"):
        Residuals(("a", "b"), (6, 5), sets, ones, (None,))


def test_large_attributes_are_left_alone() -> None:
    with pytest.raises(PlanError, match="cells are not tilted"):
        Union([(1.0, {"a": Prefix(1_000)})], {"a": 1_000})
