"""Sums that are taken as rows are read: the same noisy values, bit by bit, as of records that are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.curator.curator import Curator
from sfumato.curator.rows import sums
from sfumato.curator.rows.counting import Counts
from sfumato.curator.rows.sources import open_source
from sfumato.curator.rows.sums import AskedSums, SummedCounts, asked_sums
from sfumato.errors import SourceError
from sfumato.maps import BlockMap
from sfumato.privacy.unit import PrivacyUnit

DOMAIN = sf.Domain(
    {
        "g": sf.Integers(1, 7, outside="clamp", missing="other"),
        "s": sf.Categories(["a", "b"], outside="other", missing="other"),
    },
    measures={"x": sf.Measure(-3, 90.5, outside="absent"), "y": sf.Measure(0, 1), "z": sf.Measure(0, 10, knots=[3])},
)


def _frame(seed: int, n: int = 900) -> pd.DataFrame:
    rng = np.random.default_rng([187, seed])
    numbers = {"x": rng.gamma(2, 20, n) - 10, "y": rng.random(n), "z": rng.uniform(-1, 11, n)}
    frame = pd.DataFrame({"g": rng.integers(-1, 9, n), "s": rng.choice(["a", "b", "c"], n), **numbers})
    for name in "xy":
        frame.loc[rng.random(n) < 0.1, name] = np.nan
    return frame


def _exact(counts: Counts, maps: list[BlockMap], domain: sf.Domain = DOMAIN) -> list[Any]:
    grid = domain.grid
    axes = [[grid.axis(a) for a in m.attributes] for m in maps]
    tables = dict(counts.shared(sorted({tuple(sorted(a)) for a in axes})))
    return [
        m.apply(np.ascontiguousarray(tables[tuple(sorted(a))].transpose(np.argsort(np.argsort(a))))).tolist()
        for m, a in zip(maps, axes, strict=True)
    ]


def _maps(work: sf.Workload) -> list[BlockMap]:
    plan = sf.plan(work, sf.gdp(1), neighbours="add-remove")
    return [b.lowered() for b in plan.strategy.blocks if hasattr(b, "lowered")]


@pytest.mark.parametrize(
    "work",
    [
        sf.moments(DOMAIN, ["x", "y"], by="g"),
        sf.means(DOMAIN, "x", by=["g", "s"]),
        sf.stack(sf.moments(DOMAIN, ["y", "x"]), sf.marginals(DOMAIN, sets=[["g"], []])),
        sf.sums(DOMAIN, "y", power=2, centre=0.3),
    ],
)
def test_maps_make_the_same_of_both(work: sf.Workload) -> None:
    """Mutants: a feature that some map sees left out; a number that is missing taken for the upper end; the last group
    taken for the first of the next state; places multiplied in another order."""
    maps = _maps(work)
    asked = asked_sums(DOMAIN.grid, maps)
    assert asked is not None
    frame = _frame(1)
    found = open_source(frame, DOMAIN, asked=asked)
    assert isinstance(found, SummedCounts)
    kept = open_source(frame, DOMAIN)
    assert _exact(found, maps) == _exact(kept, maps)
    assert found.rows == kept.rows == len(frame)
    with pytest.raises(SourceError, match="nothing but sums"):
        found.count([("g",)])


def test_cells_of_three_attributes_are_numbered_as_everywhere() -> None:
    """Mutant: the number of a cell multiplied for the last two attributes alone."""
    attributes = {n: sf.Integers(0, k, outside="clamp", missing="other") for n, k in (("g", 3), ("h", 1), ("k", 4))}
    domain = sf.Domain(attributes, measures={"x": sf.Measure(0, 90)})
    frame = _frame(5).assign(h=lambda f: f.g % 2, k=lambda f: f.index % 5)
    maps = _maps(sf.means(domain, "x", by=["g", "h", "k"]))
    found, kept = (open_source(frame, domain, asked=a) for a in (asked_sums(domain.grid, maps), None))
    assert isinstance(found, SummedCounts)
    assert _exact(found, maps, domain) == _exact(kept, maps, domain)


def test_persons_bring_the_same_rows() -> None:
    """Mutant: rows of persons who have more than are counted."""
    frame = _frame(2).assign(who=[f"p{i % 300}" for i in range(900)])
    maps = _maps(sf.moments(DOMAIN, "x", by="g"))
    how: dict[str, Any] = {"person": "who", "rows_per_person": 2}
    found, kept = (open_source(frame, DOMAIN, asked=a, **how) for a in (asked_sums(DOMAIN.grid, maps), None))
    assert isinstance(found, SummedCounts)
    assert _exact(found, maps) == _exact(kept, maps)
    assert found.cut == kept.cut == 300


def test_where_records_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Knots, sums of several tables, counts beside, and more rows than doubles can add up. Mutants: each of them."""
    grid = DOMAIN.grid
    assert asked_sums(grid, _maps(sf.means(DOMAIN, "z"))) is None
    assert asked_sums(grid, [*_maps(sf.means(DOMAIN, "x")), *_maps(sf.means(DOMAIN, "y"))]) is None
    assert asked_sums(grid, [*_maps(sf.means(DOMAIN, "x")), *_maps(sf.identity(DOMAIN, "g"))]) is None
    asked = asked_sums(grid, _maps(sf.means(DOMAIN, "x")))
    assert asked == AskedSums((2,), ((1,),))
    monkeypatch.setattr(sums, "_MOST_ROWS", 900)
    assert not isinstance(open_source(_frame(3), DOMAIN, asked=asked), SummedCounts)


@pytest.mark.parametrize("made", [pa.Table.from_pandas, pl.from_pandas, lambda f: pl.from_pandas(f).lazy()])
def test_no_number_of_rows_makes_a_table_unreadable(made: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """One record more must not decide between a release and an error. Mutant: the stream that the rows were summed from
    is read again, when it has come to its end."""
    monkeypatch.setattr(sums, "_MOST_ROWS", 900)
    asked = asked_sums(DOMAIN.grid, _maps(sf.means(DOMAIN, "x")))
    for frame, kept in ((_frame(3), True), (_frame(3)[1:], False)):
        found = open_source(made(frame), DOMAIN, asked=asked)
        assert (found.kept, found.rows) == (kept, len(frame))


def test_records_of_a_stream_are_kept_however_it_is_given() -> None:
    """Mutant: a notation, or a table of several, hides that a stream can be read once."""
    asked, table = asked_sums(DOMAIN.grid, _maps(sf.means(DOMAIN, "x"))), pa.Table.from_pandas(_frame(3))
    assert not open_source(sf.Source(table, decimal=","), DOMAIN, asked=asked).kept
    for given in (table.to_reader(), sf.Source(table.to_reader(), decimal=",")):
        assert open_source(given, DOMAIN, asked=asked).kept
    named = table.append_column("who", pa.array([f"p{i}" for i in range(len(table))]))
    for rows, kept in ((named, False), (named.to_reader(), True)):
        joined = sf.joined(rows, named.select(["who"]), key="who")
        assert open_source(joined, DOMAIN, asked=asked, person="who").kept == kept


def test_a_curator_that_looks_twice_reads_twice() -> None:
    """What was summed for one look is no source of another. Mutant: it is kept."""
    ledger = sf.Ledger.in_memory(sf.gdp(4))
    curator = Curator(_frame(4), DOMAIN, PrivacyUnit(sf.Neighbours.ADD_REMOVE), ledger)
    for i, work in enumerate((sf.means(DOMAIN, "x"), sf.moments(DOMAIN, "y", by="g"), sf.means(DOMAIN, "z"))):
        plan = sf.plan(work, sf.gdp(1), neighbours="add-remove")
        measured, _ = curator.measure(plan.strategy.blocks, plan.noise, plan.price, name=f"{i}", plan_hash="0" * 64)
        assert abs(float(measured.values[0][0])) > 0
