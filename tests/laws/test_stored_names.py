"""Stored tags do not hang on where a class lives: names of classes and fields are those of a list, and only grow."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pytest

from sfumato._util.codec import decode_value, deferred_field, encode_value, stored_fields, value_fingerprint
from support.golden.classes import FILE, HOW, stored_classes, strange
from support.golden.classes import told as names_of

NAMES = json.loads(FILE.read_text(encoding="utf-8"))


def test_classes_and_fields_are_stored_under_the_names_they_have_had() -> None:
    """Mutants: a class renamed; a field renamed, moved before another, or without its default; `later` taken away, so
    that fingerprints change; a value of an enumeration renamed. A class that moves to another module is no change."""
    found = strange(NAMES, names_of(stored_classes()))
    assert not found, "\n".join([*found, HOW])


@dataclass(frozen=True)
class _Before:
    size: int


@dataclass(frozen=True)
class _After:
    size: int
    gap: float = deferred_field(0.0)
    steps: tuple[int, ...] = deferred_field(())
    table: str | None = deferred_field(None)
    power: int = deferred_field(2)


def test_a_later_field_is_told_only_where_it_is_unusual() -> None:
    """Mutants: compared by truth, so that 0 stands for None; never told; always told."""
    assert list(stored_fields(_Before(3))) == list(stored_fields(_After(3))) == [("size", 3)]
    assert dict(stored_fields(_After(3, gap=0.5))) == {"size": 3, "gap": 0.5}
    assert dict(stored_fields(_After(3, 0, steps=(1,), table=""))) == {"size": 3, "gap": 0, "steps": (1,), "table": ""}
    assert dict(stored_fields(_After(3, power=0))) == {"size": 3, "power": 0}
    assert dict(stored_fields(_After(3, table=np.zeros(2))))["table"].shape == (2,)  # type: ignore[arg-type]


def test_the_names_alone_decide_a_fingerprint() -> None:
    """A class of the same name and fields in another module has the same fingerprint. Mutant: the module is hashed."""
    cls = stored_classes()["RoundedGaussian"]
    value = cls(sigma=5)
    before, tree = value_fingerprint(value), encode_value(value)[0]
    home = cls.__module__
    try:
        cls.__module__ = "sfumato.elsewhere"
        assert value_fingerprint(value) == before
        assert decode_value(tree, {}) == value
    finally:
        cls.__module__ = home


class _Kind(Enum):
    ONE = "one"


def test_every_change_of_a_name_is_said() -> None:
    """Mutants: only missing classes found; order of fields not compared; new classes let pass unwritten."""

    @dataclass(frozen=True)
    class A:
        x: int
        y: int = 0

    @dataclass(frozen=True)
    class B:
        x: int
        z: int = 0

    @dataclass(frozen=True)
    class C:
        y: int
        x: int = 0

    @dataclass(frozen=True)
    class D:
        x: int
        y: int = deferred_field(0)

    then = names_of({"A": A, "K": _Kind})
    assert strange(then, then) == []
    for changed in (B, C, D):
        assert len(strange(then, names_of({"A": changed, "K": _Kind}))) == 1
    assert len(strange(then, names_of({"A": A, "K": Enum("K", {"ONE": "uno"})}))) == 1
    assert len(strange(then, names_of({"N": A, "K": _Kind}))) == 2


@pytest.mark.parametrize("name", NAMES)
def test_every_stored_class_is_the_librarys_own(name: str) -> None:
    """Mutant: the list written from a run in which a test had put a class of its own."""
    assert stored_classes()[name].__module__.startswith("sfumato.")
