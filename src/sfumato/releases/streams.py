"""What came out of a stream: answers over time, each an ordinary release, and the whole as one file."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from statistics import NormalDist
from typing import Any, NamedTuple, NoReturn

import numpy as np

from sfumato._util.codec import storable
from sfumato._util.description import Description, Facts, Warnings
from sfumato._util.frames import Frame, optional_package
from sfumato.errors import InvalidInput, NotAnswerable
from sfumato.measurements import Measurement
from sfumato.operators.base import FloatArray
from sfumato.plans.planned import protection_lines
from sfumato.plans.predictions import check_confidence
from sfumato.plans.predictions import simultaneous_confidence as together
from sfumato.plans.streams import StreamPlan, cumulative_period_weights
from sfumato.privacy.stream_price import Published
from sfumato.releases.release import Release
from sfumato.releases.released import Provenance, ReleaseBase
from sfumato.releases.warnings import ERRORS, Caution, find_cautions
from sfumato.strategies.toeplitz import Decoder
from sfumato.workloads import predicates
from sfumato.workloads import total as sum_of_all


class MissingRows(NamedTuple):
    """How many rows may be missing from counts of counted rows, as measured.

    Args:
        rows: The number, with noise.
        standard_error: Its standard error.
    """

    rows: float
    standard_error: float

    def above(self, counted: float, standard_error: float, confidence: float) -> float:
        """The upper end of an interval for all rows, from an answer that counts some; the noise of both is normal.

        Args:
            counted: The answer.
            standard_error: Its standard error.
            confidence: The probability, strictly between 0 and 1, with which the interval holds.

        Returns:
            The upper end.
        """
        deviations = NormalDist().inv_cdf((1 + confidence) / 2)
        return counted + max(0.0, self.rows) + deviations * math.hypot(standard_error, self.standard_error)


@dataclass(frozen=True, eq=False, repr=False)
class StreamAnswer(Release):
    """One answer of a stream over time: totals so far, one period, or the periods between two.

    It answers, projects and reports as any release does. It is a part of the stream's release, which is what is stored.

    Args:
        plan: The plan of this answer, as of a single look.
        measurement: The values of which it is made.
        provenance: When, by which versions and from which ledger the stream was opened.
        part: The part of the workload that is answered, or None for all.
        projection: The projected answers, or None.
        missing: How many rows may be missing from it, of persons who were left out; None where that is not measured.
    """

    missing: MissingRows | None = None

    @functools.cached_property
    def cautions(self) -> tuple[Caution, ...]:
        """Reasons to doubt the answers: those of any release, and rows of persons who were left out of periods."""
        return (*_left_out(self), *find_cautions(self))

    def save(self, path: str | PathLike[str]) -> NoReturn:
        """Refuse to store one answer: what is stored is the release of the stream.

        Args:
            path: Not used.

        Raises:
            InvalidInput: Always; the message says how the stream's release is saved.
        """
        raise InvalidInput(f"this is part of a stream, whose release is saved: stream.release().save({str(path)!r})")


class History:
    """The estimates of every period so far, added up as they come; public work on what was published."""

    __slots__ = ("_beside", "_decoder", "_labels", "_left", "_plan", "_sums", "_totals")

    def __init__(self, plan: StreamPlan) -> None:
        self._plan, self._decoder = plan, Decoder(plan.terms)
        self._beside = Decoder(plan.terms.beside) if plan.terms.cut else None
        self._left: list[float] = []
        self._sums: list[list[FloatArray]] = [[np.zeros(f.rows) for f in plan.terms.families]]
        self._labels: list[str] = []
        self._totals = [0]

    def follow(self, published: Sequence[Published]) -> None:
        """Add what was published since."""
        for period in published[len(self._labels) :]:
            tables = period.values[: len(self._plan.terms.families)]
            found = self._decoder.step(tables)
            if self._beside is not None:
                (first,) = self._beside.step(period.values[len(tables) :])
                self._left.append(float(first[0]) / self._plan.terms.cut)
            self._sums.append([a + b for a, b in zip(self._sums[-1], found, strict=True)])
            self._totals.append(self._totals[-1] + (period.total or 0))
            self._labels.append(period.label)

    @property
    def labels(self) -> tuple[str, ...]:
        """Of every period, in order."""
        return tuple(self._labels)

    def number(self, label: str) -> int:
        """The number of a period, from 1. Raises NotAnswerable for one that is not published."""
        if label not in self._labels:
            last = f"; the last is {self._labels[-1]!r}" if self._labels else ""
            raise NotAnswerable(f"no period {label!r} is published{last}")
        return self._labels.index(label) + 1

    def between(self, first: int, last: int, provenance: Provenance) -> StreamAnswer:
        """The sum of some periods, by number. Raises NotAnswerable for periods that are not published."""
        if not 1 <= first <= last <= len(self._labels):
            if not self._labels:
                raise NotAnswerable("no period is published; append the first one")
            asked = f"{last - first + 1:,}" if first <= last else "none of them"
            raise NotAnswerable(
                f"periods 1 to {len(self._labels):,} are published, and {asked} were asked for; ask for 1 to "
                f"{len(self._labels):,} of them, the earlier label first"
            )
        sums = [a - b for a, b in zip(self._sums[last], self._sums[first - 1], strict=True)]
        total = self._totals[last] - self._totals[first - 1] if self._plan.unit.total_is_public else None
        return self._running(self._plan.between(first, last), sums, total, provenance)

    def decayed(self, rate: str, provenance: Provenance) -> StreamAnswer:
        """All periods, each `rate` times less than the one after it. Raises PlanError for what is no rate,
        NotAnswerable where no period is published, and where the number of records is public."""
        done = len(self._labels)
        if not done:
            raise NotAnswerable("no period is published")
        if self._plan.unit.total_is_public:
            raise NotAnswerable(
                "a decayed sum counts records in part, and where their number is public it is a whole one; ask for "
                "totals or for the last periods, or plan with add-remove"
            )
        weights = self._plan.weights(f"decayed {rate}", done)
        steps = zip(weights, self._sums[1:], self._sums, strict=False)
        found = [np.zeros_like(a) for a in self._sums[0]]
        for weight, after, before in steps:
            found = [f + weight * (a - b) for f, a, b in zip(found, after, before, strict=True)]
        return self._running(weights, found, None, provenance)

    def missing(self, weights: FloatArray) -> MissingRows | None:
        """How many rows may be missing where periods weigh so: those of who was left out once, from then on.

        Whoever is left out in a period was left out in it for the first time or before, and misses at most the rows
        that are counted of one person; so it is no less than what is missing, but for noise.
        """
        error = self._plan.left_out_error(weights)
        if error is None:
            return None
        ever = float(cumulative_period_weights(weights) @ np.array(self._left[: len(weights)]))
        return MissingRows(self._plan.unit.rows_per_person * ever, error)

    def _running(
        self, weights: FloatArray, sums: list[FloatArray], total: int | None, provenance: Provenance
    ) -> StreamAnswer:
        once = self._plan.of(weights)
        if self._plan.terms.total is not None:
            scale = self._plan.total_scale(weights)
            pairs = zip(self._plan.terms.families, sums, strict=True)
            sums = [a * scale if self._plan.terms.is_own(f) else a for f, a in pairs]
        # far finer than the noise, and rounding a rounded normal is what the plan's law says
        values = tuple(np.rint(a).astype(np.int64) for a in sums)
        measured = Measurement(once.strategy.blocks, values, once.noise, total)
        return StreamAnswer(once, measured, provenance, missing=self.missing(weights))


@storable
@dataclass(frozen=True, eq=False, repr=False)
class StreamRelease(ReleaseBase):
    """All that a stream has published, as one file: answers over time, at no further cost.

    `stream.release()` makes it, and `sf.load` reads stored ones.

    Args:
        plan: The plan of the stream.
        published: What was published of every period.
        provenance: When, by which versions and from which ledger it was made.

    Guarantee:
        With all that the stream publishes later it satisfies the budget of the plan, for the plan's privacy unit, where
        nobody is counted in more periods than the plan says.
    """

    plan: StreamPlan
    published: tuple[Published, ...]
    provenance: Provenance

    outcome = "published"

    def agree(self) -> None:
        super().agree()
        rows = list(self.plan.terms.rows)
        if any([len(v) for v in p.values] != rows for p in self.published):
            raise InvalidInput("its values are of other tables than its plan describes")
        if len({*self.periods}) != len(self.periods) or len(self.periods) > self.plan.periods.count:
            raise InvalidInput("it has a period twice, or more periods than were paid for")
        if any(p.total is not None for p in self.published) and not self.plan.unit.total_is_public:
            raise InvalidInput("it tells the number of records, which is not public")

    @functools.cached_property
    def history(self) -> History:
        """The estimates of every period."""
        found = History(self.plan)
        found.follow(self.published)
        return found

    @property
    def periods(self) -> tuple[str, ...]:
        """The labels of all periods, in order."""
        return tuple(p.label for p in self.published)

    @property
    def totals(self) -> StreamAnswer:
        """The sum of all periods so far."""
        return self.history.between(1, len(self.published), self.provenance)

    @property
    def increments(self) -> StreamAnswer:
        """The last period."""
        return self.history.between(len(self.published), len(self.published), self.provenance)

    def between(self, first: str, last: str) -> StreamAnswer:
        """The sum of the periods from one to another.

        Args:
            first: The label of the first period.
            last: The label of the last period; the same label for one period.

        Returns:
            Answers, as a release of one look gives them.

        Raises:
            NotAnswerable: A period is not published, or the last comes before the first.
        """
        return self.history.between(self.history.number(first), self.history.number(last), self.provenance)

    def last(self, count: int) -> StreamAnswer:
        """The sum of the last periods.

        Args:
            count: How many periods, from 1 to the number of published ones.

        Returns:
            Answers, as a release of one look gives them.

        Raises:
            NotAnswerable: Not as many periods are published.
        """
        done = len(self.published)
        return self.history.between(done - count + 1, done, self.provenance)

    def decayed(self, rate: str | float) -> StreamAnswer:
        """All periods so far, each counted `rate` times as much as the one after it: recent ones count most.

        Args:
            rate: A number strictly between 0 and 1, such as "0.99".

        Returns:
            Answers, as a release of one look gives them.

        Raises:
            PlanError: The rate is no such number.
            NotAnswerable: No period is published, or the number of records is public.
        """
        return self.history.decayed(str(rate), self.provenance)

    def over_time(
        self,
        predicate: str | None = None,
        *,
        increments: bool = False,
        confidence: float = 0.95,
        simultaneous: bool = False,
        most: int | None = None,
    ) -> Frame:
        """One query after every period.

        Where persons are left out of periods, value and standard error are of counted rows, `missing` is how many rows
        may be missing from it, and the interval is of all rows, of each person as many in a period as are counted: its
        upper end is above the value by `missing` and the noise of both.

        Args:
            predicate: The query, as a predicate; None asks the number of records.
            increments: Whether it is asked of the period itself; otherwise of the total of all periods so far.
            confidence: The probability, strictly between 0 and 1, with which an interval holds.
            simultaneous: Whether the intervals of all periods so far hold together with that confidence; otherwise each
                one does.
            most: At most so many periods are answered, evenly spread, with the last among them; None answers all.

        Returns:
            One row per period: its label, value, standard_error, low, high, and `missing` where that is measured.

        Raises:
            NotAnswerable: The query was not measured.
            WorkloadError: The predicate cannot be read.
            PlanError: The confidence is no such probability.
        """
        domain = self.plan.workload.domain
        asked = sum_of_all(domain) if predicate is None else predicates(domain, [predicate])
        names = ("period", "value", "standard_error", "low", "high", *(("missing",) if self.plan.terms.cut else ()))
        columns: dict[str, list[Any]] = {name: [] for name in names}
        done = len(self.published)
        if simultaneous:
            confidence = together(check_confidence(confidence), done, self.plan.terms.noise)
        for t in range(1, done + 1) if most is None or done <= most else _evenly_spaced(done, most):
            label = self.published[t - 1].label
            found = self.history.between(t if increments else 1, t, self.provenance)
            answer = found.ask(asked, confidence)
            row = {name: answer[name][0] for name in ("answer", "standard_error", "low", "high")}
            if found.missing is not None:
                row["high"] = found.missing.above(row["answer"], row["standard_error"], confidence)
                row["missing"] = max(0.0, found.missing.rows)
            for column, value in zip(columns.values(), (label, *row.values()), strict=True):
                column.append(value)
        return Frame(columns)

    def plot(
        self,
        question: str = "total",
        *,
        increments: bool = False,
        confidence: float = 0.95,
        simultaneous: bool = False,
    ) -> Any:
        """An Altair chart of one query after every period with its band, as `over_time` has it (extra: plots).

        Args:
            question: A predicate, or "total", the number of records.
            increments: Whether it is asked of the period itself; otherwise of the total of all periods so far.
            confidence: The probability, strictly between 0 and 1, with which an interval holds.
            simultaneous: Whether all intervals hold together with that confidence; otherwise each one does.

        Returns:
            The chart.

        Raises:
            MissingExtra: Altair is not installed.
            NotAnswerable: The query was not measured.
        """
        altair = optional_package("altair", "plots")
        predicate = None if question == "total" else question
        frame = self.over_time(predicate, increments=increments, confidence=confidence, simultaneous=simultaneous)
        base = altair.Chart(altair.Data(values=frame.rows())).encode(
            x=altair.X(field="period", type="ordinal", sort=None, title="period")
        )
        of = "counted records" if self.plan.unit.person is not None else "records"
        title = of if question == "total" else f"{of} with {question}"
        if self.plan.terms.cut:
            title += "; band: with those that may be missing"
        band = base.mark_area(opacity=0.25).encode(
            y=altair.Y(field="low", type="quantitative", title=title), y2=altair.Y2(field="high")
        )
        return band + base.mark_line().encode(y=altair.Y(field="value", type="quantitative", title=title))

    def describe(self) -> Description:
        done = len(self.published)
        ends = f", {self.periods[0]!r} to {self.periods[-1]!r}" if done else ""
        of = ", of counted rows" if self.plan.unit.person is not None else ""
        facts = [
            ("guarantee", f"{self.plan.budget}, for all periods together"),
            *protection_lines(self.plan.unit, self.plan.price),
            ("over time", self.plan.periods.describe()),
            *((("", f"  {self.plan.missing}"),) if self.plan.missing else ()),
            ("recorded", self.provenance.where),
        ]
        cautions = [c.text for c in _left_out(self.increments)] if self.published else []
        headline = f"Stream {self.provenance.name!r}: {done:,} of {self.plan.periods.count:,} periods{ends}{of}"
        return Description(headline, [Warnings(cautions), Facts(facts)])

    def brief(self) -> str:
        return f"{self.provenance.name!r}: {len(self.published):,} periods"


def _left_out(running: StreamAnswer) -> Iterator[Caution]:
    """What there is to say of persons who were left out of periods."""
    found, unit = running.missing, running.plan.unit
    if found is None or found.rows <= ERRORS * found.standard_error:
        return
    rows = "one row" if unit.rows_per_person == 1 else f"{unit.rows_per_person:,} rows"
    yield Caution(
        None,
        None,
        0.0,
        found.standard_error,
        f"up to about {found.rows:,.0f} ± {2 * found.standard_error:,.0f} rows are missing here: persons who were in "
        f"as many periods as are counted, or in nearer ones, are left out of others; each misses at most {rows} a "
        "period. Answers are of counted rows: "
        "a fall may be nothing but that",
    )


def _evenly_spaced(count: int, most: int) -> list[int]:
    """At most so many of the numbers from 1 to `count`, evenly spread, with the last."""
    return [count - int(i * count / most) for i in reversed(range(most))]
