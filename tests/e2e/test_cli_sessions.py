"""Sessions from the command line: opened once, asked by one process a question, looked at by anybody."""

from __future__ import annotations

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import sfumato as sf
from sfumato.interactive import session_status
from support.typed import Run, refused

OPEN = (
    "session",
    "open",
    "spec.toml",
    "--records",
    "500",
    "--ledger",
    "budget.db",
    "--name",
    "desk",
    "-o",
    "desk.session",
)
ASK = ("session", "ask", "desk.session", "--ledger", "budget.db")


def test_open_ask_status(run: Run) -> None:
    done = run(*OPEN, "--updates", "3", "--threshold", "1")
    assert (done.code, done.err) == (0, "")
    assert "Kept in desk.session" in done.out
    assert "until 3 updates are used up" in done.out
    assert stat.S_IMODE(Path("desk.session").stat().st_mode) == 0o600
    spent = sf.Ledger("budget.db").entries()
    assert sf.Ledger("budget.db").unreleased() == ()

    hows: list[str] = []
    for age in [*range(10, 100, 10), 0]:
        found = json.loads(run(*ASK, f"age >= {age}", "--json").out)
        hows.append(found["how"])
        assert found["question"] == f"age >= {age}"
        assert found["guaranteed"] == (found["how"] != "exhausted")
        assert (found["low"] is None) == (found["how"] == "exhausted")
    state = json.loads(run("session", "status", "desk.session", "--json").out)
    assert state["hard"] == hows.count("measured") <= 3
    assert state["questions"] == len(hows) - hows.count("exhausted")
    assert state["exhausted"] == (state["hard"] == 3)
    assert state["exhausted"] or "exhausted" not in hows
    text = run(*ASK, "age >= 50").out.splitlines()
    assert text[0].split() == ["question", "answer", "low", "high", "how", "guaranteed"]
    anchor = json.loads(run(*ASK, "age >= 50", "--json").out)["anchor"]
    assert anchor == json.loads(run("session", "status", "desk.session", "--json").out)["anchor"]
    assert run(*ASK, "age >= 50", "--anchor", anchor).code == 0
    assert "updates left" in run("session", "status", "desk.session").out
    assert sf.Ledger("budget.db").entries() == spent


def test_what_is_refused_costs_nothing(run: Run) -> None:
    assert run(*OPEN).code == 0
    before = Path("desk.session").read_bytes()
    spent = sf.Ledger("budget.db").spent
    for command, *words in (
        ((*OPEN[:-1], "other.session"), "desk"),
        ((*OPEN[:-4], "--name", "two", "-o", "two.session", "--alpha", "much"), "--alpha"),
        ((*OPEN[:-4], "--name", "two", "-o", "two.session", "--mechanism", "magic"), "mechanism"),
        ((*ASK, "agee > 3"), "agee"),
        ((*ASK, "age > 9", "--source", "nothing.csv"), "nothing.csv"),
        (("session", "ask", "spec.toml", "age > 9", "--ledger", "budget.db"), "spec.toml"),
        (("session", "ask", "desk.session", "age > 9"), "--ledger", "not believed"),
        ((*ASK, "age > 9", "--anchor", f"9:{'0' * 64}"), "rolled back"),
        ((*ASK, "age > 9", "--anchor", "much"), "anchor"),
        (("session", "status", "budget.db"), "budget.db"),
    ):
        refused(run(*command), *words)
    assert "paid for before, and nothing was spent" in run(*OPEN).out
    assert Path("desk.session").read_bytes() == before
    assert sf.Ledger("budget.db").spent == spent
    assert not Path("two.session").exists()


def test_a_histogram_is_a_folder_that_answers_all(run: Run) -> None:
    assert run(*OPEN[:-1], "cells", "--mechanism", "histogram").code == 0
    found = json.loads(run("session", "ask", "cells", "age >= 50", "--json").out)
    assert (found["how"], found["guaranteed"]) == ("histogram", True)
    assert json.loads(run("session", "ask", "cells", "age >= 50", "--json").out) == found
    assert json.loads(run("session", "status", "cells", "--json").out)["exhausted"] is False


@pytest.mark.parametrize("updates", [4])
def test_many_askers_never_get_more_than_was_paid(run: Run, updates: int) -> None:
    assert run(*OPEN, "--updates", updates, "--threshold", 1).code == 0
    sessions = [sf.load("desk.session", ledger="budget.db") for _ in range(4)]

    def ask(i: int) -> str:
        return sessions[i % 4].ask(f"age >= {10 * (i % 10)}").how

    with ThreadPoolExecutor(4) as pool:
        hows = list(pool.map(ask, range(60)))
    state = session_status("desk.session")
    assert hows.count("measured") == state["hard"] <= updates
    assert state["questions"] == 60 - hows.count("exhausted")
    beliefs = {s.hypothesis.tobytes() for s in sessions}  # type: ignore[attr-defined]
    assert len(beliefs) == 1
