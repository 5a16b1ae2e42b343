"""Sums over the nodes of a b-ary tree of aligned blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato.errors import WorkloadError
from sfumato.ground.codec import storable
from sfumato.operators.base import Numbers
from sfumato.operators.basic import check_length
from sfumato.operators.ordered import Contiguous

__all__ = ["Tree"]


@storable
@dataclass(frozen=True, slots=True, repr=False)
class Tree(Contiguous):
    """One 0/1 row for every aligned block of branching^level cells, widest first, leaves last.

    A block that the end of the domain cuts down to its first child is left out, as it would repeat
    that child. `root` says whether the sum of all cells is one of the rows.
    """

    n: int
    branching: int = 2
    root: bool = True

    def __post_init__(self) -> None:
        check_length(self.n, "a tree")
        b = self.branching
        if isinstance(b, bool) or not isinstance(b, int) or not 2 <= b <= 2**20:
            raise WorkloadError(f"a tree branches in a whole number from 2 to {2**20:,}, not in {b!r}")

    def levels(self) -> list[tuple[int, Numbers]]:
        """(block width, first cells of the blocks kept), widest level first."""
        width = 1
        kept: list[tuple[int, Numbers]] = []
        while True:
            starts = np.arange(0, self.n, width)
            # a block holds one child alone when the domain ends before its second child starts
            keep = starts if width == 1 else starts[starts + width // self.branching < self.n]
            if len(starts) > 1 or self.root or self.n == 1:
                kept.append((width, keep))
            if len(starts) == 1:
                return kept[::-1]
            width *= self.branching

    @property
    def shape(self) -> tuple[int, int]:
        return (sum(len(s) for _, s in self.levels()), self.n)

    def spans(self) -> tuple[Numbers, Numbers]:
        levels = self.levels()
        first = np.concatenate([starts for _, starts in levels])
        width = np.repeat([w for w, _ in levels], [len(s) for _, s in levels])
        return first, np.minimum(first + width, self.n)

    def apply(self, vectors: Numbers) -> Numbers:
        # level by level: in float64 the differences of cumulative sums would lose digits
        out: list[Numbers] = []
        for width, starts in self.levels():
            if width == 1:
                out.append(vectors[starts])
            else:
                sums = np.add.reduceat(vectors, np.arange(0, self.n, width), axis=0)
                out.append(sums[starts // width])
        return np.concatenate(out)

    def apply_transpose(self, vectors: Numbers) -> Numbers:
        out = np.zeros((self.n, vectors.shape[1]), dtype=vectors.dtype)
        position = 0
        for width, starts in self.levels():
            values = np.zeros((-(-self.n // width), vectors.shape[1]), dtype=out.dtype)
            values[starts // width] = vectors[position : position + len(starts)]
            out += np.repeat(values, width, axis=0)[: self.n]
            position += len(starts)
        return out
