"""What kind of table a path or an object is by its name alone, and what to do with those that are not read."""

from __future__ import annotations

import glob
import os
from pathlib import Path

from sfumato.errors import InvalidInput, SourceError
from sfumato.wall.rows.written import Source

__all__ = ["delimiter_of", "kind_of", "no_source", "parquet_files"]

MAX_PARTS = 10_000  # files of one table: each is opened by itself
_ALLOWED = (
    "a path ending .csv, .tsv, .csv.gz, .tsv.gz, .parquet, .xlsx, .json, .ndjson or .jsonl; a folder or pattern of "
    "Parquet files; duckdb:///file.db?table=NAME; postgresql://host/db?table=NAME; spark://host:port?table=NAME; a "
    "DuckDB relation; a Spark DataFrame; a pandas, polars or arrow table, or anything else with __arrow_c_stream__; "
    "one of these in sf.Source, which says how it is written; or sf.Histogram(counts)"
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


def kind_of(path: str | Path) -> str:
    """What the name of a file ends with, in small letters; of a packed one the last two parts."""
    suffixes = [s.lower() for s in Path(path).suffixes]
    return "".join(suffixes[-2:] if suffixes[-1:] == [".gz"] else suffixes[-1:])


def delimiter_of(path: str, given: Source) -> str | None:
    """What stands between the fields of a text file, where it is declared or its name says it."""
    return given.delimiter or ("\t" if kind_of(path).startswith(".tsv") else None)


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
    elif kind_of(path) == ".parquet" and glob.has_magic(path) and not os.path.exists(path):
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
    advice = elsewhere if "://" in str(source) else _INSTEAD.get(kind_of(source))
    return InvalidInput(f"{shown!r} is not a source of data{f': {advice}' if advice else ''}; allowed are {_ALLOWED}")
