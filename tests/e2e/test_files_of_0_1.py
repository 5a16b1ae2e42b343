"""Every kind of file that sfumato 0.1 wrote loads, and says what 0.1 said of it (tests/support/old.py wrote them)."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

import sfumato as sf
from sfumato.sessions import session_status
from support.old import KINDS, WRITTEN, tell

# what 0.1 is asked, and this version, is asked in the words of 0.1
pytestmark = pytest.mark.filterwarnings("ignore:.*(is of 0.1|no longer on the public page).*:DeprecationWarning")

SAID: dict[str, dict[str, Any]] = json.loads((WRITTEN / "said.json").read_text(encoding="utf-8"))
SESSIONS = sorted(p.name for p in (WRITTEN / "sessions").iterdir())
SEVERAL_UNITS = {"plans/nested.plan": {"rmse": None}}
"""What is said otherwise today, on purpose: records and wages have no common error."""
RELATIVE, ABSOLUTE = 1e-7, 1e-6  # of sums in floating-point numbers, by kernel
MOST_BYTES = 2**20
REFUSED = (
    r"^this (conversation|histogram) was begun by sfumato 0\.1, and only 0\.1 can .*stays valid.*open another one$"
)


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
def kept(tmp_path: Path) -> Path:
    """The files in a folder where nothing else is, open to their owner alone."""
    folder = tmp_path / "written"
    shutil.copytree(WRITTEN, folder)
    for store in (folder / "sessions").iterdir():
        store.chmod(0o600)
    return folder


@pytest.mark.parametrize("name", SAID)
def test_a_file_of_0_1_loads_and_says_what_0_1_said(name: str, kept: Path) -> None:
    """Mutants: a class or field renamed; a field without a default added to a plan; `gap` of Orbits hashed while it is
    0, as it was until this test came: the plan had another fingerprint, and its paid release was not found."""
    assert alike(SAID[name] | SEVERAL_UNITS.get(name, {}), tell(kept / name))


def test_every_kind_of_file_is_there() -> None:
    """Mutants: a kind taken out; what 0.1 said cut to nothing; a path of the machine that wrote them."""
    files = {f"{kind}/{p.name}" for kind in KINDS for p in (WRITTEN / kind).iterdir()}
    assert files == set(SAID)
    assert all(len(said) >= 2 for said in SAID.values())
    assert len(SESSIONS) == 3
    assert {n.partition("/")[0] for n in SAID} == set(KINDS)
    every = [p for p in WRITTEN.rglob("*") if p.is_file()]
    assert sum(p.stat().st_size for p in every) < MOST_BYTES
    for path in every:
        content = path.read_bytes()
        assert b"/tmp/" not in content, path
        assert b"/home/" not in content, path
        assert b"/work/" not in content, path


def test_a_stored_plan_is_stored_again_as_the_same_plan(kept: Path, tmp_path: Path) -> None:
    """Mutants: a field that is read and not written; a fingerprint that hangs on which version wrote the file."""
    for path in sorted((kept / "plans").iterdir()):
        again = tmp_path / path.name
        sf.load(path).save(again)
        assert sf.load(again).fingerprint == SAID[f"plans/{path.name}"]["fingerprint"]


@pytest.mark.parametrize("name", ["residuals", "optimum", "projection", "adaptive", "mwem", "weighted-add"])
def test_what_0_1_released_is_found_again_and_costs_nothing(name: str, kept: Path) -> None:
    """Mutants: another fingerprint of an old plan, so that NameTaken; a second debit."""
    path = kept / "ledgers" / "releases.db"
    ledger = sf.Ledger.upgrade(path)
    before = ledger.anchor
    plan = sf.load(kept / "plans" / f"{name}.plan")
    again = sf.release(plan, "nowhere.csv", ledger=ledger, name=name, out=kept / "releases" / name)
    assert alike(SAID[f"releases/{name}"]["answers"], again.answers.tolist())
    assert ledger.anchor == before


@pytest.mark.parametrize("upgraded", [False, True], ids=["ledger as it was", "ledger upgraded"])
@pytest.mark.parametrize("name", SESSIONS)
def test_half_finished_sessions_are_refused_with_what_to_do(name: str, kept: Path, upgraded: bool) -> None:
    """A session kept in a file by 0.1 goes on with 0.1 alone; the refusal says so, and nothing is changed.

    Mutants: a file called damaged; a file that is written by looking at it; a session opened anew in its place.
    """
    store = kept / "sessions" / name
    ledger = kept / "ledgers" / ("talk.db" if name == "pmw.db" else "keys.db")
    if upgraded:
        sf.Ledger.upgrade(ledger)
    before, paid = store.read_bytes(), sf.Ledger(ledger).anchor
    for use in (lambda: session_status(store), lambda: sf.load(store, ledger=ledger, source=sf.Histogram([1]))):
        with pytest.raises(sf.errors.LedgerError, match=REFUSED) as refusal:
            use()
        assert type(refusal.value) is sf.errors.LedgerError
    assert store.read_bytes() == before
    assert sf.Ledger(ledger).anchor == paid


def test_a_histogram_of_0_1_goes_on(kept: Path) -> None:
    """A session over cells is a release, and answers on. Mutant: cells read in another order."""
    session: Any = sf.load(kept / "open" / "cells", ledger=None)
    cells = [session.ask(f"x == {x} and s == '{s}'").value for x in range(5) for s in "ab"]
    said = SAID["open/cells"]["asked"][0]
    assert math.isclose(cells[7] + cells[9], said, rel_tol=RELATIVE)
