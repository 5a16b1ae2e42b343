"""A release's projection down a tree of places: what it says of every node, and the counts that were settled."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.designs.allowed import Allowed
from sfumato.designs.known import KnownGroups
from sfumato.designs.spine.asked import read_levels
from sfumato.designs.spine.places import Place
from sfumato.designs.spine.strategy import Spine
from sfumato.designs.spine.tree import Tree
from sfumato.errors import NotAnswerable, PlanError
from sfumato.estimate.projection import Projection
from sfumato.estimate.spine.cells import Cells, Sets
from sfumato.estimate.spine.limits import Bounds, limits
from sfumato.estimate.spine.parts import Part, Parts
from sfumato.estimate.spine.placed import PlacedCounts
from sfumato.estimate.spine.told import Readings, Said, Told, parted
from sfumato.ground.progress import Progress
from sfumato.operators import Block, Identity, LinearOperator
from sfumato.operators.base import FloatArray
from sfumato.releases.bounding import MAX_CELLS, Levels, group_called, levels_asked, read_bounds
from sfumato.releases.parted import Kept, gathered
from sfumato.releases.synthetic import settled
from sfumato.workloads import Workload

if TYPE_CHECKING:
    from sfumato.releases.core import Release

__all__ = ["placed"]


_MAX_LISTED = 10_000_000  # answers held beside the counts, as many as a release writes; beyond, they are read off these
_MAX_HELD = 2**26  # numbers of unprojected tables at the finest level that are held at once: 512 MB
_LEAST = 1e-6  # of a level's largest variance: what has less is as good as known, and rounding cannot tell


def placed(
    whole: Release,
    total: float | None,
    progress: Progress | None,
    *,
    integer: bool,
    folder: str | os.PathLike[str] | None = None,
    bounds: Mapping[Any, Any] | None = None,
) -> Projection:
    """The projection of a release down its tree.

    bounds: of the records of groups, by level, or by level and condition; folder: for its parts, where a killed one
    goes on.

    Raises PlanError where no levels were asked, InvalidInput for a folder of anything else.
    """
    work = whole.plan.workload
    found = levels_asked(work)
    if found is None:
        raise PlanError(
            "body='spine' is for tables of cells at the levels of one attribute, factors={...: 'levels'} in "
            f"sf.marginals, of at most {MAX_CELLS:,} cells within a unit, none impossible by place; take body='auto'"
        )
    known = [k for k in whole.plan.strategy.known if isinstance(k, KnownGroups)]
    total = float(known[0].counts.sum()) if known else total
    kept_to = read_bounds(work, found, bounds or {}, integer=integer)
    parts = Parts(_given(whole, found, total, kept_to), found.sets, total, whole=integer, possible=found.possible)
    kept = None
    if folder is not None:
        save = _saver(work, found) if integer else None
        kept = Kept(folder, whole, parts, total, save, kept_to)
    with nullcontext() if kept is None else kept.working():
        leaves, tally = gathered(parts, kept, progress)
    held = _counts(work, found, leaves)
    answers = np.zeros(0)
    if len(work) <= _MAX_LISTED:
        answers = np.concatenate([held.answer(q.block) for q in work.blocks])
    return Projection(
        answers,
        held,
        tally.gap,
        True,
        math.sqrt(tally.moved),
        tally.sweeps,
        "spine",
        True,
        rounded=tally.rounded if integer else None,
        norm="families",
    )


def _given(whole: Release, found: Levels, total: float | None, bounds: Bounds) -> Readings | Told:
    strategy = whole.plan.strategy
    # cells that cannot be are left out at the root, and so everywhere
    strategy = strategy.measured if isinstance(strategy, Allowed) else strategy
    if isinstance(strategy, Spine):
        if total is None and () not in strategy.precisions:
            raise NotAnswerable("nothing was measured that says how many records there are; give total=")
        # a level of public totals may lie between those that were asked
        rows = {_level(strategy.levels, found.levels[i - 1]): b for i, b in bounds.rows.items()}
        own = Bounds(rows, bounds.inside)
        domain = whole.plan.workload.domain
        called = partial(group_called, domain, domain.names[found.place], strategy.places)
        within = limits(strategy.places, strategy.totals, total, own, found.possible, called)
        return Readings(strategy, whole.measurement.values, whole.measurement.noise.variance, found.axes, within)
    return _Answered(whole, found, total, bounds)


def _level(levels: Sequence[LinearOperator], wanted: LinearOperator) -> int:
    return next(i for i, f in enumerate(levels, 1) if f.shape == wanted.shape)


def _counts(work: Workload, found: Levels, leaves: Part) -> PlacedCounts:
    domain = work.domain
    names = tuple(domain.names[i] for i in found.axes)
    place = domain.names[found.place]
    sizes = domain.sizes(names)
    return PlacedCounts(
        place, domain.shape[found.place], found.levels, names, sizes, leaves.unit, leaves.cell, leaves.count
    )


def _saver(work: Workload, found: Levels) -> Callable[[Part, Path], None]:
    """What writes the records of a part."""

    def save(part: Part, path: Path) -> None:
        settled(_counts(work, found, part), work, None).save(path)

    return save


class _Answered:
    """By the unprojected answers to the tables of any strategy: every residual at the variance that it has there."""

    def __init__(self, whole: Release, found: Levels, total: float | None, bounds: Bounds) -> None:
        domain = whole.plan.workload.domain
        self.places = Place.of(read_levels(found.levels), domain.shape[found.place])
        self.cells = Cells(tuple(domain.shape[i] for i in found.axes))
        units = found.levels[-1].shape[0]
        if units * self.cells.size > _MAX_HELD:
            raise NotAnswerable(
                f"body='spine' would hold {units:,} units by {self.cells.size:,} cells at once; take body='local'"
            )
        self._whole, self._found = whole, found
        called = partial(group_called, domain, domain.names[found.place], self.places)
        within = limits(self.places, (), total, bounds, found.possible, called)
        self._limits, self.inside = () if within is None else within.levels, bounds.inside
        self._levels = [self._level(level) for level in range(len(found.levels) + 1)]

    @property
    def tree(self) -> Tree:
        return self.places.tree

    def _level(self, level: int) -> Said:
        """Of every node of a level, in the order of the tree."""
        nodes = len(self.places.order[level])
        every = [s for s in self.cells.sets if any(set(s) <= set(a) for a in self._found.sets)]
        tables: dict[Sets, FloatArray] = {}
        variances: dict[Sets, float] = {}
        for s in every:
            block = self._block(level, s)
            try:
                tables[s] = self._whole.answer_block(block).reshape(nodes, -1)
                variances[s] = float(self._whole.variances(block).mean())
            except NotAnswerable:
                continue
        wanted, weights = np.zeros((nodes, self.cells.size)), np.zeros(len(self.cells.sets))
        for j, s in enumerate(self.cells.sets):
            below = [b for b in variances if set(b) <= set(s)]
            if s not in variances or len(below) < 2 ** len(s):
                continue
            rest = {b: math.prod(self.cells.shape[i] for i in s if i not in b) for b in below}
            own = sum((-1) ** (len(s) - len(b)) * variances[b] / rest[b] ** 2 for b in below)
            room = math.prod(1 - 1 / self.cells.shape[i] for i in s)
            if room <= 0:
                continue
            outside = self.cells.size / math.prod(self.cells.shape[i] for i in s)
            spread = (n if i in s else 1 for i, n in enumerate(self.cells.shape))
            flat = np.broadcast_to(tables[s].reshape(nodes, *spread), (nodes, *self.cells.shape)) / outside
            wanted += self.cells.project([t == s for t in self.cells.sets], flat.reshape(nodes, -1))
            variance = max(own / room, _LEAST * max(variances.values()))
            weights[j] = outside / variance if variance > 0 else 0.0
        return Said(self._sorted(level, wanted), weights)

    def _block(self, level: int, axes: Sets) -> Block:
        domain = self._whole.plan.workload.domain
        own = [self._found.axes[i] for i in axes]
        groups = [(domain.names[self._found.place],)] * bool(level) + [(domain.names[i],) for i in own]
        factors: list[LinearOperator] = [self._found.levels[level - 1]] if level else []
        return Block(tuple(groups), (*factors, *(Identity(domain.shape[i]) for i in own)))

    def _sorted(self, level: int, rows: FloatArray) -> FloatArray:
        return self.places.sorted(level, rows)

    def root(self) -> Said:
        top = self._levels[0]
        return Said(top.wanted, top.weights, self._limits[0] if self._limits else None)

    def family(self, level: int, parent: int, counts: FloatArray) -> Said:
        first, last = self.tree.run(level, parent)
        own = self._levels[level]
        means = own.wanted[first:last]
        known = own.weights > 0
        short = self.cells.project(known, (counts - means.sum(axis=0))[None])
        limits = self._limits[level] if self._limits else None
        held = None if limits is None else limits[first:last]
        return Said(parted(self.cells, means + short / (last - first), counts, known), own.weights, held)
