"""What a plan measures and how it answers, as matrices; and the law of the average error that follows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.errors import PlanError
from sfumato.operators import Block, Combination, Family
from sfumato.operators.base import FloatArray, Numbers, single_thread
from sfumato.strategies.strategy import Strategy, marginalise
from sfumato.workloads import Workload

# Every measured row is answered for by itself, and every cell measured by itself: a second or two at these.
_MOST_SIDE, _MOST_ENTRIES = 2_048, 2**22


class Matrices(NamedTuple):
    """M and R of a plan: R M = F + offset 1ᵀ over the cells of the attributes that are asked about.

    Args:
        measurement: M, (l, m) whole numbers without a common divisor.
        reconstruction: R, (k, l).
        offset: (k,), by how much the answers are shifted where the number n of records is public: they are R M x minus
            n times it. 0 elsewhere.
    """

    measurement: NDArray[np.int64]
    reconstruction: FloatArray
    offset: FloatArray


def strategy_matrices(strategy: Strategy, work: Workload, *, total_known: bool) -> Matrices:
    """M and R of a strategy, by measuring every cell and answering from every measured row.

    Raises PlanError where they are too large, or where tables that are known enter besides.
    """
    if strategy.known:
        raise PlanError("matrices() is for plans without public tables: their counts enter answers beside R and M")
    names = _names_together(work.domain, [*strategy.blocks, *(q.block for q in work.blocks)])
    sizes = work.domain.sizes(names)
    cells, rows, count = math.prod(sizes), [b.rows for b in strategy.blocks], len(work)
    if max(cells, sum(rows)) > _MOST_SIDE or max(cells, count) * sum(rows) > _MOST_ENTRIES:
        raise PlanError(
            f"matrices() lists M of {sum(rows):,} x {cells:,} and R of {count:,} x {sum(rows):,} numbers; up to "
            f"{_MOST_SIDE:,} rows and cells and {_MOST_ENTRIES:,} numbers each. plan.standard_errors() and "
            "plan.covariance() know what follows from them at any size"
        )
    measured = np.empty((sum(rows), cells), dtype=np.int64)
    for j in range(cells):
        cell = np.zeros(cells, dtype=np.int64)
        cell[j] = 1
        measured[:, j] = np.concatenate([marginalise(cell.reshape(sizes), names, b) for b in strategy.blocks])
    divisor = max(1, int(np.gcd.reduce(np.abs(measured), axis=None)))

    def answers(values: Numbers, total: int) -> FloatArray:
        held = strategy.estimate(np.split(values, np.cumsum(rows)[:-1]), total if total_known else None)
        return np.concatenate([strategy.answer(held, q.block) for q in work.blocks])

    units = np.eye(sum(rows))
    back = np.stack([answers(unit, 0) for unit in units], axis=1)
    offset = 0.0 - answers(np.zeros(sum(rows)), 1) if total_known else np.zeros(count)
    return Matrices(measured // divisor, back * divisor, offset)


def _names_together(domain: Domain, blocks: Sequence[Block | Family | Combination]) -> tuple[str, ...]:
    """All attributes that some block is about, in the domain's order."""
    found: set[str] = set()
    for block in blocks:
        if isinstance(block, Family):
            found.update(a for i in range(len(block)) for a in block.set_names(i))
        elif isinstance(block, Combination):
            found.update(a for b in block.blocks for a in b.attributes)
        else:
            found.update(block.attributes)
    return tuple(n for n in domain.names if n in found)


def error_quantile(covariance: FloatArray, confidence: float) -> float:
    """What sqrt(|z|^2 / k) is below with that probability, at least 1/2, for normal z (k,) of that covariance."""
    with single_thread():
        found = np.linalg.eigvalsh(covariance)
    return math.sqrt(quantile_of_squares(np.maximum(found, 0.0), confidence) / len(covariance))


# -- the law of a sum of squares of normal variables ---------------------------------------------------------

_STEP = 0.05  # of the trapezoid rule, in widths of the saddle: halving it changes nothing
_REACH = 8.0  # how far at first, in the same widths
_FALL = 40.0  # the integrand is left out where it is below exp(-40) of its largest
_FLAT = 1e-6  # what rounding may add to a logarithm


def law_of_squares(weights: FloatArray, most: float) -> float:
    """P(sum of w_i z_i^2 > most), the z_i independent and standard normal.

    It is the integral of exp(K(s) - s x) / s over a line to the right of 0, K the cumulant generating function. The
    line goes through the saddle point and is bent to a parabola around the cut that begins at 1 / (2 max w), as far as
    the integrand falls all along it; equal steps then give all digits.
    """
    kept = weights[weights > 1e-14 * weights.max()]
    end = 1 / (2 * float(kept.max()))
    low, high = 0.0, end
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if _slope_and_bend(kept, most, middle)[0] > 0 else (middle, high)
    start = (low + high) / 2
    step = 1 / math.sqrt(_slope_and_bend(kept, most, start)[1])
    # the focus of the widest parabola is where the cut begins
    turn, far = step**2 / (4 * (end - start)), _REACH
    while True:
        nodes = np.arange(0.0, far, _STEP)
        s = start + turn * nodes**2 + 1j * step * nodes
        logs = -s * most - np.log(s)
        for part in np.array_split(kept, math.ceil(len(kept) / 64)):
            logs -= 0.5 * np.log(1 - 2 * np.multiply.outer(s, part)).sum(axis=1)
        if float(logs.real.max()) > float(logs.real[0]) + _FLAT:
            turn /= 2
        elif float(logs.real[-1]) > float(logs.real[0]) - _FALL:
            far *= 2
        else:
            break
    terms = np.exp(logs) * (2 * turn * nodes + 1j * step) / 1j
    # the other half is the conjugate
    found = (terms.sum() - terms[0] / 2) * _STEP / math.pi
    return min(1.0, max(0.0, float(found.real)))


def _slope_and_bend(weights: FloatArray, most: float, s: float) -> tuple[float, float]:
    """The first and second derivative of K(s) - s x - log s."""
    scaled = weights / (1 - 2 * s * weights)
    return float(scaled.sum()) - most - 1 / s, float(2 * (scaled**2).sum()) + 1 / s**2


def quantile_of_squares(weights: FloatArray, probability: float) -> float:
    """The x with P(sum of w_i z_i^2 <= x) = probability, which is at least 1/2."""
    from scipy.optimize import brentq  # noqa: PLC0415  (slow to import)

    mean, largest = float(weights.sum()), float(weights.max())
    if largest <= 0.0:
        return 0.0
    # a median is within a deviation of the mean; beyond the other end, by [LM00], is less than the rest
    length, log = float(np.linalg.norm(weights)), -math.log1p(-probability)
    low = max(0.4 * mean, mean - math.sqrt(2) * length)
    top = mean + 2 * length * math.sqrt(log) + 2 * largest * log + largest
    return float(brentq(lambda x: 1 - law_of_squares(weights, x) - probability, low, top, xtol=1e-12 * top))
