"""Mixtures over three attributes that no strategy was made for: plans against proved bounds, and which side is loose.

    OPENBLAS_NUM_THREADS=1 python bench/unions_held_out.py [FIRST [LAST]] [exact] [small] [swap]

Mixture 0 is 7 x 32 x 50 cells in seven parts: windows x ranges x sparse rows, windows, cells, the total, hierarchies,
permuted prefixes and permuted ranges. Mixtures 1 to 40 have sizes and four to seven parts drawn from a generator seeded
with their number: products over one to three attributes of sparse 0/1 rows, cells, prefixes or ranges in a random
order, hierarchies and windows. GDP 1, objective "cells", add-remove, or replace-one with `swap`. CPU seconds are those
of a whole `sf.plan`.

`small` cuts the attributes until there are at most 2,048 joint cells. `exact` adds, where there are as few, the proved
optimum over all joint cells: the plan over it, and it over the plan's bound, say which of the two is loose.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
from unions_drawn import MOST_DENSE, Rng, optimum, products

import sfumato as sf
from sfumato.operators import Dense, Identity, LinearOperator, Total
from sfumato.operators.structured import AllRange, Prefix, Tree, Window
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies.design import Problem
from sfumato.workloads import Workload

SIZES = (4, 5, 7, 8, 10, 12, 16, 20, 24, 32, 40, 50)
MOST_CELLS = 12_000  # joint ones of a mixture that is drawn; more than those of which the optimum is found
FIRST_SIZES = (7, 32, 50)
MIXTURES = 40


def sparse_rows(n: int, rng: Rng) -> LinearOperator:
    """Some rows, each the sum of a few cells."""
    rows = np.zeros((int(rng.integers(2, max(3, n // 2 + 1))), n), dtype=np.int64)
    for row in rows:
        row[rng.choice(n, int(rng.integers(1, max(2, n // 4 + 1))), replace=False)] = 1
    return Dense(rows)


def shuffled(operator: LinearOperator, rng: Rng) -> LinearOperator:
    """The same of the cells in a random order."""
    return Dense(np.asarray(operator.dense(), dtype=np.int64)[:, rng.permutation(operator.shape[1])])


def windows(n: int, rng: Rng) -> LinearOperator:
    """All windows of one width."""
    return Window(n, int(rng.integers(2, max(3, n // 2 + 1))))


def hierarchy(n: int, rng: Rng) -> LinearOperator:
    """All nodes of a tree over the cells, sometimes in a random order."""
    tree = Tree(n, int(rng.integers(2, 5)))
    return tree if rng.integers(2) else shuffled(tree, rng)


FACTORS: tuple[Callable[[int, Rng], LinearOperator], ...] = (
    sparse_rows,
    windows,
    hierarchy,
    lambda n, rng: Identity(n),
    lambda n, rng: AllRange(n),
    lambda n, rng: shuffled(Prefix(n), rng),
    lambda n, rng: shuffled(AllRange(n), rng),
)


def first_mixture(sizes: tuple[int, ...], rng: Rng) -> Workload:
    """The seven parts over three attributes."""
    a, b, c = sizes
    return products(
        sizes,
        [
            {0: windows(a, rng), 1: AllRange(b), 2: sparse_rows(c, rng)},
            {1: windows(b, rng), 2: windows(c, rng)},
            {0: Identity(a), 2: Identity(c)},
            {0: Total(a)},
            {1: hierarchy(b, rng), 2: hierarchy(c, rng)},
            {0: shuffled(Prefix(a), rng), 2: shuffled(Prefix(c), rng)},
            {0: Identity(a), 1: shuffled(AllRange(b), rng)},
        ],
    )


def drawn_mixture(sizes: tuple[int, ...], rng: Rng) -> Workload:
    """Four to seven products over one to three attributes, each factor of a kind of its own."""
    each: list[dict[int, LinearOperator]] = []
    for _ in range(int(rng.integers(4, 8))):
        some = sorted(rng.choice(3, int(rng.integers(1, 4)), replace=False).tolist())
        each.append({i: FACTORS[int(rng.integers(len(FACTORS)))](sizes[i], rng) for i in some})
    return products(sizes, each)


def cut(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The largest attribute shortened by a tenth again and again, to at most 2,048 joint cells."""
    out = list(sizes)
    while math.prod(out) > MOST_DENSE:
        i = int(np.argmax(out))
        out[i] = max(2, out[i] - max(1, out[i] // 10))
    return tuple(out)


def mixture(number: int, *, small: bool = False) -> tuple[tuple[int, ...], Workload]:
    """Sizes and workload of a mixture."""
    rng = np.random.default_rng([32, number])
    sizes = FIRST_SIZES
    while number:
        sizes = tuple(int(n) for n in rng.choice(SIZES, 3))
        if MOST_DENSE < math.prod(sizes) <= MOST_CELLS:
            break
    if small:
        sizes = cut(sizes)
    return sizes, (drawn_mixture if number else first_mixture)(sizes, rng)


def row(number: int, *, neighbours: str, exact: bool, small: bool) -> float:
    """Print one line; the plan over its bound."""
    sizes, work = mixture(number, small=small)
    start = time.process_time()
    plan = sf.plan(work, sf.gdp(1), neighbours=neighbours, objective="cells")
    spent = time.process_time() - start
    value, bound = plan.objective_value, plan.lower_bound or math.nan
    said = ""
    if exact and math.prod(sizes) <= MOST_DENSE and neighbours == "add-remove":
        problem = Problem(work, sf.gdp(1), PrivacyUnit(Neighbours.ADD_REMOVE), "gaussian", "cells")
        lower, upper = optimum(problem)
        said = f"{upper:11.4f} {value / lower:8.4f} {upper / bound:8.4f}"
    print(
        f"{number:<4}{'x'.join(map(str, sizes)):12}{len(work.blocks):6}{len(work):>10,}{value:11.4f}{bound:11.4f}"
        f"{value / bound:9.4f}{spent:7.2f}  {said:30} {plan.strategy.summary[:60]}",
        flush=True,
    )
    return value / bound


def main() -> None:
    """Print the table."""
    words = [w for w in sys.argv[1:] if not w.isdigit()]
    first, last = ([int(w) for w in sys.argv[1:] if w.isdigit()] + [0, MIXTURES])[:2] if len(sys.argv) > 1 else (0, 40)
    neighbours = "replace-one" if "swap" in words else "add-remove"
    print(
        f"{'':4}{'sizes':12}{'parts':>6}{'queries':>10}{'rmse':>11}{'bound':>11}{'ratio':>9}{'CPU-s':>7}  "
        f"{'optimum':>11} {'plan/opt':>8} {'opt/bnd':>8}"
    )
    numbers = range(first, last + 1)
    ratios = [row(i, neighbours=neighbours, exact="exact" in words, small="small" in words) for i in numbers]
    print(f"median {statistics.median(ratios):.4f}, worst {max(ratios):.4f}")


if __name__ == "__main__":
    main()
