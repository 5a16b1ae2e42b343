"""The best noise for marginal tables, however many: the least mean, or the least largest, weighted variance.

Residual S (contrasts n I - J over the attributes of S) has noise of deviation s_S and costs p_S / s_S^power.
Every cell of table A then has variance sum_{S in A} a_AS s_S^2, with a_AS = prod_S (n - 1)/n prod_{A - S} n^-2
[XZK23]. As a_AS = (prod_A n^-2)(prod_S n (n - 1)), sums over tables and their subsets are plain sums over a
lattice of sets, one pass per order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray
from sfumato.strategies.attribute_sets import (
    Sets,
    distinct_sets,
    downward_closure,
    exchangeable_kinds,
    locate_sets,
    sorted_kinds,
)
from sfumato.strategies.budget_split import least_deviations
from sfumato.strategies.residual_allocation import (
    AllocationOptimum,
    Effect,
    MatrixSide,
    ReplacementCosts,
    Side,
    least_largest,
    least_replaced,
)

_MOST_DIGITS = 140  # squares of cells, as they occur, are doubles up to 10^308
# relative gaps of proved sides for so many tables that differ, and beyond, where each round goes through all
_MANY, _TOLERANCE, _COARSE = 100_000, 1e-7, 1e-5
# the same where records are replaced: below what rounding does, and for the largest error what 5,000 rounds can reach
_REPLACED, _REPLACED_LARGEST = 1e-7, 1e-6


@dataclass(frozen=True, eq=False, slots=True)
class ResidualAllocation:
    """The noise of every residual at unit price.

    sets: per order from 0 the residuals, (count, order) ascending positions in lexicographic order. precision:
    per order 1 / s_S. value: square root of what was minimised, weighted squared error or largest weighted
    variance. bound: no allocation of the same residuals has a smaller value, and no unbiased answers from Gaussian
    noise; equal to it for the mean where records are added or removed. priced: whether all changes of a record can be
    gone through for a price; where not, that is a bound.
    """

    sets: tuple[Sets, ...]
    precision: tuple[FloatArray, ...]
    value: float
    bound: float
    priced: bool = True


class Lattice:
    """Sets closed downwards, numbered order by order, and sums over what lies below or above each of them.

    Rows may be multisets of kinds, each for all sets with these kinds.
    """

    def __init__(self, sets: Sequence[Sets], attributes: int) -> None:
        self.sets = tuple(sets)
        self._starts = np.cumsum([0, *map(len, sets)])
        self._below = [
            [locate_sets(sets[k - 1], np.delete(s, c, axis=1), attributes).astype(np.int32) for c in range(k)]
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


def allocate_residuals(
    tables: Sequence[tuple[Sets, FloatArray]],
    sizes: Sequence[int],
    *,
    objective: Literal["mean", "max"],
    power: Literal[1, 2],
    free_total: bool,
    known: Sequence[Sets] = (),
    replaced: bool = False,
) -> ResidualAllocation:
    """The residuals below the given tables, and the noise at unit price that is best for their weighted variances.

    tables: (sets (count, order), weight of each (count,)). "mean" minimises the weighted sum over all cells; "max" the
    largest weighted variance, to a relative gap of 1e-7 (1e-5 beyond 100,000 tables that differ). The price is that of
    a record more or less, in closed form for the mean; with `replaced`, at power 2, that of a record replaced by
    another, to a gap of 1e-6. An attribute of one cell has no contrasts, and a public total, or what is `known` (sets
    per order, closed downwards), needs no noise: residuals with them are left out. Raises PlanError for weights that
    are not positive, and where nothing is left to measure.
    """
    families, weights = merge_tables_by_order(tables, sizes, objective)
    residuals = downward_closure(families, len(sizes))
    if free_total and len(residuals) == 1:
        raise PlanError("only the public total is asked; it needs no measurement")
    public = downward_closure([*([np.empty((1, 0), dtype=np.int32)] if free_total else []), *known], len(sizes))
    unknown = [~_is_known_set(public, s, len(sizes)) for s in residuals]
    if not any(u.any() for u in unknown):
        raise PlanError("all that is asked is public; it needs no measurement")
    labels = _exchangeable_attributes(families, weights, public, sizes)
    alike = [sorted_kinds(s, labels) for s in residuals]
    lattice = Lattice([distinct_sets(t, len(sizes)) for t in alike], len(sizes))
    which = [locate_sets(found, t, len(sizes)) for found, t in zip(lattice.sets, alike, strict=True)]
    n = np.ones(int(labels.max(initial=-1)) + 1)
    n[labels] = sizes
    noisy = _count_multiset_sets([i[u] for i, u in zip(which, unknown, strict=True)], lattice)
    weight = np.zeros(len(noisy))
    for part, found, asked, w in zip(lattice.split(weight), lattice.sets, families, weights, strict=True):
        part[locate_sets(found, sorted_kinds(asked, labels), len(sizes))] = w
    orbits = _MultisetOrbits(lattice, n, np.bincount(labels), _count_multiset_sets(which, lattice), noisy, weight)
    best, priced = orbits.solved(objective, power, replaced=replaced and power == 2, free_total=free_total)
    squares = zip(lattice.split(best.squares), which, unknown, strict=True)
    return ResidualAllocation(
        tuple(s[u] for s, u in zip(residuals, unknown, strict=True)),
        tuple(part[i[u]] ** -0.5 for part, i, u in squares),
        math.sqrt(best.upper),
        math.sqrt(best.lower),
        priced,
    )


def _count_multiset_sets(which: Sequence[NDArray[np.intp]], lattice: Lattice) -> FloatArray:
    """How many sets every multiset of kinds is."""
    counts = [np.bincount(i, minlength=len(s)) for i, s in zip(which, lattice.sets, strict=True)]
    return np.concatenate(counts).astype(np.float64)


def _is_known_set(known: Sequence[Sets], sets: Sets, attributes: int) -> NDArray[np.bool_]:
    """Which of the sets, of one order, are among the known ones, by order."""
    order = sets.shape[1]
    known_here = known[order] if order < len(known) else sets[:0]
    return locate_sets(known_here, sets, attributes) >= 0


def _exchangeable_attributes(
    families: Sequence[Sets], weights: Sequence[FloatArray], public: Sequence[Sets], sizes: Sequence[int]
) -> NDArray[np.int32]:
    """Attributes that can be exchanged without changing what is asked, or what is public."""
    asked = exchangeable_kinds(families, weights, sizes)
    if not any(s.size for s in public):
        return asked
    known = exchangeable_kinds(public, [np.ones(len(s)) for s in public], sizes)
    return np.unique(np.stack([asked, known]), axis=1, return_inverse=True)[1].reshape(-1).astype(np.int32)


@dataclass(frozen=True, eq=False, slots=True)
class _MultisetOrbits:
    """Tables and residuals by multisets of kinds: how many sets each is, how many of them are measured.

    n, members: cells of the attributes of every kind, and their number. weight: of the tables that are asked.
    """

    lattice: Lattice
    n: FloatArray
    members: NDArray[np.intp]
    sets_of: FloatArray
    noisy: FloatArray
    weight: FloatArray

    def solved(
        self, objective: Literal["mean", "max"], power: int, *, replaced: bool, free_total: bool
    ) -> tuple[AllocationOptimum, bool]:
        """(the best noise, whether all changes of a record can be gone through for a price)."""
        cells, errors = _CellVariances(self), self._errors()
        removed = self.noisy * self.lattice.products((3 - power) * (self.n - 1) / self.n)
        many = cells.count > _MANY
        queries: Side = MatrixSide(errors[None]) if objective == "mean" else cells
        if replaced:
            changes = ReplacementCosts(self.lattice.sets, self.noisy, self.n, self.members)
            # where the number of records is private, one may also vanish
            extra = removed[None][:0] if free_total else removed[None]
            least = _REPLACED if objective == "mean" else _REPLACED_LARGEST
            return least_replaced(queries, changes, extra, _COARSE if many else least), changes.priced
        if objective == "mean":
            squares = least_deviations(errors, removed, power) ** 2
            value = float(errors @ squares)
            return AllocationOptimum(squares, value, value, np.ones(1)), True
        return least_largest(queries, MatrixSide(removed[None]), power, _COARSE if many else _TOLERANCE), True

    def _errors(self) -> FloatArray:
        """What the noise of a residual adds to the weighted sum over all cells, for all sets that it is."""
        measured = self.noisy > 0
        above = self.lattice.up(self.sets_of * self.weight * self.lattice.products(1 / self.n))
        return measured * (self.lattice.products(self.n * (self.n - 1)) * above)


class _CellVariances:
    """The weighted variance of a cell of every table that is asked."""

    def __init__(self, orbits: _MultisetOrbits) -> None:
        self._lattice = orbits.lattice
        n = orbits.n
        self._inside = np.where(orbits.noisy > 0, orbits.lattice.products(n * (n - 1)), 0.0)
        self._asked = np.flatnonzero(orbits.weight)
        self._scale = (orbits.weight * orbits.lattice.products(n**-2.0))[self._asked]

    @property
    def count(self) -> int:
        return len(self._asked)

    def mixed(self, weights: FloatArray) -> FloatArray:
        spread = np.zeros(len(self._inside))
        spread[self._asked] = weights * self._scale
        return self._inside * self._lattice.up(spread)

    def each(self, values: FloatArray) -> FloatArray:
        return self._scale * self._lattice.down(self._inside * values)[self._asked]


def merge_tables_by_order(
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
        reduced, places = _drop_one_cell_attributes(sets, sizes)
        given += [[] for _ in range(len(reduced) - len(given))]
        for k, (kept, rows) in enumerate(zip(reduced, places, strict=True)):
            given[k].append((kept, weight[rows]))
    families: list[Sets] = []
    weights: list[FloatArray] = []
    for k, parts in enumerate(given):
        sets = np.concatenate([np.empty((0, k), dtype=np.int32), *(s for s, _ in parts)])
        weight = np.concatenate([np.empty(0), *(w for _, w in parts)])
        families.append(distinct_sets(sets, len(sizes)))
        where = locate_sets(families[k], sets, len(sizes))
        merged = np.zeros(len(families[k]))
        (np.add if objective == "mean" else np.maximum).at(merged, where, weight)
        weights.append(merged)
    return families, weights


def _drop_one_cell_attributes(sets: Sets, sizes: Sequence[int]) -> tuple[list[Sets], list[NDArray[np.intp]]]:
    """Per order the sets without their attributes of one cell, and the rows they come from."""
    several = (np.asarray(sizes, dtype=np.float64) > 1)[sets]
    left = several.sum(axis=1)
    places = [np.flatnonzero(left == k) for k in range(int(left.max(initial=0)) + 1)]
    return [sets[rows][several[rows]].reshape(len(rows), k) for k, rows in enumerate(places)], places


# of the largest variance, what may be lost: the first that leaves few rows is taken
_SLACKS = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
_MANY_ROWS = 20_000  # all of them are gone through in every round of the search that follows


def extreme_rows(effects: Sequence[Effect]) -> list[Effect]:
    """The same blocks with fewer rows, whose largest variance is short of the true one by at most 0.1 % per factor.

    By far less where that leaves few enough rows. What is returned are rows of the blocks.
    """
    out: list[Effect] = []
    for slack in _SLACKS:
        known: dict[tuple[int, int], NDArray[np.intp]] = {}
        out = [_reduce_effect_rows(e, slack, known) for e in effects]
        if sum(_count_effect_rows(e) for e in out) <= _MANY_ROWS:
            break
    return out


def _count_effect_rows(effect: Effect) -> int:
    return math.prod(max((len(sums[k]) for sums in effect.sets.values()), default=1) for k in range(len(effect.rows)))


def _reduce_effect_rows(effect: Effect, slack: float, known: dict[tuple[int, int], NDArray[np.intp]]) -> Effect:
    kept = [
        _extreme_factor_rows([sums[k] for sums in effect.sets.values()], slack, known) for k in range(len(effect.rows))
    ]
    sets: Mapping[frozenset[str], tuple[FloatArray, ...]] = {
        names: tuple(v if rows is None or len(v) == 1 else v[rows] for v, rows in zip(sums, kept, strict=True))
        for names, sums in effect.sets.items()
    }
    return Effect(
        effect.weight, tuple(n if r is None else len(r) for n, r in zip(effect.rows, kept, strict=True)), sets
    )


def _extreme_factor_rows(
    values: Sequence[FloatArray], slack: float, known: dict[tuple[int, int], NDArray[np.intp]]
) -> NDArray[np.intp] | None:
    """The rows that matter of one factor's numbers per set; None for all. `known` are those of pairs of arrays."""
    different = list({id(v): v for v in values if len(v) > 1}.values())
    if not different or len(different) > 2:
        return None
    key = id(different[0]), id(different[-1])
    if key not in known:
        known[key] = upper_hull_corners(different[0], different[-1], slack)
    return known[key]


def upper_hull_corners(x: FloatArray, y: FloatArray, slack: float) -> NDArray[np.intp]:
    """Positions of points (x, y) >= 0 such that no a x + b y with a, b >= 0 is larger elsewhere by more than `slack`.

    Between two corners the farthest point above their chord is one more, unless it is within the slack.
    """
    right, top = int(np.lexsort((y, x))[-1]), int(np.lexsort((x, y))[-1])
    found, open_ = {right, top}, [(right, top)]
    while open_:
        p, q = open_.pop()
        a, b = y[q] - y[p], x[p] - x[q]
        height = a * x + b * y
        far = int(height.argmax())
        if height[far] > height[p] * (1 + slack) and far not in found:
            found.add(far)
            open_ += [(p, far), (far, q)]
    return np.array(sorted(found), dtype=np.intp)
