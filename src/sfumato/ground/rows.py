"""Rows of small numbers as keys."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["distinct"]

Numbers = NDArray[np.int64]


def distinct(rows: Numbers, base: int) -> tuple[Numbers, Numbers]:
    """Where each distinct row of numbers below `base` stands first, in lexicographic order, and which one each is."""
    code = np.zeros(len(rows), dtype=np.int64)
    top = 1
    for column in rows.T:
        if top * base >= 2**62:
            code = np.unique(code, return_inverse=True)[1]
            top = len(rows)
        code = code * base + column
        top *= base
    if (np.diff(code) > 0).all():
        # as sets are mostly given
        return (each := np.arange(len(rows))), each
    _, first, kind = np.unique(code, return_index=True, return_inverse=True)
    return first, kind
