"""What answers over time err, from the integers of a filter: variances for noise of variance 1 in each value.

The error of a question over time at every period, by filters over pairs of poles: exactly, or on blocks of periods.

C = diag(r) T diag(c) has the inverse diag(1 / c) T^-1 diag(1 / r), T^-1 = 1 - sum u_i z / (1 - b_i z). What a sum that
decays by `rate` a period makes of noise z is sum_k g_t(k) z_k / r_k, g_t = rate g_(t-1) + (row t of T^-1) / c_t; so
with s = 1 / r^2

    P_ij(t) = sum_(k<t) (b_i b_j)^(t-k-1) s_k,     Q = s + sum_ij u_i u_j P_ij,     N_i = s - b_i sum_j u_j P_ij,
    M_i(t) = rate b_i M_i(t-1) + N_i(t-1) / c_(t-1),    V(t) = rate^2 V(t-1) + Q / c^2 - 2 rate sum_i u_i M_i / c:

three filters one after the other, of which sums of the last periods and all ranges follow too.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sfumato.operators.base import FloatArray
from sfumato.operators.structured import causal_convolution
from sfumato.privacy.stream_price import IntegerFilter, WindowFilter
from sfumato.strategies.periods import TimeQuestion
from sfumato.strategies.toeplitz import inverse_series, partial_fraction_residues

_LOOPED = 2**12  # periods that are summed one by one, a millisecond: importing what is faster takes 300
_SINGLE = 8  # periods at each end that are blocks by themselves, where all changes fastest


class TimeScale(Protocol):
    """Periods one by one, or in blocks on which what is filtered is constant: time is the first axis."""

    @property
    def lengths(self) -> FloatArray:
        """Of the blocks."""
        ...

    def upto(self, rate: FloatArray, given: FloatArray) -> FloatArray:
        """y_t = sum_(k <= t) rate^(t - k) x_k, its mean on every block."""
        ...

    def before(self, rate: FloatArray, given: FloatArray) -> FloatArray:
        """y_(t-1)."""
        ...

    def after(self, rate: FloatArray, given: FloatArray) -> FloatArray:
        """sum_(k > t) rate^(k - t - 1) x_k."""
        ...

    def earlier(self, given: FloatArray, by: int) -> FloatArray:
        """x_(t - by), and 0 before the first."""
        ...

    def summed(self, given: FloatArray, last: int) -> FloatArray:
        """The sum of x over the last so many periods, or all so far."""
        ...


def _decayed(given: FloatArray, rate: float) -> FloatArray:
    """y_t = given_t + rate y_(t - 1), along the first axis."""
    if rate in (0.0, 1.0):
        return np.cumsum(given, axis=0) if rate else given.copy()
    if len(given) > _LOOPED:
        from scipy.signal import lfilter  # noqa: PLC0415  (slow to import)

        return np.asarray(lfilter([1.0], [1.0, -rate], given, axis=0))
    out = given.copy()
    for t in range(1, len(out)):
        out[t] += rate * out[t - 1]
    return out


@dataclass(frozen=True, eq=False)
class EveryPeriod(TimeScale):
    """n periods one by one."""

    n: int

    @property
    def lengths(self) -> FloatArray:
        return np.ones(self.n)

    def upto(self, rate: FloatArray, given: FloatArray) -> FloatArray:
        return _decayed(given, float(rate))

    def before(self, rate: FloatArray, given: FloatArray) -> FloatArray:
        return np.concatenate([[0.0], self.upto(rate, given)[:-1]])

    def after(self, rate: FloatArray, given: FloatArray) -> FloatArray:
        return self.before(rate, given[::-1])[::-1]

    def earlier(self, given: FloatArray, by: int) -> FloatArray:
        return np.concatenate([np.zeros(min(by, self.n)), given[: self.n - by if by < self.n else 0]])

    def summed(self, given: FloatArray, last: int) -> FloatArray:
        every = np.cumsum(given)
        return every - self.earlier(every, last)


@dataclass(frozen=True, eq=False)
class PeriodBlocks(TimeScale):
    """Periods in blocks, (blocks + 1,) edges; arrays (blocks, strategies), rates (strategies,)."""

    edges: FloatArray

    @classmethod
    def growing(cls, n: int, per_octave: int) -> PeriodBlocks:
        """n periods in blocks that grow from both ends."""
        steps = np.arange(per_octave * max(1, n.bit_length())) / per_octave
        ends = np.unique(np.concatenate([np.arange(_SINGLE + 1.0), np.rint(_SINGLE * 2**steps)]))
        ends = ends[ends <= n // 2]
        return cls(np.unique(np.concatenate([ends, n - ends])))

    @property
    def lengths(self) -> FloatArray:
        return np.diff(self.edges)

    @property
    def middles(self) -> FloatArray:
        """(blocks,) places."""
        return (self.edges[:-1] + self.edges[1:] - 1) / 2

    def _powers(self, rate: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """rate^length, the sum of all powers below, and the mean over the block of the sums of those before each."""
        long = self.lengths[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(rate)
            power = np.exp(long * logs)
            sums = np.where(rate < 1, -np.expm1(long * logs) / (1 - rate), long)
            inner = np.where(rate < 1, (1 - sums / long) / (1 - rate), (long - 1) / 2)
        return power, sums, inner

    @staticmethod
    def _carried(power: FloatArray, gained: FloatArray) -> FloatArray:
        """What is carried into every block: out[b] = gained[b - 1] + power[b - 1] out[b - 1], in log steps."""
        out, scale, step = gained.copy(), power.copy(), 1
        while step < len(out):
            out[step:] += scale[step:] * out[:-step]
            scale[step:] *= scale[:-step]
            step *= 2
        return np.concatenate([np.zeros_like(out[:1]), out[:-1]])

    def before(self, rate: FloatArray, given: FloatArray) -> FloatArray:
        power, sums, inner = self._powers(rate)
        carried = self._carried(power, given * sums)
        return carried * sums / self.lengths[:, None] + given * inner

    def upto(self, rate: FloatArray, given: FloatArray) -> FloatArray:
        return given + rate * self.before(rate, given)

    def after(self, rate: FloatArray, given: FloatArray) -> FloatArray:
        power, sums, inner = self._powers(rate)
        carried = self._carried(power[::-1], (given * sums)[::-1])[::-1]
        return carried * sums / self.lengths[:, None] + given * inner

    def earlier(self, given: FloatArray, by: int) -> FloatArray:
        places = self.middles - by
        at = np.clip(np.searchsorted(self.middles, places) - 1, 0, len(given) - 2)
        share = np.clip((places - self.middles[at]) / (self.middles[at + 1] - self.middles[at]), 0.0, 1.0)[:, None]
        return np.where(places[:, None] < 0, 0.0, (1 - share) * given[at] + share * given[at + 1])

    def summed(self, given: FloatArray, last: int) -> FloatArray:
        every = np.concatenate([np.zeros_like(given[:1]), np.cumsum(given * self.lengths[:, None], axis=0)])
        ends = self.middles + 1
        return self._upto(every, ends) - self._upto(every, np.maximum(ends - last, 0.0))

    def _upto(self, every: FloatArray, places: FloatArray) -> FloatArray:
        at = np.clip(np.searchsorted(self.edges, places, side="right") - 1, 0, len(every) - 2)
        share = ((places - self.edges[at]) / self.lengths[at])[:, None]
        return every[at] + share * (every[at + 1] - every[at])


@dataclass(frozen=True, eq=False)
class Curves:
    """Variances of questions over time, for unit noise: see above. `rates` b_i and `gains` u_i, `columns` 1 / c."""

    scale: TimeScale
    rates: Sequence[FloatArray]
    gains: Sequence[FloatArray]
    columns: FloatArray
    noise: FloatArray

    @functools.cached_property
    def _pairs(self) -> tuple[FloatArray, list[FloatArray]]:
        """Q, and every N_i."""
        single = self.noise.copy()
        mixed = [self.noise.copy() for _ in self.rates]
        for i, (b, u) in enumerate(zip(self.rates, self.gains, strict=True)):
            for j in range(i + 1):
                both = self.scale.before(b * self.rates[j], self.noise)
                single += (1 if i == j else 2) * u * self.gains[j] * both
                mixed[j] -= self.rates[j] * u * both
                if i != j:
                    mixed[i] -= b * self.gains[j] * both
        return single, mixed

    def _steps(self, rate: float) -> tuple[FloatArray, list[FloatArray]]:
        """What V gains in every period, and every M_i."""
        single, mixed = self._pairs
        gained = single * self.columns**2
        carried: list[FloatArray] = []
        if rate:
            for b, u, given in zip(self.rates, self.gains, mixed, strict=True):
                carried.append(self.scale.before(rate * b, given * self.columns))
                gained -= 2 * rate * u * carried[-1] * self.columns
        return gained, carried

    def of(self, asked: TimeQuestion) -> FloatArray:
        """The variance at every period; of ranges the mean of those that end there."""
        gained, carried = self._steps(asked.rate)
        one = np.ones_like(self.gains[0])
        if asked.last is not None:
            return self._last(gained, carried, asked.last)
        out = self.scale.upto(one * asked.rate**2, gained)
        if not asked.ranges:
            return out
        count = self.scale.upto(one, np.ones_like(out))
        rest = self.scale.before(one, out)
        for b, u, given in zip(self.rates, self.gains, carried, strict=True):
            rest = rest - 2 * u * self.scale.upto(one, self.columns * self.scale.upto(b, given))
        return out - rest / count

    def _last(self, gained: FloatArray, carried: list[FloatArray], last: int) -> FloatArray:
        """Var(S_t) - Var(S_(t-k)) + 2 sum_i u_i D_i M_i(t-k+1), D_i = sum_(m<k) b_i^m / c_(t-k+1+m)."""
        out = self.scale.summed(gained, last)
        for b, u, given in zip(self.rates, self.gains, carried, strict=True):
            every = self.scale.after(b, self.columns)
            # of the columns from a period on, without those after the last
            ahead = self.columns + b * every
            first = self.scale.earlier(ahead, last - 1) - b**last * every
            out = out + 2 * u * first * self.scale.earlier(given, last - 1)
        return out


def column_lengths(poles: FloatArray, zeros: FloatArray, rows: FloatArray, scale: TimeScale) -> FloatArray:
    """(blocks,) of the columns of diag(rows) T, for rows (blocks,) on a scale."""
    squares = rows**2 if isinstance(scale, EveryPeriod) else (rows**2)[:, None]
    out = squares.copy()
    weights = partial_fraction_residues(poles, zeros)
    for i, (w, p) in enumerate(zip(weights, poles, strict=True)):
        for other, q in zip(weights[: i + 1], poles[: i + 1], strict=True):
            out += (1 if p == q else 2) * w * other * scale.after((1 - p) * (1 - q), squares)
    return np.sqrt(out).reshape(-1)


class TimeErrors(ABC):
    """Variances of answers over time at unit noise."""

    @functools.cached_property
    def _found(self) -> dict[TimeQuestion, FloatArray]:
        return {}

    def of(self, asked: TimeQuestion) -> FloatArray:
        """(periods,) of a question at every period; of ranges the mean of those that end there."""
        if asked not in self._found:
            self._found[asked] = self._of(asked)
        return self._found[asked]

    @property
    def totals(self) -> FloatArray:
        """(periods,) of the sum of all periods up to each."""
        return self.of(TimeQuestion())

    @property
    def increments(self) -> FloatArray:
        """(periods,) of every period by itself."""
        return self.of(TimeQuestion(rate=0.0))

    def together(self, questions: Sequence[tuple[TimeQuestion, float]]) -> FloatArray:
        """(periods,) of several questions, by their weights."""
        return np.sum([weight * self.of(asked) for asked, weight in questions], axis=0)

    def mean(self, questions: Sequence[tuple[TimeQuestion, float]]) -> float:
        """Over all that is asked of all periods together."""
        out = 0.0
        for asked, weight in questions:
            found = self.of(asked)
            # as many ranges end at a period as there were
            ends = np.arange(1, len(found) + 1) * 2 / (len(found) + 1) if asked.ranges else np.ones(len(found))
            out += weight * float((found * ends).mean())
        return out

    @abstractmethod
    def _of(self, asked: TimeQuestion) -> FloatArray: ...

    @abstractmethod
    def variance(self, weights: FloatArray) -> float:
        """Of sum_t weights_t x_t; (m,) weights of the first m periods."""


def errors_of_filter(used: IntegerFilter | WindowFilter) -> TimeErrors:
    """Of either filter."""
    return FilterErrors(used) if isinstance(used, IntegerFilter) else WindowErrors(used)


@dataclass(frozen=True, eq=False)
class FilterErrors(TimeErrors):
    """By linear recursions.

    x = C^-1 y is what a filter run backwards makes of the noise y: with zeta_t = 2^shift y_t / r_t,
    x_t = (zeta_t - sum_i u_i q_i) / c_t and q_i <- b_i q_i + zeta_t. Exact for the integers of the filter, up to what
    the floors of b_it / c_t differ by.
    """

    filter: IntegerFilter

    @functools.cached_property
    def _inverse(self) -> tuple[FloatArray, FloatArray]:
        """The poles b_i of the inverse and u_i."""
        f = self.filter
        top = int(np.argmax(f.direct))
        weights = f.carried[top] / float(f.direct[top])
        # the inverse of 1 + sum w_i z / (1 - a_i z) has the eigenvalues of its state matrix as poles
        values, vectors = np.linalg.eig(np.diag(f.decay_rates) - np.outer(weights, np.ones(len(weights))))
        gains = np.linalg.solve(vectors, weights.astype(vectors.dtype)) * vectors.sum(axis=0)
        return np.real(values), np.real(gains)

    @functools.cached_property
    def _noise(self) -> FloatArray:
        """(periods,) the variance of zeta."""
        f = self.filter
        return np.repeat((2.0**f.shift / f.rows) ** 2, f.runs)

    @functools.cached_property
    def _direct(self) -> FloatArray:
        """(periods,) c."""
        return np.repeat(self.filter.direct.astype(np.float64), self.filter.runs)

    @functools.cached_property
    def _curves(self) -> Curves:
        poles, gains = (list(a) for a in self._inverse)
        return Curves(EveryPeriod(self.filter.periods), poles, gains, 1 / self._direct, self._noise)

    def _of(self, asked: TimeQuestion) -> FloatArray:
        return self._curves.of(asked)

    def variance(self, weights: FloatArray) -> float:
        poles, gains = self._inverse
        given = weights / self._direct[: len(weights)]
        out = given.copy()
        for pole, gain in zip(poles, gains, strict=True):
            later = _decayed(given[::-1], float(pole))[::-1]
            out[:-1] -= gain * later[1:]
        return float(self._noise[: len(weights)] @ out**2)


@dataclass(frozen=True, eq=False)
class WindowErrors(TimeErrors):
    """From the inverse of a filter without states: a matrix, or a series where all columns are alike."""

    filter: WindowFilter

    @functools.cached_property
    def _series(self) -> FloatArray:
        """(periods,) coefficients of the inverse."""
        n, taps = self.filter.periods, self.filter.taps[0].astype(np.float64)
        return inverse_series(np.append(taps, np.zeros(n))[:n])

    @functools.cached_property
    def _matrix(self) -> FloatArray:
        """(periods, periods) the inverse."""
        from scipy.linalg import solve_triangular  # noqa: PLC0415  (slow to import)

        n, taps = self.filter.periods, np.repeat(self.filter.taps, self.filter.runs, axis=0)
        found = np.zeros((n, n))
        for lag in range(min(n, taps.shape[1])):
            found[np.arange(lag, n), np.arange(n - lag)] = taps[: n - lag, lag]
        return np.asarray(solve_triangular(found, np.eye(n), lower=True))

    def _of(self, asked: TimeQuestion) -> FloatArray:
        n = self.filter.periods
        if len(self.filter.runs) > 1:
            return self._of_matrix(asked)
        lags = TimeQuestion().weights(n) if asked.ranges else asked.weights(n)[::-1]
        answer = causal_convolution(lags, self._series)
        out = np.cumsum(answer**2)
        if not asked.ranges:
            return out
        # of H_j - H_(j-m), H the answer of totals, over all m up to t + 1
        both = np.cumsum(answer * (np.cumsum(answer) - answer))
        return out + (np.cumsum(out) - out - 2 * both) / np.arange(1, n + 1)

    def _of_matrix(self, asked: TimeQuestion) -> FloatArray:
        inverse = self._matrix
        if not asked.ranges and asked.last is None:
            return (_decayed(inverse, asked.rate) ** 2).sum(axis=1)
        sums = np.cumsum(inverse, axis=0)
        before = np.concatenate([np.zeros_like(sums[:1]), sums[:-1]])
        if asked.last is not None:
            earlier = np.concatenate([np.zeros((asked.last, len(sums))), sums])[: len(sums)]
            return ((sums - earlier) ** 2).sum(axis=1)
        count = np.arange(1, len(sums) + 1)
        squares = np.cumsum((before**2).sum(axis=1))
        return (sums**2).sum(axis=1) + (squares - 2 * (sums * np.cumsum(before, axis=0)).sum(axis=1)) / count

    def variance(self, weights: FloatArray) -> float:
        m = len(weights)
        if len(self.filter.runs) > 1:
            return float(((weights @ self._matrix[:m]) ** 2).sum())
        return float((causal_convolution(weights[::-1], self._series[:m]) ** 2).sum())
