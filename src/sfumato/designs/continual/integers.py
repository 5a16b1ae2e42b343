"""From a strategy over time to the integers of a filter."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.continual.shapes import TimeShape
from sfumato.designs.ordered.buffers import residues
from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray
from sfumato.privacy.filters import IntegerFilter

__all__ = ["filter_of"]

IntArray = NDArray[np.int64]

_DECAY_BITS = 12  # what a filter allows: poles to 2^-12 of themselves, to which errors are insensitive
_ROW_BITS = 11  # what a filter allows: the largest row; errors feel 2^-11 of a row by its square
_OCTAVE = 256
"""Blocks an octave, from both ends, on which rows and columns are constant: errors grow by less than 1e-5."""
_LEAST_ROUNDING = 3e-5  # of the noise, twice: for the last floor, and for those of the states


def filter_of(shape: TimeShape, ratio: float = 1.0) -> IntegerFilter:
    """The integers of a strategy whose columns have at most about length 1.

    `ratio`: how much more than a response of length 1 the rounding of one cell counts in the price; the filter is so
    fine that it counts about 6e-5 of it. Raises PlanError where poles come too near each other.
    """
    n = len(shape.rows)
    runs = _blocks(n)
    begins = np.concatenate([[0], np.cumsum(runs)[:-1]])
    rows = np.add.reduceat(shape.rows, begins) / runs
    columns = np.sqrt(np.add.reduceat(shape.columns**2, begins) / runs)
    e, g = _decays(shape.poles)
    poles = e / np.exp2(g)
    apart = bool((np.diff(poles) > 0).all())
    weights = residues(poles, shape.zeros) if apart else np.zeros(len(poles))
    if not (weights > 0).all():
        raise PlanError("two poles of this strategy over time are too near each other for its integers")
    value_bits = math.ceil(math.log2(ratio * math.sqrt(n) / _LEAST_ROUNDING))
    state_bits = math.ceil(math.log2(ratio * n**1.5 / _LEAST_ROUNDING))
    top = rows.max()
    r = np.maximum(1, np.rint(rows / top * (2**_ROW_BITS - 1))).astype(np.int64)
    fine = columns * 2.0**state_bits
    if fine.max() * max(1.0, float(weights.max())) >= 2.0**62 or fine.min() < 1:
        raise PlanError("this strategy over time needs finer integers than 62 bits; plan for fewer periods or tables")
    carried = np.floor(fine[:, None] * weights).astype(np.int64)
    direct = np.floor(fine).astype(np.int64)
    if (shape.columns == shape.columns[0]).all() and (shape.rows == shape.rows[0]).all():
        runs, r, direct, carried = np.array([n]), r[:1], direct[:1], carried[:1]
    return IntegerFilter(np.column_stack([e, g]), state_bits + _ROW_BITS - value_bits, runs, r, direct, carried)


def _blocks(n: int) -> IntArray:
    """Lengths of blocks that grow from both ends."""
    half: list[int] = []
    done = 0
    while done < (n + 1) // 2:
        half.append(min(max(1, done // _OCTAVE), (n + 1) // 2 - done))
        done += half[-1]
    other = half[::-1]
    other[0] -= 2 * done - n
    return np.array([x for x in (*half, *other) if x > 0], dtype=np.int64)


def _decays(poles: FloatArray) -> tuple[IntArray, IntArray]:
    """e from 2^11 and g with e / 2^g near each pole."""
    g = _DECAY_BITS - 1 - np.floor(np.log2(poles)).astype(np.int64)
    e = np.minimum(np.rint(poles * np.exp2(g)), 2**_DECAY_BITS - 1).astype(np.int64)
    return e, g
