"""Projection onto the hull and the cone of columns against references, with its certificate."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import lsq_linear

from sfumato.errors import InvalidInput
from sfumato.operators import Dense, Identity, Kronecker, Prefix
from sfumato.postprocess.cones import minimise_quadratic, project_onto_hull, project_onto_simplex, whitening_map


def nonnegative(matrix: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Nonnegative least squares; scipy's nnls turns in circles between 1.12 and 1.14."""
    return lsq_linear(matrix, target, (0, np.inf), method="bvls", tol=1e-15, max_iter=10_000).x


def reference(matrix: np.ndarray, target: np.ndarray, total: float | None) -> np.ndarray:
    """The projection by nonnegative least squares of scipy, the sum as a heavy row; checked by its own gap."""
    if total is None:
        h = nonnegative(matrix, target)
        slope = matrix.T @ (matrix @ h - target)
        assert slope.min() >= -1e-7 * (1 + np.abs(target).max()), "the reference is none"
        return matrix @ h
    heavy = 1e4 * (1 + np.abs(matrix).max())
    h = nonnegative(np.vstack([matrix, np.full(matrix.shape[1], heavy)]), np.append(target, heavy * total))
    h *= total / h.sum()
    return matrix @ h


cases = st.integers(0, 10**9).map(np.random.default_rng)


@settings(max_examples=50, deadline=None)
@given(rng=cases, known=st.booleans(), steps=st.sampled_from([1, 10, 500]))
def test_gap_is_never_below_the_true_distance(rng: np.random.Generator, known: bool, steps: int) -> None:
    k, m = rng.integers(1, 7), rng.integers(1, 9)
    matrix = rng.integers(-2, 3, size=(k, m)).astype(float)
    total = float(rng.integers(1, 30)) if known else None
    answers = matrix @ rng.dirichlet(np.ones(m)) * (total or 10.0) + rng.normal(size=k) * rng.choice([0.1, 5.0])
    found = project_onto_hull(Dense(matrix), answers, total, iterations=steps, tolerance=1e-10)
    away = float(np.sum((found.fitted - reference(matrix, answers, total)) ** 2))
    assert (found.cells >= 0).all()
    assert total is None or found.cells.sum() == pytest.approx(total, rel=1e-12)
    assert np.allclose(found.fitted, matrix @ found.cells)
    # the reference itself is good to its heavy row
    assert away <= found.gap + 1e-5 * (1 + float(answers @ answers))
    if steps == 500:
        assert away <= 1e-6 * (1 + float(answers @ answers))


@settings(max_examples=40, deadline=None)
@given(rng=cases, known=st.booleans())
def test_never_farther_from_a_possible_truth(rng: np.random.Generator, known: bool) -> None:
    k, m = rng.integers(1, 12), rng.integers(2, 30)
    matrix = rng.integers(0, 2, size=(k, m)).astype(float)
    truth = rng.multinomial(40, rng.dirichlet(np.ones(m) * 0.3)).astype(float)
    answers = matrix @ truth + rng.normal(size=k) * 6
    found = project_onto_hull(Dense(matrix), answers, 40.0 if known else None)
    before, after = np.linalg.norm(answers - matrix @ truth), np.linalg.norm(found.fitted - matrix @ truth)
    assert after <= before + np.sqrt(found.gap) + 1e-9
    again = project_onto_hull(Dense(matrix), found.fitted, 40.0 if known else None)
    assert np.allclose(again.fitted, found.fitted, atol=1e-3)


@pytest.mark.parametrize("shape", ["variances", "matrix", "deficient"])
@pytest.mark.parametrize("total", [25.0, None])
def test_covariance_weights_the_norm(shape: str, total: float | None) -> None:
    rng = np.random.default_rng(5)
    matrix, answers = rng.integers(0, 3, size=(5, 7)).astype(float), rng.normal(size=5) * 20
    factor = rng.normal(size=(5, 3 if shape == "deficient" else 5))
    covariance = rng.uniform(0.5, 9, size=5) if shape == "variances" else factor @ factor.T
    found = project_onto_hull(Dense(matrix), answers, total, whitening_map(covariance, 5), tolerance=1e-12)
    whole = np.diag(covariance) if shape == "variances" else covariance
    values, vectors = np.linalg.eigh(whole)
    kept = values > 1e-9 * values.max()
    white = vectors[:, kept].T / np.sqrt(values[kept])[:, None]
    expected = reference(white @ matrix, white @ answers, total)
    assert np.allclose(white @ found.fitted, expected, atol=1e-4)


@pytest.mark.parametrize(
    "covariance",
    [np.ones(3), np.zeros(4), np.array([1, 1, np.nan, 1]), -np.eye(4), np.triu(np.ones((4, 4))), np.eye(3)],
)
def test_what_is_no_covariance_is_refused(covariance: np.ndarray) -> None:
    with pytest.raises(InvalidInput, match="covariance"):
        whitening_map(covariance, 4)


def test_simplex_is_exact_and_weighted() -> None:
    rng = np.random.default_rng(0)
    for total in (0.0, 1.0, 37.0):
        values, spread = rng.normal(size=50) * 5, rng.uniform(0.1, 4, size=50)
        found = project_onto_simplex(values, total, spread)
        white = np.diag(1 / np.sqrt(spread))
        assert found.min() >= 0
        assert found.sum() == pytest.approx(total)
        assert np.allclose(white @ found, reference(white, white @ values, total), atol=1e-4)
    assert np.array_equal(project_onto_simplex(np.array([-0.2, 0.5]), None), [0.0, 0.5])


def test_structured_and_dense_maps_agree() -> None:
    rng = np.random.default_rng(2)
    operator = Kronecker((Prefix(20), Identity(12), Prefix(5)))
    answers = rng.normal(size=operator.shape[0]) * 10
    dense = Dense(np.asarray(operator.dense()))
    for total in (100.0, None):
        one, two = project_onto_hull(operator, answers, total), project_onto_hull(dense, answers, total)
        assert np.linalg.norm(one.fitted - two.fitted) ** 2 <= 4 * (one.gap + two.gap) + 1e-9


def test_cone_without_a_bound_still_certifies() -> None:
    # 0 lies inside the hull of the columns: the cone is the whole plane, and the answers are possible
    found = project_onto_hull(
        Dense(np.array([[1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0]])), np.array([3.0, -4.0]), None
    )
    assert np.allclose(found.fitted, [3.0, -4.0], atol=1e-5)
    assert found.gap < 1e-9


@settings(max_examples=60, deadline=None)
@given(rng=cases, known=st.booleans())
def test_active_set_finds_the_least(rng: np.random.Generator, known: bool) -> None:
    rows, s = rng.integers(1, 10), rng.integers(1, 15)
    matrix, target = rng.normal(size=(rows, s)), rng.normal(size=rows) * 3
    start = np.zeros(s)
    if known:
        start[int(rng.integers(s))] = 2.0
    h = minimise_quadratic(matrix.T @ matrix, matrix.T @ target, 2.0 if known else None, start)
    slope = matrix.T @ (matrix @ h - target)
    level = float(slope @ h) / 2.0 if known else 0.0
    assert h.min() >= 0
    assert not known or h.sum() == pytest.approx(2.0)
    assert (slope >= level - 1e-6).all()
    assert abs(float((slope - level) @ h)) < 1e-6
