"""Measurements whose factors join attributes after a partition, beside contrasts inside its parts: drawn, and dense."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sfumato.operators import Block, Compose, Dense, Grouping, LinearOperator, Residual, Scaled

__all__ = ["drawn_blocks", "matrix_over"]


def drawn_blocks(rng: np.random.Generator, scale: int = 1) -> tuple[dict[str, int], list[Block]]:
    """(sizes, blocks): combinations of sums over joint orbits, times contrasts; some cells are counted nowhere."""
    names = "abcd"[: int(rng.integers(2, 5))]
    sizes = {a: int(rng.integers(2, 6)) for a in names}
    orbits = {a: _parts_of(n, rng) for a, n in sizes.items()}
    blocks: list[Block] = []
    for _ in range(int(rng.integers(1, 6))):
        wide, groups, factors = list[str](), list[tuple[str, ...]](), list[LinearOperator]()
        for a in (str(n) for n in rng.permutation([*names])[: int(rng.integers(1, len(names) + 1))]):
            if rng.random() < 0.65:
                wide.append(a)
            else:
                groups.append((a,))
                factors.append(_contrast(orbits[a], rng) if rng.random() < 0.8 else Residual(sizes[a]))
        if wide:
            codes, count = np.zeros(1, dtype=np.int64), 1
            for a in wide:
                many = int(orbits[a].max()) + 1
                codes, count = (codes[:, None] * many + orbits[a]).reshape(-1), count * many
            if rng.random() < 0.2:
                codes = rng.integers(-1, count, len(codes))
            matrix = scale * rng.integers(-4, 5, (int(rng.integers(1, 5)), count))
            groups.append(tuple(wide))
            combined = Compose(Dense(matrix), Grouping(codes, count))
            factors.append(combined if rng.random() < 0.7 else Scaled(combined, int(rng.integers(2, 4))))
        order = rng.permutation(len(groups))
        blocks.append(Block(tuple(groups[i] for i in order), tuple(factors[i] for i in order)))
    return sizes, blocks


def _parts_of(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Which of some parts, none of them empty, each of n cells is in."""
    many = int(rng.integers(1, n + 1))
    return rng.permutation(np.concatenate([np.arange(many), rng.integers(0, many, n - many)])).astype(np.int64)


def _contrast(orbits: NDArray[np.int64], rng: np.random.Generator) -> LinearOperator:
    """Differences between the cells of one part, or any sums of these."""
    inside = np.flatnonzero(orbits == int(rng.integers(0, orbits.max() + 1)))
    codes, n = np.full(len(orbits), -1), len(inside)
    codes[inside] = np.arange(n)
    matrix = n * np.eye(n, dtype=np.int64) - 1 if rng.random() < 0.7 else rng.integers(-3, 4, (2, n))
    return Compose(Dense(matrix), Grouping(codes, n))


def matrix_over(sizes: Mapping[str, int], blocks: Sequence[Block]) -> NDArray[np.object_]:
    """All blocks over all joint cells, (rows, cells), in Python's integers."""
    out = list[NDArray[np.object_]]()
    for block in blocks:
        matrix = np.ones((1, 1), dtype=object)
        for factor in block.factors:
            matrix = np.kron(matrix, np.asarray(factor.dense()).astype(np.int64).astype(object))
        rest = [a for a in sizes if a not in block.attributes]
        matrix = np.kron(matrix, np.ones((1, math.prod(sizes[a] for a in rest)), dtype=object))
        order = [*block.attributes, *rest]
        table = matrix.reshape(len(matrix), *(sizes[a] for a in order))
        out.append(table.transpose(0, *(1 + order.index(a) for a in sizes)).reshape(len(matrix), -1))
    return np.concatenate(out)
