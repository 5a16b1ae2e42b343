"""From the root down: every family is settled given its parent, on the cells where the parent is not zero.

A tree too large to be settled at once goes by parts: what is above a level first, then what is below it, part by part.
Bottom-up every branch below a node of that level is read once, and all that is kept of it is what it says of its top.
The tree above is settled by that; top-down every branch is read again and settled given its top. No more is held than
the tree above and one branch, and what every part comes to follows from the release and what is above alone: parts can
be made in any order, and again.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._util.display import Progress
from sfumato.operators.base import FloatArray
from sfumato.postprocess.geography_cells import (
    CellHalves,
    IntArray,
    NearestPoint,
    QuadraticForm,
    Sets,
    Simplices,
    TableCells,
    nearest_in_norm,
    nearest_real,
    real_family,
    real_parts,
    split_totals,
    splitting_chain,
    whole_family,
    whole_parts,
)
from sfumato.postprocess.geography_estimates import (
    FamilyEstimates,
    Readings,
    TreeEstimates,
    TreeMeasurements,
    fit_proportions,
)
from sfumato.strategies.geography_tree import GroupTree

_TOLERANCE = 1e-3  # of what noise moves a family by, squared: the mean error moves by less than its third digit
_RIDGE = 1e-3  # of the least weight that is known: what nothing is known of stays where its parent's is
_LEAST = 1e-6  # of a parent's cell: less of it in a child, in real numbers, is none
_ROUNDING = 1e-13  # of all records: less in a cell is what is left of differences
_HEAVY = 100.0  # times the largest weight: known totals are then missed by hundredths of what noise moves
_TOTALS = 4.0  # times its weight for a unit's total: 2 to 8 err alike, 1 by up to 38 % more than before
LOOKED = 200  # families from which the second look's strength is fitted: its error is then some hundredths
Sample = tuple[FloatArray, FloatArray, float]
"""Of a family: per cell its mean over the children, how much they vary about what their totals say, and the noise."""
Strength = tuple[float, float]
"""Counts of a cell of mean m differ from unit to unit by the variance first m + second m^2, the first at least 1."""
_APART = 1e-6  # of what a slope and a bend have of their own: less tells them not apart
_STEP = 0.5  # of the geometric mean of eigenvalues' bounds: fewest sweeps on generated people, .3 to 1 within twice


@dataclass(frozen=True, eq=False, slots=True)
class NodeCounts:
    """Nodes of one level: per node the cells (ascending) where it is not zero, and its counts there."""

    cells: list[IntArray]
    counts: list[FloatArray]


@dataclass(frozen=True, slots=True)
class FamilyTally:
    """Of all families that were settled.

    gap: proved bound on their squared distances from their nearest points, in units of the noise, and `worst` the
    largest against that noise; moved: those from where no constraint is; sweeps and families: how many. squares, cells:
    summed squared change by whole numbers, and of how many cells.
    """

    gap: float = 0.0
    worst: float = 0.0
    moved: float = 0.0
    sweeps: int = 0
    families: int = 0
    squares: float = 0.0
    cells: int = 0

    def plus(self, other: FamilyTally) -> FamilyTally:
        """Of both."""
        return FamilyTally(
            self.gap + other.gap,
            max(self.worst, other.worst),
            self.moved + other.moved,
            self.sweeps + other.sweeps,
            self.families + other.families,
            self.squares + other.squares,
            self.cells + other.cells,
        )

    @property
    def rounded(self) -> float:
        """Root mean squared change of a cell by whole numbers."""
        return math.sqrt(self.squares / max(self.cells, 1))


@dataclass(frozen=True, eq=False, slots=True)
class Descent:
    """levels: from the root down; strength: of the second look at the lowest level, None where there was none."""

    levels: list[NodeCounts]
    tally: FamilyTally
    strength: Strength | None


class Run:
    """Families settled one after the other under one set of rules.

    asked: axes of the tables that are kept to by whole numbers, which are asked for by `whole`; before: what was
    settled already; strength: of the second look, where it is known.
    """

    def __init__(
        self,
        told: TreeEstimates,
        asked: Sequence[Sets],
        progress: Progress | None,
        *,
        whole: bool,
        before: FamilyTally | None = None,
        strength: Strength | None = None,
    ) -> None:
        self.told, self.cells, self.whole, self.progress = told, told.cells, whole, progress
        self.steps = splitting_chain(told.cells, asked)
        self.before = FamilyTally() if before is None else before
        self.tally = FamilyTally()
        self.strength = strength

    def _whole(self, real: FloatArray, found: IntArray) -> FloatArray:
        self.tally = self.tally.plus(FamilyTally(squares=float(((real - found) ** 2).sum()), cells=found.size))
        return found.astype(np.float64)

    def note(self, found: NearestPoint, size: int) -> None:
        worst = found.gap / max(size, 1)
        self.tally = self.tally.plus(FamilyTally(found.gap, worst, found.moved, found.sweeps, 1))
        if self.progress is not None:
            self.progress(self.before.families + self.tally.families, max(self.before.worst, self.tally.worst))

    def top(self, total: float | None, possible: IntArray | None) -> NodeCounts:
        """The root; total: of all records where it is known; possible: the cells that can hold one, None for all."""
        row = self.root(total, np.arange(self.cells.size) if possible is None else possible)
        where = np.flatnonzero(row)
        return NodeCounts([where], [row[where]])

    def down(self, above: NodeCounts, first: int, last: int, *, looked: bool = False) -> list[NodeCounts]:
        """The levels from one to another of the tree, given what is above; looked: by the second look."""
        levels: list[NodeCounts] = []
        for level in range(first, last + 1):
            own = NodeCounts([], [])
            for parent, (where, held) in enumerate(zip(above.cells, above.counts, strict=True)):
                if not len(where):
                    start, stop = self.told.tree.run(level, parent)
                    own.cells.extend([where] * (stop - start))
                    own.counts.extend([held] * (stop - start))
                    continue
                for row in self.children(level, parent, where, held, last=looked):
                    kept = np.flatnonzero(row)
                    own.cells.append(where[kept])
                    own.counts.append(row[kept])
            levels.append(own)
            above = own
        return levels

    def root(self, total: float | None, every: IntArray) -> FloatArray:
        """(cells,), zero outside of `every`."""
        said = self.told.root()
        weights, more = _ridge_weights(self.cells, said.weights)
        wanted, known = said.wanted, said.weights > 0
        if more:
            like = np.zeros(self.cells.size)
            like[every] = 1.0
            wanted = wanted + self.cells.project(~known, fit_proportions(self.cells, wanted, like, known))
        form = QuadraticForm.of(self.cells, self.cells.coefficients(weights), every, more)
        given = (self.cells.weigh(weights[None], wanted) + more * wanted)[:, every]
        if total is None:
            # what is measured of cells that cannot be speaks for the others
            free = wanted if len(every) == self.cells.size else form.solver(0.0)(given)
            total = max(float(free.sum()), 0.0)
        if said.limits is not None:
            total = float(np.clip(total, *said.limits[0, :2]))
        count = float(round(total)) if self.whole else total
        out = np.zeros(self.cells.size)
        if count == 0:
            return out
        allowed = Simplices(np.array([count]), together=True)
        start = np.maximum(wanted[:, every], 0.0)
        found = nearest_in_norm(form, given, allowed, start, _TOLERANCE * len(every), step=_STEP)
        self.note(found, len(every))
        held = None if said.limits is None else said.limits[0]
        halves = self._halves(every)
        if self.whole:
            out[every] = self._whole(found.point[0], whole_parts(found.point[0], int(count), halves, held))
        else:
            kept = found.point[0] if held is None else real_parts(found.point[0], halves.inside, held)
            out[every] = np.where(kept > _LEAST, kept, 0.0)
        return out

    def _halves(self, where: IntArray) -> CellHalves:
        return CellHalves.of(self.cells, where, self.steps, self.told.inside)

    def children(self, level: int, parent: int, where: IntArray, counts: FloatArray, *, last: bool) -> FloatArray:
        """(n, where) the children of a node that is not empty."""
        dense = np.zeros(self.cells.size)
        dense[where] = counts
        said = self.told.family(level, parent, dense)
        n, size = len(said.wanted), said.wanted.shape[0] * len(where)
        if n == 1:
            return counts[None]
        form, given, allowed, found = self._look(said, where, counts, _known_totals(said))
        if last and self.strength is not None:
            # towards the parent's composition at the child's own total, as loosely as units differ from it
            mean = counts / n
            loose = 1 / (self.strength[0] * mean + self.strength[1] * mean**2)
            given = given + loose * found.point.sum(axis=1)[:, None] * (counts / counts.sum())
            form = QuadraticForm(form.diagonal + loose, form.columns, form.weights)
            found = nearest_in_norm(form, given, allowed, found.point, _TOLERANCE * size, step=_STEP)
        self.note(found, size)
        if self.whole:
            sums = np.rint(counts).astype(np.int64)
            return self._whole(found.point, whole_family(found.point, sums, self._halves(where), said.limits))
        if said.limits is not None:
            kept = real_family(found.point, counts, self._halves(where), said.limits)
            return np.where(kept > _ROUNDING * counts.sum(), kept, 0.0)
        kept = np.where(found.point > _LEAST * counts, found.point, 0.0)
        return kept * (counts / kept.sum(axis=0))

    def _look(
        self, said: FamilyEstimates, where: IntArray, counts: FloatArray, totals: FloatArray | None
    ) -> tuple[QuadraticForm, FloatArray, Simplices, NearestPoint]:
        """Counts of children on some cells, nearest to what is said, and to `totals` (n,) of theirs if these are given;
        with the problem that it was."""
        weights, more = _ridge_weights(self.cells, said.weights)
        # cells that are clipped at nothing push the totals of the others; what is said of these bears it
        weights[0] *= _TOTALS
        wanted = said.wanted
        if totals is not None:
            # the empty set's: near enough to what is then kept to exactly
            weights[0] = _HEAVY * float(weights.max())
            wanted = wanted + ((totals - wanted.sum(axis=1)) / self.cells.size)[:, None]
        form = QuadraticForm.of(self.cells, self.cells.coefficients(weights), where, more)
        given = (self.cells.weigh(weights[None], wanted) + more * wanted)[:, where]
        allowed, start = Simplices(counts), np.maximum(wanted[:, where], 0.0)
        found = nearest_in_norm(form, given, allowed, start, _TOLERANCE * start.size, step=_STEP)
        if totals is None and said.limits is not None:
            inside = None if self.told.inside is None else self.told.inside[where]
            held = split_totals(found.point, counts, said.limits, inside, nearest_real)[0]
            if np.abs(held - found.point.sum(axis=1)).max() > _ROUNDING * counts.sum():
                return self._look(said, where, counts, held)
        return form, given, allowed, found

    def samples(self, level: int, above: NodeCounts, most: int) -> list[Sample] | None:
        """Of about `most` families: what their units are off their parent's composition by; None where not all that
        makes up a cell was measured."""
        parents = [i for i, c in enumerate(above.counts) if len(c)]
        held = self.cells.contrasts > 0
        out: list[Sample] = []
        for parent in parents[:: max(1, len(parents) // most)]:
            where, counts = above.cells[parent], above.counts[parent]
            dense = np.zeros(self.cells.size)
            dense[where] = counts
            said = self.told.family(level, parent, dense)
            n = len(said.wanted)
            if n == 1:
                continue
            if not (said.weights[held] > 0).all():
                return None
            noise = float((self.cells.contrasts[held] / said.weights[held]).sum()) / self.cells.size
            own = self.children(level, parent, where, counts, last=False).sum(axis=1)
            away = said.wanted[:, where] - own[:, None] * (counts / counts.sum())
            # what adds up to the parent's varies by less
            out.append((counts / n, (away**2).sum(axis=0) / (n - 1), noise))
        return out


def composition_strength(samples: Sequence[Sample]) -> Strength | None:
    """How much units differ from their parent's composition, see `Strength`.

    Weighted least squares, three times as the weights follow from it: squares less noise are a slope times what
    records drawn one by one vary by, m (1 - share), and a bend times m^2.
    """
    if not samples:
        return None
    means, squares = (np.concatenate([s[i] for s in samples]) for i in (0, 1))
    drawn = np.concatenate([s[0] * (1 - s[0] / s[0].sum()) for s in samples])
    noise = samples[-1][2]
    slope, bend = 1.0, 1.0
    for _ in range(3):
        root = 1 / (noise + slope * drawn + bend * means**2)
        one, two, told = root * drawn, root * means**2, root * (squares - noise)
        own = float(one @ one) * float(two @ two)
        apart = own - float(one @ two) ** 2
        slope = 1.0
        if apart > _APART * own:
            slope = (float(two @ two) * float(one @ told) - float(one @ two) * float(two @ told)) / apart
            if float(one @ one) * float(two @ told) < float(one @ two) * float(one @ told):
                slope = float(one @ told) / float(one @ one)  # the bend would be negative
        slope = max(slope, 1.0)
        bend = max(float(two @ (told - slope * one)) / float(two @ two), 0.0)
    return slope, bend


def _ridge_weights(cells: TableCells, weights: FloatArray) -> tuple[FloatArray, float]:
    """Weights without those of sets that have no contrasts, and what is added for sets of which nothing is known."""
    held = np.where(cells.contrasts > 0, weights, 0.0)
    known = held[held > 0]
    if len(known) == int((cells.contrasts > 0).sum()):
        return held, 0.0
    return held, _RIDGE * float(known.min()) if len(known) else 1.0


def _known_totals(said: FamilyEstimates) -> FloatArray | None:
    """(n,) the totals of children that are known, where all are."""
    if said.limits is None or not np.array_equal(said.limits[:, 0], said.limits[:, 1]):
        return None
    return said.limits[:, 0]


def descend_tree(
    told: TreeEstimates,
    asked: Sequence[Sets],
    total: float | None,
    progress: Progress | None,
    *,
    whole: bool,
    possible: IntArray | None = None,
) -> Descent:
    """Counts of every node, each the sum of its children. asked: axes of the tables that are kept to by whole numbers.

    total: of all records where it is known. whole: in whole numbers. possible: the cells that can hold a record, None
    for all.
    """
    run = Run(told, asked, progress, whole=whole)
    depth = told.tree.depth
    levels = [run.top(total, possible)]
    levels += run.down(levels[0], 1, depth - 1)
    run.strength = composition_strength(Run(told, asked, None, whole=whole).samples(depth, levels[-1], LOOKED) or [])
    return Descent([*levels, *run.down(levels[-1], depth, depth, looked=True)], run.tally, run.strength)


_WHOLE = (
    2**22
)  # numbers of estimates above the leaves that are held at once: 32 MB, and several times that to make them
_UNITS = 2**15  # leaves of a part, where a branch has not more: some seconds of work, and files of some megabytes
_SAMPLED = 20  # branches from which the second look's strength is fitted, ten families each

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False, slots=True)
class UpperNodes:
    """What is settled of the nodes of the level below which the tree is parted; strength: of the second look."""

    tops: NodeCounts
    strength: Strength | None
    tally: FamilyTally

    def arrays(self) -> Arrays:
        """For a file."""
        return {
            "sizes": np.array([len(c) for c in self.tops.cells], dtype=np.int64),
            "cells": np.concatenate([np.zeros(0, dtype=np.int64), *self.tops.cells]),
            "counts": np.concatenate([np.zeros(0), *self.tops.counts]),
            "strength": np.array((math.nan, math.nan) if self.strength is None else self.strength),
            "tally": np.array(astuple(self.tally)),
        }

    @classmethod
    def of(cls, held: Arrays) -> UpperNodes:
        """From a file."""
        ends = np.cumsum(held["sizes"])[:-1]
        slope, bend = held["strength"].tolist()
        tops = NodeCounts(np.split(held["cells"], ends), np.split(held["counts"], ends))
        return cls(tops, None if math.isnan(slope) else (slope, bend), _read_tally(held))


@dataclass(frozen=True, eq=False, slots=True)
class LeafCounts:
    """unit, cell, count (r,): which leaf, which cell, how many; of the leaves of some branches."""

    unit: NDArray[np.int32]
    cell: IntArray
    count: FloatArray
    tally: FamilyTally

    def arrays(self) -> Arrays:
        """For a file."""
        return {"unit": self.unit, "cell": self.cell, "count": self.count, "tally": np.array(astuple(self.tally))}

    @classmethod
    def of(cls, held: Arrays) -> LeafCounts:
        """From a file."""
        return cls(held["unit"], held["cell"], held["count"], _read_tally(held))


def _read_tally(held: Arrays) -> FamilyTally:
    gap, worst, moved, sweeps, families, squares, cells = np.asarray(held["tally"], dtype=np.float64).tolist()
    return FamilyTally(gap, worst, moved, int(sweeps), int(families), squares, int(cells))


class TreeParts:
    """A tree and what is told of it, in parts where it is measured and large; else as one part.

    asked, total, whole, possible: as those of `descend`. level: below which it is parted, 0 where it is not; runs: of
    every part its nodes [first, last) of that level.
    """

    def __init__(
        self,
        given: Readings | TreeEstimates,
        asked: Sequence[Sets],
        total: float | None,
        *,
        whole: bool,
        possible: IntArray | None,
    ) -> None:
        self._given, self._asked, self._total, self.whole, self._possible = given, asked, total, whole, possible
        self._tree, self._order = given.places.tree, given.places.order
        self.level = _splitting_level(self._tree, given.cells.size) if isinstance(given, Readings) else 0
        self.runs = _node_runs(self._tree, self.level)

    def _branch(self, node: int) -> TreeMeasurements:
        assert isinstance(self._given, Readings)
        tree, firsts = self._tree.branch(self.level, node)
        return TreeMeasurements(self._given, tree, self.level, firsts)

    def above(self, progress: Progress | None) -> UpperNodes:
        """What is settled before any part is."""
        if self.level == 0 or not isinstance(self._given, Readings):
            return UpperNodes(NodeCounts([], []), None, FamilyTally())
        nodes = len(self._order[self.level])
        wanted, weights = np.empty((nodes, self._given.cells.size)), np.empty((nodes, len(self._given.cells.sets)))
        for node in range(nodes):
            said = self._branch(node).top()
            wanted[node], weights[node] = said.wanted[0], said.weights[0]
            if progress is not None:
                progress(0, math.nan)
        told = TreeMeasurements(self._given, self._tree.cut(self.level), below=FamilyEstimates(wanted, weights))
        run = Run(told, self._asked, progress, whole=self.whole)
        top = run.top(self._total, self._possible)
        tops = run.down(top, 1, self.level)[-1]
        return UpperNodes(tops, self._strength(tops), run.tally)

    def _strength(self, tops: NodeCounts) -> Strength | None:
        held = [i for i, c in enumerate(tops.counts) if len(c)]
        chosen = held[:: max(1, len(held) // _SAMPLED)]
        out: list[Sample] = []
        for node in chosen:
            told = self._branch(node)
            run = Run(told, self._asked, None, whole=self.whole)
            last = _branch_nodes(run, told.tree.depth - 1, _single_node(tops, node))
            found = run.samples(told.tree.depth, last, max(1, LOOKED // len(chosen)))
            if found is None:
                return None
            out += found
        return composition_strength(out)

    def part(self, number: int, above: UpperNodes, before: FamilyTally, progress: Progress | None) -> LeafCounts:
        """The leaves of one part; `before`: of all that was settled until now, for the progress that is told."""
        if self.level == 0:
            told = TreeMeasurements(self._given) if isinstance(self._given, Readings) else self._given
            done = descend_tree(told, self._asked, self._total, progress, whole=self.whole, possible=self._possible)
            return self._listed(done.levels[-1], 0, done.tally)
        leaves, tally, start = NodeCounts([], []), FamilyTally(), -1
        for node in range(*self.runs[number]):
            tree, firsts = self._tree.branch(self.level, node)
            start = firsts[-1] if start < 0 else start
            if not len(above.tops.cells[node]):
                none = [above.tops.cells[node]] * len(tree.counts[-1])
                leaves.cells.extend(none)
                leaves.counts.extend([np.zeros(0)] * len(none))
                continue
            run = Run(
                self._branch(node),
                self._asked,
                progress,
                whole=self.whole,
                before=before.plus(tally),
                strength=above.strength,
            )
            last = _branch_nodes(run, tree.depth - 1, _single_node(above.tops, node))
            (own,) = run.down(last, tree.depth, tree.depth, looked=True)
            leaves.cells.extend(own.cells)
            leaves.counts.extend(own.counts)
            tally = tally.plus(run.tally)
        return self._listed(leaves, start, tally)

    def _listed(self, leaves: NodeCounts, start: int, tally: FamilyTally) -> LeafCounts:
        units = self._order[-1][start : start + len(leaves.cells)]
        sizes = np.array([len(c) for c in leaves.cells])
        return LeafCounts(
            np.repeat(units, sizes).astype(np.int32),
            np.concatenate(leaves.cells),
            np.concatenate(leaves.counts),
            tally,
        )


def _single_node(tops: NodeCounts, node: int) -> NodeCounts:
    return NodeCounts([tops.cells[node]], [tops.counts[node]])


def _branch_nodes(run: Run, depth: int, top: NodeCounts) -> NodeCounts:
    """The nodes of a level of a branch."""
    return run.down(top, 1, depth)[-1] if depth else top


def _splitting_level(tree: GroupTree, cells: int) -> int:
    """Where to part a tree: nowhere while all of it is small, else where the tree above and the largest branch have
    the fewest nodes together, without leaves."""
    nodes = [len(c) for c in tree.counts]
    if sum(nodes[:-1]) * cells <= _WHOLE or tree.depth < 2:
        return 0
    inside, most = np.ones(nodes[-2]), [1.0]
    for level in range(tree.depth - 1, 1, -1):
        inside = 1.0 + tree.sums(level, inside)
        most.insert(0, float(inside.max()))
    held = [sum(nodes[: level + 1]) + most[level - 1] for level in range(1, tree.depth)]
    return 1 + int(np.argmin(held))


def _node_runs(tree: GroupTree, level: int) -> tuple[tuple[int, int], ...]:
    """Neighbouring nodes of a level, with as many leaves as a part has room for."""
    if level == 0:
        return ((0, 1),)
    leaves = functools.reduce(lambda held, at: tree.sums(at, held), range(tree.depth, level, -1), tree.counts[-1])
    out: list[tuple[int, int]] = []
    first, held = 0, 0.0
    for node, own in enumerate(leaves.tolist()):
        if held and held + own > _UNITS:
            out.append((first, node))
            first, held = node, 0.0
        held += own
    return (*out, (first, len(leaves)))
