"""Levels of numbers, and the names of attributes and levels in a domain."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato._util.codec import decode_value, encode_value, value_fingerprint
from sfumato.domain import Attribute, Bins, Domain, Hierarchy, Integers
from sfumato.errors import DomainError

POLICIES: dict[str, Any] = {"outside": "other", "missing": "other"}
PLACE = Hierarchy({"06": ["1", "2"], "36": ["3"]}, ["state", "county"], **POLICIES)
DOMAIN = Domain(
    {
        "age": Integers(0, 99, 5, levels={"decade": 10, "group": [0, 20, 65, 100]}, outside="clamp", missing="drop"),
        "place": PLACE,
        "pay": Bins([0, 10, 20.5, 40], levels={"bracket": [0, 20.5, 40]}, **POLICIES),
        "sex": 2,
    }
)


def cell_of(attribute: Attribute, value: float) -> int:
    assert attribute.intervals is not None
    return next(i for i, (a, b) in enumerate(attribute.intervals) if a <= value < b)


@given(st.integers(-20, 20), st.integers(2, 60), st.integers(1, 4), st.integers(2, 5), st.data())
def test_a_number_lies_in_the_group_of_its_cell(
    low: int, span: int, width: int, times: int, data: st.DataObject
) -> None:
    """Brute force over every number: the cell of the level that holds it is the group of the cell that holds it."""
    plain = Integers(low, low + span, width)
    starts = [a for a, _ in plain.intervals]
    inner = data.draw(st.sets(st.sampled_from(starts), max_size=3)) - {low}
    edges = [low, *sorted(inner), low + span + 1]
    levels: dict[str, Any] = {"wide": width * times, "edges": edges}
    if edges == [*range(low, low + span + 1, width * times), low + span + 1]:
        del levels["edges"]
    levels = {n: v for n, v in levels.items() if n == "wide" or len(v) - 1 < plain.declared_size}
    if -(-plain.declared_size // times) == plain.declared_size:
        del levels["wide"]
    attribute = Integers(low, low + span, width, levels, **POLICIES)
    assert len(attribute.groupings) == len(levels)
    for level in attribute.groupings:
        assert level.groups[-1] == level.attribute.declared_size
        for value in range(low, low + span + 1):
            assert level.groups[cell_of(attribute, value)] == cell_of(level.attribute, value)


def test_bins_have_levels_of_some_of_their_edges() -> None:
    bins = Bins([0, 0.1, 0.2, 0.5, 2**53 + 2, 2**60], levels={"two": [0, 0.2, 2**60]}, **POLICIES)
    (level,) = bins.groupings
    assert level.groups.tolist() == [bisect_right([0, 0.2], e) - 1 for e in bins.edges[:-1]] + [2]
    assert level.attribute.labels[0] == "[0, 0.2)"
    regular = Bins([0, 1, 2, 3, 4], levels={"pairs": 2})
    assert regular.groupings[0].groups.tolist() == [0, 0, 1, 1]


def test_levels_come_coarsest_first_and_are_stored() -> None:
    age = DOMAIN["age"]
    assert [level.name for level in age.groupings] == ["group", "decade"]
    assert decode_value(*encode_value(age)) == age
    assert hash(decode_value(*encode_value(DOMAIN))) == hash(DOMAIN)
    assert value_fingerprint(age) != value_fingerprint(Integers(0, 99, 5, outside="clamp", missing="drop"))
    assert Integers(0, 9, levels=[("pair", 2)]) == Integers(0, 9, levels={"pair": 2})


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ({"x": 7}, "multiple of 5"),
        ({"x": 0}, "at least 1"),
        ({"x": -5}, "at least 1"),
        ({"x": 10.5}, "multiple of 5"),
        ({"x": "10"}, "finite number"),
        ({"x": True}, "finite number"),
        ({"x": 5}, "groups no cells"),
        ({"x": 10, "y": [0, 10, 20]}, "must reach from 0 to 100"),
        ({"x": [0, 12, 100]}, "divide a cell at 12"),
        ({"x": [0, 50, 120]}, "divide a cell at 120"),
        ({"x": [50, 0, 100]}, "must increase"),
        ({"x": []}, "declares no cell"),
        ({"x": 50, "y": [0, 50, 100]}, "group the cells alike"),
        ({"x": 10, "X": 20}, "told apart"),
        ({"": 10}, "non-empty text"),
        ({3: 10}, "non-empty text"),
        ("x", "mapping of names"),
        (["ab"], "mapping of names"),
        (3, "mapping of names"),
        ({f"l{i}": 10 for i in range(17)}, "at most 16 levels"),
    ],
    ids=lambda v: str(v)[:30],
)
def test_levels_that_are_none_are_refused(levels: Any, message: str) -> None:
    with pytest.raises(DomainError, match=message):
        Integers(0, 99, 5, levels)
    with pytest.raises(DomainError):
        Bins.regular(0, 100, 5).__class__(list(range(0, 101, 5)), levels)


def test_names_of_levels_are_names_of_the_domain() -> None:
    assert DOMAIN.names == ("age", "place", "pay", "sex")
    assert DOMAIN.levels == {"group": "age", "decade": "age", "state": "place", "county": "place", "bracket": "pay"}
    assert "state" in DOMAIN
    assert "town" not in DOMAIN
    assert DOMAIN["state"].labels == ("06", "36", "(other)")
    assert DOMAIN["county"] is DOMAIN["place"]
    assert DOMAIN["decade"] == Integers(0, 99, 10, outside="clamp", missing="drop")
    assert DOMAIN.sizes(["group", "sex"]) == (3, 2)
    assert DOMAIN.columns(["sex", "county", "decade"]) == ("sex", "place", "decade")
    assert DOMAIN.ordered(["sex", "county", "decade"]) == ("decade", "place", "sex")
    assert [DOMAIN.owner(n) for n in ("state", "county", "sex")] == ["place", "place", "sex"]
    assert DOMAIN.grouping("county") is DOMAIN.grouping("place") is None
    assert np.array_equal(DOMAIN.grouping("state").groups, [0, 0, 1, 2])  # type: ignore[union-attr]
    assert DOMAIN.shape == (20, 4, 4, 2)


def test_an_attribute_may_bear_the_name_of_its_finest_level() -> None:
    domain = Domain({"county": PLACE})
    assert domain.levels == {"state": "county"}
    assert domain.columns(["county"]) == ("county",)


@pytest.mark.parametrize(
    "attributes",
    [
        {"place": PLACE, "state": 3},
        {"place": PLACE, "County": 3},
        {"state": PLACE},
        {"here": PLACE, "there": PLACE},
        {"place": PLACE, "age": Integers(0, 9, levels={"state": 5})},
        {"decade": Integers(0, 99, levels={"decade": 10})},
    ],
    ids=lambda a: ", ".join(a),
)
def test_a_level_may_not_be_called_as_anything_else(attributes: dict[str, Any]) -> None:
    with pytest.raises(DomainError, match="told apart"):
        Domain(attributes)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["state", "county"], "levels of one attribute, 'place'"),
        (["place", "state"], "levels of one attribute, 'place'"),
        (["place", "county"], "levels of one attribute, 'place'"),
        (["group", "sex", "decade"], "'group' and 'decade' are levels of one attribute, 'age'"),
        (["state", "state"], "named twice"),
        (["town"], r"there are age, .* state \(a level of place\)"),
        ([3], "no attribute is called 3"),
        ("state", "list of names"),
    ],
    ids=str,
)
def test_names_that_make_no_table_are_refused(names: Any, message: str) -> None:
    with pytest.raises(DomainError, match=message):
        DOMAIN.columns(names)
    with pytest.raises(DomainError):
        DOMAIN.ordered(names)


def test_where_only_an_attribute_will_do_a_level_is_refused() -> None:
    for ask in (lambda: DOMAIN.check_names(["state"]), lambda: DOMAIN.axis("county")):
        with pytest.raises(DomainError, match="is a level of 'place'; name the attribute here"):
            ask()
