"""Quadratic norms over the cells of a table that weigh every residual by itself.

sum_S w_S P_S, P_S the projector onto what a table has in the set S of attributes beyond its smaller margins. By
inclusion and exclusion it is sum_B c_B T_B' T_B, T_B the sums of cells to the table over B: few numbers where only a
few tables were measured, and on some of the cells a multiple of the identity plus few columns.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.operators.base import FloatArray

__all__ = ["Cells", "IntArray", "Sets"]

IntArray = NDArray[np.int64]
Sets = tuple[int, ...]

_NONE = 1e-12  # of the largest coefficient: below it, rounding of sums of a few weights


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of a table of this shape, numbered in C order; weights of residuals are (..., sets) in the order of
    `sets`, all sets of axes, smaller ones first."""

    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many cells."""
        return math.prod(self.shape)

    @functools.cached_property
    def sets(self) -> tuple[Sets, ...]:
        """All sets of axes."""
        every = range(len(self.shape))
        return tuple(c for r in range(len(self.shape) + 1) for c in itertools.combinations(every, r))

    @functools.cached_property
    def contrasts(self) -> FloatArray:
        """(sets,) how many independent contrasts a residual has: prod (n - 1)."""
        return np.array([math.prod(self.shape[i] - 1 for i in s) for s in self.sets], dtype=np.float64)

    @functools.cached_property
    def _inclusion(self) -> FloatArray:
        """(sets, sets) what a unit of weight on the second adds to the coefficient of the first."""
        out = np.zeros((len(self.sets), len(self.sets)))
        for j, s in enumerate(self.sets):
            for i, b in enumerate(self.sets):
                if set(b) <= set(s):
                    rest = math.prod(n for axis, n in enumerate(self.shape) if axis not in b)
                    out[i, j] = (-1) ** (len(s) - len(b)) / rest
        return out

    def coefficients(self, weights: FloatArray) -> FloatArray:
        """(..., sets) c_B of weights (..., sets); zero where rounding alone is left. Sets without contrasts count
        not."""
        held = np.where(self.contrasts > 0, weights, 0.0)
        out = held @ self._inclusion.T
        # c_B stands before a matrix whose largest eigenvalue is the number of cells of the others
        rest = np.array([math.prod(n for a, n in enumerate(self.shape) if a not in b) for b in self.sets])
        size = np.abs(out) * rest
        return np.where(size > _NONE * np.abs(held).max(axis=-1, keepdims=True), out, 0.0)

    def number(self, axes: Sets, cells: IntArray) -> IntArray:
        """The cell of the table over some axes in which each cell lies."""
        if not axes:
            return np.zeros(len(cells), dtype=np.int64)
        codes = np.unravel_index(cells, self.shape)
        return np.ravel_multi_index(tuple(codes[i] for i in axes), tuple(self.shape[i] for i in axes)).astype(np.int64)

    def sums(self, axes: Sets, rows: FloatArray) -> FloatArray:
        """(n, cells) summed to the table over some axes, (n, its shape with ones for the other axes)."""
        drop = tuple(1 + i for i in range(len(self.shape)) if i not in axes)
        return rows.reshape(len(rows), *self.shape).sum(axis=drop, keepdims=True)

    def weigh(self, weights: FloatArray, rows: FloatArray) -> FloatArray:
        """(n, cells) sum_S w_S P_S of every row, with weights (n or 1, sets)."""
        c = self.coefficients(weights)
        out = np.zeros((len(rows), *self.shape))
        for i, b in enumerate(self.sets):
            if c[:, i].any():
                out += c[:, i].reshape(-1, *(1,) * len(self.shape)) * self.sums(b, rows)
        return out.reshape(len(rows), self.size)

    def project(self, held: Sequence[bool] | NDArray[np.bool_], rows: FloatArray) -> FloatArray:
        """(n, cells) the residuals of some sets of every row."""
        return self.weigh(np.asarray(held, dtype=np.float64)[None], rows)
