"""Random trees of places, and the dense matrices that stand for what is measured and asked of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import sfumato as sf
from sfumato.operators import Block, Grouping, Identity, LinearOperator
from sfumato.operators.base import FloatArray
from sfumato.strategies.geography import Spine, all_subsets
from sfumato.workloads.core import block_on_domain

__all__ = ["dense", "grown", "least_squares", "nested", "random_spine", "tree_codes"]

IntArray = NDArray[np.int64]


def tree_codes(rng: np.random.Generator, levels: int, leaves: int) -> list[IntArray]:
    """The group of every cell at every level, coarse to fine, numbered in any order; some groups hold one."""
    codes = [np.arange(leaves, dtype=np.int64)]
    for _ in range(levels - 1):
        count = int(codes[0].max()) + 1
        group = np.unique(rng.integers(0, count // 2 + 1, count), return_inverse=True)[1].reshape(-1)
        codes.insert(0, group[codes[0]].astype(np.int64))
    return [rng.permutation(int(c.max()) + 1)[c] for c in codes]


def grown(fans: Sequence[float], rng: np.random.Generator | None = None, sigma: float = 0.0) -> list[tuple[str, ...]]:
    """Rows of a hierarchy: every node has as many children as its level says, times exp(sigma z)."""
    parents: list[IntArray] = []
    count = 1
    for fan in fans:
        spread = np.exp(sigma * rng.standard_normal(count)) if rng is not None else np.ones(count)
        kids = np.maximum(1, np.rint(fan * spread)).astype(np.int64)
        kids[0] += int(kids.sum()) == count  # levels of equal size would group alike
        parents.append(np.repeat(np.arange(count), kids))
        count = len(parents[-1])
    codes = [np.arange(count)]
    for parent in parents[:0:-1]:
        codes.insert(0, parent[codes[0]])
    return [tuple(f"{level}.{code}" for level, code in enumerate(row)) for row in zip(*codes, strict=True)]


def nested(
    rows: Sequence[tuple[str, ...]], sizes: Sequence[int], sets: Sequence[Sequence[str]], before: int = 0
) -> sf.Workload:
    """Tables of the attributes a0, a1, ... at the levels L0, L1, ... of a place that stands after some of them."""
    levels = [f"L{i}" for i in range(len(rows[0]))]
    others = {f"a{i}": n for i, n in enumerate(sizes)}
    names = list(others)
    place = {"place": sf.Hierarchy(list(rows), levels=levels)}
    domain = sf.Domain({n: others[n] for n in names[:before]} | place | {n: others[n] for n in names[before:]})
    return sf.marginals(domain, sets=sets, factors={"place": "levels"})


def dense(domain: sf.Domain, blocks: Sequence[Block]) -> FloatArray:
    """The rows of blocks over all cells."""
    return np.vstack([np.asarray(block_on_domain(domain, b).dense(), dtype=np.float64) for b in blocks])


def least_squares(measured: FloatArray, asked: FloatArray, *, public: bool) -> FloatArray:
    """R with R B = W, of least length; where the total is known, W up to a multiple of the row of ones."""
    if not public:
        return asked @ np.linalg.pinv(measured, rcond=1e-11)
    cells = measured.shape[1]
    across = np.eye(cells) - 1 / cells
    return asked @ across @ np.linalg.pinv(measured @ across, rcond=1e-11)


def random_spine(rng: np.random.Generator, *, residual: bool, public: bool) -> Spine:
    """Some multiples at some levels of a small tree."""
    codes = tree_codes(rng, int(rng.integers(1, 4)), int(rng.integers(2, 7)))
    kept = [c for c in codes if int(c.max()) > 0]
    distinct = list({int(c.max()): c for c in kept}.values()) or codes[-1:]
    leaves = len(codes[0])
    levels: list[LinearOperator] = [
        Identity(leaves) if int(c.max()) + 1 == leaves else Grouping(c, int(c.max()) + 1) for c in distinct
    ]
    if isinstance(levels[-1], Identity) and not np.array_equal(distinct[-1], np.arange(leaves)):
        levels[-1] = Grouping(distinct[-1], leaves)
    sizes = [int(n) for n in rng.integers(2, 4, int(rng.integers(1, 3)))]
    names, shape = ("place", *(f"a{i}" for i in range(len(sizes)))), (leaves, *sizes)
    every = list(all_subsets(tuple(range(1, len(shape)))))
    pairs = [(level, s) for level in range(len(levels) + 1) for s in every]
    chosen = [p for p in pairs if rng.random() < 0.6] or pairs[-1:]
    if public:
        chosen = [p for p in chosen if p != (0, ())] or pairs[-1:]
    at, sets = tuple(level for level, _ in chosen), tuple(s for _, s in chosen)
    multiples = tuple(int(m) for m in rng.integers(1, 9, len(chosen)))
    return Spine(names, shape, 0, tuple(levels), at, sets, multiples, residual, public)
