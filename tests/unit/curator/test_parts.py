"""Tables too long to be counted at once: measured in parts they are what the core measures, at the same price."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.curator import Curator
from sfumato.curator import by_part as parts
from sfumato.curator.by_part import ByPartCurator, curator_for
from sfumato.curator.engines.partitions import Engine, PartCounts, PassCheck
from sfumato.curator.rows import counting, loading
from sfumato.errors import NotWritten, PlanError, SourceError
from sfumato.operators import Block, Grouping, Identity, LinearOperator, Prefix, Residual, Scaled, Total
from sfumato.privacy.accounting import GaussianEvent
from sfumato.privacy.noise import RoundedGaussian
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from support.wall import Untouchable

ADD_REMOVE = PrivacyUnit(Neighbours.ADD_REMOVE)
EXACT, NOISY = RoundedGaussian(Fraction(1, 32)), RoundedGaussian(Fraction(10**6))
PRICE = GaussianEvent(Fraction(10**8))
ANY: dict[str, Any] = {"outside": "drop", "missing": "drop"}


def domain(places: int, first: int, impossible: tuple[str, ...] = ()) -> sf.Domain:
    others = {"a": sf.Integers(0, 2, **ANY), "b": sf.Integers(0, 1, **ANY)}
    names = list(others)
    place = {"place": sf.Integers(0, places - 1, **ANY)}
    return sf.Domain(
        {n: others[n] for n in names[:first]} | place | {n: others[n] for n in names[first:]}, list(impossible)
    )


def records(rng: np.random.Generator, places: int, count: int) -> pd.DataFrame:
    held = rng.integers(0, places, max(1, places // 2))
    return pd.DataFrame(
        {"place": rng.choice(held, count), "a": rng.integers(0, 4, count), "b": rng.integers(0, 2, count)}
    )


def blocks(rng: np.random.Generator, places: int) -> list[Block]:
    """Tables by place and by groups of places, some of them in no group; the place first, other attributes in any
    order; and what is no long table."""
    codes = rng.integers(-1, max(1, places // 3), places)
    firsts: list[LinearOperator] = [Identity(places), Grouping(codes, max(1, places // 3)), Prefix(places)]
    rests = [
        ((("b",), ("a",), ()), (Identity(2), Residual(3), Scaled(Identity(1), 3))),
        ((("a", "b"),), (Identity(6),)),
        ((("a",),), (Total(3),)),
        ((), ()),
    ]
    out: list[Block] = []
    for first in firsts:
        groups, factors = rests[int(rng.integers(4))]
        out.append(Block((("place",), *groups), (first, *factors)))
    return [*out, Block((("a",),), (Identity(3),)), Block((("b",), ("place",)), (Identity(2), Total(places)))]


def measured(kind: type[Curator], of: sf.Domain, table: Any, asked: list[Block], noise: Any = EXACT) -> Any:
    ledger = sf.Ledger.in_memory(sf.zcdp(10**9))
    return kind(table, of, ADD_REMOVE, ledger).measure(asked, noise, PRICE, name="n", plan_hash="h")[0]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Tables of the places alone are long, and parts have so many cells."""

    def shorten(cells: int) -> None:
        monkeypatch.setattr(parts, "MAX_CELLS", 15)
        monkeypatch.setattr(parts, "_PART", cells)

    return shorten


@pytest.mark.parametrize("tabulated", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_parts_are_counted_as_the_core_counts(seed: int, tabulated: bool, short: Callable[[int], None]) -> None:
    """Of random records or histograms, blocks and sizes of parts, noise of 0 beside the core's: every value.

    Mutants: the last row of a part counted in the next too; cells in no group counted in the last; rows put where those
    of the part before are; a part's attributes taken in the order of the table; records that cannot be left where they
    are; of a histogram the cells of several places set, not added up.
    """
    rng = np.random.default_rng(seed)
    places = int(rng.integers(16, 60))
    impossible = ("a == 2 and b == 1",) if seed % 2 else ()
    of, asked = domain(places, seed % 3, impossible), blocks(rng, places)
    table: Any = sf.Histogram(rng.poisson(1, of.shape)) if tabulated else records(rng, places, 500)
    wanted = measured(Curator, of, table, asked)
    short(int(rng.integers(6, 40)))
    assert curator_for(asked) is ByPartCurator
    long = [parts._is_long(b.lowered()) for b in asked[:4]]  # pyright: ignore[reportPrivateUsage]
    assert long == [True, True, False, False]
    found = measured(ByPartCurator, of, table, asked)
    assert found.blocks == tuple(asked)
    for ours, theirs in zip(found.values, wanted.values, strict=True):
        assert np.array_equal(ours, theirs)


def test_every_value_of_a_part_has_its_noise(short: Callable[[int], None]) -> None:
    """Mutants: no noise in the last part; one draw for all parts; the counts of a part written before its noise."""
    rng = np.random.default_rng(5)
    of, table = domain(40, 1), records(rng, 40, 300)
    asked = [Block((("place",), ("a",)), (Identity(40), Identity(3)))]
    exact = measured(Curator, of, table, asked).values[0]
    short(9)
    draws = np.array(measured(ByPartCurator, of, table, 60 * asked, NOISY).values) - exact
    spread = draws.std(axis=0) / 1e6
    assert spread.min() > 0.6
    assert spread.max() < 1.5
    assert len(np.unique(draws)) > draws.size - 60
    assert np.abs(np.corrcoef(draws.T) - np.eye(120)).max() < 0.75


def test_what_cannot_be_measured_in_parts_is_refused_before_anything_is_spent(
    short: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: the price of long tables not checked; a source looked for its kind after the debit; a factor of another
    size than its attribute."""
    ledger = sf.Ledger.in_memory(sf.zcdp(10**9))
    asked = [Block((("place",), ("a",)), (Identity(40), Identity(3)))]
    short(9)
    holder = ByPartCurator(Untouchable(), domain(40, 0), ADD_REMOVE, ledger)
    with pytest.raises(PlanError, match="costs more"):
        holder.measure(asked, EXACT, GaussianEvent(Fraction(1)), name="n", plan_hash="h")
    wrong = [Block((("place",), ("a",)), (Identity(41), Identity(3)))]
    with pytest.raises(sf.errors.SfumatoError, match="columns"):
        holder.measure(wrong, EXACT, PRICE, name="n", plan_hash="h")
    monkeypatch.setattr(loading, "MEMORY_LIMIT", 10)
    elsewhere = ByPartCurator(records(np.random.default_rng(0), 40, 30), domain(40, 0), ADD_REMOVE, ledger)
    with pytest.raises(SourceError, match=r"in parts.*Histogram, not a table whose records do not fit.*Parquet file"):
        elsewhere.measure(asked, EXACT, PRICE, name="n", plan_hash="h")
    spark = cast("Engine", SimpleNamespace(label="the Spark table people"))
    there = PartCounts(domain(40, 0).grid, 0, PassCheck(0, ()), spark)
    with pytest.raises(SourceError, match="not the Spark table people; write the"):
        holder._rooms(there, [b.lowered() for b in asked], None)  # pyright: ignore[reportPrivateUsage]
    assert ledger.entries() == ()


def test_what_fails_in_a_part_is_spent_and_says_nothing(
    short: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: the error of a part shown."""
    rng = np.random.default_rng(0)
    ledger = sf.Ledger.in_memory(sf.zcdp(10**9))
    short(9)
    holder = ByPartCurator(records(rng, 40, 30), domain(40, 0), ADD_REMOVE, ledger)

    def fails(*_: object) -> None:
        raise ValueError("record 17 is 3")

    monkeypatch.setattr(counting.ColumnCounts, "count", fails)
    with pytest.raises(NotWritten, match="measuring failed") as caught:
        holder.measure([Block((("place",),), (Identity(40),))], NOISY, PRICE, name="n", plan_hash="h")
    assert caught.value.__cause__ is None
    assert "17" not in str(caught.value)
    assert len(ledger.entries()) == 1


def test_a_plan_of_long_tables_is_released(short: Callable[[int], None]) -> None:
    """By the library's own verb, at levels of places. Mutant: long tables asked of the core."""
    rows = [(f"s{i // 10}", f"b{i}") for i in range(40)]
    of = sf.Domain({"place": sf.Hierarchy(rows, levels=["state", "block"], **ANY), "a": sf.Integers(0, 2, **ANY)})
    work = sf.marginals(of, sets=[[], ["a"]], factors={"place": "levels"})
    plan = sf.plan(work, sf.zcdp(10**6), neighbours="add-remove", mechanism="marginals")
    table = pd.DataFrame({"place": [f"b{i % 40}" for i in range(90)], "a": [i % 3 for i in range(90)]})
    short(9)
    found = sf.release(plan, table, ledger=None)
    wanted = pd.crosstab(table.place, table.a).loc[[f"b{i}" for i in range(40)]].to_numpy()
    assert np.abs(found.table("place", "a").values - wanted).max() < 0.1
