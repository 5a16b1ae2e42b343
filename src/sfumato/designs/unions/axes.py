"""The symmetries of one attribute: equal cells are merged, then twins again and again.

Cells whose columns are equal in every factor are one cell. Two nodes are twins if they are of the same size and
history and exchanging them changes no Gram; each class of c twins becomes one node, and the differences between
its twins a space on which every Gram is a number. What cannot be merged any more are the orbits. In the basis of
orbits and differences ("contrasts") all Grams fall apart at once.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.ground.codec import storable
from sfumato.operators import Compose, Dense, Grouping, LinearOperator
from sfumato.operators.base import FloatArray

__all__ = ["Axis", "Contrast", "Reduced", "reduce_axis"]

Codes = NDArray[np.int64]


@storable
@dataclass(frozen=True, eq=False)
class Contrast:
    """Differences between twins within one orbit: the integer rows count * child - parent.

    children  (n',) the child of each distinct cell, -1 outside the orbit
    parents   (children,) the parent of each child
    count     c, the children of each parent
    size      the distinct cells in each child
    orbit     the orbit in which they lie
    """

    children: Codes
    parents: Codes
    count: int
    size: int
    orbit: int

    @property
    def multiplicity(self) -> int:
        """The dimension of the space."""
        return len(self.parents) // self.count * (self.count - 1)

    @property
    def square(self) -> int:
        """The rows are the root of this number times an isometry of their row space."""
        return self.count**2 * self.size

    @property
    def between(self) -> NDArray[np.int64]:
        """(children, children): count * I less ones between children of one parent."""
        alike = (self.parents[:, None] == self.parents).astype(np.int64)
        return self.count * np.eye(len(alike), dtype=np.int64) - alike


@storable
@dataclass(frozen=True, eq=False)
class Axis:
    """One attribute: n cells, n' distinct ones, m orbits of these, and the contrasts inside the orbits.

    A `kind` below is -1 for the orbits, else the number of a contrast.
    """

    cells: Codes  # (n,) the distinct cell of each cell
    orbits: Codes  # (n',) the orbit of each distinct cell
    contrasts: tuple[Contrast, ...]

    @functools.cached_property
    def counts(self) -> FloatArray:
        """(n',) how many cells are the same."""
        return np.bincount(self.cells).astype(np.float64)

    @functools.cached_property
    def sizes(self) -> FloatArray:
        """(m,) distinct cells per orbit."""
        return np.bincount(self.orbits).astype(np.float64)

    @property
    def kinds(self) -> range:
        return range(-1, len(self.contrasts))

    def square(self, kind: int) -> int:
        """By what the integer rows of a contrast are longer than an isometry, squared; 1 for the orbits."""
        return self.contrasts[kind].square if kind >= 0 else 1

    def measured(self, kind: int) -> LinearOperator:
        """The integer map of the cells: sums over orbits, or differences of twins."""
        if kind < 0:
            return Grouping(self.orbits[self.cells], len(self.sizes))
        contrast = self.contrasts[kind]
        return Compose(Dense(contrast.between), Grouping(contrast.children[self.cells], len(contrast.parents)))

    @functools.cached_property
    def back(self) -> tuple[FloatArray, ...]:
        """Per kind, contrasts first and the orbits last, the pseudo-inverse of its map of distinct cells, (n', l)."""
        out: list[FloatArray] = []
        for contrast in self.contrasts:
            inside = np.zeros((len(self.orbits), len(contrast.parents)))
            held = np.flatnonzero(contrast.children >= 0)
            inside[held, contrast.children[held]] = 1.0
            out.append(inside @ contrast.between / contrast.square)
        means = np.zeros((len(self.orbits), len(self.sizes)))
        means[np.arange(len(self.orbits)), self.orbits] = 1 / self.sizes[self.orbits]
        return (*out, means)

    def fold(self, rows: FloatArray) -> FloatArray:
        """(k, n) rows of queries -> (k, n') means over cells that are the same."""
        out = np.zeros((len(rows), len(self.orbits)))
        np.add.at(out.T, self.cells, rows.T)
        return out / self.counts

    def parts(self, rows: FloatArray) -> FloatArray:
        """Squared lengths of rows (k, n') in the space of each kind, contrasts first: (k, kinds)."""
        columns = [((rows @ b) ** 2).sum(axis=1) * c.square for b, c in zip(self.back, self.contrasts, strict=False)]
        return np.stack([*columns, (rows @ self.back[-1]) ** 2 @ self.sizes], axis=1)


@dataclass(frozen=True, slots=True)
class Reduced:
    """An axis, and what the Grams (r of them) become on it.

    means    (r, m, m) means over pairs of orbits
    numbers  (r, contrasts) their values on the contrasts
    """

    axis: Axis
    means: FloatArray
    numbers: FloatArray


def reduce_axis(factors: Sequence[LinearOperator]) -> Reduced:
    """The symmetries that all factors over one attribute share."""
    grams = np.stack([np.asarray(f.gram().dense(), dtype=np.float64) for f in factors])
    cells, first = _distinct(grams)
    sums = grams[:, first[:, None], first]
    node = np.arange(len(first))
    size, history = np.ones(len(first), dtype=np.int64), np.zeros(len(first), dtype=np.int64)
    known: dict[tuple[int, int, bytes], int] = {}
    # of every merge: the child and the parent of each distinct cell (-1 outside), (c, size of a child), its numbers
    merges: list[tuple[Codes, Codes, int, int, FloatArray]] = []
    while True:
        group = _twins(sums, size, history)
        members = np.bincount(group)
        if len(members) == len(group):
            break
        new_history, events = np.zeros(len(members), dtype=np.int64), dict[int, tuple[list[int], FloatArray]]()
        for g, c in enumerate(members.tolist()):
            own = np.flatnonzero(group == g)
            new_history[g] = history[own[0]]
            if c > 1:
                numbers = (sums[:, own[0], own[0]] - sums[:, own[0], own[1]]) / size[own[0]]
                key = (int(history[own[0]]), c, numbers.tobytes())
                new_history[g] = known.setdefault(key, len(known) + 1)
                events.setdefault(int(new_history[g]), ([], numbers))[0].append(g)
        for groups, numbers in events.values():
            here = np.isin(group[node], groups)
            child, parent = np.where(here, node, -1), np.where(here, group[node], -1)
            one = int(np.flatnonzero(group == groups[0])[0])
            merges.append((child, parent, int(members[groups[0]]), int(size[one]), numbers))
        gather = np.zeros((len(members), len(group)))
        gather[group, np.arange(len(group))] = 1.0
        sums = gather @ sums @ gather.T
        size, history, node = np.bincount(group, size).astype(np.int64), new_history, group[node]
    contrasts, numbers = _contrasts(merges, node)
    values = np.stack(numbers, axis=1) if numbers else np.zeros((len(grams), 0))
    return Reduced(Axis(cells, node.astype(np.int64), contrasts), sums / size / size[:, None], values)


def _distinct(grams: FloatArray) -> tuple[Codes, NDArray[np.intp]]:
    """(the distinct cell of each cell, a cell of each): cells with equal columns have equal rows of all Grams."""
    seen: dict[bytes, int] = {}
    first: list[int] = []
    cells = np.zeros(grams.shape[1], dtype=np.int64)
    for j in range(grams.shape[1]):
        cells[j] = seen.setdefault((grams[:, j] + 0.0).tobytes(), len(first))
        if cells[j] == len(first):
            first.append(j)
    return cells, np.array(first, dtype=np.intp)


def _twins(sums: FloatArray, size: Codes, history: Codes) -> Codes:
    """(nodes,) classes of twins, numbered by their first node."""
    count = len(size)
    # exchanging twins permutes their rows, so these hold the same numbers
    seen: dict[bytes, int] = {}
    held = [seen.setdefault(rows.tobytes(), len(seen)) for rows in np.sort(sums + 0.0, axis=2).transpose(1, 0, 2)]
    every = np.column_stack([size, history, held, *np.einsum("pii->pi", sums)])
    _, key = np.unique(every, axis=0, return_inverse=True)
    key = key.reshape(-1)
    group = np.full(count, -1, dtype=np.int64)
    found = 0
    for a in range(count):
        if group[a] >= 0:
            continue
        group[a] = found
        others = np.flatnonzero((key == key[a]) & (group < 0))
        if len(others):
            off = (sums[:, others] != sums[:, [a]]).any(axis=0)
            off[:, a] = False
            off[np.arange(len(others)), others] = False
            group[others[~off.any(axis=1)]] = found
        found += 1
    return group


def _contrasts(
    merges: Sequence[tuple[Codes, Codes, int, int, FloatArray]], orbits: Codes
) -> tuple[tuple[Contrast, ...], list[FloatArray]]:
    """The merges, each parted by the orbits that they ended in."""
    out: list[Contrast] = []
    numbers: list[FloatArray] = []
    for child, parent, count, size, values in merges:
        for orbit in np.unique(orbits[child >= 0]).tolist():
            here = np.flatnonzero((child >= 0) & (orbits == orbit))
            _, some, codes = np.unique(child[here], return_index=True, return_inverse=True)
            children = np.full(len(orbits), -1, dtype=np.int64)
            children[here] = codes.reshape(-1)
            parents = np.unique(parent[here][some], return_inverse=True)[1].reshape(-1).astype(np.int64)
            out.append(Contrast(children, parents, count, size, int(orbit)))
            numbers.append(values)
    return tuple(out), numbers
