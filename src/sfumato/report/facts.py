"""What a plan says, as plain values: for the page and for programs."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

from sfumato.ground.frames import safe_text
from sfumato.plans.iterative import IterativePlan
from sfumato.plans.plan import Plan
from sfumato.plans.streams import StreamPlan
from sfumato.workloads import RECORDS, QueryBlock, QueryFamily, Workload
from sfumato.workloads.levels import family_names, names_asked, table_names

__all__ = ["Family", "above_bound", "families", "family_name", "plan_facts", "sensitivity_text"]


@dataclass(frozen=True, slots=True)
class Family:
    """One table or family of queries with its predicted errors; `order` is its number of attributes.

    `attributes` are the names of a table's axes, none for queries that are no table.
    """

    name: str
    part: str
    order: int
    queries: int
    unit: str
    rmse: float
    worst: float
    margin: float
    attributes: tuple[str, ...] = ()

    @property
    def smallest(self) -> int | None:
        """The smallest count whose standard error is at most a fifth of it; None where no error is known."""
        return math.ceil(self.worst * 5) if math.isfinite(self.worst) else None


def family_name(query: QueryBlock, workload: Workload) -> str:
    """A short name for a table, or the text of a single query."""
    names = table_names(workload.domain, query.block)
    if names and query.unit == RECORDS:
        return safe_text(" × ".join(names))
    if query.rows == 1:
        return safe_text(next(iter(workload.block_labels(query))))
    return safe_text(f"{query.part}: {' × '.join(names_asked(workload.domain, query.block))}")


def families(plan: Plan, part: str | None = None) -> list[Family]:
    """Every block of queries with its errors, in the order of the workload."""
    table = plan.errors(0.95)
    numbers = iter(zip(table["rmse"], table["worst_standard_error"], table["margin"], strict=True))
    found: list[Family] = []
    for e in plan.entries:
        item = e.item
        named = _named(plan, item)
        shared = safe_text(item.part), e.order
        errors = itertools.islice(numbers, len(named))
        for (name, axes), queries, own in zip(named, e.cells().tolist(), errors, strict=True):
            if part in (None, item.part):
                found.append(Family(name, *shared, queries, safe_text(item.unit), *own, axes))
    return found


def _named(plan: Plan, item: QueryBlock | QueryFamily) -> list[tuple[str, tuple[str, ...]]]:
    """The name of every table or block of queries, and of a table's axes."""
    domain = plan.workload.domain
    if isinstance(item, QueryBlock):
        axes = (table_names(domain, item.block) or ()) if item.unit == RECORDS else ()
        return [(family_name(item, plan.workload), tuple(map(safe_text, axes)))]
    tables = [tuple(map(safe_text, names)) for names in family_names(domain, item.family)]
    return [(" × ".join(names) or "total", names) for names in tables]


def above_bound(plan: Plan) -> float | None:
    """How far the plan's objective lies above the proved lower bound, as a share; None where none is known."""
    if plan.lower_bound is None or plan.lower_bound <= 0:
        return None
    return max(0.0, plan.objective_value / plan.lower_bound - 1)


def sensitivity_text(plan: Plan) -> str:
    """How much one privacy unit can change the measured values, and how that is known."""
    found = plan.sensitivity
    size = float(found.value) if found.power == 1 else math.sqrt(float(found.value))
    proof = "computed exactly in integers" if found.exact else "a proved upper bound"
    return f"{'L1' if found.power == 1 else 'L2'} {size:,.6g} on the integer lattice, {proof}"


def plan_facts(plan: Plan | IterativePlan | StreamPlan) -> dict[str, Any]:
    """A plan as JSON values: what is asked, measured and paid, and every predicted error."""
    k, m = plan.workload.shape
    known = plan.facts()
    asked = {"format": "sfumato plan 1", "queries": k, "cells": str(m)}
    if isinstance(plan, IterativePlan):
        return {**asked, **known, "candidates": plan.candidates.rows()}
    if isinstance(plan, StreamPlan):
        over = {question: plan.errors(0.95, question).rows() for question in plan.QUESTIONS}
        return {**asked, **known, "over_time": over, "families": plan.at().errors(0.95).rows()}
    known["mechanism"] |= {"values": sum(b.rows for b in plan.strategy.blocks), "notes": list(plan.notes)}
    known["error"]["above_bound"] = above_bound(plan)
    return {
        **asked,
        **known,
        "families": plan.errors(0.95).rows(),
        "candidates": plan.candidates.rows(),
    }
