"""What a strategy's answers to cells that are known to be 0 tell of the noise of its other answers.

z are answers of one estimate to impossible cells: tables of *held* attributes, some cells of which are impossible
whatever the *free* ones are. To the strategy all cells of a free attribute are alike, so the parts of z that vary along
different sets R of free attributes are uncorrelated, and within a part all directions are alike: Var(z_R) = K ⊗ P,
with K the covariances of held cells and P the projection onto contrasts along R. So tables of any number of cells are
conditioned on by one small K for every R. Where no attribute is free this is least squares under all of z at once.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.components import component, component_powers
from sfumato.designs.strategy import Strategy
from sfumato.errors import NotAnswerable
from sfumato.ground.codec import fingerprint
from sfumato.operators import Block, Dense, Identity
from sfumato.operators.base import FloatArray
from sfumato.operators.blas import single_thread

__all__ = ["Conditioned", "Said", "Zero", "free_attributes", "key_of"]

Along = tuple[str, ...]
"""R: free attributes, in the domain's order."""

Said = Mapping[Along, FloatArray]
"""What zeros say of an estimate, whitened: (rank, cells of R) for every R."""

_PSEUDO = 1e-10  # of the largest eigenvalue: cells of several tables say the same twice, which leaves rounding


@dataclass(frozen=True, slots=True, eq=False)
class Zero:
    """A table of marginal cells that a strategy answers, its held attributes, and their impossible cells, flat."""

    block: Block
    held: tuple[str, ...]
    dead: NDArray[np.intp]


def free_attributes(source: Strategy, sizes: Mapping[str, int]) -> frozenset[str]:
    """The attributes all of whose cells are alike to a strategy."""

    def is_free(name: str) -> bool:
        cells = Block(((name,),), (Identity(sizes[name]),))
        try:
            return source.table_covariance(cells, cells) is not None
        except NotAnswerable:
            return False

    return frozenset(filter(is_free, sizes))


def _over(block: Block, names: Sequence[str]) -> Block:
    """The part of a table of cells over some of its attributes."""
    kept = [(g, f) for g, f in zip(block.groups, block.factors, strict=True) if set(g) <= set(names)]
    return Block(tuple(g for g, _ in kept), tuple(f for _, f in kept))


def key_of(block: Block, chosen: Iterable[int]) -> object:
    """What tells some factors of a block from those of others."""
    pairs = [(block.groups[j], block.factors[j]) for j in chosen]
    return tuple((g, f.shape[0] if isinstance(f, Identity) else fingerprint(f)) for g, f in pairs)


def waves(zeros: Sequence[Zero]) -> dict[Along, list[Zero]]:
    """By every set of free attributes that some table holds: the tables of zeros that tell of it, each told once."""
    found: dict[Along, dict[tuple[str, ...], Zero]] = {}
    for zero in zeros:
        free = [
            a
            for a, f in zip(zero.block.attributes, zero.block.factors, strict=True)
            if a not in zero.held and f.shape[1] > 1
        ]
        for along in itertools.chain.from_iterable(itertools.combinations(free, k) for k in range(len(free) + 1)):
            found.setdefault(along, {})[zero.held] = zero
    return {r: [z for h, z in t.items() if not any(set(h) < set(o) for o in t)] for r, t in found.items()}


class Conditioned:
    """The answers of one strategy under zeros that it answers too; sizes: of all attributes, in the domain's order."""

    def __init__(self, source: Strategy, zeros: Sequence[Zero], sizes: Mapping[str, int]) -> None:
        self.source, self._sizes = source, sizes
        self.waves = waves(zeros)
        self._held = {a for z in zeros for a in z.held}
        self._inside: dict[object, FloatArray] = {}

    def said(self, answer: Callable[[Block], FloatArray]) -> Said:
        """By `answer` of their tables."""
        tables = {id(z): answer(z.block)[None] for zeros in self.waves.values() for z in zeros}
        parts = {r: np.concatenate([self._part(tables[id(z)], z, r)[0] for z in t]) for r, t in self.waves.items()}
        return {r: self._whiteners[r] @ part for r, part in parts.items()}

    def squares(self, query: Block) -> FloatArray:
        """What the zeros take of the variances of a query's rows, one axis per factor, of length 1 where all agree."""
        shape = [f.shape[0] for f in query.factors]
        held = self._held_groups(query)
        if held is None:
            return sum(
                (np.einsum("ij,ij->i", p, p) for p in self._pulls(query).values()), np.zeros(query.rows)
            ).reshape(shape)
        powers = {
            j: component_powers(query.factors[j], [self._sizes[a] for a in g], 2)
            for j, g in enumerate(query.groups)
            if j not in held
        }
        out = np.zeros((1,) * len(shape))
        for along in self._along(query):
            sums = {j: p[tuple(i for i, a in enumerate(query.groups[j]) if a in along)] for j, p in powers.items()}
            if all(s.any() for s in sums.values()):
                inside = (self._within(query, held, along) ** 2).sum(axis=1)
                parts = [inside.reshape([n if j in held else 1 for j, n in enumerate(shape)])]
                parts += [s.reshape([-1 if i == j else 1 for i in range(len(shape))]) for j, s in sums.items()]
                out = out + functools.reduce(np.multiply, parts)
        return out

    def correction(self, query: Block, said: Said) -> FloatArray:
        """What is taken of the answers to a query, (rows,)."""
        held = self._held_groups(query)
        if held is None:
            return sum((p @ said[r].reshape(-1) for r, p in self._pulls(query).items()), np.zeros(query.rows))
        out = np.zeros(query.rows)
        for along in self._along(query):
            inside = self._within(query, held, along) @ said[along]
            out += self._spread(query, held, along, inside[..., None])[:, 0]
        return out

    def shared(self, first: Block, second: Block) -> FloatArray:
        """What is taken of covariances, (rows of first, rows of second)."""
        mine, other = self._held_groups(first), self._held_groups(second)
        out = np.zeros((first.rows, second.rows))
        if mine is None or other is None:
            ours, theirs = self._pulls(first), self._pulls(second)
            return sum((p @ theirs[r].T for r, p in ours.items() if r in theirs), out)
        there = set(self._along(second))
        for along in self._along(first):
            if along not in there:
                continue
            inside = self._within(first, mine, along) @ self._within(second, other, along).T
            cells = self._cells(along)
            contrasts = functools.reduce(
                np.kron, [np.eye(n) - 1 / n for n in map(self._sizes.__getitem__, along)], np.eye(1)
            )
            table = np.einsum("ij,kl->ikjl", inside, contrasts).reshape(len(inside), cells, -1)
            half = self._spread(first, mine, along, table).reshape(first.rows, -1, cells)
            out += self._spread(second, other, along, half.transpose(1, 2, 0)).T
        return out

    def sizes_for(self, queries: Iterable[Block]) -> tuple[int, int, int]:
        """(most zeros of a set R, covariances held at once with those of all R and these queries, the most formed at
        once): what an answer takes, before any of it is computed."""
        counts = {r: sum(len(z.dead) for z in t) for r, t in self.waves.items()}
        widest = {r: max(self._cells(z.held) for z in t) for r, t in self.waves.items()}
        held, formed = sum(c * c for c in counts.values()), max(widest.values()) ** 2
        seen: set[tuple[object, ...]] = set()
        for query in queries:
            groups = self._held_groups(query)
            if groups is None:
                formed = max(formed, query.rows * max(z.block.rows for t in self.waves.values() for z in t))
            part = [(query.groups[j], query.factors[j].shape[0]) for j in groups or ()]
            rows = query.rows if groups is None else math.prod(n for _, n in part)
            for along in self._along(query):
                formed = max(formed, rows * widest[along])
                if groups is None or (along, *part) not in seen:
                    seen.add((along, *part))
                    held += rows * counts[along] * (self._cells(along) if groups is None else 1)
        return max(counts.values()), held, formed

    # -- the zeros ----------------------------------------------------------------------------------------------

    @functools.cached_property
    def _whiteners(self) -> dict[Along, FloatArray]:
        """L with L K Lᵀ = I for every R, (rank, held cells that are impossible)."""
        return {along: self._whitener(along) for along in self.waves}

    def _whitener(self, along: Along) -> FloatArray:
        parts = [self._between(_over(z.block, z.held), along)[z.dead] for z in self.waves[along]]
        variance = np.concatenate(parts)
        with single_thread():
            values, vectors = np.linalg.eigh((variance + variance.T) / 2)
        kept = values > _PSEUDO * max(float(values[-1]), 0.0)
        return vectors[:, kept].T / np.sqrt(values[kept])[:, None]

    def _between(self, query: Block, along: Along) -> FloatArray:
        """(rows, zeros) covariances of K, of a query over held attributes."""
        found = [self._agreeing(query, z, along) for z in self.waves[along]]
        if any(f is None for f in found):
            ours = self._contrasted(query, along)
            # a contrast (1, -1) along every attribute of R, whose squared length is 2
            found = [
                self.source.covariance(ours, self._contrasted(_over(z.block, z.held), along))[:, z.dead]
                / 2.0 ** len(along)
                for z in self.waves[along]
            ]
        return np.concatenate([f for f in found if f is not None], axis=1)

    def _agreeing(self, query: Block, zero: Zero, along: Along) -> FloatArray | None:
        """Where both are tables of cells that are alike, so that covariances rest on agreement; else None."""
        if any(len(g) > 1 or not isinstance(f, Identity) for g, f in zip(query.groups, query.factors, strict=True)):
            return None
        ends = Block(tuple((a,) for a in along), tuple(Identity(self._sizes[a]) for a in along))
        held = _over(zero.block, zero.held)
        first, second = (Block((*b.groups, *ends.groups), (*b.factors, *ends.factors)) for b in (query, held))
        table = self.source.table_covariance(first, second)
        if table is None:
            return None
        for _ in along:
            table = table[..., 0] - table[..., 1]
        at = np.zeros((query.rows, len(zero.dead)), dtype=np.intp)
        ours, theirs = (
            self._positions(b.attributes, c) for b, c in ((query, np.arange(query.rows)), (held, zero.dead))
        )
        pairs = [(own, theirs[a]) for a, own in ours.items() if a in theirs]
        for (own, other), ways in zip(pairs, table.shape, strict=True):
            at = ways * at + (own[:, None] != other)
        return table.reshape(-1)[at]

    def _contrasted(self, block: Block, along: Along) -> Block:
        ends = tuple(Dense(np.eye(1, self._sizes[a]) - np.eye(1, self._sizes[a], 1)) for a in along)
        return Block((*block.groups, *((a,) for a in along)), (*block.factors, *ends))

    def _positions(self, names: Sequence[str], cells: NDArray[np.intp]) -> dict[str, NDArray[np.intp]]:
        """Of every attribute of a table where along it these cells are."""
        return dict(zip(names, np.unravel_index(cells, [self._sizes[a] for a in names]), strict=True)) if names else {}

    def _cells(self, names: Iterable[str]) -> int:
        return math.prod(self._sizes[a] for a in names)

    def _part(self, rows: FloatArray, zero: Zero, along: Along) -> FloatArray:
        """Of rows over a table of zeros, (k, cells): what varies along R and no other free attribute, at impossible
        cells, (k, dead, cells of R)."""
        names = zero.block.attributes
        table = rows.reshape(len(rows), *(self._sizes[a] for a in names))
        table = table.sum(axis=tuple(i for i, a in enumerate(names, 1) if a not in zero.held and a not in along))
        kept = [a for a in names if a in zero.held or a in along]
        for a in along:
            table = component(table, 1 + kept.index(a), None, contrast=True)
        turned = table.transpose(0, *(1 + kept.index(a) for a in (*zero.held, *along)))
        return turned.reshape(len(rows), -1, self._cells(along))[:, zero.dead]

    # -- queries ------------------------------------------------------------------------------------------------

    def _along(self, query: Block) -> Iterator[Along]:
        return (along for along in self.waves if set(along) <= set(query.attributes))

    def _held_groups(self, query: Block) -> tuple[int, ...] | None:
        """The factors of held attributes; None where one has free attributes too."""
        held = tuple(j for j, g in enumerate(query.groups) if not g or not self._held.isdisjoint(g))
        return held if all(self._held.issuperset(query.groups[j]) for j in held) else None

    def _within(self, query: Block, held: tuple[int, ...], along: Along) -> FloatArray:
        """Covariances of a query's held factors with the whitened zeros of R, (rows of these factors, rank)."""
        key = along, key_of(query, held)
        if key not in self._inside:
            part = Block(tuple(query.groups[j] for j in held), tuple(query.factors[j] for j in held))
            self._inside[key] = self._between(part, along) @ self._whiteners[along].T
        return self._inside[key]

    def _spread(self, query: Block, held: tuple[int, ...], along: Along, table: FloatArray) -> FloatArray:
        """A query's free factors on tables that vary along R: (rows of held factors, cells of R, c) to (rows, c)."""
        labels: list[int | str | None] = [*held, *along, None]
        out = table.reshape(*(query.factors[j].shape[0] for j in held), *(self._sizes[a] for a in along), -1)
        for j, (group, factor) in enumerate(zip(query.groups, query.factors, strict=True)):
            if j in held:
                continue
            rest = [label for label in labels if label not in group]
            inside = [a for a in group if a in along]
            turned = out.transpose([labels.index(label) for label in (*rest, *inside)])
            before, sizes = turned.shape[: len(rest)], [self._sizes[a] for a in group]
            own = [n if a in along else 1 for a, n in zip(group, sizes, strict=True)]
            even = np.broadcast_to(turned.reshape(*before, *own), (*before, *sizes)) / (
                math.prod(sizes) / math.prod(own)
            )
            out = factor.matvec(even.reshape(-1, math.prod(sizes)).T).T.reshape(*before, -1)
            labels = [*rest, j]
        order = [labels.index(label) for label in (*range(len(query.groups)), None)]
        return out.transpose(order).reshape(query.rows, -1)

    def _pulls(self, query: Block) -> dict[Along, FloatArray]:
        """Covariances of a query's rows with the whitened zeros along every R, (rows, rank times cells of R)."""
        tables = {id(z): self.source.covariance(query, z.block) for r in self._along(query) for z in self.waves[r]}
        out: dict[Along, FloatArray] = {}
        for along in self._along(query):
            parts = [self._part(tables[id(z)], z, along) for z in self.waves[along]]
            pull = np.einsum("kd,rdc->rkc", self._whiteners[along], np.concatenate(parts, axis=1), optimize=True)
            out[along] = pull.reshape(query.rows, -1)
        return out
