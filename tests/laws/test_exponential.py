"""The exponential mechanism's one draw: its weights, every word of a small table, and the draws that need more bits.

Probabilities are enclosed in rationals from certified bounds of exp. Mutants named were seen to fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest

from sfumato.privacy import selection as module
from sfumato.privacy.amounts import exp_bounds
from sfumato.privacy.int128 import UInt128Array
from sfumato.privacy.selection import ERROR, exponential_mechanism, lower_weights
from support.insecure_bits import InsecureTestBits, ScriptedTestBits

LAGS = {
    "one": [0],
    "flat": [0] * 5,
    "one dominates": [400, 400, 0, 400],
    "mixed": [0, 3, 3, 2**70, 1, 90, 256, 0, 7, 255, 2],
    "best last": [9, 8, 7, 1, 0],
}
RATES = [Fraction(1, 40), Fraction(2, 5), Fraction(7, 3)]


def ends(lags: Sequence[int], rate: Fraction) -> tuple[list[Fraction], list[Fraction]]:
    """Bounds of P(index <= i), within 2^-200."""
    bounds = [exp_bounds(-rate * lag, 256) for lag in lags]
    low, high = ([*accumulate(b[side] for b in bounds)] for side in (0, 1))
    return [a / high[-1] for a in low], [b / low[-1] for b in high]


def test_a_weight_is_a_lower_bound_and_short_of_it_by_a_hair() -> None:
    """Mutants: rounded to the nearest; a limb's carry lost; one byte of a lag for another; lags cut off too soon."""
    rng = np.random.default_rng(3)
    for rate in (*RATES, Fraction(300), Fraction(1, 10**6), Fraction(1, 10**12), Fraction(1, 2**100)):
        edge = int(128 / rate)
        lags = [0, 1, 2, 254, 255, 256, 257, 65535, 65536, edge - 1, edge, edge + 1, 2**64 - 1, 2**64, 2**128 - 1]
        lags += [256**k + j for k in range(1, 16) for j in (-1, 0, 1)]
        lags += [int(v) for v in rng.integers(0, min(edge + 1, 2**62), 50)]
        lags = [n for n in lags if 0 <= n < 2**128]
        found = lower_weights(UInt128Array.of(lags), rate, 0, len(lags))
        assert found.max() < 2**32
        for lag, limbs in zip(lags, found.T.tolist(), strict=True):
            value = sum(int(limb) << 32 * (3 - i) for i, limb in enumerate(limbs))
            low, high = exp_bounds(-rate * lag, 256)
            assert value <= low * 2**128 or lag == 0
            assert high * 2**128 <= value + ERROR
            if rate * lag < 80:
                assert value > 0


@pytest.mark.parametrize("rate", RATES, ids=str)
@pytest.mark.parametrize("name", LAGS)
def test_every_word_of_a_small_table_has_the_candidate_it_lies_in(name: str, rate: Fraction) -> None:
    """All 2^10 words: settled at once if and only if the word's cell lies in one candidate, and then that one; else
    the least and the greatest continuation have the candidates of the cell's two ends. So the law is exact.

    Mutants: an end compared off by one word; the cell's lower end for both; the first of a run of candidates for the
    one after it; the wrong candidate where the weight before it is 0.
    """
    lags, bits = LAGS[name], 10
    given = UInt128Array.of(lags)
    low, high = ends(lags, rate)
    starts = [Fraction(0), *high[:-1]]
    counted = [0] * len(lags)
    crossing = 0
    for word in range(2**bits):
        first, last = Fraction(word, 2**bits), Fraction(word + 1, 2**bits)
        source = ScriptedTestBits([word << 64 - bits])
        found = exponential_mechanism(given, rate, source, bits=bits)
        at = next(i for i, end in enumerate(high) if end > first)
        assert found == at
        if source.overdrawn:
            crossing += 1
            # every bit from here on is 1: the last real of the cell
            source = ScriptedTestBits([word << 64 - bits], rest=2**64 - 1)
            found = exponential_mechanism(given, rate, source, bits=bits)
            assert found > at
            assert starts[found] < last <= low[found] or found == len(lags) - 1
        else:
            assert starts[at] <= first or at == 0
            assert last <= low[at] or at == len(lags) - 1
            counted[at] += 1
    assert crossing < len(lags)
    for i, count in enumerate(counted):
        mass = (low[i] - starts[i]) * 2**bits
        assert mass - 2 < count <= mass + Fraction(1, 2**100)


@pytest.mark.parametrize("guard", [2**122, 2**126, 2**140])
def test_what_is_left_undecided_is_settled_by_the_same_real_number(guard: int) -> None:
    """The slow road and the fast one read the same candidate off the same bits, whatever is left open to the slow one.

    Mutants: fresh bits in place of more bits; lags cut off on the slow road; its errors forgotten.
    """
    rate = Fraction(1, 7)
    lags = [0, 5, 5, 40, 2**127, 600, 13, 0, 300]
    given, slow = UInt128Array.of(lags), 0
    for seed in range(200):
        words = InsecureTestBits(seed).words(12).tolist()
        sources = [ScriptedTestBits(words) for _ in range(2)]
        assert exponential_mechanism(given, rate, sources[0]) == exponential_mechanism(
            given, rate, sources[1], guard=guard
        )
        slow += len(words) - 2 != len(sources[1]._script)
    assert slow > 0 if guard < 2**128 else slow == 200


def test_a_candidate_of_next_to_no_weight_can_be_chosen() -> None:
    """Full support: U within exp(-100) of the end of the best one. Mutant: weights that are cut off to 0 for good."""
    given = UInt128Array.of([0, 1000])
    rate = Fraction(1, 10)
    chance = exp_bounds(Fraction(-100), 300)[0] / (1 + exp_bounds(Fraction(-100), 300)[1])
    for factor, expected in ((Fraction(99, 100), 1), (Fraction(101, 100), 0)):
        point = int((1 - chance * factor) * 2**384)
        words = [point >> 64 * i & 2**64 - 1 for i in range(5, -1, -1)]
        source = ScriptedTestBits(words)
        assert exponential_mechanism(given, rate, source) == expected
        assert not source.overdrawn


def test_many_candidates_are_found_in_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: the chunk before; the weight before a chunk forgotten; the last, shorter chunk left out."""
    monkeypatch.setattr(module, "_CHUNK_EXPONENTIAL", 16)
    rng = np.random.default_rng(4)
    lags = rng.integers(0, 30, 16 * 6 + 5).tolist()
    lags[rng.integers(len(lags))] = 0
    given, rate = UInt128Array.of(lags), Fraction(1, 9)
    low, high = ends(lags, rate)
    for i in range(len(lags)):
        for share in (Fraction(1, 10**9), Fraction(1, 2), 1 - Fraction(1, 10**9)):
            start = high[i - 1] if i else Fraction(0)
            point = int((start + share * (low[i] - start)) * 2**128)
            assert exponential_mechanism(given, rate, ScriptedTestBits([point >> 64, point & 2**64 - 1])) == i


def test_the_work_does_not_depend_on_the_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers of candidates are weighed, the same factors multiplied, the same words drawn, whatever the lags.

    Mutants: factors of the bytes that occur alone; chunks weighed up to the one that is found alone.
    """
    done: list[tuple[int, ...]] = []
    real = module._multiply_limbs
    monkeypatch.setattr(module, "_multiply_limbs", lambda a, b: done.append(a.shape) or real(a, b))
    count, rate = 3 * 2**14, Fraction(1, 1000)
    rng = np.random.default_rng(5)
    works: list[object] = []
    kinds = {
        "flat": [0] * count,
        "one dominates": [0, *[10**9] * (count - 1)],
        "random": [0, *rng.integers(0, 10**6, count - 1).tolist()],
    }
    for lags in kinds.values():
        done.clear()
        source = ScriptedTestBits([3**40, 5**27])
        exponential_mechanism(UInt128Array.of(lags), rate, source)
        works.append((list(done), source.overdrawn))
    assert works[0] == works[1] == works[2]
    assert len(works[0][0]) == 2 * 4  # type: ignore[index]
