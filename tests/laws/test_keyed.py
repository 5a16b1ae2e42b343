"""What measuring keys costs: sensitivities by brute force, and the stability histogram's exact law, both relations.

Every test names the mutants that it was seen to fail on.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from sfumato.errors import PlanError
from sfumato.mechanisms.sketches import least_threshold
from sfumato.privacy.accounting import ApproxEvent, GaussianEvent, PureEvent
from sfumato.privacy.keyed import Stability, costs_at_most, histogram_sensitivity, key_sensitivity
from sfumato.privacy.noise import DiscreteLaplace, RoundedGaussian
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.sketches import Buckets, KeyMap, Listed, Signs

ADD, SWAP = PrivacyUnit(Neighbours.ADD_REMOVE), PrivacyUnit(Neighbours.REPLACE_ONE)
UNITS = [ADD, SWAP]


def words(values: Any) -> Any:
    return np.array(values, dtype=np.uint64)


# ---- sensitivity ---------------------------------------------------------------------------------------------------

# hashes that are constant or nearly so are the worst case, whatever is drawn
MAPS: dict[str, KeyMap] = {
    "one bucket": Buckets.draw(1),
    "two buckets": Buckets.draw(2),
    "sixteen": Buckets.draw(16),
    "constant": Buckets(16, words([5])),
    "signs": Signs.draw(7),
    "opposite signs": Signs(3, words([[2**60, 0]])),
    "many signs": Signs.draw(130),
    "listed": Listed(words(range(0, 40, 2))),
    "one listed": Listed(words([3])),
}


def columns(found: KeyMap) -> Any:
    """What one record of each of some keys adds, and a record whose key is not counted."""
    one = np.ones(1, dtype=np.int64)
    return [np.zeros(found.rows, dtype=np.int64), *(found.apply(words([k]), one) for k in range(1, 41))]


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("power", [1, 2])
def test_no_neighbours_are_farther_apart_than_the_sensitivity(name: str, power: int) -> None:
    """Mutants: signs 0 and 2; a missing square; replace-one priced as add-remove; `largest` without T."""
    found, made = MAPS[name], columns(MAPS[name])
    one = max(int((abs(c) ** power).sum()) for c in made)
    two = max(int((abs(a - b) ** power).sum()) for a, b in itertools.product(made, repeat=2))
    assert key_sensitivity(found, ADD, power).value == one
    assert key_sensitivity(found, SWAP, power).value >= two
    if name in ("one bucket", "two buckets", "listed", "one listed"):
        assert key_sensitivity(found, SWAP, power).value == two


def test_every_record_adds_signs_and_nothing_else() -> None:
    """Mutants: signs 0 and 1; a record that reaches two buckets."""
    for name, found in MAPS.items():
        for column in columns(found)[1:]:
            entries = sorted(abs(column).tolist())
            if isinstance(found, Signs):
                assert entries == [1] * found.rows, name
            else:
                assert sum(entries) == max(entries) <= 1, name


def persons(most: int, swap: bool) -> list[Any]:
    """Every change of the counts of three keys that one person with up to `most` records makes."""
    sets = [c for c in itertools.product(range(most + 1), repeat=3) if sum(c) <= most]
    return [np.subtract(a, b) for a, b in itertools.product(sets, repeat=2) if swap or not any(b) or not any(a)]


@pytest.mark.parametrize("swap", [False, True], ids=["add-remove", "replace-one"])
@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("power", [1, 2])
def test_all_counts_of_a_universe_move_as_far_as_stated(most: int, swap: bool, power: int) -> None:
    """Mutants: replace-one priced as 1; rows of a person not squared for L2; rows of a person left out."""
    unit = PrivacyUnit(Neighbours.REPLACE_ONE if swap else Neighbours.ADD_REMOVE, "who" if most > 1 else None, most)
    changes = persons(most, swap)
    assert histogram_sensitivity(unit, power).value == max(int((abs(c) ** power).sum()) for c in changes)
    for name in ("two buckets", "opposite signs", "listed"):
        made = columns(MAPS[name])[1:4]
        worst = max(int((abs(sum(n * k for n, k in zip(c, made, strict=True))) ** power).sum()) for c in changes)  # type: ignore[arg-type]
        assert key_sensitivity(MAPS[name], unit, power).value >= worst


def test_heavy_keys_are_of_single_records() -> None:
    """Mutant: a stability histogram priced as if a person had one record."""
    law, buckets = DiscreteLaplace(8), Buckets.draw(16)
    found = Stability(law, least_threshold(law, Fraction(1, 10**6)))
    assert found.event(PrivacyUnit(Neighbours.ADD_REMOVE, "who", 1)) == PureEvent(Fraction(1, 8))
    several = PrivacyUnit(Neighbours.ADD_REMOVE, "who", 2)
    with pytest.raises(PlanError, match="one record a person"):
        found.event(several)
    with pytest.raises(PlanError, match="one record a person"):
        costs_at_most(buckets, law, found, several, ApproxEvent(Fraction(10), found.delta))
    with pytest.raises(PlanError, match="power"):
        key_sensitivity(MAPS["signs"], ADD, 3)


# ---- the threshold --------------------------------------------------------------------------------------------------


def tail(scale: Fraction, k: int) -> float:
    """P(Z >= k) summed term by term."""
    q = math.exp(-1 / scale)
    masses = [q ** abs(z) for z in range(-3000, 3001)]
    return math.fsum(masses[max(0, k + 3000) :]) / math.fsum(masses)


@pytest.mark.parametrize("scale", [Fraction(1, 8), Fraction(1), Fraction(16, 7), Fraction(8), Fraction(40)], ids=str)
@pytest.mark.parametrize("delta", ["1e-9", "1e-6", "0.01", "0.3", "0.6", "0.99"])
def test_the_threshold_is_the_least_whose_exact_tail_is_at_most_delta(scale: Fraction, delta: str) -> None:
    """Mutants: one less, one more, delta halved or doubled, the constant of the continuous law."""
    law, target = DiscreteLaplace(scale), Fraction(delta)
    found = least_threshold(law, target)
    stated = float(Stability(law, found).delta)
    assert stated == pytest.approx(tail(scale, found - 1), rel=1e-9)
    assert stated <= target
    assert found == 1 or tail(scale, found - 2) > target


def test_delta_is_met_exactly_and_never_passed() -> None:
    """Mutants: the tail rounded down; `<` for `<=`."""
    law = DiscreteLaplace(2)
    for threshold in (1, 2, 9, 30):
        exact = Stability(law, threshold).delta
        assert least_threshold(law, exact) == threshold
        assert least_threshold(law, exact * (1 - Fraction(1, 10**12))) == threshold + 1
    for delta in (Fraction(0), Fraction(1), Fraction(-1)):
        with pytest.raises(PlanError):
            least_threshold(law, delta)
    with pytest.raises(PlanError, match="2\\^40"):
        least_threshold(DiscreteLaplace(2**45), Fraction(1, 100))
    for wrong in (0, True, 1.5, 2**41):
        with pytest.raises(PlanError):
            Stability(law, wrong)  # type: ignore[arg-type]


# ---- the histogram's exact law --------------------------------------------------------------------------------------

REACH = 120


def shown(count: int, scale: float, threshold: int) -> Any:
    """The law of what is shown of a key: entry 0 nothing, then every noisy count from the threshold up.

    The last entry stands for all beyond, where the ratio of two such laws no longer changes.
    """
    out = np.zeros(threshold + REACH)
    if count == 0:
        out[0] = 1
        return out
    q = math.exp(-1 / scale)
    noise = np.arange(threshold, threshold + len(out) - 1) - count
    out[1:] = (1 - q) / (1 + q) * q ** abs(noise)
    out[-1] /= 1 - q
    first = noise[0]
    out[0] = q ** (1 - first) / (1 + q) if first <= 0 else 1 - q**first / (1 + q)
    return out


def divergence(one: Any, other: Any, epsilon: float) -> float:
    """The least delta with P(E) <= e^epsilon P'(E) + delta for all events."""
    return float(np.maximum(one - math.exp(epsilon) * other, 0).sum())


def neighbours(unit: PrivacyUnit, scale: float, threshold: int) -> Iterator[tuple[Any, Any]]:
    """The laws of all that is shown, for all pairs of neighbouring counts of one key, or of two."""
    laws = [shown(c, scale, threshold) for c in range(2 * threshold + 6)]
    if unit is ADD:
        yield from ((a, b) for a, b in itertools.pairwise(laws))
        return
    few = [0, 1, 2, threshold - 1, threshold, threshold + 1]
    for a, b in itertools.product(few, repeat=2):
        yield np.outer(laws[a + 1], laws[b]), np.outer(laws[a], laws[b + 1])


@pytest.mark.parametrize("unit", UNITS, ids=["add-remove", "replace-one"])
@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(1), Fraction(4), Fraction(8)], ids=str)
@pytest.mark.parametrize("delta", ["1e-3", "0.05", "0.4"])
def test_the_histogram_keeps_epsilon_and_delta_and_no_less(unit: PrivacyUnit, scale: Fraction, delta: str) -> None:
    """By enumeration of the exact law. Mutants: epsilon of one key for replace-one's two; a lower threshold."""
    found = Stability(DiscreteLaplace(scale), least_threshold(DiscreteLaplace(scale), Fraction(delta)))
    epsilon = float(found.event(unit).epsilon)
    worst = max(
        divergence(*pair, epsilon)
        for one, other in neighbours(unit, float(scale), found.threshold)
        for pair in ((one, other), (other, one))
    )
    assert worst == pytest.approx(float(found.delta), rel=1e-9)
    less = max(
        divergence(*pair, epsilon * 0.9)
        for one, other in neighbours(unit, float(scale), found.threshold)
        for pair in ((one, other), (other, one))
    )
    # where counts of one are often shown, their delta hides what epsilon is for
    assert less > 2 * worst or delta != "1e-3"


# ---- the price ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", UNITS, ids=["add-remove", "replace-one"])
def test_a_price_pays_for_exactly_what_it_states(unit: PrivacyUnit) -> None:
    """Mutants: the histogram's epsilon or delta forgotten; the sketch's; `<` for `<=`; the other relation's."""
    changed = 1 if unit is ADD else 2
    buckets, law = Buckets.draw(16), DiscreteLaplace(8 * changed)
    sketch = DiscreteLaplace(Fraction(8 * changed, 7))
    found = Stability(law, least_threshold(law, Fraction(1, 10**6)))
    little = Fraction(1, 10**15)

    def fits(price: Any, *, noise: Any = sketch, stability: Any = found) -> bool:
        return costs_at_most(buckets, noise, stability, unit, price)

    assert fits(ApproxEvent(Fraction(1), found.delta))
    assert not fits(ApproxEvent(Fraction(1), found.delta - little * found.delta))
    assert not fits(ApproxEvent(1 - little, found.delta))
    assert not fits(ApproxEvent(Fraction(1), found.delta), noise=DiscreteLaplace(Fraction(8 * changed, 7) - little))
    assert not fits(ApproxEvent(Fraction(1), found.delta), stability=Stability(law, found.threshold - 1))
    assert not fits(PureEvent(Fraction(1)))
    assert not fits(PureEvent(Fraction(10**6)))
    assert not fits(ApproxEvent(Fraction(1, 8), found.delta), noise=DiscreteLaplace(2**50))
    assert not fits(ApproxEvent(Fraction(9), found.delta), noise=RoundedGaussian(2**40))
    assert costs_at_most(buckets, DiscreteLaplace(changed), None, unit, PureEvent(Fraction(1)))
    assert not costs_at_most(buckets, DiscreteLaplace(changed), None, unit, PureEvent(1 - little))
    assert not costs_at_most(buckets, DiscreteLaplace(changed), None, unit, ApproxEvent(Fraction(1), Fraction(1, 2)))
    signs = Signs.draw(100)
    squared = 100 * changed**2
    assert costs_at_most(signs, RoundedGaussian(10), None, unit, GaussianEvent(Fraction(squared, 100)))
    assert not costs_at_most(signs, RoundedGaussian(10), None, unit, GaussianEvent(Fraction(squared, 100) - little))
