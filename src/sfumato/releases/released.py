"""What every release is: what came out under a plan, told in words, stored; everything asked of it is free."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from sfumato.errors import NotAnswerable
from sfumato.ground.codec import fingerprint
from sfumato.ground.documents import write_document
from sfumato.ground.frames import Frame, safe_text
from sfumato.ground.telling import Told
from sfumato.operators import Block
from sfumato.operators.base import FloatArray
from sfumato.plans.covariances import check_domain
from sfumato.plans.planned import protected
from sfumato.releases.files import Contents, save_release
from sfumato.releases.provenance import Provenance
from sfumato.releases.writing import safe_labels
from sfumato.workloads import RECORDS, Workload, predicates
from sfumato.workloads.levels import table_names

if TYPE_CHECKING:
    from sfumato.releases.core import Release

__all__ = ["Released", "WorkloadRelease"]

_READ = 20  # answers of a part that are printed with it: what a frame prints without leaving any out


class Released(Told):
    """What came out under a plan: publishable, and all that is asked of it costs no further budget. Frozen, storable.

    A kind that derives has its `plan`, what came out, and what that answers.
    """

    outcome: ClassVar[str] = "measurement"
    """The field with all that came out."""

    plan: Any

    def agree(self) -> None:
        """Raise an error of the library where what a file says contradicts itself."""
        self.plan.agree()

    @functools.cached_property
    def result_hash(self) -> str:
        """SHA-256 of all that came out."""
        return fingerprint(getattr(self, self.outcome))

    def save(self, path: str | PathLike[str]) -> None:
        """Write it to one file (no pickle), which may be published."""
        write_document(path, self)


class WorkloadRelease(Released):
    """Answers to the queries of a plan, or of one `part` of them, and to further questions."""

    errors_known: ClassVar[bool] = True
    """Whether answers have standard errors and intervals."""

    provenance: Provenance
    part: str | None

    @abstractmethod
    def with_errors(self) -> Release:
        """This release, as one whose errors are known. Raises InvalidInput for one of a model."""

    @property
    def workload(self) -> Workload:
        """The queries that are answered (those of one part, for a part of a release)."""
        whole: Workload = self.plan.workload
        return whole if self.part is None else whole.parts[self.part]

    @functools.cached_property
    def answers(self) -> FloatArray:
        """(k,) answers in the order of the workload. Above 200 million take `batches()` or `table()`."""
        return self._answers()

    @abstractmethod
    def _answers(self) -> FloatArray:
        """(k,) what `answers` holds from then on."""

    @abstractmethod
    def answer_block(self, block: Block) -> FloatArray:
        """Answers to a block of queries, (rows,)."""

    def __getitem__(self, part: str) -> Self:
        if part not in self.plan.workload.parts:
            raise NotAnswerable(f"no part is called {part!r}; there are {', '.join(self.plan.workload.parts)}")
        return replace(self, part=part)  # type: ignore[type-var]  (every kind is a dataclass)

    @property
    def parts(self) -> dict[str, Self]:
        """The named parts in order."""
        return {name: self[name] for name in self.workload.parts}

    def labels(self) -> list[str]:
        """One text per answer."""
        return self.workload.labels()

    def _asked_tables(self) -> Iterator[tuple[str, ...]]:
        """The names of every marginal table of the workload."""
        for item in self.workload.items:
            for query in item.blocks():
                names = table_names(self.workload.domain, query.block)
                if names is not None and item.unit == RECORDS:
                    yield names

    def _check_table(self, attributes: tuple[str, ...]) -> None:
        """Refuse a table of no attributes of a part that asked for none: its total would be taken for its answers."""
        if attributes or self.part is None:
            return
        asked = list(self._asked_tables())
        if () not in asked:
            near = next(iter(asked), None)
            instead = f"; name attributes, as in table({', '.join(map(repr, near))})" if near else ""
            raise NotAnswerable(
                f"the part {self.part!r} has no number of records of its own{instead}; frame() has its answers, and "
                "table() of the whole release the number of records"
            )

    @abstractmethod
    def ask(self, question: str | Workload, *how: Any, **options: Any) -> Any:
        """Answer a further predicate, or a workload."""

    def _question(self, asked: str | Workload) -> Workload:
        """A further question as a workload. Raises PlanError for one over another domain."""
        domain = self.plan.workload.domain
        if not isinstance(asked, Workload):
            return predicates(domain, [asked])
        check_domain(domain, asked)
        return asked

    # -- files ------------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write the release to a folder: release.json, answers.parquet, tables/, parts/, measurements.npz.

        It appears at once and complete, or not at all. Above ten million answers only the measurements and the JSON are
        written. Raises InvalidInput for a folder that cannot be written.
        """
        save_release(self, path)

    @abstractmethod
    def _processing(self) -> dict[str, Any]:
        """What was done with what came out, as plain JSON values."""

    def facts(self) -> dict[str, Any]:
        """The public facts as plain JSON values."""
        p, (k, m) = self.provenance, self.plan.workload.shape
        known = self.plan.facts()
        known["mechanism"] |= {
            "sampler": "exact integer law from the operating system's generator; no seed",
            "trust_model": "central: the custodian holds the table",
        }
        parts = {n: len(w) for n, w in self.plan.workload.parts.items()}
        return {
            "format": "sfumato release 1",
            "name": p.name,
            "created": p.created,
            **known,
            "workload": {"queries": k, "cells": str(m), "parts": parts},
            "ledger": {"one_shot": p.one_shot, "id": p.ledger_id, "sequence": p.sequence, "anchor": p.anchor},
            "table": p.table,
            "snapshot": p.snapshot,
            **self._processing(),
            "versions": dict(p.versions),
        }

    @abstractmethod
    def contents(self, folder: Path) -> Contents:
        """What a folder of it holds."""

    def _columns(self) -> dict[str, Any]:
        """The first columns of answers.parquet, one row per query."""
        parts = [(safe_text(i.part), i.rows) for i in self.workload.items]
        named = np.repeat(np.array([p for p, _ in parts], dtype=object), [n for _, n in parts])
        return {"part": named, "label": safe_labels(self.labels()), "answer": self.answers}

    # -- words ------------------------------------------------------------------------------------------

    @abstractmethod
    def frame(self) -> Frame:
        """One row per query."""

    def appended(self) -> Iterator[str]:
        """The answers themselves, of a part that is short."""
        if self.part is None:
            return
        if len(self.workload) <= _READ:
            yield from ("", str(self.frame()))
        else:
            yield f"  {len(self.workload):,} answers: frame() has them, table(...) those of a table"

    def _standing(self, *found: tuple[str, str]) -> Iterator[tuple[str, str]]:
        """What is guaranteed, what was found, and where that is recorded."""
        yield "guarantee", str(self.plan.budget)
        yield from protected(self.plan.unit, self.plan.price)
        yield from found
        yield "recorded", self.provenance.where

    def brief(self) -> str:
        return f"{self.provenance.name!r}: {len(self.workload):,} answers"
