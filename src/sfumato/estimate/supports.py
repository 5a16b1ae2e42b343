"""Support functions and linear oracles of the bodies that answers are projected onto, for one record in all. [NTZ13]

h(y) = max <y, a> over the points a of a body, and a point where it is reached. A body is that of tables whose counts
add up to 1, so points are shares; the body of n records is n times as large, and so is its support function.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InvalidInput
from sfumato.estimate.elliptope import parity_adjoint, parity_answers
from sfumato.estimate.elliptope.linear import most_correlated
from sfumato.estimate.oracles import find_oracle, starting_records
from sfumato.estimate.projection import joint_attributes, possible_operator
from sfumato.estimate.records import Factor
from sfumato.operators.base import FloatArray
from sfumato.workloads import Workload

__all__ = ["Reach", "Support", "support_of"]

_MOST_CELLS = 2**24  # 128 MB a vector of cells
_MOST_LISTED = 20_000  # cells of tables in a linear program
_CONE = 1e-9  # relative: products that are 0 but for rounding


@dataclass(frozen=True, slots=True)
class Reach:
    """`value` <= h(y) <= `bound`, and `point` (k,), a point of the body with <y, point> = value (None for a cone)."""

    value: float
    bound: float
    point: FloatArray | None


Support = Callable[[FloatArray], Reach]


def support_of(body: str, work: Workload) -> Support:
    """What finds h(y) for (k,) directions of a body. Raises InvalidInput where it does not take the workload."""
    return _SUPPORTS[body](work)


def _hull(work: Workload, *, cone: bool = False) -> Support:
    """The largest <F_j, y> over the columns; of the cone 0, or infinite where one is positive."""
    cells = math.prod(work.domain.sizes(joint_attributes(work)))
    if cells > _MOST_CELLS:
        raise InvalidInput(
            f"the queries' attributes have {cells:,} cells, above the limit of {_MOST_CELLS:,} for the hull; take "
            "body='local' for marginal tables, 'sdp' for pairs of two-valued attributes, or 'exact'"
        )
    operator, _ = possible_operator(work)

    def reach(y: FloatArray) -> Reach:
        objective = np.asarray(operator.rmatvec(y), dtype=np.float64)
        best = int(objective.argmax())
        most = float(objective[best])
        if cone:
            # a direction without any positive product is reached at the corner, where all counts are 0
            most = 0.0 if most <= _CONE * float(np.abs(objective).max(initial=0.0)) else math.inf
            return Reach(most, most, np.zeros(len(y)) if most == 0.0 else None)
        unit = np.zeros(len(objective))
        unit[best] = 1.0
        return Reach(most, most, np.asarray(operator.matvec(unit), dtype=np.float64))

    return reach


def _exact(work: Workload) -> Support:
    """The best record, by enumeration or elimination; where neither can, the best found and a proved bound."""
    names = joint_attributes(work)
    sizes = work.domain.sizes(names)
    places = [tuple(names.index(a) for a in q.attributes) for q in work.blocks]
    operators = [q.block.operator for q in work.blocks]
    ends = np.cumsum([0, *(q.rows for q in work.blocks)])
    oracle = find_oracle(sizes, places, moves := work.domain.moves(names))

    def reach(y: FloatArray) -> Reach:
        factors: list[Factor] = []
        for axes, o, a, b in zip(places, operators, ends[:-1], ends[1:], strict=True):
            worth = np.asarray(o.rmatvec(y[a:b]), dtype=np.float64)
            factors.append(Factor(axes, worth.reshape([sizes[i] for i in axes])))
        code = oracle.search(factors, starting_records(sizes, [None] * len(sizes), 16, moves))[:1]
        value = float(sum(f.at(code)[0] for f in factors))
        point = np.empty(len(y))
        for axes, o, a, b in zip(places, operators, ends[:-1], ends[1:], strict=True):
            unit = np.zeros(o.shape[1])
            unit[np.ravel_multi_index(tuple(code[0, i] for i in axes), [sizes[i] for i in axes]) if axes else 0] = 1.0
            point[a:b] = o.matvec(unit)
        return Reach(value, value if oracle.exact else max(value, oracle.bound(factors)), point)

    return reach


def _local(work: Workload) -> Support:
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
    rows, right = _agreement([q.attributes for q in queries], shapes, ends)
    masks = [work.domain.possible(q.attributes) for q in queries]
    free = np.concatenate(
        [np.ones(q.rows, dtype=bool) if m is None else m.reshape(-1) for q, m in zip(queries, masks, strict=True)]
    )
    bounds = [(0.0, None if f else 0.0) for f in free.tolist()]

    def reach(y: FloatArray) -> Reach:
        done = linprog(-y, A_eq=rows, b_eq=right, bounds=bounds, method="highs")
        if not done.success:
            raise InvalidInput(f"the linear program of body='local' was not solved: {done.message}")
        point = np.maximum(np.asarray(done.x, dtype=np.float64), 0.0)
        # weak duality: what the multipliers prove
        bound = float(-(right @ done.eqlin.marginals)) + max(0.0, float(-np.min(done.lower.marginals[free]))) * len(
            queries
        )
        value = float(y @ point)
        return Reach(value, max(bound, value), point)

    return reach


def _agreement(
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


def _sdp(work: Workload, *, pairwise: bool = False) -> Support:
    """A semidefinite program over the parities of one and two attributes, with its certificate."""
    if work.domain.possible(joint_attributes(work)) is not None:
        raise InvalidInput("moments of pairs do not know of cells that are declared impossible; take 'hull' or 'exact'")
    constant, adjoint = parity_adjoint(work)

    def reach(y: FloatArray) -> Reach:
        fixed, objective = float(constant @ y), adjoint(y)
        done = most_correlated(objective, local=pairwise)
        return Reach(fixed + done.value, fixed + done.bound, parity_answers(work, done.matrix, 1.0))

    return reach


_SUPPORTS: dict[str, Callable[[Workload], Support]] = {
    "simplex": _hull,
    "isotonic": _hull,
    "hull": _hull,
    "cone": functools.partial(_hull, cone=True),
    "exact": _exact,
    "local": _local,
    "sdp": _sdp,
    "sdp+local": functools.partial(_sdp, pairwise=True),
}
