"""Both sides of the local model: what a device sends, and what a server makes of it. [War65, ENU20]"""

from __future__ import annotations

import functools
import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import storable
from sfumato._util.description import Description
from sfumato._util.text import BLANKS, comparable_text, parse_day_number
from sfumato.cells import Codes
from sfumato.domain import Attribute, Bins, Booleans, Categories, Dates, Domain, Hierarchy, Integers
from sfumato.errors import InvalidInput, PlanError
from sfumato.operators.base import FloatArray
from sfumato.plans.predictions import check_confidence
from sfumato.postprocess.bodies import project
from sfumato.postprocess.projection import Projection
from sfumato.privacy.amounts import read_exact, readable_number
from sfumato.privacy.local import draw_questions, randomized_response
from sfumato.privacy.noise import BitSource
from sfumato.releases.released import ReleaseBase

if TYPE_CHECKING:
    from sfumato.local.plan import LocalPlan

_ZEROS = re.compile(r"-?(0|[1-9][0-9]*)[.]0+", re.ASCII)
_FALSE = ("0", "f", "false", "n", "no")
_TRUE = ("1", "t", "true", "y", "yes")


def record_cell(domain: Domain, names: Sequence[str], record: Any) -> int:
    """The cell, in C order, of a record over some attributes: a mapping of names to values.

    Values are read as the curator reads a table's: numbers for `Integers` and `Bins`, codes for categories, None for
    missing. Raises InvalidInput where an attribute is not in the record, or its value has no cell. The error names
    attributes alone, and stays on the device; a report that is not sent may still tell the server something. A record
    that cannot be is moved to the nearest cell that can, silently.
    """
    if not isinstance(record, Mapping):
        raise InvalidInput(f"a record is a mapping of {', '.join(names)} to values")
    lacking = [n for n in names if n not in record]
    if lacking:
        raise InvalidInput(f"the record lacks {', '.join(map(repr, lacking))}; None stands for a missing value")
    cells: list[int] = []
    for name in names:
        attribute = domain.attributes[name]
        own = _value_cell(attribute, record[name])
        if own is None:
            raise InvalidInput(
                f"the record has no cell of {name!r}: its value is missing or outside, and the attribute does not "
                "declare 'other' for that; declare it, so that every person can report"
            )
        cells.append(own)
    for m in domain.moves(names):
        sizes = [domain.attributes[names[a]].size for a in m.axes]
        moved = np.unravel_index(m.cells[np.ravel_multi_index(tuple(cells[a] for a in m.axes), sizes)], sizes)
        for axis, own in zip(m.axes, moved, strict=True):
            cells[axis] = int(own)
    cell = 0
    for name, own in zip(names, cells, strict=True):
        cell = cell * domain.attributes[name].size + own
    return cell


def _value_cell(attribute: Attribute, value: Any) -> int | None:
    """The cell of one value; None where it has none."""
    text, extra = _value_text(value), attribute.size - 1
    if isinstance(attribute, (Integers, Bins)):
        number = _parse_number(text)
        absent, found = number is None, None if number is None else _number_cell(attribute, number)
    elif isinstance(attribute, Booleans):
        text = text.strip(" ").lower()
        place = _code_position(_FALSE + _TRUE, text)
        absent, found = not text, None if place is None else place // len(_FALSE)
    elif isinstance(attribute, Dates):
        day = parse_day_number(text.strip(BLANKS), attribute.format)
        absent, found = day is None, None if day is None else _nearest_date_cell(attribute, attribute.edges, day)
    elif isinstance(attribute, (Categories, Hierarchy)):
        rule = cast(Codes, attribute.rule)
        if rule.edition > 1:
            text = comparable_text(text, trim=rule.trim, ignore_case=rule.ignore_case)
        place = _code_position(rule.codes, text)
        absent, found = not text, rule.cells[place] if rule.cells and place is not None else place
    else:
        raise InvalidInput(f"records cannot be read as an attribute of type {attribute.kind!r}")
    if found is None and (attribute.missing if absent else attribute.outside) == "other":
        return extra
    return found


def _value_text(value: Any) -> str:
    """A value as a table of texts holds it, empty where it is missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(float(value))
    return str(value)


def _code_position(codes: Sequence[str], text: str) -> int | None:
    """Where a code stands; "1.0" is code 1."""
    if text in codes:
        return codes.index(text)
    whole = text.partition(".")[0] if _ZEROS.fullmatch(text) else ""
    whole = "0" if whole == "-0" else whole
    return codes.index(whole) if whole in codes else None


def _parse_number(text: str) -> float | None:
    """The double that a text writes; None where it writes none."""
    if not text.isascii() or "_" in text:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number


def _nearest_date_cell(attribute: Dates, edges: Sequence[int], day: int) -> int | None:
    """The cell of a day, the nearest one where the attribute clamps."""
    inside = edges[0] <= day < edges[-1]
    return _cell_by_starts(edges[:-1], day) if inside or attribute.outside == "clamp" else None


def _number_cell(attribute: Integers | Bins, number: float) -> int | None:
    """The cell of a number, the nearest one where the attribute clamps."""
    intervals = attribute.intervals
    low, end = intervals[0][0], intervals[-1][1]
    if isinstance(attribute, Integers):
        # in edition 1 fractions were outside
        inside = attribute.low <= number <= attribute.high
        if attribute.edition == 1 and attribute.outside in ("other", "drop"):
            inside = inside and number == math.floor(number)
    else:
        inside = low <= number < end or (number == end and attribute.holds_last)
    if not inside and attribute.outside != "clamp":
        return None
    return _cell_by_starts([a for a, _ in intervals], number)


def _cell_by_starts(starts: Sequence[float], number: float) -> int:
    """The cell of a number by where cells start; of what is below all, the first."""
    return max(bisect_right(starts, number) - 1, 0)


def draw_report(plan: LocalPlan, record: Any, *, most: Any = None) -> int:
    """One person's report, made on the person's device: a whole number below `plan.outcomes`, to be sent as it is.

    record: a mapping of the plan's attributes to values. most: the largest epsilon that the person agreed to; devices
    should give it, as a plan comes from the server. Guarantee: epsilon-DP for any two records, by itself;
    calling it again spends epsilon again. Randomness is the operating system's.

    Raises PlanError, before the record is looked at, for a plan whose epsilon is above `most`, InvalidInput for a
    record without a cell.
    """
    if most is not None and plan.epsilon > (limit := read_exact(most, "most")):
        raise PlanError(
            f"a report to this plan costs epsilon {readable_number(plan.epsilon)}, above the "
            f"{readable_number(limit)} agreed to "
            "(most=); nothing was reported"
        )
    cell = record_cell(plan.workload.domain, plan.names, record)
    return int(report_cells(plan, np.array([cell], dtype=np.int64))[0])


def report_cells(plan: LocalPlan, cells: NDArray[np.int64], source: BitSource | None = None) -> NDArray[np.int64]:
    """Reports of many persons whose records lie in these cells, independent of each other: for tests and trials."""
    q = plan.questions
    asked = draw_questions(q.counts, len(cells), source)
    truths = q.table[asked, cells].astype(np.int64)
    return asked * q.labels + randomized_response(truths, q.labels, plan.epsilon, source)


def answer_reports(plan: LocalPlan, reports: Iterable[int] | NDArray[Any]) -> LocalRelease:
    """Answers from all reports, one for each person, in any order.

    Post-processing: what it does costs no privacy. A false report moves an answer no further than one that an
    honest device could have sent, but that is far; nothing here finds liars out.
    Raises InvalidInput for reports that are no whole numbers below `plan.outcomes`, and for none at all.
    """
    try:
        given = np.asarray(reports if isinstance(reports, np.ndarray) else list(reports))
        whole = given.ndim == 1 and given.size > 0 and given.dtype.kind in "iu"
    except (TypeError, ValueError, OverflowError):
        given, whole = np.zeros(0), False
    if not whole or int(given.min()) < 0 or int(given.max()) >= plan.outcomes:
        raise InvalidInput(
            f"reports are a list of whole numbers from 0 to {plan.outcomes - 1:,}, as plan.respond makes them"
        )
    tally = np.bincount(given.astype(np.int64), minlength=plan.outcomes).reshape(-1, plan.questions.labels)
    return LocalRelease(plan, tally.astype(np.int64))


@storable
@dataclass(frozen=True, eq=False, repr=False)
class LocalRelease(ReleaseBase):
    """Answers from local reports, which may be published. `plan.collect` makes it.

    Args:
        plan: The plan of the reports.
        tally: How often every report came, by question and answer, which is all that the reports say.

    Raises:
        InvalidInput: The tally does not fit the plan's questions.
    """

    plan: LocalPlan
    tally: NDArray[np.int64]

    def __post_init__(self) -> None:
        q = self.plan.questions
        if self.tally.dtype != np.int64 or self.tally.shape != (len(q.table), q.labels) or self.tally.min() < 0:
            raise InvalidInput(f"reports are tallied as int64, shape ({len(q.table)}, {q.labels}), none negative")

    @property
    def reports(self) -> int:
        """n, the number of reports."""
        return int(self.tally.sum())

    @functools.cached_property
    def answers(self) -> FloatArray:
        """(k,) unbiased answers, in records, for the persons who reported; 0 of what is declared impossible."""
        return np.where(self.plan.impossible, 0.0, self.plan.reading.answers(self.tally))

    def standard_errors(self) -> FloatArray:
        """Standard errors that are known before data: no table of so many records has larger ones.

        Returns:
            (k,) standard errors, in records.
        """
        return self.plan.standard_errors(self.reports)

    def intervals(self, confidence: float = 0.95, simultaneous: bool = False) -> tuple[FloatArray, FloatArray]:
        """Normal intervals, from the standard errors on the worst table.

        An answer is a sum of n independent bounded terms, hence the normal law; good from some hundreds of reports on.

        Args:
            confidence: The probability, strictly between 0 and 1, with which an interval holds.
            simultaneous: Whether all intervals hold together with that confidence, by the union bound; otherwise each
                one does.

        Returns:
            The lower and the upper ends, (k,) each.

        Raises:
            PlanError: The confidence is no such probability.
        """
        level = check_confidence(confidence)
        tail = (1 - level) / 2 / (len(self.answers) if simultaneous else 1)
        reach = -NormalDist().inv_cdf(tail) * self.standard_errors()
        return self.answers - reach, self.answers + reach

    def project(self, body: str = "auto") -> Projection:
        """The nearest answers that some table of as many records as reports could have given.

        Args:
            body: As in `sf.project`.

        Returns:
            The projection.

        Raises:
            InvalidInput: There is no such body, or it does not take these queries.
        """
        return project(self.answers, self.plan.workload, body=body, total=float(self.reports))

    outcome = "tally"

    def describe(self) -> Description:
        errors = self.standard_errors()
        headline = (
            f"{len(errors):,} answers from {self.reports:,} reports, each epsilon-private by itself; standard errors "
            f"{errors.min():,.4g} to {errors.max():,.4g} records at most"
        )
        return Description(headline, [self.plan.describe()])

    def brief(self) -> str:
        return f"of {len(self.plan.workload):,} answers from {self.reports:,} reports"
