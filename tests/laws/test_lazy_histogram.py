"""The exact law of the lazy histogram: whatever is asked, in whatever order, it is read off one full noisy histogram.

Every test names the mutants that it was seen to fail on.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.curator.keys import KeyCurator
from sfumato.privacy.accounting import PureEvent
from sfumato.privacy.noise import DiscreteLaplace, NoiseLaw
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from support.moments import excess_kurtosis

UNIVERSE = (3, 2**40, 2**59 + 1)
# a small law that is lopsided, so that neither signs nor orders can be mistaken
LAW = {-1: Fraction(1, 7), 0: Fraction(2, 7), 2: Fraction(4, 7)}
Transcript = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
Questioner = Callable[[Transcript], tuple[int, ...] | None]


def words(keys: Any) -> Any:
    return np.array(keys, dtype=np.uint64)


def opened(counts: tuple[int, ...], unit: PrivacyUnit | None = None) -> Any:
    """A histogram over the universe of three keys."""
    source = sf.KeyCounts(np.array(UNIVERSE), counts)
    curator = KeyCurator(source, sf.Keys(), unit or PrivacyUnit(Neighbours.ADD_REMOVE), sf.Ledger.in_memory(sf.pure(9)))
    return curator.histogram(DiscreteLaplace(1), PureEvent(1), name="n", plan_hash="h")[0]


def adaptive(salt: int) -> Questioner:
    """Three questions, each a set of keys in some order that a digest of all earlier answers decides."""

    def ask(seen: Transcript) -> tuple[int, ...] | None:
        if len(seen) == 3:
            return None
        found = hashlib.sha256(f"{salt}{seen}".encode()).digest()
        keys = [UNIVERSE[i] for i in range(3) if found[i] % 2] or [UNIVERSE[found[3] % 3]]
        return tuple(keys[::-1] if found[4] % 2 else keys)

    return ask


def fixed(*questions: tuple[int, ...]) -> Questioner:
    return lambda seen: questions[len(seen)] if len(seen) < len(questions) else None


QUESTIONERS: dict[str, Questioner] = {
    "one by one": fixed(*((k,) for k in UNIVERSE)),
    "backwards": fixed(*((k,) for k in UNIVERSE[::-1])),
    "together, then again": fixed(UNIVERSE, UNIVERSE[::-1], UNIVERSE[:1]),
    "a key twice in a question": fixed((3, 3), (2**40, 3, 2**40)),
    **{f"adaptive {salt}": adaptive(salt) for salt in range(12)},
}


def scripts() -> Iterator[tuple[tuple[int, ...], Fraction]]:
    """Every outcome of three draws, and its probability."""
    for drawn in itertools.product(LAW, repeat=3):
        weight = Fraction(1)
        for z in drawn:
            weight *= LAW[z]
        yield drawn, weight


def talk(ask: Questioner, answer: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Transcript:
    seen: Transcript = ()
    while (keys := ask(seen)) is not None:
        seen = (*seen, (keys, answer(keys)))
    return seen


@pytest.mark.parametrize("name", QUESTIONERS)
@pytest.mark.parametrize("counts", [(0, 0, 0), (0, 4, 1), (9, 0, 0)], ids=str)
def test_its_law_is_that_of_the_full_noisy_histogram(
    name: str, counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By enumeration. Mutants: noise redrawn for a touched key; absent keys answered 0, or with the noise of another;
    draws shared by keys of one question; a key drawn twice where a question names it twice; answers in the order
    of the table."""
    ask = QUESTIONERS[name]
    lazy: dict[Transcript, Fraction] = defaultdict(Fraction)
    full: dict[Transcript, Fraction] = defaultdict(Fraction)
    for script, weight in scripts():
        left = list(script)
        monkeypatch.setattr(NoiseLaw, "sample", lambda _, size, left=left: np.array([left.pop(0) for _ in range(size)]))
        histogram = opened(counts)
        lazy[talk(ask, lambda keys, h=histogram: tuple(h.counts(words(keys)).tolist()))] += weight
        noisy = dict(zip(UNIVERSE, (c + z for c, z in zip(counts, script, strict=True)), strict=True))
        full[talk(ask, lambda keys, noisy=noisy: tuple(noisy[k] for k in keys))] += weight
    assert sum(lazy.values()) == 1
    assert lazy == full


@pytest.mark.parametrize("swap", [False, True], ids=["add-remove", "replace-one"])
def test_its_privacy_is_what_was_paid_and_no_less_would_do(swap: bool) -> None:
    """Mutants: replace-one priced as 1; half the noise; the price believed. The loss of an outcome, in exponents of the
    discrete law, is enumerated over neighbouring tables."""
    unit = PrivacyUnit(Neighbours.REPLACE_ONE if swap else Neighbours.ADD_REMOVE)
    tables = [t for t in itertools.product(range(3), repeat=3) if sum(t) <= 2]
    close = [
        (x, y)
        for x, y in itertools.permutations(tables, 2)
        if sorted(b - a for a, b in zip(x, y, strict=True) if a != b) in ([[-1, 1]] if swap else [[1], [-1]])
    ]
    outcomes = list(itertools.product(range(-3, 6), repeat=3))
    loss = max(
        sum(abs(o - b) - abs(o - a) for o, a, b in zip(outcome, x, y, strict=True))
        for x, y in close
        for outcome in outcomes
    )
    for scale in (Fraction(1), Fraction(7, 2)):
        epsilon = loss / scale
        for factor, fits in ((1, True), (Fraction(999, 1000), False)):
            curator = KeyCurator(sf.KeyCounts([3]), sf.Keys(), unit, sf.Ledger.in_memory(sf.pure(9)))
            price = PureEvent(epsilon * factor)
            if fits:
                curator.histogram(DiscreteLaplace(scale), price, name="n", plan_hash="h")
                continue
            with pytest.raises(sf.errors.PlanError, match="costs more"):
                curator.histogram(DiscreteLaplace(scale), price, name="n", plan_hash="h")


def test_every_key_has_noise_of_its_own() -> None:
    """Mutants: as above, with the noise that is really drawn; the law of the sum would show a shared draw. Chance of a
    false alarm below 1e-12: 7.2 standard errors."""
    histogram = opened((5, 0, 0))
    keys = words(np.arange(40_000) * 2**35 + 7)
    first = np.concatenate([histogram.counts(part) for part in np.split(keys, 8)])
    assert (histogram.counts(keys) == first).all()
    assert (histogram.counts(keys[::-1]) == first[::-1]).all()
    law = DiscreteLaplace(1)
    deviation = (law.variance**2 * (excess_kurtosis(law) + 2) / len(keys)) ** 0.5
    assert abs(float((first.astype(float) ** 2).mean()) - law.variance) < 7.2 * deviation
    assert abs(float((first[1:] * first[:-1]).mean())) < 7.2 * law.variance / len(keys) ** 0.5


def test_keys_never_meet() -> None:
    """Mutants: keys kept as floating-point numbers, which merge 2^59 and 2^59 + 1; as 32-bit words."""
    near = [2**59 + i for i in range(50)] + [2**60 - 1 - i for i in range(50)] + [i * 2**32 + 5 for i in range(50)]
    counts = [10**6 * (i + 1) for i in range(len(near))]
    curator = KeyCurator(
        sf.KeyCounts(np.array(near), counts),
        sf.Keys(),
        PrivacyUnit(Neighbours.ADD_REMOVE),
        sf.Ledger.in_memory(sf.pure(9)),
    )
    histogram, _ = curator.histogram(DiscreteLaplace(1), PureEvent(1), name="n", plan_hash="h")
    for k, count in sorted(zip(near, counts, strict=True), key=lambda pair: pair[0] % 97):
        assert abs(int(histogram.counts(words([k]))[0]) - count) < 1000
    found = histogram.counts(words(near))
    assert (abs(found - np.array(counts)) < 1000).all()
    assert histogram.shown[0].tolist() == sorted(near)
