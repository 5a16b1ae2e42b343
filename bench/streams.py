"""What streams cost: planning, one period of a million cells with its durable write, a period with people told apart.

Run: python bench/streams.py [folder]   (where stores are written; default: here)

CPU seconds are the least of several periods, memory is the most that the process ever had.
"""

from __future__ import annotations

import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import sfumato as sf
from sfumato.interactive.streams import Stream
from sfumato.plans.streams import StreamPlan

SIDE, STEPS = 1000, 8
PEOPLE = 200_000


def planning() -> None:
    domain = sf.Domain({"age": 8, "sex": 2, "region": 5})
    for power in (8, 10, 16, 20):
        start = time.process_time()
        made = sf.plan(sf.marginals(domain, upto=2), sf.gdp(1), neighbours="add-remove", periods=2**power)
        planned = time.process_time() - start
        made.errors()
        told = time.process_time() - start - planned
        print(f"plan of 2^{power} periods: {planned:.2f} CPU-s, its errors by period {told:.2f} more")


def opened(plan: StreamPlan, folder: Path, name: str) -> Stream:
    sf.Ledger.create(folder / f"{name}.db", total=sf.gdp(1))
    return sf.open(plan, ledger=folder / f"{name}.db", name=name, store=folder / name)


def million(folder: Path) -> None:
    domain = sf.Domain({"a": SIDE, "b": SIDE})
    work = sf.marginals(domain, sets=[("a", "b")])
    plan = sf.plan(work, sf.gdp(1), neighbours="add-remove", periods=2**16)
    stream, rng, took = opened(plan, folder, "million"), np.random.default_rng(1), list[float]()
    for t in range(STEPS):
        table = sf.Histogram(rng.poisson(3, size=(SIDE, SIDE)))
        start = time.process_time()
        stream.publish(table, f"p{t}")
        took.append(time.process_time() - start)
    states, size = plan.terms.filter.kept[1], plan.state_bytes / 2**20
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"one period of {SIDE**2:,} cells, {states} states each ({size:.0f} MB): {min(took):.2f} CPU-s "
        f"with noise and the durable write (median {np.median(took):.2f}, first {took[0]:.2f}), {memory:.0f} MB"
    )


def people(folder: Path) -> None:
    cell = sf.Categories([*"abcdefghij"], outside="drop", missing="drop")
    work, rng = sf.marginals(sf.Domain({"x": cell, "y": cell}), upto=2), np.random.default_rng(2)
    for promised in (True, False):
        over = sf.periods(52, per_person=4, apart=4, promised=promised)
        plan = sf.plan(work, sf.gdp(1), neighbours="add-remove", person="id", periods=over)
        stream, took = opened(plan, folder, f"people-{promised}"), list[float]()
        for t in range(4):
            rows = np.column_stack([rng.integers(0, 5 * PEOPLE, PEOPLE), *rng.integers(0, 10, (2, PEOPLE))]).tolist()
            table = folder / "t.csv"
            table.write_text("id,x,y\n" + "".join(f"{i},{'abcdefghij'[x]},{'abcdefghij'[y]}\n" for i, x, y in rows))
            start = time.process_time()
            stream.publish(str(table), f"p{t}")
            took.append(time.process_time() - start)
        word = "promised" if promised else "enforced"
        print(f"one period of {PEOPLE:,} records, participation {word}: {min(took):.2f} CPU-s (last {took[-1]:.2f})")


def main() -> None:
    folder = Path(tempfile.mkdtemp(dir=sys.argv[1] if len(sys.argv) > 1 else "."))
    try:
        planning()
        million(folder)
        people(folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
