"""Trees of groups in groups, level by level; and the same with nodes merged that nothing tells apart.

The nodes of a level stand in the order of their parents, so that sums over children are sums over runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._util.bundles import shorten
from sfumato.domain import Domain
from sfumato.errors import PlanError
from sfumato.operators import Compose, Grouping, Identity, LinearOperator, Stack, Total
from sfumato.operators.base import DENSE_LIMIT, FloatArray, real_array
from sfumato.privacy.unit import Neighbours, PrivacyUnit, Within
from sfumato.strategies.strategy import KnownGroups

IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class GroupTree:
    """Level 0 is the root alone. Of every further level, per node:

    parents: its parent in the level above, ascending, every parent at least once; kids: how many such nodes each
    parent has. counts: of every level, how many nodes of the plain tree a node stands for.
    """

    parents: tuple[IntArray, ...]
    kids: tuple[FloatArray, ...]
    counts: tuple[FloatArray, ...]
    starts: tuple[IntArray, ...]

    @classmethod
    def of(cls, parents: Sequence[IntArray], kids: Sequence[FloatArray] | None = None) -> GroupTree:
        """From the parents of every level below the root; one node of each kind unless `kids` are given."""
        given = [np.ones(len(p)) for p in parents] if kids is None else list(kids)
        counts = [np.ones(1)]
        for p, k in zip(parents, given, strict=True):
            counts.append(counts[-1][p] * k)
        starts = tuple(np.concatenate([[0], np.flatnonzero(np.diff(p)) + 1]).astype(np.int64) for p in parents)
        return cls(tuple(parents), tuple(given), tuple(counts), starts)

    @classmethod
    def of_codes(cls, codes: Sequence[IntArray]) -> tuple[GroupTree, list[IntArray]]:
        """From the group of every cell at every level below the root, coarse to fine; the last has all that is told.

        Also returns, per level, the nodes in the tree's order: `order[i]` is the group that stands at place i.
        Raises PlanError for levels that do not lie in each other.
        """
        order, parents = [np.zeros(1, dtype=np.int64)], list[IntArray]()
        place = np.zeros(len(codes[0]) if codes else 1, dtype=np.int64)
        for groups in codes:
            count = int(groups.max()) + 1
            parent = np.full(count, -1, dtype=np.int64)
            parent[groups] = place
            if (parent[groups] != place).any() or int(parent.min()) < 0:
                raise PlanError("these levels do not lie in each other: a group of the finer is in two of the coarser")
            nodes = np.argsort(parent, kind="stable")
            order.append(nodes)
            parents.append(parent[nodes])
            rank = np.empty(count, dtype=np.int64)
            rank[nodes] = np.arange(count)
            place = rank[groups]
        return cls.of(parents), order

    @property
    def depth(self) -> int:
        """Number of levels below the root."""
        return len(self.parents)

    def cut(self, depth: int) -> GroupTree:
        """The levels down to one of them."""
        return GroupTree(self.parents[:depth], self.kids[:depth], self.counts[: depth + 1], self.starts[:depth])

    def sums(self, level: int, values: FloatArray) -> FloatArray:
        """(nodes of the level above, ...) sums over children of values over a level below the root, (nodes, ...)."""
        return np.add.reduceat(values, self.starts[level - 1], axis=0)

    def run(self, level: int, parent: int) -> tuple[int, int]:
        """The children [first, last) at a level below the root of one node above."""
        starts = self.starts[level - 1]
        last = len(self.parents[level - 1]) if parent + 1 == len(starts) else int(starts[parent + 1])
        return int(starts[parent]), last

    def branch(self, level: int, node: int) -> tuple[GroupTree, list[int]]:
        """What lies below one node of a level as a tree of its own, with that node as its root, and the place of the
        first node of each of its levels in this tree. For trees of one node of each kind."""
        first, last = node, node + 1
        parents, places = list[IntArray](), [node]
        for below in range(level + 1, self.depth + 1):
            above = first
            first, last = self.run(below, first)[0], self.run(below, last - 1)[1]
            parents.append(self.parents[below - 1][first:last] - above)
            places.append(first)
        return GroupTree.of(parents), places

    def merged(self) -> GroupTree:
        """The same tree with nodes merged that have equal subtrees and equal ancestors' subtrees.

        Whatever is decided by levels alone is equal on them.
        """
        kinds = [np.zeros(len(self.counts[-1]), dtype=np.int64)]
        for level in range(self.depth, 0, -1):
            kinds.append(self._kinds(level, kinds[-1]))
        kinds.reverse()
        parents, kids = list[IntArray](), list[FloatArray]()
        home, width = np.zeros(1, dtype=np.int64), 1
        for level in range(1, self.depth + 1):
            kind = kinds[level]
            pair = home[self.parents[level - 1]] * (int(kind.max()) + 1) + kind
            found, new, number = np.unique(pair, return_inverse=True, return_counts=True)
            above = found // (int(kind.max()) + 1)
            # of a merged parent all that it stands for have as many children of the kind
            size = np.bincount(home, minlength=width)
            parents.append(above)
            kids.append(number / size[above])
            home, width = new.reshape(-1), len(found)
        return GroupTree.of(parents, kids)

    def _kinds(self, level: int, below: IntArray) -> IntArray:
        """(nodes above the level,) numbers of kinds: nodes whose children are the same number of the same kinds."""
        starts = self.starts[level - 1]
        if not below.any():
            return np.unique(np.diff(np.append(starts, len(below))), return_inverse=True)[1].reshape(-1)
        order = np.lexsort((below, self.parents[level - 1]))
        sorted_ = below[order]
        known: dict[bytes, int] = {}
        ends = np.append(starts[1:], len(below)).tolist()
        keys = (sorted_[a:b].tobytes() for a, b in zip(starts.tolist(), ends, strict=True))
        return np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int64)


@dataclass(frozen=True, eq=False, slots=True)
class Passes:
    """What the precisions of measurements alone decide, for several columns of them at once.

    Per level (nodes, columns) or (1, columns): `within`, the variance of a node from its own subtree; `spread`, that of
    the sum of its children (of levels above the last); `variances`, that of the estimate from all.
    """

    tree: GroupTree
    within: tuple[FloatArray, ...]
    spread: tuple[FloatArray, ...]
    variances: tuple[FloatArray, ...]

    @classmethod
    def of(cls, tree: GroupTree, precisions: Sequence[FloatArray]) -> Passes:
        """precisions: per level (nodes or 1, columns). That of the last is positive; an infinite one is exact."""
        depth = tree.depth
        own: list[FloatArray] = [np.zeros((0, 0))] * (depth + 1)
        spread: list[FloatArray] = [np.zeros((0, 0))] * depth
        nodes = len(tree.counts[depth])
        own[depth] = np.broadcast_to(1.0 / precisions[depth], (nodes, precisions[depth].shape[1]))
        for level in range(depth, 0, -1):
            spread[level - 1] = tree.sums(level, tree.kids[level - 1][:, None] * own[level])
            with np.errstate(divide="ignore"):
                own[level - 1] = 1.0 / (precisions[level - 1] + 1.0 / spread[level - 1])
        found = [own[0]]
        for level in range(1, depth + 1):
            share = _share_of_spread(own[level], spread[level - 1][tree.parents[level - 1]])
            found.append(own[level] * (1.0 - share) + share**2 * found[-1][tree.parents[level - 1]])
        return cls(tree, tuple(own), tuple(spread), tuple(found))

    def share(self, level: int) -> FloatArray:
        """(nodes, columns) of a level below the root: what a node takes of what its parent's sum is off by."""
        return _share_of_spread(self.within[level], self.spread[level - 1][self.tree.parents[level - 1]])

    def solve(self, given: Sequence[FloatArray | None], known: Sequence[FloatArray] = ()) -> list[FloatArray]:
        """Per level (nodes, c): the covariance of all nodes times `given`, precision times value of what was measured.

        For one column of precisions. given: per level (nodes, c), None for zeros; known: of the levels from the root on
        that are exact, their values (nodes, c).
        """
        tree, depth = self.tree, self.tree.depth
        width = next(g.shape[1] for g in given if g is not None)
        means: list[FloatArray] = []
        sums: list[FloatArray] = []
        below: FloatArray | None = None
        for level in range(depth, -1, -1):
            own = given[level]
            mean = np.zeros((len(tree.counts[level]), width)) if own is None else np.array(own, dtype=np.float64)
            if below is not None:
                total = tree.sums(level + 1, below)
                sums.append(total)
                with np.errstate(divide="ignore", invalid="ignore"):
                    mean += np.where(self.spread[level] > 0, total / self.spread[level], 0.0)
            mean *= self.within[level]
            means.append(mean)
            below = mean
        means.reverse()
        sums.reverse()
        exact = zip(known, means, strict=False)
        out = [np.broadcast_to(k, m.shape).astype(np.float64) for k, m in exact] or [means[0]]
        for level in range(len(out), depth + 1):
            parents = tree.parents[level - 1]
            out.append(means[level] + self.share(level) * (out[-1] - sums[level - 1])[parents])
        return out


def _share_of_spread(own: FloatArray, spread: FloatArray) -> FloatArray:
    with np.errstate(invalid="ignore"):
        return np.where(spread > 0, own / spread, 0.0)


def variance_slopes(passes: Passes, weights: Sequence[FloatArray]) -> list[FloatArray]:
    """Per level (nodes, columns): minus the derivative of sum weights * variances by the precision of all such nodes.

    weights: per level (nodes or 1, columns), for all nodes that one stands for together.
    """
    tree, depth = passes.tree, passes.tree.depth
    shape = passes.within[0].shape[1]
    of_variance = [np.array(np.broadcast_to(w, (len(c), shape))) for w, c in zip(weights, tree.counts, strict=True)]
    of_own: list[FloatArray] = [np.zeros((0, 0))] * (depth + 1)
    of_spread: list[FloatArray] = [np.zeros((0, 0))] * depth
    for level in range(depth, 0, -1):
        parents, bar = tree.parents[level - 1], of_variance[level]
        share = passes.share(level)
        spread, above = passes.spread[level - 1][parents], passes.variances[level - 1][parents]
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.where(spread > 0, above / spread, 0.0)
        of_variance[level - 1] += tree.sums(level, bar * share**2)
        of_own[level] = bar * (1.0 - 2.0 * share * (1.0 - ratio))
        of_spread[level - 1] = tree.sums(level, bar * share**2 * (1.0 - 2.0 * ratio))
    of_own[0] = of_variance[0]
    out: list[FloatArray] = []
    for level in range(depth + 1):
        if level:
            of_own[level] += tree.kids[level - 1][:, None] * of_spread[level - 1][tree.parents[level - 1]]
        # within = 1 / (precision + 1 / spread)
        out.append(of_own[level] * passes.within[level] ** 2)
        if level < depth:
            of_spread[level] += of_own[level] * _share_of_spread(passes.within[level], passes.spread[level]) ** 2
    return out


_TOGETHER = DENSE_LIMIT // 16  # numbers of rows over the tree that are passed through it at once: 16 MB

Factor = LinearOperator | None
"""Over the cells of the attribute with levels; None for all of them together."""


@dataclass(frozen=True, eq=False, slots=True)
class _LevelRows:
    """A level, and rows over the groups there: all of them where `factor` is None; else the factor's, which stands over
    groups, or over cells of which `first` has one for every group."""

    level: int
    factor: Factor = None
    first: IntArray | None = None

    def rows(self, start: int, stop: int, groups: int) -> FloatArray:
        """(stop - start, groups)"""
        if self.factor is None:
            return np.eye(stop - start, groups, start)
        found = self.factor.rows(start, stop)
        return found if self.first is None else found[:, self.first]

    def apply(self, values: FloatArray) -> FloatArray:
        """(groups, c) -> (rows, c)"""
        if self.factor is None:
            return values
        if self.first is not None:
            spread = np.zeros((self.factor.shape[1], values.shape[1]))
            spread[self.first] = values
            values = spread
        return np.asarray(self.factor.matvec(values), dtype=np.float64)


@dataclass(frozen=True, eq=False, slots=True)
class PlaceOrder:
    """order: per level the group that stands at each place of the tree, and whether that is its number (`plain`).

    codes: the group of every cell at every level below the root.
    """

    tree: GroupTree
    order: tuple[IntArray, ...]
    codes: tuple[IntArray, ...]
    cells: int
    plain: tuple[bool, ...]
    known: dict[int, tuple[Factor, _LevelRows]]

    @classmethod
    def of(cls, codes: list[IntArray], cells: int) -> PlaceOrder:
        """Raises PlanError for levels that do not lie in each other."""
        tree, order = GroupTree.of_codes(codes)
        plain = tuple(bool((np.diff(o) > 0).all()) for o in order)
        return cls(tree, tuple(order), tuple(codes), cells, plain, {})

    def sorted(self, level: int, rows: FloatArray) -> FloatArray:
        """Rows by group in the order of the tree."""
        return rows if self.plain[level] else rows[self.order[level]]

    def placed(self, level: int, rows: FloatArray) -> FloatArray:
        """Rows in the order of the tree by group."""
        if self.plain[level]:
            return rows
        out = np.empty_like(rows)
        out[self.order[level]] = rows
        return out

    def totals(self, known: Sequence[KnownGroups]) -> tuple[FloatArray, ...]:
        """The known totals of the groups of every level from the root down to that which has them, (groups, 1) in the
        order of the tree; none where nothing is known."""
        held = [(i, k) for k in known for i, c in enumerate(self.codes, 1) if k.settles(Grouping(c, int(c.max()) + 1))]
        if not held:
            return tuple(np.array([[k.counts.sum()]]) for k in known)
        level, found = max(held, key=lambda pair: pair[0])
        first = np.unique(found.codes, return_index=True)[1]
        sums = np.zeros(len(self.order[level]))
        np.add.at(sums, self.codes[level - 1][first], found.counts)
        out = [self.sorted(level, sums[:, None])]
        for above in range(level, 0, -1):
            out.insert(0, self.tree.sums(above, out[0]))
        return tuple(out)

    # -- reading factors ---------------------------------------------------------------------------------------

    def level_of(self, factor: Factor) -> int:
        """The level that has to be known; one more than there are for what is finer than all."""
        return max(self._read(part).level for part in _flatten_stack(factor))

    def _read(self, factor: Factor) -> _LevelRows:
        """The coarsest level whose groups a factor does not tell apart inside, and its rows there."""
        if factor is None or isinstance(factor, Total):
            return _LevelRows(0)
        if id(factor) not in self.known:
            # the factor is kept, so that no other gets its number
            self.known[id(factor)] = factor, self._found(factor)
        return self.known[id(factor)][1]

    def _found(self, factor: LinearOperator) -> _LevelRows:
        right = factor.right if isinstance(factor, Compose) else factor
        if isinstance(right, Identity | Grouping):
            codes = right.codes if isinstance(right, Grouping) else np.arange(self.cells, dtype=np.int64)
            for level, own in enumerate(self.codes, 1):
                if len(self.order[level]) == right.shape[0] and np.array_equal(own, codes):
                    return _LevelRows(level, factor.left if isinstance(factor, Compose) else None)
        for level in range(len(self.codes) + 1):
            codes = self.codes[level - 1] if level else np.zeros(self.cells, dtype=np.int64)
            first = np.unique(codes, return_index=True)[1]
            if len(first) == self.cells or _is_constant_on_groups(factor, codes, first):
                return _LevelRows(level, factor, first)
        return _LevelRows(len(self.codes) + 1)

    # -- what they see -------------------------------------------------------------------------------------------

    def apply(self, factor: Factor, nodes: Callable[[int], FloatArray]) -> FloatArray:
        """(rows, c) of a factor, from (groups, c) of any level."""
        found = [read.apply(nodes(read.level)) for read in map(self._read, _flatten_stack(factor))]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def variances(self, factor: Factor, passes: Passes) -> FloatArray:
        """(rows,) variances, w Cov wᵀ, of every row w of a factor."""
        out: list[FloatArray] = []
        for part in _flatten_stack(factor):
            read = self._read(part)
            if part is None or read.factor is None:
                out.append(self.placed(read.level, passes.variances[read.level][:, 0]))
                continue
            for a, b in self._chunks(part, read):
                rows = self._rows(read, a, b)
                out.append((rows * self._pass(read, rows, passes)[read.level]).sum(axis=0))
        return np.concatenate(out)

    def covariances(self, first: Factor, second: Factor, passes: Passes) -> FloatArray:
        """w Cov zᵀ of all rows w and z: (rows of first, rows of second)."""
        columns: list[FloatArray] = []
        for part in _flatten_stack(second):
            read = self._read(part)
            # the levels that the rows of the first stand on, from one pass of the second's
            needed = sorted({self._read(p).level for p in _flatten_stack(first)})
            for a, b in self._chunks(part, read):
                solved = self._pass(read, self._rows(read, a, b), passes)
                at = {level: self.placed(level, solved[level]) for level in needed}
                columns.append(self.apply(first, at.__getitem__))
        return np.concatenate(columns, axis=1)

    def _rows(self, read: _LevelRows, start: int, stop: int) -> FloatArray:
        """(groups, rows) in the order of the tree."""
        return self.sorted(read.level, read.rows(start, stop, len(self.order[read.level])).T)

    @staticmethod
    def _pass(read: _LevelRows, rows: FloatArray, passes: Passes) -> list[FloatArray]:
        given: list[FloatArray | None] = [None] * len(passes.within)
        given[read.level] = rows
        return passes.solve(given)

    def _chunks(self, part: Factor, read: _LevelRows) -> list[tuple[int, int]]:
        count = len(self.order[read.level]) if part is None or read.factor is None else part.shape[0]
        step = max(1, _TOGETHER // max(self.cells, len(self.order[-1])))
        return [(a, min(a + step, count)) for a in range(0, count, step)]


def _flatten_stack(factor: Factor) -> list[Factor]:
    return [p for part in factor.parts for p in _flatten_stack(part)] if isinstance(factor, Stack) else [factor]


def _is_constant_on_groups(factor: LinearOperator, codes: IntArray, first: IntArray) -> bool:
    """Whether the rows of a factor are alike on all cells of a group."""
    for a, b in factor.row_chunks():
        rows = factor.rows(a, b)
        if not np.array_equal(rows[:, first][:, codes], rows):
            return False
    return True


WITHIN = " within "
"""Between a relation and the name of the groups in which records are replaced."""


def neighbour_relation(unit: PrivacyUnit) -> str:
    """The neighbour relation as `read_unit` reads it."""
    return unit.neighbours.value + (f"{WITHIN}{unit.within.name}" if unit.within else "")


def read_unit(
    neighbours: str | Neighbours, person: str | None, rows_per_person: int, domain: Domain | None
) -> PrivacyUnit:
    """The privacy unit of a relation, "replace-one within" a level or attribute of the domain among them.

    Raises PlanError; DomainError for a name that the domain does not have.
    """
    text, _, name = neighbours.partition(WITHIN) if isinstance(neighbours, str) else (neighbours, "", "")
    found = Neighbours.parse(text)
    if not name:
        return PrivacyUnit(found, person, rows_per_person)
    if found is not Neighbours.REPLACE_ONE or person is not None:
        raise PlanError(
            f"{neighbours!r}: records are replaced within groups under 'replace-one' alone, and without person=; "
            "how many records a group has would change otherwise, so its total could not be public"
        )
    if domain is None:
        raise PlanError(f"{neighbours!r} is for tables of cells at levels; elsewhere say 'replace-one'")
    return PrivacyUnit(found, None, rows_per_person, _read_within(domain, name))


def _read_within(domain: Domain, name: str) -> Within:
    level, owner = domain.grouping(name), domain.owner(name)
    codes = np.arange(domain[owner].size, dtype=np.int64) if level is None else np.array(level.groups, dtype=np.int64)
    if not domain.grid.keeps_groups(domain.axis(owner), codes):
        raise PlanError(
            f"some cells are impossible whatever else a record of their {name} says, so that it counts in "
            f"another {name}; its total cannot be public then: leave out the predicates over {owner}"
        )
    return Within.of(name, owner, codes, domain[owner].rule)


def read_totals(domain: Domain, within: Within, public: Mapping[Any, Any] | None) -> KnownGroups:
    """The totals of the groups in which records are replaced, {(name,): counts}: whole numbers, one for every group.

    Raises PlanError where these are not given, or other tables are, or what the domain declares impossible.
    """
    name, codes = within.name, within.codes
    assert codes is not None
    groups = int(codes.max()) + 1
    given = {(k,) if isinstance(k, str) else tuple(k): v for k, v in (public or {}).items()}
    if list(given) != [(name,)]:
        raise PlanError(
            f"neighbours='replace-one within {name}' makes the totals of {name} public, and nothing else: give them, "
            f"and them alone, as public={{({name!r},): counts}}"
        )
    totals = given[name,]
    counts = None if isinstance(totals, Mapping) else real_array(totals, f"the public totals of {name}")
    if counts is None or counts.shape != (groups,):
        last = ", '(other)' last" if domain[name].has_other else ""
        raise PlanError(
            f"the public totals of {name} are a list of {groups:,} numbers, in the order of its groups{last}, not "
            f"{shorten(totals)}"
        )
    counts = counts.astype(np.float64)
    if not np.all(np.isfinite(counts)) or (counts < 0).any() or (counts != np.rint(counts)).any():
        raise PlanError(f"the public totals of {name} must be whole numbers that are not negative")
    possible = domain.possible([name])
    if possible is not None and counts[~possible].any():
        at = int(np.flatnonzero(~possible & (counts > 0))[0])
        raise PlanError(
            f"the public total of {name} = {domain[name].labels[at]} is {counts[at]:,.0f}, and the domain declares "
            "that impossible: one of them is wrong"
        )
    return KnownGroups(domain.axis(within.attribute), codes, counts)
