"""What a mechanism is asked to plan for, and what it proposes before that is scaled to a budget."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import storable
from sfumato._util.frames import Frame
from sfumato.errors import PlanError
from sfumato.operators import Block, Identity, LinearOperator, Total
from sfumato.operators.base import FloatArray
from sfumato.privacy.budget import Budget
from sfumato.privacy.unit import PrivacyUnit
from sfumato.strategies.calibration import NoiseName
from sfumato.strategies.same_column import SameColumn, same_columns
from sfumato.strategies.strategy import Known, KnownGroups, Strategy
from sfumato.workloads import RECORDS, QueryBlock, QueryFamily, Workload

OBJECTIVES = ("tables", "cells", "max")
"""What a plan may minimise.

"tables": the mean over parts of the mean over their tables of the mean over their queries of the variance, each in the
largest coefficient of its table; "cells": the mean over all queries; "max": the largest standard error.
"""

DEFAULT_OBJECTIVE = "tables"

_MOST_COMPARED = 2**24  # entries of a factor whose columns are compared: 128 MB
_LISTED = 2**22  # entries of a factor up to which its extremes are looked up


def read_objective(given: object) -> str:
    """An objective by its name. Raises PlanError."""
    if not isinstance(given, str) or given not in OBJECTIVES:
        raise PlanError(f"objective must be 'tables', 'cells' or 'max', not {given!r}")
    return given


def _number_by_first(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same partition, numbered as its parts first occur: cells of levels are then asked one by one."""
    _, first, which = np.unique(codes, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first)).astype(np.int64)[which]


@dataclass(frozen=True)
class Problem:
    """What a mechanism is asked to plan for; all of it public."""

    workload: Workload
    budget: Budget
    unit: PrivacyUnit
    noise: NoiseName
    objective: str = DEFAULT_OBJECTIVE
    records: int | None = None
    unit_lattice: bool = False
    known: tuple[Known | KnownGroups, ...] = ()
    whole: Problem | None = None
    """The problem that this one is a part of, by which its tables weigh; None where it is the whole."""

    def part(self, items: Sequence[QueryBlock | QueryFamily]) -> Problem:
        """The problem of some items alone, whose tables weigh as they do here."""
        return replace(self, workload=Workload(self.workload.domain, tuple(items)), whole=self.whole or self)

    def is_known(self, names: Iterable[str]) -> bool:
        """Whether the joint table of these attributes is public."""
        if not self.known:
            return False
        axes = {self.workload.domain.axis(a) for a in names}
        return any(axes <= set(k.axes) for k in self.known)

    def are_totals(self, block: Block) -> bool:
        """Whether all that a block asks is public totals of groups, or sums of them."""
        names = self.workload.domain.names
        groups = [k for k in self.known if isinstance(k, KnownGroups)]
        return any(block.groups == ((names[k.axis],),) and k.settles(block.factors[0]) for k in groups)

    @functools.cached_property
    def sizes(self) -> dict[str, int]:
        """Number of cells of every attribute."""
        return {n: a.size for n, a in self.workload.domain.attributes.items()}

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures that some query sums."""
        return self.workload.measures

    @functools.cached_property
    def same(self) -> tuple[SameColumn, ...]:
        """The measures that some query sums and that read the column of an attribute that some query names.

        None where the attribute groups rows of a person, or records are replaced within its cells.
        """
        if not self.measures:
            return ()
        asked = {a for i in self.workload.items for a in i.attributes}.difference(self.unit.once_per)
        if self.unit.within is not None:
            asked.discard(self.unit.within.attribute)
        return tuple(s for s in same_columns(self.workload.domain.grid) if {s.attribute, s.measure} <= asked)

    @functools.cached_property
    def merged_cells(self) -> dict[str, NDArray[np.int64]]:
        """Of attributes of which no query tells some cells apart, which of the merged cells each cell is in."""
        codes = dict[str, NDArray[np.int64]]()
        # a measure's own cells are never merged, and of those that group a person's rows each has few of them
        apart = {*self.measures, *self.unit.once_per}
        for query in self.workload.blocks:
            for group, factor in zip(query.block.groups, query.block.factors, strict=True):
                if isinstance(factor, Total) or apart.issuperset(group):
                    continue
                if isinstance(factor, Identity) or apart & set(group) or math.prod(factor.shape) > _MOST_COMPARED:
                    apart |= set(group)
                    continue
                table = factor.dense().reshape(-1, *(self.sizes[a] for a in group))
                for axis, a in enumerate(group, 1):
                    columns = np.moveaxis(table, axis, 0).reshape(table.shape[axis], -1)
                    before = codes.get(a, np.zeros(len(columns), dtype=np.int64))
                    both = np.column_stack([before, np.unique(columns, axis=0, return_inverse=True)[1]])
                    codes[a] = np.unique(both, axis=0, return_inverse=True)[1].reshape(-1)
        return {a: _number_by_first(c) for a, c in codes.items() if a not in apart and int(c.max()) + 1 < len(c)}

    @property
    def products(self) -> list[tuple[float, dict[str, LinearOperator]]] | None:
        """Every block's weight in the objective and its factors by attribute; None where a factor joins several."""
        found = [(self.objective_weight(q), q.block.by_attribute()) for q in self.workload.blocks]
        whole = [(weight, factors) for weight, factors in found if factors is not None]
        return whole if len(whole) == len(found) else None

    @property
    def power(self) -> Literal[1, 2]:
        """Of the norm in which a strategy's change is priced: 2 for Gaussian noise, 1 for Laplace noise."""
        return 1 if self.noise == "laplace" else 2

    @functools.cached_property
    def is_marginal(self) -> bool:
        """Whether all queries are the cells of marginal tables."""
        return all(item.is_marginal for item in self.workload.items)

    @property
    def largest(self) -> bool:
        """Whether the largest error is to be small rather than a mean."""
        return self.objective == "max"

    @functools.cached_property
    def total_weight(self) -> float:
        """By how much the sum of weighted variances exceeds their mean.

        Where all answers have one unit, the mean is in that unit; else in records, sums in their largest coefficient.
        """
        several = len(self.workload.units) > 1
        total = 0.0
        for item in self.workload.items:
            each = self.table_weights(item) * (self._coefficients(item) ** 2 if several else 1.0)
            rows = item.family.rows_each if isinstance(item, QueryFamily) else item.rows
            counted = each * rows
            total += math.fsum(counted[~self._settled(item)] if self.objective == "tables" else counted)
        # where nothing is left to be measured there is no mean
        return total or 1.0

    def objective_weight(self, query: QueryBlock) -> float:
        """The weight of the squared errors of one table's queries; sums in their largest coefficient.

        Under "tables" parts weigh alike, tables alike within a part, queries alike within a table; the queries of one
        table alone have the weight that was asked for it.
        """
        return float(self.table_weights(query)[0])

    def table_weights(self, item: QueryBlock | QueryFamily) -> FloatArray:
        """(tables,) `objective_weight` of every table of an item."""
        weights = float(item.weight) / self._coefficients(item) ** 2
        if self.objective != "tables":
            return weights
        rows = item.family.rows_each if isinstance(item, QueryFamily) else item.rows
        return weights * (self.table_share(item.part) / rows)

    def table_share(self, part: str) -> float:
        """What each table of a part weighs under "tables", the mean over all queries being 1: parts weigh alike, and
        tables alike within them. Nowhere else is that rule applied."""
        if self.whole is not None:
            return self.whole.table_share(part)
        return len(self.workload) / (len(self._tables) * max(1, self._tables[part]))

    @property
    def joint_weight(self) -> float:
        """What the sum of weighted variances is multiplied by beside those of other workloads: parts weigh alike."""
        return len(self._tables) / len(self.workload) if self.objective == "tables" else 1.0

    @functools.cached_property
    def _tables(self) -> Counter[str]:
        """Per part how many tables are to be measured: none that is all zeros or public."""
        counts: Counter[str] = Counter()
        for item in self.workload.items:
            measured = int((~self._settled(item)).sum())
            if measured:
                counts[item.part] += measured
        return counts or Counter(i.part for i in self.workload.items)

    def _settled(self, item: QueryBlock | QueryFamily) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """(tables,) which tables have no error: those that are public, and those of zeros."""
        free = self.unit.total_is_public
        if isinstance(item, QueryBlock):
            empty = item.block.operator.max_abs == 0
            known = (free and not item.attributes) or self.is_known(item.attributes) or self.are_totals(item.block)
            return np.array([empty or known])
        out = np.full(len(item.family), free and item.family.order == 0)
        if self.known:
            out |= np.array([self.is_known(b.attributes) or self.are_totals(b) for b in item.family.blocks()])
        return out

    def _coefficients(self, item: QueryBlock | QueryFamily) -> FloatArray:
        """(tables,) what errors are divided by before they are compared; records are not, unless tables are."""
        if self.objective != "tables" and item.unit == RECORDS:
            return np.ones(len(item.family) if isinstance(item, QueryFamily) else 1)
        if isinstance(item, QueryBlock):
            return np.array([self._largest_coefficient(item.block)])
        if all(item.family.factors[i].binary for i in np.unique(item.family.sets).tolist()):
            return np.ones(len(item.family))
        return np.array([self._largest_coefficient(b) for b in item.family.blocks()])

    def _largest_coefficient(self, block: Block) -> float:
        """The largest absolute entry; where records are replaced and tables compared, the largest less the smallest."""
        if all(f.binary for f in block.factors):
            return 1.0
        top = max(float(block.operator.max_abs), 1e-300)
        if self.objective != "tables" or not self.unit.total_is_public:
            return top
        low, high = 1.0, 1.0
        for f in block.factors:
            ends = [a * b for a in (low, high) for b in _entry_extremes(f)]
            low, high = min(ends), max(ends)
        return high - low or top

    def stated_weight(self, item: QueryBlock | QueryFamily) -> float:
        """The weight that was asked for an item's squared errors, sums in their largest coefficient."""
        if isinstance(item, QueryFamily) or item.unit == RECORDS:
            return float(item.weight)
        return float(item.weight) / max(float(item.block.operator.max_abs), 1e-300) ** 2


def _entry_extremes(operator: LinearOperator) -> tuple[float, float]:
    """The smallest and the largest entry, or what they lie between where the entries are too many to list."""
    if not operator.binary and math.prod(operator.shape) <= _LISTED:
        dense = np.asarray(operator.dense(), dtype=np.float64)
        return float(dense.min()), float(dense.max())
    top = float(operator.max_abs)
    return (0.0 if operator.nonnegative else -top), top


@storable
@dataclass(frozen=True, slots=True)
class Candidate:
    """One line of the comparison: what was considered, what it would give, or why it does not apply.

    `value` is the plan's objective_value, by which candidates are compared.
    """

    mechanism: str
    strategy: str
    rmse: float | None
    max_standard_error: float | None
    note: str = ""
    value: float | None = None


def candidate_table(considered: Iterable[Candidate]) -> Frame:
    """One row per candidate."""
    lines = tuple(considered)
    return Frame(
        {
            "mechanism": [c.mechanism for c in lines],
            "strategy": [c.strategy for c in lines],
            "rmse": [c.rmse for c in lines],
            "max_standard_error": [c.max_standard_error for c in lines],
            "objective_value": [c.value for c in lines],
            "note": [c.note for c in lines],
        }
    )


@dataclass(frozen=True, slots=True)
class Design:
    """A way to answer a workload before it is scaled to a budget.

    `build(s)` gives the integer strategy with coefficients multiplied by s; `fine` is the s from which
    rounding does no harm; `bound` a proved lower bound at noise multiplier 1 for any unbiased
    reconstruction from additive Gaussian noise, if one is known: on sqrt(sum of weighted variances) for
    the objective "mean", on sqrt(largest weighted variance) for "max". It is of one row, which r rows of a person scale
    by r; with `grouped`, of a person whose rows are counted once per group.
    """

    mechanism: str
    build: Callable[[float], Strategy]
    fine: float
    bound: float | None = None
    notes: tuple[str, ...] = ()
    grouped: bool = False
