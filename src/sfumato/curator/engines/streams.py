"""Servers that hand over the rows of one table: into DuckDB as they come, so that they are encoded as files are.

A server is asked for raw columns and never for counts: one statement for each table of counts takes six times as long
(docs/decisions/0052-engines.md), and what a text or a number means would be the server's to say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sfumato.curator.rows.encoding import Column
from sfumato.curator.rows.readers import SETTINGS, DuckDBSession, OpenedTable, byte_texts
from sfumato.errors import SourceError

# What may lie in memory while any number of rows is read: the database spills beyond it, and so do encoded records.
# Measured on ten million rows of fifteen attributes: docs/decisions/0052-engines.md.
# One thread: rows come one after the other, and with more the main one, which hears an interrupt, would not be asked.
_DATABASE = SETTINGS | {"memory_limit": "192MiB", "threads": "1"}
_RECORDS = 2**26  # 64 MB of encoded records: more lie in a file, for a server may hold any number


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a table on a server: how it is asked for, and what it is when it arrives.

    sent: the DuckDB type that must arrive, "" where the column cannot be read.
    type: what it is taken for: `sent`, or DATE, TIMESTAMP or UUID, read from its text; else the server's name for it.
    number: whether it is a number that arrives as its text, with a point whatever is declared of texts.
    """

    ask: str
    sent: str
    type: str
    number: bool = False


class Reading(Protocol):
    """One snapshot of a table, held until it is closed. What fails raises SourceError, in words without values."""

    @property
    def utf8(self) -> bool:
        """Whether the server has seen to it that every text is UTF-8."""
        ...

    def columns(self) -> Mapping[str, Field]:
        """Every column by its name, as the catalogue of the snapshot has it; no row is read."""
        ...

    def batches(self, asked: Sequence[str]) -> Any:
        """The rows: a pyarrow.RecordBatchReader with a column c0, c1, ... for each of `asked`.

        It raises at its end where another number of rows came than the snapshot has.
        """
        ...

    def close(self) -> None:
        """Give the snapshot up; more than once is fine."""
        ...


class ServerTable(ABC):
    """The address of one table on a server, made of its text. Raises InvalidInput, and never shows a password.

    label: what messages call the table. table: what two addresses have in common that may mean one table.
    """

    label: str
    table: tuple[str, ...]
    notation: tuple[str, str] = (".", "")
    """Decimal mark and separator of thousands in texts."""

    @abstractmethod
    def __init__(self, address: str) -> None: ...

    @abstractmethod
    def read(self) -> Reading:
        """Connect. Raises MissingExtra or SourceError."""

    def counts(self, *_: object) -> Any:
        """None: its rows come here (a table that counts by itself is an `Engine`)."""
        return None

    def opened(self, needed: Sequence[str]) -> OpenedTable:
        """The table as one that DuckDB can read, once. Raises what `read` and `Reading` raise."""
        session = DuckDBSession(settings=_DATABASE)
        reading = None
        try:
            reading = self.read()
            fields = reading.columns()
            columns = {name: Column("NULL", field.type) for name, field in fields.items()}
            asked = [fields[name] for name in needed if name in fields]
            if asked and len(asked) == len(needed) and all(field.sent for field in asked):
                session.connection.register("source", reading.batches([field.ask for field in asked]))
                arrived = session.columns("source")
                if [c.type for c in arrived.values()] != [field.sent for field in asked]:
                    raise SourceError(f"{self.label} sent other types of columns than its catalogue says")
                plain = arrived if reading.utf8 else byte_texts(arrived)
                pairs = zip(needed, asked, plain.values(), strict=True)
                columns |= {n: _encoded_column(f, c, self.notation) for n, f, c in pairs}
            return OpenedTable(session, self.label, "source", columns, records=_RECORDS)
        except BaseException:
            session.close()
            if reading is not None:
                reading.close()
            raise


def _encoded_column(field: Field, sent: Column, notation: tuple[str, str]) -> Column:
    """A column as it is encoded; a text that writes something else is read as that, and never fails to be."""
    if field.type == field.sent:
        return sent if field.number else Column(sent.sql, sent.type, *notation)
    value = f"TRY_CAST({sent.sql} AS {field.type})"
    beyond = f"CASE WHEN {sent.sql} IS NOT NULL THEN CAST('infinity' AS {field.type}) END"
    return Column(value if field.type == "UUID" else f"coalesce({value}, {beyond})", field.type)
