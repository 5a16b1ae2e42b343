"""Few queries over attributes of any size, asked alike in each cell of some groups: sums and counts of departments.

By the symmetry of the groups' cells the optimum is that of one of them, measured in each; and of its columns, however
many, few bind. [ENU20]
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sfumato.designs.dense.optimal import Optimum, optimize
from sfumato.designs.dense.pure import turned
from sfumato.designs.design import Problem
from sfumato.designs.factors import coefficients
from sfumato.designs.merged.spanned import independent_rows
from sfumato.ground.progress import Progress
from sfumato.operators import Block, Dense, Identity, LinearOperator
from sfumato.operators.base import FloatArray
from sfumato.workloads import QueryBlock

__all__ = ["affordable", "applies", "beside", "optimum", "shared"]

_MOST, _MOST_ENTRIES = 64, 2**25  # queries, whose square is gone through for every cell, and their entries: 256 MB
_TOLERANCE = 1e-5  # relative gap of proved sides: far below what a plan shows


def shared(blocks: Sequence[QueryBlock]) -> tuple[tuple[str, ...], ...]:
    """The groups of attributes whose cells every block asks for one by one: all else is asked alike in each of them."""
    every = [
        {g for g, f in zip(q.block.groups, q.block.factors, strict=True) if isinstance(f, Identity)} for q in blocks
    ]
    return tuple(g for g in blocks[0].block.groups if all(g in own for own in every))


def beside(block: Block, common: Sequence[tuple[str, ...]]) -> Block:
    """What a block asks in each cell of those groups."""
    kept = [(g, f) for g, f in zip(block.groups, block.factors, strict=True) if g not in common]
    return Block(tuple(g for g, _ in kept), tuple(f for _, f in kept))


def applies(problem: Problem, names: tuple[str, ...], blocks: Sequence[QueryBlock]) -> bool:
    """Whether few queries are asked in each cell of groups that all blocks ask for, over attributes of any size."""
    common = shared(blocks)
    rest = [beside(q.block, common) for q in blocks]
    cells = math.prod(problem.sizes[a] for a in names if not any(a in g for g in common))
    rows = sum(b.rows for b in rest)
    whole = all(f.integral for b in rest for f in b.factors)
    return whole and cells > 1 and rows <= _MOST and rows * cells <= _MOST_ENTRIES


def affordable(whole: LinearOperator) -> bool:
    """Whether queries are whole numbers, and few enough for `optimum`."""
    rows, cells = whole.shape
    return whole.integral and rows <= _MOST and rows * cells <= _MOST_ENTRIES


def optimum(
    whole: LinearOperator,
    weighted: Sequence[tuple[LinearOperator, float]],
    *,
    laplace: bool,
    progress: Progress | None,
) -> tuple[Optimum, LinearOperator, FloatArray]:
    """The optimum of the mean error, whole rows that span the queries, and what is measured over these.

    For Laplace noise the optimum is turned to a small L1 norm.
    """
    rows = np.asarray(whole.dense(), dtype=np.float64)
    root = np.concatenate([np.full(o.shape[0], math.sqrt(w)) for o, w in weighted])
    best = optimize(matrix=rows * root[:, None], tolerance=_TOLERANCE, progress=progress)
    basis = Dense(np.rint(rows[independent_rows(rows)]).astype(np.int64))
    found = coefficients(best.strategy, basis)
    return best, basis, turned(found, basis)[0] if laplace else found
