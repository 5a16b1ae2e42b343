"""What the five lecture notes say, item by item, against numbers made another way; the page that lists the items.

docs/sources.md has one row for every definition, formula, theorem, remark and exercise, with the function that does it
and the test that has its number. Those of trees, noise and factorization are in test_sources.py; here are projection,
widths, multiplicative weights, marginals and sparse queries.
"""

from __future__ import annotations

import itertools
import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import norm

import sfumato as sf
from sfumato.privacy.noise import DiscreteLaplace
from sfumato.sketches.predict import paper_parameters

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")
BUDGET = sf.approx(1, "1e-6")
C = 4.2246789  # the noise multiplier of (1, 1e-6), from the characterisation of Gaussian noise [BW18]
SWAP: dict[str, Any] = {"neighbours": "replace-one"}
TAUGHT: dict[str, Any] = SWAP | {"strategy": "queries"}


# -- the page --------------------------------------------------------------------------------------------


def rows() -> list[list[str]]:
    """Rows of the tables with a column of tests: item, function, test."""
    found, inside = [], False
    for line in PAGE.splitlines():
        if line.startswith("|"):
            cells = [c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]]
            inside = inside or cells[-1] == "its number"
            if inside and cells[-1] != "its number" and not set(cells[-1]) <= {"-"}:
                found.append(cells)
        else:
            inside = False
    return found


def test_every_item_of_the_sources_has_a_number_or_a_reason() -> None:
    """Mutants: a row without a test; a test that is not there; fewer than all items."""
    every = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "tests").rglob("test_*.py"))
    defined = set(re.findall(r"^def test_(\w+)", every, re.MULTILINE))
    assert len(rows()) >= 85
    for item, function, test in rows():
        assert function, item
        if test.startswith("absent: "):
            assert len(test) > 30, item
        else:
            assert test.strip("`") in defined, (item, test)


# -- histograms and direct noise -------------------------------------------------------------------------


def test_the_histogram_of_the_notes() -> None:
    """[SmithUllman] (7): x = (1, 3, 3, 2, 3) has h = (1/5, 1/5, 3/5)."""
    domain = sf.Domain({"u": sf.Integers(1, 3, outside="drop", missing="drop")})
    plan = sf.plan(sf.identity(domain), sf.gdp(10**6), neighbours="add-remove")
    release = sf.release(plan, sf.Source(pd.DataFrame({"u": [1, 3, 3, 2, 3]})), ledger=None)
    assert release.answers / 5 == pytest.approx([1 / 5, 1 / 5, 3 / 5], abs=1e-3)


def test_a_universe_too_large_to_list() -> None:
    """[SmithUllman] remark 1.2: 2,000 records of 30 bits are 60,000 bits, the histogram has a billion buckets."""
    domain = sf.Domain({f"x{i}": sf.Booleans(outside="drop", missing="drop") for i in range(30)})
    bits = np.random.default_rng(2).random((2_000, 30)) < 0.3
    assert (bits.size, domain.size) == (60_000, 2**30)
    work = sf.marginals(domain, order=1)
    plan = sf.plan(work, BUDGET, neighbours="add-remove")
    release = sf.release(plan, sf.Source(pd.DataFrame(bits, columns=list(domain.names))), ledger=None)
    exact = np.stack([(~bits).sum(axis=0), bits.sum(axis=0)], axis=1).ravel()
    assert np.abs(release.answers - exact).max() < 8 * plan.max_standard_error


@pytest.mark.parametrize("k", [1, 25])
def test_records_for_an_error_of_the_gaussian_mechanism(k: int) -> None:
    """[Nikolov] section 1: the smallest n. c sqrt(k) / alpha for the average of k queries that a record can all meet;
    for the largest of them the noise's quantile at (0.95)^(1/k) besides."""
    work = sf.queries(np.tile([1, 0], (k, 1)))
    assert sf.records_for(work, BUDGET, error=0.1, **TAUGHT) == pytest.approx(C * math.sqrt(k) / 0.1, abs=1.01)
    plan = sf.plan(work, BUDGET, **TAUGHT)
    quantile = norm.ppf((1 + 0.95 ** (1 / k)) / 2)
    assert plan.half_widths(0.95, simultaneous=True).max() == pytest.approx(C * math.sqrt(k) * quantile, rel=1e-3)


# -- trees -----------------------------------------------------------------------------------------------


def nodes_of_intervals(d: int) -> float:
    """The mean number of largest blocks inside an interval of d = 2^L cells, without the root: a block is one of them
    where it lies inside and its parent does not."""

    def holding(size: int) -> int:
        starts = np.arange(0, d, size)
        return int(((starts + 1) * (d - starts - size + 1)).sum())

    sizes = [2**i for i in range(int(math.log2(d)))]
    # each parent inside takes its two children out; the root is not measured
    inner = sum(holding(size) - 2 * holding(2 * size) for size in sizes[:-1])
    return (inner + holding(d // 2)) / (d * (d + 1) / 2)


def test_bins_beat_the_tree_as_taught_up_to_4096_cells() -> None:
    """[Brown] question 4 in figures: with pure epsilon 1 the tree of 4,096 cells errs 107.4 and bins 104.5, at 8,192
    cells 122.0 and 147.8; by counting blocks and the levels that a replaced record moves."""
    wins = {}
    for d in (64, 1024, 4096, 8192):
        work, L = sf.ranges(sf.Domain({"t": d}), "t"), int(math.log2(d))
        tree, bins = (
            sf.plan(work, sf.pure(1), strategy=name, reconstruction="canonical", **SWAP).rmse
            for name in ("tree", "cells")
        )
        assert tree**2 == pytest.approx(2 * (2 * L) ** 2 * nodes_of_intervals(d), rel=1e-3)
        assert bins**2 == pytest.approx(8 * (d + 2) / 3, rel=1e-3)
        wins[d] = tree < bins
    assert wins == {64: False, 1024: False, 4096: False, 8192: True}


# -- factorization ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "gamma"),
    [(lambda: sf.prefix(sf.Domain({"t": 8}), "t"), 1.4944136), (lambda: sf.parities(3), math.sqrt(8))],
)
def test_theorem_2_3(make: Any, gamma: float) -> None:
    """[SmithUllman] theorem 2.3: an (epsilon, delta) mechanism errs c gamma(F), in records, whatever n is.

    gamma of the parities is the root of 8, as their singular values say; that of prefixes is published [MNT20].
    """
    plan = sf.plan(make(), BUDGET, neighbours="add-remove")
    assert plan.rmse == pytest.approx(C * gamma, rel=1e-5)


def test_the_lower_bound_by_singular_values() -> None:
    """gamma(F) >= the sum of the singular values over sqrt(k m), by ||F||_* <= ||R||_F ||M||_F; met by parities."""
    for F in (np.tri(8), np.eye(5), sf.parities(3).operator.dense(), sf.disjunctions(3).operator.dense()):
        found = sf.factorization(F)
        simple = np.linalg.svd(F, compute_uv=False).sum() / math.sqrt(F.size)
        assert simple <= found.lower_bound * (1 + 1e-9)
    assert sf.factorization(sf.parities(3).operator.dense()).upper_bound == pytest.approx(math.sqrt(8), rel=1e-6)


def test_disjunctions_gain_from_approximation() -> None:
    """[SmithUllman] remark 2.4, up to d = 4: gamma grows by 18 % and more an attribute, gamma_alpha by less and less.

    At d = 1 there is one query that counts, of one cell: gamma = 1 / sqrt(2), gamma_alpha (1 - alpha sqrt(2)) of it.
    """
    exact, near = [], []
    for d in (1, 2, 3, 4):
        F = sf.disjunctions(d).operator.dense()
        exact.append(sf.factorization(F).upper_bound)
        near.append(sf.factorization(F, approximate=0.3).upper_bound)
    assert exact[0] == pytest.approx(1 / math.sqrt(2))
    assert near[0] == pytest.approx((1 - 0.3 * math.sqrt(2)) / math.sqrt(2), rel=0.01)
    growth = [b / a for a, b in itertools.pairwise(exact)], [b / a for a, b in itertools.pairwise(near)]
    assert min(growth[0]) > 1.18
    assert growth[1] == sorted(growth[1], reverse=True)
    assert growth[1][-1] < 1.13


# -- projection ------------------------------------------------------------------------------------------


def test_two_thresholds_project_in_closed_form() -> None:
    """[SmithUllman] (40): 0 <= a_1 <= a_2 <= 1; who breaks the order gets the mean, and all is clipped."""
    work = sf.queries([[1, 0, 0], [1, 1, 0]])
    for a in np.random.default_rng(40).normal(0.5, 1, (60, 2)):
        inner = a if a[0] <= a[1] else np.full(2, a.mean())
        assert sf.project(a, work, total=1).answers == pytest.approx(np.clip(inner, 0, 1), abs=1e-4)


@pytest.mark.parametrize("a", [-1.82, -0.1, 0.0, 0.4, 1.0, 3.0])
def test_a_count_is_clipped(a: float) -> None:
    """[SmithUllman] section 2.3: a count becomes max(min(a, 1), 0), never farther from a truth in [0, 1]."""
    found = sf.project([a], sf.queries([[1, 0]]), total=1).answers[0]
    assert found == pytest.approx(max(min(a, 1.0), 0.0), abs=1e-9)
    assert all(abs(found - truth) <= abs(a - truth) + 1e-9 for truth in np.linspace(0, 1, 11))


def test_the_hull_holds_more_than_tables_of_two_records() -> None:
    """[SmithUllman] remark 2.7: of n = 2 a count is 0, 1/2 or 1, and the body is [0, 1]."""
    work = sf.queries([[1, 0]])
    reached = {float(work.answer(np.bincount(x, minlength=2))[0]) / 2 for x in itertools.product((0, 1), repeat=2)}
    assert reached == {0.0, 0.5, 1.0}
    body = sf.width(work, "hull", draws=2)
    assert [body.separation_oracle([a]).inside for a in (-0.01, 0.0, 0.3, 1.0, 1.01)] == [
        False,
        True,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("seed", range(3))
def test_the_triangle_is_obtuse_at_the_projection(seed: int) -> None:
    """[Nikolov] (1), (2) and [SmithUllman] (45) to (50): ||p - y||^2 <= <p - y, z> <= h(z) - <y, z>."""
    rng = np.random.default_rng(seed)
    F = rng.integers(0, 2, (12, 9))
    work, truth = sf.queries(F), F @ rng.dirichlet(np.ones(9))
    body = sf.width(work, "hull", draws=2)
    for z in rng.normal(0, 1, (10, 12)):
        p = sf.project(truth + z, work, body="hull", total=1).answers
        moved = p - truth
        assert moved @ moved == pytest.approx(moved @ z + moved @ (p - truth - z))
        assert moved @ (p - truth - z) <= 1e-6
        assert moved @ moved <= moved @ z + 1e-6
        assert p @ z <= body.support(z) + 1e-9


def test_projection_reads_no_data_and_costs_nothing(tmp_path: Path) -> None:
    """[Nikolov] theorem 2, [SmithUllman] section 2.3: the ledger is as it was; a file alone projects alike."""
    ledger, work = sf.Ledger.in_memory(sf.gdp(1)), sf.marginals(sf.Domain({"a": 2, "b": 3}), upto=2)
    plan = sf.plan(work, sf.gdp("0.5"), **SWAP)
    release = sf.release(plan, sf.Histogram(np.arange(6)), ledger=ledger, out=tmp_path / "release")
    before = ledger.spent
    projected = release.project("hull")
    assert ledger.spent == before
    assert (sf.load(tmp_path / "release").project("hull").answers == projected.answers).all()


@pytest.mark.parametrize(("k", "m"), [(64, 32), (16, 100)])
def test_theorem_3_1_with_its_constant(k: int, m: int) -> None:
    """[SmithUllman] theorem 3.1, [Nikolov] theorems 4 and 8: rmse^2 <= n sigma sqrt(2 k ln m) / k.

    So n >= sigma sqrt(2 ln m / k) / alpha^2 is enough for a share alpha. Where n < sigma the noise alone exceeds all
    answers, and the bound does not. Mutants: the width of one query; the number of records left out.
    """
    F = np.random.default_rng(k).integers(0, 2, (k, m))
    work = sf.queries(F)
    sigma = sf.plan(work, BUDGET, **TAUGHT).rmse
    apart = max(np.linalg.norm(a - b) for a in F.T for b in F.T)
    assert sigma == pytest.approx(C * apart, rel=1e-5)
    closed = math.sqrt(2 * k * math.log(m))
    for n in (20, 200):
        plan = sf.plan(work, BUDGET, mechanism="projection", records=n, **TAUGHT)
        assert plan.forecast.bound <= math.sqrt(n * sigma * closed / k)
        assert plan.rmse <= sigma * (1 + 1e-9)
    few = int(sigma / 2)
    plan = sf.plan(work, BUDGET, mechanism="projection", records=few, **TAUGHT)
    assert sigma / few > 1 > plan.rmse / few
    enough = math.ceil(sigma * math.sqrt(2 * math.log(m) / k) / 0.2**2)
    assert sf.records_for(work, BUDGET, error=0.2, mechanism="projection", **TAUGHT) <= enough


# -- bodies and widths -----------------------------------------------------------------------------------


def test_answers_of_every_table_lie_in_the_hull_of_single_records() -> None:
    """[Nikolov] 2.1: Q(X) is the mean of its points, so it lies in conv(S_Q); and corners are tables of one record."""
    rng = np.random.default_rng(21)
    F = rng.integers(0, 2, (6, 5))
    body = sf.width(sf.queries(F), "hull", draws=2)
    for n in (1, 2, 7):
        table = np.bincount(rng.integers(0, 5, n), minlength=5)
        assert body.separation_oracle(F @ table / n).inside
    assert not body.separation_oracle(F.max(axis=1) + 0.1).inside


@pytest.mark.parametrize("body", ["hull", "local", "sdp", "exact"])
def test_three_properties_of_support_functions(body: str) -> None:
    """[Nikolov] after definition 5: homogeneous, subadditive, monotone in the body; h(y) + h(-y) is the width."""
    rng = np.random.default_rng(5)
    work = sf.marginals(sf.Domain({f"c{i}": sf.Booleans() for i in range(3)}), order=2)
    h = sf.width(work, body, draws=2).support
    smaller = sf.width(work, "hull", draws=2).support
    corners = np.array([work.answer(cell.reshape(2, 2, 2)) for cell in np.eye(8)])
    for x, y in rng.standard_normal((5, 2, 12)):
        assert h(2.5 * y) == pytest.approx(2.5 * h(y), rel=1e-4)
        assert h(x + y) <= h(x) + h(y) + 1e-4
        assert smaller(y) <= h(y) + 1e-4
        assert smaller(y) + smaller(-y) == pytest.approx(np.ptp(corners @ y))


@pytest.mark.parametrize("k", [1, 4, 40])
def test_gaussian_width_is_c_k_times_mean_width(k: int) -> None:
    """[Nikolov] after definition 7: c_k = sqrt(2) Gamma((k + 1) / 2) / Gamma(k / 2) = E |G|, of order sqrt(k)."""
    found = sf.width(sf.queries(np.random.default_rng(k).integers(0, 3, (k, 6))), "hull", draws=20)
    c_k = float(np.linalg.norm(np.random.default_rng().standard_normal((k, 200_000)), axis=0).mean())
    assert found.gaussian / found.mean == pytest.approx(c_k, rel=0.02)
    assert math.sqrt(k - 0.5) < found.gaussian / found.mean < math.sqrt(k)


@pytest.mark.parametrize(("k", "m"), [(10, 4), (64, 32)])
def test_the_derivation_of_theorem_4(k: int, m: int) -> None:
    """[Nikolov]: ln(m) / lambda + lambda k / 2 is least at sqrt(2 ln m / k), where it is sqrt(2 k ln m); the width of
    the corners of the cube, of norm sqrt(k) at most, is below it."""
    best = minimize_scalar(lambda x: math.log(m) / x + x * k / 2, bounds=(1e-3, 10), method="bounded")
    assert best.x == pytest.approx(math.sqrt(2 * math.log(m) / k), rel=1e-3)
    assert best.fun == pytest.approx(math.sqrt(2 * k * math.log(m)), rel=1e-6)
    F = np.random.default_rng(m).integers(0, 2, (k, m))
    assert np.linalg.norm(F, axis=0).max() <= math.sqrt(k)
    found = sf.width(sf.queries(F), "hull")
    assert found.gaussian + 4 * found.gaussian_error < best.fun


# -- marginals -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "k"), [(4, 2), (6, 3), (9, 2)])
def test_marginals_in_number_and_in_noise(d: int, k: int) -> None:
    """[Nikolov] definition 9: (d choose k) 2^k queries. A record that changes all answers moves one cell down and one
    up in each table: noise on the queries errs c sqrt(2 (d choose k)), which grows as d^(k/2), and so does n."""
    work = sf.marginals(sf.Domain({f"c{i}": sf.Booleans() for i in range(d)}), order=k)
    assert len(work) == math.comb(d, k) * 2**k
    plan = sf.plan(work, BUDGET, **TAUGHT)
    assert plan.rmse == pytest.approx(C * math.sqrt(2 * math.comb(d, k)), rel=1e-5)
    needed = sf.records_for(work, BUDGET, error=0.05, **TAUGHT)
    assert needed == pytest.approx(plan.rmse / 0.05, abs=1.01)


def test_an_example_of_a_conjunction() -> None:
    """[Nikolov] after definition 9: c_1 and not c_2 and c_3, by counting records."""
    domain = sf.Domain({f"c{i}": sf.Booleans() for i in (1, 2, 3)})
    records = np.random.default_rng(9).random((500, 3)) < 0.5
    counts = np.zeros(8, dtype=int)
    np.add.at(counts, records @ [4, 2, 1], 1)
    asked = sf.predicates(domain, ["c1 == 'true' and c2 == 'false' and c3 == 'true'"])
    assert asked.answer(counts)[0] == (records[:, 0] & ~records[:, 1] & records[:, 2]).sum()


def test_the_relaxation_costs_little_width() -> None:
    """[Nikolov], last paragraph: K lies in L, and l*(L) is at most a constant times l*(K); here 1.05."""
    for d in (3, 5):
        work = sf.marginals(sf.Domain({f"c{i}": sf.Booleans() for i in range(d)}), order=2)
        inner, outer = (sf.width(work, body, draws=40) for body in ("hull", "sdp"))
        # the same directions
        assert inner.gaussian <= outer.gaussian * (1 + 1e-6) <= 1.05 * inner.gaussian


# -- multiplicative weights ------------------------------------------------------------------------------


def test_updates_of_multiplicative_weights() -> None:
    """[Nikolov] section 1: L = O(log |X| / alpha^2), and the plan prints it: between what relative entropy leaves,
    N^2 ln m / (2 (T - v)^2), and the textbook's 8/3 ln m / alpha^2."""
    domain, n = sf.Domain({f"q{i}": sf.Booleans() for i in range(8)}), 1_000_000
    value = sf.mechanisms.pmw(alpha="least", questions=100)
    plan = sf.plan(domain, BUDGET, mechanism=value, records=n, **SWAP)
    least = n**2 * math.log(256) / 2 / (plan.threshold - plan.bounds.v) ** 2
    textbook = 8 / 3 * math.log(256) / (plan.alpha / n) ** 2
    assert least <= plan.updates <= textbook
    assert f"{plan.updates:,} updates" in str(plan)


# -- sparse queries --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [Fraction(1), Fraction("10.51")])
def test_the_laplace_law(scale: Fraction) -> None:
    """[Tutunov] definition 5: variance 2 b^2; the discrete law has 2 a / (1 - a)^2 a = exp(-1/b), some 1/6 less."""
    a = math.exp(-1 / float(scale))
    exact = 2 * a / (1 - a) ** 2
    assert float(DiscreteLaplace(scale).variance) == pytest.approx(exact, rel=1e-9)
    assert exact == pytest.approx(2 * float(scale) ** 2 - 1 / 6, abs=0.01)


@pytest.mark.parametrize(("m", "n", "k"), [(64, 1_000, 100), (16, 10, 1)])
def test_parameters_of_sparse_project(m: int, n: int, k: int) -> None:
    """[Tutunov], algorithm: tau, T, 1/sigma and the independence 2 log(k T / 2 beta), by their printed formulas."""
    beta, delta = 0.05, 1e-6
    T = 4 * 64**2 * math.log(4 * k / beta) * (m**1.5 / 2 + n**4 / (2 * math.sqrt(m)) + math.sqrt(m) * n**2)
    found = paper_parameters(m, n, k, 1.0, delta, beta)
    assert found.dimension == pytest.approx(T, rel=1e-9)
    assert found.laplace_scale == pytest.approx(math.sqrt(8 * math.log(1 / delta)))
    assert found.independence == pytest.approx(2 * math.log(k * T / (2 * beta)), abs=1.01)


def test_theorem_2_of_sparse_project_in_keys_and_records() -> None:
    """[Tutunov] theorem 2: alpha grows as sqrt(m) and falls as 1/n, up to logarithms; ours does so but for rounding."""
    keys = sf.Keys("item")
    for name in ("sparse-project", "count-sketch"):
        share = {}
        for n in (10_000, 1_000_000):
            plan = sf.plan(keys, BUDGET, neighbours="add-remove", mechanism=name, records=n)
            share[n] = plan.error(64) / n
            assert plan.error(256) == pytest.approx(2 * plan.error(64), rel=1e-6)
        assert share[10_000] / share[1_000_000] == pytest.approx(100, rel=0.05)


def test_the_projection_answers_with_the_variance_by_hand() -> None:
    """[Tutunov] definition 6: <A Q, A D + v> is right on average, with variance

        ||Q||^2 s^2 + (||Q||^2 ||D||^2 + <Q, D>^2 - 2 sum Q^2 D^2) / T,

    signs drawn independently; 2,000 draws, at 7.13 deviations."""
    rng, T, s, runs = np.random.default_rng(), 16, 2.0, 2_000
    D, Q = np.array([5.0, 0, 3, 1, 1, 0, 2, 4]), np.array([1.0, 1, 0, 0, 0.5, 0, 0, 0])
    A = rng.choice([-1.0, 1.0], (runs, T, 8)) / math.sqrt(T)
    answers = np.einsum("rt,rt->r", A @ Q, A @ D + rng.normal(0, s, (runs, T)))
    # given A, the noise of <A Q, v> has variance ||A Q||^2 s^2, of mean ||Q||^2 s^2
    exact = Q @ Q * s**2 + (Q @ Q * (D @ D) + (Q @ D) ** 2 - 2 * (Q**2) @ (D**2)) / T
    assert abs(answers.mean() - Q @ D) < 7.13 * math.sqrt(exact / runs)
    assert answers.var() == pytest.approx(exact, rel=7.13 * math.sqrt(3 / runs))
