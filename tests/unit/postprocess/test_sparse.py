"""Multiplicative weights over keys that are bound to slots as they are named, held against an explicit list of slots.

Every test names the mutants that it was seen to fail on.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from sfumato.errors import PlanError
from sfumato.postprocess.weights import SparseHypothesis


def words(keys: Any) -> Any:
    return np.array(keys, dtype=np.uint64)


class Explicit:
    """The same on a list: a weight for every slot and one for "no key", normalised after every update."""

    def __init__(self, slots: int, total: float) -> None:
        self.p = np.append(np.full(slots, 1 / (2 * slots)), 0.5)
        self.total, self.slot = total, dict[int, int]()

    def places(self, keys: list[int], bind: bool) -> list[int]:
        taken = dict(self.slot)
        for key in keys:
            taken.setdefault(key, len(taken))
        if bind:
            self.slot = taken
        return [taken[key] for key in keys]

    def answer(self, keys: list[int]) -> float:
        return self.total * float(self.p[self.places(keys, bind=False)].sum())

    def update(self, keys: list[int], step: float) -> None:
        self.p[self.places(keys, bind=True)] *= math.exp(step)
        self.p /= self.p.sum()


@pytest.mark.parametrize("seed", range(6))
def test_it_is_multiplicative_weights_on_a_list(seed: int) -> None:
    """Mutants: Z without the slots that have no key, or without the half for none; keys without a slot left out;
    weights given to the wrong key when a smaller one is bound."""
    rng = np.random.default_rng(seed)
    listed = [int(k) for k in rng.permutation(40) * 2**54 + 3]
    lazy, explicit = SparseHypothesis(40, 1000.0), Explicit(40, 1000.0)
    for _ in range(120):
        keys = [int(k) for k in rng.choice(listed, rng.integers(1, 9), replace=False)]
        assert lazy.answer(words(keys)) == pytest.approx(explicit.answer(keys), rel=1e-11)
        step = float(rng.normal(scale=2))
        lazy.update(words(keys), step)
        explicit.update(keys, step)
    assert lazy.bound == len(explicit.slot) > 30
    assert lazy.answer(words(listed)) + 1000 * explicit.p[-1] == pytest.approx(1000)


def test_weights_of_any_size_stay_finite() -> None:
    """Mutant: weights kept themselves instead of their logarithms."""
    found = SparseHypothesis(10**9, 500.0)
    assert found.answer(words([1, 2])) == pytest.approx(500 * 2 / 2e9)
    for _ in range(1000):
        found.update(words([7]), 4.0)
    assert found.answer(words([7])) == pytest.approx(500)
    assert 0 < found.answer(words([8])) < 1e-300 or found.answer(words([8])) == 0
    for _ in range(2000):
        found.update(words([7]), -4.0)
    assert found.answer(words([7])) < 1e-300
    assert found.answer(words([8])) == pytest.approx(500 / 2e9)


def sparse_updates(size: int, alpha: float) -> int:
    """The updates after which no query of `size` keys errs by a share above `alpha`: L = 8/3 ln(2 s L) / alpha^2.

    The least fixed point, rounded up: the divergence from the start is at most ln(2 s L), and an update, made where
    the error is at least alpha / 2, takes 3/8 alpha^2 or more of it off [HR10].
    """
    found, needed = 0, 1
    while needed > found:  # from below, so that the least fixed point is met
        found = needed
        needed = math.ceil(8 / 3 * math.log(2 * size * found) / alpha**2)
    return found


def test_updates_suffice_for_every_table() -> None:
    """Updates with exact answers on questions off by more than half of alpha end before there are L of them, whatever
    the table. Mutants: 8/3 replaced by 1; ln(2 m L) by ln(2 m)."""
    assert sparse_updates(64, 0.1) == 3468  # mathematics S12.8
    rng = np.random.default_rng(5)
    size, alpha, records = 4, 0.2, 1000
    most = sparse_updates(size, alpha)
    for _ in range(5):
        keys = rng.choice(2**40, 60, replace=False).astype(np.uint64)
        counts = rng.multinomial(records, rng.dirichlet(np.full(60, 0.05)))
        found, made, calm = SparseHypothesis(size * most, records), 0, 0
        while calm < 300:
            asked = rng.choice(60, size, replace=False)
            gap = (counts[asked].sum() - found.answer(keys[asked])) / records
            if abs(gap) > alpha / 2:
                found.update(keys[asked], 4 * gap)
                made, calm = made + 1, 0
            calm += 1
        assert made <= most
        assert found.bound <= size * most
    for one, other in ((0.5, 0.1), (1, 0.5)):
        assert sparse_updates(64, one) < sparse_updates(64, other)
    for m in (1, 7, 1000):
        found_updates = sparse_updates(m, 0.3)
        needed = 8 / 3 * math.log(2 * m * found_updates) / 0.09
        assert needed <= found_updates
        assert found_updates == 1 or 8 / 3 * math.log(2 * m * (found_updates - 1)) / 0.09 > found_updates - 1


def test_what_makes_no_hypothesis_is_refused() -> None:
    for slots, total in ((0, 1), (1.5, 1), (5, 0), (5, math.inf), (2**41, 1)):
        with pytest.raises(PlanError):
            SparseHypothesis(slots, total)  # type: ignore[arg-type]
    found = SparseHypothesis(3, 10)
    found.update(words([1, 2]), 1.0)
    with pytest.raises(PlanError, match="more keys"):
        found.update(words([3, 4]), 1.0)
    assert found.bound == 2
