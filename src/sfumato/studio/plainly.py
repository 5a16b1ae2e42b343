"""What is still missing or wrong in a draft, in the words of the page's fields instead of the spec's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from sfumato.domain.predicates import compile_predicate
from sfumato.errors import InvalidInput, SpecError
from sfumato.specs import spec_of
from sfumato.workloads.reading import Section, parse_toml
from sfumato.workloads.schema import read_schema

__all__ = ["absent", "check", "field_word", "still_to_do"]

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
}
_PLACES = {
    "data.source": "where the table is",
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
_ABSENT = re.compile(r"^(?:schema\.(?P<name>.+?): )?(?P<key>\w+) is (?:missing|not declared)\b")


def field_word(key: str) -> str:
    """What a key of a column is called on the page."""
    return _FIELDS.get(key, key)


def absent(said: str) -> str | None:
    """The field that a refusal says is missing, as the page calls it; None for other refusals."""
    found = _ABSENT.match(_LINE.sub("", said))
    if found is None or found["key"] not in _FIELDS:
        return None
    word = _FIELDS[found["key"]]
    return word if found["name"] is None else f"of {found['name']} {word}"


def still_to_do(text: str, said: str) -> str:
    """What people have yet to fill in; of what is otherwise refused, the refusal without its line."""
    places = [where for where, _ in parse_toml(text).blanks()]
    if not places:
        return absent(said) or _LINE.sub("", said)
    return "; ".join(dict.fromkeys(map(_place_word, places)))


def _place_word(where: str) -> str:
    name, _, key = where.removeprefix("schema.").rpartition(".")
    if where.startswith("queries."):
        return "what is asked"
    return _PLACES.get(where) or (f"of {name} {field_word(key)}" if where.startswith("schema.") else where)


def check(text: str, path: Path, about: str, conditions: Sequence[str]) -> None:
    """Refuse a draft for what is wrong in one part of it, whatever else is still missing. Raises InvalidInput.

    `about` is the part's place as refusals name it, such as "stream"; conditions are held against the columns.
    """
    root = parse_toml(text)
    try:
        domain = read_schema(root, path.parent)
    except SpecError as error:  # the other columns are for later
        _refuse(error, about)
    else:
        for condition in conditions:
            compile_predicate(domain, condition)
    _of_spec(root, path, about)


def _of_spec(root: Section, path: Path, about: str) -> None:
    try:
        spec_of(root, path)
    except SpecError as error:
        _refuse(error, about)


def _refuse(error: SpecError, about: str) -> None:
    said = _LINE.sub("", str(error))
    if said == about or said.startswith((f"{about}.", f"{about}:")):
        raise InvalidInput(said.partition(": ")[2].removeprefix("impossible: ") or said) from error
