"""Noisy pairs to consistent tables of all pairs and beyond, by whatever model the data themselves bear out.

Three kinds of tables that some records have: attributes independent, joined along a forest, or a mixture of products.
Each is fitted on one half of the noise and judged on the other, several times; the judgement, which is unbiased for
the squared distance from the truth, says how to blend them and how strongly to hold the mixture back. What the blend
leaves in the data beyond noise is added back, and the result made consistent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.errors import InvalidInput
from sfumato.estimate.active import minimise_quadratic
from sfumato.estimate.local import ResidualNoise, local
from sfumato.estimate.mixtures.entropy import most_even
from sfumato.estimate.mixtures.fitting import Mixture, fit_mixture
from sfumato.estimate.mixtures.forest import Forest, fit_forest
from sfumato.estimate.mixtures.residue import kept_shares
from sfumato.estimate.mixtures.stacked import Components, Noisy, Stack, read_noisy
from sfumato.estimate.mixtures.thinning import SHARE, Halves, halves
from sfumato.estimate.moving import FITTED, whole_records
from sfumato.ground.codec import storable
from sfumato.operators.base import FloatArray

__all__ = ["Adapted", "adapt"]

_MEMBERS, _TRIED = 8, 2  # each costs a fit; a penalty, chosen to a factor of two, is tried on two
_PRODUCTS = 100  # components of a mixture: the penalty, not their number, is what holds the fit back
# doublings, tried upward until the judging halves like them less: a factor of two is all that is chosen
_PENALTIES = (50.0, 100.0, 200.0, 400.0, 800.0)
_GROWTH = 1 + SHARE**2  # of the variance in a fitted half
_NEAR = 1e-3  # of the noise's squares: nearer need records not be to the tables

Stages = Callable[[str, float], None]


@storable
@dataclass(frozen=True, slots=True, eq=False)
class FittedModel:
    """What one half fitted: one-way shares for independence, a forest, a mixture."""

    shares: FloatArray
    forest: Forest
    mixture: Mixture


@storable
@dataclass(frozen=True, slots=True, eq=False)
class Adapted:
    """Tables of all pairs of attributes that agree with each other and have no negative cell.

    sizes: cells of every attribute; pairs: by ascending positions, in counts; total: of every table. weights: of
    "independent", "forest" and "mixture" in the blend; predicted: of each, and of "blend", the squared distance
    from the truth in the norm of the noise, as the halves judge it, relative to "independent" (negative: nearer).
    penalty: that holds the mixture back. restored: the mean share of the rest that was added back. noise: the mean
    variance of a measured pair's cells, before.
    """

    sizes: tuple[int, ...]
    pairs: Mapping[tuple[int, int], FloatArray]
    total: float
    weights: Mapping[str, float]
    predicted: Mapping[str, float]
    penalty: float
    restored: float
    noise: float
    models: tuple[FittedModel, ...]

    @property
    def chosen(self) -> str:
        """The kind with the largest weight."""
        return max(self.weights, key=lambda kind: self.weights[kind])

    def table(self, attributes: Sequence[int]) -> FloatArray:
        """Counts shaped by the attributes in that order; beyond two, the most even with its pairs.

        That is fitted until no pair is missed by more than a 10,000th of the total, summed over cells, or for 100
        rounds: pairs that no table has are missed by more.
        Raises InvalidInput for positions that are not distinct attributes.
        """
        axes = [int(a) for a in attributes]
        if len(set(axes)) != len(axes) or not all(0 <= a < len(self.sizes) for a in axes):
            raise InvalidInput(f"{tuple(axes)} does not name distinct positions below {len(self.sizes)}")
        if not axes:
            return np.array(self.total)
        if len(axes) == 1:
            other = 1 if axes[0] == 0 else 0
            return self.table((axes[0], other)).sum(axis=1)
        order = sorted(axes)
        if len(axes) == 2:
            found = self.pairs[order[0], order[1]]
        else:
            held = {(p, q): self.pairs[order[p], order[q]] for p in range(len(order)) for q in range(p + 1, len(order))}
            found = most_even([self.sizes[a] for a in order], held)
        return found.transpose([order.index(a) for a in axes])

    def draw(self, count: int, seed: int = 0) -> NDArray[np.int32]:
        """(count, d) records drawn from the blend; the seed makes public randomness."""
        random = np.random.default_rng(seed)
        stack = Stack(self.sizes)
        out = np.empty((count, len(self.sizes)), dtype=np.int32)
        kinds = [(m, k) for m in range(len(self.models)) for k in self.weights]
        shares = np.array([self.weights[k] for _, k in kinds]) / len(self.models)
        for (m, kind), rows in zip(kinds, _dealt(shares, count, random), strict=True):
            if len(rows):
                out[rows] = _drawn(self.models[m], kind, stack, len(rows), random)
        return out

    def records(self, count: int, seed: int = 0) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Distinct records (r, d) and how many of each, `count` in all: drawn, then moved toward the tables."""
        start = self.draw(min(count, FITTED), seed)
        axes, tables = list(self.pairs), list(self.pairs.values())
        enough = _NEAR * self.noise * sum(t.size for t in tables) * (count / self.total) ** 2
        return whole_records(self.sizes, axes, tables, count, start=start, seed=seed, enough=enough)


def adapt(
    sizes: Sequence[int],
    sets: Sequence[Sequence[int]],
    values: Sequence[ArrayLike],
    noise: ResidualNoise,
    total: float | None = None,
    *,
    seed: int = 0,
    progress: Stages | None = None,
) -> Adapted:
    """Consistent tables of all pairs from noisy ones of some. Post-processing: it costs no privacy.

    sizes: cells of every attribute. sets: positions of the attributes of each table, at most two; every attribute in
    some. values: the tables, shaped by them. noise: the variance of every residual of an attribute and of a given
    pair. total: the known number of records, None to take the noisy one. The seed makes the public randomness of
    thinning and of the fits' starts: the same input gives the same tables. Raises InvalidInput for tables or
    variances that do not fit.

    Formal guarantee: none of accuracy; `predicted` is unbiased under Gaussian noise for candidates taken as fitted.
    """
    noisy = read_noisy(sizes, sets, values, noise, total)
    told = progress or _silent
    parts = halves(noisy, _MEMBERS, seed)
    penalty = _penalty(noisy, parts[:_TRIED], told)
    models: list[FittedModel] = []
    found: list[list[Components]] = []
    for m, part in enumerate(parts):
        told("fit", m / len(parts))
        model, components = _fitted(noisy, part, penalty, m)
        models.append(model)
        found.append(components)
    weights, predicted = _blend(noisy, parts, found)
    told("restore", 0.0)
    pairs, restored = _restored(noisy, parts, [_mixed(c, weights) for c in found])
    kinds = ("independent", "forest", "mixture")
    tables = _consistent(noisy, pairs)
    return Adapted(
        tuple(int(n) for n in sizes),
        tables,
        noisy.total,
        dict(zip(kinds, weights.tolist(), strict=True)),
        dict(zip((*kinds, "blend"), predicted, strict=True)),
        penalty,
        restored,
        _noise(noisy),
        tuple(models),
    )


def _noise(noisy: Noisy) -> float:
    """The mean variance of the measured pairs' cells, in counts."""
    cells = noisy.stack.apart & (noisy.stack.spread(noisy.pair) > 0)
    return float((noisy.deviations()[cells] ** 2).mean()) * noisy.total**2 if cells.any() else 0.0


def _silent(stage: str, share: float) -> None:
    del stage, share


def _penalty(noisy: Noisy, parts: Sequence[Halves], told: Stages) -> float:
    """The penalty whose mixtures the judging halves like best, tried upward until they like them less."""
    best, chosen = np.inf, _PENALTIES[0]
    for i, penalty in enumerate(_PENALTIES):
        told("penalty", i / len(_PENALTIES))
        loss = float(np.mean([_mixture(noisy, p, penalty, m)[0] for m, p in enumerate(parts)]))
        if loss < best:
            best, chosen = loss, penalty
        else:
            break
    return chosen


def _mixture(noisy: Noisy, part: Halves, penalty: float, seed: int) -> tuple[float, Components, Mixture]:
    shares = noisy.stack.simplex(part.fitted.ones)
    return fit_mixture(noisy, part.fitted, shares, penalty, _PRODUCTS, seed, part.loss)


def _fitted(noisy: Noisy, part: Halves, penalty: float, seed: int) -> tuple[FittedModel, list[Components]]:
    """One member's models, and the components of their tables."""
    stack = noisy.stack
    shares = stack.simplex(part.fitted.ones)
    forest = fit_forest(noisy, part.fitted, _GROWTH)
    _, found, mixture = _mixture(noisy, part, penalty, seed)
    alone = stack.components(np.outer(shares, shares), shares)
    return FittedModel(shares, forest, mixture), [alone, forest.components(stack), found]


def _blend(
    noisy: Noisy, parts: Sequence[Halves], found: Sequence[Sequence[Components]]
) -> tuple[FloatArray, list[float]]:
    """(weights of the kinds, losses of the kinds and of their blend less that of independence)"""
    kinds = len(found[0])
    gram, linear = np.zeros((kinds, kinds)), np.zeros(kinds)
    for part, some in zip(parts, found, strict=True):
        for i, a in enumerate(some):
            linear[i] += noisy.inner(a, part.judge) / len(parts)
            for j, b in enumerate(some):
                gram[i, j] += noisy.inner(a, b) / len(parts)
    weights = minimise_quadratic(gram, linear, 1.0, np.full(kinds, 1 / kinds))
    losses = [*(np.diag(gram) - 2 * linear).tolist(), float(weights @ gram @ weights - 2 * weights @ linear)]
    return weights, [x - losses[0] for x in losses]


def _mixed(found: Sequence[Components], weights: FloatArray) -> Components:
    ones = sum((w * c.ones for w, c in zip(weights.tolist(), found, strict=True)), np.zeros(1))
    pairs = sum((w * c.pairs for w, c in zip(weights.tolist(), found, strict=True)), np.zeros(1))
    return Components(ones, pairs)


def _restored(noisy: Noisy, parts: Sequence[Halves], found: Sequence[Components]) -> tuple[FloatArray, float]:
    """((M, M) tables with what the models missed, the mean share of the rest that was added)"""
    stack = noisy.stack
    cells = np.triu(stack.apart & (stack.spread(noisy.pair) > 0), 1)
    models = [stack.tables(c) for c in found]
    mean = np.mean(models, axis=0)
    if not cells.any():
        return mean, 0.0
    first = [(stack.tables(p.fitted) - t)[cells] for p, t in zip(parts, models, strict=True)]
    second = [(stack.tables(p.judge) - t)[cells] for p, t in zip(parts, models, strict=True)]
    kept = kept_shares(mean[cells], noisy.deviations()[cells], first, second)
    mean[cells] += kept * np.mean(first, axis=0)
    return mean, float(kept.mean())


def _consistent(noisy: Noisy, tables: FloatArray) -> dict[tuple[int, int], FloatArray]:
    """The nearest tables that agree and have no negative cell, in counts."""
    stack, places = noisy.stack, noisy.stack.places
    given = [noisy.total * tables[stack.slice(a), stack.slice(b)] for a, b in places]
    done = local(stack.sizes.tolist(), places, given, 1.0, noisy.total)
    return dict(zip(places, done.tables, strict=True))


def _dealt(shares: FloatArray, count: int, random: np.random.Generator) -> list[NDArray[np.intp]]:
    """Positions below `count` in as many groups, their sizes within one of the shares."""
    ends = np.rint(np.cumsum(shares) / shares.sum() * count).astype(np.intp)
    return np.split(random.permutation(count), ends[:-1])


def _drawn(model: FittedModel, kind: str, stack: Stack, count: int, random: np.random.Generator) -> NDArray[np.int32]:
    """(count, d) records of one model."""
    out = np.empty((count, len(stack.sizes)), dtype=np.int32)
    if kind == "mixture":
        for k, rows in enumerate(_dealt(model.mixture.weights, count, random)):
            for i in range(len(stack.sizes)):
                shares = model.mixture.shares[k, stack.slice(i)]
                for cell, some in enumerate(_dealt(shares, len(rows), random)):
                    out[rows[some], i] = cell
        return out
    below = {b: (a, t) for (a, b), t in zip(model.forest.edges, model.forest.tables, strict=True)}
    order = [i for i in range(len(stack.sizes)) if i not in below] + [b for _, b in model.forest.edges]
    if kind == "independent":
        below, order = {}, list(range(len(stack.sizes)))
    every = np.arange(count)
    for i in order:
        shares = model.shares[stack.slice(i)]
        above, table = below.get(i, (i, shares[None]))
        groups = [every] if above == i else [np.flatnonzero(out[:, above] == c) for c in range(len(table))]
        for row, rows in zip(table, groups, strict=True):
            for cell, some in enumerate(_dealt(row if row.sum() > 0 else shares, len(rows), random)):
                out[rows[some], i] = cell
    return out
