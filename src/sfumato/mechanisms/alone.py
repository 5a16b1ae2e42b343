"""What the tables of one part and order would err if they had the whole budget: against which a plan is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sfumato.errors import SfumatoError
from sfumato.plans.plan import Plan
from sfumato.plans.predictions import Alone
from sfumato.strategies.design import Problem
from sfumato.workloads import QueryBlock, QueryFamily, Workload

__all__ = ["alone"]


_MOST_LINES = 24  # as many as a page shows
_MOST_CELLS = 2**17  # of one factor, above which a plan takes longer than reading it


def alone(problem: Problem, find: Callable[[Problem], Sequence[Plan]]) -> tuple[Alone, ...]:
    """One line per part, order and unit; none where there is one line, or more than a page shows.

    `find` gives the plans that apply. Lines that no mechanism serves by itself, or not in good time, have no error.
    """
    lines: dict[tuple[str, int, str], list[QueryBlock | QueryFamily]] = {}
    for item in problem.workload.items:
        lines.setdefault((item.part, item.order, item.unit), []).append(item)
    if not 1 < len(lines) <= _MOST_LINES:
        return ()
    return tuple(Alone(*key, _error(problem, items, find)) for key, items in lines.items())


def _error(
    problem: Problem, items: Sequence[QueryBlock | QueryFamily], find: Callable[[Problem], Sequence[Plan]]
) -> float | None:
    if any(f.shape[1] > _MOST_CELLS for i in items for f in i.factors):
        return None
    try:
        found = find(replace(problem, workload=Workload(problem.workload.domain, tuple(items))))
        return min(found, key=lambda p: p.objective_value).mean_error if found else None
    except SfumatoError:
        return None
