"""Floors and caps of groups' totals: met exactly where any table meets them, and refused where none does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import PlanError
from sfumato.plans.plan import price_design
from sfumato.postprocess import geography as parts
from sfumato.postprocess.geography_cells import (
    CellHalves,
    LevelBounds,
    TableCells,
    level_limits,
    nearest_real,
    nearest_whole,
    splitting_chain,
    whole_family,
)
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies.design import Problem
from sfumato.strategies.geography_planning import design_geography
from sfumato.strategies.geography_tree import PlaceOrder
from support.places import grown, nested

LEVELS = ("L0", "L1", "place")


def declared(rng: np.random.Generator, mean: float = 1.0) -> tuple[sf.Workload, np.ndarray]:
    rows = grown((3, 3, 3), rng, 0.4)
    work = nested([rows[i] for i in rng.permutation(len(rows))], (2, 3), [[], ["a0"], ["a0", "a1"]])
    return work, rng.poisson(mean, work.domain.shape)


def totals(work: sf.Workload, x: np.ndarray, level: str) -> np.ndarray:
    found, sums = work.domain.grouping(level), x.sum(axis=(1, 2))
    return sums if found is None else np.bincount(found.groups, sums)


@pytest.mark.parametrize("parted", [False, True], ids=["whole", "in parts"])
@pytest.mark.parametrize("mechanism", ["marginals", "gaussian"])
@pytest.mark.parametrize("seed", range(3))
def test_bounds_hold_at_every_level_and_all_levels_agree(
    seed: int, mechanism: str, parted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds around the truth, some of them exact, at several levels at once; under much noise, so that most bind.

    Mutants: bounds of children left to those of their parent; bounds by the tree's order instead of groups' numbers;
    floors of whole numbers left out.
    """
    monkeypatch.setattr(parts, "_WHOLE", 0 if parted else 2**30)
    rng = np.random.default_rng(seed)
    work, x = declared(rng)
    asked = Problem(work, sf.zcdp("0.01"), PrivacyUnit(Neighbours.ADD_REMOVE), "gaussian")
    # by what was measured of the tree, and by the answers of another strategy
    made = (
        price_design(design_geography(asked)[0], asked)
        if mechanism == "marginals"
        else sf.plan(work, sf.zcdp("0.01"), neighbours="add-remove", mechanism=mechanism)
    )
    release = sf.release(made, sf.Histogram(x), ledger=None)
    bounds: dict[str, Any] = {}
    for level in LEVELS[: 1 + seed]:
        true = totals(work, x, level)
        room = rng.integers(0, 3, (2, len(true)))
        bounds[level] = (true - room[0], true + room[1])
    free = release.project(body="spine")
    for integer, off in ((True, 0.0), (False, 1e-9)):
        found = release.project(body="spine", integer=integer, bounds=bounds)
        for level, (low, high) in bounds.items():
            held = found.table(level).values
            assert (held >= low - off).all()
            assert (held <= high + off).all()
        assert found.projection is not None
        blocks = found.table("place", "a0", "a1").values
        assert blocks.min() >= 0
        for level in LEVELS[:2]:
            sums = np.zeros_like(found.table(level, "a0", "a1").values)
            grouping = work.domain.grouping(level)
            assert grouping is not None
            np.add.at(sums, grouping.groups, blocks)
            assert np.abs(sums - found.table(level, "a0", "a1").values).max() <= 100 * off
    low, high = bounds["L0"]
    outside = free.table("L0").values
    assert ((outside < low) | (outside > high)).any()


def test_bounds_that_say_nothing_change_nothing() -> None:
    work, x = declared(np.random.default_rng(5), 9.0)
    release = sf.release(sf.plan(work, sf.zcdp(1), neighbours="add-remove"), sf.Histogram(x), ledger=None)
    plain, bounded = (release.project(body="spine", bounds=b) for b in (None, {"L1": (0, 10**9)}))
    assert np.abs(plain.answers - bounded.answers).max() < 0.05
    exact = totals(work, x, "L1")
    kept = release.project(body="spine", integer=True, bounds={"L1": (exact, exact), "place": (0, np.inf)})
    assert np.array_equal(kept.table("L1").values, exact)


def test_bounds_that_no_table_meets_are_refused_and_others_never() -> None:
    """Against what trees say by brute force: floors and caps from random tables, with some moved apart.

    Mutant: a parent's own bounds alone looked at.
    """
    rng = np.random.default_rng(7)
    work, x = declared(rng)
    release = sf.release(sf.plan(work, sf.zcdp(1), neighbours="add-remove"), sf.Histogram(x), ledger=None)
    county, block = totals(work, x, "L1"), totals(work, x, "place")
    for bad in (
        {"L1": (county, county - 1)},
        {"L1": (0, county - 1), "place": (block, np.inf)},
        {"L1": (county + 1, np.inf), "place": (0, block)},
        {"L0": (totals(work, x, "L0") + 1, np.inf), "place": (0, block)},
    ):
        with pytest.raises(PlanError, match=r"no table is within these bounds: (L0|L1|place) '"):
            release.project(body="spine", bounds=bad)
    for words, wrong in (
        ("levels of place", {"a0": (0, 1)}),
        ("are a pair", {"L1": 7}),
        ("one for each group", {"L1": (0, county[:-1])}),
        ("one for each group", {"L1": (np.nan, 3)}),
        ("not None. Where there is no floor give 0", {"L1": (None, 3)}),
    ):
        with pytest.raises(PlanError, match=words):
            release.project(body="spine", bounds=wrong)
    with pytest.raises(PlanError, match="body='spine' alone"):
        release.project(body="local", bounds={"L1": (0, 9)})
    within = sf.plan(work, sf.zcdp(1), neighbours="replace-one within L0", public={("L0",): totals(work, x, "L0")})
    with pytest.raises(PlanError, match="no table is within"):
        sf.release(within, sf.Histogram(x), ledger=None).project(bounds={"L1": (0, county - 1)})


@pytest.mark.parametrize("seed", range(20))
def test_real_splits_are_the_nearest(seed: int) -> None:
    """Mutant: what is left of the sum added to all alike, below zero or above the most."""
    rng = np.random.default_rng(seed)
    most = rng.random((6, 4)) * 5
    sums = most.sum(axis=0) * rng.random(4)
    wanted = rng.normal(2, 3, (6, 4))
    found = nearest_real(wanted, most, sums)
    assert (found >= 0).all()
    assert (found <= most).all()
    assert np.abs(found.sum(axis=0) - sums).max() < 1e-9
    # what is strictly inside moved alike, what is at an end by no less
    for c in range(4):
        inside = (found[:, c] > 1e-9) & (found[:, c] < most[:, c] - 1e-9)
        moved = (found - wanted)[:, c]
        if inside.any():
            shift = moved[inside][0]
            assert np.abs(moved[inside] - shift).max() < 1e-7
            assert (moved[found[:, c] <= 1e-9] >= shift - 1e-7).all()
            assert (moved[found[:, c] >= most[:, c] - 1e-9] <= shift + 1e-7).all()


@pytest.mark.parametrize("seed", range(20))
def test_whole_families_keep_their_bounds_wherever_real_numbers_are(seed: int) -> None:
    """Mutant: totals of whole numbers chosen without the bounds, which the real numbers before them mostly keep."""
    rng = np.random.default_rng(seed)
    cells = TableCells((2, 3))
    truth = rng.integers(0, 9, (5, 6))
    own = truth.sum(axis=1)
    bounds = np.stack([own - rng.integers(0, 2, 5), own + rng.integers(0, 2, 5)], axis=1).astype(float)
    values = rng.gamma(0.3, 1, (5, 6)) + 1e-9
    values *= truth.sum(axis=0) / values.sum(axis=0)
    halves = CellHalves.of(cells, np.arange(6), splitting_chain(cells, [()]))
    found = whole_family(values, truth.sum(axis=0), halves, bounds)
    assert (found >= 0).all()
    assert (found.sum(axis=0) == truth.sum(axis=0)).all()
    assert (bounds[:, 0] <= found.sum(axis=1)).all()
    assert (found.sum(axis=1) <= bounds[:, 1]).all()


def test_sums_that_no_whole_numbers_have_are_told_at_once() -> None:
    """Mutant: a unit looked for, for ever, where there is no room for one."""
    for sums in ([5], [-1]):
        with pytest.raises(AssertionError, match="no whole numbers"):
            nearest_whole(np.ones((2, 1)), np.full((2, 1), 2), np.array(sums))


def test_nothing_is_said_where_nothing_is_bounded() -> None:
    place = PlaceOrder.of([np.array([0, 0, 1])], 3)
    assert level_limits(place, (), None, LevelBounds({})) is None
    assert level_limits(place, (), 7.0, LevelBounds({})) is None
    given = np.array([[2.0, 9.0, 0, np.inf, 0, np.inf], [1.0, np.inf, 0, np.inf, 0, np.inf]])
    found = level_limits(place, (), 7.0, LevelBounds({1: given}))
    assert found is not None
    root, level = found.levels
    assert root is not None
    assert level is not None
    assert root[:, :2].tolist() == [[7.0, 7.0]]
    assert level[:, :2].tolist() == [[2.0, 9.0], [1.0, np.inf]]
