"""Cross-tables: do the intervals of per cents hold, on tables that nobody tuned?

    OPENBLAS_NUM_THREADS=1 python bench/crosstab.py [tables] [releases] [seed]

Drawn tables of two or three attributes of 3 to 7 cells, some with an (other), shares from a Dirichlet distribution of
concentration .2 to 5, 10^2 to 10^5.5 records; marginal tables of several orders, tables beside others that are measured
apart, and sums out of a larger one; Gaussian, Laplace and zCDP budgets; add-remove and replace-one; per cent of row, of
column and of all. For every drawn table so many releases: of all per cents that are told, how many 95 % intervals hold
the exact per cent. "worst table" is the drawn table with the least share. The last lines are the
bundled table of Adult.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import duckdb
import numpy as np
from numpy.typing import NDArray

import sfumato as sf

Counts = NDArray[np.int64]
BUDGETS = {"gaussian": sf.gdp("0.5"), "laplace": sf.pure(1), "zcdp": sf.zcdp("0.05")}


def drawn_case(rng: np.random.Generator, law: str) -> tuple[sf.Plan, Counts, str]:
    """A plan, counts with every (other) last, and what was asked."""
    names = ["a", "b", "c"][: int(rng.integers(2, 4))]
    policy = "other" if rng.random() < 0.5 else "drop"
    relation = str(rng.choice(["add-remove", "replace-one"]))
    policy = "other" if relation == "replace-one" else policy
    domain = sf.Domain({n: sf.Integers(0, int(rng.integers(2, 7)), outside=policy, missing=policy) for n in names})
    shares = rng.dirichlet(np.full(int(np.prod(domain.shape)), rng.choice([0.2, 1.0, 5.0])))
    counts = rng.multinomial(int(10 ** rng.uniform(2, 5.5)), shares).reshape(domain.shape)
    asked = str(rng.choice(["upto", "finest", "apart"]))
    work = {
        "upto": lambda: sf.marginals(domain, upto=len(names)),
        "finest": lambda: sf.identity(domain),
        "apart": lambda: sf.identity(domain) + sf.prefix(domain, "a"),
    }[asked]()
    # "tree" measures the two apart, so that a total and the cells in it may err independently
    mechanism = "tree" if asked == "apart" else "auto"
    plan = sf.plan(work, BUDGETS[law], neighbours=relation, mechanism=mechanism)
    assert isinstance(plan, sf.Plan)
    return plan, counts, asked


def exact_shares(counts: Counts, per: str) -> NDArray[np.float64]:
    """Exact per cents with totals; NaN where a total is 0."""
    whole = np.block([[counts, counts.sum(1, keepdims=True)], [counts.sum(0, keepdims=True), counts.sum()]])
    base = {"row": whole[:, -1:], "column": whole[-1:, :], "all": whole[-1:, -1:]}[per]
    with np.errstate(invalid="ignore", divide="ignore"):
        return whole / base


def coverage(plan: sf.Plan, counts: Counts, releases: int, sums: dict[str, list[int]]) -> float:
    """The share of intervals that hold, by per; told and held are added to `sums`."""
    names = plan.workload.domain.names
    down, across = names[:1], names[1:2]
    shown = counts.sum(axis=tuple(range(2, counts.ndim))) if counts.ndim > 2 else counts
    table, told, held = sf.Histogram(counts), 0, 0
    for i in range(releases):
        cells = sf.release(plan, table, ledger=None, name=f"r{i}").table(*down, *across)
        for per in ("row", "column", "all"):
            found = cells.crosstab(down, across, per=per).shares
            value, error, low, high = found
            exact = exact_shares(shown, per)
            known = np.isfinite(value) & (error > 0)  # a total in per cent of itself is 100
            inside = known & (low <= exact + 1e-12) & (exact - 1e-12 <= high)
            sums[per][0] += int(known.sum())
            sums[per][1] += int(inside.sum())
            told, held = told + int(known.sum()), held + int(inside.sum())
    return held / told if told else 1.0


def adult_counts() -> tuple[sf.Domain, Counts]:
    """Education by sex of the bundled public table."""
    place = Path(sf.__file__).with_name("data") / "adult.parquet"
    rows = duckdb.sql(f"SELECT education, sex, count(*) FROM '{place}' GROUP BY ALL ORDER BY ALL").fetchall()
    axes = [sorted({row[i] for row in rows}) for i in range(2)]
    counts = np.zeros([len(a) for a in axes], dtype=np.int64)
    for one, other, n in rows:
        counts[axes[0].index(one), axes[1].index(other)] = n
    return sf.Domain(dict(zip(("education", "sex"), map(sf.Categories, axes), strict=True))), counts


def main() -> None:
    """Print one line for each law, and for Adult."""
    given = [int(a) for a in sys.argv[1:]]
    tables, releases, seed = [*given, *(6, 1000, 11)[len(given) :]]
    rng = np.random.default_rng(seed)
    print("law        per     told        held     worst table")
    for law in BUDGETS:
        sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        worst = min(coverage(*drawn_case(rng, law)[:2], releases, sums) for _ in range(tables))
        for per, (told, held) in sums.items():
            print(f"{law:<10} {per:<7} {told:<11,} {held / max(told, 1):.4f}   {worst:.4f}", flush=True)
    domain, counts = adult_counts()
    for law, budget in BUDGETS.items():
        sums = defaultdict(lambda: [0, 0])
        plan = sf.plan(sf.marginals(domain, upto=2), budget, neighbours="add-remove")
        assert isinstance(plan, sf.Plan)
        worst = coverage(plan, counts, releases, sums)
        told = sum(t for t, _ in sums.values())
        print(f"Adult, {law}: {told:,} told, {worst:.4f} held", flush=True)


if __name__ == "__main__":
    main()
