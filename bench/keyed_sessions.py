"""Sessions over 2^60 keys: errors of the lazy histogram beside its statement, questions a second, and sparse weights.

100,000 records with distinct keys, or keys of a Zipf law with exponent 1.3; questions of s keys, half of which occur.
`python bench/keyed_sessions.py`
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import sfumato as sf

RECORDS, SIZES = 100_000, (16, 64, 256, 1024)
KEYS, PURE, APPROX = sf.Keys(), sf.pure(1), sf.approx(1, "1e-6")


def records(zipf: bool, rng: np.random.Generator) -> tuple[Any, Any]:
    """Distinct keys of the universe and their counts."""
    if not zipf:
        return np.unique(rng.integers(0, 2**60, RECORDS, dtype=np.int64), return_counts=True)
    counts = np.unique(rng.zipf(1.3, RECORDS), return_counts=True)[1]
    return rng.integers(0, 2**60, len(counts), dtype=np.int64), counts


def question(keys: Any, counts: Any, size: int, rng: np.random.Generator, heavy: bool = False) -> tuple[Any, int]:
    """Keys, half of which occur (drawn by their counts if `heavy`), and the exact answer."""
    p = counts / counts.sum() if heavy else None
    present = rng.choice(len(keys), size // 2, replace=False, p=p)
    absent = rng.integers(0, 2**60, size - size // 2, dtype=np.int64)
    return np.concatenate([keys[present], absent]), int(counts[present].sum())


def histogram(zipf: bool, questions: int, rng: np.random.Generator) -> None:
    """One line: rmse observed and stated, share of 95 % intervals that hold, CPU and wall time of a question."""
    keys, counts = records(zipf, rng)
    source = sf.KeyCounts(keys, counts)
    seen: dict[str, list[str]] = {name: [] for name in ("observed", "stated", "held", "cpu", "wall")}
    options: dict[str, Any] = {"neighbours": "add-remove", "mechanism": "histogram"}
    for m in SIZES:
        with TemporaryDirectory() as folder:
            sf.Ledger.create(Path(folder) / "l.db", total=PURE)
            place: dict[str, Any] = {"ledger": Path(folder) / "l.db", "store": Path(folder) / "s.db"}
            session = sf.open(sf.plan(KEYS, PURE, **options), source, **place)
            asked = [question(keys, counts, m, rng) for _ in range(questions)]
            began, cpu = time.perf_counter(), time.process_time()
            answers = [session.ask(q) for q, _ in asked]
            cpu, wall = time.process_time() - cpu, time.perf_counter() - began
        errors = np.array([a.value - t for a, (_, t) in zip(answers, asked, strict=True)])
        held = np.mean([(a.low or 0) <= t <= (a.high or 0) for a, (_, t) in zip(answers, asked, strict=True)])
        seen["observed"].append(f"{(errors**2).mean() ** 0.5:.4g}")
        seen["stated"].append(f"{answers[0].standard_error:.4g}")
        seen["held"].append(f"{held:.3f}")
        seen["cpu"].append(f"{1000 * cpu / questions:.2f}")
        seen["wall"].append(f"{questions / wall:.0f}")
    print(f"| {'Zipf(1.3)' if zipf else 'distinct'} | {' | '.join('/'.join(c) for c in seen.values())} |", flush=True)


def again(rng: np.random.Generator) -> None:
    """A store with many keys: to resume it, and to ask for keys that it has."""
    keys, counts = records(False, rng)
    source = sf.KeyCounts(keys, counts)
    with TemporaryDirectory() as folder:
        store = Path(folder) / "s.db"
        sf.Ledger.create(Path(folder) / "l.db", total=PURE)
        plan = sf.plan(KEYS, PURE, neighbours="add-remove", mechanism="histogram")
        sf.open(plan, source, ledger=Path(folder) / "l.db", store=store).ask(np.arange(10**6))
        began = time.process_time()
        session = sf.load(store, ledger=Path(folder) / "l.db", source=source)
        resumed = time.process_time() - began
        began = time.process_time()
        for _ in range(1000):
            session.ask(rng.choice(10**6, 64, replace=False))
        print(
            f"\na store of 10^6 keys: {store.stat().st_size / 2**20:.1f} MB, resumed in {resumed:.2f} CPU-s; "
            f"64 keys that it has in {time.process_time() - began:.2f} CPU-ms"
        )


def weights(records_: int, size: int, heavy: bool, questions: int, rng: np.random.Generator) -> None:
    """Sparse multiplicative weights beside the histogram, as fractions of the records."""
    values, counts = np.unique(rng.zipf(1.3, records_), return_counts=True)
    keys = rng.choice(2**60, len(values), replace=False)
    source = sf.KeyCounts(keys, counts)
    mechanism = sf.mechanisms.sparse_mw(size=size)
    sparse = sf.open(
        sf.plan(KEYS, APPROX, neighbours="add-remove", records=records_, mechanism=mechanism), source, ledger=None
    )
    lazy = sf.open(sf.plan(KEYS, APPROX, neighbours="add-remove", mechanism="histogram"), source, ledger=None)
    asked = [question(keys, counts, size, rng, heavy) for _ in range(questions)]
    began = time.process_time()
    told = [sparse.ask(q) for q, _ in asked]
    spent = time.process_time() - began
    truth = np.array([t for _, t in asked])
    ours = (np.array([a.value for a in told]) - truth) / records_
    other = (np.array([lazy.ask(q).value for q, _ in asked]) - truth) / records_
    zero = (truth**2).mean() ** 0.5 / records_
    how = {name: sum(a.how == name for a in told) for name in ("hypothesis", "measured", "exhausted")}
    print(
        f"| {records_:,} | {size} | {'by count' if heavy else 'by key'} | {(ours**2).mean() ** 0.5:.4g} "
        f"| {abs(ours).max():.3g} | {(other**2).mean() ** 0.5:.2g} | {zero:.3g} | {'/'.join(map(str, how.values()))} "
        f"| {sparse.plan.easy_bound / records_:.3g} | {1000 * spent / questions:.2f} |",
        flush=True,
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=400)
    given = parser.parse_args()
    rng = np.random.default_rng(2026)
    print(f"lazy histogram, pure epsilon 1, in a file; s = {'/'.join(map(str, SIZES))}")
    print("| keys | rmse observed | stated | 95 % intervals that hold | CPU-ms a question | questions a second |")
    print("|---|---|---|---|---|---|")
    for zipf in (False, True):
        histogram(zipf, given.questions, rng)
    again(rng)
    print("\nsparse multiplicative weights at (1, 1e-6) beside the lazy histogram (pure epsilon 1), Zipf(1.3) keys")
    print("| records | s | keys drawn | rmse | max | histogram | zero | easy/hard/exhausted | bound | CPU-ms |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for records_, size, heavy in ((10_000, 64, True), (100_000, 64, False), (100_000, 64, True), (10**6, 64, True)):
        weights(records_, size, heavy, given.questions, rng)


if __name__ == "__main__":
    main()
