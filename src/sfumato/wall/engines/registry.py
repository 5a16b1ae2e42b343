"""Every engine by what its addresses begin with: one line each. Its file is imported when it is first asked for."""

from __future__ import annotations

from importlib import import_module

from sfumato.wall.engines.streams import Stream

__all__ = ["STREAMS", "stream"]

STREAMS: dict[str, tuple[str, str]] = {
    "postgresql": ("sfumato.wall.engines.postgres", "Postgres"),
    "postgres": ("sfumato.wall.engines.postgres", "Postgres"),
}
"""Servers that hand over rows, by the scheme of their addresses: module and class of each."""


def stream(source: object) -> Stream | None:
    """The server and the table that an address names; nothing is connected. None for what is no such address.

    Raises InvalidInput, which never quotes the address, where it is not well formed or holds a password.
    """
    scheme, colon, _ = source.partition(":") if isinstance(source, str) else ("", "", "")
    if not colon or scheme.lower() not in STREAMS:
        return None
    module, cls = STREAMS[scheme.lower()]
    return getattr(import_module(module), cls)(source)
