"""Marginal tables known from elsewhere, such as published census counts: used as exact, never measured."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from sfumato.designs.known import Known
from sfumato.domain import Domain
from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray, real_array

__all__ = ["read_public"]

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
