"""What a body of tables cannot hold: named counts, sums and the like of tables that were not measured as a whole."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sfumato.errors import NotAnswerable
from sfumato.ground.frames import safe_text
from sfumato.operators import Block
from sfumato.operators.base import FloatArray
from sfumato.plans.serving import is_answered
from sfumato.workloads import QueryBlock, QueryFamily, Workload
from sfumato.workloads.levels import table_block

if TYPE_CHECKING:
    from sfumato.releases.core import Release

__all__ = ["held_queries", "left_out", "projected_answer"]

_LARGEST = 2**24  # cells of one table: 128 MB, as what is searched for a hull
_NAMED = 3  # kinds of queries that are named


def projected_answer(release: Release, block: Block) -> FloatArray | None:
    """The answer of what a release is projected onto; None where it is not projected, or that holds no such table and
    some answers stay as they were measured. Raises NotAnswerable where none do."""
    if release.projection is None:
        return None
    try:
        return release.projection.possible.answer(block)
    except NotAnswerable:
        if not release.projection.left_out:
            raise
    return None


def held_queries(whole: Release) -> Workload | None:
    """The queries that lie in whole tables that were measured; None where no query does.

    Tables that were asked were measured; of other queries it is asked whether the table that they lie in can be
    answered.
    """
    work = whole.plan.workload
    known: dict[tuple[str, ...], bool] = {}

    def measured(item: QueryBlock | QueryFamily) -> bool:
        if item.is_marginal:
            return True
        return all(_measured(whole, q.attributes, known) for q in item.blocks())

    kept = tuple(i for i in work.items if measured(i))
    if len(kept) == len(work.items):
        return work
    return Workload(work.domain, kept) if kept else None


def _measured(whole: Release, attributes: tuple[str, ...], known: dict[tuple[str, ...], bool]) -> bool:
    domain = whole.plan.workload.domain
    names = domain.ordered(attributes)
    if names not in known:
        few = math.prod(domain.sizes(names)) <= _LARGEST
        known[names] = few and is_answered(whole.plan.strategy, table_block(domain, names))
    return known[names]


def left_out(whole: Release, held: Workload | None) -> tuple[str, ...]:
    """What of a release's queries is not among those held: by part, in words."""
    kept = {id(i) for i in (() if held is None else held.items)}
    parts: dict[str, int] = {}
    for item in whole.plan.workload.items:
        if id(item) not in kept:
            parts[item.part] = parts.get(item.part, 0) + item.rows
    said = [f"{rows:,} of {safe_text(part)!r}" for part, rows in parts.items()]
    return (*said[:_NAMED], *([f"those of {len(said) - _NAMED:,} more parts"] if len(said) > _NAMED else []))
