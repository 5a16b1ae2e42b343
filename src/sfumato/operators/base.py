"""What a structured linear map is: four required members, and defaults that are exact or refuse.

The first ones have exchangeable columns: identity, total, and the integer residual n I - J.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from sfumato._util.codec import storable
from sfumato.errors import PlanError, WorkloadError
from sfumato.maps import AlikeMap, DenseMap, Map, TotalMap
from sfumato.maps.base import DENSE_LIMIT, INT64, FloatArray, LinearMap, Numbers
from sfumato.maps.structured import SparseMap

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController
import math

# A matrix with fewer than one entry in so many is kept as sparse rows.
_SPARSE = 8


def real_array(given: ArrayLike, what: str) -> Numbers:
    """An array of real numbers as it was given; ragged lists, objects, texts and complex numbers are refused."""
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise WorkloadError(f"{what} must have rows of equal length: {error}") from error
    if array.dtype.kind not in "biuf":
        raise WorkloadError(f"{what} must hold real numbers of at most 64 bits, not {array.dtype}")
    return array


def as_numeric_array(given: ArrayLike, what: str) -> Numbers:
    """Booleans and whole numbers as int64 (modulo 2^64), other real numbers as float64; anything else is refused."""
    array = real_array(given, what)
    with np.errstate(over="ignore"):
        return array.astype(np.float64 if array.dtype.kind == "f" else np.int64, copy=False)


def check_dense(rows: int, columns: int, limit: int = DENSE_LIMIT) -> None:
    """Refuse to form a dense matrix that is too large to be meant."""
    if rows * columns > limit:
        raise WorkloadError(
            f"a dense matrix of {rows:,} x {columns:,} entries is above the limit of {limit:,}; "
            "use the structured methods (matvec, rmatvec, gram)"
        )


class LinearOperator(LinearMap):
    """A linear map from R^columns to R^rows.

    A new operator states `shape`, `max_abs`, `apply` and `apply_transpose`; the latter take a matrix of column
    vectors, int64 or float64. Integer input of an integral operator gives integer output in modular int64
    arithmetic: nothing is ever rounded or saturated. What else it overrides must hold exactly: answers and prices
    are computed from it. What is measured, and what that costs, is decided by the map that `lowered` gives; one that
    gives another map changes what is measured, never the price.
    """

    __slots__ = ()

    @property
    def integral(self) -> bool:
        """Whether every entry is an integer."""
        return False

    @abstractmethod
    def apply_transpose(self, vectors: Numbers) -> Numbers:
        """(rows, c) -> (columns, c)."""

    # What follows are consequences.

    def matvec(self, x: ArrayLike) -> Numbers:
        """A x for x of shape (columns,) or (columns, c), an array of its own. Raises WorkloadError for other shapes."""
        return self._on_vectors(x, self.shape[1], "columns", self.apply)

    def rmatvec(self, y: ArrayLike) -> Numbers:
        """Aᵀ y for y of shape (rows,) or (rows, c), an array of its own. Raises WorkloadError for other shapes."""
        return self._on_vectors(y, self.shape[0], "rows", self.apply_transpose)

    def _on_vectors(self, given: ArrayLike, length: int, what: str, run: Callable[[Numbers], Numbers]) -> Numbers:
        given = x = as_numeric_array(given, "what an operator is applied to")
        if x.ndim not in (1, 2) or x.shape[0] != length:
            raise WorkloadError(f"expected numbers of shape ({length},) or ({length}, c) for the {what}, got {x.shape}")
        if not self.integral:
            # integer factors inside would otherwise wrap before a real one follows
            x = x.astype(np.float64, copy=False)
        out = run(x[:, None])[:, 0] if x.ndim == 1 else run(x)
        # some operators hand back what they were given, or a read-only view
        return out.copy() if np.may_share_memory(out, given) or not out.flags.writeable else out

    def lowered(self) -> Map:
        """The map of the closed set that is measured in its place: sparse rows, or a dense matrix.

        Raises PlanError for an operator that is not integral, WorkloadError for more than 2^25 entries or for
        entries that might not fit int64.
        """
        if not self.integral:
            raise PlanError("only integer strategies are measured; quantise it first")
        if self.max_abs >= INT64:
            raise WorkloadError("the entries of an integral operator may be above 2^63; scale it down")
        dense = self.dense()
        row, column = np.nonzero(dense)
        if _SPARSE * len(row) > dense.size:
            return DenseMap(dense)
        ends = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(dense)))])
        return SparseMap(dense[row, column], column, ends, dense.shape[1])

    def check_rows(self, start: int, stop: int) -> None:
        """Refuse a range of rows that does not exist or would be too large when dense."""
        if not 0 <= start <= stop <= self.shape[0]:
            raise WorkloadError(f"rows {start} to {stop} do not exist; there are {self.shape[0]:,}")
        check_dense(stop - start, self.shape[1])

    def rows(self, start: int, stop: int) -> FloatArray:
        """Rows start to stop - 1 as a dense matrix."""
        self.check_rows(start, stop)
        count = stop - start
        check_dense(count, self.shape[0])
        units = np.zeros((self.shape[0], count))
        units[np.arange(start, stop), np.arange(count)] = 1.0
        return np.asarray(self.apply_transpose(units), dtype=np.float64).T

    def row_chunks(self, limit: int = DENSE_LIMIT // 8) -> list[tuple[int, int]]:
        """Ranges of rows that stay below `limit` dense entries each."""
        rows, columns = self.shape
        step = max(1, limit // max(1, columns))
        return [(a, min(a + step, rows)) for a in range(0, rows, step)]

    def dense(self) -> Numbers:
        """The matrix itself, refused above DENSE_LIMIT entries.

        int64 for integral operators whose entries are sure to fit (max_abs < 2^63), float64 for all others.
        """
        check_dense(*self.shape)
        rows, columns = self.shape
        dtype = np.int64 if self.integral and self.max_abs < INT64 else np.float64
        if columns <= rows:
            return self.apply(np.eye(columns, dtype=dtype))
        return self.apply_transpose(np.eye(rows, dtype=dtype)).T

    def gram(self) -> LinearOperator:
        """AᵀA, (columns, columns). It is integral only where it is exact; entries above 2^63 make it real."""
        from sfumato.operators.compose import Scaled  # noqa: PLC0415  (compose is built on this module)
        from sfumato.operators.explicit import Dense  # noqa: PLC0415  (explicit is built on this module)

        dense = self.dense()
        gram = Dense(dense).gram()
        return Scaled(gram, 1.0) if self.integral and dense.dtype.kind != "i" else gram

    def column_sums(self, power: int) -> Numbers:
        """(columns,) sums of |entry|^power, power 1 or 2; exact Python integers for integral operators."""
        return self.lowered().column_sums(power) if self.integral else (np.abs(self.dense()) ** power).sum(axis=0)

    def row_sums(self, power: int) -> FloatArray:
        """(rows,) sums of entry^power (signed), power 1 to 4."""
        out = np.empty(self.shape[0])
        for a, b in self.row_chunks():
            out[a:b] = (self.rows(a, b) ** power).sum(axis=1)
        return out

    def row_forms(self, matrix: FloatArray) -> FloatArray:
        """(rows,) values of a_i S a_iᵀ for a symmetric (columns, columns) matrix S."""
        out = np.empty(self.shape[0])
        for a, b in self.row_chunks():
            block = self.rows(a, b)
            out[a:b] = np.einsum("ij,ij->i", block @ matrix, block)
        return out


def kron(first: FloatArray, second: FloatArray) -> FloatArray:
    """The Kronecker product of two matrices: np.kron's to the bit, and ten times as fast on small ones."""
    (rows, columns), (inner_rows, inner_columns) = first.shape, second.shape
    return (first[:, None, :, None] * second[:, None, :]).reshape(rows * inner_rows, columns * inner_columns)


@contextmanager
def single_thread() -> Generator[None]:
    """Run BLAS on one thread inside the block, whatever the environment says.

    Several threads make eigendecompositions and Cholesky factors of a few thousand rows slower (ten times and
    more on small or shared machines), never much faster; matrix products inside the block lose their threads too.
    """
    with _blas(len(sys.modules)).limit(limits=1, user_api="blas"):
        yield


@lru_cache(maxsize=1)
def _blas(modules: int) -> ThreadpoolController:
    """The BLAS libraries of this process while so many modules are imported; looking for them takes 2 ms.

    An import may load another one: SciPy has its own beside NumPy's.
    """
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415  (read only by those who factor a matrix)

    return ThreadpoolController()


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
