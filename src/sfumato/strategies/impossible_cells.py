"""Cells that are known to hold no record: what any strategy says of the others is conditioned on their being zero.

Answers z to cells that are impossible are noise alone, so every answer a loses what z tells of its noise:

    a - Cov(a, z) Var(z)^+ z,   of variance   Var(a) - Cov(a, z) Var(z)^+ Cov(z, a),

the least squares under the equations z = 0, never worse, and linear and unbiased as before. Answers to impossible cells
become 0 without error. What is measured, and what it costs, stays.

What a strategy's answers to cells that are known to be 0 tell of the noise of its other answers.

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

from sfumato._util.codec import storable, value_fingerprint
from sfumato.domain.core import Domain
from sfumato.domain.impossible import Tied, joint_possible_mask
from sfumato.errors import NotAnswerable
from sfumato.operators import Block, Combination, Dense, Family, Identity
from sfumato.operators.base import DENSE_LIMIT, FloatArray, Numbers, single_thread
from sfumato.strategies.covariance import component_powers, table_component
from sfumato.strategies.strategy import Estimate, Strategy, row_shape

Along = tuple[str, ...]
"""R: free attributes, in the domain's order."""

Said = Mapping[Along, FloatArray]
"""What zeros say of an estimate, whitened: (rank, cells of R) for every R."""

_PSEUDO = 1e-10  # of the largest eigenvalue: cells of several tables say the same twice, which leaves rounding


@dataclass(frozen=True, slots=True, eq=False)
class ZeroTable:
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


def _restrict_block(block: Block, names: Sequence[str]) -> Block:
    """The part of a table of cells over some of its attributes."""
    kept = [(g, f) for g, f in zip(block.groups, block.factors, strict=True) if set(g) <= set(names)]
    return Block(tuple(g for g, _ in kept), tuple(f for _, f in kept))


def factor_key(block: Block, chosen: Iterable[int]) -> object:
    """What tells some factors of a block from those of others."""
    pairs = [(block.groups[j], block.factors[j]) for j in chosen]
    return tuple((g, f.shape[0] if isinstance(f, Identity) else value_fingerprint(f)) for g, f in pairs)


def zeros_by_free_attributes(zeros: Sequence[ZeroTable]) -> dict[Along, list[ZeroTable]]:
    """By every set of free attributes that some table holds: the tables of zeros that tell of it, each told once."""
    found: dict[Along, dict[tuple[str, ...], ZeroTable]] = {}
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

    def __init__(self, source: Strategy, zeros: Sequence[ZeroTable], sizes: Mapping[str, int]) -> None:
        self.source, self._sizes = source, sizes
        self.waves = zeros_by_free_attributes(zeros)
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
        parts = [self._between(_restrict_block(z.block, z.held), along)[z.dead] for z in self.waves[along]]
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
                self.source.covariance(ours, self._contrasted(_restrict_block(z.block, z.held), along))[:, z.dead]
                / 2.0 ** len(along)
                for z in self.waves[along]
            ]
        return np.concatenate([f for f in found if f is not None], axis=1)

    def _agreeing(self, query: Block, zero: ZeroTable, along: Along) -> FloatArray | None:
        """Where both are tables of cells that are alike, so that covariances rest on agreement; else None."""
        if any(len(g) > 1 or not isinstance(f, Identity) for g, f in zip(query.groups, query.factors, strict=True)):
            return None
        ends = Block(tuple((a,) for a in along), tuple(Identity(self._sizes[a]) for a in along))
        held = _restrict_block(zero.block, zero.held)
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

    def _part(self, rows: FloatArray, zero: ZeroTable, along: Along) -> FloatArray:
        """Of rows over a table of zeros, (k, cells): what varies along R and no other free attribute, at impossible
        cells, (k, dead, cells of R)."""
        names = zero.block.attributes
        table = rows.reshape(len(rows), *(self._sizes[a] for a in names))
        table = table.sum(axis=tuple(i for i, a in enumerate(names, 1) if a not in zero.held and a not in along))
        kept = [a for a in names if a in zero.held or a in along]
        for a in along:
            table = table_component(table, 1 + kept.index(a), None, contrast=True)
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
        key = along, factor_key(query, held)
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
        key = power, factor_key(query, range(len(query.groups)))
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
            zeros: list[ZeroTable] = []
            for block in (b for b, s in zip(self.zeros, sources, strict=True) if s is source):
                held = tuple(a for a in block.attributes if a not in free)
                mask = joint_possible_mask(self.tied, held)
                if mask is not None:
                    zeros.append(
                        ZeroTable(block, held, np.flatnonzero(~np.broadcast_to(mask, [sizes[a] for a in held])))
                    )
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
        mask = joint_possible_mask(self.tied, query.attributes)
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


def condition_on_impossible(
    strategy: Strategy, domain: Domain, tables: Sequence[Block], queries: Sequence[Block]
) -> Strategy:
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
        zeros = tuple(
            b
            for b in chosen
            if joint_possible_mask(domain.tied, b.attributes) is not None and _can_answer_table(strategy, b)
        )
        found = Allowed(strategy, domain.names, domain.shape, domain.tied, zeros)
        if _conditioning_fits(found, queries):
            return found
    return plain


def _can_answer_table(strategy: Strategy, table: Block) -> bool:
    try:
        strategy.source(table)
    except NotAnswerable:
        return False
    return True


def _conditioning_fits(found: Allowed, queries: Sequence[Block]) -> bool:
    """Whether what conditioning holds at once is small enough."""
    sizes = [c.sizes_for(queries) for c in found.conditioned]
    if not sizes:
        return False
    counts, held, formed = zip(*sizes, strict=True)
    return max(counts) <= _MOST_ZEROS and sum(held) <= _MOST_ENTRIES and max(formed) <= DENSE_LIMIT
