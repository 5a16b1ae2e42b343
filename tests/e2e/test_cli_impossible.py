"""A spec that declares what cannot be, from the plan to the records, and what a stranger's check says of it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from sfumato.releases import load_release
from support.typed import SPEC, Run, refused, release

TEXT = "age < 20 and sex == 'female'"
TOLD = SPEC.replace("[privacy]", f'[domain]\nimpossible = ["{TEXT}"]\n\n[privacy]')


def test_from_a_spec_to_records(run: Run) -> None:
    """The table holds 103 such records; they are counted elsewhere, and no output says so."""
    Path("spec.toml").write_text(TOLD, encoding="utf-8")
    planned = run("plan", "spec.toml")
    assert planned.code == 0
    assert f"impossible {TEXT}: a record of which it is said counts in the nearest cell that can be" in planned.out
    assert json.loads(run("plan", "spec.toml", "--json").out)["impossible"] == [TEXT]
    assert "1 impossible" in repr(load(run).plan.workload.domain)
    raw = load(run)
    table = raw.table("age", "sex")
    assert table.values[:2, 0].tolist() == [0, 0]
    assert table.standard_errors is not None
    assert table.standard_errors[:2, 0].tolist() == [0, 0]
    assert abs(raw.answers[0] - 500) < 50
    assert "declared impossible" in Path("out/first/report.html").read_text(encoding="utf-8")
    checked = run("check-release", "out/first", "--ledger", "budget.db")
    assert checked.code == 0, checked.out
    assert run("project", "out/first", "-o", "out/projected").code == 0
    assert load_release("out/projected").table("age", "sex").values[:2, 0].tolist() == [0, 0]
    assert run("synthetic", "out/projected", "-o", "made.csv").code == 0
    with Path("made.csv").open(encoding="utf-8", newline="") as handle:
        _, *rows = csv.reader(handle)
    assert len(rows) > 400
    assert not [r for r in rows if r[1] == "female" and r[0] in ("0..9", "10..19")]


def load(run: Run) -> Any:
    if not Path("out/first").exists():
        assert release(run).code == 0
    return load_release("out/first")


def test_a_wrong_declaration_is_refused_on_its_line(run: Run) -> None:
    Path("spec.toml").write_text(TOLD.replace("age < 20", "age < 15"), encoding="utf-8")
    line = TOLD.splitlines().index(f'impossible = ["{TEXT}"]') + 1
    refused(run("plan", "spec.toml"), f"line {line}", "age < 15 divides the cell 10..19 of age")
