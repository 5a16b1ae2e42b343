"""Which attributes should change to move a strategy the most, where all cells of an attribute are alike.

Then the distance between two columns depends only on the set D of attributes in which their cells differ:

    F(D) = sum over blocks S of weight_S f_S(S & D)

F is exact at any size where the strategy is invariant under permuting attributes inside classes: only the
number t_c of changed attributes of every class matters. With F(D) = sum of c_T over T inside D, c_T depends
on how many members j_c of every class T has, and F(t) = sum_j c_j prod_c binomial(t_c, j_c).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.pricing.exact import IntArray, Weights, number_rows, row_keys, split
from sfumato.operators.base import Numbers

__all__ = ["Absolute", "Changes", "Columns", "Inner", "Part", "Table", "orbit_maximum"]

MAX_PATTERNS = 2**22  # numbers of changed attributes that are looked at: half a second
_MAX_TABLES = 2**20  # entries of the tables of all types of blocks
_MAX_ENTRIES = 30_000_000  # products of one table: about a second
_CHUNK = 2**20  # entries at a time, which stay in memory
_ROUNDS = 20  # of telling attributes apart: classes that need more are not small
_BITS = 61  # of int64, with room for a sign and one addition
_LEAST_BITS = 8  # of a piece: shorter ones would be many

Positions = NDArray[np.intp]
Columns = tuple[tuple[int, int, int], ...]


class Table(Protocol):
    """f of blocks by the kinds of their factors (blocks, order). f is 0 where nothing changes."""

    def tables(self, kinds: Positions) -> Numbers:
        """(blocks, 2^order) values; bit i of a column's number says that position i changes."""
        ...

    def full(self, kinds: Positions) -> Numbers:
        """(blocks,) values where all positions change."""
        ...

    def tops(self, kinds: Positions) -> Numbers:
        """(blocks,) largest values."""
        ...


@dataclass(frozen=True, slots=True)
class Inner:
    """Squared distances: 2 (product of `same` - product of `other` where a position changes, `same` elsewhere).

    Per kind the squared norm of a column, and the inner product of two: |other| <= same.
    """

    same: tuple[int, ...]
    other: tuple[int, ...]

    def _at(self, kinds: Positions) -> tuple[list[Numbers], list[Numbers]]:
        """Per position `same` and `other` of every block, in int64 where 4 products of them fit."""
        fits = max((1, *self.same)) ** kinds.shape[1] < 2**_BITS
        same, other = (np.array(v, dtype=np.int64 if fits else object) for v in (self.same, self.other))
        return [same[k] for k in kinds.T], [other[k] for k in kinds.T]

    def tables(self, kinds: Positions) -> Numbers:
        out: Numbers = np.ones((len(kinds), 1), dtype=np.int64)
        for same, other in zip(*self._at(kinds), strict=True):
            out = np.concatenate([out * same[:, None], out * other[:, None]], axis=1)
        return 2 * (out[:, :1] - out)

    def full(self, kinds: Positions) -> Numbers:
        same, other = self._at(kinds)
        return 2 * (_product(same) - _product(other))

    def tops(self, kinds: Positions) -> Numbers:
        """A change shrinks the inner product; one that makes it negative is best alone, and otherwise all are."""
        same, other = self._at(kinds)
        least = _product(other)
        for i in range(len(same)):
            least = np.minimum(least, _product([*same[:i], other[i], *same[i + 1 :]]))
        return 2 * (_product(same) - least)


def _product(values: Iterable[Numbers]) -> Numbers:
    return reduce(np.multiply, values)


@dataclass(frozen=True, slots=True)
class Absolute:
    """L1 distances: per kind what stands in the first two columns of a factor, as (rows, entry, entry)."""

    columns: tuple[Columns, ...]

    def sums(self) -> list[int]:
        """Per kind the sum of a column's absolute entries."""
        return [sum(n * abs(a) for n, a, _ in rows) for rows in self.columns]

    def fits(self, kinds: Positions) -> bool:
        """Whether tables of these blocks are written out in little time."""
        each = (2 * max(map(len, self.columns))) ** kinds.shape[1]
        return each <= _MAX_ENTRIES and len(number_rows(kinds, len(self.columns))[1]) * each <= _MAX_ENTRIES

    def _distinct(self, kinds: Positions) -> tuple[Numbers, Positions]:
        """(tables of the distinct rows, which of them every row has)."""
        number, first = number_rows(kinds, len(self.columns))
        order, length = kinds.shape[1], max(map(len, self.columns))
        # entries, numbers of rows and their products are at most what both columns hold together
        top = max(max(1, 2 * s) for s in self.sums()) ** order
        padded = [[*rows, *[(0, 0, 0)] * (length - len(rows))] for rows in self.columns]
        entries = np.array(padded, dtype=np.int64 if top < 2**_BITS else object).reshape(-1, length, 3)
        step = max(1, _CHUNK // (2 * length) ** order)
        out = [_l1_table(entries[kinds[first[i : i + step]]]) for i in range(0, len(first), step)]
        return np.concatenate(out), number

    def tables(self, kinds: Positions) -> Numbers:
        tables, number = self._distinct(kinds)
        return tables[number]

    def full(self, kinds: Positions) -> Numbers:
        tables, number = self._distinct(kinds)
        return tables[:, -1][number]

    def tops(self, kinds: Positions) -> Numbers:
        tables, number = self._distinct(kinds)
        return tables.max(axis=1)[number]


def _l1_table(entries: Numbers) -> Numbers:
    """(blocks, 2^order) distances from the pairs of entries (blocks, order, rows, 3)."""
    blocks, order = entries.shape[:2]
    rows = left = np.ones((blocks, 1), dtype=entries.dtype)
    right = left[:, None]
    for i in range(order):
        n, a, b = (entries[:, i, :, k] for k in range(3))
        rows = (rows[:, :, None] * n[:, None]).reshape(blocks, -1)
        left = (left[:, :, None] * a[:, None]).reshape(blocks, -1)
        both = [(right[:, :, :, None] * v[:, None, None]).reshape(blocks, 2**i, -1) for v in (a, b)]
        right = np.concatenate(both, axis=1)
    return (rows[:, None] * np.abs(left[:, None] - right)).sum(axis=2)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Blocks of the same order: which attribute (count, order), which kind of factor, which weight."""

    places: Positions
    kinds: Positions
    weights: Weights

    def take(self, chosen: Positions) -> Part:
        """Some of the blocks."""
        return Part(self.places[chosen], self.kinds[chosen], self.weights.take(chosen))


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """F over `count` attributes."""

    count: int
    parts: tuple[Part, ...]
    table: Table

    @classmethod
    def of(cls, count: int, parts: Iterable[Part], table: Table) -> Changes:
        """With one part per order, and no set of attributes twice with the same factors."""
        by_order: dict[int, list[Part]] = {}
        for part in parts:
            if part.places.shape[1] and len(part.weights):
                by_order.setdefault(part.places.shape[1], []).append(part)
        return cls(count, tuple(_merged(same) for same in by_order.values()), table)

    @property
    def base(self) -> int:
        """A number above every kind."""
        return 1 + max((int(p.kinds.max()) for p in self.parts), default=0)

    def reached(self) -> int:
        """F where everything changes."""
        return sum(p.weights.dot(self.table.full(p.kinds)) for p in self.parts)

    def bound(self) -> int:
        """The sum of what every block has at most."""
        return sum(p.weights.dot(self.table.tops(p.kinds)) for p in self.parts)


def _merged(parts: list[Part]) -> Part:
    """Parts of one order as one, sets that occur several times with the same factors once."""
    places = np.concatenate([p.places for p in parts])
    kinds = np.concatenate([p.kinds for p in parts])
    weights = parts[0].weights if len(parts) == 1 else Weights.of(np.concatenate([p.weights.objects() for p in parts]))
    if np.any(np.diff(places, axis=1) < 0):
        order = np.argsort(places, axis=1)
        places, kinds = np.take_along_axis(places, order, axis=1), np.take_along_axis(kinds, order, axis=1)
    base = int(kinds.max()) + 1
    rows, most = places * base + kinds, base * (int(places.max()) + 1)
    keys = row_keys(rows, most)
    if keys is not None and np.all(np.diff(np.sort(keys)) > 0):
        return Part(places, kinds, weights)
    number, first = number_rows(rows, most)
    sums = np.zeros(len(first), dtype=object)
    np.add.at(sums, number, weights.objects())
    return Part(places[first], kinds[first], Weights.of(sums))


# ---- classes of attributes that may be permuted ----------------------------------------------------------


def orbit_maximum(changes: Changes) -> int | None:
    """The largest F, by how many attributes of every class change; None where that does not decide it cheaply."""
    singles = np.arange(changes.count)
    for classes in (classes_of(changes), singles):
        if classes is None or patterns_of(classes) > MAX_PATTERNS:
            continue
        found = _coefficients(changes, classes)
        if found is not None:
            return _largest(*found, tuple(np.bincount(classes).tolist()))
    return None


def patterns_of(classes: Positions) -> int:
    return math.prod(n + 1 for n in np.bincount(classes).tolist())


def classes_of(changes: Changes) -> Positions | None:
    """Classes of attributes that look alike from the blocks around them; None where there are too many.

    A block is seen as its weight and the classes and kinds of its attributes; attributes are told apart by the
    blocks they are in, until that makes no difference. Colours are numbers that may agree by accident, so what
    comes out is only a proposal.
    """
    base = changes.base
    classes = np.zeros(changes.count, dtype=np.intp)
    found = 1
    marks = [p.weights.marks() for p in changes.parts]
    for _ in range(_ROUNDS):
        sums = np.zeros(changes.count, dtype=np.uint64)
        for part, mark in zip(changes.parts, marks, strict=True):
            own = _mixed((classes[part.places] * base + part.kinds).astype(np.uint64) + np.uint64(1))
            block = _mixed(own.sum(axis=1, dtype=np.uint64) + mark)
            for place, colour in zip(part.places.T, own.T, strict=True):
                np.add.at(sums, place, _mixed(block ^ colour))
        colours = np.stack([classes.astype(np.uint64), sums], axis=1)
        classes = np.unique(colours, axis=0, return_inverse=True)[1].reshape(-1)
        before, found = found, int(classes.max()) + 1
        if found == before:
            return classes
        if patterns_of(classes) > MAX_PATTERNS:
            return None
    return None


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A fixed random-looking permutation of the numbers of 64 bits."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _coefficients(changes: Changes, classes: Positions) -> tuple[IntArray, Numbers] | None:
    """(where, what) of the c_j that may not be 0, in the table of all j; None where classes are not interchangeable.

    For every type of block (classes and kinds of its attributes) all blocks must have the same weight, and there
    must be as many as attributes can be chosen.
    """
    sizes = tuple(np.bincount(classes).tolist())
    strides = _strides(sizes)[classes]
    places: list[IntArray] = []
    values: list[Numbers] = []
    for part in changes.parts:
        order = part.places.shape[1]
        labels = classes[part.places] * changes.base + part.kinds
        type_, first = number_rows(np.sort(labels, axis=1), len(sizes) * changes.base)
        if len(first) * 2**order > _MAX_TABLES or not part.weights.alike(first[type_]):
            return None
        counts = np.bincount(type_)
        chosen = labels[first]
        for row, count in zip(chosen.tolist(), counts.tolist(), strict=True):
            if count != _ways(row, sizes, changes.base):
                return None
        table = changes.table.tables(part.kinds[first]).astype(object)
        index = np.zeros((len(first), 1), dtype=np.int64)
        for i, stride in enumerate(strides[part.places[first]].T):
            # what each set of changes adds to its subsets
            halves = table.reshape(len(first), -1, 2, 2**i)
            halves[:, :, 1] -= halves[:, :, 0]
            index = np.concatenate([index, index + stride[:, None]], axis=1)
        weights = part.weights.take(first).objects() * counts.astype(object)
        places.append(index.reshape(-1))
        values.append((table * weights[:, None]).reshape(-1))
    return _evened(np.concatenate(places), np.concatenate(values), sizes)


def _ways(labels: list[int], sizes: tuple[int, ...], base: int) -> int:
    """How many sets of attributes have these classes and kinds."""
    out, left = 1, list(sizes)
    for label in sorted(set(labels)):
        out *= math.comb(left[label // base], labels.count(label))
        left[label // base] -= labels.count(label)
    return out


def _strides(sizes: tuple[int, ...]) -> IntArray:
    """Steps of the flat table of all j, shape (size + 1, ...)."""
    steps = [1]
    for n in sizes[:0:-1]:
        steps.append(steps[-1] * (n + 1))
    return np.array(steps[::-1], dtype=np.int64)


def _evened(index: IntArray, values: Numbers, sizes: tuple[int, ...]) -> tuple[IntArray, Numbers]:
    """Sums of equal places, each divided by the number of sets that share it."""
    order = np.argsort(index, kind="stable")
    where, start = np.unique(index[order], return_index=True)
    sums = np.add.reduceat(values[order], start)
    where, sums = where[where > 0], sums[where > 0]
    return where, sums // _shares(where, sizes)


def _shares(where: IntArray, sizes: tuple[int, ...]) -> Numbers:
    """prod_c binomial(size_c, j_c) for places in the table of all j."""
    out = np.ones(len(where), dtype=object)
    for stride, n in zip(_strides(sizes).tolist(), sizes, strict=True):
        choose = np.array([math.comb(n, j) for j in range(n + 1)], dtype=object)
        out = out * choose[(where // stride) % (n + 1)]
    return out


def _largest(where: IntArray, coefficients: Numbers, sizes: tuple[int, ...]) -> int | None:
    """The largest of sum_j c_j prod_c binomial(t_c, j_c) over all t, in int64 pieces that cannot overflow."""
    bits = _BITS - int(_shares(where, sizes).sum()).bit_length()
    if bits < _LEAST_BITS:
        return None
    pieces: list[IntArray] = []
    for piece in split(coefficients, bits):
        table = np.zeros(math.prod(n + 1 for n in sizes), dtype=np.int64)
        table[where] = piece
        for stride, n in zip(_strides(sizes).tolist(), sizes, strict=True):
            table = _summed(table.reshape(-1, n + 1, stride)).reshape(-1)
        pieces.append(table)
    for low, high in itertools.pairwise(pieces):
        high += low >> bits
        low &= (1 << bits) - 1
    value, best = 0, slice(None)
    for piece in reversed(pieces):
        top = int(piece[best].max())
        best = np.flatnonzero(piece == top) if isinstance(best, slice) else best[piece[best] == top]
        value = (value << bits) + top
    return value


def _summed(table: IntArray) -> IntArray:
    """sum_j binomial(t, j) table_j along the middle axis."""
    n = table.shape[1] - 1
    if n == 1:
        table[:, 1] += table[:, 0]
        return table
    out = np.zeros_like(table)
    for j in range(n + 1):
        if table[:, j].any():
            choose = np.array([math.comb(t, j) for t in range(n + 1)], dtype=np.int64)
            out += choose[:, None] * table[:, j : j + 1]
    return out
