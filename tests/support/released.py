"""One release of every kind, each under a ledger of its own: what a stranger may be handed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import sfumato as sf

SEED = 20261122
_REST: dict[str, Any] = {"outside": "other", "missing": "other"}
_DOMAIN = sf.Domain(
    {
        "age": sf.Integers(0, 13, width=2, **_REST),
        "sex": sf.Categories(["f", "m"], **_REST),
        "edu": sf.Bins([0, 1, 2, 4], **_REST),
    }
)
_LINE = sf.Domain({"age": 16})
_PERSON: dict[str, Any] = {"person": "who", "rows_per_person": 3}
_APPROX = sf.approx(1, "1e-6")
ADD, REPLACE = "add-remove", "replace-one"


def _tables() -> Any:
    return sf.marginals(_DOMAIN, upto=2)


def _without_total() -> Any:
    """Tables of which none is the number of records: where that is public it is measured at no cost, with any noise."""
    return sf.marginals(_DOMAIN, sets=[("age",), ("sex",), ("edu",), ("age", "sex"), ("age", "edu"), ("edu", "sex")])


def _union() -> Any:
    return sf.stack(a=sf.prefix(_DOMAIN, "age", by=["sex"]), b=sf.marginals(_DOMAIN, sets=[("edu", "sex"), ("edu",)]))


def _conditions(*more: str) -> Any:
    some = ["age < 4", "age >= 6 and sex == 'f'", "age < 8 and sex == 'f'", "edu < 1", *more]
    return sf.predicates(_DOMAIN, some)


def _combined() -> Any:
    return sf.stack(a=sf.marginals(_DOMAIN, upto=1), b=_conditions("sex == 'm' or edu >= 2", "age < 8 or sex == 'f'"))


def _given() -> Any:
    return sf.queries(np.random.default_rng(SEED).integers(0, 3, (6, 16)), domain=_LINE)


def _known() -> dict[Any, Any]:
    return {("sex",): [100, 120, 3]}


def _levels() -> Any:
    """Seven blocks of three counties in two states; tables of two attributes without that of no attribute."""
    codes = [("A", "a", "1"), ("A", "a", "2"), ("A", "b", "3"), ("B", "c", "4"), ("B", "c", "5"), ("B", "c", "6")]
    place = sf.Hierarchy(codes, levels=["state", "county", "block"], **_REST)
    domain = sf.Domain({"place": place, "age": 3, "sex": 2})
    return sf.marginals(domain, sets=[("age",), ("sex",)], factors={"place": "levels"})


def _excluded() -> Any:
    """A domain with a cell that no record can be in."""
    return sf.marginals(sf.Domain(_DOMAIN.attributes, ["sex == 'f' and edu < 1"]), upto=2)


def _whole() -> Any:
    place = _levels().domain["place"]
    return sf.marginals(sf.Domain({"place": place, "age": 3}), sets=[(), ("age",)], factors={"place": "levels"})


def _many() -> Any:
    """400 blocks, whose pairs are too many to look at; tables of two attributes, as residuals."""
    codes = [(f"s{i // 90}", f"c{i // 9}", f"b{i}") for i in range(400)]
    domain = sf.Domain({"place": sf.Hierarchy(codes, levels=["state", "county", "block"], **_REST), "age": 3, "sex": 2})
    return sf.marginals(domain, sets=[("age",), ("sex",)], factors={"place": "levels"})


def _totals() -> dict[Any, Any]:
    return {("state",): [190, 160, 40]}


def _many_totals() -> dict[Any, Any]:
    return {("state",): [900, 900, 900, 900, 700, 0]}


WITHIN = "replace-one within state"


# name: (workload, budget, the neighbours, options of the plan)
PLANS: dict[str, tuple[Callable[[], Any], Any, str, dict[str, Any]]] = {
    "residuals": (_tables, _APPROX, ADD, {"mechanism": "marginals"}),
    "residuals, impossible cells": (_excluded, _APPROX, ADD, {"mechanism": "marginals"}),
    "residuals, replaced": (_tables, _APPROX, REPLACE, {"mechanism": "marginals"}),
    "residuals, pure and replaced": (_tables, sf.pure(1), REPLACE, {"mechanism": "marginals"}),
    "residuals of persons": (_tables, sf.gdp(1), ADD, {"mechanism": "marginals", **_PERSON}),
    "residuals of replaced persons": (_tables, sf.zcdp("0.5"), REPLACE, {"mechanism": "marginals", **_PERSON}),
    "public tables": (_tables, _APPROX, ADD, {"mechanism": "marginals", "public": _known}),
    "levels": (_whole, sf.zcdp("0.5"), ADD, {"mechanism": "marginals"}),
    "levels within states": (_levels, sf.zcdp("0.5"), WITHIN, {"public": _totals}),
    "tables within states": (_whole, sf.zcdp("0.5"), WITHIN, {"public": _totals}),
    "many levels, replaced": (_many, sf.zcdp("0.5"), REPLACE, {"mechanism": "marginals"}),
    "many levels within states": (
        _many,
        sf.zcdp("0.5"),
        WITHIN,
        {"public": _many_totals},
    ),
    "pair residuals": (_tables, _APPROX, ADD, {"mechanism": "adaptive", "records": 500}),
    "direct": (_tables, _APPROX, ADD, {"mechanism": "gaussian"}),
    "direct, replaced": (_tables, sf.pure(1), REPLACE, {"mechanism": "laplace"}),
    "discrete Gaussian": (_given, sf.zcdp("0.5"), ADD, {"mechanism": sf.mechanisms.auto(noise="discrete-gaussian")}),
    "tree": (lambda: sf.prefix(_LINE, "age"), sf.pure(1), ADD, {"mechanism": "tree"}),
    "canonical tree, replaced": (lambda: sf.ranges(_LINE, "age"), sf.pure(1), REPLACE, {"mechanism": "tree"}),
    "roots": (lambda: sf.prefix(_LINE, "age"), sf.gdp(1), ADD, {"mechanism": "factorization"}),
    "dense, replaced": (_given, _APPROX, REPLACE, {"mechanism": "factorization"}),
    "dense, pure": (_given, sf.pure(1), ADD, {"mechanism": "factorization"}),
    "product": (lambda: sf.prefix(_DOMAIN, "age", by=["sex"]), _APPROX, REPLACE, {"mechanism": "factorization"}),
    "union": (_union, _APPROX, ADD, {"mechanism": "factorization"}),
    "union, replaced": (_union, _APPROX, REPLACE, {"mechanism": "factorization"}),
    "union, pure": (_union, sf.pure(1), ADD, {"mechanism": "factorization"}),
    "combined": (_combined, _APPROX, ADD, {"mechanism": "factorization"}),
    "combined, pure and replaced": (lambda: _conditions("sex == 'm' and edu >= 2"), sf.pure(1), REPLACE, {}),
    "square root": (lambda: sf.prefix(_LINE, "age"), sf.gdp(1), ADD, {"strategy": "square-root"}),
    "projected": (_tables, _APPROX, ADD, {"mechanism": "projection", "records": 500}),
    "biased": (_given, _APPROX, REPLACE, {"mechanism": "approximate", "records": 50}),
    "largest error": (_tables, _APPROX, ADD, {"objective": "max"}),
    "mwem": (_without_total, _APPROX, ADD, {"mechanism": sf.mechanisms.mwem(rounds=3), "records": 500}),
    "mwem, replaced": (
        _without_total,
        sf.zcdp("0.5"),
        REPLACE,
        {"mechanism": sf.mechanisms.mwem(rounds=3), "records": 500},
    ),
    "boosting": (_given, sf.pure(1), ADD, {"mechanism": sf.mechanisms.boosting(rounds=2)}),
}
SKETCHES: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "count-sketch": (sf.pure(1), ADD, {"mechanism": sf.mechanisms.count_sketch(width=64)}),
    "hybrid": (_APPROX, REPLACE, {"mechanism": sf.mechanisms.hybrid(width=64)}),
    "sparse-project": (_APPROX, REPLACE, {"mechanism": sf.mechanisms.sparse_project(dimension=64)}),
    "key histogram": (sf.pure(1), ADD, {"mechanism": "histogram"}),
}

# name: (budget, the neighbours, options of the plan)
PROFILES: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "description": (sf.approx(5, "1e-5", thresholds="5e-6"), ADD, {}),
    "description, replaced": (sf.pure(9), REPLACE, {}),
    "description with pairs": (sf.approx(5, "1e-5", thresholds="5e-6"), ADD, {"pairs": "0.3"}),
    "description of persons": (
        sf.approx(8, "1e-5", thresholds="2e-6"),
        REPLACE,
        {"person": "who", "rows_per_person": 2},
    ),
}

_SEVERAL: dict[str, Any] = {"person": "who", "rows_per_person": 2}
_APART = sf.periods(9, per_person=3, apart=2)
# name: (workload, budget, the neighbours, options of the plan)
STREAMS: dict[str, tuple[Callable[[], Any], Any, str, dict[str, Any]]] = {
    "stream": (_tables, _APPROX, ADD, {"periods": 12}),
    "stream, replaced": (_tables, sf.gdp(1), REPLACE, {"periods": 300}),
    "stream of persons": (
        _tables,
        sf.zcdp("0.5"),
        ADD,
        {"periods": _APART, "mechanism": sf.mechanisms.continual(strategy="buffers"), **_SEVERAL},
    ),
    "stream of banded persons": (
        _tables,
        sf.zcdp("0.5"),
        ADD,
        {"periods": _APART, "mechanism": sf.mechanisms.continual(strategy="banded"), **_SEVERAL},
    ),
    "stream of persons once per group": (
        _tables,
        sf.gdp(1),
        ADD,
        {"periods": _APART, "rows_per_person": 3, "person": "who", "once_per": ["age"]},
    ),
    "stream of totals of persons": (
        lambda: sf.total(_DOMAIN),
        sf.gdp(1),
        ADD,
        {"periods": sf.periods(24, per_person=6, apart=4), "rows_per_person": 3, "person": "who"},
    ),
    "stream of persons and their total": (
        _tables,
        sf.gdp(1),
        ADD,
        {"periods": sf.periods(12, per_person=4, apart=3, objective="mean"), **_SEVERAL},
    ),
    "stream of replaced persons": (_tables, _APPROX, REPLACE, {"periods": 7, **_SEVERAL}),
}


def plan_of(kind: str) -> Any:
    """The plan of a kind of release."""
    make, budget, neighbours, options = PLANS[kind]
    options = {k: v() if callable(v) else v for k, v in options.items()}
    return sf.plan(make(), budget, neighbours=neighbours, **options)


def made(kind: str, folder: Path) -> tuple[Path, Path]:
    """A release of a kind and the ledger that paid for it, after a cheaper release of another name."""
    ledger, out = folder / "budget.db", folder / "release"
    rng = np.random.default_rng(SEED)
    if kind in STREAMS:
        return _streamed(kind, folder), ledger
    if kind in PROFILES:
        return _described(kind, folder), ledger
    if kind in SKETCHES:
        budget, neighbours, options = SKETCHES[kind]
        total = sf.approx(5, "1e-5") if kind == "hybrid" else sf.gdp(9) if budget.kind == "approx" else sf.pure(5)
        account = sf.Ledger.create(ledger, total=total, currency="epsilon" if kind == "hybrid" else None)
        first = sf.plan(sf.Keys(), sf.pure("0.1"), neighbours=neighbours, mechanism=sf.mechanisms.count_sketch(width=2))
        sf.release(first, sf.KeyCounts([1]), ledger=account, name="before")
        what = sf.Keys().queries([[1, 2], [7]]) if kind == "key histogram" else sf.Keys()
        plan = sf.plan(what, budget, neighbours=neighbours, **options)
        sf.release(plan, sf.KeyCounts(np.repeat([1, 2, 7, 9], [90, 70, 5, 1])), ledger=account, name="it", out=out)
        return out, ledger
    make, budget, neighbours, options = PLANS[kind]
    total = {"pure": sf.pure(9), "zcdp": sf.zcdp(9), "gdp": sf.gdp(9), "approx": sf.gdp(9)}[budget.kind]
    account = sf.Ledger.create(ledger, total=total)
    domain = make().domain
    table: Any = sf.Histogram(rng.poisson(9, domain.shape))
    if "person" in options:
        import pandas as pd

        rows = {"age": rng.integers(0, 20, 300), "sex": rng.choice(["f", "m"], 300), "edu": rng.integers(0, 5, 300)}
        table = pd.DataFrame(rows | {"who": rng.integers(0, 200, 300)})
    whom = {k: v for k, v in options.items() if k in _PERSON}
    mechanism = "laplace" if budget.kind == "pure" else "gaussian"
    if neighbours == WITHIN:
        # the ledger is of one relation
        first = sf.plan(make(), sf.zcdp("0.1"), neighbours=WITHIN, public=options["public"]())
        sf.release(first, table, ledger=account, name="0")
        sf.release(plan_of(kind), table, ledger=account, name="it", out=out)
        return out, ledger
    first = sf.plan(
        sf.marginals(domain, sets=[(domain.names[0],)]),
        sf.pure("0.1") if budget.kind == "pure" else sf.zcdp("0.1") if budget.kind == "zcdp" else sf.gdp("0.1"),
        neighbours=neighbours,
        mechanism=mechanism,
        **whom,
    )
    sf.release(first, table, ledger=account, name="before")
    sf.release(plan_of(kind), table, ledger=account, name="it", out=out)
    return out, ledger


def _described(kind: str, folder: Path) -> Path:
    """The folder of a description, of a table with a column of each kind."""
    import pyarrow as pa

    budget, neighbours, options = PROFILES[kind]
    total = sf.pure(20) if budget.kind == "pure" else sf.approx(12, "1e-4", thresholds="1e-5")
    account, rng = sf.Ledger.create(folder / "budget.db", total=total), np.random.default_rng(SEED)
    born = np.array(["1956-05-01", "1990-11-30", "2004-02-29", ""])
    rows = {"age": rng.integers(0, 90, 600), "city": rng.choice(["Bonn", "Kiel", "Ulm"], 600)}
    rows |= {"born": rng.choice(born, 600), "alive": rng.random(600) < 0.4, "who": rng.integers(0, 400, 600)}
    first = sf.pure("0.1") if budget.kind == "pure" else sf.gdp("0.1")
    frame, whom = pa.table(rows), {"neighbours": neighbours, **{k: v for k, v in options.items() if k != "pairs"}}
    sf.describe(frame, first, ledger=account, name="before", columns=["age"], records=600, **whom)
    pairs = options.get("pairs", 0)
    sf.describe(frame, budget, ledger=account, name="it", out=folder / "description", records=600, pairs=pairs, **whom)
    return folder / "description"


def _streamed(kind: str, folder: Path) -> Path:
    """The release of a stream after four periods; that after two of them lies beside it, as "earlier.sfumato"."""
    make, budget, neighbours, options = STREAMS[kind]
    account = sf.Ledger.create(folder / "budget.db", total=sf.gdp(9))
    plan = sf.plan(make(), budget, neighbours=neighbours, **options)
    rng, whom = np.random.default_rng(SEED), {k: v for k, v in options.items() if k in (*_SEVERAL, "once_per")}

    def table(month: int) -> Any:
        if not whom:
            return sf.Histogram(rng.poisson(9, plan.workload.domain.shape))
        import pandas as pd

        rows = {"age": rng.integers(0, 20, 99), "sex": rng.choice(["f", "m"], 99), "edu": rng.integers(0, 5, 99)}
        return pd.DataFrame(rows | {"who": rng.integers(99 * month, 99 * month + 70, 99)})

    ages = sf.marginals(plan.workload.domain, sets=[("age",)])
    first = sf.plan(ages, sf.gdp("0.1"), neighbours=neighbours, mechanism="gaussian", **whom)
    sf.release(first, table(0), ledger=account, name="before")
    stream = sf.open(plan, ledger=account, name="it", store=folder / "it.stream")
    for month in range(1, 5):
        stream.append(table(month), f"month {month}")
        if month == 2:
            stream.release().save(folder / "earlier.sfumato")
    stream.release().save(folder / "stream.sfumato")
    return folder / "stream.sfumato"
