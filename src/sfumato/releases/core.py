"""A release: every answer with its error, and further questions answered from the same noisy values."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sfumato.codec import storable
from sfumato.errors import NotAnswerable, PlanError
from sfumato.frames import Frame, package
from sfumato.intervals import check_confidence, margins, simultaneous
from sfumato.measurements import Measurement
from sfumato.operators import Block, Identity
from sfumato.operators.base import FloatArray
from sfumato.plans import Plan, expand
from sfumato.privacy.noise import DiscreteLaplace
from sfumato.releases import statistics
from sfumato.releases.files import save_release
from sfumato.strategies.base import Estimate
from sfumato.workloads import Workload, predicates

__all__ = ["Answer", "Intervals", "Provenance", "Release", "Table"]


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


@storable
@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a release stands: its name, its ledger entry, and what made it."""

    name: str
    ledger_id: str
    sequence: int
    anchor: str
    one_shot: bool
    created: str
    versions: tuple[tuple[str, str], ...]
    snapshot: str | None = None


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


@storable
@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """Answers to a plan's workload from one measurement; everything here costs no further budget.

    Answers are unbiased and may be negative or fractional: noise was added, and rounding them would
    bias every sum.
    """

    plan: Plan
    measurement: Measurement
    provenance: Provenance
    part: str | None = None

    # -- answers -------------------------------------------------------------------------------------

    @property
    def workload(self) -> Workload:
        """The queries that are answered (those of one part, for a part of a release)."""
        whole = self.plan.workload
        return whole if self.part is None else whole.parts[self.part]

    @functools.cached_property
    def estimate(self) -> Estimate:
        """The measured values, prepared for reconstruction."""
        return self.plan.strategy.estimate(self.measurement.values, self.measurement.total)

    def answer_block(self, block: Block) -> FloatArray:
        """Unbiased answers to any block in the span of what was measured, (rows,)."""
        return self.plan.strategy.answer(self.estimate, block)

    @functools.cached_property
    def answers(self) -> FloatArray:
        """(k,) unbiased answers in the order of the workload."""
        return np.concatenate([self.answer_block(q.block) for q in self.workload.blocks])

    def standard_errors(self) -> FloatArray:
        """(k,) standard errors of the answers: those that the plan predicted."""
        return self.plan.standard_errors(self.part)

    def variances(self, block: Block) -> FloatArray:
        """Variances of the answers to a block, one axis per factor (length 1 where constant)."""
        return self.plan.strategy.row_powers(block, 2) * self.measurement.noise.variance

    def margins(self, block: Block, confidence: float) -> FloatArray:
        """Half-widths of pointwise intervals for a block, compact as the variances."""
        strategy = self.plan.strategy
        second = strategy.row_powers(block, 2)
        shaped = isinstance(self.measurement.noise, DiscreteLaplace)
        return margins(confidence, second, strategy.row_powers(block, 4) if shaped else None, self.measurement.noise)

    def intervals(self, confidence: float = 0.95, *, simultaneous: bool = False) -> Intervals:
        """Intervals from the actual noise law: each holds with `confidence`, or all together do."""
        level = self._level(confidence, simultaneous, len(self.workload))
        widths = np.concatenate([expand(self.margins(q.block, level), q) for q in self.workload.blocks])
        return Intervals(self.answers - widths, self.answers + widths, check_confidence(confidence), simultaneous)

    def _level(self, confidence: float, together: bool, count: int) -> float:
        level = check_confidence(confidence)
        return simultaneous(level, count, self.measurement.noise) if together else level

    def __getitem__(self, part: str) -> Release:
        if part not in self.plan.workload.parts:
            raise NotAnswerable(f"no part is called {part!r}; there are {', '.join(self.plan.workload.parts)}")
        return Release(self.plan, self.measurement, self.provenance, part)

    @property
    def parts(self) -> dict[str, Release]:
        """The named parts in order."""
        return {name: self[name] for name in self.workload.parts}

    def labels(self) -> list[str]:
        """One text per answer."""
        return self.workload.labels()

    def frame(self, confidence: float = 0.95) -> Frame:
        """part, label, answer, standard_error, low, high: one row per query."""
        ends = self.intervals(confidence)
        parts = [q.part for q in self.workload.blocks for _ in range(q.rows)]
        return Frame(
            {
                "part": parts,
                "label": self.labels(),
                "answer": self.answers.tolist(),
                "standard_error": self.standard_errors().tolist(),
                "low": ends.low.tolist(),
                "high": ends.high.tolist(),
            }
        )

    # -- further questions ------------------------------------------------------------------------------

    def table(self, *attributes: str, confidence: float = 0.95, simultaneous: bool = False) -> Table:
        """The marginal table over the named attributes, in the order given.

        A table that was measured only inside a larger one is answered by summing; one that was not
        measured is refused with NotAnswerable.
        """
        domain = self.plan.workload.domain
        names = domain.check_names(attributes)
        sizes = domain.sizes(names)
        block = Block(tuple((n,) for n in names), tuple(Identity(s) for s in sizes))
        values = self.answer_block(block).reshape(sizes)
        errors = np.broadcast_to(np.sqrt(self.variances(block)), sizes).copy()
        level = self._level(confidence, simultaneous, values.size)
        widths = np.broadcast_to(self.margins(block, level), sizes)
        labels = tuple(domain[n].labels for n in names)
        return Table(names, labels, values, errors, values - widths, values + widths, confidence)

    def ask(self, question: str | Workload, confidence: float = 0.95) -> Any:
        """Answer a further predicate (an Answer), or a workload (a Frame), from what was measured, at no cost.

        Raises NotAnswerable, saying what is missing, where the question lies outside the span of what
        was measured.
        """
        level = check_confidence(confidence)
        if isinstance(question, Workload):
            if question.domain != self.plan.workload.domain:
                raise PlanError("the question is over another domain than this release")
            return self._ask_workload(question, level)
        work = predicates(self.plan.workload.domain, [question])
        block = work.blocks[0].block
        value = float(self.answer_block(block)[0])
        width = float(np.asarray(self.margins(block, level)).reshape(-1)[0])
        error = math.sqrt(float(np.asarray(self.variances(block)).reshape(-1)[0]))
        return Answer(value, error, value - width, value + width)

    def _ask_workload(self, work: Workload, level: float) -> Frame:
        answers, errors, widths = [], [], []
        for q in work.blocks:
            answers.append(self.answer_block(q.block))
            errors.append(expand(np.sqrt(self.variances(q.block)), q))
            widths.append(expand(self.margins(q.block, level), q))
        value, error, width = (np.concatenate(x) for x in (answers, errors, widths))
        return Frame(
            {
                "label": work.labels(),
                "answer": value.tolist(),
                "standard_error": error.tolist(),
                "low": (value - width).tolist(),
                "high": (value + width).tolist(),
            }
        )

    def quantiles(
        self, attribute: str, probabilities: Sequence[float], by: str | Sequence[str] = (), confidence: float = 0.95
    ) -> Frame:
        """All quantiles of a numeric attribute from one measurement, with intervals out to the cells' edges."""
        return statistics.quantiles(self, attribute, probabilities, by, confidence)

    def cdf(self, attribute: str, by: str | Sequence[str] = (), confidence: float = 0.95) -> Frame:
        """Shares of records up to each cell of an ordered attribute, within each cell of `by`."""
        return statistics.cdf(self, attribute, by, confidence)

    def mean(
        self,
        attribute: str,
        by: str | Sequence[str] = (),
        values: Sequence[float] | None = None,
        confidence: float = 0.95,
    ) -> Frame:
        """Mean of a numeric attribute from the cells' midpoints (or `values`), within each cell of `by`."""
        return statistics.mean(self, attribute, by, values, confidence)

    def share(self, attribute: str, within: str | Sequence[str] = (), confidence: float = 0.95) -> Frame:
        """Share of each cell of an attribute within each cell of `within`."""
        return statistics.share(self, attribute, within, confidence)

    # -- files and words ----------------------------------------------------------------------------------

    def save(self, folder: Any) -> None:
        """Write the release to a folder: release.json, answers.parquet, tables/, measurements.npz."""
        save_release(self, folder)

    def explain(self) -> str:
        """What was released, under which guarantee, and where it stands in the ledger."""
        p = self.provenance
        where = (
            "one-shot account (no ledger): nothing remembers this spend"
            if p.one_shot
            else f"ledger {p.ledger_id}, entry {p.sequence}, anchor {p.anchor}"
        )
        return "\n".join(
            [
                f"Release {p.name!r}: {len(self.workload):,} answers, rmse {self.plan.rmse:,.4g} {self.plan.main_unit}",
                f"  guarantee  {self.plan.budget}",
                f"  protects   {self.plan.unit.describe()}",
                f"  measured   {self.plan.strategy.summary}",
                f"  recorded   {where}",
                "  answers are unbiased: small counts may come out negative",
            ]
        )

    def __str__(self) -> str:
        return self.explain()

    def __repr__(self) -> str:
        return f"<Release {self.provenance.name!r}: {len(self.workload):,} answers>"
