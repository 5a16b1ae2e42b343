"""What a preview says of flags at several budgets, and what releases of these counts then have.

python bench/preview.py TABLES RELEASES SEED: drawn tables over two to four attributes, four laws, four budgets each; of
every budget the share of cells with each flag as expected, and on average over releases that were planned with it.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import sfumato as sf
from sfumato.planner.preview import USUAL_FLAGS
from sfumato.releases.reliability import read_reliability

LAWS = {
    "Gaussian": (sf.approx(1, "1e-6"), ("0.25", "0.5", "1", "2")),
    "Laplace": (sf.pure(1), ("0.25", "0.5", "1", "2")),
    "zCDP": (sf.zcdp("0.1"), ("0.01", "0.05", "0.1", "0.5")),
    "GDP": (sf.gdp(1), ("0.1", "0.3", "1", "2")),
}


def drawn_table(rng: np.random.Generator) -> tuple[sf.Workload, np.ndarray[Any, Any]]:
    sizes = {f"a{i}": int(rng.integers(2, 9)) for i in range(int(rng.integers(2, 5)))}
    domain = sf.Domain(sizes)
    shares = rng.dirichlet(np.full(domain.size, 0.3))
    counts = rng.multinomial(int(10 ** rng.uniform(2, 5)), shares).reshape(domain.shape)
    return sf.marginals(domain, upto=2), counts


def main() -> None:
    tables, releases, seed = map(int, sys.argv[1:4])
    rng, rule = np.random.default_rng(seed), read_reliability(USUAL_FLAGS)
    names = ("", *(flag for flag, _ in rule.classes))
    for law, (budget, values) in LAWS.items():
        margins, off, worst, worse = list[float](), list[float](), 0.0, 0
        for _ in range(tables):
            work, counts = drawn_table(rng)
            plan = sf.plan(work, budget, neighbours="add-remove")
            rows = sf.preview(plan, counts, budgets=values).frame().rows()
            for value in values:
                own = sf.plan(
                    work,
                    sf.Budget.from_json({**budget.to_json(), next(iter(budget.to_json())): value}),
                    neighbours="add-remove",
                )
                said = {r["table"]: r for r in rows if r["budget"] == f"{float(value):.6g}"}
                for line in own.errors().rows():
                    margins.append(abs(said[line["attributes"]]["margin"] / line["margin"] - 1))
                exact = np.concatenate(
                    [
                        t.values.reshape(-1)
                        for t in sf.release(
                            sf.plan(work, sf.gdp(10**5), neighbours="add-remove"), sf.Histogram(counts), ledger=None
                        ).tables()
                    ]
                )
                there = exact > 0.5
                found = np.zeros(len(names))
                for _ in range(releases):
                    made = sf.release(own, sf.Histogram(counts), ledger=None)
                    flags = np.array(rule.flags(made.answers, made.standard_errors()))[there]
                    found += [(flags == name).mean() for name in names]
                told = np.array(rule.flags(exact, own.standard_errors()))[there]
                expected = np.array([(told == name).mean() for name in names])
                gap = float(np.abs(expected - found / releases).max())
                off.append(gap)
                worst = max(worst, gap)
                worse += gap > 0.05
        print(
            f"{law}: margins off by at most {max(margins):.2%}; shares of flags by {np.mean(off):.3f} on average, "
            f"{worst:.3f} at worst, above .05 in {worse} of {len(off)}"
        )


if __name__ == "__main__":
    main()
