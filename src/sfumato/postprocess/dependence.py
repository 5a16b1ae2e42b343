"""How much two columns depend on each other, from the noisy counts of a small table of both.

Told is Cramér's V of the table: 0 where each column says nothing of the other, 1 where the one with fewer cells follows
from the other. Noise alone makes a table depend, so what noise adds is taken off, and an interval says what is left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from sfumato.operators.base import FloatArray

_LEAST_SHARE = 0.03  # of the records that a row or column of the table has; of fewer, noise is divided by very little
_SURE = 4.0  # standard errors, likewise


@dataclass(frozen=True, slots=True)
class Dependence:
    """Cramér's V of a table, and an interval of it; all from 0 to 1."""

    value: float
    low: float
    high: float


def _spread(shares: FloatArray) -> FloatArray:
    """The squared lengths by which one side of a table passes noise on, when both margins are taken off."""
    away = (np.eye(len(shares)) - np.outer(shares, np.ones(len(shares)))) / np.sqrt(shares)[:, None]
    return np.maximum(np.linalg.eigvalsh(away @ away.T), 0.0)


def noise_length(weights: FloatArray, miss: float) -> float:
    """A length that sum weights_i N_i^2 exceeds, as a square, with about a probability; by its first two moments."""
    mean, variance = float(weights.sum()), 2 * float(np.square(weights).sum())
    shape = mean**2 / variance
    return math.sqrt(float(gammaincinv(shape, 1 - miss)) * variance / mean)


def kept_cells(counts: FloatArray, variance: float) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The places of the rows, and of the columns, that have records enough to be compared."""
    rows, columns = counts.shape
    least = [max(_LEAST_SHARE * float(counts.sum()), _SURE * math.sqrt(variance * n)) for n in (columns, rows)]
    return np.flatnonzero(counts.sum(axis=1) >= least[0]), np.flatnonzero(counts.sum(axis=0) >= least[1])


def cramers_v(counts: FloatArray, variance: float, miss: float) -> Dependence | None:
    """Cramér's V of a table from its noisy counts.

    With p, q the shares of rows and columns, the table is compared with n p q', and each cell's difference divided by
    the root of what it is compared with. The margins are those of the noisy table, so noise Z comes through as
    (I - p 1') Z (I - 1 q'). What this adds to the sum of squares is taken off for the value. The interval is that of
    the length, by the triangle inequality, so it holds with more than its probability.

    Args:
        counts: (a, b) noisy counts.
        variance: That of the noise of each.
        miss: The probability with which the interval may miss the V of the exact table.

    Returns:
        V, or None where fewer than two rows or columns have records enough.
    """
    counts = counts[np.ix_(*kept_cells(counts, variance))]
    total = float(counts.sum())
    if min(counts.shape) < 2 or total <= 0:
        return None
    p, q = counts.sum(axis=1) / total, counts.sum(axis=0) / total
    if min(p.min(), q.min()) <= 0:
        return None
    expected = total * np.outer(p, q)
    length = math.sqrt(float(np.square((counts - expected) / np.sqrt(expected)).sum()))
    weights = np.outer(_spread(p), _spread(q)).ravel() * variance / total
    radius, whole = noise_length(weights, miss), math.sqrt(total * (min(counts.shape) - 1))
    left = math.sqrt(max(0.0, length**2 - float(weights.sum())))
    return Dependence(*(min(1.0, max(0.0, x / whole)) for x in (left, length - radius, length + radius)))


def least_dependence(records: int, cells: int, variance: float, miss: float) -> float:
    """The V from which two columns of so many equal cells surely depend, in half of the looks."""
    weights = np.full((cells - 1) ** 2, cells**2 * variance / records)
    return noise_length(weights, miss) / math.sqrt(records * (cells - 1))


def quarter_edges(edges: Sequence[float], upto: FloatArray) -> tuple[float, ...]:
    """Of the edges of cells the first, those nearest to the quartiles, and the last; upto: counts up to each cell."""
    inner = np.arange(1, len(edges) - 1)
    if not len(inner):
        return tuple(edges)
    cuts = {int(inner[np.argmin(np.abs(upto[:-1] - p * upto[-1]))]) for p in (0.25, 0.5, 0.75)}
    return (edges[0], *(edges[i] for i in sorted(cuts)), edges[-1])
