"""Which labels are shown: the law computed exactly for small tables, audits by events, and mutants of both.

Bound of every event S: a law that is 1 - delta of one as hard to tell apart as mu-GDP asks has
P'(S) <= delta + (1 - delta) Phi(Phi^-1(min(1, P(S) / (1 - delta))) + mu). The hardest events are those of the largest
likelihood ratio, all of which are looked at. Delta is .05, so that what is wrong is far beyond rounding.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import log_ndtr, ndtr, ndtri

import sfumato as sf
from sfumato.curator.labels import check_looks, open_labels, show_labels
from sfumato.errors import BudgetError, BudgetExceeded, PlanError
from sfumato.mechanisms.labels import label_rounds, select_labels
from sfumato.privacy import labels as law_module
from sfumato.privacy.accounting import (
    Account,
    ApproxGaussianEvent,
    GaussianEvent,
    event_delta,
    event_from_text,
    event_price,
    event_to_text,
)
from sfumato.privacy.amounts import Currency
from sfumato.privacy.labels import LabelLook, LabelSelection, are_rounds_whole
from sfumato.privacy.noise import RoundedGaussian
from sfumato.privacy.unit import PrivacyUnit
from support.audits import bounds

DELTA = Fraction(1, 20)
MU = 0.9
ADD, REPLACE = (PrivacyUnit(n, "who", 6) for n in ("add-remove", "replace-one"))
Persons = tuple[int, ...]
"""Which labels a person has."""


def selection(unit: PrivacyUnit = ADD, delta: Fraction = DELTA, mu: float = MU) -> LabelSelection:
    return select_labels(unit, Fraction(mu) ** 2, delta)


def chances(law: LabelSelection, persons: Sequence[Persons], most: int | None = None) -> dict[int, float]:
    """The exact probability that each label is shown, of those that occur; `most` labels of a person count."""
    sums: dict[int, int] = {}
    for labels in persons:
        kept = labels[: law.per_person if most is None else most]
        for label in kept:
            # where more count than the law knows of, each has what the most have
            sums[label] = sums.get(label, 0) + law.added(min(len(kept), law.per_person))
    sigma = float(law.noise.sigma)
    return {label: float(ndtr((s - law.threshold + 0.5) / sigma)) for label, s in sums.items()}


def excess(one: dict[int, float], other: dict[int, float], mu: float, delta: float) -> float:
    """By how much the worst event in one world is above its bound from the other, in either direction."""
    names = sorted(one.keys() | other.keys())
    laws = []
    for world in (one, other):
        p = np.ones(1)
        for name in names:
            q = world.get(name, 0.0)
            p = np.concatenate([p * (1 - q), p * q])
        laws.append(p)
    worst = -math.inf
    for p, q in (laws, laws[::-1]):
        order = np.argsort(-np.divide(q, p, out=np.full_like(p, np.inf), where=p > 0), kind="stable")
        seen, there = np.cumsum(p[order]), np.cumsum(q[order])
        most = delta + (1 - delta) * ndtr(ndtri(np.minimum(1, seen / (1 - delta))) + mu)
        worst = max(worst, float((there - most).max()))
    return worst


def tables(law: LabelSelection, most: int | None = None) -> float:
    """The worst excess over small tables: some labels others have, some one person alone has, 1 to 6 in all."""
    per_label = law.threshold / law.weight
    worst = -math.inf
    for shared, own in itertools.product(range(4), range(7)):
        if not 1 <= shared + own <= 6:
            continue
        person = tuple(range(shared + own))
        for near in (0.3, 0.9, 1.2):
            others = [(label,) for label in range(shared) for _ in range(max(1, round(near * per_label)))]
            before = chances(law, others, most)
            worst = max(worst, excess(before, chances(law, [*others, person], most), MU, float(law.delta)))
    return worst


def test_small_tables_keep_the_bound_exactly() -> None:
    """Every event of every small table, by enumeration; labels that one person has alone come close to delta."""
    found = tables(selection())
    assert -1e-3 < found <= 1e-12


def test_replaced_persons_keep_the_bound_exactly() -> None:
    law = selection(REPLACE)
    others = [(label,) for label in range(2) for _ in range(round(law.threshold / law.weight))]
    worst = -math.inf
    for one, other in itertools.combinations([(0,), (1,), (0, 1), (2,), (2, 3), (0, 2), (2, 3, 4, 5, 6, 7), ()], 2):
        worst = max(worst, excess(chances(law, [*others, one]), chances(law, [*others, other]), MU, float(DELTA)))
    assert -0.02 < worst <= 1e-12
    # at the price of one person added, the change is more than was paid for
    assert not law.costs_at_most(REPLACE, ApproxGaussianEvent(Fraction(MU) ** 2 * Fraction(99, 100), DELTA))
    assert selection().costs_at_most(ADD, ApproxGaussianEvent(Fraction(MU) ** 2, DELTA))
    assert not selection().costs_at_most(REPLACE, ApproxGaussianEvent(Fraction(MU) ** 2, DELTA))


def test_a_threshold_for_one_label_alone_is_seen_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: of one person's labels only the case of a single one is looked at."""
    real = law_module._keeps_delta
    monkeypatch.setattr(
        law_module, "_keeps_delta", lambda rounds, weight, per, t, delta: real(rounds, weight, 1, t, delta)
    )
    one = select_labels(PrivacyUnit("add-remove"), Fraction(MU) ** 2, DELTA)
    assert tables(LabelSelection(one.noise, one.weight, 6, one.threshold, DELTA)) > 0.02


def test_more_labels_than_count_are_seen_to_fail() -> None:
    """Mutant: all labels of a person count, whatever `per_person` says."""
    law = select_labels(PrivacyUnit("add-remove", "who", 2), Fraction(MU) ** 2, DELTA)
    assert tables(law) <= 1e-12
    assert tables(law, most=6) > 0.02


def test_the_root_left_out_is_seen_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a person adds the whole weight to each of several labels; thresholds are found by the same."""
    monkeypatch.setattr(LabelSelection, "added", lambda self, count: self.weight)
    assert tables(selection()) > 0.02


def test_added_weights_are_the_floors_of_roots() -> None:
    law = selection()
    for count in range(1, 300):
        added = law.added(count)
        assert added**2 * count <= law.weight**2 < (added + 1) ** 2 * count


@pytest.mark.parametrize("delta", [Fraction(1, 20), Fraction(1, 10**6), Fraction(1, 10**12)])
@pytest.mark.parametrize("rows", [1, 6, 100])
def test_the_threshold_is_the_least_that_is_proved(delta: Fraction, rows: int) -> None:
    """Mutant: a guess of doubles that nobody checks; a number of labels that is left out."""
    unit = PrivacyUnit("add-remove", "who", rows)
    law = select_labels(unit, Fraction(1, 4), delta)
    with pytest.raises(PlanError, match="above delta"):
        LabelSelection(law.noise, law.weight, law.per_person, law.threshold - 1, delta)
    above = [(law.threshold - law.added(n) - 0.5) / float(law.noise.sigma) for n in range(1, rows + 1)]
    chance = [-math.expm1(n * float(log_ndtr(x))) for n, x in enumerate(above, start=1)]
    assert float(delta) * 0.999 < max(chance) <= float(delta) * 1.000001
    # where delta is large, one label alone would have a lower threshold; where it is small, one label is the worst
    assert delta < 0.01 or (chance[0] < 0.9 * float(delta)) == (rows > 1)


def test_labels_of_one_person_alone_are_shown_about_as_often_as_allowed() -> None:
    """By events: the real noise, rounding and comparison, for the worst number of labels."""
    law = selection()
    frame = pd.DataFrame({"who": ["a"] * 6, "label": list("uvwxyz")})
    found = open_labels(frame, LabelLook("label", False, 100, law, ApproxGaussianEvent(1, DELTA)), ADD)
    sums = law.sums(len(found.labels), *found.lines(law.per_person))
    assert set(sums.tolist()) == {law.added(6)}
    draws = 200_000
    hits = len(set((law.shown(np.tile(sums, draws), 6 * draws) // 6).tolist()))
    low, high = bounds(hits, draws)
    exact = 1 - math.prod(1 - p for p in chances(law, [tuple(range(6))]).values())
    assert low <= exact <= high
    assert low <= float(DELTA)


def in_rounds(delta: Fraction = DELTA, whole: bool = True) -> list[LabelSelection]:
    """Two rounds, of a quarter and the rest; without `whole` the second's threshold is that of its own sums alone."""
    first = select_labels(ADD, Fraction(MU) ** 2 / 4, delta / 2)
    more = (ADD, Fraction(MU) ** 2 * 3 / 4, delta / 2)
    second = select_labels(*more, before=first.rounds, times=3)
    if not whole:
        object.__setattr__(second, "threshold", 3 * select_labels(*more).threshold)
    return [first, second]


def chances_in_rounds(
    laws: Sequence[LabelSelection], persons: Sequence[Persons]
) -> dict[tuple[Persons, Persons], float]:
    """The exact probability of what is shown in the first of two rounds, and then of all that both showed."""
    first, second = laws
    names = sorted({label for labels in persons for label in labels})

    def sums(law: LabelSelection, gone: Persons) -> dict[int, int]:
        found = dict.fromkeys(names, 0)
        for labels in persons:
            left = [label for label in labels[: law.per_person] if label not in gone]
            for label in left:
                found[label] += law.added(len(left))
        return found

    sigma, other = float(first.noise.sigma), float(second.noise.sigma)
    steps = (np.arange(4_000) + 0.5) / 4_000
    before = sums(first, ())
    found: dict[tuple[Persons, Persons], float] = {}
    for shown in itertools.chain.from_iterable(itertools.combinations(names, n) for n in range(len(names) + 1)):
        reached = {n: float(ndtr((before[n] - first.threshold + 0.5) / sigma)) for n in names}
        p = math.prod(reached[n] if n in shown else 1 - reached[n] for n in names)
        after, later = sums(second, shown), dict[int, float]()
        for n in (n for n in names if n not in shown):
            # the first sum, of which it is known that it stays below the threshold
            y = before[n] + sigma * ndtri(steps * (1 - reached[n]))
            far = (first.times * y + second.times * after[n] - second.threshold + 2) / (second.times * other)
            later[n] = float(ndtr(far).mean())
        for more in itertools.chain.from_iterable(itertools.combinations(later, n) for n in range(len(later) + 1)):
            q = math.prod(later[n] if n in more else 1 - later[n] for n in later)
            found[shown, tuple(sorted((*shown, *more)))] = p * q
    return found


def excess_in_rounds(laws: Sequence[LabelSelection]) -> float:
    """The worst excess of events over small tables, of labels that others have and that one person alone has."""
    per_label = laws[1].threshold / laws[1].whole / laws[1].weight
    worst = -math.inf
    for shared, own, near in itertools.product(range(3), range(4), (0.4, 1.0, 1.6)):
        if not 1 <= shared + own <= 4:
            continue
        others = [(label,) for label in range(shared) for _ in range(max(1, round(near * per_label)))]
        one = chances_in_rounds(laws, others)
        other = chances_in_rounds(laws, [*others, tuple(range(shared + own))])
        names = sorted(one.keys() | other.keys())
        p, q = (np.array([world.get(name, 0.0) for name in names]) for world in (one, other))
        assert abs(p.sum() - 1) < 1e-9
        for a, b in ((p, q), (q, p)):
            order = np.argsort(-np.divide(b, a, out=np.full_like(a, np.inf), where=a > 0), kind="stable")
            seen, there = np.cumsum(a[order]), np.cumsum(b[order])
            most = float(DELTA) + (1 - float(DELTA)) * ndtr(ndtri(np.minimum(1, seen / (1 - float(DELTA)))) + MU)
            worst = max(worst, float((there - most).max()))
    return worst


def test_rounds_whose_sums_are_added_up_keep_the_bound_exactly() -> None:
    """Every event of small tables. Mutants: a threshold that does not know of the sums before; all of delta in each."""
    assert -0.02 < excess_in_rounds(in_rounds()) <= 1e-6
    assert excess_in_rounds(in_rounds(whole=False)) > 0.02
    assert excess_in_rounds(in_rounds(2 * DELTA)) > 0.005


def test_rounds_show_labels_of_one_person_alone_no_oftener_than_all_may() -> None:
    """By events, through the table: what others share is shown at first, and the weight goes to what is left.
    Mutant: sums of rounds that are not added up."""
    laws = in_rounds()
    often = 3 * laws[0].threshold // laws[0].weight
    rows = [(f"p{i}", label) for i in range(often) for label in "ab"] + [("a", label) for label in "abuvwx"]
    frame = pd.DataFrame(rows, columns=["who", "label"])
    found = open_labels(frame, LabelLook("label", False, 100, laws[0], ApproxGaussianEvent(1, DELTA)), ADD)
    draws, hits = 20_000, 0
    for _ in range(draws):
        shown = {*found.shown(laws, 100)}
        assert shown >= {"a", "b"}
        hits += bool(shown & {*"uvwx"})
    low, high = bounds(hits, draws)
    assert low <= float(DELTA)
    table = chances_in_rounds(laws, [tuple(range(6)), *[(0, 1)] * often])
    assert low <= sum(p for (_, shown), p in table.items() if {*shown} - {0, 1}) <= high


def test_persons_take_no_labels_in_place_of_those_that_were_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else noise of a round in which one person alone had a label would be added up. Mutant: others in their place."""
    laws = [replace(law, per_person=4) for law in in_rounds()]
    often = 4 * laws[0].threshold // laws[0].weight
    rows = [(f"p{i}", label) for i in range(often) for label in "ab"]
    rows += [(f"q{i}", label) for i in range(30) for label in ("a", "b", *(f"q{i}{n}" for n in range(4)))]
    look = LabelLook("label", False, 100, laws[0], ApproxGaussianEvent(1, DELTA))
    found = open_labels(pd.DataFrame(rows, columns=["who", "label"]), look, ADD)
    added: list[set[str]] = []
    real = LabelSelection.sums

    def seen(law: LabelSelection, *given: Any) -> Any:
        sums = real(law, *given)
        added.append({str(label) for label in found.labels[sums > 0]})
        return sums

    monkeypatch.setattr(LabelSelection, "sums", seen)
    found.shown(laws, 100)
    assert {"a", "b"} <= added[0] - added[1]
    assert added[1] < added[0]


@pytest.mark.parametrize("rows", [2, 100])
def test_rounds_cost_a_label_next_to_nothing(rows: int) -> None:
    """Of labels that nobody's other labels make lighter, as many are shown as in one round, but for .5 %.

    Mutant: rounds whose sums are not added up.
    """
    unit, price = PrivacyUnit("add-remove", "who", rows), ApproxGaussianEvent(Fraction(1, 20), Fraction(1, 2_000_000))
    one = select_labels(unit, price.mu_squared, price.delta)
    looks = label_rounds("d", sf.Categories(discover=0.5), price, unit)
    assert sum(k.price.mu_squared for k in looks) == price.mu_squared
    assert sum(k.price.delta for k in looks) == price.delta
    last = looks[-1].selection
    for z in (-3, -2, -1, 0, 1, 2):
        s = one.threshold + z * float(one.noise.sigma)  # of a label, in one round
        again = float(ndtr((last.whole * s - last.threshold) / float(last.spread)))
        assert again > 0.995 * float(ndtr((s - one.threshold) / float(one.noise.sigma)))


def test_rounds_that_were_not_drawn_are_not_added_up() -> None:
    """Mutant: a round that says of those before it that they had less noise."""
    price = ApproxGaussianEvent(1, DELTA)
    first, second = in_rounds()
    looks = [LabelLook("d", False, 100, law, price) for law in (first, second)]
    assert are_rounds_whole(looks)
    smaller = ((1, first.noise.sigma / 2),)
    lied = select_labels(ADD, Fraction(MU) ** 2 * 3 / 4, DELTA / 2, before=smaller, times=3)
    assert not are_rounds_whole([looks[0], LabelLook("d", False, 100, lied, price)])
    assert not are_rounds_whole(looks[1:])
    with pytest.raises(PlanError, match="other rounds"):
        check_looks([looks[0], replace(looks[1], selection=lied)], ADD)
    for wrong in (((0, first.noise.sigma),), ((31, first.noise.sigma),), ((1, Fraction(2**41)),)):
        with pytest.raises(PlanError):
            replace(second, before=wrong)
    with pytest.raises(PlanError, match="times"):
        replace(first, times=2)


def drawn_codes(seed: int) -> pd.DataFrame:
    """Persons with codes of one to four letters."""
    random = np.random.default_rng(seed)
    codes = ["".join(random.choice(list("ABé1"), random.integers(1, 5))) for _ in range(300)]
    return pd.DataFrame({"who": [f"p{i}" for i in random.integers(0, 40, 300)], "label": codes})


def test_prefixes_of_a_person_hang_on_that_persons_rows_and_on_what_was_shown() -> None:
    """Each prefix once a person, in the order of the person's own digest, whoever else is in the table.

    Mutants: a prefix counted once for every label under it; prefixes numbered among all persons' lines; labels under
    prefixes that were not shown; labels that are shorter.
    """
    frame = drawn_codes(3)
    look = LabelLook("label", False, 100, selection(), ApproxGaussianEvent(1, DELTA))
    shown = ("AA", "Bé", "é1")

    def lines(frame: pd.DataFrame, letters: int, length: int, above: Sequence[str], most: int) -> list[tuple[str, int]]:
        cut = open_labels(frame, look, ADD).cut(letters, length, above)
        place, had, persons = cut.lines(most)
        assert set(persons.tolist()) <= {1}
        return sorted((str(cut.labels[i]), int(n)) for i, n in zip(place, had, strict=True))

    for letters, length, above in ((2, 0, ()), (3, 2, shown), (0, 2, shown)):
        alone: list[tuple[str, int]] = []
        for _, own in frame.groupby("who"):
            texts = {x for x in own["label"] if len(x) >= letters and (not length or x[:length] in above)}
            wanted = {x[:letters] if letters else x for x in texts}
            found = lines(own, letters, length, above, 100)
            assert {x for x, _ in found} == wanted
            assert all(n == len(wanted) for _, n in found)
            alone += lines(own, letters, length, above, 2)
        assert lines(frame, letters, length, above, 2) == sorted(alone)


def test_prefixes_of_one_person_alone_are_shown_no_oftener_than_all_looks_may() -> None:
    """By events: one person has codes under a prefix that others have and under two of the person's own."""
    law = select_labels(ADD, Fraction(MU) ** 2, DELTA / 2)
    often = 3 * law.threshold // law.weight
    rows = [(f"p{i}", "A0") for i in range(often)] + [("a", code) for code in ("A1", "A2", "A3", "B1", "B2", "C1")]
    frame = pd.DataFrame(rows, columns=["who", "label"])
    price = ApproxGaussianEvent(1, DELTA / 2)
    looks = [LabelLook("label", False, 100, law, price, letters) for letters in (1, 0)]
    tables = {"label": open_labels(frame, looks[0], ADD)}
    hits, draws = 0, 6_000
    for _ in range(draws):
        first, last = show_labels(looks, tables).values()
        assert {x[:1] for x in last} <= {*first}
        hits += bool({*first, *last} - {"A", "A0"})
    low, high = bounds(hits, draws)
    assert low <= float(DELTA)
    # of the person's three prefixes two are nobody else's, and then three labels under that of others
    of_three = chances(law, [tuple(range(3))])[0]
    assert low <= 1 - (1 - of_three) ** 5 <= high + 0.003  # more labels count after another prefix was shown


def test_shown_labels_are_those_that_reach_the_threshold() -> None:
    law = selection()
    far = 100 * int(law.noise.sigma)
    sums = np.array([1, far, 3 * far, 2 * far, 0], dtype=np.int64)
    assert law.shown(sums, 10).tolist()[-3:] == [1, 2, 3]
    assert law.shown(sums, 2).tolist() == [2, 3]


def test_noise_alone_shows_no_label() -> None:
    """Mutant: labels to which nobody adds, because their persons have others, are compared with the threshold."""
    law = selection(delta=Fraction(9, 10), mu=0.01)
    assert law.threshold < 2 * law.noise.sigma
    assert law.shown(np.zeros(10_000, dtype=np.int64), 10_000).size == 0
    assert law.shown(np.ones(10_000, dtype=np.int64), 10_000).size > 0


# -- accounting ----------------------------------------------------------------------------------------


def test_mu_squared_and_delta_add_up() -> None:
    event = ApproxGaussianEvent("1/3", "1e-6")
    assert event_price(event, Currency.MU_SQUARED) == Fraction(1, 3)
    assert event_price(event, Currency.RHO) == Fraction(1, 6)
    assert event_delta(event) == Fraction(1, 10**6)
    assert event_from_text(event_to_text(event)) == event
    with pytest.raises(BudgetError, match="epsilon"):
        event_price(event, Currency.EPSILON)
    account = Account(event)
    account.spend(ApproxGaussianEvent("1/6", "6e-7"))
    with pytest.raises(BudgetExceeded, match="delta"):
        account.spend(ApproxGaussianEvent("1/12", "6e-7"))
    account.spend(GaussianEvent("1/6"))
    with pytest.raises(BudgetExceeded):
        account.spend(GaussianEvent("1e-9"))


def test_a_law_states_no_more_than_it_keeps() -> None:
    law = selection()
    for change in (
        {"weight": 2**17},
        {"weight": 0},
        {"per_person": 0},
        {"per_person": 1_001},
        {"threshold": 0},
        {"delta": Fraction(0)},
        {"delta": Fraction(1, 1000)},
        {"noise": RoundedGaussian(law.noise.sigma * 2)},
        {"per_person": 200},
    ):
        held = {n: getattr(law, n) for n in ("noise", "weight", "per_person", "threshold", "delta")}
        with pytest.raises(PlanError):
            LabelSelection(**(held | change))
