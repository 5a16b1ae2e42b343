"""The ladder by every kind of strategy: what is coarse stays, whatever was measured and with whichever noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.measurements import Measurement
from sfumato.operators.base import FloatArray
from sfumato.privacy.noise import DiscreteLaplace
from sfumato.releases import Provenance
from sfumato.strategies.strategy import marginalise

DOMAIN = sf.Domain({"a": 6, "b": 4, "c": 3})
TABLES = sf.marginals(DOMAIN, upto=2).named("tables")
MORE = sf.stack(TABLES, sf.prefix(DOMAIN, "a", by=["c"]).named("curve"), sf.predicates(DOMAIN, ["a >= 2 and b == 1"]))
LAW = np.random.default_rng(41).dirichlet(np.full(72, 0.2))
COUNTS = np.random.default_rng(42).multinomial(150, LAW).reshape(DOMAIN.shape)
DRAWS = 20
GAUSS, PURE = sf.approx("0.5", "1e-6"), sf.pure("0.5")
CASES = {
    "Stacked": (TABLES, GAUSS, "gaussian", "add-remove"),
    "Stacked, Laplace": (MORE, PURE, "factorization", "add-remove"),
    "Orbits": (MORE, GAUSS, "factorization", "add-remove"),
    "Product": (TABLES, GAUSS, "factorization", "add-remove"),
    "Product, a public total": (MORE, GAUSS, "factorization", "replace-one"),
    "WeightedTables": (MORE, PURE, "marginals", "add-remove"),
    "WeightedTables, a public total": (MORE, PURE, "marginals", "replace-one"),
    "Residuals, tilted": (MORE, GAUSS, "marginals", "add-remove"),
}


def drawn(plan: sf.Plan, rng: np.random.Generator) -> sf.Release:
    """A release with the plan's noise, of the same variance and shape, from a generator that is not secret."""
    values = []
    for item in plan.strategy.blocks:
        blocks = (item,) if hasattr(item, "groups") else tuple(item.blocks())
        exact = np.concatenate([marginalise(COUNTS, DOMAIN.names, b) for b in blocks])
        spread = math.sqrt(plan.noise.variance)
        laplace = isinstance(plan.noise, DiscreteLaplace)
        noise = rng.laplace(0, spread / math.sqrt(2), len(exact)) if laplace else rng.normal(0, spread, len(exact))
        values.append((exact + np.rint(noise)).astype(np.int64))
    total = int(COUNTS.sum()) if plan.unit.total_is_public else None
    made = Measurement(tuple(plan.strategy.blocks), tuple(values), plan.noise, total)
    return sf.Release(plan, made, Provenance("test", "", 0, "", one_shot=True, created="", versions=()))


def kinds(work: sf.Workload) -> dict[str, slice]:
    """Where the answers of every kind are."""
    out: dict[str, list[int]] = {}
    start = 0
    for q in work.blocks:
        name = f"order {len(q.attributes)}" if q.part == "tables" else q.part
        out.setdefault(name, []).extend(range(start, start + q.rows))
        start += q.rows
    return {k: slice(v[0], v[-1] + 1) for k, v in out.items()}


def changes(name: str, body: str) -> dict[str, FloatArray]:
    """(draws,) mean squared error after less before, of every kind, in units of the mean before."""
    work, budget, mechanism, neighbours = CASES[name]
    options: dict[str, Any] = {"neighbours": neighbours, "mechanism": mechanism}
    plan = sf.plan(work, budget, **options)
    assert type(plan.strategy).__name__ == name.split(",")[0]
    truth = work.answer(COUNTS.reshape(-1))
    rng = np.random.default_rng(43)
    squares = np.zeros((2, DRAWS, len(work)))
    for draw in range(DRAWS):
        raw = drawn(plan, rng)
        projected = raw.project(body)
        found = projected.projection
        assert found is not None
        assert found.norm == "ladder"
        assert projected.answers.min() >= -1e-6
        squares[:, draw] = (raw.answers - truth) ** 2, (projected.answers - truth) ** 2
    means = {k: squares[:, :, rows].mean(axis=2) for k, rows in kinds(work).items()}
    return {k: (after - before) / max(float(before.mean()), 1e-12) for k, (before, after) in means.items()}


@pytest.mark.parametrize(
    ("name", "body"), [*((n, "auto") for n in CASES), ("Stacked", "local"), ("WeightedTables", "local")]
)
def test_nothing_coarse_is_worse(name: str, body: str) -> None:
    """Twenty draws, generators 41 to 43: the total stays, attributes are no worse but for chance, and pairs gain.

    Mutant: the norm of the answers.
    """
    found = changes(name, body)
    assert found["order 0"].max() <= 1e-6
    chance = float(found["order 1"].std(ddof=1)) / math.sqrt(DRAWS)
    assert float(found["order 1"].mean()) <= 3 * chance
    assert float(found["order 1"].mean()) <= 0.15
    assert float(found["order 2"].mean()) < 0
