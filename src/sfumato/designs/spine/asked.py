"""What a workload asks of a tree of groups: which tables at which of its levels, and with which weights."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from sfumato.designs.design import Problem
from sfumato.designs.known import KnownGroups
from sfumato.designs.spine.tree import IntArray, Tree
from sfumato.errors import PlanError
from sfumato.operators import Grouping, Identity, LinearOperator
from sfumato.operators.base import FloatArray
from sfumato.workloads import RECORDS, QueryBlock, QueryFamily, Workload

__all__ = ["Asked", "Sets", "level_tables", "place_of", "read_levels", "subsets"]

Sets = tuple[int, ...]
"""Ascending positions of attributes in a domain."""


@dataclass(frozen=True, eq=False, slots=True)
class Asked:
    """place: the position of the attribute with levels; levels: of every level below the root its operator over cells.

    tables: (level, set of the other attributes) to the weight of each query of that table; tree: of all levels asked.
    fixed: the level down to which totals of groups are known where that of all records is: 0 where it alone is.
    """

    place: int
    levels: tuple[LinearOperator, ...]
    tree: Tree
    tables: dict[tuple[int, Sets], float]
    sizes: tuple[int, ...]
    fixed: int = 0

    @classmethod
    def of(cls, problem: Problem) -> Asked:
        """Raises PlanError for a workload that asks anything but tables at the levels of one attribute, or whose known
        totals are of other groups."""
        work = problem.workload
        place = place_of(work)
        if place is None:
            raise PlanError("no table is asked at a level of an attribute")
        totals = _totals(problem, place)
        levels, asked = level_tables(work, place, [k.operator for k in totals])
        weights = np.concatenate([problem.table_weights(item) for item in work.items]).tolist()
        tables: dict[tuple[int, Sets], float] = {}
        for table, weight in zip(asked, weights, strict=True):
            tables[table] = tables.get(table, 0.0) + weight
        tree, _ = Tree.of_codes(read_levels(levels))
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
            for s in subsets(table):
                if self.contrasts(s) > 0:
                    rest = self.cells(table) / self.cells(s)
                    out.setdefault(s, np.zeros(self.tree.depth + 1))[level] += weight * self.contrasts(s) / rest
        return out


def subsets(members: Sets) -> Iterator[Sets]:
    """All subsets, the empty one first."""
    return itertools.chain.from_iterable(itertools.combinations(members, r) for r in range(len(members) + 1))


def place_of(work: Workload) -> int | None:
    """The position of the one attribute that is asked at levels; None where there is none, or several."""
    owners = {
        name
        for item in work.items
        for name, factor in _factors(item)
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
    found = {key: operator for key, operator in map(_level, also) if operator is not None}
    asked: list[tuple[bytes, Sets]] = []
    for q in (q for item in work.items for q in item.blocks()):
        if q.block.by_attribute() is None:
            raise PlanError("only tables of cells are answered from all levels of a tree together")
        factors = dict(zip(q.block.attributes, q.block.factors, strict=True))
        own = factors.pop(names[place], None)
        if not all(isinstance(f, Identity) for f in factors.values()) or q.unit != RECORDS:
            raise PlanError("only tables of cells are answered from all levels of a tree together")
        key, operator = _level(own)
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


def _totals(problem: Problem, place: int) -> list[KnownGroups]:
    found = [k for k in problem.known if isinstance(k, KnownGroups)]
    if len(found) < len(problem.known) or any(k.axis != place for k in found):
        raise PlanError("public totals are used where they are of groups of the attribute that is asked at levels")
    return found


def _factors(item: QueryBlock | QueryFamily) -> Iterator[tuple[str | None, LinearOperator]]:
    if isinstance(item, QueryFamily):
        yield from ((item.family.names[i], item.family.factors[i]) for i in np.unique(item.family.sets).tolist())
    else:
        groups = zip(item.block.groups, item.block.factors, strict=True)
        yield from ((g[0] if len(g) == 1 else None, f) for g, f in groups)


def _level(factor: LinearOperator | None) -> tuple[bytes, LinearOperator | None]:
    """A name for the level that a factor over cells stands for, and its operator; none for all records together."""
    if factor is None:
        return b"", None
    if isinstance(factor, Identity):
        return b"cells", factor
    if not isinstance(factor, Grouping) or int(factor.codes.min()) < 0:
        raise PlanError("only tables of cells are answered from all levels of a tree together")
    return (b"", None) if factor.groups == 1 else (factor.codes.tobytes(), factor)
