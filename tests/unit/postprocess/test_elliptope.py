"""The nearest correlation matrix: its certificate against instances whose projection is known."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from sfumato.errors import InvalidInput
from sfumato.postprocess.correlation import (
    CorrelationProblem,
    feasible_correlation,
    nearest_correlation,
    nearest_tetrahedra,
    pair_coordinates,
    pair_tables,
    product_scale,
    scatter_pairs,
    tetrahedron_support,
)

Floats = NDArray[np.float64]

CORNERS = np.array([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])
WEIGHTS = ("equal", "orders", "product", "any", "missing")
CASES = list(itertools.product(WEIGHTS, (False, True), (0.3, 1e-3)))


def weights(kind: str, size: int, rng: np.random.Generator) -> Floats:
    """Weights that are nowhere 0 but for the "missing", of which some entries of the last rows are."""
    scale = np.ones(size)
    if kind == "orders":
        scale[0] = size
    elif kind == "product":
        scale = rng.uniform(0.3, 3, size)
    weight = np.multiply.outer(scale, scale)
    if kind in ("any", "missing"):
        noise = rng.uniform(0.2, 4, (size, size))
        weight = noise + noise.T
    if kind == "missing":
        gone = np.triu(rng.random((size, size)) < 0.5, 1)
        gone[:, : inner(kind, size)] = False
        weight[gone | gone.T] = 0
    np.fill_diagonal(weight, 0)
    return np.asarray(weight, dtype=np.float64)


def inner(kind: str, size: int) -> int:
    """How many of the first entries of y all have weights among each other."""
    return max(2, size - 2) if kind == "missing" else size


def distance(weight: Floats, first: Floats, second: Floats) -> float:
    return math.sqrt(0.5 * float(np.sum(weight * (first - second) ** 2)))


def records(size: int, count: int, rng: np.random.Generator) -> Floats:
    """The parities of a few weighted records."""
    y = np.where(rng.random((count, size)) < 0.5, -1.0, 1.0)
    y[:, 0] = 1
    shares = rng.dirichlet(np.ones(count))
    return np.asarray((y.T * shares) @ y, dtype=np.float64)


def known(kind: str, local: bool, size: int, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    """(matrix, weights, its projection): a few records' parities, moved along a normal of the body.

    Normals of the elliptope are the negated positive semidefinite matrices that the projection sends to 0, and any
    diagonal; those of a pair's tetrahedron point out of the cells that are empty.
    """
    weight, projection, most = weights(kind, size, rng), records(size, 3, rng), inner(kind, size)
    values, vectors = np.linalg.eigh(projection[:most, :most])
    half = vectors[:, values < 1e-9] @ rng.standard_normal((int(np.sum(values < 1e-9)), 3))
    normal = np.zeros((size, size))
    normal[:most, :most] = -half @ half.T
    if local:
        empty = pair_tables(pair_coordinates(projection)) < 1e-12
        empty[np.triu_indices(size - 1, 1)[1] >= most - 1] = False
        pull = np.where(empty, rng.exponential(0.5, empty.shape), 0.0)
        normal = normal - scatter_pairs(size, pull @ CORNERS)
    matrix = projection + np.divide(normal, weight, where=weight > 0, out=np.zeros_like(normal))
    np.fill_diagonal(matrix, 1)
    return matrix, weight, projection


@pytest.mark.parametrize(("kind", "local", "tolerance"), CASES)
def test_the_gap_covers_the_distance_to_a_known_projection(kind: str, local: bool, tolerance: float) -> None:
    rng = np.random.default_rng(WEIGHTS.index(kind) + 10 * local)
    for size in (2, 3, 5, 9):
        matrix, weight, projection = known(kind, local, size, rng)
        found = nearest_correlation(matrix, weight, local=local, tolerance=tolerance)
        assert found.certified
        assert distance(weight, found.matrix, projection) ** 2 <= found.gap + 1e-14
        assert found.moved == pytest.approx(distance(weight, found.matrix, matrix), rel=1e-9, abs=1e-12)
        assert math.sqrt(found.gap) <= max(tolerance * found.moved, 1e-7 * math.sqrt(weight.sum())) * (1 + 1e-9)
        assert np.array_equal(np.diag(found.matrix), np.ones(size))
        assert np.array_equal(found.matrix, found.matrix.T)
        assert np.linalg.eigvalsh(found.matrix)[0] > -1e-13 * size
        if local and size > 2:
            assert pair_tables(pair_coordinates(found.matrix)).min() > -1e-14


def test_the_proof_holds_at_any_possible_matrix_with_any_normals() -> None:
    rng = np.random.default_rng(5)
    tight = 0.0
    for trial in range(60):
        kind, local = WEIGHTS[trial % 5], bool(trial % 2)
        matrix, weight, projection = known(kind, local, 6, rng)
        problem = CorrelationProblem(matrix, weight, product_scale(weight)[0], 1e-3, None)
        half = rng.standard_normal((6, 6)) * rng.uniform(0, 1)
        share = 10.0 ** rng.uniform(-4, 0)
        at = feasible_correlation((1 - share) * projection + share * half @ half.T, local)
        normals = rng.standard_normal((10, 3)) * rng.choice([0.0, 0.01, 1.0]) if local else None
        gap, true = problem.proof(at, 0, normals).gap, distance(weight, at, projection) ** 2
        assert true <= gap + 1e-14
        tight = max(tight, true / gap)
    assert tight > 0.01


def test_the_gap_is_no_less_than_what_any_record_has_beyond_the_matrix() -> None:
    rng = np.random.default_rng(13)
    for size in (3, 5):
        cells = np.array([(1, *rest) for rest in itertools.product((1, -1), repeat=size - 1)], dtype=float)
        for _ in range(20):
            noise = rng.standard_normal((size, size))
            problem = CorrelationProblem(
                noise + noise.T, np.ones((size, size)) - np.eye(size), np.ones(size), 1e-3, None
            )
            at = feasible_correlation(noise @ noise.T / size, local=True)
            slope = problem.given - at
            beyond = 0.5 * np.einsum("vi,ij,vj->v", cells, slope, cells).max() - 0.5 * np.sum(slope * at)
            normals = pair_coordinates(slope) / np.array([size - 2, size - 2, 1])
            assert problem.proof(at, 0).gap >= beyond - 1e-12
            assert problem.proof(at, 0, rng.uniform(0, 2) * normals).gap >= beyond - 1e-12
            if size == 3:
                # one pair, whose tetrahedron is the body: nothing is left for the elliptope
                assert problem.proof(at, 0, normals).gap == pytest.approx(beyond, rel=1e-9)


def test_newton_takes_few_steps() -> None:
    rng = np.random.default_rng(14)
    noise = rng.standard_normal((60, 60))
    for weight in (None, weights("orders", 60, rng), weights("product", 60, rng)):
        found = nearest_correlation(records(60, 200, rng) + noise + noise.T, weight, tolerance=1e-5)
        assert found.certified
        assert found.iterations <= 12


def higham(matrix: Floats, rounds: int) -> Floats:
    """Dykstra's alternating projections onto the positive semidefinite matrices and those of unit diagonal."""
    shift, current = np.zeros_like(matrix), matrix.copy()
    for _ in range(rounds):
        values, vectors = np.linalg.eigh(current - shift)
        psd = (vectors * np.maximum(values, 0)) @ vectors.T
        shift = psd - (current - shift)
        current = psd.copy()
        np.fill_diagonal(current, 1)
    return current


def test_equal_weights_agree_with_alternating_projections() -> None:
    rng = np.random.default_rng(1)
    for size in (3, 7):
        noise = rng.standard_normal((size, size))
        matrix = records(size, 6, rng) + 0.5 * (noise + noise.T)
        np.fill_diagonal(matrix, 1)
        found = nearest_correlation(matrix, tolerance=1e-6)
        np.testing.assert_allclose(found.matrix, higham(matrix, 3000), atol=1e-6)


@pytest.mark.parametrize("local", [False, True])
def test_tables_are_possible_and_the_projection_brings_their_noisy_answers_nearer(local: bool) -> None:
    rng = np.random.default_rng(2)
    better = 0
    for trial in range(12):
        size = 4 + trial % 4
        weight = weights(WEIGHTS[trial % 5], size, rng)
        truth = records(size, 5, rng)
        kept = nearest_correlation(truth, weight, local=local)
        assert (kept.gap, kept.moved, kept.iterations) == (0, 0, 0)
        noise = np.triu(rng.standard_normal((size, size)), 1)
        noisy = truth + noise + noise.T
        found = nearest_correlation(noisy, weight, local=local)
        raw = distance(weight, noisy, truth)
        assert distance(weight, found.matrix, truth) <= raw + math.sqrt(found.gap)
        better += distance(weight, found.matrix, truth) < 0.9 * raw
        again = nearest_correlation(found.matrix, weight, local=local)
        assert distance(weight, again.matrix, found.matrix) < 1e-9
    assert better >= 6


def test_local_keeps_pair_tables_that_the_elliptope_alone_breaks() -> None:
    matrix = np.array([[1, -0.8, -0.8], [-0.8, 1, -0.5], [-0.8, -0.5, 1]])
    alone, both = nearest_correlation(matrix), nearest_correlation(matrix, local=True, tolerance=1e-6)
    assert pair_tables(pair_coordinates(alone.matrix)).min() < -0.01
    assert pair_tables(pair_coordinates(both.matrix)).min() > -1e-14
    assert both.moved > alone.moved


def test_the_nearest_tetrahedron_point_makes_an_obtuse_angle_with_every_vertex() -> None:
    rng = np.random.default_rng(3)
    points = rng.standard_normal((500, 3)) * 2
    nearest = nearest_tetrahedra(points)
    angles = np.einsum("pi,pvi->pv", points - nearest, CORNERS[None] - nearest[:, None])
    assert angles.max() < 1e-12
    assert pair_tables(nearest).min() > -1e-15
    normals = rng.standard_normal((50, 3))
    np.testing.assert_allclose(tetrahedron_support(normals), (normals @ CORNERS.T).max(axis=1), rtol=1e-12)
    matrix = records(6, 4, rng)
    values = rng.standard_normal((10, 3))
    assert np.sum(pair_coordinates(matrix) * values) == pytest.approx(0.5 * np.sum(scatter_pairs(6, values) * matrix))


def test_units_of_weights_and_entries_of_no_weight_do_not_matter() -> None:
    rng = np.random.default_rng(4)
    matrix, weight, projection = known("product", False, 6, rng)
    first, second = nearest_correlation(matrix, weight), nearest_correlation(matrix, weight * 1e9)
    np.testing.assert_allclose(second.matrix, first.matrix, atol=1e-9)
    assert second.gap == pytest.approx(first.gap * 1e9, rel=0.1, abs=1e-6)
    weight[0, 1] = weight[1, 0] = 0
    for anything in (math.nan, 1e80):
        matrix[0, 1] = matrix[1, 0] = anything
        assert nearest_correlation(matrix, weight).certified
    assert projection.shape == (6, 6)


def test_progress_is_told_the_gap() -> None:
    seen: list[tuple[int, float]] = []
    matrix, _, _ = known("equal", False, 7, np.random.default_rng(6))
    found = nearest_correlation(matrix, progress=lambda i, gap: seen.append((i, gap)))
    assert seen[-1] == (found.iterations, found.gap)


SQUARE = np.eye(3)


@pytest.mark.parametrize(
    ("matrix", "weight", "tolerance", "words"),
    [
        (np.ones((2, 3)), None, 1e-3, "square"),
        ([[1.0]], None, 1e-3, "2 to 3,000"),
        ([["a"]], None, 1e-3, "real numbers"),
        (np.triu(np.ones((3, 3))), None, 1e-3, "symmetric"),
        (np.full((3, 3), math.nan), None, 1e-3, "not finite"),
        (np.full((3, 3), 1e200), None, 1e-3, "1e100"),
        (SQUARE, np.eye(2), 1e-3, "shape"),
        (SQUARE, -np.ones((3, 3)), 1e-3, "not negative"),
        (SQUARE, np.full((3, 3), math.inf), 1e-3, "finite"),
        (SQUARE, np.eye(3), 1e-3, "every weight is 0"),
        (SQUARE, None, 0, "between 0 and 1"),
        (SQUARE, None, True, "between 0 and 1"),
    ],
    ids=str,
)
def test_refusals(matrix: Floats, weight: Floats | None, tolerance: float, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        nearest_correlation(matrix, weight, tolerance=tolerance)
