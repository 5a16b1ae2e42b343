"""SQL statements drawn at random, and what DuckDB answers to them."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pandas as pd

import sfumato as sf

REGIONS = ["north", "south", "it's", "x y"]
DOMAIN = sf.Domain(
    {
        "region": sf.Categories(REGIONS, outside="other", missing="other"),
        "age": sf.Integers(0, 19, outside="other", missing="other"),
        "old": sf.Booleans(outside="other", missing="other"),
        "month": sf.Dates("2024-01-01", "2024-06-30", by="month", outside="other", missing="other"),
        "Pay Class": sf.Integers(1, 4, outside="other", missing="other"),
    },
    measures={"income": sf.Measure(0, 100), "hours": sf.Measure(0, 50)},
)
RECORDS = 1_500
HUGE = sf.gdp(10**8)  # noise of a hundred-millionth of a record


def people() -> pd.DataFrame:
    """A table of which every value that is no null was declared."""
    rng = np.random.default_rng(30)

    def holes(values: list[Any], share: float) -> pd.Series:
        return pd.Series(
            [None if gone else v for v, gone in zip(values, rng.random(RECORDS) < share, strict=True)], dtype=object
        )

    months = [dt.date(2024, int(m), 1) for m in rng.integers(1, 7, RECORDS)]
    return pd.DataFrame(
        {
            "region": holes(rng.choice(REGIONS, RECORDS).tolist(), 0.1),
            "age": holes(rng.integers(0, 20, RECORDS).tolist(), 0.05),
            "old": holes(rng.choice([True, False], RECORDS).tolist(), 0.1),
            "month": holes(months, 0.1),
            "Pay Class": holes(rng.integers(1, 5, RECORDS).tolist(), 0.1),
            "income": holes(rng.integers(0, 101, RECORDS).tolist(), 0.15),
            "hours": holes(rng.integers(0, 51, RECORDS).tolist(), 0.1),
        }
    )


def _written(r: random.Random, name: str) -> str:
    if not name.isidentifier():
        return f'"{name}"'
    return r.choice([name, name, name.upper(), f'"{name}"', f"p.{name}"])


def _comparison(r: random.Random) -> str:
    name = r.choice(
        ["region", "age", "old", "month", "Pay Class", "income"]
        if r.random() < 0.1
        else ["region", "age", "old", "month", "Pay Class"]
    )
    column = _written(r, name)
    if name == "region":
        text = "'" + r.choice(REGIONS).replace("'", "''") + "'"
        others = ", ".join("'" + v.replace("'", "''") + "'" for v in r.sample(REGIONS, 2))
        return r.choice(
            [
                f"{column} = {text}",
                f"{column} <> {text}",
                f"{column} IN ({others})",
                f"{column} NOT IN ({others})",
                f"{text} = {column}",
                f"{column} LIKE 'n%'",
            ]
        )
    if name == "old":
        return r.choice([column, f"NOT {column}", f"{column} = TRUE", f"{column} IS NOT NULL"])
    if name == "month":
        day = f"'2024-0{r.randint(2, 6)}-01'"
        return r.choice(
            [
                f"{column} >= DATE {day}",
                f"{column} < {day}",
                f"{column} BETWEEN '2024-01-01' AND '2024-03-31'",
                f"{column} IS NULL",
            ]
        )
    low, high = (0, 19) if name == "age" else (1, 4)
    at = r.randint(low, high)
    return r.choice(
        [
            f"{column} {r.choice(['=', '<', '<=', '>', '>=', '<>', '!='])} {at}",
            f"{column} BETWEEN {min(at, 3)} AND {max(at, 3)}",
            f"{column} NOT BETWEEN {min(at, 2)} AND {max(at, 3)}",
            f"{at} < {column}",
            f"{column} IN ({at}, {low})",
            f"{column} IS NULL",
            f"{column} + 1 > {at}",
        ][: 7 if r.random() < 0.1 else 6]
    )


def _condition(r: random.Random, depth: int = 2) -> str:
    if depth == 0 or r.random() < 0.4:
        return _comparison(r)
    left, right = _condition(r, depth - 1), _condition(r, depth - 1)
    return r.choice([f"({left}) AND ({right})", f"({left}) OR ({right})", f"NOT ({left})", f"{left} AND {right}"])


def _statistic(r: random.Random) -> str:
    measure, number = _written(r, r.choice(["income", "hours"])), _written(r, r.choice(["age", "Pay Class"]))
    every = [
        "COUNT(*)", "COUNT(*)", f"COUNT({number})", f"COUNT({measure})", f"SUM({measure})", f"AVG({measure})",
        f"AVG({number})", f"SUM({number})", f"VAR_POP({measure})", f"STDDEV_POP({measure})", f"MEDIAN({number})",
        f"QUANTILE_CONT({number}, 0.25)",
        f"PERCENTILE_CONT(0.75) WITHIN GROUP (ORDER BY {number})", f"COUNT(*) FILTER (WHERE {_comparison(r)})",
        f"SUM(CASE WHEN {_comparison(r)} THEN 1 ELSE 0 END)",
    ]  # fmt: skip
    strange = [
        f"MAX({number})",
        f"COUNT(DISTINCT {number})",
        f"SUM({measure} * 2)",
        "*",
        f"CORR({measure}, {number})",
        f"ROUND(AVG({measure}))",
        f"MIN({measure})",
        f"AVG(DISTINCT {number})",
        "region",
        "COUNT(*) OVER ()",
    ]
    return r.choice(strange if r.random() < 0.08 else every)


def drawn_statement(seed: int) -> str:
    """A statement; one in four or so asks for what is refused."""
    r = random.Random(seed)
    groups = r.sample(["region", "age", "old", "month", "Pay Class"], r.choice([0, 0, 1, 1, 1, 2]))
    items = [_written(r, g) for g in groups] + [
        _statistic(r) + (f" AS s{i}" if r.random() < 0.6 else "") for i in range(r.randint(1, 3))
    ]
    text = f"SELECT {', '.join(items)} FROM people AS p"
    if r.random() < 0.5:
        text += f" WHERE {_condition(r)}"
    if groups:
        text += " GROUP BY " + r.choice(
            [", ".join(_written(r, g) for g in groups), ", ".join(str(i + 1) for i in range(len(groups))), "ALL"]
        )
    if r.random() < 0.05:
        text += " HAVING COUNT(*) > 10"
    if r.random() < 0.2:
        text += f" ORDER BY {r.randint(1, len(items))}{r.choice(['', ' DESC'])}"
    if r.random() < 0.1:
        text += f" LIMIT {r.randint(1, 5)}"
    return text + r.choice(["", ";", " UNION ALL SELECT 1"][: 3 if r.random() < 0.02 else 2])


@dataclass
class Outcome:
    """What became of a statement: refused, with why, or answered; what is wrong with the answer."""

    refused: str | None
    wrong: str | None = None


def _label(value: Any) -> str:
    if value is None or value is pd.NaT or (isinstance(value, float) and np.isnan(value)):
        return "(other)"
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value)).lower()
    if isinstance(value, (dt.date, pd.Timestamp)):
        return value.strftime("%Y-%m")
    return str(int(value)) if isinstance(value, (int, float, np.integer)) else str(value)


def outcome(statement: str, table: pd.DataFrame) -> Outcome:
    """A statement read, planned at a huge budget, released and answered, beside DuckDB."""
    try:
        asked = sf.sql(statement, DOMAIN)
    except sf.errors.WorkloadError as error:
        return Outcome(str(error))
    plan = sf.plan(asked.workload, HUGE, neighbours="add-remove")
    found = asked.answer(sf.release(plan, table, ledger=None))
    connection = duckdb.connect()
    connection.register(
        "people",
        table.astype({"age": "Int64", "Pay Class": "Int64", "income": "Int64", "hours": "Int64"}).assign(
            month=pd.to_datetime(table["month"]).dt.date, old=table["old"].astype("boolean")
        ),
    )
    truth, other = (connection.execute(bare(statement, discrete=d)).fetchall() for d in (True, False))
    kinds = [i.kind for i in asked.items]
    places = [k for k, kind in enumerate(kinds) if kind == "group"]
    expected = {tuple(_label(row[k]) for k in places): row for row in truth}
    between = {tuple(_label(row[k]) for k in places): row for row in other}
    columns = [found[i.name] for i in asked.items]
    rows = list(zip(*columns, strict=True))
    if asked.limit is None and not set(expected) <= {tuple(row[k] for k in places) for row in rows}:
        return Outcome(None, "a group is missing")
    if asked.limit is not None and len(rows) > asked.limit:
        return Outcome(None, "too many rows")
    for row in rows:
        own = expected.get(tuple(row[k] for k in places))
        for k, (kind, value) in enumerate(zip(kinds, row, strict=True)):
            if kind == "group":
                continue
            right = None if own is None else own[k]
            if right is None or (isinstance(right, float) and np.isnan(right)):
                right = 0.0 if kind in ("count", "sum") else None
            if kind == "quantile" and own is not None and right is not None:
                # where a share is reached exactly, the next value is as good
                apart = between[tuple(row[k] for k in places)][k]
                if value is None or not (value == right or (apart != right and value >= apart)):
                    return Outcome(None, f"{asked.items[k].name} of {row}: {right}")
                continue
            near = {"mean": 1e-3, "variance": 0.1, "std": 0.1}.get(kind, 1e-2)
            if right is None:
                continue  # of no records, of which noise may tell nothing
            if value is None and right == 0.0 and kind in ("variance", "std"):
                continue  # of one record
            if value is None or abs(float(value) - float(right)) > near:
                return Outcome(None, f"{asked.items[k].name} of {row}: {right}")
    for name, largest in asked.order[:1]:
        shown = [v for v in found[name] if isinstance(v, (int, float))]
        if shown != sorted(shown, reverse=largest):
            return Outcome(None, "not in order")
    return Outcome(None)


def bare(statement: str, *, discrete: bool) -> str:
    """The statement without ORDER BY and LIMIT, which ties leave open; with quantiles that are values, or between."""
    import sqlglot
    from sqlglot import exp

    tree = sqlglot.parse_one(statement, read="duckdb")
    tree.set("limit", None)
    tree.set("order", None)
    for node in list(tree.find_all(exp.Median, exp.PercentileCont)) if discrete else []:
        if isinstance(node, exp.Median):
            node.replace(exp.func("quantile_disc", node.this, exp.Literal.number(0.5)))
        elif isinstance(node.parent, exp.WithinGroup):
            column = node.parent.expression.expressions[0].this
            node.parent.replace(exp.func("quantile_disc", column, node.this))
        else:
            node.replace(exp.func("quantile_disc", node.this, node.expression))
    return tree.sql(dialect="duckdb")
