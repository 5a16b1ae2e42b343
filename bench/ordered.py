"""One ordered attribute of many cells, from plan to answers: `python bench/ordered.py prefix 1e6 [width]`.

prefix, ranges or windows (of a width) of n cells, a (1, 1e-6) budget, or a pure one with `pure` as a last word; with
`max` the largest error is to be small, with `swap` one record replaces another.
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np

import sfumato as sf

OPTIONS = ("pure", "max", "swap")


def main(kind: str, n: int, width: int | None, options: list[str]) -> None:
    domain = sf.Domain({"t": sf.Integers(0, n - 1)})
    work = sf.prefix(domain, "t") if kind == "prefix" else sf.ranges(domain, "t")
    if width is not None:
        work = sf.windows(domain, "t", width)
    start = time.process_time()
    budget = sf.pure(1) if "pure" in options else sf.approx(1, "1e-6")
    neighbours = "replace-one" if "swap" in options else "add-remove"
    plan = sf.plan(work, budget, neighbours=neighbours, objective="max" if "max" in options else "tables")
    bound = "" if plan.lower_bound is None else f", {plan.objective_value / plan.lower_bound:.4f} times the bound"
    print(f"{plan.strategy.summary}: rmse {plan.rmse:.4f}{bound}; largest {plan.max_standard_error:.4f}")
    print(f"plan {time.process_time() - start:.1f} CPU-s")
    counts = np.random.default_rng(1).integers(0, 5, n)
    release = sf.release(plan, sf.Histogram(counts), ledger=None)
    if kind == "ranges":
        print(release.ask(f"t >= {n // 10} and t < {n // 2}"), "exact", counts[n // 10 : n // 2].sum())
    else:
        errors = release.answers - work.answer(counts)
        print(f"root mean square of the actual errors {np.sqrt((errors**2).mean()):.4f}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"all {time.process_time() - start:.1f} CPU-s, peak {peak:.2f} GB")


if __name__ == "__main__":
    words = [w for w in sys.argv[1:] if w not in OPTIONS]
    chosen = [w for w in sys.argv[1:] if w in OPTIONS]
    main(words[0], int(float(words[1])), int(float(words[2])) if len(words) > 2 else None, chosen)
