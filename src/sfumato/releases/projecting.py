"""A release's answers projected onto those of a possible table, weighted by the noise that the plan put on them."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato._util.display import Progress
from sfumato.errors import InvalidInput, NotAnswerable, PlanError
from sfumato.operators import Block, Combination, Dense, Family, Identity, LinearOperator
from sfumato.operators.base import FloatArray
from sfumato.postprocess.bodies import BODIES, automatic_body
from sfumato.postprocess.bodies import project as project_answers
from sfumato.postprocess.consistency import ResidualNoise
from sfumato.postprocess.hierarchical_rungs import LISTED, Axes, DerivedQueries, NoisyEstimates
from sfumato.postprocess.hierarchical_tables import is_joint_table_small, project_hierarchically
from sfumato.postprocess.integers import to_integers
from sfumato.postprocess.possible import TableCounts
from sfumato.postprocess.projection import Projection, joint_attributes, largest_tables
from sfumato.postprocess.values import project_values
from sfumato.releases.comparing import check_earlier, measured_pairs, measured_triples, noisy_table, residual_noise
from sfumato.releases.geography import levels_asked, project_down_tree
from sfumato.releases.modelled import held_queries, unheld_queries
from sfumato.strategies.residuals import Residuals
from sfumato.workloads import QueryBlock, QueryFamily, Workload
from sfumato.workloads.levels import table_block

if TYPE_CHECKING:
    from sfumato.releases.release import Release

_ENTRIES = 2**22  # of a map of queries by cells that is written out
_LEAST = 1e-6  # share of a table's variance that is its own at least: strategies of several pieces need not agree
_PSEUDO = 1e-12  # of the largest eigenvalue: below it, rounding of a matrix of some thousand rows


def project_by_hierarchy(whole: Release, total: float | None, progress: Progress | None, *, joint: bool) -> Projection:
    """The projection of a release by the ladder. Raises NotAnswerable where a table that it needs was not measured."""
    said = noisy_estimates(whole, total, joint=joint)
    done = project_hierarchically(said, joint=joint, progress=progress)
    work = whole.plan.workload
    answers = np.concatenate([done.possible.answer(q.block) for q in work.blocks])
    name = ("cone" if total is None else "hull") if joint else "local"
    whole_table = joint or len(largest_tables(work)) == 1
    return Projection(
        answers,
        done.possible,
        done.gap,
        True,
        done.moved,
        done.iterations,
        name,
        whole_table,
        norm="ladder",
        rungs=done.rungs,
    )


def noisy_estimates(whole: Release, total: float | None, *, joint: bool) -> NoisyEstimates:
    """The unprojected answers to all tables that the queries lie in, and to what else was asked of these.

    joint: tables that were not measured may be left out; the total and every attribute may not. Raises NotAnswerable.
    """
    work = whole.plan.workload
    domain, names = work.domain, joint_attributes(work)
    place = {a: i for i, a in enumerate(names)}
    sizes = domain.sizes(names)
    tables: dict[Axes, FloatArray] = {}
    variances: dict[Axes, float] = {}
    for axes in _sets_within_tables(work, place):
        block = table_block(domain, tuple(names[i] for i in axes))
        try:
            tables[axes] = whole.answer_block(block).reshape([sizes[i] for i in axes])
            variances[axes] = float(whole.variances(block).mean())
        except NotAnswerable as reason:
            if axes == () and total is not None:
                tables[axes], variances[axes] = np.array(total), 0.0
            elif not joint or len(axes) < 2:
                raise NotAnswerable(f"projecting needs whole tables, and not all were measured: {reason}") from reason
    spread = {s: _own_variance(s, sizes, variances) for s in tables if all(b in tables for b in _all_subsets(s))}
    tables = {s: t for s, t in tables.items() if s in spread}
    asked = tuple(_derived_queries(whole, place))

    def possible(axes: Axes) -> NDArray[np.bool_] | None:
        return domain.possible([names[i] for i in axes])

    return NoisyEstimates(
        names, sizes, tables, variances, spread, asked, None if total is None else float(total), possible
    )


def _sets_within_tables(work: Workload, place: dict[str, int]) -> list[Axes]:
    """Every set of attributes within a table that the queries lie in, smaller ones first."""
    found = {s for b in largest_tables(work) for s in _all_subsets(tuple(sorted(place[a] for a in b.attributes)))}
    return sorted(found | {(), *((i,) for i in place.values())}, key=lambda s: (len(s), s))


def _all_subsets(axes: Axes) -> Iterator[Axes]:
    return (c for r in range(len(axes) + 1) for c in itertools.combinations(axes, r))


def _own_variance(axes: Axes, sizes: tuple[int, ...], variances: dict[Axes, float]) -> float:
    """The variance of what a table's cells have beyond their means along every attribute.

    A cell's variance is the sum over smaller sets of theirs, each spread over the cells of the rest.
    """
    own = 0.0
    for s in _all_subsets(axes):
        rest = math.prod(sizes[i] for i in axes if i not in s)
        own += (-1) ** (len(axes) - len(s)) * variances[s] / rest**2
    room = math.prod(1 - 1 / sizes[i] for i in axes)
    return max(own / room if room > 0 else 0.0, _LEAST * variances[axes]) or 1.0


def _derived_queries(whole: Release, place: dict[str, int]) -> Iterator[DerivedQueries]:
    """Queries that are no cells, and the same over single attributes where they were asked by groups of others."""
    seen: set[tuple[str, ...]] = set()
    for q in whole.plan.workload.blocks:
        if all(isinstance(f, Identity) for f in q.block.factors):
            continue
        yield from _derived_query(whole, q, q.block, place)
        kept = [(g, f) for g, f in zip(q.block.groups, q.block.factors, strict=True) if not isinstance(f, Identity)]
        alone = Block(tuple(g for g, _ in kept), tuple(f for _, f in kept))
        name = (q.part, *alone.attributes)
        if len(alone.attributes) == 1 < len(q.attributes) and name not in seen:
            seen.add(name)
            yield from _derived_query(whole, q, alone, place)


def _derived_query(whole: Release, query: QueryBlock, block: Block, place: dict[str, int]) -> Iterator[DerivedQueries]:
    """A block as it is asked of a table's cells; none where it is too large to be written out."""
    operator, names = block.operator, block.attributes
    count, cells = operator.shape
    if not names or (cells > LISTED and count * cells > _ENTRIES) or count > _ENTRIES:
        return
    domain = whole.plan.workload.domain
    values = whole.answer_block(block)
    shape = tuple(f.shape[0] for f in block.factors)
    variances = np.broadcast_to(whole.variances(block), shape).reshape(-1)
    if count > cells:
        rows, values, variances = _compress_rows(operator, values, variances)
    else:
        rows = np.asarray(operator.dense(), dtype=np.float64)
    order = sorted(range(len(names)), key=lambda i: place[names[i]])
    turned = rows.reshape(len(rows), *domain.sizes(names)).transpose(0, *(1 + i for i in order))
    yield DerivedQueries(query.part, tuple(place[names[i]] for i in order), turned, values, variances)


def _compress_rows(
    operator: LinearOperator, values: FloatArray, variances: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """As many rows as cells at most that weigh every table as all queries do, with their values, of variance 1."""
    weights = 1 / np.maximum(variances, _LEAST * float(variances.max()) or 1.0)
    cells = operator.shape[1]
    gram, right = np.zeros((cells, cells)), np.zeros(cells)
    for a, b in operator.row_chunks():
        rows = np.asarray(operator.rows(a, b), dtype=np.float64)
        gram += (rows.T * weights[a:b]) @ rows
        right += rows.T @ (weights[a:b] * values[a:b])
    found, vectors = np.linalg.eigh(gram)
    held = found > _PSEUDO * max(float(found[-1]), 0.0)
    root = np.sqrt(found[held])
    return vectors[:, held].T * root[:, None], (vectors[:, held].T @ right) / root, np.ones(int(held.sum()))


_LADDER = ("local", "cone", "hull")


def project_release(
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
    known = _check_total(whole.measurement.total, total)
    if body not in (*BODIES, "spine"):
        raise InvalidInput(f"body must be one of {', '.join((*BODIES, 'spine'))}, not {body!r}")
    if not isinstance(integer, bool):
        raise PlanError(f"integer is True or False, not {integer!r}")
    if integer and known is not None and known != int(known):
        raise PlanError(f"whole counts do not sum to {known!r}; give a whole total=")
    if body == "cone" and known is not None:
        raise PlanError(f"body='cone' allows any total, but here it is known to be {known:,}; take body='hull'")
    if release.plan.workload.measures:
        if space is not None or folder is not None or bounds is not None:
            raise PlanError(
                "sums of measures are projected by records with values, each answer weighed by its own error; leave "
                "space=, folder= and bounds= out"
            )
        return replace(whole, projection=_project_sums(whole, body, known, progress, integer), part=release.part)
    if space == "ladder" and body not in ("auto", *_LADDER):
        raise PlanError(f"space='ladder' is for body='auto', 'local', 'cone' and 'hull', not {body!r}")
    if body == "spine" or (body == "auto" and space is None and _is_placed(whole)):
        if space is not None:
            raise PlanError("body='spine' weights by the noise of what was measured; leave space= out")
        return replace(
            whole,
            projection=project_down_tree(whole, known, progress, integer=integer, folder=folder, bounds=bounds),
            part=release.part,
        )
    if folder is not None:
        raise PlanError("folder= keeps what body='spine' has finished, part by part; other bodies have no parts")
    if bounds is not None:
        raise PlanError("bounds= are of groups of a tree, and kept by body='spine' alone; leave them out")
    chosen = automatic_body(whole.plan.workload, known, tables=True) if body == "auto" else body
    if chosen == "sdp" and body == "auto" and not _pairs_have_noise(whole):
        chosen = "local"
    held = held_queries(whole) if chosen == "local" else whole.plan.workload
    if held is None:
        return replace(whole, projection=_null_projection(whole), part=release.part)
    # what the body cannot hold keeps the answer that was measured
    some = whole if held is whole.plan.workload else replace(whole, plan=replace(whole.plan, workload=held))
    found = None
    if space == "ladder" or (space is None and _uses_hierarchy(body, chosen)):
        found = _try_hierarchy(some, body, known, progress, asked=space == "ladder")
    if found is None:
        found = _project_body(some, chosen, known, space, progress, earlier)
    if integer:
        found = to_integers(found, held, None if known is None else int(known))
    if some is not whole:
        found = _with_workload_answers(whole, replace(found, left_out=unheld_queries(whole, held)))
    return replace(whole, projection=found, part=release.part)


def _project_sums(
    whole: Release, body: str, total: float | None, progress: Progress | None, integer: bool
) -> Projection:
    """Of sums of measures, and counts beside them: answers that records with values in the declared ranges have."""
    work = whole.plan.workload
    spread = [
        np.broadcast_to(whole.variances(q.block), [f.shape[0] for f in q.block.factors]).reshape(-1)
        for q in work.blocks
    ]
    found, table = project_values(work, whole.answers, np.concatenate(spread), total, body=body, progress=progress)
    if integer:
        found = to_integers(found, table.asked, None if total is None else int(total))
    return table.restored(found)


def _null_projection(whole: Release) -> Projection:
    """A projection of a release of which no table was measured as a whole: every answer stays."""
    empty = TableCounts((), ())
    return Projection(
        whole.answers, empty, 0.0, True, 0.0, 0, "local", realisable=False, left_out=unheld_queries(whole, None)
    )


def _pairs_have_noise(whole: Release) -> bool:
    """Whether parities of pairs have noise each, which "sdp" weights them by: with what is public some have none."""
    spreads = [whole.variances(q.block) for q in whole.plan.workload.blocks]
    return all(math.isfinite(float(v.max())) and float(v.min()) > 0 for v in spreads)


def _is_placed(whole: Release) -> bool:
    return levels_asked(whole.plan.workload) is not None


def _uses_hierarchy(body: str, chosen: str) -> bool:
    return body in _LADDER or (body == "auto" and chosen not in ("sdp", "isotonic"))


def _try_hierarchy(
    whole: Release, body: str, total: float | None, progress: Progress | None, *, asked: bool
) -> Projection | None:
    """The projection by the ladder; None where what it needs is too large or was not measured."""
    small = is_joint_table_small(whole.plan.workload.domain.sizes(joint_attributes(whole.plan.workload)))
    if not small and body not in ("auto", "local"):
        return None
    try:
        return project_by_hierarchy(whole, total, progress, joint=small and body != "local")
    except NotAnswerable:
        if asked:
            raise
        return None


def _project_body(
    whole: Release,
    body: str,
    total: float | None,
    space: str | None,
    progress: Progress | None,
    earlier: Release | None = None,
) -> Projection:
    """The nearest answers of one body, in the space that was asked for or that the body goes with."""
    if body == "mixtures":
        return _project_denoised(whole, earlier, total, space, progress)
    if body == "local":
        return _project_tables(whole, total, progress, weighted=space == "measurements")
    if body in ("sdp", "sdp+local"):
        return _project_pairs(whole, body, total, progress, weighted=space != "answers")
    if space == "measurements":
        return _project_measurements(whole, body, total, progress)
    return project_answers(whole.answers, whole.plan.workload, body=body, total=total, progress=progress)


def _check_total(public: int | None, given: float | None) -> float | None:
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


def _with_workload_answers(whole: Release, found: Projection) -> Projection:
    """The projection with the answers to the plan's workload."""
    return replace(found, answers=replace(whole, projection=found).answers)


def _project_measurements(whole: Release, body: str, total: float | None, progress: Progress | None) -> Projection:
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
    return _with_workload_answers(
        whole, project_answers(values, work, body=body, covariance=spread, total=total, progress=progress)
    )


def _project_tables(whole: Release, total: float | None, progress: Progress | None, *, weighted: bool) -> Projection:
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
        spread = _table_noise(whole, work, every, weighted=weighted)
    except NotAnswerable as reason:
        raise NotAnswerable(f"body='local' needs whole tables, and not all were measured: {reason}") from reason
    return _with_workload_answers(
        whole, project_answers(values, work, body="local", covariance=spread, total=total, progress=progress)
    )


def _project_denoised(
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
    return _with_workload_answers(
        whole, project_answers(values, work, body="mixtures", covariance=spread, total=total, progress=progress)
    )


def _table_noise(whole: Release, work: Workload, cells: int, *, weighted: bool) -> ResidualNoise | FloatArray:
    """The noise of the residuals where these are asked for, independent and alike, else that of every table."""
    strategy = whole.plan.strategy
    tilted = isinstance(strategy, Residuals) and any(c is not None for c in strategy.contrasts)
    if not weighted or not isinstance(strategy, Residuals) or strategy.known or tilted:
        # of a table with one possible cell and a known total all is known, whatever it weighs
        each = [float(whole.variances(q.block).mean()) / (1 if q.attributes else cells) or 1.0 for q in work.blocks]
        return np.repeat(each, [q.rows for q in work.blocks])
    domain = whole.plan.workload.domain
    return residual_noise([whole], [domain.axis(a) for a in joint_attributes(work)])


def _project_pairs(
    whole: Release, body: str, total: float | None, progress: Progress | None, *, weighted: bool
) -> Projection:
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
    return _with_workload_answers(
        whole, project_answers(values, work, body=body, covariance=spread, total=total, progress=progress)
    )
