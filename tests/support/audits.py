"""An audit from outside: samples of two worlds, an event, and a proved bound of what it betrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, norm

__all__ = ["ALPHA", "Feature", "Worlds", "audit", "bounds", "gaussian", "pure"]

ALPHA = 5e-11

Worlds = tuple[NDArray[Any], NDArray[Any]]
Feature = Callable[[NDArray[Any]], NDArray[Any]]


def bounds(hits: int, of: int) -> tuple[float, float]:
    """Clopper-Pearson: each bound is wrong with probability at most ALPHA."""
    low = beta.ppf(ALPHA, hits, of - hits + 1) if hits else 0.0
    high = beta.isf(ALPHA, hits + 1, of - hits) if hits < of else 1.0
    return float(low), float(high)


def pure(p: float, q: float) -> float:
    """The epsilon without which an event cannot have probability p in one world and q in the other."""
    return float(np.log(p / q)) if p > q else 0.0


def gaussian(p: float, q: float) -> float:
    """The mu without which it cannot."""
    return float(norm.ppf(p) - norm.ppf(q)) if p > q else 0.0


def audit(worlds: Worlds, loss: Callable[[float, float], float], features: tuple[Feature, ...]) -> float:
    """A proved lower bound on the parameter of the mechanism (confidence 1 - 2 ALPHA).

    Events are "a feature is at least t" and their complements, in either direction.
    """
    tables = [[np.asarray(f(w)) for w in worlds] for f in features]
    half = len(worlds[0]) // 2
    best: tuple[float, Any] = (-np.inf, None)
    for table in tables:
        cuts = np.unique(
            np.quantile(np.concatenate([t[:half] for t in table]), np.linspace(0, 1, 60)[1:], method="higher")
        )
        for cut in cuts:
            for one, other in (table, table[::-1]):
                for above in (True, False):
                    p, q = (((t[:half] >= cut) == above).sum() for t in (one, other))
                    worth = loss(bounds(int(p), half)[0], bounds(int(q), half)[1])
                    best = max(best, (worth, (one, other, cut, above)), key=lambda b: b[0])
    one, other, cut, above = best[1]
    p, q = (int(((t[half:] >= cut) == above).sum()) for t in (one, other))
    return loss(bounds(p, len(one) - half)[0], bounds(q, len(one) - half)[1])
