"""Unions of products that nobody tuned to: plans against proved bounds.

    OPENBLAS_NUM_THREADS=1 python bench/unions_drawn.py [named | drawn] [FIRST [LAST [swap]]]

`named`: 22 of the kinds below with sizes that were seen to stand off their bound. `drawn`: 40 whose kind and sizes are
drawn from a generator seeded with their number. Add-remove, or with `swap` replace-one, GDP 1, objective "cells". CPU
seconds are those of a whole `sf.plan`. The last column is the proved optimum over all joint cells, where these are at
most 2,048.

tables+counts   all tables over two attributes, and conjunctions of weight 1,000
one prefix      tables over three attributes, one of them cumulative
permuted        all ranges along the cells in a random order, of pairs of attributes
disjoint        pairs of attributes, each split into random disjoint sets of cells
mixed           products over one to three attributes of cells, prefixes, ranges, sets and conjunctions
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

import sfumato as sf
from sfumato.operators import Block, Dense, Identity, LinearOperator, Prefix
from sfumato.operators.structured import AllRange
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies.dense_optimal import optimize_dense
from sfumato.strategies.design import Problem
from sfumato.workloads import QueryBlock, Workload
from sfumato.workloads.core import block_on_domain

GDP = sf.gdp(1)
SIZES = (2, 3, 4, 5, 7, 8, 10, 12, 16, 24, 32, 50)
MOST_DENSE = 2_048  # joint cells
MOST_CELLS = 100_000  # joint cells of those that are drawn

Rng = np.random.Generator


def domain(sizes: Sequence[int]) -> sf.Domain:
    """Attributes of these sizes."""
    return sf.Domain({f"a{i}": sf.Categories([str(j) for j in range(n)]) for i, n in enumerate(sizes)})


def products(sizes: Sequence[int], each: Sequence[dict[int, LinearOperator]]) -> Workload:
    """One block for each product of factors by attribute."""
    over = domain(sizes)
    blocks = [
        QueryBlock(f"product {number}", Block(tuple((over.names[i],) for i in factors), tuple(factors.values())))
        for number, factors in enumerate(each)
    ]
    return Workload(over, tuple(blocks))


def sets_of(cells: int, rng: Rng) -> LinearOperator:
    """Disjoint sets that together are all cells, two of them at least."""
    count = int(rng.integers(2, max(3, cells // 2 + 1)))
    place = np.concatenate([np.arange(count), rng.integers(0, count, max(0, cells - count))])[:cells]
    return Dense((rng.permutation(place)[None, :] == np.arange(min(count, cells))[:, None]).astype(np.int64))


def counts_of(cells: int, rng: Rng) -> LinearOperator:
    """One set of cells."""
    some = np.zeros((1, cells), dtype=np.int64)
    some[0, rng.choice(cells, int(rng.integers(1, cells)), replace=False)] = 1
    return Dense(some)


def permuted_ranges(cells: int, rng: Rng) -> LinearOperator:
    """All ranges of cells in a random order."""
    return Dense(np.asarray(AllRange(cells).dense(), dtype=np.int64)[:, rng.permutation(cells)])


def tables_and_counts(sizes: Sequence[int], rng: Rng) -> Workload:
    """All tables over two attributes, and eight conjunctions over three of weight 1,000."""
    over, texts = domain(sizes), list[str]()
    for _ in range(8):
        tests = []
        for i in sorted(rng.choice(len(sizes), min(3, len(sizes)), replace=False).tolist()):
            some = np.sort(rng.choice(sizes[i], int(rng.integers(1, sizes[i])), replace=False))
            tests.append(f"a{i} in ({', '.join(repr(str(j)) for j in some.tolist())})")
        texts.append(" and ".join(tests))
    return sf.stack(tables=sf.marginals(over, order=2), counts=sf.predicates(over, texts), weights={"counts": 1000})


def one_prefix(sizes: Sequence[int], rng: Rng) -> Workload:
    """Tables over three attributes, each with one of them cumulative."""
    del rng
    each: list[dict[int, LinearOperator]] = []
    for some in itertools.combinations(range(len(sizes)), 3):
        for j in some:
            each.append({i: (Prefix if i == j else Identity)(sizes[i]) for i in some})
    return products(sizes, each)


def permuted(sizes: Sequence[int], rng: Rng) -> Workload:
    """Ranges in a random order, of pairs of attributes."""
    factors = [permuted_ranges(n, rng) for n in sizes]
    return products(sizes, [{i: factors[i] for i in pair} for pair in itertools.combinations(range(len(sizes)), 2)])


def disjoint(sizes: Sequence[int], rng: Rng) -> Workload:
    """Disjoint sets of cells, other ones for each pair of attributes."""
    pairs = itertools.combinations(range(len(sizes)), 2)
    return products(sizes, [{i: sets_of(sizes[i], rng) for i in pair} for pair in pairs])


def mixed(sizes: Sequence[int], rng: Rng) -> Workload:
    """Six to ten products over one to three attributes, each with a factor of its own kind."""
    kinds: tuple[Callable[[int], LinearOperator], ...] = (
        Identity, Prefix, AllRange, lambda n: sets_of(n, rng), lambda n: counts_of(n, rng)
    )  # fmt: skip
    each: list[dict[int, LinearOperator]] = []
    for _ in range(int(rng.integers(6, 11))):
        some = rng.choice(len(sizes), min(len(sizes), int(rng.integers(1, 4))), replace=False)
        each.append({int(i): kinds[rng.integers(0, len(kinds))](sizes[i]) for i in sorted(some.tolist())})
    return products(sizes, each)


KINDS: dict[str, Callable[[Sequence[int], Rng], Workload]] = {
    "tables+counts": tables_and_counts,
    "one prefix": one_prefix,
    "permuted": permuted,
    "disjoint": disjoint,
    "mixed": mixed,
}

NAMED: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("tables+counts", (16, 12, 10, 8)), ("tables+counts", (8, 6, 5, 4)), ("tables+counts", (50, 16, 2, 24)),
    ("tables+counts", (3, 4, 5, 7)), ("one prefix", (50, 16, 50)), ("one prefix", (16, 8, 12)),
    ("one prefix", (3, 50, 10, 4)), ("one prefix", (7, 5, 8, 4)), ("permuted", (7, 24, 7, 32)),
    ("permuted", (10, 12, 8)), ("permuted", (24, 32)), ("permuted", (5, 4, 7, 8)), ("disjoint", (20, 20, 20)),
    ("disjoint", (12, 10, 8)), ("disjoint", (50, 7, 16)), ("disjoint", (5, 6, 7, 8)), ("mixed", (12, 24, 2, 10, 4)),
    ("mixed", (3, 50, 50, 10)), ("mixed", (4, 10, 24, 12)), ("mixed", (3, 16, 10, 2, 32)), ("mixed", (8, 16, 12)),
    ("mixed", (5, 4, 8, 3, 4)),
)  # fmt: skip


def drawn(seed: int) -> tuple[str, tuple[int, ...]]:
    """Kind and sizes of the union of a seed."""
    rng = np.random.default_rng(seed)
    kind = list(KINDS)[int(rng.integers(len(KINDS)))]
    while True:
        sizes = tuple(int(n) for n in rng.choice(SIZES, int(rng.integers(3, 6))))
        if math.prod(sizes) <= MOST_CELLS:
            return kind, sizes


def optimum(problem: Problem) -> tuple[float, float]:
    """What the least root mean squared error over all joint cells lies between."""
    work = problem.workload
    names = work.domain.ordered({a for q in work.blocks for a in q.attributes})
    over = sf.Domain({a: work.domain[a] for a in names})
    gram = np.zeros((math.prod(over.shape),) * 2)
    for query in work.blocks:
        gram += problem.objective_weight(query) * np.asarray(block_on_domain(over, query.block).gram().dense())
    found, scale = optimize_dense(gram, tolerance=1e-4), math.sqrt(problem.total_weight)
    return found.lower_bound / scale, found.upper_bound / scale


def row(label: str, kind: str, sizes: tuple[int, ...], seed: int, neighbours: str) -> float:
    """Print one line; the plan over its bound."""
    work = KINDS[kind](sizes, np.random.default_rng([seed, 1]))
    start = time.process_time()
    plan = sf.plan(work, GDP, neighbours=neighbours, objective="cells")
    spent = time.process_time() - start
    value, bound = plan.objective_value, plan.lower_bound or math.nan
    exact = ""
    if math.prod(sizes) <= MOST_DENSE and neighbours == "add-remove":
        problem = Problem(work, GDP, PrivacyUnit(Neighbours.ADD_REMOVE), "gaussian", "cells")
        lower, upper = optimum(problem)
        exact = f"{upper:11.4f} {value / lower:8.4f} {lower / bound:8.4f}"
    print(
        f"{label:9}{kind:15}{'x'.join(map(str, sizes)):17}{len(work):>9,}{value:11.4f}{bound:11.4f}{value / bound:9.4f}"
        f"{spent:7.2f}  {exact:30} {plan.strategy.summary[:60]}",
        flush=True,
    )
    return value / bound


def main() -> None:
    """Print the tables."""
    which = sys.argv[1] if len(sys.argv) > 1 else ""
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    last = int(sys.argv[3]) if len(sys.argv) > 3 else 99
    neighbours = "replace-one" if sys.argv[4:] == ["swap"] else "add-remove"
    print(
        f"{'':9}{'kind':15}{'sizes':17}{'queries':>9}{'rmse':>11}{'bound':>11}{'ratio':>9}{'CPU-s':>7}  "
        f"{'optimum':>11} {'plan/opt':>8} {'opt/bnd':>8}"
    )
    for name, each in (("named", [(*case, 0) for case in NAMED]), ("drawn", [(*drawn(s), s) for s in range(1, 41)])):
        if which in ("", name):
            ratios = [row(f"{name[0]}{i}", *case, neighbours) for i, case in enumerate(each, 1) if first <= i <= last]
            print(f"{name}: median {statistics.median(ratios):.4f}, worst {max(ratios):.4f}")


if __name__ == "__main__":
    main()
