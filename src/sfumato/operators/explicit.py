"""Matrices given entry by entry, dense or sparse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato._util.codec import storable
from sfumato.errors import WorkloadError
from sfumato.maps import DenseMap, Map
from sfumato.maps.base import absolute_sums, exact_matmul, integer_products
from sfumato.maps.structured import SparseMap
from sfumato.operators.base import INT64, FloatArray, LinearOperator, Numbers, as_numeric_array, check_dense, real_array


def _read_only_entries(given: ArrayLike, what: str) -> Numbers:
    """A read-only copy: int64 where every entry is a whole number below 2^53 (2^63 for integers), else float64."""
    array = real_array(given, what)
    if array.dtype.kind == "u" and array.size and int(array.max()) >= INT64:
        raise WorkloadError(f"{what} holds whole numbers of 2^63 or more; scale the rows down")
    values = as_numeric_array(array, what)
    if values.dtype.kind == "i":
        if values.size and int(values.min()) == -INT64:
            raise WorkloadError(f"{what} holds the whole number -2^63; scale the rows down")
        values = values.copy()
    else:
        if not np.isfinite(values).all():
            raise WorkloadError(f"{what} holds NaN or infinite entries; every entry must be a finite number")
        top = np.abs(values).max(initial=0.0)
        if top > 1e150 or (0.0 < top < 1e-150):
            raise WorkloadError(f"{what} has its largest entry at {top:.3g}; scale the rows to ordinary sizes")
        whole = top < 2.0**53 and bool((values == np.rint(values)).all())
        values = values.astype(np.int64 if whole else np.float64)
    values.flags.writeable = False
    return values


@storable
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Dense(LinearOperator):
    """A matrix (rows, columns). Whole entries are kept as int64, others as float64."""

    matrix: Numbers

    def __post_init__(self) -> None:
        matrix = _read_only_entries(self.matrix, "the matrix")
        if matrix.ndim != 2 or 0 in matrix.shape:
            raise WorkloadError(f"a matrix needs at least one row and one column, got shape {matrix.shape}")
        object.__setattr__(self, "matrix", matrix)

    @property
    def shape(self) -> tuple[int, int]:
        return (self.matrix.shape[0], self.matrix.shape[1])

    @property
    def integral(self) -> bool:
        return self.matrix.dtype.kind == "i"

    @property
    def binary(self) -> bool:
        return self.integral and bool(((self.matrix == 0) | (self.matrix == 1)).all())

    @property
    def max_abs(self) -> float:
        top = np.abs(self.matrix).max()
        return int(top) if self.integral else float(top)

    def apply(self, vectors: Numbers) -> Numbers:
        return exact_matmul(self.matrix, vectors)

    def apply_transpose(self, vectors: Numbers) -> Numbers:
        return exact_matmul(self.matrix.T, vectors)

    def dense(self) -> Numbers:
        return self.matrix

    def rows(self, start: int, stop: int) -> FloatArray:
        self.check_rows(start, stop)
        return self.matrix[start:stop].astype(np.float64)

    def gram(self) -> LinearOperator:
        check_dense(self.shape[1], self.shape[1])
        if not self.integral:
            return Dense(self.matrix.T @ self.matrix)
        # no entry of the Gram, and no partial sum of one, is above the largest squared column norm
        top = max(self.column_sums(2))
        if top >= INT64 or top < 2**53:
            real = self.matrix.astype(np.float64)
            return Dense(real.T @ real)
        out = np.zeros((self.shape[1],) * 2, dtype=np.int64)
        for shift, product in integer_products(self.matrix):
            out += product << shift
        return Dense(out)

    def column_sums(self, power: int) -> Numbers:
        if not self.integral:
            return (np.abs(self.matrix) ** power).sum(axis=0)
        return absolute_sums(self.matrix, power)

    def lowered(self) -> Map:
        return DenseMap(self.matrix) if self.integral else LinearOperator.lowered(self)


def _read_sparse_positions(given: ArrayLike, what: str) -> NDArray[np.int64]:
    array = np.asarray(given)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise WorkloadError(f"the {what} of a sparse matrix must be a list of whole numbers")
    return array.astype(np.int64)


@storable
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Sparse(LinearOperator):
    """A matrix in compressed rows: `data`, `indices`, `indptr` as scipy.sparse.csr_array has them."""

    data: Numbers
    indices: NDArray[np.int64]
    indptr: NDArray[np.int64]
    columns: int

    def __post_init__(self) -> None:
        data = _read_only_entries(self.data, "the sparse matrix")
        indices = _read_sparse_positions(self.indices, "indices")
        indptr = _read_sparse_positions(self.indptr, "indptr")
        columns = self.columns
        if isinstance(columns, bool) or not isinstance(columns, int) or columns < 1 or len(indptr) < 2:
            raise WorkloadError("a sparse matrix needs at least one row and one column")
        lengths = np.diff(indptr)
        if lengths.min() < 0 or indptr[0] != 0 or indptr[-1] != data.size or data.shape != indices.shape:
            raise WorkloadError("a sparse matrix needs one index per entry and row ends that never fall")
        row = np.repeat(np.arange(len(lengths)), lengths)
        rises = (np.diff(indices) > 0) | (np.diff(row) > 0)
        if data.size and (indices.min() < 0 or indices.max() >= columns or not rises.all()):
            raise WorkloadError("the indices of a sparse row must rise, each once, inside the matrix; see Sparse.of")
        # explicit zeros go, so that equal matrices are stored alike
        kept = data != 0
        indptr = np.concatenate([[0], np.cumsum(np.bincount(row[kept], minlength=len(lengths)))])
        for name, array in (("data", data[kept]), ("indices", indices[kept]), ("indptr", indptr)):
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @classmethod
    def of(cls, matrix: Any) -> Sparse:
        """From any two-dimensional scipy sparse matrix or array, which is left as it is."""
        if len(matrix.shape) != 2:
            raise WorkloadError(f"a sparse matrix has rows and columns, not the shape {matrix.shape}")
        if matrix.dtype.kind in "iu":
            # entries given several times are summed, which must not wrap in a narrow type
            matrix = matrix.astype(np.int64 if matrix.dtype.kind == "i" or matrix.dtype.itemsize < 8 else np.uint64)
        csr = matrix.tocsr(copy=True)
        csr.sum_duplicates()
        return cls(csr.data, csr.indices, csr.indptr, int(csr.shape[1]))

    @classmethod
    def from_cells(cls, rows: list[ArrayLike], columns: int) -> Sparse:
        """0/1 rows, each given by the cells it sums."""
        cells = [np.unique(np.asarray(r, dtype=np.int64)) for r in rows]
        indices = np.concatenate(cells) if cells else np.empty(0, dtype=np.int64)
        indptr = np.concatenate([[0], np.cumsum([len(c) for c in cells])]).astype(np.int64)
        return cls(np.ones(len(indices), dtype=np.int64), indices, indptr, columns)

    @property
    def _csr(self) -> Any:
        from scipy.sparse import csr_array  # noqa: PLC0415  (scipy.sparse is slow to import)

        return csr_array((self.data, self.indices, self.indptr), shape=self.shape)

    @property
    def shape(self) -> tuple[int, int]:
        return (len(self.indptr) - 1, self.columns)

    @property
    def integral(self) -> bool:
        return self.data.dtype.kind == "i"

    @property
    def binary(self) -> bool:
        return self.integral and bool(((self.data == 0) | (self.data == 1)).all())

    @property
    def max_abs(self) -> float:
        top = np.abs(self.data).max() if self.data.size else 0
        return int(top) if self.integral else float(top)

    def apply(self, vectors: Numbers) -> Numbers:
        return self._csr @ vectors

    def apply_transpose(self, vectors: Numbers) -> Numbers:
        return self._csr.T @ vectors

    def rows(self, start: int, stop: int) -> FloatArray:
        self.check_rows(start, stop)
        return self._csr[start:stop].toarray().astype(np.float64)

    def gram(self) -> LinearOperator:
        check_dense(self.columns, self.columns)
        # modular int64 arithmetic is exact where the largest squared column norm fits
        real = not self.integral or max(self.column_sums(2)) >= INT64
        csr = self._csr.astype(np.float64) if real else self._csr
        return Dense((csr.T @ csr).toarray())

    def column_sums(self, power: int) -> Numbers:
        if not self.integral:
            return np.bincount(self.indices, weights=np.abs(self.data) ** power, minlength=self.columns)
        out = np.zeros(self.columns, dtype=object)
        np.add.at(out, self.indices, np.abs(self.data).astype(object) ** power)
        return out

    def row_sums(self, power: int) -> FloatArray:
        row = np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))
        weights = self.data.astype(np.float64) ** power
        return np.asarray(np.bincount(row, weights, self.shape[0]), dtype=np.float64)

    def row_forms(self, matrix: FloatArray) -> FloatArray:
        csr = self._csr.astype(np.float64)
        out = np.empty(self.shape[0])
        for a, b in self.row_chunks():
            out[a:b] = csr[a:b].multiply(csr[a:b] @ matrix).sum(axis=1)
        return out

    def lowered(self) -> Map:
        if not self.integral:
            return LinearOperator.lowered(self)
        return SparseMap(self.data, self.indices, self.indptr, self.columns)
