"""A tree of block sums whose answers are plain sums of nodes: the binary tree mechanism as it is taught.

A range of cells is the sum of the largest measured blocks that lie in it, which is the fewest that make it up. Every
coefficient of R is 0 or 1, so the sum of any power of a row is the number of its blocks: for a binary tree the ones in
the binary digits of a prefix's length. Least squares on the same measurements errs less. [HRMS10]
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.designs.covariance import check_size
from sfumato.designs.ranges import contiguous
from sfumato.designs.strategy import Estimate, Strategy, row_shape
from sfumato.errors import NotAnswerable
from sfumato.ground.codec import storable
from sfumato.operators import AllRange, Block, Identity, Scaled, Tree
from sfumato.operators.base import FloatArray, Numbers, check_dense
from sfumato.operators.ordered import Contiguous, Window

__all__ = ["Canonical"]

_LISTED = 2**22  # queries: 32 MB of errors, one by one; of more ranges, sums over the nodes
_ROWS = 2**18  # ranges at a time: some MB for each level of the tree


@storable
@dataclass(frozen=True, eq=False)
class Canonical(Strategy):
    """`multiple` times a tree over one attribute; ranges of its cells are answered by sums of the fewest nodes."""

    attribute: str
    tree: Tree
    multiple: int = 1

    @property
    def blocks(self) -> tuple[Block, ...]:
        return (Block(((), (self.attribute,)), (Scaled(Identity(1), self.multiple), self.tree)),)

    @property
    def summary(self) -> str:
        return f"a tree of branching {self.tree.branching} over {self.attribute}, each query a sum of fewest nodes"

    @functools.cached_property
    def _levels(self) -> list[Numbers]:
        """Per level upwards where the values of its blocks are: a block of one child alone is that child."""
        tree, b = self.tree, self.tree.branching
        end, width = tree.shape[0], 1
        out: list[Numbers] = []
        for size, kept in reversed(tree.levels()):
            assert size == width
            count = -(-tree.n // width)
            # what is left out repeats its first child
            place = np.arange(count) if not out else out[-1][::b].copy()
            place[kept // width] = np.arange(end - len(kept), end)
            out.append(place)
            end, width = end - len(kept), width * b
        return out

    def _ranges(self, query: Block) -> Contiguous:
        """The ranges of cells that are asked. Raises NotAnswerable for what is no range."""
        if not query.attributes and query.rows == 1:
            return Window(self.tree.n, self.tree.n)
        ranges = contiguous(query.factors[0]) if query.groups == ((self.attribute,),) else None
        if ranges is None:
            raise NotAnswerable(
                f"sums of fewest nodes answer ranges of {self.attribute} alone; least squares answer the rest"
            )
        return ranges

    def _walk(self, first: Numbers, last: Numbers) -> Iterator[tuple[int, Numbers, Numbers, Numbers, Numbers]]:
        """Per level upwards the blocks of every range: those from a to b - 1 and those from c to d - 1."""
        low, high = first, last
        for i, place in enumerate(self._levels):
            if i + 1 == len(self._levels):
                yield i, low, high, high, high
                return
            above = len(self._levels[i + 1])
            up = -(-low // self.tree.branching)
            # the last block is whole where the domain ends
            over = np.where(high == len(place), above, high // self.tree.branching)
            whole = up < over
            stop = np.where(whole, up * self.tree.branching, high)
            start = np.where(whole, np.minimum(over * self.tree.branching, high), high)
            yield i, low, stop, start, high
            low, high = np.where(whole, up, 0), np.where(whole, over, 0)

    def _counts(self, first: Numbers, last: Numbers) -> FloatArray:
        """Number of blocks of every range."""
        out = np.zeros(len(first))
        for _, a, b, c, d in self._walk(first, last):
            out += (b - a) + (d - c)
        return out

    def _rows(self, query: Block) -> FloatArray:
        """R for a block of queries, (rows, measured) of 0 and 1."""
        first, last = self._ranges(query).spans()
        check_dense(len(first), self.tree.shape[0])
        out = np.zeros((len(first), self.tree.shape[0]))
        for i, *ends in self._walk(first, last):
            a, b, c, d = (e[:, None] for e in ends)
            node = np.arange(len(self._levels[i]))
            out[:, self._levels[i]] += ((a <= node) & (node < b)) | ((c <= node) & (node < d))
        return out

    def check(self, query: Block) -> None:
        self._ranges(query)

    def row_powers(self, query: Block, power: int) -> FloatArray:
        first, last = self._ranges(query).spans()
        chunks = (slice(a, a + _ROWS) for a in range(0, len(first), _ROWS))
        counts = np.concatenate([self._counts(first[c], last[c]) for c in chunks])
        return counts.reshape(row_shape(query)) / float(self.multiple) ** power

    def row_errors(self, query: Block) -> tuple[float, float] | None:
        asked = self._ranges(query)
        if query.rows <= _LISTED or not isinstance(asked, AllRange):
            return None
        return self._sum(asked.n) / query.rows / self.multiple**2, self._largest(asked.n) / self.multiple**2

    def _sum(self, n: int) -> float:
        """The number of blocks of all ranges of the first n cells: a block counts where its parent does not fit."""
        total, below = 0.0, None
        width = 1
        for place in self._levels:
            start = np.arange(len(place)) * width
            end = np.minimum(start + width, self.tree.n)
            # ranges that hold a block begin at its first cell or before, and end at its last or after
            holding = (start + 1.0) * np.maximum(n - end + 1.0, 0.0)
            if below is not None:
                total -= float(np.repeat(holding, self.tree.branching)[:below].sum())
            total += float(holding.sum())
            below, width = len(place), width * self.tree.branching
        return total

    def _largest(self, n: int) -> float:
        """The most blocks of a range of the first n cells, by the children of a block in which it begins and ends.

        Per block the most for ranges that leave out something on the left, or on the right, and for any range in it.
        """
        b, count, width = self.tree.branching, n, 1
        left = right = np.full(count, -np.inf)
        inside = np.ones(count)
        child = np.arange(b)
        for i in range(len(self._levels)):
            above = -(-count // b)
            padded = np.full((3, above * b), -np.inf)
            padded[:, :count] = left, right, inside
            begin, end, within = padded.reshape(3, above, b)
            last = np.minimum(count - np.arange(above) * b, b) - 1
            there = child <= last[:, None]
            starts, ends = (np.where(there, np.maximum(e, 1.0), -np.inf) for e in (begin, end))
            short_starts, short_ends = starts.copy(), ends.copy()
            width *= b
            if i + 1 < len(self._levels):
                # what reaches both edges is the block itself, where that lies in the first n cells
                row = np.flatnonzero(np.minimum((np.arange(above) + 1) * width, self.tree.n) <= n)
                short_starts[row, 0], short_ends[row, last[row]] = begin[row, 0], end[row, last[row]]
            found = within.max(axis=1)
            for one, other in ((starts, short_ends), (short_starts, ends)):
                pairs = np.maximum.accumulate(one - child, axis=1)[:, :-1] + (other + child)[:, 1:] - 1
                found = np.maximum(found, pairs.max(axis=1, initial=-np.inf))
            left, right = (short_starts - child).max(axis=1) + last, (short_ends + child).max(axis=1)
            inside, count = found, above
        return float(inside.max())

    def covariance(self, first: Block, second: Block) -> FloatArray:
        check_size(first.rows, second.rows)
        return self._rows(first) @ self._rows(second).T / float(self.multiple) ** 2

    def estimate(self, values: Sequence[Numbers], total: int | None) -> Estimate:
        # sums from the left: exact in integers, and differences of them too
        return tuple(np.append(values[0][:1] * 0, np.cumsum(values[0][place])) for place in self._levels)

    def answer(self, estimate: Estimate, query: Block) -> FloatArray:
        first, last = self._ranges(query).spans()
        out = np.zeros(len(first), dtype=estimate[0].dtype)
        for i, a, b, c, d in self._walk(first, last):
            sums = estimate[i]
            out += sums[b] - sums[a] + sums[d] - sums[c]
        return out / self.multiple
