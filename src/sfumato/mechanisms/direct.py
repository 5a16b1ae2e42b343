"""Direct noise: on every query (the textbook mechanism), or on every cell with the queries summed from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.errors import PlanError
from sfumato.operators import Block, Dense, Identity, LinearOperator, Total
from sfumato.plans import Design, Problem
from sfumato.strategies.base import Strategy
from sfumato.strategies.factors import Cells, Factor, Matrix, TotalOnly
from sfumato.strategies.product import Product
from sfumato.strategies.stacked import Stacked, shares

__all__ = ["MAX_CELLS", "Piece", "column_price", "designs", "factor_for", "share_design", "total_error"]

MAX_CELLS = 20_000_000
FINE = 2.0**22


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a stacked design: `build(s)`, its error and price at s = 1, and the s from which rounding is harmless."""

    build: Callable[[float], Strategy]
    error: float
    price: float
    fine: float = FINE


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


def column_price(strategy: Product, power: int) -> float:
    """Largest column sum of |entry|^power of the normalised strategy (its sensitivity under add-remove)."""
    return math.prod(float(max(f.measured.column_sums(power))) / f.scale**power for f in strategy.factors)


def total_error(problem: Problem, strategy: Strategy, queries: Iterable[int]) -> float:
    """Weighted sum of squared errors of some blocks at unit noise on the strategy as it stands."""
    total = 0.0
    for i in queries:
        q = problem.workload.blocks[i]
        summed = strategy.row_errors(q.block)
        mean = float(strategy.row_powers(q.block, 2).mean()) if summed is None else summed[0]
        total += problem.objective_weight(q) * mean * q.rows
    return total


def share_design(mechanism: str, title: str, pieces: Sequence[Piece], power: int, bound: float | None) -> Design:
    """One design of several pieces, the budget shared so that the weighted error is least."""
    scales = shares([p.error for p in pieces], [p.price for p in pieces], power)

    def build(s: float) -> Strategy:
        built = tuple(p.build(s * r) for p, r in zip(pieces, scales, strict=True))
        return built[0] if len(built) == 1 else Stacked(built, title)

    return Design(mechanism, build, max(p.fine / r for p, r in zip(pieces, scales, strict=True)), bound)


def designs(problem: Problem) -> list[Design]:
    """The direct designs; named after the noise."""
    name = {"gaussian": "gaussian", "laplace": "laplace", "discrete-gaussian": "gaussian"}[problem.noise]
    out = [_rows(problem, name)]
    cells = _cells(problem, name)
    return [*out, cells] if cells is not None else out


def _rows(problem: Problem, name: str) -> Design:
    power = 1 if problem.noise == "laplace" else 2
    pieces = [_row_piece(problem, q.block, problem.objective_weight(q), power) for q in problem.workload.blocks]
    return share_design(name, "noise on every query", pieces, power, None)


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


def _cells(problem: Problem, name: str) -> Design | None:
    """Noise on every cell of the joint table of all attributes that are asked about."""
    names = problem.workload.domain.ordered({a for q in problem.workload.blocks for a in q.attributes})
    sizes = tuple(problem.sizes[a] for a in names)
    if math.prod(sizes) > MAX_CELLS or not names:
        return None
    groups = tuple((a,) for a in names)

    def build(s: float) -> Product:
        return Product(
            groups,
            tuple((n,) for n in sizes),
            tuple(Cells(n) for n in sizes),
            max(1, round(s)),
            public_total=problem.unit.total_is_public,
            title=f"noise on every cell of {', '.join(names)}",
        )

    return Design(name, build, FINE)
