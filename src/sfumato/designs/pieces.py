"""Parts of a stacked design, each with its error and its price, and the share of the budget that each gets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sfumato.designs.design import Design, Problem
from sfumato.designs.product import Product
from sfumato.designs.stacked import Stacked, shares
from sfumato.designs.strategy import Strategy

__all__ = ["FINE", "Piece", "column_price", "largest_error", "levelled", "share_design", "total_error"]

FINE = 2.0**22  # an entry of 1 is 2^22 on the lattice: rounding of entries is below a millionth


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a stacked design: `build(s)`, its error and price at s = 1, and the s from which rounding is harmless."""

    build: Callable[[float], Strategy]
    error: float
    price: float
    fine: float = FINE


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


def largest_error(problem: Problem, strategy: Strategy, queries: Iterable[int]) -> float:
    """The largest weighted squared error of some blocks at unit noise on the strategy as it stands."""
    blocks = [problem.workload.blocks[i] for i in queries]
    return max(problem.objective_weight(q) * float(strategy.row_powers(q.block, 2).max()) for q in blocks)


def levelled(largest: float, price: float, power: int) -> float:
    """The `error` of a piece that gives it its share for the objective "max", from its largest squared error.

    Shares for the least sum of these are those at which the largest errors are equal.
    """
    return price * largest ** (1 + power / 2)


def share_design(
    mechanism: str, title: str, pieces: Sequence[Piece], power: int, bound: float | None, *, largest: bool = False
) -> Design:
    """One design of several pieces, the budget shared so that the weighted error is least.

    With `largest` each query is answered by the piece whose largest error on its table is least.
    """
    scales = shares([p.error for p in pieces], [p.price for p in pieces], power)

    def build(s: float) -> Strategy:
        built = tuple(p.build(s * r) for p, r in zip(pieces, scales, strict=True))
        return built[0] if len(built) == 1 else Stacked(built, title, largest)

    return Design(mechanism, build, max(p.fine / r for p, r in zip(pieces, scales, strict=True)), bound)
