"""The page with sliders: its formulas are what plans err by, and its chart follows them in a browser."""

from __future__ import annotations

import html
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from support.browser import Browser
from support.scripts import script

SLIDERS = script("scripts/sliders.py")
ROOT = Path(__file__).parents[2]
SWAP: dict[str, Any] = {"neighbours": "replace-one"}


def shown(asked: str, how: str, step: int = 20, **values: float) -> float:
    """A formula of the chart, evaluated here."""
    names = {"sqrt": math.sqrt, "log": math.log, "min": min, "c": SLIDERS.multipliers()[step]}
    names |= {"epsilon": float(SLIDERS.epsilon(step)), "best": SLIDERS.best_thresholds()} | values
    formula = SLIDERS.MECHANISMS[asked, how]
    formula = re.sub(r"(.*) == null \? null : (.*)", r"None if \1 is None else \2", formula)
    return eval(formula, {"__builtins__": {}}, names)  # formulas of our own script


@pytest.mark.parametrize("step", [5, 20, 33])
def test_any_queries_err_what_plans_say(step: int) -> None:
    """k queries that a record can all meet, and queries of half the cells. Mutants: k for its root; m for m/2."""
    k, m, n = 9, 16, 1_000
    epsilon = SLIDERS.epsilon(step)
    same = sf.queries(np.tile([1, 0], (k, 1)))
    half = sf.queries(np.repeat([[1, 0]], m // 2, axis=0).reshape(1, -1))
    budget, at = sf.approx(epsilon, SLIDERS.DELTA), {"step": step, "k": k, "m": m, "n": n}
    for how, plan in {
        "Laplace noise on queries": sf.plan(same, sf.pure(epsilon), strategy="queries", **SWAP),
        "Gaussian noise on queries": sf.plan(same, budget, strategy="queries", **SWAP),
        "noise on cells": sf.plan(half, budget, strategy=np.eye(m, dtype=int), **SWAP),
    }.items():
        # the law of whole numbers errs a little less than the continuous one where epsilon is large
        assert plan.rmse / n == pytest.approx(shown("any k queries", how, **at), rel=0.02), how
    random = sf.queries(np.random.default_rng(step).integers(0, 2, (k, m)))
    projected = sf.plan(random, budget, mechanism="projection", strategy="queries", records=n, **SWAP)
    assert projected.rmse / n <= shown("any k queries", "projection, at most", **at) * (1 + 1e-6)


@pytest.mark.parametrize("levels", [2, 6, 8])
def test_thresholds_err_what_plans_say(levels: int) -> None:
    """Mutants: the root measured; sums without the known total."""
    m, n = 2**levels, 10_000
    work = sf.prefix(sf.Domain({"t": m}), "t")
    for how, options in {
        "noise on thresholds": {"strategy": "queries"},
        "noise on cells": {"strategy": "cells"},
        "tree, as taught": {"strategy": "tree", "reconstruction": "canonical"},
        "best factorization": {"mechanism": "factorization"},
    }.items():
        plan = sf.plan(work, sf.approx(1, SLIDERS.DELTA), **options, **SWAP)
        formula = shown("thresholds of m cells", how, levels=levels, m=m, n=n)
        assert plan.rmse / n == pytest.approx(formula, rel=1e-4), how


def test_the_page_says_the_formulas() -> None:
    page = (ROOT / "docs" / "sliders.md").read_text(encoding="utf-8")
    assert page.count("<!-- sliders -->") == 1
    assert all(f"| {how} |" in page for _, how in SLIDERS.MECHANISMS)


def test_sliders_move_the_points(browser: Browser, tmp_path: Path) -> None:
    """By the library of the site alone. Mutants: a formula that the browser cannot read; a slider bound to nothing."""
    docs = script("scripts/docs.py")
    bundle = (ROOT / "src/sfumato/present/vendor/vega-bundle.js").as_uri()
    (tmp_path / "draw.js").write_text(docs._DRAW.split('for (const place of document.querySelectorAll(".arith')[0])
    (tmp_path / "page.html").write_text(
        f'<meta charset="utf-8"><body>{docs.vega_place(SLIDERS.chart())}<script src="{bundle}"></script>'
        '<script src="draw.js"></script>',
        encoding="utf-8",
    )
    assert "vega-bundle" in html.unescape(json.dumps(docs.configuration()["extra_javascript"]))
    browser.go((tmp_path / "page.html").as_uri())
    browser.until(lambda: len(browser.all("input[type=range]")) == 4)

    def texts() -> list[str]:
        return browser.run(
            "return [...document.querySelectorAll('.mark-text.role-mark text')].map((t) => t.textContent)"
        )

    browser.until(lambda: len(texts()) == 8)
    first = shown("any k queries", "Gaussian noise on queries", k=100, n=1_000, m=64)
    assert f"{first:.3g}" in texts()
    browser.run(
        "const s = document.querySelector('input[name=queries]'); s.value = 4; s.dispatchEvent(new Event('input'));"
    )
    moved = shown("any k queries", "Gaussian noise on queries", k=10_000, n=1_000, m=64)
    browser.until(lambda: f"{moved:.3g}" in texts())
    browser.run(
        "const s = document.querySelector('input[name=levels]'); s.value = 12; s.dispatchEvent(new Event('input'));"
    )
    # of 4,096 cells no best factorization is known here
    browser.until(lambda: len([t for t in texts() if t and t != "null"]) == 7)
