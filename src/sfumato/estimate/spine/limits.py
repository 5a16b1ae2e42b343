"""Between which numbers the totals of groups lie: floors and caps, and totals that are known exactly.

Groups lie in each other, so bounds are met together wherever each group's floor is at most its cap once both are
made to agree with what lies in it: a floor is at least the sum of its children's, a cap at most. Given a parent's total
between its two, the children's can be chosen between theirs; from the root down none is ever left without a choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sfumato.designs.spine.places import Place
from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray

__all__ = ["Bounds", "limits"]

Bounds = Mapping[int, tuple[FloatArray, FloatArray]]
"""By level the floor and the cap of every group, in the order of its numbers."""


def limits(
    places: Place, totals: Sequence[FloatArray], total: float | None, bounds: Bounds
) -> tuple[FloatArray | None, ...]:
    """Per level (groups, 2) in the order of the tree, None where nothing is said of a level or below it; nothing where
    nothing is said at all. totals: those that are known, of levels from the root on; total: of all records where known.

    Raises PlanError where no table is within the bounds, with the first group that shows it.
    """
    if not totals and not bounds:
        return ()
    tree = places.tree
    last = max([len(totals) - 1, *bounds])
    out: list[FloatArray] = []
    for level in range(last + 1):
        own = np.tile([0.0, np.inf], (len(tree.counts[level]), 1))
        if level in bounds:
            own = places.sorted(level, np.stack(bounds[level], axis=1))
        if level < len(totals):
            own = np.stack([np.maximum(own[:, 0], totals[level][:, 0]), np.minimum(own[:, 1], totals[level][:, 0])], 1)
        out.append(own)
    if total is not None:
        out[0] = np.array([[max(out[0][0, 0], total), min(out[0][0, 1], total)]])
    for level in range(last, -1, -1):
        if level < last:
            below = tree.sums(level + 1, out[level + 1])
            out[level][:, 0] = np.maximum(out[level][:, 0], below[:, 0])
            out[level][:, 1] = np.minimum(out[level][:, 1], below[:, 1])
        crossed = np.flatnonzero(out[level][:, 0] > out[level][:, 1])
        if len(crossed):
            at = int(crossed[0])
            low, high = out[level][at]
            raise PlanError(
                f"no table is within these bounds: group {int(places.order[level][at])} of level {level} has at least "
                f"{low:,.0f} records and at most {high:,.0f}, by its own bounds and by those of what lies in it"
            )
    none = (None,) * (tree.depth - last)
    return (*out, *none)
