"""What is typed into a field is judged at that field, and offered what the grammar takes: in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

import sfumato as sf
from sfumato.releasing import plan_from_spec
from support.browser import Browser
from support.studio import ROWS, SPEC, Studio, folder, studio

ODD = """
[schema."marital status"]
type = "category"
values = ["Never married", "It's new"]
"""
ASKED = SPEC.replace("[privacy]", ODD + "[privacy]")


def entered(page: Studio, browser: Browser, name: str) -> None:
    browser.go(page.keys.address)
    browser.until(lambda: browser.text("#file"))
    page.key = page.keys.key
    browser.go(f"{page.keys.origin}/{name}")


def test_names_and_labels_are_offered_to_the_end_of_a_condition(tmp_path: Path, browser: Browser) -> None:
    """Mutants: nothing is offered behind a name in backquotes, or a number; a quote in a label not doubled."""
    from selenium.webdriver.common.keys import Keys

    with studio(folder(tmp_path, ASKED), entered=False) as page:
        entered(page, browser, "questions")
        browser.until(lambda: browser.all("#matrix input"))
        box = browser.find("#where")
        for typed, offered in (
            ("mari", "`marital status`"),
            ("== It", "'It''s new'"),
            ("and sex in (fem", "'female'"),
            (") or age >= 5 and a", "age"),
            ("< 9 and not `mar", "`marital status`"),
            ("!= (oth", "'(other)'"),
        ):
            box.send_keys(typed)
            browser.until(lambda o=offered: browser.text("#where + ul li").strip() == o)
            box.send_keys(Keys.ARROW_DOWN, Keys.ENTER)
        text = box.get_attribute("value")
        browser.click("#add-where")
        browser.until(lambda: "It''s new" in page.desk.text)
        assert text.strip() in next(q["where"] for q in _queries(page) if "where" in q)
        assert page.desk.spec().workload
        assert browser.errors() == []


def _queries(page: Studio) -> list[dict[str, list[str]]]:
    import tomllib

    return tomllib.loads(page.desk.text)["queries"]


def test_what_cannot_be_is_judged_at_its_field(tmp_path: Path, browser: Browser) -> None:
    """And keeps the last that was right. Mutant: written first, told on top of the page."""
    with studio(folder(tmp_path), entered=False) as page:
        entered(page, browser, "table")
        browser.until(lambda: browser.all("#columns h3"))
        browser.type("#impossible", "age < 2 and sex == 'male'")
        browser.run("document.activeElement.blur()")
        browser.until(lambda: "impossible" in page.desk.text)
        wrong = "const f = arguments[0]; f.value = 'aged < 2'; f.dispatchEvent(new Event('change'))"
        browser.run(wrong, browser.find("#impossible"))  # at once: to clear it first would be a change of its own
        browser.until(lambda: browser.all("#impossible-refused"))
        assert browser.text("#impossible-refused").startswith("no attribute is called 'aged'; did you mean 'age'?")
        assert "aged" not in page.desk.text
        assert "sex == 'male'" in page.desk.text
        browser.type("#impossible", "age < 3")
        browser.run("document.activeElement.blur()")
        browser.until(lambda: "age < 3" in page.desk.text and not browser.all("#impossible-refused"))
        browser.type("#rows", "3")
        browser.run("document.activeElement.blur()")
        browser.until(lambda: browser.all("#rows-refused"))  # kept: the column may be typed next
        browser.type("#person", "who")
        browser.run("document.activeElement.blur()")
        browser.until(lambda: "who" in page.desk.text and not browser.all("#rows-refused"))
        assert page.desk.spec().rows_per_person == 3
        browser.click("#read-names")
        browser.until(lambda: browser.all("#person-refused"))
        assert browser.text("#person-refused") == "The table has no column called who."
        assert browser.errors() == []


def test_rows_of_a_person_once_per_attribute(tmp_path: Path, browser: Browser) -> None:
    """Mutants: the attributes as one text; what is wrong told nowhere; the number kept when the attributes are gone."""
    spec = SPEC.replace("rho = 0.5", 'rho = 0.5\nperson = "who"\nrows_per_person = 5')
    with studio(folder(tmp_path, spec), entered=False) as page:
        entered(page, browser, "table")
        browser.until(lambda: browser.all("#columns h3"))

        def typed(field: str, text: str) -> None:
            wrong = "const [f, t] = arguments; f.value = t; f.dispatchEvent(new Event('change'))"
            browser.run(wrong, browser.find(field), text)

        typed("#group", "2")
        browser.until(lambda: "rows_per_group" in page.desk.text and browser.all("#once-refused, #group-refused"))
        typed("#once", "ages")
        browser.until(lambda: browser.all("#once-refused"))
        assert "ages" in browser.text("#once-refused")
        typed("#once", "sex, age")
        browser.until(lambda: not browser.all("#once-refused, #group-refused"))
        found = page.desk.spec()
        assert (found.once_per, found.rows_per_group) == (("age", "sex"), 2)
        typed("#group", "5")
        browser.until(lambda: browser.all("#once-refused, #group-refused"))
        typed("#once", "")
        browser.until(lambda: "once_per" not in page.desk.text and "rows_per_group" not in page.desk.text)
        assert page.desk.spec().once_per == ()
        assert browser.find("#group").get_attribute("value") == ""
        assert browser.errors() == []


def test_a_column_that_is_not_there_is_told_before_anything_is_paid(tmp_path: Path) -> None:
    """By its name, and nothing is spent. Mutant: the reader's reason, which is for the terminal alone."""
    spec = SPEC.replace("rho = 0.5", 'rho = 0.5\nperson = "who"\nrows_per_person = 3')
    with studio(folder(tmp_path, spec)) as page:
        assert page.post("ledger", {"budget": {"rho": "5"}, "table": "people"}).status == 200
        told = page.paid("one")
        assert told["error"] == "the table has no column called 'who'; it says whose a row is"
        assert page.desk.ledger().state().spent == 0  # type: ignore[union-attr]
        rows = ROWS.splitlines()
        (tmp_path / "people.csv").write_text(
            "\n".join([rows[0] + ",who", *(f"{r},{i}" for i, r in enumerate(rows[1:]))]) + "\n", encoding="utf-8"
        )
        assert page.paid("one")["state"] == "done"


def test_json_has_its_names_in_records_which_nothing_is_told_of(tmp_path: Path) -> None:
    """Mutant: a refusal that hangs on which columns the first record has."""
    spec = SPEC.replace("people.csv", "people.json")
    with studio(folder(tmp_path, spec)) as page:
        (tmp_path / "people.json").write_text('[{"age": 1}, {"age": 2, "sex": "male"}]', encoding="utf-8")
        assert page.desk.absent(page.desk.spec()) == ()


@pytest.mark.parametrize(
    ("typed", "instead"),
    [("200,000", "200000"), ("200 000", "200000"), ("2e5 ", "200000"), ("1,5", "1.5"), ("many", ""), ("1,2,3", "")],
)
def test_a_number_written_for_people_is_told_how_it_is_written_here(tmp_path: Path, typed: str, instead: str) -> None:
    text = SPEC.replace("max = 9", f'max = "{typed}"')
    with studio(folder(tmp_path, text)) as page:
        with pytest.raises(sf.errors.SpecError) as said:
            page.desk.spec()
        assert str(said.value).endswith(f"not {typed!r}" + (f"; write {instead}" if instead else ""))


def test_what_is_still_to_do_is_said_in_the_words_of_the_fields(tmp_path: Path) -> None:
    """Mutant: the keys of the spec, and lines of a file that nobody opened."""
    text = SPEC.replace("max = 9", 'max = ""').replace('"people.csv"', '""').replace('"add-remove"', '""')
    with studio(folder(tmp_path, text)) as page:
        found = page.post("change", {"version": page.version, "changes": []}).json
        assert found["todo"] == "where the table is; of age its greatest value; whose privacy"
        assert found["columns"]["age"]["blank"] == "its greatest value"
        gone = [{"place": ["schema", "age", "max"], "value": None}]
        found = page.post("change", {"version": page.version, "changes": gone}).json
        assert found["columns"]["age"]["blank"] == "its greatest value"


@pytest.mark.parametrize(
    "given", [{"about": 3}, {"about": "queries.1", "conditions": "age"}, {"about": "queries.1", "conditions": [4]}]
)
def test_a_check_is_of_texts(tmp_path: Path, given: dict[str, object]) -> None:
    with studio(folder(tmp_path)) as page:
        assert page.post("change", {"version": page.version, "changes": [], **given}).status == 400


def test_how_a_table_is_written_is_chosen_on_the_first_page(tmp_path: Path, browser: Browser) -> None:
    """Mutants: a space that is taken for nothing; a name in a header read plainly."""
    from selenium.webdriver.support.ui import Select

    place = folder(tmp_path, SPEC)
    (place / "people.csv").write_bytes("größe;sex\n1,5;1\n".encode("cp1252"))
    with studio(place, entered=False) as page:
        entered(page, browser, "table")
        browser.until(lambda: browser.all("#columns h3"))
        browser.find("#written summary").click()
        for mark, value in (("decimal", ","), ("thousands", " "), ("delimiter", ";")):
            Select(browser.find(f"#{mark}")).select_by_value(value)
            browser.until(lambda m=mark, v=value: _data(page).get(m) == v)
        browser.find("#encoding").send_keys("cp1252")
        browser.run("document.activeElement.blur()")
        browser.until(lambda: _data(page).get("encoding") == "cp1252")
        browser.click("#read-names")
        browser.until(lambda: "größe" in browser.text("#columns"))
        found = page.desk.spec().source
        assert isinstance(found, sf.Source)
        assert found.declared() == {"decimal": ",", "thousands": " ", "encoding": "cp1252", "delimiter": ";"}
        Select(browser.find("#decimal")).select_by_value("")
        browser.until(lambda: "decimal" not in _data(page))
        assert browser.errors() == []


def _data(page: Studio) -> dict[str, str]:
    import tomllib

    return tomllib.loads(page.desk.text)["data"]


def test_a_measure_is_declared_asked_and_taken_back(tmp_path: Path, browser: Browser) -> None:
    """Mutants: a column that stays under [schema] too; knots as one text; a measure that only the file can change."""
    import tomllib

    told = SPEC.replace("[schema.age]", '[schema.cost]\ntype = "number"\nmin = 0\nmax = 10\nwidth = 1\n\n[schema.age]')
    with studio(folder(tmp_path, told), entered=False) as page:
        entered(page, browser, "table")
        browser.until(lambda: browser.all("#columns h3"))
        kind = '#columns select[aria-label="Kind of cost"]'
        browser.choose(kind, "numbers to add up")
        browser.until(lambda: "measures" in tomllib.loads(page.desk.text))
        assert "cost" not in tomllib.loads(page.desk.text)["schema"]
        fields = "#columns .column:has(select[aria-label='Kind of cost']) .fields input"
        for at, typed in ((0, "0"), (1, "50000"), (2, "5000, 20000.5")):
            browser.until(lambda: len(browser.all(fields)) == 3)
            browser.all(fields)[at].send_keys(typed)
        done = {"min": 0, "max": 50_000, "knots": [5_000, 20_000.5]}
        browser.until(lambda: tomllib.loads(page.desk.text)["measures"]["cost"] == done)
        said = "#columns .column:has(select[aria-label='Kind of cost']) .told"
        browser.until(lambda: browser.text(said) == "added up, from 0 to 50000, cut at 5000, 20000.5")
        browser.go(f"{page.keys.origin}/questions")
        browser.until(lambda: browser.all("#means option"))
        browser.choose("#means-by", "sex")
        browser.click("#spread")
        browser.click("#add-means")
        asked = {"name": "means of cost", "moments": ["cost"], "by": ["sex"]}
        browser.until(lambda: asked in tomllib.loads(page.desk.text)["queries"])
        assert page.desk.spec().workload.domain.measures
        browser.go(f"{page.keys.origin}/table")
        browser.until(lambda: browser.all(kind))
        browser.choose(kind, "leave out")
        browser.until(lambda: not tomllib.loads(page.desk.text).get("measures"))
        assert browser.errors() == []


def test_labels_that_nobody_listed_are_looked_for_and_the_step_says_the_price(tmp_path: Path, browser: Browser) -> None:
    """Mutants: labels kept beside; no delta set aside; a share of per cents; one label that few have told as shown;
    columns that stay behind where labels are listed."""
    import tomllib

    budget = 'epsilon = 1\ndelta = "1e-6"'
    with studio(folder(tmp_path, SPEC.replace("rho = 0.5", budget)), entered=False) as page:
        entered(page, browser, "table")
        browser.until(lambda: browser.all("#columns h3"))
        of = "#columns .column:has(select[aria-label='Kind of sex'])"
        told = lambda: tomllib.loads(page.desk.text)  # noqa: E731
        browser.click(f"{of} .fields input[type=checkbox]")
        browser.until(lambda: told()["schema"]["sex"] == {"type": "category", "values": "discover"})
        assert float(told()["privacy"]["thresholds"]) == 5e-7
        # the conditions of the spec name labels, which nobody knows before
        assert "counts" in page.desk.text
        Path(page.desk.places.spec).write_text(page.desk.text.partition('[[queries]]\nname = "curve"')[0])
        browser.go(f"{page.keys.origin}/table")
        browser.until(lambda: "look" in browser.text(f"{of} .told"))
        assert browser.text(f"{of} .told") == (
            "20% of the budget looks which labels occur; one that 49 have is shown with 50 %, one that 72 have with "
            "99 %."
        )
        share, most = browser.all(f"{of} .fields input[type=text]")[:2]
        share.clear()
        share.send_keys("45")
        most.clear()
        most.send_keys("77")
        wanted = {"type": "category", "values": "discover", "discover": 0.45, "most": 77}
        browser.until(lambda: told()["schema"]["sex"] == wanted)
        browser.until(lambda: browser.text(f"{of} .told").startswith("45% of the budget"))
        browser.all(f"{of} .fields input[type=text]")[2].send_keys("age")
        browser.until(lambda: told()["schema"]["sex"] == wanted | {"columns": ["sex", "age"]})
        assert plan_from_spec(page.desk.spec()).looks[0].columns == ("sex", "age")
        browser.click(f"{of} .fields input[type=checkbox]")
        browser.until(lambda: told()["schema"]["sex"] == {"type": "category", "values": ""})
        assert browser.errors() == []
