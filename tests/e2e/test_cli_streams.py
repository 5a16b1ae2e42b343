"""Streams from the command line: planned, opened, appended by one process a period, shown, reported, handed on."""

from __future__ import annotations

import csv
import io
import json
import shlex
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest

import sfumato as sf
from sfumato.plans.streams import StreamPlan
from sfumato.releases.streams import StreamRelease
from sfumato.strategies.periods import Periods
from support.typed import SPEC, Ended, Run, refused

STREAM = SPEC.split("[[queries]]")[0] + "[[queries]]\nname = 'main'\nupto = 2\n[stream]\nperiods = 6\n"
OPEN = ("stream", "open", "stream.toml", "--ledger", "budget.db", "--name", "deaths", "--store", "d.stream")


def table(week: int, rows: int = 400) -> str:
    path = f"w{week}.csv"
    Path(path).write_text("age,sex\n" + "".join(f"{(7 * i + week) % 97},{1 + i % 2}\n" for i in range(rows + week)))
    return path


def opened(run: Run, weeks: int = 0) -> Ended:
    Path("stream.toml").write_text(STREAM, encoding="utf-8")
    done = run(*OPEN)
    for week in range(1, weeks + 1):
        assert append(run, week).code == 0
    return done


def append(run: Run, week: int, *more: object) -> Ended:
    return run("stream", "append", "d.stream", table(week), "--period", f"W{week}", "--ledger", "budget.db", *more)


def test_a_spec_with_a_stream_is_planned_by_period(run: Run) -> None:
    Path("stream.toml").write_text(STREAM, encoding="utf-8")
    done = run("plan", "stream.toml", "-o", "d.plan")
    assert (done.code, done.err) == (0, "")
    for words in (
        "6 periods",
        "Errors of totals by period",
        "Errors of increments by period",
        "simultaneous",
        "what they round adds",
        "a state of",
        "a binary tree would err",
        "debited as a whole",
        "sfumato stream open d.plan",
    ):
        assert words in done.out
    plan = sf.load("d.plan")
    assert type(plan) is StreamPlan
    facts = json.loads(run("plan", "stream.toml", "--json").out)
    assert facts["mechanism"]["periods"] == 6
    assert facts["hashes"]["plan"] == plan.fingerprint
    last = facts["over_time"]["totals"][-1]
    assert (last["period"], last["rmse"]) == (6, pytest.approx(plan.at().mean_error))
    assert last["half_width"] < last["simultaneous"]
    assert 0 < facts["mechanism"]["rounding"] < 1e-3
    assert run("report", "d.plan").code == 0
    page = Path("d.plan.html").read_text(encoding="utf-8")
    for words in ("Plan: continual", "Over time", "binary tree", "sfumato stream open PLAN", "Nothing is spent yet"):
        assert words in page


def test_open_append_show_status_release(run: Run) -> None:
    done = opened(run)
    assert (done.code, done.err) == (0, "")
    assert "Kept in d.stream" in done.out
    assert stat.S_IMODE(Path("d.stream").stat().st_mode) == 0o600
    before = run("stream", "status", "d.stream", "--json")
    assert json.loads(before.out)["periods"] == 0
    for week in (1, 2, 3):
        done = append(run, week)
        assert (done.code, done.err) == (0, "")
        assert f"W{week} is published ({week} of 6 periods)" in done.out
        assert str(400 + week) not in done.out
    again = json.loads(append(run, 2, "--json").out)
    assert (again["published_before"], again["periods"], again["periods_left"]) == (True, 3, 3)
    assert len(sf.Ledger("budget.db").entries()) == 2
    status = json.loads(run("stream", "status", "d.stream", "--json").out)
    assert (status["name"], status["last"], status["anchor"]) == ("deaths", "W3", again["anchor"])
    assert append(run, 4, "--anchor", status["anchor"]).code == 0
    reopened = run(*OPEN)
    assert "nothing was spent" in reopened.out
    assert "4 of 6 periods" in reopened.out

    assert run("stream", "release", "d.stream", "-o", "d.release").code == 0
    found = sf.load("d.release")
    assert type(found) is StreamRelease
    assert found.provenance.created
    assert found.provenance.versions
    for place in ("d.stream", "d.release"):
        rows = json.loads(run("stream", "show", place, "--json").out)["rows"]
        np.testing.assert_allclose([r["answer"] for r in rows], found.totals.answers)
    shown = run("stream", "show", "d.stream", "--between", "W2", "W3", "--csv")
    rows = list(csv.DictReader(io.StringIO(shown.out)))
    np.testing.assert_allclose([float(r["answer"]) for r in rows], found.between("W2", "W3").answers)
    one = json.loads(run("stream", "show", "d.stream", "--last", "2", "--ask", "age >= 50", "--json").out)
    assert one["rows"][0]["answer"] == pytest.approx(found.last(2).ask("age >= 50").value)
    line = json.loads(run("stream", "show", "d.stream", "--over-time", "--increments", "--last", "2", "--json").out)
    assert [r["period"] for r in line["rows"]] == ["W3", "W4"]
    np.testing.assert_allclose([r["value"] for r in line["rows"]], list(found.over_time(increments=True)["value"])[-2:])
    assert "a confidence of 0.95, each by itself" in run("stream", "show", "d.stream").out
    faded = json.loads(run("stream", "show", "d.stream", "--decayed", "0.9", "--json").out)["rows"]
    np.testing.assert_allclose([r["answer"] for r in faded], found.decayed("0.9").answers)
    assert "hold together with a confidence of 0.95." in run("stream", "show", "d.stream", "--simultaneous").out
    wide = json.loads(run("stream", "show", "d.stream", "--over-time", "--simultaneous", "--json").out)["rows"]
    assert [r["low"] for r in wide] == list(found.over_time(simultaneous=True)["low"])


def test_the_page_of_a_stream_draws_it_over_time(run: Run) -> None:
    opened(run, 3)
    done = run("stream", "report", "d.stream", "-o", "d.html")
    assert (done.code, done.err) == (0, "")
    page = Path("d.html").read_text(encoding="utf-8")
    for words in (
        "over-totals",
        "over-single",
        "Records so far",
        "3 of 6",
        "W3",
        "as secret as the tables",
        "binary tree",
        "age",
    ):
        assert words in page
    found = sf.load("d.stream", ledger="budget.db")
    totals = found.over_time()
    assert f"{totals['value'][-1]:,.1f}" in page


def test_refusals(run: Run) -> None:
    """Exit code 2, and a sentence that says what to do. Mutants: an option that is dropped; a store read by any."""
    opened(run, 1)
    show = ("stream", "show", "d.stream")
    append_it = ("stream", "append", "d.stream", table(2), "--period", "W2", "--ledger")
    sf.Ledger.create("other.db", total=sf.approx(2, "1e-6"))
    for command, words in (
        (("stream", "open", "spec.toml", *OPEN[3:-1], "new"), ["declares no stream", "periods = 104"]),
        ((*OPEN[:6], "births", *OPEN[7:]), ["keeps the stream 'deaths'"]),
        ((*append_it, "other.db"), ["another ledger"]),
        ((*append_it, "budget.db", "--anchor", "1:" + "0" * 64), ["another stream"]),
        (("stream", "append", "d.stream", "gone.csv", "--period", "W2", "--ledger", "budget.db"), ["gone.csv"]),
        ((*show, "--between", "W1", "W9"), ["no period 'W9'"]),
        ((*show, "--between", "W1", "W1", "--last", "1"), ["--between is a sum of its own"]),
        ((*show, "--decayed", "0.9", "--over-time"), ["--decayed is a sum of its own; leave --over-time out"]),
        ((*show, "--decayed", "9"), ["decayed 0.99"]),
        ((*show, "--ask", "age >= 50", "--simultaneous"), ["this is one; leave it out"]),
        ((*show, "--increments"), ["--last 1"]),
        ((*show, "--over-time", "--last", "0"), ["from 1"]),
        ((*show, "--last", "7"), ["periods 1 to 1"]),
        (("release", "stream.toml", "--ledger", "budget.db", "--name", "x", "-o", "x"), ["sfumato stream open"]),
        (("plan", "stream.toml", "--margin", "5"), ["released once"]),
        (("plan", "stream.toml", "--what-if", "epsilon=1,2"), ["released once"]),
        (("plan", "stream.toml", "--all"), ["released once"]),
        (
            ("session", "open", "stream.toml", "--ledger", "budget.db", "--name", "x", "-o", "x"),
            ["sfumato stream open"],
        ),
        (("stream", "status", "budget.db"), ["budget.db"]),
    ):
        refused(run(*command), *words)
    Path("d.stream").chmod(0o644)
    refused(run(*show), "open to others")
    assert len(sf.Ledger("budget.db").entries()) == 2


def test_what_is_to_be_typed_next_can_be_typed(run: Run) -> None:
    """Mutants: names and labels with blanks, bare."""
    opened(run)
    shutil.move("d.stream", "d e.stream")
    for beside in Path().glob("d.stream*"):
        shutil.move(beside, f"d e{beside.name.removeprefix('d')}")
    done = run("stream", "append", "d e.stream", table(1), "--period", "W 1", "--ledger", "budget.db")
    assert done.code == 0
    words = shlex.split(done.out.split("To see it: sfumato ")[1])
    assert words == ["stream", "show", "d e.stream", "--between", "W 1", "W 1"]
    assert run(*words).code == 0


def test_after_the_last_period_the_next_stream_is_named(run: Run) -> None:
    opened(run, 6)
    refused(append(run, 7), "all 6 periods", "open another stream")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("periods = 6", "periods = 0"), "stream.periods: count of periods must be a whole number"),
        (("periods = 6", "apart = 2"), "periods is missing"),
        (("periods = 6", "periods = 6\nweeks = 2"), "stream.weeks: there is no such key here"),
        (("periods = 6", "periods = 6\nask = ['last 7']"), "stream.ask: a question over time is 'totals'"),
        (("periods = 6", "periods = 6\nask = { totals = 0 }"), "stream.ask"),
        (("periods = 6", "periods = 6\nask = 3"), "stream.ask"),
        (("periods = 6", "periods = 6\nobjective = 'max'"), "stream.objective: over time the objective is 'worst'"),
        (("periods = 6", "periods = 'many'"), "stream.periods: must be a number"),
        (("periods = 6", "periods = 'unknown'\nask = 'ranges'"), "may end at any time"),
        (("periods = 6", "periods = 6\napart = 2"), "leave it out"),
        (("periods = 6", "periods = 6\nperiods_per_person = 2"), "person under [privacy]"),
        (("upto = 2", "upto = 2\nmargin = 50"), "margins are of tables that are released once"),
        (("epsilon = 1\ndelta = 1e-6", "epsilon = 1"), "which no pure epsilon allows"),
    ],
)
def test_what_a_spec_may_not_say_of_a_stream(run: Run, change: tuple[str, str], words: str) -> None:
    Path("stream.toml").write_text(STREAM.replace(*change), encoding="utf-8")
    refused(run("plan", "stream.toml"), words)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("6\nask = 'increments'", sf.periods(6, ask="increments")),
        (
            "6\nask = ['totals', 'last 2']\nobjective = 'mean'",
            sf.periods(6, ask=["totals", "last 2"], objective="mean"),
        ),
        ("6\nask = { totals = 2, 'decayed 0.9' = 0.5 }", sf.periods(6, ask={"totals": 2, "decayed 0.9": 0.5})),
        ("'unknown'", sf.periods(None)),
    ],
)
def test_what_a_spec_asks_over_time(run: Run, said: str, meant: Periods) -> None:
    """As in Python. Mutants: a key that is read and not used; weights dropped."""
    Path("asked.toml").write_text(STREAM.replace("periods = 6", f"periods = {said}"), encoding="utf-8")
    assert sf.read_spec("asked.toml").periods == meant
    assert run("plan", "asked.toml", "-o", "asked.plan").code == 0
    assert sf.load("asked.plan").periods == meant


def test_people_in_several_periods_from_a_spec(run: Run) -> None:
    text = STREAM.replace("neighbours =", "person = 'id'\nneighbours =").replace(
        "periods = 6", "periods = 6\nperiods_per_person = 2\napart = 3"
    )
    Path("several.toml").write_text(text, encoding="utf-8")
    found = sf.read_spec("several.toml")
    assert found.periods == sf.periods(6, per_person=2, apart=3)
