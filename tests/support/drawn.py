"""Plans drawn at random, over every builder of questions, and the whole of what a release under a plan answers."""

from __future__ import annotations

import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

import sfumato as sf
from sfumato.domain.mock import mock_columns
from sfumato.plans.iterative import IterativePlan
from sfumato.plans.keys import KeyPlan
from sfumato.plans.plan import Plan
from sfumato.plans.planned import Planned

__all__ = ["MECHANISMS", "draw", "fulfil", "releasable"]

MECHANISMS = ("auto", "auto", "auto", "gaussian", "laplace", "tree", "factorization", "marginals", "projection")
_ROWS = 40
_MOST_CELLS = 1_000_000  # of a histogram
_MOST_ANSWERS = 200_000  # read one by one

Rng = np.random.Generator


def draw(seed: int, *, large: bool = True) -> tuple[sf.Workload, sf.Budget, dict[str, Any]]:
    """A workload, a budget and the options of a plan; a few are `large`, up to a million cells."""
    rng = np.random.default_rng(seed)
    persons = bool(rng.random() < 0.15)
    domain = _domain(rng, large=large and bool(rng.random() < 0.4), declared=persons)
    parts = [_part(domain, rng) for _ in range(int(rng.choice([1, 1, 1, 2, 3])))]
    work = parts[0] if len(parts) == 1 else sf.stack(*parts)
    size = Fraction(int(rng.integers(1, 41)), 10)
    kind = str(rng.choice(["pure", "approx", "zcdp", "gdp"]))
    budget = {"pure": sf.pure, "zcdp": sf.zcdp, "gdp": sf.gdp}[kind](size) if kind != "approx" else None
    budget = budget or sf.approx(size, "1e-6")
    options: dict[str, Any] = {
        "neighbours": str(rng.choice(["add-remove", "replace-one"])),
        "mechanism": str(rng.choice(MECHANISMS)),
        "objective": str(rng.choice(["tables", "tables", "cells", "max"])),
    }
    if options["mechanism"] == "projection":
        options["records"] = int(rng.integers(1, 10_000))
    if persons:
        options |= {"person": "who", "rows_per_person": int(rng.integers(1, 4))}
    return work, budget, options


def _domain(rng: Rng, *, large: bool, declared: bool) -> sf.Domain:
    size = int(10 ** rng.uniform(3, 6)) if large else int(rng.integers(2, 40))
    other: dict[str, Any] = {"outside": "other", "missing": "other"} if declared or rng.random() < 0.5 else {}
    fields: dict[str, Any] = {"x": sf.Integers(0, size - 1, **other)}
    if rng.random() < 0.6:
        count = int(rng.integers(2, 14))
        fields["g"] = sf.Categories([f"g{i}" for i in range(count)], **other)
    if rng.random() < 0.4:
        fields["c"] = sf.Booleans(**other)
    if rng.random() < 0.2:
        states = {s: [f"{s}{i}" for i in range(int(rng.integers(1, 4)))] for s in ("s", "t", "u")}
        fields["place"] = sf.Hierarchy(states, levels=["state", "county"], **other)
    return sf.Domain(fields)


def _part(domain: sf.Domain, rng: Rng) -> sf.Workload:
    rest = [n for n in domain.names if n != "x"]
    by = [n for n in rest if rng.random() < 0.5]
    cells = domain["x"].size
    kind = str(rng.choice(["sums", "sums", "predicates", "total", "tables", "ordered", "identity", "matrix", "tree"]))
    if kind == "sums":
        values = None if rng.random() < 0.5 else rng.integers(-50, 51, cells) / float(rng.choice([1, 1, 8, 3]))
        return sf.sums(domain, "x", values=values, by=by)
    if kind == "predicates":
        ends = [sorted(rng.integers(0, domain["x"].declared_size, 2).tolist()) for _ in range(int(rng.integers(1, 6)))]
        texts = [f"x >= {a} and x <= {b}" for a, b in ends]
        return sf.predicates(domain, [t + " and c" if "c" in rest and rng.random() < 0.4 else t for t in texts])
    if kind == "total":
        return sf.total(domain)
    if kind == "identity" and rest:
        return sf.identity(domain, *(by or rest[:1]))
    if kind == "tables":
        return sf.marginals(domain, upto=int(rng.integers(1, 3)))
    if kind == "tree" and "place" in rest:
        return sf.hierarchy(domain, "place", by=[n for n in by if n != "place"])
    if kind == "matrix" and cells <= 50_000:
        rows = rng.integers(-3, 4, (int(rng.integers(1, 8)), cells)).astype(float)
        return (
            sf.queries(rows / float(rng.choice([1, 2, 3])), sf.Domain({"x": domain["x"]}))
            if not rest
            else (sf.sums(domain, "x", values=rows[0], by=by))
        )
    ordered = str(rng.choice(["prefix", "ranges", "windows"]))
    if ordered == "windows":
        return sf.windows(domain, "x", width=int(rng.integers(1, min(cells, 50) + 1)), by=by)
    return (sf.prefix if ordered == "prefix" or cells > 2_000 else sf.ranges)(domain, "x", by=by)


def releasable(plan: Planned) -> bool:
    """Whether `sf.release` carries it out.

    Rows of persons need a domain that says where values go that it does not hold; of others nothing is read or spent.
    """
    if isinstance(plan, KeyPlan):
        return True
    if not isinstance(plan, (Plan, IterativePlan)):
        return False
    return plan.unit.person is None or not _undeclared(plan.workload.domain)


def fulfil(plan: Any) -> None:
    """Release a plan on mock rows and read every answer, error and interval, here and from its folder."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "release"
        made = sf.release(plan, _source(plan), ledger=None, out=out)
        if isinstance(plan, KeyPlan):
            str(made), sf.load(out)
            return
        assert str(made)
        if len(plan.workload) <= _MOST_ANSWERS:
            assert np.isfinite(made.answers).all()
            errors = made.standard_errors()
            assert errors is None or len(errors) == len(made.answers)
            if isinstance(made, sf.Release):  # errors of several looks are not known before data, nor are intervals
                for together in (False, True):
                    ends = made.intervals(0.9, simultaneous=together)
                    assert (ends.low <= ends.high).all()
            made.frame()
        else:
            for _ in zip(made.batches(), range(10), strict=False):
                pass
        assert not isinstance(made, sf.Release) or made.cautions is not None
        again = sf.load(out)
        if len(plan.workload) <= _MOST_ANSWERS:
            np.testing.assert_allclose(again.answers, made.answers, rtol=1e-9, atol=1e-9)


def _undeclared(domain: sf.Domain) -> bool:
    return any(a.outside is None or a.missing is None for a in domain.attributes.values())


def _source(plan: Any) -> Any:
    if isinstance(plan, KeyPlan):
        if plan.unit.person is not None:
            return _frame({"key": ["1"] * 3, "who": ["p", "q", "p"]})
        return sf.KeyCounts(np.arange(3), np.arange(3))
    domain = plan.workload.domain
    if plan.unit.person is None and (_undeclared(domain) or domain.size <= _MOST_CELLS):
        counts = np.zeros(domain.size, dtype=np.int64)
        counts[np.random.default_rng(2).integers(0, domain.size, _ROWS)] = 1
        return sf.Histogram(counts.reshape(domain.shape))
    rows = mock_columns(domain, _ROWS, seed=1)
    if plan.unit.person is not None:
        rows[plan.unit.person] = [f"p{i % 7}" for i in range(_ROWS)]
    return _frame(rows)


def _frame(columns: dict[str, list[str]]) -> Any:
    import pandas as pd

    return pd.DataFrame(columns)
