"""The integer filter of a stream: what one record does to everything after it, and what rounding adds to that.

For a cell with count x_t in period t, with public integers r, c, b, e, g and a shift, a stream has

    s_t = c_t x_t + sum_i p_i,    y_t = floor(s_t r_t / 2^shift),    p_i <- p_i - floor(p_i e_i / 2^g_i) + b_it x_t.

Without the floors y = C x, C lower-triangular with the entries r_t c_t / 2^shift on its diagonal and below it
r_t / 2^shift times sum_i theta_i^(t-u-1) b_iu, theta_i = 1 - e_i / 2^g_i: the response of the integers themselves.

What is computed here are upper bounds in doubles of numbers that are not negative, by sums and products of such
numbers alone: each operation loses at most 2^-53 of its result, so what stands behind K operations in a row is at least
(1 - 2^-53)^K of the truth, and `SLACK` is above its inverse. (Underflow loses less than 1 in all, which is added.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import PlanError
from sfumato.ground.codec import storable

__all__ = ["MOST_COUNT", "MOST_PERIODS", "IntegerFilter", "WindowFilter"]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

MOST_PERIODS = 2**20
"""Operations in a row are at most about eight times as many, which SLACK rests on."""
MOST_COUNT = 2**36
"""Of records in a cell: two limbs of 48 bits multiply it by 62 bits."""
SLACK = 1 + 2.0**-28  # above (1 - 2^-53)^-(2^24), K of the page above
_MOST_DECAYS = 32  # so that as many limbs of 48 bits add up in 63
# e or r times a limb of 48 bits fits 63; shifts end where sums do; b and c fit int64, and 2^g is a double exactly.
_DECAY_BITS, _MOST_SHIFT, _ROW_BITS, _COLUMN_BITS, _STEEPEST = 12, 100, 14, 62, 53
_MOST_TAPS, _TAP_BITS = 2**12, 25  # sums of squares of so many fit int64
_PIECE = 2**10  # periods of a run that are looked at together: powers of every pair of decays, a few megabytes
_FINE = 2**20  # how finely sums near the number of periods are rounded up
_STATE_BITS, _SUM_BITS = 90, 102  # what two limbs hold with room for one product


class _Runs:
    """Runs of periods that have the same integers."""

    runs: IntArray

    @property
    def periods(self) -> int:
        """The number of periods."""
        return sum(self.runs.tolist())

    def _run(self, period: int) -> int:
        if not 0 <= period < self.periods:
            raise PlanError(f"the filter has periods 0 to {self.periods - 1:,}, not {period}")
        return int(np.searchsorted(self.runs.cumsum(), period, side="right"))

    def _set(self, *names: str) -> None:
        for name in names:
            given = np.asarray(getattr(self, name))
            if given.dtype.kind not in "iu":
                raise PlanError(f"the {name} of a filter are whole numbers, not {given.dtype}")
            object.__setattr__(self, name, given.astype(np.int64))
        if self.runs.ndim != 1 or not self.runs.size or self.runs.min() < 1 or self.periods > MOST_PERIODS:
            raise PlanError(f"a stream has at most {MOST_PERIODS:,} periods, in runs of one or more")

    def check_count(self, most: int) -> None:
        """Raise PlanError for what is no largest count of a cell. (What is published wraps around modulo 2^64.)"""
        if type(most) is not int or not 1 <= most <= MOST_COUNT:
            raise PlanError(f"the largest count of a cell is from 1 to {MOST_COUNT:,}, not {most!r}")


@storable
@dataclass(frozen=True, eq=False, repr=False)
class IntegerFilter(_Runs):
    """Public integers of a filter over `runs.sum()` periods.

    decays: (d, 2) of e from 1 to 2^12 - 1 and g to 53, e <= 2^g. runs: (m,) lengths of runs of periods with the same
    rows r (m,), from 1 to 2^14 - 1, direct c (m,), positive, and carried b (m, d), not negative, below 2^62.
    Raises PlanError for anything else.
    """

    decays: IntArray
    shift: int
    runs: IntArray
    rows: IntArray
    direct: IntArray
    carried: IntArray

    nonnegative = True  # every response

    def __post_init__(self) -> None:
        self._set("decays", "runs", "rows", "direct", "carried")
        m, d = len(self.runs), len(self.decays)
        shapes = (self.decays.shape, self.runs.shape, self.rows.shape, self.direct.shape, self.carried.shape)
        if shapes != ((d, 2), (m,), (m,), (m,), (m, d)) or not 1 <= d <= _MOST_DECAYS or not m:
            raise PlanError("a filter has one to 32 decays, and for every run of periods a row, a column and as many")
        e, g = self.decays.T
        between = (
            (np.array([self.shift]), 0, _MOST_SHIFT),
            (self.rows, 1, 2**_ROW_BITS - 1),
            (self.direct, 1, 2**_COLUMN_BITS - 1),
            (self.carried, 0, 2**_COLUMN_BITS - 1),
            (e, 1, 2**_DECAY_BITS - 1),
            (g, 0, _STEEPEST),
            (np.left_shift(1, g) - e, 0, 2**_STEEPEST),
        )
        if type(self.shift) is not int or any(int(a.min()) < low or int(a.max()) > high for a, low, high in between):
            raise PlanError("an integer of the filter is out of its range; plan again")

    @property
    def kept(self) -> tuple[int, int]:
        """The numbers of a cell between two periods: two limbs of every state."""
        return 2, len(self.decays)

    @property
    def decay_rates(self) -> FloatArray:
        """(d,) theta_i, exact: g is at most 53."""
        e, g = self.decays.T
        return np.asarray((np.left_shift(1, g) - e) / np.exp2(g))

    def coefficients(self, period: int, multiples: Sequence[int], grain: int) -> IntArray:
        """(1 + d, tables) c and every b_i of a period for tables that weigh multiple / 2^grain <= 1 each.

        At most that times those of the filter: what is priced for these bounds them.
        """
        run = self._run(period)
        whole = [int(self.direct[run]), *self.carried[run].tolist()]
        return np.array([[(x * m) >> grain for m in multiples] for x in whole], dtype=np.int64)

    def row(self, period: int) -> int:
        """r of a period."""
        return int(self.rows[self._run(period)])

    def check_count(self, most: int) -> None:
        """Refuse what a state of 90 bits, or a sum of 102, could not hold with counts from -most to most.

        A state obeys |p| <= theta |p| + 1 + b most, so it stays below (1 + b most) times the lesser of 1 / (1 - theta)
        and the number of periods. Raises PlanError.
        """
        super().check_count(most)
        largest = [1 + most * b for b in self.carried.max(axis=0).tolist()]
        turns = [min(-(-(2**g) // e), self.periods) for e, g in self.decays.tolist()]
        states = [a * n for a, n in zip(largest, turns, strict=True)]
        total = int(self.direct.max()) * most + sum(states)
        if max(states) >= 2**_STATE_BITS or total * int(self.rows.max()) >= 2**_SUM_BITS:
            raise PlanError(
                f"with {most:,} records in a cell the state of this stream could outgrow its {_STATE_BITS} bits; "
                "plan with a smaller number of records, or for fewer periods"
            )

    # -- what is priced -----------------------------------------------------------------------------------

    def response(self, participations: int = 1, apart: int = 1) -> int:
        """An upper bound, within 2^-27, of the squared length of the response to 1 in some periods, times 4^shift.

        In at most so many periods, each at least `apart` after the one before. For several the filter must be Toeplitz
        (one run) with entries that never grow below the diagonal. Then M_uv = <C_u, C_v>, u <= v, falls as v grows with
        v - u fixed, for it has fewer terms, and as v - u grows, term by term; so the worst pattern is 0, apart,
        2 apart, and so on, and more periods are worse, M being nonnegative. Raises PlanError otherwise.
        """
        if participations == 1:
            return _above(float(self._columns().max()))
        alike = all((np.diff(a, axis=0) == 0).all() for a in (self.rows, self.direct, self.carried))
        if not alike or sum(self.carried[0].tolist()) > int(self.direct[0]):
            raise PlanError("several participations are priced where all periods are alike and no response grows")
        later = _powers(self.decay_rates, self.periods - 1) @ self.carried[0].astype(np.float64)
        response = np.append(float(self.direct[0]), later)
        repeated = _repeated(response, participations, apart)
        return _above(float(self.rows[0]) ** 2 * float((repeated * repeated).sum()))

    def _columns(self) -> FloatArray:
        """(periods,) squared lengths of the columns of C, times 4^shift, before rounding up.

        Below the diagonal: sum_ij b_i b_j sum_(t>u) r_t^2 (theta_i theta_j)^(t-u-1).
        """
        first, second = np.tril_indices(len(self.decays))
        rates, carried = self.decay_rates, self.carried.astype(np.float64)
        both = carried[:, first] * carried[:, second] * np.where(first == second, 1.0, 2.0)
        # of a run of equal rows, from its end on: what is later counts less, and its own rows are added
        powers = _powers(rates[first] * rates[second], min(int(self.runs.max()), _PIECE) + 1)
        sums = np.concatenate([np.zeros_like(powers[:1]), powers.cumsum(axis=0)[:-1]])
        squares = self.rows.astype(np.float64) ** 2
        own = squares * self.direct.astype(np.float64) ** 2
        later, out = np.zeros(len(first)), list[FloatArray]()
        for k in range(len(self.runs) - 1, -1, -1):
            for done in range(0, int(self.runs[k]), _PIECE):
                size = min(int(self.runs[k]) - done, _PIECE)
                out.append(powers[:size] @ (both[k] * later) + sums[:size] @ (both[k] * squares[k]) + own[k])
                later = powers[size] * later + sums[size] * squares[k]
        return np.concatenate(out)[::-1]

    def rounding(self) -> FloatArray:
        """(periods,) what the floors can add to the change of y_t, however many counts change from period 0 on.

        Two states that differ change alike under p -> ceil(theta p) up to less than 1, and under a floor of their sum;
        so the change of a state is off by less than sum_(k < t-1) theta^k, and that of y_t by less than
        1 + r_t / 2^shift times the sum of these: 0 <= floor < 1 apart, whatever the signs, inside a contraction.
        """
        n = self.periods
        out = np.zeros(n)
        for theta in self.decay_rates.tolist():
            out[2:] += _powers(np.array([theta]), max(n - 2, 0))[:, 0].cumsum()
        return (out * np.repeat(self.rows.astype(np.float64), self.runs) / 2.0**self.shift + 1) * SLACK

    def rounding_squared(self) -> Fraction:
        """An upper bound of the squared length of `rounding` over all periods."""
        return Fraction(_above(float((self.rounding() ** 2).sum()) * _FINE), _FINE)


@storable
@dataclass(frozen=True, eq=False, repr=False)
class WindowFilter(_Runs):
    """Public integers a_uj: y_t = sum_(j < w) a_(t-j)j x_(t-j), exactly: a stream keeps its last w - 1 counts.

    taps: (m, w) of the counts of m runs (m,) of periods, below 2^25 in size, at most 2^12 of them, so that int64 holds
    their sums of squares. Raises PlanError for anything else.
    """

    runs: IntArray
    taps: IntArray

    shift = 0  # y is what is published

    def __post_init__(self) -> None:
        self._set("runs", "taps")
        fits = self.taps.ndim == 2 and len(self.taps) == len(self.runs) and 1 <= self.taps.shape[1] <= _MOST_TAPS
        if not fits or self.taps.max() >= 2**_TAP_BITS or self.taps.min() <= -(2**_TAP_BITS):
            raise PlanError(f"a window filter has 1 to {_MOST_TAPS:,} taps for every run, below 2^{_TAP_BITS} in size")

    @property
    def nonnegative(self) -> bool:
        """Whether every response is."""
        return int(self.taps.min()) >= 0

    @property
    def kept(self) -> tuple[int, int]:
        """The numbers of a cell between two periods: the counts of the last."""
        return 1, self.taps.shape[1] - 1

    def coefficients(self, period: int, multiples: Sequence[int], grain: int) -> IntArray:
        """(w, tables) a of the counts of a period and of those before, for tables that weigh multiple / 2^grain <= 1.

        Rounded towards zero: no column is longer than it is priced. Before the first period all counts are 0.
        """
        lags = np.arange(self.taps.shape[1])
        whole = self.taps[np.searchsorted(self.runs.cumsum(), period - lags, side="right"), lags]
        return np.sign(whole)[:, None] * (np.multiply.outer(abs(whole), np.array(multiples, dtype=np.int64)) >> grain)

    def response(self, participations: int = 1, apart: int = 1) -> int:
        """The largest squared length of the response to 1 in so many periods, each at least `apart` after the one
        before, or a bound of it: then no two of them are heard together, and their squares add up. Raises PlanError."""
        if participations > 1 and self.taps.shape[1] > apart:
            raise PlanError("several participations are priced where no window holds two of them")
        return participations * int((self.taps**2).sum(axis=1).max())

    def rounding_squared(self) -> Fraction:
        """Nothing is rounded."""
        return Fraction(0)


def _above(value: float) -> int:
    """A whole number above what a computed sum of numbers that are not negative stands for."""
    return math.ceil(value * SLACK) + 1


def _powers(rates: FloatArray, count: int) -> FloatArray:
    """(count, rates) 1, rate, rate^2, ..., each the one before times the rate."""
    out = np.repeat(rates[None], count, axis=0)
    out[:1] = 1.0
    return np.multiply.accumulate(out, axis=0)


def _repeated(response: FloatArray, count: int, apart: int) -> FloatArray:
    """The sum of `count` copies of a response, each `apart` later than the one before, by doubling."""
    out, done = response.copy(), 1
    for bit in f"{count:b}"[1:]:
        out[done * apart :] += out[: max(len(out) - done * apart, 0)].copy()
        done = 2 * done + int(bit)
        if int(bit):
            out = np.concatenate([response[:apart], response[apart:] + out[:-apart]])
    return out
