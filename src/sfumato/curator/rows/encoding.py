"""SQL that turns the rows of a table into cell numbers. It holds the declared domain and nothing read from the table.

Every rule is total: whatever a field holds, its row gets a cell or is dropped as declared, and nothing
is raised or reported about it. What a field means does not depend on where it is stored:

* Missing is NULL, an empty text, NaN stored as a number and, for numbers, whatever is no number ("NULL", "abc").
* What cannot be read (bytes that are no UTF-8, a nested value, every field of a row with a field too many) is a text
  that is no number and no code: missing for numbers, outside for others. It names no person and is no key.
* A number is a number column's value, or a text that writes one in ASCII digits with an optional sign,
  point and exponent (or inf), blanks around it allowed, and no separators. It is read as the nearest
  double; 32-bit floats and decimals by their decimal text, so 0.1 is 0.1 everywhere. Where another notation is
  declared (`Source`), a text is a number in that one alone: a decimal comma, groups of three digits or none.
* `Integers`: the cell of the whole number below it, for every number from low to high ("3.0" and "3.7" are 3); any
  other is outside. "clamp" takes the nearest cell.
* `Bins`: the bin [a, b) that holds the number, or the last one, which holds its upper edge too; "clamp" sends what is
  below to the first bin, what is above to the last. Infinities are numbers outside.
* `Dates`: the days of the years 1 to 9999, of columns of dates and times (at UTC, where they have a zone) and of texts
  that write one as year-month-day or in the declared format, maybe with a time of day. Anything else is missing.
* `Categories`: the text of a code in Unicode's form NFC, without trimming and case folding unless declared; failing
  that, a whole number written with zero decimals is that whole number ("1.0" is code 1, and 1 is the code "1.0"). Other
  columns are read by
  their text.
* `Categories` of several columns: their texts together, each read as a name is ("1.0" is 1), parted by " | ". Missing
  where one of them is; a text with "|" in it is part of none.
* `Hierarchy`: its finest codes, as categories are; where it says so, what is none by the longest beginning it knows.
* Persons and keys are told apart by their text; the text of a number is that of its value, and a text that writes a
  whole number with zero decimals is that number: 1, 1.0, "1" and "1.0" are one name, "01" and "1e0" two others.
* `Kinds`: a number where the field is one, else a day where it is one, else a text; a column of numbers holds numbers,
  one of dates or times days, one of booleans or UUIDs texts, and whatever else stands in one of these is missing.
* `Booleans`: true/false, t/f, yes/no, y/n, 1/0 in any case, blanks around allowed.

Rules of edition 1 (`cells.EDITION`) compare texts as they are, know no fractions, and leave out the last edge.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from sfumato._util.text import BLANKS, SHARP, case_folding_pairs, date_pattern
from sfumato.cells import (
    BETWEEN,
    POINTS,
    WHOLE,
    Amounts,
    Codes,
    Days,
    Edges,
    Grid,
    Kinds,
    Rule,
    Truths,
    Wholes,
    whole_text,
)
from sfumato.errors import DomainError, SourceError

Statement = tuple[str, tuple[list[float], ...]]
"""SQL and its parameters."""

UNREADABLE = "\uffff"
"""Stands for what cannot be read as a text. It is no character, so no code, number or name can be called that."""

_FAMILIES = (
    {"VARCHAR": "text", '"NULL"': "text", "BOOLEAN": "boolean", "FLOAT": "float", "DOUBLE": "double"}
    | dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT"), "whole")
    | dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"), "whole")
    | dict.fromkeys(("HUGEINT", "UHUGEINT", "BIGNUM", "VARINT"), "exact")
    | dict.fromkeys(("DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "UUID"), "label")
    | {"TIMESTAMP WITH TIME ZONE": "moment"}
)
_SMALL = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
_WHOLE_DOUBLES = 2**53  # whole numbers below are doubles, and what is beyond stays beyond
# Years whose timestamps DuckDB can write. TIME is no label: one beyond a day, as arrow lets through, ends the database.
_YEARS = {"TIMESTAMP_NS": ("1678", "2262")}
_ALL_YEARS = ("0001", "10000")
_NUMBERS = {"text", "whole", "exact", "decimal", "float", "double"}
# What stands between thousands, by what is declared: spaces that do not break lines are spaces, and typographers' marks
_SEPARATORS = {".": "[.]", ",": "[,]", " ": "[ \u00a0\u2009\u202f]", "'": "['\u2019]"}
_LAST_DAY = 3_652_059  # 9999-12-31; the first is 0001-01-01
_MICROSECONDS = 86_400_000_000  # of a day
_FALSE = ("0", "f", "false", "n", "no")
_TRUE = ("1", "t", "true", "y", "yes")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the opened source: the SQL that reads it, its DuckDB type, and how its texts write numbers."""

    sql: str
    type: str
    decimal: str = "."
    thousands: str = ""

    @property
    def family(self) -> str:
        """What the column holds, or "" where fields of this type cannot be read."""
        if self.type.startswith("ENUM("):
            return "text"
        if self.type.startswith("DECIMAL("):
            return "exact" if self.type.endswith(",0)") else "decimal"
        return _FAMILIES.get(self.type, "")

    def text(self, field: str) -> str:
        """The field as text, NULL where missing; numbers without needless decimals."""
        as_text = f"CAST({field} AS VARCHAR)"
        if self.family == "text":
            return f"NULLIF({as_text}, '')"
        if self.family == "decimal":
            return f"rtrim(rtrim({as_text}, '0'), '.')"
        if self.family in ("float", "double"):
            whole = f"CASE WHEN {field} = trunc({field}) THEN CAST(TRY_CAST({field} AS HUGEINT) AS VARCHAR) END"
            return f"CASE WHEN NOT isnan({field}) THEN coalesce({whole}, {as_text}) END"
        if self.type.startswith("TIMESTAMP"):
            first, end = (f"CAST('{y}-01-01' AS {self.type})" for y in _YEARS.get(self.type, _ALL_YEARS))
            other = f"CASE WHEN {field} IS NOT NULL THEN {sql_literal(UNREADABLE)} END"
            # all values of a Parquet dictionary are cast at once, whatever stands around the cast: so none fails inside
            kept = f"CASE WHEN {field} >= {first} AND {field} < {end} THEN {field} END"
            return f"coalesce(CAST({kept} AS VARCHAR), {other})"
        return as_text

    def name(self, field: str) -> str:
        """The field as the text that tells persons or keys apart, NULL where it is missing or cannot be read."""
        return whole_text_sql(self.written(field), self.decimal)

    def written(self, field: str) -> str:
        """The field as the text that told persons apart in 0.2, where the text "1.0" was another name than 1."""
        return f"NULLIF({self.text(field)}, {sql_literal(UNREADABLE)})"

    def day(self, field: str, format: str) -> str:
        """The number of the field's day as a DOUBLE, NULL where there is none; `_util.text.parse_day_number` in SQL."""
        if self.family == "moment":
            first, end = (f"CAST('{y}-01-01 00:00:00+00' AS {self.type})" for y in _ALL_YEARS)
            micros = f"(epoch_us({field}) + {719_162 * _MICROSECONDS})"
            found = f"CASE WHEN {field} >= {first} AND {field} < {end} THEN {micros} // {_MICROSECONDS} + 1 END"
        elif self.family == "label":
            # others may lie where a day begins that they have no moment for
            moment = f"CAST({field} AS {'TIMESTAMP' if self.type == 'TIMESTAMP_NS' else self.type})"
            kept = f"{moment} >= CAST('0001-01-01' AS DATE) AND {moment} < CAST('10000-01-01' AS DATE)"
            found = f"CASE WHEN {kept} THEN {_day_number_sql(f'CAST({moment} AS DATE)')} END"
        else:
            text = f"trim({self.text(field)}, {sql_literal(BLANKS)})"
            written = [date_pattern(strict=True), *([date_pattern(format)] if format else [])]
            found = f"coalesce({', '.join(_written_day_sql(text, *p) for p in written)}, NULL)"
        return f"CAST({found} AS DOUBLE)"

    def number(self, field: str, *, nan: bool = False) -> str:
        """The field as a DOUBLE, NULL where there is no number; with `nan` that may be NaN too."""
        as_text = f"CAST({field} AS VARCHAR)"
        if self.family in ("whole", "double"):
            value = f"CAST({field} AS DOUBLE)"
        elif self.family == "text":
            if (self.decimal, self.thousands) != (".", ""):
                as_text = _plain_number_sql(as_text, self.decimal, self.thousands)
            # DuckDB reads 1_000 as a thousand, which would make the rule depend on its version.
            value = f"CASE WHEN NOT contains({as_text}, '_') THEN TRY_CAST({as_text} AS DOUBLE) END"
        else:
            value = f"TRY_CAST({as_text} AS DOUBLE)"
        return value if nan or self.family == "whole" else f"NULLIF({value}, CAST('nan' AS DOUBLE))"


def check_declared(grid: Grid) -> None:
    """Refuse a domain that does not say what becomes of every possible field.

    Raises DomainError naming each attribute and what it has to declare.
    """
    lacking = [
        f"{name!r} must declare {' and '.join(p for p in ('outside', 'missing') if getattr(rule, p) is None)}"
        for name, rule in zip(grid.names, grid.rules, strict=True)
        if rule.outside is None or rule.missing is None
    ]
    if lacking:
        raise DomainError(
            f"a table of rows may hold anything, so {'; '.join(lacking)}. outside is 'other', 'drop' or, for numbers, "
            "'clamp'; missing is 'other' or 'drop'. Nothing was read or spent"
        )


def check_type(name: str, rule: Rule | None, column: Column) -> None:
    """Refuse a column whose type cannot be read as its attribute (None: as the name of a person)."""
    if isinstance(rule, Days):
        readable = _NUMBERS | ({"label", "moment"} if column.type != "UUID" else set())
    elif rule is not None and rule.numeric:
        readable = _NUMBERS
    elif isinstance(rule, Kinds):
        readable = _NUMBERS | {"boolean", "label", "moment"}
    else:
        readable = _NUMBERS | ({"boolean"} if isinstance(rule, Truths) else {"boolean", "label"})
    if column.family not in readable:
        # What stands inside ENUM(...) or STRUCT(...) stays out of the message.
        kind = column.type.partition("(")[0].removesuffix("[]")
        use = "names of persons" if rule is None else f"an attribute of type {rule.kind!r}"
        raise SourceError(f"column {name!r} is of type {kind}, which cannot be read as {use}; convert the column")


def attribute_column(rule: Rule, names: Sequence[str], columns: Mapping[str, Column]) -> Column:
    """The column that an attribute reads, or as one the texts of several. Raises SourceError as `check_type`."""
    for name in names:
        check_type(name, rule, columns[name])
    first, *more = (columns[name] for name in names)
    if not more:
        return first
    texts = [whole_text_sql(field_sql(rule, c, c.sql), c.decimal) for c in (first, *more)]
    line, odd = sql_literal(BETWEEN.strip()), sql_literal(UNREADABLE)
    joined = f"CASE WHEN list_bool_or(list_transform(t, lambda x: contains(x, {line}) OR x = {odd})) THEN {odd}"
    joined = f"{joined} ELSE array_to_string(t, {sql_literal(BETWEEN)}) END"
    found = f"CASE WHEN list_count(t) = {len(texts)} THEN {joined} END"
    return Column(f"list_extract(list_transform([[{', '.join(texts)}]], lambda t: {found}), 1)", "VARCHAR")


def encoding_statements(
    grid: Grid, columns: Mapping[str, Column], source: str, person: str | None, how: Truncation
) -> list[Statement]:
    """Statements to run in order; the last creates the view `encoded`, which reads the source each time.

    It has one unsigned column a0, a1, … per attribute and one row per record that is counted; with `person` also `cut`,
    true in one row of everybody who had more rows than are kept; without it also d1, …, a measure's places as doubles.
    `columns` has the columns of the attributes and of `person`; `source` is the SQL they are read from.
    Raises SourceError where a column's type cannot be read as its attribute.
    """
    statements: list[Statement] = []
    raw: list[str] = []
    fields: list[str] = []
    cells: list[str] = []
    places: dict[int, str] = {}
    for i, (names, rule) in enumerate(zip(grid.columns, grid.rules, strict=True)):
        column = attribute_column(rule, names, columns)
        statements += attribute_statements(rule, i)
        raw.append(f"{column.sql} AS r{i}")
        whole = isinstance(rule, Wholes) and column.type in _SMALL and max(-rule.low, rule.high) < _WHOLE_DOUBLES
        fields.append(f"{f'r{i}' if whole else field_sql(rule, column, f'r{i}')} AS v{i}")
        found = cell_sql(rule, i, column.decimal, exact=whole)
        if isinstance(rule, Amounts) and person is None:
            places[i] = f"CAST(d{i} AS {_storage_type(rule.states)}) AS a{i}, d{i}"
            cells.append(f"{found} AS d{i}")
        else:
            cells.append(f"CAST({found} AS {_storage_type(rule.states)}) AS a{i}")
    if person is not None:
        check_type(person, None, columns[person])
        raw.append(f"{columns[person].sql} AS r")
        fields.append(f"{columns[person].name('r')} AS person")
        cells.append("person")
    kept = ", ".join(places.get(i, f"a{i}") for i in range(len(grid.rules)))
    query = f"SELECT {', '.join(raw)} FROM {source}"
    query = f"SELECT {', '.join(cells)} FROM (SELECT {', '.join(fields)} FROM ({query}))"
    dropping = [f"a{i} IS NOT NULL" for i, a in enumerate(grid.rules) if a.drops]
    if person is not None:
        # nobody's rows: sharing one place among them would tie the persons behind them to each other
        dropping.append("person IS NOT NULL")
    if dropping:
        query = f"SELECT * FROM ({query}) WHERE {' AND '.join(dropping)}"
    if person is not None:
        query = truncation_sql(kept, f"SELECT *, count(*) AS n FROM ({query}) GROUP BY ALL", how)
    marked = kept if person is None else f"{kept}, cut"
    return [*statements, (f"CREATE OR REPLACE TEMP VIEW encoded AS SELECT {marked} FROM ({query})", ())]


@dataclass(frozen=True, slots=True)
class Truncation:
    """How many rows of a person are counted: in all, and in each joint cell of some attributes, by their positions."""

    most: int
    groups: tuple[int, ...] = ()
    each: int = 1


def truncation_sql(kept: str, rows: str, how: Truncation) -> str:
    """SQL that keeps so many rows of each value of `person`, with `cut`, true in one row of who had more.

    `kept` are the columns that matter. `rows` is SQL of them and of `person`, each different row once, with the
    number `n` of times that it is there.
    """
    # Sensitivity: encoding and dropping look at one row at a time, so a person's encoded rows are a
    # function of that person's rows. Of these at most c are kept, chosen by their cells and the person's
    # own name alone: other persons' rows play no part. Adding, removing or changing one person therefore
    # adds, removes or changes at most c kept rows, and no others.
    # Truncating before dropping would be as private but waste a person's places on rows that do not count.
    # Each of n equal rows has a digest of its own, so that any c of a person's rows are as likely to be kept as any
    # others; with one digest for all of them a rare cell would be kept as often as a common one.
    order = f"md5(concat_ws('|', person, {kept}, nth)), {kept}, nth"
    given = f"SELECT *, unnest(range(n)) AS nth FROM ({rows})"
    if how.groups:
        # First so many of each group, then so many of these by another digest: by the same one, a group of many rows
        # would be kept rather than one of few. Groups, not rows, are equally likely.
        group = ", ".join(f"a{i}" for i in how.groups)
        first = f"row_number() OVER (PARTITION BY person, {group} ORDER BY {order})"
        count = "count(*) OVER (PARTITION BY person) AS had"
        given = f"SELECT *, {count} FROM ({given}) QUALIFY {first} <= {how.each}"
        order = f"md5(concat_ws('|', 'groups', person, {kept}, nth)), {kept}, nth"
    place = f"row_number() OVER (PARTITION BY person ORDER BY {order})"
    left = "count(*) OVER (PARTITION BY person)"
    had, counted = ("had", f"least({left}, {how.most})") if how.groups else (left, how.most)
    # Once a person, and by that person's rows alone: so one person changes how many are cut by at most 1.
    cut = f"{place} = 1 AND {had} > {counted} AS cut"
    return f"SELECT *, {cut} FROM ({given}) QUALIFY {place} <= {how.most}"


def attribute_statements(rule: Rule, i: int) -> list[Statement]:
    """What the expression of attribute i refers to: the type of its codes, or its inner edges."""
    if isinstance(rule, (Edges, Days)):
        return [(f"SET VARIABLE edges{i} = ?", (edge_thresholds(rule)[1:-1],))]
    if isinstance(rule, Truths):
        return _enum_types(i, _FALSE + _TRUE)
    if isinstance(rule, Codes):
        cells = [(f"SET VARIABLE cells{i} = ?", ([float(c) for c in rule.cells],))] if rule.cells else []
        if rule.prefixes:
            listed = ", ".join(map(sql_literal, rule.prefixes))
            cells += [(f"CREATE TYPE prefixes{i} AS ENUM ({listed})", ())]
            cells += [(f"SET VARIABLE prefixed{i} = ?", ([float(c) for c in rule.prefix_cells],))]
        return [*_enum_types(i, rule.codes), *cells]
    return []


def _enum_types(i: int, codes: Sequence[str]) -> list[Statement]:
    """Types of the codes, and of the whole numbers that they write: of two that write one, the first stands for it."""
    taken, wholes = set(codes), list[str]()
    for code in codes:
        wholes.append(code if (whole := whole_text(code)) in taken else whole)
        taken.add(whole)
    named = {f"codes{i}": codes, f"wholes{i}": wholes}
    return [(f"CREATE TYPE {name} AS ENUM ({', '.join(map(sql_literal, texts))})", ()) for name, texts in named.items()]


def field_sql(rule: Rule, column: Column, raw: str) -> str:
    """What is looked up of a raw field: a number, the number of a day, or a text; NULL where it is missing."""
    if isinstance(rule, Days):
        return column.day(raw, rule.format)
    if rule.numeric:
        return column.number(raw, nan=isinstance(rule, Amounts))
    if isinstance(rule, Kinds):
        return _kind_sql(column, raw, rule.format)
    if isinstance(rule, Truths):
        return f"NULLIF(lower(trim({column.text(raw)})), '')"
    text = column.text(raw)
    if not isinstance(rule, Codes) or rule.edition < 2:
        return text
    text = f"nfc_normalize({text})"
    if rule.ignore_case:
        large, small = map(sql_literal, case_folding_pairs(rule.codes))
        sharp, double = map(sql_literal, SHARP)
        text = f"nfc_normalize(replace(translate({text}, {large}, {small}), {sharp}, {double}))"
    return f"NULLIF(trim({text}, {sql_literal(BLANKS)}), '')" if rule.trim else text


def _kind_sql(column: Column, raw: str, format: str) -> str:
    """0 for a number, 1 for a day, 2 for another text, NULL for none; of a typed column one of these or NULL."""
    kinds = column.number(raw), column.day(raw, format) if column.type != "UUID" else "NULL", column.text(raw)
    if column.family == "text":
        tried = [0, 1, 2]
    elif column.family in ("label", "moment") and column.type != "UUID":
        tried = [1]
    else:
        tried = [0] if column.family in _NUMBERS else [2]
    return f"CASE {' '.join(f'WHEN ({kinds[k]}) IS NOT NULL THEN {k}' for k in tried)} END"


def cell_sql(rule: Rule, i: int, decimal: str = ".", *, exact: bool = False) -> str:
    """The cell number of field v{i}, NULL where the row is to be dropped; `exact`: the field is of a type of whole
    numbers, whose doubles fall into the same cells."""
    v = f"v{i}"
    extra = {"other": str(rule.size - 1), "drop": "NULL"}
    missing = extra[rule.missing or "drop"]
    outside = extra.get(rule.outside or "drop")  # None: clamp
    if isinstance(rule, Wholes):
        low, high = (str(n) if exact else _double_literal(n) for n in (rule.low, rule.high))
        below = v if exact else f"floor({v})"
        inside = f"{v} >= {low} AND {v} <= {high}" + (f" AND {v} = {below}" if rule.edition < 2 else "")
        value = below if outside else f"greatest(least({below}, {high}), {low})"
        found = (
            f"(TRY_CAST({value} AS BIGINT) - CAST({rule.low} AS BIGINT)){f' // {rule.width}' if rule.width > 1 else ''}"
        )
    elif isinstance(rule, Amounts):
        return _place_sql(rule, v)
    elif isinstance(rule, Kinds):
        return f"coalesce({v}, {missing})"
    elif isinstance(rule, (Edges, Days)):
        low, *_, end = map(_double_literal, edge_thresholds(rule))
        inside = f"{v} >= {low} AND {v} < {end}"
        found = _bisect_sql(v, f"getvariable('edges{i}')", len(rule.edges) - 2)
    else:
        whole = whole_text_sql(v, decimal)
        found = f"coalesce(enum_code(TRY_CAST({v} AS codes{i})), enum_code(TRY_CAST({whole} AS wholes{i})))"
        if isinstance(rule, Codes) and rule.cells:
            found = f"CAST(list_extract(getvariable('cells{i}'), {found} + 1) AS BIGINT)"
        if isinstance(rule, Codes):
            for length in sorted({len(text) for text in rule.prefixes}, reverse=True):
                number = f"enum_code(TRY_CAST(left({whole}, {length}) AS prefixes{i}))"
                beginning = f"CAST(list_extract(getvariable('prefixed{i}'), {number} + 1) AS BIGINT)"
                found = f"coalesce({found}, {beginning})"
        if isinstance(rule, Truths):
            found = f"({found}) // {len(_FALSE)}"
        return f"CASE WHEN {v} IS NULL THEN {missing} ELSE coalesce({found}, {outside}) END"
    if outside is None:
        return f"CASE WHEN {v} IS NULL THEN {missing} ELSE {found} END"
    return f"CASE WHEN {v} IS NULL THEN {missing} WHEN {inside} THEN {found} ELSE {outside} END"


def truth_sql(text: str, decimal: str) -> str:
    """Whether the text that `field_sql` finds is true, NULL where it is neither that nor false."""
    whole = whole_text_sql(text, decimal)
    false, true = (f"{whole} IN ({', '.join(map(sql_literal, texts))})" for texts in (_FALSE, _TRUE))
    return f"CASE WHEN {true} THEN true WHEN {false} THEN false END"


def _place_sql(rule: Amounts, v: str) -> str:
    """The place of a number in the range of a measure. NaN, which DuckDB takes for more than infinity, has none."""
    low, high, none = _double_literal(rule.low), _double_literal(rule.high), rule.states - 1
    # never beyond the last, however doubles are rounded: less than 2^-20 above it before the half is added
    found = f"floor(({v} - {low}) * {_double_literal(POINTS / (rule.high - rule.low))} + 0.5)"
    beyond = f"WHEN {v} < {low} THEN 0 WHEN {v} <= CAST('inf' AS DOUBLE) THEN {POINTS}" * (rule.outside == "clamp")
    return f"CASE WHEN {v} BETWEEN {low} AND {high} THEN {found} {beyond} ELSE {none} END"  # most are inside


def whole_text_sql(text: str, decimal: str) -> str:
    """`whole_text` in SQL; with another decimal mark "1,0" is 1 too, as "1.0" is everywhere."""
    for mark in dict.fromkeys((".", decimal)):
        found = f"regexp_replace({text}, '^{WHOLE.replace('[.]', f'[{mark}]')}$', '\\1\\2')"
        text = f"CASE WHEN contains({text}, '{mark}0') THEN {found} ELSE {text} END"  # few do; looking for it is cheap
    return text


def _plain_number_sql(text: str, decimal: str, thousands: str) -> str:
    """A number's text in its notation as one with a point and no separators; of any other text NULL."""
    digits = "[0-9]+"
    if thousands:
        digits = f"(?:[0-9]{{1,3}}(?:{_SEPARATORS[thousands]}[0-9]{{3}})+|{digits})"
    number = f"(?:{digits}(?:[{decimal}][0-9]*)?|[{decimal}][0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:inf|infinity)"
    pattern = sql_literal(rf"^\s*([+-]?(?:{number}))\s*$")
    found = f"regexp_extract({text}, {pattern}, 1)"
    if thousands:
        found = f"regexp_replace({found}, {sql_literal(_SEPARATORS[thousands])}, '', 'g')"
    return f"NULLIF(replace({found}, '{decimal}', '.'), '')"


def _bisect_sql(value: str, edges: str, count: int) -> str:
    """How many of the `count` increasing edges are at or below a value, by binary search."""
    steps = [1 << k for k in reversed(range(count.bit_length()))]
    taken = f"list_extract({edges}, p + s) <= {value}"
    return f"list_reduce({[0, *steps]}, lambda p, s: CASE WHEN {taken} THEN p + s ELSE p END)"


def edge_thresholds(rule: Edges | Days) -> list[float]:
    """For every edge the least double that lies at it or above; above the last, where that is in the last cell."""
    found = [double_at_least(e) for e in rule.edges]
    if isinstance(rule, Edges) and rule.edition > 1 and found[-1] == rule.edges[-1]:
        found[-1] = math.nextafter(found[-1], math.inf)
    return found


def _day_number_sql(day: str) -> str:
    return f"({day} - CAST('0001-01-01' AS DATE) + 1)"


def _written_day_sql(text: str, expression: str, places: tuple[int, int, int]) -> str:
    """The number of the day that a text writes, by the groups of a regular expression; NULL where it writes none."""
    names = [f"g{k}" for k in range(1, 12)]
    day = " || '-' || ".join(f"x.g{p}" for p in places)
    hour, minute, second, _, _, *away = (f"CAST('0' || x.{n} AS BIGINT)" for n in names[3:])
    seconds, distance = (f"({h} * 3600 + {m} * 60 + {s})" for h, m, s in ((hour, minute, second), away))
    ahead = f"CASE WHEN x.{names[7]} = '+' THEN -1 ELSE 1 END"
    # a day more or less, counted up from a number that is never negative: of others // rounds towards zero
    moved = f"({seconds} + {ahead} * {distance} + 86400) // 86400 - 1"
    found = f"CASE WHEN x.g1 <> '' THEN {_day_number_sql(f'TRY_CAST({day} AS DATE)')} + {moved} END"
    taken = f"regexp_extract({text}, {sql_literal(f'^(?:{expression})$')}, [{', '.join(map(sql_literal, names))}])"
    days = f"list_transform([{taken}], lambda x: {found})"
    return f"list_extract(list_filter({days}, lambda n: n BETWEEN 1 AND {_LAST_DAY}), 1)"


def double_at_least(value: float) -> float:
    """The least double that is not below an edge: for doubles x, x < edge says the same of both."""
    rounded = float(value)
    return math.nextafter(rounded, math.inf) if rounded < value else rounded


def _double_literal(value: float) -> str:
    return f"CAST('{double_at_least(value)!r}' AS DOUBLE)"


def _storage_type(size: int) -> str:
    return {1: "UTINYINT", 2: "USMALLINT", 4: "UINTEGER"}[record_bytes([size])]


def record_bytes(sizes: Sequence[int]) -> int:
    """Bytes that one encoded record takes, for attributes of so many codes each."""
    return sum(1 if s <= 2**8 else 2 if s <= 2**16 else 4 for s in sizes)


def sql_literal(text: str) -> str:
    """A text as an SQL literal; DuckDB's standard literals know no escape but the doubled quote."""
    return "'" + text.replace("'", "''") + "'"


def sql_identifier(name: str) -> str:
    """A name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


_NUMBERS_ELEMENTS = (float, complex, np.number, Decimal)
_HUGEINT = 2**127  # integers of DuckDB end there; what is beyond is a double
# A number with more digits than this is written by its exponent: Python refuses to write some, and no double holds it.
_DIGITS = 400


def element_texts(values: Iterable[Any], decimal: str = ".") -> NDArray[np.object_]:
    """The text of every element: None where it is missing, `UNREADABLE` where it is no text, number, date or boolean.

    Numbers are written with the decimal mark that texts have beside them. Nothing that an element holds can raise, and
    none decides for another.
    """
    found = [value if type(value) is str and value.isascii() else element_text(value, decimal) for value in values]
    out = np.empty(len(found), dtype=object)
    out[:] = found
    return out


def plain_column(column: Any, decimal: str = ".") -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """A pandas column as numbers or texts that DuckDB reads, and which are missing where numbers cannot say it."""
    kind, width = getattr(column.dtype, "kind", "O"), getattr(column.dtype, "itemsize", 0)
    numbers = column.dtype if isinstance(column.dtype, np.dtype) else getattr(column.dtype, "numpy_dtype", None)
    if numbers is None or kind not in "iuf" or (kind == "f" and width not in (4, 8)):
        return element_texts(column.tolist() if kind == "O" else column, decimal), None
    if isinstance(column.dtype, np.dtype):
        return np.ascontiguousarray(column.to_numpy(), dtype=numbers.newbyteorder("=")), None
    return column.to_numpy(dtype=numbers, na_value=0), np.asarray(column.isna(), dtype=bool)


def element_text(value: Any, decimal: str = ".") -> str | None:
    """The text of one element, whatever it is."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    try:
        found = _text_of_known(value)
        if found is None or decimal == "." or not isinstance(value, _NUMBERS_ELEMENTS):
            return found
        return found.replace(".", decimal)
    except Exception:  # classes of others, and what they hold, may raise anything
        return UNREADABLE


def _text_of_known(value: Any) -> str | None:
    if isinstance(value, str):
        str.encode(value)  # raises for surrogates, which are no characters
        return str.__str__(value)
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return _integer_text(int(value))
    if isinstance(value, (float, np.floating)):
        return _float_text(value)
    if isinstance(value, (complex, np.complexfloating)) and value.imag == 0:
        # one complex number makes all numbers of a column complex
        return _float_text(value.real)
    if isinstance(value, Decimal):
        return _decimal_text(value)
    if isinstance(value, np.datetime64):
        value = value.astype("M8[us]").item()
    if isinstance(value, datetime):
        return _timestamp_text(value)
    if value is None or isinstance(value, (date, time, UUID)):
        return None if value is None else str(value)
    return UNREADABLE


def _integer_text(value: int) -> str:
    if value.bit_length() > 3 * _DIGITS:
        return f"{'-' if value < 0 else ''}1e{_DIGITS}"
    return str(value)


def _float_text(value: Any) -> str | None:
    """As DuckDB writes a column of such numbers: whole ones without decimals, the shortest text otherwise."""
    if math.isnan(value):
        return None
    if math.isfinite(value) and value == math.floor(value) and -_HUGEINT <= float(value) < _HUGEINT:
        return str(int(value))
    return float.__repr__(value) if isinstance(value, float) else str(value)


def _decimal_text(value: Decimal) -> str | None:
    if value.is_nan():
        return None
    if value.is_infinite() or value == 0:
        return "0" if value == 0 else str(float(value))
    if abs(value.adjusted()) > _DIGITS or len(value.as_tuple().digits) > _DIGITS:
        return str(value)
    shown = format(value, "f")
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def _timestamp_text(value: datetime) -> str:
    """Date and time, the fraction without needless zeros; pandas counts nanoseconds besides."""
    nanoseconds = value.microsecond * 1000 + int(getattr(value, "nanosecond", 0))
    fraction = f".{nanoseconds:09}".rstrip("0").rstrip(".")
    day = f"{value.year:04}-{value.month:02}-{value.day:02}"
    zone = f"{value:%z}" if value.tzinfo else ""
    return f"{day} {value.hour:02}:{value.minute:02}:{value.second:02}{fraction}{zone}"
