"""The page with sliders: what each mechanism errs by epsilon, queries, records and cells, as one Vega-Lite chart.

The chart's formulas are evaluated in the browser by the library that draws it; nothing else runs there. Where no closed
form is known, numbers of plans are written into it.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any

import sfumato as sf

DELTA = "1e-6"
STEPS = 40  # of epsilon, from 0.1 to 10 by equal factors
LEVELS = range(2, 17)  # the cells are 4 to 65,536
SOLVED = 8  # up to 256 cells the best factorization of thresholds is solved in a second
MECHANISMS = {
    ("any k queries", "Laplace noise on queries"): "sqrt(2) * k / epsilon / n",
    ("any k queries", "Gaussian noise on queries"): "c * sqrt(k) / n",
    ("any k queries", "noise on cells"): "c * sqrt(m / 2) / n",
    ("any k queries", "projection, at most"): "min(c * sqrt(k) / n, sqrt(c * sqrt(2 * log(m)) / n))",
    ("thresholds of m cells", "noise on thresholds"): "c * sqrt(m - 1) / n",
    ("thresholds of m cells", "noise on cells"): "c * sqrt((m * m - 1) / (3 * m)) / n",
    ("thresholds of m cells", "tree, as taught"): "c * sqrt(2 * levels * (levels / 2 + 2 / m)) / n",
    ("thresholds of m cells", "best factorization"): "best[levels - 2] == null ? null : c * best[levels - 2] / n",
}
"""Shares of the records, one of which is replaced: by what is asked and how, the formula that the browser evaluates."""


def epsilon(step: int) -> str:
    """The budgets that the slider stops at, to three digits."""
    return f"{10 ** (2 * step / STEPS - 1):.3g}"


@functools.cache
def multipliers() -> list[float]:
    """The noise of one query at each of them, from the exact condition."""
    return [float(1 / math.sqrt(sf.approx(epsilon(i), DELTA).mu_squared)) for i in range(STEPS + 1)]


@functools.cache
def best_thresholds() -> list[float | None]:
    """The least error of thresholds at noise multiplier 1, by the number of levels; None above what is solved."""
    return [
        sf.plan(sf.prefix(sf.Domain({"t": 2**i}), "t"), sf.gdp(1), neighbours="replace-one").rmse
        if i <= SOLVED
        else None
        for i in LEVELS
    ]


def slider(name: str, label: str, start: float, low: float, high: float, step: float) -> dict[str, Any]:
    return {
        "name": name,
        "value": start,
        "bind": {"input": "range", "min": low, "max": high, "step": step, "name": label},
    }


def chart() -> dict[str, Any]:
    """The whole chart."""
    choices = [f"datum.id == {i} ? ({formula})" for i, formula in enumerate(MECHANISMS.values())]
    rows = [{"id": i, "asked": asked, "mechanism": how} for i, (asked, how) in enumerate(MECHANISMS)]
    x = {
        "field": "share",
        "type": "quantitative",
        "scale": {"type": "log", "domain": [1e-6, 100], "clamp": True},
        "title": "root mean squared error, share of the records (beyond the line nothing is said)",
        "axis": {"format": "~g", "values": [1e-6, 1e-4, 1e-2, 1, 100]},
    }
    y = {"field": "mechanism", "type": "nominal", "title": None, "sort": None}
    layers = [
        # nothing that is read out: the axis says where 1 is
        {
            "mark": {"type": "rule", "strokeDash": [4, 4], "aria": False},
            "encoding": {"x": {"datum": 1, "type": "quantitative"}},
        },
        {"mark": {"type": "point", "filled": True, "size": 90}, "encoding": {"x": x, "y": y}},
        {
            "mark": {"type": "text", "align": "left", "dx": 9},
            "encoding": {"x": x, "y": y, "text": {"field": "share", "type": "quantitative", "format": ".3~g"}},
        },
    ]
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "params": [
            slider("budget", "epsilon, 0.1 to 10", 20, 0, STEPS, 1),
            slider("queries", "queries k, 1 to 1,000,000", 2, 0, 6, 0.1),
            slider("records", "records n, 10 to 10,000,000", 3, 1, 7, 0.1),
            slider("levels", "cells m, 4 to 65,536", 6, LEVELS[0], LEVELS[-1], 1),
            {"name": "multipliers", "value": multipliers()},
            {"name": "epsilons", "value": [float(Fraction(epsilon(i))) for i in range(STEPS + 1)]},
            {"name": "best", "value": best_thresholds()},
            {"name": "c", "expr": "multipliers[budget]"},
            {"name": "epsilon", "expr": "epsilons[budget]"},
            {"name": "k", "expr": "round(pow(10, queries))"},
            {"name": "n", "expr": "round(pow(10, records))"},
            {"name": "m", "expr": "pow(2, levels)"},
        ],
        "title": {
            "text": {
                "expr": "'epsilon = ' + epsilon + ', k = ' + format(k, ',') + ', n = ' + format(n, ',') "
                "+ ', m = ' + format(m, ',')"
            },
            "anchor": "start",
        },
        "data": {"values": rows},
        "transform": [{"calculate": " : ".join([*choices, "null"]), "as": "share"}],
        "facet": {"row": {"field": "asked", "type": "nominal", "title": None, "sort": None}},
        "spec": {"width": 420, "height": 110, "layer": layers},
        "resolve": {"scale": {"y": "independent"}},
    }
