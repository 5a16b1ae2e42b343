"""Statistics of measures on the page of a release."""

from __future__ import annotations

import numpy as np
import pandas as pd

import sfumato as sf
from sfumato.present.answers import measures_table


def _released() -> sf.Release:
    domain = sf.Domain(
        {"g": sf.Integers(0, 1, outside="clamp", missing="other")},
        measures={"v": sf.Measure(0, 10, knots=[3]), "w": sf.Measure(-5, 5)},
    )
    rng = np.random.default_rng(158)
    v = rng.gamma(3, 1, 4_000)
    frame = pd.DataFrame({"g": rng.integers(0, 2, 4_000), "v": v, "w": v - 3 + rng.normal(0, 1, 4_000)})
    plan = sf.plan(sf.moments(domain, ["v", "w"], by="g"), sf.gdp(2), neighbours="add-remove")
    return sf.release(plan, frame, ledger=None)


def test_pairs_are_on_the_page_before_and_after_a_projection() -> None:
    """Covariances and correlations, those of the release itself. Mutants: statistics asked of the projected release,
    which refuses; pairs left out; sums of a measure with knots by three cells."""
    release = _released()
    for shown in (release, release.project()):
        (table,) = measures_table(shown)
        lines = table.frame.to_pandas()
        both = lines[lines.Measure == "v and w"]
        assert sorted(both.Statistic.unique()) == ["correlation", "covariance"]
        own = release.correlation("v", "w", by="g")
        name = next(n for n in own.columns if n.startswith("correlation"))
        told = both[both.Statistic == "correlation"].Answer.tolist()
        assert [abs(float(t) - v) < 0.05 for t, v in zip(told[:2], own[name], strict=False)] == [True, True]
        assert set(lines.Statistic) >= {"sum", "mean", "variance"}
        assert ("before projection" in table.title) == (shown is not release)
