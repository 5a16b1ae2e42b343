"""The local model: every person reports on the own record, and no curator holds them. [War65, KLNRS11, ENU20]"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sfumato.errors import PlanError
from sfumato.local.plan import REPORTERS, LocalPlan, plan_local
from sfumato.mechanisms.registry import LOCAL, Mechanism, Request
from sfumato.privacy.unit import Neighbours

if TYPE_CHECKING:
    from sfumato.mechanisms.tables import Need


@dataclass(frozen=True, repr=False, kw_only=True)
class Local(Mechanism[LocalPlan]):
    """Reports of pure epsilon, one from each person, for the local model (`trust="local"`).

    Args:
        reporter: "randomized-response" (which cell, one question), "hadamard" and "hashing" (questions alike for all
            pairs of cells, with two and with about e^epsilon + 1 labels), "designed" (questions searched for the
            workload), or "auto", the least predicted rmse.

    Raises:
        PlanError: There is no such reporter.

    Source:
        [War65], [KLNRS11], [ENU20]
    """

    reporter: str = "auto"

    name: ClassVar[str] = "local"
    serves: ClassVar[tuple[str, ...]] = (LOCAL,)
    takes: ClassVar[tuple[str, ...]] = ("records",)
    unscaled: ClassVar[str] = "errors of reports grow with their number: sf.records_for finds that for an error"

    def __post_init__(self) -> None:
        if self.reporter not in REPORTERS:
            raise PlanError(f"reporter must be one of {', '.join(REPORTERS)}, not {self.reporter!r}")

    def plan(self, asked: Request) -> LocalPlan:
        budget, unit = asked.budget, asked.unit
        if budget.kind != "pure" or unit.neighbours is not Neighbours.REPLACE_ONE:
            raise PlanError(
                "the local model has pure epsilon, sf.pure, and any two records of a person as neighbours, "
                "'replace-one'"
            )
        if unit.person is not None or unit.rows_per_person != 1:
            raise PlanError("in the local model every person reports once; leave out person= and rows_per_person=")
        if asked.records is None:
            raise PlanError("the local model needs records=, a public (approximate) number of reports, for predictions")
        return plan_local(asked.what, budget.parameter, records=asked.records, reporter=self.reporter)

    def records_for(self, need: Need) -> int:
        asked = need.asked
        relation = asked.unit.neighbours
        if need.largest or asked.budget.kind != "pure" or relation is not Neighbours.REPLACE_ONE:
            raise PlanError(
                "mechanism='local' states the rmse of reports under pure epsilon, sf.pure, of any two records of a "
                "person: kind='rmse', neighbours='replace-one'"
            )
        if asked.given:
            raise PlanError(f"mechanism='local' takes none of {', '.join(asked.given)}; its option is reporter")
        one = plan_local(asked.what, asked.budget.parameter, records=1, reporter=self.reporter).rmse
        return need.least(lambda n: one * math.sqrt(n) <= need.share * n, 0.0)
