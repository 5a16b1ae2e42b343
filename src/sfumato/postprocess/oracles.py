"""Records of large worth, where worth is a sum of tables over few attributes: exactly, or by search with a bound."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sfumato.cells import Moves
from sfumato.operators.base import FloatArray
from sfumato.postprocess.records import Codes, Oracle, WorthFactor

_LISTED = 2**20  # corners that are all enumerated: exact, and 8 MB
_PAIRED = 4_096  # cells of all attributes together: a dense matrix of pairs of 128 MB


def find_oracle(sizes: Sequence[int], axes: Sequence[tuple[int, ...]], moves: Sequence[Moves] = ()) -> Oracle:
    """What finds the best record for tables over these attributes: exactly where that is cheap, else by search.

    moves: where records that cannot be are counted; none of these is found.
    """
    every = [*axes, *(m.axes for m in moves)]
    found = Enumeration(sizes) if math.prod(sizes) <= _LISTED else Elimination.plan(sizes, every) or Search(sizes)
    return SkippingOracle(found, sizes, moves) if moves else found


def move_records(codes: Codes, sizes: Sequence[int], moves: Sequence[Moves]) -> Codes:
    """Records (r, d), those that cannot be moved to where they are counted."""
    out = codes.copy()
    for m in moves:
        shape = [sizes[a] for a in m.axes]
        cells = m.cells[np.ravel_multi_index(tuple(codes[:, a] for a in m.axes), shape)]
        out[:, list(m.axes)] = np.stack(np.unravel_index(cells, shape), axis=1)
    return out


def starting_records(
    sizes: Sequence[int], shares: Sequence[FloatArray | None], count: int, moves: Sequence[Moves] = ()
) -> Codes:
    """(count, d) records to begin with, drawn from shares of the cells of every attribute (None: all alike)."""
    random = np.random.default_rng(0)
    drawn = [
        random.integers(n, size=count) if p is None else random.choice(n, size=count, p=p)
        for n, p in zip(sizes, shares, strict=True)
    ]
    return move_records(np.stack(drawn, axis=1).astype(np.int32), sizes, moves)


class SkippingOracle:
    """An oracle that finds only records that can be: all others are worth so little that none is the best."""

    def __init__(self, oracle: Oracle, sizes: Sequence[int], moves: Sequence[Moves]) -> None:
        self.exact = oracle.exact
        self._oracle, self._sizes, self._moves = oracle, tuple(sizes), tuple(moves)

    def search(self, factors: Sequence[WorthFactor], known: Codes) -> Codes:
        """Those that the oracle finds, moved to where they are counted, the best first."""
        found = np.unique(
            move_records(self._oracle.search(self._with(factors), known), self._sizes, self._moves), axis=0
        )
        return found[np.argsort(-np.sum([f.at(found) for f in factors], axis=0), kind="stable")]

    def bound(self, factors: Sequence[WorthFactor]) -> float:
        """That of the oracle."""
        return self._oracle.bound(self._with(factors))

    def _with(self, factors: Sequence[WorthFactor]) -> list[WorthFactor]:
        # more than any two records differ by: a number, for differences of infinite ones are none
        far = 1.0 + 2 * sum(float(np.ptp(f.values)) for f in factors)
        out = list(factors)
        for m in self._moves:
            away = np.where(m.cells == np.arange(len(m.cells)), 0.0, -far)
            out.append(WorthFactor(m.axes, away.reshape([self._sizes[a] for a in m.axes])))
        return out


class Enumeration:
    """Every record is enumerated: exact, for up to some millions of cells."""

    def __init__(self, sizes: Sequence[int], count: int = 64) -> None:
        self.sizes, self.count = tuple(sizes), count

    exact = True

    def search(self, factors: Sequence[WorthFactor], known: Codes) -> Codes:
        """The best records."""
        worth = np.zeros(self.sizes)
        for f in factors:
            kept = np.argsort(f.axes)
            shape = [1] * len(self.sizes)
            for i in f.axes:
                shape[i] = self.sizes[i]
            worth += f.values.transpose(kept).reshape(shape)
        flat = worth.reshape(-1)
        best = np.argpartition(-flat, min(self.count, flat.size - 1))[: self.count]
        best = best[np.argsort(-flat[best])]
        return np.stack(np.unravel_index(best, self.sizes), axis=1).astype(np.int32)

    def bound(self, factors: Sequence[WorthFactor]) -> float:
        """The worth of the best record."""
        return _record_worth(factors, self.search(factors, np.empty((0, len(self.sizes)), dtype=np.int32)))


class Search:
    """Coordinate ascent from many records at once, and a bound by moving worth between tables.

    The bound is that of a linear relaxation's dual: worth may be moved between tables over their common
    attributes without any record's sum changing, and no record is worth more than the sum of the tables'
    largest entries. It is as tight as the tables' overlaps allow.
    """

    def __init__(self, sizes: Sequence[int], starts: int = 512, sweeps: int = 20, messages: int = 50) -> None:
        self.sizes, self.starts, self.sweeps, self.messages = tuple(sizes), starts, sweeps, messages
        self._random = np.random.default_rng(0)

    exact = False

    def search(self, factors: Sequence[WorthFactor], known: Codes) -> Codes:
        """Records that no change of one attribute betters, from random ones and from those held."""
        count = self.starts // 2
        fresh = np.stack([self._random.integers(n, size=count) for n in self.sizes], axis=1)
        some = known[self._random.integers(len(known), size=self.starts - count)] if len(known) else fresh
        codes = np.concatenate([fresh, some]).astype(np.int32)
        codes = np.unique(_coordinate_ascent(factors, codes, self.sizes, self.sweeps), axis=0)
        worth = np.sum([f.at(codes) for f in factors], axis=0)
        return codes[np.argsort(-worth)]

    def bound(self, factors: Sequence[WorthFactor]) -> float:
        """The dual's bound."""
        return _relaxation_bound(factors, self.sizes, self.messages)


def _coordinate_ascent(factors: Sequence[WorthFactor], codes: Codes, sizes: Sequence[int], sweeps: int) -> Codes:
    """Every attribute in turn takes its best cell, the others being held, until nothing changes."""
    if sum(sizes) <= _PAIRED and all(len(f.axes) <= 2 for f in factors):
        return _pairwise_ascent(factors, codes, sizes, sweeps)
    turned = [
        [(np.moveaxis(f.values, f.axes.index(i), -1), [a for a in f.axes if a != i]) for f in factors if i in f.axes]
        for i in range(len(sizes))
    ]
    codes = codes.copy()
    for _ in range(sweeps):
        changed = False
        for i, some in enumerate(turned):
            if not some:
                continue
            gains = np.zeros((len(codes), sizes[i]))
            for values, others in some:
                gains += values[tuple(codes[:, a] for a in others)]
            better, best = _improving_cells(gains, codes[:, i])
            codes[better, i] = best
            changed |= len(better) > 0
        if not changed:
            break
    return codes


def _improving_cells(gains: FloatArray, now: NDArray[np.int32]) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """The records that gain by another cell, and that cell."""
    best = gains.argmax(axis=1)
    rows = np.arange(len(gains))
    better = np.flatnonzero(gains[rows, best] > gains[rows, now])
    return better, best[better].astype(np.int32)


def _pairwise_ascent(factors: Sequence[WorthFactor], codes: Codes, sizes: Sequence[int], sweeps: int) -> Codes:
    """The same for tables over at most two attributes, what all cells would gain being kept up to date."""
    starts = np.cumsum([0, *sizes])
    joint, alone = np.zeros((starts[-1], starts[-1])), np.zeros(starts[-1])
    for f in factors:
        if len(f.axes) == 1:
            alone[starts[f.axes[0]] : starts[f.axes[0] + 1]] += f.values
        if len(f.axes) == 2:
            i, j = (slice(starts[a], starts[a + 1]) for a in f.axes)
            joint[i, j] += f.values
            joint[j, i] += f.values.T
    codes = codes.copy()
    gains = alone + sum(joint[starts[i] + codes[:, i]] for i in range(len(sizes)))
    for _ in range(sweeps):
        changed = False
        for i in range(len(sizes)):
            better, best = _improving_cells(gains[:, starts[i] : starts[i + 1]], codes[:, i])
            if len(better) == 0:
                continue
            gains[better] += joint[starts[i] + best] - joint[starts[i] + codes[better, i]]
            codes[better, i] = best
            changed = True
        if not changed:
            break
    return codes


def _relaxation_bound(factors: Sequence[WorthFactor], sizes: Sequence[int], sweeps: int) -> float:
    """An upper bound on the worth of any record: max-product linear programming by block coordinates. [GJ07]"""
    single = [np.zeros(n) for n in sizes]
    given = [[np.zeros(sizes[i]) for i in f.axes] for f in factors]
    best = math.inf
    for _ in range(sweeps):
        for f, sent in zip(factors, given, strict=True):
            order = len(f.axes)
            if order == 0:
                continue
            rest = [single[i] - s for i, s in zip(f.axes, sent, strict=True)]
            whole = f.values.copy()
            for at, r in enumerate(rest):
                whole += r.reshape([-1 if j == at else 1 for j in range(order)])
            for at, (i, r) in enumerate(zip(f.axes, rest, strict=True)):
                most = whole.max(axis=tuple(j for j in range(order) if j != at))
                sent[at] = most / order - r
                single[i] = r + sent[at]
        bound = sum(float(s.max()) for s in single)
        for f, sent in zip(factors, given, strict=True):
            left = f.values.copy()
            for at, s in enumerate(sent):
                left -= s.reshape([-1 if j == at else 1 for j in range(len(f.axes))])
            bound += float(left.max())
        if bound > best - 1e-4 * abs(best):
            return min(best, bound)
        best = bound
    return best


class Elimination:
    """The best record by eliminating one attribute after the other: exact where their overlaps are thin.

    Memory is that of the largest table of maxima, which the order of elimination keeps small where it can.
    """

    def __init__(self, sizes: Sequence[int], orders: Sequence[int]) -> None:
        self.sizes, self.order = tuple(sizes), tuple(orders)

    @classmethod
    def plan(cls, sizes: Sequence[int], axes: Sequence[tuple[int, ...]], limit: int = 2**22) -> Elimination | None:
        """An order of elimination whose tables have at most `limit` cells; None where there is none."""
        near: list[set[int]] = [set() for _ in sizes]
        for some in axes:
            for i in some:
                near[i] |= set(some) - {i}
        left, order = set(range(len(sizes))), []
        while left:
            i = min(left, key=lambda a: (math.prod(sizes[b] for b in near[a]), a))
            if sizes[i] * math.prod(sizes[b] for b in near[i]) > limit:
                return None
            for b in near[i]:
                near[b] = (near[b] | near[i]) - {i, b}
            left.remove(i)
            order.append(i)
        return cls(sizes, order)

    exact = True

    def search(self, factors: Sequence[WorthFactor], known: Codes) -> Codes:
        """The best record."""
        pending = list(factors)
        choices: list[tuple[int, tuple[int, ...], NDArray[np.intp]]] = []
        for i in self.order:
            holding = [f for f in pending if i in f.axes]
            pending = [f for f in pending if i not in f.axes]
            axes = tuple(sorted({a for f in holding for a in f.axes} - {i}))
            whole = np.zeros((*(self.sizes[a] for a in axes), self.sizes[i]))
            for f in holding:
                whole += _expand_factor(f, (*axes, i), self.sizes)
            choices.append((i, axes, whole.argmax(axis=-1)))
            pending.append(WorthFactor(axes, whole.max(axis=-1)))
        code = np.zeros((1, len(self.sizes)), dtype=np.int32)
        for i, axes, chosen in reversed(choices):
            code[0, i] = chosen[tuple(code[0, a] for a in axes)]
        return code

    def bound(self, factors: Sequence[WorthFactor]) -> float:
        """The worth of the best record."""
        return _record_worth(factors, self.search(factors, np.empty((0, len(self.sizes)), dtype=np.int32)))


def _record_worth(factors: Sequence[WorthFactor], codes: Codes) -> float:
    """The worth of the first record."""
    return float(sum(f.at(codes[:1])[0] for f in factors))


def _expand_factor(factor: WorthFactor, axes: tuple[int, ...], sizes: Sequence[int]) -> FloatArray:
    """A factor's table with one axis for each of `axes`, of length 1 where it does not hold the attribute."""
    held = [a for a in axes if a in factor.axes]
    table = factor.values.transpose([factor.axes.index(a) for a in held])
    return table.reshape([sizes[a] if a in factor.axes else 1 for a in axes])
