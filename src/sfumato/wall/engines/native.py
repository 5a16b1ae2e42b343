"""Cells as expressions of Spark, for the kinds of columns where they are provably what DuckDB makes of the fields.

Only what is total is used: comparisons, CASE, and arithmetic on numbers that were brought into their range first;
nothing fails for a row. Spark has NaN above every number and equal to itself, so it is asked for before others are
compared.
Of all other columns (numbers as texts, decimals, days) the fields travel as they are, to be placed by DuckDB.

Short code is fast code: Spark puts all that is done to a row into one method, and long ones are never compiled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from sfumato.cells import Codes, Edges, Rule, Truths, Wholes, whole_text
from sfumato.wall.rows.encoding import Column, thresholds
from sfumato.wall.rows.session import Session

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
    outside, missing = extra.get(rule.outside or "", 0), extra[rule.missing or "drop"]
    absent = column.isNull() | f.isnan(column) if kind in ("DOUBLE", "FLOAT") else column.isNull()
    found = f.when(absent, _long(missing, f))
    if isinstance(rule, Edges) and kind in _INTEGERS | {"DOUBLE", "FLOAT"} and len(rule.edges) <= _MOST:
        steps = [outside, *range(rule.declared), rule.declared - 1 if rule.outside == "clamp" else outside]
        least = _floats(thresholds(rule)) if kind == "FLOAT" else thresholds(rule)
        for step, edge in zip(steps, least, strict=False):
            found = found.when(column.cast("double") < f.lit(edge).cast("double"), _long(step, f))
        return found.otherwise(_long(steps[-1], f))
    if isinstance(rule, Wholes) and kind in _INTEGERS | {"DOUBLE"}:
        number = "double" if kind == "DOUBLE" else "bigint"
        low, high = (f.lit(float(n) if kind == "DOUBLE" else n).cast(number) for n in (rule.low, rule.high))
        given = near = column.cast(number)
        inside = (given >= low) & (given <= high)
        if rule.outside == "clamp" or kind in ("BIGINT", "DOUBLE"):
            # in its range first: then nothing overflows, and of edition 1 what was no whole number is another one
            near = f.floor(f.least(f.greatest(given, low), high)).cast("bigint")
            inside = inside if rule.edition > 1 else near.cast(number) == given
        place = near if rule.low == 0 else near - _long(rule.low, f)
        place = place if rule.width == 1 else f.call_function("div", place, _long(rule.width, f))
        return found.otherwise(place if rule.outside == "clamp" else f.when(inside, place).otherwise(_long(outside, f)))
    return _looked_up(rule, kind, column, (outside, missing), f)


def _long(number: int | None, f: Any) -> Any:
    return f.lit(number).cast("bigint")


def _floats(edges: Sequence[float]) -> list[float]:
    """For every edge the least 32-bit float that is not below it.

    A float is read by the text that DuckDB gives it, which reads back as the same one: so floats keep their order, and
    it is one of those around the edge. DuckDB is asked which.
    """
    with np.errstate(over="ignore"):
        around = np.array([edges] * 5, dtype=np.float32)
    for row, to in ((1, -np.inf), (0, -np.inf), (3, np.inf), (4, np.inf)):
        around[row] = np.nextafter(around[row + 1 if row < 2 else row - 1], np.float32(to))
    asked = ", ".join(f"CAST('{x!r}' AS FLOAT)" for x in around.ravel().tolist())
    read = Session().rows(f"SELECT {Column('', 'FLOAT').number('x')} FROM (SELECT unnest([{asked}]) AS x)")
    above = np.array(read).reshape(around.shape) >= np.array(edges)
    return [float(x) for x in around[above.argmax(axis=0), range(len(edges))]]


def _looked_up(rule: Rule, kind: str, column: Any, extra: tuple[int, int], f: Any) -> Any:
    """The cell of what is told by equality alone."""
    texts = rule.codes if isinstance(rule, Codes) else ("false", "true") if kind == "BOOLEAN" else ("0", "1")
    if isinstance(rule, Codes) and (rule.edition > 1 or rule.cells):
        return None
    places = {code: i for i, code in enumerate(texts)}
    whole = {code: i for code, i in places.items() if _WHOLE.fullmatch(code) and code != "-0"}
    if not isinstance(rule, Codes | Truths) or len(texts) > _MOST:
        return None
    if kind == "BOOLEAN":
        return _among(column, {v: places[str(v).lower()] for v in (False, True) if str(v).lower() in places}, extra, f)
    if any(whole_text(code) != code for code in texts):
        return None  # the code "1.0" is 1 too: DuckDB knows
    if kind in _INTEGERS:
        numbers = {int(code): i for code, i in whole.items() if abs(int(code)) < 2**63}
        return _among(column.cast("bigint"), numbers, extra, f)
    if kind != "VARCHAR" or isinstance(rule, Truths) or any(len(code) >= _DIGITS for code in whole):
        return None
    places[""] = extra[1]
    if not whole:
        return _among(column, places, extra, f)
    # of whole numbers with zero decimals, the digits before the point
    whole |= {"-0": whole["0"]} if "0" in whole else {}
    written = f.contains(column, f.lit(".0")) & column.rlike(r"^-?(0|[1-9][0-9]*)[.]0+\z")
    more = _listed(f.when(written, f.substring_index(column, ".", 1)), whole, None, f)
    outside, missing = (_long(n, f) for n in extra)
    return f.coalesce(_listed(column, places, None, f), f.when(column.isNull(), missing), more, outside)


def _among(column: Any, places: dict[Any, int], extra: tuple[int, int], f: Any) -> Any:
    """The place of what a column is equal to; of all else the first of `extra`, of null the second."""
    outside, missing = (_long(n, f) for n in extra)
    if not places:
        return f.when(column.isNull(), missing).otherwise(outside)
    return f.coalesce(_listed(column, places, extra[0], f), missing)


def _listed(column: Any, places: dict[Any, int], other: int | None, f: Any) -> Any:
    """The place of what a column is equal to, `other` where it is equal to none, null of null.

    It is looked for in a list, which is little code whatever is in it: an arm of CASE for every value is much. Its
    number there is 0 of what is not in it.
    """
    number = f.call_function("array_position", f.array(*map(f.lit, places)), column)
    return f.get(f.array(*(_long(n, f) for n in (other, *places.values()))), number)
