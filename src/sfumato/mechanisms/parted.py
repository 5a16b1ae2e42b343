"""Parts of a workload each by the best design of its own, the budget shared between them; parts that gain, together.

With E_i the weighted squared errors of part i at the whole budget, Gaussian noise shared at its best errs by
(Σ √E_i)² in all, Laplace noise by (Σ E_i^(1/3))³. What is proved of parts answered together is proved of them alone, so
this is tried beside every joint design, and parts of few queries are joined where their joint design errs less.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sfumato.designs.design import Design, Problem
from sfumato.designs.pieces import Piece, levelled, share_design
from sfumato.designs.pricing.sensitivity import sensitivity
from sfumato.designs.spine.planning import tall
from sfumato.designs.strategy import Strategy
from sfumato.errors import SfumatoError
from sfumato.mechanisms.handing import Group, Items, handed_over
from sfumato.mechanisms.tables import Tried
from sfumato.plans.plan import Plan
from sfumato.workloads import QueryBlock, Workload

__all__ = ["parted"]

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
    parts = _parts(problem)
    # what is proved the best of parts together is no worse than any sharing between them
    few = [p for p in parts if _few(p)]
    together = _group(problem, tuple(i for p in few for i in p), find) if len(few) > 1 else None
    proved = together is not None and together.best
    rest = [_group(problem, p, find) for p in parts if not (proved and p in few)]
    groups = [g for g in [together if proved else None, *rest] if g is not None]
    if sum(len(g.items) for g in groups) < len(problem.workload.items):
        return None
    if not proved:
        groups = _joined(problem, groups, together, find)
    if len(groups) == 1:
        return None
    if _power(problem) == 2 and not problem.largest:
        groups = _handed(problem, groups, find)
    return share_design("factorization", "", [g.piece for g in groups], _power(problem), None, largest=problem.largest)


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


def _joined(problem: Problem, groups: list[Group], together: Group | None, find: Find) -> list[Group]:
    """Groups of few queries joined while that errs less: all at once where it does, else two by two."""
    few = [g for g in groups if _few(g.items)]
    rest = [g for g in groups if not _few(g.items)]
    if together is not None and together.root < sum(g.root for g in few):
        return [*rest, together]
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
    return [*rest, *few]


def _handed(problem: Problem, groups: list[Group], find: Find) -> list[Group]:
    """The groups, after the tables among them have left to those of few queries what these know better."""
    tables = next((g for g in groups if all(i.is_marginal for i in g.items)), None)
    out = list(groups)
    for k, few in enumerate(groups):
        if tables is not None and few is not tables and _few(few.items):
            place = next(i for i, g in enumerate(out) if g is tables)
            out[place], out[k] = handed_over(problem, tables, few, lambda i, s: _group(problem, i, find, s))
            tables = out[place]
    return out


def _group(problem: Problem, items: Items, find: Find, scales: Mapping[str, float] | None = None) -> Group | None:
    """The best design of some items by themselves; `scales` say by part how many times as much their tables count."""
    order = {id(i): n for n, i in enumerate(problem.workload.items)}
    whole = sorted(items, key=lambda i: order.get(id(i), 0))
    try:
        part = replace(problem, workload=Workload(problem.workload.domain, tuple(whole)))
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
    unit = float(plan.sensitivity.value) ** (2 / power)
    if problem.largest:
        error = levelled(max(float((w * e.by_table()[1]).max()) for w, e in weighted) * unit, 1.0, power)
    else:
        error = sum(e.weighted(w) for w, e in weighted) * unit
    change = sensitivity(design.build(design.fine).blocks, problem.sizes, problem.unit, power)
    norm = float(change.value) ** (1 / power) / design.fine
    build = functools.partial(_scaled, design.build, 1 / norm)
    piece = Piece(build, error, 1.0, design.fine * norm)
    return Group(tuple(whole), piece, error ** (1 / (1 + 2 / power)), best)


def _scaled(build: Callable[[float], Strategy], unit: float, s: float) -> Strategy:
    return build(s * unit)
