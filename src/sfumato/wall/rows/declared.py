"""What a spec says of its table under [data]: where it is, and how it is written. No row is read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from sfumato.ground.elsewhere import engine
from sfumato.wall.rows.kinds import kind_of
from sfumato.wall.rows.written import NOTATIONS, Source
from sfumato.workloads.reading import Section

__all__ = ["table_at", "table_of"]


def table_of(data: Section, folder: Path) -> str | Source | None:
    """The source of a spec in a folder, with its notation where one is declared. Raises SpecError."""
    data.allow("source", "table", *NOTATIONS)
    source = data.text("source")
    if source is not None and ":" in source:
        with data.guard("source"):
            engine(source)  # refuses what is no address, and passwords
    source = source if source is None or "://" in source else str(folder / source)
    written: dict[str, Any] = {}
    for name in (name for name in NOTATIONS if name in data):
        written[name] = data.text(name)
        with data.guard(name):
            Source(source, **written)
    return Source(source, **written) if written else source


def table_at(declared: str | Source | None, table: str | None, **written: str | None) -> str | Source | None:
    """The table that was named instead of a spec's, or the spec's own, written as is said here or else in the spec.

    What the spec says of a sheet does not go for a text file that is named instead of the workbook, nor what it says
    of a text file for another kind of table.
    """
    base = declared if isinstance(declared, Source) else Source(declared)
    if table is not None:
        kind = "" if "://" in table else kind_of(table)
        base = replace(base, table=table)
        if kind != ".xlsx":
            base = replace(base, sheet=None)
        if kind.removesuffix(".gz") not in (".csv", ".tsv"):
            base = replace(base, encoding="utf-8", delimiter=None)
    base = replace(base, **{name: value for name, value in written.items() if value is not None})
    return base if base.table is not None and base.declared() else base.table
