"""One way to store and to fingerprint the library's frozen values: JSON for structure, plain arrays for numbers.

A class takes part by the decorator `storable`. Only such classes are ever built when a file is read,
through their constructors, so a file cannot do what a caller could not. Nothing is pickled.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InvalidInput

__all__ = [
    "decode",
    "encode",
    "fingerprint",
    "read_document",
    "storable",
    "write_atomically",
    "write_document",
]

T = TypeVar("T", bound=type)
Arrays = dict[str, NDArray[Any]]

_CLASSES: dict[str, type] = {}
_MAX_DEPTH = 64
_MAX_JSON_BYTES = 256 * 2**20
_DOCUMENT = "document.json"


def storable(cls: T) -> T:
    """Let a frozen dataclass or an enum be stored under its class name."""
    name = cls.__name__
    if name in _CLASSES and _CLASSES[name].__qualname__ != cls.__qualname__:
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
    if value is None or isinstance(value, (bool, str)) or type(value) is int:
        return value
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, (float, np.floating)):
        number = float(value)
        return number if math.isfinite(number) else {"~float": repr(number)}
    if isinstance(value, Fraction):
        return {"~fraction": f"{value.numerator}/{value.denominator}"}
    if isinstance(value, (tuple, list)):
        return [_encode(item, arrays, depth + 1) for item in value]
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf":
            raise InvalidInput(f"an array of {value.dtype} cannot be stored; use numbers")
        key = f"a{len(arrays)}"
        arrays[key] = np.ascontiguousarray(value)
        return {"~array": key}
    if isinstance(value, Mapping):
        return {"~map": [[_encode(k, arrays, depth + 1), _encode(v, arrays, depth + 1)] for k, v in value.items()]}
    name = type(value).__name__
    if _CLASSES.get(name) is not type(value):
        raise InvalidInput(f"a {name} cannot be stored")
    if isinstance(value, Enum):
        return {"~class": name, "value": value.value}
    if is_dataclass(value):
        body = {f.name: _encode(getattr(value, f.name), arrays, depth + 1) for f in fields(value) if f.init}
        return {"~class": name, **body}
    raise InvalidInput(f"a {name} cannot be stored")


def decode(tree: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """The value that `encode` was given; sequences come back as tuples."""
    if isinstance(tree, list):
        return tuple(decode(item, arrays) for item in tree)
    if not isinstance(tree, dict):
        return tree
    if "~float" in tree:
        return float(tree["~float"])
    if "~fraction" in tree:
        return Fraction(tree["~fraction"])
    if "~array" in tree:
        array = arrays[tree["~array"]]
        array.flags.writeable = False
        return array
    if "~map" in tree:
        return {decode(k, arrays): decode(v, arrays) for k, v in tree["~map"]}
    cls = _CLASSES.get(tree.get("~class", ""))
    if cls is None:
        raise InvalidInput(f"the file holds a {tree.get('~class', 'value')!r} that this version does not know")
    body = {key: decode(item, arrays) for key, item in tree.items() if key != "~class"}
    return cls(**body)


def fingerprint(value: object) -> str:
    """SHA-256 over the canonical form of a value: equal values have equal fingerprints."""
    tree, arrays = encode(value)
    digest = hashlib.sha256(json.dumps(tree, sort_keys=True, ensure_ascii=True).encode())
    for key, array in arrays.items():
        digest.update(f"{key}:{array.dtype.str}:{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Write to a neighbour, sync it, then rename it into place and sync the folder."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        write(partial)
        with partial.open("rb") as handle:
            os.fsync(handle.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_document(path: str | os.PathLike[str], value: object) -> None:
    """Store a value in one file (a zip of one JSON document and plain .npy arrays)."""
    tree, arrays = encode(value)

    def write(partial: Path) -> None:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as bundle:
            bundle.writestr(_DOCUMENT, json.dumps(tree, ensure_ascii=True))
            for key, array in arrays.items():
                with bundle.open(f"{key}.npy", "w", force_zip64=True) as handle:
                    np.lib.format.write_array(handle, array, allow_pickle=False)

    write_atomically(Path(path), write)


def read_document(path: str | os.PathLike[str], expected: type | tuple[type, ...]) -> Any:
    """Read what `write_document` wrote; anything else is refused with InvalidInput."""
    try:
        with zipfile.ZipFile(path) as bundle:
            if bundle.getinfo(_DOCUMENT).file_size > _MAX_JSON_BYTES:
                raise InvalidInput(f"{path}: the document is larger than {_MAX_JSON_BYTES} bytes")
            tree = json.loads(bundle.read(_DOCUMENT))
            arrays = {
                name.removesuffix(".npy"): np.lib.format.read_array(io.BytesIO(bundle.read(name)), allow_pickle=False)
                for name in bundle.namelist()
                if name.endswith(".npy")
            }
        value = decode(tree, arrays)
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError, RecursionError) as error:
        raise InvalidInput(f"{path} is not a file that sfumato wrote: {error}") from error
    if not isinstance(value, expected):
        raise InvalidInput(f"{path} holds a {type(value).__name__}, not what was asked for")
    return value
