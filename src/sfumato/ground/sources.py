"""Whether two addresses are of one table, so that what must be public is never the table to be protected."""

from __future__ import annotations

import os
from glob import escape, glob
from urllib.parse import unquote, urlsplit

from sfumato.ground.elsewhere import engine

__all__ = ["same_table"]


def same_table(one: str, other: str) -> bool:
    """Whether two sources may be one table, or lie in one file; where an address leaves it open, they may.

    Raises InvalidInput for an address that is none.
    """
    if one == other:
        return True
    mine, theirs = engine(one), engine(other)
    if mine is not None or theirs is not None:
        # a server has several names, so its is not compared
        return mine is not None and type(mine) is type(theirs) and _may_be(mine.table, theirs.table)
    # links and hard links too; what does not exist cannot be read
    return any(os.path.samefile(a, b) for a in _files(one) for b in _files(other))


def _may_be(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether names of tables, from the catalogue to the table, may be of one: what is not said may be anything."""
    return all(a == b or not a or not b for a, b in zip(reversed(one), reversed(other), strict=False))


def _files(address: str) -> list[str]:
    """What is there of a path, of duckdb:///file.db?table=t, of a folder with all that is in it, or of a pattern."""
    path = unquote(urlsplit(address).path.removeprefix("/")) if address.startswith("duckdb:") else address
    if os.path.isdir(path):
        return [path, *glob(os.path.join(escape(path), "**"), recursive=True, include_hidden=True)]
    return [path] if os.path.exists(path) else glob(path, recursive=True)
