"""How each kind of table is opened in DuckDB.

Nothing is guessed from the data: text files and frames without types of their own are read with every field as text,
and a record that is not well formed is mended by itself (text_files.py, other_files.py). DuckDB runs walled in
(`DuckDBSession`).
"""

from __future__ import annotations

import ctypes
import os
import re
import stat
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
from numpy.typing import NDArray

from sfumato._util import elsewhere
from sfumato._util import files as scratch
from sfumato.curator.rows import other_files, text_files
from sfumato.curator.rows import other_files as spreadsheet
from sfumato.curator.rows.encoding import UNREADABLE, Column, plain_column, sql_identifier, sql_literal
from sfumato.curator.rows.written import Source, delimiter_of, file_kind, no_source, parquet_files, source_of
from sfumato.errors import InvalidInput, MissingExtra, SourceError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

T = TypeVar("T")

# What a file may hold, also once uncompressed: more is taken for a bomb.
MAX_ROWS = 2**36
MAX_BYTES = 2**40  # sixteen bytes for each of them
SETTINGS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
    "preserve_insertion_order": "false",
    # A column of objects is text, whatever its first thousand rows happen to hold.
    "pandas_analyze_sample": "0",
}
# In a path these stand for other paths, which the engine would look for instead; in brackets each is itself.
_GLOB = re.compile(r"([*?\[])")
# What the optimizer may do; the rest is switched off. Much of it rests on statistics of the whole table, and those of a
# Parquet file leave NaN out: what became of a NaN would hang on the other records.
_OPTIMIZERS = ("expression_rewriter", "common_subexpressions", "unused_columns", "column_lifetime")


class DuckDBSession:
    """A private DuckDB in memory that may read the given files and write only to a folder of its own."""

    connection: DuckDBPyConnection
    copy: str
    """Where a copy of a text file may be written; gone when the session is closed."""
    text: str
    """Where another file may be written as a text file, likewise."""
    handed: str
    """Where what was read may be written for another session, likewise."""
    codes: str
    """The beginning of paths where encoded columns may be written, likewise."""

    def __init__(self, files: Sequence[str] = (), settings: Mapping[str, str] = SETTINGS) -> None:
        import duckdb  # noqa: PLC0415

        # it may hold records; what a killed process left of them goes now
        place = scratch.ScratchFolder(Path(tempfile.gettempdir()) / "sfumato", 0o700)
        self.copy, self.text, self.handed, self.codes = (f"{place.path}/{n}" for n in ("copy", "text", "handed", "a"))
        self.connection = duckdb.connect(":memory:", config={**settings, "temp_directory": f"{place.path}/spill"})
        self.close = weakref.finalize(self, _close_session, self.connection, place, os.getpid())
        if self.rows("SELECT current_setting('enable_progress_bar')") == [(True,)]:  # where it is off, notebooks refuse
            self.connection.execute("SET enable_progress_bar = false")
        known = self.rows("SELECT name FROM duckdb_optimizers()")
        off = ",".join(str(name) for (name,) in known if name not in _OPTIMIZERS)
        self.connection.execute(f"SET disabled_optimizers = {sql_literal(off)}")
        own = (self.copy, self.text, *(self.handed + end for end in ("", ".wal", ".wal.checkpoint")))
        paths = dict.fromkeys(p for f in (*files, *own) for p in (f, escape_pattern(f)))
        self.connection.execute(f"SET allowed_paths = [{', '.join(map(sql_literal, paths))}]")
        self.connection.execute("SET enable_external_access = false")
        self.connection.execute("SET lock_configuration = true")

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        return self.connection.execute(sql).fetchall()

    def columns(self, sql: str) -> dict[str, Column]:
        """The columns of what `sql` reads, by name."""
        described = self.rows(f"DESCRIBE SELECT * FROM {sql}")
        return {str(name): Column(sql_identifier(str(name)), str(kind)) for name, kind, *_ in described}


def escape_pattern(path: str) -> str:
    """A path as a pattern that means it alone."""
    return _GLOB.sub(r"[\1]", path)


def _close_session(connection: DuckDBPyConnection, place: scratch.ScratchFolder, process: int) -> None:
    if os.getpid() != process:
        return  # a forked child has neither the engine's threads nor the right to the parent's folder
    connection.close()
    place.remove()


@dataclass(frozen=True, slots=True)
class OpenedTable:
    """A table that DuckDB can read: what to call it, the SQL it is read from, its columns by name.

    records: at most so many bytes of encoded records are taken to memory.
    """

    session: DuckDBSession = field(repr=False)
    label: str
    sql: str
    columns: Mapping[str, Column]
    records: int = MAX_BYTES


def attempt(message: str, action: Callable[[], T]) -> T:
    """Run an action; what it raises is replaced by SourceError(message) and not even kept as its context."""
    try:
        return action()
    except (SourceError, MissingExtra):
        raise
    except Exception:  # DuckDB, arrow and frames each raise their own kinds, and quote what they read
        pass
    raise SourceError(message)


def missing_column(label: str, name: str) -> SourceError:
    """The error of a column that is not there."""
    # The columns that are there are not listed: where a file has no header, its first record stands there.
    return SourceError(f"{label} has no column called {name!r} (names are matched exactly, capitals included)")


def close_on_failure(session: DuckDBSession, opener: Callable[[DuckDBSession], OpenedTable]) -> OpenedTable:
    """Open something in a session, which is closed where that fails."""
    try:
        return opener(session)
    except BaseException:
        session.close()
        raise


# A mended record is at most eight times as long: every field quoted, every quote doubled. Read from its beginning on: a
# reader that starts in many places takes a line end within quotes for one of a record, wherever it happens to start.
_CSV = (
    f"auto_detect = false, nullstr = '', strict_mode = true, ignore_errors = false, "
    f"parallel = false, max_line_size = {8 * text_files.MAX_RECORD}, buffer_size = {16 * text_files.MAX_RECORD}"
)


def open_persons(source: object, needed: Sequence[str], person: str | None) -> OpenedTable:
    """Open a table for a plan that protects whom a column names, or records; where a source is made of other persons
    it is refused. Raises as `open_table`."""
    if require := getattr(elsewhere.find_engine(source), "require_person", None):
        require(person)
    return open_table(source, needed)


def open_table(source: object, needed: Sequence[str]) -> OpenedTable:
    """Open a table and find the columns that are needed.

    Raises InvalidInput for what is no source, SourceError for a table that cannot be opened or lacks a column.
    """
    given = source_of(source)
    opened = _open_given(given, needed)
    for name in needed:
        if name not in opened.columns:
            opened.session.close()
            raise missing_column(opened.label, name)
    return opened


def _open_given(given: Source, needed: Sequence[str]) -> OpenedTable:
    source = given.table
    if (engine := elsewhere.find_engine(given)) is not None:
        found: OpenedTable = engine.opened(needed)
        return found
    if isinstance(source, str) and source.startswith("duckdb:"):
        path, table = _parse_url(source)
        given.numbers("a table of a database")
        return _with_notation(given, _open_file(path, lambda s, p: _open_database(s, p, table), beside=(".wal",)))
    if isinstance(source, (str, Path)):
        kind, parts = file_kind(source), None
        if kind == ".parquet" or kind not in _OPENERS:
            parts = attempt(f"{str(source)!r} cannot be read", lambda: parquet_files(str(source)))
        if (kind := kind if parts is None else ".parquet") not in _OPENERS or "://" in str(source):
            raise no_source(source)
        opener, allowed = _OPENERS[kind]
        given.allow(f"a table ending {kind}", *allowed)
        if parts is not None:
            return _with_notation(given, _open_parts(str(source), parts, needed))
        return _with_notation(given, _open_file(str(source), lambda s, p: opener(s, p, needed, given)))
    label = f"a {type(source).__name__}"
    if _is_pandas(source):
        given.numbers(label)
        return _with_notation(
            given, close_on_failure(DuckDBSession(), lambda s: _open_pandas(s, source, needed, given.decimal))
        )
    if hasattr(source, "__arrow_c_stream__"):
        given.numbers(label)
        return _with_notation(given, close_on_failure(DuckDBSession(), lambda s: _open_stream(s, source, needed)))
    if (found := _open_lazy_table(source, needed)) is not None:
        return _open_given(replace(given, table=found), needed)
    raise no_source(source)


def _open_lazy_table(source: Any, needed: Sequence[str]) -> Any:
    """The columns of a table that polars or arrow has not read yet; its own query is run here. None of any other."""
    package, name = type(source).__module__.split(".")[0], type(source).__name__
    if (package, name) == ("polars", "LazyFrame"):
        message = "the polars LazyFrame cannot be read: collecting it failed"
        names = attempt(message, lambda: source.collect_schema().names())
        return attempt(
            message, lambda: source.select(_require_columns("the polars LazyFrame", names, needed)).collect()
        )
    if package == "pyarrow" and hasattr(source, "scanner"):
        message, names = "the arrow dataset cannot be read: scanning it failed", source.schema.names
        chosen = _require_columns("the arrow dataset", names, needed)
        return attempt(message, lambda: source.scanner(columns=chosen).to_reader())
    return None


def _require_columns(label: str, names: Sequence[str], needed: Sequence[str]) -> list[str]:
    for name in needed:
        if name not in names:
            raise missing_column(label, name)
    return [*needed] or [*names]


def _with_notation(given: Source, opened: OpenedTable) -> OpenedTable:
    """The table with its columns of texts in the notation that was declared."""
    if (given.decimal, given.thousands) == (".", ""):
        return opened
    noted = {"decimal": given.decimal, "thousands": given.thousands}
    columns = {n: replace(c, **noted) if c.family == "text" else c for n, c in opened.columns.items()}
    return replace(opened, columns=columns)


def _open_file(
    path: str, opener: Callable[[DuckDBSession, str], OpenedTable], beside: Sequence[str] = ()
) -> OpenedTable:
    status = attempt(f"{path!r} cannot be found or read", lambda: os.stat(path))
    if not stat.S_ISREG(status.st_mode):
        raise SourceError(f"{path!r} is not a regular file; folders, pipes and devices are not read")
    # of newline-delimited JSON no lines are no records; any other table has at least a beginning
    if status.st_size == 0 and not path.lower().endswith((".ndjson", ".jsonl")):
        raise SourceError(f"{path!r} is empty; a table without rows still has a header")
    _check_extent(path, status.st_size, 0)
    whole = os.path.abspath(path)
    return close_on_failure(DuckDBSession([whole, *(whole + suffix for suffix in beside)]), lambda s: opener(s, whole))


def _check_extent(path: str, size: int, rows: int) -> None:
    if size > MAX_BYTES or rows > MAX_ROWS:
        raise SourceError(f"{os.path.basename(path)} holds more than {MAX_BYTES:,} bytes or {MAX_ROWS:,} rows")


def _open_csv(session: DuckDBSession, path: str, needed: Sequence[str], given: Source, label: str = "") -> OpenedTable:
    label = label or os.path.basename(path)
    encoding, mark = given.encoding, delimiter_of(path, given)
    found = attempt(f"{label} cannot be read", lambda: text_files.find_layout(path, needed, encoding, mark))
    for name in needed:
        if found.names.count(name) > 1:
            raise SourceError(f"{label} has more than one column called {name!r}")
        if name not in found.names:
            for one in found.names:
                text_files.public_header_name(one, label, encoding)
            raise missing_column(label, name)
    message = f"{label} cannot be read: it is damaged, or memory or disk ran out"
    plain = attempt(message, lambda: text_files.readable_csv(path, session.copy, found, encoding))
    columns = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(len(found.names)))
    shown = needed or [name for name in found.names if name]
    dialect = f"header = true, delim = {sql_literal(found.delimiter.decode())}, quote = '\"', escape = '\"'"
    sql = f"read_csv({sql_literal(escape_pattern(plain))}, {dialect}, columns = {{{columns}}}, {_CSV})"
    return OpenedTable(session, label, sql, {name: Column(f"c{found.names.index(name)}", "VARCHAR") for name in shown})


def _open_json(session: DuckDBSession, path: str, needed: Sequence[str], given: Source) -> OpenedTable:
    """Records on lines of their own, or, in a file called .json, an array of objects or objects one after another."""
    label = os.path.basename(path)
    by_line = not path.lower().endswith(".json")
    plain = attempt(f"{label} cannot be read", lambda: other_files.readable_json(path, session.copy, by_line=by_line))
    dialect = f"header = false, delim = {sql_literal(other_files.SEPARATOR)}, quote = '', escape = ''"
    lines = f"read_csv({sql_literal(escape_pattern(plain))}, {dialect}, columns = {{'line': 'VARCHAR'}}, {_CSV})"
    # TRY_CAST alone was not total in DuckDB 1.4.0: a malformed line with a backslash ended the statement
    sql = f"(SELECT TRY(CAST(line AS JSON)) AS record FROM {lines} WHERE trim(line, ' ' || chr(9)) <> '')"
    unreadable = sql_literal(UNREADABLE)
    columns: dict[str, Column] = {}
    for name in needed:
        pointer = sql_literal("/" + name.replace("~", "~0").replace("/", "~1"))
        kind, text = f"json_type(record, {pointer})", f"(record ->> {pointer})"
        # equal numbers have one text, NaN none; digits beyond a double's stay as they are
        number = f"TRY_CAST({text} AS DOUBLE)"
        whole = f"CASE WHEN {number} = trunc({number}) AND abs({number}) < {2**53} THEN CAST({number} AS BIGINT) END"
        double = f"CASE WHEN NOT isnan({number}) THEN coalesce(CAST({whole} AS VARCHAR), {text}) END"
        double = double if given.decimal == "." else f"replace({double}, '.', '{given.decimal}')"  # as texts beside it
        # a field that is not there is missing; a record that is no object has no field that could be read
        field = f"WHEN 'DOUBLE' THEN {double} WHEN 'ARRAY' THEN {unreadable} WHEN 'OBJECT' THEN {unreadable}"
        field = f"CASE {kind} {field} ELSE {text} END"
        columns[name] = Column(f"(CASE json_type(record) WHEN 'OBJECT' THEN {field} ELSE {unreadable} END)", "VARCHAR")
    return OpenedTable(session, label, sql, columns)


def _open_parquet(session: DuckDBSession, path: str, needed: Sequence[str], given: Source) -> OpenedTable:
    del given
    return _read_parquet(session, os.path.basename(path), [path], needed)


def _open_parts(path: str, parts: Sequence[str], needed: Sequence[str]) -> OpenedTable:
    """Several files as one table."""
    label, files = os.path.basename(path.rstrip(os.sep)), [os.path.abspath(p) for p in parts]
    return close_on_failure(DuckDBSession(files), lambda s: _read_parquet(s, label, files, needed))


def _read_parquet(session: DuckDBSession, label: str, files: Sequence[str], needed: Sequence[str]) -> OpenedTable:
    message = f"{label} is not a Parquet file, or is damaged"
    listed = f"[{', '.join(sql_literal(escape_pattern(f)) for f in files)}]"
    rows = attempt(message, lambda: session.rows(f"SELECT sum(num_rows) FROM parquet_file_metadata({listed})"))
    size = sum(map(os.path.getsize, files))
    with suppress(Exception):  # it also writes out the least and the largest of every column, which may be no date
        (size,), *_ = session.rows(f"SELECT sum(total_uncompressed_size) FROM parquet_metadata({listed})")
    _check_extent(label, int(size or 0), int(rows[0][0] or 0))
    columns = [
        attempt(
            message,
            lambda f=f: session.columns(f"read_parquet({sql_literal(escape_pattern(f))}, hive_partitioning = false)"),
        )
        for f in files
    ]
    for other in columns[1:]:  # a type that is another in some file would be that of all, and fail for some rows
        for name in needed:
            if name in columns[0] and (name not in other or other[name].type != columns[0][name].type):
                raise SourceError(f"{label}: column {name!r} is not of one type in all files; write them alike")
    return OpenedTable(session, label, f"read_parquet({listed}, hive_partitioning = false)", columns[0])


def _refuse_coarse_times(label: str, coarse: set[str], needed: Sequence[str]) -> None:
    """Refuse columns by their type, for DuckDB counts microseconds: one time that has none would end all reading."""
    for name in needed:
        if name in coarse:
            raise SourceError(
                f"{label}: column {name!r} holds times of a type that cannot be read whatever they are (a broken one "
                "would fail the whole table): write it in microseconds, or as dates"
            )


def _open_sheet(session: DuckDBSession, path: str, needed: Sequence[str], given: Source) -> OpenedTable:
    label = os.path.basename(path)
    message = f"{label} cannot be read: it is no .xlsx file, is damaged or locked by a password, or disk ran out"
    attempt(message, lambda: spreadsheet.sheet_to_csv(path, session.text, given.sheet, given.decimal))
    return _open_csv(session, session.text, needed, Source(None, delimiter=","), label)


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


def _open_database(session: DuckDBSession, path: str, table: str) -> OpenedTable:
    label = f"{os.path.basename(path)}, table {table!r},"
    message = f"{os.path.basename(path)} cannot be opened: it is no DuckDB database, or another program holds it open"
    attempt(message, lambda: session.rows(f"ATTACH {sql_literal(path)} AS source (READ_ONLY)"))
    sql = "source." + ".".join(map(sql_identifier, table.split(".") if "." in table else ("main", table)))
    message = f"{os.path.basename(path)} has no table {table!r} that can be read by itself"
    return OpenedTable(session, label, sql, byte_texts(attempt(message, lambda: session.columns(sql))))


def _is_pandas(source: object) -> bool:
    return any(c.__name__ == "DataFrame" and c.__module__.split(".")[0] == "pandas" for c in type(source).__mro__)


def _open_pandas(session: DuckDBSession, source: Any, needed: Sequence[str], decimal: str) -> OpenedTable:
    """Its columns hold what they hold, whatever pandas says of them: see `elements`."""
    label = "the pandas table"
    names = [name if isinstance(name, str) else "" for name in source.columns]
    columns = {name: Column("NULL", "") for name in names if name}
    held: dict[str, tuple[NDArray[Any], NDArray[np.bool_] | None]] = {}
    for name in needed:
        if names.count(name) > 1:
            raise SourceError(f"{label} has more than one column called {name!r}")
        if name not in names:
            raise missing_column(label, name)
        message = f"{label} cannot be read for its column {name!r}"
        held[name] = attempt(message, lambda name=name: plain_column(source.iloc[:, names.index(name)], decimal))
    # no element of these types is a number, a date or a text: the type says so before a row is read
    types = ((n, str(d)) for n, d in zip(names, source.dtypes, strict=True) if n in held)
    spans = {n: Column("NULL", d) for n, d in types if d.startswith(("timedelta64", "period[", "interval["))}
    return OpenedTable(session, label, "source", columns | register_columns(session, held) | spans)


def register_columns(
    session: DuckDBSession, held: Mapping[str, tuple[NDArray[Any], NDArray[np.bool_] | None]]
) -> dict[str, Column]:
    """Columns of numbers or texts, the latter of objects, and which of them are missing besides."""
    arrays: dict[str, NDArray[Any]] = {}
    columns: dict[str, Column] = {}
    for i, (name, (values, missing)) in enumerate(held.items()):
        # under names of our own: DuckDB renames columns that differ in capitals alone
        arrays[f"c{i}"] = values
        kind = {"O": "VARCHAR", "f": "FLOAT" if values.itemsize == 4 else "DOUBLE"}.get(values.dtype.kind, "BIGINT")
        columns[name] = Column(f"c{i}", kind)
        if missing is not None:
            arrays[f"m{i}"] = missing
            columns[name] = Column(f"(CASE WHEN NOT m{i} THEN c{i} END)", kind)
    if arrays:
        session.connection.register("source", arrays)
    return columns


# Structs of the C data interface of arrow, as words of eight bytes each: 0 is a pointer to nothing.
_Words = ctypes.c_int64 * 10
_FILL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _stream_address(stream: object) -> int:
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return pointer(stream, b"arrow_array_stream")


def _children(address: int, count: int) -> list[ctypes.Array[ctypes.c_int64]]:
    return [_Words.from_address(child) for child in (ctypes.c_int64 * count).from_address(address)] if count else []


def _coarse_times(stream: object) -> set[str]:
    """The columns of a stream of arrow with times in a zone in seconds or milliseconds; its rows stay there."""
    place, schema = _stream_address(stream), _Words()
    # the first of the stream's own functions
    if _FILL.from_address(place)(place, schema):
        raise ValueError("the stream has no schema")
    try:
        columns = [[ctypes.c_char_p(text).value or b"" for text in c[:2]] for c in _children(schema[5], schema[4])]
        return {name.decode() for format, name in columns if re.match(rb"ts[sm]:.", format)}
    finally:
        _RELEASE(schema[7])(ctypes.addressof(schema))


_BYTES = {"UTINYINT": 1, "USMALLINT": 2, "UINTEGER": 4}  # what DuckDB calls the columns that encoding makes


def column_chunks(session: DuckDBSession, sql: str) -> Iterator[list[NDArray[Any]]]:
    """The columns of a query, unsigned whole numbers of up to four bytes, some rows after the other.

    DuckDB holds no more of them than it gives. Raises what is raised where reading fails, and for what is missing.
    """
    widths = [_BYTES[c.type] for c in session.columns(f"({sql})").values()]
    stream = session.connection.sql(sql).__arrow_c_stream__()
    place, rows = _stream_address(stream), _Words()
    get_next = _FILL.from_address(place + 8)
    while not (failed := get_next(place, rows)) and rows[8]:
        columns = [(w, c, _Words.from_address(c[5])) for w, c in zip(widths, _children(rows[6], rows[4]), strict=True)]
        # where they begin, a number for each row: what was given is taken back after this
        found = [np.frombuffer(ctypes.string_at(b[1] + w * c[2], w * c[0]), f"u{w}") for w, c, b in columns]
        missing = any(c[1] for _, c, _ in columns)
        _RELEASE(rows[8])(ctypes.addressof(rows))
        if missing:
            raise ValueError("missing numbers")
        yield found
    if failed:
        raise ValueError("rows that cannot be read")


def _open_stream(session: DuckDBSession, source: Any, needed: Sequence[str]) -> OpenedTable:
    package = type(source).__module__.split(".")[0].lstrip("_")
    label = f"the {package} table"
    message = f"{label} cannot be read: a column has a type that DuckDB does not know; select the columns declared"

    def register() -> tuple[set[str], dict[str, Column]]:
        # The bare stream: it can be read only once, and DuckDB needs no other package to read it.
        stream = source.__arrow_c_stream__()
        coarse = _coarse_times(stream)
        session.connection.register("source", stream)
        return coarse, session.columns("source")

    coarse, columns = attempt(message, register)
    _refuse_coarse_times(label, coarse, needed)
    # texts of polars and DuckDB are UTF-8, and a collation does not come along
    return OpenedTable(session, label, "source", columns if package in ("polars", "duckdb") else byte_texts(columns))


def byte_texts(columns: Mapping[str, Column]) -> dict[str, Column]:
    """Columns of texts compared by their bytes, whatever their collation, and read also where they are no UTF-8."""
    found = dict(columns)
    for name, column in columns.items():
        if column.type == "VARCHAR":
            # a bare arrow array may hold any bytes; under a collation "a" and "A" would be one key or person
            other = f"CASE WHEN {column.sql} IS NOT NULL THEN {sql_literal(UNREADABLE)} END"
            found[name] = replace(column, sql=f"coalesce(TRY(decode(encode({column.sql}))), {other})")
    return found


_NUMBERS = ("decimal", "thousands")
_TEXTS = (*_NUMBERS, "encoding", "delimiter")
_OPENERS: dict[str, tuple[Callable[[DuckDBSession, str, Sequence[str], Source], OpenedTable], tuple[str, ...]]] = {
    **dict.fromkeys((".csv", ".tsv", ".csv.gz", ".tsv.gz"), (_open_csv, _TEXTS)),
    ".xlsx": (_open_sheet, (*_NUMBERS, "sheet")),
    ".parquet": (_open_parquet, _NUMBERS),
    ".json": (_open_json, _NUMBERS),
    ".ndjson": (_open_json, _NUMBERS),
    ".jsonl": (_open_json, _NUMBERS),
}
"""Who opens a file, by the end of its name, and what may be declared of it."""
