"""A release's answers projected onto those of a possible table, weighted by the noise that the plan put on them."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.designs.marginals.residuals import Residuals
from sfumato.errors import InvalidInput, NotAnswerable, PlanError
from sfumato.estimate.bodies import BODIES, suits
from sfumato.estimate.bodies import project as project_answers
from sfumato.estimate.integers import to_integers
from sfumato.estimate.ladder.climb import allowed
from sfumato.estimate.local import ResidualNoise
from sfumato.estimate.possible import TableCounts
from sfumato.estimate.projection import Projection, joint_attributes, largest_tables
from sfumato.ground.progress import Progress
from sfumato.operators import Block, Combination, Dense, Family
from sfumato.operators.base import FloatArray
from sfumato.releases.bounding import levels_asked
from sfumato.releases.laddering import laddered
from sfumato.releases.placing import placed
from sfumato.releases.pooling import check_earlier, measured_pairs, measured_triples, noisy_table, residual_noise
from sfumato.releases.unprojected import held_queries, left_out
from sfumato.workloads import QueryBlock, QueryFamily, Workload
from sfumato.workloads.levels import table_block

if TYPE_CHECKING:
    from sfumato.releases.core import Release

__all__ = ["project"]


_LADDER = ("local", "cone", "hull")


def project(
    release: Release,
    body: str,
    space: str | None,
    total: float | None,
    progress: Progress | None,
    *,
    integer: bool,
    earlier: Release | None = None,
    folder: str | os.PathLike[str] | None = None,
    bounds: Mapping[Any, Any] | None = None,
) -> Release:
    """See `Release.project`."""
    if earlier is not None and body != "mixtures":
        raise PlanError(f"earlier= is for body='mixtures', which pools what both releases measured, not {body!r}")
    if space not in (None, "ladder", "answers", "measurements"):
        raise PlanError(f"space must be 'ladder', 'answers' or 'measurements', not {space!r}")
    whole = replace(release.raw, part=None)
    known = _total(whole.measurement.total, total)
    if body not in (*BODIES, "spine"):
        raise InvalidInput(f"body must be one of {', '.join((*BODIES, 'spine'))}, not {body!r}")
    if not isinstance(integer, bool):
        raise PlanError(f"integer is True or False, not {integer!r}")
    if integer and known is not None and known != int(known):
        raise PlanError(f"whole counts do not sum to {known!r}; give a whole total=")
    if body == "cone" and known is not None:
        raise PlanError(f"body='cone' allows any total, but here it is known to be {known:,}; take body='hull'")
    if space == "ladder" and body not in ("auto", *_LADDER):
        raise PlanError(f"space='ladder' is for body='auto', 'local', 'cone' and 'hull', not {body!r}")
    if body == "spine" or (body == "auto" and space is None and _is_placed(whole)):
        if space is not None:
            raise PlanError("body='spine' weights by the noise of what was measured; leave space= out")
        return replace(
            whole,
            projection=placed(whole, known, progress, integer=integer, folder=folder, bounds=bounds),
            part=release.part,
        )
    if folder is not None:
        raise PlanError("folder= keeps what body='spine' has finished, part by part; other bodies have no parts")
    if bounds is not None:
        raise PlanError("bounds= are of groups of a tree, and kept by body='spine' alone; leave them out")
    chosen = suits(whole.plan.workload, known, tables=True) if body == "auto" else body
    if chosen == "sdp" and body == "auto" and not _pairs_known(whole):
        chosen = "local"
    held = held_queries(whole) if chosen == "local" else whole.plan.workload
    if held is None:
        return replace(whole, projection=_nothing(whole), part=release.part)
    # what the body cannot hold keeps the answer that was measured
    some = whole if held is whole.plan.workload else replace(whole, plan=replace(whole.plan, workload=held))
    found = None
    if space == "ladder" or (space is None and _is_laddered(body, chosen)):
        found = _climbed(some, body, known, progress, asked=space == "ladder")
    if found is None:
        found = _projected(some, chosen, known, space, progress, earlier)
    if integer:
        found = to_integers(found, held, None if known is None else int(known))
    if some is not whole:
        found = _asked(whole, replace(found, left_out=left_out(whole, held)))
    return replace(whole, projection=found, part=release.part)


def _nothing(whole: Release) -> Projection:
    """A projection of a release of which no table was measured as a whole: every answer stays."""
    empty = TableCounts((), ())
    return Projection(
        whole.answers, empty, 0.0, True, 0.0, 0, "local", realisable=False, left_out=left_out(whole, None)
    )


def _pairs_known(whole: Release) -> bool:
    """Whether parities of pairs have noise each, which "sdp" weights them by: with what is public some have none."""
    spreads = [whole.variances(q.block) for q in whole.plan.workload.blocks]
    return all(math.isfinite(float(v.max())) and float(v.min()) > 0 for v in spreads)


def _is_placed(whole: Release) -> bool:
    return levels_asked(whole.plan.workload) is not None


def _is_laddered(body: str, chosen: str) -> bool:
    return body in _LADDER or (body == "auto" and chosen not in ("sdp", "isotonic"))


def _climbed(
    whole: Release, body: str, total: float | None, progress: Progress | None, *, asked: bool
) -> Projection | None:
    """The projection by the ladder; None where what it needs is too large or was not measured."""
    small = allowed(whole.plan.workload.domain.sizes(joint_attributes(whole.plan.workload)))
    if not small and body not in ("auto", "local"):
        return None
    try:
        return laddered(whole, total, progress, joint=small and body != "local")
    except NotAnswerable:
        if asked:
            raise
        return None


def _projected(
    whole: Release,
    body: str,
    total: float | None,
    space: str | None,
    progress: Progress | None,
    earlier: Release | None = None,
) -> Projection:
    """The nearest answers of one body, in the space that was asked for or that the body goes with."""
    if body == "mixtures":
        return _denoised(whole, earlier, total, space, progress)
    if body == "local":
        return _tables(whole, total, progress, weighted=space == "measurements")
    if body in ("sdp", "sdp+local"):
        return _pairs(whole, body, total, progress, weighted=space != "answers")
    if space == "measurements":
        return _measurements(whole, body, total, progress)
    return project_answers(whole.answers, whole.plan.workload, body=body, total=total, progress=progress)


def _total(public: int | None, given: float | None) -> float | None:
    if given is None:
        return public
    number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if not number or not math.isfinite(given) or given < 0:
        raise PlanError(f"total is the known number of records, not {given!r}")
    if public is None:
        return given
    if given != public:
        raise PlanError(f"total={given!r} differs from the public number of records, {public:,}; leave it out")
    return public


def _asked(whole: Release, found: Projection) -> Projection:
    """The projection with the answers to the plan's workload."""
    return replace(found, answers=replace(whole, projection=found).answers)


def _measurements(whole: Release, body: str, total: float | None, progress: Progress | None) -> Projection:
    """In the norm of what was measured: independent noise of one law."""
    measured = whole.measurement
    if any(isinstance(b, Combination) for b in measured.blocks):
        raise NotAnswerable("combinations of queries were measured, which are no tables; project with space='answers'")
    every = [
        b for h in measured.blocks for b in (h.blocks() if isinstance(h, Family) else (h,)) if isinstance(b, Block)
    ]
    work = Workload(whole.plan.workload.domain, tuple(QueryBlock("measured", b) for b in every))
    values = np.concatenate(measured.values).astype(np.float64)
    spread = np.full(len(values), measured.noise.variance)
    return _asked(whole, project_answers(values, work, body=body, covariance=spread, total=total, progress=progress))


def _tables(whole: Release, total: float | None, progress: Progress | None, *, weighted: bool) -> Projection:
    """The largest tables that the queries lie in, each by its own noise or all by that of their residuals.

    A total that is not known counts as one more table, as heavy as all cells together: nonnegativity would
    otherwise raise it cell by cell.
    """
    domain = whole.plan.workload.domain
    tables = [QueryBlock("tables", b) for b in largest_tables(whole.plan.workload)]
    names = {t.attributes for t in tables}
    every = sum(t.rows for t in tables)
    if total is None and not weighted and () not in names:
        tables.append(QueryBlock("tables", Block((), ())))
    work = Workload(domain, tuple(tables))
    try:
        values = np.concatenate([whole.answer_block(q.block) for q in work.blocks])
        spread = _noise(whole, work, every, weighted=weighted)
    except NotAnswerable as reason:
        raise NotAnswerable(f"body='local' needs whole tables, and not all were measured: {reason}") from reason
    return _asked(whole, project_answers(values, work, body="local", covariance=spread, total=total, progress=progress))


def _denoised(
    whole: Release, earlier: Release | None, total: float | None, space: str | None, progress: Progress | None
) -> Projection:
    """Pairs and triples that were measured inside the tables asked, attributes without one, the noise of residuals."""
    if space == "answers":
        raise PlanError("body='mixtures' weights by the noise of what was measured; leave space= out")
    if earlier is not None:
        check_earlier(whole, earlier)
    releases = [whole] if earlier is None else [whole, earlier.raw]
    domain = whole.plan.workload.domain
    places = [domain.axis(a) for a in joint_attributes(whole.plan.workload)]
    pairs = dict.fromkeys(p for r in releases for p in measured_pairs(r, places))
    triples = dict.fromkeys(t for r in releases for t in measured_triples(r))
    held = [*((i,) for i in places if not any(i in p for p in pairs)), *pairs, *triples]
    blocks = [table_block(domain, tuple(domain.names[i] for i in axes)) for axes in held]
    work = Workload(domain, tuple(QueryBlock("tables", b) for b in blocks))
    if earlier is None:
        values = np.concatenate([whole.answer_block(b) for b in blocks])
    else:
        values = np.concatenate([noisy_table(releases, axes).reshape(-1) for axes in held])
    spread = residual_noise(releases, places)
    return _asked(
        whole, project_answers(values, work, body="mixtures", covariance=spread, total=total, progress=progress)
    )


def _noise(whole: Release, work: Workload, cells: int, *, weighted: bool) -> ResidualNoise | FloatArray:
    """The noise of the residuals where these are asked for, independent and alike, else that of every table."""
    strategy = whole.plan.strategy
    tilted = isinstance(strategy, Residuals) and any(c is not None for c in strategy.contrasts)
    if not weighted or not isinstance(strategy, Residuals) or strategy.known or tilted:
        # of a table with one possible cell and a known total all is known, whatever it weighs
        each = [float(whole.variances(q.block).mean()) / (1 if q.attributes else cells) or 1.0 for q in work.blocks]
        return np.repeat(each, [q.rows for q in work.blocks])
    domain = whole.plan.workload.domain
    return residual_noise([whole], [domain.axis(a) for a in joint_attributes(work)])


def _pairs(whole: Release, body: str, total: float | None, progress: Progress | None, *, weighted: bool) -> Projection:
    """Parities of one and two attributes; their noise is that of the plan."""
    workload = whole.plan.workload
    if not weighted:
        return project_answers(whole.answers, workload, body=body, total=total, progress=progress)
    domain = workload.domain
    sets = {tuple(domain.axis(a) for a in domain.ordered(q.attributes)) for q in workload.blocks}
    every = {()} | {tuple(x for x in s if x != left) for s in sets for left in (None, *s)}
    sign = Dense(np.array([[-1, 1]]))
    items: list[QueryBlock | QueryFamily] = []
    for order in (1, 2):
        rows = sorted(s for s in every if len(s) == order)
        if rows:
            family = Family(domain.names, (sign,) * len(domain.names), np.array(rows, dtype=np.int32))
            items.append(QueryFamily("parities", family))
    work = Workload(domain, tuple(items))
    values = np.concatenate([whole.answer_block(q.block) for q in work.blocks])
    spread = np.concatenate([whole.variances(q.block).reshape(-1) for q in work.blocks])
    if float(spread.min()) <= 0 or not math.isfinite(float(spread.max())):
        raise PlanError("some parities were not measured with noise; project with space='answers'")
    return _asked(whole, project_answers(values, work, body=body, covariance=spread, total=total, progress=progress))
