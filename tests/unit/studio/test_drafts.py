"""The spec file as the page changes it: what people wrote stays, and what is written is what was meant."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import sfumato as sf
from sfumato.errors import InvalidInput
from sfumato.studio.drafts import apply_changes, describe_column, import_columns, parse_spec, tables_for_page

ADULT = (resources.files("sfumato.data") / "adult.toml").read_text(encoding="utf-8")


def put(text: str, *place: str | int, to: Any) -> str:
    return apply_changes(text, [{"place": list(place), "value": to}])


def test_what_people_wrote_stays() -> None:
    """Comments, order and spelling. Mutant: the file written anew from its values."""
    written = put(ADULT, "privacy", "epsilon", to={"number": "2.50"})
    before, after = ADULT.splitlines(), written.splitlines()
    assert [b for b, a in zip(before, after, strict=True) if b != a] == ["epsilon = 1"]
    assert "epsilon = 2.50" in after
    assert put(written, "privacy", "epsilon", to={"number": "1"}) == ADULT


def test_changes_are_what_was_meant() -> None:
    text = put(ADULT, "queries", 6, to={"name": "extra", "where": ["age >= 30"]})
    text = put(text, "queries", 6, "where", 1, to="sex == 'Male'")
    text = put(text, "queries", 0, "weight", to={"number": "4"})
    text = put(
        text, "schema", "a b", to={"type": "number", "edges": [{"number": "0"}, {"number": "1.5"}], "outside": "drop"}
    )
    text = put(text, "schema", "country", to=None)
    text = put(text, "plan", "objective", to="cells")
    found = tomllib.loads(text)
    assert found["queries"][6] == {"name": "extra", "where": ["age >= 30", "sex == 'Male'"]}
    assert found["queries"][0] == {"name": "main", "upto": 3, "weight": 4}
    assert found["schema"]["a b"]["edges"] == [0, 1.5]
    assert "country" not in found["schema"]
    assert found["plan"] == {"objective": "cells"}
    assert "country" not in parse_spec(text, Path("spec.toml")).domain
    assert tomllib.loads(put(text, "queries", 6, to=None)) == found | {"queries": found["queries"][:6]}


def test_numbers_keep_their_digits() -> None:
    """Mutant: numbers through a float, whose budget is another."""
    for typed, kept in (
        ("1e-6", "1e-6"),
        ("0.10", "0.10"),
        ("1/3", '"1/3"'),
        (".5", '".5"'),
        ("0x10", '"0x10"'),
        ("inf", '"inf"'),
    ):
        text = put("[privacy]\nrho = 1\n", "privacy", "rho", to={"number": typed})
        assert text == f"[privacy]\nrho = {kept}\n"
    assert tables_for_page("a = 1e-6\n") == {"a": "1e-6"}


@pytest.mark.parametrize(
    "given",
    [
        {}, [3], [{"place": [], "value": 1}], [{"place": ["elsewhere", "periods"], "value": 3}],
        [{"place": ["public"], "value": None}],
        [{"place": ["queries", 99], "value": {"total": True}}], [{"place": ["queries", -1], "value": None}],
        [{"place": ["queries", True], "value": None}], [{"place": ["queries", 0, "upto", "x"], "value": 1}],
        [{"place": ["schema", "age"], "value": 1.5}], [{"place": ["schema"] * 7, "value": 1}], [{"place": ["data"]}],
        [{"place": ["data", "source"], "value": "a"}] * 2_001,
    ],
)  # fmt: skip
def test_what_is_no_change_is_refused(given: object) -> None:
    with pytest.raises(InvalidInput):
        apply_changes(ADULT, given)


def test_texts_cannot_become_structure() -> None:
    """Mutant: values pasted into the file."""
    evil = '"]\n[privacy]\nepsilon = 99\n["x'
    text = put(ADULT, "data", "table", to=evil)
    text = put(text, "schema", evil, to={"type": "category", "values": [evil]})
    found = tomllib.loads(text)
    assert found["data"]["table"] == evil
    assert found["privacy"]["epsilon"] == 1
    assert found["schema"][evil]["values"] == [evil]


def test_columns_say_what_they_are() -> None:
    tables = tomllib.loads(ADULT)
    age = describe_column(tables, "age", Path())
    assert age["cells"] == sf.read_spec(resources.files("sfumato.data") / "adult.toml").domain["age"].size
    assert all(17 <= int(m) <= 90 for m in age["mock"])
    tables["schema"]["age"]["max"] = 3
    assert "reversed" in describe_column(tables, "age", Path())["error"]
    tables["schema"]["age"]["max"] = ""
    assert describe_column(tables, "age", Path()) == {"blank": "its greatest value"}


def test_schemas_of_other_tools() -> None:
    found = import_columns('{"age": 3}')
    assert found == {"schema": {"age": {"type": "integer", "min": 0, "max": 2, "width": 1}}}
    with pytest.raises(sf.errors.SpecError):
        import_columns("[")
