"""Whether two addresses are of one table, so that what must be public is never the table to be protected."""

from __future__ import annotations

import os
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
    files = _file(one), _file(other)
    # links and hard links too; what does not exist cannot be read
    return all(map(os.path.exists, files)) and os.path.samefile(*files)


def _may_be(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether names of tables, from the catalogue to the table, may be of one: what is not said may be anything."""
    return all(a == b or not a or not b for a, b in zip(reversed(one), reversed(other), strict=False))


def _file(address: str) -> str:
    """The file of a path or of duckdb:///file.db?table=t."""
    return unquote(urlsplit(address).path.removeprefix("/")) if address.startswith("duckdb:") else address
