"""A CSV file as DuckDB can read it: itself where every record is well formed, else a copy with the others mended.

RFC 4180 with a header line. The header is public: it fixes the delimiter, the number of fields and how lines end. After
it every record is read by itself, whatever it holds:

* A quote opens a field only where the field begins; it closes where it stands alone, and blanks may follow it.
* A field that is no UTF-8, and one with text after its closing quote, cannot be read; nor can any field of a record
  with a field too many, or of more than 2 MiB. Fields that a record lacks are missing. A line without anything is no
  record, unless the table has one column: then it is a missing field.

What cannot be mended is a quoted field that never closes, or that runs over a line end and then closes where no field
ends: where one record stops and the next begins is lost, so the file is refused.
"""

from __future__ import annotations

import codecs
import gzip
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import numpy as np

from sfumato.curator.rows.encoding import UNREADABLE
from sfumato.errors import SourceError

# What a packed file may hold, unpacked: its copy has to lie somewhere, and more is taken for a bomb.
MAX_UNPACKED = 2**36
_BLOCK = 2**20  # bytes that are copied at once
_MARKS = {codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}


def is_itself(path: str, encoding: str) -> bool:
    """Whether a file's own bytes are those of its text."""
    return encoding == "utf-8" and not path.lower().endswith(".gz")


def open_as_utf8(path: str, encoding: str) -> BinaryIO:
    """A file's text as bytes of UTF-8, from the beginning; a byte that is no character of the encoding is 0xFF.

    Raises SourceError where the first bytes are the mark of another encoding.
    """
    packed = path.lower().endswith(".gz")
    raw = cast(BinaryIO, gzip.open(path, "rb") if packed else open(path, "rb"))  # noqa: SIM115  (the caller closes it)
    found = cast(BinaryIO, raw if is_itself(path, encoding) else io.BufferedReader(_Text(raw, encoding), _BLOCK))
    try:
        _check_byte_order_mark(path, encoding)
    except BaseException:
        found.close()
        raise
    return found


def _check_byte_order_mark(path: str, encoding: str) -> None:
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
        self._table = None if encoding == "utf-8" else "".join(_decode_byte(b, encoding) for b in range(256))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self._rest:
            block = self._raw.read(_BLOCK)
            self._read += len(block)
            if self._read > MAX_UNPACKED:
                raise SourceError(f"the file holds more than {MAX_UNPACKED:,} bytes, unpacked: give it as Parquet")
            self._rest = block if self._table is None else _translate_block(block, self._table)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def close(self) -> None:
        self._raw.close()
        super().close()


def _decode_byte(byte: int, encoding: str) -> str:
    try:
        return bytes([byte]).decode(encoding)
    except UnicodeDecodeError:
        return "\udcff"  # written as the byte 0xFF, which is in no UTF-8: the field it is in cannot be read


def _translate_block(block: bytes, table: str) -> bytes:
    return codecs.charmap_decode(block, "strict", cast(Any, table))[0].encode("utf-8", "surrogateescape")


MAX_RECORD = 2**21  # longer records are unreadable rows; DuckDB is given eight times as much, for quotes
_HEADER_BYTES = 2**20  # names of ten thousand columns
BLOCK = 2**22  # read at a time: twice the longest record
BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r?\n|\r")
_QUOTED = re.compile(rb'"((?:[^"]++|"")*+)"')
_UNREADABLE = UNREADABLE.encode()


class _Unbalanced(Exception):
    """A quoted field does not close as it should."""


@dataclass(frozen=True, slots=True)
class CsvLayout:
    """What a header says: its names (None: unreadable), where records begin, and the bytes between fields and lines."""

    names: tuple[str | None, ...]
    start: int
    delimiter: bytes
    line_end: bytes

    @property
    def end(self) -> bytes:
        """The byte that ends a record."""
        return self.line_end[-1:]


def find_layout(path: str, needed: Sequence[str], encoding: str = "utf-8", delimiter: str | None = None) -> CsvLayout:
    """The layout by the delimiter, or by the first with which the header has most of the needed columns.

    No record is read.
    """
    with open_as_utf8(path, encoding) as handle:
        beginning = handle.read(_HEADER_BYTES)
    allowed = (b",", b";", b"\t", b"|") if delimiter is None else (delimiter.encode(),)
    found = [_read_header_layout(beginning, mark) for mark in allowed]
    # of those that are as good the one with the most columns: without needed ones, whoever asks for names
    return min(found, key=lambda one: (sum(n not in one.names for n in needed), -len(one.names) * (not needed)))


class OtherEncoding(SourceError):
    """A header that is not in its encoding; nothing of the file is quoted."""


def public_header_name(name: str | None, label: str, encoding: str) -> str:
    """A name of a header. Raises OtherEncoding where it is none in the encoding, for whoever declares it."""
    if name is None:
        raise OtherEncoding(
            f"a name in the header of {label} is not in {encoding}: declare its encoding, such as cp1252"
        )
    return name


def _read_header_layout(beginning: bytes, delimiter: bytes) -> CsvLayout:
    start = len(BOM) if beginning.startswith(BOM) else 0
    try:
        read = _read_record(
            beginning, start, delimiter, re.compile(rb"[^\r\n" + re.escape(delimiter) + rb"]*+"), final=True
        )
    except _Unbalanced:
        read = None
    fields, at = read or ([], start)
    ending = _LINE_END.match(beginning, at)
    names = tuple(None if f is None else _decode_or_none(f) for f in fields)
    return CsvLayout(names, ending.end() if ending else at, delimiter, ending[0] if ending else b"\n")


def readable_csv(path: str, copy: str, found: CsvLayout, encoding: str = "utf-8") -> str:
    """The file that DuckDB is to read: `path`, or `copy`, which is written if a record has to be mended or recoded.

    Raises SourceError for quotes that do not close.
    """
    try:
        if is_itself(path, encoding) and all(mended is None for _, mended in _record_chunks(path, found, encoding)):
            return path
        with open(copy, "xb") as out:
            header = (b'"c%d"' % i for i in range(len(found.names)))
            out.write(found.delimiter.join(header) + found.line_end)
            for chunk, mended in _record_chunks(path, found, encoding):
                out.write(chunk if mended is None else mended)
    except _Unbalanced:
        pass
    else:
        return copy
    raise SourceError(f'{Path(path).name} has an unbalanced quote (") somewhere')


def _record_chunks(path: str, found: CsvLayout, encoding: str) -> Iterator[tuple[bytes, bytes | None]]:
    """The records of a file in chunks of whole ones, and what to write instead of a chunk that is not well formed."""
    with open_as_utf8(path, encoding) as handle:
        handle.read(found.start)
        yield from _whole_record_chunks(handle, found)


def _whole_record_chunks(handle: BinaryIO, found: CsvLayout) -> Iterator[tuple[bytes, bytes | None]]:
    rest = b""
    final = False
    while not final:
        # as much again as is left over: a record of any length is read in linear time
        size = max(BLOCK, len(rest))
        block = handle.read(size)
        final = len(block) < size
        buffer = rest + block
        used = _well_formed_length(buffer, found, final=final)
        mended = None
        if used is None:
            used, mended = _mend_records(buffer, found, final=final)
        if used:
            yield buffer[:used], mended
        rest = buffer[used:]


def _well_formed_length(buffer: bytes, found: CsvLayout, *, final: bool) -> int | None:
    """How many bytes of whole records a buffer begins with; None where one of them may not be well formed."""
    data = np.frombuffer(buffer, dtype=np.uint8)
    quotes = np.flatnonzero(data == ord('"'))
    ends = _outside_quotes(np.flatnonzero(data == ord(found.end)), quotes)
    if final and len(data) and (not ends.size or ends[-1] + 1 < len(data)):
        stop = len(data)
        complete = ends
        ends = np.append(ends, stop)
    else:
        stop = int(ends[-1]) + 1 if ends.size else 0
        complete = ends
    data = data[:stop]
    quotes = quotes[: np.searchsorted(quotes, stop)]
    chunk = buffer[:stop]
    if quotes.size % 2 or b"\0" in chunk or not is_text(chunk) or not _quotes_fit(data, quotes, found):
        return None
    returns = _outside_quotes(np.flatnonzero(data == ord("\r")), quotes)
    strays = _outside_quotes(np.flatnonzero(data == ord("\n")), quotes) if found.line_end == b"\r" else returns
    if found.line_end == b"\r\n":
        if not np.array_equal(returns, complete - 1):
            return None
    elif strays.size:
        return None
    before = np.searchsorted(_outside_quotes(np.flatnonzero(data == ord(found.delimiter)), quotes), ends)
    fields = np.diff(before, prepend=0) + 1
    lengths = np.diff(ends, prepend=-1) - 1
    if found.line_end == b"\r\n":
        lengths[: len(complete)] -= 1
    if ((fields != len(found.names)) & (lengths > 0)).any() or lengths.max(initial=0) > MAX_RECORD:
        return None
    return stop


def _outside_quotes(places: np.ndarray, quotes: np.ndarray) -> np.ndarray:
    """Those places that an even number of quotes precedes."""
    return places[np.searchsorted(quotes, places) % 2 == 0] if quotes.size else places


def _quotes_fit(data: np.ndarray, quotes: np.ndarray, found: CsvLayout) -> bool:
    """Whether every other quote opens a field, or doubles the one before it, and the others close one."""
    if not quotes.size:
        return True
    opening, closing = quotes[0::2], quotes[1::2]
    around = [ord('"'), ord(found.delimiter), *found.line_end]
    before, after = data[opening[opening > 0] - 1], data[closing[closing + 1 < len(data)] + 1]
    return bool(np.isin(before, around).all() and np.isin(after, around).all())


def _mend_records(buffer: bytes, found: CsvLayout, *, final: bool) -> tuple[int, bytes]:
    """How many bytes of whole records a buffer begins with, and these records with every field quoted."""
    plain = re.compile(b"[^" + re.escape(found.delimiter) + found.end + b"]*+")
    size = len(found.names)
    # whole fields with their delimiters: plain ones, quoted ones on one line whatever follows, quoted ones over several
    mark, rest = re.escape(found.delimiter), b"[^" + re.escape(found.delimiter) + found.end + b"]*+"
    quoted = rb'"(?:[^"\r\n]++|"")*+"' + rest, rb'"(?:[^"]++|"")*+"[ \t\r]*+'
    fields_on = re.compile(b"(?:" + b"|".join(f + mark for f in (b'(?!")' + rest, *quoted)) + b")*+")
    at = 0
    out: list[bytes] = []
    while at < len(buffer):
        read = _read_record(buffer, at, found.delimiter, plain, final=final, beyond=(size, fields_on))
        if read is None:
            break
        fields, end = read
        if fields != [b""] or size == 1:
            length = end - at - buffer.endswith(b"\r", at, end)
            if len(fields) > size or length > MAX_RECORD:
                fields = [None] * size
            fields += [b""] * (size - len(fields))
            shown = (_UNREADABLE if f is None or not is_text(f) else f.replace(b'"', b'""') for f in fields)
            out.append(found.delimiter.join(b'"' + f + b'"' for f in shown) + found.line_end)
        at = end + 1
    return min(at, len(buffer)), b"".join(out)


def _read_record(
    buffer: bytes,
    at: int,
    delimiter: bytes,
    plain: re.Pattern[bytes],
    *,
    final: bool,
    beyond: tuple[int, re.Pattern[bytes]] | None = None,
) -> tuple[list[bytes | None], int] | None:
    """The fields of the record that begins there, None for what cannot be read, and where its line ends.

    `beyond` is a number of fields and what fields after these look like: of a record of more some are left out, for one
    record of nothing but delimiters would take longer than all others.

    None where the buffer ends first. Raises _Unbalanced.
    """
    fields: list[bytes | None] = []
    while True:
        value: bytes | None = None
        end = at
        if buffer[at : at + 1] == b'"':
            quoted = _QUOTED.match(buffer, at)
            if quoted is None and final:
                raise _Unbalanced
            if quoted is None:
                return None
            end = quoted.end()
            value = quoted[1].replace(b'""', b'"')
        after = plain.match(buffer, end)
        assert after is not None  # it may be empty
        if after.end() == len(buffer) and not final:
            return None
        if value is None:
            value = after[0].removesuffix(b"\r") if buffer[after.end() : after.end() + 1] in (b"\n", b"") else after[0]
        elif after[0].strip(b" \t\r"):
            if _LINE_END.search(value):
                raise _Unbalanced
            value = None
        fields.append(value)
        at = after.end()
        if buffer[at : at + 1] != delimiter:
            return fields, at
        at += 1
        if beyond is not None and len(fields) > beyond[0]:
            passed = beyond[1].match(buffer, at)
            assert passed is not None  # it may be empty
            at = passed.end()


def is_text(data: bytes) -> bool:
    """Whether bytes are UTF-8."""
    return data.isascii() or _decode_or_none(data) is not None


def _decode_or_none(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
