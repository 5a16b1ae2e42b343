"""The door that chooses by the data: the number of one candidate, and nothing else, comes out."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sfumato.curator.curator import CuratedTable, Curator, curator_holding, lower_blocks, rebuild_values
from sfumato.curator.rows.counting import Counts, check_countable
from sfumato.errors import NotWritten, PlanError
from sfumato.privacy.accounting import Event
from sfumato.privacy.boosting_score import Misses
from sfumato.privacy.debits import Receipt
from sfumato.privacy.selection import Candidates, exponential_mechanism, score_sensitivity, selection_rate


def select(
    curator: Curator, candidates: Candidates | Misses, price: Event, *, name: str, plan_hash: str
) -> tuple[int, Receipt]:
    """The number of one candidate, those of high score more likely; nothing else comes out.

    Scores are how far one estimate of each query is off, w |q(table) - e| - p, or for Misses how far several are.

    Guarantee: the exponential mechanism at the epsilon of `price`, a BoundedRangeEvent, with the sensitivity
    of the scores derived here, for the curator's neighbour relation: epsilon-DP and epsilon^2/8-zCDP [CR21].
    Refusals are those of `Curator.measure`, before the table is touched. NotWritten: spent, but selecting failed.
    """
    held = curator_holding(curator)
    (_, candidates), (price,) = admit_candidates(held, candidates), rebuild_values((price,))
    rate = selection_rate(score_sensitivity(candidates, held.grid.sizes(), held.unit), price)
    held.expect(price, name, plan_hash)
    counts = held.open()
    receipt = held.debit(price, name, plan_hash)
    chosen: int | None = None
    with suppress(Exception):  # what failed, and its text, may depend on the data
        chosen = exponential_mechanism(candidates.lags(exact_candidate_answers(counts, candidates)), rate, held.bits)
    if chosen is None:
        raise NotWritten(f"the budget is spent (entry {receipt.sequence}) but selecting failed; there is no refund")
    return chosen, receipt


def admit_candidates(held: CuratedTable, given: object) -> tuple[Candidates | Misses, Candidates | Misses]:
    """Candidates built anew, and the same with the maps that are priced and asked.

    It is sure then, from public facts alone, that they can be counted and applied. Raises PlanError or WorkloadError.
    """
    (found,) = rebuild_values((given,))
    if not isinstance(found, (Candidates, Misses)):
        raise PlanError(f"candidates are needed to choose from, not a {type(given).__name__}")
    asked = replace(found, blocks=lower_blocks(found.blocks))
    for block in asked.blocks:
        block.check(held.grid.sizes())
    for block in asked.blocks:
        axes = sorted(held.grid.axis(a) for a in block.attributes)
        check_countable(held.grid, [np.array([axes], dtype=np.int32)])
        block.apply(np.zeros(block.cells, dtype=np.int64))  # a dry run on an empty table
    return found, asked


def exact_candidate_answers(counts: Counts, candidates: Candidates | Misses) -> NDArray[np.int64]:
    """(candidates,) exact integers: coefficients below 2^10 times fewer than 2^53 records fit int64."""
    tables = counts.count(list(dict.fromkeys(b.attributes for b in candidates.blocks)))
    return np.concatenate([b.apply(tables[b.attributes]) for b in candidates.blocks])
