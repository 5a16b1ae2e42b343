"""Synthetic records from the command line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from sfumato.privacy.ledger import Ledger
from sfumato.releases import load_release
from support.typed import Run, refused, release


def test_records_of_a_release(run: Run) -> None:
    assert release(run).code == 0
    spent = Ledger("budget.db").entries()
    done = run("synthetic", "out/first", "-o", "made.csv", "--records", "200")
    assert (done.code, done.err) == (0, "")
    assert "200 synthetic records over" in done.out
    assert "Nothing was spent" in done.out
    assert Ledger("budget.db").entries() == spent
    with Path("made.csv").open(encoding="utf-8", newline="") as handle:
        head, *rows = csv.reader(handle)
    found = load_release("out/first").synthetic(200)
    assert tuple(head) == found.attributes
    assert len(rows) == 200
    shown = json.loads(run("synthetic", "out/first", "-o", "again.csv", "--records", "200", "--json").out)
    assert shown == {
        "records": 200,
        "attributes": list(found.attributes),
        "left_out": list(found.left_out),
        "rmse": found.rmse,
        "table_error": found.table_error,
        "file": "again.csv",
    }
    assert Path("again.csv").read_bytes() == Path("made.csv").read_bytes()


def test_what_cannot_be_written_is_refused(run: Run) -> None:
    assert release(run).code == 0
    Path("made.csv").write_text("mine")
    refused(run("synthetic", "out/first", "-o", "made.csv"), "exists")
    assert Path("made.csv").read_text() == "mine"
    refused(run("synthetic", "out/first", "-o", "no/made.csv"), "cannot be written")
    refused(run("synthetic", "out/first", "-o", "x.csv", "--records", "-3"), "at least 0")
    refused(run("synthetic", "out/missing", "-o", "x.csv"), "no finished release")
    assert not Path("x.csv").exists()
