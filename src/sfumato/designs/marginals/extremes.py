"""Which queries of a block can have its largest variance: few, whatever the noise of the residuals.

The variance of a row of a product is a sum over residual sets of products over factors, each number >= 0. In the
numbers of one factor it is linear, so the largest is found among the corners of their convex hull, upper right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.marginals.allocation import Effect
from sfumato.operators.base import FloatArray

__all__ = ["extremes"]

# of the largest variance, what may be lost: the first that leaves few rows is taken
_SLACKS = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
_MANY_ROWS = 20_000  # all of them are gone through in every round of the search that follows


def extremes(effects: Sequence[Effect]) -> list[Effect]:
    """The same blocks with fewer rows, whose largest variance is short of the true one by at most 0.1 % per factor.

    By far less where that leaves few enough rows. What is returned are rows of the blocks.
    """
    out: list[Effect] = []
    for slack in _SLACKS:
        known: dict[tuple[int, int], NDArray[np.intp]] = {}
        out = [_reduced(e, slack, known) for e in effects]
        if sum(_count(e) for e in out) <= _MANY_ROWS:
            break
    return out


def _count(effect: Effect) -> int:
    return math.prod(max((len(sums[k]) for sums in effect.sets.values()), default=1) for k in range(len(effect.rows)))


def _reduced(effect: Effect, slack: float, known: dict[tuple[int, int], NDArray[np.intp]]) -> Effect:
    kept = [_kept([sums[k] for sums in effect.sets.values()], slack, known) for k in range(len(effect.rows))]
    sets: Mapping[frozenset[str], tuple[FloatArray, ...]] = {
        names: tuple(v if rows is None or len(v) == 1 else v[rows] for v, rows in zip(sums, kept, strict=True))
        for names, sums in effect.sets.items()
    }
    return Effect(
        effect.weight, tuple(n if r is None else len(r) for n, r in zip(effect.rows, kept, strict=True)), sets
    )


def _kept(
    values: Sequence[FloatArray], slack: float, known: dict[tuple[int, int], NDArray[np.intp]]
) -> NDArray[np.intp] | None:
    """The rows that matter of one factor's numbers per set; None for all. `known` are those of pairs of arrays."""
    different = list({id(v): v for v in values if len(v) > 1}.values())
    if not different or len(different) > 2:
        return None
    key = id(different[0]), id(different[-1])
    if key not in known:
        known[key] = corners(different[0], different[-1], slack)
    return known[key]


def corners(x: FloatArray, y: FloatArray, slack: float) -> NDArray[np.intp]:
    """Positions of points (x, y) >= 0 such that no a x + b y with a, b >= 0 is larger elsewhere by more than `slack`.

    Between two corners the farthest point above their chord is one more, unless it is within the slack.
    """
    right, top = int(np.lexsort((y, x))[-1]), int(np.lexsort((x, y))[-1])
    found, open_ = {right, top}, [(right, top)]
    while open_:
        p, q = open_.pop()
        a, b = y[q] - y[p], x[p] - x[q]
        height = a * x + b * y
        far = int(height.argmax())
        if height[far] > height[p] * (1 + slack) and far not in found:
            found.add(far)
            open_ += [(p, far), (far, q)]
    return np.array(sorted(found), dtype=np.intp)
