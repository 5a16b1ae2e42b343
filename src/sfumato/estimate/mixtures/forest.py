"""Shares along a forest of attributes: dependent where a pair's noisy table says so, otherwise independent. [CL68]"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato.estimate.mixtures.stacked import Components, Noisy, Stack
from sfumato.ground.codec import storable
from sfumato.operators.base import FloatArray

__all__ = ["Forest", "fit_forest"]

_CLEAR = 3.0  # standard deviations of pure noise that an edge's square must pass
_SCALED = 50  # scaling to two margins converges geometrically; a model need not meet its margins to the last digit
_LEAST = 1e-3  # of independence: what a cell keeps


@storable
@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """shares: (M,) of every attribute; edges (parent, child), parents first, and (n_p, n_c) shares of each."""

    shares: FloatArray
    edges: tuple[tuple[int, int], ...]
    tables: tuple[FloatArray, ...]

    def pairs(self, stack: Stack) -> FloatArray:
        """(M, M) tables of all pairs."""
        out = np.outer(self.shares, self.shares)
        joined: dict[int, list[int]] = {}
        for (a, b), table in zip(self.edges, self.tables, strict=True):
            above = joined.setdefault(a, [a])
            row = table.sum(axis=1, keepdims=True)
            given = np.divide(table, row, out=np.zeros_like(table), where=row > 0)
            for c in above:
                found = table if c == a else out[stack.slice(c), stack.slice(a)] @ given
                out[stack.slice(c), stack.slice(b)], out[stack.slice(b), stack.slice(c)] = found, found.T
            above.append(b)
            joined[b] = above
        return out

    def components(self, stack: Stack) -> Components:
        """Of the tables of all pairs."""
        return stack.components(self.pairs(stack), self.shares)


def fit_forest(noisy: Noisy, target: Components, growth: float = 1.0) -> Forest:
    """The forest of the pairs that vary most against the noise, whose variance is `growth` times the measurement's.

    Each of its tables is the noisy one without its negative cells, scaled to the one-way shares.
    """
    stack = noisy.stack
    shares, worth = stack.simplex(target.ones), list[tuple[float, int, int]]()
    given, beyond = stack.tables(target), target.pairs - np.outer(shares - stack.even, shares - stack.even)
    for a, b in stack.places:
        found = beyond[stack.slice(a), stack.slice(b)]
        freedom = float((stack.sizes[a] - 1) * (stack.sizes[b] - 1))
        square = float(noisy.pair[a, b] * np.vdot(found, found)) / growth
        if square > freedom + _CLEAR * np.sqrt(2 * freedom):
            worth.append((square - freedom, a, b))
    part, near = list(range(len(stack.sizes))), [list[int]() for _ in stack.sizes]
    for _, a, b in sorted(worth, key=lambda w: (-w[0], w[1], w[2])):
        if part[a] != part[b]:
            near[a].append(b)
            near[b].append(a)
            old, new = part[b], part[a]
            part = [new if p == old else p for p in part]
    edges, seen = list[tuple[int, int]](), set[int]()
    for root in range(len(near)):
        waiting = [] if root in seen else [root]
        seen.add(root)
        while waiting:
            a = waiting.pop()
            for b in near[a]:
                if b not in seen:
                    seen.add(b)
                    edges.append((a, b))
                    waiting.append(b)
    tables = [
        _scaled(given[stack.slice(a), stack.slice(b)], shares[stack.slice(a)], shares[stack.slice(b)]) for a, b in edges
    ]
    return Forest(shares, tuple(edges), tuple(tables))


def _scaled(given: FloatArray, p: FloatArray, q: FloatArray) -> FloatArray:
    """A pair's table with one-way shares p and q."""
    table = np.maximum(given, _LEAST * np.outer(p, q))
    for _ in range(_SCALED):
        row = table.sum(axis=1)
        table *= np.divide(p, row, out=np.zeros_like(p), where=row > 0)[:, None]
        column = table.sum(axis=0)
        table *= np.divide(q, column, out=np.zeros_like(q), where=column > 0)
    return table
