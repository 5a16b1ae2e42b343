"""How much noise each residual deserves: the least mean, or the least largest, weighted variance at unit price.

Residual S has noise of deviation s_S and costs p_S / s_S^power, p_S the product of its attributes' prices:
(n - 1)/n for Gaussian noise (power 2) and 2 (n - 1)/n for Laplace noise (power 1) where cells are compared
with their mean [XZK23]; in general the largest column norm of the attribute's contrasts, to the power.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray

__all__ = ["Effect", "max_objective", "sum_objective"]

Names = frozenset[str]

_TOLERANCE = 1e-7
_MAX_ROUNDS = 5_000
_MAX_CONSTRAINTS = 5_000_000


@dataclass(frozen=True, slots=True)
class Effect:
    """What a unit of variance on each residual set adds to the variances of one block's queries.

    Per set, one array of sums of squares per factor of the block (length 1 where constant); the effect
    on a query is the product of its entries. `rows` are the block's rows per factor.
    """

    weight: float
    rows: tuple[int, ...]
    sets: Mapping[Names, tuple[FloatArray, ...]]


def _prices(sets: Sequence[Names], single: Mapping[str, float]) -> FloatArray:
    """p_S of every set."""
    return np.array([math.prod(single[a] for a in s) for s in sets])


def _allocate(values: FloatArray, price: FloatArray, power: int) -> FloatArray:
    """1 / s_S that minimises sum v s^2 subject to sum p / s^power = 1: s^(2 + power) is proportional to p / v."""
    shape = (values / price) ** (1 / (2 + power))
    return shape / (price * shape**power).sum() ** (1 / power)


def sum_objective(weighted: Mapping[Names, float], single: Mapping[str, float], power: int) -> dict[Names, float]:
    """1 / s_S of each residual that minimises sum_S v_S s_S^2 at unit price, in closed form.

    v_S = `weighted[S]` is the weighted error that a unit of variance on residual S causes; `single` are
    the prices of the attributes.
    """
    sets = [s for s, v in weighted.items() if v > 0]
    found = _allocate(np.array([weighted[s] for s in sets]), _prices(sets, single), power)
    return dict(zip(sets, found.tolist(), strict=True))


def max_objective(
    effects: Sequence[Effect], single: Mapping[str, float], power: int
) -> tuple[dict[Names, float], float]:
    """(1 / s_S, proved lower bound): the least largest weighted variance at unit price, by its dual.

    For weights l on the queries (l >= 0, sum 1) the best allocation for the weighted sum is in closed
    form and its value bounds the optimum from below; the variances it gives bound it from above. The
    weights are multiplied by the square of variance over value until the two meet. The bound is on the
    square root of the largest weighted variance, for mechanisms that measure these residuals.
    """
    sets = list(dict.fromkeys(s for e in effects for s in e.sets))
    place = {s: i for i, s in enumerate(sets)}
    matrix = _constraints(effects, place)
    price = _prices(sets, single)
    weights = np.full(matrix.shape[0], 1.0 / matrix.shape[0])
    best_upper, best_lower, best = math.inf, 0.0, np.ones(len(sets))
    exponent = 2.0
    for _ in range(_MAX_ROUNDS):
        precision = _allocate(np.maximum(matrix.T @ weights, 1e-300), price, power)
        variances = matrix @ precision**-2.0
        lower, upper = float(weights @ variances), float(variances.max())
        if upper < best_upper:
            best_upper, best = upper, precision
        exponent = 2.0 if lower >= best_lower else 1.0
        best_lower = max(best_lower, lower)
        if best_upper <= best_lower * (1 + _TOLERANCE):
            break
        weights = weights * (variances / lower) ** exponent
        weights /= weights.sum()
    return dict(zip(sets, best.tolist(), strict=True)), math.sqrt(best_lower) * (1 - 1e-12)


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
