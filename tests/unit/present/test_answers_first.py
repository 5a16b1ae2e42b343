"""A report gives answers before it says how they were made."""

from __future__ import annotations

import re

import numpy as np

import sfumato as sf
from sfumato.present import render
from sfumato.present.answers import asked_distributions
from sfumato.present.words import typical_values


def released(groups: int = 3) -> sf.Release:
    domain = sf.Domain({"age": sf.Integers(0, 9), "group": sf.Categories([f"g{i}" for i in range(groups)])})
    work = sf.stack(main=sf.marginals(domain, upto=2), cdf=sf.prefix(domain, "age", by=["group"]))
    plan = sf.plan(work, sf.gdp(2), neighbours="add-remove", mechanism="marginals")
    counts = np.full((10, 1), 3) * np.arange(1, groups + 1)[None, :]
    return sf.release(plan, sf.Histogram(counts), ledger=None, name="ages")


def test_answers_come_before_protection_and_measurement() -> None:
    page = render(released())
    order = re.findall(r'<section id="(\w+)"', page)
    assert order[:3] == ["answers", "crosstabs", "protects"]
    assert page.index("Medians and means") < page.index('id="protects"')
    plan = render(released().plan)
    assert re.findall(r'<section id="(\w+)"', plan)[0] == "protects"


def test_medians_and_means_are_those_of_the_release() -> None:
    release = released()
    rows = typical_values(release)
    assert [r["group"] for r in rows] == ["everybody", "group = g0", "group = g1", "group = g2"]
    (median,) = release.quantiles("age", [0.5]).rows()
    assert rows[0]["median"] == f"{median['quantile']:,.0f}"
    (mean,) = release.mean("age").rows()
    assert abs(float(rows[0]["mean"]) - mean["mean age"]) < 0.05


def test_the_largest_groups_are_drawn() -> None:
    """Mutant: the first eight in the order of the cells."""
    (found,) = asked_distributions(released(12))
    assert {r["group"] for r in found.rows} == {f"g{i}" for i in range(4, 12)}
    assert found.omitted == 4
