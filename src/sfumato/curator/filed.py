"""A transcript in a file: what was paid for, the receipt, and every step with the threshold that was then in force.

It belongs to the custodian: who reads the threshold knows how far the next score is from it. Lines form a chain of
keyed hashes, so that a hash that is shown as an anchor tells nothing of the noise in its line. All lines that answer
one question are of one length, whatever the answer is: whether writing fails for want of room does not depend on it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from sfumato.codec import pack, storable, unpack
from sfumato.curator.transcript import Standing, Turn
from sfumato.errors import InvalidInput, LedgerCorrupted, LedgerError
from sfumato.privacy.accountant import Event
from sfumato.privacy.conversing import SparseVector, Step, Terms
from sfumato.privacy.files import FileStore, Format, Row, check_anchor, check_header, check_whole, refusal
from sfumato.privacy.ledger import Receipt

__all__ = ["FileTranscript", "Opening", "check_place", "check_plan_hash"]

_NOTICE = (
    "Private to the custodian: this file holds the secret noise of a running conversation. Keep it unreadable for "
    "others, and keep one copy: two copies that both go on would spend twice what was paid."
)
_FIRST = "sfumato conversation"
_WIDTH = 24
_NUMBER = re.compile(r"[+-]\d{1,22} *", re.ASCII)
_LINE = ("sequence", "kind", "body", "answer", "threshold", "previous", "hash")
SCHEMA: dict[str, str] = {
    "opening": (
        "CREATE TABLE opening (one INTEGER PRIMARY KEY, notice TEXT NOT NULL, key BLOB NOT NULL, body BLOB NOT NULL, "
        "created TEXT NOT NULL, hash TEXT NOT NULL) STRICT"
    ),
    "lines": (
        "CREATE TABLE lines (sequence INTEGER PRIMARY KEY, kind TEXT NOT NULL, body BLOB NOT NULL, "
        "answer TEXT NOT NULL, threshold TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL) STRICT"
    ),
    **dict(refusal("conversation", table, action) for table in ("opening", "lines") for action in ("UPDATE", "DELETE")),
    # REPLACE would delete without firing a delete trigger
    **dict(
        (
            refusal("conversation", "opening", "INSERT", "WHEN NEW.one IS NOT 1 OR EXISTS (SELECT 1 FROM opening) "),
            refusal(
                "conversation",
                "lines",
                "INSERT",
                "WHEN NEW.sequence IS NOT (SELECT coalesce(max(sequence), 0) + 1 FROM lines) ",
            ),
        )
    ),
}
FORMAT = Format(
    noun="conversation",
    application_id=0x53464D43,
    version=1,
    schema=SCHEMA,
    mode=0o600,
    make="open a conversation there",
    undone="nothing was answered",
    advice="nothing was answered: make room or access, and ask again",
)


@storable
@dataclass(frozen=True, slots=True, repr=False)
class Opening:
    """What a conversation was opened for. `holder` tells domain and unit, `digest` the table, `name` the debit."""

    terms: Terms
    price: Event
    about: Any
    holder: str
    digest: str
    ledger_id: str
    name: str
    plan_hash: str

    def __post_init__(self) -> None:
        texts = (self.holder, self.digest, self.ledger_id, self.name, self.plan_hash)
        if not isinstance(self.terms, Terms) or not isinstance(self.price, Event) or {*map(type, texts)} != {str}:
            raise InvalidInput("this is no opening of a conversation")


def check_place(store: str | os.PathLike[str]) -> Path:
    """A path at which nothing is, in a folder that is there. Raises InvalidInput."""
    try:
        path = Path(store)
        if ".." in path.parts or not path.name or "\0" in path.name:
            raise InvalidInput(f"{path}: the file of a conversation has a name of its own and must not climb with '..'")
        if path.is_symlink() or any(p.is_symlink() for p in path.parents if not p.is_absolute()):
            raise InvalidInput(f"{path} is a symbolic link; name the file itself")
        if path.exists() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
            raise InvalidInput(f"{path} exists, or its folder is missing or not to be written to; choose another path")
    except InvalidInput:
        raise
    except (OSError, TypeError, ValueError) as error:
        raise InvalidInput(f"a conversation cannot be kept at {store!r}: {error}") from error
    return path


def check_plan_hash(plan_hash: object) -> None:
    """What the debit of a door bears; a file's is followed by ':' and the file's own hash, so no caller states a ':'.

    Otherwise a debit without a file could pay for one that an opening cut short left behind. Raises InvalidInput.
    """
    if isinstance(plan_hash, str) and str.find(plan_hash, ":") >= 0:
        raise InvalidInput("a plan_hash given to the curator has no ':'; what follows one names a file of the curator")


class FileTranscript:
    """A transcript in a file that threads and processes share, read again before every turn.

    Raises LedgerError for another file, LedgerCorrupted for one that was changed or put back to an earlier state.
    """

    __slots__ = ("_file", "_hashes", "_key", "_standing", "opening", "paid")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = FileStore(Path(path), FORMAT)
        self.paid: tuple[int, str] | None = None
        self._standing: Standing | None = None
        with self._file.transaction(write=False) as connection:
            check_whole(connection, FORMAT)
            found = connection.execute("SELECT notice, key, body, created, hash FROM opening").fetchall()
            if len(found) != 1:
                raise LedgerCorrupted(f"{path}: the first row is missing; restore the file")
            *facts, head = found[0]
            self._key: bytes = facts[1]
            try:
                _require(_digest(self._key, _FIRST, facts) == head, "its first row does not match its hash")
                self.opening: Opening = _read(facts[2], Opening)
            except ValueError as error:
                raise LedgerCorrupted(f"{path} was changed ({error}); restore a copy") from error
            self._hashes: list[str] = [head]
            self._catch_up(connection)

    @classmethod
    def create(cls, path: Path, opening: Opening, key: bytes) -> FileTranscript:
        """Make the file, unpaid. Raises LedgerError where it exists or cannot be made."""
        facts = (_NOTICE, key, pack(opening), datetime.now(UTC).isoformat(timespec="seconds"))
        row = (1, *facts, _digest(key, _FIRST, facts))

        def fill(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT INTO opening VALUES (?, ?, ?, ?, ?, ?)", row)

        file = FileStore.create(path, FORMAT, fill)
        try:
            return cls(path)
        except BaseException:
            file.remove()
            raise

    def remove(self) -> None:
        """Take an unpaid file away."""
        self._file.remove()

    @property
    def key(self) -> bytes:
        """The key of its hashes and of the table's digest. Secret."""
        return self._key

    @property
    def terms(self) -> Terms:
        return self.opening.terms

    @property
    def about(self) -> Any:
        return self.opening.about

    @property
    def plan_hash(self) -> str:
        """What the ledger's entry bears: the plan paid for, and this very file."""
        return f"{self.opening.plan_hash}:{self._hashes[0][:32]}"

    @property
    def anchor(self) -> str:
        """The number of the last line and the hash over all of them."""
        self._read()
        hashes = self._hashes  # another thread may read on
        return f"{len(hashes) - 1}:{hashes[-1]}"

    def check(self, anchor: str) -> None:
        """Raise LedgerCorrupted unless the file goes on from an anchor, InvalidInput for a text that is none."""
        check_anchor(self._hashes, anchor, "conversation")

    def pay(self, receipt: Receipt, vector: SparseVector) -> None:
        """Write the receipt down, and the first threshold."""
        rows: list[Row] = []
        with self._file.transaction(write=True, then=partial(self._follow, rows)) as connection:
            self._catch_up(connection)
            body = pack((receipt.sequence, receipt.anchor))
            rows.append(self._append(connection, "paid", body, None, vector.threshold))

    def standing(self) -> Standing:
        """What was said so far. Raises LedgerError for a conversation that was not paid for."""
        found = self._read()
        if found is None:
            raise LedgerError(f"{self._file.path}: this conversation was never opened; see the ledger and open another")
        return found

    @contextmanager
    def turn(self) -> Generator[Turn]:
        """One turn at a time, of all threads and processes; it is on stable storage when the block has ended."""
        rows: list[Row] = []  # what the file has shown for good is known from then on: it cannot be put back unseen
        with self._file.transaction(write=True, then=partial(self._follow, rows)) as connection:
            standing = self._catch_up(connection)
            if standing is None:
                raise LedgerError(f"{self._file.path}: this conversation was never opened; open another")
            yield _FileTurn(self, connection, standing, rows)

    def add(self, connection: sqlite3.Connection, step: Step | None, threshold: int) -> Row:
        """A line for a step, or for the end of the conversation."""
        if step is None:
            return self._append(connection, "ended", b"", None, threshold)
        kind = "above" if step.above else "below"
        return self._append(connection, kind, pack(step.question), step.answer, threshold)

    def _append(self, connection: sqlite3.Connection, kind: str, body: bytes, answer: int | None, t: int) -> Row:
        numbers = ("" if n is None else f"{n:+d}" for n in (answer, t))
        facts = (len(self._hashes), kind, body, *(text.ljust(_WIDTH) for text in numbers))
        previous = self._hashes[-1]
        row = (*facts, previous, _digest(self._key, previous, facts))
        connection.execute(f"INSERT INTO lines VALUES ({', '.join('?' * len(_LINE))})", row)
        return row

    def _read(self) -> Standing | None:
        with self._file.transaction(write=False) as connection:
            return self._catch_up(connection)

    def _catch_up(self, connection: sqlite3.Connection) -> Standing | None:
        """Read and check the lines since the last reading, and that the last one read is still there."""
        check_header(connection, FORMAT)
        known = len(self._hashes) - 1
        select = f"SELECT {', '.join(_LINE)} FROM lines WHERE sequence >= ? ORDER BY sequence"
        rows = connection.execute(select, (max(known, 1),)).fetchall()
        if known and (not rows or rows.pop(0)[-1] != self._hashes[known]):
            raise LedgerCorrupted(f"{self._file.path} was put back to an earlier state; restore the newest copy")
        try:
            self._follow(rows)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise LedgerCorrupted(f"{self._file.path} was changed ({error}); restore a copy") from error
        return self._standing

    def _follow(self, rows: Sequence[Row]) -> None:
        hashes, paid, standing, said = [*self._hashes], self.paid, self._standing, list[Step]()
        for row in rows:
            *facts, previous, digest = row
            number, kind, body, answer, threshold = facts
            _require(previous == hashes[-1] and _digest(self._key, hashes[-1], facts) == digest, "the chain is broken")
            _require(number == len(hashes), "a line is out of place")
            hashes.append(str(digest))
            drawn = _number(threshold)
            if standing is None:
                _require(kind == "paid" and paid is None, "it begins without a receipt")
                paid = _read(body, tuple)
                standing = Standing((), SparseVector(self.terms, drawn, self.terms.epochs.count))
                continue
            vector = standing.vector
            _require(vector.remaining > 0 and kind in ("above", "below", "ended"), "it goes on after its end")
            if kind == "ended":
                standing = replace(standing, vector=replace(vector, remaining=0))
                continue
            above = kind == "above"
            _require(above or drawn == vector.threshold, "a threshold changed within its epoch")
            found = _number(answer) if above and self.terms.answer is not None else None
            said.append(Step(_read(body, object), found, above))
            standing = replace(standing, vector=replace(vector, threshold=drawn, remaining=vector.remaining - above))
        if standing is not None and said:
            standing = replace(standing, steps=(*standing.steps, *said))
        self._hashes, self.paid, self._standing = hashes, paid, standing


class _FileTurn:
    __slots__ = ("_connection", "_rows", "_transcript", "standing")

    def __init__(
        self, transcript: FileTranscript, connection: sqlite3.Connection, standing: Standing, rows: list[Row]
    ) -> None:
        self._transcript, self._connection, self.standing, self._rows = transcript, connection, standing, rows

    def write(self, step: Step, vector: SparseVector) -> None:
        self._rows.append(self._transcript.add(self._connection, step, vector.threshold))

    def close(self) -> None:
        self._rows.append(self._transcript.add(self._connection, None, self.standing.vector.threshold))


def _digest(key: bytes, previous: str, facts: Sequence[object]) -> str:
    """HMAC-SHA-256 of the facts and the hash before them; bytes by their hash, so no fact holds a line break."""
    texts = (hashlib.sha256(f).hexdigest() if isinstance(f, bytes) else str(f) for f in facts)
    return hmac.new(key, "\n".join([previous, *texts]).encode(), hashlib.sha256).hexdigest()


def _number(text: object) -> int:
    _require(isinstance(text, str) and len(text) == _WIDTH and _NUMBER.fullmatch(text) is not None, "no number")
    return int(str(text))


def _read(body: object, kind: type) -> Any:
    found = unpack(body) if isinstance(body, bytes) else None
    _require(isinstance(found, kind), f"a {type(found).__name__} stands where a {kind.__name__} belongs")
    return found


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise ValueError(problem)
