"""Records drawn along a tree of attributes: the start of a search, with one- and two-way counts on the tree kept.

The tree joins the attributes whose pairs say most about each other, as their tables tell. [CL68]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sfumato.operators.base import FloatArray

__all__ = ["spanning_records"]

Codes = NDArray[np.int32]
Pair = tuple[int, int]


def spanning_records(
    sizes: Sequence[int], axes: Sequence[tuple[int, ...]], tables: Sequence[FloatArray], count: int, seed: int = 0
) -> Codes:
    """(count, d) records, attributes on the tree as their pairs are, and otherwise independent.

    sizes: cells of every attribute; axes: positions of the attributes of each table; tables: not negative, shaped
    by them. Within each cell of an attribute the next one's counts are off by less than one from what its table's
    row says. Attributes in no table are drawn evenly. The seed makes public randomness: which records share their
    cells beyond the tree.
    """
    random = np.random.default_rng(seed)
    single, pairs = _margins(axes, tables)
    tree = _tree(len(sizes), pairs)
    codes = np.full((count, len(sizes)), -1, dtype=np.int32)
    alone = np.zeros(count, dtype=np.int32)
    drawn: set[int] = set()
    for root in range(len(sizes)):
        if root in drawn:
            continue
        shares = single.get(root, np.ones(sizes[root]))
        codes[:, root] = _drawn(alone, shares[None], random)
        drawn.add(root)
        waiting = [root]
        while waiting:
            above = waiting.pop()
            for below in tree[above]:
                if below in drawn:
                    continue
                pair = (above, below) if above < below else (below, above)
                table = pairs[pair] if above < below else pairs[pair].T
                codes[:, below] = _drawn(codes[:, above], table, random)
                drawn.add(below)
                waiting.append(below)
    return codes


def _margins(
    axes: Sequence[tuple[int, ...]], tables: Sequence[FloatArray]
) -> tuple[dict[int, FloatArray], dict[Pair, FloatArray]]:
    """Counts of single attributes and of pairs in ascending order, each from the first table that holds them."""
    single: dict[int, FloatArray] = {}
    pairs: dict[Pair, FloatArray] = {}
    for some, table in zip(axes, tables, strict=True):
        for p, a in enumerate(some):
            if a not in single:
                single[a] = table.sum(axis=tuple(i for i in range(len(some)) if i != p))
            for q, b in enumerate(some):
                if a < b and (a, b) not in pairs:
                    found = table.sum(axis=tuple(i for i in range(len(some)) if i not in (p, q)))
                    pairs[a, b] = found if p < q else found.T
    return single, pairs


def _tree(count: int, pairs: dict[Pair, FloatArray]) -> list[list[int]]:
    """The neighbours of every attribute in the forest of largest mutual information."""
    worth = {pair: _information(table) for pair, table in pairs.items()}
    part = list(range(count))
    near: list[list[int]] = [[] for _ in range(count)]
    for a, b in sorted(worth, key=lambda pair: (-worth[pair], pair)):
        if part[a] != part[b]:
            near[a].append(b)
            near[b].append(a)
            old, new = part[b], part[a]
            part = [new if p == old else p for p in part]
    return near


def _information(table: FloatArray) -> float:
    """Mutual information of the two attributes, in nats."""
    total = float(table.sum())
    if total <= 0:
        return 0.0
    share = table / total
    apart = np.outer(share.sum(axis=1), share.sum(axis=0))
    held = share > 0
    return float(share[held] @ np.log(share[held] / apart[held]))


def _drawn(above: Codes, table: FloatArray, random: np.random.Generator) -> Codes:
    """(count,) cells, spread within each cell of `above` as the row of the table is, in random order."""
    size = np.bincount(above, minlength=len(table))
    row, every = table.sum(axis=1, keepdims=True), table.sum(axis=0)
    spread = every / every.sum() if every.sum() > 0 else np.full(table.shape[1], 1 / table.shape[1])
    shares = np.where(row > 0, table / np.where(row > 0, row, 1.0), spread)
    # running sums: every cell is off by less than one, and the rows' sizes are met
    ends = np.rint(np.cumsum((shares * size[:, None]).reshape(-1))).astype(np.int64)
    ends[-1] = len(above)
    counts = np.diff(ends, prepend=0)
    out = np.empty(len(above), dtype=np.int32)
    order = np.lexsort((random.random(len(above)), above))
    out[order] = np.repeat(np.tile(np.arange(table.shape[1], dtype=np.int32), len(table)), counts)
    return out
