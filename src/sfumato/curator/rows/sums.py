"""Sums of measures taken by the engine that reads the rows, where a release asks for nothing else.

Then no record is kept: one pass adds up the features that its maps make something of, within the cells of the other
attributes. They are those of `shares.py` to the bit: the same products of the same doubles, of which whole numbers are
added up, all below 2^53. What maps make nothing of is left at 0, so that these tables are for those maps alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.cells import MAX_MEASURES, POINTS, Amounts, Grid
from sfumato.curator.rows.counting import Cluster, Counts, Sets, Table
from sfumato.curator.rows.shares import SHARES, share_tables
from sfumato.errors import SourceError
from sfumato.maps import BlockMap, Map
from sfumato.privacy.measures import over_features

if TYPE_CHECKING:
    from sfumato.curator.rows.readers import OpenedTable

_MOST_CELLS = 2**16  # of other attributes: with whether numbers are there at most eight times as many lines
_MOST_ROWS = 2**28  # whose features, up to 2^24 each, add up to 2^52: doubles hold them, whatever the order


@dataclass(frozen=True, slots=True)
class AskedSums:
    """What maps ask of rows, and nothing of the rows: attributes by their positions, and features by their powers.

    axes: those of the table from which all others follow, ascending; powers: of its measures, in that order, 0 to 2.
    """

    axes: tuple[int, ...]
    powers: tuple[tuple[int, ...], ...]


def asked_sums(grid: Grid, maps: Sequence[object]) -> AskedSums | None:
    """What is asked where maps sum measures without knots, all in one table of few other cells; else None."""
    blocks = [b for b in maps if isinstance(b, BlockMap)]
    measures = set(grid.measures)
    if len(blocks) < len(maps) or grid.moves or not all(measures & set(b.attributes) for b in blocks):
        return None
    sets = [tuple(sorted(map(grid.axis, b.attributes))) for b in blocks]
    axes = max(sets, key=len)
    mine = [a for a in axes if grid.names[a] in measures]
    rules = [grid.rules[a] for a in mine]
    cells = math.prod(grid.shape[a] for a in axes if a not in mine)
    plain = all(isinstance(r, Amounts) and not r.knots for r in rules)
    if not all(set(s) <= set(axes) for s in sets) or not plain or len(mine) > MAX_MEASURES or cells > _MOST_CELLS:
        return None
    seen = reduce(np.logical_or, (_features_seen(grid, [grid.names[a] for a in mine], b) for b in blocks))
    powers = {tuple(p % 3 for p in place) for place in np.argwhere(seen).tolist()}
    return AskedSums(axes, tuple(sorted(p for p in powers if any(p))))


def _features_seen(grid: Grid, names: Sequence[str], block: BlockMap) -> NDArray[np.bool_]:
    """(4, 4, …) which features of some measures a block sees: of each 1, t, t^2, and 1 of who has no number."""
    sizes = grid.sizes()
    found = np.ones((4,) * len(names), dtype=bool)
    for axis, name in enumerate(names):
        if name not in block.attributes:  # all its cells are added up: t and t^2 cancel
            found &= np.array([True, False, False, True]).reshape([-1 if a == axis else 1 for a in range(len(names))])
    for group, factor in zip(block.groups, block.factors, strict=True):
        mine = [a for a in group if a in names]
        if not mine or not isinstance(factor, Map):
            continue
        seen = (over_features(factor, group, sizes, names)[0] != 0).any(axis=0)
        seen = seen.reshape([4 if a in names else sizes[a] for a in group])
        seen = seen.any(axis=tuple(i for i, a in enumerate(group) if a not in names))
        order = sorted(range(len(mine)), key=lambda i: names.index(mine[i]))
        found &= seen.transpose(order).reshape([4 if a in mine else 1 for a in names])
    return found


def sum_encoded(opened: OpenedTable, grid: Grid, asked: AskedSums, *, persons: bool) -> Counts | None:
    """The sums over the encoded rows; None where there are too many of these. Raises SourceError."""
    mine = [a for a in asked.axes if grid.names[a] in grid.measures]
    plain = [a for a in asked.axes if a not in mine]
    cells = math.prod(grid.shape[a] for a in plain)
    sql = _sums_sql(grid, plain, mine, asked.powers, persons=persons)
    lines = np.array(opened.session.connection.execute(sql).fetchall(), dtype=np.float64)
    lines = lines.reshape(-1, 3 + len(asked.powers))
    rows = int(lines[:, 1].sum())
    if rows >= _MOST_ROWS:
        return None
    if not np.isfinite(lines).all() or (lines < 0).any() or (lines[:, 0] >= cells << len(mine)).any():
        raise SourceError(f"{opened.label} was not encoded as declared; please report this as an error of the library")
    key, held, cut, *sums = lines.astype(np.int64).T
    table = np.zeros((4,) * len(mine) + (cells,), dtype=np.int64)
    for state in range(2 ** len(mine)):
        none = [state >> i & 1 for i in range(len(mine))]
        here = key // cells == state
        for powers, values in zip([(0,) * len(mine), *asked.powers], [held * SHARES, *sums], strict=True):
            if not any(p and absent for p, absent in zip(powers, none, strict=True)):
                feature = tuple(3 if absent else p for p, absent in zip(powers, none, strict=True))
                table[(*feature, key[here] % cells)] += values[here]
    found = share_tables(grid, np.array([asked.axes]), [table.reshape(-1, cells)])[0]
    if int(found.sum()) != rows * SHARES:
        raise SourceError(f"{opened.label} does not add up to the number of its records")
    opened.session.close()
    return SummedCounts(grid, rows, asked.axes, found.reshape([grid.shape[a] for a in asked.axes]), cut=int(cut.sum()))


def _sums_sql(
    grid: Grid, plain: Sequence[int], mine: Sequence[int], powers: Sequence[Sequence[int]], *, persons: bool
) -> str:
    """By joint cell, and by which numbers there are not: how many records, of how many persons who were cut, and sums.

    Places are multiplied one after another, as `shares.py` does; dividing them by powers of 2 before changes no bit.
    """
    cells = math.prod(grid.shape[a] for a in plain)
    places = {a: f"CAST(a{a} AS DOUBLE)" if persons else f"d{a}" for a in mine}
    key = "CAST(0 AS UINTEGER)"
    for n, a in enumerate(plain):
        key = f"({key}) * {grid.shape[a]} + a{a}" if n else f"CAST(a{a} AS UINTEGER)"
    states = [f"CASE WHEN {p} > {POINTS} THEN {cells << i} ELSE 0 END" for i, p in enumerate(places.values())]
    known = " AND ".join(f"{p} <= {POINTS}" for p in places.values())
    inner = [f"CASE WHEN {known} THEN {key} ELSE {key} + {' + '.join(states)} END AS k", *(["cut"] if persons else [])]
    inner += [f"{p} * {_literal(SHARES**0.5 / POINTS)} AS p{a}" for a, p in places.items()]
    sums: list[str] = []
    for own in powers:
        product = " * ".join(f"p{a}" for a, p in zip(mine, own, strict=True) for _ in range(p))
        more = SHARES ** (1 - sum(own) / 2)
        scaled = product if more == 1 else f"{product} * {_literal(more)}"
        sums.append(f"sum(floor({scaled} + {_literal(0.5)}))")
    counts = ["count(*)", "count(*) FILTER (cut)" if persons else "0"]
    return f"SELECT {', '.join(['k', *counts, *sums])} FROM (SELECT {', '.join(inner)} FROM encoded) GROUP BY k"


def _literal(value: float) -> str:
    return f"CAST('{value!r}' AS DOUBLE)"


@dataclass(frozen=True, slots=True, eq=False)
class SummedCounts(Counts):
    """The one table that was asked, shaped by its attributes, and those that follow from it. It holds no records."""

    kept: ClassVar[bool] = False
    axes: tuple[int, ...]
    whole: Table = field(repr=False)

    def _tables(self, sets: Sets) -> Iterator[tuple[Cluster, Table]]:
        if any(map(len, sets)):
            raise SourceError("nothing but sums of measures was taken from these rows")
        return iter(())

    def shared(self, sets: Sequence[Sequence[int]]) -> Iterator[tuple[tuple[int, ...], Table]]:
        for axes in map(tuple, sets):
            if not set(axes) <= set(self.axes):
                raise SourceError("other sums of measures were taken from these rows")
            yield axes, np.array(self.whole.sum(axis=tuple(i for i, a in enumerate(self.axes) if a not in axes)))
