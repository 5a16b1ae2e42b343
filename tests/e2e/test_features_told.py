"""A release says by which expressions the columns of its persons were made: stored, checked, and on its page.

Mutants named were seen to fail.
"""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
from typer.testing import CliRunner

import sfumato as sf
from sfumato.cli import app
from sfumato.present import render

SAID = {"n": "count(visits)", "<b>soon</b>": "any(days(visits.date, previous(visits.date)) <= 30)"}
VISITS = pd.DataFrame({"who": [1, 1, 2, 3, 3, 3], "date": ["2026-01-01", "2026-01-09"] * 3})


def released(out: Path, ledger: Path, *, joined: bool = False) -> sf.Release:
    rows = sf.rows(VISITS, dates=["date"])
    people = sf.per_person(None, key="who", columns=SAID, visits=rows)
    domain = sf.Domain({"n": sf.Integers(0, 5, outside="clamp", missing="other")})
    more = {"rows_per_person": 3} if joined else {}
    plan = sf.plan(sf.identity(domain), sf.zcdp(1), neighbours="add-remove", person="who", **more)  # type: ignore[call-overload]
    source = sf.joined(rows, people, key="who") if joined else people
    account = sf.Ledger.create(ledger, total=sf.zcdp(1), table="hospital")
    return sf.release(plan, source, ledger=account, table="hospital", out=out)


def test_features_are_stored_checked_and_shown(tmp_path: Path) -> None:
    """Mutants: not stored; not in release.json; the page does not escape; features of joined persons left out."""
    for joined in (False, True):
        out, ledger = tmp_path / f"out{joined}", tmp_path / f"{joined}.db"
        made = released(out, ledger, joined=joined)
        assert made.provenance.features == tuple(SAID.items())
        again = sf.load(out)
        assert again.provenance == made.provenance
        assert json.loads((out / "release.json").read_text())["features"] == SAID
        page = render(again)
        assert "any(days(visits.date, previous(visits.date)) &lt;= 30)" in page
        assert "<b>soon</b>" not in page
        told = CliRunner().invoke(app, ["check-release", str(out), "--ledger", str(ledger)]).output
        assert told.startswith("accepted"), told


def test_other_features_than_the_release_has_are_found(tmp_path: Path) -> None:
    """Mutants: release.json's features not compared; features there that the release has not."""
    out, ledger = tmp_path / "out", tmp_path / "l.db"
    released(out, ledger)
    path = out / "release.json"
    whole = path.read_text()
    for wrong in (whole.replace("count(visits)", "sum(visits.cost)"), whole.replace('"features"', '"festures"')):
        path.write_text(wrong)
        told = CliRunner().invoke(app, ["check-release", str(out), "--ledger", str(ledger)]).output
        assert told.startswith("rejected"), told


def test_a_release_of_one_table_has_none(tmp_path: Path) -> None:
    domain = sf.Domain({"n": sf.Integers(0, 5, outside="clamp", missing="other")})
    plan = sf.plan(sf.identity(domain), sf.zcdp(1), neighbours="add-remove")
    out, path = tmp_path / "out", tmp_path / "l.db"
    ledger = sf.Ledger.create(path, total=sf.zcdp(1))
    made = sf.release(plan, pd.DataFrame({"n": [1, 2]}), ledger=ledger, out=out)
    assert made.provenance.features == ()
    assert "features" not in made.facts()
    whole = (out / "release.json").read_text()
    (out / "release.json").write_text(whole.replace('"snapshot"', '"features": {"n": "count(visits)"}, "snapshot"', 1))
    told = CliRunner().invoke(app, ["check-release", str(out), "--ledger", str(path)]).output
    assert told.startswith("rejected"), told
