"""What is known of values that were counted in cells: between which numbers each lies.

A cell's middle stands for its records where a mean or a sum is told. What the values really add up to lies between the
cells' lower and upper ends, and no measurement of counts says where.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.domain.attributes import Attribute

__all__ = ["lower_rows", "spans", "upper_rows"]

FloatArray = NDArray[np.float64]


def spans(attribute: Attribute) -> FloatArray | None:
    """(cells, 2) the least and the largest value that a declared cell's records have; None where it has no numbers.

    Of whole numbers the last one of a cell, so that a cell of one number spans nothing; of others the edges.
    """
    if attribute.intervals is None or attribute.midpoints is None:
        return None
    found = np.asarray(attribute.intervals, dtype=np.float64).reshape(-1, 2)
    if attribute.kind == "integer":
        found[:, 1] -= 1
    return found


def upper_rows(attribute: Attribute) -> list[FloatArray]:
    """(declared cells,) each: rows nowhere below the cells' upper ends, the nearest first. Empty without numbers.

    The ends themselves; the middles and a constant, which sums and counts answer; a multiple of the middles, which a
    sum alone answers, where no number is below 0. So whatever counts are, each bounds what the values add up to.
    """
    found = spans(attribute)
    if found is None:
        return []
    return _rows(found[:, 1], np.asarray(attribute.midpoints, dtype=np.float64), found, 1.0)


def lower_rows(attribute: Attribute) -> list[FloatArray]:
    """(declared cells,) each: rows nowhere above the cells' lower ends, the nearest first, as `upper_rows`."""
    found = spans(attribute)
    if found is None:
        return []
    return _rows(found[:, 0], np.asarray(attribute.midpoints, dtype=np.float64), found, -1.0)


def _rows(ends: FloatArray, middles: FloatArray, found: FloatArray, sign: float) -> list[FloatArray]:
    rows = [ends, middles + sign * np.max(sign * (ends - middles))]
    if (found[:, 0] >= 0).all():
        told = middles > 0  # a middle of 0 is then a cell of 0 alone
        ratio = np.max(sign * ends[told] / middles[told], initial=-1.0 if sign < 0 else 0.0)
        rows.append(sign * ratio * middles)
    return rows
