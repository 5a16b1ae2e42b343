"""Prediction equals observation for sketches of keys: the noise's law, errors, intervals and the choice among them.

No seeds but those of the public data. Bounds are so wide that a correct mechanism fails with probability below 1e-10.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

import sfumato as sf
from sfumato.plans.keys import KeyPlan
from support.words import plan_with

KEYS = sf.Keys()
PRESENT = np.unique(np.random.default_rng(8).integers(0, 2**60, 2000, dtype=np.int64))
ABSENT = np.random.default_rng(9).integers(0, 2**60, 2000, dtype=np.int64)
EMPTY = sf.KeyCounts(np.zeros(0, dtype=np.int64))


def plan(mechanism: str, neighbours: str = "add-remove", **options: Any) -> KeyPlan:
    return plan_with(KEYS, sf.approx(1, "1e-6"), neighbours=neighbours, mechanism=mechanism, **options)


@pytest.mark.parametrize(("neighbours", "changed"), [("add-remove", 1), ("replace-one", 2)])
@pytest.mark.parametrize(("mechanism", "epsilon"), [("count-sketch", 1), ("hybrid", 7 / 8)])
def test_the_noise_is_that_of_the_budget(neighbours: str, changed: int, mechanism: str, epsilon: float) -> None:
    """Mutants: no noise; a scale off by a tenth; replace-one at half its noise; the share of the other part."""
    size = 2**18
    found = sf.release(plan(mechanism, neighbours, width=size), EMPTY, ledger=None).measurement
    q = np.exp(-epsilon / changed)
    edges = np.arange(-12, 13)
    masses = (1 - q) / (1 + q) * q ** abs(edges)
    masses[[0, -1]] /= 1 - q
    seen = np.bincount(np.clip(found.values, -12, 12) + 12, minlength=25)
    statistic = float(((seen - size * masses) ** 2 / (size * masses)).sum())
    assert chi2.isf(1 - 1e-11, 24) < statistic < chi2.isf(1e-11, 24)
    assert found.heavy.size == 0


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_heavy_keys_are_shown_with_the_noise_of_their_share(neighbours: str) -> None:
    """Mutants: exact counts shown; noise of the sketch's scale."""
    changed, size = (1 if neighbours == "add-remove" else 2), 20_000
    source = sf.KeyCounts(np.arange(size), np.full(size, 10**6))
    found = sf.release(plan("hybrid", neighbours, width=64), source, ledger=None).measurement
    assert found.heavy.tolist() == list(range(size))
    q = np.exp(-1 / (8 * changed))
    variance = 2 * q / (1 - q) ** 2
    assert np.mean((found.heavy_counts - 10**6) ** 2.0) == pytest.approx(variance, rel=0.13)
    just = sf.KeyCounts(np.arange(size), np.full(size, 1))
    assert sf.release(plan("hybrid", neighbours, width=64), just, ledger=None).measurement.heavy.size <= 8


RUNS = {"count-sketch": 30, "hybrid": 30, "histogram": 30, "sparse-project": 24}


@pytest.mark.parametrize("mechanism", RUNS)
def test_errors_are_those_predicted_and_stated(mechanism: str) -> None:
    """Mutants: a sketch read with another hash; the shown part left out; N / W forgotten in either prediction."""
    asked = [np.concatenate([PRESENT[i : i + 12], ABSENT[i : i + 12]]) for i in range(0, 1900, 38)]
    weights = np.tile([1.0, -2.0, 0.5], 8)
    truth = np.tile([1.0, -2.0, 0.5], 4).sum()
    sketched = {"width": 2048, "records": len(PRESENT)}
    own: dict[str, dict[str, Any]] = {
        "histogram": {"queries": asked},
        "sparse-project": {"dimension": 240, "records": len(PRESENT)},
    }
    options = own.get(mechanism, sketched)
    errors: list[float] = []
    stated: list[float] = []
    inside = 0
    for _ in range(RUNS[mechanism]):
        made = plan(mechanism, **options)
        found = sf.release(made, sf.KeyCounts(PRESENT), ledger=None)
        for keys in asked:
            a = found.ask(keys, weights)
            errors.append(a.value - truth)
            stated.append(float(a.standard_error or 0))
            inside += a.low <= truth <= a.high
    predicted = made.error(float(weights @ weights))
    count = len(errors)
    assert abs(np.mean(errors)) < 7 * predicted / np.sqrt(count / 4)
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(predicted, rel=0.17)
    assert np.sqrt(np.mean(np.square(stated))) == pytest.approx(predicted, rel=0.1)
    assert 0.9 < inside / count < 0.99


def test_a_sketch_estimates_its_own_squared_norm() -> None:
    """Mutants: the noise's share not subtracted; the scale of the projection left out."""
    counts = np.full(len(PRESENT), 5)
    for mechanism, size in (("count-sketch", {"width": 4096}), ("sparse-project", {"dimension": 3000})):
        found = sf.release(plan(mechanism, **size), sf.KeyCounts(PRESENT, counts), ledger=None)
        assert found.squared_norm == pytest.approx(25 * len(PRESENT), rel=0.4)
        assert found.error(9) == pytest.approx(found.plan.error(9, 25.0 * len(PRESENT)), rel=0.15)
    assert sf.release(plan("count-sketch"), EMPTY, ledger=None).squared_norm < 40_000


def test_hybrid_errors_do_not_grow_with_heavy_keys() -> None:
    """What the hybrid is for. Mutant: the sketch of all counts, not of what is left over."""
    keys, counts = np.append(PRESENT, 5), np.append(np.ones(len(PRESENT), dtype=np.int64), 10**9)
    made = plan("hybrid", records=len(keys), width=2**15)
    found = sf.release(made, sf.KeyCounts(keys, counts), ledger=None)
    assert found.heavy[0].tolist() == [5]
    assert found.error(16) < 1.1 * made.error(16) < made.worst_error(16)
    assert abs(found.ask([5]).value - 10**9) < 60
    plain = sf.release(plan("count-sketch", width=2**15), sf.KeyCounts(keys, counts), ledger=None)
    assert plain.error(16) > 10**6


@pytest.mark.parametrize("epsilon", [4, 16, 400])
def test_intervals_hold_where_noise_is_next_to_nothing(epsilon: int) -> None:
    """Mutant: the noise's own quantile, which is 0, for what collides: a key in six meets another."""
    inside = 0
    for _ in range(6):
        made = plan_with(KEYS, sf.pure(epsilon), neighbours="add-remove", mechanism="count-sketch", width=2**13)
        found = sf.release(made, sf.KeyCounts(PRESENT), ledger=None)
        for key in ABSENT[:300]:
            a = found.ask([key])
            inside += a.low <= 0 <= a.high
    assert inside / 1800 > 0.92
