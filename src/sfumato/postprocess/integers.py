"""A projection in whole counts, and the whole records that have them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sfumato.operators import LinearOperator
from sfumato.operators.base import FloatArray
from sfumato.postprocess.denoising import AdaptedTables
from sfumato.postprocess.oracles import move_records
from sfumato.postprocess.possible import CellCounts, Possible, RecordCounts, TableCounts
from sfumato.postprocess.projection import Projection, joint_operator, largest_tables
from sfumato.postprocess.rounding import FITTED, controlled_rounding, round_records, round_to_total, whole_records
from sfumato.workloads import Workload

Whole = CellCounts | RecordCounts
Wanted = tuple[list[tuple[int, ...]], list[FloatArray]]


def to_integers(found: Projection, work: Workload, total: int | None) -> Projection:
    """The projection with whole counts that sum to `total` (None: the nearest whole number to its own sum).

    `rounded` says how far answers moved by that.
    """
    wanted = round(float(found.possible.table(()))) if total is None else total
    whole = whole_counts(found, work, wanted)
    answers = workload_answers(whole, work)
    change = math.sqrt(float(np.mean((answers - found.answers) ** 2)))
    return replace(found, answers=answers, possible=whole, realisable=True, rounded=change)


def workload_answers(held: Possible, work: Workload) -> FloatArray:
    """(k,) answers to a workload."""
    return np.concatenate([held.answer(q.block) for q in work.blocks])


def whole_counts(found: Projection, work: Workload, total: int) -> Whole:
    """Whole counts, `total` in all, whose answers are near the projection's scaled to that.

    Where cells of one table are held, every asked count is rounded up or down where that is possible; else they
    and weighted records are rounded to their total, and records are changed further where tables are asked. Tables
    that merely agree, and moments of pairs, which need not be those of any table, are fitted by records; where models
    denoised, these are drawn from the models first. No record is in a cell that is declared impossible.
    """
    return _move_impossible(_round_possible(found, work, total), work)


def _move_impossible(held: Whole, work: Workload) -> Whole:
    """Records that are impossible, as changing them may have made some, moved to where they are counted."""
    moves = work.domain.moves(held.attributes)
    if not moves:
        return held
    if isinstance(held, CellCounts):
        sizes = held.values.shape
        codes = np.argwhere(held.values > 0).astype(np.int32)
        cells = np.zeros(sizes)
        np.add.at(cells, tuple(move_records(codes, sizes, moves).T), held.values[tuple(codes.T)])
        return CellCounts(held.attributes, cells)
    codes, where = np.unique(move_records(held.codes, held.sizes, moves), axis=0, return_inverse=True)
    counts = np.bincount(where.reshape(-1), held.weights, len(codes)).astype(np.float64)
    return RecordCounts(held.attributes, held.sizes, codes, counts)


def _round_possible(found: Projection, work: Workload, total: int) -> Whole:
    if isinstance(found.possible, AdaptedTables):
        return found.possible.records(total)
    held = _join_tables(found.possible)
    if isinstance(held, CellCounts):
        return _round_cells(held, work, total)
    wanted = _wanted_tables(held, work)
    if not isinstance(held, RecordCounts):
        sizes = work.domain.sizes(wanted[0])
        codes, counts = whole_records(sizes, *wanted[1], total)
        return RecordCounts(wanted[0], sizes, codes, counts.astype(np.float64))
    codes, counts = held.codes, round_records(held.weights, total)
    if _asks_tables_alone(work) and total <= FITTED:
        codes, counts = whole_records(held.sizes, *wanted[1], total, start=np.repeat(codes, counts, axis=0))
    kept = counts > 0
    return RecordCounts(held.attributes, held.sizes, codes[kept], counts[kept].astype(np.float64))


def _join_tables(held: Possible) -> Possible:
    """Several tables as one, where one of them holds all attributes."""
    if not isinstance(held, TableCounts):
        return held
    largest = max(range(len(held.values)), key=lambda i: (len(held.attributes[i]), -i))
    every = {a for names in held.attributes for a in names}
    inside = every == set(held.attributes[largest])
    return CellCounts(held.attributes[largest], held.values[largest]) if inside else held


def _wanted_tables(held: Possible, work: Workload) -> tuple[tuple[str, ...], Wanted]:
    """The attributes, and the tables that are asked: the positions of each one's attributes, and its counts."""
    ready = dict(zip(held.attributes, held.values, strict=True)) if isinstance(held, TableCounts) else {}
    asked = [b.attributes for b in largest_tables(work)]
    names = (
        held.attributes if isinstance(held, (CellCounts, RecordCounts)) else work.domain.ordered(set().union(*asked))
    )
    place = {a: i for i, a in enumerate(names)}
    tables = [np.maximum(ready[a] if a in ready else held.table(a), 0.0) for a in asked]
    return names, ([tuple(place[x] for x in a) for a in asked], tables)


def _asks_tables_alone(work: Workload) -> bool:
    """Whether all queries are cells of tables, of several."""
    return work.tables > 1 and all(q.is_marginal for q in work.blocks)


def _round_cells(held: CellCounts, work: Workload, total: int) -> CellCounts:
    operator, flat = joint_operator(work), held.values.reshape(-1)
    mass = float(flat.sum())
    scaled = flat / mass * total if mass > 0 and abs(total - mass) >= 1 else flat
    best = controlled_rounding(scaled, operator, total)
    if best is not None:
        return CellCounts(held.attributes, best.astype(np.float64).reshape(held.values.shape))
    away = _squared_error(operator, np.asarray(operator.matvec(scaled), dtype=np.float64))
    nearest = min((f(scaled, total) for f in (round_to_total, round_records)), key=away)
    if _asks_tables_alone(work) and total <= FITTED:
        nearest = min(nearest, _improve_cells(held, work, nearest), key=away)
    return CellCounts(held.attributes, nearest.astype(np.float64).reshape(held.values.shape))


def _improve_cells(held: CellCounts, work: Workload, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Whole cells, their records changed towards the tables that are asked."""
    shape = held.values.shape
    codes = np.stack(np.unravel_index(np.repeat(np.arange(len(counts)), counts), shape), axis=1).astype(np.int32)
    found, many = whole_records(shape, *_wanted_tables(held, work)[1], len(codes), start=codes)
    cells = np.zeros(shape, dtype=np.int64)
    cells[tuple(found.T)] = many
    return cells.reshape(-1)


def _squared_error(operator: LinearOperator, asked: FloatArray) -> Callable[[NDArray[np.int64]], float]:
    def squares(cells: NDArray[np.int64]) -> float:
        return float(np.sum((np.asarray(operator.matvec(cells), dtype=np.float64) - asked) ** 2))

    return squares
