"""`sfumato check-release` and the file that it runs, alone and beside a release."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from sfumato import check_release
from sfumato.privacy.ledger import Ledger
from support.typed import Run, release


def test_a_release_is_checked_and_a_changed_one_is_not_accepted(run: Run) -> None:
    assert release(run, "first", "spec.toml", "--with-checker").code == 0
    command = ("check-release", "out/first", "--ledger", "budget.db")
    done = run(*command)
    assert (done.code, done.out, done.err) == (0, "accepted\n", "")
    anchor = Ledger("budget.db").verify().anchor
    assert run(*command, "--anchor", anchor).code == 0
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


def test_the_file_beside_a_release_runs_alone(run: Run) -> None:
    """Mutant: an import of sfumato in the file, which nobody who reads a release needs to have."""
    assert release(run, "first", "spec.toml", "--with-checker").code == 0
    beside = Path("out/first/check_release.py")
    assert beside.read_bytes() == Path(check_release.__file__).read_bytes()
    blocked = "import sys; sys.modules['sfumato'] = None; sys.argv = sys.argv[1:]; import runpy; "
    blocked += "runpy.run_path(sys.argv[0], run_name='__main__')"
    asked = [sys.executable, "-I", "-c", blocked, str(beside), "out/first", "--ledger", "budget.db"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "accepted\n", "")
