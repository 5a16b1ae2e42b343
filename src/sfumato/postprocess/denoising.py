"""Noisy pairs to consistent tables of all pairs and beyond, by whichever models fit the data.

Three kinds of tables that some records have: attributes independent, joined along a forest, or a mixture of products.
Each is fitted on one half of the noise and evaluated on the other, several times; the loss there, unbiased for the
squared distance from the truth, says how to blend them and how strongly to hold the mixture back. What the blend
leaves in the data beyond noise is added back, and the result made consistent. Where noise is small the noisy tables
themselves, made consistent, are nearer: the halves say how much of these to take.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato._util.codec import deferred_field, storable
from sfumato.errors import InvalidInput, NotAnswerable
from sfumato.operators.base import FloatArray
from sfumato.postprocess.cones import minimise_quadratic
from sfumato.postprocess.consistency import ResidualNoise, Zeros
from sfumato.postprocess.mixtures import (
    Forest,
    Mixture,
    fit_forest,
    fit_mixture,
    fit_product,
    independence_p_bound,
    kept_shares,
    read_triples,
    restore_triples,
)
from sfumato.postprocess.noisy_pairs import (
    SHARE,
    AttributeStack,
    Components,
    MeasurementHalves,
    NoisyPairs,
    condition_on_zeros,
    consistent_pairs,
    most_even_table,
    product_tables,
    read_noisy,
    split_in_halves,
    stack_components,
)
from sfumato.postprocess.possible import Possible, RecordCounts
from sfumato.postprocess.rounding import FITTED, whole_records

_MEMBERS, _TRIED = 8, 2  # each costs a fit; a penalty, chosen to a factor of two, is tried on two
# above so many cells of attributes, members, and on how many a penalty is tried: half the cost, errors under 1 % larger
_FEW, _TRIED_FEW, _LARGE = 4, 1, 512
# of the distance moved, in judging what tables made to agree are worth, and above so many cells in making them: with
# 1,889 a hundredth takes half as long again for 3 parts in 100,000 of the error; and the share below which they are not
# made, as they would move no cell by a hundredth of its noise
_ROUGHLY, _NEARLY, _LEAST_SHARE = 0.05, 0.01, 0.01
_PRODUCTS = 100  # components of a mixture: the penalty, not their number, is what holds the fit back
# doublings, tried upward until the held-out loss rises: a factor of two is all that is chosen
_PENALTIES = (50.0, 100.0, 200.0, 400.0, 800.0)
# independent data pass it four times of five, and then err 3 to 5 % less than by a blend whose weights bear noise. Weak
# dependence of many attributes hides in all cells together, but models find it: they gain less than a fifth for each
# degree of freedom of one-way tables where there is none
_BELIEVED, _GAINED = 0.25, 0.5
_GROWTH = 1 + SHARE**2  # of the variance in a fitted half
_REDRAWN = 20  # times that impossible records are drawn anew; what is left is moved at the end
_NEAR = 1e-3  # of the noise's squares: nearer need records not be to the tables

Stages = Callable[[str, float], None]
Fit = tuple[float, Components, Mixture, bool]


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
    from the truth in the norm of the noise, as the held-out halves estimate it, less that of
    "independent" (negative: nearer).
    penalty: that holds the mixture back. restored: the mean share of the rest that was added back. noise: the mean
    variance of a measured pair's cells, before. agreeing: the share of the noisy tables, made to agree, in the pairs.
    triples: tables over three attributes that were measured, by ascending positions, in counts; they agree with pairs.
    zeros: what no record can be in, where all tables are 0.
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
    agreeing: float = deferred_field(0.0)
    triples: Mapping[tuple[int, int, int], FloatArray] | None = deferred_field(None)
    zeros: Zeros | None = deferred_field(None)  # noqa: RUF009  (as dataclasses.field is)

    @property
    def chosen(self) -> str:
        """The kind with the largest weight."""
        return max(self.weights, key=lambda kind: self.weights[kind])

    def table(self, attributes: Sequence[int]) -> FloatArray:
        """Counts shaped by the attributes in that order; beyond what was measured, the most even with that.

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
        found = self.pairs[order[0], order[1]] if len(axes) == 2 else self._beyond(order)
        return found.transpose([order.index(a) for a in axes])

    def _beyond(self, order: list[int]) -> FloatArray:
        """The table over ascending positions, more than two: one that was measured, or the most even."""
        if self.triples is not None and len(order) == 3 and tuple(order) in self.triples:
            return self.triples[order[0], order[1], order[2]]
        held: dict[tuple[int, ...], FloatArray] = {}
        for places in itertools.combinations(range(len(order)), 3):
            axes = order[places[0]], order[places[1]], order[places[2]]
            if self.triples is not None and axes in self.triples:
                held[places] = self.triples[axes]
        for p, q in itertools.combinations(range(len(order)), 2):
            if not any(p in axes and q in axes for axes in held):
                held[p, q] = self.pairs[order[p], order[q]]
        possible = None if self.zeros is None else self.zeros.possible(order)
        if possible is None:
            return most_even_table([self.sizes[a] for a in order], held)
        found = most_even_table([self.sizes[a] for a in order], held, possible.astype(np.float64))
        # pairs that no table of these cells has leave a part of the records nowhere
        return found * (self.total / float(found.sum())) if found.any() else found

    def draw(self, count: int, seed: int = 0) -> NDArray[np.int32]:
        """(count, d) records drawn from the blend; the seed makes public randomness."""
        random = np.random.default_rng(seed)
        stack = AttributeStack(self.sizes)
        out = np.empty((count, len(self.sizes)), dtype=np.int32)
        kinds = [(m, k) for m in range(len(self.models)) for k in self.weights]
        shares = np.array([self.weights[k] for _, k in kinds]) / len(self.models)
        for (m, kind), rows in zip(kinds, _deal_positions(shares, count, random), strict=True):
            if len(rows):
                out[rows] = _draw_model_records(self.models[m], kind, stack, len(rows), random)
        return out

    def records(self, count: int, seed: int = 0) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Distinct records (r, d) and how many of each, `count` in all: drawn, then moved toward the tables."""
        start, allowed = self.draw(min(count, FITTED), seed), [] if self.zeros is None else self.zeros.allowed()
        for further in range(1, _REDRAWN + 1):
            wrong = np.zeros(len(start), dtype=np.bool_)
            for places, mask in allowed:
                wrong |= ~mask[tuple(start[:, places].T)]
            if not wrong.any():
                break
            start[wrong] = self.draw(int(wrong.sum()), seed + further)
        held: dict[tuple[int, ...], FloatArray] = {**self.pairs} if self.triples is None else {**self.triples}
        held |= {p: t for p, t in self.pairs.items() if not any(set(p) <= set(axes) for axes in held)}
        axes, tables = list(held), list(held.values())
        enough = _NEAR * self.noise * sum(t.size for t in tables) * (count / self.total) ** 2
        return whole_records(self.sizes, axes, tables, count, start=start, seed=seed, enough=enough, allowed=allowed)


def denoise_pairs(
    sizes: Sequence[int],
    sets: Sequence[Sequence[int]],
    values: Sequence[ArrayLike],
    noise: ResidualNoise,
    total: float | None = None,
    *,
    seed: int = 0,
    progress: Stages | None = None,
    zeros: Zeros | None = None,
) -> Adapted:
    """Consistent tables of all pairs from noisy ones of some. Post-processing: it costs no privacy.

    sizes: cells of every attribute. sets: positions of the attributes of each table, at most three; every attribute in
    some of at most two. values: the tables, shaped by them. noise: the variance of every residual of an attribute and
    of a given pair or triple. total: the known number of records, None to take the noisy one. zeros: what no record can
    be in, by the same positions: what is measured is conditioned on it, and all tables are 0 there. The seed makes the
    public randomness of thinning and of the fits' starts: the same input gives the same tables. Raises InvalidInput for
    tables or variances that do not fit.

    Formal guarantee: none of accuracy; `predicted` is unbiased under Gaussian noise for candidates taken as fitted.
    """
    given = list(zip(sets, values, strict=True))
    small = [(s, v) for s, v in given if len(s) <= 2]
    noisy = condition_on_zeros(read_noisy(sizes, [s for s, _ in small], [v for _, v in small], noise, total), zeros)
    beyond = read_triples(sizes, [(s, v) for s, v in given if len(s) > 2], noise)
    told = progress or _ignore_progress
    members, tried = (_MEMBERS, _TRIED) if noisy.stack.count <= _LARGE else (_FEW, _TRIED_FEW)
    parts = split_in_halves(noisy, members, seed)
    penalty, fits = _choose_penalty(noisy, parts[:tried], told)
    models: list[FittedModel] = []
    found: list[list[Components]] = []
    for m, part in enumerate(parts):
        told("fit", m / len(parts))
        _, near, mixture, _ = fits[m] if m < len(fits) else _fit_half_mixture(noisy, part, penalty, m)
        model, components = _fit_half_models(noisy, part, near, mixture)
        models.append(model)
        found.append(components)
    weights, predicted = _blend_weights(noisy, parts, found)
    if _take_as_independent(noisy, predicted):
        weights, predicted[-1], restored, agreeing = np.array([1.0, 0.0, 0.0]), 0.0, 0.0, 0.0
        shares = fit_product(noisy, noisy.values)
        models = [replace(models[0], shares=shares)]
        tables = product_tables(noisy, shares, zeros)
    else:
        told("restore", 0.0)
        full, restored = _restore_residuals(noisy, parts, [_mix_components(c, weights) for c in found])
        tables, agreeing = _blend_agreed_tables(noisy, parts, full, zeros)
    triples = None
    if beyond:
        believed = [m.mixture for m in models] if weights[2] > 0 else []
        tables, triples = restore_triples(sizes, tables, beyond, noisy.total, believed, zeros)
    kinds = ("independent", "forest", "mixture")
    return Adapted(
        tuple(int(n) for n in sizes),
        tables,
        noisy.total,
        dict(zip(kinds, weights.tolist(), strict=True)),
        dict(zip((*kinds, "blend"), predicted, strict=True)),
        penalty,
        restored,
        _mean_noise_variance(noisy),
        tuple(models),
        agreeing,
        triples,
        zeros,
    )


def _mean_noise_variance(noisy: NoisyPairs) -> float:
    """The mean variance of the measured pairs' cells, in counts."""
    cells = noisy.stack.apart & (noisy.stack.spread(noisy.pair) > 0)
    return float((noisy.deviations()[cells] ** 2).mean()) * noisy.total**2 if cells.any() else 0.0


def _ignore_progress(stage: str, share: float) -> None:
    del stage, share


def _choose_penalty(noisy: NoisyPairs, parts: Sequence[MeasurementHalves], told: Stages) -> tuple[float, list[Fit]]:
    """(the penalty whose mixtures have the least held-out loss, tried upward until it rises; these mixtures)

    Mixtures that noise never held back on their way need no more of it.
    """
    best, chosen, kept = np.inf, _PENALTIES[0], list[Fit]()
    for i, penalty in enumerate(_PENALTIES):
        told("penalty", i / len(_PENALTIES))
        fits = [_fit_half_mixture(noisy, p, penalty, m) for m, p in enumerate(parts)]
        loss = float(np.mean([fit[0] for fit in fits]))
        if loss >= best:
            break
        best, chosen, kept = loss, penalty, fits
        if not any(fit[3] for fit in fits):
            break
    return chosen, kept


def _fit_half_mixture(noisy: NoisyPairs, part: MeasurementHalves, penalty: float, seed: int) -> Fit:
    shares = noisy.stack.simplex(part.fitted.ones)
    return fit_mixture(part, shares, penalty, _PRODUCTS, seed)


def _fit_half_models(
    noisy: NoisyPairs, part: MeasurementHalves, found: Components, mixture: Mixture
) -> tuple[FittedModel, list[Components]]:
    """One member's models, the mixture given, and the components of their tables."""
    stack = noisy.stack
    shares = fit_product(noisy, part.fitted)
    forest = fit_forest(noisy, part.fitted, _GROWTH)
    alone = stack.components(np.outer(shares, shares), shares)
    return FittedModel(shares, forest, mixture), [alone, forest.components(stack), found]


def _blend_weights(
    noisy: NoisyPairs, parts: Sequence[MeasurementHalves], found: Sequence[Sequence[Components]]
) -> tuple[FloatArray, list[float]]:
    """(weights of the kinds, losses of the kinds and of their blend less that of independence)"""
    kinds = len(found[0])
    gram, linear = np.zeros((kinds, kinds)), np.zeros(kinds)
    for part, some in zip(parts, found, strict=True):
        for i, a in enumerate(some):
            linear[i] += noisy.inner(a, part.held_out) / len(parts)
            for j, b in enumerate(some):
                gram[i, j] += noisy.inner(a, b) / len(parts)
    weights = minimise_quadratic(gram, linear, 1.0, np.full(kinds, 1 / kinds))
    losses = [*(np.diag(gram) - 2 * linear).tolist(), float(weights @ gram @ weights - 2 * weights @ linear)]
    return weights, [x - losses[0] for x in losses]


def _take_as_independent(noisy: NoisyPairs, predicted: Sequence[float]) -> bool:
    """Whether attributes are taken for independent: no pair denies it, and no model gains what would."""
    freedom = float((noisy.stack.sizes - 1).sum())
    return -predicted[-1] < _GAINED * freedom and independence_p_bound(noisy) > _BELIEVED


def _mix_components(found: Sequence[Components], weights: FloatArray) -> Components:
    ones = sum((w * c.ones for w, c in zip(weights.tolist(), found, strict=True)), np.zeros(1))
    pairs = sum((w * c.pairs for w, c in zip(weights.tolist(), found, strict=True)), np.zeros(1))
    return Components(ones, pairs)


def _restore_residuals(
    noisy: NoisyPairs, parts: Sequence[MeasurementHalves], found: Sequence[Components]
) -> tuple[list[Components], float]:
    """(per member the tables with what its models missed, the mean share of the rest that was added)"""
    stack = noisy.stack
    cells = np.triu(stack.apart & (stack.spread(noisy.pair) > 0), 1)
    if noisy.dead is not None:
        cells &= ~noisy.dead  # where nothing is left to find out
    if not cells.any():
        return list(found), 0.0
    models = [stack.tables(c) for c in found]
    first = [(stack.tables(p.fitted) - t)[cells] for p, t in zip(parts, models, strict=True)]
    second = [(stack.tables(p.held_out) - t)[cells] for p, t in zip(parts, models, strict=True)]
    kept = kept_shares(np.mean(models, axis=0)[cells], noisy.deviations()[cells], first, second)
    full: list[Components] = []
    for model, table, rest in zip(found, models, first, strict=True):
        table[cells] += kept * rest
        if noisy.dead is not None:
            table[noisy.dead] = 0.0
        full.append(stack.components(np.triu(table, 1) + np.triu(table, 1).T, model.ones + stack.even))
    return full, float(kept.mean())


def _blend_agreed_tables(
    noisy: NoisyPairs, parts: Sequence[MeasurementHalves], full: Sequence[Components], zeros: Zeros | None
) -> tuple[dict[tuple[int, int], FloatArray], float]:
    """(the denoised tables and the noisy ones, both made to agree, blended in counts; the share of the latter)

    Half of the members are compared, and roughly: each costs a projection, and one share alone is chosen.
    """
    some = list(zip(parts, full, strict=True))[: len(parts) // 2]
    found = [
        [model, stack_components(noisy, consistent_pairs(noisy, part.fitted, _ROUGHLY, zeros))] for part, model in some
    ]
    share = float(_blend_weights(noisy, [part for part, _ in some], found)[0][1])
    share = share if share >= _LEAST_SHARE else 0.0
    middle = _mix_components(full, np.full(len(full), 1 / len(full)))
    near = _ROUGHLY if noisy.stack.count > _LARGE else _NEARLY
    tables = consistent_pairs(noisy, middle, near, zeros)
    if share > 0:
        plain = consistent_pairs(noisy, noisy.values, near, zeros)
        tables = {p: (1 - share) * t + share * plain[p] for p, t in tables.items()}
    return tables, share


def _deal_positions(shares: FloatArray, count: int, random: np.random.Generator) -> list[NDArray[np.intp]]:
    """Positions below `count` in as many groups, their sizes within one of the shares."""
    ends = np.rint(np.cumsum(shares) / shares.sum() * count).astype(np.intp)
    return np.split(random.permutation(count), ends[:-1])


def _draw_model_records(
    model: FittedModel, kind: str, stack: AttributeStack, count: int, random: np.random.Generator
) -> NDArray[np.int32]:
    """(count, d) records of one model."""
    out = np.empty((count, len(stack.sizes)), dtype=np.int32)
    if kind == "mixture":
        for k, rows in enumerate(_deal_positions(model.mixture.weights, count, random)):
            for i in range(len(stack.sizes)):
                shares = model.mixture.shares[k, stack.slice(i)]
                for cell, some in enumerate(_deal_positions(shares, len(rows), random)):
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
            for cell, some in enumerate(_deal_positions(row if row.sum() > 0 else shares, len(rows), random)):
                out[rows[some], i] = cell
    return out


_MOST_CELLS = 2**24  # 128 MB a table


@storable
@dataclass(frozen=True, slots=True, eq=False)
class AdaptedTables(Possible):
    """Tables over the named attributes, in the order of what was adapted."""

    attributes: tuple[str, ...]
    adapted: Adapted

    def table(self, attributes: Sequence[str]) -> FloatArray:
        unknown = [a for a in attributes if a not in self.attributes]
        if unknown:
            raise NotAnswerable(
                f"nothing about {', '.join(unknown)} was measured; there is {', '.join(self.attributes)}"
            )
        axes = [self.attributes.index(a) for a in attributes]
        cells = math.prod(self.adapted.sizes[a] for a in axes)
        if cells > _MOST_CELLS:
            raise NotAnswerable(
                f"the table over {', '.join(attributes)} has {cells:,} cells, above {_MOST_CELLS:,}; ask one over "
                "fewer attributes, or draw records by release.synthetic()"
            )
        return self.adapted.table(axes)

    def records(self, count: int) -> RecordCounts:
        """Whole records, so many, whose tables of pairs are near."""
        codes, counts = self.adapted.records(count)
        return RecordCounts(self.attributes, self.adapted.sizes, codes, counts.astype(float))
