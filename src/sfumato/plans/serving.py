"""Which statistics the answers of a plan serve: what its parts can answer together, said before anything is paid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from sfumato.designs.strategy import Strategy
from sfumato.domain import Attribute, Domain
from sfumato.errors import SfumatoError
from sfumato.operators import Block, Dense
from sfumato.operators.base import FloatArray
from sfumato.workloads import RECORDS, QueryBlock
from sfumato.workloads.levels import over

if TYPE_CHECKING:
    from sfumato.plans.plan import Plan

__all__ = ["counted_as_zero", "is_answered", "serves"]

_MOST = 24  # parts and tables: more fit on no screen


def counted_as_zero(attribute: str) -> str:
    """What is said of a mean over all records of a group, where those without a declared value were not told apart."""
    return f"of all records: those of (other) count 0 in the sum of {attribute}"


def serves(plan: Plan) -> Iterator[str]:
    """One line for the sums of each attribute within the same groups, and for each table of a numeric attribute."""
    domain, strategy = plan.workload.domain, plan.strategy
    seen = set[tuple[str, tuple[str, ...]]]()
    for item in plan.workload.items[:_MOST]:
        if not isinstance(item, QueryBlock):
            continue
        attributes = item.attributes
        if item.unit != RECORDS:
            name, by = item.unit, tuple(a for a in attributes if a != item.unit)
            if name in domain and name in attributes and (name, by) not in seen:
                seen.add((name, by))
                yield _of_sums(domain, strategy, name, item)
        elif item.is_marginal:
            for name in attributes:
                by = tuple(a for a in attributes if a != name)
                if domain[name].midpoints is not None and (name, by) not in seen:
                    seen.add((name, by))
                    yield f"means, quantiles and shares of {_within(name, by)}"


def _within(name: str, by: tuple[str, ...]) -> str:
    return f"{name} by {', '.join(by)}" if by else name


def _of_sums(domain: Domain, strategy: Strategy, name: str, item: QueryBlock) -> str:
    declared, block = domain[name], item.block
    by = tuple(a for a in item.attributes if a != name)
    where = _within(name, by)
    if is_answered(strategy, _sizes(domain, name, declared, block, known=True)):
        return f"means of {where}"
    if declared.has_other and is_answered(strategy, _sizes(domain, name, declared, block, known=False)):
        return f"means of {where}, {counted_as_zero(name)}"
    groups = f"marginals of {', '.join(by)}" if by else "the total"
    return f"sums of {where} alone: for means stack the counts too, {groups}"


def _sizes(domain: Domain, name: str, declared: Attribute, block: Block, *, known: bool) -> Block:
    """The records of each group of a block of sums: of those with a declared value, or all."""
    row: FloatArray = np.ones((1, declared.size))
    if known and declared.has_other:
        row[0, -1] = 0.0
    kept = [(g, f) for g, f in zip(block.groups, block.factors, strict=True) if name not in g]
    if not (row == 1).all():
        owner, factor = over(domain, name, Dense(row))
        kept.append(((owner,), factor))
    return Block(tuple(g for g, _ in kept), tuple(f for _, f in kept))


def is_answered(strategy: Strategy, block: Block) -> bool:
    """Whether what is measured answers a block."""
    try:
        strategy.check(block)
    except SfumatoError:
        return False
    return True
