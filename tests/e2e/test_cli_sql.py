"""Questions in SQL on the command line: read, paid and asked again."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from support.typed import Run, refused

SPEC = """
[data]
source = "people.csv"
table = "people"

[schema.age]
type = "integer"
min = 0
max = 99
outside = "clamp"
missing = "other"

[schema.sex]
type = "category"
values = ["f", "m"]
outside = "other"
missing = "other"

[measures.income]
min = 0
max = 100_000

[privacy]
neighbours = "add-remove"
epsilon = 1
delta = 1e-6

[[queries]]
upto = 1
"""
STATEMENT = "SELECT sex, COUNT(*) AS n, AVG(income) AS mean FROM people WHERE age >= 65 GROUP BY sex ORDER BY n DESC"


@pytest.fixture
def place(run: Run) -> None:
    draw = random.Random(1)
    rows = (f"{draw.randint(0, 99)},{draw.choice('fm')},{draw.gammavariate(2, 10_000):.0f}\n" for _ in range(3_000))
    Path("people.csv").write_text("age,sex,income\n" + "".join(rows))
    Path("people.toml").write_text(SPEC)
    assert run("ledger", "create", "b.db", "--epsilon", "2", "--delta", "1e-6").code == 0


@pytest.mark.usefixtures("place")
def test_a_statement_is_explained_then_paid_then_asked_for_nothing(run: Run) -> None:
    shown = run("sql", STATEMENT, "people.toml")
    assert "reads as, of records with age >= 65, by sex" in shown.out
    assert "Nothing was read or paid" in shown.out
    assert json.loads(run("sql", STATEMENT, "people.toml", "--json").out)["statement"] == STATEMENT
    paid = run("sql", STATEMENT, "people.toml", "--ledger", "b.db", "--name", "one", "-o", "one", "--json")
    rows = json.loads(paid.out)["rows"]
    assert [set(r) for r in rows] == [{"sex", "n", "n low", "n high", "mean", "mean low", "mean high"}] * 3
    assert rows[0]["n"] >= rows[1]["n"] > 300
    again = json.loads(run("sql", STATEMENT, "one", "--json").out)["rows"]
    assert again == rows
    every = run("sql", "SELECT AVG(income) FROM people WHERE age >= 65", "one", "--csv").out.splitlines()
    assert every[0] == "AVG(income),AVG(income) low,AVG(income) high"


@pytest.mark.usefixtures("place")
def test_what_cannot_be_asked_is_refused_in_words(run: Run) -> None:
    refused(run("sql", "SELECT MAX(age) FROM people", "people.toml"), "QUANTILE_CONT")
    refused(run("sql", STATEMENT, "people.toml", "--ledger", "b.db"), "add --name, -o")
    assert run("sql", STATEMENT, "people.toml", "--ledger", "b.db", "--name", "one", "-o", "one").code == 0
    refused(run("sql", "SELECT COUNT(*) FROM people WHERE age >= 60", "one"), "tells apart")
    refused(run("sql", STATEMENT, "one", "--name", "two"), "is asked for nothing")
