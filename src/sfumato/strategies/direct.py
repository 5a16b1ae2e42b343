"""Direct noise: on every query (the textbook mechanism), or on every cell with the queries summed from them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sfumato.errors import PlanError
from sfumato.operators import Block, Dense, Identity, LinearOperator, Total, Tree
from sfumato.operators.base import FloatArray
from sfumato.privacy.unit import Neighbours
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.factors import Cells, Matrix, StrategyFactor, TotalOnly
from sfumato.strategies.product import Product
from sfumato.strategies.stacked import FINE, StackedPiece, column_price, share_design
from sfumato.strategies.trees import TreeSums

__all__ = ["MAX_CELLS", "design_cell_noise", "design_direct", "design_query_noise"]


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
