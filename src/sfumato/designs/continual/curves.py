"""The error of a question over time at every period, by filters over pairs of poles: exactly, or on blocks of periods.

C = diag(r) T diag(c) has the inverse diag(1 / c) T^-1 diag(1 / r), T^-1 = 1 - sum u_i z / (1 - b_i z). What a sum that
decays by `rate` a period makes of noise z is sum_k g_t(k) z_k / r_k, g_t = rate g_(t-1) + (row t of T^-1) / c_t; so
with s = 1 / r^2

    P_ij(t) = sum_(k<t) (b_i b_j)^(t-k-1) s_k,     Q = s + sum_ij u_i u_j P_ij,     N_i = s - b_i sum_j u_j P_ij,
    M_i(t) = rate b_i M_i(t-1) + N_i(t-1) / c_(t-1),    V(t) = rate^2 V(t-1) + Q / c^2 - 2 rate sum_i u_i M_i / c:

three filters one after the other, of which sums of the last periods and all ranges follow too.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sfumato.designs.continual.questions import Question
from sfumato.designs.ordered.buffers import residues
from sfumato.operators.base import FloatArray

__all__ = ["Blocks", "Curves", "Every", "Scale", "column_lengths"]

_SINGLE = 8  # periods at each end that are blocks by themselves, where all changes fastest


class Scale(Protocol):
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


@dataclass(frozen=True, eq=False)
class Every(Scale):
    """n periods one by one."""

    n: int

    @property
    def lengths(self) -> FloatArray:
        return np.ones(self.n)

    def upto(self, rate: FloatArray, given: FloatArray) -> FloatArray:
        from scipy.signal import lfilter  # noqa: PLC0415  (slow to import)

        return np.asarray(lfilter([1.0], [1.0, -float(rate)], given))

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
class Blocks(Scale):
    """Periods in blocks, (blocks + 1,) edges; arrays (blocks, strategies), rates (strategies,)."""

    edges: FloatArray

    @classmethod
    def growing(cls, n: int, per_octave: int) -> Blocks:
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

    scale: Scale
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

    def of(self, asked: Question) -> FloatArray:
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


def column_lengths(poles: FloatArray, zeros: FloatArray, rows: FloatArray, scale: Scale) -> FloatArray:
    """(blocks,) of the columns of diag(rows) T, for rows (blocks,) on a scale."""
    squares = rows**2 if isinstance(scale, Every) else (rows**2)[:, None]
    out = squares.copy()
    weights = residues(poles, zeros)
    for i, (w, p) in enumerate(zip(weights, poles, strict=True)):
        for other, q in zip(weights[: i + 1], poles[: i + 1], strict=True):
            out += (1 if p == q else 2) * w * other * scale.after((1 - p) * (1 - q), squares)
    return np.sqrt(out).reshape(-1)
