"""Cells that no record can be in, declared by predicates, and where a record that is in one is counted instead.

Predicates that share attributes are one group of attributes, of whose joint cells some are possible. Groups share no
attribute, so a cell of any table is possible exactly where it is possible for each group by itself.

A record is moved along as few attributes as it takes, the last of the domain first, each to the possible cell nearest
in number, the lower of two, and to `(other)` last. Places (`Hierarchy`) are left as they are unless nothing is possible
in one. The rule is public, looks at one record, and never changes: a stream that goes on later follows it too.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sfumato._util.bundles import shorten
from sfumato._util.codec import storable
from sfumato.cells import Moves
from sfumato.domain.attributes import Attribute
from sfumato.domain.hierarchies import Hierarchy
from sfumato.domain.predicates import CompiledPredicate, Mask, compile_predicate
from sfumato.errors import DomainError, WorkloadError

if TYPE_CHECKING:
    from sfumato.domain.core import Domain

_MOST_CELLS = 10_000_000  # of the attributes of one group: 80 MB where each of its cells goes, held by every plan


@storable
@dataclass(frozen=True, slots=True, eq=False)
class Tied:
    """Attributes that predicates tie to each other, in the domain's order, and which of their joint cells can be."""

    attributes: tuple[str, ...]
    allowed: Mask

    def over(self, names: Sequence[str]) -> Mask | None:
        """Which cells of a table can be, one axis for each name, of length 1 for other attributes; None: all."""
        mask = self.allowed.any(axis=tuple(i for i, a in enumerate(self.attributes) if a not in names))
        if mask.all():
            return None
        held = [a for a in self.attributes if a in names]
        turned = np.transpose(mask, [held.index(n) for n in names if n in held])
        return np.expand_dims(turned, tuple(i for i, n in enumerate(names) if n not in held))


def compile_impossible(domain: Domain, texts: object) -> list[CompiledPredicate]:
    """The predicates of a declaration. Raises DomainError for what is none, or holds for no cell."""
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise DomainError(f'impossible is a list of predicates, such as ["age < 15 and married"], not {shorten(texts)}')
    found: list[CompiledPredicate] = []
    for text in texts:
        try:
            one = compile_predicate(domain, text)
        except WorkloadError as error:
            raise DomainError(f"impossible: {error}") from error
        if not one.mask.any():
            raise DomainError(f"impossible: {shorten(one.text)} holds for no cell, so it says nothing; leave it out")
        if any(one.text == other.text for other in found):
            raise DomainError(f"impossible: {shorten(one.text)} is said twice")
        found.append(one)
    return found


def group_tied_attributes(domain: Domain, predicates: Sequence[CompiledPredicate]) -> tuple[Tied, ...]:
    """Attributes tied by predicates. Raises DomainError where a group has too many cells, or none is left."""
    sets: list[set[str]] = []
    for one in predicates:
        tied = {*one.attributes}.union(*(s for s in sets if s & {*one.attributes}))
        sets = [*(s for s in sets if not s & tied), tied]
    found: list[Tied] = []
    for names in (domain.ordered(s) for s in sets):
        shape = domain.sizes(names)
        if math.prod(shape) > _MOST_CELLS:
            listed = ", ".join(f"{n} has {s:,}" for n, s in zip(names, shape, strict=True))
            raise DomainError(
                f"impossible: attributes that predicates tie to each other may have {_MOST_CELLS:,} cells jointly: "
                f"{listed}; declare wider cells, or fewer predicates"
            )
        allowed = np.ones(shape, dtype=bool)
        for one in predicates:
            if set(one.attributes) <= set(names):
                allowed &= ~one.mask.reshape([domain[n].size if n in one.attributes else 1 for n in names])
        if not allowed.any():
            raise DomainError(
                f"impossible: the predicates over {', '.join(names)} leave no cell that a record can be in"
            )
        allowed.flags.writeable = False
        found.append(Tied(names, allowed))
    return tuple(found)


def joint_possible_mask(groups: Sequence[Tied], names: Sequence[str]) -> Mask | None:
    """Which cells of a table over attributes can hold a record, to be broadcast over them; None where all can."""
    masks = [m for m in (g.over(names) for g in groups) if m is not None]
    return functools.reduce(np.logical_and, masks) if masks else None


def possible_cells_mask(domain: Domain, groups: Sequence[Tied], names: Sequence[str]) -> Mask | None:
    """Which cells of a table over attributes or levels can hold a record; None where all can."""
    mask = joint_possible_mask(groups, [domain.owner(n) for n in names])
    if mask is None:
        return None
    for i, level in enumerate(map(domain.grouping, names)):
        if level is not None and mask.shape[i] > 1:
            merged = np.zeros((level.attribute.size, *np.delete(mask.shape, i)), dtype=bool)
            np.logical_or.at(merged, level.groups, np.moveaxis(mask, i, 0))
            mask = np.moveaxis(merged, 0, i)
    return None if mask.all() else np.broadcast_to(mask, domain.sizes(names))


def record_moves(domain: Domain, groups: Sequence[Tied], names: Sequence[str]) -> tuple[Moves, ...]:
    """Where records over some attributes are counted, by positions among these."""
    found: list[Moves] = []
    for group in groups:
        held = [a for a in group.attributes if a in names]
        allowed = group.over(held)
        if allowed is not None:
            own = [domain.attributes[a] for a in held]
            cells = _nearest_possible_cells(
                allowed, [a.declared_size for a in own], [isinstance(a, Hierarchy) for a in own]
            )
            found.append(Moves(tuple(names.index(a) for a in held), cells))
    return tuple(found)


def _nearest_possible_cells(allowed: Mask, declared: Sequence[int], places: Sequence[bool]) -> NDArray[np.int64]:
    """For every cell the possible one that is nearest, flat: one attribute more changes in every round."""
    target = np.where(allowed, np.arange(allowed.size).reshape(allowed.shape), -1)
    last_first = range(allowed.ndim - 1, -1, -1)
    plain = [i for i in last_first if not places[i]]
    for axes in (plain, [*plain, *(i for i in last_first if places[i])]):
        while (target < 0).any():
            found = target.copy()
            for axis in axes:
                line = np.moveaxis(target, axis, -1)
                near = _nearest_along_lines(line >= 0, declared[axis])
                taken = np.where(near >= 0, np.take_along_axis(line, np.maximum(near, 0), axis=-1), -1)
                found = np.where(found < 0, np.moveaxis(taken, -1, axis), found)
            if (found == target).all():
                break
            target = found
    return target.reshape(-1)


def _nearest_along_lines(known: Mask, declared: int) -> NDArray[np.int64]:
    """For every cell of lines the nearest known one, the lower of two; the cells after `declared` last; -1: none."""
    size = known.shape[-1]
    at = np.arange(size)
    usual = known & (at < declared)
    before = np.maximum.accumulate(np.where(usual, at, -1), axis=-1)
    after = np.minimum.accumulate(np.where(usual, at, size)[..., ::-1], axis=-1)[..., ::-1]
    near = np.where((before >= 0) & ((after == size) | (at - before <= after - at)), before, after)
    return np.where(near < size, near, np.where(known[..., -1:], size - 1, -1))


FloatArray = NDArray[np.float64]


def cell_value_ranges(attribute: Attribute) -> FloatArray | None:
    """(cells, 2) the least and the largest value that a declared cell's records have; None where it has no numbers.

    Of whole numbers the last one of a cell, so that a cell of one number spans nothing; of others the edges.
    """
    if attribute.midpoints is not None and attribute.kind == "measure":
        return np.repeat(np.asarray(attribute.midpoints, dtype=np.float64)[:, None], 2, axis=1)
    if attribute.intervals is None or attribute.midpoints is None:
        return None
    found = np.asarray(attribute.intervals, dtype=np.float64).reshape(-1, 2)
    if attribute.kind == "integer":
        found[:, 1] -= 1
    return found


def upper_rows(attribute: Attribute) -> list[FloatArray]:
    """(declared cells,) each: rows nowhere below the cells' upper ends, the nearest first. Empty without numbers.

    The ends themselves; the middles and a constant, which sums and counts answer; a multiple of the middles, which a
    sum alone answers, where no number is below 0. So whatever counts are, each bounds what the values add up to.
    """
    found = cell_value_ranges(attribute)
    if found is None:
        return []
    return _bound_rows(found[:, 1], np.asarray(attribute.midpoints, dtype=np.float64), found, 1.0)


def lower_rows(attribute: Attribute) -> list[FloatArray]:
    """(declared cells,) each: rows nowhere above the cells' lower ends, the nearest first, as `upper_rows`."""
    found = cell_value_ranges(attribute)
    if found is None:
        return []
    return _bound_rows(found[:, 0], np.asarray(attribute.midpoints, dtype=np.float64), found, -1.0)


def _bound_rows(ends: FloatArray, middles: FloatArray, found: FloatArray, sign: float) -> list[FloatArray]:
    rows = [ends, middles + sign * np.max(sign * (ends - middles))]
    if (found[:, 0] >= 0).all():
        told = middles > 0  # a middle of 0 is then a cell of 0 alone
        ratio = np.max(sign * ends[told] / middles[told], initial=-1.0 if sign < 0 else 0.0)
        rows.append(sign * ratio * middles)
    return rows
