"""Multiplicative weights against dense arrays, the bound of a step, and replay."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import InvalidInput
from sfumato.operators import Dense, Kronecker, OnMarginal, Total
from sfumato.postprocess.weights import Hypothesis

SIZES = (3, 4, 2)
AXES = [(), (0,), (2,), (1, 0), (0, 1, 2), (2, 0), (1, 2, 0)]


def _moved(seed: int = 0) -> Hypothesis:
    found = Hypothesis(SIZES, 50.0)
    public = np.random.default_rng(seed)
    for axes in AXES[1:]:
        cells = math.prod(SIZES[a] for a in axes)
        found.update(public.uniform(-1, 1, cells), float(public.normal()), axes)
    return found


def _kl(h: np.ndarray, p: np.ndarray) -> float:
    held = h > 0
    return float((h[held] * np.log(h[held] / p[held])).sum())


@pytest.mark.parametrize("axes", AXES, ids=str)
def test_answers_are_those_of_the_dense_rows(axes: tuple[int, ...]) -> None:
    moved = _moved()
    rows = np.random.default_rng(1).integers(-3, 4, (5, math.prod(SIZES[a] for a in axes)))
    dense = OnMarginal(SIZES, axes, Dense(rows)).dense() @ moved.cells
    np.testing.assert_allclose(moved.answer(rows, axes), dense, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(moved.answer(Dense(rows), axes), dense, rtol=1e-12, atol=1e-12)


def test_a_product_of_operators_answers_over_all_cells() -> None:
    moved = _moved()
    product = Kronecker((Dense(np.array([[1, 0, 2]])), Total(4), Dense(np.array([[1, 1], [0, 1]]))))
    np.testing.assert_allclose(moved.answer(product), product.dense() @ moved.cells, rtol=1e-12)


@pytest.mark.parametrize("axes", AXES, ids=str)
def test_an_update_is_the_dense_exponential(axes: tuple[int, ...]) -> None:
    moved = _moved(2)
    row = np.random.default_rng(3).uniform(-1, 1, math.prod(SIZES[a] for a in axes))
    dense = OnMarginal(SIZES, axes, Dense(row[None])).dense()[0]
    expected = moved.cells * np.exp(0.7 * dense)
    expected *= 50.0 / expected.sum()
    moved.update(row, 0.7, axes)
    np.testing.assert_allclose(moved.cells, expected, rtol=1e-12)


@given(st.integers(0, 2**32 - 1), st.booleans(), st.floats(-3, 3))
@settings(max_examples=100, deadline=None)
def test_a_step_brings_the_hypothesis_nearer_by_the_proved_amount(seed: int, signed: bool, step: float) -> None:
    public = np.random.default_rng(seed)
    h = public.dirichlet(np.full(12, 0.3))
    found = Hypothesis((12,), 1.0)
    found.update(public.uniform(-1, 1, 12), 2.0)
    row = public.choice([-1.0, 0.0, 1.0] if signed else [0.0, 1.0], 12)
    before, gap = _kl(h, found.cells), float(row @ (h - found.cells))
    found.update(row, step)
    least = step * gap - step**2 / (2 if signed else 8)
    assert before - _kl(h, found.cells) >= least - 1e-12
    assert found.cells.sum() == pytest.approx(1.0, abs=1e-12)
    assert found.cells.min() >= 0


def test_replaying_the_updates_gives_the_same_cells_bit_for_bit_whatever_was_asked() -> None:
    public = np.random.default_rng(4)
    steps = [(public.uniform(-1, 1, 12), float(public.normal() * 5)) for _ in range(200)]
    first, second = Hypothesis(SIZES, 7.0), Hypothesis(SIZES, 7.0)
    for row, step in steps:
        first.update(row, step, (0, 1))
        assert first.answer(np.ones((1, 24))) == pytest.approx(7.0)
    for row, step in steps:
        second.update(row, step, (0, 1))
    assert first.cells.tobytes() == second.cells.tobytes()
    assert first.cells.sum() == pytest.approx(7.0, rel=1e-12)


def test_far_steps_neither_overflow_nor_lose_a_cell_for_good() -> None:
    found = Hypothesis((4,), 1.0)
    found.update([1, 0, 0, 0], 5000.0)
    assert found.cells.tolist() == [1.0, 0.0, 0.0, 0.0]
    found.update([1, 0, 0, 0], -5000.0)
    assert found.cells.tolist() == [0.25] * 4


def test_a_hypothesis_of_nothing_stays_nothing() -> None:
    found = Hypothesis((3,), 0)
    found.update([1, 0, 0], 1.0)
    assert found.cells.tolist() == [0.0] * 3


def test_what_cannot_be_is_refused_and_changes_nothing() -> None:
    for sizes, total in (((), 1), ((0, 2), 1), ((10**4, 10**4), 1), ((2,), -1), ((2,), math.nan), ((2,), math.inf)):
        with pytest.raises(InvalidInput):
            Hypothesis(sizes, total)
    found = _moved()
    before = found.cells.tobytes()
    for row, step, axes in (
        ([1.5, 0, 0], 1.0, (0,)),
        ([1, 0], 1.0, (0,)),
        ([math.nan, 0, 0], 1.0, (0,)),
        ([1, 0, 0], math.inf, (0,)),
        ([1, 0, 0], 1.0, (5,)),
        ([1] * 9, 1.0, (0, 0)),
    ):
        with pytest.raises(InvalidInput):
            found.update(row, step, axes)
    with pytest.raises(InvalidInput):
        found.answer(np.ones((2, 5)))
    with pytest.raises(ValueError, match="read-only"):
        found.cells[0] = 1.0
    assert found.cells.tobytes() == before
