"""Fields that a class gained after values of it were stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, fields
from typing import Any

__all__ = ["later", "told"]

_LATER = "later"


def later(default: object) -> Any:
    """A field with a default, for a class of which values were stored without it.

    While it has its default it is neither stored nor hashed. So a value that was stored before keeps its fingerprint,
    by which a release that was paid for is found again.
    """
    return field(default=default, metadata={_LATER: True})


def told(value: Any) -> Iterator[tuple[str, object]]:
    """The fields of a dataclass's value that are stored, and what they hold."""
    for f in fields(value):
        if not f.init:
            continue
        held = getattr(value, f.name)
        if _LATER in f.metadata and type(held) is type(f.default) and held == f.default:
            continue
        yield f.name, held
