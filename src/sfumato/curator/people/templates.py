"""SQL of features for DuckDB: one template for every node, over canonical columns, in whole numbers alone.

A canonical column holds whole numbers of its unit between declared ends (BIGINT), numbers of days (INTEGER), texts in
one form that are compared by their bytes, or true and false; NULL where nothing can be read. No template casts a text,
divides numbers, adds doubles or leaves it to the engine in which order it takes rows: a person's feature is a function
of the set of that person's rows, to the bit, and no row can end a statement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sfumato.curator.people.grammar import PEOPLE, Kind, Node, columns_of, common_unit, walk_nodes
from sfumato.curator.rows.encoding import sql_literal

Value = tuple[str, str | None]
"""SQL of a value; of numbers with a denominator of their own also of that, which is at least 1."""
Names = Mapping[Node, Value]
"""What is a column already: columns, rows before and after, and aggregates."""

_FIRST_DAY = "CAST('0001-01-01' AS DATE)"


def _widest(*kinds: Kind) -> str:
    """The type of whole numbers in which every one of these kinds fits."""
    return "HUGEINT" if any(k.wide for k in kinds) else "BIGINT"


def _product_sql(type: str, *factors: str | int | None) -> str:
    """A product of whole numbers in a type; factors of 1 and absent denominators are left out."""
    kept = [f for f in factors if f is not None and f != 1] or [1]
    return f"({' * '.join(f'CAST({f} AS {type})' for f in kept)})"


def value_sql(node: Node, names: Names) -> Value:
    """The SQL of a node by the names of what stands in columns already."""
    if node in names:
        return names[node]
    return _TEMPLATES[node.op](node, *(value_sql(arg, names) for arg in node.args))


def _literal_sql(node: Node) -> Value:
    if isinstance(node.value, bool):
        return str(node.value).lower(), None
    text = isinstance(node.value, str)
    return sql_literal(str(node.value)) if text else f"CAST({node.value} AS {_widest(node.kind)})", None


def _both_scaled(node: Node, one: Value, other: Value) -> tuple[str, str, str]:
    """The numerators of two numbers over one unit and one denominator, and their type."""
    a, b = (arg.kind for arg in node.args)
    _, ka, kb = common_unit(a, b)
    # a product may be wider than both and than what becomes of it
    plain = (ka, kb, one[1], other[1]) == (1, 1, None, None)
    type = _widest(a, b, node.kind) if plain else "HUGEINT"
    return _product_sql(type, one[0], ka, other[1]), _product_sql(type, other[0], kb, one[1]), type


def _denominator(type: str, one: str | None, other: str | None) -> str | None:
    return None if one is other is None else _product_sql(type, one, other)


def _added_sql(sign: str) -> Callable[..., Value]:
    def template(node: Node, one: Value, other: Value) -> Value:
        left, right, type = _both_scaled(node, one, other)
        return f"({left} {sign} {right})", _denominator(type, one[1], other[1])

    return template


def _multiplied_sql(node: Node, one: Value, other: Value) -> Value:
    type = _widest(node.kind, *(arg.kind for arg in node.args))
    return _product_sql(type, one[0], other[0]), _denominator(type, one[1], other[1])


def _divided_sql(node: Node, one: Value, other: Value) -> Value:
    type = _widest(node.kind, *(arg.kind for arg in node.args))
    by = f"CAST({other[0]} AS {type})"
    over = _product_sql(type, one[0], other[1], f"(CASE WHEN {by} < 0 THEN -1 ELSE 1 END)")
    under = _product_sql(type, f"abs({by})", one[1])
    return f"(CASE WHEN {by} <> 0 THEN {over} END)", f"(CASE WHEN {by} <> 0 THEN {under} END)"


def _floor_sql(node: Node, one: Value) -> Value:
    unit = node.args[0].kind.unit
    type = _widest(node.kind)
    if one[1] is None and unit.denominator == 1:
        return _product_sql(type, one[0], unit.numerator), None
    over, under = _product_sql("HUGEINT", one[0], unit.numerator), _product_sql("HUGEINT", unit.denominator, one[1])
    # // rounds towards zero
    found = f"CASE WHEN {over} >= 0 THEN {over} // {under} ELSE -(({under} - 1 - {over}) // {under}) END"
    return f"CAST(({found}) AS {type})", None


def _compared_sql(sign: str) -> Callable[..., Value]:
    def template(node: Node, one: Value, other: Value) -> Value:
        number = node.args[0].kind.name == "number"
        left, right = _both_scaled(node, one, other)[:2] if number else (one[0], other[0])
        return f"({left} {sign} {right})", None

    return template


def _either_sql(node: Node, condition: Value, one: Value, other: Value) -> Value:
    def choose(a: str, b: str) -> str:
        return f"(CASE WHEN {condition[0]} THEN {a} WHEN NOT {condition[0]} THEN {b} END)"

    if node.kind.name != "number":
        return choose(one[0], other[0]), None
    _, ka, kb = common_unit(node.args[1].kind, node.args[2].kind)
    type = _widest(node.kind)
    found = choose(_product_sql(type, one[0], ka), _product_sql(type, other[0], kb))
    under = (_product_sql(type, one[1]), _product_sql(type, other[1]))
    return found, None if one[1] is other[1] is None else choose(*under)


def _both_sql(word: str) -> Callable[..., Value]:
    def template(_: Node, one: Value, other: Value) -> Value:
        return f"({one[0]} {word} {other[0]})", None

    return template


def _part_of_day_sql(part: str) -> Callable[..., Value]:
    def template(_: Node, one: Value) -> Value:
        return f"CAST({part}({_FIRST_DAY} + CAST({one[0]} - 1 AS INTEGER)) AS BIGINT)", None

    return template


def _missing_sql(_: Node, one: Value) -> Value:
    return f"({one[0]} IS NULL)", None


def _negative_sql(_: Node, one: Value) -> Value:
    return f"(-{one[0]})", one[1]


def _denied_sql(_: Node, one: Value) -> Value:
    return f"(NOT {one[0]})", None


def _days_sql(_: Node, one: Value, other: Value) -> Value:
    return f"CAST({one[0]} - {other[0]} AS BIGINT)", None


_TEMPLATES: dict[str, Callable[..., Value]] = {
    "literal": _literal_sql,
    "missing": _missing_sql,
    "negate": _negative_sql,
    "add": _added_sql("+"),
    "subtract": _added_sql("-"),
    "multiply": _multiplied_sql,
    "divide": _divided_sql,
    "floor": _floor_sql,
    "equal": _compared_sql("="),
    "less": _compared_sql("<"),
    "and": _both_sql("AND"),
    "or": _both_sql("OR"),
    "not": _denied_sql,
    "if": _either_sql,
    "days": _days_sql,
    "year": _part_of_day_sql("year"),
    "month": _part_of_day_sql("month"),
}
"""Of columns, rows before and after, and aggregates the value has a name; see `aggregate_sql`."""


def _aggregate_columns(node: Node, value: Value, condition: str | None, rank: str | None) -> list[str]:
    """SQL of the columns that an aggregate becomes: of means and quotients two."""
    v = value[0]

    def only(*more: str) -> str:
        every = [*more, *([condition] if condition else [])]
        return f" FILTER (WHERE {' AND '.join(every)})" if every else ""

    where = only()
    if node.op in ("first", "last"):
        chosen, known = "arg_min" if node.op == "first" else "arg_max", only(f"{v} IS NOT NULL", f"{rank} IS NOT NULL")
        return [f"{chosen}({part}, {rank}){known}" for part in value if part is not None]
    if node.op == "mean":
        return [f"sum({v}){where}", f"count({v}){where}"]
    called = {
        "count": f"count({v or '*'})",
        "distinct": f"count(DISTINCT {v})",
        "sum": f"sum({v})",
        "min": f"min({v})",
        "max": f"max({v})",
        "any": f"bool_or({v})",
        "all": f"bool_and({v})",
        "median": f"list({v})",
    }[node.op]
    return [f"list_sort({called}{only(f'{v} IS NOT NULL')})" if node.op == "median" else called + where]


_OF_NOTHING = {"count": "0", "distinct": "0", "sum": "0", "any": "false", "all": "true"}
"""What an aggregate of no values is; others are missing."""


def _read_back(node: Node, columns: Sequence[str]) -> Value:
    """The value of an aggregate by the columns that it became; a person without a row has none of them."""
    first, type = columns[0], _widest(node.kind)
    if node.op in _OF_NOTHING:
        found = f"coalesce({first}, {_OF_NOTHING[node.op]})"
        return (found if node.kind.name == "truth" else f"CAST({found} AS {type})"), None
    if node.op == "mean":
        return f"CAST({first} AS {type})", f"NULLIF({columns[1]}, 0)"
    if node.op == "median":
        middle = [f"CAST(list_extract({first}, (len({first}) + {k}) // 2) AS {type})" for k in (1, 2)]
        return f"({' + '.join(middle)})", None
    return first, columns[1] if len(columns) > 1 else None


def aggregates_sql(
    source: str, persons: str, columns: Mapping[Node, str], day: str | None, nodes: Sequence[Node], prefix: str
) -> tuple[str, dict[Node, Value]]:
    """SQL with one row for each person of a table's rows, of all aggregates that go through these, and how each is
    read from it, also where a person has no row.

    `columns` has the names of the table's canonical columns in `source` and of the persons' in `persons`, where the
    person is called `person`; `day` is the name of the date that orders rows. Names that are made begin with `prefix`.
    """
    table = nodes[0].table
    query = f"SELECT * FROM {source}"
    if any(columns_of(node, PEOPLE) for node in nodes):
        query = f"SELECT * FROM ({query}) JOIN {persons} USING (person)"
    # Which of two rows of a day comes first is told by all columns of the expression. Rows that agree in these too are
    # alike for it, and one rank is given to each, by which all that is before or after is found. Of one row before or
    # after alone, in one column, the order itself does: two sorts may put rows that are alike in two orders.
    used = {node: tuple(columns[_column_node(n, table, columns)] for n in columns_of(node, table)) for node in nodes}
    moved = {node: [n for n in walk_nodes(node) if n.op in ("previous", "next")] for node in nodes}
    several = {node: len(steps) > 1 or any(n.kind.most > 1 for n in steps) for node, steps in moved.items()}
    ranked = [used[n] for n in nodes if several[n] or n.op in ("first", "last")]
    ranks = {names: f"rank{i}" for i, names in enumerate(dict.fromkeys(ranked))}
    dated, sort = f"{day} IS NOT NULL", f"PARTITION BY person, {day} IS NULL ORDER BY"
    orders = {n: f"{sort} {', '.join(f'{c} NULLS LAST' for c in dict.fromkeys([str(day), *n]))}" for n in used.values()}
    if ranks:
        places = [f"CASE WHEN {dated} THEN row_number() OVER ({orders[n]}) END AS {rank}" for n, rank in ranks.items()]
        query = f"SELECT *, {', '.join(places)} FROM ({query})"
        orders |= {names: f"{sort} {rank}" for names, rank in ranks.items()}
    plain: dict[Node, Value] = {node: (name, None) for node, name in columns.items()}
    known: dict[tuple[str, ...], dict[Node, Value]] = {names: dict(plain) for names in orders}
    steps = dict.fromkeys((used[node], step) for node in nodes for step in moved[node])  # those inside come first
    for i, (names, node) in enumerate(steps):
        found = value_sql(node.args[0], known[names])
        parts = {f"step{i}_{j}": part for j, part in enumerate(found) if part is not None}
        called = "lag" if node.op == "previous" else "lead"
        shifted = [f"CASE WHEN {dated} THEN {called}({p}) OVER ({orders[names]}) END AS {n}" for n, p in parts.items()]
        query = f"SELECT *, {', '.join(shifted)} FROM ({query})"
        first, *under = parts
        known[names][node] = (first, under[0] if under else None)
    made: list[str] = []
    read: dict[Node, Value] = {}
    for i, node in enumerate(nodes):
        values = [value_sql(arg, known[used[node]]) for arg in node.args]
        condition = values.pop()[0] if node.conditional else None
        found = _aggregate_columns(node, values[0] if values else ("", None), condition, ranks.get(used[node]))
        named = [f"{prefix}{i}_{j}" for j in range(len(found))]
        made += [f"{sql} AS {name}" for sql, name in zip(found, named, strict=True)]
        read[node] = _read_back(node, named)
    return f"SELECT person, {', '.join(made)} FROM ({query}) GROUP BY person", read


def _column_node(name: str, table: str, columns: Mapping[Node, str]) -> Node:
    return next(node for node in columns if node.value == (table, name))


def feature_type(node: Node) -> str:
    """The DuckDB type in which a feature is encoded."""
    kind = node.kind
    if kind.name != "number":
        return {"day": "DATE", "text": "VARCHAR", "truth": "BOOLEAN"}[kind.name]
    if kind.most > 1 or kind.unit.denominator > 1:
        return "DOUBLE"
    return "HUGEINT" if max(abs(kind.low), abs(kind.high)) * kind.unit.numerator >= 2**62 else "BIGINT"


def feature_sql(node: Node, names: Names) -> str:
    """The SQL of a person's feature as it is encoded: what is no whole number becomes its double at the very end."""
    (found, under), kind, type = value_sql(node, names), node.kind, feature_type(node)
    if type == "DATE":
        return f"({_FIRST_DAY} + CAST({found} - 1 AS INTEGER))"
    if kind.name != "number":
        return found
    if type != "DOUBLE":
        return _product_sql(type, found, kind.unit.numerator)
    high, most = max(abs(kind.low), abs(kind.high)) * kind.unit.numerator, kind.most * kind.unit.denominator
    width = _widest(Kind("number", 0, high, most=most))
    over, below = (_product_sql(width, *n) for n in ((found, kind.unit.numerator), (under, kind.unit.denominator)))
    return f"(CAST({over} AS DOUBLE) / CAST({below} AS DOUBLE))"
