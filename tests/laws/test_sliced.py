"""Slices along one attribute: errors, answers and the price against dense matrices, and bounds against the optimum."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest

from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import Block, Dense, Identity, LinearOperator, Prefix
from sfumato.operators.structured import AllRange, Window
from sfumato.plans.plan import price_design
from sfumato.strategies import sliced_search
from sfumato.strategies.certificates import exact_sensitivity
from sfumato.strategies.dense_optimal import optimize_dense
from sfumato.strategies.sliced import Sliced
from sfumato.strategies.strategy import marginalise
from sfumato.workloads import Workload
from sfumato.workloads.core import block_on_domain
from support.products import UNIT, mean_problem, on_domain, union_of
from support.stranger import priced_by_a_stranger

SIZES = {"a": 3, "b": 5, "c": 4}


@functools.cache
def _mixed() -> Workload:
    """Factors that do not commute, in another order than the domain's, and attributes that are summed out."""
    rows = Dense(np.array([[1, 0, 1, 1, 0], [0, 1, 1, 0, 0]]))
    return union_of([{"c": Prefix(4), "a": Identity(3)}, {"b": rows, "c": Window(4, 2)}, {"b": AllRange(5)}], SIZES)


@functools.cache
def _strategy(work: Workload) -> Sliced:
    design = sliced_search.design_sliced(mean_problem(work), math.inf)
    built = design.build(design.fine)
    assert isinstance(built, Sliced)
    return built


def _drawn(seed: int) -> Workload:
    """Four products of factors of random kinds over three small attributes."""
    rng = np.random.default_rng([32, seed])
    sizes = dict(zip("abc", rng.choice([2, 3, 4, 5, 6], 3).tolist(), strict=True))

    def factor(n: int) -> LinearOperator:
        ranges = np.asarray(AllRange(n).dense(), dtype=np.int64)[:, rng.permutation(n)]
        rows = (rng.random((2, n)) < 0.4).astype(np.int64) + np.eye(2, n, dtype=np.int64)
        return (Identity(n), Prefix(n), Dense(ranges), Dense(rows), Window(n, 2))[int(rng.integers(5))]

    products = []
    for _ in range(4):
        names = sorted(rng.choice(list("abc"), int(rng.integers(1, 4)), replace=False).tolist())
        products.append({a: factor(sizes[a]) for a in names})
    return union_of(products, sizes)


def _least(work: Workload) -> float:
    """A proved lower bound on the root of the summed variances, as near the optimum as a thousandth of a thousandth."""
    gram = functools.reduce(np.add, [on_domain(work, q.block).T @ on_domain(work, q.block) for q in work.blocks])
    found = optimize_dense(gram, tolerance=1e-6)
    assert found.upper_bound <= found.lower_bound * (1 + 1e-4)
    return found.upper_bound


def test_errors_and_covariances_are_those_of_dense_matrices() -> None:
    """Mutants: the inverse of a matrix transposed; the sliced attribute put first; rows in another order."""
    work = _mixed()
    for axis in range(3):
        strategy = _sliced_along(work, axis)
        inverse = np.linalg.pinv(np.concatenate([on_domain(work, b) for b in strategy.blocks]))
        reads = [on_domain(work, q.block) @ inverse for q in work.blocks]
        for q, dense in zip(work.blocks, reads, strict=True):
            for power in (2, 4):
                found = np.broadcast_to(strategy.row_powers(q.block, power), [f.shape[0] for f in q.block.factors])
                np.testing.assert_allclose(found.reshape(-1), (dense**power).sum(axis=1), rtol=1e-6)
        for (p, one), (q, other) in itertools.product(zip(work.blocks, reads, strict=True), repeat=2):
            held = strategy.covariance(p.block, q.block)
            np.testing.assert_allclose(held, one @ other.T, atol=1e-6 * np.abs(one @ one.T).max())


def _sliced_along(work: Workload, axis: int) -> Sliced:
    """Some slices along an attribute: nothing of these tests hangs on which."""
    rng = np.random.default_rng(axis)
    shape = tuple(SIZES.values())
    n, m = shape[axis], math.prod(shape) // shape[axis]
    vectors = rng.integers(-9, 10, (n, n)) + 20 * np.eye(n, dtype=np.int64)
    matrices = tuple(np.triu(rng.integers(-5, 6, (m, m)), 1) + 9 * np.eye(m, dtype=np.int64) for _ in range(n))
    return Sliced(work.domain.names, shape, axis, vectors, matrices)


def test_answers_without_noise_are_exact_and_the_price_is_that_of_the_largest_column() -> None:
    """Mutants: slices added up in another order; a price of rows; the stranger reads attributes in another order."""
    work = _mixed()
    table = np.random.default_rng(1).integers(0, 50, list(SIZES.values()))
    for strategy in (_strategy(work), *(_sliced_along(work, axis) for axis in range(3))):
        values = [np.asarray(marginalise(table, work.domain.names, b)) for b in strategy.blocks]
        estimate = strategy.estimate(values, None)
        np.testing.assert_allclose(estimate, table, atol=1e-5)
        for q in work.blocks:
            exact = marginalise(table, work.domain.names, q.block)
            np.testing.assert_allclose(strategy.answer(estimate, q.block), exact, atol=1e-5)
        dense = [np.asarray(block_on_domain(work.domain, b).dense()).astype(object) for b in strategy.blocks]
        largest = (np.concatenate(dense) ** 2).sum(axis=0).max()
        assert exact_sensitivity(strategy.blocks, SIZES, UNIT, 2).value == largest
        assert priced_by_a_stranger(strategy, SIZES) == (largest, True)


def test_what_is_not_of_its_attributes_or_no_slices_is_refused() -> None:
    strategy = _sliced_along(_mixed(), 1)
    for block in (Block((("b",), ("x",)), (Identity(5), Identity(2))), Block((("a", "b"),), (Identity(15),))):
        with pytest.raises(NotAnswerable):
            strategy.check(block)
    fields = ("names", "shape", "axis", "vectors", "matrices")
    given = {name: getattr(strategy, name) for name in fields}
    lower = tuple(m.T for m in strategy.matrices)
    holed = tuple(m - np.diag(np.diagonal(m)) for m in strategy.matrices)
    for wrong in (
        {"axis": 3},
        {"axis": 0},
        {"matrices": strategy.matrices[1:]},
        {"matrices": lower},
        {"matrices": holed},
    ):
        with pytest.raises(PlanError):
            Sliced(**{**given, **wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(30))
def test_no_bound_is_above_the_optimum_and_no_strategy_below_its_bound(seed: int) -> None:
    """Mutants: the square of R pinched in place of R, which grows under it; weights that do not sum to 1."""
    work = _drawn(seed)
    least = _least(work)
    if len({a for q in work.blocks for a in q.attributes}) == 1:
        with pytest.raises(PlanError):
            sliced_search.design_sliced(mean_problem(work), math.inf)
        return
    proved = sliced_search.sliced_bound(mean_problem(work))
    assert proved is not None
    assert 0.9 * least <= proved <= least * (1 + 1e-7)
    try:
        plan = price_design(sliced_search.design_sliced(mean_problem(work), math.inf), mean_problem(work))
    except PlanError:
        return  # nothing to tilt
    error = plan.objective_value * math.sqrt(len(work))
    assert least * (1 - 1e-4) <= error <= 1.1 * least


def test_every_weight_and_basis_proves_a_bound() -> None:
    """The bound holds on the way, not where it ends alone. Mutant: a basis whose vectors are not orthogonal."""
    work = _mixed()
    least = _least(work)
    union, products = sliced_search._read_union(mean_problem(work))
    rng = np.random.default_rng(7)
    for one in sliced_search._sliceable_unions(union, products):
        n, m = len(one.own[0]), len(one.others[0])
        for _ in range(10):
            weights = sliced_search._Weights(rng.dirichlet(np.ones(n)), rng.dirichlet(np.ones(m)))
            search = sliced_search._BoundSearch(one, weights)
            search._basis = np.linalg.qr(rng.normal(size=(n, n)))[0]
            reached = [search._step() for _ in range(6)]
            assert max(reached) <= least * (1 + 1e-7)
            assert search.best >= max(reached) * (1 - 1e-8)
            assert reached[-1] >= reached[0]


def test_slices_come_near_the_optimum_where_products_of_vectors_do_not() -> None:
    rng = np.random.default_rng(11)
    sizes = {"a": 4, "b": 9, "c": 10}
    turned = [Dense(np.asarray(AllRange(n).dense(), dtype=np.int64)[:, rng.permutation(n)]) for n in (9, 10)]
    rows = Dense((rng.random((3, 10)) < 0.2).astype(np.int64))
    work = union_of(
        [
            {"a": Window(4, 2), "b": AllRange(9), "c": rows},
            {"a": Identity(4), "c": turned[1]},
            {"b": turned[0], "c": Identity(10)},
            {"a": Prefix(4), "b": Identity(9)},
        ],
        sizes,
    )
    least, problem = _least(work), mean_problem(work)
    design = sliced_search.design_sliced(problem, 1.03 * least)
    error = price_design(design, problem).objective_value * math.sqrt(len(work))
    assert least <= error <= 1.03 * least
    proved = sliced_search.sliced_bound(problem)
    assert proved is not None
    assert proved >= 0.98 * least
    with pytest.raises(PlanError, match="did not undercut"):
        sliced_search.design_sliced(problem, 0.9 * least)
