"""Drawn declarations of persons: a domain, what is asked, who is protected, a budget, and a small table of rows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from typer.testing import CliRunner

import sfumato as sf
from sfumato.cli import app
from sfumato.errors import SfumatoError

__all__ = ["Declared", "carried_out", "drawn_declaration"]


@dataclass(frozen=True)
class Declared:
    """What `sf.plan` is given, and a table for `sf.release`."""

    work: sf.Workload
    budget: sf.Budget
    options: dict[str, Any]
    once_per: dict[str, Any]
    table: pd.DataFrame

    def plan(self, *, grouped: bool = True) -> sf.Plan:
        """Its plan, or that of as many rows anywhere."""
        return sf.plan(self.work, self.budget, **self.options, **(self.once_per if grouped else {}))


def drawn_declaration(seed: int) -> Declared:
    """One of each kind of attribute, workload, unit, budget and objective at random; small tables of few persons."""
    rng = np.random.default_rng([28, seed])
    names = ["a", "b", "c", "d"][: rng.integers(1, 5)]
    replaced = rng.random() < 0.35
    attributes: dict[str, Any] = {}
    for name in names:
        k = int(rng.integers(2, 8))
        kinds: list[Callable[[int], Any]] = [
            lambda k: sf.Categories([f"v{i}" for i in range(k)], outside="other", missing="other"),
            lambda k: sf.Integers(0, k - 1, outside="clamp", missing="other"),
            lambda k: sf.Bins(list(range(k + 1)), outside="clamp", missing="other" if replaced else "drop"),
        ]
        attributes[name] = kinds[int(rng.integers(3))](k)
    measures = {"m": sf.Measure(0, 100)} if rng.random() < 0.3 else {}
    domain = sf.Domain(attributes, measures=measures)
    parts: dict[str, sf.Workload] = {}
    wanted = int(rng.integers(1, 4))
    while len(parts) < wanted:
        one = names[int(rng.integers(len(names)))]
        some = [n for n in names if rng.random() < 0.5] or [one]
        asks: list[Callable[..., sf.Workload]] = [
            lambda some, one: sf.marginals(domain, upto=min(2, len(names))),
            lambda some, one: sf.marginals(domain, sets=[tuple(some)]),
            lambda some, one: sf.prefix(domain, one),
            lambda some, one: sf.ranges(domain, one),
            lambda some, one: sf.total(domain),
            lambda some, one: sf.identity(domain, some),
            lambda some, one: sf.means(domain, "m", by=some[:2]),
        ]
        try:
            parts[f"p{len(parts)}"] = asks[int(rng.integers(len(asks)))](some, one)
        except SfumatoError:  # an attribute without order, a measure that there is not
            continue
    rows = int(rng.integers(2, 12))
    each = int(rng.integers(1, rows)) if rng.random() < 0.5 else 1
    once_per = {"once_per": [n for n in names if rng.random() < 0.5] or names[:1], "rows_per_group": each}
    budgets = (sf.zcdp("0.5"), sf.gdp(1), sf.approx(1, "1e-6"), sf.pure(1))
    options = {
        "neighbours": "replace-one" if replaced else "add-remove",
        "person": "who",
        "rows_per_person": rows,
        "objective": ("tables", "cells", "max")[int(rng.integers(3))],
    }
    size = int(rng.integers(1, 300))
    table = pd.DataFrame({"who": rng.integers(0, 60, size)})
    for name, attribute in attributes.items():
        values = rng.integers(-1, 9, size)
        table[name] = [f"v{i}" for i in values] if isinstance(attribute, sf.Categories) else values
    if measures:
        table["m"] = rng.uniform(-5, 120, size)
    return Declared(sf.stack(**parts), budgets[int(rng.integers(4))], options, once_per, table)


def carried_out(given: Declared) -> str:
    """Plan it, release it with its page, ask all answers, and have it checked: what came of it, in words."""
    plan = given.plan()
    anywhere = given.plan(grouped=False)
    if plan.objective_value > anywhere.objective_value * (1 + 1e-4):
        return f"errs {plan.objective_value / anywhere.objective_value:.4f} times as much as rows anywhere"
    if plan.bound is not None and plan.objective_value < plan.bound * (1 - 1e-9):
        return "errs less than its bound"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "l.db"
        ledger = sf.Ledger.create(path, total=given.budget, table="t")
        release = sf.release(plan, given.table, ledger=ledger, table="t", out=Path(folder) / "out")
        if not (np.isfinite(release.answers).all() and np.isfinite(release.standard_errors()).all()):  # type: ignore[arg-type]
            return "has answers without errors"
        release.intervals()
        release.cut_persons()
        told = CliRunner().invoke(app, ["check-release", str(Path(folder) / "out"), "--ledger", str(path)]).output
    return next((w for w in ("accepted", "not checked") if told.startswith(w)), told)
