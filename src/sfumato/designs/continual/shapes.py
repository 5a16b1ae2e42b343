"""Strategies over time with a short memory: buffered linear Toeplitz matrices with scaled rows and columns. [DMPST24]

C = diag(rows) T diag(columns), T of generating function prod (1 - b_i z) / (1 - a_i z), 1 > a_1 > b_1 > a_2 > ... > 0,
so that T and its inverse are sums of d exponentials and all coefficients below the diagonal of T are positive.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from sfumato.designs.continual.fitted import BUFFERS, listed, unending
from sfumato.designs.continual.fitting import Goal, begun, fit
from sfumato.designs.continual.periods import Periods
from sfumato.designs.ordered.fitting import Parameters, row_scale
from sfumato.operators.base import FloatArray

__all__ = ["TimeShape", "shape_for"]

_BUFFERS, _MANY = 6, 2**14
"""Up to so many periods six: eight err less by 1e-4 there, and are found in twice the time."""
_STEPS = 80  # of a search: 40 more gain less than 1e-4


@dataclass(frozen=True, eq=False)
class TimeShape:
    """1 - a_i and 1 - b_i (d,), which alternate and rise, and positive scales of rows (periods,).

    Columns are such that all are of one length; with `alike`, as rows, none is scaled.
    """

    poles: FloatArray
    zeros: FloatArray
    rows: FloatArray
    alike: bool = False


@functools.lru_cache(maxsize=2)
def shape_for(given: Periods) -> TimeShape:
    """A strategy that errs little in what is asked.

    Of one participation rows have scales too, and columns are scaled to one length, which lowers errors at the same
    price; of several all periods are alike, for which the price is known.
    """
    n = given.count
    found = _parameters(given)
    poles, zeros = found.decays
    if given.per_person > 1:
        return TimeShape(poles, zeros, np.ones(n), alike=True)
    return TimeShape(poles, zeros, row_scale(n, found.shape))


def _parameters(given: Periods) -> Parameters:
    """From a table, or found now."""
    n = given.count
    if given.anytime:
        return unending()
    known = listed(n, f"{given.objective} {given.asked}") if given.per_person == 1 else None
    if known is not None:
        return known
    # half the binary digits of the horizon tell its lags apart to 1e-3 of the optimum
    buffers = max(1, min(BUFFERS if n > _MANY else _BUFFERS, math.ceil(math.log2(max(n, 2)) / 2) + 1))
    worst, alike = given.objective == "worst", given.per_person > 1
    goal = Goal(n, given.questions, worst, given.per_person, given.apart, alike)
    longest = max(min(asked.last or n, 1 / (1 - asked.rate) if asked.rate < 1 else n) for asked, _ in given.questions)
    return fit(goal, begun(max(1, min(n, round(longest))), buffers), _STEPS)
