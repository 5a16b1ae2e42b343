"""Every engine by what its addresses begin with, or by the package of its tables: one line each.

Its file is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from sfumato.curator.rows.written import source_of

ENGINES: dict[str, tuple[str, str]] = {
    "postgresql": ("sfumato.curator.engines.postgres", "Postgres"),
    "postgres": ("sfumato.curator.engines.postgres", "Postgres"),
    "spark": ("sfumato.curator.engines.spark", "Spark"),
    "pyspark": ("sfumato.curator.engines.spark", "Spark"),
}
"""Module and class of each: a `Stream` (streams.py) or an `Engine` (partitions.py)."""


def engine(source: object) -> Any:
    """Who opens a table; nothing is connected. None for what is nobody's.

    Raises InvalidInput, which never quotes an address, where one is not well formed or holds a password.
    """
    source = (given := source_of(source)).table
    if isinstance(source, str):
        scheme, colon, _ = source.partition(":")
        name = scheme.lower() if colon else ""
    else:
        name = type(source).__module__.partition(".")[0]
    if name not in ENGINES or (not isinstance(source, str)) != (name == "pyspark"):
        return None
    module, cls = ENGINES[name]
    made = getattr(import_module(module), cls)(source)
    made.notation = given.numbers(made.label)
    return made
