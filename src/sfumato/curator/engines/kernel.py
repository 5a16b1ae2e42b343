"""What is done to the rows of one partition where they lie: encoded once, counted in every pass, whatever the engine.

A record is kept as whole numbers ("words") of at most 63 bits, the cell of every attribute in some bits of one of them.
Fields that the engine has placed itself arrive in the words; all others arrive as they are, and DuckDB places them by
the rules of files, in the code of files. Each function takes batches of arrow and gives rows of `PartitionRow`.
"""

from __future__ import annotations

import hashlib
import io
import platform
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.cells import Grid
from sfumato.curator.rows.counting import Cluster, count_parts, sum_to_answers
from sfumato.curator.rows.encoding import (
    Column,
    Statement,
    Truncation,
    attribute_column,
    attribute_statements,
    cell_sql,
    field_sql,
    truncation_sql,
)
from sfumato.curator.rows.readers import SETTINGS, DuckDBSession, byte_texts

Words = NDArray[np.int64]
"""(words of a record, records)."""

_BITS = 63  # of a word: its sign stays free


@dataclass(frozen=True, slots=True)
class WordLayout:
    """Where in its words a record has its codes: of an attribute the cell, of a measure the place in its range."""

    grid: Grid

    def places(self) -> list[tuple[int, int, int]]:
        """(word, shift, bits) of every attribute; the number after its last code stands for a dropped record."""
        found: list[tuple[int, int, int]] = []
        word = end = 0
        for rule in self.grid.rules:
            bits = max(1, (rule.states - 1 + rule.drops).bit_length())
            if end + bits > _BITS:
                word, end = word + 1, 0
            found.append((word, end, bits))
            end += bits
        return found

    @property
    def words(self) -> int:
        """How many whole numbers a record is."""
        return self.places()[-1][0] + 1

    def cells(self, words: Words, i: int) -> NDArray[Any]:
        """The codes of one attribute."""
        word, shift, bits = self.places()[i]
        kind = np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32
        return (words[word] >> shift & 2**bits - 1).astype(kind)

    def moved(self, words: Words) -> Words:
        """The records moved to where they count, each by itself."""
        before = {i: self.cells(words, i) for m in self.grid.moves for i in m.axes}
        words = words.copy() if before else words
        for i, cells in self.grid.moved(before).items():
            word, shift, bits = self.places()[i]
            words[word] = words[word] & ~((2**bits - 1) << shift) | cells.astype(np.int64) << shift
        return words

    def kept(self, words: Words) -> NDArray[np.bool_]:
        """Which records are not dropped."""
        keep = np.ones(words.shape[1], dtype=bool)
        for i, rule in enumerate(self.grid.rules):
            if rule.drops:
                keep &= self.cells(words, i) != rule.states
        return keep


# Of a chunk: its cells stay in a core's caches while several blocks are counted, and it is a message of 2 MB.
_ROWS = 2**18
# What a partition may hold in memory beside its chunk; more is spilt. One thread: an engine has a task for each core.
_DATABASE = SETTINGS | {"memory_limit": "192MiB", "threads": "1"}
SLICE = 2**20
"""Cells that travel together when partial counts are added up: 8 MB."""
RECEIPT = -1
"""The chunk of a row that holds no records: it says what arrived."""


class PartitionRow(NamedTuple):
    """One row of what a partition gives.

    status: 0, or why there is nothing else. part, chunk: whose it is. rows: records kept. seen: rows that came.
    note: SHA-256 of `data`, and as int64 how many persons were cut and the largest code of every attribute.
    data: words, or whatever travels.
    """

    part: int
    chunk: int
    rows: int = 0
    seen: int = 0
    note: bytes = b""
    data: bytes = b""
    status: int = 0


def library_versions() -> tuple[str, ...]:
    """What must be the same where rows are counted and where the result is believed."""
    named = (f"{m} {metadata.version(m)}" for m in ("sfumato", "numpy", "duckdb"))
    return (f"python {platform.python_version()}", *named)


@dataclass(frozen=True, slots=True)
class Encoding(WordLayout):
    """How the rows of a partition become words: public, made of what is declared and of the types of columns.

    raw: by position, the DuckDB types of fields that arrive as they are, in columns `raw_names`; others arrive in w0,
    w1, and so on.
    person: the DuckDB type of the column `r` that names persons, of whose rows `most` are kept.
    notation: decimal mark and separator of thousands in texts.
    """

    raw: dict[int, tuple[str, ...]] = field(default_factory=dict[int, tuple[str, ...]])
    person: str | None = None
    truncation: Truncation = field(default_factory=lambda: Truncation(1))
    buckets: int = 1
    notation: tuple[str, str] = (".", "")

    def statements(self) -> tuple[list[Statement], str]:
        """(what to run first, SQL) of words that are whole, and the name of the person, from the table `source`."""
        first: list[Statement] = []
        raw = [f"w{k}" for k in range(self.words)]
        fields, words = list(raw), [[w] for w in raw]
        given = [pair for i, kinds in self.raw.items() for pair in zip(raw_names(i, kinds), kinds, strict=True)]
        columns = byte_texts({name: Column(name, kind, *self.notation) for name, kind in given})
        for i, (word, shift, _) in enumerate(self.places()):
            if i in self.raw:
                rule = self.grid.rules[i]
                column = attribute_column(rule, raw_names(i, self.raw[i]), columns)
                first += attribute_statements(rule, i)
                raw.append(f"{column.sql} AS f{i}")
                fields.append(f"{field_sql(rule, column, f'f{i}')} AS v{i}")
                cell = f"coalesce({cell_sql(rule, i, column.decimal)}, {rule.states})"
                words[word].append(f"CAST({cell} AS BIGINT) * {2**shift}")
        kept = [f"{' + '.join(w)} AS w{k}" for k, w in enumerate(words)]
        if self.person is not None:
            who = byte_texts({"r": Column("r", self.person, *self.notation)})["r"]
            raw.append(f"{who.sql} AS f")
            fields.append(f"{who.name('f')} AS person")
            kept.append("person")
        inner = f"SELECT {', '.join(fields)} FROM (SELECT {', '.join(raw)} FROM source)"
        return first, f"SELECT {', '.join(kept)} FROM ({inner})"


def raw_names(i: int, columns: Sequence[str]) -> list[str]:
    """What the columns are called that an attribute reads where rows lie, one or several."""
    return [f"r{i}"] if len(columns) == 1 else [f"r{i}_{k}" for k in range(len(columns))]


def encode(batches: Iterable[Any], how: Encoding, part: int) -> Iterator[PartitionRow]:
    """Chunks of encoded records, at least one; where persons are named, a table for each bucket of persons."""
    if how.person is not None:
        yield from _truncate_persons(batches, how, part)
        return
    for chunk, (words, _, seen) in enumerate(_encode_chunks(batches, how)):
        yield _chunk_part(how, words, part, chunk, seen)


def _encode_chunks(batches: Iterable[Any], how: Encoding) -> Iterator[tuple[Words, Any, int]]:
    """(words, names of persons, rows that came) of one chunk after the other, the last of them maybe empty."""
    session = DuckDBSession(settings=_DATABASE) if how.raw or how.person is not None else None
    first, query = how.statements()
    try:
        if session is not None:
            for statement in first:
                session.connection.execute(*statement)
        for table in _batch_tables(batches):
            seen = table.num_rows
            asked = table if session is None or not seen else _query_fields(session, query, table, how)
            yield (*_placed_rows(asked, seen, how), seen)
    finally:
        if session is not None:
            session.close()


def _query_fields(session: DuckDBSession, query: str, table: Any, how: Encoding) -> Any:
    """What DuckDB makes of the fields of some rows, which have to be of the types that were announced."""
    session.connection.register("source", table)
    expected = [kind for i in sorted(how.raw) for kind in how.raw[i]]
    expected += [] if how.person is None else [how.person]
    if [c.type for name, c in session.columns("source").items() if name.startswith("r")] != expected:
        raise TypeError
    return _fetch_arrow(session, query)


def _placed_rows(table: Any, rows: int, how: Encoding) -> tuple[Words, Any]:
    """(words, names of persons) of the rows that are not dropped."""
    if not rows:
        return np.zeros((how.words, 0), dtype=np.int64), None
    words = np.stack([table.column(f"w{k}").to_numpy() for k in range(how.words)])
    if words.dtype != np.int64 or words.shape[1] != rows:  # nulls make floats
        raise TypeError
    keep = how.kept(words)
    names = None
    if how.person is not None:
        keep &= ~np.asarray(table.column("person").is_null())
        names = table.column("person").filter(keep)
    return words if keep.all() else words[:, keep], names


def _batch_tables(batches: Iterable[Any]) -> Iterator[Any]:
    """Tables of about `_ROWS` rows, at least one."""
    import pyarrow as pa  # noqa: PLC0415

    held: list[Any] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= _ROWS:
            yield pa.Table.from_batches(held)
            held, rows = [], 0
    yield pa.Table.from_batches(held) if held else pa.table({})


def _fetch_arrow(session: DuckDBSession, query: str) -> Any:
    """What a query gives, as a table of arrow."""
    import pyarrow as pa  # noqa: PLC0415

    return pa.table(session.connection.sql(query))


def _chunk_part(how: WordLayout, words: Words, part: int, chunk: int, seen: int, cut: int = 0) -> PartitionRow:
    words = how.moved(words)  # after persons' rows were chosen, as in a file
    data = np.ascontiguousarray(words, dtype="<i8").tobytes()
    rows = words.shape[1]
    tops = [int(how.cells(words, i).max(initial=0)) for i in range(len(how.grid.rules))]
    note = hashlib.sha256(data).digest() + np.array([cut, *tops], dtype="<i8").tobytes()
    return PartitionRow(part, chunk, rows, seen, note, data)


# -- persons ----------------------------------------------------------------------------------------------


def _truncate_persons(batches: Iterable[Any], how: Encoding, part: int) -> Iterator[PartitionRow]:
    """Of each person of this partition each different row, and how often it is there: a table for every bucket."""
    with _People(how) as people:
        seen = 0
        for words, names, rows in _encode_chunks(batches, how):
            seen += rows
            if names is not None:
                people.add({f"w{k}": w for k, w in enumerate(words)} | {"person": names})
        found = people.told().sort_by("bucket")
    ends = np.searchsorted(np.asarray(found.column("bucket")), np.arange(how.buckets + 1))
    for bucket in range(how.buckets):
        some = found.slice(ends[bucket], ends[bucket + 1] - ends[bucket])
        yield PartitionRow(part, bucket, some.num_rows, seen if bucket == 0 else 0, data=_arrow_bytes(some))


def gather(batches: Iterable[Any], how: Encoding, part: int) -> Iterator[PartitionRow]:
    """From the buckets that came to a partition: what is kept of each person, and a receipt for every table."""
    receipts: list[PartitionRow] = []
    with _People(how) as people:
        for sent in _partition_parts(batches):
            table = table_from_arrow(sent.data)
            receipts.append(PartitionRow(sent.part, RECEIPT, table.num_rows, sent.seen, b"%d %d" % (sent.chunk, part)))
            if table.num_rows != sent.rows or (np.asarray(table.column("bucket")) != sent.chunk).any():
                raise ValueError
            people.add(table.drop_columns(["bucket"]))
        found = people.kept()
        if people.most(found) > how.truncation.most:
            raise ValueError
    words = np.stack([np.asarray(found.column(f"w{k}")) for k in range(how.words)])
    cut = np.asarray(found.column("cut"))
    for chunk, start in enumerate(range(0, max(1, words.shape[1]), _ROWS)):
        yield _chunk_part(how, words[:, start : start + _ROWS], part, chunk, 0, int(cut[start : start + _ROWS].sum()))
    yield from receipts


class _People:
    """Encoded records with the names of their persons, of whom each keeps a few: chosen as in a file."""

    def __init__(self, how: Encoding) -> None:
        self._how, self._session = how, DuckDBSession(settings=_DATABASE)
        self._words = ", ".join(f"w{k}" for k in range(how.words))
        columns = ", ".join(f"w{k} BIGINT" for k in range(how.words))
        self._session.connection.execute(f"CREATE TEMP TABLE people ({columns}, person VARCHAR, n BIGINT DEFAULT 1)")
        self._rows = f"SELECT {self._words}, person, CAST(sum(n) AS BIGINT) AS n FROM people GROUP BY ALL"

    def __enter__(self) -> _People:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def add(self, columns: Any) -> None:
        """Records to choose from, each of them once or `n` times."""
        import pyarrow as pa  # noqa: PLC0415

        self._session.connection.register("came", pa.table(columns))
        self._session.connection.execute("INSERT INTO people BY NAME SELECT * FROM came")

    def told(self) -> Any:
        """All that is to be chosen from. What is kept hangs on how often a row is there, in all partitions."""
        return _fetch_arrow(
            self._session, f"SELECT *, hash(person) % {self._how.buckets} AS bucket FROM ({self._rows})"
        )

    def kept(self) -> Any:
        """What is kept of each person: words, name, and a mark on one row of who had more."""
        places = self._how.places()
        cells = ", ".join(f"(w{w} >> {s}) & {2**b - 1} AS a{i}" for i, (w, s, b) in enumerate(places))
        names = ", ".join(f"a{i}" for i in range(len(places)))
        chosen = truncation_sql(names, f"SELECT *, {cells} FROM ({self._rows})", self._how.truncation)
        return _fetch_arrow(self._session, f"SELECT {self._words}, person, cut FROM ({chosen})")

    def most(self, found: Any) -> int:
        """Rows of the person who has most of them."""
        self._session.connection.register("found", found)
        query = "SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM found GROUP BY person)"
        return int(self._session.rows(query)[0][0])


def _arrow_bytes(table: Any) -> bytes:
    import pyarrow as pa  # noqa: PLC0415

    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def table_from_arrow(data: bytes) -> Any:
    """The table of arrow that was written as bytes."""
    import pyarrow as pa  # noqa: PLC0415

    return pa.ipc.open_stream(data).read_all()


def _partition_parts(batches: Iterable[Any]) -> Iterator[PartitionRow]:
    """The rows of batches. Raises ValueError where a partition before had nothing to give."""
    for batch in batches:
        for i in range(batch.num_rows):
            found = PartitionRow(*(batch.column(name)[i].as_py() for name in PartitionRow._fields))
            if found.status:
                raise ValueError
            yield found


# -- tables that are made of several ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TableShare:
    """What is needed of one of several tables: public, made of what is declared and of the types of columns.

    number: of the table, which is called handed{number} where it is put together. types: those of the columns r0, r1,
    ... that arrive. query: SQL of a row's person and of all else, one row at a time, from the table `source`.
    """

    number: int
    types: tuple[str, ...]
    query: str

    def create(self, session: DuckDBSession) -> None:
        """Make the table in a session, without rows."""
        empty = ", ".join(f"CAST(NULL AS {kind}) AS r{i}" for i, kind in enumerate(self.types))
        made = f"CREATE TEMP TABLE handed{self.number} AS WITH source AS (SELECT {empty} WHERE false) {self.query}"
        session.connection.execute(made)


def hand(batches: Iterable[Any], how: TableShare, buckets: int, part: int) -> Iterator[PartitionRow]:
    """What is needed of the rows of one table that name a person: a table for every bucket of persons."""
    session, seen = DuckDBSession(settings=_DATABASE), 0
    try:
        how.create(session)
        for table in _batch_tables(batches):
            if not table.num_rows:
                continue
            seen += table.num_rows
            session.connection.register("source", table)
            if tuple(column.type for column in session.columns("source").values()) != how.types:
                raise TypeError
            session.connection.execute(f"INSERT INTO handed{how.number} BY NAME {how.query}")
        query = f"SELECT *, CAST(hash(person) % {buckets} AS BIGINT) AS bucket FROM handed{how.number} ORDER BY bucket"
        found = _fetch_arrow(session, query)
    finally:
        session.close()
    ends = np.searchsorted(np.asarray(found.column("bucket")), np.arange(buckets + 1))
    for bucket in range(buckets):
        some = found.slice(ends[bucket], ends[bucket + 1] - ends[bucket])
        note, came = b"%d" % how.number, seen if bucket == 0 else 0
        yield PartitionRow(part, bucket, some.num_rows, came, note, _arrow_bytes(some))


@contextmanager
def _meeting(
    batches: Iterable[Any], tables: Sequence[TableShare], statements: Sequence[Statement], part: int
) -> Generator[tuple[DuckDBSession, list[PartitionRow]]]:
    """A session in which statements were run on what came of the tables, and a receipt for every table that was sent.

    All that is there of a person is there whole, for whole buckets of persons come to one partition.
    """
    receipts: list[PartitionRow] = []
    session = DuckDBSession(settings=_DATABASE)
    try:
        for one in tables:
            one.create(session)
        for sent in _partition_parts(batches):
            table, number = table_from_arrow(sent.data), int(sent.note)
            note = b"%d %d %d" % (sent.chunk, part, number)
            receipts.append(PartitionRow(sent.part, RECEIPT, table.num_rows, sent.seen, note))
            if table.num_rows != sent.rows or (np.asarray(table.column("bucket")) != sent.chunk).any():
                raise ValueError
            session.connection.register("came", table.drop_columns(["bucket"]))
            session.connection.execute(f"INSERT INTO handed{number} BY NAME SELECT * FROM came")
        for statement in statements:
            session.connection.execute(*statement)
        yield session, receipts
    finally:
        session.close()


def put_together(
    batches: Iterable[Any], how: WordLayout, tables: Sequence[TableShare], statements: Sequence[Statement], part: int
) -> Iterator[PartitionRow]:
    """Chunks of encoded records of the persons whose buckets came, and a receipt for every table that was sent.

    statements: those that are run of files; the last creates the table `encoded`, in which a person's rows are cut.
    """
    with _meeting(batches, tables, statements, part) as (session, receipts):
        words = [["CAST(0 AS BIGINT)"] for _ in range(how.words)]
        for i, (word, shift, _) in enumerate(how.places()):
            words[word].append(f"CAST(a{i} AS BIGINT) * {2**shift}")
        named = ", ".join(f"{' + '.join(sum)} AS w{k}" for k, sum in enumerate(words))
        # In an order of their own: a part that is made again, of rows that came in another one, has the same bytes.
        found = _fetch_arrow(session, f"SELECT {named}, CAST(cut AS BIGINT) AS cut FROM encoded ORDER BY ALL")
    placed = np.stack([np.asarray(found.column(f"w{k}")) for k in range(how.words)])
    cut = np.asarray(found.column("cut"))
    for chunk, start in enumerate(range(0, max(1, placed.shape[1]), _ROWS)):
        some = slice(start, start + _ROWS)
        yield _chunk_part(how, placed[:, some], part, chunk, 0, int(cut[some].sum()))
    yield from receipts


def hand_back(
    batches: Iterable[Any], tables: Sequence[TableShare], statements: Sequence[Statement], part: int
) -> Iterator[PartitionRow]:
    """What the last statement created as `lines`, in chunks that say how many rows all of them have, and receipts."""
    with _meeting(batches, tables, statements, part) as (session, receipts):
        found = _fetch_arrow(session, "SELECT * FROM lines ORDER BY ALL")
    for chunk, start in enumerate(range(0, max(1, found.num_rows), _ROWS)):
        some = found.slice(start, _ROWS)
        yield PartitionRow(part, chunk, some.num_rows, note=b"%d" % found.num_rows, data=_arrow_bytes(some))
    yield from receipts


# -- counting ---------------------------------------------------------------------------------------------


def count(batches: Iterable[Any], how: WordLayout, parts: Sequence[Cluster]) -> Iterator[PartitionRow]:
    """Tables of the sets that the blocks of `parts` answer, in slices, and of every chunk what was counted of it."""
    seen: list[bytes] = []

    def read(needed: NDArray[np.int64]) -> Iterator[dict[int, NDArray[Any]]]:
        for sent in _partition_parts(batches):
            if sent.chunk == RECEIPT:
                continue
            seen.append(np.array([sent.part, sent.chunk], dtype="<i4").tobytes() + hashlib.sha256(sent.data).digest())
            words = np.frombuffer(sent.data, dtype="<i8").reshape(how.words, -1)
            if words.size:
                yield {i: how.cells(words, i) for i in needed.tolist()}

    tables = count_parts(how.grid, parts, read)
    found: list[NDArray[np.int64]] = []
    for part, table in zip(parts, tables, strict=True):
        answers = dict(sum_to_answers(part, table))
        found += [answers[column].reshape(-1) for column in range(len(part.answers))]
    flat = np.concatenate(found)
    for k, start in enumerate(range(0, len(flat), SLICE)):
        yield PartitionRow(0, k, data=flat[start : start + SLICE].astype("<i8").tobytes())
    yield PartitionRow(0, RECEIPT, data=b"".join(seen))


def total(batches: Iterable[Any]) -> Iterator[PartitionRow]:
    """Slices of the same number added up; receipts as they came."""
    sums: dict[int, NDArray[np.int64]] = {}
    for sent in _partition_parts(batches):
        if sent.chunk == RECEIPT:
            yield sent
            continue
        counts = np.frombuffer(sent.data, dtype="<i8")
        sums[sent.chunk] = sums.get(sent.chunk, 0) + counts
    for k, counts in sums.items():
        yield PartitionRow(0, k, data=counts.astype("<i8").tobytes())


def part_batches(rows: Iterable[PartitionRow]) -> Iterator[Any]:
    """Rows as batches of arrow."""
    import pyarrow as pa  # noqa: PLC0415

    kinds = {int: pa.int64(), bytes: pa.binary()}
    schema = pa.schema([(name, kinds[bytes if name in ("note", "data") else int]) for name in PartitionRow._fields])
    for row in rows:
        yield pa.RecordBatch.from_pylist([row._asdict()], schema=schema)
