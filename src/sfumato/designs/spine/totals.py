"""Totals of groups that are public, and the relation under which they may be: a record replaced within its group.

Said in one text, "replace-one within state". Two tables are then neighbours if one record of one was replaced by
another that counts in the same state, so that all neighbours have the same totals of states: these protect nothing
and cost nothing, and in which state a record counts is not protected either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.known import KnownGroups
from sfumato.domain import Domain
from sfumato.errors import PlanError
from sfumato.ground.codec import fingerprint
from sfumato.ground.names import shorten
from sfumato.operators.base import real_array
from sfumato.privacy.unit import Neighbours, PrivacyUnit, Within

__all__ = ["WITHIN", "read_totals", "read_unit", "relation"]

WITHIN = " within "
"""Between a relation and the name of the groups in which records are replaced."""


def relation(unit: PrivacyUnit) -> str:
    """The neighbour relation as `read_unit` reads it."""
    return unit.neighbours.value + (f"{WITHIN}{unit.within.name}" if unit.within else "")


def read_unit(
    neighbours: str | Neighbours, person: str | None, rows_per_person: int, domain: Domain | None
) -> PrivacyUnit:
    """The privacy unit of a relation, "replace-one within" a level or attribute of the domain among them.

    Raises PlanError; DomainError for a name that the domain does not have.
    """
    text, _, name = neighbours.partition(WITHIN) if isinstance(neighbours, str) else (neighbours, "", "")
    found = Neighbours.parse(text)
    if not name:
        return PrivacyUnit(found, person, rows_per_person)
    if found is not Neighbours.REPLACE_ONE or person is not None:
        raise PlanError(
            f"{neighbours!r}: records are replaced within groups under 'replace-one' alone, and without person=; "
            "how many records a group has would change otherwise, so its total could not be public"
        )
    if domain is None:
        raise PlanError(f"{neighbours!r} is for tables of cells at levels; elsewhere say 'replace-one'")
    return PrivacyUnit(found, None, rows_per_person, _within(domain, name))


def _within(domain: Domain, name: str) -> Within:
    level, owner = domain.grouping(name), domain.owner(name)
    codes = np.arange(domain[owner].size, dtype=np.int64) if level is None else np.array(level.groups, dtype=np.int64)
    _stays(domain, owner, codes, name)
    return Within(name, owner, fingerprint((owner, codes)), codes)


def _stays(domain: Domain, owner: str, codes: NDArray[np.int64], name: str) -> None:
    """Refuse impossible cells whose records would be counted in another group than that which they say."""
    axis = domain.axis(owner)
    for move in domain.moves():
        if axis in move.axes:
            sizes, at = [domain.shape[a] for a in move.axes], move.axes.index(axis)
            before, after = (np.unravel_index(c, sizes)[at] for c in (np.arange(len(move.cells)), move.cells))
            if (codes[before] != codes[after]).any():
                raise PlanError(
                    f"some cells are impossible whatever else a record of their {name} says, so that it counts in "
                    f"another {name}; its total cannot be public then: leave out the predicates over {owner}"
                )


def read_totals(domain: Domain, within: Within, public: Mapping[Any, Any] | None) -> KnownGroups:
    """The totals of the groups in which records are replaced, {(name,): counts}: whole numbers, one for every group.

    Raises PlanError where these are not given, or other tables are, or what the domain declares impossible.
    """
    name, codes = within.name, within.codes
    assert codes is not None
    groups = int(codes.max()) + 1
    given = {(k,) if isinstance(k, str) else tuple(k): v for k, v in (public or {}).items()}
    if list(given) != [(name,)]:
        raise PlanError(
            f"neighbours='replace-one within {name}' makes the totals of {name} public, and nothing else: give them, "
            f"and them alone, as public={{({name!r},): counts}}"
        )
    totals = given[name,]
    counts = None if isinstance(totals, Mapping) else real_array(totals, f"the public totals of {name}")
    if counts is None or counts.shape != (groups,):
        last = ", '(other)' last" if domain[name].has_other else ""
        raise PlanError(
            f"the public totals of {name} are a list of {groups:,} numbers, in the order of its groups{last}, not "
            f"{shorten(totals)}"
        )
    counts = counts.astype(np.float64)
    if not np.all(np.isfinite(counts)) or (counts < 0).any() or (counts != np.rint(counts)).any():
        raise PlanError(f"the public totals of {name} must be whole numbers that are not negative")
    possible = domain.possible([name])
    if possible is not None and counts[~possible].any():
        at = int(np.flatnonzero(~possible & (counts > 0))[0])
        raise PlanError(
            f"the public total of {name} = {domain[name].labels[at]} is {counts[at]:,.0f}, and the domain declares "
            "that impossible: one of them is wrong"
        )
    return KnownGroups(domain.axis(within.attribute), codes, counts)
