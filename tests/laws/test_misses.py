"""Draws by the misses of several models: their exact sensitivity, and the distribution of boosting for queries.

Mutants named were seen to fail.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

import sfumato as sf
from sfumato.operators import Block, Dense
from sfumato.privacy.accounting import BoundedRangeEvent
from sfumato.privacy.amounts import exp_bounds
from sfumato.privacy.boosting_score import Misses
from sfumato.privacy.selection import exponential_mechanism, score_sensitivity, selection_rate
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from support.doors import differs, exponential_law, neighbours

UNITS = {False: PrivacyUnit(Neighbours.ADD_REMOVE), True: PrivacyUnit(Neighbours.REPLACE_ONE)}
QUERIES = np.array([[1, 0], [-2, 1], [1, 1]])
SIZES = {"a": 2}


def misses(estimates: list[list[int]], floor: int, ceiling: int, rows: np.ndarray = QUERIES) -> Misses:
    return Misses((Block((("a",),), (Dense(rows),)),), np.array(estimates, dtype=np.int64), floor, ceiling)


def test_a_score_adds_up_clipped_misses() -> None:
    """Mutants: the floor forgotten; the sum clipped, not its terms; a miss of one sign alone."""
    given = misses([[0, 0, 0], [9, -1, 5], [-9, 1, 2]], 1, 4)
    assert given.scores([3, 0, 7]) == [2 + 4 + 4, 0, 4 + 1 + 4]
    assert misses([[-(2**62)] * 3], 0, 2**63).scores([2**62] * 3) == [2**63] * 3


def test_what_is_behind_the_best_is_exact_for_any_public_numbers() -> None:
    """Against Python integers. Mutants: the carry of a sum lost; a floor or ceiling beyond 2^64 taken modulo 2^64."""
    rng = np.random.default_rng(2)
    ends = [-(2**63), -1, 0, 5, 2**62, 2**63 - 1]
    for floor in (0, 7, 2**63, 2**64 + 3):
        for ceiling in (1, 2**40, 2**64 - 1, 2**64 + 3):
            answers = np.where(rng.random(90) < 0.5, rng.choice(ends, 90), rng.integers(-(2**63), 2**63, 90))
            estimates = np.where(rng.random((5, 90)) < 0.5, rng.choice(ends, (5, 90)), answers)
            given = misses(estimates.tolist(), floor, ceiling, np.ones((90, 2), dtype=np.int64))
            found = given.scores(answers.tolist())
            assert given.lags(answers).integers() == [max(found) - f for f in found]


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("ceiling", [1, 2, 5])
@pytest.mark.parametrize("models", [1, 3])
def test_no_score_moves_further_than_stated_and_one_does(replace: bool, ceiling: int, models: int) -> None:
    """By all neighbours. Mutants: the sensitivity of one model for several; the ceiling's for the move; half of it."""
    given = misses([[0, 1, 2]] * models, 1, ceiling)
    rows = QUERIES.tolist()
    seen = 0
    for x, y in neighbours(2, 7, replace):
        first, second = (given.scores([sum(c * n for c, n in zip(r, t, strict=True)) for r in rows]) for t in (x, y))
        seen = max(seen, *(abs(a - b) for a, b in zip(first, second, strict=True)))
    assert seen == score_sensitivity(given, SIZES, UNITS[replace])


def test_persons_with_several_rows_move_it_as_often() -> None:
    given = misses([[0, 0, 0], [1, 1, 1]], 0, 100)
    unit = PrivacyUnit(Neighbours.ADD_REMOVE, "who", 3)
    assert score_sensitivity(given, SIZES, unit) == 2 * 2 * 3
    assert score_sensitivity(misses([[0, 0, 0]], 0, 4), SIZES, unit) == 4


@pytest.mark.parametrize("replace", [False, True])
def test_no_neighbour_is_betrayed_by_a_draw(replace: bool) -> None:
    """Bounded range in rationals. Mutant: a price that forgets how many models there are."""
    given = misses([[0, 1, 2], [3, 0, 1]], 1, 2, np.array([[1, 0], [0, 1], [1, 1]]))
    move = score_sensitivity(given, SIZES, UNITS[replace])
    half = Fraction(2, 3)  # exp(-rate), so exp(epsilon) = half^(-2 move)
    widest = Fraction(1)
    for x, y in neighbours(2, 5, replace):
        laws = [exponential_law(given.scores([t[0], t[1], t[0] + t[1]]), half) for t in (x, y)]
        ratios = [p / q for p, q in zip(*laws, strict=True)]
        widest = max(widest, max(ratios) / min(ratios))
    assert widest <= half ** (-2 * move)
    assert widest > half ** (-move)


def test_draws_have_the_distribution_of_boosting() -> None:
    """u_q = exp(-alpha sum_t clip(1 - 2 (e - floor) / ceiling, -1, 1)) as in [DRV10], with alpha = rate ceiling / 2.

    Mutants: the rate for a sensitivity of one model; the sign; queries far off counted without a ceiling.
    """
    estimates, floor, ceiling, answers = [[0, 4, 9], [6, 1, 9]], 1, 4, [3, 3, 8]
    given = misses(estimates, floor, ceiling, np.array([[1, 0], [1, 0], [1, 1]]))
    price = BoundedRangeEvent(Fraction(3, 2))
    rate = selection_rate(score_sensitivity(given, SIZES, UNITS[False]), price)
    alpha = float(rate) * ceiling / 2
    weights: list[float] = []
    for i, q in enumerate(answers):
        a = sum(max(-1.0, min(1.0, 1 - 2 * (abs(q - e[i]) - floor) / ceiling)) for e in estimates)
        weights.append(math.exp(-alpha * a))
    exact = exponential_law(given.scores(answers), exp_bounds(-rate, 64)[0])
    assert np.allclose([float(p) for p in exact], np.array(weights) / sum(weights), rtol=1e-9)
    drawn = Counter(exponential_mechanism(given.lags(np.array(answers)), rate) for _ in range(4000))
    assert not differs(drawn, dict(enumerate(exact)))


@pytest.mark.parametrize(
    "bad",
    [
        lambda: misses([[0, 0]], 0, 1),
        lambda: misses([], 0, 1),
        lambda: misses([[0, 0, 0]], -1, 1),
        lambda: misses([[0, 0, 0]], 0, 0),
        lambda: misses([[0, 0, 0]], 0, 1.5),  # type: ignore[arg-type]
        lambda: misses([[0, 0, 0]], 0, 1, QUERIES * 0.5),
        lambda: misses([[0, 0, 0]], 0, 1, QUERIES * 1024),
        lambda: Misses((), np.zeros((1, 0), dtype=np.int64), 0, 1),
        lambda: Misses((Block((("a",),), (Dense(QUERIES),)),), np.zeros((1, 3)), 0, 1),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_miss_is_refused(bad: Callable[[], object]) -> None:
    with pytest.raises(sf.errors.PlanError):
        bad()


def test_values_are_the_misses_own() -> None:
    """Mutant: estimates shared with the caller, who changes them after the sensitivity was derived."""
    mine = np.zeros((1, 3), dtype=np.int64)
    given = Misses((Block((("a",),), (Dense(QUERIES),)),), mine, 0, 9)
    mine[:] = 7
    assert given.scores([1, 1, 1]) == [1, 1, 1]
    assert list(itertools.chain(*given.estimates.tolist())) == [0, 0, 0]
