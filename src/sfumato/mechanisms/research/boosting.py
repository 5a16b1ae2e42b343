"""Boosting for queries, on top of the projection mechanism: a research option. [DRV10]

Every round samples queries, more often those that the models of earlier rounds miss; measures the sampled ones alone;
and makes of that a model of the whole table, the nearest that some table could have given (projection). Answers are the
medians of all rounds' models. Queries are drawn by the exponential mechanism over sums of clipped misses: one draw is
the distribution of [DRV10] after those rounds, exactly.

With a = clip(1 - 2 (e - floor) / ceiling, -1, 1) for the miss e of a model, sum over t of -alpha a_t is, but for a
constant, (2 alpha / ceiling) sum clip(e_t - floor, 0, ceiling). One record moves that by c_t = 2 alpha t moves /
ceiling over t models, so a draw has a bounded range of 2 c_t.

From average to worst: where each model misses by `floor` at most on 1/2 + eta of its round's distribution, the mean of
exp(-alpha sum a_t) over the k queries shrinks by sqrt(1 - 4 eta^2) a round. A query whose median misses by more than
floor + ceiling holds 1 of that sum, so none does once k (1 - 4 eta^2)^(T/2) < 1. That the models are so good is not
proved: [DRV10] proves it for more samples than any budget of practice pays for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np

from sfumato._util.codec import storable
from sfumato.curator import Curator
from sfumato.curator.selecting import select
from sfumato.errors import PlanError
from sfumato.measurements import Measurement, Selection
from sfumato.mechanisms.iterative import (
    UNPROMISED,
    AskedQueries,
    Iterative,
    price_per_measurement,
    price_per_selection,
    zero_cost_event,
)
from sfumato.operators import Block
from sfumato.operators.base import FloatArray
from sfumato.plans.iterative import IterativePlan, Look
from sfumato.postprocess.bodies import project
from sfumato.postprocess.possible import CellCounts, Medians
from sfumato.privacy.accounting import Account, BoundedRangeEvent, Event, GaussianEvent, PureEvent
from sfumato.privacy.amounts import Currency
from sfumato.privacy.boosting_score import Misses
from sfumato.privacy.ledger.words import compose_events
from sfumato.privacy.selection import draw_below, score_sensitivity
from sfumato.releases.modelled import Findings
from sfumato.strategies.calibration import price_of
from sfumato.strategies.design import Problem
from sfumato.workloads import QueryBlock, Workload

_SHARE = Fraction(1, 2)  # of the budget, for drawing
_ETA = 1 / 4  # models are hoped to answer 1/2 + eta of the queries
_ALPHA = math.log((1 + 2 * _ETA) / (1 - 2 * _ETA)) / 2
_ROUNDS, _SAMPLES = 5, 100  # few, for every draw costs: [DRV10] leaves both open, and any numbers near would do
_MOST_ROUNDS = 10**5  # every round lists its looks; the price forbids far fewer
_MOST_CELLS, _MOST_QUERIES = 2**14, 2**14  # every draw weighs all queries against all cells (2^28 products)


@storable
@dataclass(frozen=True, slots=True)
class BoostingRounds:
    """rounds of so many samples each; a draw after t rounds is a bounded range of t times `selection`'s epsilon; the
    price of a measurement; from where misses count, and from where no more; whether the number of records is public.
    """

    stored_as = "BoostingCourse"  # its name in files

    rounds: int
    samples: int
    selection: BoundedRangeEvent
    measurement: Event
    floor: int
    ceiling: int
    total_known: bool

    def __post_init__(self) -> None:
        whole = (self.rounds, self.samples, self.floor, self.ceiling)
        if any(type(n) is not int for n in whole) or min(self.rounds, self.samples, self.ceiling) < 1 or self.floor < 0:
            raise PlanError("boosting has rounds and samples, and misses that count up to a ceiling")
        if max(self.rounds, self.samples) > _MOST_ROUNDS:
            raise PlanError(f"boosting has at most {_MOST_ROUNDS:,} rounds, of at most so many samples each")
        if not isinstance(self.selection, BoundedRangeEvent):
            raise PlanError("a draw is priced as a BoundedRangeEvent")
        if not isinstance(self.measurement, (GaussianEvent, PureEvent)):
            raise PlanError("a measurement of boosting is priced as a GaussianEvent or a PureEvent")

    @property
    def summary(self) -> str:
        """In words."""
        return (
            f"{self.rounds:,} rounds: draw {self.samples:,} queries that earlier models miss by more than "
            f"{self.floor:,} records (up to {self.ceiling:,} more count), measure and project them; answer medians"
        )

    @property
    def looks(self) -> tuple[Look, ...]:
        """All looks, with the price of each. The queries of the first round are drawn without looking."""
        out = [Look(f"a query drawn in round {t + 1}", self.samples, self.draw(t)) for t in range(1, self.rounds)]
        if self.total_known:
            out.insert(0, Look("the number of records, which is public", 1, zero_cost_event(self.measurement)))
            return (*out, Look("the drawn queries, measured", self.rounds, self.measurement))
        return (*out, Look("the drawn queries, measured, and first the total", self.rounds + 1, self.measurement))

    def bound(self, plan: IterativePlan) -> None:
        """None is known."""
        return

    def worst(self, queries: int) -> str:
        """What boosting makes of models that are good on average, in words; misses are of rounded models."""
        needed, worst = rounds_for_all_queries(queries), self.floor + self.ceiling + 1
        return (
            f"from average to worst: once {needed:,} rounds (here {self.rounds:,}) each have a model that misses three "
            f"quarters of its distribution by {self.floor:,} records at most, no answer to any query misses by more "
            f"than {worst:,} [DRV10]; that models are so good is not proved"
        )

    def draw(self, models: int) -> BoundedRangeEvent:
        """The price of one draw by the misses of so many models."""
        return BoundedRangeEvent(models * self.selection.epsilon)


def plan_boosting(problem: Problem, rounds: int | None, strategy: object) -> IterativePlan:
    """The plan. Raises PlanError for workloads that are not of whole numbers, or too large for explicit cells."""
    if strategy is not None:
        raise PlanError("mechanism='boosting' measures the queries that it draws; leave out strategy=")
    work, unit, price = problem.workload, problem.unit, price_of(problem.budget)
    asked = AskedQueries(work, unit, price)
    if math.prod(asked.sizes) > _MOST_CELLS or len(work) > _MOST_QUERIES:
        raise PlanError(
            f"mechanism='boosting' projects onto all cells in every round ({math.prod(asked.sizes):,}) and scores "
            f"every query for every draw ({len(work):,}); up to {_MOST_CELLS:,} and {_MOST_QUERIES:,}"
        )
    count = _ROUNDS if rounds is None else rounds
    samples = min(_SAMPLES, len(work))
    moves = score_sensitivity(
        Misses(asked.blocks, np.zeros((1, len(work)), dtype=np.int64), 0, 2**40), asked.every, unit
    )
    if not moves:
        raise PlanError("no query depends on any one record; mechanism='boosting' has nothing to draw by")
    unit_draw = _unit_draw(price, count, samples)
    # epsilon of a draw after t rounds is 2 c_t = 4 alpha t moves / ceiling
    ceiling = max(moves, math.ceil(4 * _ALPHA * moves / float(unit_draw.epsilon)))
    course = BoostingRounds(
        count, samples, unit_draw, zero_cost_event(price), ceiling // 4, ceiling, unit.total_is_public
    )
    account = Account(price)
    drawn = compose_events((k.price for k in course.looks for _ in range(k.count)), account.currency)
    looks = count + (not unit.total_is_public)
    course = replace(course, measurement=price_per_measurement(price, drawn, looks))
    notes = (UNPROMISED, course.worst(len(work)))
    return IterativePlan(work, problem.budget, unit, "boosting", price, course, problem.records, notes=notes)


def rounds_for_all_queries(queries: int) -> int:
    """The rounds after which models that are good on 1/2 + eta of each distribution leave no query to a bad median."""
    return math.floor(2 * math.log(queries) / -math.log(1 - 4 * _ETA**2)) + 1


def _unit_draw(price: Event, rounds: int, samples: int) -> BoundedRangeEvent:
    """The bounded range whose multiples 1, 2, ..., one for each round but the first, cost that share together.

    rho of a draw grows as the square of its epsilon; mu^2 too, or less, as [DRS22] mu of epsilon-DP is concave.
    """
    account = Account(price)
    pure = account.currency is Currency.EPSILON
    weight = samples * sum(t if pure else t * t for t in range(1, rounds))
    return price_per_selection(price, _SHARE, max(1, weight))


def run_boosting(plan: IterativePlan, curator: Curator) -> Findings:
    """All rounds, through a curator that holds the plan's price and nothing else."""
    course: BoostingRounds = plan.course
    asked = AskedQueries(plan.workload, plan.unit, course.measurement)
    first, total = asked.total(curator, plan.fingerprint)
    looks: list[Measurement | Selection] = [first]
    models: list[CellCounts] = []
    estimates: list[FloatArray] = []
    count = len(plan.workload)
    for t in range(course.rounds):
        if t == 0:
            # alike for all queries, so nothing is looked at
            drawn = [draw_below(count) for _ in range(course.samples)]
        else:
            misses = Misses(asked.blocks, np.rint(estimates).astype(np.int64), course.floor, course.ceiling)
            draws = [
                select(curator, misses, course.draw(t), name=f"draw {t + 1}.{i + 1}", plan_hash=plan.fingerprint)[0]
                for i in range(course.samples)
            ]
            looks += [Selection(q, count) for q in draws]
            drawn = draws
        blocks = asked.rows(drawn)
        measured = asked.look(curator, blocks, f"measurement {t + 1}", plan.fingerprint)
        looks.append(measured)
        models.append(_project_measured(plan.workload, asked, measured, total))
        estimates.append(np.concatenate([models[-1].answer(b) for b in asked.blocks]))
    return Findings(tuple(looks), Medians(tuple(models)))


@dataclass(frozen=True, repr=False, kw_only=True)
class Boosting(Iterative):
    """Boosting for queries: models of drawn queries, whose median answers.

    Args:
        rounds: The number of rounds, from 1 to 1,000; None takes 5.

    Raises:
        PlanError: The number of rounds is not allowed.

    Source:
        [DRV10]
    """

    name: ClassVar[str] = "boosting"
    kind: ClassVar[type] = BoostingRounds
    unknown: ClassVar[str] = "nothing is proved of its errors; a promise for the largest error has mechanism='pmw'"

    def planned(self, problem: Problem, strategy: object) -> IterativePlan:
        return plan_boosting(problem, self.rounds, strategy)

    @staticmethod
    def run(plan: IterativePlan, curator: Curator) -> Findings:
        return run_boosting(plan, curator)


def _project_measured(work: Workload, asked: AskedQueries, measured: Measurement, total: float) -> CellCounts:
    """Cells with nearly the measured answers; alike along attributes that were not measured."""
    queries = tuple(QueryBlock("drawn", b) for b in measured.blocks if isinstance(b, Block))
    values = np.concatenate(measured.values).astype(np.float64)
    found = project(values, Workload(work.domain, queries), body="hull", total=total)
    held = found.possible
    assert isinstance(held, CellCounts)
    shape = [work.domain[a].size if a in held.attributes else 1 for a in asked.names]
    possible = work.domain.possible(asked.names)
    alike = np.ones(asked.sizes) if possible is None else possible.astype(np.float64)
    along = tuple(i for i, a in enumerate(asked.names) if a not in held.attributes)
    return CellCounts(
        asked.names, held.values.reshape(shape) * alike / np.maximum(alike.sum(axis=along, keepdims=True), 1)
    )
