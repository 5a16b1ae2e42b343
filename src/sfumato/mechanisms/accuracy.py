"""The accuracy that a number of records is wanted for, as mechanisms are asked for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from sfumato.errors import PlanError
from sfumato.mechanisms.mechanism import Request
from sfumato.mechanisms.tables import Tables
from sfumato.plans.plan import Plan

__all__ = ["Need"]

_MOST = 2**52  # records: below it floats are exact whole numbers


@dataclass(frozen=True, slots=True)
class Need:
    """Errors of at most a share of the records: the rmse, or with `largest` all together but with probability beta."""

    asked: Request
    share: float
    largest: bool
    beta: float

    def planned(self, value: Tables, records: int | None) -> Plan:
        """The plan for so many records."""
        return value.plan(replace(self.asked, records=records))

    def error(self, made: Plan) -> float:
        """The error of a plan, in records."""
        if not self.largest:
            assert made.rmse is not None  # of one unit, as `sf.records_for` sees to
            return made.rmse
        return max(float(m.max()) for m in made.entry_margins(1 - self.beta, simultaneous=True))

    def least(self, holds: Callable[[int], bool], near: float) -> int:
        """The least n of which a property holds that large ones have, but for that share of it; by halving."""
        low, high = 0, 1
        while not holds(high):
            low, high = high, (8 if near else 2) * high
            if high > _MOST:
                raise PlanError(f"no number of records up to {_MOST:,} reaches this error under this budget")
        while high - low > max(1, int(near * high)):
            middle = math.isqrt(low * high) if 2 * low < high and low else (low + high) // 2
            low, high = (low, middle) if holds(middle) else (middle, high)
        return high
