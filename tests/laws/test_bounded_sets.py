"""Floors and caps of one set of cells beside those of totals: met wherever any table meets them, else refused."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

import sfumato as sf
from sfumato.errors import PlanError
from sfumato.postprocess import geography as parts
from sfumato.postprocess.geography_cells import (
    CellHalves,
    LevelBounds,
    TableCells,
    level_limits,
    real_family,
    splitting_chain,
    tighten_limits,
    whole_family,
)
from sfumato.strategies.geography_tree import PlaceOrder
from support.places import grown, nested, tree_codes

WHERE = "a1 in (0, 2)"


def bounded(rng: np.random.Generator, groups: int, most: int = 5, free: float = 0.4) -> np.ndarray:
    """(groups, 6) floors and caps of totals, inside and outside; some say nothing."""
    low = rng.integers(0, most, (groups, 3)).astype(float)
    high = low + rng.integers(0, most, (groups, 3))
    low[rng.random((groups, 3)) < free] = 0.0
    high[rng.random((groups, 3)) < free] = np.inf
    return np.stack([low, high], axis=2).reshape(groups, 6)


def is_possible(codes: list[np.ndarray], rows: dict[int, np.ndarray], total: float | None) -> bool:
    """Whether any numbers inside and outside of every leaf are within all bounds, by linear programming; the ends of
    what is possible are whole, for the matrix is that of a tree."""
    leaves = len(codes[-1])
    a: list[np.ndarray] = []
    b: list[float] = []
    for level, own in rows.items():
        groups = np.zeros(leaves, dtype=int) if level == 0 else codes[level - 1]
        for g, bounds in enumerate(own):
            here = (groups == g).astype(float)
            for row, (low, high) in zip(
                (np.tile(here, 2), np.append(here, 0 * here), np.append(0 * here, here)),
                bounds.reshape(3, 2),
                strict=True,
            ):
                a.append(-row)
                b.append(-low)
                if np.isfinite(high):
                    a.append(row)
                    b.append(high)
    equal = {} if total is None else {"A_eq": np.ones((1, 2 * leaves)), "b_eq": [total]}
    return bool(linprog(np.zeros(2 * leaves), A_ub=np.array(a), b_ub=b, **equal).status == 0)


def test_what_is_refused_is_what_no_table_meets() -> None:
    """1,000 random trees with random floors and caps at all levels, against linear programming.

    Mutants: a group's bounds added up before they agree with each other; the total's cap not told to the set.
    """
    rng = np.random.default_rng(11)
    seen = [0, 0]
    inside = np.array([True, False])
    for _ in range(1_000):
        codes = tree_codes(rng, 2, int(rng.integers(2, 6)))
        place = PlaceOrder.of(codes, len(codes[-1]))
        rows = {level: bounded(rng, int(codes[level - 1].max()) + 1, free=0.75) for level in (1, 2)}
        total = float(rng.integers(0, 30)) if rng.random() < 0.5 else None
        if rng.random() < 0.5:
            rows[0] = bounded(rng, 1, 12, 0.75)
        wanted = is_possible(codes, rows, total)
        try:
            found = level_limits(place, (), total, LevelBounds(rows, inside))
            assert found is not None
            assert wanted
        except PlanError:
            assert not wanted
        seen[wanted] += 1
    assert min(seen) > 100


@pytest.mark.parametrize("seed", range(40))
def test_families_keep_both_wherever_their_parent_does(seed: int) -> None:
    """Any parent within the sums of its children's bounds: whole numbers and real ones, all cells adding up.

    Mutants: totals chosen without regard to what must be inside; the set not split before all other tables; cells in
    the order of the domain.
    """
    rng = np.random.default_rng(seed)
    cells, n = TableCells((2, 3)), 6
    inside = rng.random(6) < 0.5
    inside[rng.permutation(6)[:2]] = [True, False]
    bounds = bounded(rng, n, 9)
    truth = rng.integers(0, 7, (n, 6))
    # as tight as can be about one table, now and then with nothing of a cell
    truth[:, rng.random(6) < 0.3] = 0
    for column, own in ((0, truth.sum(1)), (2, truth[:, inside].sum(1)), (4, truth[:, ~inside].sum(1))):
        bounds[:, column] = np.minimum(bounds[:, column], own)
        bounds[:, column + 1] = np.where(rng.random(n) < 0.5, own, np.maximum(bounds[:, column + 1], own))
    bounds = tighten_limits(bounds)
    sums = truth.sum(axis=0)
    where = np.flatnonzero(sums)
    if not len(where):
        return
    values = rng.gamma(0.2, 1, (n, len(where))) + 1e-12
    values *= sums[where] / values.sum(axis=0)
    halves = CellHalves.of(cells, where, splitting_chain(cells, [(), (1,)]), inside)
    for found, off in (
        (whole_family(values, sums[where], halves, bounds), 0.0),
        (real_family(values, sums[where].astype(float), halves, bounds), 1e-9),
    ):
        assert (found >= 0).all()
        assert np.abs(found.sum(axis=0) - sums[where]).max() <= off
        for column, own in (
            (0, found.sum(1)),
            (2, found[:, inside[where]].sum(1)),
            (4, found[:, ~inside[where]].sum(1)),
        ):
            assert (own >= bounds[:, column] - off).all()
            assert (own <= bounds[:, column + 1] + off).all()


@pytest.mark.parametrize("parted", [False, True], ids=["whole", "in parts"])
@pytest.mark.parametrize("seed", range(4))
def test_a_projection_keeps_to_a_set_of_cells_at_every_level(
    seed: int, parted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A facility stands in some units and holds a known number of people, and nobody is in one elsewhere.

    Mutants: the set of cells left out of the root, or of a part.
    """
    monkeypatch.setattr(parts, "_WHOLE", 0 if parted else 2**30)
    rng = np.random.default_rng(seed)
    work = nested(grown((3, 3, 3), rng, 0.4), (2, 3), [[], ["a0"], ["a0", "a1"]])
    x = rng.poisson(1.0, work.domain.shape)
    x[rng.random(len(x)) < 0.6, :, ::2] = 0
    plan = sf.plan(work, sf.zcdp("0.01"), neighbours="add-remove")
    release = sf.release(plan, sf.Histogram(x), ledger=None)
    stands, total = x[:, :, ::2].sum(axis=(1, 2)), x.sum(axis=(1, 2))
    grouping = work.domain.grouping("L1")
    assert grouping is not None
    county = np.bincount(grouping.groups, total)
    bounds: dict[Any, Any] = {("place", WHERE): (stands * rng.integers(0, 2, len(x)), np.where(stands > 0, np.inf, 0))}
    if seed % 2:
        bounds |= {"L1": (county - 1, county), "place": (0, total + 1), ("L0", f"not ({WHERE})"): (2, np.inf)}
    for integer, off in ((True, 0.0), (False, 1e-9)):
        found = release.project(body="spine", integer=integer, bounds=bounds)
        blocks = found.table("place", "a0", "a1").values
        held = blocks[:, :, ::2].sum(axis=(1, 2))
        assert blocks.min() >= 0
        assert (held >= bounds["place", WHERE][0] - off).all()
        assert (held <= bounds["place", WHERE][1] + off).all()
        sums = found.table("L1", "a0", "a1").values
        if seed % 2:
            assert (sums.sum(axis=(1, 2)) >= county - 1 - off).all()
            assert (sums.sum(axis=(1, 2)) <= county + off).all()
            assert (found.table("L0", "a0", "a1").values[:, :, 1].sum(axis=1) >= 2 - off).all()
        again = np.zeros_like(sums)
        np.add.at(again, grouping.groups, blocks)
        assert np.abs(again - sums).max() <= 100 * off
    # of one draw in a dozen, by chance, nobody is there either
    draws = (sf.release(plan, sf.Histogram(x), ledger=None) for _ in range(9))
    free = (r.project(body="spine", integer=True).table("place", "a0", "a1").values[:, :, ::2] for r in draws)
    assert any((held[stands == 0] > 0).any() for held in free)


def test_bounds_of_two_sets_beside_totals_say_too_little_of_their_sums() -> None:
    """Why one set of cells is taken and not two: a parent within all sums of its children's floors and caps, that no
    children add up to. The unit of the first child can be in either set, but the parent asks for one in each.
    """
    children = [  # the most of the total, in the first set, in the second; all others are free
        (1, 9, 9),
        (10, 1, 1),
    ]
    ends = [(h, min(a, h), min(b, h)) for h, a, b in children]
    parent = (2, 2, 7)
    assert sum(parent) <= sum(e[0] for e in ends)
    assert parent[0] <= sum(e[1] for e in ends)
    assert parent[1] <= sum(e[2] for e in ends)
    possible = [
        first
        for first in itertools.product(*(range(p + 1) for p in parent))
        if all(
            sum(t) <= h and t[0] <= a and t[1] <= b
            for t, (h, a, b) in zip((first, np.subtract(parent, first)), children, strict=True)
        )
    ]
    assert possible == []


def test_what_is_no_set_of_cells_is_refused() -> None:
    rng = np.random.default_rng(0)
    work = nested(grown((3, 3), rng, 0.4), (2, 3), [[], ["a0"], ["a0", "a1"]])
    x = rng.poisson(1.0, work.domain.shape)
    release = sf.release(sf.plan(work, sf.zcdp(1), neighbours="add-remove"), sf.Histogram(x), ledger=None)
    for words, wrong in (
        ("a second set", {("L0", "a0 == 0"): (0, 9), ("L0", "a1 == 0"): (0, 9)}),
        ("said by what was asked within units", {("L0", "L0 == '0.0'"): (0, 9)}),
        ("or by a level and a condition", {("L0", "a0 == 0", 3): (0, 9)}),
        ("no table is within these bounds", {("L0", "a0 == 0"): (5, 9), "place": (0, 1), "L0": (0, 4)}),
    ):
        with pytest.raises(PlanError, match=words):
            release.project(body="spine", bounds=wrong)


def test_cells_that_cannot_be_bound_a_set_too() -> None:
    """Mutant: floors of a set of which no cell can be, met by moving records that the noise put there."""
    rows = [("A", "1"), ("A", "2"), ("B", "3")]
    domain = sf.Domain(
        {"place": sf.Hierarchy(rows, levels=["state", "block"]), "a": 2, "b": 2}, impossible=["a == 0 and b == 0"]
    )
    work = sf.marginals(domain, sets=[[], ["a", "b"]], factors={"place": "levels"})
    plan = sf.plan(work, sf.zcdp(1), neighbours="add-remove", mechanism="marginals")
    release = sf.release(plan, sf.Histogram(np.full((3, 2, 2), 4)), ledger=None)
    with pytest.raises(PlanError, match="of the set"):
        release.project(body="spine", bounds={("state", "a == 0 and b == 0"): (1, 9)})
    found = release.project(body="spine", integer=True, bounds={("state", "a == 0"): (3, 3)})
    assert found.table("state", "a").values[:, 0].tolist() == [3, 3]
    assert found.table("a", "b").values[0, 0] == 0
