"""Queries that join attributes, which nobody tuned to: plans against proved bounds.

    OPENBLAS_NUM_THREADS=1 python bench/joint_drawn.py [named | FIRST LAST]

`named`: 40 x 40 x 2 cells, all marginal tables up to order 2, the cumulative counts of the first attribute, and without
and with the differences of the first two. Else workloads of the seeds from FIRST to LAST: two or three attributes of 5
to 60 cells; all tables up to order 1 or 2; cumulative counts of some attributes; and over one or two pairs of them the
differences a - b, the sums a + b, the counts of a + b <= c for some c, or the diagonal a = b. Add-remove, GDP 1, the
objective "tables". CPU seconds are those of a whole `sf.plan`.
"""

from __future__ import annotations

import itertools
import sys
import time

import numpy as np
from numpy.typing import ArrayLike

import sfumato as sf
from sfumato.operators import Block, Sparse
from sfumato.workloads import QueryBlock, Workload


def joint(domain: sf.Domain, first: str, second: str, kind: str, rng: np.random.Generator) -> Workload:
    """Queries of a kind over two attributes together."""
    sizes = domain[first].size, domain[second].size
    one, other = (i.reshape(-1) for i in np.indices(sizes))
    found: list[ArrayLike]
    if kind == "differences":
        found = [np.flatnonzero(one - other == d) for d in range(1 - sizes[1], sizes[0])]
    elif kind == "sums":
        found = [np.flatnonzero(one + other == s) for s in range(sum(sizes) - 1)]
    elif kind == "sums up to":
        limits = np.sort(rng.choice(sum(sizes) - 2, min(int(rng.integers(1, 9)), sum(sizes) - 2), replace=False))
        found = [np.flatnonzero(one + other <= c) for c in limits.tolist()]
    else:
        found = [np.flatnonzero(one == other)]
    block = Block(((first, second),), (Sparse.from_cells(found, sizes[0] * sizes[1]),))
    return Workload(domain, (QueryBlock(f"{kind} {first} {second}", block),))


def named(*, differences: bool) -> Workload:
    """40 x 40 x 2 cells."""
    domain = sf.Domain({"a": 40, "b": 40, "c": 2})
    parts = [sf.marginals(domain, upto=2), sf.prefix(domain, "a")]
    if differences:
        parts.append(joint(domain, "a", "b", "differences", np.random.default_rng()))
    return sf.stack(*parts)


def drawn(seed: int) -> Workload:
    """The workload of a seed."""
    rng = np.random.default_rng(seed)
    names = ("a", "b", "c")[: int(rng.integers(2, 4))]
    domain = sf.Domain({n: int(rng.integers(5, 61)) for n in names})
    parts = [sf.marginals(domain, upto=int(rng.integers(1, 3)))]
    for name in names:
        if rng.random() < 0.5:
            parts.append(sf.prefix(domain, name))
    pairs = list(itertools.combinations(names, 2))
    for _ in range(int(rng.integers(1, 3))):
        kind = ("differences", "sums", "sums up to", "diagonal")[int(rng.integers(4))]
        work = joint(domain, *pairs[int(rng.integers(len(pairs)))], kind, rng)
        if not set(work.parts) & {n for p in parts for n in p.parts}:
            parts.append(work)
    return sf.stack(*parts)


def row(label: str, work: Workload) -> None:
    """Print one line."""
    start = time.process_time()
    plan = sf.plan(work, sf.gdp(1), neighbours="add-remove")
    spent = time.process_time() - start
    sizes = "x".join(map(str, work.domain.shape))
    print(
        f"{label:8}{sizes:10}{len(work):>7,}{plan.objective_value:9.4f}{plan.bound or np.nan:9.4f}"
        f"{plan.objective_value / (plan.bound or np.nan):8.4f}{spent:7.1f}  {', '.join(work.parts)}: "
        f"{plan.strategy.summary[:70]}",
        flush=True,
    )


def main() -> None:
    """Print the table."""
    print(f"{'':8}{'sizes':10}{'queries':>7}{'error':>9}{'bound':>9}{'ratio':>8}{'CPU-s':>7}")
    if sys.argv[1:] in ([], ["named"]):
        row("without", named(differences=False))
        row("with", named(differences=True))
    if sys.argv[1:] != ["named"]:
        first, last = (int(a) for a in sys.argv[1:3]) if len(sys.argv) > 2 else (1, 10)
        for seed in range(first, last + 1):
            row(f"seed {seed}", drawn(seed))


if __name__ == "__main__":
    main()
