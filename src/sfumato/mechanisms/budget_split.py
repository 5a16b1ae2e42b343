"""Parts of a workload each by the best design of its own, the budget shared between them; parts that gain, together.

With E_i the weighted squared errors of part i at the whole budget, Gaussian noise shared at its best errs by
(Σ √E_i)² in all, Laplace noise by (Σ E_i^(1/3))³. What is proved of parts answered together is proved of them alone, so
this is tried beside every joint design, and parts of few queries are joined where their joint design errs less.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from sfumato.errors import SfumatoError
from sfumato.mechanisms.tables import Tried
from sfumato.operators import Block, Family
from sfumato.plans.plan import Plan
from sfumato.strategies.certificates import sensitivity
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.geography_planning import tall
from sfumato.strategies.merged_planning import least_error
from sfumato.strategies.merged_rows import nearly_known
from sfumato.strategies.stacked import Piece, levelled, share_design
from sfumato.strategies.strategy import Strategy
from sfumato.workloads import QueryBlock, QueryFamily, Workload

__all__ = ["Group", "Items", "Offer", "offered", "parted"]


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


_MOST_PARTS = 12  # each is planned by itself
_MOST_TABLES = 64  # of parts that may be joined: each join is planned
_MOST_ROWS = 2_048  # queries of the same
_GAIN = 1e-4  # relative, of what is worth another design
_NEAR = 1e-3  # of the best plan from its bound: nothing is left to gain

Find = Callable[[Problem, str], Tried]
"""The plans of a part by itself; the mechanism named first is tried first, and may prove that no other is needed."""


def parted(problem: Problem, plans: Sequence[Plan], find: Find) -> Design | None:
    """The design of parts measured apart; None where nothing is to be gained by it. `find` plans a part by itself."""
    names = dict.fromkeys(i.part for i in problem.workload.items)
    best = min(plans, key=lambda p: p.objective_value, default=None)
    bounds = [p.bound for p in plans if p.bound is not None]
    met = best is not None and bool(bounds) and best.objective_value <= max(bounds) * (1 + _NEAR)
    alike = all(i.is_marginal for i in problem.workload.items)
    if not 1 < len(names) <= _MOST_PARTS or met or alike or problem.known or problem.unit_lattice:
        return None
    if tall(problem):
        # levels together are the point of their design
        return None
    groups = _grouped(problem, _parts(problem), find)
    if sum(len(g.items) for g in groups) < len(problem.workload.items):
        return None
    if len(groups) == 1:
        return None
    return share_design("factorization", "", [g.piece for g in groups], _power(problem), None, largest=problem.largest)


def _grouped(problem: Problem, parts: Sequence[Items], find: Find) -> list[Group]:
    """The parts, those of few queries joined with each other and with tables where that errs less; fewer where some
    have no plan."""
    rest = [g for g in (_group(problem, p, find) for p in parts if not _few(p)) if g is not None]
    few = [p for p in parts if _few(p)]
    several = _ordered(problem, [i for p in few for i in p]) if len(few) > 1 else ()
    hand = _power(problem) == 2 and not problem.largest
    tables = next((g for g in rest if all(i.is_marginal for i in g.items)), None)
    offer = None
    if hand and tables is not None and several and not all(i.is_marginal for i in several):
        offer = _offer(problem, tables, several, find)
        least = None if offer is None or not offer.both.best else least_error(problem, several)
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
    if _power(problem) == 1 or problem.largest:
        return parts
    tables = [p for p in parts if not _few(p) and all(i.is_marginal for i in p)]
    together = tuple(i for p in tables for i in p)
    return [*([together] if together else []), *(p for p in parts if not any(p is t for t in tables))]


def _few(items: Items) -> bool:
    """Whether items may be joined with others."""
    blocks = [i for i in items if isinstance(i, QueryBlock)]
    return len(blocks) == len(items) <= _MOST_TABLES and sum(b.rows for b in blocks) <= _MOST_ROWS


def _power(problem: Problem) -> int:
    return 1 if problem.noise == "laplace" else 2


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
    return offered(problem, tables.items, few, lambda items, scales: _group(problem, items, find, scales))


def _group(problem: Problem, items: Items, find: Find, scales: Mapping[str, float] | None = None) -> Group | None:
    """The best design of some items by themselves; `scales` say by part how many times as much their tables count."""
    whole = _ordered(problem, items)
    try:
        part = replace(problem, workload=Workload(problem.workload.domain, whole))
        found = find(part, "factorization" if _few(items) else "marginals")
    except SfumatoError:
        return None
    if not found.plans:
        return None
    plan, design = min(zip(found.plans, found.designs, strict=True), key=lambda p: p[0].objective_value)
    best = plan.bound is not None and plan.objective_value <= plan.bound * (1 + _NEAR)
    power = _power(problem)
    weighted = [(problem.table_weights(e.item) * (scales or {}).get(e.item.part, 1.0), e) for e in plan.entries]
    # at unit price and unit noise
    unit = float(plan.sensitivity.value - plan.cut**power) ** (2 / power)
    if problem.largest:
        error = levelled(max(float((w * e.by_table()[1]).max()) for w, e in weighted) * unit, 1.0, power)
    else:
        error = sum(e.weighted(w) for w, e in weighted) * unit
    change = sensitivity(design.build(design.fine).blocks, problem.sizes, problem.unit, power)
    norm = float(change.value) ** (1 / power) / design.fine
    build = functools.partial(_scaled, design.build, 1 / norm)
    piece = Piece(build, error, 1.0, design.fine * norm)
    return Group(whole, piece, error ** (1 / (1 + 2 / power)), best)


def _scaled(build: Callable[[float], Strategy], unit: float, s: float) -> Strategy:
    return build(s * unit)
