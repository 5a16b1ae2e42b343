"""What is asked over time, after every period: totals, single periods, the last k, decayed sums, all ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray

__all__ = ["Asked", "Question", "asked_of", "question"]

Asked = str | Sequence[str] | Mapping[str, float]
_MOST_WEIGHT = 10**9  # of a question; far apart as these are, the lesser has no influence


@dataclass(frozen=True, slots=True)
class Question:
    """The sum of all periods so far, each `rate` times less than the one after it, or of the `last` alone.

    With `ranges` the sums of all runs of periods that end there.
    """

    rate: float = 1.0
    last: int | None = None
    ranges: bool = False

    def weights(self, periods: int) -> FloatArray:
        """(periods,) how the periods count at the last of them. Raises PlanError for ranges, which are several."""
        if self.ranges:
            raise PlanError("ranges are many questions; say one by plan.between(first, last)")
        lags = np.arange(periods)[::-1]
        return np.where(lags < (self.last or periods), self.rate**lags, 0.0)

    def gram(self, n: int) -> FloatArray:
        """(n, n) the mean over all its questions q of q' q, for n periods."""
        first, second = np.indices((n, n))
        low, high = np.minimum(first, second), np.maximum(first, second)
        if self.ranges:
            return 2.0 * (low + 1) * (n - high) / (n * (n + 1))
        if self.last is not None:
            return np.maximum(0, np.minimum(low + self.last, n) - high) / n
        if self.rate == 1.0:
            return (n - high) / n
        # sum_(t >= high) rate^(2 t - low - high)
        every = (1 - self.rate ** (2.0 * (n - high))) / (1 - self.rate**2)
        return self.rate ** (high - low) * every / n


def question(text: str, periods: int) -> Question:
    """From words; raises PlanError for others, and for more periods than there are."""
    match text.split() if isinstance(text, str) else []:
        case ["totals"]:
            return Question()
        case ["increments"]:
            return Question(rate=0.0)
        case ["ranges"]:
            return Question(ranges=True)
        case ["last", many] if many.isdecimal() and 1 <= int(many) <= periods:
            return Question(last=int(many))
        case ["decayed", rate] if _between(rate):
            return Question(rate=float(rate))
        case _:
            raise PlanError(
                f"a question over time is 'totals', 'increments', 'ranges', 'last 12' (up to {periods:,} periods) or "
                f"'decayed 0.99' (each period that much less than the one after it), not {text!r}"
            )


def _between(rate: str) -> bool:
    try:
        return 0 < Fraction(rate) < 1
    except (ValueError, ZeroDivisionError):
        return False


def asked_of(given: Asked, periods: int) -> tuple[tuple[str, float], ...]:
    """Questions with the weights of their mean variances, from one, several or a mapping. Raises PlanError."""
    if not isinstance(given, str | Sequence | Mapping):
        raise PlanError(f"ask= has one question over time or several, or weights by question, not {given!r}")
    weighed = {given: 1.0} if isinstance(given, str) else given
    pairs = list(weighed.items()) if isinstance(weighed, Mapping) else [(text, 1.0) for text in weighed]
    if not pairs or len({text for text, _ in pairs}) < len(pairs):
        raise PlanError("ask= has one question over time or several, each once")
    for text, weight in pairs:
        question(text, periods)
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= _MOST_WEIGHT:
            raise PlanError(f"the weight of {text!r} is above 0 and at most {_MOST_WEIGHT:,}, not {weight!r}")
    return tuple((text, float(weight)) for text, weight in pairs)
