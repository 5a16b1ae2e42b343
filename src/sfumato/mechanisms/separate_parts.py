"""Parts of a workload each by the best design of its own, the budget split between them; parts that gain, together.

The roots of their errors add up (`strategies/budget_split.py`), so that is how groups are compared. What is proved of
parts answered together is proved of them alone, so this is tried beside every joint design, and parts of few queries
are joined where their joint design errs less.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sfumato.errors import SfumatoError
from sfumato.operators import Block, Family
from sfumato.strategies.budget_split import root_error
from sfumato.strategies.certificates import exact_sensitivity
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.geography_planning import has_tall_attribute
from sfumato.strategies.merged_planning import least_error
from sfumato.strategies.merged_rows import nearly_known
from sfumato.strategies.stacked import StackedPiece, piece_at_unit_price, share_design
from sfumato.workloads import QueryBlock, QueryFamily

if TYPE_CHECKING:
    from sfumato.mechanisms.searches import Found

Items = tuple[QueryBlock | QueryFamily, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Items, their best design by themselves as a piece of unit price, the root of its error, and whether that is
    proved the least."""

    items: Items
    piece: StackedPiece
    root: float
    best: bool


class Offer(NamedTuple):
    """The tables that are left, and the few queries with those that have gone over to them."""

    left: Group
    both: Group

    @property
    def root(self) -> float:
        return self.left.root + self.both.root


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


_MOST_PARTS = 12  # each is planned by itself
_MOST_TABLES = 64  # of parts that may be joined: each join is planned
_MOST_ROWS = 2_048  # queries of the same
_GAIN = 1e-4  # relative, of what is worth another design
_NEAR = 1e-3  # of the best plan from its bound: nothing is left to gain

Find = Callable[[Problem, str], "Found"]
"""What is found for a part by itself; the mechanism named first is run first, and may prove that no other is needed."""


def applies(problem: Problem, found: Found) -> str | None:
    """Whether there are parts, and something may be gained by measuring them apart, as a search says it."""
    names = {i.part for i in problem.workload.items}
    if not 1 < len(names) <= _MOST_PARTS or found.off <= _NEAR or problem.known or problem.unit_lattice:
        return None
    # levels together are the point of their design
    return None if problem.is_marginal or has_tall_attribute(problem) else ""


def parted(problem: Problem, find: Find) -> Design | None:
    """The design of parts measured apart; None where they are one group, or some have no plan of their own.

    `find` plans a part by itself.
    """
    groups = _grouped(problem, _parts(problem), find)
    if sum(len(g.items) for g in groups) < len(problem.workload.items):
        return None
    if len(groups) == 1:
        return None
    return share_design("factorization", "", [g.piece for g in groups], problem.power, None, largest=problem.largest)


def _grouped(problem: Problem, parts: Sequence[Items], find: Find) -> list[Group]:
    """The parts, those of few queries joined with each other and with tables where that errs less; fewer where some
    have no plan."""
    rest = [g for g in (_group(problem, p, find) for p in parts if not _few(p)) if g is not None]
    few = [p for p in parts if _few(p)]
    several = _ordered(problem, [i for p in few for i in p]) if len(few) > 1 else ()
    hand = problem.power == 2 and not problem.largest
    tables = next((g for g in rest if all(i.is_marginal for i in g.items)), None)
    offer = None
    if hand and tables is not None and several and not all(i.is_marginal for i in several):
        offer = _offer(problem, tables, several, find)
        best = offer is not None and offer.both.best
        least = least_error(problem, several, offer.root - tables.root) if offer is not None and best else None
        if offer is not None and least is not None and offer.root < tables.root + least:
            # the best of these queries together, with no table, is not needed
            return [offer.both, *(offer.left if g is tables else g for g in rest)]
    # what is proved the best of parts together is no worse than any sharing between them
    together = _group(problem, several, find) if several else None
    if together is not None and together.best:
        groups = [together, *rest]
    else:
        alone = [g for g in (_group(problem, p, find) for p in few) if g is not None]
        groups, offer = [*rest, *(_joined(problem, alone, together, find) if len(alone) == len(few) else alone)], None
    return _handed(problem, groups, find, offer) if hand and len(groups) > 1 else groups


def _ordered(problem: Problem, items: Sequence[QueryBlock | QueryFamily]) -> Items:
    """As the workload has them; those that it has not, first."""
    order = {id(i): n for n, i in enumerate(problem.workload.items)}
    return tuple(sorted(items, key=lambda i: order.get(id(i), 0)))


def _parts(problem: Problem) -> list[Items]:
    """The items of each part; parts of marginal tables alone are one where residuals are best for all of them."""
    whole = problem.workload.items
    parts = [tuple(i for i in whole if i.part == n) for n in dict.fromkeys(i.part for i in whole)]
    if problem.power == 1 or problem.largest:
        return parts
    tables = [p for p in parts if not _few(p) and all(i.is_marginal for i in p)]
    together = tuple(i for p in tables for i in p)
    return [*([together] if together else []), *(p for p in parts if not any(p is t for t in tables))]


def _few(items: Items) -> bool:
    """Whether items may be joined with others."""
    blocks = [i for i in items if isinstance(i, QueryBlock)]
    return len(blocks) == len(items) <= _MOST_TABLES and sum(b.rows for b in blocks) <= _MOST_ROWS


def _joined(problem: Problem, few: list[Group], together: Group | None, find: Find) -> list[Group]:
    """Groups of few queries joined while that errs less: all at once where it does, else two by two."""
    if together is not None and together.root < sum(g.root for g in few):
        return [together]
    while len(few) > 1:
        tried: list[tuple[float, int, int, Group]] = []
        for (i, a), (j, b) in itertools.combinations(enumerate(few), 2):
            both = _group(problem, (*a.items, *b.items), find)
            if both is not None:
                tried.append((a.root + b.root - both.root, i, j, both))
        gain, i, j, both = max(tried, key=lambda t: t[0], default=(0.0, 0, 0, few[0]))
        if gain <= _GAIN * sum(g.root for g in few):
            break
        few = [*(g for k, g in enumerate(few) if k not in (i, j)), both]
    return few


def _handed(problem: Problem, groups: list[Group], find: Find, first: Offer | None) -> list[Group]:
    """The groups, after the tables among them have left to those of few queries what these know better.

    `first` is the offer to the group before all others, where it is known.
    """
    tables = next((g for g in groups if all(i.is_marginal for i in g.items)), None)
    out = list(groups)
    for k, few in enumerate(groups):
        if tables is None or few is tables or not _few(few.items):
            continue
        offer = first if k == 0 and first else _offer(problem, tables, few.items, find)
        if offer is not None and offer.root < tables.root + few.root:
            place = next(i for i, g in enumerate(out) if g is tables)
            out[place], out[k] = offer
            tables = offer.left
    return out


def _offer(problem: Problem, tables: Group, few: Items, find: Find) -> Offer | None:
    """What handing over the tables that few queries nearly know would come to; None where there are none of these."""
    rest, moved = _split(tables.items, nearly_known([i.block for i in few if isinstance(i, QueryBlock)]))
    left = _group(problem, rest, find) if moved and rest else None
    both = None if left is None else _group(problem, (*few, *moved), find)
    return None if left is None or both is None else Offer(left, both)


def _group(problem: Problem, items: Items, find: Find) -> Group | None:
    """The best design of some items by themselves."""
    whole = _ordered(problem, items)
    try:
        part = problem.part(whole)
        found = find(part, "factorization" if _few(items) else "marginals")
    except SfumatoError:
        return None
    if not found.plans:
        return None
    plan, design = min(zip(found.plans, found.designs, strict=True), key=lambda p: p[0].error_in(part))
    assert design is not None  # every plan of these searches has its design
    best = plan.bound is not None and plan.error_in(part) <= plan.bound * (1 + _NEAR)
    power = problem.power
    # at unit price and unit noise
    unit = float(plan.sensitivity.value - plan.cut**power) ** (2 / power)
    error = plan.weighted_squares(part) * unit
    change = exact_sensitivity(design.build(design.fine).blocks, problem.sizes, problem.unit, power, problem.measures)
    norm = float(change.value) ** (1 / power) / design.fine
    return Group(
        whole, piece_at_unit_price(design, error, norm), root_error(error, 1.0, power, largest=problem.largest), best
    )
