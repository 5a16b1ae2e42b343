"""What maps of shared records cost: records of a measure lie in several cells, and in no more than a hull of them.

Knots cut the range into segments, m of them into 2 m + 1 cells: an end, a middle, an end, and so on. At the place t
of its segment a record has the shares ((1 - t)^2, 2 t (1 - t), t^2) of the segment's lower end, middle and upper end.
As t moves they draw a curve, which lies in the convex hull of few corners: those of the curve cut into `PIECES` equal
pieces, each a parabola inside the triangle of its two ends and of the point in which their tangents meet. A norm, and a
distance, is convex, so over the hull it is largest at corners (at pairs of corners). So the price of integer maps over
the cells is the price of the same maps over the corners, where every factor F over a measure is F C with the corners'
shares as the columns of C. The corners follow from the number of cells, wherever knots lie. Of several measures in one
table the hull of the products is within that of the corners' products.

An attribute may have cells of the same column, such as classes of pay beside pay (`same_column.py`): a record in one of
them has its number there, so that its corners are those of the pieces that the cell reaches. The two are then priced as
one axis, of the pairs of a cell and a corner that records can be around. docs/decisions/0186.

Shares are counted in whole numbers of 2^24, to the nearest or nearly: what one record adds is off by at most `_OFF` in
each cell, which costs no more than the norms of the columns, added up. docs/decisions/0136 and 0152 have the proof.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from sfumato.cells import MAX_MEASURES
from sfumato.errors import PlanError
from sfumato.maps import BlockMap, CombinationMap, DenseMap, FamilyMap, Map, MultipleMap
from sfumato.maps.base import INT64, Numbers
from sfumato.privacy.same_column import SameColumn
from sfumato.privacy.terms import Sizes

PIECES = 8
"""Of the curve: what is priced is then .03 % above the curve where a record comes or goes, .06 % where it changes."""
UNIT_BITS = 6  # corners have shares that are multiples of 1 / 64
WHOLE_BITS = 24
"""A record is 2^24 in a table of measures."""
_OFF = (9, 4)  # 2.25 of 2^24: of a table of one measure t and its square are off by 1/2 and a hair, the middle by both
_MOST_MULTIPLE = 2**62  # of a family of tables, where multiples end
_MOST_JOINT = (
    2**22
)  # entries of a factor over pairs of a cell and a corner: 32 MB. With more an attribute is priced apart

_TOO_LARGE = "the coefficients of sums of measures are too large; scale them down"


def corners(cells: int) -> NDArray[np.int64]:
    """(cells, corners) shares, of 64, of the corners around a measure's curve; the last is whoever has no number.

    cells: an end and two for each piece, and one more where some have no number.
    """
    n = PIECES
    meeting = np.array(
        [(n * n - n * (2 * i + 1) + i * (i + 1), n * (2 * i + 1) - 2 * i * (i + 1), i * (i + 1)) for i in range(n)]
    ).T
    pieces = (cells - 1) // 2
    each = n + 1  # per piece its lower end, and where tangents meet
    table = np.zeros((cells, each * pieces + 1 + (cells - 1) % 2), dtype=np.int64)
    for p in range(pieces):
        table[2 * p, each * p] = n * n
        table[2 * p : 2 * p + 3, each * p + 1 : each * (p + 1)] = meeting
    for last in range(2 * pieces, cells):
        table[last, each * pieces + last - 2 * pieces] = n * n
    return table


def over_hull(
    blocks: Sequence[BlockMap | FamilyMap | CombinationMap],
    sizes: Sizes,
    measures: Sequence[str],
    power: int,
    same: Iterable[SameColumn] = (),
) -> tuple[list[BlockMap | FamilyMap], dict[str, int], int]:
    """The same maps over corners, the numbers of these, and by how much what one record adds may be longer.

    An attribute and a measure of the same column are one axis there, called as the measure is, unless some block joins
    them with other attributes in one factor, or has too many entries over both.
    Raises PlanError for families and combinations with measures, and for more than three measures in one table.
    """
    sides = {name: corners(sizes[name]) for name in measures}
    axes = {name: name for name in measures}
    for s in same:
        if s.measure not in measures or not s.is_small:
            continue
        cell, corner = np.nonzero(s.reaches(sides[s.measure]))
        if _fits(blocks, s, measures, sizes, len(cell)):
            each = np.eye(sizes[s.attribute], dtype=np.int64)[:, cell]
            sides |= {s.attribute: each, s.measure: sides[s.measure][:, corner]}
            axes[s.attribute] = s.measure
    cells = {name: sides[name].shape[1] if name in sides else n for name, n in sizes.items()}
    found: list[BlockMap | FamilyMap] = []
    rounded = 0
    for block in blocks:
        mine = [a for a in block.attributes if a in measures]
        if isinstance(block, CombinationMap) or (isinstance(block, FamilyMap) and mine) or len(mine) > MAX_MEASURES:
            raise PlanError("measures are summed by blocks, up to three of them in one")
        block.check(sizes)
        unit = 2 ** (WHOLE_BITS - UNIT_BITS * len(mine))
        if isinstance(block, FamilyMap):
            own = np.ones(len(block), dtype=np.int64) if block.multiples is None else block.multiples
            if int(own.max()) * unit >= _MOST_MULTIPLE:
                raise PlanError("multiples of tables beside sums of measures are too large; scale them down")
            found.append(FamilyMap(block.names, block.factors, block.sets, own * unit))
            continue
        whole: dict[tuple[str, ...], Map] = {}
        longest, lengths = 1, [1]
        for group, factor in zip(block.groups, block.factors, strict=True):
            assert isinstance(factor, Map)
            sums = factor.column_sums(power)
            if any(a in measures for a in group):
                lengths = [a * int(b) for a in lengths for b in sums]
            else:
                longest *= int(max(sums))
            if not any(a in sides for a in group):
                whole[group] = factor
                continue
            to = tuple(dict.fromkeys(axes.get(a, a) for a in group))
            shares = [sides[a] if a in sides else np.eye(sizes[a], dtype=np.int64) for a in group]
            over = _over_corners(factor, _joint_shares(shares, [to.index(axes.get(a, a)) for a in group]))
            for other in [g for g in whole if {*g} & {*to}]:
                to, over = _product_over_axes((other, whole.pop(other).columns()), (to, over), cells)
            whole[to] = DenseMap(over)
        if not whole:
            whole[()] = DenseMap(np.ones((1, 1), dtype=np.int64))
        first, *others = whole.values()
        found.append(BlockMap(tuple(whole), (MultipleMap(first, unit), *others)))
        if mine:
            long = (math.isqrt(longest * n) + 1 if power == 2 else longest * n for n in lengths if n)
            rounded += -(-_OFF[0] * sum(long) // _OFF[1])
    return found, cells, rounded


def _fits(
    blocks: Sequence[BlockMap | FamilyMap | CombinationMap],
    same: SameColumn,
    measures: Sequence[str],
    sizes: Sizes,
    pairs: int,
) -> bool:
    """Whether an attribute and a measure can be one axis of some blocks."""
    both = {same.attribute, same.measure}
    if not all(any(a in b.attributes for b in blocks) for a in both):
        return False
    for block in blocks:
        if not isinstance(block, BlockMap):
            if same.attribute in block.attributes:
                return False
            continue
        touched = [(g, f) for g, f in zip(block.groups, block.factors, strict=True) if both & {*g}]
        names = {a for g, _ in touched for a in g}
        others = (corners(sizes[a]).shape[1] for a in names - both if a in measures)
        if (
            names - both - {*measures}
            or pairs * math.prod(others) * math.prod(f.shape[0] for _, f in touched) > _MOST_JOINT
        ):
            return False
    return True


def _joint_shares(shares: Sequence[NDArray[np.int64]], axes: Sequence[int]) -> NDArray[np.int64]:
    """(joint cells, joint corners) from the (cells, corners) of each name, some of which have one axis together."""
    found = np.ones((1,) * (2 + max(axes)), dtype=np.int64)
    for part, axis in zip(shares, axes, strict=True):
        own = part.reshape([len(part), *(part.shape[1] if k == axis else 1 for k in range(found.ndim - 1))])
        found = (found[:, None] * own[None]).reshape(-1, *np.broadcast_shapes(found.shape[1:], own.shape[1:]))
    return found.reshape(len(found), -1)


def _over_corners(factor: Map, shares: NDArray[np.int64]) -> NDArray[np.int64]:
    # none is negative, so no entry is beyond what a column adds up to at most
    if factor.max_abs * int(shares.sum(axis=0).max()) < INT64:
        return factor.columns() @ shares
    entries = factor.columns().astype(object) @ shares.astype(object)
    if np.abs(entries).max() >= INT64:
        raise PlanError(_TOO_LARGE)
    return entries.astype(np.int64)


_Over = tuple[tuple[str, ...], Numbers]


def _product_over_axes(one: _Over, other: _Over, cells: Sizes) -> _Over:
    """Products of rows of two factors (rows, joint corners), over the axes of both."""
    names = tuple(dict.fromkeys((*one[0], *other[0])))
    tables: list[Numbers] = []
    for own, table in (one, other):
        table = table.reshape(len(table), *(cells[a] for a in own))
        table = table.transpose([0, *(1 + own.index(a) for a in names if a in own)])
        tables.append(table.reshape(len(table), *(cells[a] if a in own else 1 for a in names)))
    if int(np.abs(tables[0]).max()) * int(np.abs(tables[1]).max()) >= INT64:
        raise PlanError(_TOO_LARGE)
    found = tables[0][:, None] * tables[1][None]
    return names, found.reshape(found.shape[0] * found.shape[1], -1)


def widened(value: int, more: int, power: int) -> int:
    """A norm to a power, of vectors that are longer by at most `more`."""
    return value + more if power == 1 else value + 2 * (math.isqrt(value) + 1) * more + more * more
