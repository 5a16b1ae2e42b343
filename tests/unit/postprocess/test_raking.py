"""Raking: every sum that can be met is, zeros stay, and sums that exclude each other are missed by the least."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.operators.base import FloatArray
from sfumato.postprocess.hierarchical_rungs import Sums, rake_cells


def margin(cells: FloatArray, *axes: int) -> FloatArray:
    return cells.sum(axis=tuple(i for i in range(cells.ndim) if i not in axes))


def test_raking_meets_its_sums_and_keeps_zeros() -> None:
    rng = np.random.default_rng(3)
    goal = rng.dirichlet(np.ones(24)).reshape(2, 3, 4)
    start = rng.random((2, 3, 4))
    start[0, 1, 2] = goal[0, 1, 2] = 0.0
    groups = (np.arange(8).reshape(2, 4) == 3).astype(np.intp)
    asked = Sums((0, 2), np.bincount(groups.reshape(-1), margin(goal, 0, 2).reshape(-1)), groups)
    found = rake_cells(start, [asked, Sums((0, 1), margin(goal, 0, 1)), Sums((2,), margin(goal, 2))])
    assert found[0, 1, 2] == 0
    assert found.min() >= 0
    assert margin(found, 0, 1) == pytest.approx(margin(goal, 0, 1), abs=1e-8)
    assert margin(found, 2) == pytest.approx(margin(goal, 2), abs=1e-8)
    assert asked.of(found) == pytest.approx(asked.wanted, abs=1e-8)


def test_sums_that_exclude_each_other_are_met_halfway_and_the_firm_ones_exactly() -> None:
    groups = np.array([[0, 1], [1, 1]])
    # the cell cannot hold 8 where its row holds 3
    sums = [Sums((0, 1), np.array([8.0, 2.0]), groups, give=np.full(2, 1e-3)), Sums((0,), np.array([3.0, 7.0]))]
    found = rake_cells(np.ones((2, 2)), sums)
    assert margin(found, 0) == pytest.approx([3, 7])
    assert found[0, 0] == pytest.approx(3, abs=0.01), "the nearest that is possible"


@pytest.mark.parametrize("seed", range(8))
def test_a_group_that_nearly_fills_its_row_is_met_beside_others(seed: int) -> None:
    """5,372 of a row of 5,390, beside a group over three attributes and two held tables: plain raking moves it by one
    per cent a sweep.

    Mutant: sums met one after another for 200 sweeps, groups with longer steps while these do not overshoot (seed 1
    was left 30 short, seed 7 6).
    """
    rng = np.random.default_rng(seed)
    exact = rng.dirichlet(np.full(120, 0.5)).reshape(6, 5, 4) * 60_000
    exact[0, :4], exact[0, 4] = rng.dirichlet(np.ones(16)).reshape(4, 4) * 5372, 4.5
    row, block = np.ones((6, 5), dtype=np.intp), np.ones((6, 5, 4), dtype=np.intp)
    row[0, :4], block[2:, 1:3, 2:] = 0, 0
    even = np.array(exact.sum())
    for i in range(3):
        even = np.multiply.outer(even, margin(exact, i) / exact.sum())
    asked = [Sums((0, 1), np.zeros(2), row), Sums((0, 1, 2), np.zeros(2), block)]
    asked = [Sums(s.axes, s.of(exact), s.groups, give=np.full(2, 1e-3)) for s in asked]
    tables = [Sums(s, margin(exact, *s)) for s in [(0,), (1,), (2,), (0, 2), (1, 2)]]
    found = rake_cells(even, [*asked, *tables])
    for s in asked:
        assert s.of(found) == pytest.approx(s.wanted, abs=0.02)
    for s in tables:
        assert s.of(found) == pytest.approx(s.wanted, abs=1e-3)


def test_groups_that_exclude_each_other_share_the_miss_by_what_they_give() -> None:
    """35 and 55 are said of one cell, with variances as 1 to 9: 37 is nearest.

    Mutant: half of every miss, whatever is given.
    """
    groups = np.array([[0, 1], [1, 1]])
    sums = [
        Sums((0, 1), np.array([35.0, 65.0]), groups, give=np.full(2, 1e-4)),
        Sums((0, 1), np.array([55.0, 45.0]), groups, give=np.full(2, 9e-4)),
        Sums((0,), np.array([60.0, 40.0])),
        Sums((1,), np.array([70.0, 30.0])),
    ]
    found = rake_cells(np.full((2, 2), 25.0), sums)
    assert margin(found, 0) == pytest.approx([60, 40])
    assert margin(found, 1) == pytest.approx([70, 30])
    assert found[0, 0] == pytest.approx(37, abs=0.01)
