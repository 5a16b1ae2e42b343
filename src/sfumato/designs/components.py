"""Components of queries and tables on residual spaces: what belongs to exactly which attributes.

A table over attributes is the sum, over their subsets T, of a part that varies along T and is spread evenly,
or by a tilt, over the rest. These are the parts, and the way back from an attribute's contrasts to its cells.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from sfumato.errors import PlanError
from sfumato.operators import Identity
from sfumato.operators.base import FloatArray, LinearOperator

__all__ = ["Lift", "along", "component", "component_powers", "unit_powers"]

_MAX_CONDITION = 1e8  # half of the digits of a double are then left to the inverse
# the square of 1e-13, some hundreds of roundings: queries that are blind to the tilt are exactly so
_SQUARED_ZERO = 1e-26


@dataclass(frozen=True, slots=True)
class Lift:
    """The way back from the integer contrasts B of one attribute: [1ᵀ; B]^-1 = [t | P / scale].

    `scale` is the length of B's longest column, so that the contrasts B / scale have unit price. t: (n,);
    P: (n, n - 1). Without a lift the contrasts are n I - J, t is 1/n and P the centring, scale n.
    """

    tilt: FloatArray
    spread: FloatArray
    scale: float

    @classmethod
    def of(cls, contrast: LinearOperator) -> Lift:
        """Raises PlanError where the contrasts and the total do not determine the cells."""
        rows, n = contrast.shape
        if rows != n - 1 or not contrast.integral:
            raise PlanError(f"{n} cells need {n - 1} integer contrasts, not {contrast!r}")
        dense = np.asarray(contrast.dense(), dtype=np.float64)
        scale = math.sqrt(float((dense**2).sum(axis=0).max()))
        # the row of ones at the scale of the rest
        square = np.concatenate([np.ones((1, n)), dense / max(scale, 1.0)])
        if np.linalg.cond(square) > _MAX_CONDITION:
            raise PlanError("the contrasts and the total do not determine the cells well enough")
        inverse = np.asarray(np.linalg.inv(square), dtype=np.float64)
        return cls(inverse[:, 0], inverse[:, 1:], max(scale, 1.0))


def component_powers(
    factor: LinearOperator, sizes: Sequence[int], power: int, lifts: Sequence[Lift | None] | None = None
) -> dict[tuple[int, ...], FloatArray]:
    """For every subset T of a factor's attributes: sums of |entry|^power (2 or 4) of each row's component on T.

    The component on T of a row w is w (⊗_T P ⊗_rest t), over the contrasts of T. (rows,) or (1,) arrays.
    """
    lifts = (None,) * len(sizes) if lifts is None else lifts
    if isinstance(factor, Identity):
        own = [unit_powers(n, lift, power) for n, lift in zip(sizes, lifts, strict=True)]
        alike = all(len(v) == 1 for pair in own for v in pair)
        out: dict[tuple[int, ...], FloatArray] = {}
        for t in _index_subsets(len(sizes)):
            chosen = [pair[i in t] for i, pair in enumerate(own)]
            if not alike:
                chosen = [np.broadcast_to(v, (n,)) for v, n in zip(chosen, sizes, strict=True)]
            out[t] = reduce(np.multiply.outer, chosen, np.ones(())).reshape(-1)
        return out
    if len(sizes) == 1:
        return _single_powers(factor, sizes[0], power, lifts[0])
    return _joint_powers(factor, sizes, power, lifts)


def unit_powers(n: int, lift: Lift | None, power: int) -> tuple[FloatArray, FloatArray]:
    """Of every cell's unit vector: the power of its mean, and of its contrasts."""
    if lift is not None:
        return np.abs(lift.tilt) ** power, (np.abs(lift.spread) ** power).sum(axis=1)
    mean = float(n) ** -power
    return np.array([mean]), np.array([(1 - 1 / n) ** power + (n - 1) * mean])


def _single_powers(factor: LinearOperator, n: int, power: int, lift: Lift | None) -> dict[tuple[int, ...], FloatArray]:
    mean = factor.row_sums(1) / n
    second = factor.row_sums(2)
    variation = second - n * mean**2
    if lift is not None:
        tilted = np.asarray(factor.matvec(lift.tilt), dtype=np.float64)
        tilted[tilted**2 <= _SQUARED_ZERO * second * float(lift.tilt @ lift.tilt)] = 0.0
        contrast = np.empty(len(second))
        if power == 2:
            contrast = np.maximum(factor.row_forms(lift.spread @ lift.spread.T), 0.0)
        else:
            for a, b in factor.row_chunks():
                contrast[a:b] = ((factor.rows(a, b) @ lift.spread) ** power).sum(axis=1)
        # a row has no contrasts where it is constant, whatever the tilt
        return {(): tilted**power, (0,): np.where(variation <= 1e-13 * second, 0.0, contrast)}
    contrast = variation
    if power == 4:
        third, fourth = factor.row_sums(3), factor.row_sums(4)
        contrast = fourth - 4 * mean * third + 6 * mean**2 * second - 3 * n * mean**4
    noise = 1e-13 * (second if power == 2 else second**2)
    return {(): mean**power, (0,): np.where(contrast <= noise, 0.0, contrast)}


def _joint_powers(
    factor: LinearOperator, sizes: Sequence[int], power: int, lifts: Sequence[Lift | None]
) -> dict[tuple[int, ...], FloatArray]:
    out = {t: np.empty(factor.shape[0]) for t in _index_subsets(len(sizes))}
    for a, b in factor.row_chunks():
        table = factor.rows(a, b).reshape(b - a, *sizes)
        largest = np.abs(table).reshape(b - a, -1).max(axis=1)
        for t in out:
            part = table
            for axis, lift in enumerate(lifts):
                part = component(part, axis + 1, lift, contrast=axis in t)
            flat = np.abs(part.reshape(b - a, -1))
            powers = (flat**power).sum(axis=1)
            powers[flat.max(axis=1) <= 1e-12 * largest] = 0.0
            out[t][a:b] = powers
    return out


def component(table: FloatArray, axis: int, lift: Lift | None, *, contrast: bool) -> FloatArray:
    if lift is None:
        mean = table.mean(axis=axis, keepdims=True)
        return table - mean if contrast else mean
    return along(table, axis, lift.spread.T if contrast else lift.tilt[None, :])


def along(table: FloatArray, axis: int, matrix: FloatArray) -> FloatArray:
    """A matrix applied along one axis."""
    return np.moveaxis(np.tensordot(matrix, table, axes=(1, axis)), 0, axis)


def _index_subsets(count: int) -> Iterator[tuple[int, ...]]:
    return itertools.chain.from_iterable(itertools.combinations(range(count), r) for r in range(count + 1))
