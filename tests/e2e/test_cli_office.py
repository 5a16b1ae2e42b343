"""What an office types: cross-tables with its marks, charts, the method, files of its formats; in three languages."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

from sfumato.releases import load_release
from sfumato.releases.publication import folder_publication
from support.typed import SPEC, Run, refused, release

TOLD = """
[publication]
title = { en = "People", de = "Personen", fr = "Personnes" }
institution = "Office"
period = "2026"
flags = { "*" = 0.05, "**" = 0.2, suppress = 0.5 }
"""
LABELS = 'type = "integer"\nlabel = { en = "Age", de = "Alter" }\nunit = { en = "years", de = "Jahre" }'


@pytest.fixture(autouse=True)
def told(run: Run) -> None:
    Path("spec.toml").write_text(SPEC.replace('type = "integer"', LABELS) + TOLD)
    assert release(run).code == 0


def test_a_release_keeps_what_its_spec_says_of_the_publication(run: Run) -> None:
    found = folder_publication("out/first")
    assert found is not None
    assert found.text("title") == "People"
    page = Path("out/first/report.html").read_text(encoding="utf-8")
    assert "<h1>People</h1>" in page
    assert "Age (years)" in page
    assert run("project", "out/first", "-o", "out/projected").code == 0
    assert folder_publication("out/projected") == found


def test_cross_tables_are_those_of_python(run: Run) -> None:
    stored = load_release("out/first").with_errors()
    flags = {"*": 0.05, "**": 0.2, "suppress": 0.5}
    for options, per in ((["--per", "column"], "column"), (["--per", "none"], None)):
        made = stored.table("age", "sex", confidence=0.9).crosstab("age", "sex", per=per, flags=flags)
        typed = run(
            "crosstab", "out/first", "--rows", "age", "--columns", "sex", "--confidence", "0.9", *options, "--json"
        )
        found = json.loads(typed.out)
        assert found["rows"] == made.frame().rows()
        assert found["per"] == per
        assert "** above 20 %" in found["rule"]
    lines = run("crosstab", "out/first", "--rows", "sex", "--columns", "age", "--top", "1", "--csv").out
    rows = list(csv.DictReader(io.StringIO(lines)))
    assert len(rows) == 2 * 12
    assert set(rows[0]) >= {"answer", "low", "high", "share", "share_low", "flag"}
    shown = run("crosstab", "out/first", "--rows", "age", "--columns", "sex", "--flags", "+=.001").out
    assert "+ above 0.1 %" in shown
    german = run("crosstab", "out/first", "--rows", "age", "--columns", "sex", "--language", "de").out
    assert "Alter (Jahre)" in german
    assert "Insgesamt" in german


def test_what_is_no_cross_table_is_refused(run: Run) -> None:
    ask = ("crosstab", "out/first", "--rows", "age", "--columns")
    refused(run(*ask, "height"), "height")
    refused(run(*ask, "sex", "--flags", "*:3"), "flags are marks with shares")
    refused(run(*ask, "sex", "--flags", "*=0"), "positive share")
    refused(run(*ask, "sex", "--sort", "x"), "sorted by 'total'")
    refused(run(*ask, "sex", "--language", "tlh"), "no words in 'tlh'")
    refused(run(*ask, "sex", "--publication", "people.csv"), "TOML")


def test_charts_are_written(run: Run) -> None:
    assert run("chart", "out/first", "age", "sex", "-o", "c.svg").code == 0
    text = Path("c.svg").read_text(encoding="utf-8")
    assert "People" in text
    assert "Source: Office, People, 2026." in text
    assert run("chart", "out/first", "age", "-o", "c.pdf", "--title", "T").code == 0
    refused(run("chart", "out/first", "age", "-o", "c.pdf"), "exists")
    refused(run("chart", "out/first", "age", "-o", "c.gif"), ".svg, .png, .pdf")


def _widest(svg: str) -> float:
    """Pixels that the letters below a chart may take, by a wide font; they begin at the left."""
    lines = re.findall(r'font-size="10px"[^>]*>((?:<tspan[^>]*>)?[^<]+)', svg)
    return max(len(re.sub("<[^>]*>", "", line)) for line in lines) * 6.5


def test_charts_tell_flags_and_fit_and_speak(run: Run) -> None:
    """Lines below are broken; marks are explained, bars that are missing counted; numbers as the language has them.
    Mutants: a source in one line; English numbers; cells left out in silence;
    a chart of one attribute without marks."""
    told = Path("out/first/publication.toml")
    told.write_text(told.read_text().replace('"Office"', f'"{"Office of very long names " * 6}"'))
    Path("p.toml").write_text(told.read_text().replace("flags", "flags = {'+' = 1e-4, suppress = 0.2}\n#"))
    for names in (["age"], ["age", "sex"]):
        out = f"{len(names)}.svg"
        assert run("chart", "out/first", *names, "-o", out, "--publication", "p.toml", "--language", "de").code == 0
        text = Path(out).read_text(encoding="utf-8")
        width = float(re.search(r'<svg[^>]* width="([\d.]+)"', text)[1])  # type: ignore[index]
        assert _widest(text) < width
        assert "Relativer Standardfehler: + über 0,01 %." in text
        assert re.search("Balken feh", text)
        assert not re.search(r">\d,\d{3}<", text)


@pytest.mark.parametrize(("language", "word"), [("en", "released"), ("de", "veröffentlicht"), ("fr", "publiées")])
def test_the_method_is_said(run: Run, language: str, word: str) -> None:
    found = json.loads(run("methods", "out/first", "--language", language, "--json").out)
    assert word in found["paragraph"]
    assert 120 <= len(found["paragraph"].split()) <= 200
    assert "@software{sfumato" in found["bibtex"]


def test_files_are_exported(run: Run) -> None:
    ended = run("export", "out/first", "-o", "files", "--format", "px", "--format", "csv")
    assert ended.code == 0
    assert sorted(p.name for p in Path("files").iterdir()) == ["csv", "px"]
    refused(run("export", "out/first", "-o", "more", "--format", "docx"), "formats are some of")
    refused(run("export", "out/first", "-o", "files"), "files")


def test_a_site_and_a_report_speak_german(run: Run) -> None:
    assert run("publish", "out/first", "-o", "site", "--language", "de").code == 0
    page = Path("site/index.html").read_text(encoding="utf-8")
    assert '<html lang="de">' in page
    assert "<h1>Personen</h1>" in page
    assert run("report", "out/first", "-o", "german.html", "--language", "de").code == 0
    assert "Kreuztabellen" in Path("german.html").read_text(encoding="utf-8")


def test_a_preview_is_of_what_anybody_may_see(run: Run) -> None:
    """Mutant: the spec's own source read as a sample."""
    found = json.loads(run("preview", "spec.toml", "--like", "out/first", "--budgets", "0.5,1", "--json").out)
    assert [r["budget"] for r in found["budgets"]] == ["0.5", "1"]
    assert {r["table"] for r in found["tables"]} >= {"age", "sex"}
    assert "** above 30 %" in found["rule"]
    assert run("mock", "spec.toml", "-n", "300", "-o", "mock.csv").code == 0
    sampled = run("preview", "spec.toml", "--sample", "mock.csv", "--public", "--table", "age", "--table", "sex")
    assert "as it might be" in sampled.out
    assert (
        run("preview", "spec.toml", "--sample", "mock.csv", "--public", "-o", "flags.svg", "--csv").out.count("\n") > 3
    )
    assert "flag" in Path("flags.svg").read_text(encoding="utf-8")
    group = run("preview", "spec.toml", "--guess", "sex == 'female' = 23", "--budgets", "0.1").out
    assert "suppress" in group
    refused(run("preview", "spec.toml", "--sample", "people.csv", "--public"), "the table to be protected")
    refused(run("preview", "spec.toml", "--sample", "mock.csv"), "add --public")
    refused(run("preview", "spec.toml"), "one of them")
    refused(run("preview", "spec.toml", "--guess", "sex == 'female'"), "about how many records")
    refused(run("preview", "spec.toml", "--guess", "sex == 'female' = 3", "--table", "sex"), "--guess does not tell")
    refused(run("preview", "spec.toml", "--like", "out/first", "--budgets", "x"), "epsilon")
