"""Independent attributes fitted to attributes and pairs together, and the test whether pairs deny independence."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from sfumato.postprocess.consistency import ResidualNoise
from sfumato.postprocess.denoising import denoise_pairs
from sfumato.postprocess.mixtures import fit_product, independence_p_bound
from sfumato.postprocess.noisy_pairs import Components, NoisyPairs, read_noisy

Floats = NDArray[np.float64]
SIZES = (3, 4, 5, 4)
PAIRS = list(itertools.combinations(range(len(SIZES)), 2))
ONE, PAIR = 900.0, 900.0


def noise() -> ResidualNoise:
    sets = (np.empty((0, 0), dtype=np.int32), np.arange(4, dtype=np.int32)[:, None], np.array(PAIRS, dtype=np.int32))
    return ResidualNoise(sets, (np.empty(0), np.full(4, ONE), np.full(len(PAIRS), PAIR)))


def shares(seed: int) -> list[Floats]:
    random = np.random.default_rng(seed)
    return [random.dirichlet(np.full(n, 0.5)) for n in SIZES]


def tables(joint: Floats, seed: int) -> list[Floats]:
    """Noisy pairs whose residuals have the noise's law, built from cells."""
    random = np.random.default_rng([seed, 7])
    ones = [math.sqrt(ONE) * (z - z.mean()) for z in (random.standard_normal(n) for n in SIZES)]
    out: list[Floats] = []
    for a, b in PAIRS:
        table = joint.sum(axis=tuple(i for i in range(4) if i not in (a, b)))
        z = math.sqrt(PAIR) * random.standard_normal(table.shape)
        z = z - z.mean(axis=0) - z.mean(axis=1, keepdims=True) + z.mean()
        out.append(table + z + ones[a][:, None] / SIZES[b] + ones[b] / SIZES[a])
    return out


def independent(seed: int, count: float = 1_000.0) -> Floats:
    p = shares(seed)
    return count * np.einsum("a,b,c,d->abcd", *p)


def dependent(seed: int, count: float = 1_000.0) -> Floats:
    return (independent(seed, count) + independent(seed + 1_000, count)) / 2


def seen(joint: Floats, seed: int) -> NoisyPairs:
    return read_noisy(SIZES, PAIRS, tables(joint, seed), noise(), float(joint.sum()))


def away(found: Floats, seed: int) -> float:
    return float(np.square(found - np.concatenate(shares(seed))).sum())


def test_the_product_is_the_nearest_one() -> None:
    """Against a minimiser that knows nothing of attributes. Mutants: pairs left out; one over the precision."""
    given = seen(independent(3), 3)

    def at(logits: Floats) -> float:
        e = np.exp(logits - logits.max())
        u = e / given.stack.sums(e) - given.stack.even
        rest = Components(u - given.values.ones, np.where(given.stack.apart, np.outer(u, u), 0.0) - given.values.pairs)
        return given.inner(rest, rest)

    found = fit_product(given, given.values)
    assert found.min() >= 0
    assert given.stack.sums(found) == pytest.approx(1.0)
    logs = np.log(np.maximum(found, 1e-12))
    best = min(minimize(at, start, method="BFGS").fun for start in (logs, np.zeros(len(found))))
    assert at(logs) == pytest.approx(best, rel=1e-3)


def test_pairs_tell_of_the_attributes_too() -> None:
    """Mutant: the attributes' own shares alone."""
    both = [
        [away(fit_product(g, g.values), s), away(g.stack.simplex(g.values.ones), s)]
        for s in range(30)
        for g in [seen(independent(s), s)]
    ]
    fitted, own = np.mean(both, axis=0)
    assert fitted < 0.8 * own


def test_independence_is_denied_where_pairs_depend_and_seldom_where_not() -> None:
    """Mutants: freedom of one pair for all; the number of pairs left out of the clearest one; noise for signal."""
    none = np.array([independence_p_bound(seen(independent(s), s)) for s in range(100)])
    some = np.array([independence_p_bound(seen(dependent(s, 4_000.0), s)) for s in range(20)])
    assert (none < 0.1).mean() < 0.19  # three deviations above a tenth
    assert (none < 0.02).mean() < 0.05
    assert (none > 0.25).mean() > 0.6
    assert (some < 0.02).mean() > 0.8


def test_one_pair_that_depends_is_enough() -> None:
    """What says nothing to all pairs together. Mutant: all pairs together alone."""
    joint = independent(0)
    swap = np.zeros((4, 4))
    swap[:2, :2] = [[1, -1], [-1, 1]]
    p = shares(0)
    joint = joint + 120 * np.einsum("a,bd,c->abcd", p[0], swap, p[2])
    exact = [joint.sum(axis=tuple(i for i in range(4) if i not in axes)) for axes in PAIRS]
    assert independence_p_bound(read_noisy(SIZES, PAIRS, exact, noise(), 1_000.0)) < 1e-4


def test_where_nothing_denies_it_tables_are_products_of_all_that_was_measured() -> None:
    """Mutants: the blend kept; the shares of one half of the noise."""
    at = next(s for s in range(50) if independence_p_bound(seen(independent(s), s)) == 1.0)
    given = seen(independent(at), at)
    found = denoise_pairs(SIZES, PAIRS, tables(independent(at), at), noise(), 1_000.0)
    assert found.weights == {"independent": 1.0, "forest": 0.0, "mixture": 0.0}
    p = fit_product(given, given.values)
    for a, b in PAIRS:
        wanted = 1_000 * np.outer(p[given.stack.slice(a)], p[given.stack.slice(b)])
        assert found.pairs[a, b] == pytest.approx(wanted, abs=1e-6)
    assert found.chosen == "independent"
    assert len(found.draw(500)) == 500
    other = denoise_pairs(SIZES, PAIRS, tables(dependent(2, 20_000.0), 2), noise(), 20_000.0)
    assert other.weights["independent"] < 1
