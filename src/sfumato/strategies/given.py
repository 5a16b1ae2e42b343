"""A researcher's own strategy and reconstruction, priced and checked like any other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from sfumato._util.display import Progress
from sfumato.errors import NotInRowSpace, PlanError
from sfumato.operators import Block, Dense, Identity, LinearOperator
from sfumato.operators.base import FloatArray
from sfumato.strategies.dense_optimal import Optimum, optimize_dense
from sfumato.strategies.dense_pure import rotate_to_least_l1
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.factors import Matrix, basis_coefficients
from sfumato.strategies.merged_rows import independent_rows
from sfumato.strategies.product import Product
from sfumato.workloads import QueryBlock
from sfumato.workloads.builders import as_operator

__all__ = [
    "asks_few_queries",
    "block_beside_groups",
    "design_given",
    "is_small_integral",
    "optimize_spanning_rows",
    "shared_groups",
]


# relative: half of a double's digits, as the R given was itself computed; what is off more is refused
_TOLERANCE = 1e-8
_FINE = 2.0**24  # an entry of 1 is 2^24 on the lattice: rounding is below the tolerance above


def design_given(problem: Problem, strategy: object, reconstruction: ArrayLike | None) -> Design:
    """M = `strategy` (l, m) over the whole domain; R = `reconstruction` (k, l), least squares by default.

    Raises NotInRowSpace where R M differs from the workload by more than 1e-8 of its largest entry.
    """
    operator = as_operator(strategy)
    domain = problem.workload.domain
    if operator.shape[1] != domain.size:
        raise PlanError(f"the strategy needs one column per cell, {domain.size:,}, not {operator.shape[1]:,}")
    if problem.unit_lattice and not operator.integral:
        raise PlanError("real coefficients need the fine lattice; leave out lattice='unit', or give whole numbers")
    given = None if reconstruction is None else _check_reconstruction(problem, operator, reconstruction)
    groups, sizes = (domain.names,), (domain.shape,)
    raw = problem.workload.blocks[0].block if given is not None else None

    def build(s: float) -> Product:
        factor, multiple = _scale_operator(operator, s)
        return Product(
            groups, sizes, (factor,), multiple, problem.unit.total_is_public, raw, given, title="a given strategy"
        )

    if given is None:
        _check_span(problem, build(_FINE), operator)
    return Design("given", build, _FINE)


def _scale_operator(operator: LinearOperator, s: float) -> tuple[Matrix, int]:
    if operator.integral:
        return Matrix(operator), max(1, round(s))
    dense = np.asarray(operator.dense(), dtype=np.float64)
    scale = s / float(np.abs(dense).max())
    return Matrix(Dense(np.rint(dense * scale).astype(np.int64)), scale), 1


def _check_reconstruction(problem: Problem, operator: LinearOperator, given: ArrayLike) -> FloatArray:
    matrix = np.asarray(given, dtype=np.float64)
    if len(problem.workload.blocks) != 1 or problem.workload.blocks[0].attributes != problem.workload.domain.names:
        raise PlanError("reconstruction= needs a workload made by sf.queries over the whole domain")
    if matrix.shape != (len(problem.workload), operator.shape[0]) or not np.isfinite(matrix).all():
        raise PlanError(f"the reconstruction must be finite and of shape {(len(problem.workload), operator.shape[0])}")
    wanted = problem.workload.blocks[0].block.operator
    worst, size = 0.0, max(float(wanted.max_abs), 1e-300)
    back = operator.rmatvec(matrix.T).T
    for a, b in wanted.row_chunks():
        worst = max(worst, float(np.abs(back[a:b] - wanted.rows(a, b)).max()))
    if worst > _TOLERANCE * size:
        raise NotInRowSpace(f"R M differs from the workload by up to {worst:.3g}; it must reproduce it", worst)
    return matrix


def _check_span(problem: Problem, built: Product, operator: LinearOperator) -> None:
    for q in problem.workload.blocks:
        try:
            built.check(q.block)
        except ValueError as reason:
            worst = _row_space_residual(problem, operator)
            raise NotInRowSpace(
                f"the strategy cannot answer the workload: W M^+ M differs from W by up to {worst:.3g} ({reason})",
                worst,
            ) from None


def _row_space_residual(problem: Problem, operator: LinearOperator) -> float:
    dense = np.asarray(operator.dense(), dtype=np.float64)
    projector = np.linalg.pinv(dense) @ dense
    whole = problem.workload.operator
    worst = 0.0
    for a, b in whole.row_chunks():
        rows = whole.rows(a, b)
        worst = max(worst, float(np.abs(rows - rows @ projector).max()))
    return worst if math.isfinite(worst) else math.inf


_MOST, _MOST_ENTRIES = 64, 2**25  # queries, whose square is gone through for every cell, and their entries: 256 MB
_TOLERANCE_FEW = 1e-5  # relative gap of proved sides: far below what a plan shows


def shared_groups(blocks: Sequence[QueryBlock]) -> tuple[tuple[str, ...], ...]:
    """The groups of attributes whose cells every block asks for one by one: all else is asked alike in each of them."""
    every = [
        {g for g, f in zip(q.block.groups, q.block.factors, strict=True) if isinstance(f, Identity)} for q in blocks
    ]
    return tuple(g for g in blocks[0].block.groups if all(g in own for own in every))


def block_beside_groups(block: Block, common: Sequence[tuple[str, ...]]) -> Block:
    """What a block asks in each cell of those groups."""
    kept = [(g, f) for g, f in zip(block.groups, block.factors, strict=True) if g not in common]
    return Block(tuple(g for g, _ in kept), tuple(f for _, f in kept))


def asks_few_queries(problem: Problem, names: tuple[str, ...], blocks: Sequence[QueryBlock]) -> bool:
    """Whether few queries are asked in each cell of groups that all blocks ask for, over attributes of any size."""
    common = shared_groups(blocks)
    rest = [block_beside_groups(q.block, common) for q in blocks]
    cells = math.prod(problem.sizes[a] for a in names if not any(a in g for g in common))
    rows = sum(b.rows for b in rest)
    whole = all(f.integral for b in rest for f in b.factors)
    return whole and cells > 1 and rows <= _MOST and rows * cells <= _MOST_ENTRIES


def is_small_integral(whole: LinearOperator) -> bool:
    """Whether queries are whole numbers, and few enough for `optimum`."""
    rows, cells = whole.shape
    return whole.integral and rows <= _MOST and rows * cells <= _MOST_ENTRIES


def optimize_spanning_rows(
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
    best = optimize_dense(matrix=rows * root[:, None], tolerance=_TOLERANCE_FEW, progress=progress)
    basis = Dense(np.rint(rows[independent_rows(rows)]).astype(np.int64))
    found = basis_coefficients(best.strategy, basis)
    return best, basis, rotate_to_least_l1(found, basis)[0] if laplace else found
