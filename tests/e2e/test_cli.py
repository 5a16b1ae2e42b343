"""Every command, as it is typed: what it prints, what it writes, how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from sfumato import cli, load, releasing
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger import Ledger
from sfumato.releases import load_release
from sfumato.specs import read_spec
from support.typed import SPEC, Run, refused, release

# -- the road ---------------------------------------------------------------------------------------------


def test_plan_release_ask_show_report(run: Run) -> None:
    planned = run("plan", "spec.toml", "-o", "spec.plan")
    assert planned.code == 0
    assert planned.err == ""
    assert "one record added or removed" in planned.out
    assert "Considered" not in planned.out
    assert load("spec.plan").fingerprint == releasing.plan_from_spec(read_spec("spec.toml")).fingerprint
    assert Ledger("budget.db").entries() == ()

    done = release(run)
    assert done.code == 0
    assert done.err == ""
    stored = load_release("out/first")
    assert stored.provenance.anchor in done.out
    assert "sfumato" in (Path("out/first") / "report.html").read_text(encoding="utf-8")
    assert Ledger("budget.db").unreleased() == ()

    answer = stored.ask("age >= 70")
    asked = json.loads(run("ask", "out/first", "age >= 70", "--json").out)
    assert asked == {
        "question": "age >= 70",
        "answer": answer.value,
        "standard_error": answer.standard_error,
        "low": answer.low,
        "high": answer.high,
        "confidence": 0.95,
    }
    shown = run("ask", "out/first", "age >= 70")
    assert shown.code == 0
    assert shown.out.splitlines()[0].split() == ["question", "answer", "standard_error", "low", "high"]

    facts = run("show", "out/first")
    assert stored.provenance.ledger_id in facts.out
    assert "worst_standard_error" in facts.out
    assert json.loads(run("show", "out/first", "--json").out)["ledger"]["sequence"] == 1

    page = Path("out/first/report.html").read_bytes()
    Path("out/first/report.html").unlink()
    assert run("report", "out/first").code == 0
    assert Path("out/first/report.html").read_bytes() == page


def test_a_saved_plan_is_released_from_another_table(run: Run) -> None:
    assert run("plan", "spec.toml", "-o", "spec.plan").code == 0
    Path("other.csv").write_text("sex;age\n1;30\n2;40\n", encoding="utf-8")
    refused(release(run, "first", "spec.plan"), "--source")
    done = release(run, "first", "spec.plan", "--source", "other.csv", "--snapshot", "2026", "--json")
    assert done.code == 0
    facts = json.loads(done.out)
    assert facts["snapshot"] == "2026"
    assert facts["folder"] == "out/first"
    assert facts["hashes"]["plan"] == load("spec.plan").fingerprint


def test_the_same_name_again_is_free_and_identical(run: Run) -> None:
    assert release(run).code == 0
    before, spent = load_release("out/first").answers, Ledger("budget.db").spent
    files = {p: p.read_bytes() for p in Path("out/first").rglob("*") if p.is_file()}
    again = release(run)
    assert again.code == 0
    assert np.array_equal(load_release("out/first").answers, before)
    assert Ledger("budget.db").spent == spent
    assert {p: p.read_bytes() for p in Path("out/first").rglob("*") if p.is_file()} == files


def test_a_plan_in_json(run: Run) -> None:
    ended = run("plan", "spec.toml", "--json")
    facts = json.loads(ended.out)
    plan = releasing.plan_from_spec(read_spec("spec.toml"))
    assert facts["error"]["rmse"] == plan.rmse
    assert facts["privacy"]["budget"] == {"epsilon": "1", "delta": "1/1000000"}
    assert len(facts["families"]) == len(plan.workload.blocks)
    assert {c["note"] for c in facts["candidates"]} >= {"chosen"}
    assert ended.out.isascii()


def test_all_candidates(run: Run) -> None:
    out = run("plan", "spec.toml", "--all").out
    compared = releasing.plan_from_spec(read_spec("spec.toml"), compare=True)
    for candidate in compared.considered:
        assert candidate.mechanism in out
        assert candidate.note in out
    assert "noise on every query" in out
    assert "a tree helps prefixes" in out
    assert compared.fingerprint == releasing.plan_from_spec(read_spec("spec.toml")).fingerprint


def test_the_least_budget_for_a_margin(run: Run) -> None:
    facts = json.loads(run("plan", "spec.toml", "--margin", "20", "--json").out)
    assert 19.9 < max(f["margin"] for f in facts["families"]) <= 20
    assert facts["privacy"]["budget"]["delta"] == "1/1000000"
    told = run("plan", "spec.toml", "--margin", "20", "-o", "spec.plan")
    assert told.out.startswith("The least budget for a margin of 20 at 95 %: (")
    assert load("spec.plan").budget.to_json() == facts["privacy"]["budget"]
    refused(run("plan", "spec.toml", "--margin", "-3"), "margin", "-3")


def test_the_least_budget_for_the_margins_of_the_spec(run: Run) -> None:
    refused(run("plan", "spec.toml", "--margins"), "states no margin", "margin = 50")
    spec = Path("spec.toml")
    spec.write_text(spec.read_text().replace("upto = 2\n", "upto = 2\nmargin = 20\n", 1))
    told = run("plan", "spec.toml", "--margins", "-o", "spec.plan")
    assert told.out.startswith("The least budget for the margins of spec.toml: (")
    saved = load("spec.plan")
    table = saved.errors()
    bounded = [m for p, m in zip(table["part"], table["margin"], strict=True) if p == next(iter(saved.workload.parts))]
    assert 19.9 < max(bounded) <= 20
    refused(run("plan", "spec.toml", "--margins", "--margin", "3"), "--margin")
    spec.write_text(spec.read_text() + '\n[plan]\nobjective = "cells"\n')
    refused(run("plan", "spec.toml", "--margins"), "'cells'", "take the objective out")


def test_a_page_about_a_plan(run: Run) -> None:
    assert run("plan", "spec.toml", "-o", "spec.plan").code == 0
    assert run("report", "spec.plan").code == 0
    assert "No data were read" in Path("spec.plan.html").read_text(encoding="utf-8")
    assert run("report", "spec.plan", "-o", "page.html").out == "Written to page.html\n"
    refused(run("report", "spec.plan", "-o", "missing/page.html"), "missing/page.html cannot be written")
    refused(run("report", "people.csv"), "not a file that sfumato wrote")


# -- refusals -----------------------------------------------------------------------------------------------


def test_over_budget_leaves_the_ledger_untouched(run: Run) -> None:
    Ledger.create("small.db", total=Budget.approx("0.5", "1e-6"))
    before = Path("small.db").read_bytes()
    ended = run("release", "spec.toml", "--ledger", "small.db", "--name", "first", "-o", "out/first")
    refused(ended, "requested", "remaining", "nothing was spent")
    assert Path("small.db").read_bytes() == before
    assert not Path("out").exists()
    assert run("release", "spec.toml", "--ledger", "budget.db", "--name", "first", "-o", "out/first").code == 0


def test_refusals_before_anything_is_spent(run: Run) -> None:
    refused(release(run, "first", "missing.toml"), "missing.toml")
    refused(run("release", "spec.toml", "--ledger", "no.db", "--name", "n", "-o", "out/n"), "no ledger")
    refused(release(run, "first", "spec.toml", "--source", "missing.csv"), "missing.csv")
    Path("full").mkdir()
    Path("full/file").write_text("x", encoding="utf-8")
    refused(run("release", "spec.toml", "--ledger", "budget.db", "--name", "n", "-o", "full"), "not an empty folder")
    refused(release(run, "a/b"), "slash")
    Path("bad.toml").write_text(SPEC.replace("width = 10", "width = 0"), encoding="utf-8")
    refused(run("plan", "bad.toml"), "line 8", "width")
    Path("odd.toml").write_text(SPEC.replace("epsilon = 1", "epsilon = -1"), encoding="utf-8")
    refused(run("plan", "odd.toml"), "epsilon")
    refused(run("plan", "spec.toml", "-o", "missing/spec.plan"), "missing/spec.plan cannot be written")
    assert Ledger("budget.db").entries() == ()
    assert not Path("out").exists()


def test_a_table_that_cannot_be_loaded_is_told_to_its_custodian(run: Run) -> None:
    Path("people.csv").write_text("age,gender\n44,1\n", encoding="utf-8")
    refused(release(run), "people.csv", "'sex'")
    assert Ledger("budget.db").entries() == ()


def test_another_plan_under_a_taken_name(run: Run) -> None:
    assert release(run).code == 0
    Path("spec.toml").write_text(SPEC.replace("upto = 2", "upto = 1"), encoding="utf-8")
    refused(release(run), "first", "another plan")


def test_questions_that_cannot_be_answered(run: Run) -> None:
    Path("spec.toml").write_text(SPEC.replace("upto = 2", "marginals = 1").split('[[queries]]\nname = "old"')[0])
    assert release(run).code == 0
    refused(run("ask", "out/first", "age >= 70 and sex == 'female'"), "age", "sex")
    refused(run("ask", "out/first", "age >> 70"), "character")
    refused(run("ask", "out/first", "age >= 75"), "divides")
    refused(run("ask", "out/first", "age >= 70", "--confidence", "95"), "confidence")
    refused(run("ask", "out", "age >= 70"), "no finished release")
    refused(run("show", "nowhere"), "nothing is at nowhere")


def test_a_changed_release_is_refused(run: Run) -> None:
    assert release(run).code == 0
    stored = Path("out/first/release.sfumato")
    stored.write_bytes(stored.read_bytes() + b"x")
    refused(run("ask", "out/first", "age >= 70"), "hash")


def test_spent_but_not_written(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sfumato.releases.files.write_release", full)
    ended = release(run)
    assert ended.code == 3
    assert ended.out == ""
    assert "the budget is spent" in ended.err
    assert "No space left" in ended.err
    status = json.loads(run("ledger", "status", "budget.db", "--json").out)
    assert status["unreleased"] == ["first"]
    assert "unreleased first" in run("ledger", "status", "budget.db").out


def test_a_page_that_cannot_be_written_spoils_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        warnings.warn("overflow encountered", RuntimeWarning, stacklevel=1)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(releasing, "write_report", broken)
        ended = release(run)
    assert ended.code == 0
    assert "sfumato report" in ended.err
    assert "overflow" not in ended.err
    assert len(ended.err.splitlines()) == 1
    assert not Path("out/first/report.html").exists()
    assert Ledger("budget.db").unreleased() == ()
    # asking for the release again makes the page
    assert release(run).code == 0
    assert Path("out/first/report.html").exists()


def test_the_library_warns_of_a_page_that_is_missing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a defect of the page")

    monkeypatch.setattr(releasing, "write_report", broken)
    plan = releasing.plan_from_spec(read_spec("spec.toml"))
    with pytest.warns(releasing.PageWarning, match="the release is complete"):
        done = releasing.release(plan, "people.csv", ledger="budget.db", name="first", out="out/first")
    assert done.answers.shape == (len(plan.workload),)


def test_a_bug_is_not_dressed_up_as_a_refusal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(releasing, "plan_from_spec", bug)
    monkeypatch.setattr(sys, "argv", ["sfumato", "plan", "spec.toml"])
    with pytest.raises(ZeroDivisionError):
        cli.main()


# -- ledgers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "total"),
    [
        (["--rho", "1.5"], Budget.zcdp("1.5")),
        (["--epsilon", "1", "--delta", "1e-6"], Budget.approx(1, "1e-6")),
        (["--epsilon", "0.1"], Budget.pure("0.1")),
        (["--mu", "1/3"], Budget.gdp("1/3")),
    ],
)
def test_ledger_create(run: Run, options: list[str], total: Budget) -> None:
    ended = run("ledger", "create", "new.db", *options)
    assert ended.code == 0
    assert Ledger("new.db").total == total
    assert Ledger("new.db").ledger_id in ended.out
    refused(run("ledger", "create", "new.db", *options), "new.db exists")


@pytest.mark.parametrize("options", [[], ["--rho", "1", "--epsilon", "1"], ["--rho", "nan"], ["--delta", "0.1"]])
def test_ledger_create_refuses(run: Run, options: list[str]) -> None:
    refused(run("ledger", "create", "new.db", *options))
    assert not Path("new.db").exists()


def test_ledger_status_and_verify(run: Run) -> None:
    assert release(run).code == 0
    ledger = Ledger("budget.db")
    before = Path("budget.db").read_bytes()
    facts = json.loads(run("ledger", "status", "budget.db", "--json").out)
    assert Fraction(facts["remaining"]) == ledger.remaining
    assert Fraction(facts["spent"]) == ledger.spent
    assert [e["name"] for e in facts["entries"]] == ["first"]
    assert facts["unreleased"] == []
    shown = run("ledger", "status", "budget.db").out
    assert ledger.anchor in shown
    assert "first" in shown
    anchor = load_release("out/first").provenance.anchor
    checked = json.loads(run("ledger", "verify", "budget.db", "--anchor", anchor, "--json").out)
    assert checked["lines"] == 2
    assert checked["anchor"] == ledger.anchor
    assert "continues from the anchor" in run("ledger", "verify", "budget.db", "--anchor", anchor).out
    assert "unbroken" in run("ledger", "verify", "budget.db").out
    assert Path("budget.db").read_bytes() == before
    refused(run("ledger", "verify", "budget.db", "--anchor", "9:" + "0" * 64), "rolled back")
    refused(run("ledger", "verify", "budget.db", "--anchor", "nonsense"), "anchor")
    refused(run("ledger", "status", "spec.toml"))


def test_a_ledger_that_was_replaced_is_found(run: Run) -> None:
    assert release(run).code == 0
    anchor = load_release("out/first").provenance.anchor
    Path("budget.db").unlink()
    Ledger.create("budget.db", total=Budget.approx(2, "1e-6"))
    refused(run("ledger", "verify", "budget.db", "--anchor", anchor))


# -- as a program -------------------------------------------------------------------------------------------


def program(
    folder: Path, *arguments: str, python: tuple[str, ...] = (), **environment: str
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, *python, "-c", "from sfumato.cli import main; main()", *arguments]
    return subprocess.run(command, cwd=folder, env=os.environ | environment, capture_output=True, check=False)


def test_the_same_bytes_in_every_locale_and_under_o(tmp_path: Path) -> None:
    text = SPEC.replace('"2" = "male"', '"2" = "männlich ♂"')
    (tmp_path / "spec.toml").write_text(text, encoding="utf-8")
    plain = program(tmp_path, "plan", "spec.toml", "--all")
    assert plain.returncode == 0
    assert plain.stderr == b""
    odd = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    other = program(tmp_path, "plan", "spec.toml", "--all", python=("-O",), **odd)
    assert (other.returncode, other.stdout, other.stderr) == (0, plain.stdout, b"")
    wrong = program(tmp_path, "plan", "missing.toml", python=("-O",), **odd)
    assert (wrong.returncode, wrong.stdout) == (2, b"")


def test_help_shows_a_working_example_for_every_command(run: Run) -> None:
    top = run("--help")
    assert top.code == 0
    commands = [
        ("demo",),
        ("init",),
        ("plan",),
        ("release",),
        ("ask",),
        ("show",),
        ("project",),
        ("report",),
        ("schema", "import"),
    ]
    commands += [("ledger", c) for c in ("create", "status", "verify")]
    for command in commands:
        ended = run(*command, "--help")
        assert ended.code == 0
        assert "Example:" in ended.out
        assert f"sfumato {' '.join(command)}" in ended.out
        assert command[0] in top.out


def test_wrong_usage_is_a_refusal(run: Run) -> None:
    assert run("plan").code == 2
    assert run("fly").code == 2
    assert run("release", "spec.toml").code == 2


def test_help_needs_no_heavy_module(tmp_path: Path) -> None:
    code = (
        "import sys\nimport sfumato.errors\nbefore = set(sys.modules)\nimport sfumato.cli, sfumato.terminal\n"
        "after = {m.partition('.')[0] for m in set(sys.modules) - before}\n"
        "assert not after & {'jinja2', 'duckdb', 'scipy', 'sqlglot', 'flint'}, after\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
