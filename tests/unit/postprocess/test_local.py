"""Projection on consistent nonnegative tables, against a dense quadratic program."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import cholesky, null_space
from scipy.optimize import nnls

from sfumato.errors import InvalidInput
from sfumato.postprocess.consistency import LocalSolution, ResidualNoise, project_onto_local

Floats = NDArray[np.float64]
Axes = tuple[int, ...]


def margin(sizes: Sequence[int], axes: Axes, kept: Axes) -> Floats:
    """Dense map of a table over `axes` to the one over `kept`, whose attributes may stand in another order."""
    cells = [sizes[a] for a in axes]
    eye = np.eye(math.prod(cells)).reshape(*cells, -1)
    summed = eye.sum(axis=tuple(i for i, a in enumerate(axes) if a not in kept))
    left = [a for a in axes if a in kept]
    return np.moveaxis(summed, [left.index(a) for a in kept], range(len(kept))).reshape(-1, eye.shape[-1])


class Dense:
    """The same program over all cells of all tables: equality constraints by a null space, solved by NNLS."""

    def __init__(self, sizes: Sequence[int], sets: Sequence[Axes], norm: Floats, total: float | None) -> None:
        self.starts = np.cumsum([0, *[math.prod(sizes[a] for a in s) for s in sets]])
        rows: list[Floats] = []
        for (i, a), (j, b) in itertools.combinations(enumerate(sets), 2):
            common = tuple(sorted(set(a) & set(b)))
            one = self.place(i, margin(sizes, a, common))
            rows.append(one - self.place(j, margin(sizes, b, common)))
        whole = self.place(0, margin(sizes, sets[0], ()))
        even = [np.full(math.prod(sizes[a] for a in s), 1 / math.prod(sizes[a] for a in s)) for s in sets]
        self.origin = np.zeros(self.starts[-1]) if total is None else total * np.concatenate(even)
        rows.append(whole if total is not None else 0 * whole)
        basis = null_space(np.concatenate(rows))
        self.root = np.linalg.solve(cholesky(basis.T @ norm @ basis), np.eye(basis.shape[1])).T
        self.basis, self.norm = basis @ self.root.T, norm

    def place(self, i: int, block: Floats) -> Floats:
        out = np.zeros((len(block), self.starts[-1]))
        out[:, self.starts[i] : self.starts[i + 1]] = block
        return out

    def project(self, values: Floats) -> Floats:
        """Least |u - u0| subject to origin + basis u >= 0 by the least distance program of Lawson and Hanson."""
        u0 = self.basis.T @ self.norm @ (values - self.origin)
        bound = -(self.origin + self.basis @ u0)
        if bound.max() <= 0:
            return -bound
        scale = np.abs(bound).max()
        system = np.concatenate([self.basis.T, bound[None] / scale])
        target = np.append(np.zeros(len(u0)), 1.0)
        weights, _ = nnls(system, target, maxiter=100_000)
        left = system @ weights - target
        return -bound + self.basis @ (-left[:-1] / left[-1] * scale)


def residual_map(sizes: Sequence[int], axes: Axes, s: Axes) -> Floats:
    """Dense map of a table to its component on s."""
    centring = [np.eye(sizes[a]) - 1 / sizes[a] for a in s]
    return reduce(np.kron, centring, np.ones((1, 1))) @ margin(sizes, axes, s)


CASES: list[tuple[list[int], list[Axes]]] = [
    ([3, 2, 4], [(0, 1), (2, 1), (0, 2)]),
    ([2, 2, 2, 3], [(0, 1, 2), (3, 1), (2, 3), (0,)]),
    ([3, 2, 2], [(0,), (1, 0), (1,), (2,), ()]),
    ([2, 3, 2, 2], [(0, 1, 2), (1, 2, 3), (3, 0, 1)]),
    ([1, 3, 2], [(0, 1), (1, 2), (2, 0)]),
    ([4], [(0,)]),
    ([2, 2, 2, 2, 2], list(itertools.combinations(range(5), 2))),
]


def truth(sizes: Sequence[int], sets: Sequence[Axes], rng: np.random.Generator, n: int) -> list[Floats]:
    cells = rng.multinomial(n, rng.dirichlet(np.full(math.prod(sizes), 0.1))).astype(np.float64)
    return [(margin(sizes, tuple(range(len(sizes))), s) @ cells).reshape(tuple(sizes[a] for a in s)) for s in sets]


def drawn(case: int, seed: int, *, residual: bool, known: bool) -> tuple[LocalSolution, Dense, Floats, Floats, float]:
    """(solution, dense program, values, truth, tolerance)"""
    sizes, sets = CASES[case]
    rng = np.random.default_rng(seed)
    exact = truth(sizes, sets, rng, 60)
    spread = rng.uniform(0.5, 30.0, len(sets))
    below = {tuple(sorted(t)) for s in sets for k in range(len(s) + 1) for t in itertools.combinations(s, k)}
    values = [t + math.sqrt(v) * rng.standard_normal(t.shape) for t, v in zip(exact, spread, strict=True)]
    norm = np.diag(np.repeat(1 / spread, [t.size for t in exact]))
    total = 60.0 if known else None
    noise: Floats | ResidualNoise = spread
    if residual:
        squares = {s: float(rng.uniform(0.5, 30.0)) for s in sorted(below)}
        shown = sorted(squares, key=lambda s: (len(s), s))[::-1]
        orders = range(max(map(len, sets)) + 1)
        noise = ResidualNoise(
            tuple(positions([s for s in shown if len(s) == k], k) for k in orders),
            tuple(np.array([squares[s] for s in shown if len(s) == k]) for k in orders),
        )
        starts = np.cumsum([0, *[t.size for t in exact]])
        norm = np.zeros((starts[-1], starts[-1]))
        for s, v in squares.items():
            i = next(i for i, a in enumerate(sets) if set(s) <= set(a))
            block = residual_map(sizes, sets[i], s)
            norm[starts[i] : starts[i + 1], starts[i] : starts[i + 1]] += block.T @ block / v
        # an estimate of a residual strategy is consistent: noise on consistent tables
        dense = Dense(sizes, sets, np.eye(starts[-1]), None)
        at_truth = np.concatenate([t.reshape(-1) for t in exact])
        noisy = at_truth + 3 * dense.basis @ rng.standard_normal(dense.basis.shape[1])
        values = [a.reshape(t.shape) for a, t in zip(np.split(noisy, starts[1:-1]), exact, strict=True)]
    tolerance = float(rng.choice([0.3, 1e-2, 1e-5]))
    found = project_onto_local(sizes, sets, values, noise, total, tolerance=tolerance)
    flat = [np.concatenate([t.reshape(-1) for t in tables]) for tables in (values, exact)]
    return found, Dense(sizes, sets, norm, total), flat[0], flat[1], tolerance


def positions(sets: Sequence[Axes], order: int) -> NDArray[np.int32]:
    return np.array(sets, dtype=np.int32).reshape(len(sets), order)


def squared(norm: Floats, d: Floats) -> float:
    return float(d @ norm @ d)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(CASES) - 1), st.integers(0, 10**6), st.booleans(), st.booleans())
def test_the_gap_is_never_below_the_distance_from_the_projection(
    case: int, seed: int, residual: bool, known: bool
) -> None:
    found, dense, values, exact, tolerance = drawn(case, seed, residual=residual, known=known)
    best = dense.project(values)
    got = np.concatenate([t.reshape(-1) for t in found.tables])
    slack = 1e-14 * squared(dense.norm, values)
    assert squared(dense.norm, got - best) <= found.gap + slack
    assert found.gap <= (tolerance * found.moved) ** 2 * 1.001 + slack
    moved = squared(dense.norm, got - values)
    if known and residual:
        # the norm has no say about a known total
        sizes, sets = CASES[case]
        first = math.prod(sizes[a] for a in sets[0])
        share = squared(dense.norm, dense.origin) / 60.0**2
        moved -= share * (values[:first].sum() - 60.0) ** 2
    assert found.moved**2 == pytest.approx(moved, rel=1e-6, abs=1e-9)
    # within the gap, never farther from the truth than the noisy tables
    assert math.sqrt(squared(dense.norm, got - exact)) <= math.sqrt(squared(dense.norm, values - exact)) + math.sqrt(
        found.gap + slack
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, len(CASES) - 1), st.integers(0, 10**6), st.booleans(), st.booleans())
def test_tables_agree_and_are_not_negative(case: int, seed: int, residual: bool, known: bool) -> None:
    found, *_ = drawn(case, seed, residual=residual, known=known)
    sizes, sets = CASES[case]
    for (a, s), (b, t) in itertools.product(zip(sets, found.tables, strict=True), repeat=2):
        assert s.shape == tuple(sizes[i] for i in a)
        assert s.min() >= 0
        common = tuple(sorted(set(a) & set(b)))
        np.testing.assert_allclose(
            margin(sizes, a, common) @ s.reshape(-1), margin(sizes, b, common) @ t.reshape(-1), atol=1e-9
        )
    assert found.total == pytest.approx(60.0 if known else found.tables[0].sum(), abs=1e-9)


def test_possible_tables_stay_and_a_projection_is_its_own() -> None:
    sizes, sets = CASES[1]
    exact = truth(sizes, sets, np.random.default_rng(1), 500)
    found = project_onto_local(sizes, sets, exact, 2.0, 500.0)
    for a, b in zip(found.tables, exact, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)
    noisy = [t + 9 for t in exact]
    once = project_onto_local(sizes, sets, noisy, 2.0, tolerance=1e-6)
    again = project_onto_local(sizes, sets, once.tables, 2.0, tolerance=1e-6)
    assert again.moved <= 1e-3 * once.moved


def test_one_table_is_the_simplex_and_all_below_zero_is_zero() -> None:
    found = project_onto_local([3], [(0,)], [[-1.0, 0.4, 1.6]], 1.0, 1.0, tolerance=1e-8)
    np.testing.assert_allclose(found.tables[0], [0.0, 0.0, 1.0], atol=1e-6)
    none = project_onto_local([2, 2], [(0, 1)], [[[-1.0, -2.0], [-3.0, -1.0]]], 1.0)
    assert none.total == 0
    assert not none.tables[0].any()
    empty = project_onto_local([2, 2], [(0, 1), (0,)], [np.ones((2, 2)), np.ones(2)], 1.0, 0.0)
    assert empty.gap <= 1e-12
    assert not empty.tables[0].any()


def test_a_table_given_twice_counts_twice() -> None:
    rng = np.random.default_rng(2)
    y = [rng.normal(0, 3, (2, 3)) for _ in range(2)] + [rng.normal(0, 3, (3, 2))]
    twice = project_onto_local([2, 3, 2], [(0, 1), (0, 1), (1, 2)], y, 2.0, 5.0, tolerance=1e-7)
    once = project_onto_local([2, 3, 2], [(0, 1), (1, 2)], [(y[0] + y[1]) / 2, y[2]], [1.0, 2.0], 5.0, tolerance=1e-7)
    np.testing.assert_allclose(twice.tables[1], once.tables[0], atol=1e-5)
    np.testing.assert_array_equal(twice.tables[0], twice.tables[1])


def test_what_does_not_fit_is_refused() -> None:
    table = np.ones((2, 3))
    for sets, values, variances, total in (
        ([(0, 1)], [table.T], 1.0, None),
        ([(0, 0)], [table], 1.0, None),
        ([(0, 2)], [table], 1.0, None),
        ([], [], 1.0, None),
        ([(0, 1)], [table * math.nan], 1.0, None),
        ([(0, 1)], [table], 0.0, None),
        ([(0, 1)], [table], [1.0, 1.0], None),
        ([(0, 1)], [table], 1.0, -1.0),
        ([(0, 1)], [table], 1.0, math.inf),
    ):
        with pytest.raises(InvalidInput):
            project_onto_local([2, 3], sets, values, variances, total)
    whole = ResidualNoise(
        tuple(positions(s, k) for k, s in enumerate(([()], [(0,), (1,)], [(0, 1)]))),
        (np.ones(1), np.ones(2), np.ones(1)),
    )
    assert project_onto_local([2, 3], [(0, 1)], [table], whole).moved == 0
    with pytest.raises(InvalidInput, match=r"\[0, 1\] has no variance"):
        project_onto_local(
            [2, 3], [(0, 1)], [table], replace(whole, sets=whole.sets[:2], variances=whole.variances[:2])
        )
    project_onto_local([2, 3], [(0, 1)], [table], replace(whole, variances=(np.zeros(1), *whole.variances[1:])), 6.0)
    with pytest.raises(InvalidInput, match="positive"):
        project_onto_local([2, 3], [(0, 1)], [table], replace(whole, variances=(np.zeros(1), *whole.variances[1:])))
