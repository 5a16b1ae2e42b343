"""Cells that are known to hold no record: what any strategy says of the others is conditioned on their being zero.

Answers z to cells that are impossible are noise alone, so every answer a loses what z tells of its noise:

    a - Cov(a, z) Var(z)^+ z,   of variance   Var(a) - Cov(a, z) Var(z)^+ Cov(z, a),

the least squares under the equations z = 0, never worse, and linear and unbiased as before. Answers to impossible cells
become 0 without error. What is measured, and what it costs, stays.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.strategy import Estimate, Strategy, row_shape
from sfumato.domain.core import Domain
from sfumato.domain.impossible import Tied, joined
from sfumato.errors import NotAnswerable
from sfumato.ground.codec import fingerprint, storable
from sfumato.operators import Block, Combination, Family, Identity
from sfumato.operators.base import DENSE_LIMIT, FloatArray, Numbers
from sfumato.operators.blas import single_thread

__all__ = ["Allowed", "knowing"]

_MOST_ZEROS = (
    1_000  # cells that are conditioned on: their eigenvectors take two seconds, and so few suffice (decision 68)
)
_MOST_ENTRIES = (
    2**26
)  # covariances of all answers with them, half a gigabyte; beyond, only impossible answers are set to 0
_MOST_ROWS = 2**22  # of a query whose rows' errors are told apart, 32 MB; of more, that of possible ones stands for all
_PSEUDO = 1e-10  # of the largest eigenvalue: cells of several tables say the same twice, which leaves rounding


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
    def records(self) -> int | None:
        return self.measured.records

    @property
    def summary(self) -> str:
        return f"{self.measured.summary}; impossible cells known to be 0"

    def check(self, query: Block) -> None:
        self.measured.check(query)

    def row_powers(self, query: Block, power: int) -> FloatArray:
        found = self.measured.row_powers(query, power)
        if query.rows > _MOST_ROWS:
            return found
        pull, dead = self._pull(query), self._dead(query)
        if pull is None and dead is None:
            return found
        out = np.broadcast_to(found, row_shape(query)).reshape(-1).copy()
        if pull is not None and power == 2:
            out = np.maximum(out - np.einsum("ij,ij->i", pull, pull), 0.0)
        elif pull is not None:
            out[:] = np.nan  # of the rows only their products are known
        if dead is not None:
            out[dead] = 0.0
        return out.reshape(row_shape(query))

    def row_errors(self, query: Block) -> tuple[float, float] | None:
        return self.measured.row_errors(query)

    def covariance(self, first: Block, second: Block) -> FloatArray:
        one, other = self.measured.source(first), self.measured.source(second)
        out = one.covariance(first, second) if one is other else np.zeros((first.rows, second.rows))
        ours, theirs = self._pull(first), self._pull(second)
        if ours is not None and theirs is not None:
            out = out - ours @ theirs.T
        for query, axis in ((first, 0), (second, 1)):
            dead = self._dead(query)
            if dead is not None:
                out = np.where(np.expand_dims(dead, 1 - axis), 0.0, out)
        return out

    def estimate(self, values: Sequence[Numbers], total: int | None) -> Estimate:
        held = self.measured.estimate(values, total)
        if not self.zeros:
            return held, np.zeros(0)
        said = [self.measured.answer(held, b)[cells] for b, cells in self.cells]
        return held, self._known[0] @ np.concatenate(said)

    def answer(self, estimate: Estimate, query: Block) -> FloatArray:
        held, said = estimate
        out = self.measured.answer(held, query)
        pull, dead = self._pull(query), self._dead(query)
        if pull is not None:
            out = out - pull @ said
        return out if dead is None else np.where(dead, 0.0, out)

    def family_powers(self, family: Family, power: int) -> FloatArray | None:
        return self.measured.family_powers(family, power) if self._is_beside(family) else None

    def answer_family(self, estimate: Estimate, family: Family) -> Iterator[tuple[NDArray[np.intp], FloatArray]]:
        if self._is_beside(family):
            return self.measured.answer_family(estimate[0], family)
        return super().answer_family(estimate, family)

    def bias_bound(self, query: Block) -> float:
        return self.measured.bias_bound(query)

    def _is_beside(self, family: Family) -> bool:
        """Whether nothing is known of any of its tables."""
        tied = [[i for i, n in enumerate(family.names) if n in g.attributes] for g in self.tied]
        shared = any((np.isin(s, t).sum(axis=1) > 0).any() for s in [family.sets] for t in tied)
        return not self.zeros and not shared

    @functools.cached_property
    def cells(self) -> list[tuple[Block, NDArray[np.intp]]]:
        """The impossible cells of every table that is conditioned on."""
        masks = [(b, self._possible(b)) for b in self.zeros]
        return [(b, np.flatnonzero(~m)) for b, m in masks if m is not None]

    @functools.cached_property
    def _sources(self) -> list[Strategy]:
        """What answers each of these tables."""
        return [self.measured.source(b) for b, _ in self.cells]

    @functools.cached_property
    def _known(self) -> tuple[FloatArray, list[FloatArray]]:
        """L with L Var(z) Lᵀ = I, (rank, zeros), and Cov(t, z) Lᵀ of the cells t of every table, (cells, rank)."""
        along = [self._along(source, block) for source, (block, _) in zip(self._sources, self.cells, strict=True)]
        variance = np.concatenate([a[cells] for a, (_, cells) in zip(along, self.cells, strict=True)])
        with single_thread():
            values, vectors = np.linalg.eigh((variance + variance.T) / 2)
        kept = values > _PSEUDO * float(values[-1])
        whitener = vectors[:, kept].T / np.sqrt(values[kept])[:, None]
        return whitener, [a @ whitener.T for a in along]

    def _along(self, source: Strategy, query: Block) -> FloatArray:
        """(rows, zeros) covariances of a query's answers with all impossible cells."""
        return np.concatenate([self._between(source, query, i) for i in range(len(self.cells))], axis=1)

    def _between(self, source: Strategy, query: Block, table: int) -> FloatArray:
        """Covariances with the impossible cells of a table; the noise of two pieces is independent."""
        block, cells = self.cells[table]
        if source is not self._sources[table]:
            return np.zeros((query.rows, len(cells)))
        plain = all(len(g) == 1 and isinstance(f, Identity) for g, f in zip(query.groups, query.factors, strict=True))
        found = source.table_covariance(query, block) if plain else None
        if found is None:
            return source.covariance(query, block)[:, cells]
        # of cells of tables only where they agree counts
        at = np.zeros((query.rows, len(cells)), dtype=np.intp)
        ours = dict(zip(query.attributes, np.unravel_index(np.arange(query.rows), self._sizes(query)), strict=True))
        theirs = dict(zip(block.attributes, np.unravel_index(cells, self._sizes(block)), strict=True))
        shared = [a for a in query.attributes if a in theirs]
        for name, ways in zip(shared, found.shape, strict=True):
            at = ways * at + (ours[name][:, None] != theirs[name])
        return found.reshape(-1)[at]

    @functools.cached_property
    def _pulls(self) -> dict[str, FloatArray]:
        """By fingerprint, of the queries asked about so far."""
        return {}

    def _pull(self, query: Block) -> FloatArray | None:
        """Cov(a, z) Lᵀ, (rows, rank): what is known of the noise of a query's answers."""
        if not self.cells:
            return None
        key = fingerprint(query)
        if key not in self._pulls:
            self._pulls[key] = self._pulled(query)
        return self._pulls[key]

    def _pulled(self, query: Block) -> FloatArray:
        whitener, along = self._known
        source = self.measured.source(query)
        for (block, _), own, pulls in zip(self.cells, self._sources, along, strict=True):
            if own is source and set(query.attributes) <= set(block.attributes):
                # a query of a table's cells: what is known of these adds up
                table = pulls.reshape(*self._sizes(block), -1)
                drop = tuple(i for i, a in enumerate(block.attributes) if a not in query.attributes)
                kept = [a for a in block.attributes if a in query.attributes]
                turned = table.sum(axis=drop).transpose([*(kept.index(a) for a in query.attributes), len(kept)])
                return np.asarray(query.operator.matvec(turned.reshape(-1, turned.shape[-1])), dtype=np.float64)
        return self._along(source, query) @ whitener.T

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
    if not found.zeros or max(b.rows for b in found.zeros) ** 2 > DENSE_LIMIT:
        return False
    masks = [(b, joined(found.tied, b.attributes)) for b in found.zeros]
    count = round(sum(b.rows * (1 - float(m.mean())) for b, m in masks if m is not None))
    widest = max(q.rows for q in queries) * max(b.rows for b in found.zeros)
    return count <= _MOST_ZEROS and widest <= DENSE_LIMIT and count * sum(q.rows for q in queries) <= _MOST_ENTRIES
