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
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from sfumato.cells import MAX_MEASURES
from sfumato.errors import PlanError
from sfumato.maps import BlockMap, CombinationMap, DenseMap, FamilyMap, Map, MultipleMap
from sfumato.maps.base import INT64, LinearMap
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

Part = tuple[tuple[str, ...], LinearMap]
"""Some attributes and a factor over their joint cells."""


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
    the attribute with others in one factor, or has too many entries over both.
    Raises PlanError for families and combinations with measures, and for more than three measures in one table.
    """
    shares = {name: corners(sizes[name]) for name in measures}
    axes = {name: name for name in measures}
    for s in same:
        if s.measure not in measures or not s.is_small:
            continue
        cell, corner = np.nonzero(s.reaches(shares[s.measure]))
        joint = {s.attribute: np.eye(len(s.steps), dtype=np.int64)[:, cell], s.measure: shares[s.measure][:, corner]}
        if _fits(blocks, s, measures, shares | joint):
            shares |= joint
            axes[s.attribute] = s.measure
    tied = {a for a in axes if list(axes.values()).count(axes[a]) > 1}
    cells = {name: shares[name].shape[1] if name in shares else n for name, n in sizes.items()}
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
        parts: list[list[Part]] = [[]]  # what one axis ties together, then each of the others
        longest, lengths = 1, [1]
        for part in zip(block.groups, block.factors, strict=True):
            sums = cast(Map, part[1]).column_sums(power)
            if any(a in measures for a in part[0]):
                lengths = [a * int(b) for a in lengths for b in sums]
            else:
                longest *= int(max(sums))
            if tied & {*part[0]}:
                parts[0].append(part)
            else:
                parts.append([part])
        whole = [_over_corners(some, shares, axes, sizes) for some in parts if some]
        whole = whole or [((), DenseMap(np.ones((1, 1), dtype=np.int64)))]
        first, *others = (factor for _, factor in whole)
        found.append(BlockMap(tuple(names for names, _ in whole), (MultipleMap(first, unit), *others)))
        if mine:
            long = (math.isqrt(longest * n) + 1 if power == 2 else longest * n for n in lengths if n)
            rounded += -(-_OFF[0] * sum(long) // _OFF[1])
    return found, cells, rounded


def _fits(
    blocks: Sequence[BlockMap | FamilyMap | CombinationMap],
    same: SameColumn,
    measures: Sequence[str],
    shares: Mapping[str, NDArray[np.int64]],
) -> bool:
    """Whether an attribute and a measure can be one axis of some blocks."""
    both = {same.attribute, same.measure}
    for block in blocks:
        if not isinstance(block, BlockMap):
            if same.attribute in block.attributes:
                return False
            continue
        touched = [(g, f) for g, f in zip(block.groups, block.factors, strict=True) if both & {*g}]
        names = {a for g, _ in touched for a in g} - {same.attribute}
        entries = math.prod(shares[a].shape[1] for a in {*names, same.measure} if a in measures)
        if names - {*measures} or entries * math.prod(f.shape[0] for _, f in touched) > _MOST_JOINT:
            return False
    return all(any(a in b.attributes for b in blocks) for a in both)


def _over_corners(
    parts: Sequence[Part], shares: Mapping[str, NDArray[np.int64]], axes: Mapping[str, str], sizes: Sizes
) -> Part:
    """A product of factors, over all pairs and triples of corners of the axes that they have, or as it is without."""
    if not any(a in shares for group, _ in parts for a in group):
        return parts[0]
    names = tuple(dict.fromkeys(axes.get(a, a) for group, _ in parts for a in group))
    many = [shares[a].shape[1] if a in shares else sizes[a] for a in names]
    at = dict(zip(names, np.indices(many).reshape(len(many), -1), strict=True))
    found = np.ones((1, math.prod(many)), dtype=np.int64)
    for group, factor in parts:
        own = np.ones((1, math.prod(many)), dtype=np.int64)
        for a in group:
            side = (shares[a] if a in shares else np.eye(sizes[a], dtype=np.int64))[:, at[axes.get(a, a)]]
            own = (own[:, None] * side).reshape(-1, own.shape[1])
        entries = cast(Map, factor).columns()
        # shares are not negative, so that no entry is beyond what a column adds up to at most
        top = int(factor.max_abs) * int(own.sum(axis=0).max()) * int(np.abs(found).max())
        if top >= INT64:
            entries, found = entries.astype(object), found.astype(object)
        found = (found[:, None] * (entries @ own)).reshape(-1, own.shape[1])
    if found.dtype == object and np.abs(found).max() >= INT64:
        raise PlanError("the coefficients of sums of measures are too large; scale them down")
    return names, DenseMap(found.astype(np.int64))


def widened(value: int, more: int, power: int) -> int:
    """A norm to a power, of vectors that are longer by at most `more`."""
    return value + more if power == 1 else value + 2 * (math.isqrt(value) + 1) * more + more * more
