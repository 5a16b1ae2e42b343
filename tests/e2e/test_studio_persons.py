"""Tables of persons on the page: from two files to a paid release, by clicks, in a real browser."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from sfumato.curator.people import Joined, PerPerson
from support.browser import Browser
from support.studio import SPEC, Studio, folder, studio

PATIENTS = "patient,sex,born\n" + "".join(f"{i},{'fm'[i % 2]},{1930 + i % 70}-03-01\n" for i in range(200))
VISITS = "patient,date,ward,cost\n" + "".join(
    f"{i % 220},2026-{1 + i % 12:02}-{1 + i % 28:02},{('ER', 'A')[i % 3 > 0]},{i % 90}.5\n" for i in range(900)
)
ASKED = SPEC[: SPEC.index("[schema.age]")].replace("people.csv", "patients.csv") + (
    '[privacy]\nrho = 5\nneighbours = "add-remove"\n\n[[queries]]\nname = "main"\nupto = 1\n'
)


def said(page: Studio) -> dict[str, Any]:
    return tomllib.loads(page.desk.text)


def typed(browser: Browser, field: str, text: str) -> None:
    """As if it had been typed, and the field left."""
    wrong = "const [f, t] = arguments; f.value = t; f.dispatchEvent(new Event('change'))"
    browser.until(lambda: browser.run(wrong, browser.find(field), text) or True)


def chosen(browser: Browser, field: str, text: str) -> None:
    """Once the page, which is made anew after a change, holds still."""
    browser.until(lambda: browser.choose(field, text) or True)


def test_patients_and_their_visits_by_clicks(tmp_path: Path, browser: Browser) -> None:
    """The key is the person; what is wrong with an expression is told at its field, and the spec keeps what it had; the
    columns that are told are there to be declared; what is written is released; and back to one table.

    Mutants: the source left under [data], where it is refused; an expression that is wrong written all the same; the
    numbers of a table as texts; a table that is taken out and still joined; the marks of the file left behind.
    """
    place = folder(tmp_path, ASKED)
    (tmp_path / "patients.csv").write_text(PATIENTS, encoding="utf-8")
    (tmp_path / "visits.csv").write_text(VISITS, encoding="utf-8")
    with studio(place, entered=False) as page:
        browser.go(page.keys.address)
        browser.until(lambda: browser.text("#file"))
        page.key = page.keys.key
        browser.go(f"{page.keys.origin}/table")
        browser.click("#several")
        browser.until(lambda: said(page).get("people") == {"key": "", "source": "patients.csv"})
        assert "source" not in said(page)["data"]
        browser.until(lambda: browser.find("#persons-section").is_displayed())
        assert not browser.find("#source").is_displayed()
        browser.until(lambda: "the column that names persons" in browser.text("#status"))
        typed(browser, "#key", "patient")
        browser.until(lambda: said(page)["privacy"].get("person") == said(page)["people"]["key"] == "patient")
        typed(browser, "#people-dates", "born")
        browser.until(lambda: said(page)["people"].get("dates") == ["born"])

        browser.type("#new-rows", "visits")
        browser.click("#add-rows")
        browser.until(lambda: browser.all("#visits-source"))
        browser.until(lambda: "where the table visits is" in browser.text("#status"))
        browser.type("#visits-source", "visits.csv")
        browser.until(lambda: said(page)["people"]["rows"]["visits"]["source"] == "visits.csv")
        typed(browser, "#visits-dates", "date")
        browser.until(lambda: said(page)["people"]["rows"]["visits"].get("dates") == ["date"])
        typed(browser, "#visits-numbers", "cost = 0, 1000, 0.3")
        browser.until(lambda: browser.all("#visits-numbers-refused"))
        assert "whole multiples" in browser.text("#visits-numbers-refused")
        assert "numbers" not in said(page)["people"]["rows"]["visits"]
        typed(browser, "#visits-numbers", "cost = 0, 1000, 0.01")
        browser.until(lambda: said(page)["people"]["rows"]["visits"].get("numbers") == {"cost": [0, 1000, 0.01]})

        typed(browser, "#features", "n_visits = count(visits)\nsoon = any(visits.cost)")
        browser.until(lambda: browser.all("#features-refused"))
        assert "true or false belongs here, and this is a number" in browser.text("#features-refused")
        assert "columns" not in said(page)["people"]
        told = {"n_visits": "count(visits)", "soon": "any(days(visits.date, previous(visits.date)) <= 30)"}
        typed(browser, "#features", "\n".join(f"{n} = {text}" for n, text in told.items()))
        browser.until(lambda: said(page)["people"].get("columns") == told and not browser.all("#features-refused"))

        browser.click("#read-names")  # those of the table of persons, and what is told
        browser.until(lambda: {"sex", *told} <= {e.text for e in browser.all("#columns h3")})
        chosen(browser, '#columns select[aria-label="Kind of soon"]', "yes or no")
        chosen(browser, '#columns select[aria-label="Kind of n_visits"]', "whole numbers")
        fields = "#columns .column:has(select[aria-label='Kind of n_visits']) .fields input"
        for at, text in ((0, "0"), (1, "9")):
            browser.until(
                lambda i=at, t=text: len(browser.all(fields)) == 4 and not browser.all(fields)[i].send_keys(t)
            )
        browser.until(lambda: said(page)["schema"]["n_visits"].get("max") == 9)
        browser.saved()
        source = page.desk.spec().source
        assert isinstance(source, PerPerson)
        assert source.said == told
        for width, scheme in ((1280, "light"), (390, "dark"), (390, "light"), (1280, "dark")):
            browser.look(width, scheme)
            assert browser.overflow() <= 0, (width, scheme)
            browser.shot(f"persons-{width}-{scheme}")
            if width != 390 or scheme == "dark":
                assert browser.faults() == [], (width, scheme)
        browser.look(1280, "light")
        assert page.post("ledger", {"budget": {"rho": "9"}, "table": "people"}).status == 200
        assert page.paid("one")["state"] == "done"
        assert page.desk.release("one").provenance.features == tuple(told.items())

        chosen(browser, "#counted", "the rows of visits, each with its person's columns")
        browser.until(lambda: said(page)["people"].get("joined") == "visits")
        chosen(browser, "#unmatched", "count, the person's columns missing")
        browser.until(lambda: said(page)["people"].get("unmatched") == "missing")
        typed(browser, "#rows", "3")
        browser.until(lambda: isinstance(page.desk.spec().source, Joined))
        typed(browser, "#features", "")
        browser.until(lambda: "columns" not in said(page)["people"])
        browser.click("#tables button")
        browser.until(lambda: set(said(page)["people"]) == {"key", "source", "dates"})
        browser.click("#several")
        browser.until(lambda: "people" not in said(page))
        assert said(page)["data"]["source"] == "patients.csv"
        browser.until(lambda: browser.find("#source").is_displayed())
        assert browser.errors() == []


def test_how_the_one_table_was_written_goes_with_it(tmp_path: Path, browser: Browser) -> None:
    """To the table of persons and back. Mutant: marks left under [data], which has no table then."""
    spec = ASKED.replace('source = "patients.csv"', 'source = "patients.csv"\ndecimal = ","\ndelimiter = ";"')
    place = folder(tmp_path, spec)
    with studio(place, entered=False) as page:
        browser.go(page.keys.address)
        browser.until(lambda: browser.text("#file"))
        browser.go(f"{page.keys.origin}/table")
        before = said(page)["data"]
        browser.click("#several")
        browser.until(lambda: said(page).get("people", {}).get("delimiter") == ";")
        assert said(page)["data"] == {"table": "people"}
        assert said(page)["people"] == {"key": "", "source": "patients.csv", "decimal": ",", "delimiter": ";"}
        browser.click("#several")
        browser.until(lambda: said(page)["data"] == before)
        assert browser.errors() == []
