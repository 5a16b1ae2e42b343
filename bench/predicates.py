"""Predicates and matrices with few queries: plans against the certified optimum over their distinct columns.

    OPENBLAS_NUM_THREADS=1 python bench/predicates.py

Every workload is drawn from a stated seed. CPU seconds are those of a whole `sf.plan`; `bound` is proved.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from importlib import resources

import numpy as np

import sfumato as sf
from sfumato.errors import SfumatoError
from sfumato.privacy.columns import distinct_columns

GDP = sf.gdp(1)


def conjunctions(sizes: Sequence[int], count: int, order: int, seed: int) -> sf.Workload:
    """Counts of records whose cells of `order` attributes lie in random sets of them."""
    rng = np.random.default_rng(seed)
    domain = sf.Domain({f"a{i}": sf.Categories([str(j) for j in range(n)]) for i, n in enumerate(sizes)})
    texts = []
    for _ in range(count):
        tests = []
        for i in sorted(rng.choice(len(sizes), order, replace=False).tolist()):
            some = rng.choice(sizes[i], rng.integers(1, sizes[i]), replace=False)
            tests.append(f"a{i} in ({', '.join(repr(str(j)) for j in sorted(some.tolist()))})")
        texts.append(" and ".join(tests))
    return sf.predicates(domain, texts)


def matrix(queries: int, cells: int, seed: int, density: float = 0.5) -> sf.Workload:
    """Random 0/1 queries over one attribute."""
    return sf.queries((np.random.default_rng(seed).random((queries, cells)) < density).astype(np.int64))


def demo_counts() -> sf.Workload:
    """The seven named counts of the bundled specification."""
    with resources.as_file(resources.files("sfumato.data") / "adult.toml") as path:
        spec = sf.read_spec(path)
    parts = spec.workload.parts
    named = [parts[n] for n in ("older than 64", "graduates", "unpaid or out of work")]
    return named[0] + named[1] + named[2]


def workloads() -> Iterator[tuple[str, sf.Workload]]:
    """Name and workload of every row."""
    yield "the demo's seven named counts", demo_counts()
    yield "12 conjunctions of 3, 15,360 cells", conjunctions((4, 8, 6, 5, 16), 12, 3, 0)
    yield "10 conjunctions of 2, 600,000 cells", conjunctions((20, 30, 10, 10, 10), 10, 2, 0)
    few = conjunctions((4, 5, 6, 7), 12, 3, 0)
    yield "12 conjunctions of 3, 840 cells", few
    yield "2-way tables + 12 conjunctions, 840 cells", sf.marginals(few.domain, order=2) + few
    for queries, cells in ((60, 3_000), (60, 5_000), (40, 20_000)):
        yield f"random 0/1, {queries} x {cells:,}", matrix(queries, cells, 0)


def row(name: str, work: sf.Workload, **options: object) -> str:
    """One line of the table."""
    names = work.domain.names
    try:
        count = distinct_columns(
            [q.block.lowered() for q in work.blocks], dict(zip(names, work.domain.sizes(names), strict=True))
        ).shape[1]
    except SfumatoError:
        count = 0
    start = time.process_time()
    plan = sf.plan(work, GDP, **{"neighbours": "add-remove", "objective": "cells"} | options)
    spent = time.process_time() - start
    bound = plan.lower_bound
    gap = "-" if bound is None else f"{plan.objective_value / bound:.5f}"
    return (
        f"{name:45} {count:7,} {plan.objective_value:9.4f} {bound or float('nan'):9.4f} {gap:>9} {spent:7.2f}  "
        f"{plan.mechanism}"
    )


def main() -> None:
    """Print the tables."""
    print(f"{'workload':45} {'columns':>7} {'rmse':>9} {'bound':>9} {'ratio':>9} {'CPU-s':>7}")
    for options in ({}, {"neighbours": "replace-one"}, {"objective": "max"}):
        print(", ".join(f"{k} {v}" for k, v in options.items()) or "add-remove, mean")
        for name, work in itertools.islice(workloads(), None):
            try:
                print(row(name, work, **options), flush=True)
            except SfumatoError as reason:
                print(f"{name:45} refused: {reason}", flush=True)


if __name__ == "__main__":
    main()
