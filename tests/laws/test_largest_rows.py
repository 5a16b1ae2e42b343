"""Laws of the largest error of queries that are not written out, and where one record is replaced: by other means."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.linalg import circulant
from scipy.optimize import minimize

from sfumato.domain import Domain, Integers
from sfumato.operators import AllRange, Dense, Prefix, Window
from sfumato.planner.factorize import factorization
from sfumato.planner.planning import plan
from sfumato.plans.plan import Plan
from sfumato.privacy.budget import Budget
from sfumato.strategies.dense_blocks import Queries
from sfumato.strategies.dense_largest import LargestErrorOptimum, optimize_largest, optimize_largest_rows, swap_largest
from sfumato.strategies.dense_swap import swap_optimum
from sfumato.strategies.strategy import marginalise
from sfumato.workloads import QueryBlock, Workload, marginals, prefix, ranges, stack

UNIT = Budget.gdp(1)
GAP = 1e-4
MIXED = Queries(((AllRange(7), 1.0), (Window(7, 3), 4.0), (Dense(np.vander(np.arange(1, 5), 7)), 1e-4)))


def written(queries: Queries) -> np.ndarray:
    return np.vstack([np.asarray(o.dense(), dtype=np.float64) * math.sqrt(w) for o, w in queries.blocks])


def workloads(limit: int = 6) -> st.SearchStrategy[np.ndarray]:
    entries = st.integers(-2, 2).map(float)
    shapes = st.tuples(st.integers(1, limit), st.integers(2, limit))
    return shapes.flatmap(lambda shape: hnp.arrays(np.float64, shape, elements=entries)).filter(
        lambda F: bool(np.ptp(F, axis=1).any())
    )


def differences(m: int) -> np.ndarray:
    eye = np.eye(m)
    return np.array([eye[i] - eye[j] for i, j in itertools.combinations(range(m), 2)]).T


def diameter(M: np.ndarray) -> float:
    return float(np.linalg.norm(M @ differences(M.shape[1]), axis=0).max())


def assert_certified_for_pairs(F: np.ndarray, found: LargestErrorOptimum, tolerance: float = GAP) -> None:
    """Both bounds by all pairs written out, and the largest row of (F - row means) M^+."""
    D, M = differences(F.shape[1]), found.strategy
    centred = F - F.mean(axis=1, keepdims=True)
    assert len(found.cells) == D.shape[1]
    for weights in (found.rows, found.cells):
        assert weights.min() >= 0.0
        assert weights.sum() == pytest.approx(1, abs=1e-12)
    nuclear = np.linalg.svd(np.sqrt(found.rows)[:, None] * F @ D * np.sqrt(found.cells), compute_uv=False).sum()
    assert nuclear * (1 - 1e-6) <= found.lower_bound <= nuclear * (1 + 1e-12)
    assert diameter(M) == pytest.approx(1, abs=1e-9)
    assert np.abs(M.sum(axis=1)).max() <= 1e-9
    R = centred @ np.linalg.pinv(M)
    assert np.abs(R @ M - centred).max() <= 1e-7 * np.abs(F).max()
    assert found.upper_bound == pytest.approx(np.linalg.norm(R, axis=1).max(), rel=1e-6)
    assert found.upper_bound >= np.linalg.norm(R, axis=1).max() * (1 - 1e-10)
    assert 0.0 <= found.gap <= tolerance


# ---- queries that are not written out ----------------------------------------------------------------------


@pytest.mark.parametrize("queries", [Queries(((Prefix(6), 2.0),)), MIXED])
def test_grams_and_forms_are_those_of_the_rows(queries: Queries) -> None:
    rng = np.random.default_rng(3)
    F = written(queries)
    weights = rng.uniform(-1, 1, len(F))
    square = rng.normal(size=(F.shape[1],) * 2)
    square += square.T
    assert queries.shape == F.shape
    assert np.allclose(queries.gram(weights), (F.T * weights) @ F)
    assert np.allclose(queries.forms(square), np.einsum("ij,ij->i", F @ square, F))


@pytest.mark.parametrize("queries", [Queries(((AllRange(24), 1.0),)), Queries(((Prefix(40), 3.0),)), MIXED])
def test_the_same_optimum_as_of_written_rows(queries: Queries) -> None:
    F = written(queries)
    found, dense = optimize_largest_rows(queries), optimize_largest(F)
    assert found is not None
    nuclear = np.linalg.svd(np.sqrt(found.rows)[:, None] * F * np.sqrt(found.cells), compute_uv=False).sum()
    assert nuclear * (1 - 1e-6) <= found.lower_bound <= nuclear * (1 + 1e-12)
    R = F @ np.linalg.pinv(found.strategy)
    assert np.abs(R @ found.strategy - F).max() <= 1e-8 * np.abs(F).max()
    assert found.upper_bound == pytest.approx(np.linalg.norm(R, axis=1).max(), rel=1e-7)
    assert found.upper_bound >= np.linalg.norm(R, axis=1).max() * (1 - 1e-10)
    assert np.linalg.norm(found.strategy, axis=0).max() <= 1.0
    assert 0.0 <= found.gap <= 1e-5
    assert found.upper_bound == pytest.approx(dense.upper_bound, rel=3e-5)


@pytest.mark.parametrize(
    "F", [np.eye(3, 4), np.ones((5, 2)), np.diag([1.0, 2.0, 3.0])], ids=["unasked", "alike", "apart"]
)
def test_what_needs_the_written_rows_is_left_to_them(F: np.ndarray) -> None:
    assert optimize_largest_rows(Queries.of(F)) is None


def test_all_ranges_of_many_cells() -> None:
    """8,256 rows: never written out."""
    found = optimize_largest_rows(Queries(((AllRange(128), 1.0),)))
    assert found is not None
    assert found.gap <= 1e-5
    assert found.upper_bound == pytest.approx(2.78804, rel=1e-5)


# ---- one record is replaced --------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(workloads())
def test_pairs_are_certified_for_any_small_workload(F: np.ndarray) -> None:
    assert_certified_for_pairs(F, swap_largest(F))


@settings(max_examples=30, deadline=None)
@given(workloads(5))
def test_it_is_gamma_2_of_all_differences_of_columns(F: np.ndarray) -> None:
    found, plain = swap_largest(F), optimize_largest(F @ differences(F.shape[1]))
    assert found.lower_bound <= plain.upper_bound * (1 + 1e-9)
    assert plain.lower_bound <= found.upper_bound * (1 + 1e-9)


@pytest.mark.parametrize(("n", "value"), [(12, 2.10440), (32, 2.72777)])
def test_ranges_whose_weights_nearly_all_vanish(n: int, value: float) -> None:
    F = np.asarray(AllRange(n).dense(), dtype=np.float64)
    found = swap_largest(Queries(((AllRange(n), 1.0),)))
    assert_certified_for_pairs(F, found)
    assert found.upper_bound == pytest.approx(value, rel=GAP)


def test_a_general_optimizer_finds_the_same() -> None:
    """The epigraph of the largest row and the largest distance, from several starts."""
    F = np.array([[1.0, 1, 0], [0, 1, 2], [3, 0, 1], [1, -1, 0]])
    rows = np.linalg.svd(F - F.mean(axis=1, keepdims=True))[2][:2]
    centred, D = F - F.mean(axis=1, keepdims=True), differences(3)

    def errors(x: np.ndarray) -> np.ndarray:
        return ((centred @ rows.T @ np.linalg.inv(x[1:].reshape(2, 2))) ** 2).sum(axis=1)

    def widths(x: np.ndarray) -> np.ndarray:
        return ((x[1:].reshape(2, 2) @ rows @ D) ** 2).sum(axis=0)

    def below(x: np.ndarray) -> np.ndarray:
        return np.concatenate([x[0] - errors(x), 1 - widths(x)])

    def first(x: np.ndarray) -> float:
        return float(x[0])

    best = math.inf
    for seed in range(4):
        start = np.concatenate([[0.0], np.random.default_rng(seed).normal(size=4)])
        start[0] = errors(start).max()
        limits = {"type": "ineq", "fun": below}
        options = {"maxiter": 300, "ftol": 1e-12}
        x = minimize(first, start, method="SLSQP", options=options, constraints=[limits]).x  # pyright: ignore[reportCallIssue, reportArgumentType]
        best = min(best, math.sqrt(errors(x).max() * widths(x).max()))
    found = swap_largest(F)
    assert found.lower_bound <= best * (1 + 1e-9)
    assert found.upper_bound == pytest.approx(best, rel=GAP)


@pytest.mark.parametrize("seed", range(2))
def test_equals_the_mean_where_all_cells_are_alike(seed: int) -> None:
    F = circulant(np.random.default_rng(seed).integers(-3, 4, 9)).astype(float)
    mean = swap_optimum(matrix=F).upper_bound / math.sqrt(9)
    assert swap_largest(F).upper_bound == pytest.approx(mean, rel=GAP)
    assert factorization(F, "replace-one", objective="max").upper_bound == pytest.approx(mean, rel=GAP)
    assert swap_largest(np.tri(9)).lower_bound > swap_optimum(matrix=np.tri(9)).upper_bound / 3 * 1.01


# ---- plans -------------------------------------------------------------------------------------------------


def line(n: int) -> Domain:
    return Domain({"cell": Integers(0, n - 1)})


def price(found: Plan) -> int:
    domain = found.workload.domain
    cells = np.eye(domain.size, dtype=np.int64).reshape(domain.size, *domain.shape)
    B = np.array([np.concatenate([marginalise(x, domain.names, b) for b in found.strategy.blocks]) for x in cells])
    return max(int(((a - b) ** 2).sum()) for a, b in itertools.combinations(B, 2))


def _powers(found: Plan, query: QueryBlock) -> np.ndarray:
    shape = [f.shape[0] for f in query.block.factors]
    return np.broadcast_to(found.strategy.row_powers(query.block, 2), shape).reshape(-1)


PAIR = Domain({"a": 3, "b": 4})
SMALL = Domain({"a": 2, "b": 2, "c": 3})
CASES: dict[str, Workload] = {
    "prefix": prefix(line(12), "cell"),
    "ranges": ranges(line(9), "cell"),
    "weighted": stack(a=prefix(line(8), "cell"), b=ranges(line(8), "cell"), weights={"a": 3}),
    "two tables": stack(one=prefix(PAIR, "a"), two=ranges(PAIR, "b"), weights={"two": 2}),
    "marginals": marginals(SMALL, order=2),
}


@pytest.mark.parametrize("objective", ["cells", "max"])
@pytest.mark.parametrize("name", CASES)
def test_plans_for_a_replaced_record_meet_their_bound(name: str, objective: str) -> None:
    """Several tables too: measured over their joint one. Mutants: the price of one column; weights left out."""
    work = CASES[name]
    found = plan(work, UNIT, neighbours="replace-one", mechanism="factorization", objective=objective)
    assert "for a known total" in found.strategy.summary
    assert (found.sensitivity.value, found.sensitivity.exact) == (price(found), True)
    assert found.lower_bound is not None
    assert found.lower_bound <= found.objective_value <= found.lower_bound * (1 + 1.2 * GAP)
    scales = np.concatenate([np.full(q.rows, math.sqrt(float(q.weight))) for q in work.blocks])
    F = np.asarray(work.operator.dense(), dtype=np.float64) * scales[:, None]
    best = swap_largest(F) if objective == "max" else swap_optimum(matrix=F)
    root = 1.0 if objective == "max" else math.sqrt(float((scales**2).sum()))
    assert found.lower_bound == pytest.approx(best.lower_bound / root, rel=2 * GAP)
    errors = np.concatenate([np.sqrt(float(q.weight) * _powers(found, q)) for q in work.blocks])
    errors *= math.sqrt(found.noise.variance)
    attained = errors.max() if objective == "max" else math.sqrt(float((errors**2).sum())) / root
    assert found.objective_value == pytest.approx(attained, rel=1e-9)


def test_small_tables_together_err_no_more_than_table_by_table() -> None:
    """Marginal tables are at the optimum of all mechanisms by their own programme: nothing is gained on them."""
    for name in ("two tables", "marginals"):
        joint = plan(CASES[name], UNIT, neighbours="replace-one", objective="cells")
        apart = plan(CASES[name], UNIT, neighbours="replace-one", mechanism="marginals", objective="cells")
        assert joint.objective_value <= apart.objective_value * (1 + 2e-5)
        if name == "marginals":
            assert apart.objective_value == pytest.approx(joint.objective_value, rel=2e-5)
    assert "for a known total" in joint.strategy.summary
