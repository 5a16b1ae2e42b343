"""Maps of the closed set that are given by their number of cells, or row by row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sfumato._util.codec import deferred_field, storable
from sfumato.errors import WorkloadError
from sfumato.maps.base import (
    INT64,
    FloatArray,
    IntArray,
    Map,
    Numbers,
    absolute_sums,
    check_cell_count,
    exact_matmul,
    own_array,
)

ETA = 16 * 2.0**-53  # of the roundings of one pass: derived in the docstring above, and more than it
_KERNEL_BITS = 18  # of a limb: any split is exact, as those of the values are made short enough by the proof above
_ERROR = 0.25  # what an entry may err by, half of what rounding to the nearest integer allows


def fft_length(n: int) -> int:
    return 1 << max(1, (2 * n - 1).bit_length())


@dataclass(frozen=True, slots=True)
class _Limb:
    """One limb of a kernel: its transform, its weight 2^shift, and M and |c|_2 of the proof."""

    transform: Numbers
    shift: int
    peak: float
    norm: float


def _kernel_limbs(kernel: Numbers, size: int) -> list[_Limb]:
    bits = max(1, int(np.abs(kernel).max(initial=0)).bit_length() + 1)
    count = -(-bits // _KERNEL_BITS)
    width = -(-bits // count)
    out: list[_Limb] = []
    for shift, values in enumerate(_balanced_digits(kernel, width, count + 1)):
        if not values.any():
            continue
        transform = np.fft.rfft(values, size)
        norm = math.sqrt(float(values @ values)) * (1 + 1e-9)
        peak = float(np.abs(transform).max()) * (1 + 1e-9)
        peak += (size.bit_length() - 1) * ETA * math.sqrt(size) * norm
        out.append(_Limb(transform, shift * width, peak, norm))
    return out


def _balanced_digits(values: Numbers, width: int, count: int) -> list[FloatArray]:
    """Signed digits in base 2^width, least first, each within 2^(width - 1); what is left after `count` is dropped.

    Modulo 2^64 nothing is lost where count * width >= 64; else nothing where values fit.
    """
    half, base = 1 << (width - 1), 1 << width
    rest = values
    out: list[FloatArray] = []
    for _ in range(count):
        digit = (rest & (base - 1)).astype(np.int64)
        digit[digit >= half] -= base
        out.append(digit.astype(np.float64))
        # rest - digit is a multiple of the base, so the shift is exact; it may wrap past 2^63 by one digit alone
        rest = (rest >> width) + (digit < 0)
    return out


def _largest_digit_width(limbs: list[_Limb], n: int, size: int) -> int:
    """The largest number of bits of a digit of y for which the proved error is at most 1/4."""
    levels = size.bit_length() - 1
    worst = max((levels * ETA * (2 * k.peak + k.norm) + 5 * 2.0**-53 * k.peak for k in limbs), default=0.0)
    room = _ERROR / max(1.01 * worst * math.sqrt(n), 2.0**-20)
    width = math.floor(math.log2(room)) + 1
    if width < 2:
        raise WorkloadError(f"an exact convolution of {n:,} numbers is beyond double precision")
    return min(width, 16)


def causal_exact(kernel: Numbers, vectors: Numbers, bits: int = 64) -> Numbers:
    """sum_j kernel_j vectors_(i-j) modulo 2^64 along the last axis, for i below its length n; int64 throughout.

    kernel (n,) below 2^62 in size; vectors (..., n) any int64, or of at most `bits` bits with sign where that is
    known in public. The work depends on shapes, the kernel and `bits` alone. Proof of exactness: see the module.
    """
    n = vectors.shape[-1]
    size = fft_length(n)
    limbs = _kernel_limbs(np.diff(kernel[:n], prepend=0), size)
    out = np.zeros(vectors.shape, dtype=np.int64)
    if not limbs:
        return out
    width = _largest_digit_width(limbs, n, size)
    count = -(-64 // width) if bits >= 64 else bits // width + 1
    for i, digits in enumerate(_balanced_digits(vectors, width, count)):
        transform = np.fft.rfft(digits, size, axis=-1)
        for limb in limbs:
            shift = i * width + limb.shift
            if shift < 64:
                part = np.fft.irfft(transform * limb.transform, size, axis=-1)[..., :n]
                out += np.rint(part).astype(np.int64) << shift
    return np.cumsum(out, axis=-1, dtype=np.int64)


_MOST_ALIKE = 2**31  # of the entries of a map whose columns are alike: their squares fit int64


# ---- columns that are all alike --------------------------------------------------------------------------


@storable
@dataclass(frozen=True, slots=True, repr=False)
class AlikeMap(Map):
    """own I + other J, J of ones: (n, n). Every cell itself by default; n I - J is each cell's excess over the mean."""

    n: int
    own: int = 1
    other: int = 0

    def __post_init__(self) -> None:
        check_cell_count(self.n)
        if not all(type(e) is int and abs(e) < _MOST_ALIKE for e in (self.own, self.other)):
            raise WorkloadError("a map whose columns are alike has entries below 2^31")

    @property
    def shape(self) -> tuple[int, int]:
        return (self.n, self.n)

    @property
    def exchangeable(self) -> bool:
        return True

    @property
    def binary(self) -> bool:
        return (self.own, self.other) == (1, 0)

    @property
    def max_abs(self) -> int:
        return max(abs(self.own + self.other), abs(self.other))

    def apply(self, vectors: Numbers) -> Numbers:
        return self.along(vectors, 0)

    def along(self, table: Numbers, axis: int) -> Numbers:
        if self.binary:
            return table
        made, others = self.own * table, self.other * table.sum(axis=axis, keepdims=True)
        return np.add(made, others, out=made if made.dtype == others.dtype else None)

    def column_sums(self, power: int) -> Numbers:
        return np.full(self.n, abs(self.own + self.other) ** power + (self.n - 1) * abs(self.other) ** power, object)

    def pairs(self) -> tuple[tuple[int, int, int], ...]:
        """How often each pair of entries stands in two columns: (rows, entry, entry); of one column, in it twice."""
        first, other = self.own + self.other, self.other
        if self.n == 1:
            return ((1, first, first),)
        rest = ((self.n - 2, other, other),) if other else ()
        return ((1, first, other), (1, other, first), *rest)

    def gram(self) -> Numbers:
        eye, ones = self.roomy((np.eye(self.n, dtype=np.int64), np.ones((self.n, self.n), dtype=np.int64)))
        return self.own**2 * eye + (2 * self.own * self.other + self.n * self.other**2) * ones


@storable
@dataclass(frozen=True, slots=True, repr=False)
class TotalMap(Map):
    """The sum of all cells: (1, n)."""

    n: int

    def __post_init__(self) -> None:
        check_cell_count(self.n)

    @property
    def shape(self) -> tuple[int, int]:
        return (1, self.n)

    @property
    def exchangeable(self) -> bool:
        return True

    @property
    def binary(self) -> bool:
        return True

    def apply(self, vectors: Numbers) -> Numbers:
        return vectors.sum(axis=0, keepdims=True)

    def entries(self) -> Numbers:
        return np.ones(self.shape, dtype=np.int64)

    def column_sums(self, power: int) -> Numbers:
        return np.ones(self.n, dtype=object)

    def pairs(self) -> tuple[tuple[int, int, int], ...]:
        """As those of `AlikeMap`."""
        return ((1, 1, 1),)


# ---- rows given one by one -------------------------------------------------------------------------------


@storable
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class RangesMap(Map):
    """Row i sums cells first_i to last_i - 1 of n: prefixes, windows, the nodes of a tree."""

    first: IntArray
    last: IntArray
    n: int

    def __post_init__(self) -> None:
        check_cell_count(self.n)
        object.__setattr__(self, "first", own_array(self.first, "first cells"))
        object.__setattr__(self, "last", own_array(self.last, "ends"))
        inside = self.first.ndim == 1 and self.first.shape == self.last.shape and self.first.size > 0
        if not inside or not ((self.first >= 0) & (self.first < self.last) & (self.last <= self.n)).all():
            raise WorkloadError("every row of a map of ranges sums at least one cell, and cells of its own")

    @property
    def shape(self) -> tuple[int, int]:
        return (len(self.first), self.n)

    @property
    def binary(self) -> bool:
        return True

    def apply(self, vectors: Numbers) -> Numbers:
        sums = np.zeros((self.n + 1, vectors.shape[1]), dtype=np.int64)
        np.cumsum(vectors, axis=0, out=sums[1:])
        return sums[self.last] - sums[self.first]

    def entries(self) -> Numbers:
        cells = np.arange(self.n)
        return ((self.first[:, None] <= cells) & (cells < self.last[:, None])).astype(np.int64)

    def column_sums(self, power: int) -> Numbers:
        starts, ends = (np.bincount(i, minlength=self.n + 1) for i in (self.first, self.last))
        return np.cumsum(starts - ends)[:-1].astype(object)

    def gram(self) -> Numbers:
        # each row adds 1 on a square: four corners, then sums along both axes
        n = self.n + 1
        steps = np.zeros(n * n, dtype=np.int64)
        for i, sign in ((self.first, 1), (self.last, -1)):
            for j, other in ((self.first, 1), (self.last, -1)):
                steps += sign * other * np.bincount(i * n + j, minlength=n * n)
        return steps.reshape(n, n).cumsum(axis=0).cumsum(axis=1)[:-1, :-1]


@storable
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class SparseMap(Map):
    """Compressed rows: row i has `data` at `indices`, rising, from indptr_i to indptr_(i+1) - 1; others are 0."""

    data: IntArray
    indices: IntArray
    indptr: IntArray
    n: int

    def __post_init__(self) -> None:
        check_cell_count(self.n)
        for name in ("data", "indices", "indptr"):
            object.__setattr__(self, name, own_array(getattr(self, name), name))
        ends, cells = self.indptr, self.indices
        if ends.ndim != 1 or len(ends) < 2 or cells.ndim != 1 or cells.shape != self.data.shape:
            raise WorkloadError("a sparse map has at least one row, and one index per entry")
        lengths = np.diff(ends)
        if int(ends[0]) != 0 or int(ends[-1]) != len(cells) or int(lengths.min()) < 0:
            raise WorkloadError("the rows of a sparse map follow each other")
        rises = (np.diff(cells) > 0) | (np.diff(np.repeat(np.arange(len(lengths)), lengths)) > 0)
        if len(cells) and (int(cells.min()) < 0 or int(cells.max()) >= self.n or not rises.all()):
            raise WorkloadError("the indices of a sparse row rise, each once, inside the map")

    @property
    def _csr(self) -> Any:
        from scipy.sparse import csr_array  # noqa: PLC0415  (scipy.sparse is slow to import)

        return csr_array((self.data, self.indices, self.indptr), shape=self.shape)

    @property
    def shape(self) -> tuple[int, int]:
        return (len(self.indptr) - 1, self.n)

    @property
    def binary(self) -> bool:
        return bool(((self.data == 0) | (self.data == 1)).all())

    @property
    def max_abs(self) -> int:
        return int(np.abs(self.data).max(initial=0))

    def apply(self, vectors: Numbers) -> Numbers:
        return self._csr @ vectors

    def entries(self) -> Numbers:
        return self._csr.toarray()

    def column_sums(self, power: int) -> Numbers:
        out = np.zeros(self.n, dtype=object)
        np.add.at(out, self.indices, np.abs(self.data).astype(object) ** power)
        return out

    def gram(self) -> Numbers:
        # arithmetic modulo 2^64 is exact where the largest inner product fits
        return (self._csr.T @ self._csr).toarray() if max(self.column_sums(2)) < INT64 else Map.gram(self)


@storable
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class DenseMap(Map):
    """A matrix (rows, columns), entry by entry."""

    matrix: IntArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "matrix", own_array(self.matrix, "entries"))
        if self.matrix.ndim != 2 or 0 in self.matrix.shape:
            raise WorkloadError(f"a dense map has rows and columns, not the shape {self.matrix.shape}")

    @property
    def shape(self) -> tuple[int, int]:
        return (self.matrix.shape[0], self.matrix.shape[1])

    @property
    def binary(self) -> bool:
        return bool(((self.matrix == 0) | (self.matrix == 1)).all())

    @property
    def max_abs(self) -> int:
        return int(np.abs(self.matrix).max())

    def apply(self, vectors: Numbers) -> Numbers:
        return exact_matmul(self.matrix, vectors)

    def entries(self) -> Numbers:
        return self.matrix

    def column_sums(self, power: int) -> Numbers:
        return absolute_sums(self.matrix, power)


@storable
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ToeplitzMap(Map):
    """Entry (i, j) is multiples_i coefficients_(i - j) columns_j for j <= i and 0 above: (n, n).

    Multiples of rows and of columns are not negative, and those of columns 1 where none are given. Raises WorkloadError
    where a column's sum of squares could reach 2^63 before its own multiple.
    """

    coefficients: IntArray
    multiples: IntArray
    column_multiples: IntArray | None = deferred_field(None)  # noqa: RUF009  (as dataclasses.field is)

    def __post_init__(self) -> None:
        for name in ("coefficients", "multiples", "column_multiples")[: 2 if self.column_multiples is None else 3]:
            object.__setattr__(self, name, own_array(getattr(self, name), name))
        c, m = self.coefficients, self.multiples
        w = m if self.column_multiples is None else self.column_multiples
        if c.ndim != 1 or not c.shape == m.shape == w.shape or not c.size or min(int(m.min()), int(w.min())) < 0:
            raise WorkloadError("a Toeplitz map has one coefficient and multiples of at least 0 per row and column")
        if int(np.abs(c).max()) ** 2 * len(c) >= INT64 or int((c**2).sum()) * int(m.max()) ** 2 >= INT64:
            raise WorkloadError("the entries of a Toeplitz map are too large for exact column sums")

    @property
    def shape(self) -> tuple[int, int]:
        return (len(self.multiples), len(self.multiples))

    @property
    def nonnegative(self) -> bool:
        return int(self.coefficients.min()) >= 0

    def apply(self, vectors: Numbers) -> Numbers:
        own = vectors if self.column_multiples is None else vectors * self.column_multiples[:, None]
        return np.ascontiguousarray((causal_exact(self.coefficients, own.T) * self.multiples).T)

    def entries(self) -> Numbers:
        back = np.arange(len(self.multiples))[:, None] - np.arange(len(self.multiples))
        own = np.where(back < 0, 0, self.coefficients[back]) * self.multiples[:, None]
        return own if self.column_multiples is None else own * self.column_multiples

    def column_sums(self, power: int) -> Numbers:
        # below 2^63 by construction, so exact modulo 2^64 is exact; L1 sums are below the squared ones; the columns'
        # own multiples are of Python's integers
        weights = (self.multiples**power)[::-1]
        bits = int(weights.max()).bit_length() + 1
        sums = causal_exact(np.abs(self.coefficients) ** power, weights, bits)[::-1].astype(object)
        return sums if self.column_multiples is None else sums * self.column_multiples.astype(object) ** power
