"""What a release hands out: single answers, intervals, and marginal tables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sfumato.errors import PlanError
from sfumato.ground.frames import Frame, Framed
from sfumato.operators.base import FloatArray, LinearOperator
from sfumato.plans import plots
from sfumato.workloads import Workload

__all__ = ["Batch", "Intervals", "Table", "answered", "heading", "reach", "rows_of"]

_COLUMNS = ("answer", "unprojected", "standard_error", "low", "high", "share", "probability", "quantile")


def heading(attribute: str) -> str:
    """A column's name for an attribute, which may be called like one of our own columns."""
    return f"{attribute} (attribute)" if attribute.casefold() in _COLUMNS else attribute


def reach(operator: LinearOperator, total: int | None) -> tuple[float, float]:
    """The least and the largest answer that nonnegative cells can give, of that total where it is known."""
    most = math.inf if total is None else total * operator.max_abs
    return (0.0 if operator.nonnegative else -most), most


def rows_of(work: Workload) -> dict[str, Any]:
    """Where every answer stands: its part and its label, as columns."""
    return {"part": [i.part for i in work.items for _ in range(i.rows)], "label": work.labels()}


def answered(where: Mapping[str, Sequence[Any]], **values: FloatArray | None) -> Frame:
    """Answers as columns beside what they answer; a column of None where there is no such number."""
    count = max(v.size for v in values.values() if v is not None)
    lists = {n: [None] * count if v is None else _known(v.reshape(-1).tolist()) for n, v in values.items()}
    return Frame({**where, **lists})


def _known(values: list[float]) -> list[float | None]:
    """What is not known is None: an end of an interval that nothing measured bounds."""
    return [None if v != v else v for v in values] if any(v != v for v in values) else [*values]


class Intervals(NamedTuple):
    """Interval ends, one per query, and the confidence they hold with."""

    low: FloatArray
    high: FloatArray
    confidence: float
    simultaneous: bool


class Batch(NamedTuple):
    """Some tables, or other blocks of queries, of one shape.

    attributes: one tuple of names per table; values: (tables, n_1, ..., n_k); standard_errors broadcasts to that, or is
    None for projected answers.
    """

    attributes: tuple[tuple[str, ...], ...]
    values: FloatArray
    standard_errors: FloatArray | None


@dataclass(frozen=True, slots=True, repr=False)
class Table(Framed):
    """A marginal table: arrays shaped by its attributes, `labels` one tuple of texts per attribute.

    `standard_errors` is None where the values are projected.

    >>> domain = sf.Domain({"age": 4, "sex": sf.Categories(["f", "m"])})
    >>> made = sf.plan(sf.identity(domain), sf.gdp(1), neighbours="add-remove")
    >>> cells = sf.release(made, sf.Histogram(np.full((4, 2), 9)), ledger=None, name="cells")
    >>> table = cells.table("sex")
    >>> table.labels, table.values.shape, table.standard_errors.round(6)
    ((('f', 'm'),), (2,), array([2., 2.]))
    """

    attributes: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    values: FloatArray
    standard_errors: FloatArray | None
    low: FloatArray
    high: FloatArray
    confidence: float
    of: str = "records"
    """What is counted; "counted records" where further ones of a person are left out."""

    def frame(self) -> Frame:
        """One row per cell."""
        cells = list(itertools.product(*self.labels))
        columns: dict[str, Sequence[Any]] = {heading(a): [c[i] for c in cells] for i, a in enumerate(self.attributes)}
        errors = self.standard_errors
        return answered(columns, answer=self.values, standard_error=errors, low=self.low, high=self.high)

    def plot(self) -> Any:
        """An Altair chart of the cells with their intervals, for one or two attributes (extra: plots).

        Raises PlanError for more attributes, MissingExtra where Altair is not installed.
        """
        if len(self.attributes) not in (1, 2):
            raise PlanError(f"a table over {len(self.attributes)} attributes has no simple picture; choose one or two")
        return plots.cells(self.frame(), [heading(a) for a in self.attributes], self.of)

    def __repr__(self) -> str:
        return str(self.frame())

    def _repr_html_(self) -> str:
        return self.frame().to_html()
