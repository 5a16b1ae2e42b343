"""Scaled buffered Toeplitz strategies over one ordered attribute: integers to measure, errors from few exponentials.

B = diag(rows) T(c) diag(columns) in integers, c near a multiple of the coefficients of `Buffers`. B can be inverted, so
the answers are exactly those of the integers: cells = diag(1/columns) T(c)^-1 diag(1/rows) y, by power series.

Their errors are those of the buffers' own coefficients. With b_i the zeros of T and 1 / columns for u, the row of R for
prefix t is g_t(k) = A(k) + sum_i C_i(t) b_i^(t - k) over rows[k], see `fitting`. So two prefixes s <= t have the
covariance

    P(s) + sum_j C_j(t) b_j^(t - s) D_j(s),   D_j(s) = sum_(k <= s) b_j^(s - k) g_s(k) / rows[k]^2,

P(s) = sum_(k <= s) g_s(k) A(k) / rows[k]^2: the variance of any range costs d products, however long it is. Rounding
c moves the variances of prefixes by less than 2e-5 of themselves and those of short ranges by less than 3e-5 (tests
compare with the integers' inverse); what is said to be proved is said with that on top.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sfumato._util.codec import storable
from sfumato.errors import PlanError
from sfumato.operators import AllRange, LinearOperator, Window
from sfumato.operators.base import DENSE_LIMIT, FloatArray, Numbers
from sfumato.operators.structured import Toeplitz, causal_convolution
from sfumato.strategies.range_bounds import OrderedStrategy, as_contiguous_ranges, largest_pair
from sfumato.strategies.toeplitz import Buffers, decayed_sums, inverse_series, partial_fraction_residues

Asked = Literal["prefixes", "ranges", "largest"]
"""What is to be small: the mean variance of all prefixes, of all ranges, or the largest variance of a prefix."""

SHAPES = 6  # functions of which rows are scaled: more gain less than 1e-4
_LEAST = 64  # rows, of which shapes are independent
_SINGLE = 8  # rows at each end that are blocks by themselves, where all changes fastest
_PER_OCTAVE = 6  # blocks: twice as many find parameters that err 1e-4 less
_PEAK = 40.0  # the power mean that stands for the largest: within 3 % of it, and smooth
_WIDEST = 0.3  # of a shape's coefficient: more gains 1e-4 at most, and blocks no longer tell what they average over
# what squared coefficients and squared differences of gaps cost, so that of parameters that err alike to a part in
# 10^5 the same are found at every n, and lie between those of near ones
_SMOOTH, _EVEN = 1e-4, 1e-5
_STEP = 1e-5  # of central differences: their errors are 1e-10 relative, below what is asked of the optimum
_STEPS = 400  # of the search: it ends before by its tolerance


@functools.cache
def _geometric_blocks(n: int) -> tuple[FloatArray, FloatArray]:
    """(lengths, middles) of blocks of n cells that grow geometrically from both ends."""
    half = n // 2
    octaves = np.arange(_PER_OCTAVE * n.bit_length()) / _PER_OCTAVE
    ends = np.unique(np.concatenate([np.arange(_SINGLE + 1.0), np.rint(_SINGLE * 2**octaves)]))
    ends = ends[ends <= half]
    edges = np.unique(np.concatenate([ends, n - ends]))
    return np.diff(edges), (edges[:-1] + edges[1:] - 1) / 2


def _row_scale_shapes(places: FloatArray, n: int) -> FloatArray:
    """(places, SHAPES): what logarithms of row scales are made of, before they are made independent."""
    size = np.log(n)
    after, before, share = np.log(n - places) / size, np.log(places + 1) / size, (places + 0.5) / n
    return np.stack([after, before, after**2, before**2, share, share**2], axis=-1)


@functools.cache
def _orthonormal_shapes(n: int) -> tuple[FloatArray, FloatArray]:
    """(mean, matrix) by which shapes become orthonormal over cells and blocks alike."""
    lengths, middles = _geometric_blocks(n)
    weights = lengths / n + 1 / len(lengths)
    weights /= weights.sum()
    shapes = _row_scale_shapes(middles, n)
    mean = weights @ shapes
    upper = np.linalg.qr((shapes - mean) * np.sqrt(weights)[:, None])[1]
    return mean, np.linalg.inv(upper * np.sign(np.diagonal(upper))[:, None])


def row_scale(n: int, shape: FloatArray, places: FloatArray | None = None) -> FloatArray:
    """Positive scales r of the rows at some places (all n by default), for coefficients (SHAPES,) or (..., SHAPES).

    Fewer than 64 rows are the last of as many.
    """
    if n < _LEAST:
        return row_scale(_LEAST, shape)[_LEAST - n :]
    mean, matrix = _orthonormal_shapes(n)
    where = np.arange(float(n)) if places is None else places
    return np.exp((_row_scale_shapes(where, n) - mean) @ (matrix @ shape.T))


@dataclass(frozen=True, slots=True)
class BufferParameters:
    """Buffers by the logit of the first pole's distance from 1 and the logs of the gaps between all logits, and rows.

    `gaps` (2 d,) begins with that first logit; `shape` (SHAPES,).
    """

    gaps: FloatArray
    shape: FloatArray

    @classmethod
    def of(cls, vector: FloatArray) -> BufferParameters:
        """From one vector, or from several in rows."""
        return cls(vector[..., :-SHAPES], vector[..., -SHAPES:])

    @property
    def vector(self) -> FloatArray:
        return np.concatenate([self.gaps, self.shape], axis=-1)

    @property
    def decays(self) -> tuple[FloatArray, FloatArray]:
        """Distances from 1 of poles and of zeros."""
        logits = np.cumsum(np.concatenate([self.gaps[..., :1], np.exp(self.gaps[..., 1:])], axis=-1), axis=-1)
        distances = 1 / (1 + np.exp(-logits))
        return distances[..., 0::2], distances[..., 1::2]

    @property
    def buffers(self) -> Buffers:
        return Buffers(*self.decays)


@dataclass(frozen=True, slots=True)
class _BlockFilter:
    """sum_k rate^(t - k) x_k over blocks, for several rates at once: (blocks, ..., rates)."""

    power: FloatArray  # rate^length
    sums: FloatArray  # 1 + rate + ... + rate^(length - 1)
    mean: FloatArray  # sums / length
    rest: FloatArray  # (1 - rate), inverted
    rate: FloatArray

    @classmethod
    def of(cls, logs: FloatArray, lengths: FloatArray) -> _BlockFilter:
        long = lengths.reshape(-1, *(1,) * logs.ndim)
        sums = np.expm1(long * logs) / np.expm1(logs)
        return cls(np.exp(long * logs), sums, sums / long, -1 / np.expm1(logs), np.exp(logs))

    def forward(self, values: FloatArray) -> FloatArray:
        """Means over blocks of y_t = sum_(k <= t) rate^(t - k) x_k for x constant on blocks (blocks, ...)."""
        carried = np.zeros_like(self.rate)
        own = self.rate * self.mean
        out = np.empty_like(self.mean)
        for b, x in enumerate(values[..., None]):
            out[b] = x * (1 - own[b]) * self.rest + own[b] * carried
            carried = x * self.sums[b] + self.power[b] * carried
        return out

    def backward(self, values: FloatArray) -> FloatArray:
        """Means over blocks of y_t = sum_(k > t) rate^(k - t - 1) x_k."""
        carried = np.zeros_like(self.rate)
        out = np.empty_like(self.mean)
        for b in range(len(values) - 1, -1, -1):
            x = values[b][..., None]
            out[b] = x * (1 - self.mean[b]) * self.rest + self.mean[b] * carried
            carried = x * self.sums[b] + self.power[b] * carried
        return out


@dataclass(frozen=True, slots=True)
class GeometricBlocks:
    """n cells in geometric blocks, on which errors of a strategy are read whatever n is."""

    n: int

    def variances(self, given: BufferParameters) -> tuple[FloatArray, FloatArray]:
        """Variances of prefixes, and sums over k of (sum_t g_t(k))^2 / r_k^2, by block: (blocks, ...) each.

        `given` may hold several parameters in rows.
        """
        lengths, middles = _geometric_blocks(self.n)
        poles, zeros = given.decays
        first, second = np.triu_indices(poles.shape[-1])
        double = np.where(first == second, 1.0, 2.0)
        outputs, returns = partial_fraction_residues(poles, zeros), -partial_fraction_residues(zeros, poles)
        squares = row_scale(self.n, given.shape, middles) ** 2
        slow, fast = np.log1p(-poles), np.log1p(-zeros)
        pairs = _BlockFilter.of(slow[..., first] + slow[..., second], lengths).backward(squares)
        columns = squares + (outputs[..., first] * outputs[..., second] * double * pairs).sum(axis=-1)
        cells = np.sqrt(columns)
        single = _BlockFilter.of(fast, lengths)
        ahead = returns * single.backward(cells)
        base = cells - ahead.sum(axis=-1)
        left = (self.n - middles).reshape(-1, *(1,) * (cells.ndim - 1)) * cells
        every = left - (returns * single.backward(left)).sum(axis=-1)
        noise = 1 / squares
        long = lengths.reshape(-1, *(1,) * (cells.ndim - 1))
        steady = noise * base**2
        out = np.cumsum(long * steady, axis=0) - steady * (long - 1) / 2
        out += 2 * (ahead * single.forward(noise * base)).sum(axis=-1)
        pairs = _BlockFilter.of(fast[..., first] + fast[..., second], lengths).forward(noise)
        out += (ahead[..., first] * ahead[..., second] * double * pairs).sum(axis=-1)
        return out, noise * every**2

    def error(self, given: BufferParameters, asked: Asked) -> FloatArray:
        """The standard error at unit noise and columns of length 1 of what is asked, about: shape (...)."""
        n, lengths = self.n, _geometric_blocks(self.n)[0]
        variances, sums = self.variances(given)
        if asked == "prefixes":
            return np.sqrt(lengths @ variances / n)
        if asked == "ranges":
            return np.sqrt(((n + 1) * (lengths @ variances) - lengths @ sums) / (n * (n + 1) / 2))
        share = (lengths / n + 1 / len(lengths)) / 2
        top = variances.max(axis=0)
        return np.sqrt(top * (share @ (variances / top) ** _PEAK) ** (1 / _PEAK))


def fit_buffer_parameters(
    n: int, asked: Asked, buffers: int = 8, start: BufferParameters | None = None
) -> BufferParameters:
    """Parameters of least error for n cells: some CPU-seconds, whatever n is. `start` is what is known of a near n."""
    from scipy.optimize import minimize  # noqa: PLC0415  (slow to import)

    geometric = GeometricBlocks(n)
    if start is None:
        gap = np.log((np.log(n) + 2) / (2 * buffers))
        start = BufferParameters(np.append(-np.log(n), np.full(2 * buffers - 1, gap)), np.zeros(SHAPES))
    size = len(start.vector)
    around = np.concatenate([np.zeros((1, size)), _STEP * np.eye(size), -_STEP * np.eye(size)])

    def value(vector: FloatArray) -> tuple[float, FloatArray]:
        with np.errstate(all="ignore"):
            tried = BufferParameters.of(vector + around)
            found = np.log(geometric.error(tried, asked)) + _SMOOTH * (tried.shape**2).sum(axis=-1)
            found += _EVEN * (np.diff(tried.gaps[..., 1:]) ** 2).sum(axis=-1)
        if not np.isfinite(found).all():
            return 1e3, np.zeros(size)
        return float(found[0]), (found[1 : size + 1] - found[size + 1 :]) / (2 * _STEP)

    done = minimize(
        value,
        start.vector,
        jac=True,
        method="L-BFGS-B",
        bounds=[(None, None)] * (size - SHAPES) + [(-_WIDEST, _WIDEST)] * SHAPES,
        options={"maxiter": _STEPS, "maxcor": 30, "ftol": 1e-11},
    )
    return BufferParameters.of(np.asarray(done.x))


# per size its binary logarithm, sixteen numbers of eight buffers and six of rows
_TABLES: dict[Asked, str] = {
    "prefixes": """
10 -6.5423 -1.7807 -1.5586 -1.1439 -1.0432 -0.3347 -0.3897 -0.3925
  -0.4209 -0.3803 -0.3425 -0.2785 -0.1823 -0.0676 -0.0718 0.1592 0.1250 0.3000 -0.0900 0.0836 0.0365 -0.0039
12 -7.8032 -0.7476 -0.9441 -0.2974 -0.3253 -0.3038 -0.3413 -0.3413
  -0.3568 -0.3669 -0.3703 -0.3354 -0.2254 -0.0840 -0.2057 -0.0172 0.2171 0.3000 -0.0711 0.1059 0.0503 -0.0068
14 -9.1523 -0.5140 -0.8088 -0.3847 -0.3811 -0.3385 -0.3520 -0.3306
  -0.3288 -0.3296 -0.3275 -0.3062 -0.2603 -0.1716 0.0034 0.4018 0.2501 0.3000 -0.0433 0.1320 0.0701 -0.0098
16 -10.2948 0.0143 -0.2592 -0.2698 -0.3377 -0.3379 -0.3489 -0.3508
  -0.3513 -0.3452 -0.3321 -0.3047 -0.2555 -0.1652 0.0124 0.4101 0.2268 0.3000 -0.0060 0.1596 0.0943 -0.0128
18 -11.6194 0.0106 -0.2146 -0.1985 -0.2437 -0.2344 -0.2344 -0.2292
  -0.2239 -0.2171 -0.2089 -0.1945 -0.1659 -0.0998 0.0556 0.4313 0.1631 0.3000 0.0394 0.1875 0.1221 -0.0158
20 -12.9316 0.0306 -0.1416 -0.1046 -0.1335 -0.1251 -0.1234 -0.1204
  -0.1194 -0.1169 -0.1115 -0.1013 -0.0789 -0.0236 0.1102 0.4558 0.0783 0.3000 0.0873 0.2128 0.1498 -0.0192
22 -14.2435 0.0636 -0.0664 -0.0190 -0.0360 -0.0290 -0.0276 -0.0264
  -0.0262 -0.0250 -0.0222 -0.0159 -0.0001 0.0426 0.1569 0.4783 -0.0128 0.3000 0.1349 0.2343 0.1756 -0.0228
24 -15.5589 0.1052 0.0096 0.0615 0.0516 0.0561 0.0571 0.0576
  0.0576 0.0582 0.0599 0.0640 0.0753 0.1088 0.2067 0.5031 -0.1024 0.3000 0.1798 0.2518 0.1986 -0.0268
""",
    "ranges": """
10 -5.3445 -1.8439 -1.5786 -1.1589 -1.2593 -0.8401 -0.6661 -0.6598
  -0.7198 -0.6125 -0.4489 -0.3792 -0.2888 -0.1898 -0.0549 0.3244 -0.2346 -0.2217 -0.3000 0.1281 0.2147 0.0148
12 -6.6214 -1.0863 -1.0812 -0.7254 -0.6427 -0.5974 -0.6129 -0.5224
  -0.4326 -0.4490 -0.4531 -0.4246 -0.3247 -0.1745 -0.0116 0.3399 -0.2118 -0.2924 -0.3000 0.1227 0.3000 0.0176
14 -7.9216 -0.5208 -0.5714 -0.5719 -0.5562 -0.4934 -0.5155 -0.5829
  -0.5403 -0.4769 -0.4167 -0.3638 -0.2965 -0.2046 -0.0431 0.3623 -0.2074 -0.3000 -0.3000 0.1277 0.3000 0.0303
16 -9.3264 -0.4299 -0.4654 -0.4880 -0.4752 -0.4004 -0.3528 -0.3739
  -0.3739 -0.3680 -0.3509 -0.3227 -0.2715 -0.1802 0.0005 0.4041 -0.1024 -0.3000 -0.3000 0.0777 0.3000 0.0296
18 -10.7561 -0.3062 -0.3171 -0.3346 -0.3414 -0.3060 -0.2481 -0.2339
  -0.2259 -0.2272 -0.2316 -0.2323 -0.2086 -0.1342 0.0338 0.4209 0.1384 -0.3000 -0.3000 -0.0290 0.3000 0.0195
20 -12.1506 -0.1795 -0.1557 -0.1530 -0.1619 -0.1775 -0.1669 -0.1681
  -0.1671 -0.1648 -0.1588 -0.1470 -0.1208 -0.0594 0.0849 0.4441 0.3000 -0.3000 -0.3000 -0.1128 0.3000 0.0131
22 -13.5132 -0.1091 -0.0668 -0.0607 -0.0594 -0.0751 -0.0699 -0.0709
  -0.0698 -0.0667 -0.0620 -0.0558 -0.0394 0.0083 0.1331 0.4672 0.3000 -0.3000 -0.3000 -0.1486 0.3000 0.0113
24 -14.8889 -0.0314 0.0149 0.0211 0.0306 0.0195 0.0219 0.0206
  0.0205 0.0207 0.0223 0.0270 0.0405 0.0780 0.1833 0.4913 0.3000 -0.3000 -0.2634 -0.2073 0.3000 0.0095
""",
    "largest": """
10 -6.6263 -2.2813 -2.1114 -1.7981 -1.6477 -1.3920 -1.3371 -0.2825
  -0.2581 -0.2862 -0.3577 -0.3130 -0.2832 -0.2057 -0.0200 0.3948 -0.0302 0.3000 -0.0940 0.0693 0.0262 -0.0027
12 -8.0346 -1.6894 -1.5209 -1.2355 -1.1287 -0.2268 -0.2816 -0.3335
  -0.4136 -0.3831 -0.3672 -0.3179 -0.2510 -0.1547 0.0233 0.4160 0.0523 0.3000 -0.0821 0.0902 0.0353 -0.0043
14 -9.3374 -0.9566 -0.8489 -0.1531 -0.2728 -0.2991 -0.3676 -0.3592
  -0.3733 -0.3655 -0.3503 -0.3215 -0.2695 -0.1774 0.0040 0.4068 0.1058 0.3000 -0.0683 0.1113 0.0474 -0.0068
16 -10.3845 0.0856 -0.2147 -0.2475 -0.3345 -0.3380 -0.3571 -0.3581
  -0.3585 -0.3501 -0.3341 -0.3078 -0.2583 -0.1672 0.0102 0.4084 0.1385 0.3000 -0.0536 0.1310 0.0608 -0.0100
18 -11.7432 0.0802 -0.1752 -0.1666 -0.2272 -0.2211 -0.2286 -0.2273
  -0.2261 -0.2231 -0.2157 -0.1999 -0.1667 -0.0967 0.0585 0.4321 0.1474 0.3000 -0.0355 0.1501 0.0768 -0.0134
20 -13.0812 0.0898 -0.1189 -0.0824 -0.1257 -0.1190 -0.1209 -0.1190
  -0.1175 -0.1151 -0.1099 -0.0986 -0.0742 -0.0191 0.1130 0.4573 0.1334 0.3000 -0.0135 0.1683 0.0942 -0.0169
22 -14.4008 0.1123 -0.0550 -0.0003 -0.0270 -0.0206 -0.0203 -0.0197
  -0.0197 -0.0196 -0.0176 -0.0115 0.0043 0.0464 0.1598 0.4799 0.0918 0.3000 0.0140 0.1859 0.1132 -0.0202
24 -15.7157 0.1478 0.0130 0.0748 0.0594 0.0634 0.0636 0.0638
  0.0640 0.0644 0.0658 0.0700 0.0815 0.1147 0.2110 0.5055 0.0460 0.3000 0.0407 0.2009 0.1307 -0.0235
""",
}
_BUFFERS = 8  # as in the tables


@functools.cache
def _parameter_table(asked: Asked) -> FloatArray:
    """(sizes, 1 + numbers)."""
    return np.array(_TABLES[asked].split(), dtype=np.float64).reshape(-1, 1 + 2 * _BUFFERS + SHAPES)


def interpolate_parameters(n: int, asked: Asked) -> BufferParameters:
    """Parameters for n >= 2 cells; beyond the table those of its end, stretched to n."""
    sizes, *columns = _parameter_table(asked).T
    place = math.log2(n)
    found = BufferParameters.of(np.array([np.interp(place, sizes, column) for column in columns]))
    found.gaps[0] -= math.log(2.0) * (place - float(np.clip(place, sizes[0], sizes[-1])))
    return found


COEFFICIENT = 2**16  # of the first coefficient, which is the largest: see the docstring above
_ROW = 2**8  # of the largest row; the least is a fifth of it, and a percent off costs its square
FINE_COLUMN = 2.0**9  # of the least column: rounded down, it costs a part in 2^10 of the error
_SEEN = 1_000  # coefficients that are compared with those of the buffers: any number that tells strategies apart
_DOUBT = 3e-5  # see the docstring above
_RANGES = 2**16  # at a time: some MB for each buffer


@dataclass(frozen=True, slots=True)
class UnscaledStrategy:
    """Integer coefficients and rows (n,), and real columns (n,) of least 1 by which all columns are of one length."""

    buffers: Buffers
    coefficients: Numbers
    rows: Numbers
    columns: FloatArray

    def at(self, scale: float) -> Buffered:
        """With columns multiplied by `scale` and rounded down."""
        columns = np.floor(scale * self.columns).astype(np.int64)
        return Buffered(Toeplitz(self.coefficients, self.rows, columns), self.buffers)


def best_buffered_strategy(n: int, asked: Asked) -> UnscaledStrategy:
    """The strategy of least error over n cells that is known for what is asked."""
    found = interpolate_parameters(n, asked)
    buffers = found.buffers
    coefficients = np.rint(COEFFICIENT * buffers.coefficients(np.arange(n))).astype(np.int64)
    scale = row_scale(n, found.shape)
    rows = np.maximum(np.rint(scale * (_ROW / scale.max())), 1).astype(np.int64)
    # in floats: what is measured is priced by its integers
    squares = causal_convolution(coefficients.astype(np.float64) ** 2, rows[::-1].astype(np.float64) ** 2)
    lengths = np.sqrt(squares[::-1])
    return UnscaledStrategy(buffers, coefficients, rows, lengths.max() / lengths)


@dataclass(frozen=True, slots=True)
class _BufferedParts:
    """C (d, n), D (d, n) and P (n,) of the module's docstring."""

    ahead: FloatArray
    behind: FloatArray
    steady: FloatArray


@storable
@dataclass(frozen=True, eq=False)
class Buffered(OrderedStrategy):
    """A scaled Toeplitz matrix of integers whose coefficients are those of buffers, rounded."""

    operator: Toeplitz
    buffers: Buffers

    def __post_init__(self) -> None:
        given = self.operator
        if given.columns is None or int(given.multiples.min()) < 1 or int(given.columns.min()) < 1:
            raise PlanError("a buffered strategy has positive multiples of its rows and of its columns")
        first = int(given.coefficients[0])
        lags = np.unique(np.geomspace(1, len(given.coefficients), _SEEN).astype(np.int64)) - 1
        off = np.abs(first * self.buffers.coefficients(lags) - given.coefficients[lags])
        # one half by rounding; the exponentials of another machine may round the other way
        if float(off.max()) > 1.0:
            raise PlanError("the coefficients of a buffered strategy are not those of its buffers")

    @property
    def measured(self) -> LinearOperator:
        return self.operator

    @functools.cached_property
    def _inverse(self) -> FloatArray:
        return inverse_series(self.operator.coefficients.astype(np.float64))

    @property
    def _columns(self) -> FloatArray:
        assert self.operator.columns is not None
        return self.operator.columns.astype(np.float64)

    def cells(self, values: FloatArray) -> FloatArray:
        return (causal_convolution(self._inverse, values.T / self.operator.multiples) / self._columns).T

    def spread(self, rows: FloatArray) -> FloatArray:
        turned = causal_convolution(self._inverse, np.ascontiguousarray((rows / self._columns)[:, ::-1]))
        return turned[:, ::-1] / self.operator.multiples

    def cells_of_rows(self, rows: FloatArray) -> FloatArray:
        return causal_convolution(self._inverse, self.spread(rows) / self.operator.multiples) / self._columns

    def spread_ones(self) -> FloatArray:
        return self.cells_of_rows(np.ones((1, self.operator.shape[1])))[0]

    # -- errors ------------------------------------------------------------------------------------

    @functools.cached_property
    def _parts(self) -> _BufferedParts:
        cells = 1 / self._columns
        noise: FloatArray = 1 / (float(self.operator.coefficients[0]) * self.operator.multiples.astype(np.float64)) ** 2
        decays = (1 - self.buffers.zeros).tolist()
        later = np.append(0.0, cells[:0:-1])
        ahead = np.stack(
            [u * decayed_sums(later, b)[::-1] for u, b in zip(self.buffers.returns.tolist(), decays, strict=True)]
        )
        base = cells - ahead.sum(axis=0)
        behind = np.stack([decayed_sums(noise * base, b) for b in decays])
        steady = np.cumsum(noise * base**2) + (ahead * behind).sum(axis=0)
        for i, b in enumerate(decays):
            for j in range(i, len(decays)):
                both = decayed_sums(noise, b * decays[j])
                behind[i] += ahead[j] * both
                if i != j:
                    behind[j] += ahead[i] * both
        return _BufferedParts(ahead, behind, steady)

    @functools.cached_property
    def _variances(self) -> FloatArray:
        """(n,) of the prefixes at unit noise."""
        parts = self._parts
        return parts.steady + np.einsum("in,in->n", parts.ahead, parts.behind)

    def prefix_powers(self, count: int, power: int) -> FloatArray:
        if power == 2:
            return self._variances[:count]
        return self.span_powers(np.zeros(count, dtype=np.int64), np.arange(1, count + 1), power)

    def span_powers(self, first: Numbers, last: Numbers, power: int) -> FloatArray:
        out = np.empty(len(first))
        if power != 2:
            cell = np.arange(self.operator.shape[1])
            for i, (a, b) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
                row = ((a <= cell) & (cell < b)).astype(np.float64)
                out[i] = (self.spread(row[None]) ** power).sum()
            return out
        for a in range(0, len(first), _RANGES):
            chosen = slice(a, a + _RANGES)
            out[chosen] = self._spans(first[chosen], last[chosen])
        return out

    def _spans(self, first: Numbers, last: Numbers) -> FloatArray:
        """Variances of ranges as those of differences of two prefixes, of which the empty one has none."""
        parts, variances = self._parts, self._variances
        low, high = np.maximum(first - 1, 0), last - 1
        shared = parts.steady[low]
        for ahead, behind, rate in zip(parts.ahead, parts.behind, np.log1p(-self.buffers.zeros), strict=True):
            shared += ahead[high] * np.exp((high - low) * rate) * behind[low]
        found = variances[high] + np.where(first > 0, variances[low] - 2 * shared, 0.0)
        return np.maximum(np.where(last > first, found, 0.0), 0.0)

    def row_powers(self, query: LinearOperator, power: int) -> FloatArray:
        inner = as_contiguous_ranges(query)
        if power != 2:
            return super().row_powers(query, power)
        if isinstance(inner, Window):
            return self._windows(inner.n, inner.width)
        if isinstance(inner, AllRange) and 2 * inner.shape[0] <= DENSE_LIMIT:
            first = np.arange(inner.n)
            place = first * inner.n - first * (first - 1) // 2
            out = np.empty(inner.shape[0])
            for width in range(1, inner.n + 1):
                out[place[: inner.n - width + 1] + width - 1] = self._windows(inner.n, width)
            return out
        return super().row_powers(query, power)

    def _windows(self, n: int, width: int) -> FloatArray:
        """(n - width + 1,) for the windows of one width within the first n cells."""
        parts, variances = self._parts, self._variances
        low, high = slice(0, n - width), slice(width, n)
        rates = (1 - self.buffers.zeros) ** width
        shared = parts.steady[low] + np.einsum("in,in,i->n", parts.ahead[:, high], parts.behind[:, low], rates)
        return np.append(variances[width - 1], np.maximum(variances[high] + variances[low] - 2 * shared, 0.0))

    def range_bound(self, known: FloatArray, found: float) -> float:
        n, parts = len(known) - 1, self._parts
        return (1 + _DOUBT) * largest_pair(
            self._variances[:n],
            parts.steady[:n],
            parts.ahead[:, :n],
            parts.behind[:, :n],
            self.buffers.zeros,
            known,
            found,
        )
