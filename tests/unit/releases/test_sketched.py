"""Intervals of a sketch hold within its one file, whose hash is what it is, not only on average over hashes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import sfumato as sf

HEAVY, EACH = 9, 3_000  # keys that hold nearly all records: one bucket in seven of 64 holds one


def _file(seed: int) -> tuple[sf.SketchRelease, np.ndarray]:
    rng = np.random.default_rng(seed)
    keys = np.concatenate([np.repeat(np.arange(HEAVY), EACH), rng.integers(1_000, 50_000, 500)])
    mechanism = sf.mechanisms.count_sketch(width=64)
    plan = sf.plan(sf.Keys("k"), sf.approx(1, "1e-6"), neighbours="add-remove", mechanism=mechanism, records=len(keys))
    return sf.release(plan, sf.KeyCounts(keys), ledger=None), np.bincount(keys, minlength=50_000)


@pytest.mark.parametrize(("size", "queries"), [(1, 300), (4, 120)])
def test_intervals_hold_in_every_file(size: int, queries: int) -> None:
    """Ten files, queries of keys that are rare: of one key, the share of buckets within the interval is counted, so
    fewer than 89 % of 300 are inside once in 10^5 files. Mutants: what collides shaped as noise is, which has 86 % of
    single keys inside; the largest bucket left out of what the file holds."""
    rng = np.random.default_rng(17)
    shares: list[float] = []
    for seed in range(10):
        sketch, counts = _file(seed)
        inside = 0
        for _ in range(queries):
            keys = rng.choice(np.arange(1_000, 50_000), size, replace=False)
            found = sketch.ask(keys)
            assert sketch.ask(keys) == found
            inside += found.low <= counts[keys].sum() <= found.high
        shares.append(inside / queries)
    assert min(shares) > 0.89
    assert np.mean(shares) > 0.94


def test_an_interval_near_certainty_and_one_of_many_keys_are_bounded_without_drawing() -> None:
    """Mutant: the last of the counted buckets taken for a share that they cannot tell."""
    sketch, _ = _file(1)
    (held,) = [np.abs(sketch.measurement.values).max()]
    sure, usual = sketch.ask([40_000], confidence=0.9999), sketch.ask([40_000])
    assert sure.high - sure.value > held > 0
    assert sure.high - sure.value > usual.high - usual.value
    wide = sketch.ask(np.arange(2_000, 8_000))
    assert wide.standard_error is not None
    assert wide.high - wide.value > 1.9 * wide.standard_error


def test_intervals_of_queries_alike_are_drawn_once_and_the_same_in_any_order() -> None:
    """Mutants: a width kept whatever the confidence, or whatever the weights; one that hangs on earlier questions."""
    rng = np.random.default_rng(3)
    keys = rng.choice(2**40, 2_000, replace=False)
    plan = sf.plan(sf.Keys(), sf.pure(1), neighbours="add-remove", mechanism=sf.mechanisms.count_sketch(width=2**12))
    found = sf.release(plan, sf.KeyCounts(keys, rng.integers(1, 50, keys.size)), ledger=None)
    asked = [(keys[:16], None), (keys[16:32], None), (keys[:16], np.arange(1, 17))]

    def widths(order: list[int]) -> dict[int, list[float]]:
        fresh = replace(found)
        asks = {i: [fresh.ask(*asked[i], confidence=c) for c in (0.8, 0.99)] for i in order}
        return {i: [a.high - a.low for a in two] for i, two in asks.items()}

    first = widths([0, 1, 2])
    assert first == widths([2, 1, 0])
    assert all(narrow < wide for narrow, wide in first.values())
    assert first[0][0] < first[2][0]
