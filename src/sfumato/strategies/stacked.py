"""Several strategies measured together, each query answered by the one that answers it best."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import deferred_field, storable, value_fingerprint
from sfumato.errors import NotAnswerable
from sfumato.operators import Block, Combination, Family
from sfumato.operators.base import FloatArray, Numbers
from sfumato.strategies.budget_split import relative_scales
from sfumato.strategies.covariance import agreement_levels, check_covariance_size
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.product import Product
from sfumato.strategies.strategy import Estimate, Strategy

__all__ = [
    "FINE",
    "Stacked",
    "StackedPiece",
    "column_price",
    "share_design",
    "weighted_error",
]


_HELD = 1_024  # numbers of one query that are kept: of most tables it is one for all their cells
_ONE_BY_ONE = 500  # tables of a family whose pieces are compared one by one: a second or two


class _ChosenPiece(NamedTuple):
    """The number of a piece, and the sums of squares that it has for a query, where they are few."""

    piece: int
    squares: FloatArray | None


@storable
@dataclass(frozen=True, eq=False)
class Stacked(Strategy):
    """Pieces under one noise law; their integer multiples say how the budget is shared.

    A block of queries is answered by the piece that errs least on it: on average, or with `largest` at its worst.
    """

    pieces: tuple[Strategy, ...]
    title: str = ""
    largest: bool = deferred_field(False)

    @property
    def blocks(self) -> tuple[Block | Family | Combination, ...]:
        return tuple(b for p in self.pieces for b in p.blocks)

    @property
    def summary(self) -> str:
        return self.title or "; ".join(dict.fromkeys(p.summary for p in self.pieces))

    @property
    def max_abs(self) -> int:
        return max(p.max_abs for p in self.pieces)

    @functools.cached_property
    def _held(self) -> tuple[frozenset[str], ...]:
        """Per piece the attributes it holds."""
        return tuple(frozenset(a for b in p.blocks for a in b.attributes) for p in self.pieces)

    @functools.cached_property
    def _chosen(self) -> dict[str, _ChosenPiece | str]:
        """By fingerprint, the pieces of the queries asked about so far, or why none has them."""
        return {}

    def _found(self, query: Block) -> _ChosenPiece:
        """The piece of least variance for a query, looked for once."""
        key = value_fingerprint(query)
        found = self._chosen.get(key)
        if found is None:
            found = self._chosen.setdefault(key, self._compared(query))
        if isinstance(found, str):
            raise NotAnswerable(found)
        return found

    def _best(self, query: Block) -> int:
        return self._found(query).piece

    def _compared(self, query: Block) -> _ChosenPiece | str:
        best: tuple[float, _ChosenPiece] | None = None
        reasons: list[str] = []
        asked = set(query.attributes)
        for i, (piece, held) in enumerate(zip(self.pieces, self._held, strict=True)):
            if not asked <= held:
                continue
            try:
                powers = piece.row_powers(query, 2)
                value = float(powers.max() if self.largest else powers.mean())
            except NotAnswerable as reason:
                reasons.append(str(reason))
                continue
            if best is None or value < best[0]:
                best = (value, _ChosenPiece(i, _frozen_copy_if_small(powers)))
        if best is not None:
            return best[1]
        names = ", ".join(query.attributes) or "the total"
        return (
            reasons[0]
            if reasons
            else f"nothing was measured that holds {names} together; "
            "ask the release for what it holds, or plan a workload with this query in it"
        )

    def check(self, query: Block) -> None:
        self._best(query)

    def row_powers(self, query: Block, power: int) -> FloatArray:
        piece, squares = self._found(query)
        return self.pieces[piece].row_powers(query, power) if power != 2 or squares is None else squares

    def source(self, query: Block) -> Strategy:
        return self.pieces[self._best(query)].source(query)

    def covariance(self, first: Block, second: Block) -> FloatArray:
        check_covariance_size(first.rows, second.rows)
        one, other = self.source(first), self.source(second)
        # the noise of different pieces is independent
        return one.covariance(first, second) if one is other else np.zeros((first.rows, second.rows))

    def table_covariance(self, first: Block, second: Block) -> FloatArray | None:
        one, other = self.source(first), self.source(second)
        return one.table_covariance(first, second) if one is other else np.zeros(agreement_levels(first, second))

    def estimate(self, values: Sequence[Numbers], total: int | None) -> Estimate:
        out: list[Estimate] = []
        start = 0
        for piece in self.pieces:
            count = len(piece.blocks)
            out.append(piece.estimate(values[start : start + count], total))
            start += count
        return tuple(out)

    def answer(self, estimate: Estimate, query: Block) -> FloatArray:
        chosen = self._best(query)
        return self.pieces[chosen].answer(estimate[chosen], query)

    def _serving(self, family: Family) -> int | None:
        """The piece that has all tables of a family in closed form; None where they are taken one by one.

        By itself a table may be known better to another piece: of large families that is not looked into.
        """
        key = value_fingerprint(family)
        if key not in self._families:
            self._families[key] = self._closed(family)
        return self._families[key]

    @functools.cached_property
    def _families(self) -> dict[str, int | None]:
        """By fingerprint, what serves the families asked about so far."""
        return {}

    def _closed(self, family: Family) -> int | None:
        asked, best = set(family.attributes), list[tuple[float, int]]()
        for i, (piece, held) in enumerate(zip(self.pieces, self._held, strict=True)):
            try:
                powers = piece.family_powers(family, 2) if asked <= held else None
            except NotAnswerable:
                continue  # some of the tables are another piece's
            if powers is not None:
                best.append((float(powers.mean()), i))
        if not best:
            return None
        serving = min(best)[1]
        others = [held for i, held in enumerate(self._held) if i != serving]
        for i in range(len(family) if len(family) <= _ONE_BY_ONE else 0):
            names = set(family.set_names(i))
            if any(names <= held for held in others) and self._best(family.block(i)) != serving:
                return None
        return serving

    def family_powers(self, family: Family, power: int) -> FloatArray | None:
        piece = self._serving(family)
        return None if piece is None else self.pieces[piece].family_powers(family, power)

    def answer_family(self, estimate: Estimate, family: Family) -> Iterator[tuple[NDArray[np.intp], FloatArray]]:
        piece = self._serving(family)
        if piece is None:
            return super().answer_family(estimate, family)
        return self.pieces[piece].answer_family(estimate[piece], family)

    def bias_bound(self, query: Block) -> float:
        return self.pieces[self._best(query)].bias_bound(query)


def _frozen_copy_if_small(powers: FloatArray) -> FloatArray | None:
    """A copy that nobody can change, where it is small."""
    if powers.size > _HELD:
        return None
    out = np.array(powers)
    out.flags.writeable = False
    return out


FINE = 2.0**22  # an entry of 1 is 2^22 on the lattice: rounding of entries is below a millionth


@dataclass(frozen=True, slots=True)
class StackedPiece:
    """Part of a stacked design: `build(s)`, its error and price at s = 1, and the s from which rounding is harmless.

    The error is the sum of weighted squared errors, or where the largest is to be least the largest of them.
    """

    build: Callable[[float], Strategy]
    error: float
    price: float
    fine: float = FINE


def column_price(strategy: Product, power: int) -> float:
    """Largest column sum of |entry|^power of the normalised strategy (its sensitivity under add-remove)."""
    return math.prod(float(max(f.measured.column_sums(power))) / f.scale**power for f in strategy.factors)


def weighted_error(problem: Problem, strategy: Strategy, queries: Iterable[int]) -> float:
    """The weighted squared errors of some blocks at unit noise on the strategy as it stands.

    Their sum, or where the problem is to make the largest error small the largest of them.
    """
    each: list[float] = []
    for q in (problem.workload.blocks[i] for i in queries):
        found = strategy.row_errors(q.block)
        if found is None:
            powers = strategy.row_powers(q.block, 2)
            found = float(powers.mean()), float(powers.max())
        mean, largest = found
        weight = problem.objective_weight(q)
        each.append(weight * largest if problem.largest else weight * mean * q.rows)
    return max(each) if problem.largest else sum(each)


def share_design(
    mechanism: str,
    title: str,
    pieces: Sequence[StackedPiece],
    power: int,
    bound: float | None,
    *,
    largest: bool = False,
) -> Design:
    """One design of several pieces, the budget split so that the sum of their errors is least.

    With `largest` the largest of them is to be least, and each query is answered by the piece whose largest error on
    its table is least.
    """
    errors, prices = np.array([p.error for p in pieces]), np.array([p.price for p in pieces])
    scales = relative_scales(errors, prices, power, largest=largest).tolist()

    def build(s: float) -> Strategy:
        built = tuple(p.build(s * r) for p, r in zip(pieces, scales, strict=True))
        return built[0] if len(built) == 1 else Stacked(built, title, largest)

    return Design(mechanism, build, max(p.fine / r for p, r in zip(pieces, scales, strict=True)), bound)
