"""What a release says, as the ladder takes it, and what it says of every rung."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.ground.codec import storable
from sfumato.operators.base import FloatArray

__all__ = ["Asked", "Axes", "Possible", "Rung", "Told", "below", "every_cell"]

Axes = tuple[int, ...]
Possible = Callable[[Axes], NDArray[np.bool_] | None]


def every_cell(axes: Axes) -> None:
    """Of every table all cells can hold a record."""
    del axes


def below(axes: Axes) -> list[Axes]:
    """The sets of fewer attributes, smallest first, without the empty one."""
    return [s for r in range(1, len(axes)) for s in itertools.combinations(axes, r)]


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """Queries that are no cells of a table: cumulative counts, named counts, sums, levels.

    axes: ascending positions of their attributes. rows: (q, *cells along these) what each query counts every cell
    with. values, variances: (q,) noisy unbiased answers and the variance of their noise.
    """

    name: str
    axes: Axes
    rows: FloatArray
    values: FloatArray
    variances: FloatArray

    @property
    def groups(self) -> bool:
        """Whether every cell counts for at most one query, and then once: named counts, tables over levels."""
        return bool(((self.rows == 0) | (self.rows == 1)).all() and (self.rows.sum(axis=0) <= 1).all())


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """Unbiased noisy answers before any is moved.

    names, sizes: the attributes and their cells. tables: for every set of attributes under a table that is known, the
    empty one and single attributes among them, its noisy cells. spread: for each of them the variance of what its
    cells have beyond their means along every attribute. asked: the other queries. total: where it is public. possible:
    which cells of a table can hold a record, None where all can.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    tables: Mapping[Axes, FloatArray]
    variances: Mapping[Axes, float]
    spread: Mapping[Axes, float]
    asked: tuple[Asked, ...] = ()
    total: float | None = None
    possible: Possible = every_cell


@storable
@dataclass(frozen=True, slots=True)
class Rung:
    """One step of the ladder: what was held from there on, and how nearly that was possible.

    moved: root mean squared distance of its answers from the unprojected ones, in standard errors of these. gap: what
    its answers miss of the values that they were to be held to, root mean squared, in the same unit; 0 where a rung
    is held exactly.
    """

    name: str
    queries: int
    moved: float
    gap: float = 0.0
