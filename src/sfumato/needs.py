"""How many records an accuracy needs: the question that the theory of private query release begins with. [NTZ13]"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from sfumato.designs.spending import price_of
from sfumato.errors import PlanError
from sfumato.local.planning import plan_local
from sfumato.mechanisms import COURSES, MECHANISMS, plan
from sfumato.mechanisms.choose import projections
from sfumato.plans.courses import CoursePlan
from sfumato.plans.plan import Plan
from sfumato.privacy.budget import Budget
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.sessions.parameters import least_alpha
from sfumato.sessions.plans import check_shape
from sfumato.workloads import RECORDS, Workload

__all__ = ["records_for"]

_BETA = 0.05
_MOST = 2**52
_NEAR = 1e-3  # of the least number, where it is searched for
_UNKNOWN = {
    "adaptive": "what denoising leaves is not proved: its release states it",
    "mwem": "its bound is of another model than it releases, and never less than .17 of the records at any size that "
    "was tried; a promise for the largest error has mechanism='pmw'",
    "boosting": "nothing is proved of its errors; a promise for the largest error has mechanism='pmw'",
}


def records_for(
    workload: Workload,
    budget: Budget,
    *,
    neighbours: str | Neighbours,
    error: float,
    kind: str = "rmse",
    beta: float | None = None,
    mechanism: str = "auto",
    **options: Any,
) -> int:
    """The least number of records from which on errors are at most the share `error` of them, whatever they are.

    kind="rmse": the expected root mean squared error over the queries, as `sf.plan` predicts or bounds it. kind="max":
    all answers are within that share together, but with probability `beta` (.05). Queries count records.

    mechanism: "auto" and the others of `sf.plan` whose errors are known before data, with the `options` of `sf.plan`.
    Unbiased answers err by the same number of records whatever n is, so n is that error over the share. "projection"
    (rmse) errs by at most sqrt(n W / k), W the width of the body against the noise, so n = W / (k error^2) where that
    is less: it hardly depends on the number of queries [NTZ13]. "approximate" is planned for every n that is tried.
    "pmw" (max): a session that answers the queries one by one within the share, without ever running out of updates
    [HR10]. "local" (rmse, pure epsilon, replace-one): without a curator, where errors grow as sqrt(n).

    The smallest such n, to a thousandth of it for "pmw" and "approximate", which are searched. Raises PlanError where
    no error is known before data, and for options that do not apply.
    """
    share = _share(workload, error)
    if kind not in ("rmse", "max"):
        raise PlanError(f"kind must be 'rmse', the average over queries, or 'max', all of them together, not {kind!r}")
    if kind == "rmse" and beta is not None:
        raise PlanError(
            "beta= is the probability that some answer is farther off: of kind='max'; an rmse is an expectation"
        )
    sure = _BETA if beta is None else beta
    if isinstance(sure, bool) or not isinstance(sure, (int, float)) or not 0 < sure < 1:
        raise PlanError(f"beta is a probability, between 0 and 1, not {sure!r}")
    for name in ("records", "compare", "rounds"):
        if options.get(name):
            raise PlanError(f"records_for finds the number of records, by errors of one look; leave out {name}=")
    relation = Neighbours.parse(neighbours)
    if mechanism == "pmw":
        return _session(workload, budget, relation, share, kind, float(sure), options)
    if mechanism == "local":
        return _local(workload, budget, relation, share, kind, options)
    if mechanism in _UNKNOWN:
        raise PlanError(f"no number of records is known for mechanism={mechanism!r}: {_UNKNOWN[mechanism]}")
    if mechanism not in MECHANISMS or mechanism in COURSES:
        known = [m for m in MECHANISMS if m not in _UNKNOWN]
        raise PlanError(f"mechanism must be one of {', '.join(known)}, pmw, local, not {mechanism!r}")
    if mechanism == "projection":
        return _projection(workload, budget, relation, share, kind, options)

    def made(n: int | None) -> float:
        found = plan(workload, budget, neighbours=relation, mechanism=mechanism, records=n, **options)
        assert not isinstance(found, CoursePlan)
        return _error(found, kind, float(sure))

    if mechanism == "approximate":
        return _least(lambda n: made(n) <= share * n, _NEAR)
    off = made(None)
    return _least(lambda n: off <= share * n, 0.0)


def _share(workload: object, error: object) -> float:
    if not isinstance(workload, Workload):
        raise PlanError("records_for needs a workload, made by sf.marginals, sf.prefix, sf.queries and the like")
    if workload.units != (RECORDS,):
        raise PlanError(
            f"error= is a share of the records, and some queries are in {' and '.join(workload.units)}; ask for the "
            "parts that count records"
        )
    if isinstance(error, bool) or not isinstance(error, (int, float)) or not 0 < error < 1:
        raise PlanError(f"error is a share of the records between 0 and 1, such as 0.01, not {error!r}")
    return float(error)


def _error(made: Plan, kind: str, beta: float) -> float:
    """The error in records."""
    if kind == "rmse":
        assert made.rmse is not None  # of one unit, as _share saw to it
        return made.rmse
    return max(float(m.max()) for m in made.entry_margins(1 - beta, simultaneous=True))


def _least(holds: Callable[[int], bool], near: float) -> int:
    """The least n of which a property holds that large ones have, but for that share of it; by halving."""
    low, high = 0, 1
    while not holds(high):
        low, high = high, (8 if near else 2) * high
        if high > _MOST:
            raise PlanError(f"no number of records up to {_MOST:,} reaches this error under this budget")
    while high - low > max(1, int(near * high)):
        middle = math.isqrt(low * high) if 2 * low < high and low else (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _projection(
    workload: Workload, budget: Budget, relation: Neighbours, share: float, kind: str, options: dict[str, Any]
) -> int:
    if kind == "max":
        raise PlanError(
            "what is proved of mechanism='projection' is an average error; for kind='max' take 'pmw', or 'auto': its "
            "answers can be projected for free, and are possible then"
        )
    if options.get("objective") == "max" or options.get("public"):
        raise PlanError("mechanism='projection' is judged by the average error; leave out objective='max' and public=")
    given = {k: v for k, v in options.items() if k not in ("objective", "public", "progress")}
    forecasts = [p.forecast for p in projections(workload, budget, neighbours=relation, **given)]
    return min(_least(lambda n, f=f: f.at(n).rmse <= share * n, 0.0) for f in forecasts if f is not None)


def _session(
    workload: Workload,
    budget: Budget,
    relation: Neighbours,
    share: float,
    kind: str,
    beta: float,
    options: dict[str, Any],
) -> int:
    if kind != "max":
        raise PlanError(
            "mechanism='pmw' promises that every answer is within a share of the records: ask for kind='max'"
        )
    idle = set(options) - {"person", "rows_per_person"}
    if idle:
        raise PlanError(f"mechanism='pmw' is a session, which takes none of {', '.join(sorted(idle))} of sf.plan")
    unit = PrivacyUnit(relation, options.get("person"), options.get("rows_per_person", 1))
    blocks = [q.block.operator for q in workload.blocks]
    span = max(math.ceil(o.max_abs * (1 if o.nonnegative else 2)) for o in blocks)
    price = price_of(budget)

    def holds(n: int) -> bool:
        shape = check_shape(workload.domain, n, len(workload), beta, span, unit)
        return least_alpha(shape, price)[0] <= share * n

    return _least(holds, _NEAR)


def _local(
    workload: Workload, budget: Budget, relation: Neighbours, share: float, kind: str, options: dict[str, Any]
) -> int:
    if kind != "rmse" or budget.kind != "pure" or relation is not Neighbours.REPLACE_ONE:
        raise PlanError(
            "mechanism='local' states the rmse of reports under pure epsilon, sf.pure, of any two records of a person: "
            "kind='rmse', neighbours='replace-one'"
        )
    idle = set(options) - {"reporter"}
    if idle:
        raise PlanError(
            f"mechanism='local' takes reporter= as sf.plan_local does, and none of {', '.join(sorted(idle))}"
        )
    one = plan_local(workload, budget.parameter, records=1, **options).rmse
    return _least(lambda n: one * math.sqrt(n) <= share * n, 0.0)
