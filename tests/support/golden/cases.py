"""The plans: every mechanism, relation, kind of budget and objective, over small domains. By name, made when called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import sfumato as sf
from support.words import plan_with

__all__ = ["CASES"]

BUDGETS = {"pure": sf.pure(1), "approx": sf.approx(1, "1e-6"), "zcdp": sf.zcdp("0.5"), "gdp": sf.gdp("0.7")}
RELATIONS: dict[str, dict[str, Any]] = {
    "add": {"neighbours": "add-remove"},
    "swap": {"neighbours": "replace-one"},
    "person": {"neighbours": "add-remove", "person": "who", "rows_per_person": 3},
    "persons swapped": {"neighbours": "replace-one", "person": "who", "rows_per_person": 2},
}
OTHER: dict[str, Any] = {"outside": "other", "missing": "other"}
LINE = sf.Domain({"x": sf.Integers(0, 15)})
LONG = sf.Domain({"x": sf.Integers(0, 63)})
WIDEST = sf.Domain({"x": sf.Integers(0, 1_299)})
SMALL = sf.Domain({"a": sf.Integers(0, 3, **OTHER), "b": sf.Categories(["x", "y"], **OTHER)})
MIXED = sf.Domain({"a": sf.Integers(0, 5), "b": sf.Categories(["p", "q", "r"]), "c": sf.Booleans()})
WIDE = sf.Domain({f"v{i}": sf.Integers(0, 1 + i % 3) for i in range(6)})
PLACES = sf.Domain(
    {
        "place": sf.Hierarchy({"06": ["061", "063", "065"], "36": ["361", "362"]}, levels=["state", "county"]),
        "wages": sf.Bins(edges=[0, 10, 25, 50, 100], **OTHER),
        "sex": sf.Booleans(),
    }
)
CONJUNCTIONS = ["a >= 2 and b == 'p'", "c", "a < 3 or b == 'q'", "not (b == 'r' and c)", "a in (1, 4)"]


def _plan(work: sf.Workload, budget: str, relation: str, **options: Any) -> Any:
    return plan_with(work, BUDGETS[budget], **RELATIONS[relation], **options)


def _both() -> sf.Workload:
    """Two orders of one table: their tilts are asked for."""
    return sf.stack(cdf=sf.prefix(MIXED, "a", by=["b"]), tables=sf.marginals(MIXED, order=2), weights={"cdf": 2})


def _union() -> sf.Workload:
    return sf.stack(sf.prefix(MIXED, "a"), sf.ranges(MIXED, "a", by=["c"]), sf.identity(MIXED, "b"))


def _queries(rows: int, cells: int, seed: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.random.default_rng(seed).integers(0, 2, (rows, cells))


WORKS: dict[str, sf.Workload] = {
    "line": sf.prefix(LINE, "x"),
    "ranges": sf.ranges(LINE, "x"),
    "windows": sf.windows(LINE, "x", width=4),
    "long": sf.prefix(LONG, "x"),
    "cells": sf.identity(SMALL),
    "total": sf.total(SMALL),
    "pairs": sf.marginals(SMALL, upto=2),
    "mixed": sf.marginals(MIXED, order=2),
    "all orders": sf.marginals(WIDE, upto=3, weights={1: 3, ("v0", "v1"): 2}),
    "padded": sf.prefix(SMALL, "a", by=["b"]),
    "padded and total": sf.stack(sf.ranges(SMALL, "a"), sf.total(SMALL), sf.identity(SMALL, "b")),
    "both": _both(),
    "union": _union(),
    "product": sf.prefix(MIXED, "a") * sf.identity(MIXED, "b"),
    "predicates": sf.predicates(MIXED, CONJUNCTIONS),
    "sums": sf.sums(PLACES, "wages", by=["sex"]),
    "sums and counts": sf.stack(money=sf.sums(PLACES, "wages"), people=sf.marginals(PLACES, order=1)),
    "hierarchy": sf.hierarchy(PLACES, "place", by=["sex"]),
    "levels": sf.marginals(PLACES, sets=[("state", "wages"), ("place", "sex")]),
    "factors": sf.marginals(MIXED, order=2, factors={"a": "prefix"}),
    "windowed": sf.marginals(MIXED, order=2, factors={"a": ("windows", 2)}),
    "dense": sf.queries(_queries(20, 12, 1)),
    "sparse": sf.queries(_queries(6, 36, 2), MIXED),
    "conjunctions": sf.conjunctions(4),
    "disjunctions": sf.disjunctions(4),
    "parities": sf.parities(4),
}

CASES: dict[str, Callable[[], Any]] = {}


def _add(name: str, make: Callable[[], Any]) -> None:
    assert name not in CASES, name
    CASES[name] = make


def _tables() -> None:
    for work in WORKS:
        for relation in ("add", "swap"):
            for budget in ("approx", "pure"):
                if (work, relation) != ("total", "swap"):
                    _add(f"auto: {work}, {relation}, {budget}", partial(_plan, WORKS[work], budget, relation))
    for work in ("line", "pairs", "both", "levels", "predicates"):
        for relation in ("person", "persons swapped"):
            _add(f"auto: {work}, {relation}, zcdp", partial(_plan, WORKS[work], "zcdp", relation))
    for work in ("line", "pairs", "mixed", "both", "union", "factors", "predicates", "sums and counts", "dense"):
        for objective in ("cells", "max"):
            for relation in ("add", "swap"):
                name = f"auto: {work}, {relation}, gdp, {objective}"
                _add(name, partial(_plan, WORKS[work], "gdp", relation, objective=objective))


def _named() -> None:
    for mechanism in ("laplace", "gaussian", "tree", "factorization", "marginals"):
        for work in ("line", "pairs", "union", "factors", "padded and total"):
            for relation in ("add", "swap"):
                if mechanism == "tree" and work == "pairs":
                    continue
                budget = "pure" if mechanism == "laplace" else "zcdp"
                options = {"mechanism": mechanism}
                _add(f"{mechanism}: {work}, {relation}", partial(_plan, WORKS[work], budget, relation, **options))
    _add("tree: 1,300 cells", partial(_plan, sf.prefix(WIDEST, "x"), "approx", "add", mechanism="tree"))
    for work in ("line", "pairs"):
        for budget in BUDGETS:
            unit = partial(_plan, WORKS[work], budget, "add", mechanism="auto", lattice="unit")
            _add(f"unit lattice: {work}, {budget}", unit)
    for noise in ("gaussian", "laplace", "discrete-gaussian"):
        for lattice in ("fine", "unit"):
            options = {"noise": noise, "lattice": lattice}
            _add(f"noise {noise}, {lattice}", partial(_plan, WORKS["pairs"], "zcdp", "swap", **options))
    for records in (3, 40):
        options = {"mechanism": "approximate", "records": records}
        _add(f"approximate: {records} records", partial(_plan, WORKS["line"], "gdp", "add", **options))
    _add("approximate: swap", partial(_plan, WORKS["product"], "zcdp", "swap", mechanism="approximate", records=5))
    for relation in ("add", "swap"):
        options = {"mechanism": "adaptive", "records": 5_000}
        _add(f"adaptive: {relation}", partial(_plan, WORKS["all orders"], "approx", relation, **options))
        for work in ("line", "pairs", "mixed", "dense", "parities"):
            options = {"mechanism": "projection", "records": 1_000}
            _add(f"projection: {work}, {relation}", partial(_plan, WORKS[work], "approx", relation, **options))
    _add("projection: hull, Laplace", partial(_plan, WORKS["dense"], "pure", "add", mechanism="projection"))


def _strategies() -> None:
    names = ("queries", "cells", "tree", "tree-3", "tree-4", "tree-16", "square-root", "normalised-square-root")
    for strategy in names:
        for relation in ("add", "swap"):
            _add(f"strategy {strategy}, {relation}", partial(_plan, WORKS["line"], "gdp", relation, strategy=strategy))
    for strategy, relation in (("tree", "add"), ("tree-4", "swap"), ("cells", "swap")):
        options = {"strategy": strategy, "reconstruction": "canonical"}
        _add(f"canonical {strategy}, {relation}", partial(_plan, WORKS["line"], "pure", relation, **options))
    tables = {"strategy": "queries", "mechanism": "projection"}
    _add("strategy queries, projected", partial(_plan, WORKS["dense"], "approx", "add", **tables))
    prefix = np.tril(np.ones((16, 16), dtype=np.int64))
    eye = np.eye(16, dtype=np.int64)
    haar = np.vstack(
        [np.ones((1, 16), dtype=np.int64)] + [np.kron(eye[:k, :k], np.repeat([1, -1], 8 // k)) for k in (1, 2, 4, 8)]
    )
    for name, matrix in (("eye", eye), ("prefix", prefix), ("haar", haar)):
        for budget in ("pure", "approx"):
            given = partial(_plan, WORKS["line"], budget, "add", strategy=matrix)
            _add(f"given {name}, {budget}", given)
    own = {"strategy": np.eye(16), "reconstruction": prefix}
    _add("given reconstruction", partial(_plan, WORKS["line"], "zcdp", "swap", **own))
    _add("given real", partial(_plan, WORKS["line"], "gdp", "add", strategy=np.eye(16) + prefix / 3))


def _public() -> None:
    sex = {("c",): [30, 20]}
    pair = {("b", "c"): [[5, 9], [7, 1], [2, 6]]}
    for relation in ("add", "swap", "person"):
        for name, known in (("one", sex), ("pair", pair), ("both", {("b",): [14, 8, 8], ("c",): [14, 16]})):
            options = {"public": known, "mechanism": "marginals"}
            _add(f"public {name}, {relation}", partial(_plan, WORKS["mixed"], "zcdp", relation, **options))
    _add("public total, pure", partial(_plan, sf.marginals(MIXED, upto=2), "pure", "add", public={(): 50}))


def _courses() -> None:
    for relation in RELATIONS:
        for budget in BUDGETS:
            options = {"mechanism": "mwem", "records": 500}
            _add(f"mwem: {relation}, {budget}", partial(_plan, WORKS["pairs"], budget, relation, **options))
    options = {"mechanism": "mwem", "rounds": 7, "strategy": "queries"}
    _add("mwem: single queries", partial(_plan, WORKS["dense"], "approx", "swap", **options))
    for relation in ("add", "swap"):
        for budget in BUDGETS:
            options = {"mechanism": "boosting", "rounds": 4}
            _add(f"boosting: {relation}, {budget}", partial(_plan, WORKS["dense"], budget, relation, **options))


def _keys(budget: str, relation: str, kind: str = "integer", **options: Any) -> Any:
    """A plan over keys with coefficients of its hash that stay, in place of those that were drawn."""
    keys = sf.Keys() if kind == "integer" else sf.Keys(kind=kind, point=2**40 + 7)
    options = {name: value for name, value in options.items() if value is not None}
    made = plan_with(keys, BUDGETS[budget], **RELATIONS[relation], **options)
    hashed = getattr(made.map, "coefficients", None)
    if hashed is None:
        return made
    fixed = (np.arange(1, 1 + hashed.size, dtype=np.uint64) * np.uint64(2**59 + 55) % np.uint64(2**61 - 1)).reshape(
        hashed.shape
    )
    return replace(made, map=replace(made.map, coefficients=fixed))


def _keyed() -> None:
    asked = [[7 * i * (2**47 + 5) % (2**60) for i in range(j, j + 20)] for j in range(3)]
    for relation in RELATIONS:
        for budget in BUDGETS:
            options = {"mechanism": "count-sketch", "records": 200, "width": 1024}
            _add(f"count-sketch: {relation}, {budget}", partial(_keys, budget, relation, **options))
            options = {"mechanism": "histogram", "queries": asked}
            _add(f"key histogram: {relation}, {budget}", partial(_keys, budget, relation, **options))
        options = {"mechanism": "sparse-project", "dimension": 130, "records": 90}
        _add(f"sparse-project: {relation}", partial(_keys, "zcdp", relation, **options))
    for relation in ("add", "swap"):
        for share in (None, "1/3"):
            options = {"mechanism": "hybrid", "records": 100, "share": share}
            _add(f"hybrid: {relation}, {share}", partial(_keys, "approx", relation, **options))
    _add("count-sketch: usual width", partial(_keys, "gdp", "add", mechanism="count-sketch", records=3_000))
    _add("sparse-project: usual size", partial(_keys, "approx", "add", mechanism="sparse-project", records=500))
    _add("hybrid: texts", partial(_keys, "approx", "add", "text", mechanism="hybrid", width=64, independence=6))
    _add("keys: auto", partial(_keys, "approx", "add", records=50))
    _add("keys: auto, known", partial(_keys, "pure", "add", queries=asked, records=50))


def _session(what: Any, budget: str, relation: str, **options: Any) -> Any:
    mechanism = "sparse-mw" if "size" in options else "histogram" if isinstance(what, sf.Keys) else "pmw"
    options |= {"currency": "any"} if mechanism == "histogram" else {}
    return plan_with(what, BUDGETS[budget], mechanism=mechanism, **RELATIONS[relation], **options)


def _sessions() -> None:
    for relation in RELATIONS:
        for budget in BUDGETS:
            _add(f"pmw: {relation}, {budget}", partial(_session, SMALL, budget, relation, records=20_000))
            _add(f"lazy histogram: {relation}, {budget}", partial(_session, sf.Keys(), budget, relation))
            options = {"records": 10_000, "size": 8}
            _add(f"sparse-mw: {relation}, {budget}", partial(_session, sf.Keys(), budget, relation, **options))
    wide = {"records": 10**6, "questions": 50, "beta": 0.1, "span": 4}
    _add("pmw: promised", partial(_session, SMALL, "gdp", "add", alpha="least", **wide))
    _add("pmw: by hand", partial(_session, SMALL, "pure", "swap", updates=5, threshold=300, **wide))
    small = {"records": 10**6, "size": 4, "questions": 50}
    _add("sparse-mw: promised", partial(_session, sf.Keys(), "approx", "add", alpha="least", **small))
    _add("sparse-mw: by hand", partial(_session, sf.Keys(), "zcdp", "swap", updates=5, threshold=300, **small))


def _local(work: str, epsilon: object, reporter: str) -> Any:
    return sf.plan(
        WORKS[work], sf.pure(epsilon), trust="local", records=10_000, mechanism=sf.mechanisms.local(reporter=reporter)
    )


def _locals() -> None:
    for reporter in ("randomized-response", "hadamard", "hashing", "designed"):
        for work, epsilon in (("line", 1), ("dense", "1/2")):
            _add(f"local {reporter}: {work}", partial(_local, work, epsilon, reporter))
    _add("local auto: line", partial(_local, "line", "5/2", "auto"))


def _streams() -> None:
    several = sf.periods(300, per_person=3, apart=30)
    for budget in ("zcdp", "gdp"):
        for relation in RELATIONS:
            options = {"periods": sf.periods(12)}
            _add(f"stream: {relation}, {budget}", partial(_plan, WORKS["mixed"], budget, relation, **options))
        for relation in ("person", "persons swapped"):
            options = {"periods": several}
            _add(f"stream several: {relation}, {budget}", partial(_plan, WORKS["mixed"], budget, relation, **options))
    own = {"periods": sf.periods(60, per_person=5, apart=12, objective="mean")}
    _add("stream several, a total of its own: person, gdp", partial(_plan, WORKS["pairs"], "gdp", "person", **own))


for fill in (_tables, _named, _strategies, _public, _courses, _keyed, _sessions, _locals, _streams):
    fill()
