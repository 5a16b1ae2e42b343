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
