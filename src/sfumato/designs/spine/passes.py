"""Least squares on a tree in two passes: every node is the sum of its children and is measured with its precision.

Up: with v_c the variance of child c from its own subtree, a parent's is 1 / (a + 1 / V), V the sum of the v_c. Down:
Var_c = v_c - v_c^2 / V + (v_c / V)^2 Var_parent. That is the inverse of the dense normal equations, entry by entry; the
same sweeps carry what was measured, and backwards the derivative of any sum of variances by every precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.designs.spine.tree import Tree
from sfumato.operators.base import FloatArray

__all__ = ["Passes", "slopes"]


@dataclass(frozen=True, eq=False, slots=True)
class Passes:
    """What the precisions of measurements alone decide, for several columns of them at once.

    Per level (nodes, columns) or (1, columns): `within`, the variance of a node from its own subtree; `spread`, that of
    the sum of its children (of levels above the last); `variances`, that of the estimate from all.
    """

    tree: Tree
    within: tuple[FloatArray, ...]
    spread: tuple[FloatArray, ...]
    variances: tuple[FloatArray, ...]

    @classmethod
    def of(cls, tree: Tree, precisions: Sequence[FloatArray]) -> Passes:
        """precisions: per level (nodes or 1, columns). That of the last is positive; an infinite one is exact."""
        depth = tree.depth
        own: list[FloatArray] = [np.zeros((0, 0))] * (depth + 1)
        spread: list[FloatArray] = [np.zeros((0, 0))] * depth
        nodes = len(tree.counts[depth])
        own[depth] = np.broadcast_to(1.0 / precisions[depth], (nodes, precisions[depth].shape[1]))
        for level in range(depth, 0, -1):
            spread[level - 1] = tree.sums(level, tree.kids[level - 1][:, None] * own[level])
            with np.errstate(divide="ignore"):
                own[level - 1] = 1.0 / (precisions[level - 1] + 1.0 / spread[level - 1])
        found = [own[0]]
        for level in range(1, depth + 1):
            share = _share(own[level], spread[level - 1][tree.parents[level - 1]])
            found.append(own[level] * (1.0 - share) + share**2 * found[-1][tree.parents[level - 1]])
        return cls(tree, tuple(own), tuple(spread), tuple(found))

    def share(self, level: int) -> FloatArray:
        """(nodes, columns) of a level below the root: what a node takes of what its parent's sum is off by."""
        return _share(self.within[level], self.spread[level - 1][self.tree.parents[level - 1]])

    def solve(self, given: Sequence[FloatArray | None], known: Sequence[FloatArray] = ()) -> list[FloatArray]:
        """Per level (nodes, c): the covariance of all nodes times `given`, precision times value of what was measured.

        For one column of precisions. given: per level (nodes, c), None for zeros; known: of the levels from the root on
        that are exact, their values (nodes, c).
        """
        tree, depth = self.tree, self.tree.depth
        width = next(g.shape[1] for g in given if g is not None)
        means: list[FloatArray] = []
        sums: list[FloatArray] = []
        below: FloatArray | None = None
        for level in range(depth, -1, -1):
            own = given[level]
            mean = np.zeros((len(tree.counts[level]), width)) if own is None else np.array(own, dtype=np.float64)
            if below is not None:
                total = tree.sums(level + 1, below)
                sums.append(total)
                with np.errstate(divide="ignore", invalid="ignore"):
                    mean += np.where(self.spread[level] > 0, total / self.spread[level], 0.0)
            mean *= self.within[level]
            means.append(mean)
            below = mean
        means.reverse()
        sums.reverse()
        exact = zip(known, means, strict=False)
        out = [np.broadcast_to(k, m.shape).astype(np.float64) for k, m in exact] or [means[0]]
        for level in range(len(out), depth + 1):
            parents = tree.parents[level - 1]
            out.append(means[level] + self.share(level) * (out[-1] - sums[level - 1])[parents])
        return out


def _share(own: FloatArray, spread: FloatArray) -> FloatArray:
    with np.errstate(invalid="ignore"):
        return np.where(spread > 0, own / spread, 0.0)


def slopes(passes: Passes, weights: Sequence[FloatArray]) -> list[FloatArray]:
    """Per level (nodes, columns): minus the derivative of sum weights * variances by the precision of all such nodes.

    weights: per level (nodes or 1, columns), for all nodes that one stands for together.
    """
    tree, depth = passes.tree, passes.tree.depth
    shape = passes.within[0].shape[1]
    of_variance = [np.array(np.broadcast_to(w, (len(c), shape))) for w, c in zip(weights, tree.counts, strict=True)]
    of_own: list[FloatArray] = [np.zeros((0, 0))] * (depth + 1)
    of_spread: list[FloatArray] = [np.zeros((0, 0))] * depth
    for level in range(depth, 0, -1):
        parents, bar = tree.parents[level - 1], of_variance[level]
        share = passes.share(level)
        spread, above = passes.spread[level - 1][parents], passes.variances[level - 1][parents]
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.where(spread > 0, above / spread, 0.0)
        of_variance[level - 1] += tree.sums(level, bar * share**2)
        of_own[level] = bar * (1.0 - 2.0 * share * (1.0 - ratio))
        of_spread[level - 1] = tree.sums(level, bar * share**2 * (1.0 - 2.0 * ratio))
    of_own[0] = of_variance[0]
    out: list[FloatArray] = []
    for level in range(depth + 1):
        if level:
            of_own[level] += tree.kids[level - 1][:, None] * of_spread[level - 1][tree.parents[level - 1]]
        # within = 1 / (precision + 1 / spread)
        out.append(of_own[level] * passes.within[level] ** 2)
        if level < depth:
            of_spread[level] += of_own[level] * _share(passes.within[level], passes.spread[level]) ** 2
    return out
