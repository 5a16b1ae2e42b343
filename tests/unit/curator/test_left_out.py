"""Who is left out of the periods of a stream for the first time: counted once, priced, and told as a bound."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.cells import Grid
from sfumato.curator import Curator
from sfumato.curator.rows.counting import one_block_per_set
from sfumato.curator.streams import open_public_stream
from sfumato.curator.streams.state import open_people
from sfumato.errors import PlanError
from sfumato.privacy.stream_price import Published
from sfumato.privacy.unit import PrivacyUnit
from sfumato.releases.streams import History
from support.insecure_bits import InsecureTestBits

REST: dict[str, Any] = {"outside": "other", "missing": "other"}
DOMAIN = sf.Domain({"a": sf.Categories(["x", "y"], **REST)})
SIZES = {"a": 3}
WORK = sf.marginals(DOMAIN, upto=1)
PERIODS = 5
Table = list[tuple[str, str]]


def plan(relation: str, k: int, b: int, budget: sf.Budget | None = None, **given: Any) -> Any:
    over = sf.periods(PERIODS, per_person=k, apart=b, **given)
    unit = {"neighbours": relation, "person": "who"}
    return sf.plan(WORK, budget or sf.gdp(1), periods=over, **unit)


def frame(rows: Table) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["who", "a"], dtype="str")


def published(made: Any, tables: list[Table]) -> tuple[list[int], list[int]]:
    """All values of the tables, and those of the cell beside, with noise that is the same for all streams."""
    held = Curator(None, DOMAIN, made.unit, sf.Ledger.in_memory(sf.gdp(100)), insecure_bits=InsecureTestBits(5))
    shown, _ = open_public_stream(held, made.terms, made.price, name="s", plan_hash=made.fingerprint)
    for t, rows in enumerate(tables):
        shown.append(frame(rows), f"p{t}")
    values = [[[int(v) for v in part] for part in period.values] for period in shown.published]
    return [v for period in values for part in period[:-1] for v in part], [period[-1][0] for period in values]


def first_left(tables: list[Table], k: int, b: int) -> list[int]:
    """How many are left out for the first time in every period, in Python."""
    counted: dict[str, list[int]] = {}
    left: set[str] = set()
    out: list[int] = []
    for t, rows in enumerate(tables):
        new = 0
        for name in {name for name, _ in rows if name}:
            before = counted.setdefault(name, [])
            if len(before) < k and (not before or before[-1] + b <= t):
                before.append(t)
            elif name not in left:
                left.add(name)
                new += 1
        out.append(new)
    return out


@pytest.mark.parametrize(("k", "b"), [(1, 1), (2, 1), (2, 2), (3, 1)])
def test_everybody_is_left_out_for_the_first_time_once(k: int, b: int, tmp_path: Path) -> None:
    """Mutants: `WHERE times < {left}` left out, so that every further period counts; a mark that is not kept; places
    that the mark of 2^32 takes."""
    rng, unit = np.random.default_rng([k, b]), PrivacyUnit("add-remove", "who")
    known = np.zeros((0, 4), dtype=np.int64)
    tables = [
        [(f"p{i}" if i else "", "xyz"[rng.integers(3)]) for i in range(9) if rng.random() < 0.7 for _ in range(2)]
        for _ in range(PERIODS + 2)
    ]
    found: list[int] = []
    for t, rows in enumerate(tables):
        given = open_people(frame(rows), Grid.of(DOMAIN), unit, one_block_per_set, bytes(32))
        _, first, known = given.admit(known, t, k, b)
        found.append(first)
    assert found == first_left(tables, k, b)
    assert sum(found) <= 8
    assert any(found)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize(("k", "b"), [(1, 1), (2, 2), (3, 1)])
def test_one_person_moves_all_that_is_published_by_no_more_than_is_priced(relation: str, k: int, b: int) -> None:
    """Somebody who is always there, sometimes, late, or another, by brute force through the door.

    Mutants: who is left out is counted in every further period; the cell left out of `squared_shift`; one event for
    two persons who are replaced.
    """
    made, rng = plan(relation, k, b), np.random.default_rng([k, b, len(relation)])
    others = [[(f"p{i}", "xy"[rng.integers(2)]) for i in range(3) if rng.random() < 0.6] for _ in range(PERIODS)]
    always: list[Table] = [[("one", "x")]] * PERIODS
    sometimes = [[("one", "y")] if rng.random() < 0.6 else [] for _ in range(PERIODS)]
    late = [[("one", "y")] if t >= PERIODS - k - 1 else [] for t in range(PERIODS)]
    nobody: list[Table] = [[] for _ in range(PERIODS)]
    streams = [[[*a, *b] for a, b in zip(others, own, strict=True)] for own in (nobody, always, sometimes, late)]
    found = [published(made, tables) for tables in streams]
    terms, alone_unit = made.terms, PrivacyUnit(relation, "who")
    tables, beside = terms.tables_shift(SIZES, made.unit), terms.beside.tables_shift(SIZES, alone_unit)
    assert terms.squared_shift(SIZES, made.unit) == tables + beside
    largest = 0
    for i, j in itertools.combinations(range(4), 2):
        if relation == "add-remove" and i:
            continue
        moved = [sum((x - y) ** 2 for x, y in zip(*pair, strict=True)) for pair in zip(found[i], found[j], strict=True)]
        assert moved[0] <= tables
        assert moved[1] <= beside
        largest = max(largest, moved[1])
    assert largest > 0.5 * beside


def test_the_cell_is_in_the_price() -> None:
    """Mutant: the shift of the cell left out of `squared_shift`."""
    made = plan("add-remove", 2, 1)
    assert made.terms.fits(made.price, SIZES, made.unit)
    dearer = replace(made.terms, cut=2 * made.terms.cut)
    assert not dearer.fits(made.price, SIZES, made.unit)
    held = Curator(None, DOMAIN, made.unit, sf.Ledger.in_memory(sf.gdp(100)))
    with pytest.raises(PlanError, match="costs more"):
        open_public_stream(held, dearer, made.price, name="s", plan_hash=made.fingerprint)
    for wrong in (-1, 2**21, True, 1.0):
        with pytest.raises(PlanError, match="left out is counted"):
            replace(made.terms, cut=wrong)
    with pytest.raises(PlanError, match="left out is counted"):
        replace(made.terms, enforced=False)
    free = plan("add-remove", 2, 1, promised=True)
    assert free.terms.cut == 0
    assert 1 < made.objective_value / free.objective_value < 1.005


def drawn(made: Any, rng: np.random.Generator) -> tuple[list[Table], list[int]]:
    """Somebody who comes nearly always, many who come seldom; and how many are there in every period."""
    rate = np.r_[np.full(30, 0.9), np.full(60, 0.2)]
    there = rng.random((made.periods.count, len(rate))) < rate
    return [[(f"p{i}", "x") for i in np.flatnonzero(now)] for now in there], there.sum(axis=1).tolist()


@pytest.mark.parametrize(("k", "b"), [(1, 1), (2, 1), (2, 2)])
def test_all_rows_are_between_those_counted_and_these_with_what_may_be_missing(k: int, b: int) -> None:
    """With next to no noise, so that nothing but the bound decides. Mutants: `since` that adds up the wrong way; a
    multiple of the cell, or of the grain, forgotten."""
    made = plan("add-remove", k, b, sf.gdp(5000))
    tables, there = drawn(made, np.random.default_rng([k, b]))
    kept = sf.open(made, ledger=None, name="s")
    for t, rows in enumerate(tables):
        kept.append(frame(rows), f"p{t}")
    ever = np.cumsum(first_left(tables, k, b))
    frames = {single: kept.over_time(increments=single).columns for single in (True, False)}
    assert np.abs(np.array(frames[True]["missing"]) - ever).max() < 0.1
    assert np.abs(np.array(frames[False]["missing"]) - np.cumsum(ever)).max() < 0.1
    for single, truth in ((True, np.array(there)), (False, np.cumsum(there))):
        low, high = (np.array(frames[single][n]) for n in ("low", "high"))
        assert (low <= truth + 0.1).all()
        assert (truth <= high + 0.1).all()
    assert ever[-1] > 20
    # what is counted falls, though nobody stays away
    assert frames[True]["value"][-1] < 0.8 * there[-1]
    last = kept.increments
    assert last.missing is not None
    assert "rows are missing here" in last.cautions[0].text
    assert "rows are missing here" in str(kept.release())
    assert "of counted rows" in str(kept.release())
    assert kept.decayed("0.5").missing.rows == pytest.approx(
        sum(0.5 ** (PERIODS - 1 - t) * e for t, e in enumerate(ever)), abs=0.1
    )


def test_the_standard_error_is_that_of_what_is_told() -> None:
    """Streams in which nobody is, 300 times: the mean of squares against what the plan says. Mutant: a variance of the
    wrong weights."""
    made = plan("add-remove", 2, 1)

    squares: list[float] = []
    for _ in range(300):
        history = History(made)
        noise = [made.terms.noise.sample(sum(made.terms.rows)) for _ in range(PERIODS)]
        ends = np.cumsum(made.terms.rows)[:-1]
        history.follow([Published(f"p{t}", tuple(np.split(z, ends))) for t, z in enumerate(noise)])
        found = history.missing(made.weights("increments", PERIODS))
        assert found is not None
        squares.append((found.rows / found.standard_error) ** 2)
    # chi-squared of 300 degrees: beyond 6 standard deviations once in 10^8
    assert abs(np.mean(squares) - 1) < 6 * math.sqrt(2 / 300)


def test_streams_without_the_cell_go_on_as_before(tmp_path: Path) -> None:
    made = plan("add-remove", 2, 1)
    old = replace(made, terms=replace(made.terms, cut=0))
    old.check()
    kept = sf.open(old, ledger=None, name="s")
    kept.append(frame([("a", "x")]), "p0")
    assert "missing" not in kept.over_time().columns
    assert kept.increments.missing is None
    assert "is not measured" in str(old)
    store = tmp_path / "s.stream"
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(3))
    first = sf.open(made, ledger=ledger, name="s", store=store)
    for t in range(3):
        first.append(frame([("a", "x"), ("b", "y")]), f"p{t}")
    again = sf.open(made, ledger=ledger, name="s", store=store)
    again.append(frame([("a", "x")]), "p3")
    assert len(again.release().published) == 4
    again.release().save(tmp_path / "r.sfumato")
    assert sf.load(tmp_path / "r.sfumato").over_time().columns == again.over_time().columns
