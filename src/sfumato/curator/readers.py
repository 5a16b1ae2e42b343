"""How each kind of table is opened in DuckDB.

Text files are read with every field as text, so that no type is guessed from the data. DuckDB runs
walled in: no extensions, no network, no file but the one that was named. Its own error texts quote the
table, so none of them is passed on.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
import stat
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from sfumato.curator.encoding import Column, identifier, literal
from sfumato.errors import InvalidInput, SourceError
from sfumato.scratch import Place

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["MAX_ROWS", "Opened", "Session", "attempt", "open_table"]

T = TypeVar("T")

_ALLOWED = (
    "a path ending .csv, .parquet, .json, .ndjson or .jsonl; duckdb:///file.db?table=NAME; a DuckDB relation; "
    "a pandas, polars or arrow table; or sf.Histogram(counts)"
)
# What a file may hold, also once uncompressed: more is taken for a bomb.
MAX_ROWS = 2**36
MAX_BYTES = 2**40
_BLOCK_BYTES = 2**22
_HEADER_BYTES = 2**20
_SETTINGS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
    "preserve_insertion_order": "false",
    # A pandas column of objects is text, whatever its first thousand rows happen to hold.
    "pandas_analyze_sample": "0",
}


class Session:
    """A private DuckDB in memory that may read the given files and write only to a folder of its own."""

    connection: DuckDBPyConnection

    def __init__(self, files: Sequence[str] = ()) -> None:
        import duckdb  # noqa: PLC0415

        # it may hold records; what a killed process left of them goes now
        place = Place(Path(tempfile.gettempdir()) / "sfumato", 0o700)
        self.connection = duckdb.connect(":memory:", config={**_SETTINGS, "temp_directory": f"{place.path}/spill"})
        self.close = weakref.finalize(self, _clean_up, self.connection, place)
        self.connection.execute("SET enable_progress_bar = false")
        self.connection.execute(f"SET allowed_paths = [{', '.join(map(literal, files))}]")
        self.connection.execute("SET enable_external_access = false")
        self.connection.execute("SET lock_configuration = true")

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        return self.connection.execute(sql).fetchall()

    def columns(self, sql: str) -> dict[str, Column]:
        """The columns of what `sql` reads, by name."""
        described = self.rows(f"DESCRIBE SELECT * FROM {sql}")
        return {str(name): Column(identifier(str(name)), str(kind)) for name, kind, *_ in described}


def _clean_up(connection: DuckDBPyConnection, place: Place) -> None:
    connection.close()
    place.remove()


@dataclass(frozen=True, slots=True)
class Opened:
    """A table that DuckDB can read: what to call it, the SQL it is read from, its columns by name."""

    session: Session = field(repr=False)
    label: str
    sql: str
    columns: Mapping[str, Column]


def attempt(message: str, action: Callable[[], T]) -> T:
    """Run an action; what it raises is replaced by SourceError(message) and not even kept as its context."""
    try:
        return action()
    except SourceError:
        raise
    except Exception:  # DuckDB, arrow and frames each raise their own kinds, and quote what they read
        pass
    raise SourceError(message)


def open_table(source: object, needed: Sequence[str]) -> Opened:
    """Open a table and find the columns that are needed.

    Raises InvalidInput for what is no source, SourceError for a table that cannot be opened or lacks a column.
    """
    if isinstance(source, str) and source.startswith("duckdb:"):
        path, table = _parse_url(source)
        opened = _open_file(path, lambda s, p: _open_database(s, p, table), beside=(".wal",))
    elif isinstance(source, (str, Path)) and Path(source).suffix.lower() in _OPENERS:
        opener = _OPENERS[Path(source).suffix.lower()]
        opened = _open_file(str(source), lambda s, p: opener(s, p, needed))
    elif not isinstance(source, (str, Path)) and (_is_pandas(source) or hasattr(source, "__arrow_c_stream__")):
        opened = _keep(Session(), lambda s: _open_frame(s, source, needed))
    else:
        shown = repr(str(source)) if isinstance(source, (str, Path)) else f"a {type(source).__name__}"
        raise InvalidInput(f"{shown} is not a source of data; allowed are {_ALLOWED}")
    for name in needed:
        if name not in opened.columns:
            opened.session.close()
            raise _lacks(opened.label, name)
    return opened


def _lacks(label: str, name: str) -> SourceError:
    # The columns that are there are not listed: where a file has no header, its first record stands there.
    return SourceError(f"{label} has no column called {name!r} (names are matched exactly, capitals included)")


def _open_file(path: str, opener: Callable[[Session, str], Opened], beside: Sequence[str] = ()) -> Opened:
    status = attempt(f"{path!r} cannot be found or read", lambda: os.stat(path))
    if not stat.S_ISREG(status.st_mode):
        raise SourceError(f"{path!r} is not a regular file; folders, pipes and devices are not read")
    if status.st_size == 0:
        raise SourceError(f"{path!r} is empty; a table without rows still has a header")
    _check_extent(path, status.st_size, 0)
    whole = os.path.abspath(path)
    return _keep(Session([whole, *(whole + suffix for suffix in beside)]), lambda s: opener(s, whole))


def _keep(session: Session, opener: Callable[[Session], Opened]) -> Opened:
    """Open something in a session, which is closed where that fails."""
    try:
        return opener(session)
    except BaseException:
        session.close()
        raise


def _check_extent(path: str, size: int, rows: int) -> None:
    if size > MAX_BYTES or rows > MAX_ROWS:
        raise SourceError(f"{os.path.basename(path)} holds more than {MAX_BYTES:,} bytes or {MAX_ROWS:,} rows")


def _scan_text(path: str, *, quotes: bool) -> str:
    """Read a text file through once: it must be UTF-8 without NUL, its quotes in pairs. Returns its beginning."""
    label = os.path.basename(path)
    decoder = codecs.getincrementaldecoder("utf-8")()
    beginning = ""
    odd = False
    with open(path, "rb") as handle:
        while block := handle.read(_BLOCK_BYTES):
            text = attempt(f"{label} is not UTF-8; save it in that encoding", lambda b=block: decoder.decode(b))
            if b"\0" in block:
                raise SourceError(f"{label} holds NUL bytes; it is not a text file")
            odd ^= block.count(b'"') % 2 == 1
            beginning = beginning or text
    attempt(f"{label} is not UTF-8; save it in that encoding", lambda: decoder.decode(b"", final=True))
    if quotes and odd:
        raise SourceError(f'{label} has an unbalanced quote (") somewhere')
    return beginning.removeprefix("\ufeff")


def _open_csv(session: Session, path: str, needed: Sequence[str]) -> Opened:
    # RFC 4180 with a header line. The delimiter is the first with which the header has every needed column.
    label = os.path.basename(path)
    beginning = _scan_text(path, quotes=True)[:_HEADER_BYTES]
    headers = {d: _header(beginning, d) for d in (",", ";", "\t", "|")}
    delimiter = min(headers, key=lambda d: sum(n not in headers[d] for n in needed))
    names = headers[delimiter]
    for name in needed:
        if names.count(name) > 1:
            raise SourceError(f"{label} has more than one column called {name!r}")
        if name not in names:
            raise _lacks(label, name)
    columns = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(len(names)))
    options = "header = true, auto_detect = false, nullstr = '', strict_mode = true, ignore_errors = false"
    dialect = f"delim = {literal(delimiter)}, quote = '\"', escape = '\"'"
    sql = f"read_csv({literal(path)}, {options}, {dialect}, columns = {{{columns}}})"
    return Opened(session, label, sql, {name: Column(f"c{i}", "VARCHAR") for i, name in enumerate(names)})


def _header(beginning: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader(io.StringIO(beginning, newline=""), delimiter=delimiter, strict=True), [])
    except csv.Error:
        return []


def _open_json(session: Session, path: str, needed: Sequence[str]) -> Opened:
    """An array of objects, or objects one after another."""
    label = os.path.basename(path)
    first = _scan_text(path, quotes=False).lstrip()[:1]
    if first not in ("[", "{"):
        raise SourceError(f"{label} is neither a JSON array of objects nor objects one after another")
    layout = "array" if first == "[" else "unstructured"
    sql = f"read_json_objects({literal(path)}, format = '{layout}')"
    pointers = {name: literal("/" + name.replace("~", "~0").replace("/", "~1")) for name in needed}
    nested = " OR ".join(f"json_type(json, {p}) IN ('ARRAY', 'OBJECT')" for p in pointers.values())
    present = ", ".join(f"count(json_type(json, {p}))" for p in pointers.values())
    query = f"SELECT count(*), count(*) FILTER (json_type(json) <> 'OBJECT' OR {nested}), {present} FROM {sql}"
    (rows, odd, *counts), *_ = attempt(f"{label} is not valid JSON", lambda: session.rows(query))
    if odd:
        raise SourceError(
            f"{label} is no table: its records must be objects, their fields texts, numbers or true/false"
        )
    for name, count in zip(needed, counts, strict=True):
        if rows and not count:
            raise _lacks(label, name)
    return Opened(session, label, sql, {name: Column(f"(json ->> {p})", "VARCHAR") for name, p in pointers.items()})


def _open_parquet(session: Session, path: str, needed: Sequence[str]) -> Opened:
    label = os.path.basename(path)
    message = f"{label} is not a Parquet file, or is damaged"
    of_file, of_columns = (f"{function}({literal(path)})" for function in ("parquet_file_metadata", "parquet_metadata"))
    rows = attempt(message, lambda: session.rows(f"SELECT num_rows FROM {of_file}"))
    size = attempt(message, lambda: session.rows(f"SELECT sum(total_uncompressed_size) FROM {of_columns}"))
    _check_extent(path, int(size[0][0] or 0), int(rows[0][0]))
    sql = f"read_parquet({literal(path)}, hive_partitioning = false)"
    return Opened(session, label, sql, attempt(message, lambda: session.columns(sql)))


def _parse_url(url: str) -> tuple[str, str]:
    """The path and the table of duckdb:///file.db?table=people; four slashes begin an absolute path."""
    parts = urlsplit(url)
    query = parse_qs(parts.query, keep_blank_values=True)
    path = unquote(parts.path.removeprefix("/"))
    if parts.netloc or parts.fragment or not path or set(query) != {"table"} or len(query["table"]) != 1:
        raise InvalidInput(
            f"{url!r} is not of the form duckdb:///file.db?table=people; with four slashes the path is absolute"
        )
    return path, query["table"][0]


def _open_database(session: Session, path: str, table: str) -> Opened:
    label = f"{os.path.basename(path)}, table {table!r},"
    message = f"{os.path.basename(path)} cannot be opened: it is no DuckDB database, or another program holds it open"
    attempt(message, lambda: session.rows(f"ATTACH {literal(path)} AS source (READ_ONLY)"))
    sql = "source." + ".".join(map(identifier, table.split(".") if "." in table else ("main", table)))
    message = f"{os.path.basename(path)} has no table {table!r} that can be read by itself"
    return Opened(session, label, sql, attempt(message, lambda: session.columns(sql)))


def _is_pandas(source: object) -> bool:
    return any(c.__name__ == "DataFrame" and c.__module__.split(".")[0] == "pandas" for c in type(source).__mro__)


def _open_frame(session: Session, source: Any, needed: Sequence[str]) -> Opened:
    package = type(source).__module__.split(".")[0].lstrip("_")
    label = f"the {package} table"
    message = f"{label} cannot be read: a column has a type that DuckDB does not know; select the columns declared"

    def register() -> dict[str, Column]:
        if not _is_pandas(source):
            # The bare stream: it can be read only once, and DuckDB needs no other package to read it.
            session.connection.register("source", source.__arrow_c_stream__())
            return session.columns("source")
        session.connection.register("source", source)
        # By position: DuckDB renames columns that differ in capitals alone.
        names = [name if isinstance(name, str) else "" for name in source.columns]
        for name in needed:
            if names.count(name) > 1:
                raise SourceError(f"{label} has more than one column called {name!r}")
        return dict(zip(names, session.columns("source").values(), strict=True))

    return Opened(session, label, "source", attempt(message, register))


_OPENERS: dict[str, Callable[[Session, str, Sequence[str]], Opened]] = {
    ".csv": _open_csv,
    ".parquet": _open_parquet,
    ".json": _open_json,
    ".ndjson": _open_json,
    ".jsonl": _open_json,
}
