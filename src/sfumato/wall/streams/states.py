"""The secret state of a stream between two periods, sums and people: in memory, or in two files in turn.

A file is written while the other is in force, and comes into force by a line of the store, which bears its keyed hash;
so a crash leaves the one that the store names. States are weighted sums of past counts: as secret as the tables.

Whoever lists a folder sees how long its files are. So a file has room for as many people as was declared, taken up by
random digests where there are fewer, and is as long for any tables.
"""

from __future__ import annotations

import hmac
import math
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from sfumato.errors import LedgerCorrupted, LedgerError
from sfumato.ground.scratch import sync_folder
from sfumato.wall.streams.filtering import Integers
from sfumato.wall.streams.people import FIELDS

__all__ = ["FileStates", "MemoryStates", "State", "States"]

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)  # Windows has no such flag, and no such links for most accounts
_PRIVATE = 0o600  # read and written by its owner alone


class State(NamedTuple):
    """High limbs and low of every filtered cell (2, d, cells), and who was counted when (people, 4); ours to change."""

    sums: Integers
    people: Integers

    @classmethod
    def zero(cls, shape: tuple[int, ...]) -> State:
        """That of no periods."""
        return cls(np.zeros(shape, dtype=np.int64), np.zeros((0, FIELDS), dtype=np.int64))


class States(Protocol):
    """The state after every number of periods; that of none is zero."""

    def read(self, periods: int, digest: str) -> State:
        """The state after so many periods, arrays of the caller's own."""
        ...

    def write(self, periods: int, state: State) -> str:
        """Have the state after so many periods on stable storage, beside the one before: its digest."""
        ...

    def forget(self, periods: int) -> None:
        """The state before that of so many periods is needed no more."""
        ...


class MemoryStates:
    """States of one process; the last two, for the last may not come into force."""

    __slots__ = ("_kept", "_shape")

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape, self._kept = shape, dict[int, State]()

    def read(self, periods: int, digest: str) -> State:
        """See `States`."""
        del digest
        return State(*(a.copy() for a in self._kept[periods])) if periods else State.zero(self._shape)

    def write(self, periods: int, state: State) -> str:
        """See `States`."""
        self._kept[periods] = state
        return ""

    def forget(self, periods: int) -> None:
        """See `States`."""
        self._kept.pop(periods - 1, None)


class FileStates:
    """States in files STORE.even and STORE.odd, by the number of periods. Raises LedgerError, LedgerCorrupted.

    There is `room` for so many people, or as many as there was in the file before. What was written last is held too,
    and is the state to go on from if it is the one in force, by its digest.
    """

    __slots__ = ("_key", "_last", "_path", "_room", "_shape")

    def __init__(self, store: Path, shape: tuple[int, ...], key: bytes, room: int) -> None:
        self._path, self._shape, self._key, self._room = store, shape, key, room
        self._last: tuple[str, State] | None = None

    def _file(self, periods: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{'odd' if periods % 2 else 'even'}")

    def _digest(self, state: State) -> str:
        keyed = hmac.new(self._key, b"state\n", "sha256")
        for part in state:
            keyed.update(np.ascontiguousarray(part).data)
        return keyed.hexdigest()

    def read(self, periods: int, digest: str) -> State:
        """See `States`."""
        if not periods:
            return State.zero(self._shape)
        last, self._last = self._last, None  # it will be changed, also for a period that fails
        if last is not None and hmac.compare_digest(last[0], digest):
            return last[1]
        file = self._file(periods)
        try:
            handle = os.open(file, os.O_RDONLY | _NOFOLLOW)
            with os.fdopen(handle, "rb") as opened:
                found = np.fromfile(opened, dtype="<i8").astype(np.int64, copy=False)
        except OSError as error:
            raise LedgerError(f"{file}: the state of the stream cannot be read ({error.strerror})") from error
        size = math.prod(self._shape)
        whole = found.size >= size and (found.size - size) % FIELDS == 0
        state = None
        if whole:
            rows = found[size:].reshape(-1, FIELDS)
            self._room = max(self._room, len(rows))
            # whoever was counted was so in one period at least: other rows only take up room
            state = State(found[:size].reshape(self._shape), rows[rows[:, 2] > 0])
        if state is None or not hmac.compare_digest(self._digest(state), digest):
            raise LedgerCorrupted(f"{file}: the state of the stream was changed or put back; restore it with its store")
        return state

    def write(self, periods: int, state: State) -> str:
        """See `States`."""
        file, missing = self._file(periods), self._room - len(state.people)
        if missing < 0:
            raise LedgerError(
                f"{self._path} has room for {self._room:,} people, who are more by now; nothing was shown. Open the "
                "stream again with people= (append it with --people), a number that they will never reach"
            )
        rest = np.zeros((missing, FIELDS), dtype="<i8")
        rest[:, :2] = np.frombuffer(secrets.token_bytes(16 * missing), dtype="<i8").reshape(-1, 2)
        try:
            handle = os.open(file, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | _NOFOLLOW, _PRIVATE)
            with os.fdopen(handle, "wb") as opened:
                if hasattr(os, "fchmod"):
                    os.fchmod(handle, _PRIVATE)
                for part in (*state, rest):
                    opened.write(np.ascontiguousarray(part, dtype="<i8").data)
                opened.flush()
                os.fsync(handle)
            sync_folder(file.parent)
        except OSError as error:
            raise LedgerError(
                f"{file}: the state of the stream cannot be written ({error.strerror}); nothing was shown: make room "
                "or access, and append the period again"
            ) from error
        digest = self._digest(state)
        self._last = digest, state
        return digest

    def forget(self, periods: int) -> None:
        """See `States`. What cannot be removed now is written over in the next period."""
        with suppress(OSError):
            self._file(periods - 1).unlink(missing_ok=True)
