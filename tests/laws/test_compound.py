"""Laws of attributes that queries join: what is planned over them as one is measured, priced and answered over them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import ArrayLike

import sfumato as sf
from sfumato._util.codec import decode_value, encode_value
from sfumato.errors import PlanError
from sfumato.operators import Block, Identity, Prefix, Sparse
from sfumato.operators.base import FloatArray
from sfumato.planner.simulate import simulate
from sfumato.plans.plan import price_design
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies import dense_planning as matrix
from sfumato.strategies import residual_planning as marginals
from sfumato.strategies import union_planning as unions
from sfumato.strategies.certificates import exact_sensitivity
from sfumato.strategies.dense_optimal import optimize_dense
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.stacked import Compound, join_problem_attributes, joined_attributes, planned_jointly
from sfumato.workloads import QueryBlock, Workload
from sfumato.workloads.core import block_on_domain
from support.reconstructions import check_covariances, reconstructions
from support.searching import everything
from support.stranger import priced_by_a_stranger
from support.unions import DOMAIN, SIZES, UNIT, matrix_of

NAMES = list(SIZES)


def differences(first: str, second: str) -> Block:
    """Counts of all differences of two attributes, which stand in this order."""
    one, other = (i.reshape(-1) for i in np.indices((SIZES[first], SIZES[second])))
    rows: list[ArrayLike] = [np.flatnonzero(one - other == d) for d in range(1 - SIZES[second], SIZES[first])]
    return Block(((first, second),), (Sparse.from_cells(rows, len(one)),))


def workload(*blocks: Block) -> Workload:
    """Tables of all pairs, beside these."""
    tables = sf.marginals(DOMAIN, upto=2)
    return sf.stack(tables, Workload(DOMAIN, tuple(QueryBlock(f"part {i}", b) for i, b in enumerate(blocks))))


def problem(work: Workload, unit: PrivacyUnit = UNIT) -> Problem:
    return Problem(work, sf.gdp(1), unit, "gaussian", "tables")


CUMULATIVE = Block((("a",), ("c",)), (Prefix(SIZES["a"]), Identity(SIZES["c"])))
# the second joins attributes in another order than the domain's, with one between them
WORKS = {
    "near": workload(CUMULATIVE, differences("a", "b")),
    "turned": workload(CUMULATIVE, differences("c", "a")),
}
PLANNERS: dict[str, Callable[[Problem], Design]] = {
    "symmetry": unions.design_union,
    "tilted": functools.partial(planned_jointly, planner=marginals.tilted_design),
}


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("name", WORKS)
def test_what_is_joined_is_answered_without_bias_at_the_predicted_error(name: str, planner: str) -> None:
    """Mutants: cells of joined attributes in another order; rows left in the order of the joined attributes; a factor
    of two attributes taken for one of all; values of a family in another order; a multiple of a family left out."""
    asked = problem(WORKS[name])
    made = price_design(PLANNERS[planner](asked), asked)
    strategy = made.strategy
    assert isinstance(strategy, Compound)
    measured = np.concatenate([matrix_of(b, NAMES) for b in strategy.blocks])  # pyright: ignore[reportArgumentType]
    found, blocks = list[FloatArray](), [q.block for q in asked.workload.blocks]
    # of what is joined factors that stand in another order, one with another attribute's between them
    ends = ("b", "a") if name == "near" else ("c", "a")
    blocks.append(Block(tuple((n,) for n in ends), tuple(Prefix(SIZES[n]) for n in ends)))
    if planner == "tilted" and name == "turned":
        blocks.append(Block((("c",), ("b",), ("a",)), (Identity(2), Identity(4), Prefix(6))))
    for block, back in zip(blocks, reconstructions(strategy, blocks), strict=True):
        wanted = matrix_of(block, NAMES)
        size = np.abs(back).sum(axis=1).max() * np.abs(measured).max()
        assert np.abs(back @ measured - wanted).max() <= 1e-12 * size + 1e-9
        shape = [f.shape[0] for f in block.factors]
        for power in (2, 4):
            shown = np.broadcast_to(strategy.row_powers(block, power), shape).reshape(-1)
            np.testing.assert_allclose(shown, (back**power).sum(axis=1), rtol=1e-6)
        found.append(back)
    check_covariances(strategy, blocks[-2:], found[-2:])
    # the price, by looking at every column, as the stranger finds it too
    assert made.sensitivity.value == max((measured.astype(np.int64).astype(object) ** 2).sum(axis=0))
    assert exact_sensitivity(strategy.blocks, SIZES, UNIT, 2).exact
    assert priced_by_a_stranger(strategy, SIZES) == (made.sensitivity.value, True)
    again = decode_value(*encode_value(strategy))
    assert isinstance(again, Compound)
    np.testing.assert_array_equal(again.row_powers(blocks[0], 2), strategy.row_powers(blocks[0], 2))


@pytest.mark.parametrize("name", WORKS)
def test_by_symmetry_the_joined_optimum_is_the_dense_one(name: str) -> None:
    """Mutants: weights of tables that are joined counted twice; a query over fewer attributes spread by its mean."""
    asked = problem(WORKS[name])
    design = unions.design_union(asked)
    rows = [
        math.sqrt(asked.objective_weight(q)) * block_on_domain(DOMAIN, q.block).dense() for q in asked.workload.blocks
    ]
    wanted = optimize_dense(matrix=np.concatenate(rows), tolerance=1e-6)
    made = price_design(design, asked)
    scale = math.sqrt(asked.total_weight)
    assert design.bound is not None
    assert design.bound <= wanted.upper_bound * (1 + 1e-9)
    assert wanted.lower_bound <= made.objective_value * scale <= design.bound * 1.003


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_simulated_errors_have_the_predicted_variances(neighbours: str) -> None:
    """Mutants: values of joined attributes in another order; the known total left out."""
    unit = PrivacyUnit(Neighbours(neighbours))
    made = price_design(unions.design_union(problem(WORKS["turned"], unit)), problem(WORKS["turned"], unit))
    assert isinstance(made.strategy, Compound)
    found = simulate(made, np.full(DOMAIN.size, 3), repetitions=400, rng=5)
    errors = made.standard_errors()
    noisy = errors > 1e-6 * errors.max()  # of what follows from the known total rounding is left
    ratio = (found.per_query_rmse[noisy] / errors[noisy]) ** 2
    assert np.abs(ratio - 1).max() <= 5.0 * math.sqrt(2 / 400)
    assert np.abs(ratio.mean() - 1) <= 0.05


def test_what_is_joined_and_what_is_not() -> None:
    """Mutants: two pairs that share an attribute left two; a name that is taken; levels forgotten."""
    assert joined_attributes(WORKS["turned"]) == (("a", "c"),)
    both = workload(differences("a", "b"), CUMULATIVE, differences("a", "c"))
    assert joined_attributes(both) == (("a", "b", "c"),)
    assert joined_attributes(sf.marginals(DOMAIN, upto=2)) == ()
    plain = problem(sf.marginals(DOMAIN, upto=2))
    assert join_problem_attributes(plain) == (plain, ())
    taken = sf.Domain({"a": 2, "b": 2, "a x b": 2})
    work = sf.predicates(taken, ["a == 0 or b == 1", "`a x b` == 1"])
    whole, found = join_problem_attributes(Problem(work, sf.gdp(1), UNIT, "gaussian"))
    assert whole.workload.domain.names == ("a x b", "a x b'")
    assert [j.attributes for j in found] == [("a", "b")]


def test_too_many_joined_cells_are_refused_in_words() -> None:
    """Mutant: a Gram of all of them."""
    domain = sf.Domain({"a": 70, "b": 70, "c": 2})
    work = sf.stack(sf.marginals(domain, upto=2), sf.predicates(domain, ["a > 3 or b > 7"]))
    asked = Problem(work, sf.gdp(1), UNIT, "gaussian")
    with pytest.raises(PlanError, match=r"queries join a, b, of 4,900 cells, above the limit of 4,096"):
        unions.design_union(asked)
    refused = {c.strategy: c.note for c in everything(asked, "factorization").refused}
    assert "4,900 cells" in refused[matrix.BY_SYMMETRY]
    assert "too many to be one matrix" in refused[matrix.OVER_COLUMNS]


def test_tables_beside_differences_come_near_their_bound_and_candidates_say_what_did_not_apply() -> None:
    """Mutants: joint factors left out of products, 1.08 times the bound; a search that is refused in silence."""
    domain = sf.Domain({"a": 12, "b": 12, "c": 30})
    one, other = (i.reshape(-1) for i in np.indices((12, 12)))
    rows: list[ArrayLike] = [np.flatnonzero(one - other == d) for d in range(-11, 12)]
    block = Block((("a", "b"),), (Sparse.from_cells(rows, 144),))
    work = sf.stack(
        sf.marginals(domain, upto=2), sf.prefix(domain, "a"), Workload(domain, (QueryBlock("differences", block),))
    )
    made = sf.plan(work, sf.gdp(1), neighbours="add-remove")
    assert made.lower_bound is not None
    assert made.objective_value <= 1.003 * made.lower_bound
    pure = sf.plan(sf.predicates(domain, ["a > 1 or b > 2", "c > 3"]), sf.pure(1), neighbours="add-remove")
    lines = [r for r in pure.candidates.rows() if r["objective_value"] is None and r["mechanism"] == "factorization"]
    assert {r["strategy"]: r["note"] for r in lines}["the optimum by symmetry over few rows"].endswith("Gaussian noise")
