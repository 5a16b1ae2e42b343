"""The whole road over many tables, in a process of its own: `python walk.py CASES.json`, in an empty folder.

Clock and ledger id stand still, and what the curator measures is replaced by fixed values behind the look:
whatever still differs between two tables would have leaked past the noise.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

# Run as a script, this folder is on the path.
from patching import put

import sfumato as sf
from sfumato.curator import Curator
from sfumato.privacy import debits as entries
from sfumato.privacy.ledger import ledger as granting
from sfumato.releases import released as provenance

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def stand_still() -> None:
    """Fix the clock, the ledger's id and the measured values, the noisy number of persons who were cut among them."""
    look, measure = Curator._look, Curator.measure

    def fixed(self: Curator, *arguments: Any) -> Any:
        found = look(self, *arguments)
        return replace(found, values=tuple(np.arange(v.size) * 1000 for v in found.values))

    def counted(self: Curator, *arguments: Any, **options: Any) -> Any:
        found, receipt = measure(self, *arguments, **options)
        return (found if found.cut is None else replace(found, cut=7000)), receipt

    put(Curator, "_look", fixed)
    put(Curator, "measure", counted)
    for room in (entries, granting):
        put(room, "utc_timestamp", lambda: NOON.isoformat(timespec="seconds"))
    put(granting, "os", SimpleNamespace(urandom=bytes))
    put(provenance, "datetime", SimpleNamespace(datetime=SimpleNamespace(now=lambda _: NOON), UTC=UTC))


def plans() -> dict[str, sf.Plan]:
    """What the cases ask: policies that add a cell, clamp and drop; persons; both relations and laws."""
    other: dict[str, Any] = {"outside": "other", "missing": "other"}
    drop: dict[str, Any] = {"outside": "drop", "missing": "drop"}
    mixed = sf.Domain(
        {"x": sf.Integers(0, 9, 5, outside="clamp", missing="drop"), "y": sf.Categories(["a", "b"], **other)}
    )
    dropping = sf.Domain({"x": sf.Bins([0, 2, 5, 9], **drop), "y": sf.Booleans(**drop)})
    one, two = (sf.marginals(d, upto=2) for d in (mixed, dropping))
    table = sf.marginals(sf.Domain({"y": mixed["y"]}), order=1)
    return {
        "mixed": sf.plan(one, sf.gdp(1), neighbours="add-remove", mechanism="marginals"),
        "dropping": sf.plan(two, sf.pure(1), neighbours="add-remove", mechanism="laplace"),
        "persons": sf.plan(one, sf.gdp(1), neighbours="add-remove", person="who", rows_per_person=2),
        "swapped": sf.plan(table, sf.gdp(1), neighbours="replace-one", person="who"),
        "replaced": sf.plan(table, sf.gdp(1), neighbours="replace-one", mechanism="marginals"),
    }


def show(*things: object) -> None:
    sys.stdout.write(" ".join(map(str, things)) + "\n")


def walk(cases: list[dict[str, Any]]) -> None:
    """Release every case and print all that comes of it."""
    made = plans()
    for name in made:  # a ledger each: one is for one privacy unit
        sf.Ledger.create(f"{name}.db", total=sf.gdp(10**6))
    for number, case in enumerate(cases):
        file = Path(case["file"])
        file.write_bytes(case["content"].encode("latin-1"))
        out = f"r{number}" if case["out"] else None
        try:
            found = sf.release(made[case["plan"]], str(file), ledger=f"{case['plan']}.db", name=f"n{number}", out=out)
            show(number, repr(found), found, found.measurement, found.measurement.total)
            show(found.frame(), found.answers.tolist(), found.intervals().low.tolist())
        except sf.SfumatoError as error:
            show(number, type(error).__name__, error, repr(error.__context__))
        file.unlink()
    for name in made:
        ledger = sf.Ledger(f"{name}.db")
        show(repr(ledger).partition(":")[2], ledger.entries(), ledger.verify())


if __name__ == "__main__":
    stand_still()
    walk(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
