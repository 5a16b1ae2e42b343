"""Operator norms, by what they are for matrices: the largest column, row or singular value."""

from __future__ import annotations

import math

import numpy as np

from sfumato.errors import WorkloadError
from sfumato.operators.base import LinearOperator, single_thread

_ENDS = (1, 2, math.inf)


def operator_norm(operator: LinearOperator, p: float, q: float) -> float:
    """The largest ||A v||_q over ||v||_p <= 1, for p <= q of 1, 2 and infinity. Raises WorkloadError for others."""
    if p not in _ENDS or q not in _ENDS or q < p:
        raise WorkloadError(
            f"operator_norm takes p and q of 1, 2 or infinity with p <= q, not p={p!r} and q={q!r}; no fast way is "
            "known to the norms with q below p"
        )
    if p == 1 and q < math.inf:
        return float(max(operator.column_sums(int(q)), default=0)) ** (1 / q)
    if p == q == 2:
        with single_thread():
            return float(np.linalg.norm(np.asarray(operator.dense(), dtype=np.float64), 2))
    largest = 0.0
    for a, b in operator.row_chunks():
        rows = np.abs(operator.rows(a, b))
        # the dual norm of each row
        found = rows.max() if p == 1 else np.linalg.norm(rows, axis=1).max() if p == 2 else rows.sum(axis=1).max()
        largest = max(largest, float(found))
    return largest
