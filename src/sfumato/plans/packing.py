"""Which tables are best counted, so that every asked one follows from them by summation: a proposal to the wall.

Arithmetic on positions of attributes; no record is seen here. A number of records decides how much is
packed together, which changes how long counting takes and nothing else: the wall asks for a few numbers, tells nobody
which is near its own, and checks that every set lies in the block that is to answer it.

A block is a set of attributes that is counted; a set that is asked is answered by one block that holds it.
Three ways to choose blocks are compared by their estimated cost, in records counted:

* every set is its own block;
* sets of r groups of attributes grow by one more group, so that group numbers add up to 0 modulo their
  number: r + 1 sets share a block, found by arithmetic alone, for hundreds of thousands of sets;
* one block after the other grows by whatever pays best, where sets are few and records many.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import distinct_rows

Sets = Sequence[NDArray[np.int32]]
Positions = NDArray[np.int64]
Blocks = tuple[Positions, Positions]
"""(blocks, width) ascending positions, filled up with the number of attributes; (sets,) the block of every set."""

# Grown blocks stay where a core's caches still help.
_MAX_BLOCK_CELLS = 2**18
# What cells cost, in records counted: to clear, count and check one, and to sum one away (bench/counting.py).
_CELL_COST = 0.5
_SUM_COST = 0.3  # the same
# What a further cluster costs in the same unit, whatever its size.
_CLUSTER_COST = 30_000
# What choosing blocks one by one costs per pair of sets, and where it takes longer than it can save.
_PAIR_COST = 5
_MAX_ONE_BY_ONE = 5000  # sets: their pairs take 25 million steps, seconds
# Subsets of blocks looked through for smaller sets.
_MAX_LOOKUPS = 2**21


def pack_tables(shape: Sequence[int], sets: Sets, rows: int) -> tuple[Positions, list[Positions]]:
    """Blocks to count, and of every family the block of each set, for about the least time with `rows` records.

    shape: cells of every attribute; sets: one array (count, order) per family, of ascending positions.
    Returns (blocks, width) ascending positions, filled up with the number of attributes, and one array of numbers of
    blocks per family: what `curator.rows.counting` takes for a proposal, and checks.
    """
    if not any(map(len, sets)):
        return np.zeros((0, 0), dtype=np.int64), [np.zeros(len(s), dtype=np.int64) for s in sets]
    asked, which = _merge_families(len(shape), sets)
    best = _each_set_alone(asked)
    least = _packing_cost(shape, asked, best, rows)
    grown = _drop_costly_blocks(shape, asked, _grow_by_sums(shape, asked, rows), rows)
    cost = _packing_cost(shape, asked, grown, rows)
    if cost < least:
        best, least = grown, cost
    effort = _PAIR_COST * len(asked) ** 2
    if len(asked) <= _MAX_ONE_BY_ONE and effort < least / 4:
        grown = _grow_one_by_one(shape, asked, rows)
        best = grown if _packing_cost(shape, asked, grown, rows) < least else best
    blocks, home = best
    return blocks, [home[w] for w in which]


def _merge_families(count: int, sets: Sets) -> tuple[Positions, list[Positions]]:
    """The distinct sets of all families, filled up with `count`, and which of them each family names."""
    rows = np.full((sum(map(len, sets)), max(s.shape[1] for s in sets if len(s))), count)
    ends = np.cumsum([len(s) for s in sets])
    for one, end in zip(sets, ends, strict=True):
        if len(one):
            rows[end - len(one) : end, : one.shape[1]] = one
    first, kind = distinct_rows(rows, count + 1)
    return rows[first], np.split(kind, ends[:-1])


def _count_block_cells(sizes: Sequence[float], blocks: Positions) -> NDArray[np.float64]:
    return np.append(np.asarray(sizes, dtype=np.float64), 1.0)[blocks].prod(axis=1)


def _price_blocks(cells: NDArray[np.float64], sums: NDArray[np.int64], rows: int) -> NDArray[np.float64]:
    """What blocks cost, the `sums` largest of whose subsets are summed from all their cells."""
    return rows + cells * (_CELL_COST + _SUM_COST * sums)


def _count_block_sums(asked: Positions, found: Blocks, count: int) -> NDArray[np.int64]:
    """How many times all cells of a block are read to be summed: once for each axis that some answer lacks."""
    blocks, home = found
    width = (blocks < count).sum(axis=1)
    fewer = (asked < count).sum(axis=1) < width[home]
    return np.minimum(np.bincount(home[fewer], minlength=len(blocks)), width)


def _packing_cost(shape: Sequence[int], asked: Positions, found: Blocks, rows: int) -> float:
    blocks = found[0]
    kinds, _ = distinct_rows(np.append(np.asarray(shape, dtype=np.int64), 0)[blocks], max(shape, default=0) + 1)
    price = _price_blocks(_count_block_cells(shape, blocks), _count_block_sums(asked, found, len(shape)), rows)
    return float(price.sum()) + _CLUSTER_COST * len(kinds)


def _each_set_alone(asked: Positions) -> Blocks:
    return asked, np.arange(len(asked))


def _drop_costly_blocks(shape: Sequence[int], asked: Positions, found: Blocks, rows: int) -> Blocks:
    """The same without the blocks that are too large or cost more than their sets by themselves."""
    blocks, home = found
    cells = _count_block_cells(shape, blocks)
    alone = _price_blocks(_count_block_cells(shape, asked), np.zeros(len(asked), dtype=np.int64), rows)
    joint = _price_blocks(cells, _count_block_sums(asked, found, len(shape)), rows)
    poor = (joint >= np.bincount(home, weights=alone, minlength=len(blocks))) | (cells > _MAX_BLOCK_CELLS)
    poor = poor[home]
    whole = np.full((int(poor.sum()), blocks.shape[1]), len(shape))
    whole[:, : asked.shape[1]] = asked[poor]
    kept, new = np.unique(home[~poor], return_inverse=True)
    moved = np.empty(len(asked), dtype=np.int64)
    moved[~poor] = new
    moved[poor] = len(kept) + np.arange(len(whole))
    return np.concatenate([blocks[kept], whole]), moved


def _grow_by_sums(shape: Sequence[int], asked: Positions, rows: int) -> Blocks:
    """Groups of small attributes, and blocks of groups whose numbers add up to 0 modulo the number of groups.

    Of all sets of r groups, r + 1 lie in each such block but for the few where the sum leads back into the set.
    """
    count, order = len(shape), asked.shape[1]
    target = min(max(2 * rows, 64), _MAX_BLOCK_CELLS) ** (1 / (order + 1))
    group, sizes = _group_attributes(shape, target)
    small, number = int((np.array(sizes) <= target).sum()), len(sizes)
    spread = np.sort(np.append(group, number)[asked], axis=1)
    spread[:, 1:][spread[:, 1:] == spread[:, :-1]] = number
    spread.sort(axis=1)
    first, kind = distinct_rows(spread, number + 1)
    wanted = spread[first]
    width = (wanted < number).sum(axis=1)
    blocks = np.zeros((0, order + 1), dtype=np.int64)
    home = np.zeros(len(wanted), dtype=np.int64)
    for r in range(order, -1, -1):
        todo = np.flatnonzero(width == r)
        home[todo] = _find_holding_blocks(blocks, wanted[todo, :r], number)
        todo = todo[home[todo] < 0]
        new, inside = _extend_blocks(wanted[todo, :r], sizes, small, rows)
        home[todo] = len(blocks) + inside
        blocks = np.concatenate([blocks, np.pad(new, ((0, 0), (0, order - r)), constant_values=number)])
    members = [np.flatnonzero(group == g) for g in range(number)]
    table = np.full((number + 1, max(map(len, members), default=0)), count)
    for g, inside in enumerate(members):
        table[g, : len(inside)] = inside
    flat = np.sort(table[blocks].reshape(len(blocks), -1), axis=1)
    return flat[:, : max(order, int((flat < count).sum(axis=1).max(initial=0)))], home[kind]


def _group_attributes(shape: Sequence[int], target: float) -> tuple[Positions, list[int]]:
    """The group of every attribute, and the cells of every group: at most `target` unless it is one attribute."""
    group = np.zeros(len(shape), dtype=np.int64)
    sizes: list[int] = []
    for a in sorted(range(len(shape)), key=lambda a: shape[a]):
        if not sizes or sizes[-1] * shape[a] > target:
            sizes.append(1)
        sizes[-1] *= shape[a]
        group[a] = len(sizes) - 1
    return group, sizes


def _find_holding_blocks(blocks: Positions, sets: Positions, number: int) -> Positions:
    """The first block that holds each set, -1 where none does (or where looking would take too long)."""
    order = sets.shape[1]
    if not len(blocks) or not len(sets) or math.comb(blocks.shape[1], order) * len(blocks) > _MAX_LOOKUPS:
        return np.full(len(sets), -1)
    chosen = list(itertools.combinations(range(blocks.shape[1]), order))
    inside = blocks[:, np.array(chosen, dtype=np.int64).reshape(len(chosen), order)].reshape(
        len(blocks) * len(chosen), order
    )
    first, kind = distinct_rows(np.concatenate([inside, sets]), number + 1)
    block = np.where(first < len(inside), first // len(chosen), -1)
    return block[kind[len(inside) :]]


def _extend_blocks(sets: Positions, sizes: Sequence[int], small: int, rows: int) -> Blocks:
    """Blocks of one group more, or of as many where that does not pay; the last column may be empty."""
    number, order = len(sizes), sets.shape[1]
    further = -sets.sum(axis=1) % max(small, 1)
    # A sum that leads back into the set gives a union that no other set shares, so it does not pay.
    unions = np.sort(np.column_stack([sets, further]), axis=1)
    first, kind = distinct_rows(unions, number + 1)
    alone = _price_blocks(_count_block_cells(sizes, sets), np.zeros(len(sets), dtype=np.int64), rows)
    shared = np.minimum(np.bincount(kind, minlength=len(first)), order + 1)
    joint = _price_blocks(_count_block_cells(sizes, unions[first]), shared, rows)
    pays = (np.bincount(kind, weights=alone, minlength=len(first)) > joint)[kind]
    whole = np.column_stack([sets, np.full(len(sets), number)])
    blocks = np.where(pays[:, None], unions, whole)
    first, kind = distinct_rows(blocks, number + 1)
    return blocks[first], kind


def _grow_one_by_one(shape: Sequence[int], asked: Positions, rows: int) -> Blocks:
    """A block starts as the largest set not yet answered and grows by the attribute that saves most, while any does."""
    count = len(shape)
    sizes = np.array(shape, dtype=np.float64)
    holds = np.zeros((len(asked), count + 1), dtype=bool)
    np.put_along_axis(holds, asked, True, axis=1)
    holds = holds[:, :count]
    order = np.lexsort((-_count_block_cells(shape, asked), -holds.sum(axis=1)))
    home = np.zeros(len(asked), dtype=np.int64)
    found: list[list[int]] = []
    waiting = order
    while waiting.size:
        inside = holds[waiting[0]].copy()
        lacking = holds[waiting] & ~inside
        while True:
            number = lacking.sum(axis=1)
            more = lacking[number == 1].sum(axis=0)
            cells, width = sizes[inside].prod(), int(inside.sum())
            answered = int((number == 0).sum())
            now = cells * (_CELL_COST + _SUM_COST * min(answered - 1, width))
            then = cells * sizes * (_CELL_COST + _SUM_COST * np.minimum(answered + more, width + 1))
            saved = np.where((more > 0) & (cells * sizes <= _MAX_BLOCK_CELLS), more * rows + now - then, 0)
            best = int(saved.argmax())
            if saved[best] <= 0:
                break
            inside[best] = True
            lacking[:, best] = False
        home[waiting[number == 0]] = len(found)
        found.append(np.flatnonzero(inside).tolist())
        waiting = waiting[number > 0]
    blocks = np.full((len(found), max(map(len, found), default=0)), count)
    for i, block in enumerate(found):
        blocks[i, : len(block)] = block
    return blocks, home
