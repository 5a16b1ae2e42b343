"""Files for offices, each read back by somebody else's reader: numbers, labels and flags are those of the release."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pytest

import sfumato as sf
from sfumato.errors import InvalidInput, PlanError
from sfumato.publishing import FORMATS, Publication, publish, write_formats
from sfumato.releases.crosstab import CrossTable

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
    assert len(list(folder.glob("csv/*.csv"))) == 7


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
            mark = {"suppress": "··"}.get(flags[i, j], flags[i, j])
            assert cells[0].number_format.endswith(f'"{mark}"' if mark else ("0", "%")[numbers is made.shares])


def test_tables_of_three_attributes_are_lists_with_flags(release: sf.Release, folder: Path) -> None:
    book = _book(folder)
    sheet = book[book.sheetnames[-1]]
    rows = list(sheet.iter_rows(min_row=3, values_only=True))
    whole = release.table("age", "the sex", "región").frame(FLAGS).to_pandas()
    numbers = ["Answer", "Standard error", "Low", "High", "Relative standard error", "Flag"]
    assert list(rows[0]) == ["Age (years)", "Sex", "región", *numbers]
    np.testing.assert_allclose([r[3] for r in rows[1:]], whole["answer"], rtol=1e-12)
    assert [r[-1] or "" for r in rows[1:]] == list(whole["flag"])
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


def test_a_release_of_a_measure_is_published(tmp_path: Path) -> None:
    """A measure is summed, not counted: nothing is told by its cells. Mutant: groupings by measures."""
    policies = {"outside": "other", "missing": "other"}
    axes = {"ward": sf.Categories(["a", "b"], **policies), "age": sf.Integers(0, 3, **policies)}  # type: ignore[arg-type]
    domain = sf.Domain(axes, measures={"cost": sf.Measure(0, 100)})
    work = sf.stack(tables=sf.marginals(domain, sets=[("ward", "age")]), means=sf.means(domain, "cost", by=["ward"]))
    plan = sf.plan(work, sf.gdp(1), neighbours="add-remove")
    rows = pd.DataFrame({"ward": ["a", "b"] * 200, "age": [0, 1, 2, 3] * 100, "cost": [5.0, 50.0] * 200})
    made = sf.release(plan, rows, ledger=None)
    assert (publish(made, tmp_path / "site") / "index.html").is_file()
    assert (write_formats(made, tmp_path / "files") / "csv" / "ward.age.csv").is_file()
