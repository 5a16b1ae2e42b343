"""How many records an accuracy needs: the question that the theory of private query release begins with. [NTZ13]"""

from __future__ import annotations

from typing import Any

from sfumato.errors import PlanError
from sfumato.mechanisms.accuracy import Need
from sfumato.mechanisms.mechanism import LOCAL, TABLES, Mechanism
from sfumato.mechanisms.registry import made
from sfumato.privacy.budget import Budget
from sfumato.privacy.unit import Neighbours
from sfumato.recipes.planning import request
from sfumato.workloads import RECORDS, Workload

__all__ = ["records_for"]

_BETA = 0.05  # the failure probability where none is given, as that of 95 % intervals


def records_for(
    workload: Workload,
    budget: Budget,
    *,
    neighbours: str | Neighbours,
    error: float,
    kind: str = "rmse",
    beta: float | None = None,
    mechanism: str | Mechanism[Any] = "auto",
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

    >>> sf.records_for(sf.identity(sf.Domain({"age": 100})), sf.pure(1), neighbours="add-remove", error=0.01)
    142
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
    if options.get("records"):
        raise PlanError("records_for finds the number of records, by errors of one look; leave out records=")
    value = made(mechanism)
    if not {TABLES, LOCAL} & set(value.serves):
        raise PlanError(f"no number of records is known for mechanism={value.name!r}: {value.unknown}")
    asked = request(workload, budget, neighbours=neighbours, **options)
    return value.records_for(Need(asked, share, kind == "max", float(sure)))


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
