"""The tables of a release in the formats of statistical offices and open data, for other programs to read.

A folder holds one CSV file for each table, which CSVW and a Frictionless data package describe, SDMX-CSV 2.0 with its
structure, PX files, Parquet, a workbook (`workbook`), plain CSV files with covariances for programs without Python, and
an entry for a DCAT catalogue. Every file has answers,
standard errors and ends of intervals; with an office's marks also flags. A number is left out of a file only if that
is asked for.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from sfumato._util.catalogue import page_language, say_note, say_words, speak
from sfumato._util.frames import Frame, printable, safe_text
from sfumato.errors import InvalidInput, PlanError
from sfumato.present.words import budget_statement
from sfumato.privacy.noise import DiscreteLaplace
from sfumato.publishing.site import tables_to_publish
from sfumato.publishing.workbook import NUMBERS, as_sentence, write_workbook
from sfumato.releases import Release, Table
from sfumato.releases.ends import column_heading
from sfumato.releases.files import Draft, write_parquet
from sfumato.releases.measure_tables import MeasureTable, measure_tables
from sfumato.releases.methods import method_paragraph
from sfumato.releases.publication import Publication
from sfumato.releases.reliability import SUPPRESS, read_reliability

_MOST_TABLES, _MOST_ROWS = 500, 1_000_000  # files that a folder can be looked through, lines that a spreadsheet takes
_CONFIDENCE = 0.95  # of the intervals, as on pages
_PERIOD = re.compile(r"\d{4}(-(\d\d(-\d\d)?|Q[1-4]|S[12]|W\d\d))?")
"""What SDMX takes for a period of time."""


@dataclass(frozen=True, slots=True)
class _Written:
    """A table as it is written: its rows with flags, its texts for readers, and a name for its files."""

    table: Table
    frame: Frame
    stem: str
    headings: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...]
    title: str
    of: str
    note: str = ""

    @property
    def columns(self) -> list[str]:
        """The heads of its columns that hold labels."""
        return [column_heading(a) for a in self.table.attributes]


@dataclass(frozen=True, slots=True)
class _Files:
    """What all formats are made from."""

    release: Release
    publication: Publication
    tables: tuple[_Written, ...]
    folder: Path
    leave_out: bool

    @property
    def title(self) -> str:
        """What the publication is called."""
        return self.publication.text("title") or self.release.provenance.name


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
        tables = tuple(_written_tables(release, told, leave_out=leave_out))
        files = _Files(release, told, tables, draft.partial, leave_out)
        for name in wanted:
            FORMATS[name](files)
        draft.publish()
    return draft.folder


def _written_tables(release: Release, told: Publication, *, leave_out: bool) -> Iterator[_Written]:
    rows, used = 0, {CODES}
    for table in _all_tables(release):
        rows += table.values.size
        if rows > _MOST_ROWS:
            return
        frame = table.frame(told.flags)
        if not told.flags:
            frame = Frame({n: c for n, c in frame.columns.items() if n != "flag"})
        shown = table.labelled(told)
        if leave_out:
            frame = _without_suppressed(frame)
        names: tuple[str, ...] = table.attributes
        note = ""
        if isinstance(table, MeasureTable):
            names, note = (table.measure, *(("by",) if names[1:] else ()), *names[1:]), say_note(table.note)
        stem = _file_stem(names, used)
        yield _Written(table, frame, stem, shown.attributes, shown.labels, shown.title(), shown.of, note)


def _all_tables(release: Release) -> Iterator[Table]:
    """Statistics of measures, and as many tables of counts as are written."""
    yield from measure_tables(release, _CONFIDENCE)
    for names in tables_to_publish(release)[:_MOST_TABLES]:
        yield release.table(*names, confidence=_CONFIDENCE)


def _without_suppressed(frame: Frame) -> Frame:
    """The same rows, without the numbers of those that are flagged to be left out."""
    flags = frame.columns.get("flag", ())
    blank = {n: [None if f == SUPPRESS else v for f, v in zip(flags, frame[n], strict=True)] for n in NUMBERS}
    return Frame({**frame.columns, **blank}) if flags else frame


def _file_stem(names: Sequence[str], used: set[str]) -> str:
    """A name for a table's files: letters, digits and dots, each once whatever the case."""
    clean = ".".join(re.sub(r"[^A-Za-z0-9_-]+", "_", n) for n in names)[:60].strip("._") or "table"
    stem, number = clean, 1
    while stem.casefold() in used:
        number += 1
        stem = f"{clean}-{number}"
    used.add(stem.casefold())
    return stem


def _write_text(files: _Files, place: str, text: str) -> None:
    path = files.folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")


def _json_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def _csv_file(rows: Iterator[Sequence[Any]] | Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


# -- CSV, CSVW, Frictionless ---------------------------------------------------------------------------------


def _write_csvs(files: _Files) -> None:
    """One file for each table, as spreadsheets and programs read it; texts cannot act as formulas."""
    for t in files.tables:
        body = zip(*t.frame.columns.values(), strict=True)
        lines = [[safe_text(v) if isinstance(v, str) else v for v in row] for row in body]
        _write_text(files, f"csv/{t.stem}.csv", _csv_file([[safe_text(n) for n in t.frame.columns], *lines]))
    _write_text(files, f"csv/{CODES}.csv", _csv_file([_CODE_COLUMNS, *_code_rows(files)]))


CODES = "codes"
"""The file beside the tables that says what readers call their cells."""
_CODE_COLUMNS = ("attribute", "code", "label")


def _code_rows(files: _Files) -> list[tuple[str, ...]]:
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


def _write_csvw(files: _Files) -> None:
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
    _write_text(files, "csv/csv-metadata.json", _json_text(described | {"tables": tables}))


def _csvw_name(name: str) -> str:
    """A name of a column: URI templates take few characters, others are percent-encoded."""
    return quote(name, safe="").replace("-", "%2D").replace("~", "%7E")


_CSV_FILE = {"format": "csv", "mediatype": "text/csv", "encoding": "utf-8", "profile": "tabular-data-resource"}


def _write_frictionless(files: _Files) -> None:
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
    _write_text(files, "datapackage.json", _json_text(package | {"resources": resources}))


# -- SDMX ------------------------------------------------------------------------------------------------------


_SDMX = "http://www.sdmx.org/resources/sdmxml/schemas/v2_1"
_ATTRIBUTES = {"STANDARD_ERROR": "Double", "LOW": "Double", "HIGH": "Double", "RELATIVE_STANDARD_ERROR": "Double"}


def _sdmx_ids(texts: Sequence[str], *, upper: bool = False) -> list[str]:
    """Identifiers as SDMX takes them, one for each text, no two alike."""
    found: list[str] = []
    for text in texts:
        clean = re.sub(r"[^A-Za-z0-9_]+", "_", text.upper() if upper else text).strip("_") or "X"
        clean = f"N{clean}" if upper and clean[0].isdigit() else clean
        made, number = clean, 1
        while made in found:
            number += 1
            made = f"{clean}_{number}"
        found.append(made)
    return found


def _write_sdmx(files: _Files) -> None:
    """SDMX-CSV 2.0, one file for each table, and the structures that it names, as SDMX-ML 2.1."""
    told = files.publication
    agency = _sdmx_ids([told.text("institution") or "SFUMATO"], upper=True)[0][:50]
    period = text if _PERIOD.fullmatch(text := told.text("period")) else ""
    lists: dict[tuple[str, tuple[str, ...]], tuple[str, list[str], Sequence[str], str]] = {}
    structures: list[str] = []
    for t in files.tables:
        flow = _sdmx_ids([t.stem], upper=True)[0]
        reserved = [
            "OBS_VALUE",
            "TIME_PERIOD",
            "STRUCTURE",
            "STRUCTURE_ID",
            "ACTION",
            "OBS_STATUS",
            "FLAG",
            *_ATTRIBUTES,
        ]
        dimensions = _sdmx_ids([*reserved, *t.table.attributes], upper=True)[len(reserved) :]
        codes = [_sdmx_ids(labels) for labels in t.table.labels]
        keys = list(zip(t.table.attributes, t.table.labels, strict=True))
        for key, name, ids, texts, heading in zip(keys, dimensions, codes, t.texts, t.headings, strict=True):
            if key not in lists:  # two measures may have different statistics
                known = [one for one, *_ in lists.values()]
                lists[key] = (_sdmx_ids([*known, f"CL_{name}"])[-1], ids, texts, heading)
        structures.append(
            _sdmx_structure(
                agency,
                flow,
                t,
                [(d, lists[key][0]) for d, key in zip(dimensions, keys, strict=True)],
                period=bool(period),
                flags=bool(told.flags),
            )
        )
        head = ["STRUCTURE", "STRUCTURE_ID", "ACTION", *dimensions, *(["TIME_PERIOD"] if period else []), "OBS_VALUE"]
        head += [*_ATTRIBUTES, "OBS_STATUS", *(["FLAG"] if told.flags else [])]
        rows: list[list[Any]] = [head]
        for cell, row in zip(itertools.product(*codes), t.frame.rows(), strict=True):
            values = [row[n] for n in NUMBERS]
            flag = row.get("flag", "")
            # U of the code list OBS_STATUS: low reliability; M: missing
            status = "M" if values[0] is None else "U" if flag else "A"
            line = ["dataflow", f"{agency}:{flow}(1.0)", "I", *cell, *([period] if period else []), *values, status]
            rows.append([*line, *([flag] if told.flags else [])])
        _write_text(files, f"sdmx/{t.stem}.csv", _csv_file(rows))
    _write_text(files, "sdmx/structures.xml", _sdmx_message(agency, list(lists.values()), structures, files))


def _sdmx_names(name: str) -> str:
    return f'<com:Name xml:lang="{page_language()}">{escape(printable(name))}</com:Name>'


def _sdmx_structure(
    agency: str, flow: str, t: _Written, dimensions: list[tuple[str, str]], *, period: bool, flags: bool
) -> str:
    """A data structure and its dataflow."""
    scheme = f'maintainableParentID="CS_{flow}" maintainableParentVersion="1.0" agencyID="{agency}"'
    concept = f'<Ref id="{{}}" {scheme} class="Concept" package="conceptscheme"/>'

    def identity(name: str) -> str:
        return f"<str:ConceptIdentity>{concept.format(name)}</str:ConceptIdentity>"

    def listed(code_list: str) -> str:
        ref = f'<Ref id="{code_list}" version="1.0" agencyID="{agency}" class="Codelist" package="codelist"/>'
        return f"<str:LocalRepresentation><str:Enumeration>{ref}</str:Enumeration></str:LocalRepresentation>"

    def typed(kind: str) -> str:
        return f'<str:LocalRepresentation><str:TextFormat textType="{kind}"/></str:LocalRepresentation>'

    parts = [
        f'<str:Dimension id="{d}" position="{i}">{identity(d)}{listed(code_list)}</str:Dimension>'
        for i, (d, code_list) in enumerate(dimensions, 1)
    ]
    if period:
        time = f'<str:TimeDimension id="TIME_PERIOD" position="{len(dimensions) + 1}">{identity("TIME_PERIOD")}'
        parts.append(f"{time}{typed('ObservationalTimePeriod')}</str:TimeDimension>")
    kinds = {**_ATTRIBUTES, "OBS_STATUS": "String"} | ({"FLAG": "String"} if flags else {})
    attributes = "".join(
        f'<str:Attribute id="{a}" assignmentStatus="Conditional">{identity(a)}{typed(kind)}<str:AttributeRelationship>'
        '<str:PrimaryMeasure><Ref id="OBS_VALUE"/></str:PrimaryMeasure></str:AttributeRelationship></str:Attribute>'
        for a, kind in kinds.items()
    )
    measure = f'<str:PrimaryMeasure id="OBS_VALUE">{identity("OBS_VALUE")}{typed("Double")}</str:PrimaryMeasure>'
    made = {d: h for (d, _), h in zip(dimensions, t.headings, strict=True)}
    made |= {"OBS_VALUE": say_words("Answer")} | ({"TIME_PERIOD": say_words("Period")} if period else {})
    made |= {a: a.replace("_", " ").capitalize() for a in kinds}
    concepts = "".join(f'<str:Concept id="{c}">{_sdmx_names(n)}</str:Concept>' for c, n in made.items())
    own = f'agencyID="{agency}" version="1.0"'
    return (
        f'<str:ConceptScheme id="CS_{flow}" {own}>{_sdmx_names(t.title)}{concepts}</str:ConceptScheme>'
        f'|<str:DataStructure id="DSD_{flow}" {own}>{_sdmx_names(t.title)}<str:DataStructureComponents>'
        f'<str:DimensionList id="DimensionDescriptor">{"".join(parts)}</str:DimensionList>'
        f'<str:AttributeList id="AttributeDescriptor">{attributes}</str:AttributeList>'
        f'<str:MeasureList id="MeasureDescriptor">{measure}</str:MeasureList>'
        "</str:DataStructureComponents></str:DataStructure>"
        f'|<str:Dataflow id="{flow}" {own}>{_sdmx_names(t.title)}<str:Structure><Ref id="DSD_{flow}" version="1.0" '
        f'agencyID="{agency}" class="DataStructure"/></str:Structure></str:Dataflow>'
    )


def _sdmx_message(
    agency: str, lists: list[tuple[str, list[str], Sequence[str], str]], structures: list[str], files: _Files
) -> str:
    """The message with all code lists, concepts, structures and flows."""
    own = f'agencyID="{agency}" version="1.0"'
    codes = "".join(
        f'<str:Codelist id="{name}" {own}>{_sdmx_names(heading)}'
        + "".join(f"<str:Code id={quoteattr(i)}>{_sdmx_names(t)}</str:Code>" for i, t in zip(ids, texts, strict=True))
        + "</str:Codelist>"
        for name, ids, texts, heading in lists
    )
    concepts, made, flows = ("".join(part) for part in zip(*(s.split("|", 2) for s in structures), strict=True))
    spaces = f'xmlns:mes="{_SDMX}/message" xmlns:str="{_SDMX}/structure" xmlns:com="{_SDMX}/common"'
    when = files.release.provenance.created
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<mes:Structure {spaces}><mes:Header><mes:ID>SFUMATO</mes:ID>'
        f"<mes:Test>false</mes:Test><mes:Prepared>{escape(when)}</mes:Prepared>"
        f'<mes:Sender id="{agency}"/></mes:Header><mes:Structures><str:Dataflows>{flows}</str:Dataflows>'
        f"<str:Codelists>{codes}</str:Codelists><str:Concepts>{concepts}</str:Concepts>"
        f"<str:DataStructures>{made}</str:DataStructures></mes:Structures></mes:Structure>\n"
    )


# -- PX --------------------------------------------------------------------------------------------------------


_PX_LINE = 200  # characters of a line: readers take 256


def _write_px(files: _Files) -> None:
    """PX files: the attributes down, and across the answer, its standard error and the ends of its interval."""
    for t in files.tables:
        _write_text(files, f"px/{t.stem}.px", _px_text(files, t))


def _px_text(files: _Files, t: _Written) -> str:
    told, made = files.publication, files.release.provenance.created
    figure = say_words("Figure")
    heads = _px_distinct([*t.headings, figure])
    shown = [say_words(w) for w in ("Answer", "Standard error", "95 % from", "95 % to")]
    title = f"{files.title}: {t.title}"
    stamp = f"{made[:4]}{made[5:7]}{made[8:10]} {made[11:16]}"
    words: list[tuple[str, str]] = [
        ("CHARSET", '"ANSI"'),
        ("AXIS-VERSION", '"2013"'),
        ("CODEPAGE", '"utf-8"'),
        ("LANGUAGE", _px_quoted(told.language)),
        ("CREATION-DATE", _px_quoted(stamp)),
        ("DECIMALS", "6"),
        ("SHOWDECIMALS", "1"),
        ("MATRIX", _px_quoted(t.stem[:20])),
        ("SUBJECT-CODE", '"0"'),
        ("SUBJECT-AREA", _px_quoted(files.title)),
        ("TITLE", _px_quoted(title)),
        ("CONTENTS", _px_quoted(t.title)),
        ("UNITS", _px_quoted(say_words(t.of))),
        ("STUB", _px_list(heads[:-1])),
        ("HEADING", _px_list(heads[-1:])),
    ]
    for head, texts in zip(heads, (*t.texts, shown), strict=True):
        words.append((f"VALUES({_px_quoted(head)})", _px_list(_px_distinct(texts))))
    for head, labels in zip(heads, t.table.labels, strict=False):
        words.append((f"CODES({_px_quoted(head)})", _px_list(_px_distinct(labels))))
    words.append((f"CODES({_px_quoted(heads[-1])})", _px_list(NUMBERS[:4])))
    words.append(("LAST-UPDATED", _px_quoted(stamp)))
    for key, name in (("CONTACT", "contact"), ("SOURCE", "institution"), ("REFPERIOD", "period"), ("COPYRIGHT", "")):
        text = "YES" if not name and told.text("licence") else told.text(name) if name else ""
        words += [(key, text if not name else _px_quoted(text))] if text else []
    marks = read_reliability(told.flags)
    notes = [as_sentence(t.note), method_paragraph(files.release), told.text("notes"), told.text("licence")]
    notes += [marks.statement(left_out=files.leave_out)] if marks.classes else []
    words += [("NOTE", _px_quoted(" ".join(n for n in notes if n)))]
    cells = itertools.product(*(_px_distinct(labels) for labels in t.texts))
    rows = t.frame.rows()
    flagged = [(cell, row["flag"]) for cell, row in zip(cells, rows, strict=True) if row.get("flag")]
    for cell, flag in flagged:
        place = ",".join(_px_quoted(x) for x in (*cell, shown[0]))
        words.append((f"DATANOTECELL({place})", _px_quoted("··" if flag == SUPPRESS else flag)))
    numbers = "\n".join(" ".join(_px_number(row[n]) for n in NUMBERS[:4]) for row in rows)
    return "\n".join(f"{key}={text};" for key, text in words) + f"\nDATA=\n{numbers};\n"


def _px_distinct(texts: Sequence[str]) -> list[str]:
    """Texts as PX has them, no two alike."""
    found: list[str] = []
    for text in texts:
        made = re.sub(r"\s+", " ", safe_text(text).replace('"', "'")).strip() or "-"
        while made in found:
            made += "'"
        found.append(made)
    return found


def _px_quoted(text: str) -> str:
    """A text in quotes, in pieces where it is longer than a line."""
    clean = re.sub(r"\s+", " ", safe_text(text).replace('"', "'")).strip()
    pieces = [clean[i : i + _PX_LINE] for i in range(0, len(clean), _PX_LINE)] or [""]
    return "\n".join(f'"{p}"' for p in pieces)


def _px_list(texts: Sequence[str]) -> str:
    return ",\n".join(f'"{t}"' for t in texts)


def _px_number(value: float | None) -> str:
    """A number; two dots for what is not known or left out."""
    return '".."' if value is None or not math.isfinite(value) else f"{value:.12g}"


# -- others ----------------------------------------------------------------------------------------------------


def _write_parquets(files: _Files) -> None:
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


def _write_excel(files: _Files) -> None:
    """A workbook that can be sent."""
    write_workbook(files.release, files.folder / "tables.xlsx", files.publication, leave_out=files.leave_out)


_MEDIA = {
    ".csv": "text/csv",
    ".px": "text/x-pcaxis",
    ".parquet": "application/vnd.apache.parquet",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}


def _write_dcat(files: _Files) -> None:
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
    _write_text(files, "dcat.jsonld", _json_text(entry))


# -- plain files, for programs without Python ----------------------------------------------------------------

_LARGE = "plain"  # with covariances some hundred times the cells: written where it is named
PLAIN = "sfumato tables 1"
"""What about.csv of these files calls their form; docs/format.md describes it."""
_MOST_COVARIANCES = 300  # cells of a table whose covariances are written: a file of 2 MB


def _write_plain(files: _Files) -> None:
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
        ("confidence", repr(_CONFIDENCE)),
        (
            "flags",
            read_reliability(files.publication.flags).statement(left_out=files.leave_out)
            if files.publication.flags
            else "",
        ),
        ("method", method_paragraph(release)),
    ]
    _write_text(files, "plain/about.csv", _csv_file([("key", "value"), *about]))
    lines: list[Sequence[Any]] = [("table", "attributes", "cells", "file", "covariances")]
    # apart: who adds up cells must not add up means
    measured: list[Sequence[Any]] = [("measure", "attributes", "cells", "file", "note")]
    for t in files.tables:
        names, cells = t.table.attributes, t.table.values.size
        frame = _plain_frame(files, t)
        body = zip(*frame.columns.values(), strict=True)
        rows = [[safe_text(v) if isinstance(v, str) else v for v in row] for row in body]
        _write_text(files, f"plain/{t.stem}.csv", _csv_file([[safe_text(n) for n in frame.columns], *rows]))
        listed = " ".join(quote(c, safe="") for c in t.columns)
        if isinstance(t.table, MeasureTable):
            measured.append((safe_text(t.table.measure), listed, cells, f"{t.stem}.csv", t.note))
            continue
        kept = ""
        if cells <= _MOST_COVARIANCES:
            kept = f"{t.stem}.covariances.csv"
            _write_text(files, f"plain/{kept}", _csv_file(release.covariance(names).tolist()))
        lines.append((t.stem, listed, cells, f"{t.stem}.csv", kept))
    _write_text(files, "plain/tables.csv", _csv_file(lines))
    if len(measured) > 1:
        _write_text(files, "plain/measures.csv", _csv_file(measured))


def _plain_frame(files: _Files, t: _Written) -> Frame:
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


FORMATS: Mapping[str, Callable[[_Files], None]] = {
    "csv": _write_csvs,
    "csvw": _write_csvw,
    "frictionless": _write_frictionless,
    "sdmx": _write_sdmx,
    "px": _write_px,
    "parquet": _write_parquets,
    "xlsx": _write_excel,
    "plain": _write_plain,
    "dcat": _write_dcat,
}
"""What `write_formats` writes, by name; the catalogue entry is last, as it lists the files of all others."""
