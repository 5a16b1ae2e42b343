"""What maps of shared records cost: records of a measure lie in several cells, and in no more than a hull of them.

Knots cut the range into segments, m of them into 2 m + 1 cells: an end, a middle, an end, and so on. At the place t
of its segment a record has the shares ((1 - t)^2, 2 t (1 - t), t^2) of the segment's lower end, middle and upper end.
As t moves they draw a curve, which lies in the convex hull of few corners: those of the curve cut into `PIECES` equal
pieces, each a parabola inside the triangle of its two ends and of the point in which their tangents meet. A norm, and a
distance, is convex, so over the hull it is largest at corners (at pairs of corners). So the price of integer maps over
the cells is the price of the same maps over the corners, where every factor F over a measure is F C with the corners'
shares as the columns of C. The corners follow from the number of cells, wherever knots lie. Of several measures in one
table the hull of the products is within that of the corners' products.

Shares are counted in whole numbers of 2^24, to the nearest or nearly: what one record adds is off by at most `_OFF` in
each cell, which costs no more than the norms of the columns, added up. docs/decisions/0136 and 0152 have the proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

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
_OFF = (9, 4)  # 2.25 of 2^24: of a table of one measure t and its square are off by 1/2 and a hair, the middle by both
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
        longest, lengths = 1, [1]
        for group, factor in zip(block.groups, block.factors, strict=True):
            assert isinstance(factor, Map)
            sums = factor.column_sums(power)
            if not any(a in hulls for a in group):
                factors.append(factor)
                longest *= int(max(sums))
                continue
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
            lengths = [a * int(b) for a in lengths for b in sums]
        whole = (factors[0] if factors else DenseMap(np.ones((1, 1), dtype=np.int64)), *factors[1:])
        groups = block.groups or ((),)
        found.append(BlockMap(groups, (MultipleMap(whole[0], unit), *whole[1:])))
        if mine:
            long = (math.isqrt(longest * n) + 1 if power == 2 else longest * n for n in lengths if n)
            rounded += -(-_OFF[0] * sum(long) // _OFF[1])
    return found, cells, rounded


def widened(value: int, more: int, power: int) -> int:
    """A norm to a power, of vectors that are longer by at most `more`."""
    return value + more if power == 1 else value + 2 * (math.isqrt(value) + 1) * more + more * more
