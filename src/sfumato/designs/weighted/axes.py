"""One attribute of weighted tables: what its factor, and its total, see of queries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato.designs.factors import Cells, Factor
from sfumato.operators import Identity, LinearOperator
from sfumato.operators.base import FloatArray

__all__ = ["Axis"]

_ZERO = 1e-13  # relative, some hundreds of roundings: what is constant along an axis is exactly so


@dataclass(frozen=True, eq=False, slots=True)
class Axis:
    """cells n; tilt t = G^+ 1 / c and total c = 1ᵀG^+ 1, for G the Gram of the factor; `fourth` that of 1ᵀA^+."""

    factor: Factor
    cells: int
    tilt: FloatArray
    total: float
    ones: FloatArray
    fourth: float

    @classmethod
    def of(cls, factor: Factor) -> Axis:
        n = factor.measured.shape[1]
        ones = factor.spread(np.ones((1, n)))[0] if not isinstance(factor, Cells) else np.ones(n)
        back = factor.cells_of_rows(np.ones((1, n)))[0]
        total = float(back.sum())
        return cls(factor, n, back / total, total, ones, float((ones**4).sum()))

    def squares(self, query: LinearOperator) -> tuple[FloatArray, FloatArray]:
        """((w t)^2, (w G^+ wᵀ) - c (w t)^2) of every row w, (rows,) or (1,) where all are alike."""
        if isinstance(self.factor, Cells) and isinstance(query, Identity):
            n = self.cells
            return np.array([1 / n**2]), np.array([1 - 1 / n])
        mean = np.asarray(query.matvec(self.tilt), dtype=np.float64)
        whole = np.broadcast_to(self.factor.row_powers(query, 2), mean.shape)
        rest = whole - self.total * mean**2
        return mean**2, np.where(rest <= _ZERO * whole, 0.0, rest)

    def moments(self, query: LinearOperator) -> tuple[list[FloatArray], FloatArray]:
        """([sum_j a_j^k b_j^(4 - k) for k of 0 to 4], (w t)^4) of every row.

        a = w A^+ - b are the contrasts of a row over what is measured, b = (w t) 1ᵀA^+ its mean.
        """
        if isinstance(self.factor, Cells) and isinstance(query, Identity):
            n = self.cells
            own, other = 1 - 1 / n, -1 / n
            found = [np.array([(own**k + (n - 1) * other**k) / n ** (4 - k)]) for k in range(5)]
            return found, np.array([n**-4.0])
        mean = np.asarray(query.matvec(self.tilt), dtype=np.float64)
        out = [np.empty(len(mean)) for _ in range(5)]
        for a, b in query.row_chunks():
            part = np.multiply.outer(mean[a:b], self.ones)
            contrast = self.factor.spread(query.rows(a, b)) - part
            for k in range(5):
                out[k][a:b] = (contrast**k * part ** (4 - k)).sum(axis=1)
        return out, mean**4

    def between(self, first: LinearOperator, second: LinearOperator) -> tuple[FloatArray, FloatArray]:
        """(w t tᵀ zᵀ, w (G^+ - c t tᵀ) zᵀ) of all rows w and z."""
        one = np.asarray(first.matvec(self.tilt), dtype=np.float64)
        other = np.asarray(second.matvec(self.tilt), dtype=np.float64)
        means = np.multiply.outer(one, other)
        rows = self.factor.cells_of_rows(np.asarray(second.dense(), dtype=np.float64))
        whole = np.asarray(first.matvec(np.ascontiguousarray(rows.T)), dtype=np.float64)
        return means, whole - self.total * means
