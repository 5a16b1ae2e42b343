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

Buffers and scales of rows that err least, found on geometric blocks: the work does not grow with the cells.

The strategy is B = diag(r) T diag(w), T of `Buffers`, with w such that all columns have length 1. With u = 1 / w the
prefixes are answered by R = L diag(u) T^-1 diag(1 / r), whose rows are sums of exponentials,

    g_t(k) = A(k) + sum_i C_i(t) b_i^(t - k),    C_i(t) = u_i sum_(j > t) u(j) b_i^(j - t - 1),    A = u - sum_i C_i,

so that the variance of prefix t, sum_k g_t(k)^2 / r_k^2, is read from filters over pairs of poles. Rows and lengths of
columns are taken as constant on blocks that grow from both ends of the cells; then every filter has a closed form on
a block. What is found is then measured exactly.
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
from sfumato.strategies.toeplitz import Buffers, decayed_sums, inverse_series

Asked = Literal["prefixes", "ranges", "largest"]
"""What is to be small: the mean variance of all prefixes, of all ranges, or the largest variance of a prefix."""

SHAPES = 6  # functions of which rows are scaled: more gain less than 1e-4
_LEAST = 64  # rows, of which shapes are independent
_SINGLE = 8  # rows at each end that are blocks by themselves, where all changes fastest
_PER_OCTAVE = 6  # blocks: twice as many find parameters that err 1e-4 less


@functools.cache
def geometric_blocks(n: int) -> tuple[FloatArray, FloatArray]:
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
    lengths, middles = geometric_blocks(n)
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


BUFFERS = 8  # ten err less by 2e-4 at a million cells, and cost half as much again
# Per size its binary logarithm, sixteen numbers of eight buffers and six of rows. Scales of rows are wider where these
# find less error: of ranges up to 2^11 cells, and of the worst prefix up to 2^20, where also the mean errs less.
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
8 -4.3775 -1.1724 -1.4428 -0.8873 -1.1653 -0.8764 -0.6127 -0.6604
  -0.6576 -0.4842 -0.4049 -0.4389 -0.3532 -0.1692 -0.0388 0.3845 0.3371 -0.4188 -0.2637 0.1001 0.0379 -0.0060
9 -5.0450 -1.0139 -1.4224 -0.9133 -1.0374 -0.8503 -0.6307 -0.6182
  -0.5843 -0.4809 -0.4407 -0.4332 -0.3334 -0.1889 -0.0288 0.3882 0.4090 -0.5057 -0.2918 0.1230 0.0429 -0.0055
10 -5.6832 -0.8263 -1.4375 -0.8933 -0.9075 -0.8668 -0.6042 -0.5279
  -0.5528 -0.5168 -0.4373 -0.3870 -0.3364 -0.2121 -0.0034 0.3766 0.4873 -0.6000 -0.3194 0.1455 0.0483 -0.0051
11 -6.3329 -0.6550 -1.4101 -0.9140 -0.7673 -0.8372 -0.6199 -0.4702
  -0.4789 -0.5129 -0.4744 -0.3869 -0.2987 -0.2109 -0.0274 0.4045 0.5706 -0.6988 -0.3458 0.1662 0.0542 -0.0050
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
8 -11.0737 -0.2007 1.6424 0.2882 -0.1472 -0.3151 -0.4685 -0.4019
  -0.3602 -0.3795 -0.3646 -0.3261 -0.2735 -0.1815 0.0031 0.4092 0.0844 0.2040 -0.0359 0.0321 0.0055 0.0007
9 -11.3964 -0.2183 1.5681 0.2973 -0.1512 -0.3209 -0.4622 -0.4049
  -0.3621 -0.3768 -0.3668 -0.3245 -0.2746 -0.1811 0.0022 0.4104 0.1333 0.2120 -0.0380 0.0396 0.0056 -0.0000
10 -11.4301 -0.2495 1.4245 0.2988 -0.1583 -0.3206 -0.4517 -0.4084
  -0.3663 -0.3711 -0.3665 -0.3282 -0.2705 -0.1842 0.0031 0.4110 0.1824 0.2181 -0.0396 0.0471 0.0060 -0.0010
11 -11.4738 -0.2910 1.2635 0.2915 -0.1714 -0.3199 -0.4388 -0.4047
  -0.3655 -0.3683 -0.3643 -0.3287 -0.2713 -0.1836 0.0008 0.4142 0.2311 0.2223 -0.0407 0.0545 0.0070 -0.0023
12 -11.5287 -0.3392 1.0800 0.2712 -0.1983 -0.3225 -0.4162 -0.3907
  -0.3636 -0.3658 -0.3567 -0.3229 -0.2726 -0.1869 0.0009 0.4173 0.2793 0.2247 -0.0413 0.0615 0.0083 -0.0037
13 -11.5986 -0.3855 0.8699 0.2485 -0.2000 -0.2930 -0.3904 -0.3956
  -0.3698 -0.3532 -0.3346 -0.3149 -0.2796 -0.1876 0.0061 0.4148 0.3273 0.2255 -0.0416 0.0680 0.0099 -0.0054
14 -11.6839 -0.4289 0.6276 0.2128 -0.2095 -0.2695 -0.3465 -0.3572
  -0.3404 -0.3327 -0.3151 -0.2856 -0.2473 -0.1714 0.0020 0.4065 0.3754 0.2251 -0.0422 0.0737 0.0115 -0.0072
15 -11.7904 -0.4362 0.3477 0.1721 -0.1893 -0.2115 -0.2740 -0.3054
  -0.2965 -0.2867 -0.2772 -0.2553 -0.2132 -0.1307 0.0376 0.4241 0.4239 0.2241 -0.0434 0.0785 0.0130 -0.0091
16 -11.9455 -0.3799 0.0299 0.0963 -0.1888 -0.1743 -0.1977 -0.2180
  -0.2178 -0.2169 -0.2118 -0.1953 -0.1639 -0.0944 0.0608 0.4343 0.4728 0.2226 -0.0449 0.0825 0.0146 -0.0111
17 -12.1250 -0.0439 -0.2293 -0.0736 -0.2209 -0.1817 -0.1640 -0.1729
  -0.1751 -0.1768 -0.1772 -0.1649 -0.1339 -0.0672 0.0793 0.4418 0.5214 0.2200 -0.0457 0.0860 0.0166 -0.0129
18 -12.2334 0.2932 -0.1249 -0.1186 -0.1842 -0.2204 -0.2190 -0.2175
  -0.2140 -0.2066 -0.2002 -0.1852 -0.1545 -0.0870 0.0641 0.4339 0.5712 0.2191 -0.0501 0.0883 0.0171 -0.0151
19 -12.9220 0.3080 -0.0927 -0.0789 -0.1330 -0.1657 -0.1632 -0.1608
  -0.1593 -0.1540 -0.1473 -0.1359 -0.1122 -0.0511 0.0921 0.4485 0.6209 0.2171 -0.0532 0.0904 0.0182 -0.0170
20 -13.5966 0.3235 -0.0676 -0.0476 -0.0836 -0.1110 -0.1121 -0.1103
  -0.1066 -0.1004 -0.0972 -0.0899 -0.0688 -0.0145 0.1156 0.4582 0.6715 0.2155 -0.0573 0.0920 0.0191 -0.0188
22 -14.4008 0.1123 -0.0550 -0.0003 -0.0270 -0.0206 -0.0203 -0.0197
  -0.0197 -0.0196 -0.0176 -0.0115 0.0043 0.0464 0.1598 0.4799 0.0918 0.3000 0.0140 0.1859 0.1132 -0.0202
24 -15.7157 0.1478 0.0130 0.0748 0.0594 0.0634 0.0636 0.0638
  0.0640 0.0644 0.0658 0.0700 0.0815 0.1147 0.2110 0.5055 0.0460 0.3000 0.0407 0.2009 0.1307 -0.0235
""",
}


@functools.cache
def parameter_table(asked: Asked) -> FloatArray:
    """(sizes, 1 + numbers)."""
    return np.array(_TABLES[asked].split(), dtype=np.float64).reshape(-1, 1 + 2 * BUFFERS + SHAPES)


def interpolate_parameters(n: int, asked: Asked) -> BufferParameters:
    """Parameters for n >= 2 cells; beyond the table those of its end, stretched to n."""
    sizes, *columns = parameter_table(asked).T
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
