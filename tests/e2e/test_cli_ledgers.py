"""The commands about ledgers: in words, as a table, named."""

from __future__ import annotations

import csv
import io
import json
from fractions import Fraction
from pathlib import Path

import pytest

import sfumato as sf
from sfumato.privacy.accounting import GaussianEvent, PureEvent
from sfumato.privacy.ledger import Ledger
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from support.typed import Run, refused

PLAN = "a" * 64
UNIT = PrivacyUnit(Neighbours.ADD_REMOVE)


@pytest.fixture
def filled(run: Run) -> Ledger:
    ledger = Ledger.create("filled.db", total=sf.approx(1, "1e-6"), table="people")
    ledger.mark_released(ledger.debit("2026-10", PLAN, GaussianEvent(Fraction(1, 100)), UNIT, "people"), PLAN)
    ledger.debit("=2+3, really", PLAN, PureEvent(Fraction(1, 7)), UNIT, "people")
    return ledger


def test_status_in_words(run: Run, filled: Ledger) -> None:
    shown = run("ledger", "status", "filled.db")
    assert shown.code == 0
    for text in ("'people'", "one record added or removed", "is left; a plan may cost up to sf.approx(", "0.1429"):
        assert text in shown.out
    (line,) = (text for text in shown.out.splitlines() if text.startswith("  unreleased"))
    assert "=2+3, really: paid for" in line
    assert "no refund" in line


def test_export_as_a_table_and_as_json(run: Run, filled: Ledger) -> None:
    """Mutants: a name that a spreadsheet takes for a formula; rows that are not those of `export`."""
    out = run("ledger", "export", "filled.db", "--csv").out
    rows = list(csv.DictReader(io.StringIO(out)))
    expected = [dict(row) for row in filled.export()]
    expected[1]["name"] = "'=2+3, really"
    assert rows == expected
    assert [row["price"] for row in rows] == [str(e.price) for e in filled.entries() if e.kind == "spend"]
    assert {(row["table"], row["unit"]) for row in rows} == {("people", "one record added or removed")}
    assert json.loads(run("ledger", "export", "filled.db").out) == [dict(row) for row in filled.export()]
    assert run("ledger", "export", "filled.db", "--csv", "-o", "spends.csv").code == 0
    assert Path("spends.csv").read_text(encoding="utf-8") == out
    refused(run("ledger", "export", "filled.db", "--csv", "-o", "spends.csv"), "spends.csv")


def test_a_ledger_is_named_by_command(run: Run) -> None:
    run("ledger", "create", "l.db", "--rho", 1)
    assert "people" in run("ledger", "name", "l.db", "people").out
    refused(run("ledger", "name", "l.db", "visits"), "'people'", "for good")
    refused(run("ledger", "name", "l.db", "people.csv"), "public name")
    assert Ledger("l.db").table == "people"
    assert run("ledger", "create", "m.db", "--rho", 1, "--table", "visits").code == 0
    assert Ledger("m.db").table == "visits"
