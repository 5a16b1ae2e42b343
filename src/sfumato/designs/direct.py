"""Direct noise: on every query (the textbook mechanism), or on every cell with the queries summed from them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from sfumato.designs.design import Design, Problem
from sfumato.designs.factors import Cells, Factor, Matrix, TotalOnly
from sfumato.designs.ordered.trees import TreeSums
from sfumato.designs.pieces import FINE, Piece, column_price, levelled, share_design
from sfumato.designs.product import Product
from sfumato.errors import PlanError
from sfumato.operators import Block, Dense, Identity, LinearOperator, Total, Tree

__all__ = ["MAX_CELLS", "designs", "factor_for", "on_cells", "on_queries"]

MAX_CELLS = 20_000_000  # 160 MB of counts, all of them released
_LISTED = 2**24  # queries: 128 MB of errors, one by one; of more, the ranges' closed forms
_FLAT = 2**20  # leaves of a tree of one level: 8 MB


def factor_for(operator: LinearOperator, scale: float = 2.0**20) -> tuple[Factor, float]:
    """(an integer factor that measures the operator's own rows, largest rounding error of an entry)."""
    if isinstance(operator, Identity):
        return Cells(operator.n), 0.0
    if isinstance(operator, Total):
        return TotalOnly(operator.n), 0.0
    if operator.integral:
        return Matrix(operator), 0.0
    dense = np.asarray(operator.dense(), dtype=np.float64)
    scale = scale / float(np.abs(dense).max())
    rounded = np.rint(dense * scale)
    return Matrix(Dense(rounded.astype(np.int64)), scale), float(np.abs(rounded / scale - dense).max())


def designs(problem: Problem) -> list[Design]:
    """The direct designs; named after the noise."""
    out = [on_queries(problem)]
    names, cells = _joint(problem)
    return [*out, on_cells(problem)] if names and cells <= MAX_CELLS else out


def _name(problem: Problem) -> str:
    return "laplace" if problem.noise == "laplace" else "gaussian"


def on_queries(problem: Problem) -> Design:
    """Noise on every query, the budget shared between the blocks of queries."""
    power = 1 if problem.noise == "laplace" else 2
    pieces = [_row_piece(problem, q.block, problem.objective_weight(q), power) for q in problem.workload.blocks]
    if problem.largest:
        weights = [problem.objective_weight(q) for q in problem.workload.blocks]
        pieces = [replace(p, error=levelled(w, p.price, power)) for p, w in zip(pieces, weights, strict=True)]
    return share_design(_name(problem), "noise on every query", pieces, power, None)


def _row_piece(problem: Problem, block: Block, weight: float, power: int) -> Piece:
    found = [factor_for(f) for f in block.factors]
    factors = tuple(f for f, _ in found)
    # a record lies in one cell, whose entry is a product of rounded ones
    tops = [(float(f.max_abs), e) for f, (_, e) in zip(block.factors, found, strict=True)]
    rounding = math.prod(t + e for t, e in tops) - math.prod(t for t, _ in tops)
    sizes = tuple(tuple(problem.sizes[a] for a in g) for g in block.groups)
    if not all(math.isfinite(f.scale) for f in factors):
        raise PlanError("the queries hold numbers too small or too large to be measured directly")

    def build(s: float) -> Product:
        return Product(
            block.groups,
            sizes,
            factors,
            max(1, round(s / divisor)),
            raw=block,
            bias=rounding,
            title="noise on every query",
        )

    divisor = math.prod(f.scale for f in factors)
    one = Product(block.groups, sizes, factors, 1, raw=block)
    return Piece(build, weight * block.rows, max(column_price(one, power), 1e-300), FINE if divisor == 1.0 else divisor)


def _joint(problem: Problem) -> tuple[tuple[str, ...], int]:
    """All attributes that are asked about, and the cells of their joint table."""
    names = problem.workload.domain.ordered({a for i in problem.workload.items for a in i.attributes})
    return names, math.prod(problem.sizes[a] for a in names)


def on_cells(problem: Problem, *, plain: bool = False) -> Design:
    """Noise on every cell of the joint table of all attributes that are asked about.

    Queries are sums of its noisy cells; a public total enters too, unless the sums are to be `plain`.
    Raises PlanError where the table is too large or there is none.
    """
    names, cells = _joint(problem)
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

    return Design(_name(problem), build, FINE)
