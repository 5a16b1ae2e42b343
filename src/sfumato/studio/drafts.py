"""A spec file as a draft: what the page changes in it, and what is said of each part of it as it stands.

The text is kept as people wrote it, comments included; a change touches its own key. A change is a place (keys and
numbers of list entries) and a value, or None to take the place out; a number is {"number": "1e-6"}, as it was typed.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import re
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import tomlkit
from tomlkit.items import Item, Trivia

from sfumato._util.checks import show_number
from sfumato._util.frames import safe_text
from sfumato.curator.people.declared import spec_person_source
from sfumato.domain import Measure
from sfumato.domain.mock import mock_columns, number_in_notation
from sfumato.domain.predicates import compile_predicate
from sfumato.errors import InvalidInput, SpecError
from sfumato.specs import Spec, spec_from_root_table
from sfumato.workloads.reading import Section, WrittenNumber, parse_toml, toml_tables
from sfumato.workloads.schema import import_schema, read_schema, spec_text

_FIELDS = {
    "type": "its kind",
    "min": "its least value",
    "max": "its greatest value",
    "width": "the width of a cell",
    "by": "the period of a cell",
    "format": "how its days are written",
    "values": "its labels",
    "values_from": "its file",
    "outside": "what goes for values that are not declared",
    "missing": "what goes for missing values",
    "knots": "where sums are cut",
}
_PLACES = {
    "data.source": "where the table is",
    "people.key": "the column that names persons",
    "data.decimal": "what stands before decimals",
    "data.thousands": "what stands between thousands",
    "data.encoding": "the encoding of the file",
    "data.delimiter": "what stands between fields",
    "data.sheet": "the name of the sheet",
    "schema_defaults.outside": "what goes for values that are not declared",
    "schema_defaults.missing": "what goes for missing values",
    "privacy.neighbours": "whose privacy",
    **{f"privacy.{key}": "the budget" for key in ("epsilon", "delta", "rho", "mu")},
}
_LINE = re.compile(r"^line \d+: ")
_ABSENT = re.compile(r"^(?:(?:schema|measures)\.(?P<name>.+?): )?(?P<key>\w+) is (?:missing|not declared)\b")


def field_word(key: str) -> str:
    """What a key of a column is called on the page."""
    return _FIELDS.get(key, key)


def missing_field(said: str) -> str | None:
    """The field that a refusal says is missing, as the page calls it; None for other refusals."""
    found = _ABSENT.match(_LINE.sub("", said))
    if found is None or found["key"] not in _FIELDS:
        return None
    word = _FIELDS[found["key"]]
    return word if found["name"] is None else f"of {found['name']} {word}"


def still_to_do(text: str, said: str) -> str:
    """What people have yet to fill in; of what is otherwise refused, the refusal without its line."""
    places = [where for where, _ in _root_table(text).blanks()]
    if not places:
        return missing_field(said) or _LINE.sub("", said)
    return "; ".join(dict.fromkeys(map(_place_word, places)))


def _place_word(where: str) -> str:
    name, _, key = where.removeprefix("schema.").removeprefix("measures.").rpartition(".")
    if where.startswith("queries."):
        return "what is asked"
    if where.startswith("people.rows.") and where.endswith(".source"):
        return f"where the table {where.split('.')[2]} is"
    return _PLACES.get(where) or (
        f"of {name} {field_word(key)}" if where.startswith(("schema.", "measures.")) else where
    )


def check_draft(text: str, path: Path, about: str, conditions: Sequence[str]) -> None:
    """Refuse a draft for what is wrong in one part of it, whatever else is still missing. Raises InvalidInput.

    `about` is the part's place as refusals name it, such as "stream"; conditions are held against the columns.
    """
    root = _root_table(text)
    try:
        domain = read_schema(root, path.parent)
    except SpecError as error:  # the other columns are for later
        _refuse_about(error, about)
    else:
        for condition in conditions:
            compile_predicate(domain, condition)
    if root.section("people").text("key"):
        try:
            spec_person_source(root, path.parent, root.section("people").text("key"))
        except SpecError as error:
            _refuse_about(error, about)
    _check_spec_part(root, path, about)


def _check_spec_part(root: Section, path: Path, about: str) -> None:
    try:
        spec_from_root_table(root, path)
    except SpecError as error:
        _refuse_about(error, about)


def _refuse_about(error: SpecError, about: str) -> None:
    said = _LINE.sub("", str(error))
    if said == about or said.startswith((f"{about}.", f"{about}:")):
        raise InvalidInput(said.partition(": ")[2].removeprefix("impossible: ") or said) from error


ROOTS = (
    *("data", "people", "domain", "schema", "schema_defaults", "measures", "privacy", "queries", "plan", "stream"),
    "publication",
)
"""What the page may change; other tables of a spec stay as they are."""
_MOST_CHANGES = 2_000  # in one request: a table of a thousand columns, declared anew
_NUMERIC = ("integer", "number")  # types whose values a table writes in its notation
_MOCK_ROWS = 4  # of a column, as an example
_SHOWN_LABELS = 6  # of a column: a line
_LONG_LIST = 20_000  # characters of a list that the editor need not look into
_LIST_OF_TEXTS = re.compile(r"""\[(?:\s*+"(?:[^"\\\n]|\\.)*+"\s*+,)*+(?:\s*+"(?:[^"\\\n]|\\.)*+")?\s*+\]""")
# as TOML has numbers; what else is typed is kept as a text, which the spec then refuses or reads by its own rules
_NUMBER = re.compile(r"[+-]?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def text_version(text: str) -> str:
    """What tells one state of the file from another."""
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@lru_cache(maxsize=4)
def spec_tables(text: str) -> dict[str, Any]:
    """The tables of a spec, which nobody changes: a long list of labels is read once for all that a request asks."""
    return toml_tables(text)


def _root_table(text: str) -> Section:
    """The spec's root table, of what was read already. Raises SpecError."""
    return parse_toml(text, spec_tables(text.replace("\r\n", "\n")))


def tables_for_page(text: str) -> dict[str, Any]:
    """The tables of a spec as JSON values; numbers with a point or an exponent as they are written."""
    return cast("dict[str, Any]", _to_json_values(spec_tables(text)))


def _to_json_values(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _to_json_values(v) for k, v in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_to_json_values(v) for v in cast("list[Any]", value)]
    if isinstance(value, WrittenNumber):
        return value.written
    return value if isinstance(value, (str, bool, int)) else str(value)


def apply_changes(text: str, changes: object) -> str:
    """The text with the changes made. Raises InvalidInput for what is no change, or would break the file."""
    if not isinstance(changes, list) or len(changes) > _MOST_CHANGES:
        raise InvalidInput(f"changes are a list of at most {_MOST_CHANGES:,}")
    wanted = copy.deepcopy(spec_tables(text))
    places: list[tuple[list[str | int], Any]] = []
    for one in cast("list[Any]", changes):
        place, value = _read_change(one)
        _put_value(wanted, place, _toml_value(value))
        places.append((place, value))
    try:
        written = _write_changes(text, places)
    except InvalidInput:
        raise
    except Exception as error:  # tables that stand apart in a file are more than the editor takes on
        raise InvalidInput("this part of the file cannot be changed here; change it in an editor") from error
    try:
        kept = spec_tables(written) == wanted
    except ValueError:
        kept = False
    if not kept:
        raise InvalidInput("this change would spoil other parts of the file; make it in an editor")
    return written


def _write_changes(text: str, places: Sequence[tuple[list[str | int], Any]]) -> str:
    """The text with the changes put into it; whether they did what they should is for the caller to see.

    The editor takes seconds for a list of 100,000 labels, so that long lists stand aside until the rest is written.
    """
    aside: dict[str, str] = {}

    def put_aside(found: re.Match[str]) -> str:
        if len(found[0]) < _LONG_LIST:
            return found[0]
        mark = f'"list {len(aside)} of {text_version(text)}"'
        aside[mark] = found[0]
        return mark

    document: Any = tomlkit.parse(_LIST_OF_TEXTS.sub(put_aside, text) if len(text) >= _LONG_LIST else text)
    try:
        for place, value in places:
            _put_value(document, place, _toml_item(value))
    except InvalidInput:  # an entry of a list that stands aside
        if not aside:
            raise
        document = tomlkit.parse(text)
        for place, value in places:
            _put_value(document, place, _toml_item(value))
        return tomlkit.dumps(document)
    written = tomlkit.dumps(document)
    for mark, list_ in aside.items():
        written = written.replace(mark, list_)
    return written


def _read_change(one: object) -> tuple[list[str | int], Any]:
    if not isinstance(one, dict) or set(cast("dict[str, Any]", one)) != {"place", "value"}:
        raise InvalidInput("a change has a place and a value")
    given = cast("dict[str, Any]", one)
    place = given["place"]
    if not isinstance(place, list) or not 1 <= len(cast("list[Any]", place)) <= 6:
        raise InvalidInput("a place is a list of one to six keys")
    keys = cast("list[Any]", place)
    if not all(isinstance(k, str) or (isinstance(k, int) and not isinstance(k, bool) and k >= 0) for k in keys):
        raise InvalidInput("keys are texts or numbers of entries")
    if keys[0] not in ROOTS:
        raise InvalidInput(f"the page changes {', '.join(ROOTS)} and nothing else")
    return keys, given["value"]


def _put_value(root: Any, place: Sequence[str | int], value: Any) -> None:
    """Set or take out what is at a place; tables on the way are made."""
    here: Any = root
    for i, key in enumerate(place[:-1]):
        if isinstance(key, int):
            if not isinstance(here, list) or key >= len(cast("list[Any]", here)):
                raise InvalidInput("there is no such entry")
        elif not isinstance(here, Mapping):
            raise InvalidInput("there is no such table")
        elif key not in here:
            if value is None:
                return
            made: Any = [] if isinstance(place[i + 1], int) else {}
            cast(Any, here)[key] = made if isinstance(root, dict) and type(root) is dict else _new_toml_container(made)
        here = cast(Any, here)[key]
    last = place[-1]
    if isinstance(last, int):
        entries = cast("list[Any]", here)
        if not isinstance(here, list) or last > len(entries) or (value is None and last == len(entries)):
            raise InvalidInput("there is no such entry")
        if value is None:
            del entries[last]
        elif last == len(entries):
            entries.append(copy.deepcopy(value))
        else:
            entries[last] = copy.deepcopy(value)
    elif not isinstance(here, Mapping):
        raise InvalidInput("there is no such table")
    elif value is None:
        cast(Any, here).pop(last, None)
    else:
        cast(Any, here)[last] = copy.deepcopy(value)


def _new_toml_container(made: object) -> Any:
    return tomlkit.aot() if isinstance(made, list) else tomlkit.table()


def _toml_value(value: Any) -> Any:
    """What a value of the page is in TOML."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        return value
    if isinstance(value, list):
        return [_toml_value(v) for v in cast("list[Any]", value)]
    if not isinstance(value, dict):
        raise InvalidInput("values are texts, whole numbers, lists and tables")
    given = cast("dict[str, Any]", value)
    if set(given) == {"number"}:
        text = str(given["number"]).strip()
        return toml_tables(f"x = {text}")["x"] if _NUMBER.fullmatch(text) else text
    return {str(k): _toml_value(v) for k, v in given.items()}


def _toml_item(value: Any) -> Any:
    """The same, as the editor writes it: numbers keep the digits that were typed."""
    if isinstance(value, list):
        return TextItem(inline_toml(cast("list[Any]", value)))
    if isinstance(value, dict):
        given = cast("dict[str, Any]", value)
        if set(given) == {"number"}:
            text = str(given["number"]).strip()
            return tomlkit.value(text) if _NUMBER.fullmatch(text) else tomlkit.string(text)
        table = tomlkit.table()
        for k, v in given.items():
            table.add(str(k), _toml_item(v))
        return table
    return value if value is None else tomlkit.item(value)


class TextItem(Item):
    """A value by its text, for lists: the editor's own are made anew with every entry that joins them."""

    def __init__(self, text: str) -> None:
        super().__init__(Trivia())
        self._text = text

    def as_string(self) -> str:
        """The text."""
        return self._text

    def unwrap(self) -> Any:
        """The value that the text has."""
        return tomllib.loads(f"x = {self._text}")["x"]

    def _getstate(self, protocol: int = 3) -> tuple[object, ...]:  # of what copies are made
        del protocol
        return (self._text,)


def inline_toml(value: Any) -> str:
    """The TOML of a value on one line; numbers of the page as they were typed."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(inline_toml, cast('list[Any]', value)))}]"
    if isinstance(value, WrittenNumber):
        return value.written
    if not isinstance(value, dict):
        return str(value)
    given = cast("dict[str, Any]", value)
    if set(given) == {"number"}:
        text = str(given["number"]).strip()
        return text if _NUMBER.fullmatch(text) else inline_toml(text)
    return f"{{{', '.join(f'{inline_toml(str(k))} = {inline_toml(v)}' for k, v in given.items())}}}"


def parse_spec(text: str, path: Path) -> Spec:
    """The spec that the text declares. Raises SpecError."""
    return spec_from_root_table(_root_table(text), path)


def import_columns(text: str) -> dict[str, Any]:
    """The tables [schema.NAME] of another tool's schema, as the page has them. Raises SpecError."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "schema.json"
        place.write_text(text, encoding="utf-8")
        columns = import_schema(place)
    return {k: v for k, v in tables_for_page(spec_text(columns)).items() if k == "schema"}


def describe_column(tables: Mapping[str, Any], name: str, folder: Path) -> dict[str, Any]:
    """What one column's declaration gives: cells and labels, or a range, and mock values; or why it gives none."""
    kind = "schema" if name in tables.get("schema", {}) else "measures"
    root = {k: tables[k] for k in ("schema_defaults",) if k in tables} | {kind: {name: tables[kind][name]}}
    text = "\n".join(f"{key} = {inline_toml(value)}" for key, value in root.items())
    declared = _Declared(text, root)
    found = dict(_describe_cached_column(declared, name, str(folder), column_files(root[kind], folder)))
    about = tables.get("data", {})
    if "mock" in found and isinstance(about, dict) and (kind == "measures" or tables[kind][name]["type"] in _NUMERIC):
        marks = cast("dict[str, Any]", about)
        decimal, thousands = str(marks.get("decimal") or "."), str(marks.get("thousands") or "")
        found["mock"] = [number_in_notation(text, decimal, thousands) for text in found["mock"]]
    return found


@dataclass(frozen=True, slots=True)
class _Declared:
    """The tables that declare a column, known by their text."""

    text: str
    tables: dict[str, Any] = field(compare=False)


def column_files(schema: object, folder: Path) -> tuple[tuple[str, int, int], ...]:
    """The files that columns are declared from, each as it is now: what was read of one holds until it is written."""
    columns = cast("dict[str, Any]", schema).values() if isinstance(schema, dict) else ()
    found: list[tuple[str, int, int]] = []
    for column in columns:
        name = cast("dict[str, Any]", column).get("values_from") if isinstance(column, dict) else None
        if isinstance(name, str):
            with contextlib.suppress(OSError, ValueError):
                status = (folder / name).stat()
                found.append((name, status.st_mtime_ns, status.st_size))
    return tuple(found)


@lru_cache(maxsize=4_096)
def _describe_cached_column(
    declared: _Declared, name: str, folder: str, files: tuple[tuple[str, int, int], ...]
) -> tuple[tuple[str, Any], ...]:
    del files  # of the key alone
    try:
        root = parse_toml(declared.text, declared.tables)
        if blanks := root.blanks():
            return (("blank", ", ".join(field_word(where.rpartition(".")[2]) for where, _ in blanks)),)
        domain = read_schema(root, Path(folder))
    except InvalidInput as error:
        said = _LINE.sub("", str(error)).removeprefix(f"schema.{name}").removeprefix(f"measures.{name}").lstrip(".: ")
        if word := missing_field(said):
            return (("blank", word),)
        return (("error", said),)
    attribute = domain[name]
    mock = [safe_text(m) for m in mock_columns(domain, _MOCK_ROWS)[name]]
    if isinstance(attribute, Measure):
        return (("range", range_text(attribute)), ("mock", mock))
    labels = [safe_text(t) for t in attribute.labels[: _SHOWN_LABELS - 1]]
    more = attribute.size - len(labels)
    last = [f"… {more - 1:,} more …"] if more > 1 else []
    shown = [*labels, *last, *([safe_text(attribute.labels[-1])] if more else [])]
    return (("cells", attribute.size), ("labels", shown), ("mock", mock))


def range_text(measure: Measure) -> str:
    """Between what the numbers of a measure lie, and where sums of them are cut."""
    ends = f"{show_number(measure.low)} to {show_number(measure.high)}"
    knots = ", ".join(map(show_number, measure.knots))
    return f"{ends}, cut at {knots}" if knots else ends
