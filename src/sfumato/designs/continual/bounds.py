"""What no unbiased answers over time err less than: for noise of deviation 1 and columns of length 1."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from sfumato.designs.continual.questions import Question
from sfumato.designs.ordered.series import prefix_bound, range_bound
from sfumato.operators.base import FloatArray
from sfumato.operators.blas import single_thread

__all__ = ["DENSE", "dense_bound", "mean_bound", "optimal_gram"]

DENSE = 384  # periods up to which questions have a bound of decompositions: a dozen, half a second
_STEPS = 12  # the first is the bound of singular values, the last within 1e-4 of the best
_OPTIMAL = 25  # after as many the error of 1,024 periods is within 1e-4 of the bound
_TURNS, _NEAR = 100, 1e-14  # of an iteration, of which some three are enough but for the lowest roots; relative
_CARE = 1e-11  # relative, for the rounding of sums and decompositions


def mean_bound(asked: Sequence[tuple[Question, float]], periods: int) -> float | None:
    """Of the root mean squared error of all questions, weighted; None where none is known.

    For (Q'Q) = G it is tr (L G L)^(1/2), L diagonal with sum of squares 1: what any strategy errs with columns weighted
    so. With all alike, the sum of the singular values of Q. [LHR10, HUU23]
    """
    if periods <= DENSE:
        return dense_bound(asked, periods)
    # those bound the root of the sum over all questions
    if [question for question, _ in asked] == [Question()]:
        return prefix_bound(periods) / math.sqrt(periods) * (1 - _CARE)
    if [question for question, _ in asked] == [Question(ranges=True)]:
        return range_bound(periods) / math.sqrt(periods * (periods + 1) / 2) * (1 - _CARE)
    if len(asked) == 1 and asked[0][0].last is None and asked[0][0].rate < 1 and not asked[0][0].ranges:
        return _decayed_bound(periods, asked[0][0].rate)
    return None


def _decayed_bound(periods: int, rate: float) -> float | None:
    """The mean singular value of sums that decay: sigma^-2 are the eigenvalues 1 + rate^2 - 2 rate cos f of a matrix
    with three diagonals and a 1 in its corner, whose f are the roots of sin (n + 1) f = rate sin n f."""
    turns = np.pi * np.arange(1, periods + 1)
    found = turns / (periods + 1)
    left = np.arange(periods)
    for _ in range(_TURNS):
        here = found[left]
        better = (turns[left] - np.arctan2(rate * np.sin(here), 1 - rate * np.cos(here))) / (periods + 1)
        found[left] = better
        left = left[abs(better - here) > _NEAR * here]
        if not left.size:
            squares = (1 - rate) ** 2 + 4 * rate * np.sin(found / 2) ** 2
            return float((1 / np.sqrt(squares)).mean()) * (1 - _CARE)
    return None


def dense_bound(asked: Sequence[tuple[Question, float]], periods: int, steps: int = _STEPS) -> float:
    """The same from (periods, periods) matrices; the best of some L, each a better one than before."""
    return max(value for value, _ in _descent(asked, periods, steps)) * (1 - _CARE)


def optimal_gram(asked: Sequence[tuple[Question, float]], periods: int) -> FloatArray:
    """(periods, periods) C'C of a strategy that errs least in the mean, to 1e-4 or less, its diagonal all 1."""
    gram = [found for _, found in _descent(asked, periods, _OPTIMAL)][-1]
    lengths = np.sqrt(np.diagonal(gram))
    return gram / lengths[:, None] / lengths


def _descent(asked: Sequence[tuple[Question, float]], periods: int, steps: int) -> Iterator[tuple[float, FloatArray]]:
    """Bounds, and the strategies that they are the errors of where columns may weigh differently."""
    gram = sum((weight * question.gram(periods) for question, weight in asked), np.zeros((periods, periods)))
    shares: FloatArray = np.full(periods, 1 / periods)
    with single_thread():
        for _ in range(steps):
            scale = np.sqrt(shares)
            values, vectors = np.linalg.eigh(scale[:, None] * gram * scale)
            roots = np.sqrt(np.maximum(values, 0.0))
            yield float(roots.sum()), (vectors * roots) @ vectors.T / scale[:, None] / scale
            shares = (vectors**2 @ roots) / roots.sum()
