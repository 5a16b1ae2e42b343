"""Laws of unions by symmetry where the total is known, of what may be asked of them, and of their rounding."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from sfumato.domain import Domain, Integers
from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import Block, Grouping, Identity, LinearOperator, Prefix, Sparse, Stack, Total
from sfumato.planner.planning import plan
from sfumato.planner.simulate import simulate
from sfumato.plans.plan import price_design
from sfumato.privacy.budget import Budget
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies import union_planning as unions
from sfumato.strategies.dense_swap import swap_optimum
from sfumato.strategies.union import Orbits, Product, solve_union
from sfumato.workloads import QueryBlock, Workload
from support.reconstructions import check_covariances, reconstructions
from support.unions import dense, matrix_of, named, problem_of, random_products

SWAP = PrivacyUnit(Neighbours.REPLACE_ONE)
PERSON = PrivacyUnit(Neighbours.REPLACE_ONE, person="id")


def _designed(products: list[Product], unit: PrivacyUnit) -> Orbits | None:
    try:
        design = unions.design_union(problem_of(products, unit))
    except PlanError:
        return None
    built = design.build(design.fine)
    assert isinstance(built, Orbits)
    return built


@pytest.mark.parametrize("seed", range(12))
def test_a_known_total_is_used_as_least_squares_would(seed: int) -> None:
    """Mutants: no correction; a total of one group for all; its sign; errors of what is measured without it."""
    products = random_products(np.random.default_rng(seed))
    strategy = _designed(products, SWAP)
    if strategy is None:
        return
    assert strategy.public_total
    names = list(strategy.names)
    measured = np.concatenate([matrix_of(b, names) for b in strategy.blocks])
    cells = measured.shape[1]
    centred = measured - measured.mean(axis=1, keepdims=True)
    blocks = [q.block for q in problem_of(products).workload.blocks]
    found = []
    for block, back in zip(blocks, reconstructions(strategy, blocks), strict=True):
        wanted = matrix_of(block, names)
        none = [np.zeros(b.rows, dtype=np.int64) for b in strategy.blocks]
        share = strategy.answer(strategy.estimate(none, cells), block) / cells
        size = np.abs(back).sum(axis=1).max() * np.abs(measured).max()
        assert np.abs(back @ measured + share[:, None] - wanted).max() <= 1e-11 * size + 1e-9
        best = (wanted - wanted.mean(axis=1, keepdims=True)) @ np.linalg.pinv(centred, rcond=1e-11)
        # what is known comes back as rounding
        scale = max(np.abs(best).max(), 1 / strategy.max_abs)
        np.testing.assert_allclose(back, best, atol=1e-6 * scale + 1e-14)
        for power in (2, 4):
            shown = np.broadcast_to(strategy.row_powers(block, power), [f.shape[0] for f in block.factors]).reshape(-1)
            np.testing.assert_allclose(shown, (back**power).sum(axis=1), rtol=1e-6, atol=1e-12 * scale**power)
        found.append(back)
    check_covariances(strategy, blocks[:2], found[:2])


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("unit", [SWAP, PERSON], ids=["record", "person"])
def test_replace_one_pays_for_the_farthest_pair_of_cells(seed: int, unit: PrivacyUnit) -> None:
    """Mutants: the bound of add-remove where the total is known; |v|^2 or |W v| left out of it."""
    products = random_products(np.random.default_rng(seed))
    problem = problem_of(products, unit)
    try:
        design = unions.design_union(problem)
    except PlanError:
        return
    made = price_design(design, problem)
    assert isinstance(made.strategy, Orbits)
    assert made.strategy.public_total == unit.total_is_public
    names = list(made.strategy.names)
    columns = np.concatenate([matrix_of(b, names) for b in made.strategy.blocks]).astype(np.int64).astype(object).T
    pairs = [((a - b) ** 2).sum() for a, b in itertools.combinations(columns, 2)]
    most = max(pairs) if unit is SWAP else max(*pairs, *((c**2).sum() for c in columns))
    assert made.sensitivity.value >= most
    assert made.sensitivity.value - made.cut**2 == most or not made.sensitivity.exact
    assert design.bound is not None
    assert design.bound <= made.objective_value * math.sqrt(problem.total_weight) * (1 + 1e-9)
    if unit is SWAP:
        best = swap_optimum(matrix=dense(products, named(products)), tolerance=1e-4)
        assert design.bound <= best.upper_bound * (1 + 1e-9)
        # not far below either: what the mean takes is at most |W| / sqrt(m), and weights bring a factor
        assert design.bound >= 0.3 * best.lower_bound


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_simulated_errors_have_the_predicted_variances(relation: str) -> None:
    """Mutants: predictions without the known total, or estimates without it."""
    domain = Domain({"a": Integers(0, 11), "b": Integers(0, 5), "c": Integers(0, 3)})
    parts = [
        Block((("a",), ("b",)), (Grouping(np.arange(12) // 2, 6), Identity(6))),
        Block((("b",), ("c",)), (Grouping(np.arange(6) // 2, 3), Stack((Identity(4), Total(4))))),
    ]
    workload = Workload(domain, tuple(QueryBlock(f"part {i}", b) for i, b in enumerate(parts)))
    unit = PrivacyUnit(Neighbours.parse(relation))
    problem = problem_of([(1.0, {})], unit)
    problem = type(problem)(workload, problem.budget, unit, "gaussian")
    design = unions.design_union(problem)
    made = price_design(design, problem)
    found = simulate(made, np.full(domain.size, 3), repetitions=400, rng=5)
    ratio = (found.per_query_rmse / made.standard_errors()) ** 2
    assert np.abs(ratio - 1).max() <= 5.0 * math.sqrt(2 / 400)
    assert np.abs(ratio.mean() - 1) <= 0.04
    assert np.abs(found.mean_error / made.standard_errors()).max() <= 5.0 / math.sqrt(400)


def test_what_the_workload_does_not_span_is_refused_by_name() -> None:
    """Cells of `a` above 2 are never asked about: what is measured of them only makes a matrix invertible.

    Mutants: fillings taken for answers; the share of the filling without the contrasts beside it.
    """
    some = Sparse.from_cells([[0], [1, 2]], 6)
    products: list[Product] = [(1.0, {"a": some, "b": Identity(4)}), (1.0, {"a": some, "c": Identity(2)})]
    strategy = _designed(products, PrivacyUnit(Neighbours.ADD_REMOVE))
    assert strategy is not None
    for good in (
        Block((("a",),), (some,)),
        Block((("a",), ("b",)), (Sparse.from_cells([[0, 1, 2]], 6), Prefix(4))),
    ):
        strategy.check(good)
    rest = Sparse.from_cells([[3, 4, 5]], 6)
    for bad in (Block((), ()), Block((("b",),), (Identity(4),)), Block((("a",), ("c",)), (rest, Identity(2)))):
        with pytest.raises(NotAnswerable, match=r"no combination of the workload's queries.*add it"):
            strategy.check(bad)
        with pytest.raises(NotAnswerable, match="add it"):
            strategy.row_powers(bad, 2)


def test_a_known_total_may_always_be_asked() -> None:
    some = Sparse.from_cells([[0], [1, 2]], 6)
    strategy = _designed([(1.0, {"a": some, "b": Identity(4)}), (1.0, {"a": some, "c": Identity(2)})], SWAP)
    assert strategy is not None
    values = [np.arange(b.rows, dtype=np.int64) << 20 for b in strategy.blocks]
    total = Block((), ())
    np.testing.assert_allclose(strategy.answer(strategy.estimate(values, 1_000), total), 1_000, rtol=1e-9)
    assert strategy.row_powers(total, 2).max() <= 1e-12 * strategy.row_powers(Block((("a",),), (some,)), 2).max()
    with pytest.raises(NotAnswerable, match="add it"):
        strategy.check(Block((("b",),), (Identity(4),)))


def test_a_product_of_many_factors_is_rounded_well() -> None:
    """Each factor by itself would need more bits than there are. Mutants: columns rounded
    without regard to length."""
    sizes = {"a": 30, "b": 20, "c": 5, "d": 3, "e": 2}
    domain = Domain({n: Integers(0, k - 1) for n, k in sizes.items()})
    factors: list[LinearOperator] = [Prefix(30), Prefix(20), *(Stack((Identity(n), Total(n))) for n in (5, 3, 2))]
    workload = Workload(domain, (QueryBlock("all", Block(tuple((n,) for n in sizes), tuple(factors))),))
    made = plan(workload, Budget.gdp(1), neighbours="add-remove", mechanism="factorization")
    assert isinstance(made.strategy, Orbits)
    assert [len(g.names) for g in made.strategy.groups] == [1, 1, 3]
    assert made.lower_bound is not None
    assert made.rmse <= made.lower_bound * (1 + 3e-4)


def test_too_many_blocks_are_left_to_others() -> None:
    factor = Stack((Identity(2), Total(2)))
    names = [f"x{i}" for i in range(13)]
    with pytest.raises(PlanError, match="blocks to measure"):
        solve_union([(1.0, dict.fromkeys(names, factor))], dict.fromkeys(names, 2))
