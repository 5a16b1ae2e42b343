"""Anderson acceleration of a fixed-point iteration."""

from __future__ import annotations

import numpy as np

from sfumato.operators.base import FloatArray

__all__ = ["Anderson"]

_ENTRIES = 2**24  # 128 MB for each of the two kinds of vectors remembered
_RIDGE = 1e-10  # relative: far above rounding of the products (1e-16), far below what a step changes
_GROWTH = 2.0  # steps of the plain method do not grow: one of twice the shortest seen says that the memory misleads


class Anderson:
    """From a point v and its step f, the next point: v + f, less what the last steps say is superfluous [And65].

    The last moves and the changes of the steps they made are kept, at most `memory` of them; the combination of
    them that best explains f is taken away. A step twice as long as the shortest seen makes it start afresh.
    """

    def __init__(self, size: int, memory: int) -> None:
        self._memory = max(2, min(memory, _ENTRIES // size))
        self._changes = np.zeros((self._memory, size))
        self._moves = np.zeros((self._memory, size))
        self._products = np.zeros((self._memory, self._memory))
        self._told = np.zeros(self._memory)
        self._count = 0
        self._shortest = np.inf
        self._last: tuple[FloatArray, FloatArray] | None = None

    def next(self, point: FloatArray, step: FloatArray) -> FloatArray:
        """The point to evaluate after `point`, whose step is `step`: both (size,)."""
        length = float(np.linalg.norm(step))
        if length > _GROWTH * self._shortest:
            self._count, self._last, self._shortest = 0, None, length
        self._shortest = min(self._shortest, length)
        if self._last is not None:
            self._remember(point - self._last[0], step - self._last[1], step)
        self._last = (point, step)
        kept = min(self._count, self._memory)
        out = point + step
        if kept:
            products = self._products[:kept, :kept]
            ridge = _RIDGE * float(np.trace(products)) * np.eye(kept)
            if ridge[0, 0] > 0:
                out -= np.linalg.solve(products + ridge, self._told[:kept]) @ self._moves[:kept]
        return out

    def _remember(self, move: FloatArray, change: FloatArray, step: FloatArray) -> None:
        """Keep one more, in the place of the oldest.

        What the kept changes say of the step follows from what they said of the last one: a pass over all of them less.
        """
        place = self._count % self._memory
        self._changes[place] = change
        np.add(move, change, out=self._moves[place])
        kept = min(self._count + 1, self._memory)
        found = self._changes[:kept] @ change
        self._products[place, :kept] = self._products[:kept, place] = found
        self._told[:kept] += found
        self._told[place] = float(change @ step)
        self._count += 1
