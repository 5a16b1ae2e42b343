"""From the root down: every family is settled given its parent, on the cells where the parent is not zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.estimate.spine.cells import Cells, IntArray, Sets
from sfumato.estimate.spine.family import Form, Nearest, Simplices, nearest
from sfumato.estimate.spine.told import Told
from sfumato.estimate.spine.whole import Halves, chain, whole_family, whole_parts
from sfumato.ground.progress import Progress
from sfumato.operators.base import FloatArray

__all__ = ["Descent", "Settled", "descend"]


_TOLERANCE = 1e-3  # of what noise moves a family by, squared: the mean error moves by less than its third digit
_RIDGE = 1e-3  # of the least weight that is known: what nothing is known of stays where its parent's is
_LEAST = 1e-6  # of a parent's cell: less of it in a child, in real numbers, is none
_LOOKED = 200  # families from which the second look's strength is fitted: its error is then some hundredths
_STEP = 0.5  # of the geometric mean of eigenvalues' bounds: fewest sweeps on generated people, .3 to 1 within twice


@dataclass(frozen=True, eq=False, slots=True)
class Settled:
    """Nodes of one level: per node the cells (ascending) where it is not zero, and its counts there."""

    cells: list[IntArray]
    counts: list[FloatArray]


@dataclass(frozen=True, eq=False, slots=True)
class Descent:
    """levels: from the root down. gap: proved bound on the squared distances of all families from their nearest points,
    in units of the noise, and `worst` the largest against that noise; moved: those from where no constraint is; sweeps
    of all; strength: of the second look at the lowest level, None where there was none; rounded: root mean squared
    change of the cells by whole numbers, None for real ones."""

    levels: list[Settled]
    gap: float
    worst: float
    moved: float
    sweeps: int
    strength: float | None
    rounded: float | None


class _Run:
    def __init__(self, told: Told, asked: Sequence[Sets], progress: Progress | None, *, whole: bool) -> None:
        self.told, self.cells, self.whole, self.progress = told, told.cells, whole, progress
        self.steps = chain(told.cells, asked)
        self.gap = self.moved = self.worst = 0.0
        self.sweeps = self.done = 0
        self.strength: float | None = None
        self.squares, self.rounded = 0.0, 0

    def _whole(self, real: FloatArray, found: IntArray) -> FloatArray:
        self.squares += float(((real - found) ** 2).sum())
        self.rounded += found.size
        return found.astype(np.float64)

    def note(self, found: Nearest, size: int) -> None:
        self.gap += found.gap
        self.moved += found.moved
        self.sweeps += found.sweeps
        self.worst = max(self.worst, found.gap / max(size, 1))
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.worst)

    def root(self, total: float | None, every: IntArray) -> FloatArray:
        """(cells,), zero outside of `every`."""
        said = self.told.root()
        known = float(np.maximum(said.wanted.sum(), 0.0)) if total is None else total
        count = float(round(known)) if self.whole else known
        out = np.zeros(self.cells.size)
        if count == 0:
            return out
        weights, more = _ridge(self.cells, said.weights)
        form = Form.of(self.cells, self.cells.coefficients(weights), every, more)
        given = (self.cells.weigh(weights[None], said.wanted) + more * said.wanted)[:, every]
        allowed = Simplices(np.array([count]), together=True)
        start = np.maximum(said.wanted[:, every], 0.0)
        found = nearest(form, given, allowed, start, _TOLERANCE * len(every), step=_STEP)
        self.note(found, len(every))
        if self.whole:
            halves = Halves.of(self.cells, every, self.steps)
            out[every] = self._whole(found.point[0], whole_parts(found.point[0], int(count), halves))
        else:
            out[every] = np.where(found.point[0] > _LEAST, found.point[0], 0.0)
        return out

    def children(self, level: int, parent: int, where: IntArray, counts: FloatArray, *, last: bool) -> FloatArray:
        """(n, where) the children of a node that is not empty."""
        dense = np.zeros(self.cells.size)
        dense[where] = counts
        said = self.told.family(level, parent, dense)
        n, size = len(said.wanted), said.wanted.shape[0] * len(where)
        if n == 1:
            return counts[None]
        weights, more = _ridge(self.cells, said.weights)
        coefficients = self.cells.coefficients(weights)
        given = (self.cells.weigh(weights[None], said.wanted) + more * said.wanted)[:, where]
        allowed = Simplices(counts)
        form = Form.of(self.cells, coefficients, where, more)
        start = np.maximum(said.wanted[:, where], 0.0)
        found = nearest(form, given, allowed, start, _TOLERANCE * size, step=_STEP)
        if last and self.strength is not None:
            # towards the parent's composition at the child's own total, as loosely as units differ from it
            mean = counts / n
            loose = 1 / (mean + self.strength * mean**2)
            prior = found.point.sum(axis=1)[:, None] * (counts / counts.sum())
            form = Form(form.diagonal + loose, form.columns, form.weights)
            found = nearest(form, given + loose * prior, allowed, found.point, _TOLERANCE * size, step=_STEP)
        self.note(found, size)
        if self.whole:
            halves = Halves.of(self.cells, where, self.steps)
            return self._whole(found.point, whole_family(found.point, np.rint(counts).astype(np.int64), halves))
        kept = np.where(found.point > _LEAST * counts, found.point, 0.0)
        return kept * (counts / kept.sum(axis=0))

    def fit(self, level: int, above: Settled) -> None:
        """How much units differ from their parent's composition: variance m + strength m^2 of a cell of mean m."""
        parents = [i for i, c in enumerate(above.counts) if len(c)]
        chosen = parents[:: max(1, len(parents) // _LOOKED)]
        rows: list[tuple[FloatArray, FloatArray]] = []
        noise = 0.0
        for parent in chosen:
            where, counts = above.cells[parent], above.counts[parent]
            dense = np.zeros(self.cells.size)
            dense[where] = counts
            said = self.told.family(level, parent, dense)
            n = len(said.wanted)
            held = self.cells.contrasts > 0
            if n == 1:
                continue
            if not (said.weights[held] > 0).all():
                return
            noise = float((self.cells.contrasts[held] / said.weights[held]).sum()) / self.cells.size
            own = self.children(level, parent, where, counts, last=False).sum(axis=1)
            away = said.wanted[:, where] - own[:, None] * (counts / counts.sum())
            # what adds up to the parent's varies by less
            rows.append((counts / n, (away**2).sum(axis=0) / (n - 1)))
        if rows:
            means, squares = (np.concatenate(x) for x in zip(*rows, strict=True))
            self.strength = _strength(means, squares, noise)


def _strength(means: FloatArray, squares: FloatArray, noise: float) -> float:
    """Weighted least squares of squares - noise - mean on mean^2, twice: the weights follow from it."""
    found = 1.0
    for _ in range(2):
        own = noise + means + found * means**2
        weight = means**2 / own**2
        found = max(float((weight * (squares - noise - means)).sum() / (weight * means**2).sum()), 0.0)
    return found


def _ridge(cells: Cells, weights: FloatArray) -> tuple[FloatArray, float]:
    """Weights without those of sets that have no contrasts, and what is added for sets of which nothing is known."""
    held = np.where(cells.contrasts > 0, weights, 0.0)
    known = held[held > 0]
    if len(known) == int((cells.contrasts > 0).sum()):
        return held, 0.0
    return held, _RIDGE * float(known.min()) if len(known) else 1.0


def descend(
    told: Told,
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
    run = _Run(told, asked, progress, whole=whole)
    cells, counts = _sparse(run.root(total, np.arange(told.cells.size) if possible is None else possible))
    levels = [Settled([cells], [counts])]
    depth = told.tree.depth
    for level in range(1, depth + 1):
        above, own = levels[-1], Settled([], [])
        if level == depth:
            run.fit(level, above)
        for parent, (where, held) in enumerate(zip(above.cells, above.counts, strict=True)):
            if not len(where):
                first, last = told.tree.run(level, parent)
                own.cells.extend([where] * (last - first))
                own.counts.extend([held] * (last - first))
                continue
            for row in run.children(level, parent, where, held, last=level == depth):
                kept = np.flatnonzero(row)
                own.cells.append(where[kept])
                own.counts.append(row[kept])
        levels.append(own)
    change = math.sqrt(run.squares / max(run.rounded, 1)) if whole else None
    return Descent(levels, run.gap, run.worst, run.moved, run.sweeps, run.strength, change)


def _sparse(row: FloatArray) -> tuple[IntArray, FloatArray]:
    where = np.flatnonzero(row)
    return where, row[where]
