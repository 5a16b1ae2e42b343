"""SQLite files, opened anew for every operation: how they are made, locked, committed, and how errors speak of them.

What stands in them is `privacy.chain`'s. A connection lives as long as one transaction, so a fork inherits none and
threads share none. On POSIX, closing any descriptor of a file gives up all locks that the process has on it; SQLite
alone keeps its own from doing so. So nothing but a `FileStore` opens such a file, not even to look at its first bytes.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sfumato._util.files import sync_folder
from sfumato.errors import LedgerCorrupted, LedgerError

BUSY_SECONDS = 30  # a turn takes milliseconds; longer waits are of a process that hangs
_OLDEST = (3, 37, 0)  # the first with STRICT tables
_PRIVATE = 0o600  # read and written by its owner alone

# Rollback journal, not WAL: the SQLite linked by many Pythons can lose WAL commits after a crash.
# pages of a transaction that outgrow the cache would lock the file before its end, and the witness out
_DURABLE = ("PRAGMA synchronous=EXTRA", "PRAGMA fullfsync=ON", "PRAGMA cache_spill=OFF")
_GUARDED = ("PRAGMA trusted_schema=OFF", "PRAGMA cell_size_check=ON")
_TOUCH = "SELECT count(*) FROM sqlite_schema"

# Held during every transaction, and by a fork while it happens: no child process starts inside a transaction.
_LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


@dataclass(frozen=True, slots=True)
class Wording:
    """How errors speak of one kind of file, and who may open it (`mode`).

    `make` says how one is made, `undone` what a refusal left undone, `advice` what to do when a write failed.
    """

    noun: str
    mode: int
    make: str
    undone: str
    advice: str


class FileStore:
    """One existing file. Raises LedgerError where it cannot be one."""

    def __init__(self, path: Path, words: Wording) -> None:
        _require_sqlite()
        self.words = words
        try:
            self.path = path.resolve(strict=True)
        except (OSError, RuntimeError, ValueError) as error:
            raise LedgerError(f"{path}: no {words.noun} is there ({_error_reason(error)}); {words.make}") from error
        if not self.path.is_file():
            raise LedgerError(f"{path} is a folder or a device; a {words.noun} is a file")
        mode = self.path.stat().st_mode & 0o777
        if os.name == "posix" and words.mode == _PRIVATE and mode & ~_PRIVATE:
            raise LedgerError(
                f"{path} is open to others (mode {mode:o}), and what it holds is secret; if nobody has read it, take "
                "their rights away with chmod 600"
            )

    @classmethod
    def create(cls, path: Path, words: Wording, fill: Callable[[sqlite3.Connection], None]) -> FileStore:
        """Make the file, which must not exist, with what `fill` puts there in one transaction.

        So it is complete or empty, whenever a process dies; an empty one counts as none. It is never taken away, for
        another process may be filling it.
        """
        _require_sqlite()
        exists = LedgerError(f"{path} exists; open the {words.noun} that is there, or choose another path")
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, words.mode))
        except FileExistsError as error:
            if path.is_symlink() or not path.is_file() or is_nonempty_file(path):
                raise exists from error
        except (OSError, ValueError) as error:
            raise LedgerError(
                f"{path} cannot be made ({_error_reason(error)}); choose a folder you can write to"
            ) from error
        store = cls(path, words)
        with store.transaction(write=True) as connection:
            if connection.execute("PRAGMA schema_version").fetchone()[0]:
                raise exists
            fill(connection)
        with _translate_sqlite_errors(store.path, words):
            sync_folder(store.path.parent)
        return store

    def remove(self) -> None:
        """Take the file and what a crash may have left of a transaction away."""
        for leftover in (self.path, _journal_path(self.path)):
            leftover.unlink(missing_ok=True)

    @contextmanager
    def transaction(self, write: bool, then: Callable[[], object] | None = None) -> Generator[sqlite3.Connection]:
        """Commits at the end of its block; any exception undoes it. Raises LedgerError, LedgerCorrupted.

        `then` is called after the commit, before any other thread can begin.
        """
        with _LOCK:
            with (
                _translate_sqlite_errors(self.path, self.words),
                closing(self._connect(write)) as connection,
                _transaction(connection, write),
                self._sole(write),
            ):
                yield connection
            if then is not None:
                then()

    @contextmanager
    def _sole(self, write: bool) -> Generator[None]:
        """Refuse to commit where a lost lock let others write: seen by a connection that caches nothing."""
        if not write:
            yield
            return
        with closing(self._open("ro")) as witness:
            before = _data_version(witness)
            yield
            if _data_version(witness) != before:
                raise LedgerError(
                    f"{self.path} was written to during this turn, so its lock was lost; {self.words.undone}. Some "
                    "code of this process opened and closed the file by itself: let nothing but sfumato open it"
                )

    def _connect(self, write: bool) -> sqlite3.Connection:
        if write and self.path.stat().st_nlink > 1:
            raise LedgerError(f"{self.path} has several names (hard links), so a crash could not be undone; keep one")
        connection = self._open("rw" if write else "ro")
        try:
            connection.execute(_TOUCH)
        except sqlite3.Error as error:
            connection.close()
            if write or getattr(error, "sqlite_errorname", "") != "SQLITE_READONLY_ROLLBACK":
                raise
            # A crash left an unfinished transaction. Undoing it is the one write that reading may cause.
            with closing(self._open("rw")) as recovery:
                recovery.execute(_TOUCH)
            return self._open("ro")
        except BaseException:
            connection.close()
            raise
        return connection

    def _open(self, mode: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode={mode}", uri=True, timeout=BUSY_SECONDS, isolation_level=None
        )
        for pragma in _GUARDED if mode == "ro" else (*_GUARDED, *_DURABLE):
            connection.execute(pragma)
        return connection


def is_nonempty_file(path: Path) -> bool:
    """Whether something is in a file, once it is undone what a transaction left that did not end."""
    if not path.exists():
        return False
    if path.is_file() and _journal_path(path).exists():
        with suppress(sqlite3.Error), closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True)) as left:
            left.execute(_TOUCH)
    return path.is_dir() or path.stat().st_size > 0


def _journal_path(path: Path) -> Path:
    """Where SQLite keeps what undoes a transaction."""
    return path.with_name(path.name + "-journal")


def _require_sqlite() -> None:
    if sqlite3.sqlite_version_info < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise LedgerError(f"a ledger needs SQLite {oldest} or newer; this Python links {sqlite3.sqlite_version}")


@contextmanager
def _transaction(connection: sqlite3.Connection, write: bool) -> Generator[None]:
    """One transaction: everything is read under the lock that the write needs."""
    connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")


def _data_version(connection: sqlite3.Connection) -> int:
    """A number that changes whenever another connection, of any process, has committed."""
    ((number,),) = connection.execute("PRAGMA data_version").fetchall()
    return number


_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_ENVIRONMENT = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk is full or failing",
    sqlite3.SQLITE_READONLY: "the file or its folder is read-only, and writing or the repair after a crash needs it",
    sqlite3.SQLITE_CANTOPEN: "the file or its folder cannot be opened",
    sqlite3.SQLITE_PERM: "access is denied",
    sqlite3.SQLITE_NOMEM: "memory is exhausted",
}


@contextmanager
def _translate_sqlite_errors(where: Path, words: Wording) -> Generator[None]:
    """Turn what SQLite raises into errors that say what to do."""
    try:
        yield
    except sqlite3.Error as error:
        code, noun = getattr(error, "sqlite_errorcode", 0) & 0xFF, words.noun
        if code in _BUSY:
            text = f"{where}: another process kept the {noun} busy for {BUSY_SECONDS} s; {words.undone}, try again"
            raise LedgerError(text) from error
        if code in _ENVIRONMENT:
            raise LedgerError(f"{where}: {_ENVIRONMENT[code]} ({error}); {words.advice}") from error
        raise LedgerCorrupted(f"{where} is damaged or not a {noun} ({error}); restore it from a copy") from error
    except UnicodeDecodeError as error:
        # SQLite quotes the damage in a message that is no text either.
        raise LedgerCorrupted(f"{where} is damaged or not a {words.noun}; restore it from a copy") from error
    except OSError as error:
        raise LedgerError(f"{where}: {_error_reason(error)}") from error


def _error_reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
