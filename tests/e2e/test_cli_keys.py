"""The command line about keys: ledgers that add epsilons and deltas, and sessions asked for their keys."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import sfumato as sf
from sfumato.cli import app


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_a_ledger_says_in_what_it_adds(tmp_path: Path) -> None:
    """Mutant: the option not passed on."""
    for currency in ("epsilon", "rho"):
        made = run("ledger", "create", tmp_path / currency, "--epsilon", 1, "--delta", "1e-6", "--currency", currency)
        assert made.exit_code == 0, made.output
        assert sf.Ledger(tmp_path / currency).currency == currency
    assert run("ledger", "create", tmp_path / "x", "--epsilon", 1, "--currency", "rho").exit_code != 0
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("kind", ["integer", "text"])
def test_a_stored_session_is_asked_for_keys(kind: str, tmp_path: Path) -> None:
    """Mutants: keys read as texts where they are numbers; a predicate taken for a key."""
    heavy, light = (5, 2**59 + 1) if kind == "integer" else ("a,b", "c")
    pd.DataFrame({"item": np.repeat(np.array([heavy, light], dtype=object), [5000, 100])}).to_csv(
        tmp_path / "t.csv", index=False
    )
    sf.Ledger.create(tmp_path / "l.db", total=sf.pure(1))
    made = sf.open(
        sf.plan(sf.Keys("item", kind), sf.pure(1), neighbours="add-remove", mechanism="histogram"),
        tmp_path / "t.csv",
        ledger=tmp_path / "l.db",
        store=tmp_path / "s.db",
    )
    answer = made.ask([heavy, light])
    ask = ("session", "ask", tmp_path / "s.db", "--ledger", tmp_path / "l.db")
    asked = run(*ask, "--key", heavy, "--key", light, "--json")
    assert asked.exit_code == 0, asked.output
    found = json.loads(asked.output)
    assert (found["answer"], found["low"], found["guaranteed"]) == (answer.value, answer.low, True)
    assert answer.value == pytest.approx(5100, abs=100)
    shown = run("session", "status", tmp_path / "s.db")
    assert "keys" in shown.output
    assert shown.exit_code == 0
    for wrong in (["age > 5"], [], ["age > 5", "--key", heavy]):
        assert run(*ask, *wrong).exit_code != 0
    if kind == "integer":
        assert run(*ask, "--key", "x").exit_code != 0


def test_the_road_of_the_docs_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: a budget or a column that is not passed on; keys read as texts."""
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"item": np.repeat([5, 17, 3], [4000, 1000, 10])}).to_csv("items.csv", index=False)
    page = (Path(__file__).parents[2] / "docs" / "sparse.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"```sh\n(sfumato ledger create keys.db.*?)```", page, flags=re.DOTALL)
    shown = [run(*line.split()[1:]) for line in lines.splitlines()]
    assert [s.exit_code for s in shown] == [0] * 6, [s.output for s in shown]
    assert sf.Ledger("keys.db").remaining == 0
    assert "count-sketch" in shown[3].output
    found = json.loads(run("keys", "ask", "items.sketch", 5, 17, "--json").output)
    assert found["answer"] == pytest.approx(5000, abs=200)
    assert run("keys", "ask", "items.sketch", "x").exit_code != 0
    again = run(
        "keys", "sketch", "items.plan", "items.csv", "--ledger", "keys.db", "--name", "2026-11", "-o", "items.sketch"
    )
    assert again.exit_code == 0
    for missing in (["--epsilon", 1], ["--neighbours", "add-remove"]):
        assert run("keys", "plan", "--column", "item", *missing).exit_code != 0


def test_heavy_keys_are_planned_for_a_ledger_of_mu_squared() -> None:
    """Mutant: the option not passed on."""
    asked = ("keys", "plan", "--column", "item", "--text", "--neighbours", "add-remove", "--epsilon", 1)
    planned = run(*asked, "--delta", "1e-6", "--thresholds", "5e-7")
    assert "rounded Gaussian" in planned.output
    assert "discrete Laplace" in run(*asked, "--delta", "1e-6").output
