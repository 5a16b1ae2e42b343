"""What every strategy is: integer blocks to measure, and the way back from noisy values to answers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import storable, value_fingerprint
from sfumato.domain.measures import Measure
from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import Block, Combination, Family, Grouping, Identity, LinearOperator
from sfumato.operators.base import FloatArray, Numbers

Estimate = Any
"""What a strategy keeps of its measured values; only the strategy that made it can read it."""


class Strategy(ABC):
    """What is measured instead of the queries.

    Measuring gives y = B x + z with B the integer `blocks` and z independent noise of one law. A query
    block W is answered by R y with R B = W; its noise is R z, so its variance is (sum of squares of a
    row of R) times the variance of the law.
    """

    known: tuple[Any, ...] = ()
    """The marginal tables that enter as exact, known from elsewhere."""

    @property
    @abstractmethod
    def blocks(self) -> tuple[Block | Family | Combination, ...]:
        """The integer maps that are measured, in the order of the values."""

    @abstractmethod
    def check(self, query: Block) -> None:
        """Raise NotAnswerable where a query lies outside the span of what is measured."""

    @abstractmethod
    def row_powers(self, query: Block, power: int) -> FloatArray:
        """Sums of |entry|^power (2 or 4) over each row of R, one axis per factor of the query; nan: not known.

        An axis along which nothing changes has length 1, so large tables stay small.
        """

    def row_errors(self, query: Block) -> tuple[float, float] | None:
        """(mean, largest) sum of squares of the rows of R where they are too many to list; None where they are not."""
        return None

    def source(self, query: Block) -> Strategy:
        """What answers a query by itself: this strategy, or a piece of it. Raises NotAnswerable as `check` does."""
        self.check(query)
        return self

    @abstractmethod
    def covariance(self, first: Block, second: Block) -> FloatArray:
        """R_1 R_2ᵀ: covariances of the answers to two query blocks at unit variance, (rows of first, rows of second).

        Only for queries that have a `source`. Raises PlanError above DENSE_LIMIT entries.
        """

    def table_covariance(self, first: Block, second: Block) -> FloatArray | None:
        """The covariances of cells of two marginal tables, where these rest on agreement alone; else None.

        Only for tables that have a `source`. One axis for every attribute of `first` that `second` holds too:
        where the cells agree, and where they do not (only the former where the attribute has a single cell).
        """
        return None

    @abstractmethod
    def estimate(self, values: Sequence[Numbers], total: int | None) -> Estimate:
        """Prepare measured values (one integer array per block or family, and the total where it is public)."""

    @abstractmethod
    def answer(self, estimate: Estimate, query: Block) -> FloatArray:
        """R y: unbiased answers to a query block, (rows,)."""

    def family_powers(self, family: Family, power: int) -> FloatArray | None:
        """(count,) sums of |entry|^power of the rows of R for every block of a family, or None.

        None where the rows of a block differ, R B = W holds only nearly, or blocks are best taken one by one.
        """
        return None

    def answer_family(self, estimate: Estimate, family: Family) -> Iterator[tuple[NDArray[np.intp], FloatArray]]:
        """Unbiased answers to all blocks of a family: positions (c,) and answers (c, rows), a few blocks at a time."""
        for i in range(len(family)):
            yield np.array([i]), self.answer(estimate, family.block(i))[None]

    @property
    def legend(self) -> Mapping[str, NDArray[np.int64]]:
        """What a reader of the noisy values needs to know of every block beside its attributes, (blocks,) each."""
        return {}

    def bias_bound(self, query: Block) -> float:
        """Largest bias of a row per record, zero where R B = W holds exactly."""
        return 0.0

    def rounding(self, query: Block, measures: Mapping[str, Measure]) -> FloatArray:
        """By how much an answer may be off per record since what is summed lies on a grid; one axis per factor."""
        del measures
        return np.zeros((1,) * len(query.factors))

    def deviations(self, query: Block) -> FloatArray | None:
        """|R B - W| of a query that is answered near W on purpose, (rows, cells of what is measured); else None."""
        return None

    @property
    def records(self) -> int | None:
        """The number of records up to which answers near W keep to their bounds; None where all are unbiased."""
        return None

    @property
    @abstractmethod
    def summary(self) -> str:
        """One line for people: what is measured."""

    @property
    def max_abs(self) -> int:
        """The largest absolute entry of any block, for overflow bounds."""
        blocks = [b for b in self.blocks if not isinstance(b, Combination)]
        return max(b.max_abs if isinstance(b, Family) else math.ceil(b.operator.max_abs) for b in blocks)


def marginalise(table: Numbers, attributes: Sequence[str], query: Block | Family | Combination) -> Numbers:
    """Apply a query block, all of a family, or a combination, to a table over a superset of its attributes: (rows,)."""
    if isinstance(query, Combination):
        return query.apply(np.concatenate([marginalise(table, attributes, b) for b in query.blocks]))
    if isinstance(query, Family):
        return np.concatenate([marginalise(table, attributes, b) for b in query.blocks()])
    drop = tuple(i for i, a in enumerate(attributes) if a not in query.attributes)
    kept = [a for a in attributes if a in query.attributes]
    reduced = table.sum(axis=drop) if drop else table
    ordered = reduced.transpose([kept.index(a) for a in query.attributes]) if kept else reduced
    return query.operator.matvec(np.ascontiguousarray(ordered).reshape(-1))


def factors_by_attribute(query: Block, names: Collection[str]) -> dict[str, LinearOperator]:
    """One factor for each attribute. Raises NotAnswerable where one joins several, or is of an unknown one."""
    factors = query.by_attribute()
    scalars = (f for g, f in zip(query.groups, query.factors, strict=True) if not g)
    if factors is None or not all(isinstance(f, Identity) for f in scalars):
        raise NotAnswerable(SINGLE_ATTRIBUTES)
    unknown = [a for a in factors if a not in names]
    if unknown:
        raise NotAnswerable(f"nothing about {', '.join(unknown)} was measured")
    return factors


SINGLE_ATTRIBUTES = (
    "only products of conditions on single attributes are answered from what was measured; ask for such, joined by "
    "'and', or plan with this query in the workload"
)
"""Why a query that joins attributes is not answered."""


def order_by_query(table: FloatArray, query: Block, names: Sequence[str]) -> FloatArray:
    """A table with an axis per name as one with an axis per factor of a query, which has one for each attribute."""
    kept = [n for n in names if n in query.attributes]
    table = table.reshape([s for s, n in zip(table.shape, names, strict=True) if n in query.attributes])
    table = table.transpose([kept.index(a) for a in query.attributes])
    shape = iter(table.shape)
    return table.reshape([next(shape) if g else 1 for g in query.groups])


def order_by_queries(table: FloatArray, first: Block, second: Block, names: Sequence[str]) -> FloatArray:
    """A table with two axes per name, the rows of two queries, as a matrix of all their rows."""
    rows = [2 * names.index(a) for a in first.attributes]
    columns = [2 * names.index(a) + 1 for a in second.attributes]
    rest = [k for k in range(table.ndim) if k not in rows and k not in columns]
    return table.transpose(rows + columns + rest).reshape(first.rows, second.rows)


def query_key(query: Block) -> Hashable:
    """What tells a query from others and from itself made anew: plain tables themselves, else a fingerprint."""
    return query if all(isinstance(f, Identity) for f in query.factors) else value_fingerprint(query)


def row_shape(query: Block) -> tuple[int, ...]:
    """Number of rows per factor."""
    return tuple(f.shape[0] for f in query.factors)


@storable
@dataclass(frozen=True, eq=False)
class Known:
    """A marginal table known from elsewhere: ascending positions of its attributes, and its counts."""

    axes: tuple[int, ...]
    counts: FloatArray

    def __post_init__(self) -> None:
        counts = np.array(self.counts, dtype=np.float64)
        counts.flags.writeable = False
        if counts.ndim != len(self.axes) or list(self.axes) != sorted(set(self.axes)):
            raise PlanError("a known table has one axis per attribute, in the domain's order")
        object.__setattr__(self, "axes", tuple(self.axes))
        object.__setattr__(self, "counts", counts)


@storable
@dataclass(frozen=True, eq=False)
class KnownGroups:
    """How many records the groups of an attribute's cells have: its position, (cells,) the group of each, and counts.

    Records are replaced within these groups alone, so that their totals are the same for all neighbours.
    """

    axis: int
    codes: NDArray[np.int64]
    counts: FloatArray

    def __post_init__(self) -> None:
        if self.counts.shape != (int(self.codes.max()) + 1,) or int(self.codes.min()) < 0:
            raise PlanError("there is one known total for every group of cells")

    @property
    def axes(self) -> tuple[int, ...]:
        """The attributes whose joint table is known: none, so that of all records alone."""
        return ()

    @property
    def operator(self) -> LinearOperator:
        """The sums over groups, (groups, cells): the cells themselves where each is a group."""
        groups, cells = len(self.counts), len(self.codes)
        plain = groups == cells and np.array_equal(self.codes, np.arange(cells))
        return Identity(cells) if plain else Grouping(self.codes, groups)

    def settles(self, factor: LinearOperator) -> bool:
        """Whether each sum that a factor makes is one of these totals, or of several."""
        if not isinstance(factor, Identity | Grouping) or factor.shape[1] != len(self.codes):
            return False
        codes = factor.codes if isinstance(factor, Grouping) else np.arange(len(self.codes))
        first = np.unique(self.codes, return_index=True)[1]
        return np.array_equal(codes[first][self.codes], codes)
