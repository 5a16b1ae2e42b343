"""Sums over groups of cells, such as the counties of each state, and cells that no row counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import WorkloadError
from sfumato.ground.codec import storable
from sfumato.maps import AlikeMap, Map, MergedMap
from sfumato.operators.base import FloatArray, LinearOperator, Numbers, check_dense
from sfumato.operators.basic import check_length
from sfumato.operators.compose import Scaled
from sfumato.operators.explicit import Dense

__all__ = ["Grouping", "Padded"]


@storable
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Grouping(LinearOperator):
    """One 0/1 row per group, the sum of its cells: (groups, n).

    codes: (n,) the group of every cell, from 0 to groups - 1, or -1 for a cell that is in none.
    """

    codes: NDArray[np.int64]
    groups: int

    def __post_init__(self) -> None:
        codes = np.asarray(self.codes)
        if codes.ndim != 1 or codes.size == 0 or codes.dtype.kind not in "iu":
            raise WorkloadError("a grouping needs a list of whole numbers, the group of every cell")
        check_length(self.groups, "a grouping")
        if int(codes.min()) < -1 or int(codes.max()) >= self.groups:
            raise WorkloadError(f"the groups of cells are numbers from 0 to {self.groups - 1:,}, or -1 for none")
        codes = codes.astype(np.int64)
        codes.flags.writeable = False
        object.__setattr__(self, "codes", codes)

    @property
    def shape(self) -> tuple[int, int]:
        return (self.groups, len(self.codes))

    @property
    def integral(self) -> bool:
        return True

    @property
    def binary(self) -> bool:
        return True

    @property
    def max_abs(self) -> int:
        return int(self.codes.max() >= 0)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Grouping):
            return NotImplemented
        return other.groups == self.groups and np.array_equal(other.codes, self.codes)

    def __hash__(self) -> int:
        return hash((self.groups, self.codes.tobytes()))

    def apply(self, vectors: Numbers) -> Numbers:
        out = np.zeros((self.groups, vectors.shape[1]), dtype=vectors.dtype)
        codes = self.codes
        if codes[0] < 0 or (np.diff(codes) < 0).any():
            order = np.argsort(codes, kind="stable")
            order = order[np.searchsorted(codes[order], 0) :]
            codes, vectors = codes[order], vectors[order]
        if len(codes):
            starts = np.concatenate([[0], np.flatnonzero(np.diff(codes)) + 1])
            out[codes[starts]] = np.add.reduceat(vectors, starts, axis=0)
        return out

    def apply_transpose(self, vectors: Numbers) -> Numbers:
        out = vectors[self.codes]
        out[self.codes < 0] = 0
        return out

    def rows(self, start: int, stop: int) -> FloatArray:
        self.check_rows(start, stop)
        return (self.codes == np.arange(start, stop)[:, None]).astype(np.float64)

    def _alike(self) -> NDArray[np.bool_]:
        """(n, n) whether two cells are in the same group."""
        check_dense(len(self.codes), len(self.codes))
        return (self.codes[:, None] == self.codes) & (self.codes >= 0)

    def gram(self) -> LinearOperator:
        return Dense(self._alike().astype(np.int64))

    def row_sums(self, power: int) -> FloatArray:
        return np.bincount(self.codes[self.codes >= 0], minlength=self.groups).astype(np.float64)

    def row_forms(self, matrix: FloatArray) -> FloatArray:
        kept = np.flatnonzero(self.codes >= 0)
        between = self.apply(matrix)[self.codes[kept], kept]
        return np.asarray(np.bincount(self.codes[kept], between, self.groups), dtype=np.float64)

    def lowered(self) -> Map:
        return MergedMap(AlikeMap(self.groups), self.codes)


@storable
@dataclass(frozen=True, slots=True, repr=False)
class Padded(LinearOperator):
    """An operator followed by `extra` columns of zeros: cells that its rows do not count."""

    operator: LinearOperator
    extra: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.operator, LinearOperator):
            raise WorkloadError(f"padding needs an operator, not {self.operator!r}")
        if isinstance(self.extra, bool) or not isinstance(self.extra, int) or self.extra < 0:
            raise WorkloadError(f"padding adds a whole number of columns, not {self.extra!r}")

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.operator.shape
        return (rows, columns + self.extra)

    @property
    def integral(self) -> bool:
        return self.operator.integral

    @property
    def binary(self) -> bool:
        return self.operator.binary

    @property
    def max_abs(self) -> float:
        return self.operator.max_abs

    def apply(self, vectors: Numbers) -> Numbers:
        return self.operator.apply(vectors[: self.operator.shape[1]])

    def apply_transpose(self, vectors: Numbers) -> Numbers:
        inner = self.operator.apply_transpose(vectors)
        return np.concatenate([inner, np.zeros((self.extra, inner.shape[1]), dtype=inner.dtype)])

    def gram(self) -> LinearOperator:
        check_dense(self.shape[1], self.shape[1])
        inner = self.operator.gram()
        padded = Dense(np.pad(inner.dense(), ((0, self.extra), (0, self.extra))))
        return Scaled(padded, 1.0) if self.integral and not inner.integral else padded

    def rows(self, start: int, stop: int) -> FloatArray:
        self.check_rows(start, stop)
        return np.pad(self.operator.rows(start, stop), ((0, 0), (0, self.extra)))

    def column_sums(self, power: int) -> Numbers:
        inner = self.operator.column_sums(power)
        return np.concatenate([inner, np.zeros(self.extra, dtype=inner.dtype)])

    def row_sums(self, power: int) -> FloatArray:
        return self.operator.row_sums(power)

    def row_forms(self, matrix: FloatArray) -> FloatArray:
        inner = self.operator.shape[1]
        return self.operator.row_forms(matrix[:inner, :inner])

    def lowered(self) -> Map:
        inner = self.operator.lowered()
        return MergedMap(inner, np.concatenate([np.arange(inner.shape[1]), np.full(self.extra, -1)]))
