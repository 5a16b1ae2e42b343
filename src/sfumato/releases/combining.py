"""Two releases of one workload: pooled, or compared. Of projected releases the unprojected answers are taken."""

from __future__ import annotations

import numpy as np

from sfumato.errors import PlanError
from sfumato.releases.comparing import Comparison, changed, check_pair, check_snapshots, joined, powers
from sfumato.releases.core import Release

__all__ = ["Comparison", "combine", "difference"]


def _releases(first: object, second: object) -> None:
    if not isinstance(first, Release) or not isinstance(second, Release):
        raise PlanError("two releases are needed")


def combine(first: Release, second: Release) -> Comparison:
    """Pool two releases of one declared snapshot: each answer weighted by its precision.

    Both releases must name the same `snapshot=`; otherwise the tables may differ and pooling would be
    biased. Raises PlanError.

    >>> made = sf.plan(sf.identity(sf.Domain({"age": 4})), sf.gdp(1), neighbours="add-remove")
    >>> ages, ledger = sf.Histogram([30, 20, 10, 0]), sf.Ledger.in_memory(sf.gdp(2))
    >>> first = sf.release(made, ages, ledger=ledger, name="first", snapshot="2026-11")
    >>> second = sf.release(made, ages, ledger=ledger, name="second", snapshot="2026-11")
    >>> sf.combine(first, second).standard_errors().round(3)
    array([0.707, 0.707, 0.707, 0.707])
    """
    _releases(first, second)
    check_pair(first, second)
    check_snapshots(first, second)
    one, other = powers(first, 2), powers(second, 2)
    total = one + other
    # what neither measured, and only models answered, has no weight of its own
    weight = np.divide(other, total, out=np.full_like(total, 0.5), where=(total > 0) & np.isfinite(total))
    return joined("pooled", first, second, weight, 1 - weight)


def difference(later: Release, earlier: Release) -> Comparison:
    """later - earlier for every query, with intervals: the change between two snapshots.

    >>> made = sf.plan(sf.identity(sf.Domain({"age": 4})), sf.gdp(1), neighbours="add-remove")
    >>> november = sf.release(made, sf.Histogram([30, 20, 10, 0]), ledger=None, name="2026-11")
    >>> december = sf.release(made, sf.Histogram([33, 20, 12, 0]), ledger=None, name="2026-12")
    >>> sf.difference(december, november).standard_errors().round(3)
    array([1.414, 1.414, 1.414, 1.414])
    """
    _releases(later, earlier)
    return changed(later, earlier)
