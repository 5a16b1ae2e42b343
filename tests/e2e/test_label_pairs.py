"""Pairs of labels that nobody listed: texts of several columns read together, found and counted as one label is."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import sfumato as sf
from sfumato.check_release import Check
from sfumato.cli import app
from sfumato.curator.labels import open_labels
from sfumato.curator.rows.sources import open_source
from sfumato.domain.mock import mock_columns
from sfumato.errors import DomainError, PlanError, SourceError, SpecError
from sfumato.mechanisms.labels import plan_of_found, select_labels
from sfumato.privacy.accounting import ApproxGaussianEvent
from sfumato.privacy.labels import LabelLook
from sfumato.privacy.unit import PrivacyUnit
from sfumato.workloads.schema import spec_text
from support.audits import bounds

WIDE = sf.approx(20, "1e-6", thresholds="5e-7")
"""With so much, labels of a dozen records are surely shown, and those of one surely not."""


def domain(**more: Any) -> sf.Domain:
    given = {"discover": 0.3, "most": 50, "missing": "other", "columns": ["dx", "drug"]} | more
    return sf.Domain({"both": sf.Categories(**given), "age": sf.Integers(0, 4, outside="other", missing="other")})


def planned(**more: Any) -> Any:
    return sf.plan(sf.marginals(domain(), upto=2), WIDE, neighbours="add-remove", **more)


ROWS = [("E11", "insulin", 300), ("E11", "metformin", 200), ("I10", None, 50), ("I10", "a|b", 60)]
ROWS += [("1.0", "x", 100), ("1", "x", 50), ("q", "rare", 1), ("a |", "b", 40), ("a", "| b", 40)]


def table(rows: list[tuple[Any, Any, int]] = ROWS) -> pd.DataFrame:
    given = [(one, other) for one, other, n in rows for _ in range(n)]
    frame = pd.DataFrame(given, columns=["dx", "drug"], dtype=object)
    return frame.assign(age=np.arange(len(given)) % 5, who=np.arange(len(given)) // 3)


def test_pairs_are_found_and_counted(tmp_path: Path) -> None:
    """Mutants: a row without a product counted as a pair; "1.0" and 1 told apart; two pairs with one text."""
    plan = planned()
    assert [(k.attribute, k.columns) for k in plan.looks] == [("both", ("dx", "drug"))]
    ledger = sf.Ledger.create(tmp_path / "l.db", total=WIDE)
    release = sf.release(plan, table(), ledger=ledger, name="a", out=tmp_path / "a")
    found = release.table("both")
    assert found.labels == (("1 | x", "E11 | insulin", "E11 | metformin", "(other)"),)
    assert np.abs(found.values - [150, 300, 200, 191]).max() < 6 * found.standard_errors.max()
    assert abs(release.ask("both == 'E11 | insulin'").value - 300) < 6 * found.standard_errors.max()
    assert release.top("both", 1)["both"][0] == "E11 | insulin"
    assert sf.load(tmp_path / "a").plan.workload.domain == release.plan.workload.domain
    seen = Check(tmp_path / "a", tmp_path / "l.db", None, None)
    assert (seen.verdict, seen.wrong, seen.unknown) == ("accepted", [], [])


def test_pairs_are_counted_alike_whatever_holds_the_table(tmp_path: Path) -> None:
    """Numbers, days and texts beside each other, from a file, a frame, arrow and a database."""
    days = np.array(["2024-01-02", "2024-03-04"], dtype="datetime64[D]")
    frame = pd.DataFrame({"dx": np.repeat([1.0, 2.5, np.nan], 40), "drug": np.tile(days.astype(str), 60), "age": 1})
    frame.to_csv(tmp_path / "t.csv", index=False)
    arrow = pa.table({"dx": pa.array(frame["dx"], from_pandas=True), "drug": np.tile(days, 60), "age": [1] * 120})
    with duckdb.connect(str(tmp_path / "t.db")) as base:
        base.execute("CREATE TABLE people AS SELECT * FROM arrow")
    shown = ["1 | 2024-01-02", "1 | 2024-03-04", "2.5 | 2024-01-02"]
    grid = plan_of_found(planned(), [shown]).workload.domain
    for source in (tmp_path / "t.csv", frame, arrow, f"duckdb:///{tmp_path / 't.db'}?table=people"):
        counts = open_source(source, grid).count([("both",)])[("both",)]
        assert counts.tolist() == [20, 20, 20, 60]


def test_of_persons_every_pair_counts_once_and_at_most_so_many() -> None:
    """The lines of a person hang on that person's rows alone. Mutants: pairs that are told apart by one column; k not
    enforced over pairs."""
    unit = PrivacyUnit("add-remove", "who", 3)
    law = select_labels(unit, sf.gdp(1).mu_squared, sf.approx(1, "1e-6").delta)
    look = LabelLook("both", False, 100, law, ApproxGaussianEvent(1, "1e-6"), 0, ("dx", "drug"))
    rows = [("p", "A", f"x{i}") for i in range(4)] + [("p", f"B{i}", "y") for i in range(4)]
    rows += [("q", "A", "x1")] * 3 + [("q", "B1", "y"), ("q", "A", None), (None, "A", "x1")]

    def lines(rows: list[tuple[Any, Any, Any]]) -> list[tuple[str, int]]:
        found = open_labels(pd.DataFrame(rows, columns=["who", "dx", "drug"], dtype=object), look, unit)
        place, had, _ = found.lines(3)
        return sorted((str(found.labels[i]), int(n)) for i, n in zip(place, had, strict=True))

    of_p, of_q = lines(rows[:8]), lines(rows[8:])
    assert [n for _, n in of_p] == [3, 3, 3]
    assert of_q == [("A | x1", 2), ("B1 | y", 2)]
    assert lines(rows) == sorted(of_p + of_q)


def test_pairs_of_one_person_alone_are_shown_no_oftener_than_delta_allows() -> None:
    """By events, at delta .05: each text is common, and the pairs of them are one person's alone.

    Mutant: a pair shown because its two labels are.
    """
    unit, delta = PrivacyUnit("add-remove", "who", 6), sf.approx(1, "0.05").delta
    law = select_labels(unit, sf.gdp("0.9").mu_squared, delta)
    look = LabelLook("both", False, 100, law, ApproxGaussianEvent(1, delta), 0, ("dx", "drug"))
    often = 3 * law.threshold // law.weight
    rows = [(f"p{i}", f"d{i % 6}", f"m{i % 6}") for i in range(6 * often)] + [("a", f"d{i}", "m9") for i in range(6)]
    found = open_labels(pd.DataFrame(rows, columns=["who", "dx", "drug"]), look, unit)
    sums = law.sums(len(found.labels), *found.lines(law.per_person))
    alone = np.flatnonzero([str(label).endswith("m9") for label in found.labels])
    assert set(sums[alone].tolist()) == {law.added(6)}
    draws = 100_000
    hits = len({*(law.shown(np.tile(sums[alone], draws), 6 * draws) // 6).tolist()})
    low, high = bounds(hits, draws)
    assert low <= float(delta)
    exact = 1 - (1 - 0.5 * math.erfc((law.threshold - law.added(6) - 0.5) / float(law.noise.sigma) / 2**0.5)) ** 6
    assert low <= exact <= high


def test_mock_rows_and_a_stream_of_rows_hold_what_a_pair_is_read_from() -> None:
    drawn = mock_columns(domain(), 50)
    assert [*drawn] == ["dx", "drug", "age"]
    assert all(text.startswith("label ") for text in drawn["dx"] + drawn["drug"])
    listed = domain(discover=None, values=["E11 | insulin", "E12 | none"], outside="other")
    rows = mock_columns(listed, 50)
    assert {*zip(rows["dx"], rows["drug"], strict=True)} == {("E11", "insulin"), ("E12", "none")}
    counts = open_source(pd.DataFrame(rows), listed).count([("both",)])[("both",)]
    assert counts[:2].sum() == 50


@pytest.mark.parametrize(
    "wrong",
    [
        {"columns": ["dx"]},
        {"columns": ["dx", "dx"]},
        {"columns": list("abcde")},
        {"columns": "dx, drug"},
        {"columns": ["dx", ""]},
        {"prefixes": {"chapter": 1}, "trim": True},
        {"prefixes": {"group": 3, "chapter": 1}},
        {"discover": None, "values": ["E11"], "outside": "other"},
        {"discover": None, "values": ["E11 | a | b"], "outside": "other"},
    ],
)
def test_columns_that_are_no_pair_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DomainError):
        domain(**wrong)


CODED = [("E11", "insulin", 300), ("E11", "metformin", 200), ("E11", "rare", 3), ("E12", "x", 4), ("E9", "x", 5)]
CODED += [("I10", "a", 250), ("E1", "insulin", 90), ("E 1", "b", 120), ("F1", "c", 150), ("I10", None, 40)]
CODED += [("G", "z", 130), ("J", "(other)", 2), ("E11", "a|b", 30), ("E11 ", "y", 60)]


def nested(**more: Any) -> sf.Domain:
    return domain(prefixes={"chapter": 1, "group": 3}, **more)


def test_pairs_are_found_under_the_first_letters_of_the_first_text(tmp_path: Path) -> None:
    """What is rare counts with its group, whatever holds the table, and a stranger checks it.

    Mutants: letters of both texts together, so that G and its product are in a group "G |"; rare pairs in (other); a
    beginning that ends with a blank.
    """
    plan = sf.plan(sf.marginals(nested(), upto=2), WIDE, neighbours="add-remove")
    assert [(k.letters, k.columns) for k in plan.looks] == [(n, ("dx", "drug")) for n in (1, 3, 0)]
    assert sum(k.price.mu_squared for k in plan.looks) == WIDE.mu_squared * Fraction(3, 10)
    assert "both (dx and drug together), first 3 letters of dx" in plan.explain()
    ledger = sf.Ledger.create(tmp_path / "l.db", total=WIDE)
    release = sf.release(plan, table(CODED), ledger=ledger, name="a", out=tmp_path / "a")
    assert ledger.spent == WIDE.mu_squared
    true = {"E11 | insulin": 300, "E11 | metformin": 200, "E11 (other)": 3, "E11  | y": 60, "I10 | a": 250}
    true |= {
        "E 1 | b": 120,
        "E 1 (other)": 0,
        "I10 (other)": 0,
        "E (other)": 99,
        "I (other)": 0,
        "F (other)": 150,
        "G (other)": 130,
    }
    true |= {"(other)": 72}
    shown = release.table("both")
    found = dict(zip(shown.labels[0], shown.values.tolist(), strict=True))
    assert {*found} == {*true}
    assert all(abs(found[name] - n) < 6 * shown.standard_errors.max() for name, n in true.items())
    assert {*release.table("chapter").labels[0]} == {*"EIFG", "(other)"}
    assert abs(release.ask("group == 'E11'").value - 563) < 20 * shown.standard_errors.max()
    assert sf.load(tmp_path / "a").plan.workload.domain == release.plan.workload.domain
    seen = Check(tmp_path / "a", tmp_path / "l.db", None, None)
    assert (seen.verdict, seen.wrong, seen.unknown) == ("accepted", [], [])


def test_groups_of_pairs_are_counted_alike_whatever_holds_the_table(tmp_path: Path) -> None:
    frame = table(CODED)
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    plan = sf.plan(sf.marginals(nested(), upto=2), WIDE, neighbours="add-remove")
    grid = plan_of_found(plan, [["E"], ["E11"], ["E11 | insulin"]]).workload.domain
    for source in (tmp_path / "t.csv", tmp_path / "t.parquet", frame, pa.Table.from_pandas(frame)):
        counts = open_source(source, grid).count([("both",)])[("both",)]
        assert dict(zip(grid["both"].labels, counts.tolist(), strict=True)) == {
            "E11 | insulin": 300, "E11 (other)": 263, "E (other)": 219, "(other)": 602
        }  # fmt: skip


def test_beginnings_of_pairs_hang_on_a_persons_rows_and_on_what_was_shown() -> None:
    """Each beginning once a person, whoever else is there. Mutants: one for every pair under it; letters of pairs."""
    unit = PrivacyUnit("add-remove", "who", 3)
    law = select_labels(unit, sf.gdp(1).mu_squared, sf.approx(1, "1e-6").delta)
    look = LabelLook("both", False, 100, law, ApproxGaussianEvent(1, "1e-6"), 3, ("dx", "drug"))
    random = np.random.default_rng(4)
    codes = [random.choice(["A", "B"]) + "".join(random.choice(list("AB "), random.integers(0, 4))) for _ in range(300)]
    rows = list(
        zip((f"p{i}" for i in random.integers(0, 40, 300)), codes, random.choice(list("xyz"), 300), strict=True)
    )

    def lines(some: list[Any], letters: int, length: int, above: list[str], most: int) -> list[tuple[str, int]]:
        opened = open_labels(pd.DataFrame(some, columns=["who", "dx", "drug"], dtype=object), look, unit)
        cut = opened.cut(letters, length, above, together=True)
        place, had, persons = cut.lines(most)
        assert set(persons.tolist()) <= {1}
        return sorted((str(cut.labels[i]), int(n)) for i, n in zip(place, had, strict=True))

    for letters, length, above in ((2, 0, []), (3, 1, ["A"]), (3, 2, ["AA", "BA"]), (0, 2, ["AA", "BA"])):
        alone: list[tuple[str, int]] = []
        for who in {row[0] for row in rows}:
            own = [row for row in rows if row[0] == who]
            kept = {(c, d) for _, c, d in own if len(c) >= letters and (not length or c[:length] in above)}
            items = {c[:letters] if letters else f"{c} | {d}" for c, d in kept}
            wanted = sorted(x for x in items if not x.endswith(" "))
            assert lines(own, letters, length, above, 100) == [(x, len(wanted)) for x in wanted]
            alone += lines(own, letters, length, above, 2)
        assert len(alone) > 20
        assert lines(rows, letters, length, above, 2) == sorted(alone)


def test_beginnings_of_pairs_in_a_spec_and_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table(CODED).to_csv("visits.csv", index=False)
    spec = SPEC.format(columns='["dx", "drug"]').replace(
        "most = 50", "most = 50\nprefixes = { chapter = 1, group = 3 }"
    )
    Path("v.toml").write_text(spec)
    read = sf.read_spec("v.toml")
    assert read.domain["both"] == nested()["both"]
    Path("w.toml").write_text(spec_text(read.domain) + SPEC[SPEC.index("[privacy]") :])
    assert sf.read_spec("w.toml").domain["both"] == read.domain["both"]
    given = ["--epsilon", "30", "--delta", "1e-6", "--thresholds", "5e-7"]
    assert CliRunner().invoke(app, ["ledger", "create", "l.db", *given]).exit_code == 0
    made = CliRunner().invoke(app, ["release", "v.toml", "--ledger", "l.db", "--name", "a", "-o", "a"])
    assert made.exit_code == 0, made.output
    told = Path("a/tables/both.csv").read_text()
    assert "E11 | insulin" in told
    assert "E11 (other)" in told
    before = sf.Ledger("l.db").spent
    Path("v.toml").write_text(spec.replace("group = 3", "group = 1"))
    made = CliRunner().invoke(app, ["release", "v.toml", "--ledger", "l.db", "--name", "b", "-o", "b"])
    assert made.exit_code != 0
    assert isinstance(made.exception, SpecError)
    assert "schema.both: prefixes= are longer and longer" in str(made.exception)
    assert sf.Ledger("l.db").spent == before


def test_a_hierarchy_of_several_columns_is_declared(tmp_path: Path) -> None:
    """Mutants: codes that are no pair; a specification that forgets the columns."""
    given = {"outside": "other", "missing": "other", "columns": ["dx", "drug"]}
    rows = [("E", "E11 | insulin"), ("E", "E11 | metformin"), ("I", "I10 | a")]
    place = sf.Hierarchy(rows, ["chapter", "both"], **given)
    counts = open_source(table(CODED), sf.Domain({"both": place})).count([("both",)])[("both",)]
    assert counts.tolist() == [300, 200, 250, 634]
    rest = SPEC[SPEC.index("[privacy]") :]
    Path(tmp_path / "h.toml").write_text(spec_text(sf.Domain({"both": place, "age": domain()["age"]})) + rest)
    assert sf.read_spec(tmp_path / "h.toml").domain["both"] == place
    for wrong in ({"columns": ["dx"]}, {"columns": "dx"}, {"columns": ["dx", "drug", "x"]}):
        with pytest.raises(DomainError):
            sf.Hierarchy(rows, ["chapter", "both"], **given | wrong)


def test_a_column_that_is_not_there_is_named_before_anything_is_spent(tmp_path: Path) -> None:
    ledger = sf.Ledger.create(tmp_path / "l.db", total=WIDE)
    with pytest.raises(SourceError, match="'drug'"):
        sf.release(planned(), table().drop(columns="drug"), ledger=ledger, name="a")
    assert ledger.spent == 0
    other = tuple(replace(k, columns=("drug", "dx")) for k in planned().looks)
    with pytest.raises(PlanError, match="other labels"):
        replace(planned(), looks=other).check()


SPEC = """
[data]
source = "visits.csv"
[schema_defaults]
outside = "clamp"
missing = "other"
[schema.both]
type = "category"
values = "discover"
discover = 0.3
most = 50
columns = {columns}
[schema.age]
type = "integer"
min = 0
max = 4
[privacy]
epsilon = 20
delta = "1e-6"
thresholds = "5e-7"
neighbours = "add-remove"
person = "who"
rows_per_person = 3
[[queries]]
upto = 2
"""


def test_a_spec_and_the_command_line_find_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table().to_csv("visits.csv", index=False)
    Path("v.toml").write_text(SPEC.format(columns='["dx", "drug"]'))
    read = sf.read_spec("v.toml")
    assert read.domain["both"] == domain()["both"]
    Path("w.toml").write_text(spec_text(read.domain) + SPEC[SPEC.index("[privacy]") :])
    assert sf.read_spec("w.toml").domain["both"] == read.domain["both"]
    Path("x.toml").write_text(SPEC.format(columns="3"))
    with pytest.raises(SpecError, match="line"):
        sf.read_spec("x.toml")

    def run(*words: str) -> str:
        found = CliRunner().invoke(app, words)
        assert found.exit_code == 0, found.output
        return found.output

    run("ledger", "create", "l.db", "--epsilon", "30", "--delta", "1e-6", "--thresholds", "5e-7")
    assert "dx and drug" in run("plan", "v.toml")
    run("release", "v.toml", "--ledger", "l.db", "--name", "a", "-o", "a")
    assert "accepted" in run("check-release", "a", "--ledger", "l.db")
    assert "E11 | insulin" in Path("a/tables/both.csv").read_text()
