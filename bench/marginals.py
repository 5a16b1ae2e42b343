"""Marginals: predicted errors against the published optima, planning time, and a whole release in memory.

    OPENBLAS_NUM_THREADS=1 python bench/marginals.py

CPU seconds of one process; the figures of the closed form are those of the strategy before rounding to
integers, "on the lattice" those of the plan.
"""

from __future__ import annotations

import itertools
import math
import resource
import time

import numpy as np

import sfumato as sf

TABLES = {
    "CPS": [50, 100, 7, 4, 2],
    "Adult": [85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2],
    "Loans": [101, 101, 101, 101, 3, 8, 36, 6, 51, 4, 5, 15],
}
PUBLISHED = {
    "CPS": {"1": 1.744, "2": 2.035, "3": 2.048, "4": 1.627, "5": 1.000, "<=3": 2.276},
    "Adult": {"1": 3.047, "2": 6.359, "3": 10.515, "<=3": 10.665},
    "Loans": {"1": 2.875, "2": 5.634, "3": 8.702, "<=3": 8.876},
}


def closed_form(sizes: list[int], orders: list[int]) -> float:
    """rmse of the optimum by an independent formula: eigenvalues of the Gram matrix by residual space."""
    total, queries = 0.0, 0
    for r in orders:
        for chosen in itertools.combinations(range(len(sizes)), r):
            queries += math.prod(sizes[i] for i in chosen)
    values: dict[tuple[int, ...], float] = {}
    for r in orders:
        for chosen in itertools.combinations(range(len(sizes)), r):
            share = 1 / math.prod(sizes[i] for i in chosen)
            for k in range(r + 1):
                for s in itertools.combinations(chosen, k):
                    values[s] = values.get(s, 0.0) + share
    total = sum(math.sqrt(v) * math.prod(sizes[i] - 1 for i in s) for s, v in values.items())
    return total / math.sqrt(queries)


def main() -> None:
    print(f"{'table':8}{'order':>6}{'published':>11}{'bound':>12}{'closed form':>13}{'on the lattice':>16}{'CPU-s':>8}")
    for name, sizes in TABLES.items():
        domain = sf.Domain({f"a{i}": sf.Integers(0, n - 1) for i, n in enumerate(sizes)})
        for label, published in PUBLISHED[name].items():
            top = int(label[-1])
            orders = list(range(top + 1)) if label.startswith("<=") else [top]
            work = sf.marginals(domain, upto=top) if len(orders) > 1 else sf.marginals(domain, order=top)
            start = time.process_time()
            plan = sf.plan(work, sf.zcdp("0.5"), neighbours="add-remove", mechanism="marginals")
            took = time.process_time() - start
            bound = plan.lower_bound or math.nan
            form = closed_form(sizes, orders)
            print(f"{name:8}{label:>6}{published:11.3f}{bound:12.6f}{form:13.6f}{plan.rmse:16.6f}{took:8.2f}")
            assert abs(bound / form - 1) < 1e-9
    release()


def release() -> None:
    """All tables up to order 3 of a table shaped like Adult: plan, count, measure, reconstruct, in memory."""
    domain = sf.Domain(
        {f"a{i}": sf.Integers(0, n - 1, outside="clamp", missing="drop") for i, n in enumerate(TABLES["Adult"])}
    )
    rng = np.random.default_rng(0)
    import duckdb

    columns = {f"a{i}": rng.integers(0, n, 48_842) for i, n in enumerate(TABLES["Adult"])}
    start = time.process_time()
    plan = sf.plan(sf.marginals(domain, upto=3), sf.approx(1, "1e-6"), neighbours="add-remove")
    planned = time.process_time()
    with duckdb.connect() as connection:
        connection.register("people", columns)
        result = sf.release(plan, connection.sql("SELECT * FROM people"), ledger=None)
    measured = time.process_time()
    answers = result.answers
    result.standard_errors()
    done = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"\nAdult <=3, 48,842 rows: plan {planned - start:.2f}, measure {measured - planned:.2f}, "
        f"{len(answers):,} answers with errors {done - measured:.2f} CPU-s; peak {peak:.0f} MB"
    )


if __name__ == "__main__":
    main()
