"""The studio in German and French: its words are there, finished texts are said anew, and what people typed stays."""

from __future__ import annotations

import json
import re
import subprocess
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from sfumato._util.catalogue import read_catalogue
from sfumato.studio.app import STEPS, _page_shell, studio_words
from support import node
from support.studio import folder, studio

SCRIPT = (resources.files("sfumato.studio") / "static" / "language.js").read_text(encoding="utf-8")
SAME = {"sfumato studio", "pdf", "svg", "png", "ε", "δ", "office.toml"}
"""What is the same in every language."""


class Texts(HTMLParser):
    """The texts of a page that its script says anew."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[bool] = []
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in ("meta", "link", "input", "br"):
            self.open.append(tag in ("code", "script") or "translate" in given)
        self.found |= {given["aria-label"] or ""} if "aria-label" in given else set()

    def handle_endtag(self, tag: str) -> None:
        if self.open:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        if not any(self.open):
            self.found |= {part.strip().strip("←→").strip() for part in data.split(" · ")}


@pytest.mark.parametrize("language", ["de", "fr"])
def test_every_text_of_the_pages_has_its_translation(language: str) -> None:
    """Mutants: a text that one language lacks; a name in braces that is lost; a word that pages have already."""
    pages, own, core = Texts(), studio_words(language), read_catalogue(language).words
    for step in STEPS:
        pages.feed(_page_shell(step))
    said = {t.rstrip("·").strip() for t in pages.found} - SAME
    assert sorted(t for t in said if re.search("[A-Za-z]", t) and t not in own | core) == []
    assert own.keys() == studio_words("fr" if language == "de" else "de").keys()
    assert not own.keys() & core.keys()
    for english, told in own.items():
        assert sorted(re.findall(r"\{\w+\}", english)) == sorted(re.findall(r"\{\w+\}", told)), english


def test_the_words_of_a_language_come_with_the_page(tmp_path: Path) -> None:
    with studio(folder(tmp_path)) as desk:
        asked = {"step": "table", "query": {}}
        assert "words" not in desk.post("page", asked).json
        words = desk.post("page", asked | {"language": "de"}).json["words"]
        assert words["words"]["Pay, once"] == "Bezahlen, einmal"
        assert words["words"]["Standard error"] == "Standardfehler"
        assert words["marks"] == {"decimal": ",", "thousands": "."}
        refused = desk.post("page", asked | {"language": "tlh"})
        assert (refused.status, refused.json["error"]) == (400, "a page speaks one of en, de, fr")


def test_finished_texts_are_said_anew_and_names_stay() -> None:
    """Mutants: a column called "total" translated; 1,234 left with its comma; a sentence lost for its neighbour."""
    if node.PROGRAM is None:
        pytest.skip(str(node.missing()))
    words = read_catalogue("de").words | studio_words("de")
    cases: list[tuple[str, str]] = [
        ("Pay →", "Bezahlen →"),
        ("← Table", "← Tabelle"),
        ("12 columns; 3,531 combinations of cells.", "12 Spalten; 3.531 Kombinationen von Zellen."),
        ("3 names were read, and no row. Choose the kind of each that is asked about.",
         "3 Namen wurden gelesen, und keine Zeile. Wählen Sie die Art jeder Spalte, nach der gefragt wird."),
        ("the distribution of total within sum", "die Verteilung von total nach sum"),
        ("total", "total"),
        ("± 1,234.5", "± 1.234,5"),
        ("± 1.5 to 2,000", "± 1,5 bis 2.000"),
        (" and ", " und "),
        ("Nobody has words for this.", "Nobody has words for this."),
        ("Something else. Saved in the spec.", "Something else. In der Spezifikation gespeichert."),
        ("no result is more than 2.72 times as likely in one case as in the other, "
         "apart from an excess of probability of at most 10⁻⁶.",
         "kein Ergebnis ist in einem Fall mehr als 2,72-mal so wahrscheinlich wie im anderen, "
         "abgesehen von einem Überschuss an Wahrscheinlichkeit von höchstens 10⁻⁶."),
    ]  # fmt: skip
    given: Any = {"words": words, "marks": {"decimal": ",", "thousands": "."}}
    code = (
        f"{SCRIPT}\ntakeWords({json.dumps(given)}, () => new Set(['total', 'sum']));"
        f"process.stdout.write(JSON.stringify({json.dumps([one for one, _ in cases])}.map((t) => spoken(t))));"
    )
    done = subprocess.run(
        [str(node.PROGRAM), "--input-type=module", "-"], input=code, capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [told for _, told in cases]
