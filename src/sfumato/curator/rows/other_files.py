"""A JSON file as one text per record, each on a line of its own: itself where it is that already, else a copy.

Where a record ends is found without reading it: of newline-delimited JSON at the end of its line, of an array or of
objects one after another where its brackets and quotes are in pairs again. So a record that is no JSON is a record
that cannot be read, and the others are read as ever. A line of blanks is no record; one of more than 2 MiB cannot be
read. Only brackets and quotes that are not in pairs make an array, or objects one after another, no table.
"""

from __future__ import annotations

import itertools
import warnings
import zipfile
from collections.abc import Iterable, Iterator
from datetime import datetime, time
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sfumato.curator.rows.encoding import element_text
from sfumato.curator.rows.text_files import BLOCK, BOM, MAX_RECORD, is_text
from sfumato.errors import MissingExtra, SourceError

SEPARATOR = "\x01"
"""Occurs in no line: JSON has it nowhere."""

_BROKEN = b"?"
Bytes = NDArray[np.uint8]


def readable_json(path: str, copy: str, *, by_line: bool) -> str:
    """The file of lines that DuckDB is to read: `path`, or `copy`, which is written if need be.

    Raises SourceError for a file that is neither an array nor objects one after another, unless it is read by line.
    """
    label = Path(path).name
    if by_line:
        if all(_is_plain_json(chunk) for chunk in _line_chunks(_read_blocks(path))):
            return path
        lines = _line_chunks(_strip_byte_order_mark(_read_blocks(path)))
    else:
        lines = _line_chunks(_split_json_records(path, label))
    with open(copy, "xb") as out:
        out.writelines(chunk if _is_plain_json(chunk) else _mend_json_lines(chunk) for chunk in lines)
    return copy


def _read_blocks(path: str) -> Iterator[bytes]:
    with open(path, "rb") as handle:
        while block := handle.read(BLOCK):
            yield block


def _strip_byte_order_mark(blocks: Iterator[bytes]) -> Iterator[bytes]:
    yield next(blocks, b"").removeprefix(BOM)
    yield from blocks


def _line_chunks(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in chunks that end with a line; what of a line is beyond the limit is left out."""
    rest = b""
    for block in blocks:
        # a line that is too long stays too long
        buffer = rest[: MAX_RECORD + 1] + block
        used = buffer.rfind(b"\n") + 1
        if used:
            yield buffer[:used]
        rest = buffer[used:]
    if rest:
        yield rest


def _is_plain_json(chunk: bytes) -> bool:
    """Whether DuckDB reads these lines as they are."""
    if b"\r" in chunk or SEPARATOR.encode() in chunk or chunk.startswith(BOM):
        return False
    ends = np.flatnonzero(np.frombuffer(chunk, dtype=np.uint8) == ord("\n"))
    longest = max(np.diff(ends, prepend=-1).max(initial=0) - 1, len(chunk) - (ends[-1] + 1 if ends.size else 0))
    return longest <= MAX_RECORD and is_text(chunk)


def _mend_json_lines(chunk: bytes) -> bytes:
    # a carriage return is a blank between the parts of a record, and in a text it is no JSON: \x02 is none anywhere
    lines = chunk.replace(b"\r\n", b"\n").replace(b"\r", b" ").replace(SEPARATOR.encode(), b"\x02").split(b"\n")
    return b"\n".join(line if len(line) <= MAX_RECORD and is_text(line) else _BROKEN for line in lines)


def _split_json_records(path: str, label: str) -> Iterator[bytes]:
    """An array, or objects one after another, with a line end between records and none within."""
    blocks = _strip_byte_order_mark(_read_blocks(path))
    beginning = b""
    for block in blocks:
        beginning = block.lstrip(b" \t\r\n")
        if beginning:
            break
    if beginning[:1] not in (b"[", b"{"):
        raise SourceError(f"{label} is neither a JSON array of objects nor objects one after another")
    level = 1 if beginning[:1] == b"[" else 0
    brackets = _Brackets()
    closed = False
    for block in itertools.chain((beginning,), blocks):
        data = np.frombuffer(block, dtype=np.uint8).copy()
        inside, depth = brackets.follow(data)
        line_ends = (data == ord("\n")) | (data == ord("\r"))
        # in a text a line end is no JSON, and must stay none
        data[line_ends & inside] = 2
        if level == 0:
            if depth.min(initial=0) < 0:
                raise _unpaired_brackets(label)
            data[line_ends & ~inside & (depth > 0)] = ord(" ")
            yield _separate_objects(data, depth, inside)
            continue
        data[line_ends & ~inside] = ord(" ")
        if closed or (depth == 0).any():
            first = 0 if closed else int(np.argmax(depth == 0))
            after = data[first if closed else first + 1 :]
            if (after != ord(" ")).any() and bytes(after).strip(b" \t"):
                raise _unpaired_brackets(label)
            data[first:] = ord(" ")
            closed = True
        data[(depth == 1) & ~inside & (data == ord(","))] = ord("\n")
        if block is beginning:
            data[0] = ord(" ")
        yield data.tobytes()
    if brackets.depth or brackets.quoted:
        raise _unpaired_brackets(label)


def _unpaired_brackets(label: str) -> SourceError:
    return SourceError(f"{label} is not valid JSON: its brackets or quotes are not in pairs")


class _Brackets:
    """How deep in brackets a JSON text is, followed a block at a time."""

    def __init__(self) -> None:
        self.depth = 0
        self.quoted = False
        self._escaped = False

    def follow(self, data: Bytes) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Of every byte: whether it stands within a text, and the depth after it."""
        quote = data == ord('"')
        quote[self._escapes(data)] = False
        inside = (np.cumsum(quote, dtype=np.uint8) + np.uint8(self.quoted)) % 2 == 1
        opening = ((data == ord("[")) | (data == ord("{"))) & ~inside
        closing = ((data == ord("]")) | (data == ord("}"))) & ~inside
        depth = np.cumsum(opening.astype(np.int64) - closing) + self.depth
        self.depth, self.quoted = int(depth[-1]), bool(inside[-1])
        return inside, depth

    def _escapes(self, data: Bytes) -> NDArray[np.intp]:
        """The places after an odd number of backslashes."""
        back = data == ord("\\")
        first = np.zeros(0, dtype=np.intp)
        if self._escaped:
            back[0] = False
            first = np.zeros(1, dtype=np.intp)
        edges = np.flatnonzero(np.diff(back, prepend=False, append=False))
        starts, stops = edges[0::2], edges[1::2]
        odd = stops[(stops - starts) % 2 == 1]
        self._escaped = bool(odd.size and odd[-1] == len(data))
        return np.concatenate([first, odd[odd < len(data)]])


def _separate_objects(data: Bytes, depth: NDArray[np.int64], inside: NDArray[np.bool_]) -> bytes:
    """Objects one after another, with a line end before and after each."""
    begins = (depth == 1) & ~inside & ((data == ord("[")) | (data == ord("{")))
    ends = (depth == 0) & ~inside & ((data == ord("]")) | (data == ord("}")))
    places = np.concatenate([np.flatnonzero(begins), np.flatnonzero(ends) + 1])
    return np.insert(data, places, ord("\n")).tobytes()


# What a workbook may hold, unpacked: its texts lie in memory, and more is taken for a bomb.
MAX_UNPACKED = 2**31


def sheet_to_csv(path: str, copy: str, sheet: str | None, decimal: str) -> None:
    """Write a sheet to `copy` as CSV with every field quoted. Raises MissingExtra or SourceError."""
    try:
        import openpyxl as package  # noqa: PLC0415  # pyright: ignore
    except ImportError:
        raise MissingExtra(
            "openpyxl is not installed, and spreadsheets are read by it: pip install openpyxl, or save the sheet as CSV"
        ) from None
    openpyxl, label = cast(Any, package), Path(path).name
    with zipfile.ZipFile(path) as packed:
        if sum(entry.file_size for entry in packed.infolist()) > MAX_UNPACKED:
            raise SourceError(f"{label} holds more than {MAX_UNPACKED:,} bytes, unpacked: save the sheet as CSV")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they quote cells
        book = openpyxl.load_workbook(path, read_only=True, data_only=True, keep_links=False)
        try:
            pages = [page for page in book.worksheets if sheet is None or page.title == sheet]
            if not pages:
                what = "no sheet" if sheet is None else f"no sheet called {sheet!r}"
                raise SourceError(f"{label} has {what} (names are matched exactly, capitals included)")
            pages[0].reset_dimensions()  # what a file says of its own size may be wrong
            with open(copy, "x", encoding="utf-8", errors="replace", newline="") as out:
                out.writelines(_sheet_lines(pages[0].iter_rows(values_only=True), decimal))
        finally:
            book.close()


def _sheet_lines(rows: Iterable[tuple[Any, ...]], decimal: str) -> Iterator[str]:
    width = None
    for row in rows:
        fields = ["" if v is None else element_text(_date_if_midnight(v), decimal) or "" for v in row]
        if width is None:
            while fields and not fields[-1]:
                fields.pop()
            width = len(fields)
        elif not any(fields):
            continue
        cells = (fields + [""] * width)[:width]  # beyond the names stand remarks
        yield ",".join('"' + field.replace('"', '""') + '"' for field in cells) + "\n"


def _date_if_midnight(value: Any) -> Any:
    return value.date() if isinstance(value, datetime) and value.time() == time() else value
