"""Sources that are made of several tables of persons: one row a person, or rows with their person's columns.

Every table is opened as it would be alone, and what is needed of it is written in canonical form to a file of the
session's own folder; these files are then read together. A row belongs to the person that its key names, and what is
made of a person is made of the rows of that key alone, in every table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from os import PathLike
from typing import Any, Literal

from sfumato._util.text import date_format_fields
from sfumato.curator.people.grammar import (
    DAY,
    PEOPLE,
    TRUTH,
    Kind,
    Node,
    Scope,
    number_kind,
    parse_feature,
)
from sfumato.curator.rows.written import source_of
from sfumato.errors import InvalidInput

_EXACT = 2**53  # whole numbers that doubles tell apart
_UNMATCHED = ("drop", "missing")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Rows:
    """A table whose rows belong to persons, and how its columns are read in expressions. `sf.rows` makes one.

    Args:
        source: The table.
        key: The column that says whose row it is, or None.
        kinds: The types of declared columns.
        formats: How the dates among them are written.
        order: The date by which rows are ordered, or None.
    """

    source: Any
    key: str | None
    kinds: Mapping[str, Kind]
    formats: Mapping[str, str]
    order: str | None

    def __repr__(self) -> str:
        return f"rows({_shown(self.source)}, key={self.key!r})"


def rows(
    source: Any,
    *,
    key: str | None = None,
    numbers: Mapping[str, tuple[Any, Any, Any]] | None = None,
    dates: Sequence[str] | Mapping[str, str] = (),
    booleans: Sequence[str] = (),
    order: str | None = None,
) -> Rows:
    """A table whose rows belong to persons, for `sf.per_person` and `sf.joined`, and how its columns are read.

    Columns that are not declared here are texts. A number is clamped to its range and rounded to whole units, halves
    up, before anything is computed; what is no number, no date or neither true nor false is missing.

    Args:
        source: A table, as `sf.release` takes one; not a histogram.
        key: The column that says whose row it is; None where it is called as the key of the persons.
        numbers: Of columns of numbers the range and the unit: {"cost": (0, 10_000, "0.01")}.
        dates: Columns of dates; or a mapping to how texts write them, in %d, %m and %Y, "" for year-month-day.
        booleans: Columns of true and false.
        order: The date by which `previous`, `next`, `first` and `last` go; None where one date is declared.

    Returns:
        The table with its declarations. Nothing is read.

    Raises:
        InvalidInput: A range, a unit or a name is not allowed, or a column is declared twice.

    >>> sf.rows("visits.parquet", key="patient", numbers={"cost": (0, 10_000, "0.01")}, dates=["date"])
    rows('visits.parquet', key='patient')
    """
    if isinstance(source, (Rows, PerPerson, Joined)):
        raise InvalidInput("rows are of one table: a path, an address or a frame, or one in sf.Source")
    if key is not None and (not isinstance(key, str) or not key):
        raise InvalidInput(f"key is the name of a column, not {key!r}")
    formats = dict(dates) if isinstance(dates, Mapping) else dict.fromkeys(_names(dates, "dates"), "")
    for name, given in formats.items():
        if not isinstance(given, str):
            raise InvalidInput(f"dates: {name!r} is written in %d, %m and %Y, not {given!r}")
        date_format_fields(given)
    kinds: dict[str, Kind] = {}
    for name, kind in [
        *((n, _declared_number(n, given)) for n, given in (numbers or {}).items()),
        *((n, DAY) for n in formats),
        *((n, TRUTH) for n in _names(booleans, "booleans")),
    ]:
        if not isinstance(name, str) or not name or name in kinds:
            raise InvalidInput(f"a column is declared once, by its name; {name!r} is not")
        kinds[name] = kind
    if order is not None and order not in formats:
        raise InvalidInput(f"order={order!r} is no date; declare it: dates=[{order!r}]")
    return Rows(source, key, kinds, formats, order or (next(iter(formats)) if len(formats) == 1 else None))


def _names(given: Any, what: str) -> list[str]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidInput(f"{what} are a list of names of columns, not {given!r}")
    return list(given)


def _declared_number(name: str, given: Any) -> Kind:
    """The type of a column from its range and unit. Raises InvalidInput."""
    wanted = f"numbers: {name!r} has a range and a unit, such as (0, 10_000, '0.01')"
    if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != 3:
        raise InvalidInput(f"{wanted}, not {given!r}")
    try:
        low, high, unit = (Fraction(Decimal(repr(v) if isinstance(v, float) else v)) for v in given)
    except (TypeError, ValueError, OverflowError, InvalidOperation):
        raise InvalidInput(f"{wanted}: three finite numbers, not {given!r}") from None
    if unit <= 0 or low > high or (low / unit).denominator != 1 or (high / unit).denominator != 1:
        raise InvalidInput(f"{wanted}: the unit is above 0, and both ends are whole multiples of it, not {given!r}")
    if max(abs(low), abs(high)) / unit >= _EXACT or max(unit.numerator, unit.denominator) >= _EXACT:
        raise InvalidInput(f"{wanted}: fewer than 2^53 units from 0, not {given!r}")
    return number_kind(int(low / unit), int(high / unit), unit)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PerPerson:
    """A source with one row for each person. `sf.per_person` makes one.

    Args:
        people: The table of persons, or None.
        key: The column that names persons.
        tables: The tables of rows by their names.
        features: What is told of a person by the names of columns, as typed expressions.
        said: The same as they were written.
    """

    people: Rows | None
    key: str
    tables: Mapping[str, Rows]
    features: Mapping[str, Node]
    said: Mapping[str, str]

    def __repr__(self) -> str:
        return f"per_person({len(self.features)} columns of {len(self.tables)} tables, key={self.key!r})"


def per_person(
    people: Any,
    *,
    key: str,
    columns: Mapping[str, str] | None = None,
    **tables: Rows,
) -> PerPerson:
    """A source with one row for each person, of what all rows of that person tell.

    A column of it is one that is said here, or else one of the table of persons. The persons are those that the table
    of persons names, of rows with one key one that is chosen by these rows alone; rows of others are not counted.
    Plans of it are of persons: `person=` is the key.

    Args:
        people: The table of persons, as `sf.release` takes one, or `sf.rows(...)`, which declares its columns; None:
            whoever occurs in the rows is a person.
        key: The column that names persons, in every table that does not say otherwise.
        columns: Features by their names, as expressions such as "count(visits where visits.ward = 'ER')". A column of
            rows is said with its table, `visits.cost`, inside an aggregate; one of the persons is `people.born`.
        **tables: Tables of rows, by the names that expressions use.

    Returns:
        The source, for `sf.release` and `sf.open`. Nothing is read.

    Raises:
        InvalidInput: An expression is not one, or a name or a table is not allowed.

    >>> visits = sf.rows("visits.parquet", numbers={"cost": (0, 10_000, "0.01")}, dates=["date"])
    >>> said = {"cost": "sum(visits.cost)", "soon": "any(days(visits.date, previous(visits.date)) <= 30)"}
    >>> sf.per_person("patients.parquet", key="patient", visits=visits, columns=said)
    per_person(2 columns of 1 tables, key='patient')
    >>> sf.per_person(None, key="patient", visits=visits, columns={"cost": "sum(visits.ward)"})
    Traceback (most recent call last):
        ...
    sfumato.errors.InvalidInput: columns: 'cost': character 1 ('sum'): a number belongs here, and this is a text
    (declare it: sf.rows(..., numbers=, dates= or booleans=))
    """
    if not isinstance(key, str) or not key:
        raise InvalidInput(f"key is the name of a column, not {key!r}")
    for name, given in tables.items():
        if not isinstance(given, Rows):
            raise InvalidInput(f"{name} is a table of rows: {name}=sf.rows(...), not a {type(given).__name__}")
        if name in (PEOPLE, "beside"):
            raise InvalidInput(f"a table of rows has another name than {name!r}")
    if people is None and not tables:
        raise InvalidInput("name the table of persons, or one of rows: visits=sf.rows(...)")
    table = people if people is None or isinstance(people, Rows) else rows(people)
    every = {**({} if table is None else {PEOPLE: table}), **tables}
    scope = Scope({n: t.kinds for n, t in every.items()}, {n: t.order for n, t in every.items()})
    features: dict[str, Node] = {}
    for name, text in (columns or {}).items():
        if not isinstance(name, str) or not name or name == key:
            raise InvalidInput(f"columns: {name!r} is no name for a column of features")
        try:
            features[name] = parse_feature(text, scope)
        except InvalidInput as error:
            raise InvalidInput(f"columns: {name!r}: {error}") from None
    return PerPerson(table, key, dict(tables), features, dict(columns or {}))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Joined:
    """Rows of a table with the columns of their persons. `sf.joined` makes one.

    Args:
        table: The rows.
        people: The persons.
        columns: The columns that are the persons', or None.
        unmatched: What becomes of rows of nobody in the table of persons.
    """

    table: Rows
    people: PerPerson
    columns: tuple[str, ...] | None
    unmatched: str

    def __repr__(self) -> str:
        return f"joined({_shown(self.table.source)}, key={self.people.key!r})"


def joined(
    table: Any,
    people: Any,
    *,
    key: str,
    columns: Sequence[str] | None = None,
    unmatched: Literal["drop", "missing"] = "drop",
) -> Joined:
    """A source with the rows of a table, each with the columns of its person.

    Plans of it are of persons: `person=` is the key, and `rows_per_person=` how many rows of each are counted.

    Args:
        table: The rows, as `sf.release` takes a table, or `sf.rows(...)`, which says another key.
        people: The table of persons, in the same ways, or `sf.per_person(...)`: rows with features of their persons.
        key: The column that names persons, in every table that does not say otherwise.
        columns: The columns that are the persons'; None: those that the table of rows does not have.
        unmatched: What becomes of a row whose person the table of persons does not name: "drop" does not count it,
            "missing" counts it with all columns of the person missing.

    Returns:
        The source, for `sf.release` and `sf.open`. Nothing is read.

    Raises:
        InvalidInput: A name, a table or `unmatched` is not allowed.

    >>> sf.joined("visits.parquet", "patients.parquet", key="patient")
    joined('visits.parquet', key='patient')
    """
    if unmatched not in _UNMATCHED:
        raise InvalidInput(f"unmatched={unmatched!r} is not allowed; use 'drop' or 'missing'")
    if people is None:
        raise InvalidInput("rows are joined to a table of persons, and people is None")
    persons = people if isinstance(people, PerPerson) else per_person(people, key=key)
    if persons.key != key:
        raise InvalidInput(f"persons are known by {persons.key!r} there and by {key!r} here; use one key")
    given = None if columns is None else tuple(_names(columns, "columns"))
    return Joined(table if isinstance(table, Rows) else rows(table), persons, given, unmatched)


def feature_texts(source: Any) -> tuple[tuple[str, str], ...]:
    """The features of persons that a source makes, by their names, as they were written; none where it makes none."""
    table = source_of(source).table
    people = table.people if isinstance(table, Joined) else table
    return tuple(people.said.items()) if isinstance(people, PerPerson) else ()


def _shown(source: Any) -> str:
    table = source_of(source).table
    plain = isinstance(table, (str, PathLike)) and "://" not in str(table)
    return repr(str(table)) if plain else f"<{type(table).__name__}>"
