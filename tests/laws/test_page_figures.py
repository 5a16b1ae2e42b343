"""Figures of the docs, in tables and sentences: a test makes them again, or they name the command that prints them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import sfumato as sf
from sfumato.mechanisms import denoised_pairs as pairs
from sfumato.plans.labels import LabelPlan
from sfumato.releases import warnings
from sfumato.sketches.predict import paper_parameters

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
FIGURE = re.compile(r"(?<![\w.])(?:\d[\d,]*)?\.\d+|\d[\d,]*\s?%")
COMMAND = re.compile(r"(?:bench|scripts)/\w+\.py")
NAME = re.compile(
    r"`[^`]*`|\]\([^)]*\)|arXiv \S+|\b(?:definition|theorem|remark|exercise|section) \d+\.\d+|\[\w+\] \d+\.\d+"
    r"|\b(?:Python|DuckDB|SDMX-\w+|Plans of) \d+\.\d+|\b\d+ % intervals?\b|\bat 95 %"
)
"""What has a point or a percent sign and is no figure: code, addresses, numbers of theorems, versions, levels."""

MADE_AGAIN = {
    ("factorization", "Ordered attributes of many cells"): "tests/laws/test_pages.py",
    ("marginals", "One record replaced"): "tests/laws/test_pages.py",
    ("marginals", "Places inside places"): "tests/laws/test_spine.py",
    ("prefix-constant", "Theorem"): "tests/laws/test_prefix_constant.py",
    ("prefix-constant", "Why it is true"): "tests/laws/test_prefix_constant.py",
    ("laplace", "Beside Gaussian noise"): "tests/laws/test_page_figures.py",
    ("laplace", "One price"): "tests/laws/test_page_figures.py",
    ("epsilon", "In odds"): "tests/unit/test_preview.py",
}
"""Sections whose figures a test makes again, and its file, which names the page."""

NOT_OURS = {
    ("epsilon", "What others chose"): "budgets of others, with their sources",
    ("errata", "SmithUllman"): "numbers of equations and theorems",
    ("mechanisms", "Strategies"): "constants of theorems, which their pages prove",
    ("how-to-choose", "What is measured, and how good it is"): "words of other pages",
    ("sources", "Smith and Ullman: factorization, approximation, projection [SmithUllman]"): "numbers of sections",
}
"""Sections whose figures nothing of ours can print, and why."""


ADD: dict[str, Any] = {"neighbours": "add-remove"}
ONE = sf.approx(1, "1e-6")
MU = math.sqrt(float(ONE.mu_squared))
PAPER = paper_parameters(64, 100_000, 1_000, 1.0, 1e-6)


def _prefixes(m: int, **options: Any) -> float:
    return sf.plan(sf.prefix(sf.Domain({"t": m}), "t"), sf.gdp(1), **ADD, **options).rmse


def _one_count(budget: sf.Budget) -> float:
    return sf.plan(sf.total(sf.Domain({"t": 4})), budget, **ADD).rmse


def _any_noise(mu: float) -> float:
    return mu / math.sqrt(math.sinh(mu**2))


def _pure_in_ledgers() -> list[float]:
    """Below which epsilon no law of pure epsilon wins in mu^2 and in rho, and from which mu on k-norm noise may."""

    def mu(e: float) -> float:
        return -2 * float(norm.ppf(1 / (1 + math.exp(e))))

    squares, rho = (
        brentq(lambda e, of=of: of(e) / (math.sqrt(2) * math.sinh(e / 2)) - 1, 2, 5, xtol=1e-5)
        for of in (mu, lambda e: e)
    )
    return [squares, rho, mu(brentq(lambda e: mu(e) * math.sqrt(2) / e - 1, 5, 30, xtol=1e-4))]


def _over_diagonal(F: np.ndarray, error: float) -> float:
    """By how many per cent an error is above the bound by the diagonal of the root."""
    values, vectors = np.linalg.eigh(F)
    diagonal = (vectors**2) @ np.sqrt(np.maximum(values, 0))
    return 100 * (error / float(np.linalg.norm(diagonal)) - 1)


def _over_diagonals() -> list[float]:
    found: list[float] = []
    for work in (sf.prefix, sf.ranges):
        for m in (64, 1_024):
            n = np.arange(1, m + 1)
            after = m + 1 - np.maximum.outer(n, n)  # prefixes, or ends of ranges, that hold both cells
            gram = after * (1 if work is sf.prefix else np.minimum.outer(n, n))
            asked = work(sf.Domain({"t": m}), "t")
            plan = sf.plan(asked, sf.gdp(1), **ADD)
            found.append(_over_diagonal(gram.astype(float), plan.rmse * math.sqrt(len(asked))))
    return found


def _brown() -> list[float]:
    """The epsilon at which 2 log(2 / delta) / epsilon^2 is just enough, by the profile of Gaussian noise."""

    def excess(e: float) -> float:
        mu = e / math.sqrt(2 * math.log(2e6))
        return float(norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu)) - 1e-6

    return [float(brentq(excess, 5, 15))]


def _described(place: Path) -> list[float]:
    (place / "people.csv").write_text("born,income,city,admitted\n", encoding="utf-8")
    budget = sf.approx("0.5", "1e-6", thresholds="2.5e-7")
    plan = sf.plan_profile(place / "people.csv", budget)
    return [float(v) for v in re.findall(r"± ([\d.]+) %", plan.promise)]


def _replaced(attributes: int, values: int, **tables: int) -> float:
    """How much more a stream errs where persons are replaced."""
    work = sf.marginals(sf.Domain({f"a{i}": values for i in range(attributes)}), **tables)
    both = ("replace-one", "add-remove")
    plans = [sf.plan(work, sf.gdp(1), neighbours=n, person="who", periods=sf.periods(8)) for n in both]
    return plans[0].rmse / plans[1].rmse


CELLS = np.eye(4, dtype=int)
ADULT = ROOT / "src" / "sfumato" / "data" / "adult.toml"
SHARES = [pairs._PAIRS, pairs._CELLS_PAIR, pairs._SLOW, pairs._PAIRS, pairs._SPARSE, pairs._TRIPLES, pairs._TRIPLES]
COUNTING = (np.euler_gamma + math.log(16 / math.pi)) / math.pi  # the limit of the singular values' sum, less ln T / pi
CLOSED: dict[tuple[str, str], Callable[[Path], list[float]]] = {
    ("adaptive", "What is measured"): lambda _: SHARES,
    ("describe", "Before the price"): _described,
    ("errata", "Brown"): lambda _: _brown(),
    ("errata", "Tutunov"): lambda _: [PAPER.laplace_scale, math.sqrt(2) * PAPER.laplace_scale],
    ("format", "Plain files, and R"): lambda _: [float(norm.ppf(0.975)), math.sqrt(4 / (9 * 0.05))],
    ("gaussian", "Theorem"): lambda _: [MU, 1 / MU],
    ("gaussian", "When it loses"): lambda _: [_one_count(ONE), _one_count(sf.pure(1))],
    ("histogram", "When it loses"): lambda _: [_prefixes(64, strategy="cells"), _prefixes(64)],
    ("laplace", "Any noise"): lambda _: [
        *(100 * (1 - _any_noise(MU)), _any_noise(1), _any_noise(2)),
        *_pure_in_ledgers(),
    ],
    ("matrix-mechanism", "When it loses"): lambda _: [
        *(_prefixes(4, strategy=m) for m in (CELLS, np.vstack([CELLS, [[1, 1, 1, 1]]]))),
        _prefixes(4),
    ],
    ("sources", "Tutunov: sparse queries [Tutunov]"): lambda _: [math.sqrt(2) * PAPER.laplace_scale * MU],
    ("sparse", "Sparse queries over universes too large to list"): lambda _: [
        0.5 / math.sinh(0.5) ** 2,
        95,
        PAPER.dimension / 1e24,
    ],
    ("streams", "Theorem"): lambda _: [COUNTING, 0.846],  # the latter of [HKU26]
    ("streams", "People in several periods"): lambda _: [
        *(_replaced(5, 20, upto=2), _replaced(10, 2, upto=2), _replaced(10, 2, order=1)),
    ],
    ("studio", "The seven steps"): lambda _: [100 * signature(LabelPlan.occurrences).parameters["chance"].default],
    ("office", "Flags"): lambda _: [100 * 15],
    ("prefix-constant", "Bounds of plans"): lambda _: _over_diagonals(),
    ("publishing", "A site for readers"): lambda _: [len(sf.read_spec(ADULT).workload) / 1e6],
    ("tree", "When it loses"): lambda _: [_prefixes(64)],
    ("tutorial", "A declaration that does not fit"): lambda _: [100 * warnings.HEAP],
}
"""Sections whose figures are computed here, in their order on the page."""


def sections(page: Path) -> list[tuple[str, str]]:
    """Headings and what is below each up to the next, without blocks, which are run by other tests."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    parts = re.split(r"^#{1,3} (.*)$", text, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def figures(text: str) -> list[str]:
    """The figures of a section, of its tables as of its sentences."""
    return FIGURE.findall(NAME.sub("", text))


def of_figures() -> list[tuple[str, str, str]]:
    """Pages, headings and texts of sections with figures; the text has what the page says first."""
    out: list[tuple[str, str, str]] = []
    for page in PAGES:
        parts = sections(page)
        out += [(page.stem, heading, parts[0][1] + text) for heading, text in parts if figures(text)]
    return out


@pytest.mark.parametrize(("page", "heading", "text"), of_figures(), ids=lambda v: str(v)[:40])
def test_figures_are_printed_by_something(page: str, heading: str, text: str) -> None:
    """Mutants: a figure whose command is taken out; one whose script is not there; a sentence with one figure more."""
    commands = COMMAND.findall(text)
    made = (page, heading) in MADE_AGAIN | NOT_OURS | CLOSED
    assert commands or made, f"no command is named that prints {figures(text)}"
    for command in commands:
        assert (ROOT / command).exists(), command


def test_what_is_left_out_is_there() -> None:
    """A section that is renamed or names a command now, is not left out any longer."""
    named = {(page, heading) for page, heading, text in of_figures() if not COMMAND.search(text)}
    assert set(MADE_AGAIN) | set(NOT_OURS) | set(CLOSED) == named
    for (page, _), test in MADE_AGAIN.items():
        assert page in (ROOT / test).read_text(encoding="utf-8")


def printed(page: str, heading: str) -> list[list[str]]:
    """The rows of the one table of a section that has figures, without bold type."""
    text = dict(sections(ROOT / "docs" / f"{page}.md"))[heading]
    (table,) = (t for t in re.findall(r"(?:^\|.*\n)+", text + "\n", re.MULTILINE) if figures(t))
    return [[c.strip(" *").replace(",", "") for c in row.strip("|").split("|")] for row in table.splitlines()]


def as_shown(value: float, shown: str) -> bool:
    """Whether a number rounds to what is shown."""
    digits = len(shown.partition(".")[2])
    return abs(value - float(shown)) <= 0.5000001 * 10**-digits


@pytest.mark.parametrize("place", CLOSED, ids="/".join)
def test_figures_in_closed_form(place: tuple[str, str], tmp_path: Path) -> None:
    """Mutants: a digit of a page; the constant .7013 of the singular values' sum, as it stood there."""
    page, heading = place
    shown = figures(dict(sections(ROOT / "docs" / f"{page}.md"))[heading])
    for value, text in zip(CLOSED[place](tmp_path), shown, strict=True):
        assert as_shown(value, text.strip("% ").replace(",", "")), (value, text)


ASKED: dict[str, sf.Workload] = {
    **{f"prefixes of {m} cells": sf.prefix(sf.Domain({"t": m}), "t") for m in (16, 256)},
    "all ranges of 256 cells": sf.ranges(sf.Domain({"t": 256}), "t"),
    **{
        f"tables of {word} of eight bits": sf.marginals(sf.Domain({f"c{i}": 2 for i in range(8)}), order=k)
        for k, word in enumerate(("one", "two", "three"), 1)
    },
}


@pytest.mark.parametrize("asked", ASKED)
def test_laplace_beside_gaussian(asked: str) -> None:
    row = next(r for r in printed("laplace", "Beside Gaussian noise") if r[0].replace(",", "") == asked)
    for budget, shown in zip((sf.pure(1), sf.approx(1, "1e-6")), row[1:3], strict=True):
        plan = sf.plan(ASKED[asked], budget, neighbours="add-remove")
        assert as_shown(plan.rmse, shown), (plan.rmse, shown)


def test_one_price() -> None:
    """The two columns of noise in closed form, and what they say of each other."""
    rows = printed("laplace", "One price")[2:]
    assert len(rows) == 6
    for epsilon, mu, gaussian, laplace, ratio, in_rho, _ in rows:
        if "price of" in epsilon:
            right = norm.cdf(math.sqrt(sf.approx(1, "1e-6").mu_squared) / 2)
            e = math.log(right / (1 - right))
            assert as_shown(e, epsilon.split()[0])
        else:
            e = float(epsilon)
        found = 2 * float(norm.ppf(math.exp(e) / (1 + math.exp(e))))
        values: list[Any] = [found, 1 / found, math.sqrt(2) / e, math.sqrt(2) * found / e, math.sqrt(2)]
        for value, shown in zip(values, (mu, gaussian, laplace, ratio, in_rho), strict=True):
            assert as_shown(float(value), shown), (epsilon, value, shown)
    assert np.argmin([float(r[4]) for r in rows]) == 5
