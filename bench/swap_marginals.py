"""Marginal tables where one record replaces another: errors of whole plans, their proved bounds, and CPU seconds.

Run: OPENBLAS_NUM_THREADS=1 python bench/swap_marginals.py

At noise multiplier 1. "cells" is the root mean squared error, "max" the largest standard error. Attributes of mixed
sizes are drawn with the seed that is shown. "exact" says whether the price is that of the farthest cells or a proved
bound of it, whose slack is then part of what the error stands above its bound.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np

import sfumato as sf

ADULT = (85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2)
MIXED = ((2, 5, 7), (2, 8, 1), (2, 20, 7), (2, 100, 2))
"""Least and largest size, both included, and the seed."""


def cases() -> Iterator[tuple[str, Sequence[int], dict[str, int]]]:
    for d in (9, 10, 20, 50):
        yield f"order 3 of {d} binary", (2,) * d, {"order": 3}
    for top in (2, 3):
        yield f"20 x 12 x 2, up to {top}", (20, 12, 2), {"upto": top}
        yield f"Adult, up to {top}", ADULT, {"upto": top}
    for low, high, seed in MIXED:
        sizes = np.random.default_rng(seed).integers(low, high + 1, 100)
        yield f"order 3 of 100, sizes {low} to {high}, seed {seed}", sizes.tolist(), {"order": 3}
    # of few kinds, whose dearest changes climbing does not find
    yield "order 2 of 63, nine each of 2 to 8", [n for n in range(2, 9) for _ in range(9)], {"order": 2}
    yield "order 2 of 100, sizes 2 to 8, seed 1", np.random.default_rng(1).integers(2, 9, 100).tolist(), {"order": 2}


def main() -> None:
    print("objective  error  bound  error/bound - 1  exact  CPU-s")
    for name, sizes, asked in cases():
        work = sf.marginals(sf.Domain({f"x{i}": int(n) for i, n in enumerate(sizes)}), **asked)
        for objective in ("cells", "max"):
            start = time.process_time()
            plan = sf.plan(work, sf.gdp(1), neighbours="replace-one", objective=objective)
            spent = time.process_time() - start
            error, bound = plan.objective_value, plan.lower_bound or 0.0
            line = f"{error:.5f}  {bound:.5f}  {error / bound - 1:.1e}  {plan.sensitivity.exact!s:5}  {spent:.2f}"
            print(f"{name:42} {objective:5}  {line}", flush=True)


if __name__ == "__main__":
    main()
