"""Large arrays of noisy integers in files, so that a release may be larger than memory."""

from __future__ import annotations

import mmap
import os
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["forget", "room"]

IN_MEMORY = 2**25
"""Values up to this number (256 MB) are held in memory."""


def room(count: int, path: Path | None = None, *, limit: int | None = None) -> NDArray[np.int64]:
    """An int64 array of `count` entries: in memory up to `limit`, else in a .npy file at `path`.

    Without a path the file has no name and goes with the array.
    """
    if count <= (IN_MEMORY if limit is None else limit):
        return np.empty(count, dtype=np.int64)
    if path is not None:
        return np.lib.format.open_memmap(path, mode="w+", dtype=np.int64, shape=(count,))
    with tempfile.TemporaryFile() as handle:
        os.posix_fallocate(handle.fileno(), 0, 8 * count)
        return np.memmap(handle, dtype=np.int64, mode="r+", shape=(count,))


def forget(array: object) -> None:
    """Give back the memory that a file's pages take up in this process; what was written stays in the file."""
    mapped = getattr(array, "_mmap", None)
    if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        with suppress(OSError, ValueError):
            mapped.madvise(mmap.MADV_DONTNEED)
