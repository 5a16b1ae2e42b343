"""Sparse queries over 2^60 keys: root mean squared errors beside their predictions, and costs.

100,000 records with distinct keys, or keys of a Zipf law with exponent 1.3; queries of s keys, half of which occur;
epsilon 1 (delta 1e-6). Errors are over fresh hashes and noise. `python bench/sparse.py`
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from sfumato.curator.keys import KeyCounts
from sfumato.mechanisms import make_mechanism
from sfumato.mechanisms.carry_out import carry_out as sketch
from sfumato.planner.planning import plan as decide
from sfumato.privacy.budget import Budget
from sfumato.sketches import Keys
from sfumato.sketches.predict import paper_parameters

RECORDS, SIZES = 100_000, (16, 64, 256, 1024)
KEYS = Keys()
APPROX, PURE = Budget.approx(1, "1e-6"), Budget.pure(1)


def records(zipf: bool, rng: np.random.Generator) -> tuple[Any, Any]:
    """Distinct keys of the universe and their counts."""
    if not zipf:
        return np.unique(rng.integers(0, 2**60, RECORDS, dtype=np.int64), return_counts=True)
    counts = np.unique(rng.zipf(1.3, RECORDS), return_counts=True)[1]
    return rng.integers(0, 2**60, len(counts), dtype=np.int64), counts


def queries(keys: Any, size: int, count: int, rng: np.random.Generator) -> Any:
    """(count, size) keys, half of which occur."""
    absent = rng.integers(0, 2**60, (count, size - size // 2), dtype=np.int64)
    present = np.stack([rng.choice(len(keys), size // 2, replace=False) for _ in range(count)])
    return np.concatenate([keys[present], absent], axis=1), present


def measure(make: Callable[[], Any], zipf: bool, runs: int, count: int, rng: np.random.Generator) -> None:
    """One line per size: observed, stated by the release, predicted before data."""
    keys, counts = records(zipf, rng)
    squared = dict.fromkeys(SIZES, 0.0)
    stated = dict.fromkeys(SIZES, 0.0)
    build, asked, n = 0.0, 0.0, 0
    for _ in range(runs):
        plan = make()
        start = time.process_time()
        found = sketch(plan, KeyCounts(keys, counts), ledger=None)
        build += time.process_time() - start
        for m in SIZES:
            asks, present = queries(keys, m, count, rng)
            start = time.process_time()
            answers = [found.ask(q) for q in asks]
            asked += time.process_time() - start
            n += count
            truth = counts[present].sum(axis=1)
            squared[m] += float(sum((a.value - t) ** 2 for a, t in zip(answers, truth, strict=True)))
            stated[m] += sum((a.standard_error or 0) ** 2 for a in answers)
    norm = None if not zipf else float((counts.astype(float) ** 2).sum())
    lines = [(squared[m], stated[m]) for m in SIZES]
    observed, said = (
        "/".join(f"{(x / runs / count) ** 0.5:.4g}" for x in column) for column in zip(*lines, strict=True)
    )
    if zipf and plan.stability is not None:
        predicted = "at worst " + "/".join(f"{plan.worst_error(m):.4g}" for m in SIZES)
    else:
        predicted = "/".join(f"{plan.error(m, norm):.4g}" for m in SIZES)
    share = "" if plan.stability is None else f", share {plan.stability.epsilon(plan.unit)}"
    print(
        f"| {plan.mechanism}{share}{', Zipf(1.3)' if zipf else ''} | {observed} | {said} | {predicted} "
        f"| {build / runs:.3f} | {1000 * asked / n:.2f} |",
        flush=True,
    )


def files() -> None:
    """Size of a saved sketch, and that it answers the same."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "s.sfumato"
        sketch(decide(KEYS, PURE, neighbours="add-remove"), KeyCounts([1, 2, 3]), ledger=None, out=path)
        print(f"\nfile of a count-sketch of 2^20 buckets: {path.stat().st_size / 2**20:.1f} MB")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--queries", type=int, default=50)
    given = parser.parse_args()
    rng = np.random.default_rng(2026)

    def of(mechanism: str, budget: Budget, **options: Any) -> Callable[[], Any]:
        value = make_mechanism(mechanism, **options)
        return lambda: decide(KEYS, budget, neighbours="add-remove", mechanism=value, records=RECORDS)

    print(f"rmse for s = {'/'.join(map(str, SIZES))}")
    print("| mechanism | observed | stated | predicted | build CPU-s | query CPU-ms |")
    print("|---|---|---|---|---|---|")
    for zipf in (False, True):
        measure(of("count-sketch", PURE), zipf, given.runs, given.queries, rng)
        measure(of("hybrid", APPROX), zipf, given.runs, given.queries, rng)
        measure(of("hybrid", APPROX, share="0.5"), zipf, given.runs, given.queries, rng)
    measure(of("sparse-project", APPROX), False, max(3, 3 * given.runs // 4), given.queries, rng)
    known = rng.integers(0, 2**60, (4, 16), dtype=np.int64).tolist()
    print()
    print(decide(KEYS.queries(known), APPROX, neighbours="add-remove", records=RECORDS).candidates)
    print(paper_parameters(64, RECORDS, 1000, 1, 1e-6))
    files()


if __name__ == "__main__":
    main()
