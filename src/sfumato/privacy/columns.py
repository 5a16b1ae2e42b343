"""The columns of integer maps themselves, each distinct one once, and their inner products.

Where pairs of cells are looked at, or queries are combined, numbers of one column at a time do not tell the price.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import PlanError
from sfumato.maps import BlockMap, CombinationMap, DenseMap, Map
from sfumato.maps.base import INT64, IntArray, Numbers, absolute_sums, exact_matmul
from sfumato.privacy.terms import Group, Inside, Sizes, broadcast_on_axes, joint_groups

_MOST_CELLS_HUGE = 400  # of which all pairs are looked at with Python integers


def joint_gram(inside: Inside, group: Group, sizes: Sizes) -> Numbers:
    """The Gram matrix over the cells of a group: int64, or Python integers for few cells. Raises PlanError for many."""
    shape = tuple(sizes[a] for a in group)
    cells = math.prod(shape)
    gram: Numbers = np.ones((cells, cells), dtype=np.int64)
    for names, factor in inside:
        part = factor.gram()
        if part.dtype.kind == "O" or int(np.abs(gram).max()) * int(np.abs(part).max()) >= INT64:
            if cells > _MOST_CELLS_HUGE:
                raise PlanError("the entries are too large to look at all pairs of cells")
            gram = gram.astype(object)
        position = np.arange(math.prod(sizes[a] for a in names))
        place = np.broadcast_to(broadcast_on_axes(position, names, group, sizes), shape).reshape(-1)
        gram = gram * part[np.ix_(place, place)]
    return gram


# of every factor its attributes, the rows of its block, which row of it stands in each, and its table (rows, cells of
# each attribute)
_Tables = list[tuple[tuple[str, ...], slice, NDArray[np.intp], Numbers]]

MAX_ENTRIES = 2**25
"""Numbers of all columns that are looked at together: 256 MB; above, they are refused."""

_MOST_POINTS = 2**16  # of a plane whose corners are looked for: a tenth of a second


def distinct_columns(blocks: Sequence[BlockMap], sizes: Mapping[str, int], *, ends: bool = False) -> IntArray:
    """(rows, c): each column that some joint cell of all attributes has in the blocks stacked, once.

    The joint cells are never listed. Cells of one attribute that no factor tells apart are one; then the groups of
    attributes that factors join are gone through: a column is an entry by entry product of one column of each, and
    those that coincide are dropped at once. None is missed, as privacy needs, and none is added.
    With `ends`, what is found are some of these columns, in whose convex hull all others lie: no norm of a column, and
    no distance of two, is larger elsewhere. For given cells of the others a column is linear in what the factors have
    at the cell of one attribute, so that a cell whose numbers are a mean of those of others can be left out.
    Raises PlanError where they are too many, or their entries too large, WorkloadError for factors that do not fit.
    """
    tables, height = _Tables(), 0
    for block in blocks:
        block.check(sizes)
        factors = [f for f in block.factors if isinstance(f, Map)]
        if len(factors) < len(block.factors):
            raise PlanError("the columns of maps of the closed set are looked at, and of no others")
        if math.prod(f.max_abs for f in factors) >= INT64:
            raise PlanError("the entries of a combined block may be above 2^63; scale them down")
        rows = slice(height, height := height + block.rows)
        places = np.indices([f.shape[0] for f in block.factors]).reshape(len(block.factors), block.rows)
        for group, factor, place in zip(block.groups, factors, places, strict=True):
            _check_entry_count(factor.shape[0] if ends else block.rows, factor.shape[1])
            tables.append((group, rows, place, factor.columns().reshape(-1, *(sizes[a] for a in group))))
    for name in {a for group, *_ in tables for a in group}:
        axes = [1 + group.index(name) if name in group else 0 for group, *_ in tables]
        slices = [np.moveaxis(t, i, 0).reshape(t.shape[i], -1) for (*_, t), i in zip(tables, axes, strict=True) if i]
        seen = np.concatenate(slices, axis=1)
        some = _hull_points(seen) if ends else np.arange(len(seen))
        kept = some[np.unique(seen[some], axis=0, return_index=True)[1]]
        tables = [(*t[:3], t[3].take(kept, axis=i) if i else t[3]) for t, i in zip(tables, axes, strict=True)]
    for _, _, place, table in tables:
        _check_entry_count(len(place), *table.shape[1:])
    tables = [(group, rows, place, table[place]) for group, rows, place, table in tables]
    cells = {a: n for group, _, _, table in tables for a, n in zip(group, table.shape[1:], strict=True)}
    found = np.ones((1, height), dtype=np.int64)
    for group in ((), *joint_groups(blocks)):
        _check_entry_count(height, *(cells[a] for a in group))
        grid = np.ones((height, *(cells[a] for a in group)), dtype=np.int64)
        for some, rows, _, table in tables:
            if set(some) <= set(group) and bool(some) == bool(group):
                order = [0, *(1 + some.index(a) for a in group if a in some)]
                grid[rows] *= table.transpose(order).reshape(-1, *(cells[a] if a in some else 1 for a in group))
        here = grid.reshape(height, -1).T if len(found) == 1 else _sorted_distinct_rows(grid.reshape(height, -1).T)
        _check_entry_count(len(found), *here.shape)
        found = _sorted_distinct_rows((found[:, None] * here).reshape(-1, height))
    return np.ascontiguousarray(found.T)


def _hull_points(points: IntArray) -> NDArray[np.intp]:
    """Which of n points, (n, f) numbers, hold all others in their convex hull; all of them where that takes long.

    Numbers that are told by each other, up to a factor and a term, have the same ends: one of them is looked at.
    """
    every = np.arange(len(points))
    if max(int(points.max()), -int(points.min())) >= INT64 // 2:  # differences are below 2^63
        return every
    moved = points - points[0]
    moved = moved[:, moved.any(axis=0)]
    moved //= np.gcd.reduce(moved, axis=0)
    moved *= np.sign(moved[(moved != 0).argmax(axis=0), np.arange(moved.shape[1])])
    told = [moved[:, i] for i in {moved[:, i].tobytes(): i for i in range(moved.shape[1])}.values()]
    if len(told) < 2:
        return np.array([t(told[0]) for t in (np.argmin, np.argmax)] if told else [0], dtype=np.intp)
    if len(told) > 2 or len(points) > _MOST_POINTS:
        return every
    x, y = (t.tolist() for t in told)
    order, found = np.lexsort(told).tolist(), list[int]()
    for way in (order, order[::-1]):
        hull = list[int]()
        for i in way:
            # what does not turn left is no corner; exact, in Python's integers
            while len(hull) > 1:
                a, b = hull[-2:]
                if (y[b] - y[a]) * (x[i] - x[a]) - (x[b] - x[a]) * (y[i] - y[a]) > 0:
                    break
                hull.pop()
            hull.append(i)
        found += hull
    return np.array(sorted({*found}), dtype=np.intp)


def _sorted_distinct_rows(rows: IntArray) -> IntArray:
    """The distinct rows, ascending: sorted by bytes, which compare as the numbers do. One left twice would not harm."""
    ordered = rows[np.argsort((rows ^ np.int64(-INT64)).astype(">i8", "C").view(f"V{8 * rows.shape[1]}").ravel())]
    return ordered[np.concatenate([[True], (ordered[1:] != ordered[:-1]).any(axis=1)])]


def combined_columns(combined: CombinationMap, sizes: Mapping[str, int]) -> DenseMap:
    """C Q over columns of Q in whose convex hull the others lie, in place of the joint cells: see `distinct_columns`.

    Raises what `distinct_columns` raises, and PlanError where entries may not fit int64.
    """
    held = distinct_columns(combined.blocks, sizes, ends=True)
    _check_entry_count(combined.rows, held.shape[1])
    if max(absolute_sums(np.ascontiguousarray(combined.matrix.T), 1)) * int(np.abs(held).max()) >= INT64:
        raise PlanError("the entries of a combination may be above 2^63; scale them down")
    return DenseMap(exact_matmul(combined.matrix, held))


def _check_entry_count(*sizes: int) -> None:
    if math.prod(sizes) > MAX_ENTRIES:
        raise PlanError(
            f"the queries tell too many cells apart to be combined: above {MAX_ENTRIES:,} entries of columns"
        )
