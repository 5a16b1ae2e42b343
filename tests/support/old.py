"""Files of every kind that sfumato 0.1 wrote, and what it said of them.

Made once, by the last commit of 0.1 (a13cb7a), in the folder tests: `PYTHONPATH=<its src>:. python -m support.old`.
What is told of a file is asked in the same words then and now, so that answers can be compared.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import sfumato as sf

__all__ = ["KINDS", "OLD", "WRITTEN", "tell"]

OLD = Path(__file__).parents[1] / "fixtures" / "0.1"
WRITTEN = OLD / "written"
_EARLIER = "0.1."
_OTHER: dict[str, Any] = {"outside": "other", "missing": "other"}
_PREDICATE = "x >= 3 and s == 'b'"
_KEYS = [5, 70, 700, 7_000, 70_000]


def _plan(path: Path) -> dict[str, Any]:
    p: Any = sf.load_plan(path)
    if isinstance(p, sf.CoursePlan):
        looks = [[k.count, str(k.price)] for k in p.knocks]
        return {"fingerprint": p.fingerprint, "price": str(p.price), "looks": looks, "rmse": p.rmse}
    return {
        "fingerprint": p.fingerprint,
        "mechanism": p.mechanism,
        "price": str(p.price),
        "noise": str(p.noise),
        "sensitivity": str(p.sensitivity),
        "rmse": p.rmse,
        "largest": p.max_standard_error,
        "bound": p.lower_bound,
        "errors": p.standard_errors().tolist(),
    }


def _key_plan(path: Path) -> dict[str, Any]:
    p = sf.load_key_plan(path)
    return {"fingerprint": p.fingerprint, "rows": p.map.rows, "price": str(p.price), "error": p.error(4, 100.0)}


def _local_plan(path: Path) -> dict[str, Any]:
    p = sf.load_local_plan(path)
    return {"fingerprint": p.fingerprint, "outcomes": p.outcomes, "rmse": p.rmse, "bound": p.lower_bound}


def _release(path: Path) -> dict[str, Any]:
    r: Any = sf.load_release(path)
    p = r.provenance
    asked = r.ask("x >= 3")
    return {
        "fingerprint": r.plan.fingerprint,
        "ledger": [p.ledger_id, p.sequence, p.anchor, p.name],
        "answers": r.answers.tolist(),
        "errors": None if r.standard_errors() is None else r.standard_errors().tolist(),
        "labels": r.labels(),
        "asked": [asked.value, asked.standard_error, asked.low, asked.high],
    }


def _sketch(path: Path) -> dict[str, Any]:
    s = sf.load_sketch(path)
    asked = [s.ask([k]) for k in _KEYS] if s.plan.mechanism != "histogram" else [s.ask(_KEYS)]
    keys, counts = s.heavy
    answers = [[a.value, a.standard_error, a.low, a.high] for a in asked]
    return {"fingerprint": s.plan.fingerprint, "answers": answers, "heavy": [keys.tolist(), counts.tolist()]}


def _local_release(path: Path) -> dict[str, Any]:
    r = sf.load_local_release(path)
    return {"reports": r.reports, "answers": r.answers.tolist(), "errors": r.standard_errors().tolist()}


def _session(path: Path) -> dict[str, Any]:
    """What a histogram over cells, which is a release, goes on to answer."""
    kept: Any = sf.resume_session(path, None)
    a = kept.ask(_PREDICATE)
    return {"status": kept.status(), "asked": [a.value, a.standard_error, a.low, a.high, a.how]}


def _ledger(path: Path) -> dict[str, Any]:
    ledger = sf.Ledger(path)
    entries = [[e.sequence, e.kind, e.name, e.plan_hash, str(e.price), e.released] for e in ledger.entries()]
    facts = {"id": ledger.ledger_id, "anchor": ledger.anchor, "entries": entries}
    return facts | {"spent": str(ledger.spent), "remaining": str(ledger.remaining), "total": str(ledger.total)}


KINDS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "plans": _plan,
    "key-plans": _key_plan,
    "local-plans": _local_plan,
    "releases": _release,
    "sketches": _sketch,
    "local-releases": _local_release,
    "open": _session,
    "ledgers": _ledger,
}
"""How a stored thing is read and asked, by the folder that it lies in. Sessions in files have a test of their own."""


def tell(path: Path) -> dict[str, Any]:
    """What a stored thing says of itself, as JSON has it."""
    told = KINDS[path.parent.name](path)
    return json.loads(json.dumps(told, default=str))


def _plans(domain: sf.Domain) -> dict[str, Any]:
    add, swap = {"neighbours": "add-remove"}, {"neighbours": "replace-one"}
    pairs, line = sf.marginals(domain, upto=2), sf.prefix(domain, "x")
    union = sf.stack(line, sf.ranges(domain, "x", by=["s"]), sf.identity(domain, "s"))
    places = sf.Hierarchy({"06": ["061", "063"], "36": ["361"]}, levels=["state", "county"], **_OTHER)
    nested = sf.Domain({"place": places, "wages": sf.Bins(edges=[0, 10, 50], **_OTHER), "y": sf.Booleans(**_OTHER)})
    money = sf.stack(money=sf.sums(nested, "wages", by=["y"]), people=sf.hierarchy(nested, "place"))
    small = sf.Domain({"x": sf.Integers(0, 7)})
    own = sf.prefix(small, "x")
    approx, pure, zcdp = sf.approx(1, "1e-6"), sf.pure(1), sf.zcdp("0.5")
    prefix = np.tril(np.ones((8, 8), dtype=np.int64))
    return {
        "residuals": sf.plan(pairs, zcdp, mechanism="marginals", **add),
        "tilted": sf.plan(sf.marginals(domain, order=2, factors={"x": "prefix"}), zcdp, mechanism="marginals", **add),
        "public": sf.plan(pairs, zcdp, public={("s",): [30, 20, 1]}, **add),
        "weighted": sf.plan(pairs, pure, mechanism="marginals", **swap),
        "weighted-add": sf.plan(pairs, pure, **add),
        "orbits": sf.plan(union, approx, **add),
        "stacked": sf.plan(union, pure, mechanism="tree", **add),
        "person": sf.plan(union, pure, person="who", rows_per_person=2, **add),
        "optimum": sf.plan(line, approx, **add),
        "optimum-swap": sf.plan(line, approx, **swap),
        "optimum-pure": sf.plan(line, pure, mechanism="factorization", **add),
        "largest": sf.plan(line, sf.gdp(1), objective="max", **add),
        "roots": sf.plan(own, approx, strategy="square-root", **add),
        "canonical": sf.plan(own, pure, strategy="tree", reconstruction="canonical", **add),
        "given": sf.plan(own, zcdp, strategy=np.eye(8), reconstruction=prefix, noise="discrete-gaussian", **add),
        "plain": sf.plan(pairs, zcdp, lattice="unit", mechanism="gaussian", **add),
        "approximate": sf.plan(own, sf.gdp(1), mechanism="approximate", records=4, **add),
        "adaptive": sf.plan(pairs, approx, mechanism="adaptive", records=900, **add),
        "projection": sf.plan(line, approx, mechanism="projection", records=900, **add),
        "predicates": sf.plan(sf.predicates(domain, [_PREDICATE, "not s == 'a'"]), pure, **add),
        "nested": sf.plan(money, approx, compare=True, **add),
        "wide": sf.plan(sf.prefix(sf.Domain({"x": 1_100}), "x"), approx, mechanism="tree", **add),
        "mwem": sf.plan(pairs, approx, mechanism="mwem", records=900, **add),
        "boosting": sf.plan(pairs, approx, mechanism="boosting", rounds=3, **swap),
    }


def _write(plans: dict[str, Any], domain: sf.Domain, table: sf.Histogram) -> None:
    ledger = sf.Ledger.create(WRITTEN / "ledgers" / "releases.db", total=sf.approx(40, "1e-3"))
    for name, plan in plans.items():
        plan.save(WRITTEN / "plans" / f"{name}.plan")
    for name in ("residuals", "optimum", "projection", "adaptive", "mwem", "weighted-add"):
        sf.release(plans[name], table, ledger=ledger, name=name, out=WRITTEN / "releases" / name)
    whole = sf.load_release(WRITTEN / "releases" / "residuals")
    for body in ("local", "hull"):
        whole.project(body).save(WRITTEN / "releases" / f"residuals-{body}")
    swapped = sf.Ledger.create(WRITTEN / "ledgers" / "swapped.db", total=sf.approx(9, "1e-3"))
    sf.release(plans["boosting"], table, ledger=swapped, name="boosting", out=WRITTEN / "releases" / "boosting")
    sf.session(table, domain, sf.pure(1), neighbours="add-remove", ledger=ledger, mechanism="histogram", name="cells",
               store=WRITTEN / "open" / "cells")  # fmt: skip


def _write_keys() -> None:
    ledger = sf.Ledger.create(WRITTEN / "ledgers" / "keys.db", total=sf.approx(20, "1e-3"), currency="epsilon")
    counts = sf.KeyCounts([*_KEYS, 12], [900, 40, 7, 1, 300, 2])
    add: dict[str, Any] = {"neighbours": "add-remove"}
    made = {
        "hybrid": sf.plan_keys(sf.Keys(), sf.approx(1, "1e-6"), mechanism="hybrid", width=64, records=1_250, **add),
        "count-sketch": sf.plan_keys(sf.Keys(), sf.pure(1), mechanism="count-sketch", width=64, **add),
        "sparse-project": sf.plan_keys(sf.Keys(), sf.gdp(1), mechanism="sparse-project", dimension=61, **add),
        "histogram": sf.plan_keys(sf.Keys(), sf.pure(1), mechanism="histogram", queries=[_KEYS], **add),
        "texts": sf.plan_keys(sf.Keys(kind="text"), sf.pure(1), mechanism="count-sketch", width=32, **add),
    }
    for name, plan in made.items():
        plan.save(WRITTEN / "key-plans" / f"{name}.plan")
        if name != "texts":
            account = None if name == "sparse-project" else ledger  # Gaussian noise has no epsilon to add
            sf.sketch(plan, counts, ledger=account, name=name, out=WRITTEN / "sketches" / f"{name}.sketch")
    lazy: Any = sf.session(counts, sf.Keys(), sf.pure(1), ledger=ledger, mechanism="histogram", name="lazy",
                           store=WRITTEN / "sessions" / "lazy-histogram.db", **add)  # fmt: skip
    for key in _KEYS[:3]:
        lazy.ask([key])
    sparse: Any = sf.session(counts, sf.Keys(), sf.pure(1), ledger=ledger, mechanism="sparse-mw", name="sparse",
                             records=2_000, size=2, updates=3, threshold=100,
                             store=WRITTEN / "sessions" / "sparse-mw.db", **add)  # fmt: skip
    for key in _KEYS[:3]:
        sparse.ask([key])


def _write_talk(domain: sf.Domain, table: sf.Histogram) -> None:
    ledger = sf.Ledger.create(WRITTEN / "ledgers" / "talk.db", total=sf.pure(3))
    pmw: Any = sf.session(table, domain, sf.pure(1), neighbours="add-remove", ledger=ledger, records=600, updates=3,
                          threshold=60, name="pmw", store=WRITTEN / "sessions" / "pmw.db")  # fmt: skip
    for text in (_PREDICATE, "x < 2", "s == 'a'"):
        pmw.ask(text)


def _write_local() -> None:
    small = sf.Domain({"x": sf.Integers(0, 7)})
    for reporter in ("randomized-response", "hadamard"):
        plan = sf.plan_local(sf.prefix(small, "x"), 1, records=300, reporter=reporter)
        plan.save(WRITTEN / "local-plans" / f"{reporter}.plan")
        reports = [sf.respond(plan, {"x": i % 8}) for i in range(300)]
        sf.collect(plan, reports).save(WRITTEN / "local-releases" / f"{reporter}.local")


def main() -> None:
    """Write all files, and beside them what they say."""
    if not sf.__version__.startswith(_EARLIER) or hasattr(sf, "LedgerMismatch"):
        raise SystemExit("these files are what 0.1 wrote: run this by its last commit, with its src before this one's")
    for folder in (*KINDS, "sessions"):
        (WRITTEN / folder).mkdir(parents=True)
    domain = sf.Domain({"x": sf.Integers(0, 4, **_OTHER), "s": sf.Categories(["a", "b"], **_OTHER)})
    table = sf.Histogram([(7 * i * i + 3 * i) % 61 for i in range(math.prod(domain.shape))])
    _write(_plans(domain), domain, table)
    _write_keys()
    _write_talk(domain, table)
    _write_local()
    for page in WRITTEN.rglob("report.html"):
        page.unlink()  # most of it is a drawing library
    said = {f"{kind}/{p.name}": tell(p) for kind in KINDS for p in sorted((WRITTEN / kind).iterdir())}
    (WRITTEN / "said.json").write_text(json.dumps(said, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
