"""mechanism = "adaptive" from a spec: planned, released, asked, drawn from; and releases of pairs denoised later."""

from __future__ import annotations

import json
from pathlib import Path

from support.typed import SPEC, Run, refused, release

ADAPTIVE = '[plan]\nmechanism = "adaptive"\n'


def test_a_spec_of_an_adaptive_release(run: Run) -> None:
    Path("spec.toml").write_text(SPEC + ADAPTIVE, encoding="utf-8")
    refused(run("plan", "spec.toml"), "records")
    Path("spec.toml").write_text(SPEC + ADAPTIVE + "records = 500\n", encoding="utf-8")
    shown = run("plan", "spec.toml")
    assert shown.code == 0
    assert "denoises   by 'mixtures'" in shown.out
    facts = json.loads(run("plan", "spec.toml", "--json").out)
    assert facts["error"]["projection"]["body"] == "mixtures"
    assert release(run).code == 0
    asked = json.loads(run("ask", "out/first", "age >= 70 and sex == 'female'", "--json").out)
    assert asked["standard_error"] is None
    assert 0 <= asked["low"] <= asked["answer"] <= asked["high"]
    assert "mixtures" in run("show", "out/first").out
    assert json.loads(run("show", "out/first", "--json").out)["projection"]["certified"] is False
    made = run("synthetic", "out/first", "-o", "people2.csv", "--records", "50")
    assert made.code == 0
    assert len(Path("people2.csv").read_text(encoding="utf-8").splitlines()) == 51
    assert "denoised together" in Path("out/first/report.html").read_text(encoding="utf-8")


def test_a_release_of_pairs_is_denoised_later(run: Run) -> None:
    pairs = SPEC.split('[[queries]]\nname = "old"')[0] + '[plan]\nmechanism = "marginals"\n'
    Path("spec.toml").write_text(pairs, encoding="utf-8")
    assert release(run).code == 0
    done = run("project", "out/first", "-o", "out/near", "--body", "mixtures")
    assert (done.code, done.err) == (0, "")
    assert "onto 'mixtures'" in done.out
