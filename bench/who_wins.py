"""The tables and charts of docs/who-wins-where.md: python bench/who_wins.py [FOLDER for the charts]

Every number is the predicted error of a plan that could be released. Without a folder the charts go to docs/charts.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import sfumato as sf
from sfumato.errors import PlanError

Line = Sequence[tuple[float, float]]
NAMED: dict[str, dict[str, Any]] = {
    "noise on every query": {"strategy": "queries"},
    "noise on every cell": {"strategy": "cells"},
    "binary tree, sums of nodes": {"strategy": "tree", "reconstruction": "canonical"},
    "binary tree, least squares": {"strategy": "tree"},
    "tree of branching 4": {"strategy": "tree-4"},
    "tree of branching 16": {"strategy": "tree-16"},
    "square root": {"strategy": "square-root"},
    "square root, normalised": {"strategy": "normalised-square-root"},
    "factorization": {"mechanism": "factorization"},
}
SHOWN = [n for n in NAMED if n.split(" of ")[0] != "tree" and n != "square root"]
CELLS = (8, 64, 256, 65_536)
QUERIES = (1, 4, 16, 64, 256, 1024, 4096)
EPSILONS = ("0.1", "1", "10")
PREFIXES = (16, 256, 8_192, 131_072)
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#a6761d")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 400, 62, 214, 16, 46


def ordered(make: Callable[..., sf.Workload], n: int, name: str) -> float:
    """rmse at noise multiplier 1, one record added or removed; infinite where no such plan can be released."""
    work = make(sf.Domain({"t": n}), "t")
    try:
        return sf.plan(work, sf.gdp(1), neighbours="add-remove", **NAMED[name]).rmse
    except PlanError:
        return math.inf


def random_queries(k: int, m: int = 256) -> sf.Workload:
    """k queries that hold each of m cells with probability 1/2; the first ones of a fixed list."""
    return sf.queries(np.random.default_rng(0).integers(0, 2, (4096, m))[:k])


KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "Laplace on every query": (sf.pure(1), {"strategy": "queries"}),
    "Laplace on every cell": (sf.pure(1), {"strategy": "cells"}),
    "Gaussian on every query": (sf.approx(1, "1e-6"), {"strategy": "queries"}),
    "Gaussian on every cell": (sf.approx(1, "1e-6"), {"strategy": "cells"}),
    "factorization, Laplace": (sf.pure(1), {"mechanism": "factorization"}),
    "factorization, Gaussian": (sf.approx(1, "1e-6"), {"mechanism": "factorization"}),
}


def by_queries(k: int, kind: str) -> float:
    """rmse at epsilon 1: pure for Laplace noise, (1, 1e-6) for Gaussian."""
    budget, options = KINDS[kind]
    return sf.plan(random_queries(k), budget, neighbours="add-remove", **options).rmse


def by_epsilon(n: int, epsilon: str, noise: str) -> float:
    """epsilon times the rmse of the best plan for prefixes of m cells, by either noise."""
    work = sf.prefix(sf.Domain({"t": n}), "t")
    budget = sf.pure(epsilon) if noise == "laplace" else sf.approx(epsilon, "1e-6")
    return float(epsilon) * sf.plan(work, budget, neighbours="add-remove").rmse


# -- charts ----------------------------------------------------------------------------------------------


def chart(lines: Mapping[str, Line], across: str, up: str) -> str:
    """Lines on logarithmic axes, each named at its right end, as one SVG."""
    xs = [x for line in lines.values() for x, _ in line]
    ys = [y for line in lines.values() for _, y in line]

    def place(value: float, values: list[float], start: float, end: float) -> float:
        low, high = math.log(min(values)), math.log(max(values))
        return start + (math.log(value) - low) / (high - low) * (end - start)

    def x_of(value: float) -> float:
        return place(value, xs, LEFT, WIDTH - RIGHT)

    def y_of(value: float) -> float:
        return place(value, ys, HEIGHT - BOTTOM, TOP + 8)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12" fill="#333">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
    ]
    for value in ticks(min(ys), max(ys)):
        y = y_of(value)
        out.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:,.6g}</text>')
    for value in sorted(set(xs))[:: max(1, len(set(xs)) // 7)]:
        out.append(f'<text x="{x_of(value):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{value:,.0f}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{across}</text>')
    out.append(f'<text transform="translate(14 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">{up}</text>')
    # names in the order of the ends, none on another
    ends = sorted((y_of(line[-1][1]), name) for name, line in lines.items())
    floor = -math.inf
    labels: dict[str, float] = {}
    for y, name in ends:
        floor = labels[name] = max(y + 4, floor + 15)
    for colour, (name, line) in zip(COLOURS, lines.items(), strict=False):
        path = "L".join(f"{x_of(x):.1f} {y_of(y):.1f}" for x, y in line)
        out.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out.append(f'<text x="{WIDTH - RIGHT + 8}" y="{labels[name]:.1f}" fill="{colour}">{name}</text>')
    return "\n".join([*out, "</svg>", ""])


def ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten within a span, the powers alone where it is wide."""
    steps = (1, 2, 5) if high / low < 300 else (1,)
    found = [s * 10.0**e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1) for s in steps]
    return [v for v in found if low <= v <= high]


def table(head: str, columns: Sequence[str], rows: Sequence[str], value: Callable[[str, int], float]) -> str:
    """A table in Markdown, four digits a number, the least of each column in bold type."""
    found = [[value(row, i) for i in range(len(columns))] for row in rows]
    least = [min(r[i] for r in found) for i in range(len(columns))]
    out = ["| " + " | ".join([head, *columns]) + " |", "|---" * (1 + len(columns)) + "|"]
    for row, numbers in zip(rows, found, strict=True):
        digits = ["–" if v == math.inf else f"{v:,.0f}" if v >= 1000 else f"{v:.4g}" for v in numbers]
        shown = [f"**{d}**" if v <= b * 1.0005 else d for d, v, b in zip(digits, numbers, least, strict=True)]
        out.append("| " + " | ".join([row, *shown]) + " |")
    return "\n".join(out)


def main(folder: Path) -> None:
    sizes = [f"m = {m:,}" for m in CELLS]
    for name, make in (("prefixes", sf.prefix), ("all ranges", sf.ranges)):
        print(table(name, sizes, list(NAMED), lambda row, i, make=make: ordered(make, CELLS[i], row)), end="\n\n")
    counts = [f"k = {k:,}" for k in QUERIES]
    print(table("random queries", counts, list(KINDS), lambda row, i: by_queries(QUERIES[i], row)), end="\n\n")
    noises = {"Laplace, any epsilon": ("1", "laplace")} | {f"Gaussian, epsilon = {e}": (e, "") for e in EPSILONS}
    columns = [f"m = {m:,}" for m in PREFIXES]
    print(table("prefixes", columns, list(noises), lambda row, i: by_epsilon(PREFIXES[i], *noises[row])))
    steps = [2**i for i in (2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 14, 15, 16, 17)]
    for name, make in (("prefixes", sf.prefix), ("ranges", sf.ranges)):
        found = {row: [(n, ordered(make, n, row)) for n in steps] for row in SHOWN}
        lines = {row: [(n, error) for n, error in line if error < math.inf] for row, line in found.items()}
        (folder / f"{name}.svg").write_text(chart(lines, "cells m", "error at noise multiplier 1"), encoding="utf-8")
    powers = [2**i for i in range(13)]
    lines = {row: [(k, by_queries(k, row)) for k in powers] for row in KINDS}
    (folder / "queries.svg").write_text(chart(lines, "queries k", "error at epsilon 1"), encoding="utf-8")
    lines = {row: [(n, by_epsilon(n, *noises[row])) for n in steps] for row in noises}
    (folder / "epsilon.svg").write_text(chart(lines, "cells m", "error times epsilon"), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "charts")
