"""What a declaration says of texts, upper ends and days holds for every source: the same cells, to the record."""

from __future__ import annotations

import datetime
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sfumato._util.codec import decode_value, encode_value, value_fingerprint
from sfumato._util.text import case_folding_pairs, comparable_text, normalize_nfc
from sfumato.cells import Grid
from sfumato.curator.rows.sources import open_source
from sfumato.domain import Attribute, Bins, Categories, Dates, Domain, Hierarchy, Integers
from sfumato.errors import DomainError, InvalidInput
from sfumato.local.collecting import record_cell as local_cell
from support.reading import cell, day, joint, write_csv

OTHER: dict[str, Any] = {"outside": "other", "missing": "other"}
CLAMP: dict[str, Any] = {"outside": "clamp", "missing": "other"}
WORDS = ["Female", "female", " Female", "FEMALE\t", "F", "f", "fémale", "fe\u0301male", "FE\u0301MALE", "", " ", "male"]
WORDS += [
    "STRASSE",
    "Straße",
    "STRAẞE",
    "\u1e96",
    "H\u0331",
    "h\u0331",
    "\u0390",
    "\u03aa\u0301",
    "İ",
    "i",
    "ı",
    "K",
    "1.0",
    "2",
]
LABELS: dict[str, Attribute] = {
    "several": Categories({"Female": "Female", "female": "Female", "F": "Female", "male": "Male"}, **OTHER),
    "any case": Categories(["female", "male", "fémale", "straße", "\u1e96", "\u0390", "k"], case="ignore", **OTHER),
    "trimmed": Categories(["Female", "male", "1"], trim=True, outside="drop", missing="other"),
    "both": Categories({"f": "Female", "female": "Female", "m": "Male", "male": "Male"}, "ignore", True, **OTHER),
    "composed": Categories(["fémale", "e\u0301"], **OTHER),
    "places": Hierarchy([("a", "fe\u0301male"), ("b", "male"), ("b", "F")], ["group", "code"], **OTHER),
}
MOMENTS = ["2024-02-29", "2024-03-01 00:00:00", "2024-03-01T23:59:59.999", "2023-02-29", "2024-13-45", "2024-3-1"]
MOMENTS += ["29.02.2024", "1.3.2024 12:30", "20240301", "2024-03-01 00:30:00+02:00", "2024-02-29T23:30:00-0500", ""]
MOMENTS += [
    "2024-12-30",
    "2025-01-05",
    "0001-01-01 00:30+01:00",
    "9999-12-31 23:30-01:00",
    "0000-00-00",
    "NULL",
    " 2024-03-01 ",
]
DAYS: dict[str, Attribute] = {
    "by day": Dates("2024-02-28", "2024-03-02", **OTHER),
    "by week": Dates("2020-12-28", "2025-01-03", "week", outside="drop", missing="other"),
    "by month": Dates("2024-01-15", "2025-01-15", by="month", **CLAMP),
    "german": Dates("2024-01-01", "2024-12-31", by="quarter", format="%d.%m.%Y", **OTHER),
    "plain": Dates("0001-01-01", "9999-12-31", by="year", format="%Y%m%d", **OTHER),
}
NUMBERS: dict[str, Attribute] = {
    "whole": Integers(0, 10, 4, **OTHER),
    "whole, dropped": Integers(0, 10, 4, outside="drop", missing="drop"),
    "whole, clamped": Integers(0, 10, 4, **CLAMP),
    "bins": Bins([0, 0.1, 10, 40_000], **OTHER),
    "bins, clamped": Bins([0, 0.1, 10, 40_000], **CLAMP),
}
FRACTIONS = [
    "0",
    "-0.5",
    "3.9",
    "4",
    "10",
    "10.5",
    "11",
    "40000",
    "40000.5",
    "0.1",
    "NaN",
    "",
    "abc",
    "1e3",
    "39999.999",
    "inf",
]


def _counts(source: Any, domain: Domain) -> list[list[int]]:
    counts = open_source(source, domain)
    return [np.asarray(counts.count([(n,)])[(n,)]).tolist() for n in domain.names]


def _expected(domain: Domain, rows: list[tuple[str | None, ...]]) -> list[list[int]]:
    """Counts of each attribute of the rows that none of them drops."""
    whole = joint(domain, rows)
    axes = range(len(domain.names))
    return [whole.sum(axis=tuple(b for b in axes if b != a)).tolist() for a in axes]


def _sources(folder: Path, columns: dict[str, list[Any]]) -> dict[str, Any]:
    """One table of texts as every kind of source."""
    rows = list(zip(*columns.values(), strict=True))
    arrow = pa.table({n: pa.array(v, pa.string()) for n, v in columns.items()})
    pyarrow.parquet.write_table(arrow, folder / "t.parquet")
    pl.DataFrame(columns).write_ndjson(folder / "t.ndjson")
    with duckdb.connect(str(folder / "t.db")) as base:
        base.register("given", arrow)
        base.execute("CREATE TABLE t AS SELECT * FROM given")
    return {
        "csv": write_csv(folder / "t.csv", list(columns), rows),
        "parquet": folder / "t.parquet",
        "json": folder / "t.ndjson",
        "duckdb": f"duckdb:///{folder / 't.db'}?table=t",
        "pandas": pd.DataFrame(columns),
        "polars": pl.DataFrame(columns),
        "arrow": arrow,
    }


@pytest.mark.parametrize(
    ("attributes", "values"),
    [(LABELS, WORDS), (DAYS, MOMENTS), (NUMBERS, FRACTIONS)],
    ids=["labels", "days", "numbers"],
)
def test_a_table_of_hostile_texts_counts_the_same_by_every_source(
    tmp_path: Path, attributes: dict[str, Attribute], values: list[str]
) -> None:
    """Mutants: a source that is read without NFC, trimming or capitals; a last bin that is open; a fraction outside."""
    for name, attribute in attributes.items():
        domain = Domain({name: attribute})
        expected = _expected(domain, [(v,) for v in values])
        found = {k: _counts(s, domain) for k, s in _sources(tmp_path, {name: list(values)}).items()}
        assert found == dict.fromkeys(found, expected), name
        for value in values:
            try:
                own = local_cell(domain, [name], {name: value})
            except InvalidInput:
                own = None
            assert own == cell(attribute, value), (name, value)
        for file in tmp_path.iterdir():
            file.unlink()


INSTANTS = [
    datetime.datetime(2024, 2, 29, 23, 59, 59),
    datetime.datetime(2024, 3, 1),
    datetime.datetime(1969, 12, 31, 23),
]
INSTANTS += [datetime.datetime(2024, 12, 30, 12), datetime.datetime(2025, 1, 5, 23, 59, 59, 999999)]


def _typed() -> dict[str, tuple[Any, list[Any]]]:
    """Days and times as every kind of source has them, and the texts that say the same."""
    days, naive = [i.date() for i in INSTANTS], [*INSTANTS, None]
    zone = datetime.timezone(datetime.timedelta(hours=2))
    aware = [i.replace(tzinfo=zone) for i in INSTANTS]
    texts = [str(i) for i in INSTANTS]
    moved = [str(i) for i in aware]
    found: dict[str, tuple[Any, list[Any]]] = {
        "python dates": (pd.DataFrame({"d": [*days, "2024-13-45", None]}, dtype=object), [*map(str, days), "x", ""]),
        "python times": (pd.DataFrame({"d": naive}, dtype=object), [*texts, ""]),
        "python times with zones": (pd.DataFrame({"d": aware}, dtype=object), moved),
        "pandas": (pd.DataFrame({"d": pd.to_datetime(naive)}), [*texts, ""]),
        "pandas with zones": (pd.DataFrame({"d": pd.to_datetime(aware)}), moved),
        "numpy": (pd.DataFrame({"d": np.array(INSTANTS, "M8[ns]")}), texts),
        "polars days": (pl.DataFrame({"d": [*days, None]}), [*map(str, days), ""]),
        "polars times": (pl.DataFrame({"d": naive}), [*texts, ""]),
        "polars with zones": (pl.DataFrame({"d": aware}), moved),
        "arrow days of 64 bits": (pa.table({"d": pa.array(days, pa.date64())}), list(map(str, days))),
        "arrow with zones": (pa.table({"d": pa.array(aware, pa.timestamp("us", "Asia/Tokyo"))}), moved),
    }
    for unit in ("s", "ms", "us", "ns"):
        whole = [i.replace(microsecond=0) for i in INSTANTS]
        found[f"arrow in {unit}"] = (pa.table({"d": pa.array(whole, pa.timestamp(unit))}), list(map(str, whole)))
    return found


@pytest.mark.parametrize("kind", list(_typed()))
def test_days_and_times_of_every_source_are_what_their_texts_say(tmp_path: Path, kind: str) -> None:
    """Mutants: timestamps as texts of no code; a zone that is left out; a moment before 1970 on the day after."""
    source, texts = _typed()[kind]
    for attribute in DAYS.values():
        domain = Domain({"d": attribute})
        expected = _expected(domain, [(t,) for t in texts])
        assert _counts(source, domain) == expected
        if isinstance(source, pa.Table):
            pyarrow.parquet.write_table(source, tmp_path / "t.parquet")
            assert _counts(tmp_path / "t.parquet", domain) == expected


@pytest.mark.parametrize("by", ["day", "week", "month", "quarter", "year"])
def test_every_day_is_in_the_cell_of_its_period(by: Any) -> None:
    """All days of four spans, with leap days and weeks across years, against `strftime` of Python.

    Mutants: a leap day in the month after; ISO weeks of the calendar's year; a period cut at its wrong end."""
    told: dict[str, Callable[[datetime.date], str]] = {
        "day": lambda d: d.strftime("%Y-%m-%d"),
        "week": lambda d: d.strftime("%G-W%V"),
        "month": lambda d: d.strftime("%Y-%m"),
        "quarter": lambda d: f"{d.year}-Q{-(-d.month // 3)}",
        "year": lambda d: d.strftime("%Y"),
    }
    for first, last in (
        ("2019-12-25", "2021-01-08"),
        ("2024-02-28", "2025-01-01"),
        ("1999-12-31", "2000-03-01"),
        ("2026-05-05", "2026-05-05"),
    ):
        attribute = Dates(first, last, by, **OTHER)
        start, end = map(datetime.date.fromisoformat, (first, last))
        days = [start + datetime.timedelta(i) for i in range((end - start).days + 1)]
        names = [told[by](d) for d in days]
        assert attribute.declared_labels == tuple(dict.fromkeys(names))
        beyond = [start - datetime.timedelta(1), end + datetime.timedelta(1)]
        source = pa.table({"d": pa.array([*days, *beyond], pa.date32())})
        expected = [names.count(label) for label in attribute.declared_labels]
        assert _counts(source, Domain({"d": attribute})) == [[*expected, 2]]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_drawn_texts_of_days_and_labels_agree_with_the_reference(tmp_path: Path, data: st.DataObject) -> None:
    """Drawn parts of days and times, and drawn letters in both forms of Unicode."""
    part = st.sampled_from(
        [*"0123456789-:.TZ+ /", "2024-", "02-", "29", "-12-31", "T00:00", " 23:59:59", "+14:00", "-0100", "é", ""]
    )
    texts = st.one_of(
        st.lists(part, max_size=7).map("".join), st.dates().map(str), st.datetimes().map(str), st.sampled_from(MOMENTS)
    )
    rows = data.draw(st.lists(texts, max_size=20))
    letter = st.sampled_from([*"aAkKiIeEsSßẞſς ΣσΑάΆ", "\u0301", "\u212a", "\u03b1", "\u0130", "\u0131"])
    words = st.lists(letter, min_size=1, max_size=3).map("".join)
    codes = data.draw(
        st.lists(
            words.filter(str.strip),
            min_size=1,
            max_size=5,
            unique_by=lambda w: comparable_text(w, trim=True, ignore_case=True),
        )
    )
    try:
        labelled = Categories(codes, data.draw(st.sampled_from(["exact", "ignore"])), data.draw(st.booleans()), **OTHER)
    except DomainError:  # one code alone may be a sign that is joined to the letter before
        return
    found = data.draw(
        st.lists(st.one_of(words, st.sampled_from([c.upper() for c in codes])), min_size=len(rows), max_size=len(rows))
    )
    domain = Domain({"d": data.draw(st.sampled_from(list(DAYS.values()))), "c": labelled})
    table = list(zip(rows, found, strict=True))
    source = write_csv(tmp_path / "t.csv", domain.names, table)
    np.testing.assert_array_equal(open_source(source, domain).count([domain.names])[domain.names], joint(domain, table))


def test_capitals_are_made_small_one_letter_for_one() -> None:
    """Of every letter of Unicode: what stands for it is small itself, and codes are found by any of their capitals.

    Mutants: a table of capitals without letters that are composed of others."""
    large, small = case_folding_pairs([normalize_nfc(chr(c)) for c in range(0x20000) if not 0xD800 <= c < 0xE000])
    table = dict(zip(large, small, strict=True))
    assert len(table) > 1_400
    assert not table.keys() & {*small}
    for code in ("\u0390", "\u1e96", "k", "ά"):
        pairs = dict(zip(*case_folding_pairs([code]), strict=True))
        for form in ("NFC", "NFD"):
            for text in {unicodedata.normalize(form, code.upper()), unicodedata.normalize(form, code)}:
                read = normalize_nfc("".join(pairs.get(c, c) for c in normalize_nfc(text)))
                assert (read == code) == (comparable_text(text, ignore_case=True) == code)
        assert comparable_text(code, ignore_case=True) == code


def test_the_capitals_of_a_sharp_s_are_two(tmp_path: Path) -> None:
    """In declarations, records and questions alike, whichever is declared, and a text that is read is read as itself.

    Mutants: one letter for one alone; a capital sharp s that no code holds; no form NFC after it (the dotted one)."""
    spellings = ["Groß", "GROSS", "groß", "GROẞ", "gross", "GROß", "groS\u017f"]
    dotted = "gro\u00df\u0323"  # of s and this mark Unicode has one letter
    for code in spellings:
        towns = Categories([code, "Ort"], case="ignore", outside="other", missing="other")
        assert all(towns.cell_of(s) == 0 for s in spellings)
        domain = Domain({"town": towns})
        source = write_csv(tmp_path / "t.csv", ("town",), [(s,) for s in (*spellings, "Gros", "Gro", dotted)])
        assert open_source(source, domain).count([("town",)])[("town",)].tolist() == [len(spellings), 0, 3]
    marked = Domain({"town": Categories([dotted], case="ignore", outside="other", missing="other")})
    source = write_csv(tmp_path / "m.csv", ("town",), [(dotted,), ("GROS\u1e62",), ("GROSS",)])
    assert open_source(source, marked).count([("town",)])[("town",)].tolist() == [2, 1]
    for text in (*spellings, dotted):
        assert comparable_text(comparable_text(text, ignore_case=True), ignore_case=True) == comparable_text(
            text, ignore_case=True
        )
    with pytest.raises(DomainError, match="are one text"):
        Categories({"Maße": "sizes", "Masse": "weight"}, case="ignore")
    assert Categories({"Maße": "sizes", "Masse": "weight"}).labels == ("sizes", "weight")


@pytest.mark.parametrize(
    ("values", "options", "named"),
    [
        (["Female", "female"], {"case": "ignore"}, ("'Female'", "'female'")),
        ({"1": "Female", "2": "female"}, {"case": "ignore"}, ("'Female'", "'female'")),
        ({"F": "Female", "f": "Male"}, {"case": "ignore"}, ("'F'", "'f'")),
        ([" a", "a"], {"trim": True}, ("' a'", "'a'")),
        (["é", "e\u0301"], {}, ("'é'",)),
        ({"1": "2", "2": "b"}, {}, ("'2'",)),
        (["a"], {"case": "lower"}, ("'ignore'",)),
        (["a"], {"trim": 1}, ("trim",)),
    ],
)
def test_texts_that_are_read_as_one_have_one_label(values: Any, options: Any, named: tuple[str, ...]) -> None:
    with pytest.raises(DomainError) as refused:
        Categories(values, **options, **OTHER)
    assert all(name in str(refused.value) for name in named)


def test_spellings_of_one_label_share_its_cell() -> None:
    """Cells stand in the order in which labels appear first. Mutants: cells by codes; a label's last code alone."""
    attribute = Categories({"m": "Male", "F": "Female", "male": "Male", "Female": "Female"}, **OTHER)
    assert attribute.labels == ("Male", "Female", "(other)")
    assert [attribute.cell_of(t) for t in ("male", "F", "Female", "Male", "x")] == [0, 1, 1, 0, None]
    assert Grid.of(Domain({"x": attribute})).shape == (3,)


@pytest.mark.parametrize(
    "given_",
    [("2024-02-30", "2024-03-01"), ("2024-1-1", "2024-03-01"), ("2024-03-02", "2024-03-01"), (20240101, "2024-03-01")],
)
def test_days_that_are_none_are_refused(given_: Any) -> None:
    with pytest.raises(DomainError):
        Dates(*given_)


@pytest.mark.parametrize("format_", ["%d.%m.%y", "%d.%m", "%Y-%d-%m", "%d%d%Y", "%d.%m.%Y %H", "1%d.%m.%Y", "%", 3])
def test_formats_that_do_not_say_one_day_are_refused(format_: Any) -> None:
    with pytest.raises(DomainError):
        Dates("2024-01-01", "2024-03-01", format=format_)


def test_what_0_2_stored_keeps_its_rules_and_its_fingerprint(tmp_path: Path) -> None:
    """Mutants: a plan of 0.2 whose fractions, upper edges or letters move to other cells, or that is found no more."""
    old: dict[str, Attribute] = {
        "i": Integers(0, 9, edition=1, **OTHER),
        "b": Bins([0, 5, 10], edition=1, **OTHER),
        "c": Categories(["é", "x"], edition=1, **OTHER),
    }
    tree, arrays = encode_value(Domain(old))
    assert "edition" not in str(tree)
    read = decode_value(tree, arrays)
    assert read == Domain(old)
    assert value_fingerprint(read) == value_fingerprint(Domain(old))
    rows = [("3.5", "10", "e\u0301"), ("3", "9", "é")]
    source = write_csv(tmp_path / "t.csv", read.names, rows)
    assert _counts(source, read) == [[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1], [0, 1, 1], [1, 0, 1]]
    assert read["b"].labels == ("[0, 5)", "[5, 10)", "(other)")
    new = Domain({n: type(a)(**{"edition": 2} | _fields(a)) for n, a in old.items()})  # type: ignore[arg-type]
    assert new != read
    assert value_fingerprint(new) != value_fingerprint(read)
    assert decode_value(*encode_value(new)) == new
    assert _counts(source, new) == [[0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0], [0, 2, 0], [2, 0, 0]]
    assert new["b"].labels == ("[0, 5)", "[5, 10]", "(other)")


def _fields(attribute: Attribute) -> dict[str, Any]:
    names = {"i": ("low", "high"), "b": ("edges",), "c": ("values",)}[type(attribute).__name__[0].lower()]
    return {n: getattr(attribute, n) for n in names} | OTHER


def test_attributes_that_read_alike_are_stored_alike() -> None:
    """So plans of 0.2 are found again where nothing changed. Mutants: a tag on every attribute."""
    for attribute in (
        Integers(0, 9),
        Integers(0, 9, **CLAMP),
        Categories(["a", "b"], **OTHER),
        Hierarchy([("a", "b"), ("a", "c")], ["x", "y"], **OTHER),
    ):
        assert "edition" not in str(encode_value(attribute)[0])
    assert day("2024-02-29") == datetime.date(2024, 2, 29).toordinal()
