"""What is measured over some attributes in the bases of their symmetries: integers per choice of kinds."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.unions.axes import Axis
from sfumato.errors import NotAnswerable
from sfumato.ground.codec import storable
from sfumato.ground.later import later
from sfumato.operators import Compose, Dense, Grouping, Kronecker, LinearOperator, Sparse
from sfumato.operators.base import FloatArray
from sfumato.operators.blas import single_thread

__all__ = ["SPAN", "Group", "Measured"]

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
    rows: Sparse | None = later(None)  # noqa: RUF009  (as dataclasses.field is)

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
                joint = np.asarray(reduce(np.kron, wide, np.ones((1, 1))), dtype=np.float64)
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
        return np.asarray(reduce(np.kron, [a.back[-1] for a in self.axes]) @ orbits, dtype=np.float64)

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


def _on_axis(values: FloatArray, axis: int, count: int) -> FloatArray:
    return values.reshape([-1 if i == axis else 1 for i in range(count)])
