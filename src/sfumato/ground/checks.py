"""Numbers, sizes and files as people declare them: read, refused or shown."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.errors import DomainError, SpecError
from sfumato.ground.names import shorten

__all__ = [
    "Number",
    "check_distinct",
    "read_number",
    "read_text",
    "show_count",
    "show_number",
]

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
