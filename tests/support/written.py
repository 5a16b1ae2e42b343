"""Files of every kind that sfumato 0.2 wrote, and what it said of them: tests/fixtures/0.2.

Made once, by the last commit of 0.2 (55caea0), in the folder tests: `PYTHONPATH=<its src>:. python -m support.written`.
What a file is asked is asked in the same words then and now, so that answers can be compared. `classes_in` says which
classes a file holds, whatever it is: a zip of a document, or lines of a database with such zips in them.
"""

from __future__ import annotations

import io
import json
import math
import re
import shutil
import sqlite3
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

import sfumato as sf
from sfumato._util.bundles import pack_value, unpack_value
from sfumato._util.codec import encode_value, value_fingerprint
from sfumato.curator.streams.stored import read_stream
from sfumato.interactive import session_status
from sfumato.plans.plan import price_design
from sfumato.privacy.unit import PrivacyUnit
from sfumato.strategies import spectral_search as planning
from sfumato.strategies.design import Problem

__all__ = ["KEYS", "KINDS", "WRITTEN", "classes_in", "documents_in", "tell"]

WRITTEN = Path(__file__).parents[1] / "fixtures" / "0.2"
_VERSION = "0.2.0"
_PLACE = Path("/srv/survey")  # made for the time of writing
KEYS = [5, 70, 700, 7_000, 70_000]
QUESTIONS = {"ages.db": ["age < 4", "sex == 'f'", "edu >= 1 and age >= 6"]}
_MOST = 16  # answers and errors that are written down of one file, spread over all that it has: enough to see a change


def _some(values: Any) -> list[float]:
    found = np.asarray(values, dtype=float)
    return [] if not found.size else found[np.unique(np.linspace(0, found.size - 1, _MOST).astype(int))].tolist()


def _answer(a: Any) -> list[Any]:
    return [a.value, a.standard_error, a.low, a.high]


def _planned(p: Any) -> dict[str, Any]:
    told: dict[str, Any] = {"fingerprint": p.fingerprint, "price": str(p.price), "budget": str(p.budget)}
    told["unit"] = str(p.unit)
    return told


def _plan(path: Path) -> dict[str, Any]:
    p: Any = sf.load(path)
    told = _planned(p) | {"mechanism": p.mechanism, "rmse": p.rmse}
    if hasattr(p, "looks"):
        return told | {"looks": [[look.count, str(look.price)] for look in p.looks]}
    told["bound"] = p.lower_bound
    if hasattr(p, "periods"):
        return told | {"periods": p.periods.count, "strategy": p.strategy.summary}
    told |= {"largest": p.max_standard_error, "candidates": list(p.candidates["note"])}
    told |= {"noise": str(p.noise), "sensitivity": str(p.sensitivity), "strategy": p.strategy.summary}
    return told | {"errors": _some(p.standard_errors())}


def _key_plan(path: Path) -> dict[str, Any]:
    p: Any = sf.load(path)
    return _planned(p) | {"rows": p.map.rows, "error": p.error(4, 100.0)}


def _local_plan(path: Path) -> dict[str, Any]:
    p: Any = sf.load(path)
    return {"fingerprint": p.fingerprint, "outcomes": p.outcomes, "rmse": p.rmse, "bound": p.lower_bound}


def _session_plan(path: Path) -> dict[str, Any]:
    return _planned(sf.load(path))


def _release(path: Path) -> dict[str, Any]:
    r: Any = sf.load(path)
    p, errors = r.provenance, r.standard_errors()
    projection = getattr(r, "projection", None)
    return {
        "fingerprint": r.plan.fingerprint,
        "ledger": [p.ledger_id, p.sequence, p.anchor, p.name],
        "answers": _some(r.answers),
        "errors": None if errors is None else _some(errors),
        "labels": r.labels()[:_MOST],
        "body": None if projection is None else [projection.body, projection.certified],
    }


def _sketch(path: Path) -> dict[str, Any]:
    s: Any = sf.load(path)
    asked = [s.ask([k]) for k in KEYS] if s.plan.mechanism != "histogram" else [s.ask(KEYS)]
    keys, counts = s.heavy
    return {
        "fingerprint": s.plan.fingerprint,
        "answers": [_answer(a) for a in asked],
        "heavy": [keys.tolist(), counts.tolist()],
    }


def _local_release(path: Path) -> dict[str, Any]:
    r: Any = sf.load(path)
    return {"reports": r.reports, "answers": _some(r.answers), "errors": _some(r.standard_errors())}


def _published(path: Path) -> dict[str, Any]:
    r: Any = sf.load(path)
    answers = [_some(running.answers) for running in (r.totals, r.increments)]
    return {"fingerprint": r.plan.fingerprint, "periods": r.periods, "answers": answers}


def _session(path: Path) -> dict[str, Any]:
    return session_status(path)


def _stream(path: Path) -> dict[str, Any]:
    s = read_stream(path)
    told = {"name": s.name, "ledger": s.ledger_id, "anchor": s.anchor, "paid": s.paid}
    return told | {"periods": [[p.label, p.total, value_fingerprint(p)] for p in s.published]}


def _values(path: Path) -> dict[str, Any]:
    """Of a tuple: what the class of each is called in files, and its fingerprint."""
    return {"values": [[encode_value(v)[0]["~class"], value_fingerprint(v)] for v in unpack_value(path.read_bytes())]}


def _ledger(path: Path) -> dict[str, Any]:
    ledger = sf.Ledger(path)
    entries = [[e.sequence, e.kind, e.name, e.plan_hash, str(e.price), e.released] for e in ledger.entries()]
    facts = {"id": ledger.ledger_id, "anchor": ledger.anchor, "entries": entries, "table": ledger.table}
    # of persons every line keeps how many rows it counted, and the ledger as a whole does not since 0.3
    first = next((e.unit for e in ledger.entries() if e.kind == "spend"), None)
    assert ledger.unit == (first and first.protected)
    facts |= {"unit": str(first), "currency": ledger.currency.value}
    return facts | {"spent": str(ledger.spent), "remaining": str(ledger.remaining), "total": str(ledger.total)}


def _spec(path: Path) -> dict[str, Any]:
    spec = sf.read_spec(path)
    made = sf.plan(spec.workload, spec.budget, neighbours=spec.neighbours, mechanism=spec.mechanism)
    return _planned(made) | {"rmse": made.rmse, "queries": len(spec.workload)}


KINDS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "plans": _plan,
    "key-plans": _key_plan,
    "local-plans": _local_plan,
    "session-plans": _session_plan,
    "releases": _release,
    "sketches": _sketch,
    "local-releases": _local_release,
    "stream-releases": _published,
    "sessions": _session,
    "streams": _stream,
    "ledgers": _ledger,
    "specs": _spec,
    "values": _values,
}
"""How a stored thing is read and asked, by the folder that it lies in."""


def stored_in(kind: str) -> list[Path]:
    """What is stored of a kind; what lies beside the store of a stream is part of it."""
    return [p for p in sorted((WRITTEN / kind).iterdir()) if p.suffix not in (".even", ".odd")]


def tell(path: Path) -> dict[str, Any]:
    """What a stored thing says of itself, as JSON has it."""
    return json.loads(json.dumps(KINDS[path.parent.name](path), default=str))


def classes_in(path: Path) -> set[str]:
    """The classes that are named anywhere in a file, as the file has them."""
    return {name for text in documents_in(path) for name in re.findall(r'"~class": "(\w+)"', text)}


def documents_in(path: Path) -> list[str]:
    """The documents that a file holds: of a zip its own, of a database those of its lines."""
    content = path.read_bytes()
    return [*(_zips(content) if content[:2] == b"PK" else _lines(path) if content[:6] == b"SQLite" else [])]


def _zips(content: bytes) -> Iterator[str]:
    with zipfile.ZipFile(io.BytesIO(content)) as bundle:
        yield from (bundle.read(n).decode() for n in bundle.namelist() if n == "document.json")


def _lines(path: Path) -> Iterator[str]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as file:
        bodies = [body for (body,) in file.execute("SELECT body FROM lines")]
    for body in bodies:
        if b"PK\x03\x04" in body:
            yield from _zips(body[body.index(b"PK\x03\x04") :])


# ---- how they were written ---------------------------------------------------------------------------------


_REST: dict[str, Any] = {"outside": "other", "missing": "other"}
_ADD: dict[str, Any] = {"neighbours": "add-remove"}
_SWAP: dict[str, Any] = {"neighbours": "replace-one"}
_PERSON: dict[str, Any] = {"person": "who", "rows_per_person": 2}
_GOLDEN = (
    "tree: union, swap",
    "stream several: persons swapped, zcdp",
    "auto: sums and counts, add, gdp, cells",
    "auto: predicates, swap, gdp, cells",
    "mwem: add, zcdp",
    "strategy square-root, add",
    "auto: padded, add, pure",
    "auto: disjunctions, swap, pure",
    "auto: levels, persons swapped, zcdp",
    "adaptive: add",
    "auto: predicates, add, gdp, max",
    "canonical tree, add",
    "tree: 1,300 cells",
    "public one, add",
    "auto: windows, swap, pure",
    "boosting: swap, pure",
    "approximate: 3 records",
    "auto: union, add, approx",
    "factorization: factors, swap",
    "given real",
    "given reconstruction",
    "noise discrete-gaussian, unit",
    "projection: hull, Laplace",
    "auto: both, person, zcdp",
)
_SESSIONS = ("pmw: add, pure", "pmw: promised", "lazy histogram: persons swapped, gdp", "sparse-mw: swap, zcdp")
_LOCAL = ("local randomized-response: line", "local hadamard: line", "local hashing: line", "local designed: dense")
_KEYED = ("count-sketch: swap, pure", "hybrid: add, 1/3", "sparse-project: add", "key histogram: person, approx",
          "hybrid: texts", "keys: auto")  # fmt: skip
_RELEASED = (
    "residuals", "residuals, impossible cells", "residuals, pure and replaced", "residuals of persons",
    "public tables", "levels within states", "pair residuals", "direct, replaced", "discrete Gaussian", "tree",
    "canonical tree, replaced", "roots", "dense, replaced", "product", "union", "combined",
    "combined, pure and replaced", "square root", "projected", "biased", "largest error", "mwem", "mwem, replaced",
    "boosting",
)  # fmt: skip
_ADAPTIVE = "pair residuals"
"""Of a smaller domain: its models are large."""
_WHOLE = ("residuals", "boosting", "pair residuals")
"""Releases that are kept with all their files; of the others the tables are left out, which say the same again."""


def _file(name: str) -> str:
    return re.sub(r"\W+", "-", name).strip("-").lower()


def _plans() -> dict[str, Any]:
    from support.golden.cases import CASES

    found = {_file(name): CASES[name]() for name in _GOLDEN}
    small = sf.Domain({"a": 3, "b": 2, "c": 2})
    work = sf.stack(sf.prefix(small, "a", by=["b", "c"]), sf.prefix(small, "a", by=["c"]), sf.identity(small, "b"))
    problem = Problem(work, sf.gdp(1), PrivacyUnit(sf.Neighbours.ADD_REMOVE), "gaussian", "cells")
    design = planning.design_spectral(problem, math.inf)  # taken by itself where domains are larger
    assert design is not None
    found["spectral"] = price_design(design, problem)
    days = sf.Domain({"day": sf.Dates("2026-01-01", "2026-12-31", by="month"), "s": sf.Booleans()})
    found["dates"] = sf.plan(sf.marginals(days, upto=2), sf.zcdp(1), **_SWAP)
    parts: dict[str, Any] = {"age": sf.Bins([0, 10, 20, 40]), "role": sf.Categories(["wife", "child"])}
    known = sf.Domain(parts, ["role == 'wife' and age < 10"])
    found["impossible"] = sf.plan(sf.marginals(known, upto=2), sf.zcdp(1), **_ADD)
    return found


def _write_releases() -> None:
    """All under as few ledgers as their units allow, after the plans of `support.released`."""
    from support import released

    rng = np.random.default_rng(20_261_124)
    accounts: dict[str, sf.Ledger] = {}
    for kind in _RELEASED:
        make, budget, neighbours, options = released.PLANS[kind]
        kept = {"pure": "pure", "zcdp": "zcdp"}.get(budget.kind, "gdp")
        own = _file(f"{neighbours} {kept} {'persons' if 'person' in options else ''}")
        if own not in accounts:
            total = {"pure": sf.pure(30), "zcdp": sf.zcdp(30), "gdp": sf.gdp(9)}[kept]
            accounts[own] = sf.Ledger.create(WRITTEN / "ledgers" / f"{own}.db", total=total, table="people")
        work = (
            make()
            if kind != _ADAPTIVE
            else sf.marginals(sf.Domain({"a": 2, "b": 2, "c": 2}, ["a == 0 and b == 1"]), upto=2)
        )
        domain = work.domain
        table: Any = sf.Histogram(rng.poisson(9, domain.shape))
        if "person" in options:
            import pandas as pd

            rows = {"age": rng.integers(0, 20, 90), "sex": rng.choice(["f", "m"], 90), "edu": rng.integers(0, 5, 90)}
            table = pd.DataFrame(rows | {"who": rng.integers(0, 60, 90)})
        place = WRITTEN / "releases" / _file(kind)
        out = {"ledger": accounts[own], "name": kind, "out": place, "table": "people"}
        plan = released.plan_of(kind) if kind != _ADAPTIVE else sf.plan(work, budget, neighbours=neighbours, **options)
        sf.release(plan, table, **out)
    whole: Any = sf.load(WRITTEN / "releases" / "residuals")
    for body in ("local", "hull"):
        whole.project(body).save(WRITTEN / "releases" / f"residuals-{body}")
    line: Any = sf.load(WRITTEN / "releases" / "tree")
    line.project("isotonic").save(WRITTEN / "releases" / "tree-isotonic")
    levels: Any = sf.load(WRITTEN / "releases" / "levels-within-states")
    levels.project(integer=True).save(WRITTEN / "releases" / "levels-projected")
    pairs = sf.marginals(sf.Domain({f"b{i}": 2 for i in range(4)}), upto=2)
    small: Any = sf.release(
        sf.plan(pairs, sf.gdp("0.1"), **_ADD),
        sf.Histogram(rng.poisson(9, pairs.domain.shape)),
        ledger=accounts["add-remove-gdp"],
        name="pairs",
        table="people",
    )
    for body in ("sdp", "exact", "cone", "mixtures"):
        given = {"total": 150} if body == "sdp" else {}
        small.project(body, **given).save(WRITTEN / "releases" / f"pairs-{body}")
    for place in (WRITTEN / "releases").iterdir():
        for page in ("report.html", "answers.parquet", "measurements.npz", "tables", "parts"):
            found = place / page
            if page == "report.html" or place.name not in map(_file, _WHOLE):
                shutil.rmtree(found) if found.is_dir() else found.unlink(missing_ok=True)


def _write_keys() -> None:
    from support.golden.cases import CASES

    ledger = sf.Ledger.create(WRITTEN / "ledgers" / "keys.db", total=sf.approx(20, "1e-3"), currency="epsilon")
    counts = sf.KeyCounts([*KEYS, 12], [900, 40, 7, 1, 300, 2])
    for name in _KEYED:
        CASES[name]().save(WRITTEN / "key-plans" / f"{_file(name)}.plan")
    made = {
        "hybrid": (sf.Keys(), sf.approx(1, "1e-6"), sf.mechanisms.hybrid(width=64)),
        "count-sketch": (sf.Keys(), sf.pure(1), sf.mechanisms.count_sketch(width=64)),
        "sparse-project": (sf.Keys(), sf.gdp(1), sf.mechanisms.sparse_project(dimension=61)),
        "histogram": (sf.Keys().queries([KEYS]), sf.pure(1), "histogram"),
    }
    for name, (what, budget, mechanism) in made.items():
        plan: Any = sf.plan(what, budget, mechanism=mechanism, **_ADD)
        account = None if name == "sparse-project" else ledger  # Gaussian noise has no epsilon to add
        sf.release(plan, counts, ledger=account, name=name, out=WRITTEN / "sketches" / f"{name}.sketch")
    lazy = sf.plan(sf.Keys(), sf.pure(1), mechanism="histogram", **_ADD)
    with sf.open(lazy, counts, ledger=ledger, name="lazy", store=WRITTEN / "sessions" / "lazy.db") as asked:
        _ = [asked.ask([k]) for k in KEYS[:3]]
    sparse = sf.mechanisms.sparse_mw(size=2, updates=3, threshold=100, currency="epsilon")
    plan = sf.plan(sf.Keys(), sf.pure(1), mechanism=sparse, records=2_000, **_ADD)
    with sf.open(plan, counts, ledger=ledger, name="sparse", store=WRITTEN / "sessions" / "sparse.db") as asked:
        _ = [asked.ask([k]) for k in KEYS[:3]]


def _write_sessions(domain: sf.Domain) -> None:
    ledger = sf.Ledger.create(WRITTEN / "ledgers" / "talk.db", total=sf.pure(3))
    rows = WRITTEN / "people.csv"
    rng = np.random.default_rng(5)
    lines = [f"{rng.integers(0, 14)};{rng.choice(['f', 'm'])};{rng.integers(0, 4)}" for _ in range(120)]
    rows.write_text("\n".join(["age;sex;edu", *lines]) + "\n", encoding="utf-8")
    pmw = sf.mechanisms.pmw(updates=3, threshold=20)
    plan = sf.plan(domain, sf.pure(1), mechanism=pmw, records=120, **_ADD)
    place = _PLACE / "people.csv"  # a session remembers where its table was
    place.write_bytes(rows.read_bytes())
    table = sf.Source(place, delimiter=";")
    store = WRITTEN / "sessions" / "ages.db"
    with sf.open(plan, table, ledger=ledger, name="pmw", store=store) as asked:
        _ = [asked.ask(text) for text in QUESTIONS["ages.db"]]


def _write_streams(domain: sf.Domain) -> None:
    import pandas as pd

    rng = np.random.default_rng(9)
    account = sf.Ledger.create(WRITTEN / "ledgers" / "streams.db", total=sf.gdp(9))
    work = sf.marginals(domain, upto=1)
    plain: Any = sf.plan(work, sf.gdp(1), periods=12, **_ADD)
    with sf.open(plain, ledger=account, name="plain", store=WRITTEN / "streams" / "plain.stream") as stream:
        for month in (1, 2):
            stream.append(sf.Histogram(rng.poisson(9, domain.shape)), f"month {month}")
        stream.release().save(WRITTEN / "stream-releases" / "plain.sfumato")
    persons = sf.Ledger.create(WRITTEN / "ledgers" / "streams-persons.db", total=sf.gdp(9))
    for strategy in ("buffers", "banded"):
        how = sf.mechanisms.continual(strategy=strategy)
        apart = sf.periods(9, per_person=3, apart=2)
        plan: Any = sf.plan(work, sf.zcdp("0.5"), periods=apart, mechanism=how, **_ADD, **_PERSON)
        store = WRITTEN / "streams" / f"{strategy}.stream"
        with sf.open(plan, ledger=persons, name=strategy, store=store, people=100) as stream:
            for month in range(1, 3):
                rows = {n: rng.integers(0, 4, 40) for n in ("age", "edu")} | {"sex": rng.choice(["f", "m"], 40)}
                stream.append(pd.DataFrame(rows | {"who": rng.integers(0, 30, 40)}), f"month {month}")
            stream.release().save(WRITTEN / "stream-releases" / f"{strategy}.sfumato")


def _write_local() -> None:
    from support.golden.cases import CASES

    for name in _LOCAL:
        CASES[name]().save(WRITTEN / "local-plans" / f"{_file(name)}.plan")
    plan = sf.plan(
        sf.prefix(sf.Domain({"x": sf.Integers(0, 7)}), "x"),
        sf.pure(1),
        trust="local",
        records=300,
        mechanism=sf.mechanisms.local(reporter="hadamard"),
    )
    reports = [plan.respond({"x": i % 8}) for i in range(300)]
    plan.collect(reports).save(WRITTEN / "local-releases" / "hadamard.local")


def _write_values() -> None:
    """One value of each class that files name and that no file above holds."""
    from sfumato.cells import Grid
    from sfumato.maps import structured, toeplitz
    from sfumato.operators import Block, Combination, Compose, Dense, Grouping, Identity, Prefix, Scaled, Total
    from sfumato.plans.iterative import Look
    from sfumato.privacy.accounting import PureEvent
    from sfumato.privacy.boosting_score import Misses
    from sfumato.privacy.certified_sums import Products
    from sfumato.privacy.conversation_price import Step
    from sfumato.strategies.buffered_toeplitz import best_buffered_strategy
    from sfumato.strategies.factors import TotalOnly

    parts: dict[str, Any] = {
        "age": sf.Integers(0, 13, width=2),
        "sex": sf.Categories(["f", "m"]),
        "edu": sf.Bins([0, 1, 2, 4]),
        "day": sf.Dates("2026-01-01", "2026-03-31", by="month"),
        "in": sf.Booleans(),
    }
    grid: Grid = sf.Domain(parts, ["sex == 'f' and edu < 1"]).grid
    cells = Block((("age",),), (Identity(7),))
    groups = np.array([0, 0, 1, -1])
    block, other = cells.lowered(), Block((("age", "sex"),), (Dense(np.eye(3, 14, dtype=np.int64)),)).lowered()
    linear: list[Any] = [
        Prefix(4).lowered(),
        Total(4).lowered(),
        Dense(np.arange(6).reshape(2, 3)).lowered(),
        structured.KroneckerMap((Prefix(3).lowered(), Total(2).lowered())),
        structured.StackMap((Prefix(3).lowered(), Total(3).lowered())),
        toeplitz.ToeplitzMap(np.array([3, 1, 0]), np.array([1, 2, 1])),
        structured.SparseMap(np.array([2, -1]), np.array([0, 2]), np.array([0, 1, 2]), 3),
        Grouping(groups, 2).lowered(),
        Compose(Prefix(2), Grouping(groups, 2)).lowered(),
        Scaled(Prefix(4), 3).lowered(),
        Combination((cells,), np.array([[1, 0, 0, 2, 0, 0, 0]])).lowered(),
    ]
    misses = Misses((block,), np.zeros((1, 7), dtype=np.int64), 0, 9)
    values = (
        grid,
        block,
        other,
        *linear,
        Look("values", 2, PureEvent(Fraction(1, 3))),
        Products((2, 3), (1, 4), 5),
        Step(misses, 7, True),
        TotalOnly(2),
        best_buffered_strategy(40, "prefixes").at(700.0),
    )
    (WRITTEN / "values" / "rest.zip").write_bytes(pack_value(values))


_SPEC = """[data]
source = "../people.csv"
delimiter = ";"

[domain]
impossible = ["sex == 'f' and edu < 1"]

[schema_defaults]
outside = "other"
missing = "other"

[schema]
age = {type = "integer", min = 0, max = 13, width = 2}
sex = {type = "category", values = ["f", "m"]}
edu = {type = "number", edges = [0, 1, 2, 4]}

[privacy]
neighbours = "add-remove"
rho = 0.5

[plan]
mechanism = "marginals"

[[queries]]
marginals = 2
"""


def main() -> None:
    """Write all files, and beside them what they say."""
    import os

    if sf.__version__ != _VERSION or WRITTEN.exists():
        raise SystemExit("these files are what 0.2 wrote: run this by its last commit, in place of files that are gone")
    for folder in KINDS:
        (WRITTEN / folder).mkdir(parents=True)
    os.chdir(WRITTEN)
    for name, plan in _plans().items():
        plan.save(WRITTEN / "plans" / f"{name}.plan")
    from support.golden.cases import CASES

    for name in _SESSIONS:
        CASES[name]().save(WRITTEN / "session-plans" / f"{_file(name)}.plan")
    domain = sf.Domain(
        {
            "age": sf.Integers(0, 13, width=2, **_REST),
            "sex": sf.Categories(["f", "m"], **_REST),
            "edu": sf.Bins([0, 1, 2, 4], **_REST),
        }
    )
    _write_releases()
    _write_keys()
    _write_sessions(domain)
    _write_streams(domain)
    _write_local()
    _write_values()
    (WRITTEN / "specs" / "people.toml").write_text(_SPEC, encoding="utf-8")
    said = {f"{kind}/{p.name}": tell(p) for kind in KINDS for p in stored_in(kind)}
    (WRITTEN / "said.json").write_text(json.dumps(said, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
