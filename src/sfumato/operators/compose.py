"""Operators made of operators: Kronecker products, stacks, multiples, compositions, sums."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import storable
from sfumato.errors import WorkloadError
from sfumato.maps import AlikeMap, Map, MergedMap, MultipleMap
from sfumato.maps.structured import KroneckerMap, SparseMap, StackMap
from sfumato.operators.base import (
    DENSE_LIMIT,
    INT64,
    FloatArray,
    Identity,
    LinearOperator,
    Numbers,
    check_dense,
    check_length,
)
from sfumato.operators.explicit import Dense

_FEW_ROWS = 64  # of a composition, whose largest entry is then bounded row by row
_ROUNDED = 1 + 1e-12  # what double precision may lose of a sum of 64 products, and more


def _read_operator_parts(parts: object, what: str) -> tuple[LinearOperator, ...]:
    given = tuple(parts) if isinstance(parts, (tuple, list)) else ()
    if not given or not all(isinstance(p, LinearOperator) for p in given):
        raise WorkloadError(f"{what} needs a list of at least one operator, not {parts!r}")
    return given


def _cast_column_sums(sums: list[Numbers], integral: bool) -> list[Numbers]:
    """Column sums of parts, in float64 where some part is real."""
    return sums if integral else [s.astype(np.float64) for s in sums]


def _dense_parts(operators: tuple[LinearOperator, ...], fits: bool) -> list[Numbers]:
    """Dense parts, int64 only where what is made of them fits as well."""
    return [o.dense() if fits else o.dense().astype(np.float64) for o in operators]


def _take_rows(operator: LinearOperator, index: Numbers) -> FloatArray:
    """The rows of an operator with the given numbers."""
    unique, inverse = np.unique(index, return_inverse=True)
    runs = np.split(unique, np.flatnonzero(np.diff(unique) > 1) + 1)
    return np.concatenate([operator.rows(int(r[0]), int(r[-1]) + 1) for r in runs])[inverse]


@storable
@dataclass(frozen=True, slots=True, repr=False)
class Kronecker(LinearOperator):
    """The Kronecker product of its factors; the last factor runs fastest, in rows and in columns."""

    factors: tuple[LinearOperator, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "factors", _read_operator_parts(self.factors, "a Kronecker product"))

    @property
    def shape(self) -> tuple[int, int]:
        return (math.prod(f.shape[0] for f in self.factors), math.prod(f.shape[1] for f in self.factors))

    @property
    def integral(self) -> bool:
        return all(f.integral for f in self.factors)

    @property
    def binary(self) -> bool:
        return all(f.binary for f in self.factors)

    @property
    def max_abs(self) -> float:
        return math.prod(f.max_abs for f in self.factors)

    def _run(self, vectors: Numbers, transpose: bool) -> Numbers:
        # axes (done, n, left): one factor at a time on its own axis, those before it already rows
        count = vectors.shape[1]
        done, left = 1, math.prod(vectors.shape)
        for factor in self.factors:
            out, n = factor.shape[::-1] if transpose else factor.shape
            left = left // n if count else 0
            if not isinstance(factor, Identity):
                flat = vectors.reshape(done, n, left).swapaxes(0, 1).reshape(n, done * left)
                flat = factor.apply_transpose(flat) if transpose else factor.apply(flat)
                vectors = flat.reshape(out, done, left).swapaxes(0, 1)
            done *= out
        return vectors.reshape(done, count)

    def apply(self, vectors: Numbers) -> Numbers:
        return self._run(vectors, transpose=False)

    def apply_transpose(self, vectors: Numbers) -> Numbers:
        return self._run(vectors, transpose=True)

    def gram(self) -> LinearOperator:
        return Kronecker(tuple(f.gram() for f in self.factors))

    def dense(self) -> Numbers:
        check_dense(*self.shape)
        fits = self.integral and self.max_abs < INT64
        out = reduce(np.kron, _dense_parts(self.factors, fits))
        # a factor that does not fit can only stand beside one of zeros
        return out.astype(np.int64, copy=False) if fits else out

    def rows(self, start: int, stop: int) -> FloatArray:
        self.check_rows(start, stop)
        if start == stop:
            return np.empty((0, self.shape[1]))
        out = np.ones((stop - start, 1))
        index = np.unravel_index(np.arange(start, stop), tuple(f.shape[0] for f in self.factors))
        for factor, i in zip(self.factors, index, strict=True):
            out = (out[:, :, None] * _take_rows(factor, i)[:, None, :]).reshape(stop - start, -1)
        return out

    def column_sums(self, power: int) -> Numbers:
        return reduce(np.kron, _cast_column_sums([f.column_sums(power) for f in self.factors], self.integral))

    def row_sums(self, power: int) -> FloatArray:
        return np.asarray(reduce(np.kron, [f.row_sums(power) for f in self.factors]), dtype=np.float64)

    def row_forms(self, matrix: FloatArray) -> FloatArray:
        """One factor after another turned into its rows, along both sides at once; the last by its own way."""
        # single cells only pick, so they come first; the widest factor sees what the others have left
        order = sorted(
            range(len(self.factors)), key=lambda i: (not isinstance(f := self.factors[i], Identity), f.shape[1])
        )
        sizes, count = [f.shape[1] for f in self.factors], len(self.factors)
        table = matrix.reshape(*sizes, *sizes).transpose(*order, *(count + i for i in order))
        width = math.prod(sizes)
        out = np.empty([self.factors[i].shape[0] for i in order])
        _fill_forms([self.factors[i] for i in order], table.reshape(width, width), out)
        return out.transpose(np.argsort(order)).reshape(-1)

    def lowered(self) -> Map:
        return KroneckerMap(tuple(f.lowered() for f in self.factors))


def _fill_forms(factors: list[LinearOperator], matrix: FloatArray, out: FloatArray) -> None:
    """`Kronecker.row_forms` of these factors, into (rows of the first, of the second, ...)."""
    first, *rest = factors
    if not rest:
        out[:] = first.row_forms(matrix)
        return
    n = first.shape[1]
    inner = len(matrix) // n
    table = matrix.reshape(n, inner, n, inner)
    for a, b in first.row_chunks():
        for k, row in enumerate(first.rows(a, b), a):
            held = np.flatnonzero(row)
            part = np.zeros((inner, inner))
            for i in held:
                part += row[i] * np.tensordot(row[held], table[i][:, held], axes=(0, 1))
            _fill_forms(rest, part, out[k])


@storable
@dataclass(frozen=True, slots=True, repr=False)
class Stack(LinearOperator):
    """Operators over the same columns, one below the other."""

    parts: tuple[LinearOperator, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", _read_operator_parts(self.parts, "a stack"))
        widths = {p.shape[1] for p in self.parts}
        if len(widths) > 1:
            raise WorkloadError(f"a stack needs operators over the same cells, got {sorted(widths)} columns")

    @property
    def shape(self) -> tuple[int, int]:
        return (sum(p.shape[0] for p in self.parts), self.parts[0].shape[1])

    @property
    def integral(self) -> bool:
        return all(p.integral for p in self.parts)

    @property
    def binary(self) -> bool:
        return all(p.binary for p in self.parts)

    @property
    def max_abs(self) -> float:
        return max(p.max_abs for p in self.parts)

    def apply(self, vectors: Numbers) -> Numbers:
        return np.concatenate([p.apply(vectors) for p in self.parts])

    def rows(self, start: int, stop: int) -> FloatArray:
        self.check_rows(start, stop)
        out, first = [np.empty((0, self.shape[1]))], 0
        for part in self.parts:
            a, b = max(start - first, 0), min(stop - first, part.shape[0])
            if a < b:
                out.append(part.rows(a, b))
            first += part.shape[0]
        return np.concatenate(out)

    def apply_transpose(self, vectors: Numbers) -> Numbers:
        ends = np.cumsum([p.shape[0] for p in self.parts])[:-1]
        pieces = np.split(vectors, ends)
        return reduce(np.add, [p.apply_transpose(v) for p, v in zip(self.parts, pieces, strict=True)])

    def gram(self) -> LinearOperator:
        return Sum(tuple(p.gram() for p in self.parts))

    def column_sums(self, power: int) -> Numbers:
        return reduce(np.add, _cast_column_sums([p.column_sums(power) for p in self.parts], self.integral))

    def row_sums(self, power: int) -> FloatArray:
        return np.concatenate([p.row_sums(power) for p in self.parts])

    def row_forms(self, matrix: FloatArray) -> FloatArray:
        return np.concatenate([p.row_forms(matrix) for p in self.parts])

    def lowered(self) -> Map:
        return StackMap(tuple(p.lowered() for p in self.parts))


@storable
@dataclass(frozen=True, slots=True, repr=False)
class Scaled(LinearOperator):
    """A multiple of an operator; an integer factor keeps an integral operator integral."""

    operator: LinearOperator
    factor: int | float

    def __post_init__(self) -> None:
        _read_operator_parts([self.operator], "a multiple")
        if isinstance(self.factor, bool) or not isinstance(self.factor, (int, float)) or not abs(self.factor) <= 1e150:
            raise WorkloadError(f"an operator is scaled by a number of size at most 1e150, not {self.factor!r}")

    @property
    def shape(self) -> tuple[int, int]:
        return self.operator.shape

    @property
    def integral(self) -> bool:
        return isinstance(self.factor, int) and self.operator.integral

    @property
    def exchangeable(self) -> bool:
        return self.operator.exchangeable

    @property
    def max_abs(self) -> float:
        return abs(self.factor) * self.operator.max_abs

    def _times(self, values: Numbers) -> Numbers:
        if values.dtype.kind == "i" and isinstance(self.factor, int):
            # the factor modulo 2^64, as a number of int64
            return values * ((self.factor + INT64) % (2 * INT64) - INT64)
        return values * float(self.factor)

    def apply(self, vectors: Numbers) -> Numbers:
        return self._times(self.operator.apply(vectors))

    def apply_transpose(self, vectors: Numbers) -> Numbers:
        return self._times(self.operator.apply_transpose(vectors))

    def rows(self, start: int, stop: int) -> FloatArray:
        return self.operator.rows(start, stop) * float(self.factor)

    def gram(self) -> LinearOperator:
        return Scaled(self.operator.gram(), self.factor**2)

    def column_sums(self, power: int) -> Numbers:
        return _cast_column_sums([self.operator.column_sums(power)], self.integral)[0] * abs(self.factor) ** power

    def row_sums(self, power: int) -> FloatArray:
        return self.operator.row_sums(power) * float(self.factor) ** power

    def row_forms(self, matrix: FloatArray) -> FloatArray:
        return self.operator.row_forms(matrix) * float(self.factor) ** 2

    def lowered(self) -> Map:
        if not isinstance(self.factor, int):
            return LinearOperator.lowered(self)
        if self.factor == 0:  # whatever the operator's entries are
            none = np.zeros(0, dtype=np.int64)
            return SparseMap(none, none, np.zeros(self.shape[0] + 1, dtype=np.int64), self.shape[1])
        return MultipleMap(self.operator.lowered(), self.factor)


@storable
@dataclass(frozen=True, slots=True, repr=False)
class Compose(LinearOperator):
    """left after right: x goes to left(right(x))."""

    left: LinearOperator
    right: LinearOperator

    def __post_init__(self) -> None:
        _read_operator_parts([self.left, self.right], "a composition")
        if self.left.shape[1] != self.right.shape[0]:
            raise WorkloadError(f"operators of shape {self.left.shape} and {self.right.shape} do not compose")

    @property
    def shape(self) -> tuple[int, int]:
        return (self.left.shape[0], self.right.shape[1])

    @property
    def integral(self) -> bool:
        return self.left.integral and self.right.integral

    @property
    def max_abs(self) -> float:
        # a bound: an entry is a sum of entries of a column of `right`, each times one of `left`
        top = self.left.max_abs * self._largest_sum()
        rows, inner = self.left.shape
        if max(rows, inner) > _FEW_ROWS or inner * self.shape[1] > DENSE_LIMIT:
            return top
        # of few, each row by itself: a small coefficient of large numbers is not one of all
        heights = np.abs(self.right.rows(0, inner)).max(axis=1, initial=0.0)
        found = float((np.abs(self.left.rows(0, rows)) @ heights).max(initial=0.0))
        if self.integral:
            return min(top, int(found)) if found < 2**53 else top  # sums of integers below it do not round
        return min(top, found * _ROUNDED)

    def _largest_sum(self) -> float:
        """The largest sum of |entries| of a column of `right`, or a bound of it where that is too large to form."""
        try:
            top = max(self.right.column_sums(1))
        except WorkloadError:
            top = self.right.shape[0] * self.right.max_abs
        return top if self.integral else float(top)

    def apply(self, vectors: Numbers) -> Numbers:
        return self.left.apply(self.right.apply(vectors))

    def apply_transpose(self, vectors: Numbers) -> Numbers:
        return self.right.apply_transpose(self.left.apply_transpose(vectors))

    def rows(self, start: int, stop: int) -> FloatArray:
        self.check_rows(start, stop)
        return np.asarray(self.right.apply_transpose(self.left.rows(start, stop).T), dtype=np.float64).T

    def gram(self) -> LinearOperator:
        if isinstance(self.right, Identity):
            return self.left.gram()
        check_dense(self.shape[1], self.shape[1])
        left = self.left.gram()
        if self.integral and (not left.integral or left.max_abs * self._largest_sum() ** 2 >= INT64):
            # what is below would round, or might wrap
            return LinearOperator.gram(self)
        half = self.right.apply_transpose(left.dense())
        return Dense(self.right.apply_transpose(np.ascontiguousarray(half.T)))

    def lowered(self) -> Map:
        right = self.right.lowered()
        if isinstance(right, AlikeMap) and right.binary:
            return self.left.lowered()
        if isinstance(right, MergedMap) and isinstance(right.map, AlikeMap) and right.map.binary:
            # a partition of the cells
            return MergedMap(self.left.lowered(), right.codes)
        return LinearOperator.lowered(self)


@storable
@dataclass(frozen=True, slots=True, repr=False)
class Sum(LinearOperator):
    """The sum of operators of one shape."""

    parts: tuple[LinearOperator, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", _read_operator_parts(self.parts, "a sum"))
        if len({p.shape for p in self.parts}) > 1:
            raise WorkloadError("a sum needs operators of the same shape")

    @property
    def shape(self) -> tuple[int, int]:
        return self.parts[0].shape

    @property
    def integral(self) -> bool:
        return all(p.integral for p in self.parts)

    @property
    def max_abs(self) -> float:
        return sum(p.max_abs for p in self.parts)

    def apply(self, vectors: Numbers) -> Numbers:
        return reduce(np.add, [p.apply(vectors) for p in self.parts])

    def apply_transpose(self, vectors: Numbers) -> Numbers:
        return reduce(np.add, [p.apply_transpose(vectors) for p in self.parts])

    def rows(self, start: int, stop: int) -> FloatArray:
        return reduce(np.add, [p.rows(start, stop) for p in self.parts])

    def dense(self) -> Numbers:
        check_dense(*self.shape)
        return reduce(np.add, _dense_parts(self.parts, self.integral and self.max_abs < INT64))


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
