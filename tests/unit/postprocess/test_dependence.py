"""How much two columns depend: the value without noise, what noise adds, and intervals."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.postprocess.dependence import (
    cramers_v,
    kept_cells,
    least_dependence,
    noise_length,
    quarter_edges,
)


def exact_v(table: np.ndarray) -> float:
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    return float(np.sqrt(((table - expected) ** 2 / expected).sum() / table.sum() / (min(table.shape) - 1)))


def test_without_noise_it_is_cramers_v() -> None:
    """Mutants: the root, the number of records or the smaller side left out."""
    for table, v in (
        (np.outer([100, 300], [50, 200, 150]), 0.0),
        (np.diag([500, 300, 200]), 1.0),
        (np.array([[300, 100], [100, 500]]), None),
        (np.array([[300, 100, 30], [100, 500, 70]]), None),
    ):
        told = cramers_v(table.astype(float), 1e-9, 0.05)
        assert told is not None
        assert told.value == pytest.approx(exact_v(table) if v is None else v, abs=1e-4)
        assert told.low - 1e-4 <= told.value <= told.high + 1e-4


@pytest.mark.parametrize("depends", [0.0, 0.15, 0.6])
def test_what_noise_adds_is_taken_off_and_intervals_hold(depends: float) -> None:
    """Seed 11. Mutants: what noise adds left in; margins taken for exact, which their noise is not."""
    rng, sigma, held, values = np.random.default_rng(11), 40.0, 0, []
    base = (1 - depends) * np.full((4, 5), 250.0) + depends * np.pad(np.diag([1250.0] * 4), ((0, 0), (0, 1)))
    table = np.round(base * rng.uniform(0.8, 1.2, (4, 1)))
    true = exact_v(table)
    for _ in range(400):
        told = cramers_v(table + rng.normal(0, sigma, table.shape), sigma**2, 0.05)
        assert told is not None
        held += told.low <= true <= told.high
        values.append(told.value**2)
    assert held >= 376
    # what is divided by is noisy too, which makes much dependence a little more
    assert np.mean(values) == pytest.approx(true**2, abs=0.004 + true**2 / 25)


def test_rows_and_columns_of_few_records_are_left_out() -> None:
    table = np.array([[500.0, 400, 3], [300, 700, 2], [1, 0, 1]])
    rows, columns = kept_cells(table, 4.0)
    assert (rows.tolist(), columns.tolist()) == ([0, 1], [0, 1])
    assert cramers_v(table[2:], 4.0, 0.05) is None
    assert cramers_v(-table, 4.0, 0.05) is None
    assert cramers_v(table, 10.0**6, 0.05) is None


def test_the_length_of_noise_is_that_of_chi_squared() -> None:
    assert noise_length(np.ones(9), 0.05) ** 2 == pytest.approx(16.919, abs=0.01)
    assert noise_length(np.full(4, 2.5), 0.01) ** 2 == pytest.approx(2.5 * 13.277, abs=0.01)


def test_what_is_told_from_is_where_half_of_the_looks_are_sure() -> None:
    """Seed 12."""
    rng, sigma, records = np.random.default_rng(12), 60.0, 8_000
    v = least_dependence(records, 4, sigma**2, 0.05)
    table = np.full((4, 4), records / 16) * (1 - v) + v * np.diag([records / 4] * 4)
    assert exact_v(table) == pytest.approx(v, rel=1e-6)
    told = [cramers_v(table + rng.normal(0, sigma, (4, 4)), sigma**2, 0.05) for _ in range(300)]
    # noise makes it longer than it is, so that more than half are
    assert 0.4 < np.mean([t is not None and t.low > 0 for t in told]) < 0.85


def test_quarters_are_between_edges_that_there_are() -> None:
    assert quarter_edges((0, 1, 2, 3, 4), np.array([10.0, 20, 30, 40])) == (0, 1, 2, 3, 4)
    assert quarter_edges((0, 1, 2, 3, 4), np.array([0.0, 39, 39, 40])) == (0, 1, 2, 4)
    assert quarter_edges((0, 9), np.array([40.0])) == (0, 9)
