"""Noisy answers to a few queries, and the cells of an exponential family that are nearest to them.

Of all cells p with a given total n, the minimum of P(p) = 1/2 sum_j (y_j - <q_j, p>)^2 / s_j^2 + t n KL(p/n, uniform)
is p proportional to exp(sum_j a_j q_j), and the a are the minimum of a smooth convex function without constraints:

    D(a) = n log mean exp(sum_j a_j q_j) - <a, y> + t/2 sum_j s_j^2 a_j^2.

For small t that is the maximum of the likelihood, and among its maxima the one of largest entropy. -t D is the dual,
and with p(a) the cells of a the gap is half the squared gradient in units of noise, without any cancellation:

    P(p(a)) + t D(a) = 1/2 sum_j (dD/da_j / s_j)^2,

so every a says how far its cells can be from the optimum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.operators import LinearOperator
from sfumato.operators.base import FloatArray, single_thread

ENOUGH = 1e-9
"""The gap at which the search ends."""
_STEPS = 200  # Newton converges quadratically in the end; what ends here says its gap
_CONJUGATE = 300  # products with the Hessian for one step
_EVALUATIONS = 40  # points along one direction
_ROUNDED = 16 * float(np.finfo(np.float64).eps)
_FORCED, _MET = 0.1, 0.5  # residuals of the Newton system, slopes along a direction: what is left of them


@dataclass(frozen=True, slots=True, eq=False)
class NoisyAnswers:
    """values (r,): answers to the rows of an operator over the cells of `axes`, with noise of one variance."""

    axes: tuple[int, ...]
    operator: LinearOperator
    values: FloatArray
    variance: float


@dataclass(frozen=True, slots=True, eq=False)
class FittedCells:
    """Cells, and how far they can be from the optimum p* of P.

    gap: proved, whatever the search did: 1/2 sum_j <q_j, cells - p*>^2 / s_j^2 + t n KL(cells/n, p*/n) <= gap, and
    P(cells) <= P(p*) + gap. steps: of Newton's method.
    """

    cells: FloatArray
    gap: float
    steps: int

    @property
    def certified(self) -> bool:
        """Whether the gap is at most `ENOUGH`: no answer is a 20,000th of its noise from the optimum's."""
        return self.gap <= ENOUGH


def fit_exponential_family(
    sizes: tuple[int, ...],
    total: float,
    given: Sequence[NoisyAnswers],
    prior: float,
    possible: NDArray[np.bool_] | None = None,
) -> FittedCells:
    """Cells shaped by `sizes`: the minimum above with t = prior > 0, by Newton's method on its dual.

    Of the cells of `possible` alone, over which the prior is uniform, where others can hold no record (None: all can).

    The systems are solved by conjugate gradients, so no array is larger than the cells. Ends at a gap of `ENOUGH`;
    after 200 steps, or where rounding leaves nothing to gain, the gap is stated as it is.
    """
    from scipy.sparse.linalg import LinearOperator as Product  # noqa: PLC0415  (heavy)
    from scipy.sparse.linalg import cg  # noqa: PLC0415

    dual = _Dual(sizes, total, given, prior, possible)
    enough = max(ENOUGH, dual.rounding)
    with single_thread():
        here = best = dual.at(np.zeros(dual.count))
        steps = 0
        while steps < _STEPS and best.gap > enough:
            hessian = Product((dual.count,) * 2, matvec=dual.curvature(here), dtype=np.float64)
            left = min(_FORCED, (2 * here.gap) ** 0.25)
            direction = cg(hessian, -here.slope, rtol=left, atol=0.0, maxiter=_CONJUGATE)[0]
            ahead = _line_search(dual, here, direction)
            if ahead is None:
                break
            steps += 1
            here, best = ahead, min(best, ahead, key=lambda point: point.gap)
    return FittedCells(best.cells, best.gap, steps)


class _DualIterate(NamedTuple):
    """b = s a, the cells of a, and the gradient by b."""

    place: FloatArray
    cells: FloatArray
    slope: FloatArray

    @property
    def gap(self) -> float:
        return float(self.slope @ self.slope) / 2


class _Dual:
    """D as a function of b = s a, in which its gradient is in units of noise."""

    def __init__(
        self,
        sizes: tuple[int, ...],
        total: float,
        given: Sequence[NoisyAnswers],
        prior: float,
        possible: NDArray[np.bool_] | None = None,
    ) -> None:
        self._possible = possible
        self._sizes, self._total, self._given, self._prior = sizes, total, given, prior
        self._ends = np.cumsum([0, *(len(g.values) for g in given)]).tolist()
        self.count: int = self._ends[-1]
        self._wanted = np.concatenate([np.empty(0), *(g.values for g in given)])
        self._noise = np.concatenate([np.empty(0), *(np.full(len(g.values), math.sqrt(g.variance)) for g in given)])

    @property
    def rounding(self) -> float:
        """A gap that the rounding of the largest numbers in a gradient may leave."""
        return float(((_ROUNDED * self._wanted / self._noise) ** 2).sum()) / 2

    def at(self, place: FloatArray) -> _DualIterate:
        logs = self._back(place)
        if self._possible is not None:
            logs = np.where(self._possible, logs, -math.inf)
        weights = np.exp(logs - logs.max())
        cells = weights * (self._total / weights.sum())
        return _DualIterate(place, cells, self._answers(cells) - self._wanted / self._noise + self._prior * place)

    def curvature(self, point: _DualIterate) -> Callable[[FloatArray], FloatArray]:
        """v -> H v at a point: the covariance of the queries under its cells, and t."""
        cells, total, prior = point.cells, self._total, self._prior

        def product(v: FloatArray) -> FloatArray:
            v = np.asarray(v, dtype=np.float64).reshape(-1)
            along = self._back(v)
            mean = float(np.vdot(cells, along)) / total if total > 0 else 0.0
            return self._answers(cells * (along - mean)) + prior * v

        return product

    def _back(self, place: FloatArray) -> FloatArray:
        """The logarithms of cells, up to a constant."""
        scaled, logs = place / self._noise, np.zeros(self._sizes)
        for g, start, end in zip(self._given, self._ends[:-1], self._ends[1:], strict=True):
            logs += _broadcast_table(np.asarray(g.operator.rmatvec(scaled[start:end])), g.axes, self._sizes)
        return logs

    def _answers(self, cells: FloatArray) -> FloatArray:
        """Answers in units of their noise, the transpose of `_back`."""
        found = [np.asarray(g.operator.matvec(_table_of_axes(cells, g.axes))) for g in self._given]
        return np.concatenate([np.empty(0), *found]) / self._noise


def _line_search(dual: _Dual, start: _DualIterate, direction: FloatArray) -> _DualIterate | None:
    """A point along the direction at which D is lower: where its slope is at most half of what it was, or before that.

    The slope grows along the way, for D is convex, and unlike D it keeps its digits: so it alone is evaluated. None
    where rounding hides it.
    """
    first = float(start.slope @ direction)
    low, below, high, above, share = 0.0, first, math.inf, math.inf, 1.0
    found: _DualIterate | None = None
    if not first < 0:
        return None
    for i in range(_EVALUATIONS):
        point = dual.at(start.place + share * direction)
        slope = float(point.slope @ direction)
        if abs(slope) <= -_MET * first:
            return point
        if slope < 0:
            low, below, found = share, slope, point
        else:
            high, above = share, slope
        if high == math.inf:
            share *= 2
            continue
        width = high - low
        # in turn the secant, which is fast where D is nearly quadratic, and the middle, which is safe
        secant = low - width * below / (above - below)
        share = min(max(secant, low + 0.1 * width), high - 0.1 * width) if i % 2 else low + width / 2
    return found


def _table_of_axes(cells: FloatArray, axes: tuple[int, ...]) -> FloatArray:
    """The table of some axes, flat, its cells in C order of the axes as given."""
    rest = tuple(i for i in range(cells.ndim) if i not in axes)
    return np.ascontiguousarray(cells.sum(axis=rest).transpose(np.argsort(np.argsort(axes)))).reshape(-1)


def _broadcast_table(table: FloatArray, axes: tuple[int, ...], sizes: tuple[int, ...]) -> FloatArray:
    """The transpose of `_summed`, shaped to broadcast over all cells."""
    shaped = table.reshape([sizes[i] for i in axes]).transpose(np.argsort(axes))
    return shaped.reshape([n if i in axes else 1 for i, n in enumerate(sizes)])
