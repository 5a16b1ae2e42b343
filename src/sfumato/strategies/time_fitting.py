"""Poles, zeros and rows that err least over time, found on blocks of periods: the work does not grow with their number.

Where a person is in one period, C = diag(r) T diag(c) with c such that all columns are of one length. In several, all
periods are alike (r = c = 1), and what is small is the error times the length of the worst pattern's response.
"""

from __future__ import annotations

import functools
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


# 2^20 periods, of which every one errs at most 1.263 times what it would if it were known to be the last
_UNENDING = """
-12.6156 -0.3880 0.2053 0.0600 -0.1406 -0.0477 -0.1540 -0.1151
  -0.1486 -0.2176 -0.1892 -0.2369 -0.1839 -0.3748 0.0929 0.6664
  0.6220 -0.7785 -0.5020 0.1344 0.1952 -0.0513
"""


def anytime_parameters() -> BufferParameters:
    """Of totals of up to 2^20 periods that may end at any time."""
    return BufferParameters.of(np.array(_UNENDING.split(), dtype=np.float64))
