"""Processes killed with SIGKILL: what they leave is gone after the next run, and a living process's place never is.

Mutants named were seen to fail.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sfumato._util.documents import write_atomically
from sfumato._util.files import ScratchFolder, scratch_folder

# a process of one thread that forks: one child dies at its nth step on files of some name, the next runs to its end
SCRIPT = """
import json, os, signal, sys, tempfile
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import duckdb
import sfumato as sf
from support.wall import plan
work, moments = Path(sys.argv[2]), json.loads(sys.argv[3])
made = plan()
STEPS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.scandir", "shutil.rmtree"}

def child(body):
    pid = os.fork()
    if not pid:
        status = 1
        try:
            signal.alarm(120)
            body()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def release(folder):
    out = folder / "r"
    sf.release(made, folder.parent / "t.csv", ledger=None, out=out if not out.exists() else folder / "again")

def killed(folder, text, nth):
    steps = 0
    def watch(event, args):
        nonlocal steps
        if event in STEPS and str(args[0]).startswith(str(work)) and text in str(args[0]):
            steps += 1
            if steps == nth:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(watch)
    release(folder)

def names():
    return sorted(str(p.relative_to(work)) for p in work.rglob("*.partial*"))

(work / "t.csv").write_text("a,b\\n1,x\\n2,y\\n")
os.environ["TMPDIR"] = tempfile.tempdir = str(work / "tmp")
(work / "tmp").mkdir()
found = []
for i, (text, nth) in enumerate(moments):
    folder = work / str(i)
    folder.mkdir()
    ended = child(lambda: killed(folder, text, nth))
    left = names()
    again = child(lambda: release(folder))
    found.append([ended, left, again, names()])
print(json.dumps(found))
"""


MOMENTS = [
    [".sfumato.", 2],
    [".r.", 2],
    ["release.sfumato", 2],
    ["answers.parquet", 1],
    ["release.json", 2],
    ["none", 1],
]


def test_what_a_killed_release_leaves_is_gone_after_the_next(tmp_path: Path) -> None:
    """Killed with the table open, and in the middle of every file; the last one is not killed.

    Mutants: leftovers of drafts kept; the folder to which records may spill kept.
    """
    call = [sys.executable, "-c", SCRIPT, str(Path(__file__).parents[1]), str(tmp_path), json.dumps(MOMENTS)]
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert [ended for ended, *_ in found] == [-signal.SIGKILL] * (len(found) - 1) + [0]
    left = [name for _, names, _, _ in found for name in names]
    assert any(".r." in name for name in left)
    assert any(name.startswith("tmp/.sfumato.") for name in left)
    for _, _, again, after in found:
        assert again == 0
        assert after == []


def held(target: Path, files: int = 1) -> tuple[int, Path]:
    """A child that works in a place beside the target until it is killed, and its place."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            signal.alarm(60)  # whatever becomes of the test
            os.closerange(0, 3)
            mine = ScratchFolder(target)
            for i in range(files):
                (mine.path / str(i)).write_text("secret", encoding="utf-8")
            os.write(write, str(mine.path).encode())
            signal.pause()
        finally:
            os._exit(1)
    os.close(write)
    with os.fdopen(read) as said:
        return pid, Path(os.read(said.fileno(), 4096).decode())


def killed(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def test_the_place_of_a_living_process_stays_until_it_is_dead(tmp_path: Path) -> None:
    """Mutants: whatever has the name is taken away; nothing is; a lock that is not asked for."""
    target = tmp_path / "r"
    pid, theirs = held(target)
    for _ in range(2):
        with scratch_folder(target) as mine:
            assert mine != theirs
            assert (theirs / "0").read_text(encoding="utf-8") == "secret"
        assert not mine.exists()
    killed(pid)
    assert theirs.exists()
    with scratch_folder(target):
        assert not theirs.exists()
    assert list(tmp_path.iterdir()) == []


def test_two_places_of_one_process_do_not_harm_each_other(tmp_path: Path) -> None:
    """Mutant: a lock that is not taken."""
    with scratch_folder(tmp_path / "r") as one, scratch_folder(tmp_path / "r") as two:
        assert one.is_dir()
        assert two.is_dir()


def test_only_places_of_the_same_target_are_taken_away(tmp_path: Path) -> None:
    """Files, links and what they point to stay too. Mutant: any hidden folder, places of other targets among them."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("", encoding="utf-8")
    folder = tmp_path / "here"
    folder.mkdir()
    hexes = "0123456789abcdef"
    (folder / f".r.{hexes}.partial").write_text("", encoding="utf-8")
    (folder / f".r.{hexes[::-1]}.partial").symlink_to(outside)
    for name in (f".s.{hexes}.partial", f".r.s.{hexes}.partial", ".r.01234567.partial", f"r.{hexes}.partial", "r"):
        (folder / name).mkdir()
    before = sorted(folder.iterdir())
    with scratch_folder(folder / "r"):
        pass
    assert sorted(folder.iterdir()) == before
    assert (outside / "kept").exists()


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    """A writer that was killed leaves the old file; the next takes away what it had written."""
    target = tmp_path / "p.plan"
    write_atomically(target, lambda p: p.write_text("old", encoding="utf-8") and None)
    pid = os.fork()
    if not pid:

        def die(partial: Path) -> None:
            partial.write_text("half", encoding="utf-8")
            os.kill(os.getpid(), signal.SIGKILL)

        write_atomically(target, die)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert target.read_text(encoding="utf-8") == "old"
    assert len(list(tmp_path.iterdir())) == 2
    write_atomically(target, lambda p: p.write_text("new", encoding="utf-8") and None)
    assert [f.name for f in tmp_path.iterdir()] == ["p.plan"]
    assert target.read_text(encoding="utf-8") == "new"


def test_where_folders_cannot_be_locked_nothing_is_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: no lock taken for a lock that was got."""
    from sfumato._util import files as scratch

    assert scratch.fcntl is not None
    pid, theirs = held(tmp_path / "r")
    killed(pid)

    def unsupported(*_: object) -> None:
        raise OSError(95, "not supported")

    with monkeypatch.context() as patch:
        patch.setattr(scratch.fcntl, "flock", unsupported)
        with scratch_folder(tmp_path / "r") as mine:
            assert mine.is_dir()
        assert theirs.exists()
    with scratch_folder(tmp_path / "r"):
        assert not theirs.exists()
