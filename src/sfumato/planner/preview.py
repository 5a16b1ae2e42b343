"""What tables would look like before they are paid for: of counts that are public, or guessed, at several budgets.

The plan's errors are known without data; beside counts that anybody may see they say which cells would be worth
printing. Nothing here reads a table, and nothing here is a release.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sfumato._util.description import Describable, Description, Sentences, TitledTable
from sfumato._util.frames import Frame, FrameConvertible, safe_text
from sfumato.errors import NotAnswerable, PlanError
from sfumato.measurements import Measurement
from sfumato.operators import Family
from sfumato.operators.base import FloatArray, Numbers
from sfumato.planner.simulate import draw_float_noise
from sfumato.plans.explain import chart_flags
from sfumato.plans.plan import Plan
from sfumato.plans.predictions import ErrorEntry, check_confidence
from sfumato.privacy.accounting import GaussianEvent, PureEvent
from sfumato.privacy.budget import Budget
from sfumato.privacy.measures import WHOLE_BITS
from sfumato.releases import Provenance, Release, Table
from sfumato.releases.reliability import SUPPRESS, Reliability, read_reliability
from sfumato.strategies.strategy import marginalise
from sfumato.workloads import RECORDS, QueryBlock, Workload, predicates, total

USUAL_FLAGS = {"*": 0.15, "**": 0.30, SUPPRESS: 0.50}
"""Marks by which a preview tells cells apart where an office has none of its own: those of the guide's example."""
_MOST = 2_000_000  # cells of a preview: some arrays of 16 MB
_NOBODY = Provenance("preview", "", 0, "", one_shot=True, created="", versions=())
_SOMEBODY = 0.5  # of a record: below, nobody is expected
_WELL, _EMPTY = "no flag", "none expected"


def errors_scale(plan: Plan) -> bool:
    """Whether other budgets follow from this plan alone: unbiased answers from additive noise."""
    return plan.forecast is None and plan.bias_records is None


def budget_error_factor(plan: Plan, budget: Budget) -> float:
    """How many times its errors a plan has under another budget, up to the grid of its noise. Raises PlanError."""
    if not errors_scale(plan):
        raise PlanError("the errors of this mechanism do not scale with the budget; it is planned anew")
    if isinstance(plan.price, GaussianEvent):
        return math.sqrt(plan.budget.mu_squared / budget.mu_squared)
    if isinstance(plan.price, PureEvent):
        return float(plan.budget.laplace_epsilon / budget.laplace_epsilon)
    return math.sqrt(plan.budget.rho / budget.rho)


@dataclass(frozen=True, slots=True)
class ExpectedCells:
    """The cells of a table, or one group, as they are expected, with the plan's errors.

    Args:
        part: The part of the workload, or "guess".
        name: The attributes of the table, or the condition of the group.
        unit: What is counted.
        values: (cells,) expected answers.
        errors: (cells,) standard errors at the plan's own budget.
        margins: (cells,) half-widths of intervals at that budget.
    """

    part: str
    name: str
    unit: str
    values: FloatArray
    errors: FloatArray
    margins: FloatArray


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Preview(FrameConvertible, Describable):
    """What a release of a plan would look like, if counts were as they are guessed. `sf.preview` makes it.

    Args:
        plan: The plan.
        expected: Tables or groups with their errors.
        factors: Budgets, as numbers of the plan's kind, with how many times its errors are under each.
        reliability: The marks by which cells are told apart.
        confidence: The probability with which each margin holds.
        exact: The values that would be measured of the guessed counts, without noise; None where they do not follow.
        total: Their total, where the number of records is public.
        seed: Of the noise that `table` and the statistics show.
    """

    plan: Plan
    expected: tuple[ExpectedCells, ...]
    factors: tuple[tuple[str, float], ...]
    reliability: Reliability
    confidence: float
    exact: tuple[Numbers, ...] | None
    total: int | None
    seed: int

    def frame(self) -> Frame:
        """Every table or group under every budget.

        Returns:
            One row per budget and table: budget, part, table, cells, unit, expected (of a single cell), margin (the
            widest), relative_margin (margin over the expected answer; the median of the table's cells), and the share
            of cells with each flag, "no flag" first; "none expected" are cells whose guess is below half a record. Of
            sums the margin alone.
        """
        names = ("budget", "part", "table", "cells", "unit", "expected", "margin", "relative_margin")
        columns: dict[str, list[Any]] = {name: [] for name in (*names, *self._classes)}
        for budget, factor in self.factors:
            for e in self.expected:
                one = float(e.values[0]) if len(e.values) == 1 else None
                widest = float(factor * e.margins.max())
                row = (budget, e.part, e.name, len(e.values), e.unit, one, widest, _median_margin([e], factor))
                for column, value in zip(columns.values(), (*row, *self._shares([e], factor)), strict=True):
                    column.append(value)
        return Frame(columns)

    def by_budget(self) -> Frame:
        """All cells together under every budget.

        Returns:
            One row per budget: budget, cells that count records, their relative_margin (the median), and the share of
            cells with each flag.
        """
        columns: dict[str, list[Any]] = {name: [] for name in ("budget", "cells", "relative_margin", *self._classes)}
        for budget, factor in self.factors:
            cells = sum(len(e.values) for e in _counts(self.expected))
            found = (budget, cells, _median_margin(self.expected, factor), *self._shares(self.expected, factor))
            for column, value in zip(columns.values(), found, strict=True):
                column.append(value)
        return Frame(columns)

    @property
    def _classes(self) -> tuple[str, ...]:
        return (_WELL, *(flag for flag, _ in self.reliability.classes), _EMPTY)

    def _shares(self, cells: Sequence[ExpectedCells], factor: float) -> Sequence[float | None]:
        """The share of cells of each class; None where none counts records."""
        found = dict.fromkeys(self._classes, 0)
        for e in _counts(cells):
            there = e.values >= _SOMEBODY
            found[_EMPTY] += int((~there).sum())
            for flag in self.reliability.flags(e.values[there], factor * e.errors[there]):
                found[flag or _WELL] += 1
        whole = sum(found.values())
        return [count / whole if whole else None for count in found.values()]

    def table(self, *attributes: str) -> Table:
        """A table as it might be released: the guessed counts with noise of the plan's law, its intervals and flags.

        Args:
            *attributes: One or more, as `sf.Release.table` takes them.

        Returns:
            The table, of noise drawn by `seed`.

        Raises:
            PlanError: No whole table follows from the counts, or the table was not asked for.
        """
        return self._drawn().table(*attributes, confidence=self.confidence)

    def quantiles(self, attribute: str, at: Sequence[float] = (0.25, 0.5, 0.75), *, by: Sequence[str] = ()) -> Frame:
        """Quantiles as they might be released, with their intervals.

        Args:
            attribute: A numeric attribute.
            at: Probabilities between 0 and 1.
            by: Groups.

        Returns:
            The rows of `sf.Release.quantiles`.

        Raises:
            PlanError: No whole table follows from the counts.
        """
        return self._drawn().quantiles(attribute, list(at), by=list(by), confidence=self.confidence)

    def mean(self, attribute: str, *, by: Sequence[str] = ()) -> Frame:
        """A mean as it might be released, with its interval.

        Args:
            attribute: A numeric attribute, or a measure, of which a release tells what it may be.
            by: Groups.

        Returns:
            The rows of `sf.Release.mean`.

        Raises:
            PlanError: No whole table follows from the counts.
        """
        return self._drawn().mean(attribute, by=list(by), confidence=self.confidence)

    def share(self, attribute: str, *, within: Sequence[str] = ()) -> Frame:
        """Shares as they might be released, with their intervals.

        Args:
            attribute: An attribute.
            within: Groups.

        Returns:
            The rows of `sf.Release.share`.

        Raises:
            PlanError: No whole table follows from the counts.
        """
        return self._drawn().share(attribute, within=list(within), confidence=self.confidence)

    def _drawn(self) -> Release:
        """What a release might be. It is kept inside: saved it would look like one."""
        if self.exact is None:
            raise PlanError("no whole table follows from these counts; give counts of all cells, or a release of them")
        generator = np.random.default_rng(self.seed)
        noisy = [np.asarray(e) + draw_float_noise(self.plan, len(e), generator) for e in self.exact]
        values = tuple(np.ascontiguousarray(v, dtype=np.int64) for v in noisy)
        measured = Measurement(tuple(self.plan.strategy.blocks), values, self.plan.noise, self.total)
        return Release(self.plan, measured, _NOBODY)

    def plot(self, title: str = "") -> Any:
        """The share of cells with each flag, a bar for every budget.

        Args:
            title: What stands above it.

        Returns:
            A chart of altair (extra: charts).
        """
        rows = [
            {"budget": row["budget"], "flag": flag, "share": row[flag], "rank": rank}
            for row in self.by_budget().rows()
            for rank, flag in enumerate(self._classes)
        ]
        return chart_flags(rows, self._parameter(), title or "Cells by flag, as expected")

    def _parameter(self) -> str:
        return {"zcdp": "rho", "gdp": "mu"}.get(self.plan.budget.kind, "epsilon")

    def describe(self) -> Description:
        """All of it: what was asked, by budget and by table.

        Returns:
            The description.
        """
        single = all(len(e.values) == 1 and e.part == _GUESS for e in self.expected)
        told = [] if single else [TitledTable("All cells", _in_per_cent(self.by_budget()))]
        said = f"Expected from the counts given; no data were read, nothing was spent. {self.reliability.statement()}"
        margins = f"Margins hold with {self.confidence:.0%}; relative_margin is the margin as a per cent of the answer."
        each = TitledTable("Tables", _in_per_cent(self.frame()))
        if single:
            each = TitledTable("Groups", _group_lines(self.frame(), self._classes))
        headline = f"Preview of a release, by {self._parameter()}"
        return Description(headline, [*told, each, Sentences([said, margins])])

    def brief(self) -> str:
        """One line.

        Returns:
            How many cells, at how many budgets.
        """
        cells = sum(len(e.values) for e in self.expected)
        return f"<Preview of {cells:,} cells at {self._parameter()} {', '.join(budget for budget, _ in self.factors)}>"


_GUESS = "guess"


def _in_per_cent(frame: Frame) -> Frame:
    """Shares for readers: per cents, and of margins with their sign."""
    fixed = {"budget", "part", "table", "cells", "unit", "expected", "margin"}
    columns: dict[str, Sequence[Any]] = {}
    for name, values in frame.columns.items():
        if name in fixed:
            columns[name] = values
        elif name == "relative_margin":
            columns[name] = ["" if v is None else f"± {100 * v:,.3g} %" for v in values]
        else:
            columns[name] = ["" if v is None else f"{100 * v:.3g} %" for v in values]
    if all(v is None for v in frame.columns.get("expected", [0])):
        columns.pop("expected")
    return Frame(columns)


def _group_lines(frame: Frame, classes: Sequence[str]) -> Frame:
    """Groups for readers: one flag each, instead of shares of one cell."""
    told = _in_per_cent(frame).columns
    kept = {name: told[name] for name in ("budget", "table", "expected", "margin", "relative_margin")}
    flags = [next(flag for flag in classes if row[flag]) for row in frame.rows()]
    return Frame({"budget": kept.pop("budget"), "group": kept.pop("table"), **kept, "flag": flags})


def _counts(cells: Sequence[ExpectedCells]) -> list[ExpectedCells]:
    """Those that count records: sums are measured from the middle of their range, so that no share of them tells."""
    return [e for e in cells if e.unit == RECORDS]


def _median_margin(cells: Sequence[ExpectedCells], factor: float) -> float | None:
    """The median over cells of margins as shares of expected answers; None where none is expected."""
    relative = [factor * e.margins[e.values >= _SOMEBODY] / e.values[e.values >= _SOMEBODY] for e in _counts(cells)]
    found = np.concatenate([np.zeros(0), *relative])
    return float(np.median(found)) if len(found) else None


def preview(
    plan: Plan,
    like: ArrayLike | Release | Mapping[str, float],
    *,
    budgets: Sequence[Any] = (),
    flags: Mapping[str, float] | Reliability | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> Preview:
    """What a release would look like, at several budgets, if counts were like these. No data are read.

    The counts must be such as anybody may see: last year's published release, a public table, or guesses. Of a table
    that is to be protected they would tell what the noise is there to hide.

    Args:
        plan: A plan of one look with unbiased answers.
        like: Whole counts, of shape (m,) or `domain.shape`; a release that answers the plan's queries, such as last
            year's; or guesses, from a condition to a number of records, such as {"state == 'Vermont'": 23}.
        budgets: Numbers of the plan's kind: epsilons, rhos or mus; delta stays. The plan's own unless given.
        flags: Marks with relative standard errors; those of `USUAL_FLAGS` unless given.
        confidence: The probability, strictly between 0 and 1, with which each margin holds.
        seed: Of the noise that tables and statistics are shown with. It protects nobody, and need not.

    Returns:
        Tables or groups with their margins and the share of cells with each flag, by budget; tables and statistics with
        noise.

    Raises:
        PlanError: The plan is of several looks or its answers are biased, the counts are of another domain, not whole
            or too many, or a guess is no number of records.
        InvalidInput: Flags are no marks with thresholds.
        BudgetError: A number is no budget.
        NotAnswerable: A guessed group, or the release, is not answered by what is measured.

    >>> domain = sf.Domain({"state": sf.Categories(["Vermont", "Texas"])})
    >>> made = sf.plan(sf.identity(domain), sf.pure("0.1"), neighbours="add-remove")
    >>> seen = sf.preview(made, {"state == 'Vermont'": 23}, budgets=["0.1", 1])
    >>> [f"± {100 * row['relative_margin']:.0f} %" for row in seen.frame().rows()]
    ['± 130 %', '± 13 %']
    """
    if not isinstance(plan, Plan):
        raise PlanError("preview takes plans of one look, whose errors are known before data")
    budget_error_factor(plan, plan.budget)
    level, marks = check_confidence(confidence), read_reliability(USUAL_FLAGS if flags is None else flags)
    factors = [(_budget_text(plan.budget), 1.0)]
    if budgets:
        others = [replace(plan.budget, parameter=value) for value in budgets]
        factors = [(_budget_text(b), budget_error_factor(plan, b)) for b in others]
    exact, total = None, None
    if isinstance(like, Mapping):
        found = tuple(_guessed_groups(plan, like, level))
    else:
        if len(plan.workload) > _MOST:
            raise PlanError(
                f"{len(plan.workload):,} cells are too many for a preview; guess those that you have in mind"
            )
        told = _ReleasedCounts(plan, like) if isinstance(like, Release) else _GivenCounts(plan, like)
        found = tuple(_expected_tables(plan, told, level))
        with suppress(NotAnswerable):  # a release may answer all that is asked and not what this plan measures
            one = 2**WHOLE_BITS if plan.workload.measures else 1  # what is measured of a record
            exact = tuple(np.rint(one * told.measured(b)).astype(np.int64) for b in plan.strategy.blocks)
        total = told.total if plan.unit.total_is_public else None
    return Preview(plan, found, tuple(factors), marks, level, exact, total, seed)


def _budget_text(budget: Budget) -> str:
    return f"{float(budget.parameter):.6g}"


def _guessed_groups(plan: Plan, guesses: Mapping[str, float], level: float) -> Iterator[ExpectedCells]:
    if not guesses:
        raise PlanError("no group is guessed; give a condition and a number, such as {\"state == 'Vermont'\": 23}")
    for condition, count in guesses.items():
        known = isinstance(count, (int, float)) and not isinstance(count, bool)
        if not known or not 0 < count < math.inf:
            raise PlanError(f"the guess of {condition!r} must be a positive number of records, not {count!r}")
        query = predicates(plan.workload.domain, [condition]).blocks[0]
        plan.strategy.check(query.block)
        entry = ErrorEntry.of(plan.strategy, query)
        yield _expected(plan, entry, np.array([float(count)]), level, _GUESS, [safe_text(condition)])[0]


def _expected_tables(plan: Plan, told: _ReleasedCounts | _GivenCounts, level: float) -> Iterator[ExpectedCells]:
    domain = plan.workload.domain
    for entry in plan.entries:
        blocks = Workload(domain, (entry.item,)).blocks
        values = np.concatenate([np.asarray(told.answers(b), dtype=np.float64) for b in blocks])
        names = [safe_text(", ".join(held) or "(total)") for held in entry.names(domain)]
        yield from _expected(plan, entry, values, level, entry.item.part, names)


def _expected(
    plan: Plan, entry: ErrorEntry, values: FloatArray, level: float, part: str, names: Sequence[str]
) -> list[ExpectedCells]:
    """The cells of an entry, table by table."""
    errors, margins = (
        entry.expand(np.sqrt(entry.powers * plan.noise.variance)),
        entry.expand(plan.margins(entry, level)),
    )
    cuts = np.cumsum(entry.cells())[:-1]
    pieces = zip(names, np.split(values, cuts), np.split(errors, cuts), np.split(margins, cuts), strict=True)
    return [ExpectedCells(safe_text(part), name, entry.item.unit, v, e, m) for name, v, e, m in pieces]


class _GivenCounts:
    """Counts of all cells that anybody may see."""

    def __init__(self, plan: Plan, counts: ArrayLike) -> None:
        domain, given = plan.workload.domain, np.asarray(counts)
        if measures := ", ".join(plan.workload.measures):
            raise PlanError(f"counts of cells tell no sums of measures ({measures}); give a release of public rows")
        if given.shape not in ((domain.size,), domain.shape) or given.dtype.kind not in "iu":
            raise PlanError(
                f"counts must be whole, of an integer type and of shape ({domain.size},) or {domain.shape}, "
                f"not {given.dtype} of shape {given.shape}"
            )
        self._names = domain.names
        self._table = domain.grid.mended(given.reshape(domain.shape).astype(np.int64))
        self.total = int(self._table.sum())

    def answers(self, query: QueryBlock) -> Numbers:
        return marginalise(self._table, self._names, query.block)

    def measured(self, block: Any) -> Numbers:
        return marginalise(self._table, self._names, block)


class _ReleasedCounts:
    """The answers of a release, such as last year's."""

    def __init__(self, plan: Plan, release: Release) -> None:
        if release.plan.workload.domain != plan.workload.domain:
            raise PlanError("the release is of other attributes than the plan; declare them alike")
        self._release, self._plan = release, plan

    @property
    def total(self) -> int:
        known = self._release.measurement.total
        return (
            round(float(self._release.ask(total(self._plan.workload.domain))["answer"][0])) if known is None else known
        )

    def answers(self, query: QueryBlock) -> FloatArray:
        return self._release.answer_block(query.block)

    def measured(self, block: Any) -> FloatArray:
        each = block.blocks() if isinstance(block, Family) else [block]
        return np.concatenate([self._release.answer_block(b) for b in each])
