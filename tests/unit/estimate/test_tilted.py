"""The exponential family member nearest to noisy answers, against its optimality conditions and brute force."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.estimate.tilted import Noisy, tilted
from sfumato.operators import Dense, Identity, Prefix

SIZES = (2, 3, 2)
DRAWS = np.random.default_rng(3)
GIVEN = [
    Noisy((2, 0), Identity(4), np.array([9.0, 11, 4, 30]), 4.0),
    Noisy((1,), Prefix(3), np.array([5.0, 20, 52]), 1.0),
    Noisy((0, 1, 2), Dense(DRAWS.integers(-2, 3, (3, 12))), np.array([3.0, -8, 20]), 9.0),
]


def rows() -> np.ndarray:
    """All queries over all cells, built cell by cell."""
    out = []
    for g in GIVEN:
        matrix = g.operator.dense()
        for row in matrix:
            table = row.reshape([SIZES[a] for a in g.axes])
            out.append([table[tuple(cell[a] for a in g.axes)] for cell in np.ndindex(*SIZES)])
    return np.array(out, dtype=float)


def objective(cells: np.ndarray, prior: float) -> float:
    total = cells.sum()
    misses = rows() @ cells - np.concatenate([g.values for g in GIVEN])
    spread = np.concatenate([np.full(len(g.values), g.variance) for g in GIVEN])
    return float(misses @ (misses / spread)) / 2 + prior * float(cells @ np.log(np.maximum(cells / total * 12, 1e-300)))


@pytest.mark.parametrize("prior", [0.003, 0.1, 3.0])
def test_no_other_cells_are_nearer(prior: float) -> None:
    """Mutants: a sign; axes taken in another order; the variance for its root."""
    found = tilted(SIZES, 52.0, GIVEN, prior)
    assert found.shape == SIZES
    assert found.sum() == pytest.approx(52)
    best = objective(found.reshape(-1), prior)
    for scale in (1e-3, 1e-2, 0.3):
        for _ in range(200):
            other = found.reshape(-1) * np.exp(scale * DRAWS.normal(size=12))
            assert objective(other * 52 / other.sum(), prior) > best - 1e-7


def test_it_is_uniform_where_nothing_is_known_and_exact_where_all_is() -> None:
    nothing = Noisy((1,), Dense(np.ones((1, 3))), np.array([99.0]), 1.0)  # of the total, which is held fixed
    assert tilted(SIZES, 24.0, [nothing], 0.1) == pytest.approx(np.full(SIZES, 2.0))
    exact = DRAWS.integers(1, 30, 12).astype(float)
    found = tilted(SIZES, exact.sum(), [Noisy((0, 1, 2), Identity(12), exact, 1e-4)], 1e-4)
    assert found.reshape(-1) == pytest.approx(exact, abs=1e-2)
