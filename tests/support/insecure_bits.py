"""Deterministic sources of bits, for tests alone: noise drawn from them protects nobody."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

__all__ = ["InsecureTestBits", "ScriptedTestBits"]

Words = NDArray[np.uint64]


class InsecureTestBits:
    """Reproducible words: INSECURE, whoever knows the seed can subtract the noise."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def words(self, count: int) -> Words:
        """`count` words of 64 bits."""
        return self._generator.integers(0, 1 << 64, size=count, dtype=np.uint64)


class ScriptedTestBits:
    """INSECURE: each call takes its words from the front of a script; when it is used up, every word is `rest`."""

    def __init__(self, script: Iterable[int], rest: int = 0) -> None:
        self._script = np.array(list(script), dtype=np.uint64)
        self._rest = rest
        self.overdrawn = 0  # words taken beyond the script

    def words(self, count: int) -> Words:
        """`count` words of 64 bits."""
        taken, self._script = self._script[:count], self._script[count:]
        missing = count - taken.size
        self.overdrawn += missing
        return np.concatenate([taken, np.full(missing, self._rest, dtype=np.uint64)])
