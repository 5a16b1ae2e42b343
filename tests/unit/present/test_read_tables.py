"""Tables on a page are those that were asked, and their cells read as people say them."""

from __future__ import annotations

import numpy as np
import pytest

import sfumato as sf
from sfumato.domain.core import cell_texts, is_year, range_text
from sfumato.present.answers import asked_distributions, small_tables
from sfumato.present.charts import distribution_chart, table_chart
from sfumato.present.page import render
from sfumato.present.words import typical_values

SPACE = sf.Domain(
    {
        "income": sf.Bins([0, 5_000, 10_000, 50_000], outside="other"),
        "born": sf.Integers(1990, 2004),
        "place": sf.Categories([f"p{i}" for i in range(30)], outside="other"),
        "size": sf.Integers(0, 2_999, width=1_000),
    }
)


def released(work: sf.Workload) -> sf.Release:
    plan = sf.plan(work, sf.gdp(2), neighbours="add-remove")
    counts = np.random.default_rng(3).poisson(2, SPACE.shape)
    return sf.release(plan, sf.Histogram(counts), ledger=None, name="read")


@pytest.fixture(scope="module")
def release() -> sf.Release:
    work = sf.stack(
        singles=sf.marginals(SPACE, sets=[("income",), ("born",), ("place",)]),
        pairs=sf.marginals(SPACE, sets=[("place", "income"), ("born", "income")]),
        curve=sf.prefix(SPACE, "born"),
    )
    return released(work)


def test_cells_read_as_people_say_them() -> None:
    assert cell_texts(SPACE, "income") == [
        "0 to under 5,000",
        "5,000 to under 10,000",
        "10,000 to 50,000",
        "(other)",
    ]
    assert cell_texts(SPACE, "size") == ["0 to 999", "1,000 to 1,999", "2,000 to 2,999"]
    assert cell_texts(SPACE, "born")[0] == "1990"
    ages = sf.Domain({"t": sf.Bins([-2_000.5, 0, 0.25])})
    assert cell_texts(ages, "t") == ["−2,000.5 to under 0", "0 to 0.25"]


def test_the_last_bin_is_said_to_hold_its_edge_where_it_does() -> None:
    """Mutants: "to under" 2.5, which is a value of that cell; the last class of whole numbers, or the bins of 0.2,
    which end before their edge, said to hold it."""
    levels = {"half": [0, 1, 2.5]}
    told = sf.Domain(
        {"x": sf.Bins([0, 0.5, 1, 2.5], levels=levels), "n": sf.Integers(0, 9, levels={"two": [0, 3, 10]})}
    )
    assert cell_texts(told, "x") == ["0 to under 0.5", "0.5 to under 1", "1 to 2.5"]
    assert cell_texts(told, "half") == ["0 to under 1", "1 to 2.5"]
    assert cell_texts(told, "two") == ["0 to 2", "3 to 9"]
    assert cell_texts(sf.Domain({"x": sf.Bins([0, 1, 2.5], edition=1)}), "x")[-1] == "1 to under 2.5"


@pytest.mark.parametrize(
    ("name", "low", "high", "expected"),
    [
        ("built", 1900, 2024, True),
        ("built", 1000, 2024, False),
        ("birth_year", 1000, 2024, True),
        ("Year", 0, 3000, True),
        ("years", 0, 3000, False),
        ("school year", 1, 12, False),
    ],
)
def test_which_whole_numbers_are_years(name: str, low: int, high: int, expected: bool) -> None:
    assert is_year(sf.Domain({name: sf.Integers(low, high)}), name) is expected


def test_years_have_no_thousands_marks_and_no_mean(release: sf.Release) -> None:
    row = next(r for r in typical_values(release) if r["attribute"] == "born")
    assert row["median"].isdecimal()
    assert row["mean"] == row["mean_low"] == row["note"] == ""
    assert range_text(SPACE, "born") == "1990 to 2004"
    assert range_text(SPACE, "income") == "0 to 50,000"
    (curve,) = asked_distributions(release)
    assert distribution_chart(curve)["encoding"]["x"]["axis"]["format"] == "d"


def test_asked_tables_come_first_and_large_ones_show_their_largest_cells(release: sf.Release) -> None:
    """Mutant: pairs of more than 72 cells left out."""
    found = small_tables(release)
    names = [t.names for t in found[:5]]
    assert names == [("income",), ("born",), ("place",), ("born", "income"), ("income", "place")]
    assert not any(t.derived for t in found)
    rows = table_chart(found[4])["data"]["values"]
    assert len(rows) == 20
    assert " · " in rows[0]["cell"]
    assert "The 20 largest of 124 cells" in render(release)


def test_what_is_not_declared_stands_apart(release: sf.Release) -> None:
    place = next(t for t in small_tables(release) if t.names == ("place",))
    spec = table_chart(place)
    assert [r["cell"] for r in spec["data"]["values"]].count("(other)") == 1
    assert spec["encoding"]["y"]["scale"]["domain"][-2:] == [" ", "(other)"]
    assert spec["layer"][0]["encoding"]["color"]["condition"] == {"test": "datum.other", "value": "var(--muted)"}


def test_unequal_classes_are_drawn_as_densities(release: sf.Release) -> None:
    """Mutant: heights are counts, and a class eight times as wide looks eight times as heavy."""
    income = next(t for t in small_tables(release) if t.names == ("income",))
    spec = table_chart(income)
    rows = spec["data"]["values"]
    assert [(r["start"], r["end"]) for r in rows] == [(0, 5_000), (5_000, 10_000), (10_000, 50_000)]
    assert rows[2]["per_unit"] == pytest.approx(rows[2]["answer"] / 40_000)
    assert rows[2]["per_low"] == pytest.approx(rows[2]["low"] / 40_000, rel=1e-5)
    assert spec["layer"][0]["encoding"]["y"]["field"] == "per_unit"
    assert spec["layer"][0]["encoding"]["y2"] == {"datum": 0}, "a bar over numbers both ways lies on its side"
    assert "In (other): " in render(release)
