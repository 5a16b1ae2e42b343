"""Tables of persons, made: what is needed of every table in canonical form, read together in one session.

Every table is opened as it would be alone, and what is needed of it is written to a file of that session's own folder;
these files are then read together. Where an engine counts where the rows lie, what is needed is moved there by the
hash of the person, and the same statements are run in every part. A row belongs to the person that its key names, and
what is made of a person is made of the rows of that key alone, in every table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from sfumato._util.elsewhere import find_engine
from sfumato.cells import Days, Grid, Rule, Truths, Wholes
from sfumato.curator.people.grammar import PEOPLE, TEXT, Kind, Node, columns_of, walk_nodes
from sfumato.curator.people.tables import Joined, PerPerson, Rows
from sfumato.curator.people.templates import aggregates_sql, feature_sql, feature_type
from sfumato.curator.rows.encoding import (
    Column,
    Statement,
    Truncation,
    check_type,
    encoding_statements,
    field_sql,
    sql_literal,
    truth_sql,
)
from sfumato.curator.rows.readers import (
    MAX_ROWS,
    DuckDBSession,
    OpenedTable,
    attempt,
    byte_texts,
    missing_column,
    open_table,
)
from sfumato.curator.rows.written import source_of
from sfumato.errors import InvalidInput, SourceError

BESIDE = "beside"
"""What the rows that persons' columns are joined to are called among the tables."""


class NeededColumns(NamedTuple):
    """What is needed of a table: its key, the columns of expressions, and columns that are handed on as they are.

    `prefix` begins the names that these get; with `digest` each row has that of all this.
    """

    given: Rows
    key: str
    used: Sequence[str]
    own: Sequence[str]
    prefix: str
    digest: bool = False


class HandedNames(NamedTuple):
    """What columns of a table are called where they were handed to: canonical values, and columns as they are."""

    canonical: Mapping[str, str]
    raw: Mapping[str, Column]

    @property
    def raw_names(self) -> list[str]:
        """The names of columns as they are."""
        return [column.sql for column in self.raw.values()]


class Making(NamedTuple):
    """Statements to run in order, the table that they end with, and its columns."""

    statements: list[str]
    table: str
    columns: dict[str, Column]


class SeveralTables(ABC):
    """A source that is made of several tables, opened as an engine opens its own. `label` is what messages call it."""

    label: str

    @property
    @abstractmethod
    def key(self) -> str:
        """The column that names persons."""

    @property
    @abstractmethod
    def sources(self) -> list[Any]:
        """Every table that it is made of."""

    @abstractmethod
    def require_person(self, person: str | None) -> None:
        """Refuse plans that are not of persons. Raises InvalidInput."""

    @abstractmethod
    def known(self) -> dict[str, Column]:
        """Its columns, where they can be told without rows."""

    @abstractmethod
    def needs(self, needed: Sequence[str]) -> dict[str, NeededColumns]:
        """What some of its columns need of every table, by the tables' names. Raises InvalidInput."""

    @abstractmethod
    def making(self, needed: Sequence[str], handed: Mapping[str, HandedNames], source: Mapping[str, str]) -> Making:
        """How it is made where these tables were handed to, of what `source` calls them."""

    def counts(self, grid: Grid, person: str | None, how: Truncation, packing: object) -> Any:
        """Its counts where its tables are counted where they lie; None where its rows come here, as those of files.

        Raises InvalidInput where a plan is not of persons, or tables lie in several places.
        """
        self.require_person(person)
        there = self._made_there(list(dict.fromkeys([self.key, *grid.read_columns])))
        if there is None:
            return None
        engine, sent, made = there
        encoding = encoding_statements(grid, made.columns, made.table, person, how)
        return self._persons(engine, sent, made, encoding).counts(grid, person, how, packing)

    def lines(self, needed: Sequence[str], handed: Callable[[str, Mapping[str, Column]], str], statement: str) -> Any:
        """Lines that are made of each person's rows, as `Spark.lines`; None where its rows come here."""
        if (there := self._made_there(needed)) is None:
            return None
        engine, sent, made = there
        statements = [f"CREATE TEMP TABLE handed AS {handed(made.table, made.columns)}", statement]
        return self._persons(engine, sent, made, [(text, ()) for text in statements]).made_lines()

    def _persons(self, engine: Any, sent: list[Any], made: Making, statements: Sequence[Statement]) -> Any:
        kinds = {name: column.type for name, column in made.columns.items()}
        every = [*((statement, ()) for statement in made.statements), *statements]
        return engine.persons(self.label, kinds, sent, every)

    def _made_there(self, needed: Sequence[str]) -> tuple[Any, list[Any], Making] | None:
        """Who counts its tables where they lie, what each of these sends, and how it is made of that."""
        needs = self.needs(needed)
        engines = {name: find_engine(table.given.source) for name, table in needs.items()}
        counting = [engine for engine in engines.values() if hasattr(engine, "tally")]
        if not counting:
            return None
        if len(counting) < len(engines):
            raise _counted_elsewhere(counting[0])
        handed: dict[str, HandedNames] = {}
        sent: dict[str, Any] = {}
        for name, table in needs.items():
            kinds, chosen = engines[name].columns(), list(dict.fromkeys([table.key, *table.used, *table.own]))
            for column in chosen:
                if column not in kinds:
                    raise missing_column(engines[name].label, column)
            columns = byte_texts({c: Column(f"r{i}", kinds[c], *engines[name].notation) for i, c in enumerate(chosen)})
            query, handed[name] = handing_sql(table, columns, "source")
            # arrow has no whole numbers of 128 bits: as a text on the way
            query = f"SELECT * REPLACE (CAST(digest AS VARCHAR) AS digest) FROM ({query})" if table.digest else query
            sent[name] = (engines[name], [c for c in chosen if columns[c].family], query)
        source = {name: f"handed{i}" for i, name in enumerate(handed)}
        for name in (name for name, table in needs.items() if table.digest):
            source[name] = f"(SELECT * REPLACE (CAST(digest AS UHUGEINT) AS digest) FROM {source[name]})"
        return counting[0], list(sent.values()), self.making(needed, handed, source)

    def opened(self, needed: Sequence[str]) -> OpenedTable:
        """The table, made in a session that reads what every table handed over; without `needed` its columns alone."""
        if not needed:
            return OpenedTable(DuckDBSession(), self.label, "", self.known())
        if self.key not in needed:
            raise InvalidInput(f"rows here are known by their persons: plan with person={self.key!r}")
        with ExitStack() as stack:
            handed: dict[str, HandedTable] = {}
            for name, table in self.needs(needed).items():
                handed[name] = hand_over(table)
                stack.callback(handed[name].close)
            session = DuckDBSession([path for one in handed.values() for path in one.files])
            try:
                message = f"{self.label} could not be made: a table of it is damaged, or memory or disk ran out"
                return attempt(message, lambda: self._made(session, needed, handed))
            except BaseException:
                session.close()
                raise

    def _made(self, session: DuckDBSession, needed: Sequence[str], handed: Mapping[str, HandedTable]) -> OpenedTable:
        run = session.connection.execute
        for i, one in enumerate(handed.values()):  # under names of our own: a table may be called as anything
            run(f"ATTACH {sql_literal(one.files[0])} AS handed{i} (READ_ONLY)")
        source = {name: f"handed{i}.handed" for i, name in enumerate(handed)}
        made = self.making(needed, {name: one.names for name, one in handed.items()}, source)
        for statement in made.statements:
            run(statement)
        return OpenedTable(session, self.label, made.table, made.columns)


@dataclass(frozen=True, slots=True)
class PersonTable(SeveralTables):
    """Opens a table of persons."""

    given: PerPerson
    label: str = "the table of persons"

    @property
    def key(self) -> str:
        """The column that names persons."""
        return self.given.key

    @property
    def sources(self) -> list[Any]:
        """Every table that it is made of."""
        return [table.source for table in (self.given.people, *self.given.tables.values()) if table is not None]

    def require_person(self, person: str | None) -> None:
        """Refuse plans that are not of persons. Raises InvalidInput."""
        if person != self.key:
            raise InvalidInput(
                f"a row here is a person: plan with person={self.key!r}, so that the ledger knows whose budget "
                f"is spent{'' if person is None else f', not with person={person!r}'}"
            )

    def known(self) -> dict[str, Column]:
        """Its columns, where they can be told without rows."""
        own = {} if self.given.people is None else _named_columns(self.given.people)
        names = {self.key: Column("NULL", "VARCHAR")}
        return own | names | {name: Column("NULL", feature_type(node)) for name, node in self.given.features.items()}

    def _own(self, needed: Sequence[str]) -> list[str]:
        return [n for n in needed if n != self.key and n not in self.given.features]

    def needs(self, needed: Sequence[str]) -> dict[str, NeededColumns]:
        """What some of its columns need of every table. Raises InvalidInput."""
        features = [self.given.features[n] for n in needed if n in self.given.features]
        found = list(dict.fromkeys(node for feature in features for node in walk_nodes(feature)))
        own = self._own(needed)
        if self.given.people is None and own:
            said = ", ".join(self.given.features) or "none"
            raise InvalidInput(f"no table of persons has the column {own[0]!r}, for there is none; columns: {said}")
        needs: dict[str, NeededColumns] = {}
        for i, (name, table) in enumerate([(PEOPLE, self.given.people), *self.given.tables.items()]):
            through = [node for node in found if node.table == name]
            if table is None or (self.given.people is not None and name != PEOPLE and not through):
                continue
            ordered = [table.order] if table.order and any(map(_goes_by_order, through)) else []
            used = sorted({*ordered, *(c for node in found for c in columns_of(node, name))})
            mine = own if name == PEOPLE else []
            needs[name] = NeededColumns(table, table.key or self.key, used, mine, f"t{i}", digest=name == PEOPLE)
        return needs

    def making(self, needed: Sequence[str], handed: Mapping[str, HandedNames], source: Mapping[str, str]) -> Making:
        """How it is made where these tables were handed to."""
        features = {n: self.given.features[n] for n in needed if n in self.given.features}
        first, known = handed.get(PEOPLE), dict[Node, str]()
        if self.given.people is None or first is None:
            everybody = " UNION ".join(f"SELECT DISTINCT person FROM {source[name]}" for name in self.given.tables)
        else:
            # of rows with one key one is taken, by what these hold alone; those that tie are alike in all that is read
            order = ", ".join(f"{c} NULLS LAST" for c in ("digest", *first.canonical.values(), *first.raw_names))
            place = f"row_number() OVER (PARTITION BY person ORDER BY {order})"
            everybody = f"SELECT * EXCLUDE (digest) FROM {source[PEOPLE]} QUALIFY {place} = 1"
            known = _columns(PEOPLE, self.given.people, first)
        statements = [f"CREATE TEMP TABLE persons AS {everybody}"]
        query = "SELECT * FROM persons"
        told: dict[Node, tuple[str, str | None]] = {node: (name, None) for node, name in known.items()}
        for i, (name, table) in enumerate(self.given.tables.items()):
            every = (n for f in features.values() for n in walk_nodes(f) if n.table == name)
            if nodes := list(dict.fromkeys(every)):
                day = handed[name].canonical.get(table.order or "")
                columns = known | _columns(name, table, handed[name])
                sql, read = aggregates_sql(source[name], "persons", columns, day, nodes, f"g{i}_")
                statements.append(f"CREATE TEMP TABLE told{i} AS {sql}")
                query = f"SELECT * FROM ({query}) LEFT JOIN told{i} USING (person)"
                told |= read
        columns, chosen = {self.key: Column("person", "VARCHAR")}, ["person"]
        for name in self._own(needed):
            columns[name] = handed[PEOPLE].raw[name]
            chosen.append(columns[name].sql)
        for i, (name, feature) in enumerate(features.items()):
            columns[name] = Column(f"f{i}", type := feature_type(feature))
            chosen.append(f"CAST({feature_sql(feature, told)} AS {type}) AS f{i}")
        return Making(
            [*statements, f"CREATE TEMP TABLE made AS SELECT {', '.join(chosen)} FROM ({query})"], "made", columns
        )


@dataclass(frozen=True, slots=True)
class JoinedTable(SeveralTables):
    """Opens rows with their persons' columns."""

    given: Joined
    label: str = "the table of rows with their persons' columns"

    @property
    def key(self) -> str:
        """The column that names persons."""
        return self.given.people.key

    @property
    def sources(self) -> list[Any]:
        """Every table that it is made of."""
        return [self.given.table.source, *self._people.sources]

    @property
    def _people(self) -> PersonTable:
        return PersonTable(self.given.people)

    def require_person(self, person: str | None) -> None:
        """Refuse plans that are not of persons. Raises InvalidInput."""
        if person != self.key:
            raise InvalidInput(
                f"a person has several rows here: plan with person={self.key!r} and rows_per_person=, so that "
                f"whoever has many rows is protected{'' if person is None else f', not with person={person!r}'}"
            )

    def known(self) -> dict[str, Column]:
        """Its columns, where they can be told without rows."""
        theirs = self._people.known()
        names = theirs if self.given.columns is None else {n: theirs[n] for n in self.given.columns}
        return {**names, **_named_columns(self.given.table), self.key: Column("NULL", "VARCHAR")}

    def _theirs(self, needed: Sequence[str]) -> list[str]:
        """The columns that are the persons', after the key."""
        theirs = self.given.columns
        if theirs is None:
            known = _named_columns(self.given.table)
            theirs = tuple(n for n in needed if n not in known)
        return [self.key, *(n for n in needed if n in theirs and n != self.key)]

    def needs(self, needed: Sequence[str]) -> dict[str, NeededColumns]:
        """What some of its columns need of every table. Raises InvalidInput."""
        theirs = self._theirs(needed)
        own = [n for n in needed if n not in theirs]
        beside = NeededColumns(self.given.table, self.given.table.key or self.key, [], own, "j")
        return {BESIDE: beside, **self._people.needs(theirs)}

    def making(self, needed: Sequence[str], handed: Mapping[str, HandedNames], source: Mapping[str, str]) -> Making:
        """How it is made where these tables were handed to."""
        made = self._people.making(self._theirs(needed), handed, source)
        how = "JOIN" if self.given.unmatched == "drop" else "LEFT JOIN"
        joined = f"CREATE TEMP TABLE joined AS SELECT * FROM {source[BESIDE]} {how} made USING (person)"
        return Making([*made.statements, joined], "joined", {**made.columns, **handed[BESIDE].raw})


def _counted_elsewhere(engine: Any) -> InvalidInput:
    return InvalidInput(
        f"{engine.label} is counted where it lies, and its rows are not read beside those of other tables: give all "
        "tables there, or none: files, frames, databases and tables on Postgres go together"
    )


def _goes_by_order(node: Node) -> bool:
    return node.op in ("first", "last") or any(n.op in ("previous", "next") for n in walk_nodes(node))


def _columns(table: str, given: Rows, handed: HandedNames) -> dict[Node, str]:
    """The columns of a table as expressions name them, by their names in the file that was handed over."""
    kinds = given.kinds
    return {Node("column", (), kinds.get(n, TEXT), (table, n)): column for n, column in handed.canonical.items()}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HandedTable:
    """What is needed of a table, in a file of its session: `person`, canonical columns, and columns as they are."""

    session: DuckDBSession
    names: HandedNames

    @property
    def files(self) -> tuple[str, str]:
        """The file, and where its log would be."""
        return self.session.handed, f"{self.session.handed}.wal"

    def close(self) -> None:
        """Remove the file."""
        self.session.close()


def hand_over(needs: NeededColumns) -> HandedTable:
    """Write what is needed of a table to a file of its session. Raises as `open_table` does."""
    if hasattr(engine := find_engine(needs.given.source), "tally"):
        raise _counted_elsewhere(engine)
    opened = open_table(needs.given.source, list(dict.fromkeys([needs.key, *needs.used, *needs.own])))
    try:
        query, names = handing_sql(needs, opened.columns, opened.sql)
        run = opened.session.connection.execute
        file = sql_literal(opened.session.handed)
        statements = (f"ATTACH {file} AS given", f"CREATE TABLE given.handed AS {query}", "DETACH given")
        message = f"{opened.label} could not be read: it is damaged or was cut short, or memory or disk ran out"
        attempt(message, lambda: [run(statement) for statement in statements[:2]])
        (count,), *_ = attempt(message, lambda: opened.session.rows("SELECT count(*) FROM given.handed"))
        if count > MAX_ROWS:
            raise SourceError(f"{opened.label} has more than {MAX_ROWS:,} rows")
        attempt(message, lambda: run(statements[2]))
        return HandedTable(opened.session, names)
    except BaseException:
        opened.session.close()
        raise


def handing_sql(needs: NeededColumns, columns: Mapping[str, Column], source: str) -> tuple[str, HandedNames]:
    """SQL of what is needed of a table's rows that name a person, and what it is called.

    Raises SourceError where a column's type cannot be read as what is declared.
    """
    check_type(needs.key, None, columns[needs.key])
    raw, looked_up = [f"{columns[needs.key].sql} AS k"], [f"{columns[needs.key].name('k')} AS person"]
    values, canonical = ["person"], dict[str, str]()
    for i, name in enumerate(needs.used):
        looked, value = canonical_sql(needs.given, name, columns[name], f"r{i}", f"v{i}")
        canonical[name] = f"{needs.prefix}c{i}"
        raw.append(f"{columns[name].sql} AS r{i}")
        looked_up.append(f"{looked} AS v{i}")
        values.append(f"{value} AS {canonical[name]}")
    texts = ["person", *(f"CAST({c} AS VARCHAR)" for c in canonical.values())]
    kept: dict[str, Column] = {}
    for i, name in enumerate(needs.own):
        column, kept[name] = columns[name], replace(columns[name], sql=(called := f"{needs.prefix}p{i}"))
        # what cannot be read by any declaration is refused by its type when it is encoded
        raw.append(f"{column.sql if column.family else 'NULL'} AS {called}")
        looked_up.append(called)
        values.append(called)
        texts += [column.text(called)] if column.family else []
    query = f"SELECT {', '.join(raw)} FROM {source}"
    query = f"SELECT {', '.join(values)} FROM (SELECT {', '.join(looked_up)} FROM ({query})) WHERE person IS NOT NULL"
    if needs.digest:
        listed = ", ".join(f"coalesce({text}, '')" for text in texts)
        query = f"SELECT *, md5_number(concat_ws('|', {listed})) AS digest FROM ({query})"
    return query, HandedNames(canonical, kept)


def _named_columns(given: Rows) -> dict[str, Column]:
    """The columns of a table, where they can be told without rows."""
    opened = open_table(given.source, ())
    opened.session.close()
    return {name: Column("NULL", column.type) for name, column in opened.columns.items()}


def canonical_sql(given: Rows, name: str, column: Column, field: str, found: str) -> tuple[str, str]:
    """What is looked up of a column's field, and the canonical value of what was found there.

    Raises SourceError where the column's type cannot be read as what is declared.
    """
    kind = given.kinds.get(name)
    if kind is None:
        check_type(name, None, column)
        return f"nfc_normalize({column.name(field)})", found
    rule: Rule = Truths(kind="boolean")
    if kind.name == "number":
        rule = Wholes(kind="number", low=0, high=1, width=1)
    elif kind.name == "day":
        rule = Days(kind="date", edges=(1, 2), format=given.formats[name])
    check_type(name, rule, column)
    looked_up = field_sql(rule, column, field)
    if kind.name == "number":
        return looked_up, _steps_sql(kind, found)
    return looked_up, truth_sql(found, column.decimal) if kind.name == "truth" else f"CAST({found} AS INTEGER)"


def _steps_sql(kind: Kind, v: str) -> str:
    """The whole number of units that is nearest to a double, halves up, between the declared ends."""
    low, high = (repr(float(n * kind.unit)) for n in (kind.low, kind.high))
    held = f"least(greatest({v}, CAST('{low}' AS DOUBLE)), CAST('{high}' AS DOUBLE))"
    times, over = (repr(float(n)) for n in (kind.unit.denominator, kind.unit.numerator))
    steps = f"floor({held} * CAST('{times}' AS DOUBLE) / CAST('{over}' AS DOUBLE) + 0.5)"
    ends = (f"CAST('{float(n)!r}' AS DOUBLE)" for n in (kind.low, kind.high))
    bounded = "least(greatest({}, {}), {})".format(steps, *ends)
    return f"CASE WHEN {v} IS NOT NULL THEN CAST({bounded} AS BIGINT) END"


def person_source(source: object) -> PersonTable | JoinedTable | None:
    """Who opens a source of persons, or None. Raises InvalidInput where a notation is declared of several tables."""
    found = (given := source_of(source)).table
    if not isinstance(found, (PerPerson, Joined)):
        return None
    made = PersonTable(found) if isinstance(found, PerPerson) else JoinedTable(found)
    given.allow(made.label)
    return made
