"""Who is asked for what a lower floor does not know. The package tells; nothing is imported before it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

engines: list[Callable[[object], Any]] = []
"""From a source of data to what opens it (a `Stream` of `curator.engines.streams`), or None where it is not theirs."""


def find_engine(source: object) -> Any:
    """Who opens a source that is no file and no frame, or None. Raises InvalidInput for an address that is none."""
    return next((found for ask in engines if (found := ask(source)) is not None), None)
