"""How far triples go from what entropy makes of pairs towards what mixtures do: by what was measured, however noisy."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sfumato.postprocess import denoising as adapted
from sfumato.postprocess.consistency import ResidualNoise
from sfumato.postprocess.denoising import denoise_pairs
from sfumato.postprocess.mixtures import Mixture, restore_triples
from sfumato.postprocess.noisy_pairs import most_even_table

Floats = NDArray[np.float64]
Pair = tuple[int, int]
Triple = tuple[int, int, int]
SIZES, TOTAL = (3, 4, 5, 6), 1e5
ENDS = np.cumsum((0, *SIZES)).tolist()
TRIPLES: list[Triple] = [(a, b, c) for a, b, c in itertools.combinations(range(4), 3)]


def kinds(seed: int) -> Mixture:
    """Two of people, whose attributes are independent within each."""
    random = np.random.default_rng(seed)
    return Mixture(np.array([0.5, 0.5]), np.hstack([random.dirichlet(np.full(n, 0.3), 2) for n in SIZES]))


def table(mixture: Mixture, axes: tuple[int, ...]) -> Floats:
    out = np.zeros([SIZES[a] for a in axes])
    for weight, shares in zip(mixture.weights, mixture.shares, strict=True):
        product = np.array(weight)
        for a in axes:
            product = np.multiply.outer(product, shares[ENDS[a] : ENDS[a + 1]])
        out += product
    return TOTAL * out


def pairs_of(mixture: Mixture) -> dict[Pair, Floats]:
    return {(a, b): table(mixture, (a, b)) for a, b in itertools.combinations(range(4), 2)}


def centred(values: Floats) -> Floats:
    """What varies along all axes."""
    for axis in range(values.ndim):
        values = values - values.mean(axis=axis, keepdims=True)
    return values


def noisy(mixture: Mixture, deviations: dict[Triple, float], seed: int) -> dict[Triple, tuple[Floats, float]]:
    random, out = np.random.default_rng(seed), dict[Triple, tuple[Floats, float]]()
    for axes, deviation in deviations.items():
        rest = centred(random.standard_normal([SIZES[a] for a in axes]))
        out[axes] = table(mixture, axes) + deviation * rest, deviation**2
    return out


def away(mixture: Mixture, found: dict[Triple, Floats]) -> float:
    return float(np.mean([np.abs(found[t] - table(mixture, t)).sum() for t in TRIPLES])) / TOTAL


def even(mixture: Mixture) -> dict[Triple, Floats]:
    pairs = pairs_of(mixture)
    sides = [(0, 1), (0, 2), (1, 2)]
    return {
        t: most_even_table([SIZES[a] for a in t], {(p, q): pairs[t[p], t[q]] for p, q in sides}, tolerance=1e-9)
        for t in TRIPLES
    }


def test_of_a_mixture_its_own_triples_are_taken_though_noise_hides_every_cell() -> None:
    """Mutants: a share that is always 0; triples weighed alike, whatever their noise."""
    errors = np.zeros(2)
    for seed in range(6):
        people = kinds(seed)
        # one triple has ten times the noise of the others, and says little
        spread = {t: 150.0 if t != TRIPLES[0] else 1_500.0 for t in TRIPLES}
        _, found = restore_triples(SIZES, pairs_of(people), noisy(people, spread, seed), TOTAL, [people, people])
        errors += [away(people, found), away(people, even(people))]
    assert errors[0] < 0.5 * errors[1]


def test_mixtures_that_weigh_are_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: none is; those that the blend leaves out are."""
    handed: list[int] = []

    def seen(*given: Any) -> Any:
        handed.append(len(given[4]))
        return restore_triples(*given)

    monkeypatch.setattr(adapted, "restore_triples", seen)
    for people, count in ((kinds(1), 8), (Mixture(np.ones(1), kinds(1).shares[:1]), 0)):
        random = np.random.default_rng(1)
        pairs, triples = pairs_of(people), noisy(people, dict.fromkeys(TRIPLES, 150.0), 1)
        twos = {p: t + 30.0 * centred(random.standard_normal(t.shape)) for p, t in pairs.items()}
        sets = [np.array(list(itertools.combinations(range(4), k)), dtype=np.int32) for k in (1, 2, 3)]
        spread = [np.full(len(s), v) for s, v in zip(sets, (1.0, 900.0, 150.0**2), strict=True)]
        noise = ResidualNoise((np.empty((0, 0), dtype=np.int32), *sets), (np.empty(0), *spread))
        values = [*twos.values(), *(t for t, _ in triples.values())]
        found = denoise_pairs(SIZES, [*pairs, *triples], values, noise, TOTAL)
        assert found.triples is not None
        assert handed.pop() == count


def test_a_mixture_that_is_wrong_about_triples_is_not_followed() -> None:
    """Mutants: a share that is always 1; one that noise makes, half the time."""
    followed = 0
    for seed in range(20):
        people, others = kinds(seed), kinds(seed + 50)
        # the same pairs, and the most even triples
        most = even(people)
        given = noisy(people, dict.fromkeys(TRIPLES, 300.0), seed)
        held = {t: (most[t] + x - table(people, t), v) for t, (x, v) in given.items()}
        _, plain = restore_triples(SIZES, pairs_of(people), held, TOTAL)
        for wrong in (people, others):
            _, found = restore_triples(SIZES, pairs_of(people), held, TOTAL, [wrong])
            followed += any(not np.array_equal(found[t], plain[t]) for t in TRIPLES)
    assert followed <= 2


def test_a_few_cells_in_much_noise_are_left() -> None:
    """Their squares are an eighth of those of the noise. Mutant: what squares alone would keep of the rest."""
    axes, shape = (0, 1, 2), (12, 12, 12)
    whole = np.full(shape, 60.0)
    sign = np.array([1.0, -1.0])
    truth = whole.copy()
    truth[:2, :2, :2] += 5.5 * np.multiply.outer(np.multiply.outer(sign, sign), sign)
    pairs: dict[Pair, Floats] = dict.fromkeys([(0, 1), (0, 2), (1, 2)], np.full((12, 12), 720.0))
    for seed in range(5):
        rest = centred(np.random.default_rng(seed).standard_normal(shape))
        _, found = restore_triples(shape, pairs, {axes: (truth + rest, 1.0)}, whole.sum())
        assert np.abs(found[axes] - truth).sum() <= 1.01 * np.abs(whole - truth).sum()


def test_between_the_two_what_was_measured_decides() -> None:
    """Mutant: the square of what lies between them not weighed by the noise."""
    people = kinds(3)
    most = even(people)
    middle = {t: (0.5 * most[t] + 0.5 * table(people, t), 1.0) for t in TRIPLES}
    _, found = restore_triples(SIZES, pairs_of(people), middle, TOTAL, [people])
    for t in TRIPLES:
        assert found[t] == pytest.approx(middle[t][0], abs=math.sqrt(TOTAL))
        for place in range(3):
            a, b = (a for i, a in enumerate(t) if i != place)
            assert found[t].sum(axis=place) == pytest.approx(pairs_of(people)[a, b], abs=20.0)
