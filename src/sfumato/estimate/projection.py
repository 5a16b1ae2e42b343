"""The input and the result of a projection onto the answers that some table could have given. [NTZ13]"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.errors import InvalidInput
from sfumato.estimate.ladder.told import Rung
from sfumato.estimate.local import ResidualNoise
from sfumato.estimate.possible import CellCounts, Possible, RecordCounts, TableCounts
from sfumato.ground import markup
from sfumato.ground.codec import storable
from sfumato.ground.frames import Frame
from sfumato.ground.later import later
from sfumato.ground.progress import Progress
from sfumato.operators import Block, Compose, Identity, LinearOperator, OnMarginal, Sparse, Stack
from sfumato.operators.base import FloatArray, real_array
from sfumato.workloads import Workload

__all__ = [
    "Projection",
    "Task",
    "joint_attributes",
    "joint_operator",
    "largest_tables",
    "possible_operator",
    "read_task",
]


_FEW = 12  # attributes: 4,096 sets inside one table are listed, more are compared instead
_SHOWN = 10  # answers in a notebook: how they look, not what they are
_HELD = 0.01  # standard errors
_NAMED = 4  # rungs whose distance is told: what a line holds
_UNMOVED = 1e-6  # in units of the noise: what rounding alone moves

_LARGER = {
    "mixtures": "tables agree, are not negative and are near models that were fitted to the data",
    "local": "tables agree and are not negative",
    "sdp": "pairs have a possible matrix of correlations",
    "sdp+local": "tables agree, are not negative and have a possible matrix of correlations",
}


@storable
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Projection:
    """Answers that some table could have given, or nearly so, nearest to noisy ones.

    answers: (k,) in the units of the given ones. possible: counts that have these answers. gap: a bound on the
    squared distance between `answers` and the true projection onto the body, in the projected norm;
    `certified` says whether it is proved. moved: distance from the noisy answers in that norm.
    `realisable`: a table of nonnegative (fractional) counts with exactly these answers was found; the local and
    "sdp" bodies hold other answers too, so for them it is not known whether there is one. `rounded`: where the counts
    were rounded afterwards, the root mean squared change of the answers by that; `gap` and `moved` are those before.
    `norm`: that of the distances, "answers" (all weigh the same), "noise" (weighted by a covariance) or "ladder": then
    `rungs` were held one after the other, each with a gap of its own, and `gap` and `moved` are of the last step, in
    which tables over several attributes move, each in units of the noise of what it has beyond its margins.
    "families": a tree was settled from the root down; `gap` and `moved` add up what is proved of every family given
    its parent, in units of the noise, and `answers` are empty above ten million, where they are read off `possible`.
    left_out: which answers the body cannot hold, in words, for their tables were not measured as a whole: they are as
    they were.

    >>> found = sf.project([3.0, -1.0, 4.0], sf.identity(sf.Domain({"age": 3})), total=6)
    >>> found.answers, found.realisable, round(found.moved, 3)
    (array([2.5, 0. , 3.5]), True, 1.225)
    >>> print(found.describe())
    onto 'simplex' (some table has exactly these answers), moved by 1.225, within 0 of the nearest
    """

    answers: FloatArray
    possible: Possible
    gap: float
    certified: bool
    moved: float
    iterations: int
    body: str
    realisable: bool
    rounded: float | None = None
    norm: str = "answers"
    rungs: tuple[Rung, ...] = later(())
    left_out: tuple[str, ...] = later(())

    @property
    def cells(self) -> FloatArray | None:
        """Nonnegative cells of one table with these answers, shaped by its attributes; None where none is held."""
        return self.possible.values if isinstance(self.possible, CellCounts) else None

    @property
    def weights(self) -> FloatArray | None:
        """(r,) how many of each of the records that give these answers; None where none are held."""
        return self.possible.weights if isinstance(self.possible, RecordCounts) else None

    def describe(self) -> str:
        """What was done, in words."""
        if not self.left_out:
            return self._done()
        left = f"{', '.join(self.left_out)} stay as they were measured, for their whole tables were not"
        return (
            f"{self._done()}; {left}"
            if not isinstance(self.possible, TableCounts) or self.possible.attributes
            else f"onto nothing: {left}"
        )

    def _done(self) -> str:
        kind = "some table has exactly these answers" if self.realisable else _LARGER[self.body]
        proof = f"within {math.sqrt(max(self.gap, 0.0)):.3g} of the nearest" if self.certified else "not certified"
        if self.norm == "families":
            proof += " family by family, each given its parent"
        what = "cells of a family" if self.norm == "families" else "answers"
        whole = (
            "" if self.rounded is None else f"; then rounded to whole counts, which moved {what} by {self.rounded:.3g}"
        )
        if self.norm == "ladder":
            share = math.sqrt(max(self.gap, 0.0)) / self.moved if self.moved > 0 else 0.0
            missed = max((r.gap for r in self.rungs), default=0.0)
            held = "all held" if missed < _HELD else f"held to within {missed:.2g} standard errors"
            named = ", ".join(f"{r.name} {round(r.moved, 6):.2g}" for r in self.rungs[:_NAMED])
            more = f", {len(self.rungs) - _NAMED} more" if len(self.rungs) > _NAMED else ""
            rungs = f"{len(self.rungs)} coarser rungs {held} (moved, in standard errors: {named}{more})"
            last = f"finer tables moved by {self.moved:.3g} in units of their noise, within {share:.0%} of the nearest"
            if self.moved < _UNMOVED:
                last = "nothing finer moved"
            return f"onto {self.body!r} ({kind}) by the ladder: {rungs}; {last}{whole}"
        return f"onto {self.body!r} ({kind}), moved by {self.moved:,.4g}, {proof}{whole}"

    def __repr__(self) -> str:
        proof = f"gap {self.gap:.3g}" if self.certified else "not certified"
        held = f"{len(self.answers):,} answers" if len(self.answers) else "answers not listed"
        return f"<Projection onto {self.body!r}: {held}, moved {self.moved:.4g}, {proof}>"

    def _repr_html_(self) -> str:
        first = Frame({"answer": self.answers[:_SHOWN].tolist()})
        what = f"The first {_SHOWN} of {len(self.answers):,} answers" if len(self.answers) > _SHOWN else "Answers"
        return markup.card(f"Projection onto {self.body!r}", [("", self.describe())], {what: first})


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """What is projected."""

    work: Workload
    answers: FloatArray
    total: float | None
    covariance: FloatArray | None
    residuals: ResidualNoise | None
    progress: Progress | None

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes that the queries mention."""
        return joint_attributes(self.work)

    @property
    def possible(self) -> NDArray[np.bool_] | None:
        """Which cells of that table can hold a record; None where all can."""
        return self.work.domain.possible(self.names)

    @property
    def cells(self) -> int:
        """How many cells the joint table of those attributes has."""
        return math.prod(self.work.domain.sizes(self.names))


def joint_attributes(work: Workload) -> tuple[str, ...]:
    """The attributes that the queries mention."""
    return work.domain.ordered({a for i in work.items for a in i.attributes})


def largest_tables(work: Workload) -> list[Block]:
    """The cells of the tables that the queries lie in, without tables that lie inside another."""
    sets = {frozenset(q.attributes) for q in work.blocks}
    by_size = sorted(sets, key=len, reverse=True)
    kept: list[frozenset[str]] = []
    inside: set[frozenset[str]] = set()
    for s in by_size:
        if s in inside:
            continue
        kept.append(s)
        # tables of few attributes: all that lie in this one
        inside |= (
            {frozenset(c) for r in range(len(s)) for c in itertools.combinations(s, r)} if len(s) <= _FEW else set()
        )
    if any(len(s) > _FEW for s in kept):
        kept = [s for s in kept if not any(s < t for t in kept)]
    names = sorted(work.domain.ordered(s) for s in kept)
    return [Block(tuple((a,) for a in n), tuple(Identity(c) for c in work.domain.sizes(n))) for n in names]


def joint_operator(work: Workload) -> LinearOperator:
    """The queries over the cells of the table over all attributes that they mention."""
    names = joint_attributes(work)
    shape = work.domain.sizes(names)
    if len(work.blocks) == 1 and work.blocks[0].attributes == names:
        return work.blocks[0].block.operator
    parts = tuple(OnMarginal(shape, tuple(names.index(a) for a in q.attributes), q.block.operator) for q in work.blocks)
    return parts[0] if len(parts) == 1 else Stack(parts)


def possible_operator(work: Workload) -> tuple[LinearOperator, NDArray[np.intp] | None]:
    """The same over the cells that can hold a record alone, and their places among all; None where all can."""
    operator, possible = joint_operator(work), work.domain.possible(joint_attributes(work))
    if possible is None:
        return operator, None
    kept = np.flatnonzero(possible)
    ends = np.zeros(possible.size + 1, dtype=np.int64)
    ends[kept + 1] = 1
    some = Sparse(np.ones(len(kept), dtype=np.int64), np.arange(len(kept)), np.cumsum(ends), len(kept))
    return Compose(operator, some), kept


def read_task(
    answers: ArrayLike, work: object, covariance: Any, total: float | None, space: str | None, progress: Progress | None
) -> Task:
    """The arguments, checked."""
    if not isinstance(work, Workload):
        raise InvalidInput("project needs the workload that the answers are of, made by sf.marginals, sf.queries, ...")
    given = real_array(answers, "answers").astype(np.float64)
    if given.shape != (len(work),):
        raise InvalidInput(f"answers have shape {given.shape}; the workload has {len(work):,} queries")
    if not np.isfinite(given).all():
        raise InvalidInput("answers must be finite numbers")
    number = isinstance(total, (int, float, np.integer, np.floating)) and not isinstance(total, bool)
    if total is not None and not (number and math.isfinite(total) and total >= 0):
        raise InvalidInput(f"total is the known number of records (1 for normalised answers) or None, not {total!r}")
    if space not in (None, "answers", "measurements"):
        raise InvalidInput(f"space must be 'answers' or 'measurements', not {space!r}")
    if space == "measurements" and covariance is None:
        raise InvalidInput("space='measurements' weights by the noise of the measured values: give covariance=")
    if space == "answers" and covariance is not None:
        raise InvalidInput(
            "covariance= weights the norm, and space='answers' weighs all answers alike; leave one of them out"
        )
    residuals = covariance if isinstance(covariance, ResidualNoise) else None
    spread: FloatArray | None = None
    if covariance is not None and not isinstance(covariance, ResidualNoise):
        spread = real_array(covariance, "covariance").astype(np.float64)
    if spread is not None and spread.shape == (len(work),) * 2 and not np.any(spread - np.diag(np.diag(spread))):
        spread = np.diag(spread).copy()
    return Task(work, given, None if total is None else float(total), spread, residuals, progress)
