"""Persons whose rows are counted once per group: prices against brute force, and drawn declarations carried out.

    OPENBLAS_NUM_THREADS=1 python bench/once_per.py price [draws, 10,000 by default] [seed, 1 by default]
    OPENBLAS_NUM_THREADS=1 python bench/once_per.py measures [draws, 3,000] [seed, 0]
    OPENBLAS_NUM_THREADS=1 python bench/once_per.py residuals
    OPENBLAS_NUM_THREADS=1 python bench/once_per.py bounds [draws, 200] [seed, 7]
    OPENBLAS_NUM_THREADS=1 python bench/once_per.py declarations [draws, 300] [seed, 0]

price: measurements of small tables (identities, totals, residuals, prefixes and matrices with negative entries,
products and joint factors, families and combinations), both relations, both norms, held against all multisets of rows
that there are. It prints how many prices are below the largest change, which must be none, and how far above it they
are. measures: the same of sums of measures, held against persons whose rows are searched for.
residuals: single residual tables over two or three attributes of 2 to 6 cells, r from 2 to 5 rows, every set of groups.
bounds: how far plans of drawn marginal tables are above what is proved to be the least error.
declarations: whatever a plan accepts is released, answered, stored with its page and accepted by the stranger's check;
it errs no more than the same rows anywhere, and no less than its bound.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import sfumato as sf
from sfumato.operators import Block, Residual
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


def residuals() -> None:
    """Each price of a single residual table beside the largest change of the rows that there are."""
    ratios: list[float] = []
    for count, most in ((2, 36), (3, 18)):
        for shape in itertools.combinations_with_replacement(range(2, 7), count):
            cells = math.prod(shape)
            if cells > most:
                continue
            sizes = dict(zip("abc", shape, strict=False))
            sets = [s for k in range(1, count + 1) for s in itertools.combinations(sizes, k)]
            largest = 5 if cells <= 12 else 4 if cells <= 20 else 3
            for table, groups, rows in itertools.product(sets, sets, range(2, largest + 1)):
                block = Block(tuple((a,) for a in table), tuple(Residual(sizes[a]) for a in table))
                unit = PrivacyUnit(Neighbours.ADD_REMOVE, "who", rows, once_per=groups)
                true = _largest_of_residual(sizes, table, groups, rows)
                ratios.append(exact_sensitivity([block], sizes, unit, 2).value / true)
    found = np.array(ratios)
    print(
        f"{len(found):,} residual tables: {(found < 1).sum()} priced too low; {np.mean(found < 1 + 1e-9):.0%} exactly, "
        f"{(found > 1.25 + 1e-9).sum()} above 1.25 times the largest change, at most {found.max():.3f} times"
    )


def _largest_of_residual(sizes: dict[str, int], table: tuple[str, ...], groups: tuple[str, ...], rows: int) -> int:
    """Of all sets of cells in different groups."""
    cells = np.array(list(itertools.product(*(range(n) for n in sizes.values()))))
    columns = np.ones((len(cells), 1), dtype=np.int64)
    for i, (a, n) in enumerate(sizes.items()):
        if a in table:
            own = (n * np.eye(n, dtype=np.int64) - 1)[cells[:, i]]
            columns = (columns[:, :, None] * own[:, None, :]).reshape(len(cells), -1)
    gram = columns @ columns.T
    place = [tuple(c) for c in cells[:, [i for i, a in enumerate(sizes) if a in groups]].tolist()]
    best = 0
    for count in range(1, rows + 1):
        for some in itertools.combinations(range(len(cells)), count):
            if len({place[i] for i in some}) == count:
                best = max(best, int(gram[np.ix_(some, some)].sum()))
    return best


def bounds(draws: int = 200, seed: int = 7) -> None:
    """Plans of marginal tables over up to three attributes, of up to 16 rows."""
    rng, found = np.random.default_rng(seed), list[float]()
    for _ in range(draws):
        names = "abc"[: int(rng.integers(1, 4))]
        domain = sf.Domain({n: int(rng.choice([2, 3, 5, 8, 12])) for n in names})
        sets = [s for k in range(4) for s in itertools.combinations(names, k) if rng.random() < 0.5] or [("a",)]
        once_per = [n for n in names if rng.random() < 0.6] or ["a"]
        rows = int(rng.integers(2, 17))
        each = 1 if rng.random() < 0.6 else int(rng.integers(1, rows))
        given = {"rows_per_person": rows, "once_per": once_per, "rows_per_group": each}
        made = sf.plan(sf.marginals(domain, sets=sets), sf.gdp(1), neighbours="add-remove", person="who", **given)
        found.append(made.objective_value / made.lower_bound if made.lower_bound else np.inf)
        if found[-1] > 1.02:
            print(f"  {found[-1]:.3f}: {dict(domain.attributes)}, {sets}, {given}", flush=True)
    some = np.quantile(found, [0.5, 0.9, 1.0]).round(4)
    above = np.mean(np.array(found) > 1.02)
    print(f"{draws} plans: {above:.1%} more than 1.02 times their bound; {some} times (50, 90, 100 %)")


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
    modes = {f.__name__: f for f in (price, measures, residuals, bounds, declarations)}
    modes[sys.argv[1]](*map(int, sys.argv[2:]))
