"""Persons of whose rows few lie in each group: all that they can change, by going through their rows."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.operators import (
    Block,
    Combination,
    Dense,
    Family,
    Identity,
    LinearOperator,
    Prefix,
    Residual,
    Scaled,
    Total,
)
from support.operators import written_out
from support.sensitivities import columns_of

__all__ = ["changes_of_persons", "drawn_case", "grouped_bodies", "largest_changes"]

Given = Sequence[Block | Family | Combination]


def grouped_bodies(sizes: Mapping[str, int], once_per: Sequence[str], rows: int, each: int) -> list[tuple[int, ...]]:
    """The rows, as cells of the whole table, that one person may have counted."""
    names = list(sizes)
    cells = list(itertools.product(*(range(n) for n in sizes.values())))
    group = [tuple(c[names.index(a)] for a in once_per) for c in cells]
    found: list[tuple[int, ...]] = []
    for count in range(rows + 1):
        for body in itertools.combinations_with_replacement(range(len(cells)), count):
            if max(Counter(group[i] for i in body).values(), default=0) <= each:
                found.append(body)
    return found


def all_columns(blocks: Given, sizes: Mapping[str, int]) -> NDArray[Any]:
    """(rows, cells) the whole measurement."""
    parts = []
    for b in blocks:
        if isinstance(b, Combination):
            parts.append(written_out(Dense(b.matrix)) @ np.stack(columns_of(b.blocks, sizes), axis=1))
        else:
            parts.append(np.stack(columns_of([b], sizes), axis=1))
    return np.concatenate(parts).astype(object)


def changes_of_persons(
    blocks: Given, sizes: Mapping[str, int], once_per: Sequence[str], rows: int, each: int
) -> NDArray[Any]:
    """(persons, rows of the measurement) what each body that there may be adds to a measurement."""
    matrix, bodies = all_columns(blocks, sizes), grouped_bodies(sizes, once_per, rows, each)
    counts = np.zeros((len(bodies), matrix.shape[1]), dtype=np.int64)
    for i, body in enumerate(bodies):
        np.add.at(counts[i], list(body), 1)
    fits = max(1, int(abs(matrix).max())) * rows < 2**24
    return counts @ matrix.T.astype(np.int64 if fits else object)


def largest_changes(
    blocks: Given, sizes: Mapping[str, int], once_per: Sequence[str], rows: int, each: int
) -> dict[tuple[str, int], int]:
    """By relation and norm the largest change, to its power, by definition."""
    moved = np.unique(changes_of_persons(blocks, sizes, once_per, rows, each), axis=0)
    out = {("add-remove", p): int((abs(moved) ** p).sum(axis=1).max()) for p in (1, 2)}
    norms = (moved**2).sum(axis=1)
    out["replace-one", 2] = max(int((norms + n - 2 * (moved @ row)).max()) for row, n in zip(moved, norms, strict=True))
    out["replace-one", 1] = max(int(abs(moved - row).sum(axis=1).max()) for row in moved)
    return out


def drawn_case(
    random: np.random.Generator,
) -> tuple[list[Block | Family | Combination], dict[str, int], tuple[str, ...], int, int]:
    """A measurement of a small table, and a person's bounds: (blocks, sizes, once_per, rows, rows of each group)."""
    names = ["a", "b", "c"][: random.integers(1, 4)]
    sizes = {n: int(k) for n, k in zip(names, random.integers(1, 4 if len(names) > 2 else 6, len(names)), strict=True)}
    while math.prod(sizes.values()) > 12:
        sizes[max(sizes, key=lambda n: sizes[n])] -= 1
    rows = int(random.integers(2, 5 if math.prod(sizes.values()) <= 8 else 4))
    each = int(random.integers(1, rows))
    once_per = tuple(n for n in names if random.random() < 0.6) or (names[0],)
    plain = [_block(random, sizes) for _ in range(random.integers(1, 4))]
    blocks: list[Block | Family | Combination] = [*plain]
    if random.random() < 0.2 and len(names) > 1:
        factors = tuple(_factor(random, sizes[n]) for n in names)
        pairs = np.array(list(itertools.combinations(range(len(names)), 2)), dtype=np.int32)
        blocks.append(Family(tuple(names), factors, pairs, random.integers(1, 4, len(pairs)).astype(np.int64)))
    if random.random() < 0.15:
        height = sum(b.rows for b in plain)
        matrix = random.integers(-2, 3, (int(random.integers(1, 4)), height)).astype(np.int64)
        blocks.append(Combination(tuple(plain), matrix))
    return blocks, sizes, once_per, rows, each


def _block(random: np.random.Generator, sizes: Mapping[str, int]) -> Block:
    names = [n for n in random.permutation(list(sizes)).tolist() if random.random() < 0.6]
    cut = int(random.integers(0, 3)) if random.random() < 0.4 else 0
    groups = ([tuple(names[:cut])] if names[:cut] else []) + [(n,) for n in names[cut:]]
    factors = [_factor(random, math.prod(sizes[n] for n in g)) for g in groups]
    return Block(tuple(groups), tuple(factors))


def _factor(random: np.random.Generator, n: int) -> LinearOperator:
    plain = [Identity(n), Total(n), Residual(n), Residual(n), Prefix(n)]
    height = int(random.integers(1, 4))
    plain += [Dense(random.integers(-2, 3, (height, n))), Dense(random.integers(0, 3, (height, n)))]
    found = plain[int(random.integers(len(plain)))]
    return Scaled(found, int(random.choice([-3, 2, 5]))) if random.random() < 0.3 else found
