"""Brute force for sensitivities, and random strategies to try it on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from sfumato.operators import Block, Dense, Family, Identity, LinearOperator, Scaled
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies.certificates import exact_sensitivity
from support.operators import written_out

__all__ = ["NAMES", "Case", "blocks_over", "brute_force", "cases", "check_price", "columns_of", "expanded"]

NAMES = ("a", "b", "c")
Case = tuple[list[Block], dict[str, int]]


def expanded(blocks: Sequence[Block | Family]) -> list[Block]:
    """Every block by itself."""
    return [b for given in blocks for b in (given.blocks() if isinstance(given, Family) else [given])]


def columns_of(given: Sequence[Block | Family], sizes: Mapping[str, int]) -> list[Any]:
    """The column of the stacked strategy for every cell of the domain, as arrays of Python integers."""
    blocks = expanded(given)
    matrices = [[written_out(f) for f in b.factors] for b in blocks]
    columns: list[Any] = []
    for cell in itertools.product(*(range(n) for n in sizes.values())):
        at = dict(zip(sizes, cell, strict=True))
        column: list[int] = []
        for block, factors in zip(blocks, matrices, strict=True):
            part = [1]
            for group, matrix in zip(block.groups, factors, strict=True):
                place = 0
                for name in group:
                    place = place * sizes[name] + at[name]
                part = [p * v for p in part for v in matrix[:, place].tolist()]
            column += part
        columns.append(np.array(column, dtype=object))
    return columns


def sums_of_rows(columns: list[Any], most: int) -> list[Any]:
    """What one person with at most `most` rows can add to the strategy's values."""
    chosen = itertools.chain.from_iterable(itertools.combinations_with_replacement(columns, k) for k in range(most + 1))
    return [sum(rows, np.zeros(len(columns[0]), dtype=object)) for rows in chosen]


def brute_force(columns: list[Any], neighbours: Neighbours, most: int, power: int, persons: bool = False) -> int:
    """The largest sum of |change|^power over neighbouring tables, by definition."""
    if neighbours is Neighbours.ADD_REMOVE:
        changes: Iterator[Any] = iter(sums_of_rows(columns, most))
    elif not persons:
        # every record is counted exactly once
        changes = (u - v for u, v in itertools.product(columns, columns))
    else:
        rows = sums_of_rows(columns, most)
        changes = (u - v for u, v in itertools.product(rows, rows))
    return max(int((abs(change) ** power).sum()) for change in changes)


@st.composite
def blocks_over(draw: st.DrawFn, sizes: dict[str, int], factor: Any) -> Block:
    """A block over some attributes, some of them joined, with a multiple and rows over no attribute."""
    names = draw(st.permutations([n for n in sizes if draw(st.booleans())]))
    cut = draw(st.integers(0, len(names)))
    groups = [tuple(names[:cut])] if cut else []
    groups += [(n,) for n in names[cut:]]
    factors = [draw(factor(math.prod(sizes[n] for n in g))) for g in groups]
    multiple = draw(st.sampled_from([1, 2, 3, 2**30]))
    if draw(st.booleans()):
        groups.insert(0, ())
        factors.insert(0, Scaled(Identity(1), multiple))
    if draw(st.integers(0, 4)) == 0:
        groups.append(())
        factors.append(Dense(np.ones((draw(st.integers(1, 3)), 1), dtype=np.int64)))
    return Block(tuple(groups), tuple(factors))


@st.composite
def cases(draw: st.DrawFn, factor: Any, most_cells: int = 12) -> Case:
    sizes = {n: draw(st.integers(1, 4)) for n in NAMES[: draw(st.integers(1, 3))]}
    while math.prod(sizes.values()) > most_cells:
        sizes[max(sizes, key=lambda n: sizes[n])] -= 1
    return draw(st.lists(blocks_over(sizes, factor), min_size=1, max_size=3)), sizes


def check_price(operator: LinearOperator, power: int) -> None:
    """The price of one operator over one attribute against its matrix, in both relations."""
    n = operator.shape[1]
    matrix = operator.dense().astype(object)
    block = Block((("t",),), (operator,))
    add = exact_sensitivity([block], {"t": n}, PrivacyUnit(Neighbours.ADD_REMOVE), power)
    assert add.value == (np.abs(matrix) ** power).sum(axis=0).max()
    swap = exact_sensitivity([block], {"t": n}, PrivacyUnit(Neighbours.REPLACE_ONE), power)
    far = max((np.abs(matrix - matrix[:, [j]]) ** power).sum(axis=0).max() for j in range(n))
    assert swap.value >= far
    assert not swap.exact or swap.value == far
