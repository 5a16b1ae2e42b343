"""Zeros conditioned on by symmetry, against all of them at once: dense least squares under every impossible cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.operators import Block, Dense, Identity, Prefix
from sfumato.operators.base import FloatArray
from sfumato.strategies.impossible_cells import Allowed

SIZES = {"a": 4, "b": 3, "u": 3, "v": 2, "w": 4, "one": 1}


def drawn(rng: np.random.Generator, tilted: str | None) -> sf.Plan:
    """All tables of up to three of six attributes, and one's prefix sums, which makes its cells unlike each other."""
    attributes = {n: sf.Integers(0, s - 1) for n, s in SIZES.items()}
    texts = [f"a == {i} and b == {j}" for i in range(4) for j in range(3) if rng.random() < 0.4]
    domain = sf.Domain(attributes, [*texts, "a == 0 and b == 1"] if "a == 0 and b == 1" not in texts else texts)
    work: Any = sf.marginals(domain, upto=3)
    if tilted is not None:
        work = sf.stack(tables=work, cdf=sf.prefix(domain, tilted, by=["b"] if tilted != "b" else ["a"]))
    return sf.plan(work, sf.gdp(1), neighbours="add-remove", mechanism="marginals")


def queries(rng: np.random.Generator) -> list[Block]:
    """Tables, and rows of every kind of factor over up to three attributes, some over several attributes at once."""
    out: list[Block] = []
    for _ in range(4):
        names = [str(n) for n in rng.choice(list(SIZES), size=int(rng.integers(1, 4)), replace=False)]
        if rng.random() < 0.4:
            cells = int(np.prod([SIZES[n] for n in names]))
            out.append(Block((tuple(names),), (Dense(rng.integers(-2, 3, (2, cells))),)))
            continue
        kinds: list[Any] = [Identity(n) for n in (SIZES[a] for a in names)]
        for i, a in enumerate(names):
            if rng.random() < 0.5:
                kinds[i] = Prefix(SIZES[a]) if rng.random() < 0.5 else Dense(rng.integers(-2, 3, (2, SIZES[a])))
        out.append(Block(tuple((a,) for a in names), tuple(kinds)))
    return [*out, Block((), ()), Block(((),), (Identity(1),))]


def under_zeros(strategy: Allowed, pair: tuple[Block, Block]) -> FloatArray:
    """Cov(a, b) - Cov(a, z) Var(z)^+ Cov(z, b) with every impossible cell of every table in z."""
    source = strategy.measured
    masks = {b: ~np.broadcast_to(strategy._possible(b), b.rows) for b in strategy.zeros}
    between = [np.concatenate([source.covariance(q, b)[:, m] for b, m in masks.items()], axis=1) for q in pair]
    variance = np.concatenate(
        [np.concatenate([source.covariance(b, c)[m][:, n] for c, n in masks.items()], axis=1) for b, m in masks.items()]
    )
    return source.covariance(*pair) - between[0] @ np.linalg.pinv(variance, rcond=1e-10, hermitian=True) @ between[1].T


@pytest.mark.parametrize("tilted", [None, "u", "a"])
@pytest.mark.parametrize("seed", range(2))
def test_as_with_all_zeros_at_once(seed: int, tilted: str | None) -> None:
    """Mutants: a contrast's length 2 left out; sums over free attributes not divided; parts along R not centred; a
    query over held and free attributes at once taken as one of held ones; sets R of which a query holds but some;
    covariances where cells agree along R, without those where they do not."""
    rng = np.random.default_rng([seed, 99])
    plan = drawn(rng, tilted)
    strategy = plan.strategy
    assert isinstance(strategy, Allowed)
    asked = queries(rng)
    for first in asked:
        for second in asked:
            if strategy.measured.source(first) is not strategy.measured.source(second):
                continue
            expected = under_zeros(strategy, (first, second))
            for query, axis in ((first, 0), (second, 1)):
                dead = strategy._dead(query)
                if dead is not None:
                    expected = np.where(np.expand_dims(dead, 1 - axis), 0.0, expected)
            found = strategy.covariance(first, second)
            scale = max(1.0, float(np.abs(strategy.measured.covariance(first, second)).max()))
            np.testing.assert_allclose(found, expected, atol=1e-8 * scale)
            if first is second:
                powers = np.broadcast_to(strategy.row_powers(first, 2), [f.shape[0] for f in first.factors])
                np.testing.assert_allclose(powers.reshape(-1), np.diag(expected), atol=1e-8 * scale)


@pytest.mark.parametrize("seed", range(2))
def test_answers_are_what_their_covariances_say(seed: int) -> None:
    """Of noise alone: a response to a query is linear in the values, and its squares sum to the variance."""
    rng = np.random.default_rng([seed, 100])
    strategy = drawn(rng, None).strategy
    sizes = [b.rows for b in strategy.blocks]
    ends, asked = np.cumsum(sizes)[:-1], queries(rng)
    back = []
    for unit in np.eye(sum(sizes), dtype=np.int64):
        held = strategy.estimate(np.split(unit, ends), None)
        back.append(np.concatenate([strategy.answer(held, q) for q in asked]))
    rows = np.stack(back, axis=1)
    expected = np.concatenate([np.concatenate([strategy.covariance(p, q) for q in asked], axis=1) for p in asked])
    np.testing.assert_allclose(rows @ rows.T, expected, atol=1e-8 * np.abs(expected).max())
