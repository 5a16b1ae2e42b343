"""The store of a stream under the faults that other stores are put under: edits, locks, disks, ledgers put back."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.curator import Curator
from sfumato.curator.streams import PublicStream, open_public_stream, resume_stream
from sfumato.curator.streams import state as states
from sfumato.curator.streams.stored import is_stream, read_stream
from sfumato.errors import LedgerCorrupted, LedgerError
from sfumato.interactive.streams import read_status
from sfumato.privacy import files
from support.edited import edited, put
from support.streams import PERIODS, UNIT, exact, price, terms

DOMAIN = sf.Domain({"a": 2, "b": 3})
HASH = "0" * 64
TABLES = np.random.default_rng(1).integers(0, 50, size=(PERIODS, 2, 3))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(10**8))
    return tmp_path / "s.db"


def curator(store: Path) -> Curator:
    return Curator(None, DOMAIN, UNIT, sf.Ledger(store.with_name("l.db")))


def opened(store: Path, periods: int = 0) -> PublicStream:
    found, _ = open_public_stream(curator(store), terms(), price(terms()), name="s", plan_hash=HASH, store=store)
    for t in range(periods):
        found.append(sf.Histogram(TABLES[t]), f"p{t}")
    return found


def goes_on(found: PublicStream, done: int) -> None:
    """That the stream has so many periods, and ends as one that nothing happened to."""
    assert len(found.published) == done
    for t in range(done, PERIODS):
        found.append(sf.Histogram(TABLES[t]), f"p{t}")
    for period, values in zip(found.published, exact(terms(), TABLES), strict=True):
        assert (np.concatenate(period.values) == values).all()


edit = partial(edited, breaks=2)


EDITS = {
    **{f"period {name}": put(2, part, "1") for part, name in enumerate(("digest", "size", "values"))},
    "line hash": "UPDATE lines SET hash = (SELECT hash FROM lines WHERE sequence = 1) WHERE sequence = 2",
    "line body": "UPDATE lines SET body = (SELECT body FROM lines WHERE sequence = 3) WHERE sequence = 2",
    "last deleted": "DELETE FROM lines WHERE sequence = 2",
    "no receipt": "DELETE FROM lines WHERE sequence = 1",
    "no opening": "DELETE FROM lines WHERE sequence = 0",
    "another notice": put(0, 0, ""),
    "another key": put(0, 1, "00" * 32),
    "another opening": put(0, 2, "x"),
    "another table": "CREATE TABLE more (x)",
}


@pytest.mark.parametrize("how", EDITS)
def test_no_edit_passes(how: str, store: Path) -> None:
    """Mutants: hashes that are read and not computed; a body that is not hashed; a schema that is not compared."""
    opened(store, 2)
    edit(store, EDITS[how])
    for use in (lambda: resume_stream(curator(store), store), lambda: read_stream(store), lambda: read_status(store)):
        with pytest.raises(LedgerCorrupted):
            use()


def test_the_lines_only_grow(store: Path) -> None:
    """Mutants: a trigger left out; REPLACE, which fires no trigger of a deletion."""
    opened(store, 1)
    with closing(sqlite3.connect(store)) as connection:
        for statement in (
            "UPDATE lines SET body = x''",
            "DELETE FROM lines",
            "REPLACE INTO lines SELECT * FROM lines WHERE sequence = 2",
            "UPDATE lines SET hash = '' WHERE sequence = 0",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="only grows"):
                connection.execute(statement)


def test_a_store_put_back_is_seen_by_those_who_saw_it_grow(store: Path) -> None:
    """With its state it is in good order, and would draw noise for a period again. Mutant: an object that believes
    whatever is in the file now."""
    found = opened(store, 1)
    for file in (store, store.with_name("s.db.odd")):
        shutil.copy2(file, f"{file}.old")
    found.append(sf.Histogram(TABLES[1]), "p1")
    for file in (store, store.with_name("s.db.odd")):
        os.replace(f"{file}.old", file)
    for use in (lambda: found.append(sf.Histogram(TABLES[2]), "p1"), lambda: found.published, lambda: found.anchor):
        with pytest.raises(LedgerCorrupted, match="put back"):
            use()


def test_a_ledger_that_was_put_back_does_not_pay(store: Path) -> None:
    """Mutant: the receipt kept and not looked at."""
    ledger = store.with_name("l.db")
    before = ledger.read_bytes()
    opened(store, 1)
    ledger.write_bytes(before)
    with pytest.raises(LedgerError, match="never paid"):
        resume_stream(curator(store), store)


def test_a_full_disk_publishes_nothing_and_harms_nothing(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the database and in the files of state. Mutants: a period shown that could not be kept; a state of a period
    that is not there."""
    found = opened(store, 2)

    class Full(sqlite3.Connection):
        def execute(self, *args: Any) -> sqlite3.Cursor:
            if args[0] == "COMMIT" and self.total_changes:
                super().execute("PRAGMA max_page_count=1")
                super().execute("CREATE TABLE large AS SELECT zeroblob(9999)")
            return super().execute(*args)

    genuine = sqlite3.connect
    with monkeypatch.context() as patch:
        patch.setattr(files.sqlite3, "connect", lambda *a, **k: genuine(*a, **k, factory=Full))
        with pytest.raises(LedgerError, match="disk is full"):
            found.append(sf.Histogram(TABLES[2]), "p2")

    class Disk:
        """The module `os` on a disk where nothing gets to stable storage."""

        def __getattr__(self, name: str) -> Any:
            return self._full if name == "fsync" else getattr(os, name)

        @staticmethod
        def _full(_: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(states, "os", Disk())
        with pytest.raises(LedgerError, match="cannot be written"):
            found.append(sf.Histogram(TABLES[2]), "p2")
    goes_on(resume_stream(curator(store), store), 2)


def during(found: PublicStream, happens: Callable[[], object]) -> None:
    """Append a period, and have something happen within its turn."""
    with pytest.MonkeyPatch.context() as patch:
        honest = states.FileStates.write

        def write(*given: Any) -> str:
            happens()
            return honest(*given)

        patch.setattr(states.FileStates, "write", write)
        found.append(sf.Histogram(TABLES[len(found.published)]), f"p{len(found.published)}")


def elsewhere(store: Path, statements: str) -> bool:
    """Whether another process, which does not wait, may do this to the file."""
    code = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).executescript(sys.argv[2])"
    asked = [sys.executable, "-S", "-c", code, str(store), statements]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("look", [is_stream, read_status, read_stream])
def test_looking_at_a_store_leaves_its_lock_alone(look: Callable[[Path], object], store: Path) -> None:
    """Mutant: a file that is opened and closed by itself, which gives up all locks of the process."""
    found, free = opened(store, 1), list[bool]()

    def looked() -> None:
        with suppress(sf.SfumatoError):
            look(store)
        free.append(elsewhere(store, "BEGIN IMMEDIATE"))

    during(found, looked)
    assert free == [False]
    goes_on(found, 2)


@pytest.mark.skipif(os.name != "posix", reason="elsewhere locks belong to descriptors")
def test_a_turn_that_lost_its_lock_publishes_nothing(store: Path) -> None:
    """Mutant: a commit over what another process has written in the meantime."""
    found, done = opened(store, 1), list[bool]()

    def lost() -> None:
        store.read_bytes()
        done.append(elsewhere(store, "CREATE TABLE more (x); DROP TABLE more"))

    with pytest.raises(LedgerError, match="its lock was lost"):
        during(found, lost)
    assert done == [True]
    goes_on(resume_stream(curator(store), store), 1)


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620])
def test_a_store_open_to_others_is_refused(mode: int, store: Path) -> None:
    opened(store, 1)
    store.chmod(mode)
    for use in (lambda: resume_stream(curator(store), store), lambda: read_status(store)):
        with pytest.raises(LedgerError, match="open to others"):
            use()
