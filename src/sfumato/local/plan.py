"""Plans of the local model: which questions are put to persons, and the errors that follow. Nothing private."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import storable
from sfumato._util.description import Description, Facts, TitledTable
from sfumato._util.frames import Frame
from sfumato.errors import NotInRowSpace, PlanError
from sfumato.local.questions import (
    CentredOptimum,
    Effort,
    LocalReconstruction,
    Questions,
    Table,
    centred_optimum,
    design_questions,
    simplex_code,
)
from sfumato.operators.base import FloatArray
from sfumato.plans.planned import Planned
from sfumato.postprocess.projection import joint_attributes, joint_operator
from sfumato.privacy.accounting import Event, PureEvent
from sfumato.privacy.amounts import read_exact, readable_number
from sfumato.privacy.budget import Budget
from sfumato.privacy.local import check_epsilon
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.workloads import Workload

MAX_CELLS = 2_048  # planning takes about two minutes and 1.2 GB there (docs/local.md)
MAX_ENTRIES = 2**25  # 256 MB of coefficients, dense


@storable
@dataclass(frozen=True, slots=True)
class LocalCandidate:
    """One reporter considered: its predicted rmse with the planned number of reports, or why it was not built."""

    reporter: str
    labels: int
    rmse: float
    note: str = ""


@storable
@dataclass(frozen=True, eq=False, repr=False)
class LocalPlan(Planned):
    """What persons are asked, and the error that follows from it.

    Args:
        workload: The queries.
        epsilon: The epsilon of every report.
        records: A public (approximate) number of reports, for predictions.
        reporter: The name of the kind of questions.
        questions: The questions, one of which every person draws at random.
        bound: The least sum of variances per report that any protocol can have on the worst table, or None.
        considered: The reporters that were considered.

    Raises:
        PlanError: epsilon is not from 1/1024 to 64, the questions are about other cells than the queries, or the number
            of reports is not allowed.

    Guarantee:
        Every report is epsilon-differentially private by itself, whatever all others do: any two records of the person
        are told apart by a factor of e^epsilon at most.

    Source:
        [KLNRS11]
    """

    workload: Workload
    epsilon: Fraction
    records: int
    reporter: str
    questions: Questions
    bound: float | None = None
    considered: tuple[LocalCandidate, ...] = field(default=())
    budget: Budget = field(init=False)
    unit: PrivacyUnit = field(init=False)
    price: Event = field(init=False)
    mechanism: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        event, unit = PureEvent(self.epsilon), PrivacyUnit(Neighbours.REPLACE_ONE)
        said = {"budget": Budget.pure(self.epsilon), "unit": unit, "price": event, "mechanism": self.reporter}
        for name, value in said.items():
            object.__setattr__(self, name, value)
        cells = math.prod(self.workload.domain.sizes(self.names))
        if cells != self.questions.cells:
            raise PlanError(f"the questions are about {self.questions.cells:,} cells, the queries about {cells:,}")
        if type(self.records) is not int or self.records < 1:
            raise PlanError(f"records is the expected number of reports, at least 1, not {self.records!r}")

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """The attributes that a record must have."""
        return joint_attributes(self.workload)

    @functools.cached_property
    def reading(self) -> LocalReconstruction:
        """The map from reports to answers."""
        return LocalReconstruction(self.questions, dense_queries(self.workload), float(self.epsilon))

    @functools.cached_property
    def impossible(self) -> NDArray[np.bool_]:
        """(k,) whether a query counts only cells that are declared impossible."""
        possible = self.workload.domain.possible(self.names)
        if possible is None:
            return np.zeros(self.workload.shape[0], dtype=bool)
        queries = dense_queries(self.workload)
        counts = [(q != 0).sum(axis=1) for q in (queries, queries[:, possible.reshape(-1)])]
        return (counts[0] > 0) & (counts[1] == 0)

    # ---- errors ----

    @functools.cached_property
    def _spread(self) -> tuple[FloatArray, FloatArray]:
        """Variance per report: of each query at its worst cell (k,), and of each cell its mean over queries (m,)."""
        k, step = self.workload.shape[0], self.reading.step()
        possible = self.workload.domain.possible(self.names)
        can = np.ones(self.questions.cells) if possible is None else possible.reshape(-1)
        worst, mean = np.empty(k), np.zeros(self.questions.cells)
        for a in range(0, k, step):
            # a record is in no other cell, and answers about others are known to be 0
            part = np.where(self.impossible[a : a + step, None], 0.0, self.reading.variances(a, min(k, a + step))) * can
            worst[a : a + step] = part.max(axis=1)
            mean += part.sum(axis=0) / k
        return np.maximum(worst, 0.0), np.maximum(mean, 0.0)

    def standard_errors(self, records: int | None = None) -> FloatArray:
        """Standard errors for the table on which each is largest.

        Args:
            records: The number of reports; None takes the planned one.

        Returns:
            (k,) standard errors, in records.

        Raises:
            PlanError: The number of reports is not a whole number of at least 0.
        """
        return np.sqrt(self._spread[0] * _check_report_count(self.records if records is None else records))

    @property
    def rmse(self) -> float:
        """Root mean squared error over all queries, in records, for the table where it is largest."""
        return self.rmse_of(self.records)

    def rmse_of(self, records: int) -> float:
        """The root mean squared error over all queries for a number of reports, on the table where it is largest.

        Args:
            records: The number of reports.

        Returns:
            The error, in records.

        Raises:
            PlanError: The number of reports is not a whole number of at least 0.
        """
        return math.sqrt(float(self._spread[1].max()) * _check_report_count(records))

    def rmse_on(self, cells: Any) -> float:
        """The exact root mean squared error over all queries for one table.

        Args:
            cells: (m,) counts of the cells of `names`.

        Returns:
            The error, in records.

        Raises:
            PlanError: The counts are not m numbers, or one is negative.
        """
        x = np.asarray(cells, dtype=np.float64).reshape(-1)
        if x.shape != self._spread[1].shape or not (np.isfinite(x).all() and x.min() >= 0):
            raise PlanError(f"counts are {self.questions.cells:,} numbers, none negative")
        return math.sqrt(float(self._spread[1] @ x))

    @property
    def lower_bound(self) -> float | None:
        """A proved bound on the rmse on the worst table, or None.

        It holds for unbiased linear answers from epsilon-differentially private reports of one kind.
        """
        return None if self.bound is None else math.sqrt(self.bound / self.workload.shape[0] * self.records)

    # ---- the report ----

    @property
    def outcomes(self) -> int:
        """The number of different reports: a report is a whole number below it."""
        return self.questions.outcomes

    @property
    def report_bytes(self) -> int:
        """The number of bytes that a report needs."""
        return -(-(self.outcomes - 1).bit_length() // 8)

    def respond(self, record: Any, *, most: Any = None) -> int:
        """One person's report, made on the person's device and sent as it is.

        Calling it again spends epsilon again. Randomness is the operating system's.

        Args:
            record: A mapping of the plan's attributes to the person's values.
            most: The largest epsilon that the person agreed to. Devices should give it, as a plan comes from the
                server.

        Returns:
            The report, a whole number below `outcomes`.

        Raises:
            PlanError: The plan's epsilon is above `most`. The record is not looked at.
            InvalidInput: The record has no cell.

        Guarantee:
            The report is epsilon-differentially private for any two records, by itself.
        """
        from sfumato.local.collecting import draw_report  # noqa: PLC0415  (its release holds a plan)

        return draw_report(self, record, most=most)

    def collect(self, reports: Any) -> Any:
        """Answers from all reports, one from each person, in any order.

        A false report moves an answer no further than one that an honest device could have sent, but that is far;
        nothing here finds false reports.

        Args:
            reports: Whole numbers below `outcomes`, as `respond` makes them.

        Returns:
            The release.

        Raises:
            InvalidInput: A report is no such number, or there is none.

        Guarantee:
            Post-processing: it costs no privacy.
        """
        from sfumato.local.collecting import answer_reports  # noqa: PLC0415  (its release holds a plan)

        return answer_reports(self, reports)

    # ---- words and files ----

    decides = ("workload", "epsilon", "questions")

    @property
    def candidates(self) -> Frame:
        """Every reporter that was considered."""
        return Frame.of(LocalCandidate, self.considered)

    def describe(self) -> Description:
        cells = f"{self.questions.cells:,} cells of {', '.join(self.names)}"
        considered = [TitledTable("Considered", self.candidates)] if self.considered else []
        headline = f"Local plan: {self.workload.shape[0]:,} queries over {cells}"
        return Description(headline, [Facts(tuple(self._lines())), *considered])

    def _lines(self) -> Iterator[tuple[str, str]]:
        q, bound, largest = self.questions, self.lower_bound, float(self.standard_errors().max())
        far = "none known" if not bound else f"{bound:,.5g}; this plan is {self.rmse / bound - 1:.1%} above it"
        own = (
            f"every person's record, on the person's own device: any two records, epsilon "
            f"{readable_number(self.epsilon)}"
        )
        asked = f"one of {len(q.table):,} public questions at random, {q.labels} possible answers ({self.reporter})"
        error = f"rmse {self.rmse:,.5g} records at {self.records:,} reports, largest standard error {largest:,.5g}"
        yield "protects", f"{own} a report"
        yield from self.workload.domain.told()
        yield "spends", "epsilon again for every further report of the same person: ask for one"
        yield "asks", asked
        yield "reports", f"{self.report_bytes} bytes"
        yield "error", f"{error}; on the worst table"
        yield "best", f"any protocol of one epsilon-LDP report each: {far}"

    def brief(self) -> str:
        return f"{self.mechanism}: {len(self.questions.table):,} questions, epsilon {readable_number(self.epsilon)}"


def _check_report_count(records: Any) -> int:
    if isinstance(records, bool) or not isinstance(records, (int, np.integer)) or records < 0:
        raise PlanError(f"a number of reports is a whole number, not {records!r}")
    return int(records)


def dense_queries(work: Workload) -> FloatArray:
    """(k, m) the queries over the cells of all attributes they mention. Raises PlanError where these are too many."""
    cells = math.prod(work.domain.sizes(joint_attributes(work)))
    if not 2 <= cells <= MAX_CELLS or cells * len(work) > MAX_ENTRIES:
        raise PlanError(
            f"the local model takes queries over 2 to {MAX_CELLS:,} cells, at most {MAX_ENTRIES:,} coefficients; these "
            f"are {len(work):,} queries over {cells:,}. Take coarser cells or fewer attributes, or ask disjoint groups "
            "of persons about different tables"
        )
    if len(work.units) > 1:
        raise PlanError(f"plan counts and sums one by one: these queries are of {', '.join(work.units)}")
    return np.asarray(joint_operator(work).dense(), dtype=np.float64)


REPORTERS = ("auto", "randomized-response", "hadamard", "hashing", "designed")
"""What `reporter=` accepts."""

_MAX_FEATURES = 2**25  # 256 MB of code
_NEAR = 1.02  # of the bound: no search betters that by enough to be worth it
_ONE_SEARCH = 512  # cells above which one number of labels is tried
_SEED = 20  # the search is public and repeatable: equal workloads get equal questions
Maker = Callable[[], tuple[Table, int, FloatArray]]


def plan_local(work: Workload, epsilon: Any, *, records: int, reporter: str = "auto") -> LocalPlan:
    """The questions by which persons who report with local epsilon tell most about the queries.

    records: a public (approximate) number of reports, one for each person, for predictions. Reporters:
    "randomized-response" (which cell, one question), "hadamard" and "hashing" (questions alike for all pairs of cells,
    with two and with about e^epsilon + 1 labels), "designed" (questions searched for this workload, with two and more
    labels); "auto" takes the least predicted rmse.

    Guarantee: each report is epsilon-DP for any two records of its person [KLNRS11]; see `sfumato.privacy.local`.
    Raises PlanError for more than 2,048 cells, and for what is not offered.
    """
    if not isinstance(work, Workload):
        raise PlanError("plan_local needs a workload, made by sf.prefix, sf.marginals, sf.queries, ...")
    if work.domain.measures:
        raise PlanError(
            f"reports tell cells, and measures ({', '.join(work.domain.measures)}) have none: declare a domain without "
            "them, and sf.Bins of a number whose sums are asked of reports"
        )
    price = check_epsilon(read_exact(epsilon, "epsilon"))
    if reporter not in REPORTERS:
        raise PlanError(f"reporter must be one of {', '.join(REPORTERS)}, not {reporter!r}")
    queries = dense_queries(work)
    weights = np.concatenate([np.full(i.rows, float(i.weight)) for i in work.items])
    gram = (queries.T * weights) @ queries
    cells = len(gram)
    if (queries == queries[:, :1]).all():
        raise PlanError(
            "these queries weigh all cells alike, so they follow from the number of reports: nothing to ask"
        )
    centre = centred_optimum(gram, rounds=60 if cells <= 512 else 12 if cells <= 1024 else 5)
    plain = bool((weights == weights[0]).all())
    bound = centre.bound(float(price)) / float(weights[0]) if plain else None

    best: LocalPlan | None = None
    lines: list[LocalCandidate] = []
    for name, make in _reporter_makers(gram, centre, float(price), reporter):
        near = best is not None and best.lower_bound is not None and best.rmse <= _NEAR * best.lower_bound
        if name == "designed" and near:
            continue
        table, labels, shares = make()
        try:
            found = LocalPlan(work, price, records, name, Questions.of(table, labels, shares), bound)
            value = found.rmse
        except NotInRowSpace:
            continue
        lines.append(LocalCandidate(name, labels, value))
        if best is None or value < best.rmse:
            best = found
    if best is None:
        raise PlanError(f"the questions of {reporter!r} do not tell these queries; take reporter='designed' or 'auto'")
    if plain:
        lines.append(_ball_candidate(centre, float(price), best, float(weights[0])))
    chosen = replace(best, considered=tuple(lines))
    vars(chosen).update({k: v for k, v in vars(best).items() if k in ("reading", "_spread")})
    return chosen


def _reporter_makers(
    gram: FloatArray, centre: CentredOptimum, epsilon: float, reporter: str
) -> list[tuple[str, Maker]]:
    """The reporters to compare, none made yet."""
    m = len(gram)
    out: list[tuple[str, Maker]] = []

    def code(labels: int) -> Maker:
        def make() -> tuple[Table, int, FloatArray]:
            table = simplex_code(m, labels)
            return table, labels, np.full(len(table), 1 / len(table))

        return make

    def searched(labels: int) -> Maker:
        return lambda: _design_reporter(gram, centre, labels)

    if reporter in ("auto", "randomized-response"):
        out.append(("randomized-response", code(m)))
    if reporter in ("auto", "hadamard") and m > 2:
        out.append(("hadamard", code(2)))
    prime = _prime_near(round(math.exp(min(epsilon, 12.0))) + 1)
    if reporter in ("auto", "hashing") and 2 < prime < m:
        out.append(("hashing", code(prime)))
    if reporter in ("auto", "designed") and m > 2:
        out += [("designed", searched(g)) for g in _label_counts(epsilon, m)]
    if not out:
        raise PlanError(f"reporter {reporter!r} has as many labels as cells at this epsilon; take 'auto'")
    return out


def _design_reporter(gram: FloatArray, centre: CentredOptimum, labels: int) -> tuple[Table, int, FloatArray]:
    m = len(gram)
    code = simplex_code(m, labels) if _is_prime(labels) else None
    extra = [] if code is None or len(code) * labels * m > _MAX_FEATURES or m > _ONE_SEARCH else [code]
    rng = np.random.default_rng(_SEED)
    table, shares = design_questions(gram, labels, centre.strategy, extra, rng, search_effort(m))
    return table, labels, shares


def search_effort(cells: int) -> Effort:
    """What takes some ten CPU-s for each number of labels, about two minutes and 1.2 GB at the largest."""
    if cells <= 256:
        return Effort(4, 12, 6 if cells <= 128 else 3, 60 if cells <= 128 else 24)
    return Effort(4, 12, 1, 8) if cells <= 512 else Effort(4, 8, 0, 4) if cells <= 1024 else Effort(2, 2, 0, 0)


def _label_counts(epsilon: float, cells: int) -> list[int]:
    """Two, about e^(epsilon/2) + 1 and about e^epsilon + 1: the last is best where all pairs of cells are alike."""
    most = max(2, min(cells, _MAX_FEATURES // (search_effort(cells).start * cells * cells)))
    found = sorted({min(most, round(math.exp(min(e, 12.0))) + 1) for e in (0.0, epsilon / 2, epsilon)})
    return found if cells <= _ONE_SEARCH else found[(len(found) - 1) // 2 :][:1]


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, math.isqrt(n) + 1))


def _prime_near(n: int) -> int:
    return min((p for p in range(2, 2 * n + 2) if _is_prime(p)), key=lambda p: abs(p - n))


def ball_constant(epsilon: float, dimension: int) -> float:
    """B^2 / d: variance per coordinate of the reporter of Duchi, Jordan and Wainwright on the unit ball [DJW18].

    B = (e^epsilon + 1) / (e^epsilon - 1) (sqrt(pi) / 2) d Gamma((d + 1) / 2) / Gamma(d / 2 + 1).
    """
    d = dimension
    log = math.lgamma((d + 1) / 2) - math.lgamma(d / 2 + 1) + 0.5 * math.log(math.pi) + math.log(d / 2)
    return (math.exp(log) / math.tanh(epsilon / 2)) ** 2 / d


def _ball_candidate(centre: CentredOptimum, epsilon: float, plan: LocalPlan, weight: float) -> LocalCandidate:
    """The l2-ball reporter on the same optimum, as [ENU20] have it: shown, not built."""
    per_report = centre.upper**2 / weight * ball_constant(epsilon, len(centre.strategy))
    rmse = math.sqrt(per_report / plan.workload.shape[0] * plan.records)
    return LocalCandidate("l2-ball", 0, rmse, "shown only: its reports are real vectors")
