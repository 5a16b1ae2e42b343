"""What noisy counts say of a column: ranges, cells, quartiles; and that no noise, however odd, ends it in an error."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.cells import Edges, Kinds
from sfumato.measurements import Measurement
from sfumato.mechanisms import profiles
from sfumato.operators import Tree
from sfumato.postprocess.column_shapes import (
    FINE_BRANCHING,
    SCALE_BRANCHING,
    ColumnCounts,
    clear_cells,
    counted_mean,
    date_edges,
    fine_edges,
    found_range,
    quantile_cell,
    round_number,
    scale_edges,
    smoothed_counts,
    tree_counts,
    with_coarser,
    year_edges,
)
from sfumato.present.profiles import profile_page, profile_spec
from sfumato.releases.profiles import Profile, ProfileLook, column_counts, column_kinds
from sfumato.releases.released import Provenance
from sfumato.specs import read_spec
from support.seeded import draws


def exact(counts: np.ndarray, error: float = 1e-3) -> ColumnCounts:
    """Counts that are as good as known, and no missing ones."""
    values = np.append(counts, 0.0).astype(float)
    return ColumnCounts(values, np.eye(len(values)) * error**2)


def on_scale(values: np.ndarray) -> ColumnCounts:
    return exact(np.histogram(values, np.array(scale_edges()))[0])


def test_the_scale_has_its_signs_and_octaves() -> None:
    edges = np.array(scale_edges())
    assert (np.diff(edges) > 0).all()
    assert (edges == -edges[::-1]).all()
    assert {0.0, 1.0, -1.0, 1024.0, 1792.0, 2048.0} <= set(edges)
    assert len(year_edges()) == 501
    assert year_edges()[320] == date(2020, 1, 1).toordinal()


@pytest.mark.parametrize(
    ("values", "low", "high", "width"),
    [
        (np.repeat(np.arange(1960, 2025), 100), 1792, 2048, 1.0),  # octaves alone are one cell of all years
        (np.repeat([0.0], 1000), None, None, None),
        (np.exp(np.random.default_rng(0).normal(10, 3, 20_000)), None, None, None),
        (-np.exp(np.random.default_rng(0).normal(0, 1, 20_000)), None, None, None),
    ],
)
def test_cells_lie_where_values_do(values: np.ndarray, low: Any, high: Any, width: Any) -> None:
    """Mutant: equal cells over the whole range, of which money fills three."""
    edges = np.array(fine_edges(on_scale(values), whole=False))
    assert (np.diff(edges) > 0).all()
    assert len(edges) <= 520
    counts = np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0]
    assert counts.sum() == len(values)
    if values.std() > 0:
        assert counts.max() < 0.03 * len(values)
    if width is not None:
        inside = edges[(edges >= low) & (edges <= high)]
        assert np.diff(inside) == pytest.approx(width)
    whole = np.array(fine_edges(on_scale(np.round(values)), whole=True))
    assert np.diff(whole[(whole >= 1) | (whole <= -1)]).min(initial=1.0) >= 0.25


def test_dates_are_told_by_days_months_or_years() -> None:
    def found(first: int, last: int) -> ColumnCounts:
        return exact(np.array([100.0 * (first <= y <= last) for y in range(1700, 2200)]))

    assert date_edges(found(2024, 2024))[0] == "day"
    assert date_edges(found(2000, 2024))[0] == "month"
    by, edges = date_edges(found(1800, 2024))
    assert by == "year"
    assert edges[0] == date(1800, 1, 1).toordinal()
    assert edges[-1] == date(2025, 1, 1).toordinal()


@pytest.mark.parametrize("branching", [SCALE_BRANCHING, FINE_BRANCHING])
def test_trees_are_read_back_by_least_squares(branching: int) -> None:
    """Mutant: the number of records taken in as if it was known to a record where it is not."""
    random, tree = np.random.default_rng(1), Tree(70, branching, root=False)
    matrix, counts = tree.rows(0, tree.shape[0]), np.arange(70.0)
    exactly = tree_counts(tree, matrix @ counts, 1.0).with_total(counts.sum(), 0.0)
    assert exactly.values == pytest.approx(counts, abs=1e-6)
    found = np.array(
        [
            tree_counts(tree, matrix @ counts + random.normal(0, 3, len(matrix)), 9.0)
            .with_total(counts.sum() + e, 25.0)
            .values
            for e in random.normal(0, 5, 4_000)
        ]
    )
    told = tree_counts(tree, matrix @ counts, 9.0).with_total(counts.sum(), 25.0)
    assert found.mean(axis=0) == pytest.approx(counts, abs=0.4)
    assert found.std(axis=0) == pytest.approx(told.errors, rel=0.1)
    upto = np.cumsum(found[:, :-1], axis=1).std(axis=0)
    assert upto == pytest.approx(told.errors_upto, rel=0.1)
    row = random.normal(size=70)
    assert (found @ row).std() == pytest.approx(told.error_of(row), rel=0.1)


def test_a_coarser_look_is_added() -> None:
    """Errors of what both looks say are those that are told. Mutants: cells cut where the coarser look has no edge, its
    values beyond the fine range left out, its counts taken for exact."""
    random, tree = np.random.default_rng(3), Tree(17, FINE_BRANCHING, root=False)
    coarse_tree = Tree(8, SCALE_BRANCHING, root=False)
    edges, coarse_edges = tuple(range(2, 19)), (0, 2, 4, 8, 11, 16, 20, 24)
    values = np.repeat(np.arange(24), 1 + 3 * np.arange(24))  # from below the fine range to beyond it
    whole, none = len(values) + 40, 40

    def cells(own: tuple[int, ...]) -> np.ndarray:
        at = np.clip(np.searchsorted(own, values, side="right") - 1, 0, len(own) - 2)
        return np.append(np.bincount(at, minlength=len(own) - 1), none).astype(float)

    fine, coarse = cells(edges), cells(coarse_edges)

    def seen(tree: Tree, counts: np.ndarray, error: float) -> ColumnCounts:
        sums = tree.rows(0, tree.shape[0]) @ counts
        return tree_counts(tree, sums + random.normal(0, error, len(sums)), error**2)

    found = [
        with_coarser(seen(tree, fine, 3.0), edges, seen(coarse_tree, coarse, 2.0), coarse_edges).with_total(
            whole + random.normal(0, 5), 25.0
        )
        for _ in range(4_000)
    ]
    upto = np.array([np.cumsum(k.values[:-1]) for k in found])
    assert upto.mean(axis=0) == pytest.approx(np.cumsum(fine[:-1]), abs=0.4)
    assert upto.std(axis=0) == pytest.approx(found[0].errors_upto, rel=0.1)
    alone = seen(tree, fine, 3.0).with_total(whole, 25.0)
    assert (found[0].errors_upto < alone.errors_upto).all()
    both = [edges.index(e) - 1 for e in (4, 8, 11, 16)]
    assert (found[0].errors_upto[both] < 0.75 * alone.errors_upto[both]).all()


def test_the_nearest_counts_that_are_not_negative() -> None:
    """They are the counts themselves where none is negative, and cut the noise of quantiles where cells are empty.

    Mutant: negative counts set to 0, which shifts what is counted up to a cell."""
    random, tree = np.random.default_rng(4), Tree(65, FINE_BRANCHING, root=False)
    counts = np.zeros(65)
    counts[[20, 30, 31, 50, 64]] = 300, 200, 200, 300, 100
    sums = tree.rows(0, tree.shape[0]) @ counts
    known = tree_counts(tree, sums, 1e-4).with_total(counts.sum(), 0.0)
    assert known.nonnegative == pytest.approx(counts, abs=0.01)
    plain, told = [], []
    for _ in range(200):
        noisy = tree_counts(tree, sums + random.normal(0, 40, len(sums)), 1600.0).with_total(counts.sum(), 100.0)
        assert (noisy.nonnegative >= 0).all()
        plain.append(np.cumsum(noisy.values[:-1]))
        told.append(np.cumsum(noisy.nonnegative[:-1]))
    at, true = [10, 25, 40, 60], np.array([0, 300, 700, 1000])
    before = np.sqrt(np.square(np.array(plain)[:, at] - true).mean())
    after = np.sqrt(np.square(np.array(told)[:, at] - true).mean())
    assert after < 0.7 * before


@given(st.floats(-1e12, 1e12), st.floats(1e-9, 1e9), st.floats(0, 1))
def test_a_cell_is_told_by_a_number_in_it(low: float, width: float, along: float) -> None:
    high = low + width
    if high <= low:
        return
    found = round_number(low, high, low + along * (high - low))
    assert low <= found < high


@pytest.mark.parametrize(
    ("low", "high", "near", "told"),
    [
        (12.0, 12.5, 12.4, 12.0),
        (1984.0, 1985.0, 1984.7, 1984.0),
        (24.5, 24.75, 24.6, 24.5),
        (4.5, 5.0, 4.9, 4.5),
        (-1.0, 3.0, 2.0, 0.0),
        (2030.11, 2045.3, 2044.0, 2040.0),
        (0.0, 0.25, 0.2, 0.0),
        (-13.0, -12.75, -12.8, -13.0),
    ],
)
def test_the_roundest_number_of_a_cell(low: float, high: float, near: float, told: float) -> None:
    assert round_number(low, high, near) == told


def test_quantiles_means_and_clear_cells() -> None:
    counts = exact(np.array([0, 10, 20, 10, 0]))
    assert quantile_cell(counts.values[:-1], 0.5) == (2, pytest.approx(0.5))
    assert found_range(counts)[:2] == (1, 3)
    assert clear_cells(counts).tolist() == [False, True, True, True, False]
    mean, error, within = counted_mean(counts, [0, 1, 2, 3, 4, 5], 1, 3)
    assert (mean, within) == (pytest.approx(2.5), pytest.approx(0.5))
    assert 0 < error < 1e-3
    assert quantile_cell(np.array([0.0, 4.0, 0.0, 4.0]), 0.5) == (1, pytest.approx(1.0))
    noisy = smoothed_counts(np.array([5.0, -5.0, 3.0, 10.0, -2.0]))
    assert (np.diff(noisy) >= 0).all()
    assert noisy[-1] == 11.0


def test_all_looks_at_a_column_are_read_together() -> None:
    """Errors of what three looks say together are those that are told, of few columns too, whose number of records and
    kinds come from the same noise.

    Mutants: kinds taken for independent of the number of records; the second look left out."""
    numbers = np.repeat(np.arange(1.0, 101.0), 20)
    frame = pd.DataFrame({"x": [*map(str, numbers), *[""] * 500], "y": ["a"] * 2_500})
    plan = sf.plan_profile(frame, sf.gdp(1), records=2_500)
    course, random = profiles._Course(plan), np.random.default_rng(6)
    kinds = {"x": [2_000, 0, 0, 500], "y": [0, 0, 2_500, 0]}

    def came(look: Any, noise: float) -> ProfileLook:
        values = []
        for block in look.blocks:
            (name,), (factor,) = block.attributes, block.factors
            rule = look.grid.rules[look.grid.axis(name)]
            if isinstance(rule, Kinds):
                counts = np.array(kinds[name])
            else:
                cells = np.clip(np.searchsorted(rule.edges, numbers, side="right") - 1, 0, len(rule.edges) - 2)
                counts = np.append(np.bincount(cells, minlength=len(rule.edges) - 1), 500)
            drawn = random.normal(0, noise * math.sqrt(look.noise.variance), block.rows)
            values.append(np.rint(factor.apply(counts[:, None])[:, 0] + drawn).astype(np.int64))
        return ProfileLook(look.grid, Measurement(look.blocks, tuple(values), look.noise))

    first = came(profiles._kinds_look(plan), 0.0)
    two = course.second(first)
    assert two is not None
    three = course.third(first, came(two, 0.0), {})
    assert three is not None
    found = []
    for _ in range(300):
        looks = [came(look, 1.0) for look in (profiles._kinds_look(plan), two, three)]
        told = column_counts(plan, looks, "x", column_kinds(plan, looks[0]))
        assert told is not None
        found.append(told[1])
    edges = np.array(cast(Edges, told[0]).edges)
    values = np.array([k.values for k in found])
    size = np.append(np.ones(len(edges) - 1), 0.0)
    half = np.append(edges[:-1] < 32, 0.0)
    for row, true in ((size, 2_000.0), (half, 620.0), (half - 0.31 * size, 0.0)):
        error = found[0].error_of(row)
        assert (values @ row).mean() == pytest.approx(true, abs=0.25 * error)
        assert (values @ row).std() == pytest.approx(error, rel=0.15)
    fine = tree_counts(three.blocks[0].factors[0].operator, looks[2].noisy("x")[1], looks[2].noisy("x")[2])
    assert found[0].error_of(half) < 0.85 * fine.error_of(half)


def test_no_noise_ends_a_description_in_an_error(tmp_path: Path) -> None:
    """All of it runs after the price is paid. Mutants: a range of no width; a logarithm of nothing; an edge twice."""
    frame = pd.DataFrame({name: ["1", "2"] for name in "abcde"})
    budget = sf.approx(1, "1e-6", thresholds="5e-7")
    plan = sf.plan_profile(frame, budget, records=10**6)
    plan = replace(plan, types=("", "integer", "date", "boolean", ""))
    course = profiles._Course(plan)
    where = Provenance("a", "b", 1, "c", True, "2026-11-28T00:00:00+00:00", ())
    told = 0
    for seed in range(draws(10)):
        random = np.random.default_rng(seed)

        def came(look: Any, random: np.random.Generator = random) -> ProfileLook | None:
            if look is None:
                return None
            values: list[np.ndarray] = []
            for block in look.blocks:
                kind, rows = int(random.integers(4)), block.rows
                at = np.zeros(rows, dtype=np.int64)
                if kind:  # nothing, one cell, a few, or anything at all
                    at[random.integers(0, rows, (0, 1, 5, rows)[kind])] = 2 ** int(random.integers(1, 40))
                values.append(at if kind < 3 else at * random.integers(-1, 2, rows))
            return ProfileLook(look.grid, Measurement(look.blocks, tuple(values), look.noise))

        first = came(profiles._kinds_look(plan))
        assert first is not None
        second = came(course.second(first))
        wanted = course.looks_for_labels(first)
        labels = {k.attribute: ("x", 'y"') for k in wanted}
        third = came(course.third(first, second, labels))
        found = Profile(plan, tuple(k for k in (first, second, third) if k is not None), labels, wanted, where)
        found.agree()
        assert found.facts()
        assert found.explain()
        assert "<html" in profile_page(found)
        told += sum(bool(c.quartiles) for c in found.columns.values())
        for column in found.columns.values():
            assert all(a < b for a, b in pairwise(column.edges))
            assert all(math.isfinite(v) for v in column.shares.values())
        path = tmp_path / f"{seed}.toml"
        path.write_text(profile_spec(found, ""), encoding="utf-8")
        if found.domain() is not None:
            assert read_spec(path).domain == found.domain()
    assert told > draws(1)
