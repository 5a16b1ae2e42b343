"""The best noise for marginal tables, however many: the least mean, or the least largest, weighted variance.

Residual S (contrasts n I - J over the attributes of S) has noise of deviation s_S and costs p_S / s_S^power.
Every cell of table A then has variance sum_{S in A} a_AS s_S^2, with a_AS = prod_S (n - 1)/n prod_{A - S} n^-2
[XZK23]. As a_AS = (prod_A n^-2)(prod_S n (n - 1)), sums over tables and their subsets are plain sums over a
lattice of sets, one pass per order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.marginals.allocation import least_largest, least_sum
from sfumato.designs.marginals.incidence import Sets, closure, distinct, locate
from sfumato.designs.marginals.symmetry import kinds, sorted_kinds
from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray

__all__ = ["Allocation", "Lattice", "allocate"]

_MOST_DIGITS = 140  # squares of cells, as they occur, are doubles up to 10^308
# relative gaps of proved sides for so many tables that differ, and beyond, where each round goes through all
_MANY, _TOLERANCE, _COARSE = 100_000, 1e-7, 1e-5


@dataclass(frozen=True, eq=False, slots=True)
class Allocation:
    """The noise of every residual at unit price.

    sets: per order from 0 the residuals, (count, order) ascending positions in lexicographic order. precision:
    per order 1 / s_S. value: square root of what was minimised, weighted squared error or largest weighted
    variance. bound: no allocation of the same residuals has a smaller value; equal to it for the mean.
    """

    sets: tuple[Sets, ...]
    precision: tuple[FloatArray, ...]
    value: float
    bound: float


class Lattice:
    """Sets closed downwards, numbered order by order, and sums over what lies below or above each of them.

    Rows may be multisets of kinds, each for all sets with these kinds.
    """

    def __init__(self, sets: Sequence[Sets], attributes: int) -> None:
        self.sets = tuple(sets)
        self._starts = np.cumsum([0, *map(len, sets)])
        self._below = [
            [locate(sets[k - 1], np.delete(s, c, axis=1), attributes).astype(np.int32) for c in range(k)]
            for k, s in enumerate(sets)
        ]

    def split(self, values: FloatArray) -> list[FloatArray]:
        """Views of the values of every order."""
        return np.split(values, self._starts[1:-1])

    def products(self, factors: FloatArray) -> FloatArray:
        """For every set the product of its attributes' factors."""
        return np.concatenate([factors[s].prod(axis=1) for s in self.sets])

    def down(self, values: FloatArray) -> FloatArray:
        """For every set the sum of the values of its subsets.

        After step j a set has the sum over those subsets that lack only some of its last j members.
        """
        out = values.copy()
        parts = self.split(out)
        for j in range(1, len(parts)):
            for k in range(len(parts) - 1, j - 1, -1):
                parts[k] += parts[k - 1][self._below[k][k - j]]
        return out

    def up(self, values: FloatArray) -> FloatArray:
        """The transpose of `down`: for every set the sum of the values of the sets that contain it."""
        out = values.copy()
        parts = self.split(out)
        for j in range(len(parts) - 1, 0, -1):
            for k in range(j, len(parts)):
                parts[k - 1] += np.bincount(self._below[k][k - j], parts[k], len(parts[k - 1]))
        return out


def allocate(
    tables: Sequence[tuple[Sets, FloatArray]],
    sizes: Sequence[int],
    *,
    objective: Literal["mean", "max"],
    power: Literal[1, 2],
    free_total: bool,
) -> Allocation:
    """The residuals below the given tables, and the noise at unit price that is best for their weighted variances.

    tables: (sets (count, order), weight of each (count,)). "mean" minimises the weighted sum over all cells in
    closed form; "max" the largest weighted variance, to a relative gap of 1e-7 (1e-5 beyond 100,000 tables that
    differ). An attribute of one cell has no contrasts, and a public total needs no noise: residuals with them
    are left out. Raises PlanError for weights that are not positive, and where nothing is left to measure.
    """
    families, weights = _merged(tables, sizes, objective)
    residuals = closure(families, len(sizes))
    if free_total and len(residuals) == 1:
        raise PlanError("only the public total is asked; it needs no measurement")
    labels = kinds(families, weights, sizes)
    alike = [sorted_kinds(s, labels) for s in residuals]
    lattice = Lattice([distinct(t, len(sizes)) for t in alike], len(sizes))
    which = [locate(known, t, len(sizes)) for known, t in zip(lattice.sets, alike, strict=True)]
    sets_of = np.concatenate([np.bincount(i, minlength=len(s)) for i, s in zip(which, lattice.sets, strict=True)])
    weight = np.zeros(len(sets_of))
    for part, known, asked, w in zip(lattice.split(weight), lattice.sets, families, weights, strict=True):
        part[locate(known, sorted_kinds(asked, labels), len(sizes))] = w
    n = np.ones(len(sizes))
    n[labels] = sizes
    squares, value, bound = _solve(lattice, n, sets_of, weight, objective, power, free_total=free_total)
    if free_total:
        residuals, which[0] = (residuals[0][:0], *residuals[1:]), which[0][:0]
    precision = [part[i] ** -0.5 for part, i in zip(lattice.split(squares), which, strict=True)]
    return Allocation(residuals, tuple(precision), math.sqrt(value), math.sqrt(bound))


def _solve(
    lattice: Lattice,
    n: FloatArray,
    sets_of: NDArray[np.intp],
    weight: FloatArray,
    objective: Literal["mean", "max"],
    power: int,
    *,
    free_total: bool,
) -> tuple[FloatArray, float, float]:
    """(s^2, value, lower bound) per multiset of kinds; `sets_of` says how many sets have it, `n` are cells per kind."""
    price = sets_of * lattice.products((3 - power) * (n - 1) / n)
    if free_total:
        price[0] = 0.0
    inside, outside = lattice.products(n * (n - 1)), lattice.products(n**-2.0)
    if objective == "mean":
        each = inside * lattice.up(sets_of * weight * lattice.products(1 / n))
        squares = least_sum(each, price, power)
        value = float(each @ squares)
        return squares, value, value
    asked = np.flatnonzero(weight)
    scale = (weight * outside)[asked]

    def values(on_tables: FloatArray) -> FloatArray:
        spread = np.zeros(len(price))
        spread[asked] = on_tables * scale
        return inside * lattice.up(spread)

    def found(squares: FloatArray) -> FloatArray:
        return scale * lattice.down(inside * squares)[asked]

    tolerance = _TOLERANCE if len(asked) <= _MANY else _COARSE
    squares, lower, upper = least_largest(price, power, len(asked), values, found, tolerance)
    return squares, upper, lower


def _merged(
    tables: Sequence[tuple[Sets, FloatArray]], sizes: Sequence[int], objective: Literal["mean", "max"]
) -> tuple[list[Sets], list[FloatArray]]:
    """Per order the distinct tables without attributes of one cell, and their weights: added up, or the largest."""
    if not any(len(sets) for sets, _ in tables):
        raise PlanError("no table is asked")
    cells = np.asarray(sizes, dtype=np.float64)
    given: list[list[tuple[Sets, FloatArray]]] = []
    for sets, weight in tables:
        weight = np.broadcast_to(np.asarray(weight, dtype=np.float64), (len(sets),))
        if not np.all((weight > 0) & np.isfinite(weight)):
            raise PlanError("the weight of a table must be positive and finite")
        if len(sets) and float(np.log10(cells)[sets].sum(axis=1).max()) > _MOST_DIGITS:
            raise PlanError(f"a table has more than 10^{_MOST_DIGITS} cells")
        reduced, places = _reduced(sets, sizes)
        given += [[] for _ in range(len(reduced) - len(given))]
        for k, (kept, rows) in enumerate(zip(reduced, places, strict=True)):
            given[k].append((kept, weight[rows]))
    families: list[Sets] = []
    weights: list[FloatArray] = []
    for k, parts in enumerate(given):
        sets = np.concatenate([np.empty((0, k), dtype=np.int32), *(s for s, _ in parts)])
        weight = np.concatenate([np.empty(0), *(w for _, w in parts)])
        families.append(distinct(sets, len(sizes)))
        where = locate(families[k], sets, len(sizes))
        merged = np.zeros(len(families[k]))
        (np.add if objective == "mean" else np.maximum).at(merged, where, weight)
        weights.append(merged)
    return families, weights


def _reduced(sets: Sets, sizes: Sequence[int]) -> tuple[list[Sets], list[NDArray[np.intp]]]:
    """Per order the sets without their attributes of one cell, and the rows they come from."""
    several = (np.asarray(sizes, dtype=np.float64) > 1)[sets]
    left = several.sum(axis=1)
    places = [np.flatnonzero(left == k) for k in range(int(left.max(initial=0)) + 1)]
    return [sets[rows][several[rows]].reshape(len(rows), k) for k, rows in enumerate(places)], places
