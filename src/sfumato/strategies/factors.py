"""One factor of a product strategy: an integer map over one group of attributes and its least squares."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import storable
from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import Compose, Dense, Identity, LinearOperator, Sparse, Total
from sfumato.operators.base import DENSE_LIMIT, FloatArray, single_thread

BIAS_BITS = 32  # finest without such a basis, as rounding there is a bias, which is bounded and said
_SMALL = (
    512  # cells up to which a deficient inverse takes .1 s; of more it is solved over the rows, where few are measured
)
SOLVED = 2_048  # cells up to which halves would save less than looking whether there are any takes


def gram_of(matrix: NDArray[Any], divisor: float = 1.0) -> FloatArray:
    """AᵀA for A = matrix / divisor, of a large A in half the cells where these may be reversed, and then equal to its
    reverse to the bit."""
    n = matrix.shape[1]
    signs = reversal_signs(matrix) if n > SOLVED else None
    if signs is None:
        whole = matrix / divisor
        return whole.T @ whole
    inside = matrix[:, : -(-n // 2)] / divisor
    inside[:, n // 2 :] *= math.sqrt(0.5)  # the middle cell, where there is one
    halves = [part.T @ part for part in (inside[signs > 0], inside[signs < 0][:, : n // 2])]
    return _unfold_mirror_halves(2 * halves[0], 2 * halves[1], n)


def reversal_signs(matrix: NDArray[Any]) -> NDArray[np.int64] | None:
    """The sign by which each row changes when the cells are reversed; None where one changes otherwise."""
    half = -(-matrix.shape[1] // 2)
    even = (matrix[:, :half] == matrix[:, ::-1][:, :half]).all(axis=1)
    rest = matrix[~even]
    return np.where(even, 1, -1) if np.array_equal(rest[:, :half], -rest[:, ::-1][:, :half]) else None


def _unfold_mirror_halves(even: FloatArray, odd: FloatArray, n: int) -> FloatArray:
    """The (n, n) matrix that is `even` on (e_i + e_(n-1-i)) / sqrt 2 and the middle cell, `odd` on the differences."""
    half = n // 2
    out = np.empty((n, n))
    out[:half, :half] = even[:half, :half] + odd
    out[:half, n - half :] = (even[:half, :half] - odd)[:, ::-1]
    out[:half] /= 2
    if n % 2:
        out[:half, half] = even[:half, half] * math.sqrt(0.5)
        out[half, : half + 1] = np.append(out[:half, half], even[half, half])
        out[half, half + 1 :] = out[half, :half][::-1]
    out[n - half :] = out[:half, ::-1][::-1]
    return out


def pseudo_inverse(gram: FloatArray) -> tuple[FloatArray, FloatArray | None]:
    """(gram^+, projector onto its range or None where that is everything), in halves where it equals its reverse."""
    n = len(gram)
    if n <= SOLVED or not np.array_equal(gram, gram[::-1, ::-1]):
        return invert_whole_gram(gram)
    outer, half = -(-n // 2), n // 2
    even = gram[:outer, :outer] + gram[:outer, half:][:, ::-1]
    even[half:] *= math.sqrt(0.5)
    even[:, half:] *= math.sqrt(0.5)
    odd = gram[:half, :half] - gram[:half, n - half :][:, ::-1]
    (first, one), (second, two) = invert_whole_gram(even), invert_whole_gram(odd)
    if one is None and two is None:
        return _unfold_mirror_halves(first, second, n), None
    onto = [np.eye(len(g)) if p is None else p for g, p in ((even, one), (odd, two))]
    return _unfold_mirror_halves(first, second, n), _unfold_mirror_halves(onto[0], onto[1], n)


def invert_whole_gram(gram: FloatArray) -> tuple[FloatArray, FloatArray | None]:
    """As `pseudo_inverse`, in one piece."""
    from scipy.linalg import LinAlgError, cholesky, eigh  # noqa: PLC0415  (slow to import)
    from scipy.linalg.lapack import dpotri  # noqa: PLC0415

    n = len(gram)
    with single_thread():
        size = np.sqrt(np.maximum(np.diagonal(gram), 0.0))
        if (size > 0).all():
            # unit diagonal: a relative test of rank, whatever the scales of the columns
            scaled = gram / size[:, None]
            scaled /= size
            try:
                lower = cholesky(scaled, lower=True)
                if np.diagonal(lower).min() > 1e-6:
                    # a third of the time of solving for it; the lower half alone is written
                    inverse = np.asarray(dpotri(lower, lower=True, overwrite_c=True)[0], dtype=np.float64)
                    inverse += np.tril(inverse, -1).T
                    inverse /= size[:, None]
                    inverse /= size
                    return inverse, None
            except LinAlgError:
                pass
        values, vectors = eigh(gram)
        keep = values > values[-1] * n * 1e-14
        kept = vectors[:, keep]
        inverse = (kept / values[keep]) @ kept.T
        return inverse, None if keep.all() else kept @ kept.T


def rounding_bias(strategy: FloatArray, whole: LinearOperator) -> float:
    """Largest row sum of |W - W B^+ B| once the strategy is rounded without an integer basis."""
    rounded = np.rint(strategy * 2.0**BIAS_BITS) / 2.0**BIAS_BITS
    with single_thread():
        inverse = np.linalg.pinv(rounded)
    worst = 0.0
    for a, b in whole.row_chunks():
        rows = whole.rows(a, b)
        worst = max(worst, float(np.abs(rows - (rows @ inverse) @ rounded).sum(axis=1).max()))
    return worst


MAX_DENSE_CELLS = 6_000  # 288 MB the matrix, and as much its inverse
_COLUMNS = 64  # rounded together: 2 MB at 4,096 rows, which a core keeps
_SPAN_TOLERANCE = 1e-8  # relative: half of a double's digits, as pseudo-inverses of quantised strategies round


class StrategyFactor(ABC):
    """An integer map `measured` (l, n), read as `scale` times a strategy with unit-sized columns."""

    @property
    @abstractmethod
    def measured(self) -> LinearOperator:
        """The integer operator."""

    @property
    def scale(self) -> float:
        """What the integers stand for: the strategy is measured / scale."""
        return 1.0

    @abstractmethod
    def cells(self, values: FloatArray) -> FloatArray:
        """(l, c) measured values, divided by the scale -> (n, c) least-squares cells."""

    @abstractmethod
    def row_powers(self, query: LinearOperator, power: int) -> FloatArray:
        """Sums of |entry|^power over the rows of W A^+, A = measured / scale: (rows,) or (1,)."""

    @abstractmethod
    def spread_ones(self) -> FloatArray | None:
        """(AᵀA)^-1 1, (n,), for a strategy of full column rank; None otherwise."""

    @abstractmethod
    def check(self, query: LinearOperator, what: str) -> None:
        """Raise NotAnswerable unless the query's rows lie in the row space."""

    def spread(self, rows: FloatArray) -> FloatArray:
        """(c, n) rows -> (c, l) rows times A^+; for joint queries over several factors."""
        dense = np.asarray(self.measured.dense(), dtype=np.float64) / self.scale
        return self.cells_of_rows(rows) @ dense.T

    @abstractmethod
    def cells_of_rows(self, rows: FloatArray) -> FloatArray:
        """(c, n) rows times (AᵀA)^+."""


@storable
@dataclass(frozen=True)
class Cells(StrategyFactor):
    """Every cell itself."""

    n: int

    @property
    def measured(self) -> LinearOperator:
        return Identity(self.n)

    def cells(self, values: FloatArray) -> FloatArray:
        return values

    def row_powers(self, query: LinearOperator, power: int) -> FloatArray:
        return np.ones(1) if isinstance(query, Identity) else query.row_sums(power)

    def spread_ones(self) -> FloatArray:
        return np.ones(self.n)

    def check(self, query: LinearOperator, what: str) -> None:
        return None

    def spread(self, rows: FloatArray) -> FloatArray:
        return rows

    def cells_of_rows(self, rows: FloatArray) -> FloatArray:
        return rows


@storable
@dataclass(frozen=True)
class TotalOnly(StrategyFactor):
    """The sum over all cells of a group, and nothing finer."""

    n: int

    @property
    def measured(self) -> LinearOperator:
        return Total(self.n)

    def cells(self, values: FloatArray) -> FloatArray:
        return np.repeat(values / self.n, self.n, axis=0)

    def row_powers(self, query: LinearOperator, power: int) -> FloatArray:
        return (query.row_sums(1) / self.n) ** power

    def spread_ones(self) -> None:
        return None

    def check(self, query: LinearOperator, what: str) -> None:
        first, second = query.row_sums(1), query.row_sums(2)
        if np.any(np.abs(first**2 - self.n * second) > _SPAN_TOLERANCE * self.n * second):
            raise NotAnswerable(f"only the total over {what} was measured")

    def cells_of_rows(self, rows: FloatArray) -> FloatArray:
        return np.repeat(rows.sum(axis=1, keepdims=True) / self.n**2, self.n, axis=1)


@storable
@dataclass(frozen=True, eq=False)
class Matrix(StrategyFactor):
    """Any integer operator, reconstructed by least squares.

    These are solved over the cells or, where a few rows measure very many cells, over the rows: the cells that explain
    the values at the least length, A^+ y = Aᵀ (AAᵀ)^+ y, need no matrix of cells by cells.
    """

    operator: LinearOperator
    divisor: float = 1.0

    def __post_init__(self) -> None:
        if not self.operator.integral:
            raise PlanError("a measured factor must have integer entries")

    @property
    def measured(self) -> LinearOperator:
        return self.operator

    @property
    def scale(self) -> float:
        return self.divisor

    @property
    def few(self) -> bool:
        """Whether least squares are solved over the rows."""
        rows, n = self.operator.shape
        return (n > _SMALL and 2 * rows <= n) or rows < n > MAX_DENSE_CELLS

    @property
    def _rank_at_most(self) -> int:
        return self.operator.shape[0]

    @functools.cached_property
    def _solved(self) -> tuple[FloatArray, FloatArray | None]:
        """((AᵀA)^+, projector onto the row space or None where that is everything)."""
        self._check_size(self.operator.shape[1], "cells")
        return pseudo_inverse(self._gram())

    @functools.cached_property
    def _over_rows(self) -> FloatArray:
        """(AAᵀ)^+, over the rows of `_forward`."""
        rows = len(self._forward(np.zeros((self.operator.shape[1], 1))))
        self._check_size(rows, "queries")
        outer = np.empty((rows, rows))
        step = max(1, DENSE_LIMIT // 8 // self.operator.shape[1])
        for a in range(0, rows, step):
            chosen = np.arange(a, min(a + step, rows))
            units = np.zeros((rows, len(chosen)))
            units[chosen, np.arange(len(chosen))] = 1.0
            outer[:, chosen] = self._forward(self._backward(units))
        return invert_whole_gram((outer + outer.T) / 2)[0]

    def _check_size(self, size: int, what: str) -> None:
        if size > MAX_DENSE_CELLS:
            rows, n = self.operator.shape
            raise NotAnswerable(
                f"{rows:,} queries over {n:,} cells were measured; least squares over {size:,} {what} are above the "
                f"limit of {MAX_DENSE_CELLS:,}"
            )

    def _forward(self, columns: FloatArray) -> FloatArray:
        """A x, (n, c) -> (l, c)."""
        return np.asarray(self.operator.matvec(columns), dtype=np.float64) / self.divisor

    def _backward(self, values: FloatArray) -> FloatArray:
        """Aᵀ y, (l, c) -> (n, c)."""
        return np.asarray(self.operator.rmatvec(values), dtype=np.float64) / self.divisor

    def _gram(self) -> FloatArray:
        """AᵀA, (n, n)."""
        if isinstance(self.operator, (Compose, Dense)):
            return gram_of(self.operator.dense(), self.divisor)
        return np.asarray(self.operator.gram().dense(), dtype=np.float64) / self.divisor**2

    def cells(self, values: FloatArray) -> FloatArray:
        if self.few:
            inverse = self._over_rows
            # what is read beside the values is known, and is put in its place later
            padded = np.pad(values, ((0, len(inverse) - len(values)), (0, 0)))
            return self._backward(inverse @ padded)
        return self._solved[0] @ self._backward(values)

    def row_powers(self, query: LinearOperator, power: int) -> FloatArray:
        if power == 2 and not self.few:
            return np.maximum(query.row_forms(self._solved[0]), 0.0)
        out = np.empty(query.shape[0])
        for a, b in query.row_chunks():
            rows = query.rows(a, b)
            spread = self._spread(rows) if power == 2 else self.spread(rows)
            out[a:b] = (spread**power).sum(axis=1)
        return out

    def spread_ones(self) -> FloatArray | None:
        return None if self.few or self._solved[1] is not None else self._solved[0].sum(axis=1)

    def check(self, query: LinearOperator, what: str) -> None:
        if isinstance(query, Identity) and self._rank_at_most < query.n:
            raise NotAnswerable(
                f"the {query.n:,} cells over {what} lie outside the span of the {self.operator.shape[0]:,} queries "
                "that were measured"
            )
        if self.few:
            for a, b in query.row_chunks():
                rows = query.rows(a, b)
                size = (rows**2).sum(axis=1)
                within = np.einsum("ij,ij->i", self._spread(rows), self._forward(rows.T).T)
                self._check_off(size - within, size, what)
            return
        projector = self._solved[1]
        if projector is not None:
            self._check_off(query.row_forms(np.eye(len(projector)) - projector), query.row_sums(2), what)

    def _check_off(self, off: FloatArray, size: FloatArray, what: str) -> None:
        """Refuse rows of squared length `size` of which `off` is outside the row space."""
        outside = off > _SPAN_TOLERANCE * np.maximum(size, 1e-300)
        if outside.any():
            raise NotAnswerable(
                f"{int(outside.sum()):,} of the queries over {what} lie outside the span of what was measured"
            )

    def _spread(self, rows: FloatArray) -> FloatArray:
        """Rows times A^+, over all rows of `_forward`."""
        return (self._over_rows @ self._forward(rows.T)).T

    def spread(self, rows: FloatArray) -> FloatArray:
        return self._spread(rows)[:, : self.operator.shape[0]] if self.few else super().spread(rows)

    def cells_of_rows(self, rows: FloatArray) -> FloatArray:
        if self.few:
            return self._backward(self._over_rows @ self._spread(rows).T).T
        return rows @ self._solved[0]


@storable
@dataclass(frozen=True, eq=False)
class Contrasts(Matrix):
    """An integer operator that need not measure the total of its n cells, which is known besides.

    The Gram is that of the operator and some measurement of the total; the strategy replaces the latter by the known
    total, so its precision cancels. Only for strategies with a public total, and for one factor.
    """

    @property
    def _rank_at_most(self) -> int:
        return super()._rank_at_most + 1

    def _gram(self) -> FloatArray:
        gram = super()._gram()
        return gram + float(np.trace(gram)) / len(gram) ** 2

    @functools.cached_property
    def _weight(self) -> float:
        """The coefficient of that measurement."""
        length = math.sqrt(float(self.operator.row_sums(2).sum()))
        return length / (self.operator.shape[1] * self.divisor)

    def _forward(self, columns: FloatArray) -> FloatArray:
        return np.vstack([super()._forward(columns), self._weight * columns.sum(axis=0, keepdims=True)])

    def _backward(self, values: FloatArray) -> FloatArray:
        rows = self.operator.shape[0]
        back = super()._backward(values[:rows])
        return back + self._weight * values[rows:] if len(values) > rows else back

    def spread_ones(self) -> FloatArray:
        if self.few:
            return self.cells_of_rows(np.ones((1, self.operator.shape[1])))[0]
        return self._solved[0].sum(axis=1)


def basis_coefficients(strategy: FloatArray, basis: LinearOperator | None) -> FloatArray:
    """C with strategy = C Q for an integer basis Q of its row space (the identity if None)."""
    if basis is None:
        return strategy
    from scipy.linalg import lstsq  # noqa: PLC0415

    dense = np.asarray(basis.dense(), dtype=np.float64)
    with single_thread():
        return np.asarray(lstsq(dense.T, strategy.T, lapack_driver="gelsy")[0]).T


def quantise(
    coefficient: FloatArray, basis: LinearOperator | None, scale: float, *, known_total: bool = False
) -> Matrix:
    """round(scale C) Q: a real strategy C Q rounded over an integer basis Q, so that its row space is kept exactly.

    From here on the rounded strategy is the strategy: its sensitivity is the one that is priced. With `known_total`
    it need not measure the total.
    """
    kind = Contrasts if known_total else Matrix
    if basis is None:
        return kind(Dense(_round_columns(coefficient, scale)), float(scale))
    return kind(Compose(Dense(np.rint(coefficient * scale).astype(np.int64)), basis), float(scale))


def _round_columns(values: FloatArray, scale: float = 1.0) -> NDArray[np.int64]:
    """Round values times a scale to integers so that each column keeps its length: the longest column sets the price.

    Plain rounding changes a squared length by about the size of an entry. Moving one entry of a column
    by 1 changes it by 2 |entry| + 1 or so; the best entry is moved, a few times over.
    """
    out, n = np.empty(values.shape, dtype=np.int64), values.shape[1]
    signs = reversal_signs(values) if n > SOLVED else None
    last = n if signs is None else -(-n // 2)
    for start in range(0, last, _COLUMNS):
        chosen = slice(start, min(start + _COLUMNS, last))
        out[:, chosen] = _round_column_chunk(values[:, chosen] * scale)
    if signs is not None:
        out[:, last:] = signs[:, None] * out[:, : n - last][:, ::-1]
    return out


def _round_column_chunk(values: FloatArray) -> FloatArray:
    """Some columns of _round_columns."""
    wanted = (values**2).sum(axis=0)
    rounded = np.rint(values)
    columns = np.arange(values.shape[1])
    # twice the sizes, of which zeros are never moved
    sizes = 2 * np.abs(rounded)
    sizes[sizes == 0] = np.inf
    for _ in range(4):
        excess = (rounded**2).sum(axis=0) - wanted
        step = -np.sign(excess)
        with np.errstate(invalid="ignore"):
            after = np.abs(excess + (sizes * step + 1))
        row = after.argmin(axis=0)
        better = after[row, columns] < np.abs(excess)
        moved = rounded[row, columns]
        moved += np.where(better, step * np.sign(moved), 0.0)
        rounded[row, columns] = moved
        sizes[row, columns] = np.where(moved == 0, np.inf, 2 * np.abs(moved))
    return rounded


def row_basis(gram: FloatArray, operator: LinearOperator | None, rank: int) -> LinearOperator | None:
    """An integer basis of the row space of a workload of that rank, or None where it is everything.

    Tried in turn: the classes of equal columns; independent integer rows of the workload. Returns None
    too where no integer basis is found; the caller then states the bias of rounding.
    """
    n = len(gram)
    if rank == n:
        return None
    diagonal = np.diagonal(gram)
    distance = diagonal[:, None] + diagonal[None, :] - 2 * gram
    same = distance <= 1e-12 * (diagonal[:, None] + diagonal[None, :])
    first = np.argmax(same, axis=1)
    first[diagonal == 0] = -1
    classes = [c for c in np.unique(first) if c >= 0]
    if len(classes) == rank:
        return Sparse.from_cells([np.flatnonzero(first == c) for c in classes], n)
    if operator is None or not operator.integral or operator.shape[0] * n > 2**25:
        return None
    if operator.shape[0] == rank:
        return operator
    return Dense(np.asarray(operator.dense())[_independent_rows(operator, rank)])


def _independent_rows(operator: LinearOperator, rank: int) -> NDArray[np.int64]:
    from scipy.linalg import qr  # noqa: PLC0415

    with single_thread():
        pivots = qr(np.asarray(operator.dense(), dtype=np.float64).T, mode="r", pivoting=True)[1]
    return np.sort(np.asarray(pivots[:rank], dtype=np.int64))
