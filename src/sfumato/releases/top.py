"""The largest groups of a release: which cells of an attribute have the most records, and of which that is sure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato._util.frames import Frame
from sfumato.errors import InvalidInput
from sfumato.operators.base import FloatArray
from sfumato.releases.ends import column_heading
from sfumato.releases.tables import answers_frame

if TYPE_CHECKING:
    from sfumato.releases.release import Release

SURELY = "surely among the first"


def top_cells(release: Release, attribute: str, count: int, confidence: float) -> Frame:
    """See `Release.top`."""
    if type(count) is not int or count < 1:
        raise InvalidInput(f"the number of labels must be a whole number from 1 on, not {count!r}")
    release.plan.workload.domain.check_counted([attribute])
    table = release.table(attribute, confidence=confidence, simultaneous=True)
    declared = release.plan.workload.domain[attribute]
    cells = declared.declared_size
    beyond = float(table.high[-1]) if declared.has_other else 0.0
    sure = _surely_first(table.low[:cells], table.high[:cells], beyond, count)
    first = np.argsort(-table.values[:cells], kind="stable")[:count]
    columns: dict[str, Any] = {
        column_heading(attribute): [table.labels[0][i] for i in first.tolist()],
    }
    errors = None if table.standard_errors is None else table.standard_errors[first]
    found = answers_frame(
        columns, answer=table.values[first], standard_error=errors, low=table.low[first], high=table.high[first]
    )
    return Frame({**{name: list(found[name]) for name in found.columns}, SURELY: [bool(x) for x in sure[first]]})


def _surely_first(low: FloatArray, high: FloatArray, beyond: float, count: int) -> Any:
    """Whether each cell is one of the `count` largest whatever the counts are within their intervals.

    Others may have as many where their upper end is not below the cell's lower end. Of labels that have no cell of
    their own at most `beyond` records are there together, so few of them can have as many as that lower end each.
    """
    ends = np.sort(high)
    rivals = len(high) - 1 - np.searchsorted(ends, low, side="left")
    unseen = [0 if beyond <= 0 else math.floor(beyond / x) if x > 0 else math.inf for x in low.tolist()]
    return rivals + np.array(unseen) < count
