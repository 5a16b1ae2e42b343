"""The calculator of a published site, run in node, says what Python says."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import NotAnswerable
from sfumato.plans.predictions import widest_sum_margin
from sfumato.publishing import publish
from sfumato.releases import Release
from support import node

HERE = Path(__file__).parent


needs_node = pytest.mark.usefixtures("node")
Z = widest_sum_margin(0.95, sf.plan(sf.total(sf.Domain({"a": 2})), sf.gdp(1), neighbours="add-remove").noise)


def calculated(folder: Path, **asked: Any) -> dict[str, Any]:
    assert node.PROGRAM is not None
    script = Path(str(import_module("sfumato.publishing").__file__)).parent / "calc.js"
    given = json.dumps({"folder": str(folder), "z": Z, **asked})
    found = subprocess.run(
        [node.PROGRAM, HERE / "calculate.js", script], input=given, capture_output=True, text=True, check=True
    )
    return json.loads(found.stdout)


def released(seed: int, *, earlier: bool = False, plain: bool = False) -> Release:
    """Tables over up to three attributes, of which a, b and c have tilted residuals unless it is plain."""
    domain = sf.Domain({"a": 5, "b": 4, "c": 3, "d": 6})
    rng = np.random.default_rng(seed)
    work = sf.marginals(domain, upto=3)
    if not plain:
        work = sf.stack(main=work, named=sf.predicates(domain, ["a <= 1", "b == 2 and c == 0"]))
    plan = sf.plan(work, sf.gdp(1 if earlier else 2), neighbours="add-remove", mechanism="marginals")
    return sf.release(plan, sf.Histogram(rng.poisson(40, domain.shape)), ledger=None, name=f"r{seed}")


def predicate(names: Sequence[str], chosen: Sequence[Sequence[int]]) -> str:
    return " and ".join(f"{n} in ({', '.join(map(str, c))})" for n, c in zip(names, chosen, strict=True))


def drawn(rng: Any, release: Release, tables: list[dict[str, Any]], count: int) -> tuple[list[Any], Any]:
    """A random sum of cells of tables, and Python's answer to it."""
    form, answer = [], None
    for _ in range(count):
        number = int(rng.choice([i for i, t in enumerate(tables) if t["names"]]))
        names, domain = tables[number]["names"], release.plan.workload.domain
        sizes = domain.sizes(names)
        chosen = [sorted(rng.choice(n, size=rng.integers(1, n + 1), replace=False).tolist()) for n in sizes]
        cells = np.ravel_multi_index(np.ix_(*chosen), sizes).reshape(-1).tolist()
        weight = float(rng.choice([1.0, 1.0, -1.0, 0.5]))
        form.append([0, number, cells, weight])
        part = weight * release.ask(predicate(names, chosen))
        answer = part if answer is None else answer + part
    return form, answer


@needs_node
@pytest.mark.parametrize("plain", [True, False])
def test_drawn_expressions_are_python_s_to_nine_figures(tmp_path: Path, plain: bool) -> None:
    """Mutants: covariances between tables forgotten, t of one table alone, the centring in place of a tilted form."""
    release = released(1, plain=plain)
    site = publish(release, tmp_path / "site")
    tables = json.loads((site / "site.json").read_text())["releases"][0]["tables"]
    rng, expressions, expected = np.random.default_rng(7), [], []
    for i in range(120):  # each mutant is another figure in one expression of four or more
        forms = [drawn(rng, release, tables, int(rng.integers(1, 3))) for _ in range(1 + i % 2)]
        expressions.append([("linear", "ratio")[i % 2], *(f for f, _ in forms)])
        try:
            expected.append(forms[0][1] / forms[1][1] if i % 2 else forms[0][1])
        except NotAnswerable:
            expected.append(None)
    found = calculated(site, expressions=expressions)["answers"]
    told = 0
    for mine, theirs in zip(expected, found, strict=True):
        assert (mine is None) == ("refused" in theirs)
        if mine is not None:
            told += 1
            keys = ("value", "error", "low", "high")
            # the same sum taken from two tables cancels: the square root of rounding is left
            room = 1e-9 if mine.standard_error and mine.standard_error > 1e-6 else 1e-6
            assert [theirs[k] for k in keys] == pytest.approx(list(mine), rel=1e-9, abs=room)
    assert told > 96


@needs_node
def test_matrices_of_named_queries_and_earlier_releases_and_projections(tmp_path: Path) -> None:
    now, before = released(1), released(2)
    site = publish(now, tmp_path / "site", earlier=before)
    tables = json.loads((site / "site.json").read_text())["releases"][0]["tables"]
    a = next(i for i, t in enumerate(tables) if t["names"] == ["a"])
    named = next(i for i, t in enumerate(tables) if "queries" in t)
    where = {q: i for i, q in enumerate(tables[named]["queries"])}
    one, two = where["a <= 1"], where["b == 2 and c == 0"]
    found = calculated(
        site,
        expressions=[
            ["ratio", [[0, a, [0, 1], 1.0]], [[1, a, [0, 1], 1.0]]],
            ["linear", [[0, named, [one], 1.0], [0, named, [two], -1.0]]],
            ["linear", [[0, named, [one], 1.0], [0, a, [1], -1.0]]],
        ],
    )["answers"]
    expected = [now.ask("a <= 1") / before.ask("a <= 1"), now.ask("a <= 1") - now.ask("b == 2 and c == 0")]
    for mine, theirs in zip(expected, found, strict=False):
        assert [theirs[k] for k in ("value", "error", "low", "high")] == pytest.approx(list(mine), rel=1e-9)
    assert "not told" in found[2]["refused"]
    projected = now.project()
    site = publish(projected, tmp_path / "projected")
    found = calculated(site, expressions=[["ratio", [[0, a, [0], 1.0]], [[0, a, [0, 1], 1.0]]]])["answers"][0]
    mine = projected.ask("a == 0") / projected.ask("a <= 1")
    assert found["error"] is None
    assert mine.standard_error is None
    assert [found[k] for k in ("value", "low", "high")] == pytest.approx([mine.value, mine.low, mine.high], rel=1e-9)


@needs_node
def test_cells_whose_covariances_differ_carry_their_matrix(tmp_path: Path) -> None:
    domain = sf.Domain({"age": 9})
    plan = sf.plan(sf.identity(domain) + sf.prefix(domain, "age"), sf.gdp(1), neighbours="add-remove")
    release = sf.release(plan, sf.Histogram(np.full(9, 50)), ledger=None, name="ages")
    site = publish(release, tmp_path / "site")
    (entry, *_) = json.loads((site / "site.json").read_text())["releases"][0]["tables"]
    assert entry["how"] == "dense"
    found = calculated(site, expressions=[["linear", [[0, 0, [0, 1, 2], 1.0], [0, 0, [7], -1.0]]]])["answers"][0]
    row = np.array([1, 1, 1, 0, 0, 0, 0, -1, 0])
    variance = row @ plan.covariance(("age",)) @ row
    assert found["error"] == pytest.approx(np.sqrt(variance), rel=1e-9)


@needs_node
def test_intervals_hold_as_often_as_they_say(tmp_path: Path) -> None:
    """Ratios whose denominators are 6 to 60 standard errors, and differences of shares that err together: 95 ± 1 %.

    Mutants: the covariance left out of Fieller's quadratic; arms of the difference without their correlation.
    """
    domain = sf.Domain({"a": 3, "b": 2})
    plan = sf.plan(
        sf.marginals(domain, sets=[("a", "b")]), sf.gdp("0.1"), neighbours="add-remove", mechanism="marginals"
    )
    truth = np.array([70.0, 90, 300, 500, 150, 40])
    release = sf.release(plan, sf.Histogram(truth.astype(int).reshape(3, 2)), ledger=None, name="small")
    site = publish(release, tmp_path / "site")
    number = next(
        i for i, t in enumerate(json.loads((site / "site.json").read_text())["releases"][0]["tables"]) if t["names"]
    )
    rng, root = np.random.default_rng(3), np.linalg.cholesky(plan.covariance(("a", "b")))
    draws = truth + rng.standard_normal((6_000, 6)) @ root.T

    def form(*cells: int) -> list[Any]:
        return [[0, number, list(cells), 1.0]]

    repeated = [
        ["ratio", form(0), form(0, 1)],
        ["ratio", form(2), form(2, 3)],
        ["ratio", form(0, 2, 4), form(0, 1, 2, 3, 4, 5)],
        ["ratio", form(2), form(4)],
        ["shares", form(2), form(2, 3), form(4), form(4, 5)],
        ["shares", form(2), form(0, 2, 4), form(2, 3), form(0, 1, 2, 3, 4, 5)],
    ]
    sums = [[truth[f[0][2]].sum() for f in e[1:]] for e in repeated]
    exact = [s[0] / s[1] - (s[2] / s[3] if len(s) > 2 else 0) for s in sums]
    found = calculated(site, draws=draws.tolist(), redrawn=number, repeated=repeated)["again"]
    for i, value in enumerate(exact):
        told = [d[i] for d in found if "refused" not in d[i]]
        held = np.mean([t["low"] <= value <= t["high"] for t in told])
        assert 0.94 <= held <= 0.96, (repeated[i], held, len(told))
    ranked = calculated(
        site, ranked=draws[:800].tolist(), redrawn=number, together=widest_sum_margin(1 - 0.05 / 5, plan.noise)
    )
    ranks = 1 + (truth[None, :] > truth[:, None]).sum(axis=1)
    held = np.array([[r["low"] <= k <= r["high"] for r, k in zip(d, ranks, strict=True)] for d in ranked["ranks"]])
    assert held.mean(axis=0).min() >= 0.95


@needs_node
def test_large_tables_are_rounded_far_below_their_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfumato.publishing.site._EXACT", 0)
    release = released(4)
    site = publish(release, tmp_path / "site")
    tables = json.loads((site / "site.json").read_text())["releases"][0]["tables"]
    values = calculated(site)["values"][0]
    for entry, found in zip(tables, values, strict=True):
        if entry["names"]:
            table = release.table(*entry["names"])
            assert table.standard_errors is not None
            off = np.abs(np.array(found) - table.values.reshape(-1)).max()
            assert 0 < off <= table.standard_errors.max() / 512 * (1 + 1e-9)
