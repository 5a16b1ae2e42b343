"""MWEM: choose a query that the model answers badly, measure it, mend the model; several times over. [HLM12]

Every round selects one query by its error under the model of the rounds before, and measures the table that it lies in
(where that takes no more noise than its sensitivity says: cells of one table are disjoint), or, by strategy="queries",
the query alone. The model are cells moved by multiplicative weights until every measured answer is met within its
noise; those of the last round are fitted once more, to all measurements at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from sfumato.designs.design import Problem
from sfumato.designs.spending import price_of
from sfumato.errors import PlanError
from sfumato.estimate.multiplicative import Hypothesis
from sfumato.estimate.possible import CellCounts
from sfumato.estimate.projection import joint_attributes
from sfumato.estimate.tilted import ENOUGH, Noisy, tilted
from sfumato.ground.codec import storable
from sfumato.measurements import Measurement, Selection
from sfumato.mechanisms.asked import Asked
from sfumato.mechanisms.iterative import Iterative
from sfumato.mechanisms.shares import UNPROMISED, free, measured_at, noise_at, selections_at, spent_on
from sfumato.operators import Block
from sfumato.operators.base import FloatArray
from sfumato.plans.iterative import AccuracyBound, IterativePlan, Look
from sfumato.privacy.accountant import BoundedRangeEvent, Event, GaussianEvent, PureEvent
from sfumato.privacy.selection import Candidates, score_sensitivity
from sfumato.releases.modelled import Findings
from sfumato.wall import Curator
from sfumato.wall.selecting import select
from sfumato.workloads import Workload

__all__ = ["Mwem", "MwemRounds", "planned", "rounds_for", "run"]

_SHARE = Fraction(1, 4)  # of the budget, for choosing
_PASSES = 50  # over all that was measured, as `sfumato.sessions.belief` has it: few models need as many
_PRIOR = 0.01  # of the penalty that holds a model near uniform: so little that it decides only what nothing else does
_LEAST_VARIANCE = 0.01  # no answer has to be met to less than a tenth of a record
_FAILURE = 0.05  # the probability that a bound on errors is stated with, as everywhere
# Every round answers all queries and holds all cells: a table of 10^7 takes 80 MB and a second a round.
_MOST_QUERIES, _MOST_CELLS, _MOST_ROUNDS = 2**17, 10**7, 1000
_NEVER = 2**60  # a penalty under which a query is not chosen again


@storable
@dataclass(frozen=True, slots=True)
class MwemRounds:
    """rounds; whether the whole table of a chosen query is measured; the prices of a choice and of a measurement;
    whether the number of records is public, or measured first."""

    stored_as = "MwemCourse"  # its name in files

    rounds: int
    whole: bool
    selection: BoundedRangeEvent
    measurement: Event
    total_known: bool

    def __post_init__(self) -> None:
        if type(self.rounds) is not int or self.rounds < 1 or not isinstance(self.selection, BoundedRangeEvent):
            raise PlanError("mwem has at least one round, and a BoundedRangeEvent as the price of a choice")
        if not isinstance(self.measurement, (GaussianEvent, PureEvent)):
            raise PlanError("a measurement of mwem is priced as a GaussianEvent or a PureEvent")

    @property
    def looks(self) -> tuple[Look, ...]:
        """All looks, with the price of each."""
        chosen = Look("a query selected by its error", self.rounds, self.selection)
        if self.total_known:
            total = Look("the number of records, which is public", 1, free(self.measurement))
            return total, chosen, Look("a measurement", self.rounds, self.measurement)
        return chosen, Look("a measurement, the first of the total", self.rounds + 1, self.measurement)

    @property
    def summary(self) -> str:
        """In words."""
        what = "it, with its table where that costs no more" if self.whole else "it alone"
        return f"{self.rounds:,} rounds: select a query that the model answers badly, measure {what}; mend the model"

    def bound(self, plan: IterativePlan) -> AccuracyBound | None:
        """See `_bound`; where the number of records is known and errors of all queries weigh alike."""
        work, unit, n = plan.workload, plan.unit, plan.records
        if n is None or not unit.total_is_public:
            return None
        asked = Asked(work, unit, plan.price)
        choices = _Choices(work, asked, whole=self.whole)
        if choices.weighted:
            return None
        moves = score_sensitivity(choices.candidates(np.zeros(len(work))), asked.every, unit)
        return _bound(plan, n, math.prod(asked.sizes), moves)


def rounds_for(problem: Problem) -> int:
    """The public rule: 2 sqrt(n sqrt(rho)) with n the expected number of records, at least 1.

    Rounds buy attention and cost noise. For pure epsilon, where the noise of each of T rounds grows as T, the same rule
    at rho = epsilon^2 / (8 T). Raises PlanError without records.
    """
    n, budget = problem.records, problem.budget
    if n is None:
        raise PlanError(
            "mechanism='mwem' takes its number of rounds from how many records are expected; give records=, a public "
            "and approximate number, or rounds="
        )
    if budget.kind == "pure":
        wanted = (2 * math.sqrt(n * float(budget.parameter)) / 8**0.25) ** 0.8
    else:
        wanted = 2 * math.sqrt(n * math.sqrt(float(budget.mu_squared) / 2))
    return max(1, min(_MOST_ROUNDS, round(wanted)))


def planned(problem: Problem, rounds: int | None, strategy: object) -> IterativePlan:
    """The plan. Raises PlanError for workloads that are not of whole numbers, or too large for explicit cells."""
    if strategy is not None and (not isinstance(strategy, str) or strategy != "queries"):
        raise PlanError("mechanism='mwem' measures the tables of chosen queries; strategy='queries' the queries alone")
    work, unit = problem.workload, problem.unit
    cells = math.prod(work.domain.sizes(joint_attributes(work)))
    if cells > _MOST_CELLS or len(work) > _MOST_QUERIES:
        raise PlanError(
            f"mechanism='mwem' keeps one number per cell of all attributes that are asked ({cells:,}) and scores every "
            f"query ({len(work):,}); up to {_MOST_CELLS:,} and {_MOST_QUERIES:,}. Take mechanism='projection' or "
            "'adaptive'"
        )
    price = price_of(problem.budget)
    choices = _Choices(work, Asked(work, unit, price), whole=strategy is None)
    moves = score_sensitivity(choices.candidates(np.zeros(len(work))), problem.sizes, unit)
    if not moves:
        raise PlanError("no query depends on any one record; mechanism='mwem' has nothing to choose by")
    count = min(rounds_for(problem) if rounds is None else rounds, choices.count)
    selection = selections_at(price, _SHARE, count)
    looks = count + (not unit.total_is_public)
    measurement = measured_at(price, spent_on(price, selection, count), looks)
    course = MwemRounds(count, strategy is None, selection, measurement, unit.total_is_public)
    return IterativePlan(work, problem.budget, unit, "mwem", price, course, problem.records, notes=(UNPROMISED,))


def _bound(plan: IterativePlan, n: int, cells: int, moves: int) -> AccuracyBound:
    """Of plain MWEM: one step p exp(4 d q) a round, d the noisy gap as a share of the records, whose number is known;
    any query may be selected again, all alike; answers are those of the average of the rounds' models.

    Values of q in [0, 1], true gap g, d = g + v: the divergence from the table falls by 4 d g - 2 d^2 = 2 g^2 - 2 v^2
    a round, and starts at ln m at most; so the root mean square of g is at most sqrt(ln m / (2 T)) + max |v|. The gap
    of a selected query is within the slack of the exponential mechanism of the largest. Slack and noise are bounded
    in all rounds together, each with probability 1 - failure/2. [HLM12, HR10]
    """
    course: MwemRounds = plan.course
    rounds, k = course.rounds, len(plan.workload)
    operators = [q.block.operator for q in plan.workload.blocks]
    width = max(o.max_abs * (1 if o.nonnegative else 2) for o in operators)
    drift = n * width * math.sqrt(math.log(cells) / (2 * rounds))
    slack = 1 + 2 * moves / float(course.selection.epsilon) * math.log(2 * k * rounds / _FAILURE)
    tail = math.log(4 * rounds / _FAILURE)
    most = 2 * moves if course.whole else moves
    if isinstance(course.measurement, PureEvent):
        far = 1 + float(most / course.measurement.epsilon) * tail
    else:
        far = 1 + math.sqrt(2 * tail * noise_at(course.measurement, most * moves).variance)
    return AccuracyBound(drift + slack + far, _FAILURE, "plain MWEM")


class _Choices:
    """The queries as candidates, with what is measured when one of them is chosen."""

    def __init__(self, work: Workload, asked: Asked, *, whole: bool) -> None:
        self._asked, self._whole = asked, whole
        weights = [float(q.weight) for q in work.blocks]
        # variances are weighted by w, so errors by its root; in eighths, and at most a thousandfold
        scaled = [min(1024.0, math.sqrt(w / min(weights))) for w in weights]
        each = [1 if max(scaled) == 1 else max(1, round(8 * s)) for s in scaled]
        self._weights = np.repeat(np.array(each, dtype=np.int64), [b.rows for b in asked.blocks])
        self._penalties = np.zeros(len(self._weights), dtype=np.int64)
        self._tables: dict[int, bool] = {}

    @property
    def weighted(self) -> bool:
        """Whether errors of some queries weigh more than those of others."""
        return bool((self._weights != 1).any())

    @property
    def count(self) -> int:
        """How many rounds there can be before everything is measured."""
        return sum(1 if self._at_once(i) else b.rows for i, b in enumerate(self._asked.blocks))

    def candidates(self, estimates: FloatArray) -> Candidates:
        """All queries, those measured before with a penalty that nothing outweighs."""
        return Candidates(self._asked.blocks, np.rint(estimates).astype(np.int64), self._weights, self._penalties)

    def _at_once(self, place: int) -> bool:
        """Whether all rows of a block are measured at once: if that is no more than twice a row's sensitivity.

        Twice, for under replace-one a record leaves one cell of a table for another; but then the cells also tell
        each other's noise, for their total is known.
        """
        if place not in self._tables:
            block, asked = self._asked.blocks[place], self._asked
            alone = Candidates((block,), *(np.full(block.rows, v, dtype=np.int64) for v in (0, 1, 0)))
            moves = score_sensitivity(alone, asked.every, asked.unit) if self._whole and block.rows > 1 else 0
            self._tables[place] = bool(moves) and asked.moved([block]) <= 2 * moves**asked.power
        return self._tables[place]

    def taken(self, query: int) -> Block:
        """What is measured for a query, none of whose rows is chosen again."""
        place, row = self._asked.place(query)
        block = self._asked.blocks[place]
        if self._at_once(place):
            self._penalties[query - row : query - row + block.rows] = _NEVER
            return block
        self._penalties[query] = _NEVER
        return self._asked.rows([query])[0]


def run(plan: IterativePlan, curator: Curator) -> Findings:
    """All rounds, through a curator that holds the plan's price and nothing else."""
    course: MwemRounds = plan.course
    asked = Asked(plan.workload, plan.unit, course.measurement)
    choices = _Choices(plan.workload, asked, whole=course.whole)
    first, total = asked.total(curator, plan.fingerprint)
    looks: list[Measurement | Selection] = [first]
    possible = plan.workload.domain.possible(asked.names)
    model, given = Hypothesis(asked.sizes, total, possible), list[Noisy]()
    for i in range(course.rounds):
        candidates = choices.candidates(_answers(asked, model))
        query, _ = select(curator, candidates, course.selection, name=f"choice {i + 1}", plan_hash=plan.fingerprint)
        block = choices.taken(query)
        measured = asked.look(curator, [block], f"measurement {i + 1}", plan.fingerprint)
        looks += [Selection(query, len(candidates)), measured]
        values = measured.values[0].astype(np.float64)
        variance = max(measured.noise.variance, _LEAST_VARIANCE)
        given.append(Noisy(asked.axes(block), block.operator, values, variance))
        _replay(model, given)
    fitted = tilted(asked.sizes, total, given, _PRIOR, possible)
    # what is said beside the looks is the same for all tables, where the search ended as it should
    return Findings(tuple(looks), CellCounts(asked.names, fitted.cells), max(fitted.gap, ENOUGH))


@dataclass(frozen=True, repr=False, kw_only=True)
class Mwem(Iterative):
    """MWEM. rounds: by default 2 sqrt(n sqrt(rho)) for n expected records. strategy="queries" of `sf.plan` measures
    the chosen queries alone, not their tables."""

    name: ClassVar[str] = "mwem"
    kind: ClassVar[type] = MwemRounds
    unknown: ClassVar[str] = (
        "its bound is of another model than it releases, and never less than .17 of the records at any size that was "
        "tried; a promise for the largest error has mechanism='pmw'"
    )

    def planned(self, problem: Problem, strategy: object) -> IterativePlan:
        return planned(problem, self.rounds, strategy)

    @staticmethod
    def run(plan: IterativePlan, curator: Curator) -> Findings:
        return run(plan, curator)


def _answers(asked: Asked, model: Hypothesis) -> FloatArray:
    """(k,) answers of a model."""
    axes = [asked.axes(b) for b in asked.blocks]
    tables = {a: model.table(a) for a in dict.fromkeys(axes)}
    found = [b.operator.matvec(tables[a]) for b, a in zip(asked.blocks, axes, strict=True)]
    return np.concatenate(found).astype(np.float64)


def _replay(model: Hypothesis, given: Sequence[Noisy]) -> None:
    """Move a model towards all measured answers in turn, until each is met within its noise."""
    for _ in range(_PASSES):
        worst = 0.0
        for g in given:
            gaps = g.values - model.answer(g.operator, g.axes)
            worst = max(worst, float(np.abs(gaps).max()) / math.sqrt(g.variance))
            row = np.asarray(g.operator.rmatvec(gaps), dtype=np.float64) / g.operator.max_abs**2
            largest = float(np.abs(row).max())
            if largest > 0:
                # gaps as shares, so that a step is that of [HLM12] with all gaps of a table at once
                model.update(np.clip(row / largest, -1.0, 1.0), min(1.0, largest / model.total), g.axes)
        if worst < 1:
            return
