"""The secret state of a stream between two periods: in memory, or in two files in turn beside its store.

A file is written while the other is in force, and comes into force by a line of the store, which bears its keyed hash;
so a crash leaves the one that the store names. States are weighted sums of past counts: as secret as the tables.
"""

from __future__ import annotations

import hmac
import os
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import numpy as np

from sfumato.errors import LedgerCorrupted, LedgerError
from sfumato.wall.streams.filtering import Integers

__all__ = ["FileStates", "MemoryStates", "States"]

_PRIVATE = 0o600  # read and written by its owner alone


class States(Protocol):
    """The state after every number of periods; that of none is zero."""

    def read(self, periods: int, digest: str) -> Integers:
        """The state after so many periods, an array of the caller's own."""
        ...

    def write(self, periods: int, state: Integers) -> str:
        """Have the state after so many periods on stable storage, beside the one before: its digest."""
        ...

    def forget(self, periods: int) -> None:
        """The state before that of so many periods is needed no more."""
        ...


class MemoryStates:
    """States of one process; the last two, for the last may not come into force."""

    __slots__ = ("_kept", "_shape")

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape, self._kept = shape, dict[int, Integers]()

    def read(self, periods: int, digest: str) -> Integers:
        """See `States`."""
        del digest
        return self._kept[periods].copy() if periods else np.zeros(self._shape, dtype=np.int64)

    def write(self, periods: int, state: Integers) -> str:
        """See `States`."""
        self._kept[periods] = state
        return ""

    def forget(self, periods: int) -> None:
        """See `States`."""
        self._kept.pop(periods - 1, None)


class FileStates:
    """States in files STORE.even and STORE.odd, by the number of periods. Raises LedgerError, LedgerCorrupted."""

    __slots__ = ("_key", "_path", "_shape")

    def __init__(self, store: Path, shape: tuple[int, ...], key: bytes) -> None:
        self._path, self._shape, self._key = store, shape, key

    def _file(self, periods: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{'odd' if periods % 2 else 'even'}")

    def _digest(self, state: Integers) -> str:
        keyed = hmac.new(self._key, b"state\n", "sha256")
        keyed.update(np.ascontiguousarray(state).data)
        return keyed.hexdigest()

    def read(self, periods: int, digest: str) -> Integers:
        """See `States`."""
        if not periods:
            return np.zeros(self._shape, dtype=np.int64)
        file = self._file(periods)
        try:
            handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
            with os.fdopen(handle, "rb") as opened:
                found = np.fromfile(opened, dtype="<i8").astype(np.int64, copy=False)
        except OSError as error:
            raise LedgerError(f"{file}: the state of the stream cannot be read ({error.strerror})") from error
        whole = found.size == np.prod(self._shape)
        if not whole or not hmac.compare_digest(self._digest(found.reshape(self._shape)), digest):
            raise LedgerCorrupted(f"{file}: the state of the stream was changed or put back; restore it with its store")
        return found.reshape(self._shape)

    def write(self, periods: int, state: Integers) -> str:
        """See `States`."""
        file, state = self._file(periods), np.ascontiguousarray(state)
        try:
            handle = os.open(file, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW, _PRIVATE)
            with os.fdopen(handle, "wb") as opened:
                os.fchmod(handle, _PRIVATE)
                state.astype("<i8", copy=False).tofile(opened)
                opened.flush()
                os.fsync(handle)
            folder = os.open(file.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise LedgerError(
                f"{file}: the state of the stream cannot be written ({error.strerror}); nothing was shown: make room "
                "or access, and append the period again"
            ) from error
        return self._digest(state)

    def forget(self, periods: int) -> None:
        """See `States`. What cannot be removed now is written over in the next period."""
        with suppress(OSError):
            self._file(periods - 1).unlink(missing_ok=True)
