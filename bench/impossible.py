"""What cells that are declared impossible cost and gain: plans, releases and projections with and without them.

    OPENBLAS_NUM_THREADS=1 python bench/impossible.py [--draws 10] [--seed 0]

Tables are drawn by the seed, their records among the possible cells alone (50,000 of them, attributes drawn around a
record's hidden class); a predicate says that a value of one attribute excludes some of another, as a census's do.
By table: CPU seconds of plan, release, errors and projection of the fastest of the draws; the root mean square of the
predicted standard errors, and of the errors that were seen before and after projecting, over the possible cells of all
tables; and the records that sit in impossible cells of the synthetic table.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pandas as pd

import sfumato as sf

RECORDS = 50_000
EIGHT = (9, 7, 6, 5, 2, 16, 15, 8)
ADULT = (15, 9, 16, 7, 15, 6, 5, 2, 10, 10, 10, 12, 2, 2)
OF_EIGHT = ("a0 == 0 and a1 != 0", "a0 == 0 and a2 in (1, 2)", "a1 == 1 and a2 == 0")
OF_ADULT = (
    "a7 == 0 and a5 == 1",
    "a7 == 1 and a5 == 2",
    "a0 == 0 and a3 != 0",
    "a0 == 0 and a2 in (1, 2, 3)",
    "a0 == 1 and a4 == 3",
)
OF_BINARY = ("a0 == 1 and a1 == 1", "a2 == 1 and a3 == 0", "a0 == 0 and a4 == 1 and a5 == 1")
TABLES: tuple[tuple[str, tuple[int, ...], int, tuple[str, ...]], ...] = (
    ("pairs of eight", EIGHT, 2, OF_EIGHT),
    ("triples of eight", EIGHT, 3, OF_EIGHT),
    ("pairs of 14, Adult's sizes", ADULT, 2, OF_ADULT),
    ("triples of 14, Adult's sizes", ADULT, 3, OF_ADULT),
    ("triples of 30 binary", (2,) * 30, 3, OF_BINARY),
)


def people(rng: np.random.Generator, domain: sf.Domain) -> pd.DataFrame:
    """Records of twelve hidden classes, those that are impossible drawn again."""
    shares = [rng.dirichlet(np.full(n, 0.6), 12) for n in domain.shape]
    kept: list[Any] = []
    count = 0
    while count < RECORDS:
        classes = rng.integers(0, 12, RECORDS)
        columns = [(rng.random(RECORDS)[:, None] > s.cumsum(axis=1)[classes]).sum(axis=1) for s in shares]
        codes = np.minimum(np.stack(columns, axis=1), np.array(domain.shape) - 1)
        possible = np.ones(RECORDS, dtype=bool)
        for group in domain.tied:
            places = [domain.names.index(a) for a in group.attributes]
            possible &= group.allowed[tuple(codes[:, places].T)]
        kept.append(codes[possible])
        count += len(kept[-1])
    return pd.DataFrame(np.concatenate(kept)[:RECORDS], columns=list(domain.names))


def compared(shape: tuple[int, ...], order: int, texts: tuple[str, ...], draws: int, seed: int) -> None:
    rng = np.random.default_rng([seed, *shape])
    attributes = {f"a{i}": sf.Integers(0, s - 1, outside="clamp", missing="drop") for i, s in enumerate(shape)}
    knows, free = sf.Domain(attributes, list(texts)), sf.Domain(attributes)
    rows = people(rng, knows)
    codes = rows.to_numpy()
    seen: dict[bool, tuple[float, Any, list[Any]]] = {}
    for domain in (free, knows):
        work = sf.marginals(domain, order=order)
        sets = [tuple(domain.names.index(a) for a in b.attributes) for b in work.blocks]
        truth = np.concatenate([counted(codes[:, list(s)], [shape[i] for i in s]) for s in sets])
        alive = [
            np.broadcast_to(True if m is None else m, [shape[i] for i in s]).reshape(-1)
            for s, m in ((s, knows.possible([knows.names[i] for i in s])) for s in sets)
        ]
        chosen = np.concatenate(alive)
        spent, errors, mass = float("inf"), [], 0
        for _ in range(draws):
            start = time.process_time()
            plan = sf.plan(work, sf.gdp(1), neighbours="add-remove")
            release = sf.release(plan, rows, ledger=None)
            answers, predicted = release.answers, release.standard_errors()
            projected = release.project()
            after = projected.answers
            spent = min(spent, time.process_time() - start)
            errors.append([np.sqrt(np.mean((a - truth)[chosen] ** 2)) for a in (answers, after)])
        if domain is knows:
            made = projected.synthetic().codes
            mass = sum(
                int((~g.allowed[tuple(made[:, [knows.names.index(a) for a in g.attributes]].T)]).sum())
                for g in knows.tied
            )
        seen[domain is knows] = spent, np.sqrt(np.mean(predicted[chosen] ** 2)), [*np.mean(errors, axis=0), mass]
    before, after = seen[False], seen[True]
    print(
        f"  {before[0]:6.2f} {after[0]:6.2f} {after[0] / before[0]:5.2f} x   predicted {before[1]:6.3f} {after[1]:6.3f}"
        f"   seen {before[2][0]:6.3f} {after[2][0]:6.3f}   projected {before[2][1]:6.3f} {after[2][1]:6.3f}"
        f"   {after[2][2]} impossible records",
        flush=True,
    )


def counted(codes: Any, sizes: list[int]) -> Any:
    return np.bincount(np.ravel_multi_index(tuple(codes.T), sizes), minlength=int(np.prod(sizes))).astype(float)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print("CPU seconds without, with; root mean square errors of possible cells without, with")
    for name, shape, order, texts in TABLES:
        print(name)
        compared(shape, order, texts, given.draws, given.seed)


if __name__ == "__main__":
    main()
