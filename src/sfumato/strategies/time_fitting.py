"""Poles, zeros and rows that err least over time, found on blocks of periods: the work does not grow with their number.

Where a person is in one period, C = diag(r) T diag(c) with c such that all columns are of one length. In several, all
periods are alike (r = c = 1), and what is small is the error times the length of the worst pattern's response.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sfumato.operators.base import FloatArray
from sfumato.strategies.buffered_toeplitz import SHAPES, BufferParameters, row_scale
from sfumato.strategies.periods import TimeQuestion
from sfumato.strategies.time_errors import Curves, PeriodBlocks
from sfumato.strategies.toeplitz import partial_fraction_residues

_PER_OCTAVE = 8  # blocks: errors are read to a percent, all of them alike; 12 find parameters that err 1e-4 less
_FEW = 64  # periods below which each is a block by itself, as many blocks an octave make them
_TURNS = 16  # blocks an octave of one person's periods
_PEAKS = (40.0, 150.0)
"""Power means that stand for the largest, one after the other: the last is within 1 % of it where it is spread over
many periods, but a search that begins with it stalls."""
_MEAN = 0.5
"""Of the mean, beside the largest: of strategies alike in their worst period the one that is better elsewhere. A tenth
where all periods are alike: there the last is the worst by far, and the mean would count for too much."""
_EVEN = 1e-6  # of squared differences of gaps, so that near numbers of periods have near parameters
_STEP = 1e-6  # of differences: their errors are 1e-7 relative, below what is asked of the optimum
_NARROW = -4.0  # logarithm of the least gap of logits: poles are rounded to 2^-12 of themselves, and must stay apart
_HORIZONS = 2**8  # a pole as near to 1 as this share of 1 / periods decays by less than 1 % in all
_WIDEST, _WIDEST_RANGES, _MANY = 1.0, 0.3, 2**11
"""Of a shape's coefficient: beyond, blocks no longer tell what they average over, and a search finds gains that are
none: of ranges of many periods sooner than of others."""


@dataclass(frozen=True, eq=False)
class Goal:
    """What is to be small: the weighted mean variance of `asked` over `periods`, or with `worst` that of the worst
    period; a person is in `participations` periods, each `apart` after the one before. Where all periods are `alike`
    neither rows nor columns have scales. `against` (blocks,): variances beside which those of each count."""

    periods: int
    asked: Sequence[tuple[TimeQuestion, float]]
    worst: bool = True
    participations: int = 1
    apart: int = 1
    alike: bool = False
    against: FloatArray | None = None
    peak: float = _PEAKS[-1]

    @functools.cached_property
    def blocks(self) -> PeriodBlocks:
        """On which errors are read."""
        return PeriodBlocks.growing(self.periods, _PER_OCTAVE if self.periods >= _FEW else _FEW)

    def curves(self, tried: BufferParameters) -> Curves:
        """On blocks, of several strategies (their parameters in rows); columns of length 1."""
        (poles, zeros), blocks = tried.decays, self.blocks
        outputs, returns = partial_fraction_residues(poles, zeros), -partial_fraction_residues(zeros, poles)
        d = poles.shape[-1]
        squares = np.ones((len(blocks.lengths), len(poles)))
        columns = squares.copy()
        if not self.alike:
            squares = row_scale(self.periods, tried.shape, blocks.middles) ** 2
            columns = squares.copy()
            for i in range(d):
                for j in range(i + 1):
                    both = blocks.after((1 - poles[:, i]) * (1 - poles[:, j]), squares)
                    columns += (1 if i == j else 2) * outputs[:, i] * outputs[:, j] * both
        rates, gains = ([a[:, i] for i in range(d)] for a in (1 - zeros, returns))
        return Curves(blocks, rates, gains, np.sqrt(columns), 1 / squares)

    def value(self, tried: BufferParameters) -> FloatArray:
        """(strategies,) the logarithm of the error."""
        curves, lengths = self.curves(tried), self.blocks.lengths[:, None]
        n, every = self.periods, sum(weight for _, weight in self.asked)
        found = [(asked, weight / every * curves.of(asked)) for asked, weight in self.asked]
        ends = 2 * (self.blocks.middles[:, None] + 1) / (n + 1)
        mean = sum((lengths * v * (ends if asked.ranges else 1)).sum(axis=0) / n for asked, v in found)
        out = np.log(mean)
        if self.against is not None:
            found = [(asked, v / self.against[:, None]) for asked, v in found]
            lengths = np.full_like(lengths, n / len(lengths))
            out = np.log(sum((lengths * v).sum(axis=0) / n for _, v in found))
        if self.worst:
            total = sum(v for _, v in found)
            share, top = (lengths / n + 1 / len(lengths)) / 2, np.max(total, axis=0)
            largest = np.log(top) + np.log((share * (total / top) ** self.peak).sum(axis=0)) / self.peak
            share = _MEAN / 10 if self.alike else _MEAN
            out = (largest + share * out) / (1 + share)
        if self.alike:
            out = out + np.log(self.price(tried))
        return out / 2

    def price(self, tried: BufferParameters) -> FloatArray:
        """(strategies,) the squared length of T's response to 1 in the periods 0, apart, 2 apart, ..."""
        poles, zeros = tried.decays
        outputs, logs = partial_fraction_residues(poles, zeros), np.log1p(-poles)
        turns = PeriodBlocks.growing(self.participations, _TURNS)
        place = turns.middles[:, None, None]
        # states with all periods of the person before one, and with that one
        before, after = (np.expm1(self.apart * j * logs) / np.expm1(self.apart * logs) for j in (place, place + 1))
        own = (1 + (outputs * np.exp((self.apart - 1) * logs) * before).sum(axis=-1)) ** 2
        left = self.periods - 1 - (self.participations - 1) * self.apart
        pairs = logs[:, :, None] + logs[:, None, :]
        between, rest = (np.expm1(m * pairs) / np.expm1(pairs) for m in (self.apart - 1, left))
        each = np.einsum("jpd,pde,jpe->jp", outputs * after, between, outputs * after)
        final = np.einsum("pd,pde,pe->p", outputs * after[-1], rest - between, outputs * after[-1])
        return np.asarray(turns.lengths @ (own + each) + final, dtype=np.float64)


def fit_time_parameters(goal: Goal, start: BufferParameters, steps: int) -> BufferParameters:
    """From some parameters on, in at most so many steps of some CPU-milliseconds."""
    for peak in _PEAKS if goal.worst else _PEAKS[:1]:
        start = _fit_at_peak(replace(goal, peak=peak), start, steps // 2 if goal.worst else steps)
    return start


def _fit_at_peak(goal: Goal, start: BufferParameters, steps: int) -> BufferParameters:
    from scipy.optimize import minimize  # noqa: PLC0415  (slow to import)

    begin = start.vector
    # periods that are alike have no rows
    size = len(begin) - (SHAPES if goal.alike else 0)
    around = np.zeros((size + 1, len(begin)))
    around[1:, :size] = _STEP * np.eye(size)

    def value(vector: FloatArray) -> tuple[float, FloatArray]:
        with np.errstate(all="ignore"):
            tried = BufferParameters.of(np.append(vector, begin[size:]) + around)
            found = goal.value(tried) + _EVEN * (np.diff(tried.gaps[..., 1:]) ** 2).sum(axis=-1)
        if not np.isfinite(found).all():
            return 1e3, np.zeros(size)
        return float(found[0]), (found[1:] - found[0]) / _STEP

    gaps = len(start.gaps)
    narrow = goal.periods > _MANY and any(asked.ranges for asked, _ in goal.asked)
    widest = _WIDEST_RANGES if narrow else _WIDEST
    done = minimize(
        value,
        begin[:size],
        jac=True,
        method="L-BFGS-B",
        bounds=[(-np.log(_HORIZONS * goal.periods), None)]
        + [(_NARROW, None)] * (gaps - 1)
        + [(-widest, widest)] * (size - gaps),
        options={"maxiter": steps, "maxcor": 30, "ftol": 1e-11},
    )
    return BufferParameters.of(np.append(done.x, begin[size:]))


def initial_time_parameters(periods: int, buffers: int) -> BufferParameters:
    """Where a search begins that knows nothing: decays of all lengths up to that of the stream."""
    gap = np.log((np.log(periods) + 2) / (2 * buffers))
    return BufferParameters(np.append(-np.log(periods), np.full(2 * buffers - 1, gap)), np.zeros(SHAPES))


BUFFERS = 8  # ten err less by 2e-4 at a million periods, and keep a quarter more
LISTED = range(8, 21)
"""Binary logarithms of the sizes of a table: to the most periods of a stream."""

# 2^20 periods, of which every one errs at most 1.263 times what it would if it were known to be the last
_UNENDING = """
-12.6156 -0.3880 0.2053 0.0600 -0.1406 -0.0477 -0.1540 -0.1151
  -0.1486 -0.2176 -0.1892 -0.2369 -0.1839 -0.3748 0.0929 0.6664
  0.6220 -0.7785 -0.5020 0.1344 0.1952 -0.0513
"""
_TABLES: dict[str, str] = {
    "worst totals": """
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
""",
    "mean totals": """
8 -11.0653 -0.3335 1.6868 0.1652 -0.2101 -0.3135 -0.4113 -0.3980
  -0.3763 -0.3579 -0.3440 -0.3156 -0.2547 -0.1592 0.0170 0.4041 0.1882 0.2260 -0.0844 0.0279 0.0034 0.0018
9 -11.1598 -0.3547 1.5663 0.1773 -0.2107 -0.3154 -0.4083 -0.4000
  -0.3769 -0.3559 -0.3447 -0.3155 -0.2546 -0.1595 0.0166 0.4049 0.2424 0.2319 -0.0908 0.0325 0.0039 0.0005
10 -11.1935 -0.3794 1.4188 0.1930 -0.1989 -0.3138 -0.4123 -0.4008
  -0.3718 -0.3562 -0.3463 -0.3134 -0.2560 -0.1588 0.0159 0.4055 0.2992 0.2369 -0.0982 0.0370 0.0042 -0.0012
11 -11.2388 -0.4194 1.2545 0.1979 -0.1973 -0.3149 -0.4121 -0.4005
  -0.3673 -0.3480 -0.3421 -0.3178 -0.2571 -0.1563 0.0120 0.4096 0.3577 0.2410 -0.1064 0.0416 0.0046 -0.0030
12 -11.2977 -0.4711 1.0686 0.1874 -0.2197 -0.3364 -0.4055 -0.3703
  -0.3421 -0.3400 -0.3412 -0.3132 -0.2559 -0.1623 0.0128 0.4134 0.4186 0.2446 -0.1160 0.0458 0.0050 -0.0048
13 -11.3688 -0.5117 0.8563 0.1814 -0.2102 -0.3216 -0.3931 -0.3658
  -0.3326 -0.3208 -0.3234 -0.3097 -0.2612 -0.1615 0.0173 0.4100 0.4825 0.2475 -0.1267 0.0497 0.0054 -0.0066
14 -11.4585 -0.5451 0.6126 0.1670 -0.1946 -0.2935 -0.3654 -0.3540
  -0.3233 -0.3002 -0.2931 -0.2857 -0.2564 -0.1677 0.0198 0.4206 0.5509 0.2505 -0.1399 0.0528 0.0055 -0.0084
15 -11.5730 -0.5461 0.3300 0.1414 -0.1650 -0.2384 -0.2999 -0.3093
  -0.3005 -0.2832 -0.2650 -0.2425 -0.2113 -0.1413 0.0224 0.4149 0.6257 0.2541 -0.1563 0.0551 0.0052 -0.0104
16 -11.7388 -0.4717 0.0099 0.0855 -0.1376 -0.1811 -0.2215 -0.2341
  -0.2411 -0.2433 -0.2414 -0.2241 -0.1854 -0.1057 0.0573 0.4336 0.6949 0.2555 -0.1687 0.0578 0.0059 -0.0119
17 -11.9845 -0.2214 -0.2816 -0.0487 -0.1392 -0.1536 -0.1802 -0.1918
  -0.1955 -0.1879 -0.1759 -0.1578 -0.1309 -0.0711 0.0740 0.4391 0.7648 0.2564 -0.1807 0.0603 0.0068 -0.0132
18 -12.0785 0.2873 -0.0867 -0.1630 -0.2189 -0.2279 -0.2289 -0.2267
  -0.2273 -0.2241 -0.2168 -0.1994 -0.1661 -0.0955 0.0607 0.4339 0.8635 0.2643 -0.2106 0.0602 0.0046 -0.0154
19 -12.7679 0.3062 -0.0517 -0.1171 -0.1629 -0.1707 -0.1723 -0.1703
  -0.1709 -0.1685 -0.1635 -0.1502 -0.1219 -0.0590 0.0856 0.4450 0.9603 0.2698 -0.2365 0.0606 0.0036 -0.0171
20 -13.4492 0.3278 -0.0136 -0.0716 -0.1110 -0.1187 -0.1228 -0.1239
  -0.1255 -0.1222 -0.1161 -0.1045 -0.0822 -0.0287 0.1052 0.4540 1.0000 0.2639 -0.2333 0.0637 0.0064 -0.0176
""",
    "mean ranges": """
8 -4.3775 -1.1724 -1.4428 -0.8873 -1.1653 -0.8764 -0.6127 -0.6604
  -0.6576 -0.4842 -0.4049 -0.4389 -0.3532 -0.1692 -0.0388 0.3845 0.3371 -0.4188 -0.2637 0.1001 0.0379 -0.0060
9 -5.0450 -1.0139 -1.4224 -0.9133 -1.0374 -0.8503 -0.6307 -0.6182
  -0.5843 -0.4809 -0.4407 -0.4332 -0.3334 -0.1889 -0.0288 0.3882 0.4090 -0.5057 -0.2918 0.1230 0.0429 -0.0055
10 -5.6832 -0.8263 -1.4375 -0.8933 -0.9075 -0.8668 -0.6042 -0.5279
  -0.5528 -0.5168 -0.4373 -0.3870 -0.3364 -0.2121 -0.0034 0.3766 0.4873 -0.6000 -0.3194 0.1455 0.0483 -0.0051
11 -6.3329 -0.6550 -1.4101 -0.9140 -0.7673 -0.8372 -0.6199 -0.4702
  -0.4789 -0.5129 -0.4744 -0.3869 -0.2987 -0.2109 -0.0274 0.4045 0.5706 -0.6988 -0.3458 0.1662 0.0542 -0.0050
12 -6.8891 -0.6074 -1.3254 -0.9632 -0.7058 -0.7329 -0.5644 -0.4566
  -0.4621 -0.4948 -0.4481 -0.3684 -0.3015 -0.2208 -0.0231 0.4131 0.3000 -0.3000 -0.2491 -0.0169 0.1073 -0.0173
13 -7.5667 -0.4907 -1.2266 -0.9968 -0.6252 -0.6485 -0.5621 -0.4481
  -0.4033 -0.4308 -0.4375 -0.3907 -0.2991 -0.1864 -0.0138 0.3847 0.3000 -0.3000 -0.2086 -0.0473 0.1278 -0.0162
14 -8.2504 -0.3883 -1.0961 -1.0139 -0.5482 -0.5150 -0.5148 -0.4648
  -0.3948 -0.3751 -0.3739 -0.3663 -0.3131 -0.1935 0.0177 0.4256 0.3000 -0.3000 -0.1660 -0.0790 0.1463 -0.0149
15 -8.9397 -0.2997 -0.9222 -1.0027 -0.5120 -0.3734 -0.3651 -0.3971
  -0.4080 -0.4055 -0.3687 -0.3112 -0.2396 -0.1414 0.0347 0.4232 0.3000 -0.3000 -0.1234 -0.1114 0.1626 -0.0136
16 -9.6093 -0.1017 -0.2638 -0.4043 -0.4821 -0.5125 -0.4661 -0.4150
  -0.3629 -0.3308 -0.3073 -0.2836 -0.2448 -0.1642 0.0111 0.4105 0.3000 -0.3000 -0.0833 -0.1437 0.1766 -0.0128
17 -10.3072 -0.0810 -0.2226 -0.3226 -0.3627 -0.3880 -0.3713 -0.3522
  -0.3216 -0.2972 -0.2770 -0.2567 -0.2234 -0.1503 0.0177 0.4125 0.3000 -0.3000 -0.0456 -0.1759 0.1891 -0.0121
18 -11.0008 -0.0552 -0.1787 -0.2513 -0.2684 -0.2848 -0.2792 -0.2841
  -0.2831 -0.2803 -0.2701 -0.2489 -0.2086 -0.1289 0.0391 0.4245 0.3000 -0.3000 -0.0111 -0.2081 0.2001 -0.0119
19 -11.6917 -0.0284 -0.1391 -0.2006 -0.2142 -0.2312 -0.2261 -0.2271
  -0.2227 -0.2183 -0.2107 -0.1928 -0.1562 -0.0856 0.0667 0.4356 0.3000 -0.3000 0.0199 -0.2404 0.2096 -0.0123
20 -12.3795 -0.0011 -0.0997 -0.1516 -0.1608 -0.1740 -0.1670 -0.1657
  -0.1627 -0.1609 -0.1562 -0.1458 -0.1214 -0.0610 0.0843 0.4447 0.3000 -0.3000 0.0484 -0.2719 0.2183 -0.0129
""",
}


@functools.cache
def _listed_parameter_table(name: str) -> FloatArray:
    """(sizes, 1 + numbers)."""
    return np.array(_TABLES[name].split(), dtype=np.float64).reshape(-1, 1 + 2 * BUFFERS + SHAPES)


def listed_parameters(periods: int, name: str) -> BufferParameters | None:
    """Of "worst totals", "mean totals" or "mean ranges"; None for others, and for fewer periods."""
    if name not in _TABLES or periods < 2 ** LISTED[0]:
        return None
    sizes, *columns = _listed_parameter_table(name).T
    return BufferParameters.of(np.array([np.interp(math.log2(periods), sizes, column) for column in columns]))


def anytime_parameters() -> BufferParameters:
    """Of totals of up to 2^20 periods that may end at any time."""
    return BufferParameters.of(np.array(_UNENDING.split(), dtype=np.float64))
