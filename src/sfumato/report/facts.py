"""What a plan says, as plain values: for the page and for programs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sfumato.frames import safe_text
from sfumato.plans import Plan
from sfumato.workloads import QueryBlock, Workload

__all__ = ["Family", "above_bound", "families", "family_name", "plan_facts", "sensitivity_text"]


@dataclass(frozen=True, slots=True)
class Family:
    """One table or family of queries with its predicted errors; `order` is its number of attributes."""

    name: str
    part: str
    order: int
    queries: int
    unit: str
    rmse: float
    worst: float
    margin: float

    @property
    def smallest(self) -> int:
        """The smallest count whose standard error is at most a fifth of it."""
        return math.ceil(self.worst * 5)


def family_name(query: QueryBlock, workload: Workload) -> str:
    """A short name for a table, or the text of a single query."""
    if query.is_marginal and query.attributes:
        return safe_text(" × ".join(query.attributes))
    if query.rows == 1:
        return safe_text(next(iter(workload.block_labels(query))))
    return safe_text(f"{query.part}: {' × '.join(query.attributes)}")


def families(plan: Plan, part: str | None = None) -> list[Family]:
    """Every block of queries with its errors, in the order of the workload."""
    table = plan.errors(0.95)
    errors = zip(table["rmse"], table["worst_standard_error"], table["margin"], strict=True)
    return [
        Family(family_name(q, plan.workload), safe_text(q.part), len(q.attributes), q.rows, safe_text(q.unit), *numbers)
        for q, numbers in zip(plan.workload.blocks, errors, strict=True)
        if part in (None, q.part)
    ]


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


def plan_facts(plan: Plan) -> dict[str, Any]:
    """A plan as JSON values: what is asked, measured and paid, and every predicted error."""
    k, m = plan.workload.shape
    known = plan.facts()
    known["mechanism"] |= {"values": sum(b.rows for b in plan.strategy.blocks), "notes": list(plan.notes)}
    known["error"]["above_bound"] = above_bound(plan)
    return {
        "format": "sfumato plan 1",
        "queries": k,
        "cells": str(m),
        **known,
        "families": plan.errors(0.95).rows(),
        "candidates": plan.candidates.rows(),
    }
