"""Operators whose columns are exchangeable: identity, total, and the integer residual n I - J."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sfumato._util.codec import storable
from sfumato.errors import WorkloadError
from sfumato.maps import AlikeMap, Map, TotalMap
from sfumato.operators.base import FloatArray, LinearOperator, Numbers

__all__ = ["Identity", "Residual", "Total"]


def check_length(n: object, what: str) -> None:
    """Refuse a number of columns that is no positive whole number."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise WorkloadError(f"{what} needs a whole number of cells of at least 1, not {n!r}")


@dataclass(frozen=True, slots=True, repr=False)
class _AlikeColumns(LinearOperator):
    """Integers, and columns that are all alike: what a number of cells says by itself."""

    n: int
    noun: ClassVar[str]

    def __post_init__(self) -> None:
        check_length(self.n, self.noun)

    @property
    def shape(self) -> tuple[int, int]:
        return (self.n, self.n)

    @property
    def integral(self) -> bool:
        return True

    @property
    def exchangeable(self) -> bool:
        return True


@storable
@dataclass(frozen=True, slots=True, repr=False)
class Identity(_AlikeColumns):
    """Every cell itself: (n, n)."""

    noun: ClassVar[str] = "identity"

    @property
    def binary(self) -> bool:
        return True

    @property
    def max_abs(self) -> int:
        return 1

    def apply(self, vectors: Numbers) -> Numbers:
        return vectors

    def apply_transpose(self, vectors: Numbers) -> Numbers:
        return vectors

    def gram(self) -> LinearOperator:
        return self

    def row_sums(self, power: int) -> FloatArray:
        return np.ones(self.n)

    def row_forms(self, matrix: FloatArray) -> FloatArray:
        return np.diagonal(matrix).copy()

    def lowered(self) -> Map:
        return AlikeMap(self.n)


@storable
@dataclass(frozen=True, slots=True, repr=False)
class Total(_AlikeColumns):
    """The sum of all cells: (1, n)."""

    noun: ClassVar[str] = "total"

    @property
    def shape(self) -> tuple[int, int]:
        return (1, self.n)

    @property
    def binary(self) -> bool:
        return True

    @property
    def max_abs(self) -> int:
        return 1

    def apply(self, vectors: Numbers) -> Numbers:
        return vectors.sum(axis=0, keepdims=True)

    def apply_transpose(self, vectors: Numbers) -> Numbers:
        return np.broadcast_to(vectors, (self.n, vectors.shape[1]))

    def row_sums(self, power: int) -> FloatArray:
        return np.array([float(self.n)])

    def row_forms(self, matrix: FloatArray) -> FloatArray:
        return np.array([matrix.sum()])

    def lowered(self) -> Map:
        return TotalMap(self.n)


@storable
@dataclass(frozen=True, slots=True, repr=False)
class Residual(_AlikeColumns):
    """n I - J: each cell's excess over the mean, times n, in integers. (n, n), symmetric, of rank n - 1."""

    noun: ClassVar[str] = "a residual"

    @property
    def max_abs(self) -> int:
        return self.n - 1

    def apply(self, vectors: Numbers) -> Numbers:
        return self.n * vectors - vectors.sum(axis=0, keepdims=True)

    def along(self, table: Numbers, axis: int) -> Numbers:
        return self.n * table - table.sum(axis=axis, keepdims=True)

    def apply_transpose(self, vectors: Numbers) -> Numbers:
        return self.apply(vectors)

    def gram(self) -> LinearOperator:
        from sfumato.operators.compose import Scaled  # noqa: PLC0415  (compose is built on this module)

        return Scaled(self, self.n)

    def row_sums(self, power: int) -> FloatArray:
        n = self.n
        return np.full(n, float((n - 1) ** power + (n - 1) * (-1) ** power))

    def row_forms(self, matrix: FloatArray) -> FloatArray:
        n = self.n
        return n * n * np.diagonal(matrix) - n * (matrix.sum(axis=0) + matrix.sum(axis=1)) + matrix.sum()

    def lowered(self) -> Map:
        return AlikeMap(self.n, self.n, -1)
