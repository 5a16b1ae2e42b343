"""Records as whole numbers: the cell of every attribute in some bits of one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.cells import Grid

__all__ = ["Packed", "Words"]

Words = NDArray[np.int64]
"""(words of a record, records)."""

_BITS = 63  # of a word: its sign stays free


@dataclass(frozen=True, slots=True)
class Packed:
    """Where in its words a record has its cells."""

    grid: Grid

    def places(self) -> list[tuple[int, int, int]]:
        """(word, shift, bits) of every attribute; the number after its last cell stands for a dropped record."""
        found: list[tuple[int, int, int]] = []
        word = end = 0
        for rule in self.grid.rules:
            bits = max(1, (rule.size - 1 + rule.drops).bit_length())
            if end + bits > _BITS:
                word, end = word + 1, 0
            found.append((word, end, bits))
            end += bits
        return found

    @property
    def words(self) -> int:
        """How many whole numbers a record is."""
        return self.places()[-1][0] + 1

    def cells(self, words: Words, i: int) -> NDArray[Any]:
        """The cells of one attribute."""
        word, shift, bits = self.places()[i]
        kind = np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32
        return (words[word] >> shift & 2**bits - 1).astype(kind)

    def moved(self, words: Words) -> Words:
        """The records moved to where they count, each by itself."""
        before = {i: self.cells(words, i) for m in self.grid.moves for i in m.axes}
        words = words.copy() if before else words
        for i, cells in self.grid.moved(before).items():
            word, shift, bits = self.places()[i]
            words[word] = words[word] & ~((2**bits - 1) << shift) | cells.astype(np.int64) << shift
        return words

    def kept(self, words: Words) -> NDArray[np.bool_]:
        """Which records are not dropped."""
        keep = np.ones(words.shape[1], dtype=bool)
        for i, rule in enumerate(self.grid.rules):
            if rule.drops:
                keep &= self.cells(words, i) != rule.size
        return keep
