"""Replace-one and the largest error: constants of the mechanism, their proved bounds, and CPU seconds.

Run: OPENBLAS_NUM_THREADS=1 python bench/replace_one.py [--large]
"""

from __future__ import annotations

import sys
import time

import sfumato as sf


def line(n: int) -> sf.Domain:
    return sf.Domain({"cell": sf.Integers(0, n - 1)})


def show(name: str, work: sf.Workload, neighbours: str, objective: str) -> None:
    start = time.process_time()
    found = sf.plan(work, sf.gdp(1), neighbours=neighbours, objective=objective)
    spent = time.process_time() - start
    error, bound = found.objective_value, found.lower_bound
    proved = "" if bound is None else f"proved {bound:.6f}, gap {error / bound - 1:.1e}"
    print(f"{neighbours:12} {objective:5} {name:16} {error:.6f}  {proved}  {spent:.2f} CPU-s", flush=True)


def main() -> None:
    large = "--large" in sys.argv
    for objective in ("cells", "max"):
        show("identity 8", sf.identity(line(8)), "replace-one", objective)
        for n in (8, 16, 128, 256, *((512, 1024) if large and objective == "cells" else ())):
            show(f"prefix {n}", sf.prefix(line(n), "cell"), "replace-one", objective)
        for n in (8, 64, *((128, 256) if large else ())):
            show(f"ranges {n}", sf.ranges(line(n), "cell"), "replace-one", objective)
        show("disjunctions 4", sf.disjunctions(4), "replace-one", objective)
        bits = sf.Domain({f"x{i}": 2 for i in range(8)})
        show("3-way of 2^8", sf.marginals(bits, order=3), "replace-one", objective)
    for n in (256, 512):
        show(f"prefix {n}", sf.prefix(line(n), "cell"), "add-remove", "max")
    show("ranges 256", sf.ranges(line(256), "cell"), "add-remove", "max")


if __name__ == "__main__":
    main()
