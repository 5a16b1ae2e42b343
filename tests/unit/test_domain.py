"""Domains and attributes: what is declared, and every declaration that is refused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato._util.bundles import check_text, shorten
from sfumato._util.checks import check_distinct, read_number, show_count
from sfumato._util.codec import decode_value, encode_value, value_fingerprint
from sfumato.domain import OTHER, Attribute, Bins, Booleans, Categories, Domain, Integers
from sfumato.errors import DomainError, InvalidInput

INVISIBLE = {
    "zero width space": "\u200b",
    "zero width joiner": "\u200d",
    "byte order mark": "\ufeff",
    "soft hyphen": "\u00ad",
    "right to left override": "\u202e",
    "left to right isolate": "\u2066",
    "arabic letter mark": "\u061c",
    "newline": "\n",
    "tabulator": "\t",
    "zero byte": "\x00",
    "escape": "\x1b",
    "line separator": "\u2028",
    "lone surrogate": "\ud800",
    "private use": "\ue000",
    "unassigned": "\U000e0fff",
    "hangul filler": "\u3164",
    "halfwidth hangul filler": "\uffa0",
    "combining grapheme joiner": "\u034f",
    "variation selector": "\ufe0f",
    "variation selector supplement": "\U000e0100",
    "empty braille pattern": "\u2800",
    "mongolian vowel separator": "\u180e",
}


@pytest.mark.parametrize("char", INVISIBLE.values(), ids=INVISIBLE)
def test_invisible_characters_are_refused_everywhere(char: str) -> None:
    for make in (
        lambda: Domain({f"a{char}ge": 3}),
        lambda: Categories([f"x{char}", "y"]),
        lambda: Categories({"1": f"{char}x"}),
        lambda: Domain({char: 3}),
    ):
        with pytest.raises(DomainError):
            make()


@pytest.mark.parametrize("name", ["", " ", "\u00a0", "x" * 257, "é" * 129, 3, None, b"age", ("age",)], ids=repr)
def test_names_that_are_none_are_refused(name: Any) -> None:
    with pytest.raises(DomainError):
        Domain({name: 3})


def test_names_of_any_script_are_accepted() -> None:
    names = ["age", "Größe", "年齢", "العمر", "x y", "x" * 256, "é" * 128, "a=b; --", "=1+1", "🙂"]
    assert Domain(dict.fromkeys(names, 2)).names == tuple(names)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("age", "Age"),
        ("age", "ａｇｅ"),
        ("\u00e9", "e\u0301"),
        ("ﬁt", "fit"),
        ("straße", "STRASSE"),
        ("x y", "x\u00a0y"),
        ("age", " age "),
        ("Å", "\u212b"),
        ("ϓ", "ύ"),
    ],
)
def test_names_that_look_alike_are_refused(first: str, second: str) -> None:
    """Mutants: case folded before the normal form alone, or not at all."""
    with pytest.raises(DomainError, match="told apart"):
        Domain({first: 2, second: 2})


@given(st.lists(st.text(st.characters(codec="ascii", categories=["Lu", "Ll"]), min_size=1, max_size=2), max_size=6))
def test_distinct_names_are_those_that_differ_in_lower_case(names: list[str]) -> None:
    if len({n.lower() for n in names}) == len(names):
        check_distinct(names, "names")
    else:
        with pytest.raises(DomainError):
            check_distinct(names, "names")


@pytest.mark.parametrize(
    "given_values",
    [
        [],
        {},
        "abc",
        b"abc",
        3,
        None,
        {"a"},
        [1, "1"],
        [1, 1.0],
        ["1", 1.0],
        ["a", "a"],
        [True, 1],
        [True, False],
        [np.True_],
        [None],
        [math.nan],
        [math.inf],
        [10**5000],
        [b"x"],
        [("a", "b")],
        [["a"]],
        [1j],
        [""],
        [" "],
        [OTHER],
        {"1": OTHER},
        {"1": "2", "2": "b"},
        {"a": ""},
        {1: "a", "1": "b"},
        [np.array([1])],
    ],
    ids=lambda v: shorten(v)[:40],
)
def test_categories_that_are_none_are_refused(given_values: Any) -> None:
    with pytest.raises(DomainError):
        Categories(given_values)


def test_categories_are_texts_in_their_order() -> None:
    attribute = Categories(["b", "a", 3, 2.0, 0.5, np.int64(7), np.float64(1.5), Decimal("2.5"), Fraction(8, 2)])
    assert attribute.codes == ("b", "a", "3", "2", "0.5", "7", "1.5", "2.5", "4")
    assert attribute.labels == attribute.codes
    coded = Categories({1: "female", "2": "male"}, outside="other", missing="drop")
    assert coded.codes == ("1", "2")
    assert coded.labels == ("female", "male", OTHER)
    assert (coded.size, coded.declared_size) == (3, 2)
    assert coded.drops
    assert (coded.intervals, coded.midpoints, coded.ordered) == (None, None, False)
    # a label may repeat its own code
    assert Categories({"a": "a", "b": "c"}).labels == ("a", "c")


def test_equality_sees_the_order_of_the_cells() -> None:
    """Mutant: two dicts with the same items in another order count as one domain, whose cells are elsewhere."""
    first, second = Categories({"1": "f", "2": "m"}), Categories({"2": "m", "1": "f"})
    assert first != second
    assert first == Categories({"1": "f", "2": "m"})
    assert hash(first) == hash(Categories({"1": "f", "2": "m"}))
    assert first != Categories({"1": "f", "2": "m"}, outside="drop")
    assert first != "f"
    a, b = Domain({"x": 2, "y": 3}), Domain({"y": 3, "x": 2})
    assert a != b
    assert a == Domain({"x": 2, "y": Integers(0, 2)})
    assert hash(a) == hash(Domain({"x": 2, "y": 3}))
    assert a != "x"
    assert value_fingerprint(a) != value_fingerprint(b)
    assert len({a, b, Domain({"x": 2, "y": 3})}) == 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: Integers(1, 0),
        lambda: Integers(0, 9, 0),
        lambda: Integers(0, 9, -1),
        lambda: Integers(0, 9, 1.5),  # type: ignore[arg-type]
        lambda: Integers(0, math.nan),  # type: ignore[arg-type]
        lambda: Integers(0, math.inf),  # type: ignore[arg-type]
        lambda: Integers(-math.inf, 0),  # type: ignore[arg-type]
        lambda: Integers(0.5, 2),  # type: ignore[arg-type]
        lambda: Integers("0", 2),  # type: ignore[arg-type]
        lambda: Integers(False, True),
        lambda: Integers(None, 2),  # type: ignore[arg-type]
        lambda: Integers(0, 10**7),
        lambda: Integers(0, 2**53),
        lambda: Integers(0, 10**5000),
        lambda: Integers(-(10**5000), 0),
        lambda: Integers(0, 9, 10**5000),
        lambda: Integers(0, 9, outside="Other"),  # type: ignore[arg-type]
        lambda: Integers(0, 9, missing="clamp"),  # type: ignore[arg-type]
        lambda: Booleans(outside="clamp"),
        lambda: Categories(["a"], outside="clamp"),
        lambda: Bins([]),
        lambda: Bins([1]),
        lambda: Bins([1, 1]),
        lambda: Bins([2, 1]),
        lambda: Bins([0, 1, 0.5]),
        lambda: Bins([0, math.nan]),
        lambda: Bins([0, math.inf]),
        lambda: Bins([-math.inf, 0]),
        lambda: Bins([0, 10**400]),
        lambda: Bins(["0", "1"]),  # type: ignore[list-item]
        lambda: Bins([False, True]),
        lambda: Bins("01"),  # type: ignore[arg-type]
        lambda: Bins(3),  # type: ignore[arg-type]
        lambda: Bins(None),  # type: ignore[arg-type]
        lambda: Bins([Decimal("NaN"), Decimal(1)]),  # type: ignore[list-item]
        lambda: Bins([Decimal("sNaN"), Decimal(1)]),  # type: ignore[list-item]
        lambda: Bins([Decimal(0), Decimal("Infinity")]),  # type: ignore[list-item]
        lambda: Bins([Decimal(0), Decimal("1e999999")]),  # type: ignore[list-item]
        lambda: Bins([Fraction(0), Fraction(10**400)]),  # type: ignore[list-item]
        lambda: Bins(itertools.repeat("x")),  # type: ignore[arg-type]
        lambda: Bins([[0, 1], [1, 2]]),  # type: ignore[list-item]
        lambda: Bins.regular(0, 10, 3),
        lambda: Bins.regular(10, 0, 1),
        lambda: Bins.regular(0, 10, 0),
        lambda: Bins.regular(0, 10, -1),
        lambda: Bins.regular(0, 0, 1),
        lambda: Bins.regular(0, 10, math.nan),
        lambda: Bins.regular(0, 1, Decimal("1e-9")),  # type: ignore[arg-type]
        lambda: Bins.regular(0, 10, "1"),  # type: ignore[arg-type]
    ],
)
def test_numeric_attributes_that_are_none_are_refused(make: Callable[[], Attribute]) -> None:
    with pytest.raises(DomainError):
        make()


def test_integers() -> None:
    ages = Integers(0, 9, width=4, outside="clamp", missing="other")
    assert ages.intervals == ((0, 4), (4, 8), (8, 10))
    assert ages.declared_labels == ("0..3", "4..7", "8..9")
    assert ages.labels[-1] == OTHER
    assert ages.midpoints == (1.5, 5.5, 8.5)
    assert (ages.size, ages.declared_size, ages.drops) == (4, 3, False)
    assert Integers(5, 5).labels == ("5",)
    assert Integers(-2, 0).labels == ("-2", "-1", "0")
    assert Integers(0.0, np.int64(3)) == Integers(0, 3)  # type: ignore[arg-type]
    assert type(Integers(np.int64(0), 3).low) is int  # type: ignore[arg-type]


def test_bins() -> None:
    wages = Bins(np.linspace(0, 1, 5), outside="other")  # type: ignore[arg-type]
    assert wages.labels == ("[0, 0.25)", "[0.25, 0.5)", "[0.5, 0.75)", "[0.75, 1]", OTHER)
    assert (wages.size, wages.declared_size) == (5, 4)
    assert wages.midpoints == (0.125, 0.375, 0.625, 0.875)
    regular = Bins.regular(0, 1, 0.1)
    assert regular.declared_size == 10
    assert regular.edges[3] == 0.3
    assert Bins.regular(np.float64(0), 1, np.float64(0.5)).edges == (0, 0.5, 1)
    assert Bins([Decimal("0.5"), Fraction(3, 2), 2]).edges == (0.5, 1.5, 2)  # type: ignore[list-item]
    assert Bins([-0.0, 1]).labels == ("[0, 1]",)


def test_booleans() -> None:
    assert Booleans().labels == ("false", "true")
    assert Booleans(missing="other").size == 3


@given(st.integers(-50, 50), st.integers(0, 60), st.integers(1, 9))
def test_integer_cells_part_the_range(low: int, length: int, width: int) -> None:
    attribute = Integers(low, low + length, width)
    cells = [v for a, b in attribute.intervals for v in range(a, b)]
    assert cells == list(range(low, low + length + 1))
    assert attribute.size == len(attribute.labels) == len(attribute.intervals) == len(attribute.midpoints)


@pytest.mark.parametrize(
    "given_attributes",
    [
        {},
        None,
        [],
        "abc",
        ["age"],
        {"a": 0},
        {"a": -3},
        {"a": True},
        {"a": 1.0},
        {"a": "3"},
        {"a": None},
        {"a": [1, 2]},
        {"a": 10**7 + 1},
        {"a": 10**5000},
        [10**5000],
        {"a": [10**5000]},
        {10**5000: 3},
    ],
    ids=lambda v: shorten(v)[:40],
)
def test_domains_that_are_none_are_refused(given_attributes: Any) -> None:
    with pytest.raises(DomainError):
        Domain(given_attributes)


def test_domains() -> None:
    domain = Domain({"age": Integers(0, 9, 5, missing="drop"), "sex": 2, "k": np.int64(4)})  # type: ignore[dict-item]
    assert domain.names == ("age", "sex", "k")
    assert domain.shape == (2, 2, 4)
    assert domain.size == 16
    assert domain.drops
    assert "sex" in domain
    assert ["sex"] not in domain
    assert domain["sex"] == Integers(0, 1)
    assert domain.sizes(["k", "age"]) == (4, 2)
    assert domain.axis("k") == 2
    assert domain.ordered(["k", "age"]) == ("age", "k")
    assert repr(domain) == "Domain(age: 2, sex: 2, k: 4; 16 cells)"
    assert Domain({"one": 1}).size == 1


@pytest.mark.parametrize("names", ["sex", ["sex", "sex"], ["nobody"], [["sex"]], [None], 3, None, [3]], ids=repr)
def test_names_are_checked(names: Any) -> None:
    domain = Domain({"age": 3, "sex": 2})
    for check in (domain.check_names, domain.ordered):
        with pytest.raises(DomainError):
            check(names)


def test_unknown_names_are_refused_by_every_reader() -> None:
    domain = Domain({"age": 3})
    for read in (domain.axis, domain.__getitem__, lambda n: domain.sizes([n])):
        with pytest.raises(DomainError, match="nobody"):
            read("nobody")


def test_sizes_are_exact_however_large() -> None:
    """Mutants: a product in int64; a text of more than 4300 digits; labels made to be counted."""
    domain = Domain({f"a{i}": 10**7 for i in range(1000)})
    assert domain.size == 10**7000
    assert "about 10^7000 cells" in repr(domain)
    assert show_count(123456) == "123,456"


def test_one_schema_one_fingerprint() -> None:
    domain = Domain(
        {
            "a": Categories({"1": "x", "2": "y"}, outside="other", missing="drop"),
            "b": Integers(0, 9, 2, outside="clamp"),
            "c": Bins([0, 0.5, 2]),
            "d": Booleans(missing="other"),
        }
    )
    back = decode_value(*encode_value(domain))
    assert back == domain
    assert value_fingerprint(back) == value_fingerprint(domain)
    assert back["c"].midpoints == domain["c"].midpoints


def test_attributes_are_frozen() -> None:
    for attribute in (Categories(["a"]), Integers(0, 1), Bins([0, 1]), Booleans()):
        with pytest.raises(AttributeError):
            attribute.outside = "drop"  # type: ignore[misc]


numeric = st.integers() | st.floats() | st.fractions() | st.decimals()


@given(numeric | st.text(max_size=3) | st.none() | st.binary(max_size=3))
def test_numbers_are_read_exactly_or_refused(value: Any) -> None:
    try:
        number = read_number(value, "it")
    except DomainError:
        return
    assert type(number) in (int, float)
    assert math.isfinite(number)
    # a fraction is read as its nearest double, which may be whole
    assert number == value or number == float(value)


@given(st.text(max_size=20))
def test_texts_are_kept_as_they_are_or_refused(text: str) -> None:
    try:
        kept = check_text(text, "it")
    except InvalidInput:
        kept = text
        assert not text.isascii() or not text.isprintable() or not text.strip()
    assert kept == text
