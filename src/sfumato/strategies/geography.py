"""Tables at the levels of a tree, at one multiple each, read back by least squares up and down the tree.

What is measured at a level, whole tables or their residuals, says of every residual S how precisely each group is known
there: a[l, S]. Residuals are independent, so each has a tree of its own, over which all its contrasts pass at once. A
table at a level is the sum of its residuals there, so all levels agree, and so do all tables.

A query is a factor over the tree beside factors over other attributes. Its variance is that of what the factor sees of
every residual: the groups of a level at once, sums of cells through the covariances with their common ancestors.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sfumato._util.codec import deferred_field, storable
from sfumato._util.files import release_pages
from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import Block, Grouping, Identity, LinearOperator, Residual, Scaled
from sfumato.operators.base import FloatArray, Numbers
from sfumato.strategies.covariance import centred_cross_product, check_covariance_size, component_powers
from sfumato.strategies.design import Problem
from sfumato.strategies.geography_tree import GroupTree, IntArray, Passes, PlaceOrder
from sfumato.strategies.strategy import Estimate, KnownGroups, Strategy
from sfumato.workloads import RECORDS, QueryBlock, QueryFamily, Workload

Sets = tuple[int, ...]
"""Ascending positions of attributes in a domain."""


@dataclass(frozen=True, eq=False, slots=True)
class AskedLevels:
    """place: the position of the attribute with levels; levels: of every level below the root its operator over cells.

    tables: (level, set of the other attributes) to the weight of each query of that table; tree: of all levels asked.
    fixed: the level down to which totals of groups are known where that of all records is: 0 where it alone is.
    """

    place: int
    levels: tuple[LinearOperator, ...]
    tree: GroupTree
    tables: dict[tuple[int, Sets], float]
    sizes: tuple[int, ...]
    fixed: int = 0

    @classmethod
    def of(cls, problem: Problem) -> AskedLevels:
        """Raises PlanError for a workload that asks anything but tables at the levels of one attribute, or whose known
        totals are of other groups."""
        work = problem.workload
        place = level_attribute_position(work)
        if place is None:
            raise PlanError("no table is asked at a level of an attribute")
        totals = _known_group_totals(problem, place)
        levels, asked = level_tables(work, place, [k.operator for k in totals])
        weights = np.concatenate([problem.table_weights(item) for item in work.items]).tolist()
        tables: dict[tuple[int, Sets], float] = {}
        for table, weight in zip(asked, weights, strict=True):
            tables[table] = tables.get(table, 0.0) + weight
        tree, _ = GroupTree.of_codes(read_levels(levels))
        fixed = [i for i, f in enumerate(levels, 1) for k in totals if k.operator.shape == f.shape]
        return cls(place, levels, tree, tables, work.domain.shape, max(fixed, default=0))

    def contrasts(self, s: Sets) -> float:
        """How many independent contrasts the residual of a set has: prod (n - 1)."""
        return float(np.prod([self.sizes[i] - 1 for i in s]))

    def cells(self, s: Sets) -> float:
        """Cells of the table over a set: prod n."""
        return float(np.prod([self.sizes[i] for i in s]))

    def price(self, s: Sets) -> float:
        """What a unit of precision on the residual of a set costs: prod (n - 1) / n, the square of its columns."""
        return self.contrasts(s) / self.cells(s)

    def residuals(self) -> dict[Sets, FloatArray]:
        """Of every set below an asked table that has contrasts, (levels,): what a unit of variance at every node of a
        level adds to the objective, over all cells: sum over tables A of w_A prod_S (n - 1) / prod_(A - S) n."""
        out: dict[Sets, FloatArray] = {}
        for (level, table), weight in self.tables.items():
            for s in all_subsets(table):
                if self.contrasts(s) > 0:
                    rest = self.cells(table) / self.cells(s)
                    out.setdefault(s, np.zeros(self.tree.depth + 1))[level] += weight * self.contrasts(s) / rest
        return out


def all_subsets(members: Sets) -> Iterator[Sets]:
    """All subsets, the empty one first."""
    return itertools.chain.from_iterable(itertools.combinations(members, r) for r in range(len(members) + 1))


def level_attribute_position(work: Workload) -> int | None:
    """The position of the one attribute that is asked at levels; None where there is none, or several."""
    owners = {
        name
        for item in work.items
        for name, factor in _item_factors(item)
        if isinstance(factor, Grouping) and name is not None
    }
    return work.domain.names.index(owners.pop()) if len(owners) == 1 else None


def level_tables(
    work: Workload, place: int, also: Iterable[LinearOperator] = ()
) -> tuple[tuple[LinearOperator, ...], list[tuple[int, Sets]]]:
    """The operators of the levels below the root that are asked, and of others, coarse to fine; and of every table, in
    the order of the workload, its level and its set of other attributes. Raises PlanError for what is no table of cells
    at a level."""
    names = work.domain.names
    found = {key: operator for key, operator in map(_factor_level, also) if operator is not None}
    asked: list[tuple[bytes, Sets]] = []
    for q in (q for item in work.items for q in item.blocks()):
        if q.block.by_attribute() is None:
            raise PlanError("only tables of cells are answered from all levels of a tree together")
        factors = dict(zip(q.block.attributes, q.block.factors, strict=True))
        own = factors.pop(names[place], None)
        if not all(isinstance(f, Identity) for f in factors.values()) or q.unit != RECORDS:
            raise PlanError("only tables of cells are answered from all levels of a tree together")
        key, operator = _factor_level(own)
        if operator is not None:
            found.setdefault(key, operator)
        asked.append((key, tuple(sorted(names.index(a) for a in factors))))
    ordered = sorted(found, key=lambda k: found[k].shape[0])
    if len({found[k].shape[0] for k in ordered}) < len(ordered):
        raise PlanError("two levels of an attribute group its cells otherwise, in as many groups")
    number = {b"": 0} | {k: i + 1 for i, k in enumerate(ordered)}
    return tuple(found[k] for k in ordered), [(number[key], s) for key, s in asked]


def read_levels(levels: tuple[LinearOperator, ...]) -> list[IntArray]:
    """The group of every cell at every level."""
    return [f.codes if isinstance(f, Grouping) else np.arange(f.shape[1], dtype=np.int64) for f in levels]


def _known_group_totals(problem: Problem, place: int) -> list[KnownGroups]:
    found = [k for k in problem.known if isinstance(k, KnownGroups)]
    if len(found) < len(problem.known) or any(k.axis != place for k in found):
        raise PlanError("public totals are used where they are of groups of the attribute that is asked at levels")
    return found


def _item_factors(item: QueryBlock | QueryFamily) -> Iterator[tuple[str | None, LinearOperator]]:
    if isinstance(item, QueryFamily):
        yield from ((item.family.names[i], item.family.factors[i]) for i in np.unique(item.family.sets).tolist())
    else:
        groups = zip(item.block.groups, item.block.factors, strict=True)
        yield from ((g[0] if len(g) == 1 else None, f) for g, f in groups)


def _factor_level(factor: LinearOperator | None) -> tuple[bytes, LinearOperator | None]:
    """A name for the level that a factor over cells stands for, and its operator; none for all records together."""
    if factor is None:
        return b"", None
    if isinstance(factor, Identity):
        return b"cells", factor
    if not isinstance(factor, Grouping) or int(factor.codes.min()) < 0:
        raise PlanError("only tables of cells are answered from all levels of a tree together")
    return (b"", None) if factor.groups == 1 else (factor.codes.tobytes(), factor)


_TOGETHER = 2**21  # numbers of one array that are smoothed together: 16 MB


@storable
@dataclass(frozen=True, eq=False)
class Spine(Strategy):
    """`multiples[k]` times the table, or the residual, of the set `sets[k]` at level `at[k]`, in every group there.

    levels: the operators of the levels below the root over the cells of the attribute at `place`, each inside the one
    before. sets: ascending positions of other attributes. Level 0 is all records. known: the public totals of the
    groups of one of the levels.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    place: int
    levels: tuple[LinearOperator, ...]
    at: tuple[int, ...]
    sets: tuple[tuple[int, ...], ...]
    multiples: tuple[int, ...]
    residual: bool = False
    public_total: bool = False
    known: tuple[KnownGroups, ...] = deferred_field(())

    def __post_init__(self) -> None:
        if not len(self.at) == len(self.sets) == len(self.multiples) or not all(m > 0 for m in self.multiples):
            raise PlanError("tables at levels need a level, a set and one positive multiple each")
        if not all(0 <= level <= len(self.levels) for level in self.at):
            raise PlanError(f"levels are numbered from 0 to {len(self.levels)}")
        if any(list(s) != sorted(set(s)) or self.place in s for s in self.sets):
            raise PlanError("sets are ascending positions of attributes other than the one with levels")
        if self.known and not (self.public_total and len(self.known) == 1 and self.known[0].axis == self.place):
            raise PlanError("the totals of one level's groups are known where that of all records is")

    @property
    def blocks(self) -> tuple[Block, ...]:
        return self._blocks

    @functools.cached_property
    def _blocks(self) -> tuple[Block, ...]:
        own = self.names[self.place]
        out: list[Block] = []
        for level, s, m in zip(self.at, self.sets, self.multiples, strict=True):
            groups = [(own,)] * bool(level) + [(self.names[i],) for i in s]
            factors = [self.levels[level - 1]] if level else []
            factors += [Residual(self.shape[i]) if self.residual else Identity(self.shape[i]) for i in s]
            out.append(Block((*groups, ()), (*factors, Scaled(Identity(1), m))))
        return tuple(out)

    @property
    def summary(self) -> str:
        kind = "residuals" if self.residual else "tables"
        count = len(dict.fromkeys(self.at))
        return f"{len(self.at):,} {kind} at {count} levels of {self.names[self.place]}, by least squares on the tree"

    @property
    def legend(self) -> Mapping[str, IntArray]:
        """The level of every block, 0 for all records, and what its counts were multiplied by."""
        return {"levels": np.array(self.at, dtype=np.int64), "multiples": np.array(self.multiples, dtype=np.int64)}

    @property
    def max_abs(self) -> int:
        pairs = zip(self.sets, self.multiples, strict=True)
        return max(m * math.prod(self.shape[i] - 1 if self.residual else 1 for i in s) for s, m in pairs)

    # -- how precisely everything is known -------------------------------------------------------------------

    @functools.cached_property
    def places(self) -> PlaceOrder:
        """The tree, and how it reads factors over its attribute."""
        return PlaceOrder.of(read_levels(self.levels), self.shape[self.place])

    @functools.cached_property
    def totals(self) -> tuple[FloatArray, ...]:
        """The known totals of the groups of every level down to one, (groups, 1) in the order of the tree; none where
        that of all records alone is known, and to nobody before the release."""
        return self.places.totals(self.known)

    @functools.cached_property
    def precisions(self) -> dict[Sets, FloatArray]:
        """Per residual (levels,) the precision of each group's; infinite for known totals."""
        out: dict[Sets, FloatArray] = {}
        for level, s, m in zip(self.at, self.sets, self.multiples, strict=True):
            cells = math.prod(self.shape[i] for i in s)
            for inside in (s,) if self.residual else all_subsets(s):
                held = math.prod(self.shape[i] for i in inside)
                own = float(m * cells) ** 2 if self.residual else float(m) ** 2 * held / cells
                out.setdefault(inside, np.zeros(len(self.levels) + 1))[level] += own
        if self.public_total:
            out.setdefault((), np.zeros(len(self.levels) + 1))[: max(1, len(self.totals))] = np.inf
        return out

    def depth(self, s: Sets) -> int:
        """The deepest level at which a residual is measured; -1 where it is at none."""
        return int(np.flatnonzero(self.precisions[s]).max()) if s in self.precisions else -1

    @functools.cached_property
    def _passes(self) -> dict[Sets, Passes]:
        return {}

    def passes(self, s: Sets) -> Passes:
        """The tree of a residual, down to where it is measured."""
        if s not in self._passes:
            depth = self.depth(s)
            rows = [np.array([[a]]) for a in self.precisions[s][: depth + 1]]
            self._passes[s] = Passes.of(self.places.tree.cut(depth), rows)
        return self._passes[s]

    # -- queries -----------------------------------------------------------------------------------------------

    def _split(self, query: Block) -> tuple[LinearOperator | None, int | None, Block]:
        """The factor over the tree and where it stands among the factors; and the rest of a query."""
        own = self.names[self.place]
        unknown = [a for a in query.attributes if a not in self.names]
        if unknown:
            raise NotAnswerable(f"nothing about {', '.join(unknown)} was measured")
        found = [i for i, g in enumerate(query.groups) if own in g]
        if not found:
            return None, None, query
        at = found[0]
        if len(query.groups[at]) > 1:
            others = ", ".join(a for a in query.groups[at] if a != own)
            raise NotAnswerable(
                f"a query that joins {own} and {others} in other ways than by 'and' is a sum of several; ask these by "
                "themselves"
            )
        rest = [i for i in range(len(query.groups)) if i != at]
        return query.factors[at], at, Block(tuple(query.groups[i] for i in rest), tuple(query.factors[i] for i in rest))

    def _needed(self, factor: LinearOperator | None, rest: Block) -> Iterator[tuple[Sets, list[FloatArray]]]:
        """Residuals that a query needs, and the sums of squares of what each factor of `rest` sees of them."""
        level = self.places.level_of(factor)
        groups = [tuple(self.names.index(a) for a in g) for g in rest.groups]
        parts = [
            component_powers(f, tuple(self.shape[i] for i in g), 2) for g, f in zip(groups, rest.factors, strict=True)
        ]
        held = tuple(sorted(i for g in groups for i in g))
        for s in all_subsets(held):
            chosen = [p[tuple(k for k, i in enumerate(g) if i in s)] for p, g in zip(parts, groups, strict=True)]
            if any(not c.any() for c in chosen):
                continue
            if self.depth(s) < level:
                named = ", ".join(self.names[i] for i in s) or "all records"
                raise NotAnswerable(f"the table of {named} was not measured at so fine a level of {self._owner}")
            yield s, chosen

    @property
    def _owner(self) -> str:
        return self.names[self.place]

    def check(self, query: Block) -> None:
        factor, _, rest = self._split(query)
        for _ in self._needed(factor, rest):
            pass

    def row_powers(self, query: Block, power: int) -> FloatArray:
        if power != 2:
            raise PlanError("tables at levels are measured with Gaussian noise, whose shape needs no fourth powers")
        factor, at, rest = self._split(query)
        count = len(query.factors)
        where = [i for i in range(count) if i != at]
        out = np.zeros((1,) * count)
        for s, chosen in self._needed(factor, rest):
            term = np.ones((1,) * count)
            for i, c in zip(where, chosen, strict=True):
                term = term * c.reshape([-1 if k == i else 1 for k in range(count)])
            own = self.places.variances(factor, self.passes(s))
            out = out + term * own.reshape([-1 if k == at else 1 for k in range(count)])
        return out

    def covariance(self, first: Block, second: Block) -> FloatArray:
        check_covariance_size(first.rows, second.rows)
        (one, here, ours), (other, there, theirs) = self._split(first), self._split(second)
        self.check(first)
        self.check(second)
        common = tuple(sorted({self.names.index(a) for a in ours.attributes if a in theirs.attributes}))
        sizes = dict(zip(self.names, self.shape, strict=True))
        out = np.zeros((1, 1, 1, 1))
        for s in all_subsets(common):
            if s not in self.precisions:
                continue
            term = centred_cross_product(ours, theirs, sizes, [self.names[i] for i in s])
            if term.any():
                own = self.places.covariances(one, other, self.passes(s))
                out = out + own[:, None, :, None] * term[None, :, None, :]
        (a, b, c, d) = out.shape
        rows = _reorder_query_rows(np.arange(a * b).reshape(a, b), here, first)
        columns = _reorder_query_rows(np.arange(c * d).reshape(c, d), there, second)
        return np.broadcast_to(out, (a, b, c, d)).reshape(a * b, c * d)[np.ix_(rows, columns)]

    # -- the way back ---------------------------------------------------------------------------------------------

    def estimate(self, values: Sequence[Numbers], total: int | None) -> Estimate:
        """The residuals are smoothed when they are first asked for."""
        return _SmoothedLevels(self, tuple(values), total, {})

    def answer(self, estimate: Estimate, query: Block) -> FloatArray:
        factor, at, rest = self._split(query)
        groups = [tuple(self.names.index(a) for a in g) for g in rest.groups]
        first = 1 if at is None else query.factors[at].shape[0]
        out = np.zeros((first, *(f.shape[0] for f in rest.factors)))
        for s, _ in self._needed(factor, rest):
            nodes = self.places.apply(factor, functools.partial(estimate.level, s))
            out += self._expanded(nodes, s, groups, rest)
        return np.ascontiguousarray(out if at is None else np.moveaxis(out, 0, at)).reshape(-1)

    def _expanded(self, nodes: FloatArray, s: Sets, groups: Sequence[Sets], rest: Block) -> FloatArray:
        """(rows, rows of each factor of `rest`) what the factors make of a residual (rows, cells of the set)."""
        order = [i for g in groups for i in g]
        kept = [i for i in order if i in s]
        table = nodes.reshape(len(nodes), *(self.shape[i] for i in s))
        table = table.transpose([0, *(1 + s.index(i) for i in kept)])
        table = table.reshape(len(nodes), *(self.shape[i] if i in s else 1 for i in order))
        axis = 1
        for g, f in zip(groups, rest.factors, strict=True):
            if isinstance(f, Identity) and len(g) == 1:
                # spread evenly where the residual does not vary, by broadcasting
                table = table if g[0] in s else table / self.shape[g[0]]
                axis += 1
                continue
            sizes = [self.shape[i] for i in g]
            even = math.prod(n for n, i in zip(sizes, g, strict=True) if i not in s)
            wide = np.broadcast_to(table, (*table.shape[:axis], *sizes, *table.shape[axis + len(g) :])) / even
            wide = wide.reshape(*table.shape[:axis], math.prod(sizes), *table.shape[axis + len(g) :])
            table = np.asarray(f.along(wide, axis), dtype=np.float64)
            axis += 1
        return table


@dataclass(frozen=True, eq=False, slots=True)
class _SmoothedLevels:
    """Measured values, and per residual the estimates at all its levels, (nodes, cells), in the order of the tree."""

    strategy: Spine
    values: tuple[Numbers, ...]
    total: int | None
    known: dict[Sets, list[FloatArray]]

    def level(self, s: Sets, level: int) -> FloatArray:
        """(groups of a level, cells of the set)."""
        if s not in self.known:
            self.known[s] = self._solved(s)
        return self.strategy.places.placed(level, self.known[s][level])

    def _solved(self, s: Sets) -> list[FloatArray]:
        made, passes = self.strategy, self.strategy.passes(s)
        width = math.prod(made.shape[i] for i in s)
        alone = (np.array([[float(self.total or 0)]]),) if made.public_total else ()
        known = () if s else made.totals or alone
        out = [np.zeros((len(own), width)) for own in passes.within]
        levels: set[int] = set()
        for level, times, start, rows in self._given(s):
            levels.add(level)
            out[level][start : start + len(rows)] += rows * times
        # some cells at a time, in the order of the tree, each in the place of what was given
        step = max(1, min(width, _TOGETHER // len(out[-1])))
        for start in range(0, width, step):
            part = slice(start, min(start + step, width))
            given = [
                made.places.sorted(i, table[:, part]) if i in levels or not levels else None
                for i, table in enumerate(out)
            ]
            for into, found in zip(out, passes.solve(given, known), strict=True):
                into[:, part] = found
        # least squares commutes with taking contrasts
        for table in out:
            self._contrasts(table, s)
        return out

    def _given(self, s: Sets) -> Iterator[tuple[int, float, int, FloatArray]]:
        """Level, factor, first group, and (groups, cells of the set), some groups at a time as they may lie in a file:
        precision times value of all that was measured of a residual, as yet with what belongs to smaller sets."""
        made = self.strategy
        for level, own, m, values in zip(made.at, made.sets, made.multiples, self.values, strict=True):
            if (own != s) if made.residual else not set(s) <= set(own):
                continue
            sizes = [made.shape[i] for i in own]
            drop = tuple(1 + k for k, i in enumerate(own) if i not in s)
            table = np.asarray(values).reshape(-1, *sizes)
            # of the mean over what the set leaves out
            times = float(m) * (math.prod(sizes) if made.residual else 1.0) / math.prod(sizes[k - 1] for k in drop)
            step = max(1, _TOGETHER // math.prod(sizes))
            for start in range(0, len(table), step):
                rows = table[start : start + step].sum(axis=drop, dtype=np.float64)
                yield level, times, start, rows.reshape(len(rows), -1)
                release_pages(values)

    def _contrasts(self, rows: FloatArray, s: Sets) -> None:
        sizes = [self.strategy.shape[i] for i in s]
        step = max(1, _TOGETHER // rows.shape[1])
        for start in range(0, len(rows), step):
            table = rows[start : start + step].reshape(-1, *sizes)
            for axis in range(1, table.ndim):
                table -= table.mean(axis=axis, keepdims=True)


def _reorder_query_rows(numbers: IntArray, at: int | None, query: Block) -> IntArray:
    """Rows counted by (the tree's factor, the others) in the order of a query's own factors."""
    if at is None:
        return numbers.reshape(-1)
    sizes = [f.shape[0] for i, f in enumerate(query.factors) if i != at]
    return np.moveaxis(numbers.reshape(-1, *sizes), 0, at).reshape(-1)
