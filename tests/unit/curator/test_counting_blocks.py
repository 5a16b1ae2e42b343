"""Blocks answer every set of every family once, are few, and stay small; what is summed from them is right."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import sfumato as sf
from sfumato._util.codec import distinct_rows
from sfumato.curator.rows.counting import Cluster, ColumnCounts, cluster_blocks, one_block_per_set, sum_to_answers
from sfumato.domain import Domain
from sfumato.errors import PlanError
from sfumato.mechanisms import carry_out as run
from sfumato.plans import packing
from sfumato.plans.packing import pack_tables

Families = list[NDArray[np.int32]]


def family(sets: Sequence[Sequence[int]], order: int) -> NDArray[np.int32]:
    return np.array(sets, dtype=np.int32).reshape(len(sets), order)


def combinations(count: int, order: int) -> NDArray[np.int32]:
    return family(list(itertools.combinations(range(count), order)), order)


def check_clusters(shape: Sequence[int], sets: Families, found: list[Cluster]) -> int:
    """Every set is answered once, by a block that holds it; a block that no set is stays small. Returns how many."""
    answered: Counter[tuple[int, int]] = Counter()
    every = {tuple(s) for one in sets for s in one.tolist()}
    for cluster in found:
        assert cluster.positions.shape == (len(cluster.blocks), len(cluster.answers))
        for block, positions in zip(cluster.blocks.tolist(), cluster.positions.tolist(), strict=True):
            assert block == sorted(set(block))
            assert tuple(shape[a] for a in block) == cluster.sizes
            assert tuple(block) in every or math.prod(cluster.sizes) <= 2**18
            for (f, kept), p in zip(cluster.answers, positions, strict=True):
                assert [block[axis] for axis in kept] == sets[f][p].tolist()
                answered[f, p] += 1
    assert answered == Counter((f, p) for f, one in enumerate(sets) for p in range(len(one)))
    return sum(len(c.blocks) for c in found)


@st.composite
def families(draw: st.DrawFn) -> tuple[list[int], Families]:
    sizes = st.sampled_from([1, 2, 2, 3, 4, 10, 10, 10, 300])
    shape = draw(st.lists(sizes, min_size=1, max_size=70))
    axis = st.integers(0, len(shape) - 1)
    orders = st.lists(st.integers(0, min(5, len(shape))), min_size=1, max_size=4)
    sets: Families = []
    for order in draw(orders):
        if draw(st.booleans()):
            inside = draw(st.integers(order, max(order, min(len(shape), 9))))
            sets.append(combinations(inside, order))
        else:
            chosen = st.sets(axis, min_size=order, max_size=order).map(lambda s: tuple(sorted(s)))
            sets.append(family(draw(st.lists(chosen, unique=True, max_size=30)), order))
    return shape, sets


@settings(max_examples=150, deadline=None)
@given(families(), st.integers(0, 10**10))
def test_packing_answers_every_set_once(problem: tuple[list[int], Families], rows: int) -> None:
    check_clusters(*problem, cluster_blocks(*problem, *pack_tables(*problem, rows)))
    assert check_clusters(*problem, cluster_blocks(*problem, *one_block_per_set(*problem, rows))) == sum(
        map(len, problem[1])
    )


@pytest.mark.parametrize("way", ["_grow_by_sums", "_grow_one_by_one", "_alone"])
@settings(max_examples=80, deadline=None)
@given(problem=families(), rows=st.sampled_from([0, 3, 1000, 10**6, 10**10]))
def test_each_way_by_itself(way: str, problem: tuple[list[int], Families], rows: int) -> None:
    """Also a way that would not have been chosen, before and after poor blocks are given up."""
    shape, sets = problem
    if not any(map(len, sets)):
        return
    asked, which = packing._merge_families(len(shape), sets)
    found = packing._each_set_alone(asked) if way == "_alone" else getattr(packing, way)(shape, asked, rows)
    blocks, home = packing._drop_costly_blocks(shape, asked, found, rows)
    check_clusters(shape, sets, cluster_blocks(shape, sets, blocks, [home[w] for w in which]))
    if math.prod(shape) <= 2**18:
        blocks, home = found
        check_clusters(shape, sets, cluster_blocks(shape, sets, blocks, [home[w] for w in which]))


@pytest.mark.parametrize(
    ("size", "count", "rows", "order", "most"),
    [
        (8, 15, 10**6, 3, 60),
        (8, 15, 10**9, 3, 40),
        (20, 15, 10**6, 3, 160),
        (70, 15, 10**9, 3, 455),
        (8, 15, 100, 3, 576),
        (10, 100, 10_000, 3, 45_000),
        (10, 99, 10_000, 3, 44_000),
        (2, 100, 10_000, 3, 2_000),
        (2, 100, 10_000, 2, 150),
        (10, 40, 10**7, 4, 30_000),
    ],
)
def test_packing_saves_passes_over_the_records(size: int, count: int, rows: int, order: int, most: int) -> None:
    sets = [combinations(count, k) for k in range(order, -1, -1)]
    shape = [size] * count
    found = cluster_blocks(shape, sets, *pack_tables(shape, sets, rows))
    assert sum(len(c.blocks) for c in found) <= most
    answered = [np.zeros(len(s), dtype=np.int64) for s in sets]
    for cluster in found:
        for column, (f, kept) in enumerate(cluster.answers):
            positions = cluster.positions[:, column]
            np.add.at(answered[f], positions, 1)
            assert (cluster.blocks[:, list(kept)] == sets[f][positions]).all()
    assert all((a == 1).all() for a in answered)


def test_blocks_grow_by_small_attributes() -> None:
    """Mutant: growing by any attribute, which makes 150 blocks more."""
    shape, sets = [100] * 30 + [5] * 60, [combinations(90, 2)]
    assert check_clusters(shape, sets, cluster_blocks(shape, sets, *pack_tables(shape, sets, 20_000))) <= 1500


def test_no_block_outgrows_the_caches_however_many_records_it_would_save() -> None:
    shape, sets = [2, 10, 10, 300, 2, 3], [family([(0, 1, 2, 3), (0, 1, 2, 4)], 4)]
    for rows in (10**6, 10**10):
        check_clusters(shape, sets, cluster_blocks(shape, sets, *pack_tables(shape, sets, rows)))
    asked, which = packing._merge_families(6, sets)
    blocks, home = packing._drop_costly_blocks(shape, asked, (np.arange(6)[None], np.zeros(2, dtype=np.int64)), 10**10)
    check_clusters(shape, sets, cluster_blocks(shape, sets, blocks, [home[w] for w in which]))


def test_numbers_of_rows_that_do_not_fit_a_word_are_told_apart() -> None:
    rows = np.random.default_rng(1).integers(0, 2**20, (500, 9))
    rows = rows[np.random.default_rng(2).integers(0, 500, 2000)]
    first, kind = distinct_rows(rows, 2**20)
    np.testing.assert_array_equal(rows[first][kind], rows)
    np.testing.assert_array_equal(rows[first], np.unique(rows, axis=0))


@pytest.mark.parametrize(
    ("blocks", "homes"),
    [
        ([[0, 1]], [0, 0]),  # (0, 2) is in no block
        ([[0, 1], [0, 1]], [0, 1]),
        ([[0, 1], [0, 2]], [0, 0]),
        ([[0, 1], [0, 2]], [0, 2]),
        ([[0, 1], [0, 2]], [0, -1]),
        ([[0, 1], [0, 2]], [0]),
        ([[0, 1], [2, 0]], [0, 1]),
        ([[0, 0, 1], [0, 2, 3]], [0, 1]),
        ([[0, 1], [0, 4]], [0, 1]),
        ([[0, 1], [-1, 2]], [0, 1]),
    ],
)
def test_a_proposal_that_does_not_answer_every_set_is_refused(blocks: list[list[int]], homes: list[int]) -> None:
    """Mutants: a set that is not compared with what its block gives; blocks or homes taken as they come."""
    with pytest.raises(PlanError):
        cluster_blocks([2, 3, 4], [family([(0, 1), (0, 2)], 2)], np.array(blocks), [np.array(homes)])


@pytest.mark.parametrize("fails", [True, False])
def test_a_bad_proposal_is_not_followed(fails: bool) -> None:
    """Mutants: a proposal that decides what is counted; one that fails once the budget is spent."""

    def bad(shape: Sequence[int], sets: Families, rows: int) -> tuple[np.ndarray, list[np.ndarray]]:
        assert not fails
        return np.array([[0, 1]]), [np.zeros(len(s), dtype=np.int64) for s in sets]

    columns = tuple(np.array(c, dtype=np.uint8) for c in ([0, 1, 1], [2, 0, 1], [3, 3, 0]))
    counts = ColumnCounts(Domain({"a": 2, "b": 3, "c": 4}).grid, 3, (columns,), packing=bad)
    assert counts.count([("a", "c")])[("a", "c")].tolist() == [[0, 0, 0, 1], [1, 0, 0, 1]]


def test_who_proposes_is_told_nothing_of_the_records() -> None:
    """Mutants: the number of records handed over; only the proposal asked for that is followed."""
    told: list[list[int]] = []
    for rows in (0, 1, 3000, 70_000):
        asked: list[int] = []

        def proposing(shape: Sequence[int], sets: Families, size: int, asked: list[int] = asked) -> Any:
            asked.append(size)
            return pack_tables(shape, sets, size)

        columns = tuple(np.zeros(rows, dtype=np.uint8) for _ in range(3))
        counts = ColumnCounts(Domain({"a": 2, "b": 3, "c": 4}).grid, rows, (columns,), packing=proposing)
        assert counts.count([("a", "c"), ("b",)])[("b",)].tolist() == [rows, 0, 0]
        told.append(asked)
    assert len(told[0]) > 1
    assert all(asked == told[0] for asked in told)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(1, 4), st.integers(1, 70), st.data())
def test_every_subset_is_summed(sizes: list[int], count: int, last: int, data: st.DataObject) -> None:
    sizes = [*sizes, last]
    table = np.random.default_rng(len(sizes) + last).integers(0, 2**40, (count, *sizes))
    axes = st.sets(st.integers(0, len(sizes) - 1)).map(lambda s: tuple(sorted(s)))
    answers = tuple((0, kept) for kept in data.draw(st.lists(axes, max_size=8)))
    cluster = Cluster(np.zeros((count, len(sizes))), tuple(sizes), answers, np.zeros((count, len(answers))))
    seen: set[int] = set()
    for column, found in sum_to_answers(cluster, table.reshape(count, -1).copy()):
        lacking = tuple(i + 1 for i in range(len(sizes)) if i not in answers[column][1])
        np.testing.assert_array_equal(found, table.sum(axis=lacking))
        found[...] = -1  # the receiver's to keep: nothing later may depend on it
        seen.add(column)
    assert seen == set(range(len(answers)))


def test_a_release_counts_what_is_proposed(tmp_path: Path) -> None:
    """Mutant: a proposal that is lost between the plan and the records, which costs passes and nothing else."""
    table = tmp_path / "t.csv"
    table.write_text("a,b,c\n" + "0,1,2\n" * 1000, encoding="utf-8")
    domain = sf.Domain({n: sf.Integers(0, 3, outside="other", missing="other") for n in "abc"})
    plan = sf.plan(sf.marginals(domain, order=2), sf.zcdp(1), neighbours="add-remove")
    seen: list[list[int]] = []
    with pytest.MonkeyPatch.context() as patch:

        def noted(shape: Sequence[int], sets: Families, rows: int) -> Any:
            blocks, homes = pack_tables(shape, sets, rows)
            seen.append([rows, len(blocks)])
            return blocks, homes

        patch.setattr(run, "pack_tables", noted)
        sf.release(plan, table, ledger=None, name="n")
    assert seen
    assert {blocks for rows, blocks in seen if rows == 1024} == {1}
