"""Numbers of docs/who-wins-where.md are those of the plans, made again by the script that made the page."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import sfumato as sf
from support.scripts import script

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "who-wins-where.md").read_text(encoding="utf-8")


def printed(head: str, kind: str) -> dict[str, dict[int, float]]:
    """The rows of a table of the page by their names, a number for every column's size."""
    lines = next(b for b in PAGE.split("\n\n") if b.startswith(f"| {head} | {kind} ")).splitlines()
    sizes = [int(c.split("=")[1].replace(",", "")) for c in lines[0].strip("| ").split("|")[1:]]
    rows = [[c.strip(" *").replace(",", "") for c in line.strip("|").split("|")] for line in lines[2:]]
    # (names keep their commas)
    names = [line.strip("|").split("|")[0].strip() for line in lines[2:]]
    return {n: dict(zip(sizes, map(number, r[1:]), strict=True)) for n, r in zip(names, rows, strict=True)}


def number(shown: str) -> float:
    """What no plan can be released for is as bad as can be."""
    return math.inf if shown == "–" else float(shown)


@pytest.mark.parametrize(("head", "make"), [("prefixes", sf.prefix), ("all ranges", sf.ranges)])
def test_errors_by_the_number_of_cells(head: str, make: Any) -> None:
    module = script("bench/who_wins.py")
    table = printed(head, "m = 8")
    assert list(table) == list(module.NAMED)
    for name, row in table.items():
        for n, shown in row.items():
            assert module.ordered(make, n, name) == pytest.approx(shown, rel=6e-4), (name, n)


def test_errors_by_the_number_of_queries() -> None:
    module = script("bench/who_wins.py")
    table = printed("random queries", "k = 1")
    assert list(table) == list(module.KINDS)
    for kind, row in table.items():
        for k in (1, 4, 16, 64):
            assert module.by_queries(k, kind) == pytest.approx(row[k], rel=6e-4), (kind, k)


def test_errors_by_epsilon() -> None:
    module = script("bench/who_wins.py")
    table = printed("prefixes", "m = 16")
    assert len(table) == 4
    for name, row in table.items():
        asked = ("1", "laplace") if name.startswith("Laplace") else (name.split("= ")[1], "gaussian")
        for n in (16, 131_072):
            assert module.by_epsilon(n, *asked) == pytest.approx(row[n], rel=6e-4), (name, n)


def test_the_least_of_a_column_is_in_bold_type() -> None:
    tables = [b.splitlines()[2:] for b in PAGE.split("\n\n") if "**" in b and b.startswith("| ")]
    assert len(tables) == 4
    for lines in tables:
        rows = [[c.strip().replace(",", "") for c in line.strip("|").split("|")[1:]] for line in lines]
        for column in zip(*rows, strict=True):
            values = [number(c.strip("*")) for c in column]
            least = [v for v, c in zip(values, column, strict=True) if c.startswith("**")]
            assert least
            assert max(least) <= 1.001 * min(values)
            assert sorted(values)[: len(least)] == sorted(least)


def test_charts_are_small_and_whole() -> None:
    for name in re.findall(r"\(charts/(\w+\.svg)\)", PAGE):
        file = ROOT / "docs" / "charts" / name
        assert file.stat().st_size < 10_000
        drawn = ElementTree.parse(file).getroot()
        assert sum(e.get("stroke-width") == "2" for e in drawn) in (4, 6)
