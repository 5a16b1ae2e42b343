"""Tables that are 0 where no record can be: what agrees, what is conditioned on it, and what it is worth."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import sfumato as sf
from sfumato.postprocess.consistency import ResidualNoise, Zeros, project_onto_local
from sfumato.postprocess.denoising import denoise_pairs
from sfumato.postprocess.noisy_pairs import (
    Components,
    NoisyPairs,
    ZeroProjection,
    condition_on_zeros,
    read_noisy,
    split_in_halves,
    tied_tables,
)
from support.impossible import drawn
from support.seeded import draws

SEEDS = range(draws(4))
Pair = tuple[int, int]


def known(seed: int) -> tuple[sf.Domain, Zeros]:
    domain = drawn(seed)
    zeros = Zeros.of(domain, domain.names)
    assert zeros is not None
    return domain, zeros


def counts(domain: sf.Domain, seed: int, records: int) -> NDArray[np.float64]:
    """Of possible records alone, few cells of which hold most."""
    rng = np.random.default_rng([seed, 1])
    shares = rng.dirichlet(np.full(domain.size, 0.1)).reshape(domain.shape) + 1e-9
    mask = domain.possible(domain.names)
    assert mask is not None
    shares = np.where(mask, shares, 0.0)
    return rng.multinomial(records, (shares / shares.sum()).reshape(-1)).reshape(domain.shape).astype(np.float64)


def summed(table: NDArray[Any], axes: tuple[int, ...]) -> NDArray[Any]:
    return table.sum(axis=tuple(i for i in range(table.ndim) if i not in axes))


def measured(truth: NDArray[np.float64], deviation: float, seed: int) -> tuple[NoisyPairs, ResidualNoise, list[Pair]]:
    """All pairs under residual noise."""
    d, n = truth.ndim, float(truth.sum())
    pairs = list(itertools.combinations(range(d), 2))
    noise = ResidualNoise(
        (np.empty((0, 0), np.int32), np.arange(d, dtype=np.int32)[:, None], np.array(pairs, dtype=np.int32)),
        (np.empty(0), np.full(d, deviation**2), np.full(len(pairs), deviation**2)),
    )
    exact = read_noisy(truth.shape, pairs, [summed(truth, p) for p in pairs], noise, n)
    drawn_noise = exact.noise(np.random.default_rng([seed, 2]))
    values = exact.values.plus(drawn_noise)
    return NoisyPairs(exact.stack, values, n, exact.one, exact.pair), noise, pairs


def cells(noisy: NoisyPairs, pairs: list[Pair], values: Components | None = None) -> list[NDArray[np.float64]]:
    full = noisy.stack.tables(noisy.values if values is None else values) * noisy.total
    return [full[noisy.stack.slice(a), noisy.stack.slice(b)] for a, b in pairs]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_even_table_is_that_of_all_possible_records(seed: int) -> None:
    """Also of some of the attributes, where others tie them. Mutant: shares of a group's cells, not of its sums."""
    domain, zeros = known(seed)
    for names in (domain.names, domain.names[:3], domain.names[1:]):
        some = Zeros.of(domain, names) or Zeros(names, domain.sizes(names), domain.tied)
        mask = domain.possible(names)
        whole = np.ones(domain.sizes(names)) if mask is None else mask.astype(float)
        for axes in itertools.chain(*(itertools.permutations(range(len(names)), k) for k in range(4))):
            kept = [i for i in range(len(names)) if i in axes]
            table = summed(whole, axes).transpose([kept.index(a) for a in axes]) / whole.sum()
            np.testing.assert_allclose(some.even(axes), table, atol=1e-12)
            possible = some.possible(axes)
            assert np.array_equal(table > 0, np.ones_like(table, bool) if possible is None else possible)
    assert zeros.names == domain.names


@pytest.mark.parametrize("total", [None, 200.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_tables_that_agree_are_nearest_with_zeros(seed: int, total: float | None) -> None:
    """0 where they have to be, in agreement, and no possible table is nearer by more than is proved.

    Mutants: multipliers of zero cells cut at 0; a feasible point whose zeros are only cut off.
    """
    domain, zeros = known(seed)
    rng = np.random.default_rng(seed)
    sets = [*itertools.combinations(range(4), 2), (0, 1, 2)]
    truth = counts(domain, seed, 200)
    given = [summed(truth, s) + rng.normal(0, 6, [domain.shape[a] for a in s]) for s in sets]
    done = project_onto_local(domain.shape, sets, given, 1.0, total, zeros=zeros)
    for table, axes in zip(done.tables, sets, strict=True):
        mask = zeros.possible(axes)
        assert table.min() >= 0
        assert mask is None or not table[~mask].any()
        assert abs(table.sum() - done.total) < 1e-6
    for (one, s), (two, t) in itertools.combinations(zip(done.tables, sets, strict=True), 2):
        shared = [a for a in s if a in t]
        left = summed(one, tuple(s.index(a) for a in shared))
        np.testing.assert_allclose(left, summed(two, tuple(t.index(a) for a in shared)), atol=1e-6)
    assert np.sqrt(done.gap) <= 0.02 * done.moved + 1e-6
    for other in (truth, *(counts(domain, s, 200) for s in range(50, 54))):
        far = np.sqrt(sum(np.sum((g - summed(other, s)) ** 2) for g, s in zip(given, sets, strict=True)))
        near = np.sqrt(sum(np.sum((x - summed(other, s)) ** 2) for x, s in zip(done.tables, sets, strict=True)))
        # with the projection itself: |y - t|^2 >= |y - x|^2 + |x - t|^2
        slack = np.sqrt(done.gap)
        assert far**2 >= max(done.moved - slack, 0) ** 2 + max(near - slack, 0) ** 2 - 1e-6 * far**2


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_measured_is_conditioned_as_least_squares(seed: int) -> None:
    """Against equations solved densely; noise too, so that halves have zeros both and stay independent.

    Mutants: noise that is left as it was; a column of the covariance without its attributes.
    """
    domain, zeros = known(seed)
    noisy, _, pairs = measured(counts(domain, seed, 500), 8.0, seed)
    made = condition_on_zeros(noisy, zeros)
    masks = [zeros.possible(p) for p in pairs]
    for components in (made.values, *(h for part in split_in_halves(made, 2, 0) for h in (part.fitted, part.held_out))):
        for table, mask in zip(cells(made, pairs, components), masks, strict=True):
            assert mask is None or np.abs(table[~mask]).max(initial=0) < 1e-8
    if made.emptying is None:
        assert all(m is None for m in masks)
        return
    assert isinstance(made.emptying, ZeroProjection)
    # the nearest: what it is moved by is orthogonal to every difference of two with zeros
    rng = np.random.default_rng(seed)
    moved = noisy.values.plus(made.values, -1.0)
    for _ in range(3):
        along = made.noise(rng)
        scale = np.sqrt(noisy.inner(along, along) * max(noisy.inner(moved, moved), 1e-9))
        assert abs(noisy.inner(moved, along)) < 1e-7 * scale + 1e-9
    # the law of what noise becomes: as large as there are degrees left
    squares = [made.inner(z, z) for z in (made.noise(rng) for _ in range(200))]
    freedom = sum(n - 1 for n in domain.shape) + sum((domain.shape[a] - 1) * (domain.shape[b] - 1) for a, b in pairs)
    left = freedom - made.emptying.root.shape[1]
    assert abs(np.mean(squares) - left) < 5 * np.sqrt(2 * left / 200) + 1e-9


def test_too_many_zeros_are_made_where_tables_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfumato.postprocess.noisy_pairs._MOST", 0)
    domain, zeros = known(0)
    noisy, noise, pairs = measured(counts(domain, 0, 500), 8.0, 0)
    assert condition_on_zeros(noisy, zeros).emptying is None
    done = denoise_pairs(domain.shape, pairs, cells(noisy, pairs), noise, 500.0, zeros=zeros)
    for pair, table in done.pairs.items():
        mask = zeros.possible(pair)
        assert mask is None or not table[~mask].any()


def test_tables_are_nearer_to_the_truth_than_without_them() -> None:
    """The same noise some times, with and without: 8 % off where noise is small, 7 % where it is large.

    Mutant: zeros not taken in at all.
    """
    errors = np.zeros((2, 2, len(SEEDS)))
    for seed in SEEDS:
        domain, zeros = known(seed)
        truth = counts(domain, seed, 2_000)
        for i, deviation in enumerate((10.0, 60.0)):
            noisy, noise, pairs = measured(truth, deviation, seed)
            for j, told in enumerate((None, zeros)):
                done = denoise_pairs(domain.shape, pairs, cells(noisy, pairs), noise, 2_000.0, zeros=told)
                errors[i, j, seed] = sum(np.abs(t - summed(truth, p)).sum() for p, t in done.pairs.items()) / 2_000
    assert (errors[:, 1].mean(axis=1) <= 0.95 * errors[:, 0].mean(axis=1)).all()


def test_a_predicate_over_three_attributes_binds_their_pairs() -> None:
    """Every cell of every pair is possible, and yet no table has these pairs but one that counts impossible records.

    Mutant: pairs alone are made to agree.
    """
    domain = sf.Domain({"a": 2, "b": 2, "c": 2, "d": 2}, ["a == 0 and b == 0 and c == 0"])
    zeros = Zeros.of(domain, domain.names)
    assert zeros is not None
    assert all(zeros.possible(p) is None for p in itertools.combinations(range(4), 2))
    truth = np.ones((2, 2, 2, 2)) * 50
    truth[0, 0, 0] = 400  # what records that cannot be would say
    noisy, noise, pairs = measured(truth, 5.0, 0)
    total = float(truth.sum())
    done = denoise_pairs(domain.shape, pairs, cells(noisy, pairs), noise, total, zeros=zeros)
    table = done.table((0, 1, 2))
    assert table[0, 0, 0] == 0
    for p, q in itertools.combinations(range(3), 2):
        np.testing.assert_allclose(summed(table, (p, q)), done.pairs[p, q], atol=1e-2 * total)
    held = tied_tables(domain.shape, dict(zip(pairs, cells(noisy, pairs), strict=True)), zeros)
    for p in itertools.combinations(range(3), 2):
        np.testing.assert_allclose(summed(held[0, 1, 2], p), cells(noisy, pairs)[pairs.index(p)], atol=1e-8 * total)
