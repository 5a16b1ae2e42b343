"""Exact scores of candidates, for the doors that choose; they never leave the wall."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sfumato.curator.counting import Counts, check_countable
from sfumato.domain import Domain
from sfumato.operators import Block
from sfumato.privacy.selection import Candidates

__all__ = ["check_candidates", "scores"]


def check_candidates(domain: Domain, blocks: Sequence[Block]) -> None:
    """Refuse, from public facts alone, what could not be counted or applied; a dry run on empty tables."""
    for block in blocks:
        axes = sorted(domain.axis(a) for a in block.attributes)
        check_countable(domain, [np.array([axes], dtype=np.int32)])
        block.operator.matvec(np.zeros(block.cells, dtype=np.int64))


def scores(counts: Counts, candidates: Candidates) -> list[int]:
    """One exact integer per candidate."""
    tables = counts.count(list(dict.fromkeys(b.attributes for b in candidates.blocks)))
    answers: list[int] = []
    for block in candidates.blocks:
        answers += block.operator.matvec(tables[block.attributes].reshape(-1)).tolist()
    return candidates.scores(answers)
