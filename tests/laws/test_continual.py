"""What a stream is priced by, against all that neighbours do to what is measured, in exact integers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from math import isqrt
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.curator.rows.counting import TensorCounts
from sfumato.curator.streams.measuring import first_cells, measure_period, state_shapes
from sfumato.errors import PlanError
from sfumato.maps import FamilyMap
from sfumato.operators import Dense, Family, Residual
from sfumato.operators.structured import Prefix
from sfumato.privacy.accounting import GaussianEvent, ZcdpEvent
from sfumato.privacy.noise import DiscreteGaussian, RoundedGaussian
from sfumato.privacy.sensitivity import certified_bound
from sfumato.privacy.stream_price import (
    IntegerFilter,
    StreamTerms,
    WindowFilter,
    family_multiples,
    negative_products_bound,
)
from sfumato.privacy.unit import PrivacyUnit
from support.insecure_bits import InsecureTestBits
from support.streams import drawn, drawn_window, filtered

PAIRS = 1_000
"""Of streams under every setting. Neighbours by adding: 12 settings, 12,000 pairs; by replacing: 16, 16,000."""

SHAPE = (2, 3)
NAMES = ("a", "b")
SIZES = dict(zip(NAMES, SHAPE, strict=True))
ONE = RoundedGaussian(Fraction(1))


def families(rng: np.random.Generator, grain: int, first: Any = None) -> tuple[FamilyMap, ...]:
    """Maps of the total, of both attributes and of their table, with multiples at random."""
    factors = (Residual(2) if first is None else first, Residual(3))
    sets = [np.zeros((1, 0), dtype=np.int32), np.array([[0], [1]], dtype=np.int32), np.array([[0, 1]], dtype=np.int32)]
    return tuple(Family(NAMES, factors, s, rng.integers(1, 2**grain + 1, size=len(s))).lowered() for s in sets)


def terms_of(rng: np.random.Generator, k: int, b: int, *, bits: int, most: int = 100, first: Any = None) -> StreamTerms:
    grain = int(rng.integers(0, 4))

    def tried() -> Any:
        if rng.integers(3):
            return drawn(rng, alike=k > 1, bits=bits)
        return drawn_window(rng, most=b if k > 1 else 8, bits=bits)

    while (used := tried()).periods <= (k - 1) * b:
        pass
    return StreamTerms(used, families(rng, grain, first), grain, ONE, k, b, most)


def dense(family: FamilyMap, i: int) -> np.ndarray:
    """The map of one table, without its multiple."""
    out = np.ones((1, 1), dtype=np.int64)
    for a in family.sets[i].tolist():
        out = np.kron(out, family.factors[a].apply(np.eye(SHAPE[a], dtype=np.int64)))
    return out


def measured(terms: StreamTerms, tables: np.ndarray, *, cut: bool) -> list[np.ndarray]:
    """Per table (periods, pairs, rows) values without noise, of tables (periods, pairs, 2, 3), in Python's integers."""
    out = []
    n, pairs = tables.shape[:2]
    for family in terms.families:
        for i, axes in enumerate(family.sets.tolist()):
            table = tables.sum(axis=tuple(2 + a for a in range(2) if a not in axes)).reshape(n, -1)
            table = np.minimum(table, terms.most) if cut else table
            y = filtered(terms.filter_of(family), table, int(family_multiples(family)[i]), terms.grain)
            y = y.reshape(n, pairs, -1)
            out.append(y @ dense(family, i).T.astype(object))
    return out


def shifts(terms: StreamTerms, tables: np.ndarray, others: np.ndarray, *, cut: bool) -> np.ndarray:
    """(pairs,) squared lengths of the change of all values."""
    pairs = zip(measured(terms, others, cut=cut), measured(terms, tables, cut=cut), strict=True)
    return sum((((a - b) ** 2).sum(axis=(0, 2)) for a, b in pairs), np.zeros(tables.shape[1], dtype=object))


def records(rng: np.random.Generator, n: int, k: int, b: int, rows: int) -> np.ndarray:
    """(periods, pairs, 2, 3) the records of one person each, in at most k periods at least b apart."""
    out = np.zeros((n, PAIRS, *SHAPE), dtype=np.int64)
    cells = np.array(list(itertools.product(*map(range, SHAPE))))
    for pair in range(PAIRS):
        # half of them as early and as often as is allowed, in one cell
        early = bool(rng.integers(2))
        period, cell = (0 if early else int(rng.integers(n))), cells[rng.integers(6)]
        for _ in range(k):
            if period >= n:
                break
            for _ in range(rows if early else int(rng.integers(1, rows + 1))):
                out[period, pair][tuple(cell if early else cells[rng.integers(6)])] += 1
            period += b if early else b + int(rng.integers(2))
    return out


def ratio(found: np.ndarray, bound: Fraction) -> float:
    return isqrt(int(max(found) * 10**12 / bound)) / 1e6


@pytest.mark.parametrize(("k", "b", "rows"), [(1, 1, 1), (1, 1, 3), (2, 2, 1), (3, 1, 2)])
@pytest.mark.parametrize("bits", [3, 8, 20])
def test_a_person_added_changes_no_more_than_is_priced(k: int, b: int, rows: int, bits: int) -> None:
    """With counts that are cut, and not. 12,000 pairs.

    Mutants: no rounding; rows not squared; participations of one; the diagonal left out; the largest multiple alone.
    """
    rng = np.random.default_rng([1, k, b, rows, bits])
    unit = PrivacyUnit("add-remove", "id" if rows * k > 1 else None, rows)
    worst = 0.0
    for most in (3, 100):
        terms = terms_of(rng, k, b, bits=bits, most=most)
        n = terms.filter.periods
        tables = rng.integers(0, 4, size=(n, PAIRS // 2, *SHAPE))
        more = records(rng, n, k, b, rows)[:, : PAIRS // 2]
        found = ratio(shifts(terms, tables, tables + more, cut=True), terms.squared_shift(SIZES, unit))
        assert found <= 1
        worst = max(worst, found)
    assert bits < 20 or worst > 0.9


@pytest.mark.parametrize("bits", [3, 8, 20])
def test_a_record_replaced_changes_no_more_than_is_priced(bits: int) -> None:
    """Every record is counted, nothing is cut. Mutants: the price of an added record, one cell in place of two."""
    rng = np.random.default_rng([2, bits])
    unit = PrivacyUnit("replace-one")
    for first in (None, Prefix(2)):
        terms = terms_of(rng, 1, 1, bits=bits, first=first)
        tables, others = replaced(rng, terms)
        assert ratio(shifts(terms, tables, others, cut=False), terms.squared_shift(SIZES, unit)) <= 1


def replaced(rng: np.random.Generator, terms: StreamTerms) -> tuple[np.ndarray, np.ndarray]:
    n = terms.filter.periods
    tables = rng.integers(0, 4, size=(n, PAIRS, *SHAPE))
    others = tables.copy()
    for pair in range(PAIRS):
        t, *cells = int(rng.integers(n)) * int(rng.integers(2)), *rng.integers(0, 3, size=2)
        tables[t, pair][int(rng.integers(2)), cells[0]] += 1
        others[t, pair][int(rng.integers(2)), cells[1]] += 1
    return tables, others


def test_a_cut_under_replace_one_would_cost_more() -> None:
    """Why a period of too many records is refused there: a cut turns a difference of columns into a column."""
    # all that tells cells of b apart is differences of neighbours; whole columns are ten times as long
    factors = (Residual(2), Prefix(3))
    alone = Family(NAMES, factors, np.array([[1]], dtype=np.int32), np.array([1])).lowered()
    used = IntegerFilter([[1, 1]], 0, [2], [1], [1000], [[1]])
    terms = StreamTerms(used, (alone,), 0, ONE, 1, 1, 2)
    bound = terms.squared_shift(SIZES, PrivacyUnit("replace-one"))
    tables = np.zeros((2, 1, *SHAPE), dtype=np.int64)
    tables[0, 0, 0] = [0, 2, 0]
    others = tables.copy()
    tables[0, 0, 0, 0] += 1
    others[0, 0, 0, 1] += 1
    assert shifts(terms, tables, others, cut=False)[0] <= bound < shifts(terms, tables, others, cut=True)[0]


@pytest.mark.parametrize(("k", "b", "rows"), [(1, 1, 1), (2, 2, 2)])
@pytest.mark.parametrize("bits", [3, 20])
@pytest.mark.parametrize("first", [None, Prefix(2)])
def test_persons_replaced_change_no_more_than_is_priced(k: int, b: int, rows: int, bits: int, first: Any) -> None:
    """Each in periods of their own, half of them in the same; counts cut in some tables and not in others. 8,000 pairs.

    Mutants: the price of a record; two added persons who never point apart; rows that do so once and not squared.
    """
    rng = np.random.default_rng([4, k, bits])
    unit = PrivacyUnit("replace-one", "id", rows)
    terms = terms_of(rng, k, b, bits=bits, most=3, first=first)
    n = terms.filter.periods
    tables = rng.integers(0, 3, size=(n, PAIRS, *SHAPE))
    one, other = (records(rng, n, k, b, rows) for _ in range(2))
    # the same periods, other cells
    other[:, ::2] = np.roll(one, 1, axis=-1)[:, ::2, ::-1]
    found = shifts(terms, tables + one, tables + other, cut=True)
    assert ratio(found, terms.squared_shift(SIZES, unit)) <= 1


def alone(axes: list[list[int]], multiples: list[int]) -> tuple[FamilyMap, ...]:
    """Residuals of some tables, with their multiples."""
    given = zip(axes, multiples, strict=True)
    factors = (Residual(2), Residual(3))
    sets = [(np.array(s, dtype=np.int32).reshape(1, len(s)), [m]) for s, m in given]
    return tuple(Family(NAMES, factors, s, np.array(m)).lowered() for s, m in sets)


def test_persons_replaced_may_point_apart_in_some_tables_and_not_be_counted_in_others() -> None:
    """Two periods that are heard alike, in one of which the total is full: so the total moves for one person alone,
    and the table of sexes by both, who point apart. Mutant: the larger of two added and of one replaced, all counted.
    """
    used = IntegerFilter([[1, 30]], 0, [400], [1], [2**30], [[2**30]])
    terms = StreamTerms(used, alone([[], [0]], [4, 4]), 2, ONE, 1, 1, 5)
    tables = np.zeros((400, 1, *SHAPE), dtype=np.int64)
    tables[1, 0, :, 1] = 3, 3
    first, second = tables.copy(), tables.copy()
    first[0, 0, 0, 0] += 1
    second[1, 0, 1, 0] += 1
    found = shifts(terms, first, second, cut=True)[0]
    unit = PrivacyUnit("replace-one", "id")
    scale = Fraction(used.response(), 4**terms.grain)
    added = certified_bound(terms.families, SIZES, PrivacyUnit("add-remove", "id"), 2)
    replaced_ = certified_bound(terms.families, SIZES, unit, 2)
    assert max(2 * added, replaced_) * scale < found <= terms.squared_shift(SIZES, unit) < 4 * added * scale


def test_rows_of_persons_who_point_apart_do_so_in_pairs() -> None:
    """Two of each: four times as far as one. Mutants: rows that are not squared, twice the price of one added."""
    terms = StreamTerms(IntegerFilter([[1, 1]], 0, [1], [1], [1000], [[0]]), alone([[0]], [1]), 0, ONE, 1, 1, 100)
    tables = np.zeros((1, 1, *SHAPE), dtype=np.int64)
    others = tables.copy()
    tables[0, 0, 0, 0] = others[0, 0, 1, 0] = 2
    found = shifts(terms, tables, others, cut=True)[0]
    bound = terms.squared_shift(SIZES, PrivacyUnit("replace-one", "id", 2))
    assert found == 4 * 8 * 1000**2 <= bound < found * Fraction(101, 100)


def test_responses_of_both_signs_point_apart_altogether() -> None:
    """Mutant: taps of both signs priced as if no two periods were heard with opposite signs."""
    used = WindowFilter([3], [[1000, -1000]])
    terms = StreamTerms(used, alone([[]], [1]), 0, ONE, 1, 1, 5)
    tables = np.zeros((3, 1, *SHAPE), dtype=np.int64)
    others = tables.copy()
    tables[0, 0, 0, 0] = others[1, 0, 0, 0] = 1
    found = shifts(terms, tables, others, cut=True)[0]
    unit = PrivacyUnit("replace-one", "id")
    assert found == 6 * 1000**2 <= terms.squared_shift(SIZES, unit)
    there = StreamTerms(WindowFilter([3], [[1000, 1000]]), alone([[]], [1]), 0, ONE, 1, 1, 5)
    assert there.squared_shift(SIZES, unit) == 4 * 1000**2 < terms.squared_shift(SIZES, unit)


@pytest.mark.parametrize("last", [None, Dense(np.array([[3, -2], [1, 1]]))])
@pytest.mark.parametrize("shape", [(2, 2), (2, 2, 2), (3, 4, 2), (1, 2), (2,) * 5])
def test_what_tables_can_point_apart_is_no_less_than_any_two_cells_do(
    shape: tuple[int, ...], last: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against all pairs of cells. Mutants: a lower end that is the upper one, or 0 where columns are not alike; one
    combination alone; the least share; a table's least share."""
    rng, names = np.random.default_rng(shape), [f"x{i}" for i in range(len(shape))]
    factors = [*(Residual(n) for n in shape[:-1]), last or Residual(2)]
    sizes = dict(zip(names, shape, strict=True))
    cells, wanted, given = np.indices(shape).reshape(len(shape), -1), 0, []
    for order in range(min(len(shape), 3) + 1):
        sets = list(itertools.combinations(range(len(shape)), order))
        multiples = rng.integers(1, 9, size=len(sets))
        given.append(
            Family(names, factors, np.array(sets, dtype=np.int32).reshape(len(sets), order), multiples).lowered()
        )
        for chosen, multiple in zip(sets, multiples.tolist(), strict=True):
            grams = [(lambda m: m.T @ m)(factors[a].matvec(np.eye(shape[a], dtype=np.int64))) for a in chosen]
            pairs = [g[np.ix_(cells[a], cells[a])] for a, g in zip(chosen, grams, strict=True)]
            inner = multiple**2 * np.prod([np.ones((cells.shape[1],) * 2, dtype=np.int64), *pairs], axis=0)
            wanted = wanted + np.maximum(0, -inner)
    found = negative_products_bound(given, sizes)
    assert found >= wanted.max()
    assert last is not None or found == wanted.max()
    monkeypatch.setattr("sfumato.privacy.stream_price._MOST_TOGETHER", -1)
    assert found <= negative_products_bound(given, sizes) <= 1.5 * found


@pytest.mark.parametrize("cut", [True, False])
def test_a_period_is_measured_as_priced(cut: bool) -> None:
    """The wall's own arithmetic is the one above. Noise of this deviation is 0 but with probability e^-100,000.

    Mutants: multiples applied twice, the state of another table, no cut, states that are not kept; a total that goes
    through the filter of all else, or whose state is that of another cell.
    """
    rng = np.random.default_rng(5)
    for i in range(20):
        terms = terms_of(rng, 1, 1, bits=20, most=5)
        if i % 2:
            n = terms.filter.periods
            taps = rng.integers(-(2**20), 2**20, size=(n, int(rng.integers(1, n + 1))))
            terms = replace(terms, total=WindowFilter(np.ones(n, dtype=np.int64), taps))
        quiet = replace(terms, noise=RoundedGaussian(Fraction(1, 1024)))
        tables = rng.integers(0, 4, size=(terms.filter.periods, 1, *SHAPE))
        wanted = measured(terms, tables, cut=cut)
        for t, found in enumerate(periods(quiet, tables, cut=cut)):
            assert (found == np.concatenate([w[t, 0] for w in wanted])).all()


def test_every_value_has_noise_of_its_own() -> None:
    """Mutants: noise of one row for all, one draw for all tables, none for the total."""
    terms = replace(terms_of(np.random.default_rng(8), 1, 1, bits=4), noise=RoundedGaussian(Fraction(2**40)))
    tables = np.zeros((terms.filter.periods, 1, *SHAPE), dtype=np.int64)
    drawn_ = np.concatenate(list(periods(terms, tables, cut=True)))
    assert len(set(drawn_.tolist())) == drawn_.size > 10
    assert abs(drawn_).min() > 2**30
    assert abs(drawn_).max() < 2**43


def periods(terms: StreamTerms, tables: np.ndarray, *, cut: bool) -> Iterator[np.ndarray]:
    """What the wall measures in every period."""
    grid, starts = sf.Domain(SIZES).grid, first_cells(terms, SHAPE)
    states = [np.zeros(s, dtype=np.int64) for s in state_shapes(terms, SHAPE)]
    for t, (table,) in enumerate(tables):
        counts = TensorCounts(grid, int(table.sum()), table)
        yield np.concatenate(measure_period(terms, t, counts, starts, states, cut=cut, bits=InsecureTestBits(t)))


def test_two_persons_may_be_in_two_periods() -> None:
    """Mutant: the price of one record in place of another, which is the difference of two columns of one period."""
    alone = Family(NAMES, (Prefix(2), Residual(3)), np.array([[0]], dtype=np.int32), np.array([1])).lowered()
    terms = StreamTerms(IntegerFilter([[1, 1]], 0, [2], [1], [1000], [[0]]), (alone,), 0, ONE, 1, 1, 5)
    tables = np.zeros((2, 1, *SHAPE), dtype=np.int64)
    others = tables.copy()
    tables[0, 0, 0, 0] = others[1, 0, 0, 0] = 1
    found = shifts(terms, tables, others, cut=True)[0]
    assert found == 4 * 1000**2 <= terms.squared_shift(SIZES, PrivacyUnit("replace-one", "id"))


def test_every_cell_that_changes_may_be_rounded() -> None:
    """Responses of a 64th: two records that a floor moves by 1 each. Mutants: one cell; cells for their square."""
    alone = Family(NAMES, (Residual(2), Prefix(3)), np.array([[1]], dtype=np.int32), np.array([1])).lowered()
    terms = StreamTerms(IntegerFilter([[1, 1]], 6, [1], [1], [1], [[0]]), (alone,), 0, ONE, 1, 1, 100)
    tables = np.zeros((1, 1, *SHAPE), dtype=np.int64)
    tables[0, 0, 0] = [63, 63, 0]
    others = tables.copy()
    others[0, 0, 0] += [1, 1, 0]
    found = shifts(terms, tables, others, cut=True)[0]
    assert found == 9 <= terms.squared_shift(SIZES, PrivacyUnit("add-remove", "id", 2)) < 14
    terms = replace(terms, families=(replace(alone, factors=(Residual(2).lowered(), Residual(3).lowered())),))
    others[0, 0, 0] = [64, 62, 0]
    tables[0, 0, 0] = [63, 64, 0]
    found = shifts(terms, tables, others, cut=False)[0]
    assert found == 18 <= terms.squared_shift(SIZES, PrivacyUnit("replace-one"))


def test_what_costs_more_than_its_price_does_not_fit() -> None:
    """Mutants: a price of another kind believed, a sensitivity in place of its square."""
    terms = terms_of(np.random.default_rng(6), 1, 1, bits=10)
    unit = PrivacyUnit("add-remove")
    exact = terms.squared_shift(SIZES, unit)
    assert terms.fits(GaussianEvent(exact), SIZES, unit)
    assert not terms.fits(GaussianEvent(exact * Fraction(10**9 - 1, 10**9)), SIZES, unit)
    assert not terms.fits(ZcdpEvent(exact * 100), SIZES, unit)


def test_terms_refuse_what_makes_no_sense() -> None:
    rng = np.random.default_rng(7)
    used, given = drawn(rng), families(rng, 2)
    n = used.periods
    good = (used, given, 2, ONE, 1, 1, 100)
    StreamTerms(*good)
    for place, bad in (
        (1, ()),
        (1, (FamilyMap(NAMES, given[1].factors, given[1].sets),)),
        (2, 1),
        (2, 31),
        (3, DiscreteGaussian(Fraction(1))),
        (4, 0),
        (4, n + 1),
        (5, 0),
        (6, 0),
    ):
        changed = [*good]
        changed[place] = bad
        if (place, bad) == (2, 1):
            changed[1] = (FamilyMap(NAMES, given[1].factors, given[1].sets, np.array([3, 1])),)
        with pytest.raises(PlanError):
            StreamTerms(*changed)
    with pytest.raises(PlanError, match="so far apart"):
        StreamTerms(used, given, 2, ONE, 2, n, 100)
    with pytest.raises(PlanError, match="person"):
        StreamTerms(drawn_alike(rng), given, 2, ONE, 2, 1, 100).squared_shift(SIZES, PrivacyUnit("add-remove"))


def drawn_alike(rng: np.random.Generator) -> IntegerFilter:
    while (used := drawn(rng, alike=True)).periods < 2:
        pass
    return used


def test_rounding_adds_its_length_to_that_of_the_response() -> None:
    """(a + b)^2, not a^2 + b^2. Mutants: no cross term, or half of it."""
    rng, unit = np.random.default_rng(11), PrivacyUnit("add-remove")
    for bits in (3, 12, 40):
        terms = terms_of(rng, 1, 1, bits=bits)
        used = terms.filter
        exact = Fraction(terms.change(SIZES, unit) * used.response(), 4 ** (terms.grain + used.shift))
        rounded = terms.columns() * used.rounding_squared()
        cross = terms.squared_shift(SIZES, unit) - exact - rounded
        assert 4 * exact * rounded <= cross**2 <= 4 * exact * rounded * (1 + Fraction(1, 10**12))
