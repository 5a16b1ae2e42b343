"""The statistics of a release as they are typed, what changed between two, and plans side by side."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sfumato as sf
from sfumato.releases import load_release
from sfumato.releasing import plan_from_spec, spec_variants
from sfumato.specs import read_spec
from support.typed import SPEC, Ended, Run, refused, release

COMMANDS = ("quantiles", "mean", "share", "cdf", "compare", "mock", "check")


def table(ended: Ended) -> list[dict[str, str]]:
    assert ended.code == 0
    assert ended.err == ""
    return list(csv.DictReader(io.StringIO(ended.out)))


@pytest.mark.parametrize(
    ("typed", "asked"),
    [
        (("quantiles", "age", "--at", "0.1,0.5", "--by", "sex"), lambda r, c: r.quantiles("age", [0.1, 0.5], "sex", c)),
        (("mean", "age"), lambda r, c: r.mean("age", confidence=c)),
        (("share", "sex", "--within", "age"), lambda r, c: r.share("sex", "age", c)),
        (("cdf", "age", "--by", "sex"), lambda r, c: r.cdf("age", "sex", c)),
    ],
)
def test_statistics_are_those_of_python(run: Run, typed: tuple[str, ...], asked: object) -> None:
    assert release(run).code == 0
    stored = load_release("out/first")
    expected = asked(stored, 0.9).rows()  # type: ignore[operator]
    command, *options = typed
    found = json.loads(run(command, "out/first", *options, "--confidence", "0.9", "--json").out)
    assert found["rows"] == expected
    assert found["confidence"] == 0.9
    lines = table(run(command, "out/first", *options, "--confidence", "0.9", "--csv"))
    assert [list(line.values()) for line in lines] == [
        ["" if v is None else str(v) for v in row.values()] for row in expected
    ]
    shown = run(command, "out/first", *options)
    assert shown.code == 0
    assert "confidence of 0.95" in shown.out
    assert "nan" not in shown.out.lower()


def test_what_a_range_misses_is_said_to_be_left_out(run: Run) -> None:
    """A mean of the declared cells is none of the records in (other): where these are many, the screen says so."""
    Path("spec.toml").write_text(SPEC.replace("max = 99", "max = 49").replace("age >= 70", "age >= 40"))
    Path("people.csv").write_text("age,sex\n" + "".join(f"{i % 97},{1 + i % 2}\n" for i in range(5_000)))
    assert release(run).code == 0
    left_out = "Records whose age is in (other) are left out: these numbers are of the others.\n"
    for command in ("mean", "quantiles", "cdf"):
        assert left_out in run(command, "out/first", "age").out
    assert "left out" not in run("share", "out/first", "age").out
    assert "left out" not in run("share", "out/first", "sex").out
    legend = (
        "(margin: half-width of a 95 % interval, error_share: of the weighted squared error, "
        "alone: the rmse with the whole"
    )
    assert legend in run("show", "out/first").out


def test_groups_that_are_noise_are_blank_on_the_screen_and_in_files(run: Run) -> None:
    """Labels that match nothing: the screen says so, and no noise is printed as a number."""
    Path("spec.toml").write_text(SPEC.replace('{ "1" = "female", "2" = "male" }', '["female", "male"]'))
    Path("people.csv").write_text("age,sex\n" + "".join(f"{i % 97},{1 + i % 2}\n" for i in range(20_000)))
    done = release(run)
    caution = "sex: 100 % of records are in (other); do the labels match, or are so many missing?"
    assert f"  caution    {caution}\n" in done.out
    assert f"  caution    {caution}\n" in run("show", "out/first").out
    assert json.loads(run("show", "out/first", "--json").out)["cautions"][0]["text"] == caution
    page = Path("out/first/report.html").read_text(encoding="utf-8")
    assert page.index("Does the declaration fit the table?") < page.index('id="protects"')
    assert f"caution: {caution}" in run("ask", "out/first", "age >= 70 and sex == 'female'").out
    assert "caution" not in run("ask", "out/first", "age >= 70").out
    shown = run("mean", "out/first", "age", "--by", "sex").out
    assert f"caution: {caution}" in shown
    (female,) = (line for line in shown.splitlines() if line.startswith("female"))
    assert female.split()[1:5] == ["-", "-", "-", "-"]
    assert "too few to tell" in female
    rows = table(run("quantiles", "out/first", "age", "--by", "sex", "--csv"))
    assert {r["quantile"] for r in rows if r["sex"] == "male"} == {""}
    assert all(r["quantile"] for r in rows if r["sex"] == "(other)")


def test_statistics_refuse(run: Run) -> None:
    assert release(run).code == 0
    refused(run("quantiles", "out/first", "sex"), "not numeric")
    refused(run("quantiles", "out/first", "age", "--at", "0.5,x"), "0.1,0.5,0.9")
    refused(run("quantiles", "out/first", "age", "--at", "1.5"), "strictly between")
    refused(run("mean", "out/first", "height"), "height")
    refused(run("share", "out/first", "sex", "--confidence", "95"), "confidence")
    refused(run("cdf", "nowhere", "age"), "no finished release")
    refused(run("compare", "out/first", "out/first"), "same release")


def test_compare(run: Run) -> None:
    assert release(run).code == 0
    Path("people.csv").write_text("age,sex,note\n" + "".join(f"{i % 97},{1 + i % 2},x\n" for i in range(900)))
    assert release(run, "second").code == 0
    old, new = load_release("out/first"), load_release("out/second")
    change = sf.difference(new, old)
    lines = table(run("compare", "out/second", "out/first", "--csv"))
    assert [float(r["difference"]) for r in lines] == pytest.approx(change.answers)
    assert [float(r["earlier"]) for r in lines] == pytest.approx(old.answers)
    ends = change.intervals(0.95)
    shown = run("compare", "out/second", "out/first").out
    changed = int(((ends.low > 0) | (ends.high < 0)).sum())
    assert changed > 3
    assert f"{changed} of {len(change.answers)} intervals leave out 0" in shown
    assert "about 2.45 would" in shown
    wide = json.loads(run("compare", "out/second", "out/first", "--together", "--json").out)
    together = change.intervals(0.95, simultaneous=True)
    assert [r["low"] for r in wide["rows"]] == pytest.approx(together.low)
    assert wide["changed"] <= changed
    (one,) = table(run("compare", "out/second", "out/first", "--part", "old", "--csv"))
    assert one["label"] == "age >= 70 and sex == 'female'"
    refused(run("compare", "out/second", "out/first", "--part", "new"), "main, old")
    with pytest.raises(sf.errors.PlanError):
        new.compare("out/first")  # type: ignore[arg-type]


def test_a_csv_for_every_part(run: Run) -> None:
    text = (
        SPEC
        + '[[queries]]\nname = "old/er"\nprefix = "age"\nby = ["sex"]\n[[queries]]\nname = "old_er"\nsums = "age"\n'
    )
    Path("spec.toml").write_text(text, encoding="utf-8")
    assert release(run).code == 0
    stored = load_release("out/first")
    names = {f.name for f in Path("out/first/parts").iterdir()}
    assert names == {"main.csv", "old.csv", "old_er.csv", "old_er.3.csv"}

    def read(name: str) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(Path("out/first/parts", name).read_text(encoding="utf-8"))))

    ages = read("old_er.csv")
    assert [r["query"] for r in ages] == stored["old/er"].labels()
    for column, values in (("answer", stored["old/er"].answers), ("high", stored["old/er"].intervals().high)):
        assert [float(r[column]) for r in ages] == pytest.approx(values, abs=0.01)
    assert {r["unit"] for r in read("old_er.3.csv")} == {"age"}
    assert [r["query"] for r in read("main.csv")] == ["total"]
    projected = run("project", "out/first", "-o", "out/near")
    assert projected.code == 0
    near = read("../../near/parts/old_er.csv")
    assert [float(r["unprojected"]) for r in near] == pytest.approx(stored["old/er"].answers, abs=0.01)
    assert {r["standard_error"] for r in near} == {""}


def test_what_if(run: Run) -> None:
    shown = run("plan", "spec.toml", "--what-if", "epsilon=0.5,1")
    assert shown.code == 0
    assert shown.err == ""
    assert shown.out.splitlines()[1].split() == ["part", "attributes", "unit", "epsilon=0.5", "epsilon=1"]
    found = json.loads(run("plan", "spec.toml", "--what-if", "epsilon=0.5,1", "--json").out)
    assert [v["settings"] for v in found] == [{"epsilon": "0.5"}, {"epsilon": "1"}]
    plan = plan_from_spec(read_spec("spec.toml"))
    assert isinstance(plan, sf.Plan)
    assert found[1]["errors"] == plan.errors_by_order().rows()
    assert all(a["margin"] > b["margin"] for a, b in zip(found[0]["errors"], found[1]["errors"], strict=True))
    both = run("plan", "spec.toml", "--what-if", "epsilon=0.5,1", "--what-if", "weight.old=1,100")
    assert "(4)" in both.out
    many = json.loads(run("plan", "spec.toml", "--what-if", "weight.old=1,100", "--json").out)
    named = [[e["margin"] for e in v["errors"] if e["part"] == "old"] for v in many]
    assert named[1] < named[0]
    for wrong, words in (
        (["eps=1"], ["weight.main"]),
        (["weight.none=1"], ["weight.old"]),
        (["epsilon"], ["epsilon=0.5,1,2"]),
        (["epsilon=1,x"], ["epsilon"]),
        (["epsilon=1", "--what-if", "epsilon=2"], ["once"]),
        (["weight.old=0"], ["weight"]),
        (["objective=best"], ["best"]),
        (["mechanism=magic"], ["magic"]),
        ([f"epsilon={','.join(['1'] * 25)}"], ["24"]),
        (["epsilon=1", "-o", "spec.plan"], ["--what-if"]),
    ):
        refused(run("plan", "spec.toml", "--what-if", *wrong), *words)
    assert not Path("spec.plan").exists()


def test_a_weight_is_the_one_of_a_spec(run: Run) -> None:
    """`weight.old=3` plans what `weight = 3` in the file plans, whatever weight it had."""
    Path("spec.toml").write_text(SPEC.replace('name = "old"\n', 'name = "old"\nweight = 3\n'), encoding="utf-8")
    stated = read_spec("spec.toml")
    Path("spec.toml").write_text(SPEC.replace('name = "old"\n', 'name = "old"\nweight = 7\n'), encoding="utf-8")
    (variant,) = spec_variants(read_spec("spec.toml"), ["weight.old=3"])
    assert variant.spec.workload == stated.workload or np.array_equal(
        [i.weight for i in variant.spec.workload.items], [i.weight for i in stated.workload.items]
    )


def test_version_and_help(run: Run) -> None:
    assert run("--version").out == f"sfumato {sf.__version__}\n"
    for command in COMMANDS:
        ended = run(command, "--help")
        assert ended.code == 0
        assert f"sfumato {command}" in ended.out
        assert "Example:" in ended.out
    assert "--what-if" in run("plan", "--help").out


def test_a_release_of_a_model_has_no_intervals(run: Run) -> None:
    text = SPEC.split('[[queries]]\nname = "old"')[0] + '\n[plan]\nmechanism = "mwem"\nrecords = 500\nrounds = 2\n'
    Path("spec.toml").write_text(text.replace("epsilon = 1\ndelta = 1e-6", "rho = 0.5"), encoding="utf-8")
    sf.Ledger.create("rho.db", total=sf.zcdp(1))
    assert run("release", "spec.toml", "--ledger", "rho.db", "--name", "m", "-o", "out/m").code == 0
    refused(run("mean", "out/m", "age"), "model", "sfumato ask")


def test_the_command_line_runs_as_a_module() -> None:
    found = subprocess.run([sys.executable, "-m", "sfumato", "--version"], capture_output=True, text=True, check=True)
    assert found.stdout == f"sfumato {sf.__version__}\n"
