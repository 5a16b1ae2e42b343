"""What an office sends in German and French: no English sentence, words that are bent, numbers and days as written."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pytest

import sfumato as sf
from sfumato._util.catalogue import ENGLISH, say_amount, say_day, say_note, say_text, speak
from sfumato.domain.hierarchies import nest_labels
from sfumato.present.answers import small_table
from sfumato.present.crosstab import print_chart
from sfumato.publishing import Publication, publish, write_formats
from sfumato.releases.ends import shown_cells
from sfumato.releases.methods import method_paragraph

TOLD = Publication(
    title="Einkommen",
    language="de",
    flags={"*": 0.02, "suppress": 0.5},
    labels={"age": "Alter", "pay": "Lohn", "sex": "Geschlecht"},
    categories={"sex": {"f": "weiblich"}},
)


@pytest.fixture(scope="module")
def release() -> sf.Release:
    """Two tables, a count, the total, and means; a tenth of all ages are beyond the range, and nobody asks for kind."""
    policies: Any = {"outside": "other", "missing": "other"}
    axes = {
        "age": sf.Bins([0, 18, 45, 65], **policies),
        "sex": sf.Categories(["f", "m"], **policies),
        "kind": sf.Categories(["x", "y"], **policies),
    }
    domain = sf.Domain(axes, measures={"pay": sf.Measure(-100, 9000)})
    work = sf.stack(
        tables=sf.marginals(domain, sets=[("age", "sex")]),
        people=sf.total(domain),
        counts=sf.predicates(domain, ["age >= 45 and sex == 'm'"]),
        means=sf.means(domain, "pay", by=["sex"]),
    )
    plan = sf.plan(work, sf.approx(4, "1e-6"), neighbours="add-remove")
    n = 3_000
    rng = np.random.default_rng(0)
    ages = np.where(np.arange(n) % 10 == 0, 80, rng.integers(0, 60, n))
    rows = {"age": ages, "sex": rng.choice(["f", "m"], n), "kind": "x", "pay": rng.gamma(2, 900, n)}
    made = sf.release(plan, pd.DataFrame(rows), ledger=None)
    assert isinstance(made, sf.Release)
    return made


@pytest.fixture(scope="module")
def files(release: sf.Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_formats(release, tmp_path_factory.mktemp("languages") / "files", publication=TOLD)


def _words(sheet: Any) -> list[str]:
    return [str(c.value) for row in sheet.iter_rows() for c in row if isinstance(c.value, str) and c.value]


def test_a_german_workbook_has_no_english_sentence(files: Path) -> None:
    """Mutants: cautions as Python has them; the total, heads and marks in English."""
    book = openpyxl.load_workbook(files / "tables.xlsx")
    said = [text for sheet in book for text in _words(sheet)]
    assert [text for text in said if len(text.split()) > 3 and ENGLISH.search(text) and "==" not in text] == []
    first = _words(book["Lies mich"])
    (caution,) = (first[i + 1] for i, text in enumerate(first) if text == "Vorsicht")
    assert re.match(
        r"age: 1?\d(,\d)? % der Datensätze sind in \(sonstige\); stimmt der Bereich 0 bis 65, oder", caution
    )
    assert "Lohn nach Geschlecht" in first
    named = _words(book["benannte Anzahlen"])
    assert "insgesamt" in named
    assert not {"total", "suppress"} & set(said)
    assert "pay nach sex" in book.sheetnames


def test_the_method_tells_what_was_asked_and_what_means_err(release: sf.Release) -> None:
    """Mutants: an attribute that nobody asked for; ranges and errors of means left out; 1e-6; a unit that is not bent;
    a day as computers write it."""
    with speak("de", TOLD.called()):
        text = method_paragraph(release)
    assert "über Alter, Geschlecht, Lohn wurden" in text
    assert "kind" not in text
    assert "(4; 10⁻⁶)-Differential Privacy" in text
    assert re.search(r"Standardfehler(n|) von [\d,]+ (bis [\d,]+ )?Datensätzen", text)
    assert "Werte von Lohn sind auf −100 bis 9.000 begrenzt." in text
    errors = [e for e in release.mean("pay", by="sex")["standard_error"] if e is not None]
    found = re.search(r"Mittelwerte von Lohn haben Standardfehler von (\d+,?\d*) bis (\d+,?\d*), gesch", text)
    assert found is not None
    told = [float(t.replace(",", ".")) for t in found.groups()]
    np.testing.assert_allclose(told, [min(errors), max(errors)], rtol=0.01)
    day = release.provenance.created[:10]
    assert f"am {day[8:]}.{day[5:7]}.{day[:4]}." in text
    with speak("fr"):
        assert f"le {day[8:]}/{day[5:7]}/{day[:4]}." in method_paragraph(release)
    english = method_paragraph(release)
    assert f"on {day}." in english
    assert len(english.split()) <= 240


def test_labels_are_in_words_on_the_site_and_beside_csv_files(release: sf.Release, files: Path, tmp_path: Path) -> None:
    """Mutants: ranges and what has no label in English; the category's text left out; codes of a table that is not
    there; stored codes in German; means first whatever was asked first."""
    site = publish(release, tmp_path / "site", publication=TOLD)
    facts = json.loads((site / "site.json").read_text(encoding="utf-8"))["attributes"]
    ages = ["0 bis unter 18", "18 bis unter 45", "45 bis 65", "(sonstige)"]
    assert facts["age"]["labels"] == ages
    assert facts["sex"]["labels"] == ["weiblich", "m", "(sonstige)"]
    with (files / "csv" / "codes.csv").open(encoding="utf-8", newline="") as held:
        rows = list(csv.DictReader(held))
    told = {(r["attribute"], r["code"]): r["label"] for r in rows}
    table = pd.read_csv(files / "csv" / "age.sex.csv")
    assert [told["age", code] for code in dict.fromkeys(table["age"])] == ages
    assert told["statistic", "mean"] == "Mittelwert"
    assert set(table["sex"]) == {"f", "m", "(other)"}
    px = (files / "px" / "age.sex.px").read_text(encoding="utf-8")
    assert ('"(sonstige)"' in px.split("CODES")[0], '"(other)"' in px.split("CODES")[2]) == (True, True)
    page = (site / "index.html").read_text(encoding="utf-8")
    assert re.search(r"mit einem typischen Fehler von [\d,]+ Datensätzen\.", page)
    assert "<td>Personen</td>" in page
    # the total and the count were asked before the means
    assert page.index("Einzelne Abfragen mit") < page.index("Summen, Mittelwerte und Varianzen")
    assert "<td>Anzahlen</td>" in page


def test_labels_that_are_ours_are_said_in_every_language() -> None:
    """Mutants: labels that people gave translated; quarters, weeks, true, false, rests and empty finds left English."""
    rest = nest_labels([["A"], ["A1", "A2"]], ["group", "code"], "other")
    mine = sf.Categories(["true", "(none found)", "2024-Q1"], outside="other")
    axes = {
        "quarter": sf.Dates("2024-11-15", "2025-01-31", by="quarter", outside="other"),
        "week": sf.Dates("2025-01-06", "2025-01-12", by="week"),
        "month": sf.Dates("2025-01-06", "2025-01-12", by="month"),
        "flag": sf.Booleans(missing="other"),
        "code": rest,
        "mine": mine,
        "lost": sf.Categories(["(none found)"], outside="other"),
    }
    domain = sf.Domain(axes)
    english = {n: shown_cells(domain, n) for n in domain.names}
    assert english == {n: list(domain[n].labels) for n in domain.names}
    with speak("de"):
        german = {n: shown_cells(domain, n) for n in domain.names}
    assert german == {
        "quarter": ["4. Quartal 2024", "1. Quartal 2025", "(sonstige)"],
        "week": ["2. Woche 2025"],
        "month": ["2025-01"],
        "flag": ["falsch", "wahr", "(sonstige)"],
        "code": ["A1", "A2", "A (sonstige)", "(sonstige)"],
        "mine": ["true", "(none found)", "2024-Q1", "(sonstige)"],
        "lost": ["(keine gefunden)", "(sonstige)"],
    }
    with speak("fr"):
        assert shown_cells(domain, "quarter") == ["T4 2024", "T1 2025", "(autres)"]


def test_words_in_sentences_and_notes() -> None:
    """Mutants: the comma of a label made a decimal; units as they stand in a heading; numbers as in English."""
    note = "99 % of the interval is the width of cells, most of it that of [1045, 65.5)"
    assert say_note(note) == note
    assert say_amount("1.5", "records") == "1.5 records"
    assert say_day("2026-11-05") == "2026-11-05"
    with speak("de"):
        assert say_note(note).endswith("vor allem von 1045 bis unter 65,5")
        assert say_note(note.replace(")", "]")).endswith("vor allem von 1045 bis 65,5")
        assert say_note(note.replace("[1045, 65.5)", "a, b")).endswith("vor allem von a, b")
        assert say_note(note.replace("[1045, 65.5)", "1,045")).endswith("vor allem von 1.045")
        assert say_amount("1,5", "records") == "1,5 Datensätzen"
        assert say_amount("1,5", "pay") == "1,5 pay"
        assert say_day("2026-11-05") == "05.11.2026"
        assert say_text("mean gap below 12,000.5") == "mittlerer Abstand unter 12.000,5"
        assert say_text("x: 2.0 % of records are in (other); is the range −1,000 to 5 right?") == (
            "x: 2,0 % der Datensätze sind in (sonstige); stimmt der Bereich −1.000 bis 5?"
        )
    with speak("fr"):
        assert say_day("2026-11-05") == "05/11/2026"


def test_cells_stand_in_the_order_in_which_an_office_lists_them(tmp_path: Path) -> None:
    """Ages are told from the youngest on, though days of birth begin with the oldest; where not all are listed, as
    declared. Mutants: labels moved without their numbers, in each of these; rows that are sorted moved."""
    from pyaxis import pyaxis

    born = sf.Dates("1920-01-01", "2025-12-31", starts=["1961-01-01", "2008-01-01"], outside="clamp", missing="other")
    old, middle, young, other = born.labels
    domain = sf.Domain({"born": born, "sex": sf.Categories(["f", "m"])})
    counts = np.array([[100, 200], [3000, 4000], [50_000, 60_000], [7, 8]])
    plan = sf.plan(sf.marginals(domain, upto=2), sf.gdp(4), neighbours="add-remove")
    release = sf.release(plan, sf.Histogram(counts), ledger=None, name="ages")
    ages = {young: "under 18", middle: "18 to under 65", old: "65 and over"}
    told = Publication(categories={"born": ages})
    wanted = [*ages.values(), other]
    exact = dict(zip(wanted, counts[[2, 1, 0, 3]].tolist(), strict=True))

    def close(found: dict[str, list[float]]) -> bool:
        assert list(found) == wanted
        return all(np.allclose(found[n], exact[n], atol=5) for n in wanted)

    table = release.table("born", "sex")
    made = table.crosstab("born", "sex").labelled(told)
    rows = [made.told_labels(("born",), r)[0] for r in made.row_labels]
    assert close(dict(zip(rows, made.numbers[0][:-1, :-1].tolist(), strict=True)))
    assert made.shares is not None
    assert made.shares[0][0, 0] == pytest.approx(5 / 11, abs=1e-3)
    ranked = table.crosstab("born", "sex", sort="total").labelled(told)
    assert [r[0] for r in ranked.row_labels] == [young, middle, old, other]
    assert [r[0] for r in table.crosstab("born", "sex").labelled(Publication()).row_labels] == list(born.labels)
    few = Publication(categories={"born": {young: "under 18"}})
    assert [r[0] for r in table.crosstab("born", "sex").labelled(few).row_labels] == list(born.labels)
    files = write_formats(release, tmp_path / "files", ["px", "csv", "xlsx"], publication=told)
    data = pyaxis.parse(str(files / "px" / "born.sex.px"), "utf-8")["DATA"]
    data = data[data["Figure"] == "Answer"]
    labels = list(dict.fromkeys(data["born"]))
    assert close({n: data[data["born"] == n]["DATA"].astype(float).tolist() for n in labels})
    assert list(pd.read_csv(files / "csv" / "born.csv")["born"]) == list(born.labels), "files for programs: as declared"
    sheet = openpyxl.load_workbook(files / "tables.xlsx")["born"]
    lines = [[c.value for c in row[:2]] for row in sheet.iter_rows(min_row=4, max_row=7)]
    assert [line[0] for line in lines] == wanted
    assert all(abs(value - sum(exact[name])) < 9 for name, value in lines)
    facts = json.loads((publish(release, tmp_path / "site", publication=told) / "site.json").read_text())
    assert facts["attributes"]["born"]["places"] == [2, 1, 0, 3]
    assert "places" not in facts["attributes"]["sex"]
    drawn = print_chart(release, ("born",), told).to_dict()["data"]["values"]
    assert [row["axis0"] for row in drawn] == wanted
    assert all(abs(row["answer"] - sum(exact[row["axis0"]])) < 9 for row in drawn)
    # flags of projected answers are by the errors from before: no bar is missing for want of one
    flagged = print_chart(release.project(), ("born",), replace(told, flags={"suppress": 0.9})).to_dict()
    assert [row["axis0"] for row in flagged["data"]["values"]] == wanted
    with speak("en", told.called()):
        shown = small_table(release, table, asked=True).rows
    assert [row["cell"] for row in shown[::2]] == wanted
    assert all(abs(row["answer"] - exact[row["cell"]]["fm".index(row["group"])]) < 5 for row in shown)
