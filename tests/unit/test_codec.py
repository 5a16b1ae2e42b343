"""Values on disk: what comes back equals what was stored, and foreign trees are refused."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato._util.codec import decode_value, encode_value, rebuild, storable, value_fingerprint
from sfumato._util.documents import read_document, write_atomically, write_document
from sfumato.domain import Domain
from sfumato.errors import InvalidInput
from sfumato.operators import Dense, Identity, Kronecker
from sfumato.operators.structured import Toeplitz
from sfumato.privacy.unit import Neighbours, PrivacyUnit

plain = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.just(2**2000)
    | st.floats()
    | st.fractions()
    | st.just(Fraction(1, 3**2000))
    | st.text(max_size=5)
    | st.sampled_from(list(Neighbours))
)
values = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


def alike(a: Any, b: Any) -> bool:
    """Equal in value and in kind; NaN is NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(alike(a[k], b[k]) for k in a)
    if isinstance(a, float):
        return math.copysign(1, a) == math.copysign(1, b) and (a == b or (math.isnan(a) and math.isnan(b)))
    return a == b


def signless(value: Any) -> Any:
    """The sign of NaN is not kept."""
    if isinstance(value, float) and math.isnan(value):
        return math.nan
    if isinstance(value, tuple):
        return tuple(map(signless, value))
    return {k: signless(v) for k, v in value.items()} if isinstance(value, dict) else value


@given(values)
def test_values_come_back(value: Any) -> None:
    value = signless(value)
    tree, arrays = encode_value(value)
    assert arrays == {}
    assert alike(decode_value(json.loads(json.dumps(tree, allow_nan=False)), arrays), value)


def test_what_is_rebuilt_shares_no_memory_with_what_was_given() -> None:
    """Mutants: arrays taken by reference, by the codec or an operator, which the caller could change after a check."""
    given = np.arange(3)
    own, view = rebuild((given, given[::-1]))
    toeplitz = Toeplitz(given, given)
    held = (toeplitz.coefficients, toeplitz.multiples, rebuild(toeplitz).coefficients)
    for array in (own, view, *held):
        assert not array.flags.writeable
        assert not any(np.shares_memory(array, other) for other in (given, toeplitz.coefficients) if other is not array)
    given[:] = 9
    assert (own.tolist(), view.tolist(), [a.tolist() for a in held]) == ([0, 1, 2], [2, 1, 0], [[0, 1, 2]] * 3)


def test_whole_numbers_of_any_length_come_back() -> None:
    """Mutant: decimal texts, of which Python reads and writes at most 4300 digits."""
    for value in (10**5000, -(10**5000), Fraction(10**5000, 3**5000), 2**1024, 2**1024 - 1):
        back = decode_value(*encode_value((value,)))[0]
        assert back == value
        assert type(back) is type(value)


@given(values, values)
def test_fingerprints_are_equal_for_equal_values_alone(a: Any, b: Any) -> None:
    a, b = signless(a), signless(b)
    assert (value_fingerprint(a) == value_fingerprint(b)) == alike(a, b)


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "<i8", ">i8", "u8", "f2", "<f4", ">f8"])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (2, 3), (0, 4), (2, 1, 2)])
def test_arrays_come_back(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    """Mutants: arrays without axes that grow one; the order of bytes in the fingerprint; writable arrays."""
    array = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    write_document(tmp_path / "v", (array, array.T))
    back, turned = read_document(tmp_path / "v", tuple)
    assert back.shape == array.shape
    assert back.dtype == np.dtype(dtype).newbyteorder("<")
    assert np.array_equal(back, array)
    assert np.array_equal(turned, array.T)
    assert not back.flags.writeable
    assert value_fingerprint(array) == value_fingerprint(array.astype(array.dtype.newbyteorder("<")))


def test_fingerprints_of_arrays() -> None:
    a = np.arange(6)
    variants = [a, a.reshape(2, 3), a.reshape(3, 2), a.astype(float), a[::-1], (a,), (a, a), a[:5]]
    assert len({value_fingerprint(v) for v in variants}) == len(variants)
    assert value_fingerprint(np.asfortranarray(a.reshape(2, 3))) == value_fingerprint(a.reshape(2, 3))


def test_stored_classes_come_back(tmp_path: Path) -> None:
    value = (PrivacyUnit(Neighbours.REPLACE_ONE, "id", 3), Kronecker((Identity(2), Identity(3))), Domain({"a": 2}))
    write_document(tmp_path / "v", value)
    assert read_document(tmp_path / "v", tuple) == value
    with pytest.raises(InvalidInput, match="tuple"):
        read_document(tmp_path / "v", Domain)


class Colour(Enum):
    RED = 1


@dataclass
class Unknown:
    x: int = 1


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = (value,)
    return value


@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        b"bytes",
        1j,
        object(),
        len,
        Colour.RED,
        Unknown(),
        Path("x"),
        np.array([None]),
        np.array(["a"]),
        np.array([1j]),
        np.array([np.datetime64("2020-01-01")]),
        np.zeros(2, dtype=[("a", "i4")]),
        np.longdouble(1) * np.ones(1, dtype=np.longdouble),
        nested(70),
        [[object()]],
    ],
    ids=lambda v: type(v).__name__,
)
def test_what_cannot_be_stored_is_refused(value: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        encode_value(value)
    with pytest.raises(InvalidInput):
        write_document(tmp_path / "v", value)
    assert list(tmp_path.iterdir()) == []


def test_one_name_one_class() -> None:
    with pytest.raises(TypeError, match="two storable classes"):
        storable(type("Dense", (), {"__module__": "sfumato.elsewhere"}))
    with pytest.raises(TypeError, match="own classes"):
        storable(type("Mine", (), {"__module__": "mine"}))
    assert storable(Dense) is Dense


@pytest.mark.parametrize(
    "tree",
    [
        {},
        {"~class": "Unknown"},
        {"~class": "dict"},
        {"~class": ["Identity"]},
        {"~class": "Identity"},
        {"~class": "Identity", "n": "3"},
        {"~class": "Identity", "n": 3, "m": 3},
        {"~class": "Identity", "n": 0},
        {"~class": "LinearOperator"},
        {"~class": "Attribute"},
        {"~class": "Neighbours", "value": "swap"},
        {"~class": "Neighbours"},
        {"~class": "Kronecker", "factors": [1, 2]},
        {"~class": "Scaled", "operator": {"~class": "Identity", "n": 2}, "factor": {"~float": "inf"}},
        {"~class": "Dense", "matrix": [["a"]]},
        {"~class": "Dense", "matrix": {"~array": "a7"}},
        {"~array": "a0"},
        {"~array": ["a0"]},
        {"~fraction": [1, 0]},
        {"~fraction": [1]},
        {"~fraction": [1.5, 2]},
        {"~fraction": "1e999999999"},
        {"~fraction": ["1e999999999", 1]},
        {"~float": "1.0x"},
        {"~float": [1]},
        {"~integer": "xyz"},
        {"~integer": 3},
        {"~map": [1]},
        {"~map": [[1, 2, 3]]},
        {"~map": [[{"~map": []}, 1]]},
        {"~map": [["a", 1], ["a", 2]]},
        {"~map": 3},
    ],
    ids=str,
)
def test_foreign_trees_are_refused(tree: Any) -> None:
    """Mutant: whatever a constructor raises on values that no caller could pass reaches the reader as it is."""
    with pytest.raises(InvalidInput):
        decode_value(tree, {})
    with pytest.raises(InvalidInput):
        decode_value([[tree]], {})


def test_depth_is_limited_both_ways() -> None:
    assert decode_value(*encode_value(nested(60))) == nested(60)
    tree: Any = 0
    for _ in range(100):
        tree = [tree]
    with pytest.raises(InvalidInput, match="deep"):
        decode_value(tree, {})
    for _ in range(100_000):
        tree = [tree]
    with pytest.raises(InvalidInput):
        decode_value(tree, {})


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    """Mutants: the file itself is opened for writing; the unfinished neighbour is left behind."""
    path = tmp_path / "v"
    write_document(path, "old")

    def fail(partial: Path) -> None:
        partial.write_bytes(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fail)
    assert read_document(path, str) == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["v"]
    write_document(path, "new")
    assert read_document(path, str) == "new"
