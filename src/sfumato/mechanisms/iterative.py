"""Iterative mechanisms, of several looks: what they share, and how their plans are carried out."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np

from sfumato._util.codec import storable
from sfumato.curator import Curator
from sfumato.curator.selecting import select
from sfumato.errors import PlanError
from sfumato.measurements import Measurement, Selection
from sfumato.mechanisms.registry import TABLES, Mechanism, Request, check_whole_option, mechanism_class
from sfumato.mechanisms.tables import make_problem
from sfumato.operators import Block, Dense
from sfumato.operators.base import FloatArray
from sfumato.plans.iterative import AccuracyBound, IterativePlan, Look
from sfumato.postprocess.exponential_family import ENOUGH, NoisyAnswers, fit_exponential_family
from sfumato.postprocess.possible import CellCounts
from sfumato.postprocess.projection import joint_attributes
from sfumato.postprocess.weights import Hypothesis
from sfumato.privacy.accounting import Account, BoundedRangeEvent, Event, GaussianEvent, PureEvent, event_price
from sfumato.privacy.amounts import Currency
from sfumato.privacy.budget import pure_of_mu
from sfumato.privacy.noise import LEAST_SCALE, NoiseLaw, RoundedGaussian
from sfumato.privacy.rounding import round_down, round_up, sqrt_down
from sfumato.privacy.selection import Candidates, score_sensitivity
from sfumato.privacy.unit import PrivacyUnit
from sfumato.releases import Provenance
from sfumato.releases.modelled import Findings, ModelRelease
from sfumato.strategies.calibration import noise_of, price_of
from sfumato.strategies.certificates import exact_sensitivity, search_certificate
from sfumato.strategies.design import Candidate, Problem
from sfumato.workloads import Workload


@dataclass(frozen=True, repr=False, kw_only=True)
class Iterative(Mechanism[IterativePlan]):
    """A mechanism that looks several times, each time depending on the looks before.

    rounds: how often; by default by a rule of its own, from public numbers. `kind` is the class of its plan's rounds, a
    storable value; `run` looks through a curator whose account holds the plan's price and nothing else, and brings home
    what came out and a model made of it.
    """

    rounds: int | None = None

    kind: ClassVar[type]
    serves: ClassVar[tuple[str, ...]] = (TABLES,)
    takes: ClassVar[tuple[str, ...]] = ("records", "strategy", "public", "objective", "reconstruction")
    unscaled: ClassVar[str] = "margins of mechanisms of several looks are not known before; plan with another mechanism"

    def __post_init__(self) -> None:
        check_whole_option("rounds", self.rounds, 1, 1000)

    @abstractmethod
    def planned(self, problem: Problem, strategy: object) -> IterativePlan:
        """Decide everything about the looks without data.

        Args:
            problem: What is planned for.
            strategy: The option `strategy` of `sf.plan`.

        Returns:
            The plan.

        Raises:
            PlanError: The mechanism does not apply, or an option is not allowed.
        """

    @staticmethod
    @abstractmethod
    def run(plan: IterativePlan, curator: Curator) -> Findings:
        """Carry out all looks of a plan.

        Args:
            plan: The plan.
            curator: The curator, whose account holds the plan's price and nothing else.

        Returns:
            What was measured and chosen, and the model made of it.
        """

    def plan(self, asked: Request) -> IterativePlan:
        problem = make_problem(asked, None, "fine", takes_public=False, name=self.name)
        others = [f"{name}=" for name in asked.given if name in ("reconstruction", "objective")]
        if others:
            raise PlanError(
                f"mechanism={self.name!r} looks several times and lays down its own noise and reconstruction; leave "
                f"out {', '.join(others)}"
            )
        made = self.planned(problem, asked.strategy)
        return replace(made, considered=(Candidate(self.name, made.course.summary, made.rmse, None, "asked for"),))


def check_rounds(plan: IterativePlan) -> None:
    """Raise PlanError for a plan that does not hold together, or whose looks cost more than it says."""
    plan.check()
    if type(plan.course) is not _iterative_class(plan).kind:
        raise PlanError(f"the plan has no rounds of {plan.mechanism!r}: it is damaged, plan again")
    if plan.course.total_known is not plan.unit.total_is_public:
        raise PlanError("the plan is wrong about whether the number of records is public: it is damaged, plan again")
    _ = plan.slack  # raises


def run_rounds(plan: IterativePlan, paid: Curator, provenance: Provenance) -> ModelRelease:
    """All looks of a plan, through a curator that holds its price and nothing else."""
    findings = _iterative_class(plan).run(plan, paid)
    return ModelRelease(plan, findings.looks, findings.model, provenance, gap=findings.gap)


def _iterative_class(plan: IterativePlan) -> type[Iterative]:
    found = mechanism_class(plan.mechanism)
    if not issubclass(found, Iterative):
        raise PlanError(f"the plan has no rounds of {plan.mechanism!r}: it is damaged, plan again")
    return found


UNPROMISED = (
    "no usable promise: of boosting nothing is proved, and of mwem never less than .17 of the records at any size that "
    "was tried; one for the largest error has mechanism=sf.mechanisms.pmw(alpha='least'), and all errors are "
    "known with mechanism='auto'"
)
"""What plans of several looks say of their errors."""


def price_per_selection(whole: Event, share: Fraction, count: int) -> BoundedRangeEvent:
    """The dearest selection of which `count` cost at most that share of the whole."""
    account = Account(whole)
    each = account.remaining * share / count
    if account.currency is Currency.EPSILON:
        return BoundedRangeEvent(each)
    if account.currency is Currency.RHO:
        return BoundedRangeEvent(round_down(sqrt_down(8 * each)))
    # an epsilon-bounded range costs what (epsilon/2)-DP does
    return BoundedRangeEvent(2 * pure_of_mu(round_down(sqrt_down(each))))


def price_per_measurement(whole: Event, spent: Fraction, count: int) -> Event:
    """The price of each of `count` measurements that cost together, exactly, what is left of the whole."""
    account = Account(whole)
    each = (account.remaining - spent) / count
    if account.currency is Currency.EPSILON:
        return PureEvent(each)
    return GaussianEvent(2 * each if account.currency is Currency.RHO else each)


def zero_cost_event(like: Event) -> Event:
    """A zero-cost event of the same kind."""
    return PureEvent(Fraction(0)) if isinstance(like, PureEvent) else GaussianEvent(Fraction(0))


def least_noise_at_price(price_of_one: Event, sensitivity: int) -> NoiseLaw:
    """The least noise, rounded up, with which that sensitivity (L1 for pure prices, squared L2 else) costs the price.

    A sensitivity of 0 takes the least noise there is.
    """
    law = noise_of(price_of_one, sensitivity, LEAST_SCALE)
    return RoundedGaussian(round_up(law.sigma)) if isinstance(law, RoundedGaussian) else law


def spent_on(whole: Event, parts: Event, count: int) -> Fraction:
    """What `count` looks at that price cost, in the currency of the whole."""
    return count * event_price(parts, Account(whole).currency)


TOTAL = Block((), ())
"""The number of records, as a block."""


class AskedQueries:
    """Attributes: `names` of all attributes that are asked about, `sizes` of them, `blocks` of queries in order."""

    def __init__(self, work: Workload, unit: PrivacyUnit, measurement: Event) -> None:
        self.names = joint_attributes(work)
        self.sizes = work.domain.sizes(self.names)
        self.blocks = tuple(q.block for q in work.blocks)
        self.every = {n: a.size for n, a in work.domain.attributes.items()}
        self.unit, self._price = unit, measurement
        self.power = 1 if isinstance(measurement, PureEvent) else 2
        self.ends = np.cumsum([b.rows for b in self.blocks])

    def place(self, query: int) -> tuple[int, int]:
        """The position of a query's block, and its row there."""
        block = int(np.searchsorted(self.ends, query, side="right"))
        return block, query - int(self.ends[block]) + self.blocks[block].rows

    def rows(self, queries: Sequence[int]) -> list[Block]:
        """The queries of these numbers, each once and ascending, as one block for every block they lie in."""
        wanted: dict[int, list[int]] = {}
        for query in sorted(set(queries)):
            block, row = self.place(query)
            wanted.setdefault(block, []).append(row)
        return [self._some(self.blocks[i], rows) for i, rows in wanted.items()]

    def _some(self, block: Block, rows: list[int]) -> Block:
        units = np.zeros((block.rows, len(rows)), dtype=np.int64)
        units[rows, np.arange(len(rows))] = 1
        return Block((block.attributes,), (Dense(block.operator.rmatvec(units).T),))

    def axes(self, block: Block) -> tuple[int, ...]:
        """The axes of a block among `names`."""
        return tuple(self.names.index(a) for a in block.attributes)

    def moved(self, blocks: Sequence[Block]) -> int:
        """The sensitivity of measuring these blocks together."""
        return exact_sensitivity(blocks, self.every, self.unit, self.power).value

    def look(self, curator: Curator, blocks: Sequence[Block], name: str, plan_hash: str) -> Measurement:
        """Blocks with the noise that the price of a measurement buys; for nothing, where no record moves them."""
        found, proof = search_certificate(blocks, self.every, self.unit, self.power)
        price = self._price if found.value else zero_cost_event(self._price)
        noise = least_noise_at_price(price, found.value)
        return curator.measure(blocks, noise, price, name=name, plan_hash=plan_hash, certificate=proof)[0]

    def total(self, curator: Curator, plan_hash: str) -> tuple[Measurement, float]:
        """The number of records: the public one, for nothing, or a measurement like any other; and at least 1."""
        found = self.look(curator, [TOTAL], "total", plan_hash)
        return found, max(1.0, float(found.values[0][0] if found.total is None else found.total))


_SHARE = Fraction(1, 4)  # of the budget, for choosing
_PASSES = 50  # over all that was measured, as `sfumato.interactive.session` has it: few models need as many
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
            total = Look("the number of records, which is public", 1, zero_cost_event(self.measurement))
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
        asked = AskedQueries(work, unit, plan.price)
        choices = _Choices(work, asked, whole=self.whole)
        if choices.weighted:
            return None
        moves = score_sensitivity(choices.candidates(np.zeros(len(work))), asked.every, unit)
        return _mwem_accuracy_bound(plan, n, math.prod(asked.sizes), moves)


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


def plan_mwem(problem: Problem, rounds: int | None, strategy: object) -> IterativePlan:
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
    choices = _Choices(work, AskedQueries(work, unit, price), whole=strategy is None)
    moves = score_sensitivity(choices.candidates(np.zeros(len(work))), problem.sizes, unit)
    if not moves:
        raise PlanError("no query depends on any one record; mechanism='mwem' has nothing to choose by")
    count = min(rounds_for(problem) if rounds is None else rounds, choices.count)
    selection = price_per_selection(price, _SHARE, count)
    looks = count + (not unit.total_is_public)
    measurement = price_per_measurement(price, spent_on(price, selection, count), looks)
    course = MwemRounds(count, strategy is None, selection, measurement, unit.total_is_public)
    return IterativePlan(work, problem.budget, unit, "mwem", price, course, problem.records, notes=(UNPROMISED,))


def _mwem_accuracy_bound(plan: IterativePlan, n: int, cells: int, moves: int) -> AccuracyBound:
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
        far = 1 + math.sqrt(2 * tail * least_noise_at_price(course.measurement, most * moves).variance)
    return AccuracyBound(drift + slack + far, _FAILURE, "plain MWEM")


class _Choices:
    """The queries as candidates, with what is measured when one of them is chosen."""

    def __init__(self, work: Workload, asked: AskedQueries, *, whole: bool) -> None:
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


def run_mwem(plan: IterativePlan, curator: Curator) -> Findings:
    """All rounds, through a curator that holds the plan's price and nothing else."""
    course: MwemRounds = plan.course
    asked = AskedQueries(plan.workload, plan.unit, course.measurement)
    choices = _Choices(plan.workload, asked, whole=course.whole)
    first, total = asked.total(curator, plan.fingerprint)
    looks: list[Measurement | Selection] = [first]
    possible = plan.workload.domain.possible(asked.names)
    model, given = Hypothesis(asked.sizes, total, possible), list[NoisyAnswers]()
    for i in range(course.rounds):
        candidates = choices.candidates(_model_answers(asked, model))
        query, _ = select(curator, candidates, course.selection, name=f"choice {i + 1}", plan_hash=plan.fingerprint)
        block = choices.taken(query)
        measured = asked.look(curator, [block], f"measurement {i + 1}", plan.fingerprint)
        looks += [Selection(query, len(candidates)), measured]
        values = measured.values[0].astype(np.float64)
        variance = max(measured.noise.variance, _LEAST_VARIANCE)
        given.append(NoisyAnswers(asked.axes(block), block.operator, values, variance))
        _fit_to_measured(model, given)
    fitted = fit_exponential_family(asked.sizes, total, given, _PRIOR, possible)
    # what is said beside the looks is the same for all tables, where the search ended as it should
    return Findings(tuple(looks), CellCounts(asked.names, fitted.cells), max(fitted.gap, ENOUGH))


@dataclass(frozen=True, repr=False, kw_only=True)
class Mwem(Iterative):
    """MWEM: rounds that choose the query of which a model is most wrong, measure it, and update the model.

    `strategy="queries"` of `sf.plan` measures the chosen queries alone, not their tables.

    Args:
        rounds: The number of rounds, from 1 to 1,000; None takes 2 sqrt(n sqrt(rho)) for n expected records.

    Raises:
        PlanError: The number of rounds is not allowed.

    Source:
        [HLM12]
    """

    name: ClassVar[str] = "mwem"
    kind: ClassVar[type] = MwemRounds
    unknown: ClassVar[str] = (
        "its bound is of another model than it releases, and never less than .17 of the records at any size that was "
        "tried; a promise for the largest error has mechanism='pmw'"
    )

    def planned(self, problem: Problem, strategy: object) -> IterativePlan:
        return plan_mwem(problem, self.rounds, strategy)

    @staticmethod
    def run(plan: IterativePlan, curator: Curator) -> Findings:
        return run_mwem(plan, curator)


def _model_answers(asked: AskedQueries, model: Hypothesis) -> FloatArray:
    """(k,) answers of a model."""
    axes = [asked.axes(b) for b in asked.blocks]
    tables = {a: model.table(a) for a in dict.fromkeys(axes)}
    found = [b.operator.matvec(tables[a]) for b, a in zip(asked.blocks, axes, strict=True)]
    return np.concatenate(found).astype(np.float64)


def _fit_to_measured(model: Hypothesis, given: Sequence[NoisyAnswers]) -> None:
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
