"""Prices of persons whose rows are counted once per group, against brute force over all multisets of rows.

    OPENBLAS_NUM_THREADS=1 python bench/once_per.py [draws, 10,000 by default] [seed]

Draws are measurements of small tables: identities, totals, residuals, prefixes and matrices with negative entries,
products and joint factors, families and combinations; both relations, both norms. It prints how many prices are below
the largest change that there is, which must be none, and how far above it they are.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies.certificates import exact_sensitivity
from support.grouped import drawn_case, largest_changes


def main() -> None:
    """Draw, price, and compare."""
    draws, seed = (int(a) for a in [*sys.argv[1:], *["10000", "1"][len(sys.argv) - 1 :]])
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


if __name__ == "__main__":
    main()
