"""Square roots of the prefix sums, and of windows, as integer strategies of columns of one length. [FHU23]

B = diag(d) T(c) with c near the coefficients of (1 - z)^(-1/2), or for windows of one width w of
((1 - z^w) / (1 - z))^(1/2), and d such that all columns have one length. Then
L = R B for the prefix sums L with R = T(r) diag(1/d), r the series of L / c: both are Toeplitz but for a
diagonal, so the sum of squares of every row of R is one convolution of r^2 and d^-2, and any range, a difference
of two prefixes, costs one pass. Both are exact for the rounded integers c and d, whatever the rounding. Noisy filtered
values come back to tables by the filter run backwards, on what is public.

A lower bound for windows that take half of the cells or more, from the waves of a matrix that turns its sign.

Of `rows` windows, cells that all of them hold are alike, and one stands for all: cell j of the first `rows` lies in
windows 0 to j, and cell rows + j in the others. With d_j = 1/2 in rows up to j and -1/2 below these are the columns
1/2 + d_j and 1/2 - d_j of F. D = (d_0, ..., d_(rows - 1)) is negacyclic: its eigenvectors are waves of angles
a_p = (2p + 1) pi / rows, its eigenvalues 1 / (1 - exp(i a_p)), and D = |D| U. As d_(rows - 1) is 1/2,
F Fᵀ = 2 D Dᵀ + rows / 2 1 1ᵀ.

A contraction P and weights v of sum 1 on the cells prove that no factorization errs less than sum_j q_j v_j^(1/2),
q_j = <P_j, F_j>; the best v makes it the length of q. P is (Q F Fᵀ Q)^(-1/2) Q F on the slowest waves, projector Q,
in which 1 has most of its length, and (1 - Q) U (1, -1) / sqrt 2 on the others, where 1 1ᵀ adds nothing. They have
orthogonal rows.

Buffered linear Toeplitz matrices: few real poles in place of n coefficients. [DMPST24]

T has the generating function prod (1 - b_i z) / (1 - a_i z) with 1 > a_1 > b_1 > a_2 > ... > b_d > 0, so that

    T = 1 + sum w_i z / (1 - a_i z),    1 / T = 1 - sum u_i z / (1 - b_i z),    all w_i, u_i > 0 :

sums of d exponentials both ways, which a stream keeps in d numbers and errors are read from in closed form. Poles and
zeros are held as their distances from 1, whose differences keep their digits where memory is long.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfumato._util.codec import storable
from sfumato.errors import PlanError
from sfumato.operators import AllRange, LinearOperator
from sfumato.operators.base import DENSE_LIMIT, FloatArray, Numbers, single_thread
from sfumato.operators.structured import Toeplitz, Window, causal_convolution
from sfumato.privacy.stream_price import StreamTerms, WindowFilter, family_multiples
from sfumato.strategies.range_bounds import OrderedStrategy, as_contiguous_ranges, largest_bound

_ROUNDED = 32  # eps beside one for each term: of sines and quotients, and of sums of squares
_WAVES = 24  # of them and their conjugates: with twice as many the bound is .1 % higher
_CHUNK = 2**16  # cells at a time: 50 MB of waves


def wide_bound(rows: int) -> float:
    """A lower bound of the root of the sum of variances of `rows` windows that are at least as wide, at unit noise and
    columns of length at most 1; 3 to 4 % below the optimum."""
    few = min(_WAVES, rows // 2)
    turns = np.asarray((2 * np.arange(rows) + 1) * (math.pi / rows), dtype=np.float64)
    values = 1 / (1 - np.exp(1j * turns))
    phases = values / np.abs(values)
    phases[:few] = phases[rows - few :] = 0.0
    # entry (k, j) of (1 - Q) U is kernel (k - j), which turns its sign with every turn
    kernel = (np.fft.ifft(phases) * np.exp(1j * turns[0] * np.arange(rows))).real
    sums = np.append(0.0, np.cumsum(kernel))
    cell = np.arange(rows)
    first = (kernel[0] - sums[rows] + sums[rows - cell]) / math.sqrt(2)
    second = (sums[1] - sums[rows - cell]) / math.sqrt(2)
    if few:
        turned, weights = _slow_wave_spectrum(turns[:few], np.abs(values[:few]), rows)
        for a in range(0, rows, _CHUNK):
            some = _slow_wave_sums(turns[:few], cell[a : a + _CHUNK], rows)
            first[a : a + _CHUNK] += (some @ turned) ** 2 @ weights
            second[a : a + _CHUNK] += ((some - _slow_wave_sums(turns[:few], cell[-1:], rows)) @ turned) ** 2 @ weights
    # all windows hold the middle cell: it is one of the first alone
    return math.sqrt(float(first @ first) + float(second[:-1] @ second[:-1])) * (1 - 1e-9)


def _slow_wave_sums(turns: FloatArray, cells: np.ndarray[tuple[int], np.dtype[np.intp]], rows: int) -> FloatArray:
    """(cells, 2 few) sums of the normalised slow waves, cosines and sines, over rows 0 to j."""
    found = (1 - np.exp(1j * turns * (cells[:, None] + 1))) / (1 - np.exp(1j * turns)) * math.sqrt(2 / rows)
    return np.concatenate([found.real, found.imag], axis=1)


def _slow_wave_spectrum(turns: FloatArray, sizes: FloatArray, rows: int) -> tuple[FloatArray, FloatArray]:
    """Eigenvectors of F Fᵀ on the slow waves, and the inverse roots of its eigenvalues."""
    ones = _slow_wave_sums(turns, np.array([rows - 1]), rows)[0]
    gram = np.diag(np.concatenate([2 * sizes**2] * 2)) + rows / 2 * np.multiply.outer(ones, ones)
    with single_thread():
        squares, vectors = np.linalg.eigh(gram)
    return vectors, 1 / np.sqrt(squares)


_CIRCLE = 2**24  # 128 MB a transform
_LEAST = 1e-2  # positive, as weights are divided by; the docstring says for which windows it matters


def root_coefficients(n: int, width: int | None = None) -> FloatArray:
    """The first n coefficients of ((1 - z^width) / (1 - z))^(1/2), whose square is that of sums of `width` cells.

    Without a width those of (1 - z)^(-1/2), binom(2k, k) / 4^k, whose square is that of the prefix sums. [FHU23]
    """
    k = np.arange(1, n)
    whole = np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])
    if width is None or width >= n:
        return whole
    j = np.arange(1, (n - 1) // width + 1)
    ends = np.zeros(n)
    ends[::width] = np.concatenate([[1.0], np.cumprod((2 * j - 3) / (2 * j))])
    return causal_convolution(ends, whole)


def inverse_series(series: FloatArray) -> FloatArray:
    """The first n coefficients of 1 / series, for a leading coefficient that is not 0."""
    n = len(series)
    out = np.array([1.0 / series[0]])
    while len(out) < n:
        m = min(n, 2 * len(out))
        grown = np.zeros(m)
        grown[: len(out)] = out
        error = -causal_convolution(series[:m], grown)
        error[0] += 1.0
        out = grown + causal_convolution(grown, error)
    return out


def prefix_response(series: FloatArray, inverse: FloatArray) -> FloatArray:
    """r with series * r = 1 + z + z^2 + ...: prefix sums of what the series measures; corrected once."""
    found = np.cumsum(inverse)
    return found + causal_convolution(inverse, 1.0 - causal_convolution(series, found))


def row_weights(series: FloatArray) -> FloatArray:
    """Positive w (n,) under which every column of diag(w) T(series) has length 1.

    The squares solve sum_i w_i^2 series_(i-j)^2 = 1 for all j, a triangular Toeplitz system with a right side of
    ones: they are the partial sums of 1 / (series squared term by term), last row first. For the coefficients of
    (1 - z)^(-1/2) the squares are log-convex, so by Kaluza's theorem all later terms of that inverse are
    negative, and its partial sums decrease to a limit that is not negative. Those of wide windows may fall below;
    they are kept at 1/100, for which some of the first columns are a little longer.
    """
    sums = np.cumsum(inverse_series(series**2))
    return np.sqrt(np.maximum(sums[::-1], _LEAST))


def prefix_bound(n: int) -> float:
    """A lower bound of sqrt(sum of variances) of n prefixes at unit noise and columns of length at most 1."""
    return diagonal_bound(prefix_diagonal(n))


def diagonal_bound(diagonal: FloatArray) -> float:
    """A lower bound of sqrt(sum of variances) at unit noise and columns of length at most 1.

    With the singular values F = U S Vᵀ and weights v of sum 1 on the cells no factorization has a smaller error than
    the nuclear norm of F diag(v)^(1/2), which is at least its inner product with U Vᵀ: the sum of g_j v_j^(1/2) with
    g the diagonal of V S Vᵀ = (FᵀF)^(1/2). The best v makes it the length of g. Equal weights give the sum of the
    singular values over sqrt(n), which is less unless all g are equal.
    """
    # g are sums of at most n positive terms, each off by a few eps; their squares are summed pairwise
    lost = (len(diagonal) + _ROUNDED) * float(np.finfo(np.float64).eps)
    return float(np.linalg.norm(diagonal)) * (1 - lost)


def prefix_diagonal(n: int) -> FloatArray:
    """(n,), decreasing: the diagonal of (FᵀF)^(1/2) for the (n, n) prefix matrix F.

    With f = pi / (2n + 1) the singular values are 1 / (2 sin((2k - 1) f / 2)), and the right singular vectors cosines
    of (2j - 1) (2k - 1) f / 2. The last entry and the differences of neighbours are sums of sines with odd multiples.
    """
    step = math.pi / (2 * n + 1)
    cell = np.arange(1, n)
    last = (1 / math.sin(step / 2) + 1 / math.sin(1.5 * step)) / (2 * n + 1)
    falls = (1 / np.sin((2 * cell + 0.5) * step) + 1 / np.sin((2 * cell - 0.5) * step)) / (2 * n + 1)
    return np.cumsum(np.append(last, falls[::-1]))[::-1]


def replaced_prefix_bound(n: int) -> float:
    """A bound where one record replaces another, at columns no more than 1 apart, by equal weights on all pairs.

    Of cells that sum to zero the last prefix is zero, and the others have them for differences, with zeros at both
    ends: the singular values are 1 / (2 sin(k pi / 2n)), k < n, and the bound sqrt(2 / (n - 1)) times their sum.
    """
    angle = np.arange(1, n) * (math.pi / (2 * n))
    return float((0.5 / np.sin(angle)).sum()) * math.sqrt(2 / (n - 1))


def all_range_bound(n: int) -> float:
    """The bound of `prefix_bound` for all n (n + 1) / 2 ranges."""
    return diagonal_bound(all_range_diagonal(n))


def all_range_diagonal(n: int) -> FloatArray:
    """(n,): the diagonal of (FᵀF)^(1/2) for all ranges F of n cells.

    The Gram matrix is n + 1 times the inverse of the second differences; so with f = pi / (n + 1) the singular values
    are sqrt(n + 1) / (2 sin(k f / 2)), and the vectors sines of j k f. Differences of neighbours are cotangents.
    """
    step = math.pi / (n + 1)
    cell = np.arange((n + 1) // 2)
    rises = 1 / np.tan((cell + 0.25) * step) + 1 / np.tan((cell + 0.75) * step)
    half = np.cumsum(rises) / (2 * math.sqrt(n + 1))
    return np.append(half, half[: n // 2][::-1])


def window_bound(n: int, width: int) -> float:
    """The same sum for the n - width + 1 windows of one width: a lower bound of the optimum, within a percent of it
    where windows are narrow, 4 to 9 % below it where they take a third of the cells or more, 4 % from half on (`wide`).

    With a shift-invariant P of operator norm 1, its entry in row i and column j a function p of j - i, weights v of
    sum 1 on the cells give at least <P, F diag(v)^(1/2)> = sum_j q_j v_j^(1/2), where q_j sums P over the windows
    that hold cell j; the best v makes it the length of q. P has the phases of the windows' transfer function.
    Cells that are in all windows are alike, and one stands for all.
    """
    rows = n - width + 1
    # of narrower windows the first `width` alone are such
    wide = wide_bound(min(rows, width)) if 2 * width > rows else 0.0
    if width > rows:
        n, width = 2 * rows - 1, rows
    size = 1 << (n - 1).bit_length()
    # on a longer circle P is closer to that of the whole line
    size = max(size, min(4 * size, _CIRCLE))
    ones = np.zeros(size)
    ones[:width] = 1.0
    found = np.fft.rfft(ones)
    length = np.abs(found)
    phases = np.divide(found, length, out=np.zeros_like(found), where=length > 1e-9)
    sums = np.append(0.0, np.cumsum(np.fft.irfft(phases, size)[:width]))
    cell = np.arange(n)
    held = sums[cell - np.maximum(cell - width + 1, 0) + 1] - sums[cell - np.minimum(cell, rows - 1)]
    return max(float(np.linalg.norm(held)), wide)


# coefficients fall from 1 like 1/sqrt(pi j), 1/113 at 4,096: they are rounded by 2^-17, and errors are of the rounded
_COEFFICIENT = 2**16
FINE_ROOT = 2.0**12  # of row weights, on top of the 16 bits of the coefficients


def square_root_strategy(n: int, width: int | None = None) -> tuple[Numbers, FloatArray]:
    """(integer coefficients (n,), real row weights (n,) with the last one 1) of the strategy over n cells.

    It is the root of the windows of `width` cells, or of the prefix sums.
    """
    coefficients = np.rint(_COEFFICIENT * root_coefficients(n, width)).astype(np.int64)
    return coefficients, row_weights(coefficients / _COEFFICIENT)


@storable
@dataclass(frozen=True, eq=False)
class Roots(OrderedStrategy):
    """A lower-triangular Toeplitz matrix of integers with multiples of its rows: every cell can be solved for."""

    operator: Toeplitz

    @property
    def measured(self) -> LinearOperator:
        return self.operator

    @functools.cached_property
    def _inverse(self) -> FloatArray:
        return inverse_series(self.operator.coefficients.astype(np.float64))

    @functools.cached_property
    def _response(self) -> FloatArray:
        return prefix_response(self.operator.coefficients.astype(np.float64), self._inverse)

    def _noise(self, power: int) -> FloatArray:
        return 1.0 / self.operator.multiples.astype(np.float64) ** power

    def cells(self, values: FloatArray) -> FloatArray:
        # by way of the prefixes: their sums would otherwise gather the rounding errors of all cells
        prefixes = causal_convolution(self._response, (values.T / self.operator.multiples))
        return np.diff(prefixes, axis=1, prepend=0.0).T

    def prefix_powers(self, count: int, power: int) -> FloatArray:
        return causal_convolution(np.abs(self._response) ** power, self._noise(power))[:count]

    def range_bound(self, known: FloatArray, found: float) -> float:
        n = len(known) - 1
        variances = np.append(0.0, self.prefix_powers(n, 2))
        proved = largest_bound(self._response[:n], self._noise(2)[:n], variances, known, found)
        # ranges are differences of two prefixes, whose deviations add up at most
        return min(proved, 4.0 * float(variances.max()))

    def row_powers(self, query: LinearOperator, power: int) -> FloatArray:
        inner = as_contiguous_ranges(query)
        if isinstance(inner, Window):
            return self._window_powers(inner.n, inner.width, power)
        if isinstance(inner, AllRange) and 2 * inner.shape[0] <= DENSE_LIMIT:
            first = np.arange(inner.n)
            place = first * inner.n - first * (first - 1) // 2
            out = np.empty(inner.shape[0])
            for width in range(1, inner.n + 1):
                out[place[: inner.n - width + 1] + width - 1] = self._window_powers(inner.n, width, power)
            return out
        return super().row_powers(query, power)

    def _window_powers(self, n: int, width: int, power: int) -> FloatArray:
        """(n - width + 1,) for the windows of one width within the first n cells."""
        kernel = self._response[:n].copy()
        kernel[width:] -= self._response[: n - width]
        return causal_convolution(np.abs(kernel) ** power, self._noise(power)[:n])[width - 1 :]

    def span_powers(self, first: Numbers, last: Numbers, power: int) -> FloatArray:
        noise, back = self._noise(power), self._response[::-1]
        n = len(back)
        out = np.empty(len(first))
        for i, (a, b) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
            row = back[n - b :].copy()
            row[:a] -= back[n - a :]
            row **= power
            out[i] = row @ noise[:b]
        return out

    def spread(self, rows: FloatArray) -> FloatArray:
        turned = causal_convolution(self._inverse, np.ascontiguousarray(rows[:, ::-1]))
        return turned[:, ::-1] / self.operator.multiples

    def cells_of_rows(self, rows: FloatArray) -> FloatArray:
        return causal_convolution(self._inverse, self.spread(rows) / self.operator.multiples)

    def spread_ones(self) -> FloatArray:
        return self.cells_of_rows(np.ones((1, self.operator.shape[1])))[0]


_CHUNK_BUFFERS = 64  # terms of a sum that are scaled together: far fewer than overflow, many enough for numpy
_SLOW = 1e-3  # decay below which a chunk's scales would leave float64; few terms of such sums matter
_REST = 1e-20  # what a term is scaled by at least to be seen in a double's digits


def partial_fraction_residues(of: FloatArray, other: FloatArray) -> FloatArray:
    """prod_j (other_j - of_i) / prod_(j != i) (of_j - of_i) along the last axis: (..., d)."""
    top = other[..., None, :] - of[..., :, None]
    rest = of[..., None, :] - of[..., :, None] + np.eye(of.shape[-1])
    return np.asarray(top.prod(axis=-1) / rest.prod(axis=-1), dtype=np.float64)


def decayed_sums(values: FloatArray, decay: float) -> FloatArray:
    """y_t = sum_(k <= t) decay^(t - k) values_k, (n,), for a decay in (0, 1)."""
    n = len(values)
    if decay < _SLOW or n <= _CHUNK_BUFFERS:
        out, step, scale = values.copy(), 1, decay
        while step < n and scale > _REST:
            # every pass doubles the number of terms
            out[step:] += scale * out[:-step].copy()
            step, scale = 2 * step, scale * scale
        return out
    padded = np.zeros(-(-n // _CHUNK_BUFFERS) * _CHUNK_BUFFERS)
    padded[:n] = values
    table = padded.reshape(-1, _CHUNK_BUFFERS)
    powers = decay ** np.arange(_CHUNK_BUFFERS)
    table /= powers
    np.cumsum(table, axis=1, out=table)
    table *= powers
    carried = decayed_sums(table[:, -1].copy(), decay**_CHUNK_BUFFERS)
    table[1:] += np.multiply.outer(carried[:-1], decay * powers)
    return padded[:n]


@storable
@dataclass(frozen=True, eq=False)
class Buffers:
    """1 - a_i (d,) and 1 - b_i (d,), which interlace: poles_1 < zeros_1 < poles_2 < ... < zeros_d < 1."""

    poles: FloatArray
    zeros: FloatArray

    def __post_init__(self) -> None:
        both = [np.array(g, dtype=np.float64) for g in (self.poles, self.zeros)]
        if both[0].ndim != 1 or both[0].shape != both[1].shape or not len(both[0]):
            raise PlanError("buffers have one pole and one zero each, and there is at least one")
        every = np.stack(both, axis=1).reshape(-1)
        if not (np.diff(every, prepend=0.0) > 0).all() or every[-1] >= 1.0:
            raise PlanError("poles and zeros of buffers alternate and rise strictly between 0 and 1")
        for name, values in zip(("poles", "zeros"), both, strict=True):
            values.flags.writeable = False
            object.__setattr__(self, name, values)

    @functools.cached_property
    def outputs(self) -> FloatArray:
        """w_i, (d,)."""
        return partial_fraction_residues(self.poles, self.zeros)

    @functools.cached_property
    def returns(self) -> FloatArray:
        """u_i, (d,)."""
        return -partial_fraction_residues(self.zeros, self.poles)

    def coefficients(self, lags: Numbers) -> FloatArray:
        """Of T at some lags, (lags,), whole numbers of at least 0."""
        rates = np.log1p(-self.poles).tolist()
        later = sum(w * np.exp((lags - 1) * r) for w, r in zip(self.outputs.tolist(), rates, strict=True))
        return np.asarray(np.where(lags == 0, 1.0, later), dtype=np.float64)


class Decoder:
    """Unbiased estimates of every period's measurements, in the order of the periods.

    Float64: for counts up to 10^8 the sum of 2^16 periods is off by less than 1e-4 records, with what the floors leave.
    """

    __slots__ = ("_period", "_scales", "_states", "_terms")

    def __init__(self, terms: StreamTerms) -> None:
        self._terms, self._period = terms, 0
        self._states = [np.zeros((terms.filter_of(f).kept[1], f.rows)) for f in terms.families]
        self._scales = [np.repeat(family_multiples(f).astype(np.float64), f.rows_each) for f in terms.families]

    def step(self, values: Sequence[Numbers]) -> list[FloatArray]:
        """Per family what its blocks make of the tables of the next period, multiples included, with noise: (rows,)."""
        terms, out = self._terms, list[FloatArray]()
        for family, state, multiples, y in zip(terms.families, self._states, self._scales, values, strict=True):
            used, whole = terms.filter_of(family), family_multiples(family).tolist()
            given = used.coefficients(self._period, whole, terms.grain).astype(np.float64)
            first, carried = (
                np.repeat(given[:1], family.rows_each, axis=1)[0],
                np.repeat(given[1:], family.rows_each, axis=1),
            )
            if isinstance(used, WindowFilter):
                x = _decode_windowed(y, first, carried, state)
            else:
                x = _decode_decaying(
                    y * (2.0**used.shift / used.row(self._period)), first, carried, state, used.decay_rates
                )
            out.append(x * multiples)
        self._period += 1
        return out


def _decode_decaying(
    y: FloatArray, direct: FloatArray, carried: FloatArray, state: FloatArray, rates: FloatArray
) -> FloatArray:
    """x of one period; the state is that of the filter."""
    x = np.asarray((y - state.sum(axis=0)) / direct)
    state *= rates[:, None]
    state += carried * x
    return x


def _decode_windowed(y: Numbers, direct: FloatArray, carried: FloatArray, state: FloatArray) -> FloatArray:
    """x of one period; the state are those of the periods before, the last first."""
    x = np.asarray((y - (carried * state).sum(axis=0)) / direct)
    state[1:] = state[:-1].copy()
    state[:1] = x
    return x
