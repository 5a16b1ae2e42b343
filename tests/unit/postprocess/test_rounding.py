"""Whole counts near fractional ones: every count up or down, sums kept."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import sfumato as sf
from sfumato.postprocess.projection import joint_operator
from sfumato.postprocess.rounding import controlled_rounding, round_records, round_to_total

fractions = st.lists(st.floats(0, 30, allow_subnormal=False), min_size=1, max_size=12).map(np.array)


def up_or_down(whole: np.ndarray, real: np.ndarray) -> bool:
    """Whether every whole number is the floor or the ceiling of the real one."""
    return bool((whole >= np.floor(real - 1e-6)).all() and (whole <= np.ceil(real + 1e-6)).all())


@given(fractions, st.integers(0, 200))
def test_largest_remainders(values: np.ndarray, total: int) -> None:
    """Mutants: the smallest remainders rounded up; the share not scaled to the total."""
    whole = round_to_total(values, total)
    assert whole.sum() == total
    assert whole.min() >= 0
    share = values * total / values.sum() if values.sum() > 0 else np.full(len(values), total / len(values))
    assert up_or_down(whole, share)
    rest = share - np.floor(share + 1e-9)
    raised = whole > np.floor(share + 1e-9)
    if raised.any() and not raised.all():
        assert rest[raised].min() >= rest[~raised].max() - 1e-6


@given(fractions, st.integers(0, 200))
def test_running_sums_keep_every_group_of_neighbours(values: np.ndarray, total: int) -> None:
    """Mutant: every weight rounded by itself."""
    whole = round_records(values, total)
    assert whole.sum() == total
    assert whole.min() >= 0
    if values.sum() > 0:
        share = values * total / values.sum()
        for a, b in itertools.combinations(range(len(values) + 1), 2):
            assert abs(whole[a:b].sum() - share[a:b].sum()) <= 1 + 1e-6


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 5), st.integers(2, 5), st.randoms(use_true_random=False), st.floats(0, 1))
def test_a_table_with_its_margins_can_always_be_rounded(a: int, b: int, random: object, zeros: float) -> None:
    """[Cox87]. Mutants: the total left free; ceilings of margins one too high."""
    rng = np.random.default_rng(random.getrandbits(32))  # type: ignore[attr-defined]
    cells = rng.exponential(3, (a, b)) * (rng.random((a, b)) < 0.3 + zeros)
    domain = sf.Domain({"x": a, "y": b})
    work = sf.marginals(domain, sets=[("x", "y"), ("x",), ("y",)])
    operator = joint_operator(work)
    asked = np.asarray(operator.matvec(cells.reshape(-1)), dtype=np.float64)
    for total in {int(np.floor(cells.sum())), int(np.ceil(cells.sum()))}:
        found = controlled_rounding(cells.reshape(-1), operator, total)
        assert found is not None
        assert found.sum() == total
        assert found.min() >= 0
        assert up_or_down(np.asarray(operator.matvec(found)), asked)


def test_most_of_what_is_nearly_up_goes_up() -> None:
    """Mutant: the reward's sign."""
    work = sf.identity(sf.Domain({"x": 4}), "x")
    found = controlled_rounding(np.array([0.9, 0.1, 0.8, 0.2]), joint_operator(work), 2)
    assert found is not None
    assert found.tolist() == [1, 0, 1, 0]


def impossible() -> np.ndarray:
    """A (3, 3, 3) table whose two-way sums are whole, and that no whole table with its zeros has."""
    rng = np.random.default_rng(0)
    work = sf.marginals(sf.Domain({"x": 3, "y": 3, "z": 3}), order=2)
    matrix = np.asarray(joint_operator(work).dense(), dtype=np.float64)
    for _ in range(2_000):
        sums = matrix @ rng.integers(0, 2, 27)
        found = linprog(rng.standard_normal(27), A_eq=matrix, b_eq=sums, bounds=(0, None)).x
        assert found is not None
        # a vertex: its support has no other table with these sums
        if np.abs(found - np.rint(found)).max() > 0.1:
            return found
    raise AssertionError("no fractional vertex was found")


def test_three_way_tables_need_not_have_a_rounding() -> None:
    cells = impossible()
    work = sf.marginals(sf.Domain({"x": 3, "y": 3, "z": 3}), order=2)
    total = round(cells.sum())
    assert controlled_rounding(cells, joint_operator(work), total) is None
    away = cells - np.rint(cells)
    # without the two-way sums there is one
    one = sf.marginals(sf.Domain({"x": 3, "y": 3, "z": 3}), order=1)
    found = controlled_rounding(cells, joint_operator(one), total)
    assert found is not None
    assert np.abs(found - cells).max() < 1
    assert np.abs(away).max() > 0.1


def test_whole_cells_stay_as_they_are() -> None:
    operator = joint_operator(sf.identity(sf.Domain({"x": 3}), "x"))
    cells = np.array([2.0, 0.0, 5.0 + 1e-9])
    found = controlled_rounding(cells, operator, 7)
    assert found is not None
    assert found.tolist() == [2, 0, 5]
    assert controlled_rounding(cells, operator, 8) is None


@pytest.mark.parametrize("cells", [4_001, 3])
def test_what_is_too_large_or_not_a_sum_of_cells_is_not_tried(cells: int) -> None:
    domain = sf.Domain({"x": sf.Integers(0, cells - 1)})
    work = sf.identity(domain, "x") if cells > 3 else sf.sums(domain, "x")
    values = np.full(cells, 0.5)
    assert controlled_rounding(values, joint_operator(work), round(cells / 2)) is None
