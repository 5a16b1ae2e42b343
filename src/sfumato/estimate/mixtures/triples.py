"""Tables over three attributes: what their pairs imply, moved to what was measured as far as that is borne out.

The most even table with given pairs has seen nothing of the noise in the residual of the triple itself, so no halves
are needed: over cells alike, the mean square of what was measured beyond that table is its squared miss and the known
variance. What the latter leaves of the former is the multiple of the rest that errs least. [Rob56, Efr10]
Nor have the mixtures that were fitted to pairs, and of a mixture they know more than entropy does: how far to go from
the most even tables towards theirs is one number, which all triples together tell, noisy as each may be.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.errors import InvalidInput
from sfumato.estimate.local import ResidualNoise, local
from sfumato.estimate.mixtures.agreeing import tied_tables
from sfumato.estimate.mixtures.entropy import most_even
from sfumato.estimate.mixtures.fitting import Mixture
from sfumato.estimate.mixtures.residue import CLEAR, alike
from sfumato.estimate.mixtures.stacked import Stack
from sfumato.estimate.zeros import Zeros
from sfumato.operators.base import FloatArray

__all__ = ["borne_out", "read_triples"]

_LEAST = 1e-12  # of the records: a share that scaling to the pairs can still raise
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


def borne_out(
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
    implied = {t: most_even([sizes[a] for a in t], _inside(pairs, t), starts[t]) for t in measured}
    rests = {t: _centred(table - implied[t]) for t, (table, _) in measured.items()}
    if mixtures:
        stack = Stack(sizes)
        beyond = {t: _centred(_modelled(stack, pairs, t, mixtures, starts[t]) - implied[t]) for t in measured}
        share = _towards(beyond, rests, variances)
        implied = {t: table + share * beyond[t] for t, table in implied.items()}
        rests = {t: rest - share * beyond[t] for t, rest in rests.items()}
    kept = _kept(implied, rests, variances)
    if zeros is None and not any(share.any() for share in kept.values()):
        # between tables that have these pairs
        return dict(pairs), implied
    near = [implied[t] + _centred(kept[t] * rests[t]) for t in measured]
    ties = {axes: table for axes, table in tied_tables(sizes, pairs, zeros).items() if axes not in measured}
    done = local(sizes, [*pairs, *measured, *ties], [*pairs.values(), *near, *ties.values()], 1.0, total, zeros=zeros)
    return dict(zip(pairs, done.tables, strict=False)), dict(zip(measured, done.tables[len(pairs) :], strict=False))


def _inside(pairs: Mapping[Pair, FloatArray], axes: Triple) -> dict[tuple[int, ...], FloatArray]:
    return {(p, q): pairs[axes[p], axes[q]] for p, q in itertools.combinations(range(3), 2)}


def _modelled(
    stack: Stack,
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
    start = np.maximum(found.reshape(shape), _LEAST * len(mixtures))
    return most_even(shape, _inside(pairs, axes), start if possible is None else start * possible)


def _towards(
    beyond: Mapping[Triple, FloatArray], rests: Mapping[Triple, FloatArray], variances: Mapping[Triple, float]
) -> float:
    """In [0, 1]: the multiple of `beyond` nearest to the rests in the norm of their noise; 0 if noise could make it."""
    along = sum(float(np.vdot(b, rests[t])) / variances[t] for t, b in beyond.items())
    square = sum(float(np.vdot(b, b)) / variances[t] for t, b in beyond.items())
    return min(along / square, 1.0) if along > CLEAR * np.sqrt(square) else 0.0


def _kept(
    implied: Mapping[Triple, FloatArray], rests: Mapping[Triple, FloatArray], variances: Mapping[Triple, float]
) -> dict[Triple, FloatArray]:
    """How much of each cell's rest to add: 0 where noise alone could have made it, or made most of it."""
    bins: dict[Triple, NDArray[np.intp]] = {}
    own, noise, spread = np.zeros(1), np.zeros(1), np.zeros(1)
    for t, table in implied.items():
        variance = variances[t] * float(np.prod([1 - 1 / n for n in table.shape]))
        bins[t], count = alike(table.reshape(-1), np.full(table.size, np.sqrt(variance)))
        own = own + np.bincount(bins[t], rests[t].reshape(-1) ** 2, count)
        cells = np.bincount(bins[t], minlength=count)
        noise, spread = noise + cells * variance, spread + 2 * cells * variance**2
    clear = own - noise > CLEAR * np.sqrt(spread)
    share = 1 - np.divide(noise, own, out=np.ones_like(own), where=own > 0)
    share[~clear | (share < _LEAST_KEPT)] = 0.0
    return {t: share[b].reshape(implied[t].shape) for t, b in bins.items()}


def _centred(table: FloatArray) -> FloatArray:
    """The part that varies along all axes."""
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table
