"""Which tables a tree of places is asked for, and floors and caps of the records that its groups have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.spine.asked import level_tables, place_of, read_levels
from sfumato.designs.spine.places import Place
from sfumato.domain import Domain
from sfumato.domain.predicates import compile_predicate
from sfumato.errors import PlanError
from sfumato.estimate.spine.cells import IntArray, Sets
from sfumato.estimate.spine.limits import Bounds, limits
from sfumato.ground.names import shorten
from sfumato.operators import LinearOperator
from sfumato.workloads import Workload
from sfumato.workloads.reading import Section

__all__ = ["MAX_CELLS", "Levels", "declared_bounds", "group_called", "levels_asked", "read_bounds"]

MAX_CELLS = 2**16  # of a table within a unit: a family of thirty children is then 16 MB, and its columns as many
_MAX_SETS = 2**10  # of attributes beside the place: each costs a pass over a family's cells


@dataclass(frozen=True, eq=False, slots=True)
class Levels:
    """place: the attribute that is asked at levels; levels: their operators; axes: the others, as positions; sets:
    those that are asked of these, as axes of their table; possible: the cells of the table over all of these that
    can hold a record, None where all can."""

    place: int
    levels: tuple[LinearOperator, ...]
    axes: tuple[int, ...]
    sets: tuple[Sets, ...]
    possible: IntArray | None


def levels_asked(work: Workload) -> Levels | None:
    """What a workload of tables at the levels of one attribute asks; None for any other, and where it is too large."""
    place = place_of(work)
    if place is None:
        return None
    try:
        levels, asked = level_tables(work, place)
    except PlanError:
        return None
    domain = work.domain
    axes = tuple(sorted({i for _, s in asked for i in s}))
    sizes = [domain.shape[i] for i in axes]
    if not levels or 2 ** len(axes) > _MAX_SETS or math.prod(sizes) > MAX_CELLS:
        return None
    if any(domain.names[place] in tied.attributes for tied in domain.tied):
        # what cannot be in one unit and can in another may leave a family no way to add up
        return None
    mask = domain.possible([domain.names[i] for i in axes])
    possible = None if mask is None else np.flatnonzero(np.broadcast_to(mask, sizes))
    sets = tuple(dict.fromkeys(tuple(axes.index(i) for i in s) for _, s in asked))
    return Levels(place, levels, axes, sets, possible)


def declared_bounds(root: Section, work: Workload, public: Mapping[tuple[str, ...], Any]) -> dict[Any, Any]:
    """The floors and caps of a spec, as `Release.project` takes them: [[bounds]] with a level, a condition where they
    are of a set of cells, and `least`, `most`, each a number or one for each group.

    Raises SpecError for what is none, and where no table is within them and the public totals of groups.
    """
    out: dict[Any, Any] = {}
    entries = root.sections("bounds")
    for entry in entries:
        entry.allow("level", "where", "least", "most")
        entry.need("level", "it names the level whose groups are bounded")
        name, where = entry.text("level"), entry.text("where")
        if "least" not in entry and "most" not in entry:
            raise entry.refuse("give least, most, or both: a number or one for each group", "level")
        key = name if where is None else (name, where)
        if key in out:
            raise entry.refuse(f"the bounds of {name} are given twice", "level")
        least, most = (
            entry.numbers(k) if isinstance(entry.raw(k), list) else entry.number(k) for k in ("least", "most")
        )
        out[key] = (0 if least is None else least, math.inf if most is None else most)
        with entry.guard("level" if where is None else "where"):
            _check(work, {key: out[key]}, {})
    if entries:
        with entries[0].guard():
            _check(work, out, public)
    return out


def _check(work: Workload, bounds: Mapping[Any, Any], public: Mapping[tuple[str, ...], Any]) -> None:
    """Refuse bounds that no release of a workload could be projected within. public: totals of groups that are known,
    which are floors and caps too. Raises PlanError.
    """
    found = levels_asked(work)
    if found is None:
        raise PlanError("bounds are of groups of a tree; ask for tables at its levels, factors = {...: 'levels'}")
    own = read_bounds(work, found, bounds, integer=False)
    place = work.domain.names[found.place]
    places = Place.of(read_levels(found.levels), work.domain.shape[found.place])
    names = [_name(work.domain, codes, place) for codes in places.codes]
    rows = dict(own.rows)
    for names_of, counts in public.items():
        if len(names_of) == 1 and names_of[0] in names:
            level = names.index(names_of[0]) + 1
            known = np.asarray(counts, dtype=np.float64)
            held = rows.get(level, np.tile([0.0, np.inf] * 3, (len(places.order[level]), 1))).copy()
            if known.shape == (len(held),):
                held[:, 0], held[:, 1] = np.maximum(held[:, 0], known), np.minimum(held[:, 1], known)
            rows[level] = held
    limits(
        places, (), None, Bounds(rows, own.inside), found.possible, partial(group_called, work.domain, place, places)
    )


def _name(domain: Domain, codes: IntArray, place: str) -> str | None:
    for name in (place, *domain.levels):
        if domain.owner(name) == place and np.array_equal(_groups(domain, name), codes):
            return name
    return None


def _groups(domain: Domain, name: str) -> IntArray:
    own = domain.grouping(name)
    return np.arange(domain.sizes([name])[0]) if own is None else own.groups


def read_bounds(work: Workload, found: Levels, bounds: Mapping[Any, Any], *, integer: bool) -> Bounds:
    """By the number of the level, as whole numbers where counts are `integer`. Raises PlanError for what is none."""
    domain, place = work.domain, work.domain.names[found.place]
    rows: dict[int, NDArray[np.float64]] = {}
    inside: NDArray[np.bool_] | None = None
    codes = read_levels(found.levels)
    for key, given in bounds.items():
        name, where = _named(key)
        groups = _groups(domain, name) if name in domain and domain.owner(name) == place else None
        at = [] if groups is None else [i for i, c in enumerate(codes, 1) if np.array_equal(c, groups)]
        if not at:
            raise PlanError(f"bounds are of groups at the levels of {place} that were asked, not of {name!r}")
        of = name if where is None else f"{name} where {where}"
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise PlanError(
                f"bounds of {of} are a pair, the least and the most records: a number or one for each group"
            )
        count = found.levels[at[0] - 1].shape[0]
        low, high = (_row(v, count, of, other=domain[name].has_other) for v in given)
        low = np.maximum(low, 0.0)
        if domain[name].has_other and np.ndim(given[0]) == 0:
            low[-1] = 0.0  # one floor is of the groups that were declared: it must not make people who are nowhere
        if integer:
            low, high = np.ceil(low), np.floor(high)
        column = 0
        if where is not None:
            held = _inside(domain, found, where)
            inside = held if inside is None else inside
            column = 2 if np.array_equal(held, inside) else 4
            if column == 4 and not np.array_equal(~held, inside):
                raise PlanError(
                    f"bounds are of totals, of one set of cells, and of all others: {where!r} is a second set, and "
                    "floors and caps of two sets beside totals do not tell whether any table is left; give one of them"
                )
        own = rows.setdefault(at[0], np.tile([0.0, np.inf] * 3, (count, 1)))
        own[:, column] = np.maximum(own[:, column], low)
        own[:, column + 1] = np.minimum(own[:, column + 1], high)
    return Bounds(rows, inside)


def _row(given: Any, count: int, of: str, *, other: bool) -> NDArray[np.float64]:
    """(count,) floors or caps, from one number or one for each group. Raises PlanError for anything else."""
    try:
        row = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        row = np.array(np.nan)
    if row.shape not in ((), (count,)) or np.isnan(row).any():
        last = ", '(other)' last" if other else ""
        raise PlanError(
            f"bounds of {of} are one number, or {count:,}: one for each group{last}; not {shorten(given)}. Where "
            "there is no floor give 0, and where there is no cap math.inf"
        )
    return np.broadcast_to(row, (count,))


def group_called(domain: Domain, place: str, places: Place, level: int, number: int) -> str:
    """What people call a group of a tree: its level and its label. number: as the level numbers its groups."""
    name = _name(domain, places.codes[level - 1], place) if level else None
    return f"group {number} of level {level}" if name is None else f"{name} {domain[name].labels[number]!r}"


def _named(key: Any) -> tuple[str, str | None]:
    pair = key if isinstance(key, tuple) else (key, None)
    if len(pair) != 2 or not isinstance(pair[0], str):
        raise PlanError(f"bounds are by a level, or by a level and a condition, not by {key!r}")
    return pair[0], pair[1]


def _inside(domain: Domain, found: Levels, text: str) -> NDArray[np.bool_]:
    """(cells,) which cells of the table within a unit hold a condition."""
    names = [domain.names[i] for i in found.axes]
    one = compile_predicate(domain, text)
    if not {*one.attributes} <= {*names}:
        raise PlanError(
            f"a bounded set of cells is said by what was asked within units, {', '.join(names) or 'nothing'}, not by "
            f"{text!r}"
        )
    # both in the order of the domain
    sizes = domain.sizes(names)
    spread = [n if a in one.attributes else 1 for a, n in zip(names, sizes, strict=True)]
    return np.ascontiguousarray(np.broadcast_to(one.mask.reshape(spread), sizes)).reshape(-1)
