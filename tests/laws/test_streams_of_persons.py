"""People with several rows a period in periods that are apart: prices against all they can do, bounds against
strategies."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import PlanError
from sfumato.operators import Family, Residual
from sfumato.privacy.accounting import GaussianEvent
from sfumato.privacy.noise import RoundedGaussian
from sfumato.privacy.sensitivity import certified_bound
from sfumato.privacy.stream_price import IntegerFilter, Published, StreamTerms, WindowFilter, family_multiples
from sfumato.privacy.unit import PrivacyUnit
from sfumato.releases.released import Provenance
from sfumato.releases.streams import History
from sfumato.strategies.participation_bounds import participation_bound
from sfumato.strategies.participation_shapes import lowered_filter
from sfumato.strategies.time_errors import errors_of_filter
from sfumato.strategies.time_shapes import banded_filter, integer_filter
from support.seeded import draws
from support.streams import drawn, drawn_window, filtered, heard

PAIRS = 400
SHAPE = (2, 4)
NAMES = ("a", "b")
SIZES = dict(zip(NAMES, SHAPE, strict=True))
ONE = RoundedGaussian(Fraction(1))
GROUPS: tuple[tuple[tuple[str, ...], int, int], ...] = (
    (("b",), 3, 1),
    (("b",), 4, 1),
    (("a", "b"), 5, 1),
    (("b",), 5, 2),
)
"""Attributes of which a person has so many rows, and as many in each of their cells."""


def families(rng: np.random.Generator, grain: int, sets: Any = ((), (0,), (1,), (0, 1))) -> tuple[Any, ...]:
    """Residuals of some tables, with multiples at random."""
    factors = [Residual(n) for n in SHAPE]
    found = []
    for s in sets:
        chosen = np.array([s], dtype=np.int32).reshape(1, len(s))
        found.append(Family(NAMES, factors, chosen, rng.integers(1, 2**grain + 1, size=1)).lowered())
    return tuple(found)


def rows_of(rng: np.random.Generator, unit: PrivacyUnit) -> np.ndarray:
    """A table (2, 4) of rows that a person may have counted in a period: often one cell of each group, and all full."""
    table, cells = np.zeros(SHAPE, dtype=np.int64), [*itertools.product(*map(range, SHAPE))]
    groups: dict[tuple[int, ...], int] = {}
    full, order = bool(rng.integers(2)), rng.permutation(len(cells))
    for i in [*order, *order, *order]:
        group = tuple(cells[i][NAMES.index(a)] for a in unit.once_per)
        many = min(unit.rows_per_group - groups.get(group, 0), unit.rows_per_person - int(table.sum()))
        many = many if full else int(rng.integers(0, many + 1))
        table[cells[i]] += many
        groups[group] = groups.get(group, 0) + many
    return table


def persons(rng: np.random.Generator, terms: StreamTerms, unit: PrivacyUnit) -> np.ndarray:
    """(periods, pairs, 2, 4) the rows of one person each, half of them alike in all periods, in as many as may be."""
    n, out = terms.filter.periods, np.zeros((terms.filter.periods, PAIRS, *SHAPE), dtype=np.int64)
    for pair in range(PAIRS):
        early, same = bool(rng.integers(2)), bool(rng.integers(2))
        t, kept = (0 if early else int(rng.integers(n))), rows_of(rng, unit)
        for _ in range(terms.participations):
            if t < n:
                out[t, pair] = kept if same else rows_of(rng, unit)
            t += terms.apart + (0 if early else int(rng.integers(2)))
    return out


def measured(terms: StreamTerms, tables: np.ndarray, *, cut: bool) -> list[np.ndarray]:
    """Per table (periods, pairs, rows) values without noise, of tables (periods, pairs, 2, 4), in Python's integers."""
    n, pairs = tables.shape[:2]
    out = []
    for family in terms.families:
        for axes, multiple in zip(family.sets.tolist(), family_multiples(family).tolist(), strict=True):
            table = tables.sum(axis=tuple(2 + a for a in range(2) if a not in axes)).reshape(n, -1)
            table = np.minimum(table, terms.most) if cut else table
            matrix = np.ones((1, 1), dtype=np.int64)
            for a in axes:
                matrix = np.kron(matrix, Residual(SHAPE[a]).matvec(np.eye(SHAPE[a], dtype=np.int64)))
            y = filtered(terms.filter_of(family), table, multiple, terms.grain).reshape(n, pairs, -1)
            out.append(y @ matrix.T.astype(object))
    return out


def shifts(terms: StreamTerms, tables: np.ndarray, others: np.ndarray, unit: PrivacyUnit) -> np.ndarray:
    """(pairs,) squared lengths of the change of all values."""
    cut = terms.cuts(unit)
    pairs = zip(measured(terms, others, cut=cut), measured(terms, tables, cut=cut), strict=True)
    return sum((((a - b) ** 2).sum(axis=(0, 2)) for a, b in pairs), np.zeros(tables.shape[1], dtype=object))


def ratio(found: np.ndarray, bound: Fraction) -> float:
    return isqrt(int(max(found) * 10**12 / bound)) / 1e6


def terms_of(rng: np.random.Generator, kind: str, k: int, b: int, most: int) -> StreamTerms:
    def tried() -> Any:
        if kind == "buffers":
            return drawn(rng, alike=True, bits=20)
        return drawn_window(rng, most=b if kind == "banded" else 2 * b + 2, bits=20)

    while (used := tried()).periods <= (k - 1) * b:
        pass
    grain = int(rng.integers(0, 4))
    return StreamTerms(used, families(rng, grain), grain, ONE, k, b, most)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("kind", ["buffers", "banded", "shared"])
def test_a_person_of_few_rows_in_each_group_changes_no_more_than_is_priced(kind: str, relation: str) -> None:
    """With counts that are cut, and not, in all periods and in few. 9,600 pairs.

    Mutants: as if a person had one row; the rows of one period; the diagonal of a window that holds several alone; two
    persons who are replaced as one.
    """
    rng, one, worst = np.random.default_rng([1, len(kind), len(relation)]), 0.0, 0.0
    for once_per, rows, each in GROUPS:
        unit = PrivacyUnit(relation, "id", rows, once_per=once_per, rows_per_group=each)
        for most in (2, 100):
            terms = terms_of(rng, kind, 3, 2, most)
            tables = rng.integers(0, 4, size=(terms.filter.periods, PAIRS, *SHAPE))
            before = tables if relation == "add-remove" else tables + persons(rng, terms, unit)
            found = shifts(terms, before, tables + persons(rng, terms, unit), unit)
            bound = terms.squared_shift(SIZES, unit)
            assert ratio(found, bound) <= 1
            worst = max(worst, ratio(found, bound))
            one = max(one, ratio(found, terms.squared_shift(SIZES, PrivacyUnit(relation, "id"))))
    assert one > 1  # the mutant is seen
    assert worst > (0.75 if relation == "add-remove" and kind != "shared" else 0.3)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("kind", ["buffers", "banded"])
def test_a_total_with_a_filter_of_its_own_costs_what_both_cost(kind: str, relation: str) -> None:
    """The total's taps have both signs and reach over several periods. 6,400 pairs.

    Mutants: the total's filter left out of the price; the total priced as if it went through the filter of all else;
    what costs most in one of the two, in place of their sum.
    """
    rng, seen = (
        np.random.default_rng([5, len(kind), len(relation)]),
        dict.fromkeys(("left out", "as all else", "one"), 0.0),
    )
    worst = 0.0
    for once_per, rows, each in GROUPS:
        unit = PrivacyUnit(relation, "id", rows, once_per=once_per, rows_per_group=each)
        for scale in (14, 21):
            terms = terms_of(rng, kind, 3, 2, int(rng.choice([2, 100])))
            n = terms.filter.periods
            taps = rng.integers(-(2**scale) // 2, 2**scale, size=(n, n))
            terms = replace(terms, total=WindowFilter(np.ones(n, dtype=np.int64), taps))
            tables = rng.integers(0, 4, size=(n, PAIRS, *SHAPE))
            before = tables if relation == "add-remove" else tables + persons(rng, terms, unit)
            found = shifts(terms, before, tables + persons(rng, terms, unit), unit)
            rest, own = (part.tables_shift(SIZES, unit) for part in terms.parts)
            assert terms.squared_shift(SIZES, unit) == rest + own
            assert ratio(found, rest + own) <= 1
            worst = max(worst, ratio(found, rest + own))
            priced = (rest, replace(terms, total=None).squared_shift(SIZES, unit), max(rest, own))
            seen = {name: max(seen[name], ratio(found, p)) for name, p in zip(seen, priced, strict=True)}
    assert seen["left out"] > 1
    assert seen["as all else"] > 1
    assert worst > (0.7 if relation == "add-remove" else 0.3)


def test_what_people_do_to_both_filters_is_reached() -> None:
    """Three rows of one cell in every period of theirs: the price of both, where the total costs most in as many
    periods as there may be; no less is private. In five periods it costs less than in four, and all else costs more.

    Mutants: the larger of the two; both in as many periods as cost the total most; one row.
    """
    unit, n = PrivacyUnit("add-remove", "id", 3), 7
    maps = families(np.random.default_rng(6), 0, ((), (0, 1)))
    gram = 5 * np.eye(n) - 0.7
    lower = np.linalg.cholesky(gram[::-1, ::-1])[::-1, ::-1].T
    entries = np.array([np.append(lower[u:, u], np.zeros(u)) for u in range(n)])
    total = integer_filter(entries)
    for k in (4, 5):
        terms = StreamTerms(WindowFilter([n], [[2**23]]), maps, 0, ONE, k, 1, 100, total=total)
        tables = np.zeros((n, 1, *SHAPE), dtype=np.int64)
        more = tables.copy()
        more[:k, 0, 1, 1] = 3
        found = int(shifts(terms, tables, tables + more, unit)[0])
        bound = terms.squared_shift(SIZES, unit)
        rest, own = (part.tables_shift(SIZES, unit) for part in terms.parts)
        assert max(rest, own) < found <= bound == rest + own
        if k == 4:
            assert found > 0.999999 * bound
            assert terms.fits(GaussianEvent(bound), SIZES, unit)
            assert not terms.fits(GaussianEvent(bound - 1), SIZES, unit)
        else:
            assert (
                own
                == terms.parts[1].response(SIZES, unit)
                == replace(terms, participations=4).parts[1].response(SIZES, unit)
            )
            assert found > replace(terms, participations=4).squared_shift(SIZES, unit)


def test_rows_that_are_opposed_cost_more_where_products_of_periods_are_below_0() -> None:
    """A row of one cell and later one of another: in the table its products turn their sign, in the total they do not.

    Mutant: products with their signs in tables as in the total.
    """
    unit, n = PrivacyUnit("add-remove", "id"), 5
    used = WindowFilter([n], [[10, 0, -8]])
    terms = StreamTerms(used, families(np.random.default_rng(6), 0, ((), (0,))), 0, ONE, 2, 2, 100, total=used)
    tables = np.zeros((n, 1, *SHAPE), dtype=np.int64)
    more = tables.copy()
    more[0, 0, 0, 0] = more[2, 0, 1, 0] = 1
    rest, own = (part.squared_shift(SIZES, unit) for part in terms.parts)
    (total, table) = (
        int(((b - a) ** 2).sum())
        for a, b in zip(measured(terms, tables, cut=False), measured(terms, tables + more, cut=False), strict=True)
    )
    # two columns of length 164, whose product is -80; a row is 1 in the total, (1, -1) or (-1, 1) in the residuals
    assert total == 2 * 164 - 2 * 80 <= own == 2 * 164
    assert table == rest == 2 * (2 * 164 + 2 * 80)


def test_a_total_of_its_own_filter_stands_beside_other_tables() -> None:
    """Mutants: a filter of other periods; of no table; of all there is; one that rounds."""
    terms = StreamTerms(WindowFilter([4], [[3]]), families(np.random.default_rng(7), 0), 0, ONE, 2, 2, 5)
    own = WindowFilter([4], [[2, 1]])
    assert [len(p.families) for p in replace(terms, total=own).parts] == [3, 1]
    alone, rest = terms.families[:1], terms.families[1:]
    wrong: list[dict[str, Any]] = [
        {"total": WindowFilter([5], [[2]])},
        {"total": own, "families": alone},
        {"total": own, "families": rest},
        {"total": drawn(np.random.default_rng(1), alike=True)},
    ]
    for change in wrong:
        with pytest.raises(PlanError, match="filter of its own"):
            replace(terms, **change)


def test_tables_that_are_cut_are_priced_one_by_one() -> None:
    """Four rows of four wards: their residuals cancel, so what costs most is how wards and sexes go together. Where the
    counts of two wards are full, those cancel no more. Mutant: the price of all tables together, as for rows that all
    tables see."""
    unit = PrivacyUnit("add-remove", "id", 4, once_per=("b",))
    used = IntegerFilter([[1, 1]], 0, [1], [1], [2**30], [[0]])
    terms = StreamTerms(used, families(np.random.default_rng(2), 0, ((1,), (0, 1))), 0, ONE, 1, 1, 10)
    tables = np.full((1, 1, *SHAPE), 3, dtype=np.int64)
    tables[0, 0, :, 2:] = 5
    more = np.zeros_like(tables)
    more[0, 0] = [[1, 0, 1, 0], [0, 1, 0, 1]]
    found = shifts(terms, tables, tables + more, unit)[0]
    together = certified_bound(terms.families, SIZES, unit, 2) * used.response()
    assert together < found <= terms.squared_shift(SIZES, unit)
    # sums of the last counts need no cut, and are not cut
    banded = StreamTerms(WindowFilter([1], [[2**20]]), terms.families, 0, ONE, 1, 1, 10)
    assert terms.cuts(unit)
    assert not banded.cuts(unit)
    assert banded.cuts(replace(unit, once_per=()))
    joint = certified_bound(terms.families, SIZES, unit, 2) * 2**40
    assert shifts(banded, tables, tables + more, unit)[0] <= banded.squared_shift(SIZES, unit) == joint


def patterns(n: int, k: int, b: int) -> list[tuple[int, ...]]:
    return [
        p
        for size in range(1, min(k, n) + 1)
        for p in itertools.combinations(range(n), size)
        if all(y - x >= b for x, y in itertools.pairwise(p))
    ]


def test_windows_that_hold_several_periods_are_priced_by_all_patterns() -> None:
    """Of rows that add up alike, and of rows that may be opposed in other periods, by brute force.

    Mutants: as many periods as there may be, where fewer cost more; signs where rows may be opposed; halves of taps
    without their mixed products.
    """
    rng, fewer = np.random.default_rng(3), 0
    for _ in range(draws(60)):
        used = drawn_window(rng, most=8, bits=24)
        n, matrix = used.periods, heard(used)
        for k, b in ((2, 1), (3, 2), (4, 1)):
            some = patterns(n, k, b)
            along = [int((matrix[:, list(p)].sum(axis=1) ** 2).sum()) for p in some]
            opposed = 0
            for p in some:
                for signs in itertools.product([-1, 1], repeat=len(p) - 1):
                    opposed = max(opposed, int(((matrix[:, list(p)] @ np.array([1, *signs], dtype=object)) ** 2).sum()))
            assert max(along) <= used.response(k, b, alike=True) <= used.response(k, b)
            assert opposed <= used.response(k, b)
            fewer += len(some[int(np.argmax(along))]) < min(k, -(-n // b))
            if used.taps.shape[1] <= n:
                gram = matrix.T @ matrix
                assert (used._products() == gram.astype(np.int64)).all()
    assert fewer > 10
    with pytest.raises(PlanError, match="1,024 periods"):
        WindowFilter([2_000], [[3, 2]]).response(2, 1)


def test_the_lowered_band_is_priced_as_it_was_found_and_errs_less() -> None:
    """Of totals; all patterns of a short stream, with one and two rows in each. Mutant: rows of a period that are not
    squared; the price of the band; the largest number of periods alone; a bound of the total in which rows of two
    classes do not add up."""
    given = sf.periods(14, per_person=4, apart=3, objective="mean")
    used, band = lowered_filter(given), banded_filter(given, 3)
    matrix = heard(used)
    exact = max(int((matrix[:, list(p)].sum(axis=1) ** 2).sum()) for p in patterns(14, 4, 3))
    assert exact <= used.response(4, 3, alike=True) <= exact * 1.01
    errors = [float(errors_of_filter(f).mean(given.questions)) for f in (used, band)]
    prices = [used.response(4, 3, alike=True), band.response(4, 3)]
    assert errors[0] * prices[0] < 0.98 * errors[1] * prices[1]
    found = [participation_bound(given, share, 60) for share in (0.0, 0.5, 1.0)]
    assert all(errors[0] * prices[0] > bound.total**2 * (1 - 1e-9) for bound in found)
    assert errors[0] * prices[0] < found[0].rest ** 2  # tables could not: a bound of these is none of the total


@pytest.mark.parametrize(("n", "k", "b"), [(6, 2, 2), (9, 3, 2), (8, 4, 2), (7, 2, 1), (8, 3, 3)])
def test_no_strategy_errs_less_than_the_bounds(n: int, k: int, b: int) -> None:
    """Strategies at random, near the best and far from it, priced by all patterns; those of tables by all signs.

    Mutants: moments of other periods; a law that does not add up to 1; weights of periods that do not.
    """
    rng, given = np.random.default_rng([4, n, k, b]), sf.periods(n, per_person=k, apart=b, objective="mean")
    totals, nearest, largest = np.tri(n), [np.inf, np.inf], [np.inf, np.inf]
    some = patterns(n, k, b)
    for whole in (0.0, 0.5, 1.0):
        bound = participation_bound(given, whole, 60)
        worst = participation_bound(sf.periods(n, per_person=k, apart=b), whole, 60)
        for _ in range(60):
            lower = np.tril(rng.normal(scale=rng.choice([0.02, 0.1, 0.5]), size=(n, n)), -1) + np.eye(n)
            root = np.array([1.0, *np.cumprod((2 * np.arange(1, n) - 1) / (2 * np.arange(1, n)))])
            kept = np.subtract.outer(np.arange(n), np.arange(n))
            toeplitz = np.where((kept >= 0) & (kept < rng.choice([b, n])), root[np.maximum(kept, 0)], 0.0)
            strategy = toeplitz @ lower
            strategy /= np.sqrt((strategy**2).sum(axis=0))
            gram = strategy.T @ strategy
            errors = ((totals @ np.linalg.inv(strategy)) ** 2).sum(axis=1)
            error = float(errors.mean())
            price = max(gram[np.ix_(p, p)].sum() for p in some)
            signed = max(
                np.array([1, *s]) @ gram[np.ix_(p, p)] @ np.array([1, *s])
                for p in some
                for s in itertools.product([-1, 0, 1], repeat=len(p) - 1)
            )
            for i, (found, least) in enumerate(((price, bound.total), (signed, bound.rest))):
                assert (error * found) ** 0.5 >= least
                nearest[i] = min(nearest[i], (error * found) ** 0.5 / least)
            for i, (found, least) in enumerate(((price, worst.worst_total), (signed, worst.worst_rest))):
                assert (errors.max() * found) ** 0.5 >= least
                largest[i] = min(largest[i], (errors.max() * found) ** 0.5 / least)
    assert max(nearest) < 1.25
    assert max(largest) < 1.25


YEAR = sf.periods(365, per_person=12, apart=30, objective="mean")


def planned(work: sf.Workload, **options: Any) -> Any:
    options = {"neighbours": "add-remove", "person": "id", "rows_per_person": 3, "periods": YEAR} | options
    return sf.plan(work, sf.gdp(1), **options)


def test_a_year_of_visits_errs_at_most_a_twentieth_more_than_is_proved_possible() -> None:
    """365 days, twelve a person, thirty apart, three rows a day: of a total, of wards with and without once_per, and of
    a total beside tables.

    Mutants: a bound of people in one period; strategies of before; rows once per ward priced as rows anywhere; one
    strategy over time for the total and all else.
    """
    domain = sf.Domain({"sex": 2, "age": 10, "ward": 30})
    wards = sf.marginals(domain, sets=[("ward",)])
    several = sf.marginals(domain, upto=1)
    found = [planned(sf.total(domain)), planned(wards), planned(wards, once_per=["ward"])]
    found += [planned(several), planned(several, once_per=["ward"])]
    for plan in found:
        assert plan.bound < plan.asked_mean <= 1.05 * plan.bound
        plan.check()
    assert [type(p.terms.filter) for p in found] == [WindowFilter] * 5
    assert all(p.terms.total is not None for p in found[3:])
    assert found[0].terms.filter.taps.shape[1] > 30
    # three rows of one ward cost nine, of three wards three; residuals of wards, which cancel in part, a little less
    assert 3**0.5 < found[1].asked_mean / found[2].asked_mean < 1.8


def test_the_worst_period_of_a_year_errs_at_most_a_twentieth_more_than_is_proved_possible() -> None:
    """Mutants: the bound of the mean; a bound of one period alone."""
    over = sf.periods(365, per_person=12, apart=30)
    domain = sf.Domain({"sex": 2, "age": 10, "ward": 30})
    for work in (sf.total(domain), sf.marginals(domain, upto=1)):
        plan = planned(work, periods=over)
        assert plan.lower_bound == plan.worst_bound < plan.objective_value <= 1.05 * plan.worst_bound
        assert plan.bound < plan.worst_bound
        assert "in the worst period" in str(plan.describe())


def test_a_total_has_no_filter_of_its_own_where_errors_would_not_add_up() -> None:
    """Cells that are known to be empty tie the total to tables. Mutants: a filter of its own there, for the
    largest error, or for a strategy that was asked for."""
    over = sf.periods(30, per_person=5, apart=6, objective="mean")
    domain = sf.Domain({"sex": 2, "ward": 5})
    work = sf.marginals(domain, upto=1)
    assert planned(work, periods=over).terms.total is not None
    tied = sf.Domain({"sex": 2, "ward": 5}, impossible=["sex == 0 and ward == 1"])
    others: list[Any] = [
        planned(sf.marginals(tied, upto=2), periods=over),
        planned(work, periods=over, neighbours="replace-one"),
        planned(work, periods=over, objective="max"),
        planned(work, periods=over, mechanism=sf.mechanisms.continual(strategy="banded")),
        planned(work, periods=replace(over, objective="worst")),
    ]
    assert [plan.terms.total for plan in others] == [None] * len(others)


def test_answers_of_two_filters_err_as_they_say(tmp_path: Path) -> None:
    """Of 400 streams of noise alone: the total, whose noise over time is another, and tables, in sums and one by one.

    Mutants: one variance over time for both; the total as it is measured, with the multiple of an answer; the roots of
    ratios turned round.
    """
    domain = sf.Domain({"sex": 2, "ward": 5})
    over = sf.periods(30, per_person=5, apart=6, objective="mean", promised=True)
    plan = planned(sf.marginals(domain, upto=1), periods=over)
    assert plan.terms.total is not None
    plan.check()
    plan.save(tmp_path / "plan.sfumato")
    again = sf.load(tmp_path / "plan.sfumato")
    assert again.fingerprint == plan.fingerprint
    rng, found, maps, sigma = np.random.default_rng(8), [], plan.terms.families, float(plan.terms.noise.sigma)
    for _ in range(draws(400)):
        published = [
            Published(f"p{t}", tuple(np.rint(rng.normal(0, sigma, f.rows)).astype(np.int64) for f in maps))
            for t in range(12)
        ]
        history = History(plan)
        history.follow(published)
        made = Provenance("test", "", 0, "", one_shot=True, created="", versions=())
        both = [history.between(first, 12, made) for first in (1, 12)]
        found.append([a.answers / a.plan.standard_errors() for a in both])
    spread = np.sqrt((np.array(found) ** 2).mean(axis=0))
    assert abs(spread - 1).max() < 0.15
    # the errors that are told by period are those of the answers
    for question, period in (("totals", 12), ("increments", 12), ("last 3", 30)):
        one = plan.at(question, period).mean_error
        assert one == pytest.approx(float(plan.curve(question)[period - 1]), rel=1e-4)
    several = plan.curve("totals")
    assert plan.asked_mean == pytest.approx(float(np.sqrt((several**2).mean())), rel=1e-9)
    assert plan.rmse == pytest.approx(
        float(np.sqrt(np.mean([plan.at("totals", t + 1).rmse ** 2 for t in range(30)]))), rel=1e-4
    )
