"""Noisy tables of pairs as one matrix: the cells of all attributes stacked, and the components of the tables in it.

With u_i the counts of attribute i less their mean and Q_ij the part of a pair's table that varies along both, every
pair is Q_ij + u_i 1'/n_j + 1 u_j'/n_i + 1/(n_i n_j), in shares of the total. Residual noise is independent between
these components, and its density says how far an estimate is from them: sum over sets of precision times square.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.errors import InvalidInput
from sfumato.estimate.local import ResidualNoise
from sfumato.estimate.simplex import onto_simplex
from sfumato.operators.base import FloatArray

__all__ = ["Components", "Noisy", "Stack", "read_noisy"]


@dataclass(frozen=True, slots=True)
class Components:
    """ones: (M,) centred within every attribute; pairs: (M, M) symmetric, centred, zero within an attribute."""

    ones: FloatArray
    pairs: FloatArray

    def plus(self, other: Components, factor: float = 1.0) -> Components:
        """The sum with a multiple of the other."""
        return Components(self.ones + factor * other.ones, self.pairs + factor * other.pairs)


class Stack:
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
        return np.concatenate([onto_simplex(found[self.slice(i)], 1.0) for i in range(len(self.sizes))])


@dataclass(frozen=True, eq=False)
class Noisy:
    """What was measured, in shares of `total`, and the precision of every component (0: not measured).

    one: (d,) and pair: (d, d) the precisions of the attributes' and of the pairs' components. dead: (M, M) which cells
    are known to be 0, None where none is; emptying: what the values were, and noise of their law is, made 0 there by.
    """

    stack: Stack
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
) -> Noisy:
    """The components of tables of at most two attributes. Raises InvalidInput."""
    cells = [int(n) for n in sizes]
    if len(cells) < 2 or min(cells) < 1 or not sets or len(sets) != len(values):
        raise InvalidInput(
            f"{len(cells)} attributes, {len(sets)} sets and {len(values)} tables; give at least two attributes of one "
            "cell or more, and one table per set"
        )
    if total is not None and not (math.isfinite(total) and total > 0):
        raise InvalidInput(f"total is a positive finite number, or None, not {total!r}")
    stack, d = Stack(cells), len(cells)
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
    one, pair = _precisions(stack, noise, seen)
    found = Components(stack.centred(ones / stack.spread(held)) / count, stack.centred_pairs(pairs) / count)
    return Noisy(stack, found, count, one * count**2, pair * count**2)


def _precisions(stack: Stack, noise: ResidualNoise, seen: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
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
