"""Persons whose rows are counted once per group: prices against brute force, and drawn declarations carried out.

    OPENBLAS_NUM_THREADS=1 python bench/once_per.py price [draws, 10,000 by default] [seed, 1 by default]
    OPENBLAS_NUM_THREADS=1 python bench/once_per.py measures [draws, 3,000] [seed, 0]
    OPENBLAS_NUM_THREADS=1 python bench/once_per.py declarations [draws, 300] [seed, 0]

price: measurements of small tables (identities, totals, residuals, prefixes and matrices with negative entries,
products and joint factors, families and combinations), both relations, both norms, held against all multisets of rows
that there are. It prints how many prices are below the largest change, which must be none, and how far above it they
are. measures: the same of sums of measures, held against persons whose rows are searched for.
declarations: whatever a plan accepts is released, answered, stored with its page and accepted by the stranger's check;
it errs no more than the same rows anywhere, and no less than its bound.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies.certificates import exact_sensitivity
from support.declared import carried_out, drawn_declaration
from support.grouped import drawn_case, largest_changes
from support.shares import errs_of_persons


def price(draws: int = 10_000, seed: int = 1) -> None:
    """Draw, price, and compare."""
    random = np.random.default_rng(seed)
    below, ratios = 0, dict[tuple[str, int], list[float]]()
    for _ in range(draws):
        blocks, sizes, once_per, rows, each = drawn_case(random)
        true = largest_changes(blocks, sizes, once_per, rows, each)
        for (relation, power), value in true.items():
            unit = PrivacyUnit(Neighbours(relation), "who", rows, once_per=once_per, rows_per_group=each)
            found = exact_sensitivity(blocks, sizes, unit, power).value
            below += found < value
            ratios.setdefault((relation, power), []).append((found / value) ** (1 / power) if value else 1.0)
    print(f"{draws:,} measurements, seed {seed}: {below} prices below the largest change")
    for (relation, power), found in ratios.items():
        some = np.quantile(found, [0.5, 0.9, 1.0])
        met = np.mean(np.array(found) < 1 + 1e-9)
        print(f"  {relation}, L{power}: equal to it for {met:.0%}; root of the ratio {some.round(3)} (50, 90, 100 %)")


def measures(draws: int = 3_000, seed: int = 0) -> None:
    """Sums of measures of persons with several rows."""
    low, most = errs_of_persons(draws, seed)
    print(f"{draws:,} maps of measures: {low} priced too low; at most {most:.4f} times what some person found adds")


def declarations(draws: int = 300, seed: int = 0) -> None:
    """Plan, release, store and check what is drawn."""
    told: Counter[str] = Counter()
    for one in range(seed, seed + draws):
        outcome = carried_out(drawn_declaration(one))
        told[outcome] += 1
        if outcome not in ("accepted", "not checked"):
            print(f"seed {one}: {outcome}", flush=True)
    print(f"{draws:,} declarations from seed {seed}: {dict(told)}")


if __name__ == "__main__":
    {"price": price, "measures": measures, "declarations": declarations}[sys.argv[1]](*map(int, sys.argv[2:]))
