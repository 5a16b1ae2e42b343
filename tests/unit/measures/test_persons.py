"""Sums of measures of persons whose rows are counted once per group: price, plans, releases, and the checker.

Mutants named were seen to fail.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import sfumato as sf
from sfumato.cli import app
from sfumato.errors import PlanError
from sfumato.maps import BlockMap, DenseMap
from sfumato.privacy import grouped_rows
from sfumato.privacy import measures as priced_measures
from sfumato.privacy.measures import PIECES, corners, over_hull, widened
from sfumato.privacy.sensitivity import certified_bound
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from support.shares import errs_of_persons

WARD = sf.Categories(["a", "b", "c", "d", "e"], outside="other", missing="other")
AGE = sf.Integers(0, 3, outside="other", missing="other")
DOMAIN = sf.Domain({"ward": WARD, "age": AGE}, measures={"cost": sf.Measure(0, 1_000)})
WHO: dict[str, Any] = {"neighbours": "add-remove", "person": "who"}


def test_no_person_changes_more_than_is_priced() -> None:
    """`python bench/once_per.py measures` draws 3,000. Mutants: a corner or products of other groups left out."""
    assert errs_of_persons(40, 0)[0] == 0


@pytest.mark.parametrize("mutant", ["corner", "products"])
def test_mutants_of_the_price_are_found(monkeypatch: pytest.MonkeyPatch, mutant: str) -> None:
    if mutant == "corner":
        whole = corners

        def fewer(cells: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
            return np.delete(whole(cells), [0, PIECES // 2, PIECES + 1], axis=1)

        monkeypatch.setattr(priced_measures, "corners", fewer)
    else:
        monkeypatch.setattr(grouped_rows, "_largest_product", lambda *_: 0)
    assert errs_of_persons(60, 0, enough=1)[0] > 0


@pytest.mark.parametrize("relation", list(Neighbours))
def test_each_row_of_a_person_is_rounded(relation: Neighbours) -> None:
    """Mutant: the rounding of one row."""
    blocks, sizes = [BlockMap((("cost",),), (DenseMap(np.array([[0, 50, 100]])),))], {"ward": 6, "cost": 3}
    unit = PrivacyUnit(relation, "who", 4, once_per=("ward",))
    hull, cells, rounded = over_hull(blocks, sizes, ("cost",), 2)
    plain = certified_bound(hull, cells, unit, 2)
    rows = 4 * (2 if relation is Neighbours.REPLACE_ONE else 1)
    assert certified_bound(blocks, sizes, unit, 2, None, ("cost",)) == widened(plain, rows * rounded, 2)


def test_groups_are_of_cells_and_not_of_measures() -> None:
    unit = PrivacyUnit(Neighbours.ADD_REMOVE, "who", 4, once_per=("cost",))
    blocks = [BlockMap((("cost",),), (DenseMap(np.array([[0, 50, 100]])),))]
    with pytest.raises(PlanError, match="a measure has none"):
        certified_bound(blocks, {"cost": 3}, unit, 2, None, ("cost",))
    with pytest.raises(PlanError, match="names attributes that have cells: ward, age; not cost"):
        sf.plan(sf.means(DOMAIN, "cost"), sf.gdp(1), rows_per_person=3, once_per=["cost"], **WHO)


def test_means_by_the_groups_err_the_root_of_the_rows() -> None:
    work = sf.means(DOMAIN, "cost", by="ward")
    given = WHO | {"rows_per_person": 6}
    apart = sf.plan(work, sf.zcdp("0.5"), once_per=["ward"], **given)
    whole = sf.plan(work, sf.zcdp("0.5"), **given)
    # how many were cut costs a little less beside groups
    assert apart.objective_value == pytest.approx(whole.objective_value / np.sqrt(6), rel=0.005)


def test_parts_are_weighed_by_what_several_rows_cost() -> None:
    """Totals cost the square of the rows and tables of the groups the rows. Mutant: weights as for rows anywhere."""
    work = sf.stack(sf.marginals(DOMAIN, upto=2), sf.means(DOMAIN, "cost", by="ward"), sf.means(DOMAIN, "cost"))
    given = WHO | {"rows_per_person": 32, "once_per": ["ward"], "rows_per_group": 8}
    weighed = sf.plan(work, sf.zcdp("0.5"), **given)
    chosen = [c.value for c in weighed.considered if c.value is not None]
    assert weighed.objective_value == min(chosen)
    assert weighed.objective_value < 0.95 * max(chosen)


@pytest.mark.parametrize("budget", [sf.zcdp("0.5"), sf.pure(1)], ids=["zcdp", "pure"])
def test_they_are_released_answered_and_accepted(budget: sf.Budget, tmp_path: Path) -> None:
    """Mutants: no rows of a person cut to one of each ward; a price of one row."""
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"who": rng.integers(0, 4_000, 12_000), "ward": rng.choice(list("abcde"), 12_000)})
    frame["age"], frame["cost"] = rng.integers(0, 4, 12_000), rng.uniform(0, 1_000, 12_000)
    frame = pd.concat([frame, frame.assign(cost=0)])  # of each ward one row of two is counted
    work = sf.stack(sf.means(DOMAIN, "cost", by="ward"), sf.marginals(DOMAIN, sets=[("ward",)]))
    plan = sf.plan(work, budget, rows_per_person=6, once_per=["ward"], **WHO)
    ledger, out = tmp_path / "l.db", tmp_path / "out"
    account = sf.Ledger.create(ledger, total=budget, table="hospital")
    release = sf.release(plan, frame, ledger=account, table="hospital", out=out)
    told = release.table("ward").to_pandas().set_index("ward")["answer"]
    true = frame.groupby("ward")["who"].nunique()
    errors = float(np.max(release.table("ward").to_pandas()["standard_error"]))
    assert (abs(told[true.index] - true) < 6 * errors).all()
    assert 150 < release.mean("cost", by="ward").to_pandas()["mean cost"].iloc[0] < 350
    told = CliRunner().invoke(app, ["check-release", str(out), "--ledger", str(ledger)]).output
    assert told.startswith("accepted"), told
