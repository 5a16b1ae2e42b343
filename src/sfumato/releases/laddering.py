"""What a release says, rung by rung, and its projection by the ladder."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import NotAnswerable
from sfumato.estimate.ladder.climb import climb
from sfumato.estimate.ladder.low import LISTED
from sfumato.estimate.ladder.told import Asked, Axes, Told
from sfumato.estimate.projection import Projection, joint_attributes, largest_tables
from sfumato.ground.progress import Progress
from sfumato.operators import Block, Identity, LinearOperator
from sfumato.operators.base import FloatArray
from sfumato.workloads import QueryBlock, Workload
from sfumato.workloads.levels import table_block

if TYPE_CHECKING:
    from sfumato.releases.core import Release

__all__ = ["laddered", "told"]


_ENTRIES = 2**22  # of a map of queries by cells that is written out
_LEAST = 1e-6  # share of a table's variance that is its own at least: strategies of several pieces need not agree
_PSEUDO = 1e-12  # of the largest eigenvalue: below it, rounding of a matrix of some thousand rows


def laddered(whole: Release, total: float | None, progress: Progress | None, *, joint: bool) -> Projection:
    """The projection of a release by the ladder. Raises NotAnswerable where a table that it needs was not measured."""
    said = told(whole, total, joint=joint)
    done = climb(said, joint=joint, progress=progress)
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


def told(whole: Release, total: float | None, *, joint: bool) -> Told:
    """The unprojected answers to all tables that the queries lie in, and to what else was asked of these.

    joint: tables that were not measured may be left out; the total and every attribute may not. Raises NotAnswerable.
    """
    work = whole.plan.workload
    domain, names = work.domain, joint_attributes(work)
    place = {a: i for i, a in enumerate(names)}
    sizes = domain.sizes(names)
    tables: dict[Axes, FloatArray] = {}
    variances: dict[Axes, float] = {}
    for axes in _below(work, place):
        block = table_block(domain, tuple(names[i] for i in axes))
        try:
            tables[axes] = whole.answer_block(block).reshape([sizes[i] for i in axes])
            variances[axes] = float(whole.variances(block).mean())
        except NotAnswerable as reason:
            if axes == () and total is not None:
                tables[axes], variances[axes] = np.array(total), 0.0
            elif not joint or len(axes) < 2:
                raise NotAnswerable(f"projecting needs whole tables, and not all were measured: {reason}") from reason
    spread = {s: _own_variance(s, sizes, variances) for s in tables if all(b in tables for b in _subsets(s))}
    tables = {s: t for s, t in tables.items() if s in spread}
    asked = tuple(_asked(whole, place))

    def possible(axes: Axes) -> NDArray[np.bool_] | None:
        return domain.possible([names[i] for i in axes])

    return Told(names, sizes, tables, variances, spread, asked, None if total is None else float(total), possible)


def _below(work: Workload, place: dict[str, int]) -> list[Axes]:
    """Every set of attributes within a table that the queries lie in, smaller ones first."""
    found = {s for b in largest_tables(work) for s in _subsets(tuple(sorted(place[a] for a in b.attributes)))}
    return sorted(found | {(), *((i,) for i in place.values())}, key=lambda s: (len(s), s))


def _subsets(axes: Axes) -> Iterator[Axes]:
    return (c for r in range(len(axes) + 1) for c in itertools.combinations(axes, r))


def _own_variance(axes: Axes, sizes: tuple[int, ...], variances: dict[Axes, float]) -> float:
    """The variance of what a table's cells have beyond their means along every attribute.

    A cell's variance is the sum over smaller sets of theirs, each spread over the cells of the rest.
    """
    own = 0.0
    for s in _subsets(axes):
        rest = math.prod(sizes[i] for i in axes if i not in s)
        own += (-1) ** (len(axes) - len(s)) * variances[s] / rest**2
    room = math.prod(1 - 1 / sizes[i] for i in axes)
    return max(own / room if room > 0 else 0.0, _LEAST * variances[axes]) or 1.0


def _asked(whole: Release, place: dict[str, int]) -> Iterator[Asked]:
    """Queries that are no cells, and the same over single attributes where they were asked by groups of others."""
    seen: set[tuple[str, ...]] = set()
    for q in whole.plan.workload.blocks:
        if all(isinstance(f, Identity) for f in q.block.factors):
            continue
        yield from _one(whole, q, q.block, place)
        kept = [(g, f) for g, f in zip(q.block.groups, q.block.factors, strict=True) if not isinstance(f, Identity)]
        alone = Block(tuple(g for g, _ in kept), tuple(f for _, f in kept))
        name = (q.part, *alone.attributes)
        if len(alone.attributes) == 1 < len(q.attributes) and name not in seen:
            seen.add(name)
            yield from _one(whole, q, alone, place)


def _one(whole: Release, query: QueryBlock, block: Block, place: dict[str, int]) -> Iterator[Asked]:
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
        rows, values, variances = _shortened(operator, values, variances)
    else:
        rows = np.asarray(operator.dense(), dtype=np.float64)
    order = sorted(range(len(names)), key=lambda i: place[names[i]])
    turned = rows.reshape(len(rows), *domain.sizes(names)).transpose(0, *(1 + i for i in order))
    yield Asked(query.part, tuple(place[names[i]] for i in order), turned, values, variances)


def _shortened(
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
