"""Online private multiplicative weights on intervals of one attribute: errors, updates, what can be promised, time.

Run: python bench/sessions.py [repetitions]

The law of the data: 85 % a mixture of two normals (means .3 and .7, deviations .08 and .15, weights .59 and .41), 15 %
on ten random cells with random weights. Questions: intervals with both ends uniform, 2,000 of them, asked one by one.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

import numpy as np
from numpy.typing import NDArray

import sfumato as sf

CELLS, ASKED = 1024, 2000
BUDGET = sf.approx(1, "1e-6")
Table = NDArray[np.int64]


def smooth(n: int, public: np.random.Generator) -> Table:
    """Two normals and ten spikes."""
    x = np.arange(CELLS) / CELLS
    bumps = 0.5 / 0.08 * np.exp(-(((x - 0.3) / 0.08) ** 2) / 2) + 0.35 / 0.15 * np.exp(-(((x - 0.7) / 0.15) ** 2) / 2)
    spikes = np.zeros(CELLS)
    spikes[public.choice(CELLS, 10, replace=False)] = public.dirichlet(np.ones(10))
    return public.multinomial(n, 0.85 * bumps / bumps.sum() + 0.15 * spikes)


def sparse(n: int, public: np.random.Generator) -> Table:
    """All records on twenty cells: nothing smooth about it."""
    cells = np.zeros(CELLS)
    cells[public.choice(CELLS, 20, replace=False)] = public.dirichlet(np.ones(20))
    return public.multinomial(n, cells)


def uneven(n: int, public: np.random.Generator) -> Table:
    """Every cell its own weight, a gamma variable of shape .1."""
    return public.multinomial(n, public.dirichlet(np.full(CELLS, 0.1)))


def run(table: Table, public: np.random.Generator, neighbours: str) -> tuple[float, float, Counter[str], float]:
    """(rmse, largest error, both by records; how answers were come by; CPU seconds) of one session."""
    domain, n = sf.Domain({"x": sf.Integers(0, CELLS - 1)}), int(table.sum())
    ends = np.sort(public.integers(0, CELLS, (ASKED, 2)), axis=1).tolist()
    below = np.concatenate([[0], np.cumsum(table)])
    start = time.process_time()
    opened = sf.open(
        sf.plan(domain, BUDGET, neighbours=neighbours, records=n, mechanism=sf.mechanisms.pmw(questions=ASKED)),
        sf.Histogram(table),
        ledger=None,
    )
    found = [opened.ask(f"x >= {a} and x <= {b}") for a, b in ends]
    seconds = time.process_time() - start
    errors = np.array([f.value - (below[b + 1] - below[a]) for f, (a, b) in zip(found, ends, strict=True)]) / n
    return float(np.sqrt((errors**2).mean())), float(np.abs(errors).max()), Counter(f.how for f in found), seconds


def wide(side: int, n: int, asked: int, public: np.random.Generator) -> str:
    """Rectangles over side x side cells, a normal by a beta variable: where a histogram has too many cells."""
    x = np.clip(public.normal(0.4, 0.1, n) * side, 0, side - 1).astype(int)
    y = np.minimum(public.beta(2, 5, n) * side, side - 1).astype(int)
    table = np.zeros((side, side), dtype=np.int64)
    np.add.at(table, (x, y), 1)
    below = np.zeros((side + 1, side + 1), dtype=np.int64)
    below[1:, 1:] = table.cumsum(0).cumsum(1)
    start = time.process_time()
    opened = sf.open(
        sf.plan(
            sf.Domain({"x": side, "y": side}),
            BUDGET,
            neighbours="replace-one",
            records=n,
            mechanism=sf.mechanisms.pmw(),
        ),
        sf.Histogram(table),
        ledger=None,
    )
    errors: list[float] = []
    for _ in range(asked):
        (a, b), (c, d) = np.sort(public.integers(0, side, (2, 2)), axis=1).tolist()
        found = opened.ask(f"x >= {a} and x <= {b} and y >= {c} and y <= {d}")
        exact = below[b + 1, d + 1] - below[a, d + 1] - below[b + 1, c] + below[a, c]
        errors.append((found.value - float(exact)) / n)
    seconds, state = time.process_time() - start, opened.status()
    cells = opened.plan.compared["standard_error"][1] / n
    return (
        f"{side}^2 cells, n = {n:,}, {asked} rectangles: rmse {np.sqrt(np.mean(np.square(errors))):.4f}, max "
        f"{np.abs(errors).max():.4f}, {state['hard']} of {opened.plan.updates} updates, {seconds:.1f} CPU-s; "
        f"histogram over half the cells {cells:.4f}"
    )


def offline(n: int, releases: int) -> str:
    """The same intervals known before: released, and projected; beside them a session that has all cells."""
    public = np.random.default_rng(n)
    table, ends = smooth(n, public), np.sort(public.integers(0, CELLS, (ASKED, 2)), axis=1)
    x = np.arange(CELLS)
    queries = ((x >= ends[:, :1]) & (x <= ends[:, 1:])).astype(np.int64)
    exact = queries @ table
    plan = sf.plan(sf.queries(queries), BUDGET, neighbours="replace-one")
    assert isinstance(plan, sf.Plan)
    found: list[list[float]] = []
    for _ in range(releases):
        made = sf.release(plan, sf.Histogram(table), ledger=None)
        assert isinstance(made, sf.Release)
        opened = sf.open(
            # an account of its own, which no Gaussian release shares: the law of less noise
            sf.plan(
                sf.Domain({"x": CELLS}),
                BUDGET,
                neighbours="replace-one",
                mechanism=sf.mechanisms.histogram(currency="any"),
            ),
            sf.Histogram(table),
            ledger=None,
        )
        some = [opened.ask(f"x >= {a} and x <= {b}").value for a, b in ends[:400].tolist()]
        off = (made.answers - exact, made.project().answers - exact, np.array(some) - exact[:400])
        found.append([float(np.sqrt(np.mean(e**2))) / n for e in off])
    rmse = " / ".join(f"{e:.5f}" for e in np.mean(found, axis=0).tolist())
    return f"known before, n = {n:,}: release / projected / session with all cells {rmse} (planned {plan.rmse / n:.5f})"


def main() -> None:
    """Print the table of bench/RESULTS.md."""
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for neighbours in ("replace-one", "add-remove"):
        for law in (smooth, sparse, uneven):
            for n in (10**4, 10**5):
                found = []
                for i in range(repetitions):
                    public = np.random.default_rng([n, i])
                    found.append(run(law(n, public), public, neighbours))
                rmse, most, seconds = (float(np.mean([f[i] for f in found])) for i in (0, 1, 3))
                worst = max(f[1] for f in found)
                hard, none = (np.mean([f[2][how] for f in found]) for how in ("measured", "exhausted"))
                print(
                    f"{neighbours} {law.__name__:7} n = {n:>7,}: rmse {rmse:.4f}, max {most:.4f} (worst {worst:.4f}), "
                    f"{hard:.1f} updates, {none:.0f} without guarantee, {seconds:.2f} CPU-s"
                )
    print(offline(10**4, 3))
    for side, n, asked in ((1000, 10**5, 300), (3162, 10**6, 300)):
        print(wide(side, n, asked, np.random.default_rng(side)))
    for neighbours in ("replace-one", "add-remove"):
        start = time.process_time()
        least = [
            sf.mechanisms.pmw.least_alpha(CELLS, ASKED, 10**e, BUDGET, neighbours=neighbours) for e in (4, 5, 6, 7)
        ]
        print(f"pmw_min_alpha {neighbours}: " + " / ".join(f"{a:.4f}" for a in least), end=" ")
        print(f"({time.process_time() - start:.1f} CPU-s)")


if __name__ == "__main__":
    main()
