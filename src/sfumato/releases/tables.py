"""What a release hands out: single answers, intervals, and marginal tables."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sfumato.errors import PlanError
from sfumato.frames import Frame, package
from sfumato.operators.base import FloatArray

__all__ = ["Answer", "Batch", "Intervals", "Table"]


class Answer(NamedTuple):
    """One answer: its value, standard error, and the ends of its interval."""

    value: float
    standard_error: float
    low: float
    high: float


class Intervals(NamedTuple):
    """Interval ends, one per query, and the confidence they hold with."""

    low: FloatArray
    high: FloatArray
    confidence: float
    simultaneous: bool


class Batch(NamedTuple):
    """Some tables, or other blocks of queries, of one shape.

    attributes: one tuple of names per table; values: (tables, n_1, ..., n_k); standard_errors broadcasts to that.
    """

    attributes: tuple[tuple[str, ...], ...]
    values: FloatArray
    standard_errors: FloatArray


@dataclass(frozen=True, slots=True, repr=False)
class Table:
    """A marginal table: arrays shaped by its attributes, `labels` one tuple of texts per attribute."""

    attributes: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    values: FloatArray
    standard_errors: FloatArray
    low: FloatArray
    high: FloatArray
    confidence: float

    def frame(self) -> Frame:
        """One row per cell."""
        cells = list(itertools.product(*self.labels))
        columns: dict[str, Sequence[Any]] = {a: [c[i] for c in cells] for i, a in enumerate(self.attributes)}
        numbers = (
            ("answer", self.values),
            ("standard_error", self.standard_errors),
            ("low", self.low),
            ("high", self.high),
        )
        return Frame(columns | {n: v.reshape(-1).tolist() for n, v in numbers})

    def to_pandas(self) -> Any:
        """A pandas DataFrame, one row per cell."""
        return self.frame().to_pandas()

    def to_polars(self) -> Any:
        """A polars DataFrame, one row per cell."""
        return self.frame().to_polars()

    def to_arrow(self) -> Any:
        """A pyarrow Table, one row per cell."""
        return self.frame().to_arrow()

    def plot(self) -> Any:
        """An Altair chart of the cells with their intervals, for one or two attributes (extra: plots).

        Raises PlanError for more attributes, MissingExtra where Altair is not installed.
        """
        if len(self.attributes) not in (1, 2):
            raise PlanError(f"a table over {len(self.attributes)} attributes has no simple picture; choose one or two")
        altair = package("altair", "plots")
        first, *second = self.attributes
        base = altair.Chart(altair.Data(values=self.frame().rows())).encode(
            x=altair.X(field=first, type="nominal", sort=None, title=first)
        )
        if second:
            name = second[0]
            base = base.encode(
                color=altair.Color(field=name, type="nominal"), xOffset=altair.XOffset(field=name, type="nominal")
            )
        bars = base.mark_bar(opacity=0.6).encode(y=altair.Y(field="answer", type="quantitative", title="records"))
        ends = base.mark_rule().encode(
            y=altair.Y(field="low", type="quantitative"), y2=altair.Y2(field="high"), color=altair.value("black")
        )
        return bars + ends

    def __repr__(self) -> str:
        return str(self.frame())

    def _repr_html_(self) -> str:
        return self.frame().to_html()
