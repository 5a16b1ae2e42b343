"""A table of Spark: encoded in its partitions, kept there as bytes, and counted there in passes.

Only DataFrames are used, so that classic clusters and Spark Connect are served alike. Rows are moved by hash alone: the
rows of a round robin are others when a task runs again. What an executor has to say of a failure may quote rows, so a
partition that fails says so in a column, and what Spark says goes nowhere.

Cells as expressions of Spark, for the kinds of columns where they are provably what DuckDB makes of the fields.

Only what is total is used: comparisons, CASE, and arithmetic on numbers that were brought into their range first;
nothing fails for a row. Spark has NaN above every number and equal to itself, so it is asked for before others are
compared.
Of all other columns (numbers as texts, decimals, days) the fields travel as they are, to be placed by DuckDB.

Short code is fast code: Spark puts all that is done to a row into one method, and long ones are never compiled.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import uuid
import warnings
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

import numpy as np
from numpy.typing import NDArray

from sfumato.cells import Codes, Edges, Grid, Rule, Truths, Wholes, whole_text
from sfumato.curator.engines.kernel import (
    RECEIPT,
    SLICE,
    Encoding,
    PartitionRow,
    TableShare,
    library_versions,
    raw_names,
    table_from_arrow,
)
from sfumato.curator.engines.partitions import (
    Engine,
    PassCheck,
    check_encoded_parts,
    check_joined_parts,
    check_lines,
    end_what_comes,
    report_job_progress,
)
from sfumato.curator.rows.counting import Cluster
from sfumato.curator.rows.encoding import Column, Statement, Truncation, edge_thresholds
from sfumato.curator.rows.readers import DuckDBSession, byte_texts, missing_column
from sfumato.errors import InvalidInput, MissingExtra, SourceError, how_to_install

# Comparisons in one expression: with many more, Java gives up compiling it, and DuckDB looks up faster.
_MOST = 64
_WHOLE = re.compile("-?(0|[1-9][0-9]*)")
# What "1.0" is the code 1 of: DuckDB reads 38 digits.
_DIGITS = 38
_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT"}


def spark_cell(rule: Rule, kind: str, column: Any, f: Any) -> Any:
    """The cell of a column of some DuckDB type as a whole number, `rule.size` where its row is dropped; None: not here.

    f: `pyspark.sql.functions`.
    """
    extra = {"other": rule.size - 1, "drop": rule.size}
    outside, missing = extra.get(rule.outside or "", 0), extra[rule.missing or "drop"]
    absent = column.isNull() | f.isnan(column) if kind in ("DOUBLE", "FLOAT") else column.isNull()
    found = f.when(absent, _long_literal(missing, f))
    if isinstance(rule, Edges) and kind in _INTEGERS | {"DOUBLE", "FLOAT"} and len(rule.edges) <= _MOST:
        steps = [outside, *range(rule.declared), rule.declared - 1 if rule.outside == "clamp" else outside]
        least = _float_edges(edge_thresholds(rule)) if kind == "FLOAT" else edge_thresholds(rule)
        for step, edge in zip(steps, least, strict=False):
            found = found.when(column.cast("double") < f.lit(edge).cast("double"), _long_literal(step, f))
        return found.otherwise(_long_literal(steps[-1], f))
    if isinstance(rule, Wholes) and kind in _INTEGERS | {"DOUBLE"}:
        number = "double" if kind == "DOUBLE" else "bigint"
        low, high = (f.lit(float(n) if kind == "DOUBLE" else n).cast(number) for n in (rule.low, rule.high))
        given = near = column.cast(number)
        inside = (given >= low) & (given <= high)
        if rule.outside == "clamp" or kind in ("BIGINT", "DOUBLE"):
            # in its range first: then nothing overflows, and of edition 1 what was no whole number is another one
            near = f.floor(f.least(f.greatest(given, low), high)).cast("bigint")
            inside = inside if rule.edition > 1 else near.cast(number) == given
        place = near if rule.low == 0 else near - _long_literal(rule.low, f)
        place = place if rule.width == 1 else f.call_function("div", place, _long_literal(rule.width, f))
        return found.otherwise(
            place if rule.outside == "clamp" else f.when(inside, place).otherwise(_long_literal(outside, f))
        )
    return _lookup_cell(rule, kind, column, (outside, missing), f)


def _long_literal(number: int | None, f: Any) -> Any:
    return f.lit(number).cast("bigint")


def _float_edges(edges: Sequence[float]) -> list[float]:
    """For every edge the least 32-bit float that is not below it.

    A float is read by the text that DuckDB gives it, which reads back as the same one: so floats keep their order, and
    it is one of those around the edge. DuckDB is asked which.
    """
    with np.errstate(over="ignore"):
        around = np.array([edges] * 5, dtype=np.float32)
    for row, to in ((1, -np.inf), (0, -np.inf), (3, np.inf), (4, np.inf)):
        around[row] = np.nextafter(around[row + 1 if row < 2 else row - 1], np.float32(to))
    asked = ", ".join(f"CAST('{x!r}' AS FLOAT)" for x in around.ravel().tolist())
    read = DuckDBSession().rows(f"SELECT {Column('', 'FLOAT').number('x')} FROM (SELECT unnest([{asked}]) AS x)")
    above = np.array(read).reshape(around.shape) >= np.array(edges)
    return [float(x) for x in around[above.argmax(axis=0), range(len(edges))]]


def _lookup_cell(rule: Rule, kind: str, column: Any, extra: tuple[int, int], f: Any) -> Any:
    """The cell of what is told by equality alone."""
    texts = rule.codes if isinstance(rule, Codes) else ("false", "true") if kind == "BOOLEAN" else ("0", "1")
    if isinstance(rule, Codes) and (rule.edition > 1 or rule.cells or rule.prefixes):
        return None
    places = {code: i for i, code in enumerate(texts)}
    whole = {code: i for code, i in places.items() if _WHOLE.fullmatch(code) and code != "-0"}
    if not isinstance(rule, Codes | Truths) or len(texts) > _MOST:
        return None
    if kind == "BOOLEAN":
        return _place_or_extra(
            column, {v: places[str(v).lower()] for v in (False, True) if str(v).lower() in places}, extra, f
        )
    if any(whole_text(code) != code for code in texts):
        return None  # the code "1.0" is 1 too: DuckDB knows
    if kind in _INTEGERS:
        numbers = {int(code): i for code, i in whole.items() if abs(int(code)) < 2**63}
        return _place_or_extra(column.cast("bigint"), numbers, extra, f)
    if kind != "VARCHAR" or isinstance(rule, Truths) or any(len(code) >= _DIGITS for code in whole):
        return None
    places[""] = extra[1]
    if not whole:
        return _place_or_extra(column, places, extra, f)
    # of whole numbers with zero decimals, the digits before the point
    whole |= {"-0": whole["0"]} if "0" in whole else {}
    written = f.contains(column, f.lit(".0")) & column.rlike(r"^-?(0|[1-9][0-9]*)[.]0+\z")
    more = _place_in_array(f.when(written, f.substring_index(column, ".", 1)), whole, None, f)
    outside, missing = (_long_literal(n, f) for n in extra)
    return f.coalesce(_place_in_array(column, places, None, f), f.when(column.isNull(), missing), more, outside)


def _place_or_extra(column: Any, places: dict[Any, int], extra: tuple[int, int], f: Any) -> Any:
    """The place of what a column is equal to; of all else the first of `extra`, of null the second."""
    outside, missing = (_long_literal(n, f) for n in extra)
    if not places:
        return f.when(column.isNull(), missing).otherwise(outside)
    return f.coalesce(_place_in_array(column, places, extra[0], f), missing)


def _place_in_array(column: Any, places: dict[Any, int], other: int | None, f: Any) -> Any:
    """The place of what a column is equal to, `other` where it is equal to none, null of null.

    It is looked for in a list, which is little code whatever is in it: an arm of CASE for every value is much. Its
    number there is 0 of what is not in it.
    """
    number = f.call_function("array_position", f.array(*map(f.lit, places)), column)
    return f.get(f.array(*(_long_literal(n, f) for n in (other, *places.values()))), number)


_FORM = "spark://host:port?table=catalog.database.table"
_PART = '"(?:[^"]|"")+"|[^".]+'
_TABLE = re.compile(rf"(?:(?:{_PART})\.)*(?:{_PART})")
_SCHEMA = ", ".join(f"{n} {'binary' if n in ('note', 'data') else 'bigint'}" for n in PartitionRow._fields)
# Rows of encoded chunks that travel in one batch: 2 MB each.
_CHUNKS = 16
_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
# How large a batch has become Spark finds out anew for every row, unless any size will do; that took a seventh of all.
_ENDLESS = {"spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1)}
_ROWS = 2**16  # of a batch of records; with a sixth of that, batches cost more than rows
_PARTITIONS = "spark.sql.shuffle.partitions"
_FAILED, _OTHER, _LACKING = 1, 2, 3  # statuses that a partition may give, told apart by number: no text travels
_STATES = {
    _FAILED: "a partition could not be read or counted",
    _OTHER: "its executors run another Python, numpy, duckdb or sfumato than this program",
    _LACKING: "its executors have no sfumato, or another one",
}
_KINDS = {"tinyint": "TINYINT", "smallint": "SMALLINT", "int": "INTEGER", "bigint": "BIGINT", "boolean": "BOOLEAN"} | {
    "float": "FLOAT", "double": "DOUBLE", "string": "VARCHAR", "date": "DATE", "timestamp_ntz": "TIMESTAMP",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
}  # fmt: skip


class Spark(Engine):
    """A DataFrame, or the address of a table. Raises InvalidInput."""

    def __init__(self, source: Any) -> None:
        self._given = source
        self._kept: list[Any] = []
        weakref.finalize(self, _unpersist_all, self._kept)
        if isinstance(source, str):
            parts, table = _split_spark_address(source)
            self._master = f"spark://{parts.netloc}" if parts.netloc else None
            # Spark's catalogue takes capitals for small letters
            self.table = tuple(part.casefold() for part in _table_name_parts(table))
            self.label = f"the Spark table {table}"
            return
        self.label, self.table = "the Spark table", ()
        if not hasattr(source, "mapInArrow") or self._told(lambda: source.isStreaming):
            raise InvalidInput(f"of Spark a DataFrame that is no stream is counted, not a {type(source).__name__}")

    def columns(self) -> Mapping[str, str]:
        schema = self._told(lambda: self._frame().schema)
        found: dict[str, str] = {}
        for field in schema.fields:
            kind = field.dataType.simpleString()
            kind = "string" if kind.startswith(("string collate", "varchar(")) else kind
            kind = kind.upper() if kind.startswith("decimal(") else _KINDS.get(kind, kind.partition("<")[0])
            found[field.name] = "two columns" if field.name in found else kind
        return found

    def encode(self, grid: Grid, person: str | None, truncation: Truncation) -> PassCheck:
        f = _import_spark_module("pyspark.sql.functions")
        kinds = self.columns()
        plain, columns = self.named_columns(f)
        read = grid.columns
        placed = {
            i: None if more else spark_cell(r, kinds[n], columns[n], f)
            for i, ((n, *more), r) in enumerate(zip(read, grid.rules, strict=True))
        }
        if self.notation[0] != ".":  # "1,0" is 1 then, which DuckDB knows
            placed |= {i: None for i, (n, *_) in enumerate(read) if kinds[n] == "VARCHAR"}
        raw = {i: tuple(kinds[n] for n in read[i]) for i, found in placed.items() if found is None}
        parts = self._partitions()
        how = self._how = Encoding(grid, raw, person and kinds[person], truncation, parts, self.notation)
        words = [f.lit(0).cast("bigint")] * how.words
        for i, (word, shift, _) in enumerate(how.places()):
            if i not in raw:
                words[word] = words[word].bitwiseOR(f.shiftleft(placed[i], shift))
        asked = [w.alias(f"w{k}") for k, w in enumerate(words)]
        asked += [columns[n].alias(r) for i in raw for n, r in zip(read[i], raw_names(i, read[i]), strict=True)]
        asked += [] if person is None else [columns[person].alias("r")]

        def run() -> tuple[int, list[PartitionRow]]:
            report_job_progress("encoding", 0, 2)
            came = plain.count()
            report_job_progress("encoding", 1, 2)
            # Few parts here, and no others later: one that is made again in a pass has to have the same number.
            few = plain.select(*asked).coalesce(parts)
            made = few.mapInArrow(_partition_function("encode", how, numbered=True), _SCHEMA)
            if person is not None:
                made = made.repartition(parts, "chunk").mapInArrow(
                    _partition_function("gather", how, numbered=True), _SCHEMA
                )
            kept = made.persist(_import_spark_module("pyspark").StorageLevel.MEMORY_AND_DISK)
            self._kept.append(kept)
            return came, _collect_parts(kept.drop("data"))

        came, found = self._told(run, batch=_ROWS, small=not raw and person is None)
        _check_status(self.label, found)
        return check_encoded_parts(self.label, grid, found, came, None if person is None else parts)

    def tally(self, parts: Sequence[Cluster]) -> tuple[NDArray[np.int64], list[bytes]]:
        cells = sum(len(p.blocks) * int(np.prod([p.sizes[a] for a in kept])) for p in parts for _, kept in p.answers)
        flat = np.zeros(cells, dtype=np.int64)
        digests: list[bytes] = []

        def run() -> None:
            partial = self._kept[0].mapInArrow(_partition_function("count", self._how, tuple(parts)), _SCHEMA)
            # no more tasks than slices to add up, and receipts: each takes a worker, with rows or without
            some = min(self._partitions(), 1 - (-cells // SLICE))
            summed = partial.repartition(some, "chunk").mapInArrow(_partition_function("total"), _SCHEMA)
            for row in _collect_parts(summed):
                _check_status(self.label, [row])
                if row.chunk == RECEIPT:
                    digests.extend(row.data[i : i + 40] for i in range(0, len(row.data), 40))
                else:
                    counts = np.frombuffer(row.data, dtype="<i8")
                    flat[row.chunk * SLICE :][: len(counts)] = counts

        self._told(run, batch=_CHUNKS)
        return flat, digests

    def close(self) -> None:
        _unpersist_all(self._kept)

    def named_columns(self, f: Any) -> tuple[Any, dict[str, Any]]:
        """The DataFrame under names of our own, and its columns by the names that they had."""
        frame = self._frame()
        kinds = self.columns()
        plain = self._told(lambda: frame.toDF(*(f"c{i}" for i in range(len(frame.columns)))))
        columns = {name: f.col(f"c{i}") for i, name in enumerate(kinds)}
        # of whatever collation: equal are texts whose bytes are
        return plain, columns | {
            n: f.collate(columns[n], "UTF8_BINARY") for n, kind in kinds.items() if kind == "VARCHAR"
        }

    def persons(
        self, label: str, columns: Mapping[str, str], tables: Sequence[Share], statements: Sequence[Statement]
    ) -> SparkPersons:
        """A table of persons, or of their rows, that is made of several tables where these lie."""
        return SparkPersons(self._given, label, columns, tables, statements)

    def lines(
        self, needed: Sequence[str], handed: Callable[[str, Mapping[str, Column]], str], statement: str
    ) -> Iterator[tuple[int, Any]]:
        """Lines that are made of all rows of each person where these meet: numbers of parts, with tables of arrow.

        handed: from the SQL of a table, and its columns, to that of persons and what is needed of them, as often as it
        is there. statement: it creates the table `lines` of all that, `handed`. Raises SourceError.
        """
        kinds = self.columns()
        for name in needed:
            if name not in kinds:
                raise missing_column(self.label, name)
        columns = byte_texts({name: Column(f"r{i}", kinds[name], *self.notation) for i, name in enumerate(needed)})
        share = (self, needed, handed("source", columns))
        made = ["CREATE TEMP VIEW handed AS SELECT * FROM handed0", statement]
        return self.persons(self.label, kinds, [share], [(text, ()) for text in made]).made_lines()

    def _frame(self) -> Any:
        """The DataFrame; an address is looked up in a session that is there, or in one that is started."""
        if isinstance(self._given, str):
            _, table = _split_spark_address(self._given)
            self._given = self._told(lambda: _spark_session(self._master).table(_quote_table_name(table)))
        return self._given

    def _partitions(self) -> int:
        return max(1, int(self._told(lambda: self._frame().sparkSession.conf.get(_PARTITIONS))))

    def _told(self, action: Callable[[], Any], batch: int | None = None, *, small: bool = False) -> Any:
        """Run an action; what it raises is replaced, and not even kept as a context."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of pandas, which is not used
                with nullcontext() if batch is None else _isolated_action(self._frame().sparkSession, batch, small):
                    return action()
        except (SourceError, MissingExtra):
            raise
        except Exception:  # it may quote rows
            pass
        raise SourceError(f"{self.label} cannot be read: Spark refused or broke off, or an executor lacks this Python")


Share = tuple[Spark, Sequence[str], str]
"""A table, those of its columns that are needed, and SQL of what is needed of them (`kernel.TableShare.query`)."""


class SparkPersons(Spark):
    """A table that is made of several, of whose rows those of one person meet in one partition.

    Statements are those of files, run in every partition; so a feature means what it means there, to the bit.
    """

    def __init__(
        self,
        source: Any,
        label: str,
        columns: Mapping[str, str],
        tables: Sequence[Share],
        statements: Sequence[Statement],
    ) -> None:
        super().__init__(source)
        self.label, self._columns, self._tables, self._statements = label, columns, tables, statements

    def columns(self) -> Mapping[str, str]:
        return self._columns

    def encode(self, grid: Grid, person: str | None, truncation: Truncation) -> PassCheck:
        self._how = Encoding(grid)

        def keep(made: Any) -> Any:
            kept = made.persist(_import_spark_module("pyspark").StorageLevel.MEMORY_AND_DISK)
            self._kept.append(kept)
            return kept.drop("data")

        came, found = self._met("put_together", (self._how,), keep)
        return check_joined_parts(self.label, grid, found, came, self._partitions())

    def made_lines(self) -> Iterator[tuple[int, Any]]:
        """What the last statement creates as `lines`: numbers of parts, with tables of arrow. Raises SourceError."""
        came, found = self._met("hand_back", (), lambda made: made)
        for chunk in check_lines(self.label, found, came, self._partitions()):
            yield chunk.part, table_from_arrow(chunk.data)

    def _met(
        self, stage: str, given: tuple[Any, ...], asked_of: Callable[[Any], Any]
    ) -> tuple[list[int], list[PartitionRow]]:
        """Each table's rows as Spark counts them, and what a stage gave of the parts where a person's rows meet."""
        f = _import_spark_module("pyspark.sql.functions")
        parts = self._partitions()
        shares: list[TableShare] = []
        frames: list[tuple[Any, list[Any]]] = []
        for number, (table, chosen, query) in enumerate(self._tables):
            kinds, (plain, columns) = table.columns(), table.named_columns(f)
            shares.append(TableShare(number, tuple(kinds[name] for name in chosen), query))
            frames.append((plain, [columns[name].alias(f"r{i}") for i, name in enumerate(chosen)]))

        def run() -> tuple[list[int], list[PartitionRow]]:
            report_job_progress("encoding", 0, len(frames) + 1)
            came: list[int] = []
            sent: Any = None
            for share, (plain, asked) in zip(shares, frames, strict=True):
                came.append(plain.count())
                report_job_progress("encoding", len(came), len(frames) + 1)
                few = plain.select(*asked).coalesce(parts)
                found = few.mapInArrow(_partition_function("hand", share, parts, numbered=True), _SCHEMA)
                sent = found if sent is None else sent.unionAll(found)
            made = _partition_function(stage, *given, tuple(shares), tuple(self._statements), numbered=True)
            return came, _collect_parts(asked_of(sent.repartition(parts, "chunk").mapInArrow(made, _SCHEMA)))

        came, found = self._told(run, batch=_ROWS)
        _check_status(self.label, found)
        return came, found


def _split_spark_address(address: str) -> tuple[SplitResult, str]:
    """An address and the table that it names; what is malformed is not repeated."""
    with suppress(ValueError):
        parts = urlsplit(address)
        given = parse_qs(parts.query, keep_blank_values=True, strict_parsing=True)
        (table,) = given.get("table", [""])
        plain = re.fullmatch(r"(?:[\w.-]+:\d+(?:,[\w.-]+:\d+)*)?", parts.netloc) and parts.path in ("", "/")
        if plain and given.keys() == {"table"} and not parts.fragment and _TABLE.fullmatch(table):
            return parts, table
    raise InvalidInput(
        f"the address is not of the form {_FORM}; without a host Spark looks for its own (SPARK_REMOTE, its "
        'configuration). A name with a dot stands in double quotes: table="a.b"."c"'
    )


def _quote_table_name(table: str) -> str:
    """A table's name as Spark quotes it."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in _table_name_parts(table))


def _table_name_parts(table: str) -> list[str]:
    """Catalogue, database and table, as far as they are named."""
    return [p[1:-1].replace('""', '"') if p.startswith('"') else p for p in re.findall(_PART, table)]


def _import_spark_module(name: str) -> Any:
    try:
        _import_silently("pyarrow")
        return _import_silently(name)
    except ImportError:
        raise MissingExtra(
            f"pyspark or pyarrow is not installed, and Spark is asked by them; {how_to_install('spark')}"
        ) from None


def _import_silently(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_module(name)


def _spark_session(master: str | None) -> Any:
    """The session that is there, or one of this program's own, whose log and page say nothing."""
    of, active = _import_spark_module("pyspark.sql").SparkSession, None
    with suppress(Exception):  # there is none: neither of this thread nor, after an interrupt ended that, of others
        active = of.active()
    if active is not None:
        # one of Connect has no context, and does not know whom it asks
        if master not in (None, getattr(getattr(active, "sparkContext", None), "master", None)):
            raise SourceError("this program runs a session of another Spark than the address names: stop it first")
        return active
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = of.builder.config(map=dict.fromkeys(("spark.ui.enabled", "spark.ui.showConsoleProgress"), "false"))
    return (builder if master is None else builder.master(master)).getOrCreate()


@contextmanager
def _isolated_action(session: Any, batch: int, small: bool = False) -> Generator[None]:
    """One action of ours: batches of some rows, no word in the log, and its jobs end where it is interrupted.

    small: these rows are of a few whole numbers each.
    After a failure the log stays off: tasks that are still running would quote rows there.
    """
    # Java compiles no method of more than 8,000 bytes, but goes through it step by step, which takes six times as long
    settings = {_BATCH: str(batch), "spark.sql.codegen.hugeMethodLimit": "8000"} | (_ENDLESS if small else {})
    before, tag = {name: session.conf.get(name, None) for name in settings}, f"sfumato-{uuid.uuid4()}"
    # Spark's Python part has a log of its own, on standard error
    logging.getLogger("SQLQueryContextLogger").disabled = True
    context = level = None
    with suppress(Exception):  # with Connect the log is the server's
        context = session.sparkContext
        level = context._jvm.org.apache.logging.log4j.LogManager.getRootLogger().getLevel().toString()  # noqa: SLF001
        context.setLogLevel("OFF")
    # tags of a session are known to the thread that gave them, which an interrupt ends; those of a context are not
    names = "addTag interruptTag removeTag" if context is None else "addJobTag cancelJobsWithTag removeJobTag"
    give, end, take = (getattr(context or session, name) for name in names.split())
    give(tag)
    try:
        for name, value in settings.items():
            session.conf.set(name, value)
        yield
    except BaseException as error:
        if not isinstance(error, Exception):
            end_what_comes(lambda: end(tag))
        raise
    else:
        if context is not None and level is not None:
            context.setLogLevel(level)
    finally:
        logging.getLogger("SQLQueryContextLogger").disabled = False
        with suppress(Exception):
            for name, value in before.items():
                session.conf.unset(name) if value is None else session.conf.set(name, value)
            take(tag)


def _partition_function(stage: str, *given: Any, numbered: bool = False) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A function for the partitions. It is sent as it stands, so that it can say where this library is missing."""
    expected, fields = library_versions(), PartitionRow._fields
    # No two are alike: Spark would keep one result for two of the same text, and give it up with the first of them.
    own = uuid.uuid4().hex

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow  # noqa: PLC0415

        status = 3
        try:
            from sfumato.curator.engines import kernel  # noqa: PLC0415

            status = 2
            if own and kernel.library_versions() == expected:
                status = 1
                context: Any = import_module("pyspark").TaskContext
                number = (context.get().partitionId(),) if numbered else ()
                yield from kernel.part_batches(getattr(kernel, stage)(batches, *given, *number))
                return
        except Exception:  # its text may quote rows
            pass
        bad = {name: b"" if name in ("note", "data") else 0 for name in fields} | {"status": status}
        kinds = [pyarrow.binary() if name in ("note", "data") else pyarrow.int64() for name in fields]
        yield pyarrow.RecordBatch.from_pylist([bad], schema=pyarrow.schema(list(zip(fields, kinds, strict=True))))

    return run


def _collect_parts(frame: Any) -> list[PartitionRow]:
    """What partitions gave."""
    return [PartitionRow(**row) for row in frame.toArrow().to_pylist()]


def _check_status(label: str, found: Sequence[PartitionRow]) -> None:
    for part in found:
        if part.status:
            raise SourceError(f"{label} cannot be counted: {_STATES.get(part.status, _STATES[_FAILED])}")


def _unpersist_all(kept: list[Any]) -> None:
    while kept:
        with suppress(Exception):  # the session may have ended
            kept.pop().unpersist()
