"""The language in which features of persons are said: parsed into a closed set of nodes, each with its type.

Nothing here is looked up in a database and nothing is a float. A number is `numerator * unit / denominator` in whole
numbers, whose bounds follow from what was declared; an expression whose whole numbers could leave `MOST` is refused
when it is read, so that no row can make one overflow. What is missing stays missing: every node but `missing`, `and`,
`or`, `if` and the aggregates is missing where one of its arguments is, and aggregates leave missing values out.

    any(days(visits.date, previous(visits.date)) <= 30)
    sum(visits.cost where visits.department = 'ER') / count(visits)
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction

from sfumato._util.text import normalize_nfc
from sfumato.cells import whole_text
from sfumato.errors import InvalidInput

MOST = 10**36
"""No whole number of an expression is larger: it fits 128 bits, and the 38 digits that other engines have."""
MOST_ROWS = 2**36  # of a table: readers.MAX_ROWS
PEOPLE = "people"
"""What the table of persons is called in expressions."""
# characters; depth as written, and of the tree; operations once what SQL repeats is written out: readers recurse
_LONGEST, _NESTED, _DEEPEST, _HEAVIEST = 10_000, 40, 120, 20_000

OPERATIONS = {
    *("literal", "column", "missing", "negate", "add", "subtract", "multiply", "divide", "floor", "equal", "less"),
    *("and", "or", "not", "if", "days", "year", "month", "previous", "next"),
}
AGGREGATES = {
    *("count", "distinct", "sum", "mean", "min", "max", "any", "all", "median", "first", "last"),
}
_FUNCTIONS = {
    "missing": 1,
    "floor": 1,
    "if": 3,
    "days": 2,
    "year": 1,
    "month": 1,
    "previous": 1,
    "next": 1,
}  # and how many arguments each has
_COPIES = {"floor": 4, "divide": 4, "less": 2, "equal": 2, "add": 2, "subtract": 2, "if": 3}
"""How often what an operation is given may be written in its SQL; others write it once."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of a value; of numbers also the bounds of its numerator, its unit, and its largest denominator."""

    name: str
    low: int = 0
    high: int = 0
    unit: Fraction = Fraction(1)
    most: int = 1

    @property
    def wide(self) -> bool:
        """Whether its whole numbers need more than 64 bits."""
        return max(abs(self.low), abs(self.high), self.most) >= 2**62


TEXT, TRUTH, DAY = Kind("text"), Kind("truth"), Kind("day", 1, date.max.toordinal())
_SAID = {"text": "a text", "truth": "true or false", "day": "a date", "number": "a number"}


def number_kind(low: int, high: int, unit: Fraction = Fraction(1), most: int = 1) -> Kind:
    """The type of numbers with a numerator from low to high. Raises InvalidInput where that needs too many digits."""
    if max(abs(low), abs(high), most, unit.numerator, unit.denominator) > MOST:
        raise InvalidInput(
            f"its whole numbers could have more than {len(str(MOST)) - 1} digits: declare narrower ranges or a coarser "
            "unit, or divide less"
        )
    return Kind("number", low, high, unit, most)


def common_unit(one: Kind, other: Kind) -> tuple[Fraction, int, int]:
    """The largest unit of which both units are multiples, and which."""
    a, b = one.unit, other.unit
    unit = Fraction(math.gcd(a.numerator * b.denominator, b.numerator * a.denominator), a.denominator * b.denominator)
    return unit, int(a / unit), int(b / unit)


@dataclass(frozen=True, slots=True)
class Node:
    """An operation on other nodes. `value` is that of a literal, or (table, column) of a column.

    An aggregate has its value, if it counts no whole rows, and then its condition, where it has one (`conditional`);
    `table` is the one whose rows it goes through. `weight` bounds how long its SQL is, `depth` how deep it is nested.
    """

    op: str
    args: tuple[Node, ...]
    kind: Kind
    value: int | str | bool | tuple[str, str] | None = None
    table: str = ""
    conditional: bool = False
    weight: int = field(default=1, compare=False)
    depth: int = field(default=1, compare=False)


def walk_nodes(node: Node) -> list[Node]:
    """A node and all below it, every one once, those below first."""
    found: dict[Node, None] = {}
    for arg in node.args:
        found |= dict.fromkeys(walk_nodes(arg))
    return [*found, node] if node not in found else [*found]


def columns_of(node: Node, table: str) -> list[str]:
    """The columns of a table that an expression names, in order of their names."""
    values = [n.value for n in walk_nodes(node) if n.op == "column"]
    return sorted({v[1] for v in values if isinstance(v, tuple) and v[0] == table})


@dataclass(frozen=True, slots=True)
class Scope:
    """What expressions may name: of every table the types of its declared columns, and the date that orders its rows.

    `people` is there where there is a table of persons. A column without a declared type is a text.
    """

    declared: Mapping[str, Mapping[str, Kind]]
    order: Mapping[str, str | None]


_TOKEN = re.compile(
    r"""\s*(?:(?P<number>[0-9]+(?:\.[0-9]+)?)|(?P<text>'(?:[^']|'')*')|(?P<quoted>"(?:[^"]|"")+")"""
    r"""|(?P<name>[^\W\d]\w*)|(?P<mark><=|>=|!=|<>|==|[=<>+\-*/().,]))"""
)
_EQUAL = ("=", "==")  # as SQL has it, and as the conditions of queries do
_COMPARED = (*_EQUAL, "!=", "<>", "<", "<=", ">", ">=")
_WORDS = {"and", "or", "not", "in", "where", "distinct", "true", "false", "date"}


def parse_feature(text: str, scope: Scope) -> Node:
    """The expression that a text says. Raises InvalidInput with the place, and what is allowed there."""
    if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST:
        raise InvalidInput(f"an expression is a text of 1 to {_LONGEST:,} characters, such as count(visits)")
    return _Reader(text, scope).whole()


@dataclass(frozen=True, slots=True)
class _Token:
    sort: str
    text: str
    at: int


class _Reader:
    """Reads one expression from left to right; each method takes what it is named for."""

    def __init__(self, text: str, scope: Scope) -> None:
        self.text, self.scope = text, scope
        self.tokens = self._split()
        self.next = 0
        self.table: str | None = None  # whose rows the aggregate around goes through; "" until one is named
        self.depth = 0

    def _split(self) -> list[_Token]:
        found: list[_Token] = []
        at = 0
        while self.text[at:].strip():
            match = _TOKEN.match(self.text, at)
            if match is None:
                at += len(self.text[at:]) - len(self.text[at:].lstrip())
                odd = self.text[at]
                hint = "a text in quotes does not end" if odd in "'\"" else "it is no part of an expression"
                raise InvalidInput(f"character {at + 1} ({odd!r}): {hint}")
            sort = str(match.lastgroup)
            found.append(_Token(sort, match[sort], match.start(sort)))
            at = match.end()
        return [*found, _Token("end", "", len(self.text))]

    def refuse(self, message: str, token: _Token | None = None) -> InvalidInput:
        token = token or self.tokens[self.next]
        shown = "its end" if token.sort == "end" else f"{token.text[:40]!r}"
        return InvalidInput(f"character {token.at + 1} ({shown}): {message}")

    def peek(self) -> _Token:
        return self.tokens[self.next]

    def take(self, *texts: str) -> _Token | None:
        """The next token if it is one of these words or marks."""
        token = self.peek()
        if token.sort in ("name", "mark") and token.text in texts:
            self.next += 1
            return token
        return None

    def need(self, text: str, why: str) -> None:
        if self.take(text) is None:
            raise self.refuse(f"{text!r} belongs here, {why}")

    def make(self, token: _Token, op: str, *args: Node) -> Node:
        """A node, with its type. Refuses what its arguments may not be."""
        weight = 1 + _COPIES.get(op, 1) * sum(a.weight for a in args)
        depth = 1 + max((a.depth for a in args), default=0)
        if weight > _HEAVIEST or depth > _DEEPEST:
            raise self.refuse("too long once it is written out; say it with fewer operations", token)
        try:
            kind = _TYPES[op](*args)
        except InvalidInput as error:
            raise self.refuse(str(error), token) from error
        return Node(op, args, kind, weight=weight, depth=depth)

    def whole(self) -> Node:
        found = self.either()
        if self.peek().sort != "end":
            raise self.refuse("the expression was complete before this")
        if found.kind.name == "number":
            try:  # as it leaves, in ones
                number_kind(found.kind.low * found.kind.unit.numerator, found.kind.high * found.kind.unit.numerator)
                number_kind(0, found.kind.most * found.kind.unit.denominator)
            except InvalidInput as error:
                raise self.refuse(str(error), self.tokens[0]) from error
        return found

    def either(self) -> Node:
        self.depth += 1
        if self.depth > _NESTED:
            raise self.refuse(f"an expression is nested {_NESTED} deep at most")
        found = self.both()
        while token := self.take("or"):
            found = self.make(token, "or", found, self.both())
        self.depth -= 1
        return found

    def both(self) -> Node:
        found = self.denied()
        while token := self.take("and"):
            found = self.make(token, "and", found, self.denied())
        return found

    def denied(self) -> Node:
        denials: list[_Token] = []
        while token := self.take("not"):
            denials.append(token)
        found = self.compared()
        for token in reversed(denials):
            found = self.make(token, "not", found)
        return found

    def compared(self) -> Node:
        one = self.summed()
        if token := self.take("in"):
            return self.listed(one, token)
        token = self.take(*_COMPARED)
        if token is None:
            return one
        other = self.summed()
        if token.text in (*_EQUAL, "!=", "<>"):
            found = self.make(token, "equal", one, other)
            return found if token.text in _EQUAL else self.make(token, "not", found)
        swapped = token.text in (">", "<=")
        found = self.make(token, "less", *((other, one) if swapped else (one, other)))
        return found if token.text in ("<", ">") else self.make(token, "not", found)

    def listed(self, one: Node, token: _Token) -> Node:
        self.need("(", "before the values: visits.ward in ('A', 'B')")
        found = [self.make(token, "equal", one, self.summed())]
        while comma := self.take(","):
            found.append(self.make(comma, "equal", one, self.summed()))
        self.need(")", "after the values")
        while len(found) > 1:  # in pairs, so that a long list is not a deep tree
            found = [self.make(token, "or", *found[i : i + 2]) if i + 1 < len(found) else found[i]
                     for i in range(0, len(found), 2)]  # fmt: skip
        return found[0]

    def summed(self) -> Node:
        found = self.multiplied()
        while token := self.take("+", "-"):
            found = self.make(token, "add" if token.text == "+" else "subtract", found, self.multiplied())
        return found

    def multiplied(self) -> Node:
        found = self.signed()
        while token := self.take("*", "/"):
            other = self.signed()
            if token.text == "/" and other.op == "literal" and other.kind.name == "number" and other.kind.low:
                kind = other.kind  # by a number that is written there: multiplied by its inverse
                inverse = 1 / (kind.low * kind.unit)
                other = _literal_number(inverse)
                found = self.make(token, "multiply", found, other)
            else:
                found = self.make(token, "multiply" if token.text == "*" else "divide", found, other)
        return found

    def signed(self) -> Node:
        signs: list[_Token] = []
        while token := self.take("-"):
            signs.append(token)
        found = self.atom()
        for token in reversed(signs):
            if found.op == "literal" and found.kind.name == "number":
                found = _literal_number(-found.kind.low * found.kind.unit)
            else:
                found = self.make(token, "negate", found)
        return found

    def atom(self) -> Node:
        token = self.peek()
        self.next += 1
        if token.sort == "number":
            try:
                return _literal_number(Fraction(Decimal(token.text)))
            except InvalidInput as error:
                raise self.refuse(str(error), token) from error
        if token.sort == "text":
            given = token.text[1:-1].replace("''", "'")
            return Node("literal", (), TEXT, whole_text(normalize_nfc(given)))
        if token.sort == "mark" and token.text == "(":
            found = self.either()
            self.need(")", "to close what was opened")
            return found
        if token.sort == "name" and token.text in ("true", "false"):
            return Node("literal", (), TRUTH, token.text == "true")
        if token.sort == "name" and token.text == "date" and self.peek().sort == "text":
            return self.day()
        if token.sort == "name" and self.peek().text == "(" and self.peek().sort == "mark":
            return self.called(token)
        if token.sort in ("name", "quoted") and token.text not in _WORDS - {"date"}:
            return self.column(token)
        raise self.refuse("a value belongs here: 5, 'text', date '2026-01-31', table.column or a function", token)

    def day(self) -> Node:
        token = self.peek()
        self.next += 1
        try:
            return Node("literal", (), DAY, date.fromisoformat(token.text[1:-1]).toordinal())
        except ValueError:
            raise self.refuse("a day is written date '2026-01-31'", token) from None

    def called(self, token: _Token) -> Node:
        name = token.text
        if name in AGGREGATES - {"distinct"}:
            return self.aggregate(token)
        if name not in _FUNCTIONS:
            known = sorted((AGGREGATES - {"distinct"}) | set(_FUNCTIONS))
            raise self.refuse(f"no function is called {name!r}; {_name_list(known)}", token)
        if name in ("previous", "next") and self.table is None:
            raise self.refuse(f"{name} stands inside an aggregate, as in any({name}(visits.cost) > 5)", token)
        self.need("(", f"after {name}")
        args = [self.either()]
        while len(args) < _FUNCTIONS[name] and self.take(","):
            args.append(self.either())
        if len(args) < _FUNCTIONS[name]:
            raise self.refuse(f"{name} takes {_FUNCTIONS[name]} values, with commas between")
        self.need(")", f"after the {'value' if _FUNCTIONS[name] == 1 else 'values'} of {name}")
        if name in ("previous", "next"):
            if not self.table or not columns_of(args[0], self.table):
                raise self.refuse(f"{name} is of a column of rows, such as {name}(visits.date)", token)
            self.ordered(self.table, token)
        return self.make(token, name, *args)

    def ordered(self, table: str, token: _Token) -> None:
        if self.scope.order[table] is None:
            raise self.refuse(
                f"{token.text} goes by the day of a row, and none is declared: sf.rows(..., dates=['date']), with "
                "order= where there are several",
                token,
            )

    def aggregate(self, token: _Token) -> Node:
        name = token.text
        if self.table is not None:
            raise self.refuse(f"{name} stands inside another aggregate; one goes through rows at a time", token)
        self.table = ""
        self.need("(", f"after {name}")
        distinct = self.take("distinct")
        if distinct and name != "count":
            raise self.refuse("distinct belongs to count", distinct)
        args: list[Node] = []
        one, after = self.peek(), self.tokens[min(self.next + 1, len(self.tokens) - 1)].text
        if name == "count" and not distinct and one.sort in ("name", "quoted") and after in (")", "where", ""):
            self.next += 1
            self.named_table(_name_of(one), one)
        else:
            args.append(self.either())
        conditional = self.take("where") is not None
        if conditional:
            condition = self.either()
            if condition.kind.name != "truth":
                raise self.refuse(f"what follows where is true or false, not {_SAID[condition.kind.name]}")
            args.append(condition)
        self.need(")", f"after what {name} goes through; a condition is said by where")
        if not self.table:
            raise self.refuse(f"{name} goes through the rows of a table, and none is named inside", token)
        table, self.table = self.table, None
        if name in ("first", "last"):
            self.ordered(table, token)
        op = "distinct" if distinct else name
        whole = op == "count" and len(args) == int(conditional)
        made = self.make(token, op, *args[: 0 if whole else 1])
        weight, depth = made.weight + sum(a.weight for a in args), 1 + max((a.depth for a in args), default=0)
        return Node(op, tuple(args), made.kind, None, table, conditional, weight, depth)

    def named_table(self, name: str, token: _Token) -> None:
        """Say that the aggregate goes through this table."""
        tables = [t for t in self.scope.declared if t != PEOPLE]
        if name not in tables:
            raise self.refuse(f"no table of rows is called {name!r}; {_name_list(tables)}", token)
        if self.table not in ("", name):
            raise self.refuse(f"an aggregate goes through the rows of one table, here those of {self.table!r}", token)
        self.table = name

    def column(self, token: _Token) -> Node:
        table = _name_of(token)
        if self.take(".") is None:
            raise self.refuse("a column is named with its table, as in visits.cost or people.age", token)
        at = self.peek()
        if at.sort not in ("name", "quoted"):
            raise self.refuse("the name of a column belongs here; one that is no word stands in double quotes")
        self.next += 1
        name = _name_of(at)
        if table == PEOPLE:
            if PEOPLE not in self.scope.declared:
                raise self.refuse("there is no table of persons; whoever occurs in the rows is one", token)
        elif self.table is None:
            raise self.refuse(f"a person has several rows of {table!r}: say which, as in sum({table}.{name})", token)
        else:
            self.named_table(table, token)
        return Node("column", (), self.scope.declared[table].get(name, TEXT), (table, name))


def _name_list(names: Sequence[str]) -> str:
    return f"allowed are {', '.join(names)}"


def _name_of(token: _Token) -> str:
    return token.text[1:-1].replace('""', '"') if token.sort == "quoted" else token.text


def _literal_number(value: Fraction) -> Node:
    kind = number_kind(value.numerator, value.numerator, Fraction(1, value.denominator))
    return Node("literal", (), kind, value.numerator)


def _expect(node: Node, *kinds: str) -> Kind:
    if node.kind.name not in kinds:
        hint = " (declare it: sf.rows(..., numbers=, dates= or booleans=))" if node.op == "column" else ""
        wanted = " or ".join(_SAID[k] for k in kinds)
        raise InvalidInput(f"{wanted} belongs here, and this is {_SAID[node.kind.name]}{hint}")
    return node.kind


def _product(*bounds: tuple[int, int]) -> tuple[int, int]:
    low, high = 1, 1
    for a, b in bounds:
        ends = (low * a, low * b, high * a, high * b)
        low, high = min(ends), max(ends)
    return low, high


def _scaled(kind: Kind, times: int, most: int) -> tuple[int, int]:
    """Bounds of numerators brought to another unit and the other's denominator."""
    return _product((kind.low, kind.high), (times, times), (1, most))


def _plus_kind(one: Node, other: Node, sign: int = 1) -> Kind:
    a, b = _expect(one, "number"), _expect(other, "number")
    unit, ka, kb = common_unit(a, b)
    low, high = _scaled(a, ka, b.most)
    down, up = _scaled(b, kb, a.most)
    for scaled in ((low, high), (down, up)):  # each by itself: what is large in both may cancel in the sum
        number_kind(*scaled)
    ends = (low + down, high + up) if sign > 0 else (low - up, high - down)
    return number_kind(*ends, unit, a.most * b.most)


def _minus_kind(one: Node, other: Node) -> Kind:
    return _plus_kind(one, other, -1)


def _negative_kind(one: Node) -> Kind:
    kind = _expect(one, "number")
    return replace(kind, low=-kind.high, high=-kind.low)


def _multiplied_kind(one: Node, other: Node) -> Kind:
    a, b = _expect(one, "number"), _expect(other, "number")
    return number_kind(*_product((a.low, a.high), (b.low, b.high)), a.unit * b.unit, a.most * b.most)


def _divided_kind(one: Node, other: Node) -> Kind:
    a, b = _expect(one, "number"), _expect(other, "number")
    low, high = _product((a.low, a.high), (-b.most, b.most))
    return number_kind(low, high, a.unit / b.unit, a.most * max(abs(b.low), abs(b.high), 1))


def _floor_kind(one: Node) -> Kind:
    a = _expect(one, "number")
    number_kind(0, a.most * a.unit.denominator)
    low, high = a.low * a.unit.numerator, a.high * a.unit.numerator
    number_kind(low - a.most * a.unit.denominator, high)  # as it is rounded down
    return number_kind(min(low, 0) // a.unit.denominator, max(high, 0) // a.unit.denominator)


def _equal_kind(one: Node, other: Node, kinds: tuple[str, ...] = ("number", "day", "text", "truth")) -> Kind:
    a, b = _expect(one, *kinds), _expect(other, *kinds)
    if a.name != b.name:
        raise InvalidInput(f"{_SAID[a.name]} is not compared with {_SAID[b.name]}")
    if a.name == "number":
        _, ka, kb = common_unit(a, b)
        for ends in (_scaled(a, ka, b.most), _scaled(b, kb, a.most)):
            number_kind(*ends)
    return TRUTH


def _less_kind(one: Node, other: Node) -> Kind:
    return _equal_kind(one, other, ("number", "day"))


def _missing_kind(_: Node) -> Kind:
    return TRUTH


def _mean_kind(one: Node) -> Kind:
    return replace(_summed_kind(one), most=MOST_ROWS)


def _either_kind(condition: Node, one: Node, other: Node) -> Kind:
    _expect(condition, "truth")
    a, b = one.kind, other.kind
    if a.name != b.name:
        raise InvalidInput(f"if gives one kind of value, not {_SAID[a.name]} or {_SAID[b.name]}")
    if a.name != "number":
        return a
    unit, ka, kb = common_unit(a, b)
    ends = (a.low * ka, a.high * ka, b.low * kb, b.high * kb)
    return number_kind(min(ends), max(ends), unit, max(a.most, b.most))


def _truths(*args: Node) -> Kind:
    for arg in args:
        _expect(arg, "truth")
    return TRUTH


def _counted_value(node: Node) -> Kind:
    """A number without a denominator of its own, which alone is added up or sorted."""
    kind = _expect(node, "number")
    if kind.most > 1:
        raise InvalidInput(
            "quotients of columns are not added up, sorted or told apart: each has a denominator of its own. Take "
            "floor(...) of it, multiplied before where that is too coarse"
        )
    return kind


def _summed_kind(one: Node) -> Kind:
    kind = _counted_value(one)
    return number_kind(MOST_ROWS * min(kind.low, 0), MOST_ROWS * max(kind.high, 0), kind.unit)


def _sorted_kind(one: Node) -> Kind:
    return one.kind if one.kind.name == "day" else _counted_value(one)


def _counted_kind(*given: Node) -> Kind:
    if given and given[0].kind.name == "truth":
        raise InvalidInput("rows for which something is true are counted by count(visits where ...)")
    return number_kind(0, MOST_ROWS)


def _distinct_kind(one: Node) -> Kind:
    if one.kind.name == "number":
        _counted_value(one)
    return number_kind(0, MOST_ROWS)


def _median_kind(one: Node) -> Kind:
    kind = _counted_value(one)
    return number_kind(2 * kind.low, 2 * kind.high, kind.unit / 2)


def _days_kind(one: Node, other: Node) -> Kind:
    for arg in (one, other):
        _expect(arg, "day")
    return number_kind(DAY.low - DAY.high, DAY.high - DAY.low)


def _day_part(low: int, high: int) -> Callable[[Node], Kind]:
    def part(one: Node) -> Kind:
        _expect(one, "day")
        return number_kind(low, high)

    return part


def _same(one: Node) -> Kind:
    return one.kind


_TYPES: dict[str, Callable[..., Kind]] = {
    "missing": _missing_kind,
    "negate": _negative_kind,
    "add": _plus_kind,
    "subtract": _minus_kind,
    "multiply": _multiplied_kind,
    "divide": _divided_kind,
    "floor": _floor_kind,
    "equal": _equal_kind,
    "less": _less_kind,
    "and": _truths,
    "or": _truths,
    "not": _truths,
    "if": _either_kind,
    "days": _days_kind,
    "year": _day_part(1, 9999),
    "month": _day_part(1, 12),
    "previous": _same,
    "next": _same,
    "count": _counted_kind,
    "distinct": _distinct_kind,
    "sum": _summed_kind,
    "mean": _mean_kind,
    "min": _sorted_kind,
    "max": _sorted_kind,
    "any": _truths,
    "all": _truths,
    "median": _median_kind,
    "first": _same,
    "last": _same,
}
"""The type of every operation's value, from its arguments; InvalidInput where one is not allowed."""
