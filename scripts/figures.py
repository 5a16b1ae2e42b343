"""The figures of docs/idea.md: python scripts/figures.py [FOLDER, docs/charts if it is left out]

Every figure is of what the library computes: the bundled census table, plans, factorizations, projections, a ledger.
They follow the reader's light or dark scheme. A test draws them again and compares.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

import sfumato as sf

WIDTH = 720
AGES = [f"{decade}s" for decade in range(10, 90, 10)]
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #333 } .muted { fill: #667 } .small { font-size: 11px }
.a { fill: #2a6f97 } .b { fill: #d1603d } .c { fill: #3d8361 } .pale { fill: #dfe6ec } .on { fill: #fff }
.line { stroke: #99a; fill: none } .la { stroke: #2a6f97; fill: none; stroke-width: 2 }
.lb { stroke: #d1603d; fill: none; stroke-width: 2 } .lc { stroke: #3d8361; fill: none; stroke-width: 2 }
.ld { stroke: #8a6d9b; fill: none; stroke-width: 2 } .body { fill: #2a6f97; fill-opacity: .15; stroke: #2a6f97 }
@media (prefers-color-scheme: dark) {
text { fill: #dde } .muted { fill: #99a } .a { fill: #6db3d8 } .b { fill: #ee8a6b } .c { fill: #7cc3a0 }
.pale { fill: #39424d } .on { fill: #111 } .line { stroke: #667 } .la { stroke: #6db3d8 } .lb { stroke: #ee8a6b }
.lc { stroke: #7cc3a0 } .ld { stroke: #bda0cf } .body { fill: #6db3d8; stroke: #6db3d8 } }
"""


class Svg:
    """A drawing as text: rectangles, texts and paths in the classes of STYLE."""

    def __init__(self, height: int, told: str) -> None:
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
        self.parts = [head, f"<title>{told}</title>", f"<style>{STYLE.strip()}</style>"]

    def box(self, x: float, y: float, width: float, height: float, kind: str, opacity: float | None = None) -> None:
        shade = "" if opacity is None else f' fill-opacity="{opacity:.2f}"'
        size = f'width="{width:.1f}" height="{height:.1f}"'
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" {size} class="{kind}"{shade}/>')

    def text(self, x: float, y: float, said: str, kind: str = "", anchor: str = "middle") -> None:
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{said}</text>')

    def path(self, points: Iterable[tuple[float, float]], kind: str, end: str = "") -> None:
        along = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        self.parts.append(f'<path d="M{along}{end}" class="{kind}"/>')

    def dot(self, x: float, y: float, kind: str, radius: float = 4) -> None:
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" class="{kind}"/>')

    def whole(self) -> str:
        return "\n".join([*self.parts, "</svg>", ""])


def ages() -> np.ndarray:
    """Records of the bundled census table by age in decades: the exact counts, of a table that is public."""
    import pyarrow.parquet as pq

    column = pq.read_table(str(files("sfumato.data") / "adult.parquet"))["age"].to_numpy()
    return np.bincount(column // 10, minlength=9)[1:9]


def prefixes() -> np.ndarray:
    """The query matrix of cumulative counts over eight cells."""
    work = sf.prefix(sf.Domain({"age": 8}), "age")
    return np.array([work.answer(np.eye(8)[cell]) for cell in range(8)]).T


def bars(svg: Svg, counts: Sequence[float], left: float, top: float, width: float, height: float) -> None:
    """A bar a cell, with its name under it."""
    step, most = width / len(counts), max(counts)
    for place, count in enumerate(counts):
        tall = height * count / most
        svg.box(left + place * step + 3, top + height - tall, step - 6, tall, "a")
        svg.text(left + (place + 0.5) * step, top + height - tall - 5, f"{count:,.0f}", "small")
        svg.text(left + (place + 0.5) * step, top + height + 16, AGES[place], "muted small")


def histogram() -> str:
    counts = ages()
    svg = Svg(230, "The bundled census table as a histogram of eight age groups")
    bars(svg, counts.tolist(), 40, 30, 640, 160)
    return svg.whole()


def heat(svg: Svg, matrix: np.ndarray, left: float, top: float, cell: float) -> None:
    """A matrix as shades: positive entries in one colour, negative ones in another."""
    most = np.abs(matrix).max()
    across, down = matrix.shape[1] * cell, matrix.shape[0] * cell
    svg.box(left, top, across, down, "pale")
    for (row, column), value in np.ndenumerate(matrix):
        if abs(value) > most / 200:
            place = left + column * cell, top + row * cell, cell - 1, cell - 1
            svg.box(*place, "a" if value > 0 else "b", min(1, abs(value) / most))


def matrix() -> str:
    F, counts = prefixes(), ages()
    svg = Svg(270, "The matrix of cumulative counts times the histogram gives the answers")
    heat(svg, F, 60, 40, 24)
    for row in range(8):
        svg.text(52, 57 + row * 24, f"up to {AGES[row]}", "muted small", "end")
        svg.text(420, 57 + row * 24, f"{counts[row]:,}", "", "end")
        svg.text(600, 57 + row * 24, f"{(F @ counts)[row]:,.0f}", "", "end")
    for x, said in ((156, "queries F"), (400, "counts x"), (570, "answers F x")):
        svg.text(x, 26, said)
    for x, sign in ((300, "×"), (480, "=")):
        svg.text(x, 140, sign)
    svg.text(156, 256, "a row is a question, a column a cell", "muted small")
    return svg.whole()


def noise() -> str:
    svg = Svg(260, "The laws of Laplace and Gaussian noise on one count at epsilon 1")
    one = sf.total(sf.Domain({"age": 8}))
    laplace = sf.plan(one, sf.pure(1), neighbours="add-remove").rmse / math.sqrt(2)
    sigma = sf.plan(one, sf.approx(1, "1e-6"), neighbours="add-remove").rmse
    span = np.linspace(-12, 12, 121)
    laws = {
        "la": np.exp(-abs(span) / laplace) / (2 * laplace),
        "lb": np.exp(-(span**2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi)),
    }
    for kind, values in laws.items():
        svg.path(((360 + 27 * x, 215 - 350 * y) for x, y in zip(span, values, strict=True)), kind)
    svg.path([(30, 215), (690, 215)], "line")
    for x in range(-12, 13, 4):
        svg.text(360 + 27 * x, 233, f"{x:+d}" if x else "exact", "muted small")
    svg.text(410, 60, f"Laplace, epsilon = 1: deviation {laplace * math.sqrt(2):.3f}", "a", "start")
    svg.text(470, 150, f"Gaussian, (1, 1e-6): deviation {sigma:.3f}", "b", "start")
    svg.text(360, 252, "records that the noise adds", "muted small")
    return svg.whole()


def tree() -> str:
    counts, draws = ages(), np.random.default_rng(3)
    svg = Svg(300, "A binary tree over eight cells; three of its nodes answer the first seven cells")
    used, total = {(2, 0), (1, 2), (0, 6)}, 0
    for level in range(3, -1, -1):
        size = 2**level
        for node in range(8 // size):
            middle, y = 60 + (node + 0.5) * size * 75, 24 + (3 - level) * 66
            if level:
                for child in (2 * node, 2 * node + 1):
                    svg.path([(middle, y + 30), (60 + (child + 0.5) * size / 2 * 75, y + 66)], "line")
            seen = round(counts[node * size : (node + 1) * size].sum() + draws.normal(0, 2 * 4.2247))
            total += seen * ((level, node) in used)
            svg.box(middle - 31, y, 62, 30, "c" if (level, node) in used else "pale")
            svg.text(middle, y + 20, f"{seen:,}", "on" if (level, node) in used else "")
    for place, name in enumerate(AGES):
        svg.text(60 + (place + 0.5) * 75, 270, name, "muted small")
    svg.text(360, 292, f"up to 70s: {total:,} from three noisy nodes; exact {counts[:7].sum():,}", "c")
    return svg.whole()


def factors() -> str:
    found = sf.factorization(prefixes())
    # a rotation between R and M changes no error: the one that makes both triangular can be read
    turn, corner = np.linalg.qr(found.strategy[:, ::-1])
    signs = np.sign(np.diag(corner))
    strategy = (signs[:, None] * corner)[::-1, ::-1]
    reconstruction = (found.reconstruction @ (turn * signs))[:, ::-1]
    svg = Svg(270, "The optimal factorization of eight cumulative counts")
    shown = [("reconstruction R", reconstruction), ("strategy M", strategy), ("queries F", prefixes())]
    for place, (said, shades) in enumerate(shown):
        left = 30 + place * 240
        cell = 184 / max(shades.shape)
        heat(svg, shades, left, 40, cell)
        svg.text(left + 92, 26, said)
    for x, sign in ((242, "×"), (482, "=")):
        svg.text(x, 136, sign)
    told = f"error at noise multiplier 1: {found.upper_bound:.3f}; noise on the cells {math.sqrt(4.5):.3f}"
    svg.text(360, 258, f"{told}, on the queries {math.sqrt(8):.3f}", "muted small")
    return svg.whole()


def nearest() -> str:
    """Two queries over six cells: the answers that a table can have are the hull of six points."""
    F = np.array([[0.0, 0.2, 0.75, 1.0, 0.7, 0.15], [0.3, 0.9, 1.0, 0.5, 0.05, 0.0]])
    people = 200
    corners = [(120 + 440 * x, 280 - 220 * y) for x, y in F.T]
    svg = Svg(330, "Noisy answers and the nearest answers that a table can have")
    svg.path(corners, "body", "Z")
    exact = F @ np.array([30, 90, 50, 20, 10, 0])
    draws = np.random.default_rng(4)
    for draw in range(12):
        noisy = exact + draws.normal(0, 35, 2)
        found = sf.project(noisy, sf.queries(F), total=people)
        (x, y), (u, v) = ((120 + 440 * a / people, 280 - 220 * b / people) for a, b in (noisy, found.answers))
        svg.path([(x, y), (u, v)], "line")
        svg.dot(x, y, "b")
        svg.dot(u, v, "c", 3)
        if not draw:
            svg.text(600, 60, "noisy", "b", "start")
            svg.text(600, 82, "nearest possible", "c", "start")
            svg.text(600, 104, "exact", "", "start")
    svg.dot(120 + 440 * exact[0] / people, 280 - 220 * exact[1] / people, "muted", 5)
    svg.text(
        340, 320, "answer to the first query; a corner of the body is a table with everybody in one cell", "muted small"
    )
    return svg.whole()


BOUND_CELLS = (8, 16, 32, 64, 128, 256, 512, 1024)
BOUND_LINES: dict[str, tuple[str, dict[str, Any]]] = {
    "on every query": ("lb", {"strategy": "queries"}),
    "on every cell": ("lc", {"strategy": "cells"}),
    "tree, as taught": ("ld", {"strategy": "tree", "reconstruction": "canonical"}),
    "factorization": ("la", {"mechanism": "factorization"}),
}


def bound() -> str:
    svg = Svg(300, "Errors of cumulative counts by the number of cells, and the bound that no strategy beats")

    def place(cells: float, error: float) -> tuple[float, float]:
        return 60 + 70 * (math.log2(cells) - 3), 270 - 46 * math.log2(error)

    for error in (1, 2, 4, 8, 16, 32):
        svg.path([place(8, error), place(1024, error)], "line")
        svg.text(52, place(8, error)[1] + 4, f"{error}", "muted small", "end")
    for cells in BOUND_CELLS:
        svg.text(place(cells, 1)[0], 288, f"{cells:,} cells" if cells == 8 else f"{cells:,}", "muted small")
    proved: list[tuple[float, float]] = []
    for name, (kind, options) in BOUND_LINES.items():
        line = []
        for cells in BOUND_CELLS:
            plan = sf.plan(sf.prefix(sf.Domain({"t": cells}), "t"), sf.gdp(1), neighbours="add-remove", **options)
            line.append(place(cells, plan.rmse))
            if name == "factorization":
                proved.append(place(cells, plan.lower_bound))
        svg.path(line, kind)
        svg.text(560, line[-1][1] + 4, name, {"la": "a", "lb": "b", "lc": "c"}.get(kind, "muted"), "start")
    svg.path([*proved, place(1024, 1), place(8, 1)], "body", "Z")
    svg.text(320, 258, "nothing unbiased with Gaussian noise lies below the line", "small")
    return svg.whole()


def ledger() -> str:
    domain = sf.Domain({"age": 8})
    paid = sf.Ledger.in_memory(sf.approx(2, "1e-6"))
    spends = [("2024", sf.approx(1, "1e-6")), ("2025", sf.approx("0.75", "1e-6")), ("2026", sf.approx("0.75", "1e-6"))]
    svg = Svg(190, "A ledger of a total, the releases that it paid, and what is left")
    total = float(sf.approx(2, "1e-6").mu_squared)
    left = 40.0
    svg.text(40, 24, "budget (epsilon 2, delta 1e-6), in the currency that adds up: mu squared", "", "start")
    for place, (name, budget) in enumerate(spends):
        plan = sf.plan(sf.identity(domain, "age"), budget, neighbours="add-remove")
        sf.release(plan, sf.Histogram(ages()), ledger=paid, table="census", name=name)
        wide = 640 * float(budget.mu_squared) / total
        svg.box(left, 44, wide - 2, 50, "abc"[place])
        svg.text(left + wide / 2, 66, name, "on")
        svg.text(left + wide / 2, 84, f"{float(budget.mu_squared):.3f}", "on small")
        left += wide
    svg.box(left, 44, 680 - left, 50, "pale")
    svg.text((left + 680) / 2, 66, "left")
    svg.text((left + 680) / 2, 84, f"{float(paid.remaining):.3f}", "small")
    try:
        sf.release(
            sf.plan(sf.identity(domain, "age"), sf.approx(2, "1e-6"), neighbours="add-remove"),
            sf.Histogram(ages()),
            ledger=paid,
            table="census",
            name="again",
        )
    except sf.BudgetExceeded:
        svg.path([(left, 120), (680, 120)], "lb")
        svg.text(40, 140, "another one at epsilon 2 costs all of it: refused, before the table is opened", "b", "start")
    svg.text(40, 168, "2024 asked again: the stored answers, for nothing", "muted", "start")
    return svg.whole()


FIGURES: dict[str, Callable[[], str]] = {
    "histogram": histogram,
    "matrix": matrix,
    "noise": noise,
    "tree": tree,
    "factors": factors,
    "nearest": nearest,
    "bound": bound,
    "ledger": ledger,
}


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "charts"
    for name, draw in FIGURES.items():
        (folder / f"idea-{name}.svg").write_text(draw(), encoding="utf-8")
