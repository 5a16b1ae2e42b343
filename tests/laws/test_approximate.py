"""Laws of the approximate factorization: certificates by other means, brute force, published constants, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.linalg import hadamard
from scipy.optimize import minimize

import sfumato as sf
from sfumato.errors import PlanError, WorkloadError
from sfumato.strategies.approximate import ApproximateOptimum, approximate_optimum
from sfumato.strategies.dense_optimal import optimize_dense

NORMS = pytest.mark.parametrize("norm", ["entry", "column"])


def matrices(limit: int = 5) -> st.SearchStrategy[np.ndarray]:
    entries = st.integers(-2, 2).map(float)
    shapes = st.tuples(st.integers(1, limit), st.integers(1, limit))
    return shapes.flatmap(lambda shape: hnp.arrays(np.float64, shape, elements=entries)).filter(np.any)


def prefix(n: int) -> np.ndarray:
    return np.tril(np.ones((n, n)))


def bias(F: np.ndarray, found: ApproximateOptimum, norm: str) -> float:
    off = found.reconstruction @ found.strategy - F
    if norm == "entry":
        return float(np.abs(off).max())
    return float(np.linalg.norm(off, axis=0).max()) / math.sqrt(len(F))


def assert_attained(F: np.ndarray, alpha: float, norm: str, found: ApproximateOptimum) -> None:
    assert bias(F, found, norm) <= alpha * (1 + 1e-7)
    assert np.linalg.norm(found.strategy, axis=0).max() <= 1.0
    size = np.linalg.norm(found.strategy, axis=0).max()
    assert found.upper_bound == pytest.approx(np.linalg.norm(found.reconstruction) * size, rel=1e-9)
    assert 0.0 < found.lower_bound <= found.upper_bound


@NORMS
@settings(max_examples=15, deadline=None)
@given(F=matrices(), alpha=st.sampled_from([0.05, 0.2]))
def test_certificates(norm: str, F: np.ndarray, alpha: float) -> None:
    found = approximate_optimum(F, alpha, norm)
    assert_attained(F, alpha, norm, found)
    exact = optimize_dense(matrix=F)
    assert found.lower_bound <= exact.upper_bound * (1 + 1e-9)
    # the strategy of the approximate optimum answers Z exactly, so Z's own optimum is no larger
    Z = found.reconstruction @ found.strategy
    assert optimize_dense(matrix=Z).lower_bound <= found.upper_bound * (1 + 1e-9)


@NORMS
def test_brute_force_over_answers_is_no_better(norm: str) -> None:
    """The factorization norm of Z itself, over Z near F from several starts."""
    rng = np.random.default_rng(0)
    F, alpha = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]]), 0.2

    def near(x: np.ndarray) -> np.ndarray:
        off = np.tanh(x.reshape(F.shape))
        if norm == "column":
            off = off * math.sqrt(len(F)) / np.maximum(1.0, np.linalg.norm(off, axis=0))
            off = off / np.maximum(1.0, np.linalg.norm(off, axis=0) / math.sqrt(len(F)))
        return F + alpha * off

    best = min(
        minimize(
            lambda x: optimize_dense(matrix=near(x)).upper_bound,
            rng.standard_normal(F.size),
            method="Nelder-Mead",
            options={"maxiter": 600},
        ).fun
        for _ in range(2)
    )
    found = approximate_optimum(F, alpha, norm, tolerance=1e-3)
    assert found.gap <= 1e-3
    assert found.lower_bound <= best * (1 + 1e-9)
    assert found.upper_bound <= best * (1 + 2e-3)


@pytest.mark.parametrize(
    ("F", "alpha", "norm", "value"),
    [
        (prefix(64), 0.1, "column", 1.374),
        (prefix(32), 0.1, "column", 1.359),
        (prefix(32), 0.2, "column", 0.986),
        (prefix(32), 0.1, "entry", 1.600),
        (prefix(256), 0.1, "entry", 2.107),
        (prefix(256), 0.2, "entry", 1.696),
        (prefix(256), 0.3, "entry", 1.284),
        (hadamard(16), 0.1, "column", 3.6),
        (hadamard(16), 0.1, "entry", 3.6),
        (np.asarray(sf.disjunctions(4).operator.dense()), 0.05, "column", 1.621),
        (np.asarray(sf.disjunctions(4).operator.dense()), 0.3, "column", 0.824),
        (np.asarray(sf.disjunctions(4).operator.dense()), 0.1, "entry", 1.524),
        (np.asarray(sf.conjunctions(4).operator.dense()), 0.1, "entry", 1.409),
        (np.asarray(sf.disjunctions(6).operator.dense())[1:], 0.3, "entry", 1.2554),
    ],
)
def test_published_constants(F: np.ndarray, alpha: float, norm: str, value: float) -> None:
    found = approximate_optimum(F, alpha, norm)
    root = math.sqrt(len(F))
    assert_attained(F, alpha, norm, found)
    assert found.gap <= 0.01
    assert found.upper_bound / root <= value * 1.01
    assert found.lower_bound / root <= value * 1.001


def test_the_factorization_of_researchers() -> None:
    F = prefix(16)
    found = sf.factorization(F, approximate=0.1, approximate_norm="entry")
    assert found.bias_bound == pytest.approx(np.abs(found.reconstruction @ found.strategy - F).max())
    assert found.bias_bound <= 0.1 + 1e-9
    assert found.upper_bound == pytest.approx(math.sqrt(found.row_variances.mean()), rel=1e-9)
    assert found.upper_bound == pytest.approx(1.440, rel=0.01)
    assert found.gap <= 0.01
    assert sf.factorization(F, approximate=0.1).upper_bound == pytest.approx(1.312, rel=0.01)
    with pytest.raises(PlanError, match="approximate"):
        sf.factorization(F, approximate=0.1, objective="max")


@pytest.mark.parametrize(
    ("F", "alpha", "norm", "message"),
    [
        (prefix(3), 0.0, "entry", "positive"),
        (prefix(3), math.nan, "entry", "positive"),
        (prefix(3), 0.1, "row", "'column' or by 'entry'"),
        (prefix(3), 1.0, "entry", "without looking"),
        (np.zeros((2, 2)), 0.1, "column", "without looking"),
        (np.zeros(2), 0.1, "column", "shape"),
    ],
)
def test_refusals(F: np.ndarray, alpha: float, norm: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        approximate_optimum(F, alpha, norm)


# -- where records are replaced, and at alpha = 0 --------------------------------------------------------


@NORMS
@pytest.mark.parametrize("m", [3, 6, 9])
def test_replaced_cells_in_closed_form(norm: str, m: int) -> None:
    """Counts of m cells: by symmetry Z is (1 - s) I + s J / m, of which only the differences (1 - s) are priced.

    gamma is sqrt(2 (m - 1) / m) without a bias. Entries move by s (1 - 1/m) and s / m, to which an offset adds: at most
    alpha where s = 2 alpha; columns move by s sqrt(1 - 1/m) = alpha sqrt(m). Mutants: cells priced for pairs; the
    offset left out of R M; a bias of half the size.
    """
    exact, alpha = math.sqrt(2 * (m - 1) / m), 0.1
    share = 2 * alpha if norm == "entry" else alpha * m / math.sqrt(m - 1)
    found = sf.factorization(np.eye(m), "replace-one", approximate=alpha, approximate_norm=norm)
    assert found.lower_bound <= exact * (1 - share) * (1 + 1e-9)
    assert found.upper_bound >= exact * (1 - share) * (1 - 1e-9)
    assert found.gap <= 0.01


@NORMS
@settings(max_examples=10, deadline=None)
@given(F=matrices(), alpha=st.sampled_from([0.05, 0.2]))
def test_certificates_where_records_are_replaced(norm: str, F: np.ndarray, alpha: float) -> None:
    """What is returned has the stated error, keeps to the bias, and errs no more than the exact one."""
    try:
        found = sf.factorization(F, "replace-one", approximate=alpha, approximate_norm=norm)
    except WorkloadError:
        # everything is near what is the same in all cells: half of the farthest columns' distance, or of a row's range
        far = np.linalg.norm(F[:, :, None] - F[:, None, :], axis=0).max() / 2
        assert (np.ptp(F, axis=1).max() / 2 if norm == "entry" else far) <= alpha * math.sqrt(len(F)) * (1 + 1e-9)
        return
    M, R = found.strategy, found.reconstruction
    apart = max(np.linalg.norm(a - b) for a in M.T for b in M.T)
    off = R @ M - F - found.offset[:, None]
    assert found.upper_bound == pytest.approx(np.linalg.norm(R) * apart / math.sqrt(len(F)), rel=1e-6)
    size = np.abs(off).max() if norm == "entry" else np.linalg.norm(off, axis=0).max() / math.sqrt(len(F))
    assert size <= alpha * (1 + 1e-6)
    assert found.bias_bound == pytest.approx(np.abs(off).max())
    assert found.lower_bound <= sf.factorization(F, "replace-one").upper_bound * (1 + 1e-6)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_no_bias_is_the_exact_factorization(relation: str) -> None:
    """Definition 2.5 of [SmithUllman] at alpha = 0 is definition 2.2, and the least bias is nearly it."""
    exact = sf.factorization(prefix(8), relation)
    for norm in (None, "entry", "column"):
        found = sf.factorization(prefix(8), relation, approximate=0, approximate_norm=norm)
        assert found.upper_bound == exact.upper_bound
    near = sf.factorization(prefix(8), relation, approximate=1e-6)
    assert near.lower_bound <= exact.upper_bound <= near.upper_bound * 1.0001
    with pytest.raises(PlanError, match="'column' or 'entry'"):
        sf.factorization(prefix(8), relation, approximate=0, approximate_norm="largest")


def test_biases_that_leave_nothing_to_measure_are_refused() -> None:
    """Under replace-one a constant is free: half of the range of each row, or the ball that holds all columns."""
    for F, norm, alpha in ((np.eye(6), "entry", 0.5), (np.eye(6), "column", math.sqrt(5) / 6 * 1.001)):
        with pytest.raises(WorkloadError, match="without looking"):
            sf.factorization(F, "replace-one", approximate=alpha, approximate_norm=norm)
        assert sf.factorization(F, "replace-one", approximate=0.99 * alpha, approximate_norm=norm).lower_bound > 0
