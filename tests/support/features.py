"""Features of persons by plain Python, whole numbers and fractions: what the SQL of the library has to say; and tables
of persons with values that are hard to read."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import date
from fractions import Fraction
from typing import Any

from sfumato.curator.people.grammar import PEOPLE, Node, columns_of, walk_nodes

Row = Mapping[str, Any]
"""The canonical values of a row: a Fraction, the number of a day, a text, True or False, or None."""


def feature_of(node: Node, person: Row | None, rows: Mapping[str, Sequence[Row]]) -> Any:
    """The value of a feature for one person."""
    if node.table:
        return _aggregate(node, person, rows.get(node.table, ()))
    if node.op == "column":
        return (person or {}).get(node.value[1])  # type: ignore[index]
    return _scalar(node, [feature_of(a, person, rows) for a in node.args])


def _key(value: Any) -> tuple[Any, ...]:
    """Texts by their bytes, what is missing last."""
    if value is None:
        return (1,)
    return (0, value.encode() if isinstance(value, str) else value)


def _aggregate(node: Node, person: Row | None, rows: Sequence[Row]) -> Any:
    order = next((c for c in rows[0] if c.startswith("day")), "") if rows else ""
    used = columns_of(node, node.table)
    dated = sorted((r for r in rows if r.get(order) is not None), key=lambda r: [_key(r[c]) for c in (order, *used)])
    every = [*dated, *(r for r in rows if r.get(order) is None)]

    def value(n: Node, at: int) -> Any:
        if n.op in ("previous", "next"):
            to = at + (1 if n.op == "next" else -1)
            return value(n.args[0], to) if at < len(dated) and 0 <= to < len(dated) else None
        if n.op == "column":
            table, name = n.value  # type: ignore[misc]
            return (person or {}).get(name) if table == PEOPLE else every[at].get(name)
        return _scalar(n, [value(a, at) for a in n.args])

    places = range(len(every))
    args = list(node.args)
    if node.conditional:
        condition = args.pop()
        places = [i for i in places if value(condition, i) is True]
    if not args:
        return Fraction(len(places))
    if node.op in ("first", "last"):
        found = [v for i in places if i < len(dated) and (v := value(args[0], i)) is not None]
        return (found[0] if node.op == "first" else found[-1]) if found else None
    found = [v for i in places if (v := value(args[0], i)) is not None]
    return {
        "count": lambda: Fraction(len(found)),
        "distinct": lambda: Fraction(len(set(found))),
        "sum": lambda: sum(found, Fraction(0)),
        "mean": lambda: sum(found, Fraction(0)) / len(found) if found else None,
        "min": lambda: min(found, default=None),
        "max": lambda: max(found, default=None),
        "any": lambda: any(found),
        "all": lambda: all(found),
        "median": lambda: _median(sorted(found)),
    }[node.op]()


def _median(found: Sequence[Any]) -> Any:
    return (found[(len(found) - 1) // 2] + found[len(found) // 2]) / 2 if found else None


def _scalar(node: Node, args: list[Any]) -> Any:
    if node.op == "literal":
        return node.value * node.kind.unit if node.kind.name == "number" else node.value  # type: ignore[operator]
    if node.op == "missing":
        return args[0] is None
    if node.op in ("and", "or"):
        decides = node.op == "or"
        return decides if decides in args else None if None in args else not decides
    if node.op == "if":
        return None if args[0] is None else args[1] if args[0] else args[2]
    if None in args:
        return None
    a: Any = args[0]
    b: Any = args[-1]
    return {
        "negate": lambda: -a,
        "add": lambda: a + b,
        "subtract": lambda: a - b,
        "multiply": lambda: a * b,
        "divide": lambda: a / b if b else None,
        "floor": lambda: Fraction(a.numerator // a.denominator),
        "equal": lambda: a == b,
        "less": lambda: a < b,
        "not": lambda: not a,
        "days": lambda: Fraction(a - b),
        "year": lambda: Fraction(date.fromordinal(a).year),
        "month": lambda: Fraction(date.fromordinal(a).month),
    }[node.op]()


def encoded_value(node: Node, value: Any) -> Any:
    """A value as it is encoded: whole numbers where they are sure to be whole, else doubles; days."""
    if value is None or node.kind.name in ("text", "truth"):
        return value
    if node.kind.name == "day":
        return date.fromordinal(value)
    whole = node.kind.most == 1 and node.kind.unit.denominator == 1
    return int(value) if whole else float(value)


# -- tables ----------------------------------------------------------------------------------------------------------

NUMBERS: dict[Any, Fraction | None] = {
    "5": Fraction(5),
    "5.7": Fraction(57, 10),
    " -3.25 ": Fraction(-325, 100),
    "1e2": Fraction(100),
    "0.004": Fraction(0),
    "0.005": Fraction(1, 100),
    "1e308": Fraction(1000),
    "-inf": Fraction(-1000),
    "1000.01": Fraction(1000),
    "1_000": None,
    "1,5": None,
    "abc": None,
    "": None,
    "nan": None,
    "NULL": None,
    None: None,
    "٣": None,
}
"""Texts of numbers, and what is read of them where -1000 to 1000 is declared, in hundredths."""
DAYS: dict[Any, int | None] = {
    "2026-01-01": date(2026, 1, 1).toordinal(),
    "2026-01-02": date(2026, 1, 2).toordinal(),
    "2026-01-31 23:59:59": date(2026, 1, 31).toordinal(),
    "2026-02-28": date(2026, 2, 28).toordinal(),
    "2026-02-01T01:00:00+02:00": date(2026, 1, 31).toordinal(),
    "9999-12-31": date(9999, 12, 31).toordinal(),
    "0001-01-01": 1,
    "2026-02-30": None,
    "2026-13-01": None,
    "01/02/2026": None,
    "today": None,
    "": None,
    None: None,
}
TEXTS: dict[Any, str | None] = {
    "ER": "ER",
    "er": "er",
    "A": "A",
    "1": "1",
    "1.0": "1",
    "01": "01",
    "e\u0301": "é",
    "é": "é",
    "'; DROP TABLE persons; --": "'; DROP TABLE persons; --",
    "": None,
    None: None,
}
TRUTHS: dict[Any, bool | None] = {
    "true": True,
    " T ": True,
    "1": True,
    "no": False,
    "0": False,
    "maybe": None,
    None: None,
}
KEYS: dict[Any, str] = {f"{k}{end}": str(k) for k in range(40) for end in ("", ".0")}
HOLDS = {"cost": NUMBERS, "nights": NUMBERS, "day": DAYS, "ward": TEXTS, "urgent": TRUTHS}

EXPRESSIONS = (
    "count(visits)",
    "count(visits.cost)",
    "count(visits where visits.ward = 'ER')",
    "count(visits where visits.cost > 5 and not visits.urgent)",
    "count(visits where missing(visits.ward) or visits.ward in ('A', '1.0'))",
    "count(distinct visits.ward)",
    "count(distinct visits.cost where visits.urgent)",
    "count(distinct visits.day)",
    "count(distinct floor(visits.cost / visits.nights))",
    "sum(visits.cost)",
    "sum(visits.cost * visits.nights)",
    "sum(visits.cost - 2 * visits.nights + 0.125 where visits.ward != 'ER')",
    "sum(if(visits.urgent, visits.cost, -1))",
    "mean(visits.cost)",
    "mean(visits.cost where visits.day >= date '2026-01-02')",
    "mean(visits.cost) - mean(visits.nights)",
    "mean(visits.cost) / mean(visits.nights)",
    "min(visits.cost)",
    "max(visits.cost) - min(visits.cost)",
    "max(visits.day)",
    "min(visits.day where visits.urgent)",
    "any(visits.ward = 'ER')",
    "any(visits.cost / visits.nights > 1.5)",
    "all(visits.cost < 100)",
    "all(visits.urgent)",
    "any(days(visits.day, previous(visits.day)) <= 30)",
    "count(visits where days(next(visits.day), visits.day) < 2)",
    "sum(visits.cost - previous(visits.cost))",
    "count(visits where next(visits.cost) > visits.cost)",
    "count(visits where previous(previous(visits.ward)) = visits.ward)",
    "max(floor(previous(visits.cost / visits.nights)))",
    "median(visits.cost)",
    "median(visits.cost + visits.nights where visits.urgent)",
    "first(visits.ward)",
    "last(visits.cost)",
    "last(previous(visits.cost) where visits.ward = 'ER')",
    "first(visits.cost / visits.nights)",
    "floor(sum(visits.cost) / count(visits))",
    "floor(-sum(visits.cost) / 7)",
    "days(max(visits.day), people.born) / 365.25",
    "year(max(visits.day)) - year(people.born)",
    "month(min(visits.day)) = month(people.born)",
    "count(visits where days(visits.day, people.born) > 3650)",
    "if(people.known, count(visits), 0)",
    "people.area = 'A' and sum(drugs.dose) > 3",
    "count(drugs) + count(visits)",
    "mean(drugs.dose)",
    "sum(visits.cost) * 3 / (count(drugs) - 2)",
    "not (count(visits) > 2 or missing(last(visits.ward)))",
)


def drawn_rows(random: random.Random, count: int, columns: Mapping[str, Mapping[Any, Any]]) -> list[dict[str, Any]]:
    """Rows of values that are hard to read, and a key of forty persons, written in two ways."""
    keys = [*KEYS, None]
    return [
        {"key": random.choice(keys)} | {c: random.choice([*held]) for c, held in columns.items()} for _ in range(count)
    ]


def drawn_tables(seed: int, size: int = 300) -> dict[str, list[dict[str, Any]]]:
    """Persons, visits and drugs, with keys that are in one of them alone, and several rows of one person."""
    drawn = random.Random(seed)
    return {
        "people": drawn_rows(drawn, 60, {"born": DAYS, "known": TRUTHS, "area": TEXTS}),
        "visits": drawn_rows(drawn, size, HOLDS),
        "drugs": drawn_rows(drawn, size // 4, {"dose": NUMBERS}),
    }


CANONICAL: dict[str, Mapping[Any, Any]] = {**HOLDS, "born": DAYS, "known": TRUTHS, "area": TEXTS, "dose": NUMBERS}


def canonical_rows(given: Sequence[Row]) -> dict[str, list[dict[str, Any]]]:
    """The rows of every person, read."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in given:
        if row["key"] is not None:
            read = {c: CANONICAL[c][v] for c, v in row.items() if c != "key"}
            found.setdefault(KEYS[row["key"]], []).append(read)
    return found


def nodes_inside(node: Node) -> set[str]:
    """The operations of an expression."""
    return {n.op for n in walk_nodes(node)}
