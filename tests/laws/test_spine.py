"""Tables at the levels of a tree: two passes, prices and bounds against dense linear algebra and brute force."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import NotAnswerable, PlanError
from sfumato.maps import AlikeMap, BlockMap, MergedMap, TotalMap
from sfumato.operators import Block, Dense, Identity, Prefix, Stack
from sfumato.operators.base import FloatArray
from sfumato.plans.plan import Plan, price_design
from sfumato.privacy.sensitivity import certified_bound
from sfumato.privacy.terms import MapTerms
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies import geography_planning as allocation
from sfumato.strategies.calibration import NoiseName
from sfumato.strategies.certificates import exact_sensitivity, find_certificate
from sfumato.strategies.dense_optimal import optimize_dense
from sfumato.strategies.design import Problem
from sfumato.strategies.geography import AskedLevels, Spine
from sfumato.strategies.geography_planning import allocation_bound, design_geography
from sfumato.strategies.geography_tree import GroupTree, Passes, variance_slopes
from support.places import dense, grown, least_squares, nested, random_spine, tree_codes

ADD_REMOVE, REPLACE_ONE = PrivacyUnit(Neighbours.ADD_REMOVE), PrivacyUnit(Neighbours.REPLACE_ONE)
BOTH = pytest.mark.parametrize("unit", [ADD_REMOVE, REPLACE_ONE], ids=["add-remove", "replace-one"])


def problem(work: sf.Workload, unit: PrivacyUnit = ADD_REMOVE, noise: NoiseName = "gaussian", **given: Any) -> Problem:
    return Problem(work, sf.gdp(1), unit, noise, **given)


def planned(work: sf.Workload, unit: PrivacyUnit = ADD_REMOVE) -> Plan:
    asked = problem(work, unit)
    return price_design(design_geography(asked)[0], asked)


def sums_over(tree: GroupTree, codes: list[np.ndarray], order: list[np.ndarray]) -> list[FloatArray]:
    """Per level (nodes in the order of the tree, cells) which cells a node adds up."""
    cells = len(codes[0])
    rows = [(c == o[:, None]).astype(float) for c, o in zip(codes, order[1:], strict=True)]
    assert [len(r) for r in rows] == [len(c) for c in tree.counts[1:]]
    return [np.ones((1, cells)), *rows]


@pytest.mark.parametrize("seed", range(50))
def test_two_passes_are_the_dense_inverse(seed: int) -> None:
    """Variances, covariances, derivatives on random trees, fan-outs of 1 and levels that are not measured among them.

    Mutants: the parent's share not squared on the way down; the node's own precision forgotten on the way up.
    """
    rng = np.random.default_rng(seed)
    codes = tree_codes(rng, int(rng.integers(1, 5)), int(rng.integers(1, 40)))
    tree, order = GroupTree.of_codes(codes)
    precisions = [float(a) for a in rng.random(tree.depth + 1) + 0.1]
    for level in range(tree.depth):
        if rng.random() < 0.3:
            precisions[level] = 0.0
    rows = sums_over(tree, codes, order)
    normal = sum((a * h.T @ h for a, h in zip(precisions, rows, strict=True)), np.zeros((1, 1)))
    whole = np.vstack(rows) @ np.linalg.inv(normal) @ np.vstack(rows).T
    passes = Passes.of(tree, [np.array([[a]]) for a in precisions])
    scale = np.abs(whole).max()
    assert np.abs(np.concatenate([v[:, 0] for v in passes.variances]) - np.diag(whole)).max() < 1e-9 * scale
    given = [rng.standard_normal((len(c), 3)) for c in tree.counts]
    assert np.allclose(np.vstack(passes.solve(given)), whole @ np.vstack(given), rtol=0, atol=1e-9 * scale * len(whole))
    weights = [rng.random((len(c), 1)) for c in tree.counts]
    found = np.concatenate([g[:, 0] for g in variance_slopes(passes, weights)])
    assert np.allclose(found, whole**2 @ np.vstack(weights)[:, 0], rtol=1e-9, atol=0)


@pytest.mark.parametrize("seed", range(20))
def test_merged_nodes_stand_for_all_that_are_alike(seed: int) -> None:
    """Mutants: nodes merged by their own children alone, or counted once for each parent."""
    rng = np.random.default_rng(seed)
    tree, _ = GroupTree.of_codes(tree_codes(rng, 4, int(rng.integers(2, 60))))
    merged = tree.merged()
    precisions = [np.array([[a]]) for a in rng.random(tree.depth + 1) + 0.1]
    plain, few = Passes.of(tree, precisions), Passes.of(merged, precisions)
    weights = rng.random(tree.depth + 1)
    for level in range(tree.depth + 1):
        assert merged.counts[level].sum() == len(tree.counts[level])
        every = np.repeat(few.variances[level][:, 0], merged.counts[level].astype(int))
        assert np.allclose(np.sort(every), np.sort(plain.variances[level][:, 0]), rtol=1e-12, atol=0)
    one = variance_slopes(plain, [np.full((len(c), 1), w) for c, w in zip(tree.counts, weights, strict=True)])
    two = variance_slopes(few, [w * c[:, None] for c, w in zip(merged.counts, weights, strict=True)])
    assert np.allclose([g.sum() for g in one], [g.sum() for g in two], rtol=1e-12, atol=0)


def test_a_regular_tree_is_a_path() -> None:
    rows = grown((7, 11, 13))
    levels = [np.unique([r[i] for r in rows], return_inverse=True)[1].reshape(-1) for i in range(3)]
    tree, _ = GroupTree.of_codes([c.astype(np.int64) for c in levels])
    assert [len(c) for c in tree.merged().counts] == [1, 1, 1, 1]
    assert [k.tolist() for k in tree.merged().kids] == [[7.0], [11.0], [13.0]]


def test_levels_that_cross_are_no_tree() -> None:
    with pytest.raises(PlanError, match="in two of the coarser"):
        GroupTree.of_codes([np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2])])


# ---- prices ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("residual", [False, True], ids=["tables", "residuals"])
@BOTH
def test_prices_are_those_of_brute_force_on_a_thousand_trees(unit: PrivacyUnit, residual: bool) -> None:
    """The search's price, and what the wall proves of it, against all pairs of cells.

    Mutants: twice the largest column (which a pair of records in one group never reaches); inner products of different
    cells of one attribute taken for 0 (residuals have -1); levels at which two records lie together left out.
    """
    public = unit is REPLACE_ONE
    halves = 0
    for seed in range(250):
        made = random_spine(np.random.default_rng(seed), residual=residual, public=public)
        sizes = dict(zip(made.names, made.shape, strict=True))
        matrix = dense(sf.Domain(sizes), made.blocks)
        norms = (matrix**2).sum(axis=0)
        apart = norms[:, None] + norms - 2 * matrix.T @ matrix
        wanted = round(float(apart.max() if public else norms.max()))
        found = exact_sensitivity(made.blocks, sizes, unit, 2)
        assert (found.value, found.exact) == (wanted, True)
        maps = [b.lowered() for b in made.blocks]
        assert certified_bound(maps, sizes, unit, 2, find_certificate(made.blocks, sizes, unit, 2)) == wanted
        halves += wanted != 2 * round(float(norms.max()))
    # tables without that of all records are farthest apart where nothing agrees, at twice a column
    assert halves > 50 or not (public and residual)


def test_the_wall_takes_for_one_level_what_groups_cells_alike_and_nothing_else() -> None:
    """Mutants: groupings told by their number of cells alone; the map after the partition forgotten. Either makes the
    second block a copy of the first, in which no two cells differ, and the price 0."""
    apart = MergedMap(AlikeMap(2), np.array([0, 1]))
    for same in (MergedMap(AlikeMap(2), np.array([0, 0])), MergedMap(TotalMap(2), np.array([0, 1]))):
        blocks = [BlockMap((("place",),), (f,)) for f in (same, apart)]
        assert len(MapTerms.of(blocks, {"place": 2}, 2).slots) == 2
        assert certified_bound(blocks, {"place": 2}, REPLACE_ONE, 2) == 2
    again = [BlockMap((("place",),), (MergedMap(AlikeMap(2), np.array([0, 0])),)) for _ in range(2)]
    assert len(MapTerms.of(again, {"place": 2}, 2).slots) == 1


@pytest.mark.parametrize("seed", range(10))
def test_precisions_cost_what_the_planner_says_they_cost(seed: int) -> None:
    """Mutant: k of changed attributes without its sign."""
    rng = np.random.default_rng(seed)
    work = nested(grown((2, 3), rng, 0.4), (2, 3), [[], ["a0"], ["a0", "a1"]])
    asked = AskedLevels.of(problem(work, REPLACE_ONE))
    found = allocation.allocate_precisions(asked, asked.tree.merged(), replaced=True, public=True)
    cells = work.domain.shape[0]
    codes = [np.zeros(cells, dtype=np.int64), *(f.dense().argmax(axis=0) for f in asked.levels)]
    gram = np.zeros((work.domain.size, work.domain.size))
    for s, each in found.precisions.items():
        for level, a in enumerate(each):
            if math.isfinite(a):
                own = (codes[level][:, None] == codes[level]).astype(float)
                for i, n in enumerate(work.domain.shape[1:], 1):
                    own = np.kron(own, np.eye(n) - 1 / n if i in s else np.ones((n, n)))
                gram += a * own
    norms = np.diag(gram)
    assert abs(float((norms[:, None] + norms - 2 * gram).max()) - 1) < 1e-9


# ---- strategies ---------------------------------------------------------------------------------------------------

SETS: list[list[list[str]]] = [[[], ["a0"], ["a0", "a1"]], [["a0"], ["a1"]], [["a0", "a1"]], [[], ["a1"]]]


@pytest.mark.parametrize("seed", range(24))
@BOTH
def test_variances_covariances_and_answers_are_those_of_dense_least_squares(unit: PrivacyUnit, seed: int) -> None:
    """Whatever the strategy measures, of all that is asked and of a sum of leaves that no level has.

    Mutants: contrasts forgotten; groups in the order of the tree taken for their numbers; the known total not kept.
    """
    rng = np.random.default_rng(seed)
    rows = grown([(2, 3), (3, 2, 2), (2,)][seed % 3] + (2,), rng, 0.5)
    work = nested([rows[i] for i in rng.permutation(len(rows))], (2, 3), SETS[seed % 4], before=seed % 2)
    made = planned(work, unit)
    strategy, domain, public = made.strategy, work.domain, unit is REPLACE_ONE
    assert isinstance(strategy, Spine)
    extra = sf.queries(Dense(rng.integers(-1, 2, (2, domain["place"].size))), domain, "place")
    if () not in strategy.precisions or strategy.depth(()) < len(strategy.levels):
        extra = work
    both = [q.block for q in (*work.blocks, *extra.blocks)]
    measured, asked = dense(domain, strategy.blocks), dense(domain, both)
    back = least_squares(measured, asked, public=public)
    wanted = back @ back.T
    powers = np.concatenate(
        [np.broadcast_to(strategy.row_powers(b, 2), [f.shape[0] for f in b.factors]).reshape(-1) for b in both]
    )
    scale = wanted.max()
    assert np.abs(powers - np.diag(wanted)).max() < 1e-9 * scale
    found = np.block([[strategy.covariance(a, b) for b in both] for a in both])
    assert np.abs(found - wanted).max() < 1e-9 * scale
    x = rng.integers(0, 50, domain.size)
    total = int(x.sum())
    values = [(dense(domain, [b]) @ x).astype(np.int64) + rng.integers(-9999, 9999, b.rows) for b in strategy.blocks]
    estimate = strategy.estimate(values, total)
    answers = np.concatenate([strategy.answer(estimate, b) for b in both])
    even = np.full(domain.size, total / domain.size) if public else np.zeros(domain.size)
    expected = asked @ even + back @ (np.concatenate(values) - measured @ even)
    assert np.abs(answers - expected).max() < 1e-8 * np.abs(expected).max()


def test_what_was_not_measured_so_finely_is_refused() -> None:
    """States and counties were asked: blocks are refused, sums of blocks that make up counties are not."""
    rows = grown((2, 2, 3))
    domain = sf.Domain({"place": sf.Hierarchy(rows, levels=["state", "county", "block"]), "sex": 2})
    work = sf.marginals(domain, sets=[["state", "sex"], ["county", "sex"]])
    made = planned(work)
    whole = Block((("place",),), (Dense((np.arange(12) // 3 == 1)[None].astype(np.int64)),))
    assert np.allclose(
        made.strategy.row_powers(whole, 2)[0],
        made.strategy.row_powers(sf.identity(domain, "county").blocks[0].block, 2)[1],
    )
    stacked = Block(
        (("place",),), (Stack(tuple(q.block.factors[0] for q in sf.hierarchy(domain, "place").blocks[:2])),)
    )
    assert made.strategy.row_powers(stacked, 2).shape == (6,)
    for block in (
        sf.identity(domain, "place").blocks[0].block,
        Block((("place",),), (Prefix(12),)),
        Block((("place", "sex"),), (Dense(np.eye(2, 24, dtype=np.int64)),)),
        Block((("age",),), (Identity(2),)),
    ):
        with pytest.raises(NotAnswerable):
            made.strategy.check(block)
    with pytest.raises(PlanError, match="fourth"):
        made.strategy.row_powers(whole, 4)


def test_a_strategy_refuses_at_birth() -> None:
    for given in (((0,), ((),), (0,)), ((2,), ((),), (1,)), ((0,), ((0,),), (1,)), ((0, 1), ((),), (1,))):
        with pytest.raises(PlanError):
            Spine(("place", "a"), (3, 2), 0, (Identity(3),), *given)


# ---- bounds ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_the_bound_is_below_the_dense_optimum_and_the_plan_near_it(seed: int) -> None:
    """Mutants: the trapezoidal rule not lessened by what it is off; weights of cells that do not add up to 1."""
    rng = np.random.default_rng(seed)
    work = nested(grown((2, 2, 3), rng, 0.6), (2, 3), SETS[seed % 4])
    asked = problem(work)
    made = planned(work)
    weights = np.repeat([asked.objective_weight(q) for q in work.blocks], [q.rows for q in work.blocks])
    matrix = np.sqrt(weights)[:, None] * dense(work.domain, [q.block for q in work.blocks])
    found = optimize_dense(matrix.T @ matrix, tolerance=1e-7)
    least = float(
        np.linalg.norm(matrix @ np.linalg.pinv(found.strategy)) * np.linalg.norm(found.strategy, axis=0).max()
    )
    assert made.bound is not None
    assert made.bound * math.sqrt(asked.total_weight) <= least * (1 + 1e-9)
    # on trees as small and uneven as these one number per level costs up to 1.2 %, and the bound is as near
    assert made.bound * math.sqrt(asked.total_weight) > 0.998 * least
    assert least / math.sqrt(asked.total_weight) <= made.objective_value * (1 + 1e-6)
    assert made.objective_value <= 1.02 * made.bound


def test_regular_trees_meet_their_bound() -> None:
    """At any number of leaves; alike for tables, and for tables without their margins, where residuals are measured."""
    for fans, sets in itertools.product(((4, 5), (3, 7, 11, 13)), (SETS[0], SETS[1])):
        made = planned(nested(grown(fans), (2, 3), sets))
        assert made.bound is not None
        assert made.objective_value <= made.bound * (1 + 1e-6)
        assert isinstance(made.strategy, Spine)
        assert made.strategy.residual == (sets is SETS[1])


def test_irregular_trees_are_within_a_hundredth_of_it() -> None:
    """As docs/marginals.md has it; fan-outs spread by a factor of exp(.4), which is 1.5."""
    rows = grown((3, 10, 4, 3, 8), np.random.default_rng(0), 0.4)
    made = planned(nested(rows, (8, 2, 2, 63), [[], ["a1"], ["a2", "a3"], ["a0", "a1", "a2", "a3"]]))
    assert made.bound is not None
    assert made.objective_value <= 1.01 * made.bound
    assert made.strategy.summary == "24 tables at 6 levels of place, by least squares on the tree"


def test_weights_move_the_bound_with_the_plan() -> None:
    """Levels and tables asked alike differ from others by more than a factor: the profiles must not be mixed up."""
    rng = np.random.default_rng(1)
    work = nested(grown((2, 3, 4), rng, 0.3), (2, 3), SETS[0])
    heavy = sf.stack(work, weights={"L1": 9})
    one, other = planned(work), planned(heavy)
    assert other.bound is not None
    assert other.objective_value <= 1.01 * other.bound
    errors = [float(p.standard_errors("L1").mean()) for p in (one, other)]
    assert errors[1] < 0.9 * errors[0]
    asked = AskedLevels.of(problem(heavy))
    tree = asked.tree.merged()
    found = allocation.allocate_precisions(asked, tree, replaced=False, public=False)
    assert allocation_bound(asked, asked.tree, found) == pytest.approx(allocation_bound(asked, tree, found), rel=1e-9)


def test_other_questions_are_left_to_other_designs() -> None:
    work = nested(grown((2, 3)), (2, 3), SETS[0])
    domain = work.domain
    for other in (
        sf.prefix(domain, "a1", by="L0"),
        work + sf.prefix(domain, "a1"),
        sf.identity(domain, "place"),
        work + sf.sums(domain, "a1"),
    ):
        assert design_geography(problem(other)) == []
    assert design_geography(problem(work, objective="max")) == []
    assert design_geography(problem(work, noise="laplace")) == []
