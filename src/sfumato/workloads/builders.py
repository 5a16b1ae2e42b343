"""The queries people ask, as workloads."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.domain import Domain
from sfumato.errors import InvalidInput, WorkloadError
from sfumato.ground.checks import show_count
from sfumato.ground.codec import encode
from sfumato.operators import AllRange, Block, Dense, Family, Identity, LinearOperator, Padded, Prefix, Sparse, Window
from sfumato.operators.base import numbers, real_array
from sfumato.workloads.core import QueryBlock, QueryFamily, Workload, exact_weight
from sfumato.workloads.levels import every_level, over, table_block
from sfumato.workloads.predicates import compile_predicate

__all__ = [
    "as_operator",
    "hierarchy",
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

_MAX_TABLES = 5_000_000  # some 40 MB a column of their positions; lists by mistake end here

_Run = tuple[tuple[str, ...], NDArray[np.int32]]
"""Levels that every set of a run names, and the positions of the attributes of its sets."""


def _by(domain: Domain, attribute: str, by: Iterable[str] | str) -> tuple[str, ...]:
    names = (by,) if isinstance(by, str) else domain.columns(by)
    return domain.columns((attribute, *names))[1:]


def _items(weights: Mapping[Any, object] | None) -> list[tuple[Any, object]]:
    if weights is not None and not isinstance(weights, Mapping):
        raise WorkloadError(f"weights= takes a mapping of names to weights, not {weights!r}")
    return list((weights or {}).items())


def identity(domain: Domain, *attributes: str) -> Workload:
    """Every cell of the table over the named attributes or levels (of the whole domain if none is named)."""
    return Workload(domain, (QueryBlock("identity", table_block(domain, domain.ordered(attributes or domain.names))),))


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
    factors: Mapping[str, Any] | None = None,
) -> Workload:
    """Marginal tables: all of an order, all up to an order (with the total), or the named sets.

    A set names attributes, or levels of theirs. `weights` maps a set (a tuple of names in any order) or an order
    (an int) to a weight. `factors` says what is asked of an attribute instead of its cells, wherever it occurs:
    "prefix", "ranges", ("windows", width), "hierarchy" (all its levels), the name of a level, or any matrix over
    its cells.
    """
    if sum(given is not None for given in (order, upto, sets)) != 1:
        raise WorkloadError("give exactly one of order=, upto= or sets=")
    if sets is not None:
        if isinstance(sets, str) or not isinstance(sets, Iterable):
            raise WorkloadError(f"sets= takes a list of lists of names, not {sets!r}")
        chosen = [domain.ordered(s) for s in itertools.islice(sets, _MAX_TABLES + 1)]
        _check_tables(len(chosen))
        if len(set(chosen)) != len(chosen):
            raise WorkloadError("a set of attributes is named twice among the marginals")
        place = _places(domain)
        runs: list[_Run] = []
        for levels, run in itertools.groupby(chosen, lambda names: _kind(domain, names)):
            places = [[place[n] for n in c] for c in run]
            runs.append((levels[1:], np.array(places, dtype=np.int32).reshape(len(places), levels[0])))
    else:
        d, top = len(domain.names), order if order is not None else upto
        if isinstance(top, bool) or not isinstance(top, int) or not 0 <= top <= d:
            raise WorkloadError(f"an order must be a whole number from 0 to {d}, not {top!r}")
        orders = [top] if order is not None else list(range(top + 1))
        _check_tables(sum(math.comb(d, o) for o in orders))
        runs = [((), _combinations(d, o)) for o in orders]
    asked = _factors(domain, factors)
    items = [
        QueryFamily("marginals", Family(domain.names, tuple((asked | _levels(domain, levels)).values()), part), weight)
        for levels, part, weight in _weighted(domain, runs, weights)
    ]
    return Workload(domain, tuple(items))


def _check_tables(count: int) -> None:
    if not 1 <= count <= _MAX_TABLES:
        raise WorkloadError(f"from 1 to {_MAX_TABLES:,} marginal tables are allowed, not {show_count(count)}")


def _combinations(count: int, order: int) -> NDArray[np.int32]:
    """Every set of `order` of `count` positions, in lexicographic order."""
    flat = itertools.chain.from_iterable(itertools.combinations(range(count), order))
    return np.fromiter(flat, dtype=np.int32).reshape(math.comb(count, order), order)


def _places(domain: Domain) -> dict[str, int]:
    """The position of the attribute of every name."""
    place = {n: i for i, n in enumerate(domain.names)}
    return place | {level: place[owner] for level, owner in domain.levels.items()}


def _kind(domain: Domain, names: tuple[str, ...]) -> tuple[Any, ...]:
    """What the sets of one family have in common: how many names, and which of them are levels."""
    return (len(names), *(n for n in names if n not in domain.attributes))


def _levels(domain: Domain, levels: Iterable[str]) -> dict[str, LinearOperator]:
    return dict(over(domain, name) for name in levels)


def _factors(domain: Domain, given: Mapping[str, Any] | None) -> dict[str, LinearOperator]:
    """What is asked of every attribute: its cells, or what was given for it."""
    if given is not None and not isinstance(given, Mapping):
        raise WorkloadError(f"factors= takes a mapping of attributes to what is asked of them, not {given!r}")
    own = {domain.check_names([name])[0]: _factor(domain, name, kind) for name, kind in (given or {}).items()}
    return {n: own[n] if n in own else Identity(a.size) for n, a in domain.attributes.items()}


def _factor(domain: Domain, name: str, kind: Any) -> LinearOperator:
    word, *rest = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(word, str):
        operator = as_operator(kind)
        if operator.shape[1] != domain[name].size:
            raise WorkloadError(f"{name} has {domain[name].size} cells; its matrix has {operator.shape[1]:,} columns")
        return operator
    if domain.levels.get(word) == name and not rest:
        return over(domain, word)[1]
    if word not in _FACTORS or len(rest) != (word == "windows"):
        raise WorkloadError(
            f"factors of {name} are 'identity', 'prefix', 'ranges', ('windows', width), 'hierarchy', one of its "
            f"levels or a matrix, not {kind!r}"
        )
    asked: Workload = _FACTORS[word](domain, name, *rest)
    return asked.blocks[0].block.factors[0]


def _weighted(
    domain: Domain, runs: Sequence[_Run], weights: Mapping[Any, object] | None
) -> Iterator[tuple[tuple[str, ...], NDArray[np.int32], Fraction]]:
    """The runs of sets, cut where the weight changes."""
    by_order: dict[int, Fraction] = {}
    by_set: dict[tuple[str, ...], Fraction] = {}
    place = _places(domain)
    for key, weight in _items(weights):
        if type(key) is int:
            by_order[key] = exact_weight(weight)
        else:
            names: Any = (key,) if isinstance(key, (str, bool)) else key
            named = domain.ordered(names)
            if named in by_set:
                raise WorkloadError(f"weights name {key!r} twice")
            by_set[named] = exact_weight(weight)
    missing = set(by_order) - {r.shape[1] for _, r in runs}
    for levels, run in runs:
        own = [(n, w) for n, w in by_set.items() if _kind(domain, n) == (run.shape[1], *levels)]
        places = [
            (int(i), n, w)
            for n, w in own
            for i in np.flatnonzero((run == np.array([place[a] for a in n], dtype=np.int32)).all(axis=1))
        ]
        general, start = by_order.get(run.shape[1], Fraction(1)), 0
        for i, held, weight in sorted(places):
            by_set.pop(held)
            if i > start:
                yield levels, run[start:i], general
            yield levels, run[i : i + 1], weight
            start = i + 1
        if start < len(run):
            yield levels, run[start:], general
    if missing or by_set:
        strange = next(iter(missing), None)
        shown = repr(strange) if strange is not None else repr(next(iter(by_set)))
        raise WorkloadError(f"weights name {shown}, which is no marginal of this workload")


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
    owner, operator = over(domain, attribute, operator)
    work = Workload(domain, (QueryBlock(part, Block(((owner,),), (operator,))),))
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


def hierarchy(domain: Domain, attribute: str, by: Iterable[str] | str = ()) -> Workload:
    """The cells of every level of an attribute, coarsest first, within each cell of `by`. The total is not asked.

    One block per level. Raises WorkloadError for an attribute without levels.
    """
    names = _by(domain, attribute, by)
    levels = [level.name for level in domain.groupings(*domain.check_names((attribute,)))]
    every_level(domain, attribute)
    part = f"hierarchy {attribute}"
    work = stack(*(identity(domain, level, *names) for level in (*levels, attribute)))
    return work.named(f"{part} by {', '.join(names)}" if names else part)


def _all_levels(domain: Domain, attribute: str) -> Workload:
    return queries(every_level(domain, attribute), domain, attribute)


_FACTORS: dict[str, Callable[..., Workload]] = {
    "identity": identity,
    "prefix": prefix,
    "ranges": ranges,
    "windows": windows,
    "hierarchy": _all_levels,
}
"""What may be asked of an attribute inside marginal tables, by name."""


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
    owner, operator = over(domain, attribute, Dense(row[None, :]))
    query = QueryBlock(
        f"sum of {attribute}",
        Block(((owner,),), (operator,)),
        unit=owner,
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
    """Any (k, m) array, scipy sparse matrix or LinearOperator, over the domain or over the cells of one attribute
    or level."""
    operator = as_operator(matrix)
    columns = operator.shape[1]
    if domain is None:
        domain = Domain({attribute or "cell": columns})
    names = domain.columns([attribute]) if attribute is not None else domain.names
    cells = math.prod(domain.sizes(names))
    if columns != cells:
        raise WorkloadError(f"the matrix has {columns:,} columns; {', '.join(names)} has {show_count(cells)} cells")
    if isinstance(labels, str):
        raise WorkloadError(f"labels= takes a list of texts, one per query, not {labels!r}")
    texts = None if labels is None else tuple(str(t) for t in labels)
    if attribute is not None:
        owner, operator = over(domain, names[0], operator)
        names = (owner,)
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
    items = [i for w in parts for i in w.items]
    names = dict.fromkeys(i.part for i in items)
    factors = {name: exact_weight(weight) for name, weight in _items(weights)}
    for name in factors:
        if name not in names:
            raise WorkloadError(f"weights name {name!r}; the parts are {', '.join(names)}")
    return Workload(
        parts[0].domain, tuple(replace(i, weight=i.weight * factors.get(i.part, Fraction(1))) for i in items)
    )
