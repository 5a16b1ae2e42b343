"""How much of each record lies in which cell, where sums of measures are asked: whole numbers of a record's whole.

A record lies in a table of measures as the places of its values in their ranges say. Of each piece of a measure 1, t
and t^2 are counted, and of several measures the products of these: features, each to the nearest whole number of
`SHARES`. In what order sums are taken does not matter. Shares in cells are whole combinations of features; what
rounding does to one record is priced in `privacy/measures.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.cells import POINTS, Amounts, Grid
from sfumato.privacy.measures import WHOLE_BITS, feature_shares

if TYPE_CHECKING:
    from sfumato.curator.rows.counting import Columns, Positions, Sets, Table

    Doubles = NDArray[np.float64]

_SHARED_CELLS = 2**23  # features of some records that are held at once: 64 MB
SHARES = 2**WHOLE_BITS
"""The whole of a record in a table of measures, of which each cell has a whole number."""
# Records whose features are computed at once: half a megabyte of each, so that calls take no time beside what they do.
_SHARED_ROWS = 2**16
# Cells of other attributes, times the pieces of each measure and whether there is a number, that are sorted: sixteen
# bits hold them, which are sorted by radix.
_SORTED_KEYS = 2**16


def shares(codes: Sequence[NDArray[Any]], cells: Sequence[int], ends: Sequence[Sequence[int]] | None = None) -> Table:
    """(joint cells, records): how a record's whole, `SHARES`, lies in the cells of measures, in C order.

    ends: of each measure the steps at which its pieces end, from 0 to `POINTS`; without knots these two.
    """
    ends = ends or [(0, POINTS)] * len(codes)
    matrices = [feature_shares(n)[0] for n in cells]
    found = np.zeros((math.prod(m.shape[1] for m in matrices), len(codes[0])), dtype=np.int64)
    states = _joint_states(codes, ends)
    for state in np.unique(states).tolist():
        rows = np.flatnonzero(states == state)
        for feature, part in _features_alike([code[rows] for code in codes], matrices, ends, state):
            found[feature, rows] = part
    return _shares_of_features(found, matrices)


def _joint_states(codes: Sequence[NDArray[Any]], ends: Sequence[Sequence[int]]) -> NDArray[np.intp]:
    """Of each record in which piece of each measure its number is, or that it has none, as one number."""
    found = np.zeros(len(codes[0]), dtype=np.intp)
    for code, edges in zip(codes, ends, strict=True):
        pieces = len(edges) - 1
        found *= pieces + 1
        if pieces == 1:
            found += code > POINTS
        else:
            found += np.where(code > POINTS, pieces, np.searchsorted(edges[1:-1], code, side="right"))
    return found


def _features_alike(
    codes: Sequence[NDArray[Any]], matrices: Sequence[Table], ends: Sequence[Sequence[int]], state: int
) -> Iterator[tuple[int, Doubles | int]]:
    """(joint feature, what each record adds to it) of records of one joint state; to others they add nothing.

    Products of places are taken one place after another, in doubles; what is summed are whole numbers.
    """
    parts: list[tuple[int, int, Doubles | None]] = []
    states = np.unravel_index(state, [len(e) for e in ends])
    for code, matrix, edges, own in zip(codes, matrices, ends, map(int, states), strict=True):
        known = own < len(edges) - 1  # who has no number has the last feature alone
        parts.append((matrix.shape[1], 3 * own, _places_in_piece(code, edges, own) / POINTS if known else None))
    room = np.empty(len(codes[0]))
    for feature, product in _products(parts, 0, None):
        yield feature, SHARES if product is None else np.floor(np.add(product, 0.5, out=room), out=room)


def _products(
    parts: Sequence[tuple[int, int, Doubles | None]], feature: int, product: Doubles | None
) -> Iterator[tuple[int, Doubles | None]]:
    """(joint feature, its product in units of `SHARES`), one array after the other, so that they stay in the caches.

    parts: of each measure how many features it has, the first of a record's, and places from 0 to 1.
    """
    if not parts:
        yield feature, product
        return
    (count, first, place), *rest = parts
    feature = feature * count + first
    yield from _products(rest, feature, product)
    if place is not None:
        once = place * SHARES if product is None else product * place  # powers of 2 change no bit
        yield from _products(rest, feature + 1, once)
        yield from _products(rest, feature + 2, once * place)


def _places_in_piece(code: NDArray[Any], edges: Sequence[int], piece: int) -> Doubles:
    """Whole numbers of `POINTS`: where in its piece a number is, to the nearest."""
    if len(edges) == 2:
        return code.astype(np.float64)
    start, length = edges[piece], edges[piece + 1] - edges[piece]
    return (((code.astype(np.int64) - start) * POINTS + length // 2) // length).astype(np.float64)


def _shares_of_features(table: Table, matrices: Sequence[Table]) -> Table:
    """(joint cells, …) from (joint features, …), whole numbers that may wrap around on the way and not in the end."""
    rest = table.shape[1:]
    table = table.reshape(*(m.shape[1] for m in matrices), -1)
    for axis, matrix in enumerate(matrices):
        table = np.moveaxis(np.tensordot(matrix, table, axes=(1, axis)), 0, axis)
    return np.ascontiguousarray(table).reshape(-1, *rest)


def feature_tables(grid: Grid, blocks: Positions) -> list[Table]:
    """Where the features of records in sets with measures are added up: (joint features, cells of others) of each."""
    found: list[Table] = []
    for axes in blocks.tolist():
        mine, plain = _measures_first(grid, axes)
        joint = math.prod(m.shape[1] for m in _matrices(grid, mine))
        found.append(np.zeros((joint, math.prod(grid.shape[a] for a in plain)), dtype=np.int64))
    return found


def _matrices(grid: Grid, measures: Sequence[int]) -> list[Table]:
    return [feature_shares(grid.shape[a])[0] for a in measures]


def add_features(grid: Grid, columns: Columns, blocks: Positions, tables: Sequence[Table]) -> None:
    """Add the features of the records in `columns` to the tables of sets of attributes with measures."""
    for axes, into in zip(blocks.tolist(), tables, strict=True):
        _add_block_features(grid, columns, axes, into)


def _add_block_features(grid: Grid, columns: Columns, axes: Sequence[int], into: Table) -> None:
    """Add the features of the records in `columns` to the table of one set of attributes, measures among them."""
    mine, plain = _measures_first(grid, axes)
    ends = [rule.ends for rule in (grid.rules[a] for a in mine) if isinstance(rule, Amounts)]
    matrices = _matrices(grid, mine)
    keys = into.shape[1]
    step = min(_SHARED_ROWS, max(2**10, _SHARED_CELLS // len(into)))
    # The C library gives back what was half a megabyte and fetches it anew, which takes as long as all sums, until it
    # has seen a larger array come and go.
    np.empty(8 * _SHARED_ROWS, dtype=np.int64)
    for start in range(0, len(columns[axes[0]]), step):
        some = slice(start, start + step)
        codes = [columns[a][some] for a in mine]
        key = _joint_states(codes, ends)
        for a in plain:
            key *= grid.shape[a]
            key += columns[a][some]
        # by radix, for keys of sixteen bits
        small = math.prod(map(len, ends)) * keys <= _SORTED_KEYS
        order = np.argsort(key.astype(np.uint16) if small else key, kind="stable")
        key = key[order]
        starts = np.append(0, np.flatnonzero(key[1:] != key[:-1]) + 1)
        states, places = np.divmod(key[starts], keys)
        counts = np.diff(starts, append=len(key))
        for state in np.unique(states).tolist():
            runs = np.flatnonzero(states == state)
            begin, end = starts[runs[0]], starts[runs[-1]] + counts[runs[-1]]
            chosen, at, place = order[begin:end], starts[runs] - begin, places[runs]
            if place[-1] - place[0] + 1 == len(
                place
            ):  # all between are there: a slice is added to in a tenth of the time
                place = slice(place[0], place[-1] + 1)
            for feature, part in _features_alike([code[chosen] for code in codes], matrices, ends, state):
                # doubles that are whole and below 2^41 add up exactly
                more = counts[runs] * part if isinstance(part, int) else np.add.reduceat(part, at).astype(np.int64)
                into[feature, place] += more


def _measures_first(grid: Grid, axes: Sequence[int]) -> tuple[list[int], list[int]]:
    """The measures among some attributes, and the others."""
    mine = [a for a in axes if grid.names[a] in grid.measures]
    return mine, [a for a in axes if a not in mine]


def share_tables(grid: Grid, blocks: Positions, tables: Sequence[Table]) -> Table:
    """(blocks, cells) in the order of each set's attributes, from its features."""
    found: list[Table] = []
    for axes, table in zip(blocks.tolist(), tables, strict=True):
        mine, plain = _measures_first(grid, axes)
        shaped = _shares_of_features(table, _matrices(grid, mine)).reshape([grid.shape[a] for a in (*mine, *plain)])
        found.append(shaped.transpose([(*mine, *plain).index(a) for a in axes]).reshape(-1))
    return np.stack(found)


def blocks_of_shares(grid: Grid, sets: Sequence[Sequence[int]]) -> tuple[Sets, Positions, Sequence[Positions]]:
    """Sets with measures as families by order, and what is counted for them.

    A set follows from a larger one by summing, over measures too: a record's shares in the cells of one add up to what
    it has without it.
    """
    orders = sorted({len(s) for s in sets})
    families = [np.array(sorted(tuple(s) for s in sets if len(s) == k), dtype=np.int32).reshape(-1, k) for k in orders]
    largest: list[tuple[int, ...]] = []
    homes: list[list[int]] = []
    for family in reversed(families):
        own: list[int] = []
        for axes in map(tuple, family.tolist()):
            within = (i for i, b in enumerate(largest) if set(axes) <= set(b))
            if (at := next(within, None)) is None:
                at = len(largest)
                largest.append(axes)
            own.append(at)
        homes.insert(0, own)
    blocks = np.full((len(largest), max(orders, default=0)), len(grid.names))
    for line, axes in zip(blocks, largest, strict=True):
        line[: len(axes)] = axes
    return families, blocks, [np.array(own, dtype=np.int64) for own in homes]
