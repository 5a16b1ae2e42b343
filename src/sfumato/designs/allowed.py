"""Cells that are known to hold no record: what any strategy says of the others is conditioned on their being zero.

Answers z to cells that are impossible are noise alone, so every answer a loses what z tells of its noise:

    a - Cov(a, z) Var(z)^+ z,   of variance   Var(a) - Cov(a, z) Var(z)^+ Cov(z, a),

the least squares under the equations z = 0, never worse, and linear and unbiased as before. Answers to impossible cells
become 0 without error. What is measured, and what it costs, stays.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.conditioning import Conditioned, Said, Zero, free_attributes, key_of
from sfumato.designs.strategy import Estimate, Strategy, row_shape
from sfumato.domain.core import Domain
from sfumato.domain.impossible import Tied, joined
from sfumato.errors import NotAnswerable
from sfumato.ground.codec import storable
from sfumato.operators import Block, Combination, Family, Identity
from sfumato.operators.base import DENSE_LIMIT, FloatArray, Numbers

__all__ = ["Allowed", "knowing"]

_MOST_ZEROS = 1_000  # told apart along one set of free attributes: their eigenvectors take two seconds
_MOST_ENTRIES = (
    2**26
)  # covariances of all answers with them, half a gigabyte; beyond, only impossible answers are set to 0
_MOST_ROWS = 2**22  # of a query whose rows' errors are told apart, 32 MB; of more, that of possible ones stands for all


@storable
@dataclass(frozen=True, eq=False)
class Allowed(Strategy):
    """A strategy under zeros that are known.

    names, shape: the attributes and their cells; tied: which of their joint cells can be; zeros: tables whose
    impossible cells are conditioned on.
    """

    measured: Strategy
    names: tuple[str, ...]
    shape: tuple[int, ...]
    tied: tuple[Tied, ...]
    zeros: tuple[Block, ...] = ()

    @property
    def known(self) -> tuple[object, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.measured.known

    @property
    def blocks(self) -> tuple[Block | Family | Combination, ...]:
        return self.measured.blocks

    @property
    def max_abs(self) -> int:
        return self.measured.max_abs

    @property
    def legend(self) -> Mapping[str, NDArray[np.int64]]:
        return self.measured.legend

    @property
    def records(self) -> int | None:
        return self.measured.records

    @property
    def summary(self) -> str:
        return f"{self.measured.summary}; impossible cells known to be 0"

    def check(self, query: Block) -> None:
        self.measured.check(query)

    def row_powers(self, query: Block, power: int) -> FloatArray:
        if query.rows > _MOST_ROWS:
            return self.measured.row_powers(query, power)
        # asked for anew by every plan that a plan is made of
        key = power, key_of(query, range(len(query.groups)))
        if key not in self._powers:
            self._powers[key] = self._row_powers(query, power)
        return self._powers[key]

    @functools.cached_property
    def _powers(self) -> dict[object, FloatArray]:
        return {}

    def _row_powers(self, query: Block, power: int) -> FloatArray:
        found = self.measured.row_powers(query, power)
        known, dead = self._known(query), self._dead(query)
        if known is not None and power == 2:
            found = np.maximum(found - self.conditioned[known].squares(query), 0.0)
        elif known is not None:
            found = np.full_like(found, np.nan)  # of the rows only their products are known
        return found if dead is None else np.where(dead.reshape(row_shape(query)), 0.0, found)

    def row_errors(self, query: Block) -> tuple[float, float] | None:
        return self.measured.row_errors(query)

    def covariance(self, first: Block, second: Block) -> FloatArray:
        one, other = self.measured.source(first), self.measured.source(second)
        out = one.covariance(first, second) if one is other else np.zeros((first.rows, second.rows))
        known = self._known(first)
        if known is not None and known == self._known(second):
            out = out - self.conditioned[known].shared(first, second)
        for query, axis in ((first, 0), (second, 1)):
            dead = self._dead(query)
            if dead is not None:
                out = np.where(np.expand_dims(dead, 1 - axis), 0.0, out)
        return out

    def estimate(self, values: Sequence[Numbers], total: int | None) -> Estimate:
        held = self.measured.estimate(values, total)
        return held, [c.said(functools.partial(self.measured.answer, held)) for c in self.conditioned]

    def answer(self, estimate: Estimate, query: Block) -> FloatArray:
        return self._corrected(self.measured.answer(estimate[0], query), estimate[1], query)

    def _corrected(self, answers: FloatArray, said: Sequence[Said], query: Block) -> FloatArray:
        known, dead = self._known(query), self._dead(query)
        if known is not None:
            answers = answers - self.conditioned[known].correction(query, said[known])
        return answers if dead is None else np.where(dead, 0.0, answers)

    def family_powers(self, family: Family, power: int) -> FloatArray | None:
        return self.measured.family_powers(family, power) if self._is_beside(family) else None

    def answer_family(self, estimate: Estimate, family: Family) -> Iterator[tuple[NDArray[np.intp], FloatArray]]:
        found = self.measured.answer_family(estimate[0], family)
        if self._is_beside(family):
            return found
        return (
            (
                at,
                np.stack(
                    [self._corrected(a, estimate[1], family.block(int(i))) for i, a in zip(at, some, strict=True)]
                ),
            )
            for at, some in found
        )

    def bias_bound(self, query: Block) -> float:
        return self.measured.bias_bound(query)

    def _is_beside(self, family: Family) -> bool:
        """Whether nothing is known of any of its tables."""
        tied = [[i for i, n in enumerate(family.names) if n in g.attributes] for g in self.tied]
        shared = any((np.isin(s, t).sum(axis=1) > 0).any() for s in [family.sets] for t in tied)
        return not self.zeros and not shared

    @functools.cached_property
    def conditioned(self) -> list[Conditioned]:
        """The zeros by what answers them: the noise of different pieces is independent."""
        sizes = dict(zip(self.names, self.shape, strict=True))
        tied = {a for g in self.tied for a in g.attributes}
        sources = [self.measured.source(b) for b in self.zeros]
        found: list[Conditioned] = []
        for source in {id(s): s for s in sources}.values():
            free = free_attributes(source, sizes) - tied
            zeros: list[Zero] = []
            for block in (b for b, s in zip(self.zeros, sources, strict=True) if s is source):
                held = tuple(a for a in block.attributes if a not in free)
                mask = joined(self.tied, held)
                if mask is not None:
                    zeros.append(Zero(block, held, np.flatnonzero(~np.broadcast_to(mask, [sizes[a] for a in held]))))
            if zeros:
                found.append(Conditioned(source, zeros, sizes))
        return found

    def _known(self, query: Block) -> int | None:
        """Which of these tells of a query."""
        source = self.measured.source(query) if self.zeros else None
        return next((i for i, c in enumerate(self.conditioned) if c.source is source), None)

    def _sizes(self, block: Block) -> list[int]:
        return [self.shape[self.names.index(a)] for a in block.attributes]

    def _possible(self, query: Block) -> NDArray[np.bool_] | None:
        """Which cells of a query's table can be, flat in the order of its attributes; None where all can."""
        mask = joined(self.tied, query.attributes)
        if mask is None:
            return None
        return np.broadcast_to(mask, self._sizes(query)).reshape(-1)

    def _dead(self, query: Block) -> NDArray[np.bool_] | None:
        """Rows that count impossible cells alone; None where there are none."""
        mask = self._possible(query)
        if mask is None or not query.operator.nonnegative:
            return None
        dead = np.asarray(query.operator.matvec(mask.astype(np.int64))) == 0
        return dead if dead.any() else None


def knowing(strategy: Strategy, domain: Domain, tables: Sequence[Block], queries: Sequence[Block]) -> Strategy:
    """A strategy that knows which cells of a domain are impossible; the same where none are.

    tables: those that queries lie in, the largest ones. All of their impossible cells are conditioned on, or, where
    these are too many, those of the attributes that predicates name; or none.
    """
    if not domain.tied:
        return strategy
    plain = Allowed(strategy, domain.names, domain.shape, domain.tied)
    tied = {a for g in domain.tied for a in g.attributes}
    narrow = [tuple(a for a in b.attributes if a in tied) for b in tables]
    wide = [n for n in dict.fromkeys(narrow) if not any(set(n) < set(m) for m in narrow)]
    smaller = [Block(tuple((a,) for a in n), tuple(Identity(s) for s in domain.sizes(n))) for n in wide]
    for chosen in (tables, smaller):
        zeros = tuple(b for b in chosen if joined(domain.tied, b.attributes) is not None and _answers(strategy, b))
        found = Allowed(strategy, domain.names, domain.shape, domain.tied, zeros)
        if _fits(found, queries):
            return found
    return plain


def _answers(strategy: Strategy, table: Block) -> bool:
    try:
        strategy.source(table)
    except NotAnswerable:
        return False
    return True


def _fits(found: Allowed, queries: Sequence[Block]) -> bool:
    """Whether what conditioning holds at once is small enough."""
    sizes = [c.sizes_for(queries) for c in found.conditioned]
    if not sizes:
        return False
    counts, held, formed = zip(*sizes, strict=True)
    return max(counts) <= _MOST_ZEROS and sum(held) <= _MOST_ENTRIES and max(formed) <= DENSE_LIMIT
