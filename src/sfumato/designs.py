"""What a mechanism is asked to plan for, and what it proposes before that is scaled to a budget."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sfumato.codec import storable
from sfumato.frames import Frame
from sfumato.operators import LinearOperator
from sfumato.privacy.budget import Budget
from sfumato.privacy.unit import PrivacyUnit
from sfumato.strategies.base import Strategy
from sfumato.strategies.calibrate import NoiseName
from sfumato.strategies.residual.residuals import Known
from sfumato.workloads import RECORDS, QueryBlock, QueryFamily, Workload

__all__ = ["Candidate", "Design", "Problem", "candidate_table"]


@dataclass(frozen=True)
class Problem:
    """What a mechanism is asked to plan for; all of it public."""

    workload: Workload
    budget: Budget
    unit: PrivacyUnit
    noise: NoiseName
    objective: str = "mean"
    records: int | None = None
    unit_lattice: bool = False
    known: tuple[Known, ...] = ()

    def is_known(self, names: Iterable[str]) -> bool:
        """Whether the joint table of these attributes is public."""
        axes = {self.workload.domain.axis(a) for a in names}
        return any(axes <= set(k.axes) for k in self.known)

    @functools.cached_property
    def sizes(self) -> dict[str, int]:
        """Number of cells of every attribute."""
        return {n: a.size for n, a in self.workload.domain.attributes.items()}

    @property
    def products(self) -> list[tuple[float, dict[str, LinearOperator]]] | None:
        """Every block's weight in the objective and its factors by attribute; None where a factor joins several."""
        found = [(self.objective_weight(q), q.block.by_attribute()) for q in self.workload.blocks]
        whole = [(weight, factors) for weight, factors in found if factors is not None]
        return whole if len(whole) == len(found) else None

    @property
    def total_weight(self) -> float:
        """Weights of all queries: by how much the sum of weighted variances exceeds their mean."""
        return sum(self.objective_weight(i) * i.rows for i in self.workload.items)

    def objective_weight(self, query: QueryBlock | QueryFamily) -> float:
        """The weight of a block's squared errors; sums are measured in their largest value, so that units agree."""
        weight = float(query.weight)
        if isinstance(query, QueryFamily) or query.unit == RECORDS:
            return weight
        return weight / max(query.block.operator.max_abs, 1e-300) ** 2


@storable
@dataclass(frozen=True, slots=True)
class Candidate:
    """One line of the comparison: what was considered, what it would give, or why it does not apply.

    `value` is the plan's objective_value, by which candidates are compared.
    """

    mechanism: str
    strategy: str
    rmse: float | None
    max_standard_error: float | None
    note: str = ""
    value: float | None = None


def candidate_table(considered: Iterable[Candidate]) -> Frame:
    """One row per candidate."""
    lines = tuple(considered)
    return Frame(
        {
            "mechanism": [c.mechanism for c in lines],
            "strategy": [c.strategy for c in lines],
            "rmse": [c.rmse for c in lines],
            "max_standard_error": [c.max_standard_error for c in lines],
            "objective_value": [c.value for c in lines],
            "note": [c.note for c in lines],
        }
    )


@dataclass(frozen=True, slots=True)
class Design:
    """A way to answer a workload before it is scaled to a budget.

    `build(s)` gives the integer strategy with coefficients multiplied by s; `fine` is the s from which
    rounding does no harm; `bound` a proved lower bound at noise multiplier 1 for any unbiased
    reconstruction from additive Gaussian noise, if one is known: on sqrt(sum of weighted variances) for
    the objective "mean", on sqrt(largest weighted variance) for "max".
    """

    mechanism: str
    build: Callable[[float], Strategy]
    fine: float
    bound: float | None = None
    notes: tuple[str, ...] = ()
