"""Small quadratic programs over the simplex or the orthant, by an active set: exact once no coordinate pulls. [LH74]"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.operators.base import FloatArray
from sfumato.operators.blas import single_thread

__all__ = ["minimise_quadratic"]

# some thousand roundings of a double, relative: below, a slope is rounding, and a Gram matrix gets that ridge
_ROUNDING = 1e-12


def minimise_quadratic(gram: FloatArray, linear: FloatArray, total: float | None, start: FloatArray) -> FloatArray:
    """(s,) the least of 1/2 hᵀ G h - cᵀ h over h >= 0 with sum `total` (None: any).

    `start` is feasible, with positive sum unless `total` is None. Every step lowers the objective; where the
    columns are dependent one of the solutions is returned. At most 10 s + 100 steps: a search that rounding keeps from
    its end returns where it stands, feasible and no worse than `start`; callers that promise an optimum prove a gap.
    """
    h = start.copy()
    scale = max(float(np.abs(np.diag(gram)).max(initial=0.0)), 1e-300)
    slack = _ROUNDING * max(float(np.abs(linear).max(initial=0.0)), scale * float(h.sum()), 1e-300)
    held = h > 0
    with single_thread():
        for _ in range(10 * len(h) + 100):
            inside = np.flatnonzero(held)
            wanted, level = _stationary(gram, linear, total, inside, scale)
            if (wanted < 0).any():
                now = h[inside]
                falling = wanted < 0
                share = now[falling] / (now[falling] - wanted[falling])
                step = float(share.min(initial=1.0))
                moved = now + step * (wanted - now)
                moved[np.flatnonzero(falling)[share <= step]] = 0.0
                h[inside] = np.maximum(moved, 0.0)
                held = h > 0
                continue
            h[inside] = wanted
            slope = gram @ h - linear + level
            slope[inside] = 0.0
            worst = int(np.argmin(slope))
            if slope[worst] >= -slack:
                break
            held = h > 0
            held[worst] = True
    return h


def _stationary(
    gram: FloatArray, linear: FloatArray, total: float | None, inside: NDArray[np.intp], scale: float
) -> tuple[FloatArray, float]:
    """The stationary point on some coordinates, and the multiplier of the sum."""
    import scipy.linalg as sla  # noqa: PLC0415  (heavy)

    if len(inside) == 0:
        return np.empty(0), 0.0
    some = gram[np.ix_(inside, inside)]
    some = some + np.eye(len(inside)) * (_ROUNDING * scale)
    try:
        factor = sla.cho_factor(some, lower=True)
    except np.linalg.LinAlgError:
        factor = sla.cho_factor(some + np.eye(len(inside)) * (1e-9 * scale), lower=True)
    found = sla.cho_solve(factor, linear[inside])
    if total is None:
        return found, 0.0
    ones = sla.cho_solve(factor, np.ones(len(inside)))
    level = (float(found.sum()) - total) / float(ones.sum())
    return found - level * ones, level
