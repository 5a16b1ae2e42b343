"""Both sides of the local model: what a device sends, and what a server makes of it. [War65, ENU20]"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InvalidInput, PlanError
from sfumato.estimate.bodies import project
from sfumato.estimate.projection import Projection
from sfumato.ground.codec import storable
from sfumato.local.records import cell_of
from sfumato.operators.base import FloatArray
from sfumato.plans.intervals import check_confidence
from sfumato.privacy.amounts import exact, readable
from sfumato.privacy.local import draw_questions, randomized_response
from sfumato.privacy.sampling import BitSource
from sfumato.releases.released import Released

if TYPE_CHECKING:
    from sfumato.local.plans import LocalPlan

__all__ = ["LocalRelease", "collect", "report_cells", "respond"]


def respond(plan: LocalPlan, record: Any, *, most: Any = None) -> int:
    """One person's report, made on the person's device: a whole number below `plan.outcomes`, to be sent as it is.

    record: a mapping of the plan's attributes to values. most: the largest epsilon that the person agreed to; devices
    should give it, as a plan comes from the server. Guarantee: epsilon-DP for any two records, by itself;
    calling it again spends epsilon again. Randomness is the operating system's.

    Raises PlanError, before the record is looked at, for a plan whose epsilon is above `most`, InvalidInput for a
    record without a cell.
    """
    if most is not None and plan.epsilon > (limit := exact(most, "most")):
        raise PlanError(
            f"a report to this plan costs epsilon {readable(plan.epsilon)}, above the {readable(limit)} agreed to "
            "(most=); nothing was reported"
        )
    cell = cell_of(plan.workload.domain, plan.names, record)
    return int(report_cells(plan, np.array([cell], dtype=np.int64))[0])


def report_cells(plan: LocalPlan, cells: NDArray[np.int64], source: BitSource | None = None) -> NDArray[np.int64]:
    """Reports of many persons whose records lie in these cells, independent of each other: for tests and trials."""
    q = plan.questions
    asked = draw_questions(q.counts, len(cells), source)
    truths = q.table[asked, cells].astype(np.int64)
    return asked * q.labels + randomized_response(truths, q.labels, plan.epsilon, source)


def collect(plan: LocalPlan, reports: Iterable[int] | NDArray[Any]) -> LocalRelease:
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
class LocalRelease(Released):
    """Answers from local reports. Holds how often every report came, which is all that they tell; publishable."""

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
        """(k,) known before data: no table of so many records has larger ones."""
        return self.plan.standard_errors(self.reports)

    def intervals(self, confidence: float = 0.95, simultaneous: bool = False) -> tuple[FloatArray, FloatArray]:
        """(low, high), each (k,): normal intervals, from the standard errors on the worst table.

        An answer is a sum of n independent bounded terms, hence the normal law; good from some hundreds of reports on.
        `simultaneous` intervals hold together with that confidence (union bound).
        """
        level = check_confidence(confidence)
        tail = (1 - level) / 2 / (len(self.answers) if simultaneous else 1)
        reach = -NormalDist().inv_cdf(tail) * self.standard_errors()
        return self.answers - reach, self.answers + reach

    def project(self, body: str = "auto") -> Projection:
        """The nearest answers that some table of n records could have given; bodies as in `sf.project`."""
        return project(self.answers, self.plan.workload, body=body, total=float(self.reports))

    outcome = "tally"

    def headline(self) -> str:
        errors = self.standard_errors()
        return (
            f"{len(errors):,} answers from {self.reports:,} reports, each epsilon-private by itself; standard errors "
            f"{errors.min():,.4g} to {errors.max():,.4g} records at most"
        )

    def appended(self) -> Iterator[str]:
        yield from ("", self.plan.explain())

    def brief(self) -> str:
        return f"of {len(self.plan.workload):,} answers from {self.reports:,} reports"
