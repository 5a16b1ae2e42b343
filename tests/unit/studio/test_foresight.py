"""Errors under other budgets from one plan, against plans of those budgets."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.specs import read_spec
from sfumato.studio import what_if as foresight
from sfumato.studio.what_if import budget_for_margin, plan_figures, scale_errors
from sfumato.workloads import Workload
from support.studio import SPEC, folder, studio

SPACE = sf.Domain({"age": sf.Integers(0, 5), "sex": sf.Categories(["f", "m"])})
WORK = sf.stack(tables=sf.marginals(SPACE, upto=2), curve=sf.prefix(SPACE, "age", by=["sex"]))
BUDGETS = [
    (sf.approx(1, "1e-6"), [sf.approx("0.03", "1e-6"), sf.approx(7, "1e-6"), sf.approx(1, "1e-9")]),
    (sf.zcdp("0.5"), [sf.zcdp("0.001"), sf.zcdp(20)]),
    (sf.gdp(1), [sf.gdp("0.02"), sf.gdp(5)]),
    (sf.pure(1), [sf.pure("0.05"), sf.pure(4)]),
]


@pytest.mark.parametrize(("budget", "others"), BUDGETS)
def test_one_plan_answers_for_every_budget(budget: sf.Budget, others: list[sf.Budget]) -> None:
    """Margins of every line within 1 %. Mutant: errors that go with epsilon itself."""
    plan = sf.plan(WORK, budget, neighbours="add-remove")
    for other in others:
        exact = sf.plan(WORK, other, neighbours="add-remove").errors_by_order()["rmse"]
        found = [r * scale_errors(plan, other).factor for r in plan.errors_by_order()["rmse"]]
        assert found == pytest.approx(list(exact), rel=0.01)


@pytest.mark.parametrize("budget", [b for b, _ in BUDGETS])
def test_the_budget_of_a_margin_has_it(budget: sf.Budget) -> None:
    """No more than a hundredth above the margin, and hardly less budget would do."""
    plan = sf.plan(WORK, budget, neighbours="add-remove")
    found = budget_for_margin(plan, 12.0, "curve", 2)
    assert (found.kind, found.delta) == (budget.kind, budget.delta)
    rows = sf.plan(WORK, found, neighbours="add-remove").errors_by_order().rows()
    margin = next(r["margin"] for r in rows if r["part"] == "curve")
    assert 12 * 0.98 <= margin <= 12 * 1.01


def test_figures_are_the_plans() -> None:
    plan = sf.plan(WORK, sf.zcdp("0.5"), neighbours="add-remove")
    found = plan_figures(plan)
    lines = plan.errors_by_order().rows()
    assert [(r["key"], r["order"], r["margin"], r["alone"]) for r in found["lines"]] == [
        (r["part"], r["attributes"], r["margin"], r["alone"]) for r in lines
    ]
    assert [t["margin"] for t in found["tables"]] == list(plan.errors()["margin"])
    assert [t["fifth"] for t in found["tables"]] == list(plan.smallest_count()["smallest_count"])
    assert found["bound"] == plan.lower_bound


def test_what_does_not_scale_says_so() -> None:
    """Mutant: the errors of a projection scaled like noise."""
    plan = sf.plan(WORK, sf.zcdp("0.5"), neighbours="replace-one", mechanism="projection", records=50)
    assert plan.forecast is not None
    with pytest.raises(sf.errors.PlanError, match="do not scale"):
        scale_errors(plan, sf.zcdp(1))
    looks = sf.plan(WORK, sf.zcdp("0.5"), neighbours="replace-one", mechanism="mwem", records=500)
    assert "no useful error" in plan_figures(looks)["note"]


def test_what_a_table_would_have_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the table planned by itself; some at a time. Mutants: all tables taken for one, or alike under replace-one."""
    place = folder(tmp_path)
    spec, known = read_spec(place / "spec.toml"), dict[str, float | None]()
    monkeypatch.setattr(foresight, "_TOGETHER", -1.0)
    first = foresight.errors_alone(spec, [0, 1, 4, 5], known)
    assert set(first) == {0, 1}, "one is planned, and those that are like it are told with it"
    monkeypatch.setattr(foresight, "_TOGETHER", 60.0)
    found = foresight.errors_alone(spec, range(len(spec.workload.blocks)), known)
    for query, (number, error) in zip(spec.workload.blocks, found.items(), strict=True):
        one = sf.plan(sf.stack(Workload(spec.domain, (query,))), spec.budget, neighbours="add-remove")
        assert error == pytest.approx(one.mean_error), number
    assert len({round(e, 6) for e in found.values() if e is not None}) > 1
    replaced = SPEC.replace("add-remove", "replace-one")
    other = foresight.errors_alone(read_spec(folder(tmp_path / "b", replaced) / "spec.toml"), [1, 2], {})
    assert other[1] != other[2], "of two cells and of ten, where the number of records is public"
    with studio(place) as page:
        for tables in ([99], [-1], ["0"], "0", None):
            assert page.post("alone", {"version": page.version, "tables": tables}).status == 400


def test_what_means_will_err_is_what_they_err() -> None:
    """Lines of one part are told apart, and the means' margins hold those of a release.

    Mutants: the sum's margin told for the mean; the budget for the margin of a count taken from the sum's line.
    """
    ward = sf.Integers(0, 2, outside="drop", missing="drop")
    domain = sf.Domain({"ward": ward}, measures={"pay": sf.Measure(-20_000, 250_000)})
    work = sf.stack(tables=sf.identity(domain, "ward"), means=sf.means(domain, "pay", by="ward"))
    plan = sf.plan(work, sf.zcdp(1), neighbours="add-remove")
    found = plan_figures(plan)
    means = [line for line in found["lines"] if line["part"] == "means"]
    assert [line["what"] for line in means] == ["sums of pay less 115000", "records with pay"]
    assert {line["what"] for line in found["lines"] if line["part"] == "tables"} == {""}
    rng = np.random.default_rng(7)
    pay, place = rng.uniform(20_000, 60_000, 3_000), rng.integers(0, 3, 3_000)
    table = pd.DataFrame({"ward": place, "pay": pay})
    told = found["means"][0]
    for row in sf.release(plan, table, ledger=None).mean("pay", by="ward").rows():
        n = (place == int(row["ward"])).sum()
        off, half = abs(row["mean pay"] - 115_000), 135_000
        expected = math.hypot(told["least"], off / half * math.sqrt(told["most"] ** 2 - told["least"] ** 2)) / n
        assert (row["high"] - row["low"]) / 2 == pytest.approx(expected, rel=0.05)
        assert told["least"] / n < expected < told["most"] / n
    for line in means:
        wanted = line["margin"] / 2
        budget = budget_for_margin(plan, wanted, "means", line["order"], line["unit"])
        assert float(budget.parameter) == pytest.approx(4, rel=0.01)
