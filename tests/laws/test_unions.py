"""Laws of unions by symmetry: spectra and optima of dense matrices, R B = W, errors and prices by brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato._util.codec import decode_value, encode_value
from sfumato.domain import Domain, Integers
from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import Block, Grouping, Identity, Prefix, Sparse
from sfumato.operators.base import FloatArray
from sfumato.planner.planning import plan
from sfumato.plans.plan import price_design
from sfumato.privacy.budget import Budget
from sfumato.strategies import union_planning as unions
from sfumato.strategies.certificates import exact_sensitivity
from sfumato.strategies.dense_optimal import optimize_dense
from sfumato.strategies.union import Orbits, Product, solve_union
from sfumato.strategies.union_symmetry import reduce_axis
from sfumato.workloads import QueryBlock, Workload
from support.reconstructions import check_covariances, reconstructions
from support.unions import SIZES, UNIT, dense, factor_of, matrix_of, named, problem_of, random_products


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**32 - 1))
def test_symmetries_keep_every_spectrum(seed: int) -> None:
    """Mutants: twins of other sizes; other histories; multiplicities off by one; contrasts of one orbit for all."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 11))
    factors = [factor_of(n, rng) for _ in range(3)]
    found = reduce_axis(factors)
    axis, weights = found.axis, rng.random(3)
    gram = sum(w * np.asarray(f.gram().dense(), dtype=np.float64) for w, f in zip(weights, factors, strict=True))
    first = [int(np.flatnonzero(axis.cells == i)[0]) for i in range(len(axis.orbits))]
    roots = np.sqrt(axis.sizes)
    whole = np.einsum("p,pij->ij", weights, found.means) * roots * roots[:, None]
    values = [np.linalg.eigvalsh(whole)]
    for number, contrast in zip(found.numbers.T, axis.contrasts, strict=True):
        values.append(np.full(contrast.multiplicity, weights @ number))
    inside = np.asarray(gram)[np.ix_(first, first)]
    np.testing.assert_allclose(np.sort(np.concatenate(values)), np.linalg.eigvalsh(inside), atol=1e-9)
    # the maps of all kinds are orthogonal, and together they are everything
    maps = [np.asarray(axis.measured(k).dense(), dtype=np.float64)[:, first] for k in axis.kinds]
    for one, other in itertools.combinations(maps, 2):
        assert not (one @ np.diag(1.0 * np.ones(len(first))) @ other.T).any()
    np.testing.assert_allclose(
        sum(axis.back[k] @ m for k, m in zip(axis.kinds, maps, strict=True)), np.eye(len(first)), atol=1e-12
    )


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_optimum_is_that_of_the_dense_problem(seed: int) -> None:
    products = random_products(np.random.default_rng(seed))
    names = named(products)
    wanted = optimize_dense(matrix=dense(products, names), tolerance=1e-6)
    found = solve_union(products, SIZES)
    lower, upper = math.prod(u.lower for u in found), math.prod(u.upper for u in found)
    assert lower <= upper <= lower * (1 + 1e-4)
    assert lower <= wanted.upper_bound * (1 + 1e-12)
    assert wanted.lower_bound <= upper * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(16))
def test_integers_are_read_back_without_bias_and_at_the_predicted_error(seed: int) -> None:
    """Mutants: the inverse of the real matrix; sizes left out of means; groups of pieces in another order."""
    products = random_products(np.random.default_rng(seed))
    problem = problem_of(products)
    try:
        design = unions.design_union(problem)
    except PlanError:
        return
    made = price_design(design, problem)
    strategy = made.strategy
    assert isinstance(strategy, Orbits)
    names = list(strategy.names)
    measured = np.concatenate([matrix_of(b, names) for b in strategy.blocks])
    found: list[FloatArray] = []
    blocks = [q.block for q in problem.workload.blocks]
    for block, back in zip(blocks, reconstructions(strategy, blocks), strict=True):
        wanted = matrix_of(block, names)
        size = np.abs(back).sum(axis=1).max() * np.abs(measured).max()
        assert np.abs(back @ measured - wanted).max() <= 1e-12 * size + 1e-9
        for power in (2, 4):
            shown = np.broadcast_to(strategy.row_powers(block, power), [f.shape[0] for f in block.factors]).reshape(-1)
            np.testing.assert_allclose(shown, (back**power).sum(axis=1), rtol=1e-6)
        found.append(back)
    check_covariances(strategy, blocks[:2], found[:2])
    # the price, by looking at every column
    integers = measured.astype(np.int64).astype(object)
    assert made.sensitivity.value == max((integers**2).sum(axis=0))
    assert exact_sensitivity(strategy.blocks, SIZES, UNIT, 2).exact
    # an optimum, up to the rounding of its integers
    assert design.bound is not None
    assert design.bound <= made.objective_value * math.sqrt(problem.total_weight) <= design.bound * (1 + 1e-4)
    again = decode_value(*encode_value(strategy))
    assert isinstance(again, Orbits)
    np.testing.assert_array_equal(again.row_powers(blocks[0], 2), strategy.row_powers(blocks[0], 2))


def test_queries_outside_the_span_are_refused() -> None:
    """Mutants: cells that are the same told apart; kinds that are not measured taken for zero."""
    halves = Grouping(np.arange(6) // 3, 2)
    products: list[Product] = [(1.0, {"a": halves, "b": Identity(4)}), (1.0, {"a": halves, "c": Identity(2)})]
    design = unions.design_union(problem_of(products))
    strategy = design.build(design.fine)
    for bad in (
        Block((("a",),), (Identity(6),)),
        Block((("b",), ("c",)), (Identity(4), Identity(2))),
        Block((("b", "c"),), (Identity(8),)),
        Block((("z",),), (Identity(3),)),
    ):
        with pytest.raises(NotAnswerable):
            strategy.check(bad)
    strategy.check(Block((("b",),), (Prefix(4),)))
    strategy.check(Block((), ()))


def test_what_does_not_repeat_itself_is_left_to_others() -> None:
    sizes = {"a": 100, "b": 100}
    products: list[Product] = [
        (1.0, {"a": Prefix(100), "b": Identity(100)}),
        (1.0, {"a": Identity(100), "b": Prefix(100)}),
    ]
    with pytest.raises(PlanError, match="joint orbits"):
        solve_union(products, sizes)


def test_the_chooser_takes_it_where_it_errs_least() -> None:
    domain = Domain({"a": Integers(0, 63), "b": Integers(0, 39), "c": Integers(0, 1)})
    groups = Grouping(np.repeat(np.arange(8), 8), 8)
    parts = [
        Block((("a",), ("b",)), (groups, Identity(40))),
        Block((("a",), ("c",)), (Identity(64), Identity(2))),
        Block((("b",), ("c",)), (Grouping(np.arange(40) // 10, 4), Identity(2))),
    ]
    workload = Workload(domain, tuple(QueryBlock(f"part {i}", b) for i, b in enumerate(parts)))
    made = plan(workload, Budget.gdp(1), neighbours="add-remove")
    assert isinstance(made.strategy, Orbits)
    assert made.lower_bound is not None
    assert made.rmse <= made.lower_bound * (1 + 1e-5)


def test_cells_of_unlike_histories_stay_apart() -> None:
    """Two classes of four cells, of equal sums: pairs in the one, none in the other.

    Mutants: histories left out of what makes twins.
    """
    rows = [[0], [1], [2], [3], [0, 1], [2, 3], *([c] for c in (4, 5, 6, 7) for _ in range(3))]
    factor = Sparse.from_cells([np.array(r) for r in rows], 8)
    assert len(reduce_axis([factor]).axis.sizes) == 2
    (found,) = solve_union([(1.0, {"a": factor})], {"a": 8})
    wanted = optimize_dense(matrix=np.asarray(factor.dense(), dtype=np.float64))
    assert found.lower == pytest.approx(wanted.upper_bound, rel=1e-6)
