"""Cells as expressions of Spark, for the kinds of columns where they are provably what DuckDB makes of the fields.

Only what is total is used: comparisons, CASE, and arithmetic on numbers that were brought into their range first;
nothing fails for a row. Spark has NaN above every number and equal to itself, so it is asked for before others are
compared.
Of all other columns (numbers as texts, decimals, days, and floats of 32 bits, which are read by the text that DuckDB
gives them) the fields travel as they are, to be placed by DuckDB.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sfumato.cells import Codes, Edges, Rule, Truths, Wholes
from sfumato.wall.rows.encoding import double_at_least

__all__ = ["cell"]

# Comparisons in one expression: with many more, Java gives up compiling it, and DuckDB looks up faster.
_MOST = 64
_WHOLE = re.compile("-?(0|[1-9][0-9]*)")
# What "1.0" is the code 1 of: DuckDB reads 38 digits.
_DIGITS = 38
_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT"}


def cell(rule: Rule, kind: str, column: Any, f: Any) -> Any:
    """The cell of a column of some DuckDB type as a whole number, `rule.size` where its row is dropped; None: not here.

    f: `pyspark.sql.functions`.
    """
    extra = {"other": rule.size - 1, "drop": rule.size}
    missing = column.isNull()
    if kind == "DOUBLE":
        missing = missing | f.isnan(column)
    elif kind == "VARCHAR":
        missing = missing | (column == f.lit(""))
    outside = f.lit(extra.get(rule.outside or "", 0)).cast("bigint")
    value = _value(rule, kind, column, outside, f)
    return (
        None if value is None else f.when(missing, f.lit(extra[rule.missing or "drop"]).cast("bigint")).otherwise(value)
    )


def _value(rule: Rule, kind: str, column: Any, outside: Any, f: Any) -> Any:
    """The cell of a field that is there."""
    clamped = rule.outside == "clamp"
    if isinstance(rule, Wholes) and kind in _INTEGERS | {"DOUBLE"}:
        number = "double" if kind == "DOUBLE" else "bigint"
        low, high = (f.lit(float(n) if kind == "DOUBLE" else n).cast(number) for n in (rule.low, rule.high))
        given = column.cast(number)
        # in its range first: then nothing overflows
        near = f.floor(f.least(f.greatest(given, low), high)).cast("bigint")
        width = f.lit(rule.width).cast("bigint")
        found = f.call_function("div", near - f.lit(rule.low).cast("bigint"), width)
        inside = (given >= low) & (given <= high) & (near.cast(number) == given)
        return found if clamped else f.when(inside, found).otherwise(outside)
    if isinstance(rule, Edges) and kind in _INTEGERS | {"DOUBLE"} and len(rule.edges) <= _MOST:
        edges = [f.lit(double_at_least(e)).cast("double") for e in rule.edges]
        given = column.cast("double")
        found = _bisected(given, edges[1:-1], 0, f)
        inside = (given >= edges[0]) & (given < edges[-1])
        return found if clamped else f.when(inside, found).otherwise(outside)
    return _looked_up(rule, kind, column, outside, f)


def _bisected(given: Any, edges: Sequence[Any], first: int, f: Any) -> Any:
    """How many increasing edges are at or below a number, and `first` more."""
    if not edges:
        return f.lit(first).cast("bigint")
    half = len(edges) // 2
    below, above = _bisected(given, edges[:half], first, f), _bisected(given, edges[half + 1 :], first + half + 1, f)
    return f.when(given < edges[half], below).otherwise(above)


def _looked_up(rule: Rule, kind: str, column: Any, outside: Any, f: Any) -> Any:
    if isinstance(rule, Truths):
        values = {"BOOLEAN": (False, True)}.get(kind, (0, 1) if kind in _INTEGERS else ())
        return _among(column, {v: i for i, v in enumerate(values)}, outside, f) if values else None
    if not isinstance(rule, Codes) or len(rule.codes) > _MOST:
        return None
    places = {code: i for i, code in enumerate(rule.codes)}
    if kind == "BOOLEAN":
        return _among(
            column, {v: places[str(v).lower()] for v in (False, True) if str(v).lower() in places}, outside, f
        )
    whole = {code: i for code, i in places.items() if _WHOLE.fullmatch(code) and code != "-0"}
    if kind in _INTEGERS:
        numbers = {int(code): i for code, i in whole.items() if abs(int(code)) < 2**63}
        return _among(column.cast("bigint"), numbers, outside, f)
    if kind != "VARCHAR" or any(len(code) >= _DIGITS for code in whole):
        return None
    if whole:  # of whole numbers with zero decimals, the digits before the point
        whole |= {"-0": whole["0"]} if "0" in whole else {}
        written = column.rlike(r"^-?(0|[1-9][0-9]*)[.]0+\z")
        digits = _among(f.substring_index(column, ".", 1), whole, outside, f)
        outside = f.when(f.contains(column, f.lit(".0")) & written, digits).otherwise(outside)
    return _among(column, places, outside, f)


def _among(column: Any, places: dict[Any, int], outside: Any, f: Any) -> Any:
    """The place of what a column is equal to.

    It is looked for in a list, which is little code whatever is in it: an arm of CASE for every value is much.
    """
    if not places:
        return outside
    number = f.call_function("array_position", f.array(*map(f.lit, places)), column) - 1
    return f.coalesce(f.get(f.array(*(f.lit(p).cast("bigint") for p in places.values())), number), outside)
