"""A release of several looks: answers of one model of the table, and everything that came out of the looks.

The model also gives whole records with about the answers of the release: a table that looks like the one that was
measured.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, overload

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import deferred_field, storable
from sfumato._util.description import Describable, Description, Facts, TitledTable
from sfumato._util.documents import write_atomically
from sfumato._util.frames import Frame, FrameConvertible, safe_text
from sfumato.domain import Domain
from sfumato.errors import InvalidInput, NotAnswerable, PlanError
from sfumato.measurements import Measurement, Selection
from sfumato.operators import Block, Family
from sfumato.operators.base import FloatArray
from sfumato.plans.iterative import IterativePlan
from sfumato.plans.planned import is_answered
from sfumato.postprocess.geography_estimates import PlacedCounts
from sfumato.postprocess.integers import Whole, whole_counts, workload_answers
from sfumato.postprocess.possible import CellCounts, Possible
from sfumato.postprocess.projection import Projection
from sfumato.postprocess.values import ValueCounts, ValueTable
from sfumato.releases.answers import Answer
from sfumato.releases.ends import answer_range
from sfumato.releases.files import Contents, cell_columns, write_parquet
from sfumato.releases.released import Provenance, WorkloadRelease
from sfumato.releases.tables import Table, answers_frame, part_and_label
from sfumato.workloads import RECORDS, QueryBlock, QueryFamily, Workload
from sfumato.workloads.levels import table_block

if TYPE_CHECKING:
    from sfumato.releases.release import Release

_LARGEST = 2**24  # cells of one table: 128 MB, as what is searched for a hull
_NAMED = 3  # kinds of queries that are named


def projected_answer(release: Release, block: Block) -> FloatArray | None:
    """The answer of what a release is projected onto; None where it is not projected, or that holds no such table and
    some answers stay as they were measured. Raises NotAnswerable where none do."""
    if release.projection is None:
        return None
    try:
        return release.projection.possible.answer(block)
    except NotAnswerable:
        if not release.projection.left_out:
            raise
    return None


def held_queries(whole: Release) -> Workload | None:
    """The queries that lie in whole tables that were measured; None where no query does.

    Tables that were asked were measured; of other queries it is asked whether the table that they lie in can be
    answered.
    """
    work = whole.plan.workload
    known: dict[tuple[str, ...], bool] = {}

    def measured(item: QueryBlock | QueryFamily) -> bool:
        if item.is_marginal:
            return True
        return all(_is_measured_table(whole, q.attributes, known) for q in item.blocks())

    kept = tuple(i for i in work.items if measured(i))
    if len(kept) == len(work.items):
        return work
    return Workload(work.domain, kept) if kept else None


def _is_measured_table(whole: Release, attributes: tuple[str, ...], known: dict[tuple[str, ...], bool]) -> bool:
    domain = whole.plan.workload.domain
    names = domain.ordered(attributes)
    if names not in known:
        few = math.prod(domain.sizes(names)) <= _LARGEST
        known[names] = few and is_answered(whole.plan.strategy, table_block(domain, names))
    return known[names]


def unheld_queries(whole: Release, held: Workload | None) -> tuple[str, ...]:
    """What of a release's queries is not among those held: by part, in words."""
    kept = {id(i) for i in (() if held is None else held.items)}
    parts: dict[str, int] = {}
    for item in whole.plan.workload.items:
        if id(item) not in kept:
            parts[item.part] = parts.get(item.part, 0) + item.rows
    said = [f"{rows:,} of {safe_text(part)!r}" for part, rows in parts.items()]
    return (*said[:_NAMED], *([f"those of {len(said) - _NAMED:,} more parts"] if len(said) > _NAMED else []))


_MAX_CODES = 2**29  # numbers of all records together: 2 GB in 32 bits


_SHOWN = 10  # records in a notebook: how they look, not what they are


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Synthetic(FrameConvertible, Describable):
    """Records whose answers are near the projected answers of a release, or those of its model.

    They cost no privacy, and are nobody's. How far the truth may be beyond `rmse` and `table_error`, only the release's
    intervals say.

    Args:
        attributes: The attributes of the records.
        labels: For each attribute the texts of its cells; for a measure numbers, and None for records without one.
        codes: (n, d) the cell of every attribute of every record.
        left_out: Attributes that no query mentions, about which nothing was measured.
        rmse: The root mean squared difference of their answers from the projected ones, scaled to n. Sums of measures
            are in units of their largest coefficient, which is about what one record can add.
        table_error: The mean over tables of the sum of |differences| / n, where a table is one block of queries that
            count records; None where no query does.
    """

    attributes: tuple[str, ...]
    labels: tuple[tuple[str | float | None, ...], ...]
    codes: NDArray[np.int32]
    left_out: tuple[str, ...]
    rmse: float
    table_error: float | None

    def __len__(self) -> int:
        return len(self.codes)

    def frame(self) -> Frame:
        """The records as a frame.

        Returns:
            One row per record, the cells' texts under their attributes' names, and numbers under those of measures.
        """
        return Frame({a: column.tolist() for a, column in zip(self.attributes, self._texts(self.labels), strict=True)})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the records to a new file.

        Args:
            path: The file, which must not exist: Parquet where its name ends in ".parquet", else CSV, in which texts
                that a spreadsheet would compute are defused.

        Raises:
            InvalidInput: The file exists.
            OSError: The file cannot be written.
        """
        place = Path(path)
        if place.exists():
            raise InvalidInput(f"{place} exists; choose another name, or remove it")
        if place.suffix == ".parquet":
            columns = dict(zip(self.attributes, self._texts(self.labels), strict=True))
            write_parquet(columns, place, {"records": len(self), "attributes": list(self.attributes)})
            return
        safe = tuple(tuple(safe_text(t) if isinstance(t, str) else t for t in texts) for texts in self.labels)
        columns = [column.tolist() for column in self._texts(safe)]

        def write(partial: Path) -> None:
            with partial.open("w", encoding="utf-8", newline="") as handle:
                lines = csv.writer(handle, lineterminator="\n")
                lines.writerow([safe_text(a) for a in self.attributes])
                lines.writerows(zip(*columns, strict=True))

        write_atomically(place, write)

    def _texts(self, labels: tuple[tuple[str | float | None, ...], ...]) -> list[NDArray[np.object_]]:
        return [np.array(texts, dtype=object)[self.codes[:, i]] for i, texts in enumerate(labels)]

    def describe(self) -> Description:
        left = "" if not self.left_out else f"; left out, as no query mentions them: {', '.join(self.left_out)}"
        tables = "" if self.table_error is None else f", tables {self.table_error:.2%} of the records (mean)"
        said = f"their answers are {self.rmse:,.3g} off those it was made from (root mean square){tables}"
        count = min(_SHOWN, len(self))
        first = Frame({a: c[:count].tolist() for a, c in zip(self.attributes, self._texts(self.labels), strict=True)})
        headline = f"{len(self):,} synthetic records over {', '.join(self.attributes) or 'no attributes'}{left}"
        return Description(headline, [Facts([("", said)]), TitledTable(f"The first {count} records", first)])

    def brief(self) -> str:
        left = f" ({len(self.left_out)} left out)" if self.left_out else ""
        tables = "" if self.table_error is None else f", table error {self.table_error:.2%}"
        what = f"{len(self):,} records, {len(self.attributes)} attributes{left}"
        return f"{what}, rmse {self.rmse:,.3g}{tables}"


def synthesize_records(release: Release, records: int | None) -> Synthetic:
    """See `Release.synthetic`."""
    whole = release if release.projection is not None else release.project()
    assert whole.projection is not None
    held = whole.projection.possible
    if isinstance(held, PlacedCounts):
        if whole.projection.rounded is None:
            # a tree is settled in whole numbers from the root down
            total = float(round(float(held.count.sum())))
            found = release.raw.project("spine", total=total, integer=True).projection
            assert found is not None
            assert isinstance(found.possible, PlacedCounts)
            held = found.possible
        return records_of_places(held, whole.plan.workload, records)
    found, work = whole.projection, whole.plan.workload
    if isinstance(held, ValueCounts):
        table = ValueTable.of_counts(work, held)
        drawn = draw_records(
            replace(found, answers=found.answers / table.scale, possible=held.held), table.asked, records
        )
        numbers = {m: (*values.tolist(), None) for m, values in zip(held.measures, held.values, strict=True)}
        left = tuple(a for a in work.domain.names if a not in drawn.attributes)
        labels = tuple(numbers.get(a, texts) for a, texts in zip(drawn.attributes, drawn.labels, strict=True))
        return replace(drawn, labels=labels, left_out=left)
    if found.left_out:  # what no table holds, records cannot follow
        work = held_queries(replace(whole.raw, part=None))
        if work is None:
            raise NotAnswerable("no table was measured as a whole, so no records follow from these answers")
        found = replace(found, answers=workload_answers(found.possible, work))
    return draw_records(found, work, records)


def records_of_places(held: PlacedCounts, work: Workload, records: int | None) -> Synthetic:
    """The records that whole counts in places are of, unit by unit."""
    counts = np.rint(held.count).astype(np.int64)
    count, domain = int(counts.sum()), work.domain
    if records is not None and records != count:
        raise InvalidInput(
            f"whole counts in places are those of {count:,} records; leave records out, or project to a total of "
            f"{records!r}"
        )
    places = _place_labels(domain, held)
    attributes = domain.ordered((held.place, *held.attributes))
    if count * len(attributes) > _MAX_CODES:
        raise InvalidInput(f"{count:,} records of {len(attributes)} attributes are too many to list")
    columns = (c.astype(np.int32) for c in np.unravel_index(held.cell, held.sizes))
    codes = {held.place: held.unit} | dict(zip(held.attributes, columns, strict=True))
    listed = np.stack([np.repeat(codes[a], counts) for a in attributes], axis=1)
    labels = tuple(places[1] if a == held.place else domain[a].labels for a in attributes)
    shown = tuple(places[0] if a == held.place else a for a in attributes)
    left = tuple(a for a in domain.names if a not in attributes)
    return Synthetic(shown, labels, listed, left, 0.0, 0.0)


def _place_labels(domain: Domain, held: PlacedCounts) -> tuple[str, tuple[str, ...]]:
    """What the units are called: the attribute, or the finest level that was asked; and what each is."""
    if held.units == held.cells:
        return held.place, domain[held.place].labels
    level = next(x for x in domain.groupings(held.place) if x.attribute.size == held.units)
    return level.name, level.attribute.labels


def draw_records(found: Projection, work: Workload, records: int | None) -> Synthetic:
    """Whole records with about the answers of what was projected onto, or of a model."""
    mass = float(found.possible.table(()))
    count = round(mass) if records is None else records
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 0:
        raise InvalidInput(f"records is a whole number of at least 0, or None for the released total, not {records!r}")
    names = work.domain.ordered({a for i in work.items for a in i.attributes})
    if count * max(len(names), 1) > _MAX_CODES:
        raise InvalidInput(f"{count:,} records of {len(names)} attributes are too many to list; ask for fewer")
    held = whole_counts(found, work, int(count))
    away = workload_answers(held, work) - found.answers * (count / mass if mass > 0 else 0.0)
    ends = np.cumsum([q.rows for q in work.blocks])[:-1]
    parts = zip(np.split(away, ends), work.blocks, strict=True)
    tables = [float(np.abs(part).sum()) / max(int(count), 1) for part, q in parts if q.unit == RECORDS]
    labels = tuple(work.domain[a].labels for a in names)
    left = tuple(a for a in work.domain.names if a not in names)
    error = math.sqrt(float(np.mean(away**2)))
    return Synthetic(names, labels, _record_codes(held, names), left, error, float(np.mean(tables)) if tables else None)


def _record_codes(held: Whole, names: tuple[str, ...]) -> NDArray[np.int32]:
    """(n, d) every record by itself, the attributes in this order."""
    if isinstance(held, CellCounts):
        codes, counts = np.argwhere(held.values > 0).astype(np.int32), held.values[held.values > 0]
    else:
        codes, counts = held.codes, held.weights
    order = [held.attributes.index(a) for a in names]
    return np.repeat(codes, np.rint(counts).astype(np.int64), axis=0)[:, order]


_MAX_ANSWERS = 200_000_000  # as of releases of one look
_PROCESSING = (
    "a model was fitted to what came out of the looks, and answers every query; its errors have no known law, so there "
    "are no standard errors and no intervals"
)


class Findings(NamedTuple):
    """What several looks bring home: all that came out of the wall, in order, and the model made of it.

    gap: where the model is defined as an optimum, how far from it at most (see `ModelRelease.gap`); else None.
    """

    looks: tuple[Measurement | Selection, ...]
    model: Possible
    gap: float | None = None


@storable
@dataclass(frozen=True, eq=False, repr=False)
class ModelRelease(WorkloadRelease):
    """Answers of a model that was fitted in several looks; every question to it costs no further budget.

    Answers agree with each other and are none that counts could not give. They are biased towards what the model starts
    from and have no standard errors, for what was measured depends on the data; `low` and `high` of answers and tables
    are what is possible at all.

    Args:
        plan: The plan that was carried out.
        measurement: All that was measured and chosen, in order, which may be published.
        model: The counts that answer.
        provenance: When, by which versions and from which ledger it was made.
        part: The part of the workload that is answered, or None for all.
        gap: Where the model is defined as an optimum ("mwem"), a proved bound on half the summed squares of the
            differences between its answers to what was measured and those of the optimum, in units of the noise; None
            for other models.

    Guarantee:
        The looks together satisfy the plan's budget for the plan's privacy unit; everything else is post-processing.
    """

    plan: IterativePlan
    measurement: tuple[Measurement | Selection, ...]
    model: Possible
    provenance: Provenance
    part: str | None = None
    gap: float | None = deferred_field(None)

    errors_known = False

    def with_errors(self) -> NoReturn:
        """Refuse to state errors, which are not known of a model.

        Raises:
            InvalidInput: Always.
        """
        raise InvalidInput(
            f"{self.provenance.name!r} answers from a model, whose errors are not known: no intervals could be given. "
            "Its answers are in answers.parquet and tables/, and sfumato ask gives single ones"
        )

    def project(self, *how: Any, **options: Any) -> NoReturn:
        """Refuse to project: a model is a table already.

        Args:
            *how: Not used.
            **options: Not used.

        Raises:
            InvalidInput: Always.
        """
        raise InvalidInput("the answers of a model are possible ones already; there is nothing to project")

    @property
    def total(self) -> int | None:
        """The number of records, where the neighbour relation makes it public."""
        measured = [m for m in self.measurement if isinstance(m, Measurement)]
        return measured[0].total if measured else None

    def _answers(self) -> FloatArray:
        if len(self.workload) > _MAX_ANSWERS:
            raise PlanError(f"{len(self.workload):,} answers are too many for one array; take release.table()")
        return np.concatenate([self.answer_block(q.block) for q in self.workload.blocks])

    def answer_block(self, block: Block) -> FloatArray:
        """Answers of the model to any block of queries.

        Args:
            block: Queries over a marginal table, as the `blocks` of a workload hold them.

        Returns:
            (rows,) answers.

        Raises:
            NotAnswerable: The model does not hold one of the attributes.
        """
        return self.model.answer(block)

    def standard_errors(self) -> None:
        """None: what was measured depends on the data, so errors have no law that is known."""
        return

    def frame(self) -> Frame:
        """The answers as a frame.

        Returns:
            One row per query: part, label, answer.
        """
        return answers_frame(part_and_label(self.workload), answer=self.answers)

    # -- further questions ------------------------------------------------------------------------------

    def table(self, *attributes: str) -> Table:
        """The marginal table over the named attributes or levels.

        Args:
            *attributes: Names of attributes or levels, in the order of the axes. Without names it is the number of
                records.

        Returns:
            The table, without standard errors.

        Raises:
            NotAnswerable: The model does not hold one of the attributes.
            DomainError: A name is unknown, or two names belong to one attribute.
        """
        self._check_table(attributes)
        domain = self.plan.workload.domain
        block, sizes = table_block(domain, attributes), domain.sizes(attributes)
        values = self.model.answer(block).reshape(sizes)
        low, high = (np.broadcast_to(end, sizes) for end in self._reach(block))
        return Table(attributes, tuple(domain[n].labels for n in attributes), values, None, low, high, 1.0)

    def tables(self) -> Iterator[Table]:
        """All marginal tables of the workload, one at a time.

        Returns:
            The tables, in the order of the workload; queries that are no cells of a table are left out.
        """
        for names in self._asked_tables():
            yield self.table(*names)

    @overload
    def ask(self, question: str) -> Answer: ...
    @overload
    def ask(self, question: Workload) -> Frame: ...
    def ask(self, question: str | Workload) -> Answer | Frame:
        """Answer a further predicate or workload from the model, at no cost.

        Args:
            question: A predicate such as "age >= 65", or a workload over some of the attributes.

        Returns:
            An Answer to a predicate, a Frame of one row per query for a workload.

        Raises:
            NotAnswerable: The model does not hold one of the attributes.
            PlanError: The workload is over another domain.
            WorkloadError: The predicate cannot be read.
        """
        work = self._question(question)
        if isinstance(question, Workload):
            answers = np.concatenate([self.model.answer(q.block) for q in work.blocks])
            return answers_frame({"label": work.labels()}, answer=answers)
        block = work.blocks[0].block
        found = Answer(float(self.model.answer(block)[0]), None, *self._reach(block))
        found.confidence = 1.0  # its ends are what is possible at all
        return found

    def _reach(self, block: Block) -> tuple[float, float]:
        return answer_range(block.operator, self.total)

    def synthetic(self, records: int | None = None) -> Synthetic:
        """Whole records with about the answers of the model, at no cost; the same release gives the same records.

        Args:
            records: How many records; the model's number, unless given.

        Returns:
            The records, over the attributes that the workload mentions.

        Raises:
            InvalidInput: `records` is not a whole number of at least 0, or the records are too many to list.

        Guarantee:
            Post-processing: it costs no privacy.
        """
        whole = replace(self, part=None)
        held = Projection(whole.answers, self.model, math.inf, False, 0.0, 0, "model", realisable=True)
        return draw_records(held, self.plan.workload, records)

    # -- files and words ----------------------------------------------------------------------------------

    def _processing(self) -> dict[str, Any]:
        fitted = {} if self.gap is None else {"model_gap": self.gap if math.isfinite(self.gap) else None}
        return {"post_processing": _PROCESSING, **fitted}

    def contents(self, folder: Path) -> Contents:
        if self.part is not None:
            return replace(self, part=None).contents(folder)
        return Contents(self, self._looks(), self._columns, self._cells)

    def _looks(self) -> dict[str, Any]:
        """Every look as arrays: values with the attributes they are over, or the number that was chosen."""
        arrays: dict[str, Any] = {}
        for i, look in enumerate(self.measurement):
            if isinstance(look, Selection):
                arrays[f"look_{i}_chosen"] = np.array([look.chosen, look.among])
                continue
            names = [b.names if isinstance(b, Family) else b.attributes for b in look.blocks]
            arrays[f"look_{i}_blocks"] = np.array(["*".join(n) or "total" for n in names], dtype=np.str_)
            arrays |= {f"look_{i}_values_{j}": values for j, values in enumerate(look.values)}
        return arrays

    def _cells(self, names: tuple[str, ...]) -> dict[str, Any]:
        table = self.table(*names)
        return cell_columns(table) | {"answer": np.round(table.values, 6).reshape(-1)}

    def describe(self) -> Description:
        how = f"{len(self.workload):,} answers of a model, mechanism {self.plan.mechanism!r}"
        unknown = ("", "answers have no standard errors: what was measured depends on the data")
        facts = Facts([*self._standing(*self._found()), unknown])
        return Description(f"Release {self.provenance.name!r}: {how}", [facts, *self._part_answers()])

    def _found(self) -> Iterator[tuple[str, str]]:
        chosen = sum(isinstance(m, Selection) for m in self.measurement)
        yield "looked", f"{len(self.measurement) - chosen:,} times for noisy values, {chosen:,} times to choose"
        if self.gap is not None:
            near = f"{math.sqrt(2 * max(self.gap, 0.0)):.2g} standard deviations of the noise"
            yield "fitted", f"within {near} of the optimum, proved"
