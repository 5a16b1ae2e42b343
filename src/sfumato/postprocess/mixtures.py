"""A mixture of products fitted to noisy pairs by gradient, kept from the noise by early stopping and a penalty.

q = sum_k w_k prod_i P_ki. Minimises half the squared distance in the noise's norm plus
lambda sum_k w_k sum_i KL(P_ki || p_i), p the one-way shares: what records would say for the product. Adam [KB15].

Tables over three attributes: what their pairs imply, moved to what was measured as far as that is borne out.

The most even table with given pairs has seen nothing of the noise in the residual of the triple itself, so no halves
are needed: over cells alike, the mean square of what was measured beyond that table is its squared miss and the known
variance. What the latter leaves of the former is the multiple of the rest that errs least. [Rob56, Efr10]
Nor have the mixtures that were fitted to pairs, and of a mixture they know more than entropy does: how far to go from
the most even tables towards theirs is one number, which all triples together tell, noisy as each may be.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato._util.codec import storable
from sfumato.errors import InvalidInput
from sfumato.operators.base import FloatArray
from sfumato.postprocess.cones import project_onto_simplex
from sfumato.postprocess.consistency import ResidualNoise, Zeros, project_onto_local
from sfumato.postprocess.noisy_pairs import (
    AttributeStack,
    Components,
    MeasurementHalves,
    NoisyPairs,
    most_even_table,
    tied_tables,
)

_Some = NDArray[np.floating]
# Adam, its rate falling to 0 in the second half; the held-out half picks the step on the way, so any descent will do.
# Curvatures change on the way: squares remembered over a hundred steps leave up to three times the distance where noise
# is small
_STEPS, _RATE, _MEAN, _SQUARE = 500, 0.1, 0.9, 0.9
# the held-out loss costs about a step; after twenty without gain the way goes on from the best, slower, three times
_EVERY, _PATIENCE, _SLOWER, _SLOWED = 10, 2, 3.0, 3
_START = 0.3  # of logits: components that start alike would stay alike; a factor of 1.35 forgets no share
# cells of all attributes, above which pairs of a mixture are not made at every step where attributes have many: with
# 1,889 in 100 a step takes a third less; with 50 in 5 it would take twice as long. Made in their place are d matrices
# of K x K, which cost as much where the square of the mean size is twice K: with 600 in 300, nine times as much
_MANY, _AS_MUCH = 512, 2
_LEAST = 1e-6  # a share whose logarithm is taken: below one record of a million


@storable
@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """weights: (K,) summing to 1; shares: (K, M), of every attribute summing to 1."""

    weights: FloatArray
    shares: FloatArray


class Objective:
    """The function minimised, its gradient, and the loss on the half that is held out."""

    def __init__(
        self, halves: MeasurementHalves, base: FloatArray, penalty: float, products: int, kind: type = np.float32
    ):
        noisy = halves.noisy
        self.halves, self.noisy, self.stack, self.penalty = halves, noisy, noisy.stack, penalty
        self.one, self.pair = noisy.weights.ones.astype(kind), noisy.weights.pairs.astype(kind)
        self.ones = halves.fitted.ones.astype(kind)
        # pairs of the halves, weighed by their precision; of the held-out one twice
        self.fitted = (noisy.weights.pairs * halves.fitted.pairs).astype(kind)
        self.held_out = (2 * noisy.weights.pairs * halves.held_out.pairs).astype(kind)
        self.base = np.log(np.maximum(base, _LEAST)).astype(kind)
        self.even = self.stack.even.astype(kind)
        large = self.stack.count > max(_MANY, len(self.stack.sizes) * math.sqrt(_AS_MUCH * products))
        self.blocks = _Blocks(self.stack, noisy.pair.astype(kind)) if large else None

    def mixture(self, logits: _Some, weights: _Some) -> tuple[_Some, _Some]:
        """(K,) weights and (K, M) shares of the logits."""
        first, owner = self.stack.starts[:-1], self.stack.owner
        shares = np.exp(logits - np.maximum.reduceat(logits, first, axis=1)[:, owner])
        shares /= np.add.reduceat(shares, first, axis=1)[:, owner]
        w = np.exp(weights - weights.max())
        return w / w.sum(), shares

    def components(self, logits: _Some, weights: _Some) -> Components:
        """Of the mixture's tables."""
        w, shares = self.mixture(logits, weights)
        centred = shares - self.even
        weighted = w[:, None] * centred
        pairs = np.multiply(centred.T @ weighted, self.stack.apart, dtype=np.float64)
        return Components(weighted.sum(axis=0).astype(np.float64), pairs)

    def value(self, logits: _Some, weights: _Some) -> float:
        """What is minimised."""
        away = self.components(logits, weights).plus(self.halves.fitted, -1.0)
        w, shares = self.mixture(logits, weights)
        return self.noisy.inner(away, away) / 2 + self.penalty * float(w @ (shares * self._says(shares)).sum(axis=1))

    def __call__(self, logits: _Some, weights: _Some) -> tuple[_Some, _Some]:
        """The gradient, of the logits and of the weights' logits."""
        w, shares = self.mixture(logits, weights)
        centred, says = shares - self.even, self._says(shares)
        away = self.one * (w @ centred - self.ones)
        pulled = self._pulled(centred, w, self.fitted)
        cost = np.einsum("km,km->k", shares, says)
        by_weight = np.einsum("km,km->k", pulled, centred) / 2 + centred @ away + self.penalty * cost
        pulled += away + self.penalty * (says + 1)
        pulled *= w[:, None] * shares
        first, owner = self.stack.starts[:-1], self.stack.owner
        pulled -= shares * np.add.reduceat(pulled, first, axis=1)[:, owner]
        return pulled, w * (by_weight - w @ by_weight)

    def loss(self, logits: _Some, weights: _Some) -> float:
        """`MeasurementHalves.loss` of the mixture, without its pairs: they are summed as the gradient sums them."""
        w, shares = self.mixture(logits, weights)
        centred = shares - self.even
        pulled = self._pulled(centred, w, self.held_out)
        pairs = float(np.einsum("k,km,km->", w, centred, pulled, dtype=np.float64)) / 2
        ones = (w @ centred).astype(np.float64)
        return pairs + float(np.einsum("i,i,i->", self.noisy.weights.ones, ones, ones - 2 * self.halves.held_out.ones))

    def _says(self, shares: _Some) -> _Some:
        return np.log(np.maximum(shares, 1e-12)) - self.base

    def _pulled(self, centred: _Some, w: _Some, target: _Some) -> _Some:
        """(K, M) the shares times what the mixture's weighed pairs are away from a weighed target."""
        if self.blocks is not None:
            return self.blocks.times(centred, w) - centred @ target
        # within an attribute the precision is zero
        away = centred.T @ (w[:, None] * centred)
        away *= self.pair
        away -= target
        return centred @ away


class _Blocks:
    """The shares times the weighed pairs of their mixture, without these pairs.

    Pair (a, b) of a mixture is C_a' diag(w) C_b, C the shares less their mean, and its precision W_ab is one number. So
    what comes out for attribute a is (sum_b W_ab C_b C_b') diag(w) C_a: one K x K matrix for each attribute in place of
    the M x M cells of all pairs. Attributes of one size are side by side, and multiplied together.
    """

    def __init__(self, stack: AttributeStack, between: _Some) -> None:
        rank = np.argsort(stack.sizes, kind="stable")
        self.order = np.argsort(np.argsort(rank)[stack.owner], kind="stable")
        self.back = np.argsort(self.order)
        self.between = np.ascontiguousarray(between[np.ix_(rank, rank)])
        # of every size the attributes and the cells that have it
        self.groups: list[tuple[slice, slice, int]] = []
        attribute = cell = 0
        for size, count in zip(*np.unique(stack.sizes, return_counts=True), strict=True):
            last = attribute + int(count), cell + int(count * size)
            self.groups.append((slice(attribute, last[0]), slice(cell, last[1]), int(size)))
            attribute, cell = last

    def times(self, centred: _Some, w: _Some) -> _Some:
        """(K, M)"""
        k, d = len(w), len(self.between)
        ordered = centred[:, self.order]
        weighed, out = w[:, None] * ordered, np.empty_like(ordered)
        grams = np.empty((d, k, k), dtype=ordered.dtype)
        for attributes, cells, size in self.groups:
            blocks = ordered[:, cells].reshape(k, -1, size).transpose(1, 0, 2)
            np.matmul(blocks, blocks.transpose(0, 2, 1), out=grams[attributes])
        around = (self.between @ grams.reshape(d, k * k)).reshape(d, k, k)
        for attributes, cells, size in self.groups:
            blocks, found = (x[:, cells].reshape(k, -1, size).transpose(1, 0, 2) for x in (weighed, out))
            np.matmul(around[attributes], blocks, out=found)
        return out[:, self.back]


def fit_mixture(
    halves: MeasurementHalves, base: FloatArray, penalty: float, products: int, seed: int
) -> tuple[float, Components, Mixture, bool]:
    """(least loss, the components there, the mixture there, whether noise held it back), over the way to the minimum.

    halves: one is fitted in the norm of the noise, the other says every ten steps how well; base: (M,) one-way shares.
    Where two losses in a row are no better the way goes back to the best and on by shorter steps, until that has
    been done three times. The seed makes the public randomness of the start.
    """
    goal = Objective(halves, base, penalty, products)
    random = np.random.default_rng(seed)
    x = (goal.base + _START * random.standard_normal((products, len(base)))).astype(np.float32)
    at: list[_Some] = [x, np.zeros(products, dtype=np.float32)]
    mean, square = [np.zeros_like(a) for a in at], [np.zeros_like(a) for a in at]
    best: tuple[float, list[_Some]] | None = None
    worse, slowed, taken = 0, 0, 0
    for step in range(_STEPS + 1):
        if step % _EVERY == 0:
            value = goal.loss(at[0], at[1])
            worse = 0 if best is None or value < best[0] else worse + 1
            if best is None or worse == 0:
                best = value, [a.copy() for a in at]
            elif worse == _PATIENCE:
                if slowed == _SLOWED:
                    break
                at, worse, slowed = [a.copy() for a in best[1]], 0, slowed + 1
                continue
        slopes = goal(at[0], at[1])
        taken += 1
        rate = _RATE / _SLOWER**slowed * min(1.0, 2 - 2 * step / _STEPS)
        rate *= math.sqrt(1 - _SQUARE**taken) / (1 - _MEAN**taken)
        for a, m, s, slope in zip(at, mean, square, slopes, strict=True):
            m += (1 - _MEAN) * (slope - m)
            s += (1 - _SQUARE) * (slope * slope - s)
            a -= rate * m / (np.sqrt(s) + 1e-8)
    assert best is not None
    w, shares = goal.mixture(*best[1])
    found = goal.components(*best[1])
    return best[0], found, Mixture(w.astype(np.float64), shares.astype(np.float64)), worse > 0


_CLEAR = 3.0  # standard deviations of pure noise that an edge's square must pass
_SCALED = 50  # scaling to two margins converges geometrically; a model need not meet its margins to the last digit
_LEAST_FOREST = 1e-3  # of independence: what a cell keeps


@storable
@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """shares: (M,) of every attribute; edges (parent, child), parents first, and (n_p, n_c) shares of each."""

    shares: FloatArray
    edges: tuple[tuple[int, int], ...]
    tables: tuple[FloatArray, ...]

    def pairs(self, stack: AttributeStack) -> FloatArray:
        """(M, M) tables of all pairs."""
        out = np.outer(self.shares, self.shares)
        joined: dict[int, list[int]] = {}
        for (a, b), table in zip(self.edges, self.tables, strict=True):
            above = joined.setdefault(a, [a])
            row = table.sum(axis=1, keepdims=True)
            given = np.divide(table, row, out=np.zeros_like(table), where=row > 0)
            for c in above:
                found = table if c == a else out[stack.slice(c), stack.slice(a)] @ given
                out[stack.slice(c), stack.slice(b)], out[stack.slice(b), stack.slice(c)] = found, found.T
            above.append(b)
            joined[b] = above
        return out

    def components(self, stack: AttributeStack) -> Components:
        """Of the tables of all pairs."""
        return stack.components(self.pairs(stack), self.shares)


def fit_forest(noisy: NoisyPairs, target: Components, growth: float = 1.0) -> Forest:
    """The forest of the pairs that vary most against the noise, whose variance is `growth` times the measurement's.

    Each of its tables is the noisy one without its negative cells, scaled to the one-way shares.
    """
    stack = noisy.stack
    shares, worth = stack.simplex(target.ones), list[tuple[float, int, int]]()
    given, beyond = stack.tables(target), target.pairs - np.outer(shares - stack.even, shares - stack.even)
    for a, b in stack.places:
        found = beyond[stack.slice(a), stack.slice(b)]
        freedom = float((stack.sizes[a] - 1) * (stack.sizes[b] - 1))
        square = float(noisy.pair[a, b] * np.vdot(found, found)) / growth
        if square > freedom + _CLEAR * np.sqrt(2 * freedom):
            worth.append((square - freedom, a, b))
    part, near = list(range(len(stack.sizes))), [list[int]() for _ in stack.sizes]
    for _, a, b in sorted(worth, key=lambda w: (-w[0], w[1], w[2])):
        if part[a] != part[b]:
            near[a].append(b)
            near[b].append(a)
            old, new = part[b], part[a]
            part = [new if p == old else p for p in part]
    edges, seen = list[tuple[int, int]](), set[int]()
    for root in range(len(near)):
        waiting = [] if root in seen else [root]
        seen.add(root)
        while waiting:
            a = waiting.pop()
            for b in near[a]:
                if b not in seen:
                    seen.add(b)
                    edges.append((a, b))
                    waiting.append(b)
    tables = [
        _scale_to_margins(given[stack.slice(a), stack.slice(b)], shares[stack.slice(a)], shares[stack.slice(b)])
        for a, b in edges
    ]
    return Forest(shares, tuple(edges), tuple(tables))


def _scale_to_margins(given: FloatArray, p: FloatArray, q: FloatArray) -> FloatArray:
    """A pair's table with one-way shares p and q."""
    table = np.maximum(given, _LEAST_FOREST * np.outer(p, q))
    for _ in range(_SCALED):
        row = table.sum(axis=1)
        table *= np.divide(p, row, out=np.zeros_like(p), where=row > 0)[:, None]
        column = table.sum(axis=0)
        table *= np.divide(q, column, out=np.zeros_like(q), where=column > 0)
    return table


_SWEEPS, _SETTLED = 50, 1e-6  # over the attributes; of the sum of shares, below what anyone reads of noisy counts


def fit_product(noisy: NoisyPairs, target: Components) -> FloatArray:
    """(M,) shares of every attribute whose products are near `target`, in the norm of the noise.

    Attribute by attribute the nearest, given those of the others, until nothing moves: a stationary point, which is the
    maximum of the likelihood where noise is small. Starts from the attributes' own shares.
    """
    stack, first = noisy.stack, noisy.stack.starts[:-1]
    u = stack.simplex(target.ones) - stack.even
    squares = np.add.reduceat(u * u, first)
    for _ in range(_SWEEPS):
        moved = 0.0
        for i, own in enumerate(noisy.one.tolist()):
            at, weights = stack.slice(i), noisy.pair[i]
            precision = own + float(weights @ squares)
            if precision <= 0:
                continue
            point = own * target.ones[at] + target.pairs[at] @ (weights[stack.owner] * u)
            new = project_onto_simplex(point / precision + stack.even[at], 1.0) - stack.even[at]
            moved += float(np.abs(new - u[at]).sum())
            u[at], squares[i] = new, float(new @ new)
        if moved <= _SETTLED:
            break
    return u + stack.even


def independence_p_bound(noisy: NoisyPairs) -> float:
    """How probable what pairs say beyond independent attributes would be, at most, if there were nothing: in [0, 1].

    The smaller of two tests, doubled: all pairs together, and the clearest alone times their number. Noise of what is
    fitted makes it larger, not smaller, so independence is denied no more often than that.
    """
    stack = noisy.stack
    u = fit_product(noisy, noisy.values) - stack.even
    rest = noisy.values.pairs - np.outer(u, u)
    squares, freedom = list[float](), list[float]()
    for a, b in stack.places:
        if noisy.pair[a, b] > 0:
            found = rest[stack.slice(a), stack.slice(b)]
            squares.append(float(noisy.pair[a, b] * np.vdot(found, found)))
            freedom.append(float((stack.sizes[a] - 1) * (stack.sizes[b] - 1)))
    if not squares:
        return 1.0
    from scipy.special import chdtrc  # noqa: PLC0415  (slow to import)

    together = float(chdtrc(sum(freedom), sum(squares)))
    alone = float(chdtrc(np.array(freedom), np.array(squares)).min()) * len(squares)
    return min(2 * together, 2 * alone, 1.0)


CLEAR = 3.0
"""Standard deviations of a bin's sum that noise alone passes once in some 700 bins."""
_LOWEST, _HIGHEST = -10, 12  # log2 of a cell over its noise: the ends take what is all noise, and what is hardly any


def noise_bins(model: FloatArray, deviations: FloatArray) -> tuple[NDArray[np.intp], int]:
    """((c,) the bin of every cell, their number): by what the model says of it, over its noise, in powers of two."""
    with np.errstate(divide="ignore"):
        place = np.floor(np.log2(np.maximum(model / deviations, 0.0)))
    return (np.clip(place, _LOWEST, _HIGHEST) - _LOWEST).astype(np.intp), _HIGHEST - _LOWEST + 1


def kept_shares(
    model: FloatArray, deviations: FloatArray, first: list[FloatArray], second: list[FloatArray]
) -> FloatArray:
    """(c,) in [0, 1]: how much of each cell's rest in the first half to add.

    model: (c,) its cells; deviations: (c,) of the measurement's noise. first and second: what the halves of at least
    two members say beyond the model, (c,) each. 0 where noise alone could have given the numerator.
    """
    bins, size = noise_bins(model, deviations)
    members = len(first)
    both = sum((np.bincount(bins, a * b, size) for a, b in zip(first, second, strict=True)), np.zeros(size))
    own = sum((np.bincount(bins, a * a, size) for a in first), np.zeros(size))
    noise = 2 * members**2 * (1 + 1 / (members - 1)) * np.bincount(bins, deviations**4, size)
    found = np.divide(both, own, out=np.zeros(size), where=own > 0)
    found[both <= CLEAR * np.sqrt(noise)] = 0.0
    return np.clip(found, 0.0, 1.0)[bins]


_LEAST_TRIPLES = 1e-12  # of the records: a share that scaling to the pairs can still raise
# of a bin's rest: less lowers squares, but where few cells vary it moves the others by more in sum. With a quarter a
# tree errs 2 % less at epsilon 1 and two public tables up to 1 % more, with a half 2 and 3 % more
_LEAST_KEPT = 0.25

Pair = tuple[int, int]
Triple = tuple[int, int, int]


def read_triples(
    sizes: Sequence[int], given: Sequence[tuple[Sequence[int], ArrayLike]], noise: ResidualNoise
) -> dict[Triple, tuple[FloatArray, float]]:
    """Per triple its table, along ascending positions, and the variance of its residual. Raises InvalidInput."""
    spread: dict[tuple[int, ...], float] = {}
    if len(noise.sets) > 3:
        spread = dict(zip(map(tuple, noise.sets[3].tolist()), noise.variances[3].tolist(), strict=True))
    out: dict[Triple, tuple[FloatArray, float]] = {}
    for some, values in given:
        order, table = sorted(int(a) for a in some), np.asarray(values, dtype=np.float64)
        shape = tuple(int(sizes[a]) for a in some if 0 <= a < len(sizes))
        if len(some) != 3 or len(set(order)) != 3 or table.shape != shape or not np.isfinite(table).all():
            raise InvalidInput(f"{tuple(some)} names no table over three distinct positions of shape {table.shape}")
        axes = order[0], order[1], order[2]
        if axes in out or not spread.get(axes, 0.0) > 0:
            raise InvalidInput(f"the table over {axes} is given once, with a positive variance of its residual")
        out[axes] = np.ascontiguousarray(table.transpose(np.argsort(some))), spread[axes]
    return out


def restore_triples(
    sizes: Sequence[int],
    pairs: Mapping[Pair, FloatArray],
    measured: Mapping[Triple, tuple[FloatArray, float]],
    total: float,
    mixtures: Sequence[Mixture] = (),
    zeros: Zeros | None = None,
) -> tuple[dict[Pair, FloatArray], dict[Triple, FloatArray]]:
    """(pairs, triples) that agree and have no negative cell, from pairs that do and noisy tables of some triples.

    pairs: all of them, ascending, in counts. measured: per triple, ascending, its noisy table and the variance of its
    residual. total: of every table. mixtures: fitted to pairs alone; none where they are not believed. zeros:
    what no record can be in. Where no cell stands out of its noise, and none is known to be empty, triples have the
    pairs to a ten-thousandth of the total, as those that were not measured.
    """
    variances = {t: v for t, (_, v) in measured.items()}
    masks = {t: None if zeros is None else zeros.possible(t) for t in measured}
    starts = {t: None if m is None else m.astype(np.float64) for t, m in masks.items()}
    implied = {t: most_even_table([sizes[a] for a in t], _pairs_of_triple(pairs, t), starts[t]) for t in measured}
    rests = {t: _centre_all_axes(table - implied[t]) for t, (table, _) in measured.items()}
    if mixtures:
        stack = AttributeStack(sizes)
        beyond = {
            t: _centre_all_axes(_model_triple(stack, pairs, t, mixtures, starts[t]) - implied[t]) for t in measured
        }
        share = _step_towards(beyond, rests, variances)
        implied = {t: table + share * beyond[t] for t, table in implied.items()}
        rests = {t: rest - share * beyond[t] for t, rest in rests.items()}
    kept = _kept_rest_shares(implied, rests, variances)
    if zeros is None and not any(share.any() for share in kept.values()):
        # between tables that have these pairs
        return dict(pairs), implied
    near = [implied[t] + _centre_all_axes(kept[t] * rests[t]) for t in measured]
    ties = {axes: table for axes, table in tied_tables(sizes, pairs, zeros).items() if axes not in measured}
    done = project_onto_local(
        sizes, [*pairs, *measured, *ties], [*pairs.values(), *near, *ties.values()], 1.0, total, zeros=zeros
    )
    return dict(zip(pairs, done.tables, strict=False)), dict(zip(measured, done.tables[len(pairs) :], strict=False))


def _pairs_of_triple(pairs: Mapping[Pair, FloatArray], axes: Triple) -> dict[tuple[int, ...], FloatArray]:
    return {(p, q): pairs[axes[p], axes[q]] for p, q in itertools.combinations(range(3), 2)}


def _model_triple(
    stack: AttributeStack,
    pairs: Mapping[Pair, FloatArray],
    axes: Triple,
    mixtures: Sequence[Mixture],
    possible: FloatArray | None,
) -> FloatArray:
    """The mixtures' mean table over a triple, scaled to its pairs; 0 where `possible` is (None: nowhere)."""
    first, second, third = (stack.slice(a) for a in axes)
    shape = [int(stack.sizes[a]) for a in axes]
    found = np.zeros((shape[0] * shape[1], shape[2]))
    for m in mixtures:
        two = m.shares[:, first, None] * (m.weights[:, None] * m.shares[:, second])[:, None, :]
        found += two.reshape(len(m.weights), -1).T @ m.shares[:, third]
    # cells that no component has can still be in the pairs
    start = np.maximum(found.reshape(shape), _LEAST_TRIPLES * len(mixtures))
    return most_even_table(shape, _pairs_of_triple(pairs, axes), start if possible is None else start * possible)


def _step_towards(
    beyond: Mapping[Triple, FloatArray], rests: Mapping[Triple, FloatArray], variances: Mapping[Triple, float]
) -> float:
    """In [0, 1]: the multiple of `beyond` nearest to the rests in the norm of their noise; 0 if noise could make it."""
    along = sum(float(np.vdot(b, rests[t])) / variances[t] for t, b in beyond.items())
    square = sum(float(np.vdot(b, b)) / variances[t] for t, b in beyond.items())
    return min(along / square, 1.0) if along > CLEAR * np.sqrt(square) else 0.0


def _kept_rest_shares(
    implied: Mapping[Triple, FloatArray], rests: Mapping[Triple, FloatArray], variances: Mapping[Triple, float]
) -> dict[Triple, FloatArray]:
    """How much of each cell's rest to add: 0 where noise alone could have made it, or made most of it."""
    bins: dict[Triple, NDArray[np.intp]] = {}
    own, noise, spread = np.zeros(1), np.zeros(1), np.zeros(1)
    for t, table in implied.items():
        variance = variances[t] * float(np.prod([1 - 1 / n for n in table.shape]))
        bins[t], count = noise_bins(table.reshape(-1), np.full(table.size, np.sqrt(variance)))
        own = own + np.bincount(bins[t], rests[t].reshape(-1) ** 2, count)
        cells = np.bincount(bins[t], minlength=count)
        noise, spread = noise + cells * variance, spread + 2 * cells * variance**2
    clear = own - noise > CLEAR * np.sqrt(spread)
    share = 1 - np.divide(noise, own, out=np.ones_like(own), where=own > 0)
    share[~clear | (share < _LEAST_KEPT)] = 0.0
    return {t: share[b].reshape(implied[t].shape) for t, b in bins.items()}


def _centre_all_axes(table: FloatArray) -> FloatArray:
    """The part that varies along all axes."""
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table
