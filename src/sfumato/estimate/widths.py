"""How far projection will help, before any data: the width of the body against the noise. [NTZ13]

For h in the simplex times n and noise Z of mean 0 the projection P onto n conv(F_j) has
E |P - F h|^2 <= n E max_j <F_j, Z>, whatever h is; and it is never farther than the noisy answers are. So its mean
squared error is at most the least of the noise's own, n w / k with the width w = E max_j <F_j, Z>, and the
noise's within the span of the differences of the columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from sfumato.codec import storable
from sfumato.operators import LinearOperator
from sfumato.operators.base import FloatArray

__all__ = ["Forecast", "column_width", "forecast"]

_MARGIN = 3.0


@storable
@dataclass(frozen=True, slots=True)
class Forecast:
    """What is known of the projected error of k answers before data, in the answers' units.

    raw: root mean squared error of the unprojected answers. width: E max_j <F_j, Z> over the body's corners,
    `width_error` its standard error where it was simulated, 0 where it is a proved bound. span: the error of
    noise within the span of the body, where that is known. records: the number of records, where it is given.
    """

    queries: int
    raw: float
    width: float | None
    width_error: float = 0.0
    span: float | None = None
    records: int | None = None

    def at(self, records: int | None) -> Forecast:
        """The same for another number of records."""
        return replace(self, records=records)

    @property
    def bound(self) -> float | None:
        """The width's bound on the expected root mean squared error at that number of records; None where unknown.

        A simulated width counts with three standard errors added.
        """
        if self.width is None or self.records is None:
            return None
        return math.sqrt(self.records * (self.width + _MARGIN * self.width_error) / self.queries)

    @property
    def rmse(self) -> float:
        """The least of the bounds: what is predicted at most."""
        return min(x for x in (self.raw, self.bound, self.span) if x is not None)

    @property
    def crossover(self) -> float | None:
        """The number of records below which the width's bound lies below the noise: where projection must help."""
        if self.width is None or self.width <= 0:
            return None
        return self.queries * self.raw**2 / (self.width + _MARGIN * self.width_error)

    @property
    def verdict(self) -> str:
        """ "predicted to help", "cannot hurt" or "unknown", with the reason."""
        here = self.rmse
        if here < 0.99 * self.raw:
            return f"projection is predicted to help: rmse at most {here:,.4g} against {self.raw:,.4g} without"
        if self.crossover is None:
            return "what projection gains is unknown: no width of its body is known; it cannot hurt in its norm"
        limit = f"below about {self.crossover:,.3g} records it is proved to help"
        if self.records is None:
            return f"what projection gains depends on the number of records: {limit}; give records= for a figure"
        return f"projection cannot hurt; {limit}, and at {self.records:,} it helps where counts are near their bounds"


def column_width(operator: LinearOperator, draws: Callable[[int], FloatArray], count: int = 256) -> tuple[float, float]:
    """E max_j <F_j, Z> with its standard error, from `count` draws of the noise; draws(c) is (k, c)."""
    found: list[FloatArray] = []
    at_once = max(1, min(count, 2**24 // max(operator.shape)))
    for start in range(0, count, at_once):
        noise = draws(min(at_once, count - start))
        found.append(np.asarray(operator.rmatvec(noise), dtype=np.float64).max(axis=0))
    largest = np.concatenate(found)
    return float(largest.mean()), float(largest.std(ddof=1) / math.sqrt(len(largest)))


def forecast(
    operator: LinearOperator,
    draws: Callable[[int], FloatArray],
    raw: float,
    records: int | None,
    span: float | None = None,
    count: int = 256,
) -> Forecast:
    """The forecast for the hull of the columns of an operator (k, m), the width by simulation."""
    width, error = column_width(operator, draws, count)
    return Forecast(operator.shape[0], raw, max(width, 0.0), error, span, records)
