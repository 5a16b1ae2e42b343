"""Marginal tables that few queries nearly know, answered with these and not with the other tables.

A cumulative table of age by sex tells that of age, that of sex and that of both but for a cell or two, at a fraction of
the error that residuals leave them. Left among the tables, they would draw noise budget to what is known better.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from sfumato.designs.design import Problem
from sfumato.designs.merged.spanned import nearly_known
from sfumato.designs.pieces import Piece
from sfumato.operators import Block, Family
from sfumato.workloads import QueryBlock, QueryFamily

__all__ = ["Group", "Items", "Offer", "offered"]

Items = tuple[QueryBlock | QueryFamily, ...]
Planner = Callable[[Items, dict[str, float]], "Group | None"]
"""The best design of items, whose tables count by part so many times as much as their weights say."""


@dataclass(frozen=True, slots=True)
class Group:
    """Items, their best design by themselves as a piece of unit price, the root (cube root) of its error, and whether
    that is proved the least."""

    items: Items
    piece: Piece
    root: float
    best: bool


class Offer(NamedTuple):
    """The tables that are left, and the few queries with those that have gone over to them."""

    left: Group
    both: Group

    @property
    def root(self) -> float:
        return self.left.root + self.both.root


def offered(problem: Problem, tables: Items, few: Items, plan: Planner) -> Offer | None:
    """What handing over the tables that few queries nearly know would come to; None where there are none of these."""
    known = nearly_known([i.block for i in few if isinstance(i, QueryBlock)])
    rest, moved = _split(tables, known)
    if not moved or not rest:
        return None
    whole = _tables(problem.workload.items)
    left = plan(*_weighed(problem, rest, whole))
    both = None if left is None else plan(*_weighed(problem, (*few, *moved), whole))
    return None if left is None or both is None else Offer(left, both)


def _split(items: Items, known: Set[frozenset[str]]) -> tuple[Items, Items]:
    """The items less the tables over known sets, and those tables."""
    kept: list[QueryBlock | QueryFamily] = []
    moved: list[QueryBlock] = []
    for item in items:
        blocks: Sequence[Block] = [item.block] if isinstance(item, QueryBlock) else list(item.family.blocks())
        gone = np.array([frozenset(b.attributes) in known for b in blocks])
        moved += [QueryBlock(item.part, b, item.weight) for b, g in zip(blocks, gone, strict=True) if g]
        if not gone.any():
            kept.append(item)
        elif isinstance(item, QueryFamily) and not gone.all():
            family = item.family
            kept.append(replace(item, family=Family(family.names, family.factors, family.sets[~gone])))
    return tuple(kept), tuple(moved)


def _weighed(problem: Problem, items: Items, whole: Counter[str]) -> tuple[Items, dict[str, float]]:
    """Where parts weigh alike, a part of fewer tables than it has is to weigh less: its items, and what undoes that."""
    if problem.objective != "tables":
        return items, {}
    here = _tables(items)
    weighed = [replace(i, weight=i.weight * Fraction(here[i.part], whole[i.part])) for i in items]
    return tuple(weighed), {part: whole[part] / n for part, n in here.items()}


def _tables(items: Sequence[QueryBlock | QueryFamily]) -> Counter[str]:
    out: Counter[str] = Counter()
    for item in items:
        out[item.part] += len(item.family) if isinstance(item, QueryFamily) else 1
    return out
