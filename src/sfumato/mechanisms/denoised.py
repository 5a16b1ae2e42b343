"""All pairs measured, then denoised by the models that the data bear out: what is decided before the data.

What is measured is linear and independent of the data: attributes, pairs and, where noise lets them, triples by their
residuals, so answers, errors and intervals exist as for any marginal tables. The release then replaces the answers by
those of `estimate.mixtures`, which no bound describes. How the budget is split is in `dividing`.
"""

from __future__ import annotations

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
from sfumato.mechanisms.dividing import divided
from sfumato.mechanisms.earlier import Earlier
from sfumato.mechanisms.mechanism import Mechanism
from sfumato.mechanisms.tables import Tables, Tried
from sfumato.operators import Family, Identity
from sfumato.plans.plan import Plan, price_design
from sfumato.plans.predictions import Entry
from sfumato.releases import Release
from sfumato.workloads import QueryFamily

if TYPE_CHECKING:
    from sfumato.mechanisms.accuracy import Need

__all__ = ["BODY", "Adaptive", "planned"]

BODY = "mixtures"
_MANY_STACKED = 2**10  # cells of all attributes: the denoiser holds matrices of that size
_BYTES, _SECONDS = 660, 6e-5  # for every pair of cells, as measured


@dataclass(frozen=True, repr=False, kw_only=True)
class Adaptive(Tables):
    """Attributes, pairs and triples measured, and the release denoised by the models that the data bear out.

    after: an earlier release of the same domain, made with some of the budget; the plan is for the rest. Where that one
    saw pairs depend, both together measure what one plan with all of it would; where it saw nothing, attributes get
    nearly all. `release.project("mixtures", earlier=...)` pools the two.
    """

    after: Release | None = None

    name: ClassVar[str] = "adaptive"
    remark: ClassVar[str] = "all errors here are before denoising"
    unscaled: ClassVar[str] = (
        "margins are those of unbiased answers, which mechanism='marginals' has least; plan with it"
    )
    unknown: ClassVar[str] = "what denoising leaves is not proved: its release states it"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.after is not None and not isinstance(self.after, Release):
            raise PlanError(f"after= takes an earlier release, not {self.after!r}")

    def found(self, problem: Problem, progress: Progress | None) -> Tried:
        return Tried([], ())

    def chosen(self, problem: Problem, plans: Sequence[Plan]) -> Plan:
        return planned(problem, self.after)

    def records_for(self, need: Need) -> int:
        return Mechanism.records_for(self, need)


def planned(problem: Problem, after: Release | None = None) -> Plan:
    """The plan whose release is denoised, by itself or after an earlier one. Raises PlanError."""
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
    earlier = None if after is None else Earlier.of(after, problem)
    sets, precision = divided(problem, earlier)
    measured = residual_design(problem, sets, precision)

    def build(s: float) -> PairResiduals:
        found = measured.build(s)
        assert isinstance(found, Residuals)
        return PairResiduals(found.names, found.shape, found.sets, found.multiples)

    plan = price_design(Design("adaptive", build, measured.fine), problem)
    rows, raw = _raw(plan, sets[2])
    return replace(
        plan,
        body=BODY,
        forecast=Forecast(BODY, rows, raw, records=problem.records),
        notes=(*_notes(plan), *_followed(after, earlier)),
    )


def _notes(plan: Plan) -> tuple[str, ...]:
    domain, beyond = plan.workload.domain, sum(_beyond(e) for e in plan.entries)
    out = ["errors are those of the unprojected answers; that denoising lowers them is not guaranteed"]
    if beyond:
        out.append(
            f"{beyond:,} queries go beyond what is measured: they follow from it by the largest entropy, with no "
            "standard error of their own"
        )
    used = {a for i in plan.workload.items for a in i.attributes}
    cells = sum(domain.sizes(domain.ordered(used)))
    if cells > _MANY_STACKED:
        memory, time = _BYTES * cells**2 / 1e9, _SECONDS * cells**2 / 60
        out.append(f"denoising {cells:,} cells of attributes takes about {memory:.1f} GB and {time:.0f} CPU-minutes")
    return tuple(out)


def _followed(after: Release | None, earlier: Earlier | None) -> tuple[str, ...]:
    if after is None or earlier is None:
        return ()
    saw = "pairs depend" if earlier.dependent else "no pair depends beyond its noise, so attributes get nearly all"
    return (f"follows {after.provenance.name!r}, which saw that {saw}; it is public, and paid for by itself",)


def _beyond(entry: Entry) -> int:
    """How many of its queries have an infinite error."""
    if isinstance(entry.item, QueryFamily):
        return int(entry.item.family.rows_each[np.isinf(entry.powers)].sum())
    return entry.item.rows if np.isinf(entry.powers).any() else 0


def _raw(plan: Plan, pairs: Sets) -> tuple[int, float]:
    """(cells of the measured pairs, root of their mean variance)"""
    names, shape = plan.workload.domain.names, plan.workload.domain.shape
    tables = Family(names, tuple(Identity(n) for n in shape), pairs)
    powers = plan.strategy.family_powers(tables, 2)
    assert powers is not None
    cells = tables.rows_each
    return int(cells.sum()), math.sqrt(float(powers @ cells) / float(cells.sum()) * plan.noise.variance)
