"""How a table is written, where neither its columns nor its header say it: `Source`, which stands for a table."""

from __future__ import annotations

import codecs
import glob
import os
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from sfumato._util.codec import storable
from sfumato.errors import InvalidInput, SourceError

NOTATIONS = ("decimal", "thousands", "encoding", "delimiter", "sheet")
"""What may be declared of a table, by the names of the fields of `Source`, of specs and of options."""
_THOUSANDS = ("", ".", ",", " ", "'")
_DELIMITERS = (",", ";", "\t", "|")
# Of these every byte is a character or none, and the first 128 are those of ASCII: whatever a record holds, it ends
# where it ends. Of others one byte may take the next, a line end, with it.
_ENCODINGS = (
    *("utf-8", "iso8859-1", "mac-roman", "koi8-r", "koi8-u"),
    *(f"iso8859-{n}" for n in (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 16)),
    *(f"cp{n}" for n in (1250, 1251, 1252, 1253, 1254, 1255, 1256, 1257, 1258)),
    *(f"cp{n}" for n in (437, 775, 850, 852, 855, 857, 858, 860, 861, 862, 863, 865, 866, 869, 874)),
)


@storable
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Source:
    """A table and how it is written: it stands wherever a table may, in `sf.release`, `sf.open` and `append`.

    The notation is that of texts: of text files, and of columns of texts elsewhere. Columns of numbers are numbers. A
    text that is no number in the notation is missing where a number is declared.

    Args:
        table: A path, an address or a frame, as `sf.release` takes it.
        decimal: The mark before the decimals of numbers in texts, "." or ",".
        thousands: The mark that may stand between groups of three of their digits: ".", ",", "'", " " (a space of any
            width) or nothing.
        encoding: The encoding of a text file: "utf-8", or one with a byte for every character, such as "cp1252".
        delimiter: The mark between the fields of a text file; None lets the header tell.
        sheet: The name of a spreadsheet's sheet; None takes its first.

    Raises:
        InvalidInput: An option is not allowed, or `table` is a Source already.

    >>> sf.Source("people.csv", decimal=",", thousands=".", encoding="cp1252", delimiter=";")
    Source('people.csv', decimal=',', thousands='.', encoding='cp1252', delimiter=';')
    """

    table: Any
    decimal: str = "."
    thousands: str = ""
    encoding: str = "utf-8"
    delimiter: str | None = None
    sheet: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.table, Source):
            raise InvalidInput("a source is made of a table, not of another source")
        _check_allowed("decimal", self.decimal, (".", ","))
        _check_allowed("thousands", self.thousands, _THOUSANDS)
        _check_allowed("delimiter", self.delimiter, (None, *_DELIMITERS))
        if self.decimal == self.thousands:
            raise InvalidInput(f"decimal and thousands are both {self.decimal!r}; a number would have two meanings")
        if self.sheet is not None and (type(self.sheet) is not str or not self.sheet):
            raise InvalidInput("sheet is the name of a sheet; leave it out for the first")
        object.__setattr__(self, "encoding", _encoding_name(self.encoding))

    def declared(self) -> dict[str, str]:
        """The options that are not their defaults.

        Returns:
            Their values by name.
        """
        found = {name: getattr(self, name) for name in NOTATIONS}
        return {name: value for name, value in found.items() if value != Source.__dataclass_fields__[name].default}

    def allow(self, label: str, *names: str) -> None:
        """Refuse options that a kind of table does not have.

        Args:
            label: What the table is called in the message.
            *names: The options that it has.

        Raises:
            InvalidInput: Another option is declared.
        """
        if odd := [name for name in self.declared() if name not in names]:
            of = {"sheet": "a spreadsheet"}
            kinds = ", ".join(f"{name} is of {of.get(name, 'a text file')}" for name in odd)
            raise InvalidInput(f"{kinds}, and {label} is none: leave {' and '.join(odd)} out")

    def numbers(self, label: str) -> tuple[str, str]:
        """How numbers are written in a table that has no other option.

        Args:
            label: What the table is called in the message.

        Returns:
            The decimal mark and the mark of thousands.

        Raises:
            InvalidInput: Another option is declared.
        """
        self.allow(label, "decimal", "thousands")
        return self.decimal, self.thousands

    def __repr__(self) -> str:
        plain = isinstance(self.table, (str, PathLike)) and "://" not in str(self.table)
        shown = repr(str(self.table)) if plain else f"<{type(self.table).__name__}>"
        return f"Source({', '.join([shown, *(f'{k}={v!r}' for k, v in self.declared().items())])})"


def source_of(table: object) -> Source:
    """A table as it is declared; without a declaration numbers have a point, and texts are UTF-8."""
    return table if isinstance(table, Source) else Source(table)


def _check_allowed(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        listed = ", ".join(map(repr, allowed))
        raise InvalidInput(f"{name}={value!r} is not allowed; use one of {listed}")


def _encoding_name(given: object) -> str:
    try:
        found = codecs.lookup(given).name if isinstance(given, str) else ""
    except (LookupError, ValueError):
        found = ""
    found = "utf-8" if found == "utf-8-sig" else found  # its mark is never text
    if found not in _ENCODINGS:
        raise InvalidInput(
            f"encoding={given!r} is not read: give utf-8, or one with a byte for every character, such as cp1252 "
            "(Western Europe on Windows), cp1250, cp850, iso8859-1, iso8859-15 or koi8-r; or save the file as UTF-8"
        )
    return found


MAX_PARTS = 10_000  # files of one table: each is opened by itself
_ALLOWED = (
    "a path ending .csv, .tsv, .csv.gz, .tsv.gz, .parquet, .xlsx, .json, .ndjson or .jsonl; a folder or pattern of "
    "Parquet files; duckdb:///file.db?table=NAME; postgresql://host/db?table=NAME; spark://host:port?table=NAME; a "
    "DuckDB relation; a Spark DataFrame; a pandas, polars or arrow table, or anything else with __arrow_c_stream__; "
    "one of these in sf.Source, which says how it is written; what sf.per_person or sf.joined makes of several; or "
    "sf.Histogram(counts)"
)
_ADVICE = {
    "save it as .xlsx or .csv": (".xls", ".xlsb", ".xlsm", ".ods", ".numbers"),
    "name the table in it: duckdb:///FILE?table=NAME": (".duckdb", ".ddb", ".db"),
    "export it as CSV or Parquet": (
        *(".sqlite", ".sqlite3", ".mdb", ".accdb", ".dta", ".sav", ".por", ".sas7bdat", ".xpt", ".rds", ".rda"),
        *(".rdata", ".orc", ".avro"),
    ),
    "read it, and give the table: pyarrow.feather.read_table(FILE)": (".arrow", ".feather", ".ipc"),
    "unpack it": (".zip", ".bz2", ".xz", ".zst", ".7z", ".gz", ".json.gz", ".ndjson.gz", ".parquet.gz", ".xlsx.gz"),
    "if it is a text file with a header, call it .csv": (".txt", ".dat", ".asc", ""),
}
_INSTEAD = {kind: advice for advice, listed in _ADVICE.items() for kind in listed}


def file_kind(path: str | Path) -> str:
    """What the name of a file ends with, in small letters; of a packed one the last two parts."""
    suffixes = [s.lower() for s in Path(path).suffixes]
    return "".join(suffixes[-2:] if suffixes[-1:] == [".gz"] else suffixes[-1:])


def delimiter_of(path: str, given: Source) -> str | None:
    """What stands between the fields of a text file, where it is declared or its name says it."""
    return given.delimiter or ("\t" if file_kind(path).startswith(".tsv") else None)


def parquet_files(path: str) -> list[str] | None:
    """The files of a table that is a folder of Parquet files or a pattern of their names; None of any other path.

    Raises SourceError where there is none, or they lie in folders of their own.
    """
    if os.path.isdir(path):
        found = glob.glob(os.path.join(glob.escape(path), "*.parquet"))
        if any(os.path.isdir(os.path.join(path, name)) for name in os.listdir(path)):
            raise SourceError(
                f"{path!r} is a folder with folders in it, and what their names say of the rows is not read: name the "
                "files of one folder, or write the table as one Parquet file"
            )
    elif file_kind(path) == ".parquet" and glob.has_magic(path) and not os.path.exists(path):
        found = glob.glob(path)
    else:
        return None
    files = sorted(f for f in found if os.path.isfile(f))
    if not 1 <= len(files) <= MAX_PARTS:
        raise SourceError(f"{path!r} names {len(files):,} Parquet files; a table is one to {MAX_PARTS:,} of them")
    return files


def no_source(source: object) -> InvalidInput:
    """The refusal of what is no table, with what to do."""
    if not isinstance(source, (str, Path)):
        return InvalidInput(f"a {type(source).__name__} is not a source of data; allowed are {_ALLOWED}")
    # of an address its beginning: it may hold a password
    shown = str(source).split("://")[0]
    elsewhere = "copy the file here, or read it by polars or arrow and give what they read"
    advice = elsewhere if "://" in str(source) else _INSTEAD.get(file_kind(source))
    return InvalidInput(f"{shown!r} is not a source of data{f': {advice}' if advice else ''}; allowed are {_ALLOWED}")
