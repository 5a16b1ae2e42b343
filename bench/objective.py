"""What people read first, by objective: standard errors of the demo's workload and of one with sums.

    python bench/objective.py

No data are read. CPU seconds with OPENBLAS_NUM_THREADS=1.
"""

from __future__ import annotations

import time
from importlib import resources

import numpy as np

import sfumato as sf


def demo() -> sf.Workload:
    with resources.as_file(resources.files("sfumato.data") / "adult.toml") as path:
        return sf.read_spec(path).workload


def shown(name: str, work: sf.Workload, objective: str) -> None:
    start = time.process_time()
    plan = sf.plan(work, sf.approx(1, "1e-6"), neighbours="add-remove", objective=objective)
    spent = time.process_time() - start
    ratio = "-" if plan.lower_bound is None else f"{plan.objective_value / plan.lower_bound:.3f}"
    rmse = "-" if plan.rmse is None else f"{plan.rmse:,.1f}"
    print(
        f"\n{name}, {objective}: objective {plan.objective_value:,.2f}, over bound {ratio}, rmse {rmse}, "
        f"{spent:.1f} CPU-s"
    )
    table = plan.errors()
    lines: dict[tuple[str, int, str], list[tuple[float, float]]] = {}
    for e, order in zip(table.rows(), orders(plan), strict=True):
        lines.setdefault((e["part"], order, e["unit"]), []).append((e["rmse"], e["worst_standard_error"]))
    for (part, order, unit), found in lines.items():
        median, largest = np.median([r for r, _ in found]), max(w for _, w in found)
        print(
            f"  {part:24s} {order} {unit:10s} median {median:10,.2f}  largest {largest:10,.2f}  "
            f"± {1.96 * largest:10,.1f}"
        )


def orders(plan: sf.Plan) -> list[int]:
    """The number of attributes of every table."""
    return [e.order for e in plan.entries for _ in e.cells()]


def main() -> None:
    for objective in ("cells", "tables"):
        shown("demo", demo(), objective)
    domain, parts = demo().domain, dict(demo().parts)
    del parts["main"]
    by_order = {f"order {k}": sf.marginals(domain, order=k) for k in range(4)}
    shown("demo, a part for each order", sf.stack(**by_order, **parts), "tables")
    mixed = sf.stack(
        tables=sf.marginals(domain, sets=[("age",), ("sex",), ("age", "sex"), ("education", "sex"), ()]),
        hours=sf.sums(domain, "hours_per_week", by=["sex"]),
    )
    for objective in ("cells", "tables"):
        shown("tables and sums", mixed, objective)


if __name__ == "__main__":
    main()
