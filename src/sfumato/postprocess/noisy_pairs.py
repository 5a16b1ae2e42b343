"""Noisy tables of pairs as one matrix: the cells of all attributes stacked, and the components of the tables in it.

With u_i the counts of attribute i less their mean and Q_ij the part of a pair's table that varies along both, every
pair is Q_ij + u_i 1'/n_j + 1 u_j'/n_i + 1/(n_i n_j), in shares of the total. Residual noise is independent between
these components, and its density says how far an estimate is from them: sum over sets of precision times square.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.errors import InvalidInput
from sfumato.operators.base import FloatArray, single_thread
from sfumato.postprocess.cones import project_onto_simplex
from sfumato.postprocess.consistency import ResidualNoise, Zeros, project_onto_local


@dataclass(frozen=True, slots=True)
class Components:
    """ones: (M,) centred within every attribute; pairs: (M, M) symmetric, centred, zero within an attribute."""

    ones: FloatArray
    pairs: FloatArray

    def plus(self, other: Components, factor: float = 1.0) -> Components:
        """The sum with a multiple of the other."""
        return Components(self.ones + factor * other.ones, self.pairs + factor * other.pairs)


class AttributeStack:
    """Where the cells of every attribute are among all M."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = np.asarray(sizes, dtype=np.int64)
        self.starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(self.sizes)])
        self.count = int(self.starts[-1])
        self.owner = np.repeat(np.arange(len(self.sizes)), self.sizes)
        self.even = 1.0 / self.sizes[self.owner]
        self.apart = self.owner[:, None] != self.owner[None, :]

    def slice(self, attribute: int) -> slice:
        """The cells of an attribute."""
        return slice(int(self.starts[attribute]), int(self.starts[attribute + 1]))

    @functools.cached_property
    def places(self) -> list[tuple[int, int]]:
        """All pairs of attributes, in lexicographic order."""
        return list(itertools.combinations(range(len(self.sizes)), 2))

    def sums(self, values: FloatArray) -> FloatArray:
        """(..., M) sums within every attribute, each repeated for its cells."""
        return np.add.reduceat(values, self.starts[:-1], axis=-1)[..., self.owner]

    def centred(self, values: FloatArray) -> FloatArray:
        """(..., M) less the means within every attribute."""
        return values - self.sums(values) * self.even

    def centred_pairs(self, values: FloatArray) -> FloatArray:
        """(M, M) centred along both sides, zero within an attribute."""
        return np.where(self.apart, self.centred(self.centred(values).T).T, 0.0)

    def spread(self, values: FloatArray) -> FloatArray:
        """A (d,) value per attribute or a (d, d) one per pair, for all their cells."""
        return values[self.owner] if values.ndim == 1 else values[np.ix_(self.owner, self.owner)]

    def tables(self, found: Components) -> FloatArray:
        """(M, M) tables of all pairs, in shares; within an attribute it means nothing."""
        u, e = found.ones, self.even
        return found.pairs + u[:, None] * e + e[:, None] * (u + e)

    def components(self, tables: FloatArray, shares: FloatArray) -> Components:
        """Of (M, M) tables with the one-way shares (M,)."""
        return Components(shares - self.even, self.centred_pairs(tables))

    def simplex(self, ones: FloatArray) -> FloatArray:
        """(M,) the nearest shares that are not negative, attribute by attribute."""
        found = ones + self.even
        return np.concatenate([project_onto_simplex(found[self.slice(i)], 1.0) for i in range(len(self.sizes))])


@dataclass(frozen=True, eq=False)
class NoisyPairs:
    """What was measured, in shares of `total`, and the precision of every component (0: not measured).

    one: (d,) and pair: (d, d) the precisions of the attributes' and of the pairs' components. dead: (M, M) which cells
    are known to be 0, None where none is; emptying: what the values were, and noise of their law is, made 0 there by.
    """

    stack: AttributeStack
    values: Components
    total: float
    one: FloatArray
    pair: FloatArray
    dead: NDArray[np.bool_] | None = None
    emptying: Callable[[Components, float], Components] | None = None

    @functools.cached_property
    def weights(self) -> Components:
        """The precisions of all cells."""
        return Components(self.stack.spread(self.one), self.stack.spread(self.pair))

    def inner(self, a: Components, b: Components) -> float:
        """The inner product that the noise's density gives."""
        w = self.weights
        pairs = float(np.einsum("ij,ij,ij->", w.pairs, a.pairs, b.pairs))
        return pairs / 2 + float(np.einsum("i,i,i->", w.ones, a.ones, b.ones))

    def noise(self, random: np.random.Generator) -> Components:
        """Noise of the law that the values have, as Gaussian."""
        one, pair = (np.sqrt(np.divide(1.0, w, out=np.zeros_like(w), where=w > 0)) for w in (self.one, self.pair))
        m = self.stack.count
        draw = np.triu(random.standard_normal((m, m)), 1)
        ones = self.stack.centred(self.stack.spread(one) * random.standard_normal(m))
        found = Components(ones, self.stack.centred_pairs(self.stack.spread(pair) * (draw + draw.T)))
        return found if self.emptying is None else self.emptying(found, 0.0)

    def deviations(self) -> FloatArray:
        """(M, M) standard deviations of the cells of the pairs' tables, in shares; infinite where unmeasured."""
        n = self.stack.sizes.astype(np.float64)
        # what has one cell has no noise: 0 / 0
        with np.errstate(divide="ignore", invalid="ignore"):
            one, pair = (1 - 1 / n) / self.one, np.outer(1 - 1 / n, 1 - 1 / n) / self.pair
        one = np.where(n > 1, one, 0.0)
        found = np.where(np.outer(n > 1, n > 1), pair, 0.0) + one[:, None] / n**2 + (one[:, None] / n**2).T
        return np.sqrt(self.stack.spread(found))


def read_noisy(
    sizes: Sequence[int],
    sets: Sequence[Sequence[int]],
    values: Sequence[ArrayLike],
    noise: ResidualNoise,
    total: float | None,
) -> NoisyPairs:
    """The components of tables of at most two attributes. Raises InvalidInput."""
    cells = [int(n) for n in sizes]
    if len(cells) < 2 or min(cells) < 1 or not sets or len(sets) != len(values):
        raise InvalidInput(
            f"{len(cells)} attributes, {len(sets)} sets and {len(values)} tables; give at least two attributes of one "
            "cell or more, and one table per set"
        )
    if total is not None and not (math.isfinite(total) and total > 0):
        raise InvalidInput(f"total is a positive finite number, or None, not {total!r}")
    stack, d = AttributeStack(cells), len(cells)
    ones, held = np.zeros(stack.count), np.zeros(d)
    pairs, totals = np.zeros((stack.count, stack.count)), list[float]()
    seen = np.zeros((d, d), dtype=bool)
    for some, given in zip(sets, values, strict=True):
        axes, table = [int(a) for a in some], np.asarray(given, dtype=np.float64)
        if len(axes) > 2 or len(set(axes)) != len(axes) or not all(0 <= a < d for a in axes):
            raise InvalidInput(f"{tuple(axes)} does not name at most two distinct positions below {d}")
        if table.shape != tuple(cells[a] for a in axes) or not np.isfinite(table).all():
            raise InvalidInput(f"the table over {tuple(axes)} has shape {table.shape}, or cells that are not finite")
        totals.append(float(table.sum()))
        for p, a in enumerate(axes):
            ones[stack.slice(a)] += table.sum(axis=tuple(i for i in range(len(axes)) if i != p))
            held[a] += 1
        if len(axes) == 2:
            a, b = axes
            if seen[a, b]:
                raise InvalidInput(f"the table over {tuple(axes)} is given twice")
            seen[a, b] = seen[b, a] = True
            pairs[stack.slice(a), stack.slice(b)] = table
            pairs[stack.slice(b), stack.slice(a)] = table.T
    if not held.all():
        raise InvalidInput(f"attribute {int(np.flatnonzero(held == 0)[0])} is in no table; leave it out")
    count = max(float(np.mean(totals)), 1.0) if total is None else total
    one, pair = _component_precisions(stack, noise, seen)
    found = Components(stack.centred(ones / stack.spread(held)) / count, stack.centred_pairs(pairs) / count)
    return NoisyPairs(stack, found, count, one * count**2, pair * count**2)


def _component_precisions(
    stack: AttributeStack, noise: ResidualNoise, seen: NDArray[np.bool_]
) -> tuple[FloatArray, FloatArray]:
    """(d,) and (d, d) of counts. Raises InvalidInput where one is missing or not positive."""
    d = len(stack.sizes)
    one, pair = np.zeros(d), np.zeros((d, d))
    for sets, variances in zip(noise.sets[1:3], noise.variances[1:3], strict=True):
        spread = np.asarray(variances, dtype=np.float64)
        if spread.shape != (len(sets),) or not np.all((spread > 0) & np.isfinite(spread)):
            raise InvalidInput("the variance of a residual is a positive number, one for every set")
        if len(sets) and sets.shape[1] == 1:
            one[sets[:, 0]] = 1 / spread
        elif len(sets):
            pair[sets[:, 0], sets[:, 1]] = pair[sets[:, 1], sets[:, 0]] = 1 / spread
    several = stack.sizes > 1
    one[~several] = 0.0
    pair[~np.logical_and.outer(several, several) | ~seen] = 0.0
    lost = (several & (one == 0)).any() or (np.logical_and.outer(several, several) & seen & (pair == 0)).any()
    if lost:
        raise InvalidInput("a residual of a given table has no variance; give those of all attributes and pairs")
    return one, pair


def most_even_table(
    shape: Sequence[int],
    given: Mapping[tuple[int, ...], FloatArray],
    start: FloatArray | None = None,
    *,
    tolerance: float = 1e-4,
    rounds: int = 100,
) -> FloatArray:
    """The table with these tables (axes ascending) of largest entropy, or of least divergence from `start`.

    Scales to them in turn until one round changes none by more than `tolerance` times the total, summed over
    cells, or `rounds` are done: tables that none has make it turn in a circle, near all of them.
    """
    whole = np.ones(tuple(shape)) if start is None else start.copy()
    total = float(next(iter(given.values())).sum()) if given else 0.0
    if total <= 0:
        return np.zeros(tuple(shape))
    for _ in range(rounds):
        away = 0.0
        for axes, table in given.items():
            rest = tuple(i for i in range(len(shape)) if i not in axes)
            found = whole.sum(axis=rest, keepdims=True)
            wanted = table.reshape(found.shape)
            away = max(away, float(np.abs(found - wanted).sum()))
            whole *= np.divide(wanted, found, out=np.zeros_like(found), where=found > 0)
        if away <= tolerance * total:
            break
    return whole


_MOST_TIED = 2**14  # cells of a table over attributes that are tied; of larger ones pairs alone are made to agree

Pair = tuple[int, int]


def consistent_pairs(
    noisy: NoisyPairs, given: Components, tolerance: float = 1e-2, zeros: Zeros | None = None
) -> dict[tuple[int, int], FloatArray]:
    """The nearest tables that agree and have no negative cell, in counts; tolerance: of the distance moved."""
    stack, places = noisy.stack, noisy.stack.places
    tables = noisy.total * stack.tables(given)
    cut = [tables[stack.slice(a), stack.slice(b)] for a, b in places]
    ties = tied_tables(stack.sizes.tolist(), dict(zip(places, cut, strict=True)), zeros)
    sets, values = [*places, *ties], [*cut, *ties.values()]
    done = project_onto_local(stack.sizes.tolist(), sets, values, 1.0, noisy.total, tolerance=tolerance, zeros=zeros)
    return dict(zip(places, done.tables, strict=False))


def product_tables(noisy: NoisyPairs, shares: FloatArray, zeros: Zeros | None) -> dict[tuple[int, int], FloatArray]:
    """Tables of all pairs of independent attributes, in counts; the nearest to these with known zeros."""
    at = noisy.stack.slice
    if zeros is not None:
        return consistent_pairs(noisy, noisy.stack.components(np.outer(shares, shares), shares), zeros=zeros)
    return {(a, b): noisy.total * np.outer(shares[at(a)], shares[at(b)]) for a, b in noisy.stack.places}


def stack_components(noisy: NoisyPairs, tables: Mapping[tuple[int, int], FloatArray]) -> Components:
    """The components of tables in counts that agree."""
    stack = noisy.stack
    shares, every = np.zeros(stack.count), np.zeros((stack.count, stack.count))
    for (a, b), table in tables.items():
        every[stack.slice(a), stack.slice(b)] = table / noisy.total
        every[stack.slice(b), stack.slice(a)] = table.T / noisy.total
        shares[stack.slice(a)], shares[stack.slice(b)] = table.sum(axis=1), table.sum(axis=0)
    return stack.components(every, shares / noisy.total)


def tied_tables(
    sizes: Sequence[int], pairs: Mapping[Pair, FloatArray], zeros: Zeros | None
) -> dict[tuple[int, ...], FloatArray]:
    """By ascending positions, the tables of three or more attributes that predicates tie, from all pairs of theirs."""
    out: dict[tuple[int, ...], FloatArray] = {}
    for axes, mask in () if zeros is None else zeros.allowed():
        shape = [sizes[a] for a in axes]
        if len(axes) < 3 or math.prod(shape) > _MOST_TIED:
            continue
        own = {(p, q): pairs[axes[p], axes[q]] for p, q in itertools.combinations(range(len(axes)), 2)}
        inside = {places: np.maximum(table, 0.0) for places, table in own.items()}
        even = most_even_table(shape, inside, mask.astype(np.float64))
        implied = {places: _sum_to_places(even, places) for places in own}
        out[axes] = even + _table_from_pairs(shape, own) - _table_from_pairs(shape, implied)
    return out


def _sum_to_places(table: FloatArray, places: tuple[int, ...]) -> FloatArray:
    return table.sum(axis=tuple(i for i in range(table.ndim) if i not in places))


def _table_from_pairs(shape: Sequence[int], pairs: Mapping[Pair, FloatArray]) -> FloatArray:
    """The table with these pairs, which agree, that has no part along more than two axes."""
    count, cells = len(shape), math.prod(shape)
    out = np.zeros(tuple(shape))
    for (p, q), table in pairs.items():
        centred = table - table.mean(axis=0) - table.mean(axis=1)[:, None] + table.mean()
        for part, places in ((centred, (p, q)), (table.sum(axis=1), (p,)), (table.sum(axis=0), (q,))):
            # every single attribute is in count - 1 pairs
            weight = math.prod(part.shape) / cells / (1 if len(places) == 2 else count - 1)
            level = part - part.mean() if len(places) == 1 else part
            out += weight * level.reshape([n if i in places else 1 for i, n in enumerate(shape)])
    return out + float(np.mean([t.sum() for t in pairs.values()])) / cells


_MOST = 2_000  # cells whose covariance is held and inverted, four seconds; beyond, tables have zeros when they agree
_PSEUDO = 1e-10  # of the largest eigenvalue: cells of several tables say the same twice, which leaves rounding


class ZeroProjection:
    """Takes components to the nearest with zeros. first, second: (z,) stacked cells of each impossible pair."""

    def __init__(self, noisy: NoisyPairs, first: NDArray[np.intp], second: NDArray[np.intp]) -> None:
        self.stack, self.first, self.second = noisy.stack, first, second
        one, pair = (np.divide(1.0, w, out=np.zeros_like(w), where=w > 0) for w in (noisy.one, noisy.pair))
        self.one, self.pair = self.stack.spread(one), self.stack.spread(pair)
        with single_thread():
            values, vectors = np.linalg.eigh(self._covariance())
        kept = values > _PSEUDO * float(values[-1])
        self.root = vectors[:, kept] / np.sqrt(values[kept])

    def _covariance(self) -> FloatArray:
        """(z, z) of the impossible cells, of the noise."""
        a, b, stack = self.first, self.second, self.stack
        row, column = stack.owner[a], stack.owner[b]
        same = (row[:, None] == row) & (column[:, None] == column)
        along = (a[:, None] == a) - stack.even[a][:, None]
        across = (b[:, None] == b) - stack.even[b][:, None]
        load, each = np.zeros((len(a), stack.count)), np.arange(len(a))
        load[each, a] = stack.even[b]
        load[each, b] = stack.even[a]
        load = stack.centred(load)
        return np.where(same, along * across * self.pair[a, b][:, None], 0.0) + (load * self.one) @ load.T

    def __call__(self, found: Components, even: float = 1.0) -> Components:
        """The nearest; even: how much of the even table is in the tables, 1 in all shares and 0 in noise."""
        stack, e = self.stack, self.stack.even
        said = stack.tables(found)[self.first, self.second] + (even - 1.0) * e[self.first] * e[self.second]
        pull = np.zeros((stack.count, stack.count))
        pull[self.first, self.second] = pull[self.second, self.first] = self.root @ (self.root.T @ said)
        ones = found.ones - self.one * stack.centred(pull @ e)
        return Components(ones, found.pairs - self.pair * stack.centred_pairs(pull))


def condition_on_zeros(noisy: NoisyPairs, zeros: Zeros | None) -> NoisyPairs:
    """The same with zeros that are known; unchanged where none are, or too many to condition on."""
    if zeros is None:
        return noisy
    dead = _impossible_cells(noisy.stack, zeros)
    first, second = np.nonzero(np.triu(dead & (noisy.stack.spread(noisy.pair) > 0)))
    if not 0 < len(first) <= _MOST:
        return replace(noisy, dead=dead)
    emptying = ZeroProjection(noisy, first, second)
    return replace(noisy, values=emptying(noisy.values), dead=dead, emptying=emptying)


def _impossible_cells(stack: AttributeStack, zeros: Zeros) -> NDArray[np.bool_]:
    """(M, M) which cells of the pairs of different attributes no record can be in."""
    dead = np.zeros((stack.count, stack.count), dtype=bool)
    for a, b in stack.places:
        mask = zeros.possible((a, b))
        if mask is not None:
            dead[stack.slice(a), stack.slice(b)], dead[stack.slice(b), stack.slice(a)] = ~mask, ~mask.T
    return dead


# a fitted half has 1 + 1/4 of the noise's variance, the held-out one 1 + 4: noise hurts a fit more than a ranking
SHARE = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class MeasurementHalves:
    """fitted: the half that models are fitted to; held_out: the half that they are compared on."""

    noisy: NoisyPairs
    fitted: Components
    held_out: Components

    def loss(self, found: Components) -> float:
        """Squared distance from the held-out half less what is common to all; its mean ranks true distances."""
        return self.noisy.inner(found, found.plus(self.held_out, -2.0))


def split_in_halves(noisy: NoisyPairs, members: int, seed: int, share: float = SHARE) -> list[MeasurementHalves]:
    """As many pairs of halves; their fitted halves have the measurement as mean. The seed makes public randomness."""
    random = np.random.default_rng(seed)
    draws = [noisy.noise(random) for _ in range(members)]
    if members > 1:
        middle = Components(
            np.mean([z.ones for z in draws], axis=0),
            np.mean([z.pairs for z in draws], axis=0),
        )
        zero = Components(np.zeros_like(middle.ones), np.zeros_like(middle.pairs))
        draws = [zero.plus(z.plus(middle, -1.0), math.sqrt(members / (members - 1))) for z in draws]
    return [MeasurementHalves(noisy, noisy.values.plus(z, share), noisy.values.plus(z, -1 / share)) for z in draws]
