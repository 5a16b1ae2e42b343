"""Weights of pairs as products of weights of their ends, as far as they are."""

from __future__ import annotations

import numpy as np

from sfumato.operators.base import FloatArray

__all__ = ["product_scale"]

_ALIKE = 1e-9  # relative: products of logarithms and exponentials round some 1e-15 off
_FLOOR = 1e-3  # of the largest: a norm whose scales differ by more than a thousand is badly conditioned
_POWERS = 30  # a fixed point that only scales a norm: any positive scale is right, a near one is fast


def product_scale(weight: FloatArray) -> tuple[FloatArray, bool]:
    """(D,) positive s with weight_ij about s_i s_j, and whether that is all there is to the weights."""
    size = len(weight)
    off = ~np.eye(size, dtype=bool)
    if weight[off].min() > 0:
        if size == 2:
            return np.sqrt(weight.max(axis=0)), True
        logs = np.log(np.where(off, weight, 1.0))
        rows = logs.sum(axis=1)
        scale = np.exp((rows - rows.sum() / (2 * size - 2)) / (size - 2))
        if np.abs(np.multiply.outer(scale, scale)[off] / weight[off] - 1).max() < _ALIKE:
            return scale, True
    vector = np.sqrt(weight.mean(axis=1))
    for _ in range(_POWERS):
        # the rank-one part of the weights, whose diagonal is free
        vector = np.sqrt(vector * (weight @ vector) / float(vector @ vector))
    return np.maximum(vector, _FLOOR * float(vector.max())), False
