"""What an office says besides numbers: read from specs, kept beside a release, refused with its line."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from babel import Locale

import sfumato as sf
from sfumato._util import catalogue
from sfumato._util.catalogue import (
    Catalogue,
    known_languages,
    local_number,
    page_locale,
    read_catalogue,
    say_words,
    speak,
)
from sfumato.errors import InvalidInput, PlanError, SpecError
from sfumato.present import render
from sfumato.publishing import publish
from sfumato.releases.publication import (
    Publication,
    folder_publication,
    publication_from_root,
    read_publication,
    write_publication,
)
from sfumato.workloads.reading import parse_toml
from support.typed import SPEC

WORDS = """
[publication]
title = { en = "People", de = "Personen" }
institution = "Office"
notes = 'a "quoted" \\ note'
language = "en"
flags = { "*" = 0.15, suppress = 0.5 }
[schema.age]
label = { en = "Age", de = "Alter" }
unit = "years"
[schema.sex.categories]
female = { en = "women", de = "Frauen" }
"""


def test_a_publication_is_written_as_it_is_read(tmp_path: Path) -> None:
    told = publication_from_root(parse_toml(WORDS))
    assert told is not None
    write_publication(told, tmp_path)
    assert folder_publication(tmp_path) == told
    assert told.fingerprint() == read_publication(tmp_path / "publication.toml").fingerprint()
    odd = Publication(title='"\\\n\x7f\u2028', labels={'a "b".c\n': {"en": "x"}}, categories={"a": {"": "empty"}})
    write_publication(odd, tmp_path)
    assert folder_publication(tmp_path) == odd


def test_texts_are_chosen_by_language() -> None:
    told = publication_from_root(parse_toml(WORDS))
    assert told is not None
    assert (told.text("title"), told.heading("age"), told.heading("sex")) == ("People", "Age (years)", "sex")
    german = Publication(title={"fr": "x", "en": "y"}, labels={"a": {"fr": "only"}}).spoken("de")
    assert (german.text("title"), german.heading("a")) == ("y", "only")
    assert told.spoken(None) == told
    assert told.category_texts("sex") == {"female": "women"}


def test_a_spec_has_it_and_the_domain_does_not(tmp_path: Path) -> None:
    """Labels are no part of what is paid for: the fingerprint of a plan does not know them."""
    (tmp_path / "plain.toml").write_text(SPEC)
    labelled = SPEC.replace('type = "integer"', 'type = "integer"\nlabel = "Age"\nunit = "years"')
    (tmp_path / "told.toml").write_text(labelled + '\n[publication]\ntitle = "People"\n')
    plain, told = (sf.read_spec(tmp_path / f"{name}.toml") for name in ("plain", "told"))
    assert plain.publication is None
    assert told.publication == Publication(title="People", labels={"age": "Age"}, units={"age": "years"})
    assert plain.domain == told.domain
    options = {"neighbours": plain.neighbours}
    plans = [sf.plan(s.workload, s.budget, **options).fingerprint for s in (plain, told)]  # type: ignore[arg-type]
    assert plans[0] == plans[1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[publication]\ntitel = 'x'", "line 2: publication.titel: there is no such key"),
        ("[publication]\ntitle = 3", "line 2: publication.title: must be a text"),
        ("[publication]\ntitle = { en = 3 }", "must be a text"),
        ("[publication]\nlanguage = 'xx'", "line 2: publication.language: pages have no words in 'xx'"),
        ("[publication]\nflags = { '*' = 0 }", "line 2: publication.flags: the threshold of '\\*'"),
        ("[publication]\nflags = { '*' = 'a' }", "must be a number"),
        ("[schema.age]\nlabel = 4", "line 2: schema.age.label: must be a text"),
    ],
)
def test_what_is_no_publication_is_refused_with_its_line(text: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        publication_from_root(parse_toml(text))


def test_labels_of_what_is_not_declared_are_refused_before_anything_is_spent() -> None:
    """Mutant: names looked up after the release is made."""
    plan = sf.plan(sf.identity(sf.Domain({"age": 4})), sf.gdp(1), neighbours="add-remove")
    ledger = sf.Ledger.in_memory(sf.gdp(2))
    for told in (Publication(labels={"agee": "Age"}), Publication(categories={"age": {"77": "x"}})):
        with pytest.raises(PlanError):
            sf.release(plan, sf.Histogram([1, 2, 3, 4]), ledger=ledger, publication=told)
    assert ledger.spent == 0
    with pytest.raises(InvalidInput, match="is a text"):
        Publication(title=3)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="more than 4,000"):
        Publication(notes="x" * 4_001)


def test_a_release_keeps_its_publication_and_its_page_says_it(tmp_path: Path) -> None:
    domain = sf.Domain({"age": 4, "sex": sf.Categories(["f", "m"])})
    plan = sf.plan(sf.marginals(domain, upto=2), sf.gdp(1), neighbours="add-remove")
    told = Publication(
        title="<People>",
        subtitle="Second line",
        contact="a@b",
        labels={"sex": "Sex of <all>"},
        categories={"sex": {"f": "women"}},
        flags={"+": 0.001},
    )
    made = sf.release(plan, sf.Histogram(np.full((4, 2), 70)), ledger=None, out=tmp_path / "r", publication=told)
    assert folder_publication(tmp_path / "r") == told
    for page in ((tmp_path / "r" / "report.html").read_text(encoding="utf-8"), render(made, publication=told)):
        assert "<h1>&lt;People&gt;</h1>" in page
        for said in ("Second line", "a@b", "Sex of &lt;all&gt;", "women", "+ above 0.1 %", "Per cent of the row"):
            assert said in page
    assert isinstance(sf.load(tmp_path / "r"), sf.Release)


# -- languages -------------------------------------------------------------------------------------------------


def test_numbers_are_written_as_their_languages_do() -> None:
    """Marks of decimals and thousands are those of the Unicode project."""
    assert known_languages()[0] == "en"
    for language in known_languages():
        with speak(language):
            symbols = Locale.parse(language).number_symbols["latn"]
            marks: Any = page_locale()["number"]
            assert (marks["decimal"], marks["thousands"]) == (symbols["decimal"], symbols["group"])
            assert local_number("1,234.5") == f"1{symbols['group']}234{symbols['decimal']}5"
            if language != "en":
                months = Locale.parse(language).months["format"]
                told: Any = page_locale()["time"]
                assert told["months"] == list(months["wide"].values())
                assert told["shortMonths"] == list(months["abbreviated"].values())
                days = Locale.parse(language).days["format"]["wide"]
                assert told["days"] == [days[(i - 1) % 7] for i in range(7)]
    assert local_number("1,234.5") == "1,234.5"


def test_a_language_without_a_catalogue_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no words in 'tlh'"), speak("tlh"):
        pass
    assert say_words("Total") == "Total"
    assert say_words("{a} of {b}", a=1, b=2) == "1 of 2"


@pytest.mark.parametrize("language", [x for x in known_languages() if x != "en"])
def test_a_catalogue_keeps_the_names_in_braces(language: str) -> None:
    import string

    for english, other in read_catalogue(language).words.items():
        names = [{f for _, f, _, _ in string.Formatter().parse(t) if f} for t in (english, other)]
        # what a planner calls its strategies is English, and left out
        assert names[1] <= names[0] <= names[1] | {"strategy", "what"}, english


def said_texts() -> set[str]:
    """Every text that pages say: what is given to `say_words` in programs and to `say` in templates and scripts."""
    package = Path(sf.__file__).parent
    found: set[str] = set()
    for place in package.rglob("*.py"):
        for node in ast.walk(ast.parse(place.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "say_words":
                found |= {
                    n.value for n in ast.walk(node.args[0]) if isinstance(n, ast.Constant) and len(str(n.value)) > 1
                }
    for place in package.rglob("*.html"):
        for one, other in re.findall(
            r"""\bsay\((?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")""", place.read_text("utf-8")
        ):
            found.add(one or other)
    for text in re.findall(r'\bsay\("((?:[^"\\]|\\.)*)"', (package / "publishing" / "app.js").read_text("utf-8")):
        found.add(json.loads(f'"{text}"'))
    return {t for t in found if isinstance(t, str)}


@pytest.mark.parametrize("language", [x for x in known_languages() if x != "en"])
def test_a_catalogue_has_every_text_that_pages_say(language: str) -> None:
    """Of a site; what a test made of a text that is put together is found by saying it."""
    missing = said_texts() - set(read_catalogue(language).words)
    plans = {
        "This release",
        "A release of this plan",
        "Plan of a release with differential privacy",
    }  # no page of a release
    assert {t for t in missing if " " in t and not t.startswith("{")} - plans == set()


@pytest.mark.parametrize("language", [x for x in known_languages() if x != "en"])
@pytest.mark.parametrize("projected", [False, True])
def test_a_site_says_nothing_in_english(
    language: str, projected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: a text that no catalogue has."""
    missed: set[str] = set()

    class Words(dict[str, str]):
        def get(self, key: str, default: object = None) -> object:  # type: ignore[override]
            if key not in self and re.search("[A-Za-z]{3}", key):
                missed.add(key)
            return dict.get(self, key, default)

    held = read_catalogue(language)
    watched = replace(held, words=Words(held.words))
    monkeypatch.setattr(catalogue, "read_catalogue", lambda name: watched if name == language else Catalogue({}))
    domain = sf.Domain({"age": sf.Integers(0, 9, outside="other"), "sex": sf.Categories(["f", "m"], missing="drop")})
    work = sf.stack(main=sf.marginals(domain, upto=2), old=sf.predicates(domain, ["age >= 8"]))
    plan = sf.plan(work, sf.zcdp(1), neighbours="add-remove")
    made = sf.release(plan, sf.Histogram(np.full(domain.shape, 70)), ledger=None)
    if projected:
        made = made.project()
    told = Publication(language=language, flags={"*": 0.1}, labels={"age": "A", "sex": "B"})
    page = publish(made, tmp_path / "site", publication=told) / "index.html"
    assert missed == set()
    text = re.sub("<[^>]+>", " ", page.read_text(encoding="utf-8").split("@software")[0])
    for english in (" the ", " of ", " with ", " is ", " and the "):
        assert english not in text
