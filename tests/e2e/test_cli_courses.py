"""Mechanisms of several looks as they are typed: plan, release, show, ask, synthetic, report, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import sfumato as sf
from sfumato.privacy.ledger import Ledger
from sfumato.releases import ModelRelease
from support.typed import SPEC, Run, refused, release

MORE = '\n[plan]\nmechanism = "mwem"\nrecords = 500\nrounds = 2\n'


@pytest.fixture
def spec(run: Run) -> Run:
    Path("spec.toml").write_text(SPEC + MORE, encoding="utf-8")
    return run


def test_the_whole_road(spec: Run) -> None:
    planned = spec("plan", "spec.toml", "-o", "spec.plan")
    assert (planned.code, planned.err) == (0, "")
    assert "2 rounds" in planned.out
    assert "debited as a whole" in planned.out
    facts = json.loads(spec("plan", "spec.toml", "--json").out)
    assert facts["mechanism"]["slack"] == "0"
    assert facts["error"]["rmse"] is None

    done = release(spec)
    assert (done.code, done.err) == (0, "")
    assert "no standard errors" in done.out
    stored = sf.load("out/first")
    assert isinstance(stored, ModelRelease)
    assert stored.plan.fingerprint == sf.load("spec.plan").fingerprint
    assert Ledger("budget.db").unreleased() == ()
    again = release(spec)
    assert "Nothing was measured or spent" in again.out
    assert len(Ledger("budget.db").entries()) == 2

    asked = json.loads(spec("ask", "out/first", "age >= 70", "--json").out)
    assert asked == {"question": "age >= 70", "answer": stored.ask("age >= 70").value, "standard_error": None}
    assert "No standard error" in spec("ask", "out/first", "age >= 70").out
    assert "rounds" in spec("show", "out/first").out
    assert json.loads(spec("show", "out/first", "--json").out)["mechanism"]["name"] == "mwem"

    drawn = spec("synthetic", "out/first", "-o", "made.csv")
    assert drawn.code == 0
    assert Path("made.csv").read_text(encoding="utf-8").startswith("age,sex\n")
    for thing, page in (("out/first", "out/first/report.html"), ("spec.plan", "spec.plan.html")):
        assert spec("report", thing).code == 0
        assert "How it" in Path(page).read_text(encoding="utf-8")


def test_it_is_released_from_a_saved_plan_and_json(spec: Run) -> None:
    spec("plan", "spec.toml", "-o", "spec.plan")
    done = release(spec, "first", "spec.plan", "--source", "people.csv", "--json")
    assert json.loads(done.out)["name"] == "first"


def test_what_it_does_not_do_is_refused(spec: Run) -> None:
    release(spec)
    refused(spec("project", "out/first", "-o", "out/second"), "nothing to project")
    refused(spec("ask", "out/first", "height > 3"), "height")
    refused(spec("plan", "spec.toml", "--margin", "50"), "several looks")
    for line, words in (("rounds = 0", "from 1 to 1,000"), ("rounds = 'two'", "rounds"), ("rounds = 2000", "1,000")):
        Path("bad.toml").write_text(SPEC + MORE.replace("rounds = 2", line), encoding="utf-8")
        refused(spec("plan", "bad.toml"), words)
    Path("bad.toml").write_text(SPEC + '\n[plan]\nmechanism = "mwem"\n', encoding="utf-8")
    refused(spec("plan", "bad.toml"), "records under [plan]")
