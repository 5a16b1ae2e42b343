"""The ladder: total, attributes, what was asked for itself, then all tables; each is held before finer ones move."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sfumato._util.display import Progress
from sfumato.operators.base import FloatArray
from sfumato.postprocess.cones import project_onto_simplex
from sfumato.postprocess.hierarchical_rungs import (
    Axes,
    DerivedQueries,
    NoisyEstimates,
    Rung,
    Sums,
    held_tables,
    hierarchical_total,
    independence_table,
    rake_cells,
)
from sfumato.postprocess.hierarchical_tables import agreeing_tables, joint_cells
from sfumato.postprocess.possible import CellCounts, Possible, TableCounts

__all__ = ["HierarchicalSolution", "is_joint_table_small", "project_hierarchically"]


_CELLS = 2**20  # 8 MB a joint table: up to here the cone over all cells, beyond it tables that agree
_WORK = 2**27  # cells times the sizes of all attributes: some 20 CPU seconds of transforms
_CERTAIN = 1e-6  # of the largest variance: what is known exactly weighs a million times, and the system stays sound
_GIVE = 1e-5  # of its variance, per unit of a named count's multiplier: of the order of its logarithm


@dataclass(frozen=True, slots=True, eq=False)
class HierarchicalSolution:
    """What is possible and was found, with the last rung's gap and distance, and all rungs."""

    possible: Possible
    gap: float
    moved: float
    iterations: int
    rungs: tuple[Rung, ...]


def is_joint_table_small(sizes: tuple[int, ...]) -> bool:
    """Whether one table of all attributes is small enough, by cells and by the time of its transforms."""
    cells = math.prod(sizes)
    return cells <= _CELLS and cells * sum(sizes) <= _WORK


def project_hierarchically(
    told: NoisyEstimates, *, joint: bool, progress: Progress | None = None
) -> HierarchicalSolution:
    """Answers that a table could have given, no coarse one moved for the sake of finer ones.

    The total is held (clipped at 0), then every attribute's table on the simplex of that total, then named counts,
    levels, cumulative counts and sums, as nearly as those before allow. Last the tables move to the least sum over
    sets of attributes of squared distances of what they have beyond their margins, each in units of its noise.
    joint: over one table of all attributes, the cone; else over tables that agree.
    """
    total = hierarchical_total(told)
    held = held_tables(told, total)
    kept = [np.flatnonzero(held[i,] > 0) for i in range(len(told.sizes))]
    if total == 0:
        kept = [np.arange(1) for _ in told.sizes]

    def cut(values: FloatArray, axes: Axes) -> FloatArray:
        return values[np.ix_(*(kept[i] for i in axes))] if axes else values

    def padded(values: FloatArray, axes: Axes) -> FloatArray:
        out = np.zeros(tuple(told.sizes[i] for i in axes))
        if axes:
            out[np.ix_(*(kept[i] for i in axes))] = values
        return out if axes else np.asarray(values)

    def possible_cells(axes: Axes) -> NDArray[np.bool_] | None:
        mask = told.possible(axes)
        return None if mask is None else mask[np.ix_(*(kept[i] for i in axes))]

    # where an attribute's count is zero, so is all that is finer
    small = {s: cut(t, s) for s, t in held.items()}
    sizes = [len(k) for k in kept]
    asked = [a for a in told.asked if len(a.axes) > 1 and a.groups and a.axes not in held]
    groups = [_possible_groups(a, small, cut(_group_numbers(a), a.axes), possible_cells(a.axes)) for a in asked]
    finer = {s: (cut(t, s), told.spread[s]) for s, t in told.tables.items() if s not in held}
    if joint:
        every = tuple(range(len(sizes)))
        done = joint_cells(sizes, finer, small, groups, possible=possible_cells(every), progress=progress)
        possible: Possible = CellCounts(told.names, padded(done.cells, every))
        gap, moved, steps = done.gap, done.moved, done.iterations
    else:
        found = agreeing_tables(sizes, finer, small, groups, possible=possible_cells, progress=progress)
        named = tuple(tuple(told.names[i] for i in s) for s in found.tables)
        possible = TableCounts(named, tuple(padded(t, s) for s, t in found.tables.items()))
        gap, moved, steps = found.gap, found.moved, found.iterations
    return HierarchicalSolution(possible, gap, moved, steps, _rung_summaries(told, held, asked, groups, possible))


def _group_numbers(asked: DerivedQueries) -> FloatArray:
    """The group of every cell; those in none are the last."""
    return np.where(asked.rows.sum(axis=0) > 0, asked.rows.argmax(axis=0), len(asked.rows)).astype(np.float64)


def _possible_groups(
    asked: DerivedQueries, held: Mapping[Axes, FloatArray], numbers: FloatArray, possible: NDArray[np.bool_] | None
) -> Sums:
    """Counts of groups and of the rest: what was said, as nearly as the attributes by themselves allow it."""
    total = float(held[()])
    rest = total - float(asked.values.sum())
    spread = np.maximum(asked.variances, _CERTAIN * float(asked.variances.max()) or 1.0)
    spread = np.append(spread, spread.sum())
    wanted = project_onto_simplex(np.append(asked.values, rest), total, spread)
    sums = Sums(asked.axes, wanted, numbers.astype(np.intp), give=_GIVE * spread)
    axes = tuple(range(len(asked.axes)))
    own = replace(sums, axes=axes)
    margins = [Sums((k,), held[i,]) for k, i in enumerate(asked.axes)]
    met = own.met_by(rake_cells(independence_table(asked.axes, held, possible), [own, *margins]))
    return replace(sums, wanted=met.wanted)


def _rung_summaries(
    told: NoisyEstimates,
    held: Mapping[Axes, FloatArray],
    asked: list[DerivedQueries],
    groups: list[Sums],
    possible: Possible,
) -> tuple[Rung, ...]:
    """How far each rung moved, and how nearly it is held."""

    def table(axes: Axes) -> FloatArray:
        return possible.table([told.names[i] for i in axes])

    out: list[Rung] = []
    single = [(i,) for i in range(len(told.sizes))]
    for name, sets in (("total", [()]), ("tables of one attribute", single)):
        sets = [s for s in sets if told.variances.get(s, 0.0) > 0]
        unit = [math.sqrt(told.variances[s]) for s in sets]
        moved = [((table(s) - told.tables[s]) / u).reshape(-1) for s, u in zip(sets, unit, strict=True)]
        missed = [((table(s) - held[s]) / u).reshape(-1) for s, u in zip(sets, unit, strict=True)]
        if sets:
            out.append(_summarize_rung(name, moved, missed))
    for a in told.asked:
        units = np.sqrt(np.maximum(a.variances, _CERTAIN * float(a.variances.max(initial=0.0)) or 1.0))
        if len(a.axes) > 1 and a.axes not in held and not any(a is b for b in asked):
            continue
        now = np.tensordot(a.rows, table(a.axes), axes=len(a.axes))
        goal = now
        for b, g in zip(asked, groups, strict=True):
            goal = g.wanted[: len(now)] if a is b else goal
        if a.axes in held:
            goal = np.tensordot(a.rows, held[a.axes], axes=len(a.axes))
        out.append(_summarize_rung(a.name, [(now - a.values) / units], [(now - goal) / units]))
    return tuple(out)


def _summarize_rung(name: str, moved: list[FloatArray], missed: list[FloatArray]) -> Rung:
    one, two = np.concatenate(moved), np.concatenate(missed)
    return Rung(name, len(one), math.sqrt(float(np.mean(one**2))), math.sqrt(float(np.mean(two**2))))
