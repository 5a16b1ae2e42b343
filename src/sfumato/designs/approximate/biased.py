"""Answers with a small bias for less noise: given reconstructions of a dense strategy, which err by a stated bound."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sfumato.designs.covariance import check_size
from sfumato.designs.product import Product
from sfumato.designs.strategy import Estimate, Strategy, row_shape
from sfumato.errors import PlanError
from sfumato.ground.codec import fingerprint, storable
from sfumato.operators import Block, OnMarginal
from sfumato.operators.base import FloatArray, Numbers

__all__ = ["Biased"]

_EPS = float(np.finfo(np.float64).eps)


@storable
@dataclass(frozen=True, eq=False)
class Biased(Strategy):
    """`measured` B over one table; each block W of `answered` is answered by R B x + c n, near W x.

    R is the `reconstructions`' (rows, l), on the values divided by the strategy's scale, and c the `offsets`' (rows,),
    zero unless the number n of records is known. On a table of at most `limit` records answer i is off by at most
    limit * max_j |(R B + c 1ᵀ - W)_ij|. Every other query is answered without bias by least squares.
    """

    measured: Product
    answered: tuple[Block, ...]
    reconstructions: tuple[FloatArray, ...]
    offsets: tuple[FloatArray, ...]
    limit: int

    def __post_init__(self) -> None:
        rows = [b.rows for b in self.answered]
        width = sum(b.rows for b in self.measured.blocks)
        right = [(n, width) for n in rows] == [r.shape for r in self.reconstructions]
        if not right or [(n,) for n in rows] != [c.shape for c in self.offsets]:
            raise PlanError("every block needs a reconstruction (rows, measured values) and an offset (rows,)")
        if any(c.any() for c in self.offsets) and not self.measured.public_total:
            raise PlanError("offsets need a known number of records")
        if isinstance(self.limit, bool) or not isinstance(self.limit, int) or self.limit < 1:
            raise PlanError(f"the limit of records must be a positive whole number, not {self.limit!r}")

    @property
    def blocks(self) -> tuple[Block, ...]:
        return self.measured.blocks

    @property
    def records(self) -> int:
        return self.limit

    @property
    def summary(self) -> str:
        return self.measured.summary

    @functools.cached_property
    def _prints(self) -> tuple[str, ...]:
        return tuple(fingerprint(b) for b in self.answered)

    def _find(self, query: Block) -> int | None:
        """Which of the answered blocks a query is."""
        alike = [
            i for i, b in enumerate(self.answered) if b.groups == query.groups and row_shape(b) == row_shape(query)
        ]
        for i in alike:
            if self.answered[i] is query:
                return i
        own = fingerprint(query) if alike else ""
        return next((i for i in alike if self._prints[i] == own), None)

    def _raw(self, i: int) -> Product:
        """The same measurement with a block's reconstruction for its answers."""
        return replace(self.measured, raw=self.answered[i], reconstruction=self.reconstructions[i])

    def check(self, query: Block) -> None:
        if self._find(query) is None:
            self.measured.check(query)

    def row_powers(self, query: Block, power: int) -> FloatArray:
        i = self._find(query)
        return (self.measured if i is None else self._raw(i)).row_powers(query, power)

    def covariance(self, first: Block, second: Block) -> FloatArray:
        check_size(first.rows, second.rows)
        i, j = self._find(first), self._find(second)
        if i is not None and j is not None:
            return self.reconstructions[i] @ self.reconstructions[j].T * self.measured.divisor**-2
        known = j if i is None else i
        return (self.measured if known is None else self._raw(known)).covariance(first, second)

    def estimate(self, values: Sequence[Numbers], total: int | None) -> Estimate:
        return self.measured.estimate(values, total), 0 if total is None else total

    def answer(self, estimate: Estimate, query: Block) -> FloatArray:
        held, total = estimate
        i = self._find(query)
        if i is None:
            return self.measured.answer(held, query)
        return self._raw(i).answer(held, query) + total * self.offsets[i]

    @functools.cached_property
    def _deviations(self) -> tuple[FloatArray, ...]:
        """Per block |R B + c 1ᵀ - W| over the cells of the measured table, with what rounding may hide."""
        (factor,), names = self.measured.factors, self.measured.attributes
        sizes = tuple(n for group in self.measured.sizes for n in group)
        integers = np.asarray(factor.measured.dense(), dtype=np.float64) / factor.scale
        out: list[FloatArray] = []
        for block, back, offset in zip(self.answered, self.reconstructions, self.offsets, strict=True):
            axes = tuple(map(names.index, block.attributes))
            wanted = np.asarray(OnMarginal(sizes, axes, block.operator).dense(), dtype=np.float64)
            reached = back @ integers + offset[:, None]
            size = np.abs(back) @ np.abs(integers) + np.abs(offset)[:, None] + np.abs(wanted)
            found = np.abs(reached - wanted)
            out.append(found + 4 * (len(integers) + 2) * _EPS * size)
        return tuple(out)

    def deviations(self, query: Block) -> FloatArray | None:
        i = self._find(query)
        return None if i is None else self._deviations[i]

    def bias_bound(self, query: Block) -> float:
        off = self.deviations(query)
        return math.nextafter(float(off.max()), math.inf) if off is not None else self.measured.bias_bound(query)
