"""Sums, counts and means of attributes of many values: noise against its bound, and CPU seconds from plan to answer.

    OPENBLAS_NUM_THREADS=1 python bench/values.py          # every row
    OPENBLAS_NUM_THREADS=1 python bench/values.py 50       # rows whose name holds the text

Every row is a process of its own. Seconds are `time.process_time`, of a plan, a release of a file of 1,000 records,
drawn from a stated seed, and the answers; `first` is what the same of two values took just before, most of it for
modules that a process imports once. `bound` is proved for Gaussian noise; a plan of other noise
may err less.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import sfumato as sf

BUDGETS = {"(eps, delta)": sf.approx(1, "1e-6"), "rho": sf.zcdp("0.5"), "pure": sf.pure(1)}
RELATIONS = ("add-remove", "replace-one")
RECORDS = 1_000
OTHER: dict[str, Any] = {"outside": "clamp", "missing": "other"}  # every record is counted

Case = Callable[[str, str], None]


def _file(domain: sf.Domain, folder: Path) -> Path:
    """A file of records of a domain, every cell as likely."""
    rng = np.random.default_rng(0)
    columns = [rng.integers(0, n, RECORDS) for n in domain.shape]
    path = folder / "records.csv"
    rows = zip(*(c.tolist() for c in columns), strict=True)
    path.write_text("\n".join([",".join(domain.names), *(",".join(map(str, r)) for r in rows)]) + "\n")
    return path


def _run(
    name: str, work: Callable[[], sf.Workload], relation: str, budget: str, ask: Callable[[sf.Release], object]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        small = sf.Domain({"x": sf.Integers(0, 1, **OTHER)})
        _ = sf.release(
            sf.plan(sf.sums(small, "x"), BUDGETS[budget], neighbours=relation), _file(small, Path(folder)), ledger=None
        ).answers
        first = time.process_time() - start
        path = _file(work().domain, Path(folder))
        times = [time.process_time()]
        plan = sf.plan(work(), BUDGETS[budget], neighbours=relation)
        times.append(time.process_time())
        release = sf.release(plan, path, ledger=None)
        times.append(time.process_time())
        ask(release)
        times.append(time.process_time())
    spent = np.diff(times)
    bound = plan.lower_bound
    known = f"{bound:12.4f} {plan.objective_value / bound:8.4f}" if bound else f"{'-':>12} {'-':>8}"
    print(
        f"{name:42} {relation:11} {budget:12} {plan.objective_value:12.4f} {known} "
        f"{spent.sum():7.2f} ({', '.join(f'{s:.2f}' for s in spent)}) {first:6.2f}",
        flush=True,
    )


def _one(most: int, asked: str) -> Case:
    def case(relation: str, budget: str) -> None:
        def work() -> sf.Workload:
            domain = sf.Domain({"x": sf.Integers(0, most, **OTHER)})
            return (
                sf.sums(domain, "x") if asked == "sum" else sf.predicates(domain, [f"x >= 2 and x < {7 * most // 10}"])
            )

        _run(f"one {asked} of {most + 1:,} values", work, relation, budget, lambda r: r.answers)

    return case


def _groups(groups: int, most: int, asked: str) -> Case:
    def case(relation: str, budget: str) -> None:
        def work() -> sf.Workload:
            domain = sf.Domain({"g": sf.Integers(1, groups, **OTHER), "x": sf.Integers(0, most, **OTHER)})
            parts = [sf.sums(domain, "x", by=["g"])]
            if "count" in asked:
                parts.append(sf.marginals(domain, sets=[("g",)]))
            if "square" in asked:
                parts.append(sf.sums(domain, "x", by=["g"], values=np.arange(most + 1) ** 2.0, name="x squared"))
            return sf.stack(*parts) if len(parts) > 1 else parts[0]

        def ask(release: sf.Release) -> object:
            return release.mean("x", by="g") if "count" in asked else release.answers

        _run(f"{asked} by {groups} groups of {most + 1:,} values", work, relation, budget, ask)

    return case


CASES: dict[str, Case] = {
    f"one {asked} of {most + 1:,} values": _one(most, asked)
    for most, asked in itertools.product((10_000, 1_000_000), ("sum", "predicate"))
} | {
    f"{asked} by {groups} groups of {most + 1:,} values": _groups(groups, most, asked)
    for groups, most, asked in (
        (50, 10_000, "sum"),
        (50, 10_000, "sum and count"),
        (13, 100, "sum, square and count"),
    )
}


def main() -> None:
    """Print the rows whose name holds the text given."""
    if len(sys.argv) == 4:
        name, relation, budget = sys.argv[1:]
        CASES[name](relation, budget)
        return
    print(
        f"{'asked':42} {'neighbours':11} {'budget':12} {'objective':>12} {'bound':>12} {'ratio':>8} {'CPU s':>7} "
        "(plan, release, answer), first"
    )
    for name, relation, budget in itertools.product(CASES, RELATIONS, BUDGETS):
        if any(text in name for text in sys.argv[1:] or [""]):
            subprocess.run([sys.executable, __file__, name, relation, budget], check=True)


if __name__ == "__main__":
    main()
