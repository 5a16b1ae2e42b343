"""What every release is: what came out under a plan, told in words, stored; everything asked of it is free."""

from __future__ import annotations

import datetime
import functools
import math
import os
import platform
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from sfumato._util.codec import deferred_field, storable, value_fingerprint
from sfumato._util.description import Describable, DescriptionBlock, Facts, TitledTable
from sfumato._util.documents import write_document
from sfumato._util.frames import Frame, safe_text
from sfumato.errors import InvalidInput, NotAnswerable
from sfumato.operators import Block
from sfumato.operators.base import FloatArray
from sfumato.plans.explain import error_text
from sfumato.plans.planned import protection_lines
from sfumato.plans.predictions import check_domain
from sfumato.privacy.accounting import ApproxEvent, Event, PureEvent, ZcdpEvent
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger import Entry, Ledger, Receipt
from sfumato.releases.files import Contents, safe_labels, save_release
from sfumato.releases.linear import value_sum_bounds
from sfumato.workloads import RECORDS, QueryBlock, Workload, predicates
from sfumato.workloads.levels import table_names

if TYPE_CHECKING:
    from sfumato.postprocess.projection import Projection
    from sfumato.releases.release import Release

Versions = tuple[tuple[str, str], ...]


@storable
@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a release stands: its name, its ledger entry, what made it, and the public name of its table, if given.

    features: what several rows tell of a person, by the names of the columns that were made of them (`sf.per_person`).
    """

    name: str
    ledger_id: str
    sequence: int
    anchor: str
    one_shot: bool
    created: str
    versions: Versions
    snapshot: str | None = None
    table: str | None = deferred_field(None)
    features: tuple[tuple[str, str], ...] = deferred_field(())

    def __post_init__(self) -> None:
        if any(len(pair) != 2 for pair in self.versions):
            raise InvalidInput(f"versions are pairs of a package and its version; given {self.versions!r}")
        if any(len(pair) != 2 for pair in self.features):
            raise InvalidInput(f"features are pairs of a column and its expression; given {self.features!r}")

    @property
    def where(self) -> str:
        """The ledger entry in words."""
        if self.one_shot:
            return "one-shot account (no ledger): nothing remembers this spend"
        return f"ledger {self.ledger_id}, entry {self.sequence}, anchor {self.anchor}"


@functools.cache
def package_versions() -> Versions:
    """What makes releases here, for as long as this process lives: to look takes as long as a small release."""
    packages = ("sfumato", "numpy", "scipy", "duckdb")
    return (("python", platform.python_version()), *((p, metadata.version(p)) for p in packages))


def earlier_receipt(account: Ledger, entry: Entry, anchor: str) -> Receipt:
    """The receipt of an entry that was debited earlier."""
    return Receipt(entry.sequence, anchor, account.ledger_id, entry.name, entry.price, account.currency)


def make_provenance(
    receipt: Receipt,
    account: Ledger,
    made_by: Versions,
    *,
    created: str | None = None,
    snapshot: str | None = None,
    table: str | None = None,
    features: tuple[tuple[str, str], ...] = (),
) -> Provenance:
    """The provenance of what a receipt paid for; made now, unless it says when."""
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds") if created is None else created
    ours = (receipt.name, receipt.ledger_id, receipt.sequence, receipt.anchor, not account.durable)
    return Provenance(*ours, when, made_by, snapshot, table, features)


_READ = 20  # answers of a part that are printed with it: what a frame prints without leaving any out


class ReleaseBase(Describable):
    """What came out under a plan: publishable, and all that is asked of it costs no further budget. Frozen, storable.

    A kind that derives has its `plan`, what came out, and what that answers.
    """

    outcome: ClassVar[str] = "measurement"
    """The field with all that came out."""

    plan: Any

    def agree(self) -> None:
        """Check that the release does not contradict itself, as a damaged file could.

        Raises:
            PlanError: Its plan contradicts itself.
            InvalidInput: What was measured is not what the plan describes.
        """
        self.plan.agree()

    @functools.cached_property
    def result_hash(self) -> str:
        """SHA-256 of everything that was measured."""
        return value_fingerprint(getattr(self, self.outcome))

    def save(self, path: str | PathLike[str]) -> None:
        """Write it to one file (no pickle), which may be published and which `sf.load` reads.

        Args:
            path: The file.

        Raises:
            OSError: The file cannot be written.
        """
        write_document(path, self)


class WorkloadRelease(ReleaseBase):
    """Answers to the queries of a plan, or of one `part` of them, and to further questions."""

    errors_known: ClassVar[bool] = True
    """Whether answers have standard errors and intervals."""

    provenance: Provenance
    part: str | None

    @abstractmethod
    def with_errors(self) -> Release:
        """The release as one whose errors are known.

        Returns:
            The release itself.

        Raises:
            InvalidInput: Its answers are those of a model, whose errors are not known.
        """

    @property
    def workload(self) -> Workload:
        """The queries that are answered (those of one part, for a part of a release)."""
        whole: Workload = self.plan.workload
        return whole if self.part is None else whole.parts[self.part]

    @functools.cached_property
    def answers(self) -> FloatArray:
        """(k,) answers in the order of the workload.

        Raises:
            PlanError: There are more than 200 million answers, or too many in one table; take `batches()` or `table()`.
        """
        return self._answers()

    @abstractmethod
    def _answers(self) -> FloatArray:
        """(k,) what `answers` holds from then on."""

    @abstractmethod
    def answer_block(self, block: Block) -> FloatArray:
        """Answers to any block of queries in the span of what was measured.

        Args:
            block: Queries over a marginal table, as the `blocks` of a workload hold them.

        Returns:
            (rows,) answers: unbiased ones, or those of the projection or model.

        Raises:
            NotAnswerable: The block lies outside the span of what was measured.
        """

    def __getitem__(self, part: str) -> Self:
        if part not in self.plan.workload.parts:
            raise NotAnswerable(f"no part is called {part!r}; there are {', '.join(self.plan.workload.parts)}")
        return replace(self, part=part)  # type: ignore[type-var]  (every kind is a dataclass)

    @property
    def parts(self) -> dict[str, Self]:
        """The named parts in order."""
        return {name: self[name] for name in self.workload.parts}

    def labels(self) -> list[str]:
        """The labels of all answers.

        Returns:
            One text per answer, in order.

        Raises:
            WorkloadError: There are more than 20 million queries.
        """
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
        """Answer a further predicate or workload from what was measured, at no cost.

        Args:
            question: A predicate such as "age >= 65", or a workload over some of the attributes.
            *how: Further arguments of the kind of release, such as the confidence.
            **options: The same by name.

        Returns:
            An Answer to a predicate, a Frame of one row per query for a workload.

        Raises:
            NotAnswerable: The question lies outside the span of what was measured.
            PlanError: The workload is over another domain.
        """

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

        The folder appears at once and complete, or not at all. Above ten million answers only the measurements and the
        JSON are written.

        Args:
            path: The folder, which may not exist or must be empty.

        Raises:
            InvalidInput: The folder cannot be written.
        """
        save_release(self, path)

    @abstractmethod
    def _processing(self) -> dict[str, Any]:
        """What was done with what came out, as plain JSON values."""

    def facts(self) -> dict[str, Any]:
        """The public facts of the release: those of its plan, its name, ledger entry, hashes and versions.

        Returns:
            Plain JSON values, as release.json holds them.
        """
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
            **({"features": dict(p.features)} if p.features else {}),
            **self._processing(),
            "versions": dict(p.versions),
        }

    @abstractmethod
    def contents(self, folder: Path) -> Contents:
        """What a stored folder of the release holds.

        Args:
            folder: The folder.

        Returns:
            Its arrays and tables, ready to be written.
        """

    def _columns(self) -> dict[str, Any]:
        """The first columns of answers.parquet, one row per query."""
        parts = [(safe_text(i.part), i.rows) for i in self.workload.items]
        named = np.repeat(np.array([p for p, _ in parts], dtype=object), [n for _, n in parts])
        return {"part": named, "label": safe_labels(self.labels()), "answer": self.answers}

    # -- words ------------------------------------------------------------------------------------------

    @abstractmethod
    def frame(self) -> Frame:
        """The answers as a frame.

        Returns:
            One row per query.
        """

    def _part_answers(self) -> Iterator[DescriptionBlock]:
        """The answers themselves, of a part that is short."""
        if self.part is None:
            return
        if len(self.workload) <= _READ:
            yield TitledTable("", self.frame())
        else:
            yield Facts([("", f"{len(self.workload):,} answers: frame() has them, table(...) those of a table")])

    def _standing(self, *found: tuple[str, str]) -> Iterator[tuple[str, str]]:
        """What is guaranteed, what was found, and where that is recorded."""
        yield "guarantee", str(self.plan.budget)
        yield from protection_lines(self.plan.unit, self.plan.whole_price)
        yield from found
        yield "recorded", self.provenance.where

    def brief(self) -> str:
        return f"{self.provenance.name!r}: {len(self.workload):,} answers"


def as_ledger(ledger: object) -> Ledger | None:
    """The ledger that is meant; None for an explicit one-shot account. Raises InvalidInput for anything else."""
    if ledger is None or isinstance(ledger, Ledger):
        return ledger
    if isinstance(ledger, (str, os.PathLike)):
        return Ledger(ledger)
    raise InvalidInput(f"ledger is a path, an sf.Ledger, or None for an explicit one-shot account, not {ledger!r}")


def one_shot_account(price: Event, budget: Budget) -> Ledger:
    """An account in memory whose total a price just fits, in the price's own currency."""
    match price:
        case ApproxEvent():
            return Ledger.in_memory(budget, "epsilon")
        case PureEvent(epsilon=epsilon):
            return Ledger.in_memory(Budget.pure(epsilon))
        case ZcdpEvent(rho=rho):
            return Ledger.in_memory(Budget.zcdp(rho))
        case _:
            return Ledger.in_memory(budget)


def release_headline(release: Release) -> str:
    """How many answers, how far off."""
    p, plan = release.provenance, release.plan
    error = error_text(plan) if plan.forecast is None else f"{plan.forecast.raw:,.4g} {plan.main_unit}"
    before = "" if release.projection is None else ", before projection"
    of = " of counted rows" if plan.unit.person is not None else ""
    return f"Release {p.name!r}: {len(release.workload):,} answers{of}, rmse {error}{before}"


def reading_sentence(release: Release) -> str:
    """How to read its answers, in one sentence."""
    if release.projection is not None:
        return f"answers are projected: {release.projection.describe()}"
    records, total = release.plan.bias_records, release.measurement.total
    if records is None:
        of = ", of the rows that are counted" if release.plan.unit.person is not None else ""
        return f"answers are unbiased{of}: small counts may come out negative{_sums_sentence(release)}"
    more = f"; it holds {total:,}, so here they do not" if total is not None and total > records else ""
    return f"answers are biased; intervals hold for tables of at most {records:,} records{more}"


def _sums_sentence(release: Release) -> str:
    """What the intervals of sums of middles hold, and which have none."""
    asked = [i for i in release.workload.items if isinstance(i, QueryBlock) and i.unit != RECORDS]
    found = [(i, r) for i in asked if (r := value_sum_bounds(release, i)) is not None]
    if not found:
        return ""
    blank = sorted({safe_text(i.unit) for i, r in found if None in r})
    text = "; a sum counts the middles of cells, and its interval holds the sum of the values themselves"
    if not blank:
        return text
    return f"{text}; of {', '.join(blank)} no interval is known: ask besides for its table, which bounds the sum"


def processing_facts(release: Release) -> dict[str, Any]:
    """What was done with the measured values, in words, and what a projection did, as plain JSON values."""
    unbiased = release.plan.bias_records is None
    how = "least squares" if unbiased else "linear"
    if release.projection is None:
        return {"post_processing": f"{how}; answers are {'unbiased and ' if unbiased else ''}not rounded or clipped"}
    done = (
        f"{how}, then projected {release.projection.describe()}; errors stated are those of the unprojected "
        "answers, which stand beside the projected ones; intervals hold for these"
    )
    return {"post_processing": done, "projection": _projection_facts(release.projection)}


def _projection_facts(found: Projection) -> dict[str, Any]:
    """What a projection did and what is proved of it."""
    return {
        "body": found.body,
        "norm": found.norm,
        "moved": found.moved,
        "gap": found.gap if math.isfinite(found.gap) else None,
        "certified": found.certified,
        "realisable": found.realisable,
        "rounded": found.rounded,
        "iterations": found.iterations,
        "rungs": [{"name": r.name, "queries": r.queries, "moved": r.moved, "gap": r.gap} for r in found.rungs],
    } | ({"left_out": list(found.left_out)} if found.left_out else {})
