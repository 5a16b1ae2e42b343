"""One way to store and to fingerprint the library's frozen values: JSON for structure, plain arrays for numbers.

A class takes part by the decorator `storable`. Only such classes are ever built when a file is read,
through their constructors, so a file cannot do what a caller could not. Nothing is pickled.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import operator
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from enum import Enum
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InvalidInput
from sfumato.ground.later import told
from sfumato.ground.scratch import place
from sfumato.ground.spool import forget

__all__ = [
    "decode",
    "encode",
    "fingerprint",
    "is_beside",
    "pack",
    "read_document",
    "rebuild",
    "storable",
    "sync_folder",
    "unpack",
    "write_atomically",
    "write_document",
]

T = TypeVar("T", bound=type)
Arrays = dict[str, NDArray[Any]]

_CLASSES: dict[str, type] = {}
elsewhere: dict[str, str] = {}
"""The modules of storable classes that are imported when a file first names them, by class."""
_MAX_DEPTH = 64
_MAX_HEX_DIGITS = 2**14  # sums of spends have 8,192 bits at most; arithmetic on millions would not end
_HASHED = 2**23
_MAX_JSON_BYTES = 256 * 2**20
_MAX_ARRAY_BYTES = 4 * 2**30
# What a file may unpack to, whatever its size, and as a multiple of it. Parsed text takes some forty times its size.
# What is larger is not written packed, so all that is written can be read.
_FREE_TEXT_BYTES = 16 * 2**20
_FREE_ARRAY_BYTES = 64 * 2**20
_UNPACKED = 8
_PIECE = 2**20
_HEADER_BYTES = 2**16 + 10  # of an array in version 1.0 of numpy's format, at most
_DOCUMENT = "document.json"
_OUTSIDE = "~outside"
_BESIDE = re.compile(r"values-[0-9]{1,6}\.npy")
_UNREADABLE = (
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


def storable(cls: T) -> T:
    """Let a frozen dataclass or an enum of the library be stored under its class name.

    The registry is closed: what a file may build, and what the curator measures, is the library's own.
    """
    name = cls.__name__
    if cls.__module__.partition(".")[0] != __name__.partition(".")[0]:
        raise TypeError(f"{cls.__module__}.{name} is none of the library's own classes; those alone are stored")
    known = _CLASSES.get(name, cls)
    if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise TypeError(f"two storable classes are called {name}")
    _CLASSES[name] = cls
    return cls


def encode(value: object) -> tuple[Any, Arrays]:
    """Split a value into a JSON tree and the arrays it refers to by name."""
    arrays: Arrays = {}
    return _encode(value, arrays, 0), arrays


def _encode(value: object, arrays: Arrays, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise InvalidInput(f"a value nested deeper than {_MAX_DEPTH} levels cannot be stored")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        # a text of a class that derives from str may compare as it likes
        return "".join((value,))
    if type(value) is int or isinstance(value, np.integer):
        return _encode_integer(int(value))
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, (float, np.floating)):
        number = float(value)
        return number if math.isfinite(number) else {"~float": repr(number)}
    if isinstance(value, Fraction):
        return {"~fraction": [_encode_integer(value.numerator), _encode_integer(value.denominator)]}
    if isinstance(value, (tuple, list)):
        return [_encode(item, arrays, depth + 1) for item in value]
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
            raise InvalidInput(f"an array of {value.dtype} cannot be stored; use numbers of at most 64 bits")
        key = f"a{len(arrays)}"
        arrays[key] = value if isinstance(value, np.memmap) else _plain(value)
        return {"~array": key}
    if isinstance(value, Mapping):
        return {"~map": [[_encode(k, arrays, depth + 1), _encode(v, arrays, depth + 1)] for k, v in value.items()]}
    name = type(value).__name__
    if _CLASSES.get(name) is not type(value):
        raise InvalidInput(f"a {name} cannot be stored")
    if isinstance(value, Enum):
        return {"~class": name, "value": value.value}
    if is_dataclass(value):
        body = {key: _encode(held, arrays, depth + 1) for key, held in told(value)}
        return {"~class": name, **body}
    raise InvalidInput(f"a {name} cannot be stored")


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _encode_integer(value: int) -> int | dict[str, str]:
    # Python refuses to write and read decimal texts of more than 4300 digits
    return value if abs(value) < 2**1024 else {"~integer": hex(value)}


def decode(tree: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """The value that `encode` was given; sequences come back as tuples. Raises InvalidInput for anything else.

    An array is used once, as `encode` does: a value that names it a thousand times could copy it a thousand times.
    """
    try:
        return _decode(tree, dict(arrays), 0)
    except InvalidInput:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # constructors of foreign values fail in their own ways
        raise InvalidInput(f"what was stored cannot be read: {type(error).__name__}: {error}") from error


def _decode(tree: Any, arrays: Arrays, depth: int) -> Any:
    if depth > _MAX_DEPTH + 1:
        raise InvalidInput("what was stored is nested too deeply")
    if isinstance(tree, list):
        return tuple(_decode(item, arrays, depth + 1) for item in tree)
    if not isinstance(tree, dict):
        return tree
    if "~float" in tree:
        return float(tree["~float"])
    if "~integer" in tree:
        if len(tree["~integer"]) > _MAX_HEX_DIGITS:
            raise InvalidInput(f"an integer has more than {_MAX_HEX_DIGITS:,} digits")
        return int(tree["~integer"], 16)
    if "~fraction" in tree:
        numerator, denominator = _decode(tree["~fraction"], arrays, depth + 1)
        return Fraction(operator.index(numerator), operator.index(denominator))
    if "~array" in tree:
        array = arrays.pop(tree["~array"]).view()
        array.flags.writeable = False
        return array
    if "~map" in tree:
        pairs = [(_decode(k, arrays, depth + 1), _decode(v, arrays, depth + 1)) for k, v in tree["~map"]]
        if len(dict(pairs)) != len(pairs):
            raise InvalidInput("what was stored holds a key twice")
        return dict(pairs)
    name = tree.get("~class", "")
    if name not in _CLASSES and name in elsewhere:
        import_module(elsewhere[name])
    cls = _CLASSES.get(name)
    if cls is None:
        raise InvalidInput(f"the file holds a {tree.get('~class', 'value')!r} that this version does not know")
    body = {key: _decode(item, arrays, depth + 1) for key, item in tree.items() if key != "~class"}
    return cls(**body)


def rebuild(value: object) -> Any:
    """The value built anew by the library's own constructors, with arrays of its own. Raises InvalidInput.

    Whoever keeps the arrays that were given cannot change it any more.
    """
    tree, arrays = encode(value)
    return decode(tree, {key: np.array(array, order="C") for key, array in arrays.items()})


def fingerprint(value: object) -> str:
    """SHA-256 over the canonical form of a value: equal values have equal fingerprints."""
    tree, arrays = encode(value)
    digest = hashlib.sha256(json.dumps(tree, sort_keys=True, ensure_ascii=True).encode())
    for key, array in arrays.items():
        digest.update(f"{key}:{array.dtype.str}:{array.shape}".encode())
        flat = array.reshape(-1)
        for start in range(0, flat.size, _HASHED):
            digest.update(flat[start : start + _HASHED].data)
            forget(array)
    return digest.hexdigest()


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Write in a place of its own, sync it, then rename it to `path` and sync the folder."""
    with place(path) as folder:
        partial = folder / path.name
        write(partial)
        with partial.open("rb") as handle:
            os.fsync(handle.fileno())
        partial.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Have the names in a folder on stable storage."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_document(path: str | os.PathLike[str], value: object, *, beside: bool = False) -> None:
    """Store a value in one file (a zip of one JSON document and plain .npy arrays).

    With `beside`, arrays that are whole files values-i.npy of the same folder stay there, and are named.
    """
    tree, arrays = encode(value)
    places = {k: is_beside(a, Path(path).parent) for k, a in arrays.items()} if beside else {}
    outside = {k: name for k, name in places.items() if name is not None}
    if outside:
        tree = {_OUTSIDE: outside, "value": tree}
    inside = {k: a for k, a in arrays.items() if k not in outside}
    # noisy integers and optimised coefficients do not compress; the text does
    write = _bundled(tree, inside, zipfile.ZIP_STORED)
    write_atomically(Path(path), write)


def _bundled(tree: Any, arrays: Arrays, how: int) -> Callable[[Path | io.BytesIO], None]:
    """What writes a zip of one JSON document and plain arrays. Raises InvalidInput at once for what is too large."""
    inside = {k: _plain(a) for k, a in arrays.items()}
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


def pack(value: object) -> bytes:
    """One value as the bytes of a small file. Raises InvalidInput for what cannot be stored."""
    target = io.BytesIO()
    _bundled(*encode(value), zipfile.ZIP_DEFLATED)(target)
    return target.getvalue()


def unpack(data: bytes) -> Any:
    """What `pack` was given; sequences come back as tuples. Raises InvalidInput for anything else."""
    try:
        tree, arrays = _unbundled(io.BytesIO(data))
        return decode(tree, arrays)
    except _UNREADABLE as error:
        raise InvalidInput(f"what was stored cannot be read: {error}") from error


def is_beside(array: NDArray[Any], folder: Path) -> str | None:
    """The name of the file in a folder that an array is the whole of, or None."""
    name = getattr(array, "filename", None)
    if not isinstance(array, np.memmap) or name is None or array.ndim != 1 or not array.flags.c_contiguous:
        return None
    path = Path(name)
    whole = path.is_file() and array.offset + array.nbytes == path.stat().st_size
    return path.name if whole and _BESIDE.fullmatch(path.name) and folder.samefile(path.parent) else None


def _read_beside(folder: Path, name: object) -> NDArray[Any]:
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
        tree, arrays = _unbundled(Path(path))
        if isinstance(tree, dict) and _OUTSIDE in tree:
            outside = tree[_OUTSIDE]
            if not beside or not isinstance(outside, dict):
                raise InvalidInput("it names files beside it")
            arrays |= {k: _read_beside(Path(path).parent, name) for k, name in outside.items()}
            tree = tree["value"]
        value = decode(tree, arrays)
    except _UNREADABLE as error:
        raise InvalidInput(f"{path} is not a file that sfumato wrote: {error}") from error
    if not isinstance(value, expected):
        raise InvalidInput(f"{path} holds a {type(value).__name__}, not what was asked for")
    return value


def _unbundled(source: Path | io.BytesIO) -> tuple[Any, Arrays]:
    size = source.getbuffer().nbytes if isinstance(source, io.BytesIO) else source.stat().st_size
    with zipfile.ZipFile(source) as bundle:
        members = bundle.infolist()
        _check_members(members, size)
        tree = json.loads(_unpacked(bundle, bundle.getinfo(_DOCUMENT)), parse_constant=_no_constant)
        arrays = {
            m.filename.removesuffix(".npy"): _read_array(_unpacked(bundle, m))
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


def _unpacked(bundle: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytearray:
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


def _no_constant(text: str) -> None:
    raise InvalidInput(f"{text} is no number")


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
