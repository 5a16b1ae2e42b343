"""What is typed on the page means what it would mean in the table: numbers and days in the declared notation."""

from __future__ import annotations

import json
import subprocess
from datetime import date, timedelta
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import sfumato as sf
from sfumato.errors import SfumatoError
from sfumato.studio import calls
from sfumato.studio.drafts import describe_column
from sfumato.workloads.reading import toml_tables
from support import node

pytestmark = pytest.mark.usefixtures("node")
SCRIPT = (resources.files("sfumato.studio") / "static" / "notation.js").read_text(encoding="utf-8")
GERMAN = {"decimal": ",", "thousands": "."}
FRENCH = {"decimal": ",", "thousands": " "}
PLAIN = {"decimal": ".", "thousands": ""}
AMERICAN = {"decimal": ".", "thousands": ","}
SWISS = {"decimal": ".", "thousands": "'"}


@pytest.fixture(scope="module")
def node_program() -> str:
    if node.PROGRAM is None:
        pytest.skip(str(node.missing()))
    return str(node.PROGRAM)


def said(program: str, expression: str, cases: Any) -> Any:
    code = f"{SCRIPT}\nprocess.stdout.write(JSON.stringify(({json.dumps(cases)}).map(({expression}))))"
    done = subprocess.run(
        [program, "--input-type=module", "-"], input=code, capture_output=True, text=True, check=True, encoding="utf-8"
    )
    return json.loads(done.stdout)


NUMBERS: list[tuple[str, dict[str, str], str | None]] = [
    ("-50.000", GERMAN, "-50000"),
    ("250.000", GERMAN, "250000"),
    ("-50.000,00", GERMAN, "-50000"),
    ("1.234.567,25", GERMAN, "1234567.25"),
    ("1.234,50", GERMAN, "1234.5"),
    ("0,125", GERMAN, "0.125"),
    ("0.125", GERMAN, "0.125"),
    ("20000.5", GERMAN, "20000.5"),
    ("1.5", GERMAN, "1.5"),
    ("1,234.50", GERMAN, "1234.50"),
    ("1,234", GERMAN, "1.234"),
    ("1.23.456", GERMAN, None),
    ("\u221250 000", FRENCH, "-50000"),
    ("50\u202f000,5", FRENCH, "50000.5"),
    ("1.500", FRENCH, "1.500"),
    ("250.000", PLAIN, "250.000"),
    ("0.10", PLAIN, "0.10"),
    ("1e-6", PLAIN, "1e-6"),
    ("1,5", PLAIN, None),
    ("1,234", AMERICAN, "1234"),
    ("1,234.5", AMERICAN, "1234.5"),
    ("1'234.5", SWISS, "1234.5"),
    ("007", PLAIN, "7"),
    ("", GERMAN, None),
    ("x", GERMAN, None),
]


def test_numbers_are_those_of_the_table(node_program: str) -> None:
    """Mutant: 250.000 read as English where points stand between thousands."""
    cases = [[text, marks] for text, marks, _ in NUMBERS]
    found = said(node_program, "([t, m]) => readNumber(t, m)", cases)
    assert found == [expected for _, _, expected in NUMBERS]
    kept = [[v, m] for (_, m, v) in NUMBERS if v is not None and "e" not in v]
    back = said(node_program, "([v, m]) => Number(readNumber(writtenNumber(v, m), m))", kept)
    assert back == [float(v) for v, _ in kept if v is not None]  # what a field shows is read as what it stands for


def test_several_numbers_are_told_apart_or_doubted(node_program: str) -> None:
    """Mutant: 0,18 taken for one number where it may be two."""
    cases = [
        ["0; 10.000; 20.000,5", GERMAN],
        ["0, 10.000, 20.000,5", GERMAN],
        ["0,18,30", PLAIN],
        ["0, 1,000, 2,500", AMERICAN],
        ["50.000;", GERMAN],
    ]
    found = said(node_program, "([t, m]) => splitNumbers(t, m).map((one) => readNumber(one, m))", cases)
    assert found == [
        ["0", "10000", "20000.5"],
        ["0", "10000", "20000.5"],
        ["0", "18", "30"],
        ["0", "1000", "2500"],
        ["50000"],
    ]
    doubts = said(node_program, "(t) => Boolean(doubtOfNumbers(t, {decimal: ',', thousands: '.'}))", [
        "0,18", "0,18,30", "50.000,100.000", "0; 18", "0, 18", "18", "0,5; 1,5",
    ])  # fmt: skip
    assert doubts == [True, True, True, False, False, False, False]


def test_days_are_read_in_the_column_s_format_and_as_written_everywhere(node_program: str) -> None:
    """Mutants: the month for the day; a day that is none moved into the next month."""
    cases = [["01.02.1926", "%d.%m.%Y"], ["1926-02-01", "%d.%m.%Y"], ["31.02.1926", "%d.%m.%Y"], ["1.2.26", "%d.%m.%Y"],
             ["02/01/1926", "%m/%d/%Y"], ["01.02.1926", ""]]  # fmt: skip
    found = said(node_program, "([t, f]) => readDay(t, f || undefined)", cases)
    assert found == ["1926-02-01", "1926-02-01", None, None, "1926-02-01", None]
    # before a format is chosen, a day that can be read in one way alone says which; others are told what to write
    typed = [["31.12.1926", ""], ["12/31/1926", ""], ["01.02.1926", ""], ["31.13.1926", ""], ["12/31/1926", "%d.%m.%Y"]]
    assert said(node_program, "([t, f]) => typedDay(t, f || undefined)", typed) == [
        {"day": "1926-12-31", "format": "%d.%m.%Y"},
        {"day": "1926-12-31", "format": "%m/%d/%Y"},
        *[None] * 3,
    ]
    doubts = said(node_program, "([t, f]) => doubtOfDay(t, f || undefined)", typed)
    assert doubts[:2] == ["", ""]
    assert [d.split(": ")[0] for d in doubts[2:]] == [
        "the day and the month of 01.02.1926 cannot be told apart",
        "31.13.1926 is no day that can be read",
        "12/31/1926 is no day as this column writes them",
    ]
    assert said(node_program, "(d) => writtenDay(d, '%d.%m.%Y')", ["1926-02-01"]) == ["01.02.1926"]
    assert said(node_program, "(d) => dayInWords(d)", ["1926-02-01"]) == ["1 February 1926"]


def test_a_condition_whose_numbers_look_like_the_table_s_is_doubted(node_program: str) -> None:
    """Conditions are in English. Mutant: pay >= 50.000 asked as 50."""
    cases = ["pay >= 50.000", "pay >= 50000", "pay >= 0.5", "name == '50.000'", "pay >= 1.234,5"]
    found = said(node_program, "(t) => doubtOfCondition(t, {decimal: ',', thousands: '.'})", cases)
    assert [bool(text) for text in found] == [True, False, False, False, True]
    assert "write 50000 for 50.000" in found[0]
    assert said(node_program, "(t) => doubtOfCondition(t, {decimal: '.', thousands: ''})", cases[:1]) == [""]


def test_mock_rows_are_in_the_declared_notation() -> None:
    """Mutant: mock rows with points before decimals for a table with commas."""
    text = """
data = { decimal = ",", thousands = "." }
[schema_defaults]
outside = "other"
missing = "other"
[schema.day]
type = "date"
min = "2024-01-01"
max = "2024-12-31"
format = "%d.%m.%Y"
[schema.age]
type = "integer"
min = 0
max = 99
[measures.pay]
min = -50000
max = 250000.5
"""
    tables = toml_tables(text)
    pay = describe_column(tables, "pay", Path())["mock"]
    assert any("." in one for one in pay)
    assert all(one.lstrip("-").replace(".", "").replace(",", "").isdecimal() and "," not in one[:3] for one in pay)
    assert all(len(part) == 3 for one in pay for part in one.partition(",")[0].split(".")[1:])
    assert all(one.isdecimal() for one in describe_column(tables, "age", Path())["mock"])
    assert all(one[2] == one[5] == "." for one in describe_column(tables, "day", Path())["mock"])


def test_groups_by_age_are_cut_at_birthdays(node_program: str) -> None:
    """Against the age that everybody has on the day, for each day of birth near the cuts; labels are the domain's.

    Mutants: the birthday on the day itself not yet had; 29 February moved to 1 March.
    """
    for day in ("2025-12-31", "2024-02-29", "2026-02-28", "2026-03-01"):
        found = said(node_program, "([d, a]) => { const g = ageGroups(d, a); return {...g, cells: cellsOfDays(g)}; }",
                     [[day, [18, 65, 45]]])[0]  # fmt: skip
        held = sf.Dates(found["min"], found["max"], starts=found["starts"])
        assert list(held.labels) == found["cells"]
        assert [t["de"] for t in found["texts"]] == ["65 und älter", "45 bis unter 65", "18 bis unter 45", "unter 18"]
        on = date.fromisoformat(day)
        for start in map(date.fromisoformat, found["starts"]):
            for born in (start + timedelta(d) for d in range(-400, 400)):
                age = on.year - born.year - ((on.month, on.day) < (born.month, born.day))
                group = next(i for i, (a, b) in enumerate(pairwise(held.edges)) if a <= born.toordinal() < b)
                assert group == sum(age < least for least in (65, 45, 18)), (day, born)


@pytest.mark.parametrize(("typed", "number"), [("0,000001", "1e-6"), ("1,5", "1.5"), (",5", "0.5"), ("0,125", "1/8")])
def test_budgets_may_have_a_decimal_comma(typed: str, number: str) -> None:
    assert calls._budget_of_page({"budget": {"epsilon": typed}}) == sf.pure(number)


@pytest.mark.parametrize("typed", ["1,000", "12,345", "1,000,000", "1.000,5"])
def test_what_may_be_thousands_is_refused_as_before(typed: str) -> None:
    """Mutant: 1,000 read as 1, of an epsilon that somebody meant to be a thousand."""
    assert calls._with_point(typed) == typed
    with pytest.raises(SfumatoError):
        calls._budget_of_page({"budget": {"epsilon": typed}})
