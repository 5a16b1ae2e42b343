"""`sfumato check-release` and the file that it runs, alone and beside a release."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import sfumato as sf
from sfumato import check_forms, check_maps, check_release
from sfumato.privacy.ledger import Ledger
from support.typed import Run, release


def test_a_release_is_checked_and_a_changed_one_is_not_accepted(run: Run) -> None:
    assert release(run, "first", "spec.toml", "--with-checker").code == 0
    command = ("check-release", "out/first", "--ledger", "budget.db")
    done = run(*command)
    verdict, *lines = done.out.splitlines()
    assert (done.code, verdict, done.err) == (0, "accepted", "")
    names = ["forms", "maps", "total", "price", "files", "chain", "entry", "unit"]
    assert [line.partition(":")[0] for line in lines[:-1]] == [f"checked {n}" for n in names], (
        "what was checked is said"
    )
    assert lines[-1].startswith("trusted as no file shows it: that samplers draw the law")
    anchor = Ledger("budget.db").verify().anchor
    held = run(*command, "--anchor", anchor)
    assert held.code == 0
    assert "checked anchor: the ledger goes on" in held.out
    assert json.loads(run(*command, "--json").out) == {"verdict": "accepted", "wrong": [], "cannot_check": []}

    other = run(*command, "--anchor", f"1:{'0' * 64}", "--json")
    assert other.code == 2
    assert json.loads(other.out) == {
        "verdict": "rejected",
        "wrong": [["anchor", "the ledger does not go on from it"]],
        "cannot_check": [],
    }
    path = Path("out/first/measurements.npz")
    path.write_bytes(path.read_bytes() + b"0")
    changed = run(*command)
    assert changed.code == 2
    assert changed.out == "rejected\nfiles: measurements.npz was changed\n"


def test_the_files_beside_a_release_run_alone(run: Run) -> None:
    """Mutant: an import of sfumato in one of them, which nobody who reads a release needs to have."""
    assert release(run, "first", "spec.toml", "--with-checker").code == 0
    beside = Path("out/first/check_release.py")
    assert beside.read_bytes() == Path(check_release.__file__).read_bytes()
    for below in (check_maps, check_forms):
        path = Path(below.__file__)
        assert beside.with_name(path.name).read_bytes() == path.read_bytes()
    blocked = "import sys; sys.modules['sfumato'] = None; sys.argv = sys.argv[1:]; import runpy; "
    blocked += "sys.path.insert(0, 'out/first'); "
    blocked += "runpy.run_path(sys.argv[0], run_name='__main__')"
    asked = [sys.executable, "-I", "-c", blocked, str(beside), "out/first", "--ledger", "budget.db"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[0], done.stderr) == (0, "accepted", "")


def test_a_stream_is_checked_and_held_against_what_it_published_before(run: Run) -> None:
    plan = sf.plan(sf.marginals(sf.Domain({"a": 3}), upto=1), sf.gdp(1), neighbours="add-remove", periods=4)
    stream = sf.open(plan, ledger=sf.Ledger.create("paid.db", total=sf.gdp(1)), name="it", store="it.stream")
    for day in ("1", "2", "3"):
        stream.append(sf.Histogram([1, 2, 3]), day)
        stream.release().save(f"{day}.sfumato")
    command = ("check-release", "3.sfumato", "--ledger", "paid.db")
    alone = run(*command)
    assert (alone.code, alone.out.splitlines()[0]) == (0, "accepted")
    assert "believed that these values came out, in this order" in alone.out
    held = run(*command, "--earlier", "2.sfumato").out.splitlines()
    assert held[0] == "accepted"
    assert any(line.startswith("checked earlier: a stream goes on") for line in held)
    back = run("check-release", "2.sfumato", "--ledger", "paid.db", "--earlier", "3.sfumato")
    assert back.code == 2
    assert back.out == "rejected\nearlier: other periods, or in another order, were published before\n"
