"""The longest difference of two columns where factors join attributes: all pairs of cells, by classes of pairs.

A block is a product of factors, so that the inner product of its columns of two cells x and y is a product, too. A
factor over one attribute a alone gives G(x_a, y_a), of its Gram matrix. Of a factor that joins attributes the column of
x depends on x_a by its slice: which column each of the cells has that agree with x in a. So all blocks treat two pairs
of cells of one attribute alike whose first cells have the same slices, whose second ones do, and which have the same
numbers in all Gram matrices: these are one class. Every pair of joint cells has the squared distance

    <x, x> + <y, y> - 2 <x, y>

of the one whose pairs stand for its classes, attribute by attribute, so that the maximum over combinations of classes
is that over all pairs of cells. Nothing of it is proposed by anybody: classes are read off the maps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import PlanError
from sfumato.maps import Map, MergedMap
from sfumato.maps.base import INT64, IntArray, Numbers
from sfumato.privacy.terms import Group, MapTerms, Sizes, broadcast_on_axes

_MOST_COMBINED = 2**26  # classes of pairs of all attributes: some five seconds
_MOST_AT_ONCE = 2**23  # of these: 64 MB a table, of which there are about four
_MOST_CELLS = 1_000  # of one attribute, all pairs of which are told apart
_EXACT = 2**53  # whole numbers below are exact as doubles

Cells = NDArray[np.intp]


class _Factor(NamedTuple):
    """The positions of its attributes, ascending; by their cells which of its columns a cell has; all columns."""

    axes: tuple[int, ...]
    codes: IntArray
    columns: Numbers

    @classmethod
    def of(cls, names: Sequence[str], some: Group, factor: Map, sizes: Sizes) -> _Factor:
        merged = isinstance(factor, MergedMap)
        inner, codes = (factor.map, factor.codes) if merged else (factor, np.arange(factor.shape[1]))
        # the last is of cells that are counted nowhere
        columns = np.pad(inner.columns(), ((0, 0), (0, 1)))
        axes = tuple(sorted(map(names.index, some)))
        table = broadcast_on_axes(codes, some, tuple(names[i] for i in axes), sizes)
        return cls(axes, table, columns.astype(np.float64) if max(inner.column_sums(2)) < _EXACT else columns)

    def column_products(self, first: IntArray, second: IntArray) -> IntArray:
        """Inner products of columns, entry by entry."""
        held = np.zeros(self.columns.shape[1], dtype=np.intp)
        held[first] = 1
        # of doubles every sum on the way is a whole number below 2^53: at most the product of two columns' lengths
        found = (self.columns[:, held > 0].T @ self.columns).astype(np.int64)
        return np.asarray(found[(np.cumsum(held) - 1)[first], second])


Blocks = Sequence[tuple[int, list[_Factor]]]
"""Weights, and the factors of each."""


def _classes_of_pairs(factors: Iterable[_Factor], axis: int, cells: int) -> tuple[Cells, Cells, Cells, Cells]:
    """Of an attribute: the kind of each cell, a cell of each kind, and the two cells of a pair of each class."""
    kind, some, grams = np.zeros(cells, dtype=np.intp), np.zeros(1, dtype=np.intp), list[IntArray]()
    for factor in (f for f in factors if axis in f.axes):
        if len(factor.axes) > 1:
            told = np.moveaxis(factor.codes, factor.axes.index(axis), 0).reshape(cells, -1)
        else:
            grams.append(factor.column_products(factor.codes[:, None], factor.codes))
            told = np.diagonal(grams[-1])
        _, some, kind = np.unique(np.column_stack([kind, told]), axis=0, return_index=True, return_inverse=True)
    kind = kind.reshape(-1)
    pairs = np.column_stack([np.repeat(kind, cells), np.tile(kind, cells), *(g.reshape(-1) for g in grams)])
    first, second = np.divmod(np.unique(pairs, axis=0, return_index=True)[1], cells)
    return kind, some, first, second


def longest_difference(terms: MapTerms, sizes: Sizes) -> int:
    """The largest squared distance of two columns, reached. Raises PlanError for too many cells, or large entries."""
    names = [a for group in terms.groups for a in group]
    if any(near is not None for near in terms.near) or max(sizes[a] for a in names) > _MOST_CELLS:
        raise PlanError("all pairs of cells are told apart of few cells, where any may stand in another's place")
    tops = [s.top(2) for s in terms.slots]
    # every sum below is at most this, as <x, y> is at most the larger of the norms of x and y
    if 4 * terms.dot(tops) >= INT64:
        raise PlanError("the entries are too large to look at all pairs of cells")
    slots = [[_Factor.of(names, *inside, sizes) for inside in s.inside] for s in terms.slots]
    rows = (row for sets, weights in terms.bundles for row in zip(sets.tolist(), weights.tolist(), strict=True))
    # a weight may be large where a block is 0
    blocks = [(weight, [f for i in own for f in slots[i]]) for own, weight in rows if all(tops[i] for i in own)]
    every = [_classes_of_pairs((f for s in slots for f in s), axis, sizes[a]) for axis, a in enumerate(names)]
    kinds, cells, *ends = zip(*every, strict=True)
    longest, most = max(range(len(names)), key=lambda i: len(cells[i])), math.prod(map(len, ends[0]))
    if most > _MOST_COMBINED or most > _MOST_AT_ONCE * len(cells[longest]):
        raise PlanError("there are too many classes of pairs of cells to look at all combinations")
    norms, out = _inner_products(blocks, cells, cells), 0
    for one in range(len(cells[longest])):
        # a pair and its turned one are as far apart
        first, second = (kinds[longest][side[longest]] for side in ends)
        some = (first == one) & (second >= one)
        sides = [[c[some] if i == longest else c for i, c in enumerate(side)] for side in ends]
        far = -2 * _inner_products(blocks, *sides)
        for side in sides:
            far += norms[np.ix_(*(k[c] for k, c in zip(kinds, side, strict=True)))]
        out = max(out, int(far.max()))
    return out


def _inner_products(blocks: Blocks, first: Sequence[Cells], second: Sequence[Cells]) -> IntArray:
    """<x, y> of all blocks, for all combinations of the pairs (first, second) of cells of every attribute."""
    out = np.zeros([len(u) for u in first], dtype=np.int64)
    for weight, factors in blocks:
        values = [np.ones(len(u), dtype=np.int64) for u in first]
        for factor in (f for f in factors if len(f.axes) == 1):
            u, v = (factor.codes[side[factor.axes[0]]] for side in (first, second))
            values[factor.axes[0]] = factor.column_products(u, v)
        # most contrasts are 0 of most pairs
        at = [np.flatnonzero(v) for v in values]
        part = weight * reduce(np.multiply.outer, [v[i] for v, i in zip(values, at, strict=True)])
        for factor in (f for f in factors if len(f.axes) > 1):
            u, v = (factor.codes[np.ix_(*(side[i][at[i]] for i in factor.axes))] for side in (first, second))
            shape = [len(some) if i in factor.axes else 1 for i, some in enumerate(at)]
            part = part * factor.column_products(u, v).reshape(shape)
        out[np.ix_(*at)] += part
    return out
