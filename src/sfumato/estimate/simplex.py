"""Projection onto nonnegative cells, with or without a known total: exact, by one sort."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.operators.base import FloatArray

__all__ = ["onto_simplex"]


def onto_simplex(
    values: FloatArray,
    total: float | None,
    variances: FloatArray | None = None,
    possible: NDArray[np.bool_] | None = None,
) -> FloatArray:
    """(m,) the nearest h >= 0 with sum `total` (None: any) to `values` in sum_j (h_j - values_j)^2 / variances_j.

    h is 0 where not `possible` (None: all are). O(m log m).
    The solution is max(values - theta * variances, 0) for one number theta.
    """
    if possible is not None:
        kept, out = possible.reshape(-1), np.zeros_like(values)
        out[kept] = onto_simplex(values[kept], total, None if variances is None else variances[kept])
        return out
    if total is None:
        return np.maximum(values, 0.0)
    if total == 0:
        return np.zeros_like(values)
    steps = np.ones_like(values) if variances is None else variances
    keys = values / steps
    order = np.argsort(-keys, kind="stable")
    theta = (np.cumsum(values[order]) - total) / np.cumsum(steps[order])
    # the cells that stay positive come first in this order
    last = int(np.flatnonzero(keys[order] > theta)[-1])
    out = np.maximum(values - theta[last] * steps, 0.0)
    # rounding of long sums
    return out * (total / out.sum())
