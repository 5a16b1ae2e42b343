"""The last rung over many tables: the tables that agree, nearest to what each says beyond its margins.

As `local`, with the components of the held tables kept as they are. What comes of it is raked order by order: pairs to
single attributes, tables of three to their pairs. So every table is held to what is coarser, whatever is left of the
gap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.marginals.incidence import locate
from sfumato.estimate.elliptope.anderson import Anderson
from sfumato.estimate.ladder.raking import Sums, independent, rake
from sfumato.estimate.ladder.told import Axes, Possible, below, every_cell
from sfumato.estimate.local import Given, Problem, Step
from sfumato.estimate.margins import Layout, lift
from sfumato.estimate.orthant import Orthant
from sfumato.operators.base import FloatArray

__all__ = ["AgreeingTables", "agreeing_tables"]

_MEMORY = 6  # as in local.py: a small system to solve at each step
_CHECK = 20  # a bound costs about a step: a twentieth more
_MOST = 120  # six bounds; the gap says how much is left
_TOUCH = 1e-9  # of the independent table: no cell starts at zero, where raking could not move it
_SWEEPS = 60  # of raking; how far sums then are apart is said (`apart`)
# the bound grew by less than a thousandth between two checks: what more steps move is less than is shown
_SETTLED = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class AgreeingTables:
    """Nonnegative tables by their attributes; `gap` bounds the squared distance from the nearest ones that agree.

    apart: the largest difference that raking left between a table's sums and the coarser table, in records.
    """

    tables: dict[Axes, FloatArray]
    gap: float
    moved: float
    iterations: int
    apart: float


def agreeing_tables(
    sizes: Sequence[int],
    tables: Mapping[Axes, tuple[FloatArray, float]],
    held: Mapping[Axes, FloatArray],
    groups: Sequence[Sums],
    *,
    possible: Possible = every_cell,
    progress: Callable[[int, float], None] | None = None,
) -> AgreeingTables:
    """Tables over all sets of `tables` and `held`, which hold every set below them.

    sizes, tables, held, groups: as `joint_cells` takes them; possible: of every table. Stops where the proved bound has
    settled, or after 120 steps: the gap says how much is left. The bound holds for tables that agree, so up to `apart`.
    """
    every = sorted({*tables, *held}, key=lambda s: (len(s), s))
    largest = [s for s in every if not any(set(s) < set(t) for t in every if len(t) == len(s) + 1)]
    given, problem = _problem(sizes, tables, held, largest)
    body = _orthant(given, problem, largest, possible)
    v = lift(problem.inc, problem.target)
    step = Step(problem, 1.0)
    root = np.sqrt(problem.own)
    faster = Anderson(len(v), _MEMORY)
    least = -math.inf
    done = 0
    for done in range(1, _MOST + 1):
        q = step(body.reflected(v))
        if done % _CHECK == 0:
            bound = _dual(problem, step, body.multipliers(v))
            settled = bound - least <= _SETTLED * max(bound, 0.0)
            least = max(least, bound)
            if progress is not None:
                progress(done, math.nan)
            if settled:
                break
        v = faster.next(root * v, root * (q - body.nearest(v))) / root
    found = _read(given, problem, step.components(body.reflected(v)), sizes, every, largest)
    found, apart = _raked(found, held, groups, possible)
    away = np.zeros(given.closure.size)
    for axes, cells in found.items():
        away[_place(given, given.closure, axes)] = cells.transpose(_turn(given, axes)).reshape(-1)
    given.closure.centre(away)
    away = np.where(problem.free > 0, away - problem.target, 0.0)
    squared = problem.length(away) ** 2
    return AgreeingTables(found, min(max(squared - least, 0.0), squared), math.sqrt(squared), done, apart)


def _problem(
    sizes: Sequence[int],
    tables: Mapping[Axes, tuple[FloatArray, float]],
    held: Mapping[Axes, FloatArray],
    largest: Sequence[Axes],
) -> tuple[Given, Problem]:
    """Where tables are, and what is minimised."""
    shapes = [tuple(sizes[i] for i in s) for s in largest]
    given = Given.read(sizes, largest, [np.zeros(n) for n in shapes], None)
    target, precision = np.zeros(given.closure.size), np.ones(given.closure.size)
    free = np.ones(given.closure.size)
    for axes in {*tables, *held}:
        place = _place(given, given.closure, axes)
        fixed = axes in held
        cells, spread = (held[axes], 1.0) if fixed else tables[axes]
        target[place] = cells.transpose(_turn(given, axes)).reshape(-1)
        precision[place] = 1 / spread
        free[place] = 0.0 if fixed else 1.0
    given.closure.centre(target)
    problem = Problem(given, precision, target, None)
    problem.free = free
    return given, problem


def _place(given: Given, layout: Layout, axes: Axes) -> slice:
    """Where what belongs to a set stands among all of a layout."""
    row = np.sort(_ranks(given, axes)).astype(np.int32).reshape(1, len(axes))
    at = int(locate(layout.sets[len(axes)], row, len(given.sizes))[0])
    first = int(layout.starts[len(axes)][at])
    return slice(first, first + math.prod(int(n) for n in given.sizes[row[0]]))


def _turn(given: Given, axes: Axes) -> NDArray[np.intp]:
    """The order of a table's attributes in its component."""
    return np.argsort(_ranks(given, axes), kind="stable")


def _ranks(given: Given, axes: Axes) -> NDArray[np.intp]:
    return np.argsort(given.rank, kind="stable")[list(axes)]


def _orthant(given: Given, problem: Problem, largest: Sequence[Axes], possible: Possible) -> Orthant:
    """What the cells of the largest tables can be, as they are lifted."""
    masks = {s: m for s in largest if (m := possible(s)) is not None}
    if not masks:
        return Orthant(None)
    flat = np.ones(problem.layout.size, dtype=bool)
    for axes, mask in masks.items():
        flat[_place(given, problem.layout, axes)] = mask.transpose(_turn(given, axes)).reshape(-1)
    return Orthant(flat)


def _dual(problem: Problem, step: Step, held: FloatArray) -> float:
    """A bound from below on the squared distance of any tables that can be, by the multipliers of the state.

    Any such x is at the squared distance |x - x*|^2 <= f(x) - f(x*) from the nearest x*, so what this bound leaves of
    f(x) is a gap.
    """
    multipliers = step.weight * held
    pulled = problem.target + problem.free * problem.collect(multipliers) / problem.precision
    away = problem.length(pulled - problem.target)
    return away**2 - 2 * float(multipliers @ lift(problem.inc, pulled))


def _read(
    given: Given,
    problem: Problem,
    components: FloatArray,
    sizes: Sequence[int],
    every: Sequence[Axes],
    largest: Sequence[Axes],
) -> dict[Axes, FloatArray]:
    """The tables with these components: they agree, and may still be a little negative."""
    flat = lift(problem.inc, components)
    out: dict[Axes, FloatArray] = {}
    for axes in largest:
        turn = _turn(given, axes)
        shape = [sizes[axes[i]] for i in turn]
        out[axes] = flat[_place(given, problem.layout, axes)].reshape(shape).transpose(np.argsort(turn))
    for axes in sorted(every, key=len, reverse=True):
        for i in range(len(axes)):
            below = axes[:i] + axes[i + 1 :]
            if axes in out and below not in out:
                out[below] = out[axes].sum(axis=i)
    return out


def _raked(
    found: Mapping[Axes, FloatArray],
    held: Mapping[Axes, FloatArray],
    groups: Sequence[Sums],
    possible: Possible,
) -> tuple[dict[Axes, FloatArray], float]:
    """Nonnegative tables, every one with the sums of those below it, and the largest difference that was left.

    Tables in which counts were named come first, and what they say of fewer attributes is held by all others.
    """
    out: dict[Axes, FloatArray] = dict(held)
    apart = 0.0
    waiting = list(groups)
    named = sorted({g.axes for g in groups}, key=lambda s: (-len(s), s))
    for axes in [*named, *sorted(found, key=lambda s: (len(s), s))]:
        if axes in out:
            continue
        asked = [g for g in waiting if set(g.axes) <= set(axes)]
        waiting = [g for g in waiting if not set(g.axes) <= set(axes)]
        coarser = [s for s in below(axes) if s in out]
        nearest = [Sums(s, out[s]) for s in coarser if not any(set(s) < set(t) for t in coarser)]
        mask = possible(axes)
        start = Orthant(mask).nearest(found[axes]) + _TOUCH * independent(axes, held, mask)
        inner = [replace(s, axes=tuple(axes.index(i) for i in s.axes)) for s in [*asked, *nearest]]
        out[axes] = rake(start, inner, sweeps=_SWEEPS)
        apart = max([apart, *(float(np.abs(s.of(out[axes]) - s.wanted).max()) for s in inner[len(asked) :])])
        for s in below(axes) if asked else ():
            out.setdefault(s, out[axes].sum(axis=tuple(k for k, i in enumerate(axes) if i not in s)))
    return out, apart
