"""Scaled buffered Toeplitz strategies against dense linear algebra, and what was fitted against the bounds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import PlanError
from sfumato.operators import AllRange, Dense, Identity, LinearOperator, Padded, Prefix, Toeplitz, Window
from sfumato.strategies.buffered_toeplitz import (
    SHAPES,
    Asked,
    Buffered,
    BufferParameters,
    best_buffered_strategy,
    interpolate_parameters,
    row_scale,
)
from sfumato.strategies.range_bounds import largest_pair
from sfumato.strategies.toeplitz import Buffers, all_range_bound, decayed_sums, prefix_bound
from support.scripts import script
from support.sensitivities import check_price

ASKED: tuple[Asked, ...] = ("prefixes", "ranges", "largest")
CASES = [(n, asked) for n in (2, 3, 7, 40, 101, 330) for asked in ASKED]
CLOSE = 3e-5  # what rounding the coefficients moves variances by, as the module says


def made(n: int, asked: Asked = "prefixes") -> tuple[Buffered, Any]:
    factor = best_buffered_strategy(n, asked).at(700.0)
    return factor, np.linalg.inv(factor.measured.dense().astype(float))


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 300), st.floats(1e-9, 1 - 1e-7), st.integers(0, 2**32))
def test_decayed_sums_are_the_sums(n: int, decay: float, seed: int) -> None:
    values = np.random.default_rng(seed).random(n)
    powers = decay ** np.arange(n)
    exact = [float(values[: i + 1][::-1] @ powers[: i + 1]) for i in range(n)]
    np.testing.assert_allclose(decayed_sums(values, decay), exact, rtol=1e-12)


def test_buffers_are_their_generating_functions() -> None:
    buffers = Buffers(np.array([1e-3, 0.1, 0.5]), np.array([0.02, 0.3, 0.9]))
    assert min(*buffers.outputs, *buffers.returns) > 0
    for z in (0.3, -0.7, 0.99):
        a, b = 1 - buffers.poles, 1 - buffers.zeros
        whole = float(np.prod((1 - b * z) / (1 - a * z)))
        assert whole == pytest.approx(1 + float((buffers.outputs * z / (1 - a * z)).sum()), rel=1e-12)
        assert 1 / whole == pytest.approx(1 - float((buffers.returns * z / (1 - b * z)).sum()), rel=1e-12)
    coefficients = buffers.coefficients(np.arange(2_000))
    assert coefficients @ 0.9 ** np.arange(2_000) == pytest.approx(
        float(np.prod((1 - 0.9 * (1 - buffers.zeros)) / (1 - 0.9 * (1 - buffers.poles))))
    )
    for poles, zeros in (([0.2], [0.1]), ([0.1, 0.2], [0.3, 0.4]), ([0.0], [0.1]), ([0.1], [1.0]), ([], [])):
        with pytest.raises(PlanError):
            Buffers(np.array(poles), np.array(zeros))


def asked_of(n: int) -> list[LinearOperator]:
    windows: list[LinearOperator] = [Window(n, 1), Window(n, (n + 1) // 2), Window(n, n)]
    return [Prefix(n), AllRange(n), Identity(n), *windows, Padded(AllRange(n - 1)), Padded(Prefix(n - 1))]


@pytest.mark.parametrize(("n", "asked"), CASES)
def test_answers_and_errors_are_those_of_the_inverse(n: int, asked: Asked) -> None:
    """Mutants: the noise of a row, or the multiple of a column, left out of cells, of spread or of errors."""
    factor, inverse = made(n, asked)
    scale = np.abs(inverse).max()
    assert np.abs(factor.cells(np.eye(n)) - inverse).max() <= 1e-10 * scale
    assert np.abs(factor.spread(np.eye(n)) - inverse).max() <= 1e-10 * scale
    assert np.abs(factor.cells_of_rows(np.eye(n)) - inverse @ inverse.T).max() <= 1e-9 * scale**2
    mixed = Dense(np.arange(n)[None, :] - 1)
    rows = mixed.dense() @ inverse
    np.testing.assert_allclose(factor.row_powers(mixed, 2), (rows**2).sum(axis=1), rtol=1e-9)
    for query in asked_of(n):
        rows = query.dense() @ inverse
        np.testing.assert_allclose(factor.row_powers(query, 2), (rows**2).sum(axis=1), rtol=CLOSE)
        if n <= 40:
            np.testing.assert_allclose(factor.row_powers(query, 4), (rows**4).sum(axis=1), rtol=1e-9)
    first, last = np.triu_indices(n + 1)
    np.testing.assert_allclose(factor.span_powers(first, last, 2)[first == last], 0.0)


@pytest.mark.parametrize(("n", "asked"), CASES)
def test_errors_of_all_ranges_together_are_those_one_by_one(n: int, asked: Asked) -> None:
    """The mean, and the largest from above by half a percent at most.

    Mutants: a least D in place of the largest v - 2 P; longest ranges taken a block too short.
    """
    factor, inverse = made(n, asked)
    ones = factor.spread_ones()
    for query in (AllRange(n), Padded(AllRange(n - 1))):
        rows = query.dense() @ inverse
        variances = (rows**2).sum(axis=1)
        for known in (None, ones):
            exact = variances if known is None else variances - (query.dense() @ ones) ** 2 / ones.sum()
            mean, largest = factor.range_errors(query, known)
            slack = CLOSE * variances.max()
            assert abs(mean - exact.mean()) <= slack
            assert exact.max() - 1e-9 * variances.max() <= largest <= 1.0051 * exact.max() + slack


def test_a_bound_that_cannot_be_halved_further_is_still_one() -> None:
    """Where buffers would weigh negatively, or too many pairs stay open: four times the worst prefix, or the blocks."""
    rng = np.random.default_rng(5)
    n = 50
    rows = np.abs(rng.normal(size=(n, n))) * np.tri(n)
    variances = (rows**2).sum(axis=1)
    steady, parts = np.zeros(n), np.zeros((1, n))
    whole = largest_pair(variances, steady, parts, parts, np.array([0.5]), np.zeros(n + 1), 1e-3)
    assert whole >= variances.max() * 2 * (1 - 1e-9) - variances.min()
    assert largest_pair(variances, steady, parts - 1, parts, np.array([0.5]), np.zeros(n + 1), 1e-3) == (
        4 * variances.max()
    )


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("n", [2, 8, 50])
def test_the_sensitivity_is_that_of_the_matrix(n: int, power: int) -> None:
    """Mutant: the multiples of columns not raised to the power."""
    check_price(made(n)[0].operator, power)


def test_strategies_that_say_the_errors_of_others_are_refused() -> None:
    factor, _ = made(40)
    operator = factor.operator
    assert operator.columns is not None
    for wrong in (
        Toeplitz(operator.coefficients, operator.multiples),
        Toeplitz(operator.coefficients, operator.multiples * 0, operator.columns),
        Toeplitz(operator.coefficients + 2, operator.multiples, operator.columns),
    ):
        with pytest.raises(PlanError):
            Buffered(wrong, factor.buffers)


@pytest.mark.parametrize(
    ("asked", "n", "most"),
    [
        ("prefixes", 5_000, 1.0022),
        ("prefixes", 2**17, 1.0019),
        ("ranges", 5_000, 1.0014),
        ("ranges", 2**17, 1.0015),
        ("largest", 5_000, 1.0071),
        ("largest", 2**16, 1.0068),
        ("largest", 2**17, 1.0068),
    ],
)
def test_integers_are_close_to_the_bound(asked: Asked, n: int, most: float) -> None:
    """At their own price, at sizes of the tables and between them."""
    factor = best_buffered_strategy(n, asked).at(700.0)
    price = float(max(factor.operator.column_sums(2)))
    if asked == "ranges":
        found, bound = factor.range_errors(AllRange(n))[0], all_range_bound(n) ** 2 / (n * (n + 1) / 2)
    else:
        variances = factor.prefix_powers(n, 2)
        found = float(variances.max() if asked == "largest" else variances.mean())
        bound = prefix_bound(n) ** 2 / n
    assert 1.0 < math.sqrt(found * price / bound) < most


@pytest.mark.parametrize("asked", ASKED)
def test_blocks_tell_the_error_of_real_numbers(asked: Asked) -> None:
    """What the fit minimises against dense algebra on what it stands for. Mutant: a filter one cell late."""
    n = 300
    parameters = interpolate_parameters(n, asked)
    r, lag = row_scale(n, parameters.shape), np.arange(n)[:, None] - np.arange(n)
    matrix = np.where(lag >= 0, parameters.buffers.coefficients(np.abs(lag)), 0.0) * r[:, None]
    matrix /= np.linalg.norm(matrix, axis=0)
    rows = np.cumsum(np.linalg.inv(matrix), axis=0)
    variances = (rows**2).sum(axis=1)
    exact = {"prefixes": variances.mean(), "largest": variances.max()}
    exact["ranges"] = ((n + 1) * variances.sum() - (rows.sum(axis=0) ** 2).sum()) / (n * (n + 1) / 2)
    about = float(script("scripts/fit_buffers.py").GeometricBlocks(n).error(parameters, asked))
    assert about == pytest.approx(math.sqrt(exact[asked]), rel=0.03 if asked == "largest" else 0.01)


def test_a_fit_finds_what_the_tables_hold() -> None:
    """From nothing known, to a part in a thousand of the error."""
    n, fitting = 2**10, script("scripts/fit_buffers.py")
    found, held = fitting.fit_buffer_parameters(n, "prefixes"), interpolate_parameters(n, "prefixes")
    errors = [float(fitting.GeometricBlocks(n).error(p, "prefixes")) for p in (found, held)]
    assert errors[0] == pytest.approx(errors[1], rel=1e-3)
    assert BufferParameters.of(held.vector).shape.shape == (SHAPES,)
