"""The one chain of lines under ledgers, conversations and key stores: it only grows, and every change to it is found.

A chain is a table `lines` in a SQLite file: a number, a body of bytes, and a hash over the body and the hash before it
[HS91]. Line 0 says what the file is for. What bodies mean is the owner's: a pure function `advance(state, bodies)`
that raises ValueError where they make no sense. So a file is read, checked, followed and added to in one place.

With a key, which its line 0 holds, hashes are keyed (HMAC): one that is shown then tells nothing of its line.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar, cast

from sfumato.errors import BudgetError, InvalidInput, LedgerCorrupted, LedgerError
from sfumato.privacy.files import FileStore, Wording

if TYPE_CHECKING:
    from sqlite3 import Connection

S = TypeVar("S")
Advance = Callable[[S | None, Sequence[bytes]], S]
Row = tuple[object, object, object]
"""The number of a line, its body and its hash, as a file has them: nothing is believed of their types."""

VERSION = 2  # of the format: lines as they are hashed
_ANCHOR = re.compile(r"(\d{1,18}):([0-9a-f]{64})", re.ASCII)


def refusal_trigger(table: str, action: str, condition: str = "") -> tuple[str, str]:
    """A trigger that forbids an action on a table: its name and its text."""
    name = f"{table}_{action.lower()}"
    body = f"SELECT RAISE(ABORT, 'a chain only grows: {action} of {table} is refused')"
    return name, f"CREATE TRIGGER {name} BEFORE {action} ON {table} {condition}BEGIN {body}; END"


# The whole schema by name, compared word for word at every reading. REPLACE would delete without firing a delete
# trigger, so an insert is refused unless it extends the table by one.
SCHEMA: dict[str, str] = {
    "lines": "CREATE TABLE lines (sequence INTEGER PRIMARY KEY, body BLOB NOT NULL, hash TEXT NOT NULL) STRICT",
    **dict(
        (
            refusal_trigger("lines", "UPDATE"),
            refusal_trigger("lines", "DELETE"),
            refusal_trigger(
                "lines", "INSERT", "WHEN NEW.sequence IS NOT (SELECT coalesce(max(sequence), -1) + 1 FROM lines) "
            ),
        )
    ),
}
_SELECT = "SELECT sequence, body, hash FROM lines WHERE sequence >= ? ORDER BY sequence"
_INSERT = "INSERT INTO lines VALUES (?, ?, ?)"


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of chain: the header of its files, the words of its errors, the label that its first hash begins with.

    `whole`: every reading checks every page and every line, not the new ones alone. `keyed`: hashes are, by the second
    row of text of line 0.
    """

    words: Wording
    application_id: int
    label: str
    whole: bool = False
    keyed: bool = False

    def key(self, opening: bytes) -> bytes:
        """The key of all hashes, in line 0."""
        return bytes.fromhex(opening.split(b"\n", 2)[1].decode()) if self.keyed else b""

    def digest(self, key: bytes, previous: str, body: bytes) -> str:
        """The hash of a line: over the one before it, which has one length, and the body; so joining is injective."""
        joined = previous.encode() + b"\n" + body
        return hmac.digest(key, joined, "sha256").hex() if self.keyed else hashlib.sha256(joined).hexdigest()


class Turn(Generic[S]):
    """One transaction: what the chain says now, and the right to add lines, which stand at its end or not at all."""

    __slots__ = ("_add", "_chain", "hashes", "state")

    def __init__(self, chain: Chain[S], state: S, hashes: tuple[str, ...], add: Callable[[Row], object] | None) -> None:
        self._chain, self._add = chain, add
        self.state, self.hashes = state, hashes

    @property
    def anchor(self) -> str:
        """The number of the last line and its hash, as "17:9f86d0..."."""
        return f"{len(self.hashes) - 1}:{self.hashes[-1]}"

    def check(self, anchor: str) -> None:
        """Raise what `Chain.check` raises."""
        _check_anchor(self.hashes, anchor, self._chain.form.words.noun)

    def append(self, body: bytes) -> None:
        """Add a line. What does not follow from the lines before is refused by `advance`, and nothing is added."""
        state, digest = self._chain.advance(self.state, (body,)), self._chain.digest(self.hashes[-1], body)
        if self._add is not None:
            self._add((len(self.hashes), body, digest))
        self.state, self.hashes = state, (*self.hashes, digest)


class Chain(ABC, Generic[S]):
    """Lines and what they say; `FileChain` keeps them in a file, `MemoryChain` in this process.

    An object remembers what it has seen and goes on with nothing else: whoever has seen a file grow refuses one that
    was put back to an earlier state, or made anew.
    """

    __slots__ = ("_key", "_known", "advance", "form")

    _known: tuple[S, tuple[str, ...]]

    def __init__(self, form: Format, advance: Advance[S]) -> None:
        self.form, self.advance, self._key = form, advance, b""

    @abstractmethod
    def turn(self, write: bool = False) -> AbstractContextManager[Turn[S]]:
        """What the chain says now. Of turns that may write there is one at a time; any exception undoes it."""

    def read(self) -> Turn[S]:
        """What the chain says now, for reading only."""
        with self.turn() as found:
            return found

    def check(self, anchor: str) -> Turn[S]:
        """What the chain says, if it goes on from an anchor: of a line, its number and its hash.

        Raises LedgerCorrupted where it does not, InvalidInput for a text that is no anchor.
        """
        found = self.read()
        found.check(anchor)
        return found

    def digest(self, previous: str, body: bytes) -> str:
        """The hash of a line of this chain."""
        return self.form.digest(self._key, previous, body)

    def _begin(self, opening: bytes) -> str:
        """The hash of line 0, which holds the key of all others."""
        self._key = self.form.key(opening)
        return self.digest(self.form.label, opening)


class MemoryChain(Chain[S]):
    """A chain that ends with this process, and cannot be copied: two copies would spend twice."""

    __slots__ = ("_lock", "_process", "_writes")

    def __init__(self, form: Format, advance: Advance[S], opening: bytes) -> None:
        super().__init__(form, advance)
        self._process, self._lock, self._writes = os.getpid(), threading.RLock(), False
        self._known = advance(None, (opening,)), (self._begin(opening),)

    @contextmanager
    def turn(self, write: bool = False) -> Generator[Turn[S]]:
        """See `Chain`. Raises LedgerError in another process."""
        if os.getpid() != self._process:  # before the lock, which a fork may have left closed
            noun = self.form.words.noun
            raise LedgerError(f"an in-memory {noun} belongs to the process that made it; share a budget through a file")
        with self._lock:
            if write and self._writes:  # by what is called within the turn: its lines would be lost
                raise LedgerError(f"a line of this {self.form.words.noun} is being written; another waits for its end")
            found, before = Turn(self, *self._known, None), self._writes
            self._writes = before or write
            try:
                yield found
                if write:
                    self._known = found.state, found.hashes
            finally:
                self._writes = before

    def __reduce__(self) -> NoReturn:
        raise BudgetError("what is kept in memory can be neither copied nor pickled: two copies would spend twice")


class FileChain(Chain[S]):
    """A chain in a file that threads and processes share; every turn reads on, and checks that what it knew is there.

    Raises LedgerError for another file, LedgerCorrupted for one that was changed or put back to an earlier state.
    """

    __slots__ = ("file",)

    def __init__(self, path: str | os.PathLike[str], form: Format, advance: Advance[S]) -> None:
        super().__init__(form, advance)
        self.file = FileStore(Path(path), form.words)
        with self.file.transaction(write=False) as connection:
            self.catch_up(connection, pages=True)

    @classmethod
    def create(cls, path: str | os.PathLike[str], form: Format, advance: Advance[S], opening: bytes) -> FileChain[S]:
        """Make the file, which must not exist, with its line 0. Raises LedgerError."""
        head = form.digest(form.key(opening), form.label, opening)

        def fill(connection: Connection) -> None:
            _create_chain_file(connection, form, (0, opening, head))

        FileStore.create(Path(path), form.words, fill)
        return cls(path, form, advance)

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self.file.path

    def remove(self) -> None:
        """Take away a file in which nothing was paid for."""
        self.file.remove()

    @property
    def known(self) -> Turn[S]:
        """What the chain said when it was last read; the file is not touched."""
        return Turn(self, *self._known, None)

    @contextmanager
    def turn(self, write: bool = False) -> Generator[Turn[S]]:
        """See `Chain`. What was added is on stable storage when the block has ended."""
        done: list[Turn[S]] = []
        # what the file has shown for good is known from then on: it cannot be put back unseen
        with self.file.transaction(write, then=lambda: self._keep(done[0])) as connection:
            done.append(self.catch_up(connection, pages=self.form.whole))
            yield done[0]

    def _keep(self, turn: Turn[S]) -> None:
        self._known = turn.state, turn.hashes

    def catch_up(self, connection: Connection, pages: bool) -> Turn[S]:
        """Read and check the lines since the last reading (or all), and that the last one read is still there."""
        _check_chain_header(connection, self.form)
        if pages:
            _check_pages(connection, self.form)
        state, hashes = cast("tuple[S | None, tuple[str, ...]]", getattr(self, "_known", (None, ())))
        known, start = len(hashes), 0 if self.form.whole or not hashes else len(hashes) - 1
        rows: list[Row] = connection.execute(_SELECT, (start,)).fetchall()
        if known and len(rows) <= known - 1 - start:
            raise LedgerCorrupted(self._put_back(f"rolled back or cut: it ends before line {known - 1}"))
        try:
            found, bodies = self._follow(rows, start, hashes[:start])
        except _UNREADABLE as error:
            raise LedgerCorrupted(self._changed(error)) from error
        if known and found[known - 1] != hashes[-1]:
            raise LedgerCorrupted(self._put_back(f"line {known - 1} is another, or the file was made anew"))
        fresh = bodies[known - start :]
        try:
            said = self.advance(state, fresh) if fresh or state is None else state
        except _UNREADABLE as error:
            raise LedgerCorrupted(self._changed(error)) from error
        turn = Turn(self, said, found, lambda row: connection.execute(_INSERT, row))
        self._keep(turn)
        return turn

    def _follow(self, rows: Sequence[Row], start: int, before: tuple[str, ...]) -> tuple[tuple[str, ...], list[bytes]]:
        """All hashes, and the bodies of the rows. The first row's hash is believed where others were checked before."""
        hashes, bodies = [*before], list[bytes]()
        for number, (sequence, body, digest) in enumerate(rows, start):
            if type(sequence) is not int or sequence != number or type(body) is not bytes or type(digest) is not str:
                raise ValueError(f"line {number} is out of place")
            if not number:
                right = self._begin(body)
            elif number == start:
                right = digest  # compared with the one that was seen
            else:
                right = self.digest(hashes[-1], body)
            if right != digest:
                raise ValueError(f"line {number} breaks the chain")
            hashes.append(digest)
            bodies.append(body)
        if not hashes:
            raise ValueError("its first line is missing")
        return tuple(hashes), bodies

    def _put_back(self, how: str) -> str:
        noun = self.form.words.noun
        return f"{self.path}: the {noun} was put back to an earlier state ({how}); restore the newest copy"

    def _changed(self, error: Exception) -> str:
        noun = self.form.words.noun
        return (
            f"{self.path}: the {noun} was changed ({error}) and is refused; restore a copy, and verify it with your "
            "anchor"
        )


_UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def _create_chain_file(connection: Connection, form: Format, first: Row) -> None:
    """Write header, schema and the first line."""
    connection.execute(f"PRAGMA application_id={form.application_id}")
    connection.execute(f"PRAGMA user_version={VERSION}")
    for statement in SCHEMA.values():
        connection.execute(statement)
    connection.execute(_INSERT, first)


def _check_chain_header(connection: Connection, form: Format) -> None:
    """Check that the file is of this kind and format, with its own table and triggers.

    Raises LedgerError for a foreign file, or one of another format; LedgerCorrupted for a damaged one.
    """

    def pragma(name: str) -> object:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]

    noun, version = form.words.noun, pragma("user_version")
    if not pragma("page_count"):
        raise LedgerError(f"this file is empty: making a {noun} of it ended early, and nothing was paid; make it again")
    if pragma("application_id") != form.application_id:
        raise LedgerError(f"this file is not a sfumato {noun}, or its header is damaged; restore it or check the path")
    if version != VERSION:
        raise LedgerError(
            f"this {noun} has format {version} and this version of sfumato reads format {VERSION} alone; upgrade "
            "sfumato if a newer one wrote it, or restore the file if it was damaged"
        )
    if pragma("encoding") != "UTF-8" or pragma("journal_mode") != "delete":
        raise LedgerCorrupted(f"the header of the {noun} was changed; restore the file")
    if dict(connection.execute("SELECT name, sql FROM sqlite_schema").fetchall()) != SCHEMA:
        raise LedgerCorrupted(f"the tables or triggers of the {noun} were changed; restore the file")


def _check_pages(connection: Connection, form: Format) -> None:
    """Every page of the file."""
    problems = connection.execute("PRAGMA integrity_check(1)").fetchall()
    if problems != [("ok",)]:
        raise LedgerCorrupted(f"the file of the {form.words.noun} is damaged ({problems[0][0]}); restore it")


def _check_anchor(hashes: Sequence[str], anchor: str, noun: str) -> None:
    """Check that a chain goes on from an anchor; hashes[i] closes line i.

    Raises LedgerCorrupted where it does not, InvalidInput for a text that is no anchor.
    """
    match = _ANCHOR.fullmatch(anchor) if isinstance(anchor, str) else None
    if match is None:
        raise InvalidInput(f"an anchor is a sequence number and a hash, '17:9f86d0...'; got {str(anchor)[:80]!r}")
    sequence = int(match[1])
    if sequence >= len(hashes):
        raise LedgerCorrupted(
            f"the {noun} ends at line {len(hashes) - 1} but the anchor is of line {sequence}: "
            "it was rolled back or cut; restore the newest copy"
        )
    if hashes[sequence] != match[2]:
        raise LedgerCorrupted(
            f"line {sequence} is not the one the anchor was taken of: this is another {noun}, or it was made anew; "
            "restore the right copy"
        )
