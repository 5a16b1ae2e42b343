"""The largest change of a measurement is that between cells whose columns lie at the ends of all others."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato import check_maps
from sfumato._util.codec import value_fingerprint
from sfumato.maps import (
    AlikeMap,
    BlockMap,
    CombinationMap,
    DenseMap,
    Map,
    MergedMap,
    MultipleMap,
    TotalMap,
)
from sfumato.maps.structured import KroneckerMap, RangesMap, SparseMap, StackMap
from sfumato.maps.toeplitz import ToeplitzMap
from sfumato.privacy import columns as columns_module
from sfumato.privacy.columns import distinct_columns
from sfumato.privacy.replaced import Certificate, ColumnPairs
from sfumato.privacy.sensitivity import best_certified, certified_bound
from sfumato.privacy.terms import MapTerms
from sfumato.privacy.unit import Neighbours, PrivacyUnit, Within
from sfumato.strategies.certificates import propose_certificates

SWAP = PrivacyUnit(Neighbours.REPLACE_ONE)


def _map(rng: np.random.Generator, n: int, depth: int = 0) -> Map:
    """A map over n cells, of any class, most of them of few rows."""
    line = np.outer(rng.integers(-3, 4, 2), rng.integers(-5, 6, n)) + rng.integers(-2, 3, (2, 1))
    entries = rng.integers(-4, 5, (int(rng.integers(1, 4)), n))
    first = rng.integers(0, n, 2)
    codes = rng.integers(-1, 3, n)
    plain: list[Map] = [
        DenseMap(line),
        DenseMap(entries),
        TotalMap(n),
        AlikeMap(n),
        AlikeMap(n, n, -1),
        RangesMap(first, rng.integers(first, n) + 1, n),
        SparseMap(entries[0], np.arange(n), np.array([0, n]), n),
        MergedMap(DenseMap(rng.integers(-4, 5, (2, 3))), codes),
        ToeplitzMap(rng.integers(0, 4, n), rng.integers(0, 3, n)),
    ]
    made = plain[int(rng.integers(len(plain)))]
    if depth:
        return made
    two = [StackMap((made, _map(rng, n, 1))), MultipleMap(made, int(rng.integers(-3, 4))), made, made]
    if n % 2 == 0:
        two.append(KroneckerMap((_map(rng, 2, 1), _map(rng, n // 2, 1))))
    return two[int(rng.integers(len(two)))]


def _case(rng: np.random.Generator) -> tuple[list[BlockMap], dict[str, int]]:
    sizes = {a: int(rng.integers(1, 5)) for a in "abc"[: int(rng.integers(1, 4))]}
    blocks = list[BlockMap]()
    for _ in range(int(rng.integers(1, 4))):
        some = [a for a in sizes if rng.random() < 0.7]
        cut = 2 if len(some) > 1 and rng.random() < 0.3 else min(1, len(some))
        groups = tuple(g for g in (tuple(some[:cut]), *((a,) for a in some[cut:])) if g)
        blocks.append(BlockMap(groups, tuple(_map(rng, int(np.prod([sizes[a] for a in g]))) for g in groups)))
    return blocks, sizes


def _all(blocks: list[BlockMap], sizes: dict[str, int]) -> Any:
    """(cells, rows) the column of every joint cell."""
    out: list[Any] = []
    for cell in itertools.product(*(range(n) for n in sizes.values())):
        at, column = dict(zip(sizes, cell, strict=True)), list[int]()
        for block in blocks:
            part: Any = np.ones(1, dtype=object)
            for group, factor in zip(block.groups, block.factors, strict=True):
                i = np.ravel_multi_index([at[a] for a in group], [sizes[a] for a in group])
                unit = np.eye(factor.shape[1], 1, -int(i), dtype=np.int64)
                part = np.kron(part, factor.apply(unit)[:, 0].astype(object))
            column += part.tolist()
        out.append(column)
    return np.array(out, dtype=object)


def _far(columns: Any, power: int, near: Any = None) -> int:
    pairs = itertools.combinations(range(len(columns)), 2)
    return max(
        (int((abs(columns[i] - columns[j]) ** power).sum()) for i, j in pairs if near is None or near[i] == near[j]),
        default=0,
    )


@pytest.mark.parametrize("start", range(8))
@pytest.mark.parametrize("power", [1, 2])
def test_no_pair_of_columns_is_further_apart_than_some_of_the_ends(start: int, power: int) -> None:
    """Seeds 0 to 159. Mutants: the second of two numbers told by the first though no multiple of it; the largest
    number taken for both ends; the hull's upper half left out; of a joint
    group the ends of one factor; numbers of two slots held against each other slot by slot.
    """
    for seed in range(start * 20, start * 20 + 20):
        rng = np.random.default_rng([123, seed])
        blocks, sizes = _case(rng)
        columns = _all(blocks, sizes)
        true, largest = _far(columns, power), int((abs(columns) ** power).sum(axis=1).max())
        ends = distinct_columns(blocks, sizes, ends=True).T.astype(object)
        assert {tuple(c) for c in ends.tolist()} <= {tuple(c) for c in columns.tolist()}
        assert _far(ends, power) == true, seed
        assert int((abs(ends) ** power).sum(axis=1).max()) == largest
        found = best_certified(blocks, sizes, SWAP, power, propose_certificates)[0]
        assert found.value >= true
        assert not found.exact or found.value == true
        if power == 2:
            assert ColumnPairs(MapTerms.of(blocks, sizes, power), sizes, largest).bound(Certificate("pairs")) == (
                true,
                True,
            )
        combined = CombinationMap(tuple(blocks), rng.integers(-3, 4, (2, columns.shape[1])))
        sums = columns @ combined.matrix.T.astype(object)
        assert certified_bound([combined], sizes, SWAP, power) >= _far(sums, power)


@pytest.mark.parametrize("power", [1, 2])
def test_where_records_are_replaced_within_groups_no_cell_is_left_out(power: int) -> None:
    """Mutant: ends of all cells, of which those of one group may be none: 0, 1, 9, 10 with 1 and 9 in one group."""
    codes = np.array([0, 1, 1, 2])
    within = Within("g", "a", value_fingerprint(("a", codes)), codes)
    unit = PrivacyUnit(Neighbours.REPLACE_ONE, within=within)
    block = BlockMap((("a",),), (DenseMap(np.array([[0, 1, 9, 10]])),))
    found = best_certified([block], {"a": 4}, unit, power, propose_certificates)[0]
    assert found.value >= 8**power
    assert not found.exact or found.value == 8**power


def test_corners_are_exact_in_any_size() -> None:
    """Mutants: cross products of int64, which wrap; differences beyond int64."""
    rng = np.random.default_rng(7)
    for bits in (3, 30, 40, 61, 63):
        points = rng.integers(1 - 2**bits, 2**bits - 1, (40, 2))
        for found in (columns_module._hull_points(points), np.array(check_maps.convex_hull_corners(points))):  # pyright: ignore[reportPrivateUsage]
            for way in rng.integers(-9, 10, (50, 2)).astype(object):
                assert (points.astype(object) @ way).max() == (points[found].astype(object) @ way).max()


@pytest.mark.parametrize("start", range(4))
def test_the_stranger_finds_the_same_of_corners_and_of_combinations(start: int) -> None:
    """Seeds 0 to 199. Mutants: corners on one side of the line alone; the columns of one map of an attribute alone."""
    for seed in range(start * 50, start * 50 + 50):
        rng = np.random.default_rng([124, seed])
        n = int(rng.integers(2, 9))
        rows = [rng.integers(-4, 5, (int(rng.integers(1, 3)), n)) for _ in range(2)]
        ops = {str(i): check_maps.Doc({"~class": "Dense", "matrix": m}) for i, m in enumerate(rows)}
        ops["g"] = check_maps.Doc({"~class": "Identity", "n": 3})
        blocks = [(1, ((("a",), "0"), (("g",), "g"))), (2, ((("a",), "1"),))]
        matrix = np.concatenate([np.kron(rows[0], np.eye(3, dtype=int)), 2 * np.kron(rows[1], np.ones((1, 3), int))])
        for power in (1, 2):
            found = check_maps.largest_record_change(blocks, ops, {"a": n, "g": 3}, power, replace=True, public=True)
            assert found == (_far(matrix.T.astype(object), power), True)


def test_a_sum_of_very_many_values_costs_its_range() -> None:
    """Twice the largest column before. Mutant: the cells of many values not looked at."""
    for cells in (5_001, 300_001):
        block = BlockMap((("a",),), (DenseMap(np.arange(-7, cells - 7)[None]),))
        assert best_certified([block], {"a": cells}, SWAP, 2, propose_certificates)[0].value == (cells - 1) ** 2
        assert best_certified([block], {"a": cells}, SWAP, 1, propose_certificates)[0].value == cells - 1


@pytest.mark.parametrize("counts", [False, True])
def test_sums_by_groups_of_replaced_records_reach_their_bound(counts: bool, tmp_path: Any) -> None:
    """Mutants: sums alone, sums and counts apart; means that nobody tells because joint cells are many."""
    domain = sf.Domain({"g": 30, "x": sf.Integers(0, 20_000)})
    sums = sf.sums(domain, "x", by=["g"])
    plan = sf.plan(
        sf.stack(sums, sf.marginals(domain, sets=[("g",)])) if counts else sums,
        sf.zcdp("0.5"),
        neighbours="replace-one",
    )
    assert plan.lower_bound is not None
    assert plan.objective_value <= 1.005 * plan.lower_bound
    table = np.zeros((30, 20_001), dtype=np.int64)
    table[:, [10, 20_000]] = 10**6
    ledger = sf.Ledger.create(tmp_path / "b.db", total=sf.zcdp(1))
    release = sf.release(plan, sf.Histogram(table), ledger=ledger, name="x", out=tmp_path / "x")
    if counts:
        found = np.array(release.mean("x", by="g")["mean x"])
        assert np.abs(found - 10_005).max() < 20
