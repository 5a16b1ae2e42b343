"""A SQL statement as it was read: the queries that answer it, and its result from a release."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._util.frames import Frame
from sfumato.domain import Bins, Domain, Integers
from sfumato.domain.predicates import compile_predicate, written_name
from sfumato.errors import NotAnswerable, WorkloadError
from sfumato.operators import Block, Dense, Total
from sfumato.operators.base import FloatArray, LinearOperator
from sfumato.workloads.builders import identity, means, moments, prefix, stack, total
from sfumato.workloads.core import RECORDS, QueryBlock, Workload
from sfumato.workloads.levels import lift_to_attribute

_MOST_ROWS = 100_000  # of a result: more are not read by people, and a table of the release has them


@dataclass(frozen=True, slots=True)
class SqlItem:
    """One column of the result: what it is called, what it is, of which column, under which condition of its own.

    kind: "group", "count", "sum", "mean", "variance", "std" or "quantile".
    """

    name: str
    kind: str
    column: str | None = None
    condition: str | None = None
    probability: float | None = None


@dataclass(frozen=True, slots=True, repr=False)
class SqlQuestion:
    """A statement as it was read. `sf.sql` makes it.

    Args:
        statement: The statement.
        domain: The attributes and measures.
        items: The columns of the result.
        groups: The attributes or levels of GROUP BY.
        condition: WHERE as a predicate, or None.
        order: Columns to sort by, and whether largest come first.
        limit: How many rows are shown, or None for all.

    Raises:
        WorkloadError: The statement asks for what is not answered; `sf.sql` says what and what is nearest.
    """

    statement: str
    domain: Domain
    items: tuple[SqlItem, ...]
    groups: tuple[str, ...] = ()
    condition: str | None = None
    order: tuple[tuple[str, bool], ...] = ()
    limit: int | None = None

    @property
    def workload(self) -> Workload:
        """The queries that answer it, one part for each column."""
        parts = {item.name: self._asked(item) for item in self.items if item.kind != "group"}
        return stack(*(w.named(n) if len(w.parts) == 1 else w for n, w in parts.items()))

    def rows(self) -> list[tuple[int, ...]]:
        """The groups that WHERE leaves, in the order of the result.

        Returns:
            Of each group the cell of every attribute of GROUP BY.
        """
        return sorted(count_groups(self.domain, self.groups, self.condition)[1])

    def answer(self, release: Any, confidence: float = 0.95) -> Frame:
        """The statement's result from a release.

        Args:
            release: A release whose plan has `workload`, or any that holds the answers.
            confidence: The probability, strictly between 0 and 1, with which an interval holds.

        Returns:
            One row per group, with the ends of each number's interval beside it. What noise does not tell is None.

        Raises:
            NotAnswerable: Something was not measured.
            PlanError: The confidence is no such probability, or the release is of other attributes.
        """
        rows = self.rows()
        columns: dict[str, list[Any]] = {}
        for item in self.items:
            if item.kind == "group":
                at = self.groups.index(str(item.column))
                labels = self.domain[self.groups[at]].labels
                columns[item.name] = [labels[cells[at]] for cells in rows]
                continue
            found = self._numbers(release, item, rows, confidence)
            ends = ("", " low", " high")
            columns |= {item.name + end: [row[k] for row in found] for k, end in enumerate(ends)}
        order = list(range(len(rows)))
        for name, largest in reversed(self.order):
            keys = [columns[name][i] for i in range(len(rows))]
            known = [i for i in order if keys[i] is not None]
            known.sort(key=lambda i, keys=keys: keys[i], reverse=largest)  # type: ignore[misc]
            order = [*known, *(i for i in order if keys[i] is None)]
        order = order[: self.limit]
        return Frame({name: [values[i] for i in order] for name, values in columns.items()})

    def __str__(self) -> str:
        said = [f"{i.name}: {_described(i)}" for i in self.items]
        of = f"records with {self.condition}" if self.condition else "all records"
        by = f", by {', '.join(self.groups)}" if self.groups else ""
        return f"{self.statement}\nreads as, of {of}{by}:\n  " + "\n  ".join(said)

    def __repr__(self) -> str:
        return f"SqlQuestion({self.statement!r})"

    # -- what is asked ---------------------------------------------------------------------------------------

    def _where(self, item: SqlItem) -> str | None:
        both = [c for c in (self.condition, item.condition) if c is not None]
        return both[0] if len(both) == 1 else " and ".join(f"({c})" for c in both) or None

    def _asked(self, item: SqlItem) -> Workload:
        """The queries from which a number is told in every group."""
        where, domain, column = self._where(item), self.domain, item.column
        if column is None or item.kind == "count" or (item.kind == "sum" and column not in domain.measures):
            return self._added_up(item)[0]
        used = {domain.owner(g) for g in self.groups}
        used |= set(compile_predicate(domain, where).attributes) if where else set()
        if domain.owner(column) in used:
            return count_groups(domain, (*self.groups, column), where)[0]
        if column in domain.measures:
            own = (moments if item.kind in ("variance", "std") else means)(domain, column)
        else:
            own = prefix(domain, column) if item.kind == "quantile" else identity(domain, column)
        return own * count_groups(domain, self.groups, where)[0] if self.groups or where else own

    def _added_up(self, item: SqlItem) -> tuple[Workload, list[tuple[int, ...]]]:
        """How many records there are, or the sum of a column, by groups; and of each query the groups' cells."""
        weights = None
        if item.column is not None:
            attribute = self.domain[item.column]
            each = attribute.midpoints if item.kind == "sum" else np.ones(attribute.declared_size)
            assert each is not None
            weights = {item.column: np.append(each, np.zeros(attribute.size - len(each)))}
        work, groups = count_groups(self.domain, self.groups, self._where(item), weights)
        unit = item.column if item.kind == "sum" and item.column is not None else RECORDS
        return Workload(self.domain, tuple(replace(i, unit=unit) for i in work.items)), groups

    # -- what is answered ------------------------------------------------------------------------------------

    def _numbers(self, release: Any, item: SqlItem, rows: list[tuple[int, ...]], confidence: float) -> list[Any]:
        """(value, low, high) of every row."""
        where, column = self._where(item), item.column
        if column is None or item.kind in ("count", "sum"):
            asked, groups = self._added_up(item)
            frame = release.ask(asked, confidence)
            found = dict(zip(groups, zip(frame["answer"], frame["low"], frame["high"], strict=True), strict=True))
            # of groups that WHERE leaves and the item's own condition does not, there are 0 records
            return [found.get(cells, (0.0, 0.0, 0.0)) for cells in rows]
        if where is not None:  # a mean: others were refused when the statement was read
            release.ask(self._asked(item))  # refused where it was not measured
            return [_mean_under(release, column, self._row_condition(where, cells), confidence) for cells in rows]
        by = self.groups
        if column in self.domain.measures:
            release.ask(self._asked(item))  # of all with a number, not only of those with one in other measures too
        if item.kind == "mean":
            frame, name = release.mean(column, by=by, confidence=confidence), f"mean {column}"
        elif item.kind == "quantile":
            frame, name = release.quantiles(column, [item.probability], by=by, confidence=confidence), "quantile"
        else:
            read = release.variance if item.kind == "variance" else release.std
            frame = read(column, by=by, confidence=confidence)
            name = next(c for c in frame.columns if c.endswith(f" {column}"))
        return list(zip(frame[name], frame["low"], frame["high"], strict=True))

    def _row_condition(self, where: str, cells: Sequence[int]) -> str:
        own = [_cell_condition(self.domain, g, i) for g, i in zip(self.groups, cells, strict=True)]
        return " and ".join(f"({text})" for text in (where, *own))


def _mean_under(release: Any, column: str, where: str, confidence: float) -> tuple[float | None, ...]:
    """(value, low, high) of a mean whose sums were measured; None where there are too few records to tell."""
    try:
        found = release.mean(column, where=where, confidence=confidence)
    except NotAnswerable:
        return (None, None, None)
    return (found.value, found.low, found.high)


def _described(item: SqlItem) -> str:
    of = f" of records with {item.condition}" if item.condition else ""
    said = {
        "group": "the group",
        "count": "number of records" + (f" with {item.column}" if item.column else ""),
        "sum": f"sum of {item.column}",
        "mean": f"mean of {item.column}",
        "variance": f"variance of {item.column}",
        "std": f"standard deviation of {item.column}",
        "quantile": f"quantile {item.probability} of {item.column}",
    }
    return said[item.kind] + of


# ---- groups and conditions as blocks ----------------------------------------------------------------------------


def _cell_condition(domain: Domain, name: str, cell: int) -> str:
    """A cell of an attribute or level as a predicate."""
    attribute = domain[name]
    text = written_name(name)
    if cell >= attribute.declared_size or not isinstance(attribute, Integers | Bins):
        return f"{text} == '{attribute.labels[cell].replace(chr(39), chr(39) * 2)}'"
    if isinstance(attribute, Integers):
        low = attribute.low + cell * attribute.width
        return f"{low} <= {text} <= {min(low + attribute.width - 1, attribute.high)}"
    upto = "<=" if attribute.holds_last and cell == attribute.declared_size - 1 else "<"
    return f"{attribute.edges[cell]!r} <= {text} {upto} {attribute.edges[cell + 1]!r}"


def _members(domain: Domain, group: str) -> NDArray[np.bool_]:
    """(groups, cells) which cells of its attribute are in which group."""
    return np.asarray(lift_to_attribute(domain, group)[1].dense(), dtype=bool)


def count_groups(
    domain: Domain, groups: Sequence[str], where: str | None, weights: Mapping[str, FloatArray] | None = None
) -> tuple[Workload, list[tuple[int, ...]]]:
    """How many records satisfy a condition in each group that it leaves, and of each query the cells of `groups`.

    Attributes that a condition joins are one factor, all others have their own, by place in the domain. Where an
    attribute has weights, one for each of its cells, records count so much in place of 1.

    Raises:
        WorkloadError: There are more groups than a result has rows.
        DomainError: Two groups are of one attribute.
    """
    domain.check_names([domain.owner(g) for g in groups])
    if math.prod(domain[g].size for g in groups) > _MOST_ROWS:
        raise WorkloadError(f"GROUP BY {', '.join(groups)} has more than {_MOST_ROWS:,} groups; take fewer attributes")
    owned = {domain.owner(g): g for g in groups}
    found = None if where is None else compile_predicate(domain, where)
    factors: dict[tuple[str, ...], tuple[LinearOperator, list[dict[str, int]]]] = {}

    def weighed(names: tuple[str, ...], rows: NDArray[Any]) -> NDArray[Any]:
        own = [(weights or {}).get(a, np.ones(domain[a].size, dtype=np.int64)) for a in names]
        return rows.astype(np.int64) * functools.reduce(np.kron, own)

    joined = () if found is None else found.attributes
    if found is not None:
        others = [tuple(j for j in range(found.mask.ndim) if j != i) for i in range(len(joined))]
        sides = [np.asarray(found.mask.any(axis=axes)) for axes in others]
        if np.array_equal(functools.reduce(np.multiply.outer, sides), found.mask):
            for name, side in zip(joined, sides, strict=True):
                cells = _members(domain, owned[name]) & side if name in owned else side[None, :]
                kept = np.flatnonzero(cells.any(axis=1))
                factors[(name,)] = Dense(weighed((name,), cells[kept])), _cells_of(owned, name, kept.tolist())
        else:
            members = [_members(domain, owned[a]) if a in owned else np.ones((1, domain[a].size), bool) for a in joined]
            rows = functools.reduce(np.kron, [m.astype(np.int64) for m in members]) * found.mask.reshape(1, -1)
            each = list(
                itertools.product(*(_cells_of(owned, a, range(len(m))) for a, m in zip(joined, members, strict=True)))
            )
            kept = np.flatnonzero(rows.any(axis=1))
            factors[joined] = (
                Dense(weighed(joined, rows[kept])),
                [functools.reduce(operator.or_, each[k]) for k in kept],
            )
    for name in [*owned, *(n for n in weights or {} if n not in owned)]:
        if name in joined:
            continue
        lifted = lift_to_attribute(domain, owned[name])[1] if name in owned else Total(domain[name].size)
        if weights and name in weights:
            lifted = Dense(weighed((name,), np.asarray(lifted.dense())))
        factors[(name,)] = lifted, _cells_of(owned, name, range(lifted.shape[0]))
    if not factors:
        return total(domain), [()]
    place = {name: i for i, name in enumerate(domain.names)}
    held = sorted(factors.items(), key=lambda f: place[f[0][0]])
    block = Block(tuple(names for names, _ in held), tuple(factor for _, (factor, _) in held))
    every = itertools.product(*(cells for _, (_, cells) in held))
    rows = [functools.reduce(operator.or_, cells, {}) for cells in every]
    return Workload(domain, (QueryBlock("records", block),)), [tuple(row[g] for g in groups) for row in rows]


def _cells_of(owned: Mapping[str, str], name: str, cells: Iterable[int]) -> list[dict[str, int]]:
    return [{owned[name]: i} if name in owned else {} for i in cells]
