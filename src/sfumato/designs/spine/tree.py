"""Trees of groups in groups, level by level; and the same with nodes merged that nothing tells apart.

The nodes of a level stand in the order of their parents, so that sums over children are sums over runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray

__all__ = ["IntArray", "Tree"]

IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Tree:
    """Level 0 is the root alone. Of every further level, per node:

    parents: its parent in the level above, ascending, every parent at least once; kids: how many such nodes each
    parent has. counts: of every level, how many nodes of the plain tree a node stands for.
    """

    parents: tuple[IntArray, ...]
    kids: tuple[FloatArray, ...]
    counts: tuple[FloatArray, ...]
    starts: tuple[IntArray, ...]

    @classmethod
    def of(cls, parents: Sequence[IntArray], kids: Sequence[FloatArray] | None = None) -> Tree:
        """From the parents of every level below the root; one node of each kind unless `kids` are given."""
        given = [np.ones(len(p)) for p in parents] if kids is None else list(kids)
        counts = [np.ones(1)]
        for p, k in zip(parents, given, strict=True):
            counts.append(counts[-1][p] * k)
        starts = tuple(np.concatenate([[0], np.flatnonzero(np.diff(p)) + 1]).astype(np.int64) for p in parents)
        return cls(tuple(parents), tuple(given), tuple(counts), starts)

    @classmethod
    def of_codes(cls, codes: Sequence[IntArray]) -> tuple[Tree, list[IntArray]]:
        """From the group of every cell at every level below the root, coarse to fine; the last has all that is told.

        Also returns, per level, the nodes in the tree's order: `order[i]` is the group that stands at place i.
        Raises PlanError for levels that do not lie in each other.
        """
        order, parents = [np.zeros(1, dtype=np.int64)], list[IntArray]()
        place = np.zeros(len(codes[0]) if codes else 1, dtype=np.int64)
        for groups in codes:
            count = int(groups.max()) + 1
            parent = np.full(count, -1, dtype=np.int64)
            parent[groups] = place
            if (parent[groups] != place).any() or int(parent.min()) < 0:
                raise PlanError("these levels do not lie in each other: a group of the finer is in two of the coarser")
            nodes = np.argsort(parent, kind="stable")
            order.append(nodes)
            parents.append(parent[nodes])
            rank = np.empty(count, dtype=np.int64)
            rank[nodes] = np.arange(count)
            place = rank[groups]
        return cls.of(parents), order

    @property
    def depth(self) -> int:
        """Number of levels below the root."""
        return len(self.parents)

    def cut(self, depth: int) -> Tree:
        """The levels down to one of them."""
        return Tree(self.parents[:depth], self.kids[:depth], self.counts[: depth + 1], self.starts[:depth])

    def sums(self, level: int, values: FloatArray) -> FloatArray:
        """(nodes of the level above, ...) sums over children of values over a level below the root, (nodes, ...)."""
        return np.add.reduceat(values, self.starts[level - 1], axis=0)

    def run(self, level: int, parent: int) -> tuple[int, int]:
        """The children [first, last) at a level below the root of one node above."""
        starts = self.starts[level - 1]
        last = len(self.parents[level - 1]) if parent + 1 == len(starts) else int(starts[parent + 1])
        return int(starts[parent]), last

    def branch(self, level: int, node: int) -> tuple[Tree, list[int]]:
        """What lies below one node of a level as a tree of its own, with that node as its root, and the place of the
        first node of each of its levels in this tree. For trees of one node of each kind."""
        first, last = node, node + 1
        parents, places = list[IntArray](), [node]
        for below in range(level + 1, self.depth + 1):
            above = first
            first, last = self.run(below, first)[0], self.run(below, last - 1)[1]
            parents.append(self.parents[below - 1][first:last] - above)
            places.append(first)
        return Tree.of(parents), places

    def merged(self) -> Tree:
        """The same tree with nodes merged that have equal subtrees and equal ancestors' subtrees.

        Whatever is decided by levels alone is equal on them.
        """
        kinds = [np.zeros(len(self.counts[-1]), dtype=np.int64)]
        for level in range(self.depth, 0, -1):
            kinds.append(self._kinds(level, kinds[-1]))
        kinds.reverse()
        parents, kids = list[IntArray](), list[FloatArray]()
        home, width = np.zeros(1, dtype=np.int64), 1
        for level in range(1, self.depth + 1):
            kind = kinds[level]
            pair = home[self.parents[level - 1]] * (int(kind.max()) + 1) + kind
            found, new, number = np.unique(pair, return_inverse=True, return_counts=True)
            above = found // (int(kind.max()) + 1)
            # of a merged parent all that it stands for have as many children of the kind
            size = np.bincount(home, minlength=width)
            parents.append(above)
            kids.append(number / size[above])
            home, width = new.reshape(-1), len(found)
        return Tree.of(parents, kids)

    def _kinds(self, level: int, below: IntArray) -> IntArray:
        """(nodes above the level,) numbers of kinds: nodes whose children are the same number of the same kinds."""
        starts = self.starts[level - 1]
        if not below.any():
            return np.unique(np.diff(np.append(starts, len(below))), return_inverse=True)[1].reshape(-1)
        order = np.lexsort((below, self.parents[level - 1]))
        sorted_ = below[order]
        known: dict[bytes, int] = {}
        ends = np.append(starts[1:], len(below)).tolist()
        keys = (sorted_[a:b].tobytes() for a, b in zip(starts.tolist(), ends, strict=True))
        return np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int64)
