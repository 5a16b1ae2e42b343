"""Projecting from the command line: a new folder beside the old one, for nothing."""

from __future__ import annotations

import json
from pathlib import Path

from sfumato.privacy.ledger import Ledger
from sfumato.releases import load_release
from support.typed import Run, refused, release


def test_project_show_ask_report(run: Run) -> None:
    assert release(run).code == 0
    before, page = Path("out/first/release.json").read_bytes(), Path("out/first/report.html").read_bytes()
    spent = Ledger("budget.db").entries()
    done = run("project", "out/first", "-o", "out/projected")
    assert (done.code, done.err) == (0, "")
    assert "Nothing was spent" in done.out
    assert "projected: onto 'cone'" in done.out
    assert Ledger("budget.db").entries() == spent
    assert Path("out/first/release.json").read_bytes() == before
    assert Path("out/first/report.html").read_bytes() == page
    assert "Before and after the projection" in Path("out/projected/report.html").read_text(encoding="utf-8")

    raw, projected = load_release("out/first"), load_release("out/projected")
    assert projected.raw.answers.tolist() == raw.answers.tolist()
    assert projected.answers.min() >= 0
    question = "age >= 90 and sex == '(other)'"
    asked = json.loads(run("ask", "out/projected", question, "--json").out)
    answer, unprojected = projected.ask(question), raw.ask(question)
    assert asked == {
        "question": question,
        "answer": answer.value,
        "unprojected": unprojected.value,
        "standard_error": None,
        "low": answer.low,
        "high": answer.high,
        "confidence": 0.95,
    }
    heads = run("ask", "out/projected", question).out.splitlines()[0].split()
    assert heads == ["question", "answer", "unprojected", "standard_error", "low", "high"]

    shown = run("show", "out/projected")
    assert "answers are projected" in shown.out
    assert "Errors of the unprojected answers" in shown.out
    assert "unprojected" not in run("show", "out/first").out
    facts = json.loads(run("show", "out/projected", "--json").out)
    assert facts["projection"]["body"] == "cone"
    assert facts["projection"]["certified"] is True
    assert "projected onto 'cone'" in facts["post_processing"]

    text = Path("out/projected/report.html").read_bytes()
    assert run("report", "out/projected").code == 0
    assert Path("out/projected/report.html").read_bytes() == text


def test_a_known_total_and_whole_counts(run: Run) -> None:
    assert release(run).code == 0
    done = run("project", "out/first", "-o", "out/whole", "--total", "500", "--integer", "--body", "hull", "--json")
    assert done.code == 0
    facts = json.loads(done.out)
    assert facts["folder"] == "out/whole"
    assert facts["projection"]["rounded"] >= 0
    whole = load_release("out/whole")
    assert whole.ask("age >= 0").value + whole.ask("age == '(other)'").value == 500
    assert all(float(a).is_integer() for a in whole.answers)
    again = run("project", "out/whole", "-o", "out/again", "--space", "measurements", "--json")
    assert json.loads(again.out)["projection"]["norm"] == "noise"


def test_what_cannot_be_projected_is_refused(run: Run) -> None:
    assert release(run).code == 0
    refused(run("project", "out/first", "-o", "out/x", "--body", "ball"), "ball", "hull")
    refused(run("project", "out/first", "-o", "out/x", "--space", "cells"), "measurements")
    refused(run("project", "out/first", "-o", "out/x", "--total", "-1"), "total")
    refused(run("project", "out/missing", "-o", "out/x"), "no finished release")
    refused(run("project", "out/first", "-o", "out/first"), "choose another name")
    assert not Path("out/x").exists()


def test_records_by_the_body_that_a_refusal_names(run: Run) -> None:
    """Mutant: `sfumato synthetic` refused with an option that only `sfumato project` has."""
    assert release(run).code == 0
    refused(run("synthetic", "out/first", "-o", "made.csv", "--body", "ball"), "ball", "hull")
    done = run("synthetic", "out/first", "-o", "made.csv", "--body", "exact", "--json")
    assert done.code == 0
    facts = json.loads(done.out)
    assert len(Path("made.csv").read_text(encoding="utf-8").splitlines()) == facts["records"] + 1
