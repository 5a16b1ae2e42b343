"""Marginal tables known from elsewhere, such as published census counts: used as exact, never measured."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.known import Known
from sfumato.domain import Domain
from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray, real_array

__all__ = ["read_public"]

_MOST_CELLS = 20_000  # possible or not, of attributes that predicates tie: a linear program of a second
_APART = 1e-6  # of the records: what a linear program leaves
_TOLERANCE = 1e-9  # relative: public counts that sums of doubles tell apart by more do not agree


def read_public(domain: Domain, public: Mapping[Any, Any] | None) -> tuple[Known, ...]:
    """Tables by their attributes: {("state",): counts, ("state", "sex"): counts}, one count per cell.

    The guarantee does not depend on them, as they are said to be public whatever the table holds. Tables
    that were computed from the sensitive table itself must not be given: to publish those exactly is a
    release without noise, which no budget covers. Raises PlanError for tables that contradict each other, or what
    the domain declares impossible.
    """
    if public is None:
        return ()
    if not isinstance(public, Mapping):
        raise PlanError(f"public= maps sets of attributes to tables of counts, not {type(public).__name__}")
    tables: dict[tuple[int, ...], FloatArray] = {}
    for names, counts in public.items():
        asked = (names,) if isinstance(names, str) else tuple(names)
        levels = [n for n in asked if n in domain.levels]
        if levels:
            raise PlanError(
                f"{levels[0]} is a level of {domain.owner(levels[0])}: totals of its groups are public only where "
                f"records are replaced within these, neighbours='replace-one within {levels[0]}'. Otherwise public= "
                "takes tables over the cells of attributes, known from elsewhere"
            )
        given = domain.check_names(asked)
        axes = tuple(sorted(domain.axis(a) for a in given))
        if axes in tables:
            raise PlanError(f"public= holds the table of {', '.join(given) or 'the total'} twice")
        tables[axes] = _table(domain, given, counts)
        _can_be(domain, axes, tables[axes])
    for (a, first), (b, second) in itertools.combinations(tables.items(), 2):
        _agree(domain, a, first, b, second)
    # a table inside a larger one says nothing more
    largest = [a for a in tables if not any(set(a) < set(b) for b in tables)]
    _can_be_together(domain, {a: tables[a] for a in largest})
    return tuple(Known(a, tables[a]) for a in largest)


def _table(domain: Domain, given: tuple[str, ...], counts: Any) -> FloatArray:
    what = f"the public table of {', '.join(given) or 'the total'}"
    array = real_array(counts, what).astype(np.float64)
    shape = domain.sizes(given)
    if array.shape not in (shape, (array.size,)) or array.size != np.prod(shape, dtype=object):
        raise PlanError(f"{what} must have shape {shape}, not {array.shape}")
    if not np.all(np.isfinite(array)) or np.any(array < 0):
        raise PlanError(f"{what} must hold counts: finite numbers that are not negative")
    return np.asarray(array.reshape(shape).transpose(np.argsort([domain.axis(a) for a in given])), order="C")


def _can_be(domain: Domain, axes: tuple[int, ...], table: FloatArray) -> None:
    names = [domain.names[i] for i in axes]
    possible = domain.possible(names)
    if possible is not None and table[~possible].any():
        at = np.argwhere(~possible & (table > 0))[0]
        cell = ", ".join(f"{n} = {domain[n].labels[i]}" for n, i in zip(names, at.tolist(), strict=True))
        raise PlanError(
            f"the public table of {', '.join(names)} counts {table[tuple(at)]:,.6g} where {cell}, and the domain "
            "declares that impossible: one of them is wrong"
        )


def _can_be_together(domain: Domain, tables: Mapping[tuple[int, ...], FloatArray]) -> None:
    """Refuse tables that each by itself, but not all together, are of records in possible cells."""
    for group in domain.tied:
        told: dict[tuple[str, ...], FloatArray] = {}
        for axes, table in tables.items():
            held = tuple(domain.names[i] for i in axes if domain.names[i] in group.attributes)
            rest = tuple(k for k, i in enumerate(axes) if domain.names[i] not in held)
            told[held] = table.sum(axis=rest)
        names = domain.ordered({n for held in told for n in held})
        if len([held for held in told if held]) < 2 or np.prod(domain.sizes(names), dtype=object) > _MOST_CELLS:
            continue
        possible = domain.possible(names)
        if possible is not None and _apart(names, np.argwhere(possible), told) > _APART * max(
            1.0, max(float(t.sum()) for t in told.values())
        ):
            listed = "; ".join(", ".join(held) for held in told if held)
            raise PlanError(
                f"no records in cells that the domain declares possible have the public tables of {listed} together: "
                "one of them, or of the predicates, is wrong"
            )


def _apart(names: tuple[str, ...], cells: NDArray[np.intp], told: Mapping[tuple[str, ...], FloatArray]) -> float:
    """By how many records tables must be changed at least, in all, to be those of counts of these cells."""
    from scipy import sparse  # noqa: PLC0415  (heavy)
    from scipy.optimize import linprog  # noqa: PLC0415  (heavy)

    maps: list[Any] = []
    for held, table in told.items():
        at = (
            np.ravel_multi_index(tuple(cells[:, names.index(n)] for n in held), table.shape)
            if held
            else 0 * cells[:, 0]
        )
        maps.append(
            sparse.csr_array((np.ones(len(cells)), (at, np.arange(len(cells)))), shape=(table.size, len(cells)))
        )
    counted = sparse.vstack(maps)
    wanted = np.concatenate([t.reshape(-1) for t in told.values()])
    scale = max(1.0, float(wanted.max()))
    change = sparse.eye_array(len(wanted))
    cost = np.concatenate([np.zeros(len(cells)), np.ones(2 * len(wanted))])
    equal: Any = sparse.hstack([counted, change, -change])
    found = linprog(cost, A_eq=equal, b_eq=wanted / scale, method="highs")
    return 0.0 if found.fun is None else float(found.fun) * scale


def _agree(domain: Domain, a: tuple[int, ...], first: FloatArray, b: tuple[int, ...], second: FloatArray) -> None:
    common = set(a) & set(b)
    sums = [
        t.sum(axis=tuple(i for i, axis in enumerate(axes) if axis not in common))
        for axes, t in ((a, first), (b, second))
    ]
    if np.abs(sums[0] - sums[1]).max() > _TOLERANCE * max(1.0, float(np.abs(sums[0]).max())):
        names = [", ".join(domain.names[i] for i in axes) or "the total" for axes in (a, b)]
        shared = ", ".join(domain.names[i] for i in sorted(common)) or "the number of records"
        raise PlanError(f"the public tables of {names[0]} and of {names[1]} disagree on {shared}")
