"""Whole records fitted to tables: the tree they are drawn along, and the moves that better them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.postprocess import rounding as moving
from sfumato.postprocess.records import spanning_records
from sfumato.postprocess.rounding import whole_records

Sets = list[tuple[int, ...]]


def table_of(
    codes: np.ndarray, axes: tuple[int, ...], sizes: list[int], counts: np.ndarray | None = None
) -> np.ndarray:
    out, each = np.zeros([sizes[i] for i in axes]), np.ones(len(codes)) if counts is None else counts
    if not axes:
        return np.array(float(each.sum()))
    np.add.at(out, tuple(codes[:, i] for i in axes), each)
    return out


def sampled(sizes: list[int], n: int, seed: int) -> np.ndarray:
    """Records whose attributes depend on each other."""
    rng = np.random.default_rng(seed)
    cells = rng.choice(math.prod(sizes), n, p=rng.dirichlet(np.full(math.prod(sizes), 0.1)))
    return np.stack(np.unravel_index(cells, sizes), axis=1)


def squares(codes: np.ndarray, counts: np.ndarray, sizes: list[int], axes: Sets, tables: list[np.ndarray]) -> float:
    n = counts.sum()
    return sum(
        float(((table_of(codes, a, sizes, counts) - t * n / t.sum()) ** 2).sum())
        for a, t in zip(axes, tables, strict=True)
    )


def information(table: np.ndarray) -> float:
    p = table / table.sum()
    q = p.sum(axis=1, keepdims=True) * p.sum(axis=0)
    return float((p[p > 0] * np.log(p[p > 0] / q[p > 0])).sum())


def test_the_tree_joins_what_depends_most() -> None:
    """Against all 16 trees on four attributes. Mutants: least instead of most; a cycle not refused."""
    sizes = [3, 2, 4, 3]
    for seed in range(5):
        people = sampled(sizes, 500, seed)
        pairs = list(itertools.combinations(range(4), 2))
        tables = [table_of(people, p, sizes) for p in pairs]
        worth = {p: information(t) for p, t in zip(pairs, tables, strict=True)}
        trees = [t for t in itertools.combinations(pairs, 3) if joined(t, 4)]
        assert len(trees) == 16
        best = max(trees, key=lambda t: sum(worth[p] for p in t))
        codes = spanning_records(sizes, pairs, tables, 20_000)
        # pairs on the tree are met: others are only as the tree makes them
        for p in best:
            wanted = tables[pairs.index(p)] * 40
            assert np.abs(table_of(codes, p, sizes) - wanted).max() < 10


def joined(tree: tuple[tuple[int, int], ...], count: int) -> bool:
    reached = {0}
    for _ in range(count):
        reached |= {x for p in tree if reached & set(p) for x in p}
    return len(reached) == count


def test_within_each_cell_counts_are_off_by_less_than_one() -> None:
    """Mutant: cells drawn independently."""
    sizes = [5, 4]
    table = np.random.default_rng(0).exponential(1, (5, 4))
    codes = spanning_records(sizes, [(0, 1)], [table], 997)
    found = table_of(codes, (0, 1), sizes)
    assert np.abs(found.sum(axis=1) - 997 * table.sum(axis=1) / table.sum()).max() < 1
    assert np.abs(found - found.sum(axis=1, keepdims=True) * table / table.sum(axis=1, keepdims=True)).max() < 1
    turned = spanning_records(sizes, [(1, 0)], [table.T], 997)
    assert table_of(turned, (0, 1), sizes).tolist() == found.tolist()


def test_pairs_are_read_from_larger_tables_and_the_rest_is_even() -> None:
    sizes = [2, 3, 2, 4]
    table = np.zeros((3, 2, 2))  # attributes 1, 2, 0
    table[0, 1, 0] = table[2, 0, 1] = 1.0
    codes = spanning_records(sizes, [(1, 2, 0)], [table], 40)
    assert np.unique(codes[:, :3], axis=0).tolist() == [[0, 0, 1], [1, 2, 0]]
    assert np.bincount(codes[:, 3]).tolist() == [10, 10, 10, 10]


def test_growth_is_what_squares_grow_by() -> None:
    """One record, all its cells by brute force. Mutants: the constant 1 per table dropped; a wrong stride."""
    sizes, axes = [3, 4, 2, 3], [(0, 1), (1, 2, 3), (3, 1), (2,), (2, 0, 3, 1)]
    rng = np.random.default_rng(3)
    tables = [rng.exponential(1, [sizes[i] for i in a]) for a in axes]
    codes = sampled(sizes, 30, 3).astype(np.int32)
    one = np.ones(30)
    for attribute, record in itertools.product(range(4), range(30)):
        every = []
        for cell in range(sizes[attribute]):
            changed = codes.copy()
            changed[record, attribute] = cell
            every.append(squares(changed, one, sizes, axes, tables))
        moves = moving._Moves(sizes, axes, tables, codes.copy(), rng)
        side = moves.sides[attribute]
        stacked = side.read()
        moved, cells = moves._moved(side, stacked, codes[record : record + 1], attribute)
        chosen = int(cells[0]) if len(moved) else int(codes[record, attribute])
        assert every[chosen] == pytest.approx(min(every))
        side.write(stacked)
        assert moves._squares() == pytest.approx(min(every))


def test_differences_stay_those_of_the_records() -> None:
    """Mutant: differences updated for records that did not move."""
    sizes, axes = [3, 4, 2, 3], [(0, 1), (1, 2, 3), (3, 1), ()]
    people = sampled(sizes, 400, 1)
    tables = [table_of(people, a, sizes) for a in axes]
    codes = spanning_records(sizes, axes, tables, 300)
    moves = moving._Moves(sizes, axes, tables, codes, np.random.default_rng(0))
    before = moves._squares()
    moves.run()
    for a, t, away in zip(axes, tables, moves.away, strict=True):
        assert np.allclose(away, table_of(moves.codes, a, sizes) - t * 300 / 400)
    assert moves._squares() < before


@pytest.mark.parametrize(("sizes", "order"), [([2] * 12, 2), ([6, 5, 4, 3, 2], 2), ([4, 3, 3, 2, 2], 3)])
def test_tables_of_some_records_are_met_almost_exactly(sizes: list[int], order: int) -> None:
    """Mutants: all that gain move at once; none move."""
    people = sampled(sizes, 1_000, 5)
    axes = list(itertools.combinations(range(len(sizes)), order))
    tables = [table_of(people, a, sizes) for a in axes]
    codes, counts = whole_records(sizes, axes, tables, 1_000)
    cells = sum(t.size for t in tables)
    assert math.sqrt(squares(codes, counts, sizes, axes, tables) / cells) < 1.5
    start = spanning_records(sizes, axes, tables, 1_000)
    assert squares(codes, counts, sizes, axes, tables) < squares(start, np.ones(1_000), sizes, axes, tables) / 10
    again = whole_records(sizes, axes, [t * 0.25 for t in tables], 1_000)
    assert again[0].tolist() == codes.tolist()
    assert again[1].tolist() == counts.tolist()


def test_records_given_are_changed_only_where_that_helps() -> None:
    sizes, axes = [4, 3, 2], [(0, 1), (1, 2)]
    people = sampled(sizes, 60, 2).astype(np.int32)
    tables = [table_of(people, a, sizes) for a in axes]
    given_records = people.copy()
    codes, counts = whole_records(sizes, axes, tables, 60, start=people)
    assert np.repeat(codes, counts, axis=0).tolist() == people[np.lexsort(people.T[::-1])].tolist()
    others = sampled(sizes, 60, 9).astype(np.int32)
    before = others.copy()
    codes, counts = whole_records(sizes, axes, tables, 60, start=others)
    assert squares(codes, counts, sizes, axes, tables) < squares(others, np.ones(60), sizes, axes, tables)
    assert people.tolist() == given_records.tolist()
    assert others.tolist() == before.tolist()


def test_very_many_records_are_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "FITTED", 500)
    sizes, axes = [4, 3, 2], [(0, 1), (1, 2), (0, 2)]
    tables = [table_of(sampled(sizes, 300, 4), a, sizes) for a in axes]
    some, few = whole_records(sizes, axes, tables, 500)
    codes, counts = whole_records(sizes, axes, tables, 10_007)
    assert counts.sum() == 10_007
    assert set(map(tuple, codes.tolist())) <= set(map(tuple, some.tolist()))
    monkeypatch.setattr(moving, "_WEIGHED", 0)
    alike, copies = whole_records(sizes, axes, tables, 10_007)
    assert alike.tolist() == some.tolist()
    assert np.abs(copies - few * 10_007 / 500).max() <= 1
    assert squares(codes, counts, sizes, axes, tables) <= squares(alike, copies, sizes, axes, tables)


def test_copies_bring_tables_as_near_as_records_are_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: as many copies of every record, which leaves tables as coarse as the records that were moved."""
    monkeypatch.setattr(moving, "FITTED", 200)
    sizes, axes = [4, 3, 5], [(0, 1), (1, 2), (0, 2)]
    tables = [table_of(sampled(sizes, 20_000, 6), a, sizes) for a in axes]
    codes, counts = whole_records(sizes, axes, tables, 20_000)
    far = [np.abs(table_of(codes, a, sizes, counts) - t).sum() / 20_000 for a, t in zip(axes, tables, strict=True)]
    assert max(far) < 0.01


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_tables(data: st.DataObject) -> None:
    """Inconsistent tables, empty ones, attributes in none: as many records as asked for, of the domain."""
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    some = st.lists(st.integers(0, len(sizes) - 1), unique=True, max_size=3).map(tuple)
    axes = data.draw(st.lists(some, max_size=5))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    tables = [np.floor(rng.exponential(1, [sizes[i] for i in a])) for a in axes]
    count = data.draw(st.integers(0, 40))
    codes, counts = whole_records(sizes, axes, tables, count)
    assert counts.sum() == count
    assert codes.shape == (len(counts), len(sizes))
    assert (codes >= 0).all()
    assert (codes < np.array(sizes)).all()
    assert len(np.unique(codes, axis=0)) == len(codes)


@pytest.mark.parametrize("seed", range(6))
def test_no_record_moves_where_none_can_be(seed: int) -> None:
    """Though the tables want many there. Mutants: masks not looked at; their axes taken in another order."""
    sizes, rng = [4, 3, 5], np.random.default_rng(seed)
    mask = rng.random((5, 3, 4)) < 0.6
    allowed = [((2, 1, 0), mask), ((0, 2), mask.any(axis=1).T), ((1,), np.array([True] * 3))]
    cells = np.argwhere(mask.transpose(2, 1, 0)).astype(np.int32)
    start = cells[rng.integers(0, len(cells), 400)]
    wanted = [rng.dirichlet(np.full(12, 0.3)).reshape(4, 3) * 400, rng.dirichlet(np.full(15, 0.3)).reshape(3, 5) * 400]
    codes, counts = whole_records(sizes, [(0, 1), (1, 2)], wanted, 400, start=start, seed=seed, allowed=allowed)
    assert counts.sum() == 400
    assert mask[codes[:, 2], codes[:, 1], codes[:, 0]].all()
    free, _ = whole_records(sizes, [(0, 1), (1, 2)], wanted, 400, start=start, seed=seed)
    assert not mask[free[:, 2], free[:, 1], free[:, 0]].all()

    def away(codes: np.ndarray, counts: np.ndarray) -> float:
        return sum(
            float(((table_of(codes, a, sizes, counts) - w) ** 2).sum())
            for a, w in zip([(0, 1), (1, 2)], wanted, strict=True)
        )

    assert away(codes, counts) < away(start, np.ones(400))
