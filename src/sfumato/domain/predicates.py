"""Predicates: a closed grammar over a declared domain, compiled to the cells that satisfy it.

    predicate   := conjunction { "or" conjunction }
    conjunction := negation { "and" negation }
    negation    := { "not" } ( "(" predicate ")" | test )
    test        := attribute | operand op operand | constant op attribute op constant
                 | attribute [ "not" ] "in" "(" constant { "," constant } ")"
    op          := "==" | "!=" | "<" | "<=" | ">" | ">="

An attribute is its name, in backquotes where the name is not one plain word; alone it is a test where it
is boolean. A constant is a number, a text in single or double quotes (a quote inside is doubled), true or
false. Words of the grammar are read in any case. Categories are named by label or by code; text '(other)'
names the extra cell of any attribute that has one. The name of a level stands where an attribute's may: a
cell satisfies a test of its group.

The extra cell satisfies no comparison but `== '(other)'`. `not` is the complement over all cells, and
`a != v` and `a not in (...)` mean `not (a == v)` and `not (a in (...))`: the extra cell satisfies those.

Every test must have one truth value on each cell, or else it is refused. A cell of integers holds whole
numbers only (a fraction counts as the one below it), so `age > 64` is `age >= 65`; a bin holds its lower edge and
not its upper one, the last bin both. Days are texts, '2024-03-01', and so are labels of periods, '2024-03', which
stand for their first day in < and >=, for their last in > and <=. A clamped value counts as one of the cell that
it was clamped to.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from sfumato._util.checks import show_number, suggest_name
from sfumato.domain.attributes import OTHER, Attribute, Booleans, Categories
from sfumato.domain.hierarchies import Hierarchy
from sfumato.domain.ordered import Bins, Dates, Integers, format_day
from sfumato.errors import WorkloadError

if TYPE_CHECKING:
    from sfumato.domain.core import Domain

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of a predicate: its value, the text it was written as, and where that starts."""

    value: Fraction | str | bool
    raw: str
    at: int


class PredicateColumn:
    """An attribute as tests see it. `refuse(at, message)` raises for a constant at that place."""

    def __init__(self, name: str, attribute: Attribute, refuse: Callable[[int, str], NoReturn]) -> None:
        self.name = name
        self.attribute = attribute
        self.size = attribute.size
        self._declared = attribute.declared_size
        self._refuse = refuse
        self._indices: dict[str, int] | None = None

    @property
    def example(self) -> str:
        """A test that this attribute allows, for messages."""
        if isinstance(self.attribute, Booleans):
            return f"{self._written} == true"
        if isinstance(self.attribute, (Categories, Hierarchy)):
            return f"{self._written} == '{self._label(0)}'"
        return f"{self._written} >= {self._shown(0)}"

    def members(self, constants: Sequence[Constant]) -> Mask:
        """The cells whose value is one of the constants."""
        mask = np.zeros(self.size, dtype=np.bool_)
        whole: dict[int, set[int]] = {}
        for constant in constants:
            if constant.value == OTHER:
                mask[self._other(constant)] = True
            elif isinstance(self.attribute, Dates):
                mask[self._period(self.attribute, constant)] = True
            elif isinstance(self.attribute, Integers):
                value = self._whole(constant)
                whole.setdefault((value - self.attribute.low) // self.attribute.width, set()).add(value)
            elif isinstance(self.attribute, Bins):
                cell = bisect_right(self.attribute.edges, self._double(constant)) - 1
                self._refuse_single(constant, min(max(cell, 0), self._declared - 1))
            else:
                mask[self._index(constant)] = True
        for cell, values in whole.items():
            if len(values) < self._edge(cell + 1) - self._edge(cell):
                self._refuse_single(next(c for c in constants if c.value in values), cell)
            mask[cell] = True
        return mask

    def _refuse_single(self, constant: Constant, cell: int) -> NoReturn:
        low, high = self._shown(cell), self._shown(cell + 1)
        upto = "<=" if self._closed and cell == self._declared - 1 else "<"
        self._refuse(
            constant.at,
            f"{constant.raw} is only a part of the cell {self._label(cell)} of {self.name}; "
            f"ask for the whole cell, {low} <= {self._written} {upto} {high}",
        )

    @property
    def _closed(self) -> bool:
        """Whether the last cell holds the edge where it ends."""
        return isinstance(self.attribute, Bins) and self.attribute.holds_last

    def compare(self, op: str, constant: Constant) -> Mask:
        """The cells whose values are all `op` the constant, for an order `op`."""
        if not self.attribute.ordered:
            self._refuse(constant.at, f"{self.name} has no order; compare it with ==, != or in, as in {self.example}")
        cut = self._cut(op, constant)
        mask = np.zeros(self.size, dtype=np.bool_)
        mask[slice(cut, self._declared) if op[0] == ">" else slice(cut)] = True
        if self.attribute.outside == "clamp" and not mask.any():
            beyond = self._label(0 if op[0] == "<" else self._declared - 1)
            self._refuse(
                constant.at, f"{self.name} is clamped to {self._range}: values beyond are counted in its cell {beyond}"
            )
        return mask

    @property
    def _range(self) -> str:
        low, high = self._edge(0), self._edge(self._declared)
        if isinstance(self.attribute, Integers):
            return f"{low}..{high - 1}"
        if isinstance(self.attribute, Dates):
            return f"{self.attribute.low} to {self.attribute.high}"
        return f"[{low}, {high}{']' if self._closed else ')'}"

    @property
    def _written(self) -> str:
        return written_name(self.name)

    def _edge(self, i: int) -> int | float:
        """Where declared cell i starts; for i the number of cells, where the last ends."""
        if isinstance(self.attribute, Integers):
            return min(self.attribute.low + i * self.attribute.width, self.attribute.high + 1)
        assert isinstance(self.attribute, (Bins, Dates))
        return self.attribute.edges[i]

    def _shown(self, i: int) -> str:
        """The same as it is written in a predicate."""
        edge = self._edge(i)
        return f"'{format_day(int(edge))}'" if isinstance(self.attribute, Dates) else str(edge)

    def _period(self, attribute: Dates, constant: Constant) -> int:
        """The cell that a text names."""
        first, end = self._days(attribute, constant)
        cell = bisect_right(attribute.edges, first) - 1
        if not 0 <= cell < self._declared:
            self._refuse_beyond(constant)
        if end - first < self._edge(cell + 1) - self._edge(cell):
            self._refuse_single(constant, cell)
        return cell

    def _days(self, attribute: Dates, constant: Constant) -> tuple[int, int]:
        """The first day that a text names, and the day after the last."""
        found = attribute.days(constant.value) if isinstance(constant.value, str) else None
        if found is None:
            self._refuse(
                constant.at,
                f"{self.name} is compared with days or labels, as in {self.example} or '{self._label(0)}', "
                f"not with {constant.raw}",
            )
        return found

    def _label(self, i: int) -> str:
        return self.attribute.declared_labels[i]

    def _cut(self, op: str, constant: Constant) -> int:
        """The first cell above the constant (at or above it, for < and >=); the number of cells if there is none."""
        above = op in (">", "<=")
        if isinstance(self.attribute, Dates):
            first = self._days(self.attribute, constant)[above]
            edges = self.attribute.edges
            if not edges[0] <= first <= edges[-1]:
                self._refuse_beyond(constant)
            cell = bisect_left(edges, first)
            inside = edges[cell] != first
        elif isinstance(self.attribute, Integers):
            number = self._number(constant)
            first = math.floor(number) + 1 if above else math.ceil(number)
            if not self.attribute.low <= first <= self.attribute.high + 1:
                self._refuse_beyond(constant)
            cell = -(-(first - self.attribute.low) // self.attribute.width)
            inside = self._edge(cell) != first
        else:
            assert isinstance(self.attribute, Bins)
            number = self._double(constant)
            cell = bisect_left(self.attribute.edges, number)
            on_edge = cell <= self._declared and self.attribute.edges[cell] == number
            if not on_edge and cell in (0, self._declared + 1):
                self._refuse_beyond(constant)
            last = on_edge and cell == self._declared
            inside = not on_edge or (above and not last) or (last and not above and self._closed)
            cell += on_edge and not last and inside
        if inside:
            self._refuse_division(op, constant, cell)
        return cell

    def _refuse_beyond(self, constant: Constant) -> NoReturn:
        self._refuse(constant.at, f"{constant.raw} is beyond the values declared for {self.name}, {self._range}")

    def _refuse_division(self, op: str, constant: Constant, cell: int) -> NoReturn:
        """Cell `cell - 1` is divided; name the nearest edges."""
        kept = op[0] + ("=" if op[0] == ">" else "")
        asks = [f"{self._written} {kept} {self._shown(i)}" for i in (cell - 1, cell) if 0 < i < self._declared]
        if self._closed and cell == self._declared:
            asks.append(f"{self._written} {'>' if op[0] == '>' else '<='} {self._edge(cell)}")
        ask = " or ".join(asks)
        self._refuse(
            constant.at,
            f"{self.name} {op} {constant.raw} divides the cell {self._label(cell - 1)} of {self.name}; "
            + (f"ask {ask}" if ask else f"{self.name} has no edge to ask for"),
        )

    def _number(self, constant: Constant) -> Fraction:
        if not isinstance(constant.value, Fraction):
            self._refuse(
                constant.at, f"{self.name} is compared with numbers, as in {self.example}, not with {constant.raw}"
            )
        return constant.value

    def _double(self, constant: Constant) -> int | float:
        """The constant as the int it equals, or else as the nearest double, as edges and values are."""
        value = self._number(constant)
        try:
            return int(value) if value.denominator == 1 and abs(value) < 2**53 else float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf

    def _whole(self, constant: Constant) -> int:
        assert isinstance(self.attribute, Integers)
        number = self._number(constant)
        if number.denominator != 1:
            self._refuse(constant.at, f"{self.name} holds whole numbers only, never {constant.raw}")
        if not self.attribute.low <= number <= self.attribute.high:
            self._refuse_beyond(constant)
        return int(number)

    def _other(self, constant: Constant) -> int:
        if not self.attribute.has_other:
            self._refuse(
                constant.at,
                f"{self.name} has no extra cell {OTHER!r}: none of its policies outside and missing is 'other'",
            )
        return self._declared

    def _index(self, constant: Constant) -> int:
        """The cell of a category, by label or code, or of a boolean."""
        if self._indices is None:
            self._indices = {label: i for i, label in enumerate(self.attribute.declared_labels)}
        value = constant.value
        if isinstance(value, bool):
            if not isinstance(self.attribute, Booleans):
                self._refuse(constant.at, f"{self.name} is not true or false; write {self.example}")
            return int(value)
        spellings = [value] if isinstance(value, str) else [constant.raw, show_number(self._double(constant))]
        of = self.attribute.cell_of if isinstance(self.attribute, (Categories, Hierarchy)) else self._indices.get
        found = next((i for i in map(of, spellings) if i is not None), None)
        if found is None:
            allowed = suggest_name(spellings[0], self.attribute.labels)
            self._refuse(constant.at, f"{self.name} has no {spellings[0]!r}; {allowed}")
        return found


_BACKQUOTES = (
    "; a name with odd characters is written in backquotes, as in `income>50K`; there is no arithmetic, no function"
)

_MAX_TEXT = 10_000  # hundreds of conditions; a program that writes more wants `sf.queries`
_MAX_NESTING = 50  # below what Python's stack allows the parser, above what people write
_MAX_TOKENS = 5_000  # with a mark or word every other character, _MAX_TEXT is reached together with it
_MAX_CELLS = 10_000_000  # 10 MB of truth values, one array for every condition
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
    | (?P<number>[+-]?(?:[0-9]+(?:_[0-9]+)*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?(?![\w.]))
    | (?P<name>[^\W\d]\w*)
    | (?P<quoted>`[^`]*(?:``[^`]*)*`)
    | (?P<text>'[^']*(?:''[^']*)*'|"[^"]*(?:""[^"]*)*")
    | (?P<op><=|>=|==|!=|<(?!>)|>)
    | (?P<mark>[(),])""",
    re.VERBOSE,
)
_WORDS = ("and", "or", "not", "in", "true", "false")
_FLIPPED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_WORD = re.compile(r"[\w.]+")
_INSTEAD = {
    "=": "==",
    "<>": "!=",
    "&": "and",
    "|": "or",
    "!": "not",
    "[": "a list in (), as in age in (1, 2)",
    "'": "a closing '; inside a text it is written twice, ''",
    "`": "a closing `; inside a name it is written twice, ``",
    '"': 'a closing "; inside a text it is written twice, ""',
}


def written_name(name: str) -> str:
    """The name of an attribute or level as a predicate has it: in backquotes where it is not one plain word."""
    plain = name.isidentifier() and name.lower() not in _WORDS
    return name if plain else "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True, slots=True, eq=False)
class CompiledPredicate:
    """A predicate as the cells that satisfy it.

    `text` is the predicate with single spaces; `attributes` are those it names, in the domain's order;
    `mask` is a boolean array with one axis per attribute, in that order.
    """

    text: str
    attributes: tuple[str, ...]
    mask: Mask


def compile_predicate(domain: Domain, text: str) -> CompiledPredicate:
    """Parse and compile one predicate.

    Raises WorkloadError, with the place in the text, for whatever is outside the grammar or the domain,
    for a test that divides a cell, and where the attributes named have more than 10,000,000 cells jointly.
    """
    if not isinstance(text, str) or not text.strip():
        raise WorkloadError(f'a predicate must be a non-empty text such as "age >= 65", not {text!r}')
    if len(text) > _MAX_TEXT:
        raise WorkloadError(f"a predicate has at most {_MAX_TEXT:,} characters, not {len(text):,}")
    parser = _Parser(domain, text)
    tree = parser.parse()
    named = {domain.owner(c) for c in parser.columns}
    names = tuple(n for n in domain.names if n in named)
    shape = domain.sizes(names)
    if math.prod(shape) > _MAX_CELLS:
        sizes = ", ".join(f"{n} has {s:,}" for n, s in zip(names, shape, strict=True))
        raise WorkloadError(
            f"the attributes of one predicate may have {_MAX_CELLS:,} cells jointly: {sizes}; "
            "name fewer of them or declare wider cells"
        )
    mask = np.array(np.broadcast_to(_evaluate_mask(tree, names), shape))
    mask.flags.writeable = False
    return CompiledPredicate(_single_spaced(text), names, mask)


Kind = Literal["number", "name", "text", "op", "word", "mark", "end"]


@dataclass(frozen=True, slots=True)
class _Token:
    kind: Kind
    value: str
    raw: str
    at: int


@dataclass(frozen=True, slots=True, eq=False)
class _Test:
    attribute: str
    mask: Mask


@dataclass(frozen=True, slots=True, eq=False)
class _Join:
    how: Literal["and", "or", "not"]
    parts: tuple[_Test | _Join, ...]


def _evaluate_mask(node: _Test | _Join, names: tuple[str, ...]) -> Mask:
    """The node's mask, of length 1 along the attributes it does not name."""
    if isinstance(node, _Test):
        return node.mask.reshape([-1 if n == node.attribute else 1 for n in names])
    parts = (_evaluate_mask(p, names) for p in node.parts)
    if node.how == "not":
        return np.logical_not(next(parts))
    return functools.reduce(np.logical_and if node.how == "and" else np.logical_or, parts)


def _single_spaced(text: str) -> str:
    return _TOKEN.sub(lambda token: " " if token.lastgroup == "space" else token[0], text).strip()


def _refuse_predicate(text: str, at: int, message: str) -> NoReturn:
    start = max(0, at - 30)
    excerpt = ("…" if start else "") + text[start : at + 30] + ("…" if at + 30 < len(text) else "")
    raise WorkloadError(f"{message} (character {at + 1} of the predicate, in {excerpt!r})")


def _tokenize(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            _refuse_character(text, at)
        raw, kind = found[0], found.lastgroup
        if kind == "name" and raw.lower() in _WORDS:
            yield _Token("word", raw.lower(), raw, at)
        elif kind in ("quoted", "text"):
            value = raw[1:-1].replace(raw[0] * 2, raw[0])
            yield _Token("name" if kind == "quoted" else "text", value, raw, at)
        elif kind != "space":
            yield _Token(cast(Kind, kind), raw, raw, at)
        at = found.end()
    yield _Token("end", "", "the end", at)


def _refuse_character(text: str, at: int) -> NoReturn:
    word = _WORD.match(text, at)
    shown = repr(word[0][:40] if word else text[at])
    instead = _INSTEAD.get(text[at : at + 2]) or _INSTEAD.get(text[at])
    _refuse_predicate(text, at, f"{shown} has no meaning here" + (f"; write {instead}" if instead else _BACKQUOTES))


class _Parser:
    """Recursive descent, as deep as nesting is allowed. `columns` are the attributes named so far."""

    def __init__(self, domain: Domain, text: str) -> None:
        self._domain = domain
        self._text = text
        self._tokens = list(itertools.islice(_tokenize(text), _MAX_TOKENS + 1))
        if len(self._tokens) > _MAX_TOKENS:
            raise WorkloadError(f"a predicate has at most {_MAX_TOKENS:,} words and marks")
        self._next = 0
        self._depth = 0
        self.columns: dict[str, PredicateColumn] = {}

    def parse(self) -> _Test | _Join:
        """The whole text as one tree."""
        tree = self._disjunction()
        if self._peek.kind != "end":
            self._fail(f"expected 'and', 'or' or the end, not {self._peek.raw}")
        return tree

    @property
    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._peek
        self._next += token.kind != "end"
        return token

    def _accept(self, value: str, kind: Kind = "word") -> bool:
        found = (self._peek.kind, self._peek.value) == (kind, value)
        self._next += found
        return found

    def _expect(self, mark: str, why: str) -> None:
        if not self._accept(mark, "mark"):
            self._fail(f"expected '{mark}' {why}, not {self._peek.raw}")

    def _fail(self, message: str, at: int | None = None) -> NoReturn:
        _refuse_predicate(self._text, self._peek.at if at is None else at, message)

    def _disjunction(self) -> _Test | _Join:
        parts = [self._conjunction()]
        while self._accept("or"):
            parts.append(self._conjunction())
        return _Join("or", tuple(parts)) if len(parts) > 1 else parts[0]

    def _conjunction(self) -> _Test | _Join:
        parts = [self._negation()]
        while self._accept("and"):
            parts.append(self._negation())
        return _Join("and", tuple(parts)) if len(parts) > 1 else parts[0]

    def _negation(self) -> _Test | _Join:
        if self._accept("not"):
            with self._nested():
                return _Join("not", (self._negation(),))
        if self._accept("(", "mark"):
            with self._nested():
                tree = self._disjunction()
                self._expect(")", "that closes the parenthesis")
                return tree
        return self._test()

    @contextmanager
    def _nested(self) -> Generator[None]:
        self._depth += 1
        if self._depth > _MAX_NESTING:
            self._fail(f"parentheses and 'not' may be nested {_MAX_NESTING} deep")
        yield
        self._depth -= 1

    def _test(self) -> _Test:
        operands, ops = [self._operand()], list[_Token]()
        while self._peek.kind == "op":
            ops.append(self._take())
            operands.append(self._operand(right=True))
        columns = [o for o in operands if isinstance(o, PredicateColumn)]
        at = ops[0].at if ops else None
        if len(columns) != 1:
            what = "constants" if not columns else "attributes"
            self._fail(f"a test compares one attribute with constants, as in age >= 65, not {what} alone", at)
        if not ops:
            return self._test_of_name(columns[0])
        first, last = operands[0], operands[-1]
        if len(ops) == 1:
            if isinstance(first, PredicateColumn):
                return self._comparison(first, ops[0].value, cast(Constant, last))
            return self._comparison(columns[0], _FLIPPED[ops[0].value], first)
        directions = {op.value[0] for op in ops}
        if (
            len(ops) > 2
            or isinstance(first, PredicateColumn)
            or isinstance(last, PredicateColumn)
            or directions not in ({"<"}, {">"})
        ):
            self._fail("comparisons are chained only as a range, as in 18 <= age < 65", at)
        low = self._comparison(columns[0], _FLIPPED[ops[0].value], first)
        high = self._comparison(columns[0], ops[1].value, last)
        if not (low.mask & high.mask).any():
            self._fail("this range holds no value; is it reversed?", ops[0].at)
        return _Test(low.attribute, low.mask & high.mask)

    def _test_of_name(self, column: PredicateColumn) -> _Test:
        """`a in (...)`, `a not in (...)`, or a boolean alone."""
        negated = self._accept("not")
        if self._accept("in"):
            self._expect("(", "and a list of constants after 'in'")
            constants = [self._constant()]
            while self._accept(",", "mark") and not (self._peek.kind == "mark" and self._peek.value == ")"):
                constants.append(self._constant())
            self._expect(")", "that closes the list")
            mask = column.members(constants)
            return self._of(column, ~mask if negated else mask)
        if negated:
            self._fail(f"expected 'in' after 'not', not {self._peek.raw}")
        if not isinstance(column.attribute, Booleans):
            missing = "; what is missing is counted as missing= says, as in '(other)'" * (self._peek.value == "is")
            self._fail(f"expected a comparison of {column.name}, as in {column.example}, not {self._peek.raw}{missing}")
        return self._of(column, column.members([Constant(True, "true", self._peek.at)]))

    def _comparison(self, column: PredicateColumn, op: str, constant: PredicateColumn | Constant) -> _Test:
        assert isinstance(constant, Constant)
        if op in ("==", "!="):
            mask = column.members([constant])
            return self._of(column, ~mask if op == "!=" else mask)
        return self._of(column, column.compare(op, constant))

    def _of(self, column: PredicateColumn, mask: Mask) -> _Test:
        """A test of an attribute; one of a level goes to the cells of its groups."""
        level = self._domain.grouping(column.name)
        return _Test(self._domain.owner(column.name), mask if level is None else mask[level.groups])

    def _operand(self, *, right: bool = False) -> PredicateColumn | Constant:
        token = self._peek
        if token.kind != "name":
            return self._constant("an attribute or a constant")
        self._take()
        if token.value not in self._domain:
            hint = f"; if it is a label, write it in quotes: '{token.value}'" if right else ""
            known = (*self._domain.names, *self._domain.levels)
            # the first word of a name that is several
            whole = next((n for n in known if n != token.value and n.split()[:1] == [token.value]), None)
            if whole is not None:
                hint = f"; a name of several words is written in backquotes: `{whole}`"
            self._fail(f"no attribute is called {token.value!r}; {suggest_name(token.value, known)}{hint}", token.at)
        if token.value not in self.columns:
            self._domain.check_counted([token.value])
            attribute = self._domain[token.value]
            self.columns[token.value] = PredicateColumn(
                token.value, attribute, lambda at, message: self._fail(message, at)
            )
        return self.columns[token.value]

    def _constant(self, what: str = "a constant") -> Constant:
        token = self._take()
        value: Fraction | str | bool = token.value
        if token.kind == "number":
            value = Fraction(token.value)
        elif token.kind == "word" and token.value in ("true", "false"):
            value = token.value == "true"
        elif token.kind != "text":
            hint = f"; write texts in quotes: '{token.value}'" if token.kind == "name" else ""
            self._fail(f"expected {what}, not {token.raw}{hint}", token.at)
        return Constant(value, token.raw, token.at)
