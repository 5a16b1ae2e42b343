"""The file of a lazy histogram: what it was opened for, and a chain of lines, each with the keys first shown by it.

It belongs to the custodian: besides public noisy counts it holds a salted digest of the exact table, by which a table
that changed is refused. Every change to it is found, as in a ledger; a file that was put back to an earlier state is
found by an anchor kept elsewhere, and must not go on, for it would draw noise anew for keys already shown.
"""

from __future__ import annotations

import hashlib
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.codec import pack, storable, unpack
from sfumato.curator.keycache import Draw, NoisyCounts
from sfumato.errors import InvalidInput, LedgerCorrupted, LedgerError
from sfumato.privacy.accountant import Event
from sfumato.privacy.files import FileStore, Format, check_anchor, check_header, check_whole, refusal
from sfumato.privacy.noise import NoiseLaw
from sfumato.privacy.unit import PrivacyUnit
from sfumato.sketches import Keys
from sfumato.sketches.field import Words

__all__ = ["HistogramMinutes", "HistogramOpening", "KeyStore", "histogram_minutes", "is_histogram"]

_NONE = np.zeros(0, dtype=np.int64)

SCHEMA: dict[str, str] = {
    "opening": "CREATE TABLE opening (one INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT",
    "lines": (
        "CREATE TABLE lines (line INTEGER PRIMARY KEY, elements BLOB NOT NULL, noisy BLOB NOT NULL, "
        "hash TEXT NOT NULL) STRICT"
    ),
    **dict(refusal("histogram", table, action) for table in ("opening", "lines") for action in ("UPDATE", "DELETE")),
    # REPLACE would delete without firing a delete trigger
    **dict(
        (
            refusal("histogram", "opening", "INSERT", "WHEN NEW.one IS NOT 1 OR EXISTS (SELECT 1 FROM opening) "),
            refusal(
                "histogram", "lines", "INSERT", "WHEN NEW.line IS NOT (SELECT coalesce(max(line), 0) + 1 FROM lines) "
            ),
        )
    ),
}

FORMAT = Format(
    noun="histogram",
    application_id=0x53464D4B,
    version=1,
    schema=SCHEMA,
    mode=0o600,
    make="open one with a session over keys",
    undone="no key was shown",
    advice="no key was shown: make room or access, and ask again",
)


@storable
@dataclass(frozen=True, slots=True, repr=False)
class HistogramOpening:
    """What a histogram was opened for; `digest` is that of its table under `salt`, `name` that of the debit."""

    keys: Keys
    unit: PrivacyUnit
    noise: NoiseLaw
    price: Event
    about: Any
    salt: str
    digest: str
    ledger_id: str
    name: str
    plan_hash: str

    def __post_init__(self) -> None:
        kinds = {"keys": Keys, "unit": PrivacyUnit, "noise": NoiseLaw, "price": Event}
        texts = dict.fromkeys(("salt", "digest", "ledger_id", "name", "plan_hash"), str)
        if not all(isinstance(getattr(self, field), kind) for field, kind in (kinds | texts).items()):
            raise InvalidInput("this is no opening of a histogram")


class KeyStore:
    """Noisy counts in a file that threads and processes share; `known` is what this object has read of it.

    Raises LedgerError for another file, LedgerCorrupted for one that was changed.
    """

    __slots__ = ("_file", "_hashes", "known", "opening")

    def __init__(self, path: Path) -> None:
        self._file, self.known = FileStore(path, FORMAT), NoisyCounts()
        with self._file.transaction(write=False) as connection:
            check_whole(connection, FORMAT)
            found = connection.execute("SELECT body FROM opening").fetchall()
            if len(found) != 1:
                raise LedgerCorrupted(f"{path}: the first row is missing; restore the file")
            self._hashes = [hashlib.sha256(found[0][0]).hexdigest()]
            self._catch_up(connection)
        try:
            self.opening: HistogramOpening = unpack(found[0][0])
        except InvalidInput as error:
            raise LedgerCorrupted(f"{path}: its first row cannot be read ({error}); restore the file") from error
        if type(self.opening) is not HistogramOpening:
            raise LedgerCorrupted(f"{path}: its first row is of another kind; restore the file")

    @classmethod
    def create(cls, path: Path, opening: HistogramOpening) -> KeyStore:
        """Make the file, unpaid. Raises LedgerError where it exists or cannot be made."""
        body = pack(opening)

        def fill(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT INTO opening VALUES (1, ?)", (body,))

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
    def plan_hash(self) -> str:
        """What the ledger's entry bears: the plan paid for, and this very file."""
        return f"{self.opening.plan_hash}:{self._hashes[0][:32]}"

    @property
    def anchor(self) -> str:
        """The number of the last line and the hash over all of them: kept elsewhere, it finds a file put back."""
        return f"{len(self._hashes) - 1}:{self._hashes[-1]}"

    def check(self, anchor: str) -> None:
        """Raise LedgerCorrupted unless the file goes on from an anchor, InvalidInput for a text that is no anchor."""
        check_anchor(self._hashes, anchor, "histogram")

    def extend(self, elements: Words, draw: Draw) -> None:
        """Have the counts of sorted distinct keys known, drawing those that nobody has drawn, in one transaction."""
        with self._file.transaction(write=True) as connection:
            check_header(connection, FORMAT)
            self._catch_up(connection)
            fresh = elements[~self.known.find(elements)[1]]
            if not fresh.size:
                return
            values = draw(fresh)
            # as long as the keys are many, whatever the counts are: whether there is room does not depend on them
            texts = fresh.astype("<u8").tobytes(), values.astype("<i8").tobytes()
            digest = _digest(self._hashes[-1], *texts)
            connection.execute("INSERT INTO lines VALUES (?, ?, ?, ?)", (len(self._hashes), *texts, digest))
        # only now is it there for good
        self.known.add(fresh, values)
        self._hashes.append(digest)

    def _catch_up(self, connection: sqlite3.Connection) -> None:
        """Read and check the lines since the last reading, and that the last one read is still there."""
        known = len(self._hashes) - 1
        lines = connection.execute("SELECT * FROM lines WHERE line >= ? ORDER BY line", (known,)).fetchall()
        if known and (not lines or lines.pop(0)[-1] != self._hashes[known]):
            raise LedgerCorrupted(
                f"{self._file.path} was put back to an earlier state, and keys already shown would get new noise; "
                "restore the newest copy"
            )
        elements, values, hashes = [_NONE], [_NONE], [self._hashes[known]]
        for line, keys, noisy, digest in lines:
            if len(keys) != len(noisy) or len(keys) % 8 or digest != _digest(hashes[-1], keys, noisy):
                raise LedgerCorrupted(f"{self._file.path}: line {line} was changed, or one before it; restore a copy")
            elements.append(np.frombuffer(keys, dtype="<u8"))
            values.append(np.frombuffer(noisy, dtype="<i8"))
            hashes.append(digest)
        found = np.concatenate(elements, dtype=np.uint64, casting="unsafe")
        order = np.argsort(found)
        self.known.add(found[order], np.concatenate(values, dtype=np.int64, casting="unsafe")[order])
        self._hashes += hashes[1:]


def _digest(previous: str, elements: bytes, values: bytes) -> str:
    """SHA-256 of the hash before, the keys and their noisy counts."""
    return hashlib.sha256(f"{previous}\n{len(elements)}\n".encode() + elements + values).hexdigest()


@dataclass(frozen=True, slots=True)
class HistogramMinutes:
    """What a histogram's file shows without the table. All of it is public."""

    about: Any
    shown: NoisyCounts
    anchor: str
    ledger_id: str
    name: str


def histogram_minutes(store: Path, anchor: str | None = None) -> HistogramMinutes:
    """Read the file of a histogram; nothing new can be asked by it. Raises what `KeyStore` does."""
    found = KeyStore(store)
    if anchor is not None:
        found.check(anchor)
    return HistogramMinutes(found.opening.about, found.known, found.anchor, found.opening.ledger_id, found.opening.name)


def is_histogram(path: Path) -> bool:
    """Whether a file says of itself that it is the file of a histogram; nothing else is checked."""
    try:
        # by SQLite: to open and close it would give up the locks that this process has on it
        with FileStore(path, FORMAT).transaction(write=False) as connection:
            return connection.execute("PRAGMA application_id").fetchone()[0] == FORMAT.application_id
    except LedgerError:
        return False
