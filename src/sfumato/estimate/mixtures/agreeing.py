"""Tables of pairs made to agree, and what more than pairs has to agree where predicates tie more attributes.

A predicate over three attributes leaves every cell of their pairs possible and yet some pairs of tables impossible. So
the table over attributes that are tied is one more among those that agree: its part beyond pairs is that of the most
even table, which says nothing of the pairs unless cells that can be leave no room for them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from sfumato.estimate.local import local
from sfumato.estimate.mixtures.entropy import most_even
from sfumato.estimate.mixtures.stacked import Components, Noisy
from sfumato.estimate.zeros import Zeros
from sfumato.operators.base import FloatArray

__all__ = ["consistent", "products", "stacked", "tied_tables"]

_MOST_TIED = 2**14  # cells of a table over attributes that are tied; of larger ones pairs alone are made to agree

Pair = tuple[int, int]


def consistent(
    noisy: Noisy, given: Components, tolerance: float = 1e-2, zeros: Zeros | None = None
) -> dict[tuple[int, int], FloatArray]:
    """The nearest tables that agree and have no negative cell, in counts; tolerance: of the distance moved."""
    stack, places = noisy.stack, noisy.stack.places
    tables = noisy.total * stack.tables(given)
    cut = [tables[stack.slice(a), stack.slice(b)] for a, b in places]
    ties = tied_tables(stack.sizes.tolist(), dict(zip(places, cut, strict=True)), zeros)
    sets, values = [*places, *ties], [*cut, *ties.values()]
    done = local(stack.sizes.tolist(), sets, values, 1.0, noisy.total, tolerance=tolerance, zeros=zeros)
    return dict(zip(places, done.tables, strict=False))


def products(noisy: Noisy, shares: FloatArray, zeros: Zeros | None) -> dict[tuple[int, int], FloatArray]:
    """Tables of all pairs of independent attributes, in counts; the nearest to these with known zeros."""
    at = noisy.stack.slice
    if zeros is not None:
        return consistent(noisy, noisy.stack.components(np.outer(shares, shares), shares), zeros=zeros)
    return {(a, b): noisy.total * np.outer(shares[at(a)], shares[at(b)]) for a, b in noisy.stack.places}


def stacked(noisy: Noisy, tables: Mapping[tuple[int, int], FloatArray]) -> Components:
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
        even = most_even(shape, inside, mask.astype(np.float64))
        implied = {places: _summed(even, places) for places in own}
        out[axes] = even + _joined(shape, own) - _joined(shape, implied)
    return out


def _summed(table: FloatArray, places: tuple[int, ...]) -> FloatArray:
    return table.sum(axis=tuple(i for i in range(table.ndim) if i not in places))


def _joined(shape: Sequence[int], pairs: Mapping[Pair, FloatArray]) -> FloatArray:
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
