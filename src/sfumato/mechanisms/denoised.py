"""All pairs measured, then denoised by the models that the data bear out: what is decided before the data.

What is measured is linear and independent of the data: attributes and pairs by their residuals, so answers, errors and
intervals exist as for any marginal tables. The release then replaces the answers by those of `estimate.mixtures`,
which no bound describes. How the budget is split follows from sizes, weights and the expected number of records.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from sfumato.designs.design import Design, Problem
from sfumato.designs.marginals.incidence import Sets
from sfumato.designs.marginals.pairs import PairResiduals
from sfumato.designs.marginals.planning import residual_design
from sfumato.designs.marginals.residuals import Residuals
from sfumato.errors import PlanError
from sfumato.estimate.widths import Forecast
from sfumato.ground.progress import Progress
from sfumato.mechanisms.mechanism import Mechanism
from sfumato.mechanisms.tables import Tables, Tried
from sfumato.operators import Family, Identity
from sfumato.operators.base import FloatArray
from sfumato.plans.plan import Plan, price_design
from sfumato.privacy.unit import Neighbours
from sfumato.workloads import QueryFamily

if TYPE_CHECKING:
    from sfumato.mechanisms.accuracy import Need

__all__ = ["BODY", "Adaptive", "planned"]

BODY = "mixtures"
# How the budget is shared: what each number is in `_allocated` says, on what it was measured decisions/0019.
_SIGNAL, _SLOW = 0.136, 0.8
_LEAST_ONES, _TOTAL = 0.05, 0.02  # the same
_CELLS_ONE, _CELLS_PAIR, _WEIGHT = 0.4, 0.05, 0.5  # the same
_MOST_CELLS = 2**22  # of a table that is asked: it is made cell by cell
_MOST_STACKED, _MANY_STACKED = 2**12, 2**10  # cells of all attributes: the denoiser holds matrices of that size
_BYTES, _SECONDS = 660, 6e-5  # for every pair of cells, as measured


@dataclass(frozen=True, repr=False, kw_only=True)
class Adaptive(Tables):
    """Attributes and pairs measured, and the release denoised by the models that the data bear out."""

    name: ClassVar[str] = "adaptive"
    remark: ClassVar[str] = "all errors here are before denoising"
    unscaled: ClassVar[str] = (
        "margins are those of unbiased answers, which mechanism='marginals' has least; plan with it"
    )
    unknown: ClassVar[str] = "what denoising leaves is not proved: its release states it"

    def found(self, problem: Problem, progress: Progress | None) -> Tried:
        return Tried([], ())

    def chosen(self, problem: Problem, plans: Sequence[Plan]) -> Plan:
        return planned(problem)

    def records_for(self, need: Need) -> int:
        return Mechanism.records_for(self, need)


def planned(problem: Problem) -> Plan:
    """The plan whose release is denoised. Raises PlanError."""
    if problem.noise == "laplace":
        raise PlanError(
            "mechanism='adaptive' needs Gaussian noise, whose halves are independent; take sf.approx, sf.gdp"
        )
    if problem.unit_lattice:
        raise PlanError(
            "mechanism='adaptive' splits the budget in real shares, which the unit lattice would round away; leave out "
            "lattice='unit'"
        )
    if problem.objective != "tables":
        raise PlanError(
            "mechanism='adaptive' counts all tables alike and splits the budget by a law of its own; leave objective= "
            "out, or take mechanism='marginals'"
        )
    if problem.records is None:
        raise PlanError(
            "mechanism='adaptive' splits the budget by how many records are expected; give records=, a public and "
            "approximate number"
        )
    sets, precision = _allocated(problem)
    measured = residual_design(problem, sets, precision)

    def build(s: float) -> PairResiduals:
        found = measured.build(s)
        assert isinstance(found, Residuals)
        return PairResiduals(found.names, found.shape, found.sets, found.multiples)

    plan = price_design(Design("adaptive", build, measured.fine), problem)
    rows, raw = _raw(plan, sets[2])
    return replace(plan, body=BODY, forecast=Forecast(BODY, rows, raw, records=problem.records), notes=_notes(problem))


def _notes(problem: Problem) -> tuple[str, ...]:
    beyond = sum(i.rows for i in problem.workload.items if i.order > 2)
    out = ["errors are those of the unprojected answers; that denoising lowers them is not guaranteed"]
    if beyond:
        out.append(
            f"{beyond:,} queries are over more than two attributes: they follow from the pairs by the largest entropy, "
            "with no standard error of their own"
        )
    used = {a for i in problem.workload.items for a in i.attributes}
    cells = sum(problem.sizes[a] for a in used)
    if cells > _MANY_STACKED:
        memory, time = _BYTES * cells**2 / 1e9, _SECONDS * cells**2 / 60
        out.append(f"denoising {cells:,} cells of attributes takes about {memory:.1f} GB and {time:.0f} CPU-minutes")
    return tuple(out)


def _asked(problem: Problem) -> tuple[FloatArray, FloatArray]:
    """((d,) weights of the attributes that are asked, (d, d) of the pairs inside tables, the lower one first)."""
    domain = problem.workload.domain
    ones, pairs = np.zeros(len(domain.names)), np.zeros((len(domain.names),) * 2)
    for item in problem.workload.items:
        weight = problem.stated_weight(item)
        if isinstance(item, QueryFamily):
            sets = item.family.sets
        else:
            sets = np.array([sorted(domain.axis(a) for a in item.attributes)], dtype=np.int32)
            sets = sets.reshape(1, len(item.attributes))
        cells = np.log2(np.array(domain.shape))[sets].sum(axis=1)
        if float(cells.max(initial=0.0)) > math.log2(_MOST_CELLS):
            raise PlanError(
                f"a table of more than {_MOST_CELLS:,} cells is asked; the release answers parts of it later: ask "
                "smaller tables, and predicates with release.ask"
            )
        for column in range(sets.shape[1]):
            np.add.at(ones, sets[:, column], weight)
        for i, j in itertools.combinations(range(sets.shape[1]), 2):
            np.add.at(pairs, (sets[:, i], sets[:, j]), weight)
    return ones, pairs


def _allocated(problem: Problem) -> tuple[list[Sets], list[FloatArray]]:
    """Residual sets per order, and one over the deviations of their noise, up to a common factor.

    Inverse variances go as cells^.05 for pairs and cells^.4 for attributes, times the root of the weight that is asked.
    Attributes and pairs share the budget as max(r^2, .8 r^(1/2)) to 1, attributes at least .05 of it, with .136 r the
    error that independence would have from one-way tables with all of it; a total that is not public has a fiftieth.
    """
    size = np.array(problem.workload.domain.shape, dtype=np.float64)
    ones, pairs = _asked(problem)
    held = np.flatnonzero((ones > 0) & (size > 1))
    first, second = np.nonzero(pairs * np.multiply.outer(size > 1, size > 1))
    if not len(first):
        raise PlanError("mechanism='adaptive' needs a table over two attributes; for others take mechanism='marginals'")
    if float(size[held].sum()) > _MOST_STACKED:
        raise PlanError(
            f"the attributes that are asked have {size[held].sum():,.0f} cells in all, above {_MOST_STACKED:,}; "
            "declare coarser cells, or plan groups of attributes by themselves"
        )
    share = _share_of_ones(problem, size[held])
    one = size[held] ** _CELLS_ONE * (ones[held] / ones[held].mean()) ** _WEIGHT
    pair = (size[first] * size[second]) ** _CELLS_PAIR * (pairs[first, second] / pairs[first, second].mean()) ** _WEIGHT
    price = 1 - 1 / size
    one *= share / float(one @ price[held])
    pair *= (1 - share) / float(pair @ (price[first] * price[second]))
    sets = [held[:, None], np.stack([first, second], axis=1)]
    precision = [np.sqrt(one), np.sqrt(pair)]
    none = np.empty((0 if problem.unit.total_is_public else 1, 0), dtype=np.int32)
    return [none, *(s.astype(np.int32) for s in sets)], [np.full(len(none), math.sqrt(_TOTAL)), *precision]


def _share_of_ones(problem: Problem, size: FloatArray) -> float:
    """Of the budget, for the attributes by themselves."""
    assert problem.records is not None
    change = problem.unit.rows_per_person**2 * (2 if problem.unit.neighbours is Neighbours.REPLACE_ONE else 1)
    deviation = math.sqrt(len(size) * change / float(problem.budget.mu_squared))
    error = 2 * 0.8 * deviation * float(size.mean()) / problem.records
    ratio = error / _SIGNAL
    odds = max(ratio**2, _SLOW * math.sqrt(ratio))
    return max(odds / (1 + odds), _LEAST_ONES)


def _raw(plan: Plan, pairs: Sets) -> tuple[int, float]:
    """(cells of the measured pairs, root of their mean variance)"""
    names, shape = plan.workload.domain.names, plan.workload.domain.shape
    tables = Family(names, tuple(Identity(n) for n in shape), pairs)
    powers = plan.strategy.family_powers(tables, 2)
    assert powers is not None
    cells = tables.rows_each
    return int(cells.sum()), math.sqrt(float(powers @ cells) / float(cells.sum()) * plan.noise.variance)
