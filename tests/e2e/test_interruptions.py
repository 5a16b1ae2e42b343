"""Crashes, full disks, other processes: what was paid for is recorded, and nothing else leaves a trace."""

from __future__ import annotations

import json
import resource
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import sfumato as sf
from sfumato.privacy.noise import RoundedGaussian
from sfumato.releases import files
from support.wall import COUNTS, TABLE, WORK, Untouchable, plan


@pytest.fixture
def ledger(tmp_path: Path) -> sf.Ledger:
    return sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(100))


def unreleased(folder: Path) -> list[str]:
    """As another process reads it."""
    return [e.name for e in sf.Ledger(folder / "l.db").unreleased()]


def names(folder: Path) -> set[str]:
    return {f.name for f in folder.iterdir()}


# ---- names and stored releases -----------------------------------------------------------------------------


def test_a_stored_release_is_read_back_free_and_without_the_table(ledger: sf.Ledger, tmp_path: Path) -> None:
    """Mutants: new noise at the second call; a second debit; the table opened although nothing is measured; an old
    release returned for a new snapshot."""
    first = sf.release(plan(), TABLE, ledger=ledger, name="n", out=tmp_path / "r")
    lines = ledger.entries()
    again = sf.release(plan(), Untouchable(), ledger=tmp_path / "l.db", name="n", out=tmp_path / "r")
    assert [v.tolist() for v in again.measurement.values] == [v.tolist() for v in first.measurement.values]
    assert again.provenance == first.provenance
    assert ledger.entries() == lines
    for other, out in ((plan(sf.gdp("0.5")), tmp_path / "r"), (plan(), None), (plan(), tmp_path / "elsewhere")):
        with pytest.raises(sf.errors.NameTaken):
            sf.release(other, Untouchable(), ledger=ledger, name="n", out=out)
    with pytest.raises(sf.errors.NameTaken, match="snapshot None"):
        sf.release(plan(), Untouchable(), ledger=ledger, name="n", out=tmp_path / "r", snapshot="2027")
    assert ledger.entries() == lines


def test_another_release_of_the_same_plan_is_not_taken_for_the_stored_one(ledger: sf.Ledger, tmp_path: Path) -> None:
    """Mutant: only the plan and the line are compared; a release of a forked ledger then passes for this one's."""
    found = plan()
    shutil.copy(tmp_path / "l.db", tmp_path / "fork.db")
    sf.release(found, TABLE, ledger=ledger, name="n", out=tmp_path / "r")
    sf.release(found, TABLE, ledger=tmp_path / "fork.db", name="n", out=tmp_path / "forked")
    other = sf.Ledger.create(tmp_path / "other.db", total=sf.gdp(100))
    sf.release(found, TABLE, ledger=other, name="n", out=tmp_path / "foreign")
    for folder in ("forked", "foreign"):
        with pytest.raises(sf.errors.InvalidInput, match="another release"):
            sf.release(found, Untouchable(), ledger=ledger, name="n", out=tmp_path / folder)


# ---- interrupted after the debit ---------------------------------------------------------------------------


def _interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_interrupted_before_it_is_stored(ledger: sf.Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: a draft, or a folder made for it, left behind; a name that is free again although it was paid for; an
    end without a word of what was spent."""
    with monkeypatch.context() as patch:
        patch.setattr(files, "write_document", _interrupt)
        with pytest.raises(sf.errors.NotWritten, match=r"the budget is spent .entry 1. .*interrupted"):
            sf.release(plan(), TABLE, ledger=ledger, name="n", out=tmp_path / "new/r")
    assert unreleased(tmp_path) == ["n"]
    assert ledger.spent == 1
    assert names(tmp_path) == {"l.db"}
    with pytest.raises(sf.errors.NameTaken, match="never stored"):
        sf.release(plan(), Untouchable(), ledger=ledger, name="n", out=tmp_path / "new/r")


def test_interrupted_before_it_is_recorded(ledger: sf.Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a stored release that stays listed as unreleased."""
    with monkeypatch.context() as patch:
        patch.setattr(sf.Ledger, "mark_released", _interrupt)
        with pytest.raises(KeyboardInterrupt, match="complete in"):
            sf.release(plan(), TABLE, ledger=ledger, name="n", out=tmp_path / "r")
    assert unreleased(tmp_path) == ["n"]
    stored = sf.load(tmp_path / "r")
    again = sf.release(plan(), Untouchable(), ledger=ledger, name="n", out=tmp_path / "r")
    assert (again.answers == stored.answers).all()
    assert unreleased(tmp_path) == []
    assert ledger.entries()[0].result_hash == stored.result_hash
    assert ledger.spent == 1


def test_interrupted_while_it_is_written(ledger: sf.Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C, or SIGTERM where it is handled, in the middle of writing: writing ends, and then the signal acts.

    Mutants: an interrupt that acts at once, and a draft thrown away; one that is swallowed, so that a loop of releases
    goes on; a handler that stays.
    """
    real = files.write_arrays

    def struck(*args: Any) -> None:
        signal.raise_signal(number)
        real(*args)

    monkeypatch.setattr(files, "write_arrays", struck)
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    number = signal.SIGINT
    with pytest.raises(KeyboardInterrupt, match=r"entry 1.*is complete in"):
        sf.release(plan(), TABLE, ledger=ledger, name="n", out=tmp_path / "r")

    def ended(given: int, _: object) -> None:
        raise SystemExit(128 + given)

    signal.signal(signal.SIGTERM, ended)
    number = signal.SIGTERM
    try:
        with pytest.raises(SystemExit, match="143"):
            sf.release(plan(), TABLE, ledger=ledger, name="m", out=tmp_path / "s")
        assert signal.getsignal(signal.SIGTERM) is ended
    finally:
        signal.signal(signal.SIGTERM, before[signal.SIGTERM])
    assert {n: signal.getsignal(n) for n in before} == before
    assert unreleased(tmp_path) == []
    assert [sf.load(tmp_path / r).provenance.sequence for r in ("r", "s")] == [1, 3]
    assert names(tmp_path) == {"l.db", "r", "s"}


def test_interrupted_while_it_is_projected(ledger: sf.Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was paid for is stored as it came out. Mutant: it is lost for want of a projection that costs nothing."""
    monkeypatch.setattr(sf.Release, "project", _interrupt)
    made = sf.plan(WORK, sf.gdp(1), neighbours="add-remove", mechanism="projection", records=64)
    assert made.body is not None
    with pytest.raises(KeyboardInterrupt, match="is complete in"):
        sf.release(made, TABLE, ledger=ledger, name="n", out=tmp_path / "r")
    assert unreleased(tmp_path) == []
    assert sf.load(tmp_path / "r").projection is None
    with pytest.raises(sf.errors.NotWritten, match="entry 3"):
        sf.release(made, TABLE, ledger=ledger, name="m")


def test_interrupted_between_the_debit_and_the_noise(ledger: sf.Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: an end that says nothing of what was spent; nothing was spent, and it says that something was."""
    monkeypatch.setattr(RoundedGaussian, "sample", _interrupt)
    with pytest.raises(sf.errors.NotWritten, match=r"entry 1.*interrupted"):
        sf.release(plan(), TABLE, ledger=ledger, name="n")
    monkeypatch.setattr(sf.Ledger, "expect", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        sf.release(plan(), TABLE, ledger=ledger, name="m")
    assert ledger.spent == 1


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import sfumato as sf
from sfumato.releases import files
from support.wall import TABLE, plan
def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)
setattr(files, sys.argv[2], killed)
sf.release(plan(), TABLE, ledger="l.db", name="n", out="r")
"""


@pytest.mark.parametrize("step", ["write_arrays", "_write_release_json", "sync_folder"])
def test_killed_while_it_is_written_the_same_command_finishes_it(step: str, ledger: sf.Ledger, tmp_path: Path) -> None:
    """What lies beside is stored, of its own noise, and nobody else takes it away.

    Mutants: a leftover that is not looked for; one that the next release to the same place, or under another name,
    takes away; one of another entry taken for it; a second debit; one that stays when it is stored.
    """
    call = [sys.executable, "-c", KILLED, str(Path(__file__).parents[1]), step]
    assert subprocess.run(call, cwd=tmp_path, check=False).returncode == -signal.SIGKILL
    (left,) = [n for n in names(tmp_path) if n.endswith(".paid")]
    whole = files.read_bundle(tmp_path / left / "release.sfumato")
    sf.release(plan(), TABLE, ledger=ledger, name="m", out=tmp_path / "r")
    shutil.rmtree(tmp_path / "r")
    sf.release(plan(), TABLE, ledger=None, out=tmp_path / "r")
    shutil.rmtree(tmp_path / "r")
    with pytest.raises(sf.errors.NameTaken, match="though never stored"):
        sf.release(plan(), Untouchable(), ledger=ledger, name="n", out=tmp_path / "elsewhere")
    found = sf.release(plan(), Untouchable(), ledger=ledger, name="n", out=tmp_path / "r")
    assert [v.tolist() for v in found.measurement.values] == [v.tolist() for v in whole.measurement.values]
    assert found.provenance == sf.load(tmp_path / "r").provenance == whole.provenance
    assert (unreleased(tmp_path), ledger.spent) == ([], 2)
    assert names(tmp_path) == {"l.db", "r"}
    assert (tmp_path / "r" / "report.html").exists()


def _remove_the_place(draft: Path, _: Path) -> None:
    shutil.rmtree(draft)


def _file_in_its_place(draft: Path, _: Path) -> None:
    shutil.rmtree(draft)
    draft.write_text("", encoding="utf-8")


def _name_is_taken(_: Path, folder: Path) -> None:
    folder.mkdir()
    (folder / "release.json").write_text("{}", encoding="utf-8")


def _link_in_its_place(_: Path, folder: Path) -> None:
    folder.symlink_to(folder.parent)


@pytest.mark.parametrize("swap", [_remove_the_place, _file_in_its_place, _name_is_taken, _link_in_its_place])
def test_a_place_that_turns_bad_after_the_debit(
    swap: Any, ledger: sf.Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: an OSError passed on as it is; a class that says nothing was spent; the other's folder overwritten."""
    real = files.write_release

    def swapped(result: sf.Release, place: Path) -> None:
        swap(place, tmp_path / "r")
        real(result, place)

    monkeypatch.setattr(files, "write_release", swapped)
    with pytest.raises(sf.errors.NotWritten, match=r"entry 1.*unreleased") as failure:
        sf.release(plan(), TABLE, ledger=ledger, name="n", out=tmp_path / "r")
    assert not isinstance(failure.value, sf.errors.InvalidInput)
    assert unreleased(tmp_path) == ["n"]
    if swap is _name_is_taken:
        assert names(tmp_path / "r") == {"release.json"}
        shutil.rmtree(tmp_path / "r")
    elif swap is _link_in_its_place:
        (tmp_path / "r").unlink()
    else:
        assert not any(name.endswith(".paid") for name in names(tmp_path)) or swap is _file_in_its_place
        return
    # it was paid for and lies beside, until its place is free
    monkeypatch.undo()
    again = sf.release(plan(), Untouchable(), ledger=ledger, name="n", out=tmp_path / "r")
    assert again.provenance.sequence == 1
    assert names(tmp_path) == {"l.db", "r"}


@pytest.mark.parametrize("error", [MemoryError(), ZeroDivisionError(), sf.errors.LedgerError("the disk is full")])
def test_whatever_fails_after_the_debit_is_not_written(
    error: Exception, ledger: sf.Ledger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Mutant: only some errors are taken for NotWritten; the others end in an exit code that says nothing was spent."""

    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(sf.Ledger, "mark_released", fail)
    with pytest.raises(sf.errors.NotWritten):
        sf.release(plan(), TABLE, ledger=ledger)
    assert unreleased(tmp_path) == ["release"]


# ---- other processes ---------------------------------------------------------------------------------------

SCRIPT = """
import resource, sys
limit = int(sys.argv.pop(1))
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
from sfumato.cli import main
main()
"""


def command(folder: Path, *arguments: str, limit: int = 0) -> subprocess.Popen[str]:
    """The command line in a process of its own that cannot write a file of more than `limit` bytes."""
    call = [sys.executable, "-c", SCRIPT, str(limit), *arguments]
    return subprocess.Popen(call, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_full_disk_after_the_debit_is_exit_code_3(tmp_path: Path) -> None:
    """Mutants: a class of errors that says nothing was spent; a draft left behind."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    domain = sf.Domain({"a": sf.Integers(0, 39_999, outside="other", missing="other")})
    sf.plan(sf.identity(domain), sf.gdp(1), neighbours="add-remove", mechanism="gaussian").save(tmp_path / "p.plan")
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(2))
    (tmp_path / "t.csv").write_text("a\n1\n2\n", encoding="utf-8")
    rest = ("release", "p.plan", "--source", "t.csv", "--ledger", "l.db", "--name", "n", "-o", "r")
    done = command(tmp_path, *rest, limit=200_000)
    out, err = done.communicate(timeout=120)
    assert (done.returncode, out) == (3, "")
    assert err.startswith("sfumato: the budget is spent (entry 1) but the release could not be stored")
    assert err.count("\n") == 1
    assert names(tmp_path) == {"p.plan", "l.db", "t.csv"}
    assert (unreleased(tmp_path), ledger.spent) == (["n"], 1)
    done = command(tmp_path, "release", *rest[1:7], "m", *rest[8:], limit=1000)  # too little for a line of the ledger
    assert done.communicate(timeout=120)[0] == ""
    assert done.returncode == 2
    assert ledger.spent == 1


def test_processes_that_release_under_one_name_pay_once(tmp_path: Path) -> None:
    """Mutants: the name checked outside the transaction; two releases mixed in one folder."""
    plan().save(tmp_path / "p.plan")
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(100))
    (tmp_path / "t.csv").write_text("a,b\n1,x\n2,y\n", encoding="utf-8")
    rest = ("release", "p.plan", "--source", "t.csv", "--ledger", "l.db", "--name", "n", "-o", "r", "--json")
    racing = [command(tmp_path, *rest) for _ in range(3)]
    outputs = [p.communicate(timeout=120) for p in racing]
    codes = [p.returncode for p in racing]
    assert 0 in codes, outputs
    assert set(codes) <= {0, 2}, outputs
    shown = {json.loads(out)["ledger"]["anchor"] for (out, _), code in zip(outputs, codes, strict=True) if code == 0}
    assert len(shown) == 1
    assert [e.kind for e in ledger.entries()] == ["spend", "released"]
    assert sf.load(tmp_path / "r").provenance.anchor in shown
    assert names(tmp_path) == {"p.plan", "l.db", "t.csv", "r"}


def test_threads_that_share_a_folder_do_not_mix(ledger: sf.Ledger, tmp_path: Path) -> None:
    """Mutant: files written one by one into the folder itself."""
    found, results = plan(), dict[str, object]()
    _ = found.rmse, found.fingerprint

    def one(name: str) -> None:
        try:
            results[name] = sf.release(found, TABLE, ledger=ledger, name=name, out=tmp_path / "r")
        except sf.SfumatoError as error:
            results[name] = error

    threads = [threading.Thread(target=one, args=(f"n{i}",)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made = [name for name, result in results.items() if isinstance(result, sf.Release)]
    assert len(made) == 1
    assert {type(results[n]) for n in results if n not in made} <= {sf.errors.NotWritten, sf.errors.InvalidInput}
    assert sf.load(tmp_path / "r").provenance.name == made[0]
    spent = {e.name for e in ledger.entries() if e.kind == "spend"}
    assert {e.name for e in ledger.unreleased()} == spent - set(made)
    assert len(WORK.answer(COUNTS)) == len(sf.load(tmp_path / "r").answers)
