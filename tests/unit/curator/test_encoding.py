"""Encoding agrees with a second, slow reading of the rules, for any text and any typed column."""

from __future__ import annotations

import datetime
import itertools
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sfumato.curator.rows.encoding import record_bytes, sql_identifier, sql_literal
from sfumato.curator.rows.sources import open_source
from sfumato.domain import Attribute, Bins, Booleans, Categories, Domain, Hierarchy, Integers
from sfumato.errors import DomainError, InvalidInput, SourceError
from support.reading import cell, joint, write_csv

OTHER = {"outside": "other", "missing": "other"}
ODD_CODES = ["it's", 'say "x"', "a\\b", "1", "06", "x;--", "é", "a b", "(other)s", "{}", "$1"]
HOSTILE = [
    *("", " ", "NULL", "NaN", "nan", "-nan", "inf", "-inf", "+Infinity", "1e400", "-1e400", "1e-400", "-0.0", "0"),
    *("１２", "٣", "1_000", "0x10", "1,5", "1.5", "3.0", "3.00", "03", " 3 ", "\t3", "3\n", "+3", "3.", ".5", "--3"),
    *("1e", "1e+", "5e-1", "9007199254740993", "1e15", "123456789012345678901234567890", "-7", "99.5", "100", "NULL "),
    *(
        "true",
        "TRUE",
        "T",
        " yes",
        "y ",
        "no",
        "N",
        "1.0",
        "0.0",
        "-0.0",
        "2",
        "maybe",
        "f\u0301",
        "\u00a03",
        "nul\u200bl",
    ),
    *(
        "F ",
        "f",
        "F",
        "it's",
        'say "x"',
        "a\\b",
        "a\\\\b",
        "06",
        "6",
        "6.0",
        "06.0",
        "x;--",
        "é",
        "e\u0301",
        "a\r\nb",
        "a,b",
    ),
]


def attributes() -> st.SearchStrategy[Attribute]:
    numeric = {"outside": st.sampled_from(["other", "clamp", "drop"]), "missing": st.sampled_from(["other", "drop"])}
    plain = {"outside": st.sampled_from(["other", "drop"]), "missing": st.sampled_from(["other", "drop"])}
    edge = st.one_of(st.integers(-50, 50), st.floats(-50, 50), st.sampled_from([0.1, 0.7, 1e-300, 2**53 + 1]))
    edges = st.lists(edge, min_size=2, max_size=40, unique=True).map(sorted).filter(_increasing)
    integers = st.builds(
        lambda low, span, width, **policies: Integers(low, low + span, width, **policies),
        *(st.integers(-20, 20), st.integers(0, 300), st.integers(1, 7)),
        **numeric,
    )
    codes = st.lists(st.sampled_from([*ODD_CODES, "F", "M", "0", "2", "-3", "0.5"]), min_size=1, unique=True)
    return st.one_of(
        integers,
        st.builds(lambda edges, **policies: Bins(edges, **policies), edges, **numeric),
        st.builds(lambda codes, **policies: Categories(codes, **policies), codes, **plain),
        st.builds(_nested, codes.filter(lambda c: len(c) > 2), st.integers(0, 2**40), **plain),
        st.builds(Booleans, **plain),
    )


def _nested(codes: list[str], number: int = 0, **policies: Any) -> Hierarchy:
    """Two groups of the codes that can be told apart, the first code alone in its own."""
    kept = list({c.casefold(): c for c in codes}.values())
    return Hierarchy(
        [("a" if i == 0 else "b", c) for i, c in enumerate(kept)], [f"group {number}", f"code {number}"], **policies
    )


def _increasing(edges: list[float]) -> bool:
    return all(a < b for a, b in itertools.pairwise(float(e) for e in edges))


def fields() -> st.SearchStrategy[str]:
    digits = st.text("0123456789.+-eE _infa", max_size=8)
    numbers = st.one_of(st.integers(-400, 400).map(str), st.floats().map(repr), st.floats(-60, 60).map(repr))
    anything = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x00"), max_size=6)
    return st.one_of(st.sampled_from([*HOSTILE, *ODD_CODES]), digits, numbers, anything)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_text_agrees_with_the_reference(tmp_path: Path, data: st.DataObject) -> None:
    # levels of two hierarchies may not share their names
    def name(attribute: Attribute) -> str:
        return str(getattr(attribute, "levels", ()) or repr(attribute))

    drawn = data.draw(st.lists(attributes(), min_size=1, max_size=3, unique_by=name))
    domain = Domain({f"col {i}": a for i, a in enumerate(drawn)})
    row = st.tuples(*(fields() for _ in domain.names))
    rows = data.draw(st.lists(row, max_size=30))
    counts = open_source(write_csv(tmp_path / "t.csv", domain.names, rows), domain)
    expected = joint(domain, rows)
    np.testing.assert_array_equal(counts.count([domain.names])[domain.names], expected)
    assert counts.rows == expected.sum()


@pytest.mark.parametrize("outside", ["other", "clamp", "drop"])
@pytest.mark.parametrize("missing", ["other", "drop"])
def test_hostile_fields_one_by_one(tmp_path: Path, outside: str, missing: str) -> None:
    """Every field of the corpus under every policy: class T, never an error."""
    plain = "other" if outside == "clamp" else outside
    domain = Domain(
        {
            "i": Integers(0, 99, 5, outside=outside, missing=missing),
            "b": Bins([0, 0.5, 3, 10, 1e15], outside=outside, missing=missing),
            "c": Categories(["F", "3", *ODD_CODES], outside=plain, missing=missing),
            "y": Booleans(outside=plain, missing=missing),
            "h": _nested(["F", "3", *ODD_CODES], outside=plain, missing=missing),
        }
    )
    for name, attribute in domain.attributes.items():
        alone = Domain({name: attribute})
        counts = open_source(write_csv(tmp_path / "t.csv", [name], [[t] for t in HOSTILE]), alone).count([(name,)])
        np.testing.assert_array_equal(counts[(name,)], joint(alone, [[t] for t in HOSTILE]), err_msg=name)


def _one(value: object, attribute: Attribute, kind: pa.DataType | None = None) -> int | None:
    counts = open_source(pa.table({"x": pa.array([value], type=kind)}), Domain({"x": attribute})).count([("x",)])
    found = np.flatnonzero(counts[("x",)])
    return int(found[0]) if found.size else None


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (0.1, pa.float64(), 1),
        (math.nextafter(0.1, 0), pa.float64(), 0),
        (0.1, pa.float32(), 1),  # 0.100000001 as a double; its shortest text is 0.1
        (0.7, pa.float32(), 2),  # 0.699999988 as a double, and still 0.7
        (Decimal("0.10"), pa.decimal128(10, 2), 1),
        (Decimal("0.7"), pa.decimal128(38, 20), 2),
        (Decimal("0.69999999999999999999"), pa.decimal128(38, 20), 2),  # the nearest double is 0.7
        (Decimal("0.69999999999"), pa.decimal128(38, 20), 1),
        (-0.0, pa.float64(), 0),
        (5, pa.int64(), 3),  # the last bin holds its upper edge
        (math.nextafter(5, 6), pa.float64(), 4),
        (math.inf, pa.float64(), 4),
        (math.nan, pa.float64(), 4),
        (None, pa.float64(), 4),
        (4, pa.uint8(), 3),
        (2**63, pa.uint64(), 4),
        ("0.1", pa.string(), 1),
    ],
)
def test_edges_hold_for_every_kind_of_number(value: object, kind: pa.DataType, expected: int) -> None:
    assert _one(value, Bins([0, 0.1, 0.7, 4, 5], **OTHER), kind) == expected


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (1, pa.int64(), 0),
        (1.0, pa.float64(), 0),
        (1.0, pa.float32(), 0),
        (Decimal("1.00"), pa.decimal128(10, 2), 0),
        (Decimal("10"), pa.decimal128(10, 0), 2),
        (Decimal("10.50"), pa.decimal128(10, 2), 3),
        (10.5, pa.float64(), 3),
        (-0.0, pa.float64(), 1),
        (1e22, pa.float64(), 4),
        (True, pa.bool_(), 5),
        (datetime.date(2020, 2, 29), pa.date32(), 6),
        ("1", pa.string(), 0),
        ("1.0", pa.string(), 0),
        ("1 ", pa.string(), 7),
        (math.inf, pa.float64(), 7),
        (math.nan, pa.float64(), 7),
        (None, pa.null(), 7),
    ],
)
def test_categories_read_other_columns_by_their_text(value: object, kind: pa.DataType, expected: int) -> None:
    codes = Categories(["1", "0", "10", "10.5", "10000000000000000000000", "true", "2020-02-29"], **OTHER)
    assert _one(value, codes, kind) == expected
    assert _one(value, _nested(list(codes.codes), **OTHER), kind) == expected


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("06001", pa.string(), 0),
        ("6001", pa.string(), 3),
        (6001, pa.int64(), 3),
        ("06001.0", pa.string(), 3),
        ("36001.0", pa.string(), 2),
        (36001, pa.int64(), 2),
        (36001.0, pa.float64(), 2),
        ("06", pa.string(), 3),
    ],
)
def test_codes_that_begin_with_zero_are_texts(value: object, kind: pa.DataType, expected: int) -> None:
    """As for categories: a column of numbers has lost the zero, and no guess is made. A coarse code is no cell."""
    place = Hierarchy({"06": ["06001", "06003"], "36": ["36001"]}, ["state", "county"], **OTHER)
    assert _one(value, place, kind) == expected


@pytest.mark.parametrize(("value", "expected"), [(True, 1), (0, 0), (1.0, 1), (2, 2), ("Yes", 1), (None, 2)])
def test_booleans_read_numbers_and_texts(value: object, expected: int) -> None:
    assert _one(value, Booleans(**OTHER)) == expected


@pytest.mark.parametrize(
    ("width", "value", "expected"), [(1, -(2**53) + 1, 0), (7, 2**53 - 1, 285714), (7, 2**53, 285715)]
)
def test_integers_are_exact_to_the_limit_of_doubles(width: int, value: int, expected: int) -> None:
    low = -(2**53) + 1 if value < 0 else 2**53 - 2_000_000
    attribute = Integers(low, low + 1_999_999, width, **OTHER)
    assert _one(value, attribute) == expected == cell(attribute, str(value))


@pytest.mark.parametrize(("value", "expected"), [(2**53 - 1, 0), (2**53, 0), (2**53 + 2, 1), (2**54, 2)])
def test_an_edge_that_no_double_hits_divides_the_doubles_where_it_lies(value: int, expected: int) -> None:
    assert _one(value, Bins([0, 2**53 + 1, 2**54 - 1, 2**55], **OTHER)) == expected


def test_a_list_of_many_edges_and_codes() -> None:
    many = Bins([i / 8 for i in range(3001)], outside="drop", missing="drop")
    codes = Categories([f"c{i}" for i in range(70_000)], outside="drop", missing="drop")
    values = np.arange(0, 3000, 7) / 8
    frame = pl.DataFrame({"n": values, "c": [f"c{(i * 163) % 70_000}" for i in range(values.size)]})
    domain = Domain({"n": many, "c": codes})
    counts = open_source(frame, domain).count([("n",), ("c",)])
    np.testing.assert_array_equal(np.flatnonzero(counts[("n",)]), np.arange(0, 3000, 7))
    np.testing.assert_array_equal(
        np.flatnonzero(counts[("c",)]), sorted((i * 163) % 70_000 for i in range(values.size))
    )


@pytest.mark.parametrize(
    ("column", "attribute"),
    [
        (pa.array([[1]]), Categories(["1"], **OTHER)),
        (pa.array([{"a": 1}]), Booleans(**OTHER)),
        (pa.array([b"x"]), Categories(["x"], **OTHER)),
        (pa.array([True]), Integers(0, 1, **OTHER)),
        (pa.array([datetime.date(2020, 1, 1)]), Bins([0, 1], **OTHER)),
        (pa.array([datetime.datetime(2020, 1, 1)], pa.timestamp("us", "UTC")), Categories(["x"], **OTHER)),
    ],
)
def test_columns_of_another_kind_are_refused(column: pa.Array, attribute: Attribute) -> None:
    with pytest.raises(SourceError, match=r"column 'x' is of type [A-Z ]+, which cannot be read as an attribute"):
        open_source(pa.table({"x": column}), Domain({"x": attribute}))


def test_a_person_must_have_a_name_that_can_be_read() -> None:
    with pytest.raises(SourceError, match="column 'who' is of type BIGINT, which cannot be read as names of persons"):
        open_source(pa.table({"x": [True], "who": [[1]]}), Domain({"x": Booleans(**OTHER)}), person="who")


def test_undeclared_policies_are_refused_by_name(tmp_path: Path) -> None:
    """Class R: nothing is opened, not even a file that does not exist."""
    domain = Domain({"a": 3, "b": Booleans(outside="other"), "c": Booleans(**OTHER)})
    with pytest.raises(DomainError, match="'a' must declare outside and missing; 'b' must declare missing") as refusal:
        open_source(tmp_path / "absent.csv", domain)
    assert isinstance(refusal.value, InvalidInput)
    assert "'c'" not in str(refusal.value)


@given(st.text())
def test_quoting(text: str) -> None:
    assert sql_literal(text)[1:-1].replace("''", "").count("'") == 0
    assert sql_identifier(text)[1:-1].replace('""', "").count('"') == 0


def test_record_bytes() -> None:
    assert record_bytes([1, 256, 257, 65536, 65537]) == 1 + 1 + 2 + 2 + 4


# Persons


def _table(persons: list[int | None], values: list[int]) -> pd.DataFrame:
    return pd.DataFrame({"who": pd.array(persons, dtype="Int64"), "x": values, "y": [v % 3 for v in values]})


PEOPLE = Domain({"x": Integers(0, 5, outside="drop", missing="other"), "y": Integers(0, 2, **OTHER)})


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 4)), st.integers(0, 7)), max_size=25),
    st.integers(1, 3),
)
def test_a_table_is_the_sum_of_its_persons(rows: list[tuple[int | None, int]], most: int) -> None:
    """Whoever is taken away takes at most `most` records along and changes nobody else's: the sensitivity bound."""

    def count(part: list[tuple[int | None, int]]) -> np.ndarray:
        frame = _table([p for p, _ in part], [v for _, v in part])
        return open_source(frame, PEOPLE, person="who", rows_per_person=most).count([("x", "y")])[("x", "y")]

    total = np.zeros(PEOPLE.shape, dtype=np.int64)
    for person in {p for p, _ in rows if p is not None}:
        own = [r for r in rows if r[0] == person]
        alone = count(own)
        full = joint(PEOPLE, [(str(v), str(v % 3)) for _, v in own])
        assert (alone <= full).all()
        assert alone.sum() == min(most, full.sum())
        total += alone
    np.testing.assert_array_equal(count(rows), total)
    np.testing.assert_array_equal(count(rows[::-1]), total)


def test_persons_are_the_same_however_they_are_stored(tmp_path: Path) -> None:
    domain = Domain({"x": Integers(0, 999, **OTHER)})
    who, x = [1, 1, 1, 2, 2, 3, None, None], [5, 6, 7, 8, 9, 10, 11, 12]
    text = write_csv(
        tmp_path / "t.csv", ["who", "x"], [("" if w is None else str(w), str(v)) for w, v in zip(who, x, strict=True)]
    )
    sources = [text, pa.table({"who": who, "x": x}), pa.table({"who": pa.array(who, pa.float64()), "x": x})]
    found = [open_source(s, domain, person="who").count([("x",)])[("x",)] for s in sources]
    assert found[0].sum() == 3  # three persons; rows that name nobody are not counted
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_which_rows_of_a_person_are_kept_favours_no_cell() -> None:
    domain = Domain({"x": Integers(0, 1, **OTHER)})
    table = pa.table({"who": np.repeat(np.arange(4000), 2), "x": np.tile([0, 1], 4000)})
    kept = open_source(table, domain, person="who").count([("x",)])[("x",)]
    assert kept.sum() == 4000
    assert 1800 < kept[0] < 2200  # fixed by a digest of names and cells, so this can never flicker


@pytest.mark.parametrize("most", [1, 3])
def test_which_rows_of_a_person_are_kept_favours_no_rare_cell(most: int) -> None:
    """Ten rows of one cell and one of another. Mutant: one digest for all equal rows, which keeps the one as often."""
    domain = Domain({"x": Integers(0, 1, **OTHER)})
    table = pa.table({"who": np.repeat(np.arange(4000), 11), "x": np.tile([0] * 7 + [1] + [0] * 3, 4000)})
    kept = open_source(table, domain, person="who", rows_per_person=most).count([("x",)])[("x",)]
    assert kept.sum() == 4000 * most
    expected, spread = 4000 * most / 11, (4000 * most / 11 * (1 - most / 11)) ** 0.5
    assert abs(kept[1] - expected) < 4 * spread
