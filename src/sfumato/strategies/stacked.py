"""Several strategies measured together, each query answered by the one that answers it best; and joined attributes.

Attributes that some query joins are taken as one, so that planners of products serve such queries too. A difference
a - b, or a sum a + b of at most c, is no product of a map of a and one of b. Over the pairs of their cells it is a
matrix like any other. So the pair is made one attribute, the workload is written over the domain that has it in place
of the two, and what is planned there is measured over the pair. The queries are the same, up to their order.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import deferred_field, storable, value_fingerprint
from sfumato.domain import Domain, Measure
from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import Block, Combination, Family, Identity, Kronecker, LinearOperator, OnMarginal
from sfumato.operators.base import FloatArray, Numbers
from sfumato.strategies.budget_split import relative_scales
from sfumato.strategies.covariance import agreement_levels, check_covariance_size
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.product import Product
from sfumato.strategies.strategy import Estimate, Strategy, query_key
from sfumato.workloads import QueryBlock, Workload

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
    def _holding(self) -> dict[str, list[int]]:
        """By attribute the pieces that hold it, ascending."""
        out: dict[str, list[int]] = {}
        for i, held in enumerate(self._held):
            for name in held:
                out.setdefault(name, []).append(i)
        return out

    @functools.cached_property
    def _chosen(self) -> dict[Hashable, _ChosenPiece | str]:
        """By key, the pieces of the queries asked about so far, or why none has them."""
        return {}

    def _found(self, query: Block) -> _ChosenPiece:
        """The piece of least variance for a query, looked for once."""
        key = query_key(query)
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
        # of hundreds of pieces few hold the rarest of the attributes
        some = min((self._holding.get(a, []) for a in asked), key=len, default=range(len(self.pieces)))
        for i in some:
            if not asked <= self._held[i]:
                continue
            try:
                powers = self.pieces[i].row_powers(query, 2)
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

    def rounding(self, query: Block, measures: Mapping[str, Measure]) -> FloatArray:
        return self.source(query).rounding(query, measures)

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


def piece_at_unit_price(design: Design, error: float, norm: float) -> StackedPiece:
    """A design of this norm at its fineness, scaled so that it costs 1 at s = 1, where it has this error."""
    return StackedPiece(functools.partial(_build_scaled, design.build, 1 / norm), error, 1.0, design.fine * norm)


def _build_scaled(build: Callable[[float], Strategy], unit: float, s: float) -> Strategy:
    return build(s * unit)


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


_MOST_TABLES = 512  # each is written as a block of its own
_MOST_CELLS = 4_096  # of attributes that are joined: the Gram of a query has the square of it, 128 MB


@dataclass(frozen=True, slots=True)
class _JoinedAttributes:
    """Some attributes as one: its name, theirs in the order of its cells, and how many cells each has."""

    name: str
    attributes: tuple[str, ...]
    sizes: tuple[int, ...]

    def over_all(self, groups: Sequence[tuple[str, ...]], factors: Sequence[LinearOperator]) -> LinearOperator:
        """Factors over some of the attributes as one map of all of them."""
        asked = tuple(a for g in groups for a in g)
        axes = tuple(self.attributes.index(a) for a in asked)
        if axes == tuple(range(len(self.attributes))) and all(isinstance(f, Identity) for f in factors):
            return Identity(math.prod(self.sizes))
        whole = factors[0] if len(factors) == 1 else Kronecker(tuple(factors))
        return whole if asked == self.attributes else OnMarginal(self.sizes, axes, whole)


class _LiftedBlock(NamedTuple):
    """A block over joined attributes, and per factor of it the numbers of the factors that it was made of."""

    block: Block
    places: tuple[tuple[int, ...], ...]


def _lift_block(block: Block, joined: Sequence[_JoinedAttributes]) -> _LiftedBlock:
    owner = {a: j for j in joined for a in j.attributes}
    places: dict[object, list[int]] = {}
    for i, group in enumerate(block.groups):
        # a factor over no attribute is of its own
        key = owner[group[0]].name if group and group[0] in owner else (group or i)
        places.setdefault(key, []).append(i)
    groups: list[tuple[str, ...]] = []
    factors: list[LinearOperator] = []
    for some in places.values():
        first = block.groups[some[0]]
        one = owner.get(first[0]) if first else None
        own = [block.groups[i] for i in some], [block.factors[i] for i in some]
        groups.append((one.name,) if one else first)
        factors.append(one.over_all(*own) if one else own[1][0])
    return _LiftedBlock(Block(tuple(groups), tuple(factors)), tuple(map(tuple, places.values())))


@storable
@dataclass(frozen=True, eq=False)
class Compound(Strategy):
    """A strategy over attributes of which some stand for several.

    names: of these; attributes: those that each stands for, in the order of its cells; sizes: their numbers of cells.
    """

    measured: Strategy
    names: tuple[str, ...]
    attributes: tuple[tuple[str, ...], ...]
    sizes: tuple[tuple[int, ...], ...]

    @functools.cached_property
    def _joined(self) -> tuple[_JoinedAttributes, ...]:
        return tuple(map(_JoinedAttributes, self.names, self.attributes, self.sizes))

    @functools.cached_property
    def _parts(self) -> tuple[tuple[Block, ...], ...]:
        """Per block or family of the strategy its blocks, each of which is measured by itself."""
        out: list[tuple[Block, ...]] = []
        for part in self.measured.blocks:
            assert isinstance(part, (Block, Family))  # combinations are not planned for products
            out.append((part,) if isinstance(part, Block) else tuple(part.blocks()))
        return tuple(out)

    @functools.cached_property
    def _blocks(self) -> tuple[Block, ...]:
        """What is measured, over the attributes themselves: the maps stay, their cells have the same order."""
        own = dict(zip(self.names, self.attributes, strict=True))
        out: list[Block] = []
        for block in (b for some in self._parts for b in some):
            groups = tuple(tuple(a for name in g for a in own.get(name, (name,))) for g in block.groups)
            out.append(Block(groups, block.factors))
        return tuple(out)

    @property
    def blocks(self) -> tuple[Block | Family | Combination, ...]:
        return self._blocks

    @property
    def summary(self) -> str:
        return self.measured.summary

    @property
    def max_abs(self) -> int:
        return self.measured.max_abs

    @functools.cached_property
    def _known_lifts(self) -> dict[int, tuple[Block, _LiftedBlock]]:
        return {}

    def _lift(self, query: Block) -> _LiftedBlock:
        held = self._known_lifts.get(id(query))
        if held is None or held[0] is not query:
            held = self._known_lifts[id(query)] = query, _lift_block(query, self._joined)
        return held[1]

    def check(self, query: Block) -> None:
        self.measured.check(self._lift(query).block)

    def row_powers(self, query: Block, power: int) -> FloatArray:
        block, places = self._lift(query)
        powers = self.measured.row_powers(block, power)
        shape: list[int] = []
        for length, some in zip(powers.shape, places, strict=True):
            shape += [1 if length == 1 else query.factors[i].shape[0] for i in some]
        return np.asarray(powers.reshape(shape).transpose(_inverse_axis_order(places)), dtype=np.float64)

    def row_errors(self, query: Block) -> tuple[float, float] | None:
        return self.measured.row_errors(self._lift(query).block)

    def covariance(self, first: Block, second: Block) -> FloatArray:
        (one, ours), (other, theirs) = self._lift(first), self._lift(second)
        found = self.measured.covariance(one, other)
        return found[np.ix_(_lifted_row_order(first, ours), _lifted_row_order(second, theirs))]

    def estimate(self, values: Sequence[Numbers], total: int | None) -> Estimate:
        given = iter(values)
        whole = [np.concatenate([np.asarray(next(given)).reshape(-1) for _ in some]) for some in self._parts]
        return self.measured.estimate(whole, total)

    def answer(self, estimate: Estimate, query: Block) -> FloatArray:
        block, places = self._lift(query)
        return self.measured.answer(estimate, block)[_lifted_row_order(query, places)]

    def bias_bound(self, query: Block) -> float:
        return self.measured.bias_bound(self._lift(query).block)


def _inverse_axis_order(places: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The axes of factors in the order of `places`, in the order of their numbers."""
    return tuple(np.argsort([i for some in places for i in some]).tolist())


def _lifted_row_order(query: Block, places: Sequence[tuple[int, ...]]) -> NDArray[np.intp]:
    """(rows,) the place of each row of a query among those of the lifted one."""
    shape = [query.factors[i].shape[0] for some in places for i in some]
    return np.arange(math.prod(shape)).reshape(shape).transpose(_inverse_axis_order(places)).reshape(-1)


def joined_attributes(workload: Workload) -> tuple[tuple[str, ...], ...]:
    """Attributes that factors join, one with the next or by way of others, each group in the order of the domain."""
    groups: list[set[str]] = []
    for item in workload.items:
        for joint in (set(g) for g in (item.block.groups if isinstance(item, QueryBlock) else ()) if len(g) > 1):
            near = [g for g in groups if g & joint]
            groups = [*(g for g in groups if not g & joint), joint.union(*near)]
    return tuple(map(workload.domain.ordered, groups))


def join_problem_attributes(problem: Problem) -> tuple[Problem, tuple[_JoinedAttributes, ...]]:
    """The problem over joined attributes, and these; the same problem where no query joins any.

    Raises PlanError where joined attributes have too many cells.
    """
    work, joint = problem.workload, joined_attributes(problem.workload)
    if not joint:
        return problem, ()
    if problem.known or work.tables > _MOST_TABLES:
        many = "public tables" if problem.known else f"{work.tables:,} tables, above {_MOST_TABLES:,},"
        raise PlanError(f"{many} beside queries that join attributes")
    found: list[_JoinedAttributes] = []
    for some in joint:
        sizes = work.domain.sizes(some)
        cells = math.prod(sizes)
        if cells > _MOST_CELLS:
            raise PlanError(f"queries join {', '.join(some)}, of {cells:,} cells, above the limit of {_MOST_CELLS:,}")
        name = " x ".join(some)
        while name in (*work.domain.names, *work.domain.levels, *(j.name for j in found)):
            name += "'"
        found.append(_JoinedAttributes(name, some, sizes))
    inside = {a for some in joint for a in some}
    kept = {n: a for n, a in work.domain.attributes.items() if n not in inside}
    over = Domain({**kept, **{j.name: math.prod(j.sizes) for j in found}})
    items = tuple(QueryBlock(q.part, _lift_block(q.block, found).block, q.weight, q.unit) for q in work.blocks)
    return replace(problem, workload=Workload(over, items)), tuple(found)


def planned_jointly(problem: Problem, planner: Callable[[Problem], Design]) -> Design:
    """What a planner of products finds over joined attributes, as a design for the problem as it is.

    Raises PlanError where the planner does, or `join_problem_attributes`.
    """
    whole, found = join_problem_attributes(problem)
    design = planner(whole)
    if not found:
        return design
    names, attributes, sizes = zip(*((j.name, j.attributes, j.sizes) for j in found), strict=True)

    def build(s: float) -> Compound:
        return Compound(design.build(s), names, attributes, sizes)

    return replace(design, build=build)
