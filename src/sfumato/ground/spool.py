"""Large arrays of noisy integers in files, so that a release may be larger than memory."""

from __future__ import annotations

import mmap
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

__all__ = ["forget", "room"]

IN_MEMORY = 2**25
"""Values up to this number (256 MB) are held in memory."""


def room(count: int, path: Path | None = None, *, limit: int | None = None) -> NDArray[np.int64]:
    """An int64 array of `count` zeros: in memory up to `limit`, else in a new .npy file at `path`.

    Without a path the file has no name and goes with the array. The disk's blocks are taken at once, so that
    writing cannot fail later. Raises OSError where they are not there, or the file is.
    """
    if count <= (IN_MEMORY if limit is None else limit):
        return np.zeros(count, dtype=np.int64)
    if path is None:
        with tempfile.TemporaryFile() as handle:
            return _mapped(handle, count)
    name = str(path.resolve())
    with open(name, "xb+") as handle:
        try:
            header = {"descr": "<i8", "fortran_order": False, "shape": (count,)}
            np.lib.format.write_array_header_1_0(handle, header)
            handle.flush()
            return _mapped(handle, count)
        except BaseException:
            os.unlink(name)
            raise


def _mapped(handle: IO[bytes], count: int) -> NDArray[np.int64]:
    """The rest of a file, made long enough, as an array."""
    offset = handle.tell()
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle.fileno(), 0, offset + 8 * count)
    else:
        handle.truncate(offset + 8 * count)
    return np.memmap(handle, dtype=np.int64, mode="r+", offset=offset, shape=(count,))


def forget(array: object) -> None:
    """Give back the memory that a file's pages take up in this process; what was written stays in the file."""
    mapped = getattr(array, "_mmap", None)
    # pages of a private mapping hold changes that are nowhere else
    shared = getattr(array, "mode", None) in ("r", "r+", "w+")
    if isinstance(mapped, mmap.mmap) and shared and hasattr(mmap, "MADV_DONTNEED"):
        with suppress(OSError, ValueError):
            mapped.madvise(mmap.MADV_DONTNEED)
