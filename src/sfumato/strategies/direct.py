"""Strategies without a search: noise on every query or every cell, and a strategy that a researcher gives.

Noise on every query is the textbook mechanism; of noise on every cell the queries are sums. A given strategy and its
reconstruction are priced and checked like any other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sfumato._util.display import Progress
from sfumato.errors import NotInRowSpace, PlanError
from sfumato.operators import Block, Dense, Identity, LinearOperator, Total, Tree
from sfumato.operators.base import FloatArray
from sfumato.privacy.unit import Neighbours
from sfumato.strategies.dense_largest import LargestErrorOptimum, optimize_largest
from sfumato.strategies.dense_optimal import Optimum, optimize_dense, rotate_to_least_l1
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.factors import Cells, Matrix, StrategyFactor, TotalOnly, basis_coefficients
from sfumato.strategies.merged_rows import independent_rows
from sfumato.strategies.product import Product
from sfumato.strategies.stacked import FINE, StackedPiece, column_price, share_design
from sfumato.strategies.trees import TreeSums
from sfumato.workloads import QueryBlock
from sfumato.workloads.builders import as_operator

MAX_CELLS = 20_000_000  # 160 MB of counts, all of them released
# Bits of the largest coefficient of one, two or three factors of real ones. By 30 an answer about the 2^32 records that
# fit is off by at most twice its largest coefficient; of three, 14 still price within 1e-4, and the product fits.
_BITS = (30, 20, 14)
_HALF = 0.5 + 2.0**-20  # what rounding moves, and of its double at most 2^53 / 2^30
# Calibration leaves 2^-30 for what rounding adds, which here may be nothing: then the whole price is spent.
_WHOLLY = 1 / (1 - 2.0**-30)
_WHOLE = 2**30  # whole coefficients beyond are real ones to the lattice, which ends at 2^54
_ROOM = 2.0**44  # of whole coefficients and their multiple, which is 2^14 or more, under noise of up to 2^54
_LISTED = 2**24  # queries: 128 MB of errors, one by one; of more, the ranges' closed forms
_FLAT = 2**20  # leaves of a tree of one level: 8 MB


class _MeasuredFactor(NamedTuple):
    """A factor of queries as it is measured: exactly where `real` is None, else rounded at the scale that is asked."""

    factor: StrategyFactor
    real: FloatArray | None = None

    def at(self, scale: float) -> StrategyFactor:
        """The factor with its coefficients multiplied by `scale` and rounded."""
        return self.factor if self.real is None else Matrix(Dense(np.rint(self.real * scale).astype(np.int64)), scale)


def _measure_factor(operator: LinearOperator, bits: int) -> _MeasuredFactor:
    """A factor of queries; real coefficients, and whole ones beyond 2^30, at first with their largest at 2^bits."""
    if isinstance(operator, Identity):
        return _MeasuredFactor(Cells(operator.n))
    if isinstance(operator, Total):
        return _MeasuredFactor(TotalOnly(operator.n))
    if not _is_real(operator):
        return _MeasuredFactor(Matrix(operator))
    dense = np.asarray(operator.dense(), dtype=np.float64)
    scale = 2.0**bits / (float(np.abs(dense).max(initial=0.0)) or 1.0)  # of a condition that holds for no cell
    return _MeasuredFactor(_MeasuredFactor(TotalOnly(1), dense).at(scale), dense)


def _is_real(operator: LinearOperator) -> bool:
    return not operator.integral or operator.max_abs > _WHOLE


def design_direct(problem: Problem) -> list[Design]:
    """The direct designs; named after the noise."""
    out = [design_query_noise(problem)]
    names, cells = _joint_attributes_and_cells(problem)
    return [*out, design_cell_noise(problem)] if names and cells <= MAX_CELLS else out


def _direct_noise_name(problem: Problem) -> str:
    return "laplace" if problem.noise == "laplace" else "gaussian"


def design_query_noise(problem: Problem) -> Design:
    """Noise on every query, the budget shared between the blocks of queries."""
    power = problem.power
    pieces = [_query_row_piece(problem, q.block, problem.objective_weight(q), power) for q in problem.workload.blocks]
    # of the cells of one table that a record more or less changes by one, no strategy errs less than noise on each
    alone = len(pieces) == 1 and problem.workload.items[0].is_marginal and not problem.unit.total_is_public
    bound = math.sqrt(pieces[0].error) if alone and problem.unit.neighbours is Neighbours.ADD_REMOVE else None
    return share_design(
        _direct_noise_name(problem), "noise on every query", pieces, power, bound, largest=problem.largest
    )


def _query_row_piece(problem: Problem, block: Block, weight: float, power: int) -> StackedPiece:
    real = [i for i, f in enumerate(block.factors) if _is_real(f)]
    if len(real) > len(_BITS):
        raise PlanError(f"noise on every query takes real coefficients over at most {len(_BITS)} attributes")
    found = [_measure_factor(f, _BITS[max(0, len(real) - 1)]) for f in block.factors]
    sizes = tuple(tuple(problem.sizes[a] for a in g) for g in block.groups)
    tops = [float(f.max_abs) for f in block.factors]
    fine = math.prod(f.factor.scale for f in found)
    if not 0 < fine < math.inf:
        raise PlanError("the queries hold numbers too small or too large to be measured directly")

    def build(s: float) -> Product:
        """The first real factor takes up the scale, else the integer multiple does."""
        factors = [f.factor for f in found]
        if real and s != fine and not problem.unit_lattice:
            factors[real[0]] = found[real[0]].at(s * _WHOLLY / (fine / factors[real[0]].scale))
        # a record lies in one cell, whose entry is a product of rounded ones
        off = [_HALF / f.scale if i in real else 0.0 for i, f in enumerate(factors)]
        rounding = math.prod(t + e for t, e in zip(tops, off, strict=True)) - math.prod(tops)
        multiple = 1 if real else max(1, round(s))
        title = "noise on every query"
        return Product(block.groups, sizes, tuple(factors), multiple, raw=block, bias=rounding, title=title)

    one = Product(block.groups, sizes, tuple(f.factor for f in found), 1, raw=block)
    largest = math.prod(1.0 if i in real else t for i, t in enumerate(tops))
    whole = min(FINE, max(1.0, _ROOM / (largest or 1.0)))
    return StackedPiece(
        build,
        weight if problem.largest else weight * block.rows,
        max(column_price(one, power), 1e-300),
        fine if real else whole,
    )


def _joint_attributes_and_cells(problem: Problem) -> tuple[tuple[str, ...], int]:
    """All attributes that are asked about, and the cells of their joint table."""
    names = problem.workload.domain.ordered({a for i in problem.workload.items for a in i.attributes})
    return names, math.prod(problem.sizes[a] for a in names)


def design_cell_noise(problem: Problem, *, plain: bool = False) -> Design:
    """Noise on every cell of the joint table of all attributes that are asked about.

    Queries are sums of its noisy cells; a public total enters too, unless the sums are to be `plain`.
    Raises PlanError where the table is too large or there is none.
    """
    names, cells = _joint_attributes_and_cells(problem)
    if cells > MAX_CELLS or not names:
        what = f"{', '.join(names)} have {cells:,} cells together" if names else "no attribute is asked about"
        raise PlanError(f"{what}; noise on every cell takes one to {MAX_CELLS:,}")
    sizes = tuple(problem.sizes[a] for a in names)
    public_total = problem.unit.total_is_public and not plain
    summed = ", each query a plain sum" if plain else ""
    groups = tuple((a,) for a in names)
    factors = tuple(Cells(n) for n in sizes)
    if len(names) == 1 and max(q.rows for q in problem.workload.blocks) > _LISTED and cells <= _FLAT:
        # the errors of all ranges together are known to trees, of which cells are one
        factors = (TreeSums(Tree(cells, cells, root=False)),)

    def build(s: float) -> Product:
        return Product(
            groups,
            tuple((n,) for n in sizes),
            factors,
            max(1, round(s)),
            public_total=public_total,
            title=f"noise on every cell of {', '.join(names)}{summed}",
        )

    return Design(_direct_noise_name(problem), build, FINE)


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
_MOST_WORK = 100_000_000  # rows squared times cells of a step of the search for the largest error: sixty take 10 CPU-s
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
    largest: bool,
    laplace: bool,
    progress: Progress | None,
) -> tuple[Optimum | LargestErrorOptimum, LinearOperator, FloatArray]:
    """The optimum of the mean error, whole rows that span the queries, and what is measured over these.

    With `largest` it is the optimum of the largest error, unless that takes too long. For Laplace noise the optimum is
    turned to a small L1 norm.
    """
    rows = np.asarray(whole.dense(), dtype=np.float64)
    root = np.concatenate([np.full(o.shape[0], math.sqrt(w)) for o, w in weighted])
    largest = largest and rows.size * min(rows.shape) <= _MOST_WORK
    best = (optimize_largest if largest else optimize_dense)(
        matrix=rows * root[:, None], tolerance=_TOLERANCE_FEW, progress=progress
    )
    basis = Dense(np.rint(rows[independent_rows(rows)]).astype(np.int64))
    found = basis_coefficients(best.strategy, basis)
    return best, basis, rotate_to_least_l1(found, basis)[0] if laplace else found
