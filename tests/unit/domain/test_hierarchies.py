"""Hierarchies: what is read, how groups nest, and every declaration that is refused."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato._util.codec import decode_value, encode_value, value_fingerprint
from sfumato._util.documents import read_document, write_document
from sfumato.domain import OTHER, Categories, Domain, Hierarchy
from sfumato.errors import DomainError, InvalidInput

LEVELS = ["state", "county"]
ROWS = [("06", "06001"), ("06", "06003"), ("36", "36001"), ("06", "06005")]
TREE: dict[Any, Any] = {"06": ["06001", "06003"], "36": ["36001"]}
NAMES = {"state": {"06": "California", "36": "New York"}, "county": {"06001": "Lake", "36001": "Lake"}}
POLICIES: dict[str, Any] = {"outside": "other", "missing": "other"}


def write(folder: Path, text: str, name: str = "codes.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


CSV = "state,county\n06,06001\n06,06003\n36,36001\n06,06005\n"


def test_cells_are_the_finest_codes_and_groups_hold_them() -> None:
    place = Hierarchy(ROWS, LEVELS, **POLICIES)
    assert place.codes == ("06001", "06003", "36001", "06005")
    assert place.labels == (*place.codes, OTHER)
    assert (place.size, place.declared_size, place.cell_level, place.ordered) == (5, 4, "county", False)
    (state,) = place.groupings
    assert (state.name, state.attribute.labels) == ("state", ("06", "36", OTHER))
    assert state.groups.tolist() == [0, 0, 1, 0, 2]
    assert repr(place) == "Hierarchy(state: 2 > county: 4; outside='other', missing='other')"
    dropped = Hierarchy(ROWS, LEVELS, outside="drop", missing="drop")
    assert dropped.groupings[0].groups.tolist() == [0, 0, 1, 0]


def test_every_way_to_say_it_is_one_value(tmp_path: Path) -> None:
    """Mutant: a fingerprint that holds the path of the file."""
    path = write(tmp_path, CSV)
    ways = [
        Hierarchy(ROWS, LEVELS),
        Hierarchy([list(r) for r in ROWS], tuple(LEVELS)),
        Hierarchy(path, LEVELS),
        Hierarchy(str(path), LEVELS),
        Hierarchy(path),
        Hierarchy(write(tmp_path, "county,state\r\n" + "".join(f"{c},{s}\r\n" for s, c in ROWS), "other.csv"), LEVELS),
        Hierarchy(write(tmp_path, "\ufeff" + CSV, "marked.csv"), LEVELS),
    ]
    path.unlink()
    assert len(set(ways)) == 1
    assert len({value_fingerprint(w) for w in ways}) == 1
    sorted_rows = sorted(ROWS)
    tree = {"06": ["06001", "06003", "06005"], "36": ["36001"]}
    assert Hierarchy(tree, LEVELS) == Hierarchy(sorted_rows, LEVELS) != ways[0]
    assert Hierarchy({6: {6001: "a", 6003.0: "b"}}, LEVELS).codes == ("6001", "6003")


def test_a_nested_mapping_of_three_levels() -> None:
    tree = {"west": {"CA": ["c1", "c2"], "OR": ("o1",)}, "east": {"NY": {"n1": "Kings", "n2": "Queens"}}}
    place = Hierarchy(tree, ["region", "state", "county"])
    assert place.rows == (
        ("west", "CA", "c1"),
        ("west", "CA", "c2"),
        ("west", "OR", "o1"),
        ("east", "NY", "n1"),
        ("east", "NY", "n2"),
    )
    assert place.labels == ("c1", "c2", "o1", "Kings", "Queens")
    assert [level.groups.tolist() for level in place.groupings] == [[0, 0, 0, 1, 1], [0, 0, 1, 2, 2]]


def test_labels_are_what_people_read_and_codes_what_the_table_holds(tmp_path: Path) -> None:
    place = Hierarchy(ROWS, LEVELS, NAMES, **POLICIES)
    assert place.labels == ("California > Lake", "06003", "New York > Lake", "06005", OTHER)
    assert place.groupings[0].attribute.labels == ("California", "New York", OTHER)
    assert isinstance(place.groupings[0].attribute, Categories)
    assert place.groupings[0].attribute.codes == ("06", "36")
    text = "state,state label,county,county label\n06,California,06001,Lake\n36,New York,36001,Lake\n"
    text += "06,California,06003,B\n"
    read = Hierarchy(write(tmp_path, text), LEVELS)
    assert read.labels == ("California > Lake", "New York > Lake", "B")
    assert Hierarchy(tmp_path / "codes.csv") == read
    again = decode_value(*encode_value(place))
    assert again == place
    assert hash(again) == hash(place)
    write_document(tmp_path / "x", Domain({"place": place}))
    assert read_document(tmp_path / "x", Domain) == Domain({"place": place})
    assert place != Hierarchy(ROWS, LEVELS, **POLICIES)


def cyclic() -> dict[str, Any]:
    tree: dict[str, Any] = {}
    tree["a"] = tree
    return tree


REFUSED: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "no levels": (ROWS, None, {}, "levels= names the levels"),
    "one level": ([("a",)], ["a"], {}, "2 to 16 levels"),
    "too many levels": ([("a",) * 17], [f"l{i}" for i in range(17)], {}, "2 to 16 levels"),
    "levels as a text": (ROWS, "ab", {}, "list of names"),
    "levels that look alike": (ROWS, ["State", "state"], {}, "told apart"),
    "a level without a name": (ROWS, ["state", ""], {}, "non-empty text"),
    "no rows": ([], LEVELS, {}, "finest codes, not 0"),
    "no group": ({}, LEVELS, {}, "there is no state"),
    "an empty group": ({"06": ["06001"], "36": []}, LEVELS, {}, "there is no county in '36'"),
    "bytes": (b"abc", LEVELS, {}, "nested mapping or a list of rows"),
    "a number": (3, LEVELS, {}, "nested mapping or a list of rows"),
    "a set": ({("a", "b")}, LEVELS, {}, "nested mapping or a list of rows"),
    "a short row": ([("06", "1"), ("36",)], LEVELS, {}, "one code for each of state, county"),
    "a long row": ([("06", "1", "x")], LEVELS, {}, "one code for each of state, county"),
    "a row that is a text": (["ab", "cd"], LEVELS, {}, "one code for each"),
    "a missing code": ([("06", None)], LEVELS, {}, "a category must be"),
    "not a number": ([("06", math.nan)], LEVELS, {}, "finite number"),
    "a blank code": ([("06", " ")], LEVELS, {}, "non-empty text"),
    "an invisible character": ([("06", "a\u200b")], LEVELS, {}, "invisible"),
    "a finest code twice": ([("06", "1"), ("36", "2"), ("06", "1")], LEVELS, {}, "a county, '1', is declared twice"),
    "a child of two parents": ([("06", "1"), ("36", "1")], LEVELS, {}, "lies in two groups, '06' and '36'"),
    "a middle child of two parents": (
        [("w", "06", "1"), ("e", "06", "2"), ("e", "07", "3")],
        ["region", *LEVELS],
        {},
        "state '06' lies in two groups",
    ),
    "two parents in a mapping": ({"06": ["1", "2"], "36": ["2"]}, LEVELS, {}, "lies in two groups"),
    "numbers and texts of one code": ({"06": [1, "1"]}, LEVELS, {}, "declared twice"),
    "groups of one code": ({6: ["1"], "6": ["2"]}, LEVELS, {}, "declared twice"),
    "groups that look alike": ([("Ohio", "1"), ("ohio ", "2"), ("Iowa", "3")], LEVELS, {}, "told apart"),
    "cells that look alike": ([("a", "\u00e9"), ("a", "e\u0301")], LEVELS, {}, "declared twice"),
    "a cycle": (cyclic(), LEVELS, {}, "not|holds more"),
    "deeper than the levels": ({"06": {"06001": {"x": "y"}}}, LEVELS, {}, "holds more"),
    "shallower than the levels": ({"06": ["06001"]}, ["region", *LEVELS], {}, "needs a mapping of codes"),
    "a leaf that is a text": ({"06": "06001"}, LEVELS, {}, "needs a list of codes"),
    "levels that group alike": ([("a", "1"), ("b", "2")], LEVELS, {}, "every state holds one county"),
    "a label of an unknown code": (ROWS, LEVELS, {"code_labels": {"state": {"07": "x"}}}, "which is no state"),
    "labels of an unknown level": (ROWS, LEVELS, {"code_labels": {"town": {"07": "x"}}}, "which is no level"),
    "labels that are no mapping": (ROWS, LEVELS, {"code_labels": {"state": ["x"]}}, "maps levels to mappings"),
    "a label that is no text": (ROWS, LEVELS, {"code_labels": {"state": {"06": 3}}}, "a label must be"),
    "two labels": (ROWS, LEVELS, {"code_labels": {"state": {6: "x", "6": "y"}}}, "has two labels"),
    "a label that is a code": (ROWS, LEVELS, {"code_labels": {"state": {"06": "36"}}}, "same label"),
    "a label that is another code": (
        ROWS,
        LEVELS,
        {"code_labels": {"state": {"06": "36", "36": "x"}}},
        "is a code and also",
    ),
    "two coarse labels alike": (ROWS, LEVELS, {"code_labels": {"state": {"06": "x", "36": "x"}}}, "same label"),
    "labels twice": ({"06": {"1": "x", "2": "y"}}, LEVELS, {"code_labels": {"county": {"1": "z"}}}, "given twice"),
    "the reserved label": ([("a", "1"), ("a", OTHER)], LEVELS, {}, "reserved"),
    "clamp": (ROWS, LEVELS, {"outside": "clamp"}, "not allowed here"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_hierarchy_is_refused(case: str) -> None:
    source, levels, options, message = REFUSED[case]
    with pytest.raises(DomainError, match=message):
        Hierarchy(source, levels, **options)


CSV_REFUSED = {
    "": "names a column for each",
    "a,b\n": "finest codes, not 0|names a column",
    "state\n06\n": "names a column for each",
    "state,county,state\n": "each once",
    "state,county,size\n06,1,5\n": "and no others",
    "06,06001\n06,06003\n": "names a column for each",
    "state,county\n06\n": "line 2 has 1 columns",
    "state,county\n06,1,2\n": "line 2 has 3 columns",
    "state,county\n06,\n": "line 2: a code must be a non-empty text",
    "state,county\n06,1\n\n06,1\n": "declared twice",
    'state,county\n06,"1\n': "not CSV",
    "state,county,state label\n06,1,x\n06,2,y\n": "line 3: state '06' has two labels",
    "state,county,state label\n06,1,\n06,2,\n": "label must be a non-empty text",
}


@pytest.mark.parametrize("text", CSV_REFUSED, ids=lambda t: repr(t)[:40])
def test_files_that_hold_no_hierarchy_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DomainError, match=CSV_REFUSED[text]):
        Hierarchy(write(tmp_path, text), LEVELS)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.csv").write_bytes(b"state,county\n06,\xe9\n")
    for name, message in (
        ("absent.csv", "no file"),
        ("latin.csv", "UTF-8"),
        ("", "no file"),
        ("a\0b", "no file|cannot"),
    ):
        with pytest.raises(DomainError, match=message):
            Hierarchy(tmp_path / name if "\0" not in name else name, LEVELS)
    with pytest.raises(DomainError, match="2 to 16 levels"):
        Hierarchy(write(tmp_path, "state,state label\n06,x\n"))


def test_a_stored_hierarchy_that_was_tampered_with_is_refused() -> None:
    tree, arrays = encode_value(Hierarchy(ROWS, LEVELS))
    tree["source"][0][1] = "06003"
    with pytest.raises(InvalidInput, match="declared twice"):
        decode_value(tree, arrays)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=30), st.sampled_from(["other", "drop"]))
def test_groups_are_the_rows_prefixes(digits: list[int], policy: Any) -> None:
    """Brute force: two cells share a group of a level exactly where their codes of that level are equal."""
    rows = [(f"a{d % 2}", f"b{d}", f"c{i}") for i, d in enumerate(digits)]
    sizes = [len({r[k] for r in rows}) for k in range(3)]
    if any(a == b for a, b in itertools.pairwise(sizes)):
        with pytest.raises(DomainError, match="group alike"):
            Hierarchy(rows, ["top", "middle", "leaf"])
        return
    nested = Hierarchy(rows, ["top", "middle", "leaf"], outside=policy, missing=policy)
    for k, level in enumerate(nested.groupings):
        groups = level.groups
        assert len(groups) == nested.size
        assert sorted(set(groups.tolist())) == list(range(level.attribute.size))
        for (i, r), (j, s) in itertools.combinations(enumerate(rows), 2):
            assert (groups[i] == groups[j]) == (r[k] == s[k])
        assert [level.attribute.labels[g] for g in groups[: len(rows)]] == [r[k] for r in rows]
        if policy == "other":
            assert np.count_nonzero(groups == groups[-1]) == 1
