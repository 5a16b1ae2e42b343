"""A release of several looks: answers of one model of the table, and everything that came out of the looks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, overload

import numpy as np

from sfumato._util.codec import deferred_field, storable
from sfumato._util.description import Description, Facts
from sfumato._util.frames import Frame
from sfumato.errors import InvalidInput, PlanError
from sfumato.measurements import Measurement, Selection
from sfumato.operators import Block, Family
from sfumato.operators.base import FloatArray
from sfumato.plans.iterative import IterativePlan
from sfumato.postprocess.possible import Possible
from sfumato.postprocess.projection import Projection
from sfumato.releases.answers import Answer
from sfumato.releases.files import Contents, cell_columns
from sfumato.releases.released import Provenance, WorkloadRelease
from sfumato.releases.synthetic import Synthetic, draw_records
from sfumato.releases.tables import Table, answer_range, answers_frame, part_and_label
from sfumato.workloads import Workload
from sfumato.workloads.levels import table_block

__all__ = ["Findings", "ModelRelease"]

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
