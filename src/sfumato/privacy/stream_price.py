"""What a stream costs: measurements of the same tables in every period, by one integer filter over time.

Of every set A of attributes the table v_A is filtered cell by cell (`IntegerFilter`), its columns shrunk by
alpha_A = multiple / 2^grain; the integer map X_A of its family comes after the floor, then noise of one law. A person
changes v_A(t) in at most k periods; with D the largest sqrt(sum_A alpha_A^2 |X_A (v'_A - v_A)|^2) of one period,
h the most cells of one table that change in all, and the sums of squares over all periods,

    |shift| <= D |C u|, the worst pattern u of the periods, + h sqrt(sum_A |largest column of X_A|^2) |rounding|.

With rounded Gaussian noise of deviation sigma >= |shift| / mu everything that comes out is mu-GDP, also where the data
of a period are chosen after all earlier noisy values: the logarithm of the ratio of likelihoods is a sum of normals
whose coefficients are known one step ahead and have squares that sum to at most mu^2. [DRS22, ST22]

Where rows of persons are left out, who is left out for the first time is counted too, period by period, in one cell
with a multiple of its own: of each person one period, so it is a stream of its own whose squared shift adds to that of
the tables.

The total, the table of no attribute, may have a filter of its own. Then what is measured are two streams, of which each
moves at most by its own worst; what people do to both at once has the sum of both squares.

The integer filter of a stream: what one record does to everything after it, and what rounding adds to that.

For a cell with count x_t in period t, with public integers r, c, b, e, g and a shift, a stream has

    s_t = c_t x_t + sum_i p_i,    y_t = floor(s_t r_t / 2^shift),    p_i <- p_i - floor(p_i e_i / 2^g_i) + b_it x_t.

Without the floors y = C x, C lower-triangular with the entries r_t c_t / 2^shift on its diagonal and below it
r_t / 2^shift times sum_i theta_i^(t-u-1) b_iu, theta_i = 1 - e_i / 2^g_i: the response of the integers themselves.

What is computed here are upper bounds in doubles of numbers that are not negative, by sums and products of such
numbers alone: each operation loses at most 2^-53 of its result, so what stands behind K operations in a row is at least
(1 - 2^-53)^K of the truth, and `SLACK` is above its inverse. (Underflow loses less than 1 in all, which is added.)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import deferred_field, storable
from sfumato.errors import InvalidInput, PlanError
from sfumato.maps import FamilyMap, Map
from sfumato.privacy.accounting import Event, GaussianEvent
from sfumato.privacy.noise import RoundedGaussian
from sfumato.privacy.replaced import Certificate
from sfumato.privacy.sensitivity import certified_bound
from sfumato.privacy.sums import set_products
from sfumato.privacy.terms import MapTerms
from sfumato.privacy.unit import Neighbours, PrivacyUnit

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
_MOST_TAPS, _TAP_BITS, _HALF_TAP = 2**12, 25, 13  # sums of squares of so many fit int64
MOST_MATRIX = 1_024
"""Of periods whose columns are compared one with another."""
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
            return _round_above(float(self._columns().max()))
        alike = all((np.diff(a, axis=0) == 0).all() for a in (self.rows, self.direct, self.carried))
        if not alike or sum(self.carried[0].tolist()) > int(self.direct[0]):
            raise PlanError("several participations are priced where all periods are alike and no response grows")
        later = _rate_powers(self.decay_rates, self.periods - 1) @ self.carried[0].astype(np.float64)
        response = np.append(float(self.direct[0]), later)
        repeated = _sum_of_delays(response, participations, apart)
        return _round_above(float(self.rows[0]) ** 2 * float((repeated * repeated).sum()))

    def _columns(self) -> FloatArray:
        """(periods,) squared lengths of the columns of C, times 4^shift, before rounding up.

        Below the diagonal: sum_ij b_i b_j sum_(t>u) r_t^2 (theta_i theta_j)^(t-u-1).
        """
        first, second = np.tril_indices(len(self.decays))
        rates, carried = self.decay_rates, self.carried.astype(np.float64)
        both = carried[:, first] * carried[:, second] * np.where(first == second, 1.0, 2.0)
        # of a run of equal rows, from its end on: what is later counts less, and its own rows are added
        powers = _rate_powers(rates[first] * rates[second], min(int(self.runs.max()), _PIECE) + 1)
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
            out[2:] += _rate_powers(np.array([theta]), max(n - 2, 0))[:, 0].cumsum()
        return (out * np.repeat(self.rows.astype(np.float64), self.runs) / 2.0**self.shift + 1) * SLACK

    def rounding_squared(self) -> Fraction:
        """An upper bound of the squared length of `rounding` over all periods."""
        return Fraction(_round_above(float((self.rounding() ** 2).sum()) * _FINE), _FINE)


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

    def response(self, participations: int = 1, apart: int = 1, *, alike: bool = False) -> int:
        """A bound of the largest squared length of the response to 1 in so many periods, each at least `apart` after
        the one before.

        For several, with M_uv = <C_u, C_v>, it is that of j periods, the most of them or fewer: j times the largest
        M_uu, and j (j - 1) times the largest M_uv of periods that are as far apart; 0 where no window holds two.
        Rows may lie in other cells in other periods, so of M_uv the size counts, unless what changes is `alike` in all
        of them, and then its sign does. Raises PlanError for too many periods.
        """
        longest = int((self.taps**2).sum(axis=1).max())
        far = 0
        if participations > 1 and self.taps.shape[1] > apart:
            products = self._products()[np.tril_indices(self.periods, -apart)]
            far = int((products if alike else abs(products)).max()) if products.size else 0
        # it is concave in the number of periods, or grows
        return max(j * longest + j * (j - 1) * far for j in range(1, participations + 1))

    def _products(self) -> NDArray[np.int64]:
        """(periods, periods) inner products of columns, exactly: of halves of 13 bits, whose sums doubles hold."""
        n, taps = self.periods, np.repeat(self.taps, self.runs, axis=0)
        if n > MOST_MATRIX:
            raise PlanError(f"several participations in one window are priced for at most {MOST_MATRIX:,} periods")
        columns = np.zeros((n, n), dtype=np.int64)
        for lag in range(min(n, taps.shape[1])):
            columns[np.arange(lag, n), np.arange(n - lag)] = taps[: n - lag, lag]
        high, low = (half.astype(np.float64) for half in (columns >> _HALF_TAP, columns & (2**_HALF_TAP - 1)))
        squares, mixed, rest = ((a.T @ b).astype(np.int64) for a, b in ((high, high), (high, low), (low, low)))
        return (squares << (2 * _HALF_TAP)) + ((mixed + mixed.T) << _HALF_TAP) + rest

    def scaled(self, multiple: int, grain: int) -> WindowFilter:
        """What is heard of a table that weighs multiple / 2^grain."""
        return WindowFilter(self.runs, np.sign(self.taps) * (abs(self.taps) * multiple >> grain))

    def rounding_squared(self) -> Fraction:
        """Nothing is rounded."""
        return Fraction(0)


def _round_above(value: float) -> int:
    """A whole number above what a computed sum of numbers that are not negative stands for."""
    return math.ceil(value * SLACK) + 1


def _rate_powers(rates: FloatArray, count: int) -> FloatArray:
    """(count, rates) 1, rate, rate^2, ..., each the one before times the rate."""
    out = np.repeat(rates[None], count, axis=0)
    out[:1] = 1.0
    return np.multiply.accumulate(out, axis=0)


def _sum_of_delays(response: FloatArray, count: int, apart: int) -> FloatArray:
    """The sum of `count` copies of a response, each `apart` later than the one before, by doubling."""
    out, done = response.copy(), 1
    for bit in f"{count:b}"[1:]:
        out[done * apart :] += out[: max(len(out) - done * apart, 0)].copy()
        done = 2 * done + int(bit)
        if int(bit):
            out = np.concatenate([response[:apart], response[apart:] + out[:-apart]])
    return out


_MOST_TOGETHER = 10  # factors whose ends are all combined: a thousand combinations, some 50 milliseconds
_MOST_GRAIN = 30  # multiples of 30 bits and coefficients of 62 are scaled in Python integers; finer buys nothing


@storable
@dataclass(frozen=True, eq=False, repr=False)
class StreamTerms:
    """What is measured in every period: public, and all that the price of a stream follows from.

    families: integer maps of tables, with multiples of at most 2^grain. A person is in at most `participations`
    periods, each at least `apart` after the one before. Counts of a cell are cut at `most`, or where the number of
    records is public a period with more is refused. `certificate` says how the price of a replaced record is proved.
    `enforced`: rows of a person in more periods, or in nearer ones, are left out; otherwise that there are none is the
    custodian's promise. `cut`: of at most 2^grain, the multiple of the cell that counts who is left out for the first
    time; 0: they are not counted. `total`: the filter of the table of no attribute, where it has one of its own. Raises
    PlanError.
    """

    filter: IntegerFilter | WindowFilter
    families: tuple[FamilyMap, ...]
    grain: int
    noise: RoundedGaussian
    participations: int
    apart: int
    most: int
    certificate: Certificate | None = None
    enforced: bool = deferred_field(False)
    cut: int = deferred_field(0)
    total: WindowFilter | None = deferred_field(None)  # noqa: RUF009  (as dataclasses.field is)

    def __post_init__(self) -> None:
        object.__setattr__(self, "families", tuple(self.families))
        if type(self.filter) not in (IntegerFilter, WindowFilter) or type(self.noise) is not RoundedGaussian:
            raise PlanError("a stream has an integer filter and rounded Gaussian noise")
        if not self.families or not all(type(f) is FamilyMap and f.multiples is not None for f in self.families):
            raise PlanError("a stream measures families of tables, with a multiple for every table")
        n = self.filter.periods
        for name, low, high in (("grain", 0, _MOST_GRAIN), ("participations", 1, n), ("apart", 1, n)):
            given = getattr(self, name)
            if type(given) is not int or not low <= given <= high:
                raise PlanError(f"{name} of a stream is a whole number from {low} to {high:,}")
        if (self.participations - 1) * self.apart >= n:
            raise PlanError("nobody can be in so many periods, so far apart; plan with fewer")
        if any(int(family_multiples(f).max()) > 2**self.grain for f in self.families):
            raise PlanError(f"a multiple is above 2^{self.grain}, which stands for 1")
        if type(self.cut) is not int or not 0 <= self.cut <= 2**self.grain or (self.cut and not self.enforced):
            raise PlanError("who is left out is counted where rows are, with a multiple of at most that of 1")
        if self.total is not None:
            alone = [not f.sets.size for f in self.families]
            if type(self.total) is not WindowFilter or self.total.periods != n or all(alone) or not any(alone):
                raise PlanError("a total has a window filter of its own where there are other tables, for all periods")
        self.filter.check_count(self.most)

    def is_own(self, family: FamilyMap) -> bool:
        """Whether a family is a total that has a filter of its own."""
        return self.total is not None and not family.sets.size

    def filter_of(self, family: FamilyMap) -> IntegerFilter | WindowFilter:
        """What the tables of a family go through."""
        return self.total if self.total is not None and self.is_own(family) else self.filter

    @property
    def parts(self) -> tuple[StreamTerms, ...]:
        """The streams that are measured, of one filter each: all tables, or all but the total and the total."""
        if self.total is None:
            return (self,)
        rest, own = (tuple(f for f in self.families if self.is_own(f) == way) for way in (False, True))
        return replace(self, families=rest, total=None), replace(self, filter=self.total, families=own, total=None)

    @property
    def beside(self) -> StreamTerms:
        """The stream of persons who are left out for the first time: one cell, in which everybody has one period."""
        names, factors = self.families[0].names, self.families[0].factors
        cell = FamilyMap(names, factors, np.zeros((1, 0), dtype=np.int32), np.array([self.cut]))
        alone = {"participations": 1, "apart": 1, "certificate": None, "enforced": False, "cut": 0, "total": None}
        return replace(self, families=(cell,), **alone)

    @property
    def rows(self) -> tuple[int, ...]:
        """How many values of every family come out of a period, and of the cell of those who are left out."""
        return *(f.rows for f in self.families), *((1,) if self.cut else ())

    def squared_shift(self, sizes: dict[str, int], unit: PrivacyUnit) -> Fraction:
        """An upper bound of the largest squared change of all values ever measured, between neighbours.

        Raises as `tables_shift`.
        """
        found = self.tables_shift(sizes, unit)
        if not self.cut:
            return found
        # a person is one who is left out for the first time, however many rows there are
        return found + self.beside.tables_shift(sizes, PrivacyUnit(unit.neighbours, unit.person))

    def tables_shift(self, sizes: dict[str, int], unit: PrivacyUnit) -> Fraction:
        """The same of the tables alone.

        Raises PlanError or WorkloadError for maps that are not integral or do not fit.
        """
        if self.total is not None:
            return sum((part.tables_shift(sizes, unit) for part in self.parts), Fraction(0))
        if self.participations > 1 and unit.person is None:
            raise PlanError("whoever is in several periods is a person; name the column that says whose record it is")
        exact = self.response(sizes, unit)
        rounded = self.cells(unit) ** 2 * self.columns() * self.filter.rounding_squared()
        if not exact * rounded:
            return exact + rounded
        # the square of their roots' sum: 2 sqrt(x y) <= x / t + t y for any t, and alike where t^2 = x / y
        middle = Fraction(math.sqrt(exact / rounded))
        return exact + rounded + exact / middle + rounded * middle

    def response(self, sizes: dict[str, int], unit: PrivacyUnit) -> Fraction:
        """The largest squared change of all values but for what is rounded.

        Where one window holds several periods of a person, products of columns count; so each table is taken at its own
        worst, as its taps are rounded, and in the total, to which rows only add, what changes is alike in all periods.
        """
        if self.total is not None:
            return sum((part.response(sizes, unit) for part in self.parts), Fraction(0))
        k, used = self.participations, self.filter
        if k == 1 or isinstance(used, IntegerFilter) or used.taps.shape[1] <= self.apart:
            return Fraction(self.change(sizes, unit) * used.response(k, self.apart), 4 ** (self.grain + used.shift))
        added, total = replace(unit, neighbours=Neighbours.ADD_REMOVE), 0
        for family in self.families:
            for table, multiple in zip(family.sets, family_multiples(family).tolist(), strict=True):
                one = replace(family, sets=table[None], multiples=np.ones(1, dtype=np.int64))
                heard = used.scaled(multiple, self.grain).response(k, self.apart, alike=not table.size)
                total += certified_bound([one], sizes, added, 2) * heard
        # |x - y|^2 <= 2 |x|^2 + 2 |y|^2, of one who goes and one who comes
        return Fraction(total * (1 if unit.neighbours is Neighbours.ADD_REMOVE else 4))

    def change(self, sizes: dict[str, int], unit: PrivacyUnit) -> int:
        """The largest sum_A (multiple |X_A change|)^2 of one period.

        Added or removed: at most so many columns, so a count that is cut changes by no more. Replaced, every record
        counted: a difference of two columns, and nothing is cut. Replaced persons, who may be in other periods and may
        be cut: one is removed and one added, each at its own price, and where no response of the filter is negative
        twice what their tables can point apart; elsewhere they may point apart altogether.
        """
        if unit.total_is_public:
            return certified_bound(self.families, sizes, unit, 2, self.certificate)
        each = self._added(sizes, replace(unit, neighbours=Neighbours.ADD_REMOVE))
        if unit.neighbours is Neighbours.ADD_REMOVE:
            return each
        apart = (
            unit.rows_per_person**2 * negative_products_bound(self.families, sizes) if self.filter.nonnegative else each
        )
        return 2 * (each + min(each, apart))

    def _added(self, sizes: dict[str, int], unit: PrivacyUnit) -> int:
        """That of one person added.

        Of rows that are counted once per group some may cancel others. Where counts are cut, other people decide which
        of a person's rows are left in which table; so no table may count on what costs most in another, and each is
        taken at its own worst. Without groups it makes no difference: a row costs what it does, whatever others do.
        """
        if not (unit.once_per and self.cuts(unit)):
            return certified_bound(self.families, sizes, unit, 2)
        anywhere = certified_bound(self.families, sizes, replace(unit, once_per=(), rows_per_group=1), 2)
        alone, total = dict[tuple[object, ...], int](), 0
        for family in self.families:
            for table, multiple in zip(family.sets, family_multiples(family).tolist(), strict=True):
                # tables that look alike cost alike, up to their multiples
                alike = [(family.names[a], sizes[family.names[a]], family.factors[a]) for a in table.tolist()]
                key = tuple((name if name in unit.once_per else "", n, factor) for name, n, factor in alike)
                if key not in alone:
                    one = replace(family, sets=table[None], multiples=np.ones(1, dtype=np.int64))
                    alone[key] = certified_bound([one], sizes, unit, 2)
                total += multiple**2 * alone[key]
        return min(anywhere, total)

    def cuts(self, unit: PrivacyUnit) -> bool:
        """Whether counts above the largest stand for it.

        Not where the number of records is public, and a period with more is refused. Sums of the last counts are right
        modulo 2^64 whatever they are, so that no cut is needed; where it would cost something there is none.
        """
        return not unit.total_is_public and not (unit.once_per and isinstance(self.filter, WindowFilter))

    def cells(self, unit: PrivacyUnit) -> int:
        """The most cells of one table that change between neighbours, in all periods together."""
        return self.participations * unit.rows_per_person * (1 if unit.neighbours is Neighbours.ADD_REMOVE else 2)

    def columns(self) -> int:
        """The sum over all tables of the squared length of the largest column of their maps, without multiples."""
        each = (np.array([_largest_column_norm(f) for f in a.factors], dtype=object)[a.sets] for a in self.families)
        return sum(int(tables.prod(axis=1).sum()) for tables in each)

    def fits(self, price: Event, sizes: dict[str, int], unit: PrivacyUnit) -> bool:
        """Whether all that is ever measured costs at most `price`; exact rationals decide."""
        if type(price) is not GaussianEvent:
            return False
        return self.squared_shift(sizes, unit) <= price.mu_squared * self.noise.sigma**2


def negative_products_bound(families: Sequence[FamilyMap], sizes: dict[str, int]) -> int:
    """An upper bound of sum_A max(0, -<multiple X_A u, multiple X_A v>) over any two cells u and v.

    The inner product of a table is a product of one for every attribute, so what is added up is convex in each of these
    and largest where all are at an end of their range. Of few attributes all combinations of ends are looked at; of
    many the worst of each table by itself, in which one attribute alone is at its lower end: none is below minus the
    upper one.
    """
    terms = MapTerms.of(families, sizes, 2)
    tops = [slot.top(2) for slot in terms.slots]
    lows = [slot.ends[1] if slot.alike else -top for slot, top in zip(terms.slots, tops, strict=True)]
    if len(tops) <= _MOST_TOGETHER:
        chosen = itertools.product(*zip(lows, tops, strict=True))
        return max(
            sum(-int(np.minimum(set_products(c, b.sets) * b.weights, 0).sum()) for b in terms.bundles) for c in chosen
        )
    shares = np.array([Fraction(-low, max(top, 1)) for low, top in zip(lows, tops, strict=True)])
    each = (set_products(tops, b.sets) * b.weights * shares[b.sets].max(axis=1, initial=0) for b in terms.bundles)
    return sum(math.ceil(table.sum()) for table in each)


def _largest_column_norm(factor: object) -> int:
    if not isinstance(factor, Map):
        raise PlanError("what a stream measures was not lowered to the closed set of maps")
    return max(map(int, factor.column_sums(2)))


def family_multiples(family: FamilyMap) -> NDArray[np.int64]:
    """(tables,) the multiples of a family that has them."""
    assert family.multiples is not None
    return family.multiples


@storable
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Published:
    """What came out of one period of a stream: noisy values of every family, and the number of records where that is
    public. Publishable."""

    label: str
    values: tuple[NDArray[np.int64], ...]
    total: int | None = None

    def __post_init__(self) -> None:
        if type(self.label) is not str or (self.total is not None and type(self.total) is not int):
            raise InvalidInput("a period has a label, and a total where that is public")
        if not all(v.dtype == np.int64 and v.ndim == 1 for v in self.values):
            raise InvalidInput("published values are int64 arrays")
