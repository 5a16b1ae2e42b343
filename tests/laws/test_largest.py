"""Laws of the strategy of least largest error: duality, invariances, closed forms, brute force, refusals, plans."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.linalg import circulant, hadamard
from scipy.optimize import minimize

from sfumato.domain import Domain, Integers
from sfumato.errors import WorkloadError
from sfumato.planner.factorize import factorization
from sfumato.planner.planning import plan
from sfumato.privacy.budget import Budget
from sfumato.strategies.dense_largest import LargestErrorOptimum, optimize_largest, swap_largest
from sfumato.strategies.dense_optimal import optimize_dense
from sfumato.strategies.dense_swap import swap_optimum
from sfumato.workloads import Workload, prefix, queries, ranges, stack

UNIT = Budget.gdp(1)
GAP = 1e-4


def workloads(limit: int = 6) -> st.SearchStrategy[np.ndarray]:
    """Small integer matrices: zero, repeated, opposite and dependent rows and columns are all common."""
    entries = st.integers(-2, 2).map(float)
    shapes = st.tuples(st.integers(1, limit), st.integers(1, limit))
    return shapes.flatmap(lambda shape: hnp.arrays(np.float64, shape, elements=entries)).filter(np.any)


def assert_certified(F: np.ndarray, found: LargestErrorOptimum, tolerance: float = GAP) -> None:
    """Both bounds by other means: ||diag(l)^(1/2) F diag(v)^(1/2)||_*, and the largest row of F A^+."""
    A = found.strategy
    R = F @ np.linalg.pinv(A)
    nuclear = np.linalg.svd(np.sqrt(found.rows)[:, None] * F * np.sqrt(found.cells), compute_uv=False).sum()
    assert found.lower_bound <= nuclear * (1 + 1e-13)
    assert found.lower_bound == pytest.approx(nuclear, rel=1e-9)
    assert found.upper_bound == pytest.approx(np.linalg.norm(R, axis=1).max(), rel=1e-5)
    assert found.upper_bound >= np.linalg.norm(R, axis=1).max() * (1 - 1e-9)
    assert 0.0 <= found.gap <= tolerance
    assert np.linalg.norm(A, axis=0).max() == pytest.approx(1, abs=1e-12)
    assert np.linalg.norm(A, axis=0).max() <= 1.0
    assert np.abs(R @ A - F).max() <= 1e-8 * np.abs(F).max()
    for weights in (found.rows, found.cells):
        assert weights.min() >= 0.0
        assert weights.sum() == pytest.approx(1, abs=1e-12)


def gamma(F: np.ndarray) -> float:
    found = optimize_largest(F)
    assert found.gap <= GAP
    return found.upper_bound


def all_ranges(n: int) -> np.ndarray:
    return np.array([[float(i <= c <= j) for c in range(n)] for i in range(n) for j in range(i, n)])


@settings(max_examples=60, deadline=None)
@given(workloads())
def test_bounds_are_proved_and_attained(F: np.ndarray) -> None:
    assert_certified(F, optimize_largest(F))


@settings(max_examples=30, deadline=None)
@given(workloads(4), st.randoms(use_true_random=False))
def test_invariances(F: np.ndarray, random: object) -> None:
    value = gamma(F)
    close = pytest.approx(value, rel=2 * GAP)
    assert gamma(F.T) == close
    assert gamma(-3.0 * F) == pytest.approx(3 * value, rel=2 * GAP)
    assert gamma(np.vstack([F, -F[:1], np.zeros((1, F.shape[1]))])) == close
    assert gamma(np.hstack([np.zeros((len(F), 2)), F, F[:, :1]])) == close
    assert gamma(F[::-1, ::-1]) == close
    other = np.array([[1.0, 0.0], [2.0, 1.0]])
    assert gamma(np.kron(F, other)) == pytest.approx(value * gamma(other), rel=3 * GAP)
    joined = np.block([[F, np.zeros((len(F), 2))], [np.zeros((2, F.shape[1])), other]])
    assert gamma(joined) == pytest.approx(max(value, gamma(other)), rel=2 * GAP)


@settings(max_examples=30, deadline=None)
@given(workloads())
def test_never_below_the_mean_nor_above_its_strategy(F: np.ndarray) -> None:
    mean = optimize_dense(matrix=F)
    worst = np.linalg.norm(F @ np.linalg.pinv(mean.strategy), axis=1).max()
    found = optimize_largest(F)
    assert found.upper_bound >= mean.lower_bound / math.sqrt(len(F)) * (1 - 1e-9)
    assert found.lower_bound <= worst * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_brute_force_over_strategies_finds_the_same(seed: int) -> None:
    """The epigraph of the largest row of F M^-1 with columns of M at most 1, from several starts."""
    rng = np.random.default_rng(seed)
    F = rng.integers(-2, 3, (4, 3)) + np.eye(4, 3) * 3.0

    def rows(x: np.ndarray) -> np.ndarray:
        return ((F @ np.linalg.inv(x[1:].reshape(3, 3))) ** 2).sum(axis=1)

    best = math.inf
    for _ in range(6):
        start = np.linalg.qr(rng.standard_normal((3, 3)))[0].reshape(-1)
        start = np.concatenate([[rows(np.concatenate([[0.0], start])).max()], start])
        done = minimize(
            lambda x: x[0],
            start,
            jac=lambda x: np.eye(1, 10)[0],
            method="SLSQP",
            options={"maxiter": 500, "ftol": 1e-12},
            constraints=[
                {"type": "ineq", "fun": lambda x: x[0] - rows(x)},
                {"type": "ineq", "fun": lambda x: 1 - (x[1:].reshape(3, 3) ** 2).sum(axis=0)},
            ],
        )
        size = math.sqrt((done.x[1:].reshape(3, 3) ** 2).sum(axis=0).max())
        best = min(best, math.sqrt(rows(done.x).max()) * size)
    found = optimize_largest(F)
    assert found.lower_bound <= best * (1 + 1e-9)
    assert found.upper_bound == pytest.approx(best, rel=GAP)


@pytest.mark.parametrize(
    ("F", "value"),
    [
        (np.eye(5), 1.0),
        (np.diag([1.0, 7.0, 3.0]), 7.0),
        (np.ones((4, 6)), 1.0),
        (np.array([[1.0, 0.0], [1.0, 1.0]]), 2 / math.sqrt(3)),
        (hadamard(16).astype(float), 4.0),
        (np.array([[3.0, -5.0, 1.0]]), 5.0),
        (np.tril(np.ones((16, 16))), math.sqrt(2.9052529)),
        (np.tril(np.ones((64, 64))), math.sqrt(4.4578692)),
        (np.tril(np.ones((256, 256))), math.sqrt(6.4146510)),
    ],
    ids=["identity", "diagonal", "ones", "prefix 2", "hadamard", "one row", "prefix 16", "prefix 64", "prefix 256"],
)
def test_known_values(F: np.ndarray, value: float) -> None:
    found = optimize_largest(F)
    assert_certified(F, found, 1e-5)
    assert found.lower_bound <= value * (1 + 1e-7)
    assert found.upper_bound >= value * (1 - 1e-7)


def test_many_more_queries_than_cells_and_the_other_way_round() -> None:
    F = all_ranges(24)
    assert_certified(F, optimize_largest(F))
    assert gamma(F.T) == pytest.approx(gamma(F), rel=2 * GAP)


@pytest.mark.parametrize("seed", range(3))
def test_equals_the_mean_where_all_cells_are_alike(seed: int) -> None:
    F = circulant(np.random.default_rng(seed).integers(-3, 4, 12)).astype(float)
    mean = optimize_dense(matrix=F)
    assert gamma(F) == pytest.approx(mean.upper_bound / math.sqrt(12), rel=GAP)


def test_weights_multiply_variances() -> None:
    F, weights = np.tril(np.ones((9, 9))), np.linspace(0.5, 4.0, 9)
    found = optimize_largest(F, weights=weights)
    assert_certified(np.sqrt(weights)[:, None] * F, found)
    plain = gamma(F)
    assert found.upper_bound != pytest.approx(plain, rel=0.1)
    assert optimize_largest(F, weights=np.full(9, 4.0)).upper_bound == pytest.approx(2 * plain, rel=2 * GAP)


def test_progress_and_limits_are_honest() -> None:
    F, seen = np.tril(np.ones((40, 40))), list[tuple[int, float]]()
    found = optimize_largest(F, progress=lambda i, gap: seen.append((i, gap)))
    assert [i for i, _ in seen] == list(range(1, found.iterations + 1))
    assert all(later[1] <= earlier[1] for earlier, later in pairwise(seen))
    short = optimize_largest(F, max_iterations=2)
    assert short.iterations == 2
    assert short.gap > GAP
    assert_certified(F, short, 0.2)


@pytest.mark.parametrize("scale", [1e-140, 1e140])
def test_scales(scale: float) -> None:
    F = np.tril(np.ones((8, 8)))
    assert gamma(scale * F) == pytest.approx(scale * gamma(F), rel=GAP)


def test_nothing_asked_costs_nothing() -> None:
    found = optimize_largest(np.zeros((2, 3)))
    assert (found.lower_bound, found.upper_bound, found.gap) == (0.0, 0.0, 0.0)
    assert found.strategy.shape == (0, 3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"matrix": np.zeros(3)}, "shape"),
        ({"matrix": np.zeros((0, 3))}, "shape"),
        ({"matrix": [[math.nan]]}, "finite|NaN"),
        ({"matrix": np.eye(2), "weights": [1.0]}, "2 positive"),
        ({"matrix": np.eye(2), "weights": [1.0, 0.0]}, "2 positive"),
        ({"matrix": np.eye(2), "tolerance": -1.0}, "tolerance"),
        ({"matrix": np.eye(2), "max_iterations": 0}, "max_iterations"),
    ],
)
def test_refusals(given: dict[str, object], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        optimize_largest(**given)  # type: ignore[arg-type]


@settings(max_examples=20, deadline=None)
@given(workloads(5))
def test_replace_one_bounds_are_proved_and_attained(F: np.ndarray) -> None:
    found = swap_largest(F, max_iterations=6)
    mean = swap_optimum(matrix=F)
    centred = F - F.mean(axis=1, keepdims=True)
    M = found.strategy
    if found.upper_bound > 0.0:
        gram = M.T @ M
        norms = np.diagonal(gram)
        diameter = math.sqrt(max((norms[:, None] + norms - 2 * gram).max(), 0.0))
        R = centred @ np.linalg.pinv(M)
        assert np.abs(R @ M - centred).max() <= 1e-7
        assert found.upper_bound == pytest.approx(np.linalg.norm(R, axis=1).max() * diameter, rel=1e-7)
    # the mean is least for its own optimum, and the largest error of that strategy is no less than the least one
    assert found.upper_bound >= mean.lower_bound / math.sqrt(len(F)) * (1 - 1e-9)
    if mean.upper_bound > 0.0:
        worst = np.linalg.norm(centred @ np.linalg.pinv(mean.strategy), axis=1).max()
        assert found.lower_bound <= worst * (1 + 1e-7)


@pytest.mark.parametrize(
    ("F", "value"),
    [(np.eye(8), 1.3229), (np.tril(np.ones((8, 8))), 1.5859), (np.tril(np.ones((32, 32))), 2.1812)],
    ids=["identity 8", "prefix 8", "prefix 32"],
)
def test_replace_one_values(F: np.ndarray, value: float) -> None:
    found = swap_largest(F)
    assert found.gap <= GAP
    assert found.upper_bound == pytest.approx(value, rel=2 * GAP)


def line(n: int) -> Domain:
    return Domain({"cell": Integers(0, n - 1)})


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_the_factorization_of_researchers(neighbours: str) -> None:
    F = np.tril(np.ones((32, 32)))
    found = factorization(F, neighbours=neighbours, objective="max")
    mean = factorization(F, neighbours=neighbours)
    assert np.abs(found.reconstruction @ found.strategy - F - found.offset[:, None]).max() <= 1e-10
    gram = found.strategy.T @ found.strategy
    norms = np.diagonal(gram)
    size = norms.max() if neighbours == "add-remove" else (norms[:, None] + norms - 2 * gram).max()
    attained = (found.reconstruction**2).sum(axis=1) * size
    assert found.row_variances == pytest.approx(attained, rel=1e-9)
    assert found.upper_bound == pytest.approx(math.sqrt(attained.max()), rel=1e-9)
    assert found.upper_bound < math.sqrt(mean.row_variances.max())
    assert math.sqrt(found.row_variances.mean()) >= mean.lower_bound
    assert found.lower_bound >= mean.lower_bound * (1 - 1e-9)
    assert found.gap <= (1e-5 if neighbours == "add-remove" else GAP)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize(
    "work",
    [
        prefix(line(48), "cell"),
        ranges(line(12), "cell"),
        stack(a=prefix(line(16), "cell"), b=ranges(line(16), "cell"), weights={"a": 3}),
        prefix(Domain({"a": 6, "b": 5}), "a") * prefix(Domain({"a": 6, "b": 5}), "b"),
    ],
    ids=["prefix", "ranges", "weighted", "product"],
)
def test_plans_for_the_largest_error_meet_their_bound(work: Workload, neighbours: str) -> None:
    found = plan(work, UNIT, neighbours=neighbours, mechanism="factorization", objective="max")
    mean = plan(work, UNIT, neighbours=neighbours, mechanism="factorization")
    bound = found.lower_bound
    assert bound is not None
    assert found.objective_value >= bound
    assert found.rmse >= mean.rmse * (1 - 1e-9)
    if neighbours == "add-remove":
        # (the coefficients of a product are rounded to fewer bits)
        assert found.objective_value <= bound * (1 + 2e-4)
        dense = np.asarray(work.operator.dense()) * np.sqrt(
            np.concatenate([np.full(i.rows, float(i.weight)) for i in work.items])
        ).reshape(-1, 1)
        assert bound == pytest.approx(gamma(dense), rel=2 * GAP)


def test_separate_tables_share_the_budget_so_that_their_largest_errors_agree() -> None:
    domain = Domain({"a": 16, "b": 10})
    work = stack(a=prefix(domain, "a"), b=ranges(domain, "b"), weights={"b": 2})
    found = plan(work, UNIT, neighbours="add-remove", mechanism="factorization", objective="max")
    first, second = (float(e.item.weight) * e.powers.max() * found.noise.variance for e in found.entries)
    assert first == pytest.approx(second, rel=1e-4)  # both are at the optimum as far as that is proved
    assert found.lower_bound is not None
    assert found.lower_bound <= found.objective_value <= found.lower_bound * (1 + 1e-4)


def test_products_of_many_small_factors_are_planned_as_one() -> None:
    domain = Domain({f"x{i}": 2 for i in range(6)})
    work = queries(np.array([[1, 1], [0, 1]]), domain, "x0")
    for name in domain.names[1:]:
        work = work * queries(np.array([[1, 1], [0, 1]]), domain, name)
    for objective, value in (("max", (2 / math.sqrt(3)) ** 6), ("cells", gamma_mean() ** 6)):
        found = plan(work, UNIT, neighbours="add-remove", mechanism="factorization", objective=objective)
        assert found.objective_value == pytest.approx(value, rel=GAP)


def gamma_mean() -> float:
    return optimize_dense(matrix=np.array([[1.0, 1.0], [0.0, 1.0]])).upper_bound / math.sqrt(2)
