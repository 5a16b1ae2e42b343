"""Tables over three attributes: what their pairs imply, moved to what was measured as far as that is borne out.

The most even table with given pairs has seen nothing of the noise in the residual of the triple itself, so no halves
are needed: over cells alike, the mean square of what was measured beyond that table is its squared miss and the known
variance. What the latter leaves of the former is the multiple of the rest that errs least. [Rob56, Efr10]
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.errors import InvalidInput
from sfumato.estimate.local import ResidualNoise, local
from sfumato.estimate.mixtures.entropy import most_even
from sfumato.estimate.mixtures.residue import CLEAR, alike
from sfumato.operators.base import FloatArray

__all__ = ["borne_out", "read_triples"]

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
) -> tuple[dict[Pair, FloatArray], dict[Triple, FloatArray]]:
    """(pairs, triples) that agree and have no negative cell, from pairs that do and noisy tables of some triples.

    pairs: all of them, ascending, in counts. measured: per triple, ascending, its noisy table and the variance of its
    residual. total: of every table.
    """
    implied: dict[Triple, FloatArray] = {}
    rests: dict[Triple, FloatArray] = {}
    for axes, (table, _) in measured.items():
        inside = {(p, q): pairs[axes[p], axes[q]] for p, q in itertools.combinations(range(3), 2)}
        implied[axes] = most_even([sizes[a] for a in axes], inside)
        rests[axes] = _centred(table - implied[axes])
    kept = _kept(implied, rests, {t: v for t, (_, v) in measured.items()})
    near = [implied[t] + _centred(kept[t] * rests[t]) for t in measured]
    sets = [*pairs, *measured]
    done = local(sizes, sets, [*pairs.values(), *near], 1.0, total)
    return dict(zip(pairs, done.tables, strict=False)), dict(zip(measured, done.tables[len(pairs) :], strict=True))


def _kept(
    implied: Mapping[Triple, FloatArray], rests: Mapping[Triple, FloatArray], variances: Mapping[Triple, float]
) -> dict[Triple, FloatArray]:
    """How much of each cell's rest to add: 0 where noise alone could have made it."""
    bins: dict[Triple, NDArray[np.intp]] = {}
    own, noise, spread = np.zeros(1), np.zeros(1), np.zeros(1)
    for t, table in implied.items():
        variance = variances[t] * float(np.prod([1 - 1 / n for n in table.shape]))
        bins[t], count = alike(table.reshape(-1), np.full(table.size, np.sqrt(variance)))
        own = own + np.bincount(bins[t], rests[t].reshape(-1) ** 2, count)
        cells = np.bincount(bins[t], minlength=count)
        noise, spread = noise + cells * variance, spread + 2 * cells * variance**2
    clear = own - noise > CLEAR * np.sqrt(spread)
    share = np.where(clear, 1 - np.divide(noise, own, out=np.ones_like(own), where=own > 0), 0.0)
    return {t: share[b].reshape(implied[t].shape) for t, b in bins.items()}


def _centred(table: FloatArray) -> FloatArray:
    """The part that varies along all axes."""
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table
