"""The demo: the whole road, and exact answers counted around the curator because its table is public."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sfumato import demo
from sfumato.domain import Bins, Categories, Domain, Integers
from sfumato.privacy.budget import Budget
from sfumato.releases import load_release
from sfumato.specs import read_spec
from sfumato.workloads import marginals, predicates, prefix, stack, sums
from support.typed import Run, refused


def small_spec(path: Any) -> Any:
    """The bundled spec with fewer tables: the road is the same, and short."""
    spec = read_spec(path)
    domain = spec.domain
    sets = [(), ("age", "sex"), ("hours_per_week", "sex"), ("hours_per_week", "income"), ("education", "sex")]
    sets += [("marital_status", "relationship"), ("age", "income")]
    work = stack(main=marginals(domain, sets=sets), cdf=prefix(domain, "age", by=["sex"]))
    return replace(spec, workload=work)


def least_spec(path: Any) -> Any:
    """With one table alone: what is told of folders hangs on no plan."""
    spec = read_spec(path)
    return replace(spec, workload=marginals(spec.domain, sets=[(), ("sex",)]))


def test_demo(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "read_spec", small_spec)
    ended = run("demo", "--out", "tour")
    assert ended.code == 0
    assert ended.err == ""
    for wanted in ("age by sex", "hours_per_week by income", "Female", "predicted rmse", "sfumato ask tour/release"):
        assert wanted in ended.out
    assert "are in (other)" not in ended.out, "no caution"
    page = Path("tour/release/report.html").read_text(encoding="utf-8")
    assert "Predicted and actual errors" in page
    assert run("ask", "tour/release", "age >= 65").code == 0
    assert run("ledger", "verify", "tour/budget.db").code == 0
    assert run("check-release", "tour/release", "--ledger", "tour/budget.db").out.startswith("accepted\n")
    refused(run("demo", "--out", "tour"), "tour", "--out")
    monkeypatch.setattr(demo, "read_spec", least_spec)
    monkeypatch.setattr(demo, "_demo_statistics", lambda _: iter(()))
    Path("empty").mkdir()
    assert run("demo", "--out", "empty").code == 0
    assert run("demo").code == 0
    assert run("demo").code == 0
    assert load_release("sfumato-demo/release").answers.shape == load_release("sfumato-demo-2/release").answers.shape


def test_the_demos_own_spec_and_plan_can_be_used(run: Run) -> None:
    """The files that the demo leaves are the bundled ones."""
    folder = Path(demo.__file__).parent / "data"
    spec = read_spec(folder / "adult.toml")
    assert (folder / "adult.parquet").exists()
    assert spec.budget == Budget.approx(1, "1e-6")
    assert len(spec.workload.domain.names) >= 12


def test_exact_answers_are_exact(tmp_path: Path) -> None:
    """The demo's own counting against SQL written by hand, with values outside and missing."""
    table = tmp_path / "t.parquet"
    with duckdb.connect() as connection:
        connection.execute(
            f"""COPY (SELECT CASE WHEN i % 11 = 0 THEN NULL ELSE i % 30 - 3 END AS a,
                CASE WHEN i % 7 = 0 THEN NULL WHEN i % 5 = 0 THEN 'odd' ELSE chr(97 + CAST(i % 3 AS INT)) END AS c,
                (i % 40) / 4.0 AS b FROM range(1000) t(i)) TO '{table}' (FORMAT parquet)"""
        )

        def count(where: str) -> int:
            found = connection.execute(f"SELECT count(*) FROM '{table}' WHERE {where}").fetchall()
            return int(found[0][0])

        space = Domain(
            {
                "a": Integers(0, 19, 5, outside="clamp", missing="other"),
                "b": Bins([0, 2.5, 5, 7.5], outside="other", missing="other"),
                "c": Categories(["a", "b", "c"], outside="other", missing="other"),
            }
        )
        work = stack(
            main=marginals(space, sets=[(), ("a",), ("b",), ("c",), ("b", "c")]),
            named=predicates(space, ["a >= 10 and c == 'b'"]),
            pay=sums(space, "b"),
        )
        answers = demo.exact_answers(work, table).tolist()
        spans = ["a < 5", "a BETWEEN 5 AND 9", "a BETWEEN 10 AND 14", "a >= 15", "a IS NULL"]
        bins = ["b < 2.5", "b >= 2.5 AND b < 5", "b >= 5 AND b < 7.5", "b >= 7.5"]
        letters = ["c = 'a'", "c = 'b'", "c = 'c'", "(c IS NULL OR c = 'odd')"]
        wheres = ["true", *spans, *bins, *letters, *(f"{x} AND {y}" for x in bins for y in letters)]
        expected = [count(w) for w in [*wheres, "a >= 10 AND c = 'b'"]]
    assert answers[:-1] == expected
    assert answers[-1] == 1.25 * expected[6] + 3.75 * expected[7] + 6.25 * expected[8]
