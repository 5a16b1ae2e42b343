"""Strategies over time with a short memory: buffered linear Toeplitz matrices with scaled rows and columns. [DMPST24]

C = diag(rows) T diag(columns), T of generating function prod (1 - b_i z) / (1 - a_i z), 1 > a_1 > b_1 > a_2 > ... > 0,
so that T and its inverse are sums of d exponentials and all coefficients below the diagonal of T are positive.

Poles, zeros and rows that err least are found on blocks of periods: the work does not grow with their number. Where a
person is in one period, columns are such that all are of one length. In several, all periods are alike (no row and no
column is scaled), and what is small is the error times the length of the worst pattern's response.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray, single_thread
from sfumato.operators.structured import causal_convolution
from sfumato.privacy.stream_price import IntegerFilter, WindowFilter
from sfumato.strategies.buffered_toeplitz import (
    BUFFERS,
    SHAPES,
    Asked,
    BufferParameters,
    interpolate_parameters,
    row_scale,
)
from sfumato.strategies.periods import Periods, TimeQuestion
from sfumato.strategies.time_errors import Curves, EveryPeriod, PeriodBlocks, column_lengths
from sfumato.strategies.toeplitz import all_range_bound, inverse_series, partial_fraction_residues, prefix_bound

_PER_OCTAVE = 8  # blocks: errors are read to a percent, all of them alike; 12 find parameters that err 1e-4 less
_FEW = 64  # periods below which each is a block by itself, as many blocks an octave make them
_PERSON_BLOCKS = 16  # blocks an octave of one person's periods
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
_WIDEST, _WIDEST_RANGES, _LONG_STREAM = 1.0, 0.3, 2**11
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
        turns = PeriodBlocks.growing(self.participations, _PERSON_BLOCKS)
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
    narrow = goal.periods > _LONG_STREAM and any(asked.ranges for asked, _ in goal.asked)
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


_BUFFERS, _MANY = 6, 2**14
"""Up to so many periods six: eight err less by 1e-4 there, and are found in twice the time."""
_STEPS = 80  # of a search: 40 more gain less than 1e-4
_LEAST_LISTED = 2**8  # periods; for fewer, where the table's parameters are stretched far, they are found in a moment
_SAME: dict[str, Asked] = {"worst totals": "largest", "mean totals": "prefixes", "mean ranges": "ranges"}
"""What is asked of a stream, in terms of an ordered attribute: periods are cells, and people are in one of them."""


@dataclass(frozen=True, eq=False)
class TimeShape:
    """1 - a_i and 1 - b_i (d,), which alternate and rise, and positive scales of rows (periods,).

    Columns are such that all are of one length; with `alike`, as rows, none is scaled.
    """

    poles: FloatArray
    zeros: FloatArray
    rows: FloatArray
    alike: bool = False


@functools.lru_cache(maxsize=2)
def shape_for(given: Periods) -> TimeShape:
    """A strategy that errs little in what is asked.

    Of one participation rows have scales too, and columns are scaled to one length, which lowers errors at the same
    price; of several all periods are alike, for which the price is known.
    """
    n = given.count
    found = _find_parameters(given)
    poles, zeros = found.decays
    if given.per_person > 1:
        return TimeShape(poles, zeros, np.ones(n), alike=True)
    return TimeShape(poles, zeros, row_scale(n, found.shape))


def _find_parameters(given: Periods) -> BufferParameters:
    """From a table, or found now."""
    n = given.count
    if given.anytime:
        return anytime_parameters()
    same = _SAME.get(f"{given.objective} {given.asked}")
    if given.per_person == 1 and same is not None and n >= _LEAST_LISTED:
        return interpolate_parameters(n, same)
    # half the binary digits of the horizon tell its lags apart to 1e-3 of the optimum
    buffers = max(1, min(BUFFERS if n > _MANY else _BUFFERS, math.ceil(math.log2(max(n, 2)) / 2) + 1))
    worst, alike = given.objective == "worst", given.per_person > 1
    goal = Goal(n, given.questions, worst, given.per_person, given.apart, alike)
    longest = max(min(asked.last or n, 1 / (1 - asked.rate) if asked.rate < 1 else n) for asked, _ in given.questions)
    return fit_time_parameters(goal, initial_time_parameters(max(1, min(n, round(longest))), buffers), _STEPS)


DENSE = 384  # periods up to which questions have a bound of decompositions: a dozen, half a second
_STEPS_BOUNDS = 12  # the first is the bound of singular values, the last within 1e-4 of the best
_OPTIMAL = 25  # after as many the error of 1,024 periods is within 1e-4 of the bound
_TURNS, _NEAR = 100, 1e-14  # of an iteration, of which some three are enough but for the lowest roots; relative
_CARE = 1e-11  # relative, for the rounding of sums and decompositions


def mean_bound(asked: Sequence[tuple[TimeQuestion, float]], periods: int) -> float | None:
    """Of the root mean squared error of all questions, weighted; None where none is known.

    For (Q'Q) = G it is tr (L G L)^(1/2), L diagonal with sum of squares 1: what any strategy errs with columns weighted
    so. With all alike, the sum of the singular values of Q. [LHR10, HUU23]
    """
    if periods <= DENSE:
        return dense_bound(asked, periods)
    # those bound the root of the sum over all questions
    if [question for question, _ in asked] == [TimeQuestion()]:
        return prefix_bound(periods) / math.sqrt(periods) * (1 - _CARE)
    if [question for question, _ in asked] == [TimeQuestion(ranges=True)]:
        return all_range_bound(periods) / math.sqrt(periods * (periods + 1) / 2) * (1 - _CARE)
    if len(asked) == 1 and asked[0][0].last is None and asked[0][0].rate < 1 and not asked[0][0].ranges:
        return _decayed_bound(periods, asked[0][0].rate)
    return None


def _decayed_bound(periods: int, rate: float) -> float | None:
    """The mean singular value of sums that decay: sigma^-2 are the eigenvalues 1 + rate^2 - 2 rate cos f of a matrix
    with three diagonals and a 1 in its corner, whose f are the roots of sin (n + 1) f = rate sin n f."""
    turns = np.pi * np.arange(1, periods + 1)
    found = turns / (periods + 1)
    left = np.arange(periods)
    for _ in range(_TURNS):
        here = found[left]
        better = (turns[left] - np.arctan2(rate * np.sin(here), 1 - rate * np.cos(here))) / (periods + 1)
        found[left] = better
        left = left[abs(better - here) > _NEAR * here]
        if not left.size:
            squares = (1 - rate) ** 2 + 4 * rate * np.sin(found / 2) ** 2
            return float((1 / np.sqrt(squares)).mean()) * (1 - _CARE)
    return None


def dense_bound(asked: Sequence[tuple[TimeQuestion, float]], periods: int, steps: int = _STEPS_BOUNDS) -> float:
    """The same from (periods, periods) matrices; the best of some L, each a better one than before."""
    return max(value for value, _ in _descend_dual_shares(asked, periods, steps)) * (1 - _CARE)


def optimal_gram(asked: Sequence[tuple[TimeQuestion, float]], periods: int) -> FloatArray:
    """(periods, periods) C'C of a strategy that errs least in the mean, to 1e-4 or less, its diagonal all 1."""
    gram = [found for _, found in _descend_dual_shares(asked, periods, _OPTIMAL)][-1]
    lengths = np.sqrt(np.diagonal(gram))
    return gram / lengths[:, None] / lengths


def _descend_dual_shares(
    asked: Sequence[tuple[TimeQuestion, float]], periods: int, steps: int
) -> Iterator[tuple[float, FloatArray]]:
    """Bounds, and the strategies that they are the errors of where columns may weigh differently."""
    gram = sum((weight * question.gram(periods) for question, weight in asked), np.zeros((periods, periods)))
    shares: FloatArray = np.full(periods, 1 / periods)
    with single_thread():
        for _ in range(steps):
            scale = np.sqrt(shares)
            values, vectors = np.linalg.eigh(scale[:, None] * gram * scale)
            roots = np.sqrt(np.maximum(values, 0.0))
            yield float(roots.sum()), (vectors * roots) @ vectors.T / scale[:, None] / scale
            shares = (vectors**2 @ roots) / roots.sum()


MOST_DENSE = 1_024  # periods of strategies without structure: as many counts a cell, and 8 MB of entries
_LISTED = 2**17  # entries up to which every column has its own: 1 MB of a plan
_LARGEST = 2**24  # an entry: what is weighed by 2^-10 keeps 14 bits
_STEPS_BANDED = 200  # of a search, which ends before by its tolerance
_GROWING = ((160, (20, 60), 300), (512, (60,), 40), (1_024, (60,), 10))
"""Streams on which columns are found one by one, each from those of a shorter one: their periods, the power means that
stand for the largest error, and how often errors are looked at, for a CPU-second in all."""
_COLUMNS = 64  # of a gradient that are looked at together


def band_width_for(given: Periods) -> int | None:
    """The band that suits what is asked; None where no band of few entries does."""
    if any(asked.ranges for asked, _ in given.questions):
        return None
    if given.per_person > 1:
        return min(given.apart, given.count) if given.apart > 1 else None
    longest = [asked.last for asked, _ in given.questions if asked.last is not None]
    if len(longest) < len(given.questions):
        return None
    return min(2 * max(longest) + 1, given.count)


@functools.lru_cache(maxsize=2)
def banded_filter(given: Periods, width: int) -> WindowFilter:
    """A band of so many entries. All columns are of one length where they are few, else all of them are alike."""
    n = given.count
    taps = toeplitz_taps(given, width)
    if n * width > _LISTED:
        return WindowFilter(np.array([n]), np.rint(taps / abs(taps).max() * _LARGEST)[None].astype(np.int64))
    entries = np.repeat(taps[None], n, axis=0)
    if [asked for asked, _ in given.questions] == [TimeQuestion()]:
        # what columns have beside those that are all alike, in shares of the stream and the band: from short streams on
        beside, done = np.ones((1, 1)), 0
        for most, peaks, steps in _GROWING:
            short = min(n, most)
            if short > done:
                own = Periods(short, ask=given.ask, objective=given.objective)
                narrow = max(1, round(width * short / n))
                model = toeplitz_taps(own, narrow)
                beside = _interpolate_table(beside, short, narrow)
                for peak in peaks if given.objective == "worst" else (1,):
                    beside = _band_entries(model * beside, peak, steps) / model
            done = short
        entries *= _interpolate_table(beside, n, width)
    heard = np.add.outer(np.arange(n), np.arange(width)) < n
    entries = entries * heard
    return integer_filter(entries / np.sqrt((entries**2).sum(axis=1))[:, None])


def _interpolate_table(table: FloatArray, n: int, width: int) -> FloatArray:
    """(n, width) of a smooth table, between its values."""
    for axis, size in enumerate((n, width)):
        places = (np.arange(size) + 0.5) * table.shape[axis] / size - 0.5
        low = np.clip(np.floor(places).astype(np.intp), 0, max(table.shape[axis] - 2, 0))
        share = np.clip(places - low, 0.0, 1.0).reshape(-1, *(1,) * (1 - axis))
        high = np.minimum(low + 1, table.shape[axis] - 1)
        table = (1 - share) * np.take(table, low, axis) + share * np.take(table, high, axis)
    return table


def integer_filter(entries: FloatArray) -> WindowFilter:
    """Integers of columns (n, w) that begin on the diagonal."""
    scale = (_LARGEST - 1) / abs(entries).max()
    return WindowFilter(np.ones(len(entries), dtype=np.int64), np.rint(entries * scale).astype(np.int64))


def toeplitz_taps(given: Periods, width: int) -> FloatArray:
    """Coefficients of a Toeplitz band of least error, as a gradient finds them: of series, by fast convolutions."""
    from scipy.optimize import minimize  # noqa: PLC0415  (slow to import)

    n = given.count
    # errors of a Toeplitz strategy grow: the worst period is the last
    left = np.ones(n) if given.objective == "worst" else (n - np.arange(n)) / n
    asked = [(question.weights(n)[::-1], weight) for question, weight in given.questions]

    def value(taps: FloatArray) -> tuple[float, FloatArray]:
        inverse = inverse_series(np.append(taps, np.zeros(n - width)))
        error, slope = 0.0, np.zeros(width)
        for lags, weight in asked:
            answer = causal_convolution(lags, inverse)
            error += weight * float(left @ answer**2)
            back = causal_convolution((left * answer)[::-1], causal_convolution(answer, inverse))
            slope -= 2 * weight * back[n - width :][::-1]
        price = float(taps @ taps)
        return math.log(error * price) / 2, (slope / error + 2 * taps / price) / 2

    lags = np.arange(1, width)
    start = np.cumprod(np.concatenate([[1.0], (2 * lags - 1) / (2 * lags)]))  # the square root of sums
    found = minimize(
        value, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS_BANDED, "maxcor": 30, "ftol": 1e-12}
    )
    return np.asarray(found.x)


def _band_entries(start: FloatArray, power: int, steps: int) -> FloatArray:
    """(n, w) columns in a band whose totals err least for columns of length 1: a power mean of all periods' variances.

    From the inverse, in which totals are sums of rows; its gradient is wanted in the band alone.
    """
    from scipy.linalg.lapack import dlauum, dtrtri  # noqa: PLC0415  (as scipy.optimize)
    from scipy.optimize import minimize  # noqa: PLC0415  (slow to import)

    n, width = start.shape
    columns, lags = np.indices((n, width))
    inside = columns + lags < n
    at = (columns + lags)[inside], columns[inside]

    def value(vector: FloatArray) -> tuple[float, FloatArray]:
        matrix = np.zeros((n, n), order="F")
        matrix[at] = vector
        lengths = np.sqrt((matrix**2).sum(axis=0))
        matrix /= lengths
        inverse = np.tril(dtrtri(matrix, lower=1)[0])
        answers = np.cumsum(inverse, axis=0)
        variances = (answers**2).sum(axis=1)
        error = float(np.log((variances**power).sum())) / power
        share = variances ** (power - 1) / (variances**power).sum()
        gram = np.tril(dlauum(np.asfortranarray(np.sqrt(share)[:, None] * answers), lower=1)[0])
        gram += np.tril(gram, -1).T
        slope = np.empty((n, n), order="F")
        for u in range(0, n, _COLUMNS):
            some, rows = slice(u, u + _COLUMNS), slice(u, u + _COLUMNS + width)
            slope[rows, some] = -gram[rows, : some.stop] @ inverse[some, : some.stop].T
        found, unit = slope[at], matrix[at]
        along = np.bincount(at[1], weights=found * unit)
        return error / 2, (found - unit * along[at[1]]) / lengths[at[1]]

    found = minimize(value, start[inside], jac=True, method="L-BFGS-B", options={"maxfun": steps, "ftol": 1e-9})
    out = start.copy()
    out[inside] = found.x
    return out


def binary_tree_filter(given: Periods) -> WindowFilter:
    """The binary tree as it is taught: in period t, from 1, the sum of the last 2^j, of the largest such power in t.

    Of all nodes of a tree these are the ones that sums from the beginning are added up of, at most one for each binary
    digit of t; a record is in at most one for each level. Raises PlanError.
    """
    n = _check_few_periods(given, "tree")
    ends = np.arange(1, n + 1)
    begins = ends - (ends & -ends)
    periods, lags = np.indices((n, n))
    later = np.minimum(periods + lags, n - 1)
    heard = (begins[later] <= periods) & (periods + lags < n)
    return integer_filter(heard.astype(np.float64))


def dense_filter(given: Periods) -> WindowFilter:
    """The best of all strategies, in its lower-triangular form: any Gram matrix has one. Raises PlanError."""
    n = _check_few_periods(given, "dense")
    if given.objective != "mean":
        raise PlanError("strategy='dense' is the best in the mean: sf.periods(..., objective='mean')")
    lower = np.linalg.cholesky(optimal_gram(given.questions, n)[::-1, ::-1])[::-1, ::-1].T
    entries = np.zeros((n, n))
    for u in range(n):
        entries[u, : n - u] = lower[u:, u]
    return integer_filter(entries)


def _check_few_periods(given: Periods, name: str) -> int:
    if given.count > MOST_DENSE or given.per_person > 1:
        raise PlanError(
            f"strategy={name!r} keeps a count for every period: it is for up to {MOST_DENSE:,} periods, and people in "
            "one of them"
        )
    return given.count


IntArray = NDArray[np.int64]

_DECAY_BITS = 12  # what a filter allows: poles to 2^-12 of themselves, to which errors are insensitive
_ROW_BITS, _MORE_ROW_BITS, _STEEP = 11, 14, 64
"""Of the largest row: errors feel 2^-11 of a row by its square. What a filter allows, where some rows are 64 times
smaller than others, as where a stream may end at any time."""
_OCTAVE = 512
"""Blocks an octave, from both ends, on which rows and columns are constant: the longest column is 2e-4 above the
mean, which errors grow by; with half as many blocks twice that."""
_ONE_BY_ONE = 2**14  # periods up to which lengths of columns are found one by one; on their blocks they differ by 1e-6
_LEAST_ROUNDING = 3e-5  # of the noise, twice: for the last floor, and for those of the states


def quantise_time_shape(shape: TimeShape, ratio: float = 1.0) -> IntegerFilter:
    """The integers of a strategy over time.

    `ratio`: how much more than a response of length 1 the rounding of one cell counts in the price; the filter is so
    fine that it counts about 6e-5 of it. Raises PlanError where that needs too many bits.
    """
    n = len(shape.rows)
    e, g, zeros = _distinct_rational_poles(shape.poles, shape.zeros)
    poles = e / np.exp2(g)
    weights = partial_fraction_residues(poles, zeros)
    value_bits = math.ceil(math.log2(ratio * math.sqrt(n) / _LEAST_ROUNDING))
    state_bits = math.ceil(math.log2(ratio * n**1.5 / _LEAST_ROUNDING))
    runs = np.array([n]) if shape.alike else _period_blocks(n)
    begins = np.concatenate([[0], np.cumsum(runs)[:-1]])
    rows = np.add.reduceat(shape.rows, begins) / runs
    row_bits = _ROW_BITS if rows.max() < _STEEP * rows.min() else _MORE_ROW_BITS
    r = np.maximum(1, np.rint(rows / rows.max() * (2**row_bits - 1))).astype(np.int64)
    columns = np.ones(len(runs))
    if not shape.alike:
        # of the rows and poles as they are rounded
        scaled = r * (rows.max() / (2**row_bits - 1))
        if n <= _ONE_BY_ONE:
            lengths = column_lengths(poles, zeros, np.repeat(scaled, runs), EveryPeriod(n))
            columns = np.sqrt(np.add.reduceat(1 / lengths**2, begins) / runs)
        else:
            columns = 1 / column_lengths(poles, zeros, scaled, PeriodBlocks(np.append(begins, n).astype(np.float64)))
    fine = columns * 2.0**state_bits
    if fine.max() * max(1.0, float(weights.max())) >= 2.0**62 or fine.min() < 1:
        raise PlanError("this strategy over time needs finer integers than 62 bits; plan for fewer periods or tables")
    carried = np.floor(fine[:, None] * weights).astype(np.int64)
    direct = np.floor(fine).astype(np.int64)
    return IntegerFilter(np.column_stack([e, g]), state_bits + row_bits - value_bits, runs, r, direct, carried)


def _distinct_rational_poles(poles: FloatArray, zeros: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Poles as integers e / 2^g, and the zeros between them.

    Of two poles that become one the zero between them cancels one; so does a zero that a rounded pole reaches.
    """
    kept: list[tuple[int, int, float]] = []
    for e, g, zero in zip(*_rational_decays(poles), zeros, strict=True):
        pole = float(e) / 2.0 ** int(g)
        if kept and pole <= kept[-1][2]:
            kept[-1] = (*kept[-1][:2], float(zero))
        elif zero > pole:
            kept.append((int(e), int(g), float(zero)))
    # none: a pole that its own zero cancels
    e, g, zero = zip(*(kept or [(1, 1, 0.5)]), strict=True)
    return np.array(e), np.array(g), np.array(zero)


def _period_blocks(n: int) -> IntArray:
    """Lengths of blocks that grow from both ends."""
    half: list[int] = []
    done = 0
    while done < (n + 1) // 2:
        half.append(min(max(1, done // _OCTAVE), (n + 1) // 2 - done))
        done += half[-1]
    other = half[::-1]
    other[0] -= 2 * done - n
    return np.array([x for x in (*half, *other) if x > 0], dtype=np.int64)


def _rational_decays(poles: FloatArray) -> tuple[IntArray, IntArray]:
    """e from 2^11 and g with e / 2^g near each pole."""
    g = _DECAY_BITS - 1 - np.floor(np.log2(poles)).astype(np.int64)
    e = np.minimum(np.rint(poles * np.exp2(g)), 2**_DECAY_BITS - 1).astype(np.int64)
    return e, g
