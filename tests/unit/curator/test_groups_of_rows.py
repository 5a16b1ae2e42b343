"""Persons whose rows are counted once per group: which are kept, and that one person moves no more than is stated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.curator import Curator
from sfumato.curator.curator import curator_holding
from sfumato.curator.rows import encoding
from sfumato.curator.rows.sources import open_source
from sfumato.errors import DomainError, InvalidInput, LedgerError, PlanError
from sfumato.privacy.unit import PrivacyUnit
from support.wall import crossing

OTHER: dict[str, Any] = {"outside": "other", "missing": "other"}
DOMAIN = sf.Domain(
    {
        "d": sf.Integers(0, 4, outside="clamp", missing="other"),
        "b": sf.Categories(["u", "v"], **OTHER),
        "x": sf.Integers(0, 2, outside="drop", missing="drop"),
    }
)
Rows = list[tuple[str | None, int | None, str, int]]
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["p", "q", "r", None]),
        st.one_of(st.none(), st.integers(-2, 7)),
        st.sampled_from("uvw"),
        st.integers(0, 3),
    ),
    max_size=24,
)


def frame(rows: Rows) -> pd.DataFrame:
    found = pd.DataFrame(rows, columns=["who", "d", "b", "x"])
    return found.astype({"d": "Int64", "x": "Int64"})


def counted(rows: Any, once_per: tuple[str, ...], most: int, each: int = 1) -> Any:
    source = frame(rows) if isinstance(rows, list) else rows
    return open_source(source, DOMAIN, person="who", rows_per_person=most, once_per=once_per, rows_per_group=each)


def table(rows: Any, once_per: tuple[str, ...], most: int, each: int = 1) -> np.ndarray:
    return counted(rows, once_per, most, each).count([DOMAIN.names])[DOMAIN.names]


@settings(max_examples=30, deadline=None)
@given(ROWS, st.sampled_from([("d",), ("b",), ("b", "d")]), st.integers(2, 4), st.integers(1, 3))
def test_a_table_is_the_sum_of_its_persons(rows: Rows, once_per: tuple[str, ...], most: int, each: int) -> None:
    """Of each at most so many, of each group at most so many, whoever else is there.

    Mutants: groups counted over all persons; the raw value of D in place of its cell; groups before rows are dropped.
    """
    total, cut = np.zeros(DOMAIN.shape, dtype=np.int64), 0
    for person in {r[0] for r in rows if r[0] is not None}:
        own = [r for r in rows if r[0] == person]
        alone = table(own, once_per, most, each)
        full = open_source(frame(own), DOMAIN, person="who", rows_per_person=10**6).count([DOMAIN.names])[DOMAIN.names]
        axes = tuple(i for i, a in enumerate(DOMAIN.names) if a not in once_per)
        in_groups, had = alone.sum(axis=axes), full.sum(axis=axes)
        assert (alone <= full).all()
        assert (in_groups <= each).all()
        assert alone.sum() == min(most, np.minimum(had, each).sum())  # no place is left empty
        total += alone
        cut += int(alone.sum() < full.sum())
    np.testing.assert_array_equal(table(rows, once_per, most, each), total)
    np.testing.assert_array_equal(table(rows[::-1], once_per, most, each), total)
    assert counted(rows, once_per, most, each).cut == cut


def test_clamped_and_missing_values_share_a_group() -> None:
    rows: Rows = [("p", d, "u", 1) for d in (4, 5, 99, None, None, 0, -7)]
    found = table(rows, ("d",), 7).sum(axis=(1, 2))
    assert found.tolist() == [1, 0, 0, 0, 1, 1]


def test_groups_not_rows_are_equally_likely() -> None:
    """Ten rows of one group, one of two others, two of the three are kept. Mutant: one digest for both steps."""
    persons, per = 4000, [0] * 10 + [1, 2]
    # rows of the large group differ, so that each has a digest of its own
    source = pa.table(
        {
            "who": np.repeat(np.arange(persons), len(per)),
            "d": np.tile(per, persons),
            "b": np.tile(list("uvw" * 4), persons),
            "x": np.tile([0, 1, 2] * 4, persons),
        }
    )
    kept = table(source, ("d",), 2).sum(axis=(1, 2))
    assert kept.sum() == 2 * persons
    spread = (persons * (2 / 3) * (1 / 3)) ** 0.5
    assert (abs(kept[:3] - persons * 2 / 3) < 4 * spread).all(), kept


def test_the_mutant_of_one_digest_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = encoding.truncation_sql
    monkeypatch.setattr(encoding, "truncation_sql", lambda *a: whole(*a).replace("'groups', ", ""))
    with pytest.raises(AssertionError):
        test_groups_not_rows_are_equally_likely()


@pytest.mark.parametrize("kind", ["csv", "parquet", "duckdb"])
def test_every_source_keeps_the_same_rows(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows: Rows = [
        (f"p{rng.integers(40)}", int(rng.integers(-1, 7)), "uvw"[rng.integers(3)], int(rng.integers(0, 4)))
        for _ in range(300)
    ]
    given = frame(rows)
    source: Any = tmp_path / f"t.{kind}"
    if kind == "csv":
        given.to_csv(source, index=False)
    elif kind == "parquet":
        given.to_parquet(source)
    else:
        with duckdb.connect(source) as base:
            base.execute("CREATE TABLE t AS SELECT * FROM given")
        source = f"duckdb:///{source}?table=t"
    np.testing.assert_array_equal(table(source, ("d",), 3), table(rows, ("d",), 3))
    assert counted(source, ("d",), 3).cut == counted(rows, ("d",), 3).cut


WORK = sf.stack(tables=sf.marginals(DOMAIN, sets=[("d",), ("b",), ("b", "d")]), all=sf.total(DOMAIN))


def measured(made: sf.Plan, rows: Rows) -> list[int]:
    return crossing(made, frame(rows), DOMAIN, sf.Ledger.in_memory(made.budget))


@pytest.mark.parametrize("budget", [sf.gdp(1), sf.pure(1)], ids=["gdp", "pure"])
@pytest.mark.parametrize(("most", "each"), [(3, 1), (4, 2)])
def test_one_person_moves_all_that_is_measured_by_no_more_than_is_stated(
    budget: sf.Budget, most: int, each: int
) -> None:
    """Mutant: rows of a group that are not cut, which moves more than is stated."""
    made = sf.plan(
        WORK,
        budget,
        neighbours="add-remove",
        person="who",
        rows_per_person=most,
        once_per=["d"],
        rows_per_group=each,
    )
    rng, power, largest = np.random.default_rng(most), made.sensitivity.power, 0

    def of_person(name: str, count: int) -> Rows:
        return [(name, int(rng.integers(0, 6)), "uvw"[rng.integers(3)], int(rng.integers(3))) for _ in range(count)]

    others = [row for i in range(3) for row in of_person(f"p{i}", 5)]
    kinds = [of_person("one", n) for n in range(6)]
    kinds += [[("one", 0, "u", 1)] * 9, [("one", i, "u", 1) for i in range(5) for _ in range(each + 1)]]
    kinds += [[("one", i, "uv"[i % 2], 1) for i in range(5) for _ in range(each)]]
    before = measured(made, others)
    for own in kinds:
        after = measured(made, [*others, *own])
        moved = sum(abs(a - b) ** power for a, b in zip(before, after, strict=True))
        assert moved <= made.sensitivity.value, own
        largest = max(largest, moved)
    assert largest > 0.8 * made.sensitivity.value


def test_what_has_no_price_is_refused_before_anything_is_read() -> None:
    unit = PrivacyUnit("add-remove", "who", 3, once_per=("d",))
    ledger = sf.Ledger.in_memory(sf.gdp(1))
    curator = Curator("nowhere.csv", DOMAIN, unit, ledger)
    with pytest.raises(PlanError, match="conversations and mechanisms that choose by the data have no price"):
        curator_holding(curator)
    with pytest.raises(DomainError, match="no attribute is called 'ward'"):
        Curator("nowhere.csv", DOMAIN, PrivacyUnit("add-remove", "who", 3, once_per=("ward",)), ledger)
    impossible = sf.Domain({"d": sf.Integers(0, 4, **OTHER), "b": sf.Booleans(**OTHER)}, impossible=["d > 2 and b"])
    with pytest.raises(PlanError, match="does not go with cells that are declared impossible"):
        Curator("nowhere.csv", impossible, unit, ledger)
    sums = sf.Domain(
        {"d": sf.Integers(0, 4, **OTHER)}, measures={"cost": sf.Measure(0, 10, outside="clamp", missing="other")}
    )
    with pytest.raises(PlanError, match="a measure has none"):
        Curator("nowhere.csv", sums, PrivacyUnit("add-remove", "who", 3, once_per=("cost",)), ledger)
    with pytest.raises(InvalidInput, match="a histogram has no column 'who'"):
        counted(sf.Histogram(np.zeros(DOMAIN.shape, dtype=np.int64)), ("d",), 3)
    assert ledger.spent == 0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"rows_per_person": 1, "once_per": ("d",)}, "give rows_per_person above 1, not 1"),
        ({"rows_per_person": 3, "once_per": ("d",), "rows_per_group": 3}, "give rows_per_person above 3, not 3"),
        ({"rows_per_person": 3, "rows_per_group": 2}, "needs once_per="),
        ({"rows_per_person": 3, "once_per": ("d", "d")}, "names an attribute twice"),
        ({"rows_per_person": 3, "once_per": (1,)}, "must name attributes"),
        ({"rows_per_person": 3, "once_per": ("d",), "rows_per_group": True}, "whole number from 1"),
    ],
)
def test_units_that_contradict_themselves_are_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(PlanError, match=told):
        PrivacyUnit("add-remove", "who", **given)


def test_the_unit_is_what_a_ledger_keeps(tmp_path: Path) -> None:
    made = [
        sf.plan(WORK, sf.gdp("0.1"), neighbours="add-remove", person="who", rows_per_person=3, **more)
        for more in ({"once_per": ["b", "d"]}, {"once_per": ("d", "b")}, {"once_per": ["d"]}, {})
    ]
    assert made[0].unit == made[1].unit
    rows: Rows = [("p", 1, "u", 1), ("p", 1, "v", 1), ("p", 2, "v", 1)]
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(1))
    sf.release(made[0], frame(rows), ledger=ledger, name="a")
    sf.release(made[1], frame(rows), ledger=sf.Ledger(tmp_path / "l.db"), name="b")
    for i, other in enumerate(made[2:]):
        sf.release(other, frame(rows), ledger=ledger, name=f"c{i}")
    found = sf.Ledger(tmp_path / "l.db")
    assert [e.unit for e in found.entries() if e.kind == "spend"] == [plan.unit for plan in made]
    assert found.unit == PrivacyUnit("add-remove", "who")
    records = sf.plan(WORK, sf.gdp("0.1"), neighbours="add-remove")
    with pytest.raises(LedgerError, match="one person"):
        sf.release(records, frame(rows), ledger=ledger, name="records")
