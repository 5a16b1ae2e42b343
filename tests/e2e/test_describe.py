"""A table that nobody described: told beside the truth, planned before the price, resumed, gone on with."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import sfumato as sf
from sfumato.cli import app
from sfumato.curator.steps import StepStore
from sfumato.errors import (
    BudgetExceeded,
    InvalidInput,
    LedgerMismatch,
    NameTaken,
    NotWritten,
    PlanError,
    SourceError,
)
from sfumato.releases.profiles import Profile
from sfumato.releasing import PageWarning, plan_from_spec
from sfumato.specs import read_spec

ROWS = 4_000
BUDGET = sf.approx(40, "1e-6", thresholds="5e-7")
"""So much that noise hides little of four thousand records."""


def table(rows: int = ROWS, seed: int = 1) -> pd.DataFrame:
    """Years, money, codes, dates, texts, numbers that are often missing, and an identifier."""
    random = np.random.default_rng(seed)
    days = np.datetime64("2015-01-01") + random.integers(0, 2_000, rows)
    missing = random.random(rows) < 0.3
    return pd.DataFrame(
        {
            "year": random.integers(1960, 2025, rows),
            "money": np.round(np.exp(random.normal(10, 1.5, rows)), 2),
            "code": random.choice(["A1", "B2", "C3", "D4"], rows, p=[0.5, 0.3, 0.15, 0.05]),
            "day": days.astype(str),
            "height": np.where(missing, np.nan, np.round(random.normal(170, 10, rows), 1)),
            "id": [f"id-{i}" for i in random.permutation(rows)],
        }
    )


def near(found: Profile, frame: pd.DataFrame) -> None:
    """What is told is what is there, but for noise."""
    told = found.columns
    assert {n: c.kind for n, c in told.items()} == {
        "year": "number",
        "money": "number",
        "code": "text",
        "day": "date",
        "height": "number",
        "id": "text",
    }
    assert abs(found.records - len(frame)) < 30
    assert told["height"].shares["missing"] == pytest.approx(0.3, abs=0.03)
    assert told["height"].shares["number"] == pytest.approx(0.7, abs=0.03)
    assert {t for t, _ in told["code"].labels} == {"A1", "B2", "C3", "D4"}
    assert dict(told["code"].labels)["A1"] == pytest.approx(2_000, abs=150)
    assert told["code"].labels[0][0] == "A1"
    assert told["id"].labels == ()
    for name in ("year", "money", "height"):
        values = frame[name].dropna().astype(float)
        for q in told[name].quartiles:
            assert abs(float((values < float(q.value)).mean()) - q.probability) < 0.04, (name, q)
            assert float(q.low) <= float(q.value) < float(q.high)
        exactly = values.clip(told[name].low, told[name].high).mean()
        assert abs((told[name].mean or 0.0) - exactly) < 1.5 * (told[name].mean_error or 0.0)
        # where noise stands beyond the last value the range is wider, and the mean is as sure as its range allows
        assert (told[name].mean_error or 0.0) < 0.02 * float(told[name].high or 0)
    year = told["year"]
    assert 1955 <= float(year.low or 0) <= 1961
    assert 2024 <= float(year.high or 0) <= 2030
    assert (year.distinct or 0) > 40
    assert "2014-12-01" <= str(told["day"].low) <= "2015-02-01"
    median = np.median(pd.to_datetime(frame["day"]).map(pd.Timestamp.toordinal))
    assert abs(pd.Timestamp(str(told["day"].quartiles[1].value)).toordinal() - median) < 40


@pytest.mark.parametrize("form", ["csv", "parquet", "duckdb", "pandas", "polars", "lazy", "arrow"])
def test_every_form_of_a_table_is_described(form: str, tmp_path: Path) -> None:
    frame = table()
    source: Any = tmp_path / f"t.{form}"
    if form == "csv":
        frame.to_csv(source, index=False)
    elif form == "parquet":
        frame.to_parquet(source)
    elif form == "duckdb":
        with duckdb.connect(str(tmp_path / "t.db")) as connection:
            connection.register("frame", frame)
            connection.execute("CREATE TABLE t AS SELECT * REPLACE (CAST(day AS DATE) AS day) FROM frame")
        source = f"duckdb:///{tmp_path}/t.db?table=t"
    else:
        source = {
            "pandas": frame,
            "polars": pl.from_pandas(frame),
            "lazy": pl.from_pandas(frame).lazy(),
            "arrow": pa.Table.from_pandas(frame),
        }[form]
    near(sf.describe(source, BUDGET, ledger=None), frame)


def test_a_table_of_persons_with_several_rows(tmp_path: Path) -> None:
    frame = table()
    frame["who"] = [f"p{i // 2}" for i in range(len(frame))]
    found = sf.describe(frame, BUDGET, ledger=None, person="who", rows_per_person=2)
    near(found, frame.drop(columns="who"))
    assert "who" not in found.columns
    one = sf.describe(frame, BUDGET, ledger=None, person="who", columns=["year", "code"])
    assert one.records == pytest.approx(ROWS / 2, abs=30)


def test_replaced_records_and_other_budgets() -> None:
    frame = table()
    found = sf.describe(frame, sf.gdp(5), ledger=None, neighbours="replace-one", columns=["year", "code"])
    assert found.records == ROWS
    assert len(found.columns["year"].quartiles) == 3
    assert found.columns["code"].labels == ()
    assert "no label is shown: none of delta is set aside" in found.plan.explain()
    for budget in (sf.pure(30), sf.zcdp(10), sf.approx(20, "1e-6")):
        told = sf.describe(frame, budget, ledger=None, columns=["year", "height"]).columns
        assert told["year"].kind == "number"
        assert len(told["year"].quartiles) == 3


def test_a_plan_says_how_well_columns_will_be_known_and_reads_no_row(tmp_path: Path) -> None:
    """Mutants: the number of records counted from the table; a row looked at for types."""
    (tmp_path / "t.csv").write_text("a,b,c\n", encoding="utf-8")
    budget = sf.approx(1, "1e-6", thresholds="5e-7")
    plan = sf.plan_profile(tmp_path / "t.csv", budget)
    assert plan.promise.startswith("of 10,000 records, shares ±")
    assert "quartiles ±" in plan.promise
    assert "labels of" in plan.promise
    (tmp_path / "t.csv").write_text("a,b,c\n" + "1,2,x\n" * 50_000, encoding="utf-8")
    assert sf.plan_profile(tmp_path / "t.csv", budget).fingerprint == plan.fingerprint
    plan.save(tmp_path / "plan")
    assert sf.load(tmp_path / "plan").fingerprint == plan.fingerprint
    assert "3 columns" in repr(plan)
    # a plan is carried out as any other
    found = sf.release(plan, tmp_path / "t.csv", ledger=None)
    assert isinstance(found, Profile)


def test_too_many_columns_are_told_by_their_kinds_alone_and_that_is_said_before(tmp_path: Path) -> None:
    frame = pd.DataFrame({f"c{i}": np.arange(1_000) for i in range(100)})
    plan = sf.plan_profile(frame, sf.approx(1, "1e-6", thresholds="5e-7"), records=1_000)
    assert not plan.whole
    assert "kinds only" in plan.explain()
    assert (plan.rank_error, plan.label_count) == (None, None)
    found = sf.describe(frame, sf.approx(1, "1e-6", thresholds="5e-7"), records=1_000, ledger=None, out=tmp_path / "p")
    assert all(not c.quartiles and c.low is None and c.mean is None for c in found.columns.values())
    kinds = [c.kind for c in found.columns.values()]
    assert kinds.count("number") == 100
    spec = (tmp_path / "p" / "spec.toml").read_text(encoding="utf-8")
    assert "the file refuses to run until then" in spec
    assert spec.count('type = ""') == 100
    few = sf.plan_profile(frame, sf.approx(1, "1e-6", thresholds="5e-7"), columns=["c1", "c2"], records=1_000)
    assert few.whole


def test_what_noise_hides_is_blank() -> None:
    """Mutant: quartiles of noise told where nothing is there."""
    frame = pd.DataFrame({"empty": [None] * 3_000, "rare": [None] * 2_990 + ["1"] * 10, "full": ["5"] * 3_000})
    found = sf.describe(frame, sf.approx(1, "1e-6", thresholds="5e-7"), ledger=None, records=3_000)
    told = found.columns
    assert (told["empty"].kind, told["empty"].quartiles, told["empty"].labels) == ("", (), ())
    assert told["rare"].quartiles == ()
    assert {q.value for q in told["full"].quartiles} == {5.0}
    assert told["full"].distinct == 1
    assert found.domain() is not None
    assert found.domain().names == ("full",)  # type: ignore[union-attr]
    nothing = sf.describe(frame[["empty"]], sf.gdp("0.1"), ledger=None, records=10**6)
    assert nothing.domain() is None
    assert "empty" in nothing.explain()


def test_nothing_is_spent_on_what_cannot_be_described(tmp_path: Path) -> None:
    """Mutant: a source that is refused at its second reading."""
    ledger = sf.Ledger.create(tmp_path / "l.db", total=BUDGET)
    frame = table(50)
    nested = pa.table({"a": pa.array([[1]])})
    reader = pa.Table.from_pandas(frame).to_reader()
    visits = sf.per_person(sf.rows(frame), key="id", columns={"n": "count(counted)"}, counted=sf.rows(frame))
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    refused: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        (sf.Histogram([1, 2]), {}, InvalidInput, "give a table"),
        (reader, {}, InvalidInput, "can be read once"),
        (visits, {}, InvalidInput, "plan with person='id'"),
        (frame, {"pairs": 1}, PlanError, "share of the budget"),
        (frame, {"pairs": True}, PlanError, "share of the budget"),
        (frame, {"pairs": "much"}, PlanError, "share of the budget"),
        (frame, {"pairs": 0.3, "columns": ["year"]}, PlanError, "two columns at least"),
        (frame, {"pairs": 1e-6, "records": 700}, PlanError, "out of reach"),
        (frame, {"date_formats": {"nobody": "%d.%m.%Y"}}, PlanError, "no column that is described"),
        (frame, {"date_formats": {"year": "%d.%m.%Y"}}, PlanError, "whole numbers, by its type"),
        (frame, {"date_formats": {"code": "%d.%m"}}, PlanError, "name %d, %m and %Y"),
        (frame, {"date_formats": "%d.%m.%Y"}, PlanError, "for the name of each column"),
        (nested, {}, PlanError, "no column that could be described"),
        (nested, {"columns": ["a"]}, InvalidInput, "type that is not read"),
        (frame, {"columns": ["nobody"]}, SourceError, "no column called 'nobody'"),
        (frame, {"columns": "year"}, PlanError, "a list of names"),
        (frame, {"person": "nobody"}, SourceError, "no column called 'nobody'"),
        (frame, {"records": 0}, PlanError, "records="),
        (frame, {"records": True}, PlanError, "records="),
        (frame, {"neighbours": "near"}, PlanError, "add-remove"),
        (frame, {"rows_per_person": 2}, PlanError, "person"),
        (tmp_path / "gone.csv", {}, SourceError, "cannot be found"),
        (tmp_path / "bad.parquet", {}, SourceError, "Parquet"),
        (tmp_path / "t.xls", {}, InvalidInput, "xlsx"),
        (pd.DataFrame({"a\nb": [1]}), {}, (InvalidInput, SourceError), "column name"),  # type: ignore[list-item]
        (17, {}, InvalidInput, "not a source"),
    ]
    for source, options, error, match in refused:
        with pytest.raises(error, match=match):
            sf.describe(source, BUDGET, ledger=ledger, out=tmp_path / "p", **options)
        assert not (tmp_path / "p").exists()
    with pytest.raises(PlanError, match="needs a budget"):
        sf.describe(frame, 1, ledger=ledger)  # type: ignore[arg-type]
    with pytest.raises(BudgetExceeded):
        sf.describe(frame, sf.approx(41, "1e-6", thresholds="5e-7"), ledger=ledger, out=tmp_path / "p")
    without = sf.Ledger.create(tmp_path / "m.db", total=sf.approx(50, "1e-6"))
    with pytest.raises(BudgetExceeded, match="none aside when it was made"):
        sf.describe(frame, BUDGET, ledger=without, out=tmp_path / "p")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("x")
    with pytest.raises(InvalidInput, match="not an empty folder"):
        sf.describe(frame, BUDGET, ledger=ledger, out=tmp_path / "full")
    assert (ledger.spent, without.spent) == (0, 0)
    assert not list(tmp_path.glob("p*"))


def test_one_price_is_paid_once_and_read_back_free(tmp_path: Path) -> None:
    frame = table(500)
    ledger = sf.Ledger.create(tmp_path / "l.db", total=BUDGET, table="people")
    found = sf.describe(frame, BUDGET, ledger=ledger, out=tmp_path / "p", table="people")
    (entry, released) = ledger.entries()
    assert (entry.name, released.kind) == ("describe", "released")
    assert entry.event == found.plan.price
    assert sorted(f.name for f in (tmp_path / "p").iterdir()) == [
        *("profile.html", "profile.json", "profile.sfumato", "spec.toml")
    ]
    again = sf.describe(frame, BUDGET, ledger=ledger, out=tmp_path / "p", table="people")
    assert again.result_hash == found.result_hash
    assert len(ledger.entries()) == 2
    loaded = sf.load(tmp_path / "p" / "profile.sfumato")
    assert loaded.facts() == found.facts()
    # what follows from what is stored is written again where it is gone
    (tmp_path / "p" / "spec.toml").unlink()
    sf.describe(frame, BUDGET, ledger=ledger, out=tmp_path / "p", table="people")
    assert (tmp_path / "p" / "spec.toml").exists()
    with pytest.raises(NameTaken):
        sf.describe(frame, BUDGET, ledger=ledger, out=tmp_path / "q", table="people")
    with pytest.raises(LedgerMismatch):
        sf.describe(frame, BUDGET, ledger=ledger, out=tmp_path / "q", name="b", table="others")
    with pytest.raises(NameTaken):
        sf.describe(frame, BUDGET, ledger=ledger, out=tmp_path / "p", columns=["year"], table="people")
    facts = json.loads((tmp_path / "p" / "profile.json").read_text(encoding="utf-8"))
    assert [c["name"] for c in facts["columns"]] == list(frame.columns)
    assert facts["ledger"]["id"] == ledger.ledger_id


def test_a_page_that_fails_hides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = sf.Ledger.create(tmp_path / "l.db", total=BUDGET)

    def fails(_: object) -> str:
        raise RuntimeError("no page")

    monkeypatch.setattr("sfumato.releasing.profile_page", fails)
    with pytest.warns(PageWarning, match="complete in"):
        sf.describe(table(200), BUDGET, ledger=ledger, out=tmp_path / "p")
    assert (tmp_path / "p" / "spec.toml").exists()


# -- killed in between --------------------------------------------------------------------------------------------


KILLED = """
    import os
    import sfumato as sf
    from sfumato.mechanisms import profiles
    kept, left = profiles.{where}, [{after}]
    def killed(*args, **options):
        if not left[0]:
            {before}
            os._exit(9)
        left[0] -= 1
        return kept(*args, **options)
    profiles.{where} = killed
    sf.describe("t.parquet", sf.approx(40, "1e-6", thresholds="5e-7"), ledger="l.db", out="p")
"""


def killed(folder: Path, where: str, after: int, before: str = "pass") -> None:
    script = textwrap.dedent(KILLED.format(where=where, after=after, before=before))
    assert subprocess.run([sys.executable, "-c", script], cwd=folder, check=False).returncode == 9


def prepared(folder: Path) -> tuple[Path, sf.Ledger]:
    table(800).to_parquet(folder / "t.parquet")
    return folder / "t.parquet", sf.Ledger.create(folder / "l.db", total=BUDGET)


@pytest.mark.parametrize(("where", "after", "looks"), [("Curator", 1, 1), ("LabelCurator", 0, 2), ("Curator", 2, 4)])
def test_a_kill_between_looks_is_gone_on_with(where: str, after: int, looks: int, tmp_path: Path) -> None:
    """Mutants: looks taken again; the price debited again; what came before thrown away."""
    source, ledger = prepared(tmp_path)
    killed(tmp_path, where, after)
    before = StepStore.at(tmp_path / "p" / "profile.sfumato.looks")
    assert (len(before.spent), len(before.came)) == (looks, looks)
    (entry,) = ledger.entries()
    kept = (tmp_path / "p" / "profile.sfumato.looks").read_bytes()
    with pytest.raises(NotWritten, match="the same command again goes on"):
        sf.release(
            sf.plan_profile(source, BUDGET), tmp_path / "gone.parquet", ledger=ledger, name="describe",
            out=tmp_path / "p" / "profile.sfumato",
        )  # fmt: skip
    with pytest.raises(InvalidInput, match="another release"):
        sf.describe(source, BUDGET, ledger=ledger, out=tmp_path / "p", name="other")
    found = sf.describe(source, BUDGET, ledger=ledger, out=tmp_path / "p")
    assert ledger.spent == entry.price
    assert [e.kind for e in ledger.entries()] == ["spend", "released"]
    assert not (tmp_path / "p" / "profile.sfumato.looks").exists()
    assert found.columns["year"].kind == "number"
    # a copy of the file pays for no look elsewhere
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "profile.sfumato.looks").write_bytes(kept)
    with pytest.raises(NameTaken):
        sf.describe(source, BUDGET, ledger=ledger, out=tmp_path / "q")


def test_a_look_that_was_taken_and_lost_is_not_taken_again(tmp_path: Path) -> None:
    """Mutant: a look written down after its noise is drawn."""
    source, ledger = prepared(tmp_path)
    killed(tmp_path, "pack_value", 1)
    store = StepStore.at(tmp_path / "p" / "profile.sfumato.looks")
    assert (len(store.spent), len(store.came)) == (2, 1)
    with pytest.raises(NameTaken):
        sf.describe(source, BUDGET, ledger=ledger, out=tmp_path / "p")


def test_a_kill_before_the_debit_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    source, ledger = prepared(tmp_path)
    killed(tmp_path, "Curator", 0)
    assert ledger.spent == 0
    sf.describe(source, BUDGET, ledger=ledger, out=tmp_path / "p")
    fresh = sf.Ledger.create(tmp_path / "m.db", total=BUDGET)
    with pytest.raises(InvalidInput):
        sf.describe(source, BUDGET, ledger=fresh, out=tmp_path / "p")
    assert fresh.spent == 0


# -- gone on with ---------------------------------------------------------------------------------------------------


def test_the_spec_runs_as_it_is(tmp_path: Path) -> None:
    frame = table()
    frame.to_csv(tmp_path / "t.csv", index=False, sep=";", decimal=",")
    source = sf.Source(tmp_path / "t.csv", decimal=",", delimiter=";")
    found = sf.describe(source, BUDGET, ledger=None, out=tmp_path / "p")
    spec = read_spec(tmp_path / "p" / "spec.toml")
    assert spec.domain == found.domain()
    assert spec.budget == BUDGET
    assert "id" not in spec.domain
    text = (tmp_path / "p" / "spec.toml").read_text(encoding="utf-8")
    bare = "\n".join(line.removeprefix("# ") for line in text.splitlines() if re.match(r"# (\[measures|min|max)", line))
    year = tomllib.loads(bare)["measures"]["year"]
    assert year["min"] <= found.columns["year"].quartiles[0].value < year["max"]
    released = sf.release(plan_from_spec(spec), spec.source, ledger=None)  # type: ignore[arg-type]
    assert isinstance(released, sf.Release)
    # cells of about as many records each, but for the outermost
    years = released.table("year").values[:-1]
    assert years.min() > 0.03 * ROWS
    assert released.table("code").values[-1] < 0.02 * ROWS
    person = sf.describe(frame.assign(who=frame["id"]), BUDGET, ledger=None, person="who", out=tmp_path / "w")
    text = (tmp_path / "w" / "spec.toml").read_text(encoding="utf-8")
    assert person.plan.unit.person == "who"
    assert 'person = "who"\nrows_per_person = 1\n' in text
    assert "source" not in text


def test_the_spec_names_the_table_that_was_paid_for(tmp_path: Path) -> None:
    """Mutant: a proposal whose release the ledger refuses, for it names no table."""
    ledger = sf.Ledger.create(tmp_path / "b.db", total=sf.approx(3, "1e-6", thresholds="5e-7"))
    path = tmp_path / "people.csv"
    table().to_csv(path, index=False)
    once = sf.approx(1, "1e-6", thresholds="2e-7")
    sf.describe(path, once, ledger=ledger, table="people", out=tmp_path / "p", columns=["year"])
    spec = read_spec(tmp_path / "p" / "spec.toml")
    assert spec.table == "people"
    sf.release(plan_from_spec(spec), spec.source, ledger=ledger, table=spec.table, name="next")  # type: ignore[arg-type]


def test_a_column_of_several_kinds_says_so(tmp_path: Path) -> None:
    """Mutants: a column of numbers half of which are texts, called numbers of which none is missing; noise called a
    kind; the kind of a column that has one, with its share."""
    values = ["12", "13", "n/a", "2020-01-05"]
    frame = pd.DataFrame({"mixed": np.repeat(values, 2_000), "pure": np.repeat(["1", "2"], 4_000)})
    path = tmp_path / "mixed.csv"
    frame.to_csv(path, index=False)
    found = sf.describe(path, BUDGET, ledger=None, out=tmp_path / "p")
    kinds = dict(zip(found.frame()["column"], found.frame()["kind"], strict=True))
    assert re.fullmatch(r"number (49|50)\.\d %, date 2[45]\.\d %, text 2[45]\.\d %", kinds["mixed"])
    assert kinds["pure"] == "number"
    spec = (tmp_path / "p" / "spec.toml").read_text(encoding="utf-8")
    assert "mixed is declared as numbers; dates, 25 % of all records, and texts, 25 % of all records, count as" in spec
    assert "of several kinds: pure" not in spec


def test_strangers_text_is_inert(tmp_path: Path) -> None:
    """Names of columns and labels that were shown, in the page, the spec and the terminal."""
    odd = '<img src=x>"\\'
    frame = pd.DataFrame({odd: ["=1+1"] * 500 + ["</script>"] * 500 + ['"\\n'] * 500, "b": 1})
    found = sf.describe(frame, BUDGET, ledger=None, out=tmp_path / "p")
    assert {t for t, _ in found.columns[odd].labels} == {"=1+1", "</script>", '"\\n'}
    page = (tmp_path / "p" / "profile.html").read_text(encoding="utf-8")
    assert "<img src=x" not in page
    assert page.count("</script>") == page.count("<script")
    spec = tomllib.loads((tmp_path / "p" / "spec.toml").read_text(encoding="utf-8"))
    assert set(spec["schema"][odd]["values"]) == {"=1+1", "</script>", '"\\n'}
    assert read_spec(tmp_path / "p" / "spec.toml").domain == found.domain()
    assert "'=1+1" in found.explain()


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table().to_csv("people.csv", index=False)
    run = CliRunner()

    def said(*words: str, code: int = 0) -> str:
        found = run.invoke(app, list(words))
        assert found.exit_code == code, found.output
        return found.output

    said("ledger", "create", "l.db", "--epsilon", "60", "--delta", "1e-6", "--thresholds", "5e-7")
    before = said("describe", "people.csv", "--ledger", "l.db", "--epsilon", "20", "--plan")
    assert "of 10,000 records" in before
    assert "Nothing was read but names and types" in before
    assert sf.Ledger("l.db").spent == 0
    told = json.loads(said("describe", "people.csv", "--rho", "1", "--plan", "--json"))
    assert told["type"] == "description"
    options = ("--ledger", "l.db", "--epsilon", "20", "-o", "profile")
    text = said("describe", "people.csv", *options)
    assert "go on with: sfumato plan" in text
    assert sf.Ledger("l.db").delta_remaining == sf.approx(1, "1e-6", thresholds="2.5e-7").thresholds
    assert "it was paid for before" in said("describe", "people.csv", *options)
    assert "Description 'describe'" in said("show", "profile/profile.sfumato")
    assert "queries over" in said("plan", "profile/spec.toml")
    said("release", "profile/spec.toml", "--ledger", "l.db", "--name", "first", "-o", "release")
    said("publish", "release", "-o", "site")
    for words, why in (
        (("describe", "people.csv", "--ledger", "l.db"), "say what may be spent"),
        (("describe", "people.csv", "--epsilon", "1"), "give --ledger and -o, or --plan"),
        (("describe", "people.csv", "--epsilon", "1", "--plan", "--column", "nobody"), "no column called"),
    ):
        found = run.invoke(app, list(words))
        assert found.exit_code != 0
        assert why in str(found.exception)


# -- more columns, pairs, and tables made of several ------------------------------------------------------------------


def test_booleans_are_told() -> None:
    """Mutant: they are looked at and nothing is said of them."""
    found = sf.describe(pa.table({"alive": [True] * 3_000 + [False] * 1_000 + [None] * 500}), BUDGET, ledger=None)
    told = found.columns["alive"]
    assert told.kind == "boolean"
    assert [t for t, _ in told.labels] == ["true", "false"]
    assert [n for _, n in told.labels] == pytest.approx([3_000, 1_000], abs=60)
    assert isinstance(found.domain()["alive"], sf.Booleans)  # type: ignore[index]


def test_days_in_a_declared_format(tmp_path: Path) -> None:
    """Mutants: the format asked of the first look alone, or left out of the spec."""
    frame = table()
    frame["day"] = pd.to_datetime(frame["day"]).dt.strftime("%d.%m.%Y")
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert sf.describe(frame, BUDGET, ledger=None, columns=["day"]).columns["day"].kind == "text"
    formats = {"day": "%d.%m.%Y"}
    found = sf.describe(tmp_path / "t.csv", BUDGET, ledger=None, out=tmp_path / "p", date_formats=formats)
    told = found.columns["day"]
    days = pd.to_datetime(frame["day"], format="%d.%m.%Y")
    assert told.kind == "date"
    for q in told.quartiles:
        assert abs((days <= q.value).mean() - q.probability) < 0.03
    assert 'format = "%d.%m.%Y"' in (tmp_path / "p" / "spec.toml").read_text(encoding="utf-8")
    spec = read_spec(tmp_path / "p" / "spec.toml")
    released = sf.release(plan_from_spec(spec), spec.source, ledger=None)  # type: ignore[arg-type]
    assert released.table("day").values[-1] < 0.02 * ROWS
    assert "date (%d.%m.%Y)" in sf.plan_profile(tmp_path / "t.csv", BUDGET, date_formats=formats).explain()


def paired(rows: int = ROWS) -> pd.DataFrame:
    """The year tells the age, the code mostly the ward; all else is by itself."""
    frame, random = table(rows), np.random.default_rng(3)
    kept = random.random(rows) < 0.8
    ward = np.where(kept, frame["code"].map({"A1": "east", "B2": "west", "C3": "north", "D4": "east"}), "west")
    return frame[["year", "code", "money"]].assign(age=2025 - frame["year"], ward=ward)


def test_pairs_that_depend_most(tmp_path: Path) -> None:
    """Mutant: what noise adds is left in, so that columns of noise depend."""
    frame = paired()
    plan = sf.plan_profile(frame, BUDGET, pairs="0.3")
    assert plan.pairs == Fraction(3, 10)
    assert "pairs of columns whose V is" in plan.promise
    assert "fourth" in plan.explain()
    found = sf.describe(frame, BUDGET, ledger=None, pairs=0.3, out=tmp_path / "p")
    assert found.plan.fingerprint == plan.fingerprint
    first, second, *rest = found.pairs
    assert ({first.first, first.second}, {second.first, second.second}) == ({"year", "age"}, {"code", "ward"})
    assert first.value > 0.9
    assert 0.5 < second.low <= second.value <= second.high < 0.95
    assert all(p.value < 0.12 for p in rest)
    assert len(found.pairs) == 10
    assert "Pairs of columns that depend most" in found.explain()
    assert "Cramér" in (tmp_path / "p" / "profile.html").read_text(encoding="utf-8")
    facts = json.loads((tmp_path / "p" / "profile.json").read_text(encoding="utf-8"))
    assert sorted(facts["pairs"][0]["columns"]) == ["age", "year"]
    # columns are told as without, but for the noise
    near(sf.describe(table(), BUDGET, ledger=None, pairs=0.1), table())


def test_pairs_of_many_columns_are_refused_before_the_price(tmp_path: Path) -> None:
    ledger = sf.Ledger.create(tmp_path / "l.db", total=BUDGET)
    frame = pd.DataFrame({f"c{i}": np.arange(1_000) for i in range(90)})
    options: dict[str, Any] = {"records": 10_000, "pairs": 0.3}
    with pytest.raises(
        PlanError, match=r"out of reach: of 90 columns of 10,000 records only those whose V is 0\..* Of up"
    ):
        sf.describe(frame, sf.approx(1, "1e-6", thresholds="5e-7"), ledger=ledger, out=tmp_path / "p", **options)
    assert ledger.spent == 0
    assert sf.plan_profile(frame, sf.approx(1, "1e-6", thresholds="5e-7"), columns=["c1", "c2", "c3"], **options).pairs


def test_a_kill_before_the_pairs_is_gone_on_with(tmp_path: Path) -> None:
    """Mutant: the fourth look taken again, or not at all."""
    source, ledger = prepared(tmp_path)
    script = textwrap.dedent(KILLED.format(where="Curator", after=3, before="pass"))
    script = script.replace('out="p"', 'out="p", pairs=0.3')
    assert subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=False).returncode == 9
    assert len(StepStore.at(tmp_path / "p" / "profile.sfumato.looks").came) == 5  # of two columns labels are found
    found = sf.describe(source, BUDGET, ledger=ledger, out=tmp_path / "p", pairs=0.3)
    assert found.pairs
    assert [e.kind for e in ledger.entries()] == ["spend", "released"]


def test_tables_made_of_several_are_described() -> None:
    """Mutant: described as if each row were a person."""
    random = np.random.default_rng(5)
    people = pd.DataFrame({"id": np.arange(2_000), "born": random.integers(1930, 2010, 2_000)})
    stays = pd.DataFrame({"id": random.integers(0, 2_000, 5_000), "ward": random.choice(["a", "b"], 5_000)})
    stays["cost"] = np.round(random.normal(500, 100, 5_000), 2)
    rows = sf.rows(stays, numbers={"cost": (0, 2_000, "0.01")})
    said = {"stays": "count(stays)", "cost": "sum(stays.cost)", "in_a": "any(stays.ward = 'a')"}
    made = sf.per_person(people, key="id", columns=said, stays=rows)
    with pytest.raises(InvalidInput, match="plan with person='id'"):
        sf.plan_profile(made, BUDGET)
    found = sf.describe(made, BUDGET, ledger=None, person="id")
    assert {n: c.kind for n, c in found.columns.items()} == {
        "born": "number",
        "stays": "number",
        "cost": "number",
        "in_a": "boolean",
    }
    assert found.columns["born"].quartiles[1].value == pytest.approx(people["born"].median(), abs=3)
    assert dict(found.provenance.features) == said
    joined = sf.joined(rows, people, key="id", columns=["born"])
    with pytest.raises(InvalidInput, match="rows_per_person="):
        sf.plan_profile(joined, BUDGET)
    found = sf.describe(joined, BUDGET, ledger=None, person="id", rows_per_person=5)
    assert {t for t, _ in found.columns["ward"].labels} == {"a", "b"}
    assert found.columns["cost"].quartiles[1].value == pytest.approx(500, abs=20)


def test_a_folder_is_read_with_what_it_says(tmp_path: Path) -> None:
    """Mutant: profile.json believed."""
    found = sf.describe(table(500), BUDGET, ledger=None, out=tmp_path / "p")
    assert sf.load(tmp_path / "p").result_hash == found.result_hash
    said = json.loads((tmp_path / "p" / "profile.json").read_text(encoding="utf-8"))
    for key, value in (("records", 7.5), ("privacy", {}), ("columns", []), ("more", 1)):
        (tmp_path / "p" / "profile.json").write_text(json.dumps(said | {key: value}), encoding="utf-8")
        with pytest.raises(InvalidInput, match=f"profile.json of .* says something else of {key}"):
            sf.load(tmp_path / "p")
    (tmp_path / "p" / "profile.json").write_text("[]", encoding="utf-8")
    with pytest.raises(InvalidInput, match="says nothing"):
        sf.load(tmp_path / "p")
