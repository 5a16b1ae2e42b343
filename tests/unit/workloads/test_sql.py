"""SQL read as a workload: what DuckDB answers is answered, or refused with the nearest statement that is."""

from __future__ import annotations

import re

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import InvalidInput, WorkloadError
from sfumato.workloads import sql as module
from support.statements import DOMAIN, HUGE, drawn_statement, outcome, people

TABLE = people()


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_drawn_statements_are_answered_as_duckdb_does_or_refused(first: int) -> None:
    """Mutants: a negation that null satisfies; groups in the order of the domain; a condition of one column left out;
    a quantile of the wrong side; a statement that is refused with one that is refused as well."""
    kept = 0
    for seed in range(first, first + 10):
        statement = drawn_statement(seed)
        found = outcome(statement, TABLE)
        assert found.wrong is None, (statement, found.wrong)
        kept += found.refused is None
        nearest = re.search(r"the nearest that is answered: (SELECT .*)", found.refused or "")
        if nearest:
            sf.sql(nearest[1], DOMAIN)
    assert kept


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("SELECT * FROM people", r"single records are never shown; the nearest that is answered: SELECT COUNT\(\*\)"),
        ("SELECT DISTINCT region FROM people", "DISTINCT shows which groups there are; .* GROUP BY region"),
        ("SELECT COUNT(DISTINCT region) FROM people", "how many different values"),
        ("SELECT region, COUNT(*) FROM people GROUP BY region HAVING COUNT(*) > 9", "HAVING would choose groups"),
        ("SELECT COUNT(*) FROM a JOIN b ON a.x = b.x", "joins are not read"),
        ("WITH a AS (SELECT 1) SELECT COUNT(*) FROM a", "WITH is not read"),
        ("SELECT COUNT(*) FROM (SELECT 1)", "the rows come of one table"),
        ("SELECT COUNT(*) FROM a UNION SELECT 1", "one SELECT is read"),
        ("DROP TABLE people", "one SELECT is read"),
        ("SELECT COUNT(* FROM people", "no SQL that can be read, at line 1"),
        ("SELECT COUNT(*) FROM people; SELECT 1", "one SELECT is read"),
        ("SELECT MAX(age) FROM people", r"QUANTILE_CONT\(age, 0.99\)"),
        ("SELECT MAX(income) FROM people", r"an average, AVG\(income\)"),
        ("SELECT AVG(inc) FROM people", "did you mean 'income'"),
        ("SELECT age / 10, COUNT(*) FROM people GROUP BY age / 10", "groups are declared attributes or levels"),
        ("SELECT COUNT(*) FROM people GROUP BY CUBE (region, age)", "several tables"),
        ("SELECT region LIKE 'n%', COUNT(*) FROM people GROUP BY 1", "groups are declared attributes"),
        ("SELECT COUNT(*) FROM people WHERE region LIKE 'n%'", r"region IN \('north'\)"),
        ("SELECT COUNT(*) FROM people WHERE age > hours", "compared with each other"),
        ("SELECT COUNT(*) FROM people WHERE income > 3", "income is a measure, which is summed and not compared"),
        ("SELECT COUNT(*) FROM people WHERE age + 1 > 3", "conditions have no arithmetic"),
        ("SELECT MEDIAN(income) FROM people", "income has no quantiles"),
        ("SELECT AVG(region) FROM people", "region is not numeric"),
        ("SELECT income FROM people GROUP BY income", "income is a measure, which has no groups"),
        ("SELECT COUNT(*) FROM people ORDER BY region", "is no column of the result"),
        ("SELECT COUNT(*) FROM people LIMIT 1 + 1", "LIMIT takes a whole number"),
        ("SELECT COUNT(*) FROM people OFFSET 3", "OFFSET is not read"),
        ("x" * 20_000, "at most 10,000 characters"),
    ],
)
def test_what_is_not_answered_is_refused_in_words(statement: str, why: str) -> None:
    with pytest.raises(WorkloadError, match=why):
        sf.sql(statement, DOMAIN)


def test_null_satisfies_neither_a_comparison_nor_its_negation() -> None:
    """Mutant: NOT as the complement over all cells."""
    both = [sf.sql(f"SELECT COUNT(*) FROM people WHERE {w}", DOMAIN) for w in ("age > 9", "NOT (age > 9)")]
    works = [q.workload for q in both]
    ones = np.ones(DOMAIN.size)
    found = [float(w.answer(ones)[0]) for w in works]
    assert sum(found) == DOMAIN.size * 20 / 21
    assert str(both[1]).splitlines()[1] == "reads as, of records with age <= 9:"


def test_what_always_holds_is_no_condition() -> None:
    """Programs write WHERE 1 = 1 AND ..., so that what follows may be any number of conditions.

    Mutants: a part that never holds left out as well; the part beside one that holds left out with it.
    """

    def condition(where: str) -> str | None:
        return sf.sql(f"SELECT COUNT(*) FROM people WHERE {where}", DOMAIN).condition

    assert [condition(w) for w in ("1 = 1", "TRUE", "(1=1 AND 'a'='a')")] == [None] * 3
    alone = condition("age > 9 AND region = 'north'")
    assert alone is not None
    for where in ("1=1 AND age > 9 AND region = 'north'", "age > 9 AND 1=1 AND (TRUE AND region = 'north')"):
        assert condition(where) == alone
    asked = sf.sql("SELECT COUNT(*) FILTER (WHERE 1 = 1), SUM(CASE WHEN TRUE THEN 1 ELSE 0 END) FROM people", DOMAIN)
    assert [i.condition for i in asked.items] == [None] * 2
    for where in ("1 = 0", "1 = 1 AND FALSE", "age > 9 OR 1 = 1"):
        with pytest.raises(WorkloadError):
            condition(where)


def test_rows_are_ordered_and_cut_after_the_noise() -> None:
    asked = sf.sql("SELECT region AS r, COUNT(*) FROM people GROUP BY r ORDER BY 2 DESC LIMIT 2", DOMAIN)
    found = asked.answer(sf.release(sf.plan(asked.workload, HUGE, neighbours="add-remove"), TABLE, ledger=None))
    assert list(found.columns) == ["r", "COUNT(*)", "COUNT(*) low", "COUNT(*) high"]
    assert len(found["r"]) == 2
    assert found["COUNT(*)"][0] >= found["COUNT(*)"][1]
    assert repr(asked).startswith("SqlQuestion('SELECT region")


def test_a_group_that_noise_does_not_tell_is_blank() -> None:
    """Mutant: a mean of nobody that ends the answer of all others."""
    asked = sf.sql("SELECT region, AVG(income) FROM people WHERE age >= 5 GROUP BY region", DOMAIN)
    plan = sf.plan(asked.workload, sf.gdp(1), neighbours="add-remove")
    found = asked.answer(sf.release(plan, TABLE[TABLE["region"].notna()], ledger=None))
    by_region = dict(zip(found["region"], found["AVG(income)"], strict=True))
    assert by_region["(other)"] is None
    assert 40 < by_region["north"] < 60


def test_what_a_release_does_not_hold_is_refused_and_not_blank() -> None:
    asked = sf.sql("SELECT AVG(income) FROM people WHERE age >= 5", DOMAIN)
    release = sf.release(sf.plan(asked.workload, sf.gdp(1), neighbours="add-remove"), TABLE, ledger=None)
    with pytest.raises(sf.NotAnswerable, match="tells apart"):
        sf.sql("SELECT AVG(income) FROM people WHERE age >= 6", DOMAIN).answer(release)


def test_counts_under_conditions_are_released_over_a_domain_with_measures() -> None:
    """Mutant: combinations of counts refused after they were planned, because the domain has a measure as well."""
    texts = ["region == 'north' and old and age > 8", "`Pay Class` >= 2 and old and age > 8", "old and age > 8"]
    plan = sf.plan(sf.predicates(DOMAIN, texts), sf.gdp(1), neighbours="add-remove")
    assert "Combination" in {type(b).__name__ for b in plan.strategy.blocks}
    assert sf.release(plan, TABLE, ledger=None).answers.shape == (3,)


def test_without_its_parser_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "sqlglot", None)
    with pytest.raises(InvalidInput, match=r"\[sql\]"):
        sf.sql("SELECT COUNT(*) FROM people", DOMAIN)


def test_many_groups_are_refused() -> None:
    domain = sf.Domain({f"a{i}": 60 for i in range(3)})
    with pytest.raises(WorkloadError, match="more than 100,000 groups"):
        sf.sql("SELECT a0, a1, a2, COUNT(*) FROM t GROUP BY ALL", domain)
