"""Noisy answers to a few queries, and the cells of an exponential family that are nearest to them.

Of all cells p with a given total n, the minimum of 1/2 sum_j (y_j - <q_j, p>)^2 / s_j^2 + t n KL(p/n, uniform) is
p proportional to exp(sum_j a_j q_j), and the a are the minimum of a smooth convex function without constraints:

    n log mean exp(sum_j a_j q_j) - <a, y> + t/2 sum_j s_j^2 a_j^2.

For small t that is the maximum of the likelihood, and among its maxima the one of largest entropy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.operators import LinearOperator
from sfumato.operators.base import FloatArray

__all__ = ["Noisy", "tilted"]

_STEPS = 200


@dataclass(frozen=True, slots=True, eq=False)
class Noisy:
    """values (r,): answers to the rows of an operator over the cells of `axes`, with noise of one variance."""

    axes: tuple[int, ...]
    operator: LinearOperator
    values: FloatArray
    variance: float


def tilted(sizes: tuple[int, ...], total: float, given: Sequence[Noisy], prior: float) -> FloatArray:
    """Cells shaped by `sizes`: the minimum above with t = prior > 0."""
    from scipy.optimize import minimize  # noqa: PLC0415  (heavy)

    ends = np.cumsum([0, *(len(g.values) for g in given)])
    wanted = np.concatenate([g.values for g in given])
    spread = prior * np.concatenate([np.full(len(g.values), g.variance) for g in given])

    def cells(a: FloatArray) -> tuple[FloatArray, float]:
        logs = np.zeros(sizes)
        for g, start, end in zip(given, ends[:-1], ends[1:], strict=True):
            logs += _spread(np.asarray(g.operator.rmatvec(a[start:end])), g.axes, sizes)
        top = float(logs.max())
        weights = np.exp(logs - top)
        mean = float(weights.mean())
        return weights * (total / (mean * weights.size)), math.log(mean) + top

    def value(a: FloatArray) -> tuple[float, FloatArray]:
        found, log_mean = cells(a)
        answers = np.concatenate([np.asarray(g.operator.matvec(_summed(found, g.axes))) for g in given])
        return total * log_mean - float(a @ wanted) + float(a @ (spread * a)) / 2, answers - wanted + spread * a

    best = minimize(value, np.zeros(len(wanted)), jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
    return cells(np.asarray(best.x))[0]


def _summed(cells: FloatArray, axes: tuple[int, ...]) -> FloatArray:
    """The table of some axes, flat, its cells in C order of the axes as given."""
    rest = tuple(i for i in range(cells.ndim) if i not in axes)
    return np.ascontiguousarray(cells.sum(axis=rest).transpose(np.argsort(np.argsort(axes)))).reshape(-1)


def _spread(table: FloatArray, axes: tuple[int, ...], sizes: tuple[int, ...]) -> FloatArray:
    """The transpose of `_summed`, shaped to broadcast over all cells."""
    shaped = table.reshape([sizes[i] for i in axes]).transpose(np.argsort(axes))
    return shaped.reshape([n if i in axes else 1 for i, n in enumerate(sizes)])
