"""Releases of several looks: what they answer and say, how they are stored, and what they are not taken for."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.curator import Curator
from sfumato.measurements import Measurement, Selection
from sfumato.plans.iterative import IterativePlan
from sfumato.present import write_report
from sfumato.privacy.ledger import Ledger
from sfumato.releases import ModelRelease
from support.wall import Untouchable
from support.words import plan_with

DOMAIN = sf.Domain({"a": sf.Categories(["=x", "y"]), "b": sf.Integers(0, 2), "c": sf.Booleans(), "d": sf.Booleans()})
COUNTS = np.arange(24).reshape(2, 3, 2, 2)
TABLE = sf.Histogram(COUNTS.reshape(-1))
WORK = sf.stack(pairs=sf.marginals(DOMAIN, sets=[("a", "b"), ("b", "c")]), low=sf.prefix(DOMAIN, "b"))
RHO = sf.zcdp(9)


@pytest.fixture
def ledger(tmp_path: Path) -> sf.Ledger:
    return sf.Ledger.create(tmp_path / "l.db", total=RHO)


ITERATIVE = ("mwem", "boosting")


def planned(name: str = "mwem", **options: Any) -> IterativePlan:
    given: dict[str, Any] = {"records": 100, "rounds": 2} | options
    return plan_with(WORK, sf.zcdp(1), neighbours="add-remove", mechanism=name, **given)


@pytest.fixture(scope="module")
def found() -> ModelRelease:
    return sf.release(planned(), TABLE, ledger=None)


def test_it_says_how_near_its_model_is_to_the_optimum(found: ModelRelease, tmp_path: Path) -> None:
    """Mutants: a gap that is not handed on; one said of models that are no optimum."""
    assert found.gap == 1e-9
    assert "standard deviations of the noise of the optimum, proved" in found.explain()
    assert found.facts()["model_gap"] == found.gap
    assert found["low"].gap == found.gap
    found.save(tmp_path / "r")
    assert sf.load(tmp_path / "r").gap == found.gap  # type: ignore[union-attr]
    other = sf.release(planned("boosting"), TABLE, ledger=None)
    assert other.gap is None
    assert "optimum" not in other.explain()
    assert "model_gap" not in other.facts()


# ---- answers ---------------------------------------------------------------------------------------------


def test_every_way_to_ask_gives_the_same_answers(found: ModelRelease) -> None:
    pairs = found["pairs"]
    assert found.answers.tolist() == [*pairs.answers.tolist(), *found["low"].answers.tolist()]
    assert list(found.parts) == ["pairs", "low"]
    assert found.table("a", "b").values.reshape(-1) == pytest.approx(pairs.answers[:6])
    assert found.table("b", "a").values == pytest.approx(pairs.answers[:6].reshape(2, 3).T)
    assert [t.attributes for t in found.tables()] == [("a", "b"), ("b", "c")]
    assert found.ask("b <= 1").value == pytest.approx(found["low"].answers[1])
    assert found.ask(WORK)["answer"] == found.answers.tolist()
    assert found.frame()["label"] == found.labels() == WORK.labels()
    assert found.ask("a == 'y' and c == 'true'").value > 0  # no query asked for it, but the model holds both


def test_errors_are_not_made_up(found: ModelRelease) -> None:
    assert found.standard_errors() is None
    answer, table = found.ask("b <= 1"), found.table("b")
    assert (answer.standard_error, answer.low, answer.high) == (None, 0.0, float("inf"))
    assert table.standard_errors is None
    assert "no standard errors" in found.explain()
    assert found.facts()["error"]["standard_errors"] is None
    known = sf.release(
        sf.plan(WORK, sf.zcdp(1), neighbours="replace-one", mechanism="mwem", records=100), TABLE, ledger=None
    )
    assert known.ask("b <= 1").high == COUNTS.sum()


def test_what_the_model_does_not_hold_is_refused(found: ModelRelease) -> None:
    for ask in (lambda: found.ask("d == 'true'"), lambda: found.table("a", "d"), lambda: found["high"]):
        with pytest.raises(sf.NotAnswerable):
            ask()


@pytest.mark.parametrize("name", ITERATIVE)
def test_synthetic_records_have_about_the_answers(name: str) -> None:
    release = sf.release(planned(name), TABLE, ledger=None)
    total = round(float(release.model.table(())))
    drawn = release["low"].synthetic()
    assert (len(drawn), drawn.attributes, drawn.left_out) == (total, ("a", "b", "c"), ("d",))
    assert drawn.rmse < 0.2 * total
    low = np.cumsum(np.bincount(drawn.codes[:, 1], minlength=3))
    assert np.abs(low - release["low"].answers).max() < 0.2 * total
    assert len(release.synthetic(50)) == 50
    assert (release.synthetic(50).codes == release.synthetic(50).codes).all()


# ---- storage ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ITERATIVE)
def test_a_stored_release_is_read_back_whole_free_and_without_the_table(
    name: str, ledger: sf.Ledger, tmp_path: Path
) -> None:
    """Mutants: new noise at the second call; a second debit; the looks not stored."""
    plan = planned(name)
    first = sf.release(plan, TABLE, ledger=ledger, name="n", out=tmp_path / "r", snapshot="s")
    lines = ledger.entries()
    assert [e.kind for e in lines] == ["spend", "released"]
    again = sf.release(plan, Untouchable(), ledger=tmp_path / "l.db", name="n", out=tmp_path / "r")
    loaded = sf.load(tmp_path / "r")
    for other in (again, loaded):
        assert isinstance(other, ModelRelease)
        assert other.answers.tolist() == first.answers.tolist()
        assert other.provenance == first.provenance
        assert other.plan.fingerprint == plan.fingerprint
        assert [m.chosen for m in other.measurement if isinstance(m, Selection)] == [
            m.chosen for m in first.measurement if isinstance(m, Selection)
        ]
        assert sum(isinstance(m, Measurement) for m in other.measurement) == 3
    assert ledger.entries() == lines
    changed = planned(name, rounds=1)
    for other_plan, out in ((changed, tmp_path / "r"), (plan, None), (plan, tmp_path / "elsewhere")):
        with pytest.raises(sf.errors.NameTaken):
            sf.release(other_plan, Untouchable(), ledger=ledger, name="n", out=out)
    with pytest.raises(sf.errors.NameTaken, match="snapshot 's'"):
        sf.release(plan, Untouchable(), ledger=ledger, name="n", out=tmp_path / "r", snapshot="t")


def test_its_files_are_those_of_any_release(found: ModelRelease, tmp_path: Path) -> None:
    found["low"].save(tmp_path / "r")
    names = {f.relative_to(tmp_path / "r").as_posix() for f in (tmp_path / "r").rglob("*") if f.is_file()}
    assert names == {
        "release.json",
        "release.sfumato",
        "answers.parquet",
        "measurements.npz",
        "tables/a.b.csv",
        "tables/b.c.csv",
    }
    facts = json.loads((tmp_path / "r" / "release.json").read_text())
    assert facts["mechanism"]["name"] == "mwem"
    assert facts["mechanism"]["slack"] == "0"
    assert [look["count"] for look in facts["mechanism"]["looks"]] == [2, 3]
    assert "no standard errors" in facts["post_processing"]
    with (tmp_path / "r" / "tables" / "a.b.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert list(rows[0]) == ["a", "b", "answer"]
    assert rows[0]["a"] == "'=x"
    assert [float(r["answer"]) for r in rows] == pytest.approx(found["pairs"].answers[:6], abs=1e-5)
    with np.load(tmp_path / "r" / "measurements.npz") as arrays:
        assert set(arrays["look_1_chosen"].tolist()) == {found.measurement[1].chosen, len(WORK)}  # type: ignore[union-attr]
        assert arrays["look_2_values_0"].tolist() == found.measurement[2].values[0].tolist()  # type: ignore[union-attr]
    (tmp_path / "r" / "release.sfumato").write_bytes(b"x")
    with pytest.raises(sf.errors.InvalidInput, match="changed"):
        sf.load(tmp_path / "r")


def test_a_crash_between_looks_leaves_one_entry_and_no_folder(
    ledger: sf.Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: a debit for every look; what came out before the crash stored."""
    measure, calls = Curator.measure, list[int]()

    def interrupted(self: Curator, *args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return measure(self, *args, **kwargs)

    monkeypatch.setattr(Curator, "measure", interrupted)
    with pytest.raises(sf.errors.NotWritten, match=r"entry 1.*interrupted"):
        sf.release(planned(), TABLE, ledger=ledger, name="n", out=tmp_path / "deep" / "r")
    monkeypatch.undo()
    assert [(e.name, e.released) for e in Ledger(tmp_path / "l.db").unreleased()] == [("n", False)]
    assert ledger.spent == 1
    assert {f.name for f in tmp_path.iterdir()} == {"l.db"}
    with pytest.raises(sf.errors.NameTaken, match="though never stored"):
        sf.release(planned(), TABLE, ledger=ledger, name="n", out=tmp_path / "r")


def test_plans_are_stored_and_told_apart(tmp_path: Path) -> None:
    plan = planned()
    plan.save(tmp_path / "p")
    again = sf.load(tmp_path / "p")
    assert isinstance(again, IterativePlan)
    assert again.fingerprint == plan.fingerprint
    assert str(again) == str(plan)
    others = [planned(rounds=1), planned(strategy="queries"), planned("boosting"), replace(plan, budget=sf.zcdp(2))]
    assert len({p.fingerprint for p in (plan, *others)}) == 5
    assert Ledger.in_memory(RHO).quote(plan).price == 1


# ---- pages, and what it is not ---------------------------------------------------------------------------


def test_pages_of_plans_and_releases_stand_alone(found: ModelRelease, tmp_path: Path) -> None:
    for i, thing in enumerate((found, found["low"], found.plan, planned("boosting"))):
        page = write_report(thing, tmp_path / f"{i}.html").read_text(encoding="utf-8")
        assert page.startswith("<!DOCTYPE html>")
        assert "<script" not in page
        assert "http" not in page.replace("http-equiv", "")
        assert "no standard errors" in page
    whole = (tmp_path / "0.html").read_text(encoding="utf-8")
    assert f"{found.answers[0]:,.1f}" in whole
    assert found.plan.fingerprint in whole
    with pytest.raises(sf.errors.PlanError, match="report"):
        write_report(found, tmp_path / "x.html", actual=np.zeros(13))


def test_it_is_not_pooled_with_others(found: ModelRelease) -> None:
    for both in (sf.combine, sf.difference):
        with pytest.raises(sf.errors.PlanError):
            both(found, found)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ITERATIVE)
def test_what_is_said_beside_the_looks_is_the_same_for_neighbours(name: str, tmp_path: Path) -> None:
    """Facts, words, names of files; under add-remove the number of records is nowhere. Mutant: facts of the data."""
    seen: list[Any] = []
    for i, counts in enumerate((COUNTS, COUNTS + (np.arange(24).reshape(COUNTS.shape) == 7))):
        where = tmp_path / str(i)
        release = sf.release(planned(name), sf.Histogram(counts.reshape(-1)), ledger=None, name="n", out=where)
        facts = release.facts() | {"created": "", "ledger": ""}
        lines = [t for t in release.explain().splitlines() if "recorded" not in t]
        files = sorted(f.relative_to(where).as_posix() for f in where.rglob("*"))
        looks = [(type(m).__name__, getattr(m, "total", None)) for m in release.measurement]
        seen.append((facts, lines, files, looks, repr(release), repr(release.plan)))
    assert seen[0] == seen[1]
    assert str(COUNTS.sum()) not in str(seen[0])
