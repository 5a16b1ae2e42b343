"""Reading what people write: files with caps, and TOML tables whose refusals know their line."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from os import PathLike
from pathlib import Path
from typing import Any

from sfumato._util.checks import read_number, read_text, same_table, suggest_name
from sfumato.errors import InvalidInput, SpecError

_MAX_DEPTH = 8  # a spec is four levels deep; deeper ones would exhaust the stack somewhere
_MAX_DIGITS = 400  # 17 tell a double from its neighbours; exact fractions of millions of digits would take hours
_MAX_EXPONENT = 324  # of any double
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:[ \u00a0\u202f,'_\u2019]\d{3})+(?:\.\d+)?", re.ASCII)
# few digits and a short exponent: what is longer is no slip, and would be long to write out
_PLAIN = re.compile(r"[+-]?\d{1,20}(?:\.\d{1,20})?(?:[eE][+-]?\d{1,2})?", re.ASCII)
_AT_LINE = re.compile(r"at line (\d+), ")
# tomllib takes time quadratic in the number of a dotted key's parts
_LONG_KEY = re.compile(
    r"""(?:(?<![\w-])[\w-]+|"[^"\n]*"|'[^'\n]*')(?:[ \t]*\.[ \t]*(?:[\w-]+|"[^"\n]*"|'[^'\n]*')){64}"""
)
_TOKEN = re.compile(
    r'''"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|\#[^\n]*|\n'''
    r"""|[\[\]{},=]|[^\s"'\#\[\]{},=]+|[^\S\n]+""",
    re.DOTALL,
)

Place = tuple[str | int, ...]


def find_fault(tree: object) -> tuple[Place, str] | None:
    """Where a parsed file holds nesting or numbers that no sensible file holds, and what they are."""
    waiting: list[tuple[Place, Any]] = [((), tree)]
    while waiting:
        place, value = waiting.pop()
        if len(place) > _MAX_DEPTH:
            return place, f"nested deeper than {_MAX_DEPTH} levels"
        if isinstance(value, Decimal):
            if not value.is_finite():
                return place, f"must be a finite number, not {value}"
            small = abs(value.adjusted()) <= _MAX_EXPONENT and len(value.as_tuple().digits) <= _MAX_DIGITS
            if not small or math.isinf(float(value)):
                return place, f"numbers have at most {_MAX_DIGITS} digits and fit a double"
        elif isinstance(value, int) and abs(value) > 2**63:
            return place, "whole numbers are at most 2^63"
        elif isinstance(value, (dict, list)):
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            waiting += [((*place, k), v) for k, v in pairs if not isinstance(v, str)]
    return None


def read_toml(path: str | PathLike[str]) -> Section:
    """The root table of a TOML file; numbers with a point or an exponent are kept as they are written."""
    return parse_toml(read_text(path, "the spec file"))


class WrittenNumber(Decimal):
    """A number of a TOML file with a point or an exponent: its exact value, and its text as it was written."""

    written: str

    def __new__(cls, text: str) -> WrittenNumber:
        """Read the text of a number; an exponent beyond what even Decimal holds is infinite."""
        try:
            made = super().__new__(cls, text)
        except InvalidOperation:
            made = super().__new__(cls, "inf")
        made.written = text
        return made

    def __deepcopy__(self, memo: object) -> WrittenNumber:
        """The number itself, which nobody changes."""
        return self


def parse_toml(written: str, values: dict[str, Any] | None = None) -> Section:
    """The root table of a TOML text, as `read_toml` has it of a file; `values` are its tables, where they were read."""
    text = written.replace("\r\n", "\n")
    values_read = toml_tables(text) if values is None else values
    root = Section(values_read, (), _Lines(text))
    if fault := find_fault(values_read):
        raise root.refuse(fault[1], *fault[0])
    return root


def toml_tables(text: str) -> dict[str, Any]:
    """The tables of a TOML text, whatever they hold. Raises SpecError for what is not TOML."""
    if found := _LONG_KEY.search(text):
        raise SpecError("a key has more than 64 parts", text.count("\n", 0, found.start()) + 1)
    try:
        return tomllib.loads(text, parse_float=WrittenNumber)
    except RecursionError as error:
        raise SpecError(f"the file is nested deeper than {_MAX_DEPTH} levels") from error
    except ValueError as error:
        message, at = str(error), _AT_LINE.search(str(error))
        line = int(at[1]) if at else text.count("\n") + 1 if "end of document" in message else None
        raise SpecError(f"this is not TOML: {_AT_LINE.sub('', message)}", line) from error


class _Lines:
    """Where the keys of a valid TOML text stand; scanned only when a message needs it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: dict[Place, int] | None = None

    def of(self, place: Place) -> int | None:
        """The 1-based line of a key, or of the nearest table around it."""
        if self._found is None:
            self._found = self._scan()
        while place and place not in self._found:
            place = place[:-1]
        return self._found.get(place)

    def _statements(self) -> Iterator[list[tuple[str, int]]]:
        statement: list[tuple[str, int]] = []
        line, depth = 1, 0
        for token in _TOKEN.findall(self._text):
            depth += (token in ("[", "{")) - (token in ("]", "}"))
            if token == "\n" and depth == 0 and statement:
                yield statement
                statement = []
            elif token.strip() and not token.startswith("#"):
                statement.append((token, line))
            line += token.count("\n")
        if statement:
            yield statement

    def _scan(self) -> dict[Place, int]:
        found: dict[Place, int] = {}
        counts: dict[Place, int] = {}
        table: Place = ()
        for statement in self._statements():
            tokens, line = [t for t, _ in statement], statement[0][1]
            if tokens[0] == "[":
                many = tokens[1] == "["
                parts = _key_parts("".join(t for t in tokens if t not in ("[", "]")))
                table = ()
                for i, part in enumerate(parts):
                    table += (part,)
                    if many and i == len(parts) - 1:
                        counts[table] = counts.get(table, 0) + 1
                        found.setdefault(table, line)
                    if table in counts:
                        table += (counts[table] - 1,)
                found.setdefault(table, line)
            else:
                middle = tokens.index("=")
                place = table + _key_parts("".join(tokens[:middle]))
                found.setdefault(place, line)
                if tokens[middle + 1] == "[":
                    for i, at in enumerate(_item_lines(statement[middle + 1 :])):
                        found[(*place, i)] = at
        return found


def _key_parts(text: str) -> tuple[str, ...]:
    parts: list[str] = []
    value: Any = tomllib.loads(f"{text} = 0")
    while isinstance(value, dict):
        ((part, value),) = value.items()
        parts.append(part)
    return tuple(parts)


def _item_lines(value: list[tuple[str, int]]) -> Iterator[int]:
    depth, fresh = 0, False
    for token, line in value:
        if fresh and depth == 1 and token not in ("]", ","):
            yield line
        fresh = depth == 1 and token == ","
        if token in ("[", "{"):
            depth += 1
            fresh = depth == 1
        depth -= token in ("]", "}")


class Section:
    """One table of a file. What is asked of it in vain is refused with its place and its line."""

    def __init__(self, values: dict[str, Any], place: Place, lines: _Lines) -> None:
        self._values = values
        self._lines = lines
        self.place = place

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def where(self, *keys: str | int) -> str:
        """How messages name a key of this table."""
        parts = [f"{p + 1}" if isinstance(p, int) else p for p in (*self.place, *keys)]
        return ".".join(parts) or "the file"

    def refuse(self, message: str, *keys: str | int) -> SpecError:
        """An exception that points at a key of this table."""
        return SpecError(f"{self.where(*keys)}: {message}", self._lines.of((*self.place, *keys)))

    @contextmanager
    def guard(self, *keys: str | int) -> Generator[None]:
        """Give refusals from elsewhere the line of a key of this table."""
        try:
            yield
        except SpecError:
            raise
        except InvalidInput as error:
            raise self.refuse(str(error), *keys) from error

    def allow(self, *keys: str) -> None:
        """Refuse every other key."""
        for key in self._values:
            if key not in keys:
                raise self.refuse(f"there is no such key here; {suggest_name(key, keys)}", key)

    def need(self, key: str, why: str) -> None:
        """Refuse where a key is absent."""
        if key not in self._values:
            raise self.refuse(f"{key} is missing; {why}")

    def blanks(self) -> list[tuple[str, int | None]]:
        """Every key, here and below, that holds an empty text, with its line."""
        found: list[tuple[str, int | None]] = []
        waiting: list[tuple[Place, Any]] = [((), self._values)]
        while waiting:
            place, value = waiting.pop()
            if value == "":
                found.append((self.where(*place), self._lines.of((*self.place, *place))))
            elif isinstance(value, (dict, list)):
                pairs = value.items() if isinstance(value, dict) else enumerate(value)
                waiting += [((*place, k), v) for k, v in pairs if v == "" or isinstance(v, (dict, list))]
        return sorted(found, key=lambda blank: blank[1] or 0)

    def refuse_blanks(self) -> None:
        """Raise SpecError where a key, here or below, is still to be filled in."""
        if found := self.blanks():
            listed = ", ".join(name if line is None else f"{name} (line {line})" for name, line in found[:20])
            raise SpecError(f"fill in what is still blank, or delete it: {listed}", found[0][1])

    def section(self, key: str) -> Section:
        """The table under a key; an empty one where it is absent."""
        value = self._values.get(key, {})
        if not isinstance(value, dict):
            raise self.refuse(f"must be a table, [{self.where(key)}], not {_show_toml_value(value)}", key)
        return Section(value, (*self.place, key), self._lines)

    def part(self, *keys: str) -> Section:
        """This table with some of its keys alone, where they are there."""
        return Section({k: v for k, v in self._values.items() if k in keys}, self.place, self._lines)

    def values(self) -> dict[str, Any]:
        """Every value as it was read, by its key."""
        return dict(self._values)

    def sections(self, key: str) -> list[Section]:
        """The tables of a list of tables; none where it is absent."""
        value = self._values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
            raise self.refuse(f"must be tables, each under a line [[{key}]]", key)
        return [Section(v, (*self.place, key, i), self._lines) for i, v in enumerate(value)]

    def text(self, key: str) -> str | None:
        """A text, or None where the key is absent."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, str):
            raise self.refuse(f"must be a text in quotes, not {_show_toml_value(value)}", key)
        return value

    def whole(self, key: str) -> int | None:
        """A whole number, or None where the key is absent."""
        value = self.number(key)
        if value is not None and not isinstance(value, int):
            raise self.refuse(f"must be a whole number, not {_show_toml_value(value)}", key)
        return value

    def number(self, key: str) -> int | float | None:
        """A number, or None where the key is absent."""
        return None if key not in self._values else self._number(self._values[key], key)

    def numbers(self, key: str) -> list[int | float] | None:
        """A list of numbers, or None where the key is absent."""
        given = self.items(key)
        return None if given is None else [self._number(v, key, i) for i, v in enumerate(given)]

    def texts(self, key: str) -> list[str] | None:
        """A list of texts, or None where the key is absent."""
        given = self.items(key)
        for i, value in enumerate(given or ()):
            if not isinstance(value, str):
                raise self.refuse(f"must be a text in quotes, not {_show_toml_value(value)}", key, i)
        return given

    def items(self, key: str) -> list[Any] | None:
        """A list of anything, or None where the key is absent."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, list):
            raise self.refuse(f"must be a list, [{_show_toml_value(value)}], not {_show_toml_value(value)}", key)
        return value

    def raw(self, key: str) -> Any:
        """The value as it was read, Decimals included, or None where the key is absent."""
        return self._values.get(key)

    def _number(self, value: object, *keys: str | int) -> int | float:
        if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
            raise self.refuse(f"must be a number, not {_show_toml_value(value)}{_suggest_notation(value)}", *keys)
        with self.guard(*keys):
            return read_number(float(value) if isinstance(value, Decimal) else value, "a number")


def _suggest_notation(value: object) -> str:
    """How a number that was written for people, or as a text, is written here."""
    text = value.strip() if isinstance(value, str) else ""
    plain = (
        re.sub(r"[ \u00a0\u202f,'_\u2019](?=\d{3}(?!\d))", "", text)
        if _GROUPED.fullmatch(text)
        else text.replace(",", ".")
    )
    if not _PLAIN.fullmatch(plain):
        return ""
    found = Decimal(plain)
    return f"; write {int(found) if found == found.to_integral_value() else found}"


def _show_toml_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value) if isinstance(value, (int, Decimal)) else repr(value)
    return text if len(text) <= 60 else text[:60] + "…"


def check_public(table: Section, root: Section, folder: Path) -> None:
    """Refuse values from a table that is to be protected: what is declared is shown to everybody."""
    given, people = table.raw("values_from"), root.section("people")
    listed = people.section("rows")
    protected = [root.section("data"), people, *(listed.section(name) for name in listed)]
    sources = [source for section in protected if isinstance(source := section.raw("source"), str)]
    if not isinstance(given, str):
        return
    if any(same_table(str(folder / given), s if "://" in s else str(folder / s)) for s in sources):
        raise table.refuse(
            "this is the source, the table to be protected, and declared values are shown to everybody; name a "
            "public list of codes",
            "values_from",
        )
