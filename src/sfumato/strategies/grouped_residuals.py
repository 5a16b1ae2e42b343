"""The best noise for marginal tables of persons whose rows are counted once per group.

A person's rows cost a residual by how many there are and by which attributes agree in two rows of different groups
(privacy/grouped_rows.py): for each number of rows and each pattern of agreement a price linear in the inverse variances
of the residuals. All of them are constraints, few bind, and the weighted error is convex: a barrier finds the optimum,
and the multipliers of the constraints prove how near it is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray
from sfumato.privacy.grouped_rows import coarser_groups, full_groups
from sfumato.privacy.unit import PrivacyUnit
from sfumato.strategies.attribute_sets import Sets, downward_closure, locate_sets
from sfumato.strategies.residual_tables import Lattice, ResidualAllocation, merge_tables_by_order

_MOST_ENTRIES = 2**23  # of all constraints: 64 MB
_MOST_ATTRIBUTES = 14  # their 16,384 residuals are one unknown each
_MOST_LISTED = 64  # numbers of full groups that are all listed; of more, some
_BROKEN = 1e-9  # by how much a price may be above 1 before it is taken in
_TAKEN = 16  # constraints taken in at a time
_ROUNDS = 200  # of taking in constraints; a few are enough
_NEAR, _STEP = 1e-4, 2.0  # how near the largest comes to its bound, and the power by which shares move
_LEAST_SHARE = 1e-6  # of all shares together, so that no residual's weight is free
_GAP, _STEPS, _CENTRED = 1e-8, 60, 1e-10  # relative gap of the barrier's end, Newton steps, squared decrement


def allocate_grouped_residuals(
    tables: Sequence[tuple[Sets, FloatArray]],
    names: Sequence[str],
    sizes: Sequence[int],
    unit: PrivacyUnit,
    objective: Literal["mean", "max"],
) -> list[ResidualAllocation]:
    """Noise of least weighted error at unit price, one for each way in which the unit's groups are priced.

    "mean" minimises the weighted sum over all cells, "max" the largest weighted variance. The bound of each holds for
    all unbiased answers from Gaussian noise: it is of averages over rows that persons may have, 0 where none are known.
    Raises PlanError where the patterns of agreement, or tables of which none may err most, are too many to be listed.
    """
    families, weights = merge_tables_by_order(tables, sizes, objective)
    residuals = downward_closure(families, len(sizes))
    lattice, n = Lattice(residuals, len(sizes)), np.asarray(sizes, dtype=np.float64)
    weight = np.zeros(sum(map(len, residuals)))
    for part, below, asked, w in zip(lattice.split(weight), residuals, families, weights, strict=True):
        part[locate_sets(below, asked, len(sizes))] = w
    used = sorted({int(a) for s in residuals for a in np.unique(s)})
    if len(used) > _MOST_ATTRIBUTES:
        raise PlanError("the attributes are too many to list which of them agree in two rows")
    own, cells = lattice.products(n * (n - 1)), lattice.products(1 / n)
    if objective == "mean":
        errors = (own * lattice.up(weight * cells))[None]
    else:
        asked = np.flatnonzero(weight)
        if len(asked) * len(weight) > _MOST_ENTRIES:
            raise PlanError("the tables are too many to list their errors")
        # a cell's variance, of which a table has as many as cells
        each = np.zeros((len(asked), len(weight)))
        each[np.arange(len(asked)), asked] = (weight * cells**2)[asked]
        errors = np.array([own * lattice.up(row) for row in each])
    rows = [set(row) for s in residuals for row in s.tolist()]
    held = np.array([[a in row for row in rows] for a in used], dtype=bool).reshape(len(used), len(weight))
    by_name = dict(zip(names, sizes, strict=True))
    found: list[ResidualAllocation] = []
    ways = coarser_groups(unit, by_name)
    told = [names[a] for a in used]
    real = _real_prices(ways, by_name, told, held)
    bound = least_largest_under_prices(errors, real).lower if len(real) else 0.0
    for way in ways:
        best = least_largest_under_prices(errors, _prices(way, by_name, told, held))
        precision = tuple(np.sqrt(part) for part in lattice.split(best.weights))
        found.append(ResidualAllocation(residuals, precision, math.sqrt(best.upper), math.sqrt(max(bound, 0.0))))
    return found


def weigh_parts(
    errors: FloatArray, costs: FloatArray, sets: Sequence[Sequence[str]], sizes: Mapping[str, int], unit: PrivacyUnit
) -> list[FloatArray]:
    """By what to multiply the inverse variances of parts for the least sum of errors, for each way to price groups.

    Args:
        errors: (k,) of each part at weight 1.
        costs: (v, k) what one record costs in each part, by what else there is to a record.
        sets: Of each part the attributes whose residuals it is of.
        sizes: The number of cells of each attribute.
        unit: Whose rows are counted once per group.

    Returns:
        For each way (k,) weights. Raises PlanError where the patterns of agreement are too many to be listed.
    """
    used = [a for a in sizes if any(a in s for s in sets)]
    held = np.array([[a in s for s in sets] for a in used], dtype=bool).reshape(len(used), len(sets))
    alone = np.array([math.prod(1 - 1 / sizes[a] for a in s) for s in sets])
    found: list[FloatArray] = []
    for way in coarser_groups(unit, sizes):
        prices = _prices(way, sizes, used, held)
        each = (prices[:, None, :] * (costs / alone)[None]).reshape(-1, len(sets))
        found.append(least_under_prices(errors, np.unique(each, axis=0)).weights)
    return found


def _bodies(unit: PrivacyUnit, sizes: Mapping[str, int]) -> list[tuple[int, int]]:
    """(full groups, rows in one more) of persons, of whom no other may change more."""
    full, rest = full_groups(unit, sizes)
    return [(q, 0) for q in _looked_at_counts(full)] + ([(full, rest)] if rest else [])


def _prices(unit: PrivacyUnit, sizes: Mapping[str, int], used: Sequence[str], held: NDArray[np.bool_]) -> FloatArray:
    """(bodies, residuals) what one unit of inverse variance of a residual costs at most, by how a person's rows lie.

    Bounds, of pairs of rows by themselves: all pairs of different groups agree in the same attributes.
    """
    n = np.array([sizes[a] for a in used], dtype=np.float64)
    listed = list(itertools.product([False, True], repeat=len(used)))
    patterns = np.array(listed, dtype=bool).reshape(len(listed), len(used))
    bodies = _bodies(unit, sizes)
    if len(patterns) * len(bodies) * held.shape[1] > _MOST_ENTRIES:
        raise PlanError("the attributes are too many to list which of them agree in two rows")
    own = _products(((n - 1) / n)[None], held)[0]
    split = np.array([any(a not in used or p[used.index(a)] for a in unit.once_per) for p in patterns])
    apart = _products(np.where(patterns, -1 / n, (n - 1) / n)[split], held)
    return np.concatenate([_body_prices(own, apart, unit.rows_per_group, q, more) for q, more in bodies])


def _body_prices(own: FloatArray, apart: FloatArray, each: int, q: int, more: int) -> FloatArray:
    """Of q full groups and one of more rows, where rows of one group are in one cell."""
    squares, rows = q * each**2 + more**2, q * each + more
    # one group alone has no rows of others
    return squares * own + (rows**2 - squares) * apart if q + (more > 0) > 1 else squares * own[None]


def _real_prices(
    ways: Sequence[PrivacyUnit], sizes: Mapping[str, int], used: Sequence[str], held: NDArray[np.bool_]
) -> FloatArray:
    """(bodies, residuals) averages of what persons cost who have rows that may be counted.

    Groups lie in different joint cells of some of their attributes, taken by chance, and otherwise agree or differ
    everywhere, where there are so many cells, or are taken by chance. Of coarser groups each holds rows of all cells of
    what is coarsened, or of some: residuals over it cost at least nothing.
    """
    n = np.array([sizes[a] for a in used], dtype=np.float64)
    out: list[FloatArray] = []
    entries = 0
    for way in ways:
        coarsened = [i for i, a in enumerate(used) if a in ways[0].once_per and a not in way.once_per]
        counted = ~held[coarsened].any(axis=0)
        own = _products(((n - 1) / n)[None], held)[0] * counted
        some = [a for k in range(1, len(way.once_per) + 1) for a in itertools.combinations(way.once_per, k)]
        for (q, more), chance in itertools.product(_bodies(way, sizes), some):
            count, cells = q + (more > 0), math.prod(sizes[a] for a in chance)
            if cells < max(count, 2):
                continue
            own_place = [i for i, a in enumerate(used) if a in chance]
            ends = [
                [1.0] if i in own_place or i in coarsened else [(m - 1) / m, -1 / m if m >= count else 0.0]
                for i, m in enumerate(n.tolist())
            ]
            patterns = np.array(list(itertools.product(*ends))).reshape(math.prod(map(len, ends)), len(used))
            entries += len(patterns) * held.shape[1]
            if entries > _MOST_ENTRIES:
                raise PlanError("the attributes are too many to list which of them agree in two rows")
            joint = np.prod(np.where(held[own_place], ((n - 1) / n)[own_place, None], 1.0), axis=0)
            mean = np.where(held[own_place].any(axis=0), -joint / (cells - 1), 1.0)
            apart = _products(patterns, held) * mean * counted
            out.append(_body_prices(own, apart, way.rows_per_group, q, more))
    return np.unique(np.concatenate(out), axis=0) if out else np.empty((0, held.shape[1]))


def _looked_at_counts(full: int) -> list[int]:
    if full <= _MOST_LISTED:
        return list(range(1, full + 1))
    some = np.unique(np.geomspace(1, full, _MOST_LISTED).round().astype(np.int64))
    return some.tolist()


def _products(factors: FloatArray, held: NDArray[np.bool_]) -> FloatArray:
    """(patterns, residuals) for every residual the product over its attributes."""
    out = np.ones((len(factors), held.shape[1]))
    for i, has in enumerate(held):
        out[:, has] *= factors[:, i : i + 1]
    return out


@dataclass(frozen=True, slots=True, eq=False)
class LinearOptimum:
    """Weights that keep all prices at 1 at most, the sum that they have, and one that no others fall below."""

    weights: FloatArray
    upper: float
    lower: float


def least_largest_under_prices(errors: FloatArray, prices: FloatArray) -> LinearOptimum:
    """The least largest of several sums of errors / weights, (sums, k), under the same prices.

    The largest is at least any mean of the sums, whose least is known. Shares of that mean move towards what is above
    it, until the mean and the largest meet.
    """
    shares = np.full(len(errors), 1 / len(errors))
    best: LinearOptimum | None = None
    lower = 0.0
    for _ in range(_ROUNDS if len(errors) > 1 else 1):
        found = least_under_prices(shares @ errors, prices)
        sums = errors @ (1 / found.weights)
        lower = max(lower, found.lower)
        if best is None or float(sums.max()) < best.upper:
            best = LinearOptimum(found.weights, float(sums.max()), lower)
        if best.upper <= lower * (1 + _NEAR):
            break
        shares = shares * (sums / sums.max()) ** _STEP
        shares = shares / shares.sum() * (1 - _LEAST_SHARE) + _LEAST_SHARE / len(shares)
    assert best is not None
    return LinearOptimum(best.weights, best.upper, lower)


def least_under_prices(errors: FloatArray, prices: FloatArray) -> LinearOptimum:
    """The least sum of errors / weights over positive weights whose prices are at most 1 each.

    Some price must leave no weight free. Constraints are taken in as they are broken. For any multipliers m >= 0 with
    h = prices^T m >= 0 no weights have a sum below (sum of roots of errors h)^2 / sum of m: that is `lower`, whatever
    the search did.
    """
    weights = np.sqrt(errors / np.maximum(prices.max(axis=0), 1e-300))
    # with that one no weight grows without end while others are waited for
    bounding = np.flatnonzero((prices > 0).all(axis=1))
    each = prices @ weights
    active = list(dict.fromkeys([int(bounding[np.argmax(each[bounding])]), int(np.argmax(each))]))
    lower = 0.0
    for _ in range(_ROUNDS):
        weights, multipliers = _barrier(errors, prices[active], weights)
        mixed = prices[active].T @ multipliers
        if (mixed >= 0).all():
            lower = max(lower, float(np.sqrt(errors * mixed).sum()) ** 2 / float(multipliers.sum()))
        each = prices @ weights
        broken = [i for i in np.argsort(each)[::-1][:_TAKEN].tolist() if each[i] > 1 + _BROKEN]
        if set(broken) <= set(active):
            break
        active += [i for i in broken if i not in active]
    weights = weights / float((prices @ weights).max())
    return LinearOptimum(weights, float((errors / weights).sum()), lower * (1 - 1e-9))


def _barrier(errors: FloatArray, prices: FloatArray, start: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(weights, multipliers) at the end of the central path of the sum over what keeps some prices below 1."""
    w = start * (0.5 / max(float((prices @ start).max()), 1e-300))
    t = len(prices) / float((errors / w).sum())
    while True:
        for _ in range(_STEPS):
            slack = 1 - prices @ w
            gradient = -t * errors / w**2 + prices.T @ (1 / slack)
            diagonal = 2 * t * errors / w**3
            # (diag + A^T S A)^-1 by as many equations as there are prices
            scaled = prices / slack[:, None]
            inner = np.eye(len(prices)) + (scaled / diagonal) @ scaled.T
            base = gradient / diagonal
            try:
                step = base - (scaled.T @ np.linalg.solve(inner, scaled @ base)) / diagonal
            except np.linalg.LinAlgError:  # as near to the edge as doubles tell
                break
            decrement = float(gradient @ step)
            if decrement < _CENTRED:
                break
            size, value = 1.0, t * float((errors / w).sum()) - float(np.log(slack).sum())
            while size > 1e-12:
                moved = w - size * step
                left = 1 - prices @ moved
                if (moved > 0).all() and (left > 0).all():
                    now = t * float((errors / moved).sum()) - float(np.log(left).sum())
                    if now <= value - 0.1 * size * decrement:
                        break
                size /= 2
            else:
                break
            w = moved
        slack = 1 - prices @ w
        if len(prices) / t < _GAP * float((errors / w).sum()):
            return w, 1 / (t * slack)
        t *= 10
