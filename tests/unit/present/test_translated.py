"""Reports in German and French have no English sentence, and the numbers and warnings of the English one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato._util.catalogue import ENGLISH, say_text, speak
from sfumato.present.page import render
from sfumato.publishing import Publication

DOMAIN = sf.Domain(
    {
        "age": sf.Integers(0, 99, width=20, outside="clamp", missing="other"),
        "sex": sf.Categories(["female", "male"], outside="other", missing="other"),
        "place": 4,
    }
)
COUNTS = np.random.default_rng(0).poisson(30, DOMAIN.shape)
WORK = sf.stack(
    main=sf.marginals(DOMAIN, upto=2),
    curve=sf.prefix(DOMAIN, "age", by=["sex"]),
    named=sf.predicates(DOMAIN, ["age >= 60 and sex == 'female'"]),
)
BUDGETS = [
    (sf.approx(1, "1e-6"), "add-remove"),
    (sf.pure(1), "replace-one"),
    (sf.zcdp("0.1"), "add-remove"),
    (sf.gdp("0.2"), "replace-one"),
]


def persons() -> Iterator[Any]:
    rng = np.random.default_rng(2)
    people = pd.DataFrame({"who": rng.integers(0, 200, 900), "sex": rng.choice(["female", "male"], 900)})
    for more in ({"rows_per_person": 2}, {"rows_per_person": 1}):
        work = sf.identity(sf.Domain({"sex": sf.Categories(["female", "male"], outside="other", missing="other")}))
        plan = sf.plan(work, sf.approx(1, "1e-6"), neighbours="add-remove", person="who", **more)  # type: ignore[call-overload]
        yield plan
        yield sf.release(plan, people, ledger=None)


def measures() -> Iterator[Any]:
    domain = sf.Domain(
        {"sex": sf.Categories(["female", "male"], outside="other", missing="other")},
        measures={"pay": sf.Measure(0, 9000)},
    )
    people = pd.DataFrame({"sex": ["female", "male"] * 300, "pay": range(600)})
    plan = sf.plan(sf.means(domain, ["pay"], by=["sex"]), sf.approx(1, "1e-6"), neighbours="add-remove")
    yield plan
    yield sf.release(plan, people, ledger=None)


def streams() -> Iterator[Any]:
    domain = sf.Domain({name: DOMAIN[name] for name in ("age", "sex")})
    rng = np.random.default_rng(3)
    persons: Any = {"person": "who", "rows_per_person": 2}
    for work, budget, more in (
        (sf.marginals(domain, upto=2), sf.approx(1, "1e-6"), {}),
        (sf.total(domain), sf.gdp(1), {}),
        (sf.marginals(domain, upto=1), sf.zcdp("0.5"), persons),
    ):
        plan = sf.plan(work, budget, neighbours="add-remove", periods=12, **more)
        yield plan
        stream = sf.open(plan, ledger=None)
        for month in ("2026-01", "2026-02", "2026-03"):
            who = [f"{month}-{i}" for i in range(300)]
            rows = {"who": who, "sex": rng.choice(["female", "male"], 300), "age": rng.integers(0, 99, 300)}
            stream.append(pd.DataFrame(rows), period=month)
            if month != "2026-02":
                yield stream.release()


def reported() -> Iterator[Any]:
    for budget, neighbours in BUDGETS:
        plan = sf.plan(WORK, budget, neighbours=neighbours)  # type: ignore[call-overload]
        release = sf.release(plan, sf.Histogram(COUNTS), ledger=None)
        yield plan
        yield release
        yield release["main"]
    yield release.project()
    single = sf.plan(sf.total(DOMAIN), sf.pure(1), neighbours="add-remove")
    yield single
    yield sf.release(single, sf.Histogram(COUNTS), ledger=sf.Ledger.in_memory(sf.pure(2)))
    sparse = sf.release(sf.plan(WORK, sf.pure(1), neighbours="add-remove"), sf.Histogram(COUNTS // 25), ledger=None)
    yield sparse
    yield sparse.project(integer=True)
    odd = COUNTS.copy()
    odd[0] += 4_000
    odd[:, 2] += 900
    yield sf.release(sf.plan(WORK, sf.pure(1), neighbours="add-remove"), sf.Histogram(odd), ledger=None)
    adaptive = sf.plan(
        sf.marginals(DOMAIN, order=2), sf.approx(1, "1e-6"), neighbours="add-remove", mechanism="mwem", records=900
    )
    yield adaptive
    yield sf.release(adaptive, sf.Histogram(COUNTS), ledger=None)
    yield from persons()
    yield from measures()
    yield from streams()


class Texts(HTMLParser):
    """What a page says: its texts and labels; and what its charts have as JSON."""

    def __init__(self) -> None:
        super().__init__()
        self._skip = 0
        self._charts = False
        self.said: list[str] = []
        self.charts: Any = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._charts = tag == "script" and given.get("id") == "charts"
        self._skip += tag in ("script", "style", "pre")
        self.said += [value for key in ("aria-label", "title", "alt") if (value := given.get(key))]

    def handle_endtag(self, tag: str) -> None:
        self._skip -= tag in ("script", "style", "pre")
        self._charts = False

    def handle_data(self, data: str) -> None:
        if self._charts:
            self.charts = json.loads(data)
        elif not self._skip and data.strip():
            self.said.append(" ".join(data.split()))


def titles(spec: Any) -> Iterator[str]:
    if isinstance(spec, dict):
        for key, value in spec.items():
            if key == "title" and isinstance(value, str):
                yield value
            yield from titles(value)
    elif isinstance(spec, list):
        for value in spec:
            yield from titles(value)


def read(thing: Any, language: str) -> list[str]:
    page = Texts()
    page.feed(render(thing, publication=Publication(language=language)))
    return [*page.said, *titles(page.charts)]


QUOTED = re.compile(r"age >= 60 and sex == 'female'|\[[^\]]*\]|sfumato [a-z]+ --[a-z]+ en|python [\d., a-z]+")


NAMES = re.compile(
    r"((age|sex|place)( up to| =) [\w.()]+(, )?)+|[a-z]+(, [a-z]+)*, \(other\)|curve: age × sex|"
    r"(pay less \d+|records with pay) by sex(: sex × pay)?"
)
"""Labels of cells and queries, and names of parts, which are the office's own or stand so in the files."""


@pytest.fixture(scope="module")
def reports() -> list[Any]:
    return list(reported())


@pytest.mark.parametrize("language", ["de", "fr"])
def test_no_english_sentence_is_left(reports: list[Any], language: str) -> None:
    """Mutants: a section whose texts are not said anew; a catalogue without one of its keys; table heads, menus."""
    left = dict[str, int]()
    for thing in reports:
        english = {text for text in read(thing, "en") if len(re.findall(r"[a-z]{3,}", text)) >= 3}
        for text in read(thing, language):
            plain = QUOTED.sub("", text)
            if ENGLISH.search(plain) or (text in english and plain == text and " " in text):
                left[text] = left.get(text, 0) + 1
    assert {t: n for t, n in left.items() if not NAMES.fullmatch(t)} == {}


@pytest.mark.parametrize("language", ["de", "fr"])
def test_numbers_are_those_of_the_english_page(reports: list[Any], language: str) -> None:
    """Mutants: marks exchanged twice; a figure that is dropped with its sentence."""
    for thing in reports[:5]:
        ours = Texts()
        ours.feed(render(thing, publication=Publication(language=language)))
        theirs = Texts()
        theirs.feed(render(thing))
        assert len([t for t in ours.said if "±" in t]) == len([t for t in theirs.said if "±" in t])
        figures = [re.sub(r"\D", "", t) for t in theirs.said if re.fullmatch(r"±?[\d,]+(\.\d+)?", t)]
        told = [re.sub(r"\D", "", t) for t in ours.said if re.fullmatch(r"±?[\d.,\s\u202f\u00a0]+", t)]
        assert [f for f in figures if f not in told] == []


def test_patterns_keep_names_and_write_numbers_anew() -> None:
    with speak("de"):
        found = say_text("The 20 with the largest standard errors, of 12,345")
        assert found == "Die 20 mit den größten Standardfehlern, von 12.345"
        assert say_text("Distribution of records by sex, place") == "Verteilung von Datensätze nach sex, place"
        assert say_text("No such text is in any catalogue.") == "No such text is in any catalogue."
    assert say_text("Distribution of age") == "Distribution of age"
