"""Marginals: the noise allocation against the published optima, and a whole release in memory.

    OPENBLAS_NUM_THREADS=1 python bench/marginals.py

CPU seconds of one process. "sum": rmse of the closed form at unit price, and how far it is from the singular value
bound computed apart. "max": largest variance, and the certified gap to its dual bound. "lattice": rmse of the plan,
whose residuals are rounded to integer multiples.
"""

from __future__ import annotations

import itertools
import math
import resource
import time

import numpy as np
from numpy.typing import NDArray

import sfumato as sf
from sfumato.strategies.attribute_sets import Sets, downward_closure, locate_sets, subset_columns
from sfumato.strategies.residual_tables import allocate_residuals

TABLES = {
    "CPS": [50, 100, 7, 4, 2],
    "Adult": [85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2],
    "Loans": [101, 101, 101, 101, 3, 8, 36, 6, 51, 4, 5, 15],
}
LABELS = ("1", "2", "3", "4", "5", "<=3", "small")
# published rmse and largest variance per label [XZK23]
PUBLISHED = {
    "CPS": (
        (1.744, 2.035, 2.048, 1.627, 1.000, 2.276, 2.525),
        (4.346, 7.897, 7.706, 4.141, 1.000, 13.216, 11.774),
    ),
    "Adult": (
        (3.047, 6.359, 10.515, 14.656, 17.844, 10.665, 9.945),
        (12.047, 67.802, 236.843, 575.213, 1030.948, 253.605, 126.902),
    ),
    "Loans": (
        (2.875, 5.634, 8.702, 11.267, 12.678, 8.876, 8.206),
        (10.640, 52.217, 156.638, 320.778, 474.243, 180.817, 89.873),
    ),
}
TEN_CELLS = {
    2: (1.379, 3.306),
    6: (4.275, 26.904),
    10: (9.348, 105.031),
    12: (12.359, 175.496),
    14: (15.642, 272.738),
    15: (17.378, 332.769),
    20: (26.916, 768.94),
    30: (49.713, 2540.44),
    50: (107.258, 11597.0),
    100: (303.216, 91960.9),
    200: (855.330, math.nan),
}

Tables = list[tuple[Sets, NDArray[np.float64]]]


def combinations(attributes: int, order: int) -> Sets:
    count = math.comb(attributes, order)
    flat = itertools.chain.from_iterable(itertools.combinations(range(attributes), order))
    return np.fromiter(flat, dtype=np.int32, count=count * order).reshape(count, order)


def tables(sizes: list[int], label: str) -> Tables:
    """All tables of an order, up to an order, or of at most 5,000 cells."""
    if label.isdigit():
        orders = [int(label)]
    else:
        orders = list(range((int(label[2:]) if label.startswith("<=") else len(sizes)) + 1))
    out: Tables = []
    for order in orders:
        sets = combinations(len(sizes), order)
        if label == "small":
            sets = sets[np.array(sizes, dtype=np.float64)[sets].prod(axis=1) <= 5000]
        if len(sets):
            out.append((sets, np.ones(len(sets))))
    return out


def singular_value_bound(asked: Tables, sizes: list[int]) -> tuple[float, float]:
    """(root of the least total variance, queries): the Gram matrix has one eigenvalue on each residual space."""
    n = np.array(sizes, dtype=np.float64)
    residuals = downward_closure([s for s, _ in asked], len(sizes))
    values = [np.zeros(len(s)) for s in residuals]
    queries = 0.0
    for sets, _ in asked:
        cells = n[sets].prod(axis=1)
        queries += float(cells.sum())
        for pattern in subset_columns(sets.shape[1]):
            below = residuals[len(pattern)]
            where = locate_sets(below, sets[:, list(pattern)], len(sizes))
            values[len(pattern)] += np.bincount(where, 1 / cells, len(below))
    each = [np.sqrt(v) * (n - 1)[s].prod(axis=1) for v, s in zip(values, residuals, strict=True)]
    return math.fsum(float(x) for part in each for x in part), queries


def line(name: str, label: str, sizes: list[int], published: tuple[float, float]) -> None:
    asked = tables(sizes, label)
    start = time.process_time()
    mean = allocate_residuals(asked, sizes, objective="mean", power=2, free_total=False)
    middle = time.process_time()
    largest = allocate_residuals(asked, sizes, objective="max", power=2, free_total=False)
    end = time.process_time()
    bound, queries = singular_value_bound(asked, sizes)
    gap = (largest.value / largest.bound) ** 2 - 1
    print(
        f"{name:9}{label:>6}{sum(map(len, mean.sets)):10,}{published[0]:10.3f}{mean.value / math.sqrt(queries):12.6f}"
        f"{mean.value / bound - 1:9.0e}{middle - start:8.3f}{published[1]:12.3f}{largest.value**2:15.5f}"
        f"{gap:9.0e}{end - middle:8.3f}"
    )
    assert abs(mean.value / bound - 1) < 1e-9
    assert gap < 1e-5


def allocations() -> None:
    print(
        f"{'table':9}{'order':>6}{'residuals':>10}{'published':>10}{'sum: rmse':>12}{'/ bound':>9}{'CPU-s':>8}"
        f"{'published':>12}{'max: variance':>15}{'gap':>9}{'CPU-s':>8}"
    )
    for name, sizes in TABLES.items():
        for label, *published in zip(LABELS, *PUBLISHED[name], strict=True):
            line(name, label, sizes, (published[0], published[1]))
    for attributes, (rmse, variance) in TEN_CELLS.items():
        line(f"10^{attributes}", "<=3", [10] * attributes, (rmse, variance))


def plans() -> None:
    print(f"\n{'table':9}{'order':>6}{'published':>11}{'bound':>12}{'lattice':>12}{'CPU-s':>8}")
    for name, sizes in TABLES.items():
        domain = sf.Domain({f"a{i}": sf.Integers(0, n - 1) for i, n in enumerate(sizes)})
        for label in ("1", "2", "3", "<=3"):
            top = int(label[-1])
            work = sf.marginals(domain, upto=top) if label.startswith("<=") else sf.marginals(domain, order=top)
            start = time.process_time()
            plan = sf.plan(work, sf.zcdp("0.5"), neighbours="add-remove", mechanism="marginals", objective="cells")
            took = time.process_time() - start
            published = PUBLISHED[name][0][LABELS.index(label)]
            bound = math.nan if plan.lower_bound is None else plan.lower_bound
            print(f"{name:9}{label:>6}{published:11.3f}{bound:12.6f}{plan.rmse:12.6f}{took:8.2f}")


def release() -> None:
    """All tables up to order 3 of a table shaped like Adult: plan, count, measure, reconstruct, in memory."""
    domain = sf.Domain(
        {f"a{i}": sf.Integers(0, n - 1, outside="clamp", missing="drop") for i, n in enumerate(TABLES["Adult"])}
    )
    rng = np.random.default_rng(0)
    import duckdb

    columns = {f"a{i}": rng.integers(0, n, 48_842) for i, n in enumerate(TABLES["Adult"])}
    start = time.process_time()
    plan = sf.plan(sf.marginals(domain, upto=3), sf.approx(1, "1e-6"), neighbours="add-remove", objective="cells")
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
    allocations()
    plans()
    release()
