"""The symmetries of one attribute: equal cells are merged, then twins again and again.

Cells whose columns are equal in every factor are one cell. Two nodes are twins if they are of the same size and
history and exchanging them changes no Gram; each class of c twins becomes one node, and the differences between
its twins a space on which every Gram is a number. What cannot be merged any more are the orbits. In the basis of
orbits and differences ("contrasts") all Grams fall apart at once.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import deferred_field, storable
from sfumato.errors import NotAnswerable
from sfumato.operators import Compose, Dense, Grouping, Kronecker, LinearOperator, Sparse
from sfumato.operators.base import FloatArray, kron, single_thread

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
class ReducedAxis:
    """An axis, and what the Grams (r of them) become on it.

    means    (r, m, m) means over pairs of orbits
    numbers  (r, contrasts) their values on the contrasts
    """

    axis: Axis
    means: FloatArray
    numbers: FloatArray


def reduce_axis(factors: Sequence[LinearOperator]) -> ReducedAxis:
    """The symmetries that all factors over one attribute share."""
    grams = np.stack([np.asarray(f.gram().dense(), dtype=np.float64) for f in factors])
    cells, first = _distinct_cells(grams)
    sums = grams[:, first[:, None], first]
    node = np.arange(len(first))
    size, history = np.ones(len(first), dtype=np.int64), np.zeros(len(first), dtype=np.int64)
    known: dict[tuple[int, int, bytes], int] = {}
    # of every merge: the child and the parent of each distinct cell (-1 outside), (c, size of a child), its numbers
    merges: list[tuple[Codes, Codes, int, int, FloatArray]] = []
    while True:
        group = _twin_classes(sums, size, history)
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
    contrasts, numbers = _contrasts_by_orbit(merges, node)
    values = np.stack(numbers, axis=1) if numbers else np.zeros((len(grams), 0))
    return ReducedAxis(Axis(cells, node.astype(np.int64), contrasts), sums / size / size[:, None], values)


def _distinct_cells(grams: FloatArray) -> tuple[Codes, NDArray[np.intp]]:
    """(the distinct cell of each cell, a cell of each): cells with equal columns have equal rows of all Grams."""
    seen: dict[bytes, int] = {}
    first: list[int] = []
    cells = np.zeros(grams.shape[1], dtype=np.int64)
    for j in range(grams.shape[1]):
        cells[j] = seen.setdefault((grams[:, j] + 0.0).tobytes(), len(first))
        if cells[j] == len(first):
            first.append(j)
    return cells, np.array(first, dtype=np.intp)


def _twin_classes(sums: FloatArray, size: Codes, history: Codes) -> Codes:
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


def _contrasts_by_orbit(
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


SPAN = 1e-9  # squared, relative: what may lie outside the span of what was measured
_TINY = 1e-300  # positive: a piece of no length has no share, and 0 / 0 is none


@storable
@dataclass(frozen=True, eq=False)
class Measured:
    """The integers of one choice of kinds: `matrix` (l, l), invertible, of the sums over joint orbits.

    Where the workload does not span all these sums, `beyond` (q, l) is an orthonormal basis of what it leaves: there
    the matrix is barely more than zero, and no query is answered from it. Where few of very many are asked, `rows`
    (r, l) are whole numbers that span them, the matrix is (r, r), and matrix @ rows is measured: rounding leaves their
    span as it is.
    """

    kinds: tuple[int, ...]
    matrix: NDArray[np.int64]
    beyond: FloatArray
    rows: Sparse | None = deferred_field(None)  # noqa: RUF009  (as dataclasses.field is)

    @functools.cached_property
    def measured(self) -> NDArray[np.int64]:
        """(l, l) or (r, l), of the sums over joint orbits."""
        if self.rows is None:
            return self.matrix
        return np.ascontiguousarray(self.rows.apply_transpose(self.matrix.T).T)

    @functools.cached_property
    def inverse(self) -> FloatArray:
        """That of the integers themselves, so that rounding biases nothing; (l, r) the pseudo-inverse with `rows`."""
        try:
            with single_thread():
                inverse = np.asarray(np.linalg.inv(self.matrix.astype(np.float64)), dtype=np.float64)
                return inverse if self.rows is None else self._across @ inverse
        except np.linalg.LinAlgError:
            raise NotAnswerable("the integers are too coarse to be read back; they need a finer lattice") from None

    @functools.cached_property
    def _across(self) -> FloatArray:
        """(l, r) the pseudo-inverse of `rows`."""
        assert self.rows is not None
        dense = np.asarray(self.rows.dense(), dtype=np.float64)
        return np.asarray(np.linalg.solve(dense @ dense.T, dense).T, dtype=np.float64)

    @property
    def short(self) -> bool:
        """Whether some sums over joint orbits are not answered."""
        return len(self.beyond) > 0 or (self.rows is not None and self.rows.shape[0] < self.rows.shape[1])

    def outside(self, joint: FloatArray) -> FloatArray:
        """Squared lengths of what rows (k, l) have outside of what is answered."""
        if self.rows is None:
            return ((joint @ self.beyond.T) ** 2).sum(axis=1)
        rest = joint - np.asarray(self.rows.apply_transpose((joint @ self._across).T)).T
        return (rest**2).sum(axis=1)


@storable
@dataclass(frozen=True, eq=False)
class Group:
    """Some attributes, and what is measured of them."""

    names: tuple[str, ...]
    axes: tuple[Axis, ...]
    pieces: tuple[Measured, ...]

    def order(self, piece: Measured) -> list[tuple[int, ...]]:
        """The axes of each factor that is measured: all orbits jointly, contrasts one by one, the most summing first.

        Of the orbits only axes of more than one: others are summed out, so that smaller tables are counted.
        """
        joint = tuple(i for i, a in enumerate(self.axes) if piece.kinds[i] < 0 and len(a.sizes) > 1)
        alone = [(i,) for i, k in enumerate(piece.kinds) if k >= 0]

        def kept(some: tuple[int, ...]) -> float:
            maps = [self.axes[i].measured(piece.kinds[i]).shape for i in some]
            return math.prod(rows / cells for rows, cells in maps)

        return sorted([joint, *alone], key=kept)

    def block(self, piece: Measured) -> tuple[list[tuple[str, ...]], list[LinearOperator]]:
        """The groups and factors of what is measured."""
        factors: list[LinearOperator] = []
        order = self.order(piece)
        for some in order:
            maps = [self.axes[i].measured(piece.kinds[i]) for i in some]
            if not maps:
                factors.append(Dense(piece.measured))
            elif piece.kinds[some[0]] >= 0:
                factors.append(maps[0])
            elif piece.rows is not None:
                factors.append(Compose(Dense(piece.measured), self._sums(some)))
            else:
                factors.append(Compose(Dense(piece.matrix), maps[0] if len(maps) == 1 else Kronecker(tuple(maps))))
        return [tuple(self.names[i] for i in some) for some in order], factors

    def _sums(self, some: Sequence[int]) -> Grouping:
        """All joint orbits of some axes at once: a product of partitions would be written out, matrix and all."""
        codes, count = np.zeros(1, dtype=np.int64), 1
        for i in some:
            axis = self.axes[i]
            codes = (codes[:, None] * len(axis.sizes) + axis.orbits[axis.cells]).reshape(-1)
            count *= len(axis.sizes)
        return Grouping(codes, count)

    def rows(self, piece: Measured) -> int:
        """How many values are measured."""
        contrasts = (a.contrasts[k] for a, k in zip(self.axes, piece.kinds, strict=True) if k >= 0)
        return len(piece.matrix) * math.prod(len(c.parents) for c in contrasts)

    def spread(self, rows: Sequence[FloatArray], piece: Measured) -> tuple[FloatArray, list[FloatArray]]:
        """Rows (k_i, n'_i) per axis times the pseudo-inverse: jointly on the orbits, and on each contrast."""
        wide, rest = [np.ones((1, 1))], list[FloatArray]()
        for r, axis, kind in zip(rows, self.axes, piece.kinds, strict=True):
            (wide if kind < 0 else rest).append(r @ axis.back[kind])
        return reduce(kron, wide) @ piece.inverse, rest

    def powers(self, rows: Sequence[FloatArray], power: int) -> FloatArray:
        """Sums of |entry|^power of the products of rows (k_i, n'_i) times the pseudo-inverse: (k_1, k_2, ...)."""
        out = np.zeros([len(r) for r in rows])
        for piece in self.pieces:
            joint, rest = self.spread(rows, piece)
            table = (joint**power).sum(axis=1)
            table = table.reshape([len(r) if k < 0 else 1 for r, k in zip(rows, piece.kinds, strict=True)])
            left = iter(rest)
            for i, kind in enumerate(piece.kinds):
                if kind >= 0:
                    table = table * _broadcast_on_axis((next(left) ** power).sum(axis=1), i, len(rows))
            out += table
        return out

    def covariance(self, first: Sequence[FloatArray], second: Sequence[FloatArray]) -> FloatArray:
        """Between products of rows of two queries: (k_1, ..., l_1, ...)."""
        ours, theirs = [len(r) for r in first], [len(r) for r in second]
        count = len(ours)
        out = np.zeros(ours + theirs)
        for piece in self.pieces:
            (one, some), (other, more) = self.spread(first, piece), self.spread(second, piece)
            wide = [k < 0 for k in piece.kinds]
            shape = [n if w else 1 for n, w in zip(ours + theirs, wide + wide, strict=True)]
            table = (one @ other.T).reshape(shape)
            inner = iter(zip(some, more, strict=True))
            for i, w in enumerate(wide):
                if not w:
                    a, b = next(inner)
                    place = [1] * (2 * count)
                    place[i], place[count + i] = len(a), len(b)
                    table = table * (a @ b.T).reshape(place)
            out += table
        return out

    def missing(self, rows: Sequence[FloatArray]) -> bool:
        """Whether some product of rows reaches what is not measured, or what the workload does not span."""
        short = [p for p in self.pieces if p.short]
        if not short and len(self.pieces) == math.prod(len(a.kinds) for a in self.axes):
            return False
        parts = [a.parts(r) for a, r in zip(self.axes, rows, strict=True)]
        held = {p.kinds for p in self.pieces}
        size = reduce(np.multiply.outer, [p.sum(axis=1) for p in parts])
        off = np.zeros_like(size)
        for kinds in itertools.product(*(a.kinds for a in self.axes)):
            if kinds not in held:
                off += reduce(np.multiply.outer, [p[:, k] for p, k in zip(parts, kinds, strict=True)])
        with single_thread():  # once: it takes longer to enter than most pieces do
            for piece in short:
                wide = [r @ a.back[-1] for r, a, k in zip(rows, self.axes, piece.kinds, strict=True) if k < 0]
                joint = np.asarray(reduce(kron, wide, np.ones((1, 1))), dtype=np.float64)
                share = piece.outside(joint) / np.maximum((joint**2).sum(axis=1), _TINY)
                share = share.reshape([len(r) if k < 0 else 1 for r, k in zip(rows, piece.kinds, strict=True)])
                off += share * reduce(np.multiply.outer, [p[:, k] for p, k in zip(parts, piece.kinds, strict=True)])
        return bool((off > SPAN * size).any())

    # -- the total ---------------------------------------------------------------------------------

    @functools.cached_property
    def whole(self) -> Measured | None:
        """The piece of the orbits of all axes, to which the total belongs; None where nothing asks for it."""
        return next((p for p in self.pieces if all(k < 0 for k in p.kinds)), None)

    def beside_total(self, rows: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
        """Products of rows times the pseudo-inverse of `whole`, (k_1, ..., l), and the same of the total, (l,)."""
        assert self.whole is not None
        joint, _ = self.spread(rows, self.whole)
        return joint.reshape(*(len(r) for r in rows), -1), self.whole.inverse.sum(axis=0)

    def toward_total(self) -> FloatArray:
        """(n'_1 n'_2 ...,) what the inverse of all that is measured makes of the total, over distinct cells."""
        assert self.whole is not None
        orbits = self.whole.inverse @ self.whole.inverse.sum(axis=0)
        return np.asarray(reduce(kron, [a.back[-1] for a in self.axes]) @ orbits, dtype=np.float64)

    def cells(self, values: Sequence[FloatArray]) -> FloatArray:
        """Per piece measured values (l, c) -> least-squares distinct cells (n'_1 n'_2 ..., c)."""
        sizes = [len(a.orbits) for a in self.axes]
        out = np.zeros((*sizes, values[0].shape[1]))
        for piece, value in zip(self.pieces, values, strict=True):
            order = self.order(piece)
            joint = next(g for g, some in enumerate(order) if not some or piece.kinds[some[0]] < 0)
            lengths = [
                len(piece.matrix) if g == joint else len(self.axes[some[0]].contrasts[piece.kinds[some[0]]].parents)
                for g, some in enumerate(order)
            ]
            table = np.tensordot(piece.inverse, value.reshape(*lengths, -1), axes=(1, joint))
            orbits = [i for i, k in enumerate(piece.kinds) if k < 0]
            table = table.reshape(*(len(self.axes[i].sizes) for i in orbits), *table.shape[1:])
            alone = [some[0] for g, some in enumerate(order) if g != joint]
            every = orbits + alone
            table = table.transpose([*np.argsort(every).tolist(), len(every)])
            for i, kind in enumerate(piece.kinds):
                table = np.moveaxis(np.tensordot(self.axes[i].back[kind], table, axes=(1, i)), 0, i)
            out += table
        return out.reshape(math.prod(sizes), -1)


def _broadcast_on_axis(values: FloatArray, axis: int, count: int) -> FloatArray:
    return values.reshape([-1 if i == axis else 1 for i in range(count)])
