"""What a stream costs: measurements of the same tables in every period, by one integer filter over time.

Of every set A of attributes the table v_A is filtered cell by cell (`privacy.filters`), its columns shrunk by
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
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InvalidInput, PlanError
from sfumato.ground.codec import storable
from sfumato.ground.later import later
from sfumato.maps import FamilyMap, Map
from sfumato.privacy.accountant import Event, GaussianEvent
from sfumato.privacy.filters import IntegerFilter, WindowFilter
from sfumato.privacy.noise import RoundedGaussian
from sfumato.privacy.sensitivity import Certificate, certified
from sfumato.privacy.sums import products
from sfumato.privacy.terms import Terms
from sfumato.privacy.unit import Neighbours, PrivacyUnit

__all__ = ["Published", "StreamTerms", "multiples_of", "opposed"]

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
    time; 0: they are not counted. Raises PlanError.
    """

    filter: IntegerFilter | WindowFilter
    families: tuple[FamilyMap, ...]
    grain: int
    noise: RoundedGaussian
    participations: int
    apart: int
    most: int
    certificate: Certificate | None = None
    enforced: bool = later(False)
    cut: int = later(0)

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
        if any(int(multiples_of(f).max()) > 2**self.grain for f in self.families):
            raise PlanError(f"a multiple is above 2^{self.grain}, which stands for 1")
        if type(self.cut) is not int or not 0 <= self.cut <= 2**self.grain or (self.cut and not self.enforced):
            raise PlanError("who is left out is counted where rows are, with a multiple of at most that of 1")
        self.filter.check_count(self.most)

    @property
    def beside(self) -> StreamTerms:
        """The stream of persons who are left out for the first time: one cell, in which everybody has one period."""
        names, factors = self.families[0].names, self.families[0].factors
        cell = FamilyMap(names, factors, np.zeros((1, 0), dtype=np.int32), np.array([self.cut]))
        alone = {"participations": 1, "apart": 1, "certificate": None, "enforced": False, "cut": 0}
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
        if self.participations > 1 and unit.person is None:
            raise PlanError("whoever is in several periods is a person; name the column that says whose record it is")
        change = self.change(sizes, unit) * self.filter.response(self.participations, self.apart)
        exact = Fraction(change, 4 ** (self.grain + self.filter.shift))
        rounded = self.cells(unit) ** 2 * self.columns() * self.filter.rounding_squared()
        if not exact * rounded:
            return exact + rounded
        # the square of their roots' sum: 2 sqrt(x y) <= x / t + t y for any t, and alike where t^2 = x / y
        middle = Fraction(math.sqrt(exact / rounded))
        return exact + rounded + exact / middle + rounded * middle

    def change(self, sizes: dict[str, int], unit: PrivacyUnit) -> int:
        """The largest sum_A (multiple |X_A change|)^2 of one period.

        Added or removed: at most so many columns, so a count that is cut changes by no more. Replaced, every record
        counted: a difference of two columns, and nothing is cut. Replaced persons, who may be in other periods and may
        be cut: one is removed and one added, each at its own price, and where no response of the filter is negative
        twice what their tables can point apart; elsewhere they may point apart altogether.
        """
        if unit.neighbours is Neighbours.ADD_REMOVE or unit.total_is_public:
            return certified(self.families, sizes, unit, 2, self.certificate)
        alone = PrivacyUnit(Neighbours.ADD_REMOVE, unit.person, unit.rows_per_person)
        each = certified(self.families, sizes, alone, 2)
        apart = unit.rows_per_person**2 * opposed(self.families, sizes) if self.filter.nonnegative else each
        return 2 * (each + min(each, apart))

    def cells(self, unit: PrivacyUnit) -> int:
        """The most cells of one table that change between neighbours, in all periods together."""
        return self.participations * unit.rows_per_person * (1 if unit.neighbours is Neighbours.ADD_REMOVE else 2)

    def columns(self) -> int:
        """The sum over all tables of the squared length of the largest column of their maps, without multiples."""
        each = (np.array([_largest_column(f) for f in a.factors], dtype=object)[a.sets] for a in self.families)
        return sum(int(tables.prod(axis=1).sum()) for tables in each)

    def fits(self, price: Event, sizes: dict[str, int], unit: PrivacyUnit) -> bool:
        """Whether all that is ever measured costs at most `price`; exact rationals decide."""
        if type(price) is not GaussianEvent:
            return False
        return self.squared_shift(sizes, unit) <= price.mu_squared * self.noise.sigma**2


def opposed(families: Sequence[FamilyMap], sizes: dict[str, int]) -> int:
    """An upper bound of sum_A max(0, -<multiple X_A u, multiple X_A v>) over any two cells u and v.

    The inner product of a table is a product of one for every attribute, so what is added up is convex in each of these
    and largest where all are at an end of their range. Of few attributes all combinations of ends are looked at; of
    many the worst of each table by itself, in which one attribute alone is at its lower end: none is below minus the
    upper one.
    """
    terms = Terms.of(families, sizes, 2)
    tops = [slot.top(2) for slot in terms.slots]
    lows = [slot.ends[1] if slot.alike else -top for slot, top in zip(terms.slots, tops, strict=True)]
    if len(tops) <= _MOST_TOGETHER:
        chosen = itertools.product(*zip(lows, tops, strict=True))
        return max(
            sum(-int(np.minimum(products(c, b.sets) * b.weights, 0).sum()) for b in terms.bundles) for c in chosen
        )
    shares = np.array([Fraction(-low, max(top, 1)) for low, top in zip(lows, tops, strict=True)])
    each = (products(tops, b.sets) * b.weights * shares[b.sets].max(axis=1, initial=0) for b in terms.bundles)
    return sum(math.ceil(table.sum()) for table in each)


def _largest_column(factor: object) -> int:
    if not isinstance(factor, Map):
        raise PlanError("what a stream measures was not lowered to the closed set of maps")
    return max(map(int, factor.column_sums(2)))


def multiples_of(family: FamilyMap) -> NDArray[np.int64]:
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
