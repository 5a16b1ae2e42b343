"""Stored values as files: a zip of one JSON document and plain arrays, written whole or not at all, read in limits."""

from __future__ import annotations

import os
import re
import signal
import threading
import zipfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._util.bundles import UNREADABLE, read_zip_document, zip_writer
from sfumato._util.codec import decode_value, encode_value
from sfumato._util.files import scratch_folder, sync_folder
from sfumato.check_forms import check_document_forms
from sfumato.errors import InvalidInput, SfumatoError

Arrays = dict[str, NDArray[Any]]

_OUTSIDE = "~outside"
_BESIDE = re.compile(r"values-[0-9]{1,6}\.npy")


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Write in a place of its own, sync it, then rename it to `path` and sync the folder."""
    with scratch_folder(path) as folder:
        partial = folder / path.name
        write(partial)
        with partial.open("rb") as handle:
            os.fsync(handle.fileno())
        partial.replace(path)
    sync_folder(path.parent)


def write_text_atomically(path: Path, text: str) -> None:
    """Write a text in UTF-8 with line feeds, the file whole or not at all."""
    write_atomically(path, lambda partial: _write_lines(partial, text))


def _write_lines(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def write_document(path: str | os.PathLike[str], value: object, *, beside: bool = False) -> None:
    """Store a value in one file (a zip of one JSON document and plain .npy arrays).

    With `beside`, arrays that are whole files values-i.npy of the same folder stay there, and are named.
    """
    tree, arrays = encode_value(value)
    places = {k: file_name_beside(a, Path(path).parent) for k, a in arrays.items()} if beside else {}
    outside = {k: name for k, name in places.items() if name is not None}
    if outside:
        tree = {_OUTSIDE: outside, "value": tree}
    inside = {k: a for k, a in arrays.items() if k not in outside}
    # noisy integers and optimised coefficients do not compress; the text does
    write = zip_writer(tree, inside, zipfile.ZIP_STORED)
    write_atomically(Path(path), write)


def file_name_beside(array: NDArray[Any], folder: Path) -> str | None:
    """The name of the file in a folder that an array is the whole of, or None."""
    name = getattr(array, "filename", None)
    if not isinstance(array, np.memmap) or name is None or array.ndim != 1 or not array.flags.c_contiguous:
        return None
    path = Path(name)
    whole = path.is_file() and array.offset + array.nbytes == path.stat().st_size
    return path.name if whole and _BESIDE.fullmatch(path.name) and folder.samefile(path.parent) else None


def _read_array_beside(folder: Path, name: object) -> NDArray[Any]:
    if not isinstance(name, str) or not _BESIDE.fullmatch(name):
        raise InvalidInput(f"it names the foreign file {name!r}")
    path = folder / name
    if path.is_symlink() or not path.is_file():
        raise InvalidInput(f"its file {name} is missing")
    with path.open("rb") as handle:
        if np.lib.format.read_magic(handle) != (1, 0):
            raise InvalidInput(f"its file {name} is not in version 1.0 of numpy's format")
        shape, _, dtype = np.lib.format.read_array_header_1_0(handle)
        offset = handle.tell()
    length = path.stat().st_size - offset
    if dtype != np.dtype("<i8") or len(shape) != 1 or shape[0] * dtype.itemsize != length or length == 0:
        raise InvalidInput(f"its file {name} holds no plain whole numbers, or is shorter or longer than it says")
    return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape)


def read_document(path: str | os.PathLike[str], expected: type | tuple[type, ...], *, beside: bool = False) -> Any:
    """Read what `write_document` wrote, with the same `beside`; anything else is refused with InvalidInput."""
    try:
        if not Path(path).is_file():
            raise InvalidInput("no regular file is there")
        tree, arrays = read_zip_document(Path(path))
        if isinstance(tree, dict) and _OUTSIDE in tree:
            outside = tree[_OUTSIDE]
            if not beside or not isinstance(outside, dict):
                raise InvalidInput("it names files beside it")
            arrays |= {k: _read_array_beside(Path(path).parent, name) for k, name in outside.items()}
            tree = tree["value"]
        check_document_forms(tree, arrays)
        value = decode_value(tree, arrays)
    except UNREADABLE as error:
        raise InvalidInput(f"{path} is not a file that sfumato wrote: {error}") from error
    if not isinstance(value, expected):
        raise InvalidInput(f"{path} holds a {type(value).__name__}, not what was asked for")
    if (agree := getattr(value, "agree", None)) is not None:
        try:
            agree()
        except (SfumatoError, *UNREADABLE) as error:
            raise InvalidInput(f"{path} contradicts itself: {error}") from error
    return value


ENDINGS = (KeyboardInterrupt, SystemExit)
"""What a signal that ends a process is raised as: Ctrl-C by Python itself, others by whoever handles them so."""


@contextmanager
def defer_signals() -> Generator[None]:
    """Have SIGINT and SIGTERM, in the main thread, act at the end of the block in place of within it."""
    noted, before = list[int](), dict[int, object]()

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        noted.append(number)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(number)
            # one that is ignored stays so, and of one that Python did not set (None) nothing could be put back
            if handler not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[reportArgumentType]  (it is what `signal` returned)
        for number in noted[:1]:
            signal.raise_signal(number)
