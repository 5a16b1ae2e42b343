"""Marginal tables as workloads, by families: up to millions of them, whatever is asked of each attribute."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._util.checks import show_count
from sfumato.domain import Domain
from sfumato.errors import WorkloadError
from sfumato.operators import Family, Identity, LinearOperator
from sfumato.workloads.builders import as_operator, identity, prefix, queries, ranges, stack, windows
from sfumato.workloads.core import QueryFamily, Workload, exact_weight, weight_items
from sfumato.workloads.levels import every_level, lift_to_attribute

_MAX_TABLES = 5_000_000  # some 40 MB a column of their positions; a longer list is a mistake

_Run = tuple[tuple[str, ...], NDArray[np.int32]]
"""Levels that every set of a run names, and the positions of the attributes of its sets."""


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

    Give exactly one of `order`, `upto` and `sets`.

    Args:
        domain: The attributes.
        order: The number of attributes of every table.
        upto: The largest number of attributes of a table; 0 is the total.
        sets: The tables, each a list of names of attributes or of levels.
        weights: A weight by set (a tuple of names in any order) or by order (a whole number); 1 for the others. Weights
            multiply squared errors in the objective of `sf.plan`.
        factors: What is asked of an attribute instead of its cells, wherever it occurs: "prefix", "ranges", ("windows",
            width), "hierarchy" (all its levels), the name of a level, or any matrix over its cells. With "levels" for
            one attribute every table is asked of all records and again within every group of each of its levels, the
            finest last; `order` counts, and `sets` name, the other attributes then. Each level is a part of its own,
            called as the level is, that of all records "all <attribute>", so that parts weigh alike under the objective
            "tables". A weight for a set holds at every level; one for a set that names a level holds for that table
            alone.

    Returns:
        A workload with one family of queries per kind of table.

    Raises:
        WorkloadError: Not exactly one of `order`, `upto` and `sets` is given, one of them cannot be used, a set occurs
            twice, weights name no table, or there are more than 5,000,000 tables.
        DomainError: A name is unknown, or a set names two levels of one attribute.

    >>> domain = sf.Domain({"age": sf.Integers(0, 99, levels={"decade": 10}), "sex": 2, "state": 50})
    >>> sf.marginals(domain, order=2)
    Workload(5,300 queries over 10,000 cells; marginals: 5,300)
    >>> sf.marginals(domain, upto=1).tables
    4
    >>> sf.marginals(domain, sets=[("decade", "sex"), ("state",)], weights={("state",): 4}).shape
    (70, 10000)
    >>> sf.marginals(domain, sets=[("age", "sex")], factors={"age": "prefix"}).labels()[:2]
    ['age up to 0, sex = 0', 'age up to 0, sex = 1']
    >>> place = sf.Hierarchy({"06": ["06001", "06003"], "36": ["36001"]}, levels=["state", "county"])
    >>> nested = sf.Domain({"place": place, "adult": sf.Booleans()})
    >>> sf.marginals(nested, sets=[(), ("adult",)], factors={"place": "levels"})
    Workload(18 queries over 6 cells; all place: 3, state: 6, county: 9)
    """
    # a factor may be an array, which is compared cell by cell
    kinds = factors if isinstance(factors, Mapping) else {}
    nested = [n for n, kind in kinds.items() if isinstance(kind, str) and kind == "levels"]
    if sum(given is not None for given in (order, upto, sets)) != 1:
        raise WorkloadError("give exactly one of order=, upto= or sets=")
    if factors is not None and nested:
        rest = {n: kind for n, kind in factors.items() if n not in nested}
        return _tables_at_levels(
            domain, nested, order if order is not None else upto, order is None, sets, weights, rest
        )
    if sets is not None:
        if isinstance(sets, str) or not isinstance(sets, Iterable):
            raise WorkloadError(f"sets= takes a list of lists of names, not {sets!r}")
        chosen = [domain.ordered(s) for s in itertools.islice(sets, _MAX_TABLES + 1)]
        domain.check_counted({n for s in chosen for n in s})
        _check_tables(len(chosen))
        if len(set(chosen)) != len(chosen):
            raise WorkloadError("a set of attributes is named twice among the marginals")
        place = _attribute_positions(domain)
        runs: list[_Run] = []
        for levels, run in itertools.groupby(chosen, lambda names: _family_signature(domain, names)):
            places = [[place[n] for n in c] for c in run]
            runs.append((levels[1:], np.array(places, dtype=np.int32).reshape(len(places), levels[0])))
    else:
        d, top = len(domain.dimensions), order if order is not None else upto
        if isinstance(top, bool) or not isinstance(top, int) or not 0 <= top <= d:
            raise WorkloadError(
                f"an order must be a whole number from 0 to {d}, not {top!r}; lists of names are given as sets="
            )
        orders = [top] if order is not None else list(range(top + 1))
        _check_tables(sum(math.comb(d, o) for o in orders))
        runs = [((), _combinations(d, o)) for o in orders]
    asked = _attribute_operators(domain, factors)
    items = [
        QueryFamily(
            "marginals", Family(domain.names, tuple((asked | _level_operators(domain, levels)).values()), part), weight
        )
        for levels, part, weight in _split_by_weight(domain, runs, weights)
    ]
    return Workload(domain, tuple(items))


def _tables_at_levels(
    domain: Domain,
    nested: Sequence[str],
    top: int | None,
    smaller: bool,
    sets: Iterable[Sequence[str]] | None,
    weights: Mapping[Any, object] | None,
    factors: Mapping[str, Any],
) -> Workload:
    """The same tables of all records, and within the groups of every level of an attribute."""
    if len(nested) > 1:
        raise WorkloadError(f"levels are asked of one attribute at a time, not of {', '.join(nested)}")
    (owner,) = domain.check_names(nested)
    every_level(domain, owner)  # refuses what has none
    own = (owner, *(level for level, of in domain.levels.items() if of == owner))
    if sets is None:
        others = [n for n in domain.dimensions if n != owner]
        if isinstance(top, bool) or not isinstance(top, int) or not 0 <= top <= len(others):
            raise WorkloadError(f"an order must be a whole number from 0 to {len(others)}, not {top!r}")
        sets = [s for k in range(top + 1) if smaller or k == top for s in itertools.combinations(others, k)]
    elif isinstance(sets, str) or not isinstance(sets, Iterable):
        raise WorkloadError(f"sets= takes a list of lists of names, not {sets!r}")
    chosen = [domain.ordered(s) for s in sets]
    strange = [s for s in chosen if set(s) & set(own)]
    if strange:
        raise WorkloadError(
            f"the set {strange[0]!r} names {owner} or a level of it, at whose levels every table is asked; leave it out"
        )
    groupings = list(domain.groupings(owner))
    levels = [(g.name, g.name) for g in groupings]
    levels.append((owner, domain[owner].cell_level or owner))
    if groupings[0].attribute.size > 1:
        # a level of one group holds all records by itself
        levels.insert(0, ("", f"all {owner}"))
    given = _weights_in_order(domain, own, weights)
    used = set[tuple[str, ...]]()
    works: list[Workload] = []
    for level, part in levels:
        at = [domain.ordered((level, *s) if level else s) for s in chosen]
        own_weights = {n: w for s, n in zip(chosen, at, strict=True) for w in _table_weight(given, s, n, used)}
        works.append(marginals(domain, sets=at, weights=own_weights, factors=factors).named(part))
    unused = [k for k in given if k not in used]
    if unused:
        raise WorkloadError(f"weights name {unused[0]!r}, which is no marginal of this workload")
    return stack(*works)


def _weights_in_order(domain: Domain, own: Sequence[str], weights: Mapping[Any, object] | None) -> dict[Any, object]:
    """Given weights by order, and by sets in the domain's order."""
    found: dict[Any, object] = {}
    for key, weight in weight_items(weights):
        names: Any = (key,) if isinstance(key, (str, bool)) else key
        named: Any = key if type(key) is int else domain.ordered(names)
        if named in found:
            raise WorkloadError(f"weights name {key!r} twice")
        found[named] = weight
    return found


def _table_weight(
    given: Mapping[Any, object], names: tuple[str, ...], at: tuple[str, ...], used: set[Any]
) -> Iterator[object]:
    """The weight of a table at a level: its own there, else that of the set at every level, else that of its order."""
    for key in dict.fromkeys((at, names, len(names))):
        if key in given:
            used.add(key)
    for key in (at, names, len(names)):
        if key in given:
            yield given[key]
            return


def _check_tables(count: int) -> None:
    if not 1 <= count <= _MAX_TABLES:
        raise WorkloadError(f"from 1 to {_MAX_TABLES:,} marginal tables are allowed, not {show_count(count)}")


def _combinations(count: int, order: int) -> NDArray[np.int32]:
    """Every set of `order` of `count` positions, in lexicographic order."""
    flat = itertools.chain.from_iterable(itertools.combinations(range(count), order))
    return np.fromiter(flat, dtype=np.int32).reshape(math.comb(count, order), order)


def _attribute_positions(domain: Domain) -> dict[str, int]:
    """The position of the attribute of every name."""
    place = {n: i for i, n in enumerate(domain.names)}
    return place | {level: place[owner] for level, owner in domain.levels.items()}


def _family_signature(domain: Domain, names: tuple[str, ...]) -> tuple[Any, ...]:
    """What the sets of one family have in common: how many names, and which of them are levels."""
    return (len(names), *(n for n in names if n not in domain.attributes))


def _level_operators(domain: Domain, levels: Iterable[str]) -> dict[str, LinearOperator]:
    return dict(lift_to_attribute(domain, name) for name in levels)


def _attribute_operators(domain: Domain, given: Mapping[str, Any] | None) -> dict[str, LinearOperator]:
    """What is asked of every attribute: its cells, or what was given for it."""
    if given is not None and not isinstance(given, Mapping):
        raise WorkloadError(f"factors= takes a mapping of attributes to what is asked of them, not {given!r}")
    own = {
        domain.check_names([name])[0]: _attribute_operator(domain, name, kind) for name, kind in (given or {}).items()
    }
    return {n: own[n] if n in own else Identity(a.size) for n, a in domain.attributes.items()}


def _attribute_operator(domain: Domain, name: str, kind: Any) -> LinearOperator:
    word, *rest = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(word, str):
        operator = as_operator(kind)
        if operator.shape[1] != domain[name].size:
            raise WorkloadError(f"{name} has {domain[name].size} cells; its matrix has {operator.shape[1]:,} columns")
        return operator
    if domain.levels.get(word) == name and not rest:
        return lift_to_attribute(domain, word)[1]
    if word not in _FACTORS or len(rest) != (word == "windows"):
        own = [level for level, owner in domain.levels.items() if owner == name]
        names = f" ({', '.join(own)})" if own else ""
        raise WorkloadError(
            f"factors of {name} are 'identity', 'prefix', 'ranges', ('windows', width), 'hierarchy', 'levels' of "
            f"one attribute, one of its levels by name{names} or a matrix, not {kind!r}"
        )
    asked: Workload = _FACTORS[word](domain, name, *rest)
    return asked.blocks[0].block.factors[0]


def _split_by_weight(
    domain: Domain, runs: Sequence[_Run], weights: Mapping[Any, object] | None
) -> Iterator[tuple[tuple[str, ...], NDArray[np.int32], Fraction]]:
    """The runs of sets, cut where the weight changes."""
    by_order: dict[int, Fraction] = {}
    by_set: dict[tuple[str, ...], Fraction] = {}
    place = _attribute_positions(domain)
    for key, weight in weight_items(weights):
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
        own = [(n, w) for n, w in by_set.items() if _family_signature(domain, n) == (run.shape[1], *levels)]
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
