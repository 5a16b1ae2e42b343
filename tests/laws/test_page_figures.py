"""Figures of the docs, in tables and sentences: a test makes them again, or they name the command that prints them."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import sfumato as sf

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
FIGURE = re.compile(r"(?<![\w.])(?:\d[\d,]*)?\.\d+|\d[\d,]*\s?%")
COMMAND = re.compile(r"(?:bench|scripts)/\w+\.py")
ENOUGH = 4  # figures from which a table is one of figures, and not of words
MANY = 8  # figures from which sentences of a section are asked for a command too

MADE_AGAIN = {
    ("factorization", "Ordered attributes of many cells"): "tests/laws/test_pages.py",
    ("marginals", "One record replaced"): "tests/laws/test_pages.py",
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
    ("references", "All others"): "numbers of papers",
    ("sources", "Smith and Ullman: factorization, approximation, projection [SmithUllman]"): "numbers of sections",
}
"""Sections whose figures nothing of ours can print, and why."""


def sections(page: Path) -> list[tuple[str, str]]:
    """Headings and what is below each up to the next, without blocks, which are run by other tests."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    parts = re.split(r"^#{1,3} (.*)$", text, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def tables(text: str) -> list[str]:
    """The tables of figures of a section."""
    found = re.findall(r"(?:^\|.*\n)+", text + "\n", re.MULTILINE)
    return [t for t in found if len(FIGURE.findall(t)) >= ENOUGH]


def sentences(text: str) -> list[str]:
    """The figures in sentences of a section: none of a table, of code or of an address."""
    return FIGURE.findall(re.sub(r"^\|.*$|\]\([^)]*\)|`[^`]*`|arXiv \S+", "", text, flags=re.MULTILINE))


def of_figures() -> list[tuple[str, str, str]]:
    """Pages, headings and texts of sections with figures; the text has what the page says first."""
    out: list[tuple[str, str, str]] = []
    for page in PAGES:
        parts = sections(page)
        out += [(page.stem, heading, parts[0][1] + text) for heading, text in parts if is_of_figures(text)]
    return out


def is_of_figures(text: str) -> bool:
    return bool(tables(text)) or len(sentences(text)) >= MANY


@pytest.mark.parametrize(("page", "heading", "text"), of_figures(), ids=lambda v: str(v)[:40])
def test_figures_are_printed_by_something(page: str, heading: str, text: str) -> None:
    """Mutants: a table whose command is taken out; one whose script is not there; a sentence without."""
    commands = COMMAND.findall(text)
    assert commands or (page, heading) in MADE_AGAIN | NOT_OURS, "the section names no command that prints its figures"
    for command in commands:
        assert (ROOT / command).exists(), command


def test_what_is_left_out_is_there() -> None:
    """A section that is renamed or names a command now, is not left out any longer."""
    named = {(page, heading) for page, heading, text in of_figures() if not COMMAND.search(text)}
    assert set(MADE_AGAIN) | set(NOT_OURS) == named
    for (page, _), test in MADE_AGAIN.items():
        assert page in (ROOT / test).read_text(encoding="utf-8")


def printed(page: str, heading: str) -> list[list[str]]:
    """The rows of the one table of figures of a section, without bold type."""
    (table,) = tables(dict(sections(ROOT / "docs" / f"{page}.md"))[heading])
    return [[c.strip(" *").replace(",", "") for c in row.strip("|").split("|")] for row in table.splitlines()]


def as_shown(value: float, shown: str) -> bool:
    """Whether a number rounds to what is shown."""
    digits = len(shown.partition(".")[2])
    return abs(value - float(shown)) <= 0.5000001 * 10**-digits


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
