"""Places for what is not finished, which vanish: at the end of their work, or by the next process after a crash.

A place is a folder, hidden beside what it is for, and locked (flock) for as long as its process works in it. The kernel
gives the lock up when that process dies, however it dies; so whoever gets the lock of a place that is there knows that
nobody works in it, and takes it away. A file system that locks no folders has nothing taken away.

A place of what was paid for has another ending than the rest, and is taken away by none but those who look for it:
what lies there may be all that a budget was spent on.
"""

from __future__ import annotations

import mmap
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

try:
    import fcntl
except ImportError:  # no POSIX: nothing is locked, so nothing is taken away
    fcntl = None

_TRIES = 8  # each is lost only to one who clears in the same instant: once is rare, eight times does not happen


PAID = "paid"
"""The ending of a place for what a ledger paid for."""
_PARTIAL = "partial"


class ScratchFolder:
    """A new empty folder beside `target`, of this process alone; what killed processes left beside `target` goes.

    `path` may be filled, and renamed. Raises OSError where no folder can be made.
    """

    __slots__ = ("_lock", "_process", "path")

    def __init__(self, target: Path, mode: int = 0o777, ending: str = _PARTIAL) -> None:
        with abandoned_folders(target) as places:
            for path in places:
                shutil.rmtree(path, ignore_errors=True)
        self._process = os.getpid()
        for _ in range(_TRIES):
            self.path = target.with_name(f".{target.name}.{secrets.token_hex(8)}.{ending}")
            self.path.mkdir(mode)
            try:
                self._lock = _lock_folder(self.path)
            except (BlockingIOError, FileNotFoundError):
                continue  # one who cleared took it for a leftover, in the moment before it was locked
            return
        raise OSError(f"no folder can be kept beside {target}: others take it away")

    def remove(self) -> None:
        """Take away what is still there under the name of the place, and give up the lock; not in a forked process."""
        if os.getpid() != self._process:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        self.release()

    def release(self) -> None:
        """Give up the lock, and leave what is there to whoever looks for it."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def sync_folder(path: Path) -> None:
    """Have the names in a folder on stable storage; Windows has no way to say so, and keeps them by itself."""
    if os.name == "nt":
        return
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def scratch_folder(target: Path) -> Generator[Path]:
    """A `Place` for the time of a block."""
    made = ScratchFolder(target)
    try:
        yield made.path
    finally:
        made.remove()


def _lock_folder(path: Path) -> int | None:
    """A descriptor that holds the lock of a folder, or None where folders cannot be locked.

    Raises BlockingIOError where another has it, FileNotFoundError where the folder is gone.
    """
    if fcntl is None:
        return None
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # the name may be gone since, and the lock then is worth nothing
        os.stat(path, follow_symlinks=False)
    except (BlockingIOError, FileNotFoundError):
        os.close(folder)
        raise
    except OSError:
        os.close(folder)
        return None
    return folder


@contextmanager
def lock_folder(path: Path) -> Generator[None]:
    """Have a folder, made where it is not there, for as long as the block runs; a file system without locks has none.

    Raises BlockingIOError where another process, or another block, has it.
    """
    path.mkdir(parents=True, exist_ok=True)
    lock = _lock_folder(path)
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


@contextmanager
def abandoned_folders(target: Path, ending: str = _PARTIAL) -> Generator[list[Path]]:
    """The places that this user's killed processes left beside `target`; for the time of the block nobody has them."""
    shape = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{16}}\.{ending}")
    places, locks = list[Path](), list[int]()
    try:
        if fcntl is not None:
            with suppress(OSError), os.scandir(target.parent) as found:
                places += [Path(e.path) for e in found if shape.fullmatch(e.name) and e.is_dir(follow_symlinks=False)]
        mine = list[Path]()
        for path in sorted(places):
            with suppress(OSError):
                if path.stat().st_uid == os.geteuid() and (lock := _lock_folder(path)) is not None:
                    locks.append(lock)
                    mine.append(path)
        yield mine
    finally:
        for lock in locks:
            os.close(lock)


IN_MEMORY = 2**25
"""Values up to this number (256 MB) are held in memory."""


def allocate_zeros(count: int, path: Path | None = None, *, limit: int | None = None) -> NDArray[np.int64]:
    """An int64 array of `count` zeros: in memory up to `limit`, else in a new .npy file at `path`.

    Without a path the file has no name and goes with the array. The disk's blocks are taken at once, so that
    writing cannot fail later. Raises OSError where they are not there, or the file is.
    """
    if count <= (IN_MEMORY if limit is None else limit):
        return np.zeros(count, dtype=np.int64)
    if path is None:
        with tempfile.TemporaryFile() as handle:
            return _map_rest_of_file(handle, count)
    name = str(path.resolve())
    with open(name, "xb+") as handle:
        try:
            header = {"descr": "<i8", "fortran_order": False, "shape": (count,)}
            np.lib.format.write_array_header_1_0(handle, header)
            handle.flush()
            return _map_rest_of_file(handle, count)
        except BaseException:
            os.unlink(name)
            raise


def _map_rest_of_file(handle: IO[bytes], count: int) -> NDArray[np.int64]:
    """The rest of a file, made long enough, as an array."""
    offset = handle.tell()
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle.fileno(), 0, offset + 8 * count)
    else:
        handle.truncate(offset + 8 * count)
    return np.memmap(handle, dtype=np.int64, mode="r+", offset=offset, shape=(count,))


def release_pages(array: object) -> None:
    """Give back the memory that a file's pages take up in this process; what was written stays in the file."""
    mapped = getattr(array, "_mmap", None)
    # pages of a private mapping hold changes that are nowhere else
    shared = getattr(array, "mode", None) in ("r", "r+", "w+")
    if isinstance(mapped, mmap.mmap) and shared and hasattr(mmap, "MADV_DONTNEED"):
        with suppress(OSError, ValueError):
            mapped.madvise(mmap.MADV_DONTNEED)
