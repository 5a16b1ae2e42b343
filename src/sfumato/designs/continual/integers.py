"""From a strategy over time to the integers of a filter."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.continual.curves import Blocks, Every, column_lengths
from sfumato.designs.continual.shapes import TimeShape
from sfumato.designs.ordered.buffers import residues
from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray
from sfumato.privacy.filters import IntegerFilter

__all__ = ["filter_of"]

IntArray = NDArray[np.int64]

_DECAY_BITS = 12  # what a filter allows: poles to 2^-12 of themselves, to which errors are insensitive
_ROW_BITS, _MORE_ROW_BITS, _STEEP = 11, 14, 64
"""Of the largest row: errors feel 2^-11 of a row by its square. What a filter allows, where some rows are 64 times
smaller than others, as where a stream may end at any time."""
_OCTAVE = 512
"""Blocks an octave, from both ends, on which rows and columns are constant: the longest column is 2e-4 above the
mean, which errors grow by; with half as many blocks twice that."""
_ONE_BY_ONE = 2**14  # periods up to which lengths of columns are found one by one; on their blocks they differ by 1e-6
_LEAST_ROUNDING = 3e-5  # of the noise, twice: for the last floor, and for those of the states


def filter_of(shape: TimeShape, ratio: float = 1.0) -> IntegerFilter:
    """The integers of a strategy over time.

    `ratio`: how much more than a response of length 1 the rounding of one cell counts in the price; the filter is so
    fine that it counts about 6e-5 of it. Raises PlanError where that needs too many bits.
    """
    n = len(shape.rows)
    e, g, zeros = _told_apart(shape.poles, shape.zeros)
    poles = e / np.exp2(g)
    weights = residues(poles, zeros)
    value_bits = math.ceil(math.log2(ratio * math.sqrt(n) / _LEAST_ROUNDING))
    state_bits = math.ceil(math.log2(ratio * n**1.5 / _LEAST_ROUNDING))
    runs = np.array([n]) if shape.alike else _blocks(n)
    begins = np.concatenate([[0], np.cumsum(runs)[:-1]])
    rows = np.add.reduceat(shape.rows, begins) / runs
    row_bits = _ROW_BITS if rows.max() < _STEEP * rows.min() else _MORE_ROW_BITS
    r = np.maximum(1, np.rint(rows / rows.max() * (2**row_bits - 1))).astype(np.int64)
    columns = np.ones(len(runs))
    if not shape.alike:
        # of the rows and poles as they are rounded
        scaled = r * (rows.max() / (2**row_bits - 1))
        if n <= _ONE_BY_ONE:
            lengths = column_lengths(poles, zeros, np.repeat(scaled, runs), Every(n))
            columns = np.sqrt(np.add.reduceat(1 / lengths**2, begins) / runs)
        else:
            columns = 1 / column_lengths(poles, zeros, scaled, Blocks(np.append(begins, n).astype(np.float64)))
    fine = columns * 2.0**state_bits
    if fine.max() * max(1.0, float(weights.max())) >= 2.0**62 or fine.min() < 1:
        raise PlanError("this strategy over time needs finer integers than 62 bits; plan for fewer periods or tables")
    carried = np.floor(fine[:, None] * weights).astype(np.int64)
    direct = np.floor(fine).astype(np.int64)
    return IntegerFilter(np.column_stack([e, g]), state_bits + row_bits - value_bits, runs, r, direct, carried)


def _told_apart(poles: FloatArray, zeros: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Poles as integers e / 2^g, and the zeros between them.

    Of two poles that become one the zero between them cancels one; so does a zero that a rounded pole reaches.
    """
    kept: list[tuple[int, int, float]] = []
    for e, g, zero in zip(*_decays(poles), zeros, strict=True):
        pole = float(e) / 2.0 ** int(g)
        if kept and pole <= kept[-1][2]:
            kept[-1] = (*kept[-1][:2], float(zero))
        elif zero > pole:
            kept.append((int(e), int(g), float(zero)))
    # none: a pole that its own zero cancels
    e, g, zero = zip(*(kept or [(1, 1, 0.5)]), strict=True)
    return np.array(e), np.array(g), np.array(zero)


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
