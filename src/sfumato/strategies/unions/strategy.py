"""The strategy for a union of Kronecker products in the bases of its symmetries, as integers, and the way back."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from sfumato.codec import storable
from sfumato.errors import NotAnswerable
from sfumato.operators import Block, Compose, Dense, Identity, Kronecker, LinearOperator, Total
from sfumato.operators.base import FloatArray, Numbers
from sfumato.operators.blas import single_thread
from sfumato.strategies.base import Estimate, Strategy, marginalise
from sfumato.strategies.residual.covariance import check_size
from sfumato.strategies.unions.axes import Axis

__all__ = ["Group", "Measured", "Orbits"]

_SPAN = 1e-9  # squared, relative: what may lie outside the span of what was measured


@storable
@dataclass(frozen=True, eq=False)
class Measured:
    """The integers of one choice of kinds: `matrix` (l, l), invertible, of the sums over joint orbits."""

    kinds: tuple[int, ...]
    matrix: NDArray[np.int64]

    @functools.cached_property
    def inverse(self) -> FloatArray:
        """That of the integers themselves, so that rounding biases nothing."""
        try:
            with single_thread():
                return np.asarray(np.linalg.inv(self.matrix.astype(np.float64)), dtype=np.float64)
        except np.linalg.LinAlgError:
            raise NotAnswerable("the integers are too coarse to be read back; they need a finer lattice") from None


@storable
@dataclass(frozen=True, eq=False)
class Group:
    """Some attributes, and what is measured of them."""

    names: tuple[str, ...]
    axes: tuple[Axis, ...]
    pieces: tuple[Measured, ...]

    def block(self, piece: Measured) -> tuple[list[tuple[str, ...]], list[LinearOperator]]:
        """The groups and factors of what is measured: joint orbits first, then contrasts."""
        every = list(zip(self.names, self.axes, piece.kinds, strict=True))
        wide = tuple(n for n, _, k in every if k < 0)
        sums = [a.measured(k) for _, a, k in every if k < 0]
        joint = Dense(piece.matrix)
        first: LinearOperator = joint
        if sums:
            first = Compose(joint, sums[0] if len(sums) == 1 else Kronecker(tuple(sums)))
        rest = [(n, a.measured(k)) for n, a, k in every if k >= 0]
        return [wide, *((n,) for n, _ in rest)], [first, *(f for _, f in rest)]

    def rows(self, piece: Measured) -> int:
        """How many values are measured."""
        contrasts = (a.contrasts[k] for a, k in zip(self.axes, piece.kinds, strict=True) if k >= 0)
        return len(piece.matrix) * math.prod(len(c.parents) for c in contrasts)

    def spread(self, rows: Sequence[FloatArray], piece: Measured) -> tuple[FloatArray, list[FloatArray]]:
        """Rows (k_i, n'_i) per axis times the pseudo-inverse: jointly on the orbits, and on each contrast."""
        wide, rest = [np.ones((1, 1))], list[FloatArray]()
        for r, axis, kind in zip(rows, self.axes, piece.kinds, strict=True):
            (wide if kind < 0 else rest).append(r @ axis.back[kind])
        return reduce(np.kron, wide) @ piece.inverse, rest

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
                    table = table * _on_axis((next(left) ** power).sum(axis=1), i, len(rows))
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
        """Whether some product of rows reaches what is not measured."""
        whole = math.prod(len(a.kinds) for a in self.axes)
        if len(self.pieces) == whole:
            return False
        parts = [a.parts(r) for a, r in zip(self.axes, rows, strict=True)]
        held = {p.kinds for p in self.pieces}
        size = reduce(np.multiply.outer, [p.sum(axis=1) for p in parts])
        off = np.zeros_like(size)
        for kinds in itertools.product(*(a.kinds for a in self.axes)):
            if kinds not in held:
                off += reduce(np.multiply.outer, [p[:, k] for p, k in zip(parts, kinds, strict=True)])
        return bool((off > _SPAN * size).any())

    def cells(self, values: Sequence[FloatArray]) -> FloatArray:
        """Per piece measured values (l, c) -> least-squares distinct cells (n'_1 n'_2 ..., c)."""
        sizes = [len(a.orbits) for a in self.axes]
        out = np.zeros((*sizes, values[0].shape[1]))
        for piece, value in zip(self.pieces, values, strict=True):
            count = len(piece.matrix)
            table = piece.inverse @ value.reshape(count, -1)
            contrasts = [(i, k) for i, k in enumerate(piece.kinds) if k >= 0]
            orbits = [i for i, k in enumerate(piece.kinds) if k < 0]
            lengths = [len(self.axes[i].contrasts[k].parents) for i, k in contrasts]
            table = table.reshape(*(len(self.axes[i].sizes) for i in orbits), *lengths, -1)
            order = orbits + [i for i, _ in contrasts]
            table = table.transpose([*np.argsort(order).tolist(), len(order)])
            for i, kind in enumerate(piece.kinds):
                table = np.moveaxis(np.tensordot(self.axes[i].back[kind], table, axes=(1, i)), 0, i)
            out += table
        return out.reshape(math.prod(sizes), -1)


@storable
@dataclass(frozen=True, eq=False)
class Orbits(Strategy):
    """Kronecker products over groups of attributes of what each group measures: orbits, and contrasts inside them.

    Row spaces of different pieces are orthogonal, so each is read back by itself. Queries have one factor per
    attribute, and treat cells alike that the workload cannot tell apart.
    """

    groups: tuple[Group, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes of what is measured, in its order."""
        return tuple(n for g in self.groups for n in g.names)

    @functools.cached_property
    def _axes(self) -> dict[str, Axis]:
        return {n: a for g in self.groups for n, a in zip(g.names, g.axes, strict=True)}

    @property
    def blocks(self) -> tuple[Block, ...]:
        return self._blocks

    @functools.cached_property
    def _blocks(self) -> tuple[Block, ...]:
        out: list[Block] = []
        for pieces in itertools.product(*(g.pieces for g in self.groups)):
            parts = [g.block(p) for g, p in zip(self.groups, pieces, strict=True)]
            names = [n for some, _ in parts for n in some]
            out.append(Block(tuple(names), tuple(f for _, some in parts for f in some)))
        return tuple(out)

    @property
    def summary(self) -> str:
        count = math.prod(len(g.pieces) for g in self.groups)
        return f"the optimal strategy in {count:,} blocks over {', '.join(self.names)}, by symmetry"

    # -- errors ----------------------------------------------------------------------------------

    def _folded(self, query: Block) -> list[list[FloatArray]]:
        """Per group and axis the query's rows over distinct cells, (k_i, n'_i). Raises NotAnswerable."""
        factors = query.by_attribute()
        scalars = (f for g, f in zip(query.groups, query.factors, strict=True) if not g)
        if factors is None or not all(isinstance(f, Identity) for f in scalars):
            raise NotAnswerable("only queries with one factor for each attribute can be answered from these blocks")
        strange = [a for a in factors if a not in self._axes]
        if strange:
            raise NotAnswerable(f"nothing about {', '.join(strange)} was measured")
        out: list[list[FloatArray]] = []
        for group in self.groups:
            rows: list[FloatArray] = []
            for name, axis in zip(group.names, group.axes, strict=True):
                factor = factors.get(name) or Total(len(axis.cells))
                dense = np.asarray(factor.dense(), dtype=np.float64)
                folded = axis.fold(dense)
                if np.abs(folded[:, axis.cells] - dense).max() > _SPAN * np.abs(dense).max(initial=0.0):
                    raise NotAnswerable(f"the queries tell cells of {name} apart that were measured only together")
                rows.append(folded)
            out.append(rows)
        return out

    def check(self, query: Block) -> None:
        for group, rows in zip(self.groups, self._folded(query), strict=True):
            if group.missing([_alike(r, a)[0] for r, a in zip(rows, group.axes, strict=True)]):
                raise NotAnswerable(f"a query over {', '.join(group.names)} lies outside the span of what was measured")

    def row_powers(self, query: Block, power: int) -> FloatArray:
        self.check(query)
        tables: list[FloatArray] = []
        for group, rows in zip(self.groups, self._folded(query), strict=True):
            few = [_alike(r, a) for r, a in zip(rows, group.axes, strict=True)]
            found = group.powers([f for f, _ in few], power)
            # an axis without change keeps length 1
            tables.append(found[np.ix_(*(i if n > 1 else i[:1] for n, (_, i) in zip(found.shape, few, strict=True)))])
        table = reduce(np.multiply.outer, tables)
        return self._in_order(table, query, self.names)

    def _in_order(self, table: FloatArray, query: Block, names: Sequence[str]) -> FloatArray:
        """A table with an axis per name as one with an axis per factor of the query."""
        kept = [n for n in names if n in query.attributes]
        table = table.reshape([s for s, n in zip(table.shape, names, strict=True) if n in query.attributes])
        table = table.transpose([kept.index(a) for a in query.attributes])
        shape = iter(table.shape)
        return table.reshape([next(shape) if g else 1 for g in query.groups])

    def covariance(self, first: Block, second: Block) -> FloatArray:
        check_size(first.rows, second.rows)
        self.check(first)
        self.check(second)
        pairs = zip(self.groups, self._folded(first), self._folded(second), strict=True)
        table = reduce(np.multiply.outer, [g.covariance(a, b) for g, a, b in pairs])
        places: dict[tuple[int, str], int] = {}
        for group in self.groups:
            places |= {(side, n): len(places) + i for i, (side, n) in enumerate(itertools.product((0, 1), group.names))}
        wanted = [places[0, a] for a in first.attributes] + [places[1, a] for a in second.attributes]
        rest = [i for i in range(table.ndim) if i not in wanted]
        return table.transpose(wanted + rest).reshape(first.rows, second.rows)

    # -- answers -----------------------------------------------------------------------------------

    def estimate(self, values: Sequence[Numbers], total: int | None) -> Estimate:
        left = [np.asarray(v, dtype=np.float64).reshape(-1) for v in values]
        # the last group first: what other pieces measured of it stays beside
        done = 1
        for group in reversed(self.groups):
            step = len(group.pieces)
            tables: list[FloatArray] = []
            for a in range(0, len(left), step):
                some: list[FloatArray] = []
                for piece, value in zip(group.pieces, left[a : a + step], strict=True):
                    rows = group.rows(piece)
                    shaped = value.reshape(-1, rows, done).swapaxes(0, 1)
                    some.append(shaped.reshape(rows, -1))
                found = group.cells(some)
                count = len(found)
                tables.append(found.reshape(count, -1, done).swapaxes(0, 1).reshape(-1))
            left, done = tables, done * math.prod(len(a.orbits) for a in group.axes)
        table = left[0].reshape([len(a.orbits) for a in self._axes.values()])
        for i, axis in enumerate(self._axes.values()):
            table = np.take(
                table / axis.counts.reshape([-1 if j == i else 1 for j in range(table.ndim)]), axis.cells, i
            )
        return table

    def answer(self, estimate: Estimate, query: Block) -> FloatArray:
        self.check(query)
        return np.asarray(marginalise(estimate, self.names, query), dtype=np.float64)


def _on_axis(values: FloatArray, axis: int, count: int) -> FloatArray:
    return values.reshape([-1 if i == axis else 1 for i in range(count)])


def _alike(rows: FloatArray, axis: Axis) -> tuple[FloatArray, NDArray[np.intp]]:
    """(some of the rows, which of these has the error of each row): those of equal parts in every space."""
    told = [((rows @ b) ** p).sum(axis=1, keepdims=True) for b in axis.back[:-1] for p in (2, 4)]
    told.append(rows @ axis.back[-1])
    features = np.concatenate(told, axis=1)
    rounded = np.round(features / max(float(np.abs(features).max(initial=0.0)), 1e-300), 13)
    _, first, inverse = np.unique(rounded, axis=0, return_index=True, return_inverse=True)
    return rows[first], inverse.reshape(-1)
