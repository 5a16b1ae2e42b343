"""The objective: parts alike, tables alike within a part, queries alike within a table, each in its largest entry."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import PlanError

_BUDGET = sf.gdp(1)


def _domain(seed: int) -> sf.Domain:
    rng = np.random.default_rng(seed)
    n = rng.integers(2, 7, size=3).tolist()
    return sf.Domain(
        {
            "a": sf.Integers(0, n[0] - 1, outside="other", missing="other"),
            "b": sf.Categories([f"b{i}" for i in range(n[1])], outside="other", missing="other"),
            "c": sf.Bins(np.cumsum(rng.integers(1, 9, size=n[2] + 1)).tolist(), outside="other", missing="other"),
        }
    )


def _workload(seed: int) -> sf.Workload:
    """Parts of every kind, some with weights."""
    rng = np.random.default_rng(seed)
    domain = _domain(seed)
    weight = {name: int(rng.integers(1, 9)) for name in ("tables", "named")}
    return sf.stack(
        sf.sums(domain, "c", by=["b"]),
        tables=sf.marginals(domain, upto=2, weights={1: int(rng.integers(1, 5))}),
        cdf=sf.prefix(domain, "a", by=["b"]),
        named=sf.predicates(domain, ["a >= 1 and b == 'b0'", "b == 'b1'"]),
        own=sf.queries(rng.integers(-3, 4, size=(4, domain["a"].size)), domain, "a"),
        weights=weight,
    )


def _brute(plan: sf.Plan, *, unit_free: bool) -> tuple[float, float]:
    """(weighted mean variance summed query by query from dense tables, what it is divided by)."""
    replaced = plan.unit.total_is_public
    errors, start = plan.standard_errors() ** 2, 0
    parts: dict[str, list[tuple[float, float]]] = {}
    for q in plan.workload.blocks:
        variances = errors[start : start + q.rows]
        start += q.rows
        dense = np.asarray(q.block.operator.dense(), dtype=float)
        if replaced and not q.attributes:
            continue
        size = float(dense.max() - dense.min()) if replaced and np.ptp(dense) else float(np.abs(dense).max())
        w = float(q.weight) / size**2
        parts.setdefault(q.part, []).append((w * float(variances.mean()), float(q.weight) if unit_free else w))
    value = sum(sum(v for v, _ in tables) / len(tables) for tables in parts.values())
    return value, sum(sum(w for _, w in tables) / len(tables) for tables in parts.values())


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("seed", range(4))
def test_the_objective_is_a_mean_over_parts_of_means_over_tables_of_means_over_queries(
    seed: int, neighbours: str
) -> None:
    """Against the same mean taken query by query from dense tables. Mutants: one share per query, no coefficient."""
    work = _workload(seed)
    made = sf.plan(work, _BUDGET, neighbours=neighbours)
    value, whole = _brute(made, unit_free=True)
    assert made.objective_value == pytest.approx(np.sqrt(value / whole), rel=1e-9)
    assert made.mean_error == pytest.approx(made.objective_value)
    assert made.rmse is None
    counts = sf.stack(**{n: p for n, p in work.parts.items() if n not in ("own",) and p.units == ("records",)})
    alike = sf.plan(counts, _BUDGET, neighbours=neighbours)
    value, whole = _brute(alike, unit_free=False)
    assert alike.objective_value == pytest.approx(np.sqrt(value / whole), rel=1e-9)
    assert alike.rmse == pytest.approx(np.sqrt(np.mean(alike.standard_errors() ** 2)))


@pytest.mark.parametrize("seed", range(3))
def test_each_objective_is_best_at_what_it_minimises(seed: int) -> None:
    """A plan for one objective, priced by another, is never better than that one's own plan."""
    counts = {n: p for n, p in _workload(seed).parts.items() if n in ("tables", "cdf", "named")}
    work = sf.stack(**counts)
    made = {name: sf.plan(work, _BUDGET, neighbours="add-remove", objective=name) for name in ("tables", "cells")}
    values = {name: _brute(p, unit_free=False)[0] for name, p in made.items()}
    assert values["tables"] <= values["cells"] * (1 + 1e-6)
    weights = np.concatenate([np.full(q.rows, float(q.weight)) for q in work.blocks])
    cells = {name: float((weights * p.standard_errors() ** 2).sum()) for name, p in made.items()}
    assert cells["cells"] <= cells["tables"] * (1 + 1e-6)


@pytest.mark.parametrize("make", [lambda d: sf.prefix(d, "a", by=["b"]), lambda d: sf.marginals(d, sets=[["a", "c"]])])
def test_one_table_alone_has_one_plan(make: object) -> None:
    work = make(_domain(5))  # type: ignore[operator]
    tables = sf.plan(work, _BUDGET, neighbours="add-remove")
    cells = sf.plan(work, _BUDGET, neighbours="add-remove", objective="cells")
    assert tables.fingerprint == cells.fingerprint
    assert tables.objective_value == tables.rmse == cells.objective_value


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_units_do_not_move_budget(neighbours: str) -> None:
    """Wages in cents instead of euros: the counts err as before, the sums a hundred times as much."""
    domain = _domain(6)
    values = np.arange(domain["c"].size) * 7 + 3
    plans = [
        sf.plan(
            sf.stack(t=sf.marginals(domain, order=1), s=sf.sums(domain, "c", factor * values, by=["b"])),
            _BUDGET,
            neighbours=neighbours,
        )
        for factor in (1, 100)
    ]
    assert plans[0].standard_errors("t") == pytest.approx(plans[1].standard_errors("t"), rel=1e-3)
    assert 100 * plans[0].standard_errors("s") == pytest.approx(plans[1].standard_errors("s"), rel=1e-3)


def test_tables_that_cost_nothing_count_for_nothing() -> None:
    """A public total in a part leaves the others' errors as they are. Mutant: it is counted among the tables."""
    domain = _domain(7)
    tables, named = sf.marginals(domain, order=1), sf.predicates(domain, ["a >= 1 and b == 'b0'"])
    with_total = sf.stack(t=tables + sf.total(domain), n=named)
    without = sf.stack(t=tables, n=named)
    some, other = (sf.plan(w, _BUDGET, neighbours="replace-one") for w in (with_total, without))
    assert some.objective_value == pytest.approx(other.objective_value, rel=1e-6)
    assert some.standard_errors("n") == pytest.approx(other.standard_errors("n"), rel=1e-4)
    public = {("b",): np.arange(domain["b"].size) + 1.0}
    known = sf.plan(sf.marginals(domain, order=1), _BUDGET, neighbours="add-remove", public=public)
    assert known.objective_value == pytest.approx(
        np.sqrt(np.mean([r["rmse"] ** 2 for r in known.errors().rows() if r["attributes"] != "b"]))
    )


def test_what_people_read_first_does_not_starve() -> None:
    """Totals, small tables and named counts beside many cells: each within five times of what it would err alone."""
    sizes = [9, 16, 7, 15, 6, 5]
    domain = sf.Domain({f"x{i}": n for i, n in enumerate(sizes)})
    work = sf.stack(tables=sf.marginals(domain, upto=3), cdf=sf.prefix(domain, "x1"))
    tables, cells = (
        sf.plan(work, _BUDGET, neighbours="add-remove", objective=name).errors_by_order()
        for name in ("tables", "cells")
    )
    assert max(tables["ratio"]) < 5 < max(cells["ratio"])


def test_every_line_says_what_it_would_err_alone() -> None:
    work = _workload(8)
    made = sf.plan(work, _BUDGET, neighbours="add-remove")
    rows = made.errors_by_order().rows()
    for row in rows:
        items = tuple(
            i
            for i in work.parts[row["part"]].items
            if row["attributes"] == (i.family.order if hasattr(i, "family") else len(i.attributes))
        )
        own = sf.plan(sf.Workload(work.domain, items), _BUDGET, neighbours="add-remove")
        assert row["alone"] == pytest.approx(own.mean_error, rel=1e-6)
        assert row["ratio"] == pytest.approx(row["rmse"] / row["alone"])
        assert row["ratio"] >= 1 - 1e-6
    assert sum(r["error_share"] for r in rows) == pytest.approx(1)
    stored = sf.plan(work.parts["cdf"], _BUDGET, neighbours="add-remove")
    assert "alone" not in stored.errors_by_order().columns  # one line has nothing to be compared with


def test_a_line_that_starves_is_named_with_the_weight_that_helps(tmp_path: Path) -> None:
    domain = sf.Domain({f"x{i}": 12 for i in range(5)})
    work = sf.stack(tables=sf.marginals(domain, upto=3), named=sf.predicates(domain, ["x0 in (1, 2)"]))
    made = sf.plan(work, _BUDGET, neighbours="add-remove", objective="cells")
    made.save(tmp_path / "plan")
    text = str(sf.load(tmp_path / "plan"))
    assert "times what it would with the whole budget" in text
    assert "weights={" in text
    # what the sentence says of a weight of 16
    row = max(made.errors_by_order().rows(), key=lambda r: r["ratio"])
    helped = sf.plan(
        sf.stack(
            tables=sf.marginals(domain, upto=3, weights={0: 16}), named=work.parts["named"], weights={"named": 16}
        ),
        _BUDGET,
        neighbours="add-remove",
        objective="cells",
    )
    after = {(r["part"], r["attributes"]): r for r in helped.errors_by_order().rows()}[row["part"], row["attributes"]]
    assert 0.4 < after["rmse"] / row["rmse"] < 0.75


@pytest.mark.parametrize("objective", ["tables", "cells"])
def test_what_a_part_takes_from_itself_is_had_as_another_part(objective: str) -> None:
    """A weight of the whole part moves nothing within it, so the sentence does not offer one; its advice works."""
    domain = sf.Domain({f"x{i}": 8 for i in range(6)})
    named = sf.predicates(domain, ["x0 in (1, 2) and x1 in (3, 4)"])
    tables, asked = sf.marginals(domain, upto=3), {"neighbours": "add-remove", "objective": objective}
    made = sf.plan(sf.stack(main=tables, named=named), _BUDGET, **asked)
    text, before = str(made), made.errors_by_order().rows()[0]
    assert before["ratio"] > 5
    assert "sf.total(domain) in sf.stack" in text
    assert "[[queries]] with total = true" in text
    assert "weights={0: 16} in sf.marginals" in text
    assert "weights={'main'" not in text
    assert ("total = true and weight = 16" in text) == (objective == "cells")
    own = sf.stack(main=tables, named=named, own=sf.total(domain), weights={"own": 16 if objective == "cells" else 1})
    weighted = sf.stack(main=sf.marginals(domain, upto=3, weights={0: 16}), named=named)
    for work in (own, weighted):
        after = sf.plan(work, _BUDGET, **asked).errors_by_order().rows()[0]
        assert after["rmse"] < 0.75 * before["rmse"]


def test_other_objectives_are_refused() -> None:
    work = sf.marginals(_domain(9), upto=2)
    for given in ("median", "mean"):
        with pytest.raises(PlanError, match=f"'tables', 'cells' or 'max', not {given!r}"):
            sf.plan(work, _BUDGET, neighbours="add-remove", objective=given)  # type: ignore[arg-type]
