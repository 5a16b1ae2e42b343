"""What a release hands out: single answers, intervals, and marginal tables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato._util.catalogue import say_words
from sfumato._util.description import Facts
from sfumato._util.frames import Frame, FrameConvertible
from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray
from sfumato.releases.crosstab import CrossTable, cross_table
from sfumato.releases.ends import column_heading, shown_cells
from sfumato.releases.reliability import chart_flagged, read_reliability, relative_errors
from sfumato.workloads import RECORDS, Workload
from sfumato.workloads.levels import table_names

if TYPE_CHECKING:
    from sfumato.releases.release import Release


def part_and_label(work: Workload) -> dict[str, Any]:
    """Where every answer stands: its part and its label, as columns."""
    return {"part": [i.part for i in work.items for _ in range(i.rows)], "label": work.labels()}


def answers_frame(where: Mapping[str, Sequence[Any]], **values: FloatArray | None) -> Frame:
    """Answers as columns beside what they answer; a column of None where there is no such number."""
    count = max(v.size for v in values.values() if v is not None)
    lists = {n: [None] * count if v is None else _none_for_nan(v.reshape(-1).tolist()) for n, v in values.items()}
    return Frame({**where, **lists})


def _none_for_nan(values: list[float]) -> list[float | None]:
    """What is not known is None: an end of an interval that nothing measured bounds."""
    return [None if v != v else v for v in values] if any(v != v for v in values) else [*values]


class Intervals(NamedTuple):
    """The ends of intervals, one per query.

    Args:
        low: (k,) lower ends.
        high: (k,) upper ends.
        confidence: The probability with which they hold.
        simultaneous: Whether all of them hold together with it; otherwise each one does.
    """

    low: FloatArray
    high: FloatArray
    confidence: float
    simultaneous: bool


class Batch(NamedTuple):
    """Some tables, or other blocks of queries, of one shape.

    Args:
        attributes: One tuple of names per table.
        values: (tables, n_1, ..., n_k) answers.
        standard_errors: Standard errors, which broadcast to the values; None for projected answers.
    """

    attributes: tuple[tuple[str, ...], ...]
    values: FloatArray
    standard_errors: FloatArray | None


@dataclass(frozen=True, slots=True, repr=False)
class Table(FrameConvertible):
    """A marginal table: arrays shaped by its attributes.

    Args:
        attributes: Names of attributes or levels, one per axis.
        labels: For each axis the texts of its cells.
        values: The answers.
        standard_errors: Their standard errors, or None where the values are projected.
        low: The lower ends of their intervals.
        high: The upper ends of their intervals.
        confidence: The probability with which intervals hold.
        of: What is counted: "records", or "counted records" where further ones of a person are left out.
        release: The release that answers it, for totals and per cents; None of a model's.

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
    release: Release | None = None
    """The release that answers it, for totals and per cents; None of a model's."""

    def frame(self, flags: Mapping[str, float] | None = None) -> Frame:
        """The cells as a frame.

        Args:
            flags: Marks of an office with the relative standard errors above which each is set, such as {"*": .15,
                "**": .30, "suppress": .50}.

        Returns:
            One row per cell: the labels, answer, standard_error, low, high; with flags also relative_standard_error and
            flag. No number is left out.

        Raises:
            InvalidInput: The flags are no marks with thresholds.
        """
        cells = list(itertools.product(*self.labels))
        columns: dict[str, Sequence[Any]] = {
            column_heading(a): [c[i] for c in cells] for i, a in enumerate(self.attributes)
        }
        errors = self.standard_errors
        found = answers_frame(columns, answer=self.values, standard_error=errors, low=self.low, high=self.high)
        if flags is None:
            return found
        marks, sizes, known = read_reliability(flags), self.sizes(), self.noise_errors()
        relative = relative_errors(sizes, known).reshape(-1)
        told = {"relative_standard_error": [v if math.isfinite(v) else None for v in relative.tolist()]}
        return Frame(dict(found.columns) | told | {"flag": marks.flags(sizes, known)})

    def labelled(self, publication: Any) -> Table:
        """The same in the words of a publication, for readers and charts; it belongs to no release any more.

        Args:
            publication: What a reader is told, as `sfumato.publishing.Publication` has it.

        Returns:
            The table, whose arrays are the same.
        """
        texts = self.labels
        if self.release is not None:
            texts = tuple(tuple(shown_cells(self.release.plan.workload.domain, n)) for n in self.attributes)
        told = [publication.category_texts(n) for n in self.attributes]
        labels = (
            tuple(words.get(label, text) for label, text in zip(given, shown, strict=True))
            for given, shown, words in zip(self.labels, texts, told, strict=True)
        )
        headings = tuple(publication.heading(n) for n in self.attributes)
        return replace(self, attributes=headings, labels=tuple(labels), release=None)

    def noise_errors(self) -> FloatArray:
        """Standard errors of the unprojected answers, which flags are set by.

        Returns:
            Standard errors in the shape of the table, NaN where none is known.
        """
        if self.standard_errors is not None:
            return self.standard_errors
        if self.release is None:
            return np.full(self.values.shape, math.nan)
        raw = self.release.raw.table(*self.attributes, confidence=self.confidence).standard_errors
        assert raw is not None
        return raw

    def unprojected(self) -> FloatArray:
        """The answers from before a projection.

        Returns:
            Answers in the shape of the table.
        """
        if self.release is None or self.release.projection is None:
            return self.values
        return self.release.raw.table(*self.attributes, confidence=self.confidence).values

    def title(self) -> str:
        """What it is called.

        Returns:
            The attributes.
        """
        return " × ".join(self.attributes)

    def sizes(self) -> FloatArray:
        """What standard errors are divided by, to be relative.

        Returns:
            The answers, in the shape of the table.
        """
        return self.values

    def crosstab(
        self,
        rows: str | Sequence[str],
        columns: str | Sequence[str] | None = None,
        *,
        per: str | None = "row",
        sort: str | None = None,
        top: int | None = None,
        flags: Mapping[str, float] | None = None,
    ) -> CrossTable:
        """The table in rows and columns, with totals and per cents, each with its interval.

        Args:
            rows: The attributes that run down.
            columns: Those that run across; all others of the table, unless given.
            per: Of what per cents are: "row", "column", "all", or None for none.
            sort: "total", or the labels of a column, by whose answers rows are sorted, the largest first; as declared
                unless given.
            top: How many rows are shown, the first of that order.
            flags: Marks of an office with the relative standard errors above which each is set, such as {"*": .15,
                "**": .30, "suppress": .50}; a cell that is flagged "suppress" is shown as two dots.

        Returns:
            The cross-table. A per cent whose total is below 5 standard errors is not told.

        Raises:
            PlanError: An attribute is in none of both or in two, an option is not allowed, or there are more than
                20,000 cells.
            InvalidInput: The flags are no marks with thresholds.
            NotAnswerable: Per cents need unbiased answers, and these have a bias.

        >>> domain = sf.Domain({"age": 3, "sex": sf.Categories(["f", "m"])})
        >>> made = sf.plan(sf.identity(domain), sf.gdp(1), neighbours="add-remove")
        >>> cells = sf.release(made, sf.Histogram(np.full((3, 2), 900)), ledger=None, name="cells").table("age", "sex")
        >>> list(cells.crosstab(rows="age", columns="sex", flags={"*": 0.15}).grid().columns)
        ['age', 'f', 'm', 'Total']
        """
        return cross_table(self, rows, columns, per=per, sort=sort, top=top, flags=flags)

    def plot(self, *, title: str = "", source: str = "", flags: Mapping[str, float] | None = None) -> Any:
        """An Altair chart of the cells with their intervals, for one to three attributes (extra: plots).

        Args:
            title: What stands above it.
            source: The line below it, such as the office and the year.
            flags: Marks of an office with the relative standard errors above which each is set; a cell that is flagged
                "suppress" has no bar.

        Returns:
            The chart; `.save("chart.svg")`, or .png or .pdf, writes it to a file (extra: charts).

        Raises:
            PlanError: The table has no attribute, or more than three.
            InvalidInput: The flags are no marks with thresholds.
            MissingExtra: Altair is not installed.
        """
        if len(self.attributes) not in (1, 2, 3):
            raise PlanError(
                f"a table over {len(self.attributes)} attributes has no simple picture; choose one to three"
            )
        texts = self.labels
        if self.release is not None:
            domain = self.release.plan.workload.domain
            texts = [shown_cells(domain, name) for name in self.attributes]
        marks = read_reliability(flags)
        flagged = marks.flags(self.sizes(), self.noise_errors())
        numbers = zip(*(x.reshape(-1).tolist() for x in (self.values, self.low, self.high)), flagged, strict=True)
        rows: list[dict[str, Any]] = [
            {f"axis{k}": text for k, text in enumerate(cell)}
            | {"answer": value, "low": low, "high": high, "flag": flag}
            for cell, (value, low, high, flag) in zip(itertools.product(*texts), numbers, strict=True)
        ]
        return chart_flagged(rows, list(self.attributes), say_words(self.of), title, source, marks)

    def __repr__(self) -> str:
        return str(self.frame())

    def _repr_html_(self) -> str:
        return self.frame().to_html()


_CONFIDENCE = 0.95  # the usual one, so that shifts are told in the intervals that were printed
_MANY = 0.01  # of answers: a fifth of what chance alone lets leave the intervals of the truth
_MOST = 50_000_000  # answers: four arrays of 400 MB


@dataclass(frozen=True, slots=True)
class ProjectionChange:
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


def projection_changes(release: Release) -> list[ProjectionChange]:
    """For a projected release: the total, tables by their number of attributes, then every other part."""
    widths = release.plan.half_widths(_CONFIDENCE, release.part)
    errors = release.plan.standard_errors(release.part)
    away = np.abs(release.answers - release.raw.answers)
    # a little room for rounding, where an answer was known beforehand
    left = away > widths + 1e-9 * np.maximum(np.abs(release.raw.answers), 1.0)
    steps = np.divide(away, errors, out=np.zeros_like(away), where=(errors > 0) & np.isfinite(errors))
    return [_projection_change(name, rows, steps, left) for name, rows in _rows_by_kind(release).items()]


def moved_facts(release: Release) -> Facts:
    """The same in words, with a warning where many answers left their intervals."""
    if len(release.workload) > _MOST:
        return Facts(())
    found = projection_changes(release)
    lines = [(s.name, s.describe()) for s in found]
    if any(s.many for s in found):
        many = "one answer in a hundred or more left its unprojected interval; read those beside them"
        lines.append(("careful", many))
    return Facts(lines)


def _projection_change(
    name: str, rows: NDArray[np.intp], steps: FloatArray, left: NDArray[np.bool_]
) -> ProjectionChange:
    return ProjectionChange(name, len(rows), math.sqrt(float(np.mean(steps[rows] ** 2))), int(left[rows].sum()))


def _rows_by_kind(release: Release) -> dict[str, NDArray[np.intp]]:
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
    named = {_order_text(k): np.concatenate(v) for k, v in sorted(tables.items())}
    return named | {f"{k!r}": np.concatenate(v) for k, v in others.items()}


def _order_text(count: int) -> str:
    return {0: "the total", 1: "tables of one attribute"}.get(count, f"tables of {count} attributes")
