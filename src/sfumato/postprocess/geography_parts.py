"""A tree too large to be settled at once, in parts: what is above a level first, then what is below it, part by part.

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
from sfumato.postprocess.geography import (
    LOOKED,
    FamilyTally,
    NodeCounts,
    Run,
    Sample,
    Strength,
    composition_strength,
    descend_tree,
)
from sfumato.postprocess.geography_cells import IntArray, Sets
from sfumato.postprocess.geography_estimates import FamilyEstimates, Readings, TreeEstimates, TreeMeasurements
from sfumato.strategies.geography_tree import GroupTree

__all__ = ["Arrays", "LeafCounts", "TreeParts", "UpperNodes"]


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
