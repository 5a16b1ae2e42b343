"""What maps of shared records cost: records of a measure lie in several cells, and in no more than a hull of them.

Knots cut the range into segments, m of them into 2 m + 1 cells: an end, a middle, an end, and so on. At the place t
of its segment a record has the shares ((1 - t)^2, 2 t (1 - t), t^2) of the segment's lower end, middle and upper end.
As t moves they draw a curve, which lies in the convex hull of few corners: those of the curve cut into `PIECES` equal
pieces, each a parabola inside the triangle of its two ends and of the point in which their tangents meet. A norm, and a
distance, is convex, so over the hull it is largest at corners (at pairs of corners). So the price of integer maps over
the cells is the price of the same maps over the corners, where every factor F over a measure is F C with the corners'
shares as the columns of C. The corners follow from the number of cells, wherever knots lie. Of several measures in one
table the hull of the products is within that of the corners' products.

What is counted are features, whole numbers of 2^24 of a record: of every segment 1, t and t^2, of several measures the
products of these, each rounded by itself. Shares are whole combinations of features, which add up to 2^24 whatever is
rounded. So what one record adds is off by at most `_OFF` of each feature but the first: no more than the norms of what
maps make of a feature, added up. docs/decisions/0136, 0152 and 0187 have the proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.cells import MAX_MEASURES
from sfumato.errors import PlanError
from sfumato.maps import BlockMap, CombinationMap, DenseMap, FamilyMap, Map, MultipleMap
from sfumato.maps.base import INT64
from sfumato.privacy.terms import Sizes

PIECES = 8
"""Of the curve: what is priced is then .03 % above the curve where a record comes or goes, .06 % where it changes."""
UNIT_BITS = 6  # corners have shares that are multiples of 1 / 64
WHOLE_BITS = 24
"""A record is 2^24 in a table of measures."""
_OFF = (17, 32)  # of 2^24: a feature is rounded once, 1/2, after up to six products of doubles, less than 2^-26
_MOST_MULTIPLE = 2**62  # of a family of tables, where multiples end


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


def feature_shares(cells: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """(cells, features) what each feature adds to the shares in a measure's cells, and (features,) which are rounded.

    Of every segment 1, t and t^2, as (1 - t)^2 = 1 - 2 t + t^2 and 2 t (1 - t) = 2 t - 2 t^2; then 1 without a number.
    """
    segments, without = (cells - 1) // 2, (cells - 1) % 2
    table = np.zeros((cells, 3 * segments + without), dtype=np.int64)
    for p in range(segments):
        table[2 * p : 2 * p + 3, 3 * p : 3 * p + 3] = [[1, -2, 1], [0, 2, -2], [0, 0, 1]]
    table[2 * segments + 1 :, 3 * segments :] = 1
    return table, np.array([f % 3 > 0 for f in range(3 * segments)] + [False] * without)


def over_features(
    factor: Map, group: Sequence[str], sizes: Sizes, measures: Sequence[str]
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """(rows, features) what a factor over measures, and maybe other attributes, makes of features; and which of these
    are rounded."""
    made = [feature_shares(sizes[a]) if a in measures else None for a in group]
    eyes = [np.eye(sizes[a], dtype=np.int64) for a in group]
    sides = [eye if m is None else m[0] for m, eye in zip(made, eyes, strict=True)]
    marks = [np.zeros(len(eye), dtype=bool) if m is None else m[1] for m, eye in zip(made, eyes, strict=True)]
    whole = reduce(np.kron, sides)
    entries = factor.columns()
    if factor.max_abs * int(np.abs(whole).sum(axis=0).max()) >= INT64:
        entries, whole = entries.astype(object), whole.astype(object)
    return entries @ whole, reduce(lambda a, b: np.logical_or.outer(a, b).reshape(-1), marks)


def over_hull(
    blocks: Sequence[BlockMap | FamilyMap | CombinationMap], sizes: Sizes, measures: Sequence[str], power: int
) -> tuple[list[BlockMap | FamilyMap], dict[str, int], int]:
    """The same maps over corners, the numbers of these, and by how much what one record adds may be longer.

    Raises PlanError for families and combinations with measures, and for more than three measures in one table.
    """
    hulls = {name: corners(sizes[name]) for name in measures}
    cells = {name: hulls[name].shape[1] if name in hulls else n for name, n in sizes.items()}
    found: list[BlockMap | FamilyMap] = []
    rounded = 0
    for block in blocks:
        mine = [a for a in block.attributes if a in hulls]
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
        factors: list[Map] = []
        longest, lengths = 1, [(1, False)]  # of features, and whether they are rounded
        for group, factor in zip(block.groups, block.factors, strict=True):
            assert isinstance(factor, Map)
            if not any(a in hulls for a in group):
                factors.append(factor)
                longest *= int(max(factor.column_sums(power)))
                continue
            entries, marks = over_features(factor, group, sizes, measures)
            sums = (np.abs(entries.astype(object)) ** power).sum(axis=0)
            each = [(int(n), bool(m)) for n, m in zip(sums, marks, strict=True) if n]
            lengths = [(a * b, one or other) for a, one in lengths for b, other in each]
            table = factor.columns().reshape(-1, *(sizes[a] for a in group))
            # shares are not negative and add up to a whole, so no sum of theirs is beyond the largest entry times that
            if factor.max_abs * 2 ** (UNIT_BITS * len(mine)) >= INT64:
                table = table.astype(object)
            for axis, a in enumerate(group, 1):
                if a in hulls:
                    table = np.moveaxis(np.tensordot(table, hulls[a], (axis, 0)), -1, axis)
            if np.abs(table).max() >= INT64:
                raise PlanError("the coefficients of sums of measures are too large; scale them down")
            factors.append(DenseMap(table.reshape(len(table), -1).astype(np.int64)))
        whole = (factors[0] if factors else DenseMap(np.ones((1, 1), dtype=np.int64)), *factors[1:])
        groups = block.groups or ((),)
        found.append(BlockMap(groups, (MultipleMap(whole[0], unit), *whole[1:])))
        if mine:
            long = (math.isqrt(longest * n) + 1 if power == 2 else longest * n for n, off in lengths if off)
            rounded += -(-_OFF[0] * sum(long) // _OFF[1])
    return found, cells, rounded


def widened(value: int, more: int, power: int) -> int:
    """A norm to a power, of vectors that are longer by at most `more`."""
    return value + more if power == 1 else value + 2 * (math.isqrt(value) + 1) * more + more * more
