"""A release: every answer with its error, and further questions answered from the same noisy values."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, overload

import numpy as np

from sfumato._util.catalogue import speak
from sfumato._util.codec import storable, value_fingerprint
from sfumato._util.description import Description, Facts
from sfumato._util.display import Progress, show_progress
from sfumato._util.frames import Frame
from sfumato.errors import InvalidInput, NotAnswerable, PlanError
from sfumato.measurements import Measurement
from sfumato.operators import Block
from sfumato.operators.base import FloatArray
from sfumato.plans.explain import (
    chart_cumulative_shares,
    chart_shares,
    chart_with_words,
    predicted_errors,
    starving_line_text,
)
from sfumato.plans.plan import Plan
from sfumato.plans.planned import rows_text
from sfumato.plans.predictions import (
    Question,
    answer_item,
    check_confidence,
    entry_biases,
    expand_to_queries,
    interval_margins,
)
from sfumato.postprocess.denoising import AdaptedTables
from sfumato.postprocess.projection import Projection
from sfumato.privacy.noise import DiscreteLaplace
from sfumato.releases import files, linear, means, moments, projecting, regression, released
from sfumato.releases import lorenz as inequality
from sfumato.releases import quantiles as statistics
from sfumato.releases.answers import Answer, LinearAnswer
from sfumato.releases.comparing import (
    Comparison,
    answer_changes,
    check_comparable,
    check_snapshots,
    coefficient_powers,
    combine_answers,
    comparison_frame,
)
from sfumato.releases.ends import interval_ends, possible_answers
from sfumato.releases.files import Contents
from sfumato.releases.linear import single_rows, split_into_products
from sfumato.releases.methods import method_description
from sfumato.releases.modelled import Synthetic, projected_answer, synthesize_records
from sfumato.releases.released import Provenance, WorkloadRelease
from sfumato.releases.tables import (
    Batch,
    Intervals,
    Table,
    answers_frame,
    moved_facts,
    part_and_label,
)
from sfumato.releases.top import top_cells
from sfumato.releases.warnings import (
    Caution,
    caution_facts,
    cut_facts,
    cut_persons,
    cut_persons_text,
    doubts,
    find_cautions,
    other_line,
)
from sfumato.strategies.strategy import Estimate
from sfumato.workloads import QueryBlock, Workload
from sfumato.workloads.levels import family_names, names_asked, table_block

_MAX_ANSWERS = 200_000_000  # an array of 1.6 GB


@storable
@dataclass(frozen=True, eq=False, repr=False)
class Release(WorkloadRelease):
    """Answers to a plan's workload from one measurement; every question to it costs no further budget.

    Answers are unbiased and may be negative or fractional: noise was added, and rounding them would bias every sum.
    With a `projection` they are those of a possible table instead: biased where that binds, so without standard errors;
    intervals are the unprojected ones, clipped to what is possible and extended to the projected answer, and hold as
    before. `raw` has the unprojected answers.

    `sf.release` makes releases, and `sf.load` reads stored ones.

    Args:
        plan: The plan that was carried out.
        measurement: The noisy integers that were measured.
        provenance: When, by which versions and from which ledger it was made.
        part: The part of the workload that is answered, or None for all.
        projection: The projected answers, or None.

    Guarantee:
        The measurement satisfies the plan's budget for the plan's privacy unit; everything else is post-processing.

    >>> domain = sf.Domain({"age": 4})
    >>> made = sf.plan(sf.identity(domain), sf.gdp(1), neighbours="add-remove")
    >>> ages = sf.release(made, sf.Histogram([30, 20, 10, 0]), ledger=None, name="ages")
    >>> ages.answers.shape, ages.standard_errors().round(6)
    ((4,), array([1., 1., 1., 1.]))
    """

    plan: Plan
    measurement: Measurement
    provenance: Provenance
    part: str | None = None
    projection: Projection | None = None

    def with_errors(self) -> Release:
        return self

    def agree(self) -> None:
        super().agree()
        plan, found = self.plan, self.measurement
        if found.noise != plan.noise or value_fingerprint(found.blocks) != value_fingerprint(plan.strategy.blocks):
            raise InvalidInput("its values are of other maps, or of other noise, than its plan describes")
        if (found.cut is None) != (not plan.cut):
            raise InvalidInput("it counts otherwise who had more rows than are counted than its plan says")
        if found.total is not None and not plan.unit.total_is_public:
            raise InvalidInput("it tells the number of records, which is not public")

    # -- answers -------------------------------------------------------------------------------------

    @functools.cached_property
    def estimate(self) -> Estimate:
        """The measured values, prepared for reconstruction."""
        return self.plan.strategy.estimate(self.measurement.values, self.measurement.total)

    @functools.cached_property
    def raw(self) -> Release:
        """The release without its projection: unbiased answers with standard errors."""
        return self if self.projection is None else replace(self, projection=None)

    def answer_block(self, block: Block) -> FloatArray:
        """Answers to any block of queries in the span of what was measured.

        Args:
            block: Queries over a marginal table, as the `blocks` of a workload hold them.

        Returns:
            (rows,) answers: unbiased ones, or those of the projection.

        Raises:
            NotAnswerable: The block lies outside the span of what was measured.
        """
        found = projected_answer(self, block)
        return self.plan.strategy.answer(self.estimate, block) if found is None else found

    def _answers(self) -> FloatArray:
        count = len(self.workload)
        if count > _MAX_ANSWERS or any(e.mean is not None for e in self.plan.entries):
            raise PlanError(
                f"{count:,} answers are too many for one array; take release.batches() or release.table() for tables, "
                "release.ask() for single queries"
            )
        out = np.empty(count)
        start = 0
        for item in self.workload.items:
            into = out[start : start + item.rows]
            start += item.rows
            if self.projection is None:
                answer_item(self.plan.strategy, self.estimate, item, into)
            else:
                into[:] = np.concatenate([self.answer_block(q.block) for q in item.blocks()])
        return out

    def batches(self) -> Iterator[Batch]:
        """All tables or blocks of queries of the workload, a few of one shape at a time; no more is in memory.

        Returns:
            Batches, each with values shaped by the queries along every attribute, and standard errors, which are None
            for projected answers.

        Raises:
            WorkloadError: The release is projected and its workload has more than 50,000 tables.
        """
        if self.projection is not None:
            for query in self.workload.blocks:
                shape = tuple(f.shape[0] for f in query.block.factors)
                names = names_asked(self.workload.domain, query.block)
                yield Batch((names,), self.answer_block(query.block).reshape(1, *shape), None)
            return
        deviation = math.sqrt(self.measurement.noise.variance)
        for item in self.workload.items:
            if isinstance(item, QueryBlock):
                shape = tuple(f.shape[0] for f in item.block.factors)
                powers = np.broadcast_to(self.plan.strategy.row_powers(item.block, 2), shape)
                names = names_asked(self.workload.domain, item.block)
                yield Batch(
                    (names,),
                    self.answer_block(item.block).reshape(1, *shape),
                    np.sqrt(powers)[None] * deviation,
                )
                continue
            family, every = item.family, family_names(self.workload.domain, item.family)
            sizes = np.array([f.shape[0] for f in family.factors])
            squares = self.plan.strategy.family_powers(family, 2)
            for chosen, rows in self.plan.strategy.answer_family(self.estimate, family):
                shape = tuple(sizes[family.sets[chosen[0]]].tolist())
                if squares is None:
                    own = [self.plan.strategy.row_powers(family.block(i), 2) for i in chosen.tolist()]
                    powers = np.stack([np.broadcast_to(p, shape) for p in own])
                else:
                    powers = squares[chosen].reshape(-1, *(1,) * family.order)
                held = tuple(every[i] for i in chosen.tolist())
                yield Batch(held, rows.reshape(len(chosen), *shape), np.sqrt(powers) * deviation)

    def tables(self, confidence: float = 0.95) -> Iterator[Table]:
        """All marginal tables of the workload, one at a time.

        Args:
            confidence: The probability, strictly between 0 and 1, with which each interval holds.

        Returns:
            The tables, in the order of the workload; queries that are no cells of a table are left out.

        Raises:
            PlanError: The confidence is no such probability.
        """
        for names in self._asked_tables():
            yield self.table(*names, confidence=confidence)

    def standard_errors(self) -> FloatArray | None:
        """Standard errors of the answers, those that the plan predicted.

        Returns:
            (k,) standard errors in the unit of each query, or None for projected answers.

        Raises:
            PlanError: There are more than 200 million queries.
        """
        return None if self.projection is not None else self.plan.standard_errors(self.part)

    def variances(self, block: Block) -> FloatArray:
        """Variances of the unprojected answers to a block of queries.

        Args:
            block: Queries over a marginal table, as the `blocks` of a workload hold them.

        Returns:
            Variances with one axis per factor of the block, of length 1 where they are constant.

        Raises:
            NotAnswerable: The block lies outside the span of what was measured.
        """
        return self._powers(block) * self.measurement.noise.variance

    def _powers(self, block: Block) -> FloatArray:
        """Sums of squares of the reconstruction's rows; infinite where models alone answer."""
        try:
            return self.plan.strategy.row_powers(block, 2)
        except NotAnswerable:
            if self.projection is None or not isinstance(self.projection.possible, AdaptedTables):
                raise
            return np.full((1,) * len(block.factors), math.inf)

    def margins(self, block: Block, confidence: float) -> FloatArray:
        """Half-widths of the intervals of a block of queries, each of which holds by itself.

        Args:
            block: Queries over a marginal table, as the `blocks` of a workload hold them.
            confidence: The probability, strictly between 0 and 1, with which each interval holds.

        Returns:
            Half-widths, compact as the variances.

        Raises:
            NotAnswerable: The block lies outside the span of what was measured.
        """
        strategy = self.plan.strategy
        second = self._powers(block)
        shaped = isinstance(self.measurement.noise, DiscreteLaplace)
        fourth = strategy.row_powers(block, 4) if shaped else None
        return interval_margins(confidence, second, fourth, self.measurement.noise, entry_biases(strategy, block)[0])

    def intervals(self, confidence: float = 0.95, *, simultaneous: bool = False) -> Intervals:
        """Intervals of all answers, from the actual law of the noise.

        Intervals of sums over cells of several numbers hold the sum of the values: they go from the sum of the cells'
        lower ends to that of their upper ends, NaN where nothing that was measured bounds it.

        Args:
            confidence: The probability, strictly between 0 and 1, with which an interval holds.
            simultaneous: Whether all intervals hold together with that confidence; otherwise each one does.

        Returns:
            `low` and `high`, (k,) each, the confidence, and whether it is that of all intervals together.

        Raises:
            PlanError: The confidence is no such probability, or there are more than 200 million queries.
        """
        level = self.plan.level(confidence, simultaneous=simultaneous, count=len(self.workload))
        widths = self.plan.half_widths(level, self.part)
        low, high = self.raw.answers - widths, self.raw.answers + widths
        if self.projection is not None:
            least, most = possible_answers(self, level)
            low, high = (
                np.minimum(np.clip(low, least, most), self.answers),
                np.maximum(np.clip(high, least, most), self.answers),
            )
        low, high = linear.widen_intervals(self, low, high, level)
        return Intervals(low, high, check_confidence(confidence), simultaneous)

    def frame(self, confidence: float = 0.95, *, simultaneous: bool = False) -> Frame:
        """The answers as a frame.

        Args:
            confidence: The probability, strictly between 0 and 1, with which an interval holds.
            simultaneous: Whether all intervals hold together with that confidence; otherwise each one does.

        Returns:
            One row per query: part, label, answer, standard_error, low, high; of a projected release also the
            unprojected answer.

        Raises:
            PlanError: The confidence is no such probability, or there are more than 200 million queries.
        """
        ends = self.intervals(confidence, simultaneous=simultaneous)
        projected = {} if self.projection is None else {"unprojected": self.raw.answers}
        known = projected | {"standard_error": self.standard_errors(), "low": ends.low, "high": ends.high}
        return answers_frame(part_and_label(self.workload), answer=self.answers, **known)

    # -- further questions ------------------------------------------------------------------------------

    def table(self, *attributes: str, confidence: float = 0.95, simultaneous: bool = False) -> Table:
        """The marginal table over the named attributes or levels.

        A table that was measured only inside a larger one is answered by summing.

        Args:
            *attributes: Names of attributes or levels, in the order of the axes. Without names it is the number of
                records; of a part only where that asks for it.
            confidence: The probability, strictly between 0 and 1, with which an interval holds.
            simultaneous: Whether all intervals of the table hold together with that confidence; otherwise each one
                does.

        Returns:
            The table with its standard errors (None for projected answers) and intervals.

        Raises:
            NotAnswerable: The table was not measured, nor a larger one.
            PlanError: The confidence is no such probability.
            DomainError: A name is unknown, or two names belong to one attribute.
        """
        self._check_table(attributes)
        domain = self.plan.workload.domain
        block, sizes = table_block(domain, attributes), domain.sizes(attributes)
        level = self.plan.level(confidence, simultaneous=simultaneous, count=block.rows)
        widths = np.broadcast_to(self.margins(block, level), sizes).reshape(-1)
        values, low, high = (x.reshape(sizes) for x in interval_ends(self, block, widths, level))
        errors = None
        if self.projection is None:
            errors = np.broadcast_to(np.sqrt(self.variances(block)), sizes).copy()
        labels = tuple(domain[n].labels for n in attributes)
        return Table(attributes, labels, values, errors, low, high, confidence, rows_text(self.plan.unit), self)

    def top(self, attribute: str, count: int = 20, confidence: float = 0.95) -> Frame:
        """The labels of an attribute with the largest counts, and of which it is sure that they are among the largest.

        Args:
            attribute: The attribute or level.
            count: How many labels, from 1 on; all where there are fewer.
            confidence: The probability, strictly between 0 and 1, with which all intervals of the attribute's table
                hold together.

        Returns:
            One row per label, the largest answer first: label, answer, standard_error, low, high, and whether it is
            surely among the `count` labels with the most records. (other) is left out; that it may hold labels with as
            many records is reckoned with.

        Raises:
            InvalidInput: The number is no whole number from 1 on.
            NotAnswerable: The attribute's table was not measured, nor a larger one.
            PlanError: The confidence is no such probability.
            DomainError: There is no such attribute, or it is a measure.

        Guarantee:
            With that confidence all that is called sure is true, of the records that are counted.

        >>> work = sf.identity(sf.Domain({"city": sf.Categories(["Bern", "Genf", "Olten"])}))
        >>> made = sf.plan(work, sf.gdp(1), neighbours="add-remove")
        >>> found = sf.release(made, sf.Histogram([900, 500, 30]), ledger=None).top("city", 2)
        >>> found["city"], found["surely among the first"]
        (['Bern', 'Genf'], [True, True])
        """
        return top_cells(self, attribute, count, confidence)

    @overload
    def ask(self, question: str, confidence: float = 0.95) -> Answer: ...
    @overload
    def ask(self, question: Workload, confidence: float = 0.95) -> Frame: ...
    def ask(self, question: str | Workload, confidence: float = 0.95) -> Answer | Frame:
        """Answer a further predicate or workload from what was measured, at no cost.

        Args:
            question: A predicate such as "age >= 65", or a workload, which may be over some of the attributes alone, as
                they are declared for this release.
            confidence: The probability, strictly between 0 and 1, with which an interval holds.

        Returns:
            An Answer to a predicate, a Frame of one row per query for a workload.

        Raises:
            NotAnswerable: The question lies outside the span of what was measured; the message says what is missing.
            PlanError: The workload is over another domain, or the confidence is no such probability.
            WorkloadError: The predicate cannot be read.
        """
        level, work = check_confidence(confidence), self._question(question)
        if isinstance(question, Workload):
            return self._ask_workload(work, level)
        return self._ask_one(work.blocks[0], level)

    def _ask_one(self, query: QueryBlock, level: float) -> Answer:
        block = query.block
        try:
            value, low, high = (
                float(x[0]) for x in interval_ends(self, block, self.margins(block, level).reshape(-1), level)
            )
        except NotAnswerable:
            form = split_into_products(self, block)
            if form is None:
                raise
            return Answer.of(form, level)
        error = math.sqrt(float(self.variances(block).reshape(-1)[0])) if self.projection is None else None
        (low,), (high,) = linear.widen_interval(self, query, np.array([low]), np.array([high]), level)
        form = linear.bounded_linear_answer(self, query, LinearAnswer(((1.0, self, block),)))
        return Answer(value, error, float(low), float(high)).known(form, level)

    def _ask_workload(self, work: Workload, level: float) -> Frame:
        found = [self._ask_block(q, level) for q in work.blocks]
        value, low, high, errors = (np.concatenate(x) for x in zip(*found, strict=True))
        shown = errors if self.projection is None else None
        return answers_frame({"label": work.labels()}, answer=value, standard_error=shown, low=low, high=high)

    def _ask_block(self, query: QueryBlock, level: float) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """(value, low, high, standard error), (rows,) each; of a projection no error is known."""
        if query.rows == 1:
            one = self._ask_one(query, level)
            error = math.nan if one.standard_error is None else one.standard_error
            return np.array([one.value]), np.array([one.low]), np.array([one.high]), np.array([error])
        try:
            value, low, high = interval_ends(
                self, query.block, expand_to_queries(self.margins(query.block, level), query), level
            )
        except NotAnswerable:
            rows = single_rows(query.block)
            if rows is None:
                raise
            found = [self._ask_block(QueryBlock(query.part, row, unit=query.unit), level) for row in rows]
            value, low, high, errors = (np.concatenate(x) for x in zip(*found, strict=True))
            return value, low, high, errors
        low, high = linear.widen_interval(self, query, low, high, level)
        known = self.projection is None
        return (
            value,
            low,
            high,
            expand_to_queries(np.sqrt(self.variances(query.block)), query) if known else np.full(query.rows, np.nan),
        )

    def covariance(self, first: Question, second: Question | None = None) -> FloatArray:
        """Covariances of the unprojected answers to two questions, or of those to one, as the plan predicted them.

        Args:
            first: A tuple of attribute names, for the cells of that table; a predicate; or a workload.
            second: The same; `first`, unless given.

        Returns:
            (answers to first, answers to second) covariances.

        Raises:
            NotAnswerable: A question is about more than was measured.
            PlanError: There are too many answers, or a question is none or over another domain.
            WorkloadError: A predicate cannot be read.
        """
        return self.plan.covariance(first, second)

    def table_covariances(self, first: Sequence[str], second: Sequence[str]) -> Frame:
        """Covariances of the unprojected cells of two tables, however large, as the plan predicted them.

        Args:
            first: The attributes of one table.
            second: The attributes of the other.

        Returns:
            One row per pattern of common attributes on which two cells agree.

        Raises:
            PlanError: Covariances depend on more than that agreement.
            NotAnswerable: A table was not measured.
        """
        return self.plan.table_covariances(first, second)

    def plot(
        self,
        attribute: str,
        by: str | Sequence[str] = (),
        confidence: float = 0.95,
        *,
        title: str = "",
        source: str = "",
    ) -> Any:
        """An Altair chart of how an attribute is distributed (extra: plots).

        Of ordered attributes it shows cumulative shares with bands, of others shares with intervals. Groups of which
        too little is known are left out.

        Args:
            attribute: The attribute or level.
            by: Attributes or levels; the distribution is shown within each of their cells.
            confidence: The probability, strictly between 0 and 1, with which each interval holds.
            title: What stands above it.
            source: The line below it, such as the office and the year.

        Returns:
            The chart; `.save("chart.svg")`, or .png or .pdf, writes it to a file (extra: charts).

        Raises:
            MissingExtra: Altair is not installed.
            NotAnswerable: What it shows was not measured.
            DomainError: A name is unknown.
            PlanError: The confidence is no such probability.
        """
        counted = rows_text(self.plan.unit)
        if self.plan.workload.domain[attribute].ordered:
            drawn = chart_cumulative_shares(self.cdf(attribute, by, confidence), attribute, counted)
        else:
            drawn = chart_shares(self.share(attribute, by, confidence), attribute, counted)
        return chart_with_words(drawn, title, source)

    quantiles = statistics.attribute_quantiles
    cdf = statistics.cumulative_shares
    mean = means.attribute_mean
    gap = means.gap
    variance = moments.variance
    std = moments.std
    covariance_between = moments.covariance_between
    correlation = moments.correlation
    regression = regression.regression
    lorenz = inequality.lorenz
    gini = inequality.gini
    share = statistics.group_shares

    @functools.cached_property
    def cautions(self) -> tuple[Caution, ...]:
        """Reasons to doubt the declaration, the largest share first: most often labels or a range that do not match.

        An attribute is named where the noisy count of records in its `(other)` is 5 standard errors above 0, whatever
        its share; under outside="clamp", where 99 % are in the first or the last cell. Where persons had more rows than
        are counted, that comes first, as soon as noise allows to tell. It follows from what was measured and costs
        nothing.
        """
        return find_cautions(self)

    def compare(self, earlier: Release, confidence: float = 0.95, *, simultaneous: bool = False) -> Frame:
        """What changed since another release of the same queries; see `sf.difference`.

        Args:
            earlier: The other release.
            confidence: The probability, strictly between 0 and 1, with which an interval holds.
            simultaneous: Whether all intervals hold together with that confidence; otherwise each one does.

        Returns:
            One row per query: part, label, earlier, later, difference, standard_error, low, high.

        Raises:
            PlanError: `earlier` is not a release of the same queries, or the confidence is no such probability.
        """
        if not isinstance(earlier, Release):
            raise PlanError("a release is compared with a release")
        return comparison_frame(self, earlier, check_confidence(confidence), together=simultaneous)

    cut_persons = cut_persons

    # -- projection -----------------------------------------------------------------------------------------

    def project(
        self,
        body: str = "auto",
        *,
        space: str | None = None,
        total: float | None = None,
        integer: bool = False,
        earlier: Release | None = None,
        folder: str | os.PathLike[str] | None = None,
        bounds: Mapping[Any, Any] | None = None,
        progress: Progress | None = None,
    ) -> Release:
        """The same release with answers that some table could have given; see `sf.project` for the bodies.

        Answers, tables and questions are then those of the possible table, without standard errors; intervals stay
        valid, and `raw` is the release as it was.

        Args:
            body: What answers must lie in: "auto", a body of `sf.project`, "mixtures", or "spine" for the cells of a
                geographic hierarchy.
            space: What counts as near. "ladder", the default of "auto", "local", "cone" and "hull": the total, every
                attribute, and what was asked for itself are held before finer tables move, so that what is read first
                is not made worse; whole tables must have been measured. "answers": the plain norm over all answers.
                "measurements", the default of "sdp": the norm of the measured values with their noise. In the last two
                norms answers never get farther from the truth, but coarse ones may move much. Leave it out for sums of
                measures, which are always weighed by their own errors.
            total: The known number of records, which under replace-one is public anyway.
            integer: Whether counts are rounded to whole numbers.
            earlier: For "mixtures", another release of the same queries and declared snapshot: what both measured is
                pooled.
            folder: For "spine", where finished parts are kept, and the records of whole numbers as Parquet files: a
                projection that was killed goes on from there, and ends as one that was not.
            bounds: For "spine", floors and caps of the records that groups have, such as {"county": (least, most)},
                each a number or one per group; of one set of cells besides, such as {("county", "gq == 'nursing'"): (0,
                most)}. They are kept exactly.
            progress: Called with the number of steps done and the relative gap that is left; None shows it in notebooks
                alone.

        Returns:
            The projected release.

        Raises:
            PlanError: An option is not allowed or does not apply, or no table is within the bounds.
            InvalidInput: There is no such body, it does not take these queries, or the folder holds anything else.
            NotAnswerable: Whole tables are needed and were not measured.

        Guarantee:
            Post-processing: it costs no privacy.

        Source:
            [NTZ13], [DNT15]
        """
        if earlier is not None and not isinstance(earlier, Release):
            raise PlanError(f"earlier= takes another release of noisy tables, which can be pooled, not {earlier!r}")
        with show_progress("projecting", progress) as told:
            return projecting.project_release(
                self, body, space, total, told, integer=integer, earlier=earlier, folder=folder, bounds=bounds
            )

    def synthetic(self, records: int | None = None) -> Synthetic:
        """Whole records with about the projected answers, at no cost; the same release gives the same records.

        A release that is not projected is projected first.

        Args:
            records: How many records; the released number, unless given.

        Returns:
            The records, over the attributes that the workload mentions.

        Raises:
            InvalidInput: `records` is not a whole number of at least 0, or the records are too many to list.
            NotAnswerable: No table was measured as a whole.

        Guarantee:
            Post-processing: it costs no privacy.
        """
        return synthesize_records(self, records)

    # -- files and words ----------------------------------------------------------------------------------

    def methods(self, language: str = "en") -> Description:
        """A paragraph on method for a publication, and BibTeX of what it rests on.

        Args:
            language: "en", "de" or "fr".

        Returns:
            A description of 120 to 200 words: what was measured, the noise, the guarantee and who is protected, errors,
            what was left out, the software; and the citations.

        Raises:
            InvalidInput: The language has no catalogue.

        >>> made = sf.plan(sf.identity(sf.Domain({"age": 4})), sf.gdp(1), neighbours="add-remove")
        >>> ages = sf.release(made, sf.Histogram([30, 20, 10, 0]), ledger=None, name="ages")
        >>> 120 <= len(ages.methods().blocks[0].texts[0].split()) <= 200
        True
        """
        with speak(language):
            return method_description(self)

    def _processing(self) -> dict[str, Any]:
        return released.processing_facts(self) | caution_facts(self) | cut_facts(self)

    def contents(self, folder: Path) -> Contents:
        held = files.store_mapped_values(self, folder)
        # standard errors of projected values are none, and say so
        shown = "*" if self.projection is None else "* REPLACE (NULL::DOUBLE AS standard_error)"
        parts = functools.partial(files.write_parts, self, shown)
        return Contents(held, files.measured_arrays(held), self._columns, self._cells, shown, parts)

    def _columns(self) -> dict[str, Any]:
        ends = self.intervals()
        projected = {} if self.projection is None else {"unprojected": self.raw.answers}
        ended = {"standard_error": self.raw.standard_errors(), "low": ends.low, "high": ends.high}
        return super()._columns() | projected | ended

    def _cells(self, names: tuple[str, ...]) -> dict[str, Any]:
        table = self.table(*names)
        return files.table_columns(table, table if self.projection is None else self.raw.table(*names))

    def describe(self) -> Description:
        before = "" if self.projection is None else " of the unprojected answers"
        blocks = [
            doubts(self),
            Facts(tuple(self._lines())),
            moved_facts(self) if self.projection is not None else Facts(()),
            *predicted_errors(self.plan, before),
            *self._part_answers(),
        ]
        return Description(released.release_headline(self), blocks)

    def _lines(self) -> Iterator[tuple[str, str]]:
        yield from (("in (other)", text) for text in [other_line(self)] if text)
        objective = f"{self.plan.objective!r}, decided before the data"
        yield from self._standing(("measured", self.plan.strategy.summary), ("objective", objective))
        yield "", released.reading_sentence(self)
        yield from (("note", text) for text in [starving_line_text(self.plan)] if text)
        if told := cut_persons_text(self):
            yield "", told


def _check_releases(first: object, second: object) -> None:
    if not isinstance(first, Release) or not isinstance(second, Release):
        raise PlanError("two releases are needed")


def combine(first: Release, second: Release) -> Comparison:
    """Pool two releases of one declared snapshot: each answer weighted by its precision.

    Args:
        first: A release.
        second: Another release of the same queries, with the same `snapshot`; otherwise the tables may differ, and
            pooling would be biased.

    Returns:
        The pooled answers with their standard errors and intervals.

    Raises:
        PlanError: The two are not different releases of the same queries and of one snapshot, with one law of noise.

    >>> made = sf.plan(sf.identity(sf.Domain({"age": 4})), sf.gdp(1), neighbours="add-remove")
    >>> ages, ledger = sf.Histogram([30, 20, 10, 0]), sf.Ledger.in_memory(sf.gdp(2))
    >>> first = sf.release(made, ages, ledger=ledger, name="first", snapshot="2026-11")
    >>> second = sf.release(made, ages, ledger=ledger, name="second", snapshot="2026-11")
    >>> sf.combine(first, second).standard_errors().round(3)
    array([0.707, 0.707, 0.707, 0.707])
    """
    _check_releases(first, second)
    check_comparable(first, second)
    check_snapshots(first, second)
    one, other = coefficient_powers(first, 2), coefficient_powers(second, 2)
    total = one + other
    # what neither measured, and only models answered, has no weight of its own
    weight = np.divide(other, total, out=np.full_like(total, 0.5), where=(total > 0) & np.isfinite(total))
    return combine_answers("pooled", first, second, weight, 1 - weight)


def difference(later: Release, earlier: Release) -> Comparison:
    """later - earlier for every query: the change between two snapshots.

    Args:
        later: A release.
        earlier: Another release of the same queries, which is subtracted.

    Returns:
        The differences with their standard errors and intervals. The noise of the two is independent.

    Raises:
        PlanError: The two are not different releases of the same queries, with one law of noise.

    >>> made = sf.plan(sf.identity(sf.Domain({"age": 4})), sf.gdp(1), neighbours="add-remove")
    >>> november = sf.release(made, sf.Histogram([30, 20, 10, 0]), ledger=None, name="2026-11")
    >>> december = sf.release(made, sf.Histogram([33, 20, 12, 0]), ledger=None, name="2026-12")
    >>> sf.difference(december, november).standard_errors().round(3)
    array([1.414, 1.414, 1.414, 1.414])
    """
    _check_releases(later, earlier)
    return answer_changes(later, earlier)
