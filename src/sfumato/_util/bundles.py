"""A value as one zip: a JSON document and plain arrays, written alike for equal values, read within limits."""

from __future__ import annotations

import io
import json
import math
import unicodedata
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import decode_value, encode_value, little_endian_array
from sfumato.check_forms import check_document_forms, parse_strict_json
from sfumato.errors import DomainError, InvalidInput

Arrays = dict[str, NDArray[Any]]

# What one file holds at most: parsed text takes some forty times its size, so this needs 10 GB; arrays take their own.
_MAX_JSON_BYTES = 256 * 2**20
_MAX_ARRAY_BYTES = 4 * 2**30  # larger values of releases lie beside the file, and are mapped
# What a file may unpack to, whatever its size, and as a multiple of it. Parsed text takes some forty times its size.
# What is larger is not written packed, so all that is written can be read.
_FREE_TEXT_BYTES = 16 * 2**20
_FREE_ARRAY_BYTES = 64 * 2**20  # as the text above: what any machine has free
_UNPACKED = 8  # honest documents pack to a third or a fifth; zeros, to a thousandth, are what a bomb is made of
_PIECE = 2**20  # read at once; any size that keeps few pieces would do
_HEADER_BYTES = 2**16 + 10  # of an array in version 1.0 of numpy's format, at most
_DOCUMENT = "document.json"
UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


def zip_writer(tree: Any, arrays: Arrays, how: int) -> Callable[[Path | io.BytesIO], None]:
    """What writes a zip of one JSON document and plain arrays. Raises InvalidInput at once for what is too large."""
    inside = {k: little_endian_array(a) for k, a in arrays.items()}
    document = json.dumps(tree, ensure_ascii=True, allow_nan=False).encode()
    size = sum(a.nbytes for a in inside.values())
    if len(document) > _MAX_JSON_BYTES or size > _MAX_ARRAY_BYTES:
        raise InvalidInput(
            f"at most {_MAX_JSON_BYTES:,} bytes of text and {_MAX_ARRAY_BYTES:,} of arrays can be stored"
        )
    # what is large is not packed: a reader could not tell it from a bomb
    text = zipfile.ZIP_DEFLATED if len(document) <= _FREE_TEXT_BYTES else zipfile.ZIP_STORED
    how = how if size + 1024 * len(inside) <= _FREE_ARRAY_BYTES else zipfile.ZIP_STORED

    def write(target: Path | io.BytesIO) -> None:
        with zipfile.ZipFile(target, "w", how, compresslevel=1) as bundle:
            # an entry made by hand bears no time: equal values are equal files
            bundle.writestr(zipfile.ZipInfo(_DOCUMENT), document, text, 6)
            for key, array in inside.items():
                with bundle.open(f"{key}.npy", "w", force_zip64=True) as handle:
                    np.lib.format.write_array(handle, array, allow_pickle=False)

    return write


def pack_value(value: object) -> bytes:
    """One value as the bytes of a small file. Raises InvalidInput for what cannot be stored."""
    target = io.BytesIO()
    zip_writer(*encode_value(value), zipfile.ZIP_DEFLATED)(target)
    return target.getvalue()


def unpack_value(data: bytes) -> Any:
    """What `pack` was given; sequences come back as tuples. Raises InvalidInput for anything else."""
    try:
        tree, arrays = read_zip_document(io.BytesIO(data))
        check_document_forms(tree, arrays)
        return decode_value(tree, arrays)
    except UNREADABLE as error:
        raise InvalidInput(f"what was stored cannot be read: {error}") from error


def read_zip_document(source: Path | io.BytesIO) -> tuple[Any, Arrays]:
    size = source.getbuffer().nbytes if isinstance(source, io.BytesIO) else source.stat().st_size
    with zipfile.ZipFile(source) as bundle:
        members = bundle.infolist()
        _check_members(members, size)
        tree = parse_strict_json(_unpack_member(bundle, bundle.getinfo(_DOCUMENT)))
        arrays = {
            m.filename.removesuffix(".npy"): _read_array(_unpack_member(bundle, m))
            for m in members
            if m.filename != _DOCUMENT
        }
    return tree, arrays


def _check_members(members: list[zipfile.ZipInfo], size: int) -> None:
    """Refuse, before anything is unpacked, what `write_document` never writes, in a file of `size` bytes."""
    names = [m.filename for m in members]
    if len(set(names)) != len(names):
        raise InvalidInput("it holds two parts of one name")
    for member in members:
        known = member.filename == _DOCUMENT or member.filename.endswith(".npy")
        plain = member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) and not member.flag_bits & 1
        if not known or not plain:
            raise InvalidInput(f"it holds the foreign part {member.filename!r}")
    text = sum(m.file_size for m in members if m.filename == _DOCUMENT)
    arrays = sum(m.file_size for m in members) - text
    most = min(_MAX_JSON_BYTES, max(_FREE_TEXT_BYTES, _UNPACKED * size))
    room = min(_MAX_ARRAY_BYTES + 1024 * len(members), max(_FREE_ARRAY_BYTES, _UNPACKED * size))
    if text > most or arrays > room:
        raise InvalidInput(f"of its {size:,} bytes it would unpack more than {most:,} of text or {room:,} of arrays")


def _unpack_member(bundle: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytearray:
    """A part, unpacked piece by piece and no further than its entry says, whatever there is."""
    content = bytearray(member.file_size)
    with bundle.open(member) as packed:
        filled = 0
        while filled < len(content):
            piece = packed.read(min(_PIECE, len(content) - filled))
            if not piece:
                raise InvalidInput(f"its part {member.filename!r} is shorter than it says")
            content[filled : filled + len(piece)] = piece
            filled += len(piece)
    return content


def _read_array(member: bytearray) -> NDArray[Any]:
    """A plain array of numbers, as long as its header says; nothing is allocated for what a header merely claims."""
    handle = io.BytesIO(member[:_HEADER_BYTES])
    if np.lib.format.read_magic(handle) != (1, 0):
        raise InvalidInput("an array is not in version 1.0 of numpy's format")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(handle)
    length = len(member) - handle.tell()
    if dtype.kind not in "biuf" or dtype.itemsize > 8 or fortran or math.prod(shape) * dtype.itemsize != length:
        raise InvalidInput("an array is not of plain numbers, or is shorter or longer than it says")
    return np.frombuffer(memoryview(member).toreadonly(), dtype=dtype, offset=handle.tell()).reshape(shape)


_MAX_NAME_BYTES = 256  # as long as names of files are; longer ones are texts
# letters, marks and symbols that show nothing: fillers, joiners, variation selectors, the empty braille pattern
_BLANK = frozenset(
    map(chr, (0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x2800, 0x3164, *range(0xFE00, 0xFE10)))
) | frozenset(map(chr, (0xFFA0, *range(0xE0100, 0xE01F0))))


def check_text(text: object, what: str, limit: int = _MAX_NAME_BYTES) -> str:
    """A name that people can tell apart: no control, zero-width or bidirectional characters, at most `limit` bytes."""
    if not isinstance(text, str) or not text.strip():
        raise DomainError(f"{what} must be a non-empty text, not {shorten(text)}")
    if len(text) > limit or len(text.encode("utf-8", "surrogatepass")) > limit:
        raise DomainError(f"{what} {text[:40]!r}… is longer than {limit} bytes")
    # what ASCII prints can be seen
    for char in "" if text.isascii() and text.isprintable() else text:
        if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") or char in _BLANK:
            raise DomainError(f"{what} {text!r} holds the invisible character U+{ord(char):04X}; remove it")
    return text


def shorten(value: object) -> str:
    """A value for people, however long it is."""
    try:
        text = repr(value)
    except ValueError:
        # Python writes no whole numbers of more than 4300 digits
        return f"a {type(value).__name__} that is too long to show"
    return text if len(text) <= 200 else f"{text[:200]}…"
