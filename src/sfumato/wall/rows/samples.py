"""Where the rows of a public or mock sample would go: exact, by value, and never for the table that is to be protected.

What is told here has no noise and is charged to nobody, so it may only be of rows that anybody may see. Nothing that
measures uses this file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from sfumato.domain import Attribute, Categories, Domain, Hierarchy
from sfumato.errors import InvalidInput
from sfumato.ground.elsewhere import engine
from sfumato.ground.sources import same_table
from sfumato.privacy.unit import PrivacyUnit
from sfumato.wall.rows.encoding import cell_of, check_declared, check_type, field_of, prepared
from sfumato.wall.rows.readers import open_table
from sfumato.wall.rows.session import Opened, attempt
from sfumato.wall.rows.sources import open_source
from sfumato.wall.rows.written import Source, source_of

__all__ = ["Odd", "Placed", "Sample", "Value", "place_sample", "refuse_source"]

LISTED = 12
"""Values that are listed per attribute and reason, the most frequent first."""


_LONGEST = 80  # of a value that is shown: a line of a terminal


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a public sample that no declared cell holds, how often it occurs, and what it may have meant."""

    text: str
    count: int
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Odd:
    """Rows whose values no declared cell holds: how many, of how many different values, and the most frequent ones."""

    rows: int
    kinds: int
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """Where the rows of a sample would go by one attribute.

    `inside` rows lie in `used` of the declared cells; `outside` are those in none of them; `missing` rows have no
    value, `unread` being those of them whose value is no number.
    """

    attribute: str
    inside: int
    used: int
    outside: Odd
    missing: int
    unread: Odd


@dataclass(frozen=True, slots=True)
class Sample:
    """A public sample: its rows, how many of them would be counted, and where they go by each attribute."""

    rows: int
    counted: int
    attributes: tuple[Placed, ...]


def refuse_source(sample: str, declared: str | Source | None) -> None:
    """Refuse a sample that is the very table to be protected, or lies in the same file. Raises InvalidInput."""
    source = source_of(declared).table
    if source is not None and same_table(sample, source):
        raise InvalidInput(
            f"{sample!r} is the source of the spec, the table to be protected: what a check shows is exact and would "
            "give its rows away. Check a public sample, or mock rows (sfumato mock); nothing was read"
        )


def place_sample(sample: str | Path | Source, domain: Domain, unit: PrivacyUnit) -> Sample:
    """Read a public sample and say where each row would go, by the very rules that encode a table.

    No guarantee of privacy: counts and values are exact. Raises InvalidInput and SourceError as a release would.
    """
    check_declared(domain.grid)
    counted = open_source(sample, domain, person=unit.person, rows_per_person=unit.rows_per_person).rows
    opened = open_table(sample, [*domain.names])
    try:
        message = f"{opened.label} could not be read"
        if engine(sample) is not None:  # its rows come once
            kept = f"CREATE TEMP TABLE sample AS SELECT * FROM {opened.sql}"
            attempt(message, lambda: opened.session.connection.execute(kept))
            opened = replace(opened, sql="sample")
        (rows,), *_ = attempt(message, lambda: opened.session.rows(f"SELECT count(*) FROM {opened.sql}"))
        placed = tuple(
            attempt(message, lambda n=name, a=attribute, j=i: _place(opened, n, a, j))
            for i, (name, attribute) in enumerate(domain.attributes.items())
        )
    finally:
        opened.session.close()
    return Sample(int(rows), counted, placed)


def _place(opened: Opened, name: str, attribute: Attribute, i: int) -> Placed:
    every = replace(attribute, outside="other", missing="other")
    column = opened.columns[name]
    # by the rules that encode a table
    check_type(f"r{i}", every.rule, column)
    field, cell = field_of(every.rule, column, f"r{i}"), cell_of(every.rule, i, column.decimal)
    for statement in prepared(every.rule, i):
        opened.session.connection.execute(*statement)
    inner = f"SELECT {column.sql} AS r{i} FROM {opened.sql}"
    inner = f"SELECT {column.text(f'r{i}')} AS text, {field} AS v{i} FROM ({inner})"
    query = f"SELECT text, v{i} IS NULL AS void, {cell} AS cell, count(*) AS n FROM ({inner})"
    query = f"{query} GROUP BY ALL ORDER BY n DESC, text"
    found = opened.session.rows(query)
    last = every.size - 1
    inside = [(c, int(n)) for _, void, c, n in found if not void and c != last]
    outside = [(str(t), int(n)) for t, void, c, n in found if not void and c == last]
    unread = [(str(t), int(n)) for t, void, _, n in found if void and t is not None and every.rule.numeric]
    return Placed(
        name,
        sum(n for _, n in inside),
        len({c for c, _ in inside}),
        _odd(attribute, outside),
        sum(int(n) for _, void, _, n in found if void),
        _odd(attribute, unread),
    )


def _odd(attribute: Attribute, values: list[tuple[str, int]]) -> Odd:
    listed = tuple(Value(t[:_LONGEST], n, _hint(attribute, t)) for t, n in values[:LISTED])
    return Odd(sum(n for _, n in values), len(values), listed)


def _hint(attribute: Attribute, text: str) -> str | None:
    """What a value that matches no code may have meant."""
    if not isinstance(attribute, (Categories, Hierarchy)):
        return None
    cell = attribute.cell_of(text)
    if cell is not None:
        code = next(c for c in attribute.codes if attribute.cell_of(c) == cell)
        return f"the label of {code!r}: tables hold codes, so declare {text!r} as the code or write the code"
    plain = text.strip().casefold()
    for code in attribute.codes:
        if plain == code.strip().casefold():
            return f'declared as {code!r}: capitals and blanks count, unless case = "ignore" or trim = true is declared'
    return None
