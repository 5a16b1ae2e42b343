"""The strategy of products of basis vectors: integer vectors per attribute, and a multiple for each product of bins."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import storable
from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import Block, Dense, Identity, Scaled
from sfumato.operators.base import FloatArray, Numbers, single_thread
from sfumato.strategies.covariance import check_covariance_size
from sfumato.strategies.strategy import (
    Estimate,
    Strategy,
    factors_by_attribute,
    marginalise,
    order_by_queries,
    order_by_query,
)

_SPAN = 1e-9  # squared, relative: what a query may need of products that were not measured, up to rounding


@storable
@dataclass(frozen=True, eq=False)
class Spectral(Strategy):
    """Products of rows, one of every attribute's `vectors`, times the multiple of the bins that the rows are in.

    vectors    per attribute (l, n) whole numbers of full column rank
    ends       per attribute where its bins of rows end, ascending, the last one at l
    multiples  one axis per attribute, (bins, ...); 0 marks products that are not measured, which no query needs

    A bin of one row of ones sums its attribute out. Queries need one factor for each attribute.
    """

    names: tuple[str, ...]
    vectors: tuple[NDArray[np.int64], ...]
    ends: tuple[tuple[int, ...], ...]
    multiples: NDArray[np.int64]

    def __post_init__(self) -> None:
        if not len(self.names) == len(self.vectors) == len(self.ends) == self.multiples.ndim:
            raise PlanError("products of vectors need vectors and bins of every attribute, and an axis of multiples")
        for name, rows, ends, count in zip(self.names, self.vectors, self.ends, self.multiples.shape, strict=True):
            if len(ends) != count or sorted({*ends}) != list(ends) or ends[0] < 1 or ends[-1] != len(rows):
                raise PlanError(f"the bins of {name} part its rows, one after the other")
        if not self.multiples.size or int(self.multiples.min()) < 0 or not self.multiples.any():
            raise PlanError("multiples of products of bins are not negative, and some are positive")

    @functools.cached_property
    def _places(self) -> tuple[tuple[int, ...], ...]:
        """The bins of every block."""
        return tuple(map(tuple, np.argwhere(self.multiples > 0).tolist()))

    @functools.cached_property
    def _slices(self) -> tuple[tuple[slice, ...], ...]:
        """Per attribute the rows of every bin."""
        return tuple(tuple(slice(a, b) for a, b in itertools.pairwise((0, *ends))) for ends in self.ends)

    @property
    def blocks(self) -> tuple[Block, ...]:
        return self._blocks

    @functools.cached_property
    def _blocks(self) -> tuple[Block, ...]:
        # one operator per bin, which the price then knows for the same in all blocks
        held = [[Dense(rows[s]) for s in slices] for rows, slices in zip(self.vectors, self._slices, strict=True)]
        summed = [[f.shape[0] == 1 and bool((f.dense() == 1).all()) for f in factors] for factors in held]
        out: list[Block] = []
        for place in self._places:
            kept = [i for i, b in enumerate(place) if not summed[i][b]]
            groups = ((), *((self.names[i],) for i in kept))
            scale = Scaled(Identity(1), int(self.multiples[place]))
            out.append(Block(groups, (scale, *(held[i][place[i]] for i in kept))))
        return tuple(out)

    @property
    def summary(self) -> str:
        return f"products of basis vectors over {', '.join(self.names)}, at {len(self._places):,} noise levels"

    # -- errors ------------------------------------------------------------------------------------

    @functools.cached_property
    def _back(self) -> tuple[FloatArray, ...]:
        """Per attribute (n, l) the way from rows to cells, of the whole numbers themselves."""
        with single_thread():
            return tuple(np.asarray(np.linalg.pinv(v.astype(np.float64)), dtype=np.float64) for v in self.vectors)

    @functools.cached_property
    def _spread(self) -> FloatArray:
        """(l, ...) the multiple of every product of rows."""
        bins = [np.repeat(np.arange(len(ends)), np.diff([0, *ends])) for ends in self.ends]
        return self.multiples[np.ix_(*bins)].astype(np.float64)

    def _rows(self, query: Block) -> list[FloatArray]:
        """Per attribute (rows, l) what a query's factor reads of the vectors. Raises NotAnswerable."""
        factors = factors_by_attribute(query, self.names)
        out: list[FloatArray] = []
        with single_thread():
            for name, back in zip(self.names, self._back, strict=True):
                read = factors[name].matvec(back) if name in factors else back.sum(axis=0, keepdims=True)
                out.append(np.asarray(read, dtype=np.float64).reshape(-1, back.shape[1]))
        return out

    def _weighed(self, rows: Sequence[FloatArray], table: FloatArray) -> FloatArray:
        """Sums over all products of rows of a number times its place in `table`: (k_1, k_2, ...)."""
        with single_thread():
            # attributes that are summed out first: they shrink the table most
            for axis in sorted(range(len(rows)), key=lambda i: len(rows[i]) / rows[i].shape[1]):
                table = np.moveaxis(np.tensordot(rows[axis], table, axes=(1, axis)), 0, axis)
        return table

    def check(self, query: Block) -> None:
        self._needed(self._rows(query), query)

    def _needed(self, rows: Sequence[FloatArray], query: Block) -> None:
        if self.multiples.all():
            return
        squares = [(r**2).sum(axis=0, keepdims=True) for r in rows]
        off = float(self._weighed(squares, (self._spread == 0.0).astype(np.float64)).item())
        if off > _SPAN * math.prod(float(s.sum()) for s in squares):
            held = ", ".join(query.attributes)
            raise NotAnswerable(f"the joint table of {held} was not measured as a whole; add the query to the workload")

    def row_powers(self, query: Block, power: int) -> FloatArray:
        rows = self._rows(query)
        self._needed(rows, query)
        inverse = np.divide(1.0, self._spread, out=np.zeros_like(self._spread), where=self._spread > 0) ** power
        return order_by_query(self._weighed([r**power for r in rows], inverse), query, self.names)

    def covariance(self, first: Block, second: Block) -> FloatArray:
        check_covariance_size(first.rows, second.rows)
        one, other = self._rows(first), self._rows(second)
        self._needed(one, first)
        self._needed(other, second)
        inverse = np.divide(1.0, self._spread, out=np.zeros_like(self._spread), where=self._spread > 0) ** 2
        both = [np.einsum("kl,ml->kml", a, b).reshape(-1, a.shape[1]) for a, b in zip(one, other, strict=True)]
        shape = [n for a, b in zip(one, other, strict=True) for n in (len(a), len(b))]
        return order_by_queries(self._weighed(both, inverse).reshape(shape), first, second, self.names)

    # -- answers -----------------------------------------------------------------------------------

    def estimate(self, values: Sequence[Numbers], total: int | None) -> Estimate:
        del total  # nothing rests on it where a record more or less is what is hidden
        table = np.zeros([len(v) for v in self.vectors])
        for place, own in zip(self._places, values, strict=True):
            held = tuple(slices[b] for slices, b in zip(self._slices, place, strict=True))
            part = np.asarray(own, dtype=np.float64).reshape([s.stop - s.start for s in held])
            table[held] = part / float(self.multiples[place])
        return self._weighed(self._back, table)

    def answer(self, estimate: Estimate, query: Block) -> FloatArray:
        self.check(query)
        return np.asarray(marginalise(estimate, self.names, query), dtype=np.float64)
