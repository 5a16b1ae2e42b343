"""What an office does in a browser: numbers and days by an example, changes taken back, a year, a publication."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from sfumato.releases.publication import folder_publication, publication_from_root, read_publication
from sfumato.workloads.reading import read_toml
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
    # an end of the range says how days are written, where it can be read in one way alone
    from_ = f"[aria-labelledby={heading(browser, 'born')[1]}] .fields label input"
    for text, told in (("05.06.1926", "cannot be told apart"), ("31.12.1926", "")):
        browser.type(from_, text)
        if told:
            browser.until(lambda told=told: told in browser.text("#columns"))
            assert "1926" not in page.desk.text
    browser.until(lambda: 'min = "1926-12-31"' in page.desk.text and 'format = "%d.%m.%Y"' in page.desk.text)
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
    browser.type("#flags", "*=much")
    browser.click("#told button.primary")
    browser.until(lambda: "flags are marks" in browser.text("#told-refused"))
    assert not browser.text("#problem"), "what is refused here is said beside the button, and over nothing"
    browser.type("#flags", "*=0,1; suppress=50 %")
    assert not browser.find("#leave-out").is_displayed(), "offered where a flag suppresses"
    browser.click("#add-cells")
    lines = browser.find("#labels").get_attribute("value")
    assert "sex.female = " in lines
    browser.type("#labels", "sex = Geschlecht\nsex.female = weiblich\nsex.(other) = unbekannt")
    browser.click("#told button.primary")
    browser.until(lambda: "Kept" in browser.text("#kept"))
    assert not browser.find("#told-refused").is_displayed()
    told = folder_publication(page.desk.stored("2026-11"))
    assert told is not None
    assert (told.text("title"), dict(told.flags)) == ("People by age", {"*": 0.1, "suppress": 0.5})
    assert told.category_texts("sex") == {"female": "weiblich", "(other)": "unbekannt"}
    assert read_publication(page.desk.places.spec) == told
    browser.click("#leave-out")
    asking = [a.get_attribute("href") for a in [*browser.all("#files a"), browser.find("#office")]]
    files = [href.split("/")[-1].split("?")[0] for href in asking if "leave_out" in href]
    assert files == ["tables.xlsx", "files.zip", "office.toml"]
    browser.click("#project")
    browser.until(lambda: "2026-11-projected" in browser.text("#projected"))
    assert "2026-11-projected" in [o.text for o in browser.all("#releases option")]
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
        browser.go(f"{page.keys.origin}/what-if")
        browser.until(lambda: browser.all("#lines td"))
        browser.type("#condition", "pay >= 10000")
        browser.type("#size", "1.000")
        browser.click("#guess button")
        browser.until(lambda: "pay >= 10000, about 1,000:" in browser.text("#known"))
        browser.go(f"{page.keys.origin}/questions")
        browser.until(lambda: browser.all("#matrix input"))
        browser.type("#where", "pay >= 10.000")
        browser.click("#add-where")
        browser.until(lambda: "write 10000 for 10.000" in browser.text("#where-refused"))
        assert "where" not in page.desk.text
        assert browser.errors() == []


BORN = GERMAN.replace('min = ""\nmax = ""\nby = "year"', 'min = "1906-01-01"\nmax = "2025-12-31"\nby = "year"')
BORN = BORN[: BORN.index("[schema.pay]")] + BORN[BORN.index("[privacy]") :]


def test_groups_by_age_are_made_of_a_date_of_birth(tmp_path: Path, browser: Browser) -> None:
    """And a column of dates has a distribution, where lists without columns say why. Mutants: dates not offered; an
    empty list without a word; texts of cells that an edit of the range leaves behind."""
    with studio(folder(tmp_path, BORN), entered=False) as page:
        browser.forget()
        browser.look(1280, "light")
        browser.go(page.keys.address)
        browser.until(lambda: browser.all("#columns h3"))
        browser.click("#columns .ages summary")
        browser.type("#ages-day-0", "31.12.2025")
        browser.type("#ages-0", "18; 45; 65")
        browser.click("#ages-make-0")
        browser.until(lambda: 'starts = ["1961-01-01", "1981-01-01", "2008-01-01"]' in page.desk.text)
        browser.until(
            lambda: "Groups: under 18; 18 to under 45; 45 to under 65; 65 and over." in browser.text("#columns")
        )
        from_ = browser.find("#columns .column > .fields > label input")
        from_.clear()
        from_.send_keys("01.01.1920")
        browser.until(lambda: 'min = "1920-01-01"' in page.desk.text)
        spec = tomllib.loads(page.desk.text)
        told = publication_from_root(read_toml(page.desk.places.spec))
        assert told is not None
        domain = page.desk.spec().domain
        told.check_names(domain)
        texts = told.spoken("de").category_texts("born")
        assert [texts[cell] for cell in domain["born"].declared_labels] == [
            "65 und älter", "45 bis unter 65", "18 bis unter 45", "unter 18",
        ]  # fmt: skip
        assert next(iter(texts.values())) == "unter 18", "the youngest come first, on pages and in files"
        assert "by" not in spec["schema"]["born"]
        browser.go(f"{page.keys.origin}/questions")
        browser.until(lambda: browser.all("#matrix input"))
        assert [o.text for o in browser.all("#cdf option")] == ["born"]
        assert "Declare one so on the page Table" in browser.text("#sums-none")
        assert "numbers to add up" in browser.text("#means-none")
        assert browser.find("#add-sums").get_attribute("disabled")
        browser.click("#add-cdf")
        browser.until(lambda: 'prefix = "born"' in page.desk.text)
        assert page.desk.plan(page.desk.text)
        assert browser.faults() == []
        assert browser.errors() == []


def test_a_box_of_labels_fits_what_is_in_it(page: Studio, browser: Browser) -> None:
    """Mutant: fourteen labels in three lines."""
    place = f"[aria-labelledby={heading(browser, 'sex')[1]}] textarea"
    assert int(browser.find(place).get_attribute("rows")) == 3
    browser.type(place, "\n".join(f"place {i}" for i in range(14)))
    assert int(browser.find(place).get_attribute("rows")) >= 14
    browser.saved()
    browser.until(lambda: "place 13" in page.desk.text)
