"""How many persons had more rows than are counted: measured beside the tables, counted in the price, and told."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.curator import Curator
from sfumato.curator.rows.sources import open_source
from sfumato.errors import PlanError
from sfumato.strategies.certificates import find_certificate
from support.wall import crossing

DOMAIN = sf.Domain(
    {
        "x": sf.Integers(0, 2, outside="other", missing="other"),
        "b": sf.Categories(["u", "v"], outside="other", missing="other"),
    }
)
WORK = sf.stack(tables=sf.marginals(DOMAIN, order=1), all=sf.total(DOMAIN))
Rows = list[tuple[str, int, str]]


def plan(relation: str, most: int, budget: sf.Budget | None = None, **options: Any) -> sf.Plan:
    given = {"neighbours": relation, "person": "who", "rows_per_person": most}
    return sf.plan(WORK, budget or sf.gdp(1), **given, **options)


def frame(rows: Rows) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["who", "x", "b"]).astype({"x": "int64"})


def of_person(rng: np.random.Generator, name: str, count: int) -> Rows:
    return [(name, int(rng.integers(0, 4)), "uvw"[rng.integers(3)]) for _ in range(count)]


def measured(made: sf.Plan, rows: Rows) -> list[int]:
    ledger = sf.Ledger.in_memory(sf.gdp(10) if made.budget.kind != "pure" else sf.pure(10))
    return crossing(made, frame(rows), DOMAIN, ledger)


@pytest.mark.parametrize("budget", [sf.gdp(1), sf.pure(1)], ids=["gdp", "pure"])
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("most", [1, 2, 3])
def test_one_person_moves_all_that_is_measured_by_no_more_than_is_stated(
    relation: str, most: int, budget: sf.Budget
) -> None:
    """Persons of 0 to 5 rows, one of whom comes, goes or is another; the extreme ones among them reach the bound.

    Mutants: `cut` true in every row of a person who is cut; in the second row too; of rows that are left out; the cell
    left out of the stated sensitivity in `calibrate`.
    """
    made, rng = plan(relation, most, budget), np.random.default_rng([most, len(relation)])
    power, largest = made.sensitivity.power, 0
    others = [row for i in range(3) for row in of_person(rng, f"p{i}", int(rng.integers(0, 6)))]
    kinds: list[Rows] = [of_person(rng, "one", n) for n in range(6)]
    kinds += [[("one", x, b)] * n for x, b in ((0, "u"), (1, "v")) for n in (most, most + 2)]
    vectors = [measured(made, [*others, *own]) for own in kinds]
    pairs = itertools.combinations(range(len(kinds)), 2)
    if relation == "add-remove":
        pairs = ((0, i) for i in range(1, len(kinds)))
    for i, j in pairs:
        moved = sum(abs(a - b) ** power for a, b in zip(vectors[i], vectors[j], strict=True))
        assert moved <= made.sensitivity.value, (kinds[i], kinds[j])
        largest = max(largest, moved)
    if relation == "add-remove":
        assert largest > 0.98 * made.sensitivity.value  # the mutants that state less are seen


def test_what_is_counted_of_persons_who_were_cut_is_in_the_price() -> None:
    """Mutant: `+ cut**power` left out in the curator."""
    made = plan("add-remove", 2)
    ledger = sf.Ledger.in_memory(sf.gdp(10))
    blocks, sizes = made.strategy.blocks, {n: a.size for n, a in DOMAIN.attributes.items()}
    given = {"name": "x", "plan_hash": made.fingerprint}
    proof = find_certificate(blocks, sizes, made.unit, 2)
    for cut in (made.cut * 2, -1, True, 1.0):
        curator = Curator(frame([]), DOMAIN, made.unit, ledger)
        with pytest.raises(PlanError):
            curator.measure(blocks, made.noise, made.price, certificate=proof, cut=cut, **given)  # type: ignore[arg-type]
    dearer = replace(made.sensitivity, value=made.sensitivity.value - 1)
    with pytest.raises(PlanError, match="another sensitivity"):
        Curator(frame([]), DOMAIN, made.unit, ledger).measure(
            blocks, made.noise, made.price, certificate=proof, cut=made.cut, stated=dearer, **given
        )
    alone = sf.plan(WORK, sf.gdp(1), neighbours="add-remove")
    with pytest.raises(PlanError, match="where a column names them"):
        Curator(frame([]), DOMAIN, alone.unit, ledger).measure(
            alone.strategy.blocks, alone.noise, alone.price, cut=1, **given
        )
    assert ledger.spent == 0


@pytest.mark.parametrize("kind", ["frame", "csv", "parquet", "duckdb"])
def test_every_source_counts_the_same_persons(kind: str, tmp_path: Path) -> None:
    """Rows that are dropped, and rows that name nobody, are none of a person's."""
    rng = np.random.default_rng(3)
    dropping = sf.Domain({"x": sf.Integers(0, 2, outside="drop", missing="drop"), "b": DOMAIN["b"]})
    rows = [row for i in range(60) for row in of_person(rng, f"p{i}", int(rng.integers(0, 6)))]
    table = frame(rows)
    table.loc[rng.random(len(table)) < 0.1, "who"] = None
    source: Any = table
    if kind == "csv":
        table.to_csv(tmp_path / "t.csv", index=False)
        source = tmp_path / "t.csv"
    elif kind == "parquet":
        table.to_parquet(tmp_path / "t.parquet")
        source = tmp_path / "t.parquet"
    elif kind == "duckdb":
        given = table
        with duckdb.connect(tmp_path / "t.duckdb") as base:
            base.register("given", given)
            base.execute("CREATE TABLE t AS SELECT * FROM given")
        source = f"duckdb:///{tmp_path}/t.duckdb?table=t"
    kept = table[table.who.notna() & table.x.between(0, 2)].groupby("who").size()
    for most in (1, 2, 3):
        found = open_source(source, dropping, person="who", rows_per_person=most)
        assert found.cut == (kept > most).sum() > 0
        assert found.rows == kept.clip(upper=most).sum()
    assert open_source(source, dropping).cut == 0


def test_a_release_says_how_many_were_cut_and_cries() -> None:
    rng = np.random.default_rng(11)
    rows = [row for i in range(400) for row in of_person(rng, f"p{i}", 5 if i < 336 else 2)]
    made = plan("add-remove", 3)
    told = sf.release(made, frame(rows), ledger=None, name="x")
    found = told.cut_persons()
    assert found is not None
    assert found.standard_error is not None
    assert abs(found.value - 336) < 7 * found.standard_error
    assert found.standard_error < 11  # 1 % of mu^2 = 1
    (caution,) = [c for c in told.cautions if "persons had more than 3 rows" in c.text]
    assert told.cautions[0] is caution
    assert "only 3 rows of each are counted" in caution.text
    assert 0.5 < caution.share <= 1
    assert "of counted rows" in str(told)
    assert "persons had more than 3 rows" in str(told)
    assert "how many persons have more is measured beside" in str(made)
    calm = sf.release(made, frame(rows[-60:]), ledger=None, name="x")
    assert not [c for c in calm.cautions if "persons" in c.text]
    assert "the number of persons who had more than 3 rows" in str(calm)


def test_other_errors_grow_by_half_a_percent_and_by_two() -> None:
    for budget, most in ((sf.gdp(1), 1.005), (sf.pure(1), 1.0201), (sf.approx(1, "1e-6"), 1.005)):
        alone = sf.plan(WORK, budget, neighbours="add-remove", mechanism="laplace" if budget.kind == "pure" else "auto")
        made = plan("add-remove", 1, budget, mechanism=alone.mechanism)
        assert 1 < made.mean_error / alone.mean_error < most
        assert made.cut > 0
        assert made.honest


def test_on_a_unit_lattice_it_is_measured_where_a_whole_number_is_cheap() -> None:
    made = plan("add-remove", 1, mechanism=sf.mechanisms.gaussian(lattice="unit"))
    assert made.cut == 0
    assert "is not measured" in str(made)
    told = sf.release(made, frame([("a", 0, "u")] * 9), ledger=None, name="x")
    assert told.cut_persons() is None
    assert "was not measured" in str(told)
    assert plan("add-remove", 20, mechanism=sf.mechanisms.gaussian(lattice="unit")).cut > 0


def test_a_plan_that_was_stored_without_it_keeps_its_fingerprint_and_measures_as_before(tmp_path: Path) -> None:
    made = plan("add-remove", 3)
    old = replace(made, cut=0)
    assert old.fingerprint != made.fingerprint
    old.save(tmp_path / "old.plan")
    loaded = sf.load(tmp_path / "old.plan")
    assert loaded.cut == 0
    assert loaded.fingerprint == old.fingerprint
    told = sf.release(loaded, frame([("a", 0, "u")] * 9), ledger=None, name="x")
    assert told.measurement.cut is None
    assert told.cut_persons() is None
    told = sf.release(made, frame([("a", 0, "u")] * 9), ledger=None, name="x")
    told.save(tmp_path / "out")
    again = sf.load(tmp_path / "out")
    assert again.measurement.cut == told.measurement.cut
    assert again.cut_persons() == told.cut_persons()
