"""Workloads: what is asked. A workload is a domain and blocks of linear queries over its marginal tables."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato._util.bundles import check_text, shorten
from sfumato._util.checks import show_count
from sfumato._util.codec import storable
from sfumato._util.description import Description, TitledTable
from sfumato._util.frames import Frame
from sfumato.domain import Domain
from sfumato.errors import WorkloadError
from sfumato.operators import Block, Family, Identity, Kronecker, LinearOperator, OnMarginal, Stack, Total
from sfumato.operators.base import Numbers, operator_norm, real_array
from sfumato.workloads.levels import row_labels

RECORDS = "records"
_MAX_LABELS = 20_000_000  # some GB of text
_MAX_BLOCKS = 50_000  # blocks are Python values, gone through one by one; families take more
_MAX_PART_BYTES = 4096  # a name that is printed in every table; room for any sentence
_SHORT = re.compile(r"[^eE]{1,200}([eE][+-]?[0-9]{1,3})?")


def exact_weight(weight: object) -> Fraction:
    """A weight as an exact number from 1e-100 to 1e100."""
    given: Any = str(weight) if isinstance(weight, (float, np.floating, Decimal)) else weight
    try:
        # a long exponent would be written out in full
        exact = Fraction(0) if isinstance(given, str) and not _SHORT.fullmatch(given) else Fraction(given)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        exact = Fraction(0)
    if isinstance(weight, bool) or not Fraction(1, 10**100) <= exact <= 10**100:
        raise WorkloadError(f"a weight must be a positive number, from 1e-100 to 1e100, not {shorten(weight)}")
    return exact


def weight_items(weights: Mapping[Any, object] | None) -> list[tuple[Any, object]]:
    """Given weights by name, refused unless they are a mapping."""
    if weights is not None and not isinstance(weights, Mapping):
        raise WorkloadError(f"weights= takes a mapping of names to weights, not {weights!r}")
    return list((weights or {}).items())


@storable
@dataclass(frozen=True, slots=True)
class QueryBlock:
    """One block of queries over one marginal table.

    Args:
        part: The name of the part that it belongs to.
        block: The linear map from the table's cells to the answers.
        weight: Its weight in the objective, from 1e-100 to 1e100.
        unit: The unit of its answers.
        labels: Per factor of the block, one text per row, or None where the texts follow from the attribute's cells.

    Raises:
        WorkloadError: The weight is not allowed, or there are not as many labels as factors or rows.
    """

    part: str
    block: Block
    weight: Fraction = Fraction(1)
    unit: str = RECORDS
    labels: tuple[tuple[str, ...] | None, ...] = ()

    def __post_init__(self) -> None:
        check_text(self.part, "a part's name", _MAX_PART_BYTES)
        object.__setattr__(self, "weight", exact_weight(self.weight))
        count = len(self.block.factors)
        labels = tuple(None if g is None else tuple(g) for g in self.labels) or (None,) * count
        if len(labels) != count:
            raise WorkloadError(f"labels were given for {len(labels)} factors; the block has {count}")
        for given, factor in zip(labels, self.block.factors, strict=True):
            if given is not None and len(given) != factor.shape[0]:
                raise WorkloadError(f"{len(given):,} labels were given for {factor.shape[0]:,} queries")
        object.__setattr__(self, "labels", labels)

    @property
    def attributes(self) -> tuple[str, ...]:
        """Attributes of the marginal table that is asked."""
        return self.block.attributes

    @property
    def order(self) -> int:
        """Number of attributes of the table."""
        return len(self.attributes)

    @property
    def rows(self) -> int:
        """Number of queries."""
        return self.block.rows

    @property
    def rows_each(self) -> NDArray[np.int64]:
        """(1,) number of queries of the one table."""
        return np.array([self.rows])

    @property
    def factors(self) -> tuple[LinearOperator, ...]:
        """The maps of which the queries are products."""
        return self.block.factors

    @property
    def is_marginal(self) -> bool:
        """Whether the queries are the cells of a marginal table."""
        return self.unit == RECORDS and all(isinstance(f, Identity) for f in self.block.factors)

    def blocks(self) -> Iterator[QueryBlock]:
        """Every block by itself, as of a family.

        Returns:
            This block.
        """
        return iter((self,))


@storable
@dataclass(frozen=True, slots=True)
class QueryFamily:
    """Many blocks of queries that differ in their attributes alone: one part, one weight, counts of records."""

    part: str
    family: Family
    weight: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        check_text(self.part, "a part's name", _MAX_PART_BYTES)
        object.__setattr__(self, "weight", exact_weight(self.weight))
        if self.family.multiples is not None:
            raise WorkloadError("the tables of a workload have weights, not multiples")

    @property
    def unit(self) -> str:
        """What the answers count."""
        return RECORDS

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that some table holds."""
        return self.family.attributes

    @property
    def order(self) -> int:
        """Number of attributes of every table."""
        return self.family.order

    @property
    def rows(self) -> int:
        """Number of queries."""
        return self.family.rows

    @property
    def rows_each(self) -> NDArray[np.int64]:
        """(tables,) number of queries of each table."""
        return self.family.rows_each

    @property
    def factors(self) -> tuple[LinearOperator, ...]:
        """The maps of which the queries are products."""
        return self.family.factors

    @property
    def is_marginal(self) -> bool:
        """Whether the queries are the cells of marginal tables."""
        return all(isinstance(self.family.factors[i], Identity) for i in np.unique(self.family.sets).tolist())

    def blocks(self) -> Iterator[QueryBlock]:
        """Every block by itself.

        Returns:
            One block per table.
        """
        return (QueryBlock(self.part, b, self.weight) for b in self.family.blocks())


def _with_sizes(item: QueryBlock | QueryFamily, sizes: Mapping[str, int]) -> QueryBlock | QueryFamily:
    """The same questions where some attributes have other numbers of cells."""
    if isinstance(item, QueryFamily):
        family = item.family
        given = zip(family.names, family.factors, strict=True)
        return replace(item, family=replace(family, factors=tuple(_resized(f, (n,), sizes) for n, f in given)))
    given = zip(item.block.groups, item.block.factors, strict=True)
    factors = tuple(_resized(f, group, sizes) for group, f in given)
    return replace(item, block=replace(item.block, factors=factors))


def _resized(factor: LinearOperator, group: tuple[str, ...], sizes: Mapping[str, int]) -> LinearOperator:
    """A factor over the cells of its attributes, of which some have other numbers of cells."""
    if not sizes.keys() & set(group):
        return factor
    if len(group) == 1 and type(factor) in (Identity, Total):
        return (Identity if type(factor) is Identity else Total)(sizes[group[0]])
    raise WorkloadError(
        f"labels of {', '.join(n for n in group if n in sizes)} are to be found: ask for tables over them, such as "
        "sf.marginals(domain, order=1), and ask other questions of the release"
    )


def block_on_domain(domain: Domain, block: Block) -> LinearOperator:
    """A block as an operator over all cells of a domain."""
    by_attribute = block.by_attribute()
    if by_attribute is None or () in block.groups or block.attributes != domain.ordered(block.attributes):
        axes = tuple(domain.axis(n) for n in block.attributes)
        return OnMarginal(domain.shape, axes, block.operator)
    factors = tuple(by_attribute.get(n, Total(s)) for n, s in zip(domain.names, domain.shape, strict=True))
    return factors[0] if len(factors) == 1 else Kronecker(factors)


@storable
@dataclass(frozen=True, repr=False, eq=False)
class Workload:
    """Linear queries over a domain: shape (k, m) with k queries over m cells.

    Cells are in C order of the domain. Within a product the rows run in C order too, attributes in the domain's order.
    Weights multiply the variance in the objective; answers are unweighted. `blocks` are the same queries with every
    table by itself.

    Builders such as `sf.marginals` and `sf.queries` make workloads. `a + b` stacks two workloads over one domain, and
    `a * b` is their Kronecker product over disjoint attributes.

    Args:
        domain: The attributes whose cells are counted.
        items: Blocks or families of queries, in order.

    Raises:
        WorkloadError: There is no query, or a block or family of queries does not fit the domain's cells.
        DomainError: A block names an attribute that the domain does not have.

    >>> domain = sf.Domain({"age": sf.Integers(0, 29, width=10), "sex": sf.Categories(["female", "male"])})
    >>> cdf, sex = sf.prefix(domain, "age"), sf.identity(domain, "sex")
    >>> both = cdf + sex
    >>> both
    Workload(5 queries over 6 cells; prefix age: 3, identity: 2)
    >>> both.shape, len(both)
    ((5, 6), 5)
    >>> both.parts["identity"].labels()
    ['sex = female', 'sex = male']
    >>> both.answer([[1, 2], [3, 4], [5, 6]])
    array([ 3, 10, 21,  9, 12])
    >>> cdf * sex
    Workload(6 queries over 6 cells; prefix age x identity: 6)
    """

    domain: Domain
    items: tuple[QueryBlock | QueryFamily, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", tuple(self.items))
        if not self.items:
            raise WorkloadError("a workload needs at least one query")
        sizes = {n: a.size for n, a in self.domain.attributes.items()}
        for item in self.items:
            if isinstance(item, QueryFamily):
                if item.family.names != self.domain.names:
                    raise WorkloadError("a family of tables numbers the attributes of its domain")
                item.family.check(sizes)
            else:
                self.domain.check_names(item.attributes)
                item.block.check(sizes)

    def operator_norm(self, p: float, q: float) -> float:
        """The largest ||F v||_q over ||v||_p <= 1, F the queries over the domain's cells.

        ||F||_{1->2} is the largest norm of a column, by which Gaussian noise is scaled, and ||F||_{1->1} the same for
        Laplace noise; ||F||_{2->inf} is the largest norm of a row, and ||F||_{2->2} the largest singular value.

        Args:
            p: 1, 2 or infinity.
            q: 1, 2 or infinity, and not below p.

        Returns:
            The norm.

        Raises:
            WorkloadError: p or q is none of these, or q is below p, for which no fast way is known; or the matrix is
                needed and too large.

        Source:
            The footnote on operator norms of [SmithUllman]

        >>> cdf = sf.prefix(sf.Domain({"age": 4}), "age")
        >>> cdf.operator_norm(1, 2), cdf.operator_norm(np.inf, np.inf)
        (2.0, 4.0)
        """
        return operator_norm(self.operator, p, q)

    @functools.cached_property
    def measures(self) -> tuple[str, ...]:
        """The measures that some query sums, in the order of the domain."""
        asked = {a for i in self.items for a in i.attributes}
        return tuple(n for n in self.domain.measures if n in asked)

    @property
    def tables(self) -> int:
        """Number of blocks."""
        return sum(len(i.rows_each) for i in self.items)

    @functools.cached_property
    def blocks(self) -> tuple[QueryBlock, ...]:
        """The queries table by table.

        Raises:
            WorkloadError: There are more than 50,000 tables.
        """
        if self.tables > _MAX_BLOCKS:
            raise WorkloadError(f"{self.tables:,} tables are too many for this, which takes up to {_MAX_BLOCKS:,}")
        return tuple(q for i in self.items for q in i.blocks())

    @functools.cached_property
    def shape(self) -> tuple[int, int]:
        """(number of queries, number of cells), exact integers."""
        return (sum(i.rows for i in self.items), self.domain.size)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def parts(self) -> dict[str, Workload]:
        """The named parts in order."""
        names = dict.fromkeys(i.part for i in self.items)
        return {n: Workload(self.domain, tuple(i for i in self.items if i.part == n)) for n in names}

    @property
    def units(self) -> tuple[str, ...]:
        """The units of the answers, each once."""
        return tuple(dict.fromkeys(i.unit for i in self.items))

    def named(self, name: str, weight: object = 1) -> Workload:
        """The same queries as one part.

        Args:
            name: The name of the part.
            weight: A number from 1e-100 to 1e100, by which the weights of the queries are multiplied.

        Returns:
            A workload with one part.

        Raises:
            WorkloadError: The weight is no such number.

        >>> domain = sf.Domain({"age": 100})
        >>> sf.total(domain).named("people", weight=3).weights
        {'people': Fraction(3, 1)}
        """
        factor = exact_weight(weight)
        return Workload(self.domain, tuple(replace(i, part=name, weight=i.weight * factor) for i in self.items))

    def found(self, labels: Mapping[str, Sequence[Sequence[str]]]) -> Workload:
        """The same questions over the labels that were found.

        Args:
            labels: Of each attribute whose labels were to be found what was shown (`Domain.found`).

        Returns:
            A workload over the domain in which these are declared.

        Raises:
            WorkloadError: A question is about such an attribute and asks neither for its cells nor for their sum.
            DomainError: A label cannot be one.
        """
        domain = self.domain.found(labels)
        sizes = {n: domain[n].size for n in labels}
        return Workload(domain, tuple(_with_sizes(item, sizes) for item in self.items))

    def block_labels(self, query: QueryBlock) -> list[str]:
        """The labels of the queries of one block.

        Args:
            query: One of the workload's `blocks`.

        Returns:
            One text per query.
        """
        axes = [
            list(given) if given is not None else row_labels(self.domain, g, f)
            for given, g, f in zip(query.labels, query.block.groups, query.block.factors, strict=True)
        ]
        rows = [""]
        for axis in axes:
            rows = [f"{a}, {b}" if a and b else a or b for a in rows for b in axis]
        return [row or "total" for row in rows]

    def labels(self) -> list[str]:
        """The labels of all queries.

        Returns:
            One text per query, in order.

        Raises:
            WorkloadError: There are more than 20 million queries.

        >>> sf.prefix(sf.Domain({"age": sf.Integers(0, 29, width=10)}), "age").labels()
        ['age up to 0..9', 'age up to 10..19', 'age up to 20..29']
        """
        count = self.shape[0]
        if count > _MAX_LABELS:
            raise WorkloadError(
                f"{show_count(count)} labels are too many to list; take them block by block (block_labels)"
            )
        return [label for i in self.items for query in i.blocks() for label in self.block_labels(query)]

    @property
    def operator(self) -> LinearOperator:
        """The whole workload as one structured operator over the domain's cells."""
        parts = tuple(block_on_domain(self.domain, q.block) for q in self.blocks)
        return parts[0] if len(parts) == 1 else Stack(parts)

    def answer(self, x: ArrayLike) -> Numbers:
        """Exact answers to the queries. They are not private.

        Args:
            x: Counts of the cells, of shape (m,) or `domain.shape`.

        Returns:
            (k,) answers, in order; integers where the counts and the queries are.

        Raises:
            WorkloadError: The counts have another shape, or there are more than 50,000 tables.

        >>> domain = sf.Domain({"age": 3, "sex": 2})
        >>> sf.marginals(domain, order=1).answer([[1, 2], [3, 4], [5, 6]])
        array([ 3,  7, 11,  9, 12])
        """
        counts = real_array(x, "counts")
        if counts.shape not in ((self.domain.size,), self.domain.shape):
            size = show_count(self.domain.size)
            raise WorkloadError(f"counts must have shape ({size},) or {self.domain.shape}, not {counts.shape}")
        return self.operator.matvec(counts.reshape(-1))

    def __add__(self, other: object) -> Workload:
        if not isinstance(other, Workload):
            return NotImplemented
        if other.domain != self.domain:
            raise WorkloadError("workloads over different domains cannot be stacked")
        return Workload(self.domain, self.items + other.items)

    def __mul__(self, other: object) -> Workload:
        """Kronecker product over disjoint attributes."""
        if not isinstance(other, Workload):
            return NotImplemented
        if other.domain != self.domain:
            raise WorkloadError("workloads over different domains cannot be multiplied")
        return Workload(self.domain, tuple(self._product(a, b) for a in self.blocks for b in other.blocks))

    def _product(self, a: QueryBlock, b: QueryBlock) -> QueryBlock:
        shared = set(a.attributes) & set(b.attributes)
        if shared:
            raise WorkloadError(f"a Kronecker product needs disjoint attributes; both sides use {sorted(shared)}")
        if RECORDS not in (a.unit, b.unit):
            raise WorkloadError("two workloads of sums cannot be multiplied")
        place = {name: i for i, name in enumerate(self.domain.names)}
        axes = sorted(
            zip(a.block.groups + b.block.groups, a.block.factors + b.block.factors, a.labels + b.labels, strict=True),
            key=lambda axis: place[axis[0][0]] if axis[0] else -1,
        )
        block = Block(tuple(g for g, _, _ in axes), tuple(f for _, f, _ in axes))
        unit = a.unit if b.unit == RECORDS else b.unit
        part = a.part if a.part == b.part else f"{a.part} x {b.part}"
        return QueryBlock(part, block, a.weight * b.weight, unit, tuple(t for _, _, t in axes))

    @property
    def weights(self) -> Mapping[str, Fraction]:
        """The weight of each part; parts of several weights show the largest."""
        return {n: max(i.weight for i in w.items) for n, w in self.parts.items()}

    def __repr__(self) -> str:
        parts = ", ".join(f"{n}: {show_count(w.shape[0])}" for n, w in self.parts.items())
        queries, cells = self.shape
        return f"Workload({show_count(queries)} queries over {show_count(cells)} cells; {parts})"

    def _repr_html_(self) -> str:
        held = self.parts.items()
        frame = Frame(
            {
                "part": [n for n, _ in held],
                "tables": [w.tables for _, w in held],
                "queries": [w.shape[0] for _, w in held],
                "unit": [", ".join(w.units) for _, w in held],
            }
        )
        queries, cells = self.shape
        headline = f"Workload: {show_count(queries)} queries over {show_count(cells)} cells"
        return Description(headline, [TitledTable("", frame)]).to_html()
