"""A session and a stream by clicks and typing: paid, asked, appended, and every page of theirs for everybody."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import sfumato as sf
from sfumato.interactive import session_status
from sfumato.studio import conversations as talking
from support.browser import Browser
from support.studio import SPEC, Studio, folder, studio

STREAM = SPEC.split("[[queries]]")[0] + "[[queries]]\nname = 'main'\nupto = 2\n[stream]\nperiods = 3\n"


@pytest.fixture
def page(request: pytest.FixtureRequest, tmp_path: Path, browser: Browser) -> Iterator[Studio]:
    """A studio on the spec that the test names, with a ledger, and a browser that entered."""
    with studio(folder(tmp_path, request.param), entered=False) as running:
        browser.forget()
        browser.look(1280, "light")
        browser.go(running.keys.address)
        browser.until(lambda: browser.text("h1") == "What is the table?" and browser.text("#file"))
        running.key = running.keys.key
        assert running.post("ledger", {"budget": {"rho": "2"}, "table": "people"}).status == 200
        browser.go(f"{running.keys.origin}/pay")
        browser.until(lambda: browser.all("#ledger svg"))
        yield running


def paid(browser: Browser, name: str) -> None:
    browser.type("#name", name)
    browser.click("#pay button")
    browser.until(lambda: browser.find("#job").get_attribute("data-state") == "done")


def everybody(browser: Browser, name: str) -> None:
    """No rule of axe is broken and nothing is wider than the window, on a phone and wide, light and dark."""
    for width, scheme in ((1280, "light"), (390, "dark"), (390, "light"), (1280, "dark")):
        browser.look(width, scheme)
        assert browser.overflow() <= 0, (name, width)
        browser.shot(f"{name}-{width}-{scheme}")
        if (width, scheme) in ((1280, "light"), (390, "dark")):
            assert browser.faults() == [], (name, width, scheme)
    browser.look(1280, "light")


@pytest.mark.parametrize("page", [SPEC], indirect=True)
def test_a_session(page: Studio, browser: Browser) -> None:
    """What it costs and what is left stand there before a question; what is shown is what the store has.

    Mutant: a sentence without a name in front made a fact with a name, where the page broke off.
    """
    browser.click("input[value=pmw]")
    browser.until(lambda: "how many records" in browser.text("#promise"))
    browser.type("#records", "300")
    browser.run("document.activeElement.blur()")
    browser.until(lambda: "debited at the opening" in browser.text("#promise"))
    assert browser.text("#promise").startswith("Whoever wants to tell")
    browser.until(lambda: "this session" in browser.text("#ledger"))
    assert "records = 300" in page.desk.text
    everybody(browser, "pay-session")
    paid(browser, "desk")
    browser.click("#job a")
    browser.until(lambda: browser.find("#going").get_attribute("data-updates"))
    store = page.desk.stored("desk")
    told = browser.text("#left")
    before = session_status(store)
    assert f"one of {before['updates_left']} updates left" in told
    assert f"within {before['easy_bound']:,.0f} records" in told
    assert f"within {before['hard_bound']:,.0f}" in told
    browser.type("#next-question", "aged >= 5")
    browser.click("#put button")
    browser.until(lambda: "aged" in browser.text("#problem"))
    assert session_status(store)["questions"] == 0
    for number, question in enumerate(("age >= 5 and sex == 'female'", "sex in ('female', 'male')"), 1):
        browser.type("#next-question", question)
        browser.click("#put button")
        browser.until(lambda n=number: browser.find("#going").get_attribute("data-asked") == str(n))
    state = session_status(store)
    assert browser.find("#going").get_attribute("data-updates") == str(state["updates_left"])
    told = talking.conversation_transcript(store)
    assert told is not None
    rows = told.to_dict()["blocks"][1]["rows"]
    shown = [c.text for c in browser.all("#replies tbody tr:first-child td")]
    assert shown[0] == "sex in ('female', 'male')"
    assert shown[1] == rows[-1][2]
    everybody(browser, "read-session")
    browser.go(f"{page.keys.origin}/audit")
    browser.until(lambda: browser.all("#transcripts td"))
    listed = [[c.text for c in r.find_elements("css selector", "td")] for r in browser.all("#transcripts tbody tr")]
    assert listed == rows
    everybody(browser, "audit-session")
    assert browser.errors() == []


@pytest.mark.parametrize("page", [STREAM], indirect=True)
def test_a_stream(page: Studio, tmp_path: Path, browser: Browser) -> None:
    """Opened, two periods from two files, totals as Python has them."""
    (tmp_path / "week2.csv").write_text("age,sex\n" + "3,female\n" * 50, encoding="utf-8")
    assert not browser.find("#choice").is_displayed()
    everybody(browser, "pay-stream")
    paid(browser, "weeks")
    for number, (file, label) in enumerate((("people.csv", "W1"), ("week2.csv", "W2"))):
        browser.click("#period-job a, #job a")
        browser.until(lambda n=number: f"{n} published, {3 - n} paid for" in browser.text("#periods-left"))
        browser.type("#period-table", file)
        browser.type("#period-label", label)
        if number == 0:
            everybody(browser, "read-stream-empty")
        browser.click("#append button")
        browser.until(lambda: browser.find("#period-job").get_attribute("data-state") == "done")
    assert 'source = "week2.csv"' in page.desk.text
    browser.click("#period-job a")
    browser.until(lambda: browser.all("#table svg"))
    browser.type("#question", "age == 3")
    browser.click("#ask button")
    browser.until(lambda: browser.all("#answers td"))
    found = sf.load(page.desk.stored("weeks"), ledger=tmp_path / "budget.db").totals.ask("age == 3")
    assert float(browser.all("#answers td")[1].text.replace(",", "")) == pytest.approx(found.value, abs=0.51)
    links = [a.get_attribute("href").rpartition("/")[2] for a in browser.all("#files a")]
    assert [x.partition("?")[0] for x in links] == ["tables.xlsx", "stream.release"]
    everybody(browser, "read-stream")
    browser.go(f"{page.keys.origin}/audit")
    browser.until(lambda: "W2" in browser.text("#transcripts"))
    assert browser.errors() == []
