"""From the names of attributes and levels to blocks, and from blocks back to names and labels."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np

from sfumato.domain import Attribute, Domain, Level
from sfumato.errors import WorkloadError
from sfumato.operators import (
    AllRange,
    Block,
    Compose,
    Family,
    Grouping,
    Identity,
    LinearOperator,
    Padded,
    Prefix,
    Stack,
    Total,
    Window,
)


def lift_to_attribute(domain: Domain, name: str, operator: LinearOperator | None = None) -> tuple[str, LinearOperator]:
    """The attribute that a name belongs to, and the operator over the cells of that name (every cell, unless
    given) as one over the attribute's cells."""
    level, owner = domain.grouping(name), domain.owner(name)
    if operator is None:
        domain.check_counted([owner])
    if level is None:
        return owner, Identity(domain[owner].size) if operator is None else operator
    grouping = Grouping(level.groups, level.attribute.size)
    return owner, grouping if operator is None else Compose(operator, grouping)


def table_block(domain: Domain, names: Iterable[str]) -> Block:
    """The cells of the table over the named attributes or levels, in the order given."""
    axes = [lift_to_attribute(domain, name) for name in domain.columns(names)]
    return Block(tuple((owner,) for owner, _ in axes), tuple(factor for _, factor in axes))


def every_level(domain: Domain, attribute: str) -> LinearOperator:
    """The groups of every level of an attribute, coarsest first, then its cells. Refused where it has no levels."""
    levels = [lift_to_attribute(domain, level.name)[1] for level in domain.groupings(attribute)]
    if not levels:
        raise WorkloadError(
            f"{attribute} has no levels; declare them with sf.Hierarchy, or with levels= of sf.Integers or sf.Bins"
        )
    return Stack((*levels, Identity(domain[attribute].size)))


def names_asked(domain: Domain, block: Block) -> tuple[str, ...]:
    """What the axes of a block's table are called: levels by their own names, cells by their attribute's."""
    return tuple(
        name
        for group, factor in zip(block.groups, block.factors, strict=True)
        for name in ([_split_grouping(domain, group[0], factor)[0]] if len(group) == 1 else group)
    )


def table_names(domain: Domain, block: Block) -> tuple[str, ...] | None:
    """The names whose table has the rows of a block as its cells; None for a block that asks something else."""
    cells = all(
        isinstance(_split_grouping(domain, group[0], factor)[2] if len(group) == 1 else factor, Identity)
        for group, factor in zip(block.groups, block.factors, strict=True)
    )
    return names_asked(domain, block) if cells else None


def family_names(domain: Domain, family: Family) -> list[tuple[str, ...]]:
    """What the axes of every table of a family are called."""
    shown = [_split_grouping(domain, n, f)[0] for n, f in zip(family.names, family.factors, strict=True)]
    return [tuple(shown[a] for a in axes) for axes in family.sets.tolist()]


def is_table_family(domain: Domain, family: Family) -> bool:
    """Whether the rows of every block of a family are the cells of a table over attributes or levels."""
    used = np.unique(family.sets).tolist()
    return all(isinstance(_split_grouping(domain, family.names[a], family.factors[a])[2], Identity) for a in used)


def _split_grouping(domain: Domain, name: str, factor: LinearOperator) -> tuple[str, Attribute, LinearOperator]:
    """The name and the attribute whose cells a factor is over, and the factor over these."""
    right = factor.right if isinstance(factor, Compose) else factor
    if isinstance(right, Grouping):
        for level in domain.groupings(name):
            if _is_level_grouping(level, right):
                left = factor.left if isinstance(factor, Compose) else Identity(right.groups)
                return level.name, level.attribute, left
    return name, domain[name], factor


def _is_level_grouping(level: Level, grouping: Grouping) -> bool:
    return level.attribute.size == grouping.groups and np.array_equal(level.groups, grouping.codes)


def row_labels(domain: Domain, group: tuple[str, ...], factor: LinearOperator) -> list[str]:
    """Texts for the rows of one factor over the cells of a group of attributes."""
    if isinstance(factor, Padded):
        factor = factor.operator
    if not group and factor.shape[0] == 1:
        return ["total"]
    if isinstance(factor, Total):
        return [""]
    if len(group) == 1:
        if isinstance(factor, Stack):
            return [text for part in factor.parts for text in row_labels(domain, group, part)]
        name, attribute, factor = _split_grouping(domain, group[0], factor)
        found = _factor_row_labels(name, attribute.labels, factor)
        return [f"{name} query {i}" for i in range(factor.shape[0])] if found is None else found
    if isinstance(factor, Identity):
        combinations = itertools.product(*(domain[n].labels for n in group))
        return [", ".join(f"{n} = {c}" for n, c in zip(group, row, strict=True)) for row in combinations]
    return [f"{' x '.join(group) or 'total'} query {i}" for i in range(factor.shape[0])]


def _factor_row_labels(name: str, cells: tuple[str, ...], factor: LinearOperator) -> list[str] | None:
    """Texts for the rows of a factor over cells with these labels, None where it says nothing of their meaning."""
    if isinstance(factor, Padded):
        factor = factor.operator
    if isinstance(factor, Identity):
        return [f"{name} = {c}" for c in cells]
    if isinstance(factor, Prefix):
        return [f"{name} up to {c}" for c in cells[: factor.n]]
    if isinstance(factor, (AllRange, Window)):
        first, last = factor.spans()
        return [
            f"{name} from {cells[a]} to {cells[b]}" for a, b in zip(first.tolist(), (last - 1).tolist(), strict=True)
        ]
    return None
