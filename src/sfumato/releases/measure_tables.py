"""Statistics of a measure as a table: its means and sums by the cells of attributes, as files and charts take them.

Sums are of the numbers themselves, and so are their errors, also where sums from the middle of the range were measured.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sfumato._util.catalogue import say_text, say_words
from sfumato._util.checks import show_number
from sfumato._util.frames import Frame
from sfumato.domain import Measure
from sfumato.domain.core import range_restriction
from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import Identity
from sfumato.operators.base import FloatArray
from sfumato.plans.predictions import widest_sum_margin
from sfumato.releases.ends import shown_cells
from sfumato.releases.moments import read_moments
from sfumato.releases.quantiles import beside_note, declared_rows, others_joined, rows_block
from sfumato.releases.tables import Table
from sfumato.workloads import sums

if TYPE_CHECKING:
    from sfumato.releases.release import Release

STATISTIC = "statistic"
"""The first axis of these tables."""
MOST_LINES = 4
"""Knots that are lines, such as one of poverty; more of them look for a range."""


@dataclass(frozen=True, slots=True, repr=False)
class MeasureTable(Table):
    """Means, sums and gaps of a measure within the cells of attributes: the first axis is the statistic.

    Args:
        measure: The name of the measure, or what readers call it.
        note: Of which values it is, such as "of values cut to 0 to 100".
        noise: Standard errors of the unprojected answers.
    """

    measure: str = ""
    note: str = ""
    noise: FloatArray | None = None

    def noise_errors(self) -> FloatArray:
        """Standard errors of the unprojected answers, which flags are set by.

        Returns:
            Standard errors in the shape of the table, NaN where none is known.
        """
        assert self.noise is not None
        return self.noise

    def sizes(self) -> FloatArray:
        """What standard errors are divided by: a mean below 0 may be as well known as one above.

        Returns:
            Numbers in the shape of the table.
        """
        return np.abs(self.values)

    def labelled(self, publication: Any) -> MeasureTable:
        """The same in the words of a publication.

        Args:
            publication: What a reader is told, as `sfumato.publishing.Publication` has it.

        Returns:
            The table, whose arrays are the same.
        """
        assert self.release is not None
        domain = self.release.plan.workload.domain
        groups = [
            tuple(publication.category_texts(n).get(label, text) for label, text in zip(given, shown, strict=True))
            for n, given in zip(self.attributes[1:], self.labels[1:], strict=True)
            for shown in [shown_cells(domain, n)]
        ]
        headings = tuple(publication.heading(n) for n in self.attributes[1:])
        called = publication.heading(self.measure)
        return replace(
            self,
            attributes=(say_words("Statistic"), *headings),
            labels=(tuple(map(say_text, self.labels[0])), *groups),
            measure=called,
            of=called,
            release=None,
        )

    def unprojected(self) -> FloatArray:
        """The answers from before a projection.

        Returns:
            Answers in the shape of the table.
        """
        if self.release is None or self.release.projection is None:
            return self.values
        found = measure_table(self.release.raw, self.measure, self.attributes[1:], self.confidence)
        assert found is not None
        return found.values

    def title(self) -> str:
        """What it is called.

        Returns:
            The measure, and by what its statistics are told.
        """
        groups = " × ".join(self.attributes[1:])
        return say_words("{measure} by {groups}", measure=self.measure, groups=groups) if groups else self.measure

    def crosstab(self, *_: Any, **__: Any) -> Any:
        """Refused: means do not add up to totals.

        Raises:
            PlanError: Always.
        """
        raise PlanError("means and sums of a measure have no cross-table, for means do not add up to totals")


def asked_measures(release: Release) -> list[tuple[str, tuple[str, ...]]]:
    """Each measure of which sums are asked, with the attributes by whose cells they are asked."""
    measures = release.plan.workload.domain.measures
    found: dict[tuple[str, tuple[str, ...]], None] = {}
    for query in release.workload.blocks if measures else ():
        names = query.block.attributes
        tables = all(
            isinstance(f, Identity)
            for g, f in zip(query.block.groups, query.block.factors, strict=True)
            if not set(g) & set(measures)
        )
        if tables:
            by = tuple(n for n in names if n not in measures)
            found |= {(n, by): None for n in names if n in measures}
    return list(found)


def measure_tables(release: Release, confidence: float) -> Iterator[MeasureTable]:
    """A table for each measure and grouping that were asked for."""
    for measure, by in asked_measures(release):
        found = measure_table(release, measure, by, confidence)
        if found is not None:
            yield found


def measure_table(release: Release, measure: str, by: tuple[str, ...], confidence: float) -> MeasureTable | None:
    """What the release tells of a measure within the cells of attributes; None where it tells nothing."""
    domain = release.plan.workload.domain
    told: list[str] = []
    numbers: list[list[FloatArray]] = []
    for statistic, find in measure_statistics(release, measure, by, confidence).items():
        with contextlib.suppress(NotAnswerable):
            frame = find(release)
            raw = frame if release.projection is None else find(release.raw)  # projected answers have no error
            value = list(frame.columns)[list(frame.columns).index("standard_error") - 1]
            told.append(statistic)
            columns = (frame[value], raw["standard_error"], frame["low"], frame["high"])
            numbers.append([np.array([math.nan if v is None else v for v in c], dtype=np.float64) for c in columns])
    if not told:
        return None
    # an attribute may be called like the axis
    axis = STATISTIC if STATISTIC not in {n.casefold() for n in by} else f"{STATISTIC} of {measure}"
    shape = (len(told), *domain.sizes(by))
    points = np.asarray(domain[measure].midpoints, dtype=np.float64)
    asked = rows_block(
        release.raw, measure, declared_rows(domain[measure], np.stack([points, np.ones(len(points))])), by
    )
    notes = range_restriction(domain, measure), beside_note(others_joined(release, measure, asked))
    value, error, low, high = (np.stack([n[i] for n in numbers]).reshape(shape) for i in range(4))
    return MeasureTable(
        (axis, *by),
        (tuple(told), *(tuple(domain[n].labels) for n in by)),
        value,
        error if release.projection is None else None,
        low,
        high,
        confidence,
        measure,
        release,
        measure=measure,
        note="; ".join(t for t in notes if t),
        noise=error,
    )


def measure_statistics(
    release: Release, measure: str, by: tuple[str, ...], confidence: float
) -> Mapping[str, Callable[[Release], Frame]]:
    """How a release, or its unprojected one, tells what is in the unit of a measure."""
    declared = cast("Measure", release.plan.workload.domain[measure])
    tell: dict[str, Callable[[Release], Frame]] = {
        "mean": lambda r: r.mean(measure, by=by, confidence=confidence),
        "sum": lambda r: sum_of_measure(r, measure, by, confidence),
    }
    for z in declared.knots if len(declared.knots) <= MOST_LINES else ():
        tell[f"mean gap below {show_number(z)}"] = lambda r, z=z: r.gap(measure, float(z), by=by, confidence=confidence)
    if declared.knots:
        tell["mean, cut where it errs least"] = lambda r: r.mean(measure, by=by, clip="best", confidence=confidence)
    return tell


def sum_of_measure(release: Release, measure: str, by: Sequence[str], confidence: float) -> Frame:
    """Sums of a measure; where only sums of records with a number in several were measured, those of these."""
    domain = release.plan.workload.domain
    try:
        return release.ask(sums(domain, measure, by=by), confidence)
    except NotAnswerable:
        held = read_moments(release, [measure], tuple(by))
    begin, *_, end = cast("Measure", domain[measure]).midpoints
    row = np.array([(begin + end) / 2, (end - begin) / 2])
    value, shown = held.values[:, :2] @ row, held.shown[:, :2] @ row
    errors = np.sqrt(np.maximum(np.einsum("i,gij,j->g", row, held.noise[:, :2, :2], row), 0.0))
    margin = widest_sum_margin(confidence, release.raw.measurement.noise) * errors
    low, high = np.minimum(shown, value - margin), np.maximum(shown, value + margin)
    columns = {"answer": shown, "standard_error": errors, "low": low, "high": high}
    return Frame({name: c.tolist() for name, c in columns.items()})
