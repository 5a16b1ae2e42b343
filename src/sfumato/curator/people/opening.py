"""Tables of persons, made: what is needed of every table in canonical form, read together in one session.

Every table is opened as it would be alone, and what is needed of it is written to a file of that session's own folder;
these files are then read together. A row belongs to the person that its key names, and what is made of a person is
made of the rows of that key alone, in every table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from sfumato._util.elsewhere import find_engine
from sfumato.cells import Days, Rule, Truths, Wholes
from sfumato.curator.people.grammar import PEOPLE, TEXT, Kind, Node, columns_of, walk_nodes
from sfumato.curator.people.tables import Joined, PerPerson, Rows
from sfumato.curator.people.templates import aggregates_sql, feature_sql, feature_type
from sfumato.curator.rows.encoding import Column, check_type, field_sql, sql_literal, truth_sql
from sfumato.curator.rows.readers import MAX_ROWS, DuckDBSession, OpenedTable, attempt, open_table
from sfumato.curator.rows.written import source_of
from sfumato.errors import InvalidInput, SourceError


@dataclass(frozen=True, slots=True)
class PersonTable:
    """Opens a table of persons, as an engine opens its tables. `label` is what messages call it."""

    given: PerPerson
    label: str = "the table of persons"

    @property
    def sources(self) -> list[Any]:
        """Every table that it is made of."""
        return [table.source for table in (self.given.people, *self.given.tables.values()) if table is not None]

    def counts(self, _grid: object, person: str | None, *_: object) -> None:
        """None, for its rows are encoded as those of files are. Raises InvalidInput where a plan is not of persons."""
        self.require_person(person)

    def require_person(self, person: str | None) -> None:
        """Refuse plans that are not of persons. Raises InvalidInput."""
        if person != self.given.key:
            raise InvalidInput(
                f"a row here is a person: plan with person={self.given.key!r}, so that the ledger knows whose budget "
                f"is spent{'' if person is None else f', not with person={person!r}'}"
            )

    def opened(self, needed: Sequence[str]) -> OpenedTable:
        """The table, made; without `needed` its columns alone, where they can be told without rows."""
        if not needed:
            return OpenedTable(DuckDBSession(), self.label, "", self._known())
        _require_key(self.given.key, needed)
        return self.made(needed)

    def _known(self) -> dict[str, Column]:
        own = {} if self.given.people is None else _named_columns(self.given.people)
        names = {self.given.key: Column("NULL", "VARCHAR")}
        return own | names | {name: Column("NULL", feature_type(node)) for name, node in self.given.features.items()}

    def made(self, needed: Sequence[str], beside: HandedTable | None = None) -> OpenedTable:
        """The table as one that DuckDB can read, in a session that also reads what is `beside` it, as `beside`."""
        features = {n: self.given.features[n] for n in needed if n in self.given.features}
        found = list(dict.fromkeys(node for feature in features.values() for node in walk_nodes(feature)))
        own = [n for n in needed if n != self.given.key and n not in features]
        if self.given.people is None and own:
            said = ", ".join(self.given.features) or "none"
            raise InvalidInput(f"no table of persons has the column {own[0]!r}, for there is none; columns: {said}")
        handed: dict[str, HandedTable] = {} if beside is None else {"beside": beside}
        with ExitStack() as stack:
            for i, (name, table) in enumerate([(PEOPLE, self.given.people), *self.given.tables.items()]):
                through = [node for node in found if node.table == name]
                if table is None or (self.given.people is not None and name != PEOPLE and not through):
                    continue
                ordered = [table.order] if table.order and any(map(_goes_by_order, through)) else []
                used = sorted({*ordered, *(c for node in found for c in columns_of(node, name))})
                mine = own if name == PEOPLE else []
                handed[name] = hand_over(table, table.key or self.given.key, used, mine, f"t{i}", digest=name == PEOPLE)
                stack.callback(handed[name].close)
            session = DuckDBSession([path for one in handed.values() for path in one.files])
            message = f"{self.label} could not be made: a table of it is damaged, or memory or disk ran out"
            try:
                return attempt(message, lambda: self._make(session, handed, features, own))
            except BaseException:
                session.close()
                raise

    def _make(
        self,
        session: DuckDBSession,
        handed: Mapping[str, HandedTable],
        features: Mapping[str, Node],
        own: Sequence[str],
    ) -> OpenedTable:
        run = session.connection.execute
        for i, one in enumerate(handed.values()):  # under names of our own: a table may be called as anything
            run(f"ATTACH {sql_literal(one.files[0])} AS handed{i} (READ_ONLY)")
        source = {name: f"handed{i}.handed" for i, name in enumerate(handed)}
        first, known = handed.get(PEOPLE), dict[Node, str]()
        if self.given.people is None or first is None:
            everybody = " UNION ".join(f"SELECT DISTINCT person FROM {source[name]}" for name in self.given.tables)
        else:
            # of rows with one key one is taken, by what these hold alone; those that tie are alike in all that is read
            order = ", ".join(f"{c} NULLS LAST" for c in ("digest", *first.canonical.values(), *first.raw_names))
            place = f"row_number() OVER (PARTITION BY person ORDER BY {order})"
            everybody = f"SELECT * EXCLUDE (digest) FROM {source[PEOPLE]} QUALIFY {place} = 1"
            known = _columns(PEOPLE, self.given.people, first)
        run(f"CREATE TEMP TABLE persons AS {everybody}")
        query = "SELECT * FROM persons"
        told: dict[Node, tuple[str, str | None]] = {node: (name, None) for node, name in known.items()}
        for i, (name, table) in enumerate(self.given.tables.items()):
            every = (n for f in features.values() for n in walk_nodes(f) if n.table == name)
            if nodes := list(dict.fromkeys(every)):
                day = handed[name].canonical.get(table.order or "")
                columns = known | _columns(name, table, handed[name])
                sql, read = aggregates_sql(source[name], "persons", columns, day, nodes, f"g{i}_")
                run(f"CREATE TEMP TABLE told{i} AS {sql}")
                query = f"SELECT * FROM ({query}) LEFT JOIN told{i} USING (person)"
                told |= read
        columns, chosen = {self.given.key: Column("person", "VARCHAR")}, ["person"]
        for name in own:
            columns[name] = handed[PEOPLE].raw[name]
            chosen.append(columns[name].sql)
        for i, (name, feature) in enumerate(features.items()):
            columns[name] = Column(f"f{i}", type := feature_type(feature))
            chosen.append(f"CAST({feature_sql(feature, told)} AS {type}) AS f{i}")
        run(f"CREATE TEMP TABLE made AS SELECT {', '.join(chosen)} FROM ({query})")
        if "beside" in handed:  # taken here, as the file goes
            run(f"CREATE TEMP TABLE handed_rows AS SELECT * FROM {source['beside']}")
        return OpenedTable(session, self.label, "made", columns)


def _goes_by_order(node: Node) -> bool:
    return node.op in ("first", "last") or any(n.op in ("previous", "next") for n in walk_nodes(node))


def _columns(table: str, given: Rows, handed: HandedTable) -> dict[Node, str]:
    """The columns of a table as expressions name them, by their names in the file that was handed over."""
    kinds = given.kinds
    return {Node("column", (), kinds.get(n, TEXT), (table, n)): column for n, column in handed.canonical.items()}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HandedTable:
    """What is needed of a table, in a file of its session: `person`, canonical columns, and columns as they are."""

    session: DuckDBSession
    canonical: Mapping[str, str]
    raw: Mapping[str, Column]

    @property
    def files(self) -> tuple[str, str]:
        """The file, and where its log would be."""
        return self.session.handed, f"{self.session.handed}.wal"

    @property
    def raw_names(self) -> list[str]:
        """The names in the file of columns as they are."""
        return [column.sql for column in self.raw.values()]

    def close(self) -> None:
        """Remove the file."""
        self.session.close()


def hand_over(
    given: Rows, key: str, used: Sequence[str], own: Sequence[str], prefix: str, *, digest: bool = False
) -> HandedTable:
    """Write what is needed of a table: rows that name a person, of `used` columns the canonical values, of `own` what
    they hold; with `digest` that of all this. Raises as `open_table` does."""
    if hasattr(engine := find_engine(given.source), "tally"):
        raise InvalidInput(
            f"{engine.label} is counted where it lies, and its rows are not read beside those of other tables: give a "
            "file, a frame, a database or a table on Postgres"
        )
    opened = open_table(given.source, list(dict.fromkeys([key, *used, *own])))
    try:
        columns = opened.columns
        check_type(key, None, columns[key])
        raw, looked_up, values = [f"{columns[key].sql} AS k"], [f"{columns[key].name('k')} AS person"], ["person"]
        canonical: dict[str, str] = {}
        for i, name in enumerate(used):
            looked, value = canonical_sql(given, name, columns[name], f"r{i}", f"v{i}")
            canonical[name] = f"{prefix}c{i}"
            raw.append(f"{columns[name].sql} AS r{i}")
            looked_up.append(f"{looked} AS v{i}")
            values.append(f"{value} AS {canonical[name]}")
        texts = ["person", *(f"CAST({c} AS VARCHAR)" for c in canonical.values())]
        kept: dict[str, Column] = {}
        for i, name in enumerate(own):
            column, kept[name] = columns[name], replace(columns[name], sql=(called := f"{prefix}p{i}"))
            # what cannot be read by any declaration is refused by its type when it is encoded
            raw.append(f"{column.sql if column.family else 'NULL'} AS {called}")
            looked_up.append(called)
            values.append(called)
            texts += [column.text(called)] if column.family else []
        query = f"SELECT {', '.join(raw)} FROM {opened.sql}"
        query = (
            f"SELECT {', '.join(values)} FROM (SELECT {', '.join(looked_up)} FROM ({query})) WHERE person IS NOT NULL"
        )
        if digest:
            listed = ", ".join(f"coalesce({text}, '')" for text in texts)
            query = f"SELECT *, md5_number(concat_ws('|', {listed})) AS digest FROM ({query})"
        run = opened.session.connection.execute
        file = sql_literal(opened.session.handed)
        statements = (f"ATTACH {file} AS given", f"CREATE TABLE given.handed AS {query}", "DETACH given")
        message = f"{opened.label} could not be read: it is damaged or was cut short, or memory or disk ran out"
        attempt(message, lambda: [run(statement) for statement in statements[:2]])
        (count,), *_ = attempt(message, lambda: opened.session.rows("SELECT count(*) FROM given.handed"))
        if count > MAX_ROWS:
            raise SourceError(f"{opened.label} has more than {MAX_ROWS:,} rows")
        attempt(message, lambda: run(statements[2]))
        return HandedTable(opened.session, canonical, kept)
    except BaseException:
        opened.session.close()
        raise


def _require_key(key: str, needed: Sequence[str]) -> None:
    if key not in needed:
        raise InvalidInput(f"rows here are known by their persons: plan with person={key!r}")


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


@dataclass(frozen=True, slots=True)
class JoinedTable:
    """Opens rows with their persons' columns, likewise."""

    given: Joined
    label: str = "the table of rows with their persons' columns"

    @property
    def sources(self) -> list[Any]:
        """Every table that it is made of."""
        return [self.given.table.source, *PersonTable(self.given.people).sources]

    def counts(self, _grid: object, person: str | None, *_: object) -> None:
        """None, for its rows are encoded as those of files are. Raises InvalidInput where a plan is not of persons."""
        self.require_person(person)

    def require_person(self, person: str | None) -> None:
        """Refuse plans that are not of persons. Raises InvalidInput."""
        if person != (key := self.given.people.key):
            raise InvalidInput(
                f"a person has several rows here: plan with person={key!r} and rows_per_person=, so that "
                f"whoever has many rows is protected{'' if person is None else f', not with person={person!r}'}"
            )

    def opened(self, needed: Sequence[str]) -> OpenedTable:
        """The table, made; without `needed` its columns alone, where they can be told without rows."""
        key = self.given.people.key
        if not needed:
            known = _named_columns(self.given.table)
            theirs = PersonTable(self.given.people).opened(())
            theirs.session.close()
            names = theirs.columns if self.given.columns is None else {n: theirs.columns[n] for n in self.given.columns}
            return OpenedTable(DuckDBSession(), self.label, "", {**names, **known, key: Column("NULL", "VARCHAR")})
        _require_key(key, needed)
        theirs = self.given.columns
        if theirs is None:
            known = _named_columns(self.given.table)
            theirs = tuple(n for n in needed if n not in known)
        theirs = [n for n in needed if n in theirs and n != key]
        own = [n for n in needed if n not in theirs and n != key]
        handed = hand_over(self.given.table, self.given.table.key or key, [], own, "j")
        try:
            opened = PersonTable(self.given.people).made([key, *theirs], handed)
        finally:
            handed.close()
        try:
            how = "JOIN" if self.given.unmatched == "drop" else "LEFT JOIN"
            query = f"SELECT * FROM handed_rows {how} made USING (person)"
            message = f"{self.label} could not be made: memory or disk ran out"
            attempt(message, lambda: opened.session.connection.execute(f"CREATE TEMP TABLE joined AS {query}"))
        except BaseException:
            opened.session.close()
            raise
        return replace(opened, label=self.label, sql="joined", columns={**opened.columns, **handed.raw})


def person_source(source: object) -> PersonTable | JoinedTable | None:
    """Who opens a source of persons, or None. Raises InvalidInput where a notation is declared of several tables."""
    found = (given := source_of(source)).table
    if not isinstance(found, (PerPerson, Joined)):
        return None
    made = PersonTable(found) if isinstance(found, PerPerson) else JoinedTable(found)
    given.allow(made.label)
    return made
