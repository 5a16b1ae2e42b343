"""How texts are read before they are compared, and how they write days: said once, for declarations and for records.

Whoever reads records has SQL for the same (`curator.rows.encoding`). What Unicode says of letters is Python's here and
in that SQL, which is told letter by letter which capital stands for which.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from datetime import date
from functools import cache

from sfumato.errors import DomainError

BLANKS = " \t\n\v\f\r\u00a0"  # what DuckDB, spreadsheets and keyboards leave around a text
SHARP = ("ß", "ss")  # the one letter in use whose capitals are two: GROSS is Groß, and so is GROẞ
_CASED = range(0x20000)  # beyond are ideographs and signs, which have no capitals
_DIRECTIVES = {"%Y": 4, "%m": 2, "%d": 2}  # digits of each
_DAYTIME = r"(?:[T ]([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9])(?:[.,][0-9]+)?)?"
_ZONE = r"(?:(Z)|([+-])([01][0-9]|2[0-3]):?([0-5][0-9])(?::?([0-5][0-9]))?)?"
_TIME = f"{_DAYTIME}{_ZONE})?"  # of a day: hour, minute, second, Z, sign, hour, minute, second


def normalize_nfc(text: str) -> str:
    """A text in Unicode's form NFC, in which equal letters are equal characters."""
    return unicodedata.normalize("NFC", text)


def comparable_text(text: str, *, trim: bool = False, ignore_case: bool = False) -> str:
    """A text as it is compared: composed, without blanks around it, without capitals."""
    text = normalize_nfc(text)
    if ignore_case:
        small = _small_letters()
        text = normalize_nfc("".join(small.get(c, c) for c in text).replace(*SHARP))
    return text.strip(BLANKS) if trim else text


@cache
def _small_letters() -> dict[str, str]:
    """The small letter of each letter that has another one: one letter for one."""
    found: dict[str, str] = {}
    for char in map(chr, _CASED):
        small = next((s for s in (char.casefold(), char.lower()) if len(s) == 1), char)
        if small != char:
            found[char] = small
    return found


def case_folding_pairs(codes: Iterable[str]) -> tuple[str, str]:
    """The letters that are made small where a text is looked up among these codes, and what they become.

    Others can be in none of the codes, whatever stands around them.
    """
    parts = set(unicodedata.normalize("NFD", "".join(codes)))
    parts |= {SHARP[0]} if "s" in parts else set()
    pairs = [(c, s) for c, s in _small_letters().items() if parts.issuperset(unicodedata.normalize("NFD", s))]
    return "".join(c for c, _ in pairs), "".join(s for _, s in pairs)


def date_format_fields(given: str) -> list[str]:
    """The parts of a format of days: %d, %m and %Y, each once, and what stands between. Raises DomainError."""
    parts = re.split(r"(%.)", given) if type(given) is str else []
    named = parts[1::2]
    if given != "" and (sorted(named) != sorted(_DIRECTIVES) or re.search(r"[0-9%]", "".join(parts[::2]))):
        raise DomainError(
            f"format={given!r} does not say how a day is written: name %d, %m and %Y once each, as in '%d.%m.%Y'"
        )
    if given == "%Y-%d-%m":
        raise DomainError("format='%Y-%d-%m' is read as year-month-day elsewhere; write the days as year-month-day")
    return parts


@cache
def date_pattern(given: str = "%Y-%m-%d", *, strict: bool = False) -> tuple[str, tuple[int, int, int]]:
    """A regular expression of days as a format writes them, and which of its groups are year, month and day.

    A month or a day may be written by one digit where signs part it from others, unless `strict`.
    """
    parts = date_format_fields(given)
    short = not strict and all(parts[2:-1:2])
    digits = {"%Y": "([0-9]{4})"} | dict.fromkeys(("%m", "%d"), "([0-9]{1,2})" if short else "([0-9]{2})")
    written = "".join(digits.get(p) or re.escape(p) for p in parts)
    year, month, day = (parts[1::2].index(name) + 1 for name in ("%Y", "%m", "%d"))
    return written + _TIME, (year, month, day)


def parse_day_number(text: str, format: str = "") -> int | None:
    """The number of the day that a text writes, at UTC where it says how far from that it is; None where it is none."""
    for given, strict in (("%Y-%m-%d", True), (format, False)):
        expression, places = date_pattern(given or "%Y-%m-%d", strict=strict or not given)
        found = re.fullmatch(expression, text.strip(BLANKS), re.ASCII)
        if found is None:
            continue
        try:
            day = date(*(int(found[p]) for p in places)).toordinal()
        except ValueError:
            continue
        hour, minute, second, _, sign, *away = found.groups()[3:]
        distance = sum(int(n or 0) * s for n, s in zip(away, (3600, 60, 1), strict=True))
        seconds = sum(int(n or 0) * s for n, s in zip((hour, minute, second), (3600, 60, 1), strict=True))
        day += (seconds - (distance if sign == "+" else -distance)) // 86_400
        return day if 1 <= day <= date.max.toordinal() else None
    return None
