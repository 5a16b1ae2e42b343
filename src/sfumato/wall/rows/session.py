"""A private DuckDB for one table, walled in: no extensions, no network, no file but those that were named and a copy.

Its own error texts quote the table, so none of them is passed on.
"""

from __future__ import annotations

import os
import re
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sfumato.errors import MissingExtra, SourceError
from sfumato.ground import scratch
from sfumato.wall.rows.encoding import Column, identifier, literal

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["MAX_BYTES", "MAX_ROWS", "SETTINGS", "Opened", "Session", "attempt", "keep", "lacks", "plainly"]

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


class Session:
    """A private DuckDB in memory that may read the given files and write only to a folder of its own."""

    connection: DuckDBPyConnection
    copy: str
    """Where a copy of a text file may be written; gone when the session is closed."""
    text: str
    """Where another file may be written as a text file, likewise."""

    def __init__(self, files: Sequence[str] = (), settings: Mapping[str, str] = SETTINGS) -> None:
        import duckdb  # noqa: PLC0415

        # it may hold records; what a killed process left of them goes now
        place = scratch.Place(Path(tempfile.gettempdir()) / "sfumato", 0o700)
        self.copy, self.text = f"{place.path}/copy", f"{place.path}/text"
        self.connection = duckdb.connect(":memory:", config={**settings, "temp_directory": f"{place.path}/spill"})
        self.close = weakref.finalize(self, _clean_up, self.connection, place, os.getpid())
        if self.rows("SELECT current_setting('enable_progress_bar')") == [(True,)]:  # where it is off, notebooks refuse
            self.connection.execute("SET enable_progress_bar = false")
        known = self.rows("SELECT name FROM duckdb_optimizers()")
        off = ",".join(str(name) for (name,) in known if name not in _OPTIMIZERS)
        self.connection.execute(f"SET disabled_optimizers = {literal(off)}")
        paths = dict.fromkeys(p for f in (*files, self.copy, self.text) for p in (f, plainly(f)))
        self.connection.execute(f"SET allowed_paths = [{', '.join(map(literal, paths))}]")
        self.connection.execute("SET enable_external_access = false")
        self.connection.execute("SET lock_configuration = true")

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        return self.connection.execute(sql).fetchall()

    def columns(self, sql: str) -> dict[str, Column]:
        """The columns of what `sql` reads, by name."""
        described = self.rows(f"DESCRIBE SELECT * FROM {sql}")
        return {str(name): Column(identifier(str(name)), str(kind)) for name, kind, *_ in described}


def plainly(path: str) -> str:
    """A path as a pattern that means it alone."""
    return _GLOB.sub(r"[\1]", path)


def _clean_up(connection: DuckDBPyConnection, place: scratch.Place, process: int) -> None:
    if os.getpid() != process:
        return  # a forked child has neither the engine's threads nor the right to the parent's folder
    connection.close()
    place.remove()


@dataclass(frozen=True, slots=True)
class Opened:
    """A table that DuckDB can read: what to call it, the SQL it is read from, its columns by name.

    records: at most so many bytes of encoded records are taken to memory.
    """

    session: Session = field(repr=False)
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


def lacks(label: str, name: str) -> SourceError:
    """The error of a column that is not there."""
    # The columns that are there are not listed: where a file has no header, its first record stands there.
    return SourceError(f"{label} has no column called {name!r} (names are matched exactly, capitals included)")


def keep(session: Session, opener: Callable[[Session], Opened]) -> Opened:
    """Open something in a session, which is closed where that fails."""
    try:
        return opener(session)
    except BaseException:
        session.close()
        raise
