"""The laws of `select`: what is drawn, and that no neighbour is betrayed, by exact enumeration.

Mutants named were seen to fail. Draws are compared by chi-square at 1e-10.
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
from sfumato.operators import AllRange, Block, Dense, Identity, Kronecker, Prefix
from sfumato.privacy.accountant import BoundedRangeEvent, PureEvent
from sfumato.privacy.certified import exp_bounds
from sfumato.privacy.selection import (
    Candidates,
    accepts,
    exponential,
    score_sensitivity,
    selection_rate,
)
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from support.doors import differs, exponential_law, neighbours
from support.insecure_bits import ScriptedTestBits

HALF, THIRD = Fraction(1, 2), Fraction(1, 3)
QUERIES = np.array([[1, 0], [-2, 1], [1, 1]])


def candidates(rows: np.ndarray, weights: list[int], estimates: list[int], penalties: list[int]) -> Candidates:
    whole = [np.array(v, dtype=np.int64) for v in (estimates, weights, penalties)]
    return Candidates((Block((("a",),), (Dense(rows),)),), *whole)


# ---- sensitivities ---------------------------------------------------------------------------------------


UNITS = [
    PrivacyUnit(Neighbours.ADD_REMOVE),
    PrivacyUnit(Neighbours.REPLACE_ONE),
    PrivacyUnit(Neighbours.ADD_REMOVE, "who", 2),
    PrivacyUnit(Neighbours.REPLACE_ONE, "who", 1),
    PrivacyUnit(Neighbours.REPLACE_ONE, "who", 3),
]


@pytest.mark.parametrize("unit", UNITS, ids=PrivacyUnit.describe)
def test_the_sensitivity_is_the_largest_move_of_any_person(unit: PrivacyUnit) -> None:
    """Mutant: vanishing records forgotten; the others fail at the curator too."""
    blocks = [Dense(QUERIES), Dense(np.array([[3, 5], [-4, -6]])), Prefix(4), AllRange(3), Identity(1), Identity(5)]
    joint = Block((("a",), ("b",)), (Prefix(2), Dense(np.array([[1, -1, 2]]))))
    assert isinstance(joint.operator, Kronecker)
    for block in [*(Block((("a",),), (o,)) for o in blocks), joint]:
        sizes = {"a": block.cells} if block is not joint else {"a": 2, "b": 3}
        ones = np.ones(block.rows, dtype=np.int64)
        weights = 1 + np.arange(block.rows, dtype=np.int64)[::-1] % 3
        columns = [tuple(c) for c in block.operator.dense().T.tolist()]
        zero = (0,) * block.rows
        c = unit.rows_per_person
        least = c if unit.total_is_public else 0
        persons = [
            np.sum([zero, *rows], axis=0)
            for k in range(least, c + 1)
            for rows in itertools.combinations_with_replacement(columns, k)
        ]
        if unit.neighbours is Neighbours.ADD_REMOVE:
            moves = [np.abs(p) for p in persons]
        else:
            moves = [np.abs(p - q) for p, q in itertools.product(persons, repeat=2)]
        expected = max(int((weights * m).max()) for m in moves)
        if expected == 0:
            continue
        assert score_sensitivity(Candidates((block,), ones, weights, ones), sizes, unit) == expected


def test_scores_are_whole_numbers_beyond_63_bits() -> None:
    """Mutant: scores in int64, whose sign wraps with the data."""
    big = 2**62
    found = candidates(QUERIES[:1], [big], [-big], [big]).scores([big])
    assert found == [big * (2 * big) - big]


@pytest.mark.parametrize(
    "bad",
    [
        lambda: candidates(QUERIES, [1, 0, 1], [0] * 3, [0] * 3),
        lambda: candidates(QUERIES, [1, 1], [0] * 3, [0] * 3),
        lambda: candidates(QUERIES * 1024, [1] * 3, [0] * 3, [0] * 3),
        lambda: candidates(QUERIES * 0.5, [1] * 3, [0] * 3, [0] * 3),
        lambda: Candidates((), *[np.zeros(0, dtype=np.int64)] * 3),
        lambda: selection_rate(1, PureEvent(HALF)),
        lambda: selection_rate(0, BoundedRangeEvent(HALF)),
    ],
)
def test_what_is_no_candidate_and_no_selection_is_refused(bad: Callable[[], object]) -> None:
    with pytest.raises(sf.PlanError):
        bad()


# ---- select ----------------------------------------------------------------------------------------------


def test_a_candidate_is_accepted_with_exactly_its_probability() -> None:
    """The one word that does not settle it is extended. Mutants: either comparison off by one."""
    for x in (Fraction(1, 7), Fraction(1), Fraction(40), Fraction(44)):
        word = math.floor(exp_bounds(-x, 256)[0] * 2**64)
        rest = exp_bounds(-x, 256)[0] * 2**64 - word
        second = math.floor(rest * 2**64)
        accept = {(word - 1, 0): True, (word + 1, 0): False, (word, second - 1): True, (word, second + 1): False}
        for script, expected in accept.items():
            bits = ScriptedTestBits(script)
            assert accepts(x, bits) is expected
            assert not bits.overdrawn
    assert accepts(Fraction(0), ScriptedTestBits([2**64 - 1]))
    assert not accepts(Fraction(10**30), ScriptedTestBits([1]))


def test_the_choice_follows_the_exact_law_and_no_other() -> None:
    """Two-sided: 0.7 and 1.3 times epsilon are told apart. Mutants: 0.7 of the rate; modulo for rejection."""
    scores = [0, 3, 3, -2, 5]
    rate = Fraction(2, 5)
    drawn = Counter(exponential(scores, rate) for _ in range(20_000))
    for factor, wrong in ((Fraction(1), False), (Fraction(7, 10), True), (Fraction(13, 10), True)):
        base = exp_bounds(-rate * factor, 64)[0]
        assert differs(drawn, dict(enumerate(exponential_law(scores, base)))) == wrong
    assert not differs(Counter(exponential([4] * 3, rate) for _ in range(3000)), dict.fromkeys(range(3), THIRD))


@pytest.mark.parametrize("replace", [False, True])
def test_no_neighbour_is_betrayed_by_a_choice(replace: bool) -> None:
    """Bounded range in rationals, over all neighbours, and attained: no lower price would do."""
    unit = UNITS[int(replace)]
    given = candidates(np.array([[1, 0], [1, 0], [0, 1]]), [2, 2, 1], [9, 0, 3], [1, 0, 2])
    move = score_sensitivity(given, {"a": 2}, unit)
    rows = given.blocks[0].operator.dense()
    ranges: list[Fraction] = []
    for x, y in neighbours(2, 4, replace):
        one, two = (exponential_law(given.scores((rows @ np.array(t)).tolist()), HALF) for t in (x, y))
        ratios = [p / q for p, q in zip(one, two, strict=True)]
        assert max(ratios) <= 2 ** (2 * move)
        ranges.append(max(ratios) / min(ratios))
    assert max(ranges) == 2 ** (2 * move)
