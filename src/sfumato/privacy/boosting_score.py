"""How far several models miss each of many queries: candidates whose score adds up clipped misses. [DRV10]

For choosing hard queries again and again: a query that most models miss by much is drawn more often, but no miss
counts for more than a ceiling, and small ones do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import storable
from sfumato.errors import PlanError
from sfumato.maps import BlockMap
from sfumato.privacy.int128 import WORD, UInt128Array, absolute_differences
from sfumato.privacy.selection import check_candidate_rows


@storable
@dataclass(frozen=True, slots=True, eq=False)
class Misses:
    """The rows of some blocks; the score of one is sum_j min(max(|q(table) - e_j| - floor, 0), ceiling). All public.

    estimates: int64 (models, rows of all blocks), e_j in row j. floor at least 0, ceiling at least 1, whole numbers.
    Raises PlanError for anything else, and for queries that are not whole numbers below 1,024 in size.
    """

    blocks: tuple[BlockMap, ...]
    estimates: NDArray[np.int64]
    floor: int
    ceiling: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(self.blocks))
        rows = check_candidate_rows(self.blocks)
        given: Any = self.estimates
        if not isinstance(given, np.ndarray) or given.dtype != np.int64 or given.ndim != 2:
            raise PlanError("estimates of misses are an int64 array, one row per model")
        if given.shape[1] != rows or not len(given):
            raise PlanError(f"estimates of misses have shape (models, {rows}) with at least one model")
        own = given.copy()
        own.flags.writeable = False
        object.__setattr__(self, "estimates", own)
        if type(self.floor) is not int or type(self.ceiling) is not int or self.floor < 0 or self.ceiling < 1:
            raise PlanError("misses count beyond a whole floor of at least 0, up to a whole ceiling of at least 1")

    def __len__(self) -> int:
        return self.estimates.shape[1]

    def scores(self, answers: Sequence[int]) -> list[int]:
        """One exact integer per row: nothing wraps around."""
        most = self.ceiling
        columns = self.estimates.T.tolist()
        return [
            sum(min(max(abs(q - e) - self.floor, 0), most) for e in column)
            for q, column in zip(answers, columns, strict=True)
        ]

    def lags(self, answers: NDArray[np.int64]) -> UInt128Array:
        """How far each of `scores` is behind the best; exact as they are, by work that does not depend on them."""
        # no miss is above 2^64 - 1, so neither floor nor ceiling matters beyond
        floor, most = (np.uint64(min(v, WORD - 1)) for v in (self.floor, self.ceiling))
        nothing = np.zeros(len(self), dtype=np.uint64)
        total = UInt128Array(nothing, nothing)
        for estimates in self.estimates:
            missed = absolute_differences(answers, estimates)
            total = total.plus(np.minimum(missed - np.minimum(missed, floor), most))
        return total.behind()

    def furthest(self, moves: Sequence[int]) -> int:
        """How far a score moves at most where answers move so far: every term no further than that, nor the ceiling."""
        return len(self.estimates) * min(max(moves), self.ceiling)
