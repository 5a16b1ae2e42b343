"""Two releases of one workload: pooled, or compared. Of projected releases the unprojected answers are taken."""

from __future__ import annotations

import numpy as np

from sfumato.errors import PlanError
from sfumato.releases.comparing import Comparison, changed, check_pair, joined, powers
from sfumato.releases.core import Release

__all__ = ["Comparison", "combine", "difference"]


def _releases(first: object, second: object) -> None:
    if not isinstance(first, Release) or not isinstance(second, Release):
        raise PlanError("two releases are needed")


def combine(first: Release, second: Release) -> Comparison:
    """Pool two releases of one declared snapshot: each answer weighted by its precision.

    Both releases must name the same `snapshot=`; otherwise the tables may differ and pooling would be
    biased. Raises PlanError.
    """
    _releases(first, second)
    check_pair(first, second)
    snapshots = {first.provenance.snapshot, second.provenance.snapshot}
    if len(snapshots) > 1 or None in snapshots:
        raise PlanError(
            "only releases of one declared snapshot can be pooled; give both the same snapshot= when releasing "
            f"(given: {sorted(map(str, snapshots))})"
        )
    one, other = powers(first, 2), powers(second, 2)
    total = one + other
    # what neither measured, and only models answered, has no weight of its own
    weight = np.divide(other, total, out=np.full_like(total, 0.5), where=(total > 0) & np.isfinite(total))
    return joined("pooled", first, second, weight, 1 - weight)


def difference(later: Release, earlier: Release) -> Comparison:
    """later - earlier for every query, with intervals: the change between two snapshots."""
    _releases(later, earlier)
    return changed(later, earlier)
