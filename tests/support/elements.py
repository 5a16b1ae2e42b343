"""Elements of lists and frames that are odd in every way that was thought of."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd


class Odd:
    """Raises wherever it can."""

    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__  # type: ignore[assignment]
    __eq__ = __hash__ = __len__ = __float__ = __int__ = __bool__ = __str__  # type: ignore[assignment]


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "other"


OBJECTS: list[Any] = [
    *(None, math.nan, pd.NA, pd.NaT, np.float64("nan"), Decimal("NaN"), np.datetime64("NaT", "s")),
    *(
        True,
        False,
        np.True_,
        1,
        0,
        7,
        -3,
        np.int8(7),
        np.uint64(7),
        1.0,
        -0.0,
        0.1,
        7.0,
        math.inf,
        1e22,
        2**70,
        10**5000,
    ),
    *(Decimal("1.0"), Decimal("0.10"), Decimal("7E0"), Decimal("1E+500"), Decimal("Infinity"), 1 + 0j, 1 + 1j),
    *(date(2001, 2, 3), datetime(2001, 2, 3), datetime(2001, 2, 3, 4, 5, 6, 500), datetime(2001, 2, 3, tzinfo=UTC)),
    *(pd.Timestamp("2001-02-03"), np.datetime64("2001-02-03", "us"), timedelta(1), time(1), UUID(int=1)),
    *(
        b"1",
        bytearray(b"1"),
        [1],
        [],
        {"x": 1},
        (1,),
        {1},
        object,
        range(3),
        Text("a"),
        np.str_("a"),
        pd.Interval(0, 1),
    ),
]
