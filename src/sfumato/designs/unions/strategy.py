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

from sfumato.designs.covariance import check_size
from sfumato.designs.dense.dual import titled
from sfumato.designs.strategy import Estimate, Strategy, marginalise
from sfumato.designs.unions.axes import Axis
from sfumato.designs.unions.groups import SPAN, Group
from sfumato.errors import NotAnswerable
from sfumato.ground.codec import storable
from sfumato.ground.later import later
from sfumato.operators import Block, Identity, Total
from sfumato.operators.base import FloatArray, Numbers

__all__ = ["Orbits"]


@storable
@dataclass(frozen=True, eq=False)
class Orbits(Strategy):
    """Kronecker products over groups of attributes of what each group measures: orbits, and contrasts inside them.

    Row spaces of different pieces are orthogonal, so each is read back by itself. Queries have one factor per
    attribute, treat cells alike that the workload cannot tell apart, and lie in its span.

    With `public_total` the number of records is known: the estimates are those of least squares that sum to it.
    `gap` says how far from the optimum it is at most, infinity where that is not known.
    """

    groups: tuple[Group, ...]
    public_total: bool = False
    gap: float = later(0.0)

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
        return f"{titled('strategy', self.gap)} in {count:,} blocks over {', '.join(self.names)}, by symmetry"

    # -- errors ----------------------------------------------------------------------------------

    def _folded(self, query: Block) -> list[list[FloatArray]]:
        """Per group and axis the query's rows over distinct cells, (k_i, n'_i). Raises NotAnswerable."""
        factors = query.by_attribute()
        scalars = (f for g, f in zip(query.groups, query.factors, strict=True) if not g)
        if factors is None or not all(isinstance(f, Identity) for f in scalars):
            raise NotAnswerable(
                "only products of conditions on single attributes are answered from what was measured; ask for such, "
                "joined by 'and', or plan with this query in the workload"
            )
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
                if np.abs(folded[:, axis.cells] - dense).max() > SPAN * np.abs(dense).max(initial=0.0):
                    raise NotAnswerable(f"the queries tell cells of {name} apart that were measured only together")
                rows.append(folded)
            out.append(rows)
        return out

    def check(self, query: Block) -> None:
        folded = self._folded(query)
        if self.public_total and all((r == r[:, :1]).all() for rows in folded for r in rows):
            return  # multiples of the total
        for group, rows in zip(self.groups, folded, strict=True):
            if group.missing([_alike(r, a)[0] for r, a in zip(rows, group.axes, strict=True)]):
                raise NotAnswerable(
                    f"a query over {', '.join(query.attributes) or 'all records'} is no combination of the workload's "
                    f"queries over {', '.join(group.names)}; add it, or its table, to the workload"
                )

    def row_powers(self, query: Block, power: int) -> FloatArray:
        self.check(query)
        few: list[list[FloatArray]] = []
        places: list[NDArray[np.intp]] = []
        for group, rows in zip(self.groups, self._folded(query), strict=True):
            told = [_alike(r, a) for r, a in zip(rows, group.axes, strict=True)]
            few.append([f for f, _ in told])
            places += [i for _, i in told]
        table = reduce(np.multiply.outer, [g.powers(f, power) for g, f in zip(self.groups, few, strict=True)])
        if self.public_total:
            # what is known leaves zero, up to rounding
            table = np.maximum(table + self._known(few, power), 0.0)
        # an axis without change keeps length 1
        table = table[np.ix_(*(i if n > 1 else i[:1] for n, i in zip(table.shape, places, strict=True)))]
        return self._in_order(table, query, self.names)

    def _known(self, rows: Sequence[Sequence[FloatArray]], power: int) -> FloatArray:
        """What a known total changes of `row_powers`: its part of each row of R goes."""
        sides = [g.beside_total(r) for g, r in zip(self.groups, rows, strict=True)]
        share = reduce(np.multiply.outer, [joint @ one / (one @ one) for joint, one in sides])
        changes = [
            math.comb(power, k)
            * (-share) ** k
            * reduce(np.multiply.outer, [joint ** (power - k) @ one**k for joint, one in sides])
            for k in range(1, power + 1)
        ]
        return np.asarray(sum(changes), dtype=np.float64)

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
        pairs = list(zip(self.groups, self._folded(first), self._folded(second), strict=True))
        table = reduce(np.multiply.outer, [g.covariance(a, b) for g, a, b in pairs])
        if self.public_total:
            known: list[FloatArray] = []
            for group, a, b in pairs:
                (ours, one), (theirs, _) = group.beside_total(a), group.beside_total(b)
                known.append(np.multiply.outer(ours @ one, theirs @ one) / (one @ one))
            table = table - reduce(np.multiply.outer, known)
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
        table = left[0]
        if self.public_total:
            assert total is not None
            toward = reduce(np.kron, [g.toward_total() for g in self.groups])
            table = table + toward * ((total - table.sum()) / toward.sum())
        table = table.reshape([len(a.orbits) for a in self._axes.values()])
        for i, axis in enumerate(self._axes.values()):
            table = np.take(
                table / axis.counts.reshape([-1 if j == i else 1 for j in range(table.ndim)]), axis.cells, i
            )
        return table

    def answer(self, estimate: Estimate, query: Block) -> FloatArray:
        self.check(query)
        return np.asarray(marginalise(estimate, self.names, query), dtype=np.float64)


def _alike(rows: FloatArray, axis: Axis) -> tuple[FloatArray, NDArray[np.intp]]:
    """(some of the rows, which of these has the error of each row): those of equal parts in every space."""
    told = [((rows @ b) ** p).sum(axis=1, keepdims=True) for b in axis.back[:-1] for p in (2, 4)]
    told.append(rows @ axis.back[-1])
    features = np.concatenate(told, axis=1)
    rounded = np.round(features / max(float(np.abs(features).max(initial=0.0)), 1e-300), 13)
    _, first, inverse = np.unique(rounded, axis=0, return_index=True, return_inverse=True)
    return rows[first], inverse.reshape(-1)
