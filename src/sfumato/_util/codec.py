"""One way to write down, build anew and fingerprint the library's frozen values: a JSON tree, plain arrays for numbers.

A class takes part by the decorator `storable`. Only such classes are ever built when a file is read,
through their constructors, so a file cannot do what a caller could not. Nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, fields, is_dataclass
from enum import Enum
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sfumato._util.files import release_pages
from sfumato.errors import InvalidInput

_LATER = "later"


def deferred_field(default: object, before: object = None) -> Any:
    """A field with a default, for a class of which values were stored without it.

    While it has its default it is neither stored nor hashed. So a value that was stored before keeps its fingerprint,
    by which a release that was paid for is found again. Where `before` is given, it is that value which is neither
    stored nor hashed, and what a value is read with that was stored without the field: its meaning stays what it was.
    """
    return field(default=default, repr=before is None, metadata={_LATER: default if before is None else before})


def deferred_defaults(cls: Any) -> dict[str, object]:
    """What a class's value has in fields that it was stored without."""
    return {f.name: f.metadata[_LATER] for f in fields(cls) if _LATER in f.metadata}


def stored_fields(value: Any) -> Iterator[tuple[str, object]]:
    """The fields of a dataclass's value that are stored, and what they hold."""
    for f in fields(value):
        if not f.init:
            continue
        held = getattr(value, f.name)
        if _LATER in f.metadata and type(held) is type(f.metadata[_LATER]) and held == f.metadata[_LATER]:
            continue
        yield f.name, held


T = TypeVar("T", bound=type)
Arrays = dict[str, NDArray[Any]]

_CLASSES: dict[str, type] = {}
absent: list[Callable[[str], object]] = []
"""Who is told of a class that a file names and that is not known yet. The wall builds values of known classes alone."""
_MAX_DEPTH = 64  # values are nested some ten deep; Python recurses to a thousand, several calls a level
_MAX_HEX_DIGITS = 2**14  # sums of spends have 8,192 bits at most; arithmetic on millions would not end
_HASHED = 2**23  # numbers hashed at once, so that no copy of a mapped array is in memory; any such size would do


def storable(cls: T) -> T:
    """Let a frozen dataclass or an enum of the library be stored under its class name, or what it says in `stored_as`.

    The registry is closed: what a file may build, and what the curator measures, is the library's own.
    """
    name = vars(cls).get("stored_as", cls.__name__)
    if cls.__module__.partition(".")[0] != __name__.partition(".")[0]:
        raise TypeError(f"{cls.__module__}.{name} is none of the library's own classes; those alone are stored")
    known = _CLASSES.get(name, cls)
    if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise TypeError(f"two storable classes are called {name}")
    _CLASSES[name] = cls
    return cls


def encode_value(value: object) -> tuple[Any, Arrays]:
    """Split a value into a JSON tree and the arrays it refers to by name."""
    arrays: Arrays = {}
    return _encode_node(value, arrays, 0), arrays


def _encode_node(value: object, arrays: Arrays, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise InvalidInput(f"a value nested deeper than {_MAX_DEPTH} levels cannot be stored")
    # by its type: of what class it is, as isinstance asks, a value may say as it likes, and otherwise the next time
    kind: Any = type(value)
    given: Any = value
    if given is None or kind is bool:
        return given
    if issubclass(kind, str):
        # a text of a class that derives from str may compare as it likes
        return "".join((given,))
    if kind is int or issubclass(kind, np.integer):
        return _encode_integer(int(given))
    if issubclass(kind, np.bool_):
        return bool(given)
    if issubclass(kind, (float, np.floating)):
        number = float(given)
        return number if math.isfinite(number) else {"~float": repr(number)}
    if issubclass(kind, Fraction):
        return {"~fraction": [_encode_integer(operator.index(n)) for n in (given.numerator, given.denominator)]}
    if issubclass(kind, (tuple, list)):
        return [_encode_node(item, arrays, depth + 1) for item in given]
    if issubclass(kind, np.ndarray):
        if given.dtype.kind not in "biuf" or given.dtype.itemsize > 8:
            raise InvalidInput(f"an array of {given.dtype} cannot be stored; use numbers of at most 64 bits")
        key = f"a{len(arrays)}"
        arrays[key] = given if issubclass(kind, np.memmap) else little_endian_array(given)
        return {"~array": key}
    if issubclass(kind, Mapping):
        return {
            "~map": [[_encode_node(k, arrays, depth + 1), _encode_node(v, arrays, depth + 1)] for k, v in given.items()]
        }
    name = vars(kind).get("stored_as", kind.__name__)
    if _CLASSES.get(name) is not kind:
        raise InvalidInput(f"a {name} cannot be stored")
    if issubclass(kind, Enum):
        return {"~class": name, "value": given.value}
    if is_dataclass(value):
        body = {key: _encode_node(held, arrays, depth + 1) for key, held in stored_fields(value)}
        return {"~class": name, **body}
    raise InvalidInput(f"a {name} cannot be stored")


def little_endian_array(array: NDArray[Any]) -> NDArray[Any]:
    """An array as it is stored: little-endian, in C order."""
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _encode_integer(value: int) -> int | dict[str, str]:
    # Python refuses to write and read decimal texts of more than 4300 digits
    return value if abs(value) < 2**1024 else {"~integer": hex(value)}


def decode_value(tree: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """The value that `encode` was given; sequences come back as tuples. Raises InvalidInput for anything else.

    An array is used once, as `encode` does: a value that names it a thousand times could copy it a thousand times.
    """
    try:
        return _decode_node(tree, dict(arrays), 0)
    except InvalidInput:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # constructors of foreign values fail in their own ways
        raise InvalidInput(f"what was stored cannot be read: {type(error).__name__}: {error}") from error


def _decode_node(tree: Any, arrays: Arrays, depth: int) -> Any:
    if depth > _MAX_DEPTH + 1:
        raise InvalidInput("what was stored is nested too deeply")
    if isinstance(tree, list):
        return tuple(_decode_node(item, arrays, depth + 1) for item in tree)
    if not isinstance(tree, dict):
        return tree
    if "~float" in tree:
        return float(tree["~float"])
    if "~integer" in tree:
        if len(tree["~integer"]) > _MAX_HEX_DIGITS:
            raise InvalidInput(f"an integer has more than {_MAX_HEX_DIGITS:,} digits")
        return int(tree["~integer"], 16)
    if "~fraction" in tree:
        numerator, denominator = _decode_node(tree["~fraction"], arrays, depth + 1)
        return Fraction(operator.index(numerator), operator.index(denominator))
    if "~array" in tree:
        array = arrays.pop(tree["~array"]).view()
        array.flags.writeable = False
        return array
    if "~map" in tree:
        pairs = [(_decode_node(k, arrays, depth + 1), _decode_node(v, arrays, depth + 1)) for k, v in tree["~map"]]
        if len(dict(pairs)) != len(pairs):
            raise InvalidInput("what was stored holds a key twice")
        return dict(pairs)
    name = tree.get("~class", "")
    if name not in _CLASSES:
        for tell in absent:
            tell(name)
    cls = _CLASSES.get(name)
    if cls is None:
        raise InvalidInput(f"the file holds a {tree.get('~class', 'value')!r} that this version does not know")
    body = {key: _decode_node(item, arrays, depth + 1) for key, item in tree.items() if key != "~class"}
    return cls(**(deferred_defaults(cls) | body if is_dataclass(cls) else body))


def rebuild(value: object) -> Any:
    """The value built anew by the library's own constructors, with arrays of its own. Raises InvalidInput.

    Whoever keeps the arrays that were given cannot change it any more.
    """
    tree, arrays = encode_value(value)
    return decode_value(tree, {key: np.array(array, order="C") for key, array in arrays.items()})


def value_fingerprint(value: object) -> str:
    """SHA-256 over the canonical form of a value: equal values have equal fingerprints."""
    tree, arrays = encode_value(value)
    digest = hashlib.sha256(json.dumps(tree, sort_keys=True, ensure_ascii=True).encode())
    for key, array in arrays.items():
        digest.update(f"{key}:{array.dtype.str}:{array.shape}".encode())
        flat = array.reshape(-1)
        for start in range(0, flat.size, _HASHED):
            digest.update(flat[start : start + _HASHED].data)
            release_pages(array)
    return digest.hexdigest()


Numbers = NDArray[np.int64]


def distinct_rows(rows: Numbers, base: int) -> tuple[Numbers, Numbers]:
    """Where each distinct row of numbers below `base` stands first, in lexicographic order, and which one each is."""
    code = np.zeros(len(rows), dtype=np.int64)
    top = 1
    for column in rows.T:
        if top * base >= 2**62:
            code = np.unique(code, return_inverse=True)[1]
            top = len(rows)
        code = code * base + column
        top *= base
    if (np.diff(code) > 0).all():
        # as sets are mostly given
        return (each := np.arange(len(rows))), each
    _, first, kind = np.unique(code, return_index=True, return_inverse=True)
    return first, kind
