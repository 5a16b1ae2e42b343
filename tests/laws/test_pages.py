"""Numbers within sentences of README and docs, made again: what a sentence says is read from its page."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

import sfumato as sf
from sfumato.plans.plan import price_design
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies.design import Problem
from sfumato.strategies.residual_planning import residual_design
from sfumato.strategies.residual_tables import allocate_residuals
from sfumato.workloads import QueryFamily

ROOT = Path(__file__).parents[2]


def said(page: str, pattern: str) -> list[float]:
    """The numbers of the one place of a page that matches; its line breaks are blanks."""
    text = re.sub(r"\s+", " ", (ROOT / page).read_text(encoding="utf-8"))
    found = re.findall(pattern, text)
    assert len(found) == 1, f"{page}: {len(found)} places say {pattern!r}"
    groups = found[0] if isinstance(found[0], tuple) else (found[0],)
    return [float(g.replace(",", "")) for g in groups]


def ordered(make: Any, m: int, **options: Any) -> sf.Plan:
    return sf.plan(make(sf.Domain({"t": m}), "t"), sf.gdp(1), neighbours="add-remove", **options)


# -- marginals under replace-one ---------------------------------------------------------------------------


def best_shares(d: int, order: int) -> float:
    """The least rmse of residuals of all tables of `order` of d two-valued attributes, a record replaced, at GDP 1.

    By symmetry one precision x_s for all sets of size s. Two cells that differ in t attributes are told apart by
    sum over sets S of x_S |change of residual S|^2, at most 1 for all t: a convex programme in x.
    """
    sizes = range(1, order + 1)
    cells = math.comb(d, order) * 2**order
    share = [0.5**s * 0.25 ** (order - s) * cells * math.comb(order, s) for s in sizes]

    def change(s: int, t: int) -> float:
        meeting = range(max(0, s - (d - t)), min(s, t) + 1)
        return sum(math.comb(t, j) * math.comb(d - t, s - j) * 2 * 0.5**s * (1 - (-1) ** j) for j in meeting)

    price = np.array([[change(s, t) for s in sizes] for t in range(1, d + 1)])

    def error(logs: np.ndarray) -> float:
        return float(np.log(np.sum(share / np.exp(logs))) + np.log((price @ np.exp(logs)).max()))

    # the largest over t is smooth but where two meet: from several starts, without derivatives
    starts = [np.zeros(order), -np.arange(order, dtype=float), -2.0 * np.arange(order)]
    options: Any = {"maxiter": 20_000, "maxfev": 20_000, "xatol": 1e-10, "fatol": 1e-13}
    least = min(minimize(error, s, method="Nelder-Mead", options=options).fun for s in starts)
    return math.sqrt(math.exp(least) / cells)


def _shares_of_the_other_relation(work: sf.Workload) -> float:
    """The error of what is best for a record more or less, priced for one that is replaced."""
    unit = PrivacyUnit(Neighbours.REPLACE_ONE)
    problem = Problem(work, sf.gdp(1), unit, "gaussian")
    tables = [(item.family.sets, problem.table_weights(item)) for item in work.items if isinstance(item, QueryFamily)]
    found = allocate_residuals(tables, work.domain.shape, objective="mean", power=2, free_total=True)
    return price_design(residual_design(problem, found.sets, found.precision), problem).objective_value


def test_marginals_under_replace_one_are_the_best() -> None:
    pattern = r"of 9 / 10 / 20 / 50 two-valued attributes the optimum is ([\d.]+) / ([\d.]+) / ([\d.]+) / ([\d.]+),"
    optima = said("docs/marginals.md", pattern)
    pattern = r"shares of `add-remove` err ([\d.]+) / ([\d.]+) / ([\d.]+) / ([\d.]+) % more"
    excess = said("docs/marginals.md", pattern)
    for d, shown, optimum in zip((9, 10, 20, 50), excess, optima, strict=True):
        work = sf.marginals(sf.Domain({f"b{i}": 2 for i in range(d)}), order=3)
        plan = sf.plan(work, sf.gdp(1), neighbours="replace-one", mechanism="marginals")
        best = best_shares(d, 3)
        assert best == pytest.approx(optimum, abs=6e-4)
        assert plan.lower_bound is not None
        assert plan.lower_bound == pytest.approx(best, rel=1e-6)
        assert plan.rmse == pytest.approx(best, rel=1e-5)
        assert 100 * (_shares_of_the_other_relation(work) / best - 1) == pytest.approx(shown, abs=0.06), d


def test_and_for_other_orders() -> None:
    for d, order in ((5, 2), (6, 2), (9, 2), (20, 2), (100, 2), (10, 1), (200, 1)):
        work = sf.marginals(sf.Domain({f"b{i}": 2 for i in range(d)}), order=order)
        plan = sf.plan(work, sf.gdp(1), neighbours="replace-one", mechanism="marginals")
        best = best_shares(d, order)
        assert plan.lower_bound == pytest.approx(best, rel=1e-6)
        assert plan.rmse == pytest.approx(best, rel=1e-5)


def test_the_convex_programme_is_the_dense_optimum_where_both_can_be_had() -> None:
    work = sf.marginals(sf.Domain({f"b{i}": 2 for i in range(6)}), order=2)
    dense = sf.plan(work, sf.gdp(1), neighbours="replace-one")
    assert dense.rmse == pytest.approx(best_shares(6, 2), rel=1e-4)


# -- who wins where ----------------------------------------------------------------------------------------


def test_what_least_squares_takes_off_the_tree() -> None:
    pattern = r"takes (\d+) % off the error of the binary tree at 8 cells, (\d+) % at 65,536 \((\d+) to (\d+) %"
    shown = said("docs/who-wins-where.md", pattern)
    found = []
    for make in (sf.prefix, sf.ranges):
        for m in (8, 65_536):
            taught = ordered(make, m, strategy="tree", reconstruction="canonical")
            found.append(100 * (1 - ordered(make, m, strategy="tree").rmse / taught.rmse))
    assert found == pytest.approx(shown, abs=0.5)


def test_how_far_buffers_are_from_their_bound() -> None:
    shown = said(
        "docs/who-wins-where.md", r"within ([\d.]+) % of the lower bound for prefixes and ([\d.]+) % for ranges"
    )
    plan = ordered(sf.prefix, 4_097)  # the smallest that takes them, and the farthest
    assert plan.lower_bound is not None
    assert shown[0] - 0.1 < 100 * (plan.rmse / plan.lower_bound - 1) < shown[0]
    plan = ordered(sf.ranges, 4_097)
    assert plan.lower_bound is not None
    assert shown[1] - 0.1 < 100 * (plan.rmse / plan.lower_bound - 1) < shown[1]


def test_windows_of_much_of_the_cells() -> None:
    pattern = r"of 10,000 cells \| the same \| ([\d.]+) / ([\d.]+) / ([\d.]+) / ([\d.]+);"
    for width, shown in zip((2_000, 3_000, 5_000, 9_000), said("docs/factorization.md", pattern), strict=True):
        work = sf.windows(sf.Domain({"t": 10_000}), "t", width)
        plan = sf.plan(work, sf.gdp(1), neighbours="add-remove")
        assert plan.lower_bound is not None
        assert plan.rmse / plan.lower_bound == pytest.approx(shown, abs=0.005)


# -- budgets and bounds ------------------------------------------------------------------------------------


def test_three_releases_fit_into_twice_the_epsilon() -> None:
    said("README.md", r"three releases at \((1), 1e-6\) fit into a ledger of \(2, 1e-6\)")
    one, total = sf.approx(1, "1e-6").mu_squared, sf.approx(2, "1e-6").mu_squared
    assert 3 * one <= total < 4 * one


def test_what_is_proved_of_mwem() -> None:
    pattern = r"for the plan above (\d+) of 1,000 records, and never below (\d+) % .* promises ([\d.]+) % of a million"
    few, least, promised = said("docs/mwem.md", pattern)
    work = sf.marginals(sf.Domain({f"q{i}": sf.Booleans() for i in range(8)}), order=3)
    for n in (1_000, 10_000, 10**6, 10**9):
        plan = sf.plan(work, sf.zcdp("0.1"), neighbours="replace-one", mechanism="mwem", records=n)
        bound = re.search(r"off by more than ([\d.,e+]+) records", plan.explain())
        assert bound is not None
        off = float(bound.group(1).replace(",", ""))
        assert off >= least / 100 * n
        assert n > 1_000 or off == pytest.approx(few, abs=0.5)
    alpha = sf.mechanisms.pmw.least_alpha(256, len(work), 10**6, sf.zcdp("0.1"))
    assert 100 * alpha == pytest.approx(promised, abs=0.05)


def test_each_question_by_itself_beside_a_session() -> None:
    (factor,) = said("docs/sessions.md", r"has a standard error of ([\d.]+) √k")
    assert 1 / math.sqrt(float(sf.approx(1, "1e-6").mu_squared)) == pytest.approx(factor, abs=0.005)
    text = (ROOT / "docs/sessions.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| 10\^(\d) \| 10\^(\d) \|(.*)\|$", text, re.MULTILINE)
    assert len(rows) == 6
    for cells, records, shown in rows:
        domain, n = sf.Domain({"t": 10 ** int(cells)}), 10 ** int(records)
        plan = sf.plan(domain, sf.approx(1, "1e-6"), neighbours="replace-one", records=n, mechanism="pmw")
        asks = re.search(r"errs by T = ([\d,]+);", str(plan))
        easy = re.search(r"easy answers within ([\d,]+) records", str(plan))
        assert asks is not None
        assert easy is not None
        found = [float(x.group(1).replace(",", "")) / n for x in (asks, easy)]
        found += [factor * math.sqrt(10 ** int(cells)) / n, factor * 100 / n]
        printed = [float(v.strip(" *")) for v in shown.split("|")]
        for i, (f, p) in enumerate(zip(found, printed, strict=True)):
            assert f == pytest.approx(p, rel=0.08, abs=6e-5), (cells, records, i)
