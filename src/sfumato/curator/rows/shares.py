"""How much of each record lies in which cell, where sums of measures are asked: whole numbers of a record's whole.

A record lies in a table of measures as the places of its values in their ranges say. What is added up is exact; what
rounding does to one record is priced in `privacy/measures.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.cells import POINTS, Amounts, Grid
from sfumato.privacy.measures import WHOLE_BITS

if TYPE_CHECKING:
    from sfumato.curator.rows.counting import Columns, Positions, Sets, Table

_SHARED_CELLS = 2**23  # shares of some records that are held at once: 64 MB
SHARES = 2**WHOLE_BITS
"""The whole of a record in a table of measures, of which each cell has a whole number."""
_FINER = POINTS // SHARES
_PLACE_BITS = POINTS.bit_length() - 1
_FINER_BITS = _FINER.bit_length() - 1
# Records whose shares are computed at once: half a megabyte of each, so that calls take no time beside what they do.
_SHARED_ROWS = 2**16
# Cells of other attributes beyond which these records are not sorted by them. With three measures, each known or not,
# these are 2^16 keys: sixteen bits hold them, which are sorted by radix. Runs of eight are worth a sum of their own.
_SORTED_CELLS = 2**13


def shares(codes: Sequence[NDArray[Any]], cells: Sequence[int], ends: Sequence[Sequence[int]] | None = None) -> Table:
    """(joint cells, records): how a record's whole, `SHARES`, lies in the cells of measures, in C order.

    ends: of each measure the steps at which its pieces end, from 0 to `POINTS`; without knots these two. Of one measure
    the shares add up to the whole; of several each is the product to the nearest whole number. What is computed is
    whole numbers alone, below 2^62: a place t of `POINTS`, of the range or a piece, has t t to the nearest place.
    """
    found = np.zeros((math.prod(cells), len(codes[0])), dtype=np.int64)
    numbers, ends = _numbers_known(codes), ends or [(0, POINTS)] * len(codes)
    for known in np.unique(numbers).tolist():
        rows = np.flatnonzero(numbers == known)
        for cell, part in _shares_alike([code[rows] for code in codes], cells, ends, known):
            found[cell, rows] = part
    return found


def _numbers_known(codes: Sequence[NDArray[Any]]) -> NDArray[np.uint16]:
    """Of each record which of some measures have a number, one bit each, the first one's the lowest."""
    found = np.zeros(len(codes[0]), dtype=np.uint16)
    for i, code in enumerate(codes):
        found |= (code <= POINTS).astype(np.uint16) << np.uint16(i)
    return found


def _shares_alike(
    codes: Sequence[NDArray[Any]], cells: Sequence[int], ends: Sequence[Sequence[int]], known: int
) -> Iterator[tuple[int, Table]]:
    """(joint cell, share of each record) of records of which all have a number of the same measures, see
    `_numbers_known`; in other cells they have nothing. One array after the other, so that they stay in the caches."""
    bits = 0 if len(codes) > 1 else _FINER_BITS
    found: Iterator[tuple[int, Table]] = iter([])
    for i, (code, count, edges) in enumerate(zip(codes, cells, ends, strict=True)):
        if known >> i & 1:
            places = code.astype(np.int64)
            own = list(
                enumerate(_shares_of_one(places, bits) if len(edges) == 2 else _shares_of_pieces(places, edges, bits))
            )
        else:  # whoever has no number has a share of 1 of the last cell
            own = [(count - 1, np.full(len(code), POINTS >> bits, dtype=np.int64))]
        shift = _PLACE_BITS + _FINER_BITS * (i == len(codes) - 1)
        found = _products(found, own, count, shift) if i else iter(own)
    return found


def _products(
    found: Iterator[tuple[int, Table]], own: Sequence[tuple[int, Table]], count: int, bits: int
) -> Iterator[tuple[int, Table]]:
    room = np.empty_like(own[0][1])
    for cell, part in found:
        for more, factor in own:
            yield cell * count + more, _to_nearest(np.multiply(part, factor, out=room), bits)


def _shares_of_one(places: Table, bits: int) -> tuple[Table, Table, Table]:
    """(1 - t)^2, 2 t (1 - t) and t^2, which add up to 1, of 2^30 less some bits."""
    square = _to_nearest(places * places, _PLACE_BITS)
    # to the nearest whole numbers, t and its square first: what is left of the whole is the first cell's
    first, second = (places, square) if not bits else (_to_nearest(v.copy(), bits) for v in (places, square))
    middle = first - second
    middle *= 2
    return (POINTS >> bits) - middle - second, middle, second


def _shares_of_pieces(places: Table, ends: Sequence[int], bits: int) -> Table:
    """(2 pieces + 1, records): the shares of `_shares_of_one` of the place within the piece that has it.

    A piece begins at its lower end; neighbours share the cell of the end between them.
    """
    steps = np.array(ends, dtype=np.int64)
    piece = np.searchsorted(steps[1:-1], places, side="right")
    length = steps[piece + 1] - steps[piece]
    within = ((places - steps[piece]) * POINTS + length // 2) // length
    found = np.zeros((2 * len(ends) - 1, len(places)), dtype=np.int64)
    for i, part in enumerate(_shares_of_one(within, bits)):
        found[2 * piece + i, np.arange(len(places))] = part
    return found


def _to_nearest(numbers: Table, bits: int) -> Table:
    """Whole numbers divided by a power of 2, in place."""
    numbers += 1 << bits - 1
    numbers >>= bits
    return numbers


def add_shares(grid: Grid, columns: Columns, blocks: Positions, tables: Table) -> None:
    """Add the shares of the records in `columns` to the tables (blocks, cells) of sets of attributes with measures."""
    for axes, into in zip(blocks.tolist(), tables, strict=True):
        _add_block_shares(grid, columns, axes, into)


def _add_block_shares(grid: Grid, columns: Columns, axes: Sequence[int], table: Table) -> None:
    """Add the shares of the records in `columns` to the table of one set of attributes, measures among them.

    table: (cells), first by the measures and then by the others, as `_measures_first` has them.
    """
    mine, plain = _measures_first(grid, axes)
    joint = [grid.shape[a] for a in mine]
    ends = [rule.ends for rule in (grid.rules[a] for a in mine) if isinstance(rule, Amounts)]
    into = table.reshape(math.prod(joint), -1)
    rows = len(columns[axes[0]])
    step = min(_SHARED_ROWS, max(2**10, _SHARED_CELLS // len(into)))
    # The C library gives back what was half a megabyte and fetches it anew, which takes as long as all sums, until it
    # has seen a larger array come and go.
    np.empty(8 * _SHARED_ROWS, dtype=np.int64)
    for start in range(0, rows, step):
        some = slice(start, start + step)
        codes = [columns[a][some] for a in mine]
        key = np.zeros(len(codes[0]), dtype=np.intp)
        for a in plain:
            key = key * grid.shape[a] + columns[a][some]
        if into.shape[1] <= _SORTED_CELLS:
            _add_runs(codes, joint, ends, key, into)
            continue
        for line, part in zip(into, shares(codes, joint, ends), strict=True):
            np.add.at(line, key, part)


def _measures_first(grid: Grid, axes: Sequence[int]) -> tuple[list[int], list[int]]:
    """The measures among some attributes, and the others."""
    mine = [a for a in axes if grid.names[a] in grid.measures]
    return mine, [a for a in axes if a not in mine]


def restore_axis_orders(grid: Grid, blocks: Positions, tables: Table) -> None:
    """Tables with their measures first as ones in the order of their attributes, in place."""
    for axes, table in zip(blocks.tolist(), tables, strict=True):
        mine, plain = _measures_first(grid, axes)
        shaped = table.reshape([grid.shape[a] for a in (*mine, *plain)])
        table[:] = shaped.transpose([(*mine, *plain).index(a) for a in axes]).reshape(-1)


def _add_runs(
    codes: Sequence[NDArray[Any]], cells: Sequence[int], ends: Sequence[Sequence[int]], key: Positions, into: Table
) -> None:
    """Add shares of records to the cells of their keys: sorted, so that each run of equal keys is one sum.

    into: (joint cells of the measures, keys).
    """
    both = _numbers_known(codes) * np.uint16(into.shape[1]) + key.astype(np.uint16)
    order = np.argsort(both, kind="stable")  # by radix, for keys of sixteen bits
    both = both[order]
    starts = np.append(0, np.flatnonzero(both[1:] != both[:-1]) + 1)
    known, keys = np.divmod(both[starts].astype(np.intp), into.shape[1])
    for alike in np.unique(known).tolist():
        runs = np.flatnonzero(known == alike)
        begin = starts[runs[0]]
        end = starts[runs[-1] + 1] if runs[-1] + 1 < len(starts) else len(both)
        chosen, at, place = order[begin:end], starts[runs] - begin, keys[runs]
        if place[-1] - place[0] + 1 == len(place):  # all between are there: a slice is added to in a tenth of the time
            place = slice(place[0], place[-1] + 1)
        for cell, part in _shares_alike([code[chosen] for code in codes], cells, ends, alike):
            line = into[cell]
            line[place] += np.add.reduceat(part, at)


def blocks_of_shares(grid: Grid, sets: Sequence[Sequence[int]]) -> tuple[Sets, Positions, Sequence[Positions]]:
    """Sets with measures as families by order, and what is counted for them.

    A set follows from a larger one by summing where both have the same measures; over a measure nothing is summed, for
    each table has its shares to the nearest whole number.
    """
    orders = sorted({len(s) for s in sets})
    families = [np.array(sorted(tuple(s) for s in sets if len(s) == k), dtype=np.int32).reshape(-1, k) for k in orders]
    summed = set(grid.summed_axes)
    largest: list[tuple[int, ...]] = []
    homes: list[list[int]] = []
    for family in reversed(families):
        own: list[int] = []
        for axes in map(tuple, family.tolist()):
            within = (i for i, b in enumerate(largest) if set(axes) <= set(b) and summed & set(axes) == summed & set(b))
            if (at := next(within, None)) is None:
                at = len(largest)
                largest.append(axes)
            own.append(at)
        homes.insert(0, own)
    blocks = np.full((len(largest), max(orders, default=0)), len(grid.names))
    for line, axes in zip(blocks, largest, strict=True):
        line[: len(axes)] = axes
    return families, blocks, [np.array(own, dtype=np.int64) for own in homes]
