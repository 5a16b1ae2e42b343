"""Laws of unions by symmetry over the few rows that queries leave: optima, R B = W, errors, prices by brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sfumato._util.codec import decode_value, encode_value
from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import Block, Identity, Sparse
from sfumato.operators.base import FloatArray
from sfumato.planner.simulate import simulate
from sfumato.plans.plan import price_design
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies import union_planning as unions
from sfumato.strategies.certificates import exact_sensitivity
from sfumato.strategies.dense_optimal import optimize_dense
from sfumato.strategies.union import Orbits
from sfumato.strategies.union_planning import solve_rows
from support.reconstructions import check_covariances, reconstructions
from support.stranger import priced_by_a_stranger
from support.unions import SIZES, UNIT, beside_counts, dense, matrix_of, named, problem_of, some_products

SEEDS = range(20)


def test_what_is_proved_encloses_the_dense_optimum() -> None:
    """Mutants: multiplicities or sizes left out of a kind; a length of another kind; bounds of a step that fell."""
    solved = 0
    for seed in SEEDS:
        products = some_products(seed)
        try:
            (found,) = solve_rows(products, SIZES)
        except PlanError:
            continue
        wanted = optimize_dense(matrix=dense(products, named(products)), tolerance=1e-6)
        assert found.lower <= wanted.upper_bound * (1 + 1e-9)
        assert wanted.lower_bound <= found.upper * (1 + 1e-9)
        assert found.upper <= found.lower * 1.003
        solved += 1
    assert solved > len(SEEDS) // 2


def test_integers_are_read_back_without_bias_and_at_the_predicted_error() -> None:
    """Mutants: rows rounded after the matrix; the real matrix read back; orbits in another order; less of a price."""
    tried = 0
    for seed in SEEDS[:12]:
        problem = problem_of(some_products(seed))
        try:
            design = unions.few_rows(problem)
        except PlanError:
            continue
        made = price_design(design, problem)
        strategy = made.strategy
        assert isinstance(strategy, Orbits)
        names = list(strategy.names)
        measured = np.concatenate([matrix_of(b, names) for b in strategy.blocks])
        found, blocks = list[FloatArray](), [q.block for q in problem.workload.blocks]
        for block, back in zip(blocks, reconstructions(strategy, blocks), strict=True):
            wanted = matrix_of(block, names)
            size = np.abs(back).sum(axis=1).max() * np.abs(measured).max()
            assert np.abs(back @ measured - wanted).max() <= 1e-12 * size + 1e-9
            shape = [f.shape[0] for f in block.factors]
            for power in (2, 4):
                shown = np.broadcast_to(strategy.row_powers(block, power), shape).reshape(-1)
                np.testing.assert_allclose(shown, (back**power).sum(axis=1), rtol=1e-6)
            found.append(back)
        check_covariances(strategy, blocks[:2], found[:2])
        # the price, by looking at every column, as the stranger finds it too
        assert made.sensitivity.value == max((measured.astype(np.int64).astype(object) ** 2).sum(axis=0))
        assert exact_sensitivity(strategy.blocks, SIZES, UNIT, 2).exact
        assert priced_by_a_stranger(strategy, SIZES) == (made.sensitivity.value, True)
        assert design.bound is not None
        assert design.bound <= made.objective_value * math.sqrt(problem.total_weight) <= design.bound * 1.004
        again = decode_value(*encode_value(strategy))
        assert isinstance(again, Orbits)
        np.testing.assert_array_equal(again.row_powers(blocks[0], 2), strategy.row_powers(blocks[0], 2))
        tried += 1
    assert tried >= 8


def test_what_is_not_asked_is_refused() -> None:
    """Mutant: what lies outside of the rows taken for nothing."""
    design = unions.few_rows(problem_of(beside_counts(0)))
    strategy = design.build(design.fine)
    strategy.check(Block((), ()))
    strategy.check(Block((("a",), ("b",)), (Sparse.from_cells([[1, 2]], 6), Identity(4))))
    whole = Block((("a",), ("b",), ("c",)), (Identity(6), Identity(4), Identity(2)))
    with pytest.raises(NotAnswerable, match=r"no combination of the workload's queries.*add it"):
        strategy.check(whole)
    with pytest.raises(NotAnswerable, match="add it"):
        strategy.row_powers(whole, 2)


def test_simulated_errors_have_the_predicted_variances() -> None:
    """Mutants: contrasts read back by the inverse of the orbits; values of a joint factor in another order."""
    problem = problem_of(beside_counts(2))
    design = unions.few_rows(problem)
    made = price_design(design, problem)
    found = simulate(made, np.full(problem.workload.domain.size, 3), repetitions=400, rng=5)
    ratio = (found.per_query_rmse / made.standard_errors()) ** 2
    assert np.abs(ratio - 1).max() <= 5.0 * math.sqrt(2 / 400)
    assert np.abs(ratio.mean() - 1) <= 0.05
    assert np.abs(found.mean_error / made.standard_errors()).max() <= 5.0 / math.sqrt(400)


def test_only_where_a_record_more_or_less_is_a_neighbour() -> None:
    with pytest.raises(PlanError, match="where one record replaces another"):
        unions.few_rows(problem_of(beside_counts(0), PrivacyUnit(Neighbours.REPLACE_ONE)))
