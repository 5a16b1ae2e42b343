"""Numbers that are counted in cells: intervals of means, sums and quantiles hold the values themselves."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.present.page import render

EDGES = [0, 1_000, 2_000, 5_000, 10_000, 100_000]
SIZES = (4_000, 400)


def drawn(seed: int, where: float) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(cells, groups) counts, and the value of every record by group; `where` in its cell each lies, from 0 to 1."""
    rng = np.random.default_rng(seed)
    counts, values = np.zeros((len(EDGES) - 1, len(SIZES)), dtype=np.int64), []
    for g, size in enumerate(SIZES):
        cells = rng.choice(len(EDGES) - 1, size, p=[0.3, 0.3, 0.2, 0.15, 0.05])
        counts[:, g] = np.bincount(cells, minlength=len(EDGES) - 1)
        low, high = np.array(EDGES[:-1])[cells], np.array(EDGES[1:])[cells]
        values.append(low + where * (high - low - 1e-6))
    return counts, np.array(values, dtype=object)


def released(counts: np.ndarray[Any, Any], pay: sf.domain.Attribute, budget: sf.Budget) -> sf.Release:
    return sf.release(planned(pay, budget), sf.Histogram(counts), ledger=None)


@functools.cache
def planned(pay: sf.domain.Attribute, budget: sf.Budget) -> sf.Plan:
    domain = sf.Domain({"pay": pay, "g": len(SIZES)})
    work = sf.stack(cells=sf.marginals(domain, sets=[("pay", "g")]), sums=sf.sums(domain, "pay", by="g"))
    return sf.plan(work, budget, neighbours="add-remove")


@pytest.mark.parametrize("where", [0.0, 0.2, 1.0])
def test_means_sums_and_quantiles_hold_the_values(where: float) -> None:
    """Values at the lower ends, at a fifth, at the upper ends of their cells. Seed 3; 40 releases, so that of 80
    intervals at 95 % fewer than 66 hold once in 10^6. Mutants: intervals of the noise alone (none holds at the ends);
    lower and upper rows exchanged."""
    counts, values = drawn(3, where)
    held = dict.fromkeys(("mean", "where", "sum", "asked", "quantile"), 0)
    for _ in range(40):
        release = released(counts, sf.Bins(EDGES), sf.gdp("0.5"))
        means, ends = release.mean("pay", by="g"), release.intervals()
        sums = release.ask(sf.sums(release.plan.workload.domain, "pay", by="g"))
        quantiles = release.quantiles("pay", [0.5], by="g")
        for g, own in enumerate(values):
            total, mean = float(np.sum(own)), float(np.mean(own))
            held["mean"] += means["low"][g] <= mean <= means["high"][g]
            one = release.mean("pay", where=f"g == {g}")
            held["where"] += one.low <= mean <= one.high
            held["sum"] += ends.low[len(SIZES) * 5 + g] <= total <= ends.high[len(SIZES) * 5 + g]
            held["asked"] += sums["low"][g] <= total <= sums["high"][g]
            middle = float(np.quantile(np.array(own, dtype=float), 0.5, method="inverted_cdf"))
            held["quantile"] += quantiles["low"][g] <= middle <= quantiles["high"][g]
    assert min(held.values()) >= 66, held


def test_the_cell_that_widens_a_mean_is_named_and_middles_stay_the_estimate() -> None:
    """Mutants: the widest cell named whoever is in it; the middle of the interval taken for the value."""
    release = released(drawn(4, 0.5)[0], sf.Bins([*EDGES[:-1], 10**9]), sf.gdp(100))
    counts = drawn(4, 0.5)[0].astype(float)
    row = release.mean("pay", by="g").rows()[0]
    middles = np.array(sf.Bins([*EDGES[:-1], 10**9]).midpoints)
    assert row["mean pay"] == pytest.approx(middles @ counts[:, 0] / counts[:, 0].sum(), rel=1e-3)
    assert "100 % of the interval is the width of cells, most of it that of [10000, 1000000000]" in row["note"]
    empty = counts.astype(np.int64)
    empty[-1] = 0
    row = released(empty, sf.Bins([*EDGES[:-1], 12_000]), sf.gdp(100)).mean("pay", by="g").rows()[0]
    assert "most of it that of [5000, 10000)" in row["note"]


def test_whole_numbers_one_by_one_have_the_interval_of_their_noise() -> None:
    """Nothing is off a middle there. Mutant: cells a whole unit wide."""
    release = released(drawn(5, 0.5)[0], sf.Integers(0, 4), sf.gdp(1))
    for row in release.mean("pay", by="g").rows():
        assert row["high"] - row["low"] == pytest.approx(2 * 1.96 * row["standard_error"], rel=0.02)
        assert row["note"] == ""
    ends, widths = release.intervals(), release.plan.half_widths()
    assert np.allclose(ends.high - ends.low, 2 * widths)


@pytest.mark.parametrize(
    ("outside", "said"),
    [
        ("clamp", "of values cut to 0 to 100,000"),
        ("other", "of records from 0 to 100,000"),
        ("drop", "of records from"),
    ],
)
def test_what_may_lie_outside_is_said(outside: Any, said: str) -> None:
    counts = drawn(6, 0.5)[0]
    pay = sf.Bins(EDGES, outside=outside, missing="drop")
    counts = np.pad(counts, ((0, pay.size - len(counts)), (0, 0)))
    assert all(n.startswith(said) for n in released(counts, pay, sf.gdp(1)).mean("pay", by="g")["note"])


def test_a_sum_that_was_measured_alone_is_bounded_by_itself_or_blank() -> None:
    """Nothing but the sum is known: values of cells from 0 on are at most twice their middle; of numbers on both sides
    of 0 nothing is known. Mutant: the noise alone."""
    counts, values = drawn(7, 0.9999)
    truth = float(sum(np.sum(v) for v in values))
    for edges, known in ((EDGES, True), ([-5, 3, 9, 10, 40, 90], False)):
        domain = sf.Domain({"pay": sf.Bins(edges)})
        plan = sf.plan(sf.sums(domain, "pay"), sf.gdp(1), neighbours="add-remove")
        release = sf.release(plan, sf.Histogram(counts.sum(axis=1)), ledger=None)
        low, high, *_ = release.intervals()
        frame = release.ask(sf.sums(domain, "pay"))
        assert "nan" not in f"{release.frame()}{frame}"
        assert ("no interval is known" in release.explain()) == (not known)
        if known:
            assert low[0] <= truth <= high[0]
            assert (frame["low"], frame["high"]) == ([low[0]], [high[0]])
        else:
            assert math.isnan(low[0])
            assert math.isnan(high[0])
            for page in (render(release), render(release.project())):  # its pages are drawn all the same
                assert "–</td>" in page


def test_differences_and_ratios_of_sums_hold_the_values() -> None:
    """All values at their upper ends in one group, at their lower ends in the other: the hardest difference there is.
    Mutants: `times` of a negative number that keeps the sides; comparisons of the noise alone."""
    upper, lower = drawn(8, 1.0)[1], drawn(8, 0.0)[1]
    counts = drawn(8, 0.0)[0]
    first, second = (released(counts, sf.Bins(EDGES), sf.gdp(4)) for _ in range(2))
    truth = float(np.sum(upper[0]) - np.sum(lower[0]))
    compared = sf.difference(first, second).intervals(0.999)
    at = len(SIZES) * 5
    assert compared.low[at] <= -truth <= truth <= compared.high[at]
    pooled = first.compare(second, 0.999)
    assert pooled["low"][at] <= truth <= pooled["high"][at]
    domain = first.plan.workload.domain
    of_first, of_second = (first._ask_one(sf.Workload(domain, (q,)).blocks[0], 0.999) for q in _single_sums(domain))
    apart = of_first - of_second
    assert apart.low <= float(np.sum(upper[0]) - np.sum(lower[1])) <= apart.high
    assert apart.low <= float(np.sum(lower[0]) - np.sum(upper[1])) <= apart.high
    ratio = of_first / of_second
    for a, b in ((upper[0], lower[1]), (lower[0], upper[1])):
        assert ratio.low <= float(np.sum(a) / np.sum(b)) <= ratio.high


def _single_sums(domain: sf.Domain) -> list[Any]:
    """The sum of each group as a query of one row."""
    (whole,) = sf.sums(domain, "pay").blocks
    found = []
    for g in range(len(SIZES)):
        (chosen,) = sf.predicates(domain, [f"g == {g}"]).blocks
        block = type(whole.block)(
            (*whole.block.groups, *chosen.block.groups), (*whole.block.factors, *chosen.block.factors)
        )
        found.append(type(whole)(f"sum {g}", block, unit="pay"))
    return found
