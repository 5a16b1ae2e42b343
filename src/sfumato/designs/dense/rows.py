"""Weighted queries that are never written out: what optimisation over their weights asks of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato.operators import Dense, LinearOperator
from sfumato.operators.base import FloatArray
from sfumato.operators.ordered import Contiguous

__all__ = ["Queries"]


@dataclass(frozen=True, slots=True)
class Queries:
    """Rows f_i, stacked, of operators over the same m cells: each block's rows times the root of its weight."""

    blocks: tuple[tuple[LinearOperator, float], ...]

    @classmethod
    def of(cls, matrix: FloatArray) -> Queries:
        """Of a matrix (k, m)."""
        return cls(((Dense(matrix), 1.0),))

    @property
    def shape(self) -> tuple[int, int]:
        """(queries, cells)."""
        return sum(operator.shape[0] for operator, _ in self.blocks), self.blocks[0][0].shape[1]

    @property
    def work(self) -> int:
        """Operations of one pass over all rows, about."""
        m = self.shape[1]
        return sum(m * m * (1 if isinstance(o, Contiguous) else 2 * o.shape[0]) for o, _ in self.blocks)

    def forms(self, matrix: FloatArray) -> FloatArray:
        """(k,) values of f_i S f_iᵀ for a symmetric S (m, m)."""
        return np.concatenate([weight * operator.row_forms(matrix) for operator, weight in self.blocks])

    def gram(self, weights: FloatArray) -> FloatArray:
        """The sum of weights[i] f_iᵀ f_i, (m, m)."""
        out, start = np.zeros((self.shape[1],) * 2), 0
        for operator, weight in self.blocks:
            stop = start + operator.shape[0]
            out += weight * _gram(operator, weights[start:stop])
            start = stop
        return out


def _gram(operator: LinearOperator, weights: FloatArray) -> FloatArray:
    if isinstance(operator, Contiguous):
        # each row adds its weight on a square: four corners, then sums along both axes
        n = operator.shape[1] + 1
        first, last = operator.spans()
        steps = np.zeros(n * n)
        for i, j, sign in ((first, first, 1), (last, last, 1), (first, last, -1), (last, first, -1)):
            steps += sign * np.bincount(i * n + j, weights=weights, minlength=n * n)
        return steps.reshape(n, n).cumsum(axis=0).cumsum(axis=1)[:-1, :-1]
    out = np.zeros((operator.shape[1],) * 2)
    for a, b in operator.row_chunks():
        rows = operator.rows(a, b)
        out += (rows.T * weights[a:b]) @ rows
    return out
