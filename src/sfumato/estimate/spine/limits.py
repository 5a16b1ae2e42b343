"""Between which numbers the totals of groups lie, and how many of one set of cells are in them.

Groups lie in each other. Of a group are bounded its total, its records inside of a set of cells, and those outside:
floors and caps of two numbers and of their sum. Once each is made to agree with the other two (shortest paths between
three nodes), a parent can be parted among its children exactly if its three numbers are within the sums of their
floors and caps: what is so bounded is a generalized polymatroid, and these add up so, in whole numbers too [FT88].
So from the root down there is always a choice. Of more than two parts of the cells, sums of floors and caps tell too
little: every union of parts has a cap of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.spine.places import Place
from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray

__all__ = ["Bounds", "Limits", "limits", "tightened"]

_PARTS = ("", " of the set", " outside of the set")


@dataclass(frozen=True, eq=False, slots=True)
class Bounds:
    """rows: by level (groups, 6), in the order of the groups' numbers, the least and the most records, of these inside
    of a set of cells, and outside; inside: (cells,) the set, None where totals alone are bounded."""

    rows: Mapping[int, FloatArray]
    inside: NDArray[np.bool_] | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Limits:
    """levels: (groups, 6) as in `Bounds`, in the order of the tree, agreeing with each other and with what lies in a
    group; None where nothing is said of a level or below it."""

    levels: tuple[FloatArray | None, ...]
    inside: NDArray[np.bool_] | None


def tightened(rows: FloatArray) -> FloatArray:
    """(n, 6) floors and caps of totals, inside and outside that say of each what the other two leave."""
    low, high, low1, high1, low2, high2 = rows.T
    return np.stack(
        [
            np.maximum(low, low1 + low2),
            np.minimum(high, high1 + high2),
            np.maximum(low1, low - high2),
            np.minimum(high1, high - low2),
            np.maximum(low2, low - high1),
            np.minimum(high2, high - low1),
        ],
        axis=1,
    )


def _numbered(level: int, number: int) -> str:
    return f"group {number} of level {level}"


def limits(
    places: Place,
    totals: Sequence[FloatArray],
    total: float | None,
    bounds: Bounds,
    possible: NDArray[np.int64] | None = None,
    called: Callable[[int, int], str] = _numbered,
) -> Limits | None:
    """None where nothing is said at all. totals: those that are known, of levels from the root on; total: of all
    records where known; possible: the cells that can hold a record, None for all; called: what people call a group,
    by its level and its number there.

    Raises PlanError where no table is within the bounds, with the first group that shows it.
    """
    if not totals and not bounds.rows:
        return None
    tree = places.tree
    last = max([len(totals) - 1, *bounds.rows])
    out: list[FloatArray] = []
    free = _free(bounds.inside, possible)
    for level in range(last + 1):
        own = np.tile(free, (len(tree.counts[level]), 1))
        if level in bounds.rows:
            given = places.sorted(level, bounds.rows[level])
            own[:, ::2], own[:, 1::2] = np.maximum(own[:, ::2], given[:, ::2]), np.minimum(own[:, 1::2], given[:, 1::2])
        if level < len(totals):
            own[:, 0] = np.maximum(own[:, 0], totals[level][:, 0])
            own[:, 1] = np.minimum(own[:, 1], totals[level][:, 0])
        out.append(own)
    if total is not None:
        out[0][:, 0], out[0][:, 1] = max(out[0][0, 0], total), min(out[0][0, 1], total)
    for level in range(last, -1, -1):
        if level < last:
            below = tree.sums(level + 1, out[level + 1])
            out[level][:, ::2] = np.maximum(out[level][:, ::2], below[:, ::2])
            out[level][:, 1::2] = np.minimum(out[level][:, 1::2], below[:, 1::2])
        out[level] = tightened(out[level])
        crossed = np.argwhere(out[level][:, ::2] > out[level][:, 1::2])
        if len(crossed):
            at, which = crossed[0].tolist()
            low, high = out[level][at, 2 * which : 2 * which + 2]
            raise PlanError(
                f"no table is within these bounds: {called(level, int(places.order[level][at]))} has at least "
                f"{low:,.0f} records{_PARTS[which]} and at most {high:,.0f}, by its own bounds and by those of what "
                "lies in it"
            )
    none = (None,) * (tree.depth - last)
    return Limits((*out, *none), bounds.inside)


def _free(inside: NDArray[np.bool_] | None, possible: NDArray[np.int64] | None) -> FloatArray:
    """(6,) what bounds any group: nobody is in cells that cannot be."""
    out = np.array([0.0, np.inf] * 3)
    held = np.ones(1, dtype=np.bool_) if inside is None else inside if possible is None else inside[possible]
    out[3] = np.inf if held.any() and inside is not None else 0.0
    out[5] = 0.0 if held.all() and inside is not None else np.inf
    return out
