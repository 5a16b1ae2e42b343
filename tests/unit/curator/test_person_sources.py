"""Tables made of several: released, refused before anything is spent, declared in specs and on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import sfumato as sf
from sfumato.cells import Grid
from sfumato.cli import app
from sfumato.curator.keys.counts import open_keys
from sfumato.curator.people.opening import JoinedTable
from sfumato.curator.rows.counting import one_block_per_set
from sfumato.curator.rows.sources import open_source
from sfumato.curator.streams.state import open_people
from sfumato.errors import InvalidInput, SourceError, SpecError
from sfumato.privacy.unit import Neighbours, PrivacyUnit

API: Any = sf
PATIENTS = "patient,sex,born\n1,f,1950-03-01\n2,m,1960-01-01\n3,f,1970-05-05\n4,m,\n,f,1950-01-01\n"
VISITS = """patient,date,ward,cost
1,2026-01-01,ER,100.50
1.0,2026-01-20,A,20
1,2026-06-01,A,x
2,2026-02-01,B,7
3,2026-02-30,ER,1e99
9,2026-01-01,ER,1
,2026-01-01,ER,1
"""
DOMAIN = sf.Domain(
    {
        "sex": sf.Categories(["f", "m"], outside="other", missing="other"),
        "visits": sf.Integers(0, 5, outside="clamp", missing="other"),
        "soon": sf.Booleans(outside="other", missing="other"),
    }
)
COLUMNS = {"visits": "count(visits)", "soon": "any(days(visits.date, previous(visits.date)) <= 30)"}
SPEC = """
[data]
table = "hospital"

[people]
source = "patients.csv"
key = "patient"
dates = ["born"]

[people.rows.visits]
source = "visits.csv"
dates = ["date"]
numbers = { cost = [0, 10000, 0.01] }

[people.columns]
visits = "count(visits)"
soon = "any(days(visits.date, previous(visits.date)) <= 30)"

[schema_defaults]
outside = "other"
missing = "other"
[schema.sex]
type = "category"
values = ["f", "m"]
[schema.visits]
type = "integer"
min = 0
max = 5
[schema.soon]
type = "boolean"

[privacy]
mu = 1000
neighbours = "add-remove"
person = "patient"

[[queries]]
upto = 1
"""


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "patients.csv").write_text(PATIENTS, encoding="utf-8")
    (tmp_path / "visits.csv").write_text(VISITS, encoding="utf-8")
    (tmp_path / "spec.toml").write_text(SPEC, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(**options: Any) -> Any:
    people = sf.rows("patients.csv", dates=["born"])
    visits = sf.rows("visits.csv", dates=["date"], numbers={"cost": (0, 10_000, "0.01")})
    return sf.per_person(people, key="patient", visits=visits, columns=COLUMNS, **options)


def plan(domain: sf.Domain = DOMAIN, **options: Any) -> Any:
    given = {"neighbours": "add-remove", "person": "patient"} | options
    return API.plan(sf.marginals(domain, upto=1), sf.gdp(1000), **given)


def answered(release: Any, name: str) -> list[int]:
    return np.rint(release.table(name).values).astype(int).tolist()


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_one_row_a_person_is_released(there: Path, neighbours: str) -> None:
    """Mutants: rows of nobody in the table of persons counted; persons without a row left out."""
    found = sf.release(plan(neighbours=neighbours), made(), ledger=None)
    assert answered(found, "sex") == [2, 2, 0]
    assert answered(found, "visits") == [1, 2, 0, 1, 0, 0, 0]
    assert answered(found, "soon") == [3, 1, 0]


def test_a_plan_of_records_is_refused_and_nothing_is_spent(there: Path) -> None:
    """Mutant: a plan of records, whose ledger would say that a record is protected."""
    ledger = sf.Ledger.create("budget.db", total=sf.gdp(5000))
    rows = sf.joined("visits.csv", "patients.csv", key="patient")
    wards = sf.Domain({"ward": sf.Categories(["ER", "A", "B"], outside="other", missing="other")})
    refused: list[dict[str, Any]] = [{"person": None}, {"person": "sex"}]
    for options in refused:
        with pytest.raises(InvalidInput, match=r"plan with person='patient'"):
            sf.release(plan(**options), made(), ledger=ledger)
        with pytest.raises(InvalidInput, match=r"plan with person='patient' and rows_per_person="):
            sf.release(plan(wards, **options), rows, ledger=ledger)
    # nor where the key is an attribute, so that its column is read
    keyed = sf.Integers(1, 9, outside="other", missing="other")
    for table, other in ((made(), DOMAIN), (rows, wards)):
        with pytest.raises(InvalidInput, match=r"plan with person='patient'"):
            sf.release(plan(sf.Domain({**other.attributes, "patient": keyed}), person=None), table, ledger=ledger)
    assert not ledger.entries()
    domain = sf.Domain({"nothing": DOMAIN.attributes["soon"]})
    with pytest.raises(SourceError, match="has no column called 'nothing'"):
        sf.release(plan(domain), made(), ledger=ledger)
    nobody = sf.per_person(None, key="patient", visits=sf.rows("visits.csv", dates=["date"]), columns=COLUMNS)
    with pytest.raises(InvalidInput, match="columns: visits, soon"):
        sf.release(plan(), nobody, ledger=ledger)
    with pytest.raises(InvalidInput, match="decimal is of a text file"):
        sf.release(plan(), sf.Source(made(), decimal=","), ledger=ledger)
    assert not ledger.entries()
    release = sf.release(plan(), made(), ledger=ledger, table="hospital", name="one")
    assert {e.name for e in ledger.entries()} == {"one"}
    assert ledger.unit == release.plan.unit
    assert release.plan.unit.person == "patient"


def test_keys_and_streams_are_of_persons_too(there: Path) -> None:
    """Mutants: a source opened by another door without asking whose it is, where its key is a column that is read; all
    rows of a person would then be keys of records, each at the price of one."""
    rows, keys = sf.joined("visits.csv", "patients.csv", key="patient"), sf.Keys("patient", kind="text")
    for other in (None, "ward"):
        with pytest.raises(InvalidInput, match=r"plan with person='patient'"):
            open_keys(rows, keys, PrivacyUnit(Neighbours.ADD_REMOVE, other))
    assert open_keys(rows, keys, PrivacyUnit(Neighbours.ADD_REMOVE, "patient")).counts.max() == 1
    grid = Grid.of(sf.Domain({"patient": sf.Integers(1, 9, outside="other", missing="other")}))
    with pytest.raises(InvalidInput, match=r"plan with person='patient'"):
        open_people(rows, grid, PrivacyUnit(Neighbours.ADD_REMOVE, "ward"), one_block_per_set, bytes(32))


def test_whoever_occurs_is_a_person_where_no_table_says_who_is(there: Path) -> None:
    visits = sf.rows("visits.csv", dates=["date"])
    domain = sf.Domain({n: a for n, a in DOMAIN.attributes.items() if n != "sex"})
    found = sf.release(plan(domain), sf.per_person(None, key="patient", visits=visits, columns=COLUMNS), ledger=None)
    assert answered(found, "visits") == [0, 3, 0, 1, 0, 0, 0]


@pytest.mark.parametrize(("unmatched", "expected"), [("drop", [4, 1, 0]), ("missing", [4, 1, 1])])
def test_rows_have_their_persons_columns(there: Path, unmatched: Any, expected: list[int]) -> None:
    """Mutants: rows of nobody counted; a person's columns of another person."""
    domain = sf.Domain(
        {
            "sex": DOMAIN.attributes["sex"],
            "ward": sf.Categories(["ER", "A", "B"], outside="other", missing="other"),
            "visits": DOMAIN.attributes["visits"],
        }
    )
    rows = sf.joined("visits.csv", made(), key="patient", columns=["sex", "visits"], unmatched=unmatched)
    given = {"person": "patient", "rows_per_person": 5}
    found = sf.release(plan(domain, **given), rows, ledger=None)
    assert answered(found, "sex") == expected
    assert answered(found, "visits")[:4] == [0, 2, 0, 3]
    counts = open_source(rows, domain, person="patient", rows_per_person=2)
    assert counts.rows == sum(expected) - 1
    # without columns= those are the persons' that the rows do not have
    other = open_source(sf.joined("visits.csv", made(), key="patient"), domain, person="patient", rows_per_person=5)
    assert other.rows == 5


def test_one_person_less_changes_no_other_joined_row(tmp_path: Path) -> None:
    """Mutants: of several rows with one key the first; a join that doubles rows."""
    drawn = np.random.default_rng(5)
    people = pd.DataFrame({"key": drawn.integers(0, 60, 100), "sex": drawn.choice(["f", "m", ""], 100)})
    visits = pd.DataFrame({"key": drawn.integers(0, 70, 400), "ward": drawn.choice(["A", "B"], 400)})

    def rows(*tables: Any) -> list[str]:
        opened = JoinedTable(sf.joined(tables[1], tables[0], key="key")).opened(["key", "sex", "ward"])
        listed = ", ".join(opened.columns[n].sql for n in ("key", "sex", "ward"))
        return sorted(map(repr, opened.session.rows(f"SELECT {listed} FROM {opened.sql}")))

    whole = rows(people, visits)
    assert len(whole) == int(visits.key.isin(people.key).sum())
    for gone in range(0, 70, 7):
        less = [t[t.key != gone].sample(frac=1, random_state=gone) for t in (people, visits)]
        assert rows(*less) == [row for row in whole if not row.startswith(f"('{gone}',")]


def test_a_spec_declares_the_tables_of_persons(there: Path) -> None:
    spec = sf.read_spec("spec.toml")
    found = sf.release(plan(), spec.source, ledger=None)
    assert answered(found, "visits") == [1, 2, 0, 1, 0, 0, 0]
    written = SPEC.replace('key = "patient"\n', 'key = "patient"\njoined = "visits"\nunmatched = "missing"\n', 1)
    Path("joined.toml").write_text(written, encoding="utf-8")
    assert repr(sf.read_spec("joined.toml").source).startswith("joined(")


def test_the_command_line_releases_it(there: Path) -> None:
    ran = CliRunner().invoke(app, ["ledger", "create", "budget.db", "--mu", "3000"])
    assert ran.exit_code == 0, ran.output
    options = ["--ledger", "budget.db", "--name", "one", "-o", "out", "--json"]
    ran = CliRunner().invoke(app, ["release", "spec.toml", *options])
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["table"] == "hospital"
    assert answered(sf.load("out"), "soon") == [3, 1, 0]
    ran = CliRunner().invoke(app, ["release", "spec.toml", "--source", "patients.csv", *options])
    assert ran.exit_code != 0
    assert "no other takes its place" in str(ran.exception)
    for sample in ("patients.csv", "visits.csv"):
        ran = CliRunner().invoke(app, ["check", "spec.toml", "--sample", sample, "--public"])
        assert ran.exit_code != 0
        assert "the table to be protected" in str(ran.exception)


REFUSED = [
    ('key = "patient"', "", "people: key is missing; it is the column that names persons", "[people]"),
    ('person = "patient"', "", "people.key: a table of persons is counted by persons", 'key = "patient"'),
    ('table = "hospital"', 'source = "x.csv"', "data.source: the tables of persons are named under", "x.csv"),
    ('"count(visits)"', '"count(visit)"', r"people.columns.visits: columns: 'visits': character 7", "count(visit)"),
    ("[0, 10000, 0.01]", "[0, 10000]", "people.rows.visits.numbers: numbers: 'cost' has a range", "numbers"),
    ('dates = ["date"]', 'order = "date"', "people.rows.visits.order: order='date' is no date", "order"),
    ('dates = ["date"]', 'colour = "red"', "people.rows.visits.colour: there is no such key here", "colour"),
    ('dates = ["born"]', 'unmatched = "drop"', "people.unmatched: rows are left unmatched where", "unmatched"),
    ('dates = ["born"]', 'joined = "drugs"', "people.joined: joined names a table under", "joined"),
    ('dates = ["born"]', 'joined = "visits"\nunmatched = "no"', "use 'drop' or 'missing'", "unmatched"),
    ('values = ["f", "m"]', 'values_from = "visits.csv"', "the table to be protected", "values_from"),
]


@pytest.mark.parametrize(("old", "new", "words", "at"), REFUSED)
def test_a_spec_is_refused_with_its_line(there: Path, old: str, new: str, words: str, at: str) -> None:
    text = SPEC.replace(old, new, 1)
    assert text != SPEC
    Path("odd.toml").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=words) as refused:
        sf.read_spec("odd.toml")
    assert str(refused.value).startswith(f"line {text[: text.index(at)].count(chr(10)) + 1}: ")
