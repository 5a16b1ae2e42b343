"""Before and after a projection, by what was asked: how far answers moved, from what is public alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sfumato.operators.base import FloatArray
from sfumato.workloads import RECORDS
from sfumato.workloads.levels import table_names

if TYPE_CHECKING:
    from sfumato.releases.core import Release

__all__ = ["Shift", "before_and_after", "shifts"]

_CONFIDENCE = 0.95  # the usual one, so that shifts are told in the intervals that were printed
_MANY = 0.01  # of answers: a fifth of what chance alone lets leave the intervals of the truth
_MOST = 50_000_000  # answers: four arrays of 400 MB


@dataclass(frozen=True, slots=True)
class Shift:
    """Queries of one kind: tables of an order, or a part that asks something else.

    moved: root mean squared change, in standard errors of the unprojected answers (0 where they have none).
    outside: how many answers left their unprojected 95 % intervals.
    """

    name: str
    queries: int
    moved: float
    outside: int

    @property
    def many(self) -> bool:
        """Whether one answer in a hundred left its interval."""
        return self.outside >= _MANY * self.queries and self.outside > 0

    def describe(self) -> str:
        """In words."""
        left = "none left" if not self.outside else f"{self.outside:,} of {self.queries:,} left"
        whose = "the interval" if self.queries == 1 else "their intervals"
        return f"moved by {self.moved:.2f} standard errors; {left} {whose} from before"


def shifts(release: Release) -> list[Shift]:
    """For a projected release: the total, tables by their number of attributes, then every other part."""
    widths = release.plan.half_widths(_CONFIDENCE, release.part)
    errors = release.plan.standard_errors(release.part)
    away = np.abs(release.answers - release.raw.answers)
    # a little room for rounding, where an answer was known beforehand
    left = away > widths + 1e-9 * np.maximum(np.abs(release.raw.answers), 1.0)
    steps = np.divide(away, errors, out=np.zeros_like(away), where=(errors > 0) & np.isfinite(errors))
    return [_shift(name, rows, steps, left) for name, rows in _kinds(release).items()]


def before_and_after(release: Release) -> list[str]:
    """The same as lines of text, with a warning where many answers left their intervals."""
    if len(release.workload) > _MOST:
        return []
    found = shifts(release)
    width = max(len(s.name) for s in found)
    lines = [f"    {s.name:{width}}  {s.describe()}" for s in found]
    if any(s.many for s in found):
        lines.append("  careful: one answer in a hundred or more left its unprojected interval; read those beside them")
    return lines


def _shift(name: str, rows: NDArray[np.intp], steps: FloatArray, left: NDArray[np.bool_]) -> Shift:
    return Shift(name, len(rows), math.sqrt(float(np.mean(steps[rows] ** 2))), int(left[rows].sum()))


def _kinds(release: Release) -> dict[str, NDArray[np.intp]]:
    domain = release.plan.workload.domain
    tables: dict[int, list[NDArray[np.intp]]] = {}
    others: dict[str, list[NDArray[np.intp]]] = {}
    start = 0
    for q in release.workload.blocks:
        rows = np.arange(start, start + q.rows)
        start += q.rows
        if q.is_marginal or (q.unit == RECORDS and table_names(domain, q.block) is not None):
            tables.setdefault(len(q.attributes), []).append(rows)
        else:
            others.setdefault(q.part, []).append(rows)
    named = {_order(k): np.concatenate(v) for k, v in sorted(tables.items())}
    return named | {f"{k!r}": np.concatenate(v) for k, v in others.items()}


def _order(count: int) -> str:
    return {0: "the total", 1: "tables of one attribute"}.get(count, f"tables of {count} attributes")
