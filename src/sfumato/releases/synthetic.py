"""Whole records with about the answers of a release: a table that looks like the one that was measured."""

from __future__ import annotations

import csv
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sfumato._util.description import Describable, Description, Facts, TitledTable
from sfumato._util.documents import write_atomically
from sfumato._util.frames import Frame, FrameConvertible, safe_text
from sfumato.domain import Domain
from sfumato.errors import InvalidInput, NotAnswerable
from sfumato.operators import Block
from sfumato.operators.base import FloatArray
from sfumato.plans.planned import is_answered
from sfumato.postprocess.geography_estimates import PlacedCounts
from sfumato.postprocess.integers import Whole, whole_counts, workload_answers
from sfumato.postprocess.possible import CellCounts
from sfumato.postprocess.projection import Projection
from sfumato.releases.files import write_parquet
from sfumato.workloads import RECORDS, QueryBlock, QueryFamily, Workload
from sfumato.workloads.levels import table_block

if TYPE_CHECKING:
    from sfumato.releases.release import Release

__all__ = [
    "Synthetic",
    "draw_records",
    "held_queries",
    "projected_answer",
    "records_of_places",
    "synthesize_records",
    "unheld_queries",
]


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
        labels: For each attribute the texts of its cells.
        codes: (n, d) the cell of every attribute of every record.
        left_out: Attributes that no query mentions, about which nothing was measured.
        rmse: The root mean squared difference of their answers from the projected ones, scaled to n.
        table_error: The mean over tables of the sum of |differences| / n, where a table is one block of queries that
            count records; None where no query does.
    """

    attributes: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    codes: NDArray[np.int32]
    left_out: tuple[str, ...]
    rmse: float
    table_error: float | None

    def __len__(self) -> int:
        return len(self.codes)

    def frame(self) -> Frame:
        """The records as a frame.

        Returns:
            One row per record, the cells' texts under their attributes' names.
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
        safe = tuple(tuple(safe_text(t) for t in texts) for texts in self.labels)
        columns = [column.tolist() for column in self._texts(safe)]

        def write(partial: Path) -> None:
            with partial.open("w", encoding="utf-8", newline="") as handle:
                lines = csv.writer(handle, lineterminator="\n")
                lines.writerow([safe_text(a) for a in self.attributes])
                lines.writerows(zip(*columns, strict=True))

        write_atomically(place, write)

    def _texts(self, labels: tuple[tuple[str, ...], ...]) -> list[NDArray[np.object_]]:
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
