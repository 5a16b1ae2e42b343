"""What leaves the page, what is taken back, and what a year takes: files equal to the commands', refusals in words."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import openpyxl
import pytest

import sfumato as sf
from sfumato._util.catalogue import speak
from sfumato.jobs import read_job, run_job
from sfumato.privacy.ledger import Ledger
from sfumato.releases import load_release
from sfumato.releases.publication import folder_publication, read_publication
from sfumato.releases.reliability import read_reliability
from sfumato.studio.outgoing import job_text
from support.studio import SPEC, Studio, folder, studio


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    place = folder(tmp_path_factory.mktemp("outgoing"))
    with studio(place) as running:
        assert running.post("ledger", {"budget": {"rho": "4"}, "table": "people"}).status == 200
        assert running.paid("2026-11")["state"] == "done"
        yield running


def place_of(desk: Studio) -> Path:
    return desk.desk.places.releases / "2026-11"


def test_titles_and_flags_are_kept_in_the_folder(desk: Studio) -> None:
    """Mutants: texts in several languages flattened by a page that did not touch them; labels of nothing kept."""
    shown = desk.page("/publish?name=2026-11").json["data"]
    assert shown["told"]["title"] == ""
    told = {"title": "People", "flags": "*=.1, suppress=.5", "labels": "age = Age (years)\nsex = Sex", "language": "de"}
    found = desk.post("told", {"name": "2026-11", "told": told})
    assert found.status == 200
    assert found.json["flags"] == "*=0.1, suppress=0.5"
    kept = folder_publication(place_of(desk))
    assert kept is not None
    assert (kept.text("title"), kept.heading("age"), kept.language) == ("People", "Age (years)", "de")
    assert "<h1>People</h1>" in (place_of(desk) / "report.html").read_text(encoding="utf-8")
    for bad, words in (
        ({"flags": "*:3"}, "flags are marks"),
        ({"labels": "height = Height"}, "no declared attribute"),
        ({"labels": "sex.m = men"}, "none of its cells"),
        ({"flags": "*=15 %, *=20 %"}, "two thresholds"),
        ({"language": "tlh"}, "no words in"),
        ({"title": 3}, "are texts"),
    ):
        said = desk.post("told", {"name": "2026-11", "told": bad})
        assert said.status == 400
        assert words in said.json["error"]
    assert folder_publication(place_of(desk)) == kept


def test_what_is_taken_away_is_whole(desk: Studio) -> None:
    for file, inside in (("site.zip", "site/index.html"), ("files.zip", "files/csv/csv-metadata.json")):
        said = desk.ask(f"/download/{file}?name=2026-11")
        assert said.status == 200
        assert inside in zipfile.ZipFile(io.BytesIO(said.body)).namelist()
    assert desk.ask("/download/records.csv?name=2026-11").text.splitlines()[0] == "age,sex"
    assert b"<svg" in desk.ask("/download/chart.svg?name=2026-11&a=age&a=sex").body
    assert desk.ask("/download/chart.pdf?name=2026-11&a=age").body.startswith(b"%PDF")
    assert desk.ask("/download/chart.svg?name=2026-11&a=height").status == 400
    # means are offered where they follow, and those alone
    assert desk.page("/publish?name=2026-11").json["data"]["means"] == [{"mean": "age", "by": ["sex"]}]
    drawn = desk.ask("/download/chart.svg?name=2026-11&a=sex&mean=age")
    assert drawn.status == 200
    assert re.search("(Mittelwert|mean) (von|of) ", drawn.text)
    assert desk.ask("/download/chart.svg?name=2026-11&a=sex&mean=height").status == 400
    assert desk.ask("/download/site.zip?name=../2026-11").status == 400


def test_suppressed_numbers_are_left_out_where_that_is_asked(desk: Studio) -> None:
    """Mutants: the switch dropped on the way to the formats, to the workbook, or to the monthly job."""
    told = {"flags": "suppress=0.000001"}
    assert desk.post("told", {"name": "2026-11", "told": told}).status == 200
    numbers: list[int] = []
    for asked, left_out in (("", False), ("&leave_out=1", True)):
        packed = zipfile.ZipFile(io.BytesIO(desk.ask(f"/download/files.zip?name=2026-11{asked}").body))
        lines = list(csv.DictReader(packed.read("files/csv/sex.csv").decode("utf-8-sig").splitlines()))
        assert {line["flag"] for line in lines} == {"suppress"}
        assert [line["answer"] == "" for line in lines] == [left_out] * len(lines)
        book = openpyxl.load_workbook(io.BytesIO(desk.ask(f"/download/tables.xlsx?name=2026-11{asked}").body))
        cells = [c for sheet in book for row in sheet.iter_rows(values_only=True) for c in row]
        numbers.append(sum(type(c) in (int, float) for c in cells))
        job = tomllib.loads(desk.ask(f"/download/office.toml?name=2026-11{asked}").text)
        assert job["tables"][0]["leave_out"] is left_out
    assert numbers[1] < numbers[0] / 2
    assert desk.post("told", {"name": "2026-11", "told": {"flags": "*=.1, suppress=.5"}}).status == 200


def test_a_projected_release_stands_beside_its_own(desk: Studio) -> None:
    found = desk.post("keep-projected", {"name": "2026-11"}).json
    assert found == {"name": "2026-11-projected"}
    assert load_release(desk.desk.places.releases / "2026-11-projected").projection is not None  # type: ignore[union-attr]
    assert desk.post("keep-projected", {"name": "2026-11"}).json == found
    assert "2026-11-projected" in desk.page("/publish").json["data"]["shelf"]
    assert len(Ledger(desk.desk.places.ledger).export()) == 1


def test_the_job_does_it_again(desk: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    text = desk.ask("/download/office.toml").text
    assert tomllib.loads(text)["tables"][0]["spec"] == "spec.toml"
    place = desk.desk.places.spec.parent
    (place / "office.toml").write_text(text)
    monkeypatch.chdir(place)
    assert run_job(read_job(place / "office.toml"), "2026-12", dry_run=True).period == "2026-12"


def test_a_job_of_a_spec_with_any_name_can_be_read() -> None:
    """Mutant: names between quotes as they are."""
    places = SimpleNamespace(spec=Path('the "wards" of \\ März.toml'), ledger=Path('/own/"budget".db'))
    job = tomllib.loads(job_text(SimpleNamespace(places=places, text="")))  # type: ignore[arg-type]
    assert job["tables"][0]["spec"] == places.spec.name
    assert job["job"]["ledger"] == '/own/"budget".db'


def test_the_last_change_is_taken_back(tmp_path: Path) -> None:
    """Mutant: what an editor wrote since is overwritten."""
    with studio(folder(tmp_path)) as desk:
        before = desk.desk.text
        assert desk.page("/table").json["data"]["undoable"] is False
        for rho in ("0.25", "0.125"):
            change = [{"place": ["privacy", "rho"], "value": {"number": rho}}]
            made = desk.post("change", {"version": desk.version, "changes": change})
            assert made.json["undoable"] is True
        assert "rho = 0.25" not in desk.desk.text
        assert desk.post("undo", {"version": desk.version}).json["undoable"] is True
        assert "rho = 0.25" in desk.desk.text
        assert desk.post("undo", {"version": desk.version}).json["undoable"] is False
        assert desk.desk.text == before
        assert desk.post("undo", {"version": desk.version}).status == 400
        change = [{"place": ["privacy", "rho"], "value": {"number": "2"}}]
        desk.post("change", {"version": desk.version, "changes": change})
        written = desk.desk.text + "# by an editor\n"
        desk.desk.places.spec.write_text(written)
        said = desk.post("undo", {"version": desk.version})
        assert said.status == 400
        assert "an editor wrote since" in said.json["error"]
        assert desk.desk.text == written


@pytest.mark.parametrize(
    ("given", "times"),
    [({"epsilon": "1", "delta": "1e-6"}, 12), ({"epsilon": "0.5"}, 4), ({"rho": "0.1"}, 52), ({"mu": "0.2"}, 9)],
)
def test_a_years_total_pays_for_its_releases_and_not_for_one_more(
    desk: Studio, given: dict[str, str], times: int
) -> None:
    """Mutants: epsilons of Gaussian noise added up; a total rounded down."""
    found = desk.post("year", {"budget": given, "releases": times}).json
    told = found["budget"]
    names = {"zcdp": "rho", "gdp": "mu"}
    total = sf.Budget.from_json(
        {names.get(told["kind"], "epsilon"): told["parameter"]} | ({"delta": told["delta"]} if "delta" in told else {})
    )
    one = sf.Budget.from_json(given)
    plan = sf.plan(sf.total(sf.Domain({"a": 2})), one, neighbours="add-remove")
    ledger = Ledger.in_memory(total)
    for i in range(times):
        ledger.debit(f"n{i}", plan.fingerprint, plan.price, plan.unit)
    with pytest.raises(sf.BudgetExceeded):
        ledger.debit("more", plan.fingerprint, plan.price, plan.unit)
    assert f"{times} releases" in found["text"]
    for bad in (0, 1.5, True, "12", 10**9):
        assert desk.post("year", {"budget": given, "releases": bad}).status == 400


def test_a_group_in_mind_is_told_with_what_it_would_take(desk: Studio) -> None:
    asked = {"version": desk.version, "condition": "age >= 5 and sex == 'female'", "count": 23, "within": 50}
    found = desk.post("guess", asked | {"budget": {"rho": "0.5"}}).json
    plan = desk.desk.plan(desk.desk.text)
    seen = sf.preview(plan, {asked["condition"]: 23}).frame().rows()[0]  # type: ignore[arg-type, dict-item]
    assert found["share"] == pytest.approx(seen["relative_margin"])
    other = desk.post("guess", asked | {"budget": {"rho": found["budget"]["parameter"]}}).json
    assert other["share"] == pytest.approx(0.5, rel=0.02)
    assert "± 50 %" in found["text"]
    for bad in ({"count": 0}, {"count": "23"}, {"within": 0}, {"condition": "height > 3"}, {"condition": 3}):
        said = desk.post("guess", asked | {"budget": {"rho": "0.5"}} | bad)
        assert said.status == 400
        assert json.loads(said.body)["error"]


def test_texts_in_other_languages_stay(tmp_path: Path) -> None:
    """Of titles, labels and cells; in the folder and in the spec, whose comments stay.

    Mutants: a text in two languages replaced by the one typed; labels of cells lost when another line changes.
    """
    with studio(folder(tmp_path, "# ours\n" + SPEC)) as desk:
        assert desk.post("ledger", {"budget": {"rho": "4"}, "table": "people"}).status == 200
        assert desk.paid("one")["state"] == "done"

        def keep(**told: str) -> dict[str, str]:
            found = desk.post("told", {"name": "one", "told": told})
            assert found.status == 200, found.json
            return found.json

        first = keep(title="People", labels="sex = Sex\nsex.female = women\nsex.(other) = unknown", language="en")
        assert "The spec has it too" in first["spec"]
        lines = first["labels"].replace("women", "Frauen").replace("Sex", "Geschlecht")
        assert lines.splitlines()[1:] == ["sex.female = Frauen", "sex.(other) = unknown"]
        keep(title="Personen", labels=lines + "\nage = Alter (Jahre)", language="de", flags="*=15 %; suppress=50 %")
        told = folder_publication(desk.desk.stored("one"))
        assert told is not None
        assert told.title == {"en": "People", "de": "Personen"}
        assert told.categories == {"sex": {"female": {"en": "women", "de": "Frauen"}, "(other)": "unknown"}}
        assert (told.labels["sex"], told.flags) == ({"en": "Sex", "de": "Geschlecht"}, {"*": 0.15, "suppress": 0.5})
        assert read_publication(desk.desk.places.spec) == told
        assert desk.desk.text.startswith("# ours\n")
        keep(title="Einwohner")
        again = folder_publication(desk.desk.stored("one"))
        assert again is not None
        assert again.title == {"en": "People", "de": "Einwohner"}
        taken = keep(labels="sex = Geschlecht")
        assert taken["labels"] == "sex = Geschlecht"
        assert desk.desk.spec().domain == desk.desk.release("one").plan.workload.domain


def test_the_job_publishes_what_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report and the site of the job are in German, with title, flags and labels of cells, and projected.

    Mutants: a job without the words that were typed; without its languages; unprojected where the shelf is.
    """
    with studio(folder(tmp_path)) as desk:
        assert desk.post("ledger", {"budget": {"rho": "4"}, "table": "people"}).status == 200
        assert desk.paid("one")["state"] == "done"
        told = {"title": "Bevölkerung", "institution": "Amt", "flags": "*=0,01; **=0,02", "language": "de"}
        told["labels"] = "age = Alter\nsex = Geschlecht\nsex.female = weiblich\nsex.male = männlich"
        assert desk.post("told", {"name": "one", "told": told}).status == 200
        assert desk.post("keep-projected", {"name": "one"}).status == 200
        (tmp_path / "office.toml").write_text(desk.ask("/download/office.toml?name=one").text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    job = read_job(tmp_path / "office.toml")
    assert (job.tables[0].languages, job.tables[0].project) == (("de",), True)
    folder_ = run_job(job, "2026-12").folder / "spec"
    report = (folder_ / "report-de.html").read_text(encoding="utf-8")
    site = "".join(p.read_text(encoding="utf-8") for p in (folder_ / "site-de").glob("*.*") if p.suffix != ".zip")
    for text in (report, site):
        assert "Bevölkerung" in text
        assert "Amt" in text
        assert 'lang="de"' in text
        assert "männlich" in text or "m\\u00e4nnlich" in text
        assert "Vertrauensbereich" in text or "Rauschen" in text
    with speak("de"):
        rule = read_reliability({"*": 0.01, "**": 0.02}).statement()
    assert rule in html.unescape(report)
    assert folder_publication(folder_ / "release").flags == {"*": 0.01, "**": 0.02}  # type: ignore[union-attr]
