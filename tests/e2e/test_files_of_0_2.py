"""Every kind of file that sfumato 0.2 wrote loads, says what 0.2 said of it, and goes on (tests/support/written.py)."""

from __future__ import annotations

import json
import math
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato import check_forms
from sfumato.privacy.accounting import PureEvent
from support.forging import verdict
from support.typed import Run
from support.written import KEYS, KINDS, WRITTEN, classes_in, documents_in, tell

SAID: dict[str, dict[str, Any]] = json.loads((WRITTEN / "said.json").read_text(encoding="utf-8"))
RELATIVE, ABSOLUTE = 1e-7, 1e-6  # of sums in floating-point numbers, by kernel
MOST_BYTES = 2**20
PAID = [name for name in SAID if name.startswith(("releases/", "sketches/", "stream-releases/"))]
ALONE = ["sketches/sparse-project.sketch"]
"""Paid from an account of its own, which ended with it."""
SINCE = {
    "CellSums",
    "Sliced",
    "Amounts",
    "ApproxGaussianEvent",
    "Expected",
    "Kinds",
    "Profile",
    "ProfileLook",
    "ProfilePlan",
    "StepOpening",
    "LabelLook",
    "LabelPlan",
    "LabelSelection",
    "LabelsFound",
    "Compound",
    "Measure",
    "MomentPart",
    "MomentTables",
    "Moments",
    "ValueCounts",
}  # classes that later versions store


def alike(then: Any, now: Any) -> bool:
    """Equal, and floats up to a rounding."""
    if isinstance(then, float) and isinstance(now, (int, float)):
        return then == now or math.isclose(then, now, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    if isinstance(then, list) and isinstance(now, list):
        return len(then) == len(now) and all(map(alike, then, now))
    if isinstance(then, dict) and isinstance(now, dict):
        return then.keys() == now.keys() and all(alike(then[k], now[k]) for k in then)
    return type(then) is type(now) and then == now


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files in a folder where nothing else is, those of the custodian open to their owner alone."""
    folder = tmp_path / "written"
    shutil.copytree(WRITTEN, folder)
    for kind in ("sessions", "streams"):
        for store in (folder / kind).iterdir():
            store.chmod(0o600)
    monkeypatch.chdir(folder)
    return folder


def ledger_of(kept: Path, owner: str) -> Path:
    """The ledger of this name, as a release says it."""
    (found,) = [p for p in sorted((kept / "ledgers").iterdir()) if SAID[f"ledgers/{p.name}"]["id"] == owner]
    return found


@pytest.mark.parametrize("name", SAID)
def test_a_file_of_0_2_loads_and_says_what_0_2_said(name: str, kept: Path) -> None:
    """Mutants: a class or field renamed; a field without a default added to a plan; a field that is hashed while it
    says nothing, so that a paid release is not found; a constant of a decoder changed."""
    assert alike(SAID[name], tell(kept / name))


def test_every_kind_of_file_is_there() -> None:
    """Mutants: a kind taken out; what 0.2 said cut to nothing; a path of the machine that wrote them."""
    assert {name.partition("/")[0] for name in SAID} == set(KINDS)
    assert all((WRITTEN / name).exists() for name in SAID)
    assert all(SAID.values())
    every = [p for p in WRITTEN.rglob("*") if p.is_file()]
    assert sum(p.stat().st_size for p in every) < MOST_BYTES
    for path in every:
        for content in (path.read_bytes(), *(text.encode() for text in documents_in(path))):
            assert not any(home in content for home in (b"/tmp/", b"/home/", b"/work/", b"/root/")), path


def test_every_class_that_a_file_may_name_is_in_one_of_them() -> None:
    """Mutants: a kind of release taken out; `rest.zip` left out; a class of FORMS that nothing writes."""
    found = {name for path in WRITTEN.rglob("*") if path.is_file() for name in classes_in(path)}
    assert set(check_forms._FORMS) - SINCE == found


def test_a_stored_plan_is_stored_again_as_the_same_plan(kept: Path, tmp_path: Path) -> None:
    """Mutants: a field that is read and not written; a fingerprint that hangs on which version wrote the file."""
    for kind in ("plans", "key-plans", "local-plans", "session-plans"):
        for path in sorted((kept / kind).iterdir()):
            again = tmp_path / path.name
            sf.load(path).save(again)
            assert sf.load(again).fingerprint == SAID[f"{kind}/{path.name}"]["fingerprint"]


@pytest.mark.parametrize("name", PAID)
def test_a_stranger_accepts_what_0_2_released(name: str, kept: Path) -> None:
    """With the ledger and the anchor of then. Mutants: a kind of plan that the checker no longer reads; another price
    of the same map; what `release.json` says computed in another way."""
    found: Any = sf.load(kept / name)
    if name in ALONE:
        assert found.provenance.one_shot
        return
    ledger = ledger_of(kept, found.provenance.ledger_id)
    anchor = SAID[f"ledgers/{ledger.name}"]["anchor"]
    place = kept / name
    if place.is_dir() and not (place / "answers.parquet").exists():
        place /= "release.sfumato"  # of most the files that say the same again were not kept
    assert verdict(place, ledger, anchor) == ("accepted", set(), [])


@pytest.mark.parametrize("version", ["0.2.0", "0.3.0"])
def test_releases_load_by_the_version_that_wrote_them_and_by_a_later_one(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: a release that another version wrote is refused."""
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: version if name == "sfumato" else real(name))
    for path in sorted((WRITTEN / "releases").iterdir()):
        assert sf.load(path).plan.fingerprint == SAID[f"releases/{path.name}"]["fingerprint"]


def test_a_bound_that_was_proved_before_is_no_other_word_and_a_higher_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the version that wrote the file. Mutant: whatever a file says of other laws is believed."""
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "0.2.0" if name == "sfumato" else real(name))
    folder = tmp_path / "residuals"
    shutil.copytree(WRITTEN / "releases" / "residuals", folder)
    said = json.loads((folder / "release.json").read_text(encoding="utf-8"))
    assert sf.load(folder).plan.any_noise_bound > said["error"]["any_noise_bound"]
    said["error"]["any_noise_bound"] = said["error"]["lower_bound"]
    (folder / "release.json").write_text(json.dumps(said), encoding="utf-8")
    with pytest.raises(sf.errors.InvalidInput, match="something else of error"):
        sf.load(folder)


def test_the_command_accepts_one(kept: Path, run: Run) -> None:
    """Mutant: a command that looks for files that 0.2 did not write."""
    ledger = ledger_of(kept, SAID["releases/residuals"]["ledger"][0])
    assert run("check-release", kept / "releases" / "residuals", "--ledger", ledger).code == 0


@pytest.mark.parametrize("name", [n for n in PAID if n.startswith("releases/") and "plans" not in n])
def test_what_0_2_released_is_found_again_and_costs_nothing(name: str, kept: Path) -> None:
    """Mutants: another fingerprint of an old plan, so that NameTaken; a second debit."""
    stored: Any = sf.load(kept / name)
    ledger = sf.Ledger(ledger_of(kept, stored.provenance.ledger_id))
    before, whose = ledger.anchor, stored.provenance.name
    again = sf.release(stored.plan, "nowhere.csv", ledger=ledger, name=whose, out=kept / name, table="people")
    assert again.answers.tolist() == stored.answers.tolist()
    assert ledger.anchor == before


@pytest.mark.parametrize("name", [n for n in SAID if n.startswith("ledgers/")])
def test_a_ledger_of_0_2_goes_on(name: str, kept: Path) -> None:
    """Mutants: hashes made anew, so that an anchor of then finds nothing; another sum; the unit not kept."""
    ledger, said = sf.Ledger(kept / name), SAID[name]
    assert ledger.verify(said["anchor"]).anchor == said["anchor"]
    before = ledger.spent
    assert ledger.unit is not None
    receipt = ledger.debit("later", "a" * 64, PureEvent(sf.pure("1e-6").parameter), ledger.unit, ledger.table)
    ledger.mark_released(receipt, "b" * 64)
    assert ledger.spent > before
    assert sf.Ledger(kept / name).verify(said["anchor"]).entries == len(said["entries"]) + 2
    other = "replace-one" if ledger.unit.neighbours is sf.Neighbours.ADD_REMOVE else "add-remove"
    with pytest.raises(sf.errors.LedgerMismatch):
        ledger.debit("other", "a" * 64, PureEvent(sf.pure(1).parameter), type(ledger.unit)(other), ledger.table)


@pytest.mark.parametrize("name", ["ages", "lazy", "sparse"])
def test_sessions_of_0_2_go_on_at_no_cost(name: str, kept: Path) -> None:
    """Mutants: another digest of the same table; steps read in another order; noise drawn again for a known key."""
    ledger = kept / "ledgers" / ("talk.db" if name == "ages" else "keys.db")
    source: Any = sf.KeyCounts([*KEYS, 12], [900, 40, 7, 1, 300, 2])
    if name == "ages":
        source = sf.Source(kept / "people.csv", delimiter=";")
    before = sf.Ledger(ledger).anchor
    with sf.load(kept / "sessions" / f"{name}.db", ledger=ledger, source=source) as session:
        first = [session.ask("age < 4" if name == "ages" else [KEYS[0]]).value for _ in range(2)]
        more = session.ask("sex == 'm' and edu < 1" if name == "ages" else [KEYS[4]])
    # a question that the hypothesis missed changes it: asked again, it may answer another number
    assert name == "ages" or first[0] == first[1]
    assert all(map(math.isfinite, (*first, more.value)))
    assert sf.Ledger(ledger).anchor == before


@pytest.mark.parametrize("name", ["plain", "buffers", "banded"])
def test_streams_of_0_2_go_on_at_no_cost(name: str, kept: Path) -> None:
    """Mutants: a state of the filter read in another order; a period looked at twice; people forgotten."""
    ledger = kept / "ledgers" / ("streams.db" if name == "plain" else "streams-persons.db")
    before, said = sf.Ledger(ledger).anchor, SAID[f"streams/{name}.stream"]
    with sf.load(kept / "streams" / f"{name}.stream", ledger=ledger, anchor=said["anchor"]) as stream:
        stream.append(_month(stream.plan, name), "month 3")
        stream.append(_month(stream.plan, name), "month 2")  # what was published of it is said again
        made = stream.release()
    assert list(made.periods) == ["month 1", "month 2", "month 3"]
    earlier: Any = sf.load(kept / "stream-releases" / f"{name}.sfumato")
    assert alike(earlier.totals.answers.tolist(), made.between("month 1", "month 2").answers.tolist())
    assert sf.Ledger(ledger).anchor == before


def _month(plan: Any, name: str) -> Any:
    rng = np.random.default_rng(3)
    if name == "plain":
        return sf.Histogram(rng.poisson(9, plan.workload.domain.shape))
    import pandas as pd

    rows = {n: rng.integers(0, 4, 40) for n in ("age", "edu")} | {"sex": rng.choice(["f", "m"], 40)}
    return pd.DataFrame(rows | {"who": rng.integers(0, 30, 40)})
