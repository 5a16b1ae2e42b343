"""A table as offices in Europe keep it, from its file to a release, by every way there is: right at the first try.

Semicolons, decimal commas, points between thousands, cp1252, days as day.month.year, labels in any capitals with stray
blanks; and the same on the second sheet of a workbook. The truth is counted by pandas. At mu = 1,000 noise is far below
a record, so that an answer that is off is one that was read wrongly.
"""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.releases import Release
from sfumato.studio.serving import prepare_spec
from support.browser import Browser
from support.studio import studio
from support.typed import Run

HEADER = ["Einkommen", "Ort", "Eintritt", "Größe", "Mitglied"]
TOWNS = ["Köln", "Zürich", "Århus", "Groß-Gerau"]
EDGES = [0, 10_000, 20_000.5, 40_000, 1_000_000]
MEMBER = {"ja": "Mitglied", "nein": "kein Mitglied"}
OPTIONS = {"decimal": ",", "thousands": ".", "encoding": "cp1252"}
DECLARED = """
[schema_defaults]
outside = "other"
missing = "other"
[schema.Einkommen]
type = "number"
edges = [0, 10_000, 20_000.5, 40_000, 1_000_000]
[schema.Ort]
type = "category"
values = ["Köln", "Zürich", "Århus", "Groß-Gerau"]
case = "ignore"
trim = true
[schema.Eintritt]
type = "date"
min = "2024-01-01"
max = "2025-12-31"
by = "month"
format = "%d.%m.%Y"
[schema."Größe"]
type = "integer"
min = 0
max = 89
width = 10
[schema.Mitglied]
type = "category"
values = { ja = "Mitglied", nein = "kein Mitglied" }
case = "ignore"
trim = true
[privacy]
mu = 1000
neighbours = "add-remove"
[[queries]]
name = "tables"
upto = 2
[[queries]]
name = "income"
sums = "Einkommen"
by = ["Ort"]
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with leute.csv, and leute.xlsx with a first sheet of remarks."""
    openpyxl = pytest.importorskip("openpyxl")
    drawn, folder = random.Random(4), tmp_path_factory.mktemp("leute")

    def messy(text: str) -> str:
        case = drawn.choice([str, str.lower, str.upper, str.title])
        return drawn.choice(["", "", " ", "\u00a0"]) + case(text) + drawn.choice(["", "", "  ", "\t"])

    rows: list[tuple[Any, ...]] = []
    for _ in range(600):
        pay = round(drawn.lognormvariate(10.1, 0.7), 2)
        day = date(2024, 1, 1) + timedelta(drawn.randrange(731))
        rows.append((pay, messy(drawn.choice(TOWNS)), day, drawn.randrange(90), messy(drawn.choice([*MEMBER]))))
    rows += [(10_000, "Köln", date(2024, 1, 1), 0, "ja"), (1_000_000, "GROSS-GERAU", date(2025, 12, 31), 89, "NEIN")]
    with (folder / "leute.csv").open("w", encoding="cp1252", newline="") as file:
        out = csv.writer(file, delimiter=";", lineterminator="\r\n")
        out.writerow(HEADER)
        for pay, town, day, size, member in rows:
            written = f"{pay:,.2f}".translate(str.maketrans(",.", ".,"))
            out.writerow([written, town, day.strftime("%d.%m.%Y"), size, member])
    book = openpyxl.Workbook()
    book.active.append(["Hinweise"])
    page = book.create_sheet("Leute")
    for row in (HEADER, *rows):
        page.append(list(row))
    book.save(folder / "leute.xlsx")
    return folder


def truth(folder: Path) -> pd.DataFrame:
    """The cell of every record, and its income, by pandas."""
    read = pd.read_csv(
        folder / "leute.csv", sep=";", decimal=",", thousands=".", encoding="cp1252", dtype={"Eintritt": str}
    )
    towns = {t.casefold(): t for t in TOWNS}
    above = pd.DataFrame({edge: read["Einkommen"] >= edge for edge in EDGES[1:-1]})
    days = pd.to_datetime(read["Eintritt"], format="%d.%m.%Y")
    return pd.DataFrame(
        {
            "Einkommen": above.sum(axis=1),
            "Ort": read["Ort"].str.strip().str.casefold().map(towns).map(TOWNS.index),
            "Eintritt": 12 * (days.dt.year - 2024) + days.dt.month - 1,
            "Größe": read["Größe"] // 10,
            "Mitglied": read["Mitglied"].str.strip().str.casefold().map([*MEMBER].index),
            "paid": read["Einkommen"],
        }
    )


def right(release: Any, folder: Path) -> None:
    """Every table of the release is the true one, nothing is in (other), and sums hold those of the values."""
    assert isinstance(release, Release)
    expected = truth(folder)
    assert len(expected) == 602
    domain = release.plan.workload.domain
    assert set(domain.names) == set(HEADER)
    for i, first in enumerate(HEADER):
        found = release.table(first).values.round().astype(int)
        assert found[-1] == 0, f"{first}: {found[-1]} records in (other)"
        assert found[:-1].tolist() == np.bincount(expected[first], minlength=domain[first].size - 1).tolist(), first
        for second in HEADER[:i]:
            counts = np.zeros((domain[first].size, domain[second].size), dtype=int)
            np.add.at(counts, (expected[first], expected[second]), 1)
            names = [n for n in domain.names if n in (first, second)]
            counts = counts if names == [first, second] else counts.T
            assert (release.table(*names).values.round() == counts).all(), (first, second)
    means = {row["Ort"]: row for row in release.mean("Einkommen", by="Ort").rows()}
    for i, town in enumerate(TOWNS):
        assert means[town]["low"] <= expected["paid"][expected["Ort"] == i].mean() <= means[town]["high"]
    assert not release.cautions


def filled(path: Path, declared: str = DECLARED) -> None:
    """What a person fills in; how the table is written stands there already."""
    head, mark, _ = path.read_text(encoding="utf-8").partition("# Each column is declared")
    assert mark
    path.write_text(head + declared, encoding="utf-8")


@pytest.mark.parametrize("kind", ["csv", "xlsx"])
def test_by_the_command_line(run: Run, files: Path, kind: str) -> None:
    """Mutants: a notation that some command drops; capitals of ß that are another text; no word of semicolons, or of a
    second sheet; a sheet that the rows of `mock`, which are a text file, are asked for."""
    table = files / f"leute.{kind}"
    spec = Path("leute.toml")
    written = [a for name, value in OPTIONS.items() for a in (f"--{name}", value)] if kind == "csv" else []
    first = run("init", table, "-o", "plainly.toml", *written[4:])
    assert first.code == 0
    assert ("--decimal ," if kind == "csv" else "--sheet NAME") in first.err
    begun = run("init", table, "-o", spec, *(written or ["--sheet", "Leute"]))
    assert (begun.code, begun.err) == (0, "")
    assert all(f"[schema.{n}]" in spec.read_text(encoding="utf-8") for n in ("Einkommen", '"Größe"'))
    filled(spec)
    assert run("plan", spec).code == 0
    assert run("mock", spec, "-n", "60", "-o", "mock.csv").code == 0
    checked = run("check", spec, "--sample", "mock.csv", "--public", "--json")
    assert checked.code == 0, checked.err
    assert [a["outside"]["rows"] + a["missing"] for a in json.loads(checked.out)["attributes"]] == [0] * len(HEADER)
    assert run("ledger", "create", "own.db", "--mu", "1500").code == 0
    made = run("release", spec, "--ledger", "own.db", "--name", "one", "-o", "out")
    assert made.code == 0, made.err
    shown = run("show", "out")
    assert shown.code == 0
    assert "caution" not in shown.out
    right(sf.load("out"), files)


@pytest.mark.parametrize("kind", ["csv", "xlsx"])
def test_by_python(files: Path, kind: str) -> None:
    """Mutant: a Source that is told less than its spec."""
    policies: dict[str, Any] = {"outside": "other", "missing": "other"}
    domain = sf.Domain(
        {
            "Einkommen": sf.Bins(EDGES, **policies),
            "Ort": sf.Categories(TOWNS, case="ignore", trim=True, **policies),
            "Eintritt": sf.Dates("2024-01-01", "2025-12-31", by="month", format="%d.%m.%Y", **policies),
            "Größe": sf.Integers(0, 89, 10, **policies),
            "Mitglied": sf.Categories(MEMBER, case="ignore", trim=True, **policies),
        }
    )
    work = sf.stack(tables=sf.marginals(domain, upto=2), income=sf.sums(domain, "Einkommen", by="Ort"))
    plan = sf.plan(work, sf.gdp(1_000), neighbours="add-remove")
    table = files / f"leute.{kind}"
    source = sf.Source(table, **OPTIONS) if kind == "csv" else sf.Source(table, sheet="Leute")
    right(sf.release(plan, source, ledger=None), files)


def column(browser: Browser, name: str) -> str:
    """The CSS place of a column's fields."""
    at = next(h.get_attribute("id") for h in browser.all("#columns h3") if h.text == name)
    return f"[aria-labelledby={at}]"


@pytest.mark.parametrize("kind", ["csv", "xlsx"])
def test_by_the_page(tmp_path: Path, files: Path, browser: Browser, kind: str) -> None:
    """Mutants: a file in another encoding that ends `sfumato studio TABLE`; a reason that the page keeps to itself; no
    word of semicolons, or of a second sheet; edges beside which the least and the greatest value stay to be given."""
    spec, names = prepare_spec(str(files / f"leute.{kind}"), tmp_path, demo=False)
    assert names == (None if kind == "csv" else ("Hinweise",))
    with studio(tmp_path, spec.name, entered=False) as page:
        browser.look(1280, "light")
        browser.go(page.keys.address)
        browser.until(lambda: browser.text("#file") == spec.name)
        page.key = page.keys.key

        def typed(css: str, text: str, done: Callable[[], object]) -> None:
            browser.type(css, text)
            browser.run("document.activeElement.blur()")
            browser.until(done)

        if kind == "csv":
            browser.click("#read-names")
            browser.until(lambda: "is not in utf-8: declare its encoding" in browser.text("#problem"))
            browser.find("#written summary").click()
            typed("#encoding", "cp1252", lambda: 'encoding = "cp1252"' in page.desk.text)
            browser.click("#read-names")
            browser.until(lambda: "decimal commas" in browser.text("#status"))
            browser.choose("#decimal", "a comma: 1,5")
            browser.choose("#thousands", "points: 1.234")
            browser.until(lambda: 'thousands = "."' in page.desk.text)
        else:
            browser.click("#read-names")
            browser.until(lambda: "several sheets" in browser.text("#status"))
            typed("#sheet", "Leute", lambda: 'sheet = "Leute"' in page.desk.text)
            browser.click("#read-names")
        browser.until(lambda: [h.text for h in browser.all("#columns h3")] == HEADER)
        browser.choose("#outside", "counted as (other)")
        browser.choose("#missing", "counted as (other)")
        for name, what, fields in (
            ("Einkommen", "numbers", {4: ", ".join(map(str, EDGES))}),
            ("Ort", "labels", {}),
            ("Eintritt", "dates", {1: "2024-01-01", 2: "2025-12-31", 4: "%d.%m.%Y"}),
            ("Größe", "whole numbers", {1: "0", 2: "89", 3: "10"}),
            ("Mitglied", "labels", {}),
        ):
            browser.choose(f"{column(browser, name)} .head select", what)
            browser.until(lambda n=name: browser.all(f"{column(browser, n)} .fields"))
            browser.saved()
            here = column(browser, name)
            for number, text in fields.items():
                browser.type(f"{here} .fields label:nth-of-type({number}) input", text)
            if what == "labels":
                browser.click(f"{here} summary")
                for number in (3, 4, 1) if name == "Mitglied" else (3, 4):
                    browser.click(f"{column(browser, name)} details .fields > label:nth-of-type({number}) input")
                    browser.saved()
                labels = TOWNS if name == "Ort" else [f"{code} = {label}" for code, label in MEMBER.items()]
                browser.type(f"{column(browser, name)} textarea", "\n".join(labels))
            browser.run("document.activeElement.blur()")
            browser.until(lambda n=name: " cells: " in browser.text(column(browser, n)))
        browser.click("input[value=add-remove]")
        browser.until(lambda: 'neighbours = "add-remove"' in page.desk.text)
        browser.go(f"{page.keys.origin}/questions")
        browser.click("#add-upto")
        browser.until(lambda: "upto = 2" in page.desk.text)
        browser.choose("#sums", "Einkommen")
        browser.choose("#sums-by", "Ort")
        browser.click("#add-sums")
        browser.until(lambda: 'sums = "Einkommen"' in page.desk.text)
        browser.go(f"{page.keys.origin}/what-if")
        browser.choose("#kind", "μ (Gaussian)")
        browser.type("#parameter", "1000")
        browser.run("document.activeElement.blur()")
        browser.until(lambda: browser.find("#keep-budget").is_enabled(), 120)
        browser.click("#keep-budget")
        browser.until(lambda: "mu = 1000" in page.desk.text)
        browser.go(f"{page.keys.origin}/pay")
        browser.until(lambda: browser.find("#make-ledger").is_displayed(), 120)
        browser.choose("#kind", "μ (Gaussian)")
        browser.type("#parameter", "1500")
        browser.click("#make-ledger button")
        browser.until(lambda: browser.all("#ledger svg"), 120)
        browser.type("#name", "one")
        browser.click("#pay button")
        browser.until(lambda: browser.find("#job").get_attribute("data-state") == "done", 120)
        browser.click("#job a")
        browser.until(lambda: browser.all("#table svg"))
        assert browser.errors() == []
        browser.forget()
        right(sf.load(page.desk.places.releases / "one"), files)
