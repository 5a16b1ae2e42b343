"""`sf.choose_rows`: how many rows of a person to count, after a look that is paid for.

Mutants named were seen to fail. A hundred wards: with few cells each row left out weighs so much that noise which no
look can tell from persons moves the number by one or two.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.planner import rows
from sfumato.planner.left_out import draw_left_out, numbers_asked

WARDS = sf.Domain({"ward": sf.Integers(0, 99, outside="other", missing="other")})
WORK = sf.marginals(WARDS, order=1)


def visits(numbers: Any, seed: int = 0) -> pd.DataFrame:
    """Visits to wards, so many of each person."""
    who = np.repeat(np.arange(len(numbers)), numbers)
    return pd.DataFrame({"who": who, "ward": np.random.default_rng(seed).integers(0, 100, len(who))})


def most(rows: int = 16, budget: sf.Budget | None = None, work: sf.Workload = WORK, **options: Any) -> sf.Plan:
    return sf.plan(work, budget or sf.zcdp(1), neighbours="add-remove", person="who", rows_per_person=rows, **options)


def test_the_number_of_rows_that_everybody_has_is_chosen_and_both_parts_are_the_budget(tmp_path: Path) -> None:
    """Mutants: the rest of the budget is all of it; a look of records; the two looks at the whole share each."""
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.zcdp(1), table="hospital")
    chosen = sf.choose_rows(most(), visits([3] * 4_000), ledger=ledger, share="0.1", table="hospital")
    assert chosen.unit.rows_per_person == 3
    assert chosen.budget == sf.zcdp("0.9")
    assert ledger.spent <= Fraction(1, 10)
    assert ledger.spent > Fraction(999, 10_000)
    spends = [e for e in ledger.entries() if e.kind == "spend"]
    assert [e.name for e in spends] == ["rows of persons", "rows of persons, where they lie"]
    assert [(e.unit.person, e.unit.rows_per_person) for e in spends if e.unit is not None] == [("who", 1), ("who", 3)]
    assert "3 rows of a person were chosen by the release 'rows of persons'" in str(chosen)
    sf.release(chosen, visits([3] * 4_000), ledger=ledger, table="hospital", name="visits")
    assert ledger.remaining < Fraction(1, 1000)


def test_less_budget_counts_fewer_rows_and_more_budget_those_of_few() -> None:
    """A hundred of 5,100 persons have thirty rows, not two. Drawn 150 times each: 2 to 5 rows, and 28 to 30.

    Mutants: the noise of one row for all; rows left out that cost nothing, or more than anything.
    """
    table = visits([2] * 5_000 + [30] * 100)
    few, many = (sf.choose_rows(most(40, sf.zcdp(rho)), table, ledger=None, share="0.5") for rho in ("0.1", "10"))
    assert few.unit.rows_per_person < 15
    assert 20 < many.unit.rows_per_person < 36


def test_rows_beyond_the_largest_number_weigh_too() -> None:
    """They are left out whatever is chosen, and errors of what is left out add up before they are squared.

    Thirty persons have two hundred rows, of whom at most 24 are counted, which is then best; if they had 24, it were 7.

    Mutants: nobody is looked at who has more rows than are compared; such a person has as many rows as these.
    """
    chosen = sf.choose_rows(most(24, sf.zcdp(3)), visits([2] * 5_000 + [200] * 30), ledger=None, share="0.3")
    assert chosen.unit.rows_per_person > 18


def test_noise_alone_gives_nobody_more_rows_and_does_not_hide_a_tail() -> None:
    """Forty looks, by noise of seed 8, at persons of whom nobody has more than five rows, and at persons with a tail.

    Mutants: numbers that could be anything cost no evidence; the same of tails; tails of one slope alone.
    """
    drawn = np.random.default_rng(8)
    look = rows._look_plan(most(40, sf.zcdp(1)), Fraction(9, 200))
    found = sf.release(look, pd.DataFrame({"who": [1], "rows": [1]}), ledger=None)
    covariance = found.covariance(found.workload)
    persons = drawn.binomial(5, 0.8, 5_000), drawn.poisson(drawn.gamma(2, 2, 5_000))
    for numbers, beyond, low, high in [(persons[0], 5, 0, 1), (persons[1], 18, 10, 150)]:
        asked = numbers_asked(40)[0]
        answers = asked @ np.bincount(numbers, minlength=asked.shape[1])
        seen = np.array(
            [
                np.median(draw_left_out(noisy, covariance, 40)[:, beyond])
                for noisy in drawn.multivariate_normal(answers, covariance, 40)
            ]
        )
        assert np.sum((low <= seen) & (seen <= high)) >= 39


def test_an_approximate_budget_is_divided_as_its_noise_adds_up() -> None:
    """Mutant: epsilon divided, delta kept: both parts together would be above the budget."""
    whole = sf.approx(1, "1e-6")
    chosen = sf.choose_rows(most(budget=whole), visits([2] * 9_000), ledger=None)
    assert chosen.budget.kind == "gdp"
    assert whole.mu_squared * Fraction(94, 100) < chosen.budget.mu_squared <= whole.mu_squared * Fraction(95, 100)
    pure = sf.choose_rows(most(budget=sf.pure(1)), visits([2] * 9_000), ledger=None, share="0.2")
    assert pure.budget == sf.pure("0.8")


def test_rows_joined_with_their_persons_and_rows_once_per_ward() -> None:
    """Mutants: rows of persons in no row of the table of persons counted; rows counted instead of wards."""
    table = visits([2] * 3_000 + [9] * 3_000)
    people = pd.DataFrame({"who": range(3_000)})
    by_visit = sf.joined(table, people, key="who")
    assert sf.choose_rows(most(), by_visit, ledger=None).unit.rows_per_person == 2
    twice = pd.concat([table.assign(ward=table["who"] % 50 + w) for w in (0, 50)])
    chosen = sf.choose_rows(most(once_per=["ward"]), twice, ledger=None)
    assert (chosen.unit.rows_per_person, chosen.unit.once_per) == (2, ("ward",))


def test_what_was_looked_at_is_read_back(tmp_path: Path) -> None:
    """Mutant: the looks are not stored."""
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.zcdp(1))
    first, again = (
        sf.choose_rows(most(), visits([3] * 500), ledger=ledger, out=tmp_path / "looks", name="n") for _ in range(2)
    )
    assert first.fingerprint == again.fingerprint
    assert len([e for e in ledger.entries() if e.kind == "spend"]) == 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"most": most(2).unit}, "needs a plan of tables"),
        ({"most": sf.plan(WORK, sf.zcdp(1), neighbours="add-remove")}, "needs a plan of tables"),
        ({"most": sf.plan(WORK, sf.zcdp(1), neighbours="add-remove", person="who")}, "2 or more"),
        ({"most": most(200)}, "at most 128"),
        ({"most": most(once_per=["ward"], rows_per_group=2)}, "one row per group"),
        ({"share": 0}, "above 0 and below 1"),
        ({"share": 1}, "above 0 and below 1"),
        ({"source": sf.per_person(None, key="who", visits=sf.rows("none.csv"))}, "nothing to choose"),
        ({"source": sf.joined("none.csv", "none.csv", key="whom")}, "'whom'"),
        ({"source": sf.Histogram([1, 2, 3, 4, 5])}, "a histogram has no rows"),
    ],
)
def test_what_cannot_be_chosen_is_refused_before_anything_is_paid(
    change: dict[str, Any], why: str, tmp_path: Path
) -> None:
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.zcdp(1))
    given = {"most": most(), "source": visits([2] * 5), "ledger": ledger} | change
    with pytest.raises(sf.SfumatoError, match=why):
        sf.choose_rows(given.pop("most"), given.pop("source"), **given)
    assert ledger.entries() == ()


def test_a_ledger_that_would_pay_one_of_both_looks_pays_none() -> None:
    """Mutant: the first look paid for before the second is asked about."""
    plan = most(budget=sf.zcdp(1))
    ledger = sf.Ledger.in_memory(sf.zcdp("0.03"))
    with pytest.raises(sf.BudgetExceeded):
        sf.choose_rows(plan, visits([3] * 500), ledger=ledger)
    assert ledger.spent == 0
