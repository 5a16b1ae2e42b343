"""What an office does in a browser: numbers and days by an example, changes taken back, a year, a publication."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sfumato.releases.publication import folder_publication
from support.browser import Browser
from support.studio import Studio, folder, studio


@pytest.fixture
def page(tmp_path: Path, browser: Browser) -> Iterator[Studio]:
    with studio(folder(tmp_path), entered=False) as running:
        browser.forget()
        browser.look(1280, "light")
        browser.go(running.keys.address)
        browser.until(lambda: browser.text("#file"))
        running.key = running.keys.key
        yield running


def heading(browser: Browser, name: str) -> tuple[int, str]:
    found = browser.all("#columns h3")
    at = [h.text for h in found].index(name)
    return at, str(found[at].get_attribute("id"))


def test_examples_say_how_texts_are_written_and_changes_are_taken_back(page: Studio, browser: Browser) -> None:
    """Mutants: the day taken for the month; a change that stays; an example that can be read both ways taken."""
    before = page.desk.text
    browser.type("#new-column", "born")
    browser.click("#add-column")
    browser.saved()
    browser.until(lambda: browser.all("#columns h3")[-1].text == "born")
    browser.choose(f"[aria-labelledby={heading(browser, 'born')[1]}] .head select", "dates")
    browser.saved()
    example = f"#example-{heading(browser, 'born')[0]}"
    for text, told in (("05.06.2026", "cannot be told apart"), ("28.11.2026", "")):
        browser.type(example, text)
        browser.run("document.activeElement.blur()")
        if told:
            browser.until(lambda told=told: told in browser.text("#columns"))
    browser.saved()
    browser.until(lambda: 'format = "%d.%m.%Y"' in page.desk.text)
    browser.run("document.getElementById('written').open = true")
    for text in ("1.234", "1.234,50"):
        browser.type("#number-example", text)
        browser.run("document.activeElement.blur()")
    browser.until(lambda: 'decimal = ","' in page.desk.text and 'thousands = "."' in page.desk.text)
    assert browser.errors() == []
    while not browser.find("#take-back").get_attribute("disabled"):
        now = page.desk.text
        browser.click("#take-back")
        browser.until(lambda now=now: page.desk.text != now)
        browser.until(lambda: not browser.all("[aria-busy]"))
    assert page.desk.text == before


def test_a_year_is_counted_and_a_release_published(page: Studio, browser: Browser) -> None:
    browser.click("#year button")
    browser.until(lambda: "12 releases of" in browser.text("#total"))
    browser.click("#total button")
    browser.until(lambda: "The ledger is made" in browser.text("#total"))
    found = page.desk.ledger()
    assert found is not None
    assert str(found.total).startswith("6-zCDP")
    assert page.paid("2026-11")["state"] == "done"
    browser.go(f"{page.keys.origin}/what-if")
    browser.until(lambda: browser.all("#lines td"))
    browser.type("#condition", "age >= 5 and sex == 'female'")
    browser.type("#size", "23")
    browser.click("#guess button")
    browser.until(lambda: "To know it to ± 50 %" in browser.text("#known"))
    browser.go(f"{page.keys.origin}/publish")
    browser.until(lambda: browser.all("#files a"))
    browser.type("#title", "People by age")
    browser.type("#flags", "*=.1, suppress=.5")
    browser.click("#told button")
    browser.until(lambda: "Kept" in browser.text("#kept"))
    told = folder_publication(page.desk.stored("2026-11"))
    assert told is not None
    assert (told.text("title"), dict(told.flags)) == ("People by age", {"*": 0.1, "suppress": 0.5})
    browser.click("#project")
    browser.until(lambda: "2026-11-projected" in browser.text("#projected"))
    assert browser.errors() == []


GERMAN = """
[data]
source = "people.csv"
decimal = ","
thousands = "."

[schema_defaults]
outside = "other"
missing = "other"

[schema.born]
type = "date"
min = ""
max = ""
by = "year"
format = "%d.%m.%Y"

[schema.pay]
type = "number"
min = ""
max = ""
width = ""

[measures.income]
min = ""
max = ""

[privacy]
rho = 0.5
neighbours = "add-remove"

[[queries]]
name = "main"
upto = 1
"""


def test_numbers_and_days_are_typed_as_the_table_has_them(tmp_path: Path, browser: Browser) -> None:
    """And what was understood is said. Mutants: 250.000 kept as 250; a German day refused; one number of two."""
    with studio(folder(tmp_path, GERMAN), entered=False) as page:
        browser.forget()
        browser.look(1280, "light")
        browser.go(page.keys.address)
        browser.until(lambda: browser.all("#columns h3"))

        def label(name: str, text: str) -> str:
            at = f"[aria-labelledby={heading(browser, name)[1]}]"
            fields = [x.text for x in browser.all(f"{at} > .fields > label")]
            number = next(i for i, found in enumerate(fields) if found.startswith(text))
            return f"{at} > .fields > label:nth-of-type({number + 1}) input"

        def typed(name: str, what: str, text: str, done: str) -> None:
            browser.type(label(name, what), text)
            browser.until(lambda: done in page.desk.text)

        typed("income", "From", "-50.000,00", "min = -50000\n")
        typed("income", "to", "250.000", "max = 250000\n")
        browser.until(lambda: "\u221250\u202f000 to 250\u202f000" in browser.text("#columns"))
        browser.type(label("income", "sums also cut"), "50.000,100.000")
        browser.until(lambda: "put a semicolon" in browser.text("#columns").lower())
        assert "knots" not in page.desk.text
        typed("income", "sums also cut", "50.000; 100.000,5", "knots = [50000, 100000.5]")
        typed("pay", "or edges", "0; 10.000; 20000.5", "edges = [0, 10000, 20000.5]")
        typed("born", "From", "01.01.1926", 'min = "1926-01-01"')
        typed("born", "to", "2008-12-31", 'max = "2008-12-31"')
        browser.until(lambda: "1 January 1926 to 31 December 2008" in browser.text("#columns"))
        browser.run("document.activeElement.blur()")
        browser.until(lambda: browser.find("#mock-section").is_displayed())
        assert "." in browser.text("#mock")
        browser.go(f"{page.keys.origin}/table")
        browser.until(lambda: browser.all("#columns h3"))
        assert browser.find(label("born", "From")).get_attribute("value") == "01.01.1926"
        assert browser.find(label("pay", "or edges")).get_attribute("value") == "0; 10000; 20000,5"
        browser.go(f"{page.keys.origin}/questions")
        browser.until(lambda: browser.all("#matrix input"))
        browser.type("#where", "pay >= 10.000")
        browser.click("#add-where")
        browser.until(lambda: "write 10000 for 10.000" in browser.text("#where-refused"))
        assert "where" not in page.desk.text
        assert browser.errors() == []
