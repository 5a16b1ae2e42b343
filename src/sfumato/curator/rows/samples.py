"""Where the rows of a public or mock sample would go: exact, by value, and never for the table that is to be protected.

What is told here has no noise and is charged to nobody, so it may only be of rows that anybody may see. Nothing that
measures uses this file.
"""

from __future__ import annotations

import json
import os
import re
import stat
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from sfumato._util.checks import same_table
from sfumato._util.elsewhere import find_engine
from sfumato.curator.rows import text_files
from sfumato.curator.rows.encoding import attribute_column, attribute_statements, cell_sql, check_declared, field_sql
from sfumato.curator.rows.readers import OpenedTable, attempt, missing_column, open_table
from sfumato.curator.rows.sources import open_source
from sfumato.curator.rows.text_files import OtherEncoding as OtherEncoding  # for who shows samples
from sfumato.curator.rows.written import NOTATIONS, Source, delimiter_of, file_kind, source_of
from sfumato.domain import Attribute, Categories, Domain, Hierarchy
from sfumato.errors import InvalidInput, SourceError
from sfumato.privacy.unit import PrivacyUnit
from sfumato.workloads.reading import Section

LISTED = 12
"""Values that are listed per attribute and reason, the most frequent first."""


_LONGEST = 80  # of a value that is shown: a line of a terminal


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a public sample that no declared cell holds, how often it occurs, and what it may have meant."""

    text: str
    count: int
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class OddRows:
    """Rows whose values no declared cell holds: how many, of how many different values, and the most frequent ones."""

    rows: int
    kinds: int
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class PlacedRows:
    """Where the rows of a sample would go by one attribute.

    `inside` rows lie in `used` of the declared cells; `outside` are those in none of them; `missing` rows have no
    value, `unread` being those of them whose value is no number.
    """

    attribute: str
    inside: int
    used: int
    outside: OddRows
    missing: int
    unread: OddRows


@dataclass(frozen=True, slots=True)
class Sample:
    """A public sample: its rows, how many of them would be counted, and where they go by each attribute."""

    rows: int
    counted: int
    attributes: tuple[PlacedRows, ...]


def _made_of(declared: object) -> list[Any] | None:
    """The tables that a source of persons is made of; None of any other source."""
    return None if declared is None else getattr(find_engine(declared), "sources", None)


def refuse_protected_sample(sample: str, declared: Any) -> None:
    """Refuse a sample that is a table to be protected, or lies in the same file. Raises InvalidInput."""
    tables = [source_of(table).table for table in _made_of(declared) or [declared]]
    if any(same_table(sample, str(table)) for table in tables if isinstance(table, (str, Path))):
        raise InvalidInput(
            f"{sample!r} is the source of the spec, the table to be protected: what a check shows is exact and would "
            "give its rows away. Check a public sample, or mock rows (sfumato mock); nothing was read"
        )


def place_sample(sample: str | Path | Source, domain: Domain, unit: PrivacyUnit) -> Sample:
    """Read a public sample and say where each row would go, by the very rules that encode a table.

    No guarantee of privacy: counts and values are exact. Raises InvalidInput and SourceError as a release would.
    """
    check_declared(domain.grid)
    counted = open_source(
        sample,
        domain,
        person=unit.person,
        rows_per_person=unit.rows_per_person,
        once_per=unit.once_per,
        rows_per_group=unit.rows_per_group,
    ).rows
    opened = open_table(sample, domain.grid.read_columns)
    try:
        message = f"{opened.label} could not be read"
        if find_engine(sample) is not None:  # its rows come once
            kept = f"CREATE TEMP TABLE sample AS SELECT * FROM {opened.sql}"
            attempt(message, lambda: opened.session.connection.execute(kept))
            opened = replace(opened, sql="sample")
        (rows,), *_ = attempt(message, lambda: opened.session.rows(f"SELECT count(*) FROM {opened.sql}"))
        read = zip(domain.grid.columns, domain.attributes.items(), strict=True)
        placed = tuple(
            attempt(message, lambda n=name, a=attribute, c=column, j=i: _place_attribute(opened, n, a, c, j))
            for i, (column, (name, attribute)) in enumerate(read)
        )
    finally:
        opened.session.close()
    return Sample(int(rows), counted, placed)


def _place_attribute(opened: OpenedTable, name: str, attribute: Attribute, read: Sequence[str], i: int) -> PlacedRows:
    every = replace(attribute, outside="other", missing="other")
    # by the rules that encode a table
    column = attribute_column(every.rule, read, opened.columns)
    field, cell = field_sql(every.rule, column, f"r{i}"), cell_sql(every.rule, i, column.decimal)
    for statement in attribute_statements(every.rule, i):
        opened.session.connection.execute(*statement)
    inner = f"SELECT {column.sql} AS r{i} FROM {opened.sql}"
    inner = f"SELECT {column.text(f'r{i}')} AS text, {field} AS v{i} FROM ({inner})"
    void = f"v{i} IS NULL" + f" OR isnan(v{i})" * every.rule.numeric
    query = f"SELECT text, {void} AS void, {cell} AS cell, count(*) AS n FROM ({inner})"
    query = f"{query} GROUP BY ALL ORDER BY n DESC, text"
    found = opened.session.rows(query)
    last = every.size - 1
    inside = [(c, int(n)) for _, void, c, n in found if not void and c != last]
    outside = [(str(t), int(n)) for t, void, c, n in found if not void and c == last]
    unread = [(str(t), int(n)) for t, void, _, n in found if void and t is not None and every.rule.numeric]
    return PlacedRows(
        name,
        sum(n for _, n in inside),
        len({c for c, _ in inside}),
        _odd_rows(attribute, outside),
        sum(int(n) for _, void, _, n in found if void),
        _odd_rows(attribute, unread),
    )


def _odd_rows(attribute: Attribute, values: list[tuple[str, int]]) -> OddRows:
    listed = tuple(Value(t[:_LONGEST], n, _suggest_code(attribute, t)) for t, n in values[:LISTED])
    return OddRows(sum(n for _, n in values), len(values), listed)


def _suggest_code(attribute: Attribute, text: str) -> str | None:
    """What a value that matches no code may have meant."""
    if not isinstance(attribute, (Categories, Hierarchy)):
        return None
    cell = attribute.cell_of(text)
    if cell is not None:
        code = next(c for c in attribute.codes if attribute.cell_of(c) == cell)
        return f"the label of {code!r}: tables hold codes, so declare {text!r} as the code or write the code"
    plain = text.strip().casefold()
    for code in attribute.codes:
        if plain == code.strip().casefold():
            return f'declared as {code!r}: capitals and blanks count, unless case = "ignore" or trim = true is declared'
    return None


_BEGINNING = 2**20  # the first object
_PAGE = re.compile(r"/?xl/worksheets/[^/]+\.xml")


def column_names(source: Any) -> tuple[str, ...]:
    """Names of the columns of a source, in order: of JSON, the fields of the first record.

    They are taken for public. A text file must begin with a line of names: without one its first record
    would be taken for names, so what comes back is for the custodian to read over. Raises InvalidInput
    for what is no source, SourceError for a table that cannot be opened.
    """
    given = source_of(source)
    path = Path(given.table) if isinstance(given.table, (str, Path)) else Path()
    kind = "" if "://" in str(given.table) else file_kind(path)
    if kind.removesuffix(".gz") in (".csv", ".tsv"):
        _check_regular(path)
        message = f"{str(path)!r} cannot be read"
        mark = delimiter_of(str(path), given)
        found = attempt(message, lambda: text_files.find_layout(str(path), (), given.encoding, mark))
        names, label = [text_files.public_header_name(n, path.name, given.encoding) for n in found.names], path.name
        names = [] if names == [""] else names
    elif kind in (".json", ".ndjson", ".jsonl"):
        _check_regular(path)
        text = attempt(f"{str(path)!r} cannot be read, or is no text file in UTF-8", lambda: _read_beginning(path))
        names, label = _json_field_names(text), path.name
    else:
        opened = open_table(source, ())
        opened.session.close()
        names, label = list(opened.columns), opened.label
    if not names:
        raise SourceError(f"{label} has no column that could be named")
    return tuple(names)


_TYPES = {
    "whole": "integer",
    "exact": "integer",
    "decimal": "number",
    "float": "number",
    "double": "number",
    "text": "",
    "boolean": "boolean",
    "label": "date",
    "moment": "date",
}


def column_types(source: Any, columns: Sequence[str] | None = None) -> dict[str, str]:
    """What the type of each column says of its values: "integer", "number", "date", "boolean", or "" for texts.

    No record is read, but for the fields of the first where there is no header (see `column_names`). Columns that hold
    neither numbers, dates, texts nor booleans are left out unless they are named; UUIDs are texts.

    Raises InvalidInput for what is no table of rows, or a column that is named and cannot be read; SourceError for a
    table that cannot be opened, or lacks a column.
    """
    given = source_of(source)
    names = None if columns is None else tuple(columns)
    kind = "" if not isinstance(given.table, (str, Path)) or "://" in str(given.table) else file_kind(given.table)
    if kind.removesuffix(".gz") in (".csv", ".tsv", ".json", ".ndjson", ".jsonl"):
        label, known = Path(given.table).name, dict.fromkeys(column_names(source), "")
    else:
        # only what pandas is asked for has a type
        asked = _frame_names(given.table)
        opened = open_table(source, names if asked and names is not None else asked)
        opened.session.close()
        label, types = opened.label, {n: None if c.type in ("UUID", "") else c for n, c in opened.columns.items()}
        # of a table made of several, the columns of a frame have none yet
        known = {n: "" if c is None else _TYPES.get(c.family) for n, c in types.items()}
    for name in names or ():
        if name not in known:
            raise missing_column(label, name)
        if known[name] is None:
            raise InvalidInput(f"column {name!r} is of a type that is not read; leave it out, or convert it")
    return {n: told for n, told in known.items() if told is not None and (names is None or n in names)}


def _frame_names(table: Any) -> tuple[str, ...]:
    """The names of the columns of a frame that tells types of needed columns alone; none of any other table."""
    if type(table).__module__.split(".")[0] != "pandas":
        return ()
    return tuple(name for name in table.columns if isinstance(name, str) and name)


def undeclared_notation(source: Any) -> str:
    """What nobody declared of a table, and its beginning gives reason to: "decimal", "sheet", or "" for neither.

    Names between semicolons stand where numbers have decimal commas; a workbook with several sheets is read at its
    first. Both can be seen without a record. For tables whose names were read.
    """
    given = source_of(source)
    if not isinstance(given.table, (str, Path)) or "://" in str(given.table):
        return ""
    path, kind = str(given.table), file_kind(given.table)
    if kind.removesuffix(".gz") == ".csv" and given.decimal == "." and not given.thousands:
        found = text_files.find_layout(path, (), given.encoding, delimiter_of(path, given))
        return "decimal" if found.delimiter == b";" else ""
    if kind == ".xlsx" and given.sheet is None:
        with zipfile.ZipFile(path) as packed:
            pages = [name for name in packed.namelist() if _PAGE.fullmatch(name)]
        return "sheet" if len(pages) > 1 else ""
    return ""


def _check_regular(path: Path) -> None:
    status = attempt(f"{str(path)!r} cannot be found or read", lambda: os.stat(path))
    if not stat.S_ISREG(status.st_mode):
        raise SourceError(f"{path.name} is not a regular file; folders, pipes and devices are not read")


def _read_beginning(path: Path) -> str:
    with path.open(encoding="utf-8-sig", newline="") as handle:
        return handle.read(_BEGINNING)


def _json_field_names(text: str) -> list[str]:
    """The fields of the first object, in an array or by itself."""
    try:
        record, _ = json.JSONDecoder().raw_decode(text.lstrip().removeprefix("[").lstrip())
    except (ValueError, RecursionError):
        return []
    return list(cast("dict[str, Any]", record)) if isinstance(record, dict) else []


def spec_table_source(data: Section, folder: Path) -> str | Source | None:
    """The source of a spec in a folder, with its notation where one is declared. Raises SpecError."""
    data.allow("source", "table", *NOTATIONS)
    source = data.text("source")
    if source is not None and ":" in source:
        with data.guard("source"):
            find_engine(source)  # refuses what is no address, and passwords
    source = source if source is None or "://" in source else str(folder / source)
    written: dict[str, Any] = {}
    for name in (name for name in NOTATIONS if name in data):
        written[name] = data.text(name)
        with data.guard(name):
            Source(source, **written)
    return Source(source, **written) if written else source


def named_or_spec_table(declared: Any, table: str | None, **written: str | None) -> Any:
    """The table that was named instead of a spec's, or the spec's own, written as is said here or else in the spec.

    What the spec says of a sheet does not go for a text file that is named instead of the workbook, nor what it says
    of a text file for another kind of table.
    """
    if _made_of(declared) is not None:
        if table is not None or any(value is not None for value in written.values()):
            raise InvalidInput(
                "the table of this spec is made of those under [people], so that no other takes its place on the "
                "command line; say there what is read, and how it is written"
            )
        return declared
    base = declared if isinstance(declared, Source) else Source(declared)
    if table is not None:
        kind = "" if "://" in table else file_kind(table)
        base = replace(base, table=table)
        if kind != ".xlsx":
            base = replace(base, sheet=None)
        if kind.removesuffix(".gz") not in (".csv", ".tsv"):
            base = replace(base, encoding="utf-8", delimiter=None)
    base = replace(base, **{name: value for name, value in written.items() if value is not None})
    return base if base.table is not None and base.declared() else base.table
