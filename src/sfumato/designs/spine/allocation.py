"""How precise every residual is measured at every level: one number for each, of least error at unit price.

With a[l, S] the precision of the residual of set S at every node of level l, sets separate: each has its own tree, on
which F(a) = sum_l c_l tr Cov_l is convex and of degree -1. For one record more or less the price is sum a[l, S] p_S
whatever the fan-outs, as a person is in one node of each level; sets share it as sqrt(J_S / p_S) with J_S the least F
at unit sum. Tables at one multiple each are among these: m^2 on table A is m^2 / prod_(A - S) n on every S in A.

Where a record is replaced, two that differ in the attributes D and are last together at level c are
2 sum a[l, S] (p_S - k_S [l <= c]) apart, k_S = prod_(S, D) (-1/n) prod_(S, not D) (1 - 1/n). The largest counts; it is
reached by weights on pairs (c, D), multiplied by what each pair costs until all that have weight cost alike. Of more
cells than the wall goes through pair by pair, any set of levels may be the one at which two are together: whole tables
cost the same, as two that are never together are farthest apart, and residuals are chosen for what they will cost.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.spine.asked import Asked, Sets, subsets
from sfumato.designs.spine.passes import Passes, slopes
from sfumato.designs.spine.tree import Tree
from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray

__all__ = ["Allocation", "allocate"]

_STEPS = 200  # of the search on one tree, which has as many unknowns as levels: some twenty do
_TOLERANCE = 1e-13  # relative, between two steps: errors are then exact to what is shown, and bounds met to 1e-6
_LEAST = 1e-9  # of the mean share: the finest level of a set is never left unmeasured
_NOTHING = 1e-10  # of the largest precision of a set: what the search has sent to zero
_ROUNDS = 60  # of weights on pairs: they end before, where the dearest is this near to the mean
_NEAR = 1e-4  # of squared errors
_FASTER, _SLOWER = 1.5, 0.5  # powers of what pairs cost, while the dearest falls, and where it rose
_SHARP = 8  # power of prices from which weights start: they cannot come back from nothing, and most end there
MOST_PAIRED = 1_000  # cells of an attribute of which all pairs are looked at by prices (designs/pricing/pairs.py)
_MOST_CHANGED = 6  # attributes of which all subsets are looked at; above, all of them together

Precisions = dict[Sets, FloatArray]


@dataclass(frozen=True, slots=True)
class Allocation:
    """Per set (levels,) the precision of its residual, infinite where it is known; error: sum of weighted variances at
    unit price."""

    precisions: Precisions
    error: float


def allocate(asked: Asked, tree: Tree, *, replaced: bool, public: bool) -> Allocation:
    """The best precisions; `tree` may have merged nodes. public: the total is known, or those of the groups of a level,
    and neither measured nor priced.

    Raises PlanError where nothing is left to be measured.
    """
    effects = asked.residuals()
    fixed = asked.fixed if public else -1
    known = {s: np.array([not s and level <= fixed for level in range(len(c))]) for s, c in effects.items()}
    left = {s: np.where(known[s], 0.0, c) for s, c in effects.items()}
    left = {s: c for s, c in left.items() if c.any()}
    if not left:
        raise PlanError("all that is asked is public; it needs no measurement")
    solver = _Solver(tree, known)
    if not replaced:
        prices = {s: np.full(len(c), asked.price(s)) for s, c in left.items()}
        found, error = solver.shared(left, prices)
        return Allocation(found, error)
    return _replaced(asked, solver, left, public=public)


@dataclass(frozen=True, slots=True)
class _Solver:
    tree: Tree
    known: Mapping[Sets, NDArray[np.bool_]]

    def shared(
        self, effects: Precisions, prices: Mapping[Sets, FloatArray], near: Precisions | None = None
    ) -> tuple[Precisions, float]:
        """The precisions of least error where sum of price times precision is 1, and that error; the search may start
        near others."""
        alone: dict[Sets, tuple[FloatArray, float]] = {}
        solved: dict[bytes, tuple[FloatArray, float]] = {}
        for s, effect in effects.items():
            top, unit = float(effect.max()), float(prices[s].max())
            # sets asked alike differ by a factor
            key = np.round(np.concatenate([effect / top, prices[s] / unit, self.known[s]]), 12).tobytes()
            if key not in solved:
                solved[key] = self._single(effect / top, prices[s] / unit, self.known[s], near[s] if near else None)
            some, error = solved[key]
            alone[s] = some / unit, error * top * unit
        root = sum(math.sqrt(e) for _, e in alone.values())
        return {s: a * (math.sqrt(e) / root) for s, (a, e) in alone.items()}, root**2

    def _single(
        self, effect: FloatArray, price: FloatArray, known: NDArray[np.bool_], near: FloatArray | None
    ) -> tuple[FloatArray, float]:
        """The best precisions of one set at price 1, and its error."""
        from scipy.optimize import Bounds, minimize  # noqa: PLC0415  (slow to import)

        depth = int(np.flatnonzero(effect).max())
        tree = self.tree.cut(depth)
        free = np.flatnonzero(~known[: depth + 1] & (price[: depth + 1] > 0))
        weights = [np.array([[c]]) * n[:, None] for c, n in zip(effect[: depth + 1], tree.counts, strict=True)]

        def precisions(x: FloatArray) -> FloatArray:
            out = np.where(known[: depth + 1], np.inf, 0.0)
            out[free] = x / price[free]
            return out

        def value(x: FloatArray) -> tuple[float, FloatArray]:
            passes = Passes.of(tree, [np.array([[a]]) for a in precisions(x)])
            error = sum(float((w * v).sum()) for w, v in zip(weights, passes.variances, strict=True))
            found = np.array([float(g.sum()) for g in slopes(passes, weights)])[free] / price[free]
            # least where the price is 1
            return math.log(error) + float(x.sum()), 1.0 - found / error

        start = (self._start(effect[: depth + 1], tree) if near is None else near)[free] * price[free]
        least = np.zeros(len(free))
        least[-1] = _LEAST
        start = np.maximum(start / start.sum(), least)
        done = minimize(
            value,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(least, np.inf),
            options={"maxiter": _STEPS, "maxfun": 2 * _STEPS, "ftol": _TOLERANCE, "gtol": 1e-10},
        )
        x = np.asarray(done.x, dtype=np.float64)
        best = min((x, start), key=lambda given: value(given / given.sum())[0])
        best = np.where(best > _NOTHING * best.max(), best, 0.0)
        best = best / best.sum()
        out = np.zeros(len(effect))
        out[: depth + 1] = precisions(best)
        return out, math.exp(value(best)[0] - 1.0)

    @staticmethod
    def _start(effect: FloatArray, tree: Tree) -> FloatArray:
        """The optimum where all nodes of a level have as many children: there levels commute."""
        nodes = np.array([float(c.sum()) for c in tree.counts])
        inside = nodes[-1] / nodes
        roots = np.sqrt(np.cumsum((effect * inside)[::-1])[::-1])
        return (roots - np.append(roots[1:], 0.0)) / inside


# ---- where a record is replaced ----------------------------------------------------------------------------


def _replaced(asked: Asked, solver: _Solver, effects: Precisions, *, public: bool) -> Allocation:
    sets = list(effects)
    costs = _costs(asked, solver.tree, sets, public=public)

    def priced(found: Precisions) -> FloatArray:
        flat = np.array([found[s] for s in sets])
        return np.tensordot(costs, np.where(np.isfinite(flat), flat, 0.0), axes=2)

    def solved(weights: FloatArray, near: Precisions) -> tuple[Precisions, float]:
        return solver.shared(effects, dict(zip(sets, np.tensordot(weights, costs, axes=1), strict=True)), near)

    found, _ = solver.shared(effects, {s: np.full(len(e), asked.price(s)) for s, e in effects.items()})
    start = priced(found)
    weights = (start / start.max()) ** _SHARP
    weights /= weights.sum()
    best: tuple[float, Precisions] | None = None
    power, before = float(_SHARP), math.inf
    for _ in range(_ROUNDS):
        found, error = solved(weights, found)
        each = priced(found)
        dearest = float(each.max())
        if best is None or error * dearest < best[0]:
            best = error * dearest, {s: a / dearest for s, a in found.items()}
        if dearest <= 1 + _NEAR:
            break
        power = max(1.0, power * (_FASTER if dearest < before else _SLOWER))
        before = dearest
        weights = weights * each**power
        weights /= weights.sum()
    assert best is not None
    return Allocation(best[1], best[0])


def _costs(asked: Asked, tree: Tree, sets: Sequence[Sets], *, public: bool) -> FloatArray:
    """(pairs, sets, levels) what a unit of precision adds to the squared distance of two such records."""
    changing = tuple(sorted({i for s in sets for i in s}))
    choices = list(subsets(changing)) if len(changing) <= _MOST_CHANGED else [(), changing]
    out: list[list[FloatArray]] = []
    for together in _together(tree, asked.fixed if public else 0, many=asked.sizes[asked.place] > MOST_PAIRED):
        for changed in choices:
            if changed or not together.all():
                out.append([_cost(asked, s, together, changed) for s in sets])
    if not public:
        # a record may vanish without another in its place
        out.append([np.full(tree.depth + 1, asked.price(s)) for s in sets])
    return np.array(out)


def _together(tree: Tree, fixed: int, *, many: bool) -> list[NDArray[np.bool_]]:
    """Sets of levels at which two records may lie in one group, (levels,): those down to the level `fixed`, in whose
    groups records are replaced, and what is above some level."""
    levels = tree.depth + 1
    if many:
        choices = itertools.product((True, False), repeat=levels - 1 - fixed)
        return [np.array([True] * (fixed + 1) + list(choice)) for choice in choices]
    nodes = [float(c.sum()) for c in tree.counts]
    last = [c for c in range(fixed, levels) if c == tree.depth or nodes[c + 1] > nodes[c]]
    return [np.arange(levels) <= c for c in last]


def _cost(asked: Asked, s: Sets, together: NDArray[np.bool_], changed: Sets) -> FloatArray:
    inner = math.prod(-1 / asked.sizes[i] if i in changed else 1 - 1 / asked.sizes[i] for i in s)
    return 2.0 * (asked.price(s) - np.where(together, inner, 0.0))
