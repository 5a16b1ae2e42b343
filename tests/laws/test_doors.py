"""The laws of `select`: what is drawn, and that no neighbour is betrayed, by exact enumeration.

Mutants named were seen to fail. Draws are compared by chi-square at 1e-10.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

import sfumato as sf
from sfumato.maps.base import DENSE_LIMIT
from sfumato.operators import AllRange, Block, Dense, Identity, Kronecker, Prefix
from sfumato.privacy.accounting import BoundedRangeEvent, PureEvent
from sfumato.privacy.amounts import exp_bounds
from sfumato.privacy.selection import Candidates, exponential_mechanism, score_sensitivity, selection_rate
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from support.doors import behind, differs, exponential_law, neighbours

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


@pytest.mark.parametrize("dense", [DENSE_LIMIT, 0], ids=["at once", "a column or two at a time"])
@pytest.mark.parametrize("unit", UNITS, ids=PrivacyUnit.describe)
def test_the_sensitivity_is_the_largest_move_of_any_person(
    unit: PrivacyUnit, dense: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: vanishing records forgotten; products of signed rows by the largest entries alone; the first columns
    alone; the others fail at the curator too."""
    monkeypatch.setattr("sfumato.privacy.selection.DENSE_LIMIT", dense)
    monkeypatch.setattr("sfumato.privacy.selection._CHUNK", 4)
    blocks = [Dense(QUERIES), Dense(np.array([[3, 5], [-4, -6]])), Prefix(4), AllRange(3), Identity(1), Identity(5)]
    joint = Block((("a",), ("b",)), (Prefix(2), Dense(np.array([[1, -1, 2]]))))
    signed = Block(
        (("a",), ("b",)), (Dense(np.array([[-3, -2], [2, -5]])), Dense(np.array([[1, -1, 2], [-4, -1, -2]])))
    )
    assert isinstance(joint.operator, Kronecker)
    for block in [*(Block((("a",),), (o,)) for o in blocks), joint, signed]:
        sizes = {"a": block.cells} if block not in (joint, signed) else {"a": 2, "b": 3}
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


def test_what_is_behind_the_best_is_exact_for_any_public_numbers() -> None:
    """Against Python integers. Mutants: a difference in int64; the carry of a product or of a sum lost; p added."""
    ends = [-(2**63), -(2**63) + 1, -1, 0, 1, 2**32 - 1, 2**32, 2**62, 2**63 - 2, 2**63 - 1]
    rng = np.random.default_rng(1)
    rows = 500
    for _ in range(20):
        answers, estimates, penalties = (
            np.where(rng.random(rows) < 0.5, rng.choice(ends, rows), rng.integers(-(2**63), 2**63, rows))
            for _ in range(3)
        )
        near = rng.random(rows) < 0.3
        estimates[near] = answers[near]
        weights = np.where(rng.random(rows) < 0.5, rng.choice([1, 2, 2**32, 2**63 - 1], rows), rng.integers(1, 9, rows))
        given = candidates(np.ones((rows, 2), dtype=np.int64), weights.tolist(), estimates.tolist(), penalties.tolist())
        found = given.scores(answers.tolist())
        assert given.lags(answers).integers() == [max(found) - f for f in found]


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
    with pytest.raises(sf.errors.PlanError):
        bad()


# ---- select ----------------------------------------------------------------------------------------------


def test_the_choice_follows_the_exact_law_and_no_other() -> None:
    """Two-sided: 0.7 and 1.3 times epsilon are told apart. Mutants: 0.7 of the rate; half of it."""
    scores = [0, 3, 3, -2, 5]
    rate = Fraction(2, 5)
    drawn = Counter(exponential_mechanism(behind(scores), rate) for _ in range(8000))
    for factor, wrong in ((Fraction(1), False), (Fraction(7, 10), True), (Fraction(13, 10), True)):
        base = exp_bounds(-rate * factor, 64)[0]
        assert differs(drawn, dict(enumerate(exponential_law(scores, base)))) == wrong
    assert not differs(
        Counter(exponential_mechanism(behind([4] * 3), rate) for _ in range(3000)), dict.fromkeys(range(3), THIRD)
    )


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
