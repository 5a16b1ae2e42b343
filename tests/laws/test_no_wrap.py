"""What is compared with a threshold is compared as the number it is, not modulo 2^64.

A comparison after a wrap is no post-processing of the mechanism that was paid for. Noise that large comes once in
e^256 draws at the largest scale; here it is scripted. Mutants named were seen to fail.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from sfumato.curator.keys.counts import KeyTable
from sfumato.curator.keys.curator import _heavy_hitters
from sfumato.errors import PlanError
from sfumato.operators import Block, Dense, Total
from sfumato.privacy.conversation_price import SparseVector, Terms
from sfumato.privacy.keyed import KeyQuestion, Stability
from sfumato.privacy.noise import DiscreteLaplace, NoiseLaw, RoundedGaussian, sampler
from sfumato.privacy.selection import Candidates, Epochs
from support.insecure_bits import ScriptedTestBits

ONES = 2**64 - 1
WIDE = DiscreteLaplace(2**55)
VALUES = [2**63 - 5, 2**63, 2**63 + 7, 2**64 - 1, 2**64 + 12, 3 * 2**63 + 1]


def scripted(law: NoiseLaw, value: int) -> ScriptedTestBits:
    """Bits from which the next draw is `value`, a number far out."""
    table = sampler(law)
    size = value if value >= 0 else ~value
    step, offset = divmod(size - (table.half << table.shift), 1 << table.tail_shift)
    body = [ONES, 0] if table.shift else [ONES]
    tail = [*([0] * (step // 64)), 1 << step % 64, int(value < 0), offset << 64 - table.tail_shift]
    return ScriptedTestBits([*body, *tail])


@pytest.mark.parametrize("value", [v * sign for v in VALUES for sign in (1, -1)])
def test_one_draw_is_exact_and_saturated_ones_keep_their_side(value: int) -> None:
    """Mutants: a draw modulo 2^64; saturation at the ends of int64, to which no count can be added."""
    assert WIDE.integer(scripted(WIDE, value)) == value
    (found,) = WIDE.saturated(1, scripted(WIDE, value)).tolist()
    assert 2**62 < found * (1 if value > 0 else -1) <= 2**63 - 2**53
    (wrapped,) = WIDE.sample(1, scripted(WIDE, value)).tolist()
    assert (wrapped - value) % 2**64 == 0


def test_small_draws_are_alike_on_all_roads() -> None:
    """Mutant: a saturated draw that differs from the plain one where nothing is large."""
    for law in (DiscreteLaplace(3), DiscreteLaplace(2**30), RoundedGaussian(5)):
        words = np.random.default_rng(6).integers(0, 2**64, 400, dtype=np.uint64).tolist()
        plain = law.sample(20, ScriptedTestBits(words))
        assert (law.saturated(20, ScriptedTestBits(words)) == plain).all()
        assert law.integer(ScriptedTestBits(words)) == law.sample(1, ScriptedTestBits(words))[0]


@pytest.mark.parametrize("value", VALUES)
def test_a_score_is_compared_before_any_wrap(value: int) -> None:
    """Mutants: question noise in int64; the answer's noise in int64."""
    terms = Terms(Epochs(2, Fraction(1, 4096), 2**40), WIDE)
    noise = terms.epochs.query_noise
    for score in (-(10**6), 0, 2**100):
        (above, _), left = SparseVector(terms, 0, 2).ask(score, 0, scripted(noise, value))
        assert above
        assert left.remaining == 1
        (above, _), left = SparseVector(terms, 0, 2).ask(min(score, 0), 0, scripted(noise, -value))
        assert not above
        assert left.remaining == 2
    bits = scripted(WIDE, value)
    # the question has no noise to speak of where its first word is in the middle
    middle = ScriptedTestBits([1 << 63, 0])
    joined = ScriptedTestBits([*middle._script.tolist(), *bits._script.tolist()])
    (above, answer), _ = SparseVector(terms, -(2**62), 2).ask(0, 41, joined)
    assert above
    assert answer == 41 + value


def test_the_threshold_is_not_wrapped() -> None:
    """Mutant: threshold noise in int64, which puts it on the other side of every score."""
    terms = Terms(Epochs(1, Fraction(1, 4096), 2**40))
    for value in (2**63 + 7, -(2**63) - 9):
        begun = SparseVector.begin(terms, scripted(terms.epochs.threshold_noise, value))
        assert begun.threshold == value


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("count", [1, 10, 2**53 - 1])
def test_a_stability_histogram_compares_before_any_wrap(value: int, count: int) -> None:
    """Mutants: counts plus noise modulo 2^64; noise saturated at the ends of int64, so that the sum wraps."""
    table = KeyTable(np.array([7], dtype=np.uint64), np.array([count], dtype=np.int64))
    stability = Stability(WIDE, 20)
    heavy, shown, _ = _heavy_hitters(table, stability, scripted(WIDE, value))
    assert heavy.tolist() == [7]
    assert shown.tolist() == [2**62]
    assert _heavy_hitters(table, stability, scripted(WIDE, -value))[0].size == 0


def test_scores_of_questions_are_whole_numbers_of_any_size() -> None:
    """With public weights, estimates and penalties at the ends of int64. Mutant: a score in int64."""
    ends = (-(2**63), 2**63 - 1)
    block = Block((("a",),), (Total(2),))
    for estimate in ends:
        for penalty in ends:
            public = (np.array([v], dtype=np.int64) for v in (estimate, 2**63 - 1, penalty))
            found = Candidates((block,), *public).scores([2**53 - 1])
            assert found == [(2**63 - 1) * abs(2**53 - 1 - estimate) - penalty]
    question = KeyQuestion(np.array([3], dtype=np.uint64), 2**70, -(2**70))
    assert question.scores([5]) == [2**71 - 5]


def test_exact_answers_of_the_largest_candidates_fit_int64() -> None:
    """Coefficients below 2^10 times fewer than 2^53 records: the public check by which no answer wraps.

    Mutant: coefficients of 2^10, which could.
    """
    zero = np.zeros(1, dtype=np.int64)
    with pytest.raises(PlanError):
        Candidates((Block((("a",),), (Dense(np.array([[1024, 0]])),)),), zero, zero + 1, zero)
    counts = np.array([2**53 - 1, 0], dtype=np.int64)
    for rows in ([[1023, -1023]], [[-1023, 1]]):
        operator = Dense(np.array(rows))
        exact = rows[0][0] * (2**53 - 1)
        assert operator.matvec(counts).tolist() == [exact]
        given = Candidates((Block((("a",),), (operator,)),), zero, zero + 1, zero)
        assert given.scores([exact]) == [abs(exact)]
