"""The bytes of a text file as UTF-8: out of the encoding that was declared, and unpacked where its name ends .gz."""

from __future__ import annotations

import codecs
import gzip
import io
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from sfumato.errors import SourceError

__all__ = ["is_itself", "opened"]

# What a packed file may hold, unpacked: its copy has to lie somewhere, and more is taken for a bomb.
MAX_UNPACKED = 2**36
_BLOCK = 2**20  # bytes that are copied at once
_MARKS = {codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}


def is_itself(path: str, encoding: str) -> bool:
    """Whether a file's own bytes are those of its text."""
    return encoding == "utf-8" and not path.lower().endswith(".gz")


def opened(path: str, encoding: str) -> BinaryIO:
    """A file's text as bytes of UTF-8, from the beginning; a byte that is no character of the encoding is 0xFF.

    Raises SourceError where the first bytes are the mark of another encoding.
    """
    packed = path.lower().endswith(".gz")
    raw = cast(BinaryIO, gzip.open(path, "rb") if packed else open(path, "rb"))  # noqa: SIM115  (the caller closes it)
    found = cast(BinaryIO, raw if is_itself(path, encoding) else io.BufferedReader(_Text(raw, encoding), _BLOCK))
    try:
        _check_mark(path, encoding)
    except BaseException:
        found.close()
        raise
    return found


def _check_mark(path: str, encoding: str) -> None:
    with gzip.open(path, "rb") if path.lower().endswith(".gz") else open(path, "rb") as handle:
        beginning = handle.read(3)
    marks = _MARKS | ({} if encoding == "utf-8" else {codecs.BOM_UTF8: "UTF-8"})
    for mark, name in marks.items():
        if beginning.startswith(mark):
            what = "leave encoding out" if name == "UTF-8" else "save it as UTF-8"
            raise SourceError(f"{Path(path).name} begins with the mark of {name}: {what}")


class _Text(io.RawIOBase):
    """Bytes of an encoding as those of UTF-8."""

    def __init__(self, raw: IO[bytes], encoding: str) -> None:
        self._raw, self._read, self._rest = raw, 0, b""
        self._table = None if encoding == "utf-8" else "".join(_character(b, encoding) for b in range(256))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self._rest:
            block = self._raw.read(_BLOCK)
            self._read += len(block)
            if self._read > MAX_UNPACKED:
                raise SourceError(f"the file holds more than {MAX_UNPACKED:,} bytes, unpacked: give it as Parquet")
            self._rest = block if self._table is None else _translated(block, self._table)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def close(self) -> None:
        self._raw.close()
        super().close()


def _character(byte: int, encoding: str) -> str:
    try:
        return bytes([byte]).decode(encoding)
    except UnicodeDecodeError:
        return "\udcff"  # written as the byte 0xFF, which is in no UTF-8: the field it is in cannot be read


def _translated(block: bytes, table: str) -> bytes:
    return codecs.charmap_decode(block, "strict", cast(Any, table))[0].encode("utf-8", "surrogateescape")
