"""Columns without a type of their own (of pandas, of plain lists), read one element at a time.

What numpy or pandas makes of a whole column hangs on its oddest element: one text, one null or one list changes the
type of all others. So the type of such a column decides nothing: every element has a text that depends on itself alone,
and equal numbers have one text however they are stored. Columns of plain numbers are handed on as they are, which reads
the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from sfumato.wall.rows.encoding import UNREADABLE

__all__ = ["plain_column", "text_of", "texts"]

_NUMBERS = (float, complex, np.number, Decimal)
_HUGEINT = 2**127  # integers of DuckDB end there; what is beyond is a double
# A number with more digits than this is written by its exponent: Python refuses to write some, and no double holds it.
_DIGITS = 400


def texts(values: Iterable[Any], decimal: str = ".") -> NDArray[np.object_]:
    """The text of every element: None where it is missing, `UNREADABLE` where it is no text, number, date or boolean.

    Numbers are written with the decimal mark that texts have beside them. Nothing that an element holds can raise, and
    none decides for another.
    """
    found = [value if type(value) is str and value.isascii() else text_of(value, decimal) for value in values]
    out = np.empty(len(found), dtype=object)
    out[:] = found
    return out


def plain_column(column: Any, decimal: str = ".") -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """A pandas column as numbers or texts that DuckDB reads, and which are missing where numbers cannot say it."""
    kind, width = getattr(column.dtype, "kind", "O"), getattr(column.dtype, "itemsize", 0)
    numbers = column.dtype if isinstance(column.dtype, np.dtype) else getattr(column.dtype, "numpy_dtype", None)
    if numbers is None or kind not in "iuf" or (kind == "f" and width not in (4, 8)):
        return texts(column.tolist() if kind == "O" else column, decimal), None
    if isinstance(column.dtype, np.dtype):
        return np.ascontiguousarray(column.to_numpy(), dtype=numbers.newbyteorder("=")), None
    return column.to_numpy(dtype=numbers, na_value=0), np.asarray(column.isna(), dtype=bool)


def text_of(value: Any, decimal: str = ".") -> str | None:
    """The text of one element, whatever it is."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    try:
        found = _known(value)
        if found is None or decimal == "." or not isinstance(value, _NUMBERS):
            return found
        return found.replace(".", decimal)
    except Exception:  # classes of others, and what they hold, may raise anything
        return UNREADABLE


def _known(value: Any) -> str | None:
    if isinstance(value, str):
        str.encode(value)  # raises for surrogates, which are no characters
        return str.__str__(value)
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return _whole(int(value))
    if isinstance(value, (float, np.floating)):
        return _float(value)
    if isinstance(value, (complex, np.complexfloating)) and value.imag == 0:
        # one complex number makes all numbers of a column complex
        return _float(value.real)
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, np.datetime64):
        value = value.astype("M8[us]").item()
    if isinstance(value, datetime):
        return _moment(value)
    if value is None or isinstance(value, (date, time, UUID)):
        return None if value is None else str(value)
    return UNREADABLE


def _whole(value: int) -> str:
    if value.bit_length() > 3 * _DIGITS:
        return f"{'-' if value < 0 else ''}1e{_DIGITS}"
    return str(value)


def _float(value: Any) -> str | None:
    """As DuckDB writes a column of such numbers: whole ones without decimals, the shortest text otherwise."""
    if math.isnan(value):
        return None
    if math.isfinite(value) and value == math.floor(value) and -_HUGEINT <= float(value) < _HUGEINT:
        return str(int(value))
    return float.__repr__(value) if isinstance(value, float) else str(value)


def _decimal(value: Decimal) -> str | None:
    if value.is_nan():
        return None
    if value.is_infinite() or value == 0:
        return "0" if value == 0 else str(float(value))
    if abs(value.adjusted()) > _DIGITS or len(value.as_tuple().digits) > _DIGITS:
        return str(value)
    shown = format(value, "f")
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def _moment(value: datetime) -> str:
    """Date and time, the fraction without needless zeros; pandas counts nanoseconds besides."""
    nanoseconds = value.microsecond * 1000 + int(getattr(value, "nanosecond", 0))
    fraction = f".{nanoseconds:09}".rstrip("0").rstrip(".")
    day = f"{value.year:04}-{value.month:02}-{value.day:02}"
    zone = f"{value:%z}" if value.tzinfo else ""
    return f"{day} {value.hour:02}:{value.minute:02}:{value.second:02}{fraction}{zone}"
