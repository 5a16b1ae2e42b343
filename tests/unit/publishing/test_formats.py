"""Files for offices, each read back by somebody else's reader: numbers, labels and flags are those of the release."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pytest

import sfumato as sf
from sfumato.errors import InvalidInput, PlanError
from sfumato.present.answers import measures_table, singles_table
from sfumato.present.page import render
from sfumato.publishing import FORMATS, Publication, publish, workbook, write_formats
from sfumato.releases.crosstab import CrossTable
from sfumato.releases.measure_tables import measure_table

FLAGS = {"*": 0.02, "**": 0.1, "suppress": 0.4}
TOLD = Publication(
    title={"en": 'Ages & "regions"', "de": "Alter"},
    institution="Office <of> Statistics",
    contact="a@b.example",
    period="2026",
    licence="https://creativecommons.org/licenses/by/4.0/",
    notes="All; of = it.",
    flags=FLAGS,
    labels={"age": {"en": "Age", "de": "Alter"}, "the sex": "Sex"},
    units={"age": "years"},
    categories={"the sex": {"f": "women & girls", "=1+1": "men"}},
)
SURE = {"suppress": 0.2}  # of 0 ± 1 standard error: one draw in three million is not flagged
SHOWN = {"suppress": "··"}
COUNTS = np.random.default_rng(8).poisson(60, (6, 3, 2)) * np.array([9, 3, 0])[None, :, None]


@pytest.fixture(scope="module")
def release() -> sf.Release:
    domain = sf.Domain(
        {
            "age": sf.Integers(0, 9, width=2, outside="other"),
            "the sex": sf.Categories(["f", "=1+1"], outside="other"),
            "región": sf.Categories(['a "b", c;', "DATA=3"]),
        }
    )
    plan = sf.plan(sf.marginals(domain, upto=3), sf.gdp("0.5"), neighbours="add-remove")
    made = sf.release(plan, sf.Histogram(COUNTS), ledger=None, name="ages")
    assert isinstance(made, sf.Release)
    return made


@pytest.fixture(scope="module")
def folder(release: sf.Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_formats(release, tmp_path_factory.mktemp("formats") / "files", publication=TOLD)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Readers of others warn of their own habits."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def expected(release: sf.Release, *names: str) -> pd.DataFrame:
    return release.table(*names).frame(FLAGS).to_pandas()


def test_every_format_is_written(folder: Path) -> None:
    kinds = {p.suffix for p in folder.rglob("*") if p.is_file()}
    assert kinds == {".csv", ".json", ".px", ".parquet", ".xlsx", ".jsonld", ".xml"}
    assert len(list(folder.glob("csv/*.csv"))) == 8  # seven tables, and the labels


def test_csvw_is_valid_and_reads_the_same(release: sf.Release, folder: Path) -> None:
    from csvw import CSVW

    found = CSVW(str(folder / "csv" / "csv-metadata.json"), validate=True)
    assert found.is_valid
    assert not found.warnings
    whole = expected(release, "age", "the sex")
    table = next(t for t in found.tables if str(t.url) == "age.the_sex.csv")
    rows = list(table.iterdicts(strict=True))
    np.testing.assert_allclose([r["answer"] for r in rows], whole["answer"], rtol=0)
    assert [r["flag"] or "" for r in rows] == list(whole["flag"])
    assert [r["the%20sex"] for r in rows[:2]] == ["f", "'=1+1"]
    described = json.loads((folder / "csv" / "csv-metadata.json").read_text(encoding="utf-8"))
    column = next(t for t in described["tables"] if t["url"] == "age.csv")["tableSchema"]["columns"][0]
    assert {"@value": "Alter", "@language": "de"} in column["rdfs:label"]


def test_the_data_package_is_valid_and_reads_the_same(
    release: sf.Release, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from frictionless import Package

    monkeypatch.chdir(folder)
    package = Package("datapackage.json")
    report = package.validate()
    assert report.valid, report.flatten(["type", "message"])
    rows = package.get_resource("age.the_sex").read_rows()
    whole = expected(release, "age", "the sex")
    np.testing.assert_allclose([float(r["high"]) for r in rows], whole["high"], rtol=0)
    assert [r["flag"] or "" for r in rows] == list(whole["flag"])
    assert package.get_resource("age").schema.get_field("age").title == "Age (years)"


def shown_decimals(about: dict[str, list[str]], data: pd.DataFrame) -> list[int]:
    """What a PX file shows, its most decimals besides, and those that it has; these are as many as it says."""
    shown, stored = (int("".join(about[k])) for k in ("SHOWDECIMALS", "DECIMALS"))
    texts = [text for text in data["DATA"] if isinstance(text, str) and text != '".."']
    assert stored == max(shown, *(len(text.partition(".")[2]) for text in texts))
    assert stored <= 15
    more = [int("".join(v)) for k, v in about.items() if k.startswith("PRECISION")]
    return [shown, max([shown, *more]), stored]


def test_px_reads_the_same(release: sf.Release, folder: Path) -> None:
    """Quotes, commas, semicolons and the word of PX itself in labels are survived but for the quotes."""
    from pyaxis import pyaxis

    found = pyaxis.parse(str(folder / "px" / "age.the_sex.px"), encoding="utf-8")
    data, about = found["DATA"], found["METADATA"]
    whole = expected(release, "age", "the sex")
    for figure, column in (("Answer", "answer"), ("Standard error", "standard_error"), ("95 % from", "low")):
        numbers = data[data["Figure"] == figure]["DATA"].astype(float)
        np.testing.assert_allclose(numbers, whole[column], rtol=1e-11)
    assert list(dict.fromkeys(data["Sex"])) == ["women & girls", "men", "(other)"]
    assert about["CODES(Sex)"][0] == "f"
    assert about["TITLE"] == ["Ages & 'regions': Age (years) × Sex"]
    assert about["UNITS"] == ["records"]
    decimals = max(0, 1 - math.floor(math.log10(float(np.median(release.table("age", "the sex").noise_errors())))))
    assert shown_decimals(about, data)[:2] == [max(decimals, 0)] * 2
    noted = {k: v[0] for k, v in about.items() if k.startswith("DATANOTECELL")}
    cells = [
        f"DATANOTECELL({a},{s},Answer)" for a in dict.fromkeys(data["Age (years)"]) for s in dict.fromkeys(data["Sex"])
    ]
    shown = {c: "··" if f == "suppress" else f for c, f in zip(cells, whole["flag"], strict=True) if f}
    assert noted == shown


def test_sdmx_is_valid_and_reads_the_same(release: sf.Release, folder: Path) -> None:
    """By two readers; the structures against their XML schemas."""
    import sdmx
    from pysdmx.io import get_datasets, read_sdmx

    structures = folder / "sdmx" / "structures.xml"
    assert read_sdmx(structures, validate=True).structures
    (data,) = get_datasets(folder / "sdmx" / "age.the_sex.csv", structures)
    whole = expected(release, "age", "the sex")
    np.testing.assert_allclose(data.data["OBS_VALUE"].astype(float), whole["answer"], rtol=0)
    np.testing.assert_allclose(data.data["LOW"].astype(float), whole["low"], rtol=0)
    assert list(data.data["FLAG"]) == list(whole["flag"])
    assert set(data.data["TIME_PERIOD"].astype(str)) == {"2026"}
    assert [s == "U" for s in data.data["OBS_STATUS"]] == [f != "" for f in whole["flag"]]
    message = sdmx.read_sdmx(structures)
    codes = message.codelist["CL_THE_SEX"]
    assert {c.id: str(c.name) for c in codes}["f"] == "women & girls"
    assert set(data.data["THE_SEX"]) == {c.id for c in codes}


def test_structures_of_names_with_a_bar_and_of_no_table_are_valid(tmp_path: Path) -> None:
    """Mutants: parts of the message told apart by a bar that names may hold; empty lists where no table is asked."""
    from pysdmx.io import read_sdmx

    domain = sf.Domain({"net | gross": sf.Categories(["x|y", "z"]), "age": 3})
    for name, work, flows in [("some", sf.marginals(domain, upto=2), 3), ("none", sf.total(domain), 0)]:
        plan = sf.plan(work, sf.gdp(1), neighbours="add-remove")
        made = sf.release(plan, sf.Histogram(np.full((2, 3), 9)), ledger=None, name=name)
        assert isinstance(made, sf.Release)
        folder = write_formats(
            made, tmp_path / name, publication=replace(TOLD, labels={"age": "A | B"}, units={}, categories={})
        )
        message = read_sdmx(folder / "sdmx" / "structures.xml", validate=True)
        assert len(message.get_dataflows()) == flows


def test_the_names_of_structures_are_in_their_language(release: sf.Release, tmp_path: Path) -> None:
    """Mutant: English names that are marked as German."""
    made = write_formats(release, tmp_path / "files", ["sdmx"], publication=replace(TOLD, language="de"))
    text = (made / "sdmx" / "structures.xml").read_text(encoding="utf-8")
    names = set(re.findall('<com:Name xml:lang="de">([^<]*)</com:Name>', text))
    assert {"Standardfehler", "95 % von", "Relativer Standardfehler", "Beobachtungsstatus", "Zeichen"} <= names
    assert not names & {"Standard error", "Low", "High", "Flag", "Obs status"}


def test_the_catalogue_entry_names_every_file(folder: Path) -> None:
    import rdflib

    graph = rdflib.Graph().parse(folder / "dcat.jsonld", format="json-ld", publicID="https://office.example/data/")
    dcat, dct = rdflib.Namespace("http://www.w3.org/ns/dcat#"), rdflib.Namespace("http://purl.org/dc/terms/")
    (entry,) = graph.subjects(rdflib.RDF.type, dcat.Dataset)
    assert {(str(t), t.language) for t in graph.objects(entry, dct.title)} == {
        ('Ages & "regions"', "en"),
        ("Alter", "de"),
    }
    named = {str(u).removeprefix("https://office.example/data/") for u in graph.objects(None, dcat.downloadURL)}
    data = {
        p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.suffix in (".csv", ".px", ".parquet", ".xlsx")
    }
    assert named == data


def test_parquet_reads_the_same(release: sf.Release, folder: Path) -> None:
    found = pd.read_parquet(folder / "parquet" / "age.the_sex.parquet")
    whole = expected(release, "age", "the sex")
    np.testing.assert_array_equal(found["answer"], whole["answer"])
    assert list(found["flag"]) == list(whole["flag"])


# -- the workbook ------------------------------------------------------------------------------------------------


def _book(folder: Path) -> Any:
    return openpyxl.load_workbook(folder / "tables.xlsx")


def test_the_workbook_has_merged_heads_formats_and_words(release: sf.Release, folder: Path) -> None:
    book = _book(folder)
    assert book.sheetnames[0] == "read me"
    words = " ".join(str(c.value) for row in book["read me"].iter_rows() for c in row if c.value)
    for said in ('Ages & "regions"', "Office <of> Statistics", "differential privacy", "* above 2 %", "a@b.example"):
        assert said in words
    assert all(c.data_type != "f" for sheet in book for row in sheet.iter_rows() for c in row)
    sheet = book["age x the sex"]
    merged = {str(r) for r in sheet.merged_cells.ranges}
    made = release.table("age", "the sex").crosstab("age", "the sex", flags=FLAGS)
    assert "A3:A5" in merged
    assert "B3:M3" in merged  # answers of two sexes, others and the total, three columns each
    assert {"B4:D4", "N4:P4"} <= merged
    assert sheet["B3"].value == "Records"
    assert sheet["N3"].value == "Per cent of the row"
    assert sheet["B4"].value == "women & girls"
    assert sheet["A3"].value == "Age (years)"
    _same_numbers(sheet, made)
    assert sheet.freeze_panes == "B6"
    assert sheet.column_dimensions["A"].width > 8


def _same_numbers(sheet: Any, made: CrossTable) -> None:
    """Numbers are numbers, with the mark in their format."""
    assert made.shares is not None
    for first, numbers in ((2, made.numbers), (2 + 12, made.shares)):
        flags = np.array(made.reliability.flags(*numbers[:2]), dtype=object).reshape(numbers[0].shape)
        for (i, j), value in np.ndenumerate(numbers[0]):
            cells = [sheet.cell(6 + i, first + 3 * j + k) for k in range(3)]
            if math.isnan(value):
                assert cells[0].value == "–"
                continue
            np.testing.assert_allclose(
                [c.value for c in cells], [value, numbers[2][i, j], numbers[3][i, j]], rtol=1e-12
            )
            mark = {"suppress": " ··"}.get(flags[i, j], flags[i, j])
            assert cells[0].number_format.endswith(f'"{mark}"' if mark else ("0", "%")[numbers is made.shares])


def test_tables_of_three_attributes_are_lists_with_flags(release: sf.Release, folder: Path) -> None:
    book = _book(folder)
    sheet = book[book.sheetnames[-1]]
    rows = list(sheet.iter_rows(min_row=3, values_only=True))
    whole = release.table("age", "the sex", "región").frame(FLAGS).to_pandas()
    numbers = ["Answer", "Standard error", "Low", "High", "Relative standard error", "Flag"]
    assert list(rows[0]) == ["Age (years)", "Sex", "región", *numbers]
    cells = rows[1 : 1 + len(whole)]
    np.testing.assert_allclose([r[3] for r in cells], whole["answer"], rtol=1e-12)
    assert [r[-1] or "" for r in cells] == [SHOWN.get(f, f) for f in whole["flag"]]
    assert rows[1][1] == "women & girls"


# -- marks, and what is refused ----------------------------------------------------------------------------------


def test_numbers_are_left_out_only_where_that_is_asked(release: sf.Release, tmp_path: Path) -> None:
    """Mutants: numbers that are flagged left out by default; those that are not flagged left out."""
    whole = expected(release, "age", "the sex")
    assert "suppress" in set(whole["flag"])
    for leave_out in (False, True):
        made = write_formats(release, tmp_path / f"{leave_out}", ["csv"], publication=TOLD, leave_out=leave_out)
        found = pd.read_csv(made / "csv" / "age.the_sex.csv")
        missing = found["answer"].isna()
        assert list(missing) == [leave_out and f == "suppress" for f in whole["flag"]]
        assert list(found["low"].isna()) == list(missing)
        assert list(found["flag"].fillna("")) == list(whole["flag"])


def test_what_is_left_out_is_in_no_format(release: sf.Release, tmp_path: Path) -> None:
    """Neither a number nor its per cent, which tells it beside the total. Mutants: the workbook as without; per cents
    of what is left out; errors, ends and unprojected answers of it in the plain files."""
    from pyaxis import pyaxis

    whole = expected(release, "age", "the sex")
    gone = whole["flag"] == "suppress"
    assert gone.any()
    for shown in (release, release.project()):
        kind = "raw" if shown is release else "moved"
        files = write_formats(shown, tmp_path / kind, list(FORMATS), publication=TOLD, leave_out=True)
        flags = shown.table("age", "the sex").frame(FLAGS).to_pandas()["flag"]
        for folder in ("csv", "plain", "parquet", "sdmx"):
            path = files / folder / f"age.the_sex.{'parquet' if folder == 'parquet' else 'csv'}"
            found = pd.read_parquet(path) if folder == "parquet" else pd.read_csv(path)
            numbers = found.select_dtypes("number").drop(columns=["TIME_PERIOD"], errors="ignore")
            assert numbers[list(flags == "suppress")].isna().all(axis=None), folder
            assert not numbers[list(flags != "suppress")].isna().all(axis=1).any()
        px = pyaxis.parse(str(files / "px" / "age.the_sex.px"), encoding="utf-8")["DATA"]
        answers = pd.to_numeric(px[px["Figure"] == "Answer"]["DATA"], errors="coerce")
        assert list(answers.isna()) == list(flags == "suppress")
        book = _book(files)
        made = shown.table("age", "the sex").crosstab("age", "the sex", flags=FLAGS)
        hidden = np.array(made.reliability.flags(*made.numbers[:2])).reshape(made.numbers[0].shape) == "suppress"
        sheet = book["age x the sex"]
        for i, j in zip(*np.nonzero(hidden), strict=True):
            for first in (2, 2 + 12):
                values = [sheet.cell(6 + int(i), first + 3 * int(j) + k).value for k in range(3)]
                assert values == ["··"] * 3
        assert any("left out (··) above 40 %" in str(c.value) for c in sheet["A"])
        rows = list(book[book.sheetnames[-1]].iter_rows(min_row=4, values_only=True))
        cells = [r for r in rows if r[-1] == "··"]
        assert cells
        assert all(r[3] == "··" and r[4:8] == (None,) * 4 for r in cells)


def test_a_per_cent_goes_with_its_count(release: sf.Release, tmp_path: Path) -> None:
    """A share may be known better than its count, which follows from it and the total. Mutant: it stays."""
    import xlsxwriter

    made = release.table("age", "the sex").crosstab("age", "the sex", flags=FLAGS)
    ones = np.ones(made.numbers[0].shape)
    errors = ones * 0.01
    errors[1, 2] = 0.9
    made = replace(made, numbers=(ones, errors, ones, ones), shares=(ones, ones * 0.01, ones, ones))
    for leave_out in (True, False):
        with xlsxwriter.Workbook(tmp_path / f"{leave_out}.xlsx") as book:
            styles = workbook._Styles(book, {})
            workbook._cross_sheet(book.add_worksheet("x"), styles, made, "t", TOLD, leave_out=leave_out)
        sheet = openpyxl.load_workbook(tmp_path / f"{leave_out}.xlsx")["x"]
        found = [sheet.cell(7, first + k).value for first in (8, 20) for k in range(3)]
        assert found == ["··" if leave_out else 1] * 6
        assert sheet.cell(8, 8).value == sheet.cell(8, 20).value == 1


def test_what_stays_has_its_mark_beside_it(folder: Path) -> None:
    """Mutant: the legend says left out beside numbers that are not."""
    book = _book(folder)
    for place in ("read me", "age x the sex"):
        words = " ".join(str(c.value) for row in book[place].iter_rows() for c in row if c.value)
        assert "·· (too uncertain to print) above 40 %" in words
        assert "left out" not in words.split("Flags tell")[1].split("above 40 %")[0]
    note = (folder / "px" / "age.px").read_text(encoding="utf-8")
    assert "too uncertain to print" in " ".join(note.split('"\n"'))


def test_single_answers_are_left_out_of_the_workbook(tmp_path: Path) -> None:
    """Mutant: named counts without flags."""
    domain = sf.Domain({"age": 4, "sex": 2})
    asked = sf.predicates(domain, ["age == 0 and sex == 0", "age == 1"])
    plan = sf.plan(sf.stack(asked, sf.marginals(domain, upto=1)), sf.gdp(1), neighbours="add-remove")
    counts = np.full((4, 2), 900)
    counts[0, 0] = 0
    made = sf.release(plan, sf.Histogram(counts), ledger=None)
    assert isinstance(made, sf.Release)
    for leave_out in (True, False):
        files = write_formats(
            made, tmp_path / f"{leave_out}", ["xlsx"], publication=Publication(flags=SURE), leave_out=leave_out
        )
        rows = list(_book(files)["named counts"].iter_rows(min_row=3, max_row=5, values_only=True))
        assert rows[0][-1] == "Flag"
        assert rows[1][-1] == "··"
        assert (rows[1][1:5] == ("··", None, None, None)) is leave_out
        assert isinstance(rows[2][1], (int, float))
        (table,) = singles_table(made, SURE)
        assert table.frame["Answer"][0] == "··"


def test_without_a_publication_there_are_no_flags(release: sf.Release, tmp_path: Path) -> None:
    made = write_formats(release, tmp_path / "plain", ["csv", "px", "sdmx"])
    assert "flag" not in pd.read_csv(made / "csv" / "age.csv").columns
    assert "FLAG" not in pd.read_csv(made / "sdmx" / "age.csv").columns
    assert "DATANOTECELL" not in (made / "px" / "age.px").read_text(encoding="utf-8")


def test_what_cannot_be_written_is_refused(release: sf.Release, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="formats are some of csv"):
        write_formats(release, tmp_path / "x", ["docx"])
    with pytest.raises(InvalidInput, match="none"):
        write_formats(release, tmp_path / "x", [])
    with pytest.raises(PlanError, match="whose errors are known"):
        write_formats("release", tmp_path / "x")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="no declared attribute"):
        write_formats(release, tmp_path / "x", publication=Publication(labels={"height": "x"}))
    with pytest.raises(PlanError, match="none of its cells"):
        write_formats(release, tmp_path / "x", publication=Publication(categories={"the sex": {"q": "x"}}))
    assert not (tmp_path / "x").exists()
    assert list(FORMATS)[-1] == "dcat"


# -- measures ----------------------------------------------------------------------------------------------------

MEANS = Publication(
    title="Costs",
    institution="Office",
    flags={"*": 0.05, "**": 0.15, "suppress": 0.5},
    labels={"ward": "Ward", "cost": {"en": "Cost", "de": "Kosten"}},
    units={"cost": "euro"},
    categories={"ward": {"a": "North ward"}},
)
MEASURED = "cost.by.ward"


@pytest.fixture(scope="module")
def measured() -> sf.Release:
    """Means and sums of costs; in ward b few records, in ward c numbers below 0, and nobody in (other)."""
    policies = {"outside": "other", "missing": "other"}
    axes = {"ward": sf.Categories(["a", "b", "c"], **policies), "age": sf.Integers(0, 3, **policies)}  # type: ignore[arg-type]
    domain = sf.Domain(axes, measures={"cost": sf.Measure(-100, 300)})
    work = sf.stack(tables=sf.marginals(domain, sets=[("ward", "age")]), means=sf.means(domain, "cost", by=["ward"]))
    plan = sf.plan(work, sf.gdp(4), neighbours="add-remove")
    wards = ["a"] * 400 + ["b"] * 40 + ["c"] * 300
    costs = [50.0] * 400 + [20.0] * 40 + [-80.0] * 300
    rows = pd.DataFrame({"ward": wards, "age": [0, 1, 2, 3] * 185, "cost": costs})
    made = sf.release(plan, rows, ledger=None)
    assert isinstance(made, sf.Release)
    return made


@pytest.fixture(scope="module")
def costs(measured: sf.Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    formats = [f for f in FORMATS if f != "dcat"]
    return write_formats(measured, tmp_path_factory.mktemp("costs") / "files", formats, publication=MEANS)


def told(release: sf.Release) -> pd.DataFrame:
    """Means and sums as Python tells them, with the flags of their own relative standard errors."""
    mean = release.mean("cost", by="ward").to_pandas().rename(columns={"mean cost": "answer"})
    asked = release.ask(sf.sums(release.plan.workload.domain, "cost", by="ward")).to_pandas()
    both = pd.concat([mean, asked])[["answer", "standard_error", "low", "high"]].astype(float).reset_index(drop=True)
    relative = (both.standard_error / both.answer.abs()).fillna(math.inf)
    both["flag"] = np.select([relative > 0.5, relative > 0.15, relative > 0.05], ["suppress", "**", "*"], "")
    return both


NUMBERS = ["answer", "standard_error", "low", "high"]


def same(found: pd.DataFrame, release: sf.Release, **tolerance: float) -> None:
    whole = told(release)
    np.testing.assert_allclose(found[NUMBERS].astype(float), whole[NUMBERS], **({"rtol": 1e-12} | tolerance))
    assert list(found["flag"].fillna("")) == list(whole["flag"])


def test_flags_of_means_and_sums_are_of_themselves(measured: sf.Release) -> None:
    """Mutants: the error of a sum by that from the middle of the range, which is 100 a record away; a mean below 0
    flagged as one of 0."""
    held = measure_table(measured, "cost", ("ward",), 0.95)
    assert held is not None
    whole, found = told(measured), held.frame(MEANS.flags)
    assert list(found["flag"]) == list(whole.flag)
    assert whole.flag[0] == whole.flag[2] == whole.flag[4] == whole.flag[6] == ""
    assert whole.flag[5] in ("*", "**")  # 800 ± 90 from 0; from the middle it were -3,200 ± 90, without a flag
    assert whole.flag[3] == "suppress"


def test_measures_are_in_csv_and_parquet(measured: sf.Release, costs: Path) -> None:
    """Mutants: means left out; sums before means under the labels of means."""
    table = pd.read_csv(costs / "csv" / f"{MEASURED}.csv")
    assert list(table["statistic"]) == ["mean"] * 4 + ["sum"] * 4
    assert list(table["ward"][:4]) == ["a", "b", "c", "(other)"]
    same(table, measured)
    same(pd.read_parquet(costs / "parquet" / f"{MEASURED}.parquet"), measured)


def test_measures_are_in_csvw_and_the_data_package(
    measured: sf.Release, costs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from csvw import CSVW
    from frictionless import Package

    found = CSVW(str(costs / "csv" / "csv-metadata.json"), validate=True)
    assert found.is_valid
    table = next(t for t in found.tables if str(t.url) == f"{MEASURED}.csv")
    same(pd.DataFrame(list(table.iterdicts(strict=True))).replace({None: math.nan}), measured)
    described = json.loads((costs / "csv" / "csv-metadata.json").read_text(encoding="utf-8"))
    one = next(t for t in described["tables"] if t["url"] == f"{MEASURED}.csv")
    assert one["dc:title"] == "Cost (euro) by Ward"
    assert one["dc:description"] == "of values cut to −100 to 300"
    monkeypatch.chdir(costs)
    package = Package("datapackage.json")
    assert package.validate().valid
    resource = package.get_resource(MEASURED)
    assert resource.title == "Cost (euro) by Ward"
    same(pd.DataFrame([r.to_dict() for r in resource.read_rows()]), measured)


def test_measures_are_in_px(measured: sf.Release, costs: Path) -> None:
    from pyaxis import pyaxis

    found = pyaxis.parse(str(costs / "px" / f"{MEASURED}.px"), encoding="utf-8")
    data, about, whole = found["DATA"], found["METADATA"], told(measured)
    assert about["UNITS"] == ["Cost (euro)"]
    assert about["TITLE"] == ["Costs: Cost (euro) by Ward"]
    assert about["NOTE"][0].startswith("Of values cut to −100 to 300.")
    assert list(dict.fromkeys(data["Statistic"])) == ["mean", "sum"]
    # a mean has more decimals than a sum, by the errors of each
    errors = {"mean": np.nanmedian(whole["standard_error"][:4]), "sum": np.nanmedian(whole["standard_error"][4:])}
    few = {s: max(0, 1 - math.floor(math.log10(float(e)))) for s, e in errors.items()}
    assert few["mean"] > few["sum"]
    assert shown_decimals(about, data)[0] == few["sum"]
    assert int("".join(about["PRECISION(Statistic,mean)"])) == few["mean"]
    assert list(dict.fromkeys(data["Ward"])) == ["North ward", "b", "c", "(other)"]
    for figure, column in (("Answer", "answer"), ("Standard error", "standard_error"), ("95 % to", "high")):
        numbers = pd.to_numeric(data[data["Figure"] == figure]["DATA"], errors="coerce")
        np.testing.assert_allclose(numbers, whole[column], rtol=1e-11)
    noted = {k: v[0] for k, v in about.items() if k.startswith("DATANOTECELL")}
    cells = [f"DATANOTECELL({s},{w},Answer)" for s in ("mean", "sum") for w in ("North ward", "b", "c", "(other)")]
    assert noted == {c: SHOWN.get(f, f) for c, f in zip(cells, whole.flag, strict=True) if f}


def test_measures_are_in_sdmx(measured: sf.Release, costs: Path) -> None:
    from pysdmx.io import get_datasets, read_sdmx

    structures = costs / "sdmx" / "structures.xml"
    assert read_sdmx(structures, validate=True).structures
    (data,) = get_datasets(costs / "sdmx" / f"{MEASURED}.csv", structures)
    found = data.data.replace("", math.nan).rename(columns={"OBS_VALUE": "answer"})
    found.columns = found.columns.str.lower()
    same(found, measured)
    assert list(found["statistic"]) == ["mean"] * 4 + ["sum"] * 4


def test_measures_are_in_the_workbook(measured: sf.Release, costs: Path) -> None:
    """A sheet each, named on the first. Mutant: the sheet not listed."""
    book = _book(costs)
    sheet = book["cost by ward"]
    rows = list(sheet.iter_rows(min_row=3, values_only=True))
    assert list(rows[0][:3]) == ["Statistic", "Ward", "Answer"]
    assert [r[1] for r in rows[1:5]] == ["North ward", "b", "c", "(other)"]
    found = pd.DataFrame([r[2:6] for r in rows[1:9]], columns=NUMBERS)
    found["flag"] = [{"··": "suppress"}.get(r[7], r[7] or "") for r in rows[1:9]]
    same(found, measured)
    said = [str(r[0]) for r in rows[9:] if r[0]]
    assert said[0] == "Of values cut to −100 to 300."
    assert "·· (too uncertain to print) above 50 %" in said[1]
    listed = [c.value for c in book["read me"]["B"] if c.hyperlink]
    assert "Cost (euro) by Ward" in listed


def test_measures_are_apart_in_plain_files(measured: sf.Release, costs: Path) -> None:
    """Who adds up cells of tables must not meet means there. Mutant: them in tables.csv."""
    listed = pd.read_csv(costs / "plain" / "measures.csv")
    assert list(listed["file"]) == [f"{MEASURED}.csv"]
    assert list(listed["attributes"]) == ["statistic ward"]
    assert MEASURED not in set(pd.read_csv(costs / "plain" / "tables.csv")["table"])
    same(pd.read_csv(costs / "plain" / f"{MEASURED}.csv"), measured)


def test_projected_means_keep_their_errors_and_flags(measured: sf.Release, tmp_path: Path) -> None:
    """Mutant: the flags of projected means by an error that is not known, which are all suppressed."""
    moved = measured.project()
    files = write_formats(moved, tmp_path / "files", ["csv", "plain"], publication=MEANS)
    found, plain = (pd.read_csv(files / kind / f"{MEASURED}.csv") for kind in ("csv", "plain"))
    whole = told(measured)
    assert found["standard_error"].isna().all()
    np.testing.assert_allclose(plain["standard_error"], whole["standard_error"], rtol=1e-12)
    np.testing.assert_allclose(plain["unprojected"], whole["answer"], rtol=1e-12)
    np.testing.assert_allclose(found["answer"][:3], moved.mean("cost", by="ward")["mean cost"][:3], rtol=1e-12)
    assert found["flag"].fillna("")[0] == ""


def test_a_mean_of_all_has_files_of_its_own(tmp_path: Path) -> None:
    """One number has the statistic as its only axis. Mutant: PX and SDMX without any dimension."""
    from pyaxis import pyaxis
    from pysdmx.io import read_sdmx

    axes = {"statistic": sf.Integers(0, 1, outside="other", missing="other")}
    domain = sf.Domain(axes, measures={"cost": sf.Measure(0, 100, knots=[20]), "days": sf.Measure(0, 9)})
    work = sf.stack(
        sf.means(domain, "cost", clip="best"), sf.means(domain, "days"), sf.means(domain, "days", by="statistic")
    )
    plan = sf.plan(work, sf.gdp(1), neighbours="add-remove")
    rows = pd.DataFrame({"statistic": [0, 1] * 200, "cost": [50.0] * 400, "days": [3.0] * 400})
    made = sf.release(plan, rows, ledger=None)
    assert isinstance(made, sf.Release)
    files = write_formats(made, tmp_path / "files")
    statistics = ["mean", "sum", "mean gap below 20", "mean, cut where it errs least"]
    cost = pd.read_csv(files / "csv" / "cost.csv")
    assert list(cost["statistic"]) == statistics
    np.testing.assert_allclose(cost["answer"][0], made.mean("cost")["mean cost"][0], rtol=1e-12)
    assert list(dict.fromkeys(pyaxis.parse(str(files / "px" / "cost.px"), "utf-8")["DATA"]["Statistic"])) == statistics
    assert read_sdmx(files / "sdmx" / "structures.xml", validate=True).structures
    grouped = pd.read_csv(files / "csv" / "days.by.statistic.csv")
    assert list(grouped.columns[:2]) == ["statistic of days", "statistic"]


def test_a_release_of_a_measure_is_published(measured: sf.Release, tmp_path: Path) -> None:
    """A measure is summed, not counted: nothing is told by its cells; means and sums have flags on the page, and the
    rule. Mutants: groupings by measures; flags for counts alone; a number beside the dots."""
    page = (publish(measured, tmp_path / "site", publication=MEANS) / "index.html").read_text(encoding="utf-8")
    glance = page.split('id="glance"')[1].split("</section>")[0]
    assert "<th>Flag</th>" in glance
    assert "left out (··) above 50 %" in glance
    (table,) = measures_table(measured, MEANS.flags)
    lines, whole = table.frame.to_pandas(), told(measured)
    assert list(lines["Statistic"]) == ["mean"] * 4 + ["sum"] * 4
    hidden = [f == "suppress" for f in whole.flag]
    assert [a == "··" for a in lines["Answer"]] == hidden
    assert [a == "··" for a in lines["to"]] == hidden
    assert list(lines["Flag"]) == ["" if f == "suppress" else f for f in whole.flag]
    assert "Flag" not in measures_table(measured)[0].frame.columns
    report = render(measured, publication=MEANS)
    assert "left out (··) above 50 %" in report
