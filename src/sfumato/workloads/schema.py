"""Attributes in files: the [schema] tables of a spec, and schemas of other tools."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Collection, Iterable, Mapping
from datetime import date
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any, cast

from sfumato._util.bundles import check_text
from sfumato._util.checks import Number, check_distinct, read_text
from sfumato.domain import Attribute, Bins, Booleans, Categories, Dates, Domain, Hierarchy, Integers, Measure
from sfumato.errors import DomainError, InvalidInput, SpecError
from sfumato.workloads.reading import Section, check_public, find_fault

Columns = Mapping[str, Attribute | None]

_TYPES = {
    "integer": ("min", "max", "width", "edges", "levels"),
    "number": ("min", "max", "width", "edges", "levels"),
    "date": ("min", "max", "by", "format", "starts"),
    "category": ("values", "values_from", "case", "trim", "discover", "most", "prefixes", "columns"),
    "hierarchy": ("levels", "values", "values_from", "labels", "columns"),
    "boolean": (),
}
WORDS = ("label", "unit", "categories")
"""What a declaration may say for readers alone: `releases.publication` reads it, and no domain knows it."""
_POLICIES = {"outside": ("other", "clamp", "drop"), "missing": ("other", "drop")}
_MAX_CODES_BYTES = 64 * 2**20  # a million codes of 64 bytes with their labels, as many as a hierarchy takes
DISCOVER = "discover"
"""What stands for values that are to be found, with `discover`, the share of the budget, of which a fifth is usual."""
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def read_schema(root: Section, folder: Path) -> Domain:
    """The domain that the tables [schema.NAME] and [measures.NAME] declare, in their order, and [domain] says of all.

    Policies come from [schema_defaults] where an attribute has none of its own; files of codes are
    looked up from `folder`. Raises SpecError, with the line, for whatever cannot be declared so.
    """
    defaults = root.section("schema_defaults")
    defaults.allow("outside", "missing")
    schema = root.section("schema")
    attributes: dict[str, Attribute] = {}
    for name in schema:
        table = schema.section(name)
        with table.guard():
            check_public(table, root, folder)
            attributes[name] = _read_attribute(table, defaults, folder)
    measures = _measures(root, folder)
    if not attributes and not measures:
        raise root.refuse("no attribute is declared; add a table [schema.NAME] for each column that is asked about")
    with schema.guard():
        domain = Domain(attributes, measures=measures)
    whole = root.section("domain")
    whole.allow("impossible")
    if "impossible" not in whole:
        return domain
    with whole.guard("impossible"):
        return Domain(attributes, whole.texts("impossible") or (), measures=measures)


def _measures(root: Section, folder: Path) -> dict[str, Measure]:
    """Numbers that are summed: [measures.NAME] with min and max."""
    tables = root.section("measures")
    found: dict[str, Measure] = {}
    for name in tables:
        table = tables.section(name)
        with table.guard():
            check_public(table, root, folder)
            table.allow("min", "max", "outside", "knots", "column", *WORDS)
            for key in ("min", "max"):
                table.need(key, "numbers outside are cut to the range, which is public knowledge or a guess")
            outside = table.text("outside") or "clamp"
            if outside not in ("clamp", "absent"):
                raise table.refuse(f"must be clamp or absent, not {outside!r}", "outside")
            low, high = (cast(Number, table.number(key)) for key in ("min", "max"))
            knots = table.raw("knots") if "knots" in table else ()
            column = table.text("column")
            found[name] = Measure(low, high, outside=cast(Any, outside), knots=cast(Any, knots), column=column)
    return found


def _read_attribute(table: Section, defaults: Section, folder: Path) -> Attribute:
    table.need("type", f"it is one of {', '.join(_TYPES)}")
    kind = table.text("type")
    if kind not in _TYPES:
        raise table.refuse(f"no type is called {kind!r}; there are {', '.join(_TYPES)}", "type")
    table.allow("type", "outside", "missing", *_TYPES[kind], *WORDS)
    policies: dict[str, Any] = {}
    for policy in ("outside", "missing"):
        source = table if policy in table else defaults
        given = source.text(policy)
        if policy == "outside" and policy not in table and table.raw("values") == DISCOVER:
            given = "other"  # whatever the default is: what is not shown counts there
        if given is None:
            raise table.refuse(f"{policy} is not declared; state it here or once for all under [schema_defaults]")
        if given not in _POLICIES[policy]:
            raise source.refuse(f"must be one of {', '.join(_POLICIES[policy])}, not {given!r}", policy)
        policies[policy] = given
    if kind == "boolean":
        return Booleans(**policies)
    if kind == "category":
        policies["case"] = table.text("case") or "exact"
        policies["trim"] = table.raw("trim") if "trim" in table else False
        if not isinstance(policies["trim"], bool):
            raise table.refuse("must be true or false", "trim")
        policies["columns"] = (table.texts("columns") or ()) if "columns" in table else ()
        if table.raw("values") == DISCOVER:
            return Categories(**policies, **_read_discovery(table))
        for key in ("discover", "most", "prefixes"):
            if key in table:
                raise table.refuse(f'goes with values = "{DISCOVER}", where labels are to be found', key)
        return Categories(_read_categories(table, folder), **policies)
    if kind == "hierarchy":
        return _read_hierarchy(table, folder, policies)
    if kind == "date":
        for key in ("min", "max"):
            table.need(key, 'it is a day, such as "2020-01-01"')
        low, high = (_read_day(table, key) for key in ("min", "max"))
        policies["format"] = table.text("format") or ""
        if "starts" in table:
            policies["starts"] = [d if type(d) is date else str(d) for d in table.items("starts") or ()]
        return Dates(low, high, cast(Any, table.text("by") or "day"), **policies)
    policies["levels"] = _read_cell_levels(table)
    if "edges" in table:
        table.allow("type", "outside", "missing", "edges", "levels", *WORDS)
        edges = cast(list[Number], table.numbers("edges"))
        if kind == "integer" and not all(isinstance(e, int) for e in edges):
            raise table.refuse("edges of an integer attribute are whole numbers", "edges")
        return Bins(edges, **policies)
    for key in ("min", "max"):
        table.need(key, "state min and max, or edges = [...]")
    if kind == "integer":
        low, high, width = table.whole("min"), table.whole("max"), table.whole("width")
        return Integers(cast(int, low), cast(int, high), 1 if width is None else width, **policies)
    table.need("width", "numbers need the width of their cells, or edges = [...]")
    low, high, width = (cast(Number, table.number(key)) for key in ("min", "max", "width"))
    return Bins.regular(low, high, width, **policies)


def _read_day(table: Section, key: str) -> Any:
    """A day as TOML has it, or as a text."""
    given = table.raw(key)
    return given if type(given) is date else table.text(key)


def _read_cell_levels(table: Section) -> dict[str, Number | list[Number]]:
    """Widths or edges of the coarser cells of numbers, by name."""
    levels = table.section("levels")
    found: dict[str, Number | list[Number]] = {}
    for name in levels:
        edges = levels.numbers(name) if isinstance(levels.raw(name), list) else None
        found[name] = cast(Number, levels.number(name)) if edges is None else edges
    return found


def _read_hierarchy(table: Section, folder: Path, policies: dict[str, Any]) -> Hierarchy:
    levels = table.texts("levels")
    labels = table.section("labels")
    policies["columns"] = (table.texts("columns") or ()) if "columns" in table else ()
    policies["code_labels"] = {
        level: {code: labels.section(level).text(code) for code in labels.section(level)} for level in labels
    }
    if ("values" in table) == ("values_from" in table):
        raise table.refuse(
            "say once what lies in what: values_from = a file with a column per level, or values = rows or tables"
        )
    if "values_from" in table:
        with table.guard("values_from"):
            return Hierarchy(folder / cast(str, table.text("values_from")), levels, **policies)
    table.need("levels", 'it names the levels from coarse to fine, such as ["state", "county"]')
    with table.guard("values"):
        return Hierarchy(table.raw("values"), levels, **policies)


def _read_discovery(table: Section) -> dict[str, Any]:
    """The share of the budget that finds labels, and how many are shown at most."""
    if "values_from" in table:
        raise table.refuse(f'values = "{DISCOVER}" finds the categories that a file lists; take one out', "values_from")
    most = table.whole("most")
    share = Fraction(1, 5) if "discover" not in table else Fraction(str(table.number("discover")))
    prefixes = (
        {name: table.section("prefixes").whole(name) for name in table.section("prefixes")}
        if "prefixes" in table
        else {}
    )
    return {"discover": share, "prefixes": prefixes, **({} if most is None else {"most": most})}


def _read_categories(table: Section, folder: Path) -> list[object] | dict[str, str]:
    if ("values" in table) == ("values_from" in table):
        raise table.refuse(
            "give the categories once: values = [...], or { code = label }, or values_from = a file; or values = "
            f'"{DISCOVER}", where nobody listed them'
        )
    if "values_from" in table:
        with table.guard("values_from"):
            return _read_codes(folder / cast(str, table.text("values_from")))
    given = table.raw("values")
    if isinstance(given, dict):
        labels = table.section("values")
        return {code: cast(str, labels.text(code)) for code in labels}
    return cast(list[object], table.items("values"))


def _read_codes(path: Path) -> dict[str, str]:
    """Codes and labels of a CSV file whose first line is `code` or `code,label`."""
    text = read_text(path, "the file of codes", _MAX_CODES_BYTES)
    codes: dict[str, str] = {}
    try:
        lines = csv.reader(io.StringIO(text, newline=""), strict=True)
        header = [cell.strip().lower() for cell in next(lines, [])]
        if header not in (["code"], ["code", "label"]):
            raise DomainError("the first line of a file of codes must be: code  or  code,label")
        for row in lines:
            if not row:
                continue
            if len(row) != len(header):
                raise DomainError(
                    f"line {lines.line_num} of the file of codes has {len(row)} columns, its first line {len(header)}"
                )
            if row[0] in codes:
                raise DomainError(f"line {lines.line_num} of the file of codes repeats a code")
            codes[row[0]] = row[-1]
    except csv.Error as error:
        raise DomainError(f"the file of codes is not CSV: {error}") from error
    return codes


def import_schema(path: str | PathLike[str]) -> dict[str, Attribute | None]:
    """The columns of another tool's schema: a domain.json of sizes, or a Frictionless Table Schema.

    A size n declares the codes 0 to n - 1. A Table Schema's field is declared by `categories`,
    `constraints.enum`, type boolean, `constraints.minimum` and `maximum` (with `width`, 1 for integers
    unless given; a number without one is a measure), or a list `bins` of edges; a field without any of these comes
    back as None. Neither kind of file states policies. Raises SpecError for every other file.
    """
    text = read_text(path, "the schema")
    try:
        document = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_distinct_pairs)
    except SpecError:
        raise
    except RecursionError as error:
        raise SpecError("the schema is nested too deep") from error
    except json.JSONDecodeError as error:
        raise SpecError(f"the schema is not JSON: {error.msg}", error.lineno) from error
    except ValueError as error:
        raise SpecError(f"the schema is not JSON: {error}") from error
    if fault := find_fault(document):
        raise SpecError(f"{'.'.join(map(str, fault[0]))}: {fault[1]}")
    columns: dict[str, Attribute | None] = {}
    try:
        if isinstance(document, dict) and isinstance(document.get("fields"), list):
            for field in document["fields"]:
                name, attribute = _read_schema_field(field)
                if name in columns:
                    raise DomainError(f"the field {name!r} is declared twice")
                columns[name] = attribute
        elif isinstance(document, dict) and document and all(type(n) is int for n in document.values()):
            columns.update(Domain(document).attributes)
        else:
            raise SpecError('the schema must be {"name": size, ...} or {"fields": [...]} (a Table Schema)')
        return _check_column_names(columns)
    except DomainError as error:
        raise SpecError(str(error)) from error


def _refuse_constant(text: str) -> object:
    raise SpecError(f"the schema holds {text}; numbers must be finite")


def _distinct_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise SpecError(f"the schema repeats a key among {', '.join(repr(k) for k, _ in pairs[:12])}")
    return result


def _read_schema_field(field: object) -> tuple[str, Attribute | None]:
    if not isinstance(field, dict) or not isinstance(field.get("name"), str):
        raise DomainError("every field of a Table Schema is an object with a name")
    name, kind = field["name"], field.get("type", "string")
    constraints = field.get("constraints", {})
    if not isinstance(constraints, dict):
        raise DomainError(f"field {name!r}: constraints must be an object")
    values = field.get("categories", constraints.get("enum"))
    low, high, width = constraints.get("minimum"), constraints.get("maximum"), field.get("width")
    try:
        if kind == "boolean":
            return name, Booleans()
        if values is not None:
            return name, Categories(_field_values(values))
        if kind in ("integer", "number", "year") and "bins" in field:
            return name, Bins(field["bins"])
        if low is None or high is None:
            return name, None
        if kind in ("integer", "year"):
            return name, Integers(low, high, 1 if width is None else width)
        if kind == "number":
            return name, Measure(low, high) if width is None else Bins.regular(low, high, width)
    except (InvalidInput, TypeError) as error:
        raise DomainError(f"field {name!r}: {error}") from error
    return name, None


def _field_values(values: object) -> list[object] | dict[Any, Any]:
    if not isinstance(values, list):
        raise DomainError("categories must be a list")
    if not values or not all(isinstance(v, dict) for v in values):
        return values
    pairs = [(v.get("value"), v.get("label", v.get("value"))) for v in values]
    if len(dict(pairs)) != len(pairs):
        raise DomainError("a category is declared twice")
    return dict(pairs)


def _check_column_names(columns: Columns) -> dict[str, Attribute | None]:
    if not columns:
        raise DomainError("no field or column is named")
    for name in columns:
        check_text(name, "column name")
    check_distinct(columns, "columns")
    return dict(columns)


def spec_text(columns: Domain | Columns, summed: Collection[str] = ()) -> str:
    """The tables [schema.NAME] and [measures.NAME] that declare these columns, and [domain] where it says something, as
    TOML.

    Columns that are None, those in `summed` measures, and policies that are undeclared, become blanks that a spec
    refuses to run with. Otherwise reading the text gives the same domain.
    """
    every = _check_column_names(columns.attributes if isinstance(columns, Domain) else columns)
    given = {n: a for n, a in every.items() if not isinstance(a, Measure) and (a is not None or n not in summed)}
    blanks = [p for p in ("outside", "missing") if any(a is None or getattr(a, p) is None for a in given.values())]
    lines: list[str] = []
    if blanks:
        lines += ["[schema_defaults]", *(f'{p} = ""   # {_POLICY_HELP[p]}' for p in blanks), ""]
    for name, attribute in given.items():
        lines += [f"[schema.{_toml_key(name)}]", *_toml_declaration(_toml_key(name), attribute), ""]
    for name, measure in every.items():
        if measure is None and name in summed:
            lines += [f"[measures.{_toml_key(name)}]", 'min = ""', 'max = ""', ""]
        if isinstance(measure, Measure):
            lines += [f"[measures.{_toml_key(name)}]", f"min = {measure.low}", f"max = {measure.high}"]
            lines += [f"knots = [{', '.join(map(repr, measure.knots))}]"] if measure.knots else []
            lines += [] if measure.column is None else [f"column = {toml_text(measure.column)}"]
            lines += [*(['outside = "absent"'] if measure.outside == "other" else []), ""]
    if isinstance(columns, Domain) and columns.impossible:
        lines += ["[domain]", "impossible = [", *(f"  {toml_text(text)}," for text in columns.impossible), "]", ""]
    return "\n".join(lines)


_POLICY_HELP = {
    "outside": 'values outside the declaration: "other" (one extra cell), "clamp" (numbers only) or "drop"',
    "missing": 'missing values: "other" (the same extra cell) or "drop"',
}


def _toml_declaration(key: str, attribute: Attribute | None) -> list[str]:
    if attribute is None:
        return ['type = ""']
    lines = [f'type = "{attribute.kind}"']
    lines += [f'{p} = "{getattr(attribute, p)}"' for p in ("outside", "missing") if getattr(attribute, p) is not None]
    if isinstance(attribute, Integers):
        lines += [f"min = {attribute.low}", f"max = {attribute.high}", f"width = {attribute.width}"]
    elif isinstance(attribute, Bins):
        lines.append(f"edges = [{', '.join(repr(e) for e in attribute.edges)}]")
    elif isinstance(attribute, Dates):
        lines += [f'min = "{attribute.low}"', f'max = "{attribute.high}"']
        days = [str(day) for day in attribute.starts]
        lines.append(f"starts = {_toml_list(days)}" if days else f'by = "{attribute.by}"')
        lines += [f"format = {toml_text(attribute.format)}"] if attribute.format else []
    elif isinstance(attribute, Hierarchy):
        lines.append(f"levels = {_toml_list(attribute.level_names)}")
        lines += [f"columns = {_toml_list(attribute.columns)}"] if attribute.columns else []
        lines += ["values = [", *(f"  {_toml_list(row)}," for row in attribute.rows), "]"]
        for level, labels in attribute.level_labels.items():
            lines.append(f"[schema.{key}.labels.{_toml_key(level)}]")
            lines += [f"{_toml_key(code)} = {toml_text(label)}" for code, label in labels.items()]
    elif isinstance(attribute, Categories):
        lines += [f'case = "{attribute.case}"'] if attribute.case != "exact" else []
        lines += ["trim = true"] if attribute.trim else []
        lines += [f"columns = {_toml_list(attribute.columns)}"] if attribute.columns else []
        pairs = list(attribute.code_labels.items())
        if attribute.discover is not None:
            lines += [f'values = "{DISCOVER}"', f"discover = {float(attribute.discover)!r}", f"most = {attribute.most}"]
            if attribute.lengths:
                lines += [
                    f"[schema.{key}.prefixes]",
                    *(f"{_toml_key(n)} = {letters}" for n, letters in attribute.lengths),
                ]
        elif all(code == label for code, label in pairs):
            lines.append(f"values = {_toml_list(attribute.codes)}")
        else:
            lines += [
                f"[schema.{key}.values]",
                *(f"{_toml_key(code)} = {toml_text(label)}" for code, label in pairs),
            ]
    if isinstance(attribute, (Integers, Bins)) and attribute.levels:
        lines.append(f"[schema.{key}.levels]")
        lines += [f"{_toml_key(n)} = {list(v) if isinstance(v, tuple) else v!r}" for n, v in attribute.declared_levels]
    return lines


def _toml_list(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(toml_text, texts))}]"


def toml_text(text: str) -> str:
    """A text as TOML writes it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _toml_key(text: str) -> str:
    return text if _BARE_KEY.fullmatch(text) else toml_text(text)


def spec_template(
    columns: Domain | Columns | Iterable[str],
    source: str = "",
    written: Mapping[str, str] | None = None,
    summed: Collection[str] = (),
) -> str:
    """A whole spec file for these columns, or these column names, with blanks for what people must decide.

    `written` says how the table is written, as the keys of [data] do. `summed` are the columns that are proposed as
    measures, each with a question for its mean.
    """
    if not isinstance(columns, (Domain, Mapping)):
        names = list(columns)
        check_distinct(names, "columns")  # before equal names become one key
        columns = dict.fromkeys(names)
    known = "".join(f"{name} = {toml_text(value)}\n" for name, value in (written or {}).items())
    every = columns.attributes if isinstance(columns, Domain) else columns
    measures = [n for n, a in every.items() if isinstance(a, Measure) or (a is None and n in summed)]
    means = "".join(f"[[queries]]\nmeans = {toml_text(n)}\n{_BY if n == measures[0] else ''}\n" for n in measures)
    return _TEMPLATE.format(
        source=toml_text(source),
        written=known or _PLAIN,
        schema=spec_text(columns, summed),
        counts=_COUNTS if len(measures) < len(every) else "",
        means=means,
    )


_PLAIN = """\
# decimal = ","     # how texts are written, if not plainly; also thousands = ".", encoding = "cp1252", delimiter = ";"
"""
_COUNTS = """\
[[queries]]
name = "main"
marginals = ""      # such as 2 for all two-way tables; or upto = 3, sets = [["age", "sex"]], prefix = "age",
                    # sums = "wages", identity = ["age", "sex"], total = true, where = ["age >= 65"]; of
                    # measures means = "cost", or moments = ["cost", "days"], for regression too; by = ["sex"]
# weight = 4        # multiplies this part's squared errors; 16 about halves the error of a part with little budget

"""
_BY = """\
# by = ["sex"]      # of every group; moments = ["cost"] in place of means for variances too, moments = ["cost", "days"]
                    # for correlation and regression
"""
_TEMPLATE = """\
# What is known about a table, what is asked of it, and what that may cost. None of this comes from its rows.
# Fill in every "": the file refuses to run until then. Delete the tables of columns that are not asked about.

[data]
source = {source}   # a table: .csv, .xlsx, .parquet, .json, or an address, "duckdb:///file.db?table=people", "postgresql:///db?table=people"
# table = "people"  # its public name, which stays when its file moves: the ledger holds every spend to it
{written}
# Each column is declared from public knowledge, never by looking at the rows:
#   type = "integer"    min = 0, max = 99 and, for cells of several numbers, width = 5
#   type = "number"     edges = [0, 10, 20], where a cell holds its lower edge, the last both; or min, max and width
#   type = "date"       min = "2020-01-01", max = "2026-12-31", by = "month" (day, week, month, quarter, year); format =
#                       "%d.%m.%Y" where texts are not written year-month-day
#   type = "category"   values = ["a", "b"], or {{ "1" = "a", "2" = "b" }} (code = label; several may share one), or
#                       values_from = "codes.csv"; case = "ignore", trim = true where capitals and blanks do not count;
#                       values = "discover" where nobody listed them, of pairs too: columns = ["diagnosis", "product"]
#   type = "boolean"
#   type = "hierarchy"  levels = ["state", "county"], values_from = "counties.csv" with a column for each
# A number of many values (money, a weight, a duration) of which sums, means and variances are asked is a measure: its
# table is then [measures.NAME] in place of [schema.NAME], with min and max alone, a range that is known without
# looking; numbers beyond it count as its ends, or not at all with outside = "absent". Columns whose type is a number
# stand so here; one whose cells are counted, such as an age or a code, takes a table [schema.NAME] instead.
{schema}
# [domain]
# impossible = ["age < 15 and married"]   # what holds for no record, known before any was seen; one that says so all
#                                         # the same is counted in the nearest cell that can be

[privacy]
epsilon = ""        # with delta, or alone and without the line below; or rho = 0.5, or mu = 1, instead of both
delta = ""          # such as 1e-6
neighbours = ""     # "add-remove" or "replace-one": what one person may change
# person = "person_id"    # the column that says whose record a row is, if one person may have several
# rows_per_person = 4
# once_per = ["department"]   # of these, and of each department one at most: tables by department err less

{counts}{means}\
[[queries]]         # how many people there are is read first; as one of many tables it would get little of the budget
name = "people"
total = true

# [plan]
# objective = "tables"    # the default: every part alike, every table of a part, every cell of a table;
#                         # "cells": every cell alike, so large tables take the budget; "max": the largest error

# [publication]             # what readers are told; of no weight for what is paid, and can be corrected later
# title = "People by age"   # also subtitle, institution, contact, period, notes, licence; language = "en", "de" or "fr"
# flags = {{ "*" = 0.15, "**" = 0.30, suppress = 0.50 }}   # by relative standard error

# [stream]                  # only where the same tables come again and again, period after period
# periods = 104             # all that are paid for, once, before the first; "unknown" where nobody knows how many
# ask = ["totals", "last 12"]   # what is to err little, or weights, {{ totals = 2, "decayed 0.99" = 1 }}
# objective = "worst"       # period, the default, or "mean"
# periods_per_person = 12   # with person above: the most periods that one person is in; default: 1
# apart = 4                 # the least distance of two of them
# promised = true           # nobody is in more, as you know; by default rows that exceed are left out
"""
