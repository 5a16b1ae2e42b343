"""Fields that a class gained after values of it were stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, fields
from typing import Any

__all__ = ["before", "later", "told"]

_LATER = "later"


def later(default: object, before: object = None) -> Any:
    """A field with a default, for a class of which values were stored without it.

    While it has its default it is neither stored nor hashed. So a value that was stored before keeps its fingerprint,
    by which a release that was paid for is found again. Where `before` is given, it is that value which is neither
    stored nor hashed, and what a value is read with that was stored without the field: its meaning stays what it was.
    """
    return field(default=default, repr=before is None, metadata={_LATER: default if before is None else before})


def before(cls: Any) -> dict[str, object]:
    """What a class's value has in fields that it was stored without."""
    return {f.name: f.metadata[_LATER] for f in fields(cls) if _LATER in f.metadata}


def told(value: Any) -> Iterator[tuple[str, object]]:
    """The fields of a dataclass's value that are stored, and what they hold."""
    for f in fields(value):
        if not f.init:
            continue
        held = getattr(value, f.name)
        if _LATER in f.metadata and type(held) is type(f.metadata[_LATER]) and held == f.metadata[_LATER]:
            continue
        yield f.name, held
