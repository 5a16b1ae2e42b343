"""How much noise each residual deserves: the least mean, or the least largest, weighted variance at unit price.

Residual S has noise of deviation s_S and costs p_S / s_S^power, p_S the product of its attributes' prices:
(n - 1)/n for Gaussian noise (power 2) and 2 (n - 1)/n for Laplace noise (power 1) where cells are compared
with their mean [XZK23]; in general the largest column norm of the attribute's contrasts, to the power. Where
records are replaced, every pair of cells has costs of its own (`replaced`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray

__all__ = [
    "Effect",
    "Found",
    "Rows",
    "Side",
    "least_largest",
    "least_sum",
    "max_objective",
    "precisions",
    "sum_objective",
]

Names = frozenset[str]

_TOLERANCE = 1e-7  # relative gap of two proved sides: far below what a plan shows
_MAX_ROUNDS = 5_000  # what ends here returns both sides, and the plan its distance from the bound
_MAX_CONSTRAINTS = 5_000_000  # queries that differ: 40 MB a vector, several of them in every round
_ROUNDING = 1e-11  # relative, taken off a proved bound: sums of that many terms round less
_LEAST_WEIGHT = 1e-30  # positive, so that a weight can come back; its share of the bound is below rounding
_GAIN, _MOST_PACE = 1.5, 1e4  # a query whose error crosses the value falls back to pace 1; the cap is 23 gains
_PACED_STEP = 2.0  # e^2 a round: what is paced moves at least as far as a query off by that factor, and no farther


@dataclass(frozen=True, slots=True)
class Effect:
    """What a unit of variance on each residual set adds to the variances of one block's queries.

    Per set, one array of sums of squares per factor of the block (length 1 where constant); the effect
    on a query is the product of its entries. `rows` are the block's rows per factor.
    """

    weight: float
    rows: tuple[int, ...]
    sets: Mapping[Names, tuple[FloatArray, ...]]


def least_sum(values: FloatArray, price: FloatArray, power: int) -> FloatArray:
    """s^2 that minimises sum v s^2 subject to sum p / s^power = 1: s^(2 + power) is proportional to p / v.

    What costs nothing is known exactly (0).
    """
    shape = (price / np.maximum(values, 1e-300)) ** (1 / (2 + power))
    paid = price > 0
    return (shape * float((price[paid] / shape[paid] ** power).sum()) ** (1 / power)) ** 2


class Side(Protocol):
    """A matrix of entries of at least 0: a row for every query, or change of a record, a column for every residual."""

    @property
    def count(self) -> int: ...

    def mixed(self, weights: FloatArray) -> FloatArray:
        """(residuals,) the rows weighed."""
        ...

    def each(self, values: FloatArray) -> FloatArray:
        """(count,) the rows applied."""
        ...


@dataclass(frozen=True, slots=True)
class Rows:
    """A side by its matrix, dense or sparse."""

    matrix: Any

    @property
    def count(self) -> int:
        return int(self.matrix.shape[0])

    def mixed(self, weights: FloatArray) -> FloatArray:
        return self.matrix.T @ weights

    def each(self, values: FloatArray) -> FloatArray:
        return self.matrix @ values


@dataclass(frozen=True, slots=True)
class Found:
    """s^2 at unit price, a proved lower bound on the value, the value, and the weights on the changes of a record."""

    squares: FloatArray
    lower: float
    upper: float
    changes: FloatArray


class _Weights:
    """Weights of sum 1, multiplied by powers of ratios; what stays on one side of 1 gains pace, by half every round."""

    def __init__(self, start: FloatArray, exponent: float) -> None:
        self.values, self._exponent = start, exponent
        self._pace, self._side = np.ones(len(start)), np.zeros(len(start))

    def move(self, ratios: FloatArray) -> None:
        if len(self.values) == 1:
            return
        steps = self._exponent * np.log(np.maximum(ratios, _LEAST_WEIGHT))
        self._pace = np.where(np.sign(steps) == self._side, np.minimum(_GAIN * self._pace, _MOST_PACE), 1.0)
        self._side = np.sign(steps)
        most = np.maximum(np.abs(steps), _PACED_STEP)
        logs = np.log(self.values) + np.clip(self._pace * steps, -most, most)
        weights = np.exp(logs - float(logs.max()))
        weights = np.maximum(weights / weights.sum(), _LEAST_WEIGHT)
        self.values = weights / weights.sum()


def least_largest(
    queries: Side, changes: Side, power: int, tolerance: float = _TOLERANCE, start: FloatArray | None = None
) -> Found:
    """The least largest variance of the queries where no change of a record costs more than 1, by its dual.

    `queries` takes s^2 to the variances of the queries, `changes` takes 1 / s^power to what changes cost. For weights
    on the queries and weights on the changes (>= 0, sums 1) the best allocation for the weighted sums is in closed form
    and its value bounds the optimum from below; the largest variance and the largest cost it gives bound it from above.
    The weights are multiplied by powers of variance over value, and of cost, until the two meet within the tolerance.
    Exponents 1 + power/2 and 1 + 2/power are Newton's steps where no two queries, or changes, share a residual.
    """
    asked = _Weights(np.full(queries.count, 1.0 / queries.count), 1 + power / 2)
    paid = _Weights(np.full(changes.count, 1.0 / changes.count) if start is None else start, 1 + 2 / power)
    lower, upper = 0.0, math.inf
    best, where = np.ones(0), paid.values
    for _ in range(_MAX_ROUNDS):
        squares = least_sum(queries.mixed(asked.values), changes.mixed(paid.values), power)
        found = queries.each(squares)
        value, largest = float(asked.values @ found), float(found.max())
        lower = max(lower, value)
        costs = np.ones(1)
        if changes.count > 1:
            costs = changes.each(precisions(squares, power))
            dearest = float(costs.max()) ** (2 / power)
            largest, squares = largest * dearest, squares * dearest
        if largest < upper:
            upper, best, where = largest, squares, paid.values
        if upper <= lower * (1 + tolerance):
            break
        asked.move(found / value)
        paid.move(costs)
    return Found(best, lower * (1 - _ROUNDING), upper, where)


def precisions(squares: FloatArray, power: int) -> FloatArray:
    """1 / s^power; 0 where nothing is measured, as it is known."""
    return np.divide(1, squares, out=np.zeros_like(squares), where=squares > 0) ** (power / 2)


def _prices(sets: Sequence[Names], single: Mapping[str, float]) -> FloatArray:
    """p_S of every set."""
    return np.array([math.prod(single[a] for a in s) for s in sets])


def sum_objective(weighted: Mapping[Names, float], single: Mapping[str, float], power: int) -> dict[Names, float]:
    """1 / s_S of each residual that minimises sum_S v_S s_S^2 at unit price, in closed form.

    v_S = `weighted[S]` is the weighted error that a unit of variance on residual S causes; `single` are
    the prices of the attributes.
    """
    sets = [s for s, v in weighted.items() if v > 0]
    squares = least_sum(np.array([weighted[s] for s in sets]), _prices(sets, single), power)
    return dict(zip(sets, (squares**-0.5).tolist(), strict=True))


def max_objective(
    effects: Sequence[Effect], single: Mapping[str, float], power: int, tolerance: float = _TOLERANCE
) -> tuple[dict[Names, float], float]:
    """(1 / s_S, proved lower bound): the least largest weighted variance at unit price, by its dual.

    The bound is on the square root of the largest weighted variance, for mechanisms that measure these residuals.
    """
    sets = list(dict.fromkeys(s for e in effects for s in e.sets))
    matrix = _constraints(effects, {s: i for i, s in enumerate(sets)})
    found = least_largest(Rows(matrix), Rows(_prices(sets, single)[None]), power, tolerance)
    return dict(zip(sets, (found.squares**-0.5).tolist(), strict=True)), math.sqrt(found.lower)


def _constraints(effects: Sequence[Effect], place: Mapping[Names, int]) -> Any:
    """Sparse (distinct queries, sets): the effect of each set on each query, weighted."""
    from scipy.sparse import coo_array  # noqa: PLC0415  (slow to import)

    rows: list[NDArray[np.int64]] = []
    columns: list[NDArray[np.int64]] = []
    values: list[FloatArray] = []
    start = 0
    for effect in effects:
        shape = tuple(max((len(sums[k]) for sums in effect.sets.values()), default=1) for k in range(len(effect.rows)))
        count = math.prod(shape)
        if start + count > _MAX_CONSTRAINTS:
            raise PlanError(f"more than {_MAX_CONSTRAINTS:,} different queries are too many for objective='max'")
        for names, sums in effect.sets.items():
            table = reduce(np.multiply.outer, sums, np.ones(()))
            rows.append(np.arange(start, start + count))
            columns.append(np.full(count, place[names]))
            values.append(effect.weight * np.broadcast_to(table, shape).reshape(-1))
        start += count
    data = np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))
    return coo_array(data, shape=(start, len(place))).tocsr()
