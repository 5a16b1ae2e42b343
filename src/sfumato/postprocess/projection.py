"""The input and the result of a projection onto the answers that some table could have given. [NTZ13]"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato._util.codec import deferred_field, storable
from sfumato._util.description import Description, Sentences, TitledTable
from sfumato._util.display import Progress
from sfumato._util.frames import Frame
from sfumato.errors import InvalidInput
from sfumato.operators import Block, Identity, LinearOperator, OnMarginal, Stack
from sfumato.operators.base import FloatArray, real_array
from sfumato.postprocess.cones import select_columns
from sfumato.postprocess.consistency import ResidualNoise
from sfumato.postprocess.hierarchical_rungs import Rung
from sfumato.postprocess.oracles import find_oracle, starting_records
from sfumato.postprocess.parities import most_correlated, parity_adjoint, parity_answers
from sfumato.postprocess.possible import CellCounts, Possible, RecordCounts, TableCounts
from sfumato.postprocess.records import WorthFactor
from sfumato.workloads import Workload

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

    `sf.project` and `release.project` make projections.

    Args:
        answers: (k,) in the units of the given ones. Above ten million answers of a tree they are empty, and are read
            off `possible`.
        possible: Counts that have these answers.
        gap: A bound on the squared distance between `answers` and the true projection onto the body, in the projected
            norm.
        certified: Whether `gap` is proved.
        moved: The distance from the noisy answers in that norm.
        iterations: The number of steps of the search.
        body: What answers must lie in.
        realisable: Whether a table of nonnegative (fractional) counts with exactly these answers was found. The local
            and "sdp" bodies hold other answers too, so for them it is not known whether there is one.
        rounded: Where the counts were rounded afterwards, the root mean squared change of the answers by that; `gap`
            and `moved` are those before.
        norm: The norm of the distances: "answers" (all weigh the same), "noise" (weighted by a covariance), "ladder"
            (coarser tables were held one after the other, and `gap` and `moved` are of the last step, in which tables
            over several attributes move, each in units of the noise of what it has beyond its margins), or "families"
            (a tree was settled from the root down, and `gap` and `moved` add up what is proved of every family given
            its parent, in units of the noise).
        rungs: The steps of the "ladder" norm, each with a gap of its own.
        left_out: The answers that the body cannot hold, in words, for their tables were not measured as a whole: they
            are as they were.

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
    rungs: tuple[Rung, ...] = deferred_field(())
    left_out: tuple[str, ...] = deferred_field(())

    @property
    def cells(self) -> FloatArray | None:
        """Nonnegative cells of one table with these answers, shaped by its attributes; None where none is held."""
        return self.possible.values if isinstance(self.possible, CellCounts) else None

    @property
    def weights(self) -> FloatArray | None:
        """(r,) how many of each of the records that give these answers; None where none are held."""
        return self.possible.weights if isinstance(self.possible, RecordCounts) else None

    def describe(self) -> str:
        """The projection in words: the body, how far answers moved, and what is proved.

        Returns:
            One line of text.
        """
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
        blocks = [Sentences([self.describe()]), TitledTable(what, first)]
        return Description(f"Projection onto {self.body!r}", blocks).to_html()


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
    return select_columns(operator, kept), kept


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


_MOST_CELLS = 2**24  # 128 MB a vector of cells
_MOST_LISTED = 20_000  # cells of tables in a linear program
_CONE = 1e-9  # relative: products that are 0 but for rounding


@dataclass(frozen=True, slots=True)
class SupportPoint:
    """How far a body goes in a direction: `value` <= h(y) <= `bound`.

    Args:
        value: The largest <y, a> that was found over the points a of the body.
        bound: A proved bound on it from above.
        point: (k,) a point of the body where `value` is reached; None for a cone.
    """

    value: float
    bound: float
    point: FloatArray | None


Support = Callable[[FloatArray], SupportPoint]


def support_function(body: str, work: Workload) -> Support:
    """What finds h(y) for (k,) directions of a body. Raises InvalidInput where it does not take the workload."""
    return _SUPPORTS[body](work)


def _hull_support(work: Workload, *, cone: bool = False) -> Support:
    """The largest <F_j, y> over the columns; of the cone 0, or infinite where one is positive."""
    cells = math.prod(work.domain.sizes(joint_attributes(work)))
    if cells > _MOST_CELLS:
        raise InvalidInput(
            f"the queries' attributes have {cells:,} cells, above the limit of {_MOST_CELLS:,} for the hull; take "
            "body='local' for marginal tables, 'sdp' for pairs of two-valued attributes, or 'exact'"
        )
    operator, _ = possible_operator(work)

    def reach(y: FloatArray) -> SupportPoint:
        objective = np.asarray(operator.rmatvec(y), dtype=np.float64)
        best = int(objective.argmax())
        most = float(objective[best])
        if cone:
            # a direction without any positive product is reached at the corner, where all counts are 0
            most = 0.0 if most <= _CONE * float(np.abs(objective).max(initial=0.0)) else math.inf
            return SupportPoint(most, most, np.zeros(len(y)) if most == 0.0 else None)
        unit = np.zeros(len(objective))
        unit[best] = 1.0
        return SupportPoint(most, most, np.asarray(operator.matvec(unit), dtype=np.float64))

    return reach


def _records_support(work: Workload) -> Support:
    """The best record, by enumeration or elimination; where neither can, the best found and a proved bound."""
    names = joint_attributes(work)
    sizes = work.domain.sizes(names)
    places = [tuple(names.index(a) for a in q.attributes) for q in work.blocks]
    operators = [q.block.operator for q in work.blocks]
    ends = np.cumsum([0, *(q.rows for q in work.blocks)])
    oracle = find_oracle(sizes, places, moves := work.domain.moves(names))

    def reach(y: FloatArray) -> SupportPoint:
        factors: list[WorthFactor] = []
        for axes, o, a, b in zip(places, operators, ends[:-1], ends[1:], strict=True):
            worth = np.asarray(o.rmatvec(y[a:b]), dtype=np.float64)
            factors.append(WorthFactor(axes, worth.reshape([sizes[i] for i in axes])))
        code = oracle.search(factors, starting_records(sizes, [None] * len(sizes), 16, moves))[:1]
        value = float(sum(f.at(code)[0] for f in factors))
        point = np.empty(len(y))
        for axes, o, a, b in zip(places, operators, ends[:-1], ends[1:], strict=True):
            unit = np.zeros(o.shape[1])
            unit[np.ravel_multi_index(tuple(code[0, i] for i in axes), [sizes[i] for i in axes]) if axes else 0] = 1.0
            point[a:b] = o.matvec(unit)
        return SupportPoint(value, value if oracle.exact else max(value, oracle.bound(factors)), point)

    return reach


def _local_support(work: Workload) -> Support:
    """A linear program over tables that are not negative, agree and hold one record."""
    from scipy.optimize import linprog  # noqa: PLC0415  (heavy)

    queries = work.blocks
    if not all(q.is_marginal for q in queries):
        raise InvalidInput("body='local' takes whole marginal tables (sf.marginals); for other queries take 'exact'")
    shapes = [work.domain.sizes(q.attributes) for q in queries]
    ends = np.cumsum([0, *(q.rows for q in queries)])
    if ends[-1] > _MOST_LISTED:
        raise InvalidInput(
            "the support function of body='local' is a linear program over the cells of all tables, "
            f"{ends[-1]:,} here; up to {_MOST_LISTED:,}. Take body='exact' or ask for fewer tables"
        )
    rows, right = _agreement_equations([q.attributes for q in queries], shapes, ends)
    masks = [work.domain.possible(q.attributes) for q in queries]
    free = np.concatenate(
        [np.ones(q.rows, dtype=bool) if m is None else m.reshape(-1) for q, m in zip(queries, masks, strict=True)]
    )
    bounds = [(0.0, None if f else 0.0) for f in free.tolist()]

    def reach(y: FloatArray) -> SupportPoint:
        done = linprog(-y, A_eq=rows, b_eq=right, bounds=bounds, method="highs")
        if not done.success:
            raise InvalidInput(f"the linear program of body='local' was not solved: {done.message}")
        point = np.maximum(np.asarray(done.x, dtype=np.float64), 0.0)
        # weak duality: what the multipliers prove
        bound = float(-(right @ done.eqlin.marginals)) + max(0.0, float(-np.min(done.lower.marginals[free]))) * len(
            queries
        )
        value = float(y @ point)
        return SupportPoint(value, max(bound, value), point)

    return reach


def _agreement_equations(
    names: list[tuple[str, ...]], shapes: list[tuple[int, ...]], ends: NDArray[np.intp]
) -> tuple[Any, FloatArray]:
    """(A, b) of A t = b, A sparse: the cells t of all tables hold one record, and any two agree on what they share."""
    from scipy.sparse import csr_array, vstack  # noqa: PLC0415  (heavy)

    count = int(ends[-1])

    def sums(i: int, kept: tuple[str, ...]) -> Any:
        """(cells of `kept`, all cells) the marginal of table i."""
        axes = [names[i].index(a) for a in kept]
        sizes = [shapes[i][a] for a in axes]
        row = np.zeros(math.prod(shapes[i]), dtype=np.intp)
        if axes:
            place = np.indices(shapes[i]).reshape(len(shapes[i]), -1)
            row = np.asarray(np.ravel_multi_index(tuple(place[a] for a in axes), tuple(sizes)), dtype=np.intp)
        return csr_array((np.ones(len(row)), (row, np.arange(ends[i], ends[i + 1]))), (math.prod(sizes), count))

    rows, right = [sums(0, ())], [np.ones(1)]
    for i in range(1, len(names)):
        for j in range(i):
            kept = tuple(a for a in names[i] if a in names[j])
            difference = sums(i, kept) - sums(j, kept)
            rows.append(difference)
            right.append(np.zeros(difference.shape[0]))
    return vstack(rows).tocsr(), np.concatenate(right)


def _sdp_support(work: Workload, *, pairwise: bool = False) -> Support:
    """A semidefinite program over the parities of one and two attributes, with its certificate."""
    if work.domain.possible(joint_attributes(work)) is not None:
        raise InvalidInput("moments of pairs do not know of cells that are declared impossible; take 'hull' or 'exact'")
    constant, adjoint = parity_adjoint(work)

    def reach(y: FloatArray) -> SupportPoint:
        fixed, objective = float(constant @ y), adjoint(y)
        done = most_correlated(objective, local=pairwise)
        return SupportPoint(fixed + done.value, fixed + done.bound, parity_answers(work, done.matrix, 1.0))

    return reach


_SUPPORTS: dict[str, Callable[[Workload], Support]] = {
    "simplex": _hull_support,
    "isotonic": _hull_support,
    "hull": _hull_support,
    "cone": functools.partial(_hull_support, cone=True),
    "exact": _records_support,
    "local": _local_support,
    "sdp": _sdp_support,
    "sdp+local": functools.partial(_sdp_support, pairwise=True),
}
