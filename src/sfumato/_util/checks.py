"""Numbers, sizes and files as people declare them: read, refused or shown."""

from __future__ import annotations

import difflib
import itertools
import math
import os
import unicodedata
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from glob import escape, glob
from os import PathLike
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np

from sfumato._util.bundles import shorten
from sfumato._util.elsewhere import find_engine
from sfumato.errors import DomainError, SpecError

Number = int | float

_MAX_NUMBER = 1e150  # its square is a float still
_MAX_BYTES = 4 * 2**20  # of a text somebody wrote: a thousand times the longest spec seen, and read in no time


def check_distinct(texts: Iterable[str], what: str) -> None:
    """Refuse texts that are equal, or equal but for case, width or accents' composition."""
    seen: dict[str, str] = {}
    for text in texts:
        key = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).strip()
        if key in seen:
            raise DomainError(f"{what} {seen[key]!r} and {text!r} cannot be told apart; rename one")
        seen[key] = text


def read_number(value: object, what: str) -> Number:
    """A finite number as int where it is whole, else as float; numpy's, decimals and fractions are read too."""
    number: Any = value.item() if isinstance(value, (np.integer, np.floating)) else value
    if isinstance(number, (Decimal, Fraction)):
        try:
            close = float(number)
        except (OverflowError, ValueError):
            close = math.nan
        number = int(number) if abs(close) <= _MAX_NUMBER and number == int(number) else close
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not abs(number) <= _MAX_NUMBER:
        raise DomainError(f"{what} must be a finite number, not {shorten(value)}")
    return int(number) if isinstance(number, float) and number.is_integer() and abs(number) < 2**53 else number


def read_text(path: str | PathLike[str], what: str, limit: int = _MAX_BYTES) -> str:
    """The text of a regular UTF-8 file of at most `limit` bytes, with or without a byte order mark."""
    place = Path(path)
    try:
        if not place.is_file():
            raise SpecError(f"{what} {str(place)!r} is no file that can be read")
        with place.open("rb") as handle:
            content = handle.read(limit + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError(f"{what} {str(place)!r} cannot be read: {error}") from error
    if len(content) > limit:
        raise SpecError(f"{what} {str(place)!r} is larger than {limit:,} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SpecError(f"{what} {str(place)!r} is not UTF-8 text; save it as UTF-8", line) from error


def show_number(value: Number) -> str:
    """A number as its shortest exact text."""
    return str(value) if isinstance(value, int) else repr(value)


def show_count(count: int) -> str:
    """A number of cells or queries, as a power of ten where it is too long to read."""
    return f"{count:,}" if count < 10**21 else f"about 10^{math.log10(count):.0f}"


_MAX_COMPARED = 2_000  # names compared with a misspelt one: milliseconds
_MAX_LISTED = 12  # names in an error text: a line or two


def suggest_name(given: str, allowed: Iterable[str]) -> str:
    """For messages: the allowed name most like the given one, and the names that are allowed."""
    names = list(itertools.islice(allowed, _MAX_COMPARED + 1))
    folded = {n.casefold(): n for n in reversed(names)}
    close = difflib.get_close_matches(given[:200].casefold(), folded, n=1)
    listed = ", ".join(repr(n) for n in names[:_MAX_LISTED])
    more = "" if len(names) <= _MAX_LISTED else ", …"
    return (f"did you mean {folded[close[0]]!r}? " if close else "") + f"Allowed: {listed}{more}"


def same_table(one: str, other: str) -> bool:
    """Whether two sources may be one table, or lie in one file; where an address leaves it open, they may.

    Raises InvalidInput for an address that is none.
    """
    if one == other:
        return True
    mine, theirs = find_engine(one), find_engine(other)
    if mine is not None or theirs is not None:
        # a server has several names, so its is not compared
        return mine is not None and type(mine) is type(theirs) and _may_be_same_name(mine.table, theirs.table)
    # links and hard links too; what does not exist cannot be read
    return any(os.path.samefile(a, b) for a in _files_of_source(one) for b in _files_of_source(other))


def _may_be_same_name(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether names of tables, from the catalogue to the table, may be of one: what is not said may be anything."""
    return all(a == b or not a or not b for a, b in zip(reversed(one), reversed(other), strict=False))


def _files_of_source(address: str) -> list[str]:
    """What is there of a path, of duckdb:///file.db?table=t, of a folder with all that is in it, or of a pattern."""
    path = unquote(urlsplit(address).path.removeprefix("/")) if address.startswith("duckdb:") else address
    if os.path.isdir(path):
        return [path, *glob(os.path.join(escape(path), "**"), recursive=True, include_hidden=True)]
    return [path] if os.path.exists(path) else glob(path, recursive=True)
