"""A release of several looks: answers of one model of the table, and everything that came out of the looks."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sfumato.errors import NotAnswerable, PlanError
from sfumato.estimate.possible import Possible
from sfumato.estimate.projection import Projection
from sfumato.ground.codec import storable
from sfumato.ground.documents import write_document
from sfumato.ground.frames import Frame
from sfumato.ground.later import later
from sfumato.measurements import Measurement, Selection
from sfumato.operators import Block
from sfumato.operators.base import FloatArray
from sfumato.plans.courses import CoursePlan
from sfumato.plans.covariances import check_domain
from sfumato.releases.core import Provenance, Release
from sfumato.releases.files import BUNDLE, MAX_LISTED, Draft, describe, describe_as, seal
from sfumato.releases.synthetic import Synthetic, drawn
from sfumato.releases.tables import Answer, Table, reach
from sfumato.releases.writing import cell_columns, safe_labels, write_arrays, write_csvs, write_parquet
from sfumato.workloads import RECORDS, Workload, predicates
from sfumato.workloads.levels import table_block, table_names

__all__ = ["Findings", "ModelRelease", "described", "write_model"]

_MAX_ANSWERS = 200_000_000
_PROCESSING = (
    "a model was fitted to what came out of the looks, and answers every query; its errors have no known law, so there "
    "are no standard errors and no intervals"
)


class Findings(NamedTuple):
    """What a course brings home: all that came out of the wall, in order, and the model made of it.

    gap: where the model is defined as an optimum, how far from it at most (see `ModelRelease.gap`); else None.
    """

    looks: tuple[Measurement | Selection, ...]
    model: Possible
    gap: float | None = None


@storable
@dataclass(frozen=True, eq=False, repr=False)
class ModelRelease:
    """Answers of a model that was fitted in several looks; everything here costs no further budget.

    `measurement` is all that crossed the wall, in order; publishable. Answers agree with each other and are none that
    counts could not give. They are biased towards what the model starts from and have no standard errors, for what was
    measured depends on the data; `low` and `high` of answers and tables are what is possible at all.

    `gap`, where the model is defined as an optimum ("mwem"): proved to bound half the summed squares of the differences
    between its answers to what was measured and those of the optimum, in units of the noise; None for other models.
    """

    plan: CoursePlan
    measurement: tuple[Measurement | Selection, ...]
    model: Possible
    provenance: Provenance
    part: str | None = None
    gap: float | None = later(None)

    @property
    def workload(self) -> Workload:
        """The queries that are answered (those of one part, for a part of a release)."""
        whole = self.plan.workload
        return whole if self.part is None else whole.parts[self.part]

    @property
    def total(self) -> int | None:
        """The number of records, where the neighbour relation makes it public."""
        measured = [m for m in self.measurement if isinstance(m, Measurement)]
        return measured[0].total if measured else None

    @functools.cached_property
    def answers(self) -> FloatArray:
        """(k,) answers in the order of the workload."""
        if len(self.workload) > _MAX_ANSWERS:
            raise PlanError(f"{len(self.workload):,} answers are too many for one array; take release.table()")
        return np.concatenate([self.model.answer(q.block) for q in self.workload.blocks])

    def standard_errors(self) -> None:
        """None: what was measured depends on the data, so errors have no law that is known."""
        return

    def __getitem__(self, part: str) -> ModelRelease:
        if part not in self.plan.workload.parts:
            raise NotAnswerable(f"no part is called {part!r}; there are {', '.join(self.plan.workload.parts)}")
        return replace(self, part=part)

    @property
    def parts(self) -> dict[str, ModelRelease]:
        """The named parts in order."""
        return {name: self[name] for name in self.workload.parts}

    def labels(self) -> list[str]:
        """One text per answer."""
        return self.workload.labels()

    def frame(self) -> Frame:
        """part, label, answer: one row per query."""
        parts = [i.part for i in self.workload.items for _ in range(i.rows)]
        return Frame({"part": parts, "label": self.labels(), "answer": self.answers.tolist()})

    # -- further questions ------------------------------------------------------------------------------

    def table(self, *attributes: str) -> Table:
        """The marginal table over the named attributes or levels, in the order given.

        Raises NotAnswerable for attributes that the model does not hold.
        """
        domain = self.plan.workload.domain
        block, sizes = table_block(domain, attributes), domain.sizes(attributes)
        values = self.model.answer(block).reshape(sizes)
        low, high = (np.broadcast_to(end, sizes) for end in self._reach(block))
        return Table(attributes, tuple(domain[n].labels for n in attributes), values, None, low, high, 1.0)

    def tables(self) -> Iterator[Table]:
        """Every marginal table of the workload, one at a time."""
        for query in self.workload.blocks:
            names = table_names(self.plan.workload.domain, query.block)
            if names is not None and query.unit == RECORDS:
                yield self.table(*names)

    def ask(self, question: str | Workload) -> Any:
        """Answer a further predicate (an Answer), or a workload (a Frame), from the model, at no cost.

        Raises NotAnswerable for attributes that the model does not hold.
        """
        domain = self.plan.workload.domain
        if isinstance(question, Workload):
            check_domain(domain, question)
            answers = np.concatenate([self.model.answer(q.block) for q in question.blocks])
            return Frame({"label": question.labels(), "answer": answers.tolist()})
        block = predicates(domain, [question]).blocks[0].block
        return Answer(float(self.model.answer(block)[0]), None, *self._reach(block))

    def _reach(self, block: Block) -> tuple[float, float]:
        return reach(block.operator, self.total)

    def synthetic(self, records: int | None = None) -> Synthetic:
        """Whole records, as many as the model has or `records`, with about its answers; at no cost.

        Over the attributes that the workload mentions. The same release gives the same records.
        """
        whole = replace(self, part=None)
        held = Projection(whole.answers, self.model, math.inf, False, 0.0, 0, "model", realisable=True)
        return drawn(held, self.plan.workload, records)

    # -- files and words ----------------------------------------------------------------------------------

    def save(self, folder: Any) -> None:
        """Write the release to a folder: release.json, answers.parquet, tables/, measurements.npz."""
        with Draft(folder) as draft:
            write_model(self, draft.partial)
            draft.publish()

    def explain(self) -> str:
        """What was released, under which guarantee, and where it stands in the ledger."""
        p = self.provenance
        where = (
            "one-shot account (no ledger): nothing remembers this spend"
            if p.one_shot
            else f"ledger {p.ledger_id}, entry {p.sequence}, anchor {p.anchor}"
        )
        chosen = sum(isinstance(m, Selection) for m in self.measurement)
        fitted = [] if self.gap is None else [f"  fitted     {_nearness(self.gap)}"]
        return "\n".join(
            [
                f"Release {p.name!r}: {len(self.workload):,} answers of a model, mechanism {self.plan.mechanism!r}",
                f"  guarantee  {self.plan.budget}",
                f"  protects   {self.plan.unit.describe()}",
                f"  looked     {len(self.measurement) - chosen:,} times for noisy values, {chosen:,} times to choose",
                *fitted,
                f"  recorded   {where}",
                "  answers have no standard errors: what was measured depends on the data",
            ]
        )

    def __str__(self) -> str:
        return self.explain()

    def __repr__(self) -> str:
        return f"<ModelRelease {self.provenance.name!r}: {len(self.workload):,} answers>"


def described(release: Release | ModelRelease) -> dict[str, Any]:
    """The public facts of a release of either kind as plain JSON values."""
    if isinstance(release, Release):
        return describe(release)
    fitted = {} if release.gap is None else {"model_gap": release.gap if math.isfinite(release.gap) else None}
    return describe_as(release.plan, release.provenance, {"post_processing": _PROCESSING, **fitted})


def _nearness(gap: float) -> str:
    """How far a model can be from the optimum that it stands for, in words."""
    return f"within {math.sqrt(2 * max(gap, 0.0)):.2g} standard deviations of the noise of the optimum, proved"


def write_model(release: ModelRelease, path: Path) -> None:
    """Write the files of a release into an empty folder; `release.json`, which names them, comes last."""
    facts = described(release)
    whole = replace(release, part=None)
    write_document(path / BUNDLE, whole)
    write_arrays(path / "measurements.npz", _looks(whole))
    if len(whole.workload) <= MAX_LISTED:
        parts = [i.part for i in whole.workload.items for _ in range(i.rows)]
        columns = {"part": safe_labels(parts), "label": safe_labels(whole.labels()), "answer": whole.answers}
        write_parquet(columns, path / "answers.parquet", facts)
        write_csvs(whole.plan.workload.domain, whole.workload, path / "tables", lambda names: _cells(whole, names))
    seal(path, facts)


def _looks(release: ModelRelease) -> dict[str, Any]:
    """Every look as arrays: values with the attributes they are over, or the number that was chosen."""
    arrays: dict[str, Any] = {}
    for i, look in enumerate(release.measurement):
        if isinstance(look, Selection):
            arrays[f"look_{i}_chosen"] = np.array([look.chosen, look.among])
            continue
        names = [b.attributes if isinstance(b, Block) else b.names for b in look.blocks]
        arrays[f"look_{i}_blocks"] = np.array(["*".join(n) or "total" for n in names], dtype=np.str_)
        for j, values in enumerate(look.values):
            arrays[f"look_{i}_values_{j}"] = values
    return arrays


def _cells(release: ModelRelease, names: tuple[str, ...]) -> dict[str, Any]:
    table = release.table(*names)
    return cell_columns(table) | {"answer": np.round(table.values, 6).reshape(-1)}
