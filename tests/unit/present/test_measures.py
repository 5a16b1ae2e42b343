"""Statistics of measures on the page of a release."""

from __future__ import annotations

import numpy as np
import pandas as pd

import sfumato as sf
from sfumato.present.answers import measures_table
from sfumato.releases.measure_tables import measure_table


def _released() -> sf.Release:
    domain = sf.Domain(
        {"g": sf.Integers(0, 1, outside="clamp", missing="other")},
        measures={"v": sf.Measure(0, 10, knots=[3]), "w": sf.Measure(-5, 5)},
    )
    rng = np.random.default_rng(158)
    v = rng.gamma(3, 1, 4_000)
    frame = pd.DataFrame({"g": rng.integers(0, 2, 4_000), "v": v, "w": v - 3 + rng.normal(0, 1, 4_000)})
    work = sf.stack(sf.moments(domain, ["v", "w"], by="g"), sf.gaps(domain, "v", at=3, by="g"))
    plan = sf.plan(work, sf.gdp(2), neighbours="add-remove")
    return sf.release(plan, frame, ledger=None)


def test_pairs_are_on_the_page_before_and_after_a_projection() -> None:
    """Covariances and correlations, those of what is shown. Mutants: statistics of the raw release beside sums of the
    projected one; pairs left out; sums of a measure with knots by three cells."""
    release = _released()
    for shown in (release, release.project()):
        (table,) = measures_table(shown)
        lines = table.frame.to_pandas()
        both = lines[lines.Measure == "v and w"]
        assert sorted(both.Statistic.unique()) == ["correlation", "covariance"]
        own = shown.correlation("v", "w", by="g")
        name = next(n for n in own.columns if n.startswith("correlation"))
        told = both[both.Statistic == "correlation"].Answer.tolist()
        assert [abs(float(t) - v) < 0.05 for t, v in zip(told[:2], own[name], strict=False)] == [True, True]
        assert set(lines.Statistic) >= {"sum", "mean", "variance"}
        held = measure_table(shown, "w", ("g",), 0.95)
        assert held is not None
        sums, means = (held.values[held.labels[0].index(n)][:2] for n in ("sum", "mean"))
        errors = held.noise_errors()[held.labels[0].index("sum")][:2]
        np.testing.assert_allclose(sums, means * 2_000, rtol=0.15, atol=8 * errors.max())  # about half of all each
        assert (errors > 0).all()
        gini = lines[lines.Statistic == "Gini index"]
        index = shown.gini("v", by="g")
        assert [abs(float(t) - v) < 0.05 for t, v in zip(gini.Answer[:2], index["gini v"], strict=False)] == [
            True,
            True,
        ]
        assert set(gini.Measure) == {"v"}  # numbers of w may be below 0
        gap = lines[lines.Statistic == "mean gap below 3"]
        below = shown.gap("v", 3, by="g")["mean of v below 3"]
        assert [abs(float(t) - v) < 0.05 for t, v in zip(gap.Answer[:2], below, strict=False)] == [True, True]
        half = lines[lines.Statistic == "what the lower half have"].iloc[0]
        assert float(half["95 % from"]) < float(half.Answer) < float(half["to"]) < 0.5
