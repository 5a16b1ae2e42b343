"""Blocks that are counted, by what they have in common, checked to answer every set that is asked.

A block is a set of attributes that is counted; a set that is asked is answered by one block that holds it, by summing.
Who proposes blocks (`plans.packing`) decides how long counting takes and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import PlanError
from sfumato.ground.rows import distinct

__all__ = ["Cluster", "Packing", "Sets", "alone", "clusters"]

Sets = Sequence[NDArray[np.int32]]
Positions = NDArray[np.int64]
Proposal = tuple[Positions, Sequence[Positions]]
"""(blocks, width) ascending positions, filled up with the number of attributes; per family the block of every set."""
Packing = Callable[[Sequence[int], Sets, int], Proposal]
"""From the cells of every attribute, the sets asked and the number of records."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Blocks of one shape that answer the same subsets of theirs.

    blocks: (count, width) ascending positions of attributes, of `sizes` cells.
    answers: family and the kept axes of a block, one for every column of `positions`.
    positions: (count, answers) which sets of those families they are.
    """

    blocks: Positions
    sizes: tuple[int, ...]
    answers: tuple[tuple[int, tuple[int, ...]], ...]
    positions: Positions

    def part(self, start: int, stop: int) -> Cluster:
        """Some of the blocks."""
        return Cluster(self.blocks[start:stop], self.sizes, self.answers, self.positions[start:stop])


def alone(shape: Sequence[int], sets: Sets, rows: int) -> Proposal:
    """Every set is a block of its own."""
    del rows
    width = max((s.shape[1] for s in sets), default=0)
    blocks = np.full((sum(map(len, sets)), width), len(shape))
    homes: list[Positions] = []
    end = 0
    for family in sets:
        homes.append(end + np.arange(len(family)))
        blocks[end : end + len(family), : family.shape[1]] = family
        end += len(family)
    return blocks, homes


def clusters(shape: Sequence[int], sets: Sets, blocks: Positions, homes: Sequence[Positions]) -> list[Cluster]:
    """Blocks sorted by what they have in common; `homes` tells the block of every set of every family.

    Raises PlanError for what does not answer every set: a set that does not lie in its block, or a block that is none.
    """
    if not any(map(len, sets)):
        return []
    count = len(shape)
    _check(count, sets, blocks, homes)
    filled = np.append(blocks, np.full((len(blocks), 1), count), axis=1)
    answers: list[tuple[int, tuple[int, ...]]] = []
    block, code, position = ([np.zeros(0, dtype=np.int64)] for _ in range(3))
    for f, (family, home) in enumerate(zip(sets, homes, strict=True)):
        axes = np.zeros(family.shape, dtype=np.int64)
        for column in blocks.T:
            axes += column[home, None] < family
        if not np.array_equal(filled[home[:, None], axes], family):
            raise PlanError("a set does not lie in the block that is to answer it")
        first, kind = distinct(axes, count + 1)
        block.append(home)
        code.append(len(answers) + kind)
        position.append(np.arange(len(family)))
        answers += [(f, tuple(kept)) for kept in axes[first].tolist()]
    of, codes, positions = map(np.concatenate, (block, code, position))
    order = np.lexsort((codes, of))
    of, codes, positions = of[order], codes[order], positions[order]
    sizes = np.append(np.asarray(shape, dtype=np.int64), 0)[blocks]
    _, look = distinct(sizes, max(shape, default=0) + 1)
    members = np.bincount(of, minlength=len(blocks))
    starts = np.cumsum(members) - members
    result: list[Cluster] = []
    for n in np.unique(members).tolist():
        alike = np.flatnonzero(members == n)
        entries = starts[alike, None] + np.arange(n)
        both = np.column_stack([look[alike], codes[entries]])
        first, kind = distinct(both, max(len(blocks), len(answers)) + 1)
        by_kind = np.argsort(kind, kind="stable")
        for one, chosen in zip(first, np.split(by_kind, np.cumsum(np.bincount(kind))[:-1]), strict=True):
            width = int((blocks[alike[one]] < count).sum())
            result.append(
                Cluster(
                    blocks[alike[chosen], :width],
                    tuple(sizes[alike[one], :width].tolist()),
                    tuple(answers[c] for c in codes[entries[one]].tolist()),
                    positions[entries[chosen]],
                )
            )
    return result


def _check(count: int, sets: Sets, blocks: Positions, homes: Sequence[Positions]) -> None:
    """Refuse what is no list of blocks that can be counted, with one of them for each set."""
    below, after = blocks[:, :-1], blocks[:, 1:]
    ascending = ((below < after) | ((below == count) & (after == count))).all()
    if not ascending or blocks.min(initial=0) < 0 or blocks.max(initial=0) > count:
        raise PlanError("a block is a set of attributes, by ascending positions")
    for family, home in zip(sets, homes, strict=True):
        if home.shape != (len(family),) or (len(home) and not 0 <= home.min() <= home.max() < len(blocks)):
            raise PlanError("every set has one block that answers it")
