"""The constant of prefix sums: both sides against dense algebra, and the inequalities of the proof in
docs/prefix-constant.md.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from sfumato.strategies.dense_optimal import optimize_dense
from sfumato.strategies.toeplitz import prefix_diagonal
from support.scripts import script

BENCH = script("bench/prefix_constant.py")


def root_and_inverse(n: int) -> tuple[np.ndarray, np.ndarray]:
    """(FᵀF)^(1/2) and (FᵀF)^(-1/2)."""
    _, values, right = np.linalg.svd(np.tri(n))
    return (right.T * values) @ right, (right.T / values) @ right


@pytest.mark.parametrize("n", [2, 33, 100])
def test_the_bracket_holds_the_optimum_and_its_upper_side_a_factorization(n: int) -> None:
    """The factorization is multiplied out. Mutants: the second difference of P left out; halves of blocks swapped; the
    excess counted once for each of a pair."""
    root, inverse = root_and_inverse(n)
    values, vectors = np.linalg.eigh(inverse)
    measured = (vectors * values**-0.5) @ vectors.T / np.sqrt(np.diag(root))
    assert np.linalg.norm(measured, axis=0) == pytest.approx(np.ones(n))
    error = np.linalg.norm(np.tri(n) @ np.linalg.inv(measured)) / math.sqrt(n)
    below, above = BENCH.bracket(n)
    assert above == pytest.approx(error, rel=1e-9)
    found = optimize_dense(np.tri(n).T @ np.tri(n), matrix=np.tri(n))
    assert below < found.lower_bound / math.sqrt(n) < found.upper_bound / math.sqrt(n) < above < 1.005 * below


def test_the_constant_and_the_way_there() -> None:
    """At 2^14 the mean of g is ln n / pi + c to a few parts in n, and the optimum within the bracket's .008 of it."""
    n, c = 2**14, float(BENCH.limit().mid())
    assert c == pytest.approx(0.7018970135, abs=1e-9)
    g = prefix_diagonal(n)
    assert abs(g.mean() - math.log(n) / math.pi - c) < 4 / n * math.log(n)
    below, above = (x - math.log(n) / math.pi for x in BENCH.bracket(n))
    assert c + 0.032 < below < above < below + 0.0079


@pytest.mark.parametrize("n", [2, 3, 12, 65])
def test_the_inequalities_of_the_proof(n: int) -> None:
    """Each line of the page, entry by entry."""
    root, P = root_and_inverse(n)
    g, f = np.diag(root), math.pi / (2 * n + 1)
    i, j = np.indices((n, n)) + 1
    apart, y = np.abs(i - j), (2 * np.arange(1, n + 1) - 1) * f / 2
    off = apart > 0
    assert g == pytest.approx(prefix_diagonal(n))
    assert g[-1] >= 8 / (3 * math.pi)
    assert (-P[off] <= 2.77 / math.pi * f**2 / np.sin(apart[off] * f) ** 2).all()
    later = i < j
    falls = np.log(np.tan(y)[None] / np.tan(y)[:, None]) / math.pi
    assert ((g[:, None] - g)[later] <= falls[later] * (1 + 1e-12)).all()
    assert g.var() <= 1 / 4 + 1 / (8 * n)
    sine, cosine = np.sin(y), np.cos(y)
    terms = -(n + 1 - j) * P * (g[:, None] - g) ** 2
    most = 0.562 * f * cosine**0.5 / sine**1.5 / (cosine**1.5 * sine**0.5)[:, None]
    assert (terms[later] <= most[later]).all()
    assert (np.where(later, most, 0).sum(axis=1) <= 1.125 / sine).all()
    assert BENCH.excess(n)[0] <= 1.125 * (2 * n + 1) / n * (1 / ((2 * np.arange(1, n + 1) - 1) * g)).sum() < 6.1
    # rows of the factorization, for the worst prefix
    polar = np.tri(n) @ P
    closed = (1 / np.sin((i - j + 0.5) * f) + 1 / np.sin((i + j - 0.5) * f)) / (2 * n + 1)
    assert polar == pytest.approx(closed, abs=1e-10)
    assert polar.sum(axis=1, where=i >= j) == pytest.approx(g[::-1])
    assert (polar[i >= j] <= 1 / (apart[i >= j] + 0.5)).all()
    scaled = np.tri(n) * np.sqrt(g)
    inner = P * (np.sqrt(g)[:, None] - np.sqrt(g)) ** 2
    rows = g * g[::-1] + (np.tril(polar) * (g - g[:, None])).sum(axis=1)
    rows -= np.array([inner[:k, :k].sum() / 2 for k in range(1, n + 1)])
    assert np.diag(scaled @ P @ scaled.T) == pytest.approx(rows)
