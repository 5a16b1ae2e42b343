"""Lies about releases, as their makers would tell them: files edited, and every hash that follows made anew."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing, suppress
from decimal import Context, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from sfumato import check_forms, check_maps, check_release


class Forged:
    """A copy of a release and of its ledger, to be edited and then published with hashes that fit."""

    def __init__(self, release: Path, ledger: Path, place: Path) -> None:
        place.mkdir()
        self.release, self.ledger = place / release.name, place / ledger.name
        (shutil.copytree if release.is_dir() else shutil.copy)(release, self.release)
        shutil.copy(ledger, self.ledger)
        told = "profile" if (release / "profile.sfumato").exists() else "release"
        self.bundle = self.release / f"{told}.sfumato" if release.is_dir() else self.release
        self.said_in = self.release / f"{told}.json"
        self.doc = check_release.read_release_document(self.bundle)
        self.facts: dict[str, Any] = json.loads(self.said_in.read_text()) if release.is_dir() else {}
        self.anchor = self.doc["provenance"]["anchor"]
        with closing(sqlite3.connect(self.ledger)) as file:
            rows = file.execute("SELECT body FROM lines ORDER BY sequence").fetchall()
        self.lines = [body.decode().split("\n") for (body,) in rows]

    @property
    def plan(self) -> Any:
        return self.doc["plan"]

    @property
    def streamed(self) -> bool:
        return self.plan["~class"] == "StreamPlan"

    @property
    def described(self) -> bool:
        return self.plan["~class"] == "ProfilePlan"

    @property
    def result(self) -> Any:
        """All that came out, as the ledger's hash of it is made."""
        if self.described:
            return [self.doc[k] for k in ("looks", "labels", "label_looks")]
        return self.doc["measurement"]

    @property
    def measured(self) -> Any:
        """The measurement, of several looks the last one, of a stream what is measured in every period."""
        if self.streamed:
            return self.plan["terms"]
        if self.described:
            return self.doc["looks"][-1]["measured"]
        found = self.doc["measurement"]
        return found if isinstance(found, dict) else next(m for m in found[::-1] if m["~class"] == "Measurement")

    @property
    def spend(self) -> list[str]:
        return self.lines[self.doc["provenance"]["sequence"]]

    @property
    def stored(self) -> list[str]:
        return next(line for line in self.lines if line[1:3] == ["released", self.spend[2]])

    def tell_ledger(self) -> None:
        """Let the ledger say what the release says now: its plan, price, unit and result."""
        plan, unit = self.plan, self.plan["unit"]
        event = check_release.stored_event_text(plan["price"])
        within = unit.get("within") or {}
        named = [within[k] for k in ("name", "attribute", "digest") if k in within]
        named += [[*unit["once_per"], unit.get("rows_per_group") or 1]] if unit.get("once_per") else []
        whom = json.dumps([unit["neighbours"]["value"], unit["person"], unit["rows_per_person"], *named])
        told = check_maps.document_fingerprint([plan[k] for k in check_release.HASHED.split() if k in plan])
        before = [Fraction(line[6]) for line in self.lines[1 : int(self.spend[0])] if line[1] == "spend"]
        price = check_release.event_cost(event, self.lines[0][2])
        paid = told + self.spend[3][len(told) :]  # of a stream with the first hash of its store
        self.spend[3:7] = [paid, event, str(price), str((before or [Fraction(0)])[-1] + price)]
        self.spend[10] = whom
        self.stored[3:5] = [paid, event]
        self.stored[9] = told if self.streamed else check_maps.document_fingerprint(self.result)
        self.add_up()

    def add_up(self) -> None:
        """Make the sums of all lines right."""
        spent = Fraction(0)
        for n, line in enumerate(self.lines[1:], 1):
            line[0] = str(n)
            spent += Fraction(line[5]) if line[1] == "spend" else 0
            if line[1] != "named":
                line[6] = str(spent)

    def publish(self, rehash: set[int] | None = None, then: Callable[[Forged], Any] | None = None) -> Forged:
        """Write everything, so that the release and its release.json say what its parts and the ledger say.

        `rehash` are the lines of the ledger whose hashes are made anew: all, unless it is given. `then` edits what
        release.json says, at last.
        """
        hashes = self._write_ledger(rehash)
        proof = self.doc["provenance"]
        if proof["anchor"] == self.anchor:  # else it is a lie of its own
            proof["anchor"] = f"{proof['sequence']}:{[*hashes, '0' * 64][min(proof['sequence'], len(hashes))]}"
        arrays: list[Any] = []
        named = lambda a: arrays.append(a) or {"~array": f"a{len(arrays) - 1}"}  # noqa: E731
        with zipfile.ZipFile(self.bundle, "w") as bundle:
            bundle.writestr("document.json", json.dumps(self.doc, default=named))
            for i, array in enumerate(arrays):
                target = io.BytesIO()
                np.lib.format.write_array(target, np.ascontiguousarray(array), allow_pickle=False)
                bundle.writestr(f"a{i}.npy", target.getvalue())
        if self.facts:
            unit, told = self.plan["unit"], [self.plan[k] for k in check_release.HASHED.split() if k in self.plan]
            self.facts["privacy"] |= {k: unit[k] for k in ("person", "rows_per_person")}
            self.facts["privacy"]["neighbours"] = unit["neighbours"]["value"]
            self.facts["privacy"]["budget"] = _budget(self.plan["budget"])
            self.facts["hashes"]["plan"] = check_maps.document_fingerprint(told)
            with suppress(*check_release.BROKEN, check_release.Cannot):  # what has no form has no words
                self._say()
            self.facts["ledger"] |= {"id": proof["ledger_id"], "anchor": proof["anchor"]}
            self.facts["ledger"]["sequence"] = proof["sequence"]
            if "files" in self.facts:
                self.facts["files"]["release.sfumato"] = hashlib.sha256(self.bundle.read_bytes()).hexdigest()
            if then is not None:
                then(self)
            self.said_in.write_text(json.dumps(self.facts))
        return self

    def _say(self) -> None:
        """Have release.json say in words and by hashes what the plan says now."""
        plan, whom, facts = self.plan, self.plan["unit"], self.facts
        proof = self.doc["provenance"]
        facts |= {k: proof[k] for k in ("name", "created", "snapshot")} | {"table": proof.get("table")}
        facts["versions"] = dict(proof["versions"])
        if self.described:
            facts["hashes"]["result"] = check_maps.document_fingerprint(self.result)
        else:
            self._say_strategy()
        within = whom.get("within") or {}
        named = [within[k] for k in ("name", "attribute", "digest") if k in within]
        facts["privacy"] |= {"within": named} if named else {}
        unit = [whom["neighbours"]["value"], whom["person"], whom["rows_per_person"], *named]
        facts["privacy"]["unit"] = check_release.protection_sentence(unit)
        facts["privacy"]["events"] = [check_release.export_event(check_release.stored_event_text(plan["price"]))]
        budget, exact = plan["budget"], check_forms.read_stored_fraction
        with localcontext(Context(prec=110, Emax=10**9, Emin=-(10**9))):
            stated = (budget["kind"], *(exact(budget.get(k) or 0) for k in ("parameter", "delta", "thresholds")))
            facts["privacy"]["statement"] = check_release.budget_sentence(*stated)

    def _say_strategy(self) -> None:
        """Likewise of strategy and noise."""
        plan, facts = self.plan, self.facts
        hashed = {"workload": plan["workload"], "domain": plan["workload"]["domain"]}
        hashed["strategy"] = plan["course"] if "course" in plan else plan["strategy"]
        facts["hashes"] |= {name: check_maps.document_fingerprint(value) for name, value in hashed.items()}
        impossible = hashed["domain"].get("impossible")
        facts |= {"impossible": impossible} if impossible else {}
        if "noise" in plan:
            noise, found, scale = plan["noise"], plan["sensitivity"], ("sigma", "scale")["scale" in plan["noise"]]
            text = str(check_forms.read_stored_fraction(noise[scale]))
            facts["mechanism"] |= {"noise": {"law": noise["~class"], "scale": text}}
            norm, value = (
                ("L1", "L2 squared")[found["power"] - 1],
                str(check_forms.read_stored_fraction(found["value"])),
            )
            facts["mechanism"]["sensitivity"] = {"norm": norm, "value": value, "exact": found["exact"]}
        facts["mechanism"]["name"] = plan["mechanism"]
        facts["mechanism"] |= {k: plan[k] for k in ("records", "notes") if "course" in plan}

    def _write_ledger(self, rehash: set[int] | None) -> list[str]:
        with closing(sqlite3.connect(self.ledger)) as file:
            schema = [sql for (sql,) in file.execute("SELECT sql FROM sqlite_schema")]
            pragmas = {p: file.execute(f"PRAGMA {p}").fetchone()[0] for p in ("application_id", "user_version")}
            old = [digest for (digest,) in file.execute("SELECT hash FROM lines ORDER BY sequence")]
        self.ledger.unlink()
        hashes = ["sfumato ledger"]
        for n, line in enumerate(self.lines):
            right = hashlib.sha256((hashes[-1] + "\n" + "\n".join(line)).encode()).hexdigest()
            hashes.append(right if rehash is None or n in rehash else old[n])
        with closing(sqlite3.connect(self.ledger, isolation_level=None)) as file:
            file.execute("PRAGMA synchronous=OFF")  # nothing of a test needs to outlive the machine
            for name, value in pragmas.items():
                file.execute(f"PRAGMA {name}={value}")
            for statement in schema:
                file.execute(statement)
            for n, line in enumerate(self.lines):
                file.execute("INSERT INTO lines VALUES (?, ?, ?)", (n, "\n".join(line).encode(), hashes[n + 1]))
        return hashes[1:]


def _budget(doc: Any) -> dict[str, str]:
    name = {"pure": "epsilon", "approx": "epsilon", "zcdp": "rho", "gdp": "mu"}[doc["kind"]]
    given = {name: str(check_forms.read_stored_fraction(doc["parameter"]))}
    more = {k: doc[k] for k in ("delta", "thresholds") if doc.get(k) is not None}
    return given | {k: str(check_forms.read_stored_fraction(v)) for k, v in more.items()}


def verdict(
    release: Path, ledger: Path, anchor: str | None = None, earlier: Path | None = None
) -> tuple[str, set[str], list[str]]:
    """What the checker says: its verdict, the names of the checks that failed, and every reason."""
    found = check_release.Check(release, ledger, anchor, earlier)
    return found.verdict, {name for name, _ in found.wrong}, [*map(": ".join, found.wrong), *found.unknown]
