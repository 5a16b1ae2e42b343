"""Whole counts near fractional ones: every answer of a table that was rounded is that of a table of whole counts.

[Cox87]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.operators import LinearOperator
from sfumato.operators.base import FloatArray

__all__ = ["controlled", "round_records", "round_to_total"]

_CONTROLLED = 4_000  # cells, each a whole number to be decided in the time below
_ROWS = 20_000  # answers, each with two constraints
_SECONDS = 5.0  # of a search that may have no end; then the nearest of other roundings is taken


def round_to_total(values: FloatArray, total: int) -> NDArray[np.int64]:
    """(m,) whole numbers that sum to `total`, each the floor or the ceiling of a share of it: largest remainders."""
    share = values / values.sum() * total if values.sum() > 0 else np.full(len(values), total / len(values))
    whole = np.floor(share + 1e-9).astype(np.int64)
    missing = total - int(whole.sum())
    if missing:
        order = np.argsort(whole - share, kind="stable")
        whole[order[:missing]] += 1
    return whole


def round_records(weights: FloatArray, total: int) -> NDArray[np.int64]:
    """(r,) whole numbers of records, by rounding running sums: neighbours in the order share their rounding.

    Records that are ordered by their codes are rounded so that every group of neighbours is off by at most one.
    """
    if weights.sum() <= 0:
        return round_to_total(weights, total)
    ends = np.rint(np.cumsum(weights) / weights.sum() * total).astype(np.int64)
    ends[-1] = total
    return np.diff(ends, prepend=0)


def controlled(cells: FloatArray, operator: LinearOperator, total: int) -> NDArray[np.int64] | None:
    """(m,) cells of sum `total`, every answer the floor or the ceiling of what it was; None where none is found.

    The queries are sums of cells (entries 0 and 1). Always possible for one table with its margins along two
    attributes; from three on there need not be such a rounding, and the search has a limit of a few seconds.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415  (heavy)
    from scipy.sparse import csr_array  # noqa: PLC0415  (heavy)

    rows, m = operator.shape
    if m > _CONTROLLED or rows > _ROWS or rows * m > 2**25 or not operator.binary:
        return None
    snapped = np.where(np.abs(cells - np.rint(cells)) < 1e-7, np.rint(cells), cells)
    whole = np.floor(snapped)
    free = np.flatnonzero(snapped > whole)
    if len(free) == 0:
        return whole.astype(np.int64) if whole.sum() == total else None
    matrix = np.asarray(operator.dense(), dtype=np.float64)
    asked, base = matrix @ snapped, matrix @ whole
    low, high = np.floor(asked + 1e-6) - base, np.ceil(asked - 1e-6) - base
    # most of what is nearly up goes up
    reward = 1 - 2 * (snapped - whole)[free]
    found = milp(
        reward,
        integrality=np.ones(len(free), dtype=np.int64),
        bounds=Bounds(0, 1),
        constraints=[
            LinearConstraint(csr_array(matrix[:, free]), low, high),
            LinearConstraint(np.ones((1, len(free))), total - whole.sum(), total - whole.sum()),
        ],
        options={"time_limit": _SECONDS},
    )
    if found.x is None:
        return None
    whole[free] += np.rint(found.x)
    return whole.astype(np.int64)
