"""How much noise each residual deserves: the least mean, or the least largest, weighted variance at unit price.

Residual S has noise of deviation s_S and costs p_S / s_S^power, p_S the product of its attributes' prices:
(n - 1)/n for Gaussian noise (power 2) and 2 (n - 1)/n for Laplace noise (power 1) where cells are compared
with their mean [XZK23]; in general the largest column norm of the attribute's contrasts, to the power. Where
records are replaced, every pair of cells has costs of its own (`replaced`).

The best noise where one record replaces another: what changes cost, and the search over the changes that matter.

Two cells that differ in exactly the attributes T lie apart in the residuals, whose noise has deviation s_S, by

    sum_S 2 p_S (1 - prod_{i in S and T} r_i) / s_S^2,    p_S = prod_{i in S} (n_i - 1)/n_i,  r_i = -1 / (n_i - 1) ,

and the price is the largest of these. For attributes of a kind only their number in T counts: the product is its mean
over all sets of the same kinds. With weights on the T every residual has one price, so the best noise is in closed form
and bounds from below what any noise does. The T are generated, those where the noise so far costs most: one that is
missed makes a plan dearer than it need be and its bound no less true, for noise is calibrated by privacy/sensitivity
alone.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray
from sfumato.strategies.attribute_sets import Sets
from sfumato.strategies.budget_split import least_deviations
from sfumato.strategies.certificates import MOST_PATTERNS

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
class MatrixSide:
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
class AllocationOptimum:
    """s^2 at unit price, a proved lower bound on the value, the value, and the weights on the changes of a record."""

    squares: FloatArray
    lower: float
    upper: float
    changes: FloatArray


class _RatioWeights:
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
) -> AllocationOptimum:
    """The least largest variance of the queries where no change of a record costs more than 1, by its dual.

    `queries` takes s^2 to the variances of the queries, `changes` takes 1 / s^power to what changes cost. For weights
    on the queries and weights on the changes (>= 0, sums 1) the best allocation for the weighted sums is in closed form
    and its value bounds the optimum from below; the largest variance and the largest cost it gives bound it from above.
    The weights are multiplied by powers of variance over value, and of cost, until the two meet within the tolerance.
    Exponents 1 + power/2 and 1 + 2/power are Newton's steps where no two queries, or changes, share a residual.
    """
    asked = _RatioWeights(np.full(queries.count, 1.0 / queries.count), 1 + power / 2)
    paid = _RatioWeights(np.full(changes.count, 1.0 / changes.count) if start is None else start, 1 + 2 / power)
    lower, upper = 0.0, math.inf
    best, where = np.ones(0), paid.values
    for _ in range(_MAX_ROUNDS):
        squares = least_deviations(queries.mixed(asked.values), changes.mixed(paid.values), power) ** 2
        found = queries.each(squares)
        value, largest = float(asked.values @ found), float(found.max())
        lower = max(lower, value)
        costs = np.ones(1)
        if changes.count > 1:
            costs = changes.each(residual_precisions(squares, power))
            dearest = float(costs.max()) ** (2 / power)
            largest, squares = largest * dearest, squares * dearest
        if largest < upper:
            upper, best, where = largest, squares, paid.values
        if upper <= lower * (1 + tolerance):
            break
        asked.move(found / value)
        paid.move(costs)
    return AllocationOptimum(best, lower * (1 - _ROUNDING), upper, where)


def residual_precisions(squares: FloatArray, power: int) -> FloatArray:
    """1 / s^power; 0 where nothing is measured, as it is known."""
    return np.divide(1, squares, out=np.zeros_like(squares), where=squares > 0) ** (power / 2)


def _set_prices(sets: Sequence[Names], single: Mapping[str, float]) -> FloatArray:
    """p_S of every set."""
    return np.array([math.prod(single[a] for a in s) for s in sets])


def sum_objective(weighted: Mapping[Names, float], single: Mapping[str, float], power: int) -> dict[Names, float]:
    """1 / s_S of each residual that minimises sum_S v_S s_S^2 at unit price, in closed form.

    v_S = `weighted[S]` is the weighted error that a unit of variance on residual S causes; `single` are
    the prices of the attributes.
    """
    sets = [s for s, v in weighted.items() if v > 0]
    deviations = least_deviations(np.array([weighted[s] for s in sets]), _set_prices(sets, single), power)
    return dict(zip(sets, (1 / deviations).tolist(), strict=True))


def max_objective(
    effects: Sequence[Effect], single: Mapping[str, float], power: int, tolerance: float = _TOLERANCE
) -> tuple[dict[Names, float], float]:
    """(1 / s_S, proved lower bound): the least largest weighted variance at unit price, by its dual.

    The bound is on the square root of the largest weighted variance, for mechanisms that measure these residuals.
    """
    sets = list(dict.fromkeys(s for e in effects for s in e.sets))
    matrix = _effect_constraints(effects, {s: i for i, s in enumerate(sets)})
    found = least_largest(MatrixSide(matrix), MatrixSide(_set_prices(sets, single)[None]), power, tolerance)
    return dict(zip(sets, (found.squares**-0.5).tolist(), strict=True)), math.sqrt(found.lower)


def _effect_constraints(effects: Sequence[Effect], place: Mapping[Names, int]) -> Any:
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


Changes = NDArray[np.int64]
"""Rows of how many attributes of every kind change."""

_MOST_LISTED = 2**20  # changes gone through one by one: 8 MB, 50 ms, each round
_ADDED = 16  # changes a round: fewer take more rounds, and most of so many are of use
_CLIMBS = 6  # from the changes of most weight, and some from halves of all kinds: more found none that was dearer
_SWEEPS = 20  # over all kinds in one climb; each gains, and two or three are the rule
_MOST_NUMBERS = 2**25  # of costs, 256 MB: what ends there returns both sides, and the plan its distance from the bound
_MOST_ROUNDS = 100  # likewise; 26 were the most that was seen
_SHARE = 0.1  # of what the last missed change costs too much: weights need be no better before that is among them
_FREE = 1e-9  # of its cost elsewhere: what rounding leaves of a residual that a change does not touch


class ReplacementCosts:
    """What a unit of precision of every residual costs where one record replaces another, by changes of cells.

    sets: per order multisets of kinds, each for `many` residuals that are alike; 0 for those that cost nothing.
    sizes, members: cells of the attributes of every kind, and how many these are.
    """

    def __init__(self, sets: Sequence[Sets], many: FloatArray, sizes: FloatArray, members: NDArray[np.intp]) -> None:
        self._kinds, self._times = _multiset_runs(sets, len(sizes))
        # attributes that no residual has may change as they like
        self._members = np.where(
            np.bincount(self._kinds.reshape(-1), minlength=len(sizes))[: len(sizes)] > 0, members, 0
        )
        inside = np.append((sizes - 1) / sizes, 1.0)
        some = self._kinds[:, 0] < len(sizes)
        self._unit = np.where(some, 2 * many * np.prod(inside[self._kinds] ** self._times, axis=1), 0.0)
        top = int(self._times.max(initial=1))
        ratios = -1 / np.maximum(sizes - 1, 1)
        self._means = [
            _mean_change_powers(m, r, top) for m, r in zip(self._members.tolist(), ratios.tolist(), strict=True)
        ]
        self._means.append(np.ones((1, top + 1)))  # where a multiset has no more kinds

    @property
    def _count(self) -> int:
        return math.prod((self._members + 1).tolist())

    @property
    def listed(self) -> bool:
        """Whether all changes are gone through for the dearest."""
        return self._count <= _MOST_LISTED

    @property
    def priced(self) -> bool:
        """Whether `strategies.certificates` goes through all of them, so that the price is no bound."""
        return self._count <= MOST_PATTERNS

    def costs(self, changes: Changes) -> FloatArray:
        """(count, residuals) for `changes` (count, kinds)."""
        return self._unit * (1 - self._products(changes))

    def _products(self, changes: Changes) -> FloatArray:
        padded = np.pad(changes, ((0, 0), (0, 1)))
        table = np.array([m[t] for m, t in zip(self._means, padded.T, strict=True)])
        out = np.ones((len(changes), len(self._unit)))
        for kinds, times in zip(self._kinds.T, self._times.T, strict=True):
            out *= table[kinds, :, times].T
        return out

    def start(self) -> Changes:
        """All attributes, half of each kind, and what makes every residual cost something."""
        found = np.stack([self._members, (self._members + 1) // 2])
        costs = self.costs(found).sum(axis=0)
        for _ in range(
            len(self._members)
        ):  # what touches a residual alone costs something, so one for a kind is enough
            free = costs < _FREE * self._unit
            if not free.any():
                break
            one = np.zeros((1, len(self._members)), dtype=np.int64)
            one[0, self._kinds[int(free.argmax()), 0]] = 1
            found = np.concatenate([found, one])
            costs += self.costs(one)[0]
        return found

    def dearest(self, precision: FloatArray, near: Changes, *, every: bool = False) -> tuple[Changes, FloatArray]:
        """(changes, their costs), the dearest first, where residuals have 1 / s^2; `near` are some to start from.

        With `every` all are gone through where they are not too many for a price either.
        """
        amounts = self._unit * precision
        if self.listed or (every and self.priced):
            return self._all(amounts)
        kinds = np.arange(len(self._members))
        halves = [np.where(kinds >> bit & 1, self._members, 0) for bit in range(len(kinds).bit_length())]
        starts = [*near[:_CLIMBS], *halves]
        found = np.unique([self._climbed(amounts, s) for s in starts], axis=0)
        costs = amounts.sum() - self._products(found) @ amounts
        order = np.argsort(-costs)
        return found[order], costs[order]

    def _all(self, amounts: FloatArray) -> tuple[Changes, FloatArray]:
        """Of all changes those that cost most; those of the last kinds together, _MOST_LISTED at most."""
        tables, states = self._means[:-1], (self._members + 1).tolist()
        shape = [min(t.shape) for t in tables]
        counts = np.zeros((len(amounts), len(shape) + 1), dtype=np.int64)
        np.put_along_axis(counts, self._kinds, self._times, axis=1)
        places = np.ravel_multi_index(tuple(counts[:, :-1].T), shape)
        whole: FloatArray = np.bincount(places, amounts, math.prod(shape)).astype(np.float64)
        cut = next((k for k in range(len(states)) if math.prod(states[k:]) <= _MOST_LISTED), len(states))
        changes, costs = np.empty((0, len(states)), dtype=np.int64), np.empty(0)
        for head in itertools.product(*map(range, states[:cut])):
            table, rest = whole, math.prod(shape)
            for i, (size, means) in enumerate(zip(shape, tables, strict=True)):
                rest //= size
                rows = means[head[i], :size][None] if i < cut else means[:, :size]
                table = np.asarray(rows @ table.reshape(-1, size, rest), dtype=np.float64).reshape(-1)
            chosen = np.argpartition(table, min(_ADDED, len(table)) - 1)[:_ADDED]
            # a first axis of one, so that there is one where all kinds are in the head
            tail = np.stack(np.unravel_index(chosen, (1, *states[cut:])), axis=1)[:, 1:]
            found = np.concatenate([np.tile(np.array(head, dtype=np.int64), (len(chosen), 1)), tail], axis=1)
            changes, costs = np.concatenate([changes, found]), np.append(costs, float(amounts.sum()) - table[chosen])
            order = np.argsort(-costs, kind="stable")[:_ADDED]
            changes, costs = changes[order], costs[order]
        return changes, costs

    @functools.cached_property
    def _places(self) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Per kind where it stands: (residuals, columns)."""
        rows, columns = np.nonzero(self._kinds < len(self._members))
        kinds = self._kinds[rows, columns]
        order = np.argsort(kinds, kind="stable")
        cuts = np.cumsum(np.bincount(kinds, minlength=len(self._members)))[:-1]
        return list(zip(np.split(rows[order], cuts), np.split(columns[order], cuts), strict=True))

    def _climbed(self, amounts: FloatArray, start: Changes) -> Changes:
        """As many of one kind as cost most while the others stay, kind by kind, until none gains."""
        changed = start.copy()
        top = self._means[-1].shape[1]
        values = np.stack([m[t] for m, t in zip(self._means, [*changed.tolist(), 0], strict=True)])
        factors = values[self._kinds, self._times]
        for _ in range(_SWEEPS):
            before = changed.copy()
            for kind, (rows, columns) in enumerate(self._places):
                factors[rows, columns] = 1.0
                times = self._times[rows, columns]
                others = np.bincount(times, amounts[rows] * factors[rows].prod(axis=1), top)
                saved = self._means[kind] @ others
                best = int(saved.argmin())
                if saved[best] < saved[changed[kind]] - _FREE * float(others.sum()):
                    changed[kind] = best
                factors[rows, columns] = self._means[kind][changed[kind], times]
            if (changed == before).all():
                break
        return changed


def least_replaced(queries: Side, replaced: ReplacementCosts, extra: FloatArray, tolerance: float) -> AllocationOptimum:
    """`least_largest` at power 2 where one record replaces another; `extra` (rows, residuals) are more costs.

    The bound is that of the changes that were generated, so that it holds for all; the value is at the price of the
    dearest that is known.
    """
    changes = replaced.start()
    matrix = np.concatenate([extra, replaced.costs(changes)])
    weights: FloatArray | None = None
    none = AllocationOptimum(np.ones(0), 0.0, math.inf, np.ones(0))
    # where one by one they are too many even for a price, climbing is all there is
    lower, best, within, every = 0.0, none, tolerance, replaced.listed or not replaced.priced
    for _ in range(_MOST_ROUNDS):
        found = least_largest(queries, MatrixSide(matrix), 2, within, weights)
        near = changes[np.argsort(-found.changes[len(extra) :])]
        precision = residual_precisions(found.squares, 2)
        known = {tuple(t) for t in changes.tolist()}
        lower = max(lower, found.lower)
        dearest, costs = replaced.dearest(precision, near, every=every)
        fresh = _new_violations(dearest, costs, known)
        if not every and within == tolerance and not fresh.any():
            # something dearer may be left than what was climbed to, here and before
            every, best = True, none
            dearest, costs = replaced.dearest(precision, near, every=True)
            fresh = _new_violations(dearest, costs, known)
        over = max(1.0, float(costs[0]))
        if found.upper * over < best.upper:
            best = AllocationOptimum(found.squares * over, lower, found.upper * over, found.changes)
        proved = best.upper <= lower * (1 + tolerance)
        ended = proved or (within == tolerance and not fresh.any())
        if (every and ended) or matrix.size > _MOST_NUMBERS:
            break
        within = tolerance if proved or not fresh.any() else max(tolerance, _SHARE * (over - 1))
        dearest = dearest[fresh]
        changes = np.concatenate([changes, dearest])
        matrix = np.concatenate([matrix, replaced.costs(dearest)])
        weights = np.append(found.changes, np.full(len(dearest), 1 / len(matrix)))
        weights /= weights.sum()
    return AllocationOptimum(best.squares, lower, best.upper, best.changes)


def _new_violations(dearest: Changes, costs: FloatArray, known: set[tuple[int, ...]]) -> NDArray[np.bool_]:
    """Which cost too much and are not among those that are known."""
    return np.array([c > 1 and tuple(t) not in known for t, c in zip(dearest.tolist(), costs, strict=True)], dtype=bool)


def _multiset_runs(sets: Sequence[Sets], kinds: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(residuals, width) the kinds of every multiset, ascending, and how often it has each; `kinds` and 0 beyond."""
    width = max(1, *(s.shape[1] for s in sets))
    padded = [np.pad(s.astype(np.int64), ((0, 0), (0, width - s.shape[1])), constant_values=kinds) for s in sets]
    rows = np.concatenate(padded)
    out, times = np.full_like(rows, kinds), np.zeros_like(rows)
    place = np.full(len(rows), -1)
    for c in range(width):
        held = rows[:, c] < kinds
        place += held & ((rows[:, c] != rows[:, c - 1]) if c else held)
        here = np.flatnonzero(held)
        out[here, place[here]] = rows[here, c]
        times[here, place[here]] += 1
    return out, times


def _mean_change_powers(members: int, ratio: float, top: int) -> FloatArray:
    """(changed, times) of sets of so many members: the mean of ratio to the power of how many of them change."""
    out = np.zeros((members + 1, top + 1))
    for times in range(min(members, top) + 1):
        for both in range(times + 1):
            ways = [math.comb(t, both) * math.comb(members - t, times - both) for t in range(members + 1)]
            out[:, times] += np.array(ways, dtype=np.float64) * (ratio**both / math.comb(members, times))
    return out
