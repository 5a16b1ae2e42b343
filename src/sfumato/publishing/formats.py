"""The tables of a release in the formats of statistical offices and open data, for other programs to read.

A folder holds one CSV file for each table, which CSVW and a Frictionless data package describe, SDMX (`sdmx`), PX files
(`px`), Parquet, a workbook (`workbook`), plain CSV files with covariances for programs without Python, and an entry for
a DCAT catalogue. Every file has answers, standard errors and ends of intervals; with an office's marks also flags. A
number is left out of a file only if that is asked for.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from sfumato._util.catalogue import say_words, speak
from sfumato._util.frames import Frame, safe_text
from sfumato.errors import InvalidInput, PlanError
from sfumato.present.words import budget_statement
from sfumato.privacy.noise import DiscreteLaplace
from sfumato.publishing.office_tables import (
    CODES,
    OFFICE_CONFIDENCE,
    OfficeFiles,
    WrittenTable,
    csv_text,
    write_office_text,
    written_tables,
)
from sfumato.publishing.px import write_px
from sfumato.publishing.sdmx import write_sdmx
from sfumato.publishing.workbook import write_workbook
from sfumato.releases import Release
from sfumato.releases.files import Draft, write_parquet
from sfumato.releases.measure_tables import MeasureTable
from sfumato.releases.methods import method_paragraph
from sfumato.releases.publication import Publication
from sfumato.releases.reliability import read_reliability


def write_formats(
    release: Release,
    folder: str | PathLike[str],
    formats: Sequence[str] | None = None,
    *,
    publication: Publication | None = None,
    leave_out: bool = False,
) -> Path:
    """Write the tables of a release to a new folder in the formats of `FORMATS`, all but "plain" unless named.

    Tables are those that were asked for, the smallest first, up to 500 and a million cells. With `leave_out` numbers
    that a publication flags "suppress" are missing from these files; the release's own always have them. It costs
    nothing. Returns the folder. Raises InvalidInput for a format or a folder that it cannot take, PlanError for a
    release without errors and for a label of what is not declared, MissingExtra where "xlsx" has no xlsxwriter.

    >>> import tempfile, pathlib
    >>> from sfumato.publishing import write_formats
    >>> made = sf.plan(sf.marginals(sf.Domain({"age": 4, "sex": 2}), upto=2), sf.gdp(1), neighbours="add-remove")
    >>> ages = sf.release(made, sf.Histogram(np.full((4, 2), 9)), ledger=None, name="ages")
    >>> with tempfile.TemporaryDirectory() as place:
    ...     written = write_formats(ages, pathlib.Path(place) / "files", ["px", "csvw"])
    ...     sorted(p.name for p in written.rglob("*.*"))
    ['age.csv', 'age.px', 'age.sex.csv', 'age.sex.px', 'codes.csv', 'csv-metadata.json', 'sex.csv', 'sex.px']
    """
    if not isinstance(release, Release):
        raise PlanError("files for offices are written of a release whose errors are known")
    wanted = [f for f in FORMATS if f != _LARGE] if formats is None else list(dict.fromkeys(formats))
    strange = [f for f in wanted if f not in FORMATS]
    if strange or not wanted:
        raise InvalidInput(f"formats are some of {', '.join(FORMATS)}, not {strange or 'none'}")
    told = publication or Publication()
    told.check_names(release.plan.workload.domain)
    with speak(told.language, told.called()), Draft(folder) as draft:
        tables = tuple(written_tables(release, told, leave_out=leave_out))
        files = OfficeFiles(release, told, tables, draft.partial, leave_out)
        for name in wanted:
            FORMATS[name](files)
        draft.publish()
    return draft.folder


def _json_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


# -- CSV, CSVW, Frictionless ---------------------------------------------------------------------------------


def _write_csvs(files: OfficeFiles) -> None:
    """One file for each table, as spreadsheets and programs read it; texts cannot act as formulas."""
    for t in files.tables:
        body = zip(*t.frame.columns.values(), strict=True)
        lines = [[safe_text(v) if isinstance(v, str) else v for v in row] for row in body]
        write_office_text(files, f"csv/{t.stem}.csv", csv_text([[safe_text(n) for n in t.frame.columns], *lines]))
    write_office_text(files, f"csv/{CODES}.csv", csv_text([_CODE_COLUMNS, *_code_rows(files)]))


_CODE_COLUMNS = ("attribute", "code", "label")


def _code_rows(files: OfficeFiles) -> list[tuple[str, ...]]:
    """What readers call each cell of each attribute, in the publication's language."""
    found: dict[tuple[str, str], str] = {}
    for t in files.tables:
        for name, codes, texts in zip(t.columns, t.table.labels, t.texts, strict=True):
            found |= {
                (safe_text(name), safe_text(code)): safe_text(text) for code, text in zip(codes, texts, strict=True)
            }
    return [(*key, text) for key, text in found.items()]


def _each_language(text: Any) -> list[str | dict[str, str]]:
    """A text as JSON-LD has it, once for each language."""
    if isinstance(text, str):
        return [text] if text else []
    return [{"@value": said, "@language": language} for language, said in text.items()]


def _write_csvw(files: OfficeFiles) -> None:
    """CSVW metadata beside the CSV files: columns, types, keys, labels in every language."""
    _write_csvs(files)
    told = files.publication
    tables: list[dict[str, Any]] = []
    for t in files.tables:
        columns: list[dict[str, Any]] = []
        for name in t.frame.columns:
            one: dict[str, Any] = {"name": _csvw_name(name), "titles": [safe_text(name)]}
            if name in t.columns:
                attribute = t.table.attributes[t.columns.index(name)]
                labels = _each_language(told.labels.get(attribute, ""))
                one |= {"datatype": "string", "required": True} | ({"rdfs:label": labels} if labels else {})
                one |= {"dc:description": u} if (u := _each_language(told.units.get(attribute, ""))) else {}
            else:
                one |= {"datatype": "string" if name == "flag" else "number"}
            columns.append(one)
        keys = [_csvw_name(n) for n in t.columns]
        tables.append(
            {"url": f"{t.stem}.csv", "dc:title": t.title}
            | ({"dc:description": t.note} if t.note else {})
            | {"tableSchema": {"columns": columns, "primaryKey": keys}}
        )
    codes = [{"name": n, "titles": [n], "datatype": "string", "required": True} for n in _CODE_COLUMNS]
    keyed = {"columns": codes, "primaryKey": list(_CODE_COLUMNS[:2])}
    tables.append({"url": f"{CODES}.csv", "dc:title": say_words("Labels"), "tableSchema": keyed})
    described: dict[str, Any] = {
        "@context": "http://www.w3.org/ns/csvw",
        "dc:title": _each_language(told.title) or files.title,
    }
    for key, name in (("dc:publisher", "institution"), ("dc:license", "licence"), ("dc:temporal", "period")):
        described |= {key: text} if (text := told.text(name)) else {}
    described |= {"dc:language": told.language, "dc:description": method_paragraph(files.release)}
    write_office_text(files, "csv/csv-metadata.json", _json_text(described | {"tables": tables}))


def _csvw_name(name: str) -> str:
    """A name of a column: URI templates take few characters, others are percent-encoded."""
    return quote(name, safe="").replace("-", "%2D").replace("~", "%7E")


_CSV_FILE = {"format": "csv", "mediatype": "text/csv", "encoding": "utf-8", "profile": "tabular-data-resource"}


def _write_frictionless(files: OfficeFiles) -> None:
    """A Frictionless data package over the CSV files."""
    _write_csvs(files)
    told = files.publication
    resources: list[dict[str, Any]] = []
    for t in files.tables:
        described: list[dict[str, Any]] = []
        for name in t.frame.columns:
            if name in t.columns:
                axis = t.columns.index(name)
                cells = [safe_text(label) for label in t.table.labels[axis]]
                limits = {"required": True, "enum": cells}
                described.append(
                    {"name": safe_text(name), "type": "string", "title": t.headings[axis], "constraints": limits}
                )
            else:
                described.append({"name": name, "type": "string" if name == "flag" else "number"})
        schema = {"fields": described, "primaryKey": [safe_text(n) for n in t.columns], "missingValues": [""]}
        names = {"name": t.stem.lower(), "title": t.title, "path": f"csv/{t.stem}.csv"}
        names |= {"description": t.note} if t.note else {}
        resources.append(names | _CSV_FILE | {"schema": schema})
    listed = [{"name": n, "type": "string", "constraints": {"required": True}} for n in _CODE_COLUMNS]
    codes = {"fields": listed, "primaryKey": list(_CODE_COLUMNS[:2])}
    names = {"name": CODES, "title": say_words("Labels"), "path": f"csv/{CODES}.csv"}
    resources.append(names | _CSV_FILE | {"schema": codes})
    package: dict[str, Any] = {
        "name": re.sub(r"[^a-z0-9._-]+", "-", files.title.lower()).strip("-") or "release",
        "title": files.title,
        "description": method_paragraph(files.release),
        "created": files.release.provenance.created,
    }
    if text := told.text("institution"):
        package["contributors"] = [{"title": text, "role": "publisher"}]
    if text := told.text("licence"):
        package["licenses"] = [{"path" if "://" in text else "name": text}]
    write_office_text(files, "datapackage.json", _json_text(package | {"resources": resources}))


# -- others ----------------------------------------------------------------------------------------------------


def _write_parquets(files: OfficeFiles) -> None:
    """Parquet, one file for each table."""
    (files.folder / "parquet").mkdir()
    for t in files.tables:
        about = {"title": f"{files.title}: {t.title}", "release": files.release.provenance.name}
        # None, for what is not known, is NaN there, as in the release's own files
        columns = {
            n: np.array(c, dtype=object if n in t.columns or n == "flag" else np.float64)
            for n, c in t.frame.columns.items()
        }
        write_parquet(columns, files.folder / "parquet" / f"{t.stem}.parquet", about)


def _write_excel(files: OfficeFiles) -> None:
    """A workbook that can be sent."""
    write_workbook(files.release, files.folder / "tables.xlsx", files.publication, leave_out=files.leave_out)


_MEDIA = {
    ".csv": "text/csv",
    ".px": "text/x-pcaxis",
    ".parquet": "application/vnd.apache.parquet",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}


def _write_dcat(files: OfficeFiles) -> None:
    """An entry for a catalogue: DCAT as JSON-LD, with every file that was written."""
    told = files.publication
    base = "https://www.iana.org/assignments/media-types/"
    found = sorted(p for p in files.folder.rglob("*") if p.suffix in _MEDIA)
    distributions = [
        {
            "@type": "dcat:Distribution",
            "dct:title": p.relative_to(files.folder).as_posix(),
            "dcat:downloadURL": {"@id": quote(p.relative_to(files.folder).as_posix())},
            "dcat:mediaType": {"@id": base + _MEDIA[p.suffix]},
        }
        for p in found
    ]
    entry: dict[str, Any] = {
        "@context": {
            "dcat": "http://www.w3.org/ns/dcat#",
            "dct": "http://purl.org/dc/terms/",
            "foaf": "http://xmlns.com/foaf/0.1/",
            "vcard": "http://www.w3.org/2006/vcard/ns#",
        },
        "@type": "dcat:Dataset",
        "dct:title": _each_language(told.title) or [files.title],
        "dct:description": [{"@value": method_paragraph(files.release), "@language": told.language}],
        "dct:issued": files.release.provenance.created,
        "dct:identifier": files.release.result_hash,
    }
    if text := told.text("institution"):
        entry["dct:publisher"] = {"@type": "foaf:Organization", "foaf:name": text}
    if text := told.text("contact"):
        entry["dcat:contactPoint"] = {"@type": "vcard:Organization", "vcard:fn": text}
    if text := told.text("licence"):
        entry["dct:license"] = {"@id": text} if "://" in text else text
    if text := told.text("period"):
        entry["dct:temporal"] = text
    entry["dcat:distribution"] = distributions
    write_office_text(files, "dcat.jsonld", _json_text(entry))


# -- plain files, for programs without Python ----------------------------------------------------------------

_LARGE = "plain"  # with covariances some hundred times the cells: written where it is named
PLAIN = "sfumato tables 1"
"""What about.csv of these files calls their form; docs/format.md describes it."""
_MOST_COVARIANCES = 300  # cells of a table whose covariances are written: a file of 2 MB


def _write_plain(files: OfficeFiles) -> None:
    """CSV files alone, every digit: what it is, which tables there are, their cells, and the covariances of these."""
    release = files.release
    told = release.plan
    with speak("en"):  # programs read it
        guarantee = budget_statement(told.budget)
    about = [
        ("format", PLAIN),
        ("name", release.provenance.name),
        ("title", files.title),
        ("guarantee", guarantee),
        ("protected", told.unit.describe()),
        ("noise", "laplace" if isinstance(told.noise, DiscreteLaplace) else "gaussian"),
        ("biased", "yes" if told.bias_records is not None else "no"),
        ("projected", "no" if release.projection is None else "yes"),
        ("confidence", repr(OFFICE_CONFIDENCE)),
        (
            "flags",
            read_reliability(files.publication.flags).statement(left_out=files.leave_out)
            if files.publication.flags
            else "",
        ),
        ("method", method_paragraph(release)),
    ]
    write_office_text(files, "plain/about.csv", csv_text([("key", "value"), *about]))
    lines: list[Sequence[Any]] = [("table", "attributes", "cells", "file", "covariances")]
    # apart: who adds up cells must not add up means
    measured: list[Sequence[Any]] = [("measure", "attributes", "cells", "file", "note")]
    for t in files.tables:
        names, cells = t.table.attributes, t.table.values.size
        frame = _plain_frame(files, t)
        body = zip(*frame.columns.values(), strict=True)
        rows = [[safe_text(v) if isinstance(v, str) else v for v in row] for row in body]
        write_office_text(files, f"plain/{t.stem}.csv", csv_text([[safe_text(n) for n in frame.columns], *rows]))
        listed = " ".join(quote(c, safe="") for c in t.columns)
        if isinstance(t.table, MeasureTable):
            measured.append((safe_text(t.table.measure), listed, cells, f"{t.stem}.csv", t.note))
            continue
        kept = ""
        if cells <= _MOST_COVARIANCES:
            kept = f"{t.stem}.covariances.csv"
            write_office_text(files, f"plain/{kept}", csv_text(release.covariance(names).tolist()))
        lines.append((t.stem, listed, cells, f"{t.stem}.csv", kept))
    write_office_text(files, "plain/tables.csv", csv_text(lines))
    if len(measured) > 1:
        write_office_text(files, "plain/measures.csv", csv_text(measured))


def _plain_frame(files: OfficeFiles, t: WrittenTable) -> Frame:
    """The rows with errors from before a projection, and the answers from then; nothing of what was left out."""
    columns = dict(t.frame.columns)
    more = {"standard_error": t.table.noise_errors()}
    if files.release.projection is not None:
        more["unprojected"] = t.table.unprojected()
    blank = [v is None for v in columns["answer"]]
    for name, values in more.items():
        pairs = zip(values.reshape(-1).tolist(), blank, strict=True)
        columns[name] = [None if left or math.isnan(v) else v for v, left in pairs]
    return Frame(columns)


FORMATS: Mapping[str, Callable[[OfficeFiles], None]] = {
    "csv": _write_csvs,
    "csvw": _write_csvw,
    "frictionless": _write_frictionless,
    "sdmx": write_sdmx,
    "px": write_px,
    "parquet": _write_parquets,
    "xlsx": _write_excel,
    "plain": _write_plain,
    "dcat": _write_dcat,
}
"""What `write_formats` writes, by name; the catalogue entry is last, as it lists the files of all others."""
