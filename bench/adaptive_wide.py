"""Many attributes and a million rows, denoised: time and memory.

    OPENBLAS_NUM_THREADS=1 python bench/adaptive_wide.py /path/to/adult.csv [attributes] [rows] [rho]

The table: rows of Adult drawn with replacement, its 14 columns again and again; column j of copy c keeps its row's
value with probability max(1 - .3 c, .1) and has that of another row otherwise: copies hang together, ever less. CPU
seconds of planning, of reading and measuring, of denoising, and of whole records; e2 over 100 pairs drawn at random.
"""

from __future__ import annotations

import itertools
import resource
import sys
import time
from dataclasses import replace

import duckdb
import numpy as np
from projection_local import coarsened

import sfumato as sf
from sfumato.postprocess.denoising import AdaptedTables


def main(path: str, d: int, n: int, rho: str) -> None:
    rows, sizes = coarsened(path)
    random = np.random.default_rng(0)
    base = rows[random.integers(0, len(rows), n)]
    columns = []
    for i in range(d):
        copy, j = divmod(i, len(sizes))
        kept = random.random(n) < max(1 - 0.3 * copy, 0.1)
        columns.append(np.where(kept, base[:, j], rows[random.integers(0, len(rows), n), j]).astype(np.int32))
    cells = [sizes[i % len(sizes)] for i in range(d)]
    names = [f"a{i:03}" for i in range(d)]
    domain = sf.Domain(
        {a: sf.Integers(0, k - 1, outside="clamp", missing="drop") for a, k in zip(names, cells, strict=True)}
    )
    connection = duckdb.connect()
    connection.register("people", dict(zip(names, columns, strict=True)))
    took = [time.process_time()]
    work = sf.marginals(domain, order=2)
    plan = sf.plan(work, sf.zcdp(rho), neighbours="add-remove", mechanism="adaptive", records=n)
    assert isinstance(plan, sf.Plan)
    took.append(time.process_time())
    raw = sf.release(replace(plan, body=None), connection.sql("SELECT * FROM people"), ledger=None)
    assert isinstance(raw, sf.Release)
    took.append(time.process_time())
    done = raw.project("mixtures")
    took.append(time.process_time())
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    assert done.projection is not None
    assert isinstance(done.projection.possible, AdaptedTables)
    held = done.projection.possible.adapted
    every = list(itertools.combinations(range(d), 2))
    some = [every[i] for i in random.choice(len(every), min(100, len(every)), replace=False)]
    errors: list[list[float]] = []
    for a, b in some:
        exact = np.bincount(columns[a] * cells[b] + columns[b], minlength=cells[a] * cells[b])
        exact = exact.reshape(cells[a], cells[b]).astype(np.float64)
        alone = np.outer(exact.sum(axis=1), exact.sum(axis=0)) / n
        tables = raw.table(names[a], names[b]).values, held.pairs[a, b], alone
        errors.append([float(np.abs(t - exact).sum()) / n for t in tables])
    noisy, near, alone = np.mean(errors, axis=0).tolist()
    plans, measured, denoised = np.diff(took).tolist()
    print(f"{d} attributes, {sum(cells):,} cells, {len(every):,} pairs of {len(work):,} cells, {n:,} rows, rho {rho}")
    print(f"e2 {near:.4f}; raw {noisy:.4f}, exact independence {alone:.4f}")
    print(f"CPU-s: plan {plans:.1f}, read and measure {measured:.1f}, denoise {denoised:.1f}; peak {memory:.0f} MB")
    start = time.process_time()
    made = done.synthetic()
    print(
        f"records: {len(made):,} in {time.process_time() - start:.1f} CPU-s, {made.table_error} from the released pairs"
    )


if __name__ == "__main__":
    given = [*sys.argv[2:], *["50", "1000000", "0.01497"][len(sys.argv) - 2 :]]
    main(sys.argv[1], int(given[0]), int(given[1]), given[2])
