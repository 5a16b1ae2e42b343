"""The queries people ask, as workloads."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sfumato.checks import show_count
from sfumato.codec import encode
from sfumato.domain import Domain
from sfumato.errors import InvalidInput, WorkloadError
from sfumato.operators import AllRange, Block, Dense, Identity, LinearOperator, Padded, Prefix, Sparse, Window
from sfumato.operators.base import numbers, real_array
from sfumato.workloads.core import QueryBlock, Workload, exact_weight
from sfumato.workloads.predicates import compile_predicate

__all__ = [
    "as_operator",
    "identity",
    "marginals",
    "predicates",
    "prefix",
    "queries",
    "ranges",
    "stack",
    "sums",
    "total",
    "windows",
]

_MAX_TABLES = 1_000_000


def _by(domain: Domain, attribute: str, by: Iterable[str] | str) -> tuple[str, ...]:
    names = (by,) if isinstance(by, str) else domain.check_names(by)
    domain.check_names((attribute, *names))
    return names


def _marginal(domain: Domain, names: Iterable[str]) -> Block:
    ordered = domain.ordered(names)
    return Block(tuple((n,) for n in ordered), tuple(Identity(domain[n].size) for n in ordered))


def _items(weights: Mapping[Any, object] | None) -> list[tuple[Any, object]]:
    if weights is not None and not isinstance(weights, Mapping):
        raise WorkloadError(f"weights= takes a mapping of names to weights, not {weights!r}")
    return list((weights or {}).items())


def identity(domain: Domain, *attributes: str) -> Workload:
    """Every cell of the table over the named attributes (of the whole domain if none is named)."""
    names = attributes or domain.names
    return Workload(domain, (QueryBlock("identity", _marginal(domain, names)),))


def total(domain: Domain) -> Workload:
    """The number of records."""
    return Workload(domain, (QueryBlock("total", Block((), ())),))


def marginals(
    domain: Domain,
    order: int | None = None,
    *,
    upto: int | None = None,
    sets: Iterable[Sequence[str]] | None = None,
    weights: Mapping[Any, object] | None = None,
) -> Workload:
    """Marginal tables: all of an order, all up to an order (with the total), or the named sets.

    `weights` maps a set (a tuple of names in any order) or an order (an int) to a weight.
    """
    if sum(given is not None for given in (order, upto, sets)) != 1:
        raise WorkloadError("give exactly one of order=, upto= or sets=")
    if sets is not None:
        if isinstance(sets, str) or not isinstance(sets, Iterable):
            raise WorkloadError(f"sets= takes a list of lists of names, not {sets!r}")
        chosen = [domain.ordered(s) for s in itertools.islice(sets, _MAX_TABLES + 1)]
        count = len(chosen)
    else:
        d, top = len(domain.names), order if order is not None else upto
        if isinstance(top, bool) or not isinstance(top, int) or not 0 <= top <= d:
            raise WorkloadError(f"an order must be a whole number from 0 to {d}, not {top!r}")
        orders = [top] if order is not None else range(top + 1)
        count = sum(math.comb(d, o) for o in orders)
        chosen = [c for o in orders for c in itertools.combinations(domain.names, o)] if count <= _MAX_TABLES else []
    if not 1 <= count <= _MAX_TABLES:
        raise WorkloadError(f"from 1 to {_MAX_TABLES:,} marginal tables are allowed, not {show_count(count)}")
    if len(set(chosen)) != len(chosen):
        raise WorkloadError("a set of attributes is named twice among the marginals")
    chosen_weights: dict[object, Fraction] = {}
    known = {len(c) for c in chosen} | set(chosen)
    for key, weight in _items(weights):
        name = key if isinstance(key, int) else domain.ordered((key,) if isinstance(key, str) else key)
        if name not in known or isinstance(key, bool) or name in chosen_weights:
            raise WorkloadError(f"weights name {key!r}, which is no marginal of this workload, or is named twice")
        chosen_weights[name] = exact_weight(weight)
    return Workload(
        domain,
        tuple(
            QueryBlock(
                "marginals",
                _marginal(domain, c),
                chosen_weights.get(c, chosen_weights.get(len(c), exact_weight(1))),
            )
            for c in chosen
        ),
    )


def _ordered(
    domain: Domain, attribute: str, by: Iterable[str] | str, part: str, make: Callable[[int], LinearOperator]
) -> Workload:
    names = _by(domain, attribute, by)
    declared = domain[attribute]
    n = declared.size - declared.has_other
    operator = make(n)
    if declared.has_other:
        # the extra cell has no place in the order: it is not counted
        operator = Padded(operator, 1)
    work = Workload(domain, (QueryBlock(part, Block(((attribute,),), (operator,))),))
    if not names:
        return work
    return (work * identity(domain, *names)).named(f"{part} by {', '.join(names)}")


def prefix(domain: Domain, attribute: str, by: Iterable[str] | str = ()) -> Workload:
    """Cumulative counts up to each declared cell of an attribute, within each cell of `by`."""
    return _ordered(domain, attribute, by, f"prefix {attribute}", Prefix)


def ranges(domain: Domain, attribute: str, by: Iterable[str] | str = ()) -> Workload:
    """Every range of declared cells, ordered by first then last cell."""
    return _ordered(domain, attribute, by, f"ranges {attribute}", AllRange)


def windows(domain: Domain, attribute: str, width: int, by: Iterable[str] | str = ()) -> Workload:
    """Every run of `width` neighbouring declared cells."""
    return _ordered(domain, attribute, by, f"windows {attribute}", partial(Window, width=width))


def sums(domain: Domain, attribute: str, values: ArrayLike | None = None, by: Iterable[str] | str = ()) -> Workload:
    """The sum of a numeric attribute, each cell counted with a public value.

    The values are the cells' midpoints unless given: one per declared cell, or one per cell. The
    extra cell counts 0 unless its value is given. Answers are in the attribute's unit.
    """
    names = _by(domain, attribute, by)
    declared = domain[attribute]
    if values is None:
        if declared.midpoints is None:
            raise WorkloadError(f"{attribute} is not numeric; give the value of each cell with values=")
        values = declared.midpoints
    row = numbers(values, "values").astype(np.float64)
    if row.shape == (declared.size - declared.has_other,) and declared.has_other:
        row = np.append(row, 0.0)
    if row.shape != (declared.size,):
        raise WorkloadError(f"{attribute} has {declared.size} cells; values of shape {row.shape} were given")
    query = QueryBlock(
        f"sum of {attribute}",
        Block(((attribute,),), (Dense(row[None, :]),)),
        unit=attribute,
        labels=((f"sum of {attribute}",),),
    )
    work = Workload(domain, (query,))
    return (work * identity(domain, *names)).named(f"{query.part} by {', '.join(names)}") if names else work


def predicates(domain: Domain, texts: Sequence[str]) -> Workload:
    """The number of records that satisfy each predicate (a closed grammar over the declared domain)."""
    if isinstance(texts, str) or not texts:
        raise WorkloadError("predicates are given as a non-empty list of texts")
    blocks = []
    for text in texts:
        compiled = compile_predicate(domain, text)
        names, mask = compiled.attributes, compiled.mask
        sides = [np.asarray(mask.any(axis=tuple(j for j in range(mask.ndim) if j != i))) for i in range(mask.ndim)]
        product = np.ones((), dtype=bool)
        for side in sides:
            product = np.multiply.outer(product, side)
        if np.array_equal(product, mask):
            # a conjunction over attributes: one small row each
            block = Block(tuple((n,) for n in names), tuple(Dense(s[None, :]) for s in sides))
            labels = ((compiled.text,), *(("",) for _ in names[1:]))
        else:
            block = Block((names,), (Sparse.from_cells([np.flatnonzero(mask)], mask.size),))
            labels = ((compiled.text,),)
        blocks.append(QueryBlock("predicates", block, labels=labels))
    return Workload(domain, tuple(blocks))


def queries(
    matrix: Any,
    domain: Domain | None = None,
    attribute: str | None = None,
    labels: Sequence[str] | None = None,
) -> Workload:
    """Any (k, m) array, scipy sparse matrix or LinearOperator, over the domain or over one attribute's cells."""
    operator = as_operator(matrix)
    columns = operator.shape[1]
    if domain is None:
        domain = Domain({attribute or "cell": columns})
    names = domain.check_names([attribute]) if attribute is not None else domain.names
    cells = math.prod(domain.sizes(names))
    if columns != cells:
        raise WorkloadError(f"the matrix has {columns:,} columns; {', '.join(names)} has {show_count(cells)} cells")
    if isinstance(labels, str):
        raise WorkloadError(f"labels= takes a list of texts, one per query, not {labels!r}")
    texts = None if labels is None else tuple(str(t) for t in labels)
    return Workload(domain, (QueryBlock("queries", Block((names,), (operator,)), labels=(texts,)),))


def as_operator(matrix: Any) -> LinearOperator:
    """A matrix of any kind as an operator. One of a class that is not the library's own becomes a plain matrix.

    What is measured must be the library's own, since privacy rests on what an operator says of itself.
    """
    if isinstance(matrix, LinearOperator):
        try:
            encode(matrix)
        except InvalidInput:
            return Dense(matrix.dense())
        return matrix
    if hasattr(matrix, "tocsr"):
        return Sparse.of(matrix)
    array = real_array(matrix, "the queries")
    return Dense(array[None, :] if array.ndim == 1 else array)


def stack(*works: Workload, weights: Mapping[str, object] | None = None, **named: Workload) -> Workload:
    """Several workloads as one. Those given by name become parts of that name; `weights` are per part."""
    if not works and not named:
        raise WorkloadError("stack needs at least one workload")
    for work in (*works, *named.values()):
        if not isinstance(work, Workload):
            raise WorkloadError(f"stack takes workloads, not a {type(work).__name__}")
    parts = [*works, *(w.named(n) for n, w in named.items())]
    if any(w.domain != parts[0].domain for w in parts):
        raise WorkloadError("workloads over different domains cannot be stacked")
    blocks = [q for w in parts for q in w.blocks]
    names = dict.fromkeys(q.part for q in blocks)
    factors = {name: exact_weight(weight) for name, weight in _items(weights)}
    for name in factors:
        if name not in names:
            raise WorkloadError(f"weights name {name!r}; the parts are {', '.join(names)}")
    return Workload(
        parts[0].domain, tuple(replace(q, weight=q.weight * factors.get(q.part, Fraction(1))) for q in blocks)
    )
