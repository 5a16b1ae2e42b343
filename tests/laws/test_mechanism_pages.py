"""Every mechanism has a page, and the constants of its theorem are what plans say: each computed here another way."""

from __future__ import annotations

import math
import re
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

import sfumato as sf
from sfumato.plans.plan import Plan
from support.scripts import script

ROOT = Path(__file__).parents[2]
DOCS = script("scripts/docs.py")
MAP = script("bench/theory_map.py")
MAP.ROWS = [cache(make) for make in MAP.ROWS]  # two tests look at them
FIGURES = script("scripts/figures.py")
PARTS = ["Theorem", "Three lines", "When it loses", "Why it is true", "Source"]
ADD: dict[str, Any] = {"neighbours": "add-remove"}
SWAP: dict[str, Any] = {"neighbours": "replace-one"}


def line(m: int) -> sf.Domain:
    return sf.Domain({"t": m})


def prefixes(m: int, **options: Any) -> Plan:
    found = sf.plan(sf.prefix(line(m), "t"), options.pop("budget", sf.gdp(1)), **(ADD | options))
    assert isinstance(found, Plan)
    return found


def page(name: str) -> str:
    return re.sub(r"\s+", " ", (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", DOCS.MECHANISMS)
def test_a_page_has_its_parts_in_one_order(name: str) -> None:
    """Mutants: a page without its theorem, its proof or when it loses; code without its output."""
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert [h for h in headings if h in PARTS] == PARTS
    lines, loses = text.index("## Three lines"), text.index("## When it loses")
    assert "```python" in text[lines:loses]
    assert "```output" in text[lines:loses] or name == "projection"  # whose block has its checks as asserts
    assert re.search(r"\[[A-Z][A-Za-z]+\d\d", text[text.index("## Source") :])
    assert f"({name}.md)" in (ROOT / "docs" / "mechanisms.md").read_text(encoding="utf-8")


# -- noise -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [4, 100])
def test_histogram(m: int) -> None:
    """Prefix i has i cells: the mean of 1, ..., m; for ranges the mean length by counting."""
    lengths = [high - low + 1 for low in range(m) for high in range(low, m)]
    assert prefixes(m, strategy="cells").rmse == pytest.approx(math.sqrt(np.mean(np.arange(1, m + 1))))
    ranges = sf.plan(sf.ranges(line(m), "t"), sf.gdp(1), **ADD, strategy="cells")
    assert ranges.rmse == pytest.approx(math.sqrt(np.mean(lengths)))
    assert np.mean(lengths) == pytest.approx((m + 2) / 3)
    cells = sf.identity(line(m), "t")
    for budget, alone in ((sf.gdp(1), math.sqrt(2)), (sf.pure(1), 2 * math.sqrt(2))):
        known = np.eye(m) - 1 / m  # what least squares leaves of the noise, where the total is known
        error = alone * np.linalg.norm(known) / math.sqrt(m)
        assert sf.plan(cells, budget, **SWAP, strategy="cells").rmse == pytest.approx(error, rel=1e-6)


@pytest.mark.parametrize("k", [1, 5])
def test_laplace(k: int) -> None:
    """The deviation by integrating the density; the width by its tail."""
    plan = sf.plan(sf.queries(np.tril(np.ones((k, k), dtype=int))), sf.pure("0.5"), **ADD, strategy="queries")
    scale = k / 0.5
    variance, _ = quad(lambda z: z * z * math.exp(-abs(z) / scale) / (2 * scale), -400, 400, points=[0])
    assert plan.rmse == pytest.approx(math.sqrt(variance), rel=1e-5)
    assert math.exp(-plan.half_widths(0.95)[0] / scale) == pytest.approx(0.05, rel=1e-4)


@pytest.mark.parametrize(("epsilon", "delta"), [("0.1", "1e-9"), (1, "1e-6"), (4, "1e-3")])
def test_gaussian(epsilon: Any, delta: str) -> None:
    """Delta by integrating max(0, p - e^epsilon q) over two normal densities that are mu apart."""
    mu = math.sqrt(float(sf.approx(epsilon, delta).mu_squared))
    e = float(epsilon)

    def excess(x: float) -> float:
        return max(0.0, norm.pdf(x, mu) - math.exp(e) * norm.pdf(x))

    start = e / mu + mu / 2
    found, _ = quad(excess, start, start + 40, epsabs=0, limit=200)
    assert found == pytest.approx(float(delta), rel=1e-5)
    assert "4.225" in page("gaussian")
    assert 1 / math.sqrt(float(sf.approx(1, "1e-6").mu_squared)) == pytest.approx(4.225, abs=5e-4)


# -- strategies --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [2, 6])
def test_tree(levels: int) -> None:
    """The nodes of every prefix, counted by its binary ones."""
    m = 2**levels
    nodes = [length.bit_count() for length in range(1, m + 1)]
    assert np.mean(nodes) == pytest.approx(levels / 2 + 1 / m)
    taught = prefixes(m, strategy="tree", reconstruction="canonical")
    assert taught.rmse == pytest.approx(math.sqrt((levels + 1) * np.mean(nodes)), rel=1e-6)
    assert taught.max_standard_error == pytest.approx(math.sqrt((levels + 1) * max(nodes)), rel=1e-6)
    assert max(nodes) == levels
    pure = prefixes(m, strategy="tree", reconstruction="canonical", budget=sf.pure(1))
    assert pure.rmse == pytest.approx(math.sqrt(2) * (levels + 1) * math.sqrt(np.mean(nodes)), rel=1e-6)
    assert prefixes(m, strategy="tree").rmse < taught.rmse


def test_matrix_mechanism() -> None:
    """Least squares by normal equations, on a strategy that was drawn."""
    rng = np.random.default_rng(5)
    M, F = rng.integers(-2, 3, (9, 6)), rng.integers(0, 2, (7, 6))
    plan = sf.plan(sf.queries(F), sf.gdp(1), **ADD, strategy=M)
    covariance = np.linalg.inv(M.T @ M) * (M**2).sum(axis=0).max()
    assert plan.rmse == pytest.approx(math.sqrt(np.trace(F @ covariance @ F.T) / len(F)), rel=1e-5)


def test_factorization() -> None:
    """Between the bounds; at the value that four cells have, from a search of another kind over X = M^T M."""
    F = np.tril(np.ones((4, 4)))
    found = sf.factorization(F)
    assert np.linalg.svd(F, compute_uv=False).sum() / 4 <= found.lower_bound <= found.upper_bound <= 2
    rng, best, point = np.random.default_rng(0), math.inf, np.eye(4)
    for step in np.geomspace(0.3, 1e-5, 20_000):
        near = np.tril(point + step * rng.standard_normal((4, 4)))
        near /= np.linalg.norm(near, axis=0).max()
        error = np.linalg.norm(F @ np.linalg.inv(near)) / 2
        if error < best:
            best, point = error, near
    assert found.upper_bound == pytest.approx(best, rel=1e-3)


def test_approximate() -> None:
    """What simulated tables err: all records in one cell attain the bound, even tables stay below."""
    work = sf.disjunctions(3)
    plan = sf.plan(work, sf.approx(1, "1e-6"), **ADD, mechanism="approximate", records=20)
    worst, even = np.zeros(8), np.full(8, 2.5)
    errors = []
    for cell in range(8):
        table = worst.copy()
        table[cell] = 20
        errors.append(sf.simulate(plan, table.astype(int), repetitions=600).rmse)
    assert max(errors) == pytest.approx(plan.rmse, rel=0.06)
    assert sf.simulate(plan, np.round(even).astype(int), repetitions=600).rmse < plan.rmse
    norms = [sf.factorization(np.eye(3), approximate=b).upper_bound for b in (0.001, 0.2, 0.4)]
    assert norms == sorted(norms, reverse=True)


@pytest.mark.parametrize("sizes", [(2, 3, 4), (5, 2, 2, 3)])
def test_marginals(sizes: tuple[int, ...]) -> None:
    """The formula of the page, and the dense optimum of the same matrix."""
    domain = sf.Domain({f"a{i}": n for i, n in enumerate(sizes)})
    sets = list(combinations(range(len(sizes)), 2))
    total = 0.0
    for size in range(3):
        for S in combinations(range(len(sizes)), size):
            p = math.prod((sizes[i] - 1) / sizes[i] for i in S)
            w = sum(
                math.prod(sizes[i] for i in A) * p * math.prod(sizes[j] ** -2 for j in set(A) - set(S))
                for A in sets
                if set(S) <= set(A)
            )
            total += math.sqrt(p * w)
    asked = sum(math.prod(sizes[i] for i in A) for A in sets)
    work = sf.marginals(domain, order=2)
    plan = sf.plan(work, sf.gdp(1), **ADD, mechanism="marginals", objective="cells")
    assert plan.rmse == pytest.approx(total / math.sqrt(asked), rel=1e-4)
    F = np.array([work.answer(cell.reshape(sizes)) for cell in np.eye(domain.size)]).T
    assert sf.factorization(F).upper_bound == pytest.approx(total / math.sqrt(asked), rel=1e-4)


def test_streams() -> None:
    """Singular values of the triangle of ones by algebra; the limit of their sum."""
    T = 64
    values = 1 / (2 * np.sin((2 * np.arange(1, T + 1) - 1) * np.pi / (4 * T + 2)))
    assert np.linalg.svd(np.tril(np.ones((T, T))), compute_uv=False) == pytest.approx(values)
    T = 2**20
    bound = (1 / (2 * np.sin((2 * np.arange(1, T + 1) - 1) * np.pi / (4 * T + 2)))).sum() / T
    assert bound - math.log(T) / math.pi == pytest.approx((np.euler_gamma + math.log(16 / math.pi)) / math.pi, abs=1e-5)
    assert bound - math.log(T) / math.pi == pytest.approx(0.7019, abs=5e-5)
    T = 1024
    bound = (1 / (2 * np.sin((2 * np.arange(1, T + 1) - 1) * np.pi / (4 * T + 2)))).sum() / T
    plan = sf.plan(sf.total(line(4)), sf.gdp(1), **ADD, periods=T)
    worst = max(plan.standard_errors("totals", t)[0] for t in range(1, T + 1, 17))
    assert bound < plan.rmse < worst < math.log(T) / math.pi + 0.846
    # the plan's own is the nearer one
    assert plan.lower_bound is not None
    assert bound < plan.lower_bound < 1.015 * bound


# -- afterwards, and models --------------------------------------------------------------------------------


def test_projection() -> None:
    """The width of a simplex by the law of the largest of m normal draws; both inequalities in simulated releases."""
    m, n = 32, 20
    largest, _ = quad(lambda x: x * m * norm.pdf(x) * norm.cdf(x) ** (m - 1), -8, 12)
    body = sf.width(sf.identity(line(m), "t"))
    assert body.gaussian == pytest.approx(largest, abs=5 * body.gaussian / math.sqrt(256 * m) + 0.05)
    assert largest < math.sqrt(2 * math.log(m))
    rng, sigma, squares = np.random.default_rng(2), 6.0, []
    exact = np.zeros(m)
    exact[3] = n
    for _ in range(40):
        noisy = exact + sigma * rng.standard_normal(m)
        near = sf.project(noisy, sf.queries(np.eye(m)), total=n).answers
        before, after, moved = (np.sum(d**2) for d in (noisy - exact, near - exact, near - noisy))
        assert after <= before - moved + 1e-6
        squares.append(after / m)
    assert np.mean(squares) <= n * sigma * largest / m


@pytest.mark.parametrize("n", [10**5, 10**6])
def test_pmw(n: int) -> None:
    """T by the formula of the page, from the plan's own noise; the step of the proof on drawn tables."""
    mechanism = sf.mechanisms.pmw(alpha="least", questions=2_000)
    plan = sf.plan(line(1024), sf.approx(1, "1e-6"), **SWAP, records=n, mechanism=mechanism)
    noise = plan.terms.answer
    energy = plan.updates * noise.variance  # its mean; what is paid for is a bound of the sum, a little more
    least = plan.bounds.v + math.sqrt((energy + n * n * math.log(1024) / 2) / plan.updates)
    assert least <= plan.threshold <= 1.03 * least
    assert sf.mechanisms.pmw.least_alpha(1024, 2_000, n, sf.approx(1, "1e-6")) == pytest.approx(
        (plan.threshold + plan.bounds.v) / n, rel=1e-3
    )


def test_a_step_of_multiplicative_weights() -> None:
    """p exp(4 d q) takes at least 2 g^2 - 2 z^2 off the relative entropy from any table."""
    rng = np.random.default_rng(1)
    for _ in range(300):
        table, p = rng.dirichlet(np.full(12, 0.3)), rng.dirichlet(np.ones(12))
        q, z = rng.random(12), rng.normal(0, 0.2)
        gap = float(q @ (table - p))
        after = p * np.exp(4 * (gap + z) * q)
        after /= after.sum()
        held = table > 0
        fell = float(table[held] @ np.log(after[held] / p[held]))
        assert fell >= 2 * gap**2 - 2 * z**2 - 1e-9


def test_mwem() -> None:
    """The three terms of the page from the plan's prices."""
    n, d = 1_000, 8
    work = sf.marginals(sf.Domain({f"q{i}": sf.Booleans() for i in range(d)}), order=3)
    plan = sf.plan(work, sf.zcdp("0.1"), **SWAP, mechanism="mwem", records=n)
    selecting, measuring = plan.looks[1], plan.looks[2]
    T, k, m, beta = selecting.count, len(work), 2**d, 0.025
    sigma = math.sqrt(2 / float(measuring.price.mu_squared))  # a table's cells move by sqrt(2), one cell by 1
    bound = n * math.sqrt(math.log(m) / (2 * T)) + 2 / float(selecting.price.epsilon) * math.log(k * T / beta)
    bound += sigma * math.sqrt(2 * math.log(2 * T / beta)) + 2
    assert plan.bound is not None
    assert plan.bound.largest == pytest.approx(bound, rel=2e-3)
    assert plan.bound.failure == 2 * beta


def test_boosting() -> None:
    """Prices of draws; and that weights shrink by sqrt(1 - 4 eta^2), on the worst models that eta allows."""
    eta = 0.25
    a = math.log((1 + 2 * eta) / (1 - 2 * eta)) / 2
    hit = 0.5 + eta
    assert hit * math.exp(-a) + (1 - hit) * math.exp(a) == pytest.approx(math.sqrt(1 - 4 * eta**2))
    k = 500
    rounds = math.ceil(math.log(k) / (2 * eta**2)) + 1
    assert k * (1 - 4 * eta**2) ** (rounds / 2) < 1
    work = sf.marginals(sf.Domain({f"q{i}": 2 for i in range(6)}), order=2)
    plan = sf.plan(work, sf.zcdp("0.5"), **SWAP, mechanism="boosting", records=1_000)
    spent = 0.0
    for t in range(1, plan.course.rounds):
        look = next(k for k in plan.looks if k.purpose == f"a query drawn in round {t + 1}")
        assert float(look.price.epsilon) == pytest.approx(2 * (2 * a * t / plan.course.ceiling), rel=0.1)
        spent += look.count * float(look.price.epsilon) ** 2 / 8  # of a bounded range [CR21]: (2 a t / c)^2 / 2
    assert spent == pytest.approx(0.25, rel=0.05)  # half of the budget draws


# -- keys --------------------------------------------------------------------------------------------------


def test_sparse_project() -> None:
    """The variance over signs by drawing them all again, beside the plan's error."""
    rng, T, sigma = np.random.default_rng(3), 40, 2.0
    counts, asked = rng.integers(1, 9, 30), np.zeros(30)
    asked[:5] = 1
    errors = []
    for _ in range(4_000):
        S = rng.choice([-1, 1], (T, 30))
        y = S @ counts + math.sqrt(T) * sigma * rng.standard_normal(T)
        errors.append((S @ asked) @ y / T - asked @ counts)
    rest = (5 * counts @ counts + (asked @ counts) ** 2 - 2 * (asked @ counts**2)) / T
    assert np.var(errors) == pytest.approx(5 * sigma**2 + rest, rel=0.1)
    plan = sf.plan(sf.Keys("item"), sf.approx(1, "1e-6"), **ADD, mechanism="sparse-project", records=100_000)
    dimension = int(re.search(r"measures\s+([\d,]+) integers", str(plan))[1].replace(",", ""))  # type: ignore[index]
    noise = 1 / float(sf.approx(1, "1e-6").mu_squared)
    # distinct keys: the squared norm is the number of records
    assert plan.error(64, 100_000) == pytest.approx(math.sqrt(64 * (noise + 100_000 / dimension)), rel=1e-3)


def test_sparse_multiplicative_weights() -> None:
    """The threshold is that of a list of 2 s L cells."""
    plan = sf.plan(
        sf.Keys("item"), sf.approx(1, "1e-6"), **ADD, records=100_000, mechanism=sf.mechanisms.sparse_mw(size=64)
    )
    explicit = sf.plan(
        line(2 * 64 * plan.updates),
        sf.approx(1, "1e-6"),
        **SWAP,
        records=100_000,
        mechanism=sf.mechanisms.pmw(updates=plan.updates),
    )
    assert plan.threshold == explicit.threshold
    assert 2 * 64 * plan.updates == 2 * plan.slots


# -- the theory map and the figures ------------------------------------------------------------------------


def _numbers(text: str) -> tuple[str, list[float]]:
    found = r"\d[\d,]*\.?\d*|\.\d+"
    return re.sub(found, "#", text), [float(v.replace(",", "")) for v in re.findall(found, text)]


def test_the_theory_map_is_what_its_script_prints() -> None:
    shown = re.search(
        r"^\| workload .*?(?=\n\n)", (ROOT / "docs" / "theory.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert shown is not None
    words, numbers = _numbers(shown[0])
    again, fresh = _numbers(MAP.table())
    assert words == again
    # the search for local reports ends up to a per cent elsewhere on another processor
    assert numbers == pytest.approx(fresh, rel=1e-2)


def test_the_map_holds_together() -> None:
    """No plan errs less than a proved bound, and bounds from below are below those from above."""
    for make in MAP.ROWS[:10]:
        row = make()
        upper, lower, ours = (_numbers(t)[1] for t in (row.upper, row.lower, row.ours))
        if lower and "at 32" not in row.lower:
            assert lower[-1] <= ours[0] * 1.001, row.workload
        assert ours[0] <= upper[-1] * 1.001, row.workload


@pytest.mark.parametrize("name", FIGURES.FIGURES)
def test_a_figure_is_what_its_script_draws(name: str) -> None:
    file = ROOT / "docs" / "charts" / f"idea-{name}.svg"
    assert file.stat().st_size < 12_000
    words, numbers = _numbers(file.read_text(encoding="utf-8"))
    again, fresh = _numbers(FIGURES.FIGURES[name]())
    assert words == again
    assert numbers == pytest.approx(fresh, abs=0.3)
    assert "prefers-color-scheme: dark" in file.read_text(encoding="utf-8")
    assert f"charts/idea-{name}.svg" in (ROOT / "docs" / "idea.md").read_text(encoding="utf-8")
