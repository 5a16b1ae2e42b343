"""mechanism = "adaptive" from a spec: planned, released, asked, drawn from; and releases of pairs denoised later."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import sfumato as sf
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


def test_two_looks_by_specs_and_commands(run: Run) -> None:
    """Mutants: `after` read beside the shell in place of the spec; `after` left out of the mechanism, or allowed under
    every one; --earlier that reaches no projection; a model let through to it."""
    pairs = SPEC.split('[[queries]]\nname = "old"')[0] + ADAPTIVE + "records = 500\n"
    Path("specs").mkdir()
    pairs = pairs.replace('"people.csv"', '"../people.csv"')
    Path("specs/one.toml").write_text(pairs, encoding="utf-8")
    assert release(run, "first", "specs/one.toml", "--snapshot", "now").code == 0
    Path("specs/two.toml").write_text(pairs + 'after = "../out/first"\n', encoding="utf-8")
    assert release(run, "second", "specs/two.toml", "--snapshot", "now").code == 0
    both = ("project", "out/second", "-o", "out/both", "--body", "mixtures", "--earlier", "out/first")
    assert run(*both).code == 0
    found, alone = sf.load("out/both"), sf.load("out/second")
    first = sf.load("out/first")
    assert isinstance(alone, sf.Release)
    assert isinstance(first, sf.Release)
    assert any("follows 'first'" in n for n in alone.plan.notes)
    wanted = alone.project("mixtures", earlier=first)
    np.testing.assert_array_equal(found.answers, wanted.answers)
    assert not np.array_equal(found.answers, alone.project("mixtures").answers)
    refused(run("project", "out/second", "-o", "out/b", "--body", "local", "--earlier", "out/first"), "--earlier")
    refused(run("project", "out/second", "-o", "out/b", "--body", "mixtures", "--earlier", "out/nowhere"), "nowhere")
    Path("specs/model.toml").write_text(pairs.replace('"adaptive"', '"mwem"'), encoding="utf-8")
    assert release(run, "model", "specs/model.toml").code == 0
    refused(run("project", "out/second", "-o", "out/b", "--body", "mixtures", "--earlier", "out/model"), "a model")
    assert not Path("out/b").exists()
    Path("specs/bad.toml").write_text(pairs + 'after = "nowhere"\n', encoding="utf-8")
    refused(run("plan", "specs/bad.toml"), "line", "nowhere")
    Path("specs/bad.toml").write_text(pairs + 'after = "../out/model"\n', encoding="utf-8")
    refused(run("plan", "specs/bad.toml"), "line", "takes an earlier release")
    Path("specs/bad.toml").write_text(
        pairs.replace('"adaptive"', '"marginals"') + 'after = "../out/first"\n', encoding="utf-8"
    )
    refused(run("plan", "specs/bad.toml"), "line", "after")
    Path("specs/bad.toml").write_text(pairs + "after = 3\n", encoding="utf-8")
    refused(run("plan", "specs/bad.toml"), "after")
