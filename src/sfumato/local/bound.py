"""The least error that any locally private protocol can have, and the projection that its optimum asks to measure.

Let K(y | j) be any epsilon-LDP channel (what is asked may be random and reported in y), the same for all persons, and
let answers be unbiased sums of a vector for each report. Put weights q on the cells and D_y = sum_j q_j K(y | j).
All K(y | j) of one y lie between some a and e^epsilon a, so that

    sum_j q_j (K(y | j) - D_y)^2 <= (D_y - a)(e^epsilon a - D_y) <= D_y^2 (e^epsilon - 1)^2 / (4 e^epsilon).

Hence X = sum_y (K_y - D_y)(K_y - D_y)ᵀ / D_y has sum_j q_j X_jj <= 1 / c, c = 4 e^epsilon / (e^epsilon - 1)^2, and with
F_c = F - F q 1ᵀ least squares has variance tr F_c X^+ F_cᵀ >= c ||F_c diag(q)^(1/2)||_*^2 for records drawn from q;
for a table of n records with shares q that is less by what the cells themselves vary:

    sum of variances >= n (c ||F_c diag(q)^(1/2)||_*^2 - ||F_c diag(q)^(1/2)||_F^2).

The first norm at its largest over q is the factorization norm of F up to an offset, min over b of gamma(F + b 1ᵀ),
by the duality of [ENU20]; every q gives a valid bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sfumato.operators.base import FloatArray
from sfumato.operators.blas import single_thread

__all__ = ["Centred", "centred_optimum", "hard_constant"]

_EPS = float(np.finfo(np.float64).eps)


def hard_constant(epsilon: float) -> float:
    """c = 4 e^epsilon / (e^epsilon - 1)^2 = 1 / sinh(epsilon / 2)^2."""
    return 1 / math.sinh(epsilon / 2) ** 2


@dataclass(frozen=True, slots=True)
class Centred:
    """The factorization norm of F up to an offset: `lower` <= it <= `upper`.

    `strategy` (l, m) attains `upper`, columns in the unit ball; `moved` is ||F_c diag(q)^(1/2)||_F^2 for the q of
    `lower`.
    """

    strategy: FloatArray
    lower: float
    upper: float
    moved: float

    def bound(self, epsilon: float) -> float:
        """The least sum of variances per record of any protocol, for the worst table."""
        return max(0.0, hard_constant(epsilon) * self.lower**2 - self.moved) * (1 - 1e-9)


def centred_optimum(gram: FloatArray, rounds: int = 60, tolerance: float = 1e-3) -> Centred:
    """From FᵀF, (m, m): q_j <- q_j (squared norm of column j), where every q gives both bounds; m^3 a round."""
    from scipy.linalg import eigh  # noqa: PLC0415  (slow to import)

    m = len(gram)
    q, best, low, moved = np.full(m, 1 / m), None, 0.0, 0.0
    high = math.inf
    for _ in range(rounds):
        half = gram @ q
        centred = gram - half[:, None] - half[None, :] + float(q @ half)
        root = np.sqrt(q)
        with single_thread():
            values, vectors = eigh(centred * root[:, None] * root[None, :])
        # what rounding may have added to an eigenvalue is taken off before its root is
        sure = np.sqrt(np.maximum(values - max(values[-1], 0.0) * m * 2 * _EPS, 0.0))
        if sure.sum() > low:
            low, moved = float(sure.sum()), float((centred.diagonal() * q).sum())
        keep = values > values[-1] * m * 1e-13
        roots = np.sqrt(values[keep])
        # M = S^(-1/2) Uᵀ F_c = S^(-3/2) Vᵀ diag(q)^(1/2) F_cᵀ F_c
        strategy = (vectors[:, keep] * roots**-1.5).T @ (root[:, None] * centred)
        norms = (strategy**2).sum(axis=0)
        value = math.sqrt(float(roots.sum()) * float(norms.max()))
        if value < high:
            high, best = value, strategy / math.sqrt(float(norms.max()))
        if high <= low * (1 + tolerance):
            break
        q = np.maximum(q * norms, 1e-12 / m)
        q /= q.sum()
    assert best is not None
    return Centred(best, low, high, moved)
