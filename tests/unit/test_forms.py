"""What a stored document may hold: the table of the stranger's checker, which every reader of the library holds to."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest

from sfumato import check_forms
from sfumato.check_forms import Malformed
from support.golden.classes import stored_classes


def table() -> dict[str, list[list[str]]]:
    return check_forms._FORMS  # pyright: ignore[reportPrivateUsage]


def test_the_table_has_every_class_with_its_fields_in_their_order() -> None:
    """A class or a field that is stored and has no line here can be read by nobody.

    Mutants: a class without a line; a field that its line lacks, or has in another place; a later one without its ?.
    """
    found = {}
    for name, cls in stored_classes().items():
        held = [f for f in fields(cls) if f.init] if is_dataclass(cls) else []
        found[name] = [f.name + ("?" if "later" in f.metadata else "") for f in held] or ["value"]
    assert {name: [f for f, _ in line] for name, line in table().items()} == found


def test_every_form_of_the_table_is_known() -> None:
    """Mutant: a word that is misspelt, which nothing would ever fit."""
    known = {"any", "int", "size", "count", "ratio", "float", "real", "bool", "none", "text", *table()}
    known |= {f"{t}*{n}" for t in ("bool", "int32", "int64", "uint16", "uint64", "float64") for n in ("", 1, 2, 3)}

    def words(form: str) -> Any:
        for f in check_forms._split_alternatives(form):  # pyright: ignore[reportPrivateUsage]
            if f[0] in "[{":
                for part in f[1:-1].split(":", 1) if f[0] == "{" else [f[1:-1]]:
                    yield from words(part)
            elif f[0] != "'":
                yield f

    assert {w for line in table().values() for _, form in line for w in words(form)} <= known


GOOD: dict[str, Any] = {
    "~class": "Measurement",
    "blocks": [{"~class": "Block", "groups": [["a"]], "factors": [{"~class": "Dense", "matrix": {"~array": "a0"}}]}],
    "values": [{"~array": "a1"}],
    "noise": {"~class": "DiscreteLaplace", "scale": {"~fraction": [3, 2]}},
    "total": None,
}


def _refused(change: Any, match: str, arrays: dict[str, Any] | None = None) -> None:
    tree = json.loads(json.dumps(GOOD))
    tree = change(tree) or tree
    with pytest.raises(Malformed, match=match):
        check_forms.check_document_forms(tree, {"a0": np.eye(2, dtype=int), "a1": np.ones(2, int)} | (arrays or {}))


def test_a_document_says_what_it_says_in_one_way_alone() -> None:
    """Mutants: each line of the reader left out."""
    check_forms.check_document_forms(GOOD, {"a0": np.eye(2, dtype=int), "a1": np.ones(2, int)})
    _refused(lambda t: t.update(zzz=1), "other fields: zzz")
    _refused(lambda t: {k: t[k] for k in reversed(t)}, "another order")
    _refused(lambda t: t.pop("total"), "other fields: total")
    _refused(lambda t: t.update(total=1.0), "total is no")
    _refused(lambda t: t.update(total=True), "total is no")
    _refused(lambda t: t.update(total="1"), "total is no")
    _refused(lambda t: t.update(total=-1), "total is no")
    _refused(lambda t: t.update(total=[1]), "is a list")
    _refused(lambda t: t.update(total={"~map": []}), "total is no")
    _refused(lambda t: t.update(total={"~integer": "0x1"}), "whole number")
    _refused(lambda t: t.update(total=2**1024), "whole number")
    for pair in ([6, 4], [3, -2], [3, 0], [3], [3, 2, 1], [1.5, 1], [True, 1], "3/2", None):
        _refused(lambda t, pair=pair: t["noise"].update(scale={"~fraction": pair}), "lowest terms|whole number")
    _refused(lambda t: t["noise"].update(scale=1), "scale is no")
    _refused(lambda t: t["noise"].update(scale={"~fraction": [3, 2], "x": 1}), "scale is no")
    _refused(lambda t: t.update(noise={"~class": "Block", "groups": [], "factors": []}), "no Noise")
    _refused(lambda t: t.update({"~class": "Spite"}), "does not know")
    _refused(lambda t: t["values"].append({"~array": "a1"}), "stands elsewhere")
    _refused(lambda t: None, "nothing names the arrays zzz", {"zzz": np.ones(1)})
    for array in (np.ones(2), np.ones(2, np.int32), np.ones((1, 2), int), np.ones(2, bool), np.ones(2, ">i8")):
        _refused(lambda t: None, r"values\[0\] is no", {"a1": array})
    for bad in (np.ones((2, 2), np.int8), np.full((2, 2), np.nan), np.full((2, 2), np.inf)):
        _refused(lambda t: None, "matrix", {"a0": bad})


@pytest.mark.parametrize("text", ['{"a": 1, "a": 1}', '{"a": NaN}', "[Infinity]", '[{"b": {"x": 1, "x": 2}}]'])
def test_a_name_stands_once_and_a_number_is_one(text: str) -> None:
    """Mutants: json.loads with what it takes for granted."""
    with pytest.raises(Malformed):
        check_forms.parse_strict_json(text)


def test_numbers_are_read_exactly() -> None:
    large = {"~integer": hex(-(2**1024))}
    assert check_forms.read_stored_fraction({"~fraction": [large, 3]}).numerator == -(2**1024)
    assert check_forms.read_stored_fraction(7) == 7
    for bad in (True, 1.0, "1", None, [1], {"~integer": "0x" + "0" * 300}, {"~integer": "0XF" + "0" * 300}):
        with pytest.raises(Malformed):
            check_forms.read_stored_fraction(bad)
