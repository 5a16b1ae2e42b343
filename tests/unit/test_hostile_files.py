"""Files made to harm: each is refused before it does anything."""

from __future__ import annotations

import io
import json
import pickle
import tracemalloc
import zipfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato._util import bundles
from sfumato._util.bundles import pack_value, unpack_value
from sfumato._util.codec import value_fingerprint
from sfumato._util.documents import read_document, write_document
from sfumato.errors import InvalidInput
from sfumato.operators import Dense


def bundle(path: Path, parts: dict[str, bytes] | list[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as out:
        for name, content in parts.items() if isinstance(parts, dict) else parts:
            out.writestr(name, content)
    return path


def npy(array: Any, **kwargs: Any) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, **kwargs)
    return out.getvalue()


def header(shape: str, descr: str = "'<f8'", fortran: str = "False") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


class Bomb:
    """Reading it would run what it says."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return (pytest.fail, ("a pickle was loaded",))


ARRAY = b'{"~array": "a0"}'
HOSTILE_ARRAYS = {
    "pickled objects": npy(np.array([Bomb()], dtype=object), allow_pickle=True),
    "a bare pickle": pickle.dumps(Bomb()),
    "more than there is": header("(1000000000000,)"),
    "more than fits any memory": header("(4611686018427387904, 4611686018427387904)"),
    "less than there is": header("(1,)") + b"\0" * 16,
    "negative shape": header("(-1, -1)") + b"\0" * 8,
    "shape that overflows to fit": header(f"({2**32}, {2**32})"),
    "no tuple": header("3") + b"\0" * 24,
    "not a number": header("(1,)", "'O'") + b"\0" * 8,
    "records": header("(1,)", "[('a', '<f8')]") + b"\0" * 8,
    "texts": header("(1,)", "'<U2'") + b"\0" * 8,
    "complex": header("(1,)", "'<c16'") + b"\0" * 16,
    "a call": header("__import__('os').system('true')"),
    "columns first": header("(2, 2)", fortran="True") + b"\0" * 32,
    "no header": b"\x93NUMPY\x01\x00",
    "another version": b"\x93NUMPY\x03\x00" + header("(1,)")[8:] + b"\0" * 8,
    "nothing": b"",
    "noise": bytes(range(256)),
}


@pytest.mark.parametrize("content", HOSTILE_ARRAYS.values(), ids=HOSTILE_ARRAYS)
def test_hostile_arrays_are_refused(content: bytes, tmp_path: Path) -> None:
    """Mutants: pickle allowed; an array allocated because its header says so."""
    path = bundle(tmp_path / "v", {"document.json": ARRAY, "a0.npy": content})
    with pytest.raises(InvalidInput):
        read_document(path, np.ndarray)


HOSTILE_DOCUMENTS = {
    "empty": b"",
    "no json": b"{",
    "not utf-8": b'"\xff"',
    "NaN": b"NaN",
    "infinity": b"[-Infinity]",
    "5000 digits": b"1" + b"0" * 5000,
    "a million brackets": b"[" * 10**6,
    "200 brackets": b"[" * 200 + b"]" * 200,
    "two values": b"1 2",
}


@pytest.mark.parametrize("content", HOSTILE_DOCUMENTS.values(), ids=HOSTILE_DOCUMENTS)
def test_hostile_documents_are_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        read_document(bundle(tmp_path / "v", {"document.json": content}), object)


def test_foreign_bundles_are_refused(tmp_path: Path) -> None:
    cases: list[Any] = [
        {},
        {"other.json": b"1"},
        {"document.json": b"1", "extra.txt": b"x"},
        {"document.json": b"1", "../up.txt": b"x"},
        {"document.json": b"1", "code.pkl": pickle.dumps(Bomb())},
    ]
    for i, parts in enumerate(cases):
        with pytest.raises(InvalidInput):
            read_document(bundle(tmp_path / str(i), parts), object)
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with pytest.raises(InvalidInput):
            read_document(bundle(tmp_path / "m", {"document.json": b"1"}, method), object)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_parts_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="one name"):
        read_document(bundle(tmp_path / "v", [("document.json", b"1"), ("document.json", b"2")]), object)


def test_bombs_are_refused_before_they_are_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a limit that is checked on what was already read."""
    zeros = npy(np.zeros(2**20))
    path = bundle(tmp_path / "v", {"document.json": ARRAY, "a0.npy": zeros})
    assert path.stat().st_size < 20_000
    assert read_document(path, np.ndarray).shape == (2**20,)
    monkeypatch.setattr(bundles, "_MAX_ARRAY_BYTES", 2**22)
    monkeypatch.setattr(bundles, "_read_array", lambda _: pytest.fail("it was unpacked"))
    with pytest.raises(InvalidInput, match="more than"):
        read_document(path, np.ndarray)
    many = bundle(tmp_path / "w", {"document.json": ARRAY, **{f"a{i}.npy": zeros[: 2**22] for i in range(2)}})
    with pytest.raises(InvalidInput, match="more than"):
        read_document(many, np.ndarray)
    with pytest.raises(InvalidInput, match="at most"):
        write_document(tmp_path / "x", np.zeros(2**20))
    monkeypatch.setattr(bundles, "_MAX_JSON_BYTES", 10)
    with pytest.raises(InvalidInput, match="at most"):
        write_document(tmp_path / "x", "twelve bytes")
    with pytest.raises(InvalidInput, match="more than"):
        read_document(bundle(tmp_path / "y", {"document.json": b" " * 11}), object)
    assert not (tmp_path / "x").exists()


def peak(run: Callable[[], object]) -> int:
    """The most memory that Python's allocators held while something ran."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def refused(path: Path, match: str) -> Callable[[], None]:
    def run() -> None:
        with pytest.raises(InvalidInput, match=match):
            read_document(path, object)

    return run


def test_a_small_file_unpacks_to_little(tmp_path: Path) -> None:
    """200 MB of zeros in 200 kB, text that would parse to 5 GB in 300 kB. Mutant: a bound that is the same for all."""
    zeros = npy(np.zeros(25_000_000))
    path = bundle(tmp_path / "v", {"document.json": ARRAY, "a0.npy": zeros})
    assert path.stat().st_size < 300_000
    assert peak(refused(path, "unpack")) < 2**20
    with pytest.raises(InvalidInput, match="unpack"):
        unpack_value(path.read_bytes())
    halves = bundle(tmp_path / "w", {"document.json": ARRAY, **{f"a{i}.npy": zeros[: 2**26 - 2**20] for i in range(2)}})
    assert peak(refused(halves, "unpack")) < 2**20
    text = bundle(tmp_path / "x", {"document.json": b"[" + b"[]," * (40 * 2**20) + b"[]]"})
    assert text.stat().st_size < 300_000
    assert peak(refused(text, "unpack")) < 2**20


def test_an_entry_that_lies_about_its_length_unpacks_no_further(tmp_path: Path) -> None:
    """Its 200 MB are declared as 1,000 bytes. Mutant: the part read whole and cut off."""
    path = bundle(tmp_path / "v", {"document.json": ARRAY, "a0.npy": npy(np.zeros(25_000_000))})
    with zipfile.ZipFile(path) as opened:
        true = opened.getinfo("a0.npy").file_size
    content = path.read_bytes()
    for claimed in (1000, 2**20):
        path.write_bytes(content.replace(true.to_bytes(4, "little"), claimed.to_bytes(4, "little")))
        with zipfile.ZipFile(path) as opened:
            assert opened.getinfo("a0.npy").file_size == claimed
        assert peak(refused(path, "not a file that sfumato wrote")) < 2**23


def test_an_entry_that_claims_more_than_there_is_is_refused(tmp_path: Path) -> None:
    """Mutant: zeros for what is missing."""
    path = bundle(tmp_path / "v", {"document.json": ARRAY, "a0.npy": header("(1100,)") + np.ones(1000).tobytes()})
    with zipfile.ZipFile(path) as opened:
        true = opened.getinfo("a0.npy").file_size
    path.write_bytes(path.read_bytes().replace(true.to_bytes(4, "little"), (true + 800).to_bytes(4, "little")))
    with pytest.raises(InvalidInput):
        read_document(path, object)


def test_an_array_is_used_once(tmp_path: Path) -> None:
    """A thousand operators of one array would be a thousand copies of it. Mutant: an array found as often as named."""
    one = b'{"~class": "Dense", "matrix": {"~array": "a0"}}'
    parts = {"a0.npy": npy(np.ones((1000, 1000)))}
    assert read_document(bundle(tmp_path / "v", {"document.json": one, **parts}), Dense).shape == (1000, 1000)
    many = bundle(tmp_path / "w", {"document.json": b"[" + b", ".join([one] * 50) + b"]", **parts})
    assert peak(refused(many, "a0")) < 2**25


@pytest.mark.parametrize("packed", [False, True])
def test_whatever_is_written_can_be_read(packed: bool, tmp_path: Path) -> None:
    """Zeros and repeated text, far more than a packed file may unpack to. Mutant: they are packed all the same."""
    for value in (
        np.zeros(2**23 - 2**10),
        np.zeros(2**23 + 1),
        np.ones((3, 2**22)),
        "x" * (17 * 2**20),
    ):
        if packed:
            back = unpack_value(pack_value(value))
        else:
            write_document(tmp_path / "v", value)
            back = read_document(tmp_path / "v", object)
        assert np.array_equal(back, value) if isinstance(value, np.ndarray) else back == value
        assert not isinstance(back, np.ndarray) or not back.flags.writeable


def test_small_values_are_packed() -> None:
    """The control of the test above: questions of conversations are kept by the thousand."""
    assert len(pack_value(np.zeros(10**6))) < 10**5
    assert len(pack_value(["ab"] * 10**5)) < 10**4


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_damaged_files_are_refused_or_harmless(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Cut anywhere, or with any bytes changed: InvalidInput, or the value itself where the change hit nothing."""
    folder = tmp_path_factory.mktemp("damaged")
    value = (Dense(np.arange(40).reshape(4, 10) * 0.5), "some text", Fraction(1, 3))
    write_document(folder / "v", value)
    content = bytearray((folder / "v").read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        for _ in range(data.draw(st.integers(1, 4))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (folder / "v").write_bytes(content)
    try:
        back = read_document(folder / "v", tuple)
    except InvalidInput:
        return
    assert value_fingerprint(back) == value_fingerprint(value)


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "v"
    for content in (b"", b"PK", b"PK\x03\x04" + b"\0" * 100, pickle.dumps(Bomb()), b"{}", b"\0" * 1000):
        path.write_bytes(content)
        with pytest.raises(InvalidInput, match="not a file that sfumato wrote"):
            read_document(path, object)
    for nothing in (tmp_path / "nothing", tmp_path):
        with pytest.raises(InvalidInput):
            read_document(nothing, object)


def test_numbers_of_very_many_digits_are_refused(tmp_path: Path) -> None:
    digits = {"~integer": "0x" + "f" * 2**14}
    for tree in (digits, {"~fraction": [digits, 3]}):
        with pytest.raises(InvalidInput, match="digits"):
            read_document(bundle(tmp_path / "d", {bundles._DOCUMENT: json.dumps(tree).encode()}), object)
